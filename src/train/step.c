/* step.c: builds the graphs of step.h: inputs, loss, gradients, optimizer (accumulation and clipping: optim/grad_accumulate.c), and
 * the states that keep numbers on the device. */
#include "train/step.h"
#include "train/optimizer.h"
#include "train/task.h"
#include "comm/comm.h"
#include <anneal_nn.h>
#include <anneal_tools.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

double an_step_lr(const an_train_config *c, int64_t iteration)
{
    const an_lr_schedule s = {.lr = c->learning_rate,
                              .min_lr = c->min_lr,
                              .warmup = c->warmup_iters,
                              .decay = c->lr_decay_iters,
                              .constant = !c->decay_lr};
    return an_lr_at(&s, iteration);
}

/* ---- numbers that stay on the device */

static const char kept_name[] = "losses", stopped_name[] = "stopped";

static bool begins_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

bool an_step_is_transient(const char *state)
{
    return strcmp(state, kept_name) == 0 || strcmp(state, stopped_name) == 0 || begins_with(state, "evaluation.");
}

bool an_step_is_progress(const char *state)
{
    return begins_with(state, "carry.");
}

int64_t an_step_sums(const an_train_config *c)
{
    return (int64_t)an_model_sums(c->model, an_model_settings(c));
}

int64_t an_step_rows(const an_train_config *c)
{
    enum { MIN_ROWS = 256 };
    return AN_MAX(c->gradient_accumulation_steps, MIN_ROWS);
}

int64_t an_step_numbers(const an_train_config *c)
{
    return an_step_rows(c) * an_step_sums(c);
}

static an_shape kept_shape(const an_train_config *c)
{
    const int64_t sums = an_step_sums(c);
    return sums > 1 ? AN_SHAPE(an_step_rows(c), sums) : AN_SHAPE(an_step_rows(c));
}

an_tensor *an_step_kept(an_ctx *cx, const an_train_config *c)
{
    return an_state_at(AN_AT, cx, kept_name, AN_F32, kept_shape(c), AN_ZEROS); /* [n] or [n,sums] */
}

/* The sums concatenated, f32 [1,sums]; a single sum stays a scalar. */
static an_tensor *concat_sums(const an_train_config *c, an_tensor *const *sum)
{
    an_tensor *part[AN_MODEL_SUMS];
    const int n = (int)an_step_sums(c);
    if (n == 1) return sum[0];
    for (int i = 0; i < n; i++) part[i] = an_reshape(sum[i], AN_SHAPE(1, 1));
    return an_concat(part, n, 1);
}

/* Assigns `sum` to row i of the kept numbers: where(iota == i, sum, kept), which runs as a one-row update in place. */
static an_tensor *keep(an_ctx *cx, const an_train_config *c, an_tensor *const *sum, int64_t i)
{
    const an_shape shape = kept_shape(c);
    an_tensor *kept = an_step_kept(cx, c), *row = concat_sums(c, sum);
    an_tensor *index = an_iota(cx, shape, 0);
    an_tensor *here = an_eq(index, an_scalar_i32(cx, (int32_t)i));
    an_assign(kept, an_where(here, shape.rank > 1 ? an_expand(row, shape) : row, kept));
    return kept;
}

/* The index of a sum by its name; n: NULL, or none of them. */
static size_t find_sum(const an_sum *sums, size_t n, const char *name)
{
    size_t i = 0;
    while (name && i < n && strcmp(sums[i].name, name) != 0) i++;
    return name ? i : n;
}

void an_step_means(const an_train_config *c, const double sum[AN_MODEL_SUMS], double units, bool evaluation,
                   double number[AN_MODEL_SUMS])
{
    const an_sum *sums = c->model->sums(an_model_settings(c));
    const size_t n = (size_t)an_step_sums(c), labelled = find_sum(sums, n, evaluation ? c->model->evaluated : NULL);
    const double samples = labelled < n && sum[labelled] > 0 ? sum[labelled] : units;
    for (size_t i = 0; i < n; i++) {
        const size_t per = find_sum(sums, n, sums[i].per);
        number[i] = sum[i] / (per < n ? sum[per] : i == labelled ? units : samples);
        /* the loss of a batch in which nothing is labelled: it teaches nothing, and is no reason to stop */
        if (i == 0 && !evaluation && per < n && sum[per] == 0 && sum[0] == 0) number[0] = 0;
        if (isnan(number[i]))
            number[i] = NAN; /* the sign that an operation gives a NaN depends on the processor, and texts show it */
    }
}

