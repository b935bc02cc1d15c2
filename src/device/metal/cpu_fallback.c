/* cpu_fallback.c: runs the steps that an Apple GPU cannot run (float64) on the CPU. Only with fallback=cpu, and counted in
 * the cost report (an_plan_step.fallback).
 *
 * Owns:       the CPU device, and the plans that it is given: consecutive CPU steps between two launches of the GPU are a
 *             plan of their own.
 * Does not:   decide which steps they are (planner/cost_report.c) or wait for the GPU (metal_run.c).
 * Invariants: nothing is copied. Buffers are in shared storage, so the CPU works on the memory that the GPU wrote and will
 *             read; the cost is the wait in between. Slot 0 of a CPU plan is its own scratch, and its slot n + 1 is slot
 *             n of the whole plan: the arena has scratch for the GPU's kernels, not for the CPU's. */
#include "device/metal/metal_internal.h"

#include "codegen/render.h"

#include <string.h>

/* Opens the CPU device when the first plan needs it. */
static an_status cpu_of(an_err *err, an_device *d)
{
    if (d->cpu) return AN_OK;
    if (!(d->cpu_backend = an_backend_find(err, "cpu"))) return err->code;
    return d->cpu_backend->open(err, &d->options, &d->cpu);
}

/* Renders the C text of a loop kernel that the CPU will run. */
static an_status take_text(an_err *err, an_arena *arena, an_kernel *k)
{
    if (k->kind != AN_KERNEL_LOOP || k->text) return AN_OK;
    an_text t = {0};
    an_render("c", k->u.loop, "NAME", false, &t);
    if (!t.failed && t.data) k->text = an_arena_strdup(arena, t.data);
    k->key = an_hash(t.data ? t.data : "", t.len, 0);
    an_text_free(&t);
    return k->text ? AN_OK : an_fail_nomem(err, "a kernel's text", 0);
}

/* Makes the plan of the CPU steps in [from, to) of `p`. Only the kernels that they use have a text, so only those are
 * compiled. */
static an_status cpu_plan(an_err *err, an_device *d, an_arena *arena, const an_plan *p, an_mtl_cpu_steps *h,
                          size_t *scratch)
{
    const an_target *cpu = d->cpu_backend->target(d->cpu);
    an_kernel *kernel = an_arena_copy(arena, p->kernel, sizeof *kernel * (size_t)(p->n_kernels + 1));
    an_plan_step *step = AN_NEW_ARRAY(arena, an_plan_step, h->to - h->from);
    if (!kernel || !step) return an_fail_nomem(err, "a loaded plan", 0);
    for (int32_t k = 0; k < p->n_kernels; k++) kernel[k].text = NULL;
    h->plan = (an_plan){.key = p->key, .n_kernels = p->n_kernels, .kernel = kernel, .step = step};
    for (int32_t s = h->from; s < h->to; s++) {
        if (!p->step[s].fallback) continue; /* a GPU step without a launch: an empty tensor */
        an_plan_step *mine = &step[h->plan.n_steps++];
        *mine = p->step[s];
        mine->scratch = 0;
        if (!(mine->arg = an_arena_copy(arena, mine->arg, sizeof *mine->arg * (size_t)AN_MAX(mine->n_args, 1))))
            return an_fail_nomem(err, "a loaded plan", 0);
        for (int a = 0; a < mine->n_args; a++) mine->arg[a].slot += mine->arg[a].slot >= 0;
        AN_TRY(take_text(err, arena, &kernel[mine->kernel]));
        if (mine->epilogue >= 0) AN_TRY(take_text(err, arena, &kernel[mine->epilogue]));
        *scratch = AN_MAX(*scratch, cpu->scratch(cpu, &kernel[mine->kernel]));
        h->commits |= mine->commit;
    }
    return AN_OK;
}

an_status an_mtl_cpu_load(an_err *err, an_device *d, an_exec *e, an_load_stats *stats)
{
    size_t scratch = 0;
    if (!e->n_cpu) return AN_OK;
    AN_TRY(cpu_of(err, d));
    for (int32_t i = 0; i < e->n_cpu; i++) {
        an_mtl_cpu_steps *h = &e->cpu[i];
        an_load_stats mine = {0};
        AN_TRY(cpu_plan(err, d, &e->arena, e->plan, h, &scratch));
        AN_TRY(d->cpu_backend->load(err, d->cpu, &h->plan, &h->exec, &mine));
        stats->cached += mine.cached;
        stats->interpreted += mine.interpreted;
        if (mine.note[0]) memcpy(stats->note, mine.note, sizeof stats->note);
    }
    return d->cpu_backend->alloc(err, d->cpu, AN_MAX(scratch, 64), &e->cpu_scratch);
}

an_status an_mtl_cpu_run(an_err *err, an_device *d, an_exec *e, an_mtl_cpu_steps *h, const an_buffer *slots,
                         int n_slots)
{
    an_ticket ticket;
    if (n_slots >= e->cap_cpu_slots) {
        e->cpu_slot = an_arena_array(&e->arena, sizeof *slots, (size_t)n_slots + 1);
        if (!e->cpu_slot) return an_fail_nomem(err, "the slots of a step", sizeof *slots * (size_t)n_slots);
        e->cap_cpu_slots = n_slots + 1;
    }
    e->cpu_slot[0] = e->cpu_scratch;
    memcpy(e->cpu_slot + 1, slots, sizeof *slots * (size_t)n_slots);
    AN_TRY(d->cpu_backend->submit(err, d->cpu, h->exec, e->cpu_slot, n_slots + 1, &ticket));
    AN_TRY(d->cpu_backend->wait(err, d->cpu, ticket, INT64_MAX));
    int32_t step = 0;
    for (int32_t s = h->from; s < h->to; s++)
        if (e->plan->step[s].fallback) e->seconds[s] = d->cpu_backend->step_seconds(d->cpu, h->exec, step++);
    return AN_OK;
}

void an_mtl_cpu_unload(an_device *d, an_exec *e)
{
    for (int32_t i = 0; i < e->n_cpu; i++)
        if (e->cpu[i].exec) d->cpu_backend->unload(d->cpu, e->cpu[i].exec);
    if (e->cpu_scratch.host) d->cpu_backend->free(d->cpu, &e->cpu_scratch);
    e->n_cpu = 0;
}
