/* make.c: the node constructors of build.h: small functions that emit one node, or a broadcast and a node.
 *
 * Owns:      broadcasting (as RESHAPE and EXPAND nodes), numbers as CONST nodes, single-axis forms of the view ops.
 * Does not:  check what shape.c checks, or know composites.
 */
#include "graph/build.h"

#include <math.h>
#include <string.h>

enum { TEXT = 8 * 12 + 3 };

bool an_same_shape(const an_tensor *a, const an_tensor *b)
{
    return a->rank == b->rank && memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0;
}

/* The length of axes [from, to) joined into one; above INT32_MAX it is -1, which shape inference refuses. */
int32_t an_merge(const int32_t *shape, int from, int to)
{
    int64_t n = from < to ? an_count(to - from, shape + from) : 1;
    return n > INT32_MAX ? -1 : (int32_t)n;
}

/* ------------------------------------------------------------------------------------------------ numbers */

/* A float as an integer dtype: truncated, saturated, NaN is 0; bool: != 0. */
static int64_t saturate(an_dtype t, double x)
{
    if (t == AN_BOOL) return x != 0;
    if (isnan(x)) return 0;
    int64_t low = t == AN_U8 ? 0 : t == AN_I32 ? INT32_MIN : INT64_MIN;
    int64_t high = t == AN_U8 ? UINT8_MAX : t == AN_I32 ? INT32_MAX : INT64_MAX;
    if (x <= (double)low) return low;
    return x >= (double)high ? high : (int64_t)x;
}

bool an_uniform(const an_tensor *t, double *x, int64_t *i)
{
    while (t->op == AN_OP_RESHAPE || t->op == AN_OP_EXPAND) t = an_src(t, 0);
    if (t->op != AN_OP_CONST) return false;
    *x = t->imm[0];
    *i = t->imm_i;
    return true;
}

an_tensor *an_make_full(an_graph *g, an_dtype t, int rank, const int32_t *shape, double x, int64_t i)
{
    an_emit_args e = {.op = AN_OP_CONST, .dtype = t, .at = g->at};
    bool real = an_dtype_is_float(t);
    e.imm_i = real ? 0 : an_wrap_to(t, i);
    e.imm[0] = real ? an_round_to(t, x) : (double)e.imm_i;
    return an_make_broadcast(an_emit(g, &e), rank, shape);
}

an_tensor *an_make_num(an_tensor *like, double x)
{
    if (like->poison) return like;
    an_dtype t = (an_dtype)like->dtype;
    return an_make_full(like->g, t, 0, NULL, x, an_dtype_is_float(t) ? 0 : saturate(t, x));
}

an_tensor *an_make_iota(an_graph *g, int rank, const int32_t *shape, int axis)
{
    int64_t attr = axis;
    an_emit_args e = {.op = AN_OP_IOTA, .rank = rank, .shape = shape, .n_attr = 1, .attr = &attr, .at = g->at};
    return an_emit(g, &e);
}

static an_tensor *make_rand(an_graph *g, int rank, const int32_t *shape, bool per_sample)
{
    int64_t attr[2] = {an_graph_stream(g), per_sample};
    an_emit_args e = {.op = AN_OP_RAND, .rank = rank, .shape = shape, .n_attr = 2, .attr = attr, .at = g->at};
    return an_emit(g, &e);
}

an_tensor *an_make_rand(an_graph *g, int rank, const int32_t *shape)
{
    return make_rand(g, rank, shape, true);
}

an_tensor *an_make_shared_rand(an_graph *g, int rank, const int32_t *shape)
{
    return make_rand(g, rank, shape, false);
}

/* ------------------------------------------------------------------------------------------------ elementwise */

/* Shape both operands broadcast to; false: they do not, and the error is recorded. */
static bool join_shapes(const an_tensor *a, const an_tensor *b, int *rank, int32_t *shape)
{
    char ta[TEXT], tb[TEXT];
    *rank = AN_MAX(a->rank, b->rank);
    for (int i = 0; i < *rank; i++) {
        int ia = i - (*rank - a->rank), ib = i - (*rank - b->rank);
        int32_t da = ia < 0 ? 1 : a->shape[ia], db = ib < 0 ? 1 : b->shape[ib];
        if (da != db && da != 1 && db != 1) {
            an_refuse(a->g, AN_E_SHAPE, "shapes %s and %s do not broadcast (axis %d)",
                      an_shape_text(a->rank, a->shape, ta, TEXT), an_shape_text(b->rank, b->shape, tb, TEXT), i);
            return false;
        }
        shape[i] = da == 1 ? db : da;
    }
    return true;
}

