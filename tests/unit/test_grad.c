/* test_grad.c: every op's gradient against central differences of the reference in double; every op declared without
 * one has none. The tables below must name every row of ops.def: an op without a case fails. Sums of gradients, tiles
 * and node counts of norms.
 */
#include "graph_case.h"

typedef an_tensor *(*build_fn)(graph_case *c); /* makes its leaves and returns a tensor */

static bool seen[AN_N_OPS]; /* ops whose gradient was checked, in the forward part of some case */

/* ------------------------------------------------------------------------------------------------ the check */

/* The sum of the loss over the leaf's neighbours must grow as the gradient says, for up to `most` of each parameter's
 * elements. */
static void check_parameter(graph_case *c, const char *name, int leaf, const an_tensor *loss, int most)
{
    const double h = 1e-5;
    an_tensor *grad = an_graph_grad(c->g, c->leaf[leaf]);
    if (grad == NULL) fail_msg("%s: parameter %d has no gradient", name, leaf);
    assert_int_equal(grad->dtype, c->leaf[leaf]->dtype);
    assert_int_equal(grad->numel, c->leaf[leaf]->numel);
    assert_memory_equal(grad->shape, c->leaf[leaf]->shape, sizeof grad->shape);
    double *values = case_eval(c, grad);
    int64_t step = AN_MAX(1, grad->numel / most);
    for (int64_t i = 0; i < grad->numel; i += step) {
        double *x = &c->data[leaf][i], middle = *x;
        *x = middle + h;
        double up = case_item(c, loss);
        *x = middle - h;
        double down = case_item(c, loss);
        *x = middle;
        double want = (up - down) / (2 * h);
        if (!(fabs(values[i] - want) <= 2e-6 + 2e-6 * fabs(want)))
            fail_msg("%s: parameter %d element %d: gradient %.9g, differences %.9g", name, leaf, (int)i, values[i],
                     want);
    }
    free(values);
}

static void check_case(const char *name, build_fn build)
{
    graph_case c;
    case_open(&c);
    c.ref.round_nothing = true;
    an_tensor *y = build(&c);
    int parameters = c.n;
    an_tensor *loss = case_loss(&c, y);
    for (int i = 0; i < c.g->n; i++) seen[c.g->node[i]->op] = true;
    if (an_graph_backward(c.g, loss) != AN_OK) fail_msg("%s: %s", name, c.cx.err.text);
    for (int i = 0; i < parameters; i++)
        if (an_dtype_is_float((an_dtype)c.leaf[i]->dtype)) check_parameter(&c, name, i, loss, 24);
    case_close(&c);
}

/* ------------------------------------------------------------------------------------------------ elementwise, from
 * the table */

static an_tensor *emit(graph_case *c, an_op op, int n, an_tensor **src)
{
    for (int i = 0; i < n; i++) src[i] = an_use(c->g, src[i], AT, "test");
    an_emit_args e = {.op = op, .n_src = n, .src = src, .at = AT};
    return an_emit(c->g, &e);
}

/* op over leaves from [low, high); WHERE's condition is a fixed mask. */
static an_tensor *elementwise(graph_case *c, an_op op, double low, double high)
{
    an_tensor *src[3];
    int n = an_ops[op].arity, first = 0;
    if (op == AN_OP_WHERE) {
        src[first++] = case_leaf(c, AN_LEAF_INPUT, AN_BOOL, AN_SHAPE(3, 4), 0, 2);
    }
    for (int i = first; i < n; i++) src[i] = PARAM(c, AN_SHAPE(3, 4), low, high);
    return emit(c, op, n, src);
}

static bool positive_only(an_op op)
{
    return op == AN_OP_SQRT || op == AN_OP_RSQRT || op == AN_OP_LOG || op == AN_OP_POW;
}

static void check_elementwise(an_op op, double low, double high)
{
    graph_case c;
    case_open(&c);
    an_tensor *y = elementwise(&c, op, low, high);
    int parameters = c.n;
    an_tensor *loss = case_loss(&c, y);
    assert_int_equal(an_graph_backward(c.g, loss), AN_OK);
    for (int i = 0; i < parameters; i++)
        if (an_dtype_is_float((an_dtype)c.leaf[i]->dtype)) check_parameter(&c, an_ops[op].name, i, loss, 24);
    seen[op] = true;
    case_close(&c);
}

