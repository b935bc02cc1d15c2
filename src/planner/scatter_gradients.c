/* scatter_gradients.c: packed gradients of which each rank gets the sums of its part (REDUCESCATTER of a PACK: an_shard_optimizer)
 * are exchanged piece by piece, and their memory is free again behind it.
 *
 * Until here the gradients of a block are one value and one exchange, behind all of them. A piece is neighbours in the block, or one
 * larger parameter. It lives from the first launch that writes a gradient of it to its exchange, which comes behind the last:
 *
 *     launches   GEMM dp9  GEMM dp8  sum(p8, p9)  GEMM dp7  ...  sum(p0, p1)  update of this rank's part
 *     p8, p9     <------------------------------>
 *
 * Where launches run side by side a piece's exchange comes behind the gradients of the next one, so that these have other memory
 * and need not wait for it: in a captured graph it still begins as soon as its own gradients are there. With an exchange that may not
 * begin early (an_overlap_exchanges) the pieces are the same, for the same bits, but behind all gradients and in one value.
 *
 * Sums go to the array of this rank's part, which has memory as far as it was begun (assign_buffers.c).
 *
 * Invariant: every rank has the same exchanges in the same order. */
#include "planner/planner_internal.h"

#include "comm/comm.h"

#include <stdlib.h>

typedef struct piece {
    int64_t from, bytes; /* in the block */
    int32_t block;
    int32_t ready;  /* the last step that computes some of it */
    int32_t behind; /* the step that its exchange follows */
    int32_t step;   /* the exchange, behind all others until they are put in order */
    int32_t value;
} piece;

typedef struct block {
    int32_t value, pack, exchange; /* packed gradients, their node, the step that exchanges them */
    int32_t first, n;              /* of `pieces` */
    bool early;
} block;

typedef struct scattering {
    an_planner *w;
    block *blocks;
    piece *pieces;
    int32_t *fills; /* [steps]: the piece that the step fills with zeros or copies, which move with its exchange; -1 */
    int32_t n_blocks, n_pieces;
    int32_t steps; /* before exchanges are added */
} scattering;

static an_status no_memory(const scattering *x)
{
    return an_fail_nomem(x->w->err, "exchanges of gradients", 0);
}

/* ---- which exchanges, in which pieces */

static bool is_scatter_of_pack(const an_planner *w, int32_t s)
{
    const an_plan *p = w->plan;
    const an_plan_step *st = &p->step[s];
    const an_kernel *k = &p->kernel[st->kernel];
    if (k->kind != AN_KERNEL_CALL || k->u.call.op != AN_OP_REDUCESCATTER || st->arg[0].value < 0) return false;
    const an_value *v = &p->value[st->arg[0].value];
    if (v->inside >= 0 || v->node < 0 || w->g->node[v->node]->op != AN_OP_PACK || an_is_root_base(w, v->node))
        return false;
    /* Where launches do not run side by side, sums with earlier micro-batches lie in the block's store (optim/grad_accumulate.c): pieces
     * would free nothing, and one exchange is shorter. */
    if (!w->rq->target->side_by_side && w->g->node[v->node]->phase == AN_PHASE_UPDATE) return false;
    for (int32_t t = 0; t < p->n_steps; t++)
        for (int a = 0; a < p->step[t].n_args; a++)
            if (t != s && !p->step[t].arg[a].written && p->step[t].arg[a].value == st->arg[0].value) return false;
    return true;
}

/* A sixteenth of the block: exchanges of less take as long, and a larger last one is not hidden. */
static int64_t piece_bytes(int64_t block_bytes)
{
    return AN_MIN(AN_MAX(block_bytes / 16, (int64_t)1 << 20), (int64_t)25 << 20);
}

/* Each begins where a parameter does. */
static an_status make_pieces(scattering *x, int32_t b)
{
    an_planner *w = x->w;
    block *bl = &x->blocks[b];
    const struct an_tensor *n = w->g->node[bl->pack];
    const int64_t all = w->plan->value[bl->value].bytes;
    int64_t *at = AN_NEW_ARRAY(&w->scratch, int64_t, n->n_src + 1), whole;
    if (!at) return no_memory(x);
    for (int s = 0; s < n->n_src; s++) at[s] = w->rq->pack(w->rq->user, (int)n->attr[0], s, &whole);
    qsort(at, n->n_src, sizeof *at, an_by_number);
    at[n->n_src] = all;
    bl->first = x->n_pieces;
    for (int s = 0; s < n->n_src; s++) {
        piece *q = s ? &x->pieces[x->n_pieces - 1] : NULL;
        if (!q || at[s + 1] - q->from > piece_bytes(all)) {
            q = &x->pieces[x->n_pieces++];
            *q = (piece){.from = s ? at[s] : 0, .block = b, .ready = -1, .step = -1, .value = bl->value};
        }
        q->bytes = at[s + 1] - q->from;
    }
    bl->n = x->n_pieces - bl->first;
    return AN_OK;
}

