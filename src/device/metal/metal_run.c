/* metal_run.c: runs a loaded plan: encodes its launches into command buffers, commits them, waits, and repeats a step
 * whose command buffer failed.
 *
 * Owns:       how launches are divided into command buffers, the steps in flight, the wait, the recovery.
 * Invariant:  no failure goes unnoticed: the status of each command buffer is read before any result of it is used.
 *
 * The commit protocol (DESIGN.md; modelled by tests/unknowns/commit_sim.c) decides after a failure whether a step may be
 * repeated. Command buffers and steps are numbered for the life of the device. Three counters in device memory:
 *
 *     progress    number of the last command buffer that completed in an unbroken sequence: the last kernel of each
 *                 command buffer (the chain) sets it to its own number if it is one less; a failure breaks the chain
 *     begun       number of the last step whose gate opened. The gate is a kernel in front of the first launch that
 *                 writes state (parameters, moments). If the chain is unbroken it fills in the thread block counts of
 *                 the launches behind it, which are indirect dispatches; else the counts stay 0 and they write nothing
 *     committed   number of the last step that ran to its end with the chain unbroken
 *
 *     | compute | compute, chain | compute, GATE, update, update, COMMIT, chain |     a step in two command buffers
 *
 * After a failure, when everything in flight has ended, there are three cases:
 *     committed == step               the step was done; only the report of it failed
 *     begun != step                   no state was written, neither by this step nor by those behind it: all of them
 *                                     are repeated in order, with smaller command buffers
 *     begun == step, not committed    state may be half written: an error; the run resumes from its last checkpoint */
#include "device/metal/metal_internal.h"

#include "platform/platform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_ATTEMPTS = 4, MOST_LAUNCHES = 400, MOST_GROWTH = 16, MOST_BUFFERS = AN_QUEUE_BUFFERS - 8 };
/* Pause before asking again for a command buffer that Metal did not give; each next pause is 10 times as long. */
#define ASK_SECONDS     1e-3
#define BACKOFF_SECONDS 0.1  /* first pause after macOS ended a command buffer for the display's sake; doubles ... */
#define BACKOFF_MOST    10.0 /* ... up to this */

typedef struct an_mtl_run {
    an_exec *e;
    an_buffer *slot; /* [cap_slots], owned */
    int n_slots, cap_slots, n_buffers, attempts;
    uint32_t step, number;           /* of the step and of its first command buffer, as the counters have them */
    double failing_since;            /* time of the first failure; 0: none yet */
    double pause;                    /* seconds before the next repetition */
    an_id buffer[MOST_BUFFERS + 1];  /* retained until the step has ended */
    int32_t first[MOST_BUFFERS + 2]; /* first launch of each buffer */
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
        const an_gpu_binding *b = &l->bind[i];
        an_id buffer = r->e->counts; /* a placeholder for AN_BIND_ANY and empty tensors: never accessed */
        int64_t at = AN_PLACEHOLDER_BYTES * b->index; /* apart, since arguments may not alias */
        if (b->kind == AN_BIND_PARAMS) {
            an_send(encoder_bytes, encoder, l->params, l->params_bytes, b->index);
            continue;
        }
        if (b->kind == AN_BIND_ARG && s->arg[b->arg].bytes > 0) { /* an empty tensor may lie at a buffer's end */
            at = s->arg[b->arg].offset + b->offset;
            buffer = an_mtl_segment(&r->slot[s->arg[b->arg].slot], &at);
        } else if (b->kind == AN_BIND_SCRATCH) {
            at = s->scratch + b->offset;
            buffer = an_mtl_segment(&r->slot[AN_SLOT_ARENA], &at);
        }
        an_send(encoder_buffer, encoder, buffer, (uint64_t)at, b->index);
    }
}

static int flight_index(const an_device *d, const an_mtl_run *r)
{
    return (int)(r - d->run);
}

