/* mpi_library.h: an MPI library, found while the program runs.
 *
 * Owns:       the names it is searched under, which set of handles it has, its functions.
 * Does not:   know ranks or messages (mpi.c).
 * Invariants: nothing of MPI's headers is compiled in. Handles are kept as integers as wide as an address: Open MPI's are
 *             addresses of symbols that it exports, MPICH's and its relatives' are 32-bit numbers, which the calling
 *             conventions of x86-64 and arm64 pass in the low half of the same register. docs/decisions.md says more.
 */
#ifndef AN_COMM_MPI_LIBRARY_H
#define AN_COMM_MPI_LIBRARY_H

#include "base/base.h"

enum { AN_MPI_VERSION_BYTES = 8192, AN_MPI_ERROR_BYTES = 2048 }; /* the most that a library writes, and to spare */

typedef union an_mpi_request { /* room for either kind; the library's own */
    void *address;
    int number;
} an_mpi_request;

typedef struct an_mpi_library {
    int (*init_thread)(int *argc, char ***argv, int required, int *provided);
    int (*initialized)(int *flag);
    int (*finalize)(void);
    int (*abort)(uintptr_t comm, int code);
    int (*comm_rank)(uintptr_t comm, int *rank);
    int (*comm_size)(uintptr_t comm, int *size);
    int (*comm_set_errhandler)(uintptr_t comm, uintptr_t handler);
    int (*isend)(const void *data, int n, uintptr_t type, int to, int tag, uintptr_t comm, an_mpi_request *out);
    int (*irecv)(void *data, int n, uintptr_t type, int from, int tag, uintptr_t comm, an_mpi_request *out);
    int (*test)(an_mpi_request *request, int *flag, void *status);
    int (*error_string)(int code, char *text, int *length);
    int (*get_library_version)(char *text, int *length);
    uintptr_t world, byte, errors_return;
    char version[80]; /* the first words of its own line */
} an_mpi_library;

/* Loads the library of $ANNEAL_MPI, or the first that is there; of MPICH's family first where `mpich_first`. It stays loaded: MPI
 * cannot be initialized twice. AN_E_ENV where none is there, or it is of no known kind. */
an_status an_mpi_load(an_err *err, bool mpich_first, an_mpi_library *out);

#endif