static an_status find_blocks(scattering *x)
{
    const an_plan *p = x->w->plan;
    int32_t n_blocks = 0, n_params = 0;
    for (int32_t s = 0; s < x->steps; s++) {
        if (!is_scatter_of_pack(x->w, s)) continue;
        n_blocks++;
        n_params += x->w->g->node[p->value[p->step[s].arg[0].value].node]->n_src;
    }
    if (!n_blocks) return AN_OK;
    x->blocks = AN_NEW_ARRAY(&x->w->scratch, block, n_blocks);
    x->pieces = AN_NEW_ARRAY(&x->w->scratch, piece, n_params);
    x->fills = AN_NEW_ARRAY(&x->w->scratch, int32_t, x->steps);
    if (!x->blocks || !x->pieces || !x->fills) return no_memory(x);
    for (int32_t s = 0; s < x->steps; s++) {
        if (!is_scatter_of_pack(x->w, s)) continue;
        const int32_t v = p->step[s].arg[0].value;
        x->blocks[x->n_blocks] = (block){.value = v,
                                         .pack = p->value[v].node,
                                         .exchange = s,
                                         .early = p->kernel[p->step[s].kernel].u.call.attr[1] != 0};
        AN_TRY(make_pieces(x, x->n_blocks++));
    }
    return AN_OK;
}

/* The piece that has byte `at` of block b. */
static int32_t piece_at(const scattering *x, int32_t b, int64_t at)
{
    int32_t i = x->blocks[b].first + x->blocks[b].n - 1;
    while (i > x->blocks[b].first && x->pieces[i].from > at) i--;
    return i;
}

/* The piece in which the argument, or what it is inside of, begins; -1: it is of no block. */
static int32_t piece_of(const scattering *x, const an_arg *a)
{
    const an_plan *p = x->w->plan;
    int64_t at = a->offset;
    int32_t v = a->value;
    for (; v >= 0 && p->value[v].inside >= 0; v = p->value[v].inside) at += p->value[v].offset;
    for (int32_t b = 0; v >= 0 && b < x->n_blocks; b++)
        if (x->blocks[b].value == v) return piece_at(x, b, at);
    return -1;
}

/* ---- when a piece can be exchanged */

/* The last step before s that writes anywhere in the container of what argument `read` names; -1: none. */
static int32_t last_writer_of_container(const an_plan *p, int32_t s, const an_arg *read)
{
    int32_t of = read->value;
    while (of >= 0 && p->value[of].inside >= 0) of = p->value[of].inside;
    for (int32_t t = s - 1; t >= 0 && of >= 0; t--)
        for (int a = 0; a < p->step[t].n_args; a++) {
            int32_t v = p->step[t].arg[a].written ? p->step[t].arg[a].value : -1;
            while (v >= 0 && p->value[v].inside >= 0) v = p->value[v].inside;
            if (v == of) return t;
        }
    return -1;
}

static void find_readiness(scattering *x)
{
    const an_plan *p = x->w->plan;
    for (int32_t s = 0; s < x->steps; s++) {
        const an_plan_step *st = &p->step[s];
        const an_kernel_kind kind = p->kernel[st->kernel].kind;
        x->fills[s] = -1;
        for (int a = 0; a < st->n_args; a++) {
            const int32_t i = st->arg[a].written ? piece_of(x, &st->arg[a]) : -1;
            int32_t ready = s;
            if (i < 0) continue;
            /* The pack's own zeros and copies name the block, not a gradient in it. */
            if (p->value[st->arg[a].value].inside < 0 && (kind == AN_KERNEL_ZERO || kind == AN_KERNEL_COPY)) {
                x->fills[s] = i;
                ready = kind == AN_KERNEL_COPY ? last_writer_of_container(p, s, &st->arg[0]) : -1;
            }
            x->pieces[i].ready = AN_MAX(x->pieces[i].ready, ready);
        }
    }
    for (int32_t i = 0; i < x->n_pieces; i++)
        if (x->pieces[i].ready < 0) x->pieces[i].ready = x->blocks[x->pieces[i].block].exchange;
}

static int by_readiness(const void *x, const void *y)
{
    const piece *a = *(piece *const *)x, *b = *(piece *const *)y;
    if (a->ready != b->ready) return a->ready < b->ready ? -1 : 1;
    if (a->block != b->block) return a->block < b->block ? -1 : 1;
    return a->from > b->from ? -1 : a->from < b->from;
}

/* ---- exchanges */

