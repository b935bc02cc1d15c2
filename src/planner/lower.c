/* lower.c: pass 4 and 5: groups → steps. Groups are taken in order; each becomes one launch (a pack: one a part that is
 * not already in place).
 *
 * Recomputation lives here: when the backward pass first reads a value marked `remat`, a second instance of it is
 * launched just before, into memory of its own, or has been written by its host (remat_fuse.c); the first copy's life then
 * ends in the forward pass. */
#include "planner/planner_internal.h"

#include <stdlib.h>
#include <string.h>

static an_status no_memory(an_planner *w)
{
    return an_fail_nomem(w->err, "the plan's steps", sizeof(an_plan_step));
}

static an_arg absent(void)
{
    return (an_arg){.slot = -1, .value = -1};
}

static const char *short_name(an_planner *w, int32_t id, const char *kind)
{
    char *name = an_arena_printf(w->arena, "%s.%s", an_scope_of(w, id), kind);
    return name;
}

/* An operand in memory seen through moves; the offset is folded into the argument. */
static an_arg operand(an_planner *w, int32_t src, bool through_cast, an_view *view)
{
    *view = an_view_of(w, src, through_cast);
    an_arg a = an_arg_of(w, view->base, 0, false);
    a.offset += view->offset * (int64_t)an_dtype_bytes((an_dtype)view->dtype);
    a.bytes -= view->offset * (int64_t)an_dtype_bytes((an_dtype)view->dtype);
    return a;
}

static void strides_of(const an_planner *w, int32_t id, int64_t *stride)
{
    const struct an_tensor *n = w->g->node[id];
    int64_t s = 1;
    for (int i = n->rank - 1; i >= 0; i--) {
        stride[i] = w->node[id].stride ? w->node[id].stride[i] : s;
        s *= n->shape[i];
    }
}

static an_status add_step(an_planner *w, an_kernel k, const an_arg *arg, int n_args, int32_t id, an_plan_step **out)
{
    an_plan_step *s = an_step_new(w, an_kernel_new(w, k), arg, n_args, an_scope_of(w, id));
    if (!s) return no_memory(w);
    if (w->plan->kernel[s->kernel].kind != AN_KERNEL_LOOP && w->rq->target->scratch)
        s->scratch_bytes = (int64_t)w->rq->target->scratch(w->rq->target, &w->plan->kernel[s->kernel]);
    if (out) *out = s;
    return AN_OK;
}

static an_status add_program(an_planner *w, an_loop_kernel *p, const an_arg *args, int n_args, int32_t id)
{
    return add_step(
        w, (an_kernel){.kind = AN_KERNEL_LOOP, .name = p->name, .u.loop = p, .flops = p->flops, .bytes = p->bytes},
        args, n_args, id, NULL);
}

static an_status lower_program(an_planner *w, an_fusion_group *gr, int32_t id)
{
    an_loop_kernel *p;
    an_arg args[AN_LOOP_ARGS];
    int n_args;
    AN_TRY(an_lower_row(w, gr, false, &p, args, &n_args));
    return add_program(w, p, args, n_args, id);
}

/* ---------------------------------------------------------------------------------------------- products */

/* Batch axes with the strides of A, B and C, merged where one pair of strides describes two axes; then the innermost
 * into m when B does not depend on it. */
static an_status batch_axes(an_planner *w, const struct an_tensor *n, const int64_t *a, const int64_t *b,
                            const int64_t *c, an_gemm_spec *s)
{
    int64_t e[AN_MAX_RANK], sa[AN_MAX_RANK], sb[AN_MAX_RANK], sc[AN_MAX_RANK];
    int k = 0;
    for (int i = 0; i < n->rank - 2; i++) {
        if (n->shape[i] == 1) continue;
        if (k && sa[k - 1] == a[i] * n->shape[i] && sb[k - 1] == b[i] * n->shape[i] &&
            sc[k - 1] == c[i] * n->shape[i]) {
            e[k - 1] *= n->shape[i];
            sa[k - 1] = a[i];
            sb[k - 1] = b[i];
            sc[k - 1] = c[i];
            continue;
        }
        e[k] = n->shape[i];
        sa[k] = a[i];
        sb[k] = b[i];
        sc[k++] = c[i];
    }
    if (k && sb[k - 1] == 0 && sa[k - 1] == s->m * s->a_m && sc[k - 1] == s->m * s->c_m && e[k - 1] * s->m < INT32_MAX)
        s->m *= (int32_t)e[--k];
    if (k > 3)
        return an_fail(w->err, AN_E_UNSUPPORTED,
                       "an_matmul: %d batch axes that do not merge in %s; reshape them into at most 3", k,
                       an_scope_of(w, n->id));
    for (int i = 0; i < 3; i++) {
        int from = i - (3 - k);
        s->nb[i] = from >= 0 ? (int32_t)e[from] : 1;
        s->a_b[i] = from >= 0 ? sa[from] : 0;
        s->b_b[i] = from >= 0 ? sb[from] : 0;
        s->c_b[i] = from >= 0 ? sc[from] : 0;
    }
    return AN_OK;
}

