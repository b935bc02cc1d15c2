/* test_rows.c: products of few rows by their own body (kernels/gpu/gemm_rows.inc), run on the CPU, against the CPU's: one to eight rows and
 * nine, which another body multiplies, weights in either orientation, extents that are multiples of nothing, with and without an
 * epilogue, f32, bf16 and f16. */
#include "ops/cases.h"
#include "shim_device.h"

#include <math.h>

enum { MOST = 9 * 4200 };

typedef struct product {
    int64_t m, n, k;
    bool along_k, epilogue;
} product;

static lab numbers;

/* [m,n] as f32: x w, or gelu(x w + bias) + residual. */
static void multiply(an_ctx *cx, an_dtype t, const product *p, float *out)
{
    lab_forget(&numbers);
    numbers.random = 5;
    numbers.now = cx;
    an_reset(cx);
    an_tensor *x = lab_fill(&numbers, t, AN_SHAPE(p->m, p->k), -1, 1), *w, *y;
    if (p->along_k)
        w = an_transpose_at(AT, lab_fill(&numbers, t, AN_SHAPE(p->n, p->k), -1, 1), 0, 1);
    else
        w = lab_fill(&numbers, t, AN_SHAPE(p->k, p->n), -1, 1);
    y = an_matmul_at(AT, x, w);
    if (p->epilogue) {
        an_tensor *bias = lab_fill(&numbers, t, AN_SHAPE(p->n), -1, 1),
                  *residual = lab_fill(&numbers, t, AN_SHAPE(p->m, p->n), -1, 1);
        y = an_add_at(AT, an_gelu_at(AT, an_add_at(AT, y, bias)), residual);
    }
    y = an_cast_at(AT, y, AN_F32);
    if (an_eval_at(AT, &y, 1) != AN_OK) fail_msg("%s", an_error(cx));
    assert_int_equal(an_read_at(AT, y, out, (size_t)(p->m * p->n) * sizeof *out), AN_OK);
}

static void few_rows_are_multiplied_as_on_the_cpu(void **state)
{
    (void)state;
    static const product cases[] = {
        {1, 64, 96, false, false},  {1, 65, 97, false, true},   {1, 64, 96, true, true},    {1, 65, 97, true, false},
        {1, 1, 1, false, false},    {1, 1, 1, true, true},      {1, 1544, 40, false, true}, {1, 3080, 16, false, false},
        {1, 24, 2056, false, true}, {2, 72, 520, false, true},  {3, 17, 33, true, false},   {4, 40, 1032, false, false},
        {5, 33, 8, false, true},    {8, 80, 264, true, true},   {8, 136, 72, false, false}, {7, 9, 1031, false, true},
        {1, 4100, 24, true, true},  {2, 4103, 11, true, false}, {9, 40, 64, false, true},   {8, 8, 4096, true, false},
        {1, 12, 3072, true, true},  {2, 5, 2048, true, false},  {1, 33, 2100, true, true},
    };
    static float got[MOST], want[MOST];
    an_gpu gpu = MSL_300;
    gpu.rows = true;
    an_ctx *on_shim = shim_context(&(an_options){.seed = 1, .verify = true}, gpu),
           *on_cpu = an_open(&(an_options){.device = "cpu", .cc = "none"});
    for (size_t i = 0; i < AN_COUNT(cases); i++)
        for (int kind = 0; kind < 3; kind++) {
            const product *p = &cases[i];
            const an_dtype t = kind == 0 ? AN_F32 : kind == 1 ? AN_BF16 : AN_F16;
            const double step = kind == 0 ? 0x1p-20 : kind == 1 ? 0x1p-7 : 0x1p-10;
            multiply(on_cpu, t, p, want);
            multiply(on_shim, t, p, got);
            for (int64_t k = 0; k < p->m * p->n; k++)
                if (!(fabs((double)got[k] - (double)want[k]) <= step * (sqrt((double)p->k) + fabs((double)want[k]))))
                    fail_msg("[%d,%d] x [%d,%d] case %d %s: element %d is %g, the CPU's %g", (int)p->m, (int)p->k,
                             (int)p->k, (int)p->n, (int)i, an_dtype_name(t), (int)k, (double)got[k], (double)want[k]);
        }
    an_close(on_cpu);
    an_close(on_shim);
}

/* Which products have the body. */
static void few_rows_of_what_needs_no_rounding_have_the_body(void **state)
{
    (void)state;
    an_gpu gpu = MSL_300;
    const an_gemm_spec one = {.m = 1,
                              .n = 768,
                              .k = 768,
                              .nb = {1, 1, 1},
                              .a_m = 768,
                              .a_k = 1,
                              .b_k = 768,
                              .b_n = 1,
                              .c_m = 768,
                              .a_dtype = AN_BF16,
                              .b_dtype = AN_BF16,
                              .c_dtype = AN_BF16,
                              .mul_dtype = AN_BF16};
    an_gemm_spec s = one;
    assert_false(an_module_gemm_rows(&s, &gpu)); /* not asked for, as in exact mode */
    gpu.rows = true;
    assert_true(an_module_gemm_rows(&s, &gpu));
    s.m = 8;
    assert_true(an_module_gemm_rows(&s, &gpu));
    s.m = 9;
    assert_false(an_module_gemm_rows(&s, &gpu));
    s = one, s.m = 4, s.a_m = 1, s.a_k = 4;
    assert_false(an_module_gemm_rows(&s, &gpu)); /* the gradient of weights */
    s = one, s.b_dtype = AN_F32;
    assert_false(an_module_gemm_rows(&s, &gpu)); /* to be rounded */
    s = one, s.nb[1] = 2;
    assert_false(an_module_gemm_rows(&s, &gpu));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(few_rows_are_multiplied_as_on_the_cpu),
                                       cmocka_unit_test(few_rows_of_what_needs_no_rounding_have_the_body)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
