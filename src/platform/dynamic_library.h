/* dynamic_library.h: shared libraries that are loaded while the program runs: by a command that needs one, and by backends.
 *
 *     static const an_dl_symbol symbols[] = {{"WebPGetInfo", offsetof(webp, info)}, ...};
 *     webp w;
 *     AN_TRY(an_dl_load(err, file, &library, NULL, &w, NULL));
 *
 * Owns:      the loader's calls, the tables of functions, the sentence of a library that is missing.
 * Does not:  know any library, or search for one in folders (device/cuda/driver.c). */
#ifndef AN_PLATFORM_DYNAMIC_LIBRARY_H
#define AN_PLATFORM_DYNAMIC_LIBRARY_H

#include "base/base.h"

void *an_dl_open(an_err *err, const char *path); /* NULL and a sentence on failure */
/* The same, for a library whose plug-ins expect its symbols in the whole program (Open MPI). */
void *an_dl_open_global(an_err *err, const char *path);
void *an_dl_sym(void *lib, const char *name);
void an_dl_close(void *lib); /* NULL is fine */

/* A library loaded once more, with data and locks of its own, from a copy of its file in memory: the loader takes a file that it knows,
 * and each link to it, for the library that is there already. Linux alone. */
typedef struct an_dl_copy {
    void *lib; /* NULL: none */
    int file;
} an_dl_copy;
/* Bytes of the file of the library that holds the code or data at `address`: what a copy takes. 0: no copy can be made of it. */
uint64_t an_dl_copy_bytes(const void *address);
an_status an_dl_copy_open(an_err *err, const void *address, an_dl_copy *out);
/* No thread may have a destructor of the copy's left to run. False: it stays in memory, as a library that asks for it does. */
bool an_dl_copy_close(an_dl_copy *c);

/* A number that tells builds of a library apart, from its file's size and time: of the library that holds the code or
 * data at `address`. 0: its file is not known. */
uint64_t an_dl_build(const void *address);
const char *an_dl_path(const void *address); /* of that library's file; NULL: not known */

/* A function, and where its address goes in the caller's struct of function pointers. */
typedef struct an_dl_symbol {
    const char *name;
    size_t at; /* offsetof */
} an_dl_symbol;

/* Fills in the struct `table`. Returns the first name that the library lacks; NULL: none. */
const char *an_dl_fill(void *lib, const an_dl_symbol *symbols, size_t n, void *table);

typedef struct an_dl_library {
    const char *const *names; /* of its file, in the order to try; up to NULL */
    const char *what;         /* "the library that decompresses it", for the sentence */
    const char *package;      /* Debian's */
    const an_dl_symbol *symbols;
    size_t n_symbols;
} an_dl_library;

/* Loads it and fills in `table`. AN_E_ENV where it is not there or lacks a function: "WHERE: WHAT is not installed: install
 * PACKAGE, or OTHERWISE" (otherwise NULL: there is no other way). `lib` NULL: it stays loaded. */
an_status an_dl_load(an_err *err, const char *where, const an_dl_library *l, const char *otherwise, void *table,
                     void **lib);

#endif
