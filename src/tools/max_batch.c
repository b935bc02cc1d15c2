/* max_batch.c: what fits where memory is short: searches over memory estimates: the largest batch for a budget, and the smallest changes of settings
 * that make a run fit. An estimate needs a plan, some milliseconds. Memory grows with the batch, so bisection finds it.
 */
#define _DEFAULT_SOURCE
#include "comm/comm.h"
#include "tools/estimate.h"
#include "platform/system_info.h"
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static void set_recompute(an_train_config *c, bool on)
{
    snprintf(c->recompute, sizeof c->recompute, "%s", on ? "on" : "off");
}

static uint64_t part_of(const an_estimate *p, an_estimate_part part)
{
    return part == AN_ESTIMATE_DEVICE ? p->bill.peak_bytes
           : part == AN_ESTIMATE_HOST ? p->total_bytes - p->bill.peak_bytes
                                      : p->total_bytes;
}

static an_status bytes_of(an_err *err, const an_train_config *c, const an_task_data *data, an_estimate_part part,
                          uint64_t *out)
{
    an_estimate p;
    AN_TRY(an_estimate_settings(err, c, data, &p));
    *out = part_of(&p, part);
    return AN_OK;
}

/* ---- the largest batch */

enum { MAX_BATCH = 1 << 20 };

/* The bytes that a batch needs. *too_long: a tensor would exceed the most elements that one may have, so that this is the
 * limit. For a batch of one that is an error, since no smaller batch helps. */
static an_status bytes_of_batch(an_err *err, const an_train_config *c, const an_task_data *data, an_estimate_part part,
                                uint64_t *bytes, bool *too_long)
{
    const an_status status = bytes_of(err, c, data, part, bytes);
    *too_long = (status == AN_E_SHAPE || status == AN_E_USAGE) && c->batch_size > 1;
    if (!*too_long) return status;
    an_err_clear(err);
    return AN_OK;
}

an_status an_fit_batch(an_err *err, const an_train_config *c, const an_task_data *data, const an_limit *limit,
                       bool recompute, an_fit *out)
{
    an_train_config t = *c;
    int64_t fits = 0, over = 1;
    *out = (an_fit){.recompute = recompute};
    set_recompute(&t, recompute);
    for (;; over *= 2) { /* the first power of two that does not fit */
        uint64_t bytes;
        bool too_long;
        if (over > MAX_BATCH) return AN_OK;
        t.batch_size = over;
        AN_TRY(bytes_of_batch(err, &t, data, limit->part, &bytes, &too_long));
        if (too_long || bytes > limit->bytes) {
            out->next_bytes = too_long ? 0 : bytes;
            break;
        }
        fits = out->batch_size = over;
        out->total_bytes = bytes;
    }
    while (over - fits > 1) {
        uint64_t bytes;
        bool too_long;
        t.batch_size = fits + (over - fits) / 2;
        AN_TRY(bytes_of_batch(err, &t, data, limit->part, &bytes, &too_long));
        if (!too_long && bytes <= limit->bytes) {
            fits = out->batch_size = t.batch_size;
            out->total_bytes = bytes;
        } else {
            over = t.batch_size;
            out->next_bytes = too_long ? 0 : bytes;
        }
    }
    return AN_OK;
}

bool an_fit_narrower(const an_train_config *c, an_train_config *out, char words[AN_FIT_WORDS])
{
    *out = *c;
    const struct {
        an_dtype *field;
        const char *word;
    } each[] = {{&out->weights_dtype, "weights_dtype=bfloat16"}, {&out->moments_dtype, "moments_dtype=bfloat16"}};
    words[0] = 0;
    for (size_t i = 0; i < AN_COUNT(each); i++) {
        an_err unfit = {0};
        const an_dtype before = *each[i].field;
        *each[i].field = AN_BF16;
        if (before == AN_BF16 || an_train_config_check(&unfit, out) != AN_OK) {
            *each[i].field = before;
            continue;
        }
        const size_t used = strlen(words);
        snprintf(words + used, AN_FIT_WORDS - used, "%s%s", used ? " " : "", each[i].word);
    }
    return words[0] != 0;
}

