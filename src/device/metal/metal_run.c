/* metal_run.c: a step as command buffers: encoded, committed, waited for, and done again when one failed.
 *
 * Owns:      how many launches a command buffer takes, the wait, the recovery.
 * Does not:  let a failure pass: each command buffer's status is read before anything of it is.
 *
 * The commit protocol (DESIGN.md; modelled by tests/unknowns/commit_sim.c), with the host's part. Before a step the
 * host clears the words and the group counts. Each command buffer ends by moving `progress` on by one, if all before it
 * have. In front of the first launch that writes state stands the gate: if progress is right, `begun` is set and the
 * launches behind it, which are indirect, get their group counts; else they have none and write nothing. Behind
 * everything, `committed` is set if begun was and progress is right. So after a failure there are three cases:
 *     committed                all was done: only the report failed
 *     not begun                no state was written: the step is done again, with smaller command buffers
 *     begun, not committed     state may be half written: an error that says so, and the run goes on from its last
 * checkpoint */
#include "device/metal/metal_internal.h"

#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_ATTEMPTS = 4, MOST_A_BUFFER = 400, MOST_BUFFERS_A_STEP = AN_QUEUE_BUFFERS - 8 };
#define AIM_SECONDS  0.05 /* GPU time of a command buffer: what keeps a display alive */
#define HANG_SECONDS 60.0 /* without any command buffer coming to an end */

typedef struct an_mtl_run {
    an_exec *e;
    an_buffer slot[AN_MTL_SLOTS];
    int n_slots, n_buffers, attempts;
    bool in_flight;
    an_id buffer[MOST_BUFFERS_A_STEP + 1];  /* retained until the step has ended */
    int32_t first[MOST_BUFFERS_A_STEP + 2]; /* launch that a buffer begins with */
} an_mtl_run;

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
            buffer = (an_id)(uintptr_t)r->slot[s->arg[b->arg].slot].handle;
            at = s->arg[b->arg].offset + b->offset;
        } else if (b->kind == AN_BIND_SCRATCH) {
            buffer = (an_id)(uintptr_t)r->slot[AN_SLOT_ARENA].handle;
            at = s->scratch + b->offset;
        }
        an_send(encoder_buffer, encoder, buffer, (uint64_t)at, b->index);
    }
}

static void encode_own(const an_device *d, an_id encoder, an_mtl_own which, const an_exec *e, const void *bytes,
                       size_t n)
{
    const bool gate = which == AN_OWN_GATE;
    an_send(encoder_pipeline, encoder, d->own[which]);
    an_send(encoder_buffer, encoder, e->gate, 0, 0);
    if (gate) an_send(encoder_buffer, encoder, e->counts, 0, 1);
    an_send(encoder_bytes, encoder, bytes, n, gate ? 2 : 1);
    const uint64_t groups = gate ? (uint64_t)an_ceil_div(AN_MAX(3 * e->n_commits, 1), 32) : 1;
    an_send(encoder_dispatch, encoder, ((an_mtl_size){groups, 1, 1}), ((an_mtl_size){gate ? 32 : 1, 1, 1}));
}

static void encode_launches(const an_device *d, const an_mtl_run *r, int b, an_id encoder)
{
    const an_exec *e = r->e;
    const uint32_t number = (uint32_t)b;
    an_id bound = NULL;
    for (int32_t i = r->first[b]; i < r->first[b + 1]; i++) {
        const an_mtl_launch *l = &e->launch[i];
        if (l->commit == 0) {
            const uint32_t args[2] = {number, 3 * (uint32_t)e->n_commits};
            encode_own(d, encoder, AN_OWN_GATE, e, args, sizeof args);
            bound = NULL;
        }
        if (bound != l->pipeline) an_send(encoder_pipeline, encoder, bound = l->pipeline);
        bind_all(r, l, encoder);
        const an_mtl_size threads = {l->threads, 1, 1};
        if (l->commit < 0)
            an_send(encoder_dispatch, encoder, ((an_mtl_size){l->groups[0], l->groups[1], l->groups[2]}), threads);
        else
            an_send(encoder_indirect, encoder, e->gate, AN_GATE_AT + AN_GATE_BYTES * (uint64_t)l->commit, threads);
    }
    if (b == r->n_buffers - 1 && (e->n_commits || e->n_hosts))
        encode_own(d, encoder, AN_OWN_COMMIT, e, &number, sizeof number);
    encode_own(d, encoder, AN_OWN_CHAIN, e, &number, sizeof number);
}

/* Which launches go into which command buffer: `a_buffer` each, and a new one where the CPU takes its turn; the last
 * may have none. */
static void divide(const an_device *d, an_mtl_run *r)
{
    const an_exec *e = r->e;
    int32_t each = d->profile ? 1 : e->a_buffer, at = 0, h = 0;
    each = AN_MAX(each, (int32_t)an_ceil_div(e->n_launches, MOST_BUFFERS_A_STEP - e->n_hosts));
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
    r->in_flight = false;
}

static an_status host_turn(an_err *err, an_device *d, an_mtl_run *r, int b, bool *cut);

