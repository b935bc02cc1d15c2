/* bench.h: the time of a training step on fixed random inputs: forward, backward, clip 1.0, AdamW (lr 1e-3, betas 0.9
 * and 0.95, decay 0.1), as other programs' benchmarks of the same models do it. */
#ifndef AN_TOOLS_BENCH_H
#define AN_TOOLS_BENCH_H

#include "train/session.h"
#include <anneal_tools.h>

typedef struct an_bench_result {
    double ms, min_ms; /* median and fastest step, each with its loss read */
    double
        tenth_ms; /* a step where every tenth loss is read, as training logs them: the host runs ahead; 0: fewer steps than ten, or no GPU */
    double cpu_ms;          /* processor time of the process in the median step, all threads */
    double first_s;         /* the first step, planning and compiling included */
    double gflops;          /* of the median step, by the model's count */
    double fma_peak_gflops; /* the machine's, the higher of two measurements before and after; 0: unknown */
    double peak_rss_mib;
    an_bill bill;
    an_cpu_launches on_cpu;
} an_bench_result;

/* Times `steps` steps of `c`'s model, batch and dtype on its device, after the first step and `warm_up` more. `tell`
 * (or NULL) is called after each of them with how many are done, outside the times. */
typedef void an_bench_tell(void *arg, int64_t done, int64_t all);
an_status an_bench(an_err *err, const an_train_config *c, int64_t warm_up, int64_t steps, an_bench_tell *tell,
                   void *arg, an_bench_result *out);

#endif