/* Encodes a kernel of the commit protocol into command buffer `b` of the run. */
static void encode_builtin(const an_device *d, const an_mtl_run *r, an_id encoder, an_mtl_builtin which, int b)
{
    const an_exec *e = r->e;
    const bool gate = which == AN_BUILTIN_GATE;
    const uint32_t args[4] = {r->number + (uint32_t)b, r->step, 3 * (uint32_t)e->n_commits};
    an_send(encoder_pipeline, encoder, d->builtin[which]);
    an_send(encoder_buffer, encoder, d->protocol, 0, 0);
    if (gate) an_send(encoder_buffer, encoder, e->gate[flight_index(d, r)], 0, 1);
    if (gate) an_send(encoder_buffer, encoder, e->counts, 0, 2);
    an_send(encoder_bytes, encoder, args, sizeof args, gate ? 3 : 1);
    const uint64_t groups = gate ? (uint64_t)an_ceil_div(AN_MAX(3 * e->n_commits, 1), 32) : 1;
    an_send(encoder_dispatch, encoder, ((an_mtl_size){groups, 1, 1}), ((an_mtl_size){gate ? 32 : 1, 1, 1}));
}

static void encode_launches(const an_device *d, const an_mtl_run *r, int b, an_id encoder)
{
    const an_exec *e = r->e;
    an_id bound = NULL, gate = e->gate[flight_index(d, r)];
    for (int32_t i = r->first[b]; i < r->first[b + 1]; i++) {
        const an_mtl_launch *l = &e->launch[i];
        if (l->commit == 0) {
            encode_builtin(d, r, encoder, AN_BUILTIN_GATE, b);
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
    if (b == r->n_buffers - 1) encode_builtin(d, r, encoder, AN_BUILTIN_COMMIT, b);
    encode_builtin(d, r, encoder, AN_BUILTIN_CHAIN, b);
}

/* The end of the command buffer that begins with launch `from`: it takes at least `least` launches, then as many as the
 * time budget `seconds` allows, and ends with a step: the later launches of a scatter take indices that the earlier ones
 * have computed, and must not run when those have failed. */
static int32_t fill_buffer(const an_exec *e, int32_t from, int32_t to, int32_t least, double seconds)
{
    int32_t at = from;
    while (at < to && at - from < MOST_LAUNCHES) {
        int32_t end = at;
        double step = 0;
        for (; end < to && e->launch[end].step == e->launch[at].step; end++) step += e->launch[end].estimate_s;
        if (at - from >= least && step > seconds) break;
        seconds -= step;
        at = end;
    }
    return at;
}

/* Divides the launches into command buffers by their estimated time. Steps of the CPU begin a new one. The last buffer
 * may be empty. A profiled step of the training has a buffer for each step of the plan, and the queue for itself. */
static void split_launches(const an_device *d, an_mtl_run *r)
{
    const an_exec *e = r->e;
    const int most = d->profile || e->n_cpu ? MOST_BUFFERS : MOST_BUFFERS / AN_STEPS_IN_FLIGHT;
    const int32_t least = AN_MAX((int32_t)an_ceil_div(e->n_launches, most - e->n_cpu), 1);
    int32_t at = 0, c = 0;
    r->n_buffers = 0;
    do {
        r->first[r->n_buffers++] = at;
        while (c < e->n_cpu && e->cpu[c].before <= at) c++;
        at = fill_buffer(e, at, c < e->n_cpu ? e->cpu[c].before : e->n_launches, least, d->profile ? 0 : e->buffer_s);
    } while (at < e->n_launches || c < e->n_cpu);
    r->first[r->n_buffers] = e->n_launches;
}

static void release_buffers(an_mtl_run *r)
{
    for (int b = 0; b < r->n_buffers; b++) an_release(r->buffer[b]);
    r->n_buffers = 0;
}

static void sleep_for(double seconds);
static an_status wait_since(an_err *err, an_device *d, an_ticket first, double limit);
static an_status run_cpu_steps(an_err *err, an_device *d, an_mtl_run *r, int b, bool *cut);

/* A command buffer and its encoder, neither owned; NULL: none is given. Metal gives none when it lacks memory, some of
 * which is free again when the work in flight has ended: nothing is in flight then, unless the GPU hangs. */
static an_id begin_commands(an_device *d, an_id *encoder)
{
    double pause = ASK_SECONDS;
    for (int attempt = 1;; attempt++, pause *= 10) {
        an_id commands = an_send0(queue_buffer, d->queue);
        *encoder = commands ? an_send0(commands_encoder, commands) : NULL;
        if (*encoder) return commands;
        if (attempt == MOST_ATTEMPTS || wait_since(NULL, d, d->ended + 1, 1e9) != AN_OK) return NULL;
        sleep_for(pause);
    }
}

/* Encodes and commits all of a step. If it fails, the part that was committed has ended, unless the GPU hangs. */
static an_status commit_step(an_err *err, an_device *d, an_mtl_run *r)
{
    split_launches(d, r);
    const int n = r->n_buffers;
    bool cut = false;
    r->number = d->last_buffer + 1;
    d->last_buffer += (uint32_t)n;
    memset(r->e->opened[flight_index(d, r)], 0, AN_GATE_BYTES * (size_t)r->e->n_commits);
    for (int b = 0; b < n; b++) {
        r->n_buffers = b;
        AN_TRY(run_cpu_steps(err, d, r, b, &cut));
        if (cut) return AN_OK;
        an_id encoder, commands = begin_commands(d, &encoder);
        if (!commands)
            return an_fail(err, AN_E_DEVICE, "metal: %s gives no command buffer (%d of %d), asked %d times",
                           d->facts.name, b + 1, n, MOST_ATTEMPTS);
        r->buffer[b] = an_mtl.retain(commands);
        r->n_buffers = n; /* encode_launches compares with it: the last buffer has the commit kernel */
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

/* Waits until all command buffers have ended, well or not. It polls, because waitUntilCompleted may block for ever on a
 * hung GPU; a GPU that has hung once is not waited for again. Time in which the Mac slept or the process was stopped does
 * not count towards a limit. */
static an_status wait_all(an_err *err, an_device *d, const an_mtl_run *r, double limit)
{
    an_wait_clock total = {0}, idle = {0}; /* since the wait began; since a command buffer ended */
    double pause = 20e-6;
    for (int b = 0; b < r->n_buffers;) {
        if (an_send0(commands_status, r->buffer[b]) >= AN_MTLCommandBufferStatusCompleted) {
            b++;
            idle = (an_wait_clock){0};
            pause = 20e-6;
            continue;
        }
        if (an_wait_clock_ask(&total) > limit)
            return an_fail(err, AN_E_DEVICE, "metal: the step has not ended after %.1f s", limit);
        d->hung |= an_wait_clock_ask(&idle) > d->hang_s;
        if (d->hung)
            return an_fail(
                err, AN_E_DEVICE,
                "metal: %s hangs: command buffer %d of %d has not ended after %.3g s; the last checkpoint is "
                "whole, restart from it",
                d->facts.name, b + 1, r->n_buffers, d->hang_s);
        sleep_for(pause);
        pause = AN_MIN(2 * pause, 1e-3);
    }
    return AN_OK;
}

/* What the error of a command buffer allows. */
typedef enum failure_kind {
    FAILED_ONCE,     /* repeating it may help */
    DEVICE_REMOVED,  /* repeating it cannot help */
    DISPLAY_WATCHDOG /* macOS ended it to keep the display responsive: waiting helps */
} failure_kind;

/* The watchdog's code is not in Apple's headers. It is 14 (0xe), as the error's code or, when
 * that is another one, in the text of its description. */
static failure_kind kind_of_failure(an_id error)
{
    if (!error) return FAILED_ONCE;
    const int64_t code = an_send0(error_code, error);
    if (code == AN_MTLCommandBufferErrorDeviceRemoved) return DEVICE_REMOVED;
    const char *text = an_utf8(an_send0(error_description, error));
    return code == 0xe || strstr(text, "0000000e") || strstr(text, "ImpactingInteractivity") ? DISPLAY_WATCHDOG
                                                                                             : FAILED_ONCE;
}

/* The first command buffer that failed, -1: none. Its error goes into `why`. */
static int failed_buffer(const an_mtl_run *r, an_err *why, failure_kind *kind)
{
    for (int b = 0; b < r->n_buffers; b++) {
        if (an_send0(commands_status, r->buffer[b]) != AN_MTLCommandBufferStatusError) continue;
        an_id error = an_send0(commands_error, r->buffer[b]);
        char what[64];
        snprintf(what, sizeof what, "command buffer %d of %d failed", b + 1, r->n_buffers);
        an_fail_ns(why, AN_E_DEVICE, error, what);
        *kind = kind_of_failure(error);
        return b;
    }
    return -1;
}

/* Runs the steps of the CPU in front of command buffer b, after all GPU work before it has ended. *cut: that work failed,
 * and nothing more may run; the wait then finds out why. */
static an_status run_cpu_steps(an_err *err, an_device *d, an_mtl_run *r, int b, bool *cut)
{
    an_exec *e = r->e;
    an_mtl_cpu_steps *h = e->cpu, *const end = e->cpu + e->n_cpu;
    while (h < end && h->before < r->first[b]) h++;
    if (h == end || h->before != r->first[b]) return AN_OK;
    AN_TRY(wait_all(err, d, r, 1e9));
    *cut = d->counters[AN_COUNTER_PROGRESS] != r->number + (uint32_t)b - 1;
    if (*cut) {
        an_err why = {0};
        failure_kind kind;
        return failed_buffer(r, &why, &kind) >= 0
                   ? AN_OK
                   : an_fail(err, AN_E_DEVICE,
                             "metal: the GPU lost work and reported no failure; resume from the last checkpoint");
    }
    if (h->commits) d->counters[AN_COUNTER_BEGUN] = r->step;
    return an_mtl_cpu_run(err, d, e, h, r->slot, r->n_slots);
}

static double estimated_seconds(const an_mtl_run *r, int b)
{
    double seconds = 0;
    for (int32_t i = r->first[b]; i < r->first[b + 1]; i++) seconds += r->e->launch[i].estimate_s;
    return seconds;
}

/* Reads the GPU time of each command buffer, and moves the estimated time that those of the next step are given. */
static void adapt_size(an_device *d, const an_mtl_run *r)
{
    an_exec *e = r->e;
    double longest = 0, estimate = 0;
    for (int b = 0; b < r->n_buffers; b++) {
        const double took = an_send0(commands_gpu_end, r->buffer[b]) - an_send0(commands_gpu_start, r->buffer[b]);
        if (took > longest) estimate = estimated_seconds(r, b);
        longest = AN_MAX(longest, took);
        d->busy_s += AN_MAX(took, 0);
        if (d->profile && r->first[b + 1] > r->first[b]) e->seconds[e->launch[r->first[b]].step] = took;
    }
    if (d->profile) return;
    if (longest > AN_TARGET_SECONDS)
        e->buffer_s = AN_MIN(e->buffer_s, estimate) * AN_TARGET_SECONDS / longest;
    else if (longest < AN_TARGET_SECONDS / 4 && r->n_buffers > 1)
        e->buffer_s *= AN_MIN(AN_TARGET_SECONDS / 2 / AN_MAX(longest, 1e-9), MOST_GROWTH);
}

/* After a failure: the largest command buffer is halved. */
static void halve_size(const an_mtl_run *r)
{
    double largest = 0;
    for (int b = 0; b < r->n_buffers; b++) largest = AN_MAX(largest, estimated_seconds(r, b));
    r->e->buffer_s = AN_MIN(r->e->buffer_s, largest) / 2;
}

static bool committed(const an_device *d, const an_mtl_run *r)
{
    return (int32_t)(d->counters[AN_COUNTER_COMMITTED] - r->step) >= 0;
}

static an_status partly_written(an_err *err, const char *why)
{
    return an_fail(
        err, AN_E_DEVICE,
        "%.500s, while the update was being written: the parameters in memory are torn; `anneal resume` goes "
        "on from the last checkpoint",
        why);
}

/* Whether the display watchdog may be waited out once more; sets the pause before it. */
static bool back_off(const an_device *d, an_mtl_run *r)
{
    if (an_seconds() - r->failing_since >= d->retry_s) return false;
    r->pause = AN_MIN(AN_MAX(2 * r->pause, BACKOFF_SECONDS), BACKOFF_MOST);
    return true;
}

/* A step failed for the reason `why`, and everything in flight has ended. AN_OK: nothing is lost, it may be repeated. */
static an_status check_repeatable(an_err *err, const an_device *d, an_mtl_run *r, const char *why, failure_kind kind)
{
    char tried[400] = "the GPU was taken away, so it is not tried again";
    r->pause = r->attempts < MOST_ATTEMPTS ? 0 : r->pause;
    if (d->counters[AN_COUNTER_BEGUN] == r->step) return partly_written(err, why);
    if (kind != DEVICE_REMOVED && r->attempts < MOST_ATTEMPTS) return AN_OK;
    if (kind == DISPLAY_WATCHDOG) {
        if (back_off(d, r)) return AN_OK;
        snprintf(tried, sizeof tried,
                 "macOS ended it to keep the display responsive, %d times in %.3g s, with ever smaller command buffers "
                 "and longer pauses: let the display sleep while training, or set AGX_RELAX_CDM_CTXSTORE_TIMEOUT=1 in "
                 "the environment",
                 r->attempts, an_seconds() - r->failing_since);
    } else if (kind == FAILED_ONCE) {
        snprintf(tried, sizeof tried, "tried %d times, with ever smaller command buffers", r->attempts);
    }
    return an_fail(err, AN_E_DEVICE,
                   "%.500s; %s. Nothing of this update was written; `anneal resume` goes on from the last checkpoint",
                   why, tried);
}

/* Only when nothing is in flight: the chain is unbroken again. */
static void reset_chain(an_device *d)
{
    d->counters[AN_COUNTER_PROGRESS] = d->last_buffer;
}

static an_status wait_since(an_err *err, an_device *d, an_ticket first, double limit)
{
    for (an_ticket t = first; t <= d->tickets; t++) AN_TRY(wait_all(err, d, run_of(d, t), limit));
    return AN_OK;
}

static void abandon(an_device *d)
{
    for (an_ticket t = d->ended + 1; t <= d->tickets; t++) release_buffers(run_of(d, t));
    d->ended = d->tickets;
}

/* Commits the steps from `first` on once more, in their order. Nothing is in flight. */
static an_status repeat_from(an_err *err, an_device *d, an_ticket first)
{
    an_status status = AN_OK;
    reset_chain(d);
    for (an_ticket t = first; t <= d->tickets && status == AN_OK; t++) {
        release_buffers(run_of(d, t));
        status = commit_step(err, d, run_of(d, t));
        if (status != AN_OK) wait_since(NULL, d, d->ended + 1, d->hang_s);
    }
    if (status != AN_OK) abandon(d);
    return status;
}

/* Whether step t was left out without a failure of its own: the one in front of it was done, but failed before it could join the chain. */
static bool was_left_out(const an_device *d, an_ticket t)
{
    an_err why = {0};
    failure_kind kind;
    return t <= d->tickets && !committed(d, run_of(d, t)) && failed_buffer(run_of(d, t), &why, &kind) < 0;
}

/* The oldest step failed. Either it turns out to be done, and those behind it are repeated where they were left out, or it is repeated with
 * all behind it, or all are abandoned. */
static an_status recover(an_err *err, an_device *d, const an_err *why, failure_kind kind, double limit)
{
    an_mtl_run *r = run_of(d, d->ended + 1);
    AN_TRY(wait_since(err, d, d->ended + 1, limit));
    if (committed(d, r)) {
        if (d->ended + 1 == d->tickets)
            reset_chain(d); /* else a step behind has gone on with it, or failed and will repair it */
        return was_left_out(d, d->ended + 2) ? repeat_from(err, d, d->ended + 2) : AN_OK;
    }
    if (!r->failing_since) r->failing_since = an_seconds();
    const an_status status = check_repeatable(err, d, r, why->text, kind);
    r->attempts++;
    halve_size(r);
    if (status == AN_OK) sleep_for(r->pause);
    if (status == AN_OK) return repeat_from(err, d, d->ended + 1);
    reset_chain(d);
    abandon(d);
    return status;
}

/* Waits until the oldest step has ended well. */
static an_status end_oldest(an_err *err, an_device *d, double limit)
{
    an_mtl_run *r = run_of(d, d->ended + 1);
    for (bool known_good = false;;) {
        an_err why = {0};
        failure_kind kind = FAILED_ONCE;
        AN_TRY(wait_all(err, d, r, limit)); /* on failure it is still in flight: nothing may touch its memory */
        if (known_good || failed_buffer(r, &why, &kind) < 0) break;
        const uint32_t attempt = r->number;
        AN_TRY(recover(err, d, &why, kind, limit));
        known_good = r->number == attempt; /* not repeated, so it was done */
    }
    adapt_size(d, r);
    release_buffers(r);
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

/* Only a part of the newest step could be committed, and has ended. The steps before it end normally; then the counters
 * say whether this one has written state. */
static an_status submit_failed(an_err *err, an_device *d, an_mtl_run *r)
{
    const an_err why = err ? *err : (an_err){.code = AN_E_DEVICE};
    an_err before = {0};
    const an_ticket this = d->tickets--;
    const an_status status = an_mtl_wait(&before, d, d->tickets, INT64_MAX);
    release_buffers(r);
    d->tickets = d->ended = this;
    if (err) an_err_clear(err);
    if (status != AN_OK) return an_fail(err, status, "%s", before.text);
    if (d->hung) return an_fail(err, why.code, "%s", why.text); /* what it has written cannot be known */
    if (d->counters[AN_COUNTER_BEGUN] == r->step) return partly_written(err, why.text);
    return an_fail(err, why.code,
                   "%.500s. Nothing of this update was written; `anneal resume` goes on from the last checkpoint",
                   why.text);
}

static an_status reserve_slots(an_err *err, an_mtl_run *r, int n)
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
        return an_fail_nomem(err, "the steps in flight", AN_STEPS_IN_FLIGHT * sizeof *d->run);
    /* A profiled step, or one with steps of the CPU, starts when nothing else is in flight. */
    const an_ticket behind = d->profile || e->n_cpu ? 0 : AN_STEPS_IN_FLIGHT - 1;
    if (d->tickets > behind) AN_TRY(an_mtl_wait(err, d, d->tickets - behind, INT64_MAX));
    if (d->ended == d->tickets) reset_chain(d);
    an_mtl_run *r = run_of(d, d->tickets + 1);
    AN_TRY(reserve_slots(err, r, n_slots));
    d->tickets++;
    r->e = e;
    r->n_slots = n_slots;
    r->attempts = 1;
    r->failing_since = r->pause = 0;
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
    wait_since(NULL, d, d->ended + 1, d->hang_s);
    abandon(d);
    for (int i = 0; i < AN_STEPS_IN_FLIGHT; i++) free(d->run[i].slot);
    free(d->run);
    d->run = NULL;
}
