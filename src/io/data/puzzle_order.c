/* puzzle_order.c: which examples a training batch of puzzle_set.h holds, as a function of (order, update).
 *
 *     pass     `epochs_per_pass` epochs over one part (a set of files) of the data; the parts take turns
 *     epoch    all groups in a random order, and of each group one random puzzle: a *draw*
 *     batch    the examples of one draw after the other, of the last one as many as fit; at the end of a pass a batch that
 *              is not full is dropped
 *
 * A batch's *place* is the number of the draw at which it begins, which depends on the sizes of all puzzles drawn before.
 * Where every puzzle has as many examples it is a quotient. Else batches are walked through, from the nearest earlier batch whose
 * place is remembered. */
#include "base/map.h"
#include "base/rng.h"
#include "io/data/order.h"
#include "io/data/puzzle_impl.h"
#include <stdlib.h>
#include <string.h>

enum { PLACE_EVERY = 64 };
#define MAX_COUNTED (1LL << 28) /* draws: half a minute, in which nothing is shown */

typedef struct drawn {
    int64_t first, size; /* examples of the puzzle, in its part */
    uint32_t at;         /* the draw's number in its epoch */
} drawn;

static int64_t epochs_of(const an_puzzle_order *o)
{
    return o->epochs_per_pass > 0 ? o->epochs_per_pass : 1;
}

static const an_puzzle_part *part_of(const an_puzzle_set *s, uint64_t pass)
{
    return &s->part[pass % (uint64_t)s->n_parts];
}

/* What all draws of an epoch share. */
typedef struct epoch_keys {
    uint64_t epoch;
    uint32_t key, groups, which;
    uint64_t examples; /* hash of the name of the streams of examples */
} epoch_keys;

static epoch_keys keys_of(const an_puzzle_order *o, uint64_t epoch)
{
    return (epoch_keys){.epoch = epoch,
                        .key = an_rng_key(o->seed, epoch),
                        .groups = an_rng_stream(an_hash("groups", 6, 0), 0),
                        .which = an_rng_stream(an_hash("puzzles", 7, 0), 0),
                        .examples = an_hash("examples", 8, 0)};
}

/* The puzzle of draw number `draw` of a pass; *k is of this epoch, or becomes so. */
static drawn draw_puzzle(const an_puzzle_part *p, const an_puzzle_order *o, uint64_t pass, int64_t draw, epoch_keys *k)
{
    const uint64_t epoch = pass * (uint64_t)epochs_of(o) + (uint64_t)(draw / p->groups);
    if (epoch != k->epoch) *k = keys_of(o, epoch);
    const uint64_t at = (uint64_t)(draw % p->groups);
    const uint64_t group = an_shuffled(at, (uint64_t)p->groups, k->key, k->groups);
    const int64_t first = p->group_at[group], count = p->group_at[group + 1] - first;
    int64_t puzzle = first;
    if (count > 1) {
        const uint64_t u =
            (uint64_t)an_rng_u32(k->key, k->which, 2 * at) << 32 | an_rng_u32(k->key, k->which, 2 * at + 1);
        puzzle += (int64_t)an_multiply_high(u, (uint64_t)count);
    }
    return (drawn){
        .first = p->puzzle_at[puzzle], .size = p->puzzle_at[puzzle + 1] - p->puzzle_at[puzzle], .at = (uint32_t)at};
}

/* Walks through the batch that begins at *at, which moves to the next one; its examples first ... first + n go to `out`
 * (NULL: none are wanted). False: the pass ends before the batch is full. */
static bool walk_with(const an_puzzle_set *s, const an_puzzle_order *o, an_puzzle_place *at, int64_t first, int64_t n,
                      epoch_keys *k, int64_t *out)
{
    const an_puzzle_part *p = part_of(s, at->pass);
    const int64_t draws = epochs_of(o) * p->groups;
    for (int64_t have = 0; have < o->per_update;) {
        if (at->draw >= draws) return false;
        const drawn d = draw_puzzle(p, o, at->pass, at->draw++, k);
        const int64_t take = AN_MIN(d.size, o->per_update - have);
        const uint32_t stream = out ? an_rng_stream(k->examples, d.at) : 0;
        for (int64_t i = AN_MAX(first - have, 0); out && i < AN_MIN(take, first + n - have); i++)
            out[have + i - first] =
                p->first + d.first + (int64_t)an_shuffled((uint64_t)i, (uint64_t)d.size, k->key, stream);
        have += take;
    }
    at->update++;
    return true;
}

