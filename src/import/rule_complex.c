/* rule_complex.c: complex numbers, as two tensors: real and imaginary parts; and Fourier transforms, as products with constant matrices.
 *
 * A rule that moves or adds elements is run for each part; a product for each pair of parts; others are formulas here. What is neither is
 * refused: a rule that knows nothing of complex numbers never sees one. */
#include "import/rules.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct pair {
    an_tensor *re, *im; /* im NULL: a real number */
} pair;

/* ---- values */

static bool is_complex(const an_build *b, int32_t id)
{
    return id >= 0 && an_pt2_is_complex(b->g->value[id].torch_dtype);
}

bool an_is_of_complex(const an_build *b, const an_pt2_node *n)
{
    bool any = false;
    for (int i = 0; i < AN_ATEN_MAX_ARGS; i++) {
        const an_pt2_arg *a = &n->arg[i];
        if (a->kind == AN_ARG_TENSOR) any |= is_complex(b, a->value);
        for (int32_t k = 0; a->kind == AN_ARG_TENSORS && k < a->n; k++) any |= is_complex(b, a->values[k]);
    }
    for (int32_t k = 0; k < n->n_out; k++) {
        const an_pt2_arg *a = &n->out[k];
        if (a->kind == AN_ARG_TENSOR) any |= is_complex(b, a->value);
        for (int32_t j = 0; a->kind == AN_ARG_TENSORS && j < a->n; j++) any |= is_complex(b, a->values[j]);
    }
    return any;
}

/* Argument i, a tensor or a number. */
static pair operand(an_build *b, const an_pt2_node *n, int i)
{
    if (n->arg[i].kind != AN_ARG_TENSOR) return (pair){NULL, NULL};
    const an_built_value *v = an_build_get(b, n->arg[i].value);
    return (pair){an_plain(v->t, v->last), v->im};
}

/* Whether tensor `at` of the node's arguments, or of its list, says which elements are meant: it is the same for both parts. */
bool an_complex_is_place(const an_pt2_node *n, int at)
{
    if (strncmp(n->target, "aten.where.", 11) == 0) return at == 0;
    return strncmp(n->target, "aten.index", 10) == 0 || strncmp(n->target, "aten.gather.", 12) == 0;
}

/* As the parts of complex results are: complex64 has float32. */
static an_dtype part_dtype(const an_build *b, const an_pt2_node *n)
{
    return an_out_dtype(b, n, 0);
}

static an_tensor *zeros_of(an_build *b, an_tensor *like)
{
    return an_full_at(AN_AT, b->cx, an_dtype_of(like), an_shape_of(like), 0);
}

static void give(an_build *b, const an_pt2_node *n, pair y)
{
    const an_dtype dtype = part_dtype(b, n);
    if (y.re) y.re = an_as(y.re, dtype);
    if (y.im) y.im = an_as(y.im, dtype);
    const bool real = n->n_out < 1 || n->out[0].kind != AN_ARG_TENSOR || !is_complex(b, n->out[0].value);
    if (!real && !y.im) y.im = zeros_of(b, y.re);
    if (real) y.im = NULL;
    an_out(b, n, 0, y.re);
    an_out_imaginary(b, n, 0, y.im);
}

static an_tensor *times(an_tensor *x, an_tensor *y)
{
    an_promote(&x, &y);
    return an_mul_at(AN_AT, x, y);
}

static an_tensor *plus(an_tensor *x, an_tensor *y, bool minus)
{
    an_promote(&x, &y);
    return minus ? an_sub_at(AN_AT, x, y) : an_add_at(AN_AT, x, y);
}

/* ---- formulas */

static an_status make(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *y = an_in(b, n, 1);
    an_promote(&x, &y);
    if (strstr(n->target, "polar"))
        give(b, n, (pair){an_mul_at(AN_AT, x, an_cos_at(AN_AT, y)), an_mul_at(AN_AT, x, an_sin_at(AN_AT, y))});
    else /* both broadcast */
        give(b, n, (pair){plus(x, an_mul_num_at(AN_AT, y, 0), false), plus(y, an_mul_num_at(AN_AT, x, 0), false)});
    return AN_OK;
}