an_status an_fit_parts(an_err *err, const an_session *r, const an_estimate *p, uint64_t bytes, int64_t *out)
{
    const int64_t batch = r->cfg.batch_size;
    uint64_t need = p->total_bytes;
    char least[16], limit[16];
    for (*out = 1; need > bytes;) {
        an_train_config t = r->cfg;
        do
            ++*out; /* dividing the batch divides at most all of the memory: parts that would not fit even so are skipped */
        while (*out <= batch && (batch % *out != 0 || p->total_bytes / (uint64_t)*out > bytes));
        if (*out > batch)
            return an_fail(err, AN_E_BUDGET,
                           "divide_batch=%s: in micro-batches of one sample the run needs %s still; allow it more, or "
                           "make the model smaller",
                           an_bytes_text((double)bytes, limit), an_bytes_text((double)need, least));
        t.batch_size = batch / *out;
        t.gradient_accumulation_steps *= *out;
        AN_TRY(bytes_of(err, &t, r->data, AN_ESTIMATE_ALL, &need));
    }
    return AN_OK;
}

/* ---- the smallest changes */

/* The run that does not fit, the limit, and where the changes that make it fit are written. */
typedef struct search {
    const an_train_config *c;
    const an_task_data *data;
    const an_limit *limit;
    bool recomputes;  /* recompute=on is set already, and no change names it */
    const char *also; /* settings that are in `c` and not in the run's, each with a blank behind it */
    int found;        /* changes written so far */
    an_text *out;
} search;

/* Adds "CHANGE (SIZE)" when these settings fit. */
static an_status suggest(an_err *err, search *s, const an_train_config *c, const char *change)
{
    uint64_t bytes;
    char size[16];
    AN_TRY(bytes_of(err, c, s->data, s->limit->part, &bytes));
    if (bytes > s->limit->bytes) return AN_OK;
    an_text_printf(s->out, "%s%s (%s)", s->found ? ", or " : "", change, an_bytes_text((double)bytes, size));
    s->found++;
    return AN_OK;
}

/* A smaller micro-batch, with more of them per update where that divides evenly, so that the update's size stays. */
static an_status suggest_batch(an_err *err, search *s, bool recompute)
{
    an_fit fit;
    char change[128 + AN_FIT_WORDS];
    const an_train_config *c = s->c;
    if (c->batch_size == 1) return AN_OK;
    AN_TRY(an_fit_batch(err, c, s->data, s->limit, recompute, &fit));
    if (fit.batch_size < 1) return AN_OK;
    an_train_config t = *c;
    const int64_t ranks = an_comm_ranks(c->comm), all = c->batch_size * an_train_micros(c); /* of a rank */
    t.batch_size = AN_MIN(fit.batch_size, c->batch_size);
    int64_t even = t.batch_size;
    while (all % even != 0) even--;
    const char *with = recompute && !s->recomputes ? "recompute=on " : "";
    set_recompute(&t, recompute);
    if (2 * even > t.batch_size) { /* gradients kept across micro-batches need memory too: plan anew */
        t.batch_size = even;
        t.gradient_accumulation_steps = all / even * ranks;
        snprintf(change, sizeof change, "%s%sbatch_size=%lld gradient_accumulation_steps=%lld", with, s->also,
                 (long long)even, (long long)(all / even * ranks));
        const int before = s->found;
        AN_TRY(suggest(err, s, &t, change));
        if (s->found > before) return AN_OK;
        t.batch_size = AN_MIN(fit.batch_size, c->batch_size);
        t.gradient_accumulation_steps = c->gradient_accumulation_steps;
    }
    snprintf(change, sizeof change, "%s%sbatch_size=%lld", with, s->also, (long long)t.batch_size);
    return suggest(err, s, &t, change);
}

/* Weights and moments in bfloat16; where that alone is not enough and no smaller micro-batch is, with a smaller one. */
static an_status suggest_narrower(an_err *err, search *s, bool smaller_fits)
{
    an_train_config t;
    char words[AN_FIT_WORDS], also[AN_FIT_WORDS + 1], change[AN_FIT_WORDS + 16];
    if (!an_fit_narrower(s->c, &t, words)) return AN_OK;
    set_recompute(&t, true);
    snprintf(also, sizeof also, "%s ", words);
    snprintf(change, sizeof change, "%s%s", s->recomputes ? "" : "recompute=on ", words);
    search narrow = *s;
    narrow.c = &t;
    narrow.also = also;
    AN_TRY(suggest(err, &narrow, &t, change));
    if (narrow.found == s->found && !smaller_fits) AN_TRY(suggest_batch(err, &narrow, true));
    s->found = narrow.found;
    return AN_OK;
}

