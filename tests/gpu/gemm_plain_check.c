/* gemm_plain_check.c: gemm_hopper.inc with the ends of gemm_hopper_plain.inc on an sm_90 GPU, at extents that are no multiple
 * of anything: sampled elements against double precision, two grids bit for bit, nothing read or written between rows; then
 * timed beside cuBLASLt, at these extents and at the next multiples of 8. tests/gpu/run.sh builds and runs it. */
#define _GNU_SOURCE /* popen */
#include "hopper_host.h"
#include "shim/attn_case.h"

#include "kernels/gpu/gemm_hopper_args.h" /* behind an_i64 */

enum {
    ROUNDS = 5,
    RUNS = 4,
    CHOICES = 8,
    WORKSPACE = 32 << 20,
    SAMPLES = 1500,
    RANDOM = 40,
    MOST_PARTS = 8,
    UNIT = 16
};

typedef struct problem {
    int m, n, k, a_along_k, b_along_k, f32, add, splits;
    int64_t lda, ldb, ldc;
    size_t a_bytes, b_bytes, c_bytes;
    uint8_t *a, *b, *before, *c; /* host: operands, C before and after */
    cuda_pointer on[5];          /* GPU: A, B, C, partial sums, what is added when that is not C */
} problem;
typedef struct built {
    void *gemm, *reduce;
} built;

static built build(const problem *p)
{
    static built kept[16];
    built *f = &kept[p->a_along_k + 2 * p->b_along_k + 4 * p->f32 + 8 * (p->splits > 1)];
    if (f->gemm) return *f;
    static const char *const files[] = {"src/kernels/dialect/cuda.h",         "src/base/exact.h",
                                        "src/kernels/dialect/loops_gpu.h",    "src/kernels/dialect/hopper.h",
                                        "src/kernels/gpu/gemm_hopper_args.h", "src/kernels/gpu/gemm_hopper_plain.inc",
                                        "src/kernels/gpu/gemm_hopper.inc"};
    char *text = malloc(1u << 18);
    if (!text) cuda_die("out of memory");
    size_t at = (size_t)sprintf(text,
                                "#define AN_MUL AN_KIND_F32\n#define AN_EXACT 0\n#define AN_ALIGNED 0\n"
                                "#define AN_PAIR 0\n#define AN_A_ALONG_K %d\n#define AN_B_ALONG_K %d\n"
                                "#define AN_C_F32 %d\n#define AN_SPLIT %d\n",
                                p->a_along_k, p->b_along_k, p->f32, p->splits > 1);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) kernel_append(text, 1u << 18, &at, files[i]);
    void *module = cuda_module(text, "gemm_hopper", 0, 1);
    free(text);
    f->gemm = cuda_kernel(module, "gemm");
    f->reduce = p->splits > 1 ? cuda_kernel(module, "gemm_reduce") : NULL;
    return *f;
}

static int up(int x, int to)
{
    return (x + to - 1) / to * to;
}

static void run_ours(const built *f, problem *p, int most, int band)
{
    tensor_map a = p->a_along_k ? map_of(p->on[0], p->m, p->k, p->lda, AN_HGEMM_M)
                                : map_of(p->on[0], p->k, p->m, p->lda, 64),
               b = p->b_along_k ? map_of(p->on[1], p->n, p->k, p->ldb, AN_HGEMM_N / AN_HGEMM_CLUSTER)
                                : map_of(p->on[1], p->k, p->n, p->ldb, 64 / AN_HGEMM_CLUSTER);
    const int across = up(p->n, AN_HGEMM_N) / AN_HGEMM_N,
              down = up(p->m, AN_HGEMM_M * AN_HGEMM_CLUSTER) / (AN_HGEMM_M * AN_HGEMM_CLUSTER),
              stages = up(p->k, AN_HGEMM_DEPTH) / AN_HGEMM_DEPTH, split = p->splits > 1;
    struct an_gemm_hopper_args g = {.m = p->m,
                                    .n = p->n,
                                    .k = p->k,
                                    .band = band          ? band
                                            : across > 64 ? 32
                                                          : across,
                                    .turns = up(stages, p->splits) / p->splits,
                                    .splits = p->splits,
                                    .add = split ? 0 : p->add,
                                    .wide = split || p->ldc % (p->f32 ? 2 : 8) == 0,
                                    .ldc = split ? up(p->n, 4) : p->ldc};
    void *args[] = {&a, &b, &g, &p->on[4], &p->on[split ? 3 : 2]};
    int blocks = AN_HGEMM_CLUSTER * across * down * p->splits;
    if (blocks > most) blocks = most / AN_HGEMM_CLUSTER * AN_HGEMM_CLUSTER;
    cuda_run_shared(f->gemm, (unsigned)blocks, AN_HGEMM_THREADS, AN_HGEMM_SHARED, args);
    if (!split) return;
    struct an_gemm_hopper_args r = g;
    r.ldc = p->ldc;
    r.add = p->add;
    void *sums[] = {&p->on[3], &p->on[4], &p->on[2], &r};
    const unsigned rows = (unsigned)(p->m < 65535 ? p->m : 65535);
    cuda_run(f->reduce, (unsigned)(up(p->n, AN_HGEMM_REDUCE) / AN_HGEMM_REDUCE), rows, 1, AN_HGEMM_REDUCE, sums);
}