static an_status of_real(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    an_shape s = an_shape_of(x);
    const int last = s.rank - 1;
    if (last < 0 || s.dim[last] != 2)
        return an_build_refuse(b, AN_E_IO, "a last axis of other than 2; the file is damaged");
    s.rank--;
    give(b, n,
         (pair){an_reshape_at(AN_AT, an_slice_at(AN_AT, x, last, 0, 1, 1), s),
                an_reshape_at(AN_AT, an_slice_at(AN_AT, x, last, 1, 2, 1), s)});
    return AN_OK;
}

static an_status as_real(an_build *b, const an_pt2_node *n)
{
    pair x = operand(b, n, 0);
    an_shape s = an_shape_of(x.re);
    if (s.rank > 7) return an_build_refuse(b, AN_E_UNSUPPORTED, "more than 7 axes");
    s.dim[s.rank++] = 1;
    an_tensor *parts[] = {an_reshape_at(AN_AT, x.re, s), an_reshape_at(AN_AT, x.im, s)};
    an_out(b, n, 0, an_concat_at(AN_AT, parts, 2, s.rank - 1));
    return AN_OK;
}

static an_status part(an_build *b, const an_pt2_node *n)
{
    const pair x = operand(b, n, 0);
    an_out(b, n, 0, strstr(n->target, "imag") ? x.im : x.re);
    return AN_OK;
}

static an_status conjugate(an_build *b, const an_pt2_node *n)
{
    const pair x = operand(b, n, 0);
    give(b, n, (pair){x.re, an_neg_at(AN_AT, x.im)});
    return AN_OK;
}

static an_status same(an_build *b, const an_pt2_node *n)
{
    give(b, n, operand(b, n, 0));
    return AN_OK;
}

/* As another dtype: a real one has the real part, but a bool says whether either part is other than 0. */
static an_status cast(an_build *b, const an_pt2_node *n)
{
    pair x = operand(b, n, 0);
    if (x.im && an_out_dtype(b, n, 0) == AN_BOOL) {
        an_tensor *re = an_as(x.re, AN_BOOL), *im = an_as(x.im, AN_BOOL);
        x.re = an_or_at(AN_AT, re, im);
    }
    give(b, n, x);
    return AN_OK;
}

/* The absolute value; its gradient at 0 is 0. */
static an_status magnitude(an_build *b, const an_pt2_node *n)
{
    const pair x = operand(b, n, 0);
    an_tensor *re = an_square_at(AN_AT, x.re), *im = an_square_at(AN_AT, x.im), *s = an_add_at(AN_AT, re, im);
    an_tensor *zero = an_num(s, b->cx, 0), *none = an_eq_at(AN_AT, s, zero);
    s = an_where_at(AN_AT, none, an_num(s, b->cx, 1), s);
    an_out(b, n, 0, an_where_at(AN_AT, none, zero, an_sqrt_at(AN_AT, s)));
    return AN_OK;
}

static an_status angle(an_build *b, const an_pt2_node *n)
{
    const pair x = operand(b, n, 0);
    an_out(b, n, 0, an_atan2_at(AN_AT, x.im, x.re));
    return AN_OK;
}

static an_status exponential(an_build *b, const an_pt2_node *n)
{
    const pair x = operand(b, n, 0);
    an_tensor *r = an_exp_at(AN_AT, x.re);
    give(b, n, (pair){an_mul_at(AN_AT, r, an_cos_at(AN_AT, x.im)), an_mul_at(AN_AT, r, an_sin_at(AN_AT, x.im))});
    return AN_OK;
}

static pair product_of(pair x, pair y)
{
    an_tensor *rr = times(x.re, y.re), *ii = times(x.im, y.im), *ri = times(x.re, y.im), *ir = times(x.im, y.re);
    return (pair){plus(rr, ii, true), plus(ri, ir, false)};
}

static an_status product(an_build *b, const an_pt2_node *n)
{
    pair x = operand(b, n, 0), y = operand(b, n, 1);
    if (!y.re) {
        const double k = an_in_float(b, n, 1);
        give(b, n, (pair){an_mul_num_at(AN_AT, x.re, k), an_mul_num_at(AN_AT, x.im, k)});
    } else if (!x.im || !y.im) {
        const pair z = x.im ? x : y;
        an_tensor *k = x.im ? y.re : x.re;
        give(b, n, (pair){times(z.re, k), times(z.im, k)});
    } else {
        give(b, n, product_of(x, y));
    }
    return AN_OK;
}

