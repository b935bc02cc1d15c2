/* test_goldens.c: graphs of PyTorch against PyTorch: results, gradients of inputs and parameters, and new values of
 * buffers, in float64, to 1e-9 of the largest element. The archives and numbers are tools/pt2_goldens.py's:
 * tests/import/goldens has a few; a whole set is compared with AN_IMPORT_GOLDENS=FOLDER. */
#include "lib/test.h"
#include "io/formats/safetensors.h"
#include <anneal_import.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1024 };
static const double TOLERANCE = 1e-9;

static double number_at(an_dtype dtype, const void *data, int64_t i)
{
    double d;
    float f;
    int32_t n;
    const char *p = data;
    switch (dtype) {
    case AN_F64: return memcpy(&d, p + 8 * i, 8), d;
    case AN_F32: return memcpy(&f, p + 4 * i, 4), (double)f;
    case AN_I32: return memcpy(&n, p + 4 * i, 4), (double)n;
    default: return (double)((const unsigned char *)data)[i];
    }
}

/* The largest difference, in parts of the largest element; infinity where NaN or infinity differ, or the shape. note[]: where it is. */
static double apart(const an_st_tensor *want, an_tensor *have, char note[80])
{
    note[0] = 0;
    const an_shape s = an_shape_of(have);
    double scale = 1, worst = 0;
    int64_t n = 1;
    bool same = s.rank == want->rank;
    for (int i = 0; i < s.rank; i++) {
        n *= s.dim[i];
        same = same && s.dim[i] == want->shape[i];
    }
    if (!same) return INFINITY;
    void *data = malloc((size_t)n * 8 + 8);
    assert_non_null(data);
    if (n > 0 && an_read_at(AN_AT, have, data, (size_t)n * an_dtype_size(an_dtype_of(have))) != AN_OK) worst = INFINITY;
    for (int64_t i = 0; i < n; i++) {
        const double x = number_at(want->dtype, want->data, i);
        if (isfinite(x)) scale = fmax(scale, fabs(x));
    }
    for (int64_t i = 0; i < n; i++) {
        const double x = number_at(want->dtype, want->data, i), y = number_at(an_dtype_of(have), data, i);
        const double d = isfinite(x) ? fabs(x - y) / scale : (isnan(x) && isnan(y)) || x == y ? 0 : INFINITY;
        const double found = isnan(d) ? INFINITY : d;
        if (found > worst) snprintf(note, 80, " (element %lld: %.9g, not %.9g)", (long long)i, y, x);
        worst = fmax(worst, found);
    }
    free(data);
    return worst;
}

typedef struct golden {
    const char *name;
    an_st *st;
    an_ctx *cx;
    an_import *file;
    an_import_model *m;
    an_tensor *in[MOST], *out[MOST];
    int n_in, n_out;
    double tolerance, worst; /* of all differences */
    char note[80];           /* where the last one is */
    char why[AN_IMPORT_WHY];
} golden;

static const an_st_tensor *find(const golden *g, const char *what, int i)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%d", what, i);
    return an_st_find(g->st, name);
}

static an_tensor *input(an_ctx *cx, const an_st_tensor *t)
{
    an_shape s = {.rank = t->rank};
    memcpy(s.dim, t->shape, sizeof t->shape);
    return an_input_at(AN_AT, cx, t->dtype, s, t->data);
}

/* The same where there may be no gradient: a loss that does not depend on something has gradient 0 of it in PyTorch. */
static double gradient_apart(const an_st_tensor *want, an_tensor *have, char note[80])
{
    int64_t n = (int64_t)(want->bytes / an_st_dtype_bytes(want->dtype));
    double worst = 0;
    note[0] = 0;
    if (have) return apart(want, have, note);
    while (n-- > 0) worst = fmax(worst, fabs(number_at(want->dtype, want->data, n)));
    return worst;
}

static bool fails(golden *g, const char *what, const char *of, double d)
{
    g->worst = fmax(g->worst, d);
    if (d <= g->tolerance) return false;
    printf("# %s: %s %s differs by %.3g%s\n", g->name, what, of, d, g->note);
    return true;
}

static int compare(golden *g, an_tensor *const *grad)
{
    int bad = 0;
    for (int k = 0; k < g->n_out; k++) {
        const an_st_tensor *want = find(g, "out", k);
        char number[16];
        snprintf(number, sizeof number, "%d", k);
        if (want && g->out[k]) bad += fails(g, "result", number, apart(want, g->out[k], g->note));
    }
    for (int k = 0; k < g->n_in; k++) {
        const an_st_tensor *want = find(g, "din", k);
        char number[16];
        snprintf(number, sizeof number, "%d", k);
        if (want) bad += fails(g, "gradient of input", number, gradient_apart(want, grad[k], g->note));
    }
    return bad;
}

/* Parameters' gradients and buffers' new values, by name. */
static int compare_named(golden *g, an_tensor *const *grad, const an_import_kind kind, const char *prefix)
{
    int bad = 0;
    an_import_entry e;
    for (int i = 0; an_import_get(g->file, kind, i, &e); i++) {
        char name[256];
        snprintf(name, sizeof name, "%s%s", prefix, e.name);
        const an_st_tensor *want = an_st_find(g->st, name);
        if (want && kind == AN_IMPORT_PARAMETER)
            bad += fails(g, "gradient of", e.name, gradient_apart(want, grad[i], g->note));
        else if (want)
            bad += fails(g, "buffer", e.name, grad[i] ? apart(want, grad[i], g->note) : INFINITY);
    }
    return bad;
}

