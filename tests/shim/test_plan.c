/* test_plan.c: whole training steps of three small models, every kernel of the plan as MSL on the CPU shim, beside the
 * CPU device: in f32 the same bits in the loss and in every parameter, step after step; with GEMMs in bf16 the
 * same numbers within the precision of bf16. */
#include "golden/programs.h"

#include "shim_device.h"

#include <math.h>

enum { STEPS = 3, MOST = 1 << 14 };

typedef struct trace { /* loss and norm of each step, parameters after the last */
    float loss[STEPS], norm[STEPS];
    int n;
    float param[MOST];
} trace;

static void train(an_ctx *cx, size_t which, an_dtype dtype, trace *out)
{
    an_set_policy(cx, (an_policy){.matmul = dtype});
    an_gpt *gpt = NULL;
    for (int step = 0; step < STEPS; step++) {
        an_reset(cx);
        an_set_step(cx, (uint64_t)step);
        program p = program_build(cx, which);
        an_tensor *roots[2] = {p.loss, p.norm};
        if (an_eval(roots[0], roots[1]) != AN_OK) fail_msg("%s, step %d: %s", p.name, step, an_error(cx));
        assert_int_equal(an_read(p.loss, &out->loss[step], sizeof(float)), AN_OK);
        assert_int_equal(an_read(p.norm, &out->norm[step], sizeof(float)), AN_OK);
        if (gpt) an_gpt_close(gpt);
        gpt = p.gpt;
    }
    out->n = 0;
    for (int i = 0; i < an_persist_count(cx); i++) {
        an_persist info;
        assert_int_equal(an_persist_get(cx, i, &info), AN_OK);
        if (info.dtype != AN_F32) continue;
        size_t n = 1;
        for (int k = 0; k < info.shape.rank; k++) n *= (size_t)info.shape.dim[k];
        assert_true(out->n + (int)n <= MOST);
        assert_int_equal(an_persist_read(cx, i, out->param + out->n, n * sizeof(float)), AN_OK);
        out->n += (int)n;
    }
    assert_true(out->n > 100);
    an_gpt_close(gpt);
    an_close(cx);
}

static double most(const float *a, const float *b, int n, double *scale)
{
    double worst = 0;
    *scale = 1e-30;
    for (int i = 0; i < n; i++) {
        worst = fmax(worst, isfinite(b[i]) ? fabs((double)a[i] - (double)b[i]) : (double)INFINITY);
        *scale = fmax(*scale, fabs((double)a[i]));
    }
    return worst;
}

static trace cpu, shim;

static void run_both(size_t which, an_dtype dtype, an_gpu gpu)
{
    an_ctx *cx = shim_context(&(an_options){.seed = 1, .verify = true}, gpu);
    train(an_open(&(an_options){.device = "cpu", .seed = 1, .cc = "none"}), which, dtype, &cpu);
    train(cx, which, dtype, &shim);
    assert_int_equal(cpu.n, shim.n);
}

static void same_bits(size_t which, an_gpu gpu)
{
    run_both(which, AN_F32, gpu);
    for (int s = 0; s < STEPS; s++)
        if (memcmp(&cpu.loss[s], &shim.loss[s], 4) || memcmp(&cpu.norm[s], &shim.norm[s], 4))
            fail_msg("step %d: loss %.9g and %.9g, norm %.9g and %.9g", s, (double)cpu.loss[s], (double)shim.loss[s],
                     (double)cpu.norm[s], (double)shim.norm[s]);
    for (int i = 0; i < cpu.n; i++)
        if (memcmp(&cpu.param[i], &shim.param[i], 4))
            fail_msg("parameter %d is %.9g and %.9g", i, (double)cpu.param[i], (double)shim.param[i]);
}

static void a_classifier_trains_with_the_bits_of_the_cpu(void **state)
{
    (void)state, same_bits(0, MSL_300);
}
static void a_gpt_block_trains_with_the_bits_of_the_cpu(void **state)
{
    (void)state, same_bits(1, MSL_300);
}
static void a_conv_net_trains_with_the_bits_of_the_cpu(void **state)
{
    (void)state, same_bits(2, MSL_300);
}

