/* confusion.h: the confusion matrix of a classifier over the validation split: how often class i is predicted as class j.
 * For models that predict AN_CONFUSION_MOST classes at most. */
#ifndef AN_INFER_CONFUSION_H
#define AN_INFER_CONFUSION_H

#include "infer/eval_reports.h"

enum { AN_CONFUSION_MOST = 1024 };
/* A row a label, a column a prediction; as text only where the rows fit a page. */
an_eval_report_fn an_confusion_report;

#endif
