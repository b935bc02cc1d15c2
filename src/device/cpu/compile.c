/* compile.c: compiles loop kernels to machine code with the system's C compiler, and keeps the result on disk.
 *
 * Owns:      finding the compiler, running it, loading what it made, the entries of the cache folder.
 * Does not:  decide what is compiled: the plan does. Without a compiler the kernels are interpreted (interpreter.c).
 *
 * The cache has two kinds of files (KEY and KERNEL are hashes in hexadecimal). A kernel's key covers its rendered text and
 * compiler_key: the compiler's path, time and size, the flags of the instruction set and the common ones, the prelude
 * (an_compiler_find). Whatever of these changes, another file is compiled: entries are never invalidated, only grow old.
 *
 *     KEY.so        the shared object of the kernels that were compiled together
 *     KERNEL.ref    one for each kernel: "KEY.so HASH", the file that has it, and the hash of that file's bytes
 *
 * Both are written under a temporary name and renamed, so a reader sees a complete file or none. The hash is checked
 * before a file is loaded, because loading a damaged one may crash the process. A shared object is code: nothing is
 * loaded from a folder or a file that another user could have written (kernel_cache.h).
 */
#define _GNU_SOURCE      /* mkdtemp, realpath, lstat on Linux ... */
#define _DARWIN_C_SOURCE /* ... and on macOS */
#include "base/map.h"
#include "platform/dynamic_library.h"
#include "platform/platform.h"
#include "platform/scratch.h"
#include "base/text.h"
#include "device/kernel_cache.h"
#include "device/cpu/cpu_internal.h"
#include "codegen/render.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *isa, *flags;
} isa_flags[] = {
    {"amx", "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mbmi2 -mprefer-vector-width=512"},
    {"avx512bf16", "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mbmi2 -mprefer-vector-width=512"},
    {"avx512", "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mbmi2 -mprefer-vector-width=512"},
    {"avx2", "-mavx2 -mfma -mf16c -mbmi2"},
    {"neon", ""},
    {"portable", ""},
    {"amx_emulated", ""},
};
/* A library that is built with sanitizers (the build defines AN_SANITIZE as address,undefined ...) compiles its kernels
 * with them too. */
#ifdef AN_SANITIZE
#define TEXT_OF(...)    #__VA_ARGS__
#define SANITIZE(...)   " -fno-sanitize-recover=all -fno-omit-frame-pointer -fsanitize=" TEXT_OF(__VA_ARGS__)
#define KERNEL_SANITIZE SANITIZE(AN_SANITIZE)
#else
#define KERNEL_SANITIZE ""
#endif
/* Results must not depend on the compiler: no contraction, no reassociation. -fno-math-errno and -fno-trapping-math let
 * loops with square roots and selects be vectorised. -O1: what -O2 adds to it costs gcc a quarter of its time, and kernels
 * of vectorised loops gain nothing (docs/speed-log.md). */
static const char common_flags[] = "-std=gnu17 -O1 -ftree-vectorize -ffp-contract=off -fno-math-errno "
                                   "-fno-trapping-math -fPIC -shared -nostdlib -w" KERNEL_SANITIZE;
/* What a kernel may call. macOS links nothing without its system library, which has the mathematics too. */
#ifdef __APPLE__
static const char kernel_library[] = "-lSystem";
#else
static const char kernel_library[] = "-lm";
#endif

/* ---------------------------------------------------------------------------------------------- finding */

static bool runnable(const char *path, char *out, size_t cap)
{
    struct stat st;
    if (stat(path, &st) || !S_ISREG(st.st_mode) || access(path, X_OK)) return false;
    return snprintf(out, cap, "%s", path) < (int)cap;
}

static bool search_path(const char *name, char *out, size_t cap)
{
    if (strchr(name, '/')) return runnable(name, out, cap);
    const char *path = getenv("PATH");
    char file[700];
    while (path && *path) {
        size_t n = strcspn(path, ":");
        if (n && snprintf(file, sizeof file, "%.*s/%s", (int)n, path, name) < (int)sizeof file &&
            runnable(file, out, cap))
            return true;
        path += n + (path[n] == ':');
    }
    return false;
}

/* On macOS /usr/bin/cc exists without the command line tools: run then, it opens a window that offers to install them.
 * `xcode-select -p` says without one whether they are there. */
