/* bench_op.h: the time of one operation on a device: a square matmul, a copy through memory, a convolution,
 * attention.
 *
 * Owns:      what is run and how: operands live on the device; every iteration is a plan that was made and run before
 *            (warmed) and ends when the device has done it (waited for).
 * Does not:  print, or choose sizes.
 */
#ifndef AN_TOOLS_BENCH_OP_H
#define AN_TOOLS_BENCH_OP_H

#include "train/config.h"

typedef enum an_bench_kind { AN_BENCH_MATMUL, AN_BENCH_COPY, AN_BENCH_CONV, AN_BENCH_ATTENTION } an_bench_kind;

typedef struct an_bench_op {
    an_bench_kind kind;
    an_dtype dtype; /* of operands and products: AN_F32 or AN_BF16 */
    /* matmul: [n,n] x [n,n]; copy: n MiB; conv: x [8,56,56,n], w [n,3,3,n], stride 1, padded: ResNet's second stage at
     * n = 64; attention: [4,6,n,64], causal, forward alone */
    int64_t n, iters;
    bool device_time; /* of the launches alone, where the device says it: the host's part left out */
} an_bench_op;

typedef struct an_bench_op_result {
    double ms, min_ms;     /* median and fastest iteration */
    double first_s;        /* the first one, planning and compiling included */
    double gflops, gbytes; /* a second, of the median; bytes: read once and written once */
    uint64_t driver_bytes,
        device_bytes; /* of the device: what driver and libraries hold now (see an_estimate_driver), and
                                            what was free for programs before; 0: unknown */
} an_bench_op_result;

/* Runs it on `cfg`'s device, threads, isa and compiler. */
an_status an_bench_run_op(an_err *err, const an_train_config *cfg, const an_bench_op *op, an_bench_op_result *out);

/* What this machine can do now, for shares of it: GFLOP/s of products in `dtype` (the device's own figure, or of a
 * large product where it has none) and GB/s of a copy too large for caches. Some hundred milliseconds. */
typedef struct an_roof {
    double gflops, gbytes;
} an_roof;
an_status an_bench_roof(an_err *err, const an_train_config *cfg, an_roof *out);

/* Sorts `v` and gives its median. */
double an_median(double *v, int64_t n);

#endif
