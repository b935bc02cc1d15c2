/* gpu_module.c: tile sizes of attention, and the texts of modules; see gpu_module.h. A module is, in this order:
 *
 *     #define lines (the tiles)  |  dialect/cuda.h or msl.h  |  base/exact.h  |  then one of
 *         loop kernel:    dialect/loops_gpu.h, the rendered kernel
 *         GEMM, attention:  dialect/tiles.h, the struct of arguments, dropout_mask.h (attention), a fused epilogue (GEMM),
 *                           the template's body
 *         library call:   dialect/float64.h, dialect/library_calls.h, the struct of arguments, the template's body
 */
#include "codegen/gpu_module.h"

#include "codegen/gpu_choose.h"
#include "codegen/gpu_launch.h"
#include "codegen/gpu_library_calls.h"
#include "codegen/kernel_comment.h"
#include "codegen/render.h"

#include <stdlib.h>
#include <string.h>

extern const char an_embed_exact[], an_embed_dialect_tiles_h[], an_embed_dialect_loops_gpu_h[],
    an_embed_dialect_float64_h[], an_embed_dialect_library_calls_h[];
extern const char an_embed_gemm_inc[], an_embed_gemm_args_h[], an_embed_attn_args_h[], an_embed_dropout_mask_h[],
    an_embed_attn_bf16_inc[], an_embed_attn_tf32_inc[], an_embed_attn_forward_inc[], an_embed_attn_backward_inc[],
    an_embed_attn_hopper_inc[], an_embed_attn_decode_inc[], an_embed_attn_hopper_backward_inc[],
    an_embed_attn_short_inc[], an_embed_attn_tf32_hopper_inc[];
extern const char an_embed_conv_bf16_inc[], an_embed_gemm_rows_inc[];

enum {
    DECODE_THREADS = 512,
    DECODE_MANY = 264 /* heads */,
    MOST_USERS = 8
}; /* steps that are named above a shared text */

/* ---------------------------------------------------------------------------------------------- attention */

static int attn_shared(const an_tiles *t, int each, bool grad, const an_gpu *gpu)
{
    const int rows = t->threads / 2, dp = (t->d + 15) / 16 * 16, met = gpu->no_shuffles ? 4 * t->threads : 0;
    if (grad)
        return met + 2 * an_tile_bytes(rows, dp, each) + an_tile_bytes(t->cols, t->dc, each) +
               an_tile_bytes(rows, t->cols, 4) + (t->bias ? 12 : 8) * t->cols;
    return met + an_tile_bytes(rows, dp, each) + an_tile_bytes(AN_ATTN_KEYS, t->dc, each) +
           an_tile_bytes(rows, AN_ATTN_KEYS, 4) + 32 * rows;
}

/* What all bodies take, but for grouped heads. */
static bool is_plain(const an_attn_spec *s)
{
    return !s->masked && !s->window;
}

bool an_module_attn_hopper(const an_attn_spec *s, const an_gpu *gpu)
{
    return an_gpu_fast(gpu) && gpu->arch_specific == 90 && s->dtype == AN_BF16 && s->mul_dtype == AN_BF16 &&
           s->D >= 8 && s->D <= AN_HOPPER_MOST_COLUMNS && s->T >= 64 &&
           s->S >= 64 && /* shorter sequences do not fill a tile */
           (!s->masked || AN_HOPPER_CHUNKS(s->D) <= AN_HOPPER_MOST_BIASED);
}
int an_module_attn_pass(const an_attn_spec *s, bool grad)
{
    const int64_t heads = (int64_t)s->B * s->H;
    const bool five = is_plain(s) && an_attn_group(s) == 1;
    return grad        ? five ? AN_HOPPER_BACK(heads, s->T, s->D) : AN_DKV_PASS
           : s->window ? AN_FORWARD_PASS
                       : AN_HOPPER_FORWARD_OF(heads, s->T, s->D);
}
bool an_module_attn_short(const an_attn_spec *s, const an_gpu *gpu)
{
    return an_module_attn_hopper(s, gpu) && is_plain(s) && an_attn_group(s) == 1 && s->D == AN_SHORT_COLUMNS &&
           s->T == s->S && s->T <= AN_SHORT_MOST && s->dropout == 0 &&
           (int64_t)s->B * s->H > 2 * AN_HOPPER_GRID; /* fewer do not fill the GPU */
}
/* Arguments that are read one number at a time: forward the dropout's seed and the number of keys, and a mask. */
enum { RNG = 3, N_KEYS = 6 };
static bool is_number(int arg, bool grad)
{
    return grad ? arg == AN_ATTN_GRAD_MASK : arg == RNG || arg == N_KEYS || arg == AN_ATTN_MASK;
}

