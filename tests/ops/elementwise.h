/* elementwise.h: the rows of elementwise ops: function, budget in f32, and the numbers worth trying. */
#ifndef AN_TESTS_ELEMENTWISE_H
#define AN_TESTS_ELEMENTWISE_H

#include "ops/cases.h"

typedef struct elem_row {
    an_op op;
    const char *name;
    an_tensor *(*f1)(const char *, an_tensor *);
    an_tensor *(*f2)(const char *, an_tensor *, an_tensor *);
    double ulps, low, high; /* ulps: base/exact.h states them, rounded up here */
    bool small_only;        /* no argument beyond 2^20 */
} elem_row;

#define ONE(NAME, name, ...)                                                                                           \
    {                                                                                                                  \
        AN_OP_##NAME, #NAME, an_##name##_at, NULL, __VA_ARGS__                                                         \
    }
#define TWO(NAME, name, ...)                                                                                           \
    {                                                                                                                  \
        AN_OP_##NAME, #NAME, NULL, an_##name##_at, __VA_ARGS__                                                         \
    }
static const elem_row elem_rows[] = {
    ONE(NEG, neg, CORRECT, -9, 9, false),
    ONE(ABS, abs, CORRECT, -9, 9, false),
    ONE(SIGN, sign, CORRECT, -9, 9, false),
    ONE(FLOOR, floor, CORRECT, -9, 9, false),
    ONE(ROUND, round, CORRECT, -9, 9, false),
    ONE(SQRT, sqrt, CORRECT, 0, 99, false),
    ONE(RSQRT, rsqrt, 1.5, 0, 99, false),
    ONE(RECIP, recip, CORRECT, -9, 9, false),
    ONE(EXP, exp, 1, -90, 90, false),
    ONE(EXPM1, expm1, 1.6, -5, 90, false),
    ONE(LOG, log, 1, 0, 99, false),
    ONE(LOG1P, log1p, 1, -1, 99, false),
    ONE(SIN, sin, 1.7, -999, 999, true),
    ONE(COS, cos, 1.9, -999, 999, true),
    ONE(TANH, tanh, 1.5, -10, 10, false),
    ONE(ERF, erf, 1.2, -4, 4, false),
    ONE(ATAN, atan, 2.2, -9, 9, false),
    ONE(ASIN, asin, 4, -1, 1, false),
    ONE(ACOS, acos, 4, -1, 1, false),
    ONE(SIGMOID, sigmoid, 2.8, -90, 90, false),
    ONE(NOT, not, CORRECT, 0, 2, false),
    ONE(ISFINITE, isfinite, CORRECT, -9, 9, false),
    TWO(ADD, add, CORRECT, -99, 99, false),
    TWO(SUB, sub, CORRECT, -99, 99, false),
    TWO(MUL, mul, CORRECT, -99, 99, false),
    TWO(DIV, div, CORRECT, -99, 99, false),
    TWO(IDIV, idiv, CORRECT, -20, 20, false),
    TWO(IMOD, imod, CORRECT, -20, 20, false),
    TWO(POW, pow, 3.2, 0, 9, false),
    TWO(ATAN2, atan2, 2.2, -9, 9, false),
    TWO(FMOD, fmod, CORRECT, -99, 99, false),
    TWO(ROUND_BF16, round_bf16, CORRECT, -2, 2, false),
    TWO(MAXIMUM, maximum, CORRECT, -9, 9, false),
    TWO(MINIMUM, minimum, CORRECT, -9, 9, false),
    TWO(EQ, eq, CORRECT, -2, 2, false),
    TWO(NE, ne, CORRECT, -2, 2, false),
    TWO(LT, lt, CORRECT, -9, 9, false),
    TWO(LE, le, CORRECT, -9, 9, false),
    TWO(AND, and, CORRECT, -99, 99, false),
    TWO(OR, or, CORRECT, -99, 99, false),
    TWO(XOR, xor, CORRECT, -99, 99, false),
    {AN_OP_WHERE, "WHERE", NULL, NULL, CORRECT, -9, 9, false},
};

static inline int elem_dtypes(an_op op)
{
    switch (an_ops[op].domain) {
    case AN_DOM_FLOAT: return T_FLOAT;
    case AN_DOM_NUMBER: return T_NUMBER;
    case AN_DOM_INT: return T_INT;
    case AN_DOM_BOOL: return T_BOOL;
    case AN_DOM_BITS: return T_INT | T_BOOL;
    default: return T_ALL;
    }
}

enum { NO_ELEMENTS, ONE_ELEMENT, SPECIALS, BROADCAST, VIEWS, SEVERAL_TASKS, ELEM_SHAPES, EXTREMES = ELEM_SHAPES };

