/* grad_accumulate.c: gradients of parameters, packed by block and summed over micro-batches (gradient accumulation) and ranks
 * (all-reduce); their norm, clipping, and whether an update is applied (a norm that is not finite: no).
 *
 * an_backward packs the gradients of each block into one array of the block's layout. An optimizer consumes them:
 *
 *     an_backward   block.packed = pack(dL/dp0, dL/dp1, ...)
 *     an_adamw      g = gradient store + packed (or the one that is there); p, m, v updated; the store is free again
 *
 * When no optimizer follows in the same step, the sum is assigned to the block's gradient store instead and is the next micro-batch's
 * starting value. The planner writes packed gradients straight into the store (planner/assign_states.c), and but for CUDA each gradient is
 * added to its part of the store where it is computed: packed is then
 *
 *     packed = pack(store of p0 + dL/dp0, store of p1 + dL/dp1, ...)
 *
 * and a step with several micro-batches has one array of a block's size, not two. An optimizer is elementwise arithmetic over the arrays
 * p, m, v, g, so that clipping and the update of every parameter of a block are one launch.
 *
 * With several ranks (an_join) each has the gradients of its own micro-batches, and an update needs the sum of all:
 *
 *     one exchange an update      g = sum over ranks of (gradient store + packed)
 *     exact mode, every step      store' = (((store + packed of rank 0) + packed of rank 1) + ...)
 *
 * Where each rank updates a part of a block (an_shard_optimizer), it gets its part of either sum alone: by a
 * reduce-scatter, or by adding no more of what was gathered.
 *
 * The second is the order in which one rank adds them, when micro-batch m of an update is done by rank m mod ranks: so any
 * number of ranks has the bits of one. It costs an exchange a micro-batch, and memory for the gradients of all ranks.
 *
 * With an_exchange_bf16 a gradient of float32 is rounded before either exchange of the first kind, and its sum is
 * float32 again.
 *
 * Owns: an_block's packed, kept, accumulated and accumulated_by_step; an_ctx's loss and updates.
 */
#include "optim/grad_accumulate.h"

#include "graph/build.h"
#include "optim/loss_scaler.h"
#include "runtime/assign_params.h"
#include "runtime/param_blocks.h"
#include "runtime/variables.h"

/* The part of a block's array that is of its parameter i, in the shape of it. */
static an_tensor *of_param(an_ctx *cx, const char *at, int b, int i, an_tensor *all)
{
    const an_param_info *p = &cx->param[cx->block[b].param[i]];
    const int64_t first = p->offset / (int64_t)an_dtype_bytes(cx->block[b].dtype);
    return an_reshape_at(at, an_slice_at(at, all, 0, first, first + p->tensor->numel, 1), an_shape_of(p->tensor));
}

/* Of a narrow block: what rounds its gradients in this step, [numel]; NULL of any other. It does not depend on how many micro-batches a
 * step adds, so that in exact mode ranks add as one alone. */
static an_tensor *gradient_random(an_ctx *cx, int b)
{
    const int32_t shape[1] = {(int32_t)cx->block[b].numel};
    return an_is_narrow_block(cx, b) ? an_make_shared_rand(&cx->graph, 1, shape) : NULL;
}

/* sum + more; with `u` the sum is rounded at random, as what is smaller than half of bfloat16's step would be lost to the nearest. */
static an_tensor *add_gradient(const char *at, an_tensor *sum, an_tensor *more, an_tensor *u)
{
    if (!u) return an_add_at(at, sum, more);
    an_tensor *wide = an_cast_at(at, sum, AN_F32);
    wide = an_add_at(at, wide, an_cast_at(at, more, AN_F32));
    return an_cast_at(at, an_round_bf16_at(at, wide, u), AN_BF16);
}

