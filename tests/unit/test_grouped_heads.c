/* test_grouped_heads.c: attention whose keys and values have fewer heads than its queries, at random shapes: values and
 * gradients against the formula in float64 over keys and values that are repeated; and what is refused. (Single kernels: test_attn.c.) */
#include <anneal.h>

#include <math.h>
#include <string.h>

#include "lib/test.h"

#define AT "here"

enum { OPERANDS = 4 /* q k v mask */, MOST = 1 << 15 };

typedef struct problem {
    int64_t B, G, group, T, S, D, window;
    bool causal, masked, permuted;
} problem;

static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static int64_t between(uint32_t *state, int64_t low, int64_t high)
{
    return low + (int64_t)(next(state) % (uint32_t)(high - low + 1));
}

static an_tensor *repeated(an_tensor *k, int64_t group)
{
    const an_shape s = an_shape_of(k);
    k = an_reshape_at(AT, k, AN_SHAPE(s.dim[0], s.dim[1], 1, s.dim[2], s.dim[3]));
    k = an_expand_at(AT, k, AN_SHAPE(s.dim[0], s.dim[1], group, s.dim[2], s.dim[3]));
    return an_reshape_at(AT, k, AN_SHAPE(s.dim[0], s.dim[1] * group, s.dim[2], s.dim[3]));
}

/* The operands of one side, float32 or float64, of the same numbers; root[0] is the result, then gradients. */
static void build(an_ctx *cx, const problem *p, an_dtype t, const void *const data[OPERANDS],
                  an_tensor *root[1 + OPERANDS])
{
    const int64_t H = p->G * p->group;
    an_tensor *in[OPERANDS] = {NULL};
    in[0] =
        an_input_at(AT, cx, t, p->permuted ? AN_SHAPE(p->B, p->T, H, p->D) : AN_SHAPE(p->B, H, p->T, p->D), data[0]);
    for (int i = 1; i < 3; i++)
        in[i] = an_input_at(AT, cx, t,
                            p->permuted ? AN_SHAPE(p->B, p->S, p->G, p->D) : AN_SHAPE(p->B, p->G, p->S, p->D), data[i]);
    if (p->masked) in[3] = an_input_at(AT, cx, t, AN_SHAPE(p->B, H, p->T, p->S), data[3]);
    an_tensor *x[3] = {in[0], in[1], in[2]};
    for (int i = 0; i < 3 && p->permuted; i++) x[i] = an_permute_at(AT, x[i], AN_SHAPE(0, 2, 1, 3));
    if (t == AN_F64)
        for (int i = 1; i < 3; i++) x[i] = repeated(x[i], p->group);
    root[0] = an_attention_with_at(AT, x[0], x[1], x[2],
                                   (an_attention_options){.causal = p->causal, .window = p->window, .mask = in[3]});
    an_tensor *weight = an_iota_at(AT, cx, an_shape_of(root[0]), 2); /* so that rows count differently */
    weight = an_add_num_at(AT, an_mul_num_at(AT, an_cast_at(AT, weight, t), 0.01), 0.5);
    an_backward_at(AT, an_sum_at(AT, an_mul_at(AT, an_square_at(AT, root[0]), weight), AN_ALL, false));
    for (int i = 0; i < OPERANDS; i++) root[1 + i] = in[i] ? an_grad(in[i]) : NULL;
}

static int64_t elements(const an_tensor *t)
{
    const an_shape s = an_shape_of(t);
    int64_t n = 1;
    for (int i = 0; i < s.rank; i++) n *= s.dim[i];
    return n;
}

static void compare(an_ctx *cx, an_tensor *narrow, an_tensor *wide, const char *what, int round)
{
    static float x[MOST];
    static double y[MOST];
    const int64_t n = elements(narrow);
    assert_int_equal(n, elements(wide));
    assert_true(n <= MOST);
    assert_int_equal(an_read_at(AT, narrow, x, sizeof *x * (size_t)n), AN_OK);
    assert_int_equal(an_read_at(AT, wide, y, sizeof *y * (size_t)n), AN_OK);
    double worst = 0, size = 0.05;
    for (int64_t i = 0; i < n; i++) {
        const double e = fabs((double)x[i] - y[i]);
        worst = !(e <= worst) ? e : worst;
        size = fmax(size, fabs(y[i]));
    }
    if (!(worst <= 2e-5 * size)) fail_msg("round %d: %s is off by %g of %g", round, what, worst, size);
    assert_null(an_error(cx));
}

