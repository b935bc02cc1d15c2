/* test_fold.c: what folds, what must not, and that no fold changes a bit: each law is tried on values with both zeros,
 * infinities and NaN.
 */
#include "graph_case.h"

#include "base/exact.h"

static an_tensor *number(graph_case *c, an_dtype t, double x)
{
    return an_const_at(AT, &c->cx, t, x);
}

static an_tensor *param(graph_case *c, an_dtype t)
{
    return case_leaf(c, AN_LEAF_PARAM, t, AN_SHAPE(2, 3), -2, 2);
}

/* The node that t is computed by: an alias has another's. */
static an_tensor *node_of(const an_tensor *t)
{
    assert_false(t->poison);
    return t->g->node[t->id];
}

static void expect_same(const an_tensor *a, const an_tensor *b)
{
    assert_ptr_equal(node_of(a), node_of(b));
}

/* `t` is computed by the leaf's node itself. */
static void expect_leaf(graph_case *c, an_tensor *t, an_tensor *leaf)
{
    expect_same(t, an_use(c->g, leaf, AT, "test"));
}

static void expect_number(const an_tensor *t, double x)
{
    t = node_of(t);
    while (t->op == AN_OP_RESHAPE || t->op == AN_OP_EXPAND) t = t->g->node[t->src[0]];
    assert_int_equal(t->op, AN_OP_CONST);
    if (!(t->imm[0] == x && signbit(t->imm[0]) == signbit(x))) fail_msg("%.17g where %.17g was expected", t->imm[0], x);
}

static void neutral_numbers_vanish(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = param(&c, AN_F32);
    expect_leaf(&c, an_mul_num_at(AT, x, 1), x);
    expect_leaf(&c, an_mul_at(AT, number(&c, AN_F32, 1), x), x);
    expect_leaf(&c, an_div_at(AT, x, number(&c, AN_F32, 1)), x);
    expect_leaf(&c, an_sub_at(AT, x, number(&c, AN_F32, 0.0)), x);
    expect_leaf(&c, an_add_num_at(AT, x, -0.0), x);
    expect_leaf(&c, an_neg_at(AT, an_neg_at(AT, x)), x);
    expect_leaf(&c, an_maximum_at(AT, x, x), x);
    case_close(&c);
}

static void laws_that_fail_for_zeros_nan_or_rounding_are_not_applied(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = param(&c, AN_F32);
    assert_int_equal(node_of(an_add_num_at(AT, x, 0.0))->op, AN_OP_ADD);                  /* -0 + 0 is +0 */
    assert_int_equal(node_of(an_mul_num_at(AT, x, 0))->op, AN_OP_MUL);                    /* inf * 0 is NaN */
    assert_int_equal(node_of(an_sub_at(AT, x, x))->op, AN_OP_SUB);                        /* inf - inf is NaN */
    assert_int_equal(node_of(an_eq_at(AT, x, x))->op, AN_OP_EQ);                          /* NaN != NaN */
    assert_int_equal(node_of(an_div_at(AT, x, number(&c, AN_F32, 3)))->op, AN_OP_DIV);    /* 1/3 is rounded */
    assert_int_equal(node_of(an_sub_at(AT, x, number(&c, AN_F32, -0.0)))->op, AN_OP_SUB); /* -0 - -0 is +0 */
    assert_int_equal(node_of(an_div_at(AT, x, number(&c, AN_F32, 0x1p-127)))->op,
                     AN_OP_DIV); /* a subnormal may be flushed */
    assert_int_equal(node_of(an_add_num_at(AT, an_add_num_at(AT, x, 1), 2))->op, AN_OP_ADD);       /* rounds twice */
    assert_int_equal(node_of(an_cast_at(AT, an_cast_at(AT, x, AN_BF16), AN_F32))->op, AN_OP_CAST); /* rounds */
    assert_int_equal(node_of(an_cast_at(AT, an_cast_at(AT, x, AN_I32), AN_F32))->op, AN_OP_CAST);
    case_close(&c);
}