static void elementwise_gradients_are_the_derivatives(void **state)
{
    (void)state;
    for (int op = 0; op < AN_N_OPS; op++) {
        if (an_ops[op].cls != AN_CLS_ELEM || !an_ops[op].has_grad) continue;
        const bool within_one = op == AN_OP_ASIN || op == AN_OP_ACOS;
        check_elementwise((an_op)op, 0.3, within_one ? 0.9 : 1.7);
        if (!positive_only((an_op)op)) check_elementwise((an_op)op, -0.9, -0.2);
    }
}

/* ------------------------------------------------------------------------------------------------ the other ops */

#define CASE(name) static an_tensor *name(graph_case *c)

CASE(reshape)
{
    return an_reshape_at(AT, PARAM(c, AN_SHAPE(2, 3, 4), -1, 1), AN_SHAPE(4, -1));
}
CASE(permute)
{
    return an_permute_at(AT, PARAM(c, AN_SHAPE(2, 3, 4), -1, 1), AN_SHAPE(2, 0, 1));
}
CASE(expand)
{
    an_tensor *a = an_expand_at(AT, PARAM(c, AN_SHAPE(3, 1, 2, 1), -1, 1), AN_SHAPE(2, 3, 4, 2, 5));
    return an_mul_at(AT, a, a);
}
CASE(expand_over_many_rows)
{
    return an_expand_at(AT, PARAM(c, AN_SHAPE(3), -1, 1), AN_SHAPE(300, 3));
}
CASE(slices_that_tile)
{
    an_tensor *x = PARAM(c, AN_SHAPE(2, 7), -1, 1);
    an_tensor *a = an_slice_at(AT, x, 1, 0, 2, 1), *b = an_slice_at(AT, x, 1, 2, 4, 1),
              *d = an_slice_at(AT, x, -1, 4, 7, 1);
    an_tensor *p[] = {an_mul_at(AT, d, d), an_exp_at(AT, a), b};
    return an_concat_at(AT, p, 3, 1);
}
CASE(slices_that_overlap)
{
    an_tensor *x = PARAM(c, AN_SHAPE(5, 4), -1, 1);
    an_tensor *p[] = {an_slice_at(AT, x, 0, 0, 3, 1), an_slice_at(AT, x, 0, 2, 5, 1), x,
                      an_slice_at(AT, x, 0, 1, 5, 2)};
    return an_concat_at(AT, p, 4, 0);
}
CASE(slice_steps)
{
    an_tensor *x = an_slice_at(AT, PARAM(c, AN_SHAPE(7, 9), -1, 1), 0, 1, 7, 2);
    return an_slice_at(AT, x, 1, 1, 8, 3);
}
CASE(pad_flip)
{
    an_tensor *x = an_flip_at(AT, PARAM(c, AN_SHAPE(3, 4), -1, 1), AN_AXIS(-1));
    return an_mul_at(AT, an_pad_at(AT, an_pad_at(AT, x, 0, 1, 2, 3), 1, 0, 1, 5), PARAM(c, AN_SHAPE(6, 5), -1, 1));
}
CASE(cast)
{
    return an_cast_at(AT, an_sin_at(AT, an_cast_at(AT, PARAM(c, AN_SHAPE(4), -1, 1), AN_F32)), AN_F64);
}
CASE(sum_of_separate_axes)
{
    an_tensor *s = an_sum_at(AT, PARAM(c, AN_SHAPE(2, 3, 4, 2), -1, 1), AN_AXIS(0) | AN_AXIS(2), true);
    return an_mul_at(AT, s, s);
}
CASE(sum_of_very_many)
{
    an_tensor *x = PARAM(c, AN_SHAPE(9001), -1, 1);
    return an_square_at(AT, an_sum_at(AT, an_mul_at(AT, x, x), AN_ALL, false));
}
CASE(max_over_many_rows)
{
    return an_max_at(AT, PARAM(c, AN_SHAPE(300, 3), -1, 1), AN_AXIS(0), false);
}
CASE(min_over_rows)
{
    return an_min_at(AT, PARAM(c, AN_SHAPE(3, 5, 2), -1, 1), AN_AXIS(1) | AN_AXIS(2), true);
}
CASE(variance)
{
    return an_var_at(AT, PARAM(c, AN_SHAPE(3, 5), -1, 1), AN_AXIS(1), false);
}
CASE(matmul)
{
    an_tensor *a = PARAM(c, AN_SHAPE(2, 3, 4), -1, 1);
    return an_matmul_at(AT, a, PARAM(c, AN_SHAPE(4, 5), -1, 1));
}
CASE(matmul_batches)
{
    an_tensor *a = PARAM(c, AN_SHAPE(2, 1, 3, 4), -1, 1);
    return an_matmul_at(AT, a, PARAM(c, AN_SHAPE(3, 4, 2), -1, 1));
}
CASE(matmul_of_transposes)
{
    an_tensor *a = an_transpose_at(AT, PARAM(c, AN_SHAPE(4, 3), -1, 1), 0, 1);
    return an_matmul_at(AT, a, an_transpose_at(AT, PARAM(c, AN_SHAPE(5, 4), -1, 1), -1, -2));
}
CASE(gather)
{
    an_tensor *table = PARAM(c, AN_SHAPE(5, 3), -1, 1);
    an_tensor *y = an_gather_at(AT, table, case_leaf(c, AN_LEAF_INPUT, AN_I32, AN_SHAPE(2, 4), 0, 5));
    return an_mul_at(AT, y, y);
}
CASE(scatter_add)
{
    an_tensor *index = case_leaf(c, AN_LEAF_INPUT, AN_I32, AN_SHAPE(7), 0, 4);
    return an_square_at(AT, an_scatter_add_at(AT, index, PARAM(c, AN_SHAPE(7, 3), -1, 1), 4));
}
/* Ends are random: those out of order are taken as the nearest that are not. */
CASE(grouped_matmul)
{
    an_tensor *x = PARAM(c, AN_SHAPE(7, 3), -1, 1), *w = PARAM(c, AN_SHAPE(3, 3, 2), -1, 1);
    an_tensor *ends = case_leaf(c, AN_LEAF_INPUT, AN_I32, AN_SHAPE(3), 0, 7);
    return an_square_at(AT, an_grouped_matmul_at(AT, x, w, ends));
}
CASE(grouped_outer)
{
    an_tensor *a = PARAM(c, AN_SHAPE(7, 3), -1, 1), *b = PARAM(c, AN_SHAPE(7, 2), -1, 1);
    an_tensor *ends = case_leaf(c, AN_LEAF_INPUT, AN_I32, AN_SHAPE(3), 0, 7);
    return an_square_at(AT, an_grouped_outer_at(AT, a, b, ends));
}
CASE(attention_of_grouped_heads)
{
    an_tensor *q = PARAM(c, AN_SHAPE(1, 4, 3, 2), -1, 1), *k = PARAM(c, AN_SHAPE(1, 2, 5, 2), -1, 1);
    an_tensor *v = PARAM(c, AN_SHAPE(1, 2, 5, 2), -1, 1);
    return an_attention_at(AT, q, k, v, 0, true, 0, NULL);
}
static an_tensor *attend(graph_case *c, bool causal, double dropout)
{
    an_tensor *q = PARAM(c, AN_SHAPE(2, 2, 3, 4), -1, 1), *k = PARAM(c, AN_SHAPE(2, 2, 5, 4), -1, 1);
    return case_attention(q, k, PARAM(c, AN_SHAPE(2, 2, 5, 4), -1, 1), 0, causal, dropout, NULL);
}
CASE(attention)
{
    return attend(c, false, 0);
}
CASE(attention_causal)
{
    return attend(c, true, 0);
}
CASE(attention_dropout)
{
    return attend(c, true, 0.4);
}
/* By q, k, v and a mask of all axes, one of which is broadcast. */
CASE(attention_mask)
{
    an_tensor *q = PARAM(c, AN_SHAPE(2, 2, 3, 4), -1, 1), *k = PARAM(c, AN_SHAPE(2, 2, 5, 4), -1, 1);
    an_tensor *v = PARAM(c, AN_SHAPE(2, 2, 5, 4), -1, 1), *mask = PARAM(c, AN_SHAPE(2, 1, 3, 5), -1, 1);
    return case_attention(q, k, v, 0.7, true, 0, an_expand_at(AT, mask, AN_SHAPE(2, 2, 3, 5)));
}
/* The same with a window. */
CASE(attention_window)
{
    an_tensor *x[3], *mask = PARAM(c, AN_SHAPE(1, 2, 4, 6), -1, 1);
    for (int i = 0; i < 3; i++) x[i] = PARAM(c, AN_SHAPE(1, 2, i ? 6 : 4, 3), -1, 1);
    an_tensor *src[4];
    for (int i = 0; i < 4; i++) src[i] = an_use(x[0]->g, i < 3 ? x[i] : mask, AT, "case");
    an_emit_args e = {
        .op = AN_OP_ATTENTION, .n_src = 4, .src = src, .n_attr = 3, .attr = (int64_t[]){1, 0, 2}, .at = AT};
    e.imm[0] = 0.7;
    return an_emit(x[0]->g, &e);
}
CASE(conv2d)
{
    an_tensor *x = PARAM(c, AN_SHAPE(2, 6, 5, 4), -1, 1), *w = PARAM(c, AN_SHAPE(6, 3, 2, 2), -1, 1);
    an_window s = {.stride_h = 2, .pad_h = 1, .pad_w = 1, .dilation_w = 2, .groups = 2};
    return an_conv2d_at(AT, x, w, PARAM(c, AN_SHAPE(6), -1, 1), s);
}
CASE(conv_transpose2d)
{
    an_tensor *x = PARAM(c, AN_SHAPE(2, 3, 2, 4), -1, 1), *w = PARAM(c, AN_SHAPE(4, 3, 2, 3), -1, 1);
    an_window s = {.stride_h = 3, .pad_h = 1, .pad_w = 1, .dilation_w = 2, .groups = 2, .extra_h = 2};
    return an_conv_transpose2d_at(AT, x, w, PARAM(c, AN_SHAPE(6), -1, 1), s);
}
CASE(conv_transpose2d_depthwise)
{
    an_tensor *x = PARAM(c, AN_SHAPE(2, 3, 2, 4), -1, 1), *w = PARAM(c, AN_SHAPE(4, 2, 3, 1), -1, 1);
    return an_conv_transpose2d_at(AT, x, w, NULL, (an_window){.stride_w = 2, .pad_w = 1, .groups = 4});
}
CASE(max_pool)
{
    an_window s = {.kernel_h = 3, .kernel_w = 2, .stride_h = 2, .pad_h = 1};
    return an_max_pool_at(AT, PARAM(c, AN_SHAPE(2, 5, 4, 3), -1, 1), s);
}
CASE(avg_pool)
{
    an_window s = {.kernel_h = 3, .kernel_w = 2, .stride_w = 2, .pad_h = 1};
    return an_avg_pool_at(AT, PARAM(c, AN_SHAPE(2, 5, 4, 3), -1, 1), s);
}
CASE(cumsum)
{
    an_tensor *x = PARAM(c, AN_SHAPE(3, 4), -1, 1);
    return an_mul_at(AT, an_cumsum_at(AT, x, false), an_cumsum_at(AT, x, true));
}
CASE(sort)
{
    return an_sort_at(AT, PARAM(c, AN_SHAPE(3, 5), -1, 1), true, NULL);
}
CASE(topk)
{
    return an_square_at(AT, an_topk_at(AT, PARAM(c, AN_SHAPE(3, 5), -1, 1), 2, NULL));
}
/* B B^T + 3 I, without a diagonal op: expand and where. */
static an_tensor *definite(graph_case *c, int n)
{
    an_tensor *b = PARAM(c, AN_SHAPE(2, n, n), -1, 1);
    an_tensor *i = an_iota_at(AT, &c->cx, AN_SHAPE(n, n), 0), *j = an_iota_at(AT, &c->cx, AN_SHAPE(n, n), 1);
    an_tensor *eye =
        an_where_at(AT, an_eq_at(AT, i, j), an_const_at(AT, &c->cx, AN_F64, 3), an_const_at(AT, &c->cx, AN_F64, 0));
    return an_add_at(AT, an_matmul_at(AT, b, an_transpose_at(AT, b, 1, 2)), eye);
}
CASE(cholesky)
{
    return an_cholesky_at(AT, definite(c, 4));
}
CASE(qr)
{
    an_tensor *r, *q = an_qr_at(AT, PARAM(c, AN_SHAPE(2, 5, 3), -1, 1), &r);
    an_tensor *p[] = {q, r};
    return an_concat_at(AT, p, 2, 1);
}
CASE(qr_r_alone)
{
    an_tensor *r;
    an_qr_at(AT, PARAM(c, AN_SHAPE(4, 4), -1, 1), &r);
    return r;
}
CASE(eigh)
{ /* signs of vectors are free: their squares are not */
    an_tensor *v, *w = an_eigh_at(AT, definite(c, 4), &v);
    an_tensor *p[] = {an_mul_at(AT, v, v), an_reshape_at(AT, w, AN_SHAPE(2, 1, 4))};
    return an_concat_at(AT, p, 2, 1);
}
CASE(svd)
{
    an_tensor *s, *v, *u = an_svd_at(AT, PARAM(c, AN_SHAPE(2, 5, 3), -1, 1), &s, &v);
    an_tensor *p[] = {an_mul_at(AT, u, u), an_mul_at(AT, v, v), an_reshape_at(AT, s, AN_SHAPE(2, 1, 3))};
    return an_concat_at(AT, p, 3, 1);
}
CASE(svd_of_u_and_v)
{ /* u v^T does not depend on the signs */
    an_tensor *v, *u = an_svd_at(AT, PARAM(c, AN_SHAPE(4, 3), -1, 1), NULL, &v);
    return an_matmul_at(AT, u, an_transpose_at(AT, v, 0, 1));
}
CASE(solve)
{
    an_tensor *a = definite(c, 3);
    return an_solve_at(AT, a, PARAM(c, AN_SHAPE(2, 3, 2), -1, 1));
}
static an_tensor *triangle(graph_case *c, bool upper, bool transpose)
{
    an_tensor *t = PARAM(c, AN_SHAPE(2, 4, 4), 0.5, 1.5);
    return an_trisolve_at(AT, t, PARAM(c, AN_SHAPE(2, 4, 2), -1, 1), upper, transpose);
}
CASE(trisolve_lower)
{
    return triangle(c, false, false);
}
CASE(trisolve_lower_transposed)
{
    return triangle(c, false, true);
}
CASE(trisolve_upper)
{
    return triangle(c, true, false);
}
CASE(trisolve_upper_transposed)
{
    return triangle(c, true, true);
}
CASE(allreduce)
{
    an_tensor *x = PARAM(c, AN_SHAPE(3), -1, 1);
    return emit(c, AN_OP_ALLREDUCE, 1, &x);
}

