/* nan_origin.c: see nan_origin.h. */
#include "train/nan_origin.h"
#include "comm/comm.h"
#include "io/data/loader.h"
#include "train/step.h"
#include <anneal_tools.h>
#include <math.h>
#include <stdio.h>

/* Runs micro-batch `micro` of the update and looks for its first number that is not finite. */
static an_status look(an_err *err, an_session *r, int64_t step, int64_t micro, void *const *array, bool *found,
                      an_not_finite *out)
{
    void *part[AN_MAX_ARRAYS];
    an_step_slice(&r->cfg, array, micro, part);
    const an_step s = an_step_build(r->cx, r->model, &r->cfg, step, micro, part);
    an_status status = an_step_eval(&s);
    if (status == AN_OK) status = an_find_not_finite(r->cx, found, out);
    status = an_session_result(err, r->cx, status);
    an_reset(r->cx);
    return status;
}

/* Looks through the micro-batches of update `step` until one has such a number; *micro is then its index. */
static an_status find(an_err *err, an_session *r, int64_t step, int64_t *micro, bool *found, an_not_finite *out)
{
    const int64_t micros = r->cfg.gradient_accumulation_steps, samples = r->cfg.batch_size * micros;
    const an_sample_range draw = {
        .split = AN_TRAIN, .seed = (uint64_t)r->cfg.seed, .samples = samples, .per_step = samples};
    an_task_source data;
    an_source source;
    an_loader *loader;
    void *const *array;
    an_task_source_open(&r->cfg, r->data, &draw, &data, &source);
    AN_TRY(an_loader_open(err, &source, (uint64_t)step, 0, &loader));
    an_status status = an_loader_next(err, loader, &array);
    for (*micro = 0; *micro < micros && status == AN_OK; ++*micro) {
        status = look(err, r, step, *micro, array, found, out);
        if (*found) break;
    }
    an_loader_close(loader);
    return status;
}

const char *an_not_finite_text(double value)
{
    return isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

static void write_line(const an_session *r, int64_t step, int64_t micro, const an_not_finite *f)
{
    an_err unused = {0};
    an_text members = {0};
    an_text_printf(&members, ",\"update\":%lld,\"micro\":%lld,\"scope\":", (long long)step, (long long)micro);
    an_json_put(&members, f->scope);
    an_text_puts(&members, ",\"kernel\":");
    an_json_put(&members, f->kernel);
    an_text_printf(&members, ",\"kind\":\"%s\",\"phase\":\"%s\",\"launch\":%d,\"element\":%lld,\"value\":\"%s\"",
                   f->kind, f->phase, f->launch, (long long)f->element, an_not_finite_text(f->value));
    if (!members.failed) an_logbook_add(&unused, r->cfg.out, step, "not_finite", &members);
    an_text_free(&members);
}

void an_nan_origin(an_session *r, int64_t step, char out[AN_NAN_ORIGIN_BYTES])
{
    an_err unused = {0};
    an_not_finite f;
    int64_t micro = 0;
    bool found = false;
    out[0] = 0;
    if (an_comm_ranks(r->cfg.comm) > 1 || find(&unused, r, step, &micro, &found, &f) != AN_OK || !found) return;
    snprintf(out, AN_NAN_ORIGIN_BYTES, "; it arises in %s%s%s (%s, launch %d): element %lld is %s", f.scope,
             *f.scope ? ": " : "", f.kernel, f.phase, f.launch, (long long)f.element, an_not_finite_text(f.value));
    write_line(r, step, micro, &f);
}
