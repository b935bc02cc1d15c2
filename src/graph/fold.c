/* fold.c: simplification at emission: before a node is appended, is there already one that it equals, or a simpler one?
 * The method is that of LuaJIT's fold engine: never build what would be deleted later.
 *
 * Owns:       local identities of one node and its sources.
 * Does not:   look further than a source's source, or change a bit: an identity that fails for -0, NaN or a rounding is
 *             left out (x + 0 is not x for x = -0, x * 0 is not 0, x - x is not 0 for floats).
 * Invariants: a CONST under view ops is always CONST, RESHAPE(CONST) or EXPAND(RESHAPE(CONST)). Every rewrite makes the
 *             expression shorter, so rewriting ends.
 */
#include "graph/fold.h"

#include <math.h>
#include <string.h>

typedef struct fold_ctx {
    an_graph *g;
    const an_emit_args *e;
    an_tensor *a, *b, *c; /* sources; NULL where absent */
    an_dtype dtype;
    int rank;
    const int32_t *shape;
    bool const_a, const_b;
    double xa, xb;
    int64_t ia, ib;
} fold_ctx;

static an_tensor *full(const fold_ctx *f, double x, int64_t i)
{
    return an_make_full(f->g, f->dtype, f->rank, f->shape, x, i);
}

static bool is_num(bool constant, an_dtype t, double held, int64_t held_i, double x)
{
    return constant && (an_dtype_is_float(t) ? held == x && signbit(held) == signbit(x) : (double)held_i == x);
}

/* Is operand a (b) exactly the number x? Zeros are told apart by their sign. */
static bool a_is(const fold_ctx *f, double x)
{
    return is_num(f->const_a, (an_dtype)f->a->dtype, f->xa, f->ia, x);
}
static bool b_is(const fold_ctx *f, double x)
{
    return is_num(f->const_b, (an_dtype)f->b->dtype, f->xb, f->ib, x);
}

static bool is_op(const an_tensor *t, an_op op)
{
    return t->op == op;
}

/* ------------------------------------------------------------------------------------------------ elementwise */

static an_tensor *fold_unary(const fold_ctx *f)
{
    an_tensor *a = f->a;
    switch (f->e->op) {
    case AN_OP_NEG: return is_op(a, AN_OP_NEG) ? an_src(a, 0) : NULL;
    case AN_OP_NOT: return is_op(a, AN_OP_NOT) ? an_src(a, 0) : NULL;
    case AN_OP_ABS: /* of an integer: the least one's negative wraps, as NEG does and -(a) in C may not */
        if (!an_dtype_is_float((an_dtype)a->dtype)) return WHERE(LT(a, NUM(a, 0)), NEG(a), a);
        /* not |a| of an |a|: the outer slope at 0 is 0, which a gradient of the inner one must see */
        return is_op(a, AN_OP_NEG) ? ABS(an_src(a, 0)) : NULL;
    default: return NULL;
    }
}

/* x + -0 is x for every x; x + +0 is not, for x = -0. */
static an_tensor *fold_add(const fold_ctx *f)
{
    double none = an_dtype_is_float(f->dtype) ? -0.0 : 0.0;
    if (b_is(f, none)) return f->a;
    if (a_is(f, none)) return f->b;
    if (is_op(f->b, AN_OP_NEG)) return SUB(f->a, an_src(f->b, 0));
    if (is_op(f->a, AN_OP_NEG)) return SUB(f->b, an_src(f->a, 0));
    return NULL;
}

static an_tensor *fold_sub(const fold_ctx *f)
{
    if (b_is(f, 0.0)) return f->a;
    if (an_dtype_is_float(f->dtype) && a_is(f, -0.0)) return NEG(f->b);
    if (f->a == f->b && !an_dtype_is_float(f->dtype)) return full(f, 0, 0);
    return is_op(f->b, AN_OP_NEG) ? ADD(f->a, an_src(f->b, 0)) : NULL;
}

static an_tensor *mul_by(const fold_ctx *f, an_tensor *x, bool constant, double held, int64_t held_i)
{
    if (!constant) return NULL;
    if (is_num(true, f->dtype, held, held_i, 1)) return x;
    if (!an_dtype_is_float(f->dtype)) return held_i == 0 ? full(f, 0, 0) : NULL;
    if (held == -1) return NEG(x);
    return is_op(x, AN_OP_NEG) ? MUL(an_src(x, 0), full(f, -held, 0)) : NULL;
}

