/* plan.h: the plan: steps, kernels, slots. Plain data that can be printed, cached and run; devices see nothing else.
 *
 *     slot 0  arena: values and scratch, by offset       step:  kernel, arguments (slot, offset), scratch
 *     slot 1  inputs of the step                         value: bytes in a slot, first and last step of its life
 *     slot 2+ weights, gradients, states: persistent     kernel: loop kernel with its text, or the spec of a library op
 *
 * Owns:       the layout of a plan.
 * Does not:   make one (planner/) or run one (device/).
 * Invariants: steps are in execution order; a step reads only what earlier steps or the caller wrote; two values that
 *             live at the same time do not overlap in the arena; all that a plan points to is in its own memory.
 */
#ifndef AN_IR_PLAN_H
#define AN_IR_PLAN_H

#include "ir/loop_kernel.h"
#include "ir/library_ops.h"

/* Slots a device binds before a submit. Slot 0 is the plan's arena, slot 1 the step's inputs, further ones the
 * context's persistent buffers. */
enum { AN_SLOT_ARENA = 0, AN_SLOT_INPUT = 1, AN_SLOT_FIRST = 2 };
#define AN_INPUT_RNG 0 /* the first 8 bytes of the input slot: u32 key, u32 global number of sample 0 */

typedef enum an_kernel_kind {
    AN_KERNEL_LOOP, /* loop kernel (also a GEMM's epilogue) */
    AN_KERNEL_GEMM,
    AN_KERNEL_ATTN,
    AN_KERNEL_ATTN_GRAD,
    AN_KERNEL_SCATTER,
    AN_KERNEL_CALL,      /* a library call: sort, cumulative sum, factorization, ... */
    AN_KERNEL_ZERO,      /* fill with zero bytes: padding of a packed block */
    AN_KERNEL_COPY,      /* contiguous bytes */
    AN_KERNEL_ROW_UPDATE /* a row at a position known at run time; only for targets with an_target.row_update */
} an_kernel_kind;

typedef struct an_call_tensor {
    uint8_t rank, dtype;
    int32_t shape[AN_MAX_RANK];
} an_call_tensor;
typedef struct an_library_call_spec { /* args: sources in order, then outputs; all contiguous */
    an_op op;
    uint8_t dtype, n_src, n_out;
    an_call_tensor src[3], out[3];
    int64_t attr
        [8]; /* the node's. GROUPED_MATMUL and GROUPED_OUTER: strides of the first operand's axes, then of the second's. Made by the planner, of a range: ALLGATHER {ranks, elements of a part, first element},
                      * REDUCESCATTER {ranks, may begin early, elements of a part, first element} */
} an_library_call_spec;

/* Rotated attention (an_target.rotates): the factors are q and k turned by rotary positions, each pair (d, d + D/2) of row t by
 * its angle, rounded to the spec's dtype; dq and dk are turned back after they were rounded.
 *     two more args     cosines [T,D/2], sines [T,2,D/2], f32, for columns d and d + D/2; what they lack before them is absent
 *     factor            x[d] cosines[t,d] + x[d + D/2] sines[t,0,d],  x[d + D/2] cosines[t,d] + x[d] sines[t,1,d]
 *     gradient          the same with sines[t,1,d] in the first and sines[t,0,d] in the second */
enum { AN_ATTN_TABLES = 7, AN_ATTN_GRAD_TABLES = 10 }; /* which arguments they are, forward and backward */

typedef struct an_kernel {
    an_kernel_kind kind;
    bool rotated; /* attention */
    const char *name;
    union {
        an_loop_kernel *loop;
        an_gemm_spec gemm;
        an_attn_spec attn;
        an_scatter_spec scatter;
        an_library_call_spec call;
        an_row_update_spec row_update;
    } u;
    const char *text; /* rendered source of a loop kernel; the same pointer in kernels of one text */
    uint64_t key;     /* hash of text */
    uint64_t flops, bytes;
} an_kernel;

typedef struct an_arg {
    int32_t slot; /* -1: absent (NULL) */
    int64_t offset, bytes;
    bool written;
    int32_t value; /* index into plan values, -1 */
} an_arg;

typedef struct an_plan_step {
    int32_t kernel;
    int32_t epilogue; /* kernel number of a GEMM's AN_TILE kernel, -1 none; its arguments follow the GEMM's */
    int32_t n_args, n_gemm_args; /* n_gemm_args: of them A, B and C; the epilogue's follow */
    an_arg *arg;
    int64_t scratch, scratch_bytes; /* in the arena */
    bool commit;                    /* writes persistent state */
    bool recompute;                 /* a rematerialized copy: work of the forward pass done again */
    bool
        gated; /* a GEMM that the device may launch with the step behind it (an_target.gates): its operands live until then */
    int32_t remat_outputs; /* rematerialized values it writes beside its own */
    bool fallback;         /* the CPU runs it, on the same memory: the device cannot, or it was placed there */
    bool placed;           /* it was placed there */
    uint8_t phase;         /* an_phase of the node that it was launched for */
    const char *scope;
    uint64_t flops, bytes;
} an_plan_step;

typedef enum an_usage {
    AN_USE_WEIGHT,
    AN_USE_GRADIENT,
    AN_USE_MOMENT,
    AN_USE_STATE,
    AN_USE_ACTIVATION,
    AN_USE_SCRATCH,
    AN_USE_INPUT,
    AN_N_USES
} an_usage;

typedef struct an_value { /* a tensor that exists in memory */
    int32_t node;         /* graph node, -1: scratch */
    int32_t output;       /* which output of it */
    int32_t slot;
    int64_t offset, bytes; /* offset: in the slot, or in the value it is inside of */
    int32_t first, last;   /* steps of its life; last == n_steps: until the plan's end */
    int32_t inside;        /* value whose memory this one is part of, -1 */
    uint8_t usage;         /* an_usage */
    const char *name;
} an_value;

typedef struct an_plan_input { /* what the caller fills in slot 1 before a submit */
    int32_t leaf_kind, leaf_index;
    int64_t offset, bytes;
} an_plan_input;

typedef struct an_plan {
    an_arena arena;
    uint64_t key;
    int32_t n_kernels, n_steps, n_values, n_inputs, n_roots;
    an_kernel *kernel;
    an_plan_step *step;
    an_value *value;
    an_plan_input *input;
    int32_t *root; /* value of each root */
    int64_t arena_bytes, input_bytes;
    bool isolate_values;     /* values do not share memory; guard bytes between them are checked after each step */
    int32_t n_split;         /* groups that exceeded a kernel's limits and were split */
    const char *first_split; /* name and reason of the first, NULL */
    an_bill bill;
    char *text_plan, *text_memory;
} an_plan;

void an_plan_free(an_plan *p);
bool an_kernel_is_exchange(const an_kernel *k); /* between ranks */
/* The first kernel with the text of kernel k, k itself when it is the first: what a device compiles once. */
int32_t an_kernel_first(const an_plan *p, int32_t k);
int64_t an_value_offset(const an_plan *p, int32_t value,
                        int32_t *slot); /* where it begins in its slot, through all it is inside of */
/* Whether all tensors that the step touches begin on 16 bytes, as slots do. */
bool an_step_aligned(const an_plan_step *s);
/* "768x384x128 f32" of a GEMM, "768 x 128 over 6" of a loop kernel; nothing of others. */
void an_plan_shape(const an_plan *p, int step, an_text *out);
void an_plan_print(const an_plan *p, an_text *out);

#endif
