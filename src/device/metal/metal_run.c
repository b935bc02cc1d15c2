/* metal_run.c: steps as command buffers: encoded, committed, waited for, and done again when one failed.
 *
 * Owns:      how many launches a command buffer takes, the steps under way, the wait, the recovery.
 * Does not:  let a failure pass: each command buffer's status is read before anything of it is.
 *
 * The commit protocol (DESIGN.md; modelled by tests/unknowns/commit_sim.c). Command buffers are numbered for the
 * device's life, and so are steps. Each command buffer ends by setting `progress` to its number if it is one less: a
 * chain through all steps, which breaks at a failure and stays broken. In front of a step's first launch that writes
 * state stands the gate: if the chain is whole, `begun` becomes the step's number and the launches behind it, which are
 * indirect, get their group counts; else they have none and write nothing. Behind everything, `committed` becomes the
 * step's number if the chain is whole. So after a failure, when all that is under way has ended, there are three cases:
 *     committed                all was done: only the report failed
 *     not begun                no state was written, neither by this step nor by those behind it: they are done again,
 *                              in order, with smaller command buffers
 *     begun, not committed     state may be half written: an error that says so, and the run goes on from its last
 *                              checkpoint */
#include "device/metal/metal_internal.h"

#include "platform/platform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_ATTEMPTS = 4, MOST_A_BUFFER = 400, MOST_BUFFERS = AN_QUEUE_BUFFERS - 8 };
#define ASK_SECONDS  1e-3 /* before a command buffer that was not given is asked for again; then ten times that, ... */
#define AIM_SECONDS  0.05 /* GPU time of a command buffer: what keeps a display alive */
#define HANG_SECONDS 60.0 /* without any command buffer coming to an end */

typedef struct an_mtl_run {
    an_exec *e;
    an_buffer *slot; /* [cap_slots], owned */
    int n_slots, cap_slots, n_buffers, attempts;
    uint32_t step, number;           /* of the step, and of its first command buffer, in the words */
    an_id buffer[MOST_BUFFERS + 1];  /* retained until the step has ended */
    int32_t first[MOST_BUFFERS + 2]; /* launch that a buffer begins with */
} an_mtl_run;

static an_mtl_run *run_of(const an_device *d, an_ticket t)
{
    return &d->run[t % AN_STEPS_IN_FLIGHT];
}

/* ---------------------------------------------------------------------------------------------- encoding */

static void bind_all(const an_mtl_run *r, const an_mtl_launch *l, an_id encoder)
{
    const an_plan_step *s = &r->e->plan->step[l->step];
    for (int i = 0; i < l->n_binds; i++) {
        const an_bind *b = &l->bind[i];
        an_id buffer = r->e->counts; /* never read: AN_BIND_ANY, and what is empty */
        int64_t at = 0;
        if (b->kind == AN_BIND_PARAMS) {
            an_send(encoder_bytes, encoder, l->params, l->params_bytes, b->index);
            continue;
        }
        if (b->kind == AN_BIND_ARG && s->arg[b->arg].bytes > 0) { /* an empty tensor may stand at a buffer's end */
            at = s->arg[b->arg].offset + b->offset;
            buffer = an_mtl_part(&r->slot[s->arg[b->arg].slot], &at);
        } else if (b->kind == AN_BIND_SCRATCH) {
            at = s->scratch + b->offset;
            buffer = an_mtl_part(&r->slot[AN_SLOT_ARENA], &at);
        }
        an_send(encoder_buffer, encoder, buffer, (uint64_t)at, b->index);
    }
}

static int place_in_flight(const an_device *d, const an_mtl_run *r)
{
    return (int)(r - d->run);
}

/* A kernel of the protocol, in command buffer `b` of the run. */
static void encode_own(const an_device *d, const an_mtl_run *r, an_id encoder, an_mtl_own which, int b)
{
    const an_exec *e = r->e;
    const bool gate = which == AN_OWN_GATE;
    const uint32_t args[4] = {r->number + (uint32_t)b, r->step, 3 * (uint32_t)e->n_commits};
    an_send(encoder_pipeline, encoder, d->own[which]);
    an_send(encoder_buffer, encoder, d->protocol, 0, 0);
    if (gate) an_send(encoder_buffer, encoder, e->gate[place_in_flight(d, r)], 0, 1);
    if (gate) an_send(encoder_buffer, encoder, e->counts, 0, 2);
    an_send(encoder_bytes, encoder, args, sizeof args, gate ? 3 : 1);
    const uint64_t groups = gate ? (uint64_t)an_ceil_div(AN_MAX(3 * e->n_commits, 1), 32) : 1;
    an_send(encoder_dispatch, encoder, ((an_mtl_size){groups, 1, 1}), ((an_mtl_size){gate ? 32 : 1, 1, 1}));
}

