/* library_calls.h: shared by library_calls.c (rows, scattering), pool_max_grad.c, draw.c and linalg.c (factorisations and linear systems).
 *
 * A library call is divided into units by shape alone: a row, a matrix of the batch, a block of columns. The pool
 * decides which thread runs a unit, never how it is computed, so results do not depend on the number of threads.
 */
#ifndef AN_DEVICE_CPU_LIBRARY_CALLS_H
#define AN_DEVICE_CPU_LIBRARY_CALLS_H

#include "device/cpu/cpu_internal.h"

typedef struct an_call_job {
    const an_library_call_spec *s;
    const an_cpu_kernels *kernels; /* where it runs */
    void *const *arg;              /* sources, then outputs; NULL when only sizes are asked for */
    int64_t units, weight;         /* weight: about how many elements a unit touches */
    size_t scratch_bytes;          /* of one unit */
    void (*unit)(const struct an_call_job *j, int64_t u, void *scratch);
} an_call_job;

static inline int64_t an_call_last(const an_call_tensor *t)
{
    return t->rank ? t->shape[t->rank - 1] : 1;
}

/* Product of the extents of all axes but the last `skip`. */
static inline int64_t an_call_outer(const an_call_tensor *t, int skip)
{
    int64_t n = 1;
    for (int i = 0; i + skip < t->rank; i++) n *= t->shape[i];
    return n;
}

/* Elements [at, at + n) of a float array, as doubles (exact), and back (rounded to the dtype; bf16 and f16 by way of
 * f32). */
void an_call_load(double *dst, const void *src, int dtype, int64_t at, int64_t n);
void an_call_store(void *dst, int dtype, int64_t at, const double *src, int64_t n);

/* Fills units, weight, scratch_bytes and unit for the matrix ops; false for others. */
bool an_call_matrix(an_call_job *j);
/* The same for the gradient of max pooling. */
void an_call_pool_max_grad(an_call_job *j);
/* The same for products by groups of rows. */
void an_call_grouped(an_call_job *j);
/* The same for tokens drawn from logits. */
void an_call_draw(an_call_job *j);

#endif
