/* grad_call.c: gradients of windows, attention, sorting and matrix calls: one function an op. d_ is a gradient.
 *
 * Does not:   know elementwise ops (ops.def), view ops, matmul or reductions (grad.c).
 * Invariant:  eigenvalues and singular values are assumed to be distinct; equal ones give infinities, as the formulas do.
 *
 * The formulas of matrix factorizations are those of
 *     M. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic differentiation", 2008
 *     J. Townsend, "Differentiating the singular value decomposition", 2016
 *     S. Walter, L. Lehmann, "Algorithmic differentiation of linear algebra functions" (QR), 2018
 */
#include "graph/grad.h"

#include <math.h>
#include <string.h>

static an_tensor *T(an_tensor *a)
{
    return a->poison ? a : an_make_swap(a, a->rank - 2, a->rank - 1);
}

static an_tensor *half(an_tensor *a)
{
    return MUL(a, NUM(a, 0.5));
}

static an_tensor *symmetric_part(an_tensor *a)
{
    return half(ADD(a, T(a)));
}

static an_tensor *row_index(an_tensor *a)
{
    return an_make_iota(a->g, a->rank, a->shape, a->rank - 2);
}

static an_tensor *col_index(an_tensor *a)
{
    return an_make_iota(a->g, a->rank, a->shape, a->rank - 1);
}

/* a where `keep` holds, else 0. */
static an_tensor *masked(an_tensor *keep, an_tensor *a)
{
    return WHERE(keep, a, NUM(a, 0));
}

/* Elements on and below (above) the diagonal; a is never poison where this is called. */
static an_tensor *lower(an_tensor *a)
{
    return a->poison ? a : masked(LE(col_index(a), row_index(a)), a);
}
static an_tensor *upper(an_tensor *a)
{
    return a->poison ? a : masked(LE(row_index(a), col_index(a)), a);
}
static an_tensor *below(an_tensor *a)
{
    return a->poison ? a : masked(LT(col_index(a), row_index(a)), a);
}

static an_tensor *solve_triangle(an_tensor *t, an_tensor *b, bool is_upper, bool transpose)
{
    an_tensor *src[2] = {t, b};
    int64_t attr[2] = {is_upper, transpose};
    return b->poison ? b : an_make_call(AN_OP_TRISOLVE, 2, src, 2, attr);
}

/* v [...,n] as a row [...,1,n] or a column [...,n,1]. */
static an_tensor *as_matrix(an_tensor *v, bool column)
{
    int32_t shape[AN_MAX_RANK];
    if (v->poison) return v;
    memcpy(shape, v->shape, sizeof shape);
    shape[v->rank] = 1;
    if (!column) {
        shape[v->rank] = v->shape[v->rank - 1];
        shape[v->rank - 1] = 1;
    }
    return an_make_reshape(v, v->rank + 1, shape);
}

/* 1 / (v_j - v_i), 0 on the diagonal. */
static an_tensor *gaps(an_tensor *v)
{
    an_tensor *d = SUB(as_matrix(v, false), as_matrix(v, true));
    if (d->poison) return d;
    return WHERE(EQ(row_index(d), col_index(d)), NUM(d, 0), RECIP(d));
}

/* The sum of two terms of which either may be missing. */
static an_tensor *plus(an_tensor *a, an_tensor *b)
{
    return a == NULL ? b : b == NULL ? a : ADD(a, b);
}

/* ------------------------------------------------------------------------------------------------ matrices */

/* S = L^T d_L; d_A = sym(L^-T Phi(S) L^-1), Phi: the lower triangle with half the diagonal. */
static void grad_cholesky(an_backward_node *b)
{
    an_tensor *L = b->n, *S = lower(MM(T(L), lower(b->dy[0])));
    if (S->poison) {
        b->dx[0] = S;
        return;
    }
    an_tensor *P = WHERE(EQ(row_index(S), col_index(S)), half(S), S);
    an_tensor *X = solve_triangle(L, P, false, true);                /* L^-T P      */
    b->dx[0] = symmetric_part(solve_triangle(L, T(X), false, true)); /* (X L^-1)^T  */
}

