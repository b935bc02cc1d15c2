/* grad.c: reverse-mode automatic differentiation as one loop over the array, from the loss down.
 *
 * Each node sums the gradient contributions of its readers, then adds its own contributions to its sources:
 *
 *     y = a * b, loss = sum(y):     dy = expand(1)     da += dy * b     db += dy * a
 *
 * Owns:       the loop, the sums of contributions, the rules of elementwise ops (written in ops.def), view ops,
 *             reductions, matmul, gather and scatter, and of composites with a gradient written by hand.
 * Does not:   know windows, attention and matrix calls (grad_call.c) or parameter blocks and optimizers (src/optim).
 *             There are no gradients of gradients.
 * Invariants: a gradient has its value's dtype and shape. Contributions to one tensor are added in the order of its
 *             readers in the array, whatever order they were found in. Slices that tile their source are concatenated,
 *             never padded and added.
 *
 * The first pass follows the array, in which fold and CSE have left out what the caller wrote. When an_grad asks for a
 * tensor that was simplified away, a second pass follows an_tensor.sources_as_built (graph.h, at an_folded, shows an example);
 * its nodes mostly merge with the first's.
 */
#include "graph/grad.h"

#include <stdlib.h>
#include <string.h>

/* In place of a gradient's id. PASSED_BY: of a narrowed copy of a weight, whose gradient went straight to the weight
 * (weight_of): an_grad of the copy asks the second pass. */
enum { NONE = -1, PASSED_BY = -2 };

/* One contribution to output `out` of a node; the list of a node is ascending in `reader`, because readers are visited
 * descending. */
typedef struct contribution {
    int32_t value, reader, out, next;
} contribution;

/* A pass over the array, or, when `as_built`, over the expressions as they were built: nodes and folded tensors. A slot
 * is a node's id, or n and the number of a folded tensor. */
typedef struct pass {
    an_graph *g;
    bool as_built;
    bool *need;    /* [slots]: leads to a floating leaf */
    int32_t *head; /* [slots]: first contribution, NONE */
    int32_t *grad; /* [slots] out: the gradient's id, NONE or PASSED_BY */
    contribution *list;
    int32_t n, n_folded, n_contributions, cap_contributions;
} pass;

static an_tensor *in_slot(const pass *p, int32_t slot)
{
    return slot < p->n ? p->g->node[slot] : p->g->folded[slot - p->n].t;
}

/* The slot of a source as an_tensor.sources_as_built has it. */
static int32_t slot_of(const pass *p, int32_t written)
{
    return written >= 0 ? written : p->n - written - 1;
}

static int32_t source_slot(const pass *p, const an_tensor *t, int i)
{
    return p->as_built && t->sources_as_built != NULL ? slot_of(p, t->sources_as_built[i]) : t->src[i];
}

/* ------------------------------------------------------------------------------------------------ elementwise */

#define AN_NO_GRAD ((an_tensor *)NULL)
#undef NUM
#define NUM(x) an_make_num(g, x)

/* Longer entries of ops.def's gradient columns. An operand of MAXIMUM or MINIMUM that `loses` gets nothing; equal ones
 * get half each. x^0 is 1 for every x, and 0^p is 0 for every p > 0: neither depends on its operand there, though the
 * formulas have factors that are infinite. The angle of (0, 0) is 0 by convention, and so are its slopes. */
#define HALVED(loses, g) WHERE(loses, NUM(0), WHERE(EQ(a, b), MUL(g, NUM(0.5)), g))
#define ATAN2_GRAD(other)                                                                                              \
    WHERE(AND(EQ(a, NUM(0)), EQ(b, NUM(0))), NUM(0), DIV(MUL(g, other), ADD(MUL(a, a), MUL(b, b))))
#define POW_GRAD_BASE     WHERE(EQ(b, NUM(0)), NUM(0), MUL(g, MUL(b, POW(a, SUB(b, NUM(1))))))
#define QUOTIENT          DIV(a, b)
#define FMOD_GRAD_DIVISOR NEG(MUL(g, WHERE(LT(QUOTIENT, NUM(0)), NEG(FLOOR(NEG(QUOTIENT))), FLOOR(QUOTIENT))))
#define POW_GRAD_EXPONENT WHERE(AND(EQ(a, NUM(0)), LE(NUM(0), b)), NUM(0), MUL(g, MUL(y, LOG(a))))

