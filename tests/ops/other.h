/* other.h: the rows of everything that is not elementwise: leaves, moves, reductions, products, windows, calls. */
#ifndef AN_TESTS_OTHER_H
#define AN_TESTS_OTHER_H

#include "ops/cases.h"

#include <float.h>

#define BUILD(name) static inline void build_##name(lab *l, const op_case *c, an_dtype t, int v)

/* ---- leaves */

BUILD(leaf)
{
    root(l, c, some(l, t, v ? AN_SHAPE(0) : AN_SHAPE(3, 7)), v);
}

BUILD(const)
{
    root(l, c,
         an_full_at(AT, l->now, t,
                    v == 0   ? AN_SCALAR
                    : v == 1 ? AN_SHAPE(5, 9)
                             : AN_SHAPE(0, 2),
                    t == AN_BOOL           ? 1
                    : an_dtype_is_float(t) ? 3.25
                                           : 3),
         v);
}

BUILD(iota)
{
    (void)t;
    root(l, c, an_iota_at(AT, l->now, AN_SHAPE(5, 70, 3), v), v);
}

BUILD(rand)
{
    (void)t;
    root(l, c, an_rand_at(AT, l->now, v ? AN_SHAPE(3, 9001) : AN_SHAPE(4, 5)), v);
}

/* ---- moves */

BUILD(cast)
{
    static const double floats[8] = {
        (double)INFINITY, -(double)INFINITY, (double)NAN, -0.0, 2147483648.0, -3e9, 65519, 65520};
    (void)v;
    an_tensor *x =
        an_dtype_is_float(t) ? lab_input(l, t, AN_SHAPE(13, 7), -300, 300, floats, 8, 0) : some(l, t, AN_SHAPE(13, 7));
    for (int to = 0; to < AN_N_DTYPES; to++)
        if (lab_takes((an_dtype)to)) root(l, c, an_cast_at(AT, x, (an_dtype)to), to);
}

BUILD(reshape)
{
    an_tensor *x = some(l, t, v == 2 ? AN_SHAPE(0, 6) : AN_SHAPE(4, 6));
    if (v == 0)
        root(l, c, an_reshape_at(AT, x, AN_SHAPE(2, -1, 3)), v);
    else
        root(l, c, an_reshape_at(AT, an_transpose_at(AT, x, 0, 1), v == 2 ? AN_SHAPE(3, 0) : AN_SHAPE(3, 8)), v);
}

BUILD(permute)
{
    an_tensor *x = some(l, t, v == 2 ? AN_SHAPE(40, 5, 90) : AN_SHAPE(3, 4, 5));
    root(l, c, an_permute_at(AT, x, v == 1 ? AN_SHAPE(0, 2, 1) : AN_SHAPE(2, 0, 1)), v);
}

BUILD(expand)
{
    if (v == 0)
        root(l, c, an_expand_at(AT, some(l, t, AN_SHAPE(3, 1, 5)), AN_SHAPE(2, 3, 4, 5)), v);
    else
        root(
            l, c,
            an_expand_at(AT, some(l, t, v == 1 ? AN_SCALAR : AN_SHAPE(1, 3)), v == 1 ? AN_SHAPE(6, 2) : AN_SHAPE(0, 3)),
            v);
}

BUILD(slice)
{
    an_tensor *x = some(l, t, AN_SHAPE(9, 11));
    if (v == 0)
        root(l, c, an_slice_at(AT, x, 1, 2, -1, 3), v);
    else if (v == 1)
        root(l, c, an_slice_at(AT, an_slice_at(AT, x, 0, 3, 9, 1), 1, 0, 11, 10), v);
    else
        root(l, c, an_slice_at(AT, x, 0, 4, 4, 1), v);
}

BUILD(pad)
{
    an_tensor *x = some(l, t, v == 2 ? AN_SHAPE(0, 4) : AN_SHAPE(3, 4));
    an_tensor *y = an_pad_at(AT, x, 1, 2, 1, 1);
    root(l, c, v ? an_pad_at(AT, y, 0, 1, 3, 0) : y, v);
}

BUILD(flip)
{
    an_tensor *x = some(l, t, AN_SHAPE(3, 4, 5));
    root(l, c, an_flip_at(AT, x, v ? AN_ALL : AN_AXIS(0) | AN_AXIS(2)), v);
}

BUILD(concat)
{
    an_tensor *p[3] = {some(l, t, AN_SHAPE(3, 4)), some(l, t, AN_SHAPE(3, 0)),
                       an_transpose_at(AT, some(l, t, AN_SHAPE(5, 3)), 0, 1)};
    if (v == 0) root(l, c, an_concat_at(AT, p, 3, 1), v);
    p[1] = some(l, t, AN_SHAPE(1, 4));
    if (v == 1) root(l, c, an_concat_at(AT, p, 2, 0), v);
    p[2] = p[0]; /* one tensor twice */
    if (v == 2) root(l, c, an_concat_at(AT, p, 3, 0), v);
}

BUILD(detach)
{
    root(l, c, an_detach_at(AT, some(l, t, AN_SHAPE(5))), v);
}

