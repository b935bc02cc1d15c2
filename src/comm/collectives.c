/* collectives.c: sums, gathers and broadcasts through slots of shared memory. See comm.h.
 *
 * An exchange goes chunk by chunk: every rank copies its own into its slot; a barrier; what is needed is copied out. A sum has a
 * second barrier: between the two, rank r adds up the r-th part of all ranks, its own of the array that it was given, so that a
 * rank copies in and out only the parts of the others. Two slots are used in turn: a rank
 * fills one again only after a later barrier, which every rank reaches with what it wanted of that slot. */
#include "comm/shared.h"

#include "base/exact.h"
#include "base/map.h"
#include "platform/platform.h"

#include <string.h>

an_status an_comm_barrier(an_err *err, an_comm *c)
{
    return an_comm_ranks(c) == 1 ? AN_OK : an_comm_meet(err, c, AN_COMM_BARRIER, 0);
}

static an_status end_exchange(an_comm *c, double began)
{
    c->exchange_s += an_seconds() - began;
    return AN_OK;
}

/* ---- sums */

enum { BLOCK = 1024 }; /* elements that are added at a time: they stay in the first-level cache */

/* A whole block apart, so that compilers know its length and use vectors at any level. */
static void add_f32(float *restrict sum, const char *in, int64_t n)
{
    const float *restrict x = (const float *)(const void *)in;
    if (n == BLOCK)
        for (int i = 0; i < BLOCK; i++) sum[i] += x[i];
    else
        for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

static void add_f64(double *restrict sum, const char *in, int64_t n)
{
    const double *restrict x = (const double *)(const void *)in;
    if (n == BLOCK)
        for (int i = 0; i < BLOCK; i++) sum[i] += x[i];
    else
        for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

static void add_16_bits(float *sum, const char *in, int64_t n, bool first, bool bf16)
{
    const uint16_t *x = (const uint16_t *)(const void *)in;
    for (int64_t i = 0; i < n; i++) {
        const float v = bf16 ? an_bf16_to_f32(x[i]) : an_f16_to_f32(x[i]);
        sum[i] = first ? v : sum[i] + v;
    }
}

static void round_to_16_bits(uint16_t *out, const float *sum, int64_t n, bool bf16)
{
    for (int64_t i = 0; i < n; i++) out[i] = (uint16_t)(bf16 ? an_f32_to_bf16(sum[i]) : an_f32_to_f16(sum[i]));
}

/* n elements of each rank, added in rank order. `out` may be one of `in`; `copy` gets the sums too (NULL: it does not). */
static void add_ranks(an_dtype dtype, int ranks, int64_t n, const char *const *in, char *out, char *copy)
{
    union {
        float f32[BLOCK];
        double f64[BLOCK];
    } sum;
    const size_t each = an_dtype_size(dtype);
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t some = AN_MIN(BLOCK, n - at);
        const size_t byte = (size_t)at * each, bytes = (size_t)some * each;
        for (int r = 0; r < ranks; r++) {
            const char *x = in[r] + byte;
            if (each == 2)
                add_16_bits(sum.f32, x, some, r == 0, dtype == AN_BF16);
            else if (r == 0)
                memcpy(&sum, x, bytes);
            else if (dtype == AN_F64)
                add_f64(sum.f64, x, some);
            else
                add_f32(sum.f32, x, some);
        }
        if (each == 2)
            round_to_16_bits((uint16_t *)(void *)(out + byte), sum.f32, some, dtype == AN_BF16);
        else
            memcpy(out + byte, &sum, bytes);
        if (copy) memcpy(copy + byte, out + byte, bytes);
    }
}

/* Where the ranks' elements from byte `at` of their slots on are: this rank's in `mine` instead. */
static void find_ranks(const an_comm *c, const char *mine, size_t at, const char *in[AN_COMM_RANKS])
{
    for (int r = 0; r < c->ranks; r++) in[r] = r == c->rank ? mine : an_comm_slot(c, r) + at;
}

/* The first element of the part of a chunk of n that a rank adds up: parts are whole lines of memory. */
static int64_t part_begin(const an_comm *c, int64_t n, int rank)
{
    return AN_MIN(n, rank * an_round_up(an_ceil_div(n, c->ranks), AN_COMM_LINE));
}

/* Copies the part of rank r between a slot and an array. */
static void copy_part(const an_comm *c, char *to, const char *from, int64_t n, size_t each, int r)
{
    const size_t begin = (size_t)part_begin(c, n, r) * each, end = (size_t)part_begin(c, n, r + 1) * each;
    if (end > begin) memcpy(to + begin, from + begin, end - begin);
}

static an_status sum_chunk(an_err *err, an_comm *c, an_dtype dtype, int64_t n, const char *in, char *out)
{
    const size_t each = an_dtype_size(dtype), bytes = (size_t)n * each;
    const char *all[AN_COMM_RANKS];
    for (int r = 0; r < c->ranks; r++)
        if (r != c->rank) copy_part(c, an_comm_slot(c, c->rank), in, n, each, r);
    AN_TRY(an_comm_meet(err, c, AN_COMM_SUM, bytes));
    const int64_t from = part_begin(c, n, c->rank), until = part_begin(c, n, c->rank + 1);
    const size_t at = (size_t)from * each;
    find_ranks(c, in + at, at, all);
    /* Sums go to this rank's slot too, where no other rank reads or writes them now. */
    add_ranks(dtype, c->ranks, until - from, all, out + at, an_comm_slot(c, c->rank) + at);
    AN_TRY(an_comm_meet(err, c, AN_COMM_SUM, bytes));
    for (int r = 0; r < c->ranks; r++)
        if (r != c->rank) copy_part(c, out, an_comm_slot(c, r), n, each, r);
    c->parity = !c->parity;
    return AN_OK;
}

an_status an_comm_sum(an_err *err, an_comm *c, an_dtype dtype, int64_t n, const void *in, void *out)
{
    if (dtype > AN_F64) return an_fail(err, AN_E_DTYPE, "ranks add floating point numbers only");
    const size_t each = an_dtype_size(dtype);
    const int64_t most = AN_COMM_SLOT_BYTES / (int64_t)each;
    if (an_comm_ranks(c) == 1) {
        if (in != out) memmove(out, in, (size_t)n * each);
        return AN_OK;
    }
    const double began = an_seconds();
    for (int64_t at = 0; at < n; at += most)
        AN_TRY(sum_chunk(err, c, dtype, AN_MIN(most, n - at), (const char *)in + (size_t)at * each,
                         (char *)out + (size_t)at * each));
    return end_exchange(c, began);
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
    add_ranks(dtype, c->ranks, m, all, out, NULL);
    c->parity = !c->parity;
    return AN_OK;
}

an_status an_comm_reduce_scatter(an_err *err, an_comm *c, an_dtype dtype, int64_t n, const void *in, void *out)
{
    if (dtype > AN_F64) return an_fail(err, AN_E_DTYPE, "ranks add floating point numbers only");
    const size_t each = an_dtype_size(dtype);
    if (an_comm_ranks(c) == 1) {
        if (in != out) memmove(out, in, (size_t)n * each);
        return AN_OK;
    }
    const int64_t most = AN_COMM_SLOT_BYTES / (int64_t)each / c->ranks / AN_COMM_LINE * AN_COMM_LINE;
    const double began = an_seconds();
    for (int64_t at = 0; at < n; at += most)
        AN_TRY(scatter_chunk(err, c, dtype, n, AN_MIN(most, n - at), (const char *)in + (size_t)at * each,
                             (char *)out + (size_t)at * each));
    return end_exchange(c, began);
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

an_status an_comm_gather(an_err *err, an_comm *c, size_t bytes, const void *in, void *out)
{
    if (an_comm_ranks(c) == 1) {
        if (in != out) memmove(out, in, bytes);
        return AN_OK;
    }
    const double began = an_seconds();
    size_t at = 0;
    do {
        const size_t n = AN_MIN(bytes - at, AN_COMM_SLOT_BYTES);
        AN_TRY(gather_chunk(err, c, n, (const char *)in + at, (char *)out + at, bytes));
        at += n;
    } while (at < bytes);
    return end_exchange(c, began);
}

an_status an_comm_broadcast(an_err *err, an_comm *c, int root, size_t bytes, void *data)
{
    if (an_comm_ranks(c) == 1) return AN_OK;
    const double began = an_seconds();
    for (size_t at = 0; at < bytes; at += AN_COMM_SLOT_BYTES) {
        const size_t n = AN_MIN(bytes - at, AN_COMM_SLOT_BYTES);
        if (c->rank == root) memcpy(an_comm_slot(c, root), (const char *)data + at, n);
        AN_TRY(an_comm_meet(err, c, AN_COMM_BROADCAST, n));
        if (c->rank != root) memcpy((char *)data + at, an_comm_slot(c, root), n);
        c->parity = !c->parity;
    }
    return end_exchange(c, began);
}

an_status an_comm_any(an_err *err, an_comm *c, bool mine, bool *any)
{
    bool all[AN_COMM_RANKS];
    AN_TRY(an_comm_gather(err, c, sizeof mine, &mine, all));
    *any = false;
    for (int r = 0; r < an_comm_ranks(c); r++) *any |= all[r];
    return AN_OK;
}

an_status an_comm_agree(an_err *err, an_comm *c, const void *data, size_t bytes, const char *what)
{
    const uint64_t mine = an_hash(data, bytes, bytes);
    uint64_t all[AN_COMM_RANKS];
    AN_TRY(an_comm_gather(err, c, sizeof mine, &mine, all));
    for (int r = 1; r < an_comm_ranks(c); r++)
        if (all[r] != all[0])
            return an_fail(err, AN_E_USAGE,
                           "rank %d has other %s than rank 0; every rank must be started with the same", r, what);
    return AN_OK;
}
