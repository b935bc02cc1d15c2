/* compilers.c: several compilers side by side. NVRTC reads texts one at a time, under a lock of the library; a copy of the library has
 * a lock of its own. The file is copied to memory, where that has room for it, and is gone when the texts are compiled.
 *
 * NVRTC (seen from 12.1 to 13.0, not in 13.5) replaces the handlers of SIGINT, SIGTERM and SIGXFSZ while it compiles its first text, and puts back what it found. Two copies
 * that do so at once take each other's handlers for what was there, and one of a copy that is gone would stay. So first texts are compiled one
 * at a time, and handlers that lie in a copy when it goes are replaced by those from before.
 *
 * Owns:      how many compilers there are (ANNEAL_CUDA_COMPILERS), the copies, which thread uses which.
 * Does not:  compile: nvrtc.c does. A text that a copy refuses is compiled again by the library itself, so that a copy that
 *            does not work costs time alone, and what is said of an error in a text is the library's.
 */
#include "comm/comm.h"
#include "device/cuda/cuda_internal.h"
#include "platform/dynamic_library.h"
#include "platform/platform.h"
#include "platform/system_info.h"
#include "base/text.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_COMPILERS = 8,
    TEXTS_EACH = 8,     /* making a copy takes as long as compiling two to four */
    THREADS_EACH = 2,   /* the lock is held for a fifth to all of a text's time, by NVRTC's version */
    SHARE_OF_MEMORY = 4 /* copies of all ranks together take at most a quarter of the free memory */
};

static const int SIGNALS[] = {SIGINT, SIGTERM, SIGXFSZ};

typedef struct compiler {
    pthread_mutex_t lock;
    bool asked, works;
    an_dl_copy copy;
    an_nvrtc api;
    an_err why; /* it does not work */
} compiler;

struct an_compilers {
    const an_device *device;
    const an_nvrtc *library;
    void *builtins;
    struct sigaction before[AN_COUNT(SIGNALS)];
    int n; /* with the library itself, which is the first */
    compiler copy[MOST_COMPILERS - 1];
};

static uint64_t free_memory(void)
{
    an_system_info now = {0};
    double cores;
    an_system_info_update(&now);
    const uint64_t limit = an_cgroup_limits(&cores), used = an_rss_bytes(), ours = limit > used ? limit - used : 0;
    return limit ? AN_MIN(now.free_bytes, ours) : now.free_bytes;
}

static const void *code_of(const an_nvrtc *c)
{
    return an_dl_sym(c->library, "nvrtcVersion");
}

static int count(const an_device *d, int n_texts, int n_threads, char *why, size_t why_bytes)
{
    const int asked = d->compilers ? d->compilers : AN_MIN(n_threads / THREADS_EACH, MOST_COMPILERS),
              wanted = AN_MIN(AN_MIN(asked, n_threads), n_texts / TEXTS_EACH);
    const uint64_t each = wanted > 1 ? an_dl_copy_bytes(code_of(&d->nvrtc)) : 0;
    char a[16], b[16];
    if (!each || d->copies_stay) return 1;
    const uint64_t ranks = d->comm ? (uint64_t)an_comm_ranks(d->comm) : 1; /* which compile at the same time */
    const uint64_t room = free_memory(), most = room / SHARE_OF_MEMORY / each / ranks;
    if (most == 0)
        snprintf(why, why_bytes, "a copy takes %s, and %s are free", an_bytes_text((double)each, a),
                 an_bytes_text((double)room, b));
    return (int)AN_MIN(most + 1, (uint64_t)wanted);
}

/* Compiles a library's first text, while no other does. */
static bool start(const an_device *d, const an_nvrtc *c)
{
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&one);
    const bool works = an_nvrtc_compiles(d, c, "extern \"C\" __global__ void first() {}\n");
    pthread_mutex_unlock(&one);
    return works;
}

int an_compilers_most(void)
{
    return MOST_COMPILERS;
}

an_compilers *an_compilers_open(an_device *d, int n_texts, int n_threads)
{
    an_compilers *c = calloc(1, sizeof *c);
    char why[128] = "";
    if (!c) return NULL;
    c->device = d;
    c->library = &d->nvrtc;
    c->n = count(d, n_texts, n_threads, why, sizeof why);
    if (*why) an_compilers_note(d, why);
    for (int i = 0; i < c->n - 1; i++) pthread_mutex_init(&c->copy[i].lock, NULL);
    if (c->n == 1) return c;
    for (size_t i = 0; i < AN_COUNT(SIGNALS); i++) sigaction(SIGNALS[i], NULL, &c->before[i]);
    c->builtins = an_nvrtc_builtins(c->library);
    start(d, c->library); /* what it refuses it refuses again */
    return c;
}

static void refused(compiler *own)
{
    if (own->works) an_fail(&own->why, AN_E_ENV, "a copy does not compile what the library does");
    own->works = false;
}

const an_nvrtc *an_compilers_get(an_compilers *c, int thread)
{
    const int which = c ? thread % c->n : 0;
    if (which == 0) return NULL;
    compiler *own = &c->copy[which - 1];
    pthread_mutex_lock(&own->lock);
    if (!own->asked) {
        own->asked = true;
        own->works = an_dl_copy_open(&own->why, code_of(c->library), &own->copy) == AN_OK &&
                     an_nvrtc_fill(&own->why, own->copy.lib, c->library, &own->api) == AN_OK;
        if (own->works && !start(c->device, &own->api)) refused(own);
    }
    const bool works = own->works;
    pthread_mutex_unlock(&own->lock);
    return works ? &own->api : NULL;
}

void an_compilers_refused(an_compilers *c, int thread)
{
    compiler *own = &c->copy[thread % c->n - 1];
    pthread_mutex_lock(&own->lock);
    refused(own);
    pthread_mutex_unlock(&own->lock);
}

void an_compilers_note(an_device *d, const char *why)
{
    if (!d->note[0]) snprintf(d->note, sizeof d->note, "cuda: fewer kernels compile side by side: %.300s", why);
}

/* Handlers of the copy. */
static void take_back(const an_compilers *c, const compiler *own)
{
    const char *path = own->copy.lib ? an_dl_path(an_dl_sym(own->copy.lib, "nvrtcVersion")) : NULL;
    for (size_t i = 0; path && i < AN_COUNT(SIGNALS); i++) {
        struct sigaction now;
        const void *code = NULL;
        if (sigaction(SIGNALS[i], NULL, &now)) continue;
        memcpy(&code, &now.sa_handler, sizeof code);
        const char *from = code ? an_dl_path(code) : NULL;
        if (from && !strcmp(from, path)) sigaction(SIGNALS[i], &c->before[i], NULL);
    }
}

void an_compilers_close(an_device *d, an_compilers *c)
{
    if (!c) return;
    for (int i = 0; i < c->n - 1; i++) {
        compiler *own = &c->copy[i];
        if (own->asked && !own->works) an_compilers_note(d, own->why.text);
        take_back(c, own);
        if (!an_dl_copy_close(&own->copy)) d->copies_stay = true;
        pthread_mutex_destroy(&own->lock);
    }
    an_dl_close(c->builtins);
    free(c);
}
