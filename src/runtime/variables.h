/* variables.h: the tables of parameters, states, inputs and scalars, and of the persistent buffers behind them. */
#ifndef AN_RUNTIME_VARIABLES_H
#define AN_RUNTIME_VARIABLES_H

#include "runtime/context.h"

/* Declares a persistent buffer and returns its index; -1 (and a recorded error): out of memory. */
int32_t an_store_new(an_ctx *cx, int64_t bytes, an_usage usage, const char *name);

/* This step's scalar i as an input block holds it, in its dtype; returns how many bytes of `out` (8) that is. */
size_t an_scalar_bytes(const an_ctx *cx, int i, void *out);

/* Why parameters may not change now, as the end of a sentence that names the call; NULL: they may. */
const char *an_why_params_are_fixed(const an_ctx *cx);

#endif
