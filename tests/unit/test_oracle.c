/* test_oracle.c: the oracle itself: its ops against values worked out by hand or by their defining property, its rounding,
 * its numbers, and its elementwise column against the kernels' column of ops.def.
 */
#include "graph_case.h"

#include "base/rng.h"
#include "graph/fold.h"

static an_tensor *data(graph_case *c, an_dtype t, an_shape s, const double *values)
{
    an_tensor *leaf = case_leaf(c, AN_LEAF_INPUT, t, s, 0, 1);
    memcpy(c->data[c->n - 1], values, (size_t)leaf->numel * sizeof *values);
    return leaf;
}

/* Exactly these values; NaN equals NaN. */
static void expect_exactly(graph_case *c, const an_tensor *t, const double *want)
{
    double *got = case_eval(c, t);
    for (int64_t i = 0; i < t->numel; i++)
        if (!(got[i] == want[i] || (isnan(got[i]) && isnan(want[i]))))
            fail_msg("element %d: %.17g, not %.17g", (int)i, got[i], want[i]);
    free(got);
}

static void expect_equal(graph_case *c, an_tensor *a, an_tensor *b)
{
    a = an_use(c->g, a, AT, "test");
    b = an_use(c->g, b, AT, "test");
    double *x = case_eval(c, a), *y = case_eval(c, b);
    assert_int_equal(a->numel, b->numel);
    test_close_f64("values", x, y, (size_t)a->numel, 1e-11, 1e-11);
    free(x);
    free(y);
}

static an_tensor *transposed(an_tensor *a)
{
    return an_transpose_at(AT, a, -2, -1);
}

static an_tensor *identity(graph_case *c, int n)
{
    an_tensor *i = an_iota_at(AT, &c->cx, AN_SHAPE(n, n), 0), *j = an_iota_at(AT, &c->cx, AN_SHAPE(n, n), 1);
    return an_cast_at(AT, an_eq_at(AT, i, j), AN_F64);
}

/* ------------------------------------------------------------------------------------------------ moves, reductions,
 * rows */

static void moves_move(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = data(&c, AN_I32, AN_SHAPE(2, 3), (double[]){0, 1, 2, 3, 4, 5});
    expect_exactly(&c, transposed(x), (double[]){0, 3, 1, 4, 2, 5});
    expect_exactly(&c, an_flip_at(AT, x, AN_AXIS(1)), (double[]){2, 1, 0, 5, 4, 3});
    expect_exactly(&c, an_slice_at(AT, x, 1, 0, 3, 2), (double[]){0, 2, 3, 5});
    expect_exactly(&c, an_pad_at(AT, x, 0, 1, 0, 9), (double[]){9, 9, 9, 0, 1, 2, 3, 4, 5});
    expect_exactly(&c, an_expand_at(AT, an_slice_at(AT, x, 1, 1, 2, 1), AN_SHAPE(2, 2)), (double[]){1, 1, 4, 4});
    expect_exactly(&c, an_concat_at(AT, (an_tensor *[]){x, an_slice_at(AT, x, 1, 0, 1, 1)}, 2, 1),
                   (double[]){0, 1, 2, 0, 3, 4, 5, 3});
    expect_exactly(&c, an_iota_at(AT, &c.cx, AN_SHAPE(2, 3), 0), (double[]){0, 0, 0, 1, 1, 1});
    case_close(&c);
}

static void maxima_are_the_first_and_nan_wins(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = data(&c, AN_F32, AN_SHAPE(3, 4), (double[]){1, 5, 5, 2, NAN, 7, NAN, 1, -1, -3, -2, -1});
    expect_exactly(&c, an_max_at(AT, x, AN_AXIS(1), false), (double[]){5, NAN, -1});
    expect_exactly(&c, an_argmax_at(AT, x, 1, false), (double[]){1, 0, 0});
    expect_exactly(&c, an_maximum_at(AT, x, an_flip_at(AT, x, AN_AXIS(1))),
                   (double[]){2, 5, 5, 2, NAN, NAN, NAN, NAN, -1, -2, -2, -1});
    case_close(&c);
}

