/* lower_copy.c: data that is moved, not computed: concatenations of many parts, blocks of gradients, row updates. */
#include "planner/planner_internal.h"

#include <stdlib.h>

/* Whether source s of CONCAT `id`, `start` along its axis, was written in its place (layout.c). */
static bool is_in_place(an_planner *w, int32_t id, int s, int64_t start)
{
    const struct an_tensor *n = w->g->node[id];
    const int32_t base = an_base(w, n->src[s]);
    int64_t stride[AN_MAX_RANK];
    an_strides_of(w, id, stride);
    return !an_is_leaf(w, base) && w->node[base].container == id &&
           w->node[base].container_offset == start * stride[n->attr[0]];
}

/* The bytes of source s of CONCAT `id` where they are a block of it, and of the container of another concatenation: *in, *at. Else 0. */
static int64_t block_elsewhere(an_planner *w, int32_t id, int s, int32_t *in, int64_t *at)
{
    const struct an_tensor *n = w->g->node[id], *part = w->g->node[n->src[s]];
    int64_t outside = 1;
    for (int i = 0; i < n->attr[0]; i++) outside *= n->shape[i];
    const an_view v = an_view_of(w, n->src[s], false);
    const int32_t base = v.base, value = an_is_leaf(w, base) ? -1 : w->node[base].value;
    if (outside != 1 || w->node[id].stride || value < 0 || w->plan->value[value].inside < 0 || w->node[base].stride)
        return 0;
    int64_t next = 1;
    for (int i = part->rank - 1; i >= 0; next *= part->shape[i--])
        if (!v.affine || (part->shape[i] > 1 && v.stride[i] != next)) return 0;
    const int64_t size = (int64_t)an_dtype_bytes((an_dtype)n->dtype);
    *in = w->plan->value[value].inside;
    *at = w->plan->value[value].offset + v.offset * size;
    return part->numel * size;
}

/* The sources from s on that lie one behind the other in another container; *bytes: of all. Fewer than two: none. */
static int run_elsewhere(an_planner *w, int32_t id, int s, an_arg *from)
{
    const struct an_tensor *n = w->g->node[id];
    int32_t in, other;
    int64_t at, next;
    int count = 1;
    int64_t bytes = block_elsewhere(w, id, s, &in, &at), more;
    *from = (an_arg){.slot = AN_SLOT_ARENA, .offset = at, .value = in};
    for (; bytes && s + count < n->n_src; bytes += more, count++) {
        more = block_elsewhere(w, id, s + count, &other, &next);
        if (!more || other != in || next != at + bytes) break;
    }
    from->bytes = bytes;
    return bytes && count > 1 ? count : 0;
}

static an_status copy_run(an_planner *w, int32_t id, int64_t start, an_arg from)
{
    int64_t stride[AN_MAX_RANK];
    an_strides_of(w, id, stride);
    const struct an_tensor *n = w->g->node[id];
    an_arg arg[2] = {from, an_arg_of(w, id, true)};
    arg[1].offset += start * stride[n->attr[0]] * (int64_t)an_dtype_bytes((an_dtype)n->dtype);
    arg[1].bytes = from.bytes;
    w->plan->bill.copies++;
    return an_add_step(w, (an_kernel){.kind = AN_KERNEL_COPY, .name = "copy", .bytes = 2 * (uint64_t)from.bytes}, arg,
                       2, id, NULL);
}

static int64_t length_of(const an_planner *w, int32_t id, int from, int to)
{
    int64_t n = 0;
    for (int s = from; s < to; s++) n += w->g->node[w->g->node[id]->src[s]]->shape[w->g->node[id]->attr[0]];
    return n;
}

/* A CONCAT of many parts: one copy of parts that lie one behind the other, and one launch for each run of AN_CONCAT_PARTS others, which
 * writes their place in the result. */
an_status an_lower_concat(an_planner *w, an_fusion_group *gr)
{
    const int32_t id = gr->anchor;
    const struct an_tensor *n = w->g->node[id];
    int64_t start = 0;
    an_arg run;
    for (int from = 0, to; from < n->n_src; start += length_of(w, id, from, to), from = to) {
        const int copied = is_in_place(w, id, from, start) ? 1 : run_elsewhere(w, id, from, &run);
        to = from + AN_MAX(copied, 1);
        if (copied > 1) AN_TRY(copy_run(w, id, start, run));
        if (copied) continue;
        an_loop_kernel *p;
        an_arg args[AN_LOOP_ARGS], other;
        int n_args;
        int64_t at = start + length_of(w, id, from, to);
        for (; to < n->n_src && to < from + AN_CONCAT_PARTS; at += length_of(w, id, to, to + 1), to++)
            if (is_in_place(w, id, to, at) || run_elsewhere(w, id, to, &other)) break;
        AN_TRY(an_lower_concat_parts(w, gr, from, to, start, &p, args, &n_args));
        AN_TRY(an_add_loop(w, p, args, n_args, id));
    }
    return AN_OK;
}

