/* scatter.c: out[index[i], :] += src[i, :], the gradient of an embedding table, compiled once per instruction set.
 *
 * Owns:      the split: the table is zeroed by ranges of rows, then filled by ranges of columns. A thread walks all indices but touches only
 *            its own columns, so that no two threads write one element (no atomics) and none reads
 *            what it discards.
 * Does not:  validate ids; those outside [0, rows) are skipped (the loader has reported them).
 * Invariant: an element is the sum of its addends in ascending i, starting from 0 or the value in memory.
 */
#include "kernels/cpu_kernels.h"
#include "kernels/cpu/isa.h"

#include <string.h>

enum {
    ZERO_BYTES = 32 << 20, /* a task's share of the table: large enough for memset to write past the caches (154 MB
                              table: 5.2 ms instead of 9.5 with 4 MB; EPYC Zen 4, 2026-11) */
    LINE = 16              /* columns of a cache line of the table: the narrowest task */
};

typedef struct scatter_job {
    const an_scatter_spec *s;
    const int32_t *index;       /* [n] */
    const void *src;            /* [n, c] */
    float *out;                 /* [rows, c] */
    int64_t zero_rows, columns; /* of one task */
} scatter_job;

static void zero_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const scatter_job *w = arg;
    const an_scatter_spec *s = w->s;
    const int64_t row0 = task * w->zero_rows, row1 = AN_MIN(row0 + w->zero_rows, s->rows);
    if (s->out_stride == s->c) {
        memset(w->out + row0 * s->c, 0, sizeof(float) * (size_t)((row1 - row0) * s->c));
        return;
    }
    for (int64_t row = row0; row < row1; row++) memset(w->out + row * s->out_stride, 0, sizeof(float) * (size_t)s->c);
}

static void add_f32(float *restrict out, const float *restrict src, int64_t n)
{
    for (int64_t j = 0; j < n; j++) out[j] += src[j];
}

static void add_bf16(float *restrict out, const uint16_t *restrict src, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        uint32_t bits = (uint32_t)src[j] << 16;
        float x;
        memcpy(&x, &bits, sizeof x);
        out[j] += x;
    }
}

/* Every half number exactly: normal ones move their exponent by 112; a subnormal is its mantissa on 2^-14 minus 2^-14,
 * which no flush-to-zero mode touches. */
static void add_f16(float *restrict out, const uint16_t *restrict src, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        const uint32_t h = src[j], exponent = h & 0x7c00u, mantissa = h & 0x03ffu, sign = (h & 0x8000u) << 16;
        uint32_t bits = ((h & 0x7fffu) << 13) + (exponent == 0x7c00u ? 224u << 23 : 112u << 23);
        uint32_t small_bits = (113u << 23) | mantissa << 13;
        float small;
        memcpy(&small, &small_bits, sizeof small);
        small -= 0x1p-14f;
        memcpy(&small_bits, &small, sizeof small);
        bits = (exponent ? bits : small_bits) | sign;
        float x;
        memcpy(&x, &bits, sizeof x);
        out[j] += x;
    }
}

static void add_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const scatter_job *w = arg;
    const an_scatter_spec *s = w->s;
    const int64_t c0 = task * w->columns, n = AN_MIN(w->columns, s->c - c0);
    for (int64_t i = 0; i < s->n; i++) {
        const int64_t row = w->index[i], at = i * s->src_stride + c0;
        if (row < 0 || row >= s->rows) continue;
        float *out = w->out + row * s->out_stride + c0;
        if (s->src_dtype == AN_F32)
            add_f32(out, (const float *)w->src + at, n);
        else if (s->src_dtype == AN_BF16)
            add_bf16(out, (const uint16_t *)w->src + at, n);
        else
            add_f16(out, (const uint16_t *)w->src + at, n);
    }
}

void AN_ISA_NAME(scatter)(const an_scatter_spec *s, void *const *args, an_pool *p)
{
    scatter_job w = {.s = s, .index = args[0], .src = args[1], .out = args[2]};
    w.zero_rows = AN_MAX(1, ZERO_BYTES / (int64_t)sizeof(float) / AN_MAX(1, s->c));
    /* about 16 tasks where the row is wide enough, in whole cache lines */
    w.columns = an_round_up(AN_MAX(1, an_ceil_div(s->c, 16)), LINE);
    if (!s->accumulate) an_pool_run(p, an_ceil_div(s->rows, w.zero_rows), zero_task, &w);
    an_pool_run(p, an_ceil_div(s->c, w.columns), add_task, &w);
}