static an_tensor *fold_mul(const fold_ctx *f)
{
    an_tensor *y = mul_by(f, f->a, f->const_b, f->xb, f->ib);
    if (y == NULL) y = mul_by(f, f->b, f->const_a, f->xa, f->ia);
    if (y == NULL && is_op(f->a, AN_OP_NEG) && is_op(f->b, AN_OP_NEG)) y = MUL(an_src(f->a, 0), an_src(f->b, 0));
    return y;
}

/* Division by a power of two is multiplication by another: both are one rounding of the same number. */
static an_tensor *fold_div(const fold_ctx *f)
{
    int exponent;
    if (b_is(f, 1)) return f->a;
    if (b_is(f, -1)) return NEG(f->a);
    if (!f->const_b || f->xb == 0 || !isfinite(f->xb) || fabs(frexp(f->xb, &exponent)) != 0.5) return NULL;
    if (exponent < -124 || exponent > 126 || an_round_to(f->dtype, 1 / f->xb) != 1 / f->xb) return NULL;
    return MUL(f->a, full(f, 1 / f->xb, 0));
}

/* AND and OR of bools with a known one; any with itself. */
static an_tensor *fold_bits(const fold_ctx *f)
{
    if (f->a == f->b) return f->e->op == AN_OP_XOR ? full(f, 0, 0) : f->a;
    if (f->const_b && f->ib == 0) return f->e->op == AN_OP_AND ? f->b : f->a;
    if (f->const_a && f->ia == 0) return f->e->op == AN_OP_AND ? f->a : f->b;
    if (f->dtype != AN_BOOL || f->e->op == AN_OP_XOR) return NULL;
    if (f->const_b) return f->e->op == AN_OP_AND ? f->a : f->b;
    if (f->const_a) return f->e->op == AN_OP_AND ? f->b : f->a;
    return NULL;
}

/* x compared with itself; NaN differs from itself and is not below anything. */
static an_tensor *fold_compare(const fold_ctx *f)
{
    if (f->a != f->b) return NULL;
    if (f->e->op == AN_OP_LT) return full(f, 0, 0);
    if (an_dtype_is_float((an_dtype)f->a->dtype)) return NULL;
    return full(f, 0, f->e->op != AN_OP_NE);
}

static an_tensor *fold_where(const fold_ctx *f)
{
    if (f->const_a) return f->ia ? f->b : f->c;
    if (f->b == f->c) return f->b;
    return is_op(f->a, AN_OP_NOT) ? WHERE(an_src(f->a, 0), f->c, f->b) : NULL;
}

static an_tensor *fold_elem(const fold_ctx *f)
{
    double x[3], y;
    int64_t i[3], yi;
    int n = f->e->n_src, n_const = 0;
    for (int k = 0; k < n && an_uniform(f->e->src[k], &x[k], &i[k]); k++) n_const++;
    if (n_const == n && an_fold_constant(f->e->op, (an_dtype)f->e->src[n - 1]->dtype, x, i, &y, &yi))
        return full(f, y, yi);
    switch (f->e->op) {
    case AN_OP_ADD: return fold_add(f);
    case AN_OP_SUB: return fold_sub(f);
    case AN_OP_MUL: return fold_mul(f);
    case AN_OP_DIV: return fold_div(f);
    case AN_OP_AND:
    case AN_OP_OR:
    case AN_OP_XOR: return fold_bits(f);
    case AN_OP_EQ:
    case AN_OP_NE:
    case AN_OP_LT:
    case AN_OP_LE: return fold_compare(f);
    case AN_OP_MAXIMUM:
    case AN_OP_MINIMUM: return f->a == f->b ? f->a : NULL;
    case AN_OP_WHERE: return fold_where(f);
    default: return n == 1 ? fold_unary(f) : NULL;
    }
}

/* ------------------------------------------------------------------------------------------------ casts */

/* Every value of `from` is a value of `to`. */
static bool widens(an_dtype from, an_dtype to)
{
    static const int digits[AN_N_DTYPES] = {24, 8, 11, 53, 31, 63, 8, 1}; /* of an integer held exactly */
    bool real = an_dtype_is_float(from);
    if (from == AN_BOOL) return true;
    if (real && !an_dtype_is_float(to)) return false;
    if (real) return to == AN_F64 || (to == AN_F32 && from != AN_F64);
    return to != AN_BOOL && digits[from] <= digits[to] && !(to == AN_U8 && from != AN_U8);
}