/* ------------------------------------------------------------------------------------------------ composites */

CASE(softmax)
{
    return an_softmax_at(AT, PARAM(c, AN_SHAPE(3, 5, 2), -1, 1), 1);
}
CASE(log_softmax)
{
    return an_log_softmax_at(AT, PARAM(c, AN_SHAPE(3, 5), -1, 1), -1);
}
CASE(logsumexp)
{
    return an_logsumexp_at(AT, PARAM(c, AN_SHAPE(3, 5), -1, 1), 0, true);
}
CASE(layer_norm)
{
    an_tensor *x = PARAM(c, AN_SHAPE(2, 3, 6), -1, 1), *gain = PARAM(c, AN_SHAPE(6), 0.5, 2);
    return an_layer_norm_at(AT, x, gain, PARAM(c, AN_SHAPE(6), -1, 1), 1e-3);
}
CASE(rms_norm)
{
    an_tensor *x = PARAM(c, AN_SHAPE(4, 6), -1, 1);
    return an_rms_norm_at(AT, x, PARAM(c, AN_SHAPE(6), 0.5, 2), 1e-3);
}
CASE(rms_norm_axis)
{
    return an_rms_norm_axis_at(AT, PARAM(c, AN_SHAPE(2, 4, 3), -1, 1), -2, 1e-3);
}
static an_tensor *normalize_batch(graph_case *c, bool training)
{
    an_tensor *x = PARAM(c, AN_SHAPE(2, 4, 3), -1, 1), *gain = PARAM(c, AN_SHAPE(3), 0.5, 2),
              *bias = PARAM(c, AN_SHAPE(3), -1, 1);
    int32_t shape[1] = {3}; /* the running statistics are gain and bias again: no gradient of their own is wanted */
    an_tensor *mean = an_persistent(c->g, AN_LEAF_STATE, 2, AN_F64, 1, shape);
    an_tensor *var = an_persistent(c->g, AN_LEAF_STATE, 1, AN_F64, 1, shape);
    return an_batch_norm_at(AT, x, gain, bias, mean, var, 0.1, 1e-3, training);
}
CASE(batch_norm_training)
{
    return normalize_batch(c, true);
}
CASE(dropout)
{
    an_tensor *x = PARAM(c, AN_SHAPE(6, 5), -1, 1);
    return an_dropout_at(AT, an_mul_at(AT, x, x), 0.4);
}
static an_tensor *labels(graph_case *c, an_shape s, double high)
{
    return case_leaf(c, AN_LEAF_INPUT, AN_I32, s, -1, high); /* -1: ignored */
}
CASE(cross_entropy)
{
    an_tensor *x = PARAM(c, AN_SHAPE(3, 4, 5), -1, 1);
    return an_cross_entropy_at(AT, x, labels(c, AN_SHAPE(3, 4), 5));
}
CASE(linear_cross_entropy)
{
    an_tensor *x = PARAM(c, AN_SHAPE(7, 4), -1, 1), *w = PARAM(c, AN_SHAPE(5, 4), -1, 1);
    return an_linear_cross_entropy_at(AT, x, w, labels(c, AN_SHAPE(7), 5));
}
CASE(linear)
{
    an_tensor *x = PARAM(c, AN_SHAPE(2, 3, 4), -1, 1), *w = PARAM(c, AN_SHAPE(5, 4), -1, 1);
    return an_linear_at(AT, x, w, PARAM(c, AN_SHAPE(5), -1, 1));
}
CASE(activations)
{
    an_tensor *x = PARAM(c, AN_SHAPE(9), -2, 2);
    an_tensor *p[] = {an_relu_at(AT, x), an_gelu_at(AT, x),     an_gelu_tanh_at(AT, x),
                      an_silu_at(AT, x), an_softplus_at(AT, x), an_square_at(AT, x)};
    return an_concat_at(AT, p, 6, 0);
}
CASE(activations_in_bfloat16)
{
    an_tensor *x = an_cast_at(AT, PARAM(c, AN_SHAPE(9), -2, 2), AN_BF16);
    return an_layer_norm_at(AT, an_gelu_at(AT, x), NULL, NULL, 1e-5);
}
CASE(a_weight_used_three_times)
{
    an_tensor *x = PARAM(c, AN_SHAPE(3, 3), -1, 1);
    an_tensor *y = an_matmul_at(AT, an_tanh_at(AT, an_matmul_at(AT, x, x)), x);
    return an_add_at(AT, y, an_detach_at(AT, y));
}

