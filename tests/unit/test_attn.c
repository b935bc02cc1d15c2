/* test_attn.c: the attention kernels of every instruction set this machine runs, against plain loops in double
 * precision, against each other bit for bit, and over thread counts; no write outside the views, the scratch or lse. */
#include "base/base.h"
#include "platform/thread_pool.h"
#include "base/rng.h"
#include "kernels/cpu_kernels.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "attn_shapes.h"

enum { GUARD_BYTES = 256, Q = 0, K, V, O, G, DQ, DK, DV, N_VIEWS };
static const uint8_t POISON = 0xa5;
static const uint64_t PINNED_BITS = 0x54bf4f6ac41af6dbu;

static bool on_tiles(const an_cpu_kernels *t)
{
    return strncmp(t->isa, "amx", 3) == 0;
}

/* ---- buffers --------------------------------------------------------------------------------------------------- */

static uint32_t random_word(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static float random_value(uint32_t *state)
{
    float x = 0;
    for (int i = 0; i < 4; i++) x += (float)random_word(state) * 0x1p-24f - 0.5f;
    return x * 1.7f;
}

static void *checked_alloc(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    assert_non_null(p);
    return p;
}

typedef struct buffer {
    uint8_t *base;
    size_t bytes; /* with a guard zone on each side */
} buffer;

static buffer buffer_new(size_t bytes)
{
    size_t whole = (bytes + 63) / 64 * 64 + 2 * GUARD_BYTES;
    buffer b = {aligned_alloc(64, whole), whole};
    assert_non_null(b.base);
    memset(b.base, POISON, whole);
    return b;
}

static void *buffer_data(const buffer *b)
{
    return b->base + GUARD_BYTES;
}

static void expect_guards(const buffer *b, size_t data_bytes)
{
    for (size_t i = 0; i < GUARD_BYTES; i++) assert_int_equal(b->base[i], POISON);
    for (size_t i = GUARD_BYTES + data_bytes; i < b->bytes; i++) assert_int_equal(b->base[i], POISON);
}

/* A call's memory: the views in order Q K V O G DQ DK DV, lse, and the double twins of the inputs. */
typedef struct fixture {
    shape s;
    an_attn_spec spec;
    buffer memory[N_VIEWS]; /* Q K V share one unless apart, and so do DQ DK DV */
    size_t memory_bytes[N_VIEWS];
    uint8_t *view[N_VIEWS];
    int64_t *stride[N_VIEWS];
    buffer lse, mask;
    uint32_t rng[2];
    int32_t n_keys;
    int item;
} fixture;

static bool is_of_keys(int v)
{
    return v == K || v == V || v == DK || v == DV;
}

static int view_rows(const fixture *f, int v)
{
    return is_of_keys(v) ? f->s.S : f->s.T;
}

static int view_heads(const fixture *f, int v)
{
    return is_of_keys(v) ? f->s.H / an_attn_group(&f->spec) : f->s.H;
}

static size_t view_at(const fixture *f, int v, int b, int h, int t, int d)
{
    const int64_t *s = f->stride[v];
    return (size_t)(b * s[0] + h * s[1] + t * s[2] + d) * (size_t)f->item;
}

static double view_get(const fixture *f, int v, int b, int h, int t, int d)
{
    const uint8_t *p = f->view[v] + view_at(f, v, b, h, t, d);
    if (f->item == 4) {
        float x;
        memcpy(&x, p, 4);
        return x;
    }
    uint16_t half;
    memcpy(&half, p, 2);
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static void view_set(const fixture *f, int v, int b, int h, int t, int d, float x)
{
    uint8_t *p = f->view[v] + view_at(f, v, b, h, t, d);
    uint32_t bits;
    memcpy(&bits, &x, 4);
    uint16_t half = (uint16_t)(bits >> 16);
    memcpy(p, f->item == 4 ? (const void *)&x : (const void *)&half, (size_t)f->item);
}

static void lay_out(fixture *f)
{
    const shape *s = &f->s;
    for (int v = 0; v < N_VIEWS; v++) {
        const int rows = view_rows(f, v), C = view_heads(f, v) * s->D;
        const bool fused = !s->apart && v != O && v != G && s->T == s->S && s->group <= 1;
        if (!fused) {
            int64_t t = C + (s->apart ? 3 + v : 0), b = t * rows + (s->apart ? 5 : 0);
            memcpy(f->stride[v], (int64_t[3]){b, s->D, t}, sizeof(int64_t[3]));
            f->memory_bytes[v] = (size_t)(b * s->B * f->item);
            f->memory[v] = buffer_new(f->memory_bytes[v]);
            f->view[v] = buffer_data(&f->memory[v]);
            continue;
        }
        const int first = v < O ? Q : DQ;
        memcpy(f->stride[v], (int64_t[3]){(int64_t)rows * 3 * C, s->D, 3 * C}, sizeof(int64_t[3]));
        if (v == first) {
            f->memory_bytes[v] = (size_t)(s->B * rows * 3 * C * f->item);
            f->memory[v] = buffer_new(f->memory_bytes[v]);
        }
        f->view[v] = (uint8_t *)buffer_data(&f->memory[first]) + (v - first) * C * f->item;
    }
}

static size_t lse_bytes(const shape *s)
{
    return sizeof(float) * (size_t)(s->B * s->H * s->T) * (s->mask ? 2 : 1);
}

/* A mask of the axes it has, two elements apart where it has no last one: numbers, -inf, numbers beside which scores vanish, whole rows of
 * each of them. */
static void fill_mask(fixture *f)
{
    static const float special[] = {-INFINITY, -512.0f, -FLT_MAX, -0.0f, 30.0f};
    const shape *s = &f->s;
    const int extent[4] = {s->B, s->H, s->T, s->S};
    int64_t n = 1;
    uint32_t state = 99;
    for (int x = 3; x >= 0; x--) {
        const bool has = s->mask >> (3 - x) & 1;
        f->spec.mask[x] = has ? n : 0;
        if (has) n *= extent[x];
    }
    f->spec.masked = 1;
    f->mask = buffer_new(sizeof(float) * (size_t)n);
    float *mask = buffer_data(&f->mask);
    const int64_t row = s->mask & 1 ? s->S : 1;
    for (int64_t i = 0; i < n; i++) {
        const bool all = n > row && i / row % 7 < (int64_t)AN_COUNT(special); /* of 7 rows 5 are one number */
        mask[i] = all && i / row > 1        ? special[i / row % 7]
                  : random_word(&state) % 5 ? random_value(&state)
                                            : special[random_word(&state) % AN_COUNT(special)];
    }
}

static double mask_get(const fixture *f, int b, int h, int i, int j)
{
    const int64_t *x = f->spec.mask;
    return f->s.mask ? ((const float *)buffer_data(&f->mask))[b * x[0] + h * x[1] + i * x[2] + j * x[3]] : 0;
}

static void fixture_open(fixture *f, shape s)
{
    memset(f, 0, sizeof *f);
    f->s = s;
    f->item = s.bf16 ? 2 : 4;
    f->spec = (an_attn_spec){.B = s.B,
                             .H = s.H,
                             .T = s.T,
                             .S = s.S,
                             .D = s.D,
                             .group = s.group,
                             .scale = 1.0f / sqrtf((float)s.D),
                             .causal = s.causal,
                             .dtype = s.bf16 ? AN_BF16 : AN_F32,
                             .mul_dtype = s.bf16_mul ? AN_BF16 : AN_F32,
                             .dropout = s.dropout,
                             .stream = 0x51ed270bu,
                             .window = s.window};
    int64_t *strides[] = {f->spec.q, f->spec.k, f->spec.v, f->spec.o, f->spec.do_, f->spec.dq, f->spec.dk, f->spec.dv};
    memcpy(f->stride, strides, sizeof strides);
    lay_out(f);
    f->lse = buffer_new(lse_bytes(&s));
    f->rng[0] = 0xC0FFEE01u;
    f->rng[1] = s.sample0;
    f->n_keys = s.n_keys;
    uint32_t state = 12345;
    for (int v = Q; v <= G; v++)
        for (int b = 0; b < s.B && v != O; b++)
            for (int h = 0; h < view_heads(f, v); h++)
                for (int t = 0; t < view_rows(f, v); t++)
                    for (int d = 0; d < s.D; d++) view_set(f, v, b, h, t, d, random_value(&state));
    if (s.mask) fill_mask(f);
}

static void fixture_close(fixture *f)
{
    for (int v = 0; v < N_VIEWS; v++) free(f->memory[v].base);
    free(f->lse.base);
    free(f->mask.base);
}

/* Everything outside the output views still holds the poison, everything inside was written. */
static void expect_untouched(const fixture *f, int first, int last)
{
    for (int v = first; v <= last; v++) {
        if (!f->memory[v].base) continue;
        expect_guards(&f->memory[v], f->memory_bytes[v]);
        uint8_t *owned = checked_alloc(f->memory_bytes[v]);
        memset(owned, 0, f->memory_bytes[v]);
        const uint8_t *data = buffer_data(&f->memory[v]);
        for (int u = v; u <= last; u++) {
            if (u != v && f->memory[u].base) break;
            for (int b = 0; b < f->s.B; b++)
                for (int h = 0; h < view_heads(f, u); h++)
                    for (int t = 0; t < view_rows(f, u); t++)
                        memset(owned + (f->view[u] - data) + view_at(f, u, b, h, t, 0), 1, (size_t)(f->s.D * f->item));
        }
        for (size_t i = 0; i < f->memory_bytes[v]; i++)
            if (!owned[i]) assert_int_equal(data[i], POISON);
        free(owned);
    }
}

/* ---- the reference: plain loops in double ---------------------------------------------------------------------- */

typedef struct reference {
    double *o, *lse, *dq, *dk, *dv; /* [B,H,T,D], [B,H,T], ... */
} reference;

static double round_bf16(double x)
{
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    bits += 0x7fffu + ((bits >> 16) & 1u);
    bits &= 0xffff0000u;
    memcpy(&f, &bits, 4);
    return f;
}

/* h: a head of q. */
static double operand(const fixture *f, int v, int b, int h, int t, int d)
{
    double x = view_get(f, v, b, is_of_keys(v) ? h / an_attn_group(&f->spec) : h, t, d);
    return f->s.bf16_mul ? round_bf16(x) : x;
}

static int keys_in_use(const fixture *f)
{
    return f->s.n_keys < 0 ? f->s.S : AN_MIN(f->s.n_keys, f->s.S);
}

/* p [S] before dropout, keep [S] the dropout factor; returns the log of the sum of exponentials. */
static double reference_row(const fixture *f, int b, int h, int i, double *p, double *keep)
{
    const shape *s = &f->s;
    const int n = keys_in_use(f);
    double most = -INFINITY, sum = 0;
    for (int j = 0; j < s->S; j++) {
        p[j] = -INFINITY;
        keep[j] = 1;
        if (j >= n || (s->causal && j > i + n - s->T) || (s->window && j <= i + n - s->T - s->window)) continue;
        p[j] = 0;
        for (int d = 0; d < s->D; d++) p[j] += operand(f, Q, b, h, i, d) * operand(f, K, b, h, j, d);
        p[j] = p[j] * f->spec.scale + mask_get(f, b, h, i, j);
        most = fmax(most, p[j]);
        if (s->dropout > 0) {
            uint64_t index = (((uint64_t)f->rng[1] + (uint64_t)b) * (uint64_t)s->H + (uint64_t)h) * (uint64_t)s->T;
            index = (index + (uint64_t)i) * (uint64_t)((s->S + 3) / 4) + (uint64_t)j / 4; /* four keys share a number */
            bool kept = an_rng_16(f->rng[0], f->spec.stream, index, j % 4) >= (double)s->dropout * 65536;
            keep[j] = kept ? 65536 / (65536 - ceil((double)s->dropout * 65536)) : 0; /* one over how often it is kept */
        }
    }
    for (int j = 0; j < s->S; j++) sum += p[j] = p[j] == -INFINITY ? 0 : exp(p[j] - most);
    for (int j = 0; j < s->S && sum > 0; j++) p[j] /= sum;
    return sum > 0 ? most + log(sum) : -INFINITY;
}

static void reference_forward(const fixture *f, reference *r)
{
    const shape *s = &f->s;
    double *p = checked_alloc(sizeof(double) * (size_t)s->S), *keep = checked_alloc(sizeof(double) * (size_t)s->S);
    r->o = calloc((size_t)(s->B * s->H * s->T * s->D), sizeof(double));
    r->lse = calloc((size_t)(s->B * s->H * s->T), sizeof(double));
    assert_true(r->o && r->lse);
    for (int row = 0; row < s->B * s->H * s->T; row++) {
        const int i = row % s->T, h = row / s->T % s->H, b = row / s->T / s->H;
        r->lse[row] = reference_row(f, b, h, i, p, keep);
        for (int j = 0; j < s->S; j++)
            for (int d = 0; d < s->D && p[j] != 0; d++)
                r->o[row * s->D + d] += p[j] * keep[j] * operand(f, V, b, h, j, d);
    }
    free(p);
    free(keep);
}

static void reference_backward(const fixture *f, reference *r)
{
    const shape *s = &f->s;
    const int D = s->D, group = an_attn_group(&f->spec);
    double *p = checked_alloc(sizeof(double) * (size_t)s->S), *keep = checked_alloc(sizeof(double) * (size_t)s->S);
    double *dp = checked_alloc(sizeof(double) * (size_t)s->S);
    r->dq = calloc((size_t)(s->B * s->H * s->T * D), sizeof(double));
    r->dk = calloc((size_t)(s->B * s->H * s->S * D), sizeof(double));
    r->dv = calloc((size_t)(s->B * s->H * s->S * D), sizeof(double));
    assert_true(r->dq && r->dk && r->dv);
    for (int row = 0; row < s->B * s->H * s->T; row++) {
        const int i = row % s->T, h = row / s->T % s->H, b = row / s->T / s->H;
        double sum = 0;
        reference_row(f, b, h, i, p, keep);
        for (int j = 0; j < s->S; j++) {
            dp[j] = 0;
            for (int d = 0; d < D; d++) dp[j] += operand(f, G, b, h, i, d) * operand(f, V, b, h, j, d);
            dp[j] *= keep[j];
            sum += p[j] * dp[j];
        }
        for (int j = 0; j < s->S; j++) {
            const double ds = p[j] * (dp[j] - sum) * f->spec.scale;
            const int key = ((b * s->H + h) / group * s->S + j) * D; /* the group divides H */
            double *dk = r->dk + key, *dv = r->dv + key;
            for (int d = 0; d < D; d++) {
                r->dq[row * D + d] += ds * operand(f, K, b, h, j, d);
                dk[d] += ds * operand(f, Q, b, h, i, d);
                dv[d] += p[j] * keep[j] * operand(f, G, b, h, i, d);
            }
        }
    }
    free(p);
    free(keep);
    free(dp);
}

static void reference_free(reference *r)
{
    free(r->o);
    free(r->lse);
    free(r->dq);
    free(r->dk);
    free(r->dv);
}

/* ---- running and comparing ------------------------------------------------------------------------------------- */

static void run_forward(fixture *f, const an_cpu_kernels *t, an_pool *pool)
{
    const size_t bytes = t->attn_scratch(&f->spec, false, an_pool_threads(pool));
    buffer scratch = buffer_new(bytes);
    memset(f->memory[O].base, POISON, f->memory[O].bytes);
    memset(f->lse.base, POISON, f->lse.bytes);
    void *args[] = {f->view[Q],
                    f->view[K],
                    f->view[V],
                    f->s.dropout > 0 ? f->rng : NULL,
                    f->view[O],
                    buffer_data(&f->lse),
                    f->s.n_keys < 0 ? NULL : &f->n_keys,
                    f->s.mask ? buffer_data(&f->mask) : NULL};
    t->attn_forward(&f->spec, args, NULL, buffer_data(&scratch), pool);
    expect_guards(&scratch, bytes);
    free(scratch.base);
}

static void run_backward(fixture *f, const an_cpu_kernels *t, an_pool *pool)
{
    const size_t bytes = t->attn_scratch(&f->spec, true, an_pool_threads(pool));
    buffer scratch = buffer_new(bytes);
    for (int v = DQ; v <= DV; v++)
        if (f->memory[v].base) memset(f->memory[v].base, POISON, f->memory[v].bytes);
    void *args[] = {f->view[Q],
                    f->view[K],
                    f->view[V],
                    f->view[O],
                    buffer_data(&f->lse),
                    f->view[G],
                    f->s.dropout > 0 ? f->rng : NULL,
                    f->view[DQ],
                    f->view[DK],
                    f->view[DV],
                    f->s.mask ? buffer_data(&f->mask) : NULL};
    t->attn_backward(&f->spec, args, NULL, buffer_data(&scratch), pool);
    expect_guards(&scratch, bytes);
    free(scratch.base);
}

/* Largest difference over the largest magnitude of the whole tensor (inputs are near 1; gradients can be all zero). */
static double view_error(const fixture *f, int v, const double *expected)
{
    double worst = 0, size = 0.05;
    const int rows = view_rows(f, v), heads = view_heads(f, v), D = f->s.D;
    for (int at = 0; at < f->s.B * heads * rows; at++)
        for (int d = 0; d < D; d++) {
            const double got = view_get(f, v, at / rows / heads, at / rows % heads, at % rows, d);
            const double e = fabs(got - expected[at * D + d]);
            worst = e > worst || isnan(e) ? e : worst;
            size = fmax(size, fabs(expected[at * D + d]));
        }
    return worst / size;
}

static double lse_error(const fixture *f, const double *expected)
{
    double worst = 0;
    const float *lse = buffer_data(&f->lse);
    for (int i = 0; i < f->s.B * f->s.H * f->s.T; i++) {
        const int T = f->s.T, most = i / T * 2 * T + i % T;
        if (expected[i] == -INFINITY && (f->s.mask ? lse[most] == -FLT_MAX && lse[most + T] == 0 : lse[i] == -INFINITY))
            continue;
        const double got = f->s.mask ? (double)lse[most] + lse[most + T] : lse[i];
        const double e = fabs(got - expected[i]) / fmax(1, f->s.mask ? fabs(expected[i]) : 1);
        worst = e > worst || isnan(e) ? e : worst;
    }
    return worst;
}

static void expect_below(double error, double bound, const char *what, const char *isa, size_t shape_at)
{
    if (!(error <= bound)) fail_msg("%s, %s, shape %zu: error %.3g, allowed %.3g", what, isa, shape_at, error, bound);
}

static double bound_of(const shape *s, double f32)
{
    if (s->mask && !s->bf16) f32 = 1e-4;                  /* beside -512 a float32 has steps of 6e-5 */
    return s->bf16_mul ? 1.2e-2 : s->bf16 ? 4.5e-3 : f32; /* bf16 has 8 bits: half a unit is 2^-9 */
}

static void forward_agrees_with_loops_in_double(void **state)
{
    (void)state;
    int n = 0;
    const an_cpu_kernels *const *sets = an_cpu_kernels_all(&n);
    for (size_t at = 0; at < ALL_SHAPES; at++) {
        fixture f;
        reference r = {0};
        fixture_open(&f, *shape_at(at));
        reference_forward(&f, &r);
        for (int i = 0; i < n; i++) {
            if (!an_cpu_kernels_find(sets[i]->isa)) continue;
            run_forward(&f, sets[i], NULL);
            expect_below(view_error(&f, O, r.o), bound_of(&f.s, 2e-6), "o", sets[i]->isa, at);
            expect_below(lse_error(&f, r.lse), f.s.bf16_mul ? 1e-2 : f.s.mask ? 1e-5 : 2e-6, "lse", sets[i]->isa, at);
            expect_untouched(&f, O, O);
            expect_guards(&f.lse, lse_bytes(&f.s));
        }
        reference_free(&r);
        fixture_close(&f);
    }
}

static void backward_agrees_with_loops_in_double(void **state)
{
    (void)state;
    int n = 0;
    const an_cpu_kernels *const *sets = an_cpu_kernels_all(&n);
    for (size_t at = 0; at < ALL_SHAPES; at++) {
        if (shape_at(at)->n_keys >= 0) continue; /* decoding has no gradient */
        fixture f;
        reference r = {0};
        fixture_open(&f, *shape_at(at));
        reference_backward(&f, &r);
        for (int i = 0; i < n; i++) {
            if (!an_cpu_kernels_find(sets[i]->isa)) continue;
            run_forward(&f, sets[i], NULL);
            run_backward(&f, sets[i], NULL);
            expect_below(view_error(&f, DQ, r.dq), bound_of(&f.s, 4e-6), "dq", sets[i]->isa, at);
            expect_below(view_error(&f, DK, r.dk), bound_of(&f.s, 4e-6), "dk", sets[i]->isa, at);
            expect_below(view_error(&f, DV, r.dv), bound_of(&f.s, 4e-6), "dv", sets[i]->isa, at);
            expect_untouched(&f, DQ, DV);
        }
        reference_free(&r);
        fixture_close(&f);
    }
}

/* Grouped heads beside the same with k and v repeated: o, lse and dq have its bits; dk and dv are one sum of what it sums head by head. */
static void grouped_heads_give_the_bits_of_repeated_ones(void **state)
{
    (void)state;
    int n = 0;
    const an_cpu_kernels *const *sets = an_cpu_kernels_all(&n);
    for (size_t at = PLAIN_SHAPES; at < ALL_SHAPES; at++) {
        shape s = *shape_at(at);
        if (s.group <= 1) continue;
        fixture f, g;
        fixture_open(&f, s);
        s.group = 0, s.apart = true;
        fixture_open(&g, s);
        for (int v = Q; v <= G; v++)
            for (int i = 0; i < s.B * s.H * view_rows(&g, v) * s.D && v != O; i++) {
                const int d = i % s.D, t = i / s.D % view_rows(&g, v), h = i / s.D / view_rows(&g, v) % s.H;
                const int b = i / s.D / view_rows(&g, v) / s.H;
                view_set(&g, v, b, h, t, d, (float)view_get(&f, v, b, is_of_keys(v) ? h / f.s.group : h, t, d));
            }
        for (int i = 0; i < n; i++) {
            if (!an_cpu_kernels_find(sets[i]->isa)) continue;
            run_forward(&f, sets[i], NULL), run_forward(&g, sets[i], NULL);
            if (s.n_keys < 0) run_backward(&f, sets[i], NULL), run_backward(&g, sets[i], NULL);
            assert_memory_equal(buffer_data(&f.lse), buffer_data(&g.lse), lse_bytes(&s));
            for (int k = 0; k < s.B * s.H * s.T * s.D; k++) {
                const int d = k % s.D, t = k / s.D % s.T, h = k / s.D / s.T % s.H, b = k / s.D / s.T / s.H;
                assert_true(view_get(&f, O, b, h, t, d) == view_get(&g, O, b, h, t, d));
                if (s.n_keys < 0) assert_true(view_get(&f, DQ, b, h, t, d) == view_get(&g, DQ, b, h, t, d));
            }
        }
        fixture_close(&f), fixture_close(&g);
    }
}

/* Both directions' outputs, concatenated: o, lse, dq dk dv. */
static size_t snapshot(const fixture *f, uint8_t **out)
{
    size_t bytes = f->lse.bytes, at = 0;
    for (int v = O; v < N_VIEWS; v++) bytes += f->memory[v].base ? f->memory[v].bytes : 0;
    *out = checked_alloc(bytes);
    for (int v = O; v < N_VIEWS; v++) {
        if (!f->memory[v].base) continue;
        memcpy(*out + at, f->memory[v].base, f->memory[v].bytes);
        at += f->memory[v].bytes;
    }
    memcpy(*out + at, f->lse.base, f->lse.bytes);
    return bytes;
}

static void expect_same_bits(const fixture *f, const uint8_t *first, size_t bytes, const char *isa, int threads,
                             size_t at)
{
    uint8_t *now;
    assert_int_equal(snapshot(f, &now), bytes);
    if (memcmp(first, now, bytes)) fail_msg("%s with %d threads differs on shape %zu", isa, threads, at);
    free(now);
}

static void run_both(fixture *f, const an_cpu_kernels *t, an_pool *pool)
{
    run_forward(f, t, pool);
    if (f->s.n_keys < 0) run_backward(f, t, pool);
}

static void bits_do_not_depend_on_the_number_of_threads(void **state)
{
    (void)state;
    int n = 0;
    const an_cpu_kernels *const *sets = an_cpu_kernels_all(&n);
    an_pool *pools[3] = {NULL};
    for (int i = 1; i < 3; i++) assert_int_equal(an_pool_open(NULL, i + 1, &pools[i]), AN_OK);
    for (size_t at = 0; at < ALL_SHAPES; at++) {
        fixture f;
        fixture_open(&f, *shape_at(at));
        for (int i = 0; i < n; i++) {
            if (!an_cpu_kernels_find(sets[i]->isa)) continue;
            uint8_t *first;
            run_both(&f, sets[i], NULL);
            const size_t bytes = snapshot(&f, &first);
            for (int threads = 2; threads <= 3; threads++) {
                run_both(&f, sets[i], pools[threads - 1]);
                expect_same_bits(&f, first, bytes, sets[i]->isa, threads, at);
            }
            an_pool_limit(pools[2], 1);
            run_both(&f, sets[i], pools[2]);
            expect_same_bits(&f, first, bytes, sets[i]->isa, 1, at);
            an_pool_limit(pools[2], 3);
            free(first);
        }
        fixture_close(&f);
    }
    for (int i = 1; i < 3; i++) an_pool_close(pools[i]);
}

/* All sets of vectors have one result, and in bf16 tile registers and their emulation another. */
static void bits_are_one_for_all_sets_of_a_kind(bool tiles)
{
    int n = 0;
    const an_cpu_kernels *const *sets = an_cpu_kernels_all(&n);
    for (size_t at = 0; at < ALL_SHAPES; at++) {
        fixture f;
        uint8_t *first = NULL;
        size_t bytes = 0;
        fixture_open(&f, *shape_at(at));
        for (int i = 0; i < n; i++) {
            if (!an_cpu_kernels_find(sets[i]->isa)) continue;
            if (shape_at(at)->bf16_mul && on_tiles(sets[i]) != tiles) continue;
            run_both(&f, sets[i], NULL);
            if (first)
                expect_same_bits(&f, first, bytes, sets[i]->isa, 1, at);
            else
                bytes = snapshot(&f, &first);
        }
        free(first);
        fixture_close(&f);
    }
}

static void bits_do_not_depend_on_the_instruction_set_unless_it_has_tile_registers(void **state)
{
    (void)state;
    bits_are_one_for_all_sets_of_a_kind(false);
    bits_are_one_for_all_sets_of_a_kind(true);
}

static uint64_t fnv1a(uint64_t hash, const uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ data[i]) * 0x100000001b3u;
    return hash;
}

/* What no comparison inside one process can show: x86 and Arm agree. The blocking and the order of the sums are in the
 * hash; whoever changes them on purpose changes it. */
static void f32_bits_are_the_pinned_ones_on_every_machine(void **state)
{
    (void)state;
    const an_cpu_kernels *best = an_cpu_kernels_find(NULL);
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t at = 0; at < PLAIN_SHAPES; at++) {
        if (SHAPES[at].bf16_mul) continue;
        fixture f;
        uint8_t *bits;
        fixture_open(&f, *shape_at(at));
        run_both(&f, best, NULL);
        const size_t bytes = snapshot(&f, &bits);
        hash = fnv1a(hash, bits, bytes);
        free(bits);
        fixture_close(&f);
    }
    if (hash != PINNED_BITS) fail_msg("%s: hash is 0x%016llx", best->isa, (unsigned long long)hash);
}

