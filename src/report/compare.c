/* compare.c: see compare.h. */
#include "report/compare.h"
#include <math.h>
#include <string.h>

#define AT(name) offsetof(an_tolerances, name)
/* The defaults are those of configs/tolerances/f32.yaml, which a test compares with this table. */
static const an_config_field fields[] = {
    {"loss", AN_CONFIG_FLOAT, AT(loss), "1e-6", 0, 1e9, NULL, "largest relative difference of a batch's loss"},
    {"val_loss", AN_CONFIG_FLOAT, AT(val_loss), "1e-6", 0, 1e9, NULL, "of the validation loss"},
    {"grad_norm", AN_CONFIG_FLOAT, AT(grad_norm), "1e-4", 0, 1e9, NULL, "of the norm of the gradients"},
    {"updates", AN_CONFIG_INT, AT(updates), "100", 0, 9e15, NULL, "how many updates are compared; 0: all"},
};
const an_config an_tolerance_keys = {.fields = fields, .n = AN_COUNT(fields)};

static double difference(double a, double b)
{
    if (!isfinite(a) || !isfinite(b)) return INFINITY;
    if (a == b) return 0;
    /* Halves: the difference of two large numbers of opposite signs is not finite. */
    return 2 * fabs(0.5 * a - 0.5 * b) / fmax(fabs(a), fabs(b));
}

static void compare_one(an_compare_row *row, int64_t step, double a, double b)
{
    if (isnan(a) || isnan(b)) return; /* one of them was not measured here */
    const double d = difference(a, b);
    if (row->compared++ == 0 || d > row->worst) {
        row->worst = d;
        row->worst_step = step;
        row->a = a;
        row->b = b;
    }
    if (d > 0 && row->first_step < 0) row->first_step = step;
    if (d > row->allowed && row->beyond_step < 0) row->beyond_step = step;
}

/* Finds a run whose metrics end early: the updates that it lacks are not compared, so it would pass without them. */
static void find_cut_short(const an_run_record *a, const an_run_record *b, int64_t updates, an_comparison *out)
{
    const an_run_record *run[2] = {a, b};
    for (int k = 0; k < 2; k++) {
        const int64_t last = run[k]->update[run[k]->n - 1].step;
        size_t missing = 0;
        for (size_t i = 0; i < run[1 - k]->n; i++) {
            const an_run_update *u = &run[1 - k]->update[i];
            missing += u->step > last && (updates == 0 || u->step < updates) && !isnan(u->at[AN_RUN_LOSS]);
        }
        if (!missing) continue;
        out->cut_short = k;
        out->ends_at = last;
        out->missing = missing;
        out->pass = false;
    }
}

an_status an_compare_runs(an_err *err, const an_run_record *a, const an_run_record *b, const an_tolerances *t,
                          an_comparison *out)
{
    static const an_run_column columns[AN_COMPARE_ROWS] = {AN_RUN_LOSS, AN_RUN_VAL_LOSS, AN_RUN_GRAD_NORM};
    const struct {
        const char *name;
        double allowed;
    } rows[AN_COMPARE_ROWS] = {{"loss", t->loss}, {"val_loss", t->val_loss}, {"grad_norm", t->grad_norm}};
    *out = (an_comparison){.updates = t->updates, .diverged_at = -1, .cut_short = -1, .ends_at = -1, .pass = true};
    for (int k = 0; k < AN_COMPARE_ROWS; k++)
        out->row[k] = (an_compare_row){
            .name = rows[k].name, .allowed = rows[k].allowed, .worst_step = -1, .first_step = -1, .beyond_step = -1};
    for (size_t i = 0, j = 0; i < a->n && j < b->n;) {
        const an_run_update *x = &a->update[i], *y = &b->update[j];
        i += x->step <= y->step;
        j += y->step <= x->step;
        if (x->step != y->step) continue;
        if (t->updates > 0 && x->step >= t->updates) break;
        for (int k = 0; k < AN_COMPARE_ROWS; k++)
            compare_one(&out->row[k], x->step, x->at[columns[k]], y->at[columns[k]]);
    }
    if (!out->row[0].compared)
        return an_fail(err, AN_E_DATA,
                       "the runs logged no loss at the same update%s: train both with the same log_interval%s",
                       t->updates > 0 ? " of those that are compared" : "",
                       t->updates > 0 ? ", or allow more updates in the tolerances" : "");
    for (int k = 0; k < AN_COMPARE_ROWS; k++) {
        const int64_t at = out->row[k].beyond_step;
        if (at >= 0 && (out->diverged_at < 0 || at < out->diverged_at)) out->diverged_at = at;
        out->pass &= at < 0;
    }
    find_cut_short(a, b, t->updates, out);
    return AN_OK;
}

