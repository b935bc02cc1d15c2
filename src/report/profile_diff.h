/* profile_diff.h: two profiles of a training step, as `anneal profile --json` writes them, beside each other.
 *
 * Owns:      reading them within bounds, as untrusted files; which operations of the two belong together; the
 *            conclusion and its thresholds.
 * Does not:  measure, print, or write a logbook.
 *
 * An operation is all launches of one kind, phase, shape and name, where all numbers within a name are equal (layer 3 and
 * layer 4): what one change of the source affects. Profiles are matched by operation, however many launches each has.
 *
 * * Invariants: waiting for data is left out of all times that are compared: a step is step_ms - data_ms. Where all
 * operations changed by one factor (a busy machine, another clock, other threads), the ones named are those that changed
 * beyond it. Profiles of two models are refused. */
#ifndef AN_REPORT_PROFILE_DIFF_H
#define AN_REPORT_PROFILE_DIFF_H

#include "io/formats/json.h"

enum { AN_PROFILE_SCHEMA = 1, AN_PROFILE_MOST_LAUNCHES = 8192, AN_PROFILE_TOP = 3 };

typedef struct an_profile_op {
    char name[160], scope[160]; /* the name as above; the scope of its first launch */
    char kind[24], phase[24], shape[64];
    double us[2], share[2]; /* of A and B: time of all its launches; mean share of the roof, by time, 0: unknown */
    int launches[2];
    double change; /* microseconds by which it changed, beyond what all did */
} an_profile_op;

typedef struct an_profile_file {
    char preset[64], device[64], time[32], commit[64]; /* time: "2026-11-23T04:50:00Z"; "" */
    double step_ms, data_ms, host_ms, device_ms;       /* host: the step without data and device */
    double unix_time;                                  /* of `time`; NaN: unknown */
    double gflops, gbytes;                             /* the roofline measured after its steps; 0: unknown */
    int n_launches, n_above; /* above: faster than that roofline, which a busy machine explains */
} an_profile_file;

typedef enum an_profile_verdict {
    AN_PROFILE_REWRITE,       /* the three take the time, and are far below what the machine can do */
    AN_PROFILE_MOVE,          /* the three are faster on A's device: run them there, deliberately */
    AN_PROFILE_OTHER_PATH,    /* the time is not in launches: data, or the host */
    AN_PROFILE_OTHER_HARDWARE /* the three are near what the machine can do */
} an_profile_verdict;

typedef struct an_profile_diff {
    an_profile_file file[2];
    an_profile_op *op; /* [n]; the largest change first */
    int n;
    bool changed;            /* the steps differ by more than 5 %: the three are those that changed most */
    double factor;           /* by which nearly all operations changed, B's times over A's; 1: by less than 5 % */
    double common;           /* share of the launches' time, of both together, that is in operations which both have */
    int top[AN_PROFILE_TOP]; /* the three that matter most, indices into op; -1: fewer */
    bool same_slowest;       /* the three slowest of A are those of B */
    double days_apart;       /* NaN: unknown */
    an_profile_verdict verdict;
    char why[400]; /* the figures that led there */
} an_profile_diff;

/* Diffs two files. AN_E_DATA: one is no profile, of another schema, or has no launches, or they are of two models.
 * an_profile_diff_free also after a failure. */
an_status an_profile_diff_read(an_err *err, const char *path_a, const char *path_b, an_profile_diff *out);
/* The same of values that were read; the paths are for sentences. */
an_status an_profile_diff_make(an_err *err, const json_t *a, const json_t *b, const char *path_a, const char *path_b,
                               an_profile_diff *out);
void an_profile_diff_free(an_profile_diff *d);

/* "rewrite", "move", "other_path", "other_hardware"; and as a sentence. */
const char *an_profile_verdict_name(an_profile_verdict v);
const char *an_profile_verdict_text(an_profile_verdict v);
/* "a":{...},"b":{...},"top":[...],"verdict":...: members of an object. */
void an_profile_diff_json(const an_profile_diff *d, an_text *out);

#endif
