/* plan_tables.c: appends to the plan's tables: kernels, steps, values, inputs; makes arguments out of them. */
#include "planner/planner_internal.h"

#include <string.h>

/* Makes space for one more element of an array in the plan's arena. */
static bool grow(an_arena *arena, void **array, int32_t n, int32_t *cap, size_t bytes)
{
    if (n < *cap) return true;
    int32_t more = *cap ? 2 * *cap : 64;
    void *bigger = an_arena_alloc(arena, bytes * (size_t)more);
    if (!bigger) return false;
    if (n) memcpy(bigger, *array, bytes * (size_t)n);
    *array = bigger;
    *cap = more;
    return true;
}

int32_t an_kernel_new(an_planner *w, an_kernel k)
{
    an_plan *p = w->plan;
    if (!k.name || !grow(w->arena, (void **)&p->kernel, p->n_kernels, &w->cap_kernels, sizeof k))
        return -1; /* a name is NULL when there was no memory for it */
    p->kernel[p->n_kernels] = k;
    return p->n_kernels++;
}

an_plan_step *an_step_new(an_planner *w, int32_t kernel, const an_arg *arg, int n_args, const char *scope)
{
    an_plan *p = w->plan;
    if (kernel < 0 || !grow(w->arena, (void **)&p->step, p->n_steps, &w->cap_steps, sizeof(an_plan_step))) return NULL;
    an_plan_step *s = &p->step[p->n_steps];
    *s = (an_plan_step){.kernel = kernel,
                        .epilogue = -1,
                        .n_args = n_args,
                        .n_gemm_args = n_args,
                        .scratch = -1,
                        .scope = an_arena_strdup(w->arena, scope)};
    s->arg = an_arena_copy(w->arena, arg, sizeof *arg * (size_t)AN_MAX(n_args, 1));
    if (!s->arg || !s->scope) return NULL;
    s->flops = p->kernel[kernel].flops;
    s->bytes = p->kernel[kernel].bytes;
    p->n_steps++;
    return s;
}

int32_t an_value_new(an_planner *w, int32_t node, int32_t output, int64_t bytes, an_usage usage, const char *name)
{
    an_plan *p = w->plan;
    if (!grow(w->arena, (void **)&p->value, p->n_values, &w->cap_values, sizeof(an_value))) return -1;
    p->value[p->n_values] = (an_value){.node = node,
                                       .output = output,
                                       .bytes = bytes,
                                       .first = -1,
                                       .last = -1,
                                       .inside = -1,
                                       .usage = (uint8_t)usage,
                                       .name = name};
    return p->n_values++;
}

static an_arg input_arg(an_planner *w, const struct an_tensor *n)
{
    an_plan *p = w->plan;
    int64_t bytes = n->numel * (int64_t)an_dtype_bytes((an_dtype)n->dtype);
    for (int i = 0; i < p->n_inputs; i++)
        if (p->input[i].leaf_kind == n->attr[0] && p->input[i].leaf_index == n->attr[1])
            return (an_arg){.slot = AN_SLOT_INPUT, .offset = p->input[i].offset, .bytes = bytes, .value = -1};
    an_arg none = {.slot = -1, .value = -1};
    if (!grow(w->arena, (void **)&p->input, p->n_inputs, &w->cap_inputs, sizeof *p->input)) return none;
    int64_t align = n->attr[0] == AN_LEAF_SCALAR ? 8 : 64;
    if (!p->input_bytes) p->input_bytes = 64; /* the random generator's two words come first */
    p->input_bytes = an_round_up(p->input_bytes, align);
    p->input[p->n_inputs++] = (an_plan_input){
        .leaf_kind = (int32_t)n->attr[0], .leaf_index = (int32_t)n->attr[1], .offset = p->input_bytes, .bytes = bytes};
    an_arg a = {.slot = AN_SLOT_INPUT, .offset = p->input_bytes, .bytes = bytes, .value = -1};
    p->input_bytes += bytes;
    return a;
}

