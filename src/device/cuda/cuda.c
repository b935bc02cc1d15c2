/* cuda.c: the backend "cuda": the device, its memory, its one stream, and waiting, with a time limit for what hangs
 * (ANNEAL_CUDA_TIMEOUT).
 *
 * Owns:       the primary context of GPU 0 (of CUDA_VISIBLE_DEVICES), a stream, tickets (the
 *             number that a submit returns, for waiting).
 * Does not:   compile (nvrtc.c) or launch (graph_exec.c). There is no caching allocator: a buffer is one call of the driver,
 *             given back at once. Whether a step may allocate: runtime/memory.c; what is kept between steps:
 *             runtime/plan_cache.c. Nothing of CUDA is needed to build it: see driver.h.
 * Invariants: a write returns before the data has arrived; later work on the stream sees it. A read waits. Nothing is
 *             allocated in a submit.
 */
#define _GNU_SOURCE
#include "platform/platform.h"
#include "base/text.h"
#include "comm/comm.h"
#include "device/kernel_cache.h"
#include "device/cuda/cuda_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEFAULT_TIMEOUT_S = 600, STEPS_IN_FLIGHT = 4 };
enum { FOLLOWING_DRIVER = 12030 }; /* the first whose graphs let a kernel begin while the one before it ends */

/* ---------------------------------------------------------------------------------------------- errors */

/* Errors that destroy the context, and the memory with it (CUresult: driver shut down, invalid context, ECC, NVLink,
 * contained fault, illegal address, launch timeout, context destroyed, assert, hardware stack, illegal instruction,
 * misaligned, invalid address space or program counter, launch failed, tensor leak, unknown). */
static bool is_fatal(cu_result r)
{
    static const int16_t fatal[] = {4, 201, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999};
    for (size_t i = 0; i < AN_COUNT(fatal); i++)
        if (r == fatal[i]) return true;
    return false;
}

an_status an_cuda_check(an_err *err, an_device *d, cu_result r, const char *fmt, ...)
{
    if (!r) return AN_OK;
    char what[300];
    const char *name = NULL, *text = NULL;
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    if (d->cu.error_name(r, &name) || !name) name = "an unknown error";
    if (d->cu.error_text(r, &text) || !text) text = "no text";
    if (r == CU_OUT_OF_MEMORY) {
        size_t unused = 0, all = 0;
        char a[16], b[16];
        if (d->cu.memory_info(&unused, &all))
            return an_fail(err, AN_E_NOMEM, "cuda: %s: out of memory on %s; try a smaller batch or recompute=on", what,
                           d->name);
        return an_fail(err, AN_E_NOMEM,
                       "cuda: %s: out of memory: %s of %s are free on %s; try a smaller batch, recompute=on, or end "
                       "other programs on this GPU",
                       what, an_bytes_text((double)unused, a), an_bytes_text((double)all, b), d->name);
    }
    if (!is_fatal(r))
        return an_fail(err, AN_E_DEVICE, "cuda: %s: %s (%s); if it happens again, report it with this sentence", what,
                       name, text);
    if (!d->lost)
        snprintf(d->lost_text, sizeof d->lost_text,
                 "cuda: %s: %s (%s): %s and what its memory held are lost to this program; resume from the last "
                 "checkpoint. ANNEAL_CUDA_LAUNCH=sync names the kernel",
                 what, name, text, d->name);
    d->lost = true;
    return an_fail(err, AN_E_DEVICE, "%s", d->lost_text);
}

an_status an_cuda_enter(an_err *err, an_device *d)
{
    if (d->lost) return an_fail(err, AN_E_DEVICE, "%s", d->lost_text);
    return an_cuda_check(err, d, d->cu.context_use(d->context), "taking the GPU's context");
}

/* ---------------------------------------------------------------------------------------------- probing */

static an_status first_device(an_err *err, an_cuda_driver *cu, cu_device *out)
{
    const char *text = NULL;
    int n = 0;
    cu_result r = cu->init(0);
    if (!r) r = cu->device_count(&n);
    if (r == CU_NO_DEVICE || (!r && n == 0))
        return an_fail(err, AN_E_ENV, "the driver finds no GPU; is CUDA_VISIBLE_DEVICES right?");
    if (!r) r = cu->device_get(out, 0);
    if (!r) return AN_OK;
    return an_fail(err, AN_E_ENV, "the NVIDIA driver does not start: %s",
                   cu->error_text(r, &text) || !text ? "no reason given" : text);
}

