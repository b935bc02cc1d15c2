/* roofline_chart.h: a profile (anneal profile --json) as a part of a page: the roofline with its launches, and the slowest ones.
 *
 * Owns:      reading the profile's numbers, as an untrusted file; the picture (SVG that uses the page's styles) and the
 *            table.
 * Does not:  measure: the profile has the peaks (tools/bench_op.h), and '% of peak' of a run is another number
 *            (cli/progress.h); judge: report/diagnose.h and report/profile_diff.h do. Estimates: device/apple_roofline.h.
 *
 * Invariants: a picture has at most AN_ROOFLINE_LAUNCHES marks; every text is escaped; a launch without time, work or bytes
 * has no mark. */
#ifndef AN_REPORT_ROOFLINE_CHART_H
#define AN_REPORT_ROOFLINE_CHART_H

#include "io/formats/json.h"

enum { AN_ROOFLINE_LAUNCHES = 1024, AN_ROOFLINE_SLOWEST = 8 };

/* Appends a <figure>: each launch at its FLOP per byte and its speed, below the measured roofline. False: there is nothing
 * to draw, and nothing is appended. */
bool an_roofline_figure(const json_t *profile, an_text *out);
/* Appends a <table> of the slowest launches. */
void an_roofline_table(const json_t *profile, an_text *out);

#endif
