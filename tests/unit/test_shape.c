/* test_shape.c: shapes and dtypes that come out of every public operation, and the exact sentence of every refusal. */
#include "graph_case.h"

#include <anneal_tools.h>

static an_tensor *leaf(graph_case *c, an_dtype t, an_shape s)
{
    return case_leaf(c, AN_LEAF_PARAM, t, s, 0, 1);
}

static void expect(const an_tensor *t, const char *what)
{
    char shape[128], text[192];
    if (t->poison) fail_msg("poison where %s was expected: %s", what, t->g->err->text);
    snprintf(text, sizeof text, "%s %s", an_dtype_name((an_dtype)t->dtype),
             an_shape_text(t->rank, t->shape, shape, sizeof shape));
    assert_string_equal(text, what);
}

/* The sentence without the place, which is always AT. */
static void expect_refusal(graph_case *c, const an_tensor *t, an_status code, const char *sentence)
{
    if (!t->poison) fail_msg("not refused: %s", sentence);
    char want[512];
    snprintf(want, sizeof want, "case.c:7: %s", sentence);
    assert_string_equal(c->cx.err.text, want);
    assert_int_equal(c->cx.err.code, code);
    an_err_clear(&c->cx.err);
}

static void operations_give_the_documented_shapes(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = leaf(&c, AN_F32, AN_SHAPE(2, 3, 4)), *h = leaf(&c, AN_BF16, AN_SHAPE(2, 3, 4)), *out, *third;
    an_tensor *ids = leaf(&c, AN_I32, AN_SHAPE(2, 3)), *m = leaf(&c, AN_F32, AN_SHAPE(5, 6, 3));
    expect(an_add_at(AT, x, leaf(&c, AN_F32, AN_SHAPE(3, 1))), "float32 [2,3,4]");
    expect(an_add_at(AT, leaf(&c, AN_F32, AN_SHAPE(7, 1)), leaf(&c, AN_F32, AN_SCALAR)), "float32 [7,1]");
    expect(an_lt_at(AT, h, h), "bool [2,3,4]");
    expect(an_sum_at(AT, h, AN_AXIS(0) | AN_AXIS(-1), false), "bfloat16 [3]");
    expect(an_mean_at(AT, x, AN_ALL, true), "float32 [1,1,1]");
    expect(an_argmax_at(AT, x, -2, false), "int32 [2,4]");
    expect(an_reshape_at(AT, x, AN_SHAPE(-1, 6)), "float32 [4,6]");
    expect(an_permute_at(AT, x, AN_SHAPE(-1, 0, 1)), "float32 [4,2,3]");
    expect(an_slice_at(AT, x, -1, -3, 4, 2), "float32 [2,3,2]");
    expect(an_slice_at(AT, x, 0, 1, 1, 1), "float32 [0,3,4]");
    expect(an_pad_at(AT, x, 1, 2, 3, 0), "float32 [2,8,4]");
    expect(an_matmul_at(AT, x, leaf(&c, AN_F32, AN_SHAPE(4, 7))), "float32 [2,3,7]");
    expect(an_matmul_as_at(AT, h, an_transpose_at(AT, h, 1, 2), AN_F32), "float32 [2,3,3]");
    expect(an_gather_at(AT, leaf(&c, AN_F32, AN_SHAPE(9, 5)), ids), "float32 [2,3,5]");
    expect(an_scatter_add_at(AT, ids, h, 9), "bfloat16 [9,4]");
    expect(an_sort_at(AT, x, true, &out), "float32 [2,3,4]");
    expect(out, "int32 [2,3,4]");
    expect(an_topk_at(AT, x, 2, &out), "float32 [2,3,2]");
    expect(out, "int32 [2,3,2]");
    expect(an_qr_at(AT, m, &out), "float32 [5,6,3]");
    expect(out, "float32 [5,3,3]");
    expect(an_svd_at(AT, m, &out, &third), "float32 [5,6,3]");
    expect(out, "float32 [5,3]");
    expect(third, "float32 [5,3,3]");
    expect(an_eigh_at(AT, leaf(&c, AN_F32, AN_SHAPE(4, 3, 3)), &out), "float32 [4,3]");
    expect(out, "float32 [4,3,3]");
    expect(an_cross_entropy_at(AT, x, ids), "float32 [2,3]");
    expect(an_conv2d_at(AT, leaf(&c, AN_F32, AN_SHAPE(1, 8, 9, 4)), leaf(&c, AN_F32, AN_SHAPE(6, 3, 3, 2)), NULL,
                        (an_window){.stride_h = 2, .pad_w = 1, .groups = 2}),
           "float32 [1,3,9,6]");
    case_close(&c);
}