static void grad_elem(an_backward_node *node)
{
    an_tensor *g = node->dy[0], *y = node->n;
    an_tensor *a = an_src(y, 0), *b = y->n_src > 1 ? an_src(y, 1) : NULL, *c = y->n_src > 2 ? an_src(y, 2) : NULL;
    const bool *need = node->need;
    an_tensor **dx = node->dx;
    (void)a, (void)b, (void)c;
    switch (y->op) {
#define AN_ELEM(NAME, arity, domain, result, kernel, reference, grad_a, grad_b, grad_c)                                \
    case AN_OP_##NAME:                                                                                                 \
        if (need[0]) dx[0] = grad_a;                                                                                   \
        if ((arity) > 1 && need[1]) dx[1] = grad_b;                                                                    \
        if ((arity) > 2 && need[2]) dx[2] = grad_c;                                                                    \
        break;
#include "graph/ops.def"
    default: break;
    }
}

#undef NUM
#define NUM(like, v) an_make_num(like, v)

/* ------------------------------------------------------------------------------------------------ view ops */

/* Puts zeros between elements `step` apart along `axis`, then before and after them: the transpose of a slice. */
static an_tensor *unslice_axis(an_tensor *d, int axis, int64_t start, int64_t step, int32_t length)
{
    int32_t n = d->shape[axis];
    if (d->poison) return d;
    if (step > 1 && n > 0) {
        int32_t split[AN_MAX_RANK], merged[AN_MAX_RANK];
        an_tensor *wide = an_make_rows(d, axis); /* [O,n,I] */
        if (wide->poison) return wide;
        memcpy(split, (int32_t[]){wide->shape[0], n, 1, wide->shape[2]}, 4 * sizeof *split);
        wide = an_make_pad(an_make_reshape(wide, 4, split), 2, 0, step - 1, 0); /* [O,n,step,I] */
        memcpy(merged, d->shape, sizeof merged);
        merged[axis] = (int32_t)(n * step);
        d = an_make_reshape(wide, d->rank, merged);
        if (!d->poison)
            d = an_make_slice(d, axis, 0, (n - 1) * step + 1, 1); /* the last element has no zeros after it */
        n = (int32_t)((n - 1) * step + 1);
    }
    return d->poison ? d : an_make_pad(d, axis, start, length - start - n, 0);
}

static an_tensor *unslice(an_tensor *d, const an_tensor *slice)
{
    const an_tensor *x = an_src(slice, 0);
    for (int i = 0; i < x->rank && !d->poison; i++)
        if (slice->shape[i] != x->shape[i])
            d = unslice_axis(d, i, slice->attr[2 * i], slice->attr[2 * i + 1], x->shape[i]);
    return d;
}

static an_tensor *grad_pad(an_tensor *d, const an_tensor *pad)
{
    const an_tensor *x = an_src(pad, 0);
    for (int i = 0; i < x->rank && !d->poison; i++)
        if (x->shape[i] != pad->shape[i]) d = an_make_slice(d, i, pad->attr[2 * i], x->shape[i], 1);
    return d;
}

static an_tensor *grad_expand(an_tensor *d, const an_tensor *x)
{
    uint32_t mask = 0;
    for (int i = 0; i < x->rank; i++)
        if (x->shape[i] != d->shape[i]) mask |= 1u << i;
    return an_make_reduce(AN_OP_SUM, d, mask, true);
}

static an_tensor *grad_permute(an_tensor *d, const an_tensor *n)
{
    int back[AN_MAX_RANK];
    for (int i = 0; i < n->rank; i++) back[n->attr[i]] = i;
    return an_make_permute(d, back);
}

static void grad_concat(an_backward_node *b)
{
    int axis = (int)b->n->attr[0];
    int64_t at = 0;
    for (int i = 0; i < b->n->n_src; i++) {
        int32_t length = an_src(b->n, i)->shape[axis];
        if (b->need[i]) b->dx[i] = an_make_slice(b->dy[0], axis, at, length, 1);
        at += length;
    }
}

/* A slice's gradient is handed on without padding: sum_contributions pads it, or concatenates it with those of other slices,
 * when it has all contributions to the tensor that was sliced. */
static void grad_move(an_backward_node *b)
{
    an_tensor *d = b->dy[0], *n = b->n, *x = an_src(n, 0);
    switch (n->op) {
    case AN_OP_RESHAPE: b->dx[0] = an_make_like(d, x); break;
    case AN_OP_PERMUTE: b->dx[0] = grad_permute(d, n); break;
    case AN_OP_EXPAND: b->dx[0] = grad_expand(d, x); break;
    case AN_OP_SLICE: b->dx[0] = d; break;
    case AN_OP_PAD: b->dx[0] = grad_pad(d, n); break;
    case AN_OP_FLIP: b->dx[0] = an_make_flip(d, (uint32_t)n->attr[0]); break;
    case AN_OP_CONCAT: grad_concat(b); break;
    default: break; /* DETACH */
    }
}

/* -------------------------------------------------------------------------------------- reductions, matmul, rows */

/* Shared equally by all elements of x that equal their maximum `top`, over the axes that `top` and its gradient d keep
 * with length 1. A NaN equals nothing: there the shares are 0/0, which is NaN. Counted in f32, whatever the dtype. */