/* ---- the update */

/* 0, or 1 + 2 u + n where u is the first bad update; n is 1 if its gradient norm was NaN, 0 if infinite. */
static an_tensor *stopped_at(an_ctx *cx)
{
    return an_state(cx, stopped_name, AN_I32, AN_SCALAR, AN_ZEROS);
}

static void stop_if_bad(an_ctx *cx, const an_step *s, an_tensor *going, int64_t iteration)
{
    an_tensor *zero = an_const(cx, AN_I32, 0), *one = an_const(cx, AN_I32, 1);
    an_tensor *is_nan = an_where(an_ne(s->norm, s->norm), one, zero);
    an_tensor *code = an_add(an_scalar_i32(cx, (int32_t)(2 * iteration + 1)), is_nan);
    an_tensor *bad = an_and(going, an_not(an_isfinite(s->norm)));
    if (s->scale) bad = an_and(bad, an_le(s->scale, an_const(cx, AN_F32, 1))); /* a larger one is halved first */
    an_assign(s->stopped, an_where(bad, code, s->stopped));
}

bool an_step_stopped(int32_t stopped, int64_t *iteration, double *norm)
{
    if (stopped <= 0) return false;
    *iteration = (stopped - 1) / 2;
    *norm = (stopped - 1) % 2 ? (double)NAN : (double)INFINITY;
    return true;
}

static an_tensor *optimize(an_ctx *cx, const an_train_config *c, int64_t iteration, an_tensor *going)
{
    const an_update u = {
        .lr = an_step_lr(c, iteration), .t = iteration + 1, .only_if = going, .scaled = c->dtype == AN_F16};
    return an_optimizer_of(c)->update(cx, c, &u);
}

/* Also of what the model updates itself. With freeze=* that is all there is. */
static void build_update(an_ctx *cx, void *model, const an_train_config *c, int64_t iteration, an_step *s)
{
    const bool frozen = c->model->update && strcmp(c->freeze, "*") == 0;
    an_tensor *going = NULL; /* bool scalar */
    if (strcmp(c->nan, "stop") == 0) {
        s->stopped = stopped_at(cx);
        going = an_eq(s->stopped, an_const(cx, AN_I32, 0));
    }
    if (c->dtype == AN_F16) {
        s->scale = an_loss_scale(cx);
        s->skipped = an_skipped_updates(cx);
    }
    s->norm = frozen ? an_mul_num(s->loss, 0) : optimize(cx, c, iteration, going);
    if (c->ema || c->model->update) {
        an_tensor *finite = an_isfinite(s->norm), *applied = going ? an_and(finite, going) : finite;
        if (c->ema) an_ema(cx, an_optimizer_ema_rate(c, iteration + 1), applied);
        const bool own = c->model->update && c->model->update(model, applied);
        if (frozen && !own) (void)optimize(cx, c, iteration, going); /* records that there is nothing to train */
    }
    if (s->stopped) stop_if_bad(cx, s, going, iteration);
}

/* Tells a model with states of its own which part of the update the next graph is. */
static void tell_place(void *model, const an_train_config *c, const an_place *p)
{
    if (c->model->place) c->model->place(model, p);
}

void an_step_slice(const an_train_config *c, void *const *array, int64_t micro, void *part[AN_MAX_ARRAYS])
{
    an_array spec[AN_MAX_ARRAYS];
    const int n = c->model->inputs(an_model_settings(c), c->batch_size, spec);
    for (int i = 0; i < n; i++) part[i] = (char *)array[i] + (size_t)micro * an_array_bytes(&spec[i]);
}

/* The model's inputs, in the order of an_model.inputs. */
static void make_inputs(an_ctx *cx, const an_train_config *c, void *const *array, an_tensor *in[AN_MAX_ARRAYS])
{
    an_array spec[AN_MAX_ARRAYS];
    const int n = c->model->inputs(an_model_settings(c), c->batch_size, spec);
    for (int i = 0; i < n; i++) in[i] = an_input_lent(cx, spec[i].dtype, spec[i].shape, array ? array[i] : NULL);
}

