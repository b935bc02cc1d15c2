/* rules.h: the rules of aten.def, one function each, and what several of them need.
 *
 * A rule reads its arguments by their place in the schema (an_in...), builds tensors, and sets its results (an_out...).
 *
 * Owns:      short names of public functions for use in formulas; promotion of dtypes.
 * Does not:  hold state. */
#ifndef AN_IMPORT_RULES_H
#define AN_IMPORT_RULES_H

#include "import/pt2_build.h"

#define AN_ATEN(name, rule, kind, schema, meaning) an_aten_rule rule;
#include "import/aten.def"

/* An operation on tensors of equal dtypes. */
typedef an_tensor *an_fn1(const char *at, an_tensor *a);
typedef an_tensor *an_fn2(const char *at, an_tensor *a, an_tensor *b);

static inline an_tensor *an_num(an_tensor *like, an_ctx *cx, double x)
{
    return an_const_at(AN_AT, cx, an_dtype_of(like), x);
}

static inline int an_rank(const an_tensor *t)
{
    return an_shape_of(t).rank;
}

static inline int64_t an_dim(const an_tensor *t, int axis)
{
    return an_shape_of(t).dim[axis & 7];
}

static inline int64_t an_count(const an_tensor *t)
{
    const an_shape s = an_shape_of(t);
    int64_t n = 1;
    for (int i = 0; i < s.rank; i++) n *= s.dim[i];
    return n;
}

static inline bool an_is_float_dtype(an_dtype d)
{
    return d == AN_F32 || d == AN_F64 || d == AN_BF16 || d == AN_F16;
}
static inline bool an_is_float(const an_tensor *t)
{
    return an_is_float_dtype(an_dtype_of(t));
}

/* The axis as the last one, and back. */
static inline an_tensor *an_axis_last(an_tensor *x, int axis)
{
    return axis == an_rank(x) - 1 ? x : an_transpose_at(AN_AT, x, axis, an_rank(x) - 1);
}

static inline an_tensor *an_as(an_tensor *t, an_dtype dtype)
{
    return an_dtype_of(t) == dtype ? t : an_cast_at(AN_AT, t, dtype);
}

/* float32 in the dtype that the precision policy gives GEMMs and convolutions; other dtypes as they are. */
an_tensor *an_narrow(an_build *b, an_tensor *t);
/* Whether a convolution whose input is argument x_at, its weight the next one, is 1x1 over planes that lie as PyTorch's do: then its result
 * does too. */
bool an_conv_is_by_planes(an_build *b, const an_pt2_node *n, int x_at, int stride, int pad, int groups);
/* x y as matrices, in the dtype of the precision policy: it may narrow float32 operands. */
an_tensor *an_product(an_build *b, an_tensor *x, an_tensor *y);
/* Casts both to one dtype as PyTorch promotes: the wider one, in the order bool, integer, float. */
void an_promote(an_tensor **x, an_tensor **y);
/* Operands 0 and 1, tensors or numbers, in one order of axes: whether that is channels last. */
bool an_operands(an_build *b, const an_pt2_node *n, an_built_value *x, an_built_value *y);
/* Casts operands to the dtype in which an arithmetic operation computes: the result's, but floats of a policy stay narrow. */
void an_to_result(const an_build *b, const an_pt2_node *n, an_tensor **x, an_tensor **y);
/* The same for products and quotients: beside a number, or a tensor without axes, as operand 1, floats of 16 bits are widened, for PyTorch
 * takes that one as float32 has it and rounds once. `out`: the result's dtype. */
void an_to_factors(an_build *b, const an_pt2_node *n, an_tensor **x, an_tensor **y, an_dtype *out);
/* Greatest or least over axes, which are kept; equal ones share the gradient, and of a NaN it is NaN, over a single element too. */
an_tensor *an_extreme(an_build *b, an_tensor *t, an_axes mask, bool least);
/* Toward zero to whole numbers. */
an_tensor *an_truncated(an_build *b, an_tensor *x);
/* Bools as int32, for formulas over numbers; what they give is cast to the result's dtype. */
static inline an_tensor *an_as_number(an_tensor *t)
{
    return an_dtype_of(t) == AN_BOOL ? an_cast_at(AN_AT, t, AN_I32) : t;
}

/* As float32 where its floats are narrower; for losses and statistics. */
an_tensor *an_widen(an_tensor *t);
/* `t` in the dtype of result k by the file, except that a float narrowed by the precision policy stays so. */
an_tensor *an_as_result(const an_build *b, const an_pt2_node *n, int k, an_tensor *t);
/* Whether an argument or a result of the node is complex; and the node's results then. */
bool an_is_of_complex(const an_build *b, const an_pt2_node *n);
an_status an_complex_apply(an_build *b, const an_pt2_node *n);
bool an_complex_is_place(const an_pt2_node *n, int at);