static an_tensor *grad_max(an_tensor *d, an_tensor *x, an_tensor *top)
{
    if (d->poison || top->poison) return d->poison ? d : top;
    uint32_t mask = 0;
    for (int i = 0; i < x->rank; i++)
        if (x->shape[i] != top->shape[i]) mask |= 1u << i;
    an_tensor *hit = EQ(x, top), *wide = an_wide(d);
    an_tensor *count = an_make_reduce(AN_OP_SUM, CAST(hit, (an_dtype)wide->dtype), mask, true);
    return CAST(DIV(WHERE(hit, wide, NUM(wide, 0)), count), (an_dtype)x->dtype);
}

static an_tensor *transposed(an_tensor *a)
{
    return an_make_swap(a, a->rank - 2, a->rank - 1);
}

/* True for a PERMUTE that swaps the last two axes: a transposed operand. */
static bool is_transpose(const an_tensor *t)
{
    if (t->op != AN_OP_PERMUTE) return false;
    int last = t->rank - 1;
    for (int i = 0; i < last - 1; i++)
        if (t->attr[i] != i) return false;
    return t->attr[last] == last - 1 && t->attr[last - 1] == last;
}

/* A parameter in 16 bits: what contributes to its gradient in f32 is added in f32, and the sum rounded once. */
static bool is_narrow_leaf(const an_tensor *t)
{
    return t->op == AN_OP_LEAF && t->dtype == AN_BF16;
}

/* The f32 leaf, or slice of one, that a matmul operand is a narrowed copy of, perhaps transposed; NULL: the operand is
 * anything else. The weight's gradient is then computed in f32 and added to the leaf's: rounding it to the copy's dtype
 * would only lose bits. The matmul of a chunk (`chunked`) adds to the leaf even where only a transpose lies between, so
 * that a library accumulates the chunks' sum as it stores, in f32 for a narrow leaf too. The nodes in between are marked
 * as passed by. */
static an_tensor *weight_of(an_graph *g, an_tensor *operand, bool chunked)
{
    an_tensor *below = is_transpose(operand) ? an_src(operand, 0) : operand;
    an_tensor *w = below->op == AN_OP_CAST ? an_src(below, 0) : below;
    const bool part = w != below && w->op == AN_OP_SLICE && an_src(w, 0)->op == AN_OP_LEAF;
    const bool narrow = chunked && w == below && is_narrow_leaf(w);
    if ((w->op != AN_OP_LEAF && !part) || (w->dtype != AN_F32 && !narrow) || (w == below && !chunked)) return NULL;
    if (an_dtype_bytes((an_dtype)below->dtype) > an_dtype_bytes(AN_F32)) return NULL; /* a widened copy */
    if (operand != w) g->grad[operand->id] = PASSED_BY;
    if (below != w) g->grad[below->id] = PASSED_BY;
    return w;
}

/* da = d b^T, db = a^T d. The gradient of a transposed operand is built transposed too, so that the two transposes
 * cancel: for y = x w^T, dw = d^T x. */
static void grad_matmul(an_backward_node *n)
{
    an_tensor *a = an_src(n->n, 0), *b = an_src(n->n, 1);
    an_dtype t = (an_dtype)a->dtype;
    an_tensor *d = CAST(n->dy[0], t);
    for (int i = 0; i < 2; i++) {
        if (!n->need[i]) continue;
        an_tensor *operand = i ? b : a, *weight = n->as_built ? NULL : weight_of(n->g, operand, n->n->deferred), *dx;
        const bool swapped = is_transpose(operand);
        const an_dtype as = weight ? AN_F32 : t;
        if (swapped)
            dx = i ? an_make_matmul(transposed(d), a, as) : an_make_matmul(b, transposed(d), as);
        else
            dx = i ? an_make_matmul(transposed(a), d, as) : an_make_matmul(d, transposed(b), as);
        n->dx[i] = swapped && !weight ? transposed(dx) : dx;
        if (weight) n->to[i] = weight->id;
    }
}

static void grad_index(an_backward_node *b)
{
    an_tensor *d = b->dy[0], *n = b->n;
    if (n->op == AN_OP_GATHER && b->need[0]) {
        an_tensor *table = an_src(n, 0);
        b->dx[0] = an_make_scatter(an_make_ids(an_src(n, 1), table->shape[0]), d, table->shape[0]);
        if (!is_narrow_leaf(table)) b->dx[0] = CAST(b->dx[0], (an_dtype)table->dtype);
    }
    if (n->op == AN_OP_SCATTER_ADD && b->need[1]) {
        an_tensor *src = an_src(n, 1);
        b->dx[1] = CAST(an_make_gather(d, an_src(n, 0)), (an_dtype)src->dtype);
    }
}

