/* tasks.c: the table of tasks, a line a task, and what a row may leave out (task.h). */
#include "train/task.h"
#include "comm/comm.h"
#include "train/tasks/puzzle.h"
#include "train/tasks/conversation.h"
#include "train/tasks/table.h"
#include "train/tasks/image_classes.h"
#include "train/tasks/language.h"
#include "train/tasks/samples.h"
#include "train/tasks/text_classes.h"
#include "train/step.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
const an_task *const an_tasks[] = {
    &an_language_task,
    &an_table_task,
    &an_text_task,
    &an_puzzle_task,
    &an_conversation_task,
    &an_image_task,
    &an_samples_task,
};
/* clang-format on */
const size_t an_n_tasks = AN_COUNT(an_tasks);

const an_task *an_task_find(const char *name)
{
    for (size_t i = 0; i < an_n_tasks; i++)
        if (strcmp(an_tasks[i]->name, name) == 0) return an_tasks[i];
    return NULL;
}

int64_t an_task_units(const an_train_config *c)
{
    const an_config_field *f = c->task->units_key ? an_config_find(c->model->keys, c->task->units_key) : NULL;
    int64_t units = 1;
    if (f) memcpy(&units, c->model_settings.bytes + f->offset, sizeof units);
    return AN_MAX(units, 1);
}

void an_task_assume(an_train_config *c)
{
    for (const an_task_size *s = c->task->sizes; s && s->key; s++) {
        int64_t *size = an_train_number(c, s->key);
        if (size && *size == 0) *size = s->value;
    }
    if (c->task->assume) c->task->assume(c);
}

an_status an_task_settle(an_err *err, an_train_config *c, const char *key, int64_t have)
{
    int64_t *size = an_train_number(c, key);
    if (!size)
        return an_fail(err, AN_E_USAGE, "task=%s needs a model with the setting %s, which %s lacks", c->task->name, key,
                       c->model->name);
    if (*size == 0) *size = have;
    if (*size != 0) return AN_OK;
    return an_fail(err, AN_E_USAGE, "%s is not known: set it, or data=", key);
}

static an_status settle_epochs(an_err *err, an_train_config *c, const an_task_data *d)
{
    int64_t samples;
    AN_TRY(c->task->count(err, d, AN_TRAIN, &samples));
    const double updates =
        floor((double)c->epochs * (double)samples / (double)(c->batch_size * c->gradient_accumulation_steps));
    if (updates < 1 || updates > AN_STEP_MOST)
        return an_fail(err, AN_E_USAGE, "%lld epochs of %lld %ss are %.0f updates; a run has 1 to %d",
                       (long long)c->epochs, (long long)samples, c->task->sample, updates, AN_STEP_MOST);
    c->max_iters = c->lr_decay_iters = (int64_t)updates;
    return AN_OK;
}

an_status an_task_open(an_err *err, an_train_config *c, const an_st *from, int flags, an_task_data **out)
{
    an_task_data *d = calloc(1, c->task->data_bytes);
    *out = NULL;
    if (!d) return an_fail_nomem(err, "a run", c->task->data_bytes);
    an_status status = c->task->open(err, c, from, flags, d);
    if (status == AN_OK && c->epochs > 0 && d->loaded && !(flags & AN_OPEN_WHOLE_FILE) && !c->task->settles_epochs)
        status = settle_epochs(err, c, d);
    if (status == AN_OK)
        *out = d;
    else
        an_task_close(c->task, d);
    return status;
}

void an_task_close(const an_task *t, an_task_data *d)
{
    if (d) t->close(d);
    free(d);
}

an_status an_task_check(an_err *err, const an_task *t, const an_task_data *d)
{
    int64_t n;
    if (t->check) return t->check(err, d);
    for (int split = 0; split < AN_N_SPLITS; split++) AN_TRY(t->count(err, d, split, &n));
    return AN_OK;
}

/* *out: samples of an update with the preset's own settings, or the model's defaults where there is no preset. */
static an_status default_batch(an_err *err, const an_train_config *c, int64_t *out)
{
    an_train_config d;
    const an_model *model;
    if (an_preset_find(c->preset, &model))
        AN_TRY(an_train_config_open(err, c->preset, &d));
    else
        AN_TRY(an_train_config_defaults(err, c->model, c->task, &d));
    *out = d.batch_size * d.gradient_accumulation_steps;
    return AN_OK;
}

an_status an_task_check_batch(an_err *err, const an_train_config *c, const an_task_data *d)
{
    int64_t samples, usual;
    const int64_t batch = c->batch_size * c->gradient_accumulation_steps;
    if (c->task->settles_epochs && !d->built_in) return AN_OK; /* its own epochs: its `check` refuses such a batch */
    AN_TRY(c->task->count(err, d, AN_TRAIN, &samples));
    /* Where a sample has several units (windows of tokens) there are more different samples than count() says. */
    if (batch <= samples || samples != d->units[AN_TRAIN]) return AN_OK;
    AN_TRY(default_batch(err, c, &usual));
    if (batch <= usual) return AN_OK;
    return an_fail(err, AN_E_DATA,
                   "data=%s: a batch of %lld is larger than the data, %lld %s to train on: set batch_size=%lld",
                   c->data, (long long)batch, (long long)samples, c->task->units,
                   (long long)AN_MAX(samples / c->gradient_accumulation_steps, 1));
}

void an_questions_free(an_questions *q)
{
    free(q->data);
    an_text_free(&q->names);
    *q = (an_questions){0};
}

/* Fills the arrays of a loader's batch (an_source.fill): its micro-batches one after the other. */
static an_status fill(an_err *err, const void *data, uint64_t step, void *const *array)
{
    const an_task_source *s = data;
    an_sample_range draw = s->draw;
    for (int64_t micro = 0; micro < s->micros; micro++, draw.first += s->apart) {
        void *part[AN_MAX_ARRAYS];
        for (int i = 0; i < s->n; i++) part[i] = (char *)array[i] + (size_t)micro * an_array_bytes(&s->part[i]);
        AN_TRY(s->task->batch(err, s->data, &draw, step, part));
    }
    return AN_OK;
}

void an_task_source_open(const an_train_config *c, const an_task_data *d, const an_sample_range *draw,
                         an_task_source *s, an_source *out)
{
    *s = (an_task_source){.task = c->task, .data = d, .draw = *draw, .micros = 1};
    if (an_comm_ranks(c->comm) > 1) { /* its micro-batches lie between those of the others */
        s->micros = draw->samples / c->batch_size;
        s->apart = c->batch_size * an_comm_ranks(c->comm);
        s->draw.samples = c->batch_size;
    }
    s->n = c->model->inputs(an_model_settings(c), s->draw.samples, s->part);
    *out = (an_source){.fill = fill, .data = s};
    out->n = c->model->inputs(an_model_settings(c), draw->samples, out->array);
}