static an_status find_all(an_err *err, an_cuda_driver *cu, an_nvrtc *nvrtc, cu_device *device, int *arch)
{
    int major = 0, minor = 0;
    AN_TRY(an_cuda_driver_find(err, cu));
    AN_TRY(first_device(err, cu, device));
    if (cu->device_attribute(&major, CU_ATTR_MAJOR, *device) || cu->device_attribute(&minor, CU_ATTR_MINOR, *device))
        return an_fail(err, AN_E_ENV, "the NVIDIA driver does not say which GPU this is; is it in nvidia-smi's list?");
    *arch = major * 10 + minor;
    if (*arch < 80)
        return an_fail(err, AN_E_ENV, "the GPU has compute capability %d.%d, less than 8.0 (Ampere): too old", major,
                       minor);
    return an_nvrtc_find(err, cu->version / 1000, nvrtc);
}

static int cuda_probe(an_device_info *out)
{
    an_cuda_driver cu;
    an_nvrtc nvrtc;
    cu_device device;
    int arch;
    an_err err = {0};
    char name[64] = "", all[16];
    an_cublaslt lt;
    an_cudnn dnn;
    size_t bytes = 0;
    snprintf(out->name, sizeof out->name, "cuda");
    out->built = true;
    out->available = find_all(&err, &cu, &nvrtc, &device, &arch) == AN_OK;
    if (!out->available) {
        snprintf(out->reason, sizeof out->reason, "%.255s", err.text);
        return 0;
    }
    cu.device_name(name, sizeof name, device);
    cu.device_memory(&bytes, device);
    const bool library = an_cublaslt_find(&err, cu.version / 1000, &lt) == AN_OK,
               convs = an_cudnn_find(&err, &dnn) == AN_OK;
    snprintf(out->reason, sizeof out->reason, "%s, %s, sm_%d, driver for CUDA %d.%d, NVRTC %d.%d, %s, %s", name,
             an_bytes_text((double)bytes, all), arch, cu.version / 1000, cu.version % 1000 / 10, nvrtc.major,
             nvrtc.minor, library ? "cuBLASLt" : "no cuBLASLt (GEMMs are slower without it)",
             convs ? "cuDNN" : "no cuDNN (convolutions are slower without it)");
    return 1;
}

/* ---------------------------------------------------------------------------------------------- open and close */

static size_t scratch_of(const an_target *t, const an_kernel *k)
{
    const an_device *d = t->backend;
    return an_gpu_scratch(k, &d->gpu);
}

static size_t gemm_scratch(const an_target *t, const an_kernel *k, const an_loop_kernel *epilogue)
{
    an_gemm_plan p;
    if (k->u.gemm.window.by_library) {
        const an_conv_plan *conv = an_cuda_conv_plan(t->backend, &k->u.gemm);
        return conv ? (size_t)an_cuda_conv_workspace(conv) : 0;
    }
    bool library = an_cuda_gemm_plan(t->backend, &k->u.gemm, epilogue, &p);
    return library ? (size_t)p.scratch_bytes : scratch_of(t, k);
}

static bool library_conv(const an_target *t, const an_gemm_spec *s)
{
    return an_cuda_conv_plan(t->backend, s) != NULL;
}

static bool rotates(const an_target *t, const an_attn_spec *s)
{
    const an_device *d = t->backend;
    return an_module_attn_short(s, &d->gpu);
}

static bool fuses_epilogue(const an_target *t, int64_t m, int64_t n, int64_t k)
{
    const an_device *d = t->backend;
    return (d->gpu.rows && m <= AN_FEW_ROWS) || an_cuda_fusion_pays(d, m, n, k);
}

static bool fuses_bias(const an_target *t, int64_t m, int64_t n, int64_t k)
{
    return an_cuda_bias_pays(t->backend, m, n, k) || an_cuda_is_odd(t->backend, m, n, k);
}

static an_gating gates(const an_target *t, int64_t m, int64_t n, int64_t k)
{
    return an_cuda_gates(t->backend, m, n, k);
}

