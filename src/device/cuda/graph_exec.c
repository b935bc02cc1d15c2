/* graph_exec.c: loads a plan and runs it. Its operations (lower_launches.c) are captured once as a CUDA graph, which is
 * replayed as long as the buffers keep their addresses; where they move at each submit (memory of other programs) it runs launch by launch. In the CUDA graph a launch depends on the launches whose memory it
 * touches and on no other (ir/dependencies.h: a plan's steps are launches), so the last thread blocks of one kernel overlap with the first of another.
 *
 * A plan of short launches (the generation of one token) is captured as one chain instead, in which a kernel may begin
 * while the one before it ends (programmatic dependent launch): the pause between two launches would otherwise be a large
 * part of the time.
 *
 * Owns:       modules, the captured graph, the events of a profiled run.
 * Does not:   make the list of operations, compile (nvrtc.c), or allocate in a submit.
 * Invariants: operations are enqueued in the plan's order on one stream. Arguments do not change between submits: what
 *             changes is in the input block. Replay and plain launches run the same operations, so the bits are the same.
 *             A graph with events between its steps is a single chain: only then does a launch have a time of its own. But a
 *             plan that exchanges between ranks keeps its order when it is timed, with an event before and after each
 *             step: what is asked is which exchanges run beside other launches.
 */
#include "platform/platform.h"
#include "device/cuda/graph_exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct nodes { /* of the graph that is being captured */
    cu_graph_node *node;
    size_t n, capacity;
} nodes;

/* ---------------------------------------------------------------------------------------------- load */

void an_cuda_unload(an_device *d, an_exec *e)
{
    an_err quiet = {0};
    if (!e) return;
    bool reachable = an_cuda_enter(&quiet, d) == AN_OK && an_cuda_wait_idle(d);
    for (int i = 0; i < 2; i++)
        if (e->graph[i] && reachable) d->cu.graph_exec_free(e->graph[i]);
    for (int i = 0; i < e->n_ops; i++)
        if (e->op[i].kind == OP_GEMM) an_gemm_free(d, &e->op[i].ready);
    for (int i = 0; i < e->n_modules; i++) an_cuda_module_free(d, &e->module[i]);
    for (int i = 0; e->event && reachable && i <= 2 * e->plan->n_steps; i++)
        if (e->event[i]) d->cu.event_free(e->event[i]);
    an_map_free(&e->seen);
    an_arena_free(&e->arena);
    free(e->module);
    free(e->op);
    free(e);
}

static an_status find_functions(an_err *err, an_exec *e)
{
    for (int i = 0; i < e->n_ops; i++) {
        stream_op *c = &e->op[i];
        if (c->kind != OP_KERNEL) continue;
        AN_TRY(an_cuda_check(err, e->d, e->d->cu.module_function(&c->fn, e->module[c->module].handle, c->entry),
                             "finding %s of %s", c->entry, e->module[c->module].what));
        if (c->shared_bytes)
            AN_TRY(an_cuda_check(err, e->d,
                                 e->d->cu.function_set(c->fn, CU_FUNC_MOST_DYNAMIC_SHARED, (int)c->shared_bytes),
                                 "asking for %u bytes of shared memory for %s of %s", c->shared_bytes, c->entry,
                                 e->module[c->module].what));
    }
    return AN_OK;
}

/* Counts only the scratch that a step really uses: most GEMMs do not touch the library's workspace. */
static an_status find_dependencies(an_err *err, an_exec *e)
{
    const an_plan *p = e->plan;
    int64_t *used = AN_NEW_ARRAY(&e->arena, int64_t, p->n_steps + 1);
    if (!used) return an_cuda_no_memory_for_launches(err);
    for (int32_t s = 0; s < p->n_steps; s++) used[s] = p->step[s].scratch_bytes;
    for (int32_t i = 0; i < e->n_ops; i++) {
        const stream_op *c = &e->op[i];
        if (c->scratch >= 0) used[c->step] = c->scratch;
    }
    return an_dependencies_make(err, p, used, &e->arena, &e->dependencies);
}

