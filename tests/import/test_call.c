/* test_call.c: a graph as a function of the caller's arrays (an_import_call), and the gradients that are operations. */
#include "lib/test.h"
#include "import/graphs.h"
#include <anneal_import.h>
#include <anneal_interop.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char product[] =
    GRAPH(META("x", 8, INT(3) "," INT(4)) "," META("w", 8, INT(4) "," INT(2)) "," META("y", 8, INT(3) "," INT(2)),
          NODE("aten.mm.default", ARG("self", TENSOR("x")) "," ARG("mat2", TENSOR("w")), TENSOR("y")),
          IN("x") "," IN("w"), OUT("y"));

#define FREE "{\"as_expr\":{\"expr_str\":\"s0\",\"hint\":{\"as_int\":3}}}"

static void another_number_of_samples_and_an_odd_address_are_copied_and_counted(void **unused)
{
    (void)unused;
    static const char graph[] =
        GRAPH(META("x", 8, FREE "," INT(2)) "," META("y", 8, FREE "," INT(2)),
              NODE("aten.neg.default", ARG("self", TENSOR("x")), TENSOR("y")), IN("x"), OUT("y"));
    union {
        double x[11];
        char bytes[88];
    } odd = {{0}};
    double x[10], y[10];
    function f;
    open_function(&f, graph);
    for (int64_t n = 3; n <= 5; n++) { /* 3: the size of the export, read and written in place */
        const int64_t dim[] = {n, 2}, turned[] = {1, n};
        an_import_counts before, after;
        an_import_array out[1], in[1] = {array(x, AN_F64, 2, dim, NULL)};
        for (int i = 0; i < 10; i++) x[i] = i + 1;
        an_import_call_counts(f.m, &before);
        assert_int_equal(an_import_call_plan(f.m, in, out, f.why), AN_OK);
        out[0] = array(y, AN_F64, 2, dim, turned);
        assert_int_equal(an_import_call(f.m, in, out, f.why), AN_OK);
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < 2; k++) assert_true(y[i + k * n] == -x[2 * i + k]);
        an_import_call_counts(f.m, &after);
        assert_int_equal(after.copies - before.copies, n == 3 ? 0 : 2);
        assert_int_equal(after.copied_bytes - before.copied_bytes, n == 3 ? 0 : 2 * n * 16);
        memcpy(odd.bytes + 1, x, (size_t)n * 16);
        in[0].data = odd.bytes + 1;
        memset(y, 0, sizeof y);
        assert_int_equal(an_import_call(f.m, in, out, f.why), AN_OK);
        assert_true(y[2 * n - 1] == -(double)(2 * n));
    }
    close_function(&f);
}

static void what_is_missing_is_named_at_once_with_the_reason(void **unused)
{
    (void)unused;
    static const char graph[] =
        GRAPH(META("x", 8, INT(3)) "," META("y", 5, INT(3)) "," META("z", 8, INT(3)) "," META("v", 8, INT(3)),
              NODE("aten.nonzero.default", ARG("self", TENSOR("x")), TENSOR("y")) "," NODE(
                  "aten.istft.default", ARG("self", TENSOR("x")),
                  TENSOR("z")) "," NODE("aten.itemize.default", ARG("self", TENSOR("x")), TENSOR("v")),
              IN("x"), OUT("z"));
    function f = {0};
    f.file = an_import_open_description("graph", graph, strlen(graph), f.why);
    f.cx = an_open(&(an_options){.device = "cpu", .threads = 1});
    if (f.file) f.m = an_import_bind(f.file, f.cx, f.why);
    assert_null(f.m);
    assert_non_null(strstr(f.why, "3 of 3 kinds of operations are not there"));
    assert_non_null(strstr(f.why, "aten.nonzero.default (its shape depends on data)"));
    assert_non_null(strstr(f.why, "aten.istft.default (complex numbers)"));
    assert_non_null(strstr(f.why, "aten.itemize.default"));
    assert_null(strstr(f.why, "aten.itemize.default ("));
    close_function(&f);
}

static void padding_of_five_axes_is_refused(void **unused)
{
    (void)unused;
    static const char graph[] =
        GRAPH(META("x", 8, INT(1) "," INT(1) "," INT(1) "," INT(1) "," INT(1)) "," META(
                  "y", 8, INT(2) "," INT(1) "," INT(1) "," INT(1) "," INT(1)),
              NODE("aten.constant_pad_nd.default",
                   ARG("self", TENSOR("x")) "," ARG("pad", "{\"as_ints\":[0,0,0,0,0,0,0,0,1,0]}"), TENSOR("y")),
              IN("x"), OUT("y"));
    double x[1] = {0};
    const int64_t dim[] = {1, 1, 1, 1, 1};
    function f;
    open_function(&f, graph);
    an_import_array out[1], in[1] = {array(x, AN_F64, 5, dim, NULL)};
    assert_int_not_equal(an_import_call_plan(f.m, in, out, f.why), AN_OK);
    assert_non_null(strstr(f.why, "of more than four axes"));
    close_function(&f);
}

#define LEAST    "-9223372036854775808"
#define GREATEST "9223372036854775807"

/* Axes that are not there, or are named twice, more than eight of them, and numbers whose products or sums overflow: x, y and i have axes
 * of length 2, so many as the case says. */