static void integers_fold_further_than_floats(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = param(&c, AN_I32);
    expect_leaf(&c, an_add_num_at(AT, x, 0), x);
    expect_number(an_mul_num_at(AT, x, 0), 0);
    expect_number(an_sub_at(AT, x, x), 0);
    expect_number(an_eq_at(AT, x, x), 1);
    expect_number(an_xor_at(AT, x, x), 0);
    expect_leaf(&c, an_or_at(AT, x, number(&c, AN_I32, 0)), x);
    expect_number(an_add_at(AT, number(&c, AN_I32, INT32_MAX), number(&c, AN_I32, 1)), INT32_MIN);
    expect_number(an_mul_at(AT, number(&c, AN_U8, 16), number(&c, AN_U8, 17)), 16);
    expect_number(an_idiv_at(AT, number(&c, AN_I32, -7), number(&c, AN_I32, 2)), -4);
    expect_number(an_imod_at(AT, number(&c, AN_I32, -7), number(&c, AN_I32, 2)), 1);
    expect_number(an_idiv_at(AT, number(&c, AN_I32, 5), number(&c, AN_I32, 0)), 0);
    case_close(&c);
}

static void negations_move_into_their_neighbours(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = param(&c, AN_F32), *y = param(&c, AN_F32);
    expect_same(an_add_at(AT, x, an_neg_at(AT, y)), an_sub_at(AT, x, y));
    expect_same(an_add_at(AT, an_neg_at(AT, x), y), an_sub_at(AT, y, x));
    expect_same(an_sub_at(AT, x, an_neg_at(AT, y)), an_add_at(AT, x, y));
    expect_same(an_mul_at(AT, an_neg_at(AT, x), an_neg_at(AT, y)), an_mul_at(AT, x, y));
    expect_same(an_mul_num_at(AT, an_neg_at(AT, x), 3), an_mul_num_at(AT, x, -3));
    expect_same(an_mul_num_at(AT, x, -1), an_neg_at(AT, x));
    expect_same(an_abs_at(AT, an_neg_at(AT, x)), an_abs_at(AT, x));
    case_close(&c);
}

static void division_by_a_power_of_two_is_a_product(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = param(&c, AN_F32), *h = param(&c, AN_F16);
    expect_same(an_div_at(AT, x, number(&c, AN_F32, 256)), an_mul_num_at(AT, x, 1.0 / 256));
    expect_same(an_div_at(AT, x, number(&c, AN_F32, -0.25)), an_mul_num_at(AT, x, -4));
    assert_int_equal(node_of(an_div_at(AT, h, number(&c, AN_F16, 32768)))->op, AN_OP_MUL);
    case_close(&c);
}

static void bools_and_choices_fold(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *p = param(&c, AN_BOOL), *x = param(&c, AN_F32), *y = param(&c, AN_F32);
    an_tensor *yes = number(&c, AN_BOOL, 1), *no = number(&c, AN_BOOL, 0);
    expect_leaf(&c, an_and_at(AT, p, yes), p);
    expect_number(an_and_at(AT, p, no), 0);
    expect_leaf(&c, an_or_at(AT, no, p), p);
    expect_number(an_or_at(AT, yes, p), 1);
    expect_leaf(&c, an_not_at(AT, an_not_at(AT, p)), p);
    expect_leaf(&c, an_where_at(AT, yes, x, y), x);
    expect_leaf(&c, an_where_at(AT, no, x, y), y);
    expect_leaf(&c, an_where_at(AT, p, x, x), x);
    expect_same(an_where_at(AT, an_not_at(AT, p), x, y), an_where_at(AT, p, y, x));
    expect_number(an_lt_at(AT, x, x), 0);
    case_close(&c);
}

static void constants_have_the_kernels_bits(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    for (double v = -3; v < 3; v += 0.37) {
        an_tensor *x = number(&c, AN_F32, v);
        float f = (float)v;
        expect_number(an_exp_at(AT, x), (double)an_exp(f));
        expect_number(an_tanh_at(AT, x), (double)an_tanh(f));
        expect_number(an_erf_at(AT, x), (double)an_erf(f));
        expect_number(an_sin_at(AT, x), (double)an_sin(f));
        expect_number(an_mul_at(AT, x, x), (double)(f * f));
        expect_number(an_lt_at(AT, x, number(&c, AN_F32, 0.1)), f < 0.1f);
    }
    assert_int_equal(node_of(an_log_at(AT, number(&c, AN_F32, -1)))->op,
                     AN_OP_LOG); /* NaN: its bits are the device's */
    expect_number(an_mul_at(AT, number(&c, AN_BF16, 1.0078125), number(&c, AN_BF16, 1.0078125)),
                  1.015625); /* 1.01568 rounded */
    expect_number(an_add_at(AT, number(&c, AN_F16, 2048), number(&c, AN_F16, 1)), 2048);
    case_close(&c);
}

