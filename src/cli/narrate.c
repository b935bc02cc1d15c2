#define _DEFAULT_SOURCE
#include "cli/narrate.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CURVE_WIDTH = 64, CURVE_HEIGHT = 10 };

void an_narrate_begin(an_narrator *n, bool quiet)
{
    *n = (an_narrator){.quiet = quiet, .terminal = isatty(STDERR_FILENO) == 1, .shown = -1e9};
}

void an_narrate_free(an_narrator *n)
{
    free(n->points);
    n->points = NULL;
}

/* 1234567 as "1,234,567". */
static const char *grouped(int64_t v, char out[32])
{
    char digits[32];
    const int n = snprintf(digits, sizeof digits, "%lld", (long long)v);
    int used = 0;
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0 && digits[i - 1] != '-') out[used++] = ',';
        out[used++] = digits[i];
    }
    out[used] = 0;
    return out;
}

/* "3 s", "4:07", "2:03:55". */
static const char *duration(double seconds, char out[32])
{
    if (!(seconds >= 0 && seconds < 1e7)) return strcpy(out, "?");
    const int s = (int)(seconds + 0.5);
    if (s < 60)
        snprintf(out, 32, "%d s", s);
    else if (s < 3600)
        snprintf(out, 32, "%d:%02d", s / 60, s % 60);
    else
        snprintf(out, 32, "%d:%02d:%02d", s / 3600, s / 60 % 60, s % 60);
    return out;
}

static void close_line(an_narrator *n)
{
    if (n->open_line) fputc('\n', stderr);
    n->open_line = false;
}

void an_narrate_run(an_narrator *n, const an_run *r)
{
    if (n->quiet) return;
    char total[32], train[32], val[32];
    const an_gpt_config *m = an_gpt_config_of(r->model);
    fprintf(stderr,
            "model   %.2fM parameters (%s with positions): %lld layers, %lld heads, width %lld, vocabulary %lld, "
            "context %lld\n",
            (double)an_gpt_parameters_printed(m) / 1e6, grouped(an_gpt_parameters(m), total), (long long)m->layers,
            (long long)m->heads, (long long)m->width, (long long)m->vocab, (long long)m->block);
    if (r->data)
        fprintf(stderr, "data    %s: %s tokens to train on, %s to validate\n",
                strcmp(r->cfg.data, "corpus") == 0 ? "the built-in text (data=FILE for your own)" : r->cfg.data,
                grouped(an_data_tokens(r->data, AN_TRAIN), train), grouped(an_data_tokens(r->data, AN_VAL), val));
    if (r->step > 0) fprintf(stderr, "resume  after %lld updates\n", (long long)r->step);
}

void an_narrate_bill(const an_bill *b)
{
    char peak[16], weights[16], gradients[16], moments[16], activations[16], rest[16];
    const double other = (double)(b->state_bytes + b->scratch_bytes + b->input_bytes);
    fprintf(stderr, "memory  %s: weights %s, gradients %s, moments %s, activations %s, other %s\n",
            an_bytes_text((double)b->peak_bytes, peak), an_bytes_text((double)b->weight_bytes, weights),
            an_bytes_text((double)b->gradient_bytes, gradients), an_bytes_text((double)b->moment_bytes, moments),
            an_bytes_text((double)b->activation_bytes, activations), an_bytes_text(other, rest));
    fprintf(stderr, "step    %d launches of %d kernels, %.2f GFLOP", b->launches, b->kernels, 1e-9 * (double)b->flops);
    if (b->fallbacks) fprintf(stderr, ", %d FALLBACKS", b->fallbacks);
    fputc('\n', stderr);
}

static void narrate_compilation(const an_bill *b)
{
    fprintf(stderr, "compile %d kernels compiled in %.2f s, %d from the cache; planned in %.1f ms\n", b->compiled,
            1e-3 * b->compile_ms, b->cached, b->plan_ms);
}

/* A curve needs a few hundred points: when the table is full, every second one goes. */
static an_point *add_point(an_narrator *n)
{
    if (n->n == n->cap && n->cap < 4096) {
        const size_t cap = n->cap ? 2 * n->cap : 256;
        an_point *more = realloc(n->points, cap * sizeof *more);
        if (!more) return NULL;
        n->points = more;
        n->cap = cap;
    } else if (n->n == n->cap) {
        size_t kept = 0;
        for (size_t i = 0; i < n->n; i++)
            if (i % 2 == 0 || isfinite(n->points[i].val_loss)) n->points[kept++] = n->points[i];
        if (kept == n->n) return NULL;
        n->n = kept;
    }
    return &n->points[n->n++];
}