/* ------------------------------------------------------------------------------------------------ composites by hand */

static an_tensor *row_mean(an_tensor *x)
{
    an_tensor *sum = SUM3(x);
    return DIV(sum, NUM(sum, x->poison ? 1 : x->shape[1]));
}

/* (d - mean(d) - n mean(d n)) / deviation, where 1 / deviation is aux. A gain that is the same along the normalized axis, as batch
 * norm's is, is taken out of the means: what is left in them are the sums that are the gain's and the bias's gradients. */
static an_tensor *grad_standardized(an_tensor *n, an_tensor *d, an_tensor *aux)
{
    for (int s = 0; s < 2 && d->op == AN_OP_MUL; s++) {
        const an_tensor *gain = an_src(d, s);
        if (gain->op != AN_OP_EXPAND || an_src(gain, 0)->rank != 3 || an_src(gain, 0)->shape[1] != 1) continue;
        d = an_src(d, 1 - s);
        aux = MUL(aux, an_src(gain, 0));
        break;
    }
    return MUL(SUB(SUB(d, row_mean(d)), MUL(n, row_mean(MUL(d, n)))), aux);
}

/* The rules of graph.h; `d` is the gradient of n. */
static an_tensor *grad_rule(an_graph *g, const an_rule *rule, an_tensor *n, an_tensor *d)
{
    an_tensor *x = an_node(g, rule->x), *aux = rule->aux >= 0 ? an_node(g, rule->aux) : NULL;
    switch (rule->kind) {
    case AN_RULE_LOGSUMEXP: return MUL(EXP(SUB(x, n)), d);
    case AN_RULE_SOFTMAX: return MUL(n, SUB(d, SUM3(MUL(d, n))));
    case AN_RULE_LAYER_NORM: return grad_standardized(n, d, aux);
    case AN_RULE_RMS_NORM: return MUL(SUB(d, MUL(n, row_mean(MUL(d, n)))), aux);
    case AN_RULE_MAX: { /* n and d have the reduced axes in whatever shape the last part left them */
        int32_t kept[AN_MAX_RANK];
        for (int i = 0; i < x->rank; i++) kept[i] = rule->axes >> i & 1 ? 1 : x->shape[i];
        an_tensor *top = an_make_reshape(n, x->rank, kept);
        return grad_max(an_make_reshape(d, x->rank, kept), x, top);
    }
    case AN_RULE_GELU: { /* phi(x) = exp(-x^2/2) / sqrt(2 pi) */
        an_tensor *phi = MUL(EXP(MUL(MUL(x, x), NUM(x, -0.5))), NUM(x, 0.39894228040143268));
        return MUL(d, ADD(aux, MUL(x, phi)));
    }
    }
    return an_poison_of(g);
}

/* ------------------------------------------------------------------------------------------------ sums */

static an_tensor *add_contributions(an_tensor *a, an_tensor *b);

/* Contributions of the chunks of a chunked loss are added as they come: the next chunk's GEMM adds to the sum, so that
 * only one partial sum is live. */
static bool add_to_chunks(pass *p, int32_t to, int32_t out, int32_t reader, const an_tensor *value)
{
    if (p->head[to] == NONE || !in_slot(p, reader)->deferred) return false;
    contribution *last = &p->list[p->head[to]];
    const an_tensor *from = in_slot(p, last->reader);
    if (last->out != out || !from->deferred || from->op != AN_OP_MATMUL) return false;
    last->value = add_contributions(an_node(p->g, last->value), an_node(p->g, value->id))->id;
    last->reader = reader;
    return true;
}

/* Adds `value` to what output `out` of slot `to` gets from slot `reader`. False: no memory, or poison. */
static bool contribute(pass *p, int32_t to, int32_t out, int32_t reader, const an_tensor *value)
{
    if (add_to_chunks(p, to, out, reader, value)) return an_node(p->g, p->list[p->head[to]].value)->poison == 0;
    if (p->n_contributions == p->cap_contributions) {
        int32_t cap = p->cap_contributions ? p->cap_contributions * 2 : 2 * p->n + 64;
        contribution *more = AN_NEW_ARRAY(&p->g->arena, contribution, cap);
        if (more == NULL) return false;
        if (p->n_contributions > 0) memcpy(more, p->list, (size_t)p->n_contributions * sizeof *more);
        p->list = more;
        p->cap_contributions = cap;
    }
    p->list[p->n_contributions] = (contribution){value->id, reader, out, p->head[to]};
    p->head[to] = p->n_contributions++;
    return true;
}

/* Axis along which `s` is a contiguous part of its source; NONE for any other slice. */
static int tile_axis(const an_tensor *s)
{
    const an_tensor *x = an_src(s, 0);
    int axis = NONE;
    for (int i = 0; i < x->rank; i++) {
        if (s->shape[i] == x->shape[i]) continue;
        if (axis != NONE || s->attr[2 * i + 1] != 1) return NONE;
        axis = i;
    }
    return axis;
}

