/* predict.h: a model's outputs for rows of an array: probabilities of classes, or values.
 *
 * Owns:      running the model on batches of rows, the last one padded.
 * Does not:  read files or print. */
#ifndef AN_INFER_PREDICT_H
#define AN_INFER_PREDICT_H

#include "io/formats/npy.h"
#include "train/session.h"

typedef struct an_predictions {
    float *value; /* [rows,columns]; free() it */
    int64_t rows, columns;
} an_predictions;

/* `in`: rows along the first axis, each with as many numbers as the model reads. */
an_status an_predict(an_err *err, an_session *r, const an_npy *in, an_predictions *out);
/* The same for samples that the task made (an_task.questions). */
an_status an_predict_questions(an_err *err, an_session *r, const an_questions *q, an_predictions *out);

#endif