/* ---- reductions: over rows (the last axis) and columns */

static inline an_tensor *reducible(lab *l, an_dtype t, int v, an_axes *axes)
{
    static const int64_t lengths[] = {1, 31, 32, 33, 8193};
    const int64_t R = v < 10 ? lengths[v / 2] : 7;
    *axes = v & 1 ? AN_AXIS(0) : AN_AXIS(1);
    if (v < 10) return some(l, t, v & 1 ? AN_SHAPE(R, R > 100 ? 3 : 67) : AN_SHAPE(R > 100 ? 3 : 9, R));
    *axes = AN_AXIS(1);
    if (v == 10) return some(l, t, AN_SHAPE(0, 7));
    if (v == 11) return an_transpose_at(AT, some(l, t, AN_SHAPE(33, 5)), 0, 1);
    if (v == 12) return an_flip_at(AT, an_slice_at(AT, some(l, t, AN_SHAPE(9, 80)), 1, 1, 80, 2), AN_AXIS(1));
    *axes = v == 13 ? AN_ALL : AN_AXIS(0) | AN_AXIS(2);
    return some(l, t, AN_SHAPE(6, 35, 11));
}

BUILD(sum)
{
    an_axes axes;
    an_tensor *x = v < 15 ? reducible(l, t, v, &axes) : some(l, t, v == 15 ? AN_SHAPE(4, 0) : AN_SHAPE(0, 4));
    if (v >= 15) axes = v == 15 ? AN_AXIS(1) : AN_AXIS(0); /* sums of nothing */
    an_tensor *y = an_sum_at(AT, x, axes, v & 1);
    if (!an_dtype_is_float(t))
        root(l, c, y, v);
    else
        root_sum(l, c, y, 8, an_sum_at(AT, an_abs_at(AT, x), axes, v & 1), v);
}

/* Down runs of rows of what a kernel makes row by row: alone, with sums along the rows before and beside it, two sums
 * at once; 67 columns and 33 rows are no multiple of anything. The runs are enough to be one kernel on every device. */
BUILD(sum_runs)
{
    const int64_t O = 128, R = v == 3 ? 33 : 32, C = v < 2 ? 128 : 67;
    an_tensor *x = some(l, t, AN_SHAPE(O, R, C)), *y = an_exp_at(AT, x), *z = an_mul_at(AT, y, x);
    if (v > 0) y = an_sub_at(AT, y, an_mean_at(AT, y, AN_AXIS(2), true));
    if (v > 1) z = an_mul_at(AT, y, an_sum_at(AT, z, AN_AXIS(2), true));
    an_tensor *sum = an_sum_at(AT, y, AN_AXIS(1), false), *other = an_sum_at(AT, z, AN_AXIS(1), false);
    root_sum(l, c, sum, 8, an_sum_at(AT, an_abs_at(AT, y), AN_AXIS(1), false), v);
    if (v != 1) root_sum(l, c, other, 24, an_sum_at(AT, an_abs_at(AT, z), AN_AXIS(1), false), v);
    if (v == 3) root_bits(l, c, z, v);
}

BUILD(max)
{
    an_axes axes;
    an_tensor *x = reducible(l, t, v, &axes);
    root(l, c, an_max_at(AT, x, axes, v & 1), v);
}

BUILD(argmax)
{
    an_axes axes;
    an_tensor *x = reducible(l, t, v, &axes);
    root(l, c, an_argmax_at(AT, x, axes == AN_AXIS(1) ? 1 : axes == AN_ALL ? 2 : 0, v & 1), v);
}

/* ---- products */

BUILD(matmul)
{
    static const struct {
        int b1, b2, m, k, n;
    } s[] = {{0, 0, 1, 1, 1}, {0, 0, 7, 13, 5}, {0, 0, 3, 0, 4},      {0, 0, 0, 5, 4},
             {3, 3, 6, 9, 8}, {3, 1, 6, 9, 8},  {0, 0, 130, 70, 190}, {2, 2, 33, 300, 17}};
    const int i = v % (int)AN_COUNT(s), M = s[i].m, K = s[i].k, N = s[i].n;
    const bool turned = v >= (int)AN_COUNT(s), batch = s[i].b1;
    an_tensor *a = batch ? some(l, t, turned ? AN_SHAPE(s[i].b1, K, M) : AN_SHAPE(s[i].b1, M, K))
                         : some(l, t, turned ? AN_SHAPE(K, M) : AN_SHAPE(M, K));
    an_tensor *b = batch ? some(l, t, turned ? AN_SHAPE(s[i].b2, N, K) : AN_SHAPE(s[i].b2, K, N))
                         : some(l, t, turned ? AN_SHAPE(N, K) : AN_SHAPE(K, N));
    if (turned) a = an_transpose_at(AT, a, -1, -2), b = an_transpose_at(AT, b, -1, -2);
    const an_dtype wide = t == AN_F64 ? AN_F64 : AN_F32;
    an_tensor *scale = an_matmul_as_at(AT, an_abs_at(AT, a), an_abs_at(AT, b), wide);
    root_sum(l, c, an_matmul_at(AT, a, b), 2 + sqrt(K), scale, v);
    if (t != wide) root_sum(l, c, an_matmul_as_at(AT, a, b, wide), 2 + sqrt(K), scale, v);
}