static an_status quotient(an_build *b, const an_pt2_node *n)
{
    pair x = operand(b, n, 0), y = operand(b, n, 1);
    if (!y.re) {
        const double k = 1 / an_in_float(b, n, 1);
        give(b, n, (pair){an_mul_num_at(AN_AT, x.re, k), an_mul_num_at(AN_AT, x.im, k)});
        return AN_OK;
    }
    if (!y.im) {
        an_promote(&x.re, &y.re);
        give(b, n, (pair){an_div_at(AN_AT, x.re, y.re), an_div_at(AN_AT, x.im, y.re)});
        return AN_OK;
    }
    if (!x.im) x.im = zeros_of(b, x.re);
    an_tensor *re = an_square_at(AN_AT, y.re), *im = an_square_at(AN_AT, y.im), *norm = plus(re, im, false);
    const pair z = product_of(x, (pair){y.re, an_neg_at(AN_AT, y.im)});
    give(b, n, (pair){an_div_at(AN_AT, z.re, norm), an_div_at(AN_AT, z.im, norm)});
    return AN_OK;
}

/* ---- rules of real numbers, for each part */

/* Runs the node's rule with part `first` of its first tensor, or of every tensor where `second` is -1, and part `second` of the second
 * one. */
static an_status run_part(an_build *b, const an_pt2_node *n, int first, int second)
{
    const int kept[2] = {b->part[0], b->part[1]};
    b->part[0] = first;
    b->part[1] = second < 0 ? first : second;
    const an_status status = n->rule->rule(b, n);
    b->part[0] = kept[0];
    b->part[1] = kept[1];
    return status;
}

/* What is linear in all its tensors at once. Each result's imaginary part is what the rule makes of the imaginary parts. */
static an_status each_part(an_build *b, const an_pt2_node *n)
{
    enum { MOST = 64 };
    an_tensor *im[MOST];
    const int count = an_out_count(n);
    if (count > MOST) return an_build_refuse(b, AN_E_UNSUPPORTED, "more than %d complex results", MOST);
    const bool where = strncmp(n->target, "aten.where.", 11) == 0, pad = strstr(n->target, "constant_pad") != NULL;
    if ((where && (n->arg[1].kind != AN_ARG_TENSOR || n->arg[2].kind != AN_ARG_TENSOR)) ||
        (pad && an_in_float(b, n, 2) != 0))
        return an_build_refuse(b, AN_E_UNSUPPORTED, "a number beside complex ones; make it a tensor");
    AN_TRY(run_part(b, n, 1, -1));
    for (int k = 0; k < count; k++) im[k] = an_out_get(b, n, k);
    AN_TRY(run_part(b, n, 0, -1));
    for (int k = 0; k < count; k++) an_out_imaginary(b, n, k, im[k]);
    return AN_OK;
}

/* A number beside complex ones is added to their real parts. */
static an_status sums(an_build *b, const an_pt2_node *n)
{
    if (an_in_is_tensor(n, 0) && an_in_is_tensor(n, 1)) return each_part(b, n);
    if (!an_in_is_tensor(n, 0)) return an_build_refuse(b, AN_E_UNSUPPORTED, "of complex numbers");
    const pair x = operand(b, n, 0);
    const double k = an_in_float(b, n, 1) * an_in_float(b, n, 2);
    give(b, n, (pair){an_add_num_at(AN_AT, x.re, strstr(n->target, "aten.sub") ? -k : k), x.im});
    return AN_OK;
}

/* What is linear in each of two tensors: arguments 0 and 1, or the members of a list. */
static an_status bilinear(an_build *b, const an_pt2_node *n)
{
    const bool list = an_in_count(n, 1) > 0;
    const int32_t a = list ? n->arg[1].values[0] : n->arg[0].value;
    const int32_t c = list ? (n->arg[1].n == 2 ? n->arg[1].values[1] : -1) : n->arg[1].value;
    if (list && n->arg[1].n == 1) return each_part(b, n);
    if (c < 0) return an_build_refuse(b, AN_E_UNSUPPORTED, "more than two complex operands");
    an_tensor *got[2][2] = {{NULL}};
    for (int i = 0; i < (is_complex(b, a) ? 2 : 1); i++)
        for (int k = 0; k < (is_complex(b, c) ? 2 : 1); k++) {
            AN_TRY(run_part(b, n, i, k));
            got[i][k] = an_out_get(b, n, 0);
        }
    an_tensor *re = got[0][0], *im = got[0][1] && got[1][0] ? plus(got[0][1], got[1][0], false)
                                     : got[0][1]            ? got[0][1]
                                                            : got[1][0];
    if (got[1][1]) re = plus(re, got[1][1], true);
    give(b, n, (pair){re, im});
    return AN_OK;
}

