/* test_gpu.c: the device cuda on a real GPU: equal bits in exact mode, attention in bf16 and in tf32, GELU, GEMMs
 * with fused GELU, with biases, and scattering against the CPU, and the same bits in a second run. Skipped by name, with the reason,
 * where there is no GPU, as in CI; tests/cuda/test_faults.c runs there. */
#define _GNU_SOURCE /* setenv */
#include "proof/train_case.h"
#include "cuda/rotated_case.h"
#include <anneal_tools.h>

#include "device/device.h"

#include <math.h>

static void need_gpu(void)
{
    an_err err = {0};
    an_device_info info = {0};
    const an_backend *b = an_backend_find(&err, "cuda");
    if (!b || !b->probe(&info)) test_skip("no GPU: %s", info.reason);
}

/* ---------------------------------------------------------------------------------------------- attention */

typedef struct attention {
    int B, H, T, S, D;
    bool causal;
    double dropout;
} attention;

static const attention attentions[] = {
    {2, 3, 256, 256, 64, true, 0},   {2, 2, 256, 256, 64, true, 0.2},
    {1, 2, 200, 200, 64, false, 0},  {1, 2, 130, 197, 32, true, 0.1},
    {1, 3, 77, 77, 16, true, 0},     {1, 2, 64, 33, 128, false, 0.3},
    {1, 1, 300, 300, 128, true, 0},  {2, 2, 129, 65, 48, true, 0},
    {1, 2, 65, 65, 96, true, 0},     {2, 1, 70, 90, 40, true, 0.2},
    {8, 8, 200, 200, 64, true, 0.2}, {4, 16, 130, 197, 64, true, 0},
    {24, 4, 256, 256, 64, true, 0},  {8, 9, 77, 141, 64, false, 0.1}, /* many heads */
    {2, 3, 130, 130, 65, true, 0.1}, {1, 2, 150, 150, 100, true, 0},
    {1, 2, 70, 70, 20, false, 0}, /* not aligned */
    {34, 8, 97, 97, 64, false, 0},   {90, 3, 112, 112, 64, true, 0},
    {53, 5, 65, 65, 64, false, 0}, /* attn_short.inc */
};

enum { N_OUT = 4 };
static const char *const out_names[N_OUT] = {"o", "dq", "dk", "dv"};

/* o and the gradients of sum(o * w) as floats; free() each. Float32 on a GPU: GEMMs in tf32. */
static void run_attention(const attention *a, an_dtype dtype, const char *device, float *out[N_OUT], int64_t n[N_OUT])
{
    an_ctx *cx = an_open(&(an_options){.device = device, .seed = 5, .tf32 = dtype == AN_F32});
    const an_shape qs = AN_SHAPE(a->B, a->H, a->T, a->D), ks = AN_SHAPE(a->B, a->H, a->S, a->D);
    an_tensor *q = an_param(cx, "q", AN_F32, qs, AN_NORMAL(1)), *k = an_param(cx, "k", AN_F32, ks, AN_NORMAL(1)),
              *v = an_param(cx, "v", AN_F32, ks, AN_NORMAL(1)), *w = an_param(cx, "w", AN_F32, qs, AN_NORMAL(1));
    an_tensor *o = an_attention(an_cast(q, dtype), an_cast(k, dtype), an_cast(v, dtype), 0, a->causal, a->dropout);
    an_backward(an_sum(an_mul(an_cast(o, AN_F32), w), AN_ALL));
    an_tensor *want[N_OUT] = {an_cast(o, AN_F32), an_grad(q), an_grad(k), an_grad(v)};
    if (an_eval(want[0], want[1], want[2], want[3]) != AN_OK) fail_msg("%s: %s", device, an_error(cx));
    for (int i = 0; i < N_OUT; i++) {
        n[i] = (int64_t)a->B * a->H * (i < 2 ? a->T : a->S) * a->D;
        out[i] = malloc((size_t)n[i] * sizeof(float));
        assert_non_null(out[i]);
        assert_int_equal(an_read(want[i], out[i], (size_t)n[i] * sizeof(float)), AN_OK);
    }
    an_close(cx);
}

static void compare_attention(an_dtype dtype, double allowed)
{
    for (size_t s = 0; s < AN_COUNT(attentions); s++) {
        const attention *a = &attentions[s];
        float *gpu[N_OUT], *again[N_OUT], *cpu[N_OUT];
        int64_t n[N_OUT];
        run_attention(a, dtype, "cuda", gpu, n);
        run_attention(a, dtype, "cuda", again, n);
        run_attention(a, dtype, "cpu", cpu, n);
        for (int i = 0; i < N_OUT; i++) {
            double difference = 0, norm = 0;
            for (int64_t e = 0; e < n[i]; e++) {
                double d = (double)gpu[i][e] - (double)cpu[i][e];
                difference += d * d, norm += (double)cpu[i][e] * (double)cpu[i][e];
            }
            double relative = sqrt(difference / norm);
            print_message("# B%d H%d T%d S%d D%d%s dropout %g: %s: relative difference %.2g\n", a->B, a->H, a->T, a->S,
                          a->D, a->causal ? " causal" : "", a->dropout, out_names[i], relative);
            if (!(relative < allowed)) fail_msg("%s differs by %g", out_names[i], relative);
            assert_memory_equal(gpu[i], again[i], (size_t)n[i] * sizeof(float));
            free(gpu[i]);
            free(again[i]);
            free(cpu[i]);
        }
    }
}

