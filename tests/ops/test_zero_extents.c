/* test_zero_extents.c: every operation on tensors of which some axis has length 0, forward and backward, compiled,
 * interpreted and one kernel an op, with transposed operands and with readers that transpose and fuse: no crash, no
 * refusal, the right shape, and sums over nothing are 0.
 *
 * Each case runs on its own, for every axis of its operands that may be empty.
 */
#include "lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT "test_zero_extents.c:1"

typedef struct zero_case {
    const char *name;
    int axes; /* how many extents may be made 0 */
    an_tensor *(*build)(an_ctx *cx, const int64_t *n, bool turned);
} zero_case;

/* The inputs of the graph being built, whose gradients are asked for. */
enum { MOST = 16 };
static an_tensor *made[MOST];
static int n_made;

static an_tensor *input(an_ctx *cx, an_dtype t, an_shape s)
{
    int64_t numel = 1;
    for (int i = 0; i < s.rank; i++) numel *= s.dim[i];
    void *data = calloc((size_t)numel + 1, 8);
    assert_non_null(data);
    for (int64_t i = 0; i < numel && t == AN_F32; i++) ((float *)data)[i] = (float)(i * 7 % 5) - 1.5f;
    an_tensor *x = an_input_at(AT, cx, t, s, data);
    free(data);
    if (t == AN_F32 && n_made < MOST) made[n_made++] = x;
    return x;
}

/* [a,b], stored as it is or as its transpose. */
static an_tensor *matrix(an_ctx *cx, int64_t a, int64_t b, bool turned)
{
    return turned ? an_transpose_at(AT, input(cx, AN_F32, AN_SHAPE(b, a)), 0, 1) : input(cx, AN_F32, AN_SHAPE(a, b));
}

#define ZERO(name) static an_tensor *build_##name(an_ctx *cx, const int64_t *n, bool turned)