static void constants_are_rounded_to_their_dtype(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    expect_number(number(&c, AN_F32, 0.1), (double)0.1f);
    expect_number(number(&c, AN_BF16, 1.00390625), 1.0); /* a tie, to even */
    expect_number(number(&c, AN_BF16, 1.01171875), 1.015625);
    expect_number(number(&c, AN_BF16, 3.4e38), INFINITY);
    expect_number(number(&c, AN_F16, 65519), 65504);
    expect_number(number(&c, AN_F16, 65520), INFINITY);
    expect_number(number(&c, AN_F16, 0x1p-25), 0);
    expect_number(number(&c, AN_F16, 0x1.8p-25), 0x1p-24);
    expect_number(number(&c, AN_I32, -2), -2);
    expect_number(number(&c, AN_I64, -0x1p63), -0x1p63);
    expect_number(number(&c, AN_U8, 255), 255);
    expect_number(number(&c, AN_BOOL, 0.5), 1);
    case_close(&c);
}

static void a_number_that_an_integer_cannot_hold_is_refused(void **state)
{
    (void)state;
    static const struct {
        an_dtype t;
        double x;
    } bad[] = {{AN_I32, 0.5},    {AN_I32, 1e300}, {AN_I32, 0x1p31}, {AN_I32, NAN},
               {AN_I64, 0x1p63}, {AN_U8, -1},     {AN_U8, 256},     {AN_I32, -(double)INFINITY}};
    for (size_t i = 0; i < AN_COUNT(bad); i++) {
        graph_case c;
        case_open(&c);
        an_tensor *x = param(&c, bad[i].t);
        assert_true(number(&c, bad[i].t, bad[i].x)->poison);
        assert_non_null(strstr(c.cx.err.text, "cast the tensor to a float first"));
        assert_true(an_mul_num_at(AT, x, bad[i].x)->poison && an_add_num_at(AT, x, bad[i].x)->poison);
        assert_true(an_pad_at(AT, x, 0, 1, 0, bad[i].x)->poison);
        case_close(&c);
    }
}

static void casts_that_widen_first_are_one_cast(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *b = param(&c, AN_BF16), *u = param(&c, AN_U8), *i = param(&c, AN_I32);
    expect_leaf(&c, an_cast_at(AT, an_cast_at(AT, b, AN_F32), AN_BF16), b);
    expect_leaf(&c, an_cast_at(AT, b, AN_BF16), b);
    expect_same(an_cast_at(AT, an_cast_at(AT, b, AN_F32), AN_F64), an_cast_at(AT, b, AN_F64));
    expect_same(an_cast_at(AT, an_cast_at(AT, u, AN_I32), AN_F32), an_cast_at(AT, u, AN_F32));
    expect_leaf(&c, an_cast_at(AT, an_cast_at(AT, i, AN_F64), AN_I32), i);
    an_tensor *saturates = an_cast_at(AT, an_cast_at(AT, i, AN_F64), AN_U8); /* an integer cast would wrap */
    assert_int_equal(c.g->node[saturates->src[0]]->op, AN_OP_CAST);
    case_close(&c);
}

static void moves_of_moves_are_one_move(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = case_leaf(&c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(2, 3, 4), -1, 1);
    an_tensor *leaf = an_use(c.g, x, AT, "test");
    expect_same(an_reshape_at(AT, an_reshape_at(AT, x, AN_SHAPE(6, 4)), AN_SHAPE(2, 3, 4)), leaf);
    expect_same(an_permute_at(AT, an_permute_at(AT, x, AN_SHAPE(2, 0, 1)), AN_SHAPE(1, 2, 0)), leaf);
    expect_same(an_expand_at(AT, x, AN_SHAPE(2, 3, 4)), leaf);
    expect_same(an_slice_at(AT, x, 1, 0, 3, 1), leaf);
    expect_same(an_slice_at(AT, an_slice_at(AT, x, 2, 1, 4, 1), 2, 1, 2, 1), an_slice_at(AT, x, 2, 2, 3, 1));
    expect_same(an_pad_at(AT, x, 0, 0, 0, 7), leaf);
    expect_same(an_pad_at(AT, an_pad_at(AT, x, 0, 1, 0, 7), 0, 2, 3, 7), an_pad_at(AT, x, 0, 3, 3, 7));
    expect_same(an_slice_at(AT, an_pad_at(AT, x, 0, 2, 1, 7), 0, 2, 4, 1), leaf);
    expect_same(an_flip_at(AT, an_flip_at(AT, x, AN_AXIS(1)), AN_AXIS(-2)), leaf);
    expect_same(an_concat_at(AT, &x, 1, 0), leaf);
    an_tensor *two[] = {an_slice_at(AT, x, 1, 0, 1, 1), an_slice_at(AT, x, 1, 1, 3, 1)};
    expect_same(an_concat_at(AT, two, 2, 1), leaf);
    an_tensor *parts[] = {x, an_exp_at(AT, x)};
    expect_same(an_slice_at(AT, an_concat_at(AT, parts, 2, 0), 0, 2, 4, 1), parts[1]);
    an_tensor *row = an_reshape_at(AT, x, AN_SHAPE(1, 24, 1));
    assert_int_equal(node_of(an_permute_at(AT, row, AN_SHAPE(1, 0, 2)))->op, AN_OP_RESHAPE);
    assert_int_equal(node_of(an_flip_at(AT, row, AN_AXIS(0) | AN_AXIS(1)))->attr[0], 2);
    case_close(&c);
}

