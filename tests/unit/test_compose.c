/* test_compose.c: composites against formulas written here with libm; how sums are split; where precision is widened;
 * the policy's casts. */
#include "graph_case.h"

static int count(const an_graph *g, an_op op)
{
    int n = 0;
    for (int i = 0; i < g->n; i++) n += g->node[i]->op == op;
    return n;
}

static void expect_values(graph_case *c, an_tensor *t, const double *want, double tolerance)
{
    double *got = case_eval(c, t);
    test_close_f64("values", got, want, (size_t)t->numel, tolerance, tolerance);
    free(got);
}

/* ------------------------------------------------------------------------------------------------ values */

static void activations_are_their_formulas(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = case_leaf(&c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(40), -6, 6);
    double relu[40], gelu[40], fast[40], silu[40], plus[40], square[40];
    for (int i = 0; i < 40; i++) {
        double v = c.data[0][i];
        relu[i] = v > 0 ? v : 0;
        gelu[i] = 0.5 * v * (1 + erf(v / sqrt(2)));
        fast[i] = 0.5 * v * (1 + tanh(sqrt(2 / acos(-1)) * (v + 0.044715 * v * v * v)));
        silu[i] = v / (1 + exp(-v));
        plus[i] = log(1 + exp(v));
        square[i] = v * v;
    }
    const double near = 1e-6; /* constants are f32 */
    expect_values(&c, an_relu_at(AT, x), relu, 0);
    expect_values(&c, an_gelu_at(AT, x), gelu, near);
    expect_values(&c, an_gelu_tanh_at(AT, x), fast, near);
    expect_values(&c, an_silu_at(AT, x), silu, near);
    expect_values(&c, an_softplus_at(AT, x), plus, near);
    expect_values(&c, an_square_at(AT, x), square, 0);
    case_close(&c);
}

static void softplus_and_softmax_survive_large_numbers(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = case_leaf(&c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(3), 0, 1);
    memcpy(c.data[0], (double[]){1000, -1000, 999}, 3 * sizeof(double));
    double e = exp(-1.0);
    expect_values(&c, an_softplus_at(AT, x), (double[]){1000, 0, 999}, 1e-9);
    expect_values(&c, an_softmax_at(AT, x, 0), (double[]){1 / (1 + e), 0, e / (1 + e)}, 1e-12);
    expect_values(&c, an_logsumexp_at(AT, x, 0, false), (double[]){1000 + log(1 + e)}, 1e-12);
    case_close(&c);
}

static void row_composites_work_along_any_axis(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = case_leaf(&c, AN_LEAF_PARAM, AN_F64, AN_SHAPE(3, 5, 2), -2, 2);
    double soft[30], logs[30], lse[6], mean[6], var[6];
    for (int row = 0; row < 6; row++) {
        double *v = &c.data[0][row / 2 * 10 + row % 2], sum = 0, total = 0, squares = 0;
        for (int k = 0; k < 5; k++) sum += exp(v[2 * k]), total += v[2 * k];
        lse[row] = log(sum);
        mean[row] = total / 5;
        for (int k = 0; k < 5; k++) {
            int at = row / 2 * 10 + 2 * k + row % 2;
            soft[at] = exp(v[2 * k]) / sum;
            logs[at] = v[2 * k] - lse[row];
            squares += (v[2 * k] - mean[row]) * (v[2 * k] - mean[row]);
        }
        var[row] = squares / 5;
    }
    expect_values(&c, an_softmax_at(AT, x, 1), soft, 1e-14);
    expect_values(&c, an_log_softmax_at(AT, x, -2), logs, 1e-14);
    expect_values(&c, an_logsumexp_at(AT, x, 1, true), lse, 1e-14);
    expect_values(&c, an_mean_at(AT, x, AN_AXIS(1), false), mean, 1e-14);
    expect_values(&c, an_var_at(AT, x, AN_AXIS(1), false), var, 1e-14);
    case_close(&c);
}