static void attention_in_bf16_is_that_of_the_cpu(void **state)
{
    (void)state;
    need_gpu();
    compare_attention(AN_BF16, 6e-3);
}

static void attention_in_tf32_is_that_of_the_cpu_in_f32(void **state)
{
    (void)state;
    need_gpu();
    compare_attention(AN_F32, 1e-3);
}

static void tell_of_fault(void *user, const an_kernel_check *k)
{
    (void)user;
    if (k->fault[0]) print_message("# %s: %s\n", k->kind, k->fault);
}

/* Results as floats; free() each. */
static void run_rotated(bool unfused, float *out[N_ROTATED], int64_t n[N_ROTATED], int64_t *launches)
{
    an_ctx *cx = an_open(&(an_options){.device = "cuda", .seed = 5, .unfused = unfused});
    an_tensor *want[N_ROTATED];
    an_bill bill = {0};
    rotated_case(cx, ROTATED, want, n);
    if (an_eval(want[0], want[1], want[2]) != AN_OK) fail_msg("%s", an_error(cx));
    for (int i = 0; i < N_ROTATED; i++) {
        out[i] = malloc((size_t)n[i] * sizeof(float));
        assert_non_null(out[i]);
        assert_int_equal(an_read(want[i], out[i], (size_t)n[i] * sizeof(float)), AN_OK);
    }
    if (!unfused) {
        an_check_result checked;
        assert_int_equal(an_check_kernels(cx, tell_of_fault, NULL, &checked), AN_OK);
        print_message("# %d kernels, %d wrong, %d not checked\n", checked.kernels, checked.faults, checked.skipped);
        assert_int_equal(checked.faults, 0);
    }
    assert_int_equal(an_report(cx, &bill), AN_OK);
    *launches = bill.launches;
    an_close(cx);
}

static void rotated_attention_has_the_bits_of_a_rotation_before_it(void **state)
{
    (void)state;
    need_gpu();
    float *fused[N_ROTATED], *apart[N_ROTATED];
    int64_t n[N_ROTATED], launches[2];
    run_rotated(false, fused, n, &launches[0]);
    run_rotated(true, apart, n, &launches[1]);
    print_message("# %d launches, unfused %d\n", (int)launches[0], (int)launches[1]);
    for (int i = 0; i < N_ROTATED; i++) {
        int64_t differ = 0;
        for (int64_t e = 0; e < n[i]; e++) differ += fused[i][e] != apart[i][e];
        print_message("# rotated: result %d: %d of %d differ\n", i, (int)differ, (int)n[i]);
        assert_int_equal(differ, 0);
        free(fused[i]);
        free(apart[i]);
    }
}

/* ---------------------------------------------------------------------------------------------- GEMMs */

typedef struct layer {
    int rows, in, out;
} layer;

enum { N_GRADIENTS = 3 };

/* y = x w^T, and the gradients of sum(y * z): whoever makes them on an H200 in tf32, the library or our own kernel. */
static void run_layer(const layer *p, const char *device, float *got[N_GRADIENTS], int64_t n[N_GRADIENTS])
{
    an_ctx *cx = an_open(&(an_options){.device = device, .seed = 7, .tf32 = true});
    an_tensor *x = an_param(cx, "x", AN_F32, AN_SHAPE(p->rows, p->in), AN_NORMAL(1)),
              *w = an_param(cx, "w", AN_F32, AN_SHAPE(p->out, p->in), AN_NORMAL(1)),
              *z = an_param(cx, "z", AN_F32, AN_SHAPE(p->rows, p->out), AN_NORMAL(1));
    an_tensor *y = an_matmul(x, an_transpose(w, 0, 1));
    an_backward(an_sum(an_mul(y, z), AN_ALL));
    an_tensor *want[N_GRADIENTS] = {y, an_grad(x), an_grad(w)};
    if (an_eval(want[0], want[1], want[2]) != AN_OK) fail_msg("%s: %s", device, an_error(cx));
    const int64_t sizes[N_GRADIENTS] = {(int64_t)p->rows * p->out, (int64_t)p->rows * p->in, (int64_t)p->out * p->in};
    for (int i = 0; i < N_GRADIENTS; i++) {
        n[i] = sizes[i];
        got[i] = malloc((size_t)n[i] * sizeof(float));
        assert_non_null(got[i]);
        assert_int_equal(an_read(want[i], got[i], (size_t)n[i] * sizeof(float)), AN_OK);
    }
    an_close(cx);
}

