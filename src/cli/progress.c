/* progress.c: the lines that `anneal train` prints on stderr, '% of peak' among them. See progress.h. */
#define _DEFAULT_SOURCE
#include "cli/progress.h"
#include "cli/cli.h"
#include "report/loss_curve.h"
#include <math.h>
#include <anneal_tools.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { CURVE_WIDTH = 64, CURVE_HEIGHT = 10, COLUMNS = 79 }; /* a cursor in column 80 may wrap the line */

void an_progress_begin(an_progress *n, const an_session *r, bool quiet)
{
    *n = (an_progress){.quiet = quiet,
                       .terminal = isatty(STDERR_FILENO) == 1,
                       .nanogpt = strcmp(r->cfg.log_format, "nanogpt") == 0,
                       .shown = -1e9,
                       .peak_gflops = -1,
                       .first_step = -1,
                       .mfu = -1};
}

void an_progress_close(an_progress *n)
{
    if (n->open_line) fputc('\n', stderr);
    n->open_line = false;
}

/* ---- before the first update */

void an_progress_run(an_progress *n, const an_session *r)
{
    if (n->nanogpt) an_nanogpt_begin(r);
    if (n->quiet) return;
    char total[32], train[32], val[32];
    const an_train_config *c = &r->cfg;
    an_model_counts counts;
    an_text model = {0};
    c->model->count(an_model_settings(c), c->batch_size, &counts);
    c->model->describe(an_model_settings(c), an_grouped(counts.parameters, total), &model);
    fprintf(stderr, "model   %.2fM parameters (%s", (double)counts.parameters_printed / 1e6,
            model.data ? model.data : ")\n");
    an_text_free(&model);
    if (r->data->loaded)
        an_say("data    %s\n        %s %s to train on, %s to validate", r->data->built_in ? c->task->built_in : c->data,
               an_grouped(r->data->units[AN_TRAIN], train), c->task->units, an_grouped(r->data->units[AN_VAL], val));
    const char *device = an_report_text(r->cx, "device");
    an_say("device  %s", device ? device : c->device);
    an_device_facts opened;
    const bool known = an_device_opened(r->cx, &opened);
    fprintf(stderr, "mode    %s%s%s%s%s, %s\n", an_dtype_text(c->dtype),
            known && an_cli_tf32(c, opened.name) ? " with matmuls in tf32" : "",
            known && an_cli_exact(c, opened.name) ? ", exact" : "",
            c->weights_dtype == AN_BF16 ? ", matrices kept in bfloat16 (norms and biases in float32)" : "",
            c->moments_dtype == AN_BF16 ? ", moments in bfloat16" : "",
            c->compile ? "fused kernels" : "compile=false: one unfused kernel an operation");
    if (strcmp(c->init_from, "scratch") != 0 && strcmp(c->init_from, "resume") != 0 && r->step == 0)
        an_say("weights %s", c->init_from);
    an_cli_warn(r->cx);
    if (r->step > 0) fprintf(stderr, "resume  after %lld updates\n", (long long)r->step);
    if (c->decay_lr && c->min_lr > c->learning_rate)
        an_say("note    min_lr=%g is above learning_rate=%g: the rate rises towards the end", c->min_lr,
               c->learning_rate);
    if (c->wandb_log) an_say("note    wandb_log: nothing is sent anywhere, metrics.jsonl has the numbers");
}

void an_progress_bill(const an_bill *b, an_cpu_launches on_cpu)
{
    char peak[16], weights[16], gradients[16], moments[16], activations[16], rest[16], moved[16];
    char line[AN_CLI_ON_CPU_BYTES];
    const double other = (double)(b->state_bytes + b->scratch_bytes + b->input_bytes);
    fprintf(stderr, "memory  %s: weights %s, gradients %s, moments %s,\n        activations %s, other %s\n",
            an_bytes_text((double)b->peak_bytes, peak), an_bytes_text((double)b->weight_bytes, weights),
            an_bytes_text((double)b->gradient_bytes, gradients), an_bytes_text((double)b->moment_bytes, moments),
            an_bytes_text((double)b->activation_bytes, activations), an_bytes_text(other, rest));
    fprintf(stderr, "step    %d launches of %d kernels, %.2f GFLOP, %s moved", b->launches, b->kernels,
            1e-9 * (double)b->flops, an_bytes_text((double)b->moved_bytes, moved));
    fputc('\n', stderr);
    if (on_cpu.all) fprintf(stderr, "        of which on the CPU %s\n", an_cli_on_cpu(b, on_cpu, line));
}