/* The second cast of an exact first one may start at the source, unless float and integer rules (saturate, wrap) would
 * be swapped. */
static an_tensor *fold_cast(const fold_ctx *f)
{
    an_dtype to = f->dtype, mid = (an_dtype)f->a->dtype;
    if (mid == to) return f->a;
    if (f->const_a && !an_dtype_is_float(mid)) return full(f, (double)f->ia, f->ia);
    if (f->const_a && an_dtype_is_float(to)) return full(f, f->xa, 0);
    if (!is_op(f->a, AN_OP_CAST)) return NULL;
    an_tensor *x = an_src(f->a, 0);
    an_dtype from = (an_dtype)x->dtype;
    bool same_kind = an_dtype_is_float(from) == an_dtype_is_float(mid) || an_dtype_is_float(to) || to == AN_BOOL;
    return widens(from, mid) && (same_kind || to == from) ? CAST(x, to) : NULL;
}

/* ------------------------------------------------------------------------------------------------ view ops */

static bool shape_is(const fold_ctx *f, const an_tensor *t)
{
    return t->rank == f->rank && memcmp(t->shape, f->shape, (size_t)f->rank * sizeof *f->shape) == 0;
}

/* A number stays a number wherever its elements go; its one form is EXPAND(RESHAPE(CONST)). */
static an_tensor *fold_const_move(const fold_ctx *f)
{
    an_op op = f->e->op;
    bool canonical = (op == AN_OP_RESHAPE && is_op(f->a, AN_OP_CONST)) ||
                     (op == AN_OP_EXPAND && is_op(f->a, AN_OP_RESHAPE) && is_op(an_src(f->a, 0), AN_OP_CONST));
    if (canonical || op == AN_OP_CONCAT) return NULL;
    if (op == AN_OP_PAD && f->xa != f->e->imm[0]) return NULL;
    return full(f, f->xa, f->ia);
}

static an_tensor *fold_permute(const fold_ctx *f)
{
    int perm[AN_MAX_RANK], before = -1;
    bool identity = true, in_order = true;
    for (int i = 0; i < f->rank; i++) {
        perm[i] = (int)f->e->attr[i];
        identity &= perm[i] == i;
        if (f->shape[i] == 1) continue;
        in_order &= perm[i] > before;
        before = perm[i];
    }
    if (identity) return f->a;
    if (in_order) return an_make_reshape(f->a, f->rank, f->shape); /* only axes of length 1 move */
    if (!is_op(f->a, AN_OP_PERMUTE)) return NULL;
    for (int i = 0; i < f->rank; i++) perm[i] = (int)f->a->attr[perm[i]];
    return an_make_permute(an_src(f->a, 0), perm);
}

static an_tensor *emit_slice(const fold_ctx *f, an_tensor *of, const int64_t *attr)
{
    an_emit_args e = *f->e;
    e.src = &of;
    e.shape = f->shape;
    e.rank = f->rank;
    e.attr = attr;
    return an_emit(f->g, &e);
}

/* The part of a CONCAT that holds the whole slice. */
static an_tensor *slice_of_concat(const fold_ctx *f)
{
    int axis = (int)f->a->attr[0];
    int64_t attr[2 * AN_MAX_RANK], start = f->e->attr[2 * axis], step = f->e->attr[2 * axis + 1];
    int64_t last = start + (f->shape[axis] - 1) * step, from = 0;
    for (int k = 0; k < f->a->n_src; k++) {
        an_tensor *part = an_src(f->a, k);
        if (start >= from && last < from + part->shape[axis]) {
            memcpy(attr, f->e->attr, (size_t)f->e->n_attr * sizeof *attr);
            attr[2 * axis] = start - from;
            return emit_slice(f, part, attr);
        }
        from += part->shape[axis];
    }
    return NULL;
}

typedef enum cut { CUT_INSIDE, CUT_PADDING, CUT_BOTH } cut;

/* What of a PAD the part of these starts and steps is: of the padded tensor alone, padding alone (what a layer's last step gives back to
 * each step before it), or both. */
static cut cut_of_pad(const an_tensor *pad, const int64_t *attr, const int32_t *shape)
{
    cut all = CUT_INSIDE;
    for (int i = 0; i < pad->rank; i++) {
        const int64_t first = attr[2 * i], last = first + (shape[i] - 1) * attr[2 * i + 1];
        const int64_t begin = pad->attr[2 * i], end = begin + an_src(pad, 0)->shape[i];
        if (last < begin || first >= end) return CUT_PADDING;
        if (first < begin || last >= end) all = CUT_BOTH;
    }
    return all;
}