static void gemms_in_tf32_are_near_those_of_the_cpu_in_f32_and_the_same_again(void **state)
{
    (void)state;
    static const layer layers[] = {
        {16384, 384, 384}, {8192, 384, 192}, {8192, 196, 380}, {4096, 100, 260}, {4097, 64, 65}};
    static const char *const names[N_GRADIENTS] = {"y", "dx", "dw"};
    need_gpu();
    for (size_t s = 0; s < AN_COUNT(layers); s++) {
        float *gpu[N_GRADIENTS], *again[N_GRADIENTS], *cpu[N_GRADIENTS];
        int64_t n[N_GRADIENTS];
        run_layer(&layers[s], "cuda", gpu, n);
        run_layer(&layers[s], "cuda", again, n);
        run_layer(&layers[s], "cpu", cpu, n);
        for (int i = 0; i < N_GRADIENTS; i++) {
            double difference = 0, norm = 0;
            for (int64_t e = 0; e < n[i]; e++) {
                const double d = (double)gpu[i][e] - (double)cpu[i][e];
                difference += d * d, norm += (double)cpu[i][e] * (double)cpu[i][e];
            }
            const double relative = sqrt(difference / norm);
            print_message("# %d x %d x %d: %s: relative difference %.2g\n", layers[s].rows, layers[s].in, layers[s].out,
                          names[i], relative);
            if (!(relative < 1e-3)) fail_msg("%s differs by %g", names[i], relative);
            assert_memory_equal(gpu[i], again[i], (size_t)n[i] * sizeof(float));
            free(gpu[i]), free(again[i]), free(cpu[i]);
        }
    }
}

/* ---------------------------------------------------------------------------------------------- GELU */

enum { N_BF16 = 1 << 16 };

/* GELU of every bf16 number and its derivative there, both rounded to bf16. */
static void run_gelu(const char *device, float *y, float *dx)
{
    static float x[N_BF16];
    for (uint32_t i = 0; i < N_BF16; i++) {
        const uint32_t bits = i << 16;
        memcpy(&x[i], &bits, sizeof bits);
    }
    an_ctx *cx = an_open(&(an_options){.device = device});
    an_tensor *zero = an_param(cx, "zero", AN_F32, AN_SHAPE(N_BF16), AN_ZEROS),
              *in = an_cast(an_add(an_input(cx, AN_F32, AN_SHAPE(N_BF16), x), zero), AN_BF16),
              *out = an_cast(an_gelu(in), AN_F32);
    an_backward(an_sum(out, AN_ALL));
    an_tensor *gradient = an_grad(zero);
    if (an_eval(out, gradient) != AN_OK) fail_msg("%s: %s", device, an_error(cx));
    assert_int_equal(an_read(out, y, sizeof x), AN_OK);
    assert_int_equal(an_read(gradient, dx, sizeof x), AN_OK);
    an_close(cx);
}

/* A unit of the last place of bf16, or what 1 + erf cancels in f32: a few 2^-24, times x. */
static void compare_gelu(const char *what, const float *gpu, const float *cpu)
{
    double worst = 0;
    for (uint32_t i = 0; i < N_BF16; i++) {
        const uint32_t bits = i << 16;
        float x;
        memcpy(&x, &bits, sizeof bits);
        if (isnan(cpu[i]) || isinf(cpu[i])) {
            if (isnan(cpu[i]) ? !isnan(gpu[i]) : gpu[i] != cpu[i])
                fail_msg("%s(%g): %g", what, (double)x, (double)gpu[i]);
            continue;
        }
        const double allowed = fabs((double)cpu[i]) / 128 + 2e-7 * fmin(fabs((double)x), 10) + 1e-30;
        const double difference = fabs((double)gpu[i] - (double)cpu[i]);
        worst = fmax(worst, difference / allowed);
        if (!(difference <= allowed)) fail_msg("%s(%g): %g, not %g", what, (double)x, (double)gpu[i], (double)cpu[i]);
    }
    print_message("# %s: %.2f of what is allowed\n", what, worst);
}

static void gelu_of_every_bf16_number_is_that_of_the_cpu(void **state)
{
    (void)state;
    static float y[2][N_BF16], dx[2][N_BF16];
    need_gpu();
    run_gelu("cuda", y[0], dx[0]);
    run_gelu("cpu", y[1], dx[1]);
    compare_gelu("gelu", y[0], y[1]);
    compare_gelu("gelu'", dx[0], dx[1]);
}

/* ---------------------------------------------------------------------------------------------- long rows */

enum { LONG_ROWS = 12, LONG_COLS = 12000, LONG_IN = 64, N_LONG = 4 };
static const char *const long_names[N_LONG] = {"losses", "dx", "softmax", "softmax of it"};

/* A cross entropy in bf16, whose gradient is written over the logits, and rows of f32 of which one output is read
 * again in later phases. */
static void run_long_rows(const char *device, float *out[N_LONG], const size_t n[N_LONG])
{
    int32_t y[LONG_ROWS];
    for (int i = 0; i < LONG_ROWS; i++) y[i] = i % 5 == 4 ? -100 : i * 1091 % LONG_COLS;
    an_ctx *cx = an_open(&(an_options){.device = device, .seed = 3});
    an_set_policy(cx, (an_policy){.matmul = AN_BF16});
    an_tensor *x = an_param(cx, "x", AN_F32, AN_SHAPE(LONG_ROWS, LONG_IN), AN_NORMAL(1)),
              *w = an_param(cx, "w", AN_F32, AN_SHAPE(LONG_COLS, LONG_IN), AN_NORMAL(0.5)),
              *z = an_param(cx, "z", AN_F32, AN_SHAPE(LONG_ROWS, LONG_COLS), AN_NORMAL(3));
    an_tensor *loss = an_linear_cross_entropy(x, w, an_input(cx, AN_I32, AN_SHAPE(LONG_ROWS), y));
    an_backward(an_sum(loss, AN_ALL));
    an_tensor *soft = an_softmax(z, 1), *want[N_LONG] = {loss, an_grad(x), soft, an_softmax(an_mul_num(soft, 50), 1)};
    if (an_eval(want[0], want[1], want[2], want[3]) != AN_OK) fail_msg("%s: %s", device, an_error(cx));
    for (int i = 0; i < N_LONG; i++) {
        out[i] = malloc(n[i] * sizeof(float));
        assert_non_null(out[i]);
        assert_int_equal(an_read(want[i], out[i], n[i] * sizeof(float)), AN_OK);
    }
    an_close(cx);
}

