/* act.c: the carry of a batch of slots, halting, losses, and the update of the puzzle table. See act.h. */
#include "models/trm/act.h"
#include <anneal_tools.h>
#include <stdio.h>

static const char evaluation[] = "evaluation";

/* ---- the carry */

typedef struct carry {
    an_trm_state z;                   /* [B,L,D] */
    an_tensor *inputs, *labels;       /* i32 [B,S] */
    an_tensor *ids, *steps, *running; /* i32 [B] */
} carry;

static an_tensor *state(const an_act *a, const char *owner, const char *what, an_dtype dtype, an_shape shape)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s", owner, what);
    return an_state_at(AN_AT, an_trm_context(a->m), name, dtype, shape, AN_ZEROS);
}

static carry carry_of(const an_act *a, int64_t micro, int64_t B)
{
    char owner[32] = "carry";
    const an_trm_config *c = an_trm_config_of(a->m);
    const an_dtype stream = an_trm_stream_dtype(a->m);
    if (a->micros > 1) snprintf(owner, sizeof owner, "carry.%d", (int)micro);
    const an_shape z = AN_SHAPE(B, an_trm_length(c), c->width), cells = AN_SHAPE(B, c->seq), slots = AN_SHAPE(B);
    return (carry){.z = {state(a, owner, "z_H", stream, z), state(a, owner, "z_L", stream, z)},
                   .inputs = state(a, owner, "inputs", AN_I32, cells),
                   .labels = state(a, owner, "labels", AN_I32, cells),
                   .ids = state(a, owner, "ids", AN_I32, slots),
                   .steps = state(a, owner, "steps", AN_I32, slots),
                   .running = state(a, owner, "running", AN_I32, slots)};
}

static an_tensor *integer(const an_act *a, int64_t x)
{
    return an_const(an_trm_context(a->m), AN_I32, (double)x);
}

/* x [B] as [B,1,...] of this rank. */
static an_tensor *spread(an_tensor *x, int rank)
{
    an_shape s = {.rank = rank, .dim = {an_shape_of(x).dim[0], 1, 1}};
    return an_reshape(x, s);
}

/* Where `fresh` (bool [B]) the initial states, else `z`. */
static an_trm_state begin_where(const an_act *a, an_tensor *fresh, an_trm_state z)
{
    const an_trm_state initial = an_trm_initial(a->m); /* [1,1,D] */
    an_tensor *where = spread(fresh, 3);               /* bool [B,1,1] */
    const an_shape shape = an_shape_of(z.z_H);         /* [B,L,D] */
    where = an_expand(where, shape);
    return (an_trm_state){an_where(where, an_expand(initial.z_H, shape), z.z_H),
                          an_where(where, an_expand(initial.z_L, shape), z.z_L)};
}

/* The carry as this call sees it: slots that had halted begin on the batch's data. */
static carry admit(const an_act *a, const carry *was, an_tensor *const *in)
{
    an_tensor *fresh = an_eq(was->running, integer(a, 0));                    /* bool [B] */
    an_tensor *cells = an_expand(spread(fresh, 2), an_shape_of(was->inputs)); /* bool [B,S] */
    an_tensor *one = integer(a, 1),
              *kept = an_where(fresh, an_mul(was->steps, integer(a, 0)), was->steps); /* i32 [B] */
    return (carry){.z = begin_where(a, fresh, was->z),
                   .inputs = an_where(cells, in[0], was->inputs),
                   .labels = an_where(cells, in[1], was->labels),
                   .ids = an_where(fresh, in[2], was->ids),
                   .steps = an_add(kept, one),
                   .running = was->running};
}

static void store(const carry *was, const carry *now, an_trm_state z, an_tensor *halted)
{
    an_assign(was->z.z_H, z.z_H);
    an_assign(was->z.z_L, z.z_L);
    an_assign(was->inputs, now->inputs);
    an_assign(was->labels, now->labels);
    an_assign(was->ids, now->ids);
    an_assign(was->steps, now->steps);
    an_assign(was->running, an_cast(an_not(halted), AN_I32));
}

