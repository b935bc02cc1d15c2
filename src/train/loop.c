/* loop.c: the training loop: see loop.h.
 *
 *     an_train -> train_and_record -> train_with_loader -> train_until_done -> iterate
 *
 *     iterate:  update (micro-batches, optimizer) -> line of metrics -> stop at NaN -> evaluation -> checkpoint */
#define _DEFAULT_SOURCE
#include "train/loop.h"
#include "report/loss_curve.h"
#include "train/data_fault.h"
#include "train/evaluate.h"
#include "train/memory_watch.h"
#include "train/nan_origin.h"
#include "comm/comm.h"
#include "train/optimizer.h"
#include "train/rank_times.h"
#include "train/session_ranks.h"
#include "report/metrics.h"
#include "train/step.h"
#include "report/gpu_monitor.h"
#include "report/machine_monitor.h"
#include "platform/platform.h"
#include "platform/sensors.h"
#include <anneal_tools.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

typedef struct loop {
    an_session *r;
    const an_train_listener *listener;
    an_loader *loader;
    an_jsonl metrics;
    int64_t begin_step;             /* updates done when the loop started */
    int64_t saved_step;             /* updates in the newest checkpoint; -1: none yet */
    double began;                   /* clock at the start */
    double first_done;              /* clock after the first update */
    int64_t busy_steps;             /* updates since the last line of metrics */
    double busy_s;                  /* host time in these updates */
    double gpu_s;                   /* device time in these updates */
    double gpu_before;              /* the device's clock before the current update; < 0: it has none */
    double cpu_wait_before;         /* an_cpu_wait_seconds when the first of these updates began */
    double waited_s;                /* the loader's total wait at the last line */
    double exchange_s, rank_wait_s; /* in exchanges with other ranks in these updates; of it, until they came */
    bool times_launches;            /* the current update is one whose exchanges a GPU times */
    int64_t timed_step;             /* the last such update; -1: none yet */
    an_exchange_time timed;         /* its times */
    an_jsonl rank_lines;
    bool evaluated; /* at least once: the evaluation's plan is compiled */
    an_monitor monitor;
    an_gpu_monitor gpu;
    an_memory_watch memory;
    an_memory held; /* after the last logged update: an evaluation's plan may hold less, or more, than training does */
    bool is_held_known;
    double temperature_c; /* at the monitor's last look; NaN: unknown */
    an_train_result *result;
} loop;

static void notify(const loop *l, an_train_event *e, an_train_event_kind kind)
{
    e->kind = kind;
    if (l->listener->event) l->listener->event(l->listener->arg, l->r, e);
}

/* The rank that logs and writes; the others only compute. */
static bool is_rank_0(const loop *l)
{
    return an_comm_rank(l->r->cfg.comm) == 0;
}

static void note(const loop *l, const char *text)
{
    an_train_event e = {.step = l->r->step, .note = text};
    if (text && *text) notify(l, &e, AN_TRAIN_NOTE);
}

/* Passes the monitor's sentences, one a line, to the listener and the logbook. Frees them. */
static an_status report_machine(an_err *err, const loop *l, an_text *what)
{
    const an_logbook book = an_session_logbook(l->r);
    an_status status = what->len ? an_logbook_machine(err, &book, what->data, &l->monitor.was) : AN_OK;
    for (char *line = what->data, *end; line && *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end) *end++ = 0;
        note(l, line);
    }
    an_text_free(what);
    return status;
}

static double temperature_now(void)
{
    an_sensor_sample now;
    an_sensors_sample("", &now);
    return now.temperature.value;
}

static an_status begin_monitor(an_err *err, loop *l)
{
    an_system_info now;
    an_text what = {0};
    an_monitor_facts(&now);
    l->monitor.looked = an_session_clock();
    l->temperature_c = temperature_now();
    an_monitor_begin(&l->monitor, &now, &what);
    an_device_facts device;
    if (an_device_opened(l->r->cx, &device) && device.gpu) an_gpu_monitor_begin(&l->gpu, &what);
    return report_machine(err, l, &what);
}

/* Looks for changes of the machine (heat, power, memory) every AN_WATCH_SECONDS. */
static an_status check_machine(an_err *err, loop *l)
{
    an_text what = {0};
    if (!is_rank_0(l)) return AN_OK;
    const double clock = an_session_clock();
    an_gpu_monitor_look(&l->gpu, clock, clock - l->first_done, &what);
    if (what.len) return report_machine(err, l, &what);
    if (clock - l->monitor.looked < AN_WATCH_SECONDS) return AN_OK;
    an_system_info now = l->monitor.was;
    an_monitor_update(&now);
    l->monitor.looked = an_session_clock();
    l->temperature_c = temperature_now();
    an_monitor_look(&l->monitor, &now, &what);
    return report_machine(err, l, &what);
}