static void broadcast_is_a_visible_expand(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *sum = an_add_at(AT, leaf(&c, AN_F32, AN_SHAPE(2, 3)), leaf(&c, AN_F32, AN_SHAPE(3)));
    const an_tensor *b = c.g->node[sum->src[1]];
    assert_int_equal(b->op, AN_OP_EXPAND);
    assert_int_equal(c.g->node[b->src[0]]->op, AN_OP_RESHAPE);
    case_close(&c);
}

static void shapes_that_do_not_fit_are_refused_with_both(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = leaf(&c, AN_F32, AN_SHAPE(2, 3, 4)), *y = leaf(&c, AN_F32, AN_SHAPE(2, 4, 4)),
              *w = leaf(&c, AN_F32, AN_SHAPE(5, 3));
    an_graph_scope_push(c.g, "gpt");
    an_graph_scope_push(c.g, "h.0.mlp");
    expect_refusal(&c, an_add_at(AT, x, y), AN_E_SHAPE,
                   "an_add: shapes [2,3,4] and [2,4,4] do not broadcast (axis 1) in gpt.h.0.mlp");
    an_graph_scope_pop(c.g);
    an_graph_scope_pop(c.g);
    expect_refusal(&c, an_matmul_at(AT, x, w), AN_E_SHAPE,
                   "an_matmul: shapes [2,3,4] and [5,3] are not [...,M,K] and [...,K,N]");
    expect_refusal(&c, an_matmul_at(AT, y, leaf(&c, AN_F32, AN_SHAPE(3, 4, 1))), AN_E_SHAPE,
                   "an_matmul: batch axes of [2,4,4] and [3,4,1] do not broadcast (axis 0)");
    expect_refusal(&c, an_reshape_at(AT, x, AN_SHAPE(5, 5)), AN_E_SHAPE,
                   "an_reshape: [2,3,4] has 24 elements, [5,5] has 25");
    expect_refusal(&c, an_reshape_at(AT, x, AN_SHAPE(5, -1)), AN_E_SHAPE,
                   "an_reshape: no length of axis 1 makes [2,3,4] fit");
    expect_refusal(&c, an_reshape_at(AT, x, AN_SHAPE(-2)), AN_E_SHAPE, "an_reshape: axis 0 has length -2");
    expect_refusal(&c, an_permute_at(AT, x, AN_SHAPE(0, 1)), AN_E_SHAPE, "an_permute: 2 axes for [2,3,4]");
    expect_refusal(&c, an_permute_at(AT, x, AN_SHAPE(0, 1, 1)), AN_E_SHAPE,
                   "an_permute: the axes given are no permutation of 3 axes");
    expect_refusal(&c, an_transpose_at(AT, x, 0, 3), AN_E_SHAPE, "an_transpose: axis 3 of [2,3,4]");
    expect_refusal(&c, an_expand_at(AT, x, AN_SHAPE(2, 6, 4)), AN_E_SHAPE,
                   "an_expand: [2,3,4] does not expand to [2,6,4]");
    expect_refusal(&c, an_slice_at(AT, x, 1, 2, 5, 1), AN_E_SHAPE,
                   "an_slice: [2,5) by 1 is not inside axis 1 of [2,3,4]");
    expect_refusal(&c, an_pad_at(AT, x, 1, -1, 0, 0), AN_E_SHAPE, "an_pad: -1 before and 0 after");
    expect_refusal(&c, an_sum_at(AT, x, AN_AXIS(4), false), AN_E_SHAPE, "an_sum: axis 4 of [2,3,4]");
    expect_refusal(&c, an_sum_at(AT, x, 0, false), AN_E_USAGE,
                   "an_sum: 0x0 is no set of axes: use AN_AXIS(i) | AN_AXIS(j) with i and j from -8 to 7, or AN_ALL");
    expect_refusal(&c, an_concat_at(AT, (an_tensor *[]){x, y}, 2, 0), AN_E_SHAPE,
                   "an_concat: parts [2,3,4] and [2,4,4] do not join along axis 0");
    expect_refusal(&c, an_linear_at(AT, x, w, NULL), AN_E_SHAPE,
                   "an_linear: x [2,3,4] and w [5,3] are not [...,in] and [out,in]");
    expect_refusal(&c, an_linear_at(AT, x, leaf(&c, AN_F32, AN_SHAPE(5, 4)), w), AN_E_SHAPE,
                   "an_linear: the bias is [5,3]; [5] is needed");
    expect_refusal(&c, an_layer_norm_at(AT, x, w, NULL, 1), AN_E_SHAPE,
                   "an_layer_norm: the gain is [5,3]; [4] is needed");
    expect_refusal(&c, an_scatter_add_at(AT, leaf(&c, AN_I32, AN_SHAPE(3)), x, 9), AN_E_SHAPE,
                   "an_scatter_add: index [3] does not lead rows of [2,3,4]");
    case_close(&c);
}

