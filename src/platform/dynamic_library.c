/* dynamic_library.c: see dynamic_library.h. */
#if !defined(_GNU_SOURCE) && defined(__linux__)
#define _GNU_SOURCE
#endif
#if !defined(_DARWIN_C_SOURCE) && defined(__APPLE__)
#define _DARWIN_C_SOURCE
#endif
#include "platform/dynamic_library.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/stat.h>

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

void an_dl_close(void *lib)
{
    if (lib != NULL) dlclose(lib);
}

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