/* Whether the plan is captured as a chain whose launches begin early: at least three quarters of them take less than
 * short_s, so that the pause between launches matters, and all can begin early. A GEMM of cuBLASLt cannot. A plan with a
 * backward pass stays a graph: its launches can run beside each other, which gains as much. */
static bool is_short_chain(const an_device *d, const an_plan *p)
{
    const double bytes_a_s = 4e12, flops_a_s = 4e14, short_s = 4e-6;
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_steps; i++) {
        const an_plan_step *s = &p->step[i];
        const an_kernel *k = &p->kernel[s->kernel];
        if (s->phase != AN_PHASE_FORWARD) return false;
        if (k->kind == AN_KERNEL_GEMM && !an_module_gemm_rows(&k->u.gemm, &d->gpu)) return false;
        n += (double)s->bytes < bytes_a_s * short_s && (double)s->flops < flops_a_s * short_s;
    }
    return 4 * n >= 3 * p->n_steps;
}

static an_status make_ready(an_err *err, an_device *d, an_exec *e, an_load_stats *stats)
{
    const an_plan *p = e->plan;
    e->enqueue_s = an_arena_array(&e->arena, sizeof *e->enqueue_s, (size_t)p->n_steps + 1);
    e->event = an_arena_array(&e->arena, sizeof *e->event, 2 * (size_t)p->n_steps + 1);
    if (!e->enqueue_s || !e->event) return an_cuda_no_memory_for_launches(err);
    e->gpu = d->gpu;
    e->gpu.follow = d->follow && d->how == AN_CUDA_GRAPH && is_short_chain(d, p);
    AN_TRY(an_cuda_lower(err, e));
    AN_TRY(an_cuda_compile(err, d, e->module, e->n_modules, stats));
    AN_TRY(find_functions(err, e));
    if (d->how == AN_CUDA_GRAPH && !e->gpu.follow) AN_TRY(find_dependencies(err, e));
    for (int i = 0; i < e->n_ops; i++) e->exchanges |= e->op[i].kind == OP_EXCHANGE;
    if (e->exchanges) AN_TRY(an_cuda_connect(err, d));
    snprintf(stats->note, sizeof stats->note, "%s", d->note);
    return AN_OK;
}