static bool walk(const an_puzzle_set *s, const an_puzzle_order *o, an_puzzle_place *at, int64_t first, int64_t n,
                 int64_t *out)
{
    epoch_keys k = keys_of(o, 0);
    return walk_with(s, o, at, first, n, &k, out);
}

/* ---- places */

static bool same_order(const an_puzzle_order *a, const an_puzzle_order *b)
{
    return a->seed == b->seed && a->per_update == b->per_update && epochs_of(a) == epochs_of(b);
}

/* The last known place that is not behind `update`. */
static an_puzzle_place known_place(an_puzzle_set *s, const an_puzzle_order *o, uint64_t update)
{
    an_puzzle_place best = {0};
    pthread_mutex_lock(&s->lock);
    if (!same_order(&s->walked, o)) {
        s->walked = *o;
        s->n_places = 0;
        s->recent = (an_puzzle_place){0};
    }
    for (int32_t i = s->n_places - 1; i >= 0; i--)
        if (s->place[i].update <= update) {
            best = s->place[i];
            break;
        }
    if (s->recent.update <= update && s->recent.update > best.update) best = s->recent;
    pthread_mutex_unlock(&s->lock);
    return best;
}

static void keep_place(an_puzzle_set *s, const an_puzzle_order *o, const an_puzzle_place *at, bool recent)
{
    pthread_mutex_lock(&s->lock);
    const uint64_t last = s->n_places > 0 ? s->place[s->n_places - 1].update : 0;
    if (same_order(&s->walked, o)) {
        if (recent) s->recent = *at;
        if (at->update >= last + PLACE_EVERY &&
            an_grow((void **)&s->place, s->n_places, &s->cap_places, sizeof *s->place))
            s->place[s->n_places++] = *at;
    }
    pthread_mutex_unlock(&s->lock);
}

static an_status too_large(an_err *err, const an_puzzle_order *o, const an_puzzle_part *p, int64_t least)
{
    return an_fail(err, AN_E_DATA,
                   "a batch of %lld is larger than the data: %s gives %lld examples in %lld epoch(s); lower "
                   "global_batch_size",
                   (long long)o->per_update, p->path, (long long)least, (long long)epochs_of(o));
}

/* Draws that a batch of puzzles with as many examples each takes. */
static int64_t draws_of_batch(const an_puzzle_part *p, const an_puzzle_order *o)
{
    return an_ceil_div(o->per_update, p->each);
}

/* Where every puzzle has as many examples: moves *at to the batch of `update`. False: it is in a later pass, whose beginning *at
 * is now. */
static bool jump(const an_puzzle_part *p, const an_puzzle_order *o, uint64_t update, an_puzzle_place *at)
{
    const int64_t draws = draws_of_batch(p, o);
    const uint64_t batches = (uint64_t)(epochs_of(o) * p->groups / draws);
    const uint64_t left = batches - (uint64_t)(at->draw / draws);
    if (update - at->update < left) {
        at->draw += (int64_t)(update - at->update) * draws;
        at->update = update;
        return true;
    }
    at->update += left;
    at->draw = 0;
    at->pass++;
    return false;
}

/* The place of the batch of `update`. */
static an_status find_place(an_err *err, const an_puzzle_set *cs, const an_puzzle_order *o, uint64_t update,
                            an_puzzle_place *out)
{
    an_puzzle_set *s = (an_puzzle_set *)(uintptr_t)cs; /* only the places in it change */
    an_puzzle_place at = known_place(s, o, update);
    uint64_t fruitless = 0; /* passes in a row without a batch */
    for (uint64_t before = at.update; fruitless <= (uint64_t)s->n_parts;) {
        const an_puzzle_part *p = part_of(s, at.pass);
        an_puzzle_place end = at;
        if (p->each > 0 && jump(p, o, update, &at)) return *out = at, AN_OK;
        if (p->each == 0) {
            if (walk(s, o, &end, 0, 0, NULL)) {
                if (at.update == update) return keep_place(s, o, &end, true), *out = at, AN_OK;
                at = end;
                keep_place(s, o, &at, false);
                fruitless = 0;
                continue;
            }
            at.pass++;
            at.draw = 0;
        }
        fruitless = at.update > before ? 0 : fruitless + 1;
        before = at.update;
    }
    return an_fail(err, AN_E_DATA, "%s: no pass fills a batch of %lld; lower global_batch_size",
                   part_of(s, at.pass)->path, (long long)o->per_update);
}