static an_status add_exchange(scattering *x, piece *q)
{
    an_planner *w = x->w;
    const an_plan_step whole = w->plan->step[x->blocks[q->block].exchange];
    an_kernel k = w->plan->kernel[whole.kernel];
    const int64_t size = (int64_t)an_dtype_bytes((an_dtype)k.u.call.src[0].dtype), n = q->bytes / size,
                  part = k.u.call.out[0].shape[0];
    int64_t from;
    const int64_t mine = an_comm_range_of(part, q->from / size, n, w->g->rank, &from);
    k.u.call.attr[2] = part;
    k.u.call.attr[3] = q->from / size;
    k.u.call.src[0].rank = 1;
    k.u.call.src[0].shape[0] = (int32_t)n;
    k.flops = (uint64_t)n;
    k.bytes = 2 * (uint64_t)q->bytes;
    an_arg arg[2] = {whole.arg[0], whole.arg[1]};
    arg[0].offset = q->from;
    arg[0].bytes = q->bytes;
    arg[1].offset += mine ? from * size : 0;
    arg[1].bytes = mine * size;
    an_plan_step *s = an_step_new(w, an_kernel_new(w, k), arg, 2, whole.scope);
    if (!s) return no_memory(x);
    s->phase = whole.phase;
    q->step = w->plan->n_steps - 1;
    return AN_OK;
}

/* Puts what fills up a piece, and its exchange, behind the steps that they follow. `order`: by readiness. */
static an_status put_in_order(scattering *x, piece *const *order)
{
    an_plan *p = x->w->plan;
    an_plan_step *all = AN_NEW_ARRAY(&x->w->scratch, an_plan_step, p->n_steps + 1);
    if (!all) return no_memory(x);
    int32_t n = 0, next = 0;
    for (int32_t s = 0; s < x->steps; s++) {
        bool moves = x->fills[s] >= 0;
        for (int32_t b = 0; b < x->n_blocks; b++) moves |= x->blocks[b].exchange == s;
        if (!moves) all[n++] = p->step[s];
        for (; next < x->n_pieces && order[next]->behind <= s; next++) {
            for (int32_t t = 0; t < x->steps; t++)
                if (x->fills[t] >= 0 && &x->pieces[x->fills[t]] == order[next]) all[n++] = p->step[t];
            all[n++] = p->step[order[next]->step];
        }
    }
    for (int32_t s = 0; s < n; s++) p->step[s] = all[s];
    p->n_steps = n;
    return AN_OK;
}

/* Which steps the exchanges follow, in the order of `order`. */
static void choose_places(const scattering *x, piece *const *order)
{
    const bool side_by_side = x->w->rq->target->side_by_side;
    for (int32_t i = 0; i < x->n_pieces; i++) {
        const block *b = &x->blocks[order[i]->block];
        const bool next = side_by_side && i + 1 < x->n_pieces && x->blocks[order[i + 1]->block].early;
        order[i]->behind = !b->early ? b->exchange : order[next ? i + 1 : i]->ready;
        if (i > 0) order[i]->behind = AN_MAX(order[i]->behind, order[i - 1]->behind);
    }
}

/* ---- memory */

/* Each piece of a block becomes a value of its own. */
static an_status divide_values(scattering *x)
{
    an_planner *w = x->w;
    an_plan *p = w->plan;
    for (int32_t i = 0; i < x->n_pieces; i++) {
        piece *q = &x->pieces[i];
        if (!x->blocks[q->block].early) continue;
        const int32_t v = x->blocks[q->block].value;
        q->value = an_value_new(w, p->value[v].node, 0, q->bytes, AN_USE_GRADIENT, p->value[v].name);
        if (q->value < 0) return no_memory(x);
    }
    for (int32_t b = 0; b < x->n_blocks; b++) {
        if (!x->blocks[b].early) continue;
        for (int32_t v = 0; v < p->n_values; v++) {
            if (p->value[v].inside != x->blocks[b].value) continue;
            const piece *q = &x->pieces[piece_at(x, b, p->value[v].offset)];
            p->value[v].inside = q->value;
            p->value[v].offset -= q->from;
        }
        for (int32_t s = 0; s < p->n_steps; s++)
            for (int a = 0; a < p->step[s].n_args; a++) {
                an_arg *g = &p->step[s].arg[a];
                if (g->value != x->blocks[b].value) continue;
                const piece *q = &x->pieces[piece_at(x, b, g->offset)];
                g->value = q->value;
                g->offset -= q->from;
            }
    }
    return AN_OK;
}

an_status an_pass_scatter_gradients(an_planner *w)
{
    scattering x = {.w = w, .steps = w->plan->n_steps};
    AN_TRY(find_blocks(&x));
    if (!x.n_blocks) return AN_OK;
    find_readiness(&x);
    piece **order = AN_NEW_ARRAY(&w->scratch, piece *, x.n_pieces + 1);
    if (!order) return no_memory(&x);
    for (int32_t i = 0; i < x.n_pieces; i++) order[i] = &x.pieces[i];
    qsort(order, (size_t)x.n_pieces, sizeof *order, by_readiness);
    choose_places(&x, order);
    for (int32_t i = 0; i < x.n_pieces; i++) AN_TRY(add_exchange(&x, order[i]));
    AN_TRY(put_in_order(&x, order));
    return divide_values(&x);
}