/* As on a virtual machine's GPU. */
static void without_matrix_instructions_the_bits_are_the_same(void **state)
{
    (void)state, same_bits(1, (an_gpu){.dialect = &an_dialects[AN_DIALECT_MSL], .version = 300, .plain = true});
}
static void without_shuffles_the_bits_are_the_same(void **state)
{
    const an_gpu gpu = {.dialect = &an_dialects[AN_DIALECT_MSL], .version = 310, .plain = true, .no_shuffles = true};
    (void)state, same_bits(1, gpu), same_bits(2, gpu);
}

static void a_gpt_block_in_bf16_trains_to_the_same_numbers(void **state)
{
    (void)state;
    static const an_gpu gpus[] = {{.dialect = &an_dialects[AN_DIALECT_MSL], .version = 300},
                                  {.dialect = &an_dialects[AN_DIALECT_MSL], .version = 310},
                                  {.dialect = &an_dialects[AN_DIALECT_MSL], .version = 310, .plain = true}};
    for (size_t i = 0; i < AN_COUNT(gpus); i++) {
        double scale;
        run_both(1, AN_BF16, gpus[i]);
        assert_true(most(cpu.loss, shim.loss, STEPS, &scale) <= 2e-3 * scale);
        assert_true(most(cpu.norm, shim.norm, STEPS, &scale) <= 2e-2 * scale);
        /* a step of AdamW is as large for a gradient of rounding noise as for any */
        assert_true(most(cpu.param, shim.param, cpu.n, &scale) <= STEPS * 0.021);
    }
}

/* y = (t - max t) t[k], written over the GEMM's result t: no lane may write before all have read t[k]. */
static void what_is_picked_of_a_row_is_read_before_the_row_is_written(void **state)
{
    (void)state;
    enum { ROWS = 6, COLS = 45 };
    float got[2][ROWS * COLS], data[ROWS * 8], weight[COLS * 8];
    const int32_t k[ROWS] = {0, 44, 31, 32, 7, 45};
    for (int i = 0; i < ROWS * 8; i++) data[i] = (float)(i * 37 % 64) / 32 - 1;
    for (int i = 0; i < COLS * 8; i++) weight[i] = (float)(i * 29 % 64) / 32 - 1;
    for (int on = 0; on < 2; on++) {
        an_ctx *cx = on ? shim_context(&(an_options){.verify = true}, MSL_300)
                        : an_open(&(an_options){.device = "cpu", .cc = "none"});
        an_tensor *t = an_matmul(an_input(cx, AN_F32, AN_SHAPE(ROWS, 8), data),
                                 an_input(cx, AN_F32, AN_SHAPE(8, COLS), weight)); /* [ROWS,COLS] */
        an_tensor *at = an_input(cx, AN_I32, AN_SHAPE(ROWS, 1), k);
        an_tensor *there = an_eq(an_iota(cx, AN_SHAPE(ROWS, COLS), 1), at);
        an_tensor *picked = an_sum_at(AN_AT, an_where(there, t, an_full(cx, AN_F32, AN_SHAPE(1), 0)), AN_AXIS(1), true);
        an_tensor *y = an_mul(an_sub(t, an_max_at(AN_AT, t, AN_AXIS(1), true)), picked);
        if (an_eval(y) != AN_OK) fail_msg("%s", an_error(cx));
        assert_int_equal(an_read(y, got[on], sizeof got[on]), AN_OK);
        an_close(cx);
    }
    assert_memory_equal(got[0], got[1], sizeof got[0]);
    assert_true(got[0][COLS] != 0 && got[0][5 * COLS] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_classifier_trains_with_the_bits_of_the_cpu),
        cmocka_unit_test(a_gpt_block_trains_with_the_bits_of_the_cpu),
        cmocka_unit_test(a_conv_net_trains_with_the_bits_of_the_cpu),
        cmocka_unit_test(without_matrix_instructions_the_bits_are_the_same),
        cmocka_unit_test(without_shuffles_the_bits_are_the_same),
        cmocka_unit_test(a_gpt_block_in_bf16_trains_to_the_same_numbers),
        cmocka_unit_test(what_is_picked_of_a_row_is_read_before_the_row_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