typedef struct grouped {
    an_tensor *x, *w, *ends;
} grouped;

/* Rows by groups, for x [S,K] and w [E,K,N] or (outer) [S,N]: 0 groups of several rows, one empty, rows behind the last; 1 one group of all;
 * 2 several blocks, through transposed views; 3 ends out of order and out of range; 4 no row in any group; 5 a depth of 1; 6 no rows at all, 7 of
 * no elements. */
static inline grouped of_groups(lab *l, an_dtype t, int v, bool outer)
{
    static const struct {
        int S, K, N, E;
        double low, high; /* ends are low, ..., high, evenly */
    } s[] = {{23, 9, 7, 4, 5, 20}, {12, 5, 6, 1, 12, 12}, {600, 70, 530, 3, 3, 590}, {20, 6, 5, 5, 30, -6},
             {9, 4, 3, 3, 0, 0},   {10, 1, 1, 2, 4, 10},  {0, 3, 2, 2, 0, 0},        {4, 0, 3, 2, 1, 4}};
    const int64_t S = s[v].S, K = s[v].K, N = s[v].N, E = s[v].E;
    const bool turned = v == 2;
    grouped g = {.x = some(l, t, turned ? AN_SHAPE(K, S) : AN_SHAPE(S, K))};
    if (outer)
        g.w = some(l, t, turned ? AN_SHAPE(N, S) : AN_SHAPE(S, N));
    else
        g.w = some(l, t, turned ? AN_SHAPE(E, N, K) : AN_SHAPE(E, K, N));
    if (turned) g.x = an_transpose_at(AT, g.x, -1, -2), g.w = an_transpose_at(AT, g.w, -1, -2);
    an_tensor *at = an_cast_at(AT, an_iota_at(AT, l->now, AN_SHAPE(E), 0), AN_F32);
    at = an_add_num_at(AT, an_mul_num_at(AT, at, E > 1 ? (s[v].high - s[v].low) / (double)(E - 1) : 0), s[v].low);
    g.ends = an_cast_at(AT, at, AN_I32);
    if (v == 0) { /* the second group is empty */
        an_tensor *second =
            an_eq_at(AT, an_iota_at(AT, l->now, AN_SHAPE(E), 0), an_full_at(AT, l->now, AN_I32, AN_SHAPE(E), 1));
        g.ends = an_where_at(AT, second, an_full_at(AT, l->now, AN_I32, AN_SHAPE(E), 5), g.ends);
    }
    return g;
}

BUILD(grouped_matmul)
{
    const grouped g = of_groups(l, t, v, false);
    an_tensor *scale = an_grouped_matmul_at(AT, an_abs_at(AT, g.x), an_abs_at(AT, g.w), g.ends);
    root_sum(l, c, an_grouped_matmul_at(AT, g.x, g.w, g.ends), 2 + sqrt(70), scale, v);
}

BUILD(grouped_outer)
{
    const grouped g = of_groups(l, t, v, true);
    an_tensor *scale = an_grouped_outer_at(AT, an_abs_at(AT, g.x), an_abs_at(AT, g.w), g.ends);
    root_sum(l, c, an_grouped_outer_at(AT, g.x, g.w, g.ends), 2 + sqrt(600), scale, v);
}

/* Operands that are casts of leaves, which a kernel could read without the cast: the product is that of the cast values. */
BUILD(matmul_of_casts)
{
    const bool refused = lab_leaves_out(AN_OP_MATMUL, AN_BF16) && !lab_is_fast_cuda(); /* in exact mode */
    const an_dtype to = v % 3 == 0 || (v % 3 == 1 && refused) ? AN_F32 : v % 3 == 1 ? AN_BF16 : AN_F16;
    const int64_t K = v < 3 ? 21 : 70;
    an_tensor *a = an_cast_at(AT, some(l, t, AN_SHAPE(18, K)), to);
    an_tensor *b = an_cast_at(AT, some(l, t, v < 3 ? AN_SHAPE(K, 20) : AN_SHAPE(20, K)), to);
    if (v >= 3) b = an_transpose_at(AT, b, -1, -2);
    an_tensor *scale = an_matmul_as_at(AT, an_abs_at(AT, a), an_abs_at(AT, b), AN_F32);
    root_sum(l, c, an_matmul_as_at(AT, a, b, AN_F32), 2 + sqrt((double)K), scale, v);
}

BUILD(gather)
{
    an_tensor *ids = lab_fill(l, AN_I32, v == 1 ? AN_SHAPE(0) : v == 3 ? AN_SCALAR : AN_SHAPE(4, 3), -13, 5);
    an_tensor *table = v == 2 ? an_transpose_at(AT, some(l, t, AN_SHAPE(6, 10)), 0, 1)
                              : some(l, t, v == 3 ? AN_SHAPE(10) : AN_SHAPE(10, 2, 3));
    ids = an_neg_at(AT, ids); /* ids of inputs are checked; computed ones are clamped */
    root(l, c, an_gather_at(AT, table, ids), v);
}

