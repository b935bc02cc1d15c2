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
    const double base = normal ? -0.0 : d->a; /* -0 + x is x, zeros of both signs included */
    const double scale = normal ? d->a : d->kind == AN_DRAW_UNIFORM ? d->b - d->a : -0.0;
    float z[RUN] = {0};
    for (int64_t done = 0; done < n;) {
        /* a run ends where the counter's low word would wrap: 2^31 is a multiple of RUN */
        const int64_t at = first + done, room = RUN - at % RUN;
        const int m = (int)AN_MIN(room, n - done);
        const uint64_t counter = (uint64_t)at << normal;
        if (normal)
            normals(d, (an_u32)counter, (an_u32)(counter >> 32), m, z);
        else if (d->kind == AN_DRAW_UNIFORM)
            uniforms(d, (an_u32)counter, (an_u32)(counter >> 32), m, z);
        store(d->dtype, base, scale, m, z, (char *)out + (size_t)done * each);
        done += m;
    }
}
