/* run_state.c: how far a run is, as JSON in its checkpoints. See run_state.h. */
#include "train/run_state.h"
#include "io/formats/json.h"
#include "train/step.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* "train_tokens", "val_xxh3" */
static const char *split_key(int split, const char *what, char out[64])
{
    snprintf(out, 64, "%s_%s", split == AN_TRAIN ? "train" : "val", what);
    return out;
}

void an_run_state_write(const an_run_state *s, const char *units, an_text *out)
{
    char key[64];
    an_text_printf(out, "{\"anneal\":\"%s\",\"step\":%lld,\"best_val\":", AN_VERSION, (long long)s->step);
    if (isfinite(s->best_val))
        an_text_printf(out, "%.17g", s->best_val);
    else
        an_text_puts(out, "null");
    if (s->owes_evaluation) an_text_puts(out, ",\"owes_evaluation\":true");
    an_text_printf(out, ",\"best_step\":%lld", (long long)s->best_step);
    for (int split = 0; s->counted && split < AN_N_SPLITS; split++)
        an_text_printf(out, ",\"%s\":%lld", split_key(split, units, key), (long long)s->units[split]);
    if (s->epoch > 0) an_text_printf(out, ",\"%s\":%lld", AN_EPOCH_KEY, (long long)s->epoch);
    for (int split = 0; split < AN_N_SPLITS; split++) {
        an_text_printf(out, ",\"%s\":", split_key(split, "xxh3", key));
        an_json_put(out, s->xxh3[split]);
    }
    if (s->isa[0]) {
        an_text_puts(out, ",\"isa\":");
        an_json_put(out, s->isa);
    }
    an_text_puts(out, "}");
}

/* A text that is too long for a hash is none, and differs from every hash. */
static void copy_hash(const char *from, char out[AN_HASH_TEXT_BYTES])
{
    snprintf(out, AN_HASH_TEXT_BYTES, "%s", !from ? "" : strlen(from) < AN_HASH_TEXT_BYTES ? from : "?");
}

an_status an_run_state_read(an_err *err, const char *path, const char *text, const char *units, an_run_state *out)
{
    json_t *j;
    char key[64];
    AN_TRY(an_json_parse(err, path, 0, text, strlen(text), &j));
    const json_t *step = json_object_get(j, "step"), *best = json_object_get(j, "best_val");
    *out = (an_run_state){.step = json_is_integer(step) ? json_integer_value(step) : -1,
                          .best_val = json_is_number(best) ? json_number_value(best) : (double)INFINITY,
                          .best_step = json_integer_value(json_object_get(j, "best_step")),
                          .owes_evaluation = json_is_true(json_object_get(j, "owes_evaluation")),
                          .counted = true};
    for (int split = 0; split < AN_N_SPLITS; split++) {
        const json_t *n = json_object_get(j, split_key(split, units, key));
        out->units[split] = json_integer_value(n);
        out->counted &= n != NULL;
        copy_hash(json_string_value(json_object_get(j, split_key(split, "xxh3", key))), out->xxh3[split]);
    }
    const char *isa = json_string_value(json_object_get(j, "isa"));
    snprintf(out->isa, sizeof out->isa, "%s",
             isa && strlen(isa) < sizeof out->isa ? isa : ""); /* a longer one is no set's */
    const bool best_is_loss =
        !best || json_is_null(best) || (json_is_number(best) && fabs(json_number_value(best)) <= (double)FLT_MAX);
    json_decref(j);
    if (out->step < 0) return an_fail(err, AN_E_IO, "%s: the run's state does not store the number of updates", path);
    if (out->step > AN_STEP_MOST)
        return an_fail(err, AN_E_IO,
                       "%s: the run's state stores %lld updates, and no run has more than %d; the file is damaged",
                       path, (long long)out->step, AN_STEP_MOST);
    if (!best_is_loss)
        return an_fail(err, AN_E_IO, "%s: the run's state has a best_val that is no loss; the file is damaged", path);
    if (out->best_step < 0 || out->best_step > out->step)
        return an_fail(err, AN_E_IO,
                       "%s: the run's state has its best loss at update %lld, after %lld updates; the file is damaged",
                       path, (long long)out->best_step, (long long)out->step);
    return AN_OK;
}
