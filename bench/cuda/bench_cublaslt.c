/* bench_cublaslt.c: times the GEMMs of a training step by cuBLASLt with every algorithm that its heuristic returns, because
 * the first is not always the fastest. The choice in src/device/cuda/gemm_cublaslt.c is based on this table.
 *
 *     build/bench/cuda/bench_cublaslt [tf32] [odd]
 *
 * odd: GEMMs whose rows in memory are no multiple of 16 bytes, each as it is and with every such extent padded. A `p` behind
 * the operands marks the latter, `z` an A that all GEMMs of a batch share.
 *
 * A line per GEMM: m x n x k, the operands that are contiguous along k, then the microseconds of each algorithm in the
 * heuristic's order (with its waves), the fastest marked. Operands are random: zeros would be faster. */
#include "bench_library.h"

#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHOICES = 16, REPEATS = 12, ROUNDS = 3, WORKSPACE = 32 << 20 };

typedef struct gemm {
    const char *what;
    int64_t m, n, k;
    bool a_along_k, b_along_k, f32; /* f32: of the result */
    int32_t batches;                /* 0: one */
    bool shared, padded;            /* A is that of all GEMMs of the batch; extents are padded */
} gemm;

/* n elements, of which a part of PART is repeated: drawing takes longer than copying. */
static cu_pointer filled(size_t n, bool f32)
{
    enum { PART = 1 << 24 };
    const size_t bytes = n * (f32 ? 4 : 2), part = (size_t)PART * (f32 ? 4 : 2);
    uint8_t *host = malloc(part);
    cu_pointer p;
    if (!host) die("no memory", 0);
    for (size_t i = 0; i < PART; i++) {
        const float x = (float)(an_rng_u32(1, 2, i) % 2001) * 1e-3f - 1;
        memcpy(host + i * (f32 ? 4 : 2), (const uint8_t *)&x + (f32 ? 0 : 2), f32 ? 4 : 2);
    }
    ok(cu.memory_new(&p, bytes), "cuMemAlloc");
    for (size_t at = 0; at < bytes; at += part)
        ok(cu.to_device(p + at, host, bytes - at < part ? bytes - at : part, stream), "cuMemcpyHtoD");
    ok(cu.stream_wait(stream), "cuStreamSynchronize");
    free(host);
    return p;
}

static float microseconds(const lt_choice *c, lt_desc desc, const cu_pointer *at, lt_layout *l)
{
    const float one = 1, zero = 0;
    float ms = 0;
    for (int i = -2; i <= REPEATS; i++) {
        if (i == 0 || i == REPEATS) ok(cu.event_record(event[i != 0], stream, 0), "cuEventRecord");
        if (i == REPEATS) break;
        ok(lt.matmul(handle, desc, &one, at[1], l[1], at[0], l[0], &zero, at[2], l[2], at[2], l[2], &c->algo, at[3],
                     WORKSPACE, stream),
           "cublasLtMatmul");
    }
    ok(cu.stream_wait(stream), "cuStreamSynchronize");
    ok(cu.event_ms(&ms, event[0], event[1]), "cuEventElapsedTime");
    return 1e3f * ms / REPEATS;
}

