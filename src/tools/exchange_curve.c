/* exchange_curve.c: see exchange_curve.h. */
#include "tools/exchange_curve.h"
#include "platform/platform.h"
#include "tools/bench_op.h"
#include "train/session.h"
#include <anneal_tools.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_TIMES = 15, WARM = 2 };
static const double most_s = 0.5; /* after so many seconds a size is measured no more */

/* One sum of n floats, of rank + 1 each, and its time on the slowest rank. */
static an_status sum_once(an_err *err, an_comm *c, float *x, int64_t n, double *out)
{
    const int ranks = an_comm_ranks(c);
    const float whole = (float)(ranks * (ranks + 1) / 2);
    double all[AN_COMM_RANKS];
    for (int64_t i = 0; i < n; i++) x[i] = (float)(an_comm_rank(c) + 1);
    AN_TRY(an_comm_barrier(err, c));
    const double began = an_seconds();
    AN_TRY(an_comm_sum(err, c, AN_F32, n, x, x));
    const double mine = an_seconds() - began;
    for (int64_t i = 0; i < n; i++)
        if (x[i] != whole)
            return an_fail(err, AN_E_INTERNAL, "the sum of %d ranks over %s is wrong at element %lld of %lld", ranks,
                           an_comm_carrier(c), (long long)i, (long long)n);
    AN_TRY(an_comm_gather(err, c, sizeof mine, &mine, all));
    *out = 0;
    for (int r = 0; r < ranks; r++) *out = AN_MAX(*out, all[r]);
    return AN_OK;
}

static void set_point(an_exchange_point *p, int ranks, double *times, int n)
{
    const double s = an_median(times, n);
    p->ms = s * 1e3;
    p->gbytes = 2.0 * (ranks - 1) / ranks * (double)p->bytes / AN_MAX(s, 1e-9) * 1e-9;
}

static an_status measure(an_err *err, an_comm *c, float *x, an_exchange_point *p)
{
    double times[MOST_TIMES], once, spent = 0;
    const int ranks = an_comm_ranks(c);
    int n = 0;
    for (int i = 0; i < WARM; i++) AN_TRY(sum_once(err, c, x, p->bytes / 4, &once));
    do { /* every rank has the same times, so all stop after the same sum */
        AN_TRY(sum_once(err, c, x, p->bytes / 4, &times[n]));
        spent += times[n++];
    } while (n < MOST_TIMES && spent < most_s);
    set_point(p, ranks, times, n);
    return AN_OK;
}

static const int64_t sizes[AN_EXCHANGE_POINTS] = {1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 23, 1 << 26};

an_status an_exchange_measure(an_err *err, an_comm *c, an_exchange_curve *out)
{
    *out = (an_exchange_curve){.ranks = an_comm_ranks(c)};
    snprintf(out->carrier, sizeof out->carrier, "%s", an_comm_carrier(c));
    float *x = malloc((size_t)sizes[AN_EXCHANGE_POINTS - 1]);
    if (!x) return an_fail_nomem(err, "an array to exchange", (size_t)sizes[AN_EXCHANGE_POINTS - 1]);
    an_status status = AN_OK;
    for (int i = 0; i < AN_EXCHANGE_POINTS && status == AN_OK; i++) {
        out->point[i].bytes = sizes[i];
        status = measure(err, c, x, &out->point[i]);
    }
    free(x);
    return status;
}

/* ---- sums between devices */

/* The time of a sum with several in flight, as updates have them, on the slowest rank: all ranks get the same number. */
static an_status sum_on_device(an_err *err, an_comm *c, an_ctx *cx, int64_t n, double *out)
{
    enum { TIMES = 8 };
    double mine, all[AN_COMM_RANKS];
    AN_TRY(an_comm_barrier(err, c));
    const double began = an_seconds();
    for (int i = 0; i < TIMES; i++) {
        an_tensor *x = an_state(cx, "x", AN_F32, AN_SHAPE(n), AN_FILL(1 + an_comm_rank(c)));
        AN_TRY(an_session_result(err, cx, an_eval(an_all_reduce(x))));
        an_reset(cx);
    }
    AN_TRY(an_session_result(err, cx, an_synchronize(cx)));
    mine = (an_seconds() - began) / TIMES;
    AN_TRY(an_comm_gather(err, c, sizeof mine, &mine, all));
    *out = 0;
    for (int r = 0; r < an_comm_ranks(c); r++) *out = AN_MAX(*out, all[r]);
    return AN_OK;
}

/* Every element of the sum is ranks (ranks + 1) / 2: so are the least and the greatest. */
static an_status check_on_device(an_err *err, an_comm *c, an_ctx *cx, int64_t n)
{
    const int ranks = an_comm_ranks(c);
    const float whole = (float)(ranks * (ranks + 1) / 2);
    float found[2];
    an_tensor *x = an_state(cx, "x", AN_F32, AN_SHAPE(n), AN_FILL(1 + an_comm_rank(c))), *sum = an_all_reduce(x);
    an_tensor *ends[2] = {an_max_at(AN_AT, sum, AN_ALL, false),
                          an_neg_at(AN_AT, an_max_at(AN_AT, an_neg_at(AN_AT, sum), AN_ALL, false))};
    AN_TRY(an_session_result(err, cx, an_eval(ends[0], ends[1])));
    for (int i = 0; i < 2; i++) AN_TRY(an_session_result(err, cx, an_read(ends[i], &found[i], sizeof found[i])));
    an_reset(cx);
    if (found[0] == whole && found[1] == whole) return AN_OK;
    return an_fail(err, AN_E_INTERNAL, "the sum of %lld elements of %d ranks is from %g to %g, not %g", (long long)n,
                   ranks, (double)found[1], (double)found[0], (double)whole);
}

static an_status measure_on_device(an_err *err, an_comm *c, const char *device, an_exchange_point *p)
{
    double times[MOST_TIMES], once, spent = 0;
    int n = 0;
    an_ctx *cx = an_open(&(an_options){.device = device, .seed = 1});
    an_status status = an_session_fault(err, cx);
    if (status == AN_OK) status = an_session_result(err, cx, an_join(cx, c));
    if (status == AN_OK) status = check_on_device(err, c, cx, p->bytes / 4);
    if (status == AN_OK) status = sum_on_device(err, c, cx, p->bytes / 4, &once);
    while (status == AN_OK && n < MOST_TIMES && spent < most_s) {
        status = sum_on_device(err, c, cx, p->bytes / 4, &times[n]);
        if (status == AN_OK) spent += 8 * times[n++];
    }
    an_close(cx);
    if (status == AN_OK) set_point(p, an_comm_ranks(c), times, n);
    return status;
}

an_status an_exchange_measure_device(an_err *err, an_comm *c, const char *device, an_exchange_curve *out)
{
    an_device_facts facts;
    *out = (an_exchange_curve){.ranks = an_comm_ranks(c)};
    const bool gpu = an_device_find(device, &facts) && facts.gpu;
    snprintf(out->carrier, sizeof out->carrier, gpu ? "NCCL (%s)" : "%s", gpu ? device : an_comm_carrier(c));
    for (int i = 0; i < AN_EXCHANGE_POINTS; i++) {
        out->point[i].bytes = sizes[i];
        AN_TRY(measure_on_device(err, c, device, &out->point[i]));
    }
    return AN_OK;
}
