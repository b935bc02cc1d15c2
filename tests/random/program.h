/* program.h: what a random program is, what it told, and the numbers, shapes and dtypes that it draws. Of test_programs.c. */
#ifndef AN_TESTS_RANDOM_PROGRAM_H
#define AN_TESTS_RANDOM_PROGRAM_H

#include "lib/test.h"

#include "base/exact.h"

#include <anneal.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, CALLS = 24, LIVE = 72, KEPT = 3, WAYS = 4, MOST = 6000, ENTRIES = 1200, ROOTS = 48 };

static const char *device = "cpu"; /* or AN_LAB_DEVICE, as tests/ops has it */

typedef struct entry { /* one thing that the program was told */
    char what[72];
    int dtype; /* -1: a text */
    size_t bytes;
    char *data;
} entry;

typedef struct told {
    entry e[ENTRIES];
    int n;
} told;

typedef struct program {
    uint64_t seed;
    bool skip[STEPS][CALLS];
} program;

typedef struct run {
    const program *m;
    an_ctx *cx;
    told *log;
    uint64_t random; /* of the call being made */
    an_tensor *t[LIVE];
    int n, scopes;
    bool averages, rounded;
    int evaluated; /* tensors below this one were there at the last eval */
} run;

/* ---- draws */

static inline uint32_t draw(run *r, uint32_t n)
{
    r->random = r->random * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = r->random;
    x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15u;
    return (uint32_t)((x ^ (x >> 29)) >> 32) % n;
}

static inline void seed_draws(run *r, uint64_t seed, int step, int call)
{
    r->random = (seed * 64 + (uint64_t)step) * 0x9E3779B97F4A7C15u + (uint64_t)call * 0xD1B54A32D192ED03u + 7;
    draw(r, 2), draw(r, 2);
}

static inline int64_t count(an_shape s)
{
    int64_t n = 1;
    for (int i = 0; i < s.rank; i++) n *= s.dim[i];
    return n;
}

static inline an_shape draw_shape(run *r)
{
    static const int64_t lengths[] = {0, 1, 1, 2, 2, 3, 3, 4, 5, 8, 17, 33};
    const uint32_t few = draw(r, 3) ? 6 : 12; /* mostly lengths that fit others */
    an_shape s = {.rank = (int)draw(r, 5)};
    for (int i = 0; i < s.rank; i++) s.dim[i] = lengths[(draw(r, 12) ? 1 : 0) + draw(r, few - 1)];
    if (draw(r, 3) == 0) s = draw(r, 2) ? AN_SHAPE(3, 4) : AN_SHAPE(2, 3, 4);
    if (count(s) > MOST) s = AN_SHAPE(4, 4);
    return s;
}

static inline an_dtype draw_dtype(run *r)
{
    const an_dtype wide = strcmp(device, "metal") == 0 ? AN_F32 : AN_F64; /* Apple GPUs have no float64 */
    const an_dtype t[] = {AN_F32, AN_F32, AN_F32, AN_F32, AN_F32, AN_BF16, AN_F16,
                          wide,   AN_I32, AN_I32, AN_I64, AN_U8,  AN_BOOL};
    return t[draw(r, (uint32_t)AN_COUNT(t))];
}

static inline bool is_float(an_dtype t)
{
    return t == AN_F32 || t == AN_F64 || t == AN_BF16 || t == AN_F16;
}

static inline void put_number(an_dtype t, void *p, int64_t i, double x)
{
    if (!is_float(t) && !(fabs(x) < 1e9)) x = 7;
    switch (t) {
    case AN_F32: ((float *)p)[i] = (float)x; break;
    case AN_F64: ((double *)p)[i] = x; break;
    case AN_BF16: ((uint16_t *)p)[i] = (uint16_t)an_f32_to_bf16((float)x); break;
    case AN_F16: ((uint16_t *)p)[i] = (uint16_t)an_f32_to_f16((float)x); break;
    case AN_I32: ((int32_t *)p)[i] = (int32_t)x; break;
    case AN_I64: ((int64_t *)p)[i] = (int64_t)x; break;
    case AN_U8: ((uint8_t *)p)[i] = (uint8_t)fabs(fmod(x, 256)); break;
    default: ((uint8_t *)p)[i] = x > 0; break;
    }
}

static inline double number(run *r, bool special)
{
    static const double corners[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, 0, -0.0, 1, -1, 1e-40, 3e38,
                                     65504};
    if (special && draw(r, 6) == 0) return corners[draw(r, AN_COUNT(corners))];
    return ((double)draw(r, 4001) - 2000) / 1000;
}

/* Data of a tensor, to be freed. */
static inline void *numbers(run *r, an_dtype t, an_shape s)
{
    const int64_t n = count(s);
    const bool special = draw(r, 5) == 0;
    void *data = calloc((size_t)n + 1, an_dtype_size(t));
    assert_non_null(data);
    for (int64_t i = 0; i < n; i++) put_number(t, data, i, is_float(t) ? number(r, special) : (double)draw(r, 9) - 2);
    return data;
}

#endif
