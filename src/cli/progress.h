/* progress.h: what `anneal train` prints. On stderr: the memory bill, a progress line of at most 80 columns,
 * evaluations, at the end a curve of the losses and where the time went. With log_format=nanogpt, nanoGPT's lines on
 * stdout in place of progress line and curve (progress_nanogpt.c).
 *
 * '% of peak' (utilization: MFU with the peak measured) is the model's operations in the time of an update as a share of
 * an_fma_peak, which anneal.h says for each device. */
#ifndef AN_CLI_PROGRESS_H
#define AN_CLI_PROGRESS_H

#include "cli/cli.h"
#include "train/loop.h"
#include "tools/estimate.h"

typedef struct an_progress {
    bool quiet, terminal, nanogpt;
    bool warned;        /* of a loss far above that of guessing */
    double shown;       /* clock when progress was last shown */
    bool open_line;     /* the cursor is at the end of a progress line that has no newline so far */
    double peak_gflops; /* of this machine's multiply-adds, measured once; 0: not known, < 0: not measured yet */
    const an_estimate *estimate; /* the memory that the run takes; NULL: not printed */
    int64_t first_step;          /* that was logged; < 0: none yet. nanoGPT gives no MFU for the first five */
    const char *out;             /* the run's folder, where a request to stop is looked for; NULL: nowhere */
    double looked;               /* clock at the last look */
    double mfu;                  /* running, as nanoGPT has it; < 0: none yet */
} an_progress;

void an_progress_begin(an_progress *n, const an_session *r, bool quiet);
void an_progress_run(an_progress *n, const an_session *r);
/* The callback of an_train_listener; `arg` is the an_progress. */
void an_progress_event(void *arg, const an_session *r, const an_train_event *e);
void an_progress_end(an_progress *n, const an_session *r, const an_train_result *result);
/* Ends a progress line that has no newline so far. */
void an_progress_close(an_progress *n);
/* The bill in a few lines, on stderr. */
void an_progress_bill(const an_bill *b, an_cpu_launches on_cpu);

/* nanoGPT's lines (train.py of its commit 3adf61e): of files and settings given, before the first update, and of an event. */
void an_nanogpt_overrides(const an_args *args);
void an_nanogpt_begin(const an_session *r);
void an_nanogpt_tell(an_progress *n, const an_session *r, const an_train_event *e);

/* 1234567 as "1,234,567"; 76543 as "76.5k", 1234567 as "1.23M"; seconds as "3 s", "4:07", "2:03:55". */
/* number_text.c */
const char *an_grouped(int64_t v, char out[32]);
const char *an_short_number(double v, char out[32]);
const char *an_duration(double seconds, char out[32]);

#endif