static void numbers_that_lead_outside_are_refused(void **unused)
{
    (void)unused;
    static const struct {
        const char *target, *args, *refusal; /* NULL: it is built */
        int rank[3];
    } cases[] = {
        {"aten.tensordot.default",
         SELF "," ARG("other", TENSOR("y")) "," INTS("dims_self", "0,0,0,0,0,0,0,0") "," INTS("dims_other",
                                                                                              "0,1,2,3,4,5,6,7"),
         "twice",
         {8, 8, 0}},
        {"aten.tensordot.default",
         SELF "," ARG("other", TENSOR("y")) "," INTS("dims_self", "0") "," INTS("dims_other", "9"),
         "not there",
         {2, 2, 0}},
        {"aten.slice_scatter.default",
         SELF "," ARG("src", TENSOR("y")) "," ARG("dim", INT(9)) "," ARG("step", INT(2)),
         "axis 9",
         {3, 3, 0}},
        {"aten.slice_scatter.default",
         SELF "," ARG("src", TENSOR("y")) "," ARG("dim", INT(0)) "," ARG("step", INT(0)),
         "every 0",
         {3, 3, 0}},
        {"aten.slice_scatter.default",
         SELF "," ARG("src", TENSOR("y")) "," ARG("dim", INT(0)) "," ARG("step", INT(9223372036854775807)),
         "beyond the end",
         {3, 3, 0}},
        {"aten.select_scatter.default",
         SELF "," ARG("src", TENSOR("y")) "," ARG("dim", INT(9)) "," ARG("index", INT(0)),
         "axis 9",
         {3, 2, 0}},
        {"aten.quantile.default", SELF "," ARG("q", TENSOR("y")) "," ARG("dim", INT(0)), "q of 7 axes", {8, 7, 0}},
        {"aten.quantile.default",
         SELF "," ARG("q", TENSOR("y")) "," ARG("dim", INT(0)) "," ARG("keepdim", "{\"as_bool\":true}"),
         "more than 8",
         {8, 1, 0}},
        {"aten.repeat.default", SELF "," INTS("repeats", "9223372036854775807,1"), "repetitions", {2, 0, 0}},
        {"aten.gather.default", SELF "," ARG("dim", INT(9)) "," ARG("index", TENSOR("i")), "axis 9", {2, 0, 2}},
        {"aten.scatter.src",
         SELF "," ARG("dim", INT(9)) "," ARG("index", TENSOR("i")) "," ARG("src", TENSOR("y")),
         "axis 9",
         {2, 2, 2}},
        {"aten.index_fill.int_Scalar",
         SELF "," ARG("dim", INT(9)) "," ARG("index", TENSOR("i")) "," ARG("value", INT(1)),
         "axis 9",
         {2, 0, 1}},
        {"aten.scatter_reduce.two",
         SELF "," ARG("dim", INT(9)) "," ARG("index", TENSOR("i")) "," ARG("src", TENSOR("y")) "," ARG(
             "reduce", "{\"as_string\":\"amax\"}"),
         "axis 9",
         {2, 2, 2}},
        {"aten.scatter_reduce.two",
         SELF "," ARG("dim", INT(0)) "," ARG("index", TENSOR("i")) "," ARG("src", TENSOR("y")) "," ARG(
             "reduce", "{\"as_string\":\"amax\"}"),
         "other axes",
         {3, 3, 8}},
        {"aten.masked_scatter_backward.default",
         ARG("grad_output", TENSOR("x")) "," ARG("mask", TENSOR("y")) "," INTS("sizes", "1099511627776,1099511627776"),
         "2^31",
         {1, 1, 0}},
        {"aten.split.Tensor",
         SELF "," ARG("split_size", INT(-9223372036854775808)) "," ARG("dim", INT(0)),
         "parts of -9223372036854775808",
         {1, 0, 0}},
        {"aten.repeat_interleave.self_int",
         SELF "," ARG("repeats", INT(2)) "," ARG("dim", INT(9)),
         "not there",
         {2, 0, 0}},
        {"aten.repeat_interleave.self_int",
         SELF "," ARG("repeats", INT(9223372036854775807)) "," ARG("dim", INT(0)),
         "times",
         {2, 0, 0}},
        {"aten.unflatten.int",
         SELF "," ARG("dim", INT(0)) "," INTS("sizes", "4294967296,4294967296"),
         "2^31",
         {2, 0, 0}},
        {"aten.unflatten.int", SELF "," ARG("dim", INT(9)) "," INTS("sizes", "2"), "not there", {2, 0, 0}},
        {"aten.narrow.default",
         SELF "," ARG("dim", INT(0)) "," ARG("start", INT(1)) "," ARG("length", INT(9223372036854775807)),
         "elements from 1",
         {1, 0, 0}},
        {"aten.transpose.int", SELF "," ARG("dim0", INT(9)) "," ARG("dim1", INT(9)), "not there", {2, 0, 0}},
        {"aten.movedim.int", SELF "," ARG("source", INT(0)) "," ARG("destination", INT(9)), "not there", {2, 0, 0}},
        {"aten.flatten.using_ints",
         SELF "," ARG("start_dim", INT(0)) "," ARG("end_dim", INT(9)),
         "not there",
         {2, 0, 0}},
        {"aten.squeeze.dims", SELF "," INTS("dim", "9"), "not there", {2, 0, 0}},
        {"aten.roll.default", SELF "," INTS("shifts", "0") "," INTS("dims", "9"), "not there", {2, 0, 0}},
        {"aten.roll.default", SELF "," INTS("shifts", LEAST) "," INTS("dims", "0"), NULL, {2, 0, 0}},
        {"aten.bucketize.Tensor", SELF "," ARG("boundaries", TENSOR("y")), "boundaries of 8 axes", {2, 8, 0}},
        {"aten.renorm.default",
         SELF "," ARG("p", INT(2)) "," ARG("dim", INT(9)) "," ARG("maxnorm", INT(1)),
         "not there",
         {2, 0, 0}},
        {"aten._weight_norm.default",
         ARG("v", TENSOR("x")) "," ARG("g", TENSOR("y")) "," ARG("dim", INT(9)),
         "not there",
         {2, 0, 0}},
        {"aten.logsumexp.default", SELF "," INTS("dim", "0,9"), "not there", {2, 0, 0}},
        {"aten.rot90.default", SELF "," ARG("k", INT(2)) "," INTS("dims", "0,0"), "two axes", {2, 0, 0}},
        {"aten.diagonal.default", SELF "," ARG("offset", INT(-9223372036854775808)), NULL, {2, 0, 0}},
        {"aten.diag.default", SELF "," ARG("diagonal", INT(-9223372036854775808)), "off the main diagonal", {1, 0, 0}},
        {"aten.diagonal_scatter.default", SELF "," ARG("src", TENSOR("y")), "a diagonal of 8 axes", {3, 8, 0}},
        {"aten.im2col.default",
         SELF "," INTS("kernel_size",
                       "2,2") "," INTS("dilation", GREATEST ",1") "," INTS("padding", "0,0") "," INTS("stride", "1,1"),
         "does not fit",
         {4, 0, 0}},
        {"aten.affine_grid_generator.default",
         ARG("theta", TENSOR("x")) "," INTS("size", "2,1,1099511627776,1099511627776") "," ARG("align_corners",
                                                                                               "{\"as_bool\":false}"),
         "2^31",
         {-3, 0, 0}},
        {"aten.convolution.default",
         ARG("input", TENSOR("x")) "," ARG("weight", TENSOR("y")) "," ARG("bias", "{\"as_none\":true}") "," INTS(
             "stride",
             "1,1") "," INTS("padding",
                             "0,0") "," INTS("dilation",
                                             "1,1") "," ARG("transposed",
                                                            "{\"as_bool\":false}") "," INTS("output_padding",
                                                                                            "0,0") "," ARG("groups",
                                                                                                           INT(-4294967295)),
         "",
         {4, 4, 0}},
        {"aten.grid_sampler.default", GRID(3, 0), "interpolation mode 3", {4, 4, 0}},
        {"aten.grid_sampler.default", GRID(-1, 0), "interpolation mode -1", {4, 4, 0}},
        {"aten.grid_sampler.default", GRID(0, 3), "padding mode 3", {4, 4, 0}},
        {"aten.grid_sampler.default", GRID(0, 0), "of 6 axes; four and five are known", {6, 6, 0}},
        {"aten.grid_sampler.default", GRID(0, 0), "whose last axis is not the 3 coordinates", {5, 5, 0}},
        {"aten.grid_sampler.default", GRID(0, 2), NULL, {4, 4, 0}},
    };
    static double zeros[256];
    const int64_t two[8] = {2, 2, 2, 2, 2, 2, 2, 2}, matrices[3] = {2, 2, 3};
    for (size_t k = 0; k < AN_COUNT(cases); k++) {
        function f;
        const int *rank = cases[k].rank;
        an_import_array out[1], in[3];
        for (int i = 0; i < 3; i++)
            in[i] =
                array(zeros, i < 2 ? AN_F64 : AN_I64, AN_MAX(rank[i], -rank[i]), rank[i] < 0 ? matrices : two, NULL);
        open_operation(&f, cases[k].target, cases[k].args, in, 3);
        const int status = an_import_call_plan(f.m, in, out, f.why);
        if (cases[k].refusal ? status == AN_OK || !strstr(f.why, cases[k].refusal) : status != AN_OK)
            fail_msg("case %zu, %s: %d, %s", k, cases[k].target, status, f.why);
        close_function(&f);
    }
}

