/* gemm_hopper_check.c: gemm_hopper.inc on an sm_90 GPU: sampled elements against double precision, two grids bit for bit,
 * then timed beside cuBLASLt and a kernel for the end. tests/gpu/run.sh builds and runs it.
 *
 * Three ends, as a model has them: none; GELU, which writes both; GELU's gradient, which reads what GELU read and
 * writes GELU again. */
#define _GNU_SOURCE /* popen */
#include "hopper_host.h"
#include "shim/attn_case.h"

#include "kernels/gpu/gemm_hopper_args.h" /* behind an_i64 */

enum { ROUNDS = 9, RUNS = 8, MOST_CHOICES = 8, WORKSPACE = 32 << 20, SAMPLES = 2000 };
typedef enum end { END_NONE, END_GELU, END_GELU_GRAD, N_ENDS } end;

static const char *const end_name[N_ENDS] = {"", " + GELU", " + GELU's gradient, GELU"};
static const char *const end_text[N_ENDS] = {
    "struct an_epilogue_in {};\n#define AN_EPILOGUE_LOAD(in, row, col)\n"
    "#define AN_EPILOGUE_APPLY(row, col, x, in) an_wide_store(y0 + (an_i64)(row) * g.n + (col), x)\n"
    "#define AN_EPILOGUE_PREFETCH(row, col)\n",

    "AN_FN void an_epilogue_apply(an_u16 (&w)[8], an_u16 *y0, an_u16 *y1)\n"
    "{\n"
    "    an_u16 o[8];\n"
    "    AN_UNROLL for (int k = 0; k < 8; k++)\n"
    "    {\n"
    "        float x = an_bf16_to_f32(w[k]);\n"
    "        o[k] = an_bf16_bits(x * an_normal_cdf_16bit(x));\n"
    "    }\n"
    "    an_wide_store(y0, w), an_wide_store(y1, o);\n"
    "}\n"
    "struct an_epilogue_in {};\n#define AN_EPILOGUE_LOAD(in, row, col)\n"
    "#define AN_EPILOGUE_APPLY(row, col, x, in) an_epilogue_apply(x, y0 + (an_i64)(row) * g.n + (col), y1 + "
    "(an_i64)(row) * g.n + (col))\n"
    "#define AN_EPILOGUE_PREFETCH(row, col)\n",

    "struct an_epilogue_in {\n"
    "    an_u16 h[8];\n"
    "};\n"
    "AN_FN void an_epilogue_apply(an_u16 (&w)[8], const an_u16 (&h)[8], an_u16 *y0, an_u16 *y1)\n"
    "{\n"
    "    an_u16 o[8];\n"
    "    AN_UNROLL for (int k = 0; k < 8; k++)\n"
    "    {\n"
    "        float x = an_bf16_to_f32(h[k]), e = an_normal_cdf_16bit(x);\n"
    "        float slope = e + x * an_scaled_exp_16bit(x * x, -0.72134752f, -1.32574802f);\n"
    "        o[k] = an_bf16_bits(x * e);\n"
    "        w[k] = an_bf16_bits(an_bf16_to_f32(w[k]) * slope);\n"
    "    }\n"
    "    an_wide_store(y0, w), an_wide_store(y1, o);\n"
    "}\n"
    "#define AN_EPILOGUE_LOAD(in, row, col) an_wide_load((in).h, x0 + (an_i64)(row) * g.n + (col))\n"
    "#define AN_EPILOGUE_APPLY(row, col, x, in) \\\n"
    "    an_epilogue_apply(x, (in).h, y0 + (an_i64)(row) * g.n + (col), y1 + (an_i64)(row) * g.n + (col))\n"
    "#define AN_EPILOGUE_PREFETCH(row, col) an_prefetch(x0 + (an_i64)(row) * g.n + (col))\n"};
