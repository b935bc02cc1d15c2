/* fold.h: what a graph computes from numbers alone is computed once, at import.
 *
 * Language models make their masks and positions from arange; a third of their nodes are that. Such a value is computed
 * in a context of its own, by the same rules, and becomes one number, a ramp or an input; a mask is recognised.
 *
 * Owns:      which values are constant, their elements on the host.
 * Does not:  fold parameters, or what is written in place. */
#ifndef AN_IMPORT_FOLD_H
#define AN_IMPORT_FOLD_H

#include "import/build.h"

typedef struct an_folded {
    void *data; /* NULL: not computed yet */
    an_shape shape;
    an_dtype dtype;
    int64_t n;
} an_folded;

typedef struct an_folder {
    const an_pt2_graph *g;
    bool *constant;   /* of each value */
    an_folded *value; /* of each value */
    an_ctx *cx;       /* where they are computed; opened when the first is wanted */
    int64_t key;      /* the number of samples for which they are */
} an_folder;

an_status an_fold_open(an_err *err, const an_pt2_graph *g, an_folder **out);
void an_fold_close(an_folder *f); /* NULL is fine */
/* Before a step of so many samples: values for another number are dropped. */
void an_fold_begin(an_folder *f, int64_t samples);

bool an_fold_skips(const an_build *b, int32_t node); /* all its results are constants */
void an_fold_emit(an_build *b, int32_t value);       /* sets a constant value's tensor; a failure is in b->err */

/* The elements of a value; NULL: it is no constant, or there is no memory. */
const an_folded *an_fold_value(an_build *b, int32_t value);
double an_fold_number(const an_folded *v, int64_t i);

typedef enum an_mask { AN_MASK_ALL, AN_MASK_CAUSAL, AN_MASK_OTHER } an_mask;
/* What a mask [...,T,S] of attention is, bool (true: seen) or float (0: seen, -inf or the least number: not). */
an_mask an_fold_mask(an_build *b, int32_t value, int64_t T, int64_t S);

/* Whether result `id` of node n, a view of a tensor of shape `p`, is a part along one axis: select, slice, split and
 * their like. */
bool an_view_region(const an_build *b, const an_pt2_node *n, int32_t id, an_shape p, int *axis, int64_t *start,
                    int64_t *step);

#endif
