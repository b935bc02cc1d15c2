/* ranks.h: a command that several processes do together.
 *
 * Owns:      ranks=, devices= and transport=, starting and watching the ranks, the places that torchrun, srun and
 * mpirun give.
 * Does not:  exchange anything (comm/comm.h), or know what the command does.
 */
#ifndef AN_CLI_RANKS_H
#define AN_CLI_RANKS_H

#include "cli/cli.h"
#include "comm/comm.h"

/* The settings of a command that takes them. */
typedef struct an_rank_values {
    int64_t ranks;
    char devices[AN_CONFIG_TEXT_BYTES], transport[AN_CONFIG_TEXT_BYTES];
} an_rank_values;
#define AN_RANK_FIELDS(type, member)                                                                                   \
    {"ranks",                                                                                                          \
     AN_CONFIG_INT,                                                                                                    \
     offsetof(type, member.ranks),                                                                                     \
     "0",                                                                                                              \
     0,                                                                                                                \
     AN_COMM_RANKS,                                                                                                    \
     NULL,                                                                                                             \
     "processes of this host that train together, each on its part of an update's micro-batches; 0: as devices says, " \
     "or "                                                                                                             \
     "one"},                                                                                                           \
        {"devices",                                                                                                    \
         AN_CONFIG_TEXT,                                                                                               \
         offsetof(type, member.devices),                                                                               \
         "",                                                                                                           \
         0,                                                                                                            \
         0,                                                                                                            \
         NULL,                                                                                                         \
         "GPUs, a process each: how many (4), which (0,2), or auto: all that are there"},                              \
    {                                                                                                                  \
        "transport", AN_CONFIG_TEXT, offsetof(type, member.transport), "auto", 0, 0, "auto|shared_memory|mpi",         \
            "between processes that mpirun or srun started; auto: MPI where they are on several hosts"                 \
    }

/* What a rank does: the command, with `comm` in its settings (NULL: a process alone). Ranks but 0 get quiet arguments. */
typedef an_status an_rank_fn(an_err *err, const an_args *args, struct an_comm *comm, int *exit_code);

/* Runs `fn` in this process alone, in as many ranks as the arguments ask for, or in this process as one of a job that
 * another program started. Where it starts ranks it returns when all of them have ended; a child does not return. */
an_status an_ranks_run(an_err *err, const an_args *args, an_rank_fn *fn, int *exit_code);

#endif
