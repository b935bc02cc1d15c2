/* compare.c: arrays against what they should be; a failure names the worst element. */
#include "lib/test.h"

#include <math.h>

typedef struct worst {
    size_t at, count; /* place of the largest excess; elements beyond the tolerance */
    double excess;
} worst;

static void judge(worst *w, size_t i, double got, double want, double rel_tol, double abs_tol)
{
    double excess = fabs(got - want) - (abs_tol + rel_tol * fabs(want));
    if (got == want || excess <= 0) return; /* the first for equal infinities */
    if (isnan(excess)) excess = INFINITY;
    if (w->count++ == 0 || excess > w->excess) w->at = i, w->excess = excess;
}

void test_close(const char *what, const float *got, const double *want, size_t n, double rel_tol, double abs_tol)
{
    worst w = {0};
    for (size_t i = 0; i < n; i++) judge(&w, i, (double)got[i], want[i], rel_tol, abs_tol);
    if (w.count)
        fail_msg("%s: %zu of %zu differ, most at %zu: %.9g, should be %.17g", what, w.count, n, w.at, (double)got[w.at],
                 want[w.at]);
}

void test_close_f64(const char *what, const double *got, const double *want, size_t n, double rel_tol, double abs_tol)
{
    worst w = {0};
    for (size_t i = 0; i < n; i++) judge(&w, i, got[i], want[i], rel_tol, abs_tol);
    if (w.count)
        fail_msg("%s: %zu of %zu differ, most at %zu: %.17g, should be %.17g", what, w.count, n, w.at, got[w.at],
                 want[w.at]);
}