/* M = R d_R^T - d_Q^T Q; d_A = (d_Q + Q sym_from_lower(M)) R^-T. */
static void grad_qr(an_backward_node *b)
{
    an_tensor *Q = b->n, *R = an_make_pick(Q, 1), *dQ = b->dy[0], *dR = b->dy[1];
    an_tensor *M = dR ? MM(R, T(upper(dR))) : NULL;
    if (dQ != NULL) M = plus(M, NEG(MM(T(dQ), Q)));
    an_tensor *Y = plus(dQ, MM(Q, ADD(lower(M), T(below(M)))));
    b->dx[0] = T(solve_triangle(R, T(Y), true, false));
}

/* d_A = V (diag(d_w) + F o (V^T d_V)) V^T, made symmetric; F_ij = 1/(w_j - w_i). */
static void grad_eigh(an_backward_node *b)
{
    an_tensor *w = b->n, *V = an_make_pick(w, 1), *dw = b->dy[0], *dV = b->dy[1];
    an_tensor *inner = dV ? MUL(gaps(w), MM(T(V), dV)) : NULL;
    if (dw != NULL) {
        an_tensor *wide = an_make_expand(as_matrix(dw, true), V->rank, V->shape);
        if (!wide->poison) wide = masked(EQ(row_index(V), col_index(V)), wide);
        inner = plus(wide, inner);
    }
    b->dx[0] = symmetric_part(MM(MM(V, inner), T(V)));
}

/* d_A = U (F o (U^T d_U - d_U^T U) S + diag(d_s) + S (F o (V^T d_V - d_V^T V))) V^T + (d_U - U U^T d_U) S^-1 V^T,
 * F_ij = 1/(s_j^2 - s_i^2). */
static void grad_svd(an_backward_node *b)
{
    an_tensor *U = b->n, *s = an_make_pick(U, 1), *V = an_make_pick(U, 2); /* [...,m,n] [...,n] [...,n,n] */
    an_tensor *dU = b->dy[0], *ds = b->dy[1], *dV = b->dy[2], *inner = NULL, *outer = NULL;
    an_tensor *row = as_matrix(s, false), *column = as_matrix(s, true), *F = dU || dV ? gaps(MUL(s, s)) : NULL;
    if (dU != NULL) {
        an_tensor *K = MM(T(U), dU); /* [...,n,n] */
        inner = MUL(MUL(F, SUB(K, T(K))), row);
        outer = DIV(SUB(dU, MM(U, K)), row);
    }
    if (dV != NULL) {
        an_tensor *K = MM(T(V), dV);
        inner = plus(inner, MUL(column, MUL(F, SUB(K, T(K)))));
    }
    if (ds != NULL && !V->poison) {
        an_tensor *diagonal = an_make_expand(as_matrix(ds, true), V->rank, V->shape);
        inner = plus(inner, masked(EQ(row_index(V), col_index(V)), diagonal));
    }
    b->dx[0] = MM(plus(MM(U, inner), outer), T(V));
}

/* a x = y: d_y = a^-T d_x, d_a = -d_y x^T. */
static void grad_solve(an_backward_node *b)
{
    an_tensor *x = b->n, *src[2] = {T(an_src(x, 0)), b->dy[0]};
    an_tensor *dy = an_make_call(AN_OP_SOLVE, 2, src, 0, NULL);
    b->dx[1] = dy;
    if (b->need[0]) b->dx[0] = NEG(MM(dy, T(x)));
}

static void grad_trisolve(an_backward_node *b)
{
    an_tensor *x = b->n, *t = an_src(x, 0);
    bool is_upper = x->attr[0] != 0, transpose = x->attr[1] != 0;
    an_tensor *dy = solve_triangle(t, b->dy[0], is_upper, !transpose);
    b->dx[1] = dy;
    if (!b->need[0]) return;
    an_tensor *dt = NEG(transpose ? MM(x, T(dy)) : MM(dy, T(x)));
    b->dx[0] = is_upper ? upper(dt) : lower(dt);
}