/* x[..., ::2] = y over eight axes, and steps longer than 2^20. */
static void every_other_element_is_replaced_wherever_it_is(void **unused)
{
    (void)unused;
    enum { LONG = (2 << 20) + 5, STEP = (1 << 20) + 1 };
    static double x[LONG], z[LONG];
    const int64_t all[8] = {2, 2, 2, 2, 2, 2, 2, 3}, part[8] = {2, 2, 2, 2, 2, 2, 2, 2}, line[] = {LONG}, two[] = {2};
    double y[256];
    function f;
    for (int i = 0; i < 256; i++) y[i] = -i - 1;
    for (int i = 0; i < LONG; i++) x[i] = i;
    an_import_array out[1], in[2] = {array(x, AN_F64, 8, all, NULL), array(y, AN_F64, 8, part, NULL)};
    open_operation(&f, "aten.slice_scatter.default",
                   SELF "," ARG("src", TENSOR("y")) "," ARG("dim", INT(7)) "," ARG("step", INT(2)), in, 2);
    call(&f, in, out, (void *[]){z}, 1);
    for (int i = 0; i < 384; i++) assert_true(z[i] == (i % 3 == 1 ? x[i] : y[i / 3 * 2 + i % 3 / 2]));
    close_function(&f);
    in[0] = array(x, AN_F64, 1, line, NULL), in[1] = array(y, AN_F64, 1, two, NULL);
    open_operation(
        &f, "aten.slice_scatter.default",
        SELF "," ARG("src", TENSOR("y")) "," ARG("dim", INT(0)) "," ARG("start", INT(3)) "," ARG("step", INT(1048577)),
        in, 2);
    call(&f, in, out, (void *[]){z}, 1);
    for (int i = 0; i < LONG; i++) assert_true(z[i] == (i == 3 ? y[0] : i == 3 + STEP ? y[1] : x[i]));
    close_function(&f);
}

#define DIFFERENCES(n, rows)                                                                                           \
    GRAPH(                                                                                                             \
        META("x", 8, INT(rows)) "," META("y", 8, INT(0)),                                                              \
        NODE("aten.diff.default", ARG("self", TENSOR("x")) "," ARG("n", INT(n)) "," ARG("dim", INT(0)), TENSOR("y")),  \
        IN("x"), OUT("y"))

static void differences_end_when_the_elements_do(void **unused)
{
    (void)unused;
    static const struct {
        const char *graph, *refusal; /* NULL: an empty result */
        int64_t rows;
    } cases[] = {{DIFFERENCES(3, 3), NULL, 3},
                 {DIFFERENCES(9223372036854775807, 3), NULL, 3},
                 {DIFFERENCES(9223372036854775807, 100), "differences, at most 64 are built", 100},
                 {DIFFERENCES(-1, 3), "n=-1 differences", 3}};
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        double x[100] = {1, 3, 7};
        function f;
        open_function(&f, cases[i].graph);
        an_import_array out[1], in[1] = {array(x, AN_F64, 1, &cases[i].rows, NULL)};
        const int status = an_import_call_plan(f.m, in, out, f.why);
        if (!cases[i].refusal && status != AN_OK) fail_msg("case %zu: %s", i, f.why);
        if (!cases[i].refusal) assert_int_equal(out[0].dim[0], 0);
        if (cases[i].refusal && (status == AN_OK || !strstr(f.why, cases[i].refusal)))
            fail_msg("case %zu: %d, %s", i, status, f.why);
        close_function(&f);
    }
}

/* Arrays in C order, transposed, repeated and with gaps; all of them hold x[i][k], and only the last is copied. */
static void an_array_is_read_in_whatever_order_it_lies(void **unused)
{
    (void)unused;
    double dense[12], turned[12], row[4], gaps[24], w[8], y[6];
    const int64_t x_dim[] = {3, 4}, w_dim[] = {4, 2}, turn[] = {1, 3}, repeat[] = {0, 1}, gap[] = {8, 2};
    function f;
    an_import_counts n;
    open_function(&f, product);
    for (int i = 0; i < 8; i++) w[i] = i * i - 5;
    for (int k = 0; k < 4; k++) row[k] = k + 0.5;
    for (int way = 0; way < 4; way++) {
        for (int i = 0; i < 3; i++)
            for (int k = 0; k < 4; k++) {
                const double x = way == 2 ? row[k] : i * 10 + k;
                dense[i * 4 + k] = turned[k * 3 + i] = gaps[i * 8 + k * 2] = x;
            }
        an_import_array out[1], in[2] = {array(way == 0   ? dense
                                               : way == 1 ? turned
                                               : way == 2 ? row
                                                          : gaps,
                                               AN_F64, 2, x_dim,
                                               way == 0   ? NULL
                                               : way == 1 ? turn
                                               : way == 2 ? repeat
                                                          : gap),
                                         array(w, AN_F64, 2, w_dim, NULL)};
        call(&f, in, out, (void *[]){y}, 1);
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 2; j++) {
                double sum = 0;
                for (int k = 0; k < 4; k++) sum += dense[i * 4 + k] * w[k * 2 + j];
                assert_true(fabs(y[i * 2 + j] - sum) < 1e-12);
            }
        an_import_call_counts(f.m, &n);
        assert_int_equal(n.copies, way == 3 ? 1 : 0);
        assert_int_equal(n.calls, way + 1);
    }
    close_function(&f);
}