BUILD(scatter_add)
{
    an_tensor *ids = lab_fill(l, AN_I32, v == 1 ? AN_SHAPE(0) : AN_SHAPE(40), -13, 2);
    ids = an_neg_at(AT, ids); /* ids of inputs are checked; computed ones are clamped */
    an_tensor *src = v == 1   ? some(l, t, AN_SHAPE(0, 5))
                     : v == 2 ? some(l, t, AN_SHAPE(40))
                              : some(l, t, AN_SHAPE(40, 3, v == 3 ? 50 : 1));
    root_sum(l, c, an_scatter_add_at(AT, ids, src, 11), 8, an_scatter_add_at(AT, ids, an_abs_at(AT, src), 11), v);
}

/* Ids that are equal, and outside; tables of one row, and of more than ids. */
BUILD(put_rows)
{
    const int64_t V = v == 1 ? 1 : 11, n = v == 2 ? 0 : 17;
    an_tensor *ids = lab_fill(l, AN_I32, AN_SHAPE(n), -14, 3);
    ids = an_neg_at(AT, ids); /* computed: not looked at */
    an_tensor *table = some(l, t, v == 3 ? AN_SHAPE(V) : AN_SHAPE(V, 3, 5));
    an_tensor *rows = v == 3   ? some(l, t, AN_SHAPE(n))
                      : v == 4 ? an_transpose_at(AT, some(l, t, AN_SHAPE(n, 5, 3)), 1, 2)
                               : some(l, t, AN_SHAPE(n, 3, 5));
    root(l, c, an_put_rows_at(AT, table, ids, rows), v);
}

/* Greedy, all tokens, few, the fewest that reach a probability, both; rows of one token, of three kinds, and longer than a thread block. */
BUILD(draw)
{
    static const double temperature[] = {0, 1, 0.8, 1.3, 0.7, 1e-3, 1, 2};
    static const int64_t top_k[] = {2, 0, 3, 0, 40, 0, 1, 200}, V[] = {65, 1, 301, 64, 700, 33, 9, 5000};
    static const double top_p[] = {0, 0, 0, 0.6, 0.9, 1, 0.2, 0.5};
    an_tensor *x = some(l, t, AN_SHAPE(v == 7 ? 2 : 6, v == 3 ? 2 : 1, V[v])),
              *number = lab_fill(l, AN_I32, AN_SHAPE(2), 0, 1000);
    if (v == 4) x = an_mul_num_at(AT, an_floor_at(AT, an_mul_num_at(AT, x, 0.01)), 2); /* many ties */
    root(l, c, an_draw_at(AT, x, number, temperature[v], top_k[v], top_p[v], 1337), v);
}

/* ---- attention */

typedef struct qkv {
    an_tensor *q, *k, *v, *o;
} qkv;

/* [2,3,T,D] x [2,3,S,D]; from 10 on [2,6,T,D] x [2,2 or 1,S,D]; 0 plain, 1 causal, 2 more than a block of keys, 3 dropout, 4 keys of a cache, 5 through
 * permutes; masks of floats: 6 keys of a sequence, with a causal one, 7 all axes, more than a block; 8 of bools, queries that see nothing among
 * them, with dropout; 9 a window; grouped heads: 10 more than a block, 11 of one head of keys, through permutes, with a mask and dropout, 12 one
 * query over a cache. */
static inline qkv attention(lab *l, an_dtype t, int v)
{
    const bool large = v == 2 || v == 7 || v == 9 || v == 10;
    const int64_t T = large ? 70 : v == 12 ? 1 : 5, S = large ? 131 : v == 5 ? 5 : 9, D = large ? 32 : v == 12 ? 8 : 6;
    const int64_t H = v < 10 ? 3 : 6, G = v < 10 ? 3 : v == 11 ? 1 : 2; /* heads of q; of k and v */
    qkv a = {lab_fill(l, t, AN_SHAPE(2, H, T, D), -1, 1), lab_fill(l, t, AN_SHAPE(2, G, S, D), -1, 1),
             lab_fill(l, t, AN_SHAPE(2, G, S, D), -1, 1), NULL};
    if (v == 11) a.q = an_permute_at(AT, lab_fill(l, t, AN_SHAPE(2, T, H, D), -1, 1), AN_SHAPE(0, 2, 1, 3));
    if (v == 5) {
        an_tensor *x = lab_fill(l, t, AN_SHAPE(2, T, 3, 3, D), -1, 1); /* [B,T,3,H,D], as a fused projection gives it */
        an_tensor **part[3] = {&a.q, &a.k, &a.v};
        for (int i = 0; i < 3; i++)
            *part[i] = an_permute_at(AT, an_reshape_at(AT, an_slice_at(AT, x, 2, i, i + 1, 1), AN_SHAPE(2, T, 3, D)),
                                     AN_SHAPE(0, 2, 1, 3));
    }
    an_tensor *n_keys = v == 4 || v == 12 ? an_reshape_at(AT, lab_fill(l, AN_I32, AN_SHAPE(1), 7, 8), AN_SCALAR) : NULL;
    an_attention_options o = {
        .scale = v == 1 ? 0.5 : 0, .causal = v != 0 && v != 3 && v != 7 && v != 8 && v != 11, .n_keys = n_keys};
    if (v == 9) o.window = 20;
    const double special[3] = {-(double)INFINITY, -100, -(double)FLT_MAX};
    if (v == 3 || v == 8 || v == 11) o.dropout = 0.3;
    if (v == 6) o.mask = lab_input(l, AN_F32, AN_SHAPE(2, 1, 1, S), -2, 2, special, 3, 0);
    if (v == 11) o.mask = an_detach_at(AT, lab_input(l, AN_F32, AN_SHAPE(2, 6, T, 1), -2, 2, special, 3, 0));
    if (v == 7) o.mask = lab_input(l, t, AN_SHAPE(2, 3, T, S), -2, 2, special, 3, 0);
    if (v == 8)
        o.mask =
            an_le_at(AT, lab_fill(l, AN_I32, AN_SHAPE(1, T, S), 0, 9), lab_fill(l, AN_I32, AN_SHAPE(3, T, 1), -2, 7));
    a.o = an_attention_with_at(AT, a.q, a.k, a.v, o);
    return a;
}