bool an_compiler_is_stub(const char *compiler, const char *xcode_select)
{
    const char *name = strrchr(xcode_select, '/');
    const size_t folder = name ? (size_t)(name - xcode_select) : 0;
    char said[1100] = "";
    int code = -1;
    an_err quiet = {0};
    if (!folder || strncmp(compiler, xcode_select, folder + 1) || strchr(compiler + folder + 1, '/')) return false;
    if (access(xcode_select, X_OK)) return false;
    return an_spawn(&quiet, (const char *const[]){xcode_select, "-p", NULL}, 10, said, sizeof said, &code) != AN_OK ||
           code != 0;
}

static void find_compiler(an_compiler *c, const char *wish)
{
    const char *env = getenv("CC");
    bool stub = false;
    const char *const names[] = {wish ? wish : env, wish ? NULL : "cc", wish ? NULL : "clang", wish ? NULL : "gcc"};
    if (wish && !strcmp(wish, "none")) {
        snprintf(c->why, sizeof c->why, "cpu: loop kernels are interpreted, as cc=none asks");
        return;
    }
    for (size_t i = 0; i < AN_COUNT(names); i++)
        if (names[i] && *names[i] && search_path(names[i], c->path, sizeof c->path)) {
            if (!an_compiler_is_stub(c->path, "/usr/bin/xcode-select")) return;
            stub = true;
        }
    c->path[0] = 0;
    if (stub) {
        snprintf(c->why, sizeof c->why,
                 "cpu: no C compiler: the command line tools of macOS are not installed: loop kernels are interpreted, "
                 "slower. Run xcode-select --install, or set cc");
        return;
    }
    if (wish)
        snprintf(c->why, sizeof c->why,
                 "cpu: the C compiler \"%.100s\" cannot be run: loop kernels are interpreted, slower. Correct cc",
                 wish);
    else
        snprintf(c->why, sizeof c->why,
                 "cpu: no C compiler (tried $CC, cc, clang, gcc): loop kernels are interpreted, slower. Install one, "
                 "or set cc");
}

/* Time limit of the compiler in seconds: ANNEAL_CC_TIMEOUT, or 120. */
static double timeout_of(const char *text)
{
    double seconds = text ? strtod(text, NULL) : 0;
    return seconds > 0 && seconds < 1e6 ? seconds : 120;
}

void an_compiler_find(an_compiler *c, const an_device_options *o, const char *isa)
{
    memset(c, 0, sizeof *c);
    c->timeout_s = timeout_of(getenv("ANNEAL_CC_TIMEOUT"));
    c->isa_flags = "";
    for (size_t i = 0; i < AN_COUNT(isa_flags); i++)
        if (!strcmp(isa, isa_flags[i].isa)) c->isa_flags = isa_flags[i].flags;
    find_compiler(c, o->cc);
    an_cache_find("cpu", o->cache_dir, c->cache_dir, sizeof c->cache_dir, c->why_cache, sizeof c->why_cache);
    struct stat st;
    char *real = c->path[0] ? realpath(c->path, NULL) : NULL; /* a buffer of ours would have to hold PATH_MAX bytes */
    if (!real || stat(real, &st)) {
        free(real);
        return;
    }
    c->compiler_key = an_hash(real, strlen(real), (uint64_t)st.st_mtime * 31 + (uint64_t)st.st_size);
    free(real);
    c->compiler_key = an_hash(c->isa_flags, strlen(c->isa_flags), c->compiler_key);
    c->compiler_key = an_hash(common_flags, strlen(common_flags), c->compiler_key);
    for (int part = 0; part < 2; part++)
        c->compiler_key = an_hash(an_render_c_prelude(part), strlen(an_render_c_prelude(part)), c->compiler_key);
}

/* ---------------------------------------------------------------------------------------------- the cache */

static uint64_t program_key(const an_compiler *c, const an_kernel *k)
{
    return an_hash_u64(k->key, c->compiler_key);
}

static an_status remember_library(an_err *err, void *handle, an_library **libs)
{
    an_library *l = malloc(sizeof *l);
    if (!l) {
        an_dl_close(handle);
        return an_fail_nomem(err, "a loaded kernel file", sizeof *l);
    }
    *l = (an_library){handle, *libs};
    *libs = l;
    return AN_OK;
}

static void symbol_name(uint64_t key, char *out)
{
    snprintf(out, 32, "an_k_%016llx", (unsigned long long)key);
}

