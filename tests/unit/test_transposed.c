/* test_transposed.c: loops that read an axis as the last one whose elements lie far apart: in blocks, with the values of any loop. */
#include "lib/test.h"
#include <anneal.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 17 };

static float x[MOST], y[MOST], sums[4096], own[4096];

/* [N,C,P] as [N,P,C], plus a row's own number, and the sums of both halves of P down to [C]. */
static void one(int64_t N, int64_t C, int64_t P, int threads, bool expect_blocks)
{
    char sentence[64];
    snprintf(sentence, sizeof sentence, "[%d,%d,%d]", (int)N, (int)C, (int)P);
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .threads = threads});
    assert_non_null(cx);
    for (int64_t i = 0; i < N * C * P; i++) x[i] = (float)(i % 2003) - 1000;
    an_tensor *t = an_input_at(AN_AT, cx, AN_F32, AN_SHAPE(N, C, P), x);
    an_tensor *last = an_permute_at(AN_AT, t, AN_SHAPE(0, 2, 1));
    for (int64_t p = 0; p < P; p++) own[p] = (float)p;
    an_tensor *rows = an_expand_at(AN_AT, an_input_at(AN_AT, cx, AN_F32, AN_SHAPE(P, 1), own), AN_SHAPE(N, P, C));
    an_tensor *sum = an_add_at(AN_AT, last, rows), *down = an_sum_at(AN_AT, last, AN_AXIS(0) | AN_AXIS(1), false);
    an_tensor *roots[2] = {sum, down};
    assert_int_equal(an_eval_at(AN_AT, roots, 2), AN_OK);
    if (expect_blocks) assert_non_null(strstr(an_report_text(cx, "kernels"), "an_transpose8"));
    assert_int_equal(an_read(sum, y, (size_t)(N * C * P) * sizeof *y), AN_OK);
    assert_int_equal(an_read(down, sums, (size_t)C * sizeof *sums), AN_OK);
    for (int64_t c = 0; c < C; c++) {
        double want = 0;
        for (int64_t n = 0; n < N; n++)
            for (int64_t p = 0; p < P; p++) {
                const float value = x[(n * C + c) * P + p];
                want += (double)value;
                const float got = y[(n * P + p) * C + c];
                if (got != value + (float)p)
                    fail_msg("%s: %d, %d, %d is %g", sentence, (int)n, (int)p, (int)c, (double)got);
            }
        if (fabs(want - (double)sums[c]) > 0.5)
            fail_msg("%s: sum %d is %g, not %g", sentence, (int)c, (double)sums[c], want);
    }
    an_close(cx);
}

static void transposed_axes_of_any_length_are_read_where_they_lie(void **unused)
{
    (void)unused;
    one(2, 64, 256, 1, true);
    one(2, 256, 64, 2, true);
    one(1, 64, 1024, 2, true);
    one(3, 16, 32 * 33, 1, true);
    one(8, 24, 100, 3, false);
    one(3, 100, 24, 2, false);
    one(1, 17, 331, 1, false);
    one(5, 9, 8, 1, false);
    one(2, 8, 2, 1, false);
    one(1, 1000, 16, 2, false);
    one(4, 72, 49, 2, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(transposed_axes_of_any_length_are_read_where_they_lie)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
