/* test_operations.c: single operations whose numbers PyTorch does not have for a golden: what is refused, and what must not take long. */
#include "import/graphs.h"
#include <math.h>
#include <stdlib.h>
#include <time.h>

#define WRITTEN(view, args, sizes)                                                                                     \
    GRAPH(                                                                                                             \
        META("x", 8, INT(3) "," INT(4)) "," META("y", 8, INT(3) "," INT(4)) "," META("v", 8, sizes) "," META("w", 8,   \
                                                                                                             sizes),   \
        NODE("aten.mul.Scalar", SELF "," ARG("other", INT(2)), TENSOR("y")) "," NODE(                                  \
            view, ARG("self", TENSOR("y")) "," args,                                                                   \
            TENSOR("v")) "," NODE("aten.mul_.Scalar", ARG("self", TENSOR("v")) "," ARG("other", INT(3)), TENSOR("w")), \
        IN("x"), OUT("y"))

/* Views of all elements in an order that is not their tensor's. */
static void a_write_through_strides_is_refused(void **unused)
{
    (void)unused;
    static const char *const graph[] = {
        WRITTEN("aten.as_strided.default", INTS("size", "4,3") "," INTS("stride", "1,4"), INT(4) "," INT(3)),
        WRITTEN("aten.unfold.default", ARG("dimension", INT(0)) "," ARG("size", INT(3)) "," ARG("step", INT(1)),
                INT(1) "," INT(4) "," INT(3))};
    double x[12] = {0};
    const int64_t dim[] = {3, 4};
    for (size_t k = 0; k < AN_COUNT(graph); k++) {
        function f;
        open_function(&f, graph[k]);
        an_import_array out[1], in[1] = {array(x, AN_F64, 2, dim, NULL)};
        assert_int_not_equal(an_import_call_plan(f.m, in, out, f.why), AN_OK);
        assert_non_null(strstr(f.why, "cannot be written through"));
        close_function(&f);
    }
}

/* Each weight divided by a sum of its own would take half a minute. */
static void a_long_axis_is_made_one_pixel_at_once(void **unused)
{
    (void)unused;
    enum { LONG = 60000 };
    static double x[LONG];
    const int64_t dim[] = {1, 1, 1, LONG};
    double z[1] = {0};
    function f;
    for (int i = 0; i < LONG; i++) x[i] = 3;
    an_import_array out[1], in[1] = {array(x, AN_F64, 4, dim, NULL)};
    const clock_t from = clock();
    open_operation(&f, "aten._upsample_bicubic2d_aa.vec",
                   ARG("input", TENSOR("x")) "," INTS("output_size", "1,1") "," ARG(
                       "align_corners", "{\"as_bool\":false}") "," ARG("scale_factors", "{\"as_none\":true}"),
                   in, 1);
    call(&f, in, out, (void *[]){z}, 1);
    assert_true(fabs(z[0] - 3) < 1e-9);
    assert_true((double)(clock() - from) / CLOCKS_PER_SEC < 10);
    close_function(&f);
}

/* PyTorch refuses them; here each is its plane's nearest cell, and no other plane is written. */
static void a_maximum_is_put_back_into_its_own_plane(void **unused)
{
    (void)unused;
    const int64_t dim[] = {1, 2, 1, 2};
    double x[4] = {1, 2, 3, 5}, z[4];
    int64_t at[4] = {3, 0, 1, 1LL << 20};
    const double want[4] = {2, 1, 0, 4};
    function f;
    an_import_array out[1],
        in[3] = {array(x, AN_F64, 4, dim, NULL), array(x, AN_F64, 4, dim, NULL), array(at, AN_I64, 4, dim, NULL)};
    open_operation(&f, "aten.max_unpool2d.default", SELF "," ARG("indices", TENSOR("i")) "," INTS("output_size", "1,2"),
                   in, 3);
    call(&f, in, out, (void *[]){z}, 1);
    for (int i = 0; i < 4; i++) assert_true(z[i] == want[i]);
    close_function(&f);
}

/* Attention of x [1,1,64,4] (float32) under a mask that the graph computes of positions: key j of query i counts where i - j is at least `from`
 * and less than `to`. What its kernel multiplies tells what became of the mask. */
