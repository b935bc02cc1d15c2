/* exchange_curve.h: how long the ranks of a job take to add arrays of growing size: the all-reduce curve of `anneal
 * doctor ranks=`.
 *
 * Owns:      sizes, repetitions, the check of every sum.
 * Does not:  start ranks (cli/ranks.c), or exchange (comm/comm.h; between GPUs NCCL, in a plan as training has it).
 */
#ifndef AN_TOOLS_EXCHANGE_CURVE_H
#define AN_TOOLS_EXCHANGE_CURVE_H

#include "comm/comm.h"

enum { AN_EXCHANGE_POINTS = 6 };

typedef struct an_exchange_point {
    int64_t bytes;
    double ms;     /* the median of its repetitions, of the slowest rank */
    double gbytes; /* a second over each rank's link: 2 (n - 1) / n of the bytes in that time */
} an_exchange_point;

typedef struct an_exchange_curve {
    int ranks;
    char carrier[80];
    an_exchange_point point[AN_EXCHANGE_POINTS];
} an_exchange_curve;

/* Every rank calls it, with two ranks or more, and gets the same. AN_E_INTERNAL: a sum is wrong. */
an_status an_exchange_measure(an_err *err, an_comm *c, an_exchange_curve *out);
/* The same of the devices that the ranks have: launching is part of the time. */
an_status an_exchange_measure_device(an_err *err, an_comm *c, const char *device, an_exchange_curve *out);

#endif