static an_status gemm_spec(an_planner *w, int32_t id, an_gemm_spec *s, an_arg *arg)
{
    const struct an_tensor *n = w->g->node[id];
    an_view a, b;
    int r = n->rank;
    if (n->op != AN_OP_MATMUL) {
        for (int i = 0; i < 2; i++) arg[i] = operand(w, n->src[i], false, &a);
        an_conv_spec(w, id, s);
        return AN_OK;
    }
    int64_t c[AN_MAX_RANK];
    arg[0] = operand(w, n->src[0], true, &a);
    arg[1] = operand(w, n->src[1], true, &b);
    strides_of(w, id, c);
    an_dtype mul = (an_dtype)w->g->node[n->src[0]]->dtype;
    *s = (an_gemm_spec){.m = n->shape[r - 2],
                        .n = n->shape[r - 1],
                        .k = w->g->node[n->src[0]]->shape[r - 1],
                        .a_m = a.stride[r - 2],
                        .a_k = a.stride[r - 1],
                        .b_k = b.stride[r - 2],
                        .b_n = b.stride[r - 1],
                        .a_dtype = a.dtype,
                        .b_dtype = b.dtype,
                        .c_dtype = n->dtype,
                        .c_m = c[r - 2],
                        .mul_dtype = mul == AN_BF16 ? AN_BF16 : AN_F32};
    const int64_t *sa = a.stride, *sb = b.stride;
    if (w->node[id].swapped) { /* C^T = B^T A^T: each element is the same chain */
        an_gemm_spec t = *s;
        s->m = t.n;
        s->n = t.m;
        s->a_m = t.b_n;
        s->a_k = t.b_k;
        s->b_k = t.a_k;
        s->b_n = t.a_m;
        s->a_dtype = t.b_dtype;
        s->b_dtype = t.a_dtype;
        s->c_m = c[r - 1];
        an_arg swap = arg[0];
        arg[0] = arg[1];
        arg[1] = swap;
        sa = b.stride;
        sb = a.stride;
    }
    return batch_axes(w, n, sa, sb, c, s);
}

/* Tensor units, dot products and chains sum products of bf16 in their own orders. */
static an_status refuse_inexact(an_planner *w, int32_t id, const char *what)
{
    return an_fail(
        w->err, AN_E_UNSUPPORTED,
        "%s: %s in %s multiplies bfloat16 numbers, whose sums differ from device to device; exact mode is for "
        "float32: set dtype=float32, or exact=false",
        w->g->node[id]->at ? w->g->node[id]->at : "plan", what, an_scope_of(w, id));
}

