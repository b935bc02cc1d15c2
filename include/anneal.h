/* anneal.h: a training compiler. This header is its manual.
 *
 *     #include <anneal.h>
 *
 *     int main(void)
 *     {
 *         an_ctx *cx = an_open(&(an_options){.device = "auto", .seed = 1});
 *         an_tensor *w = an_param(cx, "w", AN_F32, AN_SHAPE(784, 10), AN_NORMAL(0.02));
 *
 *         for (int step = 0; step < 1000; step++) {
 *             an_tensor *x = an_input(cx, AN_F32, AN_SHAPE(64, 784), images);        // [B,784]
 *             an_tensor *y = an_input(cx, AN_I32, AN_SHAPE(64), labels);             // [B]
 *             an_tensor *loss = an_mean(an_cross_entropy(an_matmul(x, w), y), AN_ALL);
 *             an_backward(loss);
 *             an_sgd(cx, 0.1);
 *             an_eval(loss);                         // step 0 plans and compiles, step 1... only runs
 *             if (step % 100 == 0) printf("%4d  %.4f\n", step, an_item(loss));
 *             an_reset(cx);                          // this step's tensors are gone; parameters stay
 *         }
 *         if (an_error(cx)) fprintf(stderr, "%s\n", an_error(cx));
 *         an_close(cx);
 *     }
 *
 * How it works: building a tensor appends a node; nothing runs. an_eval turns what the given tensors and the effects
 * (assignments) need into a plan: kernels, memory and order, all known before the first byte is allocated, and runs it.
 * Rebuilding the same step finds the same plan.
 *
 * Errors: building never fails visibly. The first bad call records a sentence (file, line, operation, shapes, scope) in
 * the context and returns a poison tensor; an_eval returns the status and an_error the sentence. Nothing here prints,
 * exits or aborts.
 *
 * Ownership: tensors are never freed by the caller. Parameters and states live until an_close, everything else until
 * an_reset. One context is used by one thread at a time; contexts are independent. There are no globals.
 *
 * DOES NOT: data-dependent shapes, complex numbers, gradients of gradients, implicit broadcasting across dtypes (cast
 * first).
 */
#ifndef ANNEAL_H
#define ANNEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define AN_API __attribute__((visibility("default")))
#else
#define AN_API
#endif

#define AN_VERSION "0.1.0"

/* ---- status and dtypes */

typedef enum an_status {
    AN_OK = 0,
    AN_E_USAGE,   /* a wrong argument, key or value                                   */
    AN_E_SHAPE,   /* shapes, axes or ranks that do not fit                            */
    AN_E_DTYPE,   /* a dtype the operation does not take                              */
    AN_E_CONTEXT, /* a tensor of another context, or one that an_reset has ended      */
    AN_E_NOMEM,   /* the host or the device has no memory                             */
    AN_E_BUDGET,  /* the plan does not fit the memory budget                          */
    AN_E_ENV,     /* something outside is missing or refuses: compiler, cache, driver */
    AN_E_DEVICE,  /* the device failed or disappeared                                 */
    AN_E_IO,      /* a file cannot be read or written, or is damaged                  */
    AN_E_DATA,    /* data out of range: an id, a label                                */
    AN_E_NUMERIC, /* NaN or infinity where training cannot go on                      */
    AN_E_UNSUPPORTED,
    AN_E_INTERNAL /* a check of our own failed: please report it                      */
} an_status;

/* AN_BOOL is one byte, 0 or 1. AN_F64 runs on the CPU only. To add a dtype:
 * src/graph/dtypes.c lists the places. */
typedef enum an_dtype { AN_F32 = 0, AN_BF16, AN_F16, AN_F64, AN_I32, AN_I64, AN_U8, AN_BOOL, AN_N_DTYPES } an_dtype;

typedef struct an_ctx an_ctx;
typedef struct an_tensor an_tensor;

/* A shape: up to 8 axes, outermost first. AN_SHAPE(64, 256, 384); AN_SCALAR is rank 0. */
typedef struct an_shape {
    int rank;
    int64_t dim[8];
} an_shape;
#define AN_SHAPE(...)                                                                                                  \
    ((an_shape){.rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), .dim = {__VA_ARGS__}})
#define AN_SCALAR ((an_shape){.rank = 0})

/* A set of axes: AN_AXIS(-1), AN_AXIS(0) | AN_AXIS(2), or AN_ALL. Negative axes count from the end; -8 to 7. */
typedef uint32_t an_axes;
#define AN_AXIS(i) ((an_axes)1u << ((i) < -8 || (i) > 7 ? 16u : (unsigned)(i)&15u)) /* bit 16: no axis, refused */
#define AN_ALL     ((an_axes)0xFFFFFFFFu)

/* ---- the context */

typedef struct an_options {
    const char *device;    /* "auto" (default: the first GPU that answers, else the CPU), "cpu", "cuda", "metal", "ref"
                              (slow oracle); "null:cpu", "null:cuda", "null:metal" plan and render only */
    uint64_t seed;         /* of parameters and dropout */
    int threads;           /* CPU threads; 0: every core this process may use. Results do not depend on it */
    const char *isa;       /* CPU instruction set by name; NULL: the best */
    const char *cc;        /* C compiler for loop kernels; NULL: $CC, cc, clang, gcc; "none": interpret */
    const char *cache_dir; /* compiled kernels; NULL: $ANNEAL_CACHE, else the user's cache folder */
    uint64_t budget_bytes; /* memory the plan may ask for; 0: no limit */
    const char *recompute; /* "auto" (default: by budget), "off", "on": drop cheap activations and compute them again in
                              the backward pass */
    bool unfused;          /* one kernel an op (compile=False); same bits */
    bool place_apart;      /* every value its own guarded allocation, for sanitizers; same bits */
    bool verify;           /* check each kernel that is made (always on in debug builds); plans are checked always */
    const char *dump;      /* names of passes whose text goes to dump_dir: "all" or "fuse,lower" */
    const char *dump_dir;  /* an existing folder; NULL: the current one */
    double low_watermark, high_watermark; /* parts of the memory the device recommends; see an_memory_limits. 0: of
                                             PYTORCH_MPS_LOW_ and _HIGH_WATERMARK_RATIO in the environment, where 0
                                             means none; else the usual one */
    bool exact; /* fp32 training with the same bits on every device: see DESIGN.md; costs speed */
    bool tf32;  /* CUDA: float32 GEMMs on tensor cores, operands rounded to 11 bits; never without being asked */
    const char *fallback; /* Metal: what the GPU cannot run (float64) is an error that names the op: "none"; or runs on
                             the CPU, counted in the cost report: "cpu". NULL: "cpu" if
                             PYTORCH_ENABLE_MPS_FALLBACK=1 is in the environment, else "none" */
    const char
        *on_cpu; /* Metal: scopes ("optimizer,gpt.h.0.*": * is any text, ? any character) whose launches run on the CPU,
                              counted as those of `fallback`; each change waits. NULL: none. Elsewhere: a "warning" */
    bool parameters_given; /* the caller writes every parameter (a checkpoint): they begin as zeros, nothing is drawn */
} an_options;

