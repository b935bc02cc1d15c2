/* exec.c: a plan made ready for the GPU, and run: a list of calls (kernels, fills, copies, library products), captured
 * once as a CUDA graph and replayed as long as the memory stands where it stood. In the graph a step waits for those
 * whose memory it touches and for no other (kernel/after.h), so one kernel's last groups run beside another's first.
 *
 * Owns:      the calls, modules, the captured graph, the events of a profiled run.
 * Does not:  decide what is launched (kernel/gpu_launch.h), compile (compile.c), or allocate in a submit.
 * Invariants: calls are made in the plan's order, on one stream; arguments do not change between submits, for what
 * changes stands in the input block; replay and plain launches run the same calls, so the bits are the same. A graph
 * with events between its steps is one chain: only then does a launch have a time of its own.
 */
#include "base/arena.h"
#include "base/map.h"
#include "base/os.h"
#include "device/cuda/cuda_internal.h"
#include "kernel/after.h"
#include "kernel/unit_product.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REF_ANY = -1, REF_PARAMS = -2, CALLS_A_STEP = AN_GPU_LAUNCHES + 4 };

typedef enum call_kind { CALL_KERNEL, CALL_FILL, CALL_COPY, CALL_PRODUCT } call_kind;

typedef struct ref { /* an address: a place in a slot */
    int32_t slot;    /* or REF_ANY, REF_PARAMS */
    int64_t offset;
} ref;

typedef struct call {
    uint8_t kind;
    int32_t step, n_refs, unit;
    const char *entry;
    cu_function fn;
    uint32_t groups[3], threads, shared_bytes;
    ref *refs; /* kernels: parameters in order; fills: destination; copies: source, destination; products: A, B, C,
                  workspace */
    void *params;
    size_t bytes;        /* filled or copied */
    int64_t scratch;     /* of its step's, that is used from the start on; 0: not said */
    an_product *product; /* of a kernel: its first two parameters are maps of A and B */
    an_product_ready ready;
} call;

typedef struct nodes { /* of the graph that is being captured */
    cu_graph_node *node;
    size_t n, room;
} nodes;

struct an_exec {
    an_device *d;
    const an_plan *plan;
    an_arena arena;
    an_cuda_unit *unit;
    call *call;
    int32_t n_units, cap_units, n_calls, n_slots;
    an_map seen; /* hash of a text → unit */
    cu_pointer *base;
    cu_graph_exec graph;
    bool graph_timed, timed; /* has events between steps; they hold times */
    cu_event *event;         /* [n_steps + 1] */
    double *enqueue_s;       /* [n_steps] */
    an_after after;
};

/* ---------------------------------------------------------------------------------------------- units */

static const char *name_of(const an_plan *p, const an_plan_step *s)
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
        an_cuda_unit *more = realloc(e->unit, sizeof *more * (size_t)cap);
        if (!more) goto fail;
        e->unit = more;
        e->cap_units = cap;
    }
    if (!an_map_set(&e->seen, key, (uint64_t)e->n_units)) goto fail;
    e->unit[e->n_units] = (an_cuda_unit){.text = text->data, .fmad = fmad, .what = what};
    return e->n_units++;
fail:
    an_text_free(text);
    return -1;
}

/* ---------------------------------------------------------------------------------------------- calls */

