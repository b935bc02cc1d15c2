/* test_emit.c: the door into the array: merging, the key, reset, persistent tensors, scopes, streams, misuse, and no
 * memory. */
#include "graph_case.h"

static an_tensor *param(graph_case *c)
{
    return case_leaf(c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(4, 3), -1, 1);
}

static void equal_nodes_are_one_node(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = param(&c), *y = param(&c);
    an_tensor *sum = an_add_at("a.c:1", x, y);
    int n = c.g->n;
    assert_ptr_equal(an_add_at("b.c:2", x, y), sum);
    assert_ptr_equal(an_add_at("b.c:3", y, x), sum);
    assert_int_equal(c.g->n, n);
    assert_ptr_not_equal(an_sub_at(AT, x, y), an_sub_at(AT, y, x));
    case_close(&c);
}

static void nodes_that_differ_in_one_attribute_stay_apart(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = param(&c);
    assert_ptr_not_equal(an_slice_at(AT, x, 0, 0, 2, 1), an_slice_at(AT, x, 0, 1, 3, 1));
    assert_ptr_not_equal(an_pad_at(AT, x, 0, 1, 0, 0.0), an_pad_at(AT, x, 0, 1, 0, -0.0));
    assert_ptr_not_equal(an_const_at(AT, &c.cx, AN_F32, 2), an_const_at(AT, &c.cx, AN_BF16, 2));
    assert_ptr_not_equal(an_const_at(AT, &c.cx, AN_F32, 0.0), an_const_at(AT, &c.cx, AN_F32, -0.0));
    assert_ptr_equal(an_const_at(AT, &c.cx, AN_F32, NAN), an_const_at(AT, &c.cx, AN_F32, NAN));
    case_close(&c);
}

static void many_nodes_are_still_found(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *first[3000];
    for (int i = 0; i < 3000; i++) first[i] = an_const_at(AT, &c.cx, AN_I32, i);
    int n = c.g->n;
    for (int i = 0; i < 3000; i++) assert_ptr_equal(an_const_at(AT, &c.cx, AN_I32, i), first[i]);
    assert_int_equal(c.g->n, n);
    case_close(&c);
}

static void random_nodes_never_merge_and_repeat_after_a_reset(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    int64_t stream[3];
    for (int step = 0; step < 2; step++) {
        an_tensor *a = an_rand_at(AT, &c.cx, AN_SHAPE(4)), *b = an_rand_at(AT, &c.cx, AN_SHAPE(4));
        assert_true(an_graph_scope_push(c.g, "h.0"));
        an_tensor *d = an_rand_at(AT, &c.cx, AN_SHAPE(4));
        an_graph_scope_pop(c.g);
        assert_ptr_not_equal(a, b);
        assert_int_equal(a->attr[1], 1);
        if (step == 1) {
            assert_int_equal(a->attr[0], stream[0]);
            assert_int_equal(b->attr[0], stream[1]);
            assert_int_equal(d->attr[0], stream[2]);
        }
        stream[0] = a->attr[0], stream[1] = b->attr[0], stream[2] = d->attr[0];
        assert_true(stream[0] != stream[1] && stream[1] != stream[2] && stream[0] != stream[2]);
        an_graph_reset(c.g);
    }
    case_close(&c);
}

static uint64_t key_of_step(graph_case *c, double number, const char *at)
{
    an_graph_reset(c->g);
    an_tensor *y = an_tanh_at(at, an_mul_num_at(at, an_add_at(at, c->leaf[0], c->leaf[1]), number));
    an_graph_backward(c->g, an_sum_at(at, y, AN_ALL, false));
    return c->g->key;
}

static void the_key_follows_the_nodes_and_nothing_else(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    param(&c), param(&c);
    uint64_t key = key_of_step(&c, 0.3, "a.c:1");
    assert_true(key_of_step(&c, 0.3, "b.c:2") == key);
    an_graph_scope_push(c.g, "elsewhere");
    assert_true(key_of_step(&c, 0.3, "b.c:2") == key);
    assert_true(key_of_step(&c, 0.4, "a.c:1") != key);
    case_close(&c);
}

