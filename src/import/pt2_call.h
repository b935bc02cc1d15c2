/* pt2_call.h: one call of a graph with another program's arrays, as pt2_call.c and pt2_step.c share it. */
#ifndef AN_IMPORT_PT2_CALL_H
#define AN_IMPORT_PT2_CALL_H

#include "import/pt2_model.h"

typedef struct an_call {
    an_import_model *m;
    an_ctx *cx;
    an_err *err;
    an_arena arena;
    int n_in, n_out;
    bool runs;                      /* false: it is only planned, and data are not looked at */
    an_tensor **in, **out, **bound; /* bound: the states, inputs first; NULL: none */
    an_tensor **root;               /* of an evaluation */
    bool *last_in, *last_out;
} an_call;

/* A call of m: room for its arrays; a failure is in *err. an_call_end in every case: unbinds, resets the context, and writes the
 * sentence of `status` (`built` if it has one) into why[]. */
an_status an_call_begin(an_import_model *m, an_err *err, an_call *out);
an_status an_call_end(an_call *c, an_status status, const char *built, char *why);
/* The inputs as tensors, read where they are if they can be. */
an_status an_call_inputs(an_call *c, const an_import_array *in);
/* The context's error as the call's. */
an_status an_call_failed(const an_call *c);
static inline int64_t an_array_elements(const an_import_array *a)
{
    int64_t n = 1;
    for (int i = 0; i < a->rank; i++) n *= a->dim[i];
    return n;
}

/* The element at `from` of dtype AN_I64, AN_I32 or AN_U8. */
int64_t an_call_integer(const void *from, int32_t dtype);

#endif