/* ---- halting */

/* q [B,2]: q_halt (0) or q_continue (1), [B]. */
static an_tensor *q_of(an_tensor *q, int64_t which)
{
    return an_reshape(an_slice(q, 1, which, which + 1), AN_SHAPE(an_shape_of(q).dim[0]));
}

/* Steps that each slot must take at least: 0, or with probability `explore` one of 2 ... max; i32 [B]. */
static an_tensor *least_steps(const an_act *a, int64_t B)
{
    an_ctx *cx = an_trm_context(a->m);
    const int64_t max = an_trm_config_of(a->m)->steps;
    an_tensor *part = an_const(cx, AN_F32, a->c.explore);
    an_tensor *explores = an_lt(an_rand(cx, AN_SHAPE(B)), part);                         /* bool [B] */
    an_tensor *draw = an_floor(an_mul_num(an_rand(cx, AN_SHAPE(B)), (double)(max - 1))); /* f32 [B], 0 ... max - 2 */
    an_tensor *most = integer(a, max), *least = an_minimum(an_add_num(an_cast(draw, AN_I32), 2), most);
    return an_where(explores, least, an_mul(least, integer(a, 0)));
}

/* bool [B]; q [B,2] or NULL: only at the last step. */
static an_tensor *halts(const an_act *a, an_tensor *steps, an_tensor *q)
{
    const int64_t max = an_trm_config_of(a->m)->steps;
    an_tensor *last = an_ge(steps, integer(a, max)); /* bool [B] */
    if (!q || max == 1) return last;
    an_tensor *halt = q_of(q, 0);
    an_tensor *other = a->c.no_continue ? an_mul_num(halt, 0) : q_of(q, 1);
    an_tensor *stops = an_or(last, an_gt(halt, other)); /* bool [B] */
    if (a->c.explore <= 0) return stops;
    return an_and(stops, an_ge(steps, least_steps(a, an_shape_of(steps).dim[0])));
}

/* ---- losses */

/* max(x, 0) - x target + log(1 + exp(-|x|)) */
static an_tensor *binary_cross_entropy(an_tensor *x, an_tensor *target)
{
    an_tensor *hit = an_mul(x, target);
    return an_sub(an_softplus(x), hit);
}

/* The losses and accuracies of each slot, [B]. */
typedef struct results {
    an_tensor *labelled;         /* bool: the slot has a label */
    an_tensor *tokens;           /* how many labels, at least 1 */
    an_tensor *token_loss;       /* the sum of their losses */
    an_tensor *accuracy, *exact; /* the share of right cells; 1 where all are, else 0. NULL: not computed */
} results;

/* Sums over the cells of each slot: x [B,S] to [B]. */
static an_tensor *per_slot(an_tensor *x)
{
    return an_sum(x, AN_AXIS(1));
}

/* z_H [B,L,D], labels i32 [B,S] */
static results grade(const an_act *a, an_tensor *z_H, an_tensor *labels)
{
    an_ctx *cx = an_trm_context(a->m);
    an_tensor *valid = an_ge(labels, integer(a, 0)); /* bool [B,S] */
    if (an_trm_config_of(a->m)->causal && !a->c.stablemax) {
        an_tensor *head = an_trm_head(a->m);
        an_tensor *each = an_linear_cross_entropy(an_trm_answer(a->m, z_H), head, labels); /* [B,S] */
        an_tensor *n = per_slot(an_cast(valid, AN_F32));
        return (results){.labelled = an_gt(n, an_const(cx, AN_F32, 0)),
                         .tokens = an_maximum(n, an_const(cx, AN_F32, 1)),
                         .token_loss = per_slot(each)};
    }
    an_tensor *logits = an_trm_logits(a->m, z_H); /* [B,S,V] */
    const an_dtype dtype = an_dtype_of(logits);
    an_tensor *each =
        a->c.stablemax ? an_stablemax_cross_entropy(logits, labels) : an_cross_entropy(logits, labels); /* [B,S] */
    an_tensor *right = an_and(an_eq(an_argmax(logits, 2), labels), valid);                              /* bool [B,S] */
    an_tensor *n = per_slot(an_cast(valid, dtype)), *hits = per_slot(an_cast(right, dtype));
    an_tensor *tokens = an_maximum(n, an_const(cx, dtype, 1));
    return (results){.labelled = an_gt(n, an_const(cx, dtype, 0)),
                     .tokens = tokens,
                     .token_loss = per_slot(an_cast(each, dtype)),
                     .accuracy = an_div(hits, tokens),
                     .exact = an_cast(an_eq(hits, n), dtype)};
}

