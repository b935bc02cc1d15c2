/* memory.h: the watermarks: how much device memory a context may hold. */
#ifndef AN_RUNTIME_MEMORY_H
#define AN_RUNTIME_MEMORY_H

#include "runtime/context.h"

/* May the memory that this plan still lacks be requested? Frees idle plans first when the low watermark is passed. */
an_status an_memory_admit(an_ctx *cx, const an_cached_plan *c);

#endif
