/* order.c: a random permutation by a Feistel network, evaluated one element at a time. See order.h. */
#include "io/data/order.h"
#include "base/map.h"
#include "base/rng.h"

uint64_t an_multiply_high(uint64_t a, uint64_t b)
{
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t middle = a1 * b0 + (a0 * b0 >> 32), low = a0 * b1 + (uint32_t)middle;
    return a1 * b1 + (middle >> 32) + (low >> 32);
}

/* Four rounds over twice `half` bits, again while the result is outside. */
uint64_t an_shuffled(uint64_t i, uint64_t n, uint32_t key, uint32_t stream)
{
    int half = 1;
    while (half < 31 && (1ull << (2 * half)) < n) half++;
    const uint64_t mask = (1ull << half) - 1;
    do {
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t left = i >> half, right = i & mask;
            i = right << half | (left ^ (an_rng_u32(key, stream, 4 * right + round) & mask));
        }
    } while (i >= n);
    return i;
}

int64_t an_draw_row(int64_t rows, int split, uint64_t seed, uint64_t step, uint64_t s, int64_t per_step)
{
    const uint32_t stream = an_rng_stream(an_hash("rows", 4, 0), (uint32_t)split), key = an_rng_key(seed, step);
    const uint64_t n = (uint64_t)rows, number = step * (uint64_t)per_step + s;
    if (per_step > 0) return (int64_t)an_shuffled(number % n, n, an_rng_key(seed, number / n), stream);
    const uint64_t u = (uint64_t)an_rng_u32(key, stream, 2 * s) << 32 | an_rng_u32(key, stream, 2 * s + 1);
    return (int64_t)an_multiply_high(u, n);
}