/* The gradients of a block; each onto its part of `kept` (NULL: alone). */
static an_tensor *pack(an_ctx *cx, const char *at, int b, an_tensor *kept)
{
    an_tensor *random = kept ? gradient_random(cx, b) : NULL;
    an_block *bl = &cx->block[b];
    an_tensor *src[255];
    int64_t attr[1] = {b};
    int32_t shape[1] = {(int32_t)bl->numel};
    for (int i = 0; i < bl->n; i++) {
        an_tensor *p = cx->param[bl->param[i]].tensor, *g = an_graph_grad(&cx->graph, p);
        if (kept) {
            an_tensor *before = of_param(cx, at, b, i, kept);
            an_tensor *u = random ? of_param(cx, at, b, i, random) : NULL;
            src[i] = g ? add_gradient(at, before, g, u) : before;
        } else {
            src[i] = g ? g : an_full_at(at, cx, bl->dtype, an_shape_of(p), 0);
        }
    }
    return an_emit(&cx->graph, &(an_emit_args){.op = AN_OP_PACK,
                                               .dtype = bl->dtype,
                                               .rank = 1,
                                               .shape = shape,
                                               .n_src = bl->n,
                                               .src = src,
                                               .n_attr = 1,
                                               .attr = attr,
                                               .at = at});
}

an_tensor *an_grad(an_tensor *t)
{
    if (!t || t->poison) return NULL;
    return an_graph_grad(t->g, t);
}

static bool adds_in_order(const an_ctx *cx)
{
    return cx->graph.ranks > 1 && cx->backend->target(cx->device)->exact;
}

/* ---- parts of a block that ranks update (an_shard_optimizer) */

/* This rank's part [part] of an array [numel] of block b; the array where every rank has all of it. */
static an_tensor *own_part(an_ctx *cx, const char *at, int b, an_tensor *t)
{
    const int64_t part = cx->block[b].part, first = cx->graph.rank * part;
    return part > 0 ? an_slice_at(at, t, 0, first, first + part, 1) : t;
}

/* Whether the gradients that are kept over micro-batches are this rank's part. */
static bool keeps_part(const an_ctx *cx, int b)
{
    return an_block_in_parts(cx, b, AN_ROLE_GRAD);
}

an_tensor *an_own_params(an_ctx *cx, const char *at, int b)
{
    an_tensor *here = an_block_params(cx, b, at);
    return an_block_in_parts(cx, b, AN_ROLE_PARAM) ? here : own_part(cx, at, b, here);
}

an_tensor *an_own_random(an_ctx *cx, const char *at, int b)
{
    const int32_t shape[1] = {(int32_t)cx->block[b].numel};
    return own_part(cx, at, b, an_make_shared_rand(&cx->graph, 1, shape));
}

bool an_is_narrow_block(const an_ctx *cx, int b)
{
    const an_block *bl = &cx->block[b];
    return bl->n > 0 && cx->param[bl->param[0]].tensor->narrow;
}

an_tensor *an_stored_params(an_ctx *cx, const char *at, int b, an_tensor *value)
{
    if (an_is_narrow_block(cx, b)) value = an_round_bf16_at(at, value, an_own_random(cx, at, b));
    return an_cast_at(at, value, cx->block[b].dtype);
}

void an_assign_own_params(an_ctx *cx, const char *at, int b, an_tensor *value)
{
    if (cx->block[b].part > 0 && !an_block_in_parts(cx, b, AN_ROLE_PARAM))
        value =
            an_reshape_at(at, an_make_all_gather(value), AN_SHAPE(cx->block[b].numel)); /* [ranks,part] to [numel] */
    an_assign_at(at, an_block_tensor(cx, b, AN_ROLE_PARAM, NULL), value);
}

/* ---- sums over micro-batches and ranks */

/* Whether parts of packed gradients may be exchanged while others are computed. */
static bool may_begin_early(const an_ctx *cx)
{
    return !cx->no_overlap && !cx->narrow;
}

/* An exchange that adds `t`: as it is, or rounded for the way. */
static an_tensor *add_ranks(an_ctx *cx, const char *at, an_op op, an_tensor *t, int n_attr, const int64_t *attr)
{
    const an_dtype dtype = an_dtype_of(t);
    if (!cx->narrow || dtype != AN_F32) return an_make_call(op, 1, &t, n_attr, attr);
    an_tensor *narrow = an_cast_at(at, t, AN_BF16);
    return an_cast_at(at, an_make_call(op, 1, &narrow, n_attr, attr), dtype);
}

static an_tensor *reduce_scatter(an_ctx *cx, const char *at, an_tensor *t)
{
    const int64_t attr[2] = {cx->graph.ranks, may_begin_early(cx)};
    return add_ranks(cx, at, AN_OP_REDUCESCATTER, t, 2, attr); /* [numel] to [part] */
}

/* `sum` (NULL: nothing) plus the values that `mine` has on each rank, one after the other; `part`: only of this rank's
 * part. */