ZERO(matmul)
{
    return an_matmul_at(AT, matrix(cx, n[0], n[1], turned), matrix(cx, n[1], n[2], turned));
}
ZERO(matmul_t)
{
    return an_transpose_at(AT, an_matmul_at(AT, matrix(cx, n[0], n[1], turned), matrix(cx, n[1], n[2], turned)), 0, 1);
}
ZERO(matmul_epilogue)
{
    an_tensor *y = an_matmul_at(AT, matrix(cx, n[0], n[1], turned), matrix(cx, n[1], n[2], turned));
    return an_softmax_at(AT, an_gelu_at(AT, an_add_at(AT, y, input(cx, AN_F32, AN_SHAPE(n[2])))), -1);
}
ZERO(matmul_batch)
{
    an_tensor *a = input(cx, AN_F32, AN_SHAPE(n[3], n[0], n[1])), *b = input(cx, AN_F32, AN_SHAPE(n[3], n[1], n[2]));
    if (turned) b = an_transpose_at(AT, input(cx, AN_F32, AN_SHAPE(n[3], n[2], n[1])), 1, 2);
    return an_permute_at(AT, an_matmul_at(AT, a, b), AN_SHAPE(1, 0, 2));
}
ZERO(linear)
{
    return an_linear_at(AT, matrix(cx, n[0], n[1], turned), matrix(cx, n[2], n[1], turned),
                        input(cx, AN_F32, AN_SHAPE(n[2])));
}
ZERO(matmul_i32)
{
    return an_cast_at(AT,
                      an_matmul_at(AT, an_cast_at(AT, matrix(cx, n[0], n[1], turned), AN_I32),
                                   an_cast_at(AT, matrix(cx, n[1], n[2], turned), AN_I32)),
                      AN_F32);
}
ZERO(elementwise)
{
    return an_mul_at(AT, an_exp_at(AT, matrix(cx, n[0], n[1], turned)), an_sin_at(AT, matrix(cx, n[0], n[1], !turned)));
}
ZERO(broadcast)
{
    return an_add_at(AT, matrix(cx, n[0], n[1], turned), input(cx, AN_F32, AN_SHAPE(n[2], 1, n[1])));
}
ZERO(sum_0)
{
    return an_sum_at(AT, matrix(cx, n[0], n[1], turned), AN_AXIS(0), false);
}
ZERO(sum_1)
{
    return an_mul_at(AT, matrix(cx, n[0], n[1], turned),
                     an_sum_at(AT, an_exp_at(AT, matrix(cx, n[0], n[1], turned)), AN_AXIS(1), true));
}
ZERO(sum_all)
{
    return an_sum_at(AT, an_exp_at(AT, matrix(cx, n[0], n[1], turned)), AN_ALL, false);
}
ZERO(max)
{
    return an_max_at(AT, matrix(cx, n[0], n[1] + 1, turned), AN_AXIS(1), false);
}
ZERO(max_0)
{
    return an_max_at(AT, matrix(cx, n[0] + 1, n[1], turned), AN_AXIS(0), true);
}
ZERO(argmax)
{
    return an_cast_at(AT, an_argmax_at(AT, matrix(cx, n[0], n[1] + 1, turned), 1, false), AN_F32);
}
ZERO(softmax)
{
    return an_softmax_at(AT, matrix(cx, n[0], n[1], turned), 1);
}
ZERO(softmax_0)
{
    return an_softmax_at(AT, matrix(cx, n[0], n[1], turned), 0);
}
ZERO(log_softmax)
{
    return an_log_softmax_at(AT, matrix(cx, n[0], n[1], turned), 1);
}
ZERO(logsumexp)
{
    return an_exp_at(AT, an_logsumexp_at(AT, matrix(cx, n[0], n[1], turned), 1, false));
}
ZERO(layer_norm)
{
    return an_layer_norm_at(AT, matrix(cx, n[0], n[1], turned), input(cx, AN_F32, AN_SHAPE(n[1])),
                            input(cx, AN_F32, AN_SHAPE(n[1])), 1e-5);
}
ZERO(rms_norm)
{
    return an_rms_norm_at(AT, matrix(cx, n[0], n[1], turned), input(cx, AN_F32, AN_SHAPE(n[1])), 1e-5);
}
ZERO(cross_entropy)
{
    return an_cross_entropy_at(AT, matrix(cx, n[0], n[1] + 1, turned), input(cx, AN_I32, AN_SHAPE(n[0])));
}
ZERO(linear_ce)
{
    return an_linear_cross_entropy_at(AT, matrix(cx, n[0], n[1], turned), matrix(cx, n[2] + 1, n[1], turned),
                                      input(cx, AN_I32, AN_SHAPE(n[0])));
}
ZERO(reshape)
{
    return an_reshape_at(AT, an_transpose_at(AT, an_exp_at(AT, matrix(cx, n[0], n[1], turned)), 0, 1),
                         AN_SHAPE(1, n[0] * n[1]));
}
ZERO(slice)
{
    return an_slice_at(AT, matrix(cx, n[0], n[1] + 2, turned), 1, 1, 1 + n[1], 1);
}
ZERO(pad)
{
    return an_pad_at(AT, an_flip_at(AT, matrix(cx, n[0], n[1], turned), AN_ALL), 0, 1, 2, 0.5);
}
ZERO(concat)
{
    an_tensor *p[3] = {matrix(cx, n[0], n[1], turned), matrix(cx, n[0], n[2], !turned), matrix(cx, n[0], 2, turned)};
    return an_concat_at(AT, p, 3, 1);
}
ZERO(gather)
{
    return an_gather_at(AT, matrix(cx, n[0] + 1, n[1], turned), input(cx, AN_I32, AN_SHAPE(n[2], n[3])));
}
ZERO(scatter)
{
    return an_scatter_add_at(AT, input(cx, AN_I32, AN_SHAPE(n[0])), matrix(cx, n[0], n[1], turned), n[2] + 1);
}
ZERO(scatter_none)
{
    return an_scatter_add_at(AT, input(cx, AN_I32, AN_SHAPE(n[0])), matrix(cx, n[0], n[1], turned),
                             n[0] ? n[2] + 1 : 0);
}
ZERO(scatter_i32)
{
    return an_cast_at(AT,
                      an_scatter_add_at(AT, input(cx, AN_I32, AN_SHAPE(n[0])),
                                        an_cast_at(AT, matrix(cx, n[0], n[1], turned), AN_I32), n[2] + 1),
                      AN_F32);
}
ZERO(attention)
{
    return an_attention_at(AT, input(cx, AN_F32, AN_SHAPE(n[0], 2, n[1], n[3])),
                           input(cx, AN_F32, AN_SHAPE(n[0], 2, n[2], n[3])),
                           input(cx, AN_F32, AN_SHAPE(n[0], 2, n[2], n[3])), 0.5, turned, 0, NULL);
}
ZERO(attention_f64)
{
    an_tensor *t[3];
    for (int i = 0; i < 3; i++)
        t[i] = an_cast_at(AT, input(cx, AN_F32, AN_SHAPE(n[0], 2, i ? n[2] : n[1], n[3])), AN_F64);
    return an_cast_at(AT, an_attention_at(AT, t[0], t[1], t[2], 0.5, turned, 0, NULL), AN_F32);
}
ZERO(conv2d)
{
    return an_conv2d_at(AT, input(cx, AN_F32, AN_SHAPE(n[0], 4, 5, n[1])),
                        input(cx, AN_F32, AN_SHAPE(n[2], 2, 3, n[1])), input(cx, AN_F32, AN_SHAPE(n[2])),
                        (an_window){.pad_h = turned});
}
ZERO(conv2d_t)
{
    return an_permute_at(AT, an_relu_at(AT, build_conv2d(cx, n, turned)), AN_SHAPE(0, 3, 1, 2));
}
ZERO(conv2d_deep)
{
    return an_conv2d_at(AT, input(cx, AN_F32, AN_SHAPE(n[0], 4, 5, 3)), input(cx, AN_F32, AN_SHAPE(3, 2, 3, 1)), NULL,
                        (an_window){.groups = 3, .pad_w = turned});
}
ZERO(max_pool)
{
    return an_max_pool_at(AT, input(cx, AN_F32, AN_SHAPE(n[0], 4, 5, n[1])),
                          (an_window){.kernel_h = 2, .kernel_w = 2, .dilation_w = 1 + turned});
}
ZERO(avg_pool)
{
    return an_avg_pool_at(AT, input(cx, AN_F32, AN_SHAPE(n[0], 4, 5, n[1])),
                          (an_window){.kernel_h = 2, .kernel_w = 2, .stride_h = 1 + turned});
}
ZERO(cumsum)
{
    return an_cumsum_at(AT, matrix(cx, n[0], n[1], turned), turned);
}
ZERO(sort)
{
    return an_sort_at(AT, matrix(cx, n[0], n[1], turned), turned, NULL);
}
ZERO(topk)
{
    return an_topk_at(AT, matrix(cx, n[0], n[1] + 2, turned), 2, NULL);
}
ZERO(var)
{
    return an_var_at(AT, matrix(cx, n[0], n[1] + 1, turned), AN_AXIS(1), false);
}
ZERO(dropout)
{
    return an_dropout_at(AT, matrix(cx, n[0], n[1], turned), 0.5);
}