/* The variables of the environment: an empty one counts as unset. */
static an_status read_compilers(an_err *err, an_device *d)
{
    const char *n = getenv("ANNEAL_CUDA_COMPILERS");
    char *end = NULL;
    const long long asked = n && *n ? strtoll(n, &end, 10) : 0;
    if (n && *n && (*end || asked < 1 || asked > an_compilers_most()))
        return an_fail(err, AN_E_USAGE, "ANNEAL_CUDA_COMPILERS is %.40s; it may be 1 to %d", n, an_compilers_most());
    d->compilers = (int)asked;
    return AN_OK;
}

static an_status read_variables(an_err *err, an_device *d)
{
    static const char *const ways[] = {
        [AN_CUDA_GRAPH] = "graph", [AN_CUDA_CHAIN] = "chain", [AN_CUDA_PLAIN] = "plain", [AN_CUDA_SYNC] = "sync"};
    const char *how = getenv("ANNEAL_CUDA_LAUNCH"), *timeout = getenv("ANNEAL_CUDA_TIMEOUT");
    char *end = NULL;
    size_t way = AN_CUDA_GRAPH;
    d->timeout_s = DEFAULT_TIMEOUT_S;
    if (how && *how)
        for (way = 0; way < AN_COUNT(ways) && strcmp(how, ways[way]) != 0;) way++;
    if (way == AN_COUNT(ways))
        return an_fail(err, AN_E_USAGE,
                       "ANNEAL_CUDA_LAUNCH is %.40s; it may be graph (the default), chain, plain or sync", how);
    d->how = (an_cuda_how)way;
    AN_TRY(read_compilers(err, d));
    if (!timeout || !*timeout) return AN_OK;
    d->timeout_s = strtod(timeout, &end);
    if (*end || !(d->timeout_s > 0) || !(d->timeout_s < 1e9))
        return an_fail(err, AN_E_USAGE, "ANNEAL_CUDA_TIMEOUT is %.40s; it is seconds, more than 0 (%d when not set)",
                       timeout, DEFAULT_TIMEOUT_S);
    return AN_OK;
}

/* A setting, or 1 in the environment variable. */
static bool asked(bool setting, const char *variable)
{
    const char *value = getenv(variable);
    return setting || (value && !strcmp(value, "1"));
}

static bool refused(const char *variable)
{
    const char *value = getenv(variable);
    return value && !strcmp(value, "0");
}

static void cuda_modes(const an_device_options *o, bool *exact, bool *tf32)
{
    *exact = asked(o->exact, "ANNEAL_EXACT");
    *tf32 = asked(o->tf32, "ANNEAL_TF32");
}

static an_status check_switch(an_err *err, const char *variable)
{
    const char *value = getenv(variable);
    if (!value || !*value || !strcmp(value, "0") || !strcmp(value, "1")) return AN_OK;
    return an_fail(err, AN_E_USAGE, "%s is %.40s; it may be 1, or 0", variable, value);
}

static an_status settings(an_err *err, an_device *d, const an_device_options *o)
{
    AN_TRY(check_switch(err, "ANNEAL_EXACT"));
    AN_TRY(check_switch(err, "ANNEAL_TF32"));
    AN_TRY(check_switch(err, "ANNEAL_CUDA_DECODE"));
    AN_TRY(check_switch(err, "ANNEAL_CUDA_ROWS"));
    AN_TRY(check_switch(err, "ANNEAL_CUDA_FOLLOW"));
    AN_TRY(check_switch(err, "ANNEAL_CUDNN"));
    cuda_modes(o, &d->exact, &d->tf32);
    if (d->exact && d->tf32)
        return an_fail(err, AN_E_USAGE, "exact and tf32 are both asked for, and exclude each other: leave one out");
    d->guard = o->isolate_buffers;
    d->gpu = (an_gpu){.dialect = &an_dialects[AN_DIALECT_CUDA], .fast = !d->exact, .tf32 = d->tf32};
    d->gpu.decode = !d->exact && !refused("ANNEAL_CUDA_DECODE");
    d->gpu.rows = !d->exact && !refused("ANNEAL_CUDA_ROWS");
    an_cache_find("cuda", o->cache_dir, d->cache_dir, sizeof d->cache_dir, d->note, sizeof d->note);
    d->target = (an_target){.dialect = "cuda",
                            .threads = 1,
                            .backend = d,
                            .tf32 = d->tf32,
                            .max_args = AN_LOOP_ARGS,
                            .row_update = true,
                            .scratch = scratch_of,
                            .gemm_scratch = gemm_scratch,
                            .fuses_epilogue = fuses_epilogue,
                            .fuses_bias = fuses_bias,
                            .gates = gates,
                            .library_conv = library_conv,
                            .rotates = rotates,
                            .side_by_side = true,
                            .in_flight = STEPS_IN_FLIGHT};
    return read_variables(err, d);
}

