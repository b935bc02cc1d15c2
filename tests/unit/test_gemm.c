/* test_gemm.c: matrix products of every instruction set this processor runs against a naive chain of fmaf, bit for bit,
 * over shapes, layouts, storage types, batches, splits, accumulation and epilogues, with 1, 2 and 7 threads.
 *
 * Everything that is no element (between rows, around C, behind scratch) is NaN or a pattern: an operand read
 * there spoils the result, a write there is found. */
#include "base/base.h"
#include "platform/thread_pool.h"
#include "kernels/cpu_kernels.h"
#include "device/cpu/float_mode.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* How an operand lies: rows ('n': unit stride in k for A, in n for B), columns ('t'), neither ('s'), every row the same
 * ('0'). */
typedef struct example {
    int m, n, k;
    char a, b;
    uint8_t a_dtype, b_dtype, c_dtype;
    int batch[3];
    bool b_shared; /* by the batch */
    int splits;
    bool epilogue;
} example;

/* The extent k of an example that needs several blocks of k. Sanitized builds block k, and what is packed at once, by an
 * eighth (CACHE_DIVISOR in kernels/cpu/gemm_plan.h): an eighth of k has as many blocks and groups, and the same tails. */
#ifdef AN_SANITIZE
#define DEEP(k) (((k) + 7) / 8)
#else
#define DEEP(k) (k)
#endif

#define F32 AN_F32, AN_F32, AN_F32
#define ONE                                                                                                            \
    {                                                                                                                  \
        1, 1, 1                                                                                                        \
    }
#define BF16 AN_BF16, AN_BF16, AN_BF16
#define F16  AN_F16, AN_F16, AN_F16

