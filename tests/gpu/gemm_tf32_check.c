/* gemm_tf32_check.c: gemm_tf32.inc on an sm_90 GPU: against sums in double precision, twice bit for bit, and timed at the
 * shapes of a training step. tests/gpu/run.sh builds and runs it. */
#include "cuda_host.h"
#include "shim/kernel_text.h"

#include "kernels/gpu/gemm_tf32_args.h" /* behind an_i64 */

#include <math.h>

enum { MULTIPROCESSORS = 132, ROUNDS = 7, RUNS = 5 };

typedef struct product {
    int m, n, k, chains, add;
} product;

static struct {
    void *multiply, *join;
} kernels;

static void build(void)
{
    const size_t room = 1u << 18;
    char *text = malloc(room);
    size_t at = 0;
    if (!text) cuda_die("out of memory");
    at = (size_t)snprintf(text, room, "#define AN_MUL AN_KIND_TF32\n#define AN_EXACT 0\n");
    static const char *const parts[] = {"src/kernels/dialect/cuda.h", "src/base/exact.h",
                                        "src/kernels/dialect/hopper.h", "src/kernels/gpu/gemm_tf32_args.h",
                                        "src/kernels/gpu/gemm_tf32.inc"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) kernel_append(text, room, &at, parts[i]);
    void *module = cuda_module(text, "gemm_tf32", 0, 1);
    kernels.multiply = cuda_kernel(module, "gemm_tf32"), kernels.join = cuda_kernel(module, "gemm_tf32_reduce");
    free(text);
}

static int tiles_of(const product *p)
{
    return (p->m + AN_TF32_TILE - 1) / AN_TF32_TILE * ((p->n + AN_TF32_TILE - 1) / AN_TF32_TILE);
}

typedef struct buffers {
    cuda_pointer a, b, c, part;
} buffers;

static void run(const product *p, buffers *x)
{
    const int steps = p->k / AN_TF32_DEEP, tiles = tiles_of(p);
    struct an_gemm_tf32_args g = {
        .lda = p->m, .ldb = p->n, .ldc = p->n, .m = p->m, .n = p->n, .k = p->k, .add = p->add ? AN_TF32_IN_PLACE : 0};
    g.k_per_split = (steps + p->chains - 1) / p->chains * AN_TF32_DEEP;
    const int chains = (p->k + g.k_per_split - 1) / g.k_per_split;
    void *multiply[] = {&x->a, &x->b, &x->part, &g}, *join[] = {&x->part, &x->c, &x->c, &g};
    cuda_run_shared(kernels.multiply, (unsigned)(tiles * chains), AN_TF32_THREADS, AN_TF32_SHARED, multiply);
    cuda_run(kernels.join, (unsigned)(tiles * (AN_TF32_TILE * AN_TF32_TILE / 4 / AN_TF32_REDUCE)), 1, 1, AN_TF32_REDUCE,
             join);
}

static float *numbers(size_t n, uint64_t state)
{
    float *x = malloc(n * sizeof *x);
    if (!x) cuda_die("out of memory");
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)((double)(state >> 11) * 0x1p-53 - 0.5);
    }
    return x;
}

static buffers upload(const product *p, float **a, float **b)
{
    *a = numbers((size_t)p->k * (size_t)p->m, 1), *b = numbers((size_t)p->k * (size_t)p->n, 2);
    return (buffers){.a = cuda_new((size_t)p->k * (size_t)p->m * sizeof **a, *a),
                     .b = cuda_new((size_t)p->k * (size_t)p->n * sizeof **b, *b),
                     .c = cuda_new((size_t)p->m * (size_t)p->n * sizeof **a, NULL),
                     .part = cuda_new((size_t)(tiles_of(p) * p->chains) * AN_TF32_TILE * AN_TF32_TILE * 4, NULL)};
}
static void release(buffers *x, float *a, float *b)
{
    cuda.release(x->a), cuda.release(x->b), cuda.release(x->c), cuda.release(x->part);
    free(a), free(b);
}