BUILD(attention)
{
    root_sum(l, c, attention(l, t, v).o, t == AN_BF16 ? 65536 * 2 : 60, NULL, v); /* bf16 rounds the probabilities */
}

BUILD(attention_grad)
{
    qkv a = attention(l, t, v == 4 ? 0 : v);
    an_tensor *g = an_cast_at(AT, lab_fill(l, t, an_shape_of(a.o), -1, 1), an_dtype_of(a.o)), *in[3] = {a.q, a.k, a.v};
    an_backward_at(AT, an_sum_at(AT, an_cast_at(AT, an_mul_at(AT, a.o, g), AN_F32), AN_ALL, false));
    for (int i = 0; i < 3; i++) {
        an_tensor *d = an_grad(in[i]);
        if (d) root_sum(l, c, d, t == AN_BF16 ? 65536 * 24 : 300, NULL, v);
    }
}

/* ---- windows */

static inline an_tensor *conv(lab *l, an_dtype t, int v, an_tensor **x, an_tensor **w)
{
    const bool groups = v == 1;
    if (v == 4) { /* several blocks of k, more than a panel of outputs, words and vectors of 8 */
        *x = some(l, t, t == AN_F64 ? AN_SHAPE(1, 5, 8, 64) : AN_SHAPE(3, 9, 8, 64)); /* doubles are plain loops */
        *w = some(l, t, AN_SHAPE(40, 3, 3, 64));
        return an_conv2d_at(AT, *x, *w, NULL, (an_window){.pad_h = 1, .pad_w = 1, .stride_w = 2});
    }
    if (v == 5) { /* groups wide enough for a product, taps that are never inside */
        *x = some(l, t, AN_SHAPE(2, 9, 7, 18));
        *w = some(l, t, AN_SHAPE(26, 2, 3, 9));
        return an_conv2d_at(
            AT, *x, *w, NULL,
            (an_window){.stride_h = 3, .stride_w = 2, .pad_h = 4, .pad_w = 1, .dilation_h = 2, .groups = 2});
    }
    if (v == 6) { /* few channels, many positions: dw is summed in several chains */
        *x = some(l, t, AN_SHAPE(5, 17, 15, 3));
        *w = some(l, t, AN_SHAPE(10, 5, 4, 3));
        return an_conv2d_at(AT, *x, *w, NULL, (an_window){.pad_h = 2, .pad_w = 3});
    }
    if (v == 7) { /* depthwise */
        *x = some(l, t, AN_SHAPE(3, 9, 8, 24));
        *w = some(l, t, AN_SHAPE(24, 3, 2, 1));
        return an_conv2d_at(AT, *x, *w, NULL,
                            (an_window){.stride_h = 2, .pad_h = 2, .pad_w = 1, .dilation_w = 3, .groups = 24});
    }
    if (v == 8) { /* the same with channels apart, more than one turn takes, and a row of the image that no tap reads */
        *x = an_permute_at(AT, some(l, t, AN_SHAPE(2, 330, 6, 5)), AN_SHAPE(0, 2, 3, 1));
        *w = some(l, t, AN_SHAPE(330, 2, 5, 1));
        return an_conv2d_at(AT, *x, *w, NULL, (an_window){.stride_h = 3, .pad_w = 2, .dilation_h = 2, .groups = 330});
    }
    *x = v == 3 ? an_permute_at(AT, some(l, t, AN_SHAPE(2, 4, 7, 6)), AN_SHAPE(0, 2, 3, 1))
                : some(l, t, AN_SHAPE(2, 7, 6, 4));
    *w = some(l, t, v == 2 ? AN_SHAPE(5, 1, 1, 4) : AN_SHAPE(6, 3, 2, groups ? 2 : 4));
    return an_conv2d_at(AT, *x, *w, NULL,
                        v == 0   ? (an_window){.pad_h = 1, .pad_w = 1}
                        : v == 1 ? (an_window){.stride_h = 2, .pad_w = 2, .dilation_w = 3, .groups = 2}
                                 : (an_window){.stride_w = 2});
}

