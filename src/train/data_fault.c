/* data_fault.c: see data_fault.h. */
#include "train/data_fault.h"
#include "io/data/order.h"
#include <math.h>

typedef struct search {
    an_session *r;
    int split;
    int64_t step;                  /* < 0: the split in order */
    int64_t n;                     /* samples to look at */
    an_array array[AN_MAX_ARRAYS]; /* of one sample */
    int n_arrays;
    an_arrays one;
} search;

/* Labels are the last array; of a model that reads nothing else there are none. */
static bool is_label(const search *s, int i)
{
    return s->n_arrays > 1 && i == s->n_arrays - 1;
}

static int64_t elements(const an_array *a)
{
    return (int64_t)(an_array_bytes(a) / an_dtype_size(a->dtype));
}

/* The first element of a float array that is not finite; -1: there is none. */
static int64_t not_finite(const an_array *a, const float *x)
{
    for (int64_t i = 0; a->dtype == AN_F32 && i < elements(a); i++)
        if (!isfinite(x[i])) return i;
    return -1;
}

static bool is_labelled(const search *s)
{
    const an_array *a = &s->array[s->n_arrays - 1];
    const void *y = s->one.data[s->n_arrays - 1];
    for (int64_t i = 0; i < elements(a); i++)
        if (a->dtype == AN_I32 ? ((const int32_t *)y)[i] >= 0 : !isnan(((const float *)y)[i])) return true;
    return false;
}

static an_status read_one(an_err *err, const search *s, int64_t i)
{
    const an_task *task = s->r->cfg.task;
    const an_sample_range draw = {
        .split = s->split, .seed = (uint64_t)s->r->cfg.seed, .first = i, .samples = 1, .per_step = s->n};
    if (s->step < 0) return task->read(err, s->r->data, s->split, i, 1, 1, s->one.data);
    return task->batch(err, s->r->data, &draw, (uint64_t)s->step, s->one.data);
}

/* "x.npy: row 17: element 3 is nan" */
static void tell(const search *s, int64_t i, int array, int64_t element, double value, an_text *out)
{
    const an_task *task = s->r->cfg.task;
    const int64_t row = s->step < 0 ? i
                                    : an_draw_row(s->r->data->units[s->split], s->split, (uint64_t)s->r->cfg.seed,
                                                  (uint64_t)s->step, (uint64_t)i, s->n);
    if (task->locate)
        task->locate(s->r->data, s->split, row, array, out);
    else
        an_text_printf(out, "data=%s: %s %lld of the %s", s->r->cfg.data, task->sample, (long long)i,
                       s->step < 0 ? "split" : "batch");
    an_text_printf(out, ": element %lld of %s is %s", (long long)element, s->array[array].name,
                   isnan(value) ? "nan"
                   : value > 0  ? "inf"
                                : "-inf");
}

static bool find(search *s, an_text *out)
{
    an_err unused = {0};
    bool labelled = s->step < 0 || s->n_arrays < 2;
    for (int64_t i = 0; i < s->n; i++) {
        if (read_one(&unused, s, i) != AN_OK) return false;
        for (int k = 0; k < s->n_arrays; k++) {
            const float *x = s->one.data[k];
            const int64_t at = is_label(s, k) ? -1 : not_finite(&s->array[k], x);
            if (at < 0) continue;
            tell(s, i, k, at, (double)x[at], out);
            return true;
        }
        labelled = labelled || is_labelled(s);
    }
    if (!labelled) an_text_printf(out, "data=%s: no sample of this batch has a label", s->r->cfg.data);
    return !labelled;
}

bool an_data_fault(an_session *r, int split, int64_t step, an_text *out)
{
    an_err unused = {0};
    search s = {.r = r, .split = split, .step = step, .n = r->cfg.batch_size * r->cfg.gradient_accumulation_steps};
    bool floats = false;
    s.n_arrays = r->cfg.model->inputs(an_model_settings(&r->cfg), 1, s.array);
    for (int i = 0; i < s.n_arrays; i++) floats |= s.array[i].dtype == AN_F32 && !is_label(&s, i);
    if (step < 0 && (!floats || r->cfg.task->count(&unused, r->data, split, &s.n) != AN_OK)) return false;
    if (an_arrays_open(&unused, s.array, s.n_arrays, &s.one) != AN_OK) return false;
    const bool found = find(&s, out);
    an_arrays_close(&s.one);
    return found && !out->failed;
}
