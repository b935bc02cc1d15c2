/* in_flight.c: waiting for submitted steps (asynchronous execution, synchronization). What hangs on a GPU ends by the
 * device's time limit (device/cuda/cuda.c).
 *
 * Owns: how many steps may be in flight (at most what the device's an_target says: STEPS_IN_FLIGHT in cuda.c,
 * AN_STEPS_IN_FLIGHT in metal_internal.h), when the program waits, and the counts of both.
 *
 * Does not: fill inputs. Which input buffer a step has (double buffering): execute.c.
 *
 * Invariants: steps run in the order of their an_eval, because they share the arena and the states. A step that fails in
 * flight ends the context's work: cx->failed keeps its sentence, and every later call that waits or evaluates returns it.
 */
#include "runtime/in_flight.h"

#include <anneal_decode.h>
#include <stdlib.h>
#include <string.h>

int32_t an_max_in_flight(const an_ctx *cx)
{
    const int32_t n = cx->backend->target(cx->device)->in_flight;
    return n < 1 ? 1 : AN_MIN(n, AN_MAX_IN_FLIGHT);
}

int an_steps_in_flight(const an_ctx *cx)
{
    return cx && cx->device ? (int)an_max_in_flight(cx) : 1;
}

int an_input_blocks(const an_ctx *cx)
{
    const int32_t n = cx->backend->target(cx->device)->input_blocks;
    return n < 1 ? 1 : AN_MIN(n, AN_MAX_IN_FLIGHT);
}

an_status an_in_flight_status(an_ctx *cx)
{
    return cx->failed.code ? an_fail(&cx->err, cx->failed.code, "%s", cx->failed.text) : AN_OK;
}

an_status an_wait_oldest(an_ctx *cx)
{
    an_err why = {0};
    const an_status status = cx->backend->wait(&why, cx->device, cx->flight[0], INT64_MAX);
    if (status != AN_OK) {
        cx->failed = why;
        cx->failed.code = status;
        cx->n_flight = cx->n_roots = 0;
        cx->peek_later = false;
        return an_in_flight_status(cx);
    }
    memmove(cx->flight, cx->flight + 1, sizeof *cx->flight * (size_t)--cx->n_flight);
    return AN_OK;
}

an_status an_wait_all(an_ctx *cx)
{
    while (cx->n_flight > 0) AN_TRY(an_wait_oldest(cx));
    return AN_OK;
}

an_status an_wait_idle(an_ctx *cx)
{
    cx->waits += cx->n_flight > 0;
    return an_wait_all(cx);
}

/* Waits for the oldest step only: the ones behind it keep the device busy meanwhile. */
an_status an_wait_for_slot(an_ctx *cx)
{
    if (cx->n_flight < an_max_in_flight(cx)) return AN_OK;
    cx->stalls += cx->backend->done && !cx->backend->done(cx->device, cx->flight[0]);
    return an_wait_oldest(cx);
}

an_status an_synchronize(an_ctx *cx)
{
    if (!cx) return AN_E_USAGE;
    if (cx->device) AN_TRY(an_wait_idle(cx));
    return cx->err.code;
}

/* ---------------------------------------------------------------------------------------------- places that wait */

void an_sync_note(an_ctx *cx, const char *at)
{
    cx->syncs++;
    for (int i = 0; i < cx->n_waits; i++)
        if (cx->wait[i].at == at || (at && cx->wait[i].at && !strcmp(cx->wait[i].at, at))) {
            cx->wait[i].count++;
            return;
        }
    if (!an_grow((void **)&cx->wait, cx->n_waits, &cx->cap_waits, sizeof *cx->wait)) return; /* counted all the same */
    cx->wait[cx->n_waits++] = (an_sync){.at = at, .count = 1};
}

int an_syncs(const an_ctx *cx, an_sync *out, int cap)
{
    for (int i = 0; cx && i < cx->n_waits && i < cap; i++) out[i] = cx->wait[i];
    return cx ? cx->n_waits : 0;
}