/* Host memory of the run beside the device's: a row of its own, not part of the bytes moved. */
static void narrate_beside(const an_estimate *p)
{
    char data[16], buffers[16], program[16];
    fprintf(stderr, "beside  data %s, batches and buffers %s, the program %s\n",
            an_bytes_text((double)p->data_bytes, data),
            an_bytes_text((double)(p->worker_bytes + p->host_bytes), buffers),
            an_bytes_text((double)p->process_bytes, program));
}

/* Disk for the checkpoints that will be there at once: those that are kept, the best, which may be older, and the one
 * that is being written. */
static void narrate_disk(const an_session *r, const an_bill *b)
{
    const an_train_config *c = &r->cfg;
    struct statvfs disk;
    char all[16], one[16], left[16];
    const char *out = c->out;
    if (c->eval_only || (statvfs(out, &disk) != 0 && statvfs(".", &disk) != 0)) return;
    const int64_t every = c->save_interval > 0 ? AN_MIN(c->save_interval, c->eval_interval) : c->eval_interval;
    const double saves = every > 0 ? ceil((double)(c->max_iters - r->step) / (double)every) + 1 : 2;
    const double kept = (c->keep < 0 ? saves : fmin((double)c->keep, saves)) + 2;
    const double bytes = (double)(b->weight_bytes + b->moment_bytes + b->state_bytes);
    const double available = (double)disk.f_bavail * (double)disk.f_frsize;
    fprintf(stderr, "disk    %.0f checkpoints of %s: %s of %s free\n", kept, an_bytes_text(bytes, one),
            an_bytes_text(kept * bytes, all), an_bytes_text(available, left));
    if (kept * bytes > available)
        an_say("note    the disk of %s is too small for them: keep fewer (keep=1), or name another folder (out=)", out);
}

static void narrate_compilation(const an_bill *b)
{
    fprintf(stderr, "compile %d kernels compiled in %.2f s, %d from the cache; planned in %.1f ms\n", b->compiled,
            1e-3 * b->compile_ms, b->cached, b->plan_ms);
    if (b->fallbacks)
        fprintf(stderr, "        the CPU's %d launches took %.3g ms of the first update\n", b->fallbacks,
                b->fallback_ms);
}

/* GPU memory in use beside the bill, after everything is loaded. */
static void narrate_driver(const an_session *r)
{
    char text[16];
    const uint64_t bytes = an_estimate_driver(r->cx);
    if (bytes)
        fprintf(stderr, "        driver and libraries (and other programs) hold %s of the device\n",
                an_bytes_text((double)bytes, text));
}

/* ---- progress */

/* The largest resident size of this process so far. */
static double resident_bytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
#if defined(__APPLE__)
    return (double)usage.ru_maxrss; /* bytes there, KiB elsewhere */
#else
    return 1024.0 * (double)usage.ru_maxrss;
#endif
}

/* Columns of the terminal, at most 79. */
/* Fields with two blanks between them, or one where that is too wide; what is wider still than a terminal is cut. */
static void put_fields(const an_progress *n, char fields[][40], int count)
{
    char line[12 * 42];
    int wide = n->terminal ? an_terminal_columns() : COLUMNS, used = 0, total = 0;
    for (int i = 0; i < count; i++) total += (int)strlen(fields[i]) + (i > 0 ? 2 : 0);
    for (int i = 0; i < count; i++)
        used += snprintf(line + used, sizeof line - (size_t)used, "%s%s",
                         i == 0         ? ""
                         : total > wide ? " "
                                        : "  ",
                         fields[i]);
    if (n->terminal)
        fprintf(stderr, "\r\033[K%.*s", wide, line);
    else
        fputs(line, stderr);
}

/* Warns once of a loss several times that of guessing (log of the vocabulary): such a run hardly learns. */
static void warn_of_loss(an_progress *n, const an_session *r, const an_train_event *e)
{
    an_train_config c = r->cfg;
    const int64_t *vocab = an_train_number(&c, "vocab_size");
    if (n->warned || !vocab || *vocab < 2 || !(e->loss > 3 * log((double)*vocab))) return;
    n->warned = true;
    an_progress_close(n);
    an_say(
        "note    loss %.4g after %lld updates, where guessing among %lld tokens has %.2f: learning_rate or the initial "
        "weights are too large, or the weights of init_from= know other tokens",
        e->loss, (long long)e->step, (long long)*vocab, log((double)*vocab));
}

