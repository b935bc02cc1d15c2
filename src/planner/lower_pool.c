/* lower_pool.c: loop kernels of pooling, depthwise convolutions and matmuls of integers and float64: one serial sum
 * for each output.
 *
 *     y[r,c] = sum over q of element(r, q, c)      a column group with lanes 1
 *
 * Every index is arithmetic over (row, column, q); padding is a guard. Slow, and right on every device; GEMMs replace the
 * cases that matter. */
#include "planner/loop_builder.h"

static an_ix var(an_loop_builder *b, int v, int64_t extent)
{
    return an_ix_var(&b->p->ix, v, extent);
}

/* Products of 16-bit numbers are summed unrounded, in f32: only the sum is rounded. */
static int32_t multiply(an_loop_builder *b, int32_t x, int32_t y)
{
    if (b->failed) return 0;
    an_ins in = an_loop_ins(AN_INS_ELEM, b->p->ins[x].dtype == AN_F64 ? AN_F64 : AN_F32, 0);
    in.op = AN_OP_MUL;
    in.a = x;
    in.b = y;
    return an_loop_append(b, in, 0);
}

int64_t an_window_red(const an_planner *w, int32_t id)
{
    const struct an_tensor *n = w->g->node[id], *a = w->g->node[n->src[0]];
    switch (n->op) {
    case AN_OP_MATMUL: return a->shape[a->rank - 1];
    case AN_OP_CONV2D: { /* w [O,KH,KW,C/groups] */
        const struct an_tensor *k = w->g->node[n->src[1]];
        return (int64_t)k->shape[1] * k->shape[2] * k->shape[3];
    }
    case AN_OP_CONV2D_DX: { /* dy, w: every tap and every output channel of the group */
        const struct an_tensor *k = w->g->node[n->src[1]];
        return (int64_t)k->shape[1] * k->shape[2] * k->shape[3];
    }
    case AN_OP_CONV2D_DW:
        return (int64_t)a->shape[0] * a->shape[1] * a->shape[2];            /* every position of dy [N,H',W',O] */
    case AN_OP_CONV2D_DW_IMAGES: return (int64_t)a->shape[1] * a->shape[2]; /* of one image */
    default: return n->attr[0] * n->attr[1];                                /* pooling: kh x kw */
    }
}

/* [..., M, K] x [..., K, N] at (batch and m, k, n) */
static int32_t matmul(an_loop_builder *b, const struct an_tensor *n)
{
    an_ix row[AN_MAX_RANK], x[AN_MAX_RANK], y[AN_MAX_RANK];
    an_ix_unlinear(&b->p->ix, var(b, AN_VAR_ROW, b->p->rows), n->rank - 1, n->shape, row);
    for (int i = 0; i < n->rank - 2; i++) x[i] = y[i] = row[i];
    x[n->rank - 2] = row[n->rank - 2];
    x[n->rank - 1] = y[n->rank - 2] = var(b, AN_VAR_RED, b->p->red);
    y[n->rank - 1] = var(b, AN_VAR_COL, b->p->cols);
    int32_t p = an_loop_value(b, n->src[0], x, -1, 0), q = an_loop_value(b, n->src[1], y, -1, 0);
    return multiply(b, p, q);
}

/* Input row/column that tap k of output position o reads: o*stride + k*dilation - pad. */
static an_ix tap(an_loop_builder *b, an_ix o, an_ix k, int64_t stride, int64_t dilation, int64_t pad)
{
    an_ix_pool *p = &b->p->ix;
    return an_ix_add(p, an_ix_add(p, an_ix_mul(p, o, stride), an_ix_mul(p, k, dilation)), an_ix_const(p, -pad));
}

static int32_t conv(an_loop_builder *b, const struct an_tensor *n) /* x, w at (n h w, tap, o) */
{
    an_ix_pool *p = &b->p->ix;
    const struct an_tensor *x = b->w->g->node[n->src[0]], *k = b->w->g->node[n->src[1]];
    an_ix at[3], t[3], xi[4], wi[4], o = var(b, AN_VAR_COL, b->p->cols);
    int32_t taps[3] = {k->shape[1], k->shape[2], k->shape[3]};
    an_ix_unlinear(p, var(b, AN_VAR_ROW, b->p->rows), 3, n->shape, at);
    an_ix_unlinear(p, var(b, AN_VAR_RED, b->p->red), 3, taps, t);
    xi[0] = at[0];
    xi[1] = tap(b, at[1], t[0], n->attr[0], n->attr[4], n->attr[2]);
    xi[2] = tap(b, at[2], t[1], n->attr[1], n->attr[5], n->attr[3]);
    xi[3] = an_ix_add(p, an_ix_mul(p, an_ix_div(p, o, k->shape[0] / n->attr[6]), k->shape[3]), t[2]);
    wi[0] = o;
    for (int i = 0; i < 3; i++) wi[i + 1] = t[i];
    int32_t guard =
        an_loop_guard(b, an_loop_guard(b, -1, (an_bound){xi[1], 0, x->shape[1]}), (an_bound){xi[2], 0, x->shape[2]});
    int32_t u = an_loop_value(b, n->src[0], xi, guard, 0), v = an_loop_value(b, n->src[1], wi, -1, 0);
    return multiply(b, u, v);
}

