/* metal_internal.h: what the files of the Metal backend share.
 *     objc.c           the Objective-C runtime and the frameworks, loaded at run time
 *     metal.c          the device and its memory
 *     metal_load.c     a plan to libraries, pipelines and launches
 *     metal_run.c      launches to command buffers: their size, their failures, their times
 *     cpu_fallback.c   the steps that run on the CPU with fallback=cpu
 *     gemm_body.c      which body computes products on this GPU
 *     self_check.c     is this macOS the one that the backend was written for? */
#ifndef AN_DEVICE_METAL_METAL_INTERNAL_H
#define AN_DEVICE_METAL_METAL_INTERNAL_H

#include "device/device.h"
#include "device/metal/objc.h"
#include "codegen/gpu_step.h"

/* The backend's own kernels (their text is in metal_load.c). */
typedef enum an_mtl_builtin {
    AN_BUILTIN_ZERO, /* in words of 4 bytes; then the same in bytes */
    AN_BUILTIN_COPY,
    AN_BUILTIN_ZERO_BYTES,
    AN_BUILTIN_COPY_BYTES,
    AN_BUILTIN_GATE,
    AN_BUILTIN_CHAIN,
    AN_BUILTIN_COMMIT,
    AN_N_BUILTIN
} an_mtl_builtin;

enum {
    AN_QUEUE_BUFFERS = 512, /* command buffers in flight; a queue blocks beyond its limit, and the default is 64 */
    AN_STEPS_IN_FLIGHT = 2  /* one runs, one is queued behind it */
};

/* Counters of the commit protocol (metal_run.c): numbers of command buffers and steps, which only grow. The host reads and
 * writes them when nothing is in flight. */
enum { AN_COUNTER_PROGRESS, AN_COUNTER_BEGUN, AN_COUNTER_COMMITTED, AN_N_COUNTERS };
/* A gate is a table of thread block counts of indirect launches (MTLDispatchThreadgroupsIndirectArguments: uint32_t[3]),
 * one for each launch that writes state: 0 until the gate has opened. */
enum { AN_GATE_BYTES = 3 * sizeof(uint32_t) };
/* Arguments that a launch does not have are bound to `counts`, argument i at i times so many bytes. */
enum { AN_PLACEHOLDER_BYTES = 32 };

/* GPU time that a command buffer should take: longer ones make the display stutter. */
#define AN_TARGET_SECONDS 0.05

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
    an_id builtin[AN_N_BUILTIN]; /* pipelines */
    uint64_t allocated;
    an_id protocol;         /* buffer of the counters */
    uint32_t *counters;     /* its contents */
    uint32_t last_buffer;   /* number of the newest command buffer; 0: none yet */
    an_ticket tickets;      /* steps submitted; a step's number in the counters is its ticket's low half */
    an_ticket ended;        /* of these */
    struct an_mtl_run *run; /* [AN_STEPS_IN_FLIGHT], step t at t % AN_STEPS_IN_FLIGHT */
    bool hung;              /* a command buffer has not ended after hang_s: nothing waits for it again */
    double hang_s;          /* time awake without any command buffer ending; ANNEAL_METAL_TIMEOUT */
    double retry_s;         /* how long the display watchdog is waited out; ANNEAL_METAL_RETRY */
    bool profile;           /* a command buffer a launch, for its time */
    double busy_s;          /* GPU time of all command buffers that have ended */
    an_device_options options;
    const an_backend *cpu_backend; /* for fallback=cpu: NULL until a plan needs it */
    an_device *cpu;
};

/* Steps [from, to) that run on the CPU: after launches [0, before) have ended, before launch `before` begins. */
typedef struct an_mtl_cpu_steps {
    int32_t before, from, to;
    bool commits; /* writes state */
    an_plan plan; /* of these steps alone */
    an_exec *exec;
} an_mtl_cpu_steps;
enum { AN_MTL_MOST_CPU_STEPS = 200 }; /* the most that a plan may have */

typedef struct an_mtl_launch {
    an_id pipeline;              /* not owned */
    int32_t step, commit;        /* number of the plan's step; number among the launches that write state, -1 */
    uint32_t groups[3], threads; /* thread blocks, and threads in each */
    double estimate_s;           /* of its time on the slowest GPU */
    int32_t n_binds;
    const an_gpu_binding *bind;
    const void *params; /* for setBytes: what AN_BIND_PARAMS names */
    uint32_t params_bytes;
} an_mtl_launch;