/* Opens a context on a device. `o` may be NULL. NULL is returned only when there is no memory for the context itself;
 * every other failure is in an_error, and every later call is harmless. */
#define an_open(...) an_open_sized((__VA_ARGS__), sizeof(an_options)) /* variadic: a compound literal has commas */
AN_API an_ctx *an_open_sized(const an_options *o, size_t options_size);
AN_API void an_close(an_ctx *cx);

/* The first sentence recorded since an_error_clear, or NULL. */
AN_API const char *an_error(const an_ctx *cx);
AN_API an_status an_error_status(const an_ctx *cx);
/* What a status means, in one sentence: for a call that was given no context to record a sentence in, as an_eval(NULL).
 * Never NULL. */
AN_API const char *an_status_text(an_status status);
AN_API void an_error_clear(an_ctx *cx);

/* Ends the step: every tensor but parameters and states is gone. Also clears a building error. */
AN_API void an_reset(an_ctx *cx);

/* Names what is built until the matching pop: "gpt", then "h.0" gives "gpt.h.0". Errors, kernels and reports carry the
 * path; streams of random numbers depend on it. */
AN_API void an_scope_push(an_ctx *cx, const char *name);
AN_API void an_scope_pop(an_ctx *cx);

/* ---- running */

/* Plans (or finds the plan of) everything needed for the given tensors and all effects recorded since the last eval or
 * reset, and runs it. an_eval(a, b, c): any number of tensors, of one context. With `cx` alone use an_eval_effects(cx).
 * On a GPU it returns when the work has been handed over: a few steps may be under way, in order; a read waits. If
 * one fails there, the next call that waits or evaluates returns the error, and so does each after it: nothing of that
 * step is read, and no later step has changed a parameter. On the CPU the work is done when it returns. */
#define an_eval(...)                                                                                                   \
    an_eval_at(AN_AT, (an_tensor *[]){__VA_ARGS__}, (int)(sizeof((an_tensor *[]){__VA_ARGS__}) / sizeof(an_tensor *)))
AN_API an_status an_eval_at(const char *at, an_tensor *const *roots, int n);
#define an_eval_effects(cx) an_eval_effects_at(AN_AT, cx)
AN_API an_status an_eval_effects_at(const char *at, an_ctx *cx);

/* Plans without running or allocating; an_report then returns the cost report. */
#define an_plan(...)                                                                                                   \
    an_plan_at(AN_AT, (an_tensor *[]){__VA_ARGS__}, (int)(sizeof((an_tensor *[]){__VA_ARGS__}) / sizeof(an_tensor *)))
AN_API an_status an_plan_at(const char *at, an_tensor *const *roots, int n);

/* Reads an evaluated tensor. an_item: a one-element tensor as a double (NaN and a recorded error when it was not
 * evaluated); it waits for the device and is counted as a sync. A state or parameter
 * that is itself named as a root is read after the step: its new value. an_read copies `bytes` (exactly the tensor's)
 * in the tensor's dtype. */
#define an_item(t) an_item_at(AN_AT, t)
AN_API double an_item_at(const char *at, an_tensor *t);
#define an_read(t, dst, bytes) an_read_at(AN_AT, t, dst, bytes)
AN_API an_status an_read_at(const char *at, an_tensor *t, void *dst, size_t bytes);
/* The newest value that is there of a scalar evaluated as first root, and its step; never waits. A step is passed over
 * when the next one was evaluated before it had ended. False: none has ended yet. */
AN_API bool an_peek(an_ctx *cx, double *value, int64_t *step);
/* Waits until the device has finished all that was asked of it; says how that went. Counted as a wait, not as a sync:
 * nothing is read. */
AN_API an_status an_synchronize(an_ctx *cx);

/* Memory of the device, counted by the context that asks for it. */
typedef struct an_memory {
    uint64_t live_bytes;            /* what persists, and arena and inputs of the plan that ran last */
    uint64_t requested_bytes;       /* asked of the device and not given back */
    uint64_t peak_bytes;            /* the highest of it since an_memory_reset_peak */
    uint64_t driver_bytes;          /* what the driver holds for this process (CPU: resident memory); 0: unknown */
    uint64_t recommended_bytes;     /* the most the device recommends to use; 0: unknown, and there are no marks */
    uint64_t low_bytes, high_bytes; /* the watermarks in bytes; UINT64_MAX: none */
    uint64_t allocations;
    int32_t plans; /* in the cache */
} an_memory;
AN_API an_status an_memory_read(const an_ctx *cx, an_memory *out);
AN_API void an_memory_reset_peak(an_ctx *cx);
/* Gives back what no tensor needs: cached plans with their kernels, arena and input block. What was evaluated can no
 * longer be read; parameters, moments and states stay. The next eval plans anew. */
AN_API an_status an_empty_cache(an_ctx *cx);
/* Watermarks as parts of recommended_bytes; 0: the usual one (low 0.8, high 0.95), negative: none. A step that would
 * bring the requests above the high one is refused before anything is requested (AN_E_NOMEM); above the low one idle
 * memory is given back first. Without a high mark an_report_text(cx, "warning") says what may happen. */
AN_API an_status an_memory_limits(an_ctx *cx, double low, double high);
/* Reads of results, each of which waits for the device: where, and how often. At most `cap` go to `out`; returns how
 * many places there are. an_bill.syncs is the sum of all counts. */
typedef struct an_sync {
    const char *at; /* "file.c:88" */
    int64_t count;
} an_sync;
AN_API int an_syncs(const an_ctx *cx, an_sync *out, int cap);

/* The cost report (`an_bill`) of the last plan. */
typedef struct an_bill {
    uint64_t peak_bytes; /* all below together: what the plan requests from the device */
    uint64_t weight_bytes, gradient_bytes, moment_bytes, state_bytes, activation_bytes, scratch_bytes, input_bytes;
    uint64_t flops, moved_bytes; /* of one run: multiply-add counts 2; bytes read and written by kernels */
    int32_t launches, kernels, fallbacks, syncs, copies;
    int32_t compiled, cached; /* loop kernels compiled now, found in the cache */
    double plan_ms, compile_ms;
    bool plan_cached;         /* found whole, by key */
    uint64_t allocated_bytes; /* what has in fact been requested from the device so far */
    uint64_t allocations;     /* and in how many calls */
    uint64_t fallback_bytes;  /* bytes that steps run by the CPU in place of the GPU read and write; none are copied */
    double fallback_ms;       /* and the time that they took in the last run */
    int32_t splits;           /* groups of operations cut in two because one kernel cannot hold them; "plan" says why */
    int64_t waits; /* times the context waited so far until nothing was under way: reads, an_synchronize, checkpoints */
    int64_t stalls; /* times an_eval waited for the oldest of the steps under way, with more of them queued behind it */
} an_bill;
AN_API an_status an_report(const an_ctx *cx, an_bill *out);
/* Texts for people, owned by the context until the next call: "plan" (one line a step), "memory" (timeline: tensor x
 * step), "kernels" (rendered source), "miss" (why the last plan was built anew: the first node that differs), "chips"
 * (an estimate of the step's time on Apple's chips), "warning" (about the context's settings). NULL when unknown. */
