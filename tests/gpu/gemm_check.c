/* gemm_check.c: the portable matrix product on an NVIDIA GPU: sampled elements against the chain of the specification
 * (f32: bit for bit), then timed. tests/gpu/run.sh builds and runs it. */
#include "cuda_host.h"
#include "shim/attn_case.h"
#include "shim/configs.h"

typedef struct problem {
    int m, n, k;
    struct an_gemm_args g;
    void *a, *b, *c; /* host */
} problem;

static void fill(void *x, size_t n, int store, uint64_t seed)
{
    uint64_t state = seed;
    for (size_t i = 0; i < n; i++) {
        double value = case_uniform(&state);
        if (store == KIND_F32)
            ((float *)x)[i] = (float)value;
        else
            ((uint16_t *)x)[i] = (uint16_t)case_bits((float)value, store);
    }
}

static problem problem_new(const gemm_config *c, int m, int n, int k)
{
    problem p = {.m = m, .n = n, .k = k, .g = {.m = m, .n = n, .k = k, .nb = {1, 1, 1}, .k_per_split = k, .c_m = n}};
    p.g.a_m = c->a_along_k ? k : 1, p.g.a_k = c->a_along_k ? 1 : m;
    p.g.b_n = c->b_along_k ? k : 1, p.g.b_k = c->b_along_k ? 1 : n;
    p.a = malloc((size_t)m * (size_t)k * 4), p.b = malloc((size_t)k * (size_t)n * 4),
    p.c = malloc((size_t)m * (size_t)n * 4);
    if (!p.a || !p.b || !p.c) cuda_die("out of memory");
    fill(p.a, (size_t)m * (size_t)k, c->store, 1), fill(p.b, (size_t)k * (size_t)n, c->store, 2);
    return p;
}

/* Errors of 2000 elements: the largest, over k; or, exact, how many have other bits. */
static double compare(const gemm_config *c, const problem *p)
{
    double worst = 0;
    uint64_t state = 9;
    for (int s = 0; s < 2000; s++) {
        int i = (int)((case_uniform(&state) + 1) / 2 * p->m), j = (int)((case_uniform(&state) + 1) / 2 * p->n);
        double sum = 0;
        float chain = 0;
        for (int k = 0; k < p->k; k++) {
            float x = case_read(p->a, (size_t)(i * p->g.a_m + k * p->g.a_k), c->store);
            float y = case_read(p->b, (size_t)(k * p->g.b_k + j * p->g.b_n), c->store);
            sum += (double)x * (double)y, chain = fmaf(x, y, chain);
        }
        float got = case_read(p->c, (size_t)(i * p->g.c_m + j), c->store_c);
        double e = c->mul == KIND_F32 ? memcmp(&got, &chain, sizeof got) != 0 : fabs((double)got - sum) / p->k;
        worst = c->mul == KIND_F32 ? worst + e : e > worst || isnan(e) ? e : worst;
    }
    return worst;
}

static int check(const gemm_config *c, int m, int n, int k, int timed)
{
    char defines[1024];
    gemm_defines(defines, sizeof defines, c);
    char *text = kernel_text("cuda", "gemm", defines);
    void *kernel = cuda_kernel(cuda_module(text, "gemm", 0, 0), "gemm");
    problem p = problem_new(c, m, n, k);
    cuda_pointer a = cuda_new((size_t)m * (size_t)k * case_item(c->store), p.a),
                 b = cuda_new((size_t)k * (size_t)n * case_item(c->store), p.b);
    cuda_pointer out = cuda_new((size_t)m * (size_t)n * case_item(c->store_c), NULL), part = out;
    void *args[] = {&a, &b, &out, &part, &p.g};
    float best = 1e9f;
    for (int round = 0; round < (timed ? 6 : 1); round++) {
        cuda_clock(0);
        cuda_run(kernel, (unsigned)((n + c->bn - 1) / c->bn), (unsigned)((m + c->bm - 1) / c->bm), 1,
                 (unsigned)(32 * c->subgroups_m * c->subgroups_n), args);
        float ms = cuda_clock(1);
        if ((round || !timed) && ms < best) best = ms;
    }
    cuda_check(cuda.to_host(p.c, out, (size_t)m * (size_t)n * case_item(c->store_c)), "reading back");
    double e = compare(c, &p);
    int wrong = !(e <= (c->mul == KIND_F32 ? 0 : c->store_c == KIND_F32 && c->mul != KIND_BF16 ? 1e-3 : 4e-3));
    printf("%s*%s->%s %dx%dx%d %c%c, tile %dx%dx%d: %s %.2g%s", kind_name(c->store), kind_name(c->mul),
           kind_name(c->store_c), m, n, k, c->a_along_k ? 'n' : 't', c->b_along_k ? 't' : 'n', c->bm, c->bn, c->bk,
           c->mul == KIND_F32 ? "elements with other bits:" : "error/k", e, wrong ? "  WRONG" : "");
    if (timed) printf(", %.3f ms, %.1f TFLOP/s", (double)best, 2.0 * m * n * k / (double)best / 1e9);
    printf("\n");
    cuda.release(a), cuda.release(b), cuda.release(out);
    free(text), free(p.a), free(p.b), free(p.c);
    return wrong;
}

int main(void)
{
    int wrong = 0;
    cuda_begin();
    for (size_t i = 0; i < COUNT_OF(cuda_gemm); i++) {
        if (cuda_gemm[i].store == KIND_F16) continue; /* the host side here has no f16 */
        wrong += check(&cuda_gemm[i], 200, 264, 136, 0);
        wrong += check(&cuda_gemm[i], 4096, 4096, 4096, 1);
    }
    printf("%s\n", wrong ? "WRONG" : "all right");
    return wrong != 0;
}