static void cuda_close(an_device *d)
{
    if (!d) return;
    if (d->context && !d->lost && !d->cu.context_use(d->context) && d->stream) an_cuda_wait_idle(d);
    const bool reachable = d->context && !d->lost && !d->cu.context_use(d->context);
    an_cuda_convs_close(d, reachable);
    an_cuda_stages_close(d, reachable);
    if (reachable) {
        an_cuda_leave(d);
        if (d->lt_handle) d->lt.destroy(d->lt_handle);
        for (int i = 0; i < AN_CUDA_EVENTS; i++)
            if (d->event[i]) d->cu.event_free(d->event[i]);
        if (d->stream) d->cu.stream_free(d->stream);
    }
    if (d->context && !d->hung) d->cu.context_release(d->device);
    if (d->joining) return; /* that thread may come back and read what is here */
    free(d->guarded);
    free(d);
}

static an_status make_device(an_err *err, an_device *d)
{
    an_err quiet = {0};
    AN_TRY(find_all(err, &d->cu, &d->nvrtc, &d->device, &d->arch));
    d->cu.device_name(d->name, sizeof d->name, d->device);
    d->cu.device_attribute(&d->multiprocessors, CU_ATTR_MULTIPROCESSORS, d->device);
    d->gpu.multiprocessors = AN_MAX(d->multiprocessors, 1);
    d->gpu.arch_specific =
        d->gpu.fast && d->arch == 90 && d->nvrtc.major >= 12 ? 90 : 0; /* sm_90a came with CUDA 12.0 */
    d->follow =
        d->arch >= 90 && d->nvrtc.major >= 12 && d->cu.version >= FOLLOWING_DRIVER && !refused("ANNEAL_CUDA_FOLLOW");
    AN_TRY(an_cuda_check(err, d, d->cu.context_retain(&d->context, d->device), "making a context"));
    AN_TRY(an_cuda_enter(err, d));
    AN_TRY(an_cuda_check(err, d, d->cu.stream_new(&d->stream, CU_STREAM_NON_BLOCKING), "making a stream"));
    for (int i = 0; i < AN_CUDA_EVENTS; i++)
        AN_TRY(an_cuda_check(err, d, d->cu.event_new(&d->event[i], CU_EVENT_NO_TIMING), "making an event"));
    AN_TRY(an_cuda_stages_open(err, d));
    size_t bytes = 0, unused = 0;
    d->cu.device_memory(&bytes, d->device);
    /* beyond this, recomputation costs 2 to 4 % of a step and saves a third of its memory */
    d->target.keep_bytes = AN_MIN(bytes / 8, (uint64_t)8 << 30);
    if (!d->cu.memory_info(&unused, &bytes)) d->target.free_bytes = d->free_bytes = unused;
    d->target.exact = d->exact;
    d->has_lt = !d->exact && an_cublaslt_find(&quiet, d->cu.version / 1000, &d->lt) == AN_OK;
    d->target.library_gemm = d->has_lt;
    if (!d->exact && !refused("ANNEAL_CUDNN")) (void)an_cuda_convs_open(&(an_err){0}, d);
    if (!d->has_lt && !d->exact) snprintf(d->note, sizeof d->note, "cuda: %.480s", quiet.text);
    return AN_OK;
}

static an_status cuda_open(an_err *err, const an_device_options *o, an_device **out)
{
    an_device *d = calloc(1, sizeof *d);
    an_err why = {0};
    if (!d) return an_fail_nomem(err, "the cuda device", sizeof *d);
    an_status status = settings(&why, d, o);
    if (status == AN_OK) status = make_device(&why, d);
    if (status != AN_OK) {
        cuda_close(d);
        return an_fail(err, status, "%s%s", strncmp(why.text, "cuda: ", 6) ? "cuda: " : "", why.text);
    }
    *out = d;
    return AN_OK;
}

static const an_target *cuda_target(an_device *d)
{
    return &d->target;
}

/* ---------------------------------------------------------------------------------------------- memory */