static const example EXAMPLES[] = {
    /* one element to several tiles, all layouts */
    {1, 1, 1, 'n', 'n', F32, ONE, 0, 0, 0},
    {1, 65, 384, 'n', 't', F32, ONE, 0, 0, 0},
    {1, 200, 129, 'n', 'n', F32, ONE, 0, 0, 0},
    {2, 33, 31, 't', 't', F32, ONE, 0, 0, 0},
    {13, 15, 17, 'n', 't', F32, ONE, 0, 0, 0},
    {14, 32, 16, 'n', 'n', F32, ONE, 0, 0, 0},
    {15, 48, 100, 't', 'n', F32, ONE, 0, 0, 0},
    {29, 65, 33, 's', 's', F32, ONE, 0, 0, 0},
    {70, 1, 50, 'n', 'n', F32, ONE, 0, 0, 0},
    {70, 17, 1, 't', 't', F32, ONE, 0, 0, 0},
    {57, 66, 19, '0', 'n', F32, ONE, 0, 0, 0},
    {58, 31, 20, 'n', '0', F32, ONE, 0, 0, 0},
    {61, 130, 0, 'n', 't', F32, ONE, 0, 0, 0},
    {61, 130, 0, 'n', 't', AN_F32, AN_F32, AN_BF16, ONE, 0, 0, 0},
    /* the loop over k takes four steps a turn: each remainder, behind the steps that also prefetch C */
    {24, 64, 13, 'n', 't', F32, ONE, 0, 0, 0},
    {24, 64, 14, 'n', 'n', F32, ONE, 0, 0, 0},
    {24, 64, 15, 't', 'n', F32, ONE, 0, 0, 0},
    {24, 64, 16, 't', 't', F32, ONE, 0, 0, 0},
    {24, 64, 17, 't', 'n', F32, ONE, 0, 0, 0},
    {24, 80, 27, 't', 'n', BF16, ONE, 0, 0, 0},
    {24, 80, 29, 'n', 't', BF16, ONE, 0, 0, 0},
    {24, 80, 31, 't', 'n', BF16, ONE, 0, 0, 0},
    {24, 80, 33, 'n', 't', BF16, ONE, 0, 0, 0},
    /* several blocks of k: chains go on */
    {120, 65, DEEP(385), 'n', 't', F32, ONE, 0, 0, 0},
    {230, 161, DEEP(800), 'n', 't', F32, ONE, 0, 0, 0},
    {128, 97, DEEP(901), 't', 'n', F32, ONE, 0, 0, 0},
    {100, 70, DEEP(800), 'n', 't', AN_F32, AN_F32, AN_BF16, ONE, 0, 0, 0},
    {100, 560, DEEP(800), 'n', 't', F32, ONE, 0, 0, 1},
    {20, 70, DEEP(800), 'n', 't', AN_F32, AN_F32, AN_BF16, ONE, 0, 0, 0},
    {20, 200, DEEP(800), 'n', 'n', F32, ONE, 0, 0, 1},
    {300, 130, 40, 't', 'n', AN_F32, AN_F32, AN_BF16, ONE, 0, 0, 0},
    {300, 300, 40, 'n', 'n', F32, ONE, 0, 0, 1},
    /* strides of a multiple of 1024: A is packed for that (row strides are k + 3, column strides m + 5); rows 512 apart are read in place */
    {70, 40, 1021, 'n', 't', F32, ONE, 0, 0, 0},
    {70, 40, 509, 'n', 't', F32, ONE, 0, 0, 0},
    {1019, 40, 70, 't', 'n', F32, ONE, 0, 0, 0},
    /* more of B than is packed at once: groups along n, and along k, where sums wait in partial */
    {50, 2100, DEEP(530), 'n', 't', F32, ONE, 0, 0, 0},
    {50, 2100, DEEP(530), 't', 'n', F32, ONE, 0, 0, 1},
    {50, 70, DEEP(11200), 't', 'n', F32, ONE, 0, 0, 0},
    {50, 70, DEEP(11200), 't', 'n', AN_F32, AN_F32, AN_BF16, ONE, 0, 0, 0},
    {50, 70, DEEP(11200), 'n', 't', F32, ONE, 0, 0, 1},
    {50, 70, DEEP(11200), 't', 't', F32, ONE, 0, 0, 0}, /* both packed for all, whatever is read in place */
    /* a B along n: read in place, or packed where it is narrow, or where many rows use a panel that stays in the L1 cache */
    {300, 97, DEEP(600), 'n', 'n', F32, ONE, 0, 0, 0},
    {300, 97, DEEP(600), 't', 'n', F32, ONE, 0, 0, 1},
    {300, 96, 60, 'n', 'n', F32, ONE, 0, 0, 0},
    {300, 10, 70, 'n', 'n', F32, ONE, 0, 0, 0},
    {300, 31, 70, 't', 'n', F32, ONE, 0, 0, 0},
    {90, 63, 70, 't', 'n', F32, ONE, 0, 0, 0},
    /* the same of two members with both operands packed for all, in pairs as well: one group is packed during another
     */
    {40, 40, DEEP(20001), 't', 'n', BF16, {1, 2, 1}, false, 0, 0},
    /* few rows and a B along k: multiplied as it lies, in every storage type, with edges in n and k */
    {1, 97, 130, 'n', 't', F32, ONE, 0, 0, 0},
    {1, 130, 131, 'n', 't', BF16, ONE, 0, 0, 0},
    {1, 131, 97, 'n', 't', F16, ONE, 0, 0, 1},
    {2, 50, 65, 'n', 't', AN_F32, AN_F32, AN_BF16, ONE, 0, 0, 0},
    {2, 33, 64, 'n', 't', AN_F32, AN_BF16, AN_F32, ONE, 0, 0, 0},
    {3, 70, DEEP(1501), 'n', 't', AN_BF16, AN_F32, AN_F32, ONE, 0, 0, 0},
    {3, 16, 63, 'n', 't', AN_F32, AN_BF16, AN_BF16, ONE, 0, 0, 0},
    {4, 61, 96, 'n', 't', AN_F32, AN_F16, AN_F32, ONE, 0, 0, 1},
    {4, 64, DEEP(1024), 'n', 't', BF16, ONE, 0, 3, 0},
    {4, 30, 15, 'n', 't', F32, {2, 1, 3}, false, 0, 0},
    {1, 40, 50, 'n', 't', F32, {1, 3, 1}, true, 0, 1},
    {1, 1, 3, 'n', 't', BF16, ONE, 0, 0, 0},
    {2, 17, 0, 'n', 't', AN_F32, AN_F32, AN_BF16, ONE, 0, 0, 0},
    {5, 70, 129, 'n', 't', BF16, ONE, 0, 0, 1},
    {8, 70, 131, 'n', 't', F32, ONE, 0, 0, 0},
    {7, 41, 66, 'n', 't', AN_F32, AN_BF16, AN_BF16, ONE, 0, 0, 0},
    {7, 41, 66, 'n', 't', F32, ONE, 0, 0, 0}, /* with AVX2 two tiles of rows, which seven threads must not part */
    {1, 40, DEEP(1019), 'n', 't', F32, ONE, 0, 0, 0}, /* rows of B 4 KiB apart */
    {16, 33, DEEP(1055), 'n', 't', BF16, ONE, 0, 0, 0},
    {16, 64, 96, 'n', 't', AN_F32, AN_BF16, AN_F32, {2, 1, 2}, true, 0, 0},
    {13, 47, DEEP(1021), 'n', 't', BF16, ONE, 0, 3, 0},
    {17, 33, 65, 'n', 't', BF16, ONE, 0, 0, 0},
    /* storage */
    {30, 40, 50, 'n', 't', BF16, ONE, 0, 0, 0},
    {70, 40, DEEP(401), 't', 'n', BF16, ONE, 0, 0, 0},
    {30, 45, 50, 'n', 't', F16, ONE, 0, 0, 0},
    {70, 45, 51, 't', 'n', F16, ONE, 0, 0, 0},
    {70, 45, DEEP(402), 't', 'n', BF16, ONE, 0, 0, 0},
    {70, 45, 51, 's', 's', AN_BF16, AN_F16, AN_F32, ONE, 0, 0, 1},
    {60, 33, 64, 'n', 't', AN_BF16, AN_F32, AN_F32, ONE, 0, 0, 0},
    {60, 33, 65, 'n', 't', AN_BF16, AN_F32, AN_BF16, ONE, 0, 0, 0},
    /* batches: members of their own, a shared B (rows under each other or not), many small ones */
    {20, 30, 40, 'n', 't', F32, {2, 3, 2}, false, 0, 0},
    {70, 64, 33, 'n', 'n', F32, {1, 5, 1}, false, 0, 1},
    {70, 64, 33, 't', 't', AN_F32, AN_F32, AN_BF16, {3, 1, 2}, true, 0, 0},
    {9, 65, 48, 'n', 't', F32, {1, 4, 6}, true, 0, 1},
    {64, 64, 32, 'n', 't', F32, {3, 4, 1}, false, 0, 0},
    {60, 96, DEEP(400), 'n', 'n', AN_F32, AN_F32, AN_BF16, {1, 1, 9}, false, 0, 0},
    /* splits: also such that the last are short or empty */
    {40, 33, DEEP(1000), 't', 'n', F32, ONE, 0, 4, 0},
    {70, 33, DEEP(1001), 't', 'n', AN_F32, AN_F32, AN_BF16, ONE, 0, 8, 0},
    {70, 150, DEEP(700), 'n', 't', F32, {1, 2, 1}, false, 3, 1},
    {15, 20, 5, 'n', 'n', F32, ONE, 0, 4, 0},
    {65, 20, DEEP(2000), 't', 'n', BF16, ONE, 0, 2, 0},
    /* nothing */
    {0, 5, 7, 'n', 'n', F32, ONE, 0, 0, 0},
    {5, 0, 7, 'n', 'n', F32, ONE, 0, 0, 0},
    {5, 5, 7, 'n', 'n', F32, {1, 0, 1}, false, 0, 0},
};

