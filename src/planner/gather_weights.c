/* gather_weights.c: parameters of which each rank holds a part (an_shard_optimizer, AN_SHARD_WEIGHTS: ZeRO 3, FSDP) are gathered from the
 * ranks ahead of use, and their memory is free again behind it.
 *
 * Until here an argument that is such a parameter names the parameter, not memory: slot AN_SLOT_IN_PARTS + index, offset in the
 * parameter. Neighbours in a block are gathered together, by pieces. A piece lives from the launch that needs it to the last
 * one before a long time without a reader, and is gathered again where the backward pass reads it:
 *
 *     launches   gather p  GEMM p  ...  the rest of both passes  ...  gather p  GEMM p (dX)  ...  update of this rank's part
 *     p lives    <--------------->                                    <--------------->
 *
 * On a device that runs launches side by side each piece is gathered one piece ahead: while launches read piece k, piece k + 1
 * is under way, for the memory of one piece more.
 *
 * Invariant: every rank has the same gathers in the same order; behind this pass no argument names a parameter in parts. */
#include "planner/planner_internal.h"

#include <stdlib.h>

enum { PIECE_LEAST = 256 << 10, PIECE_MOST = 16 << 20, PIECES = 32 };

/* What is gathered at once: neighbours in one block. */
typedef struct piece {
    an_leaf_place at;    /* of the first; `bytes` up to the end of the last */
    int32_t first, last; /* of `params` */
    int32_t value;       /* of the life that steps are given now, -1: none; with its last reader */
    int32_t until;
} piece;

typedef struct param {
    int32_t index, piece;
    an_leaf_place at;
} param;

/* A piece from its gather to its last reader. */
typedef struct life {
    int32_t piece, first, value,
        step; /* first: reader; step: of the gather, behind all others until they are put in order */
} life;

typedef struct gathering {
    an_planner *w;
    param *params;
    piece *pieces;
    life *lives;
    int32_t n_params, n_pieces, n_lives, cap_lives;
    int32_t steps; /* before gathers are added */
} gathering;

static an_status no_memory(const gathering *x)
{
    return an_fail_nomem(x->w->err, "gathers of weights", 0);
}

/* ---- which parameters, in which pieces */

static int by_index(const void *x, const void *y)
{
    const param *a = x, *b = y;
    return (a->index > b->index) - (a->index < b->index);
}

