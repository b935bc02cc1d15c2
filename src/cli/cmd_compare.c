/* cmd_compare.c: two runs beside each other. Exit code 3: they differ by more than is allowed. With
 * accept=, the difference is signed into the second run's logbook, with the table. */
#include "cli/cli.h"
#include "io/formats/json.h"
#include "io/formats/torch_file.h"
#include "report/compare.h"
#include "train/run_dir.h"
#include <math.h>
#include <string.h>

typedef struct compare_values {
    char tolerances[AN_CONFIG_TEXT_BYTES], accept[AN_CONFIG_TEXT_BYTES];
    bool exact;
} compare_values;

#define AT(name) offsetof(compare_values, name)
static const an_config_field fields[] = {
    {"tolerances", AN_CONFIG_TEXT, AT(tolerances), "", 0, 0, NULL,
     "a YAML file of what is allowed; empty: configs/tolerances/f32.yaml"},
    {"exact", AN_CONFIG_BOOL, AT(exact), "false", 0, 0, NULL,
     "the same bits: every logged number, and the hashes of the last checkpoints"},
    {"accept", AN_CONFIG_TEXT, AT(accept), "", 0, 0, NULL,
     "NAME,REASON: sign a difference beyond the tolerances into RUN_B's logbook"},
};
const an_config an_compare_keys = {.fields = fields, .n = AN_COUNT(fields)};

typedef struct pair {
    const char *dir[2];
    an_run_record run[2];
    char hash[2][AN_HASH_TEXT_BYTES]; /* of the last checkpoint; "": there is none that can be read */
    an_comparison c;
    bool exact, same_bits, pass;
} pair;

/* ---- reading */

static void read_hash(const char *dir, char out[AN_HASH_TEXT_BYTES])
{
    char path[AN_CKPT_PATH_BYTES];
    an_err why = {0};
    an_st *st;
    an_hash128 hash;
    out[0] = 0;
    if (an_ckpt_find(&why, dir, false, path) != AN_OK || an_weights_open(&why, path, &st) != AN_OK) return;
    if (an_ckpt_hash(&why, st, &hash, NULL) == AN_OK) an_hash_text(hash, out);
    an_st_close(st);
}

static an_status tolerances_of(an_err *err, const compare_values *v, an_tolerances *out)
{
    AN_TRY(an_config_defaults(err, &an_tolerance_keys, out));
    if (*v->tolerances) AN_TRY(an_config_yaml(err, &an_tolerance_keys, out, v->tolerances));
    if (v->exact) *out = (an_tolerances){0};
    return AN_OK;
}

static an_status compare(an_err *err, const compare_values *v, pair *p)
{
    an_tolerances t;
    p->exact = v->exact;
    AN_TRY(tolerances_of(err, v, &t));
    for (int i = 0; i < 2; i++) AN_TRY(an_run_record_read(err, p->dir[i], &p->run[i]));
    AN_TRY(an_compare_runs(err, &p->run[0], &p->run[1], &t, &p->c));
    for (int i = 0; i < 2; i++) read_hash(p->dir[i], p->hash[i]);
    p->same_bits = *p->hash[0] && strcmp(p->hash[0], p->hash[1]) == 0;
    p->pass = p->c.pass && (p->same_bits || !p->exact);
    return AN_OK;
}

/* ---- the table */

static void put_run(an_text *out, const pair *p, int i)
{
    char dtype[AN_RUN_SETTING_BYTES], device[80];
    const an_run_record *r = &p->run[i];
    snprintf(device, sizeof device, "%.70s", an_run_text(r->begin, "device"));
    an_text_printable(device, strlen(device));
    device[strcspn(device, "\n;")] = 0;
    an_run_setting(r, "dtype", dtype);
    an_text_printf(out, "%c         %s: %lld updates in %s on %s; weights %.16s, moments %.16s\n", "AB"[i], p -> dir[i],
                   r -> n ? (long long)r -> update[r->n - 1].step + 1 : 0, *dtype ? dtype : "an unknown dtype",
                   *device ? device : "an unknown device", an_run_text(r->begin, "weights"),
                   an_run_text(r->begin, "moments"));
}