static void rows_are_gathered_clamped_and_scattered_skipping(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *table = data(&c, AN_F32, AN_SHAPE(3, 2), (double[]){1, 2, 3, 4, 5, 6}),
              *ids = data(&c, AN_I32, AN_SHAPE(4), (double[]){2, -1, 7, 2});
    expect_exactly(&c, an_gather_at(AT, table, ids), (double[]){5, 6, 1, 2, 5, 6, 5, 6});
    an_tensor *src = data(&c, AN_F32, AN_SHAPE(4, 1), (double[]){1, 10, 100, 1000});
    expect_exactly(&c, an_scatter_add_at(AT, ids, src, 3), (double[]){0, 0, 1001});
    case_close(&c);
}

static void sorting_is_stable_and_nan_is_the_greatest(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = data(&c, AN_F32, AN_SHAPE(6), (double[]){2, NAN, 1, 2, INFINITY, 1}), *at;
    expect_exactly(&c, an_sort_at(AT, x, false, &at), (double[]){1, 1, 2, 2, INFINITY, NAN});
    expect_exactly(&c, at, (double[]){2, 5, 0, 3, 4, 1});
    expect_exactly(&c, an_sort_at(AT, x, true, &at), (double[]){NAN, INFINITY, 2, 2, 1, 1});
    expect_exactly(&c, at, (double[]){1, 4, 0, 3, 2, 5});
    expect_exactly(&c, an_topk_at(AT, x, 3, &at), (double[]){NAN, INFINITY, 2});
    expect_exactly(&c, at, (double[]){1, 4, 0});
    expect_exactly(&c, an_cumsum_at(AT, an_iota_at(AT, &c.cx, AN_SHAPE(4), 0), false), (double[]){0, 1, 3, 6});
    expect_exactly(&c, an_cumsum_at(AT, an_iota_at(AT, &c.cx, AN_SHAPE(4), 0), true), (double[]){6, 6, 5, 3});
    case_close(&c);
}

/* ------------------------------------------------------------------------------------------------ products, windows,
 * attention */

static void windows_give_the_numbers_worked_out_by_hand(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = data(&c, AN_F32, AN_SHAPE(1, 3, 3, 1), (double[]){1, 2, 3, 4, 5, 6, 7, 8, 9});
    an_tensor *w = data(&c, AN_F32, AN_SHAPE(1, 2, 2, 1), (double[]){1, 10, 100, 1000});
    expect_exactly(&c, an_conv2d_at(AT, x, w, NULL, (an_window){0}), (double[]){5421, 6532, 8754, 9865});
    expect_exactly(&c, an_conv2d_at(AT, x, w, NULL, (an_window){.pad_h = 1, .stride_h = 3, .stride_w = 3}),
                   (double[]){2100, 87});
    expect_exactly(&c, an_conv2d_at(AT, x, w, NULL, (an_window){.dilation_h = 2, .dilation_w = 2}), (double[]){9731});
    an_window pool = {.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1};
    expect_exactly(&c, an_max_pool_at(AT, x, pool), (double[]){1, 3, 7, 9});
    expect_exactly(&c, an_avg_pool_at(AT, x, pool), (double[]){0.25, 1.25, 2.75, 7});
    case_close(&c);
}

static void attention_is_softmax_of_scaled_scores(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *q = PARAM(&c, AN_SHAPE(2, 2, 3, 4), -1, 1), *k = PARAM(&c, AN_SHAPE(2, 2, 5, 4), -1, 1),
              *v = PARAM(&c, AN_SHAPE(2, 2, 5, 4), -1, 1);
    an_tensor *scores = an_mul_num_at(AT, an_matmul_at(AT, q, transposed(k)), 0.3);
    expect_equal(&c, case_attention(q, k, v, 0.3, false, 0, NULL), an_matmul_at(AT, an_softmax_at(AT, scores, -1), v));
    an_tensor *i = an_iota_at(AT, &c.cx, AN_SHAPE(3, 5), 0), *j = an_iota_at(AT, &c.cx, AN_SHAPE(3, 5), 1);
    an_tensor *seen = an_le_at(AT, j, an_add_num_at(AT, i, 2)); /* key j <= i + S - T */
    scores = an_where_at(AT, seen, scores, an_const_at(AT, &c.cx, AN_F64, -INFINITY));
    expect_equal(&c, case_attention(q, k, v, 0.3, true, 0, NULL), an_matmul_at(AT, an_softmax_at(AT, scores, -1), v));
    case_close(&c);
}