/* A slice of a permuted PAD, where the same slice below the permutation folds. */
static an_tensor *slice_of_permuted_pad(const fold_ctx *f)
{
    an_tensor *pad = an_src(f->a, 0);
    int64_t attr[2 * AN_MAX_RANK];
    int32_t shape[AN_MAX_RANK];
    int perm[AN_MAX_RANK];
    for (int i = 0; i < f->rank; i++) {
        perm[i] = (int)f->a->attr[i];
        shape[perm[i]] = f->shape[i];
        memcpy(&attr[2 * perm[i]], &f->e->attr[2 * i], 2 * sizeof *attr);
    }
    if (cut_of_pad(pad, attr, shape) == CUT_BOTH) return NULL;
    an_emit_args e = *f->e;
    e.src = &pad;
    e.shape = shape;
    e.attr = attr;
    return an_make_permute(an_emit(f->g, &e), perm);
}

static an_tensor *fold_slice(const fold_ctx *f)
{
    int64_t attr[2 * AN_MAX_RANK];
    bool inside = is_op(f->a, AN_OP_PAD), empty = false;
    if (shape_is(f, f->a)) return f->a; /* every length kept: nothing is left out */
    for (int i = 0; i < f->rank; i++) empty |= f->shape[i] == 0;
    if (empty) return NULL;
    if (is_op(f->a, AN_OP_PERMUTE) && is_op(an_src(f->a, 0), AN_OP_PAD)) return slice_of_permuted_pad(f);
    const cut of_pad = inside ? cut_of_pad(f->a, f->e->attr, f->shape) : CUT_INSIDE;
    if (of_pad == CUT_BOTH) return NULL;
    if (of_pad == CUT_PADDING) return full(f, f->a->imm[0], (int64_t)f->a->imm[0]);
    if (is_op(f->a, AN_OP_CONCAT)) return slice_of_concat(f);
    if (!inside && !is_op(f->a, AN_OP_SLICE)) return NULL;
    for (int i = 0; i < f->rank; i++) {
        int64_t start = f->e->attr[2 * i], step = f->e->attr[2 * i + 1], inner = f->a->attr[2 * i];
        if (inside) {
            attr[2 * i] = start - inner;
            attr[2 * i + 1] = step;
        } else {
            int64_t inner_step = f->a->attr[2 * i + 1];
            attr[2 * i] = inner + start * inner_step;
            attr[2 * i + 1] = step * inner_step;
        }
    }
    return emit_slice(f, an_src(f->a, 0), attr);
}

static an_tensor *fold_pad(const fold_ctx *f)
{
    int64_t attr[2 * AN_MAX_RANK];
    if (shape_is(f, f->a)) return f->a;
    if (!is_op(f->a, AN_OP_PAD) || memcmp(&f->a->imm[0], &f->e->imm[0], sizeof(double)) != 0) return NULL;
    for (int i = 0; i < f->e->n_attr; i++) attr[i] = f->e->attr[i] + f->a->attr[i];
    an_tensor *inner = an_src(f->a, 0);
    an_emit_args e = *f->e;
    e.src = &inner;
    e.attr = attr;
    return an_emit(f->g, &e);
}

static an_tensor *fold_flip(const fold_ctx *f)
{
    uint32_t mask = (uint32_t)f->e->attr[0], useful = 0;
    for (int i = 0; i < f->rank; i++)
        if (f->shape[i] != 1) useful |= mask & 1u << i;
    if (useful == 0) return f->a;
    if (is_op(f->a, AN_OP_FLIP)) return an_make_flip(an_src(f->a, 0), useful ^ (uint32_t)f->a->attr[0]);
    return useful != mask ? an_make_flip(f->a, useful) : NULL;
}

/* Slices of one tensor, side by side and complete, are that tensor. */
static an_tensor *fold_concat(const fold_ctx *f)
{
    const an_emit_args *e = f->e;
    int axis = (int)e->attr[0];
    if (e->n_src == 1) return e->src[0];
    if (!is_op(e->src[0], AN_OP_SLICE)) return NULL;
    an_tensor *whole = an_src(e->src[0], 0);
    int64_t at = 0;
    for (int i = 0; i < e->n_src; i++) {
        const an_tensor *s = e->src[i];
        if (!is_op(s, AN_OP_SLICE) || an_src(s, 0) != whole) return NULL;
        if (s->attr[2 * axis] != at || s->attr[2 * axis + 1] != 1) return NULL;
        for (int k = 0; k < f->rank; k++)
            if (k != axis && s->shape[k] != whole->shape[k]) return NULL;
        at += s->shape[axis];
    }
    return at == whole->shape[axis] ? whole : NULL;
}

