/* transport.c: what is the same for every transport: a process alone, times, the smaller collectives. See comm.h and transport.h. */
#include "comm/transport.h"

#include "base/map.h"
#include "platform/platform.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_name[AN_COMM_N_KINDS] = {[AN_COMM_BARRIER] = "waits",
                                                       [AN_COMM_SUM] = "adds",
                                                       [AN_COMM_REDUCE_SCATTER] = "adds parts of",
                                                       [AN_COMM_GATHER] = "gathers",
                                                       [AN_COMM_BROADCAST] = "sends"};

const char *an_comm_kind_verb(uint32_t kind)
{
    return kind < AN_COMM_N_KINDS ? kind_name[kind] : "exchanges";
}

/* ---- handles */

static an_status read_timeout(an_err *err, double *out)
{
    const char *text = getenv("ANNEAL_COMM_TIMEOUT");
    char *end;
    *out = AN_COMM_TIMEOUT_S;
    if (!text || !*text) return AN_OK;
    *out = strtod(text, &end);
    if (*end || !isfinite(*out) || !(*out > 0))
        return an_fail(err, AN_E_USAGE, "ANNEAL_COMM_TIMEOUT is %.40s; it is seconds, more than 0 (%d when not set)",
                       text, AN_COMM_TIMEOUT_S);
    return AN_OK;
}

an_status an_comm_handle(an_err *err, const an_comm_transport *transport, int rank, int ranks, an_comm **out)
{
    double timeout_s;
    AN_TRY(read_timeout(err, &timeout_s));
    an_comm *c = calloc(1, sizeof *c);
    if (!c) return an_fail_nomem(err, "the ranks of a job", sizeof *c);
    *c = (an_comm){.transport = transport, .rank = rank, .ranks = ranks, .file = -1, .timeout_s = timeout_s};
    *out = c;
    return AN_OK;
}

void an_comm_close(an_comm *c)
{
    if (!c) return;
    c->transport->close(c);
    free(c);
}

int an_comm_rank(const an_comm *c)
{
    return c ? c->rank : 0;
}

int an_comm_ranks(const an_comm *c)
{
    return c ? c->ranks : 1;
}

void an_comm_times(const an_comm *c, double *exchange_s, double *wait_s)
{
    *exchange_s = c ? c->exchange_s : 0;
    *wait_s = c ? c->wait_s : 0;
}

const char *an_comm_carrier(const an_comm *c)
{
    return c && c->transport->carrier ? c->transport->carrier(c) : "shared memory";
}

/* ---- failures */

void an_comm_fail(an_comm *c, int rank, an_status code, const char *sentence)
{
    if (c) c->transport->fail(c, rank, code, sentence);
}

int an_comm_failed_rank(const an_comm *c)
{
    return c ? c->transport->failed_rank(c) : -1;
}

bool an_comm_may_abort(const an_comm *c)
{
    return c && c->transport == &an_comm_mpi;
}

an_status an_comm_status(an_err *err, const an_comm *c)
{
    return c ? c->transport->status(err, c) : AN_OK;
}

an_status an_comm_watch(an_err *err, an_comm *c)
{
    return c ? c->transport->watch(err, c) : AN_OK;
}

/* ---- collectives */

static an_status end_exchange(an_comm *c, double began)
{
    c->exchange_s += an_seconds() - began;
    return AN_OK;
}

an_status an_comm_barrier(an_err *err, an_comm *c)
{
    return an_comm_ranks(c) == 1 ? AN_OK : c->transport->barrier(err, c);
}

an_status an_comm_sum(an_err *err, an_comm *c, an_dtype dtype, int64_t n, const void *in, void *out)
{
    if (dtype > AN_F64) return an_fail(err, AN_E_DTYPE, "ranks add floating point numbers only");
    if (an_comm_ranks(c) == 1) {
        if (in != out) memmove(out, in, (size_t)n * an_dtype_size(dtype));
        return AN_OK;
    }
    const double began = an_seconds();
    AN_TRY(c->transport->sum(err, c, dtype, n, in, out));
    return end_exchange(c, began);
}

an_status an_comm_reduce_scatter(an_err *err, an_comm *c, an_dtype dtype, int64_t n, const void *in, void *out)
{
    if (dtype > AN_F64) return an_fail(err, AN_E_DTYPE, "ranks add floating point numbers only");
    if (an_comm_ranks(c) == 1) {
        if (in != out) memmove(out, in, (size_t)n * an_dtype_size(dtype));
        return AN_OK;
    }
    const double began = an_seconds();
    AN_TRY(c->transport->reduce_scatter(err, c, dtype, n, in, out));
    return end_exchange(c, began);
}

an_status an_comm_sum_range(an_err *err, an_comm *c, an_dtype dtype, int64_t part, int64_t first, int64_t n,
                            const void *in, void *out)
{
    if (dtype > AN_F64) return an_fail(err, AN_E_DTYPE, "ranks add floating point numbers only");
    if (an_comm_ranks(c) == 1) {
        if (in != out) memmove(out, in, (size_t)n * an_dtype_size(dtype));
        return AN_OK;
    }
    const double began = an_seconds();
    AN_TRY(c->transport->sum_range(err, c, dtype, part, first, n, in, out));
    return end_exchange(c, began);
}

an_status an_comm_gather(an_err *err, an_comm *c, size_t bytes, const void *in, void *out)
{
    if (an_comm_ranks(c) == 1) {
        if (in != out) memmove(out, in, bytes);
        return AN_OK;
    }
    const double began = an_seconds();
    AN_TRY(c->transport->gather(err, c, bytes, in, out));
    return end_exchange(c, began);
}

an_status an_comm_broadcast(an_err *err, an_comm *c, int root, size_t bytes, void *data)
{
    if (an_comm_ranks(c) == 1) return AN_OK;
    const double began = an_seconds();
    AN_TRY(c->transport->broadcast(err, c, root, bytes, data));
    return end_exchange(c, began);
}

int64_t an_comm_range_of(int64_t part, int64_t first, int64_t n, int r, int64_t *from)
{
    const int64_t begin = AN_MAX(first, r * part), end = AN_MIN(first + n, (r + 1) * part);
    *from = begin - r * part;
    return AN_MAX(end - begin, 0);
}

an_status an_comm_gather_range(an_err *err, an_comm *c, size_t each, int64_t part, int64_t first, int64_t n,
                               const void *in, void *out)
{
    char *to = out;
    for (int r = 0; r < an_comm_ranks(c); r++) {
        int64_t from;
        const size_t bytes = (size_t)an_comm_range_of(part, first, n, r, &from) * each;
        if (!bytes) continue;
        if (r == an_comm_rank(c)) memcpy(to, (const char *)in + (size_t)from * each, bytes);
        AN_TRY(an_comm_broadcast(err, c, r, bytes, to));
        to += bytes;
    }
    return AN_OK;
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
        if (all[r] != all[0]) {
            const char *host = c->transport->host ? c->transport->host(c, r) : NULL;
            return an_fail(err, AN_E_USAGE,
                           "rank %d%s%s has other %s than rank 0; every rank must be started with the same", r,
                           host ? " on " : "", host ? host : "", what);
        }
    return AN_OK;
}