static void encode_launches(const an_device *d, const an_mtl_run *r, int b, an_id encoder)
{
    const an_exec *e = r->e;
    an_id bound = NULL, gate = e->gate[place_in_flight(d, r)];
    for (int32_t i = r->first[b]; i < r->first[b + 1]; i++) {
        const an_mtl_launch *l = &e->launch[i];
        if (l->commit == 0) {
            encode_own(d, r, encoder, AN_OWN_GATE, b);
            bound = NULL;
        }
        if (bound != l->pipeline) an_send(encoder_pipeline, encoder, bound = l->pipeline);
        bind_all(r, l, encoder);
        const an_mtl_size threads = {l->threads, 1, 1};
        if (l->commit < 0)
            an_send(encoder_dispatch, encoder, ((an_mtl_size){l->groups[0], l->groups[1], l->groups[2]}), threads);
        else
            an_send(encoder_indirect, encoder, gate, AN_GATE_BYTES * (uint64_t)l->commit, threads);
    }
    if (b == r->n_buffers - 1) encode_own(d, r, encoder, AN_OWN_COMMIT, b);
    encode_own(d, r, encoder, AN_OWN_CHAIN, b);
}

/* Which launches go into which command buffer: `a_buffer` each, and a new one where the CPU takes its turn; the last
 * may have none. A profiled step has the queue for itself. */
static void divide(const an_device *d, an_mtl_run *r)
{
    const an_exec *e = r->e;
    const int most = d->profile || e->n_hosts ? MOST_BUFFERS : MOST_BUFFERS / AN_STEPS_IN_FLIGHT;
    int32_t each = d->profile ? 1 : e->a_buffer, at = 0, h = 0;
    each = AN_MAX(each, (int32_t)an_ceil_div(e->n_launches, most - e->n_hosts));
    r->n_buffers = 0;
    do {
        r->first[r->n_buffers++] = at;
        while (h < e->n_hosts && e->host[h].before <= at) h++;
        at = AN_MIN(at + each, e->n_launches);
        if (h < e->n_hosts) at = AN_MIN(at, e->host[h].before);
    } while (at < e->n_launches || h < e->n_hosts);
    r->first[r->n_buffers] = e->n_launches;
}

static void forget(an_mtl_run *r)
{
    for (int b = 0; b < r->n_buffers; b++) an_release(r->buffer[b]);
    r->n_buffers = 0;
}

static void sleep_for(double seconds);
static an_status wait_from(an_err *err, an_device *d, an_ticket first, double limit);
static an_status host_turn(an_err *err, an_device *d, an_mtl_run *r, int b, bool *cut);

/* A command buffer and its encoder, neither owned; NULL: none is given. Metal gives none when it lacks memory, which
 * comes back when what is under way has ended. */
static an_id begin_commands(an_device *d, an_id *encoder)
{
    double pause = ASK_SECONDS;
    for (int attempt = 1;; attempt++, pause *= 10) {
        an_id commands = an_send0(queue_buffer, d->queue);
        *encoder = commands ? an_send0(commands_encoder, commands) : NULL;
        if (*encoder) return commands;
        if (attempt == MOST_ATTEMPTS || wait_from(NULL, d, d->ended + 1, HANG_SECONDS) != AN_OK) return NULL;
        sleep_for(pause);
    }
}

