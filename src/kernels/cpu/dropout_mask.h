/* dropout_mask.h: the dropout mask of attention on the CPU, a row of a score tile at a time. It is computed where it is
 * applied, forward and backward, and never stored.
 *
 * Invariant: key j of the row with global number r (sample, head, query) is kept when an_rng_16(rng[0], stream, r ceil(S / 4) + j / 4, j) is at
 *            least an_rng_least_16(p) (base/rng.h): four keys share a random number. The same mask: kernels/gpu/dropout_mask.h,
 *            oracle/kernel_oracle.c.
 * Does not:  draw masks outside attention: an_dropout is a formula over uniform numbers (an_dropout_of, graph/compose.c),
 *            which loop kernels draw (AN_INS_RAND, ir/loop_kernel.h).
 */
#ifndef AN_KERNELS_CPU_DROPOUT_MASK_H
#define AN_KERNELS_CPU_DROPOUT_MASK_H

#include "base/rng.h"
#include "kernels/cpu/attn_vec.h"

#include <stdbool.h>

typedef struct an_dropout {
    vq keys[7]; /* of the rounds */
    uint32_t stream;
    uint32_t floor; /* kept when the 16 random bits are at least this */
    float scale;    /* an_rng_keep_scale_16(p): 1 when there is none */
    bool on;
} an_dropout;

static inline an_dropout dropout_of(float p, const uint32_t *rng, uint32_t stream)
{
    if (!rng || !(p > 0.0f)) return (an_dropout){.scale = 1.0f};
    an_dropout d = {.stream = stream, .floor = an_rng_least_16(p), .scale = an_rng_keep_scale_16(p), .on = true};
    for (uint32_t round = 0; round < 7; round++) d.keys[round] = vq_set(rng[0] + round * 0x9E3779B9u);
    return d;
}

/* mask[j] = all ones where key j is kept, for j < n <= 64; index is that of the first four keys. Writes up to the next multiple of 32.
 * Philox2x32-7 (see base/rng.h) on 64-bit lanes: a round is one widening multiply, one shift and two exclusive ors, because nothing reads the
 * upper half of a lane. Two vectors at once hide the multiply's latency. */
static inline void keep_mask(const an_dropout *d, uint64_t index, int n, an_word *restrict mask)
{
    enum { AT_ONCE = AN_VL / 2 /* numbers of a vector */ };
    _Alignas(64) uint16_t part[64];
    const vq low_half = vq_set(0xffffffffu), factor = vq_set(0xD256D193u);
    const vu least = vu_set(d->floor);
    for (int j = 0; j < n; j += 4 * 2 * AT_ONCE) {
        vq a[2], b[2]; /* the two words of the counter */
        AN_UNROLL for (int x = 0; x < 2; x++)
        {
            a[x] = vq_iota() + vq_set(index + (uint64_t)(j / 4 + x * AT_ONCE));
            b[x] = vq_set(d->stream) ^ vq_mul32(a[x] >> 32, vq_set(0x9E3779B9u));
        }
        AN_UNROLL for (int round = 0; round < 7; round++)
        {
            AN_UNROLL for (int x = 0; x < 2; x++)
            {
                const vq product = vq_mul32(a[x], factor);
                a[x] = (product >> 32) ^ d->keys[round] ^ b[x];
                b[x] = product;
            }
        }
        AN_UNROLL for (int x = 0; x < 2; x++)
            vu_store((an_word *)(part + j + 4 * x * AT_ONCE), (vu)((a[x] & low_half) | b[x] << 32));
    }
    for (int j = 0; j < n; j += AN_VL) vu_store(mask + j, (vu)(vu_widen(part + j) >= least));
}

#endif