static an_tensor *add_each_rank(an_ctx *cx, const char *at, int b, bool part, an_tensor *sum, an_tensor *mine,
                                an_tensor *u)
{
    an_tensor *all = an_make_all_gather(mine); /* [ranks,n] */
    if (part && u) u = own_part(cx, at, b, u);
    for (int64_t r = 0; r < cx->graph.ranks; r++) {
        an_tensor *one = an_reshape_at(at, an_slice_at(at, all, 0, r, r + 1, 1), an_shape_of(mine));
        if (part) one = own_part(cx, at, b, one);
        sum = sum ? add_gradient(at, sum, one, u) : one;
    }
    return sum;
}

/* Whether a gradient is added to what is kept of it where it is computed, in the epilogue of its GEMM: then the block's store is the only
 * array of its size. Where launches run side by side (CUDA) a library runs most GEMMs: each sum would be a launch. */
static bool adds_where_computed(an_ctx *cx, int b)
{
    const an_block *bl = &cx->block[b];
    if (!bl->accumulated || !bl->packed || adds_in_order(cx) || keeps_part(cx, b)) return false;
    if (cx->backend->target(cx->device)->side_by_side) return false;
    for (int i = 0; i < bl->n; i++)
        if (!an_graph_grad(&cx->graph, cx->param[bl->param[i]].tensor)) return false;
    return true;
}

/* This step's gradients plus those kept from earlier micro-batches; `part`: of this rank's part, and in exact mode. */
static an_tensor *sum_of(an_ctx *cx, const char *at, int b, bool part)
{
    an_block *bl = &cx->block[b];
    an_tensor *kept =
        bl->accumulated ? an_block_tensor(cx, b, AN_ROLE_GRAD, "gradients kept over micro-batches") : NULL;
    if (kept && part && !keeps_part(cx, b)) kept = own_part(cx, at, b, kept);
    if (!bl->packed) return kept;
    if (adds_where_computed(cx, b)) return pack(cx, at, b, kept);
    an_tensor *u = kept || adds_in_order(cx) ? gradient_random(cx, b) : NULL;
    if (adds_in_order(cx)) return add_each_rank(cx, at, b, part, kept, bl->packed, u);
    an_tensor *one = part ? reduce_scatter(cx, at, bl->packed) : bl->packed;
    if (part && u) u = own_part(cx, at, b, u);
    return kept ? add_gradient(at, kept, one, u) : one;
}

/* What is kept for the next micro-batch. */
static an_tensor *gradient_of(an_ctx *cx, const char *at, int b)
{
    if (cx->block[b].kept) return cx->block[b].kept; /* an_plan looked at the step before its optimizer came */
    return sum_of(cx, at, b, keeps_part(cx, b));
}

/* gradient_of, where each parameter's sum is computed by itself: its exchange need not wait for those of the others. */
static an_tensor *gradient_by_param(an_ctx *cx, const char *at, int b)
{
    an_block *bl = &cx->block[b];
    if (!bl->packed || !bl->accumulated || bl->kept) return gradient_of(cx, at, b);
    return pack(cx, at, b, an_block_tensor(cx, b, AN_ROLE_GRAD, "gradients kept over micro-batches"));
}

/* What the update takes: the sum over all ranks, or this rank's part of it. */
static an_tensor *gradient_of_all(an_ctx *cx, const char *at, int b)
{
    const int64_t ranks = cx->graph.ranks, attr[2] = {ranks, may_begin_early(cx)};
    const bool in_order = adds_in_order(cx), part = cx->block[b].part > 0;
    if (part && in_order && !cx->block[b].kept) return sum_of(cx, at, b, true);
    const bool in_buckets = ranks > 1 && !in_order && !keeps_part(cx, b) && !cx->narrow;
    /* Nothing reads the store behind the update: the sum is assigned to it for its memory. */
    const bool in_store = !cx->block[b].kept && (in_buckets || ranks <= 1) && adds_where_computed(cx, b);
    an_tensor *sum = in_buckets ? gradient_by_param(cx, at, b) : gradient_of(cx, at, b); /* [n] */
    if (!sum || keeps_part(cx, b)) return sum;
    if (ranks > 1 && !in_order && !part) sum = add_ranks(cx, at, AN_OP_ALLREDUCE, sum, 2, attr);
    if (in_store) an_assign_at(at, an_block_tensor(cx, b, AN_ROLE_GRAD, NULL), sum);
    if (ranks <= 1 || !part) return sum;
    return in_order ? own_part(cx, at, b, sum) : reduce_scatter(cx, at, sum);
}

