/* lower.c: launches → steps. Each launch becomes one step, or a few (a concatenation of many parts, a pack).
 *
 *     lower_loop.c       groups of elementwise nodes and reductions → loop kernels; loop_builder.h lists its other files
 *     lower_gemm.c       GEMMs and convolutions (lower_conv.c), with the epilogue's loop kernel
 *     lower_attention.c  attention, forward and backward
 *     lower_call.c       scatters and library calls
 *     lower_copy.c       concatenations, packs and row updates: data that is moved, not computed
 *
 * Launches are taken in order. A launch that makes a rematerialized copy first gives the node a new value, so that
 * every later reader reads the copy; the original's life ends with the forward pass.
 *
 * Where a kernel exceeds its limits its group is cut (split_group.c) and the pass goes on, so that all such groups are
 * found in one attempt; then the plan is made again. */
#include "planner/planner_internal.h"

#include <string.h>

/* ------------------------------------------------------------------------------------------------- shared parts */

an_status an_lower_no_memory(an_planner *w)
{
    return an_fail_nomem(w->err, "the plan's steps", sizeof(an_plan_step));
}

char *an_short_name(an_planner *w, int32_t id, const char *kind)
{
    return an_arena_printf(w->arena, "%s.%s", an_scope_of(w, id), kind);
}

/* The view's offset is folded into the argument. */
an_arg an_operand(an_planner *w, int32_t src, bool through_cast, an_view *view)
{
    *view = an_view_of(w, src, through_cast);
    an_arg a = an_arg_of(w, view->base, false);
    const int64_t skipped = view->offset * (int64_t)an_dtype_bytes((an_dtype)view->dtype);
    a.offset += skipped;
    a.bytes -= skipped;
    return a;
}

void an_strides_of(const an_planner *w, int32_t id, int64_t *stride)
{
    const struct an_tensor *n = w->g->node[id];
    int64_t s = 1;
    for (int i = n->rank - 1; i >= 0; i--) {
        stride[i] = w->node[id].stride ? w->node[id].stride[i] : s;
        s *= n->shape[i];
    }
}

/* The node of output `k` of `id`: itself, or the live PICK of it; -1. */
static int32_t node_of_output(const an_planner *w, int32_t id, int k)
{
    if (!k) return id;
    const an_planner_node *wn = &w->node[id];
    for (int u = wn->n_uses - 1; u >= 0; u--) {
        const int32_t user = w->use[wn->first_use + u];
        if (w->g->node[user]->op == AN_OP_PICK && w->g->node[user]->attr[0] == k) return user;
    }
    return -1;
}

/* Output `k` of `id` as an argument: memory of its node, or scratch when nothing reads it, for kernels write all their
 * outputs. `stride` (may be NULL) gets its strides. */
an_arg an_output_arg(an_planner *w, int32_t id, int k, int64_t *stride, int64_t bytes)
{
    const int32_t node = node_of_output(w, id, k);
    if (node >= 0 && w->node[node].value >= 0) {
        if (stride) an_strides_of(w, node, stride);
        return an_arg_of(w, node, true);
    }
    if (stride) { /* contiguous, in the shape of the output */
        an_dtype dtype;
        int rank;
        int32_t shape[AN_MAX_RANK];
        an_output_shape(w->g, w->g->node[id], k, &dtype, &rank, shape);
        int64_t s = 1;
        for (int i = rank - 1; i >= 0; i--) {
            stride[i] = s;
            s *= shape[i];
        }
        bytes = s * (int64_t)an_dtype_bytes(dtype);
    }
    int32_t v = an_value_new(w, -1, 0, bytes, AN_USE_SCRATCH, "unread output");
    return (an_arg){.slot = v < 0 ? -1 : AN_SLOT_ARENA, .bytes = bytes, .written = true, .value = v};
}

an_status an_add_step(an_planner *w, an_kernel k, const an_arg *arg, int n_args, int32_t id, an_plan_step **out)
{
    an_plan_step *s = an_step_new(w, an_kernel_new(w, k), arg, n_args, an_scope_of(w, id));
    if (!s) return an_lower_no_memory(w);
    if (w->plan->kernel[s->kernel].kind != AN_KERNEL_LOOP && w->rq->target->scratch)
        s->scratch_bytes = (int64_t)w->rq->target->scratch(w->rq->target, &w->plan->kernel[s->kernel]);
    if (out) *out = s;
    return AN_OK;
}

an_status an_add_loop(an_planner *w, an_loop_kernel *p, const an_arg *args, int n_args, int32_t id)
{
    return an_add_step(
        w, (an_kernel){.kind = AN_KERNEL_LOOP, .name = p->name, .u.loop = p, .flops = p->flops, .bytes = p->bytes},
        args, n_args, id, NULL);
}

/* Tensor cores, dot-product instructions and scalar code sum products of bf16 in their own orders. */
an_status an_refuse_inexact(an_planner *w, int32_t id, const char *what)
{
    return an_fail(
        w->err, AN_E_UNSUPPORTED,
        "%s: %s in %s multiplies bfloat16 numbers, whose sums differ from device to device; exact mode is for "
        "float32: set dtype=float32, or exact=false",
        w->g->node[id]->at ? w->g->node[id]->at : "plan", what, an_scope_of(w, id));
}

/* ------------------------------------------------------------------------------------------------- launches */

static an_status lower_loop(an_planner *w, an_fusion_group *gr)
{
    an_loop_kernel *p;
    an_arg args[AN_LOOP_ARGS];
    int n_args;
    AN_TRY(an_lower_loop(w, gr, false, &p, args, &n_args));
    return an_add_loop(w, p, args, n_args, gr->n_out ? gr->out[gr->n_out - 1] : gr->anchor);
}