typedef struct handler {
    const char *name; /* "mul" of aten.mul.Tensor */
    an_status (*run)(an_build *b, const an_pt2_node *n);
} handler;

static const handler handlers[] = {
    {"polar", make},
    {"complex", make},
    {"view_as_complex", of_real},
    {"view_as_real", as_real},
    {"real", part},
    {"imag", part},
    {"conj", conjugate},
    {"_conj", conjugate},
    {"conj_physical", conjugate},
    {"_conj_physical", conjugate},
    {"resolve_conj", same},
    {"resolve_neg", same},
    {"abs", magnitude},
    {"absolute", magnitude},
    {"angle", angle},
    {"exp", exponential},
    {"mul", product},
    {"multiply", product},
    {"div", quotient},
    {"true_divide", quotient},
    {"to", cast},
    {"_to_copy", cast},
    {"type_as", cast},
    /* moved or added */
    {"alias", each_part},
    {"cat", each_part},
    {"chunk", each_part},
    {"clone", each_part},
    {"concat", each_part},
    {"contiguous", each_part},
    {"detach", each_part},
    {"diagonal", each_part},
    {"expand", each_part},
    {"flatten", each_part},
    {"flip", each_part},
    {"gather", each_part},
    {"index", each_part},
    {"index_select", each_part},
    {"lift_fresh_copy", each_part},
    {"mean", each_part},
    {"movedim", each_part},
    {"narrow", each_part},
    {"neg", each_part},
    {"permute", each_part},
    {"repeat", each_part},
    {"reshape", each_part},
    {"roll", each_part},
    {"select", each_part},
    {"slice", each_part},
    {"split", each_part},
    {"split_with_sizes", each_part},
    {"squeeze", each_part},
    {"stack", each_part},
    {"sub", sums},
    {"add", sums},
    {"sum", each_part},
    {"swapaxes", each_part},
    {"t", each_part},
    {"transpose", each_part},
    {"tril", each_part},
    {"triu", each_part},
    {"unbind", each_part},
    {"unflatten", each_part},
    {"unsqueeze", each_part},
    {"view", each_part},
    {"_unsafe_view", each_part},
    {"where", each_part},
    {"slice_scatter", each_part},
    {"select_scatter", each_part},
    {"zeros", each_part},
    {"zeros_like", each_part},
    {"new_zeros", each_part},
    {"copy", each_part},
    {"constant_pad_nd", each_part},
    {"fft_fftshift", each_part},
    {"fft_ifftshift", each_part},
    /* products */
    {"matmul", bilinear},
    {"mm", bilinear},
    {"bmm", bilinear},
    {"einsum", bilinear},
};

an_status an_complex_apply(an_build *b, const an_pt2_node *n)
{
    const char *name = strncmp(n->target, "aten.", 5) == 0 ? n->target + 5 : n->target;
    if (strncmp(name, "_assert_", 8) == 0) return AN_OK;
    if (n->rule->rule == an_rule_fft || n->rule->rule == an_rule_stft) return n->rule->rule(b, n);
    const size_t length = strcspn(name, ".") - (n->in_place ? 1 : 0); /* without the underscore */
    for (size_t i = 0; i < AN_COUNT(handlers); i++)
        if (strlen(handlers[i].name) == length && strncmp(name, handlers[i].name, length) == 0)
            return handlers[i].run(b, n);
    return an_build_refuse(b, AN_E_UNSUPPORTED, "of complex numbers");
}

/* The row of what only complex numbers reach. */
an_status an_rule_complex(an_build *b, const an_pt2_node *n)
{
    return an_complex_apply(b, n);
}

/* ---- Fourier transforms */

enum { FFT_MOST = 1 << 22 };

/* scale cos or scale sin of 2 pi j k / n, as [rows,columns], on the host in float64. half_rows: each row but the first and the middle one
 * stands for its conjugate too, and counts twice. */
