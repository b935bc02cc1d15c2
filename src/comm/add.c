/* add.c: additions in rank order, of parts that both transports cut alike. See transport.h. */
#include "comm/transport.h"

#include "base/exact.h"

#include <string.h>

enum { BLOCK = 1024 }; /* elements that are added at a time: they stay in the first-level cache */

/* A whole block apart, so that compilers know its length and use vectors at any level. */
static void add_f32(float *restrict sum, const char *in, int64_t n)
{
    const float *restrict x = (const float *)(const void *)in;
    if (n == BLOCK)
        for (int i = 0; i < BLOCK; i++) sum[i] += x[i];
    else
        for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

static void add_f64(double *restrict sum, const char *in, int64_t n)
{
    const double *restrict x = (const double *)(const void *)in;
    if (n == BLOCK)
        for (int i = 0; i < BLOCK; i++) sum[i] += x[i];
    else
        for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

static void add_16_bits(float *sum, const char *in, int64_t n, bool first, bool bf16)
{
    const uint16_t *x = (const uint16_t *)(const void *)in;
    for (int64_t i = 0; i < n; i++) {
        const float v = bf16 ? an_bf16_to_f32(x[i]) : an_f16_to_f32(x[i]);
        sum[i] = first ? v : sum[i] + v;
    }
}

static void round_to_16_bits(uint16_t *out, const float *sum, int64_t n, bool bf16)
{
    for (int64_t i = 0; i < n; i++) out[i] = (uint16_t)(bf16 ? an_f32_to_bf16(sum[i]) : an_f32_to_f16(sum[i]));
}

void an_comm_add(an_dtype dtype, int ranks, int64_t n, const char *const *in, char *out, char *copy)
{
    union {
        float f32[BLOCK];
        double f64[BLOCK];
    } sum;
    const size_t each = an_dtype_size(dtype);
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t some = AN_MIN(BLOCK, n - at);
        const size_t byte = (size_t)at * each, bytes = (size_t)some * each;
        for (int r = 0; r < ranks; r++) {
            const char *x = in[r] + byte;
            if (each == 2)
                add_16_bits(sum.f32, x, some, r == 0, dtype == AN_BF16);
            else if (r == 0)
                memcpy(&sum, x, bytes);
            else if (dtype == AN_F64)
                add_f64(sum.f64, x, some);
            else
                add_f32(sum.f32, x, some);
        }
        if (each == 2)
            round_to_16_bits((uint16_t *)(void *)(out + byte), sum.f32, some, dtype == AN_BF16);
        else
            memcpy(out + byte, &sum, bytes);
        if (copy) memcpy(copy + byte, out + byte, bytes);
    }
}

int64_t an_comm_part_begin(const an_comm *c, int64_t n, int rank)
{
    return AN_MIN(n, rank * an_round_up(an_ceil_div(n, c->ranks), AN_COMM_LINE));
}
