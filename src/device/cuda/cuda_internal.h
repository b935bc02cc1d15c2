/* cuda_internal.h: what the files of the CUDA backend share.
 *     driver.c           the functions of NVIDIA's libraries, found at run time
 *     cuda.c             the device, its memory, its one stream, waiting
 *     nvrtc.c            kernel texts to machine code, and the cache of it
 *     compilers.c        copies of NVRTC, which compile side by side
 *     lower_launches.c   a plan to a list of operations on the stream
 *     gemm_cublaslt.c    which GEMMs cuBLASLt runs, and how
 *     conv_cudnn.c       which convolutions cuDNN runs, and how
 *     gemm_hopper.c      which GEMMs our own sm_90a kernel runs, with a fused epilogue
 *     nccl.c             exchanges between the GPUs of several ranks
 *     links.c            how the GPUs of this machine reach one another
 *     graph_exec.c       the list captured as a CUDA graph and replayed
 *     borrow.c           memory and streams of other programs
 *     memory_guard.c     place_apart: guard bytes around buffers and values
 *     peak_flops.c       the measured peak rate
 *
 * Invariants: all work of a device goes through its one stream, in order. Every code that the driver returns is checked,
 *             except when something is freed. After an error that the driver calls sticky the device is `lost`: every
 *             later call fails at once with the same sentence.
 */
#ifndef AN_DEVICE_CUDA_CUDA_INTERNAL_H
#define AN_DEVICE_CUDA_CUDA_INTERNAL_H

#include "device/cuda/driver.h"
#include "device/device.h"
#include "codegen/gpu_step.h"
#include "codegen/render.h"
#include "kernels/gpu/gemm_hopper_args.h"

enum { AN_CUDA_STAGES = 32, AN_CUDA_STAGE_BYTES = 4 << 20 }; /* of pinned memory */
enum { AN_CUDA_EVENTS = 64, AN_CUDA_WORKSPACE = 32 << 20, AN_CUDA_GUARD_BYTES = 256 };

/* ANNEAL_CUDA_LAUNCH. */
typedef enum an_cuda_how {
    AN_CUDA_GRAPH, /* the plan is captured once and replayed; independent steps overlap */
    AN_CUDA_CHAIN, /* the same, one launch after the other */
    AN_CUDA_PLAIN, /* launch by launch */
    AN_CUDA_SYNC   /* launch by launch, waiting after each: an error is reported at its kernel */
} an_cuda_how;

typedef struct an_cuda_guarded { /* a buffer with guards before and behind it */
    cu_pointer at;
    size_t bytes;
} an_cuda_guarded;

typedef struct an_cuda_stage {
    char *at;
    cu_event copied;
    bool used; /* `copied` was recorded */
} an_cuda_stage;

struct an_device {
    an_cuda_driver cu;
    an_nvrtc nvrtc;
    an_cublaslt lt;
    an_nccl nccl;
    nccl_comm nccl_comm;  /* NULL: no plan has exchanged yet */
    struct an_comm *comm; /* NULL: a process alone */
    lt_handle lt_handle;
    struct an_cuda_convs *convs; /* NULL: no cuDNN */
    cu_device device;
    cu_context context;
    cu_stream stream;
    char name[64], cache_dir[900], note[512];
    int arch, multiprocessors; /* arch: 90 for compute capability 9.0 */
    bool has_lt, exact, tf32, lost, profile, guard;
    bool hung;        /* lost with work that never ends: nothing is freed */
    bool joining;     /* a thread that NCCL keeps waiting for a rank that is gone */
    bool follow;      /* short launches may begin while the one before them ends */
    int compilers;    /* the most that compile side by side; 0: by the number of threads */
    bool copies_stay; /* in memory when they are closed: no more are made */
    an_cuda_how how;
    double timeout_s; /* of one submit */
    char lost_text[1024];
    an_target target;
    an_gpu gpu;
    cu_event event[AN_CUDA_EVENTS]; /* of the last tickets */
    an_ticket tickets;
    an_cuda_stage stage[AN_CUDA_STAGES]; /* a ring: transfers.c */
    int n_stages, stage_now;
    size_t stage_used;
    struct an_pool *copiers;  /* NULL: nothing large was written yet */
    uint64_t free_bytes;      /* of the GPU when it was opened: the most that this program can allocate */
    an_cuda_guarded *guarded; /* with `guard`: every allocated buffer */
    int n_guarded;
};