/* Central differences of the double forward pass: the reference of the tests above is checked against itself. */
static double weighted_output(const fixture *f)
{
    reference r = {0};
    double sum = 0;
    const int D = f->s.D;
    reference_forward(f, &r);
    for (int row = 0; row < f->s.B * f->s.H * f->s.T; row++)
        for (int d = 0; d < D; d++)
            sum += r.o[row * D + d] * view_get(f, G, row / f->s.T / f->s.H, row / f->s.T % f->s.H, row % f->s.T, d);
    reference_free(&r);
    return sum;
}

static void the_reference_gradient_agrees_with_differences(void **state)
{
    (void)state;
    fixture f;
    reference r = {0};
    fixture_open(&f, (shape){.B = 1, .H = 2, .T = 5, .S = 7, .D = 3, .causal = true, .dropout = 0.3f, .n_keys = -1});
    reference_backward(&f, &r);
    for (int v = Q; v <= V; v++) {
        const double *grad = v == Q ? r.dq : v == K ? r.dk : r.dv;
        const int rows = view_rows(&f, v);
        for (int at = 0; at < f.s.H * rows * f.s.D; at++) {
            const int d = at % f.s.D, t = at / f.s.D % rows, h = at / f.s.D / rows;
            const float x = (float)view_get(&f, v, 0, h, t, d), step = 0x1p-10f;
            const float up = x + step, down = x - step;
            view_set(&f, v, 0, h, t, d, up);
            double slope = weighted_output(&f);
            view_set(&f, v, 0, h, t, d, down);
            slope = (slope - weighted_output(&f)) / ((double)up - (double)down);
            view_set(&f, v, 0, h, t, d, x);
            assert_true(fabs(slope - grad[at]) < 1e-5);
        }
    }
    reference_free(&r);
    fixture_close(&f);
}

