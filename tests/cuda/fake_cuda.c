/* fake_cuda.c: libcuda.so.1, libnvrtc.so.13, libcublasLt.so.13 and libcudnn.so.9 in one shared library that needs no GPU, strict about
 * how it is used. tests/cuda/fake.h builds it and points ANNEAL_CUDA_PATH at it.
 *
 * Owns:      device memory (malloc, filled with signalling garbage), contexts, streams, events, modules, graphs; what
 *            the real libraries would do with them, at once and in order; a count of every call, so that the Nth can be
 *            made to fail.
 * Does not:  compute, except one small GEMM whose result is checked before a run. The launch of a kernel is checked (its
 *            function, its grid, its parameters, that every pointer is in live memory), and so is that of a GEMM; memory
 *            that they would write is left as it was.
 * "Machine code" is the kernel's text: the parameters of an entry are read from its AN_KERNEL (or AN_ENTRY) line.
 *
 * Environment: FAKE_CUDA_FAIL  "NAME:N=CODE,..." the Nth call of NAME returns CODE; "NAME:N+=CODE" and every later one
 *              FAKE_CUDA_VERSION, FAKE_CUDA_ARCH, FAKE_CUDA_BYTES   of the driver and the device
 *              FAKE_CUDA_GPUS   how many there are; FAKE_CUDA_PEERS how they are connected
 *              FAKE_CUDA_BESIDE  bytes that the driver and other programs hold
 *              FAKE_NVRTC  the real NVRTC, which every FAKE_NVRTC_EVERYth text is handed on to: its word is misuse too
 *              FAKE_CUDA_STRAY  N: the Nth kernel writes the byte before its last pointer
 *              FAKE_CUDA_LOG   where misuse and, at the end, what was left behind are written, a line each */
#define _GNU_SOURCE
#include "fake_entries.h"
#include <ctype.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { MOST = 1 << 16, INVALID_VALUE = 1, NO_MEMORY = 2, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500 };
enum { NOT_READY = 600 };
static int waits_for_ranks(void); /* fake_nccl.h */
enum { MOST_PARAMS = 96, NAME = 64 };
enum { PLAIN_SHARED = 48 << 10, MOST_SHARED = 227 << 10 }; /* what a launch may ask for, and after saying so */
enum { LARGE = 16 << 20, PAGE = 4096 }; /* from LARGE on memory takes pages only where it is written */

typedef enum kind {
    NOTHING,
    MEMORY,
    PINNED,
    STREAM,
    EVENT,
    MODULE,
    FUNCTION,
    GRAPH,
    GRAPH_EXEC,
    PROGRAM,
    DESC,
    LAYOUT,
    PREFERENCE,
    HANDLE,
    DNN_HANDLE,
    OBJECT
} kind;

typedef struct thing { /* anything with a handle */
    kind kind;
    void *host;
    size_t bytes;
    char *text;
    char name[NAME];
    int n_params, recorded, type;
    double us;       /* an event of a captured graph: when it comes, since the graph began */
    unsigned shared; /* a function's, allowed */
    int follows;     /* a function's text waits for the launch before it */
    uint64_t rows, cols;
    int64_t ld;
    char param[MOST_PARAMS]; /* 'p' a pointer, 'w' one whose neighbours are moved together, 'v' a value */
    size_t ops;
} thing;

static thing things[MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    int context, current, captures;
    size_t used_bytes, most_bytes, ops, kernels, gemms, convs, graphs, to_device, to_host, host_bytes,
        beside, /* captured calls that do not wait for the one before */
        follow,
        last_kernel; /* kernels that may begin before the one before them has ended; the number of the last kernel */
    thing *capturing;
} state;

/* A captured call's node is its number among all calls, as a pointer; what the stream waits for, a list of them. The times of a
 * graph are as if each call began when all that it waits for have ended, and lasted a microsecond; an exchange between
 * ranks FAKE_NCCL_US. */
static struct {
    void *node[MOST];
    size_t n;
    double us[MOST]; /* when a node of the graph that is captured ends */
    double lasts;    /* the next call */
} waits = {.lasts = 1};
static void time_node(void)
{
    double us = 0;
    for (size_t i = 0; i < waits.n; i++) {
        const double end = waits.us[((uintptr_t)waits.node[i] - state.capturing->ops) % MOST];
        if (end > us) us = end;
    }
    waits.us[(state.ops + 1 - state.capturing->ops) % MOST] = us + waits.lasts;
}
static void captured(void)
{
    if (state.capturing) time_node();
    waits.lasts = 1;
    state.ops++;
    state.beside += state.capturing && waits.n && (uintptr_t)waits.node[waits.n - 1] != state.ops - 1;
    if (state.capturing) waits.node[0] = (void *)(uintptr_t)state.ops, waits.n = 1;
}