static void long_rows_are_those_of_the_cpu_and_the_same_again(void **state)
{
    (void)state;
    static const size_t n[N_LONG] = {LONG_ROWS, LONG_ROWS * LONG_IN, LONG_ROWS * LONG_COLS, LONG_ROWS * LONG_COLS};
    static const double allowed[N_LONG] = {1e-3, 6e-3, 1e-6, 3e-5}; /* the last: of 50 times the one before */
    float *cpu[N_LONG], *gpu[2][N_LONG];
    need_gpu();
    run_long_rows("cpu", cpu, n);
    for (int k = 0; k < 2; k++) run_long_rows("cuda", gpu[k], n);
    for (int i = 0; i < N_LONG; i++) {
        double difference = 0, norm = 0;
        for (size_t e = 0; e < n[i]; e++) {
            const double d = (double)gpu[0][i][e] - (double)cpu[i][e];
            difference += d * d, norm += (double)cpu[i][e] * (double)cpu[i][e];
        }
        print_message("# %s: relative difference %.2g\n", long_names[i], sqrt(difference / norm));
        if (!(sqrt(difference / norm) < allowed[i])) fail_msg("%s: %g", long_names[i], sqrt(difference / norm));
        assert_memory_equal(gpu[0][i], gpu[1][i], n[i] * sizeof(float));
        free(cpu[i]);
        for (int k = 0; k < 2; k++) free(gpu[k][i]);
    }
}

/* ---------------------------------------------------------------------------------------------- fused epilogues of GEMMs */

enum { UP_M = 8192, UP_C = 384, UP_W = 1536, UP_N = UP_W * UP_C };

/* Gradients of a step up, GELU and a step down: on Hopper GELU and its gradient are fused epilogues of GEMMs. */
static void run_up_and_down(const char *device, float *gradients)
{
    static float x[UP_M * UP_C], w[2][UP_N];
    for (uint32_t i = 0; i < UP_M * UP_C; i++) x[i] = 2 * an_rng_uniform(1, 3, i) - 1;
    for (uint32_t i = 0; i < 2 * UP_N; i++) (&w[0][0])[i] = 0.2f * an_rng_uniform(1, 4, i) - 0.1f;
    an_ctx *cx = an_open(&(an_options){.device = device});
    an_set_policy(cx, (an_policy){.matmul = AN_BF16});
    an_tensor *up = an_add(an_param(cx, "up", AN_F32, AN_SHAPE(UP_W, UP_C), AN_ZEROS),
                           an_input(cx, AN_F32, AN_SHAPE(UP_W, UP_C), w[0])),
              *down = an_add(an_param(cx, "down", AN_F32, AN_SHAPE(UP_C, UP_W), AN_ZEROS),
                             an_input(cx, AN_F32, AN_SHAPE(UP_C, UP_W), w[1])),
              *y = an_linear(an_gelu(an_linear(an_input(cx, AN_F32, AN_SHAPE(UP_M, UP_C), x), up, NULL)), down, NULL);
    an_backward(an_sum(an_square(an_cast(y, AN_F32)), AN_ALL));
    an_tensor *d_up = an_grad(up), *d_down = an_grad(down);
    if (an_eval(d_up, d_down) != AN_OK) fail_msg("%s: %s", device, an_error(cx));
    assert_int_equal(an_read(d_up, gradients, UP_N * sizeof *gradients), AN_OK);
    assert_int_equal(an_read(d_down, gradients + UP_N, UP_N * sizeof *gradients), AN_OK);
    an_close(cx);
}

static void gemms_with_fused_gelu_are_near_those_of_the_cpu(void **state)
{
    (void)state;
    static float gpu[2 * UP_N], again[2 * UP_N], cpu[2 * UP_N];
    need_gpu();
    run_up_and_down("cuda", gpu);
    run_up_and_down("cuda", again);
    run_up_and_down("cpu", cpu);
    assert_memory_equal(gpu, again, sizeof gpu);
    for (int part = 0; part < 2; part++) {
        double apart = 0, all = 0;
        for (int i = part * UP_N; i < (part + 1) * UP_N; i++) {
            apart += pow((double)gpu[i] - (double)cpu[i], 2);
            all += pow((double)cpu[i], 2);
        }
        print_message("# gradient of the step %s: %.1e from the CPU's\n", part ? "down" : "up", sqrt(apart / all));
        assert_true(all > 0 && sqrt(apart / all) < 1e-2);
    }
}

/* ---------------------------------------------------------------------------------------------- biases */

enum { N_BIASED = 3 }; /* y, and the gradients of weights and bias */
typedef struct biased {
    int32_t rows, in, out;
    an_dtype dtype;
    bool gelu;
} biased;

