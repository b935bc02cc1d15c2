/* bench_attn.c: milliseconds and GFLOP/s of attention forward and backward for the shapes of the presets and a few others,
 * beside the peak of independent multiply-adds measured in the same minute.
 *
 *     bench_attn [isa] [seconds a row] [start of a shape's name]
 *
 * Flops are counted 4*B*H*T*S*D forward and 10*B*H*T*S*D backward, halved when causal: masked work is not counted, so
 * the part of a diagonal block above the diagonal counts as lost time. The best of interleaved rounds is kept: other programs
 * only ever make a round slower. */
#include "base/base.h"
#include "platform/platform.h"
#include "platform/thread_pool.h"
#include "kernels/cpu_kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct row {
    const char *name;
    int B, H, T, S, D;
    float dropout;
    bool decode, every; /* every key is visible: not causal */
} row;

static const row ROWS[] = {
    {"macbook", 12, 4, 64, 64, 32, 0.0f, false, false},
    {"char", 64, 6, 256, 256, 64, 0.0f, false, false},
    {"char, dropout", 64, 6, 256, 256, 64, 0.2f, false, false},
    {"gpt2s", 4, 12, 64, 64, 64, 0.0f, false, false},
    {"T=1024", 1, 12, 1024, 1024, 64, 0.0f, false, false},
    {"T=1024, dropout", 1, 12, 1024, 1024, 64, 0.2f, false, false},
    {"decode S=1024", 1, 12, 1, 1024, 64, 0.0f, true, false},
    {"trm", 8, 8, 97, 97, 16, 0.0f, false, true},
    {"vit_tiny", 8, 3, 197, 197, 64, 0.0f, false, true},
};

typedef struct call {
    an_attn_spec spec;
    uint8_t *qkv, *o, *g, *dqkv; /* [B,T,3C], [B,T,C], [B,T,C], [B,T,3C] */
    float *lse;
    uint8_t *scratch;
    uint32_t rng[2];
} call;

static void *memory(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p) {
        fprintf(stderr, "bench_attn: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    memset(p, 0, bytes);
    return p;
}

static void fill(uint8_t *p, size_t n, bool bf16)
{
    uint32_t state = 7;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        const float x = (float)(state >> 8) * 0x1p-23f - 1.0f;
        uint32_t bits;
        memcpy(&bits, &x, 4);
        if (bf16)
            ((uint16_t *)p)[i] = (uint16_t)(bits >> 16);
        else
            ((float *)p)[i] = x;
    }
}

static call call_open(const row *r, const an_cpu_kernels *t, bool bf16, int threads)
{
    const int64_t C = (int64_t)r->H * r->D, item = bf16 ? 2 : 4, T = r->T, S = r->S, rows = AN_MAX(T, S);
    const uint8_t type = bf16 ? AN_BF16 : AN_F32;
    call c = {.spec = {.B = r->B,
                       .H = r->H,
                       .T = r->T,
                       .S = r->S,
                       .D = r->D,
                       .scale = 1.0f / sqrtf((float)r->D),
                       .causal = !r->every,
                       .dtype = type,
                       .mul_dtype = type,
                       .dropout = r->dropout,
                       .stream = 17},
              .rng = {42, 0}};
    int64_t *fused[] = {c.spec.q, c.spec.k, c.spec.v, c.spec.dq, c.spec.dk, c.spec.dv};
    for (size_t i = 0; i < AN_COUNT(fused); i++) memcpy(fused[i], (int64_t[3]){rows * 3 * C, r->D, 3 * C}, 24);
    memcpy(c.spec.o, (int64_t[3]){T * C, r->D, C}, 24);
    memcpy(c.spec.do_, c.spec.o, 24);
    const size_t n = (size_t)(r->B * rows * C);
    c.qkv = memory(n * 3 * (size_t)item);
    c.dqkv = memory(n * 3 * (size_t)item);
    c.o = memory(n * (size_t)item);
    c.g = memory(n * (size_t)item);
    c.lse = memory(sizeof(float) * (size_t)(r->B * r->H * T));
    fill(c.qkv, n * 3, bf16);
    fill(c.g, n, bf16);
    c.scratch = memory(AN_MAX(t->attn_scratch(&c.spec, false, threads), t->attn_scratch(&c.spec, true, threads)));
    return c;
}