/* The SLICE that a contribution to `slot` came from, whose value still has the slice's shape; NULL for all others. */
static const an_tensor *slice_of(const pass *p, const contribution *from, int32_t slot)
{
    const an_tensor *reader = in_slot(p, from->reader);
    return reader->op == AN_OP_SLICE && from->reader != slot ? reader : NULL;
}

/* A slice's gradient: where along its axis it begins. */
typedef struct slice_part {
    int32_t start, length, value;
} slice_part;

static int by_start(const void *x, const void *y)
{
    const slice_part *a = x, *b = y;
    return a->start != b->start ? (a->start < b->start ? -1 : 1) : (a->value > b->value) - (a->value < b->value);
}

/* The slices of the node in `slot`, and in *axis the one axis along which all of them are contiguous parts, else NONE. */
static int32_t count_slices(const pass *p, int32_t slot, int *axis)
{
    int32_t count = 0;
    *axis = NONE;
    for (int32_t i = p->head[slot]; i != NONE; i = p->list[i].next) {
        const an_tensor *s = slice_of(p, &p->list[i], slot);
        if (s == NULL) continue;
        const int own = tile_axis(s);
        if (own == NONE || (count > 0 && own != *axis)) return *axis = NONE;
        *axis = own;
        count++;
    }
    return count;
}

/* Parts between the slices, of zeros. */
static an_tensor *zeros_of(an_graph *g, const an_tensor *like, int axis, int32_t length)
{
    int32_t shape[AN_MAX_RANK];
    memcpy(shape, like->shape, (size_t)like->rank * sizeof shape[0]);
    shape[axis] = length;
    return an_make_full(g, (an_dtype)like->dtype, like->rank, shape, 0, 0);
}

/* The gradients of slices that lie in one row along one axis, as one CONCAT; NULL when they overlap, or have gaps and are few. For a, b, c =
 * split(x) that is dx = concat(da, db, dc), without padding or adding: sums of padded parts would take the square of their number. */
static an_tensor *concat_slices(pass *p, int32_t slot)
{
    enum { FEW = 8 }; /* sums of fewer padded parts are as good as zeros in between */
    const an_tensor *n = in_slot(p, slot);
    int axis;
    const int32_t count = count_slices(p, slot, &axis);
    if (count < 2 || count > UINT8_MAX * UINT8_MAX / 2 || axis == NONE) return NULL;
    slice_part *s = AN_NEW_ARRAY(&p->g->arena, slice_part, count);
    an_tensor **part = AN_NEW_ARRAY(&p->g->arena, an_tensor *, 2 * count + 1);
    if (!s || !part) return an_poison_of(p->g);
    int32_t k = 0, at = 0;
    for (int32_t i = p->head[slot]; i != NONE; i = p->list[i].next) {
        const an_tensor *one = slice_of(p, &p->list[i], slot);
        if (one != NULL) s[k++] = (slice_part){(int32_t)one->attr[2 * axis], one->shape[axis], p->list[i].value};
    }
    qsort(s, (size_t)count, sizeof *s, by_start);
    bool gaps = s[count - 1].start + s[count - 1].length < n->shape[axis];
    for (k = 0; k < count; at = s[k].start + s[k].length, k++) {
        if (s[k].start < at || s[k].length == 0) return NULL;
        gaps |= s[k].start > at;
    }
    if (gaps && count < FEW) return NULL;
    const an_tensor *like = an_node(p->g, s[0].value); /* of a narrow leaf the parts are wider than it */
    int n_parts = 0;
    for (k = 0, at = 0; k < count; at = s[k].start + s[k].length, k++) {
        if (s[k].start > at) part[n_parts++] = zeros_of(p->g, like, axis, s[k].start - at);
        part[n_parts++] = an_node(p->g, s[k].value);
    }
    if (at < n->shape[axis]) part[n_parts++] = zeros_of(p->g, like, axis, n->shape[axis] - at);
    return an_make_concat(p->g, part, n_parts, axis);
}

/* A scattered gradient is added to the other one row by row: an embedding tied to the head needs no second table. */
static an_tensor *add_contributions(an_tensor *a, an_tensor *b)
{
    if (a->dtype != b->dtype)
        return ADD(CAST(a, AN_F32), CAST(b, AN_F32)); /* of a narrow leaf; `a` stays narrow until then */
    if (a->op == AN_OP_SCATTER_ADD && a->n_src == 2 && !b->poison) return an_make_scatter_onto(a, b);
    if (b->op == AN_OP_SCATTER_ADD && b->n_src == 2 && !a->poison) return an_make_scatter_onto(b, a);
    return ADD(a, b);
}