#define ROW(name)                                                                                                      \
    {                                                                                                                  \
#name, name                                                                                                    \
    }
static const struct {
    const char *name;
    build_fn build;
} cases[] = {
    ROW(reshape),
    ROW(permute),
    ROW(expand),
    ROW(expand_over_many_rows),
    ROW(slices_that_tile),
    ROW(slices_that_overlap),
    ROW(slice_steps),
    ROW(pad_flip),
    ROW(cast),
    ROW(sum_of_separate_axes),
    ROW(sum_of_very_many),
    ROW(max_over_many_rows),
    ROW(min_over_rows),
    ROW(variance),
    ROW(matmul),
    ROW(matmul_batches),
    ROW(matmul_of_transposes),
    ROW(gather),
    ROW(scatter_add),
    ROW(grouped_matmul),
    ROW(grouped_outer),
    ROW(attention_of_grouped_heads),
    ROW(attention),
    ROW(attention_causal),
    ROW(attention_dropout),
    ROW(attention_mask),
    ROW(attention_window),
    ROW(conv2d),
    ROW(conv_transpose2d),
    ROW(conv_transpose2d_depthwise),
    ROW(max_pool),
    ROW(avg_pool),
    ROW(cumsum),
    ROW(sort),
    ROW(topk),
    ROW(cholesky),
    ROW(qr),
    ROW(qr_r_alone),
    ROW(eigh),
    ROW(svd),
    ROW(svd_of_u_and_v),
    ROW(solve),
    ROW(trisolve_lower),
    ROW(trisolve_lower_transposed),
    ROW(trisolve_upper),
    ROW(trisolve_upper_transposed),
    ROW(allreduce),
    ROW(softmax),
    ROW(log_softmax),
    ROW(logsumexp),
    ROW(layer_norm),
    ROW(rms_norm),
    ROW(rms_norm_axis),
    ROW(batch_norm_training),
    ROW(dropout),
    ROW(cross_entropy),
    ROW(linear_cross_entropy),
    ROW(linear),
    ROW(activations),
    ROW(activations_in_bfloat16),
};

