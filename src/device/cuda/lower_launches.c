/* lower_launches.c: a plan's steps as calls: kernels with their parameters, fills, copies, and products, each by the library, by
 * one of our bodies or by the portable one, with the casts and turns before it and the tail behind.
 *
 * Owns:      the calls and the texts they need.
 * Does not:  decide what a template launches (codegen/gpu_launch.h) or which products are whose (gemm_cublaslt.c, gemm_hopper.c),
 * compile, or run anything.
 */
#include "device/cuda/graph_exec.h"
#include "codegen/cuda_modules.h"

#include <stdlib.h>
#include <string.h>

enum { CALLS_A_STEP = AN_GPU_LAUNCHES + 4 };

/* ---------------------------------------------------------------------------------------------- units */

const char *an_cuda_step_name(const an_plan *p, const an_plan_step *s)
{
    return p->kernel[s->kernel].name ? p->kernel[s->kernel].name : "a kernel";
}

/* The unit with this text, made when it is new; takes the text over. -1: no memory. */
static int32_t unit_of(an_exec *e, an_text *text, bool fmad, const char *what)
{
    uint64_t known, key = text->data && !text->failed ? an_hash(text->data, text->len, fmad) : 0;
    if (text->failed || !text->data) goto fail;
    if (an_map_get(&e->seen, key, &known) && !strcmp(e->unit[known].text, text->data)) {
        an_text_free(text);
        return (int32_t)known;
    }
    if (e->n_units == e->cap_units) {
        int32_t cap = AN_MAX(64, 2 * e->cap_units);
        an_cuda_module *more = realloc(e->unit, sizeof *more * (size_t)cap);
        if (!more) goto fail;
        e->unit = more;
        e->cap_units = cap;
    }
    if (!an_map_set(&e->seen, key, (uint64_t)e->n_units)) goto fail;
    e->unit[e->n_units] = (an_cuda_module){.text = text->data, .fmad = fmad, .what = what};
    return e->n_units++;
fail:
    an_text_free(text);
    return -1;
}

/* ---------------------------------------------------------------------------------------------- calls */

