/* assign_params.h: parameters as this step has changed them so far. */
#ifndef AN_RUNTIME_ASSIGN_PARAMS_H
#define AN_RUNTIME_ASSIGN_PARAMS_H

#include "runtime/context.h"

/* The parameters of block b as one array [numel], with the values that this step has assigned to single parameters. */
an_tensor *an_block_params(an_ctx *cx, int b, const char *at);

#endif
