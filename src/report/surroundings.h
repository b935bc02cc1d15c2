/* surroundings.h: what a run's logbook says of the things around it: disks of the data and of the kernel cache, other
 * programs, and which numbers are kept in which precision.
 *
 * Owns:      looking once, when a run begins, for at most half a second; the keys of that part of the line.
 * Does not:  know the run, warn, or write the line (report/metrics.h).
 *
 * Invariant: what cannot be learned here is null, and never a failure. */
#ifndef AN_REPORT_SURROUNDINGS_H
#define AN_REPORT_SURROUNDINGS_H

#include "io/formats/json.h"
#include <anneal.h>

/* Members of a JSON object, each after a comma: "mount", "data_mb_s" (read past the page cache where the system allows
 * that), "cache" (the kernel cache's folder, its mount, milliseconds for 64 KiB written and read, "write_mb_s" and
 * "mb_s" of 4 MiB), "busiest" (three programs and the share of a processor that they use, as `ps` says it). `data` is
 * "" for built-in data; its disk is measured here, unless it is `measured` already (io/data/disk_speed.h; NULL: it is
 * not). */
struct an_storage;
void an_surroundings_put(const char *data, const struct an_storage *measured, an_text *out);
/* ,"dtype_policy":{"matrix_weights":..}: which precision each group of numbers has. Under a 16-bit policy the operands of
 * GEMMs and convolutions are rounded; statistics of norms, softmax and every sum accumulate in float32. `weights`: in
 * which matrices and their gradients are kept; `moments`: of the optimizer. */
void an_surroundings_put_policy(an_dtype dtype, an_dtype weights, an_dtype moments, an_text *out);
/* What was promised and can be checked, as members: "closed" with those of the programs `closed` ("Chrome,Slack") that
 * run all the same in "still_running"; "store" with the folder, or HOST:FOLDER that sftp reaches, whether a mebibyte
 * came back as it was written ("intact") and its "ms". "" for either: nothing. What is not as promised goes to `notes`,
 * one sentence a line. */
void an_surroundings_check(const char *closed, const char *store, an_text *members, an_text *notes);
/* Those of the names that ps lists, without regard to case, as a JSON array; returns how many. */
int an_surroundings_running(const char *ps, const char *names, an_text *out);
/* The three busiest of what `ps -Ao pcpu=,comm=` printed, without the program `own`: ["name",12.5] pairs as JSON. */
void an_surroundings_busiest(const char *ps, const char *own, an_text *out);

#endif
