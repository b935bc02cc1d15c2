/* anneal_tools.h: looking inside, for the program `anneal` and for debugging a machine: devices and why one is not
 * available, the launches of a plan with their times, kernels checked one by one.
 *
 * Not installed and no promise: it may change with any version. anneal.h is the library.
 */
#ifndef ANNEAL_TOOLS_H
#define ANNEAL_TOOLS_H

#include <anneal.h>

/* Records a sentence as the context's error, unless it has one: of work that failed before it could build anything. */
void an_error_record(an_ctx *cx, an_status status, const char *sentence);

/* ---- devices */

typedef struct an_device_facts {
    char name[32];
    bool built, available, runs; /* runs: false for null:*, which plan and render only, and for the oracle */
    char reason[256];            /* what it is, or why it is not available */
    bool gpu, own_memory;        /* own_memory: not the machine's (a card's) */
    bool plans_only;             /* null:* */
    int bench_side;              /* side of a square GEMM that fills it */
    char planned_by[32];         /* the device that plans for it where it is absent; "": none */
} an_device_facts;

/* Asks every backend; at most `cap` go to `out`. Returns how many there are. Touches no context. */
int an_devices(an_device_facts *out, int cap);
/* The same for one name; false: no such device. */
bool an_device_find(const char *name, an_device_facts *out);
/* In: what the settings ask for. Out: how the device will compute, its environment variables included. */
void an_device_modes(const char *name, bool *exact, bool *tf32);
/* The device that device=auto chooses. */
const char *an_device_auto(void);
/* The context's device, without asking its driver again; `reason` is left empty. False: it has none. */
bool an_device_opened(const an_ctx *cx, an_device_facts *out);

/* Asks the driver of a device whether it is what anneal was written against (Metal: the types of all methods that are
 * called, then a first kernel). `tell` hears each answer before the next question. False: there is nothing to ask. */
typedef void an_self_check_fn(void *user, const char *what, const char *found, bool fault);
bool an_device_examine(const char *name, an_self_check_fn *tell, void *user);
/* Tells what connects several devices of this kind, and the library that adds over them. */
void an_device_links(const char *name, an_self_check_fn *tell, void *user);

/* Instruction sets of a processor, which have one hash but for products of bfloat16 on tile registers. an_device_isa: the context's;
 * NULL: its device has none to choose from. an_isa_of_bits: the set to open for a run in bfloat16 that began on the set `began`;
 * NULL: what the device takes by itself has its bits; "": nothing here has. an_isa_rates: each set that runs here, what one core
 * reaches with it, in GFLOP/s of multiply-adds in registers, and whether it is taken where no isa is given. */
typedef void an_isa_rate_fn(void *user, const char *isa, double f32_gflops, double bf16_gflops, bool taken);
const char *an_device_isa(const an_ctx *cx);
const char *an_isa_of_bits(const char *device, const char *began);
void an_isa_rates_of(const char *device, an_isa_rate_fn *tell, void *user);

/* A device may have several kernel variants (bodies) of GEMM, which give the same bits: the name of the i-th, NULL past the
 * last or where there is one alone. `use`: the one for GEMMs of `dtype` in plans made from now on. `keep`: what is in use is used by
 * contexts opened later on this machine. */
const char *an_gemm_body(const an_ctx *cx, int i);
void an_gemm_body_use(an_ctx *cx, an_dtype dtype, int i);
an_status an_gemm_body_keep(an_ctx *cx);

/* This process is one of several that train together (comm/comm.h): updates add up the gradients of all of them, before
 * they are clipped. Called once, before parameters are made; `c` outlives the context. */
struct an_comm;
an_status an_join(an_ctx *cx, struct an_comm *c);
/* What of an optimizer's arrays each rank keeps a part of, in place of the whole (Rajbhandari et al., "ZeRO: memory
 * optimizations toward training trillion parameter models", SC 2020: its three stages). A rank updates its part of
 * the parameters, and the parts are gathered. AN_SHARD_GRADIENTS: also the gradients that are kept over micro-batches,
 * for an exchange a micro-batch in place of one an update. AN_SHARD_WEIGHTS: also the parameters and their averages, which
 * each plan gathers ahead of use: every rank then runs the same graphs as often as the others, evaluations too, and
 * parameters are neither assigned to nor read as roots. Same bits as without, where the device adds in rank order
 * and for an update of one micro-batch a rank (AN_SHARD_MOMENTS: of any). Called behind an_join, before parameters are
 * made. Of one rank: nothing. */
typedef enum an_shard { AN_SHARD_NONE, AN_SHARD_MOMENTS, AN_SHARD_GRADIENTS, AN_SHARD_WEIGHTS } an_shard;
an_status an_shard_optimizer(an_ctx *cx, an_shard what);
/* An input whose memory stays the caller's and unchanged until an_reset: a batch is not copied twice. an_set_input gives it memory of the
 * context's own. */
