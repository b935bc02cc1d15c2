/* kernel_oracle.h: the oracle for one kernel of a plan: computes from its inputs what it should have written.
 *
 * Owns:      samples of what each kind of kernel writes, computed in double by the plainest loops over its spec or row
 *            program, and the comparison with what a device wrote.
 * Does not:  run kernels, or know devices: memory comes as bytes on the host.
 *
 * Samples: rows, columns and elements spread over the output, always with the first and last; all of it where it is
 * small. The amount of work is bounded, so that a model's largest GEMM takes as long as a small one.
 */
#ifndef AN_ORACLE_KERNEL_ORACLE_H
#define AN_ORACLE_KERNEL_ORACLE_H

#include "ir/plan.h"

typedef struct an_oracle_memory { /* an argument of the step */
    const void *before;           /* its bytes before the kernel ran; NULL: absent */
    const void *after;            /* after; NULL: not written */
    int64_t bytes;                /* of both */
} an_oracle_memory;

typedef struct an_oracle_verdict {
    int64_t elements;  /* compared */
    double worst;      /* largest difference / allowed difference; infinite: an unexpected NaN or infinity */
    char fault[1024];  /* the first element above 1; "" */
    char skipped[128]; /* why nothing was compared; "" */
} an_oracle_verdict;

/* Bytes that the kernel may access from argument `i` of the step on; at least the step's own count, and possibly past
 * the buffer's end. */
int64_t an_oracle_extent(const an_plan *p, const an_plan_step *s, int i);

/* The dtype of what the step writes through argument `i`; AN_U8: bytes that are no numbers of a known dtype. */
an_dtype an_oracle_written_dtype(const an_plan *p, const an_plan_step *s, int i);

/* Checks a step's kernel and epilogue; arg[s->n_args]. With `tf32` operands of f32 GEMMs may have been rounded to 11
 * bits. AN_E_NOMEM only: faults are in *out. */
an_status an_oracle_check(an_err *err, const an_plan *p, const an_plan_step *s, const an_oracle_memory *arg, bool tf32,
                          an_oracle_verdict *out);

/* ---- between kernel_oracle.c and loop_oracle.c */

typedef struct an_oracle_samples { /* what is expected, one entry an element */
    int64_t *at, n, cap;
    double *want; /* integers too: all are exact in a double, or were int64 sums that wrapped and are not compared */
    double
        *size; /* of a sum, or a value that has one in it, which may cancel: the sum of its terms' magnitudes; else 0 */
    int32_t *arg;
} an_oracle_samples;
bool an_oracle_expect(an_oracle_samples *e, int arg, int64_t at, double want); /* false: no memory */

/* Evaluates samples of a loop kernel. `arg` begins at its first argument; `tile` gives element (r,c) of the GEMM whose
 * epilogue this is. */
typedef double (*an_oracle_tile_fn)(void *user, int64_t r, int64_t c);
an_status an_oracle_loop(an_err *err, const an_loop_kernel *p, const an_oracle_memory *arg, int first_arg,
                         an_oracle_tile_fn tile, void *user, an_oracle_samples *out, const char **skipped);

#endif