__attribute__((format(printf, 1, 2))) static void complain(const char *fmt, ...)
{
    const char *path = getenv("FAKE_CUDA_LOG");
    FILE *f = path ? fopen(path, "a") : stderr;
    va_list args;
    va_start(args, fmt);
    if (f) vfprintf(f, fmt, args), fputc('\n', f);
    va_end(args);
    if (f && path) fclose(f);
}

/* ---- injected failures */

static struct {
    const char *name;
    long calls;
} counts[MOST];

/* Counts begin anew when another failure is asked for. */
static int injected(const char *name)
{
    static char last[256];
    const char *list = getenv("FAKE_CUDA_FAIL");
    if (strncmp(last, list ? list : "", sizeof last - 1)) {
        snprintf(last, sizeof last, "%s", list ? list : "");
        memset(counts, 0, sizeof counts);
    }
    long n = 0;
    for (int i = 0; i < MOST; i++) {
        if (!counts[i].name) counts[i].name = name;
        if (strcmp(counts[i].name, name)) continue;
        n = ++counts[i].calls;
        break;
    }
    for (const char *at = list; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char who[NAME];
        long nth = 0;
        int code = 0, used = 0;
        if (sscanf(at, "%63[^:]:%ld%n", who, &nth, &used) != 2 || strcmp(who, name)) continue;
        int on = at[used] == '+';
        if (sscanf(at + used + on, "=%d", &code) == 1 && (n == nth || (on && n >= nth))) return code;
    }
    return 0;
}
#define CALL(name)                                                                                                     \
    pthread_mutex_lock(&lock);                                                                                         \
    int code = injected(name);                                                                                         \
    if (code) return pthread_mutex_unlock(&lock), code
#define DONE(result) return pthread_mutex_unlock(&lock), (result)

/* ---- handles */

static thing *new_thing(kind kind)
{
    for (int i = 0; i < MOST; i++)
        if (things[i].kind == NOTHING) {
            things[i] = (thing){.kind = kind};
            return &things[i];
        }
    complain("more than %d handles", MOST);
    return NULL;
}

static int is(const thing *t, kind kind, const char *who)
{
    if (t >= things && t < things + MOST && t->kind == kind) return 1;
    complain("%s: not a live handle", who);
    return 0;
}

static thing *memory_at(uint64_t p, size_t n)
{
    for (int i = 0; i < MOST; i++)
        if (things[i].kind == MEMORY && p >= (uint64_t)(uintptr_t)things[i].host &&
            p + n <= (uint64_t)(uintptr_t)things[i].host + things[i].bytes)
            return &things[i];
    return NULL;
}
static int pinned_at(const void *p, size_t n)
{
    for (int i = 0; i < MOST; i++)
        if (things[i].kind == PINNED && (const char *)p >= (char *)things[i].host &&
            (const char *)p + n <= (char *)things[i].host + things[i].bytes)
            return 1;
    return 0;
}

static int ready(const char *who)
{
    if (state.current && state.context > 0) return 1;
    complain("%s: no current context", who);
    return 0;
}

static void free_thing(thing *t)
{
    free(t->text);
    if (t->kind == MEMORY && t->bytes >= LARGE)
        munmap(t->host, t->bytes);
    else if (t->kind == MEMORY || t->kind == PINNED)
        free(t->host);
    *t = (thing){.kind = NOTHING};
}

/* ---- the driver: context and device */