static int by_place(const void *x, const void *y)
{
    const an_leaf_place *a = &((const param *)x)->at, *b = &((const param *)y)->at;
    if (a->slot != b->slot) return a->slot < b->slot ? -1 : 1;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

static an_status find_params(gathering *x)
{
    const an_plan *p = x->w->plan;
    int32_t n = 0;
    for (int32_t s = 0; s < p->n_steps; s++)
        for (int a = 0; a < p->step[s].n_args; a++) n += p->step[s].arg[a].slot >= AN_SLOT_IN_PARTS;
    x->params = AN_NEW_ARRAY(&x->w->scratch, param, n + 1);
    x->pieces = AN_NEW_ARRAY(&x->w->scratch, piece, n + 1);
    if (!x->params || !x->pieces) return no_memory(x);
    n = 0;
    for (int32_t s = 0; s < p->n_steps; s++)
        for (int a = 0; a < p->step[s].n_args; a++)
            if (p->step[s].arg[a].slot >= AN_SLOT_IN_PARTS)
                x->params[n++].index = p->step[s].arg[a].slot - AN_SLOT_IN_PARTS;
    qsort(x->params, (size_t)n, sizeof *x->params, by_index);
    for (int32_t i = 0; i < n; i++)
        if (i == 0 || x->params[i].index != x->params[i - 1].index) x->params[x->n_params++] = x->params[i];
    for (int32_t i = 0; i < x->n_params; i++)
        x->params[i].at = x->w->rq->leaf(x->w->rq->user, AN_LEAF_PARAM, x->params[i].index);
    qsort(x->params, (size_t)x->n_params, sizeof *x->params, by_place);
    return AN_OK;
}

/* Small enough that a few pieces are little beside the whole, large enough that an exchange is not all delay. */
static int64_t piece_bytes(const an_leaf_place *at)
{
    return AN_MIN(AN_MAX(at->whole_bytes / PIECES, PIECE_LEAST), PIECE_MOST);
}

static void make_pieces(gathering *x)
{
    for (int32_t i = 0; i < x->n_params; i++) {
        const an_leaf_place *at = &x->params[i].at;
        piece *q = x->n_pieces ? &x->pieces[x->n_pieces - 1] : NULL;
        const int64_t bytes = q ? at->offset + at->bytes - q->at.offset : 0;
        if (!q || q->at.slot != at->slot || bytes > piece_bytes(at)) {
            q = &x->pieces[x->n_pieces++];
            *q = (piece){.at = *at, .first = i, .value = -1};
        }
        q->at.bytes = at->offset + at->bytes - q->at.offset;
        q->last = i;
        x->params[i].piece = x->n_pieces - 1;
    }
    qsort(x->params, (size_t)x->n_params, sizeof *x->params, by_index);
}

static const param *param_of(const gathering *x, const an_arg *a)
{
    const param key = {.index = a->slot - AN_SLOT_IN_PARTS};
    return bsearch(&key, x->params, (size_t)x->n_params, sizeof key, by_index);
}

/* ---- lives */

static life *new_life(gathering *x)
{
    if (x->n_lives == x->cap_lives) {
        const int32_t cap = x->cap_lives ? 2 * x->cap_lives : 64;
        life *more = AN_NEW_ARRAY(&x->w->scratch, life, cap);
        if (!more) return NULL;
        for (int32_t i = 0; i < x->n_lives; i++) more[i] = x->lives[i];
        x->lives = more;
        x->cap_lives = cap;
    }
    return &x->lives[x->n_lives++];
}

/* Launches without a reader behind which a piece is gathered again rather than kept. */
static int32_t patience(const gathering *x)
{
    return AN_MAX(4, x->steps / 16);
}

/* Gives the argument memory: that of the piece's life, which begins here if there is none. */
static an_status read_piece(gathering *x, int32_t step, an_arg *a)
{
    const param *p = param_of(x, a);
    piece *q = &x->pieces[p->piece];
    if (a->written) return an_fail(x->w->err, AN_E_INTERNAL, "plan: step %d writes a parameter in parts", step);
    if (q->value < 0 || step - q->until > patience(x)) {
        life *l = new_life(x);
        q->value = an_value_new(x->w, -1, 0, q->at.bytes, AN_USE_WEIGHT, q->at.name);
        if (!l || q->value < 0) return no_memory(x);
        *l = (life){.piece = p->piece, .first = step, .value = q->value};
    }
    q->until = step;
    a->slot = AN_SLOT_ARENA;
    a->value = q->value;
    a->offset += p->at.offset - q->at.offset;
    return AN_OK;
}

/* ---- launches */

static an_status add_gather(gathering *x, life *l)
{
    an_planner *w = x->w;
    const an_leaf_place *at = &x->pieces[l->piece].at;
    const int64_t each = (int64_t)an_dtype_bytes(at->dtype), part = at->part_bytes / each;
    an_kernel k = {.kind = AN_KERNEL_CALL,
                   .name = "gather_weights",
                   .bytes = 2 * (uint64_t)at->bytes,
                   .u.call = {.op = AN_OP_ALLGATHER,
                              .dtype = (uint8_t)at->dtype,
                              .n_src = 1,
                              .n_out = 1,
                              .attr = {w->g->ranks, part, at->offset / each}}};
    k.u.call.src[0] = (an_call_tensor){.rank = 1, .dtype = (uint8_t)at->dtype, .shape = {(int32_t)part}};
    k.u.call.out[0] = (an_call_tensor){.rank = 1, .dtype = (uint8_t)at->dtype, .shape = {(int32_t)(at->bytes / each)}};
    const an_arg arg[2] = {{.slot = at->slot, .bytes = at->part_bytes, .value = -1},
                           {.slot = AN_SLOT_ARENA, .bytes = at->bytes, .written = true, .value = l->value}};
    an_plan_step *s = an_step_new(w, an_kernel_new(w, k), arg, 2, w->plan->step[l->first].scope);
    if (!s) return no_memory(x);
    s->phase = w->plan->step[l->first].phase;
    l->step = w->plan->n_steps - 1;
    return AN_OK;
}

/* The launch before which life i is gathered. */
static int32_t begins(const gathering *x, int32_t i)
{
    return x->lives[x->w->rq->gather_ahead && i > 0 ? i - 1 : i].first;
}

/* Gathers were added behind all launches: puts each where it begins. Lives are in the order of their first readers. */
static an_status put_in_order(gathering *x)
{
    an_plan *p = x->w->plan;
    an_plan_step *all = AN_NEW_ARRAY(&x->w->scratch, an_plan_step, p->n_steps + 1);
    if (!all) return no_memory(x);
    int32_t n = 0, next = 0;
    for (int32_t s = 0; s < x->steps; s++) {
        while (next < x->n_lives && begins(x, next) <= s) all[n++] = p->step[x->lives[next++].step];
        all[n++] = p->step[s];
    }
    for (int32_t s = 0; s < n; s++) p->step[s] = all[s];
    return AN_OK;
}

an_status an_pass_gather_weights(an_planner *w)
{
    gathering x = {.w = w, .steps = w->plan->n_steps};
    AN_TRY(find_params(&x));
    if (x.n_params == 0) return AN_OK;
    make_pieces(&x);
    for (int32_t s = 0; s < x.steps; s++)
        for (int a = 0; a < w->plan->step[s].n_args; a++)
            if (w->plan->step[s].arg[a].slot >= AN_SLOT_IN_PARTS) AN_TRY(read_piece(&x, s, &w->plan->step[s].arg[a]));
    for (int32_t i = 0; i < x.n_lives; i++) AN_TRY(add_gather(&x, &x.lives[i]));
    return put_in_order(&x);
}