/* What sums of so many products are about. */
static inline double conv_scale(int v)
{
    return v < 4 ? 4 : 32;
}

BUILD(conv2d)
{
    an_tensor *x, *w;
    an_tensor *y = conv(l, t, v, &x, &w);
    root_sum(l, c, y, 40, an_full_at(AT, l->now, t, an_shape_of(y), conv_scale(v)), v);
}

BUILD(conv2d_gradients)
{
    an_tensor *x, *w, *y = conv(l, t, v, &x, &w), *g = some(l, t, an_shape_of(y));
    an_backward_at(AT, an_sum_at(AT, an_mul_at(AT, y, g), AN_ALL, false));
    an_tensor *d = c->op == AN_OP_CONV2D_DX ? an_grad(x) : an_grad(w);
    root_sum(l, c, d, 90, an_full_at(AT, l->now, t, an_shape_of(d), conv_scale(v)), v);
}

BUILD(depthwise_gradients)
{
    build_conv2d_gradients(l, c, t, 7 + v);
}

static inline an_tensor *pool(lab *l, an_dtype t, int v, bool max, an_tensor **x)
{
    const an_window s =
        v == 0 ? (an_window){.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2}
               : (an_window){.kernel_h = 3, .kernel_w = 2, .stride_h = 2, .stride_w = 1, .pad_h = 1, .pad_w = 1};
    *x = some(l, t, v == 3 ? AN_SHAPE(2, 9, 8, 16) : v == 2 ? AN_SHAPE(1, 20, 9, 37) : AN_SHAPE(2, 7, 6, 3));
    return max ? an_max_pool_at(AT, *x, s) : an_avg_pool_at(AT, *x, s);
}

BUILD(pool)
{
    an_tensor *x, *y = pool(l, t, v, c->op == AN_OP_POOL_MAX, &x);
    if (c->op == AN_OP_POOL_MAX)
        root(l, c, y, v);
    else
        root_sum(l, c, y, t == AN_F32 || t == AN_F64 ? 8 : 65536 * 2, NULL,
                 v); /* the sum rounds before it is divided */
}

BUILD(pool_gradients)
{
    an_tensor *x, *y = pool(l, t, v, c->op == AN_OP_POOL_MAX_GRAD, &x), *g = some(l, t, an_shape_of(y));
    an_backward_at(AT, an_sum_at(AT, an_mul_at(AT, y, g), AN_ALL, false));
    root_sum(l, c, an_grad(x), t == AN_F32 || t == AN_F64 ? 8 : 65536 * 2, NULL, v);
}

/* ---- rows */

BUILD(cumsum)
{
    an_tensor *x = v == 4 ? an_transpose_at(AT, some(l, t, AN_SHAPE(9, 4)), 0, 1)
                          : some(l, t,
                                 v == 0   ? AN_SHAPE(0, 4)
                                 : v == 1 ? AN_SHAPE(3, 0)
                                 : v == 2 ? AN_SHAPE(1)
                                          : AN_SHAPE(5, 4001));
    an_tensor *y = an_cumsum_at(AT, x, v & 1);
    root(l, c, y, v);
}

static inline an_tensor *sortable(lab *l, an_dtype t, int v)
{
    static const double odd[8] = {(double)NAN, 0, -0.0, (double)INFINITY, 1, -(double)INFINITY, (double)NAN, 1};
    if (v == 0)
        return an_dtype_is_float(t) ? lab_input(l, t, AN_SHAPE(5, 17), -3, 3, odd, 8, 0)
                                    : lab_fill(l, t, AN_SHAPE(5, 17), t == AN_U8 ? 0 : -3, 4);
    if (v == 1) return lab_fill(l, t, AN_SHAPE(3, 7001), t == AN_U8 ? 0 : -30, 30); /* many ties in integers */
    if (v == 2) return an_transpose_at(AT, some(l, t, AN_SHAPE(6, 4)), 0, 1);
    return some(l, t, AN_SHAPE(1));
}

BUILD(sort)
{
    an_tensor *places, *y = an_sort_at(AT, sortable(l, t, v % 4), v >= 4, &places);
    root(l, c, y, v);
    root(l, c, places, v);
}

BUILD(topk)
{
    an_tensor *places, *y = an_topk_at(AT, sortable(l, t, v), v == 3 ? 1 : v == 1 ? 13 : v == 2 ? 6 : 9, &places);
    root(l, c, y, v);
    root(l, c, places, v);
}

/* ---- matrices: well conditioned; scale is about the size of the results, 16-bit ones are rounded once */

static inline an_tensor *eye(lab *l, an_dtype t, int64_t n, double x)
{
    an_tensor *same =
        an_eq_at(AT, an_iota_at(AT, l->now, AN_SHAPE(n, n), 0), an_iota_at(AT, l->now, AN_SHAPE(n, n), 1));
    return an_where_at(AT, same, an_full_at(AT, l->now, t, AN_SHAPE(n, n), x),
                       an_full_at(AT, l->now, t, AN_SHAPE(n, n), 0));
}