/* Pairs of these are all tried in two-operand ops. */
static inline an_tensor *elem_special(lab *l, const elem_row *r, an_dtype t, double low, double high, int k)
{
    static const double floats[10] = {0,           -0.0, 1, -1, 2.5, -0.5, (double)INFINITY, -(double)INFINITY,
                                      (double)NAN, 3e38};
    static const double small[10] = {0, -0.0, 1, -1, 2.5, -0.5, 1e-3, 1000000, -1000000, 0x1.8p-120};
    static const double ints[10] = {0, 1, -1, 2, -2, INT32_MAX, INT32_MIN, 7, -7, 3};
    static const double longs[10] = {0, 1, -1, 2, -2, 3e9, -3e9, 7, -7, 3};
    static const double bytes[10] = {0, 1, 255, 254, 128, 127, 7, 16, 2, 3};
    static const double bools[10] = {0, 1, 1, 0, 1, 0, 0, 1, 0, 1};
    const double *s = t == AN_BOOL    ? bools
                      : t == AN_U8    ? bytes
                      : t == AN_I64   ? longs
                      : t == AN_I32   ? ints
                      : r->small_only ? small
                                      : floats;
    return lab_input(l, t, AN_SHAPE(9, 13), low, high, s, 10, k);
}

/* Numbers at both ends of a dtype, each with each: [9,13]. */
static inline an_tensor *elem_extreme(lab *l, const elem_row *r, an_dtype t, int k)
{
    const double least = t == AN_F64   ? DBL_MIN
                         : t == AN_F16 ? 0x1p-14
                                       : (double)FLT_MIN,
                 step = t == AN_F64   ? 0x1p-52
                        : t == AN_F16 ? 0x1p-10
                                      : 0x1p-7, /* of bf16, also for f32 */
        most = t == AN_F64   ? DBL_MAX
               : t == AN_F16 ? 65504
                             : 0x1.FEp127;
    const double x[10] = {
        0, -0.0, least * step, -least * step, least * (1 - step), -least * (1 - step), least, -most, most, 1};
    return lab_input(l, t, AN_SHAPE(9, 13), r->low, r->high, x, 10, k);
}

/* The stochastic rounding to bfloat16 takes subnormal numbers for zeros: the oracle is not asked. */
static inline bool elem_flushes(const elem_row *r, an_dtype t)
{
    return t == AN_BF16 || r->op == AN_OP_ROUND_BF16;
}

/* Operand k of an op in one of the shapes above. */
static inline an_tensor *elem_operand(lab *l, const elem_row *r, an_dtype t, int shape, int k)
{
    double low = t == AN_BOOL || t == AN_U8 ? 0 : r->low, high = t == AN_BOOL ? 2 : r->high;
    switch (shape) {
    case NO_ELEMENTS: return lab_fill(l, t, AN_SHAPE(0, 3), low, high);
    case ONE_ELEMENT: return lab_fill(l, t, AN_SCALAR, low, high);
    case SPECIALS: return elem_special(l, r, t, low, high, k);
    case EXTREMES: return t == AN_BOOL ? elem_special(l, r, t, low, high, k) : elem_extreme(l, r, t, k);
    case BROADCAST:
        if (k == 0) return lab_fill(l, t, r->f1 ? AN_SHAPE(4, 3, 5) : AN_SHAPE(7, 1, 5), low, high);
        return lab_fill(l, t, k == 1 ? AN_SHAPE(3, 1) : AN_SHAPE(5), low, high);
    case VIEWS: /* all [9,5] */
        if (k == 0) return an_transpose_at(AT, lab_fill(l, t, AN_SHAPE(5, 9), low, high), 0, 1);
        if (k == 1)
            return an_flip_at(AT, an_slice_at(AT, lab_fill(l, t, AN_SHAPE(9, 12), low, high), 1, 1, 11, 2), AN_AXIS(1));
        return an_slice_at(AT, lab_fill(l, t, AN_SHAPE(19, 5), low, high), 0, 1, 19, 2);
    default: return lab_fill(l, t, AN_SHAPE(3, 9001), low, high);
    }
}

static inline void elem_build(lab *l, const elem_row *r, an_dtype t, int shape)
{
    char what[96];
    an_tensor *y;
    if (r->f1)
        y = r->f1(AT, elem_operand(l, r, t, shape, 0));
    else if (r->f2) {
        an_tensor *a = elem_operand(l, r, t, shape, 0);
        y = r->f2(AT, a, elem_operand(l, r, t, shape, 1));
    } else {
        an_tensor *cond = elem_operand(l, r, AN_BOOL, shape, 0), *b = elem_operand(l, r, t, shape, 1);
        y = an_where_at(AT, cond, b, elem_operand(l, r, t, shape, 2));
    }
    snprintf(what, sizeof what, "%s shape %d of %s", r->name, shape, an_dtype_text(t));
    const bool unasked = shape == EXTREMES && elem_flushes(r, t);
    lab_root_scaled(l, y, unasked ? -1 : budget(r->ulps, an_dtype_of(y)), NULL, what);
}

#endif