enum { POOLS = 3, GUARD = 64 };
static const int THREADS[POOLS] = {1, 2, 7}; /* the last: more than gemm_plan.h calls few */
static an_pool *pools[POOLS];

/* ---- numbers -------------------------------------------------------------------------------------------------------
 */

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}

static uint16_t to_bf16(float x)
{
    const uint32_t u = bits_of(x), rest = u & 0xffff, up = rest > 0x8000 || (rest == 0x8000 && (u >> 16 & 1));
    return isnan(x) ? (uint16_t)(u >> 16 | 0x40) : (uint16_t)((u >> 16) + up);
}

static uint16_t to_f16(float x)
{
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x)) return sign | 0x7e00;
    if (x == 0) return sign;
    if (fabsf(x) >= 65520) return sign | 0x7c00;
    int exponent;
    frexp((double)fabsf(x), &exponent);
    const int unit = AN_MAX(exponent, -13) - 11; /* the last place */
    const double steps = nearbyint(ldexp((double)fabsf(x), -unit));
    const uint16_t base = exponent < -13 ? 0 : (uint16_t)((exponent + 14) * 1024 - 1024);
    return (uint16_t)(sign + base + (uint16_t)steps);
}

static float from_f16(uint16_t h)
{
    const int exponent = h >> 10 & 31, mantissa = h & 1023;
    double x = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    if (exponent == 31) x = mantissa ? (double)NAN : (double)INFINITY;
    return (float)(h & 0x8000 ? -x : x);
}

