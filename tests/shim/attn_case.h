/* attn_case.h: one attention problem on the host: random tensors in a storage kind, the answer in double, and how far
 * another answer is from it. Shared by the CPU shim's test and by tests/gpu/attn_check.c. Tensors are [B,T|S,H,D] seen
 * as [B,H,T|S,D]. */
#ifndef AN_ATTN_CASE_H
#define AN_ATTN_CASE_H

#include "base/rng.h"
#include "kernel_text.h"

#include <math.h>

enum { CASE_Q, CASE_K, CASE_V, CASE_O, CASE_DO, CASE_DQ, CASE_DK, CASE_DV, CASE_TENSORS };

typedef struct attn_case {
    int B, H, T, S, D, causal, n_keys; /* n_keys < 0: all of S */
    float p;                           /* dropout */
    int store;
    struct an_attn_args args;
    uint32_t rng[2];
    double *x[CASE_TENSORS]; /* values: inputs after rounding to storage, and the answer */
    double *lse;             /* [B,H,T] */
    int masked, window;
    int group;   /* heads of q for each of k and v; 0 is 1 */
    float *mask; /* [B,T,S], of all heads; NULL: none */
} attn_case;

static inline double case_uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 40) / (double)(1 << 23) - 1.0;
}

/* Through storage and back. */
static inline uint32_t case_bits(float x, int store)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return store == KIND_F32 ? u : (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
}
static inline float case_value(uint32_t bits, int store)
{
    uint32_t u = store == KIND_F32 ? bits : bits << 16;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}
static inline size_t case_item(int store)
{
    return store == KIND_F32 ? 4 : 2;
}
static inline float case_read(const void *base, size_t i, int store)
{
    return case_value(store == KIND_F32 ? ((const uint32_t *)base)[i] : ((const uint16_t *)base)[i], store);
}
static inline void case_pack(void *base, const double *x, size_t n, int store)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = case_bits((float)x[i], store);
        if (store == KIND_F32)
            ((uint32_t *)base)[i] = bits;
        else
            ((uint16_t *)base)[i] = (uint16_t)bits;
    }
}

static inline int case_is_query_side(int t)
{
    return t == CASE_Q || t == CASE_O || t == CASE_DO || t == CASE_DQ;
}
static inline int case_heads(const attn_case *c, int t)
{
    return case_is_query_side(t) || c->group < 2 ? c->H : c->H / c->group;
}
static inline size_t case_elements(const attn_case *c, int t)
{
    return (size_t)c->B * (size_t)case_heads(c, t) * (size_t)c->D * (size_t)(case_is_query_side(t) ? c->T : c->S);
}
/* h: a head of q. */
static inline size_t case_at(const attn_case *c, int t, int b, int h, int row)
{
    int rows = case_is_query_side(t) ? c->T : c->S, heads = case_heads(c, t);
    return (((size_t)b * (size_t)rows + (size_t)row) * (size_t)heads + (size_t)(h / (c->H / heads))) * (size_t)c->D;
}

static inline void case_strides(const attn_case *c, int t, an_i64 out[3])
{
    int rows = case_is_query_side(t) ? c->T : c->S;
    out[2] = (an_i64)case_heads(c, t) * c->D, out[1] = c->D, out[0] = rows * out[2];
}

static inline void case_new(attn_case *c, uint64_t seed)
{
    uint64_t state = seed;
    struct an_attn_args *a = &c->args;
    an_i64 *strides[CASE_TENSORS] = {a->q, a->k, a->v, a->o, a->do_, a->dq, a->dk, a->dv};
    a->B = c->B, a->H = c->H, a->T = c->T, a->S = c->S;
    a->scale = 1.0f / sqrtf((float)c->D), a->stream = 77u, a->has_n_keys = c->n_keys >= 0, a->window = c->window;
    a->keep_scale = an_rng_keep_scale_16(c->p), a->keep_at_least = an_rng_least_16(c->p);
    c->rng[0] = 0x1234567u, c->rng[1] = 5;
    for (int t = 0; t < CASE_TENSORS; t++) {
        size_t n = case_elements(c, t);
        case_strides(c, t, strides[t]);
        c->x[t] = calloc(n, sizeof(double));
        if (!c->x[t]) exit(1);
        for (size_t i = 0; i < n && (t < CASE_O || t == CASE_DO); i++)
            c->x[t][i] = case_value(case_bits((float)(2.0 * case_uniform(&state)), c->store), c->store);
    }
    c->lse = calloc((size_t)c->B * (size_t)c->H * (size_t)c->T, sizeof(double));
    if (!c->lse) exit(1);
    const size_t n = (size_t)c->B * (size_t)c->T * (size_t)c->S;
    c->mask = c->masked ? calloc(n, sizeof(float)) : NULL;
    for (size_t i = 0; c->mask && i < n; i++) /* every ninth row is hidden, every eleventh all but hidden */
        c->mask[i] = i / (size_t)c->S % 9 == 8     ? -INFINITY
                     : i / (size_t)c->S % 11 == 10 ? -3.4028234664e38f
                     : i % 7 == 3                  ? -INFINITY
                                                   : (float)case_uniform(&state);
    a->mask[0] = (an_i64)c->T * c->S, a->mask[1] = 0, a->mask[2] = c->S, a->mask[3] = 1;
}