static void a_query_that_sees_no_key_gives_zeros(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *q = PARAM(&c, AN_SHAPE(1, 1, 3, 2), -1, 1),
              *k = data(&c, AN_F64, AN_SHAPE(1, 1, 1, 2), (double[]){1, 2});
    expect_exactly(&c, case_attention(q, k, k, 0, true, 0, NULL), (double[]){0, 0, 0, 0, 1, 2});
    case_close(&c);
}

/* ------------------------------------------------------------------------------------------------ matrices, by what
 * defines them */

static void factorisations_multiply_back(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *a = PARAM(&c, AN_SHAPE(2, 5, 3), -1, 1), *r, *s, *v;
    an_tensor *q = an_qr_at(AT, a, &r), *u = an_svd_at(AT, a, &s, &v);
    an_tensor *eye = an_expand_at(AT, identity(&c, 3), AN_SHAPE(2, 3, 3));
    expect_equal(&c, an_matmul_at(AT, q, r), a);
    expect_equal(&c, an_matmul_at(AT, transposed(q), q), eye);
    expect_equal(&c, an_matmul_at(AT, an_mul_at(AT, u, an_reshape_at(AT, s, AN_SHAPE(2, 1, 3))), transposed(v)), a);
    expect_equal(&c, an_matmul_at(AT, transposed(u), u), eye);
    expect_equal(&c, an_matmul_at(AT, transposed(v), v), eye);
    expect_equal(&c, an_sort_at(AT, s, true, NULL), s);
    an_tensor *gram = an_add_at(AT, an_matmul_at(AT, transposed(a), a), eye), *l = an_cholesky_at(AT, gram), *vectors;
    expect_equal(&c, an_matmul_at(AT, l, transposed(l)), gram);
    an_tensor *w = an_eigh_at(AT, gram, &vectors);
    expect_equal(&c, an_matmul_at(AT, gram, vectors), an_mul_at(AT, vectors, an_reshape_at(AT, w, AN_SHAPE(2, 1, 3))));
    expect_equal(&c, an_matmul_at(AT, transposed(vectors), vectors), eye);
    expect_equal(&c, an_sort_at(AT, w, false, NULL), w);
    double *diagonal = case_eval(&c, r);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 3; k++)
            assert_true(diagonal[9 * i + 4 * k] > 0 && (k == 0 || diagonal[9 * i + 3 * k] == 0));
    free(diagonal);
    case_close(&c);
}

static void solutions_solve(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *a = PARAM(&c, AN_SHAPE(2, 4, 4), -1, 1), *b = PARAM(&c, AN_SHAPE(2, 4, 3), -1, 1);
    c.data[0][0] = 0; /* needs a pivot */
    expect_equal(&c, an_matmul_at(AT, a, an_solve_at(AT, a, b)), b);
    an_tensor *i = an_iota_at(AT, &c.cx, AN_SHAPE(4, 4), 0), *j = an_iota_at(AT, &c.cx, AN_SHAPE(4, 4), 1);
    an_tensor *zero = an_const_at(AT, &c.cx, AN_F64, 0), *t = an_add_at(AT, a, an_mul_num_at(AT, identity(&c, 4), 3));
    for (int upper = 0; upper < 2; upper++) {
        an_tensor *part = an_where_at(AT, upper ? an_le_at(AT, i, j) : an_le_at(AT, j, i), t, zero);
        expect_equal(&c, an_matmul_at(AT, part, an_trisolve_at(AT, t, b, upper, false)), b);
        expect_equal(&c, an_matmul_at(AT, transposed(part), an_trisolve_at(AT, t, b, upper, true)), b);
    }
    case_close(&c);
}

/* ------------------------------------------------------------------------------------------------ dtypes */