/* Rows of 16-byte accesses, as far as the shapes tell. */
static bool attn_wide(const an_attn_spec *s, bool grad)
{
    const int64_t *const stride[] = {s->q, s->k, s->v, s->o, s->do_, s->dq, s->dk, s->dv};
    bool wide = s->D % 8 == 0;
    for (size_t i = 0; i < (grad ? AN_COUNT(stride) : 4); i++) wide &= an_multiples_of_8(stride[i], 3);
    return wide;
}
bool an_module_attn_packed(const an_attn_spec *s, bool grad)
{
    return !attn_wide(s, grad);
}

bool an_module_attn_mask(const an_attn_spec *s, bool grad)
{
    return s->dropout > 0 && !(grad && AN_HOPPER_CHUNKS(s->D) == 1 && an_module_attn_pass(s, true) == AN_SHARED_PASS) &&
           AN_MASK_ONE((int64_t)s->B * s->H, s->T, s->S) <= (int64_t)1 << 28;
}

/* AN_BIAS of attn_hopper.inc. */
static int attn_bias(const an_attn_spec *s, const an_arg *mask)
{
    if (s->mask[3] != 1) return 1;
    if (s->mask[2] == 0) return 3;
    return s->mask[0] % 2 || s->mask[1] % 2 || s->mask[2] % 2 || mask->offset % 8 ? 1 : 2;
}