an_step an_step_build(an_ctx *cx, void *model, const an_train_config *c, int64_t iteration, int64_t micro,
                      void *const *array)
{
    const int64_t B = c->batch_size, micros = c->gradient_accumulation_steps;
    an_tensor *in[AN_MAX_ARRAYS];
    /* Dropout is a function of (step, global sample): micro-batches drop the same elements as one large batch. */
    an_set_step(cx, (uint64_t)iteration);
    an_set_sample(cx, (uint64_t)(micro * B));
    make_inputs(cx, c, array, in);
    const bool several = an_step_sums(c) > 1;
    const double peak = c->learning_rate;
    tell_place(model, c,
               &(an_place){.micro = micro,
                           .micros = micros,
                           .ranks = an_comm_ranks(c->comm),
                           .lr_share = peak > 0 ? an_step_lr(c, iteration) / peak : 1});
    const an_losses l = c->model->losses(model, in, true);
    an_step s = {.loss = l.loss};
    an_tensor *part = micros > 1 ? an_mul_num(s.loss, 1.0 / (double)micros) : s.loss;
    an_backward(c->dtype == AN_F16 ? an_scale_loss(part) : part);
    const int ranks = an_comm_ranks(c->comm);
    const bool last = micro >= micros - ranks; /* of this rank's micro-batches */
    if (c->model->update && !last) c->model->update(model, NULL);
    if (several || micros > 1) s.numbers = keep(cx, c, several ? l.sum : &s.loss, micro / ranks);
    s.root[s.n_roots++] = s.numbers ? s.numbers : s.loss;
    if (several) s.root[s.n_roots++] = s.loss;
    if (!last) return s;
    build_update(cx, model, c, iteration, &s);
    an_tensor *const more[] = {s.norm, s.stopped, s.scale, s.skipped};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (more[i]) s.root[s.n_roots++] = more[i];
    return s;
}

an_status an_step_plan(const an_step *s)
{
    return an_plan_at(AN_AT, s->root, s->n_roots);
}

an_status an_step_eval(const an_step *s)
{
    return an_eval_at(AN_AT, s->root, s->n_roots);
}

an_status an_step_read(an_err *err, an_ctx *cx, const an_train_config *c, const an_step *s,
                       double number[AN_MODEL_SUMS])
{
    const int64_t micros = c->gradient_accumulation_steps, sums = an_step_sums(c);
    double sum[AN_MODEL_SUMS] = {0};
    for (int i = 0; i < AN_MODEL_SUMS; i++) number[i] = NAN;
    if (!s->numbers) {
        number[0] = an_item(s->loss);
        return AN_OK;
    }
    const size_t ranks = (size_t)an_comm_ranks(c->comm), each = (size_t)an_step_numbers(c),
                 bytes = each * sizeof(float);
    float *kept = malloc((1 + ranks) * bytes); /* [rows,sums], then [ranks,rows,sums] */
    if (!kept) return an_fail_nomem(err, "the losses of the micro-batches", (1 + ranks) * bytes);
    float *all = kept + each;
    an_status status = an_read(s->numbers, kept, bytes);
    if (status != AN_OK) an_fail(err, status, "%s", an_error(cx) ? an_error(cx) : "the losses could not be read");
    if (status == AN_OK) status = an_comm_gather(err, c->comm, bytes, kept, all);
    for (int64_t micro = 0; micro < micros && status == AN_OK; micro++) /* in the order of one rank */
        for (int64_t i = 0; i < sums; i++) {
            const float x = all[(micro % (int64_t)ranks) * (int64_t)each + micro / (int64_t)ranks * sums + i];
            sum[i] += sums > 1 ? (double)x : (double)x / (double)micros;
        }
    free(kept);
    AN_TRY(status);
    if (sums == 1) return number[0] = sum[0], AN_OK; /* a mean already */
    an_step_means(c, sum, (double)(micros * c->batch_size * an_task_units(c)), false, number);
    return AN_OK;
}

int64_t an_step_calls(const an_train_config *c)
{
    return c->model->calls ? c->model->calls(an_model_settings(c)) : 1;
}

an_tensor *an_step_evaluation_call(an_ctx *cx, void *model, const an_train_config *c, int64_t i, int64_t call,
                                   void *const *array)
{
    an_tensor *in[AN_MAX_ARRAYS];
    make_inputs(cx, c, array, in);
    tell_place(model, c, &(an_place){.micros = 1, .ranks = 1, .call = call});
    const an_losses l = c->model->losses(model, in, false);
    return keep(cx, c, l.sum, i);
}

an_tensor *an_step_evaluation(an_ctx *cx, void *model, const an_train_config *c, int64_t i, void *const *array)
{
    return an_step_evaluation_call(cx, model, c, i, 0, array);
}
