/* results.h: what an_read, an_item and an_peek return.
 *
 * A root stays where the last step left it: it is read and never computed again, until the next an_eval or an_reset
 * (eval.c keeps which roots there are). */
#ifndef AN_RUNTIME_RESULTS_H
#define AN_RUNTIME_RESULTS_H

#include "runtime/context.h"

an_status an_note_peek(an_ctx *cx); /* after a step was submitted: remembers where an_peek finds its scalar */

#endif