/* With guards a buffer has them on both sides: 512 bytes that the cost report does not count. */
static an_status cuda_alloc(an_err *err, an_device *d, size_t bytes, an_buffer *out)
{
    const size_t guard = d->guard ? AN_CUDA_GUARD_BYTES : 0, capacity = AN_MAX(bytes, 1);
    cu_pointer p = 0;
    char text[16];
    AN_TRY(an_cuda_enter(err, d));
    AN_TRY(an_cuda_check(err, d, d->cu.memory_new(&p, capacity + 2 * guard), "taking %s of device memory",
                         an_bytes_text((double)bytes, text)));
    an_status status = an_cuda_check(err, d, d->cu.fill(p + guard, 0, capacity, d->stream), "clearing memory");
    if (status == AN_OK && guard) status = an_cuda_guard_buffer(err, d, p + guard, capacity);
    if (status != AN_OK) {
        d->cu.memory_free(p);
        return status;
    }
    *out = (an_buffer){.handle = p + guard, .bytes = bytes};
    return AN_OK;
}

static void cuda_free(an_device *d, an_buffer *b)
{
    an_err quiet = {0};
    if (b->handle) an_cuda_unguard_buffer(d, b->handle);
    /* work in flight may still use it; on a lost device it is gone already */
    if (b->handle && an_cuda_enter(&quiet, d) == AN_OK) {
        an_cuda_wait_idle(d);
        d->cu.memory_free(b->handle - (d->guard ? AN_CUDA_GUARD_BYTES : 0));
    }
    *b = (an_buffer){0};
}

/* ---------------------------------------------------------------------------------------------- waiting */