static an_tensor *emit_elem(an_op op, int n, an_tensor *const *t)
{
    an_emit_args e = {.op = op, .n_src = n, .src = t, .at = t[0]->g->at};
    return an_emit(t[0]->g, &e);
}

an_tensor *an_make1(an_op op, an_tensor *a)
{
    return a->poison ? a : emit_elem(op, 1, &a);
}

an_tensor *an_make2(an_op op, an_tensor *a, an_tensor *b)
{
    if (a->poison) return a;
    if (b->poison) return b;
    an_tensor *t[2] = {a, b};
    int rank;
    int32_t shape[AN_MAX_RANK];
    if (!an_same_shape(a, b)) {
        if (!join_shapes(a, b, &rank, shape)) return an_poison_of(a->g);
        for (int i = 0; i < 2; i++) t[i] = an_make_broadcast(t[i], rank, shape);
    }
    return emit_elem(op, 2, t);
}

an_tensor *an_make3(an_op op, an_tensor *a, an_tensor *b, an_tensor *c)
{
    an_tensor *t[3] = {a, b, c};
    for (int i = 0; i < 3; i++)
        if (t[i]->poison) return t[i];
    if (an_same_shape(a, b) && an_same_shape(a, c)) return emit_elem(op, 3, t);
    int rank;
    int32_t shape[AN_MAX_RANK];
    an_tensor joined = {.g = a->g};
    if (!join_shapes(b, c, &rank, joined.shape)) return an_poison_of(a->g);
    joined.rank = (uint8_t)rank;
    if (!join_shapes(a, &joined, &rank, shape)) return an_poison_of(a->g);
    for (int i = 0; i < 3; i++) t[i] = an_make_broadcast(t[i], rank, shape);
    return emit_elem(op, 3, t);
}

void an_put_aside(an_tensor *left)
{
    an_graph *g = left->g;
    if (g->n_operands < (int)AN_COUNT(g->operand)) g->operand[g->n_operands] = left;
    g->n_operands++; /* counted beyond the array's size too, so that each take_back matches its put_aside */
}

static an_tensor *take_back(an_graph *g)
{
    int i = --g->n_operands;
    if (i >= 0 && i < (int)AN_COUNT(g->operand)) return g->operand[i];
    return an_refuse(g, AN_E_INTERNAL, "a formula nests deeper than %d", (int)AN_COUNT(g->operand));
}

an_tensor *an_make2_after(an_op op, an_tensor *right)
{
    an_tensor *left = take_back(right->g);
    return op == AN_OP_MATMUL ? an_make_matmul(left, right, (an_dtype)left->dtype) : an_make2(op, left, right);
}

an_tensor *an_make3_after(an_op op, an_tensor *right)
{
    an_tensor *middle = take_back(right->g), *left = take_back(right->g);
    return an_make3(op, left, middle, right);
}

an_tensor *an_make_cast(an_tensor *a, an_dtype t)
{
    if (a->poison || a->dtype == t) return a;
    an_emit_args e = {.op = AN_OP_CAST, .dtype = t, .n_src = 1, .src = &a, .at = a->g->at};
    return an_emit(a->g, &e);
}

/* -------------------------------------------------------------------------------- view ops, padding, concatenation */

static an_tensor *emit_move(an_op op, an_tensor *a, int rank, const int32_t *shape, int n_attr, const int64_t *attr,
                            double value)
{
    if (a->poison) return a;
    an_emit_args e = {.op = op, .rank = rank, .shape = shape, .n_src = 1, .src = &a, .n_attr = n_attr, .attr = attr};
    e.imm[0] = value;
    e.at = a->g->at;
    return an_emit(a->g, &e);
}

an_tensor *an_make_reshape(an_tensor *a, int rank, const int32_t *shape)
{
    bool same = a->rank == rank && (rank == 0 || memcmp(a->shape, shape, (size_t)rank * sizeof *shape) == 0);
    return same ? a : emit_move(AN_OP_RESHAPE, a, rank, shape, 0, NULL, 0);
}