/* Every element against a double where there are few, every 61st else. */
static double error_of(const product *p, const float *a, const float *b, const float *c)
{
    const size_t all = (size_t)p->m * (size_t)p->n, by = all * (size_t)p->k > 100000000u ? 6151 : 1;
    double difference = 0, norm = 0;
    for (size_t i = 0; i < all; i += by) {
        const size_t row = i / (size_t)p->n, col = i % (size_t)p->n;
        double sum = p->add ? 1 : 0;
        for (size_t k = 0; k < (size_t)p->k; k++)
            sum += (double)a[k * (size_t)p->m + row] * (double)b[k * (size_t)p->n + col];
        difference += (sum - (double)c[i]) * (sum - (double)c[i]), norm += sum * sum;
    }
    return sqrt(difference / norm);
}

static int check(product p)
{
    float *a, *b;
    buffers x = upload(&p, &a, &b);
    const size_t n = (size_t)p.m * (size_t)p.n;
    float *c[2];
    for (int i = 0; i < 2; i++) {
        c[i] = malloc(n * sizeof *c[i]);
        if (!c[i]) cuda_die("out of memory");
        for (size_t e = 0; e < n; e++) c[i][e] = 1;
        if (p.add)
            cuda_check(cuda.to_device(x.c, c[i], n * sizeof *c[i]), "filling");
        else
            cuda_check(cuda.set8(x.c, 0xff, n * sizeof *c[i]), "poisoning");
        run(&p, &x);
        cuda_check(cuda.synchronize(), "running");
        cuda_check(cuda.to_host(c[i], x.c, n * sizeof *c[i]), "reading back");
    }
    const double e = error_of(&p, a, b, c[0]);
    const int same = !memcmp(c[0], c[1], n * sizeof *c[0]), wrong = !(e <= 6e-4) || !same;
    printf("m=%d n=%d k=%d chains=%d%s: error %.1e%s%s\n", p.m, p.n, p.k, p.chains, p.add ? " added" : "", e,
           same ? "" : " OTHER BITS", wrong ? "  WRONG" : "");
    free(c[0]), free(c[1]);
    release(&x, a, b);
    return wrong;
}

static void measure(int m, int n, int k)
{
    product p = {.m = m, .n = n, .k = k};
    float *a, *b, best = 1e9f;
    p.chains = MULTIPROCESSORS / tiles_of(&p) > 1 ? MULTIPROCESSORS / tiles_of(&p) : 1;
    buffers x = upload(&p, &a, &b);
    for (int round = 0; round < ROUNDS; round++) {
        cuda_clock(0);
        for (int r = 0; r < RUNS; r++) run(&p, &x);
        const float ms = cuda_clock(1) / RUNS;
        if (round && ms < best) best = ms;
    }
    printf("m=%-5d n=%-5d k=%d, %d chains of %d tiles: %7.1f us %6.0f TFLOP/s\n", m, n, k, p.chains, tiles_of(&p),
           (double)best * 1e3, 2.0 * m * n * k / (double)best / 1e9);
    release(&x, a, b);
}

int main(void)
{
    int wrong = 0;
    setvbuf(stdout, NULL, _IOLBF, 0); /* what hangs is seen */
    cuda_begin();
    if (cuda.arch != 90) {
        printf("gemm_tf32.inc is for sm_90a alone: NOT run on sm_%d\n", cuda.arch);
        return 0;
    }
    build();
    wrong += check((product){192, 192, 32, 1, 0});
    wrong += check((product){192, 192, 512, 1, 0});
    wrong += check((product){384, 192, 4096, 5, 0});
    wrong += check((product){100, 260, 1024, 3, 1});
    wrong += check((product){384, 1536, 16384, 8, 0});
    printf("%s\n", wrong ? "WRONG" : "all right");
    if (wrong) return 1;
    measure(1152, 384, 16384);
    measure(384, 384, 16384);
    measure(1536, 384, 16384);
    measure(384, 1536, 16384);
    return 0;
}
