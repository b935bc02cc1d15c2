/* watch.h: what changes about the machine while a run goes on: swap that grows, heat, the battery, low-power mode.
 *
 * Owns:      what is worth a sentence, and that it is said once a change.
 * Does not:  read the facts (io/facts.h, the device), print or write.
 */
#ifndef AN_TRAIN_WATCH_H
#define AN_TRAIN_WATCH_H

#include "io/facts.h"

enum { AN_WATCH_SECONDS = 30 }; /* between two looks: on macOS a look runs programs of the system, some tens of ms */

typedef struct an_watch {
    an_os_facts was;                /* at the last look */
    uint64_t swap_begin, swap_told; /* bytes in use when the run began; growth that was last told */
    bool throttled, stalled;        /* told, and not yet over */
    double looked;                  /* clock: the caller's */
} an_watch;

/* This machine's facts, macOS' own words on heat and low-power mode among them. */
void an_watch_facts(an_os_facts *out);
/* The same for what moves: the rest stays. */
void an_watch_update(an_os_facts *io);

/* The run begins in this state: what of it slows a run is said, as an_watch_look does. */
void an_watch_begin(an_watch *w, const an_os_facts *now, an_text *out);
/* What has changed since the last look, a sentence a line; nothing for nothing. */
void an_watch_look(an_watch *w, const an_os_facts *now, an_text *out);

#endif