EXPORT int cuInit(unsigned flags)
{
    CALL("cuInit");
    DONE(flags ? INVALID_VALUE : 0);
}
EXPORT int cuDriverGetVersion(int *v)
{
    CALL("cuDriverGetVersion");
    *v = getenv("FAKE_CUDA_VERSION") ? atoi(getenv("FAKE_CUDA_VERSION")) : 13000;
    DONE(0);
}
static int fake_gpus(void)
{
    return getenv("FAKE_CUDA_GPUS") ? atoi(getenv("FAKE_CUDA_GPUS")) : 1;
}
EXPORT int cuDeviceGetCount(int *n)
{
    CALL("cuDeviceGetCount");
    *n = fake_gpus();
    DONE(0);
}
EXPORT int cuDeviceGet(int *d, int i)
{
    CALL("cuDeviceGet");
    *d = 0;
    DONE(i ? INVALID_VALUE : 0);
}
EXPORT int cuDeviceGetName(char *s, int n, int d)
{
    CALL("cuDeviceGetName");
    (void)d;
    snprintf(s, (size_t)n, "Fake GPU");
    DONE(0);
}
static size_t all_bytes(void)
{
    return getenv("FAKE_CUDA_BYTES") ? strtoull(getenv("FAKE_CUDA_BYTES"), NULL, 10) : (size_t)4 << 30;
}
EXPORT int cuDeviceTotalMem_v2(size_t *n, int d)
{
    CALL("cuDeviceTotalMem_v2");
    (void)d;
    *n = all_bytes();
    DONE(0);
}
EXPORT int cuDeviceGetAttribute(int *out, int which, int d)
{
    CALL("cuDeviceGetAttribute");
    int arch = getenv("FAKE_CUDA_ARCH") ? atoi(getenv("FAKE_CUDA_ARCH")) : 90;
    (void)d;
    *out = which == 75 ? arch / 10 : which == 76 ? arch % 10 : which == 16 ? 132 : 0;
    DONE(0);
}
EXPORT int cuDeviceGetPCIBusId(char *s, int n, int d)
{
    CALL("cuDeviceGetPCIBusId");
    snprintf(s, (size_t)n, "0000:%02X:00.0", 0x1b + d);
    DONE(0);
}
/* FAKE_CUDA_PEERS: a letter a pair, in order: n NVLink, p PCIe, h through the host. */
EXPORT int cuDeviceGetP2PAttribute(int *out, int which, int a, int b)
{
    CALL("cuDeviceGetP2PAttribute");
    const char *peers = getenv("FAKE_CUDA_PEERS");
    const int gpus = fake_gpus();
    int pair = 0;
    if (a >= b || b >= gpus) complain("cuDeviceGetP2PAttribute: GPUs %d and %d of %d", a, b, gpus);
    for (int i = 0; i < a; i++) pair += gpus - 1 - i;
    pair += b - a - 1;
    const char way = peers && pair < (int)strlen(peers) ? peers[pair] : 'h';
    *out = which == 2 ? way != 'h' : which == 3 ? way == 'n' : 0;
    DONE(0);
}
EXPORT int cuDevicePrimaryCtxRetain(void **c, int d)
{
    CALL("cuDevicePrimaryCtxRetain");
    (void)d;
    state.context++;
    *c = &state;
    DONE(0);
}
EXPORT int cuDevicePrimaryCtxRelease_v2(int d)
{
    static const char *const names[] = {"",           "allocation",      "pinned block", "stream",
                                        "event",      "module",          "function",     "graph",
                                        "graph exec", "program",         "description",  "layout",
                                        "preference", "cuBLASLt handle", "cuDNN handle", "cuDNN description"};
    CALL("cuDevicePrimaryCtxRelease_v2");
    (void)d;
    if (--state.context > 0) DONE(0);
    if (waits_for_ranks()) complain("cuDevicePrimaryCtxRelease: it waits for work that waits for another rank");
    for (int i = 0; i < MOST; i++) {
        if (things[i].kind == FUNCTION) free_thing(&things[i]);
        if (things[i].kind != NOTHING) complain("left behind: %s", names[things[i].kind]), free_thing(&things[i]);
    }
    state.current = 0;
    if (getenv("FAKE_CUDA_COUNTS")) {
        FILE *f = fopen(getenv("FAKE_CUDA_COUNTS"), "w");
        if (f) {
            fprintf(f,
                    "kernels %zu gemms %zu captures %d replays %zu beside %zu to_device %zu to_host %zu bytes %zu "
                    "follow %zu convs %zu\n",
                    state.kernels, state.gemms, state.captures, state.graphs, state.beside, state.to_device,
                    state.to_host, state.host_bytes, state.follow, state.convs);
            fclose(f);
        }
    }
    DONE(0);
}
EXPORT int cuCtxSetCurrent(void *c)
{
    CALL("cuCtxSetCurrent");
    state.current = c == &state;
    DONE(state.current ? 0 : INVALID_CONTEXT);
}
EXPORT int cuGetErrorName(int code, const char **s)
{
    static __thread char t[32];
    snprintf(t, sizeof t, "CUDA_ERROR_%d", code);
    *s = t;
    return 0;
}
EXPORT int cuGetErrorString(int code, const char **s)
{
    *s = code == 2 ? "out of memory" : code == 700 ? "an illegal memory access was encountered" : "injected";
    return 0;
}

/* ---- memory */

