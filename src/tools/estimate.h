/* estimate.h: the memory that a run needs, before it allocates; whether it fits; which changes would make it fit.
 *
 * Owns:      adding up the plans of a run (micro-batches, update, evaluation), its data, loader and checkpoint buffers;
 *            the limits of this process; the largest batch for a budget; the smallest changes that fit.
 * Does not:  allocate or run a plan, or print.
 *
 * The bytes requested from the device and the heap for tensors are exact. The program itself (code, libraries, stacks,
 * the C library's reserve) is an estimate from a measurement and is listed separately. */
#ifndef AN_TOOLS_ESTIMATE_H
#define AN_TOOLS_ESTIMATE_H

#include "train/session.h"

/* Margin for kernels that are loaded later and for differences between two runs of a program. A run that exceeds a
 * limit by less than this is started. */
enum { AN_ESTIMATE_MARGIN_BYTES = 8 << 20 };

typedef struct an_estimate {
    an_bill bill;           /* of the update's plan, but peak_bytes and the kinds are of the run's fullest plan */
    uint64_t data_bytes;    /* data held in memory; files that are mapped are not counted */
    uint64_t worker_bytes;  /* the loader's batches */
    uint64_t host_bytes;    /* an evaluation's batch, a tensor being written to a checkpoint */
    uint64_t total_bytes;   /* peak_bytes and the three above: what `budget` and --fit are about */
    uint64_t process_bytes; /* the program itself: resident now without the data, and what its threads will add */
    uint64_t address_bytes; /* of address space in total: what ulimit -v must allow */
    /* Of a GPU: what a run may request, and what driver, libraries and other programs hold now, before any launch.
     * Zeros: the CPU, or unknown. */
    uint64_t device_limit_bytes, driver_bytes;
    bool device_shares; /* the GPU shares the host's memory */
    char largest[160];  /* the largest tensor in the update's plan, with its scope */
    uint64_t largest_bytes;
} an_estimate;

/* Estimates an open run; its plans stay cached for training. AN_E_BUDGET: the device's plan is over the budget. */
an_status an_estimate_run(an_err *err, an_session *r, an_estimate *out);
/* The same for settings, for which it opens a run. Their vocabulary must be set; `data` may be NULL. Their budget is
 * ignored: recompute=auto recomputes where it would without one. */
an_status an_estimate_settings(an_err *err, const an_train_config *c, const an_task_data *data, an_estimate *out);

/* Bytes of a device's memory in use beside what the context has requested: the driver's, the libraries', kernels and
 * graphs, and other programs'. 0: unknown, or a CPU, where resident memory includes it. */
uint64_t an_estimate_driver(const an_ctx *cx);

/* A readable name of a plan's tensor: what it is and in which scope. */
struct an_plan_tensor;
const char *an_estimate_name(const struct an_plan_tensor *t, char out[160]);

/* ---- fitting */

/* The part of an estimate that a limit applies to: all of it, the GPU's memory, or the host's. */
typedef enum an_estimate_part { AN_ESTIMATE_ALL, AN_ESTIMATE_DEVICE, AN_ESTIMATE_HOST } an_estimate_part;
typedef struct an_limit {
    uint64_t bytes; /* the most that the part may use */
    an_estimate_part part;
    const char *name; /* "the budget" */
} an_limit;

typedef struct an_fit {
    int64_t batch_size; /* 0: not even one sample */
    bool recompute;
    uint64_t total_bytes; /* of the limit's part, with this batch */
    uint64_t next_bytes;  /* with one more sample; 0: 2^20 fit, or a tensor would have 2^31 elements */
} an_fit;

/* The largest micro-batch with which `c` is within the limit, without or with recomputation. */
an_status an_fit_batch(an_err *err, const an_train_config *c, const an_task_data *data, const an_limit *limit,
                       bool recompute, an_fit *out);

enum { AN_FIT_WORDS = 64 };
/* `c` with weights and moments kept in bfloat16 where they are not and may be, and those settings as words; false: there is
 * none of them. */
bool an_fit_narrower(const an_train_config *c, an_train_config *out, char words[AN_FIT_WORDS]);

/* In how many equal micro-batches (*out) the batch of an open run must be divided, so that a run needs at most `bytes`: as
 * few as possible. `p` is its estimate as it is. AN_E_BUDGET: even one sample needs more. */
an_status an_fit_parts(an_err *err, const an_session *r, const an_estimate *p, uint64_t bytes, int64_t *out);

/* Appends the smallest changes, each of which would make `c` fit, with its bytes: one each of recomputation, batch,
 * precision and the numbers of the model (the keys of an_model.halve). */
an_status an_fit_advice(an_err *err, const an_train_config *c, const an_task_data *data, const an_limit *limit,
                        an_text *out);

/* AN_E_BUDGET, with need, limit and the smallest changes, when the run will not fit. */
an_status an_estimate_check(an_err *err, an_session *r, an_estimate *out);

#endif
