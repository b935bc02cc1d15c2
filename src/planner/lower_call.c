/* lower_call.c: scatters and library calls (sort, Cholesky, cumulative sums, products by groups of rows, ...) → one step each; exchanges between ranks
 * (ALLREDUCE, ALLGATHER), of gradients in buckets, which can begin while the backward pass still runs.
 *
 * A call's arguments are its sources in order, then its outputs, all contiguous (insert_copies saw to it). The exceptions: PUT_ROWS
 * (lower_copy.c), and products by groups of rows, whose spec has their operands' strides. */
#include "planner/planner_internal.h"

#include <stdlib.h>
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

/* ---- packed gradients, added up over ranks in place: bucket by bucket, in the order in which their elements are computed. The
 * launches come behind the backward pass; a device that runs launches side by side finds that a bucket waits for its own gradients
 * alone (ir/dependencies.h). */

typedef struct bucket {
    int64_t from, bytes; /* in the block */
    int32_t ready;       /* the last step that writes in it */
} bucket;

/* A sixteenth of the block, in whole lines of memory: exchanges of less take as long, and a larger last one is not
 * hidden. */
static int64_t bucket_bytes(int64_t block_bytes)
{
    const int64_t least = 1 << 20, most = 25 << 20;
    return an_round_up(AN_MIN(AN_MAX(block_bytes / 16, least), most), 256);
}

static int by_readiness(const void *x, const void *y)
{
    const bucket *a = x, *b = y;
    if (a->ready != b->ready) return a->ready < b->ready ? -1 : 1;
    return a->from > b->from ? -1 : a->from < b->from;
}

/* ---- when a step's results can be there. The plan puts sums with the gradients of earlier micro-batches behind the backward pass;
 * each needs one gradient alone. */

static int32_t ready_after(const an_plan *p, int32_t s);

/* The step before s whose result in what `read` reads comes last; -1: none writes there. */
static int32_t last_writer(const an_plan *p, int32_t s, const an_arg *read)
{
    int32_t last = -1, last_ready = -1;
    for (int32_t t = s - 1; t >= 0 && read->value >= 0; t--)
        for (int a = 0; a < p->step[t].n_args; a++) {
            const an_arg *x = &p->step[t].arg[a];
            const int64_t from = x->written && x->bytes ? an_offset_in_value(p, x, read->value) : -1;
            if (from < 0 || from >= read->offset + read->bytes || read->offset >= from + x->bytes) continue;
            const int32_t ready = ready_after(p, t);
            if (ready > last_ready) last = t, last_ready = ready;
        }
    return last;
}

/* Whether step s is a sum of one gradient with what is kept of it: elementwise, into its place in a block. */
static bool is_gradient_sum(const an_plan *p, int32_t s)
{
    const an_plan_step *st = &p->step[s];
    bool writes = false;
    if (p->kernel[st->kernel].kind != AN_KERNEL_LOOP || st->phase != AN_PHASE_UPDATE) return false;
    for (int a = 0; a < st->n_args; a++) {
        const an_arg *x = &st->arg[a];
        if (!x->written) continue;
        writes = x->value >= 0 && p->value[x->value].usage == AN_USE_GRADIENT && p->value[x->value].inside >= 0;
        if (!writes) return false;
    }
    return writes;
}

/* The step of the backward pass behind which step s can run: for all but such sums, s itself. */
static int32_t ready_after(const an_plan *p, int32_t s)
{
    int32_t ready = -1;
    if (!is_gradient_sum(p, s)) return s;
    for (int a = 0; a < p->step[s].n_args; a++) {
        const int32_t t = p->step[s].arg[a].written ? -1 : last_writer(p, s, &p->step[s].arg[a]);
        if (t >= 0) ready = AN_MAX(ready, ready_after(p, t));
    }
    return ready < 0 ? s : ready;
}

/* Sets each bucket's `ready`: the step behind which all writes to its bytes of `block`, or of values that alias it, are done. */
static void find_readiness(const an_plan *p, int32_t block, bucket *all, int64_t n)
{
    for (int32_t s = 0; s < p->n_steps; s++)
        for (int a = 0; a < p->step[s].n_args; a++) {
            const an_arg *x = &p->step[s].arg[a];
            const int64_t from = x->written && x->bytes ? an_offset_in_value(p, x, block) : -1, each = all[0].bytes;
            for (int64_t i = from / each; from >= 0 && i < n && i * each < from + x->bytes; i++)
                all[i].ready = AN_MAX(all[i].ready, ready_after(p, s));
        }
}

static void set_bucket(an_kernel *k, an_arg arg[2], const bucket *b, int64_t size)
{
    for (int i = 0; i < 2; i++) {
        an_call_tensor *t = i ? &k->u.call.out[0] : &k->u.call.src[0];
        arg[i].offset += b->from;
        arg[i].bytes = b->bytes;
        t->rank = 1;
        t->shape[0] = (int32_t)(b->bytes / size);
    }
    k->flops = (uint64_t)(b->bytes / size);
    k->bytes = 2 * (uint64_t)b->bytes;
}

