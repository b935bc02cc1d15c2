/* selftest.c: checks every kernel of a model's plans against the oracle. See selftest.h. */
#include "tools/selftest.h"
#include "train/session.h"
#include "train/step.h"
#include <anneal_nn.h>
#include <stdlib.h>
#include <string.h>

/* Knuth's MMIX generator; its high bits are good enough here. */
static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53;
}

/* Adds noise to an f32 tensor: in a new model biases are zero and gains one, which would hide a kernel that omits them.
 * First moments get either sign; second moments stay positive. */
static an_status disturb(an_err *err, an_session *r, int i, uint64_t *state)
{
    an_persist p;
    AN_TRY(an_session_result(err, r->cx, an_persist_get(r->cx, i, &p)));
    if (p.dtype != AN_F32) return AN_OK;
    size_t n = 1;
    for (int k = 0; k < p.shape.rank; k++) n *= (size_t)p.shape.dim[k];
    float *x = malloc(n * sizeof *x); /* p.shape */
    if (!x) return an_fail_nomem(err, p.name, n * sizeof *x);
    const bool second = strncmp(p.name, "optimizer.v.", 12) == 0;
    an_status status = an_session_result(err, r->cx, an_persist_read(r->cx, i, x, n * sizeof *x));
    for (size_t k = 0; k < n; k++) {
        const double u = uniform(state);
        x[k] += (float)(p.kind == 0 ? 0.1 * (u - 0.5) : second ? 1e-6 * (u + 0.1) : 1e-3 * (u - 0.5));
    }
    if (status == AN_OK) status = an_session_result(err, r->cx, an_persist_write(r->cx, i, x, n * sizeof *x));
    free(x);
    return status;
}

/* How each of a model's plans is checked, and where results go. */
typedef struct checker {
    an_session *r;
    bool compile_only; /* plan, and compile its kernels one by one; else run and compare */
    int64_t *count;    /* not NULL: only plan, and add how many launches there are */
    an_kernel_check_fn found;
    void *user;
    an_check_result *out;
} checker;

static void add_result(an_check_result *sum, const an_check_result *x)
{
    sum->kernels += x->kernels;
    sum->faults += x->faults;
    sum->skipped += x->skipped;
    sum->elements += x->elements;
}

/* Checks the plan of the graph with roots `a` and `b` (or NULL). */
static an_status check(an_err *err, const checker *c, an_tensor *a, an_tensor *b)
{
    an_check_result one = {0};
    an_ctx *cx = c->r->cx;
    an_tensor *roots[] = {a, b};
    const int n = b ? 2 : 1;
    an_status status = c->compile_only || c->count ? an_plan_at(AN_AT, roots, n) : an_eval_at(AN_AT, roots, n);
    if (status == AN_OK && c->count)
        *c->count += an_planned_launch_count(cx);
    else if (status == AN_OK)
        status = c->compile_only ? an_compile_kernels(cx, c->found, c->user, &one)
                                 : an_check_kernels(cx, c->found, c->user, &one);
    status = an_session_result(err, cx, status);
    an_reset(cx);
    add_result(c->out, &one);
    return status;
}

/* The plans of sampling: a prefill, then the decoding of one token with its KV cache. */
static an_status check_sampling(an_err *err, const checker *c, int32_t *tokens)
{
    an_session *r = c->r;
    const an_decoder *d = r->cfg.model->decoder;
    const int64_t longest = d->context(an_model_settings(&r->cfg)), P = longest > 16 ? 16 : longest, seen = P - 1;
    if (longest < 2) return AN_OK;
    an_tensor *all = an_input(r->cx, AN_I32, AN_SHAPE(1, P), tokens); /* [1,P] */
    AN_TRY(check(err, c, d->prefill(r->model, all, an_scalar_i32(r->cx, (int32_t)(seen - 1))), NULL));
    if (!d->decode) return AN_OK;
    an_tensor *token = an_input(r->cx, AN_I32, AN_SHAPE(1, 1), &tokens[seen]); /* [1,1] */
    an_tensor *position = an_scalar_i32(r->cx, (int32_t)seen), *n_keys = an_scalar_i32(r->cx, (int32_t)P);
    return check(err, c, d->decode(r->model, token, position, n_keys), NULL);
}

static an_status check_all(an_err *err, const checker *c, void *const *array)
{
    an_session *r = c->r;
    const int64_t last = r->cfg.gradient_accumulation_steps - 1;
    const int64_t warm = r->cfg.warmup_iters; /* after the warm-up the learning rate is at its peak */
    uint64_t state = 1;
    an_step s = an_step_build(r->cx, r->model, &r->cfg, warm, 0, array); /* makes the moments */
    AN_TRY(an_session_fault(err, r->cx));
    an_reset(r->cx);
    if (last > 0) { /* the accumulation of gradients has its own kernels */
        s = an_step_build(r->cx, r->model, &r->cfg, warm, 0, array);
        AN_TRY(check(err, c, s.root[0], NULL));
    }
    s = an_step_build(r->cx, r->model, &r->cfg, warm, last, array);
    if (!c->compile_only && !c->count) {
        AN_TRY(an_session_result(err, r->cx, an_plan(s.loss, s.norm)));
        for (int i = 0; i < an_persist_count(r->cx); i++) AN_TRY(disturb(err, r, i, &state));
    }
    AN_TRY(check(err, c, s.loss, s.norm));
    an_tensor *loss = an_step_evaluation(r->cx, r->model, &r->cfg, 0, array);
    AN_TRY(check(err, c, loss, NULL));
    return r->cfg.model->decoder ? check_sampling(err, c, array[0]) : AN_OK;
}

an_status an_selftest_kernels(an_err *err, const an_train_config *c, bool compile_only, an_kernel_check_fn found,
                              void *user, int64_t *launches, an_check_result *out)
{
    an_session *r;
    an_array array[AN_MAX_ARRAYS];
    an_arrays batch;
    *out = (an_check_result){0};
    an_train_config known = *c;
    an_task_assume(&known);
    AN_TRY(an_session_open(err, &known, NULL, AN_RUN_PARAMETERS_ONLY, &r));
    const int n = known.model->inputs(an_model_settings(&known), known.batch_size, array);
    const checker k = {.r = r, .compile_only = compile_only, .found = found, .user = user, .out = out};
    an_check_result none = {0};
    const checker counting = {.r = r, .count = launches, .out = &none};
    if (launches) *launches = 0;
    an_status status = an_arrays_open(err, array, n, &batch);
    if (status == AN_OK) {
        an_arrays_random(array, n, 2, batch.data);
        if (launches) status = check_all(err, &counting, batch.data);
        if (status == AN_OK) status = check_all(err, &k, batch.data);
    }
    an_arrays_close(&batch);
    an_session_close(r);
    return status;
}