static void norms_are_their_formulas(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = case_leaf(&c, AN_LEAF_PARAM, AN_F64, AN_SHAPE(4, 6), -2, 2);
    an_tensor *gain = case_leaf(&c, AN_LEAF_PARAM, AN_F64, AN_SHAPE(6), 0, 2),
              *bias = case_leaf(&c, AN_LEAF_PARAM, AN_F64, AN_SHAPE(6), 0, 2);
    double layer[24], rms[24], columns[24], batch[24];
    for (int i = 0; i < 24; i++) {
        double *row = &c.data[0][i / 6 * 6], *column = &c.data[0][i % 6], v = c.data[0][i];
        double mean = 0, squares = 0, var = 0, cmean = 0, cvar = 0, csquares = 0;
        for (int k = 0; k < 6; k++) mean += row[k] / 6, squares += row[k] * row[k] / 6;
        for (int k = 0; k < 6; k++) var += (row[k] - mean) * (row[k] - mean) / 6;
        for (int k = 0; k < 4; k++) cmean += column[6 * k] / 4, csquares += column[6 * k] * column[6 * k] / 4;
        for (int k = 0; k < 4; k++) cvar += (column[6 * k] - cmean) * (column[6 * k] - cmean) / 4;
        layer[i] = (v - mean) / sqrt(var + 0.01) * c.data[1][i % 6] + c.data[2][i % 6];
        rms[i] = v / sqrt(squares + 0.01) * c.data[1][i % 6];
        columns[i] = v / sqrt(csquares + 0.01);
        batch[i] = (v - cmean) / sqrt(cvar + 0.01);
    }
    expect_values(&c, an_layer_norm_at(AT, x, gain, bias, 0.01), layer, 1e-13);
    expect_values(&c, an_rms_norm_at(AT, x, gain, 0.01), rms, 1e-13);
    expect_values(&c, an_rms_norm_axis_at(AT, x, 0, 0.01), columns, 1e-13);
    expect_values(&c, an_batch_norm_at(AT, x, NULL, NULL, gain, bias, 0.1, 0.01, true), batch, 1e-13);
    case_close(&c);
}

static void batch_norm_moves_the_running_statistics_as_an_effect(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = case_leaf(&c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(4, 1), 0, 1);
    an_tensor *mean = case_leaf(&c, AN_LEAF_STATE, AN_F32, AN_SHAPE(1), 0, 1),
              *var = case_leaf(&c, AN_LEAF_STATE, AN_F32, AN_SHAPE(1), 0, 1);
    memcpy(c.data[0], (double[]){1, 2, 3, 6}, 4 * sizeof(double)); /* mean 3, unbiased variance 14/3 */
    c.data[1][0] = 1, c.data[2][0] = 2;
    an_batch_norm_at(AT, x, NULL, NULL, mean, var, 0.25, 1e-5, true);
    assert_int_equal(count(c.g, AN_OP_ASSIGN), 2);
    double want[2] = {1.5, 0.75 * 2 + 0.25 * 14 / 3};
    for (int i = 0, k = 0; i < c.g->n; i++)
        if (c.g->node[i]->op == AN_OP_ASSIGN) expect_values(&c, c.g->node[i], &want[k++], 1e-6);
    int before = c.g->n;
    an_tensor *y = an_batch_norm_at(AT, x, NULL, NULL, mean, var, 0.25, 1e-5, false);
    expect_values(&c, y, (double[]){0, 1 / sqrt(2 + 1e-5), 2 / sqrt(2 + 1e-5), 5 / sqrt(2 + 1e-5)}, 1e-6);
    for (int i = before; i < c.g->n; i++) assert_int_not_equal(c.g->node[i]->op, AN_OP_ASSIGN);
    case_close(&c);
}

static void cross_entropy_ignores_negative_labels(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = case_leaf(&c, AN_LEAF_PARAM, AN_F64, AN_SHAPE(3, 4), -2, 2),
              *y = case_leaf(&c, AN_LEAF_INPUT, AN_I32, AN_SHAPE(3), 0, 1);
    memcpy(c.data[1], (double[]){2, -100, 0}, 3 * sizeof(double));
    double want[3] = {0};
    for (int row = 0; row < 3; row += 2) {
        double sum = 0;
        for (int k = 0; k < 4; k++) sum += exp(c.data[0][4 * row + k]);
        want[row] = log(sum) - c.data[0][4 * row + (row == 0 ? 2 : 0)];
    }
    an_tensor *loss = an_cross_entropy_at(AT, x, y);
    expect_values(&c, loss, want, 1e-14);
    assert_int_equal(an_graph_backward(c.g, an_sum_at(AT, loss, AN_ALL, false)), AN_OK);
    double *grad = case_eval(&c, an_graph_grad(c.g, x));
    for (int k = 0; k < 4; k++) assert_true(grad[4 + k] == 0);
    free(grad);
    case_close(&c);
}

