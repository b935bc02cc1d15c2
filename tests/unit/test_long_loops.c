/* test_long_loops.c: compiled loops whose columns are long chains (an exponential, a sigmoid) take four vectors of columns together; they
 * have the interpreter's bits for any number of columns, and for every kind of number. */
#include "lib/test.h"
#include <anneal.h>
#include <math.h>
#include <string.h>

enum { MOST = 1024 };

/* Several chains in one loop, and a plain operation behind them. */
static int64_t formula(an_ctx *cx, const float *x, int64_t rows, int64_t cols, float *y)
{
    an_tensor *t = an_input(cx, AN_F32, AN_SHAPE(rows, cols), x);
    an_tensor *s = an_sigmoid_at(AN_AT, t), *e = an_exp_at(AN_AT, t), *h = an_tanh_at(AN_AT, t);
    an_tensor *sum = an_add_at(AN_AT, an_mul_at(AN_AT, t, s), an_add_at(AN_AT, e, h));
    assert_int_equal(an_eval(sum), AN_OK);
    assert_int_equal(an_read(sum, y, (size_t)(rows * cols) * sizeof *y), AN_OK);
    an_reset(cx);
    return rows * cols;
}

static void compiled_long_loops_have_the_bits_of_the_interpreter(void **unused)
{
    (void)unused;
    static const int64_t shapes[][2] = {{1, 65}, {1, 95},  {1, 96},  {1, 97},  {1, 128},
                                        {3, 67}, {2, 160}, {1, 257}, {7, 131}, {1, 1024}};
    static const float corners[] = {0.0f,   -0.0f,   INFINITY, -INFINITY, NAN,   1e-40f, -1e-40f,
                                    87.33f, -87.34f, 88.8f,    -200.0f,   0.55f, 9.1f};
    an_ctx *compiled = an_open(&(an_options){.device = "cpu", .threads = 2});
    an_ctx *interpreted = an_open(&(an_options){.device = "cpu", .threads = 1, .cc = "none"});
    assert_non_null(compiled);
    assert_non_null(interpreted);
    for (size_t i = 0; i < AN_COUNT(shapes); i++) {
        float x[MOST], a[MOST], b[MOST];
        for (int64_t k = 0; k < shapes[i][0] * shapes[i][1]; k++)
            x[k] = k % 5 == 3 ? corners[(size_t)k / 5 % AN_COUNT(corners)] : (float)(k * 37 % 1009 - 504) / 16.0f;
        const int64_t n = formula(compiled, x, shapes[i][0], shapes[i][1], a);
        formula(interpreted, x, shapes[i][0], shapes[i][1], b);
        for (int64_t k = 0; k < n; k++)
            if (memcmp(a + k, b + k, sizeof *a) != 0)
                fail_msg("[%d,%d] element %d, of %g, is %a, interpreted %a", (int)shapes[i][0], (int)shapes[i][1],
                         (int)k, x[k], a[k], b[k]);
    }
    an_close(compiled);
    an_close(interpreted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(compiled_long_loops_have_the_bits_of_the_interpreter)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
