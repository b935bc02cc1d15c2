/* nccl.c: sums and gathers between GPUs of one host, by NVIDIA's NCCL, on the device's stream: captured and replayed with
 * the rest of a plan.
 *
 * Owns:      NCCL's communicator. The first plan that exchanges makes it, on every rank at once: rank 0's identifier goes
 *            to the others through comm/. Where one rank fails, comm/ ends all.
 * Does not:  fix the order of a sum: NCCL's is the same for the same ranks, sizes and links (one algorithm is requested),
 *            but not that of the CPU. In exact mode plans gather instead, and add in an order of their own. */
#define _GNU_SOURCE
#include "comm/comm.h"
#include "device/cuda/cuda_internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { NCCL_UINT8 = 1, NCCL_F16 = 6, NCCL_F32 = 7, NCCL_F64 = 8, NCCL_BF16 = 9, NCCL_SUM = 0 };
enum { CONNECT_BYTES = 256 }; /* of a rank, in the first exchange */

static an_status check(an_err *err, const an_device *d, int r, const char *what)
{
    if (!r) return AN_OK;
    const char *text = d->nccl.error_text(r);
    return an_fail(err, AN_E_DEVICE, "cuda: NCCL: %s: %s; NCCL_DEBUG=WARN says more", what,
                   text ? text : "no reason given");
}

an_status an_cuda_join(an_err *err, an_device *d, struct an_comm *c)
{
    AN_TRY(an_nccl_find(err, &d->nccl));
    d->comm = c;
    return AN_OK;
}

/* NCCL's number for a dtype that it adds; graphs have no sums over ranks of others. */
static an_status type_of(an_err *err, an_dtype dtype, int *out)
{
    switch (dtype) {
    case AN_F64: *out = NCCL_F64; return AN_OK;
    case AN_F32: *out = NCCL_F32; return AN_OK;
    case AN_F16: *out = NCCL_F16; return AN_OK;
    case AN_BF16: *out = NCCL_BF16; return AN_OK;
    default: return an_fail(err, AN_E_INTERNAL, "cuda: a sum over ranks of %s", an_dtype_name(dtype));
    }
}

/* NCCL's calls that wait for the other ranks, without an end where one is gone. They have a thread of their own; the one that
 * waits for it looks at the ranks meanwhile. */
typedef struct joining {
    an_device *d; /* lives as long as the thread may: cuda_close */
    int rank, ranks;
    an_nccl_id id;
    cu_pointer memory;
    nccl_comm comm;
    an_status status;
    an_err err;
    atomic_bool done;
} joining;

/* The first exchange of each kind connects the GPUs, which allocates: before a plan is captured. */
static an_status exchange_once(an_err *err, const joining *j)
{
    const an_device *d = j->d;
    const cu_pointer all = j->memory, part = all + CONNECT_BYTES * (cu_pointer)j->rank;
    const size_t n = CONNECT_BYTES / 4;
    AN_TRY(check(err, d, d->nccl.sum(all, all, n, NCCL_F32, NCCL_SUM, j->comm, d->stream), "a sum"));
    AN_TRY(check(err, d, d->nccl.sum_part(all, part, n, NCCL_F32, NCCL_SUM, j->comm, d->stream), "a sum of parts"));
    AN_TRY(check(err, d, d->nccl.sum_at(all, all, n, NCCL_F32, NCCL_SUM, 0, j->comm, d->stream), "a sum"));
    AN_TRY(check(err, d, d->nccl.gather(part, all, CONNECT_BYTES, NCCL_UINT8, j->comm, d->stream), "a gather"));
    return check(err, d, d->nccl.send_all(all, all, CONNECT_BYTES, NCCL_UINT8, 0, j->comm, d->stream), "a broadcast");
}

static an_status join_all(an_err *err, joining *j)
{
    an_device *d = j->d;
    AN_TRY(an_cuda_enter(err, d)); /* a context is a thread's */
    AN_TRY(check(err, d, d->nccl.init(&j->comm, j->ranks, j->id, j->rank), "joining the GPUs of the ranks"));
    return exchange_once(err, j);
}

static void *join_in_thread(void *arg)
{
    joining *j = arg;
    j->status = join_all(&j->err, j);
    atomic_store(&j->done, true);
    return NULL;
}

/* Waits for the thread; where a rank is gone, for nothing: the thread then keeps what it has until the process ends. */
static an_status join(an_err *err, joining *j)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, join_in_thread, j) != 0)
        return an_fail(err, AN_E_ENV,
                       "cuda: a thread for NCCL cannot be started; raise the limit of processes (ulimit -u)");
    while (!atomic_load(&j->done)) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        if (an_comm_watch(err, j->d->comm) == AN_OK) continue;
        pthread_detach(thread);
        j->d->joining = true;
        return an_cuda_lose_ranks(err, j->d);
    }
    pthread_join(thread, NULL);
    j->d->nccl_comm = j->comm;
    if (j->status != AN_OK) *err = j->err;
    return j->status;
}

