/* device.h: where plans run. A backend is one table of functions (an_backend) and one description of what its device can
 * do (an_target). It receives plans as plain data and knows nothing of tensors or graphs.
 *
 * Owns:       the interface, and the list of backends (device.c).
 * Does not:   include any backend's header. Code outside a backend asks the fields below and never compares a device's
 *             name or a dialect's (tools/device_names checks this).
 * Adding one: copy null.c into a folder of its own, fill the functions in, add a row to device.c.
 *
 * Life of a plan on a device:
 *
 *     probe -> open -> alloc (slots) -> load (compile all kernels) -> submit -> wait -> ... -> unload -> free -> close
 */
#ifndef AN_DEVICE_DEVICE_H
#define AN_DEVICE_DEVICE_H

#include "base/text.h"
#include "ir/plan.h"

struct an_comm; /* comm/comm.h */
typedef struct an_device an_device;
typedef struct an_exec an_exec; /* a plan made ready: kernels compiled and bound */
typedef uint64_t an_ticket;     /* number of a submit: grows by one each time */

typedef struct an_buffer {
    void *host;      /* address when the CPU can reach it, else NULL */
    uint64_t handle; /* private to the backend */
    size_t bytes;
    uint64_t at; /* private to the backend: where in `handle` the buffer begins, of another program's memory */
    void *parts; /* private to the backend: the segments of a buffer that is larger than one allocation, or NULL */
} an_buffer;

typedef struct an_device_info {
    bool built, available;
    char name[64];    /* "cpu" */
    char reason[256]; /* why it is not available; or what it is: "2 threads, avx512bf16, gcc 12.2.0" */
} an_device_info;

typedef struct an_device_options {
    int threads;
    const char *isa, *cc, *cache_dir;
    bool exact;           /* f32 GEMM and attention give the same bits on every device; the CPU flushes subnormals as
                           * GPUs do */
    bool tf32;            /* CUDA: f32 GEMMs on tensor cores, operands rounded to 11 bits; only on request */
    bool isolate_buffers; /* place_apart: guard bytes around every buffer, checked after each run */
    bool fallback;        /* Metal: the CPU may run the steps that the GPU cannot */
} an_device_options;

/* Of the product of gate and up, the upper and the lower half of its rows (SwiGLU: an_gates_rows). */
typedef enum an_gating {
    AN_GATES_NOT,
    AN_GATES, /* silu(gate) up is made where the product is stored, and its gradient where the product is computed again */
    AN_GATES_AGAIN /* ... which costs no time: the sum is short */
} an_gating;

/* What the planner must know about a device: data, a pure function of the device and its options. */
typedef struct an_target {
    const char *dialect; /* language of its kernels: "c", "cuda", "msl" */
    int threads;         /* for per-thread scratch */
    const void *backend; /* private to the backend: what its scratch functions look at */
    int max_args;        /* buffers a kernel may take; the limits are listed in codegen/dialect.h */
    bool exact;          /* every result has one value on every device: bf16 GEMMs are refused */
    bool tf32;           /* f32 GEMMs round their operands to tf32 */
    bool row_update; /* has AN_KERNEL_ROW_UPDATE; without it an updated row is written together with all the others */
    bool loops_only; /* every op as a loop kernel or library call, no hand-written kernel: for tests of loop kernels */
    size_t (*scratch)(const struct an_target *t, const an_kernel *k); /* bytes of scratch a template needs */
    /* The same for a GEMM whose epilogue is known; NULL: `scratch` holds for it too. */
    size_t (*gemm_scratch)(const struct an_target *t, const an_kernel *k, const an_loop_kernel *epilogue);
    /* Whether each GEMM of this spec packs its B, and would read it in place were it contiguous along n: one copy serves several. NULL: never. */
    bool (*gemm_repacks)(const struct an_target *t, const an_gemm_spec *s);
    bool library_gemm; /* a library runs the GEMMs, an epilogue would be a launch of its own: do not fuse it */
    /* Exceptions to library_gemm, by shape [m,k] x [k,n] of GEMMs of bf16 operands: those that this device runs with a fused
     * epilogue, in which sums that are f32 get a bias and are rounded first. fuses_bias: those to whose f32 sums it adds a bias, and
     * rounds them, and no more. */
    bool (*fuses_epilogue)(const struct an_target *t, int64_t m, int64_t n, int64_t k);
    bool (*fuses_bias)(const struct an_target *t, int64_t m, int64_t n, int64_t k);
    /* Whether the halves of the rows of a bf16 GEMM, [m,k] x [k,n], are gated as it is stored. NULL: never. */
    an_gating (*gates)(const struct an_target *t, int64_t m, int64_t n, int64_t k);
    /* Attention of this spec can be `rotated`. NULL: never. */
    bool (*rotates)(const struct an_target *t, const an_attn_spec *s);
    /* A library runs the convolution with this window: nothing is fused to it. NULL: no library does. */
    bool (*library_conv)(const struct an_target *t, const an_gemm_spec *s);
    /* The convolution reads operands in planes (an_window_spec.planes) as well. NULL: none does. */
    bool (*conv_planes)(const struct an_target *t, const an_gemm_spec *s);
    bool fallback;         /* steps that the dialect cannot express run on the CPU: an_plan_step.fallback */
    bool cpu_steps;        /* the CPU can run any step, on the same memory */
    int32_t bind_align;    /* alignment in bytes of an argument's offset in its buffer; 0: its element's size */
    int64_t segment_bytes; /* the driver's largest buffer: no value crosses a multiple of it; 0: any size */
    uint64_t keep_bytes;   /* activations up to which recompute=auto keeps everything; 0: 1 GiB */
    uint64_t free_bytes;  /* of the device's own memory when it was opened: it recomputes above that, too; 0: unknown */
    bool side_by_side;    /* launches run beside one another where no memory orders them */
    int32_t in_flight;    /* steps that may be queued together; 0, 1: `submit` returns when the work has ended */
    int32_t input_blocks; /* copies of the input block that the host fills in place, in rotation; 0, 1: one, written
                            * through the queue */
} an_target;