AN_API const char *an_report_text(an_ctx *cx, const char *what);
/* The peak rate of this context's device now, in GFLOP/s, measured in some tens of milliseconds. CPU: independent
 * multiply-adds in the registers of its threads (AN_F32; AN_BF16: of the dot product, or of f32 where there is none). CUDA:
 * the fastest of some large GEMMs of that dtype by cuBLASLt, tf32 where the context uses it. Metal, ref: 0, not measured.
 * Benchmarks, and '% of peak' of anneal train, express their figures as a share of it. */
AN_API double an_fma_peak(an_ctx *cx, an_dtype dtype);

/* ---- leaves */

typedef struct an_init {
    int kind; /* 0 zeros, 1 constant a, 2 normal (mean 0, std a), 3 uniform in [a, b),
                 4 normal (mean 0) cut at two standard deviations; a is the standard deviation after the cut */
    double a, b;
} an_init;
#define AN_ZEROS             ((an_init){0, 0, 0})
#define AN_ONES              ((an_init){1, 1, 0})
#define AN_FILL(x)           ((an_init){1, (x), 0})
#define AN_NORMAL(std)       ((an_init){2, (std), 0})
#define AN_UNIFORM(a, b)     ((an_init){3, (a), (b)})
#define AN_TRUNC_NORMAL(std) ((an_init){4, (std), 0})

/* A parameter, named as in PyTorch's state_dict. The same name returns the same tensor (shape and dtype must agree).
 * Weight decay applies to parameters of rank >= 2 unless an_param_decay says otherwise. The layout freezes at the first
 * optimizer call. an_params_decay and an_params_freeze say it of all whose name matches one of `globs`, a list with
 * commas in which * is any text and ? any character; they return how many match. */
#define an_param(cx, name, dtype, shape, init) an_param_at(AN_AT, cx, name, dtype, shape, init)
AN_API an_tensor *an_param_at(const char *at, an_ctx *cx, const char *name, an_dtype dtype, an_shape shape,
                              an_init init);
AN_API void an_param_decay(an_tensor *p, bool decay);
AN_API void an_param_freeze(an_tensor *p, bool frozen); /* no gradient, no update */
AN_API int an_params_decay(an_ctx *cx, const char *globs, bool decay);
AN_API int an_params_freeze(an_ctx *cx, const char *globs, bool frozen);

/* State that lives across steps and is no parameter: KV caches, running statistics, carries. Changed by an_assign
 * alone. */
#define an_state(cx, name, dtype, shape, init) an_state_at(AN_AT, cx, name, dtype, shape, init)
AN_API an_tensor *an_state_at(const char *at, an_ctx *cx, const char *name, an_dtype dtype, an_shape shape,
                              an_init init);
/* The state takes `value` when the step ends; readers in this step see the old value. Several assignments to one state
 * take effect in the order of the calls: where a later value reads the state, it reads what the earlier one assigned. So
 * do an optimizer's update and an assignment to a parameter; two updates of one parameter in a step are refused. Where
 * the device can, an_where(an_eq(iota, i), row, state) assigned to that state writes one row in place. */
#define an_assign(state, value) an_assign_at(AN_AT, state, value)
AN_API void an_assign_at(const char *at, an_tensor *state, an_tensor *value);

/* Data of this step; copied at once. The values do not enter the plan's key. NULL: the step can be planned, not run.
 */
#define an_input(cx, dtype, shape, data) an_input_at(AN_AT, cx, dtype, shape, data)
AN_API an_tensor *an_input_at(const char *at, an_ctx *cx, an_dtype dtype, an_shape shape, const void *data);
/* A number that changes from step to step (learning rate, position) without a new plan; f32 or i32. */
#define an_scalar(cx, x) an_scalar_at(AN_AT, cx, x)
AN_API an_tensor *an_scalar_at(const char *at, an_ctx *cx, double x);
#define an_scalar_i32(cx, x) an_scalar_i32_at(AN_AT, cx, x)
AN_API an_tensor *an_scalar_i32_at(const char *at, an_ctx *cx, int32_t x);
#define an_scalar_f64(cx, x) an_scalar_f64_at(AN_AT, cx, x) /* float64, unrounded */
AN_API an_tensor *an_scalar_f64_at(const char *at, an_ctx *cx, double x);
/* A number that is part of the plan. */
#define an_const(cx, dtype, x) an_const_at(AN_AT, cx, dtype, x)
AN_API an_tensor *an_const_at(const char *at, an_ctx *cx, an_dtype dtype, double x);
#define an_full(cx, dtype, shape, x) an_full_at(AN_AT, cx, dtype, shape, x)
AN_API an_tensor *an_full_at(const char *at, an_ctx *cx, an_dtype dtype, an_shape shape, double x);
/* A table of numbers that never changes (positions, filters): part of the context like a state, but no checkpoint has it
 * and nothing can be assigned to it. The same bytes in the same dtype and shape are one tensor. */
#define an_constant(cx, dtype, shape, data) an_constant_at(AN_AT, cx, dtype, shape, data)
AN_API an_tensor *an_constant_at(const char *at, an_ctx *cx, an_dtype dtype, an_shape shape, const void *data);
#define an_iota(cx, shape, axis) an_iota_at(AN_AT, cx, shape, axis) /* i32 positions along `axis` */
AN_API an_tensor *an_iota_at(const char *at, an_ctx *cx, an_shape shape, int axis);
/* Uniform [0,1), f32; a pure function of (seed, step, scope, ordinal, global sample): axis 0 is the sample axis. */
#define an_rand(cx, shape) an_rand_at(AN_AT, cx, shape)
AN_API an_tensor *an_rand_at(const char *at, an_ctx *cx, an_shape shape);

/* The step number and the global number of this micro-batch's first sample, which random streams depend on. an_reset
 * keeps them. */
AN_API void an_set_step(an_ctx *cx, uint64_t step);
AN_API void an_set_sample(an_ctx *cx, uint64_t first_sample);

/* Introspection. Names are NULL for what is not a parameter or state. */
AN_API an_shape an_shape_of(const an_tensor *t);
AN_API an_dtype an_dtype_of(const an_tensor *t);
AN_API const char *an_name_of(const an_tensor *t);
AN_API const char *an_dtype_text(an_dtype t); /* "float32", "bfloat16", ... */
AN_API size_t an_dtype_size(an_dtype t);
AN_API bool an_dtype_parse(const char *name, an_dtype *out);

/* Everything that persists, for checkpoints and imports: parameters, then optimizer moments ("optimizer.m.NAME",
 * "optimizer.v.NAME") and averages ("ema.NAME"), then states, each in order of creation. an_persist_read/write copy the
 * whole tensor, contiguous, in its dtype; of a parameter that is kept narrower than it was declared (an_policy.weights)
 * also in the declared one, which `bytes` tells: rounded to the nearest. */
