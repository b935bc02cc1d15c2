/* nvrtc.c: compiles kernel texts to machine code for this GPU with NVRTC, and keeps the result on disk.
 *
 * Owns:      the compiler's options, the threads it runs on, the cache's entries, modules.
 * Does not:  decide what is compiled (lower_launches.c passes the texts of a plan, each once), or how many compilers there
 *            are (compilers.c).
 *
 * An entry of the cache is KEY.cubin: a line "anneal cubin CHECK HASH\n", then the code. KEY and CHECK are two hashes of
 * (text, architecture, options, NVRTC's version and build); HASH is that of the code. An entry that does not match is
 * ignored. The driver checks what it loads, so a damaged file does no harm.
 */
#include "base/map.h"
#include "platform/platform.h"
#include "platform/thread_pool.h"
#include "device/kernel_cache.h"
#include "device/cuda/cuda_internal.h"
#include "codegen/used_functions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD_BYTES = 13 + 16 + 1 + 16 + 1 };

typedef struct options {
    const char *flag[6];
    int n;
    char arch[48];
    bool ptx;
} options;

/* Machine code if NVRTC knows this GPU, else PTX of the newest architecture that it knows, which the driver translates. */
static void options_for(const an_device *d, bool fmad, bool arch_specific, options *out)
{
    int n = 0, known[64] = {0}, best = 0;
    bool exact = false;
    if (!d->nvrtc.n_archs(&n) && n <= 64 && !d->nvrtc.archs(known))
        for (int i = 0; i < n; i++) {
            exact |= known[i] == d->arch;
            if (known[i] <= d->arch) best = AN_MAX(best, known[i]);
        }
    out->ptx = !exact && best > 0;
    snprintf(out->arch, sizeof out->arch, "--gpu-architecture=%s_%d%s", out->ptx ? "compute" : "sm",
             out->ptx ? best : d->arch, arch_specific ? "a" : "");
    out->flag[0] = out->arch;
    out->flag[1] = "--std=c++17";
    out->flag[2] = fmad ? "--fmad=true" : "--fmad=false"; /* contraction changes bits */
    out->flag[3] = "--ftz=true"; /* subnormals are zeros, as on the CPU in exact mode; elsewhere it saves time */
    out->n = 4;
    /* the front end does not declare the run-time library, textures and surfaces; the code is the same */
    if (d->nvrtc.major > 12 || (d->nvrtc.major == 12 && d->nvrtc.minor >= 8)) out->flag[out->n++] = "--minimal";
}

static void key_of(const an_device *d, an_cuda_module *u)
{
    options o;
    options_for(d, u->fmad, u->arch_specific, &o);
    uint64_t how = an_hash_u64((uint64_t)d->nvrtc.major << 32 | (uint64_t)d->nvrtc.minor, 1);
    how = an_hash_u64(d->nvrtc.build, how); /* a library in its place, of the same version, has entries of its own */
    for (int i = 0; i < o.n; i++) how = an_hash(o.flag[i], strlen(o.flag[i]), how);
    u->key = an_hash(u->text, strlen(u->text), how);
    u->check = an_hash(u->text, strlen(u->text), how + 1);
}

/* ---------------------------------------------------------------------------------------------- the cache */

static bool path_of(const an_device *d, const an_cuda_module *u, char *out, size_t capacity)
{
    if (!d->cache_dir[0]) return false;
    return snprintf(out, capacity, "%s/%016llx.cubin", d->cache_dir, (unsigned long long)u->key) < (int)capacity;
}

static void head_of(const an_cuda_module *u, char out[HEAD_BYTES + 1])
{
    snprintf(out, HEAD_BYTES + 1, "anneal cubin %016llx %016llx\n", (unsigned long long)u->check,
             (unsigned long long)an_hash(u->image, u->image_bytes, u->image_bytes));
}

static void look_up(const an_device *d, an_cuda_module *u)
{
    char path[1024], head[HEAD_BYTES + 1], *file = NULL;
    size_t n;
    an_err quiet = {0};
    if (!path_of(d, u, path, sizeof path) || !an_cache_ours(path) || an_file_read(&quiet, path, 0, &file, &n) != AN_OK)
        return;
    if (n > HEAD_BYTES) {
        u->image = file + HEAD_BYTES;
        u->image_bytes = n - HEAD_BYTES;
        head_of(u, head);
        u->image = NULL;
        if (!memcmp(head, file, HEAD_BYTES)) {
            memmove(file, file + HEAD_BYTES, n - HEAD_BYTES + 1); /* and the NUL behind it */
            u->image = file;
            u->cached = true;
            return;
        }
    }
    u->image_bytes = 0;
    free(file);
}

static void keep(const an_device *d, const an_cuda_module *u)
{
    char path[1024], head[HEAD_BYTES + 1];
    an_err quiet = {0}; /* a full disk costs only a compile next time */
    char *file = path_of(d, u, path, sizeof path) ? malloc(HEAD_BYTES + u->image_bytes) : NULL;
    if (!file) return;
    head_of(u, head);
    memcpy(file, head, HEAD_BYTES);
    memcpy(file + HEAD_BYTES, u->image, u->image_bytes);
    an_file_write_losable(&quiet, path, file, HEAD_BYTES + u->image_bytes);
    free(file);
}

/* ---------------------------------------------------------------------------------------------- compiling */

typedef struct job {
    an_device *d;
    an_cuda_module **module;
    an_compilers *compilers;
} job;

