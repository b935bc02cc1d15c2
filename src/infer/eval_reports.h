/* eval_reports.h: what an evaluation reports beside the model's sums: a table of functions, one for each kind of report.
 *
 * Each looks at the session and appends nothing where it does not apply. To add one: its own file in infer/ with such a
 * function, and a row in eval_reports.c.
 *
 * Owns:      the table.
 * Does not:  evaluate the sums (train/evaluate.h) or print: the functions append text. */
#ifndef AN_INFER_EVAL_REPORTS_H
#define AN_INFER_EVAL_REPORTS_H

#include "train/session.h"

/* Appends to `out`: as `json`, members of an object that is open, each with a comma before it; else lines, each with a
 * newline before it. `submission`: the path of the file of answers that some data sets ask for. */
typedef an_status an_eval_report_fn(an_err *err, an_session *r, const char *submission, bool json, an_text *out);

/* All of them, in the table's order. Needs a session with data. */
an_eval_report_fn an_eval_reports_put;

#endif
