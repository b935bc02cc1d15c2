/* lower_call.c: scatters and library calls (sort, Cholesky, cumulative sums, ...) → one step each.
 *
 * A call's arguments are its sources in order, then its outputs, all contiguous (insert_copies saw to it). PUT_ROWS is the
 * exception: lower_copy.c. */
#include "planner/planner_internal.h"

#include <string.h>

/* table[index[i]] += source[i], from zero or onto the value of a third source. */
an_status an_lower_scatter(an_planner *w, an_fusion_group *gr)
{
    const struct an_tensor *n = w->g->node[gr->anchor], *ids = w->g->node[n->src[0]], *src = w->g->node[n->src[1]];
    const int64_t c = n->shape[0] ? n->numel / n->shape[0] : 0;
    an_view v;
    an_arg arg[3];
    arg[0] = an_operand(w, n->src[0], false, &v);
    arg[1] = an_operand(w, n->src[1], false, &v);
    arg[2] = an_arg_of(w, gr->anchor, true);
    if (n->n_src > 2 &&
        w->node[an_base(w, n->src[2])].container != gr->anchor) { /* else it is written there: layout.c */
        an_arg onto[2] = {an_operand(w, n->src[2], false, &v), arg[2]};
        AN_TRY(an_add_step(w, (an_kernel){.kind = AN_KERNEL_COPY, .name = "copy", .bytes = 2 * (uint64_t)arg[2].bytes},
                           onto, 2, gr->anchor, NULL));
        w->plan->bill.copies++;
    }
    an_kernel k = {.kind = AN_KERNEL_SCATTER,
                   .name = an_short_name(w, gr->anchor, "scatter_add"),
                   .flops = (uint64_t)src->numel,
                   .u.scatter = {.n = ids->numel,
                                 .rows = n->shape[0],
                                 .c = c,
                                 .src_stride = c,
                                 .out_stride = c,
                                 .src_dtype = src->dtype,
                                 .accumulate = n->n_src > 2}};
    for (int i = 0; i < 3; i++) k.bytes += (uint64_t)arg[i].bytes;
    return an_add_step(w, k, arg, 3, gr->anchor, NULL);
}

void an_call_source(an_call_tensor *out, const struct an_tensor *t)
{
    out->rank = t->rank;
    out->dtype = t->dtype;
    memcpy(out->shape, t->shape, sizeof t->shape);
}

static an_arg call_output(an_planner *w, int32_t id, int o, an_call_tensor *out)
{
    an_dtype dtype;
    int rank;
    int64_t numel = 1;
    int32_t shape[AN_MAX_RANK];
    an_output_shape(w->g, w->g->node[id], o, &dtype, &rank, shape);
    for (int i = 0; i < rank; i++) numel *= shape[i];
    out->rank = (uint8_t)rank;
    out->dtype = (uint8_t)dtype;
    memcpy(out->shape, shape, sizeof shape);
    return an_output_arg(w, id, o, NULL, numel * (int64_t)an_dtype_bytes(dtype));
}

an_status an_lower_call(an_planner *w, an_fusion_group *gr)
{
    int32_t id = gr->anchor;
    const struct an_tensor *n = w->g->node[id];
    if (n->op == AN_OP_PUT_ROWS) return an_lower_put_rows(w, gr);
    an_kernel k = {.kind = AN_KERNEL_CALL,
                   .name = an_short_name(w, id, an_ops[n->op].name),
                   .u.call = {.op = (an_op)n->op, .dtype = n->dtype}};
    an_arg arg[8];
    int n_args = 0;
    for (int s = 0; s < n->n_src; s++) {
        an_view v;
        arg[n_args++] = an_operand(w, n->src[s], false, &v);
        an_call_source(&k.u.call.src[s], w->g->node[n->src[s]]);
    }
    k.u.call.n_src = n->n_src;
    k.u.call.n_out = an_ops[n->op].outputs;
    for (int i = 0; i < n->n_attr && i < (int)AN_COUNT(k.u.call.attr); i++) k.u.call.attr[i] = n->attr[i];
    for (int o = 0; o < an_ops[n->op].outputs; o++) arg[n_args++] = call_output(w, id, o, &k.u.call.out[o]);
    k.flops = (uint64_t)n->numel;
    for (int i = 0; i < n_args; i++) k.bytes += (uint64_t)arg[i].bytes;
    return an_add_step(w, k, arg, n_args, id, NULL);
}
