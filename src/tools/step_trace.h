/* step_trace.h: the stages of an update in the order in which they happen: where each runs, what it moves, what it waits
 * for, what is likely to go wrong in it; and how often data cross between processor and GPU.
 *
 * Owns:      the stages, their sentences, the count of crossings.
 * Does not:  run anything, measure, or print.
 *
 * Invariants: the launches of the stages add up to those of the plan; a crossing is either deliberate (a batch goes in,
 * numbers come out) or on the hot path (launches of a fallback), never both. Where host and device are the same processor
 * there is none. */
#ifndef AN_TOOLS_STEP_TRACE_H
#define AN_TOOLS_STEP_TRACE_H

#include "tools/estimate.h"
#include <anneal_tools.h>

typedef enum an_stage_kind {
    AN_STAGE_BATCH,
    AN_STAGE_MOVE,
    AN_STAGE_FORWARD,
    AN_STAGE_BACKWARD,
    AN_STAGE_EXCHANGE, /* of several ranks alone: without launches it is no stage */
    AN_STAGE_UPDATE,
    AN_STAGE_READ,
    AN_N_STAGES
} an_stage_kind;

typedef struct an_stage {
    const char *name; /* "forward" */
    char where[80];   /* "host", "cpu", "host to cuda" */
    uint64_t bytes;   /* made, moved, or read and written by launches, each time */
    uint64_t flops;
    int launches;  /* each time */
    int fallbacks; /* of these launches, run by the CPU in place of the GPU */
    int64_t times; /* how often it happens in `per_updates` updates */
    int64_t per_updates;
    bool boundary;   /* data go from one processor's reach to the other's here, deliberately */
    char waits[160]; /* for what the host waits; "no: ..." where it does not */
    char fails[200]; /* the likely failure, and what shows it */
} an_stage;

enum { AN_TRACE_CROSSINGS = 16 };
typedef struct an_step_trace {
    an_stage stage[AN_N_STAGES];
    int64_t micro_batches;
    bool apart;       /* host and device are different processors */
    int n_hot;        /* crossings on the hot path: two for each run of consecutive fallbacks */
    int fallback_end; /* the launch after the last fallback */
    int n_crossing;   /* runs of fallbacks listed below, at most AN_TRACE_CROSSINGS */
    struct an_crossing {
        int first, last; /* launches of the plan */
        uint64_t bytes;
        char scope[96];
    } crossing[AN_TRACE_CROSSINGS];
} an_step_trace;

/* Whether plans of the context are for a GPU, here or absent (null:cuda). */
bool an_plans_for_gpu(const an_ctx *cx);
/* Whether stage i is one of this update: what ranks exchange is where there are several. */
bool an_step_trace_has(const an_step_trace *t, int i);
/* Of the plan that the session made last, which an_estimate_run leaves as the update's. */
void an_step_trace_make(const an_session *r, const an_estimate *p, an_step_trace *out);
/* Adds launch `i` of the plan to its stage; called in the plan's order. Part of the above, declared for tests. */
void an_step_trace_add(an_step_trace *t, int i, const an_launch *l);

#endif
