/* cpu_kernels.c: the tables of the instruction sets, and which of them this processor can run.
 *
 * Owns:      the list, best first. AN_HAVE_ISA_x comes from the build: the sets that src/kernels/cpu was compiled for.
 * Invariant: a table is returned by `find` only if every instruction in it can be executed here. */
#if !defined(_GNU_SOURCE) && defined(__linux__)
#define _GNU_SOURCE /* syscall */
#endif
#include "kernels/cpu_kernels.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

#define DECLARE_PRODUCTS(isa)                                                                                          \
    double an_##isa##_fma_peak(an_pool *p, uint8_t mul_dtype, double seconds);                                         \
    size_t an_##isa##_gemm_or_conv_scratch(const an_gemm_spec *s, int threads);                                        \
    bool an_##isa##_gemm_repacks(const an_gemm_spec *s);                                                               \
    bool an_##isa##_conv_planes(const an_gemm_spec *s);                                                                \
    void an_##isa##_gemm_or_conv(const an_gemm_spec *s, void *const *args, void *scratch, const an_epilogue *epi,      \
                                 an_pool *p);                                                                          \
    size_t an_##isa##_attn_scratch(const an_attn_spec *s, bool backward, int threads);                                 \
    void an_##isa##_attn_forward(const an_attn_spec *s, void *const *args, const float *const *tables, void *scratch,  \
                                 an_pool *p);                                                                          \
    void an_##isa##_attn_backward(const an_attn_spec *s, void *const *args, const float *const *tables, void *scratch, \
                                  an_pool *p);

#define DECLARE_REST(isa)                                                                                              \
    void an_##isa##_scatter(const an_scatter_spec *s, void *const *args, an_pool *p);                                  \
    void an_##isa##_pool_max_grad(const an_pool_grad *s, int64_t unit, void *scratch);                                 \
    void an_##isa##_draw(const an_init_spec *d, int64_t first, int64_t n, void *out);

/* Tile registers speed up matrix products and attention: such a table takes the rest from another set, declared before it. */
#define TABLE_OF(isa, rest, dot, tiles)                                                                                \
    DECLARE_PRODUCTS(isa)                                                                                              \
    static const an_cpu_kernels table_##isa = {                                                                        \
        #isa,                                                                                                          \
        dot,                                                                                                           \
        tiles,                                                                                                         \
        an_##isa##_fma_peak,                                                                                           \
        an_##isa##_gemm_or_conv_scratch,                                                                               \
        an_##isa##_gemm_repacks,                                                                                       \
        an_##isa##_conv_planes,                                                                                        \
        an_##isa##_gemm_or_conv,                                                                                       \
        an_##isa##_attn_scratch,                                                                                       \
        an_##isa##_attn_forward,                                                                                       \
        an_##isa##_attn_backward,                                                                                      \
        an_##rest##_scatter,                                                                                           \
        an_##rest##_pool_max_grad,                                                                                     \
        an_##rest##_draw,                                                                                              \
    };
#define TILE_TABLE(isa, rest, dot) TABLE_OF(isa, rest, dot, true)
#define TABLE(isa, dot)            DECLARE_REST(isa) TABLE_OF(isa, isa, dot, false)

#ifdef AN_HAVE_ISA_avx512bf16
TABLE(avx512bf16, true)
#endif
#ifdef AN_HAVE_ISA_amx
TILE_TABLE(amx, avx512bf16, true)
#endif
#ifdef AN_HAVE_ISA_avx512
TABLE(avx512, false)
#endif
#ifdef AN_HAVE_ISA_avx2
TABLE(avx2, false)
#endif
#ifdef AN_HAVE_ISA_neon
TABLE(neon, false)
#endif
TABLE(portable, false)
TILE_TABLE(amx_emulated, portable, false)

static const an_cpu_kernels *const TABLES[] = {
#ifdef AN_HAVE_ISA_amx
    &table_amx,
#endif
#ifdef AN_HAVE_ISA_avx512bf16
    &table_avx512bf16,
#endif
#ifdef AN_HAVE_ISA_avx512
    &table_avx512,
#endif
#ifdef AN_HAVE_ISA_avx2
    &table_avx2,
#endif
#ifdef AN_HAVE_ISA_neon
    &table_neon,
#endif
    &table_portable,   &table_amx_emulated, /* for tests, and for the bits of a run that began on tile registers */
};

#if defined(__x86_64__)
typedef struct x86_features {
    bool avx2, avx512, bf16, amx; /* each with all its kernels are compiled for, and registers that the system saves */
} x86_features;

/* Linux saves tile registers, 8 KiB at a context switch, only for programs that asked; the answer holds for all threads. */
static bool tiles_permitted(void)
{
#ifdef __linux__
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}

/* Asked of the processor itself: the compilers' own question needs a runtime library that zig's does not have. Bits:
 * Intel, "Software Developer's Manual", volume 2, CPUID and XGETBV. */
static x86_features x86_ask(void)
{
    enum { FMA = 1 << 12, OSXSAVE = 1 << 27, AVX = 1 << 28, F16C = 1 << 29 };       /* leaf 1, ecx */
    enum { AVX2 = 1 << 5, BMI2 = 1 << 8, F = 1 << 16, DQ = 1 << 17, BW = 1 << 30 }; /* leaf 7, ebx; VL is the sign */
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AMX = AMX_BF16 | AMX_TILE };     /* leaf 7, edx */
    enum { BF16 = 1 << 5, YMM = 6, ZMM = 0xE6, ONE = FMA | OSXSAVE | AVX | F16C };  /* leaf 7.1, eax; XCR0 */
    enum { TILES = 3 << 17 };                                                       /* XCR0 */
    unsigned a, b, c, d, seven_b = 0, seven_d = 0, more_a = 0, saved, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & ONE) != ONE) return (x86_features){0};
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    if (__get_cpuid_count(7, 0, &a, &seven_b, &c, &seven_d) && a >= 1) __get_cpuid_count(7, 1, &more_a, &b, &c, &d);
#ifdef __APPLE__
    saved |= ZMM; /* macOS begins to save them when a program first uses them */
#endif
    x86_features f = {.avx2 = (saved & YMM) == YMM && (seven_b & AVX2) && (seven_b & BMI2)};
    f.avx512 = f.avx2 && (saved & ZMM) == ZMM && (seven_b & F) && (seven_b & DQ) && (seven_b & BW) && seven_b >> 31;
    f.bf16 = f.avx512 && (more_a & BF16);
    f.amx = f.bf16 && (seven_d & AMX) == AMX && (saved & TILES) == TILES && tiles_permitted();
    return f;
}
#endif

static bool runnable(const an_cpu_kernels *t)
{
#if defined(__x86_64__)
    const x86_features f = x86_ask();
    if (!strcmp(t->isa, "avx2")) return f.avx2;
    if (!strcmp(t->isa, "avx512")) return f.avx512;
    if (!strcmp(t->isa, "avx512bf16")) return f.bf16;
    if (!strcmp(t->isa, "amx")) return f.amx;
#endif
    (void)t; /* NEON is part of every arm64 */
    return true;
}

const an_cpu_kernels *an_cpu_kernels_find(const char *name)
{
    for (size_t i = 0; i < AN_COUNT(TABLES); i++)
        if ((!name || !strcmp(name, TABLES[i]->isa)) && runnable(TABLES[i])) return TABLES[i];
    return NULL;
}

const an_cpu_kernels *const *an_cpu_kernels_all(int *n)
{
    *n = (int)AN_COUNT(TABLES);
    return TABLES;
}