static void gradients_of_all_other_ops_and_composites_are_the_derivatives(void **state)
{
    (void)state;
    for (size_t i = 0; i < AN_COUNT(cases); i++) check_case(cases[i].name, cases[i].build);
}

static void every_op_with_a_gradient_has_been_checked(void **state)
{
    (void)state;
    for (int op = 0; op < AN_N_OPS; op++)
        if (an_ops[op].has_grad && !seen[op]) fail_msg("%s has a gradient and no case in this file", an_ops[op].name);
}

/* ------------------------------------------------------------------------------------------------ declared none */

/* Emits `op` on float parameters of a shape it takes; NULL: it has no sources, or none that are floats. */
static an_tensor *declared_none(graph_case *c, an_op op)
{
    an_tensor *src[6];
    int64_t attr[7] = {1, 1, 0, 0, 1, 1, 1}, pool[8] = {1, 1, 1, 1, 0, 0, 1, 1}, attention[2] = {0, 0}, ranks[1] = {1};
    int32_t shape[4] = {1, 2, 3, 2};
    int n = an_ops[op].arity;
    an_emit_args e = {.op = op, .n_src = n, .src = src, .at = AT};
    bool conv = op == AN_OP_CONV2D_DX || op == AN_OP_CONV2D_DW || op == AN_OP_CONV2D_DW_IMAGES;
    e.attr = conv ? attr : op == AN_OP_ATTENTION_GRAD ? attention : an_ops[op].cls == AN_CLS_COLLECTIVE ? ranks : pool;
    e.n_attr = conv                                  ? 7
               : an_ops[op].cls == AN_CLS_WINDOW     ? 8
               : op == AN_OP_ATTENTION_GRAD          ? 2
               : op == AN_OP_DRAW                    ? 4
               : an_ops[op].cls == AN_CLS_COLLECTIVE ? 1
                                                     : 0;
    e.shape = shape;
    e.rank = an_ops[op].cls == AN_CLS_WINDOW ? 4 : 0;
    if (an_ops[op].cls == AN_CLS_EFFECT || n < 1) return NULL;
    if (an_ops[op].cls == AN_CLS_ELEM && an_ops[op].domain != AN_DOM_FLOAT && an_ops[op].domain != AN_DOM_NUMBER &&
        an_ops[op].domain != AN_DOM_ANY)
        return NULL;
    for (int i = 0; i < n; i++) {
        an_shape s = an_ops[op].cls == AN_CLS_REDUCE ? AN_SHAPE(2, 3, 2) : AN_SHAPE(1, 2, 3, 2);
        if (op == AN_OP_REDUCESCATTER) s = AN_SHAPE(12);
        if (op == AN_OP_CONV2D_DX && i == 1) s = AN_SHAPE(1, 1, 1, 2, 2);
        if (op == AN_OP_CONV2D_DW || op == AN_OP_CONV2D_DW_IMAGES) s = AN_SHAPE(1, 2, 3, 2);
        if (op == AN_OP_ATTENTION_GRAD && i == 4) s = AN_SHAPE(1, 2, 3);
        an_tensor *of = PARAM(c, s, 0.1, 2);
        if (op == AN_OP_DRAW && i == 0) of = an_cast_at(AT, of, AN_F32);
        if (op == AN_OP_DRAW && i == 1) of = case_leaf(c, AN_LEAF_INPUT, AN_I32, AN_SHAPE(2), 0, 1);
        if (op == AN_OP_PUT_ROWS && i == 1) of = case_leaf(c, AN_LEAF_INPUT, AN_I32, AN_SHAPE(1), 0, 1);
        src[i] = an_use(c->g, of, AT, "test");
    }
    return an_emit(c->g, &e);
}