static an_tensor *waves(an_build *b, an_dtype dtype, int64_t rows, int64_t columns, int64_t n, bool sine,
                        bool half_rows, double scale)
{
    double *x = malloc((size_t)(rows * columns) * sizeof *x);
    if (!x) return NULL;
    for (int64_t j = 0; j < rows; j++)
        for (int64_t k = 0; k < columns; k++) {
            const int64_t turn = j * k % n;
            const double a = 6.283185307179586476925 * (double)turn / (double)n;
            double y = sine ? sin(a) : cos(a);
            if (sine && turn * 2 % n == 0) y = 0;
            if (!sine && (turn * 4 == n || turn * 4 == 3 * n)) y = 0;
            if (half_rows && j > 0 && 2 * j < n) y *= 2;
            x[j * columns + k] = y * scale;
        }
    float *narrow = (float *)x; /* each is written behind where the last was read */
    if (dtype != AN_F64)
        for (int64_t i = 0; i < rows * columns; i++) {
            const float y = (float)x[i];
            memcpy(narrow + i, &y, sizeof y);
        }
    an_tensor *t = an_constant_at(AN_AT, b->cx, dtype == AN_F64 ? AN_F64 : AN_F32, AN_SHAPE(rows, columns), x);
    free(x);
    return t;
}

/* Cut or filled with zeros to `length`, the axis last. */
static an_tensor *fitted(an_tensor *x, int axis, int64_t length)
{
    return an_axis_last(an_pad_or_cut(x, axis, 0, length - an_dim(x, axis)), axis);
}

typedef enum fft_kind { FFT_FORWARD, FFT_INVERSE, FFT_TO_HALF, FFT_FROM_HALF } fft_kind;

/* One axis, whose transform has n places. */
static an_status transform(an_build *b, pair *z, int axis, int64_t n, fft_kind kind, double scale)
{
    if (n < 1) return an_build_refuse(b, AN_E_UNSUPPORTED, "a transform of no places");
    const int64_t half = n / 2 + 1, in = kind == FFT_FROM_HALF ? half : n, out = kind == FFT_TO_HALF ? half : n;
    if (n > FFT_MOST || in * out > FFT_MOST)
        return an_build_refuse(b, AN_E_UNSUPPORTED,
                               "a transform of %lld places, which is a product with a matrix; 2048 are the most",
                               (long long)n);
    const an_dtype dtype = an_dtype_of(z->re);
    an_tensor *re = fitted(z->re, axis, in), *im = z->im ? fitted(z->im, axis, in) : NULL;
    an_tensor *c = waves(b, dtype, in, out, n, false, kind == FFT_FROM_HALF, scale);
    an_tensor *s = waves(b, dtype, in, out, n, true, kind == FFT_FROM_HALF, scale);
    if (!c || !s) return an_build_refuse(b, AN_E_NOMEM, "no memory for a transform of %lld places", (long long)n);
    const bool inverse = kind == FFT_INVERSE || kind == FFT_FROM_HALF;
    an_tensor *y = an_matmul_at(AN_AT, re, c), *x = NULL;
    if (im) y = plus(y, an_matmul_at(AN_AT, im, s), inverse);
    if (kind != FFT_FROM_HALF) {
        x = an_matmul_at(AN_AT, re, s);
        if (!inverse) x = an_neg_at(AN_AT, x);
        if (im) x = an_add_at(AN_AT, an_matmul_at(AN_AT, im, c), x);
    }
    z->re = an_axis_last(y, axis);
    z->im = x ? an_axis_last(x, axis) : NULL;
    return AN_OK;
}

/* 1 / n of "backward" where it is inverse, and so on. */
static double factor(double n, const char *norm, bool inverse)
{
    if (norm && strcmp(norm, "ortho") == 0) return 1 / sqrt(n);
    const bool forward = norm && strcmp(norm, "forward") == 0;
    return forward != inverse ? 1 / n : 1;
}

/* self n dim norm of one axis, self s dim norm of several, self dim normalization (forward | onesided | last_dim_size) of what
 * run_decompositions leaves. */