static uint64_t work_of_attention(const char *from, const char *to)
{
    char text[4096];
    const int64_t dim[] = {1, 1, 64, 4};
    float x[256], z[256];
    function f;
    for (int i = 0; i < 256; i++) x[i] = (float)(i * 37 % 19) / 19;
    snprintf(
        text, sizeof text,
        GRAPH(
            META("x", 7, INT(1) "," INT(1) "," INT(64) "," INT(4)) "," META("r", 5, INT(64)) "," META(
                "c", 5,
                INT(64) "," INT(
                    1)) "," META("d", 5,
                                 INT(64) "," INT(
                                     64)) "," META("a", 12,
                                                   INT(64) "," INT(
                                                       64)) "," META("b", 12,
                                                                     INT(64) "," INT(
                                                                         64)) "," META("m", 12,
                                                                                       INT(64) "," INT(
                                                                                           64)) "," META("z", 7,
                                                                                                         INT(1) "," INT(1) "," INT(
                                                                                                             64) "," INT(4)),
            NODE("aten.arange.default", ARG("end", INT(64)), TENSOR("r")) "," NODE("aten.view.default", ARG("self", TENSOR("r")) "," INTS("size", "64,1"), TENSOR("c")) "," NODE(
                "aten.sub.Tensor",
                ARG("self", TENSOR("c")) "," ARG("other", TENSOR("r")),
                TENSOR(
                    "d")) "," NODE("aten.ge.Scalar", ARG("self", TENSOR("d")) "," ARG("other", "{\"as_int\":%s}"),
                                   TENSOR(
                                       "a")) "," NODE("aten.lt.Scalar",
                                                      ARG("self", TENSOR("d")) "," ARG("other", "{\"as_int\":%s}"),
                                                      TENSOR(
                                                          "b")) "," NODE("aten.logical_and.default",
                                                                         ARG("self", TENSOR("a")) "," ARG("other",
                                                                                                          TENSOR("b")),
                                                                         TENSOR(
                                                                             "m")) "," NODE("aten.scaled_dot_product_"
                                                                                            "attention.default",
                                                                                            ARG("query", TENSOR("x")) "," ARG(
                                                                                                "key",
                                                                                                TENSOR(
                                                                                                    "x")) "," ARG("valu"
                                                                                                                  "e",
                                                                                                                  TENSOR(
                                                                                                                      "x")) "," ARG("attn_mask",
                                                                                                                                    TENSOR(
                                                                                                                                        "m")),
                                                                                            TENSOR("z")),
            IN("x"), OUT("z")),
        from, to);
    open_function(&f, text);
    an_import_array out[1], in[1] = {array(x, AN_F32, 4, dim, NULL)};
    call(&f, in, out, (void *[]){z}, 1);
    for (int i = 0, low = atoi(from), high = atoi(to); i < 64; i++) {
        double sum = 0, o[4] = {0};
        for (int j = 0; j < 64; j++) {
            double s = 0;
            for (int d = 0; d < 4; d++) s += (double)x[4 * i + d] * (double)x[4 * j + d] / 2;
            if (i - j < low || i - j >= high) continue;
            sum += exp(s);
            for (int d = 0; d < 4; d++) o[d] += exp(s) * (double)x[4 * j + d];
        }
        for (int d = 0; d < 4; d++) assert_true(fabs(z[4 * i + d] - (sum > 0 ? o[d] / sum : 0)) < 1e-5);
    }
    an_bill bill;
    assert_int_equal(an_report(f.cx, &bill), AN_OK);
    close_function(&f);
    return bill.flops;
}

static void masks_of_positions_become_attentions_argument(void **unused)
{
    (void)unused;
    const uint64_t whole = 4 * 64 * 64 * 4;
    assert_true(work_of_attention("-64", "64") >= whole);
    assert_in_range(work_of_attention("0", "64"), whole / 2, whole / 2 + 1000);          /* causal */
    assert_in_range(work_of_attention("0", "3"), whole / 64 * 3, whole / 64 * 3 + 1000); /* a window */
    assert_in_range(work_of_attention("0", "1"), whole / 64, whole / 64 + 1000);
    assert_true(work_of_attention("-2", "3") >= whole); /* to both sides: an operand */
    assert_true(work_of_attention("1", "3") >= whole);  /* not its own key, query 0 none at all */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_write_through_strides_is_refused),
                                       cmocka_unit_test(a_long_axis_is_made_one_pixel_at_once),
                                       cmocka_unit_test(a_maximum_is_put_back_into_its_own_plane),
                                       cmocka_unit_test(masks_of_positions_become_attentions_argument)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