static void ops_declared_without_a_gradient_pass_none(void **state)
{
    (void)state;
    int checked = 0;
    for (int op = 0; op < AN_N_OPS; op++) {
        if (an_ops[op].has_grad) continue;
        graph_case c;
        case_open(&c);
        an_tensor *y = declared_none(&c, (an_op)op);
        if (y != NULL) {
            int parameters = c.n;
            an_tensor *loss = case_loss(&c, y);
            if (an_graph_backward(c.g, loss) != AN_OK) fail_msg("%s: %s", an_ops[op].name, c.cx.err.text);
            for (int i = 0; i < parameters; i++)
                if (an_graph_grad(c.g, c.leaf[i]) != NULL) fail_msg("%s passes a gradient", an_ops[op].name);
            checked++;
        }
        case_close(&c);
    }
    assert_true(checked >= 15);
}

/* ------------------------------------------------------------------------------------------------ shape of the
 * backward pass */

static int count(const an_graph *g, int from, an_op op)
{
    int n = 0;
    for (int i = from; i < g->n; i++) n += g->node[i]->op == op;
    return n;
}

static void a_detached_use_adds_nothing(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *y = a_weight_used_three_times(&c); /* y + detach(y): the value doubles, the gradient does not */
    an_tensor *loss = case_loss(&c, y);
    assert_int_equal(an_graph_backward(c.g, loss), AN_OK);
    double *got = case_eval(&c, an_graph_grad(c.g, c.leaf[0]));
    graph_case d;
    case_open(&d);
    an_tensor *x = PARAM(&d, AN_SHAPE(3, 3), -1, 1);
    an_tensor *z = an_matmul_at(AT, an_tanh_at(AT, an_matmul_at(AT, x, x)), x);
    assert_int_equal(an_graph_backward(d.g, case_loss(&d, z)), AN_OK);
    double *want = case_eval(&d, an_graph_grad(d.g, d.leaf[0]));
    for (int i = 0; i < 9; i++) assert_true(got[i] == want[i]);
    free(got);
    free(want);
    case_close(&c);
    case_close(&d);
}

