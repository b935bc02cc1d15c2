/* fold_const.c: elementwise ops on constants, by the kernel column of ops.def: the bits a device would give, not
 * libm's.
 *
 * Owns:      one evaluation of each row in float, one in int64.
 * Does not:  fold f64, subnormals or NaN (devices may flush them or differ in a NaN's bits), or integers whose
 *            arithmetic could overflow.
 * Invariant: bf16 and f16 compute in f32 and round once, as everywhere.
 */
#include "graph/fold.h"
#include "graph/elem_domains.h"
#include "base/exact.h"

#include <math.h>

#define an_isfinite(x) (isfinite(x) ? 1 : 0) /* exact on any host, as is the next */
#define an_fmod(x, y)  fmodf(x, y)

static float in_float(an_op op, float a, float b, float c)
{
    (void)c; /* WHERE alone has three operands, and is answered before */
    switch (op) {
/* clang-format off */
#define AN_ELEM(NAME, arity, domain, result, kernel, ...)                                                              \
    case AN_OP_##NAME: return (float)(FLOAT_##domain(kernel));
#include "graph/ops.def"
        /* clang-format on */
    default: return NAN;
    }
}

/* Integers have their own comparisons of a and b where the kernel's are f32 functions. */
#undef AN_SEL
#define AN_SEL(c, a, b) ((c) ? (int64_t)(a) : (int64_t)(b))
#define an_max(a, b)    ((a) > (b) ? (a) : (b))
#define an_min(a, b)    ((a) < (b) ? (a) : (b))
#define an_idiv(a, b)   floor_div(a, b)
#define an_imod(a, b)   floor_mod(a, b)

static int64_t floor_div(int64_t a, int64_t b)
{
    return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static int64_t floor_mod(int64_t a, int64_t b)
{
    return b == 0 ? 0 : a - floor_div(a, b) * b;
}

static int64_t in_int(an_op op, int64_t a, int64_t b, int64_t c)
{
    (void)c;
    switch (op) {
/* clang-format off */
#define AN_ELEM(NAME, arity, domain, result, kernel, ...)                                                              \
    case AN_OP_##NAME: return (int64_t)(INT_##domain(kernel));
#include "graph/ops.def"
        /* clang-format on */
    default: return 0;
    }
}

/* Zero, normal or infinite: what every device holds alike. */
static bool plain(double x)
{
    return !isnan(x) && (x == 0 || fabs(x) >= 0x1p-126);
}

bool an_fold_constant(an_op op, an_dtype t, const double *x, const int64_t *i, double *out, int64_t *out_i)
{
    int n = an_ops[op].arity;
    if (op == AN_OP_WHERE || t == AN_F64) return false;
    if (an_dtype_is_float(t)) {
        for (int k = 0; k < n; k++)
            if (!plain(x[k])) return false;
        float y = in_float(op, (float)x[0], n > 1 ? (float)x[1] : 0, 0);
        *out = an_ops[op].result == AN_RES_BOOL ? y : an_round_to(t, (double)y);
        *out_i = y != 0;
        return plain((double)y) && plain(*out);
    }
    for (int k = 0; k < n; k++)
        if (i[k] > INT32_MAX || i[k] < INT32_MIN) return false;
    *out_i = an_wrap_to(an_ops[op].result == AN_RES_BOOL ? AN_BOOL : t, in_int(op, i[0], n > 1 ? i[1] : 0, 0));
    *out = (double)*out_i;
    return true;
}
