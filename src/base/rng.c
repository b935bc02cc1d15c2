/* rng.c: the counter-based generator on the host. It calls exact.h's functions, so that host and kernels draw the same
 * numbers; see rng.h. */
#include "base/rng.h"
#include "base/exact.h"
#include "base/map.h"

_Static_assert(AN_PHILOX_ROUNDS == 7, "exact.h has the rounds unrolled");

uint32_t an_rng_u32(uint32_t key, uint32_t stream, uint64_t index)
{
    return an_philox(key, stream, (uint32_t)index, (uint32_t)(index >> 32));
}

uint32_t an_rng_16(uint32_t key, uint32_t stream, uint64_t index, int column)
{
    an_u32 a = (an_u32)index, b = stream ^ (an_u32)(index >> 32) * 0x9E3779B9u;
    for (int round = 0; round < AN_PHILOX_ROUNDS; round++) AN_PHILOX_ROUND_
    return (column & 2 ? b : a) >> (16 * (column & 1)) & 0xffffu;
}
uint32_t an_rng_least_16(float p)
{
    const double at_least = (double)p * 0x1p16; /* exact */
    const uint32_t n = (uint32_t)at_least + ((double)(uint32_t)at_least < at_least);
    return n < 0xffffu ? n : 0xffffu;
}

float an_rng_keep_scale_16(float p)
{
    return 0x1p16f / (0x1p16f - (float)an_rng_least_16(p));
}

float an_rng_uniform(uint32_t key, uint32_t stream, uint64_t index)
{
    return an_word_uniform(an_rng_u32(key, stream, index));
}

float an_rng_normal(uint32_t key, uint32_t stream, uint64_t index)
{
    /* 1 - u is in (0, 1], so that the logarithm is finite; the largest result is sqrt(48 ln 2) = 5.77. */
    float u = 1.0f - an_rng_uniform(key, stream, 2 * index);
    float v = an_rng_uniform(key, stream, 2 * index + 1);
    return an_sqrt(-2.0f * an_log(u)) * an_cos_moderate(6.28318548f * v);
}

uint32_t an_rng_key(uint64_t seed, uint64_t step)
{
    uint64_t h = an_hash_u64(step, an_hash_u64(seed, 0x6b6579)); /* "key" */
    return (uint32_t)(h ^ (h >> 32));
}

uint32_t an_rng_stream(uint64_t scope, uint32_t ordinal)
{
    uint64_t h = an_hash_u64(ordinal, an_hash_u64(scope, 0x73747265616d)); /* "stream" */
    return (uint32_t)(h ^ (h >> 32));
}
