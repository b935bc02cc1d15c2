/* test_conv.c: products with a window of every instruction set this processor runs, against a naive chain of fmaf, bit
 * for bit: random images, taps, strides, dilations, paddings, groups, both operands, storage of 16 and 32 bits, with 1
 * and 2 threads. What surrounds the image is NaN: whatever reads there spoils a sum. Where a set of instructions reads operands in planes,
 * the image, dy of dW or both lie so as well: the same bits. */
#include "base/base.h"
#include "base/exact.h"
#include "platform/thread_pool.h"
#include "kernels/cpu_kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROUNDS = 180, MARGIN = 4096 };

typedef struct conv {
    an_gemm_spec s;
    int images, groups;
    bool window_b;
    int64_t image_size, other_size, c_size;
    uint8_t *image, *other;
    float *c[2];
} conv;

static uint32_t state;

static int draw(int low, int high)
{
    state = state * 1664525u + 1013904223u;
    return low + (int)((state >> 8) % (uint32_t)(high - low + 1));
}

static float value(const uint8_t *p, uint8_t dtype, int64_t at)
{
    float x;
    uint16_t h;
    if (dtype == AN_F32) return memcpy(&x, p + 4 * at, 4), x;
    memcpy(&h, p + 2 * at, 2);
    return dtype == AN_BF16 ? an_bf16_to_f32(h) : an_f16_to_f32(h);
}

/* `n` small whole numbers (exact in every dtype) with NaN around them. */
static uint8_t *numbers(int64_t n, uint8_t dtype)
{
    const size_t size = dtype == AN_F32 ? 4 : 2;
    uint8_t *all = malloc(((size_t)n + 2 * MARGIN) * size);
    assert_non_null(all);
    memset(all, 0xFF, ((size_t)n + 2 * MARGIN) * size);
    for (int64_t i = 0; i < n; i++) {
        const float x = (float)draw(-64, 64) / (dtype == AN_F32 ? 7.0f : 8.0f);
        uint16_t h = dtype == AN_BF16 ? (uint16_t)an_f32_to_bf16(x) : (uint16_t)an_f32_to_f16(x);
        uint8_t *at = all + ((size_t)i + MARGIN) * size;
        if (dtype == AN_F32)
            memcpy(at, &x, 4);
        else
            memcpy(at, &h, 2);
    }
    return all;
}

static void invent_window(conv *t, uint8_t dtype, bool deep)
{
    an_window_spec *v = &t->s.window;
    *v = (an_window_spec){.of = t->window_b ? AN_WINDOW_B : AN_WINDOW_A,
                          .channels = draw(0, 3) ? draw(1, 24) : 16 * draw(1, 5)};
    t->groups = draw(0, 3) ? 1 : 2;
    if (draw(0, 2) == 0) { /* vectors of columns of several groups */
        t->groups = draw(0, 1) ? 8 * draw(1, 3) : draw(2, 13);
        v->channels = draw(1, 9);
    }
    t->images = draw(1, 4);
    v->pixel = v->channels * t->groups;
    const bool backwards = !t->window_b && draw(0, 2) == 0;
    for (int d = 0; d < 2; d++) {
        v->in[d] = d == 1 && draw(0, 3) == 0 ? draw(12, 40) : draw(1, 11); /* lines longer than a vector, too */
        v->taps[d] = draw(1, 4);
        v->step[d] = backwards ? 1 : draw(1, 3);
        v->tap[d] = backwards ? -draw(1, 2) : draw(1, 2);
        v->apart[d] = backwards ? draw(1, 3) : 1;
        v->start[d] = backwards ? draw(0, 3) : -draw(0, 4);
        v->out[d] = draw(1, 12);
    }
    if (deep) { /* dX of a stride, whose phases are a part of a long sum each */
        v->channels = 160, v->pixel = v->channels * t->groups;
        for (int d = 0; d < 2; d++) v->step[d] = 1, v->tap[d] = -1, v->apart[d] = 2, v->start[d] = 1, v->taps[d] = 3;
    }
    if (t->window_b && draw(0, 2) == 0) { /* dW of few positions, of pixels that would share sets of the cache */
        v->channels = 256, t->groups = 1, v->pixel = v->channels + draw(0, 1) * 16;
        for (int d = 0; d < 2; d++) v->out[d] = draw(1, 4);
    }
    t->s.a_dtype = t->s.b_dtype = dtype;
    t->image_size = (int64_t)t->images * v->in[0] * v->in[1] * v->pixel;
}