static void results_over_an_input_or_in_another_form_are_refused(void **unused)
{
    (void)unused;
    double x[12] = {0}, w[8] = {0}, y[6];
    const int64_t x_dim[] = {3, 4}, w_dim[] = {4, 2}, other[] = {4, 3};
    function f;
    open_function(&f, product);
    an_import_array out[1], in[2] = {array(x, AN_F64, 2, x_dim, NULL), array(w, AN_F64, 2, w_dim, NULL)};
    call(&f, in, out, (void *[]){y}, 1);
    out[0].data = x + 1;
    assert_int_not_equal(an_import_call(f.m, in, out, f.why), AN_OK);
    assert_non_null(strstr(f.why, "overlaps"));
    out[0].data = y;
    out[0].step[0] = 9;
    assert_int_not_equal(an_import_call(f.m, in, out, f.why), AN_OK);
    assert_non_null(strstr(f.why, "result 0, float64 [3,2], is to be stored in an array without gaps"));
    in[0] = array(x, AN_F64, 2, other, NULL);
    assert_int_not_equal(an_import_call_plan(f.m, in, out, f.why), AN_OK);
    assert_non_null(strstr(f.why, "shape"));
    in[0].rank = 9;
    assert_int_not_equal(an_import_call_plan(f.m, in, out, f.why), AN_OK);
    in[0] = array(x, AN_F64, 2, x_dim, NULL);
    call(&f, in, out, (void *[]){y}, 1); /* nothing of the refused calls is left */
    close_function(&f);
}

static void wide_integers_are_copied_and_those_that_do_not_fit_refused(void **unused)
{
    (void)unused;
    static const char text[] =
        GRAPH(META("i", 5, INT(2)) "," META("y", 5, INT(2)),
              NODE("aten.add.Tensor", ARG("self", TENSOR("i")) "," ARG("other", TENSOR("i")), TENSOR("y")), IN("i"),
              OUT("y"));
    int64_t i[2] = {-3, 1 << 20}, y[2];
    const int64_t dim[] = {2};
    function f;
    open_function(&f, text);
    an_import_array out[1], in[1] = {array(i, AN_I64, 1, dim, NULL)};
    call(&f, in, out, (void *[]){y}, 1);
    assert_int_equal(out[0].dtype, AN_I64);
    assert_int_equal(y[0], -6);
    assert_int_equal(y[1], 1 << 21);
    i[1] = (int64_t)1 << 31;
    assert_int_not_equal(an_import_call(f.m, in, out, f.why), AN_OK);
    assert_non_null(strstr(f.why, "2147483648"));
    close_function(&f);
}

/* An array of another dtype leaves nothing behind that the right one would meet. */
static void an_array_of_another_dtype_is_refused_by_name(void **unused)
{
    (void)unused;
    double x[12] = {1}, w[8] = {2}, y[6];
    const int64_t x_dim[] = {3, 4}, w_dim[] = {4, 2};
    const an_dtype other[] = {AN_F32, AN_F16, AN_I32, AN_I64, AN_U8, AN_BOOL};
    function f;
    open_function(&f, product);
    an_import_array out[1], in[2] = {array(x, AN_F64, 2, x_dim, NULL), array(w, AN_F64, 2, w_dim, NULL)};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        in[0].dtype = (int32_t)other[i];
        assert_int_not_equal(an_import_call_plan(f.m, in, out, f.why), AN_OK);
        assert_non_null(strstr(f.why, "input 0, x, is "));
        assert_non_null(strstr(f.why, "the graph takes float64"));
    }
    in[0].dtype = AN_F64;
    call(&f, in, out, (void *[]){y}, 1);
    assert_true(y[0] == 2);
    close_function(&f);
}

/* x [s0,2], whose transposed copy is the result. */
static void a_result_whose_last_axis_is_the_batch_has_any_length(void **unused)
{
    (void)unused;
    static const char graph[] = GRAPH(
        META("x", 8, FREE "," INT(2)) "," META("y", 8, INT(2) "," FREE),
        NODE("aten.permute.default", ARG("self", TENSOR("x")) "," INTS("dims", "1,0"), TENSOR("y")), IN("x"), OUT("y"));
    static const int64_t lengths[] = {5, 3, 4, 3};
    double x[10], y[10];
    function f;
    open_function(&f, graph);
    for (int i = 0; i < 10; i++) x[i] = i + 1;
    for (int k = 0; k < 4; k++) {
        const int64_t n = lengths[k], dim[] = {n, 2};
        an_import_array out[1], in[1] = {array(x, AN_F64, 2, dim, NULL)};
        call(&f, in, out, (void *[]){y}, 1);
        assert_int_equal(out[0].dim[1], n);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < 2; j++) assert_true(y[i * out[0].step[1] + j * out[0].step[0]] == x[2 * i + j]);
    }
    close_function(&f);
}

/* The gradient of a convolution as an operation is that of the convolution in a graph: [2,2,5,5] by [4,1,3,3], strided, in two
 * groups. */