/* ---------------------------------------------------------------------------------------------- problems */

/* Rows of `inner` random numbers, `ld` apart; NaN between them. */
static uint16_t *rows_of(size_t rows, size_t inner, size_t ld, float scale, uint32_t seed)
{
    uint16_t *x = malloc(rows * ld * sizeof *x);
    uint32_t state = seed * 2654435761u + 1;
    if (!x) cuda_die("out of memory");
    memset(x, 0xff, rows * ld * sizeof *x);
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < inner; i++) {
            state = state * 1664525u + 1013904223u;
            x[r * ld + i] = (uint16_t)case_bits(((float)(state >> 8) * 0x1p-23f - 1.0f) * scale, KIND_BF16);
        }
    return x;
}

/* Rows of A and B begin on multiples of `unit` elements; so do those of C where ldc is 0. */
static problem problem_new(int m, int n, int k, int a_along_k, int b_along_k, int f32, int add, int splits, int64_t ldc,
                           int unit)
{
    const int stages = up(k, AN_HGEMM_DEPTH) / AN_HGEMM_DEPTH, turns = up(stages, splits) / splits;
    problem p = {.m = m, .n = n, .k = k, .a_along_k = a_along_k, .b_along_k = b_along_k, .f32 = f32, .add = add};
    p.splits = up(stages, turns) / turns;
    p.lda = up(a_along_k ? k : m, unit);
    p.ldb = up(b_along_k ? k : n, unit);
    p.ldc = ldc ? ldc : up(n, unit);
    const size_t rows_a = (size_t)(a_along_k ? m : k), rows_b = (size_t)(b_along_k ? n : k), size = f32 ? 4 : 2;
    p.a_bytes = rows_a * (size_t)p.lda * 2;
    p.b_bytes = rows_b * (size_t)p.ldb * 2;
    p.c_bytes = (size_t)m * (size_t)p.ldc * size;
    p.a = (uint8_t *)rows_of(rows_a, (size_t)(a_along_k ? k : m), (size_t)p.lda, 1, 1);
    p.b = (uint8_t *)rows_of(rows_b, (size_t)(b_along_k ? k : n), (size_t)p.ldb, 0.1f, 2);
    p.before = malloc(p.c_bytes);
    p.c = malloc(p.c_bytes);
    if (!p.before || !p.c) cuda_die("out of memory");
    memset(p.before, 0xff, p.c_bytes);
    for (size_t i = 0; add && i < (size_t)m * (size_t)p.ldc; i++)
        if (i % (size_t)p.ldc < (size_t)n) ((float *)p.before)[i] = (float)(i % 97) * 0.25f - 12;
    p.on[0] = cuda_new(p.a_bytes, p.a), p.on[1] = cuda_new(p.b_bytes, p.b), p.on[2] = cuda_new(p.c_bytes, p.before);
    p.on[3] = cuda_new((size_t)(splits > 1 ? AN_MAX(splits, MOST_PARTS) : 1) * (size_t)m * (size_t)up(n, 4) * 4, NULL);
    p.on[4] = cuda_new(p.c_bytes, p.before);
    return p;
}
static void problem_free(problem *p)
{
    for (int i = 0; i < 5; i++) cuda.release(p->on[i]);
    free(p->a), free(p->b), free(p->before), free(p->c);
}

static double bf16(const void *x, int64_t i)
{
    return (double)case_read(x, (size_t)i, KIND_BF16);
}