static void invent(conv *t, uint8_t dtype, bool deep)
{
    memset(t, 0, sizeof *t);
    t->window_b = !deep && draw(0, 2) == 0;
    invent_window(t, dtype, deep);
    an_gemm_spec *s = &t->s;
    const an_window_spec *v = &s->window;
    const int positions = t->images * v->out[0] * v->out[1], columns = v->taps[0] * v->taps[1] * v->channels;
    const int other = t->groups > 2 && draw(0, 3) ? draw(1, 17) : draw(0, 1) ? draw(1, 70) : 16 * draw(1, 5);
    s->nb[0] = s->nb[1] = 1;
    s->nb[2] = t->groups;
    s->c_dtype = AN_F32;
    s->mul_dtype = AN_F32;
    if (t->window_b) { /* other [k][m], m side by side */
        s->m = other, s->n = columns, s->k = positions;
        s->a_m = 1, s->a_k = (int64_t)other * t->groups, s->a_b[2] = other;
        s->b_b[2] = v->channels;
        s->c_m = columns, s->c_b[2] = (int64_t)other * columns;
        s->splits = v->channels == 256 ? 1 : draw(1, 3);
        t->other_size = (int64_t)positions * other * t->groups;
    } else { /* other [n][k] or [k][n] */
        const bool by_k = draw(0, 1);
        s->m = positions, s->n = other, s->k = columns;
        s->b_k = by_k ? 1 : other, s->b_n = by_k ? columns : 1, s->b_b[2] = (int64_t)columns * other;
        s->a_k = 1, s->a_m = v->pixel, s->a_b[2] = v->channels;
        s->c_m = (int64_t)other * t->groups, s->c_b[2] = other;
        t->other_size = (int64_t)columns * other * t->groups;
    }
    t->c_size = (int64_t)s->m * s->n * t->groups;
    t->image = numbers(t->image_size, dtype);
    t->other = numbers(t->other_size, dtype);
    for (int i = 0; i < 2; i++) {
        t->c[i] = malloc(sizeof(float) * ((size_t)t->c_size + 2 * MARGIN));
        assert_non_null(t->c[i]);
        memset(t->c[i], 0xFF, sizeof(float) * ((size_t)t->c_size + 2 * MARGIN));
    }
}

static float window_value(const conv *t, int64_t group, int64_t p, int64_t column)
{
    const an_window_spec *v = &t->s.window;
    const int64_t area = (int64_t)v->out[0] * v->out[1], tap = column / v->channels;
    int64_t at[2] = {p % area / v->out[1], p % v->out[1]}, r[2] = {tap / v->taps[1], tap % v->taps[1]};
    for (int d = 0; d < 2; d++) {
        const int64_t z = at[d] * v->step[d] + r[d] * v->tap[d] + v->start[d];
        if (z < 0 || z % v->apart[d] || z / v->apart[d] >= v->in[d]) return 0;
        at[d] = z / v->apart[d];
    }
    const int64_t pixel = (p / area * v->in[0] + at[0]) * v->in[1] + at[1];
    return value(t->image, t->s.a_dtype, MARGIN + pixel * v->pixel + group * v->channels + column % v->channels);
}

static void naive(conv *t)
{
    const an_gemm_spec *s = &t->s;
    const int chain = (int)an_ceil_div(s->k, AN_MAX(1, s->splits));
    for (int64_t g = 0; g < t->groups; g++)
        for (int64_t i = 0; i < s->m; i++)
            for (int64_t j = 0; j < s->n; j++) {
                float total = 0;
                for (int64_t first = 0; first < s->k; first += chain) {
                    float sum = 0;
                    for (int64_t k = first; k < AN_MIN(first + chain, s->k); k++) {
                        const float w = t->window_b ? window_value(t, g, k, j) : window_value(t, g, i, k);
                        const int64_t at = t->window_b ? g * s->a_b[2] + i * s->a_m + k * s->a_k
                                                       : g * s->b_b[2] + k * s->b_k + j * s->b_n;
                        sum = fmaf(w, value(t->other, s->a_dtype, MARGIN + at), sum);
                    }
                    total = first ? total + sum : sum;
                }
                t->c[0][MARGIN + g * s->c_b[2] + i * s->c_m + j] = total;
            }
}

/* A copy of operand `from`, `images` of `pixels` of `channels`, in planes, with NaN around it. */
static uint8_t *in_planes(const uint8_t *from, int64_t images, int64_t pixels, int64_t channels)
{
    const int64_t n = images * pixels * channels;
    uint8_t *all = malloc(((size_t)n + 2 * MARGIN) * 4);
    assert_non_null(all);
    memset(all, 0xFF, ((size_t)n + 2 * MARGIN) * 4);
    for (int64_t i = 0; i < n; i++) {
        const int64_t image = i / pixels / channels, channel = i / pixels % channels, pixel = i % pixels;
        memcpy(all + (MARGIN + i) * 4, from + (MARGIN + (image * pixels + pixel) * channels + channel) * 4, 4);
    }
    return all;
}

static void run(conv *t, const an_cpu_kernels *isa, an_pool *pool, int threads)
{
    const size_t size = t->s.a_dtype == AN_F32 ? 4 : 2;
    void *scratch = aligned_alloc(64, (size_t)an_round_up((int64_t)isa->gemm_scratch(&t->s, threads) + 64, 64));
    assert_non_null(scratch);
    uint8_t *image = t->image + MARGIN * size, *other = t->other + MARGIN * size;
    void *args[3] = {t->window_b ? other : image, t->window_b ? image : other, t->c[1] + MARGIN};
    isa->gemm(&t->s, args, scratch, NULL, pool);
    free(scratch);
}

