/* plan_run.h: runs every launch of a plan, in order, as MSL on the CPU shim: what a Metal backend does, without Metal.
 *
 * Owns:       the plan's texts as loaded objects, and scratch.
 * Does not:   own the memory of the slots, or end a test.
 * Invariants: a launch can access only the bytes of its own arguments, so a wrong offset is a fault. Arguments that are
 *             never read are bound to poison. Texts that several steps share are compiled once.
 */
#ifndef AN_PLAN_RUN_H
#define AN_PLAN_RUN_H

#include "shim_text.h"

#include "codegen/gpu_step.h"
#include "codegen/render.h"

enum { PLAN_RUN_WHY = 16384 };

typedef struct plan_text { /* a compiled text; kept for the next plan that has it */
    char *text;
    shim_object object;
    struct plan_text *next;
} plan_text;

typedef struct plan_run {
    const an_plan *plan;
    an_gpu gpu;
    const char *folder;
    plan_text **texts;     /* shared by plans: the caller's list */
    plan_text **of;        /* [n_steps]; NULL: filled or copied by the driver */
    long launches;         /* of the last run */
    const char *from, *to; /* a mistake to make: the first `from` in each text becomes `to`; NULL: none */
    int mistakes;
    char why[PLAN_RUN_WHY];
} plan_run;

static inline void plan_texts_free(plan_text **list)
{
    for (plan_text *t = *list, *next; t; t = next) {
        next = t->next;
        shim_close(&t->object);
        free(t->text);
        free(t);
    }
    *list = NULL;
}

static inline void plan_text_spoil(plan_run *r, an_text *text)
{
    const char *at = r->from && text->data ? strstr(text->data, r->from) : NULL;
    an_text spoilt = {0};
    if (!at) return;
    an_text_printf(&spoilt, "%.*s%s%s", (int)(at - text->data), text->data, r->to, at + strlen(r->from));
    an_text_free(text);
    *text = spoilt;
    r->mistakes++;
}

/* The object of a text, compiled now or before. NULL: r->why. Takes over `text`. */
static inline plan_text *plan_text_find(plan_run *r, an_text *text)
{
    plan_text_spoil(r, text);
    for (plan_text *t = *r->texts; t && text->data; t = t->next)
        if (!strcmp(t->text, text->data)) return an_text_free(text), t;
    plan_text *t = calloc(1, sizeof *t);
    if (!t || text->failed || !text->data) {
        snprintf(r->why, sizeof r->why, "a text was not rendered");
    } else if (!shim_compile(&t->object, text->data, r->gpu.version, r->folder, r->why, sizeof r->why)) {
        t->text = text->data;
        t->next = *r->texts;
        return *r->texts = t;
    }
    an_text_free(text);
    free(t);
    return NULL;
}

/* The first step whose loop kernel has the text of step s: the same kernel, computed in place in the same way. */
static inline int plan_row_text(const plan_run *r, int s)
{
    const an_plan *p = r->plan;
    const an_aliases wanted = an_step_aliases(p, &p->step[s], &r->gpu);
    for (int i = 0; i < s; i++) {
        if (p->step[i].kernel != p->step[s].kernel) continue;
        const an_aliases known = an_step_aliases(p, &p->step[i], &r->gpu);
        if (!memcmp(&known, &wanted, sizeof known)) return i;
    }
    return s;
}

static inline const char *plan_row_name(char out[24], int text)
{
    snprintf(out, 24, "row%d", text);
    return out;
}

/* All loop kernels of the plan in one text: one compilation. */
static inline int plan_compile_rows(plan_run *r)
{
    const an_plan *p = r->plan;
    an_text all = {0};
    char name[24];
    int n = 0;
    for (int s = 0; s < p->n_steps; s++) {
        const an_kernel *k = &p->kernel[p->step[s].kernel];
        if (k->kind != AN_KERNEL_LOOP || plan_row_text(r, s) != s) continue;
        const an_aliases aliases = an_step_aliases(p, &p->step[s], &r->gpu);
        plan_row_name(name, s);
        if (n++)
            an_render_gpu(k->u.loop, name, &r->gpu, &aliases, false, &all);
        else
            an_render_module(p, &p->step[s], &r->gpu, name, &all);
    }
    if (!n) return 0;
    plan_text *t = plan_text_find(r, &all);
    for (int s = 0; t && s < p->n_steps; s++)
        if (p->kernel[p->step[s].kernel].kind == AN_KERNEL_LOOP) r->of[s] = t;
    return t ? 0 : -1;
}

static inline void plan_run_close(plan_run *r)
{
    free(r->of);
    r->of = NULL;
}