/* A matrix that a recurrent layer reads at each step gets a small product from each: LEAST_PRODUCTS of them or more,
 * over at most WIDEST_ROWS rows each. */
enum { LEAST_PRODUCTS = 8, MOST_PRODUCTS = 128, WIDEST_ROWS = 512 };
/* Upper bound on the elements of a stacked operand. The chunks of a loss over a large vocabulary match the pattern too,
 * but are computed one by one to save memory: concatenating them would undo that. */
enum { MOST_STACKED = 1 << 26 };

/* The product that contribution `i` is, perhaps transposed; NULL: it is none, or one of many rows. */
static an_tensor *product_of(const pass *p, int32_t i, bool *swapped)
{
    an_tensor *t = an_node(p->g, p->list[i].value);
    *swapped = is_transpose(t);
    if (*swapped) t = an_src(t, 0);
    return t->op == AN_OP_MATMUL && t->rank == 2 && an_src(t, 1)->shape[0] <= WIDEST_ROWS ? t : NULL;
}

static bool same_operands(const an_tensor *a, const an_tensor *b)
{
    for (int k = 0; k < 2; k++) {
        const an_tensor *x = an_src(a, k), *y = an_src(b, k);
        if (x->dtype != y->dtype || memcmp(x->shape, y->shape, 2 * sizeof x->shape[0]) != 0) return false;
    }
    return a->dtype == b->dtype;
}

/* [r,c] each becomes [1,r,c], a step's part of a layer's result. */
static void as_steps(an_tensor **x, int n)
{
    for (int i = 0; i < n; i++) x[i] = an_make_reshape(x[i], 3, (int32_t[]){1, x[i]->shape[0], x[i]->shape[1]});
}

/* [1,r,c] each, one below the other: [n r,c]. */
static an_tensor *stacked(an_graph *g, an_tensor **x, int n)
{
    return an_make_reshape(an_make_concat(g, x, n, 0), 2, (int32_t[]){n * x[0]->shape[1], x[0]->shape[2]});
}

/* Whether these are stacked already, the last first: the steps of a layer that runs backwards. */
static bool is_stacked_backwards(const an_graph *g, an_tensor *const *x, int n)
{
    for (int32_t id = g->n - 1; id >= 0; id--) {
        const an_tensor *t = g->node[id];
        bool same = t->op == AN_OP_CONCAT && t->n_src == n && t->attr[0] == 0;
        for (int i = 0; i < n && same; i++) same = t->src[i] == x[n - 1 - i]->id;
        if (same) return true;
    }
    return false;
}

static void reverse(an_tensor **x, int n)
{
    for (int i = 0; i < n / 2; i++) {
        an_tensor *t = x[i];
        x[i] = x[n - 1 - i];
        x[n - 1 - i] = t;
    }
}

/* a_1 b_1 + a_2 b_2 + ... = [a_1 a_2 ...] [b_1; b_2; ...]: one long product instead of many short ones and their sums. From
 * contribution *at on, which moves behind those that were taken; NULL: fewer than LEAST_PRODUCTS follow. */
static an_tensor *join_products(pass *p, int32_t *at, int out)
{
    bool swapped, other;
    an_tensor *a[MOST_PRODUCTS], *b[MOST_PRODUCTS], *first = product_of(p, *at, &swapped);
    int n = 0;
    int32_t i = *at;
    for (; first != NULL && i != NONE && n < MOST_PRODUCTS; i = p->list[i].next) {
        an_tensor *t = product_of(p, i, &other);
        if (p->list[i].out != out || t == NULL || other != swapped || !same_operands(first, t)) break;
        if ((n + 1) * AN_MAX(an_src(t, 0)->numel, an_src(t, 1)->numel) > MOST_STACKED) break;
        a[n] = an_src(t, 0);
        b[n++] = an_src(t, 1);
    }
    if (n < LEAST_PRODUCTS) return NULL;
    for (int k = 0; k < n; k++) a[k] = transposed(a[k]);
    *at = i;
    as_steps(a, n);
    as_steps(b, n);
    if (is_stacked_backwards(p->g, a, n) || is_stacked_backwards(p->g, b, n)) {
        reverse(a, n);
        reverse(b, n);
    }
    an_tensor *right = stacked(p->g, b, n);
    an_tensor *y = an_make_matmul(transposed(stacked(p->g, a, n)), right, (an_dtype)first->dtype);
    return swapped ? transposed(y) : y;
}

