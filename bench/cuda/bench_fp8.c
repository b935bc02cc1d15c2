/* bench_fp8.c: what a step of GPT-2 would save if the products of its MLP and its head multiplied in fp8: the bill that was drawn
 * up before building any of it (bench/cuda/README.md, "fp8 on Hopper").
 *
 *     build/bench/cuda/bench_fp8
 *
 *     y  [m,n] = x [m,k] W [n,k]^T         x, W in e4m3
 *     dx [m,k] = g [m,n] W [n,k]           g in e5m2, W transposed
 *     dw [n,k] = g [m,n]^T x [m,k]         g and x transposed: Hopper multiplies fp8 only along rows of both operands
 *
 * So x, W and g are each read in bf16 and written in fp8 twice, as they lie and transposed, with their largest value for the next
 * step's scale: the casts of the bill. Products are cuBLASLt's, with the fastest of its algorithms; "fast" sums are never moved from
 * the tensor cores, which keep fewer bits of them, to f32. All ways of a product are timed in turn, and compared with bf16's result. */
#include "bench_library.h"

#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHOICES = 8, REPEATS = 10, ROUNDS = 3, WORKSPACE = 64 << 20, SAMPLE = 1 << 20, THREADS = 256, TILE = 128 };
enum { LT_E4M3 = 28, LT_E5M2 = 29 };                                         /* cudaDataType */
enum { LT_DESC_SCALE_A = 17, LT_DESC_SCALE_B = 18, LT_DESC_FAST_SUMS = 25 }; /* cublasLtMatmulDescAttributes */
enum { BF16, FP8, FAST, WAYS };                                              /* of a product */
static const float MOST[2] = {448, 57344};                                   /* of e4m3, e5m2 */

/* A thread casts 8 rows of 8 columns, transposes their bytes in registers, and the block's 128 x 128 in shared memory, where chunk
 * r of 8 rows of a column is stored at chunk r ^ (column / 8): no two of the chunks that are stored or loaded at a time share a bank. */
