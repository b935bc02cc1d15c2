/* fake_nccl.h: NCCL as fake_cuda.c has it: included there and nowhere else. Nothing moves between processes: a rank's own values
 * stand for the result. What is checked: identifiers, memory, streams, use after the end; and each call is a line of
 * FAKE_NCCL_LOG.RANK, so that a test can compare what the ranks ask for. */
#ifndef AN_TESTS_FAKE_NCCL_H
#define AN_TESTS_FAKE_NCCL_H

typedef struct nccl_id {
    char bytes[128];
} nccl_id;
static struct nccl_state {
    int rank, ranks, open;
} nccl;

/* FAKE_NCCL_ALONE=N: the exchanges of graph N and of all that follow never end, as those of ranks that have lost another. */
static int waits_for_ranks(void)
{
    const char *alone = getenv("FAKE_NCCL_ALONE");
    return alone && nccl.open && state.graphs >= atoi(alone);
}

/* A driver's exit handlers wait for what runs on the GPU: exit() of such a process never returns. */
__attribute__((destructor)) static void end_of_the_process(void)
{
    if (waits_for_ranks()) sleep(60);
}

EXPORT const char *ncclGetErrorString(int r)
{
    return r ? "the stand-in refuses it" : "no error";
}
EXPORT int ncclGetVersion(int *out)
{
    *out = getenv("FAKE_NCCL_VERSION") ? atoi(getenv("FAKE_NCCL_VERSION")) : 22703;
    return 0;
}
EXPORT int ncclGetUniqueId(nccl_id *out)
{
    for (size_t i = 0; i < sizeof out->bytes; i++) out->bytes[i] = (char)(i * 7 + 1);
    return 0;
}
/* FAKE_NCCL_ABSENT: some rank never joins, and the library waits for it. That it does is told by the file of that name. */
static void wait_for_absent(int rank)
{
    char path[600];
    snprintf(path, sizeof path, "%s.%d", getenv("FAKE_NCCL_ABSENT"), rank);
    FILE *f = fopen(path, "w");
    if (f) fclose(f);
    sleep(600);
}
EXPORT int ncclCommInitRank(struct nccl_state **out, int ranks, nccl_id id, int rank)
{
    nccl_id want;
    if (getenv("FAKE_NCCL_ABSENT")) wait_for_absent(rank); /* other threads' calls go on */
    CALL("ncclCommInitRank");
    ncclGetUniqueId(&want);
    if (memcmp(&want, &id, sizeof id)) complain("ncclCommInitRank: rank %d has another identifier than rank 0", rank);
    if (nccl.open || rank < 0 || rank >= ranks || state.capturing) {
        complain("ncclCommInitRank: rank %d of %d, %s", rank, ranks,
                 nccl.open ? "twice" : "or while a stream is captured");
        DONE(5);
    }
    nccl = (struct nccl_state){rank, ranks, 1};
    *out = &nccl;
    DONE(0);
}
EXPORT int ncclCommAbort(struct nccl_state *c)
{
    CALL("ncclCommAbort");
    if (c != &nccl || !c->open) complain("ncclCommAbort of what is not open");
    if (waits_for_ranks()) complain("ncclCommAbort: it waits for graphs that wait for another rank");
    nccl.open = 0;
    DONE(0);
}
static int exchanges(const char *what, struct nccl_state *c, thing *s, uint64_t in, size_t n_in, uint64_t out,
                     size_t n_out)
{
    char path[600];
    if (c != &nccl || !c->open) return complain("%s: the communicator is not open", what), 0;
    if (getenv("FAKE_NCCL_US")) waits.lasts = atof(getenv("FAKE_NCCL_US"));
    if (!moves(what, s, in, NULL, n_in) || !memory_at(out, n_out)) return complain("%s: outside the memory", what), 0;
    if (getenv("FAKE_NCCL_LOG")) {
        snprintf(path, sizeof path, "%s.%d", getenv("FAKE_NCCL_LOG"), c->rank);
        FILE *f = fopen(path, "a");
        if (f) fprintf(f, "%s %zu to %zu%s\n", what, n_in, n_out, state.capturing ? " captured" : ""), fclose(f);
    }
    return 1;
}
EXPORT int ncclAllReduce(uint64_t in, uint64_t out, size_t n, int type, int how, struct nccl_state *c, thing *s)
{
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    CALL("ncclAllReduce");
    if (type < 6 || type > 9 || how) complain("ncclAllReduce: type %d, operation %d", type, how);
    const size_t bytes = type >= 0 && type <= 9 ? n * sizes[type] : 0;
    if (!exchanges("ncclAllReduce", c, s, in, bytes, out, bytes)) DONE(4);
    if (in != out && in < out + bytes && out < in + bytes)
        complain("ncclAllReduce: source and destination overlap in part");
    memmove((void *)(uintptr_t)out, (void *)(uintptr_t)in, bytes);
    DONE(0);
}
EXPORT int ncclReduceScatter(uint64_t in, uint64_t out, size_t n, int type, int how, struct nccl_state *c, thing *s)
{
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    CALL("ncclReduceScatter");
    if (type < 6 || type > 9 || how) complain("ncclReduceScatter: type %d, operation %d", type, how);
    const size_t bytes = type >= 0 && type <= 9 ? n * sizes[type] : 0;
    const uint64_t mine = in + (uint64_t)nccl.rank * bytes;
    if (!exchanges("ncclReduceScatter", c, s, in, bytes * (size_t)nccl.ranks, out, bytes)) DONE(4);
    if (out != mine && out < in + (uint64_t)nccl.ranks * bytes && in < out + bytes)
        complain("ncclReduceScatter: source and destination overlap elsewhere than in the rank's part");
    memmove((void *)(uintptr_t)out, (void *)(uintptr_t)mine, bytes);
    DONE(0);
}
EXPORT int ncclReduce(uint64_t in, uint64_t out, size_t n, int type, int how, int root, struct nccl_state *c, thing *s)
{
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    CALL("ncclReduce");
    if (type < 6 || type > 9 || how) complain("ncclReduce: type %d, operation %d", type, how);
    if (root < 0 || root >= nccl.ranks) complain("ncclReduce: to rank %d of %d", root, nccl.ranks);
    const size_t bytes = type >= 0 && type <= 9 ? n * sizes[type] : 0;
    if (!exchanges("ncclReduce", c, s, in, bytes, nccl.rank == root ? out : in, bytes)) DONE(4);
    if (nccl.rank == root && in != out && in < out + bytes && out < in + bytes)
        complain("ncclReduce: source and destination overlap in part");
    if (nccl.rank == root) memmove((void *)(uintptr_t)out, (void *)(uintptr_t)in, bytes);
    DONE(0);
}
EXPORT int ncclAllGather(uint64_t in, uint64_t out, size_t n, int type, struct nccl_state *c, thing *s)
{
    CALL("ncclAllGather");
    if (type != 1) complain("ncclAllGather: type %d", type);
    if (!exchanges("ncclAllGather", c, s, in, n, out, n * (size_t)nccl.ranks)) DONE(4);
    if (in != out + (uint64_t)nccl.rank * n && in < out + (uint64_t)nccl.ranks * n && out < in + n)
        complain("ncclAllGather: source and destination overlap elsewhere than in the rank's part");
    for (int r = 0; r < nccl.ranks; r++) memmove((char *)(uintptr_t)out + (size_t)r * n, (void *)(uintptr_t)in, n);
    DONE(0);
}
/* Another rank's values are zeros here. */
EXPORT int ncclBroadcast(uint64_t in, uint64_t out, size_t n, int type, int root, struct nccl_state *c, thing *s)
{
    CALL("ncclBroadcast");
    if (type != 1) complain("ncclBroadcast: type %d", type);
    if (root < 0 || root >= nccl.ranks) complain("ncclBroadcast: rank %d of %d sends", root, nccl.ranks);
    if (!exchanges("ncclBroadcast", c, s, nccl.rank == root ? in : out, n, out, n)) DONE(4);
    if (nccl.rank != root) {
        memset((void *)(uintptr_t)out, 0, n);
        DONE(0);
    }
    if (in != out && in < out + n && out < in + n) complain("ncclBroadcast: source and destination overlap in part");
    memmove((void *)(uintptr_t)out, (void *)(uintptr_t)in, n);
    DONE(0);
}

#endif