/* The hash of a file that is safe to load; 0: it does not exist, is not safe, or cannot be read. */
static uint64_t file_hash(const char *path)
{
    an_err quiet = {0};
    an_map_file f;
    if (!an_cache_ours(path) || an_file_map(&quiet, path, &f) != AN_OK) return 0;
    uint64_t hash = an_hash(f.data, f.bytes, f.bytes);
    an_file_unmap(&f);
    return hash;
}

/* Reads KERNEL.ref. False: it is missing, unsafe or damaged. */
static bool read_ref(const an_compiler *c, uint64_t key, uint64_t *lib_key, uint64_t *hash)
{
    enum { REF_BYTES = 16 + 4 + 16 };
    char path[1024], *ref = NULL, *end;
    size_t n;
    an_err quiet = {0};
    snprintf(path, sizeof path, "%s/%016llx.ref", c->cache_dir, (unsigned long long)key);
    if (!an_cache_ours(path) || an_file_read(&quiet, path, 40, &ref, &n) != AN_OK) return false;
    bool good = n == REF_BYTES && strspn(ref, "0123456789abcdef") == 16 && !strncmp(ref + 16, ".so ", 4);
    *lib_key = good ? strtoull(ref, &end, 16) : 0;
    good = good && strspn(ref + 20, "0123456789abcdef") == 16;
    *hash = good ? strtoull(ref + 20, &end, 16) : 0;
    free(ref);
    return good;
}

/* The function of a kernel from the cache, or NULL: an unsafe or damaged entry counts as missing. */
static an_status look_up(an_err *err, const an_compiler *c, uint64_t key, an_library **libs, an_map *open_libs,
                         an_loop_fn *out)
{
    char path[1024], symbol[32];
    uint64_t lib_key, hash, known;
    an_err quiet = {0};
    if (!read_ref(c, key, &lib_key, &hash)) return AN_OK;
    void *handle = an_map_get(open_libs, lib_key, &known) ? (void *)(uintptr_t)known : NULL;
    if (!handle) {
        snprintf(path, sizeof path, "%s/%016llx.so", c->cache_dir, (unsigned long long)lib_key);
        if (hash == 0 || file_hash(path) != hash || !(handle = an_dl_open(&quiet, path))) return AN_OK;
        AN_TRY(remember_library(err, handle, libs));
        if (!an_map_set(open_libs, lib_key, (uint64_t)(uintptr_t)handle))
            return an_fail_nomem(err, "the table of loaded kernel files", 0);
    }
    symbol_name(key, symbol);
    void *address = an_dl_sym(handle, symbol);
    memcpy(out, &address, sizeof *out);
    return AN_OK;
}

/* ---------------------------------------------------------------------------------------------- compiling */

enum { UNITS_MAX = 8 }; /* compilers beside each other: each reads the prelude, 40 ms */

typedef struct unit { /* a translation unit: kernels compiled together */
    an_text source;
    uint64_t key, work; /* work: about what the compiler has to do */
    char c_path[1024], so_path[1024], so_name[32];
} unit;

/* Splits "-a -b" into argv entries, in place. */
static int split_flags(char *flags, const char **argv, int n)
{
    for (char *f = strtok(flags, " "); f; f = strtok(NULL, " ")) argv[n++] = f;
    return n;
}

static void begin_unit(unit *u)
{
    /* A call that is not inlined prevents vectorisation, and compilers stop inlining in large files. */
    an_text_puts(&u->source, "#define AN_FN static inline __attribute__((always_inline, unused))\n");
    an_text_puts(&u->source, an_render_c_prelude(0));
    an_text_puts(&u->source, an_render_c_prelude(1));
}

/* About how long gcc takes for a kernel: its loops, its sums, which are folded by a tree, its calculations. */
static uint64_t work_of(const an_loop_kernel *p)
{
    uint64_t work = 20 + 10 * (uint64_t)p->n_phases;
    for (int i = 0; i < p->n_ins; i++)
        work += p->ins[i].kind == AN_INS_REDUCE ? 22
                : p->ins[i].kind == AN_INS_ELEM ? 2 * (uint64_t)an_op_cost((an_op)p->ins[i].op)
                                                : 1;
    return work;
}

static void add_program(unit *u, const an_compiler *c, const an_kernel *k)
{
    char symbol[32];
    uint64_t key = program_key(c, k);
    symbol_name(key, symbol);
    an_render_c(k->u.loop, symbol, false, &u->source);
    u->key = an_hash_u64(key, u->key);
    u->work += work_of(k->u.loop);
}

