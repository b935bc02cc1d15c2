/* metrics.h: what a run writes for other programs.
 *
 *     metrics.jsonl   a line a logged update
 *     config.yaml     the settings
 *     logbook.jsonl   the history of the run: a line when a program starts to train in the folder (versions, machine,
 *                     data), when its first step is planned (memory, work), when the machine gets hot or short of
 *                     memory, and when training ends
 *
 * Owns:      the keys and the order of these lines.
 * Does not:  know sessions or models: the caller passes facts. */
#ifndef AN_REPORT_METRICS_H
#define AN_REPORT_METRICS_H

#include "io/checkpoint.h"
#include "io/data/arrays.h"
#include "io/formats/jsonl.h"
#include "platform/system_info.h"
#include <anneal_tools.h>

/* Opens DIR/metrics.jsonl for a run that continues at update `step`: the lines from that update on are dropped. */
an_status an_metrics_open(an_err *err, const char *dir, int64_t step, an_jsonl *out);
/* A line of metrics: an update's numbers. NaN is written as null, or left out where the member says so. */
typedef struct an_metrics_number {
    const char *name; /* NULL past the last */
    double value;
} an_metrics_number;
typedef struct an_metrics_line {
    int64_t step; /* the update's number; -1: an evaluation before the first */
    double loss, lr, norm, ms, units_per_s, data_wait_ms;
    double cpu_wait_ms; /* until a processor was free; NaN: unknown, left out */
    const char *unit;   /* "token": what units_per_s counts */
    bool evaluated;     /* val_loss is there, and train_loss where it is a number */
    double val_loss, train_loss;
    double scale; /* of float16's loss, with `skipped` updates; 0: there is none */
    int64_t skipped;
    double live_bytes, reserved_bytes; /* on the device: in use, requested */
    double rss_bytes, swap_bytes;      /* of this process; in use on the machine */
    double heap_bytes, mapped_bytes;   /* of the process' bytes: the C library's heap, pages of mapped files */
    const char *thermal;               /* heat in the system's words at the last look; NULL or "": not told, left out */
    double plans;                      /* in the context's cache. NaN in these: unknown, left out */
    double temperature_c;              /* of the processor at the last look; NaN: unknown, left out */
    double gpu_busy;                   /* NaN: neither the device nor NVIDIA's library says, and the key is left out */
    double gpu_temperature_c;          /* by NVIDIA's library; the same */
    double exchange_share;             /* of the time, in exchanges between ranks; the same */
    an_metrics_number more[17]; /* the model's other numbers: 2 x AN_MODEL_SUMS at most, then one without a name */
} an_metrics_line;

/* {"step":..,"loss":..,"lr":..,"grad_norm":..,"ms":..,"tokens_per_s":..,"data_wait_ms":..,"unit":..,"units_per_s":..}
 * and the others where they are. tokens_per_s is units_per_s again, of runs whose unit is a token. */
an_status an_metrics_write(an_err *err, an_jsonl *j, const an_metrics_line *m);

/* What the logbook says of a run. Texts are the caller's and never NULL. */
typedef struct an_logbook {
    const char *dir, *preset, *note, *commit, *recompute;
    int64_t step; /* updates done */
    /* data: what data= says, and units and hash of each split */
    const char *data, *units;
    bool data_built_in;
    const struct an_storage *disk; /* of the data, measured already; NULL: it is measured for the line */
    int64_t count[AN_N_SPLITS];
    const char *xxh3[AN_N_SPLITS];
    int64_t workers;
    /* the device */
    an_ctx *cx;
    const char *device, *isa;
    int threads;
    an_dtype dtype, weights_dtype, moments_dtype;
    bool fused;
} an_logbook;

/* Checks the device with one GEMM, writes config.yaml and the beginning's line, with the settings as YAML and as
 * JSON. What is odd about the folder's past (another machine, a clock that went back) goes to `notes`, a sentence for
 * people. */
an_status an_logbook_begin(an_err *err, const an_logbook *b, const an_text *yaml, const an_text *json, an_text *notes);
/* Name and architecture: what identifies this machine in the logbook. */
void an_logbook_host(char out[256]);
/* What the beginning's line says of machine, program and variables: members of a JSON object, each after a comma. */
void an_logbook_put_machine(const char *commit, an_text *out);
/* The bill, after the first update. */
an_status an_logbook_plan(an_err *err, const an_logbook *b, const an_bill *bill, an_cpu_launches on_cpu);
/* What has changed about the machine: the sentences of report/machine_monitor.h. */
an_status an_logbook_machine(an_err *err, const an_logbook *b, const char *what, const an_system_info *facts);
/* The last line: `how` training ended ("end", "interrupted", "failed"), its numbers, up to one without a name, and why it
 * failed (NULL: it did not). */
an_status an_logbook_end(an_err *err, const an_logbook *b, const char *how, const an_metrics_number *numbers,
                         const char *error);
/* A line of another event in DIR/logbook.jsonl; `members` is JSON that begins with a comma, or NULL. */
an_status an_logbook_add(an_err *err, const char *dir, int64_t step, const char *event, const an_text *members);

#endif