/* Which precision each group of numbers has, where the runs differ; of runs that say it. */
static void put_policy(an_text *out, const pair *p)
{
    const char *group;
    json_t *value;
    const json_t *a = json_object_get(p->run[0].begin, "dtype_policy"),
                 *b = json_object_get(p->run[1].begin, "dtype_policy");
    const char *between = "policy    ";
    json_object_foreach((json_t *)(uintptr_t)a, group, value)
    {
        char name[AN_QUOTED_BYTES], texts[2][24];
        snprintf(texts[0], sizeof texts[0], "%.20s", an_run_text(a, group));
        snprintf(texts[1], sizeof texts[1], "%.20s", an_run_text(b, group));
        if (!b || strcmp(texts[0], texts[1]) == 0) continue;
        for (int i = 0; i < 2; i++) an_text_printable(texts[i], strlen(texts[i]));
        an_text_printf(out, "%s%s %s and %s", between, an_quoted(group, name), texts[0], texts[1]);
        between = ", ";
    }
    if (*between == ',') an_text_puts(out, "\n");
}

static void put_row(an_text *out, const an_compare_row *row)
{
    if (!row->compared) {
        an_text_printf(out, "%-9s not in both runs\n", row->name);
        return;
    }
    an_text_printf(out, "%-9s %8zu   %-12.3g %-12.3g %s", row->name, row->compared, row->worst, row->allowed,
                   row->beyond_step < 0 ? "pass" : "FAIL");
    if (row->worst > 0)
        an_text_printf(out, "; worst at update %lld: %.9g and %.9g", (long long)row->worst_step, row->a, row->b);
    if (row->first_step >= 0) an_text_printf(out, "; first differs at %lld", (long long)row->first_step);
    if (row->beyond_step >= 0) an_text_printf(out, ", beyond at %lld", (long long)row->beyond_step);
    an_text_puts(out, "\n");
}

static void put_state(an_text *out, const pair *p)
{
    if (!*p->hash[0] || !*p->hash[1])
        an_text_printf(out, "state     %s%s has no checkpoint that can be read\n", p->exact ? "FAIL: " : "",
                       p->dir[*p->hash[0] ? 1 : 0]);
    else if (p->same_bits)
        an_text_printf(out, "state     same bits: %s\n", p->hash[0]);
    else
        an_text_printf(out, "state     %sother bits: %s and %s\n", p->exact ? "FAIL: " : "", p->hash[0], p->hash[1]);
}

/* Whether both runs were trained on the same data, by the hashes of their splits; without a hash in both: nothing. */
static void put_data(an_text *out, const pair *p)
{
    static const char *const splits[][2] = {{"train_xxh3", "training"}, {"val_xxh3", "validation"}};
    for (size_t i = 0; i < AN_COUNT(splits); i++) {
        char hash[2][36];
        for (int k = 0; k < 2; k++) {
            snprintf(hash[k], sizeof hash[k], "%.34s", an_run_text(p->run[k].begin, splits[i][0]));
            an_text_printable(hash[k], strlen(hash[k]));
        }
        if (*hash[0] && *hash[1] && strcmp(hash[0], hash[1]) != 0)
            an_text_printf(out, "data      the runs had other %s data: %s and %s\n", splits[i][1], hash[0], hash[1]);
    }
}

static void put_left_out(an_text *out, const pair *p)
{
    for (int k = 0; k < 2; k++)
        if (p->run[k].disordered)
            an_text_printf(out, "note      %s: %llu lines of metrics are out of order and were left out\n", p->dir[k],
                           (unsigned long long)p->run[k].disordered);
}

static void put_verdict(an_text *out, const pair *p)
{
    if (p->pass)
        an_text_puts(out, "pass");
    else if (p->c.diverged_at >= 0) {
        an_text_printf(out, "FAIL: the runs diverge at update %lld, in ", (long long)p->c.diverged_at);
        an_compare_put_names(&p->c, "", " and ", out);
    } else if (p->c.cut_short >= 0)
        an_text_printf(out,
                       "FAIL: %s ends at update %lld, and the other run logged %zu updates more of those that are "
                       "compared; a file of tolerances with updates: %lld compares what both have",
                       p->dir[p->c.cut_short], (long long)p->c.ends_at, p->c.missing, (long long)p->c.ends_at + 1);
    else
        an_text_puts(out, "FAIL: the logged numbers agree, and the last checkpoints do not");
}