/* The unit that a kernel is added to: the one that has least to compile. */
static unit *least_of(unit *units, int n_units)
{
    unit *least = units;
    for (int i = 1; i < n_units; i++)
        if (units[i].work < least->work) least = &units[i];
    return least;
}

/* The first line of a compiler's output, printable, at most 200 characters. */
static const char *first_line(char *output)
{
    size_t n = strcspn(output, "\r\n");
    output[AN_MIN(n, 200)] = 0;
    for (char *p = output; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 127) *p = '?';
    return *output ? output : "nothing";
}

static an_status run_compiler(an_err *err, const an_compiler *c, unit *units, int n_units, an_load_stats *stats,
                              bool *ok)
{
    char flags[UNITS_MAX][1024], output[UNITS_MAX][2000];
    const char *argv[UNITS_MAX][64];
    const char *const *argvs[UNITS_MAX];
    int codes[UNITS_MAX];
    *ok = false;
    for (int i = 0; i < n_units; i++) {
        unit *u = &units[i];
        int n = 0;
        argv[i][n++] = c->path;
        snprintf(flags[i], sizeof flags[i], "%s %s", common_flags, c->isa_flags);
        n = split_flags(flags[i], argv[i], n);
        argv[i][n++] = "-o";
        argv[i][n++] = u->so_path;
        argv[i][n++] = u->c_path;
        argv[i][n++] = kernel_library;
        argv[i][n] = NULL;
        argvs[i] = argv[i];
        AN_TRY(an_file_write_losable(err, u->c_path, u->source.data, u->source.len));
    }
    an_status status = an_spawn_many(err, argvs, n_units, c->timeout_s, output[0], sizeof output[0], codes);
    for (int i = 0; i < n_units; i++) unlink(units[i].c_path);
    if (status != AN_OK) return status;
    for (int i = 0; i < n_units; i++) {
        if (codes[i] == 0) continue;
        if (codes[i] == -1)
            snprintf(stats->note, sizeof stats->note,
                     "cpu: %.200s did not finish in %.0f s: loop kernels are interpreted, slower. Set "
                     "ANNEAL_CC_TIMEOUT, or another cc",
                     c->path, c->timeout_s);
        else if (codes[i] > 128)
            snprintf(stats->note, sizeof stats->note,
                     "cpu: %.200s was killed by signal %d: loop kernels are interpreted, slower. Try again, or set "
                     "another cc",
                     c->path, codes[i] - 128);
        else
            snprintf(stats->note, sizeof stats->note,
                     "cpu: %.150s failed (exit code %d): loop kernels are interpreted, slower. It said: %s", c->path,
                     codes[i], first_line(output[i]));
        return AN_OK;
    }
    *ok = true;
    return AN_OK;
}

/* Loads a compiled unit, from the cache folder when there is one. What cannot be loaded (a file system that is mounted
 * noexec, for instance) is interpreted. */
static an_status take_unit(an_err *err, const an_compiler *c, unit *u, const an_plan *p, const bool *missing,
                           an_loop_fn *fn, an_library **libs, an_load_stats *stats)
{
    an_err quiet = {0};
    char path[1024];
    bool cached = false;
    snprintf(path, sizeof path, "%s", u->so_path);
    chmod(path, 0700);
    uint64_t hash = file_hash(path);
    if (c->cache_dir[0]) {
        snprintf(path, sizeof path, "%s/%s", c->cache_dir, u->so_name);
        cached = !rename(u->so_path, path);
        if (!cached) snprintf(path, sizeof path, "%s", u->so_path);
    }
    void *handle = an_dl_open(&quiet, path);
    if (!handle) {
        snprintf(stats->note, sizeof stats->note,
                 "cpu: what %.100s compiled cannot be loaded: loop kernels are interpreted, slower (%.300s)", c->path,
                 quiet.text);
        return AN_OK;
    }
    AN_TRY(remember_library(err, handle, libs));
    for (int k = 0; k < p->n_kernels; k++) {
        char symbol[32], ref[1024], text[64];
        if (!missing[k] || fn[k]) continue;
        uint64_t key = program_key(c, &p->kernel[k]);
        symbol_name(key, symbol);
        void *address = an_dl_sym(handle, symbol);
        if (!address) continue;
        memcpy(&fn[k], &address, sizeof fn[k]);
        snprintf(ref, sizeof ref, "%s/%016llx.ref", c->cache_dir, (unsigned long long)key);
        int n = snprintf(text, sizeof text, "%s %016llx", u->so_name, (unsigned long long)hash);
        if (cached)
            an_file_write_losable(&quiet, ref, text, (size_t)n); /* a full disk costs only a compile next time */
    }
    return AN_OK;
}

