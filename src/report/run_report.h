/* run_report.h: one self-contained HTML page about runs: what was trained on what, curves of loss, time and memory, what is
 * wrong, how the runs compare, and whether the speed that it states is proven.
 *
 * Owns:      the page, its charts (SVG in the page), the conditions under which a speed counts as proven.
 * Does not:  read files but those of the runs, or write any.
 *
 * To add a chart: a `line` for each curve and a put_chart in put_charts (run_report.c).
 *
 * Invariants: the page has no script and loads nothing; every text of a file is escaped; a chart has a bounded number of
 * points whatever the file holds. */
#ifndef AN_REPORT_RUN_REPORT_H
#define AN_REPORT_RUN_REPORT_H

#include "io/formats/sha256.h"
#include "report/run_record.h"

enum { AN_REPORT_RUNS = 8 };

typedef struct an_report_run {
    const char *dir;
    an_run_record record;
    bool running;
} an_report_run;

/* A file of anneal profile --json. Untrusted. */
typedef struct an_report_profile {
    const char *path;
    char sha256[AN_SHA256_TEXT_BYTES];
    json_t *json; /* NULL: none */
} an_report_profile;

/* Appends the page about the n runs, with a comparison of each with the first. `sweep`: the JSON of a sweep
 * (report/sweep.h), untrusted; NULL: none. `profile`: NULL, or without JSON: none. */
an_status an_run_report(an_err *err, const an_report_run *run, int n, const json_t *sweep,
                        const an_report_profile *profile, an_text *out);

/* Fills `out` with what the speed of a run lacks to be proven, one text each; returns how many. */
enum { AN_REPORT_LACKS = 10 };
int an_run_report_lacks(const an_report_run *run, const json_t *sweep, const char *out[AN_REPORT_LACKS]);

#endif
