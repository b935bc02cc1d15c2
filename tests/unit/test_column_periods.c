/* test_column_periods.c: what lies along the last of several axes that are one loop, as the gain of channels [C] over images
 * [N,W,C]: compiled loops cut the columns at multiples of the channels, or of a part of them. */
#include "lib/test.h"
#include <anneal.h>
#include <stdlib.h>
#include <string.h>

/* x [N,W,C] times gain [C], plus the left neighbour in W, plus the channel two further on. */
static an_tensor *formula(an_ctx *cx, const float *x, const float *gain, int64_t N, int64_t W, int64_t C)
{
    const an_shape s = AN_SHAPE(N, W, C);
    an_tensor *t = an_input(cx, AN_F32, s, x);
    an_tensor *g = an_expand_at(AN_AT, an_input(cx, AN_F32, AN_SHAPE(C), gain), s); /* [N,W,C] */
    an_tensor *left = an_slice_at(AN_AT, an_pad_at(AN_AT, t, 1, 1, 0, -3), 1, 0, W, 1);
    an_tensor *further = an_slice_at(AN_AT, an_pad_at(AN_AT, t, 2, 0, 2, 5), 2, 2, C + 2, 1);
    an_tensor *y = an_mul_at(AN_AT, t, g);
    y = an_add_at(AN_AT, y, left);
    return an_add_at(AN_AT, y, further);
}

static float at(const float *x, int64_t W, int64_t C, int64_t n, int64_t w, int64_t c)
{
    return w < 0 ? -3 : c >= C ? 5 : x[(n * W + w) * C + c];
}

static void columns_of_any_number_of_channels_have_the_values_of_their_own_channel(void **unused)
{
    (void)unused;
    static const int64_t channels[] = {7, 8, 12, 16, 24, 32, 40, 48, 64, 72, 96, 100, 128, 192, 320},
                         widths[] = {1, 2, 3, 5, 16, 33};
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .threads = 2});
    assert_non_null(cx);
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        const int64_t N = 3, C = channels[i], W = widths[i % (sizeof widths / sizeof *widths)], n = N * W * C;
        float *x = malloc((size_t)n * sizeof *x), *y = malloc((size_t)n * sizeof *y), gain[320];
        assert_true(x && y);
        for (int64_t k = 0; k < n; k++) x[k] = (float)(k % 1009) - 500;
        for (int64_t c = 0; c < C; c++) gain[c] = (float)c / 8 + 1;
        an_tensor *t = formula(cx, x, gain, N, W, C);
        assert_int_equal(an_eval(t), AN_OK);
        assert_int_equal(an_read(t, y, (size_t)n * sizeof *y), AN_OK);
        for (int64_t k = 0; k < n; k++) {
            const int64_t c = k % C, w = k / C % W, b = k / C / W;
            const float want = x[k] * gain[c] + at(x, W, C, b, w - 1, c) + at(x, W, C, b, w, c + 2);
            if (y[k] != want) fail_msg("[%d,%d,%d] element %d is %g, not %g", 3, (int)W, (int)C, (int)k, y[k], want);
        }
        an_reset(cx);
        free(x);
        free(y);
    }
    an_close(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_of_any_number_of_channels_have_the_values_of_their_own_channel)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
