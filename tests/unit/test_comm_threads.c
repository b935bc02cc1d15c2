/* test_comm_threads.c: ranks that share memory, as threads of one process: the thread sanitizer, which sees no races between processes,
 * then checks who writes and reads the slots when. Without it the sums alone are checked. */
#include "lib/test.h"

#include "comm/shared.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, ROUNDS = 12, MOST = 700001 }; /* floats: more than two slots hold */

typedef struct rank {
    an_comm *c;
    an_err err;
    float *in, *out;
    int wrong;
    an_status status;
} rank;

static float value(int r, int64_t i, int round)
{
    return (float)((i % 97) * (r + 1) + round);
}

static an_status add(rank *k, int64_t n, int round)
{
    for (int64_t i = 0; i < n; i++) k->in[i] = value(k->c->rank, i, round);
    AN_TRY(an_comm_sum(&k->err, k->c, AN_F32, n, k->in, k->out));
    for (int64_t i = 0; i < n; i++) {
        float sum = 0;
        for (int r = 0; r < RANKS; r++) sum += value(r, i, round);
        k->wrong += k->out[i] != sum;
    }
    return AN_OK;
}

static an_status add_parts(rank *k, int64_t n, int round)
{
    const int mine = k->c->rank;
    for (int64_t i = 0; i < n * RANKS; i++) k->in[i] = value(mine, i, round);
    AN_TRY(an_comm_reduce_scatter(&k->err, k->c, AN_F32, n, k->in, k->out));
    for (int64_t i = 0; i < n; i++) {
        float sum = 0;
        for (int r = 0; r < RANKS; r++) sum += value(r, mine * n + i, round);
        k->wrong += k->out[i] != sum;
    }
    return AN_OK;
}

static an_status gather(rank *k, int64_t n, int round)
{
    for (int64_t i = 0; i < n; i++) k->in[i] = value(k->c->rank, i, round);
    AN_TRY(an_comm_gather(&k->err, k->c, (size_t)n * sizeof *k->in, k->in, k->out));
    for (int64_t i = 0; i < n * RANKS; i++) k->wrong += k->out[i] != value((int)(i / n), i % n, round);
    return AN_OK;
}

static an_status broadcast(rank *k, int64_t n, int round)
{
    const int root = round % RANKS;
    for (int64_t i = 0; i < n; i++) k->out[i] = k->c->rank == root ? value(root, i, round) : -1;
    AN_TRY(an_comm_broadcast(&k->err, k->c, root, (size_t)n * sizeof *k->out, k->out));
    for (int64_t i = 0; i < n; i++) k->wrong += k->out[i] != value(root, i, round);
    return AN_OK;
}

static an_status all_collectives(rank *k)
{
    static const int64_t sizes[] = {1, 63, 64, 4096, 100003, MOST / RANKS};
    for (int round = 0; round < ROUNDS; round++) {
        const int64_t n = sizes[round % (int)AN_COUNT(sizes)];
        AN_TRY(add(k, n, round));
        AN_TRY(gather(k, n, round));
        AN_TRY(broadcast(k, n, round));
        AN_TRY(add_parts(k, n, round));
        AN_TRY(an_comm_barrier(&k->err, k->c));
        AN_TRY(add(k, n, round)); /* the same slots, read by the others until they come here */
    }
    return AN_OK;
}

static void *run_all(void *arg)
{
    rank *k = arg;
    k->status = all_collectives(k);
    return NULL;
}

/* Rank 1 fails while the others wait for it. */
static void *run_with_failure(void *arg)
{
    rank *k = arg;
    k->status = an_comm_barrier(&k->err, k->c);
    if (k->c->rank == 1) an_comm_fail(k->c, 1, AN_E_IO, "the disk is full");
    k->status = k->c->rank == 1 ? an_comm_status(&k->err, k->c) : an_comm_barrier(&k->err, k->c);
    return NULL;
}

static void in_threads(void *(*body)(void *), rank k[RANKS])
{
    an_err err = {0};
    an_comm *first;
    pthread_t thread[RANKS];
    assert_int_equal(an_comm_new(&err, RANKS, &first), AN_OK);
    for (int r = 0; r < RANKS; r++) {
        k[r] = (rank){.in = malloc(MOST * sizeof(float)), .out = malloc(MOST * sizeof(float))};
        assert_true(k[r].in && k[r].out);
        assert_int_equal(an_comm_wrap(&err, first->shared, first->bytes, r, RANKS, &k[r].c), AN_OK);
        atomic_store(&first->shared->member[r].present, 1);
    }
    for (int r = 0; r < RANKS; r++) assert_int_equal(pthread_create(&thread[r], NULL, body, &k[r]), 0);
    for (int r = 0; r < RANKS; r++) assert_int_equal(pthread_join(thread[r], NULL), 0);
    for (int r = 0; r < RANKS; r++) {
        free(k[r].in);
        free(k[r].out);
        k[r].c->shared = NULL; /* `first` unmaps it */
        an_comm_close(k[r].c);
    }
    an_comm_close(first);
}

static void every_collective_is_right_with_ranks_as_threads(void **state)
{
    rank k[RANKS];
    (void)state;
    in_threads(run_all, k);
    for (int r = 0; r < RANKS; r++) {
        if (k[r].status != AN_OK) fail_msg("rank %d: %s", r, k[r].err.text);
        assert_int_equal(k[r].wrong, 0);
    }
}

static void a_failure_reaches_ranks_that_wait(void **state)
{
    rank k[RANKS];
    (void)state;
    in_threads(run_with_failure, k);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(k[r].status, AN_E_IO);
        assert_string_equal(k[r].err.text, r == 1 ? "the disk is full" : "rank 1: the disk is full");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_is_right_with_ranks_as_threads),
        cmocka_unit_test(a_failure_reaches_ranks_that_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