/* The end alone, of a product that is there. */
static const char end_alone[] =
    "extern \"C\" __global__ void __launch_bounds__(256)\n"
    "alone(const an_u16 *c, const an_gemm_hopper_args g AN_EPILOGUE_ARGS)\n"
    "{\n"
    "    int i = ((int)blockIdx.x * 256 + an_thread) * 8, r = (int)((an_u32)i / (an_u32)g.n), c0 = i - r * g.n;\n"
    "    an_u16 x[8];\n"
    "    if (r >= g.m) return;\n"
    "    an_wide_load(x, c + i);\n"
    "    an_epilogue_in in;\n"
    "    AN_EPILOGUE_LOAD(in, r, c0);\n"
    "    AN_EPILOGUE_APPLY(r, c0, x, in);\n"
    "}\n";

typedef struct body { /* how gemm_hopper.inc is cut */
    int m, n, stages, cluster, groups;
} body;
typedef struct problem {
    int m, n, k, b_along_k;
    end end;
    uint16_t *a, *b, *x0, *y0, *y1; /* host: operands, and what came back */
    cuda_pointer on[6];             /* GPU: A, B, x0, y0, y1, the library's C */
} problem;
typedef struct built {
    void *gemm, *alone;
} built;

/* ---------------------------------------------------------------------------------------------- ours */

static built build(const body *b, const problem *p)
{
    char *text = malloc(1u << 18);
    if (!text) cuda_die("out of memory");
    size_t at =
        (size_t)sprintf(text,
                        "#define AN_MUL AN_KIND_F32\n#define AN_EXACT 0\n#define AN_ALIGNED 1\n#define AN_PAIR 0\n"
                        "#define AN_A_ALONG_K 1\n#define AN_B_ALONG_K %d\n#define "
                        "AN_HGEMM_M %d\n#define AN_HGEMM_N %d\n#define AN_HGEMM_STAGES %d\n#define AN_HGEMM_CLUSTER "
                        "%d\n#define "
                        "AN_HGEMM_WARPGROUPS %d\n",
                        p->b_along_k, b->m, b->n, b->stages, b->cluster, b->groups);
    static const char *const files[] = {"src/kernels/dialect/cuda.h", "src/base/exact.h",
                                        "src/kernels/dialect/loops_gpu.h", "src/kernels/dialect/hopper.h",
                                        "src/kernels/gpu/gemm_hopper_args.h"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) kernel_append(text, 1u << 18, &at, files[i]);
    at += (size_t)sprintf(text + at, "%s", end_text[p->end]);
    at += (size_t)sprintf(text + at, "#define AN_EPILOGUE_ARGS , const an_u16 *x0, an_u16 *y0, an_u16 *y1\n"
                                     "#define AN_EPILOGUE_NAMES , x0, y0, y1\n");
    kernel_append(text, 1u << 18, &at, "src/kernels/gpu/gemm_hopper.inc");
    sprintf(text + at, "%s", end_alone);
    void *module = cuda_module(text, "gemm_hopper", 0, 1);
    free(text);
    return (built){cuda_kernel(module, "gemm"), cuda_kernel(module, "alone")};
}

static int shared_of(const body *b)
{
    return 1024 + b->stages * (128 * (b->m + b->n) + 16) + 2048 * 4 * b->groups;
}

static void run_ours(const body *b, const built *f, problem *p, int most, int band)
{
    tensor_map a = map_of(p->on[0], p->m, p->k, p->k, b->m),
               w = p->b_along_k ? map_of(p->on[1], p->n, p->k, p->k, b->n / b->cluster)
                                : map_of(p->on[1], p->k, p->n, p->n, 64 / b->cluster);
    const int across = (p->n + b->n - 1) / b->n, down = (p->m + b->m * b->cluster - 1) / (b->m * b->cluster);
    struct an_gemm_hopper_args g = {p->m, p->n, p->k, band ? band : across};
    void *args[] = {&a, &w, &g, &p->on[2], &p->on[3], &p->on[4]};
    int groups = b->cluster * across * down;
    if (groups > most) groups = most / b->cluster * b->cluster;
    cuda_run_shared(f->gemm, (unsigned)groups, 128 * (unsigned)(b->groups + 1), (unsigned)shared_of(b), args);
}