/* All ranks stop together, whichever of them was asked to. */
static an_status any_rank_wants_stop(an_err *err, const loop *l, bool *stop)
{
    return an_comm_any(err, l->r->cfg.comm, l->listener->stop && l->listener->stop(l->listener->arg), stop);
}

/* ---- one update */

static an_status report_bill(an_err *err, const loop *l, an_train_event_kind kind)
{
    an_train_event e = {.step = l->r->step};
    AN_TRY(an_session_result(err, l->r->cx, an_report(l->r->cx, &e.bill)));
    if (kind == AN_TRAIN_COMPILED) l->result->compile_s += 1e-3 * (e.bill.plan_ms + e.bill.compile_ms);
    notify(l, &e, kind);
    return AN_OK;
}

/* The first update: the memory bill is shown before anything runs, so that a user can still interrupt. */
static an_status run_first(an_err *err, const loop *l, const an_step *s)
{
    AN_TRY(an_session_result(err, l->r->cx, an_step_plan(s)));
    AN_TRY(report_bill(err, l, AN_TRAIN_PLANNED));
    AN_TRY(an_session_result(err, l->r->cx, an_step_eval(s)));
    note(l, an_report_text(l->r->cx, "note"));
    AN_TRY(report_bill(err, l, AN_TRAIN_COMPILED));
    const an_logbook book = an_session_logbook(l->r);
    an_bill bill;
    AN_TRY(an_session_result(err, l->r->cx, an_report(l->r->cx, &bill)));
    return is_rank_0(l) ? an_logbook_plan(err, &book, &bill, an_planned_on_cpu(l->r->cx)) : AN_OK;
}

static bool stops_at_nan(const an_train_config *c)
{
    return strcmp(c->nan, "stop") == 0;
}

/* an_step_read waits for the update; after it the other reads do not wait. */
static an_status read_numbers(an_err *err, const an_session *r, const an_step *s, an_train_event *e, int32_t *stopped)
{
    AN_TRY(an_step_read(err, r->cx, &r->cfg, s, e->number));
    e->loss = e->number[0];
    e->norm = an_item(s->norm);
    if (s->stopped) *stopped = (int32_t)an_item(s->stopped);
    if (s->scale) e->scale = an_item(s->scale);
    if (s->skipped) e->skipped = (int64_t)an_item(s->skipped);
    return an_session_fault(err, r->cx);
}

/* ---- what a GPU hides of its exchanges: one update in TIMED_EVERY or more is run with an event before and after each launch, which
 * takes a little longer. The first ones compile, and connect the GPUs. */

enum { TIMED_EVERY = 16 };

static bool is_gpu(const loop *l)
{
    an_device_facts device;
    return an_device_opened(l->r->cx, &device) && device.gpu;
}

static bool is_timed(const loop *l, bool logged)
{
    const int64_t since = l->r->step - (l->timed_step < 0 ? l->begin_step : l->timed_step);
    return logged && an_comm_ranks(l->r->cfg.comm) > 1 && since >= (l->timed_step < 0 ? 2 : TIMED_EVERY) && is_gpu(l);
}

/* Those of the plan that was run last, which is waited for. */
static an_status add_exchange_times(an_err *err, loop *l)
{
    an_exchange_time t;
    AN_TRY(an_session_result(err, l->r->cx, an_synchronize(l->r->cx)));
    AN_TRY(an_session_result(err, l->r->cx, an_exchange_time_read(l->r->cx, &t)));
    l->timed.exchange_s += t.exchange_s;
    l->timed.exposed_s += t.exposed_s;
    return AN_OK;
}

/* Micro-batch `micro` of this rank's. */
static an_status run_micro(an_err *err, loop *l, int64_t micro, void *const *array, an_train_event *e, bool logged,
                           int32_t *stopped)
{
    an_session *r = l->r;
    const int64_t ranks = an_comm_ranks(r->cfg.comm), of_all = micro * ranks + an_comm_rank(r->cfg.comm);
    const an_step s = an_step_build(r->cx, r->model, &r->cfg, r->step, of_all, array);
    const bool last = micro == an_train_micros(&r->cfg) - 1;
    if (last && r->step == l->begin_step)
        AN_TRY(run_first(err, l, &s));
    else
        AN_TRY(an_session_result(err, r->cx, an_step_eval(&s)));
    if (l->times_launches) AN_TRY(add_exchange_times(err, l));
    return last && logged ? read_numbers(err, r, &s, e, stopped) : an_session_fault(err, r->cx);
}

/* The run was asked to stop, and the batch of the next update has not come: a loader thread hangs. Other ranks, which have theirs,
 * are in the update already and cannot be waited for: there the run fails. */
static an_status give_up(an_err *err, loop *l)
{
    if (an_comm_ranks(l->r->cfg.comm) > 1)
        return an_fail(err, AN_E_IO,
                       "interrupted while rank %d waited for a batch that did not come; anneal resume goes on from the "
                       "last checkpoint",
                       an_comm_rank(l->r->cfg.comm));
    l->result->interrupted = true;
    return AN_OK;
}

