/* runtime/runtime.h: the context. It joins the layers below: graph, planner, device. Shared by runtime/context.c (open, eval),
 * runtime/execute.c (steps in flight, reading), runtime/variables.c (parameters, states, inputs, what persists) and
 * optim/optimizers.c (backward, optimizers).
 *
 * Persistent memory is a table of buffers: the parts of parameter blocks, and states. A buffer is declared (its bytes
 * are in the bill) before it is allocated, and allocated at the first eval or access. Slot AN_SLOT_FIRST + i of every
 * plan is buffer i.
 */
#ifndef AN_RUNTIME_RUNTIME_H
#define AN_RUNTIME_RUNTIME_H

#include "device/device.h"
#include "graph/graph.h"
#include "planner/planner.h"

typedef enum an_role { AN_ROLE_PARAM, AN_ROLE_M, AN_ROLE_V, AN_ROLE_GRAD, AN_N_ROLES } an_role; /* parts of a block */

typedef struct an_store { /* a persistent buffer */
    int64_t bytes;
    an_usage usage;
    an_buffer mem;
    bool allocated, ready; /* of zero bytes too; ready: with its initial values */
    const char *name;
} an_store;

typedef struct an_param_info {
    const char *name;
    an_tensor *tensor;
    an_init init;
    bool decay, frozen;
    int32_t block;  /* -1 until the layout freezes */
    int64_t offset; /* bytes in the block */
} an_param_info;

typedef struct an_block { /* parameters of one dtype and decay, laid out one after the other, each 256-byte aligned */
    an_dtype dtype;
    bool decay, frozen;
    int64_t numel;                 /* padding included */
    int32_t n, *param;             /* in order of creation */
    int32_t store[AN_N_ROLES];     /* -1: not there */
    an_tensor *tensor[AN_N_ROLES]; /* persistent leaves [numel] */
    an_tensor *pack;               /* this step's gradients, NULL */
    bool pending;                  /* the gradient store holds earlier micro-batches */
    bool after;                    /* pending once this step has run */
    an_tensor *sum;                /* this step's, when it is to be kept */
} an_block;

typedef struct an_state_info {
    const char *name;
    an_tensor *tensor;
    an_init init;
    int32_t store;
} an_state_info;

typedef struct an_input_info {
    void *data; /* this step's copy; NULL: none was given */
    size_t bytes;
    const char *at;
} an_input_info;

typedef struct an_cached_plan {
    uint64_t key, used;
    an_plan *plan;
    an_exec *exec;
    an_load_stats stats;
    uint64_t *node_hash; /* of the graph it was made for: to explain the next miss */
    int32_t n_nodes;
    char *request; /* what it was asked for, whole: a key is only a hash */
    size_t request_bytes;
} an_cached_plan;

enum { AN_PLAN_CACHE = 16, AN_MOST_IN_FLIGHT = 4 };

struct an_ctx {
    an_err err;
    an_graph graph;
    an_arena forever; /* names and tables */
    an_arena step;    /* this step's input data */
    const an_backend *backend;
    an_device *device;
    an_options options;
    char *device_text, *text; /* an_device_text; the last an_report_text */

    an_param_info *param;
    an_block *block;
    an_state_info *state;
    an_store *store;
    an_input_info *input;
    double *scalar; /* this step's; i32 ones too */
    bool *scalar_int;
    int32_t n_params, cap_params, n_blocks, cap_blocks, n_states, cap_states, n_stores, cap_stores, n_inputs,
        cap_inputs, n_scalars, cap_scalars;

    an_cached_plan plans[AN_PLAN_CACHE];
    an_cached_plan *last; /* of the last eval or plan: what an_report tells about */
    an_cached_plan *ran;  /* of the last eval: where its roots stand */
    an_buffer arena;
    an_buffer inputs[AN_MOST_IN_FLIGHT]; /* in turn; one where the queue keeps writes in order */
    void *image;                         /* of an input block on its way to a device that the host cannot reach */
    size_t image_bytes;
    int32_t now;                         /* the block of the newest step */
    an_ticket flight[AN_MOST_IN_FLIGHT]; /* steps that have not been seen to end, oldest first */
    int32_t n_flight;
    an_err failed; /* of a step in flight: nothing runs after it */
    uint64_t clock, allocations, allocated_bytes, peak_bytes;
    char *miss;
    const char *warning; /* NULL: none */
    an_sync *wait;       /* [n_waits], by place */
    int32_t n_waits, cap_waits;
    an_err dump_err; /* the first dump that could not be written */

