/* machine_monitor.h: watches the machine during a run: growing swap, heat, the battery, low-power mode.
 *
 * Owns:      which changes are reported, each once.
 * Does not:  read the facts (platform/system_info.h, the device), print or write.
 */
#ifndef AN_REPORT_MACHINE_MONITOR_H
#define AN_REPORT_MACHINE_MONITOR_H

#include "platform/system_info.h"

enum { AN_WATCH_SECONDS = 30 }; /* between two looks: on macOS a look runs programs of the system, some tens of ms */

typedef struct an_monitor {
    an_system_info was;             /* at the last look */
    uint64_t swap_begin, swap_told; /* bytes in use when the run began; growth at the last report */
    bool throttled, stalled;        /* reported, and not yet over */
    double looked;                  /* clock: the caller's */
} an_monitor;

/* This machine's facts, on macOS with its thermal state and low-power mode. */
void an_monitor_facts(an_system_info *out);
/* Reads again the facts that change; the others stay. */
void an_monitor_update(an_system_info *io);

/* Takes the state in which the run begins; what in it slows a run is appended as an_monitor_look does. */
void an_monitor_begin(an_monitor *w, const an_system_info *now, an_text *out);
/* Appends what has changed since the last look, one sentence a line; nothing when nothing has. */
void an_monitor_look(an_monitor *w, const an_system_info *now, an_text *out);

#endif