static const char *choose_attn(const an_kernel *k, const an_arg *arg, int n_args, const an_gpu *gpu, an_tiles *t)
{
    const an_attn_spec *const s = &k->u.attn;
    const bool grad = k->kind == AN_KERNEL_ATTN_GRAD;
    static const int threads[] = {128, 64, 32}, chunks[] = {64, 48, 32, 16};
    const int mul = s->mul_dtype == AN_F16 ? AN_F32 : s->mul_dtype, each = an_operand_bytes(gpu, mul),
              dp = (s->D + 15) / 16 * 16;
    const bool tf32 = mul == AN_F32 && (gpu->tf32 || (s->mul_dtype == AN_F16 && an_gpu_fast(gpu)));
    *t = (an_tiles){.module = grad ? AN_MODULE_ATTN_GRAD : AN_MODULE_ATTN,
                    .store = an_kind_text((an_dtype)s->dtype),
                    .mul = tf32 ? "TF32" : an_kind_text((an_dtype)mul),
                    .exact = mul == AN_F32 && !an_gpu_fast(gpu),
                    .d = s->D,
                    .causal = s->causal,
                    .dropout = s->dropout > 0,
                    .group = an_attn_group(s),
                    .bias = s->masked,
                    .sliding = s->window > 0,
                    .cols = s->D <= 32 ? 64 : 32};
    if (!t->store) return "float64 attention has no GPU template";
    bool wide = attn_wide(s, grad);
    for (int i = 0; i < n_args; i++) wide &= an_starts_on_16(&arg[i]) || is_number(i, grad);
    t->vec = wide ? 8 : 1;
    const bool plain = is_plain(s);
    if (gpu->decode && !grad && wide && s->T == 1 && s->dropout == 0 && plain) {
        t->body = AN_BODY_DECODE;
        t->threads =
            s->B * s->H < DECODE_MANY ? DECODE_THREADS : DECODE_THREADS / 4; /* the shape decides, for the bits */
        t->bm = 1;
        t->dc = 16; /* unused, as are bn and cols */
        return NULL;
    }
    const bool all_keys = grad || n_args <= N_KEYS || arg[N_KEYS].slot < 0;
    if (k->rotated && !wide) return "rotated attention of rows that do not lie on 16 bytes";
    if (k->rotated || (an_module_attn_short(s, gpu) && wide && all_keys)) {
        t->body = k->rotated ? AN_BODY_ROTATED : AN_BODY_SHORT;
        t->cols = (s->T + 15) / 16 * 16;
        t->threads = AN_SHORT_THREADS(t->cols);
        t->dc = 16; /* unused, as are bm and bn */
        return NULL;
    }
    if (an_module_attn_hopper(s, gpu) && (wide || an_module_attn_packed(s, grad))) {
        t->body = AN_BODY_HOPPER;
        t->threads = 128;
        t->bm = 64;
        t->bn = 128 / 8;
        t->bk = an_module_attn_pass(s, grad);
        if (s->masked) t->bias = attn_bias(s, &arg[grad ? AN_ATTN_GRAD_MASK : AN_ATTN_MASK]);
        t->mask = an_module_attn_mask(s, grad);
        t->dc = 16; /* unused, as is bm */
        t->cols = 64;
        return NULL;
    }
    if (an_gpu_fast(gpu) && wide && plain && s->dtype == AN_BF16 && s->mul_dtype == AN_BF16 && s->D % 16 == 0 &&
        s->D <= 128) {
        t->body = AN_BODY_BF16;
        t->threads = 128;
        t->bm = grad ? 64 : 128;
        t->bn = 128 / 8;
        t->dc = 16; /* unused */
        t->cols = s->D <= 64 ? 64 : 32;
        return NULL;
    }
    if (an_gpu_fast(gpu) && tf32 && wide && plain && t->group == 1 && s->dtype == AN_F32 && s->D <= 128) {
        const int64_t heads = (int64_t)s->B * s->H;
        const bool hopper = gpu->arch_specific == 90 && s->D <= AN_TF32_HOPPER_MOST &&
                            (!grad || AN_TF32_HOPPER_BACK(heads, s->T, s->S));
        t->body = hopper ? AN_BODY_TF32_HOPPER : AN_BODY_TF32;
        t->threads = 128;
        t->bm = 64;
        t->bn = 128 / 8;
        t->bk = grad && (hopper || AN_TF32_WHOLE(heads, s->T, s->S, s->D)); /* one kernel for dq, dk and dv */
        t->dc = 16;                                                         /* unused */
        t->cols = hopper || s->D > 32 ? 32 : 64;
        if (s->D > 64) t->cols = 16;
        return NULL;
    }
    for (size_t i = s->D > 128    ? 2
                    : s->D >= 128 ? 1
                                  : 0;
         i < AN_COUNT(threads); i++) /* wide heads need more registers, so fewer threads */
        for (size_t c = 0; c < AN_COUNT(chunks); c++) {
            t->threads = threads[i];
            t->dc = chunks[c];
            t->bm = t->threads / 2;
            t->bn = t->threads / 16;
            if (dp % t->dc == 0 && attn_shared(t, each, grad, gpu) <= gpu->dialect->shared_bytes) return NULL;
        }
    return "the head is too large for this GPU's shared memory; use more heads";
}

/* Whether a launch of the plan writes what argument `arg` of a step reads. */
static bool is_written(const an_plan *p, const an_arg *arg)
{
    for (int32_t i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->step[i].n_args; k++) {
            const an_arg *out = &p->step[i].arg[k];
            if (out->written && out->slot == arg->slot && out->offset < arg->offset + arg->bytes &&
                arg->offset < out->offset + out->bytes)
                return true;
        }
    return arg->slot == AN_SLOT_ARENA; /* whose scratch is no argument */
}

/* Which texts can begin while the launch before still runs: those of a drawn token, and loop kernels. */
static bool can_follow(const an_kernel *k, const an_tiles *t)
{
    return t->module == AN_MODULE_LOOP || t->rows || t->body == AN_BODY_DECODE || t->module == AN_MODULE_DRAW ||
           k->kind == AN_KERNEL_ROW_UPDATE;
}

