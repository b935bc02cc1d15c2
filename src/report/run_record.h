/* run_record.h: what the files of a run's folder say of it: its updates from metrics.jsonl, its history from
 * logbook.jsonl. Reports, comparisons and diagnoses are functions of this record alone.
 *
 * Owns:      reading both files within bounds, as untrusted files; statistics of a column.
 * Does not:  judge, print, or open a device.
 *
 * Invariants: updates are in the order of their numbers, one entry each; a column's number is NaN where the file has
 * none and infinity where it says null (the writer's number was not finite); texts of the file are untrusted: the
 * caller that prints them replaces control characters and escapes markup. */
#ifndef AN_REPORT_RUN_RECORD_H
#define AN_REPORT_RUN_RECORD_H

#include "io/formats/json.h"

typedef enum an_run_column {
    AN_RUN_LOSS,
    AN_RUN_VAL_LOSS,
    AN_RUN_GRAD_NORM,
    AN_RUN_MS,          /* of an update */
    AN_RUN_UNITS_PER_S, /* tokens, examples */
    AN_RUN_DATA_WAIT_MS,
    AN_RUN_CPU_WAIT_MS, /* of the thread that trains, for a processor that other programs used */
    AN_RUN_GPU_BUSY,    /* share of the time */
    AN_RUN_LIVE_BYTES,
    AN_RUN_RESERVED_BYTES,
    AN_RUN_RSS_BYTES,
    AN_RUN_HEAP_BYTES,   /* of the process' bytes: the C library's heap */
    AN_RUN_MAPPED_BYTES, /* of them: pages of mapped files */
    AN_RUN_SWAP_BYTES,
    AN_RUN_TEMPERATURE, /* of the processor, degrees Celsius */
    AN_RUN_GPU_TEMPERATURE,
    AN_RUN_PLANS, /* in the context's cache */
    AN_RUN_COLUMNS
} an_run_column;

typedef struct an_run_update {
    int64_t step; /* -1: an evaluation before the first update */
    double at[AN_RUN_COLUMNS];
} an_run_update;

/* More updates are refused; of further events of a kind only the count is kept. */
enum { AN_RUN_MOST_UPDATES = 4000000, AN_RUN_MOST_EVENTS = 256 };

typedef struct an_run_record {
    an_run_update *update;
    size_t n, cap;
    uint64_t disordered;     /* lines of an update that is before the one of an earlier line; left out */
    json_t *begin;           /* the last line of that event; NULL: none */
    json_t *plan, *end;      /* those after `begin`; NULL: none */
    json_t *machine, *notes; /* arrays of the lines "machine", and "note", "rejected" and "accepted" */
    json_t *not_finite;      /* the last line of that event after `begin`; NULL: none */
    json_t *memory[2];       /* the first and the last line "memory" after `begin`; NULL: none */
    size_t begins, events_left_out;
} an_run_record;

/* AN_E_DATA: the folder holds neither file. After a failure `out` is empty, and there is nothing to free. */
an_status an_run_record_read(an_err *err, const char *dir, an_run_record *out);
void an_run_record_free(an_run_record *r);

/* A member of a logbook's line: "" and NaN where it is missing or of another type. `object` may be NULL. */
const char *an_run_text(const json_t *object, const char *key);
double an_run_number(const json_t *object, const char *key);
/* Appends an untrusted text to a page: markup is escaped, control characters and bytes that are not UTF-8 become '?'. */
void an_html_put(an_text *out, const char *text);
void an_run_text_html(const json_t *object, const char *key, an_text *out);
/* The settings of the last beginning; NULL: none. */
const json_t *an_run_settings(const an_run_record *r);
/* One setting as text into `out`; "" where it is missing. */
enum { AN_RUN_SETTING_BYTES = 128 };
const char *an_run_setting(const an_run_record *r, const char *key, char out[AN_RUN_SETTING_BYTES]);

/* The finite numbers of a column for updates first .. last - 1 of the record, ascending. free() *out, which is NULL when
 * there are none. */
an_status an_run_sorted(an_err *err, const an_run_record *r, an_run_column column, size_t first, size_t last,
                        double **out, size_t *n);
/* The quantile of n ascending numbers at this share, 0 to 1, interpolated between neighbours: the median of an even
 * count is the mean of the two in the middle. NaN of none. */
double an_run_quantile(const double *sorted, size_t n, double share);
/* The median of a column for updates first .. last - 1; NaN where it has no finite number there, or without memory. */
double an_run_median(const an_run_record *r, an_run_column column, size_t first, size_t last);
/* The share of the time of updates first .. last - 1 for which a column's milliseconds say that they waited:
 * AN_RUN_DATA_WAIT_MS, AN_RUN_CPU_WAIT_MS. Each line counts for the updates since the line before. NaN: no line
 * tells. */
double an_run_wait_share(const an_run_record *r, an_run_column column, size_t first, size_t last);
/* A share of AN_RUN_CPU_WAIT_MS above this makes a run's times those of a busy machine. */
#define AN_RUN_MUCH_CPU_WAIT 0.2
/* Units (tokens, examples) of an update, which are the same in all of them: speed times time. NaN: no line has both. A
 * speed that is to agree with a median time is this divided by it. */
double an_run_units_an_update(const an_run_record *r);

#endif