/* The model's sums beside the loss: their names, and whether there are any. */
static const char *sum_name(const an_session *r, size_t i)
{
    return r->cfg.model->sums(an_model_settings(&r->cfg))[i].name;
}

static bool several(const an_session *r)
{
    return an_model_sums(r->cfg.model, an_model_settings(&r->cfg)) > 1;
}

/* On a terminal one line that changes; elsewhere a line every two seconds. */
static void show_progress(an_progress *n, const an_session *r, const an_train_event *e)
{
    const double now = an_session_clock();
    const bool last = e->step + 1 >= r->cfg.max_iters;
    if (now - n->shown < (n->terminal ? 0.1 : 2.0) && !last) return;
    n->shown = now;
    char fields[12][40] = {{0}}, text[32];
    int k = 0;
    if (n->peak_gflops < 0) n->peak_gflops = an_fma_peak(r->cx, r->cfg.dtype);
    an_model_counts counts;
    r->cfg.model->count(an_model_settings(&r->cfg), r->cfg.batch_size, &counts);
    const double flops = counts.flops * (double)an_train_micros(&r->cfg); /* of this rank, as the peak */
    snprintf(fields[k++], 40, "%lld/%lld", (long long)e->step, (long long)r->cfg.max_iters);
    snprintf(fields[k++], 40, "loss %.4f", e->loss);
    if (several(r) && isfinite(e->number[1])) snprintf(fields[k++], 40, "%s %.4f", sum_name(r, 1), e->number[1]);
    snprintf(fields[k++], 40, "%s %s", an_short_number(e->units_per_s, text), r->cfg.task->unit_rate);
    const double gflops = flops / e->ms / 1e6; /* of a second */
    if (n->peak_gflops > 0) snprintf(fields[k++], 40, "%.0f%% of peak", 100 * gflops / n->peak_gflops);
    if (isfinite(e->gpu_busy)) snprintf(fields[k++], 40, "GPU %.0f%%", 100 * e->gpu_busy);
    if (isfinite(e->exchange_share)) snprintf(fields[k++], 40, "exchange %.0f%%", 100 * e->exchange_share);
    if (e->slowest >= 0 && e->slower > 0.05)
        snprintf(fields[k++], 40, "rank %d slow by %.0f%%", e->slowest, 100 * e->slower);
    snprintf(fields[k++], 40, "data %.0f%%", 100 * e->data_wait_ms / e->ms);
    snprintf(fields[k++], 40, "%s", an_bytes_text(resident_bytes(), text));
    if (e->scale > 0) snprintf(fields[k++], 40, "scale %g, %lld skipped", e->scale, (long long)e->skipped);
    if (isfinite(e->eta_s)) snprintf(fields[k++], 40, "%s left", an_duration(e->eta_s, text));
    put_fields(n, fields, k);
    n->open_line = true;
    if (!n->terminal) an_progress_close(n);
}

static void show_evaluation(an_progress *n, const an_session *r, const an_train_event *e)
{
    if (n->terminal && n->open_line) fputs("\r\033[K", stderr);
    n->open_line = false;
    fprintf(stderr, "after %lld updates: ", (long long)e->step);
    if (isfinite(e->loss)) fprintf(stderr, "loss %.4f, ", e->loss);
    if (isfinite(e->train_loss)) fprintf(stderr, "train loss %.4f, ", e->train_loss);
    fprintf(stderr, "val loss %.4f%s", e->val_loss, e->improved ? " (best)" : "");
    if (r->cfg.task->loss_exp) fprintf(stderr, ", val %s %.4g", r->cfg.task->loss_exp, exp(e->val_loss));
    for (size_t i = 1; i < an_model_sums(r->cfg.model, an_model_settings(&r->cfg)); i++)
        fprintf(stderr, ", %s %.4f", sum_name(r, i), e->val_number[i]);
    fputc('\n', stderr);
}