/* C leaves the order of arguments open. Every formula and gradient here must come out in one order all the same, or
 * sums of gradients would depend on the compiler. When a formula changes on purpose, take the new key, with gcc and
 * with clang. */
static void formulas_give_the_same_array_under_every_compiler(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = case_leaf(&c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(3, 300, 4), -1, 1);
    an_tensor *w = case_leaf(&c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(4, 4), -1, 1);
    an_tensor *b = case_leaf(&c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(4), -1, 1);
    an_tensor *ids = case_leaf(&c, AN_LEAF_INPUT, AN_I32, AN_SHAPE(3, 300), 0, 4);
    an_tensor *h = an_linear_at(AT, an_layer_norm_at(AT, x, b, b, 1e-5), w, b), *r, *s, *v;
    h = an_gelu_tanh_at(AT, an_gelu_at(AT, an_silu_at(AT, an_softplus_at(AT, h))));
    h = an_rms_norm_at(AT, an_dropout_at(AT, h, 0.1), b, 1e-5);
    h = an_batch_norm_at(AT, h, b, b, b, b, 0.1, 1e-5, true);
    h = an_add_at(AT, h, an_softmax_at(AT, h, 1));
    h = an_add_at(AT, h, an_log_softmax_at(AT, h, -1));
    h = an_add_at(AT, h, an_var_at(AT, h, AN_AXIS(1), true));
    h = an_mul_at(AT, h, an_reshape_at(AT, an_min_at(AT, w, AN_ALL, false), AN_SHAPE(1)));
    an_tensor *q = an_qr_at(AT, w, &r), *u = an_svd_at(AT, w, &s, &v);
    h = an_matmul_at(AT, h, q);
    h = an_matmul_at(AT, h, r);
    h = an_add_at(AT, an_matmul_at(AT, h, u), s);
    h = an_matmul_at(AT, h, v);
    h = an_matmul_at(AT, h, an_cholesky_at(AT, w));
    h = an_add_at(AT, h, an_eigh_at(AT, w, &v));
    h = an_matmul_at(AT, h, an_solve_at(AT, w, v));
    h = an_matmul_at(AT, h, an_trisolve_at(AT, w, w, true, false));
    h = an_max_at(AT, an_cumsum_at(AT, an_sort_at(AT, h, true, NULL), true), AN_AXIS(0), true);
    h = an_expand_at(AT, h, AN_SHAPE(3, 300, 4));
    an_tensor *loss = an_mean_at(AT, an_linear_cross_entropy_at(AT, h, w, ids), AN_ALL, false);
    assert_int_equal(an_graph_backward(c.g, loss), AN_OK);
    const uint64_t want = 0x65cd280a6eaf0130u;
    if (c.g->key != want) fail_msg("the key of %d nodes is 0x%016llx", c.g->n, (unsigned long long)c.g->key);
    case_close(&c);
}

static void a_persistent_tensor_is_one_leaf_a_step(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = param(&c);
    for (int step = 0; step < 3; step++) {
        an_tensor *leaf = an_use(c.g, x, AT, "test");
        assert_int_equal(leaf->op, AN_OP_LEAF);
        assert_int_equal(leaf->attr[0], AN_LEAF_PARAM);
        assert_ptr_equal(an_use(c.g, x, AT, "test"), leaf);
        an_add_at(AT, x, x);
        assert_int_equal(c.g->n, 2);
        an_graph_reset(c.g);
    }
    case_close(&c);
}

