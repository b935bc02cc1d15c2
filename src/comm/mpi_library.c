/* mpi_library.c: see mpi_library.h. */
#include "comm/mpi_library.h"

#include "platform/dynamic_library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __APPLE__
static const char *const open_mpi[] = {"libmpi.40.dylib", "/opt/homebrew/opt/open-mpi/lib/libmpi.40.dylib",
                                       "/usr/local/opt/open-mpi/lib/libmpi.40.dylib"};
static const char *const mpich[] = {"libmpi.12.dylib", "/opt/homebrew/opt/mpich/lib/libmpi.12.dylib",
                                    "/usr/local/opt/mpich/lib/libmpi.12.dylib"};
#else
static const char *const open_mpi[] = {"libmpi.so.40", "libmpi.so"};
static const char *const mpich[] = {"libmpich.so.12", "libmpi.so.12", "libmpich.so"};
#endif

#define CALL(symbol, field)                                                                                            \
    {                                                                                                                  \
#symbol, offsetof(an_mpi_library, field)                                                                       \
    }
static const an_dl_symbol symbols[] = {CALL(MPI_Init_thread, init_thread),
                                       CALL(MPI_Initialized, initialized),
                                       CALL(MPI_Finalize, finalize),
                                       CALL(MPI_Abort, abort),
                                       CALL(MPI_Comm_rank, comm_rank),
                                       CALL(MPI_Comm_size, comm_size),
                                       CALL(MPI_Comm_set_errhandler, comm_set_errhandler),
                                       CALL(MPI_Isend, isend),
                                       CALL(MPI_Irecv, irecv),
                                       CALL(MPI_Test, test),
                                       CALL(MPI_Error_string, error_string),
                                       CALL(MPI_Get_library_version, get_library_version)};

static void *open_first(const char *const *names, size_t n)
{
    void *lib = NULL;
    for (size_t i = 0; i < n && !lib; i++) lib = an_dl_open_global(NULL, names[i]);
    return lib;
}

static an_status find_library(an_err *err, bool mpich_first, void **out)
{
    const char *only = getenv("ANNEAL_MPI");
    if (only && *only) return (*out = an_dl_open_global(err, only)) ? AN_OK : AN_E_ENV;
    *out = mpich_first ? open_first(mpich, AN_COUNT(mpich)) : open_first(open_mpi, AN_COUNT(open_mpi));
    if (!*out) *out = mpich_first ? open_first(open_mpi, AN_COUNT(open_mpi)) : open_first(mpich, AN_COUNT(mpich));
    if (*out) return AN_OK;
    return an_fail(err, AN_E_ENV,
                   "no MPI library was found, neither Open MPI's nor MPICH's: install openmpi-bin (Debian) or open-mpi "
                   "(Homebrew), or name the library's file in ANNEAL_MPI");
}

/* Whether handles are those of the ABI that MPI 5 defines, a third set, which has not been tried. */
static bool has_standard_handles(void *lib)
{
    int (*ask)(int *major, int *minor);
    void *address = an_dl_sym(lib, "MPI_Abi_get_version");
    int major = -1, minor = -1;
    if (!address) return false;
    memcpy(&ask, &address, sizeof ask);
    return ask(&major, &minor) == 0 && major > 0;
}

/* By symbols: a file's name says nothing, both families have a libmpi.so. */
static an_status find_handles(an_err *err, void *lib, an_mpi_library *m)
{
    if (an_dl_sym(lib, "ompi_mpi_comm_world")) {
        m->world = (uintptr_t)an_dl_sym(lib, "ompi_mpi_comm_world");
        m->byte = (uintptr_t)an_dl_sym(lib, "ompi_mpi_byte");
        m->errors_return = (uintptr_t)an_dl_sym(lib, "ompi_mpi_errors_return");
    } else if (an_dl_sym(lib, "MPIR_Dup_fn") &&
               !has_standard_handles(lib)) { /* fixed by the agreement of MPICH, Intel MPI, Cray MPI and MVAPICH */
        m->world = 0x44000000;
        m->byte = 0x4c00010d;
        m->errors_return = 0x54000001;
    }
    if (m->world && m->byte && m->errors_return) return AN_OK;
    return an_fail(err, AN_E_UNSUPPORTED,
                   "the MPI library is neither Open MPI nor of MPICH's family (it says: %s); name the file of one that "
                   "is in ANNEAL_MPI, and start the ranks with its mpirun",
                   m->version);
}

an_status an_mpi_load(an_err *err, bool mpich_first, an_mpi_library *out)
{
    void *lib = NULL;
    int length = 0;
    *out = (an_mpi_library){0};
    AN_TRY(find_library(err, mpich_first, &lib));
    const char *missing = an_dl_fill(lib, symbols, AN_COUNT(symbols), out);
    if (missing) return an_fail(err, AN_E_ENV, "the MPI library has no %s: install a newer one", missing);
    char *text = calloc(1, AN_MPI_VERSION_BYTES);
    if (!text) return an_fail_nomem(err, "the version of MPI", AN_MPI_VERSION_BYTES);
    if (out->get_library_version(text, &length) != 0) *text = '\0';
    snprintf(out->version, sizeof out->version, "%.*s", (int)strcspn(text, ",\n"), text);
    free(text);
    for (char *c = out->version; *c; c++)
        if ((unsigned char)*c < ' ') *c = ' ';
    return find_handles(err, lib, out);
}
