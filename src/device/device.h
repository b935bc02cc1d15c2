/* device.h: where plans run: one table of functions. A backend sees plans as data and knows nothing of tensors.
 * To add a backend: copy null.c, add its table to the list in device.c. */
#ifndef AN_DEVICE_DEVICE_H
#define AN_DEVICE_DEVICE_H

#include "ir/plan.h"

typedef struct an_device an_device;
typedef struct an_exec an_exec; /* a plan made ready: kernels compiled and bound */
typedef uint64_t an_ticket;

typedef struct an_buffer {
    void *host;      /* address when the CPU can reach it, else NULL */
    uint64_t handle; /* the backend's own */
    size_t bytes;
    void *parts; /* the backend's own: NULL, or the segments that it is made of */
} an_buffer;

typedef struct an_device_info {
    bool built, available;
    char name[64];    /* "cpu" */
    char reason[256]; /* why not available; or what it is: "2 threads, avx512bf16, gcc 12.2.0" */
} an_device_info;

typedef struct an_device_options {
    int threads;
    const char *isa, *cc, *cache_dir;
    bool exact; /* f32 products and attention with the same bits on every device; the CPU flushes subnormals as GPUs do
                 */
    bool tf32;  /* CUDA: f32 products on tensor cores, operands rounded to 11 bits; never without being asked */
    bool guard; /* place_apart: bytes around every buffer that nobody may write, looked at after each run */
    bool fallback; /* Metal: the CPU may run the steps that the GPU cannot */
} an_device_options;

/* What the planner must know about a device: data, a pure function of the device and its options. */
typedef struct an_target {
    const char *dialect;   /* "c", "cuda", "msl" */
    int threads;           /* for per-thread scratch */
    const void *templates; /* the CPU's an_cpu_templates */
    int max_args;          /* buffers a kernel may take */
    bool exact;            /* every result has one value on every device: products of bf16 are refused */
    bool puts;             /* has AN_KERNEL_PUT; else such a row is written with all the others */
    bool no_templates;     /* every op as a row program or call: tests of shape N */
    size_t (*scratch)(const struct an_target *t, const an_kernel *k); /* bytes of scratch a template wants */
    /* The same for a product whose epilogue is known: NULL, or what `scratch` said is replaced. */
    size_t (*product_scratch)(const struct an_target *t, const an_kernel *k, const an_loop_kernel *epilogue);
    bool library_products; /* an epilogue would be a launch of its own: what follows a product is grouped without it */
    /* But for products [m,k] x [k,n] of bf16 of which this says that the device makes them with their epilogue. */
    bool (*ends_products)(const struct an_target *t, int64_t m, int64_t n, int64_t k);
    bool fallback;         /* steps that the dialect cannot spell are the CPU's: an_plan_step.fallback */
    int32_t bind_align;    /* bytes that an argument's place in a buffer is a multiple of; 0: its elements' */
    int64_t segment_bytes; /* no value crosses a multiple of it: the largest buffer of the driver's; 0: any size */
    uint64_t keep_bytes;   /* activations up to which recompute=auto keeps everything; 0: 1 GiB */
    int32_t in_flight;     /* steps that may be under way together; 0, 1: `submit` returns when the work has ended */
    int32_t input_blocks;  /* that the host writes in turn, where they stand; 0, 1: one, written through the queue */
} an_target;

typedef struct an_load_stats {
    int32_t compiled, cached, interpreted;
    double compile_ms;
    char note[512]; /* "no C compiler ...: row programs are interpreted" or "" */
} an_load_stats;

/* Hears a line of what a driver was asked: what, what was found, and whether that is not as it should be. */
typedef void an_self_check_fn(void *user, const char *what, const char *found, bool fault);

typedef struct an_backend {
    const char *name;
    int (*probe)(an_device_info *out); /* 1: available; 0: not, with the reason: a missing driver is no error */
    an_status (*open)(an_err *err, const an_device_options *o, an_device **out);
    void (*close)(an_device *d);
    const an_target *(*target)(an_device *d);
    an_status (*alloc)(an_err *err, an_device *d, size_t bytes, an_buffer *out); /* zeroed */
    void (*free)(an_device *d, an_buffer *b);
    an_status (*write)(an_err *err, an_device *d, an_buffer *dst, size_t at, const void *src, size_t n);
    an_status (*read)(an_err *err, an_device *d, const an_buffer *src, size_t at, void *dst, size_t n);
    an_status (*load)(an_err *err, an_device *d, const an_plan *p, an_exec **out,
                      an_load_stats *stats); /* all kernels in bulk */
    void (*unload)(an_device *d, an_exec *e);
    an_status (*submit)(an_err *err, an_device *d, an_exec *e, const an_buffer *slots, int n_slots,
                        an_ticket *out); /* in_flight > 1: returns before the work ends */
    an_status (*wait)(an_err *err, an_device *d, an_ticket t,
                      int64_t timeout_ns);   /* for t and all before it; checks for failure, always */
    bool (*done)(an_device *d, an_ticket t); /* has it ended, well or not? never waits. NULL: in_flight is 1 */
    double (*step_seconds)(an_device *d, an_exec *e, int step);       /* after a profiled run */
    double (*fma_peak)(an_device *d, an_dtype dtype, double seconds); /* measured GFLOP/s, 0 unknown */
    /* What the driver holds for this process, and what the device recommends to use at most; 0: unknown. NULL: both. */
    void (*memory)(an_device *d, uint64_t *driver_bytes, uint64_t *recommended_bytes);
    double (*busy_seconds)(
        an_device *d); /* the device's own time for all runs that have ended; NULL: it does not say */
    /* For `anneal profile`; NULL where every run is timed, or where launches are not handed over one by one. */
    void (*profile)(an_device *d, bool on); /* from the next submit on, launch by launch (no graph replay) with times */
    double (*enqueue_seconds)(an_device *d, an_exec *e, int step); /* host time to hand the launch over */
    /* For `anneal selftest`: is the driver what this backend was written against? Opens what it needs; each line comes
     * before the next question is asked. NULL: nothing to ask. */
    void (*examine)(an_self_check_fn *tell, void *user);
} an_backend;

/* "cpu", "null:cuda", ... ; NULL and a sentence listing the devices for an unknown name. */
const an_backend *an_backend_find(an_err *err, const char *name);
const an_backend *const *an_backend_all(int *n);

#endif
