/* bench_op.c: builds and times one operation. See bench_op.h. */
#include "tools/bench_op.h"
#include "tools/estimate.h"
#include <anneal_tools.h>
#include <stdio.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double an_median(double *v, int64_t n)
{
    qsort(v, (size_t)n, sizeof *v, ascending);
    return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

enum { CONV_N = 8, CONV_SIDE = 56, ATTN_B = 4, ATTN_H = 6, ATTN_D = 64 };

/* An operand is a state, so that an iteration copies nothing to the device. Its values are random, because some
 * processors are faster with zeros. */
static an_tensor *operand(an_ctx *cx, const char *name, const an_bench_op *op, an_dtype dtype, an_shape shape)
{
    char named[32]; /* several sizes may be tried in one context */
    snprintf(named, sizeof named, "%s.%lld", name, (long long)op->n);
    return an_state(cx, named, dtype, shape, AN_UNIFORM(-1, 1));
}

/* Builds one iteration. NULL for a copy, which is an assignment and has no result. */
static an_tensor *build(an_ctx *cx, const an_bench_op *op)
{
    const int64_t n = op->n;
    if (op->kind == AN_BENCH_MATMUL) {
        an_tensor *b = operand(cx, "b", op, op->dtype, AN_SHAPE(n, n)); /* [n,n] */
        return an_matmul(operand(cx, "a", op, op->dtype, AN_SHAPE(n, n)), b);
    }
    if (op->kind == AN_BENCH_CONV) {
        an_tensor *x = operand(cx, "x", op, op->dtype, AN_SHAPE(CONV_N, CONV_SIDE, CONV_SIDE, n)); /* [N,H,W,C] */
        an_tensor *w = operand(cx, "w", op, op->dtype, AN_SHAPE(n, 3, 3, n));                      /* [O,KH,KW,C] */
        return an_conv2d(x, w, NULL, (an_window){.pad_h = 1, .pad_w = 1});
    }
    if (op->kind == AN_BENCH_ATTENTION) {
        const an_shape head = AN_SHAPE(ATTN_B, ATTN_H, n, ATTN_D); /* [B,H,T,D] */
        an_tensor *q = operand(cx, "q", op, op->dtype, head), *k = operand(cx, "k", op, op->dtype, head);
        return an_attention(q, k, operand(cx, "v", op, op->dtype, head), 0.125, true, 0);
    }
    const an_shape shape = AN_SHAPE(n << 18); /* n MiB of f32 */
    if (op->kind == AN_BENCH_READ) return an_sum(operand(cx, "from", op, AN_F32, shape), AN_ALL);
    an_tensor *from = operand(cx, "from", op, AN_F32, shape);
    an_assign(operand(cx, "to", op, AN_F32, shape), from);
    return NULL;
}

/* The operation's FLOP, and its bytes: operands read once and results written once. */
static void amounts(const an_bench_op *op, double *flops, double *bytes)
{
    const double n = (double)op->n, pixels = (double)CONV_N * CONV_SIDE * CONV_SIDE;
    const double size = (double)an_dtype_size(op->dtype), heads = (double)ATTN_B * ATTN_H * ATTN_D;
    switch (op->kind) {
    case AN_BENCH_MATMUL: *flops = 2 * n * n * n, *bytes = 3 * size * n * n; break;
    case AN_BENCH_CONV: *flops = 18 * pixels * n * n, *bytes = size * (2 * pixels * n + 9 * n * n); break;
    case AN_BENCH_ATTENTION:
        *flops = 2 * heads * n * (n + 1), *bytes = 4 * size * heads * n;
        break; /* causal: half of the scores */
    case AN_BENCH_READ: *flops = 0, *bytes = n * 1048576; break;
    case AN_BENCH_COPY: *flops = 0, *bytes = 2 * n * 1048576; break;
    }
}

an_status an_bench_iterate(an_err *err, an_ctx *cx, const an_bench_op *op, double *ms)
{
    const double begin = an_session_clock();
    an_tensor *result = build(cx, op);
    an_status status = result ? an_eval(result) : an_eval_effects(cx);
    if (status == AN_OK) status = an_synchronize(cx);
    status = an_session_result(err, cx, status);
    an_reset(cx);
    *ms = 1e3 * (an_session_clock() - begin);
    if (!op->device_time) return status;
    double sum = 0;
    an_launch l;
    for (int i = 0; i < an_launch_count(cx); i++) sum += an_launch_get(cx, i, &l) ? l.device_s : 0;
    if (sum > 0) *ms = 1e3 * sum;
    return status;
}

int64_t an_bench_larger(const an_bench_op *op, int64_t n, double ms)
{
    const double growth = op->kind == AN_BENCH_MATMUL ? 8 : op->kind <= AN_BENCH_READ ? 2 : 4; /* of the time, at 2 n */
    for (ms *= growth; ms <= op->most_ms && n < op->n; ms *= growth) n *= 2;
    return AN_MIN(n, op->n);
}

/* Finds the size that op->most_ms admits: the first one is tiny, and each is expected to be fast enough by the one
 * before, so that a device of any speed is done in moments. *ms: an iteration of that size. */
static an_status find_size(an_err *err, an_ctx *cx, an_bench_op *op, double *ms)
{
    an_bench_op tried = *op;
    int64_t next = AN_MIN(op->n, op->kind == AN_BENCH_MATMUL ? 64 : 1);
    do {
        tried.n = next;
        AN_TRY(an_bench_iterate(err, cx, &tried, ms)); /* plans and compiles */
        AN_TRY(an_bench_iterate(err, cx, &tried, ms));
        next = an_bench_larger(op, tried.n, *ms);
    } while (next > tried.n);
    op->n = tried.n;
    return AN_OK;
}

static an_status measure(an_err *err, an_ctx *cx, const an_bench_op *wanted, double *ms, an_bench_op_result *out)
{
    an_bench_op fitted = *wanted, *const op = &fitted;
    double flops = 0, bytes = 0, unused, found_ms = 0;
    if (op->most_ms > 0) AN_TRY(find_size(err, cx, op, &found_ms));
    if (found_ms > op->most_ms) op->iters = 1; /* slow at the smallest size, and warm */
    AN_TRY(an_bench_iterate(err, cx, op, &out->first_s));
    out->first_s *= 1e-3;
    an_profile(cx, op->device_time);
    for (int64_t i = 0; i < 2 + op->iters / 10 && found_ms <= op->most_ms; i++)
        AN_TRY(an_bench_iterate(err, cx, op, &unused));
    for (int64_t i = 0; i < op->iters; i++) AN_TRY(an_bench_iterate(err, cx, op, &ms[i]));
    out->ms = an_median(ms, op->iters);
    out->min_ms = ms[0];
    out->n = op->n;
    amounts(op, &flops, &bytes);
    out->gflops = flops / out->ms / 1e6;
    out->gbytes = bytes / out->ms / 1e6;
    an_memory m;
    out->driver_bytes = an_estimate_driver(cx);
    if (an_memory_read(cx, &m) == AN_OK) out->device_bytes = m.recommended_bytes;
    return AN_OK;
}

an_ctx *an_bench_open(const an_train_config *c)
{
    an_ctx *cx = an_open(&(an_options){.device = c->device,
                                       .seed = 1,
                                       .threads = (int)c->threads,
                                       .isa = c->isa[0] ? c->isa : NULL,
                                       .cc = c->cc[0] ? c->cc : NULL,
                                       .cache_dir = c->cache_dir[0] ? c->cache_dir : NULL,
                                       .exact = c->exact,
                                       .tf32 = c->tf32});
    return cx;
}

an_status an_bench_run_op(an_err *err, const an_train_config *cfg, const an_bench_op *op, an_bench_op_result *out)
{
    *out = (an_bench_op_result){0};
    double *ms = malloc((size_t)op->iters * sizeof *ms);
    if (!ms) return an_fail_nomem(err, "a benchmark", (size_t)op->iters * sizeof *ms);
    an_ctx *cx = an_bench_open(cfg);
    an_status status = an_session_fault(err, cx);
    if (status == AN_OK) status = measure(err, cx, op, ms, out);
    an_close(cx);
    free(ms);
    return status;
}

an_status an_bench_roof(an_err *err, const an_train_config *cfg, an_roof *out)
{
    an_bench_op_result r;
    an_ctx *cx = an_bench_open(cfg);
    an_status status = an_session_fault(err, cx);
    *out = (an_roof){.gflops = status == AN_OK ? an_fma_peak(cx, cfg->dtype) : 0};
    an_close(cx);
    AN_TRY(status);
    if (out->gflops <= 0) {
        const an_bench_op gemm = {
            AN_BENCH_MATMUL, cfg->dtype, 4096, 8, .device_time = true, .most_ms = AN_BENCH_MOST_MS};
        AN_TRY(an_bench_run_op(err, cfg, &gemm, &r));
        out->gflops = r.gflops * r.ms / r.min_ms;
    }
    const an_bench_op copy = {AN_BENCH_COPY, AN_F32, 128, 8, .device_time = true, .most_ms = AN_BENCH_MOST_MS};
    AN_TRY(an_bench_run_op(err, cfg, &copy, &r));
    out->gbytes = r.gbytes * r.ms / r.min_ms;
    return AN_OK;
}
