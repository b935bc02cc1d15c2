/* metrics.h: what a run writes for other programs, in its folder:
 *   metrics.jsonl   a line for each logged update;
 *   config.yaml     its settings;
 *   logbook.jsonl   the history of the run: a line when a program starts to train in the folder (versions, machine,
 *                   data), when its first step is planned (memory, work), when the machine gets hot or short of memory,
 *                   and when training ends. */
#ifndef AN_REPORT_METRICS_H
#define AN_REPORT_METRICS_H

#include "train/loop.h"
#include "platform/system_info.h"
#include "io/formats/jsonl.h"

/* Opens DIR/metrics.jsonl for a run that continues at update `step`: lines of later updates are cut off. */
an_status an_metrics_open(an_err *err, const char *dir, int64_t step, an_jsonl *out);
/* {"step":..,"loss":..,"lr":..,"grad_norm":..,"ms":..,"tokens_per_s":..,"data_wait_ms":..}, "gpu_busy" on a device that
 * measures its own time, and when `evaluated` "val_loss" (and "train_loss" where that split was too). A number that is
 * not finite is null. */
an_status an_metrics_write(an_err *err, an_jsonl *j, const an_train_event *e, bool evaluated);

/* Checks the device with one product, writes config.yaml and the beginning's line. What is odd about the folder's past
 * (another machine, a clock that went back) goes to `notes`, a sentence for people. */
an_status an_logbook_begin(an_err *err, const an_session *r, an_text *notes);
/* The bill, after the first update. */
an_status an_logbook_plan(an_err *err, const an_session *r);
/* What has changed about the machine: the sentences of report/machine_monitor.h. */
an_status an_logbook_machine(an_err *err, const an_session *r, const char *what, const an_system_info *facts);
/* `how` training ended ("end", "interrupted", "failed"), and its result. */
an_status an_logbook_end(an_err *err, const an_session *r, const char *how, const an_train_result *result);

#endif
