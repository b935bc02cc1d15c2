/* test_print.c: the array's text, word for word: it is what golden tests and people read. */
#include "graph_case.h"

static void expect_text(const an_graph *g, int32_t from, const char *want)
{
    an_text text = {0};
    an_graph_print(g, from, &text);
    assert_false(text.failed);
    assert_string_equal(text.data ? text.data : "", want);
    an_text_free(&text);
}

static void a_step_prints_one_line_a_node(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_tensor *x = case_leaf(&c, AN_LEAF_INPUT, AN_F32, AN_SHAPE(6, 4), 0, 1);
    an_tensor *w = case_leaf(&c, AN_LEAF_PARAM, AN_F32, AN_SHAPE(3, 4), 0, 1);
    an_graph_scope_push(c.g, "net");
    an_tensor *y = an_tanh_at(AT, an_linear_at(AT, x, w, NULL));
    an_graph_scope_pop(c.g);
    an_tensor *loss = an_mean_at(AT, y, AN_ALL, false);
    assert_int_equal(an_graph_backward(c.g, loss), AN_OK);
    expect_text(c.g, 0,
                "%0 = LEAF float32 [6,4] {2,0}  ; net\n"
                "%1 = LEAF float32 [3,4] {0,1}  ; net\n"
                "%2 = PERMUTE float32 [4,3] %1 {1,0}  ; net\n"
                "%3 = MATMUL float32 [6,3] %0 %2  ; net\n"
                "%4 = TANH float32 [6,3] %3  ; net\n"
                "%5 = RESHAPE float32 [1,18,1] %4\n"
                "%6 = SUM float32 [1,1,1] %5\n"
                "%7 = RESHAPE float32 [] %6\n"
                "%8 = CONST float32 [] 18\n"
                "%9 = DIV float32 [] %7 %8\n"
                "%10 = CONST float32 [] 1\n"
                "%11 = CONST float32 [] 0.055555556\n"
                "%12 = RESHAPE float32 [1,1,1] %11\n"
                "%13 = EXPAND float32 [1,18,1] %12\n"
                "%14 = RESHAPE float32 [1,1] %11\n"
                "%15 = EXPAND float32 [6,3] %14\n"
                "%16 = MUL float32 [6,3] %4 %4  ; net\n"
                "%17 = RESHAPE float32 [1,1] %10  ; net\n"
                "%18 = EXPAND float32 [6,3] %17  ; net\n"
                "%19 = SUB float32 [6,3] %18 %16  ; net\n"
                "%20 = MUL float32 [6,3] %15 %19  ; net\n"
                "%21 = MATMUL float32 [6,4] %20 %1  ; net\n"
                "%22 = PERMUTE float32 [3,6] %20 {1,0}  ; net\n"
                "%23 = MATMUL float32 [3,4] %22 %0  ; net\n"
                "%24 = PERMUTE float32 [4,3] %23 {1,0}  ; net\n");
    case_close(&c);
}

static void numbers_and_attributes_are_spelled_out(void **state)
{
    (void)state;
    graph_case c;
    case_open(&c);
    an_const_at(AT, &c.cx, AN_F32, 0.1);
    an_const_at(AT, &c.cx, AN_F64, 0.1);
    an_const_at(AT, &c.cx, AN_I64, -9007199254740992.0);
    an_const_at(AT, &c.cx, AN_BOOL, 1);
    an_tensor *q = PARAM(&c, AN_SHAPE(1, 2, 3, 4), 0, 1);
    case_attention(q, q, q, 0, true, 0, NULL);
    an_pad_at(AT, PARAM(&c, AN_SHAPE(2), 0, 1), 0, 1, 2, -1.5);
    expect_text(c.g, 0,
                "%0 = CONST float32 [] 0.100000001\n"
                "%1 = CONST float64 [] 0.10000000000000001\n"
                "%2 = CONST int64 [] -9007199254740992\n"
                "%3 = CONST bool [] 1\n"
                "%4 = LEAF float64 [1,2,3,4] {0,0}\n"
                "%5 = ATTENTION float64 [1,2,3,4] %4 %4 %4 {1,0} 0.5 0\n"
                "%6 = LEAF float64 [2] {0,1}\n"
                "%7 = PAD float64 [5] %6 {1,2} -1.5\n");
    expect_text(c.g, 7, "%7 = PAD float64 [5] %6 {1,2} -1.5\n");
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_prints_one_line_a_node),
        cmocka_unit_test(numbers_and_attributes_are_spelled_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
