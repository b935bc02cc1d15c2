/* lower_launches.c: lowers the steps of a plan to operations on the stream: kernels with their parameters, fills, copies,
 * convolutions of cuDNN, and GEMMs. A GEMM runs in one of five ways, with the casts and transposes that it needs in front:
 *
 *     fused    our sm_90a kernel, with the epilogue inside, or with the gated linear unit (SwiGLU)
 *              behind it, whose gate and up are halves of the result   (gemm_hopper.c decides)
 *     plain    the same kernel without an epilogue, where extents are no multiple of 8 (gemm_hopper.c decides)
 *     tf32     our sm_90a kernel for gradients of weights, split over k (gemm_cublaslt.c decides)
 *     library  cuBLASLt, then the epilogue as a kernel of its own       (gemm_cublaslt.c decides)
 *     template the portable gemm.inc, with the epilogue inside          (all others)
 *
 * Owns:      the list of operations and the texts of their kernels.
 * Does not:  decide the grid of a template (codegen/gpu_step.h), compile, or run anything.
 */
#include "device/cuda/graph_exec.h"
#include "codegen/cuda_modules.h"

#include <stdlib.h>
#include <string.h>

enum {
    OPS_A_STEP = AN_GPU_LAUNCHES + 4,
    NARROW_SHARED = AN_HGEMM_SHARED_OF(AN_HGEMM_NARROW_N, AN_HGEMM_NARROW_STAGES, AN_HGEMM_NARROW_WARPGROUPS)
};

/* ---------------------------------------------------------------------------------------------- modules */

const char *an_cuda_step_name(const an_plan *p, const an_plan_step *s)
{
    return p->kernel[s->kernel].name ? p->kernel[s->kernel].name : "a kernel";
}

/* The module with this text, added if it is new; takes ownership of the text. -1: no memory. */
static int32_t module_of(an_exec *e, an_text *text, bool fmad, const char *what)
{
    uint64_t known, key = text->data && !text->failed ? an_hash(text->data, text->len, fmad) : 0;
    if (text->failed || !text->data) goto fail;
    if (an_map_get(&e->seen, key, &known) && !strcmp(e->module[known].text, text->data)) {
        an_text_free(text);
        return (int32_t)known;
    }
    if (e->n_modules == e->cap_modules) {
        int32_t cap = AN_MAX(64, 2 * e->cap_modules);
        an_cuda_module *more = realloc(e->module, sizeof *more * (size_t)cap);
        if (!more) goto fail;
        e->module = more;
        e->cap_modules = cap;
    }
    if (!an_map_set(&e->seen, key, (uint64_t)e->n_modules)) goto fail;
    e->module[e->n_modules] = (an_cuda_module){.text = text->data, .fmad = fmad, .what = what};
    return e->n_modules++;
fail:
    an_text_free(text);
    return -1;
}

/* ---------------------------------------------------------------------------------------------- operations */

static stream_op *new_op(an_exec *e, op_kind kind, int32_t step, int n_refs)
{
    stream_op *c = &e->op[e->n_ops++];
    *c = (stream_op){.kind = (uint8_t)kind, .step = step, .n_refs = n_refs, .module = -1, .scratch = -1};
    c->refs = an_arena_alloc(&e->arena, sizeof *c->refs * (size_t)AN_MAX(n_refs, 1));
    return c->refs ? c : NULL;
}

static ref ref_of(const an_plan_step *s, int arg)
{
    const an_arg *a = &s->arg[arg];
    return a->slot < 0 ? (ref){.slot = REF_ANY} : (ref){a->slot, a->offset};
}
static ref in_scratch(const an_plan_step *s, int64_t at)
{
    return (ref){AN_SLOT_ARENA, s->scratch + at};
}

an_status an_cuda_no_memory_for_launches(an_err *err)
{
    return an_fail_nomem(err, "a plan's launches", sizeof(stream_op));
}