static an_tensor *spd(an_ctx *cx, int64_t b, int64_t n, bool turned)
{
    an_tensor *i = an_iota_at(AT, cx, AN_SHAPE(n, n), 0), *k = an_iota_at(AT, cx, AN_SHAPE(n, n), 1);
    an_tensor *d = an_mul_num_at(AT, an_cast_at(AT, an_eq_at(AT, i, k), AN_F32), 9);
    an_tensor *x = an_add_at(AT, an_mul_num_at(AT, input(cx, AN_F32, AN_SHAPE(b, n, n)), 0.1),
                             an_mul_at(AT, d, an_cast_at(AT, an_add_num_at(AT, i, 1), AN_F32)));
    return turned ? an_transpose_at(AT, x, 1, 2) : x;
}
ZERO(cholesky)
{
    return an_cholesky_at(AT, spd(cx, n[0], n[1], turned));
}
ZERO(eigh)
{
    an_tensor *v, *w = an_eigh_at(AT, spd(cx, n[0], n[1], turned), &v);
    return an_add_at(AT, an_sum_at(AT, w, AN_ALL, false), an_sum_at(AT, v, AN_ALL, false));
}
ZERO(qr)
{
    an_tensor *r, *q = an_qr_at(AT, spd(cx, n[0], n[1], turned), &r);
    return an_add_at(AT, q, r);
}
ZERO(svd)
{
    an_tensor *s, *v, *u = an_svd_at(AT, spd(cx, n[0], n[1], turned), &s, &v);
    return an_add_at(AT, an_sum_at(AT, an_add_at(AT, u, v), AN_ALL, false), an_sum_at(AT, s, AN_ALL, false));
}
ZERO(solve)
{
    return an_solve_at(AT, spd(cx, n[0], n[1], turned), input(cx, AN_F32, AN_SHAPE(n[0], n[1], n[2])));
}
ZERO(trisolve)
{
    return an_trisolve_at(AT, spd(cx, n[0], n[1], false), input(cx, AN_F32, AN_SHAPE(n[0], n[1], n[2])), turned,
                          turned);
}
ZERO(batch_norm)
{
    an_tensor *m = an_state_at(AT, cx, "m", AN_F32, AN_SHAPE(3), AN_ZEROS),
              *v = an_state_at(AT, cx, "v", AN_F32, AN_SHAPE(3), AN_ONES);
    return an_batch_norm_at(AT, matrix(cx, n[0], 3, turned), NULL, NULL, m, v, 0.1, 1e-5, turned);
}

