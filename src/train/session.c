/* session.c: opens what a run needs, in order (data, context, model, weights), and reads and writes its checkpoints.
 * See session.h. */
#define _DEFAULT_SOURCE
#include "train/session.h"
#include "comm/comm.h"
#include "io/formats/json.h"
#include "platform/platform.h"
#include "platform/thread_pool.h"
#include "train/init_from.h"
#include "train/optimizer.h"
#include "train/run_dir.h"
#include "train/run_state.h"
#include "train/session_ranks.h"
#include "train/step.h"
#include <anneal_tools.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double an_session_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

an_status an_session_fault(an_err *err, an_ctx *cx)
{
    if (!cx) return an_fail(err, AN_E_NOMEM, "no memory for a context");
    const char *sentence = an_error(cx);
    return sentence ? an_fail(err, an_error_status(cx), "%s", sentence) : AN_OK;
}

an_status an_session_result(an_err *err, an_ctx *cx, an_status status)
{
    if (status == AN_OK) return AN_OK;
    an_status recorded = an_session_fault(err, cx);
    return recorded != AN_OK ? recorded
                             : an_fail(err, status, "the device returned status %d without a message", (int)status);
}

/* ---- host memory */

uint64_t an_session_loader_bytes(const an_train_config *c)
{
    an_source s;
    s.n = c->model->inputs(an_model_settings(c), c->batch_size * an_train_micros(c), s.array);
    return an_loader_bytes_for(&s, (int)c->workers);
}

/* An evaluation's batch, and the largest parameter while it is written to a checkpoint. */
uint64_t an_session_buffer_bytes(const an_train_config *c)
{
    an_array array[AN_MAX_ARRAYS];
    an_model_counts counts;
    const int n = c->model->inputs(an_model_settings(c), c->batch_size, array);
    c->model->count(an_model_settings(c), c->batch_size, &counts);
    return an_arrays_layout(array, n, NULL) + (uint64_t)counts.largest * sizeof(float);
}

/* ---- opening, in order: data, context, model, weights */

/* The device's share of the run's memory budget: what data, loader and host buffers leave. 0: no limit. */
static uint64_t device_budget(const an_session *r)
{
    const uint64_t all = (uint64_t)(r->cfg.budget * 1073741824.0);
    const uint64_t host = an_session_loader_bytes(&r->cfg) + an_session_buffer_bytes(&r->cfg) + r->data->bytes;
    return r->cfg.budget == 0 ? 0 : all > host ? all - host : 1;
}

/* Of the setting, where 0 is no limit and a negative number the default; the library has them the other way round. */
static double watermark(double setting)
{
    return setting < 0 ? 0 : setting > 0 ? setting : -1;
}

/* The ranks of a host divide its threads. */
static int threads_of(const an_train_config *c)
{
    const int ranks = an_comm_ranks(c->comm),
              all = c->threads > 0 || ranks == 1 ? (int)c->threads : an_cores_available();
    return ranks == 1 ? all : AN_MAX(1, all / ranks);
}

static an_shard shard_of(const an_train_config *c)
{
    return strcmp(c->shard, "moments") == 0     ? AN_SHARD_MOMENTS
           : strcmp(c->shard, "gradients") == 0 ? AN_SHARD_GRADIENTS
           : strcmp(c->shard, "weights") == 0   ? AN_SHARD_WEIGHTS
                                                : AN_SHARD_NONE;
}

/* Turns the setting place= into a list of scopes: "a.*:cpu,b:cpu" becomes "a.*,b". AN_E_USAGE for another form. */
static an_status scopes_on_cpu(an_err *err, const char *place, an_train_text out)
{
    size_t n = 0;
    for (const char *at = place; *at;) {
        const size_t length = strcspn(at, ",");
        char quoted[AN_QUOTED_BYTES];
        if (length < 5 || memcmp(at + length - 4, ":cpu", 4) != 0)
            return an_fail(err, AN_E_USAGE,
                           "place=%s: it is GLOB:cpu, or several with commas, such as optimizer:cpu,gpt.h.0.*:cpu",
                           an_quoted(place, quoted));
        if (n > 0) out[n++] = ',';
        memcpy(out + n, at, length - 4);
        n += length - 4;
        at += length + (at[length] == ',');
    }
    out[n] = 0;
    return AN_OK;
}