typedef struct an_persist {
    const char *name;
    an_dtype dtype, declared; /* as it is kept; what an_param was told */
    an_shape shape;
    int kind; /* 0 parameter, 1 moment or average, 2 state */
} an_persist;
AN_API int an_persist_count(an_ctx *cx);
AN_API an_status an_persist_get(an_ctx *cx, int i, an_persist *out);
AN_API int an_persist_find(an_ctx *cx, const char *name); /* -1: none */
AN_API an_status an_persist_read(an_ctx *cx, int i, void *dst, size_t bytes);
AN_API an_status an_persist_write(an_ctx *cx, int i, const void *src, size_t bytes);

/* ------------------------------------------------------------------------------------------------------------
 * operations
 *
 * Operands of elementwise functions broadcast as in NumPy: shapes are aligned at the end and axes of length 1 are
 * repeated. Dtypes must agree. Numbers given as a double must be numbers of the dtype they are used in: 0.5 is refused
 * for an int32 tensor. Axes may have length 0; only a maximum of nothing is refused. The list below is one macro a
 * function, so that an error names the caller's file and line.
 *
 * Special values and gradients where a function has a corner are PyTorch's:
 *     relu'(0) = 0, abs'(0) = 0, softplus'(0) = 1/2     sign(NaN) = 0
 *     clamp                    the gradient passes at the bounds (relu, relu6 and hardtanh pass none at theirs), not at NaN
 *     maximum, minimum         NaN wins; equal operands get half of the gradient each
 *     max, min over axes       NaN wins, and makes the gradient NaN (over one element it passes); equal elements share
 *                              it equally (as torch.amax; torch.max with an axis gives it to one of them)
 *     max_pool                 the first maximum of a window gets the gradient
 *     argmax, sort, topk       NaN is the greatest number; argmax is the first; sort is stable
 *     pow(a, b)                d/da = 0 where b = 0; d/db = 0 where a = 0 and b >= 0
 *     atan2                    d/dy = d/dx = 0 at (0, 0)
 *     fmod(a, b)               exact, with the sign of a; NaN where a is infinite or b is 0; d/db = -trunc(a / b)
 *     round_bf16(a, u)         one of the two numbers with bfloat16's 8 bits of mantissa beside a: with u uniform in [0,1) (an_rand)
 *                              the farther one from zero as often as keeps the mean. No gradient; u outside [0,1) counts as 0
 *     logsumexp                -inf for a row of -inf alone or of nothing, +inf for a row that holds +inf
 *     softmax                  NaN for a row of -inf alone, or that holds +inf
 *     integers                 wrap; division by 0 gives 0
 *     casts to integers        truncate; saturate beyond the ends (PyTorch: whatever the machine gives); NaN is 0
 * Subnormal numbers of float32 are numbers like all others on the CPU (in every function, as in PyTorch), and zeros in exact mode
 * and on GPUs. What is rounded to bfloat16 and subnormal there is zero. */

#define AN_STR_(x) #x
#define AN_STR(x)  AN_STR_(x)
#define AN_AT      __FILE__ ":" AN_STR(__LINE__)

/* clang-format off */
/* Elementwise, one operand: float (neg, abs, sign: any number) */
#define AN_UNARY_FUNCTIONS(X)                                                                                                                \
    X(neg) X(abs) X(sign) X(floor) X(round) X(sqrt) X(rsqrt) X(recip) X(exp) X(expm1) X(log) X(log1p) X(sin) X(cos) X(tanh) X(erf) X(sigmoid)    \
    X(atan) X(asin) X(acos)                                                                                                                  \
    X(not) X(isfinite)                                                                                                                       \
    X(relu) X(gelu) X(gelu_tanh) X(silu) X(softplus) X(square) /* formulas */
/* Elementwise, two operands. Comparisons give bool. idiv and imod: integers, rounding toward minus infinity. fmod: floats, toward zero. */
#define AN_BINARY_FUNCTIONS(X)                                                                                                               \
    X(add) X(sub) X(mul) X(div) X(idiv) X(imod) X(pow) X(atan2) X(fmod) X(round_bf16) X(maximum) X(minimum) X(eq) X(ne) X(lt) X(le) X(gt) X(ge) X(and) X(or) X(xor)
/* clang-format on */

#define AN_DECLARE_UNARY(name)  AN_API an_tensor *an_##name##_at(const char *at, an_tensor *a);
#define AN_DECLARE_BINARY(name) AN_API an_tensor *an_##name##_at(const char *at, an_tensor *a, an_tensor *b);
AN_UNARY_FUNCTIONS(AN_DECLARE_UNARY)
AN_BINARY_FUNCTIONS(AN_DECLARE_BINARY)

AN_API an_tensor *an_where_at(const char *at, an_tensor *cond, an_tensor *a, an_tensor *b); /* cond is bool */
AN_API an_tensor *an_cast_at(const char *at, an_tensor *a, an_dtype dtype);
AN_API an_tensor *an_add_num_at(const char *at, an_tensor *a, double x); /* a + x, the number in a's dtype */
AN_API an_tensor *an_mul_num_at(const char *at, an_tensor *a, double x);
/* min(max(a, low), high), numbers of a's dtype or infinities; NaN stays NaN. The gradient passes inside and at the
 * bounds. */
AN_API an_tensor *an_clamp_at(const char *at, an_tensor *a, double low, double high);

/* View ops, pad and concat: no arithmetic. reshape: one axis may be -1. permute: new axis i is old axis perm[i]. slice:
 * [start, stop) along one axis, negative numbers count from the end. pad: `before` and `after` elements of `value`
 * along one axis. */
AN_API an_tensor *an_reshape_at(const char *at, an_tensor *a, an_shape shape);
AN_API an_tensor *an_permute_at(const char *at, an_tensor *a, an_shape perm);
AN_API an_tensor *an_transpose_at(const char *at, an_tensor *a, int axis1, int axis2);
AN_API an_tensor *an_expand_at(const char *at, an_tensor *a, an_shape shape);
AN_API an_tensor *an_slice_at(const char *at, an_tensor *a, int axis, int64_t start, int64_t stop, int64_t step);
AN_API an_tensor *an_pad_at(const char *at, an_tensor *a, int axis, int64_t before, int64_t after, double value);
AN_API an_tensor *an_flip_at(const char *at, an_tensor *a, an_axes axes);
AN_API an_tensor *an_concat_at(const char *at, an_tensor *const *parts, int n, int axis);
AN_API an_tensor *an_detach_at(const char *at, an_tensor *a);

/* Reductions over a set of axes; `keep` leaves axes of length 1. Sums of bf16 and f16 run in f32 and round once.
 * argmax: one axis, i32. */
AN_API an_tensor *an_sum_at(const char *at, an_tensor *a, an_axes axes, bool keep);
AN_API an_tensor *an_mean_at(const char *at, an_tensor *a, an_axes axes, bool keep);
AN_API an_tensor *an_max_at(const char *at, an_tensor *a, an_axes axes, bool keep);
AN_API an_tensor *an_min_at(const char *at, an_tensor *a, an_axes axes, bool keep);
AN_API an_tensor *an_var_at(const char *at, an_tensor *a, an_axes axes, bool keep); /* biased: mean((x - mean(x))^2) */
AN_API an_tensor *an_argmax_at(const char *at, an_tensor *a, int axis, bool keep);