static an_status lower_template(an_err *err, an_exec *e, int32_t step, const an_gpu_step *g)
{
    const an_plan_step *s = &e->plan->step[step];
    an_text text = {0};
    an_tiles t = {0};
    an_module_tiles(e->plan, s, &e->gpu, &t);
    an_render_module(e->plan, s, &e->gpu, "row", &text);
    /* Contraction is for attention alone: elsewhere a value that is recomputed in another fusion must keep its bits. */
    bool fmad = !t.exact && (t.module == AN_MODULE_ATTN || t.module == AN_MODULE_ATTN_GRAD);
    int32_t module = module_of(e, &text, fmad, an_cuda_step_name(e->plan, s));
    void *params = g->params_bytes ? an_arena_copy(&e->arena, &g->params, g->params_bytes) : NULL;
    if (module >= 0) e->module[module].arch_specific = t.body == AN_BODY_HOPPER || t.body == AN_BODY_TF32_HOPPER;
    if (module < 0 || (g->params_bytes && !params)) return an_cuda_no_memory_for_launches(err);
    for (int l = 0; l < g->n_launches; l++) {
        const an_gpu_launch *launch = &g->launch[l];
        stream_op *c = new_op(e, OP_KERNEL, step, launch->n_binds);
        if (!c) return an_cuda_no_memory_for_launches(err);
        c->module = module;
        c->entry = launch->entry ? launch->entry : "row";
        memcpy(c->blocks, launch->blocks, sizeof c->blocks);
        c->threads = launch->threads;
        c->shared_bytes = launch->shared_bytes;
        c->params = params;
        c->follows = t.follow && e->n_ops > 1 && e->op[e->n_ops - 2].kind == OP_KERNEL;
        for (int b = 0; b < launch->n_binds; b++) {
            const an_gpu_binding *x = &launch->bind[b];
            c->refs[b] = x->kind == AN_BIND_ARG       ? ref_of(s, x->arg)
                         : x->kind == AN_BIND_SCRATCH ? in_scratch(s, x->offset)
                                                      : (ref){.slot = x->kind == AN_BIND_PARAMS ? REF_PARAMS : REF_ANY};
        }
    }
    return AN_OK;
}

/* Adds a kernel that is the only one in its text, with a grid of one thread block. Takes ownership of the text, and keeps
 * a copy of the parameters (NULL: it has none). NULL: no memory. */
static stream_op *new_kernel(an_exec *e, int32_t step, an_text *text, const char *what, const char *entry, int n_refs,
                             const void *params, size_t params_bytes)
{
    const int32_t module = module_of(e, text, false, what);
    void *kept = params ? an_arena_copy(&e->arena, params, params_bytes) : NULL;
    stream_op *c = module < 0 || (params && !kept) ? NULL : new_op(e, OP_KERNEL, step, n_refs);
    if (!c) return NULL;
    c->module = module;
    c->entry = entry;
    c->params = kept;
    c->blocks[0] = c->blocks[1] = c->blocks[2] = 1;
    return c;
}

static an_status lower_cast(an_err *err, an_exec *e, int32_t step, const an_gemm_plan *p, int which, int dtype)
{
    const an_plan_step *s = &e->plan->step[step];
    an_text text = {0};
    const int64_t to = p->cast_ld[which];
    const an_gemm_spec *g = &e->plan->kernel[s->kernel].u.gemm;
    const bool along_k = which ? p->b_along_k : p->a_along_k;
    const int rows = which ? g->n : g->m;
    const struct an_cast_rows_args {
        int rows, cols, from, to;
    } args = {along_k ? rows : g->k, along_k ? g->k : rows, (int)p->cast_from[which], (int)to};
    an_render_cast_module((an_dtype)dtype, (an_dtype)p->mul, &text);
    stream_op *c = to ? new_kernel(e, step, &text, "a cast", "cast_rows", 3, &args, sizeof args)
                      : new_kernel(e, step, &text, "a cast", "cast", 3, &p->span[which], sizeof p->span[which]);
    if (!c) return an_cuda_no_memory_for_launches(err);
    c->blocks[0] = (uint32_t)an_ceil_div(p->span[which], (int64_t)AN_CAST_ITEMS * AN_CAST_THREADS);
    c->threads = AN_CAST_THREADS;
    c->refs[0] = ref_of(s, which);
    c->refs[1] = in_scratch(s, p->cast_at[which]);
    c->refs[2] = (ref){.slot = REF_PARAMS};
    return AN_OK;
}