/* What weights_dtype= made narrow is exported in float32, so a model that is bfloat16 by itself (of a .pt2 file) has no use for it. */
static an_status check_declared(an_err *err, const an_session *r)
{
    const int n = r->cfg.weights_dtype == AN_BF16 ? an_persist_count(r->cx) : 0;
    for (int i = 0; i < n; i++) {
        an_persist p;
        AN_TRY(an_session_result(err, r->cx, an_persist_get(r->cx, i, &p)));
        if (p.kind == 0 && p.declared != AN_F32)
            return an_fail(err, AN_E_USAGE,
                           "weights_dtype=bfloat16 is for models in float32, and %s is %s in this one: leave it out",
                           p.name, an_dtype_text(p.declared));
    }
    return AN_OK;
}

/* The set to open: what isa= says, or what gives the bits that a resumed run in bfloat16 began with; NULL: the device's own choice. */
static const char *isa_of(const an_session *r)
{
    const char *same = r->began_isa[0] ? an_isa_of_bits("cpu", r->began_isa) : NULL;
    return r->cfg.isa[0] ? r->cfg.isa : same && *same ? same : NULL;
}

static an_status open_context(an_err *err, an_session *r, bool parameters_given)
{
    const an_train_config *c = &r->cfg;
    an_train_text on_cpu;
    AN_TRY(scopes_on_cpu(err, c->place, on_cpu));
    const an_options o = {.device = c->device,
                          .seed = (uint64_t)c->seed,
                          .threads = threads_of(c),
                          .isa = isa_of(r),
                          .cc = c->cc[0] ? c->cc : NULL,
                          .cache_dir = c->cache_dir[0] ? c->cache_dir : NULL,
                          .budget_bytes = device_budget(r),
                          .low_watermark = watermark(c->low_watermark),
                          .high_watermark = watermark(c->high_watermark),
                          .recompute = c->recompute,
                          .unfused = !c->compile,
                          .exact = c->exact,
                          .tf32 = c->tf32,
                          .fallback = strcmp(c->fallback, "auto") == 0 ? NULL : c->fallback,
                          .on_cpu = on_cpu[0] ? on_cpu : NULL,
                          .place_apart = c->place_apart,
                          .verify = c->verify,
                          .dump = c->dump[0] ? c->dump : NULL,
                          .dump_dir = c->dump_dir[0] ? c->dump_dir : NULL,
                          .parameters_given = parameters_given};
    r->cx = an_open(&o);
    AN_TRY(an_session_fault(err, r->cx));
    AN_TRY(an_session_result(err, r->cx, an_join(r->cx, c->comm)));
    AN_TRY(an_session_result(err, r->cx, an_shard_optimizer(r->cx, shard_of(c))));
    an_overlap_exchanges(r->cx, c->overlap);
    AN_TRY(an_session_result(err, r->cx, an_exchange_bf16(r->cx, c->exchange_dtype == AN_BF16)));
    an_set_policy(r->cx, (an_policy){.matmul = c->dtype, .weights = c->weights_dtype});
    r->model = c->model->open(r->cx, an_model_settings(c));
    AN_TRY(an_session_fault(err, r->cx));
    if (!r->model) return an_fail_nomem(err, "the model's tables", 0);
    AN_TRY(check_declared(err, r));
    AN_TRY(an_optimizer_select(err, r->cx, c));
    if (c->model->fill) c->model->fill(r->model);
    return an_session_fault(err, r->cx);
}

/* ---- weights and progress from a checkpoint */

/* Declares the optimizer's moments, which the first optimizer call creates: builds one step and drops it unrun. */
static an_status make_moments(an_err *err, an_session *r)
{
    an_step_build(r->cx, r->model, &r->cfg, 0, r->cfg.gradient_accumulation_steps - 1, NULL);
    an_step_kept(r->cx, &r->cfg); /* the evaluation's state too: after this all persistent tensors are declared */
    an_status status = an_session_fault(err, r->cx);
    an_reset(r->cx);
    return status;
}

/* A loss scale that is not finite and positive would make the device skip every update forever. */
static an_status check_loss_scale(an_err *err, const an_st *from, const an_persist *p, const an_st_tensor *t)
{
    float scale;
    if (strcmp(p->name, "optimizer.scale") != 0) return AN_OK;
    memcpy(&scale, t->data, sizeof scale);
    if (scale > 0 && isfinite(scale)) return AN_OK;
    return an_fail(err, AN_E_IO,
                   "%s: byte %llu: the loss scale is %g, but must be finite and above 0; the file is damaged",
                   an_st_path(from), (unsigned long long)t->at, (double)scale);
}

