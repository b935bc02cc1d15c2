/* shared.h: the memory that the ranks of a job share, as shared.c, collectives.c and job.c see it.
 *
 *     header | a line of 64 bytes a rank | slot 0 of rank 0 | slot 0 of rank 1 ... | slot 1 of rank 0 ...
 */
#ifndef AN_COMM_SHARED_H
#define AN_COMM_SHARED_H

#include "comm/transport.h"

#include <stdatomic.h>

enum { AN_COMM_MAGIC = 0x414e5231 };

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

/* Waits until every rank has come here, each with the same kind and size. */
an_status an_comm_meet(an_err *err, an_comm *c, an_comm_kind kind, uint64_t bytes);
/* The slot of a rank that this exchange uses. */
char *an_comm_slot(const an_comm *c, int rank);
/* A handle of memory that is mapped already. */
an_status an_comm_wrap(an_err *err, an_comm_shared *shared, size_t bytes, int rank, int ranks, an_comm **out);
uint32_t an_comm_version(void);
/* Of the table an_comm_shared_memory (collectives.c). */
void an_comm_shared_fail(an_comm *c, int rank, an_status code, const char *sentence);
an_status an_comm_shared_status(an_err *err, const an_comm *c);
an_status an_comm_shared_watch(an_err *err, an_comm *c);
int an_comm_shared_failed_rank(const an_comm *c);
void an_comm_shared_close(an_comm *c);

#endif