static void the_gradient_of_a_convolution_is_its_operations(void **unused)
{
    (void)unused;
    static const char text[] =
        GRAPH(
            META("g", 8, INT(2) "," INT(4) "," INT(3) "," INT(3)) "," META(
                "x", 8,
                INT(2) "," INT(2) "," INT(5) "," INT(
                    5)) "," META("w", 8,
                                 INT(4) "," INT(1) "," INT(3) "," INT(
                                     3)) "," META("gx", 8,
                                                  INT(2) "," INT(2) "," INT(5) "," INT(
                                                      5)) "," META("gw", 8,
                                                                   INT(4) "," INT(1) "," INT(3) "," INT(
                                                                       3)) "," META("gb", 8, INT(4)),
            NODE("aten.convolution_backward.default",
                 ARG("grad_output", TENSOR("g")) "," ARG("input", TENSOR("x")) "," ARG("weight", TENSOR("w")) "," ARG("bias_sizes", "{\"as_ints\":[4]}") "," ARG(
                     "stride",
                     "{\"as_ints\":[2,2]}") "," ARG("padding",
                                                    "{\"as_ints\":[1,1]}") "," ARG("dilation",
                                                                                   "{\"as_ints\":[1,1]"
                                                                                   "}") "," ARG("trans"
                                                                                                "pose"
                                                                                                "d",
                                                                                                "{\"as"
                                                                                                "_bool"
                                                                                                "\":"
                                                                                                "false"
                                                                                                "}") "," ARG("outp"
                                                                                                             "ut_"
                                                                                                             "padd"
                                                                                                             "ing",
                                                                                                             "{\"a"
                                                                                                             "s_"
                                                                                                             "ints"
                                                                                                             "\":["
                                                                                                             "0,0]"
                                                                                                             "}") "," ARG("groups",
                                                                                                                          INT(2)) "," ARG("output_mask",
                                                                                                                                          "{\"as_bools\":[true,true,true]}"),
                 TENSOR("gx") "," TENSOR("gw") "," TENSOR("gb")),
            IN("g") "," IN("x") "," IN("w"), OUT("gx") "," OUT("gw") "," OUT("gb"));
    double g[72], x[100], w[36], gx[100], gw[36], gb[4];
    const int64_t g_dim[] = {2, 4, 3, 3}, x_dim[] = {2, 2, 5, 5}, w_dim[] = {4, 1, 3, 3};
    function f;
    open_function(&f, text);
    for (int i = 0; i < 72; i++) g[i] = sin(i * 1.3);
    for (int i = 0; i < 100; i++) x[i] = cos(i * 0.7);
    for (int i = 0; i < 36; i++) w[i] = sin(i * 2.1 + 1);
    an_import_array out[3],
        in[3] = {array(g, AN_F64, 4, g_dim, NULL), array(x, AN_F64, 4, x_dim, NULL), array(w, AN_F64, 4, w_dim, NULL)};
    call(&f, in, out, (void *[]){gx, gw, gb}, 3);
    double want_x[100] = {0}, want_w[36] = {0}, want_b[4] = {0};
    for (int n = 0; n < 2; n++)
        for (int o = 0; o < 4; o++)
            for (int at = 0; at < 81; at++) { /* place of the result, then of the window */
                const int oy = at / 27, ox = at / 9 % 3, ky = at / 3 % 3, kx = at % 3, y = oy * 2 + ky - 1,
                          z = ox * 2 + kx - 1, c = o / 2;
                const double d = g[((n * 4 + o) * 3 + oy) * 3 + ox];
                if (ky == 0 && kx == 0) want_b[o] += d;
                if (y < 0 || y > 4 || z < 0 || z > 4) continue;
                want_x[((n * 2 + c) * 5 + y) * 5 + z] += d * w[(o * 3 + ky) * 3 + kx];
                want_w[(o * 3 + ky) * 3 + kx] += d * x[((n * 2 + c) * 5 + y) * 5 + z];
            }
    assert_int_equal(out[0].step[1], 1); /* channels last, as it is computed */
    for (int i = 0; i < 100; i++) {      /* gx[n][y][z][c] */
        const int n = i / 50, y = i / 10 % 5, z = i / 2 % 5, c = i % 2;
        assert_true(fabs(gx[i] - want_x[((n * 2 + c) * 5 + y) * 5 + z]) < 1e-12);
    }
    for (int o = 0; o < 4; o++)
        for (int k = 0; k < 9; k++)
            assert_true(
                fabs(((double *)out[1].data)[o * out[1].step[0] + k / 3 * out[1].step[2] + k % 3 * out[1].step[3]] -
                     want_w[o * 9 + k]) < 1e-12);
    for (int o = 0; o < 4; o++) assert_true(fabs(gb[o] - want_b[o]) < 1e-12);
    close_function(&f);
}

/* k is computed from q: the gradient of q alone must not contain the way through k. */
static void a_gradient_does_not_go_through_another_argument(void **unused)
{
    (void)unused;
    static const char text[] = GRAPH(
        META("g", 8, INT(1) "," INT(1) "," INT(2) "," INT(2)) "," META(
            "q", 8,
            INT(1) "," INT(1) "," INT(2) "," INT(
                2)) "," META("k", 8,
                             INT(1) "," INT(1) "," INT(2) "," INT(
                                 2)) "," META("other", 8,
                                              INT(1) "," INT(1) "," INT(2) "," INT(
                                                  2)) "," META("a", 8,
                                                               INT(1) "," INT(1) "," INT(2) "," INT(
                                                                   2)) "," META("b", 8,
                                                                                INT(1) "," INT(1) "," INT(2) "," INT(
                                                                                    2)),
        NODE("aten.sin.default", ARG("self", TENSOR("q")), TENSOR("k")) "," NODE(
            "aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
            ARG("grad_out", TENSOR("g")) "," ARG("query", TENSOR("q")) "," ARG("key", TENSOR("k")) "," ARG(
                "value",
                TENSOR(
                    "other")) "," ARG("out",
                                      TENSOR(
                                          "other")) "," ARG("logsumexp",
                                                            TENSOR(
                                                                "other")) "," ARG("dropout_p",
                                                                                  "{\"as_float\":0.0}") "," ARG("is_"
                                                                                                                "causa"
                                                                                                                "l",
                                                                                                                "{\"as_"
                                                                                                                "bool\""
                                                                                                                ":false"
                                                                                                                "}"),
            TENSOR(
                "a") ",{\"as_none\":true},{\"as_none\":true}") "," NODE("aten._scaled_dot_product_flash_attention_for_"
                                                                        "cpu_backward.default",
                                                                        ARG("grad_out", TENSOR("g")) "," ARG("query", TENSOR("q")) "," ARG("key", TENSOR("free")) "," ARG(
                                                                            "value",
                                                                            TENSOR(
                                                                                "other")) "," ARG("out",
                                                                                                  TENSOR(
                                                                                                      "other")) "," ARG("logsumexp",
                                                                                                                        TENSOR(
                                                                                                                            "other")) "," ARG("dropout_p",
                                                                                                                                              "{\"as_float\":0.0}") "," ARG("is_causal",
                                                                                                                                                                            "{\"as_bool\":false}"),
                                                                        TENSOR("b") ",{\"as_none\":true},{\"as_none\":"
                                                                                    "true}"),
        IN("g") "," IN("q") "," IN("other") "," IN("free"), OUT("a") "," OUT("b"));
    double g[4] = {1, -2, 0.5, 3}, q[4] = {0.3, -1, 2, 0.7}, other[4] = {1, 4, -2, 0.2}, k[4], a[4], b[4];
    const int64_t dim[] = {1, 1, 2, 2};
    function f;
    char *whole = malloc(sizeof text + 200);
    assert_non_null(whole);
    const char *at = strstr(text, "\"other\":{\"dtype\"");
    snprintf(whole, sizeof text + 200, "%.*s%s%s", (int)(at - text), text,
             META("free", 8, INT(1) "," INT(1) "," INT(2) "," INT(2)) ",", at);
    open_function(&f, whole);
    for (int i = 0; i < 4; i++) k[i] = sin(q[i]);
    an_import_array out[2], in[4] = {array(g, AN_F64, 4, dim, NULL), array(q, AN_F64, 4, dim, NULL),
                                     array(other, AN_F64, 4, dim, NULL), array(k, AN_F64, 4, dim, NULL)};
    call(&f, in, out, (void *[]){a, b}, 2);
    for (int i = 0; i < 4; i++) {
        assert_true(fabs(b[i]) > 1e-6);
        assert_true(fabs(a[i] - b[i]) < 1e-12);
    }
    close_function(&f);
    free(whole);
}