/* Each function alone, added up: those of bools and integers through casts. */
ZERO(unary)
{
    static an_tensor *(*const f[])(const char *, an_tensor *) = {
#define X(name) an_##name##_at,
        AN_UNARY_FUNCTIONS(X)
#undef X
    };
    an_tensor *x = matrix(cx, n[0], n[1], turned), *sum = x, *yes = an_gt_at(AT, x, x);
    for (size_t i = 0; i < sizeof f / sizeof *f; i++)
        sum = an_add_at(AT, sum, an_cast_at(AT, f[i](AT, f[i] == an_not_at ? yes : x), AN_F32));
    return sum;
}
ZERO(binary)
{
    static an_tensor *(*const f[])(const char *, an_tensor *, an_tensor *) = {
#define X(name) an_##name##_at,
        AN_BINARY_FUNCTIONS(X)
#undef X
    };
    an_tensor *a = matrix(cx, n[0], n[1], turned), *b = input(cx, AN_F32, AN_SHAPE(n[1])), *sum = a;
    for (size_t i = 0; i < sizeof f / sizeof *f; i++) {
        const bool whole = f[i] == an_idiv_at || f[i] == an_imod_at;
        const bool logic = f[i] == an_and_at || f[i] == an_or_at || f[i] == an_xor_at;
        const an_dtype t = whole ? AN_I32 : logic ? AN_BOOL : AN_F32;
        sum = an_add_at(AT, sum, an_cast_at(AT, f[i](AT, an_cast_at(AT, a, t), an_cast_at(AT, b, t)), AN_F32));
    }
    return sum;
}
ZERO(casts)
{
    an_tensor *x = matrix(cx, n[0], n[1], turned), *sum = x;
    for (int t = 0; t < AN_N_DTYPES; t++)
        sum = an_add_at(AT, sum, an_cast_at(AT, an_cast_at(AT, x, (an_dtype)t), AN_F32));
    return sum;
}
ZERO(where)
{
    an_tensor *a = matrix(cx, n[0], n[1], turned), *b = matrix(cx, n[0], n[1], !turned);
    return an_where_at(AT, an_gt_at(AT, a, b), an_clamp_at(AT, a, -1, 0.5), b);
}
ZERO(means)
{
    an_tensor *x = matrix(cx, n[0] + 1, n[1], turned);
    return an_add_at(AT, an_mean_at(AT, x, AN_AXIS(0), false), an_min_at(AT, x, AN_AXIS(0), false));
}
ZERO(matmul_bf16)
{
    return an_matmul_as_at(AT, an_cast_at(AT, matrix(cx, n[0], n[1], turned), AN_BF16),
                           an_cast_at(AT, matrix(cx, n[1], n[2], turned), AN_BF16), AN_F32);
}
ZERO(rms_norm_axis)
{
    an_tensor *x = matrix(cx, n[0], n[1], turned);
    return an_add_at(AT, an_rms_norm_axis_at(AT, x, 0, 1e-5), an_rms_norm_axis_at(AT, x, -1, 1e-5));
}
ZERO(stablemax)
{
    return an_stablemax_cross_entropy_at(AT, matrix(cx, n[0], n[1] + 1, turned), input(cx, AN_I32, AN_SHAPE(n[0])));
}
ZERO(put_rows)
{
    return an_put_rows_at(AT, an_detach_at(AT, matrix(cx, n[2], n[1], turned)),
                          an_iota_at(AT, cx, AN_SHAPE(n[2] ? n[0] : 0), 0),
                          an_detach_at(AT, matrix(cx, n[2] ? n[0] : 0, n[1], turned)));
}
ZERO(sign_sgd_rows)
{
    char name[64];
    snprintf(name, sizeof name, "table%d.%d", (int)n[0], (int)n[1]);
    an_tensor *table = an_state_at(AT, cx, name, AN_F32, AN_SHAPE(n[0], n[1]), AN_ONES);
    const int64_t rows = n[0] ? n[2] : 0;
    an_sign_sgd_rows_at(AT, table, input(cx, AN_I32, AN_SHAPE(rows)), an_detach_at(AT, matrix(cx, rows, n[1], turned)),
                        0.1, 0, NULL);
    return an_mul_at(AT, table, matrix(cx, n[0], n[1], turned));
}