static void run(const gemm *p, bool tf32, const cu_pointer *memory)
{
    /* the library's matrices are column-major: its left operand is our B */
    const int32_t left = p->b_along_k ? LT_OP_T : LT_OP_N, right = p->a_along_k ? LT_OP_N : LT_OP_T;
    const int type = tf32 ? LT_F32 : LT_BF16;
    const uint64_t workspace = WORKSPACE;
    lt_desc desc;
    lt_layout l[3];
    lt_preference preference;
    static lt_choice choice[CHOICES];
    float best[CHOICES];
    int got = 0, first = 0;
    ok(lt.desc_new(&desc, tf32 ? LT_COMPUTE_TF32 : LT_COMPUTE_F32, LT_F32), "description");
    ok(lt.desc_set(desc, LT_DESC_TRANSA, &left, sizeof left), "transposition");
    ok(lt.desc_set(desc, LT_DESC_TRANSB, &right, sizeof right), "transposition");
    const int64_t m = p->m, n = p->n, k = p->k;
    ok(lt.layout_new(&l[0], type, (uint64_t)(p->a_along_k ? k : m), (uint64_t)(p->a_along_k ? m : k),
                     p->a_along_k ? k : m),
       "layout");
    ok(lt.layout_new(&l[1], type, (uint64_t)(p->b_along_k ? k : n), (uint64_t)(p->b_along_k ? n : k),
                     p->b_along_k ? k : n),
       "layout");
    ok(lt.layout_new(&l[2], p->f32 || tf32 ? LT_F32 : LT_BF16, (uint64_t)n, (uint64_t)m, n), "layout");
    const int64_t apart[3] = {p->shared ? 0 : m * k, k * n, m * n};
    for (int i = 0; i < 3 && p->batches > 1; i++) {
        ok(lt.layout_set(l[i], LT_LAYOUT_BATCHES, &p->batches, sizeof p->batches), "batch");
        ok(lt.layout_set(l[i], LT_LAYOUT_BATCH_STRIDE, &apart[i], sizeof apart[i]), "stride");
    }
    ok(lt.preference_new(&preference), "preference");
    ok(lt.preference_set(preference, LT_PREF_WORKSPACE, &workspace, sizeof workspace), "workspace");
    ok(lt.heuristic(handle, desc, l[1], l[0], l[2], l[2], preference, CHOICES, choice, &got), "heuristic");
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < got; i++) {
            const float us = choice[i].state ? 1e9f : microseconds(&choice[i], desc, memory, l);
            if (!round || us < best[i]) best[i] = us;
            if (best[i] < best[first]) first = i;
        }
    printf("%-16s %3d x %6lld x %5lld x %5lld %s%s%s%s%s %5.0f TFLOP/s, first choice %4.2f of it:", p->what,
           p->batches ? p->batches : 1, (long long)m, (long long)n, (long long)k, p->a_along_k ? "a" : "-",
           p->b_along_k ? "b" : "-", p->shared ? "z" : "-", p->padded ? "p" : "-", p->f32 ? " f32" : "    ",
           2e-6 * (p->batches ? p->batches : 1) * (double)m * (double)n * (double)k / (double)best[first],
           (double)(best[first] / best[0]));
    for (int i = 0; i < got; i++)
        printf(" %s%.1f(%.1f%s)", i == first ? "*" : "", (double)best[i], (double)choice[i].waves,
               choice[i].workspace_bytes ? "w" : "");
    printf("\n");
    lt.preference_free(preference);
    for (int i = 0; i < 3; i++) lt.layout_free(l[i]);
    lt.desc_free(desc);
}

/* Forward, gradient of the input, gradient of the weights: y[m,n] = x[m,k] W[n,k]^T. */
static void layer(const char *what, int64_t m, int64_t n, int64_t k, bool tf32, const cu_pointer *memory)
{
    char name[3][32];
    static const char *const part[3] = {"", " dx", " dw"};
    for (int i = 0; i < 3; i++) snprintf(name[i], sizeof name[i], "%s%s", what, part[i]);
    const gemm p[3] = {{name[0], m, n, k, true, true, false, 0, false, false},
                       {name[1], m, k, n, true, false, false, 0, false, false},
                       {name[2], n, k, m, false, false, true, 0, false, false}};
    for (int i = 0; i < 3; i++) run(&p[i], tf32, memory);
}

static int64_t padded(int64_t extent, bool tf32)
{
    const int64_t to = tf32 ? 4 : 8;
    return (extent + to - 1) / to * to;
}

/* A GEMM as it is, then padded in what lies along a row of an operand or of the result. */
static void odd(gemm p, bool tf32, const cu_pointer *memory)
{
    run(&p, tf32, memory);
    p.padded = true;
    if (!p.a_along_k) p.m = padded(p.m, tf32);
    p.n = padded(p.n, tf32);
    if (p.a_along_k || p.b_along_k) p.k = padded(p.k, tf32);
    run(&p, tf32, memory);
}

