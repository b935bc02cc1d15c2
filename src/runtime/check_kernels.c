/* check_kernels.c: runs the last plan once more, one launch at a time, and compares each distinct kernel with the
 * oracle, or looks for the first number that is not finite.
 *
 * Owns:     one-step plans that a device loads and runs alone; host copies of the memory a step reads and writes.
 * Does not: know what kernels compute (oracle/kernel_oracle.h), or change the plan.
 *
 * Invariant: steps run in the plan's order on the plan's own memory, so every kernel sees what it sees in training. Two
 * launches have the same kernel when kind, spec and text are equal; the first launch of each kernel is checked, the others
 * only run.
 */
#include "runtime/context.h"
#include "base/map.h"
#include "oracle/kernel_oracle.h"
#include "runtime/in_flight.h"
#include "runtime/introspect.h"

#include <anneal_tools.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct alone { /* a plan of one step */
    an_plan plan;
    an_plan_step step;
    an_kernel kernel[2];
} alone;

typedef struct checker {
    an_ctx *cx;
    const an_plan *plan;
    an_buffer *slots; /* as the device binds them */
    int n_slots;
    uint64_t *identity; /* [n_steps] */
    an_kernel_check_fn tell;
    void *user;
    an_check_result *result;
    bool tf32;
} checker;

/* ---------------------------------------------------------------------------------------------- which kernel it is */

static uint64_t kernel_hash(const an_plan *p, int32_t kernel, uint64_t seed)
{
    if (kernel < 0) return an_hash_u64(1, seed);
    const an_kernel *k = &p->kernel[kernel];
    seed = an_hash_u64((uint64_t)k->kind, seed);
    switch (k->kind) {
    case AN_KERNEL_LOOP: {
        const int64_t extents[3] = {k->u.loop->rows, k->u.loop->cols, k->u.loop->red};
        return an_hash(extents, sizeof extents, an_hash_u64(k->key, seed));
    }
    case AN_KERNEL_GEMM: return an_hash(&k->u.gemm, sizeof k->u.gemm, seed);
    case AN_KERNEL_ATTN:
    case AN_KERNEL_ATTN_GRAD: {
        an_attn_spec s = k->u.attn;
        seed = an_hash_u64(k->rotated, seed);
        s.stream = 0; /* a layer's own numbers for dropout do not make a kernel of its own */
        return an_hash(&s, sizeof s, seed);
    }
    case AN_KERNEL_SCATTER: return an_hash(&k->u.scatter, sizeof k->u.scatter, seed);
    case AN_KERNEL_ROW_UPDATE: return an_hash(&k->u.row_update, sizeof k->u.row_update, seed);
    case AN_KERNEL_CALL: return an_hash(&k->u.call, sizeof k->u.call, seed);
    default: return seed; /* fills and copies: one kernel each */
    }
}

static void identify(checker *c)
{
    for (int s = 0; s < c->plan->n_steps; s++) {
        const an_plan_step *st = &c->plan->step[s];
        c->identity[s] = kernel_hash(c->plan, st->epilogue, kernel_hash(c->plan, st->kernel, 0));
    }
}

static bool is_first(const checker *c, int step)
{
    for (int s = 0; s < step; s++)
        if (c->identity[s] == c->identity[step]) return false;
    return true;
}

static int launches(const checker *c, int step)
{
    int n = 0;
    for (int s = 0; s < c->plan->n_steps; s++) n += c->identity[s] == c->identity[step];
    return n;
}

/* ---------------------------------------------------------------------------------------------- one step alone */

static void make_alone(const an_plan *p, int step, alone *a)
{
    a->plan = *p;
    a->step = p->step[step];
    a->plan.step = &a->step;
    a->plan.n_steps = 1;
    a->plan.kernel = a->kernel;
    a->plan.n_kernels = 1 + (a->step.epilogue >= 0);
    a->plan.isolate_values = false; /* guards are for whole plans */
    a->kernel[0] = p->kernel[a->step.kernel];
    if (a->step.epilogue >= 0) a->kernel[1] = p->kernel[a->step.epilogue];
    a->step.kernel = 0;
    if (a->step.epilogue >= 0) a->step.epilogue = 1;
}

static an_status run_alone(checker *c, const alone *a)
{
    an_ctx *cx = c->cx;
    an_exec *exec = NULL;
    an_load_stats stats = {0};
    an_ticket ticket;
    AN_TRY(cx->backend->load(&cx->err, cx->device, &a->plan, &exec, &stats));
    an_status status = cx->backend->submit(&cx->err, cx->device, exec, c->slots, c->n_slots, &ticket);
    if (status == AN_OK) status = cx->backend->wait(&cx->err, cx->device, ticket, INT64_MAX);
    cx->backend->unload(cx->device, exec);
    return status;
}