/* Gradients that no optimizer consumed in this step are kept for the next one. */
static void keep_gradients(an_ctx *cx)
{
    an_scope_push(cx, "optimizer"); /* as in an update: the same numbers are drawn */
    for (int b = 0; b < cx->n_blocks; b++) {
        an_block *bl = &cx->block[b];
        if (!bl->packed) continue;
        an_tensor *sum = gradient_of(cx, AN_AT, b),
                  *kept = an_block_tensor(cx, b, AN_ROLE_GRAD, "gradients kept over micro-batches");
        an_assign_at(AN_AT, kept, sum);
        bl->packed = NULL;
        bl->kept = sum;
        bl->accumulated_by_step = true;
    }
    an_scope_pop(cx);
}

static void step_completed(an_ctx *cx)
{
    for (int b = 0; b < cx->n_blocks; b++) {
        cx->block[b].accumulated = cx->block[b].accumulated_by_step;
        cx->block[b].kept = NULL;
    }
    cx->updates = cx->updates_by_step;
}

static void step_discarded(an_ctx *cx)
{
    for (int b = 0; b < cx->n_blocks; b++) {
        cx->block[b].packed = cx->block[b].kept = NULL;
        cx->block[b].accumulated_by_step = cx->block[b].accumulated;
    }
    cx->updates_by_step = cx->updates;
}

void an_assume_kept_gradients(an_ctx *cx, bool kept)
{
    for (int b = 0; cx && b < cx->n_blocks; b++)
        if (!cx->block[b].frozen) cx->block[b].accumulated = cx->block[b].accumulated_by_step = kept;
}

static const an_step_hooks hooks = {
    .before_plan = keep_gradients, .completed = step_completed, .discarded = step_discarded};

void an_backward_at(const char *at, an_tensor *loss)
{
    if (!loss || !loss->g) return; /* of no context: there is none to tell */
    an_ctx *cx = loss->g->owner;
    cx->hooks = &hooks;
    if (an_layout_params(cx) != AN_OK) return;
    an_tensor *node = an_use(&cx->graph, loss, at, "an_backward");
    if (node->poison) return;
    for (int b = 0; b < cx->n_blocks; b++)
        if (cx->block[b].packed) {
            an_poison(&cx->graph, AN_E_USAGE, at,
                      "an_backward: called twice in one step; add the losses, or run an_eval and an_reset between");
            return;
        }
    cx->loss = node->id;
    if (an_graph_backward(&cx->graph, loss) != AN_OK) return;
    for (int b = 0; b < cx->n_blocks; b++)
        if (!cx->block[b].frozen) cx->block[b].packed = pack(cx, at, b, NULL);
}

/* The sum of squares of a block's gradient. Where a rank has a part of it, the sums of its chunks are gathered: they
 * are those that a whole total is made of. */
static an_tensor *sum_of_squares(an_ctx *cx, const char *at, int b, an_tensor *g)
{
    const int64_t part = cx->block[b].part, chunks = part / AN_TOTAL_CHUNK;
    an_tensor *square = an_mul_at(at, g, g);
    if (part == 0) return an_sum_at(at, square, AN_ALL, false);
    square = an_reshape_at(at, square, AN_SHAPE(chunks, AN_TOTAL_CHUNK));
    an_tensor *sums = an_make_all_gather(an_sum_at(at, square, AN_AXIS(1), false)); /* [ranks,chunks] */
    sums = an_reshape_at(at, sums, AN_SHAPE(chunks * cx->graph.ranks));
    return an_sum_at(at, an_slice_at(at, sums, 0, 0, an_ceil_div(cx->block[b].used, AN_TOTAL_CHUNK), 1), AN_ALL, false);
}

/* sqrt of the sum of squares over all blocks; padding is zero. */
static an_tensor *global_norm(an_ctx *cx, const char *at, an_tensor **grad)
{
    an_tensor *sum = NULL;
    an_dtype dtype = AN_F32;
    for (int b = 0; b < cx->n_blocks; b++)
        if (grad[b] && cx->block[b].dtype == AN_F64) dtype = AN_F64;
    for (int b = 0; b < cx->n_blocks; b++) {
        if (!grad[b]) continue;
        an_tensor *g = an_cast_at(at, grad[b], dtype), *s = sum_of_squares(cx, at, b, g);
        sum = sum ? an_add_at(at, sum, s) : s;
    }
    return sum ? an_sqrt_at(at, sum) : NULL;
}

