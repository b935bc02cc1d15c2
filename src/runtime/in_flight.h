/* in_flight.h: the queue of steps that were submitted and have not been seen to end, and the list of places that wait. */
#ifndef AN_RUNTIME_IN_FLIGHT_H
#define AN_RUNTIME_IN_FLIGHT_H

#include "runtime/context.h"

int32_t an_max_in_flight(const an_ctx *cx); /* of this device; at least 1 */
int an_input_blocks(const an_ctx *cx);      /* input buffers used round robin on this device; at least 1 */

an_status an_wait_oldest(an_ctx *cx);
an_status an_wait_all(an_ctx *cx);
an_status an_wait_idle(an_ctx *cx);     /* an_wait_all, counted in the report's `waits` */
an_status an_wait_for_slot(an_ctx *cx); /* until one more step may be submitted; counted in `stalls` */

/* AN_OK, or the error of a step that failed in flight, recorded in cx->err again. */
an_status an_in_flight_status(an_ctx *cx);

void an_sync_note(an_ctx *cx, const char *at); /* one more wait at this source location (an_syncs) */

#endif