an_tensor *an_input_lent_at(const char *at, an_ctx *cx, an_dtype dtype, an_shape shape, const void *data);
#define an_input_lent(cx, dtype, shape, data) an_input_lent_at(AN_AT, cx, dtype, shape, data)
/* Whether the exchange of gradients may begin while the backward pass still runs (the default), on a device that runs
 * launches side by side. Same bits. */
void an_overlap_exchanges(an_ctx *cx, bool overlap);
/* Gradients of float32 are rounded to bfloat16 before ranks add them, for half the bytes: `bf16`. Each rank's are
 * rounded once, and so is their sum, which shared memory and MPI add up in float32. Parameters that ranks gather stay
 * as they are. AN_E_UNSUPPORTED in exact mode of several ranks. Called behind an_join. */
an_status an_exchange_bf16(an_ctx *cx, bool bf16);
/* For the bill of an update before a run: steps that are built from here on are as if a micro-batch had been run
 * before, whose gradients are kept. False: no longer. Nothing may run in between. */
void an_assume_kept_gradients(an_ctx *cx, bool kept);
/* Which elements of entry i of an_persist_get rank `rank` holds: [*first, *first + *n). All of them, unless sharded. What
 * an_persist_read of such an entry reads, and an_persist_write writes, are these; it leaves the others of `dst` alone. */
an_status an_persist_part(an_ctx *cx, int i, int rank, int64_t *first, int64_t *n);
/* [ranks,...]: `a` of each rank, in rank order; of a process alone [1,...]. No gradient goes through it. Every rank
 * builds the same graph around it. */
an_tensor *an_all_gather_at(const char *at, an_tensor *a);
#define an_all_gather(a) an_all_gather_at(AN_AT, a)
/* The sum over all ranks of a float tensor, in rank order where the device adds. */
an_tensor *an_all_reduce_at(const char *at, an_tensor *a);
#define an_all_reduce(a) an_all_reduce_at(AN_AT, a)

/* The time that the context's device has worked, in seconds of its own clock; < 0: it does not say. */
double an_device_busy_seconds(const an_ctx *cx);
/* Whether the device applies a gate as it stores a product of x in bf16, [m,k] x [k,n], where gate and up are the upper and the lower
 * half of its rows: the form in which a gated layer of x is built then. False, too, where x is not multiplied in bf16. */
bool an_gates_rows(const an_tensor *x, int64_t m, int64_t n, int64_t k);

/* What macOS says of the machine: heat as NSProcessInfo has it (0 nominal, 1 fair, 2 serious, 3 critical), and
 * low-power mode; -1: not told. False: this is no macOS. */
bool an_mac_state(int *thermal, int *low_power);

/* Keeps a Mac from going to sleep when its user is idle, until an_awake_end; the display may sleep. NULL: not done here. */
void *an_awake_begin(void);
void an_awake_end(void *token);

/* The compiler of fused CPU kernels and the folder they are kept in, as a context with these options would find them.
 * An empty path means none, and the text beside it says why. */
typedef struct an_compiler_facts {
    char path[512], why[256], version[128];
    char cache_dir[900], why_cache[512];
    int64_t cached_files, cached_bytes;
} an_compiler_facts;
/* Empties the kernel cache (as found by an_compiler_facts_read; other files in the folder stay); returns the bytes. */
uint64_t an_cache_clean(const char *cache_dir, int64_t *files);
/* The kernel cache's folder alone; "" and the reason where there is none. */
void an_cache_folder(char folder[900], char why[512]);
void an_compiler_facts_read(const char *cc, const char *cache_dir, an_compiler_facts *out);

/* ---- launches of the plan that ran last */

typedef struct an_launch {
    const char *kernel, *scope; /* of the plan: valid until the next eval, plan or reset */
    const char *kind;           /* "row" (loop kernel), "product" (GEMM), "put" (row update), "attention", ... */
    double device_s;            /* 0: the device does not say */
    double begin_s;   /* since the plan began, where launches ran side by side; < 0: one after the other, or unknown */
    double enqueue_s; /* on the host, to hand it over; < 0: the device does not say, or runs it there */
    uint64_t flops, bytes;
    bool recompute;    /* forward work done a second time */
    bool fallback;     /* the CPU runs it: the device cannot (fallback), or it was placed there (on_cpu) */
    bool placed;       /* it was placed there */
    bool exchange;     /* between ranks */
    const char *phase; /* "forward", "backward", "update" */
    char shape[64];    /* "768x384x128 f32" of a product, "768 x 128 over 6" of a loop kernel; "" of others */
} an_launch;