static const char *tiles_of_kernel(const an_plan *p, const an_plan_step *s, const an_gpu *gpu, an_tiles *out)
{
    const an_kernel *k = &p->kernel[s->kernel];
    const an_loop_kernel *tail = s->epilogue >= 0 ? p->kernel[s->epilogue].u.loop : NULL;
    const char *why = tail ? an_render_gpu_refusal(tail, gpu->dialect) : NULL;
    if (why) return why;
    switch (k->kind) {
    case AN_KERNEL_LOOP:
        *out = (an_tiles){.module = AN_MODULE_LOOP, .store = "F32", .mul = "F32", .exact = !an_gpu_fast(gpu), .vec = 1};
        return an_render_gpu_refusal(k->u.loop, gpu->dialect);
    case AN_KERNEL_GEMM: return an_choose_gemm(&k->u.gemm, s->arg, gpu, out);
    case AN_KERNEL_ATTN:
    case AN_KERNEL_ATTN_GRAD: return choose_attn(k, s->arg, s->n_args, gpu, out);
    case AN_KERNEL_SCATTER:
    case AN_KERNEL_ROW_UPDATE:
    case AN_KERNEL_CALL: return an_gpu_call_tiles(k, gpu, out);
    case AN_KERNEL_ZERO:
    case AN_KERNEL_COPY: return "the driver fills and copies memory";
    default: return "there is no GPU template for it yet";
    }
}

const char *an_module_tiles(const an_plan *p, const an_plan_step *s, const an_gpu *gpu, an_tiles *out)
{
    const char *why = tiles_of_kernel(p, s, gpu, out);
    if (!why && out->module == AN_MODULE_SCAN_POOL && !an_step_aligned(s)) out->vec = 1;
    if (why || !gpu->follow || !can_follow(&p->kernel[s->kernel], out)) return why;
    out->follow = 1;
    out->early = out->rows && !is_written(p, &s->arg[1]);
    return NULL;
}

/* ---------------------------------------------------------------------------------------------- texts */

static bool is_short(const an_tiles *t)
{
    return t->body == AN_BODY_SHORT || t->body == AN_BODY_ROTATED;
}

static void defines(const an_tiles *t, an_text *out)
{
    an_text_printf(out, "#define AN_MUL AN_KIND_%s\n#define AN_EXACT %d\n", t->mul, t->exact);
    if (t->follow) an_text_puts(out, "#define AN_FOLLOW 1\n");
    if (t->module == AN_MODULE_LOOP) return;
    if (t->module >= AN_MODULE_SCATTER) {
        an_gpu_call_defines(t, out);
        return;
    }
    an_text_printf(out, "#define AN_STORE AN_KIND_%s\n#define AN_VEC %d\n#define AN_THREADS %d\n", t->store, t->vec,
                   t->threads);
    if (t->window) an_text_printf(out, "#define AN_WINDOW %d\n", t->window);
    if (t->sums == AN_SUMS_CONV_BF16) an_text_puts(out, "#define AN_FAST 1\n");
    if (t->sums == AN_SUMS_DIRECT) an_text_puts(out, "#define AN_DIRECT 1\n");
    if (t->rows)
        an_text_printf(out, "#define AN_ROWS %d\n#define AN_DEEP %d\n#define AN_EARLY %d\n", t->rows, t->deep,
                       t->early);
    if (t->module == AN_MODULE_GEMM)
        an_text_printf(
            out,
            "#define AN_STORE_B AN_KIND_%s\n#define AN_STORE_C AN_KIND_%s\n#define AN_BM %d\n#define AN_BN %d\n#define "
            "AN_BK %d\n#define "
            "AN_SUBGROUPS_M %d\n#define AN_SUBGROUPS_N %d\n#define AN_A_ALONG_K %d\n#define AN_B_ALONG_K %d\n",
            t->store_b, t->store_c, t->bm, t->bn, t->bk, t->subgroups_m, t->subgroups_n, t->a_along_k, t->b_along_k);
    else
        an_text_printf(
            out, "#define AN_D %d\n#define AN_DC %d\n#define AN_CAUSAL %d\n#define AN_DROPOUT %d\n#define AN_COLS %d\n",
            t->d, t->dc, t->causal, t->dropout, t->cols);
    if (t->bias) an_text_printf(out, "#define AN_BIAS %d\n", t->bias);
    if (t->sliding) an_text_puts(out, "#define AN_SLIDING 1\n");
    if (t->group > 1) an_text_printf(out, "#define AN_GROUP %d\n", t->group);
    if (t->body) an_text_printf(out, "#define AN_FORWARD %d\n", t->module == AN_MODULE_ATTN);
    if (is_short(t)) an_text_printf(out, "#define AN_SHORT 1\n#define AN_ROTATED %d\n", t->body == AN_BODY_ROTATED);
    if (t->body == AN_BODY_HOPPER)
        an_text_printf(out, "#define AN_HOPPER 1\n#define AN_HOPPER_PASS %d\n#define AN_MASK %d\n", t->bk, t->mask);
    if (t->body == AN_BODY_TF32 || t->body == AN_BODY_TF32_HOPPER)
        an_text_printf(out, "#define AN_HOPPER %d\n#define AN_WHOLE %d\n", t->body == AN_BODY_TF32_HOPPER, t->bk);
}