static void a_slice_of_padding_alone_is_a_number(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x =
        case_leaf(&c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(2, 1, 4), -1, 1); /* a step's gradient, the fourth of six */
    an_tensor *steps = an_pad_at(AT, x, 1, 3, 2, -0.0), *turned = an_permute_at(AT, steps, AN_SHAPE(1, 0, 2));
    for (int t = 0; t < 6; t++) {
        an_tensor *of = an_slice_at(AT, steps, 1, t, t + 1, 1), *turn = an_slice_at(AT, turned, 0, t, t + 1, 1);
        if (t == 3) {
            expect_leaf(&c, of, x);
            expect_same(turn, an_permute_at(AT, x, AN_SHAPE(1, 0, 2)));
        } else {
            expect_number(of, -0.0);
            expect_number(turn, -0.0);
        }
    }
    assert_int_equal(node_of(an_slice_at(AT, steps, 1, 2, 4, 1))->op, AN_OP_SLICE); /* both */
    assert_int_equal(node_of(an_slice_at(AT, turned, 0, 3, 5, 1))->op, AN_OP_SLICE);
    expect_number(an_slice_at(AT, steps, 1, 4, 6, 1), -0.0);
    expect_number(an_slice_at(AT, turned, 0, 0, 3, 2), -0.0);
    assert_int_equal(node_of(an_slice_at(AT, turned, 0, 1, 6, 2))->op, AN_OP_SLICE); /* 1, 3, 5 */
    case_close(&c);
}

static void a_number_stays_a_number_under_moves(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *full = an_full_at(AT, &c.cx, AN_F32, AN_SHAPE(4, 6), 2.5);
    an_tensor *same = an_full_at(AT, &c.cx, AN_F32, AN_SHAPE(6, 4), 2.5);
    expect_same(an_transpose_at(AT, full, 0, 1), same);
    expect_same(an_reshape_at(AT, full, AN_SHAPE(6, 4)), same);
    expect_same(an_slice_at(AT, an_pad_at(AT, full, 0, 1, 1, 2.5), 1, 2, 6, 1), same);
    expect_same(an_flip_at(AT, same, AN_ALL), same);
    expect_same(an_cast_at(AT, an_full_at(AT, &c.cx, AN_I32, AN_SHAPE(3), 2), AN_F32),
                an_full_at(AT, &c.cx, AN_F32, AN_SHAPE(3), 2));
    case_close(&c);
}

static void reductions_over_one_element_are_that_element(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = case_leaf(&c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(5, 1, 3), -1, 1);
    expect_leaf(&c, an_sum_at(AT, x, AN_AXIS(1), true), x);
    expect_leaf(&c, an_max_at(AT, x, AN_AXIS(1), true), x);
    expect_leaf(&c, an_mean_at(AT, x, AN_AXIS(1), true), x);
    expect_number(an_argmax_at(AT, x, 1, true), 0);
    case_close(&c);
}

/* ------------------------------------------------------------------------------------------------ no bit changes */

static const double awkward[] = {0.0,    -0.0,     1,         -1,  0.5,   -3.7,     1e30,
                                 -1e-30, INFINITY, -INFINITY, NAN, 65504, 0x1p-126, 7};