static call *new_call(an_exec *e, call_kind kind, int32_t step, int n_refs)
{
    call *c = &e->call[e->n_calls++];
    *c = (call){.kind = (uint8_t)kind, .step = step, .n_refs = n_refs, .unit = -1};
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

static an_status no_room(an_err *err)
{
    return an_fail_nomem(err, "a plan's launches", sizeof(call));
}

static an_status template_calls(an_err *err, an_exec *e, int32_t step, const an_gpu_step *g)
{
    const an_plan_step *s = &e->plan->step[step];
    an_text text = {0};
    an_tiles t = {0};
    an_unit_tiles(e->plan, s, &e->d->gpu, &t);
    an_render_unit(e->plan, s, &e->d->gpu, "row", &text);
    /* Contraction is for attention alone: elsewhere a value computed twice, fused otherwise, stays the same. */
    bool fmad = !t.exact && (t.unit == AN_UNIT_ATTN || t.unit == AN_UNIT_ATTN_GRAD);
    int32_t unit = unit_of(e, &text, fmad, name_of(e->plan, s));
    void *params = g->params_bytes ? an_arena_copy(&e->arena, &g->params, g->params_bytes) : NULL;
    if (unit >= 0) e->unit[unit].own = t.body == AN_BODY_HOPPER;
    if (unit < 0 || (g->params_bytes && !params)) return no_room(err);
    for (int l = 0; l < g->n_launches; l++) {
        const an_gpu_launch *launch = &g->launch[l];
        call *c = new_call(e, CALL_KERNEL, step, launch->n_binds);
        if (!c) return no_room(err);
        c->unit = unit;
        c->entry = launch->entry ? launch->entry : "row";
        memcpy(c->groups, launch->groups, sizeof c->groups);
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

static an_status cast_call(an_err *err, an_exec *e, int32_t step, const an_product *p, int which, int dtype)
{
    const an_plan_step *s = &e->plan->step[step];
    an_text text = {0};
    an_render_cast_unit((an_dtype)dtype, (an_dtype)p->mul, &text);
    int32_t unit = unit_of(e, &text, false, "a cast");
    call *c = unit < 0 ? NULL : new_call(e, CALL_KERNEL, step, 3);
    if (!c || !(c->params = an_arena_copy(&e->arena, &p->span[which], sizeof p->span[which]))) return no_room(err);
    c->unit = unit;
    c->entry = "cast";
    c->groups[0] = (uint32_t)an_ceil_div(p->span[which], (int64_t)AN_CAST_ITEMS * AN_CAST_THREADS);
    c->groups[1] = c->groups[2] = 1;
    c->threads = AN_CAST_THREADS;
    c->refs[0] = ref_of(s, which);
    c->refs[1] = in_scratch(s, p->cast_at[which]);
    c->refs[2] = (ref){.slot = REF_PARAMS};
    return AN_OK;
}

static an_status tail_call(an_err *err, an_exec *e, int32_t step, const an_product *p)
{
    const an_plan_step *s = &e->plan->step[step];
    const an_row_prog *tail = e->plan->kernel[s->epilogue].u.row;
    const an_launch of = an_render_gpu_launch(tail, AN_GPU_CUDA_FAST);
    an_text text = {0};
    an_render_tail_unit(e->plan, s, "tail", (an_dtype)p->out, &text);
    int32_t unit = unit_of(e, &text, false, name_of(e->plan, s));
    call *c = unit < 0 ? NULL : new_call(e, CALL_KERNEL, step, 1 + s->n_args - s->n_own);
    if (!c) return no_room(err);
    c->unit = unit;
    c->entry = "tail";
    c->groups[0] = (uint32_t)of.groups;
    c->groups[1] = c->groups[2] = 1;
    c->threads = (uint32_t)of.threads;
    c->refs[0] = in_scratch(s, p->out_at);
    for (int i = s->n_own; i < s->n_args; i++) c->refs[1 + i - s->n_own] = ref_of(s, i);
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
    an_render_product_unit(e->plan, s, p->b_along_k, aligned(s, s->n_own, s->n_args), &text);
    int32_t unit = unit_of(e, &text, false, name_of(e->plan, s));
    call *c = unit < 0 ? NULL : new_call(e, CALL_KERNEL, step, 3 + s->n_args - s->n_own);
    if (!c || !(c->params = an_arena_copy(&e->arena, &args, sizeof args))) return no_room(err);
    e->unit[unit].own = true;
    c->unit = unit;
    c->entry = "gemm";
    c->groups[0] = groups;
    c->groups[1] = c->groups[2] = 1;
    c->threads = AN_PRODUCT_THREADS;
    c->shared_bytes = AN_PRODUCT_SHARED;
    c->product = p;
    c->refs[0] = operand(s, p, 0);
    c->refs[1] = operand(s, p, 1);
    c->refs[2] = (ref){.slot = REF_PARAMS};
    for (int i = s->n_own; i < s->n_args; i++) c->refs[3 + i - s->n_own] = ref_of(s, i);
    return AN_OK;
}

/* The right operand, [k,n] with rows of n, as [n,k] in scratch. */
static an_status turn_call(an_err *err, an_exec *e, int32_t step, const an_product *p)
{
    const an_plan_step *s = &e->plan->step[step];
    const an_gemm_spec *g = &e->plan->kernel[s->kernel].u.gemm;
    const struct an_turn_args args = {.stride = p->turned_ld, .rows = g->k, .cols = g->n};
    an_text text = {0};
    an_render_turn_unit(&text);
    int32_t unit = unit_of(e, &text, false, "a transpose");
    call *c = unit < 0 ? NULL : new_call(e, CALL_KERNEL, step, 3);
    if (!c || !(c->params = an_arena_copy(&e->arena, &args, sizeof args))) return no_room(err);
    c->unit = unit;
    c->entry = "turn";
    c->groups[0] = (uint32_t)an_ceil_div(g->n, AN_TURN_TILE);
    c->groups[1] = (uint32_t)an_ceil_div(g->k, AN_TURN_TILE);
    c->groups[2] = 1;
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
    an_render_tf32_unit(&text);
    int32_t unit = unit_of(e, &text, false, name_of(e->plan, s));
    void *params = an_arena_copy(&e->arena, &args, sizeof args);
    if (unit < 0 || !params) return no_room(err);
    e->unit[unit].own = true;
    for (int join = 0; join < 2; join++) {
        call *c = new_call(e, CALL_KERNEL, step, (int)AN_COUNT(refs[join]));
        if (!c) return no_room(err);
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
    if (!p) return no_room(err);
    if (p->cast[0]) AN_TRY(cast_call(err, e, step, p, 0, g->a_dtype));
    if (p->cast[1]) AN_TRY(cast_call(err, e, step, p, 1, g->b_dtype));
    if (p->ends) return end_call(err, e, step, p);
    ref at[5] = {operand(s, p, 0), operand(s, p, 1)}; /* A, B, C, what is added to, workspace */
    at[2] = p->out_at >= 0 ? in_scratch(s, p->out_at) : ref_of(s, p->addend >= 0 ? s->n_own + p->sum : 2);
    at[3] = p->addend >= 0 ? ref_of(s, s->n_own + p->addend) : at[2];
    at[4] = in_scratch(s, p->workspace_at);
    if (p->own_chains && aligned(s, 0, s->n_args)) return own_calls(err, e, step, p, at);
    if (p->turned_at >= 0) {
        AN_TRY(turn_call(err, e, step, p));
        at[1] = in_scratch(s, p->turned_at);
    }
    call *c = new_call(e, CALL_PRODUCT, step, (int)AN_COUNT(at));
    if (!c) return no_room(err);
    c->product = p;
    memcpy(c->refs, at, sizeof at);
    const cu_pointer address[3] = {(cu_pointer)at[0].offset, (cu_pointer)at[1].offset, (cu_pointer)at[2].offset};
    AN_TRY(an_product_prepare(err, e->d, g, p, address, &c->ready));
    c->scratch = p->workspace_at + (int64_t)AN_MIN(c->ready.workspace_bytes, (size_t)AN_CUDA_WORKSPACE);
    return p->out_at >= 0 ? tail_call(err, e, step, p) : AN_OK;
}

static an_status move_call(an_err *err, an_exec *e, int32_t step, bool copy)
{
    const an_plan_step *s = &e->plan->step[step];
    if (!s->arg[copy].bytes) return AN_OK;
    call *c = new_call(e, copy ? CALL_COPY : CALL_FILL, step, 1 + copy);
    if (!c) return no_room(err);
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
        an_cuda_product(e->d, &k->u.gemm, s->epilogue >= 0 ? e->plan->kernel[s->epilogue].u.row : NULL, &product) &&
        (!product.ends || aligned(s, 0, 2))) /* else gemm.inc, which needs no scratch */
        return product_calls(err, e, step, &product);
    const char *why = an_gpu_step_make(e->plan, s, &e->d->gpu, &g);
    if (why)
        return an_fail(err, AN_E_UNSUPPORTED, "cuda: %s (in %s): %s", name_of(e->plan, s),
                       s->scope ? s->scope : "the step", why);
    return g.n_launches ? template_calls(err, e, step, &g) : AN_OK;
}

/* ---------------------------------------------------------------------------------------------- load */

void an_cuda_unload(an_device *d, an_exec *e)
{
    an_err quiet = {0};
    if (!e) return;
    bool reachable = an_cuda_enter(&quiet, d) == AN_OK && an_cuda_settle(d);
    if (e->graph && reachable) d->cu.graph_exec_free(e->graph);
    for (int i = 0; i < e->n_calls; i++)
        if (e->call[i].kind == CALL_PRODUCT) an_product_free(d, &e->call[i].ready);
    for (int i = 0; i < e->n_units; i++) an_cuda_unit_free(d, &e->unit[i]);
    for (int i = 0; e->event && reachable && i <= e->plan->n_steps; i++)
        if (e->event[i]) d->cu.event_free(e->event[i]);
    an_map_free(&e->seen);
    an_arena_free(&e->arena);
    free(e->unit);
    free(e->call);
    free(e);
}

static an_status find_functions(an_err *err, an_exec *e)
{
    for (int i = 0; i < e->n_calls; i++) {
        call *c = &e->call[i];
        if (c->kind != CALL_KERNEL) continue;
        AN_TRY(an_cuda_check(err, e->d, e->d->cu.module_function(&c->fn, e->unit[c->unit].module, c->entry),
                             "finding %s of %s", c->entry, e->unit[c->unit].what));
        if (c->shared_bytes)
            AN_TRY(an_cuda_check(
                err, e->d, e->d->cu.function_set(c->fn, CU_FUNC_MOST_DYNAMIC_SHARED, (int)c->shared_bytes),
                "asking for %u bytes of shared memory for %s of %s", c->shared_bytes, c->entry, e->unit[c->unit].what));
    }
    return AN_OK;
}

/* The scratch that a step really uses: most products leave the library's workspace alone. */
static an_status find_dependencies(an_err *err, an_exec *e)
{
    const an_plan *p = e->plan;
    int64_t *used = AN_NEW_ARRAY(&e->arena, int64_t, p->n_steps + 1);
    if (!used) return no_room(err);
    for (int32_t s = 0; s < p->n_steps; s++) used[s] = p->step[s].scratch_bytes;
    for (int32_t i = 0; i < e->n_calls; i++) {
        const call *c = &e->call[i];
        if (c->scratch) used[c->step] = c->scratch;
    }
    return an_after_make(err, p, used, &e->arena, &e->after);
}

static an_status make_ready(an_err *err, an_device *d, an_exec *e, an_load_stats *stats)
{
    const an_plan *p = e->plan;
    e->call = calloc((size_t)p->n_steps * CALLS_A_STEP + 1, sizeof *e->call);
    e->enqueue_s = an_arena_array(&e->arena, sizeof *e->enqueue_s, (size_t)p->n_steps + 1);
    e->event = an_arena_array(&e->arena, sizeof *e->event, (size_t)p->n_steps + 1);
    if (!e->call || !e->enqueue_s || !e->event) return no_room(err);
    for (int32_t s = 0; s < p->n_steps; s++) AN_TRY(step_calls(err, e, s));
    AN_TRY(an_cuda_compile(err, d, e->unit, e->n_units, stats));
    AN_TRY(find_functions(err, e));
    if (d->how == AN_CUDA_GRAPH) AN_TRY(find_dependencies(err, e));
    snprintf(stats->note, sizeof stats->note, "%s", d->note);
    return AN_OK;
}

an_status an_cuda_load(an_err *err, an_device *d, const an_plan *p, an_exec **out, an_load_stats *stats)
{
    AN_TRY(an_cuda_enter(err, d));
    an_exec *e = calloc(1, sizeof *e);
    if (!e) return no_room(err);
    e->d = d;
    e->plan = p;
    an_status status = make_ready(err, d, e, stats);
    if (status != AN_OK) {
        an_cuda_unload(d, e);
        return status;
    }
    *out = e;
    return AN_OK;
}

/* ---------------------------------------------------------------------------------------------- running */

static cu_pointer address(const an_exec *e, ref r)
{
    return r.slot < 0 ? e->base[AN_SLOT_ARENA] : e->base[r.slot] + (cu_pointer)r.offset;
}

static cu_result launch_kernel(const an_exec *e, const call *c)
{
    cu_pointer value[AN_GPU_BINDS];
    void *param[AN_GPU_BINDS];
    cu_tensor_map map[2];
    for (int i = 0; i < c->n_refs; i++) {
        value[i] = address(e, c->refs[i]);
        param[i] = c->refs[i].slot == REF_PARAMS ? c->params : &value[i];
    }
    for (int i = 0; c->product && i < 2; i++) {
        const an_gemm_spec *g = &e->plan->kernel[e->plan->step[c->step].kernel].u.gemm;
        cu_result r = an_cuda_end_map(e->d, g, c->product, i, value[i], &map[i]);
        if (r) return r;
        param[i] = &map[i];
    }
    return e->d->cu.launch(c->fn, c->groups[0], c->groups[1], c->groups[2], c->threads, 1, 1, c->shared_bytes,
                           e->d->stream, param, NULL);
}

static an_status run_call(an_err *err, an_exec *e, const call *c)
{
    an_device *d = e->d;
    const an_plan_step *s = &e->plan->step[c->step];
    cu_result r = 0;
    switch (c->kind) {
    case CALL_KERNEL: r = launch_kernel(e, c); break;
    case CALL_FILL: r = d->cu.fill(address(e, c->refs[0]), 0, c->bytes, d->stream); break;
    case CALL_COPY: r = d->cu.copy(address(e, c->refs[1]), address(e, c->refs[0]), c->bytes, d->stream); break;
    case CALL_PRODUCT: {
        const cu_pointer at[3] = {address(e, c->refs[0]), address(e, c->refs[1]), address(e, c->refs[2])};
        AN_TRY(an_product_run(err, d, &e->plan->kernel[s->kernel].u.gemm, c->product, &c->ready, at,
                              address(e, c->refs[3]), address(e, c->refs[4])));
        break;
    }
    }
    AN_TRY(an_cuda_check(err, d, r, "launching step %d, %s (in %s)", c->step, name_of(e->plan, s),
                         s->scope ? s->scope : ""));
    if (d->how != AN_CUDA_SYNC) return AN_OK;
    AN_TRY(an_cuda_check(err, d, d->cu.stream_wait(d->stream), "running step %d, %s (in %s)", c->step,
                         name_of(e->plan, s), s->scope ? s->scope : ""));
    return e->plan->apart ? an_cuda_guards_check(err, d, e->plan, e->base[AN_SLOT_ARENA], c->step) : AN_OK;
}

static an_status mark(an_err *err, an_exec *e, int step, bool captured)
{
    an_device *d = e->d;
    if (!e->event[step]) AN_TRY(an_cuda_check(err, d, d->cu.event_new(&e->event[step], 0), "making an event"));
    return an_cuda_check(err, d, d->cu.event_record(e->event[step], d->stream, captured ? CU_EVENT_EXTERNAL : 0),
                         "recording an event");
}

/* All calls; with `timed` an event before each step and behind the last. */
static an_status run_calls(an_err *err, an_exec *e, bool timed, bool captured)
{
    int step = 0;
    double before = an_seconds();
    for (int i = 0; i < e->n_calls; i++) {
        for (; timed && step <= e->call[i].step; step++) AN_TRY(mark(err, e, step, captured));
        AN_TRY(run_call(err, e, &e->call[i]));
        double now = an_seconds();
        if (timed) e->enqueue_s[e->call[i].step] += now - before;
        before = now;
    }
    for (; timed && step <= e->plan->n_steps; step++) AN_TRY(mark(err, e, step, captured));
    return AN_OK;
}

static an_status add_nodes(an_err *err, nodes *all, const cu_graph_node *node, size_t n)
{
    if (all->n + n > all->room) {
        const size_t room = AN_MAX(2 * all->room, all->n + n + 64);
        cu_graph_node *more = realloc(all->node, room * sizeof *more);
        if (!more) return no_room(err);
        all->node = more;
        all->room = room;
    }
    if (n) memcpy(all->node + all->n, node, n * sizeof *node);
    all->n += n;
    return AN_OK;
}

/* What step s is done behind, to what another waits for; a node is named once. */
static an_status add_ends(an_err *err, nodes *these, const nodes *ends, const size_t *end, int32_t s)
{
    for (size_t i = end[s]; i < end[s + 1]; i++) {
        bool known = false;
        for (size_t k = 0; k < these->n && !known; k++) known = these->node[k] == ends->node[i];
        if (!known) AN_TRY(add_nodes(err, these, &ends->node[i], 1));
    }
    return AN_OK;
}

static an_status wait_for(an_err *err, an_device *d, const nodes *these)
{
    return an_cuda_check(err, d, d->cu.capture_after(d->stream, these->node, these->n, CU_CAPTURE_SET),
                         "ordering the plan's launches");
}

/* All calls, each step behind those it waits for. end[s] .. end[s + 1]: of `ends`, the nodes behind which step s is
 * done; a step without a call is done when those it waits for are. The graph ends when every step is done. */
static an_status capture_steps(an_err *err, an_exec *e, size_t *end, nodes *ends, nodes *these)
{
    an_device *d = e->d;
    const an_after *after = &e->after;
    for (int32_t s = 0, i = 0; s < e->plan->n_steps; s++) {
        const cu_graph_node *last = NULL;
        size_t n_last = 0;
        int status = 0;
        these->n = 0;
        for (int32_t a = after->first[s]; a < after->first[s + 1]; a++)
            AN_TRY(add_ends(err, these, ends, end, after->step[a]));
        AN_TRY(wait_for(err, d, these));
        for (; i < e->n_calls && e->call[i].step == s; i++) AN_TRY(run_call(err, e, &e->call[i]));
        AN_TRY(an_cuda_check(err, d, d->cu.capture_state(d->stream, &status, NULL, NULL, &last, &n_last),
                             "asking for the plan's last launch"));
        AN_TRY(add_nodes(err, ends, last, n_last));
        end[s + 1] = ends->n;
    }
    these->n = 0;
    for (int32_t s = 0; s < e->plan->n_steps; s++)
        if (e->after.last[s]) AN_TRY(add_ends(err, these, ends, end, s));
    return wait_for(err, d, these);
}

static an_status capture_calls(an_err *err, an_exec *e, bool timed)
{
    if (timed || e->d->how != AN_CUDA_GRAPH) return run_calls(err, e, timed, true);
    nodes ends = {0}, these = {0};
    size_t *end = calloc((size_t)e->plan->n_steps + 1, sizeof *end);
    an_status status = end ? capture_steps(err, e, end, &ends, &these) : no_room(err);
    free(end);
    free(ends.node);
    free(these.node);
    return status;
}

static an_status capture(an_err *err, an_exec *e, bool timed)
{
    an_device *d = e->d;
    cu_graph graph = NULL;
    if (e->graph) {
        AN_TRY(an_cuda_check(err, d, d->cu.stream_wait(d->stream), "waiting for the plan's last run"));
        d->cu.graph_exec_free(e->graph);
        e->graph = NULL;
    }
    AN_TRY(an_cuda_check(err, d, d->cu.capture_begin(d->stream, CU_CAPTURE_THREAD_LOCAL), "capturing the plan"));
    an_status status = capture_calls(err, e, timed);
    cu_result end = d->cu.capture_end(d->stream, &graph); /* also after a failure: the stream must be left whole */
    if (status == AN_OK) status = an_cuda_check(err, d, end, "capturing the plan");
    if (status == AN_OK)
        status = an_cuda_check(err, d, d->cu.graph_ready(&e->graph, graph, 0), "making a graph of the plan");
    if (graph) d->cu.graph_free(graph);
    e->graph_timed = timed;
    return status;
}

/* True when the memory has moved since the last submit. */
static an_status bind_slots(an_err *err, an_exec *e, const an_buffer *slots, int n, bool *moved)
{
    if (n > e->n_slots) {
        e->base = an_arena_array(&e->arena, sizeof *e->base, (size_t)n);
        if (!e->base) return no_room(err);
        e->n_slots = n;
    }
    *moved = false;
    for (int i = 0; i < n; i++) {
        *moved |= e->base[i] != slots[i].handle;
        e->base[i] = slots[i].handle;
    }
    return AN_OK;
}

an_status an_cuda_submit(an_err *err, an_device *d, an_exec *e, const an_buffer *slots, int n_slots, an_ticket *out)
{
    bool moved = false, timed = d->profile;
    AN_TRY(an_cuda_enter(err, d));
    AN_TRY(bind_slots(err, e, slots, n_slots, &moved));
    if (e->plan->apart) AN_TRY(an_cuda_guards_set(err, d, e->plan, e->base[AN_SLOT_ARENA]));
    if (timed && (moved || !e->graph_timed)) memset(e->enqueue_s, 0, sizeof *e->enqueue_s * (size_t)e->plan->n_steps);
    if (d->how != AN_CUDA_GRAPH && d->how != AN_CUDA_CHAIN) {
        AN_TRY(run_calls(err, e, timed, false));
    } else if (e->n_calls) { /* a plan of empty tensors has nothing to do */
        if (moved || !e->graph || e->graph_timed != timed) AN_TRY(capture(err, e, timed));
        AN_TRY(an_cuda_check(err, d, d->cu.graph_launch(e->graph, d->stream), "launching the plan"));
    }
    e->timed = timed;
    if (e->plan->apart) AN_TRY(an_cuda_guards_check(err, d, e->plan, e->base[AN_SLOT_ARENA], -1));
    *out = ++d->tickets;
    return an_cuda_check(err, d, d->cu.event_record(d->event[*out % AN_CUDA_EVENTS], d->stream, 0),
                         "recording an event");
}

/* ---------------------------------------------------------------------------------------------- times */

void an_cuda_profile(an_device *d, bool on)
{
    d->profile = on;
}

double an_cuda_step_seconds(an_device *d, an_exec *e, int step)
{
    float ms = 0;
    an_err quiet = {0};
    if (!e->timed || an_cuda_enter(&quiet, d) != AN_OK) return 0;
    return d->cu.event_ms(&ms, e->event[step], e->event[step + 1]) ? 0 : (double)ms * 1e-3;
}

double an_cuda_enqueue_seconds(an_device *d, an_exec *e, int step)
{
    (void)d;
    return e->timed ? e->enqueue_s[step] : -1;
}
