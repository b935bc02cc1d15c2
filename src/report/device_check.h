/* device_check.h: evidence for the logbook that the device of a run computes correctly: one matmul, compared with the
 * oracle's bits.
 *
 * Does not:  check every kernel (anneal selftest does), or write the logbook (report/metrics.h). */
#ifndef AN_REPORT_DEVICE_CHECK_H
#define AN_REPORT_DEVICE_CHECK_H

#include <anneal.h>
#include "io/checkpoint.h"

typedef struct an_device_proof {
    bool built, available;
    char sentence[128]; /* "[48,64]x[64,32] float32 equals ref to the bit" */
} an_device_proof;

/* One matmul in `dtype` on a device opened with these options, compared with the oracle's. The elements are small
 * multiples of 1/8, so that every sum is exact in float32 and the two must be equal to the last bit. AN_E_DEVICE: they
 * are not. */
an_status an_prove_device(an_err *err, const an_options *device, an_dtype dtype, an_device_proof *out);

#endif
