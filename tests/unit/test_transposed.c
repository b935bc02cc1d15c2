/* test_transposed.c: loops that read an axis as the last one whose elements lie far apart: in blocks, with the values of any loop; and copies
 * that only exchange axes, as of the weights of convolutions. */
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

/* x [G,O,I,T,U] with its axes in the order `to`, copied. */
static void turn(const int64_t n[5], const int to[5], int threads, const char *cc, bool expect_turn)
{
    char sentence[128];
    int64_t apart[5], all = 1, at[5] = {0}, wrong = 0;
    for (int i = 4; i >= 0; i--) apart[i] = all, all *= n[i];
    snprintf(sentence, sizeof sentence, "[%d,%d,%d,%d,%d] to %d%d%d%d%d", (int)n[0], (int)n[1], (int)n[2], (int)n[3],
             (int)n[4], to[0], to[1], to[2], to[3], to[4]);
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .threads = threads, .cc = cc});
    assert_non_null(cx);
    for (int64_t i = 0; i < all; i++) x[i] = (float)i;
    an_tensor *t = an_input_at(AN_AT, cx, AN_F32, AN_SHAPE(n[0], n[1], n[2], n[3], n[4]), x);
    an_tensor *turned = an_permute_at(AN_AT, t, AN_SHAPE(to[0], to[1], to[2], to[3], to[4]));
    assert_int_equal(an_eval_at(AN_AT, &turned, 1), AN_OK);
    const bool turns = strstr(an_report_text(cx, "kernels"), "an_turn") != NULL;
    if (!cc && turns != expect_turn) fail_msg("%s: %s", sentence, turns ? "turned" : "not turned");
    assert_int_equal(an_read(turned, y, (size_t)all * sizeof *y), AN_OK);
    for (int64_t i = 0; i < all; i++) {
        int64_t from = 0;
        for (int k = 0; k < 5; k++) from += at[k] * apart[to[k]];
        wrong += y[i] != (float)from;
        for (int k = 4; k >= 0 && ++at[k] == n[to[k]]; k--) at[k] = 0;
    }
    if (wrong) fail_msg("%s, %d threads: %d elements are wrong", sentence, threads, (int)wrong);
    an_close(cx);
}

static void copies_that_exchange_two_axes_are_turned_in_registers(void **unused)
{
    (void)unused;
    static const int taps_out[5] = {0, 1, 3, 4, 2}, taps_first[5] = {0, 3, 4, 1, 2}, taps_last[5] = {0, 1, 4, 2, 3};
    static const int64_t kernels[][2] = {{3, 3}, {1, 2}, {2, 2}, {1, 7}, {4, 2}, {3, 5}, {5, 5}, {7, 7}, {11, 11}};
    static const int64_t channels[][2] = {{1, 16}, {3, 17}, {2, 24}, {5, 40}, {8, 33}, {1, 100}};
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++)
        for (int form = 0; form < 3; form++) {
            const int64_t *c = channels[(k + (size_t)form) % (sizeof channels / sizeof *channels)];
            const int64_t groups = k % 2 ? 3 : 1, O = c[0], I = c[1], T = kernels[k][0], U = kernels[k][1];
            const int64_t taps[5] = {groups, O, I, T, U}, channels_last[5] = {groups, O, T, U, I};
            turn(form == 2 ? channels_last : taps,
                 form == 2 ? taps_last
                 : form    ? taps_first
                           : taps_out,
                 1 + (int)k % 3, NULL, true);
        }
    turn((const int64_t[]){1, 64, 130, 3, 3}, taps_out, 2, NULL, true);
    turn((const int64_t[]){1, 64, 130, 3, 3}, taps_first, 3, NULL, true);
    turn((const int64_t[]){1, 64, 3, 3, 130}, taps_last, 2, NULL, true);
    turn((const int64_t[]){1, 2, 200, 16, 16}, taps_out, 2, NULL, true); /* images, also of odd sizes */
    turn((const int64_t[]){1, 2, 16, 16, 200}, taps_last, 3, NULL, true);
    turn((const int64_t[]){1, 3, 61, 13, 11}, taps_out, 2, NULL, true);
    turn((const int64_t[]){1, 3, 13, 11, 61}, taps_last, 1, NULL, true);
    turn((const int64_t[]){1, 1, 301, 17, 19}, taps_out, 3, NULL, true);
    turn((const int64_t[]){1, 4, 32, 3, 3}, taps_out, 2, "none", true);
}

static void other_copies_have_loops_of_rows(void **unused)
{
    (void)unused;
    turn((const int64_t[]){1, 9, 8, 3, 3}, (const int[]){0, 1, 3, 4, 2}, 1, NULL, false);  /* few channels */
    turn((const int64_t[]){2, 3, 32, 3, 3}, (const int[]){0, 2, 1, 4, 3}, 2, NULL, false); /* more than two axes */
    turn((const int64_t[]){2, 3, 32, 3, 3}, (const int[]){4, 2, 3, 0, 1}, 2, NULL, false);
    turn((const int64_t[]){2, 3, 5, 7, 32}, (const int[]){1, 0, 2, 3, 4}, 1, NULL, false); /* whole rows */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(transposed_axes_of_any_length_are_read_where_they_lie),
                                       cmocka_unit_test(copies_that_exchange_two_axes_are_turned_in_registers),
                                       cmocka_unit_test(other_copies_have_loops_of_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