static void the_parts_of_a_split_tensor_come_back_as_one_concat(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *loss = case_loss(&c, slices_that_tile(&c));
    int from = c.g->n;
    assert_int_equal(an_graph_backward(c.g, loss), AN_OK);
    assert_int_equal(count(c.g, from, AN_OP_PAD), 0);
    assert_int_equal(count(c.g, from, AN_OP_CONCAT), 1);
    assert_int_equal(an_graph_grad(c.g, c.leaf[0])->op, AN_OP_CONCAT);
    case_close(&c);
}

static void layer_norm_backward_is_two_row_sums_and_few_elementwise_nodes(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = case_leaf(&c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(64, 384), -1, 1);
    an_tensor *y = an_layer_norm_at(AT, x, NULL, NULL, 1e-5);
    an_tensor *loss =
        an_sum_at(AT, an_mul_at(AT, y, case_leaf(&c, AN_LEAF_INPUT, AN_F32, AN_SHAPE(64, 384), -1, 1)), AN_ALL, false);
    int from = c.g->n, elementwise = 0;
    assert_int_equal(an_graph_backward(c.g, loss), AN_OK);
    assert_int_equal(count(c.g, from, AN_OP_SUM), 2);
    for (int i = from; i < c.g->n; i++)
        elementwise += an_ops[c.g->node[i]->op].cls == AN_CLS_ELEM && c.g->node[i]->numel == 64 * 384;
    assert_true(elementwise <= 8); /* 5 of the norm, 2 of the product with the weights */
    case_close(&c);
}

