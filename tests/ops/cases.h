/* cases.h: what a row of the conformance table is, and the shapes that its operands come in. */
#ifndef AN_TESTS_CASES_H
#define AN_TESTS_CASES_H

#include "ops/lab.h"

#include <anneal_decode.h>

/* Sets of dtypes. */
enum {
    T_F32 = 1 << AN_F32,
    T_NARROW = 1 << AN_BF16 | 1 << AN_F16,
    T_F64 = 1 << AN_F64,
    T_FLOAT = T_F32 | T_NARROW | T_F64,
    T_INT = 1 << AN_I32 | 1 << AN_I64 | 1 << AN_U8,
    T_BOOL = 1 << AN_BOOL,
    T_NUMBER = T_FLOAT | T_INT,
    T_ALL = T_NUMBER | T_BOOL
};

#define CORRECT 0.501 /* ulp: correctly rounded (the oracle's own double rounds too) */

/* A graph of one op in one dtype. `ulps` is the budget of f32: see budget(). `variant` counts from 0. */
typedef struct op_case {
    an_op op;
    const char *name;
    void (*build)(lab *l, const struct op_case *c, an_dtype t, int variant);
    int dtypes, variants, roots; /* roots: the most of a variant */
    double ulps;
} op_case;

/* 16-bit results are f32 results rounded once more: one of their units, or none where f32 is correct. Doubles are the
 * C library's. */
static inline double budget(double ulps, an_dtype t)
{
    if (ulps <= CORRECT || t == AN_F32) return ulps;
    return t == AN_F64 ? 2 : 1.01;
}

static inline void root(lab *l, const op_case *c, an_tensor *t, int variant)
{
    char what[96];
    snprintf(what, sizeof what, "%s %d", c->name, variant);
    lab_root_scaled(l, t, budget(c->ulps, an_dtype_of(t)), NULL, what);
}

/* What a window has outside of its tensor, and the weight of a masked key, is a zero that is multiplied or not, as suits
 * the kernel: with NaN and infinities a result may be NaN where the oracle, which does not, has a number. */
static inline bool sums_zeros(an_op op)
{
    return op == AN_OP_ATTENTION || op == AN_OP_ATTENTION_GRAD || op == AN_OP_CONV2D || op == AN_OP_CONV2D_DX ||
           op == AN_OP_CONV2D_DW || op == AN_OP_CONV2D_DW_IMAGES;
}

/* Judged against scale (NULL: 1 everywhere), in epsilons of the sums. */
static inline void root_sum(lab *l, const op_case *c, an_tensor *t, double ulps, an_tensor *scale, int variant)
{
    char what[96];
    snprintf(what, sizeof what, "%s %d", c->name, variant);
    if (!scale) scale = an_full_at(AT, l->now, an_dtype_of(t), an_shape_of(t), 1);
    lab_root_scaled(l, t, ulps, scale, what);
    l->root[l->n_roots - 1].sums_zeros = l->spoil == LAB_SPECIAL && sums_zeros(c->op);
}

/* The ways must agree; the oracle is not asked. */
static inline void root_bits(lab *l, const op_case *c, an_tensor *t, int variant)
{
    char what[96];
    snprintf(what, sizeof what, "%s %d", c->name, variant);
    lab_root_scaled(l, t, -1, NULL, what);
}

/* A few units of any dtype. */
static inline an_tensor *some(lab *l, an_dtype t, an_shape s)
{
    if (t == AN_BOOL) return lab_fill(l, t, s, 0, 2);
    if (t == AN_U8) return lab_fill(l, t, s, 0, 256);
    return an_dtype_is_float(t) ? lab_fill(l, t, s, -2, 2) : lab_fill(l, t, s, -100, 100);
}

#define ROWS_END                                                                                                       \
    {                                                                                                                  \
        .build = NULL                                                                                                  \
    }

#endif
