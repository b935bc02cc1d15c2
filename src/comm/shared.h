/* shared.h: the memory that the ranks of a job share, as shared.c, collectives.c and job.c see it.
 *
 *     header | a line of 64 bytes a rank | slot 0 of rank 0 | slot 0 of rank 1 ... | slot 1 of rank 0 ...
 */
#ifndef AN_COMM_SHARED_H
#define AN_COMM_SHARED_H

#include "comm/comm.h"

#include <stdatomic.h>
#include <sys/types.h>

enum { AN_COMM_MAGIC = 0x414e5231, AN_COMM_LINE = 64 };

typedef enum an_comm_kind {
    AN_COMM_BARRIER,
    AN_COMM_SUM,
    AN_COMM_REDUCE_SCATTER,
    AN_COMM_GATHER,
    AN_COMM_BROADCAST,
    AN_COMM_N_KINDS
} an_comm_kind;

typedef struct an_comm_member {
    _Alignas(AN_COMM_LINE) _Atomic uint64_t arrived; /* at how many barriers */
    /* The collective it is in, of odd and even barriers: written before `arrived`, and again only two barriers later. */
    uint64_t bytes[2];
    uint32_t kind[2];
    _Atomic int32_t present, left; /* it has joined; it has closed and will not come again */
} an_comm_member;

typedef struct an_comm_shared {
    _Atomic uint32_t ready; /* AN_COMM_MAGIC: the rest may be read */
    uint32_t version;       /* a hash of AN_VERSION */
    int32_t ranks;
    _Atomic int32_t claimed, failed; /* a failure is being written; it can be read */
    int32_t failed_rank, failed_code;
    char failed_text[1024];
    an_comm_member member[AN_COMM_RANKS];
} an_comm_shared;

struct an_comm {
    an_comm_shared *shared;
    size_t bytes;
    int rank, ranks;
    uint64_t barriers; /* that all ranks have passed so far */
    int parity;        /* which of the two slots the next exchange uses */
    pid_t parent;      /* that started the ranks; 0: another program did */
    int file;          /* of a job that another program started: a byte a rank, locked while it lives; -1: none */
    double timeout_s;  /* without an arrival */
    double exchange_s, wait_s; /* an_comm_times */
};

/* Waits until every rank has come here, each with the same kind and size. */
an_status an_comm_meet(an_err *err, an_comm *c, an_comm_kind kind, uint64_t bytes);
/* The slot of a rank that this exchange uses. */
char *an_comm_slot(const an_comm *c, int rank);
/* A handle of memory that is mapped already. */
an_status an_comm_wrap(an_err *err, an_comm_shared *shared, size_t bytes, int rank, int ranks, an_comm **out);
uint32_t an_comm_version(void);

#endif