/* A NaN or +inf in a row's mask makes the row NaN, and its lse; other rows keep their bits. */
static void what_is_no_number_in_a_mask_stays_in_its_row(void **state)
{
    (void)state;
    int n = 0;
    const an_cpu_kernels *const *sets = an_cpu_kernels_all(&n);
    for (int i = 0; i < 2 * n; i++) {
        if (!an_cpu_kernels_find(sets[i / 2]->isa)) continue;
        fixture f, g;
        const shape s = {.B = 1, .H = 1, .T = 70, .S = 70, .D = 16, .n_keys = -1, .mask = 3};
        fixture_open(&f, s), fixture_open(&g, s);
        ((float *)buffer_data(&g.mask))[66 * 70 + 65] = i % 2 ? NAN : INFINITY;
        run_forward(&f, sets[i / 2], NULL), run_forward(&g, sets[i / 2], NULL);
        for (int t = 0; t < 70; t++) {
            const double x = view_get(&f, O, 0, 0, t, 3), y = view_get(&g, O, 0, 0, t, 3);
            assert_true(t == 66 ? isnan(y) && !isnan(x) : x == y);
        }
        fixture_close(&f), fixture_close(&g);
    }
}

static void a_query_that_sees_no_key_gives_zeros_and_minus_infinity(void **state)
{
    (void)state;
    int n = 0;
    const an_cpu_kernels *const *sets = an_cpu_kernels_all(&n);
    for (int i = 0; i < n; i++) {
        if (!an_cpu_kernels_find(sets[i]->isa)) continue;
        fixture f;
        fixture_open(&f, (shape){.B = 1, .H = 1, .T = 20, .S = 4, .D = 8, .causal = true, .n_keys = -1});
        run_both(&f, sets[i], NULL);
        for (int t = 0; t < 16; t++) {
            assert_true(((float *)buffer_data(&f.lse))[t] == -INFINITY);
            for (int d = 0; d < 8; d++)
                assert_true(view_get(&f, O, 0, 0, t, d) == 0 && view_get(&f, DQ, 0, 0, t, d) == 0);
        }
        f.n_keys = f.s.n_keys = 0;
        run_forward(&f, sets[i], NULL);
        for (int t = 0; t < 20; t++) assert_true(view_get(&f, O, 0, 0, t, 0) == 0);
        f.n_keys = f.s.n_keys = -5; /* untrusted: clamped to 0 */
        void *args[] = {f.view[Q], f.view[K], f.view[V], NULL, f.view[O], NULL, &f.n_keys};
        buffer scratch = buffer_new(sets[i]->attn_scratch(&f.spec, false, 1));
        sets[i]->attn_forward(&f.spec, args, NULL, buffer_data(&scratch), NULL);
        for (int t = 0; t < 20; t++) assert_true(view_get(&f, O, 0, 0, t, 0) == 0);
        free(scratch.base);
        fixture_close(&f);
    }
}