static an_tensor *fold_move(const fold_ctx *f)
{
    if (f->const_a) return fold_const_move(f);
    switch (f->e->op) {
    case AN_OP_RESHAPE:
        if (shape_is(f, f->a)) return f->a;
        return is_op(f->a, AN_OP_RESHAPE) ? an_make_reshape(an_src(f->a, 0), f->rank, f->shape) : NULL;
    case AN_OP_EXPAND:
        if (shape_is(f, f->a)) return f->a;
        return is_op(f->a, AN_OP_EXPAND) ? an_make_expand(an_src(f->a, 0), f->rank, f->shape) : NULL;
    case AN_OP_PERMUTE: return fold_permute(f);
    case AN_OP_SLICE: return fold_slice(f);
    case AN_OP_PAD: return fold_pad(f);
    case AN_OP_FLIP: return fold_flip(f);
    case AN_OP_CONCAT: return fold_concat(f);
    default: return is_op(f->a, AN_OP_DETACH) ? f->a : NULL; /* DETACH */
    }
}

/* ------------------------------------------------------------------------------------------------ fold */

/* Tensors without elements are never computed: each equals any number of its shape. What is made of them alone is a
 * number too: sums of nothing are 0, padding around nothing is padding. So no kernel has an extent of 0. */
static an_tensor *fold_empty(const fold_ctx *f)
{
    const an_emit_args *e = f->e;
    bool empty = false, source = false;
    double x;
    int64_t i;
    if ((e->op == AN_OP_RESHAPE || e->op == AN_OP_EXPAND) && an_uniform(e->src[0], &x, &i)) return NULL; /* is one */
    if (an_ops[e->op].outputs > 1 || an_ops[e->op].cls == AN_CLS_EFFECT || e->op == AN_OP_LEAF) return NULL;
    for (int k = 0; k < f->rank; k++) empty |= f->shape[k] == 0;
    if (empty) return full(f, 0, 0);
    for (int k = 0; k < e->n_src; k++) source |= e->src[k]->numel == 0;
    if (!source) return NULL;
    switch (e->op) {
    case AN_OP_PAD: return full(f, e->imm[0], (int64_t)e->imm[0]);
    case AN_OP_PUT_ROWS: return e->src[0];
    case AN_OP_SCATTER_ADD: return e->n_src > 2 ? e->src[2] : full(f, 0, 0);
    case AN_OP_SUM:
    case AN_OP_MATMUL:
    case AN_OP_GROUPED_MATMUL:
    case AN_OP_GROUPED_OUTER:
    case AN_OP_CONV2D:
    case AN_OP_CONV2D_DX:
    case AN_OP_CONV2D_DW:
    case AN_OP_CONV2D_DW_IMAGES: return full(f, 0, 0);
    default: return NULL;
    }
}

an_tensor *an_fold(an_graph *g, const an_emit_args *e, an_dtype dtype, int rank, const int32_t *shape)
{
    fold_ctx f = {.g = g, .e = e, .dtype = dtype, .rank = rank, .shape = shape};
    if (e->op == AN_OP_CONST) return NULL;
    an_tensor *number = fold_empty(&f);
    if (number != NULL || e->n_src == 0) return number;
    f.a = e->src[0];
    if (e->n_src > 1) f.b = e->src[1];
    if (e->n_src > 2) f.c = e->src[2];
    f.const_a = an_uniform(f.a, &f.xa, &f.ia);
    f.const_b = f.b != NULL && an_uniform(f.b, &f.xb, &f.ib);
    switch (an_ops[e->op].cls) {
    case AN_CLS_ELEM: return fold_elem(&f);
    case AN_CLS_MOVE: return fold_move(&f);
    case AN_CLS_CAST: return fold_cast(&f);
    case AN_CLS_REDUCE:
        if (f.a->shape[1] != 1) return NULL;
        return e->op == AN_OP_ARGMAX ? full(&f, 0, 0) : f.a;
    case AN_CLS_PICK: return e->attr[0] == 0 ? f.a : NULL;
    default: return NULL;
    }
}
