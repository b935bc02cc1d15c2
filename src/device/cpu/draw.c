/* draw.c: a token a row of logits on the CPU (DRAW: temperature, top-k, top-p; on the host nn/samplers.c): what kernels/gpu/draw.inc says, with the same result.
 *
 * Invariant: weights are integers and sums of them exact, so that the order of a sum does not show. */
#include "device/cpu/library_calls.h"
#include "base/exact.h"

#include <string.h>

enum { TOP_K, KEY, SCALE, TOP_P }; /* attributes: see AN_OP(DRAW) in graph/ops.def */

/* An unsigned number in the order of the floats; zeros are equal, NaN is above all. */
static uint32_t key_of(float x)
{
    uint32_t u;
    if (x != x) return UINT32_MAX;
    x += 0.0f; /* -0 + 0 is +0 */
    memcpy(&u, &x, sizeof u);
    return u >> 31 ? ~u : u | 0x80000000u;
}

/* The weights, or the number where there are none, of the elements whose key is at least t. */
static uint64_t mass(const uint32_t *key, const uint64_t *weight, int64_t n, uint32_t t)
{
    uint64_t sum = 0;
    if (weight)
        for (int64_t i = 0; i < n; i++) sum += key[i] >= t ? weight[i] : 0;
    else
        for (int64_t i = 0; i < n; i++) sum += key[i] >= t;
    return sum;
}

/* The largest t of which there is enough, 0 if there is not: eight bits at a time, the highest first. What is above a digit is what
 * its larger neighbours hold, so that each element is looked at four times, not once a bit. */
static uint32_t threshold(const uint32_t *key, const uint64_t *weight, int64_t n, uint64_t enough)
{
    enum { BITS = 8, DIGITS = 1 << BITS };
    uint32_t t = 0, known = 0; /* bits of t that are known */
    uint64_t above = 0;
    for (int shift = 32 - BITS; shift >= 0; shift -= BITS) {
        uint64_t held[DIGITS] = {0};
        for (int64_t i = 0; i < n; i++)
            if ((key[i] & known) == t) held[key[i] >> shift & (DIGITS - 1)] += weight ? weight[i] : 1;
        uint32_t digit = DIGITS - 1;
        while (digit > 0 && above + held[digit] < enough) above += held[digit--];
        t |= digit << shift;
        known |= (uint32_t)(DIGITS - 1) << shift;
    }
    return t;
}

/* floor(a b / 2^32) of b below 2^63 */
static uint64_t share(uint32_t a, uint64_t b)
{
    return a * (b >> 32) + (a * (b & 0xffffffffu) >> 32);
}

static int32_t token_of(const float *x, int64_t n, const int64_t *attr, uint32_t random, uint32_t *key,
                        uint64_t *weight)
{
    const uint32_t minus_inf = 0x007fffffu, inf = 0xff800000u, bits = (uint32_t)attr[SCALE];
    int64_t first = 0;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    for (int64_t i = 0; i < n; i++) {
        key[i] = key_of(x[i]);
        if (key[i] > key[first]) first = i;
    }
    if (key[first] > inf || key[first] <= minus_inf) return -1;
    if (scale == 0 || key[first] == inf) return (int32_t)first;
    uint32_t t = attr[TOP_K] > 0 && attr[TOP_K] < n ? threshold(key, NULL, n, (uint64_t)attr[TOP_K]) : 0;
    for (int64_t i = 0; i < n; i++)
        weight[i] = key[i] >= t ? (uint64_t)(an_exp((x[i] - x[first]) * scale) * 0x1p40f) : 0;
    uint64_t total = mass(key, weight, n, t), sum = 0;
    if (attr[TOP_P]) {
        const uint64_t enough = share((uint32_t)attr[TOP_P] << 8, total);
        const uint32_t cut = threshold(key, weight, n, AN_MAX(enough, 1));
        t = AN_MAX(t, cut);
        total = mass(key, weight, n, t);
    }
    const uint64_t want = share(random, total);
    for (int64_t i = 0; i < n; i++) {
        sum += key[i] >= t ? weight[i] : 0;
        if (want < sum) return (int32_t)i;
    }
    return (int32_t)first; /* never: want is less than the total */
}

static void draw_row(const an_call_job *j, int64_t u, void *scratch)
{
    const an_library_call_spec *s = j->s;
    const int64_t n = an_call_last(&s->src[0]);
    const int32_t *number = j->arg[1];
    const uint32_t random =
        an_philox((uint32_t)s->attr[KEY], 0x64726177u, (uint32_t)number[1], (uint32_t)number[0] + (uint32_t)u);
    uint64_t *weight = scratch;
    ((int32_t *)j->arg[2])[u] =
        token_of((const float *)j->arg[0] + u * n, n, s->attr, random, (uint32_t *)(void *)(weight + n), weight);
}

void an_call_draw(an_call_job *j)
{
    const an_call_tensor *x = &j->s->src[0];
    j->weight = 64 * an_call_last(x);
    j->units = an_call_outer(x, 1);
    j->scratch_bytes = (size_t)an_call_last(x) * (sizeof(uint64_t) + sizeof(uint32_t));
    j->unit = draw_row;
}
