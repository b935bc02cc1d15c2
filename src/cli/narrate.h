/* narrate.h: what training says on stderr: the bill, the progress line, evaluations, a curve at the end. */
#ifndef AN_CLI_NARRATE_H
#define AN_CLI_NARRATE_H

#include "train/loop.h"

typedef struct an_point {
    int64_t step;
    double loss, val_loss; /* val_loss NaN: not evaluated here */
} an_point;

typedef struct an_narrator {
    bool quiet, terminal;
    double shown;   /* clock when progress was last shown */
    bool open_line; /* a progress line without its newline stands on the terminal */
    an_point *points;
    size_t n, cap;
} an_narrator;

void an_narrate_begin(an_narrator *n, bool quiet);
void an_narrate_run(an_narrator *n, const an_run *r);
/* A listener's `tell`; `arg` is the narrator. */
void an_narrate(void *arg, const an_run *r, const an_train_event *e);
void an_narrate_end(an_narrator *n, const an_run *r, const an_train_result *result);
void an_narrate_free(an_narrator *n);
/* The bill in two lines, on stderr. */
void an_narrate_bill(const an_bill *b);

#endif