static void dropout_keeps_and_scales_by_the_counter(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = an_full_at(AT, &c.cx, AN_F32, AN_SHAPE(100, 100), 3);
    an_tensor *y = an_dropout_at(AT, x, 0.25);
    double *one = case_eval(&c, y), *again = case_eval(&c, y);
    int kept = 0;
    for (int i = 0; i < 10000; i++) {
        assert_true(one[i] == again[i]);
        assert_true(one[i] == 0 || fabs(one[i] - 4) < 1e-6);
        kept += one[i] != 0;
    }
    assert_true(abs(kept - 7500) < 200); /* 4.6 standard deviations */
    c.ref.first_sample = 10;             /* the second micro-batch draws what rows 10... of the whole batch have */
    double *later = case_eval(&c, y);
    for (int i = 0; i < 9000; i++) assert_true(later[i] == one[i + 1000]);
    free(one), free(again), free(later);
    case_close(&c);
}

/* ------------------------------------------------------------------------------------------------ splits */

static void a_sum_over_everything_is_split_in_the_graph(void **state)
{
    (void)state;
    static const struct {
        int n, sums;
    } rows[] = {{8192, 1}, {8193, 2}, {4096 * 8192, 2}, {4096 * 8192 + 1, 3}};
    for (size_t i = 0; i < AN_COUNT(rows); i++) {
        graph_case c;
        case_open(&c);
        int32_t shape[1] = {rows[i].n};
        an_sum_at(AT, an_persistent(c.g, AN_LEAF_PARAM, 0, AN_F32, 1, shape), AN_ALL, false);
        assert_int_equal(count(c.g, AN_OP_SUM), rows[i].sums);
        for (int k = 0; k < c.g->n; k++) /* chunks of 4096; the last of at most 8192 */
            if (c.g->node[k]->op == AN_OP_SUM) assert_true(c.g->node[c.g->node[k]->src[0]]->shape[1] <= 8192);
        case_close(&c);
    }
}

static void column_sums_are_split_from_256_rows_on(void **state)
{
    (void)state;
    static const struct {
        int rows, sums, pads;
    } cases[] = {{255, 1, 0}, {256, 2, 0}, {300, 2, 1}, {100000, 2, 1}};
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        graph_case c;
        case_open(&c);
        int32_t shape[2] = {cases[i].rows, 7};
        an_sum_at(AT, an_persistent(c.g, AN_LEAF_PARAM, 0, AN_F32, 2, shape), AN_AXIS(0), false);
        assert_int_equal(count(c.g, AN_OP_SUM), cases[i].sums);
        assert_int_equal(count(c.g, AN_OP_PAD), cases[i].pads);
        case_close(&c);
    }
}

static void rows_are_never_split(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    int32_t shape[2] = {2, 60000};
    an_tensor *x = an_persistent(c.g, AN_LEAF_PARAM, 0, AN_F32, 2, shape);
    an_softmax_at(AT, x, 1);
    an_argmax_at(AT, an_reshape_at(AT, x, AN_SHAPE(-1)), 0, false);
    assert_int_equal(count(c.g, AN_OP_SUM), 1);
    assert_int_equal(count(c.g, AN_OP_MAX), 1);
    assert_int_equal(count(c.g, AN_OP_ARGMAX), 1);
    case_close(&c);
}

static void split_reductions_have_the_whole_value(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = case_leaf(&c, AN_LEAF_PARAM, AN_F64, AN_SHAPE(9001), -3, -1),
              *y = case_leaf(&c, AN_LEAF_PARAM, AN_F64, AN_SHAPE(2, 300, 3), -3, -1);
    double sum = 0, max = -INFINITY, column = 0, top = -INFINITY, low = INFINITY;
    for (int i = 0; i < 9001; i++) sum += c.data[0][i], max = fmax(max, c.data[0][i]);
    for (int i = 0; i < 300; i++) {
        double v = c.data[1][900 + 3 * i + 2];
        column += v, top = fmax(top, v), low = fmin(low, v);
    }
    assert_true(fabs(case_item(&c, an_sum_at(AT, x, AN_ALL, false)) - sum) < 1e-8);
    assert_true(case_item(&c, an_max_at(AT, x, AN_ALL, false)) == max);
    double *columns = case_eval(&c, an_sum_at(AT, y, AN_AXIS(1), false)),
           *tops = case_eval(&c, an_max_at(AT, y, AN_AXIS(1), false));
    double *lows = case_eval(&c, an_min_at(AT, y, AN_AXIS(1), false));
    assert_true(fabs(columns[5] - column) < 1e-9 && tops[5] == top && lows[5] == low);
    free(columns), free(tops), free(lows);
    case_close(&c);
}