#define ROW(name, axes)                                                                                                \
    {                                                                                                                  \
#name, axes, build_##name                                                                                      \
    }
static const zero_case cases[] = {
    ROW(matmul, 3),        ROW(matmul_t, 3),      ROW(matmul_epilogue, 3), ROW(matmul_batch, 4),  ROW(linear, 3),
    ROW(matmul_i32, 3),    ROW(elementwise, 2),   ROW(broadcast, 3),       ROW(sum_0, 2),         ROW(sum_1, 2),
    ROW(sum_all, 2),       ROW(max, 2),           ROW(max_0, 2),           ROW(argmax, 2),        ROW(softmax, 2),
    ROW(softmax_0, 2),     ROW(log_softmax, 2),   ROW(logsumexp, 2),       ROW(layer_norm, 2),    ROW(rms_norm, 2),
    ROW(cross_entropy, 2), ROW(linear_ce, 3),     ROW(reshape, 2),         ROW(slice, 2),         ROW(pad, 2),
    ROW(concat, 3),        ROW(gather, 4),        ROW(scatter, 3),         ROW(scatter_none, 2),  ROW(scatter_i32, 3),
    ROW(attention, 4),     ROW(attention_f64, 4), ROW(conv2d, 3),          ROW(conv2d_t, 3),      ROW(conv2d_deep, 1),
    ROW(max_pool, 2),      ROW(avg_pool, 2),      ROW(cumsum, 2),          ROW(sort, 2),          ROW(topk, 2),
    ROW(var, 2),           ROW(dropout, 2),       ROW(cholesky, 2),        ROW(eigh, 2),          ROW(qr, 2),
    ROW(svd, 2),           ROW(solve, 3),         ROW(trisolve, 3),        ROW(batch_norm, 1),    ROW(unary, 2),
    ROW(binary, 2),        ROW(casts, 2),         ROW(where, 2),           ROW(means, 2),         ROW(matmul_bf16, 3),
    ROW(rms_norm_axis, 2), ROW(stablemax, 2),     ROW(put_rows, 3),        ROW(sign_sgd_rows, 3),
};

/* Forward and backward. A mean of nothing is NaN; every other loss without elements to sum is a number. `has` says of
 * each input whether it has a gradient where no axis is empty, and then it has one of its own shape here too. */
static bool run(an_ctx *cx, const zero_case *z, const int64_t *n, bool turned, uint32_t *has)
{
    an_reset(cx);
    an_tensor *y = z->build(cx, n, turned), *loss = an_sum_at(AT, y, AN_ALL, false), *root[2 + MOST] = {y, loss};
    int roots = 2;
    uint32_t have = 0;
    bool fits = true;
    an_backward_at(AT, loss);
    for (int i = 0; i < n_made; i++) {
        an_tensor *d = an_grad(made[i]);
        if (!d) continue;
        const an_shape is = an_shape_of(d), of = an_shape_of(made[i]);
        fits &= is.rank == of.rank && !memcmp(is.dim, of.dim, (size_t)of.rank * sizeof *of.dim);
        have |= 1u << i;
        root[roots++] = d;
    }
    n_made = 0;
    if (!*has) *has = have;
    if (!fits || have != *has) {
        print_error("gradients %x, not %x\n", have, *has);
        return false;
    }
    if (an_eval_at(AT, root, roots) != AN_OK || an_error(cx)) return false;
    int64_t numel = 1;
    for (int i = 0; i < an_shape_of(y).rank; i++) numel *= an_shape_of(y).dim[i];
    return numel > 0 || an_item_at(AT, loss) == 0;
}