/* Copies an argument's bytes from the device into memory that the caller frees. */
static an_status copy_argument(checker *c, const an_arg *a, int64_t extent, void **out, int64_t *bytes)
{
    const an_buffer *b = &c->slots[a->slot];
    *bytes = AN_MIN(extent, (int64_t)b->bytes - a->offset);
    if (*bytes < 0) *bytes = 0;
    *out = malloc((size_t)*bytes + 64); /* a load of a whole word at the last element stays inside */
    if (!*out) return an_fail_nomem(&c->cx->err, "a copy of a kernel's argument", (size_t)*bytes);
    return c->cx->backend->read(&c->cx->err, c->cx->device, b, (size_t)a->offset, *out, (size_t)*bytes);
}

static void report(checker *c, int step, const an_oracle_verdict *v)
{
    const an_plan_step *s = &c->plan->step[step];
    an_kernel_check k = {.kernel = c->plan->kernel[s->kernel].name,
                         .scope = s->scope ? s->scope : "",
                         .kind = an_kernel_kind_text(c->plan->kernel[s->kernel].kind),
                         .launches = launches(c, step),
                         .elements = v->elements,
                         .worst = v->worst};
    snprintf(k.fault, sizeof k.fault, "%s", v->fault);
    snprintf(k.skipped, sizeof k.skipped, "%s", v->skipped);
    c->result->kernels++;
    c->result->faults += v->fault[0] != '\0';
    c->result->skipped += v->skipped[0] != '\0';
    c->result->elements += v->elements;
    if (c->tell) c->tell(c->user, &k);
}

static an_status check_step(checker *c, int step, const alone *a)
{
    const an_plan_step *s = &c->plan->step[step];
    const size_t n = (size_t)s->n_args + 16; /* templates' last arguments may be left out of the step */
    an_oracle_memory *memory = calloc(n, sizeof *memory);
    void **copy = calloc(2 * n, sizeof *copy);
    an_status status = memory && copy ? AN_OK : an_fail_nomem(&c->cx->err, "a kernel's arguments", n * sizeof *memory);
    for (int i = 0; i < s->n_args && status == AN_OK; i++) {
        if (s->arg[i].slot < 0) continue;
        status = copy_argument(c, &s->arg[i], an_oracle_extent(c->plan, s, i), &copy[2 * i], &memory[i].bytes);
        memory[i].before = copy[2 * i];
    }
    if (status == AN_OK) status = run_alone(c, a);
    for (int i = 0; i < s->n_args && status == AN_OK; i++) {
        if (s->arg[i].slot < 0 || !s->arg[i].written) continue;
        status = copy_argument(c, &s->arg[i], an_oracle_extent(c->plan, s, i), &copy[2 * i + 1], &memory[i].bytes);
        memory[i].after = copy[2 * i + 1];
    }
    an_oracle_verdict v;
    if (status == AN_OK) status = an_oracle_check(&c->cx->err, c->plan, s, memory, c->tf32, &v);
    if (status == AN_OK) report(c, step, &v);
    for (size_t i = 0; copy && i < 2 * n; i++) free(copy[i]);
    free(copy);
    free(memory);
    return status;
}

/* ---------------------------------------------------------------------------------------------- all steps of the plan */

static an_status check_steps(checker *c)
{
    identify(c);
    for (int s = 0; s < c->plan->n_steps; s++) {
        alone a;
        make_alone(c->plan, s, &a);
        AN_TRY(is_first(c, s) ? check_step(c, s, &a) : run_alone(c, &a));
    }
    return AN_OK;
}

/* A kernel that does not compile is a finding, like one that computes wrong. */
static void compile_step(checker *c, int step)
{
    alone a;
    an_exec *exec = NULL;
    an_load_stats stats = {0};
    an_err err = {0};
    an_oracle_verdict v = {0};
    make_alone(c->plan, step, &a);
    if (c->cx->backend->load(&err, c->cx->device, &a.plan, &exec, &stats) == AN_OK)
        c->cx->backend->unload(c->cx->device, exec);
    else
        snprintf(v.fault, sizeof v.fault, "%s", err.text);
    report(c, step, &v);
}

/* Some compilers take all texts of a plan in parallel; one by one they then come from the cache. */
static void compile_ahead(an_ctx *cx)
{
    an_exec *exec = NULL;
    an_load_stats stats = {0};
    an_err quiet = {0};
    if (!cx->backend->compiles_in_bulk) return;
    if (cx->backend->load(&quiet, cx->device, cx->last->plan, &exec, &stats) == AN_OK)
        cx->backend->unload(cx->device, exec);
}

