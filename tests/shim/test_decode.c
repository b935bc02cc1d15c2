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

/* The number of keys is one number, wherever it lies; q, k, v and o are read and written 16 bytes at a time. */
static void a_count_of_keys_may_begin_anywhere(void **state)
{
    (void)state;
    enum { Q, K, V, RNG, O, LSE, N_KEYS, N };
    an_kernel kernel = {.kind = AN_KERNEL_ATTN,
                        .u.attn = {.B = 1,
                                   .H = 2,
                                   .T = 1,
                                   .S = 64,
                                   .D = 64,
                                   .causal = 1,
                                   .dtype = AN_BF16,
                                   .mul_dtype = AN_BF16,
                                   .q = {128, 64, 128},
                                   .k = {8192, 4096, 64},
                                   .v = {8192, 4096, 64},
                                   .o = {128, 64, 128}}};
    an_arg arg[N];
    an_plan_step step = {.epilogue = -1, .n_args = N, .arg = arg};
    an_plan plan = {.n_kernels = 1, .n_steps = 1, .kernel = &kernel, .step = &step};
    an_gpu gpu = MSL_300;
    an_tiles t;
    gpu.decode = true;
    for (int moved = -1; moved < N; moved++) {
        for (int i = 0; i < N; i++) arg[i] = (an_arg){.slot = AN_SLOT_INPUT, .offset = 256 * i, .bytes = 256};
        if (moved >= 0) arg[moved].offset += 4;
        assert_null(an_module_tiles(&plan, &step, &gpu, &t));
        const bool number = moved < 0 || moved == RNG || moved == N_KEYS;
        assert_int_equal(t.body, number ? AN_BODY_DECODE : AN_BODY_PORTABLE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_query_attends_as_on_the_cpu),
                                       cmocka_unit_test(a_count_of_keys_may_begin_anywhere)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