/* A NaN stops a run at its next update, with a sentence. An infinite second moment does not: every update of its weight is 0. */
static an_status check_second_moments(an_err *err, const an_st *from, const an_persist *p, const an_st_tensor *t)
{
    if (strncmp(p->name, AN_CKPT_V, strlen(AN_CKPT_V)) != 0) return AN_OK;
    const bool wide = t->dtype == AN_F32;
    const size_t n = t->bytes / (wide ? 4 : 2);
    if (!wide && t->dtype != AN_BF16) return AN_OK;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = 0;
        memcpy((char *)&bits + (wide ? 0 : 2), (const char *)t->data + i * (wide ? 4 : 2), wide ? 4 : 2);
        if (bits != 0x7f800000) continue;
        return an_fail(err, AN_E_DATA,
                       "%s: element %zu of %s is infinite, so no update would change its weight; begin a new run with "
                       "init_from=%s",
                       an_st_path(from), i, p->name, an_st_path(from));
    }
    return AN_OK;
}

/* The first element that is NaN, of float32 or bfloat16; -1: there is none. */
static int64_t first_nan(const an_st_tensor *t)
{
    const bool wide = t->dtype == AN_F32;
    const size_t bytes = wide ? 4 : 2, n = t->bytes / bytes;
    const char *at = t->data;
    if (!wide && t->dtype != AN_BF16) return -1;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = 0;
        memcpy((char *)&bits + (4 - bytes), at + i * bytes, bytes);
        if ((bits & 0x7fffffff) > 0x7f800000) return (int64_t)i;
    }
    return -1;
}

/* A model that is only asked, or begun with, would answer with numbers that mean nothing. */
static an_status check_weight(an_err *err, const an_st *from, const an_persist *p, const an_st_tensor *t)
{
    const int64_t at = p->kind == 0 ? first_nan(t) : -1;
    if (at < 0) return AN_OK;
    return an_fail(
        err, AN_E_NUMERIC,
        "%s: element %lld of %s is nan: the model is not finite, and nothing that it computes means anything; "
        "take an earlier checkpoint of its run (step=N), or train again with a lower learning_rate",
        an_st_path(from), (long long)at, p->name);
}

/* The dtype that the file's tensor may have: of a parameter either of those that weights_dtype= chooses between. */
static an_dtype dtype_in_file(const an_st *from, const char *prefix, const an_persist *p)
{
    char key[512];
    snprintf(key, sizeof key, "%s%s", prefix, p->name);
    const an_st_tensor *t = an_st_find(from, key);
    const bool either = t && p->kind == 0 && p->declared == AN_F32 && (t->dtype == AN_F32 || t->dtype == AN_BF16);
    return either ? t->dtype : p->dtype;
}

/* Entry i from bfloat16 numbers of a file, kept in float32 here. */
static an_status write_widened(an_err *err, an_session *r, int i, const an_st_tensor *t, size_t n)
{
    uint32_t *wide = malloc(n * sizeof *wide + 1);
    if (!wide) return an_fail_nomem(err, t->name, n * sizeof *wide);
    an_st_widen(t, n, wide);
    const an_status status = an_session_result(err, r->cx, an_persist_write(r->cx, i, wide, n * sizeof *wide));
    free(wide);
    return status;
}

/* Reads tensor i of the session from the file's tensor PREFIX NAME. `finite`: a weight must be no NaN. */
static an_status read_tensor(an_err *err, const an_st *from, const char *prefix, an_session *r, int i,
                             const an_persist *p, bool finite)
{
    const an_st_tensor *t;
    size_t n = 1;
    int64_t dim[8];
    memcpy(dim, p->shape.dim, sizeof dim);
    /* The file may have more rows of this parameter (a longer position table); the first ones are used. */
    const char *truncated = r->cfg.model->cut_parameter;
    if (truncated && strcmp(p->name, truncated) == 0 && (t = an_st_find(from, p->name)) != NULL && t->rank == 2)
        dim[0] = AN_MAX(dim[0], t->shape[0]);
    const an_dtype dtype = dtype_in_file(from, prefix, p);
    AN_TRY(an_ckpt_expect(err, from, prefix, p->name, dtype, p->shape.rank, dim, &t));
    for (int axis = 0; axis < p->shape.rank; axis++) n *= (size_t)p->shape.dim[axis];
    r->converted += dtype != p->dtype;
    if (finite) AN_TRY(check_weight(err, from, p, t));
    AN_TRY(check_loss_scale(err, from, p, t));
    AN_TRY(check_second_moments(err, from, p, t));
    if (dtype == AN_BF16 && p->dtype == AN_F32) return write_widened(err, r, i, t, n);
    return an_session_result(err, r->cx, an_persist_write(r->cx, i, t->data, n * an_dtype_size(dtype)));
}