static const char *const CAST =
    "typedef unsigned u32;\n"
    "__device__ u32 turn(u32 a, u32 b, u32 how) { return __byte_perm(a, b, how); }\n"
    "template <bool GRADIENT> __device__ u32 two(u32 x, float scale)\n"
    "{\n"
    "    const float low = __uint_as_float(x << 16) * scale, high = __uint_as_float(x & 0xffff0000u) * scale;\n"
    "    unsigned short y;\n"
    "    if (GRADIENT) asm(\"cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;\" : \"=h\"(y) : \"f\"(high), \"f\"(low));\n"
    "    else asm(\"cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;\" : \"=h\"(y) : \"f\"(high), \"f\"(low));\n"
    "    return y;\n"
    "}\n"
    "template <bool GRADIENT> __device__ void cast(const uint4 *x, uint2 *rows, uint4 *across, u32 *most, int m, int "
    "n, float "
    "scale)\n"
    "{\n"
    "    __shared__ __align__(16) unsigned char tile[128 * 128];\n"
    "    const int c = threadIdx.x % 16, r = threadIdx.x / 16, row = blockIdx.y * 128 + 8 * r, column = blockIdx.x * "
    "128 + 8 * "
    "c;\n"
    "    const bool in = row < m && column < n;\n"
    "    uint4 w[8];\n"
    "    u32 low[8], high[8], top = 0;\n"
    "    #pragma unroll\n"
    "    for (int i = 0; i < 8; i++) w[i] = in ? x[((long long)(row + i) * n + column) / 8] : make_uint4(0, 0, 0, 0);\n"
    "    #pragma unroll\n"
    "    for (int i = 0; i < 8; i++) {\n"
    "        const u32 word[4] = {w[i].x, w[i].y, w[i].z, w[i].w};\n"
    "        #pragma unroll\n"
    "        for (int j = 0; j < 4; j++) asm(\"max.bf16x2 %0, %0, %1;\" : \"+r\"(top) : \"r\"(word[j] & "
    "0x7fff7fffu));\n"
    "        low[i] = two<GRADIENT>(w[i].x, scale) | two<GRADIENT>(w[i].y, scale) << 16;\n"
    "        high[i] = two<GRADIENT>(w[i].z, scale) | two<GRADIENT>(w[i].w, scale) << 16;\n"
    "        if (in) rows[((long long)(row + i) * n + column) / 8] = make_uint2(low[i], high[i]);\n"
    "    }\n"
    "    #pragma unroll\n"
    "    for (int half = 0; half < 2; half++) {\n"
    "        const u32 *a = half ? high : low;\n"
    "        u32 y[4][2];\n"
    "        #pragma unroll\n"
    "        for (int side = 0; side < 2; side++) {\n"
    "            const u32 *b = a + 4 * side, t0 = turn(b[0], b[1], 0x5140), t1 = turn(b[2], b[3], 0x5140),\n"
    "                      t2 = turn(b[0], b[1], 0x7362), t3 = turn(b[2], b[3], 0x7362);\n"
    "            y[0][side] = turn(t0, t1, 0x5410), y[1][side] = turn(t0, t1, 0x7632);\n"
    "            y[2][side] = turn(t2, t3, 0x5410), y[3][side] = turn(t2, t3, 0x7632);\n"
    "        }\n"
    "        #pragma unroll\n"
    "        for (int j = 0; j < 4; j++)\n"
    "            *(uint2 *)(tile + (8 * c + 4 * half + j) * 128 + 8 * (r ^ c)) = make_uint2(y[j][0], y[j][1]);\n"
    "    }\n"
    "    __syncthreads();\n"
    "    #pragma unroll\n"
    "    for (int i = 0; i < 4; i++) {\n"
    "        const int at = i * 32 + threadIdx.x / 8, chunk = threadIdx.x % 8, of = at / 8, to = blockIdx.x * 128 + "
    "at;\n"
    "        const uint4 y = *(const uint4 *)(tile + at * 128 + 16 * (chunk ^ (of >> 1)));\n"
    "        const int first = blockIdx.y * 128 + 16 * chunk;\n"
    "        if (to < n && first < m)\n"
    "            across[((long long)to * m + first) / 16] = of & 1 ? make_uint4(y.z, y.w, y.x, y.y) : y;\n"
    "    }\n"
    "    u32 largest = max(top & 0xffffu, top >> 16);\n"
    "    for (int step = 16; step; step >>= 1) largest = max(largest, __shfl_xor_sync(~0u, largest, step));\n"
    "    if (threadIdx.x % 32 == 0) atomicMax(most, largest << 16);\n"
    "}\n"
    "extern \"C\" __global__ void __launch_bounds__(256) cast_e4m3(const uint4 *x, uint2 *rows, uint4 *across, u32 "
    "*most, int m, "
    "int n, float scale) { cast<false>(x, rows, across, most, m, n, scale); }\n"
    "extern \"C\" __global__ void __launch_bounds__(256) cast_e5m2(const uint4 *x, uint2 *rows, uint4 *across, u32 "
    "*most, int m, "
    "int n, float scale) { cast<true>(x, rows, across, most, m, n, scale); }\n";

typedef struct operand {
    cu_pointer bf16, rows, across, scale; /* scale: what fp8 is multiplied by, in memory */
    bool gradient;
} operand;
typedef struct side { /* of a product: an operand, and whether rows of bf16 lie along the sum, and those of fp8 */
    const operand *of;
    bool along_k, across;
} side;
typedef struct way {
    lt_desc desc;
    lt_layout l[3];
    cu_pointer at[2];
    lt_choice choice[CHOICES];
    float us[CHOICES];
    int got;
} way;
typedef struct bill {                         /* milliseconds of a step */
    double product[WAYS], cast, fused, other; /* fused: of the casts, where the kernel before may write fp8 itself */
} bill;

static cu_function cast_kernel[2];
static operand x, w, g;
static cu_pointer y[WAYS], most, workspace;
static int wrong; /* a product has no algorithm, or another result */

static cu_pointer memory_new(size_t bytes)
{
    cu_pointer p;
    ok(cu.memory_new(&p, bytes), "cuMemAlloc");
    return p;
}

static void clock_at(int end)
{
    ok(cu.event_record(event[end], stream, 0), "cuEventRecord");
}
static float clock_us(void)
{
    float ms = 0;
    ok(cu.stream_wait(stream), "cuStreamSynchronize");
    ok(cu.event_ms(&ms, event[0], event[1]), "cuEventElapsedTime");
    return 1e3f * ms / REPEATS;
}

