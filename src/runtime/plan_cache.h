/* plan_cache.h: the plans of a context, found by what they were made from. */
#ifndef AN_RUNTIME_PLAN_CACHE_H
#define AN_RUNTIME_PLAN_CACHE_H

#include "runtime/context.h"

/* The plan of this graph and these roots: found, or made (the least recently used one gives way). Sets cx->last. */
an_status an_plan_cache_get(an_ctx *cx, const int32_t *roots, int n, an_cached_plan **out);

/* Frees every plan but `kept` (NULL: all), and the arena and input buffers whose size is not that of `kept`. */
void an_plan_cache_trim(an_ctx *cx, const an_cached_plan *kept);
void an_plan_cache_close(an_ctx *cx); /* plans only */

#endif