void an_progress_event(void *arg, const an_session *r, const an_train_event *e)
{
    an_progress *n = arg;
    if (n->nanogpt) an_nanogpt_tell(n, r, e);
    if (n->quiet) return;
    switch (e->kind) {
    case AN_TRAIN_PLANNED:
        an_progress_bill(n->estimate ? &n->estimate->bill : &e->bill, an_planned_on_cpu(r->cx));
        if (n->estimate) narrate_beside(n->estimate);
        narrate_disk(r, n->estimate ? &n->estimate->bill : &e->bill);
        break;
    case AN_TRAIN_COMPILED:
        narrate_compilation(&e->bill);
        narrate_driver(r);
        break;
    case AN_TRAIN_LOGGED:
        warn_of_loss(n, r, e);
        if (!n->nanogpt) show_progress(n, r, e);
        break;
    case AN_TRAIN_EVALUATED:
        if (!n->nanogpt) show_evaluation(n, r, e);
        break;
    case AN_TRAIN_SAVED: break;
    case AN_TRAIN_NOTE:
        an_progress_close(n);
        an_say("note    %s", e->note);
        break;
    }
}

/* ---- the end */

static void plot(char grid[CURVE_HEIGHT][CURVE_WIDTH + 1], double value, double low, double high, int column, char mark)
{
    if (!(value >= low && value <= high)) return; /* NaN, or outside the chart */
    const double at = high > low ? (high - value) / (high - low) : 0;
    grid[(int)(at * (CURVE_HEIGHT - 1) + 0.5)][column] = mark;
}

static void show_curve(const char *dir)
{
    double low, high;
    an_curve c;
    if (an_curve_read(NULL, dir, &c) != AN_OK) return;
    if (c.n < 8 || !an_curve_range(&c, &low, &high)) {
        an_curve_free(&c);
        return;
    }
    char grid[CURVE_HEIGHT][CURVE_WIDTH + 1];
    memset(grid, ' ', sizeof grid);
    /* The points are in order of their steps, which are below 2^53. */
    const int64_t first = c.point[0].step, last = c.point[c.n - 1].step, span = last > first ? last - first : 1;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < c.n; i++) {
            const an_curve_point *p = &c.point[i];
            const int column = (int)((p->step - first) * (CURVE_WIDTH - 1) / span);
            plot(grid, pass ? p->val_loss : p->loss, low, high, column, pass ? 'o' : '.');
        }
    an_curve_free(&c);
    fputc('\n', stderr);
    for (int row = 0; row < CURVE_HEIGHT; row++) {
        int end = CURVE_WIDTH;
        while (end > 0 && grid[row][end - 1] == ' ') end--;
        grid[row][end] = 0;
        fprintf(stderr, "%7.3f |%s\n", high - (high - low) * row / (CURVE_HEIGHT - 1), grid[row]);
    }
    fprintf(stderr, "        +%.*s\n", CURVE_WIDTH, "----------------------------------------------------------------");
    fprintf(stderr, "         update %lld to %lld: . loss of a batch, o validation loss\n", (long long)first,
            (long long)last);
}

/* The last line, and the command to continue with, with this program's path where it is not in PATH. */
static void print_next(const an_session *r)
{
    const char *next = r->cfg.task->next, *name = strstr(next, "anneal ");
    const int before = name ? (int)(name - next) : (int)strlen(next);
    an_say("%lld updates; best val loss %.4f after %lld; %.*s%s%s %s%s", (long long)r->step, r->best_val,
           (long long)r->best_step, before, next, name ? an_program : "", name ? name + strlen("anneal") : "",
           r->cfg.out, r->cfg.task->next_argument);
}

void an_progress_end(an_progress *n, const an_session *r, const an_train_result *t)
{
    an_progress_close(n);
    if (n->quiet) return;
    char took[32];
    if (r->cfg.eval_only) return;
    if (!n->nanogpt) show_curve(r->cfg.out);
    fprintf(stderr,
            "time    %s: %.1f s user, %.1f s system; compiling %.1f s,\n        evaluation %.1f s, saving %.1f s, "
            "waiting for data %.1f s\n",
            an_duration(t->seconds, took), t->user_s, t->system_s, t->compile_s, t->evaluate_s, t->save_s,
            t->data_wait_s);
    if (t->interrupted)
        an_say("interrupted after %lld updates; continue with\n    %s resume %s", (long long)r->step, an_program,
               r->cfg.out);
    else if (isfinite(r->best_val))
        print_next(r);
}
