/* dtypes.c: names, sizes, rounding and reading of each dtype: where to begin with a new one.
 *
 * To add a dtype: its name in an_dtype (include/anneal.h), then
 *     1. a row here and in every other table [AN_N_DTYPES] (grep finds them: graph/fold.c and build.c, codegen/, io/formats/safetensors.c);
 *        names of files and settings: io/formats/torch_file.c, torch_write.c, npy.c, io/config/config.c
 *     2. its conversions in base/exact.h, for the C and GPU dialects alike
 *     3. loads and stores: render_c.c and render_gpu_instr.c (codegen/), interpreter.c and library_calls.c (device/cpu/),
 *        fill_initial.c (kernels/cpu/), oracle_eval.c (runtime/); rounding in double: round_to in oracle/oracle.c
 *     4. which hand-written kernels take it, and as what: gemm_pack.h, gemm_im2col.h, attn.c, attn_tile.h, scatter.c (kernels/cpu/),
 *        gpu_module.c (codegen/), gemm_cublaslt.c (device/cuda/), and the planner that offers it to them: node_queries.c,
 *        lower_gemm.c, lower_conv.c, lower_attention.c
 *     5. where formulas widen it to f32: an_wide in compose.c, sum_dtype in compose_nn.c, an_attention_at in compose_attention.c
 *     6. tolerances: oracle/kernel_oracle.c; test rows: tests/ops
 *     7. what ranks add: comm/add.c, type_of in device/cuda/nccl.c; what other programs' files call it: import/archive.c,
 *        models/gpt/gpt_weights.c
 * A dtype with no kernel of its own stops after 3: formulas, casts, loop kernels and library calls then have it. */
#include "graph/build.h"

#include "base/exact.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    uint8_t bytes;
} dtypes[AN_N_DTYPES] = {
    [AN_F32] = {"float32", 4}, [AN_BF16] = {"bfloat16", 2}, [AN_F16] = {"float16", 2}, [AN_F64] = {"float64", 8},
    [AN_I32] = {"int32", 4},   [AN_I64] = {"int64", 8},     [AN_U8] = {"uint8", 1},    [AN_BOOL] = {"bool", 1}};

const char *an_dtype_name(an_dtype t)
{
    return (unsigned)t < AN_N_DTYPES ? dtypes[t].name : "?";
}

size_t an_dtype_bytes(an_dtype t)
{
    return (unsigned)t < AN_N_DTYPES ? dtypes[t].bytes : 0;
}

bool an_dtype_is_float(an_dtype t)
{
    return t == AN_F32 || t == AN_BF16 || t == AN_F16 || t == AN_F64;
}

bool an_dtype_is_int(an_dtype t)
{
    return t == AN_I32 || t == AN_I64 || t == AN_U8;
}

const char *an_dtype_text(an_dtype t)
{
    return an_dtype_name(t);
}

size_t an_dtype_size(an_dtype t)
{
    return an_dtype_bytes(t);
}

bool an_dtype_parse(const char *name, an_dtype *out)
{
    static const struct {
        const char *name;
        an_dtype t;
    } also[] = {{"f32", AN_F32}, {"fp32", AN_F32}, {"bf16", AN_BF16}, {"f16", AN_F16}, {"fp16", AN_F16},
                {"f64", AN_F64}, {"i32", AN_I32},  {"i64", AN_I64},   {"u8", AN_U8}};
    for (int t = 0; name && t < AN_N_DTYPES; t++)
        if (!strcmp(name, an_dtype_name((an_dtype)t))) {
            *out = (an_dtype)t;
            return true;
        }
    for (size_t i = 0; name && i < AN_COUNT(also); i++)
        if (!strcmp(name, also[i].name)) {
            *out = also[i].t;
            return true;
        }
    return false;
}

/* To `digits` significant bits, nearest even, gradual underflow below 2^least, infinity from `top` (what would round to
 * 2^(greatest+1)). */
static double round_bits(double x, int digits, int least, double top)
{
    if (x == 0 || !isfinite(x)) return x;
    if (fabs(x) >= top) return copysign(INFINITY, x);
    int e = AN_MAX(ilogb(x), least);
    return ldexp(rint(ldexp(x, digits - 1 - e)), e - (digits - 1));
}

double an_round_to(an_dtype t, double x)
{
    switch (t) {
    case AN_F32: return (double)(float)x;
    case AN_BF16: return round_bits((double)(float)x, 8, -126, 0x1.FFp127);
    case AN_F16: return round_bits((double)(float)x, 11, -14, 65520.0);
    default: return x;
    }
}

int64_t an_wrap_to(an_dtype t, int64_t i)
{
    switch (t) {
    case AN_I32: return (int64_t)(((uint64_t)i & 0xFFFFFFFFu) ^ 0x80000000u) - 0x80000000;
    case AN_U8: return i & 0xFF;
    case AN_BOOL: return i != 0;
    default: return i;
    }
}

double an_dtype_load(an_dtype t, const void *raw, int64_t at)
{
    switch (t) {
    case AN_F32: return (double)((const float *)raw)[at];
    case AN_F64: return ((const double *)raw)[at];
    case AN_BF16: return (double)an_bf16_to_f32(((const uint16_t *)raw)[at]);
    case AN_F16: return (double)an_f16_to_f32(((const uint16_t *)raw)[at]);
    case AN_I32: return ((const int32_t *)raw)[at];
    case AN_I64: return (double)((const int64_t *)raw)[at];
    default: return ((const uint8_t *)raw)[at];
    }
}