static an_status lower_gemm(an_planner *w, an_fusion_group *gr)
{
    int32_t id = gr->anchor;
    const struct an_tensor *n = w->g->node[id];
    const bool conv = n->op != AN_OP_MATMUL;
    an_kernel k = {.kind = AN_KERNEL_GEMM, .name = short_name(w, id, conv ? an_conv_name(n) : "matmul")};
    an_arg arg[3 + AN_LOOP_ARGS];
    AN_TRY(gemm_spec(w, id, &k.u.gemm, arg));
    if (w->rq->target->exact && k.u.gemm.mul_dtype == AN_BF16)
        return refuse_inexact(w, id, conv ? "an_conv2d" : "an_matmul");
    int64_t batch = (int64_t)k.u.gemm.nb[0] * k.u.gemm.nb[1] * k.u.gemm.nb[2];
    k.flops = 2u * (uint64_t)n->numel * (uint64_t)k.u.gemm.k;
    k.bytes =
        (uint64_t)batch * ((uint64_t)k.u.gemm.m * (uint64_t)k.u.gemm.k * an_dtype_bytes((an_dtype)k.u.gemm.a_dtype) +
                           (uint64_t)k.u.gemm.k * (uint64_t)k.u.gemm.n * an_dtype_bytes((an_dtype)k.u.gemm.b_dtype));
    if (conv) an_conv_work(w, id, &k.flops, &k.bytes);
    bool plain = gr->n_out == 1 && gr->out[0] == id;
    const an_target *target = w->rq->target;
    an_plan_step *s;
    if (plain) {
        arg[2] = an_arg_of(w, id, 0, true);
        k.bytes += (uint64_t)n->numel * an_dtype_bytes((an_dtype)n->dtype);
        AN_TRY(add_step(w, k, arg, 3, id, &s));
        if (target->gemm_scratch) s->scratch_bytes = (int64_t)target->gemm_scratch(target, &k, NULL);
        return AN_OK;
    }
    an_loop_kernel *tail;
    int n_tail;
    arg[2] = absent();
    AN_TRY(an_lower_row(w, gr, true, &tail, arg + 3, &n_tail));
    AN_TRY(add_step(w, k, arg, 3 + n_tail, id, &s));
    if (target->gemm_scratch) s->scratch_bytes = (int64_t)target->gemm_scratch(target, &k, tail);
    s->n_gemm_args = 3;
    s->epilogue = an_kernel_new(
        w, (an_kernel){
               .kind = AN_KERNEL_LOOP, .name = tail->name, .u.loop = tail, .flops = tail->flops, .bytes = tail->bytes});
    if (s->epilogue < 0) return no_memory(w);
    s->flops += tail->flops;
    s->bytes += tail->bytes;
    return AN_OK;
}

/* ---------------------------------------------------------------------------------------------- attention */

/* Output `k` of `id`: the value of its PICK when somebody reads it, else memory nobody reads (templates write all their
 * outputs). */