/* [...,M,K] x [...,K,N]; batch axes broadcast. Result in the operands' dtype; an_matmul_as chooses (f32 for bf16/f16
 * operands). Integers are multiplied too: they wrap, and are slow. */
AN_API an_tensor *an_matmul_at(const char *at, an_tensor *a, an_tensor *b);
AN_API an_tensor *an_matmul_as_at(const char *at, an_tensor *a, an_tensor *b, an_dtype result);

/* table [V,...], index i32 [I...] to [I...,...]. scatter_add: the reverse, rows of src [I...,C...] added into zeros
 * [rows,C...]. Ids and labels that come straight from an input are checked before a run: one out of range is AN_E_DATA
 * and a sentence. An id computed on the device counts as the nearest that is in range: in gather, in its gradient and
 * in scatter_add. */
/* Products by groups of rows, as a mixture of experts has them: x [S,K], w [E,K,N], ends int32 [E], which a step may compute. Rows
 * ends[e-1] to ends[e] of x (from 0 for e = 0) are multiplied by w[e]; a group may be empty, and rows behind the last end are 0 in the
 * result [S,N]. An end below the one before it or outside [0,S] is taken as the nearest that is not. The work is that of S rows, not
 * of E times as many. an_grouped_outer: the sum of a[i]^T b[i] over the rows i of each group, a [S,M] and b [S,N] to [E,M,N]; an empty group's
 * is 0. Dtypes as an_linear's: those of the policy. */
AN_API an_tensor *an_grouped_matmul_at(const char *at, an_tensor *x, an_tensor *w, an_tensor *ends);
AN_API an_tensor *an_grouped_outer_at(const char *at, an_tensor *a, an_tensor *b, an_tensor *ends);
AN_API an_tensor *an_gather_at(const char *at, an_tensor *table, an_tensor *index);
AN_API an_tensor *an_scatter_add_at(const char *at, an_tensor *index, an_tensor *src, int64_t rows);
/* table [V,...] with row index[i] (i32 [n]) replaced by rows[i] ([n,...], the table's dtype). Of equal ids the last counts;
 * a computed id outside [0,V) changes nothing. Without a gradient. Assigned to the state that is its table it writes these
 * rows in place, and no other byte of the state is moved, when nothing reads the state later in the step. */
AN_API an_tensor *an_put_rows_at(const char *at, an_tensor *table, an_tensor *index, an_tensor *rows);

/* Composites: the formula is the specification (graph/compose.c). */
AN_API an_tensor *an_softmax_at(const char *at, an_tensor *a, int axis);
AN_API an_tensor *an_log_softmax_at(const char *at, an_tensor *a, int axis);
AN_API an_tensor *an_logsumexp_at(const char *at, an_tensor *a, int axis, bool keep);
/* Over the last axis; gain and bias may be NULL. Statistics in f32, result in a's dtype. layer_norm: (x - mean) /
 * sqrt(var + eps) * gain + bias. rms_norm: x / sqrt(mean(x^2) + eps) * gain. */
AN_API an_tensor *an_layer_norm_at(const char *at, an_tensor *a, an_tensor *gain, an_tensor *bias, double eps);
AN_API an_tensor *an_rms_norm_at(const char *at, an_tensor *a, an_tensor *gain, double eps);
/* The same over one axis, any (negative ones count from the end), without a gain. */
AN_API an_tensor *an_rms_norm_axis_at(const char *at, an_tensor *a, int axis, double eps);
/* x [...,C]; statistics over all axes but the last. training: batch statistics, running ones updated with `momentum`
 * (PyTorch's meaning, unbiased running variance); else the running ones. */
AN_API an_tensor *an_batch_norm_at(const char *at, an_tensor *x, an_tensor *gain, an_tensor *bias,
                                   an_tensor *running_mean, an_tensor *running_var, double momentum, double eps,
                                   bool training);
/* Each element kept with probability 1-p and scaled by 1/(1-p); the mask is recomputed from the counter, never stored.
 */
AN_API an_tensor *an_dropout_at(const char *at, an_tensor *a, double p);
/* logits [...,V], labels i32 [...]: -log softmax at the label, [...]; a negative label is ignored and gives 0. f32
 * inside and out. */
AN_API an_tensor *an_cross_entropy_at(const char *at, an_tensor *logits, an_tensor *labels);
/* The same with stablemax in place of softmax: -log of s(x_label) / sum of s(x), where s(x) is x + 1 from 0 on and
 * 1/(1 - x) below (Prieto et al., "Grokking at the edge of numerical stability", 2025). logits f32 or f64 (others are
 * cast to f32); the result's dtype is theirs. */
AN_API an_tensor *an_stablemax_cross_entropy_at(const char *at, an_tensor *logits, an_tensor *labels);
/* The loss of a linear head: x [...,C], w [V,C], labels [...]: cross entropy of x w^T, whose logits are in
 * the policy's dtype and never copied. More than the policy's limit are made in eight chunks or more, each with its
 * gradient before the next, so that one chunk is in memory at a time. w's gradient is summed chunk by chunk: its last
 * bits depend on the number of chunks, never on the device. */
AN_API an_tensor *an_linear_cross_entropy_at(const char *at, an_tensor *x, an_tensor *w, an_tensor *labels);
/* x [...,in] times w [out,in] transposed (PyTorch's layout), plus bias [out] if not NULL, in the matmul dtype of the
 * policy. In 16 bits the sum is rounded once, after the bias is added in float32. */
AN_API an_tensor *an_linear_at(const char *at, an_tensor *x, an_tensor *w, an_tensor *bias);

/* softmax(q k^T * scale + mask) v. q [B,H,T,D], k v [B,G,S,D], where G divides H: head h of q attends to head h / (H/G)
 * of k and v, which is in memory once (grouped heads; multi-query attention: G is 1), and their gradients are the sums
 * over those heads of q. scale 0 means 1/sqrt(D); causal: query i sees key j <= i + S - T. Memory linear in T. n_keys (i32 scalar or NULL): only the first n <= S keys are in use and S - T becomes n -
 * T: one plan serves a growing KV cache. float64 has no kernel: there the scores are in memory. */
AN_API an_tensor *an_attention_at(const char *at, an_tensor *q, an_tensor *k, an_tensor *v, double scale, bool causal,
                                  double dropout, an_tensor *n_keys);
/* The same with more options; 0 and NULL are the defaults. mask: a float, which is added to the scaled scores, or bool, true where they
 * count (the others are -inf); it broadcasts to [B,H,T,S], and what it broadcasts along takes no memory. A row of -inf alone gives zeros; where

 * a score is NaN or +inf the row is NaN. window: with causal, a query sees the last `window` keys of those that it would see alone. A mask that is made of parameters, or with dropout of float inputs, keeps the scores in memory,
 * for its gradient: an_detach it where none is wanted. */
typedef struct an_attention_options {
    double scale;
    bool causal;
    double dropout;
    an_tensor *n_keys, *mask;
    int64_t window;
} an_attention_options;
AN_API an_tensor *an_attention_with_at(const char *at, an_tensor *q, an_tensor *k, an_tensor *v,
                                       an_attention_options o);
