/* compile.c: row programs → machine code, by the system's C compiler, kept on disk.
 *
 * Owns:      finding the compiler, the cache folder and its safety, the compile call, loading.
 * Does not:  decide what is compiled: the plan does.
 * Layout of the cache: KEY.so holds the programs compiled together; for each program PROGRAM.ref holds the name of its .so. Both are written to a temporary
 * name and renamed, so that a reader sees all or nothing. The folder must be a real directory, ours, and closed to others (0700), and the files ours and
 * not writable by others, or nothing in it is loaded: a shared object is code.
 */
#define _GNU_SOURCE        /* mkdtemp, realpath, lstat on Linux ... */
#define _DARWIN_C_SOURCE   /* ... and on macOS */
#include "base/map.h"
#include "base/os.h"
#include "base/text.h"
#include "device/cpu/cpu_internal.h"
#include "kernel/render.h"

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
    {"avx512bf16", "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mbmi2 -mprefer-vector-width=512"},
    {"avx512", "-mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mbmi2 -mprefer-vector-width=512"},
    {"avx2", "-mavx2 -mfma -mf16c -mbmi2"},
    {"neon", ""},
    {"portable", ""},
};
/* Results must not depend on the compiler: no contraction, no reassociation. The last two let loops with square roots and selects be vectorised. */
static const char common_flags[] = "-std=gnu17 -O2 -ftree-vectorize -ffp-contract=off -fno-math-errno -fno-trapping-math -fPIC -shared -nostdlib -w";

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
        if (n && snprintf(file, sizeof file, "%.*s/%s", (int)n, path, name) < (int)sizeof file && runnable(file, out, cap)) return true;
        path += n + (path[n] == ':');
    }
    return false;
}

static void find_compiler(an_compiler *c, const char *wish)
{
    const char *env = getenv("CC");
    const char *const names[] = {wish ? wish : env, wish ? NULL : "cc", wish ? NULL : "clang", wish ? NULL : "gcc"};
    if (wish && !strcmp(wish, "none")) {
        snprintf(c->why, sizeof c->why, "cpu: row programs are interpreted, as cc=none asks");
        return;
    }
    for (size_t i = 0; i < AN_COUNT(names); i++)
        if (names[i] && *names[i] && search_path(names[i], c->path, sizeof c->path)) return;
    c->path[0] = 0;
    if (wish) snprintf(c->why, sizeof c->why, "cpu: the C compiler \"%.100s\" cannot be run: row programs are interpreted, slower. Correct cc", wish);
    else snprintf(c->why, sizeof c->why, "cpu: no C compiler (tried $CC, cc, clang, gcc): row programs are interpreted, slower. Install one, or set cc");
}

/* NULL when the folder is safe to load code from, else why not. */
static const char *unsafe(const char *dir)
{
    struct stat st;
    if (lstat(dir, &st)) return "cannot be made";
    if (!S_ISDIR(st.st_mode)) return "is not a directory";
    if (st.st_uid != geteuid()) return "belongs to somebody else";
    if (st.st_mode & 077) return "is open to other users (its mode should be 0700)";
    return access(dir, W_OK | X_OK) ? "cannot be written" : NULL;
}