static void cross_entropy_backward_has_one_exp_and_no_reduction(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *logits = case_leaf(&c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(6, 50), -1, 1);
    an_tensor *loss = an_sum_at(AT, an_cross_entropy_at(AT, logits, labels(&c, AN_SHAPE(6), 50)), AN_ALL, false);
    int from = c.g->n;
    assert_int_equal(an_graph_backward(c.g, loss), AN_OK);
    assert_int_equal(count(c.g, from, AN_OP_EXP), 1);
    assert_int_equal(count(c.g, from, AN_OP_SUM) + count(c.g, from, AN_OP_MAX), 0);
    case_close(&c);
}

static void the_weight_gradient_of_a_linear_layer_needs_no_transpose(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *loss = case_loss(&c, linear(&c));
    assert_int_equal(an_graph_backward(c.g, loss), AN_OK);
    assert_int_equal(an_graph_grad(c.g, c.leaf[1])->op, AN_OP_MATMUL);
    case_close(&c);
}

static void a_tensor_the_loss_does_not_depend_on_has_no_gradient(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = PARAM(&c, AN_SHAPE(3), -1, 1), *y = PARAM(&c, AN_SHAPE(3), -1, 1);
    an_tensor *unused = an_exp_at(AT, y);
    assert_int_equal(an_graph_backward(c.g, an_sum_at(AT, x, AN_ALL, false)), AN_OK);
    assert_non_null(an_graph_grad(c.g, x));
    assert_null(an_graph_grad(c.g, y));
    assert_null(an_graph_grad(c.g, unused));
    case_close(&c);
}

static void a_loss_that_is_not_one_number_is_refused_with_its_shape(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = an_exp_at("model.c:3", PARAM(&c, AN_SHAPE(3), -1, 1));
    assert_int_equal(an_graph_backward(c.g, x), AN_E_SHAPE);
    assert_string_equal(c.cx.err.text,
                        "model.c:3: an_backward: the loss is float64 [3]; one floating number is needed");
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise_gradients_are_the_derivatives),
        cmocka_unit_test(gradients_of_all_other_ops_and_composites_are_the_derivatives),
        cmocka_unit_test(every_op_with_a_gradient_has_been_checked),
        cmocka_unit_test(ops_declared_without_a_gradient_pass_none),
        cmocka_unit_test(a_detached_use_adds_nothing),
        cmocka_unit_test(the_parts_of_a_split_tensor_come_back_as_one_concat),
        cmocka_unit_test(layer_norm_backward_is_two_row_sums_and_few_elementwise_nodes),
        cmocka_unit_test(cross_entropy_backward_has_one_exp_and_no_reduction),
        cmocka_unit_test(the_weight_gradient_of_a_linear_layer_needs_no_transpose),
        cmocka_unit_test(a_tensor_the_loss_does_not_depend_on_has_no_gradient),
        cmocka_unit_test(a_loss_that_is_not_one_number_is_refused_with_its_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