/* y = x w^T + b and the gradients of sum(y z), or of gelu(y) in y's place. x, w and z are integers, so all sums are exact in f32
 * whatever their order is: without GELU each device has the same bits, if it rounds y once. Sums and biases are of both signs and
 * several hundred, where bf16 has steps of 2 and 4; for GELU they are divided by 256. */
static void run_biased(const char *device, const biased *p, float *got[N_BIASED], const int64_t n[N_BIASED])
{
    const int32_t R = p->rows, C = p->in, W = p->out;
    const int64_t sizes[3] = {(int64_t)R * C, (int64_t)W * C, (int64_t)R * W};
    float *value[3];
    for (uint32_t v = 0; v < 3; v++) {
        value[v] = malloc(sizeof(float) * (size_t)sizes[v]);
        assert_non_null(value[v]);
        for (int64_t i = 0; i < sizes[v]; i++)
            value[v][i] = (float)((int)(an_rng_u32(9, v, (uint32_t)i) % 15) - 7) * (p->gelu && v < 2 ? 0.0625f : 1.0f);
    }
    an_ctx *cx = an_open(&(an_options){.device = device, .seed = 11});
    an_set_policy(cx, (an_policy){.matmul = p->dtype});
    an_tensor *x = an_input(cx, AN_F32, AN_SHAPE(R, C), value[0]),
              *w = an_add(an_param(cx, "w", AN_F32, AN_SHAPE(W, C), AN_ZEROS),
                          an_input(cx, AN_F32, AN_SHAPE(W, C), value[1])),
              *b = an_param(cx, "b", AN_F32, AN_SHAPE(W), AN_NORMAL(p->gelu ? 2 : 500)),
              *z = an_input(cx, AN_F32, AN_SHAPE(R, W), value[2]);
    an_tensor *y = an_linear(x, w, b);
    if (p->gelu) y = an_gelu(y);
    y = an_cast(y, AN_F32);
    an_backward(an_sum(an_mul(y, z), AN_ALL));
    an_tensor *want[N_BIASED] = {y, an_grad(w), an_grad(b)};
    if (an_eval(want[0], want[1], want[2]) != AN_OK) fail_msg("%s: %s", device, an_error(cx));
    for (int i = 0; i < N_BIASED; i++) {
        got[i] = malloc((size_t)n[i] * sizeof(float));
        assert_non_null(got[i]);
        assert_int_equal(an_read(want[i], got[i], (size_t)n[i] * sizeof(float)), AN_OK);
    }
    an_close(cx);
    for (int v = 0; v < 3; v++) free(value[v]);
}

static void a_bias_is_added_before_the_sum_is_rounded(void **state)
{
    (void)state;
    static const char *const names[N_BIASED] = {"y", "dw", "db"};
    static const biased layers[] = {
        {8192, 768, 768, AN_BF16, false},  /* on Hopper the end of the product, as are the next three */
        {8192, 384, 1536, AN_BF16, false}, /* wider than the sum is long */
        {8192, 384, 1536, AN_BF16, true},  /* GELU behind it */
        {8192, 1536, 768, AN_BF16, false}, /* a longer sum */
        {8192, 384, 1536, AN_F16, false},  /* the library's */
        {2051, 385, 1537, AN_BF16, false}, /* our kernel of odd extents */
        {3, 768, 3072, AN_BF16, false},    /* few rows, as of tokens */
        {1, 768, 768, AN_BF16, true},      /* one */
        {200, 100, 68, AN_BF16, true},     /* small ones */
        {131, 77, 201, AN_F16, false},
    };
    need_gpu();
    for (size_t l = 0; l < AN_COUNT(layers); l++) {
        const biased *p = &layers[l];
        const int64_t n[N_BIASED] = {(int64_t)p->rows * p->out, (int64_t)p->out * p->in, p->out};
        float *gpu[N_BIASED], *again[N_BIASED], *cpu[N_BIASED];
        run_biased("cuda", p, gpu, n);
        run_biased("cuda", p, again, n);
        run_biased("cpu", p, cpu, n);
        for (int i = 0; i < N_BIASED; i++) {
            double apart = 0, norm = 0;
            int64_t different = 0;
            for (int64_t e = 0; e < n[i]; e++) {
                const double d = (double)gpu[i][e] - (double)cpu[i][e];
                different += d != 0;
                apart += d * d, norm += (double)cpu[i][e] * (double)cpu[i][e];
            }
            print_message("# %d x %d x %d in %s%s: %s: %lld of %lld differ, relative %.1e\n", (int)p->rows, (int)p->out,
                          (int)p->in, an_dtype_name(p->dtype), p->gelu ? ", GELU" : "", names[i], (long long)different,
                          (long long)n[i], sqrt(apart / norm));
            if (!p->gelu) assert_int_equal(different, 0);
            assert_true(norm > 0 && sqrt(apart / norm) < 1e-2);
            assert_memory_equal(gpu[i], again[i], (size_t)n[i] * sizeof(float));
            free(gpu[i]), free(again[i]), free(cpu[i]);
        }
    }
}

/* ---------------------------------------------------------------------------------------------- products of odd extents */

enum { ODD_SHAPES = 8 };

