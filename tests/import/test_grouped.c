/* test_grouped.c: products by groups of rows, in each form of PyTorch's _grouped_mm and of transformers' own, against plain loops; and heads
 * of keys that a graph repeats for attention, which has to find that it need not. */
#include "import/graphs.h"
#include <math.h>
#include <stdlib.h>

enum { S = 12, K = 4, N = 8, E = 3, MOST = 512 };
static const int32_t ENDS[E] = {5, 5, 9}; /* the second group is empty, three rows are in none */

static float numbers[2][MOST];

static void fill(void)
{
    for (int i = 0; i < 2 * MOST; i++) numbers[i / MOST][i % MOST] = (float)(i * 37 % 101) / 50 - 1;
}

static int group_of(int row)
{
    for (int e = 0; e < E; e++)
        if (row < ENDS[e]) return e;
    return -1;
}

/* One operation on a and b, of these shapes, and the ends. */
static void run(const char *target, const char *first, const char *second, an_import_array a, an_import_array b,
                float *out)
{
    char text[2048], sizes[2][64] = {"", ""};
    const an_import_array *x[2] = {&a, &b};
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < x[i]->rank; k++)
            snprintf(sizes[i] + strlen(sizes[i]), sizeof sizes[i] - strlen(sizes[i]), "%s{\"as_int\":%lld}",
                     k ? "," : "", (long long)x[i]->dim[k]);
    snprintf(
        text, sizeof text,
        GRAPH(
            "\"a\":{\"dtype\":7,\"sizes\":[%s],\"strides\":[]},\"b\":{\"dtype\":7,\"sizes\":[%s],\"strides\":[]},"
            "\"e\":{\"dtype\":4,\"sizes\":[{\"as_int\":3}],\"strides\":[]},\"z\":{\"dtype\":7,\"sizes\":[],"
            "\"strides\":[]}",
            "{\"target\":\"%s\",\"inputs\":[{\"name\":\"%s\",\"arg\":" TENSOR("a") "},{\"name\":\"%s\",\"arg\":" TENSOR(
                "b") "},{\"name\":\"offs\",\"arg\":" TENSOR("e") "}],"
                                                                 "\"outputs\":[" TENSOR("z") "],\"metadata\":{}}",
            IN("a") "," IN("b") "," IN("e"), OUT("z")),
        target, first, second, sizes[0], sizes[1]); /* nodes come first */
    function f;
    open_function(&f, text);
    int32_t ends[E];
    memcpy(ends, ENDS, sizeof ends);
    const int64_t dim[1] = {E};
    an_import_array result[1], in[3] = {a, b, array(ends, AN_I32, 1, dim, NULL)};
    call(&f, in, result, (void *[]){out}, 1);
    close_function(&f);
}

static void near(double have, double want)
{
    if (!(fabs(have - want) <= 1e-5 * fmax(1, fabs(want)))) fail_msg("%.9g, not %.9g", have, want);
}

static void rows_are_multiplied_by_the_matrix_of_their_group(void **unused)
{
    (void)unused;
    static const char *const names[2][3] = {{"aten._grouped_mm.default", "self", "mat2"},
                                            {"transformers.grouped_mm_fallback.default", "input", "weight"}};
    fill();
    for (int which = 0; which < 2; which++) {
        float z[S * N];
        run(names[which][0], names[which][1], names[which][2],
            array(numbers[0], AN_F32, 2, (const int64_t[]){S, K}, NULL),
            array(numbers[1], AN_F32, 3, (const int64_t[]){E, K, N}, NULL), z);
        for (int i = 0; i < S; i++)
            for (int n = 0; n < N; n++) {
                double sum = 0;
                for (int k = 0; k < K && group_of(i) >= 0; k++)
                    sum += (double)numbers[0][i * K + k] * (double)numbers[1][(group_of(i) * K + k) * N + n];
                near(z[i * N + n], sum);
            }
    }
}

static void columns_are_multiplied_by_the_matrix_of_their_group(void **unused)
{
    (void)unused;
    float z[N * S];
    fill();
    run("aten._grouped_mm.default", "self", "mat2", array(numbers[0], AN_F32, 3, (const int64_t[]){E, N, K}, NULL),
        array(numbers[1], AN_F32, 2, (const int64_t[]){K, S}, NULL), z);
    for (int n = 0; n < N; n++)
        for (int i = 0; i < S; i++) {
            double sum = 0;
            for (int k = 0; k < K && group_of(i) >= 0; k++)
                sum += (double)numbers[0][(group_of(i) * N + n) * K + k] * (double)numbers[1][k * S + i];
            near(z[n * S + i], sum);
        }
}

static void what_is_summed_over_is_in_groups(void **unused)
{
    (void)unused;
    float z[E * K * N];
    fill();
    run("aten._grouped_mm.default", "self", "mat2", array(numbers[0], AN_F32, 2, (const int64_t[]){K, S}, NULL),
        array(numbers[1], AN_F32, 2, (const int64_t[]){S, N}, NULL), z);
    for (int e = 0; e < E; e++)
        for (int k = 0; k < K; k++)
            for (int n = 0; n < N; n++) {
                double sum = 0;
                for (int i = 0; i < S; i++)
                    if (group_of(i) == e) sum += (double)numbers[0][k * S + i] * (double)numbers[1][i * N + n];
                near(z[(e * K + k) * N + n], sum);
            }
}

