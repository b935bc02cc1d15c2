/* lower_copy.c: data that is moved, not computed: concatenations of many parts, blocks of gradients, row updates. */
#include "planner/planner_internal.h"

#include <stdlib.h>

/* A CONCAT of many parts: one launch for each run of AN_CONCAT_PARTS parts, which writes their place in the result. */
an_status an_lower_concat(an_planner *w, an_fusion_group *gr)
{
    const struct an_tensor *n = w->g->node[gr->anchor];
    int64_t start = 0;
    for (int from = 0; from < n->n_src; from += AN_CONCAT_PARTS) {
        const int to = AN_MIN(from + AN_CONCAT_PARTS, n->n_src);
        an_loop_kernel *p;
        an_arg args[AN_LOOP_ARGS];
        int n_args;
        AN_TRY(an_lower_concat_parts(w, gr, from, to, start, &p, args, &n_args));
        AN_TRY(an_add_loop(w, p, args, n_args, gr->anchor));
        for (int s = from; s < to; s++) start += w->g->node[n->src[s]]->shape[n->attr[0]];
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