an_status an_cuda_load(an_err *err, an_device *d, const an_plan *p, an_exec **out, an_load_stats *stats)
{
    AN_TRY(an_cuda_enter(err, d));
    an_exec *e = calloc(1, sizeof *e);
    if (!e) return an_cuda_no_memory_for_launches(err);
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

static cu_result launch_kernel(const an_exec *e, const stream_op *c, bool follow)
{
    cu_pointer value[AN_GPU_BINDS];
    void *param[AN_GPU_BINDS];
    cu_tensor_map map[2];
    for (int i = 0; i < c->n_refs; i++) {
        value[i] = address(e, c->refs[i]);
        param[i] = c->refs[i].slot == REF_PARAMS ? c->params : &value[i];
    }
    for (int i = 0; c->gemm && i < 2; i++) {
        const an_gemm_spec *g = &e->plan->kernel[e->plan->step[c->step].kernel].u.gemm;
        cu_result r = an_cuda_operand_map(e->d, g, c->gemm, i, value[i], &map[i]);
        if (r) return r;
        param[i] = &map[i];
    }
    if (!follow)
        return e->d->cu.launch(c->fn, c->blocks[0], c->blocks[1], c->blocks[2], c->threads, 1, 1, c->shared_bytes,
                               e->d->stream, param, NULL);
    cu_launch_attribute early = {.id = CU_LAUNCH_PROGRAMMATIC, .value.allowed = 1};
    const cu_launch_config config = {.blocks = {c->blocks[0], c->blocks[1], c->blocks[2]},
                                     .threads = {c->threads, 1, 1},
                                     .shared_bytes = c->shared_bytes,
                                     .stream = e->d->stream,
                                     .attribute = &early,
                                     .n_attributes = 1};
    return e->d->cu.launch_with(&config, c->fn, param, NULL);
}

/* follow: a kernel that can begin while the one before it ends may. */
static an_status enqueue_op(an_err *err, an_exec *e, const stream_op *c, bool follow)
{
    an_device *d = e->d;
    const an_plan_step *s = &e->plan->step[c->step];
    cu_result r = 0;
    switch (c->kind) {
    case OP_KERNEL: r = launch_kernel(e, c, follow && c->follows); break;
    case OP_FILL: r = d->cu.fill(address(e, c->refs[0]), 0, c->bytes, d->stream); break;
    case OP_COPY: r = d->cu.copy(address(e, c->refs[1]), address(e, c->refs[0]), c->bytes, d->stream); break;
    case OP_EXCHANGE:
        AN_TRY(an_cuda_exchange(err, d, &e->plan->kernel[s->kernel].u.call, address(e, c->refs[0]),
                                address(e, c->refs[1])));
        break;
    case OP_CONV: {
        const cu_pointer at[3] = {address(e, c->refs[0]), address(e, c->refs[1]), address(e, c->refs[2])};
        AN_TRY(an_cuda_conv_run(err, d, c->conv, at, address(e, c->refs[3])));
        break;
    }
    case OP_GEMM: {
        const cu_pointer at[3] = {address(e, c->refs[0]), address(e, c->refs[1]), address(e, c->refs[2])};
        AN_TRY(an_gemm_run(err, d, &e->plan->kernel[s->kernel].u.gemm, c->gemm, &c->ready, at, address(e, c->refs[3]),
                           address(e, c->refs[4])));
        break;
    }
    }
    AN_TRY(an_cuda_check(err, d, r, "launching step %d, %s (in %s)", c->step, an_cuda_step_name(e->plan, s),
                         s->scope ? s->scope : ""));
    if (d->how != AN_CUDA_SYNC) return AN_OK;
    AN_TRY(an_cuda_check(err, d, d->cu.stream_wait(d->stream), "running step %d, %s (in %s)", c->step,
                         an_cuda_step_name(e->plan, s), s->scope ? s->scope : ""));
    return e->plan->isolate_values ? an_cuda_guards_check(err, d, e->plan, e->base[AN_SLOT_ARENA], c->step) : AN_OK;
}

static an_status mark(an_err *err, an_exec *e, int event, bool captured)
{
    an_device *d = e->d;
    if (!e->event[event]) AN_TRY(an_cuda_check(err, d, d->cu.event_new(&e->event[event], 0), "making an event"));
    return an_cuda_check(err, d, d->cu.event_record(e->event[event], d->stream, captured ? CU_EVENT_EXTERNAL : 0),
                         "recording an event");
}

/* Whether a profiled run of it keeps the order of the others: its launches run side by side. */
static bool is_timed_side_by_side(const an_exec *e)
{
    return e->exchanges && e->d->how == AN_CUDA_GRAPH && !e->gpu.follow;
}

/* Enqueues all operations; with `timed`, an event before each step and after the last. */
static an_status enqueue_all(an_err *err, an_exec *e, bool timed, bool captured)
{
    int step = 0;
    double before = an_seconds();
    for (int i = 0; i < e->n_ops; i++) {
        for (; timed && step <= e->op[i].step; step++) AN_TRY(mark(err, e, step, captured));
        AN_TRY(enqueue_op(err, e, &e->op[i], captured && !timed && e->gpu.follow));
        double now = an_seconds();
        if (timed) e->enqueue_s[e->op[i].step] += now - before;
        before = now;
    }
    for (; timed && step <= e->plan->n_steps; step++) AN_TRY(mark(err, e, step, captured));
    return AN_OK;
}

static an_status add_nodes(an_err *err, nodes *all, const cu_graph_node *node, size_t n)
{
    if (all->n + n > all->capacity) {
        const size_t capacity = AN_MAX(2 * all->capacity, all->n + n + 64);
        cu_graph_node *more = realloc(all->node, capacity * sizeof *more);
        if (!more) return an_cuda_no_memory_for_launches(err);
        all->node = more;
        all->capacity = capacity;
    }
    if (n) memcpy(all->node + all->n, node, n * sizeof *node);
    all->n += n;
    return AN_OK;
}

/* Adds the nodes that end step s to those that another step waits for, each once. */
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

/* Captures all operations, each step after those that it depends on. ends[end[s] .. end[s + 1]]: the nodes after which
 * step s is done; a step without an operation is done when its dependencies are. The graph ends when all steps are done.
 * timed: with an event before and after each step that has an operation. */
static an_status capture_steps(an_err *err, an_exec *e, bool timed, size_t *end, nodes *ends, nodes *these)
{
    an_device *d = e->d;
    const an_dependencies *deps = &e->dependencies;
    for (int32_t s = 0, i = 0; s < e->plan->n_steps; s++) {
        const cu_graph_node *last = NULL;
        size_t n_last = 0;
        int status = 0;
        these->n = 0;
        for (int32_t a = deps->first[s]; a < deps->first[s + 1 + e->paired[s]]; a++)
            if (deps->step[a] < s) AN_TRY(add_ends(err, these, ends, end, deps->step[a]));
        AN_TRY(wait_for(err, d, these));
        const bool marked = timed && i < e->n_ops && e->op[i].step == s;
        if (marked) AN_TRY(mark(err, e, 2 * s, true));
        for (; i < e->n_ops && e->op[i].step == s; i++) AN_TRY(enqueue_op(err, e, &e->op[i], false));
        if (marked) AN_TRY(mark(err, e, 2 * s + 1, true));
        AN_TRY(an_cuda_check(err, d, d->cu.capture_state(d->stream, &status, NULL, NULL, &last, &n_last),
                             "asking for the plan's last launch"));
        AN_TRY(add_nodes(err, ends, last, n_last));
        end[s + 1] = ends->n;
    }
    these->n = 0;
    for (int32_t s = 0; s < e->plan->n_steps; s++)
        if (deps->last[s]) AN_TRY(add_ends(err, these, ends, end, s));
    return wait_for(err, d, these);
}

static an_status capture_ops(an_err *err, an_exec *e, bool timed)
{
    if (e->d->how != AN_CUDA_GRAPH || e->gpu.follow || (timed && !e->exchanges))
        return enqueue_all(err, e, timed, true);
    nodes ends = {0}, these = {0};
    size_t *end = calloc((size_t)e->plan->n_steps + 1, sizeof *end);
    an_status status = end ? capture_steps(err, e, timed, end, &ends, &these) : an_cuda_no_memory_for_launches(err);
    free(end);
    free(ends.node);
    free(these.node);
    return status;
}

static an_status capture(an_err *err, an_exec *e, bool timed)
{
    an_device *d = e->d;
    cu_graph graph = NULL;
    AN_TRY(an_cuda_check(err, d, d->cu.capture_begin(d->stream, CU_CAPTURE_THREAD_LOCAL), "capturing the plan"));
    an_status status = capture_ops(err, e, timed);
    cu_result end = d->cu.capture_end(d->stream, &graph); /* also after a failure: the stream must leave capture mode */
    if (status == AN_OK) status = an_cuda_check(err, d, end, "capturing the plan");
    if (status == AN_OK)
        status = an_cuda_check(err, d, d->cu.graph_ready(&e->graph[timed], graph, 0), "making a graph of the plan");
    if (graph) d->cu.graph_free(graph);
    return status;
}

/* The captured graphs have old addresses. */
static an_status drop_graphs(an_err *err, an_exec *e)
{
    an_device *d = e->d;
    if (e->graph[false] || e->graph[true]) AN_TRY(an_cuda_wait_stream(err, d, "waiting for the plan's last run"));
    for (int i = 0; i < 2; i++) {
        if (e->graph[i]) d->cu.graph_exec_free(e->graph[i]);
        e->graph[i] = NULL;
    }
    return AN_OK;
}

static an_status run_graph(an_err *err, an_exec *e, bool timed)
{
    an_device *d = e->d;
    if (timed && !e->graph[true]) memset(e->enqueue_s, 0, sizeof *e->enqueue_s * (size_t)e->plan->n_steps);
    if (!e->graph[timed]) AN_TRY(capture(err, e, timed));
    if (timed && is_timed_side_by_side(e)) AN_TRY(mark(err, e, 2 * e->plan->n_steps, false));
    return an_cuda_check(err, d, d->cu.graph_launch(e->graph[timed], d->stream), "launching the plan");
}

/* *moved: a buffer has another address than at the last submit. */
static an_status bind_slots(an_err *err, an_exec *e, const an_buffer *slots, int n, bool *moved)
{
    if (n > e->n_slots) {
        e->base = an_arena_array(&e->arena, sizeof *e->base, (size_t)n);
        if (!e->base) return an_cuda_no_memory_for_launches(err);
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
    if (e->plan->isolate_values) AN_TRY(an_cuda_guards_set(err, d, e->plan, e->base[AN_SLOT_ARENA]));
    if (d->how != AN_CUDA_GRAPH && d->how != AN_CUDA_CHAIN) {
        if (timed) memset(e->enqueue_s, 0, sizeof *e->enqueue_s * (size_t)e->plan->n_steps);
        AN_TRY(enqueue_all(err, e, timed, false));
    } else if (e->n_ops) { /* a plan of empty tensors has nothing to do */
        const bool again = moved && e->moved && !timed && !e->exchanges;
        if (moved) AN_TRY(drop_graphs(err, e));
        AN_TRY(again ? enqueue_all(err, e, false, false) : run_graph(err, e, timed));
        e->moved = moved;
    }
    e->timed = timed;
    if (e->plan->isolate_values) AN_TRY(an_cuda_guards_check(err, d, e->plan, e->base[AN_SLOT_ARENA], -1));
    *out = ++d->tickets;
    return an_cuda_check(err, d, d->cu.event_record(d->event[*out % AN_CUDA_EVENTS], d->stream, 0),
                         "recording an event");
}

/* ---------------------------------------------------------------------------------------------- times */

void an_cuda_profile(an_device *d, bool on)
{
    d->profile = on;
}

/* Between two events of the last profiled run; 0: not known. */
static double seconds_between(an_device *d, const an_exec *e, int from, int to)
{
    float ms = 0;
    an_err quiet = {0};
    if (!e->timed || !e->event[from] || !e->event[to] || an_cuda_enter(&quiet, d) != AN_OK) return 0;
    return d->cu.event_ms(&ms, e->event[from], e->event[to]) ? 0 : (double)ms * 1e-3;
}

double an_cuda_step_seconds(an_device *d, an_exec *e, int step)
{
    return is_timed_side_by_side(e) ? seconds_between(d, e, 2 * step, 2 * step + 1)
                                    : seconds_between(d, e, step, step + 1);
}

double an_cuda_step_begin(an_device *d, an_exec *e, int step)
{
    if (!e->timed || !is_timed_side_by_side(e)) return -1;
    return seconds_between(d, e, 2 * e->plan->n_steps, 2 * step);
}

double an_cuda_enqueue_seconds(an_device *d, an_exec *e, int step)
{
    (void)d;
    return e->timed ? e->enqueue_s[step] : -1;
}