/* Moments, averages, and the states of float16's loss scaling ("optimizer.scale" and others). */
static bool is_of_optimizer(const an_persist *p)
{
    return p->kind == 1 || strncmp(p->name, "optimizer.", 10) == 0;
}

/* Sets a state that this run has, not every optimizer's does, and the file has not. */
static an_status begin_state(an_err *err, const an_st *from, an_session *r, const char *name, const void *x,
                             size_t bytes)
{
    const int at = an_persist_find(r->cx, name);
    if (at < 0 || an_st_find(from, name)) return AN_OK;
    return an_session_result(err, r->cx, an_persist_write(r->cx, at, x, bytes));
}

/* A checkpoint of a run in another dtype, or by an older anneal, has no state of loss scaling. The scale starts at its
 * initial value; what counts the updates that were applied (optim/loss_scaler.h) is set as if all of the run's had been. */
static an_status count_updates(an_err *err, const an_st *from, an_session *r)
{
    static const char *const mass[] = {"optimizer.mass1", "optimizer.mass2"};
    const double beta[] = {r->cfg.beta1, r->cfg.beta2};
    const uint8_t applied = r->step > 0;
    for (int i = 0; i < 2; i++) {
        double left = 1, power = beta[i];
        for (int64_t t = r->step; t > 0; t >>= 1, power *= power) left *= t & 1 ? power : 1; /* beta^step */
        const float sum = (float)(1 - left);
        AN_TRY(begin_state(err, from, r, mass[i], &sum, sizeof sum));
    }
    return begin_state(err, from, r, "optimizer.applied", &applied, sizeof applied);
}

static bool is_average(const an_persist *p)
{
    return p->kind == 1 && strncmp(p->name, AN_CKPT_EMA, strlen(AN_CKPT_EMA)) == 0;
}

/* Averages of a run that had none begin as its parameters, as they are after reading. */
static an_status begin_average(an_err *err, an_session *r, int i, const an_persist *p)
{
    size_t bytes = an_dtype_size(p->dtype);
    for (int axis = 0; axis < p->shape.rank; axis++) bytes *= (size_t)p->shape.dim[axis];
    const int param = an_persist_find(r->cx, p->name + strlen(AN_CKPT_EMA));
    void *copy = malloc(bytes + 1);
    if (!copy) return an_fail_nomem(err, "averages of the parameters", bytes);
    an_status status = an_persist_read(r->cx, param, copy, bytes);
    if (status == AN_OK) status = an_persist_write(r->cx, i, copy, bytes);
    free(copy);
    return an_session_result(err, r->cx, status);
}

/* Whether the file has an average of this parameter. */
static bool has_average(const an_st *from, const char *name)
{
    char key[512];
    const int n = snprintf(key, sizeof key, "%s%s", AN_CKPT_EMA, name);
    return n > 0 && (size_t)n < sizeof key && an_st_find(from, key);
}

/* Whether parameter i is of the model's head and the file has none of its shape. */
static bool is_other_head(const an_st *from, const an_session *r, const an_persist *p)
{
    const char *head = r->cfg.model->head;
    const an_st_tensor *t = an_st_find(from, p->name);
    if (!head || p->kind != 0 || strncmp(p->name, head, strlen(head)) != 0) return false;
    bool same = t && t->rank == p->shape.rank;
    for (int axis = 0; same && axis < t->rank; axis++) same = t->shape[axis] == p->shape.dim[axis];
    return !same;
}

/* Weights and states of the model that the settings in the same file leave no place for: they would be lost at the next save. What is
 * of the optimizer, and averages, depend on settings that a run may change. */
static an_status check_all_taken(an_err *err, const an_st *from, an_ctx *cx)
{
    char quoted[AN_QUOTED_BYTES];
    for (size_t i = 0; i < an_st_count(from); i++) {
        const an_st_tensor *t = an_st_tensor_at(from, i);
        if (strncmp(t->name, "optimizer.", 10) == 0 || strncmp(t->name, AN_CKPT_EMA, strlen(AN_CKPT_EMA)) == 0 ||
            an_step_is_transient(t->name) || an_step_is_progress(t->name) || an_persist_find(cx, t->name) >= 0)
            continue;
        return an_fail(
            err, AN_E_IO,
            "%s: the tensor %s is none of the model that the settings in it describe; they were changed, or it is "
            "of another version of anneal",
            an_st_path(from), an_quoted(t->name, quoted));
    }
    return AN_OK;
}