    uint64_t step_number, sample, updates;
    uint64_t updates_after; /* once this step has run */
    int32_t effects_from, loss;
    int32_t root[16], n_roots; /* nodes readable now */
    uint32_t root_epoch;
    double peek_value;
    int64_t peek_step;
    bool peek_valid;
    bool unseen; /* the newest step's first root is a number, and nobody has looked at it: where it stands */
    int32_t unseen_slot;
    int64_t unseen_at, unseen_step;
    an_dtype unseen_dtype;
    int32_t syncs;
    int64_t waits, stalls;
    int recompute;
    char **dump_passes;
};

an_status an_ctx_status(an_ctx *cx); /* the recorded error's code */

/* runtime/variables.c */
bool an_grow(void **array, int32_t n, int32_t *cap, size_t bytes); /* room for one more element, malloc'ed */
int32_t an_store_new(an_ctx *cx, int64_t bytes, an_usage usage, const char *name);
an_status an_freeze(an_ctx *cx);       /* puts parameters made since the last call into blocks */
an_status an_stores_ready(an_ctx *cx); /* allocates and initialises what is declared */
int64_t an_persistent_bytes(const an_ctx *cx, uint64_t by_usage[AN_N_USES]);
an_leaf_place an_leaf_place_of(void *cx, an_leaf kind, int index);
int64_t an_pack_place(void *cx, int block, int source, int64_t *block_bytes);
int an_block_leaf(int block, an_role role); /* index of a LEAF of kind BLOCK */
void an_leaves_close(an_ctx *cx);

/* runtime/memory.c */
an_status an_device_alloc(an_ctx *cx, size_t bytes, an_buffer *out); /* counted */
void an_memory_freed(an_ctx *cx, an_buffer *b);
an_status an_memory_admit(an_ctx *cx, const an_cached_plan *c); /* may what the plan still lacks be requested? */
void an_sync_note(an_ctx *cx, const char *at);

/* runtime/execute.c */
an_status an_run_plan(an_ctx *cx, an_cached_plan *c); /* submits; may return before the work ends */
an_status an_wait_idle(an_ctx *cx);                   /* waits for all steps in flight; counted */
an_status an_still_whole(an_ctx *cx);                 /* says again what failed in flight, if anything did */
int an_input_blocks(const an_ctx *cx);
an_status an_note_peek(an_ctx *cx); /* after a run: where an_peek will look */

/* runtime/context.c: gives back plans but `kept` (NULL: all), and the arena and input block where it does not fill them */
void an_drop_idle(an_ctx *cx, const an_cached_plan *kept);

/* runtime/oracle_eval.c: a context on the device "ref" has no plans */
bool an_is_ref(const an_ctx *cx);
an_status an_oracle_run(an_ctx *cx, const int32_t *roots, int n_roots);
an_status an_oracle_read(an_ctx *cx, int which, void *dst, size_t bytes); /* root number `which` of the last eval */

/* runtime/introspect.c */
const char *an_kernel_kind_text(an_kernel_kind kind); /* "row", "product", ...: as an_launch says it */

/* optim/loss_scaler.c */
an_tensor *an_scaler_inverse(const char *at, an_ctx *cx); /* what gradients of a scaled loss are multiplied by */
void an_scaler_update(const char *at, an_ctx *cx, an_tensor *ok, an_tensor *may);
an_tensor *an_scaler_mass(const char *at, an_ctx *cx, int which, double beta, an_tensor *ok); /* `which`: 1 or 2 */

/* optim/optimizers.c */
void an_flush_gradients(an_ctx *cx); /* gradients no optimizer took in this step are kept for the next */

#endif