/* The largest relative error of sampled elements, the last row and column among them. */
static double error_of(const problem *p)
{
    double worst = 0;
    uint64_t state = 9;
    for (int s = 0; s < SAMPLES; s++) {
        int64_t i = (int64_t)((case_uniform(&state) + 1) / 2 * (double)p->m),
                j = (int64_t)((case_uniform(&state) + 1) / 2 * (double)p->n);
        double sum = 0;
        if (i >= p->m || s % 7 == 0) i = p->m - 1;
        if (j >= p->n || s % 11 == 0) j = p->n - 1;
        for (int64_t k = 0; k < p->k; k++)
            sum += bf16(p->a, p->a_along_k ? i * p->lda + k : k * p->lda + i) *
                   bf16(p->b, p->b_along_k ? j * p->ldb + k : k * p->ldb + j);
        const int64_t at = i * p->ldc + j;
        if (p->add) sum += (double)((const float *)p->before)[at];
        const double got = p->f32 ? (double)((const float *)p->c)[at] : bf16(p->c, at),
                     e = fabs(got - sum) / (fabs(sum) + 0.05 * sqrt((double)p->k / 64));
        if (!(e <= worst)) worst = isnan(e) ? INFINITY : e;
    }
    return worst;
}

/* Bytes between the rows of C that were written. */
static size_t strayed(const problem *p)
{
    const size_t size = p->f32 ? 4 : 2, row = (size_t)p->ldc * size, inside = (size_t)p->n * size;
    size_t n = 0;
    for (size_t i = 0; i < p->c_bytes; i++) n += i % row >= inside && p->c[i] != 0xff;
    return n;
}

static void run_and_read(const built *f, problem *p, int most, int band)
{
    cuda_check(cuda.to_device(p->on[2], p->before, p->c_bytes), "writing C");
    run_ours(f, p, most, band);
    cuda_check(cuda.synchronize(), "running");
    cuda_check(cuda.to_host(p->c, p->on[2], p->c_bytes), "reading back");
}

static int check(int m, int n, int k, int form, int add, int splits, int64_t ldc)
{
    problem p = problem_new(m, n, k, form & 1, form >> 1 & 1, form >> 2 & 1, add, splits, ldc, 8);
    const built f = build(&p);
    uint8_t *first = malloc(p.c_bytes);
    if (!first) cuda_die("out of memory");
    run_and_read(&f, &p, multiprocessors, 0);
    const double e = error_of(&p);
    const size_t stray = strayed(&p);
    memcpy(first, p.c, p.c_bytes);
    run_and_read(&f, &p, 6, 1);
    const int same = !memcmp(first, p.c, p.c_bytes), wrong = !(e <= (p.f32 ? 2e-4 : 8e-3)) || stray || !same;
    printf("%d x %d x %d, A along %c, B along %c, %s%s, %d parts, rows of %lld: error %.1e%s%s%s\n", m, n, k,
           p.a_along_k ? 'k' : 'm', p.b_along_k ? 'k' : 'n', p.f32 ? "f32" : "bf16",
           add == AN_HGEMM_IN_PLACE ? " +="
           : add                    ? " + another"
                                    : "",
           p.splits, (long long)p.ldc, e, stray ? ", WRITTEN BETWEEN ROWS" : "", same ? "" : ", OTHER BITS",
           wrong ? "  WRONG" : "");
    free(first), problem_free(&p);
    return wrong;
}

static int check_all(void)
{
    int wrong = 0;
    uint64_t state = 18;
    for (int form = 0; form < 8; form++)
        for (int splits = 1; splits < 4; splits += 2) {
            wrong += check(300, 201, 333, form, 0, splits, 0);
            wrong += check(257, 193, 65, form, 0, splits, 193);
            wrong += check(33, 35, 1027, form, 0, splits, 35);
            for (int add = 1; add < 3 && form & 4; add++)
                wrong += check(515, 387, 321, form, add, splits, add == 1 ? 387 : 390);
        }
    for (int i = 0; i < RANDOM; i++) {
        int x[4];
        for (int j = 0; j < 4; j++) x[j] = (int)(exp((case_uniform(&state) + 1) / 2 * log(60)) * 33);
        wrong += check(x[0], x[1], x[2], i % 8, i % 8 & 4 ? i / 8 % 3 : 0, 1 + x[3] % 5, i % 3 ? 0 : x[1]);
    }
    return wrong;
}

/* ---------------------------------------------------------------------------------------------- fast? */

/* cuBLASLt's first choice, and the fastest of all its choices, in us; extents rounded up to a multiple of `to`, rows of whole
 * `unit` elements. */
