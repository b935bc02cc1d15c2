/* handoff_causes.h: why an update takes longer or shorter here than at the origin: each candidate measured.
 *
 * Owns:      the table of candidates, what is measured for each, when it is called likely.
 * Does not:  explain: a person signs the explanation. */
#ifndef AN_CLI_HANDOFF_CAUSES_H
#define AN_CLI_HANDOFF_CAUSES_H

#include "cli/handoff_smoke.h"
#include "report/run_record.h"

/* Measures for about a second which causes of a difference are likely. `s`: what the smoke window measured, `run`: the
 * received record; `dir`: the folder of the smoke window's run; `interval`: its log_interval; `throttled`: how often
 * the processor was slowed for its heat before the window (AN_UNKNOWN). */
void an_causes_measure(const an_handoff *h, const an_smoke *s, const an_run_record *run, const char *dir,
                       int64_t throttled, int64_t interval, an_cause out[AN_CAUSES]);

#endif
