/* collectives.c: sums, gathers and broadcasts through slots of shared memory. See comm.h.
 *
 * An exchange goes chunk by chunk: every rank copies its own into its slot; a barrier; what is needed is copied out. A sum has a
 * second barrier: between the two, rank r adds up the r-th part of all ranks, its own of the array that it was given, so that a
 * rank copies in and out only the parts of the others. Two slots are used in turn: a rank
 * fills one again only after a later barrier, which every rank reaches with what it wanted of that slot. */
#include "comm/shared.h"

#include <string.h>

static an_status barrier(an_err *err, an_comm *c)
{
    return an_comm_meet(err, c, AN_COMM_BARRIER, 0);
}

/* ---- sums */

/* Where the ranks' elements from byte `at` of their slots on are: this rank's in `mine` instead. */
static void find_ranks(const an_comm *c, const char *mine, size_t at, const char *in[AN_COMM_RANKS])
{
    for (int r = 0; r < c->ranks; r++) in[r] = r == c->rank ? mine : an_comm_slot(c, r) + at;
}

/* Copies the part of rank r between a slot and an array. */
static void copy_part(const an_comm *c, char *to, const char *from, int64_t n, size_t each, int r)
{
    const size_t begin = (size_t)an_comm_part_begin(c, n, r) * each,
                 end = (size_t)an_comm_part_begin(c, n, r + 1) * each;
    if (end > begin) memcpy(to + begin, from + begin, end - begin);
}

static an_status sum_chunk(an_err *err, an_comm *c, an_dtype dtype, int64_t n, const char *in, char *out)
{
    const size_t each = an_dtype_size(dtype), bytes = (size_t)n * each;
    const char *all[AN_COMM_RANKS];
    for (int r = 0; r < c->ranks; r++)
        if (r != c->rank) copy_part(c, an_comm_slot(c, c->rank), in, n, each, r);
    AN_TRY(an_comm_meet(err, c, AN_COMM_SUM, bytes));
    const int64_t from = an_comm_part_begin(c, n, c->rank), until = an_comm_part_begin(c, n, c->rank + 1);
    const size_t at = (size_t)from * each;
    find_ranks(c, in + at, at, all);
    /* Sums go to this rank's slot too, where no other rank reads or writes them now. */
    an_comm_add(dtype, c->ranks, until - from, all, out + at, an_comm_slot(c, c->rank) + at);
    AN_TRY(an_comm_meet(err, c, AN_COMM_SUM, bytes));
    for (int r = 0; r < c->ranks; r++)
        if (r != c->rank) copy_part(c, out, an_comm_slot(c, r), n, each, r);
    c->parity = !c->parity;
    return AN_OK;
}

static an_status sum(an_err *err, an_comm *c, an_dtype dtype, int64_t n, const char *in, char *out)
{
    const size_t each = an_dtype_size(dtype);
    const int64_t most = AN_COMM_SLOT_BYTES / (int64_t)each;
    for (int64_t at = 0; at < n; at += most)
        AN_TRY(sum_chunk(err, c, dtype, AN_MIN(most, n - at), in + (size_t)at * each, out + (size_t)at * each));
    return AN_OK;
}

/* Each rank's slot has a piece of m for every rank; rank r adds up the r-th. One barrier is enough: see above. */
static an_status scatter_chunk(an_err *err, an_comm *c, an_dtype dtype, int64_t n, int64_t m, const char *in, char *out)
{
    const size_t each = an_dtype_size(dtype), bytes = (size_t)m * each, apart = (size_t)n * each;
    const char *all[AN_COMM_RANKS];
    for (int r = 0; r < c->ranks; r++)
        if (r != c->rank) memcpy(an_comm_slot(c, c->rank) + (size_t)r * bytes, in + (size_t)r * apart, bytes);
    AN_TRY(an_comm_meet(err, c, AN_COMM_REDUCE_SCATTER, bytes));
    find_ranks(c, in + (size_t)c->rank * apart, (size_t)c->rank * bytes, all);
    an_comm_add(dtype, c->ranks, m, all, out, NULL);
    c->parity = !c->parity;
    return AN_OK;
}