/* Loads parameters and the model's states (running statistics), and with `moments` the optimizer's. The checkpoint may
 * lack the states of loss scaling, and averages. Without `moments` each parameter is set to its average where the file
 * has one, because such a session evaluates, predicts, or begins a new run. `initial`: the weights of init_from=, whose
 * head may be of another shape: such parameters keep their random values and are listed in r->fresh. */
static an_status read_tensors(an_err *err, const an_st *from, an_session *r, bool moments, bool initial)
{
    const int n = an_persist_count(r->cx);
    for (int i = 0; i < n; i++) {
        an_persist p;
        AN_TRY(an_session_result(err, r->cx, an_persist_get(r->cx, i, &p)));
        const bool begins = is_average(&p) && (!moments || !an_st_find(from, p.name));
        const bool averaged = !moments && p.kind == 0 && has_average(from, p.name);
        if (p.kind == 2 && an_step_is_transient(p.name)) continue;
        if (begins) {
            AN_TRY(begin_average(err, r, i, &p)); /* its parameter has a smaller index: it is loaded already */
            continue;
        }
        if (p.kind == 2 && !moments && an_step_is_progress(p.name)) continue;
        if (initial && is_other_head(from, r, &p)) {
            an_text_printf(&r->fresh, "%s%s", r->fresh.len ? ", " : "", p.name);
            continue;
        }
        if (is_of_optimizer(&p) && (!moments || (p.kind == 2 && !an_st_find(from, p.name)))) continue;
        AN_TRY(read_tensor(err, from, averaged ? AN_CKPT_EMA : "", r, i, &p, !moments));
    }
    return initial ? AN_OK : check_all_taken(err, from, r->cx);
}

/* AN_E_DATA unless the data that were opened are those that the run was started with, by count and hash. */
static an_status check_data(an_err *err, const char *path, const an_run_state *s, const an_session *r)
{
    const char *units = r->cfg.task->units;
    const int64_t *have = r->data->units, *had = s->units;
    bool same = true;
    for (int i = 0; i < AN_N_SPLITS; i++) same &= !*s->xxh3[i] || strcmp(s->xxh3[i], r->data_xxh3[i]) == 0;
    if (!r->data->loaded || !s->counted) return AN_OK;
    if (r->data->built_in && (had[AN_TRAIN] != have[AN_TRAIN] || !same))
        return an_fail(err, AN_E_DATA,
                       "%s: the run began on the built-in data of another build of anneal; go on with that program, or "
                       "learn from other data with train init_from=%s data=FILE",
                       path, path);
    if (had[AN_TRAIN] != have[AN_TRAIN] || had[AN_VAL] != have[AN_VAL])
        return an_fail(err, AN_E_DATA,
                       "%s: the run began with %lld and %lld %s, %s has %lld and %lld now; set data=", path,
                       (long long)had[AN_TRAIN], (long long)had[AN_VAL], units, r->cfg.data, (long long)have[AN_TRAIN],
                       (long long)have[AN_VAL]);
    if (same) return AN_OK;
    return an_fail(err, AN_E_DATA,
                   "%s: %s has as many %s as the run began with, but other ones; set data=, or train with init_from= "
                   "to learn from these",
                   path, r->cfg.data, units);
}

static an_status read_state(an_err *err, const an_st *from, const an_session *r, an_run_state *out)
{
    const char *path = an_st_path(from), *text = an_st_meta(from, AN_CKPT_STATE);
    if (!text)
        return an_fail(err, AN_E_IO,
                       "%s: the file has weights only, no state of a run; start a new run with init_from=", path);
    return an_run_state_read(err, path, text, r->cfg.task->units, out);
}

static an_status read_progress(an_err *err, const an_st *from, an_session *r)
{
    const char *path = an_st_path(from);
    an_run_state s;
    AN_TRY(read_state(err, from, r, &s));
    r->step = s.step;
    r->best_val = s.best_val;
    r->best_step = s.best_step;
    r->owes_evaluation = s.owes_evaluation;
    return check_data(err, path, &s, r);
}