static void time_library(problem *p, int to, int unit, double *first, double *fastest)
{
    const float one = 1, none = p->add ? 1 : 0;
    const int32_t left = p->b_along_k ? LT_OP_T : LT_OP_N, right = p->a_along_k ? LT_OP_N : LT_OP_T;
    const uint64_t workspace = WORKSPACE, m = (uint64_t)up(p->m, to), n = (uint64_t)up(p->n, to),
                   k = (uint64_t)up(p->k, to);
    const int64_t lda = up((int)(p->a_along_k ? k : m), unit), ldb = up((int)(p->b_along_k ? k : n), unit),
                  ldc = to > 1 ? (p->f32 ? (int64_t)n : up((int)n, unit)) : p->ldc;
    cuda_pointer a = cuda_new((p->a_along_k ? m : k) * (size_t)lda * 2, NULL),
                 b = cuda_new((p->b_along_k ? n : k) * (size_t)ldb * 2, NULL), c = cuda_new(m * (size_t)ldc * 4, NULL),
                 w = cuda_new(WORKSPACE, NULL);
    lt_desc desc;
    lt_layout l[3];
    lt_preference preference;
    lt_choice choice[CHOICES];
    int got = 0;
    cuda_check(cuda.to_device(a, p->a, p->a_bytes), "A"), cuda_check(cuda.to_device(b, p->b, p->b_bytes), "B");
    cuda_check(lt.desc_new(&desc, LT_COMPUTE_F32, LT_F32), "cublasLtMatmulDescCreate");
    lt.desc_set(desc, LT_DESC_TRANSA, &left, sizeof left), lt.desc_set(desc, LT_DESC_TRANSB, &right, sizeof right);
    lt.layout_new(&l[0], LT_BF16, p->a_along_k ? k : m, p->a_along_k ? m : k, lda);
    lt.layout_new(&l[1], LT_BF16, p->b_along_k ? k : n, p->b_along_k ? n : k, ldb);
    lt.layout_new(&l[2], p->f32 ? LT_F32 : LT_BF16, n, m, ldc);
    lt.preference_new(&preference);
    lt.preference_set(preference, LT_PREF_WORKSPACE, &workspace, sizeof workspace);
    cuda_check(lt.heuristic(handle, desc, l[1], l[0], l[2], l[2], preference, CHOICES, choice, &got), "heuristic");
    *first = *fastest = INFINITY;
    for (int i = 0; i < got; i++) {
        if (choice[i].state) continue;
        float ms[3];
        for (int round = -1; round < 3; round++) {
            cuda_clock(0);
            for (int r = 0; r < RUNS; r++)
                cuda_check(lt.matmul(handle, desc, &one, b, l[1], a, l[0], &none, c, l[2], c, l[2], &choice[i].algo, w,
                                     WORKSPACE, NULL),
                           "cublasLtMatmul");
            const float t = cuda_clock(1) / RUNS;
            if (round >= 0) ms[round] = t;
        }
        qsort(ms, 3, sizeof *ms, by_value);
        if (isinf(*first)) *first = (double)ms[1] * 1e3;
        *fastest = fmin(*fastest, (double)ms[1] * 1e3);
    }
    lt.preference_free(preference), lt.desc_free(desc);
    for (int i = 0; i < 3; i++) lt.layout_free(l[i]);
    cuda.release(a), cuda.release(b), cuda.release(c), cuda.release(w);
}

static double time_ours(problem *p)
{
    float ms[ROUNDS];
    const built f = build(p);
    for (int round = -1; round < ROUNDS; round++) {
        cuda_clock(0);
        for (int r = 0; r < RUNS; r++) run_ours(&f, p, multiprocessors, 0);
        const float t = cuda_clock(1) / RUNS;
        if (round >= 0) ms[round] = t;
    }
    qsort(ms, ROUNDS, sizeof *ms, by_value);
    return (double)ms[ROUNDS / 2] * 1e3;
}

/* splits: the choice of device/cuda/gemm_hopper.c; others are timed beside it. */
static void time_one(const char *what, int m, int n, int k, int form, int add, int splits, int64_t ldc)
{
    problem p = problem_new(m, n, k, form & 1, form >> 1 & 1, form >> 2 & 1, add, splits, ldc, UNIT);
    double first, fastest, first8, fastest8, ours = time_ours(&p);
    time_library(&p, 1, UNIT, &first, &fastest), time_library(&p, 8, UNIT, &first8, &fastest8);
    const double flop = 2e-6 * m * (double)n * k;
    printf("%-12s %5d x %5d x %5d, %c%c %s%s, us (TFLOP/s): cuBLASLt %.1f (%.0f), fastest %.1f (%.0f); at multiples of "
           "8 %.1f (%.0f), "
           "fastest %.1f (%.0f); ours in %d parts %.1f (%.0f)",
           what, m, n, k, p.a_along_k ? 'a' : '-', p.b_along_k ? 'b' : '-', p.f32 ? "f32" : "bf16", add ? " +=" : "",
           first, flop / first, fastest, flop / fastest, first8, flop / first8, fastest8, flop / fastest8, p.splits,
           ours, flop / ours);
    for (int other = 1; splits > 1 && other <= MOST_PARTS; other++) {
        p.splits = other;
        if (other != splits) printf(", %d: %.1f", other, time_ours(&p));
    }
    printf("\n");
    problem_free(&p);
}