static char *log_of(const an_nvrtc *c, nvrtc_program p)
{
    size_t n = 0;
    char *log = !c->log_bytes(p, &n) ? calloc(n + 1, 1) : NULL;
    if (log) c->log(p, log);
    return log;
}

static void compile_with(const an_nvrtc *c, const an_device *d, an_cuda_module *u, const char *text)
{
    options o;
    nvrtc_program p = NULL;
    options_for(d, u->fmad, u->arch_specific, &o);
    if (c->program_new(&p, text, "anneal.cu", 0, NULL, NULL)) return;
    if (c->compile(p, o.n, o.flag)) {
        free(u->log);
        u->log = log_of(c, p);
    } else {
        size_t n = 0;
        cu_result r = o.ptx ? c->ptx_bytes(p, &n) : c->cubin_bytes(p, &n);
        char *image = !r && n ? calloc(n + 1, 1) : NULL;
        if (image && !(o.ptx ? c->ptx(p, image) : c->cubin(p, image))) {
            u->image = image;
            u->image_bytes = n;
        } else {
            free(image);
        }
    }
    c->program_free(&p);
}

bool an_nvrtc_compiles(const an_device *d, const an_nvrtc *c, const char *text)
{
    an_cuda_module u = {.fmad = true};
    compile_with(c, d, &u, text);
    const bool made = u.image != NULL;
    free(u.image);
    free(u.log);
    return made;
}

static void compile_one(void *user, int64_t task, int thread)
{
    const job *j = user;
    an_cuda_module *u = j->module[task];
    const an_nvrtc *own = &j->d->nvrtc, *copy = an_compilers_get(j->compilers, thread);
    an_text used = {0};
    const bool shorter = an_used_functions(u->text, &used);
    const char *text = shorter ? used.data : u->text;
    if (copy) compile_with(copy, j->d, u, text);
    const bool refused = copy && !u->image;
    if (!u->image) compile_with(own, j->d, u, text);
    if (refused && u->image) an_compilers_refused(j->compilers, thread);
    if (!u->image && shorter) compile_with(own, j->d, u, u->text); /* whose lines the log numbers */
    if (u->image) keep(j->d, u);
    an_text_free(&used);
}

/* The first line of a log with the word "error", else its first line. */
static void said(char *log, char *out, size_t capacity)
{
    char *line = log ? strstr(log, "error") : NULL;
    while (line && line > log && line[-1] != '\n') line--;
    if (!line) line = log;
    snprintf(out, capacity, "%.*s", line ? (int)strcspn(line, "\n") : 7, line ? line : "nothing");
}

/* Long texts first: they take longest, and the last should be short. */
static int compare_length(const void *a, const void *b)
{
    const an_cuda_module *const *x = a, *const *y = b;
    const size_t m = strlen((*x)->text), n = strlen((*y)->text);
    return m != n ? (m < n) - (m > n) : (*x > *y) - (*x < *y);
}

static an_status compile_missing(an_err *err, an_device *d, an_cuda_module **missing, int n)
{
    an_pool *pool = NULL;
    AN_TRY(an_pool_open(err, AN_MIN(an_cores_available(), n), &pool));
    job j = {.d = d, .module = missing, .compilers = an_compilers_open(d, n, an_pool_threads(pool))};
    qsort(missing, (size_t)n, sizeof *missing, compare_length);
    an_pool_run(pool, n, compile_one, &j);
    an_pool_close(pool);
    an_compilers_close(d, j.compilers);
    int64_t removed;
    an_cache_trim(d->cache_dir, an_cache_limit(), &removed);
    for (int i = 0; i < n; i++) {
        char line[300];
        if (missing[i]->image) continue;
        said(missing[i]->log, line, sizeof line);
        return an_fail(err, AN_E_DEVICE, "cuda: NVRTC %d.%d (%s) cannot compile %s for sm_%d; it said: %s",
                       d->nvrtc.major, d->nvrtc.minor, d->nvrtc.path, missing[i]->what, d->arch, line);
    }
    return AN_OK;
}

an_status an_cuda_compile(an_err *err, an_device *d, an_cuda_module *module, int n, an_load_stats *stats)
{
    double start = an_seconds();
    int n_missing = 0;
    an_cuda_module **missing = calloc((size_t)n + 1, sizeof *missing);
    if (!missing) return an_fail_nomem(err, "the list of kernels to compile", (size_t)n * sizeof *missing);
    for (int i = 0; i < n; i++) {
        key_of(d, &module[i]);
        look_up(d, &module[i]);
        if (!module[i].image) missing[n_missing++] = &module[i];
    }
    an_status status = n_missing ? compile_missing(err, d, missing, n_missing) : AN_OK;
    free(missing);
    for (int i = 0; i < n && status == AN_OK; i++) {
        status = an_cuda_check(err, d, d->cu.module_load(&module[i].handle, module[i].image),
                               "loading the kernel of %s", module[i].what);
        free(module[i].image);
        free(module[i].text);
        module[i].image = module[i].text = NULL;
    }
    stats->compiled += n_missing;
    stats->cached += n - n_missing;
    stats->compile_ms += (an_seconds() - start) * 1e3;
    return status;
}

void an_cuda_module_free(an_device *d, an_cuda_module *u)
{
    if (u->handle && !d->lost) d->cu.module_free(u->handle);
    free(u->text);
    free(u->image);
    free(u->log);
    *u = (an_cuda_module){0};
}
