/* bench_op.h: times one operation on a device: a square matmul, a copy in memory, reading it, a convolution, attention.
 *
 * Owns:      how it is run: operands stay on the device; every iteration reuses a warm plan and ends when the device
 *            is idle.
 * Does not:  print. It chooses a size only below the one that it is given, where it may not take long.
 */
#ifndef AN_TOOLS_BENCH_OP_H
#define AN_TOOLS_BENCH_OP_H

#include "train/config.h"

typedef enum an_bench_kind {
    AN_BENCH_MATMUL,
    AN_BENCH_COPY,
    AN_BENCH_READ,
    AN_BENCH_CONV,
    AN_BENCH_ATTENTION
} an_bench_kind;

typedef struct an_bench_op {
    an_bench_kind kind;
    an_dtype dtype; /* of operands and results: AN_F32 or AN_BF16 */
    /* matmul: [n,n] x [n,n]; copy, read (a sum): n MiB; conv: x [8,56,56,n], w [n,3,3,n], stride 1, padded: ResNet's
     * second stage at n = 64; attention: [4,6,n,64], causal, forward only */
    int64_t n, iters;
    bool device_time; /* time the launches only, without the host, where the device measures them */
    double most_ms;   /* above 0: the size is found, from a tiny one up to n, so that an iteration takes at most this
                       * long; on a device where the tiny one takes longer, that is it */
} an_bench_op;

/* For most_ms: an iteration that fills any device, and a measurement of moments on one that simulates another. */
#define AN_BENCH_MOST_MS 100

typedef struct an_bench_op_result {
    double ms, min_ms;     /* median and fastest iteration */
    double first_s;        /* the first one, planning and compiling included */
    double gflops, gbytes; /* per second, of the median; bytes: operands read once, results written once */
    int64_t n;             /* the size that was timed */
    uint64_t driver_bytes; /* device memory held by driver and libraries now (see an_estimate_driver); 0: unknown */
    uint64_t device_bytes; /* device memory that was free for programs before; 0: unknown */
} an_bench_op_result;

/* A context with `cfg`'s device, threads, isa and compiler, for an_bench_iterate. */
an_ctx *an_bench_open(const an_train_config *cfg);

/* One iteration of the operation; the first one in a context plans and compiles. */
an_status an_bench_iterate(an_err *err, an_ctx *cx, const an_bench_op *op, double *ms);

/* Runs the operation with `cfg`'s device, threads, isa and compiler. */
an_status an_bench_run_op(an_err *err, const an_train_config *cfg, const an_bench_op *op, an_bench_op_result *out);

/* The size to try after one of `n` took `ms`: doubled as often as op->most_ms is expected to admit, up to op->n. */
int64_t an_bench_larger(const an_bench_op *op, int64_t n, double ms);

/* Measures the machine's roofline: GFLOP/s of GEMM in `dtype` (an_fma_peak, else a GEMM as large as the device computes in
 * AN_BENCH_MOST_MS) and GB/s of a copy too large for caches, where the device copies that much in the time. */
typedef struct an_roof {
    double gflops, gbytes;
} an_roof;
an_status an_bench_roof(an_err *err, const an_train_config *cfg, an_roof *out);

/* Sorts `v` and returns its median. */
double an_median(double *v, int64_t n);

#endif