/* ---- repeated heads */

#define SHAPE4(a, b, c, d) INT(a) "," INT(b) "," INT(c) "," INT(d)
#define HEADS(nodes)                                                                                                   \
    GRAPH(META("q", 7, SHAPE4(1, 6, 64, 8)) "," META("k", 7, SHAPE4(1, 2, 64, 8)) "," META(                            \
              "u", 7,                                                                                                  \
              INT(1) "," INT(2) "," INT(1) "," INT(64) "," INT(                                                        \
                  8)) "," META("x", 7,                                                                                 \
                               INT(1) "," INT(2) "," INT(3) "," INT(64) "," INT(                                       \
                                   8)) "," META("c", 7,                                                                \
                                                INT(1) "," INT(2) "," INT(3) "," INT(64) "," INT(                      \
                                                    8)) "," META("r", 7,                                               \
                                                                 SHAPE4(1, 6, 64, 8)) "," META("z", 7,                 \
                                                                                               SHAPE4(1, 6, 64, 8)),   \
          nodes, IN("q") "," IN("k"), OUT("z"))
#define ATTEND(k, more)                                                                                                \
    NODE("aten.scaled_dot_product_attention.default",                                                                  \
         ARG("query", TENSOR("q")) "," ARG("key", TENSOR(k)) "," ARG("value", TENSOR(k)) more, TENSOR("z"))
#define OF(name) ARG("self", TENSOR(name))

/* Bytes that a call moves. */
static uint64_t moved_by(const char *text, float *out)
{
    function f;
    static float q[6 * 64 * 8], k[2 * 64 * 8];
    for (int i = 0; i < 6 * 64 * 8; i++) q[i] = (float)(i * 29 % 83) / 40 - 1;
    for (int i = 0; i < 2 * 64 * 8; i++) k[i] = (float)(i * 31 % 89) / 40 - 1;
    open_function(&f, text);
    an_import_array result[1], in[2] = {array(q, AN_F32, 4, (const int64_t[]){1, 6, 64, 8}, NULL),
                                        array(k, AN_F32, 4, (const int64_t[]){1, 2, 64, 8}, NULL)};
    call(&f, in, result, (void *[]){out}, 1);
    an_bill bill;
    assert_int_equal(an_report(f.cx, &bill), AN_OK);
    close_function(&f);
    return bill.moved_bytes;
}

static void heads_that_a_graph_repeats_are_read_once(void **unused)
{
    (void)unused;
    static float want[6 * 64 * 8], have[6 * 64 * 8];
    const uint64_t once = moved_by(HEADS(ATTEND("k", "," ARG("enable_gqa", "{\"as_bool\":true}"))), want);
    const char *const graphs[] = {
        HEADS(NODE("aten.unsqueeze.default", OF("k") "," ARG("dim", INT(2)), TENSOR("u")) "," NODE(
            "aten.expand.default", OF("u") "," INTS("size", "1,2,3,64,8"),
            TENSOR("x")) "," NODE("aten.clone.default", OF("x"),
                                  TENSOR("c")) "," NODE("aten.view.default", OF("c") "," INTS("size", "1,6,64,8"),
                                                        TENSOR("r")) "," ATTEND("r", "")),
        HEADS(NODE("aten.unsqueeze.default", OF("k") "," ARG("dim", INT(2)), TENSOR("u")) "," NODE(
            "aten.expand.default", OF("u") "," INTS("size", "1,2,3,64,8"),
            TENSOR("x")) "," NODE("aten.reshape.default", OF("x") "," INTS("shape", "1,6,-1,8"),
                                  TENSOR("r")) "," ATTEND("r", "")),
        HEADS(NODE("aten.repeat_interleave.self_int", OF("k") "," ARG("repeats", INT(3)) "," ARG("dim", INT(1)),
                   TENSOR("r")) "," ATTEND("r", ""))};
    for (size_t i = 0; i < AN_COUNT(graphs); i++) {
        assert_int_equal(moved_by(graphs[i], have), once);
        assert_memory_equal(have, want, sizeof want);
    }
    /* Another operation in between: they are no longer what was repeated. */
    const char *doubled = HEADS(NODE(
        "aten.repeat_interleave.self_int", OF("k") "," ARG("repeats", INT(3)) "," ARG("dim", INT(1)),
        TENSOR("c")) "," NODE("aten.mul.Scalar", OF("c") "," ARG("other", INT(2)), TENSOR("r")) "," ATTEND("r", ""));
    assert_true(moved_by(doubled, have) > once);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_multiplied_by_the_matrix_of_their_group),
                                       cmocka_unit_test(columns_are_multiplied_by_the_matrix_of_their_group),
                                       cmocka_unit_test(what_is_summed_over_is_in_groups),
                                       cmocka_unit_test(heads_that_a_graph_repeats_are_read_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