/* 0, or -1 and r->why: the sentence of the step that has no kernel, or a compiler's. */
static inline int plan_run_open(plan_run *r, const an_plan *p, an_gpu gpu, const char *folder, plan_text **texts)
{
    const char *from = r->from, *to = r->to;
    *r = (plan_run){.plan = p, .gpu = gpu, .folder = folder, .texts = texts, .from = from, .to = to};
    r->of = calloc((size_t)p->n_steps + 1, sizeof *r->of);
    if (!r->of) return snprintf(r->why, sizeof r->why, "out of memory"), -1;
    for (int s = 0; s < p->n_steps; s++) {
        const an_kernel *k = &p->kernel[p->step[s].kernel];
        an_tiles tiles;
        const char *why = an_module_tiles(p, &p->step[s], &r->gpu, &tiles);
        if (k->kind == AN_KERNEL_ZERO || k->kind == AN_KERNEL_COPY) continue;
        if (why) {
            snprintf(r->why, sizeof r->why, "step %d, %s, %s", s, k->name, why);
        } else if (k->kind != AN_KERNEL_LOOP) {
            an_text text = {0};
            an_render_module(p, &p->step[s], &r->gpu, "", &text);
            r->of[s] = plan_text_find(r, &text);
        }
        if (k->kind != AN_KERNEL_LOOP && !r->of[s]) return plan_run_close(r), -1;
    }
    if (!plan_compile_rows(r)) return 0;
    plan_run_close(r);
    return -1;
}

/* An argument's bytes. One with strides, part of a larger value, may reach to that value's end. */
static inline shim_buffer plan_argument(const an_plan *p, const an_plan_step *s, int arg, void *const *slot)
{
    const an_arg *a = &s->arg[arg];
    int64_t bytes = a->bytes;
    if (a->value >= 0 && p->value[a->value].inside >= 0) {
        int32_t whole = a->value, in;
        while (p->value[whole].inside >= 0) whole = p->value[whole].inside;
        bytes = an_value_offset(p, whole, &in) + p->value[whole].bytes - a->offset;
    }
    return (shim_buffer){(char *)slot[a->slot] + a->offset, (size_t)bytes};
}

static inline int plan_run_step(plan_run *r, int step, void *const *slot, uint64_t seed)
{
    static uint32_t poison[64];
    const an_plan_step *s = &r->plan->step[step];
    const an_kernel *k = &r->plan->kernel[s->kernel];
    if (k->kind == AN_KERNEL_ZERO || k->kind == AN_KERNEL_COPY) {
        shim_buffer to = plan_argument(r->plan, s, k->kind == AN_KERNEL_COPY, slot);
        to.bytes = (size_t)s->arg[k->kind == AN_KERNEL_COPY].bytes;
        if (k->kind == AN_KERNEL_ZERO)
            memset(to.base, 0, to.bytes);
        else
            memmove(to.base, plan_argument(r->plan, s, 0, slot).base, to.bytes);
        return 0;
    }
    an_gpu_step g;
    const char *why = an_gpu_step_make(r->plan, s, &r->gpu, &g);
    if (why) return snprintf(r->why, sizeof r->why, "step %d, %s, %s", step, k->name, why), -1;
    const size_t bytes = an_gpu_scratch(k, &r->gpu);
    uint32_t *scratch = malloc(bytes + 64);
    if (!scratch) return snprintf(r->why, sizeof r->why, "out of memory"), -1;
    for (size_t i = 0; i < bytes / 4; i++) scratch[i] = 0x7fc0dead;
    for (size_t i = 0; i < AN_COUNT(poison); i++) poison[i] = 0x7fc0dead;
    int status = 0;
    for (int i = 0; i < g.n_launches && !status; i++, r->launches++) {
        const an_gpu_launch *l = &g.launch[i];
        char row[24];
        const char *entry = l->entry ? l->entry : plan_row_name(row, plan_row_text(r, step));
        shim_launch launch = {
            .groups = {l->blocks[0], l->blocks[1], l->blocks[2]}, .threads = l->threads, .seed = seed + (uint64_t)i};
        for (int b = 0; b < l->n_binds; b++) {
            const an_gpu_binding *bind = &l->bind[b];
            shim_buffer *to = &launch.buffers[bind->index];
            switch ((an_bind_kind)bind->kind) {
            case AN_BIND_ARG: *to = plan_argument(r->plan, s, bind->arg, slot); break;
            case AN_BIND_SCRATCH:
                *to = (shim_buffer){(char *)scratch + bind->offset, bytes - (size_t)bind->offset};
                break;
            case AN_BIND_PARAMS: *to = (shim_buffer){&g.params, g.params_bytes}; break;
            case AN_BIND_ANY: *to = (shim_buffer){poison, sizeof poison}; break;
            }
        }
        shim_report report = shim_call(&r->of[step]->object, entry, &launch);
        if (report.faults)
            status = snprintf(r->why, sizeof r->why, "step %d, %s, %s: %ld faults; the first: %s", step, k->name, entry,
                              report.faults, report.first) < 0
                         ? -2
                         : -1;
    }
    free(scratch);
    return status;
}

/* slot[i]: where slot i begins. Every run draws another order of threads and groups from `seed`. 0, or -1 and r->why.
 */
static inline int plan_run_all(plan_run *r, void *const *slot, uint64_t seed)
{
    r->launches = 0;
    for (int s = 0; s < r->plan->n_steps; s++)
        if (plan_run_step(r, s, slot, seed * 7919 + (uint64_t)s * 31)) return -1;
    return 0;
}

#endif