static void windows_attention_and_calls_refuse_with_shapes(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = leaf(&c, AN_F32, AN_SHAPE(1, 4, 4, 2)), *w = leaf(&c, AN_F32, AN_SHAPE(6, 5, 3, 2)),
              *v = leaf(&c, AN_F32, AN_SHAPE(1, 4, 5, 2));
    expect_refusal(&c, an_conv2d_at(AT, x, w, NULL, (an_window){0}), AN_E_SHAPE,
                   "an_conv2d: a kernel [6,5,3,2] (padding 0, 0; dilation 1, 1) does not fit into [1,4,4,2]");
    expect_refusal(&c, an_conv2d_at(AT, x, w, NULL, (an_window){.groups = 2}), AN_E_SHAPE,
                   "an_conv2d: x [1,4,4,2] and w [6,5,3,2] are not [N,H,W,C] and [O,KH,KW,C/groups] with 2 groups");
    expect_refusal(&c, an_conv2d_at(AT, x, w, NULL, (an_window){.stride_h = -1, .stride_w = 1}), AN_E_USAGE,
                   "an_conv2d: a stride of -1 x 1; strides begin at 1");
    expect(an_conv_transpose2d_at(AT, x, leaf(&c, AN_F32, AN_SHAPE(2, 3, 1, 5)), NULL,
                                  (an_window){.stride_h = 3, .pad_h = 1, .dilation_h = 2, .groups = 2, .extra_h = 2}),
           "float32 [1,14,4,10]");
    expect_refusal(
        &c, an_conv_transpose2d_at(AT, x, w, NULL, (an_window){0}), AN_E_SHAPE,
        "an_conv_transpose2d: x [1,4,4,2] and w [6,5,3,2] are not [N,H,W,I] and [I,KH,KW,O/groups] with 1 groups");
    for (int i = 0; i < 4; i++)
        expect_refusal(&c,
                       an_conv_transpose2d_at(AT, x, leaf(&c, AN_F32, AN_SHAPE(2, 1, 1, 2)), NULL,
                                              i == 0   ? (an_window){.extra_w = 1}
                                              : i == 1 ? (an_window){.stride_w = -1}
                                              : i == 2 ? (an_window){.pad_w = 3}
                                                       : (an_window){.dilation_w = -2}),
                       AN_E_SHAPE,
                       i == 0   ? "an_conv_transpose2d: a kernel [2,1,1,2] (stride 1, 1; padding 0, 0; dilation 1, 1; "
                                  "extra 0, 1) does not spread [1,4,4,2]"
                       : i == 1 ? "an_conv_transpose2d: a kernel [2,1,1,2] (stride 1, -1; padding 0, 0; dilation 1, 1; "
                                  "extra 0, 0) does not spread [1,4,4,2]"
                       : i == 2 ? "an_conv_transpose2d: a kernel [2,1,1,2] (stride 1, 1; padding 0, 3; dilation 1, 1; "
                                  "extra 0, 0) does not spread [1,4,4,2]"
                                : "an_conv_transpose2d: a kernel [2,1,1,2] (stride 1, 1; padding 0, 0; dilation 1, -2; "
                                  "extra 0, 0) does not spread [1,4,4,2]");
    expect_refusal(&c, an_max_pool_at(AT, x, (an_window){.kernel_h = 2, .kernel_w = 2, .pad_w = -1}), AN_E_USAGE,
                   "an_max_pool: a padding of 0 x -1; paddings begin at 0");
    expect_refusal(&c, an_max_pool_at(AT, x, (an_window){.kernel_h = 2, .kernel_w = 2, .pad_h = 2}), AN_E_SHAPE,
                   "an_max_pool: a window of 2 x 2 (padding 2, 0; dilation 1, 1) does not fit into [1,4,4,2]");
    expect_refusal(&c, an_attention_at(AT, x, x, v, 0, true, 0, NULL), AN_E_SHAPE,
                   "an_attention: q [1,4,4,2], k [1,4,4,2] and v [1,4,5,2] are not [B,H,T,D], [B,G,S,D] and [B,G,S,D], "
                   "where G divides H");
    expect_refusal(&c, an_attention_at(AT, x, x, x, 0, true, 1, NULL), AN_E_USAGE,
                   "an_attention: dropout 1 is not in [0,1)");
    expect_refusal(&c, an_attention_at(AT, x, x, x, 0, true, 0, x), AN_E_DTYPE,
                   "an_attention: behind k and v come n_keys, one int32, and a float32 mask [B,H,T,S], not float32 "
                   "[1,4,4,2]");
    an_tensor *ids = case_leaf(&c, AN_LEAF_INPUT, AN_I32, AN_SHAPE(4, 4), 0, 3);
    expect_refusal(&c, an_attention_with_at(AT, x, x, x, (an_attention_options){.mask = v}), AN_E_SHAPE,
                   "an_attention: the mask [1,4,5,2] does not broadcast to [1,4,4,4]");
    expect_refusal(&c, an_attention_with_at(AT, x, x, x, (an_attention_options){.mask = ids}), AN_E_DTYPE,
                   "an_attention: the mask is int32: a float, which is added to the scores, or bool");
    expect_refusal(&c, an_attention_with_at(AT, x, x, x, (an_attention_options){.window = 3}), AN_E_USAGE,
                   "an_attention: a window of 3, not causal; with causal it is 1 or more, or 0: none");
    expect_refusal(&c, an_attention_with_at(AT, x, x, x, (an_attention_options){.causal = true, .window = -1}),
                   AN_E_USAGE, "an_attention: a window of -1; with causal it is 1 or more, or 0: none");
    expect_refusal(&c, an_attention_with_at(AT, x, x, x, (an_attention_options){.n_keys = ids}), AN_E_DTYPE,
                   "an_attention: n_keys is one int32, not [4,4]");
    an_tensor *lse = an_slice_at(AT, an_reshape_at(AT, x, AN_SHAPE(1, 4, 8)), 2, 0, 4, 1), *dk, *dv;
    expect_refusal(&c, an_attention_lse_at(AT, x, x, an_cast_at(AT, x, AN_F64), 0, true, &dk), AN_E_DTYPE,
                   "an_attention_lse: operand 2 is float64 [1,4,4,2]: takes float32 or bfloat16, all the same, with "
                   "elements");
    expect_refusal(&c, an_attention_grad_at(AT, x, x, x, v, lse, x, 0, true, &dk, &dv), AN_E_SHAPE,
                   "an_attention_grad: o, lse and dy are not of q's shape [1,4,4,2]");
    expect_refusal(&c, an_attention_grad_at(AT, x, x, x, x, x, x, 0, true, &dk, &dv), AN_E_SHAPE,
                   "an_attention_grad: o, lse and dy are not of q's shape [1,4,4,2]");
    expect_refusal(&c, an_topk_at(AT, x, 3, NULL), AN_E_SHAPE, "an_topk: the 3 largest of [1,4,4,2]");
    expect_refusal(&c, an_cholesky_at(AT, v), AN_E_SHAPE, "an_cholesky: [1,4,5,2] is not a batch of square matrices");
    expect_refusal(&c, an_qr_at(AT, an_transpose_at(AT, v, 2, 3), NULL), AN_E_SHAPE,
                   "an_qr: [1,4,2,5] is not a batch of matrices with at least as many rows as columns: "
                   "transpose a wide one");
    expect_refusal(&c, an_dropout_at(AT, x, 1), AN_E_USAGE, "an_dropout: p is 1; [0,1) is possible");
    case_close(&c);
}