/* loss = sum(x w); a counter of updates beside it. */
static const char scaled[] =
    "{\"model\":{\"schema_version\":{\"major\":8,\"minor\":0},\"verifiers\":[\"TRAINING\"],\"graph_module\":{\"graph\":"
    "{\"nodes\":[" NODE("aten.mul.Tensor", ARG("self", TENSOR("x")) "," ARG("other", TENSOR("w")), TENSOR("y")) "," NODE(
        "aten.sum.default", ARG("self", TENSOR("y")),
        TENSOR(
            "loss")) "," NODE("aten.add.Tensor", ARG("self", TENSOR("n")) "," ARG("other", INT(1)),
                              TENSOR(
                                  "m")) "],\"tensor_values\":{" META("x", 8,
                                                                     INT(3)) "," META("w", 8,
                                                                                      INT(3)) "," META("y", 8,
                                                                                                       INT(3)) "," META("loss",
                                                                                                                        8,
                                                                                                                        "") "," META("n",
                                                                                                                                     5,
                                                                                                                                     "") "," META("m",
                                                                                                                                                  5,
                                                                                                                                                  "") "}},\"signature\":{\"input_specs\":["
                                                                                                                                                      "{\"parameter\":{\"arg\":{\"name\":\"w\"},\"parameter_name\":\"w\"}},"
                                                                                                                                                      "{\"buffer\":{\"arg\":{\"name\":\"n\"},\"buffer_name\":\"n\",\"persistent\":true}}," IN(
                                                                                                                                                          "x") "],\"output_specs\":["
                                                                                                                                                               "{\"buffer_mutation\":{\"arg\":{\"name\":\"m\"},\"buffer_name\":\"n\"}},{\"loss_output\":{\"arg\":{\"name\":\"loss\"}}}]}}},"
                                                                                                                                                               "\"weights\":{\"config\":{"
                                                                                                                                                               "\"w\":{\"path_name\":\"weight_0\",\"is_param\":true,\"use_pickle\":false,\"tensor_meta\":{\"dtype\":8,\"sizes\":[{\"as_int\":3}],"
                                                                                                                                                               "\"requires_grad\":true,\"device\":{\"type\":\"cpu\",\"index\":null},\"strides\":[{\"as_int\":1}],"
                                                                                                                                                               "\"storage_offset\":{\"as_int\":0},\"layout\":7}},"
                                                                                                                                                               "\"n\":{\"path_name\":\"weight_1\",\"is_param\":false,\"use_pickle\":false,\"tensor_meta\":{\"dtype\":5,\"sizes\":[],"
                                                                                                                                                               "\"requires_grad\":false,\"device\":{\"type\":\"cpu\",\"index\":null},\"strides\":[],"
                                                                                                                                                               "\"storage_offset\":{\"as_int\":0},\"layout\":7}}}},\"constants\":{\"config\":{}}}";

static void a_step_changes_parameters_and_buffers_where_they_are(void **unused)
{
    (void)unused;
    double x[3] = {1, -2, 0.5};
    int64_t n = 41;
    const int64_t dim[] = {3};
    an_param_place place;
    an_import_result r;
    an_import_update u = {.optimizer = "sgd", .lr = 0.1};
    function f;
    open_function(&f, scaled);
    assert_int_equal(an_param_find(f.cx, "w", &place), AN_OK);
    double *w = calloc(1, (size_t)place.block_bytes);
    assert_non_null(w);
    w[0] = 4, w[1] = 5, w[2] = 6;
    assert_int_equal(an_bind_block(f.cx, place.block, w, (size_t)place.block_bytes), AN_OK);
    const an_import_array in[] = {array(x, AN_F64, 1, dim, NULL)}, count = array(&n, AN_I64, 0, NULL, NULL);
    if (an_import_bind_tensor(f.m, "n", &count, f.why) != AN_OK) fail_msg("%s", f.why);
    if (an_import_step(f.m, in, &u, NULL, f.why) != AN_OK) fail_msg("%s", f.why); /* planned alone */
    assert_true(w[0] == 4 && n == 41);
    for (int i = 0; i < 2; i++)
        if (an_import_step(f.m, in, &u, &r, f.why) != AN_OK) fail_msg("%s", f.why);
    for (int i = 0; i < 3; i++) assert_true(fabs(w[i] - (4 + i - 0.2 * x[i])) < 1e-12);
    assert_true(fabs(r.loss - (-3 - 0.1 * 5.25)) < 1e-12);
    assert_true(fabs(r.norm - sqrt(5.25)) < 1e-6);
    assert_int_equal(n, 43);
    n = 7; /* what the caller writes there is read */
    assert_int_equal(an_import_step(f.m, in, &u, &r, f.why), AN_OK);
    assert_int_equal(n, 8);
    n = (int64_t)1 << 40;
    assert_int_not_equal(an_import_step(f.m, in, &u, &r, f.why), AN_OK);
    assert_non_null(strstr(f.why, "1099511627776"));
    n = 1;
    u.optimizer = "none";
    assert_int_not_equal(an_import_step(f.m, in, &u, &r, f.why), AN_OK);
    assert_non_null(strstr(f.why, "adamw"));
    close_function(&f);
    free(w);
}