static an_status reduce_scatter(an_err *err, an_comm *c, an_dtype dtype, int64_t n, const char *in, char *out)
{
    const size_t each = an_dtype_size(dtype);
    const int64_t most = AN_COMM_SLOT_BYTES / (int64_t)each / c->ranks / AN_COMM_LINE * AN_COMM_LINE;
    for (int64_t at = 0; at < n; at += most)
        AN_TRY(scatter_chunk(err, c, dtype, n, AN_MIN(most, n - at), in + (size_t)at * each, out + (size_t)at * each));
    return AN_OK;
}

/* Each rank's slot has what the others want of the chunk; a rank adds up what is its own. One barrier, too. */
static an_status range_chunk(an_err *err, an_comm *c, an_dtype dtype, int64_t part, int64_t first, int64_t n,
                             const char *in, char **out)
{
    const size_t each = an_dtype_size(dtype);
    const char *all[AN_COMM_RANKS];
    size_t at = 0, mine_at = 0;
    int64_t mine = 0;
    for (int r = 0; r < c->ranks; r++) {
        int64_t from;
        const int64_t its = an_comm_range_of(part, first, n, r, &from);
        if (r == c->rank)
            mine = its, mine_at = at;
        else if (its > 0)
            memcpy(an_comm_slot(c, c->rank) + at, in + at, (size_t)its * each);
        at += (size_t)its * each;
    }
    AN_TRY(an_comm_meet(err, c, AN_COMM_REDUCE_SCATTER, (uint64_t)n * each));
    if (mine > 0) {
        find_ranks(c, in + mine_at, mine_at, all);
        an_comm_add(dtype, c->ranks, mine, all, *out, NULL);
        *out += (size_t)mine * each;
    }
    c->parity = !c->parity;
    return AN_OK;
}

static an_status sum_range(an_err *err, an_comm *c, an_dtype dtype, int64_t part, int64_t first, int64_t n,
                           const char *in, char *out)
{
    const size_t each = an_dtype_size(dtype);
    const int64_t most = AN_COMM_SLOT_BYTES / (int64_t)each;
    for (int64_t at = 0; at < n; at += most)
        AN_TRY(range_chunk(err, c, dtype, part, first + at, AN_MIN(most, n - at), in + (size_t)at * each, &out));
    return AN_OK;
}

/* ---- copies */

/* Each rank's `bytes` at out + rank * stride. */
static an_status gather_chunk(an_err *err, an_comm *c, size_t bytes, const char *in, char *out, size_t stride)
{
    if (bytes) memcpy(an_comm_slot(c, c->rank), in, bytes);
    AN_TRY(an_comm_meet(err, c, AN_COMM_GATHER, bytes));
    for (int r = 0; r < c->ranks && bytes; r++) memcpy(out + (size_t)r * stride, an_comm_slot(c, r), bytes);
    c->parity = !c->parity;
    return AN_OK;
}

static an_status gather(an_err *err, an_comm *c, size_t bytes, const char *in, char *out)
{
    size_t at = 0;
    do {
        const size_t n = AN_MIN(bytes - at, AN_COMM_SLOT_BYTES);
        AN_TRY(gather_chunk(err, c, n, in + at, out + at, bytes));
        at += n;
    } while (at < bytes);
    return AN_OK;
}

static an_status broadcast(an_err *err, an_comm *c, int root, size_t bytes, char *data)
{
    for (size_t at = 0; at < bytes; at += AN_COMM_SLOT_BYTES) {
        const size_t n = AN_MIN(bytes - at, AN_COMM_SLOT_BYTES);
        if (c->rank == root) memcpy(an_comm_slot(c, root), data + at, n);
        AN_TRY(an_comm_meet(err, c, AN_COMM_BROADCAST, n));
        if (c->rank != root) memcpy(data + at, an_comm_slot(c, root), n);
        c->parity = !c->parity;
    }
    return AN_OK;
}

const an_comm_transport an_comm_shared_memory = {.barrier = barrier,
                                                 .sum = sum,
                                                 .reduce_scatter = reduce_scatter,
                                                 .sum_range = sum_range,
                                                 .gather = gather,
                                                 .broadcast = broadcast,
                                                 .fail = an_comm_shared_fail,
                                                 .status = an_comm_shared_status,
                                                 .watch = an_comm_shared_watch,
                                                 .failed_rank = an_comm_shared_failed_rank,
                                                 .close = an_comm_shared_close};