static void run_end(const built *f, problem *p)
{
    struct an_gemm_hopper_args g = {p->m, p->n, p->k, 1};
    void *args[] = {&p->on[5], &g, &p->on[2], &p->on[3], &p->on[4]};
    cuda_run(f->alone, (unsigned)(((int64_t)p->m * p->n / 8 + 255) / 256), 1, 1, 256, args);
}

/* ---------------------------------------------------------------------------------------------- the library's */

typedef struct library {
    lt_desc desc;
    lt_layout a, b, c;
    lt_choice choice[MOST_CHOICES];
    int n;
    cuda_pointer workspace;
} library;

static library library_new(const problem *p)
{
    library l = {0};
    lt_preference preference;
    const int32_t left = p->b_along_k ? LT_OP_T : LT_OP_N, right = LT_OP_N;
    const uint64_t workspace = WORKSPACE;
    cuda_check(lt.desc_new(&l.desc, LT_COMPUTE_F32, LT_F32), "cublasLtMatmulDescCreate");
    lt.desc_set(l.desc, LT_DESC_TRANSA, &left, sizeof left), lt.desc_set(l.desc, LT_DESC_TRANSB, &right, sizeof right);
    const int rows = p->b_along_k ? p->k : p->n, cols = p->b_along_k ? p->n : p->k;
    lt.layout_new(&l.b, LT_BF16, (uint64_t)rows, (uint64_t)cols, rows);
    lt.layout_new(&l.a, LT_BF16, (uint64_t)p->k, (uint64_t)p->m, p->k);
    lt.layout_new(&l.c, LT_BF16, (uint64_t)p->n, (uint64_t)p->m, p->n);
    lt.preference_new(&preference);
    lt.preference_set(preference, LT_PREF_WORKSPACE, &workspace, sizeof workspace);
    cuda_check(lt.heuristic(handle, l.desc, l.b, l.a, l.c, l.c, preference, MOST_CHOICES, l.choice, &l.n), "heuristic");
    lt.preference_free(preference);
    l.workspace = cuda_new(WORKSPACE, NULL);
    return l;
}

static void run_library(const library *l, problem *p, int choice)
{
    const float one = 1, none = 0;
    cuda_check(lt.matmul(handle, l->desc, &one, p->on[1], l->b, p->on[0], l->a, &none, p->on[5], l->c, p->on[5], l->c,
                         &l->choice[choice].algo, l->workspace, WORKSPACE, NULL),
               "cublasLtMatmul");
}

/* ---------------------------------------------------------------------------------------------- right? */

static uint16_t *random_bf16(size_t n, float scale, uint64_t seed)
{
    uint16_t *x = malloc(n * sizeof *x);
    uint32_t state = (uint32_t)seed * 2654435761u + 1;
    if (!x) cuda_die("out of memory");
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (uint16_t)case_bits(((float)(state >> 8) * 0x1p-23f - 1.0f) * scale, KIND_BF16);
    }
    return x;
}

static problem problem_new(int m, int n, int k, int b_along_k, end end)
{
    problem p = {.m = m, .n = n, .k = k, .b_along_k = b_along_k, .end = end};
    const size_t mn = (size_t)m * (size_t)n;
    p.a = random_bf16((size_t)m * (size_t)k, 1, 1), p.b = random_bf16((size_t)k * (size_t)n, 0.1f, 2);
    p.x0 = random_bf16(mn, 3, 3), p.y0 = malloc(2 * mn), p.y1 = malloc(2 * mn);
    if (!p.y0 || !p.y1) cuda_die("out of memory");
    p.on[0] = cuda_new(2 * (size_t)m * (size_t)k, p.a), p.on[1] = cuda_new(2 * (size_t)k * (size_t)n, p.b);
    p.on[2] = cuda_new(2 * mn, p.x0);
    for (int i = 3; i < 6; i++) p.on[i] = cuda_new(2 * mn, NULL);
    return p;
}
static void problem_free(problem *p)
{
    for (int i = 0; i < 6; i++) cuda.release(p->on[i]);
    free(p->a), free(p->b), free(p->x0), free(p->y0), free(p->y1);
}

