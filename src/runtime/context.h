/* context.h: struct an_ctx, the state of one context, and the types of its tables.
 *
 * Every module of runtime/ and optim/ works on this struct. Each field is written by the module named above its group
 * and by open.c, which creates and frees everything; other modules only read it.
 *
 * A module is a source file, with a header of its name where others call it. A module calls only modules to its left:
 *
 *     context <- in_flight, buffers <- variables <- param_blocks, stores <- assign_params, persist, bind
 *             <- plan_cache <- memory <- execute, oracle_eval <- results <- eval <- round_weights, open
 *
 * plan_report, introspect, memory_scopes and check_kernels read all of it. optim/ comes after runtime/ and is reached
 * from here only through an_step_hooks. tools/layers checks that no circle appears.
 */
#ifndef AN_RUNTIME_CONTEXT_H
#define AN_RUNTIME_CONTEXT_H

#include "device/device.h"
#include "graph/graph.h"
#include "planner/planner.h"

#include <anneal_tools.h>

/* The arrays that a parameter block can have. */
typedef enum an_role { AN_ROLE_PARAM, AN_ROLE_M, AN_ROLE_V, AN_ROLE_AVERAGE, AN_ROLE_GRAD, AN_N_ROLES } an_role;

/* A persistent buffer: an array of a parameter block, or a state. It is declared first (and counted in the memory
 * report), and allocated and initialized by the first an_eval or access. Slot AN_SLOT_FIRST + i of every plan is store
 * i. */
typedef enum an_binding { AN_UNBOUND, AN_BOUND, AN_BOUND_WRITTEN } an_binding;
typedef struct an_store {
    int64_t bytes;
    an_usage usage;
    an_buffer mem;
    bool allocated;   /* `mem` is valid; also true of a store of zero bytes */
    bool ready;       /* holds its initial values */
    an_binding bound; /* `mem` is the caller's, and then not `allocated`: bind.c */
    const char *name;
} an_store;

typedef struct an_param_info {
    const char *name;
    an_tensor *tensor;
    an_init init;
    bool decay, frozen;
    int32_t block;  /* index into an_ctx.block; -1 until the layout is fixed (an_layout_params) */
    int64_t offset; /* bytes from the start of the block */
} an_param_info;

/* Parameters of one (dtype, decay, frozen), laid out one after the other, each 256-byte aligned:
 *
 *     block  | wte ....... | wpe ... pad | h.0.attn.w ...... pad | ...     numel elements
 *
 * Gradients and moments of the block are arrays of the same layout, so that an optimizer is elementwise arithmetic over a
 * few large arrays, whatever the number of parameters. */
typedef struct an_block {
    an_dtype dtype, moments; /* of parameters and gradients; of the optimizer's arrays */
    bool decay, frozen;
    int64_t numel;                 /* padding included */
    int64_t used;                  /* numel without the padding that makes the parts equal */
    int64_t part;                  /* elements of the part that each rank updates; 0: each updates all of it */
    int32_t n, *param;             /* indices into an_ctx.param, in order of creation */
    int32_t store[AN_N_ROLES];     /* index into an_ctx.store; -1: this array was never asked for */
    an_tensor *tensor[AN_N_ROLES]; /* persistent leaves [numel] */

    /* Written by optim/grad_accumulate.c. */
    an_tensor *packed;        /* this step's gradients [numel] that no optimizer has consumed; NULL: none */
    an_tensor *kept;          /* this step's sum, already assigned to the gradient store; NULL: none */
    bool accumulated;         /* the gradient store holds the sum of earlier micro-batches */
    bool accumulated_by_step; /* the value of `accumulated` once this step has run */
} an_block;

typedef struct an_state_info {
    const char *name;
    an_tensor *tensor;
    an_init init;
    const void *data; /* of a constant: its values; NULL: a state */
    int32_t store;
} an_state_info;

typedef struct an_input_info {
    void *data; /* this step's copy, or lent; NULL: the caller gave none, and the step can only be planned */
    size_t bytes;
    const char *at;
    bool lent;
} an_input_info;

typedef struct an_cached_plan {
    uint64_t key, used; /* used: an_ctx.clock of the last use */
    an_plan *plan;
    an_exec *exec; /* NULL until the device has loaded it */
    an_load_stats stats;
    uint64_t *node_hash; /* [n_nodes] of the graph it was made for, to explain the next cache miss */
    int32_t n_nodes;
    char *request; /* everything the plan was made from, serialized: the key is only a hash */
    size_t request_bytes;
} an_cached_plan;