an_status an_session_config(an_err *err, const an_st *from, an_train_config *out)
{
    const char *json = an_st_meta(from, AN_CKPT_CONFIG);
    if (!json)
        return an_fail(err, AN_E_IO, "%s: the file has no settings of a run: it was not written by anneal train",
                       an_st_path(from));
    AN_TRY(an_train_config_json(err, an_st_path(from), json, out));
    an_train_config_untrusted(out);
    return an_train_config_check(err, out);
}

/* Where a batch is more than anything can hold, but also more than the data: the sentence is about the data. */
static an_status check_settings(an_err *err, const an_session *r)
{
    an_err why = {0};
    const an_status status = an_train_config_check(&why, &r->cfg);
    if (status == AN_OK) return AN_OK;
    if (r->data->loaded && !r->cfg.eval_only) {
        AN_TRY(an_task_check(err, r->cfg.task, r->data));
        AN_TRY(an_task_check_batch(err, &r->cfg, r->data));
    }
    return an_fail(err, status, "%s", why.text);
}

/* `from`: the checkpoint of a run that is resumed or only read; `initial`: weights that a new run starts from. */
static an_status open_parts(an_err *err, const an_st *from, const an_st *initial, int flags, an_session *r)
{
    AN_TRY(an_task_open(err, &r->cfg, from ? from : initial, flags | (from ? 0 : AN_OPEN_INITIAL), &r->data));
    AN_TRY(check_settings(err, r));
    if (from && !(flags & AN_RUN_PARAMETERS_ONLY) && r->cfg.dtype == AN_BF16) {
        an_run_state s;
        AN_TRY(read_state(err, from, r, &s));
        memcpy(r->began_isa, s.isa, sizeof s.isa);
    }
    AN_TRY(open_context(err, r, from != NULL));
    if (flags & AN_RUN_PARAMETERS_ONLY) return from ? read_tensors(err, from, r, false, false) : AN_OK;
    for (int split = 0; r->data->loaded && split < AN_N_SPLITS; split++)
        r->cfg.task->hash(r->data, split, r->data_xxh3[split]);
    AN_TRY(make_moments(err, r));
    if (!from) return initial ? read_tensors(err, initial, r, false, true) : AN_OK;
    AN_TRY(read_tensors(err, from, r, true, false));
    AN_TRY(read_progress(err, from, r));
    return r->cfg.dtype == AN_F16 ? count_updates(err, from, r) : AN_OK;
}

/* ---- all of it */

static an_status open_all(an_err *err, const an_st *from, int flags, an_session *r)
{
    an_st *initial = NULL;
    const bool trains = !(flags & AN_RUN_PARAMETERS_ONLY) && an_comm_ranks(r->cfg.comm) > 1;
    if (trains) AN_TRY(an_ranks_check_division(err, &r->cfg));
    if (!from) AN_TRY(an_init_weights_open(err, &r->cfg, flags & AN_RUN_PARAMETERS_ONLY, &initial));
    an_status status = open_parts(err, from, initial, flags, r);
    if (trains && status == AN_OK) status = an_ranks_check(err, r);
    an_st_close(initial);
    return status;
}

an_status an_session_open(an_err *err, const an_train_config *c, const an_st *from, int flags, an_session **out)
{
    *out = NULL;
    an_session *r = calloc(1, sizeof *r);
    if (!r) return an_fail_nomem(err, "a run", sizeof *r);
    r->cfg = *c;
    r->best_val = INFINITY;
    r->lock = -1;
    an_status status = open_all(err, from, flags, r);
    if (status == AN_OK)
        *out = r;
    else
        an_session_close(r);
    return status;
}

void an_session_close(an_session *r)
{
    if (!r) return;
    an_text_free(&r->fresh);
    if (r->model) r->cfg.model->close(r->model);
    an_close(r->cx);
    if (r->data_in_use) return; /* by a thread that hangs in a read: the data and what they point to stay */
    an_task_close(r->cfg.task, r->data);
    free(r);
}

/* ---- writing a checkpoint */

/* A tensor's data source for the checkpoint writer, which asks for it in chunks: the tensor is copied from the device
 * once, into a buffer that all tensors share. */
typedef struct shared_buffer {
    char *data;
    size_t capacity;
    int holds; /* index of the tensor in it, -1: none */
} shared_buffer;

typedef struct source {
    an_session *r;
    shared_buffer *buffer;
    int index;
    size_t bytes;
} source;