static void scopes_nest_and_name_nodes(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = param(&c);
    for (int round = 0; round < 2; round++) {
        an_graph_scope_push(c.g, "gpt");
        an_graph_scope_push(c.g, "h.0");
        assert_string_equal(c.g->scopes[an_exp_at(AT, x)->scope], "gpt.h.0");
        an_graph_scope_pop(c.g);
        an_graph_scope_push(c.g, "h.1");
        assert_string_equal(c.g->scopes[c.g->scope], "gpt.h.1");
        an_graph_scope_pop(c.g);
        an_graph_scope_pop(c.g);
        assert_int_equal(c.g->n_scopes, 4);
    }
    an_graph_scope_pop(c.g);
    assert_string_equal(c.cx.err.text, "an_scope_pop: no scope is open");
    case_close(&c);
}

static void more_scopes_than_there_was_room_for_keep_their_names(void **state)
{
    (void)state;
    graph_case c;
    char name[16];
    case_open(&c);
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "h.%d", i);
        assert_true(an_graph_scope_push(c.g, name));
        assert_string_equal(c.g->scopes[c.g->scope], name);
        an_graph_scope_pop(c.g);
    }
    case_close(&c);
}

/* ------------------------------------------------------------------------------------------------ misuse */

static void a_tensor_of_an_ended_step_is_named(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = param(&c);
    an_graph_scope_push(c.g, "gpt");
    an_tensor *old = an_exp_at("model.c:3", x);
    an_graph_reset(c.g);
    an_exp_at(AT, x); /* the new step has a node in the same place */
    assert_true(an_add_at("model.c:9", x, old)->poison);
    assert_string_equal(c.cx.err.text,
                        "model.c:9: an_add: the operand [4,3] of gpt from model.c:3 is of a step that an_reset has "
                        "ended; build it again, or keep it in a state in gpt");
    assert_int_equal(c.cx.err.code, AN_E_CONTEXT);
    case_close(&c);
}

static void a_tensor_of_another_context_is_named_with_both_devices(void **state)
{
    (void)state;
    graph_case a, b;
    case_open(&a);
    case_open(&b);
    a.g->device_name = "cpu";
    b.g->device_name = "cuda:0";
    an_tensor *x = param(&a), *y = param(&b);
    assert_true(an_add_at("model.c:9", x, y)->poison);
    assert_string_equal(
        a.cx.err.text,
        "model.c:9: an_add: the operand [4,3] belongs to another context (on cuda:0, this one is on cpu)");
    assert_int_equal(b.cx.err.code, AN_OK);
    case_close(&a);
    case_close(&b);
}

static void null_operands_are_counted(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    assert_true(an_add_at("model.c:9", param(&c), NULL)->poison);
    assert_string_equal(c.cx.err.text, "model.c:9: an_add: operand 2 is NULL");
    assert_true(an_add_at("model.c:9", NULL, NULL)->poison); /* nowhere to record it */
    assert_true(an_concat_at("model.c:9", NULL, 0, 0)->poison);
    case_close(&c);
}

static void poison_spreads_and_the_first_sentence_stays(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *bad = an_add_at("model.c:5", param(&c), case_leaf(&c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(5), 0, 1));
    int n = c.g->n;
    an_tensor *t[] = {bad,
                      an_matmul_at(AT, bad, bad),
                      an_softmax_at(AT, bad, 0),
                      an_layer_norm_at(AT, bad, bad, NULL, 1),
                      an_mean_at(AT, bad, AN_ALL, false),
                      an_reshape_at(AT, bad, AN_SHAPE(1)),
                      an_concat_at(AT, &bad, 1, 0),
                      an_attention_at(AT, bad, bad, bad, 0, true, 0, NULL),
                      an_sort_at(AT, bad, true, NULL),
                      an_cross_entropy_at(AT, bad, bad),
                      an_gelu_at(AT, bad),
                      an_where_at(AT, bad, bad, bad)};
    for (size_t i = 0; i < AN_COUNT(t); i++) assert_ptr_equal(t[i], c.g->poison);
    assert_int_equal(c.g->n, n);
    assert_int_not_equal(an_graph_backward(c.g, bad), AN_OK);
    assert_string_equal(c.cx.err.text, "model.c:5: an_add: shapes [4,3] and [5] do not broadcast (axis 1)");
    case_close(&c);
}