/* The same where another step computes the gradient, in float32 or bfloat16, without dropout: *lse [B,H,T] (float32) is
 * the logarithm of each row's sum. With it, the result o and dy, o's gradient, come q's gradient, *dk and *dv. */
AN_API an_tensor *an_attention_lse_at(const char *at, an_tensor *q, an_tensor *k, an_tensor *v, double scale,
                                      bool causal, an_tensor **lse);
AN_API an_tensor *an_attention_grad_at(const char *at, an_tensor *q, an_tensor *k, an_tensor *v, an_tensor *o,
                                       an_tensor *lse, an_tensor *dy, double scale, bool causal, an_tensor **dk,
                                       an_tensor **dv);

typedef struct an_window {
    int kernel_h, kernel_w;                                               /* pooling only */
    int stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups; /* 0 means 1 (padding: 0) */
    int extra_h, extra_w;                                                 /* transposed convolution only */
} an_window;
/* NHWC. conv2d: x [N,H,W,C], w [O,KH,KW,C/groups], bias [O] or NULL. Padding is zeros, which a kernel
 * may multiply or leave out, as an_attention may what is masked or dropped: beside infinities a sum may be NaN. */
AN_API an_tensor *an_conv2d_at(const char *at, an_tensor *x, an_tensor *w, an_tensor *bias, an_window s);
/* x [N,H,W,I], w [I,KH,KW,O/groups], bias [O] or NULL, to [N,H',W',O]: as the gradient of x in an_conv2d of [N,H',W',O] to [N,H,W,I] by w.
 * H' = (H - 1) stride_h - 2 pad_h + dilation_h (KH - 1) + 1 + extra_h, and so W'; extra_h (rows at the end) is less than the stride. */
AN_API an_tensor *an_conv_transpose2d_at(const char *at, an_tensor *x, an_tensor *w, an_tensor *bias, an_window s);
AN_API an_tensor *an_max_pool_at(const char *at, an_tensor *x, an_window s);
AN_API an_tensor *an_avg_pool_at(const char *at, an_tensor *x, an_window s); /* padding counts, as PyTorch's default */

/* Calls over the last axes, batched. Several outputs come through pointers. an_qr and an_svd take matrices [...,m,n]
 * with m >= n: transpose a wide one. an_cholesky and an_eigh take (a + a^T)/2 for a. A pivot of an_cholesky that is not
 * positive (the matrix is not positive definite, or singular) is NaN, and so is all that depends on it; an_solve of a
 * singular matrix gives infinities and NaN. */
AN_API an_tensor *an_cumsum_at(const char *at, an_tensor *a, bool reverse);
AN_API an_tensor *an_sort_at(const char *at, an_tensor *a, bool descending, an_tensor **positions);
AN_API an_tensor *an_topk_at(const char *at, an_tensor *a, int k, an_tensor **positions);
AN_API an_tensor *an_cholesky_at(const char *at, an_tensor *a);
AN_API an_tensor *an_qr_at(const char *at, an_tensor *a, an_tensor **r);
AN_API an_tensor *an_eigh_at(const char *at, an_tensor *a, an_tensor **vectors);
AN_API an_tensor *an_svd_at(const char *at, an_tensor *a, an_tensor **s, an_tensor **v);
AN_API an_tensor *an_solve_at(const char *at, an_tensor *a, an_tensor *b);
AN_API an_tensor *an_trisolve_at(const char *at, an_tensor *t, an_tensor *b, bool upper, bool transpose);

/* ---- training */

/* Gradients of a scalar with respect to every parameter; added to those of earlier micro-batches since the last
 * optimizer step. */
#define an_backward(loss) an_backward_at(AN_AT, loss)
AN_API void an_backward_at(const char *at, an_tensor *loss);
/* After an_backward, the gradient of any tensor of this step; NULL when the loss does not depend on it, or it on no
 * floating leaf through operations with a slope (of a rounded, whole or constant tensor). Calls with the same arguments
 * give the same tensor (exp(x) twice is one tensor), whose gradient is that of all its uses; a broadcast or reshape
 * inside an operation is such a call. */
AN_API an_tensor *an_grad(an_tensor *t);

/* Updates, for all parameters not frozen, in f32 (f64: in f64), rounded once. An update is skipped as a whole, on the device,
 * when the gradient norm is not finite, beyond 1.8e19 in f32. All return that norm (f32 scalar). AdamW: Loshchilov and Hutter,
 * "Decoupled weight decay regularization", ICLR 2019; clip: of the global norm, by min(1, clip/(norm+1e-6)), 0 for none. */
typedef struct an_adamw_options {
    /* zero means zero, save beta1 0.9, beta2 0.999, eps 1e-8 when all three are 0 */
    double lr, beta1, beta2, eps, weight_decay, clip;
    int64_t t;          /* 1-based update count for bias correction, skipped ones too; 0: counted by the context */
    an_tensor *only_if; /* bool scalar: the update is skipped where it is false too; NULL: true */
    bool scaled;        /* the loss given to an_backward was an_scale_loss's */
    an_dtype moments;   /* of float32 parameters, in every update the same: AN_F32, or AN_BF16 (rounded at random, by
                           an_round_bf16): 4 bytes a parameter less, another course of the loss */
} an_adamw_options;
#define an_adamw(cx, ...) an_adamw_at(AN_AT, cx, __VA_ARGS__)
AN_API an_tensor *an_adamw_at(const char *at, an_ctx *cx, an_adamw_options o);
/* Adam-atan2: AdamW whose step is atan2(m, sqrt(v)), bias-corrected, in place of m / (sqrt(v) + eps): bounded by lr
 * pi/2 and the same when the loss is scaled by a power of two. The same options; eps is not used. */
#define an_adam_atan2(cx, ...) an_adam_atan2_at(AN_AT, cx, __VA_ARGS__)
AN_API an_tensor *an_adam_atan2_at(const char *at, an_ctx *cx, an_adamw_options o);
/* Adam: AdamW whose decay is added to the gradient (weight_decay * p) before the moments take it. Kingma and Ba, "Adam: a
 * method for stochastic optimization", ICLR 2015. The same options. */
#define an_adam(cx, ...) an_adam_at(AN_AT, cx, __VA_ARGS__)
AN_API an_tensor *an_adam_at(const char *at, an_ctx *cx, an_adamw_options o);
/* Stochastic gradient descent; by PyTorch's formulas with momentum (b' = momentum b + (1 - dampening) g, at the first
 * update b' = g), Nesterov's variant (the step is g + momentum b'), and decay added to the gradient. */
typedef struct an_sgd_options {
    double lr, momentum, dampening, weight_decay, clip; /* zero means none */
    bool nesterov;                                      /* needs momentum > 0 and no dampening */
    int64_t t; /* 1-based update count: the first (scaled: that is applied) is not dampened; 0: the context's */
    an_tensor *only_if; /* as of an_adamw_options */
    bool scaled;
} an_sgd_options;
#define an_sgd(cx, lr) an_sgd_at(AN_AT, cx, lr)
AN_API an_tensor *an_sgd_at(const char *at, an_ctx *cx, double lr);
#define an_sgd_with(cx, ...) an_sgd_with_at(AN_AT, cx, __VA_ARGS__)
AN_API an_tensor *an_sgd_with_at(const char *at, an_ctx *cx, an_sgd_options o);