static an_status read_source(an_err *err, void *arg, uint64_t at, void *out, size_t bytes)
{
    const source *s = arg;
    shared_buffer *b = s->buffer;
    if (b->capacity < s->bytes) {
        char *more = realloc(b->data, s->bytes);
        if (!more) return an_fail_nomem(err, "a tensor for a checkpoint", s->bytes);
        b->data = more;
        b->capacity = s->bytes;
        b->holds = -1;
    }
    if (b->holds != s->index) {
        AN_TRY(an_ranks_read(err, s->r, s->index, b->data, s->bytes));
        b->holds = s->index;
    }
    memcpy(out, b->data + at, bytes);
    return AN_OK;
}

static an_status list_tensors(an_err *err, an_session *r, shared_buffer *buffer, an_ckpt_tensor *tensors,
                              an_persist *persist, source *sources, size_t *out_n)
{
    const int n = an_persist_count(r->cx);
    for (int i = 0; i < n; i++) {
        an_persist *p = &persist[*out_n];
        AN_TRY(an_session_result(err, r->cx, an_persist_get(r->cx, i, p)));
        if (p->kind == 2 && an_step_is_transient(p->name)) continue;
        size_t bytes = an_dtype_size(p->dtype);
        for (int axis = 0; axis < p->shape.rank; axis++) bytes *= (size_t)p->shape.dim[axis];
        sources[*out_n] = (source){r, buffer, i, bytes};
        tensors[*out_n] = (an_ckpt_tensor){.name = p->name,
                                           .dtype = p->dtype,
                                           .rank = p->shape.rank,
                                           .shape = p->shape.dim,
                                           .read = read_source,
                                           .arg = &sources[*out_n]};
        ++*out_n;
    }
    return AN_OK;
}

static void state_json(const an_session *r, an_text *out)
{
    an_run_state s = {.step = r->step,
                      .best_val = r->best_val,
                      .best_step = r->best_step,
                      .owes_evaluation = r->owes_evaluation,
                      .epoch = r->data->epoch,
                      .counted = true};
    memcpy(s.units, r->data->units, sizeof s.units);
    memcpy(s.xxh3, r->data_xxh3, sizeof s.xxh3);
    const char *isa = r->cfg.dtype == AN_BF16 ? an_device_isa(r->cx) : NULL;
    snprintf(s.isa, sizeof s.isa, "%s", isa ? isa : "");
    an_run_state_write(&s, r->cfg.task->units, out);
}

/* Writes one file and links the other names to it. "last" is replaced last: a run killed in between resumes from the
 * previous checkpoint, repeats the same steps and writes the same files. */
static an_status write_names(an_err *err, const an_session *r, const an_ckpt *what, bool improved)
{
    char numbered[32];
    const char *dir = r->cfg.out;
    snprintf(numbered, sizeof numbered, "step_%lld", (long long)r->step);
    const bool keep = r->cfg.keep != 0 && r->step > 0;
    const char *first = keep ? numbered : improved ? "best" : "last";
    AN_TRY(an_ckpt_save(err, dir, first, what));
    if (improved && strcmp(first, "best") != 0) AN_TRY(an_ckpt_link(err, dir, first, "best"));
    if (strcmp(first, "last") != 0) AN_TRY(an_ckpt_link(err, dir, first, "last"));
    return an_ckpt_prune(err, dir, (int)r->cfg.keep);
}

/* If writing fails because the folder was removed or replaced, the error says so, not what failed in it. */
static an_status write_in_folder(an_err *err, const an_session *r, const an_ckpt *what, bool improved)
{
    if (r->lock < 0) {
        AN_TRY(an_make_dirs(err, r->cfg.out, 0777));
        return write_names(err, r, what, improved);
    }
    AN_TRY(an_run_dir_check(err, r->cfg.out, r->lock));
    an_err why = {0};
    an_status status = write_names(&why, r, what, improved);
    if (status == AN_OK) return AN_OK;
    AN_TRY(an_run_dir_check(err, r->cfg.out, r->lock));
    return an_fail(err, status, "%s", why.text);
}

