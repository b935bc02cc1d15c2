/* selftest.h: tests whether a device computes correctly: its driver, each kernel of a model at its shapes against the
 * oracle, some speeds, and training compared with the CPU's.
 *
 * Owns:      the kernels' inputs: weights and moments with noise so that none is zero, random tokens; the tolerance
 *            for differences between two devices.
 * Does not:  print, or know kernels.
 *
 * Invariant: a finding is reported before the next part begins, and a part that fails does not prevent the others from
 * running: if the program crashes, everything found before that has been reported.
 */
#ifndef AN_TOOLS_SELFTEST_H
#define AN_TOOLS_SELFTEST_H

#include "train/config.h"
#include <anneal_tools.h>

/* Every kernel of a training step, of evaluation and of sampling: run and compared, or only compiled. `found` is
 * called with each. Faulty kernels are in *out; the status is about the test itself. Before the first `found`,
 * *launches (or NULL) is how many launches all of their plans have: the sum of those that it will hear of. */
an_status an_selftest_kernels(an_err *err, const an_train_config *c, bool compile_only, an_kernel_check_fn found,
                              void *user, int64_t *launches, an_check_result *out);

typedef struct an_selftest_options {
    int64_t steps; /* of training, compared with the CPU's; 0: none */
    int64_t size;  /* side of the timed GEMMs, from which the other sizes follow; 0: none */
} an_selftest_options;

typedef struct an_selftest_listener {
    void (*part)(void *user, const char *title); /* begins */
    an_self_check_fn *line;                      /* a named result or fault */
    an_kernel_check_fn kernel;
    void (*progress)(void *user, const char *unit, int64_t done, int64_t all); /* of this part; NULL: no callback */
    void *user;
} an_selftest_listener;

typedef struct an_selftest_result {
    an_check_result kernels; /* run and compared */
    int faults;              /* of all parts */
    an_err failed;           /* of the first part that could not run; code AN_OK: none */
} an_selftest_result;

/* On a GPU: the driver, then kernels in c->dtype and in the other of float32 and bfloat16. On the CPU: kernels in
 * c->dtype. Then, where o->size and o->steps are set, speeds and training. */
void an_selftest(const an_train_config *c, const an_selftest_options *o, const an_selftest_listener *listener,
                 an_selftest_result *out);

#endif