/* What a part to the right of runtime/ does at the boundaries of a step. Registered in an_ctx.hooks. */
typedef struct an_step_hooks {
    void (*before_plan)(an_ctx *cx); /* may still append nodes */
    void (*completed)(an_ctx *cx);   /* the step was handed to the device */
    void (*discarded)(an_ctx *cx);   /* an_reset: what was built and did not run has no effect */
} an_step_hooks;

enum { AN_PLAN_CACHE = 16, AN_MAX_IN_FLIGHT = 4 };

struct an_ctx {
    an_graph graph; /* first: graph/ converts an an_ctx to its an_graph (an_ctx_graph) */

    /* context.c */
    an_err err;
    an_arena forever; /* names and tables */
    an_arena step;    /* this step's input data */
    an_options options;
    uint64_t step_number, sample;

    /* open.c */
    const an_backend *backend;
    an_device *device; /* NULL: an_open failed and `err` says why */
    char *device_text; /* an_report_text(cx, "device") */
    int recompute;     /* 0 off, 1 on, 2 auto */
    an_shard shard;    /* of several ranks */
    bool no_overlap;   /* exchanges wait for the whole backward pass */
    bool narrow;       /* ranks exchange gradients in bfloat16 */

    /* variables.c; stores.c: store */
    an_param_info *param;
    an_block *block;
    an_state_info *state;
    an_store *store;
    an_input_info *input;
    double *scalar;        /* this step's, of whatever dtype */
    uint8_t *scalar_dtype; /* AN_F32, AN_F64 or AN_I32 */
    int32_t n_params, cap_params, n_blocks, cap_blocks, n_states, cap_states, n_stores, cap_stores, n_inputs,
        cap_inputs, n_scalars, cap_scalars;

    /* optim/ema.c */
    bool averages; /* graphs read the averages of an_ema in place of the parameters (an_use_averages) */

    /* round_weights.c */
    bool rounded; /* weights are read as an_round_weights keeps them */

    /* buffers.c */
    uint64_t allocations, allocated_bytes, peak_bytes;

    /* in_flight.c */
    an_ticket flight[AN_MAX_IN_FLIGHT]; /* submitted steps that have not been seen to end, oldest first */
    int32_t n_flight;
    an_err failed; /* of a step in flight: nothing runs after it */
    int64_t waits, stalls;
    an_sync *wait; /* [n_waits], by source location */
    int32_t n_waits, cap_waits, syncs;

    /* plan_cache.c */
    an_cached_plan plans[AN_PLAN_CACHE];
    an_cached_plan *last; /* of the last an_eval or an_plan: what an_report describes */
    uint64_t clock;
    char *miss;      /* why the last plan was not found in the cache; NULL: it was, or it was the first */
    an_err dump_err; /* the first dump that could not be written */

    /* execute.c */
    an_buffer arena;
    an_buffer inputs[AN_MAX_IN_FLIGHT]; /* used round robin; one where the queue keeps writes in order */
    int32_t now;                        /* index into `inputs` of the newest step */
    void *image; /* staging copy of an input block, for a device whose memory the host cannot reach */
    size_t image_bytes;

    /* eval.c */
    int32_t effects_from; /* assignments from this node on have not run yet */
    int32_t ran_from;     /* the value of `effects_from` before the last an_eval */
    int32_t *root;        /* [n_roots] nodes that an_read can read now */
    int32_t *asked;       /* the roots of the an_eval or an_plan in progress */
    int32_t n_roots, cap_roots, cap_asked;
    uint32_t root_epoch;
    an_cached_plan *ran; /* of the last an_eval: where its roots are */

    /* results.c: an_peek returns the newest scalar loss without waiting */
    double peek_value;
    int64_t peek_step;
    bool peek_valid;
    bool peek_later; /* the newest step's scalar is still being computed; it will be at the place below */
    int32_t peek_slot;
    int64_t peek_at, peek_later_step;
    an_dtype peek_dtype;

    /* plan_report.c */
    char *text; /* the last an_report_text */

    /* optim/ */
    const an_step_hooks *hooks; /* NULL: no gradients were asked for */
    int32_t loss;               /* node of an_backward's loss; -1: none in this step */
    uint64_t updates;           /* optimizer updates that have run */
    uint64_t updates_by_step;   /* the value of `updates` once this step has run */
};

_Static_assert(offsetof(struct an_ctx, graph) == 0, "an_ctx_graph converts a context to its first member");

bool an_is_ref(const an_ctx *cx); /* the device "ref" evaluates nodes with the oracle and has no plans */

#endif