static const char *args_text(an_gpu_module m)
{
    return m >= AN_MODULE_SCATTER ? an_gpu_call_args_text(m)
           : m == AN_MODULE_GEMM  ? an_embed_gemm_args_h
                                  : an_embed_attn_args_h;
}
static const char *body_text(an_gpu_module m, int body)
{
    return body == AN_BODY_BF16 || body >= AN_BODY_HOPPER        ? an_embed_attn_bf16_inc
           : body == AN_BODY_TF32 || body == AN_BODY_TF32_HOPPER ? an_embed_attn_tf32_inc
           : body == AN_BODY_DECODE                              ? an_embed_attn_decode_inc
           : m >= AN_MODULE_SCATTER                              ? an_gpu_call_body_text(m)
           : m == AN_MODULE_GEMM                                 ? an_embed_gemm_inc
           : m == AN_MODULE_ATTN                                 ? an_embed_attn_forward_inc
                                                                 : an_embed_attn_backward_inc;
}

/* The output among arguments [first, first + n) of the step that input i lies in the memory of, -1. In place means the
 * same range and the same type (an_may_alias); nothing else may overlap an output. */
static int output_under(const an_plan_step *s, const an_loop_kernel *loop, int first, int i)
{
    const an_arg *in = &s->arg[first + i];
    if (in->written || in->slot < 0 || in->bytes == 0) return -1;
    for (int o = 0; o < loop->n_args; o++) {
        const an_arg *out = &s->arg[first + o];
        if (out->written && out->slot == in->slot && out->offset == in->offset && out->bytes == in->bytes) return o;
    }
    return -1;
}

an_aliases an_step_aliases(const an_plan *p, const an_plan_step *s, const an_gpu *gpu)
{
    an_aliases aliases;
    memset(aliases.output, -1, sizeof aliases.output);
    const int first = s->epilogue >= 0 ? s->n_gemm_args : 0;
    const an_kernel *k = &p->kernel[s->epilogue >= 0 ? s->epilogue : s->kernel];
    if (!gpu->dialect->no_aliasing || k->kind != AN_KERNEL_LOOP) return aliases;
    for (int i = 0; i < k->u.loop->n_args; i++) aliases.output[i] = (int8_t)output_under(s, k->u.loop, first, i);
    return aliases;
}