static an_status lower_epilogue(an_err *err, an_exec *e, int32_t step, const an_gemm_plan *p)
{
    const an_plan_step *s = &e->plan->step[step];
    const an_loop_kernel *epilogue = e->plan->kernel[s->epilogue].u.loop;
    const an_loop_launch of = an_render_gpu_launch(epilogue, &e->d->gpu);
    an_text text = {0};
    an_render_epilogue_module(e->plan, s, "gemm_epilogue", (an_dtype)p->out, &text);
    stream_op *c = new_kernel(e, step, &text, an_cuda_step_name(e->plan, s), "gemm_epilogue",
                              1 + s->n_args - s->n_gemm_args, NULL, 0);
    if (!c) return an_cuda_no_memory_for_launches(err);
    c->blocks[0] = (uint32_t)of.blocks;
    c->threads = (uint32_t)of.threads;
    c->refs[0] = in_scratch(s, p->out_at);
    for (int i = s->n_gemm_args; i < s->n_args; i++) c->refs[1 + i - s->n_gemm_args] = ref_of(s, i);
    return AN_OK;
}

/* Operand i as the GEMM reads it: after its cast. */
static ref operand(const an_plan_step *s, const an_gemm_plan *p, int i)
{
    return p->cast[i] ? in_scratch(s, p->cast_at[i]) : ref_of(s, i);
}

/* Slots are aligned to 256 bytes, so the offset tells the alignment of an address. */
static bool aligned(const an_plan_step *s, int from, int to)
{
    for (int i = from; i < to; i++)
        if (s->arg[i].slot >= 0 && s->arg[i].offset % 16) return false;
    return true;
}

static an_status lower_fused_gemm(an_err *err, an_exec *e, int32_t step, an_gemm_plan *p)
{
    const an_plan_step *s = &e->plan->step[step];
    uint32_t blocks;
    const struct an_gemm_hopper_args args =
        an_cuda_fused_gemm_args(e->d, &e->plan->kernel[s->kernel].u.gemm, false, false, &blocks);
    an_text text = {0};
    an_render_gemm_module(e->plan, s, p->b_along_k, aligned(s, s->n_gemm_args, s->n_args), &text);
    stream_op *c = new_kernel(e, step, &text, an_cuda_step_name(e->plan, s), "gemm", 3 + s->n_args - s->n_gemm_args,
                              &args, sizeof args);
    if (!c) return an_cuda_no_memory_for_launches(err);
    e->module[c->module].arch_specific = true;
    c->blocks[0] = blocks;
    c->threads = AN_HGEMM_THREADS;
    c->shared_bytes = AN_HGEMM_SHARED;
    c->gemm = p;
    c->refs[0] = operand(s, p, 0);
    c->refs[1] = operand(s, p, 1);
    c->refs[2] = (ref){.slot = REF_PARAMS};
    for (int i = s->n_gemm_args; i < s->n_args; i++) c->refs[3 + i - s->n_gemm_args] = ref_of(s, i);
    return AN_OK;
}

