/* compilers.c: several compilers side by side. NVRTC reads texts one at a time, under a lock of the library; a copy of the library has
 * a lock of its own. The file is copied to memory, where that has room for it, and is gone when the texts are compiled.
 *
 * Owns:      how many compilers there are (ANNEAL_CUDA_COMPILERS), the copies, which thread uses which.
 * Does not:  compile: nvrtc.c does. A text that a copy refuses is compiled again by the library itself, so that a copy that
 *            does not work costs time alone, and what is said of an error in a text is the library's.
 */
#include "device/cuda/cuda_internal.h"
#include "platform/dynamic_library.h"
#include "platform/platform.h"
#include "platform/system_info.h"
#include "base/text.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_COMPILERS = 8,
    TEXTS_EACH = 8,     /* making a copy takes as long as compiling two to four */
    THREADS_EACH = 2,   /* the lock is held for a fifth to all of a text's time, by NVRTC's version */
    SHARE_OF_MEMORY = 4 /* the copies may take a fourth of what is free */
};

typedef struct compiler {
    pthread_mutex_t lock;
    bool asked, works;
    an_dl_copy copy;
    an_nvrtc api;
    an_err why; /* it does not work */
} compiler;

struct an_compilers {
    const an_nvrtc *library;
    void *builtins;
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
    const uint64_t room = free_memory(), most = room / SHARE_OF_MEMORY / each;
    if (most == 0)
        snprintf(why, why_bytes, "a copy takes %s, and %s are free", an_bytes_text((double)each, a),
                 an_bytes_text((double)room, b));
    return (int)AN_MIN(most + 1, (uint64_t)wanted);
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
    c->library = &d->nvrtc;
    c->n = count(d, n_texts, n_threads, why, sizeof why);
    if (*why) an_compilers_note(d, why);
    for (int i = 0; i < c->n - 1; i++) pthread_mutex_init(&c->copy[i].lock, NULL);
    if (c->n > 1) c->builtins = an_nvrtc_builtins(c->library);
    return c;
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
    }
    const bool works = own->works;
    pthread_mutex_unlock(&own->lock);
    return works ? &own->api : NULL;
}

void an_compilers_refused(an_compilers *c, int thread)
{
    compiler *own = &c->copy[thread % c->n - 1];
    pthread_mutex_lock(&own->lock);
    if (own->works) an_fail(&own->why, AN_E_ENV, "a copy does not compile what the library does");
    own->works = false;
    pthread_mutex_unlock(&own->lock);
}

void an_compilers_note(an_device *d, const char *why)
{
    if (!d->note[0]) snprintf(d->note, sizeof d->note, "cuda: NVRTC compiles one kernel at a time: %.300s", why);
}

void an_compilers_close(an_device *d, an_compilers *c)
{
    if (!c) return;
    for (int i = 0; i < c->n - 1; i++) {
        compiler *own = &c->copy[i];
        if (own->asked && !own->works) an_compilers_note(d, own->why.text);
        if (!an_dl_copy_close(&own->copy)) d->copies_stay = true;
        pthread_mutex_destroy(&own->lock);
    }
    an_dl_close(c->builtins);
    free(c);
}