/* Sign descent on the rows of a table that a batch looked up: with g_r the sum of grad[i] over all i with
 * index[i] == r, each row r that index names becomes w_r (1 - lr weight_decay) - lr sign(g_r); other rows are neither
 * read nor written (an_put_rows). table: a state [V,c]; index i32 [n]; grad [n,c] in the table's dtype. only_if: a bool
 * scalar, where false nothing changes; or NULL. Sums are in ascending i: deterministic. */
#define an_sign_sgd_rows(table, index, grad, lr, weight_decay, only_if)                                                \
    an_sign_sgd_rows_at(AN_AT, table, index, grad, lr, weight_decay, only_if)
AN_API void an_sign_sgd_rows_at(const char *at, an_tensor *table, an_tensor *index, an_tensor *grad, double lr,
                                double weight_decay, an_tensor *only_if);

/* Exponential moving averages of the parameters that are not frozen: average' = rate * average + (1 - rate) * parameter, as
 * this step's optimizer, called before, leaves it. They are declared by the first call, begin as a copy of the parameters
 * as they are when memory is first asked for, and persist as "ema.NAME" (of kind 1). rate in [0,1] may differ from step
 * to step. only_if: a bool scalar, where false they stay; or NULL. */
#define an_ema(cx, rate, only_if) an_ema_at(AN_AT, cx, rate, only_if)
AN_API void an_ema_at(const char *at, an_ctx *cx, double rate, an_tensor *only_if);
/* Until it is called with false, what is planned and run reads averages in place of the parameters that have one: an
 * evaluation, without a copy. Meanwhile no optimizer and no an_assign may change a parameter. */
AN_API an_status an_use_averages(an_ctx *cx, bool averages);

/* Loss scaling for float16, by the rule and defaults of PyTorch's torch.amp.GradScaler:
 *     an_backward(an_scale_loss(loss));
 *     an_tensor *norm = an_adamw(cx, ((an_adamw_options){.lr = lr, .scaled = true}));
 * The scale begins at 65536, is doubled after 2000 good updates in a row and halved by one whose gradients are not
 * finite, which is skipped; gradients are divided by it in f32 before their norm is taken. Bias corrections count the
 * updates that were applied, and `t` nothing. All of it is state of the device ("optimizer.scale" and others, of kind 2
 * in an_persist): nothing waits. an_loss_scale and an_skipped_updates are these states, to be evaluated and read. */
#define an_scale_loss(loss) an_scale_loss_at(AN_AT, loss)
AN_API an_tensor *an_scale_loss_at(const char *at, an_tensor *loss);
#define an_loss_scale(cx) an_loss_scale_at(AN_AT, cx)
AN_API an_tensor *an_loss_scale_at(const char *at, an_ctx *cx); /* f32 scalar */
#define an_skipped_updates(cx) an_skipped_updates_at(AN_AT, cx)
AN_API an_tensor *an_skipped_updates_at(const char *at, an_ctx *cx); /* i32 scalar */

/* Mixed precision, by kind of operation: an_linear, an_linear_cross_entropy, an_conv2d and an_attention cast to
 * `matmul`; norms, softmax, losses and reductions stay in f32. */
typedef struct an_policy {
    an_dtype matmul; /* AN_F32 (default), AN_BF16, AN_F16 */
    int64_t logits;  /* more logits than this are made and used in chunks (an_linear_cross_entropy); 0: 2^28 */
    /* AN_F32 (default): parameters are kept as they are declared. AN_BF16: a parameter of two axes or more that an_param
     * declares in float32 is kept in bfloat16, with its gradient, without a copy in float32. It is read as float32, and an
     * optimizer rounds what it stores up or down at random, in the mean without an error (an_round_bf16), so that updates
     * smaller than bfloat16's steps are not lost. To be set before the parameters are made. */
    an_dtype weights;
} an_policy;
AN_API void an_set_policy(an_ctx *cx, an_policy p);
AN_API an_policy an_get_policy(const an_ctx *cx);
/* Until it is called with false: an_linear reads the matrices among the float32 parameters as rounded now, once, to the
 * policy's 16-bit dtype, instead of rounding them in every run. The same bits, half the bytes a run reads, half as many
 * more kept. For generating text, a token a run. Meanwhile parameters may not change: no optimizer, no an_assign, no
 * an_persist_write. Nothing to do under a float32 policy. */
AN_API an_status an_round_weights(an_ctx *cx, bool rounded);

/* ---- the caller's file and line */
/* Inside the library (base/base.h defines the macro) the short names belong to the kernel dialect, and the _at forms
 * are called. */