/* Encodes and commits the whole step. Whatever was committed before a failure is waited for by the caller. */
static an_status commit_step(an_err *err, an_device *d, an_mtl_run *r)
{
    divide(d, r);
    const int n = r->n_buffers;
    bool cut = false;
    r->number = d->last_buffer + 1;
    d->last_buffer += (uint32_t)n;
    memset(r->e->opened[place_in_flight(d, r)], 0, AN_GATE_BYTES * (size_t)r->e->n_commits);
    for (int b = 0; b < n; b++) {
        r->n_buffers = b;
        AN_TRY(host_turn(err, d, r, b, &cut));
        if (cut) return AN_OK;
        an_id encoder, commands = begin_commands(d, &encoder);
        if (!commands)
            return an_fail(err, AN_E_DEVICE, "metal: %s gives no command buffer (%d of %d), asked %d times",
                           d->facts.name, b + 1, n, MOST_ATTEMPTS);
        r->buffer[b] = an_mtl.retain(commands);
        r->n_buffers = n; /* the encoder asks which one is the last */
        encode_launches(d, r, b, encoder);
        an_send0(encoder_end, encoder);
        an_send0(commands_commit, commands);
    }
    r->n_buffers = n;
    return AN_OK;
}

/* ---------------------------------------------------------------------------------------------- waiting */

