/* test_decode.c: attention of one query by its own body (kernels/gpu/attn_decode.inc), run on the CPU, against the CPU's attention: head
 * sizes, numbers of keys in and beyond a chunk, keys of a cache, f32 and bf16. */
#include "ops/cases.h"
#include "shim_device.h"

#include <math.h>

enum { MOST = 2 * 3 * 256 };

static lab numbers;

/* o [2,3,1,D] as f32 */
static void attend(an_ctx *cx, an_dtype t, int64_t D, int64_t S, int32_t n_keys, float *out)
{
    lab_forget(&numbers);
    numbers.random = 5;
    numbers.now = cx;
    an_reset(cx);
    an_tensor *q = lab_fill(&numbers, t, AN_SHAPE(2, 3, 1, D), -2, 2),
              *k = lab_fill(&numbers, t, AN_SHAPE(2, 3, S, D), -2, 2),
              *v = lab_fill(&numbers, t, AN_SHAPE(2, 3, S, D), -2, 2);
    an_tensor *n = n_keys < 0 ? NULL : an_scalar_i32_at(AT, cx, n_keys);
    an_tensor *o = an_cast_at(AT, an_attention_at(AT, q, k, v, 0, true, 0, n), AN_F32);
    if (an_eval_at(AT, &o, 1) != AN_OK) fail_msg("%s", an_error(cx));
    assert_int_equal(an_read_at(AT, o, out, (size_t)(6 * D) * sizeof *out), AN_OK);
}

static void one_query_attends_as_on_the_cpu(void **state)
{
    (void)state;
    static const struct {
        int64_t D, S;
        int32_t n_keys;
    } cases[] = {{64, 1, -1},  {64, 256, 17}, {8, 63, -1},    {40, 130, 130},  {128, 300, 257},
                 {256, 70, 1}, {96, 65, 64},  {64, 4200, -1}, {64, 2300, 2049}};
    static float got[MOST], want[MOST];
    an_gpu gpu = MSL_300;
    gpu.decode = true;
    an_ctx *on_shim = shim_context(&(an_options){.seed = 1, .verify = true}, gpu),
           *on_cpu = an_open(&(an_options){.device = "cpu", .cc = "none"});
    for (size_t i = 0; i < AN_COUNT(cases); i++)
        for (int narrow = 0; narrow < 2; narrow++) {
            const an_dtype t = narrow ? AN_BF16 : AN_F32;
            attend(on_cpu, t, cases[i].D, cases[i].S, cases[i].n_keys, want);
            attend(on_shim, t, cases[i].D, cases[i].S, cases[i].n_keys, got);
            for (int64_t k = 0; k < 6 * cases[i].D; k++)
                if (!(fabsf(got[k] - want[k]) <= (narrow ? 0.02f : 4e-6f)))
                    fail_msg("D %d S %d n_keys %d %s: element %d is %g, the CPU's %g", (int)cases[i].D, (int)cases[i].S,
                             cases[i].n_keys, an_dtype_name(t), (int)k, (double)got[k], (double)want[k]);
        }
    an_close(on_cpu);
    an_close(on_shim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_query_attends_as_on_the_cpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