void an_render_module(const an_plan *p, const an_plan_step *s, const an_gpu *gpu, const char *name, an_text *out)
{
    an_tiles t;
    const an_aliases aliases = an_step_aliases(p, s, gpu);
    if (an_module_tiles(p, s, gpu, &t)) {
        out->failed = true;
        return;
    }
    if (gpu->plain)
        an_text_puts(out, gpu->no_shuffles ? "#define AN_PLAIN 1\n#define AN_SHUFFLES 0\n" : "#define AN_PLAIN 1\n");
    if (gpu->dialect->vector_access && t.module == AN_MODULE_LOOP)
        an_text_printf(out, "#define AN_ALIGNED %d\n", an_step_aligned(s));
    defines(&t, out);
    an_text_puts(out, gpu->dialect->header);
    an_text_puts(out, an_embed_exact);
    if (t.module == AN_MODULE_LOOP || s->epilogue >= 0) an_text_puts(out, an_embed_dialect_loops_gpu_h);
    if (t.module == AN_MODULE_LOOP) {
        an_render_gpu(p->kernel[s->kernel].u.loop, name, gpu, &aliases, false, out);
        return;
    }
    if (t.module >= AN_MODULE_SCATTER) {
        an_text_puts(out, an_embed_dialect_float64_h);
        an_text_puts(out, an_embed_dialect_library_calls_h);
    } else {
        an_text_puts(out, an_embed_dialect_tiles_h);
    }
    an_text_puts(out, args_text(t.module));
    if (t.module == AN_MODULE_ATTN || t.module == AN_MODULE_ATTN_GRAD) an_text_puts(out, an_embed_dropout_mask_h);
    if (s->epilogue >= 0) an_render_gpu(p->kernel[s->epilogue].u.loop, "an_gemm_epilogue", gpu, &aliases, false, out);
    if (t.sums == AN_SUMS_CONV_BF16) an_text_puts(out, an_embed_conv_bf16_inc);
    an_text_puts(out, body_text(t.module, t.body));
    if (t.rows) an_text_puts(out, an_embed_gemm_rows_inc);
    if (is_short(&t)) an_text_puts(out, an_embed_attn_short_inc);
    if (t.body == AN_BODY_TF32_HOPPER) an_text_puts(out, an_embed_attn_tf32_hopper_inc);
    if (t.body != AN_BODY_HOPPER) return;
    an_text_puts(out, an_embed_attn_hopper_inc);
    if (t.module == AN_MODULE_ATTN_GRAD) an_text_puts(out, an_embed_attn_hopper_backward_inc);
}

/* ---------------------------------------------------------------------------------------------- listing of a plan */

static void describe(const an_plan *p, const an_plan_step *s, an_text *out)
{
    const an_kernel *k = &p->kernel[s->kernel];
    if (k->kind == AN_KERNEL_GEMM) {
        const an_gemm_spec *g = &k->u.gemm;
        an_text_printf(out, "/* %s: C[%d,%d] = A[%d,%d] B[%d,%d]", k->name, g->m, g->n, g->m, g->k, g->k, g->n);
        if (g->nb[0] * g->nb[1] * g->nb[2] > 1) an_text_printf(out, ", %d of them", g->nb[0] * g->nb[1] * g->nb[2]);
        if (g->splits > 1) an_text_printf(out, ", k split in %d", g->splits);
        if (g->window.of)
            an_text_printf(out, ", %s a window of %d x %d", g->window.of == AN_WINDOW_A ? "A" : "B", g->window.taps[0],
                           g->window.taps[1]);
    } else if (k->kind == AN_KERNEL_SCATTER) {
        const an_scatter_spec *c = &k->u.scatter;
        an_text_printf(out, "/* %s: %lld rows of %lld into %lld", k->name, (long long)c->n, (long long)c->c,
                       (long long)c->rows);
    } else if (k->kind == AN_KERNEL_ROW_UPDATE) {
        const an_row_update_spec *u = &k->u.row_update;
        an_text_printf(out, "/* %s: %lld rows of %lld, each one of %lld", k->name, (long long)u->outer,
                       (long long)u->inner, (long long)u->rows);
    } else if (k->kind == AN_KERNEL_CALL) {
        const an_call_tensor *x = &k->u.call.src[0];
        an_text_printf(out, "/* %s: %s of [", k->name, an_ops[k->u.call.op].name);
        for (int i = 0; i < x->rank; i++) an_text_printf(out, i ? ",%d" : "%d", x->shape[i]);
        an_text_puts(out, "]");
    } else {
        const an_attn_spec *a = &k->u.attn;
        an_text_printf(out, "/* %s: q [%d,%d,%d,%d], k v [%d,%d,%d,%d]%s", k->name, a->B, a->H, a->T, a->D, a->B,
                       a->H / an_attn_group(a), a->S, a->D, a->causal ? ", causal" : "");
        if (k->rotated) an_text_puts(out, ", rotated");
        if (a->masked) an_text_puts(out, ", masked");
        if (a->window) an_text_printf(out, ", window %d", a->window);
        if (a->dropout > 0) an_text_printf(out, ", dropout %g", (double)a->dropout);
    }
    an_text_puts(out, "; ");
    an_render_cost(s->flops, s->bytes, out);
    an_text_puts(out, " */\n");
}

