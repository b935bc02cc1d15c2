/* pad_rows.c: rows of the operands and results of GEMMs and attention, and of elementwise results, begin on 16 bytes
 * (alignment), where the device has a library for GEMMs.
 *
 * A library's GEMMs are three times slower on rows that do not (bench_cublaslt: 16384 x 65 x 384 and its gradients in
 * bf16 take 71 us, of 72 columns 23), and an elementwise kernel moves one element a thread instead of eight. So a tensor that
 * GEMMs, attention or elementwise kernels write or read gets padded rows:
 *
 *     logits [16384,65] bf16    65 columns are 130 bytes: strides (72, 1), 7 elements of padding a row
 *
 * Invariants: only tensors whose every reader accepts strides are padded: GEMMs, attention and elementwise nodes, not calls,
 * packs or roots. Padding is never read. Targets without a library GEMM have no padding. */
#include "planner/planner_internal.h"

/* Whether node `id` accepts rows that lie apart in its source s. Attention does in all but the logarithms of its
 * sums; its mask is left alone. */
static bool reads_strided(const an_planner *w, int32_t id, int s)
{
    enum { LSE = 4 };
    const struct an_tensor *n = w->g->node[id];
    if (n->op == AN_OP_PICK || !an_reads_memory(w, id, s)) return true; /* PICK is its source's memory */
    if (n->op == AN_OP_ATTENTION) return s < 3;
    return n->op == AN_OP_ATTENTION_GRAD ? s != LSE && s < 6 : n->op == AN_OP_MATMUL && an_matmul_is_gemm(w, n);
}

/* Rows of numbers that an elementwise kernel writes: those that it reads beside them are GEMMs' results or operands, and eight
 * columns at a time want all of them aligned. */
static bool is_elementwise(const struct an_tensor *n)
{
    return (an_ops[n->op].cls == AN_CLS_ELEM || n->op == AN_OP_CAST) && n->rank > 1 &&
           (n->dtype == AN_BF16 || n->dtype == AN_F32);
}

/* operand[id]: a GEMM or attention writes or reads it, or an elementwise kernel writes it, and nothing needs it contiguous.
 * What a concatenation reads may be written in its place, where its strides are not its own. */
static void find_operands(const an_planner *w, bool *operand, bool *contiguous)
{
    for (int32_t id = 0; id < w->g->n; id++) operand[id] = w->node[id].live && is_elementwise(w->g->node[id]);
    for (int32_t id = 0; id < w->g->n; id++) {
        const struct an_tensor *n = w->g->node[id];
        for (int s = 0; w->node[id].live && n->op == AN_OP_CONCAT && s < n->n_src; s++)
            operand[an_base(w, n->src[s])] = false;
    }
    for (int32_t id = 0; id < w->g->n; id++) {
        const struct an_tensor *n = w->g->node[id];
        if (!w->node[id].live || an_is_view(w, id)) continue;
        const bool gemm = n->op == AN_OP_MATMUL && an_matmul_is_gemm(w, n);
        operand[id] |= gemm;
        contiguous[id] |= !gemm && n->op != AN_OP_ATTENTION && !an_is_inlinable(w, id);
        for (int s = 0; s < n->n_src; s++) {
            const int32_t base = an_base(w, n->src[s]);
            operand[base] |= gemm || n->op == AN_OP_ATTENTION || n->op == AN_OP_ATTENTION_GRAD;
            contiguous[base] |= !reads_strided(w, id, s);
        }
    }
    for (int i = 0; i < w->rq->n_roots; i++) contiguous[an_base(w, w->rq->root[i])] = true;
    for (int32_t id = 0; id < w->g->n; id++) operand[id] &= !contiguous[id];
}

/* A row that is padded, in elements. A long one of bf16 begins on 32 bytes, a sector of the cache: the copy engine takes 128
 * bytes of a row at a time, which are five sectors instead of four where rows begin between two. */
static int64_t padded_row(int64_t row, int64_t unit, an_dtype dtype)
{
    enum { SECTOR = 16, LONG = 128 };
    return an_round_up(row, dtype == AN_BF16 && row >= LONG ? SECTOR : unit);
}

/* Attention's result [B,H,T,D], stored as [B,T,H D] (layout_hints): rows of H D elements. */
static void pad_attention(const struct an_tensor *n, int64_t *stride)
{
    enum { B, H, T, D };
    const int64_t row = (int64_t)n->shape[H] * n->shape[D], unit = 16 / (int64_t)an_dtype_bytes((an_dtype)n->dtype),
                  padded = row % unit ? padded_row(row, unit, (an_dtype)n->dtype) : row;
    if (stride[D] != 1 || stride[H] != n->shape[D] || stride[T] != row || stride[B] != n->shape[T] * row) return;
    stride[T] = padded;
    stride[B] = n->shape[T] * padded;
}

/* Of how many elements a row is a multiple that needs no padding: 16 bytes; of an f32 sum of bf16 products 32, so that what
 * reads it next to bf16 can take eight columns at a time of both. */
static int64_t unit_of(const an_planner *w, const struct an_tensor *n)
{
    enum { ALIGN = 16, VECTOR = 8 };
    const bool sums = n->op != AN_OP_MATMUL || w->g->node[n->src[0]]->dtype == AN_BF16;
    return sums ? VECTOR : ALIGN / (int64_t)an_dtype_bytes((an_dtype)n->dtype);
}

/* Strides of node `id` with padded rows; NULL: its rows need no padding, or there is no memory. */
static int64_t *padded_strides(an_planner *w, int32_t id, an_status *status)
{
    enum { SMALL = 1 << 10 };
    const struct an_tensor *n = w->g->node[id];
    const int64_t unit = unit_of(w, n);
    int axis = n->rank - 1; /* the axis that makes rows */
    while (axis > 0 && n->shape[axis] == 1) axis--;
    if (axis < 1 || n->numel < SMALL || n->shape[axis] < unit || n->shape[axis] % unit == 0) return NULL;
    int64_t *stride = AN_NEW_ARRAY(&w->scratch, int64_t, AN_MAX_RANK),
            next = padded_row(n->shape[axis], unit, (an_dtype)n->dtype);
    if (!stride) {
        *status = an_fail_nomem(w->err, "the planner's layouts", sizeof *stride * AN_MAX_RANK);
        return NULL;
    }
    for (int i = axis; i < n->rank; i++) stride[i] = 1;
    for (int i = axis - 1; i >= 0; next *= n->shape[i--]) stride[i] = next;
    return stride;
}

an_status an_pass_pad_rows(an_planner *w)
{
    if (!w->rq->target->library_gemm) return AN_OK;
    bool *operand = AN_NEW_ARRAY(&w->scratch, bool, w->g->n + 1);
    bool *contiguous = AN_NEW_ARRAY(&w->scratch, bool, w->g->n + 1);
    if (!operand || !contiguous) return an_fail_nomem(w->err, "the planner's layouts", (size_t)w->g->n);
    find_operands(w, operand, contiguous);
    an_status status = AN_OK;
    for (int32_t id = 0; id < w->g->n && status == AN_OK; id++)
        if (operand[id] && w->g->node[id]->op == AN_OP_ATTENTION) {
            if (w->node[id].stride) pad_attention(w->g->node[id], w->node[id].stride);
        } else if (operand[id] && !w->node[id].stride) {
            w->node[id].stride = padded_strides(w, id, &status);
        }
    return status;
}
