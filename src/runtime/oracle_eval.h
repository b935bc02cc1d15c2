/* oracle_eval.h: the step of a context on the device "ref". */
#ifndef AN_RUNTIME_ORACLE_EVAL_H
#define AN_RUNTIME_ORACLE_EVAL_H

#include "runtime/context.h"

an_status an_oracle_run(an_ctx *cx, const int32_t *roots, int n_roots);
an_status an_oracle_read(an_ctx *cx, int which, void *dst, size_t bytes); /* root number `which` of the last an_eval */

#endif
