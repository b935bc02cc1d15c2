/* metal_internal.h: what the files of the Metal backend share. metal.c: device and memory; metal_load.c: plan to
 * pipelines; metal_run.c: a step to command buffers, their failures and their times; cpu_fallback.c: what the CPU runs in
 * the GPU's place. */
#ifndef AN_DEVICE_METAL_METAL_INTERNAL_H
#define AN_DEVICE_METAL_METAL_INTERNAL_H

#include "device/device.h"
#include "device/metal/objc.h"
#include "codegen/gpu_step.h"

/* Kernels of the backend itself (metal_load.c has their text). */
typedef enum an_mtl_own {
    AN_OWN_ZERO, /* words; then the same for bytes */
    AN_OWN_COPY,
    AN_OWN_ZERO_BYTES,
    AN_OWN_COPY_BYTES,
    AN_OWN_GATE,
    AN_OWN_CHAIN,
    AN_OWN_COMMIT,
    AN_N_OWN
} an_mtl_own;

enum {
    AN_QUEUE_BUFFERS = 512, /* command buffers that may be under way; the default, 64, blocks beyond */
    AN_STEPS_IN_FLIGHT = 2  /* one runs, one waits behind it */
};

/* Device words of the commit protocol (DESIGN.md): numbers of command buffers and steps that only grow. The host reads
 * and writes them when nothing is under way. */
enum { AN_WORD_PROGRESS, AN_WORD_BEGUN, AN_WORD_COMMITTED, AN_WORDS };
/* A gate is a table of the group counts of indirect launches (MTLDispatchThreadgroupsIndirectArguments: uint32_t[3]),
 * one for each launch that writes state: 0 until the gate has opened. */
enum { AN_GATE_BYTES = 3 * sizeof(uint32_t) };

typedef struct an_mtl_facts {
    char name[64];
    int family; /* 1007 ...: the highest Apple family; 0: not an Apple GPU */
    uint64_t working_set, max_buffer;
} an_mtl_facts;

struct an_device {
    an_id device, queue;
    an_mtl_facts facts;
    an_gpu gpu;
    an_target target;
    an_id own[AN_N_OWN]; /* pipelines */
    uint64_t allocated;
    an_id protocol;         /* buffer of the words */
    uint32_t *words;        /* its contents */
    uint32_t last_buffer;   /* number of the newest command buffer; 0: none yet */
    an_ticket tickets;      /* steps handed over; the step's number in the words is its ticket's low half */
    an_ticket ended;        /* of these */
    struct an_mtl_run *run; /* [AN_STEPS_IN_FLIGHT], step t at t % AN_STEPS_IN_FLIGHT */
    bool hung;              /* a command buffer has not ended after HANG_SECONDS: nothing waits for it again */
    bool profile;           /* a command buffer a launch, for its time */
    double busy_s;          /* GPU time of all command buffers that have ended */
    an_device_options options;
    const an_backend *cpu_backend; /* for fallback=cpu: NULL until a plan needs it */
    an_device *cpu;
};

/* Steps [from, to) that are the CPU's: run when all launches before number `before` have ended, before it begins. */
typedef struct an_mtl_host {
    int32_t before, from, to;
    bool commits; /* writes state */
    an_plan plan; /* of these steps alone */
    an_exec *exec;
} an_mtl_host;
enum { AN_MTL_HOSTS = 200 }; /* the most that a plan may have */

typedef struct an_mtl_launch {
    an_id pipeline;       /* not owned */
    int32_t step, commit; /* number of the plan's step; number among the launches that write state, -1 */
    uint32_t groups[3], threads;
    int32_t n_binds;
    const an_bind *bind;
    const void *params; /* for setBytes: what AN_BIND_PARAMS names */
    uint32_t params_bytes;
} an_mtl_launch;

struct an_exec {
    const an_plan *plan;
    an_arena arena;
    an_id *library, *pipeline; /* owned */
    int32_t n_libraries, n_pipelines, n_launches, n_commits;
    an_mtl_launch *launch;
    an_id gate[AN_STEPS_IN_FLIGHT];       /* buffers of indirect group counts, one for each step under way */
    uint32_t *opened[AN_STEPS_IN_FLIGHT]; /* their contents */
    an_id counts;                         /* buffer: the group counts that an open gate gives */
    int32_t a_buffer;                     /* launches a command buffer takes: moved by its time */
    double *seconds;   /* [n_steps], of the last run with a command buffer a launch; of host steps always */
    an_mtl_host *host; /* [n_hosts], in order */
    int32_t n_hosts;
    an_buffer host_scratch, *host_slot; /* [cap_host_slots]: the scratch, then the step's */
    int cap_host_slots;
};

/* A library of a text (+1), and a pipeline (+1) of one of its kernels, to be launched with `threads` threads a group;
 * NULL and a sentence. */
an_id an_mtl_compile(an_err *err, an_device *d, const char *text, const char *what);
an_id an_mtl_pipeline(an_err *err, an_device *d, an_id library, const char *entry, uint32_t threads, const char *what);
void an_mtl_self_check(an_self_check_fn *tell, void *user);

an_status an_mtl_own_make(an_err *err, an_device *d);
an_status an_mtl_load(an_err *err, an_device *d, const an_plan *p, an_exec **out, an_load_stats *stats);
void an_mtl_unload(an_device *d, an_exec *e);

an_status an_mtl_submit(an_err *err, an_device *d, an_exec *e, const an_buffer *slots, int n_slots, an_ticket *out);
an_status an_mtl_wait(an_err *err, an_device *d, an_ticket t, int64_t timeout_ns);
bool an_mtl_done(an_device *d, an_ticket t);
void an_mtl_run_free(an_device *d);

/* Makes ready what e->host[] says; runs one of them: the GPU must be done with what it reads and writes. */
an_status an_mtl_host_load(an_err *err, an_device *d, an_exec *e, an_load_stats *stats);
an_status an_mtl_host_run(an_err *err, an_device *d, an_exec *e, an_mtl_host *h, const an_buffer *slots, int n_slots);
void an_mtl_host_unload(an_device *d, an_exec *e);

/* A buffer larger than Metal makes: one piece of memory, and a Metal buffer over each `bytes` of it. */
typedef struct an_mtl_parts {
    uint64_t bytes;
    int n;
    an_id part[];
} an_mtl_parts;
/* The Metal buffer that holds byte *at of `b`; *at: from its own beginning. */
static inline an_id an_mtl_part(const an_buffer *b, int64_t *at)
{
    const an_mtl_parts *p = b->parts;
    if (!p) return (an_id)(uintptr_t)b->handle;
    an_id part = p->part[(uint64_t)*at / p->bytes];
    *at %= (int64_t)p->bytes;
    return part;
}

/* A shared buffer of `bytes`, zeroed; NULL and a sentence. */
an_id an_mtl_buffer(an_err *err, an_device *d, size_t bytes, const char *what);

#endif
