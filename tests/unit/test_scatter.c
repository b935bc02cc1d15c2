/* test_scatter.c: the embedding gradient of every instruction set against a serial loop, bit for bit, over shapes,
 * storage types, strides and thread counts; ids outside the table are skipped and nothing outside the rows is written.
 */
#include "base/base.h"
#include "platform/thread_pool.h"
#include "kernels/cpu_kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const an_scatter_spec SPECS[] = {
    {.n = 256, .rows = 65, .c = 384, .src_stride = 384, .out_stride = 384, .src_dtype = AN_F32},
    {.n = 1000, .rows = 7, .c = 33, .src_stride = 40, .out_stride = 35, .src_dtype = AN_F32},
    {.n = 1000, .rows = 7, .c = 33, .src_stride = 40, .out_stride = 35, .src_dtype = AN_F32, .accumulate = 1},
    {.n = 300, .rows = 9000, .c = 130, .src_stride = 130, .out_stride = 130, .src_dtype = AN_BF16},
    {.n = 513, .rows = 12, .c = 64, .src_stride = 64, .out_stride = 64, .src_dtype = AN_F16, .accumulate = 1},
    {.n = 40, .rows = 3, .c = 1, .src_stride = 1, .out_stride = 1, .src_dtype = AN_F32},
    {.n = 0, .rows = 5, .c = 16, .src_stride = 16, .out_stride = 16, .src_dtype = AN_F32},
    {.n = 64, .rows = 20000, .c = 768, .src_stride = 768, .out_stride = 768, .src_dtype = AN_F32},
};

static uint32_t random_word(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static double half_value(uint16_t h)
{
    const int exponent = h >> 10 & 31, mantissa = h & 1023;
    const double x = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return h & 0x8000 ? -x : x;
}

static float stored_value(const void *src, uint8_t dtype, size_t at)
{
    if (dtype == AN_F32) return ((const float *)src)[at];
    const uint16_t half = ((const uint16_t *)src)[at];
    if (dtype == AN_F16) return (float)half_value(half);
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

typedef struct fixture {
    an_scatter_spec s;
    int32_t *index;
    void *src;
    float *start, *expected, *out; /* whole tables with their padding and one guard row */
    size_t floats;
} fixture;

static void fixture_open(fixture *f, const an_scatter_spec *s)
{
    uint32_t state = 99;
    f->s = *s;
    f->floats = (size_t)((s->rows + 1) * s->out_stride);
    f->index = malloc(sizeof(int32_t) * (size_t)(s->n + 1));
    f->src = malloc(sizeof(float) * (size_t)(s->n * s->src_stride + 1));
    f->start = malloc(sizeof(float) * f->floats);
    f->expected = malloc(sizeof(float) * f->floats);
    f->out = malloc(sizeof(float) * f->floats);
    assert_true(f->index && f->src && f->start && f->expected && f->out);
    for (int64_t i = 0; i < s->n; i++) f->index[i] = (int32_t)(random_word(&state) % (uint32_t)s->rows);
    if (s->n > 5) { /* untrusted ids */
        f->index[1] = -1, f->index[2] = (int32_t)s->rows, f->index[3] = INT32_MAX, f->index[4] = INT32_MIN;
    }
    for (int64_t i = 0; i < s->n * s->src_stride; i++) {
        const uint32_t word = random_word(&state);
        if (s->src_dtype == AN_F32)
            ((float *)f->src)[i] = (float)word * 0x1p-22f - 2.0f;
        else /* all signs, subnormals too, but neither infinity nor NaN */
            ((uint16_t *)f->src)[i] =
                (uint16_t)(s->src_dtype == AN_F16 ? (word & 0xfbffu) : (word & 0x807fu) | 0x3f00u);
    }
    for (size_t i = 0; i < f->floats; i++) f->start[i] = (float)random_word(&state) * 0x1p-20f;
    memcpy(f->expected, f->start, sizeof(float) * f->floats);
    for (int64_t row = 0; row < s->rows && !s->accumulate; row++)
        memset(f->expected + row * s->out_stride, 0, sizeof(float) * (size_t)s->c);
    for (int64_t i = 0; i < s->n; i++)
        for (int64_t j = 0; j < s->c && f->index[i] >= 0 && f->index[i] < s->rows; j++)
            f->expected[f->index[i] * s->out_stride + j] +=
                stored_value(f->src, s->src_dtype, (size_t)(i * s->src_stride + j));
}

static void fixture_close(fixture *f)
{
    free(f->index);
    free(f->src);
    free(f->start);
    free(f->expected);
    free(f->out);
}

static void every_set_and_thread_count_equals_the_serial_loop_bit_for_bit(void **state)
{
    (void)state;
    int n = 0;
    const an_cpu_kernels *const *sets = an_cpu_kernels_all(&n);
    an_pool *pools[3] = {NULL};
    for (int i = 1; i < 3; i++) assert_int_equal(an_pool_open(NULL, i + 1, &pools[i]), AN_OK);
    for (size_t at = 0; at < AN_COUNT(SPECS); at++) {
        fixture f;
        fixture_open(&f, &SPECS[at]);
        for (int i = 0; i < n * 3; i++) {
            if (!an_cpu_kernels_find(sets[i / 3]->isa)) continue;
            memcpy(f.out, f.start, sizeof(float) * f.floats);
            sets[i / 3]->scatter(&f.s, (void *[]){f.index, f.src, f.out}, pools[i % 3]);
            if (memcmp(f.out, f.expected, sizeof(float) * f.floats))
                fail_msg("%s with %d threads differs on spec %zu", sets[i / 3]->isa, i % 3 + 1, at);
        }
        fixture_close(&f);
    }
    for (int i = 1; i < 3; i++) an_pool_close(pools[i]);
}

static void half_infinities_and_nans_arrive(void **state)
{
    (void)state;
    int n = 0;
    const an_cpu_kernels *const *sets = an_cpu_kernels_all(&n);
    for (int i = 0; i < n; i++) {
        if (!an_cpu_kernels_find(sets[i]->isa)) continue;
        const uint16_t src[3] = {0x7c00, 0xfc00, 0x7e01};
        const int32_t index[1] = {0};
        float out[3];
        const an_scatter_spec s = {.n = 1, .rows = 1, .c = 3, .src_stride = 3, .out_stride = 3, .src_dtype = AN_F16};
        sets[i]->scatter(&s, (void *[]){(void *)index, (void *)src, out}, NULL);
        assert_true(out[0] == INFINITY && out[1] == -INFINITY && isnan(out[2]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_set_and_thread_count_equals_the_serial_loop_bit_for_bit),
        cmocka_unit_test(half_infinities_and_nans_arrive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
