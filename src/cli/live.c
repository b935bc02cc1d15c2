/* live.c: see live.h. */
#define _DEFAULT_SOURCE
#include "cli/live.h"
#include "cli/cli.h"
#include "platform/background.h"
#include "platform/platform.h"
#include <anneal_tools.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BETWEEN_SAMPLES = 20 }; /* seconds at least: a sample takes a processor */

static an_status open_board(an_err *err, const an_live_values *v, const an_dashboard_run *run, an_dashboard **out)
{
    *out = NULL;
    return v->port ? an_dashboard_open(err, v->address, (int)v->port, v->token, run, out) : AN_OK;
}

an_status an_live_check(an_err *err, const an_live_values *v)
{
    an_dashboard *board;
    AN_TRY(open_board(err, v, &(an_dashboard_run){"", "", "", "", 0}, &board));
    an_dashboard_close(board, "");
    return AN_OK;
}

an_status an_live_open(an_err *err, const an_live_values *v, const an_session *r, an_live *out)
{
    const char *device = an_report_text(r->cx, "device");
    char url[AN_DASHBOARD_URL_BYTES], used[128];
    if (!device) device = r->cfg.device;
    snprintf(used, sizeof used, "%.*s", (int)strcspn(device, ";"), device); /* without why not another */
    *out = (an_live){.out = r->cfg.out, .fd = -1};
    const an_dashboard_run run = {.out = r->cfg.out,
                                  .preset = r->cfg.preset,
                                  .device = used,
                                  .unit = r->cfg.task->unit,
                                  .max_iters = r->cfg.max_iters};
    AN_TRY(open_board(err, v, &run, &out->board));
    if (!out->board) return AN_OK;
    an_dashboard_url(out->board, url);
    fprintf(stderr, "page    %s\n", url); /* whole, also where it is longer than a line */
    return AN_OK;
}

/* ---- samples */

/* Starts `anneal sample` on the folder of the run. Where that fails the page shows no sample. */
static void begin_sample(an_live *l)
{
    const char *const argv[] = {"nice",       "-n",        "19",         an_program, "sample", l->out,
                                "device=cpu", "threads=1", "tokens=160", "--quiet",  NULL};
    char path[AN_CKPT_PATH_BYTES], name[AN_RANDOM_NAME_BYTES];
    an_random_name(name);
    if (snprintf(path, sizeof path, "%s/.sample.%s", l->out, name) >= (int)sizeof path) return;
    if (an_file_open(NULL, path, O_RDWR | O_CREAT | O_EXCL | O_APPEND, &l->fd) != AN_OK) return;
    unlink(path); /* the two descriptors are all there is of it */
    if (an_background_spawn(NULL, argv, l->fd, &l->pid) == AN_OK) {
        l->began = an_session_clock();
        l->sample_step = l->asked_step;
        l->asked_step = 0;
        return;
    }
    close(l->fd);
    l->fd = -1;
    l->pid = 0;
}

static void end_sample(an_live *l)
{
    char text[4096];
    int code;
    if (!l->pid || !an_background_ended(l->pid, &code)) return;
    const ssize_t n = pread(l->fd, text, sizeof text, 0);
    if (code == 0 && n > 0) an_dashboard_sample(l->board, l->sample_step, text, (size_t)n);
    close(l->fd);
    l->fd = -1;
    l->pid = 0;
}

bool an_live_wants_stop(an_live *l)
{
    if (!l->board) return false;
    end_sample(l);
    if (!l->pid && l->asked_step > 0 && an_session_clock() - l->began > BETWEEN_SAMPLES) begin_sample(l);
    return an_dashboard_stop_asked(l->board);
}

/* ---- events */

/* What is known without asking a device or waiting. */
static void tell_update(an_live *l, const an_session *r, const an_train_event *e)
{
    an_memory memory;
    const bool known = an_memory_read(r->cx, &memory) == AN_OK;
    const uint64_t rss = an_rss_bytes();
    an_dashboard_update(l->board,
                        &(an_dashboard_numbers){.step = e->step,
                                                .loss = e->loss,
                                                .lr = e->lr,
                                                .grad_norm = e->norm,
                                                .ms = e->ms,
                                                .units_per_s = e->units_per_s,
                                                .data_wait_ms = e->data_wait_ms,
                                                .eta_s = e->eta_s,
                                                .gpu_busy = e->gpu_busy,
                                                .live_bytes = known ? (double)memory.live_bytes : NAN,
                                                .reserved_bytes = known ? (double)memory.requested_bytes : NAN,
                                                .rss_bytes = rss ? (double)rss : NAN});
}

void an_live_event(an_live *l, const an_session *r, const an_train_event *e)
{
    if (!l->board) return;
    switch (e->kind) {
    case AN_TRAIN_LOGGED: tell_update(l, r, e); break;
    case AN_TRAIN_EVALUATED: an_dashboard_evaluated(l->board, e->step, e->val_loss); break;
    case AN_TRAIN_NOTE: an_dashboard_note(l->board, e->note); break;
    case AN_TRAIN_SAVED:
        if (strstr(r->cfg.task->next, "anneal sample")) l->asked_step = e->step;
        break;
    case AN_TRAIN_PLANNED:
    case AN_TRAIN_COMPILED: break;
    }
}

void an_live_close(an_live *l, const char *ended)
{
    if (l->pid) {
        kill(l->pid, SIGKILL);
        waitpid(l->pid, NULL, 0);
        close(l->fd);
    }
    an_dashboard_close(l->board, ended);
    *l = (an_live){.fd = -1};
}