static void the_least_integer_is_found(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = case_leaf(&c, AN_LEAF_PARAM, AN_I32, AN_SHAPE(3), 0, 1),
              *u = case_leaf(&c, AN_LEAF_PARAM, AN_U8, AN_SHAPE(3), 0, 1);
    memcpy(c.data[0], (double[]){5, INT32_MIN, 7}, 3 * sizeof(double)); /* its negative is not an int32 */
    memcpy(c.data[1], (double[]){200, 9, 255}, 3 * sizeof(double));
    assert_true(case_item(&c, an_min_at(AT, x, AN_ALL, false)) == INT32_MIN);
    assert_true(case_item(&c, an_min_at(AT, u, AN_ALL, false)) == 9);
    case_close(&c);
}

/* ------------------------------------------------------------------------------------------------ precision */

static void composites_of_bfloat16_compute_in_float32_and_round_once(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = case_leaf(&c, AN_LEAF_PARAM, AN_BF16, AN_SHAPE(4, 8), -1, 1),
              *b = case_leaf(&c, AN_LEAF_PARAM, AN_BF16, AN_SHAPE(8), -1, 1);
    an_tensor *y[] = {an_gelu_at(AT, x),
                      an_silu_at(AT, x),
                      an_softmax_at(AT, x, 1),
                      an_layer_norm_at(AT, x, b, b, 1e-5),
                      an_rms_norm_at(AT, x, b, 1e-5),
                      an_mean_at(AT, x, AN_ALL, false),
                      an_dropout_at(AT, x, 0.1),
                      an_logsumexp_at(AT, x, 1, false),
                      an_var_at(AT, x, AN_AXIS(0), false)};
    for (size_t i = 0; i < AN_COUNT(y); i++) assert_int_equal(y[i]->dtype, AN_BF16);
    for (int i = 0; i < c.g->n; i++) {
        const an_tensor *n = c.g->node[i];
        bool carries = an_ops[n->op].cls == AN_CLS_MOVE || n->op == AN_OP_LEAF || n->op == AN_OP_CAST;
        if (n->dtype == AN_BF16 && !carries) fail_msg("%s computes in bfloat16", an_ops[n->op].name);
    }
    assert_int_equal(an_cross_entropy_at(AT, x, case_leaf(&c, AN_LEAF_INPUT, AN_I32, AN_SHAPE(4), 0, 8))->dtype,
                     AN_F32);
    case_close(&c);
}

static void the_policy_casts_products_and_nothing_else(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = case_leaf(&c, AN_LEAF_INPUT, AN_F32, AN_SHAPE(2, 3, 4), -1, 1),
              *w = case_leaf(&c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(5, 4), -1, 1);
    an_tensor *q = case_leaf(&c, AN_LEAF_INPUT, AN_F32, AN_SHAPE(1, 2, 3, 4), -1, 1),
              *y = case_leaf(&c, AN_LEAF_INPUT, AN_I32, AN_SHAPE(2, 3), 0, 5);
    an_tensor *h = case_leaf(&c, AN_LEAF_INPUT, AN_BF16, AN_SHAPE(3, 4), -1, 1),
              *d = case_leaf(&c, AN_LEAF_INPUT, AN_F64, AN_SHAPE(5, 4), -1, 1);
    assert_int_equal(an_linear_at(AT, x, w, NULL)->dtype, AN_F32);
    assert_int_equal(count(c.g, AN_OP_CAST), 0);
    assert_int_equal(an_linear_at(AT, h, an_cast_at(AT, w, AN_BF16), NULL)->dtype, AN_BF16); /* equal dtypes stay */
    assert_int_equal(an_linear_at(AT, h, w, NULL)->dtype, AN_F32);
    c.g->matmul_dtype = AN_BF16;
    assert_int_equal(an_linear_at(AT, x, w, NULL)->dtype, AN_BF16);
    assert_int_equal(an_attention_at(AT, q, q, q, 0, true, 0, NULL)->dtype, AN_BF16);
    assert_int_equal(an_linear_cross_entropy_at(AT, x, w, y)->dtype, AN_F32);
    assert_int_equal(an_linear_at(AT, d, d, NULL)->dtype, AN_F64);
    assert_int_equal(an_matmul_at(AT, x, an_transpose_at(AT, w, 0, 1))->dtype, AN_F32); /* says its dtype itself */
    assert_int_equal(an_layer_norm_at(AT, x, NULL, NULL, 1e-5)->dtype, AN_F32);
    case_close(&c);
}