/* Steps `step` and the one behind it as one launch, which is the first one's: the second has none. */
static an_status lower_pair(an_err *err, an_exec *e, int32_t step, const an_gemm_pair *pair)
{
    const an_plan_step *s = &e->plan->step[step], *loop = s + 1;
    uint32_t blocks;
    const struct an_gemm_hopper_args args =
        an_cuda_fused_gemm_args(e->d, &e->plan->kernel[s->kernel].u.gemm, true, pair->gemm.narrow, &blocks);
    an_gemm_plan *p = an_arena_copy(&e->arena, &pair->gemm, sizeof pair->gemm);
    an_text text = {0};
    an_render_pair_module(e->plan, loop, pair->arg, pair->keep, pair->gemm.narrow, pair->gemm.a_along_k,
                          pair->gemm.b_along_k, aligned(loop, 0, loop->n_args), &text);
    stream_op *c =
        new_kernel(e, step, &text, an_cuda_step_name(e->plan, loop), "gemm", 3 + loop->n_args, &args, sizeof args);
    if (!c || !p) return an_cuda_no_memory_for_launches(err);
    e->module[c->module].arch_specific = true;
    e->paired[step] = true;
    c->blocks[0] = blocks;
    c->threads = p->narrow ? AN_HGEMM_THREADS_OF(AN_HGEMM_NARROW_WARPGROUPS) : AN_HGEMM_THREADS;
    c->shared_bytes = p->narrow ? NARROW_SHARED : pair->reads ? AN_HGEMM_READS_SHARED : AN_HGEMM_SHARED;
    c->gemm = p;
    c->scratch = 0;
    for (int i = 0; i < 2; i++) c->refs[i] = ref_of(s, i);
    c->refs[2] = (ref){.slot = REF_PARAMS};
    for (int i = 0; i < loop->n_args; i++) c->refs[3 + i] = ref_of(loop, i);
    return AN_OK;
}

/* B, [k,n] with rows of n, transposed to [n,k] in scratch. */
static an_status lower_transpose(an_err *err, an_exec *e, int32_t step, const an_gemm_plan *p)
{
    const an_plan_step *s = &e->plan->step[step];
    const an_gemm_spec *g = &e->plan->kernel[s->kernel].u.gemm;
    const struct an_transpose_args args = {.stride = p->transposed_ld, .rows = g->k, .cols = g->n};
    an_text text = {0};
    an_render_transpose_module(&text);
    stream_op *c = new_kernel(e, step, &text, "a transpose", "transpose", 3, &args, sizeof args);
    if (!c) return an_cuda_no_memory_for_launches(err);
    c->blocks[0] = (uint32_t)an_ceil_div(g->n, AN_TRANSPOSE_TILE);
    c->blocks[1] = (uint32_t)an_ceil_div(g->k, AN_TRANSPOSE_TILE);
    c->threads = AN_TRANSPOSE_THREADS;
    c->refs[0] = ref_of(s, 1);
    c->refs[1] = in_scratch(s, p->transposed_at);
    c->refs[2] = (ref){.slot = REF_PARAMS};
    return AN_OK;
}

/* What a GEMM of our kernels adds to: C itself, another array, or nothing. at: A, B, C, addend, workspace. */
static int added(const an_gemm_plan *p, const ref at[5], int in_place, int onto)
{
    if (p->addend < 0) return 0;
    return at[3].slot == at[2].slot && at[3].offset == at[2].offset ? in_place : onto;
}