static void casts_truncate_saturate_and_wrap(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = data(&c, AN_F32, AN_SHAPE(7), (double[]){2.9, -2.9, NAN, 1e20, -1e20, 0.25, 300}),
              *i = data(&c, AN_I32, AN_SHAPE(3), (double[]){300, -1, 0});
    expect_exactly(&c, an_cast_at(AT, x, AN_I32), (double[]){2, -2, 0, INT32_MAX, INT32_MIN, 0, 300});
    expect_exactly(&c, an_cast_at(AT, x, AN_U8), (double[]){2, 0, 0, 255, 0, 0, 255});
    expect_exactly(&c, an_cast_at(AT, x, AN_BOOL), (double[]){1, 1, 1, 1, 1, 1, 1});
    expect_exactly(&c, an_cast_at(AT, i, AN_U8), (double[]){44, 255, 0});
    expect_exactly(&c, an_cast_at(AT, i, AN_BOOL), (double[]){1, 1, 0});
    case_close(&c);
}

static void narrow_dtypes_round_at_every_node(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = data(&c, AN_F32, AN_SHAPE(5), (double[]){1.00390625, 1.01171875, 3.4e38, 0x1p-140, 65519});
    expect_exactly(&c, an_cast_at(AT, x, AN_BF16), (double[]){1, 1.015625, INFINITY, 0, 65536});
    expect_exactly(&c, an_cast_at(AT, x, AN_F16), (double[]){1.00390625, 1.01171875, INFINITY, 0, 65504});
    an_tensor *one = an_const_at(AT, &c.cx, AN_F32, 1), *tiny = data(&c, AN_F32, AN_SCALAR, (double[]){0x1p-30});
    an_tensor *sum = an_sub_at(AT, an_add_at(AT, one, tiny), one);
    expect_exactly(&c, sum, (double[]){0x1p-30});
    c.ref.round_f32 = true;
    expect_exactly(&c, sum, (double[]){0});
    c.ref.round_nothing = true;
    expect_exactly(&c, an_cast_at(AT, x, AN_BF16), (double[]){1.00390625, 1.01171875, 3.4e38, 0x1p-140, 65519});
    case_close(&c);
}

static void integers_wrap_and_divide_downward(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *a = data(&c, AN_I32, AN_SHAPE(4), (double[]){INT32_MAX, -7, 7, 5}),
              *b = data(&c, AN_I32, AN_SHAPE(4), (double[]){1, 2, -2, 0});
    expect_exactly(&c, an_add_at(AT, a, b), (double[]){INT32_MIN, -5, 5, 5});
    expect_exactly(&c, an_idiv_at(AT, a, b), (double[]){INT32_MAX, -4, -4, 0});
    expect_exactly(&c, an_imod_at(AT, a, b), (double[]){0, 1, -1, 0});
    expect_exactly(&c, an_sum_at(AT, a, AN_ALL, false), (double[]){INT32_MIN + 4});
    expect_exactly(&c, an_abs_at(AT, b), (double[]){1, 2, 2, 0});
    case_close(&c);
}

static void random_numbers_are_the_generators_bits(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    c.ref.first_sample = 5;
    an_tensor *u = an_rand_at(AT, &c.cx, AN_SHAPE(3, 4));
    double *got = case_eval(&c, u);
    for (uint64_t i = 0; i < 12; i++)
        assert_true(got[i] == (double)an_rng_uniform(77, (uint32_t)u->attr[0], 5 * 4 + i));
    free(got);
    case_close(&c);
}

/* The two columns of ops.def, written apart, must mean the same on ordinary numbers. */
static void the_kernel_column_agrees_with_the_reference_column(void **state)
{
    (void)state;
    static const double inputs[] = {-2.5, -1, -0.75, 0, 0.5, 1, 1.25, 3, 7};
    int compared = 0;
    for (int op = 0; op < AN_N_OPS; op++) {
        if (an_ops[op].cls != AN_CLS_ELEM || op == AN_OP_WHERE) continue;
        for (int pair = 0; pair < 81; pair++) {
            bool real = an_ops[op].domain == AN_DOM_FLOAT || an_ops[op].domain == AN_DOM_NUMBER ||
                        an_ops[op].domain == AN_DOM_ANY;
            an_dtype t = real ? AN_F32 : an_ops[op].domain == AN_DOM_BOOL ? AN_BOOL : AN_I32;
            double x[3] = {inputs[pair / 9], inputs[pair % 9], 0}, y;
            if (t == AN_BOOL) x[0] = x[0] > 0, x[1] = x[1] > 0;
            int64_t i[3] = {(int64_t)x[0], (int64_t)x[1], 0}, yi;
            if (!an_fold_constant((an_op)op, t, x, i, &y, &yi)) continue;
            graph_case c;
            case_open(&c);
            c.g->keep_duplicates = true;
            an_tensor *src[2] = {an_use(c.g, data(&c, t, AN_SCALAR, x), AT, ""),
                                 an_use(c.g, data(&c, t, AN_SCALAR, x + 1), AT, "")};
            an_emit_args e = {.op = (an_op)op, .n_src = an_ops[op].arity, .src = src, .at = AT};
            an_tensor *n = an_emit(c.g, &e);
            double want = case_item(&c, n), got = an_dtype_is_float((an_dtype)n->dtype) ? y : (double)yi;
            if (!(got == want || fabs(got - want) <= 3e-7 * fabs(want) + 1e-7))
                fail_msg("%s(%g, %g): kernel %.9g, reference %.9g", an_ops[op].name, x[0], x[1], got, want);
            compared++;
            case_close(&c);
        }
    }
    assert_true(compared > 1500);
}