static size_t beside(void)
{
    return getenv("FAKE_CUDA_BESIDE") ? strtoull(getenv("FAKE_CUDA_BESIDE"), NULL, 10) : 0;
}
EXPORT int cuMemGetInfo_v2(size_t *unused, size_t *all)
{
    CALL("cuMemGetInfo_v2");
    *all = all_bytes();
    *unused = *all - state.used_bytes - beside();
    DONE(0);
}
/* For tests: bytes given out now, and at most since this was asked last. */
EXPORT void fake_bytes(size_t *now, size_t *most)
{
    pthread_mutex_lock(&lock);
    *now = state.used_bytes;
    *most = state.most_bytes;
    state.most_bytes = state.used_bytes;
    pthread_mutex_unlock(&lock);
}
/* Not zero, so that reading memory that was never cleared shows. Of large memory only the first page is filled. */
static void *device_memory(size_t n)
{
    void *p;
    if (n < LARGE) {
        p = aligned_alloc(512, (n + 511) & ~(size_t)511);
        return p ? memset(p, 0x7f, n) : NULL;
    }
    p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : memset(p, 0x7f, PAGE) ? p : NULL;
}
EXPORT int cuMemAlloc_v2(uint64_t *p, size_t n)
{
    CALL("cuMemAlloc_v2");
    if (!ready("cuMemAlloc") || !n) DONE(INVALID_VALUE);
    if (state.capturing) complain("cuMemAlloc while a stream is captured");
    if (state.used_bytes + beside() + n > all_bytes()) DONE(NO_MEMORY);
    thing *t = new_thing(MEMORY);
    void *host = t ? device_memory(n) : NULL;
    if (!host) {
        if (t) t->kind = NOTHING;
        DONE(NO_MEMORY);
    }
    t->host = host, t->bytes = n, state.used_bytes += n;
    if (state.used_bytes > state.most_bytes) state.most_bytes = state.used_bytes;
    *p = (uint64_t)(uintptr_t)host;
    DONE(0);
}
EXPORT int cuMemFree_v2(uint64_t p)
{
    CALL("cuMemFree_v2");
    thing *t = memory_at(p, 1);
    if (!ready("cuMemFree") || !t || (uint64_t)(uintptr_t)t->host != p)
        complain("cuMemFree of what was not allocated");
    else
        state.used_bytes -= t->bytes, free_thing(t);
    DONE(0);
}
EXPORT int cuMemHostAlloc(void **p, size_t n, unsigned flags)
{
    CALL("cuMemHostAlloc");
    (void)flags;
    thing *t = ready("cuMemHostAlloc") ? new_thing(PINNED) : NULL;
    if (!t || !(t->host = malloc(n))) DONE(NO_MEMORY);
    t->bytes = n, *p = t->host;
    DONE(0);
}
EXPORT int cuMemFreeHost(void *p)
{
    CALL("cuMemFreeHost");
    for (int i = 0; i < MOST; i++)
        if (things[i].kind == PINNED && things[i].host == p) {
            free_thing(&things[i]);
            DONE(0);
        }
    complain("cuMemFreeHost of what was not allocated");
    DONE(INVALID_VALUE);
}
static int moves(const char *who, thing *s, uint64_t device, const void *host, size_t n)
{
    if (!ready(who) || !is(s, STREAM, who)) return 0;
    if (!memory_at(device, n)) return complain("%s: %zu bytes outside the device's memory", who, n), 0;
    if (host && !pinned_at(host, n)) return complain("%s: host memory is not pinned", who), 0;
    if (state.capturing && host) return complain("%s: host memory in a captured plan", who), 0;
    captured();
    return 1;
}
EXPORT int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t n, thing *s)
{
    CALL("cuMemcpyHtoDAsync_v2");
    if (!moves("cuMemcpyHtoDAsync", s, dst, src, n)) DONE(INVALID_VALUE);
    memcpy((void *)(uintptr_t)dst, src, n);
    state.to_device++;
    DONE(0);
}
EXPORT int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t n, thing *s)
{
    CALL("cuMemcpyDtoHAsync_v2");
    if (!moves("cuMemcpyDtoHAsync", s, src, dst, n)) DONE(INVALID_VALUE);
    memcpy(dst, (void *)(uintptr_t)src, n);
    state.to_host++;
    state.host_bytes += n;
    DONE(0);
}
EXPORT int cuMemcpyDtoDAsync_v2(uint64_t dst, uint64_t src, size_t n, thing *s)
{
    CALL("cuMemcpyDtoDAsync_v2");
    if (!moves("cuMemcpyDtoDAsync", s, dst, NULL, n) || !memory_at(src, n)) DONE(INVALID_VALUE);
    memmove((void *)(uintptr_t)dst, (void *)(uintptr_t)src, n);
    DONE(0);
}
/* Zeros in whole pages of large memory: the system has them, and they take none. */
static void clear(char *p, int v, size_t n, int large)
{
    char *first = p + (PAGE - (uintptr_t)p % PAGE) % PAGE, *last = p + n - ((uintptr_t)(p + n) % PAGE);
    if (v || !large || last <= first || madvise(first, (size_t)(last - first), MADV_DONTNEED)) {
        memset(p, v, n);
        return;
    }
    memset(p, 0, (size_t)(first - p));
    memset(last, 0, (size_t)(p + n - last));
}
EXPORT int cuMemsetD8Async(uint64_t p, unsigned char v, size_t n, thing *s)
{
    CALL("cuMemsetD8Async");
    if (!moves("cuMemsetD8Async", s, p, NULL, n)) DONE(INVALID_VALUE);
    clear((char *)(uintptr_t)p, v, n, memory_at(p, n)->bytes >= LARGE);
    DONE(0);
}