/* A GEMM by gemm_tf32.inc: one kernel computes the splits of k, the next adds them. at: A, B, C, addend, workspace. */
static an_status lower_tf32_gemm(an_err *err, an_exec *e, int32_t step, const an_gemm_plan *p, const ref at[5])
{
    const an_plan_step *s = &e->plan->step[step];
    const an_gemm_spec *g = &e->plan->kernel[s->kernel].u.gemm;
    const int64_t steps = g->k / AN_TF32_DEEP, k_per_split = an_ceil_div(steps, p->split_k) * AN_TF32_DEEP,
                  tiles = an_ceil_div(g->m, AN_TF32_TILE) * an_ceil_div(g->n, AN_TF32_TILE);
    const struct an_gemm_tf32_args args = {.lda = p->lda,
                                           .ldb = p->ldb,
                                           .ldc = p->ldc,
                                           .m = g->m,
                                           .n = g->n,
                                           .k = g->k,
                                           .k_per_split = (int)k_per_split,
                                           .add = added(p, at, AN_TF32_IN_PLACE, AN_TF32_ONTO)};
    const ref refs[2][4] = {{at[0], at[1], at[4], {.slot = REF_PARAMS}}, {at[4], at[3], at[2], {.slot = REF_PARAMS}}};
    an_text text = {0};
    an_render_tf32_module(&text);
    int32_t module = module_of(e, &text, false, an_cuda_step_name(e->plan, s));
    void *params = an_arena_copy(&e->arena, &args, sizeof args);
    if (module < 0 || !params) return an_cuda_no_memory_for_launches(err);
    e->module[module].arch_specific = true;
    for (int reduce = 0; reduce < 2; reduce++) {
        stream_op *c = new_op(e, OP_KERNEL, step, (int)AN_COUNT(refs[reduce]));
        if (!c) return an_cuda_no_memory_for_launches(err);
        c->module = module;
        c->entry = reduce ? "gemm_tf32_reduce" : "gemm_tf32";
        c->blocks[0] = (uint32_t)(reduce ? tiles * (AN_TF32_TILE * AN_TF32_TILE / (4 * AN_TF32_REDUCE))
                                         : tiles * an_ceil_div(g->k, k_per_split));
        c->blocks[1] = c->blocks[2] = 1;
        c->threads = reduce ? AN_TF32_REDUCE : AN_TF32_THREADS;
        c->shared_bytes = reduce ? 0 : AN_TF32_SHARED;
        c->params = params;
        c->scratch = p->workspace_at +
                     (int64_t)sizeof(float) * AN_TF32_TILE * AN_TF32_TILE * tiles * an_ceil_div(g->k, k_per_split);
        memcpy(c->refs, refs[reduce], sizeof refs[reduce]);
    }
    return AN_OK;
}

/* A GEMM by gemm_hopper.inc with no epilogue; split over k, it computes sums in the workspace, which a second kernel adds. */
static an_status lower_plain_gemm(an_err *err, an_exec *e, int32_t step, an_gemm_plan *p, const ref at[5])
{
    const an_plan_step *s = &e->plan->step[step];
    const an_gemm_spec *g = &e->plan->kernel[s->kernel].u.gemm;
    const bool split = p->splits > 1, wide = at[2].offset % 16 == 0 && at[3].offset % 16 == 0;
    const int add = added(p, at, AN_HGEMM_IN_PLACE, AN_HGEMM_ONTO);
    uint32_t blocks;
    struct an_gemm_hopper_args args = an_cuda_plain_args(e->d, g, p, add, wide, false, &blocks);
    an_text text = {0};
    an_render_plain_gemm_module(p->a_along_k, p->b_along_k, p->out == AN_F32, split,
                                p->bias < 0 ? AN_N_DTYPES : (an_dtype)p->bias_dtype, &text);
    stream_op *c = new_kernel(e, step, &text, an_cuda_step_name(e->plan, s), "gemm", 5, &args, sizeof args);
    if (!c) return an_cuda_no_memory_for_launches(err);
    const int32_t module = c->module;
    e->module[module].arch_specific = true;
    c->blocks[0] = blocks;
    c->threads = AN_HGEMM_THREADS;
    c->shared_bytes = AN_HGEMM_SHARED;
    c->gemm = p;
    c->scratch = p->workspace_at + an_cuda_plain_scratch(g, p);
    const ref added_to = p->bias < 0 ? at[3] : ref_of(s, s->n_gemm_args + p->bias);
    const ref refs[5] = {at[0], at[1], {.slot = REF_PARAMS}, split ? at[4] : added_to, split ? at[4] : at[2]};
    memcpy(c->refs, refs, sizeof refs);
    if (!split) return AN_OK;
    args = an_cuda_plain_args(e->d, g, p, add, wide, true, &blocks);
    stream_op *r = new_op(e, OP_KERNEL, step, 4);
    void *params = an_arena_copy(&e->arena, &args, sizeof args);
    if (!r || !params) return an_cuda_no_memory_for_launches(err);
    r->module = module;
    r->entry = "gemm_reduce";
    r->params = params;
    r->blocks[0] = (uint32_t)an_ceil_div(g->n, AN_HGEMM_REDUCE);
    r->blocks[1] = (uint32_t)AN_MIN(g->m, 65535);
    r->blocks[2] = 1;
    r->threads = AN_HGEMM_REDUCE;
    r->scratch = c->scratch;
    const ref sums[4] = {at[4], added_to, at[2], {.slot = REF_PARAMS}};
    memcpy(r->refs, sums, sizeof sums);
    return AN_OK;
}

