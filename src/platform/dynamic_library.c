/* dynamic_library.c: see dynamic_library.h. */
#if !defined(_GNU_SOURCE) && defined(__linux__)
#define _GNU_SOURCE
#endif
#if !defined(_DARWIN_C_SOURCE) && defined(__APPLE__)
#define _DARWIN_C_SOURCE
#endif
#include "platform/dynamic_library.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/mman.h>
#include <sys/sendfile.h>
#endif

static void *open_as(an_err *err, const char *path, int mode)
{
    void *lib = dlopen(path, RTLD_NOW | mode);
    if (lib != NULL) return lib;
    const char *why = dlerror();
    an_fail(err, AN_E_ENV, "%s: cannot be loaded: %s; install it or name another", path, why ? why : "no reason given");
    return NULL;
}

void *an_dl_open(an_err *err, const char *path)
{
    return open_as(err, path, RTLD_LOCAL);
}

void *an_dl_open_global(an_err *err, const char *path)
{
    return open_as(err, path, RTLD_GLOBAL);
}

void *an_dl_sym(void *lib, const char *name)
{
    return dlsym(lib, name);
}

uint64_t an_dl_build(const void *address)
{
    Dl_info library;
    struct stat file;
    if (!dladdr(address, &library) || !library.dli_fname || stat(library.dli_fname, &file) != 0) return 0;
    return (uint64_t)file.st_mtime * 0x9E3779B97F4A7C15u ^ (uint64_t)file.st_size;
}

const char *an_dl_path(const void *address)
{
    Dl_info library;
    return dladdr(address, &library) ? library.dli_fname : NULL;
}

void an_dl_close(void *lib)
{
    if (lib != NULL) dlclose(lib);
}

/* ---- copies */

#ifdef __linux__
/* The file of the library at `address`, opened; -1: it is not known, or no file. */
static int file_of(const void *address, uint64_t *bytes)
{
    Dl_info library;
    struct stat st;
    *bytes = 0;
    if (!dladdr(address, &library) || !library.dli_fname) return -1;
    const int file = open(library.dli_fname, O_RDONLY | O_CLOEXEC);
    if (file >= 0 && !fstat(file, &st) && S_ISREG(st.st_mode)) {
        *bytes = (uint64_t)st.st_size;
        return file;
    }
    if (file >= 0) close(file);
    return -1;
}

uint64_t an_dl_copy_bytes(const void *address)
{
    uint64_t bytes;
    const int file = file_of(address, &bytes);
    if (file >= 0) close(file);
    return bytes;
}

/* A longer file than this limit would end the process, by a signal. */
static bool may_write(uint64_t bytes)
{
    struct rlimit limit;
    return !getrlimit(RLIMIT_FSIZE, &limit) && (limit.rlim_cur == RLIM_INFINITY || bytes <= (uint64_t)limit.rlim_cur);
}

/* The library's file as one in memory; -1, and errno. */
static int in_memory(const void *address)
{
    uint64_t bytes, done = 0;
    const int from = file_of(address, &bytes);
    errno = from < 0 ? ENOENT : EFBIG;
    const int to = from >= 0 && may_write(bytes) ? memfd_create("library", MFD_CLOEXEC) : -1;
    while (to >= 0 && done < bytes) {
        const ssize_t n = sendfile(to, from, NULL, bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = EIO;
        if (n <= 0) break;
        done += (uint64_t)n;
    }
    const int why = errno;
    if (from >= 0) close(from);
    if (to >= 0 && done < bytes) close(to);
    errno = why;
    return to >= 0 && done == bytes ? to : -1;
}

/* The process' number is in it: a library of that name may be there from before a fork, whose file is another one here. */
static void name_of(const an_dl_copy *c, char out[64])
{
    snprintf(out, 64, "/proc/%d/fd/%d", (int)getpid(), c->file);
}

an_status an_dl_copy_open(an_err *err, const void *address, an_dl_copy *out)
{
    char name[64];
    *out = (an_dl_copy){.file = in_memory(address)};
    if (out->file < 0) return an_fail(err, AN_E_ENV, "a library cannot be copied to memory: %s", strerror(errno));
    name_of(out, name);
    struct stat named, made; /* another /proc than this process' has other files */
    const bool found =
        !stat(name, &named) && !fstat(out->file, &made) && named.st_dev == made.st_dev && named.st_ino == made.st_ino;
    out->lib = found ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (out->lib) return AN_OK;
    const char *why = found ? dlerror() : "/proc is not this process'";
    an_fail(err, AN_E_ENV, "a library copied to memory cannot be loaded: %s", why ? why : "unknown");
    close(out->file);
    return AN_E_ENV;
}

bool an_dl_copy_close(an_dl_copy *c)
{
    char name[64];
    if (!c->lib) return true;
    name_of(c, name);
    dlclose(c->lib);
    void *still = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    if (still)
        dlclose(still); /* its name must not become another file's, so that the file stays open */
    else
        close(c->file);
    *c = (an_dl_copy){.file = -1};
    return !still;
}
#else
uint64_t an_dl_copy_bytes(const void *address)
{
    (void)address;
    return 0;
}

an_status an_dl_copy_open(an_err *err, const void *address, an_dl_copy *out)
{
    (void)address;
    *out = (an_dl_copy){.file = -1};
    return an_fail(err, AN_E_ENV, "libraries are copied on Linux alone");
}

bool an_dl_copy_close(an_dl_copy *c)
{
    (void)c;
    return true;
}
#endif

/* Bytes are copied: ISO C has no cast from void * to a function pointer. */
const char *an_dl_fill(void *lib, const an_dl_symbol *symbols, size_t n, void *table)
{
    for (size_t i = 0; i < n; i++) {
        void *address = dlsym(lib, symbols[i].name);
        if (!address) return symbols[i].name;
        memcpy((char *)table + symbols[i].at, &address, sizeof address);
    }
    return NULL;
}

an_status an_dl_load(an_err *err, const char *where, const an_dl_library *l, const char *otherwise, void *table,
                     void **lib)
{
    void *found = NULL;
    const char *const *name = l->names, * or = otherwise ? ", or " : "", *way = otherwise ? otherwise : "";
    while (*name && !(found = an_dl_open(NULL, *name))) name++;
    if (!found)
        return an_fail(err, AN_E_ENV, "%s: %s is not installed: install %s%s%s", where, l->what, l->package, or, way);
    const char *missing = an_dl_fill(found, l->symbols, l->n_symbols, table);
    if (missing) {
        an_dl_close(found);
        return an_fail(err, AN_E_ENV, "%s: %s has no %s: install a newer %s%s%s", where, *name, missing, l->package, or,
                       way);
    }
    if (lib) *lib = found;
    return AN_OK;
}