/* The first step in [from, to) whose module has the same text as step `like`'s, -1: none. Extents are run-time
 * arguments, so that many GEMMs share one module. */
static int32_t same_module(const an_plan *p, int32_t from, int32_t to, const an_gpu *gpu, int32_t like)
{
    _Static_assert(sizeof(an_tiles) == 4 * sizeof(char *) + 30 * sizeof(int), "compared as bytes");
    an_tiles t, o;
    if (an_module_tiles(p, &p->step[like], gpu, &t)) return -1;
    for (int32_t i = from; i < to; i++) {
        const an_plan_step *s = &p->step[i];
        bool row = p->kernel[s->kernel].kind == AN_KERNEL_LOOP;
        if (!row && s->epilogue == p->step[like].epilogue && !an_module_tiles(p, s, gpu, &o) &&
            !memcmp(&o, &t, sizeof o))
            return i;
    }
    return -1;
}

static void template_step(const an_plan *p, int32_t step, const an_gpu *gpu, bool *body_used, an_text *out)
{
    const an_plan_step *s = &p->step[step];
    an_tiles t;
    const char *why = an_module_tiles(p, s, gpu, &t);
    if (why) {
        for (int32_t i = 0; i < step; i++)
            if (p->step[i].kernel == s->kernel) return;
        an_text_printf(out, "/* %s: no kernel: %s */\n\n", p->kernel[s->kernel].name, why);
        return;
    }
    if (same_module(p, 0, step, gpu, step) >= 0) return;
    int users = 0;
    for (int32_t i = step; i >= 0 && users < MOST_USERS; i = same_module(p, i + 1, p->n_steps, gpu, step), users++)
        describe(p, &p->step[i], out);
    if (users == MOST_USERS) an_text_puts(out, "/* and perhaps more */\n");
    defines(&t, out);
    const an_aliases aliases = an_step_aliases(p, s, gpu);
    if (s->epilogue >= 0)
        an_render_gpu(p->kernel[s->epilogue].u.loop, p->kernel[s->epilogue].name, gpu, &aliases, true, out);
    an_text_puts(out, "\n");
    body_used[t.module] = true;
}

static void c_kernels(const an_plan *p, an_text *out)
{
    for (int k = 0; k < p->n_kernels; k++) {
        if (!p->kernel[k].text) continue;
        an_render_c(p->kernel[k].u.loop, p->kernel[k].name, true, out);
        an_text_puts(out, "\n");
    }
}

void an_render_plan(const char *dialect, const an_plan *p, an_text *out)
{
    const an_gpu gpu = {.dialect = an_dialect_find(dialect), .version = 300};
    if (!gpu.dialect || !gpu.dialect->header) {
        if (gpu.dialect)
            c_kernels(p, out);
        else
            out->failed = true;
        return;
    }
    bool body_used[AN_N_MODULES] = {false}, *printed = calloc((size_t)p->n_kernels + 1, sizeof *printed);
    if (!printed) {
        out->failed = true;
        return;
    }
    for (int32_t s = 0; s < p->n_steps; s++) {
        int32_t k = p->step[s].kernel;
        if (p->kernel[k].kind != AN_KERNEL_LOOP) {
            template_step(p, s, &gpu, body_used, out);
        } else if (!printed[k] && p->step[s].fallback) {
            an_render_c(p->kernel[k].u.loop, p->kernel[k].name, true, out);
            an_text_puts(out, "\n");
            printed[k] = true;
        } else if (!printed[k]) {
            const an_aliases aliases = an_step_aliases(p, &p->step[s], &gpu);
            an_render_gpu(p->kernel[k].u.loop, p->kernel[k].name, &gpu, &aliases, true, out);
            an_text_puts(out, "\n");
            printed[k] = true;
        }
    }
    free(printed);
    for (int u = AN_MODULE_GEMM; u < AN_N_MODULES; u++)
        if (body_used[u]) an_text_puts(out, body_text((an_gpu_module)u, AN_BODY_PORTABLE));
}
