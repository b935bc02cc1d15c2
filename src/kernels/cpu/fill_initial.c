/* fill_initial.c: initial values: constants, normal and uniform numbers, compiled once per instruction set.
 *
 * Owns:      loops that compilers vectorise over exact.h's generator, logarithm, root and cosine, and the rounding to the storage type.
 * Does not:  choose key or stream, or split the work: an element is a function of its own index.
 * Invariant: element i is base/rng.h's number i, scaled in double and rounded once: the same bits on every set.
 */
#include "kernels/cpu_kernels.h"
#include "kernels/cpu/isa.h"

#define AN_FN static inline __attribute__((always_inline, unused)) /* a call that stays ends vectorisation */
#include "base/exact.h"

#include <string.h>

enum { RUN = 1024 }; /* numbers drawn before they are rounded: 4 KiB, in the first cache */

/* Elements at, at + 1, ... of a run whose counters share their high word. */
static void uniforms(const an_init_spec *d, an_u32 lo, an_u32 hi, int n, float *restrict out)
{
    const an_u32 key = d->key, stream = d->stream;
    for (int i = 0; i < n; i++) out[i] = an_philox_uniform(key, stream, lo + (an_u32)i, hi);
}

/* Box-Muller in short loops: in one, gcc threads jumps from the logarithm's selects to the root's and stays scalar. */
static void normals(const an_init_spec *d, an_u32 lo, an_u32 hi, int n, float *restrict out)
{
    const an_u32 key = d->key, stream = d->stream;
    float turn[RUN], root[RUN];
    for (int i = 0; i < n; i++) root[i] = 1.0f - an_philox_uniform(key, stream, lo + 2u * (an_u32)i, hi);
    for (int i = 0; i < n; i++) turn[i] = an_philox_uniform(key, stream, lo + 2u * (an_u32)i + 1u, hi);
    for (int i = 0; i < n; i++) root[i] = -2.0f * an_log(root[i]);
    for (int i = 0; i < n; i++) root[i] = an_sqrt(root[i]);
    for (int i = 0; i < n; i++) out[i] = root[i] * an_cos_moderate(6.28318548f * turn[i]);
}

/* Uniform numbers of [0,1) to those of a standard normal distribution cut at -2 and 2: sqrt(2) erfinv(u) of u uniform in
 * [erf(-sqrt(2)), erf(sqrt(2))]. There 1 - u^2 is above 0.089, the central range of M. Giles, "Approximating the erfinv
 * function" (GPU Computing Gems, 2011), whose polynomial has a relative error of 4e-7. */
static void truncate_normal(int n, float *restrict z)
{
    static const float c[] = {2.81022636e-08f, 3.43273939e-07f, -3.5233877e-06f, -4.39150654e-06f, 0.00021858087f,
                              -0.00125372503f, -0.00417768164f, 0.246640727f,    1.50140941f};
    const float most = 0.954499736f; /* erf(sqrt(2)) */
    float w[RUN];
    for (int i = 0; i < n; i++) z[i] = (2.0f * z[i] - 1.0f) * most;
    for (int i = 0; i < n; i++) w[i] = -an_log((1.0f - z[i]) * (1.0f + z[i])) - 2.5f;
    for (int i = 0; i < n; i++) {
        float p = c[0];
        for (int k = 1; k < 9; k++) p = p * w[i] + c[k];
        const float x = 1.41421356f * p * z[i];
        z[i] = x > 2.0f ? 2.0f : x < -2.0f ? -2.0f : x;
    }
}

#define STORE(T, VALUE)                                                                                                \
    {                                                                                                                  \
        T *to = out;                                                                                                   \
        for (int i = 0; i < n; i++) {                                                                                  \
            const double x = base + scale * (double)z[i];                                                              \
            to[i] = (T)(VALUE);                                                                                        \
        }                                                                                                              \
        break;                                                                                                         \
    }

static void store(int dtype, double base, double scale, int n, const float *restrict z, void *restrict out)
{
    switch (dtype) {
    case AN_F32: STORE(float, x)
    case AN_F64: STORE(double, x)
    case AN_BF16: STORE(uint16_t, an_f32_to_bf16((float)x))
    case AN_F16: STORE(uint16_t, an_f32_to_f16((float)x))
    case AN_I32: STORE(int32_t, x)
    case AN_I64: STORE(int64_t, x)
    case AN_U8: STORE(uint8_t, x)
    default: STORE(uint8_t, x != 0)
    }
}

void AN_ISA_NAME(draw)(const an_init_spec *d, int64_t first, int64_t n, void *out)
{
    const size_t each = an_dtype_size((an_dtype)d->dtype);
    const bool normal = d->kind == AN_DRAW_NORMAL;
    const bool truncated = d->kind == AN_DRAW_TRUNCATED;
    /* -0 + x is x, zeros of both signs included */
    const double base = normal || truncated ? -0.0 : d->a;
    /* the standard deviation of the cut distribution is 0.8796... of the whole one's */
    const double scale = normal                       ? d->a
                         : truncated                  ? d->a / 0.87962566103423978
                         : d->kind == AN_DRAW_UNIFORM ? d->b - d->a
                                                      : -0.0;
    float z[RUN] = {0};
    for (int64_t done = 0; done < n;) {
        /* a run ends where the counter's low word would wrap: 2^31 is a multiple of RUN */
        const int64_t at = first + done, room = RUN - at % RUN;
        const int m = (int)AN_MIN(room, n - done);
        const uint64_t counter = (uint64_t)at << normal;
        if (normal)
            normals(d, (an_u32)counter, (an_u32)(counter >> 32), m, z);
        else if (d->kind == AN_DRAW_UNIFORM || truncated)
            uniforms(d, (an_u32)counter, (an_u32)(counter >> 32), m, z);
        if (truncated) truncate_normal(m, z);
        store(d->dtype, base, scale, m, z, (char *)out + (size_t)done * each);
        done += m;
    }
}