typedef struct an_load_stats {
    int32_t compiled, cached, interpreted;
    double compile_ms;
    char note[512]; /* "no C compiler ...: loop kernels are interpreted", or "" */
} an_load_stats;

/* The C compiler and the kernel cache that a device opened with some options would use. */
typedef struct an_device_compiler {
    char path[512], why[256];            /* path "": no compiler, for the reason `why` */
    char cache_dir[900], why_cache[512]; /* cache_dir "": no cache, for the reason `why_cache` */
} an_device_compiler;

/* Receives an instruction set: its name, what one core reaches with it, in GFLOP/s, and whether a device takes it by itself. */
typedef void an_isa_rate_fn(void *user, const char *isa, double f32_gflops, double bf16_gflops, bool taken);

/* Receives one line of a self-check: what was asked of the driver, what it answered, and whether that is a fault. */
typedef void an_self_check_fn(void *user, const char *what, const char *found, bool fault);

enum { AN_DEVICE_ALIASES = 3 };

/* What names memory of another program (anneal_interop.h: an_external). */
typedef enum an_borrowing { AN_BORROWS_NONE, AN_BORROWS_ADDRESS, AN_BORROWS_POINTER, AN_BORROWS_OBJECT } an_borrowing;

typedef struct an_backend {
    /* ---- identity: facts that need no driver */
    const char *name;                       /* "cpu", "cuda", "null:cuda" */
    const char *aliases[AN_DEVICE_ALIASES]; /* PyTorch's names, which nanoGPT's settings files use: "mps", "cuda:0" */
    const char *chosen_by;                  /* variable that chooses one of several GPUs; NULL: there is only one */
    const char *planned_by;                 /* the backend that plans for this one where it is absent; NULL: none */
    int auto_rank;         /* order in which device=auto tries the backends, 1 first; 0: only when named */
    bool gpu;              /* not the processor itself: selftest compares it with the CPU */
    bool own_memory;       /* its memory is not the machine's (a card); else it shares the machine's memory */
    bool plans_only;       /* plans and renders, never runs */
    bool evaluates_nodes;  /* the oracle: contexts evaluate graph nodes on it and make no plans */
    bool compiles_in_bulk; /* compiling a plan at once is faster than kernel by kernel, and fills the same cache */
    int bench_side;        /* side of the square GEMM that fills it, for `doctor`; 0: 1024 */

    /* How a device opened with these options, in this environment, will compute; NULL: as `exact` says, without tf32. */
    void (*modes)(const an_device_options *o, bool *exact, bool *tf32);

    /* ---- life */
    int (*probe)(an_device_info *out); /* 1: available; 0: not, with the reason: a missing driver is no error */
    an_status (*open)(an_err *err, const an_device_options *o, an_device **out);
    void (*close)(an_device *d);
    const an_target *(*target)(an_device *d);

    /* This device's process is a rank of a job: its plans may hold exchanges (AN_CLS_COLLECTIVE) from here on. `c` outlives
     * the device; only a submit exchanges. NULL: a process alone, or a plan that does not run. */
    an_status (*join)(an_err *err, an_device *d, struct an_comm *c);

    /* ---- memory */
    an_status (*alloc)(an_err *err, an_device *d, size_t bytes, an_buffer *out); /* zeroed */
    void (*free)(an_device *d, an_buffer *b);
    an_status (*write)(an_err *err, an_device *d, an_buffer *dst, size_t at, const void *src, size_t n);
    an_status (*read)(an_err *err, an_device *d, const an_buffer *src, size_t at, void *dst, size_t n);

    /* ---- memory of other programs (anneal_interop.h), which is neither allocated nor freed here; `borrow` NULL: none is taken */
    an_borrowing borrows;
    int32_t borrow_align; /* of where it begins, in bytes; 0: an element's size */
    /* Bytes [offset, offset + bytes) of what `memory` names, as a buffer. Refuses what this device cannot reach. */
    an_status (*borrow)(an_err *err, an_device *d, void *memory, uint64_t offset, size_t bytes, an_buffer *out);
    void (*give_back)(an_device *d, an_buffer *b); /* no work uses it any more; NULL: there is nothing to do */
    /* The queue that all work of the device goes through, and the order between it and another program's: what is queued there from now
     * on after what is queued here (`ours_first`), or the other way round. NULL: there are no such queues. */
    uint64_t (*stream)(an_device *d);
    an_status (*order)(an_err *err, an_device *d, uint64_t theirs, bool ours_first);

    /* ---- running */
    /* Compiles all kernels in bulk. */
    an_status (*load)(an_err *err, an_device *d, const an_plan *p, an_exec **out, an_load_stats *stats);
    void (*unload)(an_device *d, an_exec *e);
    /* Where an_target.in_flight is above 1 it returns before the work ends. */
    an_status (*submit)(an_err *err, an_device *d, an_exec *e, const an_buffer *slots, int n_slots, an_ticket *out);
    /* Waits for submit `t` and all before it; always checks for failure. */
    an_status (*wait)(an_err *err, an_device *d, an_ticket t, int64_t timeout_ns);
    /* Whether submit `t` has ended, well or not. Never waits. NULL where an_target.in_flight is 1. */
    bool (*done)(an_device *d, an_ticket t);

    /* ---- measurement; all but step_seconds may be NULL */
    double (*step_seconds)(an_device *d, an_exec *e, int step); /* after a profiled run */
    /* The same: when the launch began, in seconds since the plan did. < 0: launches ran one after the other. */
    double (*step_begin)(an_device *d, an_exec *e, int step);
    /* GFLOP/s of the best arithmetic there is, measured now, of which '% of peak' is a share; 0: unknown. cpu: FMAs in
     * registers (kernels/cpu/peak_flops.c); cuda: a large GEMM (device/cuda/peak_flops.c); the others have none. */
    double (*measured_peak)(an_device *d, an_dtype dtype, double seconds);
    /* What the driver holds for this process, and what the device recommends to use at most; 0: unknown. */
    void (*memory)(an_device *d, uint64_t *driver_bytes, uint64_t *recommended_bytes);
    double (*busy_seconds)(an_device *d);   /* the device's own time for all runs that have ended */
    void (*profile)(an_device *d, bool on); /* from the next submit on, time each launch (no graph replay) */
    double (*enqueue_seconds)(an_device *d, an_exec *e, int step); /* host time to hand the launch over */

    /* ---- facts for `doctor`, `selftest` and the run's record; may be NULL */
    /* Compares the driver with what this backend was written for. Reports each answer before asking the next. */
    void (*self_check)(an_self_check_fn *tell, void *user);
    /* Bodies of products that give the same bits: the name of the i-th, NULL past the last; the one for products of `dtype`
     * in plans loaded from now on; keeps what is in use for devices opened later. All three NULL: there is one. */
    const char *(*gemm_body)(int i);
    void (*gemm_use)(an_device *d, an_dtype dtype, int i);
    an_status (*gemm_keep)(an_err *err, an_device *d);
    /* Instruction sets, of a processor: the device's; the one to open for a run of bf16 that began on the set `began` ("": no set
     * of this processor gives its bits; NULL: what a device takes by itself does, or the name is unknown); all, measured now. */
    const char *(*isa)(an_device *d);
    const char *(*isa_as)(const char *began);
    void (*isa_rates)(an_isa_rate_fn *tell, void *user);
    /* Tells what carries the exchanges of ranks that have such a device each. A fault: they would not train. */
    void (*links)(an_self_check_fn *tell, void *user);
    /* Thermal state (0 nominal to 3 critical) and low-power mode of the machine; -1: not told. False: not known. */
    bool (*power_state)(int *thermal, int *low_power);
    /* Keeps the machine from sleeping while its user is idle, until awake_end with the token; NULL: not done here. */
    void *(*awake_begin)(void);
    void (*awake_end)(void *token);
    void (*find_compiler)(const an_device_options *o, an_device_compiler *out);
    /* What a step of the plan would take on hardware that is not here: a table for people, from public figures. */
    void (*estimate)(const an_plan *p, an_text *out);
} an_backend;

/* By name or alias ("cpu", "null:cuda", "mps"); NULL and a sentence that lists the devices for an unknown name. */
const an_backend *an_backend_find(an_err *err, const char *name);
const an_backend *const *an_backend_all(int *n);
/* The i-th backend that device=auto tries, the CPU last; NULL: there are no more. */
const an_backend *an_backend_auto(int i);

#endif