struct an_exec {
    const an_plan *plan;
    an_arena arena;
    an_id *library, *pipeline; /* owned */
    int32_t n_libraries, n_pipelines, n_launches, n_commits;
    an_mtl_launch *launch;
    an_id gate[AN_STEPS_IN_FLIGHT];       /* buffers of indirect thread block counts, one for each step in flight */
    uint32_t *opened[AN_STEPS_IN_FLIGHT]; /* their contents */
    an_id counts;                         /* buffer: the thread block counts that an open gate gives */
    double buffer_s;                      /* estimated time that a command buffer takes: adapted to what it took */
    double *seconds;       /* [n_steps], of the last run with a command buffer a launch; of CPU steps always */
    an_mtl_cpu_steps *cpu; /* [n_cpu], in order */
    int32_t n_cpu;
    an_buffer cpu_scratch, *cpu_slot; /* [cap_cpu_slots]: the scratch, then the step's */
    int cap_cpu_slots;
};

/* A library of a text (+1), and a pipeline (+1) of one of its kernels for thread blocks of `threads` threads; NULL and a
 * sentence. */
an_id an_mtl_compile(an_err *err, an_device *d, const char *text, const char *what);
an_id an_mtl_pipeline(an_err *err, an_device *d, an_id library, const char *entry, uint32_t threads, const char *what);
/* GPUs before Apple7 need not have shuffles within a subgroup: a small kernel tries them. */
bool an_mtl_shuffles_work(an_device *d);
void an_mtl_self_check(an_self_check_fn *tell, void *user);

/* Products: the body asked for or kept for this GPU; the i-th name, "by-size" first, NULL past the last; the body of plans that
 * are loaded from now on; keeps both for devices opened later. */
an_status an_mtl_gemm_bodies(an_err *err, an_device *d);
const char *an_mtl_gemm_body(int i);
void an_mtl_gemm_use(an_device *d, an_dtype dtype, int i);
an_status an_mtl_gemm_keep(an_err *err, an_device *d);

an_status an_mtl_builtin_make(an_err *err, an_device *d);
an_status an_mtl_load(an_err *err, an_device *d, const an_plan *p, an_exec **out, an_load_stats *stats);
void an_mtl_unload(an_device *d, an_exec *e);

an_status an_mtl_submit(an_err *err, an_device *d, an_exec *e, const an_buffer *slots, int n_slots, an_ticket *out);
an_status an_mtl_wait(an_err *err, an_device *d, an_ticket t, int64_t timeout_ns);
bool an_mtl_done(an_device *d, an_ticket t);
void an_mtl_run_free(an_device *d);

/* Compiles the steps in e->cpu[]; runs one of them: the GPU must be done with all that it reads and writes. */
an_status an_mtl_cpu_load(an_err *err, an_device *d, an_exec *e, an_load_stats *stats);
an_status an_mtl_cpu_run(an_err *err, an_device *d, an_exec *e, an_mtl_cpu_steps *h, const an_buffer *slots,
                         int n_slots);
void an_mtl_cpu_unload(an_device *d, an_exec *e);

/* A buffer larger than Metal's largest: one range of memory, with a Metal buffer over each `bytes` of it. */
typedef struct an_mtl_segments {
    uint64_t bytes;
    int n;
    an_id segment[];
} an_mtl_segments;
/* The Metal buffer that holds byte *at of `b`; *at becomes the offset in it. */
static inline an_id an_mtl_segment(const an_buffer *b, int64_t *at)
{
    const an_mtl_segments *p = b->parts;
    if (!p) {
        *at += (int64_t)b->at;
        return (an_id)(uintptr_t)b->handle;
    }
    an_id segment = p->segment[(uint64_t)*at / p->bytes];
    *at %= (int64_t)p->bytes;
    return segment;
}

/* A shared buffer of `bytes`, zeroed; NULL and a sentence. */
an_id an_mtl_buffer(an_err *err, an_device *d, size_t bytes, const char *what);

#endif