static float get(const uint8_t *p, uint8_t dtype, int64_t at)
{
    uint16_t h;
    float x;
    if (dtype == AN_F32) return memcpy(&x, p + 4 * at, 4), x;
    memcpy(&h, p + 2 * at, 2);
    return dtype == AN_BF16 ? float_of((uint32_t)h << 16) : from_f16(h);
}

static void put(uint8_t *p, uint8_t dtype, int64_t at, float x)
{
    const uint16_t h = dtype == AN_BF16 ? to_bf16(x) : to_f16(x);
    if (dtype == AN_F32)
        memcpy(p + 4 * at, &x, 4);
    else
        memcpy(p + 2 * at, &h, 2);
}

static float random_float(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(int32_t)(*state >> 8) * 0x1p-23f - 1.0f;
}

/* ---- a product and its memory
 * ------------------------------------------------------------------------------------------ */

typedef struct product {
    an_gemm_spec s;
    int64_t a_size, b_size, c_size; /* elements, gaps included; c with GUARD on both sides */
    uint8_t *a, *b, *c, *expected;
    float *out; /* what an epilogue stored, [batch * m][n] */
    uint8_t *seen;
    int64_t rows;
} product;

static size_t size_of(uint8_t dtype)
{
    return dtype == AN_F32 ? 4 : 2;
}

static int64_t offset(const an_gemm_spec *s, const int64_t strides[3], int64_t member)
{
    if (member == 0) return 0; /* also of an empty batch */
    const int64_t i2 = member % s->nb[2], i1 = member / s->nb[2] % s->nb[1], i0 = member / s->nb[2] / s->nb[1];
    return i0 * strides[0] + i1 * strides[1] + i2 * strides[2];
}

/* Strides of an operand [rows][columns] and the elements a member takes. */
static int64_t lay(char how, int64_t rows, int64_t columns, int64_t *row, int64_t *column)
{
    *row = how == '0' ? 0 : how == 't' ? 1 : how == 's' ? 3 * columns + 1 : columns + 3;
    *column = how == 't' ? rows + 5 : how == 's' ? 3 : 1;
    if (rows == 0 || columns == 0) return 0;
    return (rows - 1) * *row + (columns - 1) * *column + 1;
}

static uint8_t *filled_with_nan(int64_t n, uint8_t dtype)
{
    uint8_t *p = malloc((size_t)AN_MAX(n, 1) * size_of(dtype));
    assert_non_null(p);
    for (int64_t i = 0; i < n; i++) put(p, dtype, i, NAN);
    return p;
}

static void spread_batch(int64_t strides[3], const int32_t nb[3], int64_t size)
{
    strides[2] = size;
    strides[1] = strides[2] * nb[2];
    strides[0] = strides[1] * nb[1] + 7;
}

