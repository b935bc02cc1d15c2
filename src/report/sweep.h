/* sweep.h: what a sweep over batch sizes measured, and what follows from it.
 *
 * Owns:      reading a point from its run's files; the knee; the largest batch within a budget; table, JSON, picture.
 * Does not:  train (cli/cmd_sweep.c) or plan: the caller says which batch a budget admits.
 *
 * The knee is the smallest batch beyond which every larger one that was measured gains less than AN_SWEEP_GAIN for each
 * doubling. */
#ifndef AN_REPORT_SWEEP_H
#define AN_REPORT_SWEEP_H

#include "io/formats/json.h"

#define AN_SWEEP_GAIN 1.05
/* A point that takes more than this times as long an update as a larger batch contradicts it. */
#define AN_SWEEP_SLOWER 1.1

enum { AN_SWEEP_POINTS = 512, AN_SWEEP_AXES_BYTES = 160 };

typedef struct an_sweep_point {
    char axes[AN_SWEEP_AXES_BYTES]; /* "dtype=bfloat16 recompute=on"; "" without axes */
    int64_t batch;
    bool ran;
    bool again;                               /* it was measured twice, and these are the faster one's numbers */
    char why[256];                            /* why it did not run */
    char unit[24];                            /* "token" */
    double units_per_s, ms, ms_fast, ms_slow; /* at the median time; median; fastest and slowest tenth of the updates */
    double wait_share, gpu_busy;              /* of the time; gpu_busy is NaN on a device that does not say */
    double cpu_wait_share; /* of the time: waiting for a processor that other programs used; NaN: unknown */
    double predicted_bytes, measured_bytes; /* the plan's peak; what was requested from the device */
    double rss_bytes, swap_growth_bytes;
    /* Of the launches of an update's last micro-batch, by the roofline: time that those need at least whose arithmetic
     * takes longer than their bytes, and time of the others. Zeros: unknown. */
    double arithmetic_ms, bandwidth_ms;
} an_sweep_point;

typedef struct an_sweep {
    an_sweep_point point[AN_SWEEP_POINTS];
    int n;
} an_sweep;

/* Fills the numbers of a point from the folder of its run, without the first updates, which compile. AN_E_DATA: the run
 * did not end, or logged too few updates. */
an_status an_sweep_read(an_err *err, const char *dir, an_sweep_point *io);

/* The knee among the points with these axes and at most `most` samples (0: all); NULL: none, speed still grows at the
 * largest, or fewer than two points ran. `fastest` is the fastest of them; NULL: none ran. */
const an_sweep_point *an_sweep_knee(const an_sweep *s, const char *axes, int64_t most, const an_sweep_point **fastest);
/* The point whose times other programs disturbed most, beyond AN_RUN_MUCH_CPU_WAIT; NULL: none. With one the knee is
 * not certain. */
const an_sweep_point *an_sweep_most_disturbed(const an_sweep *s, const char *axes, int64_t most);
/* The largest batch with these axes that takes less time an update than `p` does, by AN_SWEEP_SLOWER: more samples in less
 * time, so that other load, or an unlucky kernel, made p's time. NULL: none. */
const an_sweep_point *an_sweep_contradicts(const an_sweep *s, const an_sweep_point *p);
/* The first point with these axes and at most `most` samples (0: all) that a larger one contradicts, among those that were
 * measured twice (`again`) or once. */
an_sweep_point *an_sweep_contradicted(an_sweep *s, const char *axes, int64_t most, bool again);
/* What limits the speed at this batch: "data", "launches", "memory", "arithmetic" or "bandwidth"; "arithmetic or
 * bandwidth" where the roofline of the point is not known. */
const char *an_sweep_limit(const an_sweep_point *p);

void an_sweep_table(const an_sweep *s, an_text *out); /* for people */
void an_sweep_json(const an_sweep *s, an_text *out);  /* [{...},...] */
void an_sweep_svg(const an_sweep *s, const char *title, an_text *out);
/* Reads the points that an_sweep_json wrote from an untrusted file: points that did not run or have impossible numbers are
 * left out. */
void an_sweep_from_json(const json_t *points, an_sweep *out);

#endif