/* An operand of at most n elements, of which a part of PART is repeated: drawing takes longer than copying. */
static operand operand_new(size_t n, bool gradient, uint32_t seed)
{
    enum { PART = (1 << 22) - 64 };
    operand o = {memory_new(2 * n), memory_new(n), memory_new(n), memory_new(4), gradient};
    const float scale = 1 / MOST[gradient];
    uint16_t *host = malloc(2 * (size_t)PART);
    if (!host) die("no memory", 0);
    for (size_t i = 0; i < PART; i++) { /* nearer to a normal distribution than to a flat one */
        float sum = 0;
        for (int part = 0; part < 4; part++)
            sum += (float)(an_rng_u32(1, seed, 4 * i + (size_t)part) % 2001) * 2.5e-4f - 0.25f;
        memcpy(&host[i], (const uint8_t *)&sum + 2, 2);
    }
    for (size_t at = 0; at < n; at += PART)
        ok(cu.to_device(o.bf16 + 2 * at, host, 2 * (n - at < PART ? n - at : PART), stream), "cuMemcpyHtoD");
    ok(cu.to_device(o.scale, &scale, sizeof scale, stream), "cuMemcpyHtoD");
    ok(cu.stream_wait(stream), "cuStreamSynchronize");
    free(host);
    return o;
}

/* Casts an operand [m,n]; microseconds. */
static float cast(const operand *o, int m, int n)
{
    float best = 0, scale = MOST[o->gradient];
    cu_pointer args_at[4] = {o->bf16, o->rows, o->across, most};
    void *args[] = {&args_at[0], &args_at[1], &args_at[2], &args_at[3], &m, &n, &scale};
    for (int round = 0; round <= ROUNDS; round++) {
        clock_at(0);
        for (int i = 0; i < REPEATS; i++)
            ok(cu.launch(cast_kernel[o->gradient], (unsigned)((n + TILE - 1) / TILE), (unsigned)((m + TILE - 1) / TILE),
                         1, THREADS, 1, 1, 0, stream, args, NULL),
               "cuLaunchKernel");
        clock_at(1);
        const float us = clock_us();
        if (round == 1 || (round && us < best)) best = us;
    }
    return best;
}

static void matmul(const way *v, int choice, cu_pointer out)
{
    const float one = 1, zero = 0;
    ok(lt.matmul(handle, v->desc, &one, v->at[1], v->l[1], v->at[0], v->l[0], &zero, out, v->l[2], out, v->l[2],
                 &v->choice[choice].algo, workspace, WORKSPACE, stream),
       "cublasLtMatmul");
}

/* C[m,n] = A B^T, summed over k; matrices are column-major to the library, whose left operand is therefore our B. */
static void way_new(way *v, int which, const side s[2], int64_t m, int64_t n, int64_t k)
{
    const int64_t rows[2] = {m, n};
    const uint64_t room = WORKSPACE;
    const int8_t fast = which == FAST;
    lt_preference preference;
    *v = (way){0};
    ok(lt.desc_new(&v->desc, LT_COMPUTE_F32, LT_F32), "description");
    for (int i = 0; i < 2; i++) {
        const operand *o = s[i].of;
        const bool along_k = which != BF16 || s[i].along_k;
        const int32_t op = along_k == (i == 1) ? LT_OP_T : LT_OP_N;
        ok(lt.desc_set(v->desc, i ? LT_DESC_TRANSA : LT_DESC_TRANSB, &op, sizeof op), "transposition");
        if (which != BF16)
            ok(lt.desc_set(v->desc, i ? LT_DESC_SCALE_A : LT_DESC_SCALE_B, &o->scale, sizeof o->scale), "scale");
        ok(lt.layout_new(&v->l[i],
                         which == BF16 ? LT_BF16
                         : o->gradient ? LT_E5M2
                                       : LT_E4M3,
                         (uint64_t)(along_k ? k : rows[i]), (uint64_t)(along_k ? rows[i] : k), along_k ? k : rows[i]),
           "layout");
        v->at[i] = which == BF16 ? o->bf16 : s[i].across ? o->across : o->rows;
    }
    if (which != BF16) ok(lt.desc_set(v->desc, LT_DESC_FAST_SUMS, &fast, sizeof fast), "sums");
    ok(lt.layout_new(&v->l[2], LT_BF16, (uint64_t)n, (uint64_t)m, n), "layout");
    ok(lt.preference_new(&preference), "preference");
    ok(lt.preference_set(preference, LT_PREF_WORKSPACE, &room, sizeof room), "workspace");
    ok(lt.heuristic(handle, v->desc, v->l[1], v->l[0], v->l[2], v->l[2], preference, CHOICES, v->choice, &v->got),
       "heuristic");
    lt.preference_free(preference);
}