/* Loss and gradients of a step up from C to W, with a bias, GELU and a step down, over M rows; on Hopper the products and their
 * gradients are our own kernel's (gemm_hopper_plain.inc) where an extent is no multiple of 8. out: [1 + 2 W C]. */
static void run_odd(const char *device, const int32_t shape[3], float *out)
{
    const int32_t M = shape[0], C = shape[1], W = shape[2];
    const size_t n = (size_t)W * (size_t)C;
    an_ctx *cx = an_open(&(an_options){.device = device, .seed = 7});
    an_set_policy(cx, (an_policy){.matmul = AN_BF16});
    an_tensor *x = an_param(cx, "x", AN_F32, AN_SHAPE(M, C), AN_NORMAL(1)),
              *up = an_param(cx, "up", AN_F32, AN_SHAPE(W, C), AN_NORMAL(0.1)),
              *bias = an_param(cx, "bias", AN_F32, AN_SHAPE(W), AN_NORMAL(0.5)),
              *down = an_param(cx, "down", AN_F32, AN_SHAPE(C, W), AN_NORMAL(0.1));
    an_tensor *y = an_linear(an_gelu(an_linear(x, up, bias)), down, NULL),
              *loss = an_mean(an_square(an_cast(y, AN_F32)), AN_ALL);
    an_backward(loss);
    an_tensor *d_up = an_grad(up), *d_down = an_grad(down);
    if (an_eval(loss, d_up, d_down) != AN_OK) fail_msg("%s: %s", device, an_error(cx));
    assert_int_equal(an_read(loss, out, sizeof *out), AN_OK);
    assert_int_equal(an_read(d_up, out + 1, n * sizeof *out), AN_OK);
    assert_int_equal(an_read(d_down, out + 1 + n, n * sizeof *out), AN_OK);
    an_close(cx);
}

static void products_of_odd_extents_are_near_the_cpus(void **state)
{
    (void)state;
    need_gpu();
    for (uint32_t draw = 0; draw < ODD_SHAPES; draw++) {
        const int32_t shape[3] = {(int32_t)(65 + an_rng_u32(8, 1, draw) % 3000),
                                  (int32_t)(33 + an_rng_u32(8, 2, draw) % 700),
                                  (int32_t)(33 + an_rng_u32(8, 3, draw) % 1300)};
        const size_t n = (size_t)shape[1] * (size_t)shape[2], all = 1 + 2 * n;
        float *x[3]; /* GPU, again, CPU */
        for (int i = 0; i < 3; i++) {
            x[i] = malloc(all * sizeof(float));
            assert_non_null(x[i]);
            run_odd(i < 2 ? "cuda" : "cpu", shape, x[i]);
        }
        assert_memory_equal(x[0], x[1], all * sizeof(float));
        assert_true(fabs((double)x[0][0] - (double)x[2][0]) < 2e-3 * fabs((double)x[2][0]));
        for (size_t part = 0; part < 2; part++) {
            double apart = 0, norm = 0;
            for (size_t i = 1 + part * n; i < 1 + (part + 1) * n; i++) {
                apart += pow((double)x[0][i] - (double)x[2][i], 2);
                norm += pow((double)x[2][i], 2);
            }
            print_message("# %d x %d x %d, gradient of the step %s: %.1e from the CPU's\n", (int)shape[0],
                          (int)shape[1], (int)shape[2], part ? "down" : "up", sqrt(apart / norm));
            assert_true(norm > 0 && sqrt(apart / norm) < 1e-2);
        }
        for (int i = 0; i < 3; i++) free(x[i]);
    }
}

/* ---------------------------------------------------------------------------------------------- a gated product */

enum { GATED_K = 97, GATED_I = 128, GATED_N = 33088, GATED_OUT = 64 };

/* y = down (silu(gate) up), or another gate, of [gate; up] = weights x, and the gradient of the weights. On Hopper the gate is the end of the product;
 * where the gradient is asked for, gate and up are stored beside it, or with recomputation the product is computed again, with the
 * gradient as its end. */
typedef enum gate { SILU, SIGMOID, RELU, N_GATES } gate;
static void run_gated(const char *device, gate by, bool gradient, const char *recompute, float *out)
{
    static float x[GATED_K * GATED_N], w[2 * GATED_I * GATED_K], v[GATED_OUT * GATED_I];
    for (uint32_t i = 0; i < GATED_K * GATED_N; i++) x[i] = 2 * an_rng_uniform(1, 3, i) - 1;
    for (uint32_t i = 0; i < 2 * GATED_I * GATED_K; i++) w[i] = an_rng_uniform(1, 4, i) - 0.5f;
    for (uint32_t i = 0; i < GATED_OUT * GATED_I; i++) v[i] = 0.2f * an_rng_uniform(1, 5, i) - 0.1f;
    an_ctx *cx = an_open(&(an_options){.device = device, .recompute = recompute});
    an_tensor *weights = an_add(an_param(cx, "w", AN_F32, AN_SHAPE(2 * GATED_I, GATED_K), AN_ZEROS),
                                an_input(cx, AN_F32, AN_SHAPE(2 * GATED_I, GATED_K), w)),
              *all = an_cast(an_input(cx, AN_F32, AN_SHAPE(GATED_K, GATED_N), x), AN_BF16),
              *down = an_cast(an_input(cx, AN_F32, AN_SHAPE(GATED_OUT, GATED_I), v), AN_BF16);
    an_tensor *by_column = an_transpose(an_cast(an_transpose(weights, 0, 1), AN_BF16), 0, 1),
              *both = an_matmul(by_column, all), /* [2I,N] */
                  *g = an_slice(both, 0, 0, GATED_I);
    g = by == SILU ? an_silu(g) : by == RELU ? an_relu(g) : an_sigmoid(g);
    an_tensor *h = an_mul(g, an_slice(both, 0, GATED_I, 2 * GATED_I)), *y = an_cast(an_matmul(down, h), AN_F32),
              *result = y;
    if (gradient) {
        an_backward(an_mean(an_square(y), AN_ALL));
        result = an_grad(weights);
    }
    if (an_eval(result) != AN_OK) fail_msg("%s: %s", device, an_error(cx));
    assert_int_equal(an_read(result, out, sizeof *out * (gradient ? 2 * GATED_I * GATED_K : GATED_OUT * GATED_N)),
                     AN_OK);
    an_close(cx);
}

