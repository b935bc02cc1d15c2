/* lower_gemm.c: a GEMM group → one step: the GEMM's spec, and the loop kernel of its epilogue.
 *
 *     group      matmul  + bias   gelu            spec       m n k, strides of A, B and C, up to 3 batch axes
 *     step args  A B C | x0 x1 ... y0 y1          epilogue   the loop kernel; its arguments follow A, B and C
 *
 * C is absent when there is an epilogue: the epilogue stores what is needed of the result.
 *
 * Operands are read at any strides: transposes, broadcasts and slices are views (views.c). Adjacent batch axes that one
 * stride describes are merged; the innermost is merged into m when B does not depend on it:
 *
 *     [B,T,K] x [K,N]     one GEMM of m = B*T rows */
#include "planner/planner_internal.h"

typedef struct batch_axis {
    int64_t extent, a, b, c; /* strides of A, B and C */
} batch_axis;

/* Merges axis x into the one outside of it if the strides of both are those of one axis. */
static bool merges(batch_axis *outer, const batch_axis *x)
{
    if (outer->a != x->a * x->extent || outer->b != x->b * x->extent || outer->c != x->c * x->extent) return false;
    *outer = (batch_axis){outer->extent * x->extent, x->a, x->b, x->c};
    return true;
}

static an_status batch_axes(an_planner *w, const struct an_tensor *n, const int64_t *a, const int64_t *b,
                            const int64_t *c, an_gemm_spec *s)
{
    batch_axis axis[AN_MAX_RANK];
    int k = 0;
    for (int i = 0; i < n->rank - 2; i++) {
        const batch_axis x = {n->shape[i], a[i], b[i], c[i]};
        if (x.extent == 1 || (k && merges(&axis[k - 1], &x))) continue;
        axis[k++] = x;
    }
    const batch_axis *inner = k ? &axis[k - 1] : NULL;
    if (inner && inner->b == 0 && inner->a == s->m * s->a_m && inner->c == s->m * s->c_m &&
        inner->extent * s->m < INT32_MAX) {
        s->m *= (int32_t)inner->extent;
        k--;
    }
    if (k > 3)
        return an_fail(w->err, AN_E_UNSUPPORTED,
                       "an_matmul: %d batch axes that do not merge in %s; reshape them into at most 3", k,
                       an_scope_of(w, n->id));
    for (int i = 0; i < 3; i++) {
        const int from = i - (3 - k);
        const batch_axis x = from >= 0 ? axis[from] : (batch_axis){.extent = 1};
        s->nb[i] = (int32_t)x.extent;
        s->a_b[i] = x.a;
        s->b_b[i] = x.b;
        s->c_b[i] = x.c;
    }
    return AN_OK;
}

/* C^T = B^T A^T: the same sums, in the same order, for a result whose last two axes are stored exchanged. */
static void transpose_spec(an_gemm_spec *s, an_arg *arg, int64_t c_m)
{
    const an_gemm_spec t = *s;
    const an_arg a = arg[0];
    s->m = t.n;
    s->n = t.m;
    s->a_m = t.b_n;
    s->a_k = t.b_k;
    s->b_k = t.a_k;
    s->b_n = t.a_m;
    s->a_dtype = t.b_dtype;
    s->b_dtype = t.a_dtype;
    s->c_m = c_m;
    arg[0] = arg[1];
    arg[1] = a;
}

static an_status gemm_spec(an_planner *w, int32_t id, an_gemm_spec *s, an_arg *arg)
{
    const struct an_tensor *n = w->g->node[id];
    an_view a, b;
    int r = n->rank;
    if (n->op != AN_OP_MATMUL) { /* a convolution */
        for (int i = 0; i < 2; i++) arg[i] = an_operand(w, n->src[i], false, &a);
        an_conv_spec(w, id, s);
        return AN_OK;
    }
    int64_t c[AN_MAX_RANK];
    arg[0] = an_operand(w, n->src[0], true, &a);
    arg[1] = an_operand(w, n->src[1], true, &b);
    an_strides_of(w, id, c);
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
    if (!w->node[id].transposed) return batch_axes(w, n, a.stride, b.stride, c, s);
    transpose_spec(s, arg, c[r - 1]);
    return batch_axes(w, n, b.stride, a.stride, c, s);
}

static void count_work(const an_planner *w, int32_t id, an_kernel *k)
{
    const struct an_tensor *n = w->g->node[id];
    const an_gemm_spec *s = &k->u.gemm;
    const uint64_t batch = (uint64_t)s->nb[0] * (uint64_t)s->nb[1] * (uint64_t)s->nb[2];
    const uint64_t a = (uint64_t)s->m * (uint64_t)s->k * an_dtype_bytes((an_dtype)s->a_dtype);
    const uint64_t b = (uint64_t)s->k * (uint64_t)s->n * an_dtype_bytes((an_dtype)s->b_dtype);
    k->flops = 2u * (uint64_t)n->numel * (uint64_t)s->k;
    k->bytes = batch * (a + b);
    if (n->op != AN_OP_MATMUL) an_conv_work(w, id, &k->flops, &k->bytes);
}

static an_status lower_plain(an_planner *w, int32_t id, an_kernel k, an_arg *arg)
{
    const struct an_tensor *n = w->g->node[id];
    const an_target *target = w->rq->target;
    an_plan_step *s;
    arg[2] = an_arg_of(w, id, true);
    k.bytes += (uint64_t)n->numel * an_dtype_bytes((an_dtype)n->dtype);
    AN_TRY(an_add_step(w, k, arg, 3, id, &s));
    if (target->gemm_scratch) s->scratch_bytes = (int64_t)target->gemm_scratch(target, &k, NULL);
    s->gated = an_gating_of(w, id) != AN_GATES_NOT;
    return AN_OK;
}

an_status an_lower_gemm(an_planner *w, an_fusion_group *gr)
{
    int32_t id = gr->anchor;
    const struct an_tensor *n = w->g->node[id];
    const bool conv = n->op != AN_OP_MATMUL;
    const an_target *target = w->rq->target;
    an_kernel k = {.kind = AN_KERNEL_GEMM, .name = an_short_name(w, id, conv ? an_conv_name(n) : "matmul")};
    an_arg arg[3 + AN_LOOP_ARGS];
    AN_TRY(gemm_spec(w, id, &k.u.gemm, arg));
    if (target->exact && k.u.gemm.mul_dtype == AN_BF16)
        return an_refuse_inexact(w, id, conv ? "an_conv2d" : "an_matmul");
    count_work(w, id, &k);
    if (gr->n_out == 1 && gr->out[0] == id) return lower_plain(w, id, k, arg);
    an_loop_kernel *epilogue;
    an_plan_step *s;
    int n_epilogue;
    arg[2] = (an_arg){.slot = -1, .value = -1};
    AN_TRY(an_lower_loop(w, gr, true, &epilogue, arg + 3, &n_epilogue));
    AN_TRY(an_add_step(w, k, arg, 3 + n_epilogue, id, &s));
    if (target->gemm_scratch) s->scratch_bytes = (int64_t)target->gemm_scratch(target, &k, epilogue);
    s->n_gemm_args = 3;
    s->epilogue = an_kernel_new(w, (an_kernel){.kind = AN_KERNEL_LOOP,
                                               .name = epilogue->name,
                                               .u.loop = epilogue,
                                               .flops = epilogue->flops,
                                               .bytes = epilogue->bytes});
    if (s->epilogue < 0) return an_lower_no_memory(w);
    s->flops += epilogue->flops;
    s->bytes += epilogue->bytes;
    return AN_OK;
}
