/* eval_reports.c: the table. See eval_reports.h. */
#include "infer/eval_reports.h"
#include "infer/arc_votes.h"
#include "infer/confusion.h"

static an_eval_report_fn *const reports[] = {an_confusion_report, an_arc_report};

an_status an_eval_reports_put(an_err *err, an_session *r, const char *submission, bool json, an_text *out)
{
    for (size_t i = 0; i < AN_COUNT(reports); i++) AN_TRY(reports[i](err, r, submission, json, out));
    return AN_OK;
}
