/* drift.c: see drift.h. */
#include "tools/drift.h"
#include "report/metrics.h"
#include "report/run_record.h"
#include <stdio.h>
#include <string.h>

static const char *const program_keys[] = {"anneal", "commit", "compiler", "system", "machine"};
static const char *const machine_keys[] = {"cpu",        "features",     "usable_cores", "ram_bytes", "container",
                                           "hypervisor", "cgroup_bytes", "cgroup_cores", "governor",  "translated"};

an_status an_pack_beginning(an_err *err, const an_pack *p, json_t **out)
{
    const an_zip_member *m = an_zip_find(&p->zip, "logbook.jsonl");
    const char *text = m ? (const char *)p->zip.data + m->at : "", *end = text + (m ? m->bytes : 0);
    *out = NULL;
    while (text < end) {
        const char *line_end = memchr(text, '\n', (size_t)(end - text));
        const size_t n = (size_t)((line_end ? line_end : end) - text);
        an_err unused = {0};
        json_t *line = NULL;
        if (n && an_json_parse(&unused, p->path, 0, text, n, &line) == AN_OK &&
            strcmp(an_run_text(line, "event"), "begin") == 0) {
            json_decref(*out);
            *out = json_incref(line);
        }
        json_decref(line);
        text += n + 1;
    }
    if (*out) return AN_OK;
    return an_fail(err, AN_E_DATA, "%s: it does not say where it comes from: %s", p->path,
                   m ? "no line of its logbook is the beginning of a run" : "it holds settings, and no run");
}

static void value_text(const json_t *object, const char *key, char out[AN_DRIFT_VALUE_BYTES])
{
    const json_t *v = json_object_get(object, key);
    out[0] = 0;
    if (json_is_string(v)) snprintf(out, AN_DRIFT_VALUE_BYTES, "%s", json_string_value(v));
    if (json_is_number(v)) snprintf(out, AN_DRIFT_VALUE_BYTES, "%.12g", json_number_value(v));
    if (json_is_boolean(v)) snprintf(out, AN_DRIFT_VALUE_BYTES, "%s", json_is_true(v) ? "yes" : "no");
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < 32 || (unsigned char)*c > 126) *c = '?';
}

static void add(an_drift *d, const char *key, const json_t *there, const json_t *here, bool variable)
{
    if (d->n == AN_DRIFT_MOST_ROWS) {
        d->left_out++;
        return;
    }
    an_drift_row *r = &d->row[d->n++];
    const json_t *a = json_object_get(there, key), *b = json_object_get(here, key);
    *r = (an_drift_row){.variable = variable};
    snprintf(r->name, sizeof r->name, "%s", key);
    for (char *c = r->name; *c; c++)
        if ((unsigned char)*c < 32 || (unsigned char)*c > 126) *c = '?';
    value_text(there, key, r->there);
    value_text(here, key, r->here);
    r->differs = variable ? !a != !b || (a && !json_equal(a, b)) : strcmp(r->there, r->here) != 0;
    d->differing += r->differs;
}

static void compare(const json_t *there, const json_t *here, an_drift *d)
{
    const json_t *a = json_object_get(there, "facts"), *b = json_object_get(here, "facts");
    for (size_t i = 0; i < AN_COUNT(program_keys); i++) add(d, program_keys[i], there, here, false);
    for (size_t i = 0; i < AN_COUNT(machine_keys); i++) add(d, machine_keys[i], a, b, false);
    json_t *of_there = json_object_get(there, "environment"), *of_here = json_object_get(here, "environment");
    const char *key;
    json_t *value;
    json_object_foreach(of_there, key, value) add(d, key, of_there, of_here, true);
    json_object_foreach(of_here, key, value) if (!json_object_get(of_there, key)) add(d, key, of_there, of_here, true);
}

an_status an_drift_find(an_err *err, const json_t *beginning, const char *commit, an_drift *out)
{
    an_text text = {0};
    json_t *here = NULL;
    *out = (an_drift){.n = 0};
    an_text_puts(&text, "{\"drift\":1");
    an_logbook_put_machine(commit, &text);
    an_text_puts(&text, "}");
    an_status status = text.failed ? an_fail_nomem(err, "this machine's facts", text.len)
                                   : an_json_parse(err, "this machine's facts", 0, text.data, text.len, &here);
    an_text_free(&text);
    if (status == AN_OK) compare(beginning, here, out);
    json_decref(here);
    return status;
}
