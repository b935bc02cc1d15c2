/* planner.h: an_plan_make, the entry of the planner: from graph nodes to a plan's steps. passes.def lists its passes. */
#ifndef AN_PLANNER_PLANNER_H
#define AN_PLANNER_PLANNER_H

#include "device/device.h"
#include "graph/graph.h"

/* Where a leaf's data is: answered by the context. */
typedef struct an_leaf_place {
    int32_t slot; /* AN_SLOT_INPUT or a persistent slot; for INPUT and SCALAR leaves the planner assigns the offset */
    int64_t offset, bytes;
    an_usage usage;
    const char *name;
    /* Of a parameter whose block each rank holds a part of: the slot has that part, `offset` is in the whole block. */
    int64_t part_bytes, whole_bytes; /* 0: all of it is here */
    an_dtype dtype;                  /* of such a block */
} an_leaf_place;
typedef an_leaf_place (*an_leaf_fn)(void *user, an_leaf kind, int index);
/* Layout of a parameter block: offset in bytes of source i of PACK `block`, and the block's size. */
typedef int64_t (*an_pack_fn)(void *user, int block, int source, int64_t *block_bytes);

typedef enum an_recompute {
    AN_RECOMPUTE_OFF,
    AN_RECOMPUTE_ON, /* whatever can be computed again: the least memory */
    AN_RECOMPUTE_AUTO, /* what costs little time when keeping everything does not fit, on when that does not fit the budget */
    AN_RECOMPUTE_CHEAP /* chosen by auto */
} an_recompute;

typedef struct an_plan_request {
    an_graph *graph;
    const int32_t *root; /* nodes to keep readable */
    int n_roots;
    int32_t effects_from; /* ASSIGN nodes with id >= this run */
    const an_target *target;
    an_leaf_fn leaf;
    an_pack_fn pack;
    void *user;
    bool unfused;          /* every node is a launch of its own: for tests */
    bool isolate_values;   /* each value in its own memory between guard bytes: finds accesses out of bounds */
    bool verify;           /* checks kernels, too: a finished plan always is */
    const char *on_cpu;    /* scopes whose steps the CPU runs (an_glob_list); NULL: none. Only with target.cpu_steps */
    bool gather_ahead;     /* parameters in parts are gathered while others are read (gather_weights.c) */
    int recompute;         /* an_recompute */
    int32_t loss;          /* node of the last an_backward, -1: launches after its own are the backward pass */
    uint64_t budget_bytes; /* 0: none; what persists counts */
    uint64_t persistent_bytes;
    void (*dump)(void *user, const char *pass, const char *text); /* may be NULL */
} an_plan_request;

/* dump.c: whether `names`, "all" or a list as "fuse,lower", has the name of this pass. */
bool an_dump_wants(const char *names, const char *pass);
/* AN_E_USAGE with the list of passes where a name is of none. */
an_status an_dump_check(an_err *err, const char *names);

an_status an_plan_make(an_err *err, const an_plan_request *rq, an_plan **out);

#endif