static an_status lower_gemm(an_err *err, an_exec *e, int32_t step, const an_gemm_plan *gemm)
{
    const an_plan_step *s = &e->plan->step[step];
    const an_gemm_spec *g = &e->plan->kernel[s->kernel].u.gemm;
    an_gemm_plan *p = an_arena_copy(&e->arena, gemm, sizeof *gemm);
    if (!p) return an_cuda_no_memory_for_launches(err);
    if (p->cast[0]) AN_TRY(lower_cast(err, e, step, p, 0, g->a_dtype));
    if (p->cast[1]) AN_TRY(lower_cast(err, e, step, p, 1, g->b_dtype));
    if (p->fused) return lower_fused_gemm(err, e, step, p);
    ref at[5] = {operand(s, p, 0), operand(s, p, 1)}; /* A, B, C, addend, workspace */
    at[2] = p->out_at >= 0 ? in_scratch(s, p->out_at) : ref_of(s, p->sum >= 0 ? s->n_gemm_args + p->sum : 2);
    at[3] = p->addend >= 0 ? ref_of(s, s->n_gemm_args + p->addend) : at[2];
    at[4] = in_scratch(s, p->workspace_at);
    if (p->split_k && aligned(s, 0, s->n_args)) return lower_tf32_gemm(err, e, step, p, at);
    if (p->plain && at[0].offset % 16 == 0 && at[1].offset % 16 == 0) {
        AN_TRY(lower_plain_gemm(err, e, step, p, at));
        return p->out_at >= 0 ? lower_epilogue(err, e, step, p) : AN_OK;
    }
    if (p->transposed_at >= 0) {
        AN_TRY(lower_transpose(err, e, step, p));
        at[1] = in_scratch(s, p->transposed_at);
    }
    stream_op *c = new_op(e, OP_GEMM, step, (int)AN_COUNT(at));
    if (!c) return an_cuda_no_memory_for_launches(err);
    c->gemm = p;
    memcpy(c->refs, at, sizeof at);
    const cu_pointer address[4] = {(cu_pointer)at[0].offset, (cu_pointer)at[1].offset, (cu_pointer)at[2].offset,
                                   (cu_pointer)at[3].offset};
    AN_TRY(an_gemm_prepare(err, e->d, g, p, address, &c->ready));
    c->scratch = p->workspace_at + (int64_t)AN_MIN(c->ready.workspace_bytes, (size_t)AN_CUDA_WORKSPACE);
    return p->out_at >= 0 ? lower_epilogue(err, e, step, p) : AN_OK;
}