/* Runs update r->step. The loop waits for the device only where the numbers are read (`logged`) and before a checkpoint
 * (`saved`), so that the checkpoint's time does not include updates still in flight. */
static an_status update(an_err *err, loop *l, an_train_event *e, bool logged, bool saved, int32_t *stopped)
{
    an_session *r = l->r;
    const int64_t micros = an_train_micros(&r->cfg);
    const double begin = an_session_clock();
    if (l->busy_steps == 0)
        l->cpu_wait_before =
            an_cpu_wait_seconds(); /* a line's updates together: one small update is shorter than a look */
    double exchange_before, wait_before, exchange_after, wait_after;
    an_comm_times(r->cfg.comm, &exchange_before, &wait_before);
    l->gpu_before = an_device_busy_seconds(r->cx);
    void *const *array; /* of micros * batch_size samples */
    void *part[AN_MAX_ARRAYS];
    AN_TRY(an_loader_next(err, l->loader, &array));
    if (!array) return give_up(err, l);
    an_status status = AN_OK;
    l->times_launches = is_timed(l, logged);
    if (l->times_launches) {
        l->timed = (an_exchange_time){0};
        l->timed_step = r->step;
        an_profile(r->cx, true);
    }
    for (int64_t micro = 0; micro < micros && status == AN_OK; micro++) {
        an_step_slice(&r->cfg, array, micro, part);
        status = run_micro(err, l, micro, part, e, logged, stopped);
        an_reset(r->cx);
    }
    if (l->times_launches) an_profile(r->cx, false);
    AN_TRY(status);
    if (saved) AN_TRY(an_session_result(err, r->cx, an_synchronize(r->cx)));
    r->step++;
    l->busy_s += an_session_clock() - begin;
    an_comm_times(r->cfg.comm, &exchange_after, &wait_after);
    l->exchange_s += exchange_after - exchange_before;
    l->rank_wait_s += wait_after - wait_before;
    l->gpu_s += an_device_busy_seconds(r->cx) - l->gpu_before;
    l->busy_steps++;
    if (r->step == l->begin_step + 1) l->first_done = an_session_clock();
    return AN_OK;
}

/* ---- lines, evaluations, checkpoints */

/* `step`: the update; < 0: an evaluation of the validation split after the last one. */
static an_status not_finite(an_err *err, const loop *l, const char *what, int64_t step, double value)
{
    const char *found = an_not_finite_text(value);
    const char *advice = "try a lower learning_rate, a smaller grad_clip or dtype=float32";
    char origin[AN_NAN_ORIGIN_BYTES];
    an_text data = {0};
    const bool blame =
        an_comm_ranks(l->r->cfg.comm) == 1 && an_data_fault(l->r, step < 0 ? AN_VAL : AN_TRAIN, step, &data);
    if (step < 0) step = AN_MAX(l->r->step - 1, 0);
    an_nan_origin(l->r, step, origin);
    if (blame) {
        snprintf(origin, sizeof origin, ": %.*s", (int)sizeof origin - 3, data.data);
        advice = "correct the data";
    }
    an_text_free(&data);
    if (l->saved_step < 0)
        return an_fail(err, AN_E_NUMERIC, "update %lld: the %s is %s%s; nothing was saved; %s", (long long)step, what,
                       found, origin, advice);
    return an_fail(err, AN_E_NUMERIC,
                   "update %lld: the %s is %s%s; %s/last.safetensors holds the run after %lld updates; %s",
                   (long long)step, what, found, origin, l->r->cfg.out, (long long)l->saved_step, advice);
}

static void measure(loop *l, an_train_event *e)
{
    const an_session *r = l->r;
    const int64_t samples = r->cfg.batch_size * r->cfg.gradient_accumulation_steps;
    const double units = (double)(samples * an_task_units(&r->cfg));
    const double waited = an_loader_wait_seconds(l->loader), n = (double)l->busy_steps;
    e->lr = an_step_lr(&r->cfg, e->step);
    e->ms = 1e3 * l->busy_s / n;
    e->units_per_s = l->busy_s > 0 ? units * n / l->busy_s : 0;
    e->data_wait_ms = 1e3 * (waited - l->waited_s) / n;
    const double cpu_wait_s = an_cpu_wait_seconds() - l->cpu_wait_before;
    e->cpu_wait_ms = isnan(cpu_wait_s) ? (double)NAN : 1e3 * fmin(cpu_wait_s, l->busy_s) / n;
    /* The first update plans and compiles: the estimate leaves it out. */
    const double later = (double)(r->step - l->begin_step - 1);
    e->eta_s = later > 0 ? (an_session_clock() - l->first_done) / later * (double)(r->cfg.max_iters - r->step) : NAN;
    e->gpu_busy = l->gpu_before >= 0 && l->busy_s > 0 ? l->gpu_s / l->busy_s : l->gpu.busy;
    e->exchange_share = NAN;
    e->slowest = -1;
    l->gpu_s = 0;
    l->waited_s = waited;
    l->busy_s = 0;
    l->busy_steps = 0;
}