/* The gradient of output `out` in `slot`: its contributions added in the order of their readers; NULL: there is none. */
static an_tensor *sum_contributions(pass *p, int32_t slot, int out)
{
    an_tensor *sum = NULL, *whole = out == 0 ? concat_slices(p, slot) : NULL;
    bool whole_used = false;
    for (int32_t i = p->head[slot], next; i != NONE; i = next) {
        const contribution *from = &p->list[i];
        an_tensor *joined = join_products(p, &i, out);
        if (joined != NULL) {
            sum = sum == NULL ? joined : add_contributions(sum, joined);
            next = i;
            continue;
        }
        next = from->next;
        if (from->out != out) continue;
        an_tensor *value = an_node(p->g, from->value);
        const an_tensor *slice = slice_of(p, from, slot);
        if (slice != NULL) {
            if (whole != NULL && whole_used) continue;
            value = whole != NULL ? whole : unslice(value, slice);
            whole_used = true;
        }
        sum = sum == NULL ? value : add_contributions(sum, value);
    }
    return sum;
}

/* ------------------------------------------------------------------------------------------------ the loop */

/* What leads to a floating leaf: the loss' gradient is of no use to anything else. */
static void mark_slot(pass *p, int32_t slot)
{
    const an_tensor *t = in_slot(p, slot);
    bool need = t->op == AN_OP_LEAF;
    if (an_ops[t->op].has_grad)
        for (int i = 0; i < t->n_src; i++) need |= p->need[source_slot(p, t, i)];
    p->need[slot] = need && (an_dtype_is_float((an_dtype)t->dtype) || an_ops[t->op].outputs > 1);
}

static void mark_need(pass *p)
{
    int32_t folded = 0;
    for (int32_t id = 0; id < p->n; id++) {
        while (folded < p->n_folded && p->g->folded[folded].before <= id) mark_slot(p, p->n + folded++);
        mark_slot(p, id);
    }
    while (folded < p->n_folded) mark_slot(p, p->n + folded++);
}

static void node_rule(an_backward_node *b)
{
    an_tensor *n = b->n, *d = b->dy[0];
    if (an_grad_call(b)) return;
    switch (an_ops[n->op].cls) {
    case AN_CLS_ELEM: grad_elem(b); break;
    case AN_CLS_MOVE: grad_move(b); break;
    case AN_CLS_CAST:
        b->dx[0] = is_narrow_leaf(an_src(n, 0)) && n->dtype == AN_F32 ? d : CAST(d, (an_dtype)an_src(n, 0)->dtype);
        break;
    case AN_CLS_REDUCE:
        b->dx[0] = n->op == AN_OP_SUM ? an_make_expand(d, 3, an_src(n, 0)->shape) : grad_max(d, an_src(n, 0), n);
        break;
    case AN_CLS_MATMUL: grad_matmul(b); break;
    case AN_CLS_INDEX: grad_index(b); break;
    case AN_CLS_COLLECTIVE: b->dx[0] = an_make_call(AN_OP_ALLREDUCE, 1, &d, n->n_attr, n->attr); break;
    default: break;
    }
}

/* Sums the contributions to `slot` and passes the gradient on to its sources. */
static bool visit(pass *p, int32_t slot)
{
    an_graph *g = p->g;
    an_backward_node b = {.g = g, .n = in_slot(p, slot), .as_built = p->as_built};
    an_tensor *n = b.n, *dx[UINT8_MAX];
    bool need[UINT8_MAX], any = false;
    int32_t to[UINT8_MAX];
    if (p->head[slot] == NONE) return true;
    g->scope = n->scope; /* a gradient belongs where its value does */
    g->deferred = n->deferred;
    g->at = n->at;
    for (int k = 0; k < an_ops[n->op].outputs; k++) {
        b.dy[k] = sum_contributions(p, slot, k);
        if (b.dy[k] != NULL && is_narrow_leaf(n)) b.dy[k] = CAST(b.dy[k], AN_BF16);
        if (b.dy[k] != NULL && b.dy[k]->poison) return false;
        any |= b.dy[k] != NULL;
    }
    if (p->grad[slot] != PASSED_BY) p->grad[slot] = b.dy[0] != NULL ? b.dy[0]->id : NONE;
    if (!any) return true;
    if (n->rule != 0) {
        const an_rule rule = g->rules[n->rule - 1];
        const int32_t x = p->as_built ? slot_of(p, rule.x_as_built) : rule.x;
        if (!p->need[x]) return true;
        an_tensor *d = grad_rule(g, &rule, n, b.dy[0]);
        return !d->poison && contribute(p, x, 0, slot, d);
    }
    for (int i = 0; i < n->n_src; i++) need[i] = p->need[to[i] = source_slot(p, n, i)];
    if (n->op == AN_OP_PICK) return !need[0] || contribute(p, to[0], (int32_t)n->attr[0], slot, b.dy[0]);
    b.need = need;
    b.dx = dx;
    b.to = to;
    memset(dx, 0, (size_t)n->n_src * sizeof *dx);
    if (an_ops[n->op].has_grad) node_rule(&b);
    for (int i = n->n_src - 1; i >= 0; i--) { /* descending, as the lists are prepended to */
        if (b.dx[i] == NULL || !need[i]) continue;
        if (b.dx[i]->poison || !contribute(p, to[i], 0, slot, b.dx[i])) return false;
    }
    return true;
}