static void product_open(product *p, const example *e, uint8_t mul_dtype)
{
    memset(p, 0, sizeof *p);
    an_gemm_spec *s = &p->s;
    *s = (an_gemm_spec){.m = e->m, .n = e->n, .k = e->k, .nb = {e->batch[0], e->batch[1], e->batch[2]}};
    s->a_dtype = e->a_dtype, s->b_dtype = e->b_dtype, s->c_dtype = e->c_dtype, s->mul_dtype = mul_dtype;
    s->splits = e->splits;
    int64_t a = lay(e->a, e->m, e->k, &s->a_m, &s->a_k), b = lay(e->b, e->k, e->n, &s->b_k, &s->b_n);
    s->c_m = e->n + (e->m % 2 ? 0 : 3);
    const int64_t batch = (int64_t)e->batch[0] * e->batch[1] * e->batch[2];
    /* of every second example members lie under each other, so that a shared B can be found */
    spread_batch(s->a_b, s->nb, e->m % 2 ? e->m * s->a_m : a + 2);
    spread_batch(s->b_b, s->nb, b);
    spread_batch(s->c_b, s->nb, e->m * s->c_m);
    if (e->b_shared) memset(s->b_b, 0, sizeof s->b_b);
    const int64_t last = AN_MAX(batch - 1, 0);
    p->a_size = offset(s, s->a_b, last) + a;
    p->b_size = offset(s, s->b_b, last) + b;
    p->c_size = offset(s, s->c_b, last) + e->m * s->c_m + 2 * GUARD;
    p->rows = batch * e->m;
    p->a = filled_with_nan(p->a_size, s->a_dtype);
    p->b = filled_with_nan(p->b_size, s->b_dtype);
    p->c = filled_with_nan(p->c_size, s->c_dtype);
    p->expected = filled_with_nan(p->c_size, s->c_dtype);
    p->out = calloc((size_t)AN_MAX(p->rows * e->n, 1), 4);
    p->seen = calloc((size_t)AN_MAX(p->rows * e->n, 1), 1);
    assert_true(p->out && p->seen);
    uint32_t state = 12345;
    for (int64_t z = 0; z < batch; z++) {
        const int64_t a0 = offset(s, s->a_b, z), b0 = offset(s, s->b_b, z);
        for (int64_t k = 0; k < s->k; k++) {
            for (int64_t i = 0; i < s->m; i++)
                put(p->a, s->a_dtype, a0 + i * s->a_m + k * s->a_k, random_float(&state));
            for (int64_t j = 0; j < s->n; j++)
                put(p->b, s->b_dtype, b0 + k * s->b_k + j * s->b_n, random_float(&state));
        }
    }
}

static void product_close(product *p)
{
    free(p->a);
    free(p->b);
    free(p->c);
    free(p->expected);
    free(p->out);
    free(p->seen);
}

static float round_operand(float x, uint8_t mul_dtype)
{
    return mul_dtype == AN_BF16 ? float_of((uint32_t)to_bf16(x) << 16) : x;
}

/* Element (i, j) of member z, by definition. bf16: of each pair of a chain the odd k is added first, as the instruction
 * does it; with tiles, of 16 pairs at a time the even and the odd k are summed apart, and then added to the chain.
 * *error: how far any order of bf16 additions may be from the exact sum. */
static float naive(const product *p, int64_t z, int64_t i, int64_t j, bool tiles, double *exact, double *error)
{
    const an_gemm_spec *s = &p->s;
    const int64_t a = offset(s, s->a_b, z) + i * s->a_m, b = offset(s, s->b_b, z) + j * s->b_n;
    const int64_t splits = AN_MAX(s->splits, 1), length = (s->k + splits - 1) / splits;
    float total = 0;
    double size = 0;
    *exact = 0;
    for (int64_t split = 0; split < splits; split++) {
        float sum = 0, half[2] = {0, 0};
        const int64_t begin = AN_MIN(split * length, s->k), n = AN_MIN(length, s->k - begin);
        for (int64_t step = 0; step < n + n % 2; step++) {
            const int64_t k = begin + (s->mul_dtype == AN_BF16 ? step ^ 1 : step);
            const bool there = k < begin + n;
            const float x = there ? round_operand(get(p->a, s->a_dtype, a + k * s->a_k), s->mul_dtype) : 0;
            const float y = there ? round_operand(get(p->b, s->b_dtype, b + k * s->b_k), s->mul_dtype) : 0;
            if (tiles)
                half[(k - begin) % 2] += x * y; /* exact but for the addition: 8 bits times 8 */
            else if (there)
                sum = fmaf(x, y, sum);
            if (tiles && (step % 32 == 31 || step + 1 == n + n % 2)) {
                sum += half[0] + half[1];
                half[0] = half[1] = 0;
            }
            *exact += (double)x * y;
            size += fabs((double)x * y);
        }
        total = split == 0 ? sum : total + sum;
    }
    *error = size * (double)(s->k + splits) * 0x1p-23;
    return total;
}

