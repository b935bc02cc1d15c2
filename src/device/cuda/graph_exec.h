/* graph_exec.h: a plan on the GPU as a list of calls: what lower_launches.c makes and graph_exec.c runs. */
#ifndef AN_DEVICE_CUDA_GRAPH_EXEC_H
#define AN_DEVICE_CUDA_GRAPH_EXEC_H

#include "base/arena.h"
#include "base/map.h"
#include "device/cuda/cuda_internal.h"
#include "ir/dependencies.h"

enum { REF_ANY = -1, REF_PARAMS = -2 };

typedef enum call_kind { CALL_KERNEL, CALL_FILL, CALL_COPY, CALL_PRODUCT } call_kind;

typedef struct ref { /* an address: a place in a slot */
    int32_t slot;    /* or REF_ANY, REF_PARAMS */
    int64_t offset;
} ref;

typedef struct call {
    uint8_t kind;
    int32_t step, n_refs, unit;
    const char *entry;
    cu_function fn;
    uint32_t groups[3], threads, shared_bytes;
    ref *refs; /* kernels: parameters in order; fills: destination; copies: source, destination; products: A, B, C,
                  workspace */
    void *params;
    size_t bytes;        /* filled or copied */
    int64_t scratch;     /* of its step's, that is used from the start on; -1: not said */
    an_product *product; /* of a kernel: its first two parameters are maps of A and B */
    an_product_ready ready;
} call;

struct an_exec {
    an_device *d;
    const an_plan *plan;
    an_arena arena;
    an_cuda_module *unit;
    call *call;
    int32_t n_units, cap_units, n_calls, n_slots;
    an_map seen; /* hash of a text → unit */
    cu_pointer *base;
    cu_graph_exec graph;
    bool graph_timed, timed; /* has events between steps; they hold times */
    cu_event *event;         /* [n_steps + 1] */
    double *enqueue_s;       /* [n_steps] */
    an_dependencies after;
};

/* The plan's steps as calls, with a unit for every text: AN_E_UNSUPPORTED names a step that has none. */
an_status an_cuda_calls(an_err *err, an_exec *e);
const char *an_cuda_step_name(const an_plan *p, const an_plan_step *s);
an_status an_cuda_no_room(an_err *err);

#endif