static void put_table(an_text *out, const pair *p)
{
    enum { MOST_SETTINGS = 20 };
    an_text settings = {0};
    for (int i = 0; i < 2; i++) put_run(out, p, i);
    put_policy(out, p);
    const size_t n = an_compare_settings(&p->run[0], &p->run[1], MOST_SETTINGS, &settings);
    an_text_printf(out, "settings  %zu differ%s\n", n, n ? ", A's and B's:" : "");
    for (char *line = settings.data, *end; line && *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end) *end++ = 0;
        an_text_printf(out, "          %s\n", line);
    }
    out->failed |= settings.failed;
    an_text_free(&settings);
    put_data(out, p);
    put_left_out(out, p);
    an_text_puts(out, "          compared   difference   allowed\n");
    for (int k = 0; k < AN_COMPARE_ROWS; k++) put_row(out, &p->c.row[k]);
    put_state(out, p);
    put_verdict(out, p);
}

static void put_json(an_text *out, const pair *p)
{
    an_text_puts(out, "{\"a\":");
    an_json_put(out, p->dir[0]);
    an_text_puts(out, ",\"b\":");
    an_json_put(out, p->dir[1]);
    an_text_puts(out, ",");
    an_compare_json(&p->c, out);
    an_text_printf(out, ",\"state_a\":\"%s\",\"state_b\":\"%s\",\"exact\":%s,\"same_bits\":%s,\"verdict\":\"%s\"}",
                   p->hash[0], p->hash[1], p->exact ? "true" : "false", p->same_bits ? "true" : "false",
                   p->pass ? "pass" : "fail");
}

/* ---- acceptance */

static an_status accept_difference(an_err *err, const char *accept, const pair *p)
{
    an_text members = {0}, name = {0};
    const char *comma = strchr(accept, ',');
    if (!comma || comma == accept || !comma[1 + strspn(comma + 1, " ")])
        return an_fail(err, AN_E_USAGE, "compare: accept=%.100s: write NAME,REASON: who accepts it, and why", accept);
    AN_TRY(an_json_check_text(err, "accept", accept));
    AN_TRY(an_json_check_text(err, p->dir[0], p->dir[0]));
    if (!an_run_dir_is_a_run(p->dir[1]))
        return an_fail(err, AN_E_USAGE, "%s: no run was trained in this folder: nothing can be signed there",
                       p->dir[1]);
    an_text_putn(&name, accept, (size_t)(comma - accept));
    an_text_puts(&members, ",\"name\":");
    an_json_put(&members, name.data ? name.data : "");
    an_text_puts(&members, ",\"reason\":");
    an_json_put(&members, comma + 1 + strspn(comma + 1, " "));
    an_text_puts(&members, ",\"against\":");
    an_json_put(&members, p->dir[0]);
    an_text_printf(&members, ",\"state\":\"%s\",\"against_state\":\"%s\",", p->hash[1], p->hash[0]);
    an_compare_json(&p->c, &members);
    members.failed |= name.failed;
    const an_run_record *b = &p->run[1];
    an_status status = an_logbook_add(err, p->dir[1], b->n ? b->update[b->n - 1].step + 1 : 0, "accepted", &members);
    an_text_free(&name);
    an_text_free(&members);
    return status;
}

an_status an_cmd_compare(an_err *err, const an_args *args, int *exit_code)
{
    compare_values v;
    an_text out = {0};
    pair p = {.dir = {args->words[0], args->words[1]}};
    AN_TRY(an_config_defaults(err, &an_compare_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_compare_keys, &v}, 1));
    an_status status = compare(err, &v, &p);
    const bool signs = status == AN_OK && *v.accept && !p.pass;
    if (status == AN_OK && *v.accept && p.pass) an_say("note    the runs agree: there is nothing to accept");
    if (signs) status = accept_difference(err, v.accept, &p);
    if (status == AN_OK) {
        if (args->json)
            put_json(&out, &p);
        else
            put_table(&out, &p);
        if (signs && !args->json) an_text_printf(&out, "; accepted, and signed in %s/logbook.jsonl", p.dir[1]);
        status = an_print_line(err, &out);
    }
    if (status == AN_OK && !p.pass && !signs) *exit_code = AN_EXIT_NUMERIC;
    for (int i = 0; i < 2; i++) an_run_record_free(&p.run[i]);
    an_text_free(&out);
    return status;
}