static int run(golden *g)
{
    an_tensor *loss = NULL, *roots[4 * MOST], *din[MOST] = {NULL}, *dp[MOST] = {NULL}, *buffer[MOST] = {NULL};
    int n = 0;
    an_import_entry e;
    while (g->n_in < MOST && find(g, "in", g->n_in)) {
        g->in[g->n_in] = input(g->cx, find(g, "in", g->n_in));
        g->n_in++;
    }
    g->n_out = an_import_count(g->file, AN_IMPORT_OUTPUT);
    if (g->n_in != an_import_count(g->file, AN_IMPORT_INPUT) || g->n_out > MOST) return 1;
    if (an_import_build(g->m, AN_IMPORT_TRAIN, g->in, g->out, g->why) != AN_OK) return printf("# %s\n", g->why), 1;
    for (int k = 0; k < g->n_out; k++) {
        const an_st_tensor *ct = find(g, "ct", k);
        if (g->out[k]) roots[n++] = g->out[k];
        if (!ct || !g->out[k]) continue;
        an_tensor *part = an_sum_at(AN_AT, an_mul_at(AN_AT, g->out[k], input(g->cx, ct)), AN_ALL, false);
        loss = loss ? an_add_at(AN_AT, loss, part) : part;
    }
    if (loss) an_backward_at(AN_AT, loss);
    for (int k = 0; k < g->n_in && loss; k++)
        if ((din[k] = an_grad(g->in[k])) != NULL) roots[n++] = din[k];
    for (int i = 0; i < MOST && an_import_get(g->file, AN_IMPORT_PARAMETER, i, &e); i++) {
        an_shape s = e.shape;
        an_tensor *p = an_param_at(AN_AT, g->cx, e.tied_to ? e.tied_to : e.name, e.dtype, s, AN_ZEROS);
        if (loss && (dp[i] = an_grad(p)) != NULL) roots[n++] = dp[i];
    }
    for (int i = 0; i < MOST && an_import_get(g->file, AN_IMPORT_BUFFER, i, &e); i++)
        roots[n++] = buffer[i] = an_state_at(AN_AT, g->cx, e.tied_to ? e.tied_to : e.name, e.dtype, e.shape, AN_ZEROS);
    if (an_error(g->cx) || n == 0 || an_eval_at(AN_AT, roots, n) != AN_OK)
        return printf("# %s: %s\n", g->name, an_error(g->cx) ? an_error(g->cx) : "nothing to evaluate"), 1;
    return compare(g, din) + compare_named(g, dp, AN_IMPORT_PARAMETER, "dp.") +
           compare_named(g, buffer, AN_IMPORT_BUFFER, "buffer.");
}

/* PyTorch's own gradient of hardsigmoid multiplies by 1/6 in float32. */
static double tolerance_of(const an_import *file)
{
    char *operations = an_import_operations(file);
    assert_non_null(operations);
    const bool rounded = strstr(operations, "aten.hardsigmoid") != NULL;
    free(operations);
    return rounded ? 1e-7 : TOLERANCE;
}

/* How many tensors differ. */
static int check(const char *folder, const char *name)
{
    char path[1024];
    golden g = {.name = name};
    int bad = 1;
    snprintf(path, sizeof path, "%s/%s.safetensors", folder, name);
    an_err err = {0};
    if (an_st_open(&err, path, &g.st) != AN_OK) return printf("# %s\n", err.text), 1;
    snprintf(path, sizeof path, "%s/%s.pt2", folder, name);
    g.cx = an_open(&(an_options){.device = "cpu", .cc = "none", .threads = 1});
    g.file = an_import_open(path, g.why);
    g.m = g.file ? an_import_bind(g.file, g.cx, g.why) : NULL;
    g.tolerance = g.file ? tolerance_of(g.file) : TOLERANCE;
    if (g.m)
        bad = run(&g);
    else
        printf("# %s: %s\n", name, g.why);
    if (g.m) printf("# %s: %d differ, the worst by %.2g\n", name, bad, g.worst);
    an_import_release(g.m);
    an_import_close(g.file);
    an_close(g.cx);
    an_st_close(g.st);
    return bad;
}

static void results_gradients_and_buffers_are_those_of_pytorch(void **unused)
{
    (void)unused;
    const char *folder = getenv("AN_IMPORT_GOLDENS");
    if (!folder) folder = "tests/import/goldens";
    int bad = 0, all = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char name[256];
        const size_t n = strlen(e->d_name);
        if (n < 5 || n > sizeof name || strcmp(e->d_name + n - 4, ".pt2") != 0) continue;
        snprintf(name, sizeof name, "%.*s", (int)(n - 4), e->d_name);
        bad += check(folder, name) != 0;
        all++;
    }
    closedir(d);
    printf("# %d of %d archives agree\n", all - bad, all);
    assert_true(all > 0);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(results_gradients_and_buffers_are_those_of_pytorch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