an_status an_rule_fft(an_build *b, const an_pt2_node *n)
{
    pair z = operand(b, n, 0);
    int64_t dims[8], sizes[8];
    const char *name = n->target + strlen("aten.");
    const bool low = name[0] == '_', half = strstr(name, "rfft") || strstr(name, "r2c") || strstr(name, "c2r");
    bool inverse = strstr(name, "_i") != NULL || strstr(name, "c2r") != NULL;
    if (an_dtype_of(z.re) != AN_F64) z.re = an_as(z.re, AN_F32);
    if (z.im) z.im = an_as(z.im, an_dtype_of(z.re));
    const int rank = an_rank(z.re), one = strstr(name, "fftn") || strstr(name, "fft2") ? 0 : 1;
    int n_dims = an_in_ints(b, n, low ? 1 : 2, dims, 8), n_sizes = low ? 0 : an_in_ints(b, n, 1, sizes, 8);
    if (n_dims == 0 && n_sizes == 0)
        for (n_dims = 0; n_dims < rank; n_dims++) dims[n_dims] = n_dims;
    if (n_dims == 0)
        for (; n_dims < n_sizes; n_dims++) dims[n_dims] = n_dims - n_sizes;
    if (one && !low && n_dims != 1) return an_build_refuse(b, AN_E_IO, "other than one axis; the file is damaged");
    if (n_dims < 1 || (n_sizes > 0 && n_sizes != n_dims))
        return an_build_refuse(b, AN_E_UNSUPPORTED, "of no axes, or of other sizes than axes");
    const char *norm = low ? NULL : n->arg[3].text;
    int64_t mode = low ? an_in_int(b, n, 2) : 0;
    if (strstr(name, "_fft_c2c")) inverse = !an_in_bool(b, n, 3);
    const bool whole = strstr(name, "r2c") && !an_in_bool(b, n, 3); /* both halves */
    for (int i = 0; i < n_dims; i++) {
        dims[i] = an_wrap_axis(dims[i], rank);
        if (dims[i] > 7 || rank == 0)
            return an_build_refuse(b, AN_E_IO, "an axis that is not there; the file is damaged");
    }
    for (int i = 0; i < n_dims; i++) {
        /* the last axis is the one of half as many places: first forward, last inverse */
        const int k = half && !inverse ? n_dims - 1 - i : i;
        const bool halved = half && !whole && k == n_dims - 1;
        int64_t length = n_sizes && sizes[k] > 0 ? sizes[k] : an_dim(z.re, (int)dims[k]);
        if (halved && inverse && strstr(name, "c2r")) length = an_in_int(b, n, 3);
        if (halved && inverse && !low && !(n_sizes && sizes[k] > 0)) length = 2 * (length - 1);
        const double scale = low ? (mode == 1   ? 1 / sqrt((double)length)
                                    : mode == 2 ? 1 / (double)length
                                                : 1)
                                 : factor((double)length, norm, inverse);
        const fft_kind kind = halved ? (inverse ? FFT_FROM_HALF : FFT_TO_HALF) : inverse ? FFT_INVERSE : FFT_FORWARD;
        AN_TRY(transform(b, &z, (int)dims[k], length, kind, scale));
    }
    give(b, n, z);
    return AN_OK;
}

/* n d: the frequencies of a transform's places */
an_status an_rule_fftfreq(an_build *b, const an_pt2_node *n)
{
    const int64_t length = an_in_int(b, n, 0);
    const bool half = strstr(n->target, "rfft") != NULL;
    if (length < 1 || length > 1 << 24)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "of %lld places", (long long)length);
    an_tensor *i = an_iota_at(AN_AT, b->cx, AN_SHAPE(half ? length / 2 + 1 : length), 0);
    if (!half) {
        an_tensor *over = an_ge_at(AN_AT, i, an_num(i, b->cx, (double)((length + 1) / 2)));
        i = an_where_at(AN_AT, over, an_add_num_at(AN_AT, i, -(double)length), i);
    }
    i = an_as(i, an_out_dtype(b, n, 0));
    an_out(b, n, 0, an_mul_num_at(AN_AT, i, 1 / ((double)length * an_in_float(b, n, 1))));
    return AN_OK;
}

/* self dim: each axis begins at its middle, or what was there before. */
an_status an_rule_fftshift(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    int64_t dims[8];
    int count = an_in_ints(b, n, 1, dims, 8);
    if (an_in_none(n, 1))
        for (count = 0; count < an_rank(x); count++) dims[count] = count;
    for (int i = 0; i < count; i++) {
        const int axis = an_wrap_axis(dims[i], an_rank(x));
        if (axis > 7 || an_rank(x) == 0)
            return an_build_refuse(b, AN_E_IO, "an axis that is not there; the file is damaged");
        const int64_t length = an_dim(x, axis), cut = strstr(n->target, "ifftshift") ? length / 2 : (length + 1) / 2;
        an_tensor *parts[] = {an_slice_at(AN_AT, x, axis, cut, length, 1), an_slice_at(AN_AT, x, axis, 0, cut, 1)};
        if (cut > 0 && cut < length) x = an_concat_at(AN_AT, parts, 2, axis);
    }
    an_out(b, n, 0, x);
    return AN_OK;
}

