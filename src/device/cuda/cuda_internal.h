/* cuda_internal.h: shared by the files of the CUDA backend: cuda.c (device, memory, waiting), compile.c (texts to
 * machine code), lower_launches.c and graph_exec.c (a plan as launches), gemm_cublaslt.c (matrix products by cuBLASLt), gemm_hopper.c (those with an
 * end).
 *
 * Invariants: everything of a device goes through its one stream, in order; every code that the driver returns is
 * looked at, but for those of giving back; after an error that the driver calls sticky the device is `lost` and says so
 * at once, whatever is asked.
 */
#ifndef AN_DEVICE_CUDA_CUDA_INTERNAL_H
#define AN_DEVICE_CUDA_CUDA_INTERNAL_H

#include "device/cuda/driver.h"
#include "device/device.h"
#include "codegen/gpu_step.h"
#include "codegen/render.h"
#include "kernels/gpu/gemm_hopper_args.h"

enum { AN_CUDA_EVENTS = 64, AN_CUDA_STAGE_BYTES = 4 << 20, AN_CUDA_WORKSPACE = 32 << 20, AN_CUDA_GUARD_BYTES = 256 };

typedef enum an_cuda_how {                /* ANNEAL_CUDA_LAUNCH */
                           AN_CUDA_GRAPH, /* the plan is captured once and replayed, what is independent side by side */
                           AN_CUDA_CHAIN, /* the same, one launch behind the other */
                           AN_CUDA_PLAIN, /* launch by launch */
                           AN_CUDA_SYNC   /* and wait after each: a fault is found at its kernel */
} an_cuda_how;

typedef struct an_cuda_guarded { /* a buffer with guards before and behind it */
    cu_pointer at;
    size_t bytes;
} an_cuda_guarded;

struct an_device {
    an_cuda_driver cu;
    an_nvrtc nvrtc;
    an_cublaslt lt;
    lt_handle lt_handle;
    cu_device device;
    cu_context context;
    cu_stream stream;
    char name[64], cache_dir[900], note[512];
    int arch, multiprocessors; /* arch: 90 for compute capability 9.0 */
    bool has_lt, exact, tf32, lost, profile, guard;
    an_cuda_how how;
    double timeout_s; /* of one submit */
    char lost_text[512];
    an_target target;
    an_gpu gpu;
    cu_event event[AN_CUDA_EVENTS]; /* of the last tickets */
    an_ticket tickets;
    char *stage[2]; /* pinned; writes pass through in turn */
    cu_event staged[2];
    bool staging[2]; /* staged[i] was recorded */
    size_t stage_used;
    int stage_now;
    uint64_t free_bytes;      /* of the GPU when it was opened: what this program may hope for */
    an_cuda_guarded *guarded; /* with `guard`: every buffer there is */
    int n_guarded;
};