static void sleep_for(double seconds)
{
    const struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

/* Until all command buffers have ended, well or not. Asking is bounded: waitUntilCompleted may block for ever on a hung
 * GPU; once it has hung, nobody waits for it again. */
static an_status wait_all(an_err *err, an_device *d, const an_mtl_run *r, double limit)
{
    const double began = an_seconds();
    double moved = began, pause = 20e-6;
    for (int b = 0; b < r->n_buffers;) {
        if (an_send0(commands_status, r->buffer[b]) >= AN_MTLCommandBufferStatusCompleted) {
            b++;
            moved = an_seconds();
            pause = 20e-6;
            continue;
        }
        const double now = an_seconds();
        if (now - began > limit) return an_fail(err, AN_E_DEVICE, "metal: the step has not ended after %.1f s", limit);
        d->hung |= now - moved > HANG_SECONDS;
        if (d->hung)
            return an_fail(
                err, AN_E_DEVICE,
                "metal: %s hangs: command buffer %d of %d has not ended after %.0f s; the last checkpoint is whole, "
                "restart from it",
                d->facts.name, b + 1, r->n_buffers, HANG_SECONDS);
        sleep_for(pause);
        pause = AN_MIN(2 * pause, 1e-3);
    }
    return AN_OK;
}

/* The first command buffer that failed, -1: none. Its error goes into `why`. */
static int failed_buffer(const an_mtl_run *r, an_err *why, bool *removed)
{
    for (int b = 0; b < r->n_buffers; b++) {
        if (an_send0(commands_status, r->buffer[b]) != AN_MTLCommandBufferStatusError) continue;
        an_id error = an_send0(commands_error, r->buffer[b]);
        char what[64];
        snprintf(what, sizeof what, "command buffer %d of %d failed", b + 1, r->n_buffers);
        an_fail_ns(why, AN_E_DEVICE, error, what);
        *removed = error && an_send0(error_code, error) == AN_MTLCommandBufferErrorDeviceRemoved;
        return b;
    }
    return -1;
}

/* What the CPU runs in front of command buffer b, after all the GPU's work before it. *cut: that work failed, so that
 * nothing more may run: the wait finds out why. */
static an_status host_turn(an_err *err, an_device *d, an_mtl_run *r, int b, bool *cut)
{
    an_exec *e = r->e;
    an_mtl_host *h = e->host, *const end = e->host + e->n_hosts;
    while (h < end && h->before < r->first[b]) h++;
    if (h == end || h->before != r->first[b]) return AN_OK;
    AN_TRY(wait_all(err, d, r, 1e9));
    *cut = d->words[AN_WORD_PROGRESS] != r->number + (uint32_t)b - 1;
    if (*cut) {
        an_err why = {0};
        bool removed = false;
        return failed_buffer(r, &why, &removed) >= 0
                   ? AN_OK
                   : an_fail(err, AN_E_DEVICE,
                             "metal: the GPU lost work and reported no failure; resume from the last checkpoint");
    }
    if (h->commits) d->words[AN_WORD_BEGUN] = r->step;
    return an_mtl_host_run(err, d, e, h, r->slot, r->n_slots);
}

/* The time each command buffer took moves how many launches the next step's get. */
static void learn(an_device *d, const an_mtl_run *r)
{
    an_exec *e = r->e;
    double longest = 0;
    for (int b = 0; b < r->n_buffers; b++) {
        const double took = an_send0(commands_gpu_end, r->buffer[b]) - an_send0(commands_gpu_start, r->buffer[b]);
        longest = AN_MAX(longest, took);
        d->busy_s += AN_MAX(took, 0);
        if (d->profile && r->first[b + 1] > r->first[b]) e->seconds[e->launch[r->first[b]].step] += took;
    }
    if (d->profile) return;
    if (longest > AIM_SECONDS)
        e->a_buffer = AN_MAX(1, (int32_t)(e->a_buffer * AIM_SECONDS / longest));
    else if (longest < AIM_SECONDS / 4 && r->n_buffers > 1)
        e->a_buffer = AN_MIN(2 * e->a_buffer, MOST_A_BUFFER);
}

static bool committed(const an_device *d, const an_mtl_run *r)
{
    return (int32_t)(d->words[AN_WORD_COMMITTED] - r->step) >= 0;
}

static an_status torn(an_err *err, const char *why)
{
    return an_fail(
        err, AN_E_DEVICE,
        "%.500s, while the update was being written: the parameters in memory are torn; `anneal resume` goes "
        "on from the last checkpoint",
        why);
}

/* After a step under way failed for the reason `why`, and all has ended: AN_OK when nothing is lost and it may be done
 * again. */
static an_status may_be_repeated(an_err *err, const an_device *d, const an_mtl_run *r, const char *why, bool removed)
{
    if (d->words[AN_WORD_BEGUN] == r->step) return torn(err, why);
    if (removed || r->attempts >= MOST_ATTEMPTS) {
        char tried[80] = "the GPU was taken away, so it is not tried again";
        if (!removed) snprintf(tried, sizeof tried, "tried %d times, with ever smaller command buffers", r->attempts);
        return an_fail(err, AN_E_DEVICE,
                       "%.500s; %s. Nothing of this update was written; `anneal resume` goes on from the last "
                       "checkpoint",
                       why, tried);
    }
    return AN_OK;
}

/* Nothing is under way: the chain is whole again. */
static void mend_chain(an_device *d)
{
    d->words[AN_WORD_PROGRESS] = d->last_buffer;
}

static an_status wait_from(an_err *err, an_device *d, an_ticket first, double limit)
{
    for (an_ticket t = first; t <= d->tickets; t++) AN_TRY(wait_all(err, d, run_of(d, t), limit));
    return AN_OK;
}

static void give_up(an_device *d)
{
    for (an_ticket t = d->ended + 1; t <= d->tickets; t++) forget(run_of(d, t));
    d->ended = d->tickets;
}

/* The oldest step failed. It is found done after all, or done again with all behind it, or given up with them. */
static an_status recover(an_err *err, an_device *d, const an_err *why, bool removed, double limit)
{
    an_mtl_run *r = run_of(d, d->ended + 1);
    AN_TRY(wait_from(err, d, d->ended + 1, limit));
    if (committed(d, r)) return AN_OK;
    an_status status = may_be_repeated(err, d, r, why->text, removed);
    r->attempts++;
    r->e->a_buffer = AN_MAX(1, r->e->a_buffer / 2);
    mend_chain(d);
    for (an_ticket t = d->ended + 1; t <= d->tickets && status == AN_OK; t++) {
        forget(run_of(d, t));
        status = commit_step(err, d, run_of(d, t));
        if (status != AN_OK) wait_from(NULL, d, d->ended + 1, HANG_SECONDS);
    }
    if (status != AN_OK) give_up(d);
    return status;
}

/* Until the oldest step has ended, well. */
static an_status end_oldest(an_err *err, an_device *d, double limit)
{
    an_mtl_run *r = run_of(d, d->ended + 1);
    for (bool known_good = false;;) {
        an_err why = {0};
        bool removed = false;
        AN_TRY(wait_all(err, d, r, limit)); /* else still in flight: nothing may touch its memory */
        if (known_good || failed_buffer(r, &why, &removed) < 0) break;
        const uint32_t attempt = r->number;
        AN_TRY(recover(err, d, &why, removed, limit));
        known_good = r->number == attempt; /* not done again, so it was done */
    }
    learn(d, r);
    forget(r);
    d->ended++;
    return AN_OK;
}

an_status an_mtl_wait(an_err *err, an_device *d, an_ticket t, int64_t timeout_ns)
{
    if (t > d->tickets)
        return an_fail(err, AN_E_INTERNAL, "metal: wait for ticket %llu that was never given", (unsigned long long)t);
    if (t <= d->ended) return AN_OK;
    void *pool = an_mtl.pool_push();
    an_status status = AN_OK;
    while (d->ended < t && status == AN_OK)
        status = end_oldest(err, d, timeout_ns == INT64_MAX ? 1e9 : 1e-9 * (double)timeout_ns);
    an_mtl.pool_pop(pool);
    return status;
}

bool an_mtl_done(an_device *d, an_ticket t)
{
    bool done = true;
    void *pool = an_mtl.pool_push();
    for (an_ticket i = d->ended + 1; i <= AN_MIN(t, d->tickets) && done; i++)
        for (int b = run_of(d, i)->n_buffers; b-- > 0 && done;)
            done = an_send0(commands_status, run_of(d, i)->buffer[b]) >= AN_MTLCommandBufferStatusCompleted;
    an_mtl.pool_pop(pool);
    return done;
}

/* The newest step was committed in part. The steps before it end as they would; what ran of it is looked at. */
static an_status submit_failed(an_err *err, an_device *d, an_mtl_run *r)
{
    const an_err why = err ? *err : (an_err){.code = AN_E_DEVICE};
    an_err before = {0};
    wait_all(NULL, d, r, HANG_SECONDS);
    const an_ticket this = d->tickets--;
    const an_status status = an_mtl_wait(&before, d, d->tickets, INT64_MAX);
    forget(r);
    d->tickets = d->ended = this;
    if (err) an_err_clear(err);
    if (status != AN_OK) return an_fail(err, status, "%s", before.text);
    if (d->hung) return an_fail(err, why.code, "%s", why.text); /* who knows what it has written */
    if (d->words[AN_WORD_BEGUN] == r->step) return torn(err, why.text);
    return an_fail(err, why.code,
                   "%.500s. Nothing of this update was written; `anneal resume` goes on from the last checkpoint",
                   why.text);
}

static an_status room_for_slots(an_err *err, an_mtl_run *r, int n)
{
    if (n <= r->cap_slots) return AN_OK;
    an_buffer *slot = realloc(r->slot, sizeof *slot * (size_t)n);
    if (!slot) return an_fail_nomem(err, "the slots of a step", sizeof *slot * (size_t)n);
    r->slot = slot;
    r->cap_slots = n;
    return AN_OK;
}

an_status an_mtl_submit(an_err *err, an_device *d, an_exec *e, const an_buffer *slots, int n_slots, an_ticket *out)
{
    if (!d->run && !(d->run = calloc(AN_STEPS_IN_FLIGHT, sizeof *d->run)))
        return an_fail_nomem(err, "the steps under way", AN_STEPS_IN_FLIGHT * sizeof *d->run);
    /* A profiled step is alone, and so is one in which the CPU takes turns, when it begins. */
    const an_ticket behind = d->profile || e->n_hosts ? 0 : AN_STEPS_IN_FLIGHT - 1;
    if (d->tickets > behind) AN_TRY(an_mtl_wait(err, d, d->tickets - behind, INT64_MAX));
    if (d->ended == d->tickets) mend_chain(d);
    an_mtl_run *r = run_of(d, d->tickets + 1);
    AN_TRY(room_for_slots(err, r, n_slots));
    d->tickets++;
    r->e = e;
    r->n_slots = n_slots;
    r->attempts = 1;
    r->step = (uint32_t)d->tickets;
    memcpy(r->slot, slots, sizeof *slots * (size_t)n_slots);
    if (d->profile) memset(e->seconds, 0, sizeof *e->seconds * (size_t)e->plan->n_steps);
    void *pool = an_mtl.pool_push();
    an_status status = commit_step(err, d, r);
    if (status != AN_OK) status = submit_failed(err, d, r);
    an_mtl.pool_pop(pool);
    *out = d->tickets;
    return status;
}

void an_mtl_run_free(an_device *d)
{
    if (!d->run) return;
    wait_from(NULL, d, d->ended + 1, HANG_SECONDS);
    give_up(d);
    for (int i = 0; i < AN_STEPS_IN_FLIGHT; i++) free(d->run[i].slot);
    free(d->run);
    d->run = NULL;
}