/* ------------------------------------------------------------------------------------------------ rows */

/* Each gradient back to the position its value came from. x [...,K], n [...,k]. */
static void grad_sort(an_backward_node *b)
{
    an_tensor *n = b->n, *x = an_src(n, 0), *positions = an_make_pick(n, 1);
    int32_t K = x->shape[x->rank - 1], k = n->shape[n->rank - 1];
    int64_t rows = k > 0 ? n->numel / k : 0;
    if (x->numel > INT32_MAX) {
        b->dx[0] = an_refuse(b->g, AN_E_UNSUPPORTED, "gradients of sorting reach %d elements", INT32_MAX);
        return;
    }
    int32_t shape[2] = {(int32_t)rows, k}, flat[1] = {(int32_t)(rows * k)};
    an_tensor *row = an_make_iota(b->g, 2, shape, 0);
    an_tensor *index = ADD(MUL(row, NUM(row, K)), an_make_reshape(positions, 2, shape));
    index = an_make_reshape(index, 1, flat);
    an_tensor *d = an_make_scatter(index, an_make_reshape(b->dy[0], 1, flat), x->numel);
    b->dx[0] = an_make_like(CAST(d, (an_dtype)x->dtype), x);
}

static void grad_cumsum(an_backward_node *b)
{
    int64_t reverse = !b->n->attr[0];
    b->dx[0] = an_make_call(AN_OP_CUMSUM, 1, &b->dy[0], 1, &reverse);
}

/* ------------------------------------------------------------------------------------------------ attention, windows */

/* The gradient of a mask [B,H,T,S], and so in memory; attention with dropout is built in another way where it is asked for
 * (compose_attention.c). src: those of ATTENTION_GRAD, lse [B,H,2,T]. */
static an_tensor *grad_mask(const an_tensor *n, an_tensor *const *src)
{
    an_tensor *q = src[0], *k = src[1], *v = src[2], *o = src[3], *lse = src[4], *dy = src[5], *mask = src[6];
    const int32_t rows[4] = {q->shape[0], q->shape[1], q->shape[2], 1};
    k = an_repeat_heads(k, q->shape[1]);
    v = an_repeat_heads(v, q->shape[1]);
    an_tensor *scores = an_wide(MM(q, an_make_swap(k, 2, 3)));
    scores = ADD(MUL(scores, NUM(scores, n->imm[0])), mask);
    an_tensor *most = an_make_reshape(an_make_slice(lse, 2, 0, 1, 1), 4, rows);
    an_tensor *log_sum = an_make_reshape(an_make_slice(lse, 2, 1, 1, 1), 4, rows);
    if (n->attr[0]) {
        an_tensor *i = an_make_iota(n->g, 4, mask->shape, 2), *j = an_make_iota(n->g, 4, mask->shape, 3);
        an_tensor *last = ADD(i, NUM(i, (double)k->shape[2] - q->shape[2]));
        scores = WHERE(LE(j, last), scores, NUM(scores, -INFINITY));
        if (an_attention_window(n))
            scores = WHERE(LT(SUB(last, NUM(last, (double)an_attention_window(n))), j), scores, NUM(scores, -INFINITY));
    }
    an_tensor *p = EXP(SUB(SUB(scores, most), log_sum));
    an_tensor *delta = an_make_reduce(AN_OP_SUM, MUL(an_wide(dy), an_wide(o)), 1 << 3, true); /* [B,H,T,1] */
    an_tensor *dp = an_wide(MM(dy, an_make_swap(v, 2, 3)));
    return MUL(p, SUB(dp, delta));
}

