/* loss_curve.h: the loss curve of a run, read from its metrics.jsonl: its points, and the picture loss.svg.
 *
 * Owns:      reading, thinning (a picture needs no more points than pixels), drawing.
 * Does not:  draw on a terminal (cli/progress.c).
 *
 * To add another picture beside loss.svg: a file of report/ that draws it from metrics.jsonl, and a call in train/loop.c
 * where this one is saved. Charts of a plan's memory are in cli/memory_svg.c, those of `anneal report` in
 * report/run_report.c. */
#ifndef AN_REPORT_LOSS_CURVE_H
#define AN_REPORT_LOSS_CURVE_H

#include "io/checkpoint.h"
#include "io/config/config.h"

typedef struct an_curve_point {
    int64_t step;
    double loss, val_loss; /* NaN: not there; loss is the mean of the lines merged into this point */
} an_curve_point;

enum { AN_CURVE_POINTS = 512 };

typedef struct an_curve {
    an_curve_point *point;
    size_t n;
} an_curve;

/* At most about AN_CURVE_POINTS points; every evaluation is one. No metrics: no points. */
an_status an_curve_read(an_err *err, const char *dir, an_curve *out);
void an_curve_free(an_curve *c);
void an_curve_svg(const an_curve *c, const char *title, an_text *out);
/* Writes DIR/loss.svg; with fewer than two points nothing. */
an_status an_curve_save(an_err *err, const char *dir);

/* Lowest and highest finite value of all points; false: none. */
bool an_curve_range(const an_curve *c, double *low, double *high);

#endif
