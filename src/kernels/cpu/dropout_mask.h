/* dropout_mask.h: the dropout mask of attention on the CPU, a row of a score tile at a time. It is computed where it is
 * applied, forward and backward, and never stored.
 *
 * Invariant: the element with global index i (dropout_index in attn.c) is kept when an_rng_uniform(rng[0], stream, i) >= p
 *            (base/rng.h). The same mask: kernels/gpu/dropout_mask.h, oracle/kernel_oracle.c.
 * Does not:  draw masks outside attention: an_dropout is a formula over uniform numbers (an_dropout_of, graph/compose.c),
 *            which loop kernels draw (AN_INS_RAND, ir/loop_kernel.h).
 */
#ifndef AN_KERNELS_CPU_DROPOUT_MASK_H
#define AN_KERNELS_CPU_DROPOUT_MASK_H

#include "kernels/cpu/attn_vec.h"

#include <stdbool.h>

typedef struct an_dropout {
    vq keys[7]; /* of the rounds */
    uint32_t stream;
    uint32_t floor; /* kept when the random word is at least this: (word >> 8) * 2^-24 >= p, without the float */
    float scale;    /* 1 / (1 - p), or 1 when there is none */
    bool on;
} an_dropout;

static inline an_dropout dropout_of(float p, const uint32_t *rng, uint32_t stream)
{
    if (!rng || !(p > 0.0f)) return (an_dropout){.scale = 1.0f};
    double t = (double)p * 16777216.0; /* exact */
    uint32_t least = (uint32_t)t + ((double)(uint32_t)t < t);
    an_dropout d = {.stream = stream, .scale = 1.0f / (1.0f - p), .on = true};
    d.floor = least > 0xffffffu ? UINT32_MAX : least << 8;
    for (uint32_t round = 0; round < 7; round++) d.keys[round] = vq_set(rng[0] + round * 0x9E3779B9u);
    return d;
}

/* mask[j] = all ones where element index + j is kept, for j < n; writes up to the next multiple of 32. Philox2x32-7
 * (see base/rng.h) on 64-bit lanes, even and odd counters apart: a round is one widening multiply, one shift and two
 * exclusive ors, because nothing reads the upper half of a lane. Two vectors at once hide the multiply's latency. */
static inline void keep_mask(const an_dropout *d, uint64_t index, int n, an_word *restrict mask)
{
    const uint32_t lo = (uint32_t)index, hi = (uint32_t)(index >> 32);
    const uint32_t second = d->stream ^ hi * 0x9E3779B9u, carried = d->stream ^ (hi + 1) * 0x9E3779B9u;
    const vu least = vu_set(d->floor);
    const vq low_half = vq_set(0xffffffffu), factor = vq_set(0xD256D193u);
    for (int j = 0; j < n; j += 2 * AN_VL) {
        vq a[4], b[4]; /* the two words of the counter: even, odd, even, odd */
        AN_UNROLL for (int x = 0; x < 4; x += 2)
        {
            const vu count = vu_iota() + vu_set(lo + (uint32_t)(j + x / 2 * AN_VL));
            const vu wrapped = (vu)(count < vu_set(lo)); /* the low word passed 2^32 inside the row */
            a[x] = (vq)count, a[x + 1] = a[x] >> 32;
            b[x] = (vq)((vu_set(carried) & wrapped) | (vu_set(second) & ~wrapped)), b[x + 1] = b[x] >> 32;
        }
        AN_UNROLL for (int round = 0; round < 7; round++)
        {
            AN_UNROLL for (int x = 0; x < 4; x++)
            {
                const vq product = vq_mul32(a[x], factor);
                a[x] = (product >> 32) ^ d->keys[round] ^ b[x];
                b[x] = product;
            }
        }
        AN_UNROLL for (int x = 0; x < 4; x += 2)
        {
            const vu word = (vu)((a[x] & low_half) | (a[x + 1] << 32));
            vu_store(mask + j + x / 2 * AN_VL, (vu)(word >= least));
        }
    }
}

#endif
