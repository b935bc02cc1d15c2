/* selftest.h: every kernel of a model's training step, evaluation and sampling, at its shapes, against the oracle.
 *
 * Owns:      the numbers the kernels meet: weights and moments disturbed so that none is zero, random tokens.
 * Does not:  print, or know kernels.
 */
#ifndef AN_TRAIN_SELFTEST_H
#define AN_TRAIN_SELFTEST_H

#include "train/config.h"
#include <anneal_tools.h>

/* `tell` hears of each kernel. AN_OK whatever the kernels are worth: see *out. */
an_status an_selftest(an_err *err, const an_train_config *c, an_kernel_check_fn tell, void *user, an_check_result *out);

#endif