an_tensor *an_make_like(an_tensor *a, const an_tensor *shape_of)
{
    return an_make_reshape(a, shape_of->rank, shape_of->shape);
}

an_tensor *an_make_expand(an_tensor *a, int rank, const int32_t *shape)
{
    bool same = a->rank == rank && (rank == 0 || memcmp(a->shape, shape, (size_t)rank * sizeof *shape) == 0);
    return same ? a : emit_move(AN_OP_EXPAND, a, rank, shape, 0, NULL, 0);
}

an_tensor *an_make_broadcast(an_tensor *a, int rank, const int32_t *shape)
{
    if (a->poison) return a;
    int32_t aligned[AN_MAX_RANK];
    if (a->rank < rank) {
        for (int i = 0; i < rank; i++) aligned[i] = i < rank - a->rank ? 1 : a->shape[i - (rank - a->rank)];
        a = an_make_reshape(a, rank, aligned);
    }
    return an_make_expand(a, rank, shape);
}

an_tensor *an_make_permute(an_tensor *a, const int *perm)
{
    int64_t attr[AN_MAX_RANK];
    for (int i = 0; i < a->rank; i++) attr[i] = perm[i];
    return emit_move(AN_OP_PERMUTE, a, 0, NULL, a->rank, attr, 0);
}

an_tensor *an_make_swap(an_tensor *a, int axis1, int axis2)
{
    int perm[AN_MAX_RANK];
    for (int i = 0; i < a->rank; i++) perm[i] = i == axis1 ? axis2 : i == axis2 ? axis1 : i;
    return an_make_permute(a, perm);
}

an_tensor *an_make_taps_first(an_tensor *w, int32_t groups)
{
    const int32_t split[5] = {groups, w->shape[0] / groups, w->shape[1], w->shape[2], w->shape[3]};
    an_tensor *grouped = an_make_reshape(w, 5, split);
    return grouped->poison ? grouped : an_make_permute(grouped, (const int[]){0, 2, 3, 1, 4});
}

an_tensor *an_make_slice(an_tensor *a, int axis, int64_t start, int64_t length, int64_t step)
{
    int64_t attr[2 * AN_MAX_RANK];
    int32_t shape[AN_MAX_RANK];
    memcpy(shape, a->shape, sizeof shape);
    for (int i = 0; i < a->rank; i++) {
        attr[2 * i] = i == axis ? start : 0;
        attr[2 * i + 1] = i == axis ? step : 1;
    }
    shape[axis] = (int32_t)length;
    return emit_move(AN_OP_SLICE, a, a->rank, shape, 2 * a->rank, attr, 0);
}

an_tensor *an_make_pad(an_tensor *a, int axis, int64_t before, int64_t after, double value)
{
    int64_t attr[2 * AN_MAX_RANK] = {0};
    attr[2 * axis] = before;
    attr[2 * axis + 1] = after;
    an_dtype t = (an_dtype)a->dtype;
    double held = an_dtype_is_float(t) ? an_round_to(t, value) : (double)saturate(t, value);
    return emit_move(AN_OP_PAD, a, 0, NULL, 2 * a->rank, attr, held);
}

an_tensor *an_make_flip(an_tensor *a, uint32_t mask)
{
    int64_t attr = mask;
    return emit_move(AN_OP_FLIP, a, 0, NULL, 1, &attr, 0);
}

/* A concatenation of more parts than a node may have operands is a concatenation of concatenations. */
an_tensor *an_make_concat(an_graph *g, an_tensor *const *parts, int n, int axis)
{
    enum { MOST = UINT8_MAX };
    an_tensor *runs[MOST];
    int64_t attr = axis;
    int n_runs = (n + MOST - 1) / MOST;
    if (n_runs > MOST) return an_refuse(g, AN_E_UNSUPPORTED, "%d parts; at most %d are possible", n, MOST * MOST);
    for (int i = 0; i < n_runs; i++) {
        an_emit_args e = {.op = AN_OP_CONCAT, .n_src = AN_MIN(MOST, n - i * MOST), .src = parts + i * MOST};
        e.n_attr = 1;
        e.attr = &attr;
        e.at = g->at;
        runs[i] = an_emit(g, &e);
    }
    return n_runs == 1 ? runs[0] : an_make_concat(g, runs, n_runs, axis);
}