/* ---- streams, events, graphs */

static int make(thing **out, kind kind, const char *who)
{
    *out = ready(who) ? new_thing(kind) : NULL;
    return *out ? 0 : INVALID_VALUE;
}
static int drop(thing *t, kind kind, const char *who)
{
    if (!is(t, kind, who)) return INVALID_HANDLE;
    free_thing(t);
    return 0;
}
EXPORT int cuStreamCreate(thing **out, unsigned flags)
{
    CALL("cuStreamCreate");
    (void)flags;
    DONE(make(out, STREAM, "cuStreamCreate"));
}
EXPORT int cuStreamDestroy_v2(thing *s)
{
    CALL("cuStreamDestroy_v2");
    DONE(drop(s, STREAM, "cuStreamDestroy"));
}
EXPORT int cuStreamSynchronize(thing *s)
{
    CALL("cuStreamSynchronize");
    if (state.capturing) complain("cuStreamSynchronize while capturing");
    if (waits_for_ranks()) complain("cuStreamSynchronize waits for ever for another rank");
    DONE(is(s, STREAM, "cuStreamSynchronize") ? 0 : INVALID_HANDLE);
}
EXPORT int cuStreamBeginCapture_v2(thing *s, int mode)
{
    CALL("cuStreamBeginCapture_v2");
    (void)mode;
    if (!is(s, STREAM, "cuStreamBeginCapture") || state.capturing) DONE(INVALID_VALUE);
    state.capturing = s, state.captures++, s->ops = state.ops, waits.n = 0;
    DONE(0);
}
EXPORT int cuStreamGetCaptureInfo_v2(thing *s, int *status, uint64_t *id, void **graph, void *const **nodes, size_t *n)
{
    CALL("cuStreamGetCaptureInfo_v2");
    (void)id, (void)graph;
    if (!is(s, STREAM, "cuStreamGetCaptureInfo") || state.capturing != s) {
        complain("cuStreamGetCaptureInfo: nothing is captured");
        DONE(INVALID_VALUE);
    }
    *status = 1, *nodes = waits.node, *n = waits.n;
    DONE(0);
}
EXPORT int cuStreamUpdateCaptureDependencies(thing *s, void **nodes, size_t n, unsigned how)
{
    CALL("cuStreamUpdateCaptureDependencies");
    if (!is(s, STREAM, "cuStreamUpdateCaptureDependencies") || state.capturing != s || how != 1 || n > MOST) {
        complain("cuStreamUpdateCaptureDependencies: %zu nodes, flags %u", n, how);
        DONE(INVALID_VALUE);
    }
    for (size_t i = 0; i < n; i++)
        if ((uintptr_t)nodes[i] <= s->ops || (uintptr_t)nodes[i] > state.ops)
            complain("cuStreamUpdateCaptureDependencies: a node that is not of this graph");
    memmove(waits.node, nodes, n * sizeof *nodes), waits.n = n;
    DONE(0);
}
EXPORT int cuStreamEndCapture(thing *s, thing **out)
{
    const thing *was = state.capturing;
    state.capturing = NULL; /* whatever happens */
    CALL("cuStreamEndCapture");
    if (was != s) {
        complain("cuStreamEndCapture: nothing is captured");
        DONE(INVALID_VALUE);
    }
    int r = make(out, GRAPH, "cuStreamEndCapture");
    if (!r) (*out)->ops = state.ops - s->ops;
    DONE(r);
}
EXPORT int cuGraphInstantiateWithFlags(thing **out, thing *g, unsigned long long flags)
{
    CALL("cuGraphInstantiateWithFlags");
    if (flags || !is(g, GRAPH, "cuGraphInstantiate")) DONE(INVALID_VALUE);
    int r = make(out, GRAPH_EXEC, "cuGraphInstantiate");
    if (!r) (*out)->ops = g->ops;
    DONE(r);
}
EXPORT int cuGraphDestroy(thing *g)
{
    CALL("cuGraphDestroy");
    DONE(drop(g, GRAPH, "cuGraphDestroy"));
}
EXPORT int cuGraphExecDestroy(thing *g)
{
    CALL("cuGraphExecDestroy");
    DONE(drop(g, GRAPH_EXEC, "cuGraphExecDestroy"));
}
EXPORT int cuGraphLaunch(thing *g, thing *s)
{
    CALL("cuGraphLaunch");
    if (!ready("cuGraphLaunch") || !is(g, GRAPH_EXEC, "cuGraphLaunch") || !is(s, STREAM, "cuGraphLaunch"))
        DONE(INVALID_HANDLE);
    if (!g->ops) complain("cuGraphLaunch: an empty graph");
    state.graphs++;
    DONE(0);
}
EXPORT int cuEventCreate(thing **out, unsigned flags)
{
    CALL("cuEventCreate");
    (void)flags;
    DONE(make(out, EVENT, "cuEventCreate"));
}
EXPORT int cuEventDestroy_v2(thing *e)
{
    CALL("cuEventDestroy_v2");
    DONE(drop(e, EVENT, "cuEventDestroy"));
}
/* A stream, or one of the two names of the default stream. */
static int is_stream(const thing *s, const char *who)
{
    return (uintptr_t)s <= 1 || is(s, STREAM, who);
}
EXPORT int cuStreamWaitEvent(thing *s, thing *e, unsigned flags)
{
    CALL("cuStreamWaitEvent");
    if (!is(e, EVENT, "cuStreamWaitEvent") || !is_stream(s, "cuStreamWaitEvent") || flags) DONE(INVALID_HANDLE);
    if (!e->recorded) complain("cuStreamWaitEvent: an event that was never recorded");
    if (state.capturing) complain("cuStreamWaitEvent while a stream is captured");
    DONE(0);
}
/* Memory type 2 is the device's. */
EXPORT int cuPointerGetAttribute(void *out, int which, uint64_t p)
{
    CALL("cuPointerGetAttribute");
    if (!ready("cuPointerGetAttribute") || !memory_at(p, 1)) DONE(INVALID_VALUE);
    if (which != 2 && which != 8 && which != 9) DONE(INVALID_VALUE);
    *(int *)out = which == 2 ? 2 : 0;
    DONE(0);
}
EXPORT int cuEventRecordWithFlags(thing *e, thing *s, unsigned flags)
{
    CALL("cuEventRecordWithFlags");
    if (!is(e, EVENT, "cuEventRecord") || !is_stream(s, "cuEventRecord")) DONE(INVALID_HANDLE);
    if ((flags == 1) != (state.capturing != NULL))
        complain("cuEventRecord: external exactly where a stream is captured");
    e->recorded = 1;
    e->us = -1;
    if (state.capturing) {
        waits.lasts = 0;
        captured();
        e->us = waits.us[(state.ops - state.capturing->ops) % MOST];
    }
    DONE(0);
}
static int recorded(thing *e, const char *who)
{
    if (!is(e, EVENT, who)) return INVALID_HANDLE;
    if (!e->recorded) complain("%s: an event that was never recorded", who);
    return 0;
}
EXPORT int cuEventQuery(thing *e)
{
    CALL("cuEventQuery");
    if (recorded(e, "cuEventQuery")) DONE(INVALID_HANDLE);
    DONE(waits_for_ranks() ? NOT_READY : 0);
}
EXPORT int cuEventElapsedTime(float *ms, thing *a, thing *b)
{
    CALL("cuEventElapsedTime");
    *ms = a->us < 0 && b->us < 0 ? 0.001f : (float)(((b->us > 0 ? b->us : 0) - (a->us > 0 ? a->us : 0)) / 1000);
    DONE(recorded(a, "cuEventElapsedTime") | recorded(b, "cuEventElapsedTime"));
}

