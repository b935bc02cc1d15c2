/* transport.h: how the bytes of a job's ranks travel: one table of functions for shared memory, one for MPI. See comm.h.
 *
 * Owns:       the table, a rank's handle, additions in rank order.
 * Does not:   choose (cli/ranks.c does).
 * Invariants: transport.c has dealt with a process alone, with times, and with dtypes that ranks do not add: a table's functions
 *             are called with two ranks or more. Both tables make the promises of comm.h, the bits of a sum included.
 */
#ifndef AN_COMM_TRANSPORT_H
#define AN_COMM_TRANSPORT_H

#include "comm/comm.h"

#include <sys/types.h>

typedef enum an_comm_kind {
    AN_COMM_BARRIER,
    AN_COMM_SUM,
    AN_COMM_REDUCE_SCATTER,
    AN_COMM_GATHER,
    AN_COMM_BROADCAST,
    AN_COMM_N_KINDS
} an_comm_kind;

enum { AN_COMM_LINE = 64 }; /* a sum's parts are multiples of so many elements */

/* As the functions of comm.h with these names. */
typedef struct an_comm_transport {
    an_status (*barrier)(an_err *err, an_comm *c);
    an_status (*sum)(an_err *err, an_comm *c, an_dtype dtype, int64_t n, const char *in, char *out);
    an_status (*reduce_scatter)(an_err *err, an_comm *c, an_dtype dtype, int64_t n, const char *in, char *out);
    an_status (*sum_range)(an_err *err, an_comm *c, an_dtype dtype, int64_t part, int64_t first, int64_t n,
                           const char *in, char *out);
    an_status (*gather)(an_err *err, an_comm *c, size_t bytes, const char *in, char *out);
    an_status (*broadcast)(an_err *err, an_comm *c, int root, size_t bytes, char *data);
    void (*fail)(an_comm *c, int rank, an_status code, const char *sentence);
    an_status (*status)(an_err *err, const an_comm *c);
    an_status (*watch)(an_err *err, an_comm *c);
    int (*failed_rank)(const an_comm *c);
    const char *(*host)(const an_comm *c, int rank); /* NULL: all ranks are on one */
    const char *(*carrier)(const an_comm *c);        /* NULL: shared memory */
    void (*close)(an_comm *c);                       /* all but the handle itself */
} an_comm_transport;

extern const an_comm_transport an_comm_shared_memory, an_comm_mpi;

/* How long a rank waits for others before it says so: variables that were left in the environment would make a run alone wait in silence. */
enum { AN_COMM_TELL_S = 5 };

struct an_comm {
    const an_comm_transport *transport;
    int rank, ranks;
    double timeout_s;          /* without an arrival */
    double exchange_s, wait_s; /* an_comm_times */
    pid_t parent;              /* that started the ranks; 0: another program did */
    struct an_mpi_job *mpi;    /* mpi.c */
    /* of shared memory: */
    struct an_comm_shared *shared;
    size_t bytes;
    uint64_t barriers; /* that all ranks have passed so far */
    int parity;        /* which of the two slots the next exchange uses */
    int file;          /* of a job that another program started: a byte a rank, locked while it lives; -1: none */
};

an_status an_comm_handle(an_err *err, const an_comm_transport *transport, int rank, int ranks, an_comm **out);
/* "adds", for "rank 1 adds 4 bytes"; any number is fine. */
const char *an_comm_kind_verb(uint32_t kind);

/* n elements of each rank, added in rank order. `out` may be one of `in`; `copy` gets the sums too (NULL: it does not). */
void an_comm_add(an_dtype dtype, int ranks, int64_t n, const char *const *in, char *out, char *copy);
/* The first element of the part of n that a rank adds up: parts are whole lines of memory. */
int64_t an_comm_part_begin(const an_comm *c, int64_t n, int rank);

#endif