static an_tensor *total(an_tensor *x)
{
    return an_sum(x, AN_ALL);
}

/* Sum over the slots where `counts`. */
static an_tensor *total_where(an_tensor *counts, an_tensor *x)
{
    return total(an_mul(an_cast(counts, an_dtype_of(x)), x));
}

/* `counts` (bool [B]): the slots whose accuracies are reported. */
static an_act_losses sum_up(const results *r, an_tensor *q, an_tensor *q_loss, an_tensor *steps, an_tensor *counts)
{
    an_tensor *lm = total(an_div(r->token_loss, r->tokens)); /* scalar */
    if (!q) return (an_act_losses){.loss = lm, .sum = {total(r->token_loss), total_where(r->labelled, r->tokens)}};
    const an_dtype dtype = an_dtype_of(lm);
    an_tensor *loss = an_add(lm, an_mul_num(q_loss, 0.5)), *halt = q_of(q, 0);
    an_tensor *says = an_cast(an_ge(halt, an_mul_num(halt, 0)), dtype); /* [B] */
    an_tensor *agrees = an_cast(an_eq(says, r->exact), dtype);
    return (an_act_losses){.loss = loss,
                           .sum = {loss, total_where(counts, r->accuracy), total_where(counts, r->exact),
                                   total_where(counts, agrees), q_loss, lm, total_where(counts, an_cast(steps, dtype)),
                                   total(an_cast(counts, dtype))}};
}

/* The target of q_continue, as in Q-learning: the larger of q_halt and q_continue after one more call, as a probability
 * [B]; at the last step q_halt. x [B,L,D], steps i32 [B]. */
static an_tensor *next_value(const an_act *a, an_trm_state z, an_tensor *x, an_tensor *steps)
{
    const int64_t max = an_trm_config_of(a->m)->steps;
    an_tensor *q = an_trm_q(a->m, an_trm_call(a->m, z, x).z_H); /* [B,2] */
    an_tensor *last = an_ge(steps, integer(a, max));
    an_tensor *goes_on = q_of(q, 1), *larger = an_maximum(q_of(q, 0), goes_on);
    return an_detach(an_sigmoid(an_where(last, q_of(q, 0), larger)));
}

/* The rows of the puzzle table for ids i32 [B]; NULL without a table. They are kept for an_act_update. */
static an_tensor *rows_of(an_act *a, an_tensor *ids)
{
    an_tensor *table = an_trm_puzzle_table(a->m);
    a->ids = ids;
    a->rows = table ? an_gather(table, ids) : NULL; /* [B,puzzle_width] */
    return a->rows;
}