static void odd_layer(const char *what, int64_t m, int64_t n, int64_t k, bool tf32, const cu_pointer *memory)
{
    odd((gemm){what, m, n, k, true, true, false, 0, false, false}, tf32, memory);
    odd((gemm){what, m, k, n, true, false, false, 0, false, false}, tf32, memory);
    odd((gemm){what, n, k, m, false, false, false, 0, false, false}, tf32, memory);
    odd((gemm){what, n, k, m, false, false, true, 0, false, false}, tf32, memory);
}

/* TinyRecursiveModels' mixer at 768 slots of 97 positions, odd widths, GPT-2's own vocabulary. */
static void odd_gemms(bool tf32, const cu_pointer *memory)
{
    const int32_t b = 768;
    odd((gemm){"mixer up", 1024, 512, 97, true, false, false, b, true, false}, tf32, memory);
    odd((gemm){"mixer down", 97, 512, 512, true, false, false, b, true, false}, tf32, memory);
    odd((gemm){"mixer up dx", 97, 512, 1024, false, false, false, b, true, false}, tf32, memory);
    odd((gemm){"mixer up dw", 1024, 97, 512, true, true, false, b, false, false}, tf32, memory);
    odd((gemm){"mixer up dw", 1024, 97, 512, true, true, true, b, false, false}, tf32, memory);
    odd((gemm){"mixer down dx", 512, 512, 97, false, false, false, b, true, false}, tf32, memory);
    odd((gemm){"mixer down dw", 97, 512, 512, true, true, false, b, false, false}, tf32, memory);
    odd_layer("width 390", 16384, 1170, 390, tf32, memory);
    odd_layer("width 390 fc", 16384, 1560, 390, tf32, memory);
    odd_layer("width 257", 16384, 771, 257, tf32, memory);
    odd_layer("vocabulary 65", 16384, 65, 384, tf32, memory);
    odd_layer("vocabulary 211", 16384, 211, 768, tf32, memory);
    odd_layer("gpt2 head", 8192, 50257, 768, tf32, memory);
    odd_layer("small", 512, 101, 51, tf32, memory);
}

int main(int argc, char **argv)
{
    bool tf32 = false, is_odd = false;
    for (int i = 1; i < argc; i++) {
        tf32 |= !strcmp(argv[i], "tf32");
        is_odd |= !strcmp(argv[i], "odd");
    }
    open_library("bench_cublaslt");
    cu_pointer memory[4];
    const size_t large = is_odd ? (size_t)8192 * 50304 : tf32 ? (size_t)16384 * 1536 : (size_t)4096 * 50304;
    for (int i = 0; i < 3; i++) memory[i] = filled(large, tf32);
    ok(cu.memory_new(&memory[3], WORKSPACE), "workspace");
    printf("cuBLASLt %zu, %s\n", lt.library_version, tf32 ? "tf32" : "bf16");
    if (is_odd) {
        odd_gemms(tf32, memory);
        return 0;
    }
    layer("char qkv", 16384, 1152, 384, tf32, memory);
    layer("char proj", 16384, 384, 384, tf32, memory);
    layer("char fc", 16384, 1536, 384, tf32, memory);
    layer("char down", 16384, 384, 1536, tf32, memory);
    layer("char head", 16384, 65, 384, tf32, memory);
    layer("char head of 72", 16384, 72, 384, tf32, memory);
    for (int64_t m = 32768; !tf32 && m <= 65536; m *= 2) {
        layer("gpt2 qkv", m, 2304, 768, tf32, memory);
        layer("gpt2 proj", m, 768, 768, tf32, memory);
        layer("gpt2 fc", m, 3072, 768, tf32, memory);
        layer("gpt2 down", m, 768, 3072, tf32, memory);
    }
    for (int64_t m = 2048; !tf32 && m <= 4096; m *= 2) layer("gpt2 head", m, 50304, 768, tf32, memory);
    return 0;
}
