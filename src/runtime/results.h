/* results.h: what an_read, an_item and an_peek return. */
#ifndef AN_RUNTIME_RESULTS_H
#define AN_RUNTIME_RESULTS_H

#include "runtime/context.h"

an_status an_note_peek(an_ctx *cx); /* after a step was submitted: remembers where an_peek finds its scalar */

#endif