static void grad_attention(an_backward_node *b)
{
    an_tensor *n = b->n;
    const int mask = an_attention_mask(b->g, n);
    const bool cache = n->n_src > 3 + (mask >= 0);
    if (cache || b->dy[1] != NULL || b->dy[0] == NULL) {
        b->dx[0] = an_refuse(b->g, AN_E_UNSUPPORTED, "attention has no gradient through %s",
                             cache ? "a cache with n_keys" : "its log-sum-exp");
        return;
    }
    an_tensor *src[7] = {an_src(n, 0), an_src(n, 1), an_src(n, 2), n, an_make_pick(n, 1), b->dy[0]};
    if (mask >= 0) src[6] = an_src(n, mask);
    an_emit_args e = {.op = AN_OP_ATTENTION_GRAD, .src = src, .n_attr = n->n_attr, .attr = n->attr, .at = n->at};
    e.n_src = mask >= 0 ? 7 : 6;
    memcpy(e.imm, n->imm, sizeof e.imm);
    an_tensor *d = an_emit(b->g, &e);
    for (int i = 0; i < 3; i++)
        if (b->need[i]) b->dx[i] = d->poison ? d : an_make_pick(d, i);
    if (mask >= 0 && b->need[mask] && n->imm[1] == 0) b->dx[mask] = d->poison ? d : grad_mask(n, src);
}

/* `op` of dy and another operand, with n's attributes and the shape of `like`; dy, and so the gradient of a convolution, may be wider than
 * the operands. */
static an_tensor *window_of(an_backward_node *b, an_op op, an_tensor *dy, an_tensor *with, const an_tensor *like)
{
    an_tensor *src[2] = {CAST(dy, (an_dtype)like->dtype), with};
    if (src[0]->poison) return src[0];
    an_emit_args e = {.op = op, .rank = like->rank, .shape = like->shape, .n_src = with != NULL ? 2 : 1, .src = src};
    e.dtype = (an_dtype)like->dtype;
    e.n_attr = b->n->n_attr;
    e.attr = b->n->attr;
    e.at = b->n->at;
    return an_emit(b->g, &e);
}

static an_tensor *window(an_backward_node *b, an_op op, an_tensor *with, const an_tensor *like)
{
    return window_of(b, op, b->dy[0], with, like);
}

/* Of a depthwise convolution: channels lie side by side in dy and x, and so they do in the sums of each image
 * [N,KH,KW,C], which are added then. */
static an_tensor *depthwise_dw(an_backward_node *b, an_tensor *dy, an_tensor *x, const an_tensor *w)
{
    const int32_t images[4] = {x->shape[0], w->shape[1], w->shape[2], w->shape[0]};
    const an_tensor like = {.rank = 4, .shape = {images[0], images[1], images[2], images[3]}, .dtype = x->dtype};
    an_tensor *each = window_of(b, AN_OP_CONV2D_DW_IMAGES, dy, x, &like);
    if (each->poison) return each;
    an_tensor *sum = an_make_permute(an_make_reduce(AN_OP_SUM, each, 1, false), (const int[]){2, 0, 1});
    return CAST(an_make_reshape(sum, 4, w->shape), (an_dtype)w->dtype);
}

/* The gradient of the weight w [O,KH,KW,C/groups] of a convolution from x to dy. */
static an_tensor *conv_dw(an_backward_node *b, an_tensor *dy, an_tensor *x, const an_tensor *w)
{
    const bool depthwise = w->shape[3] == 1 && w->shape[0] == b->n->attr[6];
    return depthwise && w->shape[0] > 1 ? depthwise_dw(b, dy, x, w) : window_of(b, AN_OP_CONV2D_DW, dy, x, w);
}

static void grad_conv(an_backward_node *b)
{
    an_tensor *x = an_src(b->n, 0), *w = an_src(b->n, 1);
    if (b->need[0]) b->dx[0] = window(b, AN_OP_CONV2D_DX, an_make_taps_first(w, (int32_t)b->n->attr[6]), x);
    if (b->need[1]) b->dx[1] = conv_dw(b, b->dy[0], x, w);
}

/* Of a transposed convolution, x times the taps: it is linear in each, and is itself the gradient of the convolution whose operand its
 * result has the shape of. */