static an_arg output_arg(an_planner *w, int32_t id, int k, int64_t *stride, int64_t bytes)
{
    int32_t reader = k ? -1 : id;
    for (int32_t i = id + 1; k && i < w->g->n; i++)
        if (w->node[i].live && w->g->node[i]->op == AN_OP_PICK && w->g->node[i]->src[0] == id &&
            w->g->node[i]->attr[0] == k)
            reader = i;
    if (reader >= 0 && w->node[reader].value >= 0) {
        if (stride) strides_of(w, reader, stride);
        return an_arg_of(w, reader, 0, true);
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

static an_arg strided(an_planner *w, int32_t src, int64_t *out)
{
    an_view v;
    an_arg a = operand(w, src, false, &v);
    memcpy(out, v.stride, 3 * sizeof *out);
    return a;
}

/* Whether q, k and v were float16 before they were widened. */
static bool widened_from_half(const an_graph *g, const struct an_tensor *n)
{
    bool all = true;
    for (int i = 0; i < 3; i++) {
        const struct an_tensor *x = g->node[n->src[i]];
        all &= x->dtype == AN_F32 && x->op == AN_OP_CAST && g->node[x->src[0]]->dtype == AN_F16;
    }
    return all;
}

static an_status lower_attention(an_planner *w, an_fusion_group *gr)
{
    int32_t id = gr->anchor;
    const struct an_tensor *n = w->g->node[id], *q = w->g->node[n->src[0]], *k = w->g->node[n->src[1]];
    bool grad = n->op == AN_OP_ATTENTION_GRAD;
    if (q->dtype != AN_F32 && q->dtype != AN_BF16)
        return an_fail(w->err, AN_E_UNSUPPORTED,
                       "%s: an_attention: %s has no attention kernel; cast q, k and v to float32 or bfloat16 (in %s)",
                       n->at ? n->at : "plan", an_dtype_name((an_dtype)q->dtype), an_scope_of(w, id));
    if (w->rq->target->exact && q->dtype == AN_BF16) return refuse_inexact(w, id, "an_attention");
    an_attn_spec s = {.B = q->shape[0],
                      .H = q->shape[1],
                      .T = q->shape[2],
                      .S = k->shape[2],
                      .D = q->shape[3],
                      .scale = (float)n->imm[0],
                      .causal = (uint8_t)n->attr[0],
                      .dtype = q->dtype,
                      .mul_dtype = q->dtype == AN_BF16          ? AN_BF16
                                   : widened_from_half(w->g, n) ? AN_F16
                                                                : AN_F32,
                      .dropout = (float)n->imm[1],
                      .stream = (uint32_t)n->attr[1]};
    an_arg arg[10], rng = s.dropout > 0
                              ? (an_arg){.slot = AN_SLOT_INPUT, .offset = AN_INPUT_RNG, .bytes = 8, .value = -1}
                              : absent();
    int64_t stride[AN_MAX_RANK], lse_bytes = (int64_t)s.B * s.H * s.T * 4;
    int n_args = 0;
    arg[n_args++] = strided(w, n->src[0], s.q);
    arg[n_args++] = strided(w, n->src[1], s.k);
    arg[n_args++] = strided(w, n->src[2], s.v);
    uint64_t pairs = (uint64_t)s.B * (uint64_t)s.H * (uint64_t)s.T * (uint64_t)s.S,
             work = pairs * (uint64_t)s.D * (grad ? 10u : 4u);
    if (grad) {
        an_view lse;
        arg[n_args++] = strided(w, n->src[3], s.o);
        arg[n_args++] = operand(w, n->src[4], false, &lse);
        arg[n_args++] = strided(w, n->src[5], s.do_);
        arg[n_args++] = rng;
        int64_t *out[3] = {s.dq, s.dk, s.dv};
        for (int i = 0; i < 3; i++) {
            arg[n_args++] = output_arg(w, id, i, stride, 0);
            memcpy(out[i], stride, 3 * sizeof *stride);
        }
    } else {
        arg[n_args++] = rng;
        arg[n_args++] = output_arg(w, id, 0, stride, 0);
        memcpy(s.o, stride, sizeof s.o);
        arg[n_args++] = output_arg(w, id, 1, NULL, lse_bytes);
        if (n->n_src > 3) {
            an_view keys;
            arg[n_args++] = operand(w, n->src[3], false, &keys);
        }
    }
    an_kernel kernel = {.kind = grad ? AN_KERNEL_ATTN_GRAD : AN_KERNEL_ATTN,
                        .name = short_name(w, id, grad ? "attention_grad" : "attention"),
                        .u.attn = s,
                        .flops = s.causal ? work / 2 : work};
    for (int i = 0; i < n_args; i++) kernel.bytes += (uint64_t)arg[i].bytes;
    return add_step(w, kernel, arg, n_args, id, NULL);
}

/* ---------------------------------------------------------------------------------------------- the others */

static an_status lower_scatter(an_planner *w, an_fusion_group *gr)
{
    const struct an_tensor *n = w->g->node[gr->anchor], *ids = w->g->node[n->src[0]], *src = w->g->node[n->src[1]];
    int64_t c = n->shape[0] ? n->numel / n->shape[0] : 0;
    an_view v;
    an_arg arg[3];
    arg[0] = operand(w, n->src[0], false, &v);
    arg[1] = operand(w, n->src[1], false, &v);
    arg[2] = an_arg_of(w, gr->anchor, 0, true);
    if (n->n_src > 2 &&
        w->node[an_base(w, n->src[2])].home != gr->anchor) { /* else it stands there already: layout.c */
        an_arg onto[2] = {operand(w, n->src[2], false, &v), arg[2]};
        AN_TRY(add_step(w, (an_kernel){.kind = AN_KERNEL_COPY, .name = "copy", .bytes = 2 * (uint64_t)arg[2].bytes},
                        onto, 2, gr->anchor, NULL));
        w->plan->bill.copies++;
    }
    an_kernel k = {.kind = AN_KERNEL_SCATTER,
                   .name = short_name(w, gr->anchor, "scatter_add"),
                   .flops = (uint64_t)src->numel,
                   .u.scatter = {.n = ids->numel,
                                 .rows = n->shape[0],
                                 .c = c,
                                 .src_stride = c,
                                 .out_stride = c,
                                 .src_dtype = src->dtype,
                                 .accumulate = n->n_src > 2}};
    for (int i = 0; i < 3; i++) k.bytes += (uint64_t)arg[i].bytes;
    return add_step(w, k, arg, 3, gr->anchor, NULL);
}

static an_status lower_call(an_planner *w, an_fusion_group *gr)
{
    int32_t id = gr->anchor;
    const struct an_tensor *n = w->g->node[id];
    an_kernel k = {.kind = AN_KERNEL_CALL,
                   .name = short_name(w, id, an_ops[n->op].name),
                   .u.call = {.op = (an_op)n->op, .dtype = n->dtype}};
    an_arg arg[8];
    int n_args = 0;
    for (int s = 0; s < n->n_src; s++) {
        an_view v;
        arg[n_args++] = operand(w, n->src[s], false, &v);
        const struct an_tensor *t = w->g->node[n->src[s]];
        k.u.call.src[s].rank = t->rank;
        k.u.call.src[s].dtype = t->dtype;
        memcpy(k.u.call.src[s].shape, t->shape, sizeof t->shape);
    }
    k.u.call.n_src = n->n_src;
    k.u.call.n_out = an_ops[n->op].outputs;
    for (int i = 0; i < n->n_attr && i < (int)AN_COUNT(k.u.call.attr); i++) k.u.call.attr[i] = n->attr[i];
    for (int o = 0; o < an_ops[n->op].outputs; o++) {
        an_dtype dtype;
        int rank;
        int64_t bytes = 1;
        int32_t shape[AN_MAX_RANK];
        an_output_shape(w->g, n, o, &dtype, &rank, shape);
        for (int i = 0; i < rank; i++) bytes *= shape[i];
        k.u.call.out[o].rank = (uint8_t)rank;
        k.u.call.out[o].dtype = (uint8_t)dtype;
        memcpy(k.u.call.out[o].shape, shape, sizeof shape);
        arg[n_args++] = output_arg(w, id, o, NULL, bytes * (int64_t)an_dtype_bytes(dtype));
    }
    k.flops = (uint64_t)n->numel;
    for (int i = 0; i < n_args; i++) k.bytes += (uint64_t)arg[i].bytes;
    return add_step(w, k, arg, n_args, id, NULL);
}

/* A CONCAT of many parts: a launch a run of them, each writes its place in the whole. */
static an_status lower_join(an_planner *w, an_fusion_group *gr)
{
    const struct an_tensor *n = w->g->node[gr->anchor];
    int64_t start = 0;
    for (int from = 0; from < n->n_src; from += AN_JOIN_PARTS) {
        int to = AN_MIN(from + AN_JOIN_PARTS, n->n_src);
        an_loop_kernel *p;
        an_arg args[AN_LOOP_ARGS];
        int n_args;
        AN_TRY(an_lower_join(w, gr, from, to, start, &p, args, &n_args));
        AN_TRY(add_program(w, p, args, n_args, gr->anchor));
        for (int s = from; s < to; s++) start += w->g->node[n->src[s]]->shape[n->attr[0]];
    }
    return AN_OK;
}

/* The state's copy, which assign_buffers.c leaves out where it can, and the row. */
static an_status lower_put(an_planner *w, an_fusion_group *gr)
{
    int32_t id = gr->anchor;
    an_row_update put;
    an_view v;
    if (!an_row_update_of(w, id, &put)) return an_fail(w->err, AN_E_INTERNAL, "plan: node %d is no put any more", id);
    an_arg whole = an_arg_of(w, id, 0, true), copy[2] = {an_arg_of(w, put.state, 0, false), whole};
    AN_TRY(add_step(w, (an_kernel){.kind = AN_KERNEL_COPY, .name = "copy", .bytes = 2 * (uint64_t)whole.bytes}, copy, 2,
                    id, NULL));
    w->plan->bill.copies++;
    an_arg arg[3] = {an_arg_of(w, put.index, 0, false), operand(w, put.row, false, &v), whole};
    an_kernel k = {.kind = AN_KERNEL_ROW_UPDATE, .name = short_name(w, id, "put"), .u.row_update = put.spec};
    k.bytes = 2 * (uint64_t)(put.spec.outer * put.spec.inner * put.spec.bytes);
    return add_step(w, k, arg, 3, id, NULL);
}

static int by_offset(const void *x, const void *y)
{
    const int64_t *a = x, *b = y;
    return a[0] < b[0] ? -1 : a[0] > b[0];
}

/* A block of gradients: parts not yet in place are copied, what no part covers is zeroed. */
static an_status lower_pack(an_planner *w, an_fusion_group *gr)
{
    const struct an_tensor *n = w->g->node[gr->anchor];
    an_arg whole = an_arg_of(w, gr->anchor, 0, true);
    int64_t block_bytes, (*span)[2] = an_arena_alloc(&w->scratch, sizeof *span * (size_t)(n->n_src + 1)), done = 0;
    if (!span) return no_memory(w);
    w->rq->pack(w->rq->user, (int)n->attr[0], 0, &block_bytes);
    for (int s = 0; s < n->n_src; s++) {
        int32_t base = an_base(w, n->src[s]);
        int64_t bytes = w->g->node[n->src[s]]->numel * (int64_t)an_dtype_bytes((an_dtype)n->dtype);
        span[s][0] = w->rq->pack(w->rq->user, (int)n->attr[0], s, &block_bytes);
        span[s][1] = bytes;
        int64_t here = w->node[base].home_offset * (int64_t)an_dtype_bytes((an_dtype)n->dtype);
        if (!an_is_leaf(w, base) && w->node[base].home == gr->anchor && here == span[s][0]) continue;
        an_view v;
        an_arg arg[2] = {operand(w, n->src[s], false, &v), whole};
        arg[0].bytes = arg[1].bytes = bytes;
        arg[1].offset += span[s][0];
        AN_TRY(add_step(w, (an_kernel){.kind = AN_KERNEL_COPY, .name = "copy", .bytes = 2 * (uint64_t)bytes}, arg, 2,
                        gr->anchor, NULL));
        w->plan->bill.copies++;
    }
    qsort(span, n->n_src, sizeof *span, by_offset);
    for (int s = 0; s <= n->n_src; s++) {
        int64_t until = s < n->n_src ? span[s][0] : block_bytes;
        if (until > done) {
            an_arg gap = whole;
            gap.offset += done;
            gap.bytes = until - done;
            AN_TRY(add_step(w, (an_kernel){.kind = AN_KERNEL_ZERO, .name = "zero", .bytes = (uint64_t)gap.bytes}, &gap,
                            1, gr->anchor, NULL));
        }
        if (s < n->n_src) done = AN_MAX(done, span[s][0] + span[s][1]);
    }
    return AN_OK;
}

static an_status lower_group(an_planner *w, int32_t g)
{
    an_fusion_group *gr = &w->group[g];
    switch (gr->kind) {
    case AN_G_GEMM: return lower_gemm(w, gr);
    case AN_G_ATTN:
    case AN_G_ATTN_GRAD: return lower_attention(w, gr);
    case AN_G_SCATTER: return lower_scatter(w, gr);
    case AN_G_CALL: return lower_call(w, gr);
    case AN_G_JOIN: return lower_join(w, gr);
    case AN_G_PACK: return lower_pack(w, gr);
    case AN_G_PUT: return lower_put(w, gr);
    default: return lower_program(w, gr, gr->n_out ? gr->out[gr->n_out - 1] : gr->anchor);
    }
}

/* ---------------------------------------------------------------------------------------------- recomputation */

/* From here on readers of `id` read memory of its second instance. */
static an_status second_value(an_planner *w, int32_t id)
{
    const char *name = an_arena_printf(w->arena, "%s %s again", an_scope_of(w, id), an_ops[w->g->node[id]->op].name);
    int32_t value = name ? an_value_new(w, id, 0, an_value_bytes(w, id), AN_USE_ACTIVATION, name) : -1;
    if (value < 0) return no_memory(w);
    w->node[id].value = value;
    w->node[id].again = 1;
    return AN_OK;
}

static an_status second_instance(an_planner *w, int32_t id)
{
    an_planner_node *wn = &w->node[id];
    const int32_t was = wn->group;
    an_fusion_group *of = &w->group[was];
    AN_TRY(second_value(w, id));
    if (w->n_groups == w->cap_groups) return no_memory(w); /* one spare group is kept for this: see an_pass_lower */
    an_fusion_group *gr = &w->group[w->n_groups];
    int64_t rows = of->rows, cols = of->cols;
    *gr = (an_fusion_group){
        .kind = AN_G_ELEM, .anchor = id, .rows = rows, .cols = cols, .red = 1, .lanes = 1, .n_out = 1, .out = &id};
    wn->group = w->n_groups++;
    an_status status = lower_program(w, gr, id);
    if (status == AN_OK) w->plan->step[w->plan->n_steps - 1].recompute = true;
    w->n_groups--;
    wn->group = was;
    return status == AN_E_UNSUPPORTED && w->outgrown && an_split_group(w, -1, id) ? AN_OK : status;
}

static an_status instances_for(an_planner *w, int32_t id, int32_t g);

/* Everything `id` is computed from, where it is virtual. */
static an_status instances_beneath(an_planner *w, int32_t id, int32_t g, int depth)
{
    const struct an_tensor *n = w->g->node[id];
    for (int s = 0; s < n->n_src && depth < 64; s++) {
        int32_t base = an_base(w, n->src[s]);
        if (an_is_leaf(w, base) || w->node[base].group == g) continue;
        if (w->node[base].mat)
            AN_TRY(instances_for(w, base, g));
        else
            AN_TRY(instances_beneath(w, base, g, depth + 1));
    }
    return AN_OK;
}

static an_status instances_for(an_planner *w, int32_t id, int32_t g)
{
    if (!w->node[id].remat || w->node[id].again || w->node[id].host == g) return AN_OK;
    w->node[id].host = -1; /* if it has one, that comes too late */
    AN_TRY(instances_beneath(w, id, g, 0));
    return second_instance(w, id);
}

/* What group g reads again exists, or becomes one more output of it: *guests of them, before its own. */
static an_status recompute_for(an_planner *w, int32_t g, int32_t *guests)
{
    an_fusion_group *gr = &w->group[g];
    int32_t n = 0;
    for (int32_t id = 0; id < w->g->n; id++) {
        if (!w->node[id].live || (w->node[id].group != g && w->node[id].host != g) || an_is_move(w, id)) continue;
        AN_TRY(instances_beneath(w, id, g, 0));
        n += w->node[id].host == g;
    }
    if (!n) return AN_OK;
    int32_t *out = AN_NEW_ARRAY(&w->scratch, int32_t, n + gr->n_out);
    if (!out) return no_memory(w);
    *guests = n;
    memcpy(out + n, gr->out, sizeof *out * (size_t)gr->n_out);
    n = 0;
    for (int32_t id = 0; id < w->g->n; id++) { /* older than all members: outputs stay in ascending order */
        if (w->node[id].host != g) continue;
        AN_TRY(second_value(w, id));
        out[n++] = id;
    }
    gr->out = out;
    gr->n_out += n;
    return AN_OK;
}

/* The last group of the forward pass, -1 without a backward pass. What an_backward was given need not be computed
 * itself (a loss scaled by 1 / micro-batches has no reader): the newest live node up to it is the border. */
static int32_t loss_group_of(const an_planner *w)
{
    int32_t id = w->rq->loss;
    while (id >= 0 && (!w->node[id].live || w->node[id].group < 0)) id--;
    return id >= 0 ? w->node[id].group : -1;
}

static an_status launch_group(an_planner *w, int32_t g, int32_t loss_group)
{
    if (!w->group[g].n_out && w->group[g].kind != AN_G_ATTN_GRAD) return AN_OK;
    if (w->group[g].step == -2) return AN_OK; /* its parts are written in place */
    int32_t guests = 0;
    if (w->rq->recompute && loss_group >= 0 && g > loss_group) AN_TRY(recompute_for(w, g, &guests));
    w->outgrown = false;
    an_status status = lower_group(w, g);
    if (status == AN_OK && guests) w->plan->step[w->plan->n_steps - 1].remat_outputs = guests;
    return status != AN_OK && w->outgrown && an_split_group(w, g, -1) ? AN_OK : status;
}

an_status an_pass_lower(an_planner *w)
{
    const int32_t loss_group = loss_group_of(w);
    int32_t n = w->n_groups, *order;
    w->cuts->more = false;
    /* What leaves alone make may be launched behind the loss: then nothing is gained by making it again. */
    for (int32_t id = 0; id < w->g->n; id++) w->node[id].remat &= w->node[id].group <= loss_group;
    AN_TRY(an_launch_order(w, loss_group, &order));
    if (n == w->cap_groups) { /* the spare group of second_instance */
        an_fusion_group *bigger = AN_NEW_ARRAY(&w->scratch, an_fusion_group, n + 1);
        if (!bigger) return no_memory(w);
        if (n) memcpy(bigger, w->group, sizeof *bigger * (size_t)n);
        w->group = bigger;
        w->cap_groups = n + 1;
    }
    for (int32_t i = 0; i < n; i++) AN_TRY(launch_group(w, order[i], loss_group));
    return w->cuts->more ? an_fail(w->err, AN_E_UNSUPPORTED, "%s", w->cuts->first) : AN_OK;
}