static void a_tensor_that_does_not_fit_is_not_bound(void **unused)
{
    (void)unused;
    double x[3] = {0};
    const int64_t dim[] = {3}, gap[] = {2};
    function f;
    open_function(&f, scaled);
    const struct {
        const char *name, *word;
        an_import_array a;
    } wrong[] = {{"w", "block", array(x, AN_F64, 1, dim, NULL)},
                 {"other", "no tensor", array(x, AN_F64, 1, dim, NULL)},
                 {"n", "not given", array(x, AN_F64, 0, NULL, NULL)},
                 {"n", "not given", array(x, AN_I64, 1, dim, gap)},
                 {"n", "not given", array(NULL, AN_I64, 0, NULL, NULL)}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_not_equal(an_import_bind_tensor(f.m, wrong[i].name, &wrong[i].a, f.why), AN_OK);
        assert_non_null(strstr(f.why, wrong[i].word));
    }
    close_function(&f);
}

static void an_input_of_ids_says_how_many_its_tables_have(void **unused)
{
    (void)unused;
    static const char text[] =
        GRAPH(META("i", 5, INT(2)) "," META("x", 8, INT(2)) "," META("w", 8, INT(9) "," INT(3)) "," META(
                  "v", 8, INT(7) "," INT(3)) "," META("y", 8, INT(2) "," INT(3)) "," META("z", 8, INT(2) "," INT(3)),
              NODE("aten.embedding.default", ARG("weight", TENSOR("w")) "," ARG("indices", TENSOR("i")),
                   TENSOR("y")) "," NODE("aten.embedding.default",
                                         ARG("weight", TENSOR("v")) "," ARG("indices", TENSOR("i")), TENSOR("z")),
              IN("i") "," IN("x") "," IN("w") "," IN("v"), OUT("y") "," OUT("z"));
    function f;
    an_import_entry e;
    open_function(&f, text);
    assert_true(an_import_get(f.file, AN_IMPORT_INPUT, 0, &e));
    assert_int_equal(e.ids_below, 7);
    assert_true(an_import_get(f.file, AN_IMPORT_INPUT, 1, &e));
    assert_int_equal(e.ids_below, 0);
    close_function(&f);
}

typedef struct job {
    bool steps;
    double result;
} job;

/* Everything from the description to the end of a call and of two steps, interpreted. */
static an_status attempt(an_err *err, void *arg)
{
    double x[12] = {1, -2, 0.5}, w[8] = {3, 4, 5, 6}, y[6] = {0};
    int64_t n = 3;
    const int64_t x_dim[] = {3, 4}, w_dim[] = {4, 2}, dim[] = {3};
    job *j = arg;
    const bool steps = j->steps;
    function f = {0};
    an_import_array out[1],
        in[] = {array(x, AN_F64, steps ? 1 : 2, steps ? dim : x_dim, NULL), array(w, AN_F64, 2, w_dim, NULL)};
    const an_import_array count = array(&n, AN_I64, 0, NULL, NULL);
    const an_import_update u = {.optimizer = "adamw", .lr = 0.1};
    an_import_result r = {0};
    const char *text = steps ? scaled : product;
    an_status status = AN_E_NOMEM;
    f.file = an_import_open_description("graph", text, strlen(text), f.why);
    f.cx = f.file ? an_open(&(an_options){.device = "cpu", .threads = 1, .cc = "none", .recompute = "off"}) : NULL;
    if (f.file && !f.cx) snprintf(f.why, sizeof f.why, "no memory for a context");
    if (f.cx && an_error(f.cx)) {
        snprintf(f.why, sizeof f.why, "%s", an_error(f.cx));
        status = an_error_status(f.cx);
    } else if (f.cx) {
        f.m = an_import_bind(f.file, f.cx, f.why);
    }
    if (f.m && !steps) {
        status = an_import_call_plan(f.m, in, out, f.why);
        out[0].data = y;
        if (status == AN_OK) status = an_import_call(f.m, in, out, f.why);
    } else if (f.m) {
        status = an_import_bind_tensor(f.m, "n", &count, f.why);
        for (int i = 0; i < 2 && status == AN_OK; i++) status = an_import_step(f.m, in, &u, &r, f.why);
    }
    j->result = y[0] + 10 * y[1] + r.loss;
    if (status != AN_OK) {
        err->code = status;
        snprintf(err->text, sizeof err->text, "%s", f.why);
    }
    close_function(&f);
    return status;
}

/* A refusal is AN_E_NOMEM and a sentence, or, where the memory could be done without, the same result. */
static void a_refused_allocation_is_a_sentence_or_changes_nothing(void **unused)
{
    (void)unused;
    for (int steps = 0; steps < 2; steps++) {
        an_err err = {0};
        job want = {.steps = steps == 1}, j = want;
        if (attempt(&err, &want) != AN_OK) fail_msg("%s", err.text);
        for (long n = 1, tried = 1; tried >= n; n++) {
            err = (an_err){0};
            test_refuse_allocation(n);
            const an_status status = attempt(&err, &j);
            tried = test_allocations();
            test_refuse_allocation(0);
            if (status != AN_OK && (tried < n || status != AN_E_NOMEM || !err.text[0]))
                fail_msg("allocation %ld refused: status %d, \"%s\"", n, (int)status, err.text);
            if (status == AN_OK) assert_true(j.result == want.result);
        }
    }
}

#define XY  META("x", 8, INT(3)) "," META("y", 8, INT(3))
#define NEG NODE("aten.neg.default", ARG("self", TENSOR("x")), TENSOR("y"))