static void a_gate_at_the_end_of_a_product_is_near_the_cpus(void **state)
{
    (void)state;
    static float gpu[GATED_OUT * GATED_N], again[GATED_OUT * GATED_N], cpu[GATED_OUT * GATED_N];
    need_gpu();
    static const char *const said[] = {"result", "gradient of the weights", "gradient, with the product again"},
                             *const gates[N_GATES] = {"SiLU", "sigmoid", "ReLU"};
    for (int run = 0; run < 3 * N_GATES; run++) {
        const int what = run % 3;
        const gate by = (gate)(run / 3);
        const bool gradient = what > 0;
        const int n = gradient ? 2 * GATED_I * GATED_K : GATED_OUT * GATED_N;
        const char *recompute = what == 2 ? "on" : "off";
        double apart = 0, all = 0;
        run_gated("cuda", by, gradient, recompute, gpu);
        run_gated("cuda", by, gradient, recompute, again);
        run_gated("cpu", by, gradient, recompute, cpu);
        assert_memory_equal(gpu, again, sizeof *gpu * (size_t)n);
        for (int i = 0; i < n; i++) {
            apart += pow((double)gpu[i] - (double)cpu[i], 2);
            all += pow((double)cpu[i], 2);
        }
        print_message("# %s: %s: %.1e from the CPU's\n", gates[by], said[what], sqrt(apart / all));
        assert_true(all > 0 && sqrt(apart / all) < 1e-2);
    }
}

/* ---------------------------------------------------------------------------------------------- scattering */

enum { IDS = 5000, TABLE = 2000, WIDTH = 300 };

/* Half of all ids are one row's, others stand alone; some rows have none. */
static void run_scatter(const char *device, float *out)
{
    static float src[IDS * WIDTH];
    static int32_t id[IDS];
    for (uint32_t i = 0; i < IDS; i++) id[i] = an_rng_u32(1, 0, i) % 2 ? 7 : (int32_t)(an_rng_u32(1, 1, i) % TABLE);
    for (uint32_t i = 0; i < IDS * WIDTH; i++) src[i] = an_rng_uniform(1, 2, i);
    an_ctx *cx = an_open(&(an_options){.device = device});
    an_tensor *t =
        an_scatter_add(an_input(cx, AN_I32, AN_SHAPE(IDS), id), an_input(cx, AN_F32, AN_SHAPE(IDS, WIDTH), src), TABLE);
    if (an_eval(t) != AN_OK) fail_msg("%s: %s", device, an_error(cx));
    assert_int_equal(an_read(t, out, sizeof *out * TABLE * WIDTH), AN_OK);
    an_close(cx);
}

static void scattered_rows_are_those_of_the_cpu(void **state)
{
    (void)state;
    static float gpu[TABLE * WIDTH], cpu[TABLE * WIDTH], again[TABLE * WIDTH];
    need_gpu();
    run_scatter("cuda", gpu);
    run_scatter("cuda", again);
    run_scatter("cpu", cpu);
    assert_memory_equal(gpu, again, sizeof gpu);
    for (int i = 0; i < TABLE * WIDTH; i++)
        if (!(fabs((double)gpu[i] - (double)cpu[i]) <= 1e-5 * (double)cpu[i]))
            fail_msg("row %d, column %d: %.9g, not %.9g", i / WIDTH, i % WIDTH, (double)gpu[i], (double)cpu[i]);
}

/* ---------------------------------------------------------------------------------------------- training */

static const train_case small = {.B = 4, .T = 64, .C = 64, .L = 2, .H = 2, .V = 65, .matmul = AN_F32, .dropout = 0.1},
                        half = {.B = 4, .T = 128, .C = 128, .L = 2, .H = 2, .V = 65, .matmul = AN_BF16, .dropout = 0.2},
                        many = {.B = 16, .T = 96, .C = 256, .L = 2, .H = 4, .V = 65, .matmul = AN_BF16, .dropout = 0.2};

static uint64_t hash_after(const train_case *c, const char *device, int steps)
{
    an_err err = {0};
    uint64_t hash = 0;
    if (case_run(&err, c, &(an_options){.device = device, .seed = 3}, steps, &hash, NULL) != AN_OK)
        fail_msg("%s: %s", device, err.text);
    return hash;
}

