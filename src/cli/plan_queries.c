/* plan_queries.c: questions answered by planning other settings: --fit, the largest batch for a budget; --what-if, how
 * memory and work change with one setting. Nothing runs. */
#include "cli/cmd_plan.h"
#include "train/session_ranks.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- --fit */

static const char *close_bytes(uint64_t bytes, int digits, char out[24])
{
    const double mib = (double)bytes / 1048576;
    snprintf(out, 24, mib < 1000 ? "%.*f MiB" : "%.*f GiB", digits, mib < 1000 ? mib : mib / 1024);
    return out;
}

/* The number of digits with which the budget and the bytes of the next larger batch print differently. */
static int telling_digits(uint64_t next, uint64_t budget)
{
    char a[24], b[24];
    int digits = 3; /* one more than elsewhere */
    while (digits < 9 && next != budget && strcmp(close_bytes(next, digits, a), close_bytes(budget, digits, b)) == 0)
        digits++;
    return digits;
}

/* `sample`: what a batch is counted in, of the task; `more`: other settings, each with a blank in front. */
static void put_fit(an_text *out, const an_fit *f, const char *more, uint64_t budget, const char *sample)
{
    char bytes[24], next[24], all[24];
    const char *with = f->recompute ? "recompute=on" : "recompute=off";
    const int digits = telling_digits(f->next_bytes, budget);
    if (f->batch_size == 0) {
        an_text_printf(out, "nothing  %s%s: one %s needs %s\n", with, more, sample,
                       close_bytes(f->next_bytes, digits, next));
        return;
    }
    an_text_printf(out, "fits     batch_size=%lld %s%s: %s of %s\n", (long long)f->batch_size, with, more,
                   close_bytes(f->total_bytes, digits, bytes), close_bytes(budget, digits, all));
    if (f->next_bytes)
        an_text_printf(out, "         one more %s: %s\n", sample, close_bytes(f->next_bytes, digits, next));
    else
        an_text_puts(out, "         and more: no larger batch is tried\n");
}

/* What weights and moments kept in bfloat16 would make of it: other losses, so it is offered and never chosen. */
static void put_narrower(an_text *out, const an_fit *f, const char *words, uint64_t budget, const char *sample,
                         bool json)
{
    char more[AN_FIT_WORDS + 32];
    if (json) {
        an_text_printf(out,
                       ",\"narrower\":\"%s\",\"narrower_batch_size\":%lld,\"narrower_recompute\":\"%s\","
                       "\"narrower_total_bytes\":%" PRIu64,
                       words, (long long)f->batch_size, f->recompute ? "on" : "off", f->total_bytes);
        return;
    }
    snprintf(more, sizeof more, " %s (other losses)", words);
    put_fit(out, f, more, budget, sample);
}

an_status an_plan_fit(an_err *err, const an_session *r, uint64_t budget, bool json)
{
    an_fit fit[2], narrow = {0};
    const an_limit limit = {.bytes = budget};
    an_train_config narrower;
    char words[AN_FIT_WORDS];
    an_text out = {0};
    for (int on = 0; on < 2; on++) AN_TRY(an_fit_batch(err, &r->cfg, r->data, &limit, on, &fit[on]));
    const an_fit *best = &fit[fit[1].batch_size > fit[0].batch_size];
    if (an_fit_narrower(&r->cfg, &narrower, words)) /* the least memory: recomputing, too */
        AN_TRY(an_fit_batch(err, &narrower, r->data, &limit, true, &narrow));
    const bool offers = narrow.batch_size > best->batch_size;
    if (json) {
        an_text_printf(&out,
                       "{\"budget_bytes\":%" PRIu64 ",\"batch_size\":%lld,\"recompute\":\"%s\",\"total_bytes\":%" PRIu64
                       ",\"next_bytes\":%" PRIu64 ",\"batch_size_off\":%lld,\"batch_size_on\":%lld",
                       budget, (long long)best->batch_size, best->recompute ? "on" : "off", best->total_bytes,
                       best->next_bytes, (long long)fit[0].batch_size, (long long)fit[1].batch_size);
        if (offers) put_narrower(&out, &narrow, words, budget, r->cfg.task->sample, true);
        an_text_puts(&out, "}");
        return an_print_line(err, &out);
    }
    put_fit(&out, best, "", budget, r->cfg.task->sample);
    put_fit(&out, best == &fit[0] ? &fit[1] : &fit[0], "", budget, r->cfg.task->sample);
    if (offers) put_narrower(&out, &narrow, words, budget, r->cfg.task->sample, false);
    out.len -= out.len > 0; /* an_print_line adds the newline */
    if (best->batch_size > 0) return an_print_line(err, &out);
    an_status status = an_print_line(err, &out);
    return status != AN_OK ? status
                           : an_fail(err, AN_E_BUDGET, "plan: no batch fits%s; a smaller model or context would",
                                     offers ? " without the last line's settings" : "");
}

/* ---- --what-if */

/* Resolves a short name (batch, accum), also the model's (seq, layers), to a key. Any other word is a key itself. */
static const char *key_of(const an_model *m, const char *word)
{
    static const an_key_alias every[] = {{"batch", "batch_size"}, {"accum", "gradient_accumulation_steps"}};
    for (size_t i = 0; i < AN_COUNT(every); i++)
        if (strcmp(every[i].word, word) == 0) return every[i].key;
    for (const an_key_alias *a = m->aliases; a && a->word; a++)
        if (strcmp(a->word, word) == 0) return a->key;
    return word;
}

