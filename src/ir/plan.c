/* plan.c: freeing and printing of plans. */
#include "ir/plan.h"

#include <stdlib.h>

static const char *const kinds[] = {"row",  "gemm", "attention", "attention_grad", "scatter",
                                    "call", "zero", "copy",      "row_update"};
static const char *const usages[] = {"weight", "gradient", "moment", "state", "activation", "scratch", "input"};

void an_plan_free(an_plan *p)
{
    if (!p) return;
    for (int i = 0; i < p->n_kernels; i++)
        if (p->kernel[i].kind == AN_KERNEL_LOOP) an_loop_kernel_free(p->kernel[i].u.loop);
    free(p->text_plan);
    free(p->text_memory);
    an_arena arena = p->arena; /* the plan itself lives in it */
    an_arena_free(&arena);
}

bool an_kernel_is_exchange(const an_kernel *k)
{
    return k->kind == AN_KERNEL_CALL && an_ops[k->u.call.op].cls == AN_CLS_COLLECTIVE;
}

int32_t an_kernel_first(const an_plan *p, int32_t k)
{
    int32_t first = 0;
    while (p->kernel[first].text != p->kernel[k].text) first++;
    return first;
}

int64_t an_value_offset(const an_plan *p, int32_t v, int32_t *slot)
{
    int64_t at = 0;
    for (; p->value[v].inside >= 0; v = p->value[v].inside) at += p->value[v].offset;
    *slot = p->value[v].slot;
    return at + p->value[v].offset;
}

bool an_step_aligned(const an_plan_step *s)
{
    for (int a = 0; a < s->n_args; a++) /* a scalar has no neighbours that are read with it */
        if (s->arg[a].slot >= 0 && s->arg[a].offset % 16 && s->arg[a].bytes >= 8) return false;
    return s->scratch % 16 == 0 || s->scratch_bytes <= 0;
}

void an_plan_shape(const an_plan *p, int step, an_text *out)
{
    const an_kernel *k = &p->kernel[p->step[step].kernel];
    if (k->kind == AN_KERNEL_GEMM) {
        const an_gemm_spec *g = &k->u.gemm;
        int64_t batch = (int64_t)g->nb[0] * g->nb[1] * g->nb[2];
        if (batch > 1) an_text_printf(out, "%lld x ", (long long)batch);
        an_text_printf(out, "%dx%dx%d %s", g->m, g->n, g->k, g->mul_dtype == AN_BF16 ? "bf16" : "f32");
    } else if (k->kind == AN_KERNEL_LOOP) {
        an_text_printf(out, "%lld x %lld", (long long)k->u.loop->rows, (long long)k->u.loop->cols);
        if (k->u.loop->red > 1) an_text_printf(out, " over %lld", (long long)k->u.loop->red);
    }
}

static void print_step(const an_plan *p, int i, an_text *out)
{
    const an_plan_step *s = &p->step[i];
    const an_kernel *k = &p->kernel[s->kernel];
    an_text_printf(out, "%4d %-14s %-40s", i, kinds[k->kind], k->name ? k->name : "");
    if (k->kind == AN_KERNEL_GEMM || k->kind == AN_KERNEL_LOOP) an_text_puts(out, " ");
    an_plan_shape(p, i, out);
    if (s->epilogue >= 0) an_text_printf(out, " + %s", p->kernel[s->epilogue].name);
    an_text_printf(out, "  flops %llu bytes %llu", (unsigned long long)s->flops, (unsigned long long)s->bytes);
    for (int a = 0; a < s->n_args; a++) {
        if (s->arg[a].slot < 0) continue;
        an_text_printf(out, "%s%s%d:%lld", a ? " " : "  [", s->arg[a].written ? ">" : "", s->arg[a].slot,
                       (long long)s->arg[a].offset);
    }
    an_text_printf(out, "]%s", s->recompute ? " rematerialized" : "");
    if (s->remat_outputs) an_text_printf(out, " and %d rematerialized", s->remat_outputs);
    an_text_printf(out, "%s%s\n", s->commit ? " commit" : "", s->fallback ? " on the CPU" : "");
}

void an_plan_print(const an_plan *p, an_text *out)
{
    an_text_printf(out, "plan: %d steps, %d kernels, arena %lld bytes, inputs %lld bytes\n", p->n_steps, p->n_kernels,
                   (long long)p->arena_bytes, (long long)p->input_bytes);
    if (p->n_split)
        an_text_printf(out, "%d group%s split, first %s\n", p->n_split, p->n_split == 1 ? " was" : "s were",
                       p->first_split);
    for (int i = 0; i < p->n_steps; i++) print_step(p, i, out);
    for (int v = 0; v < p->n_values; v++) {
        const an_value *x = &p->value[v];
        int32_t slot;
        int64_t at = an_value_offset(p, v, &slot);
        an_text_printf(out, "  v%-4d %-10s slot %d at %-12lld %12lld bytes  steps %d..%d%s  %s\n", v, usages[x->usage],
                       slot, (long long)at, (long long)x->bytes, x->first, x->last, x->inside >= 0 ? " (inside)" : "",
                       x->name);
    }
}