/* A copy of the state, which assign_states removes where it can, and the row. */
an_status an_lower_row_update(an_planner *w, an_fusion_group *gr)
{
    int32_t id = gr->anchor;
    an_row_update u;
    an_view v;
    if (!an_row_update_of(w, id, &u))
        return an_fail(w->err, AN_E_INTERNAL, "plan: node %d is a row update no longer", id);
    an_arg state = an_arg_of(w, id, true), copy[2] = {an_arg_of(w, u.state, false), state};
    AN_TRY(an_add_step(w, (an_kernel){.kind = AN_KERNEL_COPY, .name = "copy", .bytes = 2 * (uint64_t)state.bytes}, copy,
                       2, id, NULL));
    w->plan->bill.copies++;
    an_arg arg[3] = {an_arg_of(w, u.index, false), an_operand(w, u.row, false, &v), state};
    an_kernel k = {.kind = AN_KERNEL_ROW_UPDATE, .name = an_short_name(w, id, "row_update"), .u.row_update = u.spec};
    k.bytes = 2 * (uint64_t)(u.spec.outer * u.spec.inner * u.spec.bytes);
    return an_add_step(w, k, arg, 3, id, NULL);
}

/* A copy of the table, which assign_states removes where it can, and a call that writes the rows into it. The call's
 * sources are ids and rows; its output holds the table already. */
an_status an_lower_put_rows(an_planner *w, an_fusion_group *gr)
{
    const int32_t id = gr->anchor;
    const struct an_tensor *n = w->g->node[id];
    const an_arg table = an_arg_of(w, id, true);
    an_view v;
    an_arg copy[2] = {an_operand(w, n->src[0], false, &v), table};
    AN_TRY(an_add_step(w, (an_kernel){.kind = AN_KERNEL_COPY, .name = "copy", .bytes = 2 * (uint64_t)table.bytes}, copy,
                       2, id, NULL));
    w->plan->bill.copies++;
    an_arg arg[3] = {an_operand(w, n->src[1], false, &v), an_operand(w, n->src[2], false, &v), table};
    an_kernel k = {.kind = AN_KERNEL_CALL,
                   .name = an_short_name(w, id, an_ops[n->op].name),
                   .u.call = {.op = AN_OP_PUT_ROWS, .dtype = n->dtype, .n_src = 2, .n_out = 1}};
    for (int s = 0; s < 2; s++) an_call_source(&k.u.call.src[s], w->g->node[n->src[s + 1]]);
    an_call_source(&k.u.call.out[0], n);
    k.bytes = (uint64_t)arg[0].bytes + 2 * (uint64_t)arg[1].bytes;
    return an_add_step(w, k, arg, 3, id, NULL);
}

/* ------------------------------------------------------------------------------------------------- blocks of gradients */

typedef struct range {
    int64_t from, bytes; /* in the block */
} range;

static int by_offset(const void *x, const void *y)
{
    const range *a = x, *b = y;
    return a->from < b->from ? -1 : a->from > b->from;
}

static an_status zero_padding(an_planner *w, int32_t id, an_arg block, int64_t from, int64_t to)
{
    if (to <= from) return AN_OK;
    block.offset += from;
    block.bytes = to - from;
    return an_add_step(w, (an_kernel){.kind = AN_KERNEL_ZERO, .name = "zero", .bytes = (uint64_t)block.bytes}, &block,
                       1, id, NULL);
}

/* Parts that are not written in place are copied, and padding between parts is zeroed. */
an_status an_lower_pack(an_planner *w, an_fusion_group *gr)
{
    const int32_t id = gr->anchor;
    const struct an_tensor *n = w->g->node[id];
    const int64_t size = (int64_t)an_dtype_bytes((an_dtype)n->dtype);
    const an_arg block = an_arg_of(w, id, true);
    int64_t block_bytes, done = 0;
    range *part = AN_NEW_ARRAY(&w->scratch, range, n->n_src + 1);
    if (!part) return an_lower_no_memory(w);
    w->rq->pack(w->rq->user, (int)n->attr[0], 0, &block_bytes);
    for (int s = 0; s < n->n_src; s++) {
        const int32_t base = an_base(w, n->src[s]);
        part[s].from = w->rq->pack(w->rq->user, (int)n->attr[0], s, &block_bytes);
        part[s].bytes = w->g->node[n->src[s]]->numel * size;
        const bool inside = !an_is_leaf(w, base) && w->node[base].container == id;
        if (inside && w->node[base].container_offset * size == part[s].from) continue;
        an_view v;
        an_arg arg[2] = {an_operand(w, n->src[s], false, &v), block};
        arg[0].bytes = arg[1].bytes = part[s].bytes;
        arg[1].offset += part[s].from;
        AN_TRY(an_add_step(w, (an_kernel){.kind = AN_KERNEL_COPY, .name = "copy", .bytes = 2 * (uint64_t)part[s].bytes},
                           arg, 2, id, NULL));
        w->plan->bill.copies++;
    }
    qsort(part, n->n_src, sizeof *part, by_offset);
    for (int s = 0; s < n->n_src; s++) {
        AN_TRY(zero_padding(w, id, block, done, part[s].from));
        done = AN_MAX(done, part[s].from + part[s].bytes);
    }
    return zero_padding(w, id, block, done, block_bytes);
}
