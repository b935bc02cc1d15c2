/* layout_hints.c: results are stored in the order of axes in which they are read.
 *
 * A GEMM or attention can write its result at any strides. When a reader permutes that result, it is stored permuted,
 * so that the permutation is contiguous and the reader needs no copy:
 *
 *     y = matmul(x, w)          [B,T,H*D] seen as [B,T,H,D]
 *     q = permute(y, 0 2 1 3)   [B,H,T,D] contiguous: y itself has strides (T*H*D, D, T*D, 1)
 *
 * On the CPU the result of a depthwise convolution or a pool too, where it is wanted in planes (codegen/planes.h).
 *
 * Invariants: the innermost axis of what a GEMM writes is one of its last two (else the GEMM could not write whole
 * vectors); `transposed` says that it is the last but one: then C^T = B^T A^T is computed. The first reader's order is
 * taken, but not one that makes a library's fast GEMM a slow one: rows that are whole 16 bytes would become rows that
 * are not (a gradient of 1024 x 97, bf16: 1,060 us; of 97 x 1024 264). What is also read as it is, by the caller or by
 * a reader of memory, keeps its own order; a view that its reader does not suit gets a copy (insert_copies). */
#include "codegen/planes.h"
#include "planner/planner_internal.h"

static bool is_attention_result(const an_planner *w, const struct an_tensor *n)
{
    return n->op == AN_OP_ATTENTION || n->op == AN_OP_ATTENTION_GRAD ||
           (n->op == AN_OP_PICK && w->g->node[n->src[0]]->op == AN_OP_ATTENTION_GRAD);
}

/* Whether a library's GEMM of `n` writes rows of whole 16 bytes, and would not if axis `last` were the contiguous one. */
static bool would_misalign(const an_planner *w, const struct an_tensor *n, int last)
{
    const int64_t unit = 16 / (int64_t)an_dtype_bytes((an_dtype)n->dtype);
    return w->rq->target->library_gemm && n->shape[n->rank - 1] % unit == 0 && n->shape[last] % unit;
}

/* What a node's own readers, not those of views of it, want of its memory. */
enum { ANY_STRIDES, WHOLE_ROWS, IN_ORDER };

static int wanted_by(const an_planner *w, int32_t reader, int source)
{
    const struct an_tensor *n = w->g->node[reader];
    if (n->op == AN_OP_PICK || !an_reads_memory(w, reader, source))
        return ANY_STRIDES; /* PICK is its source's memory */
    if (n->op == AN_OP_MATMUL && an_matmul_is_gemm(w, n)) return ANY_STRIDES;
    return n->op == AN_OP_ATTENTION || n->op == AN_OP_ATTENTION_GRAD ? WHOLE_ROWS : IN_ORDER;
}

/* wanted[id]: the most that the caller or a reader of node `id` wants. */
static void find_wanted(const an_planner *w, uint8_t *wanted)
{
    for (int32_t id = 0; id < w->g->n; id++) {
        const struct an_tensor *n = w->g->node[id];
        for (int s = 0; s < n->n_src && w->node[id].live; s++) {
            const int by = wanted_by(w, id, s);
            wanted[n->src[s]] = (uint8_t)AN_MAX(wanted[n->src[s]], by);
        }
    }
    for (int i = 0; i < w->rq->n_roots; i++) wanted[w->rq->root[i]] = IN_ORDER;
}

/* The window whose result n is, alone or with a bias: its column group writes n. NULL: none. */
static const struct an_tensor *window_of(const an_planner *w, const struct an_tensor *n)
{
    if (an_is_window_of_columns(w, n)) return n;
    for (int s = 0; n->op == AN_OP_ADD && s < 2; s++) {
        const struct an_tensor *window = w->g->node[n->src[s]], *bias = w->g->node[n->src[1 - s]];
        if (an_is_window_of_columns(w, window) && bias->op == AN_OP_EXPAND && an_is_leaf(w, an_base(w, bias->id)))
            return window;
    }
    return NULL;
}

/* [n,y,x,c] to [n,c,y,x]. */
static bool is_to_planes(const struct an_tensor *p)
{
    return p->rank == 4 && p->attr[0] == 0 && p->attr[1] == 3 && p->attr[2] == 1 && p->attr[3] == 2;
}

/* Stores the source of permutation `id` in the order that the permutation has. */
static an_status store_permuted(an_planner *w, int32_t id)
{
    const struct an_tensor *p = w->g->node[id], *n = w->g->node[p->src[0]];
    an_planner_node *wn = &w->node[p->src[0]];
    const bool attention = is_attention_result(w, n), gemm = n->op == AN_OP_MATMUL && an_matmul_is_gemm(w, n);
    const bool planar = is_to_planes(p);
    const struct an_tensor *window = planar ? window_of(w, n) : NULL;
    const int64_t pixels = planar ? (int64_t)p->shape[2] * p->shape[3] : 0;
    const bool planes = window && an_takes_planes(w, window, n) && pixels >= AN_PLANE_LEAST && pixels <= AN_PLANE_MOST;
    if (wn->stride || wn->transposed || !(attention || gemm || planes)) return AN_OK;
    const int last = (int)p->attr[n->rank - 1]; /* the axis that becomes contiguous */
    if (!planes && (last < n->rank - (attention ? 1 : 2) || (gemm && would_misalign(w, n, last)))) return AN_OK;
    int64_t *stride = AN_NEW_ARRAY(&w->scratch, int64_t, AN_MAX_RANK), next = 1;
    if (!stride) return an_fail_nomem(w->err, "the planner's layouts", sizeof *stride * AN_MAX_RANK);
    for (int i = n->rank - 1; i >= 0; i--) {
        stride[p->attr[i]] = next;
        next *= p->shape[i];
    }
    wn->stride = stride;
    wn->transposed = gemm && last == n->rank - 2;
    return AN_OK;
}

an_status an_pass_layout_hints(an_planner *w)
{
    uint8_t *wanted = AN_NEW_ARRAY(&w->scratch, uint8_t, w->g->n + 1);
    if (!wanted) return an_fail_nomem(w->err, "the planner's layouts", (size_t)w->g->n);
    find_wanted(w, wanted);
    for (int32_t id = 0; id < w->g->n; id++) {
        const struct an_tensor *n = w->g->node[id];
        if (!w->node[id].live || n->op != AN_OP_PERMUTE || wanted[n->src[0]] == IN_ORDER) continue;
        if (wanted[n->src[0]] == ANY_STRIDES || n->attr[n->rank - 1] == n->rank - 1) AN_TRY(store_permuted(w, id));
    }
    return AN_OK;
}