/* Gathers the times of all ranks; every rank calls it, after `measure`, with the n updates that it measured. A GPU's
 * exchanges are part of its own time, which the host does not see: they are those of the last update that was timed. */
static an_status compare_ranks(an_err *err, loop *l, double n, an_train_event *e)
{
    an_comm *comm = l->r->cfg.comm;
    const int ranks = an_comm_ranks(comm);
    an_rank_times all[AN_COMM_RANKS];
    an_memory memory;
    if (ranks == 1) return AN_OK;
    const bool gpu = is_gpu(l), seen = !gpu || l->timed_step >= 0;
    const double exchange_s = gpu ? l->timed.exchange_s : l->exchange_s / n;
    const an_rank_times mine = {.ms = e->ms,
                                .exchange_ms = seen ? 1e3 * exchange_s : (double)NAN,
                                .exposed_ms = seen ? 1e3 * (gpu ? l->timed.exposed_s : exchange_s) : (double)NAN,
                                .wait_ms = gpu ? (double)NAN : 1e3 * l->rank_wait_s / n,
                                .data_wait_ms = e->data_wait_ms,
                                .rss_bytes = (double)an_rss_bytes(),
                                .live_bytes = an_memory_read(l->r->cx, &memory) == AN_OK ? (double)memory.live_bytes
                                                                                         : (double)NAN};
    l->exchange_s = l->rank_wait_s = 0;
    AN_TRY(an_rank_times_gather(err, comm, &mine, all));
    e->exchange_share = an_rank_times_share(all, ranks);
    e->slowest = an_rank_times_slowest(all, ranks, &e->slower);
    return is_rank_0(l) ? an_rank_times_write(err, &l->rank_lines, e->step, all, ranks) : AN_OK;
}

/* What is known without asking a device or waiting; the swap is that of the monitor's last look. */
static void put_memory(const loop *l, an_metrics_line *m)
{
    const an_system_info *machine = &l->monitor.was;
    const uint64_t rss = an_rss_bytes();
    uint64_t heap, mapped;
    an_memory memory;
    bool known = an_memory_read(l->r->cx, &memory) == AN_OK;
    if (l->is_held_known) memory = l->held, known = true;
    an_rss_parts(&heap, &mapped);
    m->heap_bytes = heap ? (double)heap : NAN;
    m->mapped_bytes = mapped ? (double)mapped : NAN;
    m->live_bytes = known ? (double)memory.live_bytes : NAN;
    m->reserved_bytes = known ? (double)memory.requested_bytes : NAN;
    m->plans = known ? memory.plans : NAN;
    m->rss_bytes = rss ? (double)rss : NAN;
    m->temperature_c = l->temperature_c;
    m->gpu_temperature_c = l->gpu.temperature_c;
    m->thermal = machine->thermal;
    m->swap_bytes = (double)machine->swap_bytes - (double)machine->swap_free_bytes;
}

/* Writes the event as a line of metrics, with the model's other numbers: "accuracy", "val_accuracy". */
static an_status write_metrics(an_err *err, loop *l, const an_train_event *e, bool evaluated)
{
    const an_train_config *c = &l->r->cfg;
    const an_sum *sums = c->model->sums(an_model_settings(c));
    char names[AN_MODEL_SUMS][64];
    an_metrics_line m = {.step = e->step,
                         .loss = e->loss,
                         .lr = e->lr,
                         .norm = e->norm,
                         .ms = e->ms,
                         .units_per_s = e->units_per_s,
                         .data_wait_ms = e->data_wait_ms,
                         .cpu_wait_ms = e->cpu_wait_ms,
                         .unit = c->task->unit,
                         .evaluated = evaluated,
                         .val_loss = e->val_loss,
                         .train_loss = e->train_loss,
                         .scale = e->scale,
                         .skipped = e->skipped,
                         .gpu_busy = e->gpu_busy,
                         .exchange_share = e->exchange_share};
    put_memory(l, &m);
    size_t n = 0;
    for (int64_t i = 1; i < an_step_sums(c); i++) {
        m.more[n++] = (an_metrics_number){sums[i].name, e->number[i]};
        snprintf(names[i], sizeof names[i], "val_%s", sums[i].name);
        if (evaluated) m.more[n++] = (an_metrics_number){names[i], e->val_number[i]};
    }
    return is_rank_0(l) ? an_metrics_write(err, &l->metrics, &m) : AN_OK;
}

