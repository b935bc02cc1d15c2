/* confusion.h: the confusion matrix of a classifier over the validation split: how often class i is predicted as class j. */
#ifndef AN_INFER_CONFUSION_H
#define AN_INFER_CONFUSION_H

#include "train/session.h"

/* *out: counts [classes,classes], rows are labels, columns predictions; free() it. *classes 0 and *out NULL: the model
 * predicts no classes, or of more than AN_CONFUSION_MOST. Needs a session with data. */
enum { AN_CONFUSION_MOST = 1024 };
an_status an_confusion(an_err *err, an_session *r, int64_t **out, int64_t *classes);

#endif