static void values_and_gradients_are_those_of_repeated_heads_in_float64(void **state)
{
    (void)state;
    static const char *const names[] = {"o", "dq", "dk", "dv", "dmask"};
    static float narrow[OPERANDS][MOST];
    static double wide[OPERANDS][MOST];
    uint32_t seed = 20261129;
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .cc = "none", .threads = 2});
    assert_null(an_error(cx));
    for (int round = 0; round < 40; round++) {
        problem p = {.B = between(&seed, 1, 2), .G = between(&seed, 1, 3), .group = between(&seed, 2, 5)};
        p.T = between(&seed, 1, 3) == 1 ? between(&seed, 1, 8) : between(&seed, 9, 80);
        p.S = between(&seed, 1, 3) == 1 ? p.T : between(&seed, 1, 90);
        p.D = between(&seed, 1, 12), p.causal = between(&seed, 0, 1), p.permuted = between(&seed, 0, 1);
        p.window = p.causal && between(&seed, 0, 2) == 0 ? between(&seed, 1, 40) : 0;
        while (p.B * p.G * p.group * p.T * p.S > MOST || p.B * p.G * p.group * p.T * p.D > MOST)
            p.T = (p.T + 1) / 2, p.B = 1;
        p.masked = between(&seed, 0, 2) == 0 && p.B * p.G * p.group * p.T * p.S <= MOST;
        for (int i = 0; i < OPERANDS; i++)
            for (int k = 0; k < MOST; k++) {
                narrow[i][k] = (float)(next(&seed) % 4096) / 2048 - 1;
                if (i == 3 && next(&seed) % 9 == 0) narrow[i][k] = -INFINITY;
                wide[i][k] = narrow[i][k];
            }
        an_tensor *x[1 + OPERANDS], *y[1 + OPERANDS], *root[2 + 2 * OPERANDS];
        const void *f[OPERANDS], *d[OPERANDS];
        for (int i = 0; i < OPERANDS; i++) f[i] = narrow[i], d[i] = wide[i];
        build(cx, &p, AN_F32, f, x);
        build(cx, &p, AN_F64, d, y);
        int n = 0;
        for (int i = 0; i < 1 + OPERANDS; i++)
            if (x[i] || y[i]) {
                assert_true(x[i] && y[i]);
                root[n++] = x[i], root[n++] = y[i];
            }
        assert_int_equal(an_eval_at(AT, root, n), AN_OK);
        for (int i = 0; i < 1 + OPERANDS; i++)
            if (x[i]) compare(cx, x[i], y[i], names[i], round);
        an_reset(cx);
    }
    an_close(cx);
}

static void heads_that_do_not_divide_are_refused(void **state)
{
    (void)state;
    static const float zeros[1024];
    static const double wide[1024];
    for (int t = 0; t < 2; t++)
        for (int G = 0; G < 6; G += 5) {
            an_ctx *cx = an_open(&(an_options){.device = "cpu", .cc = "none", .threads = 1});
            const an_dtype as = t ? AN_F64 : AN_F32;
            const void *data = t ? (const void *)wide : (const void *)zeros;
            an_tensor *q = an_input_at(AT, cx, as, AN_SHAPE(1, 4, 3, 8), data);
            an_tensor *k = an_input_at(AT, cx, as, AN_SHAPE(1, G, 3, 8), data);
            (void)an_attention_at(AT, q, k, k, 0, false, 0, NULL);
            assert_non_null(an_error(cx));
            assert_non_null(strstr(an_error(cx), "where G divides H"));
            an_close(cx);
        }
}

/* What is kept for the backward pass, and its gradients, are as large as the keys that were given. */
static void memory_is_that_of_the_heads_there_are(void **state)
{
    (void)state;
    uint64_t peak[2];
    static float data[8 * 256 * 64];
    for (int once = 0; once < 2; once++) {
        an_ctx *cx = an_open(&(an_options){.device = "null:cpu", .threads = 1});
        const an_shape whole = AN_SHAPE(1, 8, 256, 64), part = AN_SHAPE(1, 1, 256, 64);
        an_tensor *q = an_square_at(AT, an_input_at(AT, cx, AN_F32, whole, data));
        an_tensor *k = an_square_at(AT, an_input_at(AT, cx, AN_F32, part, data)), *v = an_neg_at(AT, k);
        an_tensor *y = an_attention_at(AT, q, once ? k : repeated(k, 8), once ? v : repeated(v, 8), 0, true, 0, NULL);
        an_backward_at(AT, an_sum_at(AT, an_square_at(AT, y), AN_ALL, false));
        an_tensor *root[2] = {an_grad(q), an_grad(k)};
        an_bill bill;
        assert_int_equal(an_plan_at(AT, root, 2), AN_OK);
        assert_int_equal(an_report(cx, &bill), AN_OK);
        peak[once] = bill.peak_bytes;
        an_close(cx);
    }
    const uint64_t each = 4 * 7 * 256 * 64; /* bytes of what seven more heads take */
    if (peak[1] + 2 * each > peak[0])
        fail_msg("%llu bytes, repeated %llu", (unsigned long long)peak[1], (unsigned long long)peak[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_gradients_are_those_of_repeated_heads_in_float64),
        cmocka_unit_test(heads_that_do_not_divide_are_refused),
        cmocka_unit_test(memory_is_that_of_the_heads_there_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