an_dtype an_update_dtype(an_dtype dtype)
{
    return dtype == AN_F64 ? AN_F64 : AN_F32;
}

an_tensor *an_update_scalar(const char *at, an_ctx *cx, an_dtype dtype, double x)
{
    return dtype == AN_F64 ? an_scalar_f64_at(at, cx, x) : an_scalar_at(at, cx, x);
}

an_tensor *an_clip_factor(const char *at, an_ctx *cx, an_tensor *norm, double clip)
{
    const an_dtype dtype = an_dtype_of(norm);
    an_tensor *below = an_add_num_at(at, norm, 1e-6), *part = an_div_at(at, an_const_at(at, cx, dtype, clip), below);
    return an_minimum_at(at, an_const_at(at, cx, dtype, 1), part);
}

static bool all_frozen(const an_ctx *cx)
{
    for (int b = 0; b < cx->n_blocks; b++)
        if (!cx->block[b].frozen) return false;
    return cx->n_blocks > 0;
}

/* Has an optimizer of this step updated block b? */
static bool updated(const an_ctx *cx, int b)
{
    const an_tensor *p = cx->block[b].tensor[AN_ROLE_PARAM];
    return p && an_graph_last_assign(&cx->graph, p) >= 0;
}

bool an_begin_update(an_ctx *cx, const char *at, const char *who, bool scaled, an_tensor *grad[AN_MAX_BLOCKS],
                     an_tensor **norm)
{
    an_tensor *unscale = scaled ? an_loss_scale_inverse(at, cx) : NULL; /* f32 scalar */
    bool any = false;
    cx->hooks = &hooks;
    if (an_why_params_are_fixed(cx)) {
        an_poison(&cx->graph, AN_E_USAGE, at, "%s: %s", who, an_why_params_are_fixed(cx));
        return false;
    }
    if (an_layout_params(cx) != AN_OK) return false;
    if (cx->n_blocks > AN_MAX_BLOCKS) {
        an_poison(&cx->graph, AN_E_UNSUPPORTED, at, "%s: more than 64 parameter blocks", who);
        return false;
    }
    for (int b = 0; b < cx->n_blocks; b++)
        if (updated(cx, b)) {
            an_poison(&cx->graph, AN_E_USAGE, at,
                      "%s: an optimizer has updated these parameters in this step already; run an_eval and an_reset "
                      "between two updates",
                      who);
            return false;
        }
    an_scope_push(cx, "optimizer");
    for (int b = 0; b < cx->n_blocks; b++) {
        grad[b] = cx->block[b].frozen ? NULL : gradient_of_all(cx, at, b);
        if (grad[b] && unscale) { /* in float32: 16 bits would lose what the scale was for */
            const an_dtype dtype = an_update_dtype(cx->block[b].dtype);
            an_tensor *wide = an_cast_at(at, grad[b], dtype);
            grad[b] = an_mul_at(at, wide, an_cast_at(at, unscale, dtype));
        }
        any |= grad[b] != NULL;
        cx->block[b].packed = NULL;
        cx->block[b].kept = NULL;
        cx->block[b].accumulated_by_step = false;
    }
    *norm = any ? global_norm(cx, at, grad) : NULL;
    if (!any) {
        an_scope_pop(cx);
        if (!cx->err.code)
            an_poison(&cx->graph, AN_E_USAGE, at, "%s: there are no gradients: %s", who,
                      all_frozen(cx) ? "every parameter is frozen" : "call an_backward first");
    }
    return any;
}

bool an_options_fit(an_ctx *cx, const char *at, const char *who, int n, const an_option *o)
{
    for (int i = 0; i < n; i++) {
        if (o[i].value >= o[i].least && o[i].value < o[i].below) continue;
        const char *is = o[i].least < 0 ? "be finite" : o[i].below <= 1 ? "be in [0, 1)" : "be finite and not below 0";
        an_poison(&cx->graph, AN_E_USAGE, at, "%s: %s is %g; it must %s", who, o[i].name, o[i].value, is);
        return false;
    }
    return true;
}