static an_status lower_buckets(an_planner *w, int32_t id, an_kernel k, const an_arg *whole)
{
    const int64_t size = (int64_t)an_dtype_bytes((an_dtype)w->g->node[id]->dtype), all = whole[0].bytes,
                  each = AN_MIN(bucket_bytes(all), all), n = an_ceil_div(all, each);
    bucket *b = AN_NEW_ARRAY(&w->scratch, bucket, n + 1);
    if (!b) return an_lower_no_memory(w);
    for (int64_t i = 0; i < n; i++) b[i] = (bucket){i * each, AN_MIN(each, all - i * each), -1};
    find_readiness(w->plan, whole[0].value, b, n);
    qsort(b, (size_t)n, sizeof *b, by_readiness);
    for (int64_t i = 0; i < n; i++) {
        an_arg arg[2] = {whole[0], whole[1]};
        set_bucket(&k, arg, &b[i], size);
        AN_TRY(an_add_step(w, k, arg, 2, id, NULL));
    }
    return AN_OK;
}

/* A step of the plan, and behind it those that move there. */
static int32_t put_with_early(const an_plan *p, const int32_t *behind, int32_t s, an_plan_step *out, int32_t n)
{
    out[n++] = p->step[s];
    for (int32_t t = s + 1; t < p->n_steps; t++)
        if (behind[t] == s) n = put_with_early(p, behind, t, out, n);
    return n;
}

/* The step behind which step s moves; -1: it stays where it is. */
static int32_t moves_behind(const an_plan *p, int32_t s)
{
    if (!is_gradient_sum(p, s)) return -1;
    int32_t behind = -1;
    for (int a = 0; a < p->step[s].n_args; a++)
        if (!p->step[s].arg[a].written) behind = AN_MAX(behind, last_writer(p, s, &p->step[s].arg[a]));
    return behind;
}

/* Some exchange may begin before the backward pass has ended. */
static bool has_early(const an_plan *p)
{
    for (int32_t s = 0; s < p->n_steps; s++) {
        const an_kernel *k = &p->kernel[p->step[s].kernel];
        if (an_kernel_is_exchange(k) && k->u.call.op != AN_OP_ALLGATHER && k->u.call.attr[1]) return true;
    }
    return false;
}

an_status an_lower_early(an_planner *w)
{
    an_plan *p = w->plan;
    int32_t *behind = AN_NEW_ARRAY(&w->scratch, int32_t, p->n_steps + 1), n = 0;
    an_plan_step *all = AN_NEW_ARRAY(&w->scratch, an_plan_step, p->n_steps + 1);
    if (!behind || !all) return an_lower_no_memory(w);
    if (!w->rq->target->side_by_side || !has_early(p)) return AN_OK;
    for (int32_t s = 0; s < p->n_steps; s++) behind[s] = moves_behind(p, s);
    for (int32_t s = 0; s < p->n_steps; s++)
        if (behind[s] < 0) n = put_with_early(p, behind, s, all, n);
    for (int32_t s = 0; s < n; s++) p->step[s] = all[s];
    return AN_OK;
}

/* Whether the exchange is made in buckets; those of parts: scatter_gradients.c. */
static bool is_in_buckets(const an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id];
    return n->op == AN_OP_ALLREDUCE && an_is_exchange(n) && n->numel && w->node[an_base(w, n->src[0])].container == id;
}

/* Products by groups of rows, whose operands lie at any strides. */
static an_status lower_grouped(an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id], *x = w->g->node[n->src[0]];
    if (w->rq->target->exact && n->dtype == AN_BF16) /* float16 is multiplied as float32, in one order */
        return an_refuse_inexact(w, id, an_ops[n->op].name);
    const int64_t rows = x->shape[0], columns = n->shape[n->rank - 1], depth = x->shape[1];
    an_kernel k = {.kind = AN_KERNEL_CALL,
                   .name = an_short_name(w, id, an_ops[n->op].name),
                   .u.call = {.op = (an_op)n->op, .dtype = n->dtype, .n_src = 3, .n_out = 1},
                   .flops = 2 * (uint64_t)rows * (uint64_t)columns * (uint64_t)depth};
    an_arg arg[4];
    int n_strides = 0;
    for (int s = 0; s < 3; s++) {
        an_view v;
        arg[s] = an_operand(w, n->src[s], false, &v);
        an_call_source(&k.u.call.src[s], w->g->node[n->src[s]]);
        for (int i = 0; s < 2 && i < k.u.call.src[s].rank; i++) k.u.call.attr[n_strides++] = v.stride[i];
    }
    arg[3] = call_output(w, id, 0, &k.u.call.out[0]);
    for (int i = 0; i < 4; i++) k.bytes += (uint64_t)arg[i].bytes;
    return an_add_step(w, k, arg, 4, id, NULL);
}

an_status an_lower_call(an_planner *w, an_fusion_group *gr)
{
    int32_t id = gr->anchor;
    const struct an_tensor *n = w->g->node[id];
    if (n->op == AN_OP_PUT_ROWS) return an_lower_put_rows(w, gr);
    if (n->op == AN_OP_GROUPED_MATMUL || n->op == AN_OP_GROUPED_OUTER) return lower_grouped(w, id);
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
    if (is_in_buckets(w, id)) return lower_buckets(w, id, k, arg);
    k.flops = (uint64_t)n->numel;
    for (int i = 0; i < n_args; i++) k.bytes += (uint64_t)arg[i].bytes;
    return an_add_step(w, k, arg, n_args, id, NULL);
}