/* Of real numbers: pi below 0. */
an_status an_rule_angle(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_detach_at(AN_AT, an_as_result(b, n, 0, an_in(b, n, 0))), *zero = an_num(x, b->cx, 0);
    an_tensor *below = an_lt_at(AN_AT, x, zero), *pi = an_num(x, b->cx, 3.14159265358979324);
    an_tensor *y = an_where_at(AN_AT, below, pi, zero);
    an_out(b, n, 0, an_where_at(AN_AT, an_ne_at(AN_AT, x, x), x, y));
    return AN_OK;
}

/* self [B,L] or [L], n_fft hop_length win_length window normalized onesided return_complex align_to_window: the transform of each frame,
 * [B,places,frames] */
an_status an_rule_stft(an_build *b, const an_pt2_node *n)
{
    pair x = operand(b, n, 0);
    if (x.im || an_rank(x.re) < 1 || an_rank(x.re) > 2)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "of other than rows of real numbers");
    if (an_dtype_of(x.re) != AN_F64) x.re = an_as(x.re, AN_F32);
    const bool alone = an_rank(x.re) == 1, half = an_in_none(n, 6) || an_in_bool(b, n, 6);
    const int64_t B = alone ? 1 : an_dim(x.re, 0), L = an_dim(x.re, an_rank(x.re) - 1), N = an_in_int(b, n, 1);
    const int64_t hop = an_in_none(n, 2) ? N / 4 : an_in_int(b, n, 2),
                  width = an_in_none(n, 3) ? N : an_in_int(b, n, 3);
    if (N < 1 || N > L || hop < 1 || hop > L || width < 1 || width > N || (!an_in_none(n, 8) && an_in_bool(b, n, 8)))
        return an_build_refuse(b, AN_E_UNSUPPORTED, "frames that do not fit, or align_to_window");
    const int64_t frames = 1 + (L - N) / hop;
    an_tensor *first = an_mul_num_at(AN_AT, an_iota_at(AN_AT, b->cx, AN_SHAPE(frames, N), 0), (double)hop);
    an_tensor *at = an_add_at(AN_AT, first, an_iota_at(AN_AT, b->cx, AN_SHAPE(frames, N), 1));
    an_tensor *columns = an_transpose_at(AN_AT, an_reshape_at(AN_AT, x.re, AN_SHAPE(B, L)), 0, 1);
    x.re = an_permute_at(AN_AT, an_rows(columns, at), AN_SHAPE(2, 0, 1));
    if (an_in_is_tensor(n, 4)) {
        an_tensor *window = an_as(an_in(b, n, 4), an_dtype_of(x.re));
        const int64_t left = (N - width) / 2;
        x.re = an_mul_at(AN_AT, x.re, an_pad_or_cut(window, 0, left, N - width - left));
    } else if (width < N) {
        return an_build_refuse(b, AN_E_UNSUPPORTED, "a win_length without a window");
    }
    const double scale = an_in_bool(b, n, 5) ? 1 / sqrt((double)N) : 1;
    AN_TRY(transform(b, &x, 2, N, half ? FFT_TO_HALF : FFT_FORWARD, scale));
    an_tensor *part[2] = {x.re, x.im};
    an_shape s = alone ? AN_SHAPE(an_dim(x.re, 2), frames) : AN_SHAPE(B, an_dim(x.re, 2), frames);
    for (int i = 0; i < 2; i++) part[i] = an_reshape_at(AN_AT, an_transpose_at(AN_AT, part[i], 1, 2), s);
    if (an_out_used(n, 0) && is_complex(b, n->out[0].value)) return give(b, n, (pair){part[0], part[1]}), AN_OK;
    s.dim[s.rank++] = 1;
    for (int i = 0; i < 2; i++) part[i] = an_reshape_at(AN_AT, part[i], s);
    an_out(b, n, 0, an_concat_at(AN_AT, part, 2, s.rank - 1));
    return AN_OK;
}