/* Records "cuda: <what>: <name of the error> (<text>)" and what to do; returns AN_OK for 0. */
an_status an_cuda_check(an_err *err, an_device *d, cu_result r, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Makes the device's context the calling thread's; fails when the device is lost. */
an_status an_cuda_enter(an_err *err, an_device *d);
/* Until all that was asked of the stream is done, or the timeout. */
an_status an_cuda_wait_stream(an_err *err, an_device *d, const char *what);
/* Before something is given back: the stream is empty. False: it was not to be emptied, and when the device is lost by
 * that the next call says so. */
bool an_cuda_wait_idle(an_device *d);
an_status an_cuda_write(an_err *err, an_device *d, an_buffer *dst, size_t at, const void *src, size_t n);

/* ---- compile.c: a unit is one text, compiled alone and kept on disk under its hash. */
typedef struct an_cuda_module {
    char *text; /* NULL once it is machine code */
    uint64_t key, check;
    bool fmad; /* contraction allowed: not where bits are promised */
    bool own;  /* for this architecture alone (sm_90a), with what others need not have */
    const char *what;
    char *image; /* cubin or PTX */
    size_t image_bytes;
    char *log; /* what the compiler said when it failed */
    bool cached;
    cu_module module;
} an_cuda_module;
/* Gives every unit its module. */
an_status an_cuda_compile(an_err *err, an_device *d, an_cuda_module *unit, int n, an_load_stats *stats);
void an_cuda_module_free(an_device *d, an_cuda_module *u);

/* ---- gemm_cublaslt.c: a matrix product that cuBLASLt takes, with what has to be cast before and the tail after it. */
typedef struct an_product {
    bool cast[2];       /* operand A, B is rounded to `mul` in scratch first */
    int64_t span[2];    /* elements of an operand's memory, gaps included */
    int64_t cast_at[2]; /* bytes in the step's scratch */
    int64_t out_at;     /* the product itself, when a tail reads it; -1 */
    int64_t workspace_at;
    int64_t scratch_bytes;
    int32_t batches;
    int64_t stride[3]; /* of A, B, C from one product of the batch to the next */
    uint8_t mul, out;  /* dtypes of operands and result as cuBLASLt sees them */
    bool a_along_k, b_along_k;
    int64_t lda, ldb, ldc;
    int32_t addend, sum;          /* arguments of the tail: what the product is added to, and the sum; -1: none */
    bool ends;                    /* no library: gemm_hopper.inc, with the tail as its end */
    int32_t own_chains;           /* no library where addresses allow: gemm_tf32.inc, in so many chains; 0: never */
    int64_t turned_at, turned_ld; /* B is turned into rows along k there first, from rows so far apart; -1: it is not */
} an_product;
typedef struct an_product_ready {
    lt_desc desc;
    lt_layout a, b, c;
    lt_algo algo;
    size_t workspace_bytes; /* that the algorithm uses */
} an_product_ready;
/* Whether the library takes a product on this device: a pure function of (spec, epilogue, the device's settings). */
bool an_cuda_product(const an_device *d, const an_gemm_spec *s, const an_loop_kernel *epilogue, an_product *out);
an_status an_product_prepare(an_err *err, an_device *d, const an_gemm_spec *s, const an_product *p,
                             const cu_pointer address[4], an_product_ready *out); /* of A, B, C, the addend */
an_status an_product_run(an_err *err, an_device *d, const an_gemm_spec *s, const an_product *p,
                         const an_product_ready *r, const cu_pointer address[3], cu_pointer addend,
                         cu_pointer workspace); /* addend: what p->addend stands for, else unused */
void an_product_free(an_device *d, an_product_ready *r);

/* ---- gemm_hopper.c: products that are not the library's, because what follows costs nothing behind our own. */
/* Whether such a product, of bf16 and with nothing but elementwise work behind it, is made so: for grouping. */
bool an_cuda_end_pays(const an_device *d, int64_t m, int64_t n, int64_t k);
/* The same when all is known. */
bool an_cuda_ends(const an_device *d, const an_gemm_spec *s, const an_loop_kernel *epilogue, const an_product *p);
struct an_gemm_hopper_args an_cuda_end_args(const an_device *d, const an_gemm_spec *s, uint32_t *groups);
/* The map of operand `which` at this address. */
cu_result an_cuda_end_map(an_device *d, const an_gemm_spec *s, const an_product *p, int which, cu_pointer at,
                          cu_tensor_map *out);

/* ---- benchmark.c: functions of the backend's table. */
void an_cuda_memory(an_device *d, uint64_t *driver_bytes, uint64_t *recommended_bytes);
double an_cuda_fma_peak(an_device *d, an_dtype dtype, double seconds);

/* ---- memory_guard.c: for place_apart. */
an_status an_cuda_guard_buffer(an_err *err, an_device *d, cu_pointer p, size_t bytes);
void an_cuda_unguard_buffer(an_device *d, cu_pointer p);
/* Guards between the arena's values, and poison in them: in the stream, before a run. */
an_status an_cuda_guards_set(an_err *err, an_device *d, const an_plan *p, cu_pointer arena);
/* Waits, and fails when a guard was written. step: the launch that ran last; -1: a whole run. */
an_status an_cuda_guards_check(an_err *err, an_device *d, const an_plan *p, cu_pointer arena, int step);

/* ---- graph_exec.c */
an_status an_cuda_load(an_err *err, an_device *d, const an_plan *p, an_exec **out, an_load_stats *stats);
void an_cuda_unload(an_device *d, an_exec *e);
an_status an_cuda_submit(an_err *err, an_device *d, an_exec *e, const an_buffer *slots, int n_slots, an_ticket *out);
double an_cuda_step_seconds(an_device *d, an_exec *e, int step);
double an_cuda_enqueue_seconds(an_device *d, an_exec *e, int step);
void an_cuda_profile(an_device *d, bool on);

#endif
