/* rank_times.h: where the time of each rank goes: a table of all ranks for every logged update.
 *
 * Owns:      DIR/ranks.jsonl and its keys; which rank is the slowest.
 * Does not:  measure: the loop does (loop.c), and comm/ its own waits. */
#ifndef AN_TRAIN_RANK_TIMES_H
#define AN_TRAIN_RANK_TIMES_H

#include "comm/comm.h"
#include "io/formats/jsonl.h"

/* Of one rank, a mean over the updates since the last line. NaN: unknown. */
typedef struct an_rank_times {
    double ms;                    /* of an update */
    double exchange_ms, wait_ms;  /* of it: in exchanges with other ranks; of these, until the others came */
    double exposed_ms;            /* of exchange_ms: beside which nothing else ran */
    double data_wait_ms;          /* of it: until a batch was there */
    double rss_bytes, live_bytes; /* of the process; on its device */
} an_rank_times;

/* The table of all ranks, on every rank. */
an_status an_rank_times_gather(an_err *err, an_comm *c, const an_rank_times *mine, an_rank_times all[AN_COMM_RANKS]);
/* The rank that the others wait for, and by how much it is slower than their mean (0.1: a tenth); -1: unknown. */
int an_rank_times_slowest(const an_rank_times *all, int ranks, double *slower);
/* The mean share of an update that is spent in exchanges, and in nothing else; NaN: unknown. */
double an_rank_times_share(const an_rank_times *all, int ranks);

/* Rank 0 opens the file and drops its lines from update `step` on, as an_metrics_open does; then writes a line for each
 * rank. */
an_status an_rank_times_open(an_err *err, const char *dir, int64_t step, an_jsonl *out);
an_status an_rank_times_write(an_err *err, an_jsonl *j, int64_t step, const an_rank_times *all, int ranks);

#endif
