/* selftest.h: does a device compute what it should? Its driver, each kernel of a model at its shapes against the
 * oracle, some speeds, and training beside the CPU.
 *
 * Owns:      the numbers the kernels meet: weights and moments disturbed so that none is zero, random tokens; what of
 * a difference between two devices is rounding.
 * Does not:  print, or know kernels.
 *
 * Invariant: a finding is told before the next part begins, and a part that fails does not keep the others from being
 * tried: what was told so far is a report, whatever becomes of the program.
 */
#ifndef AN_TOOLS_SELFTEST_H
#define AN_TOOLS_SELFTEST_H

#include "train/config.h"
#include <anneal_tools.h>

/* Every kernel of a training step, of evaluation and of sampling: run and compared, or only compiled. `tell` hears of
 * each. AN_OK whatever the kernels are worth: see *out. */
an_status an_selftest_kernels(an_err *err, const an_train_config *c, bool compile_only, an_kernel_check_fn tell,
                              void *user, an_check_result *out);

typedef struct an_selftest_options {
    int64_t steps; /* of training beside the CPU; 0: none */
    int64_t size;  /* side of the products that are timed, from which the other sizes follow; 0: none */
} an_selftest_options;

typedef struct an_selftest_listener {
    void (*part)(void *user, const char *title); /* begins */
    an_self_check_fn *line;                      /* something found, by name; faults too */
    an_kernel_check_fn kernel;
    void *user;
} an_selftest_listener;

typedef struct an_selftest_result {
    an_check_result kernels; /* run and compared */
    int faults;              /* of all parts: what is not as it should be */
    an_err failed;           /* of the first part that could not be done; AN_OK: there is none */
} an_selftest_result;

/* On the CPU kernels alone, unless steps or sizes are asked for; elsewhere the driver, then kernels in c->dtype and in
 * the other of float32 and bfloat16, then speeds and training. */
void an_selftest(const an_train_config *c, const an_selftest_options *o, const an_selftest_listener *listener,
                 an_selftest_result *out);

#endif