/* dx[n,h,w,c] sums dy[n,oh,ow,o] w[g,kh,kw,o,c] where oh*stride = h + pad - kh*dilation divides: divisibility is a
 * guard on the remainder. */
static int32_t conv_dx(an_loop_builder *b, const struct an_tensor *n)
{
    an_ix_pool *p = &b->p->ix;
    const struct an_tensor *dy = b->w->g->node[n->src[0]], *k = b->w->g->node[n->src[1]]; /* [groups,KH,KW,o,c] */
    int64_t per_group = k->shape[3];
    an_ix at[3], t[3], yi[4], wi[5], c = var(b, AN_VAR_COL, b->p->cols);
    int32_t taps[3] = {k->shape[1], k->shape[2], (int32_t)per_group}, guard = -1;
    an_ix_unlinear(p, var(b, AN_VAR_ROW, b->p->rows), 3, n->shape, at);
    an_ix_unlinear(p, var(b, AN_VAR_RED, b->p->red), 3, taps, t);
    yi[0] = at[0];
    for (int d = 0; d < 2; d++) {
        int64_t stride = n->attr[d], reach = (taps[d] - 1) * n->attr[4 + d];
        /* shifted by a multiple of the stride, so that what is divided is never negative */
        int64_t shift = an_round_up(AN_MAX(reach - n->attr[2 + d], 0), stride);
        an_ix z = an_ix_add(p, an_ix_add(p, at[1 + d], an_ix_mul(p, t[d], -n->attr[4 + d])),
                            an_ix_const(p, n->attr[2 + d] + shift));
        if (stride > 1) guard = an_loop_guard(b, guard, (an_bound){an_ix_mod(p, z, stride), 0, 1});
        yi[1 + d] = an_ix_add(p, an_ix_div(p, z, stride), an_ix_const(p, -shift / stride));
        guard = an_loop_guard(b, guard, (an_bound){yi[1 + d], 0, dy->shape[1 + d]});
    }
    wi[0] = an_ix_div(p, c, k->shape[4]);
    yi[3] = an_ix_add(p, an_ix_mul(p, wi[0], per_group), t[2]);
    for (int i = 0; i < 3; i++) wi[1 + i] = t[i];
    wi[4] = an_ix_mod(p, c, k->shape[4]);
    int32_t u = an_loop_value(b, n->src[0], yi, guard, 0), v = an_loop_value(b, n->src[1], wi, -1, 0);
    return multiply(b, u, v);
}

static int32_t conv_dw(an_loop_builder *b, const struct an_tensor *n) /* dy, x at (o kh kw, n oh ow, c) */
{
    an_ix_pool *p = &b->p->ix;
    const struct an_tensor *dy = b->w->g->node[n->src[0]], *x = b->w->g->node[n->src[1]];
    an_ix at[3], t[3], yi[4], xi[4], c = var(b, AN_VAR_COL, b->p->cols);
    an_ix_unlinear(p, var(b, AN_VAR_ROW, b->p->rows), 3, n->shape, at);
    an_ix_unlinear(p, var(b, AN_VAR_RED, b->p->red), 3, dy->shape, t);
    for (int i = 0; i < 3; i++) yi[i] = t[i];
    yi[3] = at[0];
    xi[0] = t[0];
    xi[1] = tap(b, t[1], at[1], n->attr[0], n->attr[4], n->attr[2]);
    xi[2] = tap(b, t[2], at[2], n->attr[1], n->attr[5], n->attr[3]);
    xi[3] = an_ix_add(p, an_ix_mul(p, an_ix_div(p, at[0], n->shape[0] / n->attr[6]), n->shape[3]), c);
    int32_t guard =
        an_loop_guard(b, an_loop_guard(b, -1, (an_bound){xi[1], 0, x->shape[1]}), (an_bound){xi[2], 0, x->shape[2]});
    int32_t u = an_loop_value(b, n->src[0], yi, -1, 0), v = an_loop_value(b, n->src[1], xi, guard, 0);
    return multiply(b, u, v);
}

/* Channels are columns, so that both operands are read in rows: dy, x at (n kh kw, oh ow, c). */
static int32_t conv_dw_images(an_loop_builder *b, const struct an_tensor *n)
{
    an_ix_pool *p = &b->p->ix;
    const struct an_tensor *dy = b->w->g->node[n->src[0]], *x = b->w->g->node[n->src[1]];
    an_ix at[3], t[2], yi[4], xi[4], c = var(b, AN_VAR_COL, b->p->cols);
    an_ix_unlinear(p, var(b, AN_VAR_ROW, b->p->rows), 3, n->shape, at);
    an_ix_unlinear(p, var(b, AN_VAR_RED, b->p->red), 2, dy->shape + 1, t);
    yi[0] = xi[0] = at[0];
    yi[3] = xi[3] = c;
    int32_t guard = -1;
    for (int d = 0; d < 2; d++) {
        yi[1 + d] = t[d];
        xi[1 + d] = tap(b, t[d], at[1 + d], n->attr[d], n->attr[4 + d], n->attr[2 + d]);
        guard = an_loop_guard(b, guard, (an_bound){xi[1 + d], 0, x->shape[1 + d]});
    }
    int32_t u = an_loop_value(b, n->src[0], yi, -1, 0), v = an_loop_value(b, n->src[1], xi, guard, 0);
    return multiply(b, u, v);
}