static an_status lower_group(an_planner *w, an_fusion_group *gr)
{
    switch (gr->kind) {
    case AN_FUSION_GEMM: return an_lower_gemm(w, gr);
    case AN_FUSION_ATTN:
    case AN_FUSION_ATTN_GRAD: return an_lower_attention(w, gr);
    case AN_FUSION_SCATTER: return an_lower_scatter(w, gr);
    case AN_FUSION_CALL: return an_lower_call(w, gr);
    case AN_FUSION_CONCAT: return an_lower_concat(w, gr);
    case AN_FUSION_PACK: return an_lower_pack(w, gr);
    case AN_FUSION_ROW_UPDATE: return an_lower_row_update(w, gr);
    default: return lower_loop(w, gr);
    }
}

/* From here on readers of `id` read its rematerialized copy. */
static an_status give_copy_a_value(an_planner *w, int32_t id)
{
    const char *name = an_arena_printf(w->arena, "%s %s copy", an_scope_of(w, id), an_ops[w->g->node[id]->op].name);
    int32_t value = name ? an_value_new(w, id, 0, an_value_bytes(w, id), AN_USE_ACTIVATION, name) : -1;
    if (value < 0) return an_lower_no_memory(w);
    w->node[id].value = value;
    return AN_OK;
}

/* A product that is computed again is launched as its group was. */
static an_status launch_product(an_planner *w, const an_planned_launch *l)
{
    AN_TRY(give_copy_a_value(w, l->copy));
    AN_TRY(an_lower_gemm(w, &w->group[l->group]));
    w->plan->step[w->plan->n_steps - 1].recompute = true;
    return AN_OK;
}

/* A rematerialized copy as a group of its own: one node, the rows and columns of the group that made the original. It
 * is the last group in w->group, so that all it reads is older; w->n_groups does not count it. */
static an_status launch_copy(an_planner *w, const an_planned_launch *l)
{
    int32_t id = l->copy;
    const an_fusion_group *of = &w->group[l->group];
    an_fusion_group *gr = &w->group[w->n_groups];
    if (of->kind == AN_FUSION_GEMM && of->anchor == id) return launch_product(w, l);
    AN_TRY(give_copy_a_value(w, id));
    *gr = (an_fusion_group){.kind = AN_FUSION_ELEM,
                            .anchor = id,
                            .rows = of->rows,
                            .cols = of->cols,
                            .red = 1,
                            .lanes = 1,
                            .n_members = 1,
                            .member = &id,
                            .n_out = 1,
                            .out = &id};
    w->node[id].group = w->n_groups;
    an_status status = lower_loop(w, gr);
    w->node[id].group = l->group;
    if (status == AN_OK) w->plan->step[w->plan->n_steps - 1].recompute = true;
    return status == AN_E_UNSUPPORTED && w->limit_exceeded && an_split_group(w, -1, id) ? AN_OK : status;
}

static an_status launch_group(an_planner *w, int32_t g)
{
    an_fusion_group *gr = &w->group[g];
    for (int32_t o = 0; o < gr->n_remat; o++) AN_TRY(give_copy_a_value(w, gr->out[o]));
    w->limit_exceeded = false;
    an_status status = lower_group(w, gr);
    if (status == AN_OK && gr->n_remat) w->plan->step[w->plan->n_steps - 1].remat_outputs = gr->n_remat;
    return status != AN_OK && w->limit_exceeded && an_split_group(w, g, -1) ? AN_OK : status;
}

/* Memory for the group of launch_copy. */
static an_status reserve_group(an_planner *w)
{
    an_fusion_group *all = AN_NEW_ARRAY(&w->scratch, an_fusion_group, w->n_groups + 1);
    if (!all) return an_lower_no_memory(w);
    if (w->n_groups) memcpy(all, w->group, sizeof *all * (size_t)w->n_groups);
    w->group = all;
    w->cap_groups = w->n_groups + 1;
    return AN_OK;
}

/* A copy is made for the backward pass. A kernel that spans two phases belongs to the first: a GEMM's epilogue may store
 * a derivative beside its result. */
static uint8_t phase_of(const an_planner *w, const an_planned_launch *l)
{
    if (l->copy >= 0) return AN_PHASE_BACKWARD;
    const an_fusion_group *gr = &w->group[l->group];
    uint8_t first = w->g->node[gr->anchor]->phase;
    for (int i = 0; i < gr->n_out; i++) first = AN_MIN(first, w->g->node[gr->out[i]]->phase);
    return first;
}

an_status an_pass_lower(an_planner *w)
{
    w->cuts->more = false;
    w->note = AN_NEW_ARRAY(&w->scratch, an_loop_note, w->g->n + 1);
    if (!w->note) return an_lower_no_memory(w);
    if (w->n_groups == w->cap_groups) AN_TRY(reserve_group(w));
    for (int32_t i = 0; i < w->n_launches; i++) {
        const int32_t before = w->plan->n_steps;
        AN_TRY(w->launch[i].copy >= 0 ? launch_copy(w, &w->launch[i]) : launch_group(w, w->launch[i].group));
        for (int32_t s = before; s < w->plan->n_steps; s++) w->plan->step[s].phase = phase_of(w, &w->launch[i]);
    }
    return w->cuts->more ? an_fail(w->err, AN_E_UNSUPPORTED, "%s", w->cuts->first) : an_lower_early(w);
}
