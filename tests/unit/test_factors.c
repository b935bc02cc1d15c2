/* test_factors.c: factorisations where they are delicate: singular and indefinite matrices follow one rule on the
 * device and on the oracle, and the oracle's eigenvectors in f64 are good to the last digits. */
#include <anneal.h>

#include "lib/test.h"

#include <math.h>
#include <string.h>

static an_ctx *open_on(const char *device)
{
    an_ctx *cx = an_open(&(an_options){.device = device, .cc = "none", .threads = 1});
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    return cx;
}

static void a_pivot_that_is_not_positive_is_nan_on_the_device_and_on_the_oracle(void **state)
{
    (void)state;
    static const double matrices[3][9] = {
        {4, 2, 0, 2, 1, 0, 0, 0, 9},  /* singular: the second pivot is 0 */
        {1, 2, 0, 2, 1, 0, 0, 0, 1},  /* indefinite */
        {4, 0, 0, 4, 17, 0, 0, 0, 9}, /* not symmetric: (a + a^T) / 2 counts */
    };
    static const char *const devices[] = {"cpu", "ref"};
    double l[2][27];
    for (int d = 0; d < 2; d++) {
        an_ctx *cx = open_on(devices[d]);
        an_tensor *y = an_cholesky(an_input(cx, AN_F64, AN_SHAPE(3, 3, 3), matrices));
        if (an_eval(y) != AN_OK) fail_msg("%s", an_error(cx));
        assert_int_equal(an_read(y, l[d], sizeof l[d]), AN_OK);
        an_close(cx);
    }
    for (int i = 0; i < 27; i++) /* nothing in row 2 depends on a zero off the diagonal but through NaN */
        if (l[0][i] != l[1][i] && !(isnan(l[0][i]) && isnan(l[1][i])))
            fail_msg("element %d: cpu %g, ref %g", i, l[0][i], l[1][i]);
    for (int m = 0; m < 2; m++) assert_true(isnan(l[0][9 * m + 4]) && !isnan(l[0][9 * m]));
    assert_true(l[0][18] == 2 && l[0][21] == 1 && l[0][22] == 4 && l[0][26] == 3);
}

static void eigenvectors_of_the_oracle_are_good_to_the_last_digits(void **state)
{
    (void)state;
    enum { N = 24 };
    static double a[N * N], w[N], v[N * N];
    uint32_t r = 1;
    for (int i = 0; i < N; i++)
        for (int j = 0; j <= i; j++) {
            r = r * 1664525u + 1013904223u;
            a[i * N + j] = a[j * N + i] = (double)(r >> 8) / (1 << 24) - 0.5;
        }
    an_ctx *cx = open_on("ref");
    an_tensor *vectors, *values = an_eigh(an_input(cx, AN_F64, AN_SHAPE(N, N), a), &vectors);
    if (an_eval(values, vectors) != AN_OK) fail_msg("%s", an_error(cx));
    assert_int_equal(an_read(values, w, sizeof w), AN_OK);
    assert_int_equal(an_read(vectors, v, sizeof v), AN_OK);
    an_close(cx);
    double worst = 0, largest = 0;
    for (int j = 0; j < N; j++) {
        for (int k = 0; k < N; k++) assert_true(isfinite(v[k * N + j])); /* fmax takes no notice of NaN */
        largest = fmax(largest, fabs(w[j]));
        assert_true(j == 0 || w[j] >= w[j - 1]);
        for (int k = 0; k < N; k++) {
            long double sum = 0, dot = 0;
            for (int i = 0; i < N; i++) sum += (long double)a[k * N + i] * v[i * N + j];
            for (int i = 0; i < N; i++) dot += (long double)v[i * N + j] * v[i * N + k];
            worst = fmax(worst, fabs((double)(sum - (long double)w[j] * v[k * N + j])));
            worst = fmax(worst, fabs((double)(dot - (j == k))));
        }
    }
    if (worst > 6e-16 * largest)
        fail_msg("%g beside values up to %g", worst, largest); /* 6.1e-15 with rotations in double */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pivot_that_is_not_positive_is_nan_on_the_device_and_on_the_oracle),
        cmocka_unit_test(eigenvectors_of_the_oracle_are_good_to_the_last_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