/* Applies one change, batch/2, seq*2 or KEY=VALUE, to `c`. */
static an_status change(an_err *err, const char *text, an_train_config *c)
{
    char word[64];
    const size_t n = strcspn(text, "/*=");
    const char op = text[n];
    if (!op || n == 0 || n >= sizeof word)
        return an_fail(err, AN_E_USAGE, "what_if=%.64s: as batch/2, seq*2 or n_layer=3", text);
    memcpy(word, text, n);
    word[n] = 0;
    const an_config keys = an_train_keys(c);
    const char *key = key_of(c->model, word), *value = text + n + 1;
    if (op == '=') return an_config_set(err, &keys, c, "what_if", key, value);
    const an_config_field *f = an_config_find(&keys, key);
    char *end, number[32];
    const long long by = strtoll(value, &end, 10);
    if (!f || f->type != AN_CONFIG_INT || *end || by < 1)
        return an_fail(err, AN_E_USAGE,
                       "what_if=%.64s: only whole numbers can be multiplied and divided (batch, seq, "
                       "layers, heads, width, or a setting's name)",
                       text);
    int64_t now;
    memcpy(&now, (const char *)c + f->offset, sizeof now);
    if (op == '*' && by > INT64_MAX / AN_MAX(now, 1))
        return an_fail(err, AN_E_USAGE, "what_if=%.64s: the product is too large", text);
    snprintf(number, sizeof number, "%lld", (long long)(op == '*' ? now * by : now / by));
    return an_config_set(err, &keys, c, "what_if", key, number);
}

/* "3.1 MiB", "-12 MiB" or "+1 KiB". */
static const char *signed_bytes(double bytes, char out[24])
{
    char text[16];
    snprintf(out, 24, "%s%s", bytes < 0 ? "-" : "+", an_bytes_text(bytes < 0 ? -bytes : bytes, text));
    return bytes == 0 ? strcpy(out, "=") : out;
}

static an_status print_change(an_err *err, const char *text, const an_estimate *now, const an_estimate *then,
                              void *unused)
{
    (void)unused;
    an_memory_kind a[AN_ESTIMATE_KINDS], b[AN_ESTIMATE_KINDS];
    char was[16], is[16], by[24];
    an_text out = {0};
    an_memory_kinds(now, a);
    an_memory_kinds(then, b);
    an_text_printf(&out, "\n%-24s %12s %12s %12s\n", text, "now", "then", "change");
    for (int i = 0; i < AN_ESTIMATE_KINDS; i++)
        if (a[i].bytes || b[i].bytes)
            an_text_printf(&out, "  %-22s %12s %12s %12s\n", a[i].name, an_bytes_text((double)a[i].bytes, was),
                           an_bytes_text((double)b[i].bytes, is),
                           signed_bytes((double)b[i].bytes - (double)a[i].bytes, by));
    an_text_printf(&out, "  %-22s %12s %12s %12s", "all", an_bytes_text((double)now->total_bytes, was),
                   an_bytes_text((double)then->total_bytes, is),
                   signed_bytes((double)then->total_bytes - (double)now->total_bytes, by));
    an_text_printf(&out, "\n  %-22s %12.2f %12.2f %+11.0f%%", "GFLOP", 1e-9 * (double)now->bill.flops,
                   1e-9 * (double)then->bill.flops, 100 * ((double)then->bill.flops / (double)now->bill.flops - 1));
    return an_print_line(err, &out);
}

/* Called with each change among the arguments and the estimates before and after it. */
typedef an_status (*on_change)(an_err *err, const char *text, const an_estimate *now, const an_estimate *then,
                               void *arg);

static an_status each_change(an_err *err, const an_session *r, const an_estimate *now, const an_args *args,
                             on_change tell, void *arg)
{
    for (size_t i = 0; i < args->n_settings; i++) {
        an_train_config c = r->cfg;
        an_estimate then;
        if (strcmp(args->settings[i].key, "what_if") != 0) continue;
        AN_TRY(change(err, args->settings[i].value, &c));
        AN_TRY(an_train_config_check(err, &c));
        AN_TRY(an_ranks_check_division(err, &c));
        AN_TRY(an_estimate_settings(err, &c, r->data, &then));
        AN_TRY(tell(err, args->settings[i].value, now, &then, arg));
    }
    return AN_OK;
}

an_status an_plan_what_if(an_err *err, const an_session *r, const an_estimate *now, const an_args *args)
{
    return each_change(err, r, now, args, print_change, NULL);
}

static an_status put_change(an_err *err, const char *text, const an_estimate *now, const an_estimate *then, void *arg)
{
    (void)err, (void)now;
    an_text *out = arg;
    an_memory_kind kinds[AN_ESTIMATE_KINDS];
    an_memory_kinds(then, kinds);
    an_text_puts(out, out->data[out->len - 1] == '[' ? "{\"change\":" : ",{\"change\":");
    an_json_put(out, text);
    for (int i = 0; i < AN_ESTIMATE_KINDS; i++) an_text_printf(out, ",\"%s\":%" PRIu64, kinds[i].key, kinds[i].bytes);
    an_text_printf(out, ",\"total_bytes\":%" PRIu64 ",\"flops\":%" PRIu64 "}", then->total_bytes, then->bill.flops);
    return AN_OK;
}

an_status an_plan_what_if_json(an_err *err, const an_session *r, const an_estimate *now, const an_args *args,
                               an_text *out)
{
    an_text_puts(out, ",\"what_if\":[");
    if (out->failed) return an_fail_nomem(err, "the bill", out->len);
    AN_TRY(each_change(err, r, now, args, put_change, out));
    an_text_puts(out, "]");
    return AN_OK;
}
