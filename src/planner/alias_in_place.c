/* alias_in_place.c: an output of a loop kernel takes the memory of an input that dies there (in-place operation, buffer donation).
 * Updates of states in place: assign_states.c.
 *
 *     dlogits = softmax(logits) - onehot     written over the logits, which nothing reads any more
 *
 * An output may alias an input when both have the same size, the input's life ends with this step, each element of the
 * input is read where and not after the output's is written (an_may_alias), and no other argument of the step is in that
 * memory. Gradients in their block stay where they are. The aliased input becomes the output's container, and lives as
 * long as it. */
#include "planner/planner_internal.h"

static int32_t outermost(const an_plan *p, int32_t v)
{
    while (p->value[v].inside >= 0) v = p->value[v].inside;
    return v;
}

const an_loop_kernel *an_loop_of(const an_plan *p, const an_plan_step *s, int arg, int *first)
{
    *first = s->epilogue >= 0 ? s->n_gemm_args : 0;
    int k = s->epilogue >= 0 ? s->epilogue : s->kernel;
    if (arg < *first || p->kernel[k].kind != AN_KERNEL_LOOP) return NULL;
    return p->kernel[k].u.loop;
}

/* Argument o of the step is an output in the arena, first written there, with memory of its own. */
static bool may_move(const an_plan *p, int step, int o)
{
    const an_arg *a = &p->step[step].arg[o];
    if (!a->written || a->value < 0) return false;
    const an_value *v = &p->value[a->value];
    return v->slot == AN_SLOT_ARENA && v->inside < 0 && v->first == step;
}

/* The memory of input i that output o may take, -1. */
static int32_t memory_for(const an_plan *p, int step, int o, int i)
{
    const an_plan_step *s = &p->step[step];
    const int32_t ov = s->arg[o].value, iv = s->arg[i].value;
    if (s->arg[i].written || iv < 0 || iv == ov || p->value[iv].slot != AN_SLOT_ARENA ||
        p->value[iv].bytes != p->value[ov].bytes)
        return -1;
    const int32_t top = outermost(p, iv);
    const an_value *memory = &p->value[top];
    if (memory->last != step || memory->bytes != p->value[iv].bytes || memory->usage == AN_USE_GRADIENT ||
        memory->usage == AN_USE_WEIGHT || top == ov)
        return -1;
    for (int k = 0; k < s->n_args; k++)
        if (k != i && k != o && s->arg[k].value >= 0 && outermost(p, s->arg[k].value) == top) return -1;
    return top;
}

static void alias_outputs(an_plan *p, int step)
{
    const an_plan_step *s = &p->step[step];
    for (int o = 0; o < s->n_args; o++) {
        int first = 0;
        const an_loop_kernel *loop = may_move(p, step, o) ? an_loop_of(p, s, o, &first) : NULL;
        for (int i = first; loop && i < s->n_args; i++) {
            const int32_t top = memory_for(p, step, o, i);
            if (top < 0 || !an_may_alias(loop, i - first, o - first)) continue;
            const int32_t ov = s->arg[o].value;
            p->value[ov].inside = top;
            p->value[top].last = AN_MAX(p->value[top].last, p->value[ov].last);
            break;
        }
    }
}

an_status an_pass_alias_in_place(an_planner *w)
{
    an_find_lifetimes(w->plan);
    for (int s = 0; s < w->plan->n_steps && !w->rq->isolate_values && !w->rq->unfused; s++) alias_outputs(w->plan, s);
    return AN_OK;
}