void an_compare_put_names(const an_comparison *c, const char *quote, const char *between, an_text *out)
{
    size_t n = 0;
    for (int k = 0; k < AN_COMPARE_ROWS; k++)
        if (c->diverged_at >= 0 && c->row[k].beyond_step == c->diverged_at)
            an_text_printf(out, "%s%s%s%s", n++ ? between : "", quote, c->row[k].name, quote);
}

void an_compare_json(const an_comparison *c, an_text *out)
{
    an_text_puts(out, "\"rows\":[");
    for (int k = 0; k < AN_COMPARE_ROWS; k++) {
        const an_compare_row *row = &c->row[k];
        an_text_printf(out, "%s{\"name\":\"%s\",\"compared\":%zu", k ? "," : "", row->name, row->compared);
        an_json_put_number(out, "allowed", row->allowed);
        an_json_put_number(out, "worst", row->worst);
        an_json_put_number(out, "a", row->a);
        an_json_put_number(out, "b", row->b);
        an_text_printf(out, ",\"worst_step\":%lld,\"first_step\":%lld,\"beyond_step\":%lld}",
                       (long long)row->worst_step, (long long)row->first_step, (long long)row->beyond_step);
    }
    an_text_printf(out, "],\"updates\":%lld,\"diverged_at\":%lld,\"diverged_in\":[", (long long)c->updates,
                   (long long)c->diverged_at);
    an_compare_put_names(c, "\"", ",", out);
    an_text_printf(out, "],\"cut_short\":%s,\"missing\":%zu,\"pass\":%s",
                   c->cut_short < 0    ? "null"
                   : c->cut_short == 0 ? "\"a\""
                                       : "\"b\"",
                   c->missing, c->pass ? "true" : "false");
}

/* ---- settings */

static void put_setting(an_text *out, const an_run_record *r, const char *key)
{
    char text[AN_RUN_SETTING_BYTES];
    const json_t *v = json_object_get(an_run_settings(r), key);
    an_run_setting(r, key, text);
    an_text_puts(out, !v ? "(not there)" : *text ? text : "(empty)");
}

static bool one_differs(const an_run_record *a, const an_run_record *b, const char *key)
{
    if (strcmp(key, "out") == 0 || strcmp(key, "out_dir") == 0 || strcmp(key, "note") == 0) return false;
    return !json_equal(json_object_get(an_run_settings(a), key), json_object_get(an_run_settings(b), key));
}

static void put_difference(const an_run_record *a, const an_run_record *b, const char *key, size_t most, size_t *n,
                           an_text *out)
{
    if (!one_differs(a, b, key) || ++*n > most) return;
    const size_t begin = out->len;
    an_text_printf(out, "%.64s: ", key);
    put_setting(out, a, key);
    an_text_puts(out, " and ");
    put_setting(out, b, key);
    if (!out->failed) an_text_printable(out->data + begin, out->len - begin);
    an_text_puts(out, "\n");
}

size_t an_compare_settings(const an_run_record *a, const an_run_record *b, size_t most, an_text *out)
{
    size_t n = 0;
    const char *key;
    json_t *unused;
    json_object_foreach((json_t *)(uintptr_t)an_run_settings(a), key, unused) put_difference(a, b, key, most, &n, out);
    json_object_foreach((json_t *)(uintptr_t)an_run_settings(b), key,
                        unused) if (!json_object_get(an_run_settings(a), key)) put_difference(a, b, key, most, &n, out);
    if (n > most) an_text_printf(out, "and %zu more\n", n - most);
    return n;
}