static void grad_conv_transpose(an_backward_node *b)
{
    an_tensor *x = an_src(b->n, 0), *taps = an_src(b->n, 1); /* [N,H,W,O] [groups,KH,KW,O/groups,C/groups] */
    const int32_t groups = (int32_t)b->n->attr[6];
    const int32_t rows[4] = {taps->shape[0] * taps->shape[3], taps->shape[1], taps->shape[2], taps->shape[4]};
    an_tensor *w = an_make_reshape(an_make_permute(taps, (const int[]){0, 3, 1, 2, 4}), 4, rows);
    if (w->poison) {
        b->dx[0] = w;
        return;
    }
    an_tensor *dy = CAST(b->dy[0], (an_dtype)x->dtype);
    if (b->need[0]) b->dx[0] = window_of(b, AN_OP_CONV2D, dy, w, x);
    if (b->need[1]) b->dx[1] = an_make_taps_first(conv_dw(b, x, dy, w), groups);
}

/* y = x w of each group: dx = dy w^T, dw = x^T dy. */
static void grad_grouped_matmul(an_backward_node *b)
{
    an_tensor *x = an_src(b->n, 0), *w = an_src(b->n, 1), *ends = an_src(b->n, 2);
    an_tensor *dy = CAST(b->dy[0], (an_dtype)x->dtype);
    if (b->need[0]) {
        an_tensor *src[3] = {dy, an_make_swap(w, 1, 2), ends};
        b->dx[0] = an_make_call(AN_OP_GROUPED_MATMUL, 3, src, 0, NULL);
    }
    if (b->need[1]) {
        an_tensor *src[3] = {x, dy, ends};
        b->dx[1] = an_make_call(AN_OP_GROUPED_OUTER, 3, src, 0, NULL);
    }
}

/* y = a^T b of each group: da = b dy^T, db = a dy. */
static void grad_grouped_outer(an_backward_node *b)
{
    an_tensor *a = an_src(b->n, 0), *c = an_src(b->n, 1), *ends = an_src(b->n, 2);
    an_tensor *dy = CAST(b->dy[0], (an_dtype)a->dtype); /* [E,M,N] */
    if (b->need[0]) {
        an_tensor *src[3] = {c, an_make_swap(dy, 1, 2), ends};
        b->dx[0] = an_make_call(AN_OP_GROUPED_MATMUL, 3, src, 0, NULL);
    }
    if (b->need[1]) {
        an_tensor *src[3] = {a, dy, ends};
        b->dx[1] = an_make_call(AN_OP_GROUPED_MATMUL, 3, src, 0, NULL);
    }
}

bool an_grad_call(an_backward_node *b)
{
    an_tensor *x = b->n->n_src > 0 ? an_src(b->n, 0) : NULL;
    switch (b->n->op) {
    case AN_OP_ATTENTION: grad_attention(b); return true;
    case AN_OP_GROUPED_MATMUL: grad_grouped_matmul(b); return true;
    case AN_OP_GROUPED_OUTER: grad_grouped_outer(b); return true;
    case AN_OP_CONV2D: grad_conv(b); return true;
    case AN_OP_CONV2D_DX: grad_conv_transpose(b); return true;
    case AN_OP_POOL_MAX: b->dx[0] = window(b, AN_OP_POOL_MAX_GRAD, x, x); return true;
    case AN_OP_POOL_SUM: b->dx[0] = window(b, AN_OP_POOL_SUM_GRAD, NULL, x); return true;
    case AN_OP_CUMSUM: grad_cumsum(b); return true;
    case AN_OP_SORT:
    case AN_OP_TOPK: grad_sort(b); return true;
    case AN_OP_CHOLESKY: grad_cholesky(b); return true;
    case AN_OP_QR: grad_qr(b); return true;
    case AN_OP_EIGH: grad_eigh(b); return true;
    case AN_OP_SVD: grad_svd(b); return true;
    case AN_OP_SOLVE: grad_solve(b); return true;
    case AN_OP_TRISOLVE: grad_trisolve(b); return true;
    default: return false;
    }
}