static an_status save_tensors(an_err *err, an_session *r, const an_ckpt_meta *meta, size_t n_meta, bool improved)
{
    const size_t n = (size_t)an_persist_count(r->cx);
    an_ckpt_tensor *tensors = calloc(n + 1, sizeof *tensors);
    an_persist *persist = calloc(n + 1, sizeof *persist);
    source *sources = calloc(n + 1, sizeof *sources);
    shared_buffer buffer = {.holds = -1};
    an_ckpt what = {.tensors = tensors, .meta = meta, .n_meta = n_meta};
    an_status status = tensors && persist && sources
                           ? list_tensors(err, r, &buffer, tensors, persist, sources, &what.n_tensors)
                           : an_fail_nomem(err, "a checkpoint's table", n * sizeof *tensors);
    if (status == AN_OK) status = write_in_folder(err, r, &what, improved);
    free(buffer.data);
    free(sources);
    free(persist);
    free(tensors);
    return status;
}

an_status an_session_save(an_err *err, an_session *r, bool improved)
{
    an_text config = {0}, state = {0}, tokenizer = {0}, facts = {0};
    state_json(r, &state);
    const an_config keys = an_train_file_keys(&r->cfg);
    an_status status = an_config_json(err, &keys, &r->cfg, &config);
    if (status == AN_OK && r->data->tokenizer) status = an_tokenizer_json(err, r->data->tokenizer, &tokenizer);
    if (status == AN_OK && r->cfg.task->facts) status = r->cfg.task->facts(err, r->data, &facts);
    if (status == AN_OK && (state.failed || config.failed || tokenizer.failed || facts.failed))
        status = an_fail_nomem(err, "a checkpoint's metadata", config.len + tokenizer.len + facts.len);
    an_ckpt_meta meta[4] = {{AN_CKPT_CONFIG, config.data}, {AN_CKPT_STATE, state.data}};
    size_t n = 2;
    if (r->data->tokenizer) meta[n++] = (an_ckpt_meta){AN_CKPT_TOKENIZER, tokenizer.data};
    if (facts.len > 0) meta[n++] = (an_ckpt_meta){AN_CKPT_TASK, facts.data};
    if (status == AN_OK) status = save_tensors(err, r, meta, n, improved);
    an_text_free(&facts);
    an_text_free(&tokenizer);
    an_text_free(&state);
    an_text_free(&config);
    return status;
}

/* ---- the logbook */

an_logbook an_session_logbook(const an_session *r)
{
    const an_train_config *c = &r->cfg;
    an_logbook b = {.dir = c->out,
                    .preset = c->preset,
                    .note = c->note,
                    .commit = r->commit ? r->commit : "",
                    .recompute = c->recompute,
                    .step = r->step,
                    .data = c->data,
                    .disk = r->disk,
                    .units = c->task->units,
                    .data_built_in = r->data->built_in,
                    .workers = c->workers,
                    .cx = r->cx,
                    .device = c->device,
                    .isa = c->isa,
                    .threads = (int)c->threads,
                    .dtype = c->dtype,
                    .moments_dtype = c->moments_dtype,
                    .weights_dtype = c->weights_dtype,
                    .fused = c->compile};
    for (int split = 0; split < AN_N_SPLITS; split++) {
        b.count[split] = r->data->units[split];
        b.xxh3[split] = r->data_xxh3[split];
    }
    return b;
}

/* The settings as the program that the model comes from keeps them. */
static an_status save_other_settings(an_err *err, const an_session *r, const an_text *json)
{
    const an_weight_formats *w = r->cfg.model->weights;
    char path[AN_CKPT_PATH_BYTES + 32];
    an_text out = {0}, state = {0};
    if (!w || !w->settings) return AN_OK;
    snprintf(path, sizeof path, "%s/%s", r->cfg.out, w->settings_name);
    state_json(r, &state);
    an_status status =
        state.failed ? an_fail_nomem(err, path, state.len) : w->settings(err, path, json->data, state.data, &out);
    an_text_free(&state);
    if (status == AN_OK) status = an_json_save(err, path, &out);
    an_text_free(&out);
    return status;
}

an_status an_session_begin_logbook(an_err *err, const an_session *r, an_text *notes)
{
    const an_config keys = an_train_file_keys(&r->cfg);
    const an_logbook b = an_session_logbook(r);
    an_text yaml = {0}, json = {0};
    an_train_config_yaml(&r->cfg, &yaml);
    an_status status = an_config_json(err, &keys, &r->cfg, &json);
    if (status == AN_OK && json.failed) status = an_fail_nomem(err, "the settings as text", json.len);
    if (status == AN_OK) status = an_logbook_begin(err, &b, &yaml, &json, notes);
    if (status == AN_OK) status = save_other_settings(err, r, &json);
    an_text_free(&json);
    an_text_free(&yaml);
    return status;
}
