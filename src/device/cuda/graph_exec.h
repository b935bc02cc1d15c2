/* graph_exec.h: a loaded plan on the GPU: the list of operations that lower_launches.c makes and graph_exec.c runs. */
#ifndef AN_DEVICE_CUDA_GRAPH_EXEC_H
#define AN_DEVICE_CUDA_GRAPH_EXEC_H

#include "base/arena.h"
#include "base/map.h"
#include "device/cuda/cuda_internal.h"
#include "ir/dependencies.h"

enum { REF_ANY = -1, REF_PARAMS = -2 };

typedef enum op_kind { OP_KERNEL, OP_FILL, OP_COPY, OP_GEMM, OP_CONV, OP_EXCHANGE } op_kind;

typedef struct ref { /* an address: an offset in a slot of the plan */
    int32_t slot;    /* or REF_ANY: an address that is never read; or REF_PARAMS: the operation's own parameters */
    int64_t offset;
} ref;

typedef struct stream_op {
    uint8_t kind;
    /* It may begin while the kernel before it ends (programmatic dependent launch): both are compiled with AN_FOLLOW. */
    bool follows;
    int32_t step, n_refs, module;
    const char *entry;
    cu_function fn;
    uint32_t blocks[3], threads, shared_bytes;
    ref *refs; /* kernels: parameters in order; fills: destination; copies: source, destination; GEMMs: A, B, C,
                  addend, workspace; convolutions: A, B, C, workspace; exchanges: source, destination */
    void *params;
    size_t bytes;       /* filled or copied */
    int64_t scratch;    /* bytes of its step's scratch that it really uses; -1: all of it */
    an_gemm_plan *gemm; /* OP_GEMM; and kernels whose first two parameters are tensor maps of A and B */
    an_gemm_ready ready;
    const an_conv_plan *conv; /* OP_CONV */
} stream_op;

struct an_exec {
    an_device *d;
    const an_plan *plan;
    an_gpu gpu; /* what texts are rendered for: the device's, and whether the plan's launches follow closely */
    an_arena arena;
    an_cuda_module *module;
    stream_op *op;
    int32_t n_modules, cap_modules, n_ops, n_slots;
    an_map seen; /* hash of a text → module */
    cu_pointer *base;
    cu_graph_exec graph[2]; /* the second has events, for a profiled run */
    bool *paired;           /* [n_steps]: the step's launch also does the next step's work */
    bool exchanges;         /* some step is an exchange between ranks */
    bool moved;             /* at the last submit a buffer had another address than before */
    bool timed;             /* the last run was a profiled one: the events hold its times */
    /* A chain: one before each step and one after the last. Where launches run side by side: before step s at 2 s, after it at
     * 2 s + 1, before all of them at 2 n_steps. */
    cu_event *event;   /* [2 n_steps + 1] */
    double *enqueue_s; /* [n_steps] */
    an_dependencies dependencies;
};

/* Lowers the plan's steps to e->op, with a module for every text. AN_E_UNSUPPORTED names a step that has no kernel. */
an_status an_cuda_lower(an_err *err, an_exec *e);
const char *an_cuda_step_name(const an_plan *p, const an_plan_step *s);
an_status an_cuda_no_memory_for_launches(an_err *err);

#endif