/* |fp8 - bf16| / |bf16| over the first of a product's elements. */
static double difference(cu_pointer a, cu_pointer b, size_t n)
{
    static uint16_t host[2][SAMPLE];
    double apart = 0, all = 0;
    if (n > SAMPLE) n = SAMPLE;
    ok(cu.to_host(host[0], a, 2 * n, stream), "cuMemcpyDtoH");
    ok(cu.to_host(host[1], b, 2 * n, stream), "cuMemcpyDtoH");
    ok(cu.stream_wait(stream), "cuStreamSynchronize");
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits[2] = {(uint32_t)host[0][i] << 16, (uint32_t)host[1][i] << 16};
        float v[2];
        memcpy(v, bits, sizeof v);
        apart += ((double)v[0] - (double)v[1]) * ((double)v[0] - (double)v[1]), all += (double)v[1] * (double)v[1];
    }
    return sqrt(apart / all);
}

/* Times a product in bf16 and, unless `plain`, in fp8; adds `times` of it to the bill. */
static void product(const char *what, const char *part, const side s[2], int64_t m, int64_t n, int64_t k, bool plain,
                    int times, bill *b)
{
    static way v[WAYS];
    const int ways = plain ? FP8 : WAYS;
    int first[WAYS] = {0};
    for (int which = 0; which < ways; which++) way_new(&v[which], which, s, m, n, k);
    for (int round = 0; round < ROUNDS; round++)
        for (int which = 0; which < ways; which++)
            for (int i = 0; i < v[which].got; i++) {
                if (v[which].choice[i].state) continue;
                matmul(&v[which], i, y[which]);
                clock_at(0);
                for (int r = 0; r < REPEATS; r++) matmul(&v[which], i, y[which]);
                clock_at(1);
                const float us = clock_us();
                if (!round || us < v[which].us[i]) v[which].us[i] = us;
                if (v[which].us[i] < v[which].us[first[which]]) first[which] = i;
            }
    printf("%-12s %-3s %6lld x %6lld x %6lld", what, part, (long long)m, (long long)n, (long long)k);
    for (int which = 0; which < ways; which++) {
        if (!v[which].got) {
            printf("  no algorithm");
            wrong = 1;
            continue;
        }
        const double us = (double)v[which].us[first[which]];
        printf("  %8.1f us %5.0f", us, 2e-6 * (double)m * (double)n * (double)k / us);
        if (!plain) b->product[which] += times * us * 1e-3;
        if (plain) b->other += times * us * 1e-3;
        if (which == BF16) continue;
        const double e = difference(y[which], y[BF16], (size_t)(m * n));
        printf(" (%4.2f, error %.3f%s)", (double)v[BF16].us[first[BF16]] / us, e, e < 0.1 ? "" : " WRONG");
        wrong |= !(e < 0.1);
    }
    printf("\n");
    for (int which = 0; which < ways; which++) {
        for (int i = 0; i < 3; i++) lt.layout_free(v[which].l[i]);
        lt.desc_free(v[which].desc);
    }
}

/* A linear layer that stays in bf16, or goes to fp8. fuse: of x, g, where the kernel before it reads and writes them anyway. */
static void layer(const char *what, int m, int n, int k, bool plain, const bool fuse[2], int times, bill *b)
{
    const side xs = {&x, true, false}, ws = {&w, true, false}, gs = {&g, true, false};
    const side w_across = {&w, false, true}, x_across = {&x, false, true}, g_across = {&g, false, true};
    if (!plain) {
        const float us[3] = {cast(&x, m, k), cast(&w, n, k), cast(&g, m, n)};
        const int64_t elements[3] = {(int64_t)m * k, (int64_t)n * k, (int64_t)m * n};
        printf("%-12s casts x %.1f us (%.2f TB/s), W %.1f (%.2f), g %.1f (%.2f)\n", what, (double)us[0],
               4e-6 * (double)elements[0] / (double)us[0], (double)us[1], 4e-6 * (double)elements[1] / (double)us[1],
               (double)us[2], 4e-6 * (double)elements[2] / (double)us[2]);
        b->cast += times * 1e-3 * (double)(us[0] + us[1] + us[2]);
        b->fused += times * 1e-3 * (double)((fuse[0] ? us[0] : 0) + (fuse[1] ? us[2] : 0));
    }
    product(what, "y", (side[2]){xs, ws}, m, n, k, plain, times, b);
    product(what, "dx", (side[2]){gs, w_across}, m, k, n, plain, times, b);
    product(what, "dw", (side[2]){g_across, x_across}, n, k, m, plain, times, b);
}