static an_status connect(an_err *err, an_device *d, joining *j)
{
    const size_t bytes = CONNECT_BYTES * (size_t)j->ranks;
    if (j->rank == 0) AN_TRY(check(err, d, d->nccl.identify(&j->id), "asking for an identifier"));
    AN_TRY(an_comm_broadcast(err, d->comm, 0, sizeof j->id, &j->id));
    AN_TRY(an_cuda_check(err, d, d->cu.memory_new(&j->memory, bytes), "taking %zu bytes for NCCL", bytes));
    an_status status = an_cuda_check(err, d, d->cu.fill(j->memory, 0, bytes, d->stream), "clearing memory");
    if (status == AN_OK) status = join(err, j);
    if (status == AN_OK) status = an_cuda_wait_stream(err, d, "connecting the GPUs");
    if (!d->hung) d->cu.memory_free(j->memory);
    return status;
}

an_status an_cuda_connect(an_err *err, an_device *d)
{
    if (d->nccl_comm) return AN_OK;
    if (an_comm_ranks(d->comm) == 1)
        return an_fail(err, AN_E_INTERNAL, "cuda: a plan of several ranks in a process alone");
    setenv("NCCL_ALGO", "Ring", 0); /* else it chooses by what it measures, and two runs may differ */
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    joining *j = calloc(1, sizeof *j);
    if (!j) return an_fail_nomem(err, "joining the GPUs of the ranks", sizeof *j);
    j->d = d;
    j->rank = an_comm_rank(d->comm);
    j->ranks = an_comm_ranks(d->comm);
    an_status status = connect(err, d, j);
    if (!d->joining) free(j);
    return status;
}

void an_cuda_leave(an_device *d)
{
    if (d->nccl_comm) d->nccl.abort(d->nccl_comm); /* destroy would wait for ranks that are gone */
    d->nccl_comm = NULL;
}

/* A range of an array in parts: each rank that has some of it sends that to all. */
static an_status gather_range(an_err *err, an_device *d, const an_library_call_spec *s, cu_pointer in, cu_pointer out)
{
    const size_t each = an_dtype_size((an_dtype)s->dtype);
    for (int r = 0; r < an_comm_ranks(d->comm); r++) {
        int64_t from;
        const size_t bytes = (size_t)an_comm_range_of(s->attr[1], s->attr[2], s->out[0].shape[0], r, &from) * each;
        if (!bytes) continue;
        const cu_pointer mine = r == an_comm_rank(d->comm) ? in + (cu_pointer)from * each : out; /* else not read */
        AN_TRY(
            check(err, d, d->nccl.send_all(mine, out, bytes, NCCL_UINT8, r, d->nccl_comm, d->stream), "a broadcast"));
        out += bytes;
    }
    return AN_OK;
}

/* Sums of a range of an array in parts: each rank that has some of it gets those, at `out`. */
static an_status sum_range(an_err *err, an_device *d, const an_library_call_spec *s, int type, cu_pointer in,
                           cu_pointer out)
{
    const size_t each = an_dtype_size((an_dtype)s->src[0].dtype);
    for (int r = 0; r < an_comm_ranks(d->comm); r++) {
        int64_t from;
        const size_t n = (size_t)an_comm_range_of(s->attr[2], s->attr[3], s->src[0].shape[0], r, &from);
        if (!n) continue;
        AN_TRY(check(err, d, d->nccl.sum_at(in, out, n, type, NCCL_SUM, r, d->nccl_comm, d->stream), "a sum of parts"));
        in += n * each;
    }
    return AN_OK;
}

an_status an_cuda_exchange(an_err *err, an_device *d, const an_library_call_spec *s, cu_pointer in, cu_pointer out)
{
    const an_call_tensor *x = &s->src[0];
    size_t n = 1;
    int type = -1;
    for (int i = 0; i < x->rank; i++) n *= (size_t)x->shape[i];
    if (!n) return AN_OK;
    if (s->op != AN_OP_ALLGATHER) AN_TRY(type_of(err, (an_dtype)x->dtype, &type));
    if (s->op == AN_OP_ALLREDUCE)
        return check(err, d, d->nccl.sum(in, out, n, type, NCCL_SUM, d->nccl_comm, d->stream), "a sum");
    if (s->op == AN_OP_REDUCESCATTER && s->attr[2] > 0) return sum_range(err, d, s, type, in, out);
    if (s->op == AN_OP_REDUCESCATTER)
        return check(err, d, d->nccl.sum_part(in, out, n / (size_t)s->attr[0], type, NCCL_SUM, d->nccl_comm, d->stream),
                     "a sum of parts");
    if (s->attr[1] > 0) return gather_range(err, d, s, in, out);
    const size_t bytes = n * an_dtype_size((an_dtype)x->dtype);
    return check(err, d, d->nccl.gather(in, out, bytes, NCCL_UINT8, d->nccl_comm, d->stream), "a gather");
}