/* Whether `t` fits with the smallest value of the setting `key` that the model allows. */
static an_status least_fits(an_err *err, const search *s, const an_train_config *t, const char *key, bool *fits)
{
    an_train_config least = *t;
    int64_t *field = an_train_number(&least, key);
    uint64_t bytes = UINT64_MAX;
    for (int64_t value = *field / 2; value >= 1; value /= 2) {
        an_err unfit = {0};
        const int64_t last = *field;
        *field = value;
        if (an_train_config_check(&unfit, &least) == AN_OK) continue;
        *field = last; /* the model refuses it, as a width that the heads do not divide */
        break;
    }
    AN_TRY(bytes_of(err, &least, s->data, s->limit->part, &bytes));
    *fits = bytes <= s->limit->bytes;
    return AN_OK;
}

/* Halves the setting `key` until the run fits: with the batch size as it is, else with batch_size=1. */
static an_status suggest_half(an_err *err, search *s, const char *key)
{
    for (int smallest = 0; smallest < 2; smallest++) {
        an_train_config t = *s->c;
        char change[96];
        int64_t *field = an_train_number(&t, key);
        const int before = s->found;
        bool fits;
        if (!field || *field < 2 || (smallest && t.batch_size == 1)) return AN_OK;
        set_recompute(&t, true);
        if (smallest) t.batch_size = 1;
        AN_TRY(least_fits(err, s, &t, key, &fits));
        while (fits && s->found == before && *field >= 2) {
            an_err unfit = {0};
            *field /= 2;
            if (an_train_config_check(&unfit, &t) != AN_OK) break;
            snprintf(change, sizeof change, "%s%s%s=%lld", s->recomputes ? "" : "recompute=on ",
                     smallest ? "batch_size=1 " : "", key, (long long)*field);
            AN_TRY(suggest(err, s, &t, change));
        }
        if (s->found > before) return AN_OK;
    }
    return AN_OK;
}

/* Changes are tried in the order of their effect on training: none (recomputation), the order of a sum (micro-batches),
 * the precision of GEMMs (bfloat16), the precision of the stored weights and moments, the context length, the model's width,
 * its layers. At most one of each is listed. */
an_status an_fit_advice(an_err *err, const an_train_config *c, const an_task_data *data, const an_limit *limit,
                        an_text *out)
{
    an_train_config t = *c;
    search s = {
        .c = c, .data = data, .limit = limit, .recomputes = strcmp(c->recompute, "on") == 0, .also = "", .out = out};
    set_recompute(&t, true);
    if (!s.recomputes) AN_TRY(suggest(err, &s, &t, "recompute=on"));
    const int before = s.found;
    AN_TRY(suggest_batch(err, &s, s.recomputes));
    if (s.found == before && !s.recomputes) AN_TRY(suggest_batch(err, &s, true));
    const bool smaller_fits = s.found > before;
    if (c->dtype == AN_F32) {
        t.dtype = AN_BF16;
        AN_TRY(suggest(err, &s, &t, s.recomputes ? "dtype=bfloat16" : "recompute=on dtype=bfloat16"));
    }
    AN_TRY(suggest_narrower(err, &s, smaller_fits));
    for (const char *const *key = c->model->halve; *key; key++) AN_TRY(suggest_half(err, &s, *key));
    if (s.found == 0) an_text_puts(out, c->model->too_large);
    return AN_OK;
}

/* ---- limits */

/* Replaces *lowest by this limit if it leaves less memory (or lacks more). `taken`: what the program itself uses. */
static void keep_tighter(const an_estimate *p, uint64_t limit, uint64_t taken, an_estimate_part part, const char *name,
                         an_limit *lowest)
{
    const uint64_t left = limit > taken ? limit - taken : 0;
    if (limit == 0) return;
    if (*lowest->name && (int64_t)(left - part_of(p, part)) >= (int64_t)(lowest->bytes - part_of(p, lowest->part)))
        return;
    *lowest = (an_limit){left, part, name};
}