/* ------------------------------------------------------------------------------------------------ matmul, rows, calls */

static an_tensor *emit2(an_op op, an_tensor *a, an_tensor *b, an_dtype dtype, int rank, const int32_t *shape)
{
    if (a->poison) return a;
    an_tensor *src[2] = {a, b};
    an_emit_args e = {.op = op, .dtype = dtype, .rank = rank, .shape = shape, .n_src = 2, .src = src, .at = a->g->at};
    return an_emit(a->g, &e);
}

an_tensor *an_make_matmul(an_tensor *a, an_tensor *b, an_dtype result)
{
    return emit2(AN_OP_MATMUL, a, b, result, 0, NULL);
}

an_tensor *an_make_gather(an_tensor *table, an_tensor *index)
{
    return emit2(AN_OP_GATHER, table, index, AN_F32, 0, NULL);
}

/* `scatter`, a SCATTER_ADD to zeros, changed to add to `onto` instead. */
an_tensor *an_make_scatter_onto(an_tensor *scatter, an_tensor *onto)
{
    if (scatter->poison) return scatter;
    if (onto->poison) return onto;
    an_tensor *src[3] = {an_src(scatter, 0), an_src(scatter, 1), onto};
    an_emit_args e = {.op = AN_OP_SCATTER_ADD,
                      .rank = scatter->rank,
                      .shape = scatter->shape,
                      .n_src = 3,
                      .src = src,
                      .at = onto->g->at};
    return an_emit(onto->g, &e);
}

/* Ids clamped to [0, rows), as GATHER clamps them: SCATTER_ADD takes only ids that are in range. Those of an input are
 * checked before the run. */
an_tensor *an_make_ids(an_tensor *index, int64_t rows)
{
    if (index->poison || rows < 1) return index;
    const an_tensor *base = index;
    while (base->op == AN_OP_RESHAPE || base->op == AN_OP_EXPAND || base->op == AN_OP_PERMUTE) base = an_src(base, 0);
    if (base->op == AN_OP_LEAF && base->attr[0] == AN_LEAF_INPUT) return index;
    an_tensor *low = an_make2(AN_OP_MAXIMUM, index, an_make_num(index, 0));
    return an_make2(AN_OP_MINIMUM, low, an_make_num(low, (double)(rows - 1)));
}

/* index [n...], src [n...,c...] to [rows,c...], f32 (f64 for f64). */
an_tensor *an_make_scatter(an_tensor *index, an_tensor *src, int64_t rows)
{
    if (index->poison) return index;
    if (src->poison) return src;
    int32_t shape[AN_MAX_RANK] = {(int32_t)rows};
    int rank = AN_MAX(1, src->rank - index->rank + 1);
    for (int i = 1; i < rank; i++) shape[i] = src->shape[index->rank + i - 1];
    return emit2(AN_OP_SCATTER_ADD, index, src, AN_F32, rank, shape);
}

an_tensor *an_make_call(an_op op, int n_src, an_tensor *const *src, int n_attr, const int64_t *attr)
{
    if (src[0]->poison) return src[0];
    an_emit_args e = {.op = op, .n_src = n_src, .src = src, .n_attr = n_attr, .attr = attr, .at = src[0]->g->at};
    return an_emit(src[0]->g, &e);
}

an_tensor *an_make_all_gather(an_tensor *a)
{
    int32_t shape[AN_MAX_RANK + 1] = {1};
    if (a->poison) return a;
    const int64_t ranks = a->g->ranks;
    if (ranks > 1) return an_make_call(AN_OP_ALLGATHER, 1, &a, 1, &ranks);
    memcpy(shape + 1, a->shape, (size_t)a->rank * sizeof *shape);
    return a->rank < AN_MAX_RANK ? an_make_reshape(a, a->rank + 1, shape)
                                 : an_refuse(a->g, AN_E_SHAPE, "%d axes and one of the ranks are too many", a->rank);
}

an_tensor *an_make_pick(an_tensor *a, int k)
{
    int64_t attr = k;
    return k == 0 ? a : an_make_call(AN_OP_PICK, 1, &a, 1, &attr);
}