static inline int64_t order(int v)
{
    static const int64_t n[] = {1, 5, 24, 0};
    return n[v % 4];
}

/* [3,n,n] with a large, distinct diagonal. `symmetric`: exactly. */
static inline an_tensor *square(lab *l, an_dtype t, int v, bool symmetric)
{
    const int64_t n = order(v);
    an_tensor *x = lab_fill(l, t, AN_SHAPE(3, n, n), -0.25, 0.25);
    if (symmetric) x = an_add_at(AT, x, an_transpose_at(AT, x, 1, 2));
    an_tensor *d = an_mul_at(AT, eye(l, t, n, 1), an_cast_at(AT, an_iota_at(AT, l->now, AN_SHAPE(n, n), 0), t));
    return an_add_at(AT, an_add_at(AT, x, eye(l, t, n, 4)), an_mul_num_at(AT, d, 2));
}

static inline an_tensor *sized(lab *l, an_tensor *like, double x)
{
    return an_full_at(AT, l->now, an_dtype_of(like), an_shape_of(like), x);
}

BUILD(cholesky)
{
    an_tensor *y = an_cholesky_at(AT, square(l, t, v, true));
    root_sum(l, c, y, 4, sized(l, y, 8), v);
}

static inline an_tensor *tall(lab *l, an_dtype t, int v)
{
    const int64_t n = order(v), m = n + (v >= 4 ? 6 : 0);
    an_tensor *x = lab_fill(l, t, AN_SHAPE(2, m, n), -0.25, 0.25);
    an_tensor *same =
        an_eq_at(AT, an_iota_at(AT, l->now, AN_SHAPE(m, n), 0), an_iota_at(AT, l->now, AN_SHAPE(m, n), 1));
    an_tensor *d =
        an_mul_num_at(AT, an_cast_at(AT, an_add_num_at(AT, an_iota_at(AT, l->now, AN_SHAPE(m, n), 1), 2), t), 2);
    return an_add_at(AT, x, an_where_at(AT, same, d, an_full_at(AT, l->now, t, AN_SHAPE(m, n), 0)));
}

BUILD(qr)
{
    an_tensor *r, *q = an_qr_at(AT, tall(l, t, v), &r);
    root_sum(l, c, q, 20, NULL, v);
    root_sum(l, c, r, 4, sized(l, r, 50), v);
}

/* Vectors are known up to their sign. */
BUILD(eigh)
{
    an_tensor *vectors, *w = an_eigh_at(AT, square(l, t, v, true), &vectors);
    root_sum(l, c, w, t == AN_F64 ? 64 : 4, sized(l, w, 50), v); /* the oracle turns on in its own noise */
    root_bits(l, c, vectors, v);
    root_sum(l, c, an_abs_at(AT, vectors), t == AN_F64 ? 1000 : 60, NULL, v);
}

BUILD(svd)
{
    an_tensor *s, *right, *u = an_svd_at(AT, tall(l, t, v), &s, &right);
    root_sum(l, c, s, 4, sized(l, s, 50), v);
    root_bits(l, c, u, v);
    root_bits(l, c, right, v);
    root_sum(l, c, an_abs_at(AT, u), 60, NULL, v);
    root_sum(l, c, an_abs_at(AT, right), 60, NULL, v);
}

BUILD(solve)
{
    an_tensor *a = square(l, t, v, false), *b = some(l, t, AN_SHAPE(3, order(v), v == 5 ? 0 : 7));
    root_sum(l, c, an_solve_at(AT, v >= 4 ? an_transpose_at(AT, a, 1, 2) : a, b), 8, NULL, v);
}

BUILD(trisolve)
{
    an_tensor *a = square(l, t, v / 4 ? 2 : 1, false), *b = some(l, t, AN_SHAPE(3, order(v / 4 ? 2 : 1), 7));
    root_sum(l, c, an_trisolve_at(AT, a, b, v & 1, v >> 1 & 1), 8, NULL, v);
}

BUILD(allreduce) /* of one rank */
{
    an_tensor *x = an_neg_at(AT, some(l, t, AN_SHAPE(4, 3)));
    root(l, c,
         an_emit(an_ctx_graph(l->now),
                 &(an_emit_args){.op = AN_OP_ALLREDUCE, .dtype = t, .n_src = 1, .src = &x, .at = AT}),
         v);
}

BUILD(allgather) /* of one rank */
{
    const int64_t ranks = 1;
    an_tensor *x = an_neg_at(AT, some(l, t, AN_SHAPE(4, 3)));
    root(l, c,
         an_emit(an_ctx_graph(l->now),
                 &(an_emit_args){
                     .op = AN_OP_ALLGATHER, .dtype = t, .n_src = 1, .src = &x, .n_attr = 1, .attr = &ranks, .at = AT}),
         v);
}

