/* templates.c: the tables of the instruction sets, and which of them this processor can run.
 *
 * Owns:      the list, best first. AN_HAVE_ISA_x comes from the build: the sets that src/device/cpu/tmpl was compiled
 * for. Invariant: a table is handed out by `find` only if every instruction in it can be executed here. */
#include "device/cpu/templates.h"

#include <string.h>

#define DECLARE(isa)                                                                                                   \
    double an_##isa##_fma_peak(an_pool *p, uint8_t mul_dtype, double seconds);                                         \
    size_t an_##isa##_gemm_scratch(const an_gemm_spec *s, int threads);                                                \
    void an_##isa##_gemm(const an_gemm_spec *s, void *const *args, void *scratch, an_epilogue_fn epi, void *user,      \
                         an_pool *p);                                                                                  \
    size_t an_##isa##_attn_scratch(const an_attn_spec *s, bool backward, int threads);                                 \
    void an_##isa##_attn_forward(const an_attn_spec *s, void *const *args, void *scratch, an_pool *p);                 \
    void an_##isa##_attn_backward(const an_attn_spec *s, void *const *args, void *scratch, an_pool *p);                \
    void an_##isa##_scatter(const an_scatter_spec *s, void *const *args, an_pool *p);                                  \
    void an_##isa##_draw(const an_draw *d, int64_t first, int64_t n, void *out);

#define TABLE(isa, dot)                                                                                                \
    DECLARE(isa)                                                                                                       \
    static const an_cpu_templates table_##isa = {                                                                      \
        #isa,                                                                                                          \
        dot,                                                                                                           \
        an_##isa##_fma_peak,                                                                                           \
        an_##isa##_gemm_scratch,                                                                                       \
        an_##isa##_gemm,                                                                                               \
        an_##isa##_attn_scratch,                                                                                       \
        an_##isa##_attn_forward,                                                                                       \
        an_##isa##_attn_backward,                                                                                      \
        an_##isa##_scatter,                                                                                            \
        an_##isa##_draw,                                                                                               \
    };

#ifdef AN_HAVE_ISA_avx512bf16
TABLE(avx512bf16, true)
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

static const an_cpu_templates *const TABLES[] = {
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
    &table_portable,
};

static bool runnable(const an_cpu_templates *t)
{
#if defined(__x86_64__)
    /* __builtin_cpu_supports also asks whether the system saves the wide registers */
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("avx");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if (!strcmp(t->isa, "avx2")) return avx2;
    if (!strcmp(t->isa, "avx512")) return avx512;
    if (!strcmp(t->isa, "avx512bf16")) return avx512 && __builtin_cpu_supports("avx512bf16");
#endif
    (void)t; /* NEON is part of every arm64 */
    return true;
}

const an_cpu_templates *an_cpu_templates_find(const char *name)
{
    for (size_t i = 0; i < AN_COUNT(TABLES); i++)
        if ((!name || !strcmp(name, TABLES[i]->isa)) && runnable(TABLES[i])) return TABLES[i];
    return NULL;
}

const an_cpu_templates *const *an_cpu_templates_all(int *n)
{
    *n = (int)AN_COUNT(TABLES);
    return TABLES;
}