/* Every slot after all that read it. */
static bool visit_all(pass *p)
{
    int32_t folded = p->n_folded - 1;
    for (int32_t id = p->n - 1; id >= 0; id--) {
        for (; folded >= 0 && p->g->folded[folded].before > id; folded--)
            if (p->need[p->n + folded] && !visit(p, p->n + folded)) return false;
        if (p->need[id] && !visit(p, id)) return false;
    }
    return true;
}

/* One backward pass from slot `loss` over p's nodes and folded tensors, into p->grad. */
static an_status run(pass *p, const an_tensor *loss, int32_t slot)
{
    an_graph *g = p->g;
    const int32_t slots = p->n + p->n_folded, scope = g->scope;
    const char *at = g->at;
    p->need = AN_NEW_ARRAY(&g->arena, bool, slots);
    p->head = AN_NEW_ARRAY(&g->arena, int32_t, slots);
    p->grad = AN_NEW_ARRAY(&g->arena, int32_t, slots);
    if (p->need == NULL || p->head == NULL || p->grad == NULL)
        return an_fail_nomem(g->err, "graph: gradients", (size_t)slots * sizeof *p->head);
    for (int32_t i = 0; i < slots; i++) p->head[i] = p->grad[i] = NONE;
    if (!p->as_built) { /* weight_of marks what it passes by */
        g->grad = p->grad;
        g->n_grad = p->n;
    }
    g->no_folded = true;
    g->phase = AN_PHASE_BACKWARD;
    mark_need(p);
    an_tensor *one = an_make_full(g, (an_dtype)loss->dtype, loss->rank, loss->shape, 1, 0);
    const bool fine = !one->poison && contribute(p, slot, 0, slot, one) && visit_all(p);
    g->no_folded = false;
    g->phase = AN_PHASE_UPDATE;
    g->scope = scope;
    g->deferred = false;
    g->at = at;
    if (fine) return AN_OK;
    an_fail_nomem(g->err, "graph: gradients",
                  sizeof(contribution)); /* keeps an error that a rule has recorded before */
    return g->err->code;
}

an_status an_graph_backward(an_graph *g, an_tensor *loss)
{
    char text[8 * 12 + 3];
    if (!an_enter(g->at, "an_backward", 1, 1, &loss)) return g->err->code != AN_OK ? g->err->code : AN_E_USAGE;
    if (loss->g != g) return an_fail(g->err, AN_E_CONTEXT, "an_backward: the loss belongs to another context");
    if (loss->numel != 1 || !an_dtype_is_float((an_dtype)loss->dtype)) {
        an_refuse(g, AN_E_SHAPE, "the loss is %s %s; one floating number is needed",
                  an_dtype_name((an_dtype)loss->dtype), an_shape_text(loss->rank, loss->shape, text, sizeof text));
        return AN_E_SHAPE;
    }
    g->loss = loss;
    g->n_forward = g->n;
    g->n_forward_folded = g->n_folded;
    g->grad_as_built = NULL;
    pass p = {.g = g, .n = loss->id + 1};
    return run(&p, loss, loss->id);
}

/* Gradients of what the array does not show: see an_folded. */
static bool run_as_built(an_graph *g)
{
    if (g->grad_as_built != NULL) return true;
    pass p = {.g = g, .as_built = true, .n = g->n_forward, .n_folded = g->n_forward_folded};
    const int32_t loss = g->loss->folded != 0 ? p.n + g->loss->folded - 1 : g->loss->id;
    if (run(&p, g->loss, loss) != AN_OK) return false;
    g->grad_as_built = p.grad;
    return true;
}

an_tensor *an_graph_grad(an_graph *g, const an_tensor *t)
{
    if (t == NULL || t->poison || t->g != g || t->leaf_epoch != g->epoch || g->loss == NULL) return NULL;
    const int32_t id = t->id >= 0 ? t->id : t->leaf_id;
    int32_t grad = id < g->n_grad ? g->grad[id] : NONE;
    const an_tensor *node = t->id >= 0 ? t : g->node[id];
    const bool hidden = t->folded != 0 || grad == PASSED_BY ||
                        (node->has_folded ? node->op != AN_OP_LEAF || grad == NONE : g->has_empty && grad == NONE);
    if (hidden && (t->folded != 0 ? t->folded <= g->n_forward_folded : id < g->n_forward)) {
        if (!run_as_built(g)) return g->poison;
        grad = g->grad_as_built[t->folded != 0 ? g->n_forward + t->folded - 1 : id];
    }
    return grad == NONE ? NULL : g->node[grad];
}