static bool wants_train_loss(const an_train_config *c)
{
    return c->eval_train || c->eval_only || strcmp(c->log_format, "nanogpt") == 0;
}

static an_status evaluate_splits(an_err *err, loop *l, an_train_event *e)
{
    an_session *r = l->r;
    an_evaluation v = {.loss = NAN};
    e->train_loss = NAN;
    if (wants_train_loss(&r->cfg)) {
        AN_TRY(an_evaluate_split(err, r, AN_TRAIN, &v));
        if (v.stopped) return l->result->interrupted = true, AN_OK;
        e->train_loss = l->result->train_loss = v.loss;
    }
    AN_TRY(an_evaluate_split(err, r, AN_VAL, &v));
    if (v.stopped) return l->result->interrupted = true, AN_OK;
    e->val_loss = l->result->val_loss = v.loss;
    memcpy(e->val_number, v.number, sizeof e->val_number);
    if (!isfinite(v.loss)) return not_finite(err, l, "validation loss", -1, v.loss);
    e->improved = v.loss < r->best_val;
    return AN_OK;
}

static an_status evaluate(an_err *err, loop *l, an_train_event *e)
{
    const double begin = an_session_clock();
    AN_TRY(evaluate_splits(err, l, e));
    /* The first evaluation compiles, and plans unless the memory estimate has planned it already. */
    const double total = an_session_clock() - begin;
    an_bill bill;
    const bool first = !l->evaluated && an_report(l->r->cx, &bill) == AN_OK;
    const double compiled = first ? AN_MIN(total, 1e-3 * (bill.plan_ms + bill.compile_ms)) : 0;
    l->evaluated = true;
    l->result->compile_s += compiled;
    l->result->evaluate_s += total - compiled;
    if (l->result->interrupted || !e->improved) return AN_OK;
    l->r->best_val = e->val_loss;
    l->r->best_step = l->r->step;
    return AN_OK;
}

/* An evaluation's event has the number of updates done, not the update's number. */
static void notify_evaluated(const loop *l, const an_train_event *e)
{
    an_train_event evaluated = *e;
    evaluated.step = l->r->step;
    notify(l, &evaluated, AN_TRAIN_EVALUATED);
}

static an_status save(an_err *err, loop *l, bool improved)
{
    const double begin = an_session_clock();
    AN_TRY(an_ranks_check_params(err, l->r, true));
    AN_TRY(an_ranks_gather_states(err, l->r));
    if (is_rank_0(l)) {
        AN_TRY(an_session_save(err, l->r, improved));
        AN_TRY(an_ranks_end_parts(err, l->r));
    } else {
        AN_TRY(an_ranks_send_parts(err, l->r));
    }
    l->result->save_s += an_session_clock() - begin;
    l->saved_step = l->r->step;
    an_train_event e = {.step = l->r->step, .improved = improved};
    notify(l, &e, AN_TRAIN_SAVED);
    return AN_OK;
}

/* With nan=stop the device skips every update from the first one with gradients that are not finite; unless the host
 * reports it, a run would go on for days without learning. `stopped` is the device's record of that update
 * (an_step_stopped), for which a line of metrics is written. */
static an_status stop_at_nan(an_err *err, loop *l, an_train_event *e, bool logged, int32_t stopped)
{
    int64_t step = e->step;
    double norm = e->norm;
    const bool bad_update = an_step_stopped(stopped, &step, &norm);
    if (bad_update && (step != e->step || !logged)) e->loss = NAN; /* that update's loss was not read */
    const bool bad_loss = logged && step == e->step && !isfinite(e->loss);
    if (!stops_at_nan(&l->r->cfg) || (!bad_update && !bad_loss)) return AN_OK;
    e->step = step;
    e->norm = norm;
    if (l->busy_steps > 0) measure(l, e);
    e->lr = an_step_lr(&l->r->cfg, step);
    AN_TRY(write_metrics(err, l, e, false));
    return bad_loss ? not_finite(err, l, "loss", step, e->loss)
                    : not_finite(err, l, "norm of the gradients", step, norm);
}

/* Reads the device's record of a bad update at a checkpoint without a line of metrics. */
static an_status read_stopped(an_err *err, const an_session *r, int32_t *stopped)
{
    const int i = stops_at_nan(&r->cfg) ? an_persist_find(r->cx, "stopped") : -1;
    return i < 0 ? AN_OK : an_session_result(err, r->cx, an_persist_read(r->cx, i, stopped, sizeof *stopped));
}

static bool every(int64_t step, int64_t interval)
{
    return interval > 0 && step % interval == 0;
}

/* Writes the line of metrics and notifies. Of an interrupted evaluation the line has no val_loss, and the session
 * records that the evaluation is owed, which the next checkpoint stores. */