/* A long chain of everything that folds, by `pick`. */
static an_tensor *chain(graph_case *c, an_tensor *x, an_tensor *y, uint32_t pick)
{
    for (int i = 0; i < 12; i++) {
        an_tensor *k = number(c, AN_F32, awkward[pick % 7]);
        pick = pick * 1664525u + 1013904223u;
        switch (pick >> 24 & 15) {
        case 0: x = an_neg_at(AT, x); break;
        case 1: x = an_add_at(AT, x, k); break;
        case 2: x = an_sub_at(AT, k, x); break;
        case 3: x = an_mul_at(AT, x, k); break;
        case 4: x = an_div_at(AT, x, number(c, AN_F32, 0.5)); break;
        case 5: x = an_add_at(AT, an_neg_at(AT, y), x); break;
        case 6: x = an_where_at(AT, an_not_at(AT, an_lt_at(AT, x, y)), x, k); break;
        case 7:
            x = an_transpose_at(AT, x, 0, 1);
            y = an_transpose_at(AT, y, 0, 1);
            break;
        case 8: x = an_reshape_at(AT, an_reshape_at(AT, x, AN_SHAPE(-1)), AN_SHAPE(14, 14)); break;
        case 9: x = an_flip_at(AT, x, AN_AXIS(0)); break;
        case 10: x = an_slice_at(AT, an_pad_at(AT, x, 1, 2, 0, 1), 1, 0, 14, 1); break;
        case 11: x = an_mul_at(AT, an_neg_at(AT, x), an_neg_at(AT, y)); break;
        case 12: x = an_abs_at(AT, x); break;
        case 13:
            x = an_cast_at(AT, an_cast_at(AT, an_cast_at(AT, x, AN_BF16), AN_F32), AN_BF16),
            x = an_cast_at(AT, x, AN_F32);
            break;
        case 14: x = an_max_at(AT, an_reshape_at(AT, x, AN_SHAPE(14, 1, 14)), AN_AXIS(1), false); break;
        default: x = an_sub_at(AT, x, an_neg_at(AT, y)); break;
        }
    }
    return x;
}

static double *chain_values(uint32_t pick, bool unfolded)
{
    graph_case c;
    case_open(&c);
    c.ref.round_f32 = true;
    c.g->keep_duplicates = unfolded;
    an_tensor *x = case_leaf(&c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(14, 14), 0, 1),
              *y = case_leaf(&c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(14, 14), 0, 1);
    for (int i = 0; i < 14 * 14; i++) {
        c.data[0][i] = (double)(float)awkward[i / 14];
        c.data[1][i] = (double)(float)awkward[i % 14];
    }
    double *values = case_eval(&c, chain(&c, x, y, pick));
    case_close(&c);
    return values;
}

static void folded_and_unfolded_graphs_have_the_same_bits(void **state)
{
    (void)state;
    for (uint32_t pick = 0; pick < 400; pick++) {
        double *folded = chain_values(pick, false), *plain = chain_values(pick, true);
        for (int i = 0; i < 14 * 14; i++) {
            bool same =
                isnan(plain[i]) ? isnan(folded[i]) : folded[i] == plain[i] && !signbit(folded[i]) == !signbit(plain[i]);
            if (!same) fail_msg("chain %u element %d: %.9g folded, %.9g not", pick, i, folded[i], plain[i]);
        }
        free(folded);
        free(plain);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neutral_numbers_vanish),
        cmocka_unit_test(laws_that_fail_for_zeros_nan_or_rounding_are_not_applied),
        cmocka_unit_test(integers_fold_further_than_floats),
        cmocka_unit_test(negations_move_into_their_neighbours),
        cmocka_unit_test(division_by_a_power_of_two_is_a_product),
        cmocka_unit_test(bools_and_choices_fold),
        cmocka_unit_test(constants_have_the_kernels_bits),
        cmocka_unit_test(constants_are_rounded_to_their_dtype),
        cmocka_unit_test(a_number_that_an_integer_cannot_hold_is_refused),
        cmocka_unit_test(casts_that_widen_first_are_one_cast),
        cmocka_unit_test(moves_of_moves_are_one_move),
        cmocka_unit_test(a_slice_of_padding_alone_is_a_number),
        cmocka_unit_test(a_number_stays_a_number_under_moves),
        cmocka_unit_test(reductions_over_one_element_are_that_element),
        cmocka_unit_test(folded_and_unfolded_graphs_have_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