static void dtypes_are_never_promoted(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *f = leaf(&c, AN_F32, AN_SHAPE(3)), *h = leaf(&c, AN_BF16, AN_SHAPE(3)),
              *i = leaf(&c, AN_I32, AN_SHAPE(3)), *p = leaf(&c, AN_BOOL, AN_SHAPE(3));
    expect_refusal(&c, an_add_at(AT, f, h), AN_E_DTYPE, "an_add: dtypes float32 and bfloat16 differ: cast one of them");
    expect_refusal(&c, an_exp_at(AT, i), AN_E_DTYPE, "an_exp: takes floats, not int32");
    expect_refusal(&c, an_add_at(AT, p, p), AN_E_DTYPE, "an_add: takes numbers, not bool");
    expect_refusal(&c, an_idiv_at(AT, f, f), AN_E_DTYPE, "an_idiv: takes integers, not float32");
    expect_refusal(&c, an_not_at(AT, i), AN_E_DTYPE, "an_not: takes bools, not int32");
    expect_refusal(&c, an_and_at(AT, f, f), AN_E_DTYPE, "an_and: takes integers and bools, not float32");
    expect_refusal(&c, an_where_at(AT, i, f, f), AN_E_DTYPE, "an_where: operand 1 is int32; bool is needed");
    expect_refusal(&c, an_mean_at(AT, i, AN_ALL, false), AN_E_DTYPE, "an_mean: takes floats, not int32: cast first");
    expect_refusal(&c, an_sum_at(AT, p, AN_ALL, false), AN_E_DTYPE, "an_sum: takes numbers, not bool: cast first");
    expect_refusal(&c, an_gather_at(AT, f, f), AN_E_DTYPE, "an_gather: operand 2 is float32; int32 is needed");
    expect_refusal(&c, an_cast_at(AT, f, (an_dtype)99), AN_E_DTYPE, "an_cast: 99 is no dtype");
    expect_refusal(&c, an_cross_entropy_at(AT, leaf(&c, AN_F32, AN_SHAPE(3, 5)), f), AN_E_DTYPE,
                   "an_cross_entropy: labels are float32; int32 is needed");
    expect_refusal(&c, an_matmul_as_at(AT, leaf(&c, AN_F32, AN_SHAPE(2, 2)), leaf(&c, AN_F32, AN_SHAPE(2, 2)), AN_BF16),
                   AN_E_DTYPE, "an_matmul_as: a product of float32 as bfloat16");
    expect_refusal(
        &c, an_all_reduce_at(AT, i), AN_E_DTYPE,
        "an_all_reduce: int32: ranks add floating-point numbers; cast it, or gather it and sum the first axis");
    expect_refusal(
        &c, an_all_reduce_at(AT, p), AN_E_DTYPE,
        "an_all_reduce: bool: ranks add floating-point numbers; cast it, or gather it and sum the first axis");
    case_close(&c);
}