/* Two keys, v the unit matrix: o is the row of probabilities, and shows that they were rounded and their sum was not.
 */
static void bf16_products_round_the_probabilities_but_not_their_sum(void **state)
{
    (void)state;
    int n = 0;
    const an_cpu_kernels *const *sets = an_cpu_kernels_all(&n);
    for (int i = 0; i < 2 * n; i++) {
        if (!an_cpu_kernels_find(sets[i / 2]->isa)) continue;
        fixture f;
        fixture_open(&f,
                     (shape){.B = 1, .H = 1, .T = 1, .S = 2, .D = 2, .n_keys = -1, .bf16 = i % 2, .bf16_mul = true});
        for (int j = 0; j < 2; j++)
            for (int d = 0; d < 2; d++) {
                view_set(&f, Q, 0, 0, 0, d, d == 0);
                view_set(&f, K, 0, 0, j, d, j == 1 && d == 0 ? -1.5f : 0.0f);
                view_set(&f, V, 0, 0, j, d, j == d);
            }
        run_forward(&f, sets[i / 2], NULL);
        const double p = exp(-1.5 * f.spec.scale), o = round_bf16(p) / (1 + p), got = view_get(&f, O, 0, 0, 0, 1);
        assert_true(fabs(round_bf16(p) - p) > 1e-4); /* or this test says nothing */
        assert_true(fabs(got - (f.s.bf16 ? round_bf16(o) : o)) < 1e-6);
        fixture_close(&f);
    }
}