static an_status end_evaluation(an_err *err, loop *l, const an_train_event *e)
{
    l->r->owes_evaluation = l->result->interrupted;
    AN_TRY(write_metrics(err, l, e, !l->result->interrupted));
    if (!l->result->interrupted) notify_evaluated(l, e);
    return AN_OK;
}

/* The updates since the last line of metrics may contain a bad one: checks before it saves. */
static an_status end_interrupted(an_err *err, loop *l)
{
    if (l->saved_step == l->r->step) return AN_OK;
    an_train_event e = {.step = l->r->step - 1};
    int32_t stopped = 0;
    AN_TRY(read_stopped(err, l->r, &stopped));
    AN_TRY(stop_at_nan(err, l, &e, false, stopped));
    return save(err, l, false);
}

static bool evaluation_is_due(const an_train_config *c, int64_t done)
{
    return done == c->max_iters || (every(done, c->eval_interval) && done / c->eval_interval > c->min_eval_interval);
}

/* One update, then its line of metrics, evaluation and checkpoint where they are due. */
static an_status iterate(an_err *err, loop *l)
{
    an_session *r = l->r;
    const an_train_config *c = &r->cfg;
    const int64_t done = r->step + 1;
    const bool evaluated = evaluation_is_due(c, done);
    const bool logged = evaluated || every(r->step, c->log_interval), saved = every(done, c->save_interval);
    an_train_event e = {.step = r->step};
    int32_t stopped = 0;
    AN_TRY(update(err, l, &e, logged, saved, &stopped));
    if (l->result->interrupted) return end_interrupted(err, l);
    if (saved && !logged) AN_TRY(read_stopped(err, r, &stopped));
    if (logged && !stopped) {
        l->result->loss = e.loss;
        const double updates = (double)l->busy_steps;
        l->is_held_known = an_memory_read(r->cx, &l->held) == AN_OK;
        measure(l, &e);
        AN_TRY(compare_ranks(err, l, updates, &e));
        notify(l, &e, AN_TRAIN_LOGGED);
        AN_TRY(check_machine(err, l));
        if (is_rank_0(l)) AN_TRY(an_memory_watch_look(err, &l->memory, r, l->begin_step));
    }
    AN_TRY(stop_at_nan(err, l, &e, logged, stopped));
    if (evaluated) AN_TRY(evaluate(err, l, &e));
    if (evaluated) AN_TRY(end_evaluation(err, l, &e));
    if (logged && !evaluated) AN_TRY(write_metrics(err, l, &e, false));
    if (l->result->interrupted) return save(err, l, false);
    const bool due = saved || done == c->max_iters || (evaluated && (c->always_save || e.improved));
    return due ? save(err, l, e.improved) : AN_OK;
}

/* The event of an evaluation that follows no update: all numbers of training are unknown. */
static an_train_event evaluation_alone(int64_t step)
{
    return (an_train_event){.step = step,
                            .loss = NAN,
                            .lr = NAN,
                            .norm = NAN,
                            .ms = NAN,
                            .units_per_s = NAN,
                            .data_wait_ms = NAN,
                            .cpu_wait_ms = NAN,
                            .gpu_busy = NAN,
                            .exchange_share = NAN,
                            .slowest = -1};
}

/* Makes the evaluation in which the run was interrupted before, and the checkpoint that it would have written. */
static an_status evaluate_owed(an_err *err, loop *l)
{
    an_train_event e = evaluation_alone(l->r->step - 1);
    AN_TRY(evaluate(err, l, &e));
    if (l->result->interrupted) return AN_OK; /* the checkpoint on disk still says that it is owed */
    AN_TRY(end_evaluation(err, l, &e));
    const an_train_config *c = &l->r->cfg;
    return c->always_save || e.improved || l->r->step == c->max_iters ? save(err, l, e.improved) : AN_OK;
}

/* nanoGPT's evaluation at iteration 0; no checkpoint is written for it. */
static an_status evaluate_first(an_err *err, loop *l)
{
    an_train_event e = evaluation_alone(-1);
    const double best = l->r->best_val;
    const int64_t best_step = l->r->best_step;
    AN_TRY(evaluate(err, l, &e));
    l->r->best_val = best; /* no checkpoint has this loss: it is not the best one */
    l->r->best_step = best_step;
    e.improved = false;
    if (l->result->interrupted) return AN_OK;
    if (!l->r->cfg.eval_only) AN_TRY(write_metrics(err, l, &e, true));
    notify_evaluated(l, &e);
    return AN_OK;
}

static an_status train_until_done(an_err *err, loop *l)
{
    an_session *r = l->r;
    bool stop;
    while (r->step < r->cfg.max_iters && !l->result->interrupted) {
        AN_TRY(any_rank_wants_stop(err, l, &stop));
        if (stop) {
            l->result->interrupted = true;
            return end_interrupted(err, l);
        }
        AN_TRY(iterate(err, l));
    }
    return AN_OK;
}