static void shapes_no_machine_holds_are_refused(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    expect_refusal(&c, an_full_at(AT, &c.cx, AN_F32, AN_SHAPE(1 << 30, 1 << 30), 0), AN_E_SHAPE,
                   "an_full: the result has more elements than any machine holds");
    expect_refusal(&c, an_full_at(AT, &c.cx, AN_F32, AN_SHAPE((int64_t)1 << 40), 0), AN_E_SHAPE,
                   "an_full: axis 0 has length 1099511627776");
    expect_refusal(&c, an_full_at(AT, &c.cx, AN_F32, ((an_shape){.rank = 9}), 0), AN_E_SHAPE,
                   "an_full: 9 axes; at most 8 are possible");
    expect_refusal(&c, an_iota_at(AT, &c.cx, AN_SHAPE(3), 1), AN_E_SHAPE, "an_iota: axis 1 of a shape of rank 1");
    an_tensor *wide =
        an_expand_at(AT, leaf(&c, AN_F32, AN_SHAPE(1, 1, 2)), AN_SHAPE(1 << 16, 1 << 16, 2)); /* rows beyond int32 */
    assert_true(an_softmax_at(AT, wide, -1)->poison);
    assert_int_equal(c.cx.err.code, AN_E_SHAPE);
    case_close(&c);
}

static void empty_tensors_have_shapes_too(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = leaf(&c, AN_F32, AN_SHAPE(0, 3));
    expect(an_add_at(AT, x, leaf(&c, AN_F32, AN_SHAPE(1, 3))), "float32 [0,3]");
    expect(an_sum_at(AT, x, AN_AXIS(0), false), "float32 [3]");
    expect(an_matmul_at(AT, x, leaf(&c, AN_F32, AN_SHAPE(3, 2))), "float32 [0,2]");
    expect(an_reshape_at(AT, x, AN_SHAPE(3, 0, 5)), "float32 [3,0,5]");
    assert_true(case_item(&c, an_sum_at(AT, x, AN_ALL, false)) == 0);
    expect_refusal(&c, an_max_at(AT, x, AN_AXIS(0), false), AN_E_SHAPE,
                   "an_max: no elements to choose from in [1,0,3]");
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_give_the_documented_shapes),
        cmocka_unit_test(broadcast_is_a_visible_expand),
        cmocka_unit_test(shapes_that_do_not_fit_are_refused_with_both),
        cmocka_unit_test(windows_attention_and_calls_refuse_with_shapes),
        cmocka_unit_test(dtypes_are_never_promoted),
        cmocka_unit_test(shapes_no_machine_holds_are_refused),
        cmocka_unit_test(empty_tensors_have_shapes_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