/* GPT-2 of a width: `rows` tokens, the head in chunks of 4096 of them. step_ms: as measured, 0: not. */
static void model(const char *what, int width, int layers, int rows, double step_ms)
{
    enum { VOCABULARY = 50304, CHUNK = 4096 };
    static const bool none[2] = {false, false}, gelu_gradient[2] = {false, true}, gelu[2] = {true, false},
                      loss[2] = {false, true};
    bill b = {0};
    printf("\n%s: width %d, %d layers, %d tokens; microseconds, TFLOP/s in bf16, fp8, fp8 with fast sums\n", what,
           width, layers, rows);
    layer("up", rows, 4 * width, width, false, gelu_gradient, layers, &b);
    layer("down", rows, width, 4 * width, false, gelu, layers, &b);
    layer("head", CHUNK, VOCABULARY, width, false, loss, rows / CHUNK, &b);
    layer("qkv", rows, 3 * width, width, true, none, layers, &b);
    layer("projection", rows, width, width, true, none, layers, &b);
    const double all = b.product[BF16] + b.other, step = step_ms > 0 ? step_ms : all;
    printf("%s: MLP and head in bf16 %.2f ms, fp8 %.2f, fast %.2f; casts %.2f, of which %.2f may be fused; all "
           "products in bf16 %.2f\n",
           what, b.product[BF16], b.product[FP8], b.product[FAST], b.cast, b.fused, all);
    printf("%s, %s %.1f ms: saved", what, step_ms > 0 ? "a step of" : "of its products in bf16,", step);
    for (int which = FP8; which < WAYS; which++) {
        const double saved = b.product[BF16] - b.product[which],
                     net[3] = {saved - b.cast, saved - b.cast + b.fused, saved};
        printf("%s", which == FAST ? "; with fast sums" : "");
        for (int i = 0; i < 3; i++)
            printf(" %s %.2f ms (%.1f %%: %.3f times as fast)",
                   i == 0   ? "casts apart"
                   : i == 1 ? ", fused"
                            : ", free",
                   net[i], 100 * net[i] / step, step / (step - net[i]));
    }
    printf("\n");
}

static void kernels_new(int version)
{
    an_err err = {0};
    an_nvrtc c;
    nvrtc_program p = NULL;
    cu_module module;
    size_t n = 0;
    static const char *const flag[] = {"--gpu-architecture=sm_90a", "--std=c++17"};
    if (an_nvrtc_find(&err, version, &c) != AN_OK) die(err.text, 0);
    ok(c.program_new(&p, CAST, "cast.cu", 0, NULL, NULL), "nvrtcCreateProgram");
    if (c.compile(p, 2, flag)) {
        static char log[1 << 16];
        if (!c.log_bytes(p, &n) && n < sizeof log) c.log(p, log);
        die(log, 0);
    }
    ok(c.cubin_bytes(p, &n), "nvrtcGetCUBINSize");
    char *image = malloc(n);
    if (!image) die("no memory", 0);
    ok(c.cubin(p, image), "nvrtcGetCUBIN");
    ok(cu.module_load(&module, image), "cuModuleLoadData");
    ok(cu.module_function(&cast_kernel[0], module, "cast_e4m3"), "cast_e4m3");
    ok(cu.module_function(&cast_kernel[1], module, "cast_e5m2"), "cast_e5m2");
    free(image);
}

int main(void)
{
    char name[128] = "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    const cu_device device = open_library("bench_fp8");
    kernels_new(cu.version / 1000);
    const size_t largest = (size_t)4096 * 50304;
    x = operand_new((size_t)16384 * 4096, false, 1), w = operand_new((size_t)4096 * 50304, false, 2),
    g = operand_new(largest, true, 3);
    for (int i = 0; i < WAYS; i++) y[i] = memory_new(2 * largest);
    most = memory_new(4), workspace = memory_new(WORKSPACE);
    ok(cu.fill(most, 0, 4, stream), "cuMemsetD8");
    cu.device_name(name, sizeof name, device);
    printf("cuBLASLt %zu, %s\n", lt.library_version, name);
    model("gpt2-medium, B16", 1024, 24, 16384, 77);
    model("gpt2-xl, B4", 1600, 48, 4096, 101);
    model("width 4096", 4096, 8, 4096, 0);
    return wrong;
}