static void call_close(call *c)
{
    free(c->qkv);
    free(c->dqkv);
    free(c->o);
    free(c->g);
    free(c->lse);
    free(c->scratch);
}

/* Seconds of one call. */
static double run(const call *c, const an_cpu_kernels *t, an_pool *p, bool backward)
{
    const size_t C = (size_t)(c->spec.H * c->spec.D) * (c->spec.dtype == AN_F32 ? 4 : 2);
    uint8_t *q = c->qkv, *d = c->dqkv;
    void *rng = c->spec.dropout > 0 ? (void *)c->rng : NULL;
    void *forward_args[] = {q, q + C, q + 2 * C, rng, c->o, c->lse, NULL};
    void *backward_args[] = {q, q + C, q + 2 * C, c->o, c->lse, c->g, rng, d, d + C, d + 2 * C};
    const double start = an_seconds();
    if (backward)
        t->attn_backward(&c->spec, backward_args, NULL, c->scratch, p);
    else
        t->attn_forward(&c->spec, forward_args, NULL, c->scratch, p);
    return an_seconds() - start;
}

static void bench(const row *r, const an_cpu_kernels *t, bool bf16, an_pool *p, double seconds)
{
    call c = call_open(r, t, bf16, an_pool_threads(p));
    double best[2] = {1e9, 1e9}, peak = 0;
    const double end = an_seconds() + seconds;
    do {
        peak = fmax(peak, t->fma_peak(p, c.spec.mul_dtype, 0.005));
        for (int i = 0; i < 4; i++)
            for (int back = 0; back < (r->decode ? 1 : 2); back++) best[back] = fmin(best[back], run(&c, t, p, back));
    } while (an_seconds() < end);
    const double flops = 4.0 * r->B * r->H * r->T * (double)r->S * r->D * (r->decode || r->every ? 1 : 0.5) * 1e-9;
    printf("%-16s %-4s %d | %9.3f ms %7.1f GF/s %3.0f %%", r->name, bf16 ? "bf16" : "f32", an_pool_threads(p),
           best[0] * 1e3, flops / best[0], 100 * flops / best[0] / peak);
    if (!r->decode)
        printf(" | %9.3f ms %7.1f GF/s %3.0f %% | both %3.0f %%", best[1] * 1e3, 2.5 * flops / best[1],
               250 * flops / best[1] / peak, 350 * flops / (best[0] + best[1]) / peak);
    printf(" | peak %.0f\n", peak);
    fflush(stdout);
    call_close(&c);
}

int main(int argc, char **argv)
{
    const an_cpu_kernels *t = an_cpu_kernels_find(argc > 1 ? argv[1] : NULL);
    const double seconds = argc > 2 ? atof(argv[2]) : 0.3;
    const char *only = argc > 3 ? argv[3] : "";
    if (!t) {
        fprintf(stderr, "bench_attn: instruction set %s does not run here\n", argv[1]);
        return 1;
    }
    printf("%s\nshape            type threads | forward | backward\n", t->isa);
    for (int threads = 1; threads <= 2; threads++) {
        an_pool *p;
        an_err err = {0};
        if (an_pool_open(&err, threads, &p) != AN_OK) {
            fprintf(stderr, "bench_attn: %s\n", err.text);
            return 1;
        }
        for (size_t i = 0; i < AN_COUNT(ROWS); i++)
            for (int bf16 = 0; bf16 < 2; bf16++)
                if (!strncmp(ROWS[i].name, only, strlen(only))) bench(&ROWS[i], t, bf16, p, seconds);
        an_pool_close(p);
    }
    return 0;
}
