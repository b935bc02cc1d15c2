/* execute.h: submitting a plan to the device. */
#ifndef AN_RUNTIME_EXECUTE_H
#define AN_RUNTIME_EXECUTE_H

#include "runtime/context.h"

an_status an_run_plan(an_ctx *cx, an_cached_plan *c); /* may return before the step has ended */

#endif
