/* stores.h: the memory of persistent buffers (an_store): allocated, initialized, summed up, freed. */
#ifndef AN_RUNTIME_STORES_H
#define AN_RUNTIME_STORES_H

#include "runtime/context.h"

an_status an_stores_ready(an_ctx *cx); /* allocates and initializes every buffer declared so far */
int64_t an_persistent_bytes(const an_ctx *cx, uint64_t by_usage[AN_N_USES]); /* by_usage: added to; may be NULL */
/* Its memory is freed, or given back to whose it is; nothing in flight uses it. */
void an_store_release(an_ctx *cx, an_store *s);
void an_stores_close(an_ctx *cx);

#endif