/* Encodes and commits the whole step. Whatever was committed before a failure is waited for by the caller. */
static an_status commit_step(an_err *err, an_device *d, an_mtl_run *r)
{
    divide(d, r);
    const int n = r->n_buffers;
    r->in_flight = true;
    memset(r->e->words, 0, AN_GATE_AT + AN_GATE_BYTES * (size_t)r->e->n_commits);
    bool cut = false;
    for (int b = 0; b < n; b++) {
        r->n_buffers = b;
        AN_TRY(host_turn(err, d, r, b, &cut));
        if (cut) return AN_OK;
        an_id commands = an_send0(queue_buffer, d->queue), encoder = NULL;
        if (commands) encoder = an_send0(commands_encoder, commands);
        if (!encoder)
            return an_fail(err, AN_E_DEVICE, "metal: %s gives no command buffer (%d of %d)", d->facts.name, b + 1, n);
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
 * GPU. */
static an_status wait_all(an_err *err, const an_device *d, const an_mtl_run *r, double limit)
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
        if (now - moved > HANG_SECONDS)
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
    *cut = e->words[AN_WORD_PROGRESS] != (uint32_t)b;
    if (*cut) {
        an_err why = {0};
        bool removed = false;
        return failed_buffer(r, &why, &removed) >= 0
                   ? AN_OK
                   : an_fail(err, AN_E_DEVICE,
                             "metal: the GPU lost work and reported no failure; resume from the last checkpoint");
    }
    if (h->commits) e->words[AN_WORD_BEGUN] = 1;
    return an_mtl_host_run(err, d, e, h, r->slot, r->n_slots);
}

/* The time each command buffer took moves how many launches the next step's get. */
static void learn(const an_device *d, const an_mtl_run *r)
{
    an_exec *e = r->e;
    double longest = 0;
    for (int b = 0; b < r->n_buffers; b++) {
        const double took = an_send0(commands_gpu_end, r->buffer[b]) - an_send0(commands_gpu_start, r->buffer[b]);
        longest = AN_MAX(longest, took);
        if (d->profile && r->first[b + 1] > r->first[b]) e->seconds[e->launch[r->first[b]].step] += took;
    }
    if (d->profile) return;
    if (longest > AIM_SECONDS)
        e->a_buffer = AN_MAX(1, (int32_t)(e->a_buffer * AIM_SECONDS / longest));
    else if (longest < AIM_SECONDS / 4 && r->n_buffers > 1)
        e->a_buffer = AN_MIN(2 * e->a_buffer, MOST_A_BUFFER);
}

/* After command buffer `b` failed for the reason `why`: AN_OK when nothing is lost and the step may be done again. */
static an_status recover(an_err *err, const an_mtl_run *r, const an_err *why, bool removed)
{
    const uint32_t *w = r->e->words;
    if (w[AN_WORD_BEGUN] && !w[AN_WORD_COMMITTED])
        return an_fail(
            err, AN_E_DEVICE,
            "%.500s, while the update was being written: the parameters in memory are torn; `anneal resume` goes on "
            "from the last checkpoint",
            why->text);
    if (removed || r->attempts >= MOST_ATTEMPTS)
        return an_fail(err, AN_E_DEVICE,
                       "%.500s; tried %d times, with ever smaller command buffers. Nothing of this update was written; "
                       "`anneal resume` goes on from the last checkpoint",
                       why->text, r->attempts);
    return AN_OK;
}

an_status an_mtl_wait(an_err *err, an_device *d, an_ticket t, int64_t timeout_ns)
{
    an_mtl_run *r = d->run;
    if (t > d->tickets)
        return an_fail(err, AN_E_INTERNAL, "metal: wait for ticket %llu that was never given", (unsigned long long)t);
    if (!r || !r->in_flight) return AN_OK;
    void *pool = an_mtl.pool_push();
    an_status status = AN_OK;
    for (;;) {
        status = wait_all(err, d, r, timeout_ns == INT64_MAX ? 1e9 : 1e-9 * (double)timeout_ns);
        if (status != AN_OK) break; /* still in flight: nothing may touch its memory */
        an_err why = {0};
        bool removed = false;
        const int failed = failed_buffer(r, &why, &removed);
        if (failed < 0 || r->e->words[AN_WORD_COMMITTED]) {
            learn(d, r);
            forget(r);
            break;
        }
        forget(r);
        status = recover(err, r, &why, removed);
        if (status != AN_OK) break;
        r->attempts++;
        r->e->a_buffer = AN_MAX(1, r->e->a_buffer / 2);
        status = commit_step(err, d, r);
        if (status != AN_OK) {
            wait_all(NULL, d, r, HANG_SECONDS);
            forget(r);
            break;
        }
    }
    an_mtl.pool_pop(pool);
    return status;
}

an_status an_mtl_submit(an_err *err, an_device *d, an_exec *e, const an_buffer *slots, int n_slots, an_ticket *out)
{
    if (n_slots > AN_MTL_SLOTS)
        return an_fail(err, AN_E_INTERNAL, "metal: %d slots, and %d are the most", n_slots, AN_MTL_SLOTS);
    AN_TRY(an_mtl_wait(err, d, d->tickets, INT64_MAX));
    if (!d->run && !(d->run = calloc(1, sizeof *d->run))) return an_fail_nomem(err, "a step", sizeof *d->run);
    an_mtl_run *r = d->run;
    r->e = e;
    r->n_slots = n_slots;
    r->attempts = 1;
    memcpy(r->slot, slots, sizeof *slots * (size_t)n_slots);
    if (d->profile) memset(e->seconds, 0, sizeof *e->seconds * (size_t)e->plan->n_steps);
    void *pool = an_mtl.pool_push();
    an_status status = commit_step(err, d, r);
    if (status != AN_OK) { /* what was committed before is let run out */
        wait_all(NULL, d, r, HANG_SECONDS);
        forget(r);
    }
    an_mtl.pool_pop(pool);
    *out = ++d->tickets;
    return status;
}

void an_mtl_run_free(an_device *d)
{
    if (!d->run) return;
    if (d->run->in_flight) wait_all(NULL, d, d->run, HANG_SECONDS);
    forget(d->run);
    free(d->run);
    d->run = NULL;
}