static an_status compile_missing(an_err *err, const an_compiler *c, int jobs, const an_plan *p, const bool *missing,
                                 int n, an_loop_fn *fn, an_library **libs, an_load_stats *stats)
{
    unit units[UNITS_MAX];
    memset(units, 0, sizeof units);
    int n_units = AN_MAX(1, AN_MIN(AN_MIN(jobs, UNITS_MAX), n / 3));
    an_scratch work;
    an_err quiet = {0};
    if (an_scratch_open(&quiet, c->cache_dir[0] ? c->cache_dir : NULL, &work) != AN_OK) {
        snprintf(stats->note, sizeof stats->note,
                 "cpu: no folder to compile in (%.300s): loop kernels are interpreted, slower", quiet.text);
        return AN_OK;
    }
    for (int i = 0; i < n_units; i++) begin_unit(&units[i]);
    for (int k = 0; k < p->n_kernels; k++) {
        if (missing[k]) add_program(least_of(units, n_units), c, &p->kernel[k]);
    }
    bool ok = true;
    for (int i = 0; i < n_units; i++) {
        unit *u = &units[i];
        ok &= !u->source.failed;
        snprintf(u->so_name, sizeof u->so_name, "%016llx.so", (unsigned long long)u->key);
        ok &= snprintf(u->c_path, sizeof u->c_path, "%s/%d.c", work.path, i) < (int)sizeof u->c_path;
        ok &= snprintf(u->so_path, sizeof u->so_path, "%s/%d.so", work.path, i) < (int)sizeof u->so_path;
    }
    an_status status = ok ? AN_OK : an_fail_nomem(err, "kernel source", 0);
    bool compiled = false;
    if (status == AN_OK && run_compiler(&quiet, c, units, n_units, stats, &compiled) != AN_OK) {
        if (quiet.code == AN_E_NOMEM) status = an_fail(err, AN_E_NOMEM, "%s", quiet.text);
        snprintf(stats->note, sizeof stats->note, "%.300s: loop kernels are interpreted, slower", quiet.text);
    }
    for (int i = 0; i < n_units && status == AN_OK && compiled; i++)
        status = take_unit(err, c, &units[i], p, missing, fn, libs, stats);
    for (int i = 0; i < n_units; i++) an_text_free(&units[i].source);
    an_scratch_close(&work);
    int64_t removed;
    if (c->cache_dir[0]) an_cache_trim(c->cache_dir, an_cache_limit(), &removed);
    return status;
}

an_status an_compile_plan(an_err *err, const an_compiler *c, int jobs, const an_plan *p, an_loop_fn *fn,
                          an_library **libs, an_load_stats *stats)
{
    bool *missing = calloc((size_t)p->n_kernels + 1, sizeof *missing);
    an_map open_libs = {0};
    if (!missing) return an_fail_nomem(err, "loading kernels", (size_t)p->n_kernels);
    double start = an_seconds();
    int n = 0, programs = 0;
    an_status status = AN_OK;
    for (int k = 0; k < p->n_kernels && status == AN_OK; k++) {
        if (!p->kernel[k].text || an_kernel_first(p, k) != k) continue;
        programs++;
        if (c->path[0] && c->cache_dir[0])
            status = look_up(err, c, program_key(c, &p->kernel[k]), libs, &open_libs, &fn[k]);
        if (fn[k])
            stats->cached++;
        else if (c->path[0])
            missing[k] = true, n++;
    }
    an_map_free(&open_libs);
    if (n && status == AN_OK) status = compile_missing(err, c, jobs, p, missing, n, fn, libs, stats);
    int have = 0;
    for (int k = 0; k < p->n_kernels; k++) have += fn[k] != NULL;
    stats->compiled = have - stats->cached;
    stats->interpreted = programs - have;
    for (int k = 0; k < p->n_kernels; k++)
        if (p->kernel[k].text) fn[k] = fn[an_kernel_first(p, k)];
    stats->compile_ms = (an_seconds() - start) * 1e3;
    if (!c->path[0] && programs)
        snprintf(stats->note, sizeof stats->note, "%s", c->why);
    else if (!stats->note[0] && c->why_cache[0])
        snprintf(stats->note, sizeof stats->note, "%s", c->why_cache);
    free(missing);
    return status;
}