static void expect(product *p, uint32_t old_seed, bool tiles)
{
    const an_gemm_spec *s = &p->s;
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t j = 0; j < s->n; j++) {
            const int64_t at = GUARD + offset(s, s->c_b, r / s->m) + r % s->m * s->c_m + j;
            const float old = random_float(&old_seed);
            double exact, error;
            float sum = naive(p, r / s->m, r % s->m, j, tiles, &exact, &error);
            assert_true(fabs((double)sum - exact) <= error);
            p->out[r * s->n + j] = sum;
            put(p->c, s->c_dtype, at, old);
            put(p->expected, s->c_dtype, at, sum);
        }
}

static void tally(const an_tile *t, void *user)
{
    product *p = user;
    for (int64_t r = t->row0; r < t->row1; r++)
        for (int64_t j = t->col0; j < t->col1; j++) {
            float *sum = &t->acc[(r - t->row0) * t->ld + j - t->col0];
            if (r < p->rows && j < p->s.n && bits_of(*sum) == bits_of(p->out[r * p->s.n + j]))
                p->seen[r * p->s.n + j]++;
            *sum = NAN; /* it may be overwritten */
        }
    if (t->row0 / p->s.m != (t->row1 - 1) / p->s.m && p->s.b_b[2] != 0)
        p->seen[0] = 99; /* across members of their own */
}

static void run(const an_cpu_kernels *isa, product *p, bool epilogue, int pool)
{
    const size_t scratch_bytes = isa->gemm_scratch(&p->s, THREADS[pool]);
    uint8_t *memory = aligned_alloc(64, (scratch_bytes + 2 * GUARD + 63) / 64 * 64), *scratch = memory + GUARD;
    assert_non_null(memory);
    memset(memory, 0xff, scratch_bytes + 2 * GUARD); /* NaN */
    uint8_t *c = epilogue ? NULL : p->c + GUARD * size_of(p->s.c_dtype);
    void *const args[] = {p->a, p->b, c};
    const int64_t row = p->s.n * 4; /* the first array is asked for as if it held bf16 */
    const an_epilogue epi = {tally, p, 2, {{(uintptr_t)p->out, row / 2, 2}, {(uintptr_t)p->out, row, 4}}};
    isa->gemm(&p->s, args, scratch, epilogue ? &epi : NULL, pools[pool]);
    for (int i = 0; i < GUARD; i++) assert_true(memory[i] == 0xff && scratch[scratch_bytes + (size_t)i] == 0xff);
    free(memory);
}

static void same_bytes(const product *p)
{
    const size_t size = size_of(p->s.c_dtype);
    for (int64_t i = 0; i < p->c_size; i++)
        if (memcmp(p->c + (size_t)i * size, p->expected + (size_t)i * size, size))
            fail_msg("C, element %lld of %lld: %a instead of %a", (long long)(i - GUARD),
                     (long long)p->c_size - 2 * GUARD, (double)get(p->c, p->s.c_dtype, i),
                     (double)get(p->expected, p->s.c_dtype, i));
}

static bool on_tiles(const an_cpu_kernels *t)
{
    return strncmp(t->isa, "amx", 3) == 0;
}