/* Rows of table [V,...] by ids of any integer or bool dtype. */
an_tensor *an_rows(an_tensor *table, an_tensor *ids);
an_tensor *an_reshape_1(an_tensor *t, int64_t n);
/* log(exp(x) + exp(y)); equal operands share the gradient. */
an_tensor *an_logaddexp(an_build *b, an_tensor *x, an_tensor *y);

/* k or v [B,H',S,D] with as many heads as q: each of its heads serves several of q's in a row. */
an_tensor *an_spread_heads(an_tensor *k, int64_t heads);
/* softmax(q k^T scale + mask) v by its formula. mask: bool (true: seen) or float [...,T,S], or NULL. */
an_tensor *an_attention_by_formula(an_build *b, an_tensor *q, an_tensor *k, an_tensor *v, double scale, an_tensor *mask,
                                   double dropout);

/* Fails with `why` where an operation reads result k of `n`; and where that are positions of maxima, which are not known. */
an_status an_results_unread(an_build *b, const an_pt2_node *n, int k, const char *why);
an_status an_positions_unread(an_build *b, const an_pt2_node *n, int k);

/* Whether an operation or a result of the graph reads result k of `n`. */
bool an_result_read(const an_build *b, const an_pt2_node *n, int k);
/* Result 1 of a maximum over windows of the last `axes` axes, where it is read: the positions. */
an_status an_positions_of_maxima(an_build *b, const an_pt2_node *n, int axes);

/* Windows of pools, along D, H and W; along an axis that is not there the kernel is 1. */
typedef struct an_windows {
    int kernel[3], stride[3], pad[3], dilation[3];
} an_windows;

/* Argument i, one number or one an axis, along D, H and W of which the last `axes` are there; `missing` elsewhere and where the list is
 * empty. Numbers are within -1 .. 2^20. */
void an_in_axes(const an_build *b, const an_pt2_node *n, int i, int axes, int missing, int out[3]);
/* Arguments 1, 2 and 3 of a pool, kernel_size, stride (none: kernel_size) and padding, and argument `dilation` (-1: 1); refused where
 * PyTorch refuses them. */
an_status an_in_windows(an_build *b, const an_pt2_node *n, int axes, int dilation, an_windows *out);
/* Those over H and W. */
an_window an_window_of_planes(const an_windows *w);

/* A value without a batch axis, of a rank one less, gets one of length 1; a node's result loses it. */
bool an_add_batch(an_built_value *v, int rank);
void an_drop_batch(an_build *b, const an_pt2_node *n);

/* Windows: zeros between the elements of an axis; an axis with zeros at its ends, or cut where a number is negative; what ceil_mode adds at
 * the end; means of windows as adaptive pools have them, NULL: the axis is too long. */
an_tensor *an_spread(an_tensor *x, int axis, int stride);
an_tensor *an_pad_or_cut(an_tensor *x, int axis, int64_t before, int64_t after);
/* `part` of the way from x to y, from the nearer end, as PyTorch's lerp has it: an infinite one is then read at its own place alone. */
an_tensor *an_between(an_build *b, an_tensor *x, an_tensor *y, an_tensor *part);
/* x [N,H,W,I] by w [I,KH,KW,O/g]: an_conv_transpose2d, with PyTorch's output padding, which may be up to the dilation. */
an_tensor *an_transposed_planes(an_tensor *x, an_tensor *w, an_tensor *bias, an_window s);
int64_t an_ceil_extra(int64_t length, int kernel, int stride, int pad, int dilation);
an_tensor *an_adaptive_mean(an_build *b, an_tensor *x, int axis, int64_t out);

/* `x` with elements start, start + step, ... of an axis replaced by `part`, as many as that has. */
an_tensor *an_put_strided(an_build *b, an_tensor *x, int axis, int64_t start, int64_t step, an_tensor *part);
/* (sum |x|^p)^(1/p) over the last axis, which stays with length 1; the gradient at 0 is 0. */
an_tensor *an_norm_of_rows(an_build *b, an_tensor *x, double p);

/* Products over the last axis. */
an_tensor *an_product_of_rows(an_tensor *rows, bool keep);

/* v [N,C,L], [N,C,H,W], or without N, as [N,H,W,C]; H or N is 1 where there is none. */
an_tensor *an_nhwc(const an_built_value *v);

#endif