/* ---- modules and launches */

EXPORT int cuModuleLoadData(thing **out, const char *image)
{
    CALL("cuModuleLoadData");
    if (make(out, MODULE, "cuModuleLoadData")) DONE(INVALID_VALUE);
    if (!strstr(image, "AN_KERNEL(")) complain("cuModuleLoadData: not one of our kernels");
    (*out)->text = strdup(image);
    DONE(0);
}
EXPORT int cuModuleUnload(thing *m)
{
    CALL("cuModuleUnload");
    DONE(drop(m, MODULE, "cuModuleUnload"));
}

/* Whether the text moves neighbours of the array at `at`, "AN_LOOP_IN(0, float, x0)", without checking their alignment.
 */
static int moves_16_bytes(const char *text, const char *at)
{
    char name[NAME], load[NAME + 8], store[NAME + 24];
    if (strncmp(text, "#define AN_ALIGNED 1\n", 21) || sscanf(at, "%*[^,], %*[^,], %31[^)]", name) != 1) return 0;
    snprintf(load, sizeof load, ", %s + ", name);
    snprintf(store, sizeof store, "an_wide_store(%s + ", name);
    return strstr(text, load) || strstr(text, store);
}

/* "AN_KERNEL(name, threads) (AN_IN(0, float, x), AN_ARGS(1, args, a) AN_IDS)" in order; a hole is expanded first. */
static void read_params(const char *text, const char *at, thing *f)
{
    for (int depth = 0; *at; at++) {
        depth += (*at == '(') - (*at == ')');
        if (!depth && *at == ')') return;
        if (strncmp(at, "AN_", 3) || (at[-1] != '(' && !isspace((unsigned char)at[-1]) && at[-1] != ',')) continue;
        if (!strncmp(at, "AN_EPILOGUE_ARGS", 16)) {
            const char *hole = strstr(text, "#define AN_EPILOGUE_ARGS ,");
            for (const char *p = hole; p && p < strchr(hole + 1, '\n'); p++)
                if (!strncmp(p, "AN_LOOP_", 8) || !strncmp(p, "AN_IN(", 6) || !strncmp(p, "AN_OUT(", 7))
                    f->param[f->n_params++] = 'p';
        } else if (!strncmp(at, "AN_ARGS(", 8)) {
            f->param[f->n_params++] = 'v';
        } else if (!strncmp(at, "AN_IN(", 6) || !strncmp(at, "AN_OUT(", 7)) {
            f->param[f->n_params++] = 'p';
        } else if (!strncmp(at, "AN_LOOP_IN(", 10) || !strncmp(at, "AN_LOOP_CONST(", 13) ||
                   !strncmp(at, "AN_LOOP_OUT(", 11)) {
            f->param[f->n_params++] = moves_16_bytes(text, at) ? 'w' : 'p';
        }
    }
}
EXPORT int cuModuleGetFunction(thing **out, thing *m, const char *name)
{
    CALL("cuModuleGetFunction");
    if (!is(m, MODULE, "cuModuleGetFunction")) DONE(INVALID_HANDLE);
    int count;
    const char *at = find_entry(m->text, name, &count);
    if (!at) complain("cuModuleGetFunction: there is no %s", name);
    if (count > 1) complain("cuModuleGetFunction: there are %d of %s", count, name);
    if (count != 1) DONE(NOT_FOUND);
    thing *f = *out = new_thing(FUNCTION);
    if (!f) DONE(INVALID_VALUE);
    snprintf(f->name, sizeof f->name, "%s", name);
    f->follows = strstr(m->text, "#define AN_FOLLOW 1\n") && strstr(m->text, "AN_AWAIT();");
    at = strchr(strchr(at, ')'), '(');
    read_params(m->text, at, f);
    DONE(0);
}
static void stray(const thing *f, void **params)
{
    static unsigned long launches; /* since it was asked for */
    const char *nth = getenv("FAKE_CUDA_STRAY");
    uint64_t p = 0;
    launches = nth ? launches + 1 : 0;
    if (!nth || launches != strtoul(nth, NULL, 10)) return;
    for (int i = 0; i < f->n_params; i++)
        if (f->param[i] != 'v') memcpy(&p, params[i], sizeof p);
    if (memory_at(p - 1, 1)) ((char *)(uintptr_t)p)[-1] = 0;
}
/* Rows of 128 bytes, swizzled: what kernels/gpu/gemm_hopper.inc reads. */
EXPORT int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, uint64_t at, const uint64_t *extents,
                                  const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                                  int swizzle, int promotion, int fill)
{
    CALL("cuTensorMapEncodeTiled");
    const int whole = type == 9 && rank == 2 && !interleave && swizzle == 3 && promotion == 3 && !fill;
    if (!whole || (uintptr_t)map % 64 || at % 16 || strides[0] % 16 || strides[0] < 2 * extents[0] || !extents[0] ||
        !extents[1] || box[0] != 64 || !box[1] || box[1] > 256 || steps[0] != 1 || steps[1] != 1 ||
        !memory_at(at, (extents[1] - 1) * strides[0] + 2 * extents[0])) {
        complain("cuTensorMapEncodeTiled: %llu x %llu, %llu bytes a row", (unsigned long long)extents[1],
                 (unsigned long long)extents[0], (unsigned long long)strides[0]);
        DONE(INVALID_VALUE);
    }
    memcpy(map, &at, sizeof at);
    DONE(0);
}
EXPORT int cuFuncSetAttribute(thing *f, int which, int value)
{
    CALL("cuFuncSetAttribute");
    if (!is(f, FUNCTION, "cuFuncSetAttribute")) DONE(INVALID_HANDLE);
    if (which != 8 || value < 0 || value > MOST_SHARED) {
        complain("cuFuncSetAttribute: %s: attribute %d of %d", f->name, which, value);
        DONE(INVALID_VALUE);
    }
    f->shared = (unsigned)value;
    DONE(0);
}
static int launch(const char *who, thing *f, const unsigned *grid, const unsigned *threads, unsigned shared, thing *s,
                  void **params, const void *extra)
{
    if (!ready(who) || !is(f, FUNCTION, who) || !is(s, STREAM, who) || extra) return INVALID_HANDLE;
    if (!grid[0] || !grid[1] || !grid[2] || grid[0] > 0x7fffffffu || grid[1] > 65535 || grid[2] > 65535 ||
        threads[0] * threads[1] * threads[2] > 1024 || !threads[0] || threads[0] % 32 ||
        (shared > PLAIN_SHARED && shared > f->shared)) {
        complain("%s: %s: grid %u %u %u of %u threads, %u bytes", who, f->name, grid[0], grid[1], grid[2], threads[0],
                 shared);
        return INVALID_VALUE;
    }
    for (int i = 0; i < f->n_params; i++) {
        uint64_t p;
        if (!params[i]) {
            complain("%s: %s: parameter %d is missing", who, f->name, i);
            return INVALID_VALUE;
        }
        if (f->param[i] == 'v') continue;
        memcpy(&p, params[i], sizeof p);
        if (f->param[i] == 'w' && p % 16)
            complain("%s: %s: parameter %d is read by 16 bytes and begins between them", who, f->name, i);
        if (!memory_at(p, 0)) complain("%s: %s: parameter %d points nowhere", who, f->name, i);
    }
    captured();
    state.kernels++;
    state.last_kernel = state.ops;
    stray(f, params);
    return 0;
}
EXPORT int cuLaunchKernel(thing *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, thing *s, void **params, void **extra)
{
    CALL("cuLaunchKernel");
    const unsigned grid[3] = {gx, gy, gz}, threads[3] = {bx, by, bz};
    DONE(launch("cuLaunchKernel", f, grid, threads, shared, s, params, extra));
}
/* CUlaunchConfig. The one attribute that is known lets the kernel begin before the one before it has ended: it must wait by itself,
 * and the call before it in the same graph must be a kernel. */
