/* test_autocast.c: a region of a model in which autocast is off computes in float32 under a narrow precision policy, as in PyTorch: angles
 * of rotary positions, which bf16 would have wrong by radians. The archive is tools/pt2_goldens.py's (--rotary). */
#include "lib/test.h"

#include <anneal_import.h>
#include <math.h>

enum { N = 64, F = 8 };

static void angles_stay_float32_where_autocast_is_off(void **state)
{
    (void)state;
    char why[AN_IMPORT_WHY] = "";
    float position[N], got[F * N];
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .cc = "none", .threads = 1});
    assert_non_null(cx);
    an_set_policy(cx, (an_policy){.matmul = AN_BF16});
    for (int i = 0; i < N; i++)
        position[i] = (float)(4 * i); /* exact in bf16: the linear layer in front of the region keeps them */
    an_import *file = an_import_open("tests/import/exact/rotary.pt2", why);
    if (!file) fail_msg("%s", why);
    an_import_model *m = an_import_bind(file, cx, why);
    if (!m) fail_msg("%s", why);
    an_tensor *in = an_input_at(AN_AT, cx, AN_F32, AN_SHAPE(N, 1), position), *y;
    if (an_import_build(m, AN_IMPORT_TRAIN, &in, &y, why) != AN_OK) fail_msg("%s", why);
    assert_int_equal(an_dtype_of(y), AN_F32);
    if (an_eval_at(AN_AT, &y, 1) != AN_OK) fail_msg("%s", an_error(cx));
    if (an_read_at(AN_AT, y, got, sizeof got) != AN_OK) fail_msg("%s", an_error(cx));
    for (int f = 0; f < F; f++)
        for (int i = 0; i < N; i++) {
            const double want = cos(pow(10000.0, -f / 8.0) * position[i]);
            if (!(fabs(got[f * N + i] - want) < 1e-4))
                fail_msg("frequency %d at %g: %g, not %g", f, (double)position[i], (double)got[f * N + i], want);
        }
    an_import_release(m);
    an_import_close(file);
    an_close(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(angles_stay_float32_where_autocast_is_off)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
