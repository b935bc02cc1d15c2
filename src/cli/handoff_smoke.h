/* handoff_smoke.h: the first updates of a received run: is memory flat, is it as fast as at its origin, and if not, why.
 *
 * Owns:      the window and its comparison with the origin.
 * Does not:  change the received run: the window trains in a folder of its own, RUN/smoke. */
#ifndef AN_CLI_HANDOFF_SMOKE_H
#define AN_CLI_HANDOFF_SMOKE_H

#include "cli/cli.h"
#include "tools/pack.h"

/* Why an update takes longer or shorter here (cli/handoff_causes.h). */
enum { AN_CAUSES = 8, AN_CAUSE_TEXT_BYTES = 320 };
typedef struct an_cause {
    const char *name, *verdict; /* "likely", "ruled out", "not known" */
    char there[AN_CAUSE_TEXT_BYTES], here[AN_CAUSE_TEXT_BYTES];
} an_cause;

typedef struct an_smoke {
    int64_t updates;
    double ms, units_per_s;    /* medians after the first tenth; NaN: unknown */
    double live_bytes, growth; /* at the end; from the second tenth to the last, as a share */
    double wait_share;         /* of the updates' time that waited for data */
    double cpu_wait_ms;        /* of an update, waiting for a processor that others used; NaN: not told */
    double ratio;              /* of the origin's time of an update: above 1 is slower here; NaN: unknown */
    bool flat, alike;          /* growth of at most 1 %; ratio within the tolerance, or not to be compared */
    an_cause cause[AN_CAUSES]; /* of a difference, each measured; without a name: there is no origin to compare with */
} an_smoke;

/* Resumes `dir`, or begins a run with the settings in it, for `updates` updates in dir/smoke. A failure of the run is
 * its sentence. */
an_status an_handoff_smoke(an_err *err, const an_handoff *h, const char *dir, const char *program, int64_t updates,
                           double tolerance, an_smoke *out);

#endif