static inline void case_free(attn_case *c)
{
    for (int t = 0; t < CASE_TENSORS; t++) free(c->x[t]);
    free(c->lse);
    free(c->mask);
}

static inline double case_dot(const double *x, const double *y, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

/* Probability row of one query: p before dropout, keep its factor; returns lse. */
static inline double case_row(const attn_case *c, int b, int h, int i, double *p, double *keep)
{
    int n = c->n_keys >= 0 ? c->n_keys : c->S, end = c->causal ? i + n - c->T + 1 : n;
    end = end < 0 ? 0 : end > n ? n : end;
    double most = -INFINITY, sum = 0;
    for (int j = 0; j < end; j++) {
        p[j] = -INFINITY;
        if (c->window && j <= i + n - c->T - c->window) continue;
        p[j] = (double)c->args.scale *
               case_dot(c->x[CASE_Q] + case_at(c, CASE_Q, b, h, i), c->x[CASE_K] + case_at(c, CASE_K, b, h, j), c->D);
        if (c->mask) p[j] += (double)c->mask[((size_t)b * (size_t)c->T + (size_t)i) * (size_t)c->S + (size_t)j];
        most = fmax(most, p[j]);
    }
    for (int j = 0; j < end; j++) sum += p[j] = most > -INFINITY ? exp(p[j] - most) : 0;
    for (int j = 0; j < c->S; j++) {
        const uint64_t row =
            (((uint64_t)c->rng[1] + (uint64_t)b) * (uint64_t)c->H + (uint64_t)h) * (uint64_t)c->T + (uint64_t)i;
        const uint64_t four = row * (uint64_t)((c->S + 3) / 4) + (uint64_t)j / 4;
        const int in = c->p <= 0 || an_rng_16(c->rng[0], c->args.stream, four, j % 4) >= an_rng_least_16(c->p);
        p[j] = j < end && sum > 0 ? p[j] / sum : 0;
        keep[j] = in ? 65536.0 / (65536.0 - (double)an_rng_least_16(c->p)) : 0; /* one over how often a word is kept */
    }
    return sum > 0 ? most + log(sum) : -INFINITY;
}

/* Fills the answer. Backward from o as it is stored, since that is what a backward kernel is given. */
static inline void case_solve(attn_case *c)
{
    double *p = calloc((size_t)c->S * 2 + 2, sizeof(double)), *keep = p + c->S + 1;
    if (!p) exit(1);
    for (int b = 0; b < c->B; b++)
        for (int h = 0; h < c->H; h++)
            for (int i = 0; i < c->T; i++) {
                c->lse[((size_t)b * (size_t)c->H + (size_t)h) * (size_t)c->T + (size_t)i] =
                    case_row(c, b, h, i, p, keep);
                size_t qi = case_at(c, CASE_Q, b, h, i);
                double *o = c->x[CASE_O] + qi, *g = c->x[CASE_DO] + qi, *dq = c->x[CASE_DQ] + qi, delta = 0;
                for (int j = 0; j < c->S; j++)
                    for (int d = 0; d < c->D && p[j] > 0; d++)
                        o[d] += p[j] * keep[j] * c->x[CASE_V][case_at(c, CASE_V, b, h, j) + (size_t)d];
                for (int d = 0; d < c->D; d++)
                    delta += g[d] * (double)case_value(case_bits((float)o[d], c->store), c->store);
                for (int j = 0; j < c->S; j++) {
                    if (p[j] <= 0) continue;
                    size_t kj = case_at(c, CASE_K, b, h, j);
                    double ds = p[j] * (keep[j] * case_dot(g, c->x[CASE_V] + kj, c->D) - delta) * (double)c->args.scale;
                    for (int d = 0; d < c->D; d++) {
                        dq[d] += ds * c->x[CASE_K][kj + (size_t)d];
                        c->x[CASE_DK][kj + (size_t)d] += ds * c->x[CASE_Q][qi + (size_t)d];
                        c->x[CASE_DV][kj + (size_t)d] += p[j] * keep[j] * g[d];
                    }
                }
            }
    free(p);
}

/* Largest difference over the largest value of tensor t: what a dot product's rounding error scales with. NaN counts as
 * infinite. */
static inline double case_error(const attn_case *c, int t, const void *got)
{
    double worst = 0, largest = 1e-30;
    for (size_t i = 0; i < case_elements(c, t); i++) {
        double e = fabs((double)case_read(got, i, c->store) - c->x[t][i]);
        if (!(e <= worst)) worst = isnan(e) ? INFINITY : e;
        largest = fmax(largest, fabs(c->x[t][i]));
    }
    return worst / largest;
}

#endif