an_act_losses an_act_train(an_act *a, an_tensor *const *in)
{
    const int64_t B = an_shape_of(in[0]).dim[0];
    const bool causal = an_trm_config_of(a->m)->causal;
    for (int64_t micro = 0; micro < a->micros; micro++) carry_of(a, micro, B); /* all are declared together */
    const carry was = carry_of(a, a->micro, B), now = admit(a, &was, in);
    an_tensor *x = an_trm_embed(a->m, now.inputs, rows_of(a, now.ids)); /* [B,L,D] */
    const an_trm_state z = an_trm_call(a->m, now.z, x);
    const results r = grade(a, z.z_H, now.labels);
    an_tensor *q = causal ? NULL : an_trm_q(a->m, z.z_H), *q_loss = NULL; /* [B,2], scalar */
    if (q) q_loss = total(binary_cross_entropy(q_of(q, 0), r.exact));
    if (q && !a->c.no_continue && an_trm_config_of(a->m)->steps > 1) {
        an_tensor *value = next_value(a, z, x, now.steps);
        q_loss = an_add(q_loss, total(binary_cross_entropy(q_of(q, 1), value)));
    }
    an_tensor *halted = halts(a, now.steps, q); /* bool [B] */
    store(&was, &now, z, halted);
    an_act_losses l = sum_up(&r, q, q_loss, now.steps, an_and(halted, r.labelled));
    l.loss = an_mul_num(l.loss, 1.0 / (double)B);
    return l;
}

/* ---- evaluation: a fresh carry for each batch, all calls on the same data */

typedef struct trial {
    an_trm_state z;       /* after this call */
    an_tensor *q, *steps; /* [B,2] or NULL; i32 [B] */
} trial;

/* Call number place.call of a batch; slots that stopped keep what they have. */
static trial try(an_act *a, an_tensor *tokens, an_tensor *ids)
{
    const an_trm_config *c = an_trm_config_of(a->m);
    const int64_t B = an_shape_of(tokens).dim[0];
    const an_dtype stream = an_trm_stream_dtype(a->m);
    const an_shape shape = AN_SHAPE(B, an_trm_length(c), c->width);
    an_tensor *was_H = state(a, evaluation, "z_H", stream, shape), *was_L = state(a, evaluation, "z_L", stream, shape);
    an_tensor *was_steps = state(a, evaluation, "steps", AN_I32, AN_SHAPE(B));
    an_tensor *was_done = state(a, evaluation, "done", AN_I32, AN_SHAPE(B)); /* 1: stopped */
    an_tensor *call = an_scalar_i32(an_trm_context(a->m), (int32_t)a->call);
    an_tensor *fresh = an_expand(an_reshape(an_eq(call, integer(a, 0)), AN_SHAPE(1)), AN_SHAPE(B)); /* bool [B] */
    an_tensor *nothing = an_mul(was_done, integer(a, 0));                                           /* zeros i32 [B] */
    an_tensor *done = an_gt(an_where(fresh, nothing, was_done), nothing);                           /* bool [B] */
    const an_trm_state z = begin_where(a, fresh, (an_trm_state){was_H, was_L});
    if (a->c.blank_ids) ids = an_mul(ids, integer(a, 0));
    trial t = {.z = an_trm_call(a->m, z, an_trm_embed(a->m, tokens, rows_of(a, ids)))};
    an_tensor *keeps = an_expand(spread(done, 3), shape);
    t.z.z_H = an_where(keeps, z.z_H, t.z.z_H);
    t.z.z_L = an_where(keeps, z.z_L, t.z.z_L);
    an_tensor *one_more = an_cast(an_not(done), AN_I32);
    t.steps = an_add(an_where(fresh, nothing, was_steps), one_more);
    t.q = c->causal ? NULL : an_trm_q(a->m, t.z.z_H);
    if (a->c.eval_halt && t.q) {
        an_tensor *halt = q_of(t.q, 0);
        done = an_or(done, an_gt(halt, an_mul_num(halt, 0)));
    }
    an_assign(was_H, t.z.z_H);
    an_assign(was_L, t.z.z_L);
    an_assign(was_steps, t.steps);
    an_assign(was_done, an_cast(done, AN_I32));
    return t;
}

