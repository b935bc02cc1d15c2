/* attn_job.h: a call of attention as its tasks share it (attn.c, both directions): views, which keys a query sees, and packing rows of views
 * as panels.
 *
 * Owns:      nothing; everything here is a static function on the caller's scratch.
 * Does not:  know tasks or their order. */
#ifndef AN_KERNELS_CPU_ATTN_JOB_H
#define AN_KERNELS_CPU_ATTN_JOB_H

#include "ir/library_ops.h"
#include "kernels/cpu/attn_tile.h"
#include "kernels/cpu/dropout_mask.h"
#include "kernels/cpu/isa.h"

_Static_assert(BLOCK == AN_ATTN_KEYS, "a score tile holds one block of keys");

/* A call of attention, shared by its tasks. */
typedef struct job {
    const an_attn_spec *s;
    const uint8_t *q, *k, *v, *o, *g; /* [B,H,T|S,D] views; g is the gradient of o */
    uint8_t *out, *dq, *dk, *dv;
    float *lse;                   /* [B,H,T], with a mask [B,H,2,T] */
    const float *mask;            /* [B,H,T,S] view; NULL: none */
    const float *cosines, *sines; /* of rotary positions, [T,D/2] and [T,2,D/2]; NULL: q and k are read as they are */
    an_dropout drop;
    uint64_t sample0; /* global index of sample 0, for dropout */
    int keys;         /* S, or how many of the S keys are in use */
    int group;        /* heads of q for each of k and v */
    int share;        /* of which a forward task takes so many at a time */
    int64_t shift;    /* key j is visible to query i when j <= i + shift */
    bool bf16;        /* multiplies bf16, */
    bool dot;         /* of which panels hold pairs, */
    bool round;       /* or f32 that are rounded to bf16, where there is no dot product instruction */
    int dn, dw;       /* row length in words: of an f32 panel; of a panel that is summed over d */
    int item;         /* bytes of a stored element */
    bool split;       /* backward: separate tasks for dk dv and for dq */
    bool kept;        /* else: the queries of a head are packed once, not for each block of keys */
    uint8_t *scratch;
    size_t scratch_bytes; /* of one thread */
} job;

static job job_of(const an_attn_spec *s)
{
    job w = {.s = s, .keys = s->S, .group = an_attn_group(s), .share = 1, .drop.scale = 1.0f};
    w.bf16 = s->mul_dtype == AN_BF16;
    w.dot = w.bf16 && (AN_BF16_DOT || AN_TILES);
    w.round = w.bf16 && !w.dot;
    w.dn = (int)an_round_up(s->D, LANES);
    w.dw = w.dot ? (int)an_round_up((s->D + 1) / 2, LANES) : w.dn;
    w.item = s->dtype == AN_F32 ? 4 : 2;
    w.shift = s->causal ? (int64_t)s->S - s->T : INT64_MAX / 2;
    return w;
}

/* Words in use, without padding, in a row of a panel that is summed over d. */
static int depth(const job *w)
{
    return w->dot ? (w->s->D + 1) / 2 : w->s->D;
}

/* How many of the n keys from k0 on are visible to query i. */
static int visible(const job *w, int64_t i, int64_t k0, int n)
{
    int64_t end = i + w->shift + 1 - k0;
    return end < 0 ? 0 : end > n ? n : (int)end;
}

/* How many of them, its first ones, a window has left behind. */
static int hidden(const job *w, int64_t i, int64_t k0, int n)
{
    return w->s->window ? visible(w, i - w->s->window, k0, n) : 0;
}

/* Byte offset of row (b, h, t) of a view. */
static int64_t at(const job *w, const int64_t stride[3], int b, int h, int64_t t)
{
    return (b * stride[0] + h * stride[1] + t * stride[2]) * w->item;
}

/* The mask of query i from key j on; NULL: none. */
static const float *mask_at(const job *w, int b, int h, int64_t i, int64_t j)
{
    const int64_t *x = w->s->mask;
    return !w->mask ? NULL : w->mask + b * x[0] + h * x[1] + i * x[2] + j * x[3];
}

/* Of four keys from j on, a multiple of 4 (dropout_mask.h). */
static uint64_t dropout_index(const job *w, int b, int h, int64_t i, int64_t j)
{
    const an_attn_spec *s = w->s;
    return (((w->sample0 + (uint64_t)b) * (uint64_t)s->H + (uint64_t)h) * (uint64_t)s->T + (uint64_t)i) *
               (uint64_t)((s->S + 3) / 4) +
           (uint64_t)j / 4;
}