/* A convolution or a gradient of one by cuDNN, as the planner decided. */
static an_status lower_conv(an_err *err, an_exec *e, int32_t step)
{
    const an_plan_step *s = &e->plan->step[step];
    const an_conv_plan *p = an_cuda_conv_plan(e->d, &e->plan->kernel[s->kernel].u.gemm);
    if (!p || !aligned(s, 0, 3))
        return an_fail(err, AN_E_INTERNAL, "cuda: %s (in %s) was planned for cuDNN, which does not run it",
                       an_cuda_step_name(e->plan, s), s->scope ? s->scope : "the step");
    stream_op *c = new_op(e, OP_CONV, step, 4);
    if (!c) return an_cuda_no_memory_for_launches(err);
    c->conv = p;
    for (int i = 0; i < 3; i++) c->refs[i] = ref_of(s, i);
    c->refs[3] = in_scratch(s, 0);
    c->scratch = an_cuda_conv_workspace(p);
    return AN_OK;
}

static an_status lower_move(an_err *err, an_exec *e, int32_t step, bool copy)
{
    const an_plan_step *s = &e->plan->step[step];
    if (!s->arg[copy].bytes) return AN_OK;
    stream_op *c = new_op(e, copy ? OP_COPY : OP_FILL, step, 1 + copy);
    if (!c) return an_cuda_no_memory_for_launches(err);
    for (int i = 0; i <= copy; i++) c->refs[i] = ref_of(s, i);
    c->bytes = (size_t)s->arg[copy].bytes;
    return AN_OK;
}

static an_status lower_exchange(an_err *err, an_exec *e, int32_t step)
{
    stream_op *c = new_op(e, OP_EXCHANGE, step, 2);
    if (!c) return an_cuda_no_memory_for_launches(err);
    for (int i = 0; i < 2; i++) c->refs[i] = ref_of(&e->plan->step[step], i);
    return AN_OK;
}

static an_status lower_step(an_err *err, an_exec *e, int32_t step)
{
    const an_plan_step *s = &e->plan->step[step];
    const an_kernel *k = &e->plan->kernel[s->kernel];
    an_gemm_plan gemm;
    an_gpu_step g;
    if (k->kind == AN_KERNEL_ZERO || k->kind == AN_KERNEL_COPY)
        return lower_move(err, e, step, k->kind == AN_KERNEL_COPY);
    if (k->kind == AN_KERNEL_CALL && an_ops[k->u.call.op].cls == AN_CLS_COLLECTIVE) return lower_exchange(err, e, step);
    if (k->kind == AN_KERNEL_GEMM && k->u.gemm.window.by_library) return lower_conv(err, e, step);
    if (k->kind == AN_KERNEL_GEMM &&
        an_cuda_gemm_plan(e->d, &k->u.gemm, s->epilogue >= 0 ? e->plan->kernel[s->epilogue].u.loop : NULL, &gemm) &&
        ((!gemm.fused && gemm.bias < 0) || aligned(s, 0, 2))) /* else gemm.inc, which needs no scratch */
        return lower_gemm(err, e, step, &gemm);
    const char *why = an_gpu_step_make(e->plan, s, &e->gpu, &g);
    if (why)
        return an_fail(err, AN_E_UNSUPPORTED, "cuda: %s (in %s): %s", an_cuda_step_name(e->plan, s),
                       s->scope ? s->scope : "the step", why);
    return g.n_launches ? lower_template(err, e, step, &g) : AN_OK;
}

an_status an_cuda_lower(an_err *err, an_exec *e)
{
    e->op = calloc((size_t)e->plan->n_steps * OPS_A_STEP + 1, sizeof *e->op);
    e->paired = AN_NEW_ARRAY(&e->arena, bool, e->plan->n_steps + 1);
    if (!e->op || !e->paired) return an_cuda_no_memory_for_launches(err);
    for (int32_t s = 0; s < e->plan->n_steps; s++) {
        an_gemm_pair pair;
        if (an_cuda_is_pair(e->d, e->plan, s, &pair))
            AN_TRY(lower_pair(err, e, s++, &pair));
        else
            AN_TRY(lower_step(err, e, s));
    }
    return AN_OK;
}