static call *new_call(an_exec *e, call_kind kind, int32_t step, int n_refs)
{
    call *c = &e->call[e->n_calls++];
    *c = (call){.kind = (uint8_t)kind, .step = step, .n_refs = n_refs, .unit = -1, .scratch = -1};
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

an_status an_cuda_no_room(an_err *err)
{
    return an_fail_nomem(err, "a plan's launches", sizeof(call));
}

static an_status template_calls(an_err *err, an_exec *e, int32_t step, const an_gpu_step *g)
{
    const an_plan_step *s = &e->plan->step[step];
    an_text text = {0};
    an_tiles t = {0};
    an_module_tiles(e->plan, s, &e->d->gpu, &t);
    an_render_module(e->plan, s, &e->d->gpu, "row", &text);
    /* Contraction is for attention alone: elsewhere a value computed twice, fused otherwise, stays the same. */
    bool fmad = !t.exact && (t.module == AN_MODULE_ATTN || t.module == AN_MODULE_ATTN_GRAD);
    int32_t unit = unit_of(e, &text, fmad, an_cuda_step_name(e->plan, s));
    void *params = g->params_bytes ? an_arena_copy(&e->arena, &g->params, g->params_bytes) : NULL;
    if (unit >= 0) e->unit[unit].own = t.body == AN_BODY_HOPPER;
    if (unit < 0 || (g->params_bytes && !params)) return an_cuda_no_room(err);
    for (int l = 0; l < g->n_launches; l++) {
        const an_gpu_launch *launch = &g->launch[l];
        call *c = new_call(e, CALL_KERNEL, step, launch->n_binds);
        if (!c) return an_cuda_no_room(err);
        c->unit = unit;
        c->entry = launch->entry ? launch->entry : "row";
        memcpy(c->groups, launch->blocks, sizeof c->groups);
        c->threads = launch->threads;
        c->shared_bytes = launch->shared_bytes;
        c->params = params;
        for (int b = 0; b < launch->n_binds; b++) {
            const an_bind *x = &launch->bind[b];
            c->refs[b] = x->kind == AN_BIND_ARG       ? ref_of(s, x->arg)
                         : x->kind == AN_BIND_SCRATCH ? in_scratch(s, x->offset)
                                                      : (ref){.slot = x->kind == AN_BIND_PARAMS ? REF_PARAMS : REF_ANY};
        }
    }
    return AN_OK;
}

/* A kernel that is alone in its text; takes the text over, and keeps a copy of the parameters (NULL: it has none).
 * Its groups are one along each axis. NULL: no memory. */
static call *kernel_call(an_exec *e, int32_t step, an_text *text, const char *what, const char *entry, int n_refs,
                         const void *params, size_t params_bytes)
{
    const int32_t unit = unit_of(e, text, false, what);
    void *kept = params ? an_arena_copy(&e->arena, params, params_bytes) : NULL;
    call *c = unit < 0 || (params && !kept) ? NULL : new_call(e, CALL_KERNEL, step, n_refs);
    if (!c) return NULL;
    c->unit = unit;
    c->entry = entry;
    c->params = kept;
    c->groups[0] = c->groups[1] = c->groups[2] = 1;
    return c;
}

static an_status cast_call(an_err *err, an_exec *e, int32_t step, const an_product *p, int which, int dtype)
{
    const an_plan_step *s = &e->plan->step[step];
    an_text text = {0};
    an_render_cast_module((an_dtype)dtype, (an_dtype)p->mul, &text);
    call *c = kernel_call(e, step, &text, "a cast", "cast", 3, &p->span[which], sizeof p->span[which]);
    if (!c) return an_cuda_no_room(err);
    c->groups[0] = (uint32_t)an_ceil_div(p->span[which], (int64_t)AN_CAST_ITEMS * AN_CAST_THREADS);
    c->threads = AN_CAST_THREADS;
    c->refs[0] = ref_of(s, which);
    c->refs[1] = in_scratch(s, p->cast_at[which]);
    c->refs[2] = (ref){.slot = REF_PARAMS};
    return AN_OK;
}

static an_status tail_call(an_err *err, an_exec *e, int32_t step, const an_product *p)
{
    const an_plan_step *s = &e->plan->step[step];
    const an_loop_kernel *tail = e->plan->kernel[s->epilogue].u.loop;
    const an_loop_launch of = an_render_gpu_launch(tail, &e->d->gpu);
    an_text text = {0};
    an_render_epilogue_module(e->plan, s, "tail", (an_dtype)p->out, &text);
    call *c =
        kernel_call(e, step, &text, an_cuda_step_name(e->plan, s), "tail", 1 + s->n_args - s->n_gemm_args, NULL, 0);
    if (!c) return an_cuda_no_room(err);
    c->groups[0] = (uint32_t)of.blocks;
    c->threads = (uint32_t)of.threads;
    c->refs[0] = in_scratch(s, p->out_at);
    for (int i = s->n_gemm_args; i < s->n_args; i++) c->refs[1 + i - s->n_gemm_args] = ref_of(s, i);
    return AN_OK;
}

/* Operand i as the product reads it. */
static ref operand(const an_plan_step *s, const an_product *p, int i)
{
    return p->cast[i] ? in_scratch(s, p->cast_at[i]) : ref_of(s, i);
}

/* Slots begin on 256 bytes, so an offset says how an address is aligned. */
static bool aligned(const an_plan_step *s, int from, int to)
{
    for (int i = from; i < to; i++)
        if (s->arg[i].slot >= 0 && s->arg[i].offset % 16) return false;
    return true;
}

static an_status end_call(an_err *err, an_exec *e, int32_t step, an_product *p)
{
    const an_plan_step *s = &e->plan->step[step];
    uint32_t groups;
    const struct an_gemm_hopper_args args = an_cuda_end_args(e->d, &e->plan->kernel[s->kernel].u.gemm, &groups);
    an_text text = {0};
    an_render_gemm_module(e->plan, s, p->b_along_k, aligned(s, s->n_gemm_args, s->n_args), &text);
    call *c = kernel_call(e, step, &text, an_cuda_step_name(e->plan, s), "gemm", 3 + s->n_args - s->n_gemm_args, &args,
                          sizeof args);
    if (!c) return an_cuda_no_room(err);
    e->unit[c->unit].own = true;
    c->groups[0] = groups;
    c->threads = AN_PRODUCT_THREADS;
    c->shared_bytes = AN_PRODUCT_SHARED;
    c->product = p;
    c->refs[0] = operand(s, p, 0);
    c->refs[1] = operand(s, p, 1);
    c->refs[2] = (ref){.slot = REF_PARAMS};
    for (int i = s->n_gemm_args; i < s->n_args; i++) c->refs[3 + i - s->n_gemm_args] = ref_of(s, i);
    return AN_OK;
}

/* The right operand, [k,n] with rows of n, as [n,k] in scratch. */
static an_status turn_call(an_err *err, an_exec *e, int32_t step, const an_product *p)
{
    const an_plan_step *s = &e->plan->step[step];
    const an_gemm_spec *g = &e->plan->kernel[s->kernel].u.gemm;
    const struct an_turn_args args = {.stride = p->turned_ld, .rows = g->k, .cols = g->n};
    an_text text = {0};
    an_render_transpose_module(&text);
    call *c = kernel_call(e, step, &text, "a transpose", "turn", 3, &args, sizeof args);
    if (!c) return an_cuda_no_room(err);
    c->groups[0] = (uint32_t)an_ceil_div(g->n, AN_TURN_TILE);
    c->groups[1] = (uint32_t)an_ceil_div(g->k, AN_TURN_TILE);
    c->threads = AN_TURN_THREADS;
    c->refs[0] = ref_of(s, 1);
    c->refs[1] = in_scratch(s, p->turned_at);
    c->refs[2] = (ref){.slot = REF_PARAMS};
    return AN_OK;
}

/* The product by gemm_tf32.inc: its chains, then their sum. c: A, B, C, what is added to, workspace. */
static an_status own_calls(an_err *err, an_exec *e, int32_t step, const an_product *p, const ref at[5])
{
    const an_plan_step *s = &e->plan->step[step];
    const an_gemm_spec *g = &e->plan->kernel[s->kernel].u.gemm;
    const int64_t steps = g->k / AN_TF32_DEEP, chain = an_ceil_div(steps, p->own_chains) * AN_TF32_DEEP,
                  tiles = an_ceil_div(g->m, AN_TF32_TILE) * an_ceil_div(g->n, AN_TF32_TILE);
    const struct an_gemm_tf32_args args = {.lda = p->lda,
                                           .ldb = p->ldb,
                                           .ldc = p->ldc,
                                           .m = g->m,
                                           .n = g->n,
                                           .k = g->k,
                                           .chain = (int)chain,
                                           .add = !g->accumulate && p->addend < 0 ? 0
                                                  : at[3].slot == at[2].slot && at[3].offset == at[2].offset
                                                      ? AN_TF32_IN_PLACE
                                                      : AN_TF32_ONTO};
    const ref refs[2][4] = {{at[0], at[1], at[4], {.slot = REF_PARAMS}}, {at[4], at[3], at[2], {.slot = REF_PARAMS}}};
    an_text text = {0};
    an_render_tf32_module(&text);
    int32_t unit = unit_of(e, &text, false, an_cuda_step_name(e->plan, s));
    void *params = an_arena_copy(&e->arena, &args, sizeof args);
    if (unit < 0 || !params) return an_cuda_no_room(err);
    e->unit[unit].own = true;
    for (int join = 0; join < 2; join++) {
        call *c = new_call(e, CALL_KERNEL, step, (int)AN_COUNT(refs[join]));
        if (!c) return an_cuda_no_room(err);
        c->unit = unit;
        c->entry = join ? "gemm_tf32_join" : "gemm_tf32";
        c->groups[0] = (uint32_t)(join ? tiles * (AN_TF32_TILE * AN_TF32_TILE / (4 * AN_TF32_JOIN))
                                       : tiles * an_ceil_div(g->k, chain));
        c->groups[1] = c->groups[2] = 1;
        c->threads = join ? AN_TF32_JOIN : AN_TF32_THREADS;
        c->shared_bytes = join ? 0 : AN_TF32_SHARED;
        c->params = params;
        c->scratch =
            p->workspace_at + (int64_t)sizeof(float) * AN_TF32_TILE * AN_TF32_TILE * tiles * an_ceil_div(g->k, chain);
        memcpy(c->refs, refs[join], sizeof refs[join]);
    }
    return AN_OK;
}

static an_status product_calls(an_err *err, an_exec *e, int32_t step, const an_product *product)
{
    const an_plan_step *s = &e->plan->step[step];
    const an_gemm_spec *g = &e->plan->kernel[s->kernel].u.gemm;
    an_product *p = an_arena_copy(&e->arena, product, sizeof *product);
    if (!p) return an_cuda_no_room(err);
    if (p->cast[0]) AN_TRY(cast_call(err, e, step, p, 0, g->a_dtype));
    if (p->cast[1]) AN_TRY(cast_call(err, e, step, p, 1, g->b_dtype));
    if (p->ends) return end_call(err, e, step, p);
    ref at[5] = {operand(s, p, 0), operand(s, p, 1)}; /* A, B, C, what is added to, workspace */
    at[2] = p->out_at >= 0 ? in_scratch(s, p->out_at) : ref_of(s, p->addend >= 0 ? s->n_gemm_args + p->sum : 2);
    at[3] = p->addend >= 0 ? ref_of(s, s->n_gemm_args + p->addend) : at[2];
    at[4] = in_scratch(s, p->workspace_at);
    if (p->own_chains && aligned(s, 0, s->n_args)) return own_calls(err, e, step, p, at);
    if (p->turned_at >= 0) {
        AN_TRY(turn_call(err, e, step, p));
        at[1] = in_scratch(s, p->turned_at);
    }
    call *c = new_call(e, CALL_PRODUCT, step, (int)AN_COUNT(at));
    if (!c) return an_cuda_no_room(err);
    c->product = p;
    memcpy(c->refs, at, sizeof at);
    const cu_pointer address[4] = {(cu_pointer)at[0].offset, (cu_pointer)at[1].offset, (cu_pointer)at[2].offset,
                                   (cu_pointer)at[3].offset};
    AN_TRY(an_product_prepare(err, e->d, g, p, address, &c->ready));
    c->scratch = p->workspace_at + (int64_t)AN_MIN(c->ready.workspace_bytes, (size_t)AN_CUDA_WORKSPACE);
    return p->out_at >= 0 ? tail_call(err, e, step, p) : AN_OK;
}

static an_status move_call(an_err *err, an_exec *e, int32_t step, bool copy)
{
    const an_plan_step *s = &e->plan->step[step];
    if (!s->arg[copy].bytes) return AN_OK;
    call *c = new_call(e, copy ? CALL_COPY : CALL_FILL, step, 1 + copy);
    if (!c) return an_cuda_no_room(err);
    for (int i = 0; i <= copy; i++) c->refs[i] = ref_of(s, i);
    c->bytes = (size_t)s->arg[copy].bytes;
    return AN_OK;
}

static an_status step_calls(an_err *err, an_exec *e, int32_t step)
{
    const an_plan_step *s = &e->plan->step[step];
    const an_kernel *k = &e->plan->kernel[s->kernel];
    an_product product;
    an_gpu_step g;
    if (k->kind == AN_KERNEL_ZERO || k->kind == AN_KERNEL_COPY)
        return move_call(err, e, step, k->kind == AN_KERNEL_COPY);
    if (k->kind == AN_KERNEL_GEMM &&
        an_cuda_product(e->d, &k->u.gemm, s->epilogue >= 0 ? e->plan->kernel[s->epilogue].u.loop : NULL, &product) &&
        (!product.ends || aligned(s, 0, 2))) /* else gemm.inc, which needs no scratch */
        return product_calls(err, e, step, &product);
    const char *why = an_gpu_step_make(e->plan, s, &e->d->gpu, &g);
    if (why)
        return an_fail(err, AN_E_UNSUPPORTED, "cuda: %s (in %s): %s", an_cuda_step_name(e->plan, s),
                       s->scope ? s->scope : "the step", why);
    return g.n_launches ? template_calls(err, e, step, &g) : AN_OK;
}

an_status an_cuda_calls(an_err *err, an_exec *e)
{
    e->call = calloc((size_t)e->plan->n_steps * CALLS_A_STEP + 1, sizeof *e->call);
    if (!e->call) return an_cuda_no_room(err);
    for (int32_t s = 0; s < e->plan->n_steps; s++) AN_TRY(step_calls(err, e, s));
    return AN_OK;
}