/* Devices that run ahead or replay a whole step time each launch only when asked to; slower. */
void an_profile(an_ctx *cx, bool on);
int an_launch_count(const an_ctx *cx); /* 0: nothing ran */
bool an_launch_get(const an_ctx *cx, int i, an_launch *out);
/* After a profiled run of a plan: the time in which exchanges between ranks ran, and of that the time in which nothing else did. */
typedef struct an_exchange_time {
    double exchange_s, exposed_s;
} an_exchange_time;
/* AN_E_NOMEM: not enough memory to look. */
an_status an_exchange_time_read(an_ctx *cx, an_exchange_time *out);
/* The same of n launches that have run side by side, or one after the other (begin_s < 0). Orders them anew. */
an_exchange_time an_exchange_time_of(an_launch *launch, int n);
/* The same of the plan made last, run or not; times are unknown. */
int an_planned_launch_count(const an_ctx *cx);
bool an_planned_launch_get(const an_ctx *cx, int i, an_launch *out);
/* Of the plan made last: how many launches the CPU runs for a GPU, how many of them were placed there (an_options.on_cpu),
 * and how often the CPU takes its turn, for which the GPU has to end. */
typedef struct an_cpu_launches {
    int all, placed, turns;
} an_cpu_launches;
an_cpu_launches an_planned_on_cpu(const an_ctx *cx);
/* The scopes of an_options.on_cpu that none of its launches has, ", " between them; NULL: each is there, or the device
 * places nothing. The context's, as an_report_text's texts are. */
const char *an_planned_unplaced(an_ctx *cx);

/* ---- memory of the plan made last, run or not */

typedef struct an_plan_tensor {
    const char *name, *kind; /* scope and operation; "activations", "gradients", "scratch": valid until the next plan */
    const char *scope;       /* of the launch that writes it first */
    uint64_t bytes;
    int first, last; /* launches between which it holds its part of the arena */
} an_plan_tensor;

int an_plan_tensor_count(const an_ctx *cx);
/* False: number `i` holds no memory of its own. */
bool an_plan_tensor_get(const an_ctx *cx, int i, an_plan_tensor *out);

/* Whose memory the context holds now, by `kind`:
 *     "parameters", "moments", "states"   with the names that an_persist_get has
 *     "step"      tensors alive at the fullest launch of the plan that ran last, under the scopes of the launches that write them
 *     "scratch"   work memory of that launch, under its scope
 *     "inputs"    what a launch reads from the host, without a scope
 *     "gaps"      the rest of the plan's arena: held for other launches, without a scope
 * Scopes come several times. All of them together are an_memory's live_bytes. */
typedef void an_memory_scope_fn(void *user, const char *kind, const char *scope, uint64_t bytes);
void an_memory_scopes(an_ctx *cx, an_memory_scope_fn *tell, void *user);

/* ---- kernels against the oracle */

typedef struct an_kernel_check {
    const char *kernel, *scope, *kind;
    int launches;      /* of this kernel in the plan; the first is checked */
    int64_t elements;  /* compared */
    double worst;      /* largest difference found, in allowed ones: above 1 is a fault */
    char fault[1024];  /* what was wrong with it; "" */
    char skipped[128]; /* why it was not checked; "" */
} an_kernel_check;
typedef void (*an_kernel_check_fn)(void *user, const an_kernel_check *c);

typedef struct an_check_result {
    int kernels, faults, skipped; /* distinct kernels; those wrong; those not checked */
    int64_t elements;
} an_check_result;

/* Compiles each distinct kernel of the plan made last (an_plan is enough) by itself, so that one which the device
 * refuses does not hide the others; `fault` has the compiler's words. */
an_status an_compile_kernels(an_ctx *cx, an_kernel_check_fn tell, void *user, an_check_result *out);

/* Runs the plan of the last eval once more, launch by launch, with what memory holds, and compares samples of what each
 * distinct kernel wrote with plain loops in double precision over what it read. Faults are in the result, not in the
 * status. `tell` (or NULL) hears of each kernel. Persistent state takes one more update. */
an_status an_check_kernels(an_ctx *cx, an_kernel_check_fn tell, void *user, an_check_result *out);

/* A number that is not finite, where it is written first. */
typedef struct an_not_finite {
    char kernel[128], scope[128];
    const char *kind, *phase; /* as an_launch has them */
    int launch;               /* number in the plan */
    int64_t element;          /* of what that launch writes */
    double value;
} an_not_finite;

/* Runs the plan of the last eval once more, launch by launch, up to the first that writes NaN or an infinity. *found
 * false: none does. Persistent state takes one more update, or a part of one. */
an_status an_find_not_finite(an_ctx *cx, bool *found, an_not_finite *out);

#endif