static void exact_mode_has_the_bits_of_the_cpu_after_twenty_steps(void **state)
{
    (void)state;
    need_gpu();
    setenv("ANNEAL_EXACT", "1", 1);
    uint64_t gpu = hash_after(&small, "cuda", 20);
    unsetenv("ANNEAL_EXACT");
    assert_true(gpu == hash_after(&small, "cpu", 20));
}

static void two_runs_and_plain_launches_have_the_same_bits(void **state)
{
    (void)state;
    need_gpu();
    static const char *const how[] = {"graph", "chain", "plain", "sync"};
    const train_case *const cases[] = {&half, &many};
    for (size_t c = 0; c < AN_COUNT(cases); c++) {
        const uint64_t first = hash_after(cases[c], "cuda", 10);
        for (size_t h = 0; h < AN_COUNT(how); h++) {
            setenv("ANNEAL_CUDA_LAUNCH", how[h], 1);
            assert_true(first == hash_after(cases[c], "cuda", 10));
        }
        unsetenv("ANNEAL_CUDA_LAUNCH");
    }
}

/* Nothing writes beside its value or a buffer, and nothing reads what was not written: that is poison. */
static void values_apart_between_guards_have_the_same_bits(void **state)
{
    (void)state;
    need_gpu();
    static const char *const how[] = {"graph", "plain", "sync"};
    const train_case *const cases[] = {&small, &half, &many};
    for (size_t c = 0; c < AN_COUNT(cases); c++) {
        const uint64_t together = hash_after(cases[c], "cuda", 4);
        for (size_t h = 0; h < AN_COUNT(how); h++) {
            an_err err = {0};
            uint64_t apart = 0;
            const an_options o = {.device = "cuda", .seed = 3, .place_apart = true};
            setenv("ANNEAL_CUDA_LAUNCH", how[h], 1);
            if (case_run(&err, cases[c], &o, 4, &apart, NULL) != AN_OK) fail_msg("%s: %s", how[h], err.text);
            unsetenv("ANNEAL_CUDA_LAUNCH");
            assert_true(apart == together);
        }
    }
}

/* ---------------------------------------------------------------------------------------------- memory */

static uint64_t beside(an_ctx *cx, const char *when)
{
    an_memory m;
    assert_int_equal(an_memory_read(cx, &m), AN_OK);
    assert_true(m.driver_bytes >= m.requested_bytes);
    print_message("# %-46s %8.1f MiB requested, %8.1f MiB beside\n", when, (double)m.requested_bytes / 0x1p20,
                  (double)(m.driver_bytes - m.requested_bytes) / 0x1p20);
    return m.driver_bytes - m.requested_bytes;
}

static void what_driver_and_libraries_hold_is_measured_apart_and_does_not_grow(void **state)
{
    (void)state;
    need_gpu();
    an_err err = {0};
    an_ctx *cx;
    an_gpt *m;
    double loss;
    an_bill b;
    if (case_open(&err, &half, &(an_options){.device = "cuda", .seed = 3}, &cx, &m) != AN_OK) fail_msg("%s", err.text);
    const uint64_t context = beside(cx, "context, stream, events, pinned memory");
    if (case_train(&err, cx, m, &half, 0, 1, &loss) != AN_OK) fail_msg("%s", err.text);
    beside(cx, "and kernels, cuBLASLt, a graph");
    if (case_train(&err, cx, m, &half, 1, 1, &loss) != AN_OK) fail_msg("%s", err.text);
    const uint64_t first = beside(cx, "and the second step");
    assert_int_equal(an_report(cx, &b), AN_OK);
    assert_int_equal(b.peak_bytes, b.allocated_bytes);
    if (case_train(&err, cx, m, &half, 2, 50, &loss) != AN_OK) fail_msg("%s", err.text);
    assert_true(beside(cx, "and fifty more steps") == first);
    assert_true(first - context < (uint64_t)2 << 30);
    case_close(cx, m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_in_bf16_is_that_of_the_cpu),
        cmocka_unit_test(rotated_attention_has_the_bits_of_a_rotation_before_it),
        cmocka_unit_test(attention_in_tf32_is_that_of_the_cpu_in_f32),
        cmocka_unit_test(gemms_in_tf32_are_near_those_of_the_cpu_in_f32_and_the_same_again),
        cmocka_unit_test(gelu_of_every_bf16_number_is_that_of_the_cpu),
        cmocka_unit_test(long_rows_are_those_of_the_cpu_and_the_same_again),
        cmocka_unit_test(gemms_with_fused_gelu_are_near_those_of_the_cpu),
        cmocka_unit_test(a_bias_is_added_before_the_sum_is_rounded),
        cmocka_unit_test(products_of_odd_extents_are_near_the_cpus),
        cmocka_unit_test(a_gate_at_the_end_of_a_product_is_near_the_cpus),
        cmocka_unit_test(scattered_rows_are_those_of_the_cpu),
        cmocka_unit_test(exact_mode_has_the_bits_of_the_cpu_after_twenty_steps),
        cmocka_unit_test(two_runs_and_plain_launches_have_the_same_bits),
        cmocka_unit_test(values_apart_between_guards_have_the_same_bits),
        cmocka_unit_test(what_driver_and_libraries_hold_is_measured_apart_and_does_not_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