/* The tightest limit of this process: the budget, physical memory, cgroup, ulimit, or the GPU's memory. */
static an_limit tightest_limit(const an_train_config *c, const an_estimate *p)
{
    const uint64_t process = p->process_bytes - AN_ESTIMATE_MARGIN_BYTES;
    /* Tensors on a device with its own memory use none of the host's. */
    const an_estimate_part here = p->device_limit_bytes && !p->device_shares ? AN_ESTIMATE_HOST : AN_ESTIMATE_ALL;
    const uint64_t addresses = p->address_bytes - AN_ESTIMATE_MARGIN_BYTES - p->total_bytes;
    an_limit l = {.bytes = UINT64_MAX / 2, .name = ""};
    an_system_info f;
    an_system_info_read(&f);
    keep_tighter(p, (uint64_t)(c->budget * 1073741824.0), 0, AN_ESTIMATE_ALL, "the budget", &l);
    keep_tighter(p, f.ram_bytes, process, here, "this machine's memory", &l);
    keep_tighter(p, f.cgroup_bytes, process, here, "the cgroup's limit", &l);
    keep_tighter(p, f.limit_data_bytes, process, here, "ulimit -d", &l);
    keep_tighter(p, f.limit_address_bytes, addresses, AN_ESTIMATE_ALL, "ulimit -v", &l);
    keep_tighter(p, p->device_limit_bytes, 0, AN_ESTIMATE_DEVICE,
                 p->device_shares ? "what macOS recommends for the GPU" : "the GPU's memory", &l);
    return l;
}

/* For recompute=auto, what the other choice needs: " (2.1 GiB without recomputation)" where the planner has tried both and
 * neither fits, " (1.7 GiB with recomputation)" where the limit is one that it does not know of and that would need
 * less. */
static an_status say_other_choice(an_err *err, const an_session *r, const an_estimate *p, const an_limit *l,
                                  bool recomputed, char out[64])
{
    an_train_config t = r->cfg;
    uint64_t bytes;
    char size[16];
    out[0] = 0;
    if (strcmp(t.recompute, "auto") != 0 || l->part == AN_ESTIMATE_HOST) return AN_OK;
    set_recompute(&t, !recomputed);
    AN_TRY(bytes_of(err, &t, r->data, l->part, &bytes));
    if (recomputed ? bytes > part_of(p, l->part) : bytes < part_of(p, l->part))
        snprintf(out, 64, " (%s %s recomputation)", an_bytes_text((double)bytes, size),
                 recomputed ? "without" : "with");
    return AN_OK;
}

/* "the run needs 40 MiB, the budget is 10.2 MiB", "the run needs 5 GiB on the GPU and 1 GiB beside it, the GPU's memory
 * leaves 3 GiB". */
static void say_limit(const an_estimate *p, const char *other, const an_limit *l, an_text *out)
{
    char need[16], beside[16], have[16];
    if (l->part == AN_ESTIMATE_ALL)
        an_text_printf(out, "the run needs %s%s", an_bytes_text((double)p->total_bytes, need), other);
    else
        an_text_printf(out, "the run needs %s on the GPU%s and %s beside it",
                       an_bytes_text((double)part_of(p, AN_ESTIMATE_DEVICE), need), other,
                       an_bytes_text((double)part_of(p, AN_ESTIMATE_HOST), beside));
    an_text_printf(out, ", %s %s %s", l->name, strcmp(l->name, "the budget") == 0 ? "is" : "leaves",
                   an_bytes_text((double)l->bytes, have));
}

static an_status refuse(an_err *err, const an_session *r, const an_estimate *p, const an_limit *l, bool recomputed)
{
    char big[16], other[64];
    an_text text = {0};
    AN_TRY(say_other_choice(err, r, p, l, recomputed, other));
    say_limit(p, other, l, &text);
    an_text_printf(&text, ". Largest: %s %s. Smallest changes that fit: ", p->largest,
                   an_bytes_text((double)p->largest_bytes, big));
    an_status status = an_fit_advice(err, &r->cfg, r->data, l, &text);
    if (status == AN_OK)
        status = an_fail(err, text.failed ? AN_E_NOMEM : AN_E_BUDGET, "%s", text.data ? text.data : "");
    an_text_free(&text);
    return status;
}

an_status an_estimate_check(an_err *err, an_session *r, an_estimate *out)
{
    an_status status = an_estimate_run(err, r, out);
    const bool over = status == AN_E_BUDGET; /* the planner's check covers the device's part only */
    if (over) {
        an_err_clear(err);
        an_error_clear(r->cx);
        an_train_config t = r->cfg; /* auto has tried recomputation too: that is what the run needs */
        if (strcmp(t.recompute, "auto") == 0) set_recompute(&t, true);
        status = an_estimate_settings(err, &t, r->data, out);
    }
    AN_TRY(status);
    const an_limit l = tightest_limit(&r->cfg, out);
    return over || part_of(out, l.part) > l.bytes ? refuse(err, r, out, &l, over) : AN_OK;
}
