/* exchange_curve.c: see exchange_curve.h. */
#include "tools/exchange_curve.h"

#include "platform/platform.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_TIMES = 15, WARM = 2 };
static const double most_s = 0.5; /* a size */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

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

static an_status measure(an_err *err, an_comm *c, float *x, an_exchange_point *p)
{
    double times[MOST_TIMES], once, spent = 0;
    const int ranks = an_comm_ranks(c);
    int n = 0;
    for (int i = 0; i < WARM; i++) AN_TRY(sum_once(err, c, x, p->bytes / 4, &once));
    do { /* all ranks have the same times, so all stop alike */
        AN_TRY(sum_once(err, c, x, p->bytes / 4, &times[n]));
        spent += times[n++];
    } while (n < MOST_TIMES && spent < most_s);
    qsort(times, (size_t)n, sizeof *times, by_value);
    p->ms = times[n / 2] * 1e3;
    p->gbytes = 2.0 * (ranks - 1) / ranks * (double)p->bytes / AN_MAX(times[n / 2], 1e-9) * 1e-9;
    return AN_OK;
}

an_status an_exchange_measure(an_err *err, an_comm *c, an_exchange_curve *out)
{
    static const int64_t sizes[AN_EXCHANGE_POINTS] = {1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 23, 1 << 26};
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