static double bf16(const uint16_t *x, size_t i)
{
    return (double)case_read(x, i, KIND_BF16);
}
static double gelu(double x)
{
    return 0.5 * x * (1 + erf(x * 0.70710678118654752));
}
static double gelu_slope(double x)
{
    return 0.5 * (1 + erf(x * 0.70710678118654752)) + x * exp(-0.5 * x * x) * 0.3989422804014327;
}
static double apart(double got, double want, double least)
{
    double e = fabs(got - want) / (fabs(want) + least);
    return isnan(e) ? INFINITY : e;
}

/* The largest relative error of sampled elements, bf16's own rounding (2^-9) included. */
static double error_of(const problem *p)
{
    double worst = 0;
    uint64_t state = 9;
    const int64_t all = (int64_t)p->m * p->n;
    for (int64_t s = 0; s < (all < SAMPLES ? all : SAMPLES); s++) {
        size_t at = all < SAMPLES ? (size_t)s : (size_t)((case_uniform(&state) + 1) / 2 * (double)all),
               K = (size_t)p->k;
        size_t i = at / (size_t)p->n, j = at % (size_t)p->n;
        double sum = 0;
        for (size_t k = 0; k < K; k++)
            sum += bf16(p->a, i * K + k) * bf16(p->b, p->b_along_k ? j * K + k : k * (size_t)p->n + j);
        double h = p->end == END_GELU_GRAD ? bf16(p->x0, at) : bf16(p->y0, at);
        double e = apart(bf16(p->y0, at), p->end == END_GELU_GRAD ? sum * gelu_slope(h) : sum, 0.05);
        if (p->end != END_NONE) e = fmax(e, apart(bf16(p->y1, at), gelu(h), 0.01));
        worst = fmax(worst, e);
    }
    return worst;
}

static size_t unwritten(const problem *p)
{
    size_t n = 0, mn = (size_t)p->m * (size_t)p->n;
    for (size_t i = 0; i < mn; i++) n += p->y0[i] == 0xffff || (p->end != END_NONE && p->y1[i] == 0xffff);
    return n;
}

static void run_and_read(const body *b, const built *f, problem *p, int most, int band, uint16_t *y0, uint16_t *y1)
{
    const size_t bytes = 2 * (size_t)p->m * (size_t)p->n;
    for (int i = 3; i < 5; i++) cuda_check(cuda.set8(p->on[i], 0xff, bytes), "poisoning");
    run_ours(b, f, p, most, band);
    cuda_check(cuda.synchronize(), "running");
    cuda_check(cuda.to_host(y0, p->on[3], bytes), "reading back"), cuda_check(cuda.to_host(y1, p->on[4], bytes), "");
}

static int check(const body *b, int m, int n, int k, int b_along_k, end end)
{
    problem p = problem_new(m, n, k, b_along_k, end);
    built f = build(b, &p);
    const size_t bytes = 2 * (size_t)m * (size_t)n;
    uint16_t *y0 = malloc(bytes), *y1 = malloc(bytes);
    if (!y0 || !y1) cuda_die("out of memory");
    run_and_read(b, &f, &p, multiprocessors, 0, p.y0, p.y1);
    double e = error_of(&p);
    size_t missing = unwritten(&p);
    run_and_read(b, &f, &p, 6, 1, y0, y1);
    int same = !memcmp(y0, p.y0, bytes) && (end == END_NONE || !memcmp(y1, p.y1, bytes));
    int wrong = !(e <= 8e-3) || missing || !same;
    printf("tile %d x %d, %d stages, cluster of %d, %d warpgroups: %d x %d x %d, B along %c%s: error %.1e, %zu not "
           "written%s%s\n",
           b->m, b->n, b->stages, b->cluster, b->groups, m, n, k, b_along_k ? 'k' : 'n', end_name[end], e, missing,
           same ? "" : ", OTHER BITS", wrong ? "  WRONG" : "");
    free(y0), free(y1), problem_free(&p);
    return wrong;
}

/* ---------------------------------------------------------------------------------------------- fast? */