/* Records "cuda: <what>: <name of the error> (<text>)" and what to do; returns AN_OK for 0. */
an_status an_cuda_check(an_err *err, an_device *d, cu_result r, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Makes the device's context the calling thread's; fails when the device is lost. */
an_status an_cuda_enter(an_err *err, an_device *d);
/* Waits until the stream is empty, or for the timeout. */
an_status an_cuda_wait_stream(an_err *err, an_device *d, const char *what);
/* Waits until the stream is empty, before something is freed. False: waiting failed; if that lost the device, the next call
 * reports it. */
bool an_cuda_wait_idle(an_device *d);
/* The device's work, or a call in another thread, waits for a rank that is gone: `err` says which, and is every later call's. */
an_status an_cuda_lose_ranks(an_err *err, an_device *d);
an_status an_cuda_wait_event(an_err *err, an_device *d, cu_event e, const char *what);

/* ---- transfers.c */
an_status an_cuda_stages_open(an_err *err, an_device *d);
void an_cuda_stages_close(an_device *d, bool reachable);
an_status an_cuda_write(an_err *err, an_device *d, an_buffer *dst, size_t at, const void *src, size_t n);
an_status an_cuda_read(an_err *err, an_device *d, const an_buffer *src, size_t at, void *dst, size_t n);

/* ---- nvrtc.c: a module is one text, compiled alone and kept on disk under its hash. */
typedef struct an_cuda_module {
    char *text; /* NULL once it is machine code */
    uint64_t key, check;
    bool fmad; /* contraction to fused multiply-adds is allowed: not where the bits are promised */
    /* compiled for this architecture only (sm_90a), with instructions that later ones need not have */
    bool arch_specific;
    const char *what;
    char *image; /* cubin or PTX */
    size_t image_bytes;
    char *log; /* the compiler's output when it failed */
    bool cached;
    cu_module handle;
} an_cuda_module;
/* Compiles every module, or takes it from the cache, and loads it. */
an_status an_cuda_compile(an_err *err, an_device *d, an_cuda_module *module, int n, an_load_stats *stats);
void an_cuda_module_free(an_device *d, an_cuda_module *u);

/* Whether c makes machine code of the text, which is thrown away. */
bool an_nvrtc_compiles(const an_device *d, const an_nvrtc *c, const char *text);

/* ---- compilers.c */
typedef struct an_compilers an_compilers;
int an_compilers_most(void);
/* For so many texts on so many threads. NULL: there is no memory for more than the library itself. */
an_compilers *an_compilers_open(an_device *d, int n_texts, int n_threads);
/* The copy that this thread compiles with, loaded by its first text; NULL: the library itself. */
const an_nvrtc *an_compilers_get(an_compilers *c, int thread);
/* This thread's copy refused a text that the library compiled: it is not used again. */
void an_compilers_refused(an_compilers *c, int thread);
/* Why there are fewer than could be, once: for the run's log. */
void an_compilers_note(an_device *d, const char *why);
/* When every thread that used them has ended. */
void an_compilers_close(an_device *d, an_compilers *c);

/* ---- gemm_cublaslt.c: how a GEMM is run by cuBLASLt (or by one of our sm_90a kernels): layouts, casts before it, where its
 * result goes. */
typedef struct an_gemm_plan {
    bool cast[2];                     /* operand A, B is rounded to `mul` in scratch first */
    int64_t cast_from[2], cast_ld[2]; /* ... from rows that are so far apart into rows of so many elements, zeros behind
                                       * them; 0: padding and all, as it lies */
    int64_t span[2];                  /* elements from the first to the last of an operand, padding included */
    int64_t cast_at[2];               /* bytes in the step's scratch */
    int64_t out_at;                   /* of the result in scratch, when a separate epilogue reads it; -1: none does */
    int64_t workspace_at;
    int64_t scratch_bytes;
    int32_t batches;
    int64_t stride[3]; /* of A, B, C from one GEMM of the batch to the next */
    uint8_t mul, out;  /* dtypes of operands and result as cuBLASLt sees them */
    bool a_along_k, b_along_k;
    int64_t lda, ldb, ldc;
    int32_t addend,
        bias; /* arguments of the epilogue: beta C of the library; a bias that a plain kernel adds; -1: no such epilogue */
    int32_t sum; /* ... and the result; -1: the GEMM's own */
    uint8_t bias_dtype;
    bool fused;            /* gemm_hopper.inc runs it instead of the library, with the epilogue fused */
    bool pair;             /* ... with that of the next step, which reads rows r and m / 2 + r (an_cuda_is_pair) */
    bool narrow;           /* ... with narrower tiles */
    int32_t split_k;       /* where addresses are aligned, gemm_tf32.inc runs it instead, with k split so; 0: never */
    bool plain;            /* where addresses are aligned, gemm_hopper.inc runs it without an epilogue */
    int32_t splits;        /* ... with k in so many parts */
    int64_t transposed_at; /* B is first transposed to this place in scratch; -1: it is not */
    int64_t transposed_ld; /* the stride of its rows before that */
} an_gemm_plan;
typedef struct an_gemm_ready {
    lt_desc desc;
    lt_layout a, b, c;
    lt_algo algo;
    size_t workspace_bytes; /* that this algorithm uses */
} an_gemm_ready;
/* False: the portable template runs the GEMM. A pure function of (spec, epilogue, the device's settings). */
bool an_cuda_gemm_plan(const an_device *d, const an_gemm_spec *s, const an_loop_kernel *epilogue, an_gemm_plan *out);
an_status an_gemm_prepare(an_err *err, an_device *d, const an_gemm_spec *s, const an_gemm_plan *p,
                          const cu_pointer address[4], an_gemm_ready *out); /* of A, B, C, the addend */
/* addend: the address of p->addend; unused when that is -1. */
an_status an_gemm_run(an_err *err, an_device *d, const an_gemm_spec *s, const an_gemm_plan *p, const an_gemm_ready *r,
                      const cu_pointer address[3], cu_pointer addend, cu_pointer workspace);
void an_gemm_free(an_device *d, an_gemm_ready *r);

/* ---- conv_cudnn.c: convolutions by cuDNN. */
typedef struct an_cuda_convs an_cuda_convs;
typedef struct an_conv_plan an_conv_plan;
an_status an_cuda_convs_open(an_err *err, an_device *d); /* failed: convolutions run without it */
void an_cuda_convs_close(an_device *d, bool reachable);
/* How the library runs this convolution; NULL: our own kernel does. A pure function of (spec, device, library). */
const an_conv_plan *an_cuda_conv_plan(const an_device *d, const an_gemm_spec *s);
int64_t an_cuda_conv_workspace(const an_conv_plan *p); /* bytes */
an_status an_cuda_conv_run(an_err *err, an_device *d, const an_conv_plan *p, const cu_pointer address[3],
                           cu_pointer workspace); /* of A, B, C */

/* ---- gemm_hopper.c: GEMMs by our own kernel, because their epilogue costs nothing when it is fused, or because the library
 * is slow at their extents. */
/* Whether a bf16 GEMM of this shape with an elementwise epilogue should be fused: asked by the fusion pass. */
bool an_cuda_fusion_pays(const an_device *d, int64_t m, int64_t n, int64_t k);
/* The same where the epilogue adds a bias to the f32 sums and rounds them, and no more. */
bool an_cuda_bias_pays(const an_device *d, int64_t m, int64_t n, int64_t k);
/* Whether the product of a layer, whose operands lie along k, has extents for which the library is slow: its bias is added at no cost. */
bool an_cuda_is_odd(const an_device *d, int64_t m, int64_t n, int64_t k);
/* Whether the halves of such a GEMM's rows are gated at its end (an_target.gates). */
an_gating an_cuda_gates(const an_device *d, int64_t m, int64_t n, int64_t k);
/* The same when spec and epilogue are known. */
bool an_cuda_fuses_epilogue(const an_device *d, const an_gemm_spec *s, const an_loop_kernel *epilogue,
                            const an_gemm_plan *p);
struct an_gemm_hopper_args an_cuda_fused_gemm_args(const an_device *d, const an_gemm_spec *s, bool pair, bool narrow,
                                                   uint32_t *blocks);
/* Whether our kernel runs this GEMM without an epilogue, if its result is one that it can store. Asked when the operands'
 * layouts are known; gives those of operands that are cast first rows that the kernel can read. */
bool an_cuda_plain_pays(const an_device *d, const an_gemm_spec *s, an_gemm_plan *p);
/* Into how many parts k is split for it. */
int32_t an_cuda_plain_splits(const an_gemm_spec *s);
/* Bytes of the parts' sums; 0: there is one part. */
int64_t an_cuda_plain_scratch(const an_gemm_spec *s, const an_gemm_plan *p);
/* Arguments of gemm, and of gemm_reduce when there are parts. */
struct an_gemm_hopper_args an_cuda_plain_args(const an_device *d, const an_gemm_spec *s, const an_gemm_plan *p, int add,
                                              bool aligned, bool reduce, uint32_t *blocks);
/* A GEMM, and the elementwise step behind it that reads its result in two halves, one below the other: one launch. */
typedef struct an_gemm_pair {
    an_gemm_plan gemm;
    int arg;    /* of the elementwise step: the result */
    bool keep;  /* later steps read the result, too */
    bool reads; /* the step reads another tensor beside it */
} an_gemm_pair;
/* Whether steps s and s + 1 of the plan are such a pair. */
bool an_cuda_is_pair(const an_device *d, const an_plan *p, int32_t s, an_gemm_pair *out);
/* The tensor map of operand `which` (0: A, 1: B) at this address. */
cu_result an_cuda_operand_map(an_device *d, const an_gemm_spec *s, const an_gemm_plan *p, int which, cu_pointer at,
                              cu_tensor_map *out);

/* ---- device_facts.c: functions of an_backend. */
double an_cuda_measured_peak(an_device *d, an_dtype dtype, double seconds);

/* ---- memory_guard.c: for place_apart. */
an_status an_cuda_guard_buffer(an_err *err, an_device *d, cu_pointer p, size_t bytes);
void an_cuda_unguard_buffer(an_device *d, cu_pointer p);
/* Before a run: writes guards between the values of the arena, and poison into the values. */
an_status an_cuda_guards_set(an_err *err, an_device *d, const an_plan *p, cu_pointer arena);
/* Waits, and fails when a guard was overwritten. step: the last launch; -1: unknown, one of the run. */
an_status an_cuda_guards_check(an_err *err, an_device *d, const an_plan *p, cu_pointer arena, int step);

/* ---- borrow.c */
an_status an_cuda_borrow(an_err *err, an_device *d, void *memory, uint64_t offset, size_t bytes, an_buffer *out);
uint64_t an_cuda_stream(an_device *d);
an_status an_cuda_order(an_err *err, an_device *d, uint64_t theirs, bool ours_first);

/* ---- links.c */
void an_cuda_links(an_self_check_fn *tell, void *user);

/* ---- nccl.c */
an_status an_cuda_join(an_err *err, an_device *d, struct an_comm *c);
/* Connects the GPUs of all ranks, once; before a plan that exchanges is captured. Every rank calls it. */
an_status an_cuda_connect(an_err *err, an_device *d);
void an_cuda_leave(an_device *d);
an_status an_cuda_exchange(an_err *err, an_device *d, const an_library_call_spec *s, cu_pointer in, cu_pointer out);

/* ---- graph_exec.c */
an_status an_cuda_load(an_err *err, an_device *d, const an_plan *p, an_exec **out, an_load_stats *stats);
void an_cuda_unload(an_device *d, an_exec *e);
an_status an_cuda_submit(an_err *err, an_device *d, an_exec *e, const an_buffer *slots, int n_slots, an_ticket *out);
double an_cuda_step_seconds(an_device *d, an_exec *e, int step);
double an_cuda_step_begin(an_device *d, an_exec *e, int step);
double an_cuda_enqueue_seconds(an_device *d, an_exec *e, int step);
void an_cuda_profile(an_device *d, bool on);

#endif