static void no_operation_minds_an_axis_of_length_0(void **state)
{
    (void)state;
    static const char *const ways[] = {"interpreted", "compiled", "unfused"};
    static const int64_t full[4] = {3, 4, 2, 5};
    int wrong = 0, ran = 0;
    for (int w = 0; w < 3; w++) {
        an_options o = {.device = "cpu", .threads = 1 + w % 2, .cc = w == 1 ? NULL : "none", .verify = true};
        o.unfused = w == 2;
        an_ctx *cx = an_open(&o);
        assert_null(an_error(cx));
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            for (int mask = 0; mask < 1 << cases[i].axes; mask++)
                for (int turned = 0; turned < 2; turned++) {
                    int64_t n[4];
                    uint32_t has = 0;
                    for (int k = 0; k < 4; k++) n[k] = full[k];
                    if (mask != 0 && !run(cx, &cases[i], n, turned, &has)) wrong++;
                    if (w == 1 && (mask == 0 || turned))
                        continue; /* what is compiled is seen by tests/ops/test_ops.c */
                    for (int k = 0; k < 4; k++) n[k] = mask >> k & 1 ? 0 : full[k];
                    ran++;
                    if (run(cx, &cases[i], n, turned, &has)) continue;
                    print_error("%s %s [%d %d %d %d] %d: %s\n", ways[w], cases[i].name, (int)n[0], (int)n[1], (int)n[2],
                                (int)n[3], turned, an_error(cx) ? an_error(cx) : "no sentence");
                    an_error_clear(cx);
                    wrong++;
                }
        an_close(cx);
    }
    print_message("# %d graphs\n", ran);
    assert_int_equal(wrong, 0);
}

static void every_optimizer_leaves_parameters_without_elements_and_updates_the_others(void **state)
{
    (void)state;
    for (int how = 0; how < 5; how++)
        for (int first = 0; first < 2; first++) {
            an_ctx *cx = an_open(&(an_options){.device = "cpu", .cc = "none", .threads = 1, .verify = true});
            for (int step = 0; step < 3; step++) {
                an_tensor *none = NULL, *some;
                if (first) none = an_param_at(AT, cx, "none", AN_F32, AN_SHAPE(0, 3), AN_NORMAL(1)); /* [0,3] */
                some = an_param_at(AT, cx, "some", AN_F32, AN_SHAPE(3, 2), AN_ONES);                 /* [3,2] */
                if (!first) none = an_param_at(AT, cx, "none", AN_F32, AN_SHAPE(0, 3), AN_NORMAL(1));
                an_tensor *y = an_matmul_at(AT, none, some); /* [0,2] */
                an_tensor *loss = an_add_at(AT, an_sum_at(AT, y, AN_ALL, false),
                                            an_sum_at(AT, an_square_at(AT, some), AN_ALL, false));
                an_backward_at(AT, loss);
                const an_adamw_options o = {.lr = 0.1, .weight_decay = 0.1, .clip = 1};
                an_tensor *norm = how == 0   ? an_adamw_at(AT, cx, o)
                                  : how == 1 ? an_adam_at(AT, cx, o)
                                  : how == 2 ? an_adam_atan2_at(AT, cx, o)
                                  : how == 3 ? an_sgd_at(AT, cx, 0.1)
                                             : an_sgd_with_at(AT, cx, (an_sgd_options){.lr = 0.1, .momentum = 0.9});
                an_ema_at(AT, cx, 0.5, NULL);
                if (an_eval_at(AT, (an_tensor *[]){loss, norm}, 2) != AN_OK) fail_msg("%s", an_error(cx));
                assert_true(an_item_at(AT, norm) > 0);
                float now[6];
                assert_int_equal(an_persist_read(cx, an_persist_find(cx, "some"), now, sizeof now), AN_OK);
                assert_true(now[0] < 1.0f - 0.05f * (float)(step + 1));
                an_reset(cx);
            }
            an_close(cx);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_operation_minds_an_axis_of_length_0),
        cmocka_unit_test(every_optimizer_leaves_parameters_without_elements_and_updates_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