struct config {
    unsigned grid[3], threads[3], shared;
    thing *stream;
    struct attribute {
        int id;
        char unused[4];
        union {
            char bytes[64];
            int allowed;
        } value;
    } * attribute;
    unsigned n;
};
EXPORT int cuLaunchKernelEx(const struct config *c, thing *f, void **params, void **extra)
{
    CALL("cuLaunchKernelEx");
    if (!is(f, FUNCTION, "cuLaunchKernelEx")) DONE(INVALID_HANDLE);
    for (unsigned i = 0; i < c->n; i++) {
        if (c->attribute[i].id != 6 || c->attribute[i].value.allowed != 1)
            complain("cuLaunchKernelEx: %s: attribute %d", f->name, c->attribute[i].id);
        if (!f->follows) complain("cuLaunchKernelEx: %s does not wait for the kernel before it", f->name);
        if (!state.capturing || state.last_kernel != state.ops || state.last_kernel <= state.capturing->ops)
            complain("cuLaunchKernelEx: %s follows no kernel of this graph", f->name);
        state.follow++;
    }
    DONE(launch("cuLaunchKernelEx", f, c->grid, c->threads, c->shared, c->stream, params, extra));
}

#include "fake_libraries.h"
#include "fake_cudnn.h"
#include "fake_nccl.h"
