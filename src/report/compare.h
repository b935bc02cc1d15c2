/* compare.h: two runs beside each other: losses, validation losses and gradient norms at the updates that both logged.
 *
 * Owns:      the measure of a difference, tolerances, the verdict.
 * Does not:  read checkpoints or print for people: the caller compares hashes.
 *
 * A difference is |a - b| / max(|a|, |b|), 0 where both are equal, infinity where exactly one is not finite or both are
 * not: numbers that are not finite agree with nothing. */
#ifndef AN_REPORT_COMPARE_H
#define AN_REPORT_COMPARE_H

#include "io/config/config.h"
#include "report/run_record.h"

/* Largest relative differences that pass, over the first `updates` updates (0: all). */
typedef struct an_tolerances {
    double loss, val_loss, grad_norm;
    int64_t updates;
} an_tolerances;
extern const an_config an_tolerance_keys;

enum { AN_COMPARE_ROWS = 3 };
typedef struct an_compare_row {
    const char *name;
    size_t compared; /* updates at which both runs have the number */
    double allowed;
    double worst, a, b; /* the largest difference and its two numbers */
    int64_t worst_step;
    int64_t first_step;  /* the first update that differs at all; -1: none */
    int64_t beyond_step; /* the first update beyond what is allowed; -1: none */
} an_compare_row;

typedef struct an_comparison {
    an_compare_row row[AN_COMPARE_ROWS];
    int64_t updates;     /* those below it were compared; 0: all */
    int64_t diverged_at; /* the first update at which any row is beyond what is allowed; -1: none */
    int cut_short; /* the run (0, 1) whose metrics end before the other's, of the updates that are compared; -1: neither */
    int64_t ends_at; /* its last logged update */
    size_t missing;  /* updates that the other run logged after that */
    bool pass;       /* every row is within what is allowed, and neither run is cut short */
} an_comparison;

/* AN_E_DATA: the runs have no update with a loss in common. */
an_status an_compare_runs(an_err *err, const an_run_record *a, const an_run_record *b, const an_tolerances *t,
                          an_comparison *out);
/* The rows that are beyond what is allowed at `diverged_at`, each in quotes. */
void an_compare_put_names(const an_comparison *c, const char *quote, const char *between, an_text *out);
/* "rows":[...],"updates":N,"diverged_at":N,"diverged_in":["loss"],"pass":true: members of an object. */
void an_compare_json(const an_comparison *c, an_text *out);
/* The settings in which two runs differ, "key: a and b" a line, at most `most` of them, then "and N more"; the
 * folder and notes left out. Returns how many differ. */
size_t an_compare_settings(const an_run_record *a, const an_run_record *b, size_t most, an_text *out);

#endif
