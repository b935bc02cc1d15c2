/* common.c: what several commands share: exit codes, finding a checkpoint and opening its weights, divide_batch, the modes of a
 * device. Printing: printing.c. Ctrl-C and signals: interrupt.c. */
#define _DEFAULT_SOURCE
#include "cli/cli.h"
#include "platform/platform.h"
#include "tools/estimate.h"
#include <anneal_tools.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *an_program = "anneal";

int an_exit_code(an_status status)
{
    switch (status) {
    case AN_OK: return AN_EXIT_OK;
    case AN_E_USAGE:
    case AN_E_SHAPE:
    case AN_E_DTYPE:
    case AN_E_CONTEXT:
    case AN_E_UNSUPPORTED: return AN_EXIT_USAGE;
    case AN_E_NUMERIC: return AN_EXIT_NUMERIC;
    case AN_E_NOMEM:
    case AN_E_BUDGET:
    case AN_E_ENV:
    case AN_E_DEVICE:
    case AN_E_IO:
    case AN_E_DATA:
    case AN_E_INTERNAL: break;
    }
    return AN_EXIT_ENVIRONMENT;
}

void an_nap(double seconds)
{
    const struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)(1e9 * fmod(seconds, 1))};
    nanosleep(&t, NULL);
}

/* The numbered checkpoints of a folder, as "250 500 750". */
static void list_steps(const char *dir, an_text *out)
{
    an_ckpt_entry *entry;
    size_t n;
    if (an_ckpt_list(NULL, dir, &entry, &n) != AN_OK) return;
    for (size_t i = 0; i < n; i++)
        if (entry[i].step >= 0) an_text_printf(out, "%s%lld", out->len ? " " : "", (long long)entry[i].step);
    free(entry);
}

an_status an_cli_find_checkpoint(an_err *err, const char *run_or_file, bool best, int64_t step,
                                 char out[AN_CKPT_PATH_BYTES])
{
    if (step < 0) return an_ckpt_find(err, run_or_file, best, out);
    const int n = snprintf(out, AN_CKPT_PATH_BYTES, "%s/step_%lld.safetensors", run_or_file, (long long)step);
    if (n < AN_CKPT_PATH_BYTES && access(out, R_OK) == 0) return an_ckpt_check(err, out);
    an_text steps = {0};
    list_steps(run_or_file, &steps);
    an_status status = an_fail(err, AN_E_IO, "%s: no checkpoint after %lld updates; there are %s", run_or_file,
                               (long long)step, steps.len ? steps.data : "no numbered ones");
    an_text_free(&steps);
    return status;
}

an_status an_cli_open_weights(an_err *err, const char *run_or_file, bool best, int64_t step, an_train_config *cfg,
                              an_st **out)
{
    char path[AN_CKPT_PATH_BYTES];
    AN_TRY(an_cli_find_checkpoint(err, run_or_file, best, step, path));
    const an_model *model;
    AN_TRY(an_model_open_weights(err, path, &model, out));
    an_status status = an_session_config(err, *out, cfg);
    if (status != AN_OK) {
        an_st_close(*out);
        *out = NULL;
    }
    return status;
}

an_status an_cli_divide(an_err *err, an_train_config *c, an_session **r)
{
    an_estimate estimate;
    int64_t parts;
    char most[16];
    const uint64_t bytes = (uint64_t)(c->divide_batch * 1073741824.0);
    if (bytes == 0) return AN_OK;
    /* an_estimate_run would plan within the budget, with recomputation: what is divided here is what the settings take without */
    AN_TRY(an_estimate_settings(err, &(*r)->cfg, (*r)->data, &estimate));
    AN_TRY(an_fit_parts(err, *r, &estimate, bytes, &parts));
    if (parts == 1) return AN_OK;
    an_say("note    divide_batch=%s: batch_size=%lld becomes batch_size=%lld gradient_accumulation_steps=%lld",
           an_bytes_text((double)bytes, most), (long long)c->batch_size, (long long)(c->batch_size / parts),
           (long long)(c->gradient_accumulation_steps * parts));
    c->batch_size /= parts;
    c->gradient_accumulation_steps *= parts;
    an_session_close(*r);
    *r = NULL;
    return AN_OK;
}

const char *an_cli_device(const char *name)
{
    return strcmp(name, "auto") == 0 ? an_device_auto() : name;
}

const char *an_cli_ask(const an_task *t)
{
    const char *command = t->questions ? NULL : strstr(t->next, "anneal ");
    return command ? command : "anneal predict";
}

static void modes(const an_train_config *c, const char *device, bool *exact, bool *tf32)
{
    *exact = c->exact;
    *tf32 = c->tf32;
    an_device_modes(an_cli_device(device), exact, tf32);
}

bool an_cli_exact(const an_train_config *c, const char *device)
{
    bool exact, tf32;
    modes(c, device, &exact, &tf32);
    return exact;
}

bool an_cli_tf32(const an_train_config *c, const char *device)
{
    bool exact, tf32;
    modes(c, device, &exact, &tf32);
    return c->dtype == AN_F32 && tf32;
}

const char *an_cli_on_cpu(const an_bill *b, an_cpu_launches n, char out[AN_CLI_ON_CPU_BYTES])
{
    char bytes[16], why[64];
    const int left = n.all - n.placed;
    if (n.placed && left)
        snprintf(why, sizeof why, "%d by place=, %d by fallback=cpu", n.placed, left);
    else
        snprintf(why, sizeof why, "%s", left ? "fallback=cpu" : "place=");
    snprintf(out, AN_CLI_ON_CPU_BYTES, "%d (%s), on %s; the GPU waits for them %d time%s a step", n.all, why,
             an_bytes_text((double)b->fallback_bytes, bytes), n.turns, n.turns == 1 ? "" : "s");
    return out;
}

void an_cli_warn(an_ctx *cx)
{
    const char *text = an_report_text(cx, "warning");
    if (text) an_say("warning %s", text);
}