an_status an_compile_kernels(an_ctx *cx, an_kernel_check_fn tell, void *user, an_check_result *out)
{
    *out = (an_check_result){0};
    if (!cx || !cx->last)
        return cx ? an_fail(&cx->err, AN_E_USAGE, "an_compile_kernels: nothing was planned") : AN_E_USAGE;
    checker c = {.cx = cx, .plan = cx->last->plan, .tell = tell, .user = user, .result = out};
    c.identity = calloc((size_t)c.plan->n_steps + 1, sizeof *c.identity);
    if (!c.identity) return an_fail_nomem(&cx->err, "the kernels of a plan", 0);
    identify(&c);
    compile_ahead(cx);
    for (int s = 0; s < c.plan->n_steps; s++)
        if (is_first(&c, s)) compile_step(&c, s);
    free(c.identity);
    return AN_OK;
}

/* The slots of the last eval, as the device binds them; the caller frees them. */
static an_status bind_slots(an_ctx *cx, checker *c)
{
    c->n_slots = AN_SLOT_FIRST + cx->n_stores;
    c->slots = calloc((size_t)c->n_slots, sizeof *c->slots);
    if (!c->slots) return an_fail_nomem(&cx->err, "the slots of a plan", 0);
    AN_TRY(an_wait_idle(cx));
    c->slots[AN_SLOT_ARENA] = cx->arena;
    c->slots[AN_SLOT_INPUT] = cx->inputs[cx->now];
    for (int i = 0; i < cx->n_stores; i++) c->slots[AN_SLOT_FIRST + i] = cx->store[i].mem;
    return AN_OK;
}

an_status an_check_kernels(an_ctx *cx, an_kernel_check_fn tell, void *user, an_check_result *out)
{
    *out = (an_check_result){0};
    if (!cx || !cx->last || !cx->last->exec || cx->last != cx->ran)
        return cx ? an_fail(&cx->err, AN_E_USAGE, "an_check_kernels: nothing has run on this device that has kernels")
                  : AN_E_USAGE;
    const an_plan *p = cx->last->plan;
    checker c = {.cx = cx, .plan = p, .tell = tell, .user = user, .result = out};
    c.tf32 = cx->backend->target(cx->device)->tf32;
    c.identity = calloc((size_t)p->n_steps + 1, sizeof *c.identity);
    an_status status = c.identity ? bind_slots(cx, &c) : an_fail_nomem(&cx->err, "the kernels of a plan", 0);
    if (status == AN_OK) status = check_steps(&c);
    cx->n_roots = 0; /* what the last eval left has been written over */
    free(c.identity);
    free(c.slots);
    return status;
}

/* ---------------------------------------------------------------------------------------------- numbers that are not finite */

/* Looks at what the step has written through argument `i`: whole elements of its value. */
static an_status look_at_written(checker *c, const an_plan_step *s, int i, bool *found, an_not_finite *out)
{
    const an_dtype dtype = an_oracle_written_dtype(c->plan, s, i);
    void *copy;
    int64_t bytes;
    if (s->arg[i].slot < 0 || !s->arg[i].written || !an_dtype_is_float(dtype)) return AN_OK;
    an_status status = copy_argument(c, &s->arg[i], s->arg[i].bytes, &copy, &bytes);
    const int64_t n = bytes / (int64_t)an_dtype_bytes(dtype);
    for (int64_t e = 0; e < n && status == AN_OK && !*found; e++) {
        out->value = an_dtype_load(dtype, copy, e);
        out->element = e;
        *found = !isfinite(out->value);
    }
    free(copy);
    return status;
}

static an_status find_first(checker *c, bool *found, an_not_finite *out)
{
    for (int n = 0; n < c->plan->n_steps && !*found; n++) {
        const an_plan_step *s = &c->plan->step[n];
        alone a;
        make_alone(c->plan, n, &a);
        AN_TRY(run_alone(c, &a));
        for (int i = 0; i < s->n_args && !*found; i++) AN_TRY(look_at_written(c, s, i, found, out));
        if (*found) out->launch = n;
    }
    return AN_OK;
}

an_status an_find_not_finite(an_ctx *cx, bool *found, an_not_finite *out)
{
    an_launch l;
    *found = false;
    *out = (an_not_finite){.kind = "", .phase = ""};
    if (!cx || !cx->last || !cx->last->exec || cx->last != cx->ran)
        return cx ? an_fail(&cx->err, AN_E_USAGE, "an_find_not_finite: nothing has run on this device that has kernels")
                  : AN_E_USAGE;
    checker c = {.cx = cx, .plan = cx->last->plan};
    an_status status = bind_slots(cx, &c);
    if (status == AN_OK) status = find_first(&c, found, out);
    cx->n_roots = 0; /* what the last eval left has been written over */
    free(c.slots);
    if (status == AN_OK && *found && an_planned_launch_get(cx, out->launch, &l)) {
        snprintf(out->kernel, sizeof out->kernel, "%s", l.kernel);
        snprintf(out->scope, sizeof out->scope, "%s", l.scope);
        out->kind = l.kind;
        out->phase = l.phase;
    }
    return status;
}