an_arg an_arg_of(an_planner *w, int32_t base, bool written)
{
    const struct an_tensor *n = w->g->node[base];
    if (!an_is_leaf(w, base)) {
        int32_t v = w->node[base].value;
        return (an_arg){
            .slot = AN_SLOT_ARENA, .bytes = v >= 0 ? w->plan->value[v].bytes : 0, .written = written, .value = v};
    }
    if (n->attr[0] == AN_LEAF_INPUT || n->attr[0] == AN_LEAF_SCALAR) return input_arg(w, n);
    an_leaf_place at = w->rq->leaf(w->rq->user, (an_leaf)n->attr[0], (int)n->attr[1]);
    if (at.part_bytes) /* it has no memory yet: gather_weights.c */
        return (an_arg){
            .slot = AN_SLOT_IN_PARTS + (int32_t)n->attr[1], .bytes = at.bytes, .written = written, .value = -1};
    return (an_arg){.slot = at.slot, .offset = at.offset, .bytes = at.bytes, .written = written, .value = -1};
}

/* ------------------------------------------------------------------------------------------------- aliasing */

/* Whether one worker (a thread's tile, a GPU's subgroup) computes entire rows. Else a row's value is loaded by many of
 * them and stored by one, in no order. */
static bool rows_are_whole(const an_loop_kernel *p)
{
    bool whole = p->cols <= 1 || p->n_phases > 1;
    for (int i = 0; i < p->n_ins; i++) whole |= p->ins[i].kind == AN_INS_REDUCE;
    return whole && p->shape == AN_ROW;
}

/* Whether load `l` reads one element, by address, of the row that is stored at `where`, in an earlier phase than the
 * store: every worker has it by then, since reductions and the renderers' barriers come between. */
static bool is_loaded_before(const an_loop_kernel *p, const an_ins *l, an_ix where, int phase)
{
    int64_t stride;
    return l->kind == AN_INS_LOAD && l->a >= 0 && l->scope == AN_SCOPE_ROW && l->phase < phase && rows_are_whole(p) &&
           l->clamp <= p->cols && an_ix_stride(&p->ix, where, AN_VAR_COL, &stride) && stride == l->scale &&
           an_ix_is_without(&p->ix, where, AN_VAR_COL, l->ix);
}

int64_t an_offset_in_value(const an_plan *p, const an_arg *x, int32_t v)
{
    int64_t at = x->offset;
    int32_t i = x->value;
    for (; i >= 0 && i != v; i = p->value[i].inside) at += p->value[i].offset;
    return i >= 0 ? at : -1;
}

/* Whether kernels access both dtypes as one type: C's rules let a compiler assume that an int and a float never share
 * memory. 16-bit floats are integers of 16 bits there, and AN_U8 and AN_BOOL are bytes. */
static bool share_a_type(int a, int b)
{
    const size_t bytes = an_dtype_bytes((an_dtype)a);
    return a == b || (bytes == an_dtype_bytes((an_dtype)b) && bytes < 4);
}

bool an_may_alias(const an_loop_kernel *p, int in, int out)
{
    an_ix where = -1;
    int stored = 0;
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *s = &p->ins[i];
        if (s->kind != AN_INS_STORE || s->arg != out) continue;
        if (where >= 0 || s->guard >= 0) return false;
        if (s->scope == AN_SCOPE_ROW && !rows_are_whole(p)) return false;
        where = s->ix;
        stored = i;
    }
    if (where < 0) return false;
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *l = &p->ins[i];
        if (l->arg != in || l->kind == AN_INS_STORE || is_loaded_before(p, l, where, p->ins[stored].phase)) continue;
        if (l->kind != AN_INS_LOAD || l->ix != where || l->a >= 0 || i > stored ||
            (p->shape == AN_COL && l->phase == 0))
            return false;
    }
    return p->arg[in].numel == p->arg[out].numel && share_a_type(p->arg[in].dtype, p->arg[out].dtype);
}