/* The caller's arrays have the lengths that the program for training says, whichever of the two is built. */
static void a_program_for_evaluation_fits_the_one_for_training(void **unused)
{
    (void)unused;
    static const char inputs[] = "{\"model\":" PROGRAM(XY, NEG, IN("x"), OUT("y")) ",\"eval\":" PROGRAM(
        XY, "", IN("x") "," IN("y"), OUT("y")) "," NO_TENSORS "}";
    static const char more[] = "{\"model\":" PROGRAM(XY, NEG, IN("x"), OUT("y")) ",\"eval\":" PROGRAM(
        XY, NEG, IN("x"), OUT("y") "," OUT("x")) "," NO_TENSORS "}";
    static const char fewer[] = "{\"model\":" PROGRAM(XY, NEG, IN("x"), OUT("y") "," OUT("x")) ",\"eval\":" PROGRAM(
        XY, NEG, IN("x"), OUT("y")) "," NO_TENSORS "}";
    char why[AN_IMPORT_WHY] = "";
    assert_null(an_import_open_description("graph", inputs, strlen(inputs), why));
    assert_non_null(strstr(why, "takes 2 inputs, the one for training 1"));
    for (int i = 0; i < 2; i++) {
        function f;
        open_function(&f, i == 0 ? more : fewer);
        double x[3] = {1, 2, 3};
        an_tensor *mark = an_const(f.cx, AN_F64, 0), *out[] = {mark, mark}; /* out[1] is past the end where i is 0 */
        an_tensor *in[] = {an_input(f.cx, AN_F64, AN_SHAPE(3), x)};
        assert_int_equal(an_import_count(f.file, AN_IMPORT_OUTPUT), 1 + i);
        if (an_import_build(f.m, AN_IMPORT_EVAL, in, out, f.why) != AN_OK) fail_msg("%s", f.why);
        assert_true(out[0] && out[0] != mark);
        assert_ptr_equal(out[1], i == 0 ? mark : NULL);
        close_function(&f);
    }
}

/* Arguments of another kind than the operation's: a list of numbers or with None for a list of tensors, a number for a text. */
static void arguments_of_another_kind_are_refused(void **unused)
{
    (void)unused;
    static const char *const graphs[] = {
        GRAPH(XY, NODE("aten.cat.default", ARG("tensors", "{\"as_ints\":[0,1]}"), TENSOR("y")), IN("x"), OUT("y")),
        GRAPH(XY,
              NODE("aten.cat.default", ARG("tensors", "{\"as_optional_tensors\":[{\"as_none\":true}]}"), TENSOR("y")),
              IN("x"), OUT("y")),
        GRAPH(XY,
              NODE("aten.einsum.default",
                   ARG("equation", "{\"as_string\":\"a->a\"}") "," ARG("tensors", "{\"as_ints\":[0]}"), TENSOR("y")),
              IN("x"), OUT("y")),
        GRAPH(XY,
              NODE("aten.index.Tensor", ARG("self", TENSOR("x")) "," ARG("indices", "{\"as_ints\":[0]}"), TENSOR("y")),
              IN("x"), OUT("y")),
        GRAPH(XY,
              NODE("aten.div.Tensor_mode",
                   ARG("self", TENSOR("x")) "," ARG("other", TENSOR("x")) "," ARG("rounding_mode", INT(1)),
                   TENSOR("y")),
              IN("x"), OUT("y"))};
    double x[3] = {1, 2, 3};
    const int64_t dim[] = {3};
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        function f;
        open_function(&f, graphs[i]);
        an_import_array out[1], in[1] = {array(x, AN_F64, 1, dim, NULL)};
        assert_int_not_equal(an_import_call_plan(f.m, in, out, f.why), AN_OK);
        if (!strstr(f.why, "aten.")) fail_msg("graph %d: %s", (int)i, f.why);
        close_function(&f);
    }
}

/* A file of 9000 views, each of the one before: they would be built again by as deep a recursion. */
static void views_of_views_have_an_end(void **unused)
{
    (void)unused;
    enum { DEEP = 9000 };
    char *text = malloc((size_t)DEEP * 320 + 4096), *at = text;
    assert_non_null(text);
    at += sprintf(at, "{\"model\":{\"schema_version\":{\"major\":8,\"minor\":0},\"verifiers\":[\"TRAINING\"],"
                      "\"graph_module\":{\"graph\":{\"nodes\":[");
    for (int i = 0; i < DEEP; i++)
        at += sprintf(at,
                      "%s{\"target\":\"aten.alias.default\",\"inputs\":[{\"name\":\"self\",\"arg\":{\"as_tensor\":{"
                      "\"name\":\"v%d\"}}}],\"outputs\":[{\"as_tensor\":{\"name\":\"v%d\"}}],\"metadata\":{}}",
                      i ? "," : "", i, i + 1);
    at += sprintf(at, "],\"tensor_values\":{");
    for (int i = 0; i <= DEEP; i++)
        at += sprintf(at, "%s\"v%d\":{\"dtype\":8,\"sizes\":[{\"as_int\":3}],\"strides\":[]}", i ? "," : "", i);
    sprintf(
        at,
        "}},\"signature\":{\"input_specs\":[" IN("v0") "],\"output_specs\":[{\"user_output\":{\"arg\":{\"as_tensor\":{"
                                                       "\"name\":\"v%d\"}}}}]}}}," NO_TENSORS "}",
        DEEP);
    double x[3] = {1, 2, 3};
    const int64_t dim[] = {3};
    function f;
    open_function(&f, text);
    an_import_array out[1], in[1] = {array(x, AN_F64, 1, dim, NULL)};
    assert_int_not_equal(an_import_call_plan(f.m, in, out, f.why), AN_OK);
    if (!strstr(f.why, "a view of a view")) fail_msg("%s", f.why);
    close_function(&f);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_missing_is_named_at_once_with_the_reason),
        cmocka_unit_test(another_number_of_samples_and_an_odd_address_are_copied_and_counted),
        cmocka_unit_test(padding_of_five_axes_is_refused),
        cmocka_unit_test(numbers_that_lead_outside_are_refused),
        cmocka_unit_test(every_other_element_is_replaced_wherever_it_is),
        cmocka_unit_test(differences_end_when_the_elements_do),
        cmocka_unit_test(a_program_for_evaluation_fits_the_one_for_training),
        cmocka_unit_test(arguments_of_another_kind_are_refused),
        cmocka_unit_test(views_of_views_have_an_end),
        cmocka_unit_test(a_refused_allocation_is_a_sentence_or_changes_nothing),
        cmocka_unit_test(an_input_of_ids_says_how_many_its_tables_have),
        cmocka_unit_test(a_step_changes_parameters_and_buffers_where_they_are),
        cmocka_unit_test(a_tensor_that_does_not_fit_is_not_bound),
        cmocka_unit_test(an_array_is_read_in_whatever_order_it_lies),
        cmocka_unit_test(results_over_an_input_or_in_another_form_are_refused),
        cmocka_unit_test(an_array_of_another_dtype_is_refused_by_name),
        cmocka_unit_test(a_result_whose_last_axis_is_the_batch_has_any_length),
        cmocka_unit_test(wide_integers_are_copied_and_those_that_do_not_fit_refused),
        cmocka_unit_test(the_gradient_of_a_convolution_is_its_operations),
        cmocka_unit_test(a_gradient_does_not_go_through_another_argument)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
