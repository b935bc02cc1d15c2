/* test_exact_mode.c: exact mode on the CPU: a whole fp32 training step has one hash whatever instruction set, number of
 * threads, compiler or fusion runs it, subnormal numbers are zeros in every thread, the caller's floating point mode is
 * left alone, and what has no one result is refused by name. */
#include "proof/train_case.h"

#include "kernels/cpu_kernels.h"

#include <float.h>
#include <math.h>

static const train_case model = {.B = 3, .T = 17, .C = 32, .L = 2, .H = 2, .V = 65, .dropout = 0.2, .bias = true};
enum { STEPS = 5 };

static an_options exact(void)
{
    return (an_options){.device = "cpu", .seed = 42, .threads = 1, .cache_dir = test_path("cache"), .exact = true};
}

static void a_training_step_has_one_hash_for_instruction_sets_threads_compiler_and_fusion(void **state)
{
    (void)state;
    an_options o = exact();
    double loss = NAN;
    const uint64_t want = case_bits(&model, &o, STEPS, &loss);
    assert_true(isfinite(loss));
    int n, ran = 0;
    const an_cpu_kernels *const *sets = an_cpu_kernels_all(&n);
    for (int i = 0; i < n; i++) {
        if (!an_cpu_kernels_find(sets[i]->isa)) continue; /* this processor cannot run it */
        o = exact();
        o.isa = sets[i]->isa;
        o.threads = 1 + i % 2;
        if (case_bits(&model, &o, STEPS, NULL) != want) fail_msg("%s gives other bits", o.isa);
        ran++;
    }
    assert_true(ran >= 1);
    o = exact();
    o.cc = "none";
    assert_true(case_bits(&model, &o, STEPS, NULL) == want);
    o.unfused = true;
    o.threads = 2;
    assert_true(case_bits(&model, &o, STEPS, NULL) == want);
}

/* float64's operands count as zeros too: functions of libm must not see the bits of what is compared as a zero. */
static void functions_of_float64_see_subnormal_numbers_as_comparisons_do(void **state)
{
    (void)state;
    enum { N = 4, RESULTS = 7 };
    static const double x[N] = {0x1p-1074, -0x1p-1074, 1e-310, -1e-310}, half[N] = {-0.5, -0.5, -0.5, -0.5};
    for (int way = 0; way < 4; way++) {
        an_options o = exact();
        o.unfused = way & 1;
        if (way & 2) o.cc = "none";
        an_ctx *cx = an_open(&o);
        an_tensor *a = an_input(cx, AN_F64, AN_SHAPE(N), x), *b = an_input(cx, AN_F64, AN_SHAPE(N), half);
        an_tensor *y[RESULTS];
        y[0] = an_log(a);
        y[1] = an_pow(a, b);
        y[2] = an_log1p(a);
        y[3] = an_expm1(a);
        y[4] = an_sin(a);
        y[5] = an_tanh(a);
        y[6] = an_atan2(a, an_neg(an_abs(a)));
        const double want[RESULTS] = {-INFINITY, INFINITY, 0, 0, 0, 0, 3.14159265358979323846};
        if (an_eval(y[0], y[1], y[2], y[3], y[4], y[5], y[6]) != AN_OK) fail_msg("%s", an_error(cx));
        for (int r = 0; r < RESULTS; r++) {
            double got[N];
            if (an_read(y[r], got, sizeof got) != AN_OK) fail_msg("%s", an_error(cx));
            for (int i = 0; i < N; i++)
                if (fabs(got[i]) != fabs(want[r])) fail_msg("way %d, result %d of %g is %g", way, r, x[i], got[i]);
        }
        an_close(cx);
    }
}

/* Products of 2^-100 and 2^-30 and halves of the smallest normal number: [rows, cols], enough for every thread. */
static void products(const an_options *o, float *small, float *half)
{
    enum { N = 1 << 17 };
    static float x[N], y[N];
    for (int i = 0; i < N; i++) {
        x[i] = i % 2 ? -0x1p-100f : 0x1p-100f;
        y[i] = 0x1p-30f;
    }
    an_ctx *cx = an_open(o);
    an_tensor *a = an_input(cx, AN_F32, AN_SHAPE(N), x), *b = an_input(cx, AN_F32, AN_SHAPE(N), y);
    an_tensor *p = an_mul(a, b);                                               /* 2^-130 */
    an_tensor *h = an_mul_num(an_full(cx, AN_F32, AN_SHAPE(N), FLT_MIN), 0.5); /* may be folded: the same rule */
    h = an_mul(an_add(h, an_mul(p, b)), an_full(cx, AN_F32, AN_SHAPE(N), 0x1p120));
    if (an_eval(p, h) != AN_OK) fail_msg("%s", an_error(cx));
    static float got[N];
    assert_int_equal(an_read(p, got, sizeof got), AN_OK);
    for (int i = 0; i < N; i++)
        if (got[i] != (i % 2 ? -got[0] : got[0]))
            fail_msg("element %d is %g, the first %g", i, (double)got[i], (double)got[0]);
    *small = got[0];
    assert_int_equal(an_read(h, got, sizeof got), AN_OK);
    for (int i = 0; i < N; i++) assert_true(got[i] == got[0]);
    *half = got[0];
    an_close(cx);
}

static void subnormal_numbers_are_zeros_in_every_thread_and_only_in_exact_mode(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        an_options o = exact();
        float small, half;
        o.threads = 1 + way % 2;
        o.cc = way < 2 ? "none" : NULL;
        products(&o, &small, &half);
        assert_true(small == 0 && half == 0);
        o.exact = false;
        products(&o, &small, &half);
        assert_true(small == 0x1p-130f && half == 0x1p-7f);
    }
}

static void the_callers_own_arithmetic_keeps_its_mode(void **state)
{
    (void)state;
    volatile float tiny = FLT_MIN;
    an_options o = exact();
    float small, half;
    products(&o, &small, &half);
    assert_true(tiny / 2 > 0);
}

static void products_of_bf16_are_refused_by_name(void **state)
{
    (void)state;
    an_options o = exact();
    train_case bf16 = model;
    bf16.matmul = AN_BF16;
    an_err err = {0};
    an_ctx *cx;
    an_gpt *m;
    assert_int_equal(case_open(&err, &bf16, &o, &cx, &m), AN_OK);
    assert_int_equal(case_train(&err, cx, m, &bf16, 0, 1, NULL), AN_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "gpt.h.0.attn"));
    assert_non_null(strstr(err.text, "exact mode is for float32"));
    case_close(cx, m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_training_step_has_one_hash_for_instruction_sets_threads_compiler_and_fusion),
        cmocka_unit_test(functions_of_float64_see_subnormal_numbers_as_comparisons_do),
        cmocka_unit_test(subnormal_numbers_are_zeros_in_every_thread_and_only_in_exact_mode),
        cmocka_unit_test(the_callers_own_arithmetic_keeps_its_mode),
        cmocka_unit_test(products_of_bf16_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