/* Takes `words` words, 64-byte aligned, from one thread's scratch. With base NULL it only adds up the size. */
static void *take(uint8_t *base, size_t *used, size_t words)
{
    void *p = base ? base + *used : NULL;
    *used += (words * sizeof(an_word) + 63) / 64 * 64;
    return p;
}

/* ---- prefetching ----------------------------------------------------------------------------------------------- */

/* Rows that the next tile will pack. Neighbouring rows are a row of [3C] apart, too far for the hardware prefetcher, so
 * while a row of the current tile is worked on, one row of each view is prefetched (B=64 H=6 T=256 D=64: forward 54 to
 * 46 ms, backward 111 to 100; EPYC Zen 4, 2026-11). */
typedef struct ahead {
    const uint8_t *rows[5];
    int64_t stride_bytes[5];
    int n[5], slots; /* rows of each view; views */
} ahead;

static void ahead_add(const job *w, ahead *a, const uint8_t *base, const int64_t stride[3], int b, int h, int64_t t,
                      int64_t n)
{
    a->rows[a->slots] = base + at(w, stride, b, h, t);
    a->n[a->slots] = (int)n;
    a->stride_bytes[a->slots++] = stride[2] * w->item;
}

/* Prefetches query i's share, one of `queries`, of the rows in `a`. */
static inline void fetch_ahead(const job *w, const ahead *a, int i, int queries)
{
    const int bytes = w->s->D * w->item;
    for (int slot = 0; slot < a->slots; slot++)
        for (int row = i; row < a->n[slot]; row += queries)
            for (int line = 0; line < bytes; line += 64)
                __builtin_prefetch(a->rows[slot] + row * a->stride_bytes[slot] + line, 0, 2);
}

/* ---- packing --------------------------------------------------------------------------------------------------- */

/* Packs rows [0, n) of `src`, `stride` elements apart, and zero rows up to `padded`, as the panel [padded, dw] that is
 * summed over d. With f32 words, the same panel also serves sums over the rows, as [padded, dn]. */
static void pack_rows(const job *w, const uint8_t *src, int64_t stride, int n, int padded, an_word *panel)
{
    const int D = w->s->D, dw = w->dw;
    for (int i = 0; i < n; i++) {
        const uint8_t *row = src + i * stride * w->item;
        an_word *out = panel + (int64_t)i * dw;
        if (!w->dot) {
            load_row((float *)out, row, w->s->dtype, D, dw);
            if (w->round) round_row((float *)out, dw);
        } else {
            out[(D - 1) / 2] = 0; /* an odd D fills only half of the last pair */
            if (w->s->dtype == AN_BF16)
                memcpy(out, row, sizeof(an_half) * (size_t)D);
            else
                narrow_row(out, (const float *)(const void *)row, D);
            for (int x = (D + 1) / 2; x < dw; x++) out[x] = 0;
        }
    }
    memset(panel + (int64_t)n * dw, 0, sizeof(an_word) * (size_t)(padded - n) * (size_t)dw);
}

/* Packs rows [t0, t0+n) of q or k at `src`, turned by their positions where the job says so. */
static void pack_turned(const job *w, const uint8_t *src, const int64_t stride[3], int b, int h, int64_t t0, int n,
                        int padded, an_word *panel)
{
    const int D = w->s->D, dw = w->dw;
    src += at(w, stride, b, h, t0);
    if (!w->cosines) {
        pack_rows(w, src, stride[2], n, padded, panel);
        return;
    }
    for (int i = 0; i < n; i++) {
        float *out = (float *)(panel + (int64_t)i * dw);
        const float *sines = w->sines + (t0 + i) * D;
        turn_row(out, (const float *)(const void *)(src + i * stride[2] * w->item), 1.0f,
                 w->cosines + (t0 + i) * (D / 2), sines, sines + D / 2, D / 2);
        for (int x = D; x < dw; x++) out[x] = 0.0f;
    }
    memset(panel + (int64_t)n * dw, 0, sizeof(an_word) * (size_t)(padded - n) * (size_t)dw);
}

/* Rearranges a panel of pairs along d to pairs along the rows, [padded/2, dn], which is summed over the rows. */
static void pair_panel(const job *w, const an_word *panel, int padded, an_word *out)
{
    for (int i = 0; i < padded / 2; i++) {
        const an_half *even = (const an_half *)(panel + (int64_t)(2 * i) * w->dw);
        pair_halves(out + (int64_t)i * w->dn, even, even + 2 * w->dw, w->dn);
    }
}

#endif