/* cuBLASLt and ours at extents that are multiples of 8, with rows that begin between two sectors of 32 bytes, and on them. */
static void time_sectors(int m, int n, int k, int form, int splits)
{
    double us[2][3];
    for (int i = 0; i < 2; i++) {
        problem p =
            problem_new(m, n, k, form & 1, form >> 1 & 1, form >> 2 & 1, 0, splits, form & 4 ? n : 0, i ? 16 : 8);
        time_library(&p, 8, i ? 16 : 8, &us[i][0], &us[i][1]);
        us[i][2] = time_ours(&p);
        problem_free(&p);
    }
    printf("sectors      %5d x %5d x %5d, form %d: cuBLASLt %.1f, fastest %.1f, ours %.1f; rows on 32 bytes %.1f, "
           "%.1f, %.1f\n",
           m, n, k, form, us[0][0], us[0][1], us[0][2], us[1][0], us[1][1], us[1][2]);
}

static void time_all(void)
{
    enum { A = 1, B = 2, F32 = 4 };
    time_one("qkv", 16343, 2079, 693, A | B, 0, 1, 0);
    time_one("proj", 16343, 693, 693, A | B, 0, 1, 0);
    time_one("fc2", 16343, 693, 2772, A | B, 0, 1, 0);
    time_one("fc2 dx", 16343, 2772, 693, A, 0, 1, 0);
    time_one("fc dx", 16343, 693, 2772, A, 0, 1, 0);
    time_one("fc dw", 2772, 693, 16343, F32, 0, 3, 693);
    time_one("fc2 dw", 693, 2772, 16343, F32, 0, 4, 2772);
    time_one("proj dw", 693, 693, 16343, F32, 0, 5, 693);
    time_one("head", 16343, 65, 693, A | B, 0, 1, 72);
    time_one("head dx", 16343, 693, 65, A, 0, 1, 0);
    time_one("head dw", 65, 693, 16343, F32, 0, 16, 693);
    time_one("qkv, bias", 14316, 1755, 585, A | B | F32, 0, 1, 1756);
    time_one("head", 1790, 50257, 585, A | B, 0, 1, 0);
    time_one("head dx", 1790, 585, 50257, A, 0, 7, 0);
    time_one("head dw", 50257, 585, 1790, F32, AN_HGEMM_IN_PLACE, 1, 585);
    time_one("head", 1024, 50257, 880, A | B, 0, 1, 0);
    time_one("head dx", 1024, 880, 50257, A, 0, 3, 0);
    time_one("head dw", 50257, 880, 1024, F32, AN_HGEMM_IN_PLACE, 1, 880);
    time_one("fc", 16384, 7600, 1900, A | B | F32, 0, 1, 7600);
    time_one("fc2 dx", 16384, 7600, 1900, A, 0, 1, 7600);
    time_one("fc dw", 7600, 1900, 16384, F32, 0, 1, 1900);
    time_one("proj dw", 1900, 1900, 16384, F32, 0, 2, 1900);
    time_one("char head", 16384, 65, 384, A | B, 0, 1, 72);
    time_one("char head dx", 16384, 384, 65, A, 0, 1, 384);
    time_one("char head dw", 65, 384, 16384, F32, 0, 32, 384);
    time_one("rows only", 16343, 768, 768, A | B, 0, 1, 0);
    time_one("rows only dw", 768, 768, 16343, F32, 0, 5, 768);
    time_sectors(8192, 1560, 520, A | B, 1);
    time_sectors(8192, 2080, 520, A, 1);
    time_sectors(8192, 520, 2080, A, 1);
    time_sectors(2080, 520, 8192, F32, 4);
    time_sectors(32670, 3960, 1320, A | B, 1);
    time_sectors(32670, 1320, 5280, A, 1);
    time_sectors(5280, 1320, 32670, F32, 1);
    time_one("all even", 65536, 3072, 768, A | B, 0, 1, 0);
}

/* Any argument: the times alone. */
int main(int argc, char **argv)
{
    (void)argv;
    if (!hopper_begin()) return 0;
    const int wrong = argc > 1 ? 0 : check_all();
    printf("%s\n", wrong ? "WRONG" : "all right");
    time_all();
    return wrong != 0;
}