static void without_folding_every_call_is_a_node(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = param(&c);
    c.g->keep_duplicates = true;
    an_tensor *a = an_exp_at(AT, x);
    assert_ptr_not_equal(an_exp_at(AT, x), a);
    assert_int_equal(an_neg_at(AT, an_neg_at(AT, x))->op, AN_OP_NEG);
    case_close(&c);
}

/* ------------------------------------------------------------------------------------------------ no memory */

/* Opens a graph, builds a step with every kind of memory in it (nodes, table, scopes, rules, gradients), and says how
 * it went. */
static an_status build_from_nothing(an_err *err, void *arg)
{
    struct an_ctx cx = {0};
    (void)arg;
    AN_TRY(an_graph_open(err, &cx, &cx.g));
    int32_t shape[2] = {8, 8};
    an_tensor *x = an_persistent(&cx.g, AN_LEAF_PARAM, 0, AN_F32, 2, shape);
    for (int i = 0; i < 90 && err->code == AN_OK; i++) {
        char name[16];
        snprintf(name, sizeof name, "h.%d", i);
        if (an_graph_scope_push(&cx.g, name)) {
            x = an_layer_norm_at(AT, an_linear_at(AT, x, x, NULL), NULL, NULL, 1e-5);
            an_graph_scope_pop(&cx.g);
        }
    }
    an_tensor *loss = an_mean_at(AT, an_mul_at(AT, x, an_exp_at(AT, x)), AN_ALL, false);
    an_status status = an_graph_backward(&cx.g, loss);
    if (status == AN_OK) status = err->code;
    an_graph_close(&cx.g);
    return status;
}

static void any_refused_allocation_is_a_sentence_and_not_a_crash(void **state)
{
    (void)state;
    test_refuse_each_allocation(build_from_nothing, NULL);
}

static void a_warm_step_allocates_nothing(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = param(&c);
    for (int step = 0; step < 4; step++) {
        an_graph_reset(c.g);
        test_refuse_allocation(0);
        an_graph_scope_push(c.g, "gpt");
        an_tensor *y = an_layer_norm_at(AT, an_gelu_at(AT, x), NULL, NULL, 1e-5);
        assert_int_equal(an_graph_backward(c.g, an_mean_at(AT, y, AN_ALL, false)), AN_OK);
        an_graph_scope_pop(c.g);
        if (step >= 2) assert_int_equal(test_allocations(), 0);
    }
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_nodes_are_one_node),
        cmocka_unit_test(nodes_that_differ_in_one_attribute_stay_apart),
        cmocka_unit_test(many_nodes_are_still_found),
        cmocka_unit_test(random_nodes_never_merge_and_repeat_after_a_reset),
        cmocka_unit_test(the_key_follows_the_nodes_and_nothing_else),
        cmocka_unit_test(formulas_give_the_same_array_under_every_compiler),
        cmocka_unit_test(a_persistent_tensor_is_one_leaf_a_step),
        cmocka_unit_test(scopes_nest_and_name_nodes),
        cmocka_unit_test(more_scopes_than_there_was_room_for_keep_their_names),
        cmocka_unit_test(a_tensor_of_an_ended_step_is_named),
        cmocka_unit_test(a_tensor_of_another_context_is_named_with_both_devices),
        cmocka_unit_test(null_operands_are_counted),
        cmocka_unit_test(poison_spreads_and_the_first_sentence_stays),
        cmocka_unit_test(without_folding_every_call_is_a_node),
        cmocka_unit_test(any_refused_allocation_is_a_sentence_and_not_a_crash),
        cmocka_unit_test(a_warm_step_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
