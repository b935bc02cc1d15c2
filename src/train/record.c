#define _DEFAULT_SOURCE
#include "train/record.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

static an_status path_in(an_err *err, const char *dir, const char *name, char out[AN_CKPT_PATH_BYTES])
{
    int n = snprintf(out, AN_CKPT_PATH_BYTES, "%s/%s", dir, name);
    return n > 0 && n < AN_CKPT_PATH_BYTES ? AN_OK
                                           : an_fail(err, AN_E_USAGE, "out=%.100s...: the path is too long", dir);
}

/* ,"key":number, or null where JSON has no such number. */
static void put_number(an_text *out, const char *key, double value)
{
    if (isfinite(value))
        an_text_printf(out, ",\"%s\":%.9g", key, value);
    else
        an_text_printf(out, ",\"%s\":null", key);
}

static an_status write_line(an_err *err, an_jsonl *j, an_text *line)
{
    an_status status = line->failed ? an_fail_nomem(err, j->path, line->len) : an_jsonl_write(err, j, line->data);
    an_text_free(line);
    return status;
}

an_status an_metrics_open(an_err *err, const char *dir, int64_t step, an_jsonl *out)
{
    char path[AN_CKPT_PATH_BYTES];
    AN_TRY(path_in(err, dir, "metrics.jsonl", path));
    AN_TRY(an_jsonl_cut_after(err, path, "step", step - 1, NULL));
    return an_jsonl_open(err, path, out);
}

an_status an_metrics_write(an_err *err, an_jsonl *j, const an_train_event *e, bool evaluated)
{
    an_text line = {0};
    an_text_printf(&line, "{\"step\":%lld", (long long)e->step);
    put_number(&line, "loss", e->loss);
    if (evaluated) put_number(&line, "val_loss", e->val_loss);
    put_number(&line, "lr", e->lr);
    put_number(&line, "grad_norm", e->norm);
    put_number(&line, "ms", e->ms);
    put_number(&line, "tokens_per_s", e->tokens_per_s);
    put_number(&line, "data_wait_ms", e->data_wait_ms);
    an_text_puts(&line, "}");
    return write_line(err, j, &line);
}

static void put_time(an_text *out)
{
    time_t now = time(NULL);
    struct tm utc;
    char text[32] = "";
    if (gmtime_r(&now, &utc)) strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    an_text_printf(out, ",\"time\":\"%s\"", text);
}

static an_status put_start(an_err *err, const an_run *r, an_text *out)
{
    struct utsname machine;
    if (uname(&machine) == 0)
        an_text_printf(out, ",\"system\":\"%s %s\",\"machine\":\"%s\"", machine.sysname, machine.release,
                       machine.machine);
    an_text_printf(out, ",\"anneal\":\"%s\",\"compiler\":\"%s\",\"preset\":", AN_VERSION, __VERSION__);
    an_text_printf(out, "\"%s\"", strpbrk(r->cfg.preset, "\"\\") ? "" : r->cfg.preset);
    an_text_puts(out, ",\"settings\":");
    return an_config_json(err, &an_train_keys, &r->cfg, out);
}

an_status an_logbook_write(an_err *err, const an_run *r, const char *event, const an_train_result *result)
{
    char path[AN_CKPT_PATH_BYTES];
    an_text line = {0};
    an_jsonl j;
    an_text_printf(&line, "{\"event\":\"%s\",\"step\":%lld", event, (long long)r->step);
    put_time(&line);
    an_status status = path_in(err, r->cfg.out, "logbook.jsonl", path);
    if (status == AN_OK && !result) status = put_start(err, r, &line);
    if (result) {
        put_number(&line, "loss", result->loss);
        put_number(&line, "val_loss", result->val_loss);
        put_number(&line, "best_val_loss", r->best_val);
        put_number(&line, "seconds", result->seconds);
    }
    an_text_puts(&line, "}");
    if (status == AN_OK) status = an_jsonl_open(err, path, &j);
    if (status != AN_OK) {
        an_text_free(&line);
        return status;
    }
    status = write_line(err, &j, &line);
    an_jsonl_close(&j);
    return status;
}
