/* drift.h: what differs between the machine that a pack comes from and this one: program, system, processor, variables.
 *
 * Owns:      which facts are compared.
 * Does not:  judge a difference, or measure (cli/handoff_causes.h does). */
#ifndef AN_TOOLS_DRIFT_H
#define AN_TOOLS_DRIFT_H

#include "tools/pack.h"

enum { AN_DRIFT_VALUE_BYTES = 200, AN_DRIFT_MOST_ROWS = 160 };

typedef struct an_drift_row {
    char name[64], there[AN_DRIFT_VALUE_BYTES], here[AN_DRIFT_VALUE_BYTES]; /* printable; "": not set, or unknown */
    bool variable, differs;
} an_drift_row;

typedef struct an_drift {
    an_drift_row row[AN_DRIFT_MOST_ROWS];
    size_t n, differing, left_out; /* rows; rows that differ; variables left out beyond AN_DRIFT_MOST_ROWS */
} an_drift;

/* The last line "begin" of the pack's logbook, with the facts of the machine. *out: json_decref. AN_E_DATA: it has none. */
an_status an_pack_beginning(an_err *err, const an_pack *p, json_t **out);
/* Compares the facts of such a line with this machine's. */
an_status an_drift_find(an_err *err, const json_t *beginning, const char *commit, an_drift *out);

#endif