static void check_examples(uint8_t mul_dtype, bool tiles)
{
    int n_sets;
    const an_cpu_kernels *const *sets = an_cpu_kernels_all(&n_sets);
    for (size_t i = 0; i < AN_COUNT(EXAMPLES); i++) {
        const example *e = &EXAMPLES[i];
        product p;
        product_open(&p, e, mul_dtype);
        expect(&p, 99, tiles);
        uint8_t *old = malloc((size_t)p.c_size * size_of(e->c_dtype));
        assert_non_null(old);
        memcpy(old, p.c, (size_t)p.c_size * size_of(e->c_dtype));
        for (int set = 0; set < n_sets; set++) {
            if (!an_cpu_kernels_find(sets[set]->isa)) continue;
            if (mul_dtype == AN_BF16 && on_tiles(sets[set]) != tiles) continue;
            for (int pool = 0; pool < POOLS; pool++) {
                memcpy(p.c, old, (size_t)p.c_size * size_of(e->c_dtype));
                memset(p.seen, 0, (size_t)(p.rows * e->n));
                run(sets[set], &p, e->epilogue, pool);
                if (!e->epilogue) same_bytes(&p);
                for (int64_t x = 0; e->epilogue && x < p.rows * e->n; x++)
                    if (p.seen[x] != 1)
                        fail_msg("example %zu, %s, %d threads: element %lld right %d times", i, sets[set]->isa,
                                 THREADS[pool], (long long)x, p.seen[x]);
            }
        }
        free(old);
        product_close(&p);
    }
}

/* ---- tests
 * ------------------------------------------------------------------------------------------------------------ */

static void an_f32_product_is_one_chain_on_every_instruction_set(void **state)
{
    (void)state;
    check_examples(AN_F32, false);
}

static void a_bf16_product_adds_the_odd_k_of_a_pair_first_on_every_instruction_set(void **state)
{
    (void)state;
    check_examples(AN_BF16, false);
}

static void a_bf16_product_on_tile_registers_sums_the_halves_of_16_pairs_apart(void **state)
{
    (void)state;
    check_examples(AN_BF16, true);
}

/* One by one products: what comes out is the operand, rounded. */
static void storing_rounds_to_nearest_even_and_keeps_special_values(void **state)
{
    (void)state;
    enum { N = 37 };
    static const uint32_t WORDS[] = {0x3f808000, 0x3f818000, 0x3f808001, 0x3f817fff, 0x7f7fffff, 0x7f800000,
                                     0xff800000, 0x80000000, 0x00000001, 0x00018000, 0x477fefff, 0x477ff000,
                                     0x33000000, 0x33000001, 0x33c00000, 0x387fe000, 0x387ff000, 0x38800000,
                                     0x3f801000, 0x3f803000, 0x7fc00000};
    int n_sets;
    const an_cpu_kernels *const *sets = an_cpu_kernels_all(&n_sets);
    for (int set = 0; set < n_sets; set++) {
        if (!an_cpu_kernels_find(sets[set]->isa)) continue;
        for (int half = 0; half < 2; half++) {
            const uint8_t dtype = half ? AN_F16 : AN_BF16;
            float one = 1, b[N];
            uint16_t c[N];
            for (int i = 0; i < N; i++) b[i] = float_of(WORDS[(size_t)i % AN_COUNT(WORDS)]);
            an_gemm_spec s = {.m = 1, .n = N, .k = 1, .nb = {1, 1, 1}, .a_k = 1, .b_n = 1, .b_k = N, .c_m = N};
            s.a_dtype = AN_F32, s.b_dtype = AN_F32, s.c_dtype = dtype, s.mul_dtype = AN_F32;
            void *scratch = aligned_alloc(64, sets[set]->gemm_scratch(&s, 1));
            sets[set]->gemm(&s, (void *const[]){&one, b, c}, scratch, NULL, NULL);
            for (int i = 0; i < N; i++) {
                const float through_chain = fmaf(one, b[i], 0.0f); /* -0 becomes 0 */
                uint16_t want = 0;
                put((uint8_t *)&want, dtype, 0, through_chain);
                if (c[i] != want) fail_msg("%s: %08x became %04x, not %04x", sets[set]->isa, bits_of(b[i]), c[i], want);
            }
            free(scratch);
        }
    }
}