static void say_stuck(void *arg, const char *path, double seconds)
{
    char text[1200];
    snprintf(text, sizeof text,
             "no batch came for %.0f s: a loader thread %s%.1000s; the run goes on when it does, Ctrl-C ends it",
             seconds, path ? "is still at " : "is stuck", path ? path : "");
    note(arg, text);
}

static an_status train_with_loader(an_err *err, loop *l)
{
    an_session *r = l->r;
    const int64_t samples = r->cfg.batch_size * r->cfg.gradient_accumulation_steps;
    const int ranks = an_comm_ranks(r->cfg.comm);
    const an_sample_range draw = {.split = AN_TRAIN,
                                  .seed = (uint64_t)r->cfg.seed,
                                  .first = an_comm_rank(r->cfg.comm) * r->cfg.batch_size,
                                  .samples = samples / ranks,
                                  .per_step = samples};
    an_task_source *data = malloc(sizeof *data); /* not on the stack: a thread that hangs keeps it */
    if (!data) return an_fail_nomem(err, "the source of batches", sizeof *data);
    an_source source;
    an_task_source_open(&r->cfg, r->data, &draw, data, &source);
    an_status status = an_loader_open(err, &source, (uint64_t)r->step, (int)r->cfg.workers, &l->loader);
    if (status == AN_OK) {
        an_loader_on_stuck(l->loader, 0, say_stuck, l);
        if (l->listener->stop) an_loader_stops(l->loader, 0, l->listener->stop, l->listener->arg);
        status = train_until_done(err, l);
        l->result->data_wait_s = an_loader_wait_seconds(l->loader);
        r->data_in_use = !an_loader_close(l->loader);
    }
    if (!r->data_in_use) free(data);
    return status;
}

static bool begins_with_evaluation(const loop *l)
{
    const an_train_config *c = &l->r->cfg;
    return l->r->step == 0 && (c->eval_first || strcmp(c->log_format, "nanogpt") == 0);
}

/* Names the parameters that init_from= did not give. */
static void note_fresh(const loop *l)
{
    char text[600];
    if (!l->r->fresh.len || l->r->fresh.failed) return;
    snprintf(
        text, sizeof text,
        "init_from=%.200s has no head of this shape: %.300s start at random, all other parameters are from the file",
        l->r->cfg.init_from, l->r->fresh.data);
    note(l, text);
}

static void note_converted(const loop *l)
{
    const bool narrow = l->r->cfg.weights_dtype == AN_BF16;
    char text[200];
    if (l->r->converted == 0) return;
    snprintf(text, sizeof text, "%d weights of the file are %s and are kept in %s (weights_dtype=)%s", l->r->converted,
             narrow ? "float32" : "bfloat16", an_dtype_text(l->r->cfg.weights_dtype),
             narrow ? ", rounded to the nearest" : "");
    note(l, text);
}

/* With averages: which rate they follow, and what uses them. */
static void note_averages(const loop *l)
{
    const an_train_config *c = &l->r->cfg;
    char text[256];
    if (!c->ema) return;
    snprintf(text, sizeof text, "averages of the parameters (ema_rate=%g) are what is evaluated, exported and sampled",
             c->ema_rate);
    note(l, text);
    if (!an_optimizer_ema_warms_up(c)) return;
    snprintf(text, sizeof text,
             "max_iters=%lld is under 5/(1-ema_rate) = %.0f updates: the rate of update t is at most (1+t)/(10+t), "
             "or the averages would be mostly what the run began with",
             (long long)c->max_iters, 5 / (1 - c->ema_rate));
    note(l, text);
}

/* What the task has to say of its settings and data. */
static void note_task(const loop *l)
{
    const an_train_config *c = &l->r->cfg;
    an_text text = {0};
    if (c->task->tell) c->task->tell(c, l->r->data, &text);
    for (char *line = text.failed ? NULL : text.data, *end; line && *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end) *end++ = 0;
        note(l, line);
    }
    an_text_free(&text);
}

/* Products of bfloat16 on tile registers round otherwise: a resumed run stays with what it began on, where it can. */
static void note_isa(const loop *l)
{
    char text[400];
    const char *began = l->r->began_isa, *isa = an_device_isa(l->r->cx), *same = an_isa_of_bits("cpu", began);
    if (!*began || l->r->cfg.isa[0] || !isa || !same) return;
    if (*same)
        snprintf(text, sizeof text,
                 "the run began on isa=%s and goes on with its bits on %s, though this processor has tile registers; "
                 "isa=amx is faster and rounds otherwise",
                 began, isa);
    else
        snprintf(
            text, sizeof text,
            "the run began on tile registers (isa=%s), which this processor lacks: from here on products in bfloat16 "
            "round otherwise; isa=amx_emulated would go on with its bits, slowly",
            began);
    note(l, text);
}