/* x at (n oh ow, tap, c); attributes: kh, kw, then stride, pad and dilation, of h and w each. */
static int32_t pool(an_loop_builder *b, const struct an_tensor *n)
{
    an_ix_pool *p = &b->p->ix;
    const struct an_tensor *x = b->w->g->node[n->src[0]];
    an_ix at[3], t[2], xi[4];
    int32_t taps[2] = {(int32_t)n->attr[0], (int32_t)n->attr[1]};
    an_ix_unlinear(p, var(b, AN_VAR_ROW, b->p->rows), 3, n->shape, at);
    an_ix_unlinear(p, var(b, AN_VAR_RED, b->p->red), 2, taps, t);
    xi[0] = at[0];
    xi[1] = tap(b, at[1], t[0], n->attr[2], n->attr[6], n->attr[4]);
    xi[2] = tap(b, at[2], t[1], n->attr[3], n->attr[7], n->attr[5]);
    xi[3] = var(b, AN_VAR_COL, b->p->cols);
    int32_t guard =
        an_loop_guard(b, an_loop_guard(b, -1, (an_bound){xi[1], 0, x->shape[1]}), (an_bound){xi[2], 0, x->shape[2]});
    int32_t v = an_loop_value(b, n->src[0], xi, guard, 0);
    if (n->op != AN_OP_POOL_MAX || guard < 0 || b->failed) return v;
    an_ins cond = an_loop_ins(AN_INS_TEST, AN_BOOL, 0), low = an_loop_ins(AN_INS_CONST, n->dtype, 0),
           pick = an_loop_ins(AN_INS_ELEM, n->dtype, 0);
    cond.guard = guard;
    low.imm = -__builtin_inf();
    low.imm_i = INT64_MIN;
    pick.op = AN_OP_WHERE;
    pick.a = an_loop_append(b, cond, 0);
    pick.b = v;
    pick.c = an_loop_append(b, low, 0);
    return an_loop_append(b, pick, 0);
}

/* dy at (n h w, tap, c): the windows that hold (h,w): oh*stride = h + pad - kh*dilation. */
static int32_t pool_sum_grad(an_loop_builder *b, const struct an_tensor *n)
{
    an_ix_pool *p = &b->p->ix;
    const struct an_tensor *dy = b->w->g->node[n->src[0]];
    an_ix at[3], t[2], yi[4];
    int32_t taps[2] = {(int32_t)n->attr[0], (int32_t)n->attr[1]}, guard = -1;
    an_ix_unlinear(p, var(b, AN_VAR_ROW, b->p->rows), 3, n->shape, at);
    an_ix_unlinear(p, var(b, AN_VAR_RED, b->p->red), 2, taps, t);
    yi[0] = at[0];
    for (int d = 0; d < 2; d++) {
        int64_t stride = n->attr[2 + d], dilation = n->attr[6 + d], reach = (taps[d] - 1) * dilation;
        int64_t shift = an_round_up(AN_MAX(reach - n->attr[4 + d], 0), stride);
        an_ix z = an_ix_add(p, an_ix_add(p, at[1 + d], an_ix_mul(p, t[d], -dilation)),
                            an_ix_const(p, n->attr[4 + d] + shift));
        if (stride > 1) guard = an_loop_guard(b, guard, (an_bound){an_ix_mod(p, z, stride), 0, 1});
        yi[1 + d] = an_ix_add(p, an_ix_div(p, z, stride), an_ix_const(p, -shift / stride));
        guard = an_loop_guard(b, guard, (an_bound){yi[1 + d], 0, dy->shape[1 + d]});
    }
    yi[3] = var(b, AN_VAR_COL, b->p->cols);
    return an_loop_value(b, n->src[0], yi, guard, 0);
}

int32_t an_window_element(an_loop_builder *b, int32_t id)
{
    const struct an_tensor *n = b->w->g->node[id];
    switch (n->op) {
    case AN_OP_MATMUL: return matmul(b, n);
    case AN_OP_CONV2D: return conv(b, n);
    case AN_OP_CONV2D_DX: return conv_dx(b, n);
    case AN_OP_CONV2D_DW: return conv_dw(b, n);
    case AN_OP_CONV2D_DW_IMAGES: return conv_dw_images(b, n);
    case AN_OP_POOL_MAX:
    case AN_OP_POOL_SUM: return pool(b, n);
    case AN_OP_POOL_SUM_GRAD: return pool_sum_grad(b, n);
    default: return an_loop_fail(b, "no window of this kind");
    }
}