/* c = b, all values of float16, read in whole vectors, behind a tail, and where neither operand's elements are neighbours. */
static void read_every_half(const an_cpu_kernels *isa, int64_t apart, bool flush)
{
    enum { N = 65537 };
    const uint64_t mode = an_float_mode_set(flush);
    uint16_t *b = calloc((size_t)(N * apart), 2);
    float *c = malloc(4 * N), one = 1;
    assert_true(b && c);
    for (int64_t i = 0; i < N; i++) b[i * apart] = (uint16_t)i;
    an_gemm_spec s = {.m = 1, .n = N, .k = 1, .nb = {1, 1, 1}, .a_k = 1, .b_n = apart, .b_k = N * apart, .c_m = N};
    s.a_dtype = AN_F32, s.b_dtype = AN_F16, s.c_dtype = AN_F32, s.mul_dtype = AN_F32;
    void *scratch = aligned_alloc(64, isa->gemm_scratch(&s, 1));
    isa->gemm(&s, (void *const[]){&one, b, c}, scratch, NULL, NULL);
    an_float_mode_restore(mode);
    for (int64_t i = 0; i < N; i++) {
        const float want = from_f16((uint16_t)i);
        if (isnan(want) ? !isnan(c[i]) : c[i] != want)
            fail_msg("%s, elements %lld apart%s: %04x is read as %a, not %a", isa->isa, (long long)apart,
                     flush ? ", subnormals flushed" : "", (unsigned)i & 0xffff, (double)c[i], (double)want);
    }
    free(scratch);
    free(b);
    free(c);
}

/* Subnormals of float16 are normal numbers of float32: exact mode, which flushes those of float32, keeps them. */
static void every_half_is_read_exactly_and_so_in_exact_mode(void **state)
{
    (void)state;
    int n_sets;
    const an_cpu_kernels *const *sets = an_cpu_kernels_all(&n_sets);
    for (int set = 0; set < n_sets; set++)
        for (int way = 0; an_cpu_kernels_find(sets[set]->isa) && way < 4; way++)
            read_every_half(sets[set], 1 + way / 2, way % 2);
}

static void the_best_runnable_set_is_found_and_an_unknown_one_is_not(void **state)
{
    (void)state;
    int n;
    const an_cpu_kernels *const *sets = an_cpu_kernels_all(&n);
    const an_cpu_kernels *best = an_cpu_kernels_find(NULL);
    assert_non_null(best);
    assert_ptr_equal(an_cpu_kernels_find(best->isa), best);
    assert_ptr_equal(an_cpu_kernels_find("portable"), sets[n - 2]);
    assert_null(an_cpu_kernels_find("avx3"));
    for (int i = 0; i < n && sets[i] != best; i++) assert_null(an_cpu_kernels_find(sets[i]->isa));
}

static void the_peak_is_measured_in_both_types(void **state)
{
    (void)state;
    const an_cpu_kernels *best = an_cpu_kernels_find(NULL);
    double f32 = 0, bf16 = 0;
    /* Other programs slow either measurement down, so the best of several counts. */
    for (int i = 0; i < 100 && !(f32 > 0.01 && bf16 > 0.5 * f32); i++) {
        f32 = best->fma_peak(pools[0], AN_F32, 0.02);
        bf16 = fmax(bf16, best->fma_peak(pools[0], AN_BF16, 0.02));
    }
    assert_true(f32 > 0.01 && f32 < 1e5);
    assert_true(bf16 > 0.5 * f32 && bf16 < 1e5);
}

static int open_pools(void **state)
{
    (void)state;
    for (int i = 0; i < POOLS; i++)
        if (an_pool_open(NULL, THREADS[i], &pools[i]) != AN_OK) return -1;
    return 0;
}

static int close_pools(void **state)
{
    (void)state;
    for (int i = 0; i < POOLS; i++) an_pool_close(pools[i]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_f32_product_is_one_chain_on_every_instruction_set),
        cmocka_unit_test(a_bf16_product_adds_the_odd_k_of_a_pair_first_on_every_instruction_set),
        cmocka_unit_test(a_bf16_product_on_tile_registers_sums_the_halves_of_16_pairs_apart),
        cmocka_unit_test(storing_rounds_to_nearest_even_and_keeps_special_values),
        cmocka_unit_test(every_half_is_read_exactly_and_so_in_exact_mode),
        cmocka_unit_test(the_best_runnable_set_is_found_and_an_unknown_one_is_not),
        cmocka_unit_test(the_peak_is_measured_in_both_types),
    };
    return cmocka_run_group_tests(tests, open_pools, close_pools);
}
