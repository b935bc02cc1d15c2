/* tasks.c: the table of tasks: a line a task. */
#include "train/task.h"
#include "train/tasks/puzzle.h"
#include "train/tasks/conversation.h"
#include "train/tasks/table.h"
#include "train/tasks/image_classes.h"
#include "train/tasks/language.h"
#include "train/tasks/samples.h"
#include "train/tasks/text_classes.h"
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

void an_questions_free(an_questions *q)
{
    free(q->data);
    an_text_free(&q->names);
    *q = (an_questions){0};
}

static an_status fill(an_err *err, const void *data, uint64_t step, void *const *array)
{
    const an_task_source *s = data;
    return s->task->batch(err, s->data, &s->draw, step, array);
}

void an_task_source_open(const an_train_config *c, const an_task_data *d, const an_sample_range *draw,
                         an_task_source *s, an_source *out)
{
    *s = (an_task_source){c->task, d, *draw};
    *out = (an_source){.fill = fill, .data = s};
    out->n = c->model->inputs(an_model_settings(c), draw->samples, out->array);
}
