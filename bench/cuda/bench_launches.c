/* bench_launches.c: where the time of a training step goes on a GPU. Steps on fixed random tokens are timed with the loss
 * read after each and, as `train` logs by default, after every tenth; then with events around each launch, and the times
 * of one kernel's launches are added up.
 *
 *     build/bench/cuda/bench_launches PRESET [key=value ...]      (device=cuda unless said otherwise) */
#include "train/session.h"
#include "train/step.h"

#include <anneal_tools.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_UP = 5, STEPS = 20, TOGETHER = 10, MOST = 4096 };

typedef struct line {
    char name[96];
    const char *kind;
    int n;
    double s, flops, bytes;
} line;

static void die(const char *text)
{
    fprintf(stderr, "%s\n", text);
    exit(1);
}

/* Milliseconds of n steps, from the first's building to the last's loss. */
static double steps(an_session *r, void *const *array, int n, float *loss)
{
    an_err err = {0};
    double begin = an_session_clock();
    for (int i = 0; i < n; i++) {
        const an_step s = an_step_build(r->cx, r->model, &r->cfg, r->step++, 0, array);
        an_status status = an_step_eval(&s);
        if (i == n - 1) *loss = (float)an_item(s.loss);
        if (status != AN_OK || an_session_fault(&err, r->cx) != AN_OK)
            die(an_error(r->cx) ? an_error(r->cx) : err.text);
        an_reset(r->cx);
    }
    return 1e3 * (an_session_clock() - begin);
}

static int by_time(const void *a, const void *b)
{
    const line *x = a, *y = b;
    return x->s < y->s ? 1 : x->s > y->s ? -1 : 0;
}
static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print_launches(an_session *r, const char *title)
{
    static line all[MOST];
    int n = 0;
    double total = 0;
    for (int i = 0; i < an_launch_count(r->cx); i++) {
        an_launch l;
        if (!an_launch_get(r->cx, i, &l)) continue;
        char name[96];
        snprintf(name, sizeof name, "%s %s", l.kind, l.kernel);
        char *layer = strstr(name, "h.");
        if (layer && !strncmp(l.kind, "row", 3)) layer = NULL;
        for (char *c = layer; c && *c; c++) /* the same name for all layers */
            if (*c >= '0' && *c <= '9') *c = '#';
        int at = 0;
        while (at < n && (strcmp(all[at].name, name) || (double)l.flops != all[at].flops / all[at].n)) at++;
        if (at == n && n < MOST) snprintf(all[n++].name, sizeof all->name, "%s", name);
        all[at].n++, all[at].s += l.device_s, all[at].flops += (double)l.flops, all[at].bytes += (double)l.bytes;
        total += l.device_s;
    }
    qsort(all, (size_t)n, sizeof *all, by_time);
    printf("%s: launches by kernel, %.3f ms in all\n", title, total * 1e3);
    for (int i = 0; i < n && i < 45; i++)
        printf("%4d x %9.1f us = %8.3f ms %5.1f %%  %7.1f TFLOP/s %7.0f GB/s  %s\n", all[i].n,
               all[i].s / all[i].n * 1e6, all[i].s * 1e3, 100 * all[i].s / total, all[i].flops / all[i].s * 1e-12,
               all[i].bytes / all[i].s * 1e-9, all[i].name);
}

int main(int argc, char **argv)
{
    an_err err = {0};
    an_train_config c;
    an_session *r;
    if (argc < 2) die("bench_launches PRESET [key=value ...]");
    if (an_train_config_open(&err, argv[1], &c) != AN_OK) die(err.text);
    c.task->assume(&c);
    c.gradient_accumulation_steps = 1;
    snprintf(c.device, sizeof c.device, "cuda");
    const an_config keys = an_train_keys(&c);
    for (int i = 2; i < argc; i++)
        if (an_config_argument(&err, &keys, &c, argv[i]) != AN_OK) die(err.text);
    if (an_session_open(&err, &c, NULL, AN_RUN_PARAMETERS_ONLY, &r) != AN_OK) die(err.text);
    an_array array[AN_MAX_ARRAYS];
    an_arrays batch;
    const int n = c.model->inputs(an_model_settings(&r->cfg), c.batch_size, array);
    if (an_arrays_open(&err, array, n, &batch) != AN_OK) die(err.text);
    an_arrays_random(array, n, 1, batch.data);
    float loss;
    double ms[STEPS], run_ms[STEPS], first = steps(r, batch.data, 1, &loss);
    for (int i = 0; i < WARM_UP; i++) steps(r, batch.data, 1, &loss);
    for (int i = 0; i < STEPS; i++) ms[i] = steps(r, batch.data, 1, &loss);
    for (int i = 0; i < STEPS / 2; i++) run_ms[i] = steps(r, batch.data, TOGETHER, &loss) / TOGETHER;
    qsort(ms, STEPS, sizeof *ms, ascending);
    qsort(run_ms, STEPS / 2, sizeof *run_ms, ascending);
    an_bill bill;
    an_report(r->cx, &bill);
    printf("%s: %.3f ms a step (fastest %.3f), %.3f (%.3f) with the loss read every tenth, first %.0f ms (%d compiled "
           "in %.0f ms, %d cached), loss %.6f, %.2f GB\n",
           argv[1], ms[STEPS / 2], ms[0], run_ms[STEPS / 4], run_ms[0], first, bill.compiled, bill.compile_ms,
           bill.cached, (double)loss, (double)bill.peak_bytes * 1e-9);
    an_profile(r->cx, true);
    for (int i = 0; i < 3; i++) steps(r, batch.data, 1, &loss);
    print_launches(r, argv[1]);
    an_arrays_close(&batch);
    an_session_close(r);
    return 0;
}
