/* record.h: what a run writes for other programs: metrics.jsonl, one line a logged update, and logbook.jsonl, one line
 * when a program starts to train in the folder and one when it ends. */
#ifndef AN_TRAIN_RECORD_H
#define AN_TRAIN_RECORD_H

#include "train/loop.h"
#include "io/jsonl.h"

/* Opens DIR/metrics.jsonl for a run that continues at update `step`: lines of later updates are cut off. */
an_status an_metrics_open(an_err *err, const char *dir, int64_t step, an_jsonl *out);
/* {"step":..,"loss":..,"lr":..,"grad_norm":..,"ms":..,"tokens_per_s":..,"data_wait_ms":..} and "val_loss" where
 * `evaluated`. A number that is not finite is null. */
an_status an_metrics_write(an_err *err, an_jsonl *j, const an_train_event *e, bool evaluated);

/* Appends a line to DIR/logbook.jsonl: versions, machine and settings at the start (`result` NULL), what came of it at
 * the end. */
an_status an_logbook_write(an_err *err, const an_run *r, const char *event, const an_train_result *result);

#endif
