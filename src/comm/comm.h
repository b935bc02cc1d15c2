/* comm.h: the processes that train together, and what they exchange: through shared memory on one host, by MPI on several.
 *
 * A *rank* is one process of a job, numbered from 0. Every rank calls the same collectives in the same order with the same
 * sizes; what a collective returns has the same bits on every rank.
 *
 * Owns:       memory that the ranks share (a header and two slots a rank) or the messages of MPI (found at run time), waiting
 *             for one another, and the sentence of the first rank that failed.
 * Does not:   start processes (cli/ranks.c), know tensors or devices. A GPU's data travel by a library of its vendor
 *             (device/cuda/nccl.c; its time limit is ANNEAL_CUDA_TIMEOUT, cuda.c); the ranks find one another here.
 * Invariants: a sum adds rank 0's value first, then rank 1's, and so on, whatever the sizes and the time of arrival. No
 *             call waits for ever: it ends when a rank has failed or was killed
 *             (shared.c sees that its lock is gone, cli/ranks.c that its process ended, mpi.c a link), when the process that started the ranks has ended, and
 *             after AN_COMM_TIMEOUT_S without an arrival (ANNEAL_COMM_TIMEOUT). Ranks that call different collectives are
 *             told so. Where a pointer to an an_comm may be NULL, that is a process alone: rank 0 of 1.
 */
#ifndef AN_COMM_COMM_H
#define AN_COMM_COMM_H

#include "base/base.h"

enum { AN_COMM_RANKS = 64, AN_COMM_SLOT_BYTES = 1 << 20, AN_COMM_TIMEOUT_S = 600 };

typedef struct an_comm an_comm;

/* ---- a job that this process starts: memory that it shares with the children it forks from here on */
an_status an_comm_new(an_err *err, int ranks, an_comm **out);
void an_comm_become(an_comm *c, int rank); /* in the child, before anything else */

/* ---- a job that another program started */

/* The place of this process in a job, as torchrun, srun or mpirun tell it in the environment. */
typedef struct an_comm_job {
    int rank, ranks, local_rank; /* ranks 1: there is no job */
    bool several_hosts;
    bool mpi;                           /* the launcher is MPI's own, or srun, which starts MPI's processes too */
    char launcher[16], key[200];        /* "torchrun"; what tells this job from others of this user on this host */
    const char *rank_name, *ranks_name; /* the variables that say so: "RANK", "WORLD_SIZE" */
    /* Told by joining and, over MPI, by leaving, from a thread of their own too, when another rank lets it wait; NULL: in silence. */
    void (*waits)(const char *sentence);
} an_comm_job;
/* AN_E_USAGE where variables contradict one another or say nothing that makes sense. */
an_status an_comm_job_read(an_err *err, an_comm_job *out);
/* Waits for all ranks of it: AN_E_ENV where one does not come. AN_E_UNSUPPORTED: they are on several hosts. */
an_status an_comm_join(an_err *err, const an_comm_job *job, an_comm **out);
/* The name and version of the MPI library that ranks would use; AN_E_ENV, AN_E_UNSUPPORTED: why there is none. */
an_status an_comm_mpi_version(an_err *err, char *out, size_t n);
/* The same over MPI. AN_E_ENV: no MPI library is there, or it is another one than the launcher's; AN_E_UNSUPPORTED: the
 * launcher is not MPI's. Once in a process. */
an_status an_comm_join_mpi(an_err *err, const an_comm_job *job, an_comm **out);

void an_comm_close(an_comm *c); /* NULL is fine */

/* ---- where this process is; NULL: rank 0 of 1 */
int an_comm_rank(const an_comm *c);
int an_comm_ranks(const an_comm *c);
/* The time that this process has spent in sums, gathers and broadcasts so far, and of that the time until others came. */
void an_comm_times(const an_comm *c, double *exchange_s, double *wait_s);
/* What carries the bytes: "shared memory", or the MPI library's name and version. */
const char *an_comm_carrier(const an_comm *c);
uint64_t an_comm_bytes(int ranks); /* of shared memory: of all ranks together */

/* ---- failures */

/* Ends the job: every rank's next call, and one that waits now, returns `code` with the rank and the sentence. The first
 * failure is kept. rank -1: the process that started the ranks says so. */
void an_comm_fail(an_comm *c, int rank, an_status code, const char *sentence);
/* Whether an_comm_close may end the process (MPI_Abort), so that the caller prints its error before it calls that. */
bool an_comm_may_abort(const an_comm *c);
/* AN_OK, or the failure that was recorded. */
an_status an_comm_status(an_err *err, const an_comm *c);
/* For a rank that waits for something else, which may wait for the others: a GPU's exchange. The failure that was recorded, or
 * that a rank was killed, or that the process that started the ranks has ended. Returns at once. */
an_status an_comm_watch(an_err *err, an_comm *c);
/* The rank that failed first; -1: none did, or the process that started them said so. */
int an_comm_failed_rank(const an_comm *c);

/* ---- collectives; with one rank they copy */
an_status an_comm_barrier(an_err *err, an_comm *c);
/* out[i] = ((in of rank 0)[i] + (in of rank 1)[i]) + ...; `out` may be `in`. AN_F32, AN_F64; AN_BF16 and AN_F16 are
 * added in float32 and rounded once. */
an_status an_comm_sum(an_err *err, an_comm *c, an_dtype dtype, int64_t n, const void *in, void *out);
/* out[i] = that sum of element rank * n + i, where `in` has ranks * n: each rank gets its part. `out` is not inside `in`. */
an_status an_comm_reduce_scatter(an_err *err, an_comm *c, an_dtype dtype, int64_t n, const void *in, void *out);
/* Of an array that ranks have parts of, `part` elements each: `in` is its elements from `first` on, n of them, on every rank; `out` gets
 * the sums of those that are of this rank's part. */
an_status an_comm_sum_range(an_err *err, an_comm *c, an_dtype dtype, int64_t part, int64_t first, int64_t n,
                            const void *in, void *out);
/* out = in of rank 0, in of rank 1, ...: `bytes` of each. */
an_status an_comm_gather(an_err *err, an_comm *c, size_t bytes, const void *in, void *out);
/* out = elements [first, first + n) of an array of which rank r has [r * part, (r + 1) * part), in its `in`; elements have
 * `each` bytes. `out` is not inside `in`. */
an_status an_comm_gather_range(an_err *err, an_comm *c, size_t each, int64_t part, int64_t first, int64_t n,
                               const void *in, void *out);
/* What rank r has of them: elements [*from, *from + the result) of its part; 0: none. */
int64_t an_comm_range_of(int64_t part, int64_t first, int64_t n, int r, int64_t *from);
an_status an_comm_broadcast(an_err *err, an_comm *c, int root, size_t bytes, void *data);
/* *any = whether it is true on some rank. */
an_status an_comm_any(an_err *err, an_comm *c, bool mine, bool *any);
/* AN_E_USAGE unless all ranks have the same bytes: "rank 1 has other WHAT than rank 0". */
an_status an_comm_agree(an_err *err, an_comm *c, const void *data, size_t bytes, const char *what);

#endif