static void a_product_without_batch_on_the_right_is_one_matrix_product(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = case_leaf(&c, AN_LEAF_INPUT, AN_F32, AN_SHAPE(2, 3, 4), -1, 1),
              *w = case_leaf(&c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(1, 4, 5), -1, 1);
    an_tensor *y = an_matmul_at(AT, x, w);
    assert_int_equal(y->rank, 3);
    assert_int_equal(c.g->node[y->src[0]]->rank, 2);
    assert_int_equal(count(c.g, AN_OP_EXPAND), 0);
    case_close(&c);
}

static void a_gradient_of_attention_from_its_result_and_sums_is_that_of_the_whole(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) { /* causal or not; a scale that is negative or not */
        const bool causal = way % 2;
        const double scale = way < 2 ? 0.3 : -0.3;
        graph_case c;
        case_open(&c);
        an_tensor *x[4]; /* q k v dy */
        for (int i = 0; i < 4; i++) x[i] = case_leaf(&c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(1, 2, 5, 4), -1, 1);
        an_tensor *lse, *d[3], *o = an_attention_lse_at(AT, x[0], x[1], x[2], scale, causal, &lse);
        d[0] = an_attention_grad_at(AT, x[0], x[1], x[2], o, lse, x[3], scale, causal, &d[1], &d[2]);
        an_tensor *y = an_attention_at(AT, x[0], x[1], x[2], scale, causal, 0, NULL);
        an_tensor *scores = an_mul_num_at(AT, an_matmul_at(AT, x[0], an_transpose_at(AT, x[1], 2, 3)), scale);
        an_tensor *p = an_softmax_at(AT, scores, 3);
        if (!causal) {
            double *formula = case_eval(&c, an_matmul_at(AT, p, x[2]));
            expect_values(&c, y, formula, 1e-6);
            free(formula);
        }
        assert_int_equal(an_graph_backward(c.g, an_sum_at(AT, an_mul_at(AT, y, x[3]), AN_ALL, false)), AN_OK);
        for (int i = 0; i < c.g->n; i++) /* kernels have no other scale */
            assert_false((c.g->node[i]->op == AN_OP_ATTENTION || c.g->node[i]->op == AN_OP_ATTENTION_GRAD) &&
                         c.g->node[i]->imm[0] < 0);
        for (int i = 0; i < 3; i++) {
            double *want = case_eval(&c, an_graph_grad(c.g, x[i]));
            expect_values(&c, d[i], want, 0);
            free(want);
        }
        case_close(&c);
    }
}

static void attention_with_a_count_of_keys_sees_only_those(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *q = PARAM(&c, AN_SHAPE(1, 2, 2, 4), -1, 1), *k = PARAM(&c, AN_SHAPE(1, 2, 6, 4), -1, 1),
              *v = PARAM(&c, AN_SHAPE(1, 2, 6, 4), -1, 1);
    an_tensor *n = case_leaf(&c, AN_LEAF_SCALAR, AN_I32, AN_SCALAR, 5, 6);
    an_tensor *part =
        an_attention_at(AT, q, an_slice_at(AT, k, 2, 0, 5, 1), an_slice_at(AT, v, 2, 0, 5, 1), 0, true, 0, NULL);
    double *want = case_eval(&c, part);
    expect_values(&c, an_attention_at(AT, q, k, v, 0, true, 0, n), want, 0);
    free(want);
    case_close(&c);
}