#ifndef AN_NO_PLACE_MACROS
/* clang-format off */
#define an_where(c, a, b)                an_where_at(AN_AT, c, a, b)
#define an_cast(a, t)                    an_cast_at(AN_AT, a, t)
#define an_add_num(a, x)                 an_add_num_at(AN_AT, a, x)
#define an_mul_num(a, x)                 an_mul_num_at(AN_AT, a, x)
#define an_clamp(a, low, high)           an_clamp_at(AN_AT, a, low, high)
#define an_reshape(a, ...)               an_reshape_at(AN_AT, a, __VA_ARGS__)
#define an_permute(a, ...)               an_permute_at(AN_AT, a, __VA_ARGS__)
#define an_transpose(a, i, j)            an_transpose_at(AN_AT, a, i, j)
#define an_expand(a, ...)                an_expand_at(AN_AT, a, __VA_ARGS__)
#define an_slice(a, axis, start, stop)   an_slice_at(AN_AT, a, axis, start, stop, 1)
#define an_pad(a, axis, before, after, x) an_pad_at(AN_AT, a, axis, before, after, x)
#define an_flip(a, axes)                 an_flip_at(AN_AT, a, axes)
#define an_concat(parts, n, axis)        an_concat_at(AN_AT, parts, n, axis)
#define an_detach(a)                     an_detach_at(AN_AT, a)
#define an_sum(a, axes)                  an_sum_at(AN_AT, a, axes, false)
#define an_mean(a, axes)                 an_mean_at(AN_AT, a, axes, false)
#define an_max(a, axes)                  an_max_at(AN_AT, a, axes, false)
#define an_min(a, axes)                  an_min_at(AN_AT, a, axes, false)
#define an_var(a, axes)                  an_var_at(AN_AT, a, axes, false)
#define an_argmax(a, axis)               an_argmax_at(AN_AT, a, axis, false)
#define an_matmul(a, b)                  an_matmul_at(AN_AT, a, b)
#define an_matmul_as(a, b, t)            an_matmul_as_at(AN_AT, a, b, t)
#define an_gather(table, index)          an_gather_at(AN_AT, table, index)
#define an_grouped_matmul(x, w, ends)    an_grouped_matmul_at(AN_AT, x, w, ends)
#define an_grouped_outer(a, b, ends)     an_grouped_outer_at(AN_AT, a, b, ends)
#define an_scatter_add(index, src, rows) an_scatter_add_at(AN_AT, index, src, rows)
#define an_put_rows(table, index, rows)  an_put_rows_at(AN_AT, table, index, rows)
#define an_softmax(a, axis)              an_softmax_at(AN_AT, a, axis)
#define an_log_softmax(a, axis)          an_log_softmax_at(AN_AT, a, axis)
#define an_logsumexp(a, axis)            an_logsumexp_at(AN_AT, a, axis, false)
#define an_layer_norm(a, g, b, eps)      an_layer_norm_at(AN_AT, a, g, b, eps)
#define an_rms_norm(a, g, eps)           an_rms_norm_at(AN_AT, a, g, eps)
#define an_rms_norm_axis(a, axis, eps)   an_rms_norm_axis_at(AN_AT, a, axis, eps)
#define an_batch_norm(x, g, b, m, v, momentum, eps, training) an_batch_norm_at(AN_AT, x, g, b, m, v, momentum, eps, training)
#define an_dropout(a, p)                 an_dropout_at(AN_AT, a, p)
#define an_cross_entropy(logits, labels) an_cross_entropy_at(AN_AT, logits, labels)
#define an_stablemax_cross_entropy(logits, labels) an_stablemax_cross_entropy_at(AN_AT, logits, labels)
#define an_linear_cross_entropy(x, w, y) an_linear_cross_entropy_at(AN_AT, x, w, y)
#define an_linear(x, w, b)               an_linear_at(AN_AT, x, w, b)
#define an_attention(q, k, v, scale, causal, dropout) an_attention_at(AN_AT, q, k, v, scale, causal, dropout, NULL)
#define an_attention_with(q, k, v, options) an_attention_with_at(AN_AT, q, k, v, options)
#define an_attention_lse(q, k, v, scale, causal, lse) an_attention_lse_at(AN_AT, q, k, v, scale, causal, lse)
#define an_attention_grad(q, k, v, o, lse, dy, scale, causal, dk, dv) an_attention_grad_at(AN_AT, q, k, v, o, lse, dy, scale, causal, dk, dv)
#define an_conv2d(x, w, b, ...)          an_conv2d_at(AN_AT, x, w, b, __VA_ARGS__)
#define an_conv_transpose2d(x, w, b, ...) an_conv_transpose2d_at(AN_AT, x, w, b, __VA_ARGS__)
#define an_max_pool(x, ...)              an_max_pool_at(AN_AT, x, __VA_ARGS__)
#define an_avg_pool(x, ...)              an_avg_pool_at(AN_AT, x, __VA_ARGS__)
#define an_cumsum(a, reverse)            an_cumsum_at(AN_AT, a, reverse)
#define an_sort(a, descending, pos)      an_sort_at(AN_AT, a, descending, pos)
#define an_topk(a, k, pos)               an_topk_at(AN_AT, a, k, pos)
#define an_cholesky(a)                   an_cholesky_at(AN_AT, a)
#define an_qr(a, r)                      an_qr_at(AN_AT, a, r)
#define an_eigh(a, vectors)              an_eigh_at(AN_AT, a, vectors)
#define an_svd(a, s, v)                  an_svd_at(AN_AT, a, s, v)
#define an_solve(a, b)                   an_solve_at(AN_AT, a, b)
#define an_trisolve(t, b, upper, transpose) an_trisolve_at(AN_AT, t, b, upper, transpose)
#define an_neg(a)        an_neg_at(AN_AT, a)
#define an_abs(a)        an_abs_at(AN_AT, a)
#define an_sign(a)       an_sign_at(AN_AT, a)
#define an_floor(a)      an_floor_at(AN_AT, a)
#define an_round(a)      an_round_at(AN_AT, a)
#define an_sqrt(a)       an_sqrt_at(AN_AT, a)
#define an_rsqrt(a)      an_rsqrt_at(AN_AT, a)
#define an_recip(a)      an_recip_at(AN_AT, a)
#define an_exp(a)        an_exp_at(AN_AT, a)
#define an_expm1(a)      an_expm1_at(AN_AT, a)
#define an_log(a)        an_log_at(AN_AT, a)
#define an_log1p(a)      an_log1p_at(AN_AT, a)
#define an_sin(a)        an_sin_at(AN_AT, a)
#define an_cos(a)        an_cos_at(AN_AT, a)
#define an_tanh(a)       an_tanh_at(AN_AT, a)
#define an_erf(a)        an_erf_at(AN_AT, a)
#define an_atan(a)       an_atan_at(AN_AT, a)
#define an_asin(a)       an_asin_at(AN_AT, a)
#define an_acos(a)       an_acos_at(AN_AT, a)
#define an_sigmoid(a)    an_sigmoid_at(AN_AT, a)
#define an_not(a)        an_not_at(AN_AT, a)
#define an_isfinite(a)   an_isfinite_at(AN_AT, a)
#define an_relu(a)       an_relu_at(AN_AT, a)
#define an_gelu(a)       an_gelu_at(AN_AT, a)
#define an_gelu_tanh(a)  an_gelu_tanh_at(AN_AT, a)
#define an_silu(a)       an_silu_at(AN_AT, a)
#define an_softplus(a)   an_softplus_at(AN_AT, a)
#define an_square(a)     an_square_at(AN_AT, a)
#define an_add(a, b)     an_add_at(AN_AT, a, b)
#define an_sub(a, b)     an_sub_at(AN_AT, a, b)
#define an_mul(a, b)     an_mul_at(AN_AT, a, b)
#define an_div(a, b)     an_div_at(AN_AT, a, b)
#define an_idiv(a, b)    an_idiv_at(AN_AT, a, b)
#define an_imod(a, b)    an_imod_at(AN_AT, a, b)
#define an_pow(a, b)     an_pow_at(AN_AT, a, b)
#define an_atan2(y, x)   an_atan2_at(AN_AT, y, x)
#define an_fmod(a, b)    an_fmod_at(AN_AT, a, b)
#define an_round_bf16(a, u) an_round_bf16_at(AN_AT, a, u)
#define an_maximum(a, b) an_maximum_at(AN_AT, a, b)
#define an_minimum(a, b) an_minimum_at(AN_AT, a, b)
#define an_eq(a, b)      an_eq_at(AN_AT, a, b)
#define an_ne(a, b)      an_ne_at(AN_AT, a, b)
#define an_lt(a, b)      an_lt_at(AN_AT, a, b)
#define an_le(a, b)      an_le_at(AN_AT, a, b)
#define an_gt(a, b)      an_gt_at(AN_AT, a, b)
#define an_ge(a, b)      an_ge_at(AN_AT, a, b)
#define an_and(a, b)     an_and_at(AN_AT, a, b)
#define an_or(a, b)      an_or_at(AN_AT, a, b)
#define an_xor(a, b)     an_xor_at(AN_AT, a, b)
/* clang-format on */
#endif

#ifdef __cplusplus
}
#endif
#endif