static void find_cache(an_compiler *c, const char *wish)
{
    const char *env = getenv("ANNEAL_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char parent[800] = "";
    if (wish || env) {
        snprintf(c->cache_dir, sizeof c->cache_dir, "%s", wish ? wish : env);
    } else {
#ifdef __APPLE__
        snprintf(parent, sizeof parent, "%s/Library/Caches", home ? home : "");
        (void)xdg;
#else
        if (xdg && *xdg) snprintf(parent, sizeof parent, "%s", xdg);
        else snprintf(parent, sizeof parent, "%s/.cache", home ? home : "");
#endif
        snprintf(c->cache_dir, sizeof c->cache_dir, "%s/anneal", parent);
        if (!home && !(xdg && *xdg)) c->cache_dir[0] = 0;
    }
    an_err e = {0};
    if (!c->cache_dir[0]) {
        snprintf(c->why_cache, sizeof c->why_cache, "cpu: no folder for compiled kernels (HOME is not set): they are compiled anew each time. Set ANNEAL_CACHE");
        return;
    }
    if (parent[0]) an_make_dirs(&e, parent, 0755);
    an_make_dirs(&e, c->cache_dir, 0700);
    const char *bad = unsafe(c->cache_dir);
    if (!bad) return;
    snprintf(c->why_cache, sizeof c->why_cache, "cpu: the kernel cache %.300s %s: nothing is loaded from it and kernels are compiled anew. Repair it, or set ANNEAL_CACHE", c->cache_dir, bad);
    c->cache_dir[0] = 0;
}

void an_compiler_find(an_compiler *c, const an_device_options *o, const char *isa)
{
    memset(c, 0, sizeof *c);
    c->timeout_s = 120;
    c->isa_flags = "";
    for (size_t i = 0; i < AN_COUNT(isa_flags); i++)
        if (!strcmp(isa, isa_flags[i].isa)) c->isa_flags = isa_flags[i].flags;
    find_compiler(c, o->cc);
    find_cache(c, o->cache_dir);
    struct stat st;
    char real[1024];
    if (!c->path[0] || !realpath(c->path, real) || stat(real, &st)) return;
    c->identity = an_hash(real, strlen(real), (uint64_t)st.st_mtime * 31 + (uint64_t)st.st_size);
    c->identity = an_hash(c->isa_flags, strlen(c->isa_flags), c->identity);
    c->identity = an_hash(common_flags, strlen(common_flags), c->identity);
    for (int part = 0; part < 2; part++) c->identity = an_hash(an_render_c_prelude(part), strlen(an_render_c_prelude(part)), c->identity);
}

/* ---------------------------------------------------------------------------------------------- the cache */

static uint64_t program_key(const an_compiler *c, const an_kernel *k) { return an_hash_u64(k->key, c->identity); }

static bool ours(const char *path)
{
    struct stat st;
    return !lstat(path, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 022);
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

static void symbol_name(uint64_t key, char *out) { snprintf(out, 32, "an_k_%016llx", (unsigned long long)key); }

/* The function of a program from the cache, or NULL: a missing, foreign or damaged entry is just not there. */
static an_row_fn look_up(an_err *err, const an_compiler *c, uint64_t key, an_library **libs, an_map *open_libs)
{
    char path[1024], name[64], symbol[32], *so = NULL;
    size_t n;
    an_err quiet = {0};
    snprintf(path, sizeof path, "%s/%016llx.ref", c->cache_dir, (unsigned long long)key);
    if (!ours(path) || an_file_read(&quiet, path, 40, &so, &n) != AN_OK) return NULL;
    bool wellformed = n == 19 && strspn(so, "0123456789abcdef") == 16 && !strcmp(so + 16, ".so");
    snprintf(name, sizeof name, "%.40s", so);
    free(so);
    if (!wellformed) return NULL;
    uint64_t lib_key = strtoull(name, NULL, 16), known;
    void *handle = an_map_get(open_libs, lib_key, &known) ? (void *)(uintptr_t)known : NULL;
    if (!handle) {
        snprintf(path, sizeof path, "%s/%s", c->cache_dir, name);
        if (!ours(path) || !(handle = an_dl_open(&quiet, path))) return NULL;
        if (remember_library(err, handle, libs) != AN_OK) return NULL;
        an_map_set(open_libs, lib_key, (uint64_t)(uintptr_t)handle); /* a failed insertion only opens it twice */
    }
    symbol_name(key, symbol);
    void *address = an_dl_sym(handle, symbol);
    an_row_fn fn = NULL;
    memcpy(&fn, &address, sizeof fn);
    return fn;
}

static an_status write_file(an_err *err, const char *path, const char *data, size_t n)
{
    an_save s;
    AN_TRY(an_save_begin(err, path, &s));
    an_status status = an_save_write(err, &s, data, n);
    if (status == AN_OK) return an_save_commit(err, &s);
    an_save_abort(&s);
    return status;
}

/* ---------------------------------------------------------------------------------------------- compiling */

typedef struct unit { /* programs compiled together */
    an_text source;
    uint64_t key;
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
    /* A call that is not inlined ends vectorisation, and compilers tire of inlining in large files. */
    an_text_puts(&u->source, "#define AN_FN static inline __attribute__((always_inline, unused))\n");
    an_text_puts(&u->source, an_render_c_prelude(0));
    an_text_puts(&u->source, an_render_c_prelude(1));
}

static void add_program(unit *u, const an_compiler *c, const an_kernel *k)
{
    char symbol[32];
    uint64_t key = program_key(c, k);
    symbol_name(key, symbol);
    an_render_c(k->u.row, symbol, false, &u->source);
    u->key = an_hash_u64(key, u->key);
}

static an_status run_compiler(an_err *err, const an_compiler *c, unit *units, int n_units, an_load_stats *stats, bool *ok)
{
    char flags[4][1024], output[2000];
    const char *argv[4][64];
    const char *const *argvs[4];
    int codes[4];
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
        argv[i][n++] = "-lm";
        argv[i][n] = NULL;
        argvs[i] = argv[i];
        AN_TRY(write_file(err, u->c_path, u->source.data, u->source.len));
    }
    an_status status = an_spawn_many(err, argvs, n_units, c->timeout_s, output, sizeof output, codes);
    for (int i = 0; i < n_units; i++) unlink(units[i].c_path);
    if (status != AN_OK) return status;
    for (int i = 0; i < n_units; i++) {
        if (codes[i] == 0) continue;
        output[strcspn(output, "\n")] = 0;
        snprintf(stats->note, sizeof stats->note, codes[i] == -1 ? "cpu: %s did not finish in %.0f s: row programs are interpreted, slower%s" : "cpu: %s failed (exit %.0f): row programs are interpreted, slower. It said: %.200s",
                 c->path, codes[i] == -1 ? c->timeout_s : codes[i], codes[i] == -1 ? "" : output);
        return AN_OK;
    }
    *ok = true;
    return AN_OK;
}

/* Loads what was compiled; into the cache when there is one. */
static an_status take_unit(an_err *err, const an_compiler *c, unit *u, const an_plan *p, const bool *missing, an_row_fn *fn, an_library **libs)
{
    an_err quiet = {0};
    char path[1024];
    snprintf(path, sizeof path, "%s", u->so_path);
    if (c->cache_dir[0]) {
        snprintf(path, sizeof path, "%s/%s", c->cache_dir, u->so_name);
        chmod(u->so_path, 0700);
        if (rename(u->so_path, path)) snprintf(path, sizeof path, "%s", u->so_path);
    }
    void *handle = an_dl_open(err, path);
    if (!handle) return err->code;
    AN_TRY(remember_library(err, handle, libs));
    for (int k = 0; k < p->n_kernels; k++) {
        char symbol[32], ref[1024];
        if (!missing[k] || fn[k]) continue;
        uint64_t key = program_key(c, &p->kernel[k]);
        symbol_name(key, symbol);
        void *address = an_dl_sym(handle, symbol);
        if (!address) continue;
        memcpy(&fn[k], &address, sizeof fn[k]);
        snprintf(ref, sizeof ref, "%s/%016llx.ref", c->cache_dir, (unsigned long long)key);
        if (c->cache_dir[0]) write_file(&quiet, ref, u->so_name, strlen(u->so_name)); /* a full disk costs only a compile next time */
    }
    return AN_OK;
}

static an_status compile_missing(an_err *err, const an_compiler *c, int jobs, const an_plan *p, const bool *missing, int n, an_row_fn *fn, an_library **libs, an_load_stats *stats)
{
    unit units[4];
    memset(units, 0, sizeof units);
    int n_units = AN_MAX(1, AN_MIN(AN_MIN(jobs, 4), n / 3)), at = 0;
    char work[1000];
    an_err quiet = {0};
    if (c->cache_dir[0]) snprintf(work, sizeof work, "%s/work-XXXXXX", c->cache_dir);
    else snprintf(work, sizeof work, "%s/anneal-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(work)) {
        snprintf(stats->note, sizeof stats->note, "cpu: no folder to compile in (%.300s: %s): row programs are interpreted, slower", work, strerror(errno));
        return AN_OK;
    }
    for (int i = 0; i < n_units; i++) begin_unit(&units[i]);
    for (int k = 0; k < p->n_kernels; k++) {
        bool twice = false; /* programs that differ in extents alone have one text */
        for (int j = 0; j < k; j++) twice |= missing[j] && p->kernel[j].key == p->kernel[k].key;
        if (missing[k] && !twice) add_program(&units[at++ % n_units], c, &p->kernel[k]);
    }
    bool ok = true;
    for (int i = 0; i < n_units; i++) {
        unit *u = &units[i];
        ok &= !u->source.failed;
        snprintf(u->so_name, sizeof u->so_name, "%016llx.so", (unsigned long long)u->key);
        ok &= snprintf(u->c_path, sizeof u->c_path, "%s/%d.c", work, i) < (int)sizeof u->c_path;
        ok &= snprintf(u->so_path, sizeof u->so_path, "%s/%d.so", work, i) < (int)sizeof u->so_path;
    }
    an_status status = ok ? AN_OK : an_fail_nomem(err, "kernel source", 0);
    bool compiled = false;
    if (status == AN_OK && run_compiler(&quiet, c, units, n_units, stats, &compiled) != AN_OK)
        snprintf(stats->note, sizeof stats->note, "%.300s: row programs are interpreted, slower", quiet.text);
    for (int i = 0; i < n_units && status == AN_OK && compiled; i++) status = take_unit(err, c, &units[i], p, missing, fn, libs);
    for (int i = 0; i < n_units; i++) {
        unlink(units[i].so_path);
        an_text_free(&units[i].source);
    }
    rmdir(work);
    return status;
}

an_status an_compile_plan(an_err *err, const an_compiler *c, int jobs, const an_plan *p, an_row_fn *fn, an_library **libs, an_load_stats *stats)
{
    bool *missing = calloc((size_t)p->n_kernels + 1, sizeof *missing);
    an_map open_libs = {0};
    if (!missing) return an_fail_nomem(err, "loading kernels", (size_t)p->n_kernels);
    double start = an_seconds();
    int n = 0, programs = 0;
    for (int k = 0; k < p->n_kernels; k++) {
        if (p->kernel[k].kind != AN_KERNEL_ROW || !p->kernel[k].text) continue;
        programs++;
        if (c->path[0] && c->cache_dir[0]) fn[k] = look_up(err, c, program_key(c, &p->kernel[k]), libs, &open_libs);
        if (fn[k]) stats->cached++;
        else if (c->path[0]) missing[k] = true, n++;
    }
    an_map_free(&open_libs);
    an_status status = n ? compile_missing(err, c, jobs, p, missing, n, fn, libs, stats) : AN_OK;
    int have = 0;
    for (int k = 0; k < p->n_kernels; k++) have += fn[k] != NULL;
    stats->compiled = have - stats->cached;
    stats->interpreted = programs - have;
    stats->compile_ms = (an_seconds() - start) * 1e3;
    if (!c->path[0] && programs) snprintf(stats->note, sizeof stats->note, "%s", c->why);
    else if (!stats->note[0] && c->why_cache[0]) snprintf(stats->note, sizeof stats->note, "%s", c->why_cache);
    free(missing);
    return status;
}