/* Which form attention under a mask takes, and that both are the formula written out. */
static void a_mask_is_an_operand_of_attention_unless_it_wants_a_gradient(void **state)
{
    (void)state;
    enum { BOOLEAN, INPUT, CONSTANT, LEARNED, DROPPED, DETACHED, ZERO, WAYS };
    for (int way = 0; way < WAYS; way++) {
        graph_case c;
        case_open(&c);
        an_tensor *x[3];
        for (int i = 0; i < 3; i++) x[i] = case_leaf(&c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(2, 2, 5, 4), -1, 1);
        an_tensor *mask = case_leaf(&c, way == LEARNED || way == DETACHED ? AN_LEAF_PARAM : AN_LEAF_INPUT, AN_F32,
                                    AN_SHAPE(2, 1, 5), -1, 1);
        an_attention_options o = {.scale = 0.4, .mask = mask, .dropout = way == DROPPED ? 0.5 : 0};
        if (way == BOOLEAN) o.mask = an_lt_at(AT, mask, an_const_at(AT, &c.cx, AN_F32, 0.5));
        if (way == CONSTANT) o.mask = an_cast_at(AT, an_iota_at(AT, &c.cx, AN_SHAPE(5, 5), 0), AN_F16);
        if (way == DETACHED) o.mask = an_detach_at(AT, mask);
        if (way == ZERO) o.mask = an_full_at(AT, &c.cx, AN_F32, AN_SHAPE(5, 5), 0);
        an_tensor *y = an_attention_with_at(AT, x[0], x[1], x[2], o);
        assert_int_equal(y->op == AN_OP_ATTENTION, way != LEARNED && way != DROPPED);
        assert_int_equal(y->n_src, way == ZERO ? 3 : way == LEARNED || way == DROPPED ? 2 : 4);
        if (way != DROPPED) {
            an_tensor *scores = an_mul_num_at(AT, an_matmul_at(AT, x[0], an_transpose_at(AT, x[1], 2, 3)), 0.4);
            an_tensor *add = way == BOOLEAN ? an_where_at(AT, o.mask, an_const_at(AT, &c.cx, AN_F32, 0),
                                                          an_const_at(AT, &c.cx, AN_F32, -INFINITY))
                                            : an_cast_at(AT, o.mask, AN_F32);
            if (add->rank == 3) add = an_reshape_at(AT, add, AN_SHAPE(2, 1, 1, 5)), y = NULL;
            scores = an_add_at(AT, scores, add);
            double *want = case_eval(&c, an_matmul_at(AT, an_softmax_at(AT, scores, 3), x[2]));
            if (!y) { /* [2,1,5] would be of heads; of sequences it has four axes */
                o.mask = an_reshape_at(AT, o.mask, AN_SHAPE(2, 1, 1, 5));
                y = an_attention_with_at(AT, x[0], x[1], x[2], o);
            }
            expect_values(&c, y, want, 1e-6);
            free(want);
        }
        case_close(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_are_their_formulas),
        cmocka_unit_test(softplus_and_softmax_survive_large_numbers),
        cmocka_unit_test(row_composites_work_along_any_axis),
        cmocka_unit_test(norms_are_their_formulas),
        cmocka_unit_test(batch_norm_moves_the_running_statistics_as_an_effect),
        cmocka_unit_test(cross_entropy_ignores_negative_labels),
        cmocka_unit_test(dropout_keeps_and_scales_by_the_counter),
        cmocka_unit_test(a_sum_over_everything_is_split_in_the_graph),
        cmocka_unit_test(column_sums_are_split_from_256_rows_on),
        cmocka_unit_test(rows_are_never_split),
        cmocka_unit_test(split_reductions_have_the_whole_value),
        cmocka_unit_test(the_least_integer_is_found),
        cmocka_unit_test(composites_of_bfloat16_compute_in_float32_and_round_once),
        cmocka_unit_test(the_policy_casts_products_and_nothing_else),
        cmocka_unit_test(a_product_without_batch_on_the_right_is_one_matrix_product),
        cmocka_unit_test(a_gradient_of_attention_from_its_result_and_sums_is_that_of_the_whole),
        cmocka_unit_test(attention_with_a_count_of_keys_sees_only_those),
        cmocka_unit_test(a_mask_is_an_operand_of_attention_unless_it_wants_a_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