BUILD(reducescatter) /* of one rank */
{
    const int64_t ranks = 1;
    an_tensor *x = an_neg_at(AT, some(l, t, AN_SHAPE(12)));
    root(l, c,
         an_emit(
             an_ctx_graph(l->now),
             &(an_emit_args){
                 .op = AN_OP_REDUCESCATTER, .dtype = t, .n_src = 1, .src = &x, .n_attr = 1, .attr = &ranks, .at = AT}),
         v);
}

/* op, build, dtypes, variants, most roots of one, budget in f32 */
#define ROW_OF(NAME, fn, dtypes, variants, roots, ulps)                                                                \
    {                                                                                                                  \
        AN_OP_##NAME, #NAME, build_##fn, dtypes, variants, roots, ulps                                                 \
    }
static const op_case other_rows[] = {
    ROW_OF(LEAF, leaf, T_ALL, 2, 1, 0),
    ROW_OF(CONST, const, T_ALL, 3, 1, 0),
    ROW_OF(IOTA, iota, 1 << AN_I32, 3, 1, 0),
    ROW_OF(RAND, rand, T_F32, 2, 1, 0),
    ROW_OF(CAST, cast, T_ALL, 1, AN_N_DTYPES, CORRECT),
    ROW_OF(RESHAPE, reshape, T_ALL, 3, 1, 0),
    ROW_OF(PERMUTE, permute, T_ALL, 3, 1, 0),
    ROW_OF(EXPAND, expand, T_ALL, 3, 1, 0),
    ROW_OF(SLICE, slice, T_ALL, 3, 1, 0),
    ROW_OF(PAD, pad, T_ALL, 3, 1, 0),
    ROW_OF(FLIP, flip, T_ALL, 2, 1, 0),
    ROW_OF(CONCAT, concat, T_ALL, 3, 1, 0),
    ROW_OF(DETACH, detach, T_ALL, 1, 1, 0),
    ROW_OF(SUM, sum, T_NUMBER, 17, 1, CORRECT),
    ROW_OF(SUM, sum_runs, T_FLOAT, 4, 3, 0),
    ROW_OF(MAX, max, T_NUMBER, 15, 1, 0),
    ROW_OF(ARGMAX, argmax, T_NUMBER, 15, 1, 0),
    ROW_OF(MATMUL, matmul, T_FLOAT, 16, 2, 0),
    ROW_OF(MATMUL, matmul_of_casts, T_ALL, 6, 1, 0),
    ROW_OF(GATHER, gather, T_ALL, 4, 1, 0),
    ROW_OF(SCATTER_ADD, scatter_add, T_FLOAT, 4, 1, 0),
    ROW_OF(ATTENTION, attention, T_F32 | 1 << AN_BF16, 13, 1, 0),
    ROW_OF(ATTENTION_GRAD, attention_grad, T_F32 | 1 << AN_BF16, 12, 3, 0),
    ROW_OF(GROUPED_MATMUL, grouped_matmul, T_FLOAT, 8, 1, 0),
    ROW_OF(GROUPED_OUTER, grouped_outer, T_FLOAT, 8, 1, 0),
    ROW_OF(CONV2D, conv2d, T_FLOAT, 9, 1, 0),
    ROW_OF(CONV2D_DX, conv2d_gradients, T_FLOAT, 9, 1, 0),
    ROW_OF(CONV2D_DW, conv2d_gradients, T_FLOAT, 8, 1, 0),
    ROW_OF(CONV2D_DW_IMAGES, depthwise_gradients, T_FLOAT, 2, 1, 0),
    ROW_OF(POOL_MAX, pool, T_FLOAT, 4, 1, 0),
    ROW_OF(POOL_MAX_GRAD, pool_gradients, T_FLOAT, 4, 1, 0),
    ROW_OF(POOL_SUM, pool, T_FLOAT, 3, 1, 0),
    ROW_OF(POOL_SUM_GRAD, pool_gradients, T_FLOAT, 3, 1, 0),
    ROW_OF(CUMSUM, cumsum, T_NUMBER, 5, 1, CORRECT),
    ROW_OF(SORT, sort, T_NUMBER, 8, 2, 0),
    ROW_OF(TOPK, topk, T_NUMBER, 4, 2, 0),
    ROW_OF(DRAW, draw, T_F32, 8, 1, 0),
    ROW_OF(PUT_ROWS, put_rows, T_NUMBER, 5, 1, 0),
    ROW_OF(CHOLESKY, cholesky, T_FLOAT, 4, 1, 0),
    ROW_OF(QR, qr, T_FLOAT, 8, 2, 0),
    ROW_OF(EIGH, eigh, T_FLOAT, 4, 3, 0),
    ROW_OF(SVD, svd, T_FLOAT, 8, 5, 0),
    ROW_OF(SOLVE, solve, T_FLOAT, 6, 1, 0),
    ROW_OF(TRISOLVE, trisolve, T_FLOAT, 8, 1, 0),
    ROW_OF(PICK, sort, T_F32, 1, 2, 0),
    ROW_OF(ALLREDUCE, allreduce, T_FLOAT, 1, 1, 0),
    ROW_OF(ALLGATHER, allgather, T_FLOAT, 1, 1, 0),
    ROW_OF(REDUCESCATTER, reducescatter, T_FLOAT, 1, 1, 0),
};

#endif