/* On a terminal one line that changes; elsewhere a line every two seconds. */
static void show_progress(an_narrator *n, const an_run *r, const an_train_event *e)
{
    const double now = an_run_clock();
    if (now - n->shown < (n->terminal ? 0.1 : 2.0) && e->step + 1 < r->cfg.max_iters) return;
    n->shown = now;
    char eta[32];
    fprintf(stderr, "%sstep %lld/%lld  loss %.4f  %.0f tokens/s  %.1f ms", n->terminal ? "\r\033[K" : "",
            (long long)e->step, (long long)r->cfg.max_iters, e->loss, e->tokens_per_s, e->ms);
    if (isfinite(e->eta_s)) fprintf(stderr, "  %s left", duration(e->eta_s, eta));
    n->open_line = true;
    if (!n->terminal) close_line(n);
}

void an_narrate(void *arg, const an_run *r, const an_train_event *e)
{
    an_narrator *n = arg;
    an_point *p = e->kind == AN_TRAIN_LOGGED ? add_point(n) : NULL;
    if (p) *p = (an_point){e->step, e->loss, NAN};
    if (e->kind == AN_TRAIN_EVALUATED && n->n > 0) n->points[n->n - 1].val_loss = e->val_loss;
    if (n->quiet) return;
    switch (e->kind) {
    case AN_TRAIN_PLANNED: an_narrate_bill(&e->bill); break;
    case AN_TRAIN_COMPILED: narrate_compilation(&e->bill); break;
    case AN_TRAIN_LOGGED: show_progress(n, r, e); break;
    case AN_TRAIN_EVALUATED:
        if (n->terminal && n->open_line) fputs("\r\033[K", stderr);
        n->open_line = false;
        fprintf(stderr, "after %lld updates: loss %.4f, val loss %.4f%s\n", (long long)e->step, e->loss, e->val_loss,
                e->improved ? " (best)" : "");
        break;
    case AN_TRAIN_SAVED: break;
    case AN_TRAIN_NOTE:
        close_line(n);
        fprintf(stderr, "%s\n", e->note);
        break;
    }
}

/* ---- the curve */

static void scale_of(const an_narrator *n, double *low, double *high)
{
    *low = INFINITY;
    *high = -INFINITY;
    for (size_t i = 0; i < n->n; i++) {
        const double both[2] = {n->points[i].loss, n->points[i].val_loss};
        for (int k = 0; k < 2; k++) {
            if (!isfinite(both[k])) continue;
            *low = fmin(*low, both[k]);
            *high = fmax(*high, both[k]);
        }
    }
}

static void plot(char grid[CURVE_HEIGHT][CURVE_WIDTH + 1], double value, double low, double high, int column, char mark)
{
    if (!isfinite(value)) return;
    const double at = high > low ? (high - value) / (high - low) : 0;
    grid[(int)(at * (CURVE_HEIGHT - 1) + 0.5)][column] = mark;
}

static void show_curve(const an_narrator *n)
{
    double low, high;
    scale_of(n, &low, &high);
    if (n->n < 8 || !isfinite(low)) return;
    char grid[CURVE_HEIGHT][CURVE_WIDTH + 1];
    memset(grid, ' ', sizeof grid);
    const int64_t first = n->points[0].step, last = n->points[n->n - 1].step, span = last > first ? last - first : 1;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < n->n; i++) {
            const an_point *p = &n->points[i];
            const int column = (int)((p->step - first) * (CURVE_WIDTH - 1) / span);
            plot(grid, pass ? p->val_loss : p->loss, low, high, column, pass ? 'o' : '.');
        }
    fputc('\n', stderr);
    for (int row = 0; row < CURVE_HEIGHT; row++) {
        grid[row][CURVE_WIDTH] = 0;
        fprintf(stderr, "%7.3f |%s\n", high - (high - low) * row / (CURVE_HEIGHT - 1), grid[row]);
    }
    fprintf(stderr, "        +%.*s\n", CURVE_WIDTH, "----------------------------------------------------------------");
    fprintf(stderr, "         update %lld to %lld: . loss of a batch, o validation loss\n", (long long)first,
            (long long)last);
}

void an_narrate_end(an_narrator *n, const an_run *r, const an_train_result *result)
{
    close_line(n);
    if (n->quiet) return;
    char took[32];
    show_curve(n);
    if (result->interrupted)
        fprintf(stderr, "interrupted after %lld updates; continue with: anneal resume %s\n", (long long)r->step,
                r->cfg.out);
    else
        fprintf(stderr, "%lld updates in %s; best val loss %.4f after %lld; write with: anneal sample %s\n",
                (long long)r->step, duration(result->seconds, took), r->best_val, (long long)r->best_step, r->cfg.out);
}
