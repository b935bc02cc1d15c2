/* cuda_modules.c: assembles the texts of the kernels around a GEMM on CUDA (casts, transposes, epilogues) and of those for
 * sm_90a. See cuda_modules.h. */
#include "codegen/cuda_modules.h"

extern const char an_embed_exact[], an_embed_dialect_cuda_h[], an_embed_dialect_loops_gpu_h[], an_embed_cast_inc[];
extern const char an_embed_dialect_hopper_h[], an_embed_gemm_hopper_args_h[], an_embed_gemm_hopper_inc[],
    an_embed_gemm_hopper_plain_inc[];
extern const char an_embed_transpose_args_h[], an_embed_transpose_inc[], an_embed_gemm_tf32_args_h[],
    an_embed_gemm_tf32_inc[];

static void prelude(an_text *out)
{
    an_text_puts(
        out,
        "#define AN_MUL AN_KIND_F32\n#define AN_EXACT 0\n"); /* in exact mode every GEMM is gemm.inc, and none of these kernels runs */
    an_text_puts(out, an_embed_dialect_cuda_h);
    an_text_puts(out, an_embed_exact);
    an_text_puts(out, an_embed_dialect_loops_gpu_h);
}

void an_render_epilogue_module(const an_plan *p, const an_plan_step *s, const char *name, an_dtype gemm_dtype,
                               an_text *out)
{
    an_text_printf(out, "#define AN_ALIGNED %d\n", an_step_aligned(s));
    prelude(out);
    an_render_gpu_epilogue_kernel(p->kernel[s->epilogue].u.loop, name, gemm_dtype, out);
}

static void hopper_prelude(bool pair, bool a_along_k, bool b_along_k, bool aligned, an_text *out)
{
    an_text_printf(out, "#define AN_PAIR %d\n#define AN_A_ALONG_K %d\n#define AN_B_ALONG_K %d\n#define AN_ALIGNED %d\n",
                   pair, a_along_k, b_along_k, aligned);
    prelude(out);
    an_text_puts(out, an_embed_dialect_hopper_h);
    an_text_puts(out, an_embed_gemm_hopper_args_h);
}

void an_render_gemm_module(const an_plan *p, const an_plan_step *s, bool b_along_k, bool aligned, an_text *out)
{
    hopper_prelude(false, true, b_along_k, aligned, out);
    an_render_gpu_fused_epilogue(p->kernel[s->epilogue].u.loop, out);
    an_text_puts(out, an_embed_gemm_hopper_inc);
}

void an_render_pair_module(const an_plan *p, const an_plan_step *s, int gemm, bool keep, bool narrow, bool a_along_k,
                           bool b_along_k, bool aligned, an_text *out)
{
    if (narrow) an_text_puts(out, "#define AN_NARROW\n");
    hopper_prelude(true, a_along_k, b_along_k, aligned, out);
    const an_loop_kernel *program = p->kernel[s->kernel].u.loop;
    if (an_render_gpu_can_pair(program, gemm) == AN_GPU_GATE)
        an_render_gpu_pair_epilogue(program, gemm, keep, out);
    else
        an_render_gpu_pair_gradient(program, gemm, out);
    an_text_puts(out, an_embed_gemm_hopper_inc);
}

void an_render_plain_gemm_module(bool a_along_k, bool b_along_k, bool f32, bool split, an_dtype bias, an_text *out)
{
    if (bias != AN_N_DTYPES) an_text_printf(out, "#define AN_BIAS %s\n", bias == AN_F32 ? "float" : "an_u16");
    hopper_prelude(false, a_along_k, b_along_k, false, out);
    an_text_printf(out, "#define AN_C_F32 %d\n#define AN_SPLIT %d\n", f32, split);
    an_text_puts(out, an_embed_gemm_hopper_plain_inc);
    an_text_puts(out, an_embed_gemm_hopper_inc);
}

void an_render_cast_module(an_dtype from, an_dtype to, an_text *out)
{
    static const char *const kind[AN_N_DTYPES] = {[AN_F32] = "F32", [AN_BF16] = "BF16", [AN_F16] = "F16"};
    prelude(out);
    an_text_printf(out,
                   "#define AN_FROM AN_KIND_%s\n#define AN_TO AN_KIND_%s\n#define AN_ITEMS %d\n#define AN_THREADS %d\n",
                   kind[from], kind[to], AN_CAST_ITEMS, AN_CAST_THREADS);
    an_text_puts(out, an_embed_cast_inc);
}

void an_render_transpose_module(an_text *out)
{
    prelude(out);
    an_text_puts(out, an_embed_transpose_args_h);
    an_text_puts(out, an_embed_transpose_inc);
}

void an_render_tf32_module(an_text *out)
{
    prelude(out);
    an_text_puts(out, an_embed_dialect_hopper_h);
    an_text_puts(out, an_embed_gemm_tf32_args_h);
    an_text_puts(out, an_embed_gemm_tf32_inc);
}