static void compare(const conv *t, const char *isa, int round)
{
    for (int64_t i = 0; i < t->c_size + 2 * MARGIN; i++) {
        uint32_t got, want;
        memcpy(&got, &t->c[1][i], 4);
        memcpy(&want, &t->c[0][i], 4);
        if (got == want) continue;
        const an_window_spec *v = &t->s.window;
        fail_msg(
            "%s, round %d: element %lld is %.9g, not %.9g (%s window %dx%d of %dx%dx%d, out %dx%d, m %d n %d k %d)",
            isa, round, (long long)(i - MARGIN), (double)t->c[1][i], (double)t->c[0][i], t->window_b ? "B" : "A",
            v->taps[0], v->taps[1], v->in[0], v->in[1], v->channels, v->out[0], v->out[1], t->s.m, t->s.n, t->s.k);
    }
}

/* Returns how often it ran. */
static int run_in_planes(const conv *t, const an_cpu_kernels *isa, an_pool *pool, int threads, int round)
{
    const an_window_spec *v = &t->s.window;
    if (!isa->conv_planes(&t->s) || v->pixel != v->channels) return 0;
    int ran = 0;
    for (int planes = 1; planes <= (t->window_b ? AN_PLANES_IMAGE | AN_PLANES_DY : AN_PLANES_IMAGE); planes++, ran++) {
        conv p = *t;
        p.s.window.planes = planes;
        if (planes & AN_PLANES_IMAGE)
            p.image = in_planes(t->image, t->images, (int64_t)v->in[0] * v->in[1], v->channels);
        if (planes & AN_PLANES_DY) p.other = in_planes(t->other, t->images, (int64_t)v->out[0] * v->out[1], t->s.m);
        memset(t->c[1], 0xFF, sizeof(float) * ((size_t)t->c_size + 2 * MARGIN));
        run(&p, isa, pool, threads);
        compare(&p, isa->isa, round);
        if (p.image != t->image) free(p.image);
        if (p.other != t->other) free(p.other);
    }
    return ran;
}

static void windows_have_the_bits_of_one_chain(void **unused)
{
    (void)unused;
    static const uint8_t dtypes[] = {AN_F32, AN_F32, AN_BF16, AN_F16};
    an_err err = {0};
    an_pool *pool[2];
    int n, ran = 0, of_planes = 0;
    const an_cpu_kernels *const *all = an_cpu_kernels_all(&n);
    for (int i = 0; i < 2; i++) assert_int_equal(an_pool_open(&err, i + 1, &pool[i]), AN_OK);
    state = 11;
    for (int round = 0; round < ROUNDS; round++) {
        conv t;
        invent(&t, dtypes[round % 4], round % 24 == 0);
        naive(&t);
        an_pool_limit(pool[1], 1 + round % 3 / 2); /* scratch for two, of which one may sleep */
        for (int i = 0; i < n; i++) {
            if (!an_cpu_kernels_find(all[i]->isa)) continue;
            memset(t.c[1], 0xFF, sizeof(float) * ((size_t)t.c_size + 2 * MARGIN));
            run(&t, all[i], pool[round % 2], round % 2 + 1);
            compare(&t, all[i]->isa, round);
            of_planes += run_in_planes(&t, all[i], pool[round % 2], round % 2 + 1, round);
            ran++;
        }
        free(t.image), free(t.other), free(t.c[0]), free(t.c[1]);
    }
    for (int i = 0; i < 2; i++) an_pool_close(pool[i]);
    assert_true(ran >= ROUNDS);
    assert_true(of_planes >= ROUNDS / 8);
}

/* Some processors sum products of bf16 in pairs: of whole numbers of 64ths every order gives the same sum. */
static void windows_of_bf16_products_have_the_sum(void **unused)
{
    (void)unused;
    an_err err = {0};
    an_pool *pool;
    int n;
    const an_cpu_kernels *const *all = an_cpu_kernels_all(&n);
    assert_int_equal(an_pool_open(&err, 2, &pool), AN_OK);
    state = 5;
    for (int round = 0; round < ROUNDS / 2; round++) {
        conv t;
        invent(&t, round % 3 ? AN_BF16 : AN_F32, false);
        if (t.s.a_dtype == AN_F32) { /* what bf16 holds as it is */
            for (int64_t i = 0; i < t.image_size; i++) ((float *)t.image)[MARGIN + i] = (float)draw(-64, 64) / 8;
            for (int64_t i = 0; i < t.other_size; i++) ((float *)t.other)[MARGIN + i] = (float)draw(-64, 64) / 8;
        }
        naive(&t); /* all products and sums are exact: whole numbers of 64ths */
        t.s.mul_dtype = AN_BF16;
        for (int i = 0; i < n; i++) {
            if (!an_cpu_kernels_find(all[i]->isa)) continue;
            memset(t.c[1], 0xFF, sizeof(float) * ((size_t)t.c_size + 2 * MARGIN));
            run(&t, all[i], pool, 2);
            compare(&t, all[i]->isa, round);
        }
        free(t.image), free(t.other), free(t.c[0]), free(t.c[1]);
    }
    an_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_have_the_bits_of_one_chain),
        cmocka_unit_test(windows_of_bf16_products_have_the_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