static an_status begin_record(an_err *err, loop *l)
{
    an_text notes = {0};
    AN_TRY(an_metrics_open(err, l->r->cfg.out, l->r->step, &l->metrics));
    if (an_comm_ranks(l->r->cfg.comm) > 1) AN_TRY(an_rank_times_open(err, l->r->cfg.out, l->r->step, &l->rank_lines));
    an_status status = an_session_begin_logbook(err, l->r, &notes);
    note(l, notes.data);
    an_text_free(&notes);
    if (status == AN_OK) status = begin_monitor(err, l);
    note_task(l);
    note_averages(l);
    note_fresh(l);
    note_isa(l);
    note_converted(l);
    return status;
}

/* First checkpoint (so that a run can be resumed from the start), metrics, logbook, updates. */
static an_status train_and_record(an_err *err, loop *l)
{
    an_session *r = l->r;
    if (l->saved_step < 0) AN_TRY(save(err, l, false));
    an_status status = is_rank_0(l) ? begin_record(err, l) : AN_OK;
    if (status == AN_OK && begins_with_evaluation(l)) status = evaluate_first(err, l);
    if (status == AN_OK && r->owes_evaluation) status = evaluate_owed(err, l);
    if (status == AN_OK && !l->result->interrupted) status = train_with_loader(err, l);
    an_gpu_monitor_end(&l->gpu);
    if (is_rank_0(l)) an_jsonl_close(&l->metrics);
    if (is_rank_0(l) && an_comm_ranks(r->cfg.comm) > 1) an_jsonl_close(&l->rank_lines);
    return status;
}

static double seconds_of(struct timeval t)
{
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

/* Processor time of this program so far. */
static void processor_time(double *user_s, double *system_s)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    *user_s = seconds_of(usage.ru_utime);
    *system_s = seconds_of(usage.ru_stime);
}

an_status an_train_logbook_end(an_err *err, const an_session *r, const char *how, const an_train_result *t,
                               const char *error)
{
    const an_logbook book = an_session_logbook(r);
    const an_metrics_number numbers[] = {{"loss", t->loss},
                                         {"val_loss", t->val_loss},
                                         {"best_val_loss", r->best_val},
                                         {"seconds", t->seconds},
                                         {"user_s", t->user_s},
                                         {"system_s", t->system_s},
                                         {"compile_s", t->compile_s},
                                         {"evaluate_s", t->evaluate_s},
                                         {"save_s", t->save_s},
                                         {"data_wait_s", t->data_wait_s},
                                         {NULL, 0}};
    return an_logbook_end(err, &book, how, numbers, error);
}

/* Writes the logbook's last line and the loss curve. If training failed, its error is returned, not one from here. */
static an_status record_end(an_err *err, const loop *l, an_status status)
{
    an_err late = {0};
    const char *how = status != AN_OK ? "failed" : l->result->interrupted ? "interrupted" : "end";
    an_status written = an_train_logbook_end(&late, l->r, how, l->result, status != AN_OK ? err->text : NULL);
    if (written == AN_OK) written = an_curve_save(&late, l->r->cfg.out);
    return status != AN_OK ? status : written == AN_OK ? AN_OK : an_fail(err, written, "%s", late.text);
}

an_status an_train(an_err *err, an_session *r, const an_train_listener *listener, an_train_result *out)
{
    *out = (an_train_result){.loss = NAN, .val_loss = NAN, .train_loss = NAN};
    if (r->cfg.max_iters > AN_STEP_MOST) /* that are so many epochs of puzzles or conversations */
        return an_fail(err, AN_E_USAGE, "%lld updates are asked for, and no run has more than %d",
                       (long long)r->cfg.max_iters, AN_STEP_MOST);
    loop l = {.r = r,
              .listener = listener,
              .result = out,
              .begin_step = r->step,
              .saved_step = r->step > 0 ? r->step : -1,
              .timed_step = -1,
              .gpu = {.busy = NAN, .temperature_c = NAN},
              .metrics = {.fd = -1},
              .rank_lines = {.fd = -1}};
    double user_s, system_s;
    processor_time(&user_s, &system_s);
    l.began = an_session_clock();
    r->stop = listener->stop;
    r->stop_arg = listener->arg;
    void *awake = an_awake_begin();
    if (awake) note(&l, "this Mac does not go to sleep while the run goes on; its display may");
    an_status status = r->cfg.eval_only ? evaluate_first(err, &l) : train_and_record(err, &l);
    an_awake_end(awake);
    r->stop = NULL;
    out->seconds = an_session_clock() - l.began;
    processor_time(&out->user_s, &out->system_s);
    out->user_s -= user_s;
    out->system_s -= system_s;
    an_bill bill;
    if (an_report(r->cx, &bill) == AN_OK) out->waits = bill.waits, out->stalls = bill.stalls;
    return r->cfg.eval_only || !is_rank_0(&l) ? status : record_end(err, &l, status);
}