static double median(float *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_value);
    return (double)x[n / 2] * 1e3;
}

static void time_one(const body *b, int n_bodies, int m, int n, int k, int b_along_k, end end)
{
    enum { MOST = 16 };
    problem p = problem_new(m, n, k, b_along_k, END_NONE);
    library l = library_new(&p);
    built plain[MOST], ended[MOST];
    float ms[2 + MOST_CHOICES + 2 * MOST][ROUNDS];
    for (int i = 0; i < n_bodies; i++)
        p.end = END_NONE, plain[i] = build(&b[i], &p), p.end = end, ended[i] = build(&b[i], &p);
    for (int round = -1; round < ROUNDS; round++)
        for (int what = 0; what < 1 + l.n + 2 * n_bodies; what++) {
            int ours = what - 1 - l.n;
            cuda_clock(0);
            for (int r = 0; r < RUNS; r++) {
                if (what < l.n)
                    run_library(&l, &p, what);
                else if (what == l.n)
                    run_library(&l, &p, 0), run_end(&ended[0], &p);
                else
                    run_ours(&b[ours / 2], ours % 2 ? &ended[ours / 2] : &plain[ours / 2], &p, multiprocessors, 0);
            }
            float t = cuda_clock(1) / RUNS;
            if (round >= 0) ms[what][round] = t;
        }
    const double flop = 2e-6 * m * (double)n * k; /* for microseconds to TFLOP/s */
    printf("%d x %d x %d, B along %c, us (TFLOP/s): cuBLASLt", m, n, k, b_along_k ? 'k' : 'n');
    for (int i = 0; i < l.n; i++) {
        double t = median(ms[i], ROUNDS);
        printf(" %.1f (%.0f)", t, flop / t);
    }
    printf("; its first%s %.1f\n", end_name[end], median(ms[l.n], ROUNDS));
    for (int i = 0; i < n_bodies; i++) {
        double t = median(ms[l.n + 1 + 2 * i], ROUNDS), u = median(ms[l.n + 2 + 2 * i], ROUNDS);
        printf("    tile %d x %d, %d stages, cluster of %d, %d warpgroups: %.1f (%.0f);%s %.1f (%.0f)\n", b[i].m,
               b[i].n, b[i].stages, b[i].cluster, b[i].groups, t, flop / t, end_name[end], u, flop / u);
    }
    cuda.release(l.workspace), problem_free(&p);
}

int main(void)
{
    static const body bodies[] = {{AN_HGEMM_M, AN_HGEMM_N, AN_HGEMM_STAGES, AN_HGEMM_CLUSTER, AN_HGEMM_WARPGROUPS},
                                  {128, 192, 5, 1, 2},
                                  {128, 128, 6, 2, 2},
                                  {128, 128, 6, 2, 3},
                                  {64, 192, 6, 2, 3}};
    const int n = (int)(sizeof bodies / sizeof *bodies);
    int wrong = 0;
    if (!hopper_begin()) return 0;
    for (int i = 0; i < n; i++)
        for (int along = 0; along < 2; along++) {
            wrong += check(&bodies[i], 512, 384, 256, along, END_NONE);
            if (i) continue;
            wrong += check(&bodies[i], 192, 320, 136, along, END_GELU);
            wrong += check(&bodies[i], 1984, 1600, 392, along, END_GELU_GRAD);
            wrong += check(&bodies[i], 64, 64, 8, along, END_GELU);
        }
    printf("%s\n", wrong ? "WRONG" : "all right");
    time_one(bodies, n, 65536, 3072, 768, 1, END_GELU);
    time_one(bodies, n, 65536, 3072, 768, 0, END_GELU_GRAD);
    time_one(bodies, n, 16384, 1536, 384, 1, END_GELU);
    time_one(bodies, n, 16384, 1536, 384, 0, END_GELU_GRAD);
    time_one(bodies, 1, 65536, 768, 3072, 1, END_NONE);
    time_one(bodies, 1, 16384, 384, 1536, 1, END_NONE);
    return wrong != 0;
}