static void nap(int64_t ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* Marks the device as lost with work on it that never ends. Nothing may be freed or synchronized from here on, the context
 * and what exit() calls in the driver included: each would wait for that work. Nor is ncclCommAbort called: it waits for every
 * graph with a call of NCCL. The end of the process ends all. */
static void lose_hung(an_device *d)
{
    d->lost = d->hung = true;
    an_guard_exit_hangs();
}

an_status an_cuda_lose_ranks(an_err *err, an_device *d)
{
    snprintf(d->lost_text, sizeof d->lost_text, "%s", err->text);
    lose_hung(d);
    return err->code;
}

/* Polls the event, at first without a pause: a step is often done within a millisecond. The limit keeps a GPU that hangs
 * from blocking this program for ever; looking at the other ranks does so where one of them is gone. */
static an_status wait_for_event(an_err *err, an_device *d, cu_event e, int64_t timeout_ns, const char *what)
{
    const double most = AN_MIN(d->timeout_s, (double)timeout_ns * 1e-9);
    double looked = 0;
    an_wait_clock clock = {0};
    for (long polls = 0;; polls++) {
        cu_result r = d->cu.event_query(e);
        if (r != CU_NOT_READY) return an_cuda_check(err, d, r, "%s", what);
        const double waited = an_wait_clock_ask(&clock);
        if (waited > most) break;
        if (waited > 2e-3) nap(waited < 0.1 ? 20000 : 200000);
        if (!d->nccl_comm || waited - looked < 0.01) continue;
        looked = waited;
        if (an_comm_watch(err, d->comm) != AN_OK) return an_cuda_lose_ranks(err, d);
    }
    if (most < d->timeout_s) return an_fail(err, AN_E_DEVICE, "cuda: %s: not done after %.3g s", what, most);
    snprintf(d->lost_text, sizeof d->lost_text,
             "cuda: %s: %s has not finished after %.3g s: it hangs%s, or needs longer than ANNEAL_CUDA_TIMEOUT (in "
             "seconds) allows; resume from the last checkpoint",
             what, d->name, d->timeout_s, d->nccl_comm ? ", or another rank's does" : "");
    lose_hung(d);
    return an_fail(err, AN_E_DEVICE, "%s", d->lost_text);
}

an_status an_cuda_wait_event(an_err *err, an_device *d, cu_event e, const char *what)
{
    return wait_for_event(err, d, e, INT64_MAX, what);
}

an_status an_cuda_wait_stream(an_err *err, an_device *d, const char *what)
{
    cu_event e = d->event[++d->tickets % AN_CUDA_EVENTS];
    AN_TRY(an_cuda_check(err, d, d->cu.event_record(e, d->stream, 0), "recording an event"));
    return wait_for_event(err, d, e, INT64_MAX, what);
}

/* Whether the queued exchanges end within MOST_S seconds. Where another rank is gone they never do: then nothing that they
 * use may be freed before the process ends. */
static bool has_ended_exchanges(an_device *d)
{
    enum { MOST_S = 5 };
    an_err quiet = {0};
    cu_event e = d->event[++d->tickets % AN_CUDA_EVENTS];
    if (an_cuda_check(&quiet, d, d->cu.event_record(e, d->stream, 0), "recording an event") != AN_OK) return false;
    if (wait_for_event(&quiet, d, e, (int64_t)MOST_S * 1000000000, "ending the GPU's work") == AN_OK) return true;
    if (!d->lost) snprintf(d->lost_text, sizeof d->lost_text, "%s", quiet.text);
    lose_hung(d);
    return false;
}

bool an_cuda_wait_idle(an_device *d)
{
    an_err quiet = {0};
    if (d->nccl_comm && !has_ended_exchanges(d)) return false;
    return an_cuda_check(&quiet, d, d->cu.stream_wait(d->stream), "ending the GPU's work") == AN_OK;
}

/* For the newest ticket it also waits for later writes: a failed copy must be reported. */
static an_status cuda_wait(an_err *err, an_device *d, an_ticket t, int64_t timeout_ns)
{
    if (t > d->tickets)
        return an_fail(err, AN_E_INTERNAL, "cuda: wait for ticket %llu that was never given", (unsigned long long)t);
    AN_TRY(an_cuda_enter(err, d));
    if (d->tickets - t >= AN_CUDA_EVENTS) t = d->tickets; /* its event is used by a later ticket now */
    AN_TRY(wait_for_event(err, d, d->event[t % AN_CUDA_EVENTS], timeout_ns, "waiting for a step"));
    if (t < d->tickets) return AN_OK;
    return an_cuda_check(err, d, d->cu.stream_wait(d->stream), "ending the GPU's work");
}

/* Whether the stream has ended the work up to this ticket, with an error or without. */
static bool cuda_done(an_device *d, an_ticket t)
{
    an_err quiet = {0};
    if (an_cuda_enter(&quiet, d) != AN_OK) return true;
    if (d->tickets - t >= AN_CUDA_EVENTS) t = d->tickets;
    return d->cu.event_query(d->event[t % AN_CUDA_EVENTS]) != CU_NOT_READY;
}

/* The driver's own count of memory in use: our buffers, the context, kernels, libraries, graphs, and other programs. */
static void memory_in_use(an_device *d, uint64_t *driver_bytes, uint64_t *recommended_bytes)
{
    an_err quiet = {0};
    size_t unused = 0, all = 0;
    *driver_bytes = 0;
    *recommended_bytes = d->free_bytes;
    if (an_cuda_enter(&quiet, d) == AN_OK && !d->cu.memory_info(&unused, &all)) *driver_bytes = all - unused;
}

const an_backend an_backend_cuda = {.name = "cuda",
                                    .aliases = {"cuda:0"},
                                    .chosen_by = "CUDA_VISIBLE_DEVICES",
                                    .planned_by = "null:cuda",
                                    .auto_rank = 1,
                                    .gpu = true,
                                    .own_memory = true,
                                    .compiles_in_bulk = true,
                                    .bench_side = 4096,
                                    .modes = cuda_modes,
                                    .probe = cuda_probe,
                                    .open = cuda_open,
                                    .close = cuda_close,
                                    .target = cuda_target,
                                    .join = an_cuda_join,
                                    .links = an_cuda_links,
                                    .alloc = cuda_alloc,
                                    .free = cuda_free,
                                    .write = an_cuda_write,
                                    .read = an_cuda_read,
                                    .load = an_cuda_load,
                                    .unload = an_cuda_unload,
                                    .submit = an_cuda_submit,
                                    .wait = cuda_wait,
                                    .borrows = AN_BORROWS_POINTER,
                                    .borrow_align = 256,
                                    .borrow = an_cuda_borrow,
                                    .stream = an_cuda_stream,
                                    .order = an_cuda_order,
                                    .done = cuda_done,
                                    .step_seconds = an_cuda_step_seconds,
                                    .step_begin = an_cuda_step_begin,
                                    .profile = an_cuda_profile,
                                    .enqueue_seconds = an_cuda_enqueue_seconds,
                                    .measured_peak = an_cuda_measured_peak,
                                    .memory = memory_in_use};