/* ------------------------------------------------------------------------------------------------ effects, misuse */

static int64_t every_fourth(void *user, const an_tensor *pack, int i)
{
    (void)user, (void)pack;
    return 4 * i;
}

static void packing_follows_the_layout_and_zeroes_the_gaps(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *src[2] = {an_use(c.g, data(&c, AN_F32, AN_SHAPE(3), (double[]){1, 2, 3}), AT, ""),
                         an_use(c.g, data(&c, AN_F32, AN_SHAPE(2), (double[]){4, 5}), AT, "")};
    int32_t shape[1] = {8};
    int64_t block = 0;
    an_emit_args e = {.op = AN_OP_PACK,
                      .dtype = AN_F32,
                      .rank = 1,
                      .shape = shape,
                      .n_src = 2,
                      .src = src,
                      .n_attr = 1,
                      .attr = &block};
    an_tensor *pack = an_emit(c.g, &e);
    c.ref.pack = every_fourth;
    expect_exactly(&c, pack, (double[]){1, 2, 3, 0, 4, 5, 0, 0});
    c.ref.pack = NULL;
    double values[8], *out = values;
    assert_int_equal(an_oracle_eval(&c.cx.err, c.g, &c.ref, case_read, &c, &pack->id, 1, &out), AN_E_USAGE);
    assert_string_equal(c.cx.err.text, "ref: node 2 packs, and no layout was given");
    case_close(&c);
}

static an_status evaluate(an_err *err, void *arg)
{
    graph_case *c = arg;
    double values[64], *out = values;
    int32_t id = c->g->n - 1;
    return an_oracle_eval(err, c->g, NULL, case_read, c, &id, 1, &out);
}

static void a_refused_allocation_ends_the_evaluation(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *a = PARAM(&c, AN_SHAPE(3, 3), -1, 1), *at;
    an_sort_at(AT, an_eigh_at(AT, an_add_at(AT, a, transposed(a)), NULL), true, &at);
    test_refuse_each_allocation(evaluate, &c);
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves_move),
        cmocka_unit_test(maxima_are_the_first_and_nan_wins),
        cmocka_unit_test(rows_are_gathered_clamped_and_scattered_skipping),
        cmocka_unit_test(sorting_is_stable_and_nan_is_the_greatest),
        cmocka_unit_test(windows_give_the_numbers_worked_out_by_hand),
        cmocka_unit_test(attention_is_softmax_of_scaled_scores),
        cmocka_unit_test(a_query_that_sees_no_key_gives_zeros),
        cmocka_unit_test(factorisations_multiply_back),
        cmocka_unit_test(solutions_solve),
        cmocka_unit_test(casts_truncate_saturate_and_wrap),
        cmocka_unit_test(narrow_dtypes_round_at_every_node),
        cmocka_unit_test(integers_wrap_and_divide_downward),
        cmocka_unit_test(random_numbers_are_the_generators_bits),
        cmocka_unit_test(the_kernel_column_agrees_with_the_reference_column),
        cmocka_unit_test(packing_follows_the_layout_and_zeroes_the_gaps),
        cmocka_unit_test(a_refused_allocation_ends_the_evaluation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
