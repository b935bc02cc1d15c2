/* memory_watch.h: lines of the logbook that list a run's memory by scope, so that growth can be attributed.
 *
 *     {"event":"memory","step":40,...,"live_bytes":N,"heap_bytes":N,"mapped_bytes":N,"scopes":[["step","gpt/h0/attn",65536],...]}
 *
 * Owns:      when such a line is written: once a tenth of the updates is done, and after the live bytes have grown by
 *            another 1 MiB, 2, 4 and so on; adding up the pieces of one scope.
 * Does not:  judge (report/diagnose.h), or compare with the plan: planned bytes are tools/estimate.h's, what driver and
 *            libraries hold beside them an_estimate_driver's. Nothing waits for the device. */
#ifndef AN_TRAIN_MEMORY_WATCH_H
#define AN_TRAIN_MEMORY_WATCH_H

#include "train/session.h"

typedef struct an_memory_watch {
    uint64_t told_bytes; /* live bytes of the last line; 0: there is none */
    int lines;
} an_memory_watch;

/* Called after each logged update; `begin_step`: the updates done when the loop began. Writes a line if one is due. */
an_status an_memory_watch_look(an_err *err, an_memory_watch *w, const an_session *r, int64_t begin_step);

/* ,"scopes":[[kind,scope,bytes],...] of the context, largest first; kinds are those of an_memory_scopes. Of names of
 * tensors the last part is left out: "h.0.attn.weight" is of scope "h.0.attn". At most AN_MEMORY_SCOPES, the others are
 * one entry without a name. */
enum { AN_MEMORY_SCOPES = 512 };
an_status an_memory_scopes_put(an_err *err, an_ctx *cx, an_text *out);

#endif
