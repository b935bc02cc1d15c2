/* profile.h: where the time of a step goes: each launch of the plan on the device, and what the host does around it.
 *
 * Owns:      the steps that are timed, the medians, the trace for Chrome's and Perfetto's viewers.
 * Does not:  print, or save the parameters that the profiled steps change.
 *
 * Invariant: a launch's share is of the roofline measured in the same run:
 *
 *     share = max(flops / peak flops, bytes / peak bandwidth) / measured time
 *
 * A launch above 1 has data that stay in caches, or the roofline was measured while the machine was busy: it gets no
 * share.
 */
#ifndef AN_TOOLS_PROFILE_H
#define AN_TOOLS_PROFILE_H

#include "io/data/loader.h"
#include "tools/bench_op.h"

typedef enum an_profile_what { AN_PROFILE_TRAIN, AN_PROFILE_FORWARD, AN_PROFILE_DATA } an_profile_what;

typedef struct an_profile_options {
    an_profile_what what;
    int64_t warmup, steps; /* untimed and timed steps; before both runs one more, which plans and compiles */
    const char *trace;     /* file for trace events, NULL: none */
    bool fixed;            /* one random batch for every step, in place of the data, which need not be there */
    void (*tell)(void *arg, int64_t done, int64_t all); /* progress callback, between steps; NULL: none */
    void *tell_arg;
} an_profile_options;

typedef struct an_profile_launch { /* medians over the steps */
    const char *kernel, *scope, *kind, *phase, *shape;
    double device_s;  /* 0: unknown */
    double enqueue_s; /* < 0: unknown, or not applicable */
    bool exchange;    /* between ranks */
    double share;     /* of the roofline; 0: unknown */
    bool above_roof;  /* the share is above 1 by more than noise; share is 0 */
    uint64_t flops, bytes;
    bool recompute;
    bool on_cpu; /* the CPU ran it for the GPU: place=, fallback=cpu */
} an_profile_launch;

typedef struct an_profile_result {
    an_profile_launch *launch; /* in the plan's order; names are in `memory` */
    int n_launches;
    double step_ms;                              /* median of full steps: data, build and run */
    double data_ms, build_ms, run_ms, device_ms; /* waiting for a batch; building the graph; eval; its launches */
    double forward_ms, backward_ms, update_ms;   /* of device_ms */
    double exchange_ms, exposed_ms; /* in exchanges between ranks; of it, beside which nothing else ran; 0: one rank */
    an_loader_times loader;         /* of the timed steps' batches, by stage, all threads; 0 batches: fixed */
    an_roof roof;
    int n_above;   /* launches above the roofline */
    int64_t units; /* of the task, a step */
    void *memory;
} an_profile_result;

/* `c` as for training; one micro-batch of each rank an update. Every rank of c->comm calls it; the trace is rank 0's. */
an_status an_profile_steps(an_err *err, const an_train_config *c, const an_profile_options *o, an_profile_result *out);
/* Sets each launch's share and n_above from its time, its work and the roofline. */
void an_profile_shares(an_profile_result *p);
void an_profile_free(an_profile_result *p);

#endif