/* Scores of several hundred, falling and rising over the key blocks: the running maximum must carry the sums. */
static void large_scores_neither_overflow_nor_vanish(void **state)
{
    (void)state;
    int n = 0;
    const an_cpu_kernels *const *sets = an_cpu_kernels_all(&n);
    for (int i = 0; i < n; i++) {
        if (!an_cpu_kernels_find(sets[i]->isa)) continue;
        fixture f;
        reference r = {0};
        fixture_open(&f, (shape){.B = 1, .H = 1, .T = 8, .S = 200, .D = 16, .n_keys = -1});
        for (int t = 0; t < 200; t++)
            for (int d = 0; d < 16; d++) view_set(&f, K, 0, 0, t, d, (float)((t * 37) % 200 - 100));
        reference_forward(&f, &r);
        reference_backward(&f, &r);
        run_both(&f, sets[i], NULL);
        expect_below(view_error(&f, O, r.o), 1e-4, "o", sets[i]->isa, 0); /* scores of 1e3 carry an error of 1e-4 */
        expect_below(view_error(&f, DV, r.dv), 1e-4, "dv", sets[i]->isa, 0);
        reference_free(&r);
        fixture_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_gradient_agrees_with_differences),
        cmocka_unit_test(forward_agrees_with_loops_in_double),
        cmocka_unit_test(backward_agrees_with_loops_in_double),
        cmocka_unit_test(grouped_heads_give_the_bits_of_repeated_ones),
        cmocka_unit_test(bits_do_not_depend_on_the_number_of_threads),
        cmocka_unit_test(bits_do_not_depend_on_the_instruction_set_unless_it_has_tile_registers),
        cmocka_unit_test(f32_bits_are_the_pinned_ones_on_every_machine),
        cmocka_unit_test(what_is_no_number_in_a_mask_stays_in_its_row),
        cmocka_unit_test(a_query_that_sees_no_key_gives_zeros_and_minus_infinity),
        cmocka_unit_test(bf16_products_round_the_probabilities_but_not_their_sum),
        cmocka_unit_test(large_scores_neither_overflow_nor_vanish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