an_act_losses an_act_evaluate(an_act *a, an_tensor *const *in)
{
    const trial t = try(a, in[0], in[2]);
    const results r = grade(a, t.z.z_H, in[1]);
    an_tensor *q_loss = NULL;
    if (t.q) {
        an_tensor *each = binary_cross_entropy(q_of(t.q, 0), r.exact);
        q_loss =
            total(an_mul(an_cast(r.labelled, an_dtype_of(each)), each)); /* slots behind the last sample have none */
    }
    return sum_up(&r, t.q, q_loss, t.steps, r.labelled);
}

void an_act_solve(an_act *a, an_tensor *tokens, an_tensor *ids, an_tensor **answer, an_tensor **q_halt)
{
    const trial t = try(a, tokens, ids);
    *answer = an_argmax(an_trm_logits(a->m, t.z.z_H), 2);
    *q_halt = t.q ? an_cast(q_of(t.q, 0), AN_F32) : NULL;
}

/* ---- the puzzle table */

/* One step of sign descent on every row of the table that an id names. g [B,n] and ids i32 [B] are of all slots of an
 * update. */
static void step_rows(const an_act *a, an_tensor *ids, an_tensor *g, an_tensor *only_if)
{
    an_sign_sgd_rows(an_trm_puzzle_table(a->m), ids, g, a->c.puzzle_lr * a->lr_share, a->c.puzzle_decay, only_if);
}

static int64_t ranks_of(const an_act *a)
{
    return a->ranks > 1 ? a->ranks : 1;
}

/* x [A*B,...] of this rank's micro-batches: [ranks*A*B,...] of all, in the order of one process. */
static an_tensor *of_all_ranks(const an_act *a, an_tensor *x, int64_t B)
{
    const an_shape own = an_shape_of(x);
    const int64_t N = ranks_of(a), A = own.dim[0] / B, n = own.rank > 1 ? own.dim[1] : 1;
    if (N == 1) return x;
    x = an_reshape(an_all_gather(x), AN_SHAPE(N, A, B * n)); /* micro-batch m is of rank m mod N */
    x = an_transpose(x, 0, 1);                               /* [A,N,B*n] */
    return an_reshape(x, own.rank > 1 ? AN_SHAPE(N * A * B, n) : AN_SHAPE(N * A * B));
}

bool an_act_update(an_act *a, an_tensor *only_if)
{
    if (!a->rows) return false;
    /* of this rank: how many micro-batches an update has, and which one this is */
    const int64_t micros = a->micros / ranks_of(a), micro = a->micro / ranks_of(a);
    const int64_t B = an_shape_of(a->ids).dim[0], n = an_shape_of(a->rows).dim[1];
    an_tensor *g = an_grad(a->rows), *all_ids = a->ids; /* [B,n], [B] */
    if (!g) return false;
    enum { MOST = 1024 };                   /* parts that an_concat joins */
    an_tensor *gradients[MOST], *ids[MOST]; /* of the micro-batches */
    for (int64_t i = 0; micros > 1 && i < micros && i < MOST; i++) {
        char owner[32];
        snprintf(owner, sizeof owner, "%s.%d", evaluation, (int)i);
        gradients[i] = state(a, owner, "row_gradients", an_dtype_of(g), AN_SHAPE(B, n));
        ids[i] = state(a, owner, "row_ids", AN_I32, AN_SHAPE(B));
    }
    if (micros > MOST) { /* an_concat records that it is too many */
        (void)an_concat(gradients, (int)micros, 0);
        return true;
    }
    if (micro < micros - 1) {
        an_assign(gradients[micro], g);
        an_assign(ids[micro], a->ids);
        return true;
    }
    if (micros > 1) {
        gradients[micros - 1] = g;
        ids[micros - 1] = a->ids;
        all_ids = an_concat(ids, (int)micros, 0);
        g = an_concat(gradients, (int)micros, 0);
    }
    g = of_all_ranks(a, g, B);
    step_rows(a, of_all_ranks(a, all_ids, B), g, only_if);
    return true;
}