/* ---- what may be drawn from */

an_status an_puzzle_set_check(an_err *err, const an_puzzle_set *s, const an_puzzle_order *o)
{
    if (o->per_update < 1) return an_fail(err, AN_E_USAGE, "a batch of %lld", (long long)o->per_update);
    for (int k = 0; k < s->n_parts; k++) {
        const an_puzzle_part *p = &s->part[k];
        int64_t least = 0;
        for (int64_t g = 0; g < p->groups; g++) {
            int64_t size = INT32_MAX;
            for (int64_t i = p->group_at[g]; i < p->group_at[g + 1]; i++)
                size = AN_MIN(size, (int64_t)p->puzzle_at[i + 1] - p->puzzle_at[i]);
            least += size;
        }
        if (epochs_of(o) > INT64_MAX / AN_MAX(least, p->groups + 1))
            return an_fail(err, AN_E_USAGE, "%lld epochs are more than can be counted", (long long)epochs_of(o));
        if (least * epochs_of(o) < o->per_update) return too_large(err, o, p, least * epochs_of(o));
    }
    return AN_OK;
}

an_status an_puzzle_set_draw(an_err *err, const an_puzzle_set *s, const an_puzzle_order *o, uint64_t update,
                             int64_t first, int64_t n, int64_t *examples)
{
    an_puzzle_place at = {0};
    if (first < 0 || n < 0 || first + n > o->per_update)
        return an_fail(err, AN_E_INTERNAL, "samples %lld to %lld of a batch of %lld", (long long)first,
                       (long long)(first + n), (long long)o->per_update);
    AN_TRY(find_place(err, s, o, update, &at));
    if (walk(s, o, &at, first, n, examples)) return AN_OK;
    return an_fail(err, AN_E_INTERNAL, "a pass ends in the batch of update %llu", (unsigned long long)update);
}

static int64_t saturating_sum(int64_t a, int64_t b)
{
    return a > INT64_MAX - b ? INT64_MAX : a + b;
}

static int64_t saturating_product(int64_t a, int64_t b)
{
    return b > 0 && a > INT64_MAX / b ? INT64_MAX : a * b;
}

/* Passes over part k in which its puzzles have several examples: their batches can only be counted one after the other. */
static an_status walk_passes(an_err *err, const an_puzzle_set *s, const an_puzzle_order *o, int k, int64_t rounds,
                             int64_t *out)
{
    const int64_t draws = saturating_product(epochs_of(o) * s->part[k].groups, rounds);
    if (draws > MAX_COUNTED)
        return an_fail(
            err, AN_E_USAGE,
            "%s: %lld epochs draw %lld puzzles, and the batches of at most %lld are counted; train for fewer "
            "epochs, or set max_iters instead of them",
            s->part[k].path, (long long)saturating_product(rounds, epochs_of(o)), (long long)draws,
            (long long)MAX_COUNTED);
    epoch_keys keys = keys_of(o, 0);
    for (int64_t round = 0; round < rounds; round++)
        for (an_puzzle_place at = {.pass = (uint64_t)(round * s->n_parts + k)};
             walk_with(s, o, &at, 0, 0, &keys, NULL);)
            ++*out;
    return AN_OK;
}

an_status an_puzzle_set_updates(an_err *err, const an_puzzle_set *s, const an_puzzle_order *o, int64_t rounds,
                                int64_t *out)
{
    AN_TRY(an_puzzle_set_check(err, s, o));
    *out = 0;
    for (int k = 0; k < s->n_parts; k++) {
        const an_puzzle_part *p = &s->part[k];
        if (p->each > 0)
            *out = saturating_sum(*out, saturating_product(epochs_of(o) * p->groups / draws_of_batch(p, o), rounds));
        else
            AN_TRY(walk_passes(err, s, o, k, rounds, out));
    }
    return AN_OK;
}
