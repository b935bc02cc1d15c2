/* graph_exec.c: a plan made ready for the GPU, and run: its calls (lower_launches.c), captured once as a CUDA graph and replayed as
 * long as the memory stands where it stood. In the graph a step waits for those whose memory it touches and for no
 * other (ir/dependencies.h), so one kernel's last groups run beside another's first.
 *
 * Owns:      modules, the captured graph, the events of a profiled run.
 * Does not:  make calls, compile (compile.c), or allocate in a submit.
 * Invariants: calls are made in the plan's order, on one stream; arguments do not change between submits, for what
 * changes stands in the input block; replay and plain launches run the same calls, so the bits are the same. A graph
 * with events between its steps is one chain: only then does a launch have a time of its own.
 */
#include "platform/platform.h"
#include "device/cuda/graph_exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct nodes { /* of the graph that is being captured */
    cu_graph_node *node;
    size_t n, room;
} nodes;

/* ---------------------------------------------------------------------------------------------- load */

void an_cuda_unload(an_device *d, an_exec *e)
{
    an_err quiet = {0};
    if (!e) return;
    bool reachable = an_cuda_enter(&quiet, d) == AN_OK && an_cuda_wait_idle(d);
    if (e->graph && reachable) d->cu.graph_exec_free(e->graph);
    for (int i = 0; i < e->n_calls; i++)
        if (e->call[i].kind == CALL_PRODUCT) an_product_free(d, &e->call[i].ready);
    for (int i = 0; i < e->n_units; i++) an_cuda_module_free(d, &e->unit[i]);
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
    if (!used) return an_cuda_no_room(err);
    for (int32_t s = 0; s < p->n_steps; s++) used[s] = p->step[s].scratch_bytes;
    for (int32_t i = 0; i < e->n_calls; i++) {
        const call *c = &e->call[i];
        if (c->scratch >= 0) used[c->step] = c->scratch;
    }
    return an_dependencies_make(err, p, used, &e->arena, &e->after);
}

static an_status make_ready(an_err *err, an_device *d, an_exec *e, an_load_stats *stats)
{
    const an_plan *p = e->plan;
    e->enqueue_s = an_arena_array(&e->arena, sizeof *e->enqueue_s, (size_t)p->n_steps + 1);
    e->event = an_arena_array(&e->arena, sizeof *e->event, (size_t)p->n_steps + 1);
    if (!e->enqueue_s || !e->event) return an_cuda_no_room(err);
    AN_TRY(an_cuda_calls(err, e));
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
    if (!e) return an_cuda_no_room(err);
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
    AN_TRY(an_cuda_check(err, d, r, "launching step %d, %s (in %s)", c->step, an_cuda_step_name(e->plan, s),
                         s->scope ? s->scope : ""));
    if (d->how != AN_CUDA_SYNC) return AN_OK;
    AN_TRY(an_cuda_check(err, d, d->cu.stream_wait(d->stream), "running step %d, %s (in %s)", c->step,
                         an_cuda_step_name(e->plan, s), s->scope ? s->scope : ""));
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
        if (!more) return an_cuda_no_room(err);
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
    const an_dependencies *after = &e->after;
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
    an_status status = end ? capture_steps(err, e, end, &ends, &these) : an_cuda_no_room(err);
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
        if (!e->base) return an_cuda_no_room(err);
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
