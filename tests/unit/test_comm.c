/* test_comm.c: ranks in processes of their own: sums in rank order with the same bits everywhere, exchanges of any size,
 * failures that reach every rank, jobs that another program started. The same over MPI, by both families of libraries: mpirun
 * starts this program again, with the name of a case. */
#define _DEFAULT_SOURCE
#include "lib/test.h"

#include "comm/shared.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int rank_fn(an_comm *c, int rank, int ranks); /* returns an exit code: 0 is success */

/* Runs fn in as many processes; codes[r] is its exit code, 128 + n after signal n. */
static void run_ranks(int ranks, rank_fn *fn, int *codes)
{
    an_err err = {0};
    an_comm *c;
    pid_t pid[AN_COMM_RANKS];
    assert_int_equal(an_comm_new(&err, ranks, &c), AN_OK);
    fflush(NULL);
    for (int r = 0; r < ranks; r++)
        if ((pid[r] = fork()) == 0) {
            alarm(60);
            an_comm_become(c, r);
            const int code = fn(c, r, ranks);
            an_comm_close(c);
            _exit(code);
        }
    for (int r = 0; r < ranks; r++) {
        int status;
        assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
        codes[r] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    an_comm_close(c);
}

static void all_succeed(int ranks, rank_fn *fn)
{
    int codes[AN_COMM_RANKS];
    run_ranks(ranks, fn, codes);
    for (int r = 0; r < ranks; r++)
        if (codes[r]) fail_msg("rank %d of %d ended with %d", r, ranks, codes[r]);
}

/* Element i of a rank's array: sizes that make the order of additions show. */
static double value(int rank, int64_t i)
{
    const uint64_t h = (uint64_t)(i + 1) * 0x9E3779B97F4A7C15u ^ (uint64_t)(rank + 1) * 0xD1B54A32D192ED03u;
    return ((double)(h >> 40) - 8e6) * (h & 1 ? 1e-3 : h & 2 ? 1e6 : 1);
}

static int check_sum(an_comm *c, int rank, int ranks, an_dtype dtype, int64_t n)
{
    an_err err = {0};
    const size_t each = an_dtype_size(dtype);
    char *x = malloc((size_t)n * each + 1);
    int bad = x == NULL;
    for (int64_t i = 0; i < n && !bad; i++)
        if (dtype == AN_F64)
            ((double *)(void *)x)[i] = value(rank, i);
        else
            ((float *)(void *)x)[i] = (float)value(rank, i);
    if (!bad) bad = an_comm_sum(&err, c, dtype, n, x, x) != AN_OK;
    for (int64_t i = 0; i < n && !bad; i++) {
        double sum = value(0, i);
        float sum32 = (float)sum;
        for (int r = 1; r < ranks; r++) sum += value(r, i), sum32 += (float)value(r, i);
        bad = dtype == AN_F64 ? ((double *)(void *)x)[i] != sum : ((float *)(void *)x)[i] != sum32;
    }
    free(x);
    return bad;
}

/* Each rank's part of a sum has the bits that the whole has there. */
static int check_parts(an_comm *c, int rank, int ranks, an_dtype dtype, int64_t part)
{
    an_err err = {0};
    const size_t each = an_dtype_size(dtype), bytes = (size_t)(part * ranks) * each;
    char *x = malloc(bytes + 1), *whole = malloc(bytes + 1), *mine = malloc((size_t)part * each + 1);
    int bad = !x || !whole || !mine;
    for (int64_t i = 0; i < part * ranks && !bad; i++)
        if (dtype == AN_F64)
            ((double *)(void *)x)[i] = value(rank, i);
        else if (dtype == AN_F32)
            ((float *)(void *)x)[i] = (float)value(rank, i);
        else
            ((uint16_t *)(void *)x)[i] = (uint16_t)(0x3c00 + (i * 7 + rank * 31) % 900);
    if (!bad) bad = an_comm_sum(&err, c, dtype, part * ranks, x, whole) != AN_OK;
    if (!bad) bad = an_comm_reduce_scatter(&err, c, dtype, part, x, mine) != AN_OK;
    if (!bad) bad = memcmp(mine, whole + (size_t)(rank * part) * each, (size_t)part * each) != 0;
    free(mine);
    free(whole);
    free(x);
    return bad;
}

/* A range of an array in parts, of which each rank gets the sums that are of its part: those of an_comm_sum. */
static int check_sums_of_range(an_comm *c, int rank, an_dtype dtype, int64_t part, int64_t first, int64_t n)
{
    an_err err = {0};
    const size_t each = an_dtype_size(dtype);
    char *x = malloc((size_t)n * each + 1), *whole = malloc((size_t)n * each + 1), *mine = malloc((size_t)n * each + 1);
    int64_t from, before = 0;
    const int64_t own = an_comm_range_of(part, first, n, rank, &from);
    int bad = !x || !whole || !mine;
    for (int r = 0; r < rank; r++) before += an_comm_range_of(part, first, n, r, &from);
    for (int64_t i = 0; i < n && !bad; i++)
        if (dtype == AN_F32)
            ((float *)(void *)x)[i] = (float)((i * 7 + rank * 31) % 1000) / 3;
        else
            ((uint16_t *)(void *)x)[i] = (uint16_t)(0x3c00 + (i * 7 + rank * 31) % 900);
    if (!bad) memset(mine, 0x5a, (size_t)n * each);
    if (!bad) bad = an_comm_sum(&err, c, dtype, n, x, whole) != AN_OK;
    if (!bad) bad = an_comm_sum_range(&err, c, dtype, part, first, n, x, mine) != AN_OK;
    if (!bad) bad = memcmp(mine, whole + (size_t)before * each, (size_t)own * each) != 0;
    for (int64_t i = own * (int64_t)each; i < n * (int64_t)each && !bad; i++) bad = mine[i] != 0x5a; /* and no more */
    free(mine);
    free(whole);
    free(x);
    return bad;
}

static int sums_of_ranges(an_comm *c, int rank, int ranks)
{
    srand(5);
    if (check_sums_of_range(c, rank, AN_F32, 300000, 0, 300000 * ranks)) return 1; /* of several messages */
    if (check_sums_of_range(c, rank, AN_F32, 700000, 600000, 700000 * ranks - 600000)) return 2;
    for (int i = 0; i < 60; i++) {
        const int64_t part = 1 + rand() % 500, first = rand() % (part * ranks), n = rand() % (part * ranks - first + 1);
        if (check_sums_of_range(c, rank, i % 2 ? AN_F32 : AN_BF16, part, first, n)) return 3;
    }
    return 0;
}

static void each_rank_gets_the_sums_of_a_range_that_are_of_its_part(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 5; ranks++) all_succeed(ranks, sums_of_ranges);
}

static int parts(an_comm *c, int rank, int ranks)
{
    static const int64_t lengths[] = {0, 1, 7, 64, 65, 1000, 65536, 262145, 600001};
    static const an_dtype dtypes[] = {AN_F32, AN_F64, AN_BF16, AN_F16};
    for (size_t i = 0; i < AN_COUNT(lengths); i++)
        for (size_t t = 0; t < AN_COUNT(dtypes); t++)
            if (check_parts(c, rank, ranks, dtypes[t], lengths[i])) return 1 + (int)(i * AN_COUNT(dtypes) + t);
    return 0;
}

static void each_rank_gets_its_part_of_a_sum(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 5; ranks++) all_succeed(ranks, parts);
}

/* A range of an array in parts: element i is i, whoever has it. */
static int check_range(an_comm *c, int rank, int64_t part, int64_t first, int64_t n)
{
    an_err err = {0};
    int32_t *mine = malloc((size_t)part * sizeof *mine + 1), *range = malloc((size_t)n * sizeof *range + 1);
    int bad = !mine || !range;
    for (int64_t i = 0; i < part && !bad; i++) mine[i] = (int32_t)(rank * part + i);
    if (!bad) bad = an_comm_gather_range(&err, c, sizeof *mine, part, first, n, mine, range) != AN_OK;
    for (int64_t i = 0; i < n && !bad; i++) bad = range[i] != first + i;
    free(range);
    free(mine);
    return bad;
}

static int ranges(an_comm *c, int rank, int ranks)
{
    srand(11);
    if (check_range(c, rank, 300000, 0, 300000 * ranks)) return 1; /* of several messages */
    for (int i = 0; i < 60; i++) {
        const int64_t part = 1 + rand() % 500, first = rand() % (part * ranks), n = rand() % (part * ranks - first + 1);
        if (check_range(c, rank, part, first, n)) return 2;
    }
    return 0;
}

static void a_range_of_an_array_in_parts_is_gathered_from_those_that_have_it(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 5; ranks++) all_succeed(ranks, ranges);
}

static int sums(an_comm *c, int rank, int ranks)
{
    static const int64_t lengths[] = {0, 1, 7, 64, 65, 1000, 262144, 262145, 600001};
    for (size_t i = 0; i < AN_COUNT(lengths); i++) {
        if (check_sum(c, rank, ranks, AN_F32, lengths[i])) return 1;
        if (check_sum(c, rank, ranks, AN_F64, lengths[i])) return 2;
    }
    srand(7);
    for (int i = 0; i < 40; i++)
        if (check_sum(c, rank, ranks, AN_F32, rand() % 300000)) return 3;
    return 0;
}

static void a_sum_adds_the_ranks_in_order_and_every_rank_has_the_same_bits(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 5; ranks++) all_succeed(ranks, sums);
}

static int sixteen_bits(an_comm *c, int rank, int ranks)
{
    an_err err = {0};
    uint16_t x[3] = {rank == 0 ? 0x3f80 : 0x3b80, 0x8000, 0x7f80}; /* bf16: 1 and 2^-8; -0; infinity */
    if (an_comm_sum(&err, c, AN_BF16, 3, x, x)) return 1;
    /* 1 + 2 * 2^-8 is a bf16 number, reached only where the sum is kept in float32 */
    return ranks == 3 && x[0] == 0x3f81 && x[1] == 0x8000 && x[2] == 0x7f80 ? 0 : 2;
}

static void sixteen_bit_numbers_are_added_in_float32_and_rounded_once(void **state)
{
    (void)state;
    all_succeed(3, sixteen_bits);
}

static int copies(an_comm *c, int rank, int ranks)
{
    static const size_t lengths[] = {0, 1, 4096, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3000001};
    an_err err = {0};
    for (size_t i = 0; i < AN_COUNT(lengths); i++) {
        const size_t n = lengths[i];
        unsigned char *mine = malloc(n + 1), *all = malloc(n * (size_t)ranks + 1);
        int bad = !mine || !all;
        if (!bad) memset(mine, 'a' + rank, n + 1);
        if (!bad) bad = an_comm_gather(&err, c, n, mine, all) != AN_OK;
        for (size_t k = 0; k < n * (size_t)ranks && !bad; k++) bad = all[k] != 'a' + k / n;
        if (!bad) bad = an_comm_broadcast(&err, c, ranks - 1, n, mine) != AN_OK;
        for (size_t k = 0; k < n && !bad; k++) bad = mine[k] != 'a' + ranks - 1;
        free(mine);
        free(all);
        if (bad) return 1;
    }
    bool any;
    if (an_comm_any(&err, c, rank == 1, &any) || any != (ranks > 1)) return 2;
    if (an_comm_any(&err, c, false, &any) || any) return 3;
    return an_comm_barrier(&err, c) ? 4 : 0;
}

static void gathers_and_broadcasts_of_any_size_arrive_whole(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++) all_succeed(ranks, copies);
}

/* ---- failures: a code of 0 means that the sentence was the expected one */

/* Over MPI a host stands between the two. */
static bool says(const an_err *err, const char *who, const char *what)
{
    const char *at = strstr(err->text, who);
    return at && strstr(at, what);
}

static int fails(an_comm *c, int rank, int ranks)
{
    an_err err = {0};
    (void)ranks;
    if (rank == 1 && an_comm_barrier(&err, c)) return 1;
    if (rank == 1) {
        an_comm_fail(c, 1, AN_E_NUMERIC, "the loss is nan");
        an_comm_fail(c, 1, AN_E_IO, "and then this");
        return 0;
    }
    for (int i = 0; i < 1000; i++)
        if (an_comm_barrier(&err, c) != AN_OK)
            return err.code == AN_E_NUMERIC && says(&err, "rank 1", ": the loss is nan") ? 0 : 2;
    return 3;
}

static void the_first_failure_reaches_every_rank_with_its_rank_and_sentence(void **state)
{
    (void)state;
    all_succeed(4, fails);
}

static int leaves(an_comm *c, int rank, int ranks)
{
    an_err err = {0};
    (void)ranks;
    if (rank == 2) return 0;
    return an_comm_barrier(&err, c) == AN_E_ENV && says(&err, "rank 2", " has ended without a word") ? 0 : 1;
}

static int differs(an_comm *c, int rank, int ranks)
{
    an_err err = {0};
    float x[8] = {0};
    (void)ranks;
    return an_comm_sum(&err, c, AN_F32, rank == 1 ? 7 : 8, x, x) == AN_E_USAGE && strstr(err.text, " 28") &&
                   strstr(err.text, " 32")
               ? 0
               : 1;
}

static int differs_in_kind(an_comm *c, int rank, int ranks)
{
    an_err err = {0};
    float x[1] = {0}, all[8];
    (void)ranks;
    an_status status = rank ? an_comm_gather(&err, c, 4, x, all) : an_comm_sum(&err, c, AN_F32, 1, x, x);
    return status == AN_E_USAGE && strstr(err.text, "adds 4") && strstr(err.text, "gathers 4") ? 0 : 1;
}

static int hangs(an_comm *c, int rank, int ranks)
{
    an_err err = {0};
    (void)ranks;
    if (rank == 0) sleep(4);
    return an_comm_barrier(&err, c) == AN_E_ENV && says(&err, "for rank 0", ", which hangs") ? 0 : 1;
}

static int disagrees(an_comm *c, int rank, int ranks)
{
    an_err err = {0};
    (void)ranks;
    if (an_comm_agree(&err, c, "same", 4, "settings")) return 1;
    return an_comm_agree(&err, c, rank == 1 ? "othr" : "same", 4, "data") == AN_E_USAGE &&
                   says(&err, "rank 1", " has other data than rank 0")
               ? 0
               : 2;
}

static int is_killed_while_it_fails(an_comm *c, int rank, int ranks)
{
    an_err err = {0};
    (void)ranks;
    if (rank == 1) {
        atomic_store(&c->shared->claimed, 1); /* as an_comm_fail, which then writes the sentence */
        raise(SIGKILL);
    }
    return an_comm_barrier(&err, c) == AN_E_ENV && says(&err, "for rank 1", ", which hangs") ? 0 : 1;
}

static void a_rank_that_is_killed_while_it_says_that_it_failed_ends_the_others(void **state)
{
    (void)state;
    int codes[AN_COMM_RANKS];
    setenv("ANNEAL_COMM_TIMEOUT", "1", 1);
    run_ranks(2, is_killed_while_it_fails, codes);
    unsetenv("ANNEAL_COMM_TIMEOUT");
    assert_int_equal(codes[0], 0);
    assert_int_equal(codes[1], 128 + SIGKILL);
}

static void a_rank_that_leaves_hangs_or_does_something_else_is_named_on_every_rank(void **state)
{
    (void)state;
    all_succeed(3, leaves);
    all_succeed(3, differs);
    all_succeed(2, differs_in_kind);
    all_succeed(3, disagrees);
    setenv("ANNEAL_COMM_TIMEOUT", "1", 1);
    all_succeed(2, hangs);
    unsetenv("ANNEAL_COMM_TIMEOUT");
}

/* ---- jobs of other programs */

static const char *const variables[] = {"RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_RANK",
                                        "LOCAL_WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "PMI_FD",
                                        "SLURM_PROCID",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_LOCALID",
                                        "SLURM_STEP_ID",
                                        "SLURM_STEP_NUM_NODES",
                                        "SLURM_JOB_ID",
                                        "SLURM_NTASKS"};

static void clear_environment(void)
{
    for (size_t i = 0; i < AN_COUNT(variables); i++) unsetenv(variables[i]);
}

static void the_variables_of_torchrun_srun_and_mpirun_are_understood(void **state)
{
    (void)state;
    an_err err = {0};
    an_comm_job j;
    an_comm *c;
    clear_environment();
    assert_int_equal(an_comm_job_read(&err, &j), AN_OK);
    assert_int_equal(j.ranks, 1);
    setenv("SLURM_PROCID", "0", 1), setenv("SLURM_NTASKS", "4", 1); /* a batch script outside of a step */
    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    assert_int_equal(an_comm_job_read(&err, &j), AN_OK);
    assert_int_equal(j.ranks, 1);
    setenv("SLURM_STEP_ID", "3", 1), setenv("SLURM_PROCID", "2", 1), setenv("SLURM_LOCALID", "2", 1);
    assert_int_equal(an_comm_job_read(&err, &j), AN_OK);
    assert_true(j.ranks == 4 && j.rank == 2 && j.local_rank == 2 && strcmp(j.launcher, "srun") == 0);
    assert_true(j.mpi && !j.several_hosts);
    setenv("SLURM_STEP_NUM_NODES", "2", 1);
    assert_int_equal(an_comm_job_read(&err, &j), AN_OK);
    assert_true(j.several_hosts);
    assert_int_equal(an_comm_join(&err, &j, &c), AN_E_UNSUPPORTED); /* not through shared memory */
    assert_non_null(strstr(err.text, "transport=mpi"));
    an_err_clear(&err);
    clear_environment();
    setenv("WORLD_SIZE", "2", 1);
    an_err_clear(&err);
    assert_int_equal(an_comm_job_read(&err, &j), AN_E_USAGE); /* which one? */
    setenv("RANK", "2", 1);
    assert_int_equal(an_comm_job_read(&err, &j), AN_E_USAGE);
    setenv("RANK", "one", 1);
    assert_int_equal(an_comm_job_read(&err, &j), AN_E_USAGE);
    setenv("RANK", "1", 1), setenv("LOCAL_WORLD_SIZE", "1", 1);
    an_err_clear(&err);
    assert_int_equal(an_comm_job_read(&err, &j), AN_OK);
    assert_true(j.several_hosts && !j.mpi);
    assert_int_equal(an_comm_join_mpi(&err, &j, &c), AN_E_UNSUPPORTED); /* torchrun starts no processes of MPI */
    assert_non_null(strstr(err.text, "mpirun -n 2"));
    for (int bad = 0; bad < 4; bad += 3) { /* more ranks on this host than in all, or none */
        setenv("LOCAL_WORLD_SIZE", bad ? "3" : "0", 1);
        an_err_clear(&err);
        assert_int_equal(an_comm_job_read(&err, &j), AN_E_USAGE);
        assert_non_null(strstr(err.text, "contradict"));
    }
    setenv("LOCAL_WORLD_SIZE", "2", 1);
    assert_int_equal(an_comm_job_read(&err, &j), AN_OK);
    assert_true(j.ranks == 2 && j.rank == 1 && strcmp(j.launcher, "torchrun") == 0);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1), setenv("OMPI_COMM_WORLD_RANK", "1", 1); /* a script that hands them on */
    assert_int_equal(an_comm_job_read(&err, &j), AN_OK);
    an_err_clear(&err);
    setenv("OMPI_COMM_WORLD_RANK", "0", 1); /* RANK was exported, so that all are rank 1 */
    assert_int_equal(an_comm_job_read(&err, &j), AN_E_USAGE);
    assert_non_null(strstr(err.text, "RANK=1 of WORLD_SIZE=2 and OMPI_COMM_WORLD_RANK=0 of OMPI_COMM_WORLD_SIZE=2"));
    an_err_clear(&err);
    clear_environment();
}

enum { JOB_RANKS = 3 };

/* A rank of a job without a parent that watches: `how` 0 exchanges, 1 is killed as rank 1. */
static int be_of_job(int rank, int how, const char *key)
{
    an_err err = {0};
    an_comm_job j = {.rank = rank, .ranks = JOB_RANKS, .local_rank = rank, .launcher = "a test"};
    an_comm *c;
    snprintf(j.key, sizeof j.key, "%s", key);
    alarm(60);
    if (rank == 0) usleep(100000); /* the others are there first, and may find a file of before */
    if (an_comm_join(&err, &j, &c) != AN_OK) return fprintf(stderr, "# %s\n", err.text), 1;
    if (check_sum(c, rank, JOB_RANKS, AN_F32, 500000)) return 2;
    if (how == 1 && rank == 1) raise(SIGKILL);
    if (how == 1 && rank == 2) /* as a rank whose GPU waits for the others: it asks, and does not come to an exchange */
        while (an_comm_watch(&err, c) == AN_OK) usleep(1000);
    if (how == 1)
        return an_comm_barrier(&err, c) == AN_E_ENV && strstr(err.text, "rank 1 has ended without a word") ? 0 : 3;
    an_comm_close(c);
    return 0;
}

static void a_second_rank_0_of_a_job_is_refused_and_the_first_goes_on(void **state)
{
    an_err err = {0};
    an_comm_job j = {.rank = 0, .ranks = 2, .launcher = "a test"};
    an_comm *c;
    char key[sizeof j.key];
    (void)state;
    snprintf(key, sizeof key, "twice/%ld", (long)getpid());
    memcpy(j.key, key, sizeof key);
    setenv("ANNEAL_COMM_TIMEOUT", "30", 1);
    const pid_t first = fork();
    if (first == 0) _exit(an_comm_join(&err, &j, &c) != AN_OK || an_comm_barrier(&err, c) != AN_OK);
    usleep(500000); /* the first one is there */
    assert_int_equal(an_comm_join(&err, &j, &c), AN_E_USAGE);
    assert_non_null(strstr(err.text, "two processes say that they are rank 0"));
    an_err_clear(&err);
    j.rank = 1;
    assert_int_equal(an_comm_join(&err, &j, &c), AN_OK);
    assert_int_equal(an_comm_barrier(&err, c), AN_OK);
    an_comm_close(c);
    unsetenv("ANNEAL_COMM_TIMEOUT");
    int code;
    assert_int_equal(waitpid(first, &code, 0), first);
    assert_int_equal(code, 0);
}

static void a_second_rank_1_of_a_job_is_refused_and_the_first_goes_on(void **state)
{
    an_err err = {0};
    an_comm_job j = {.rank = 0, .ranks = 3, .launcher = "a test"};
    an_comm *c;
    pid_t pid[2];
    (void)state;
    snprintf(j.key, sizeof j.key, "second/%ld", (long)getpid());
    setenv("ANNEAL_COMM_TIMEOUT", "30", 1);
    for (int r = 0; r < 2; r++) {
        j.rank = r;
        if ((pid[r] = fork()) == 0) _exit(an_comm_join(&err, &j, &c) != AN_OK || an_comm_barrier(&err, c) != AN_OK);
    }
    usleep(500000); /* both are there, and wait for rank 2 */
    assert_int_equal(an_comm_join(&err, &j, &c), AN_E_USAGE);
    assert_non_null(strstr(err.text, "two processes say that they are rank 1"));
    an_err_clear(&err);
    j.rank = 2;
    assert_int_equal(an_comm_join(&err, &j, &c), AN_OK);
    usleep(100000); /* the others wait in the barrier, and look at those that are missing */
    assert_int_equal(an_comm_barrier(&err, c), AN_OK);
    an_comm_close(c);
    unsetenv("ANNEAL_COMM_TIMEOUT");
    for (int r = 0; r < 2; r++) {
        int code;
        assert_int_equal(waitpid(pid[r], &code, 0), pid[r]);
        assert_int_equal(code, 0);
    }
}

static void ranks_that_another_program_started_find_one_another_and_notice_a_killed_one(void **state)
{
    (void)state;
    char key[64];
    snprintf(key, sizeof key, "test_comm/%ld", (long)getpid());
    for (int how = 0; how < 3; how++) { /* the last meets again where one was killed */
        pid_t pid[JOB_RANKS];
        fflush(NULL);
        for (int r = 0; r < JOB_RANKS; r++)
            if ((pid[r] = fork()) == 0) _exit(be_of_job(r, how % 2, key));
        for (int r = 0; r < JOB_RANKS; r++) {
            int status;
            assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
            if (how == 1 && r == 1)
                assert_true(WIFSIGNALED(status));
            else if (!WIFEXITED(status) || WEXITSTATUS(status))
                fail_msg("round %d: rank %d ended with %d", how, r, status);
        }
    }
}

static void more_ranks_than_a_host_runs_and_a_timeout_of_nonsense_are_refused(void **state)
{
    (void)state;
    an_err err = {0};
    an_comm *c;
    assert_int_equal(an_comm_new(&err, AN_COMM_RANKS + 1, &c), AN_E_USAGE);
    assert_null(c);
    setenv("ANNEAL_COMM_TIMEOUT", "soon", 1);
    assert_int_equal(an_comm_new(&err, 2, &c), AN_E_USAGE);
    unsetenv("ANNEAL_COMM_TIMEOUT");
}

/* ---- MPI */

static int mixed_order(an_comm *c, int rank, int ranks)
{
    an_err err = {0};
    srand(11); /* the same on every rank */
    for (int i = 0; i < 80; i++) {
        const int64_t n = rand() % 3 ? rand() % 40 : rand() % 1500000;
        char data[40];
        bool any;
        switch (rand() % 5) {
        case 0:
            if (check_sum(c, rank, ranks, i % 2 ? AN_F32 : AN_F64, n)) return 1;
            break;
        case 1:
            if (check_parts(c, rank, ranks, (an_dtype[]){AN_F32, AN_F64, AN_BF16, AN_F16}[i % 4], n / ranks)) return 2;
            break;
        case 2:
            memset(data, rank == i % ranks ? 'x' : 'y', sizeof data);
            if (an_comm_broadcast(&err, c, i % ranks, sizeof data, data) || data[39] != 'x') return 3;
            break;
        case 3:
            if (an_comm_any(&err, c, rank == i % (ranks + 1), &any) || any != (i % (ranks + 1) < ranks)) return 4;
            break;
        default:
            if (an_comm_barrier(&err, c)) return 5;
        }
    }
    return 0;
}

static const struct {
    const char *name;
    rank_fn *fn;
    int only; /* with so many ranks; 0: any */
} mpi_cases[] = {{"sums", sums, 0},           {"parts", parts, 0},       {"copies", copies, 0},
                 {"mixed", mixed_order, 0},   {"bits", sixteen_bits, 3}, {"fails", fails, 4},
                 {"leaves", leaves, 3},       {"differs", differs, 3},   {"kinds", differs_in_kind, 2},
                 {"disagrees", disagrees, 3}, {"hangs", hangs, 2}};

/* A rank of mpirun: all cases that succeed in one job, or one that fails. */
static int be_of_mpi(const char *name)
{
    an_err err = {0};
    an_comm_job j;
    an_comm *c;
    int code = 1;
    alarm(120);
    if (an_comm_job_read(&err, &j) != AN_OK || !j.mpi || an_comm_join_mpi(&err, &j, &c) != AN_OK)
        return fprintf(stderr, "# %s\n", err.text), 99;
    const int rank = an_comm_rank(c), ranks = an_comm_ranks(c);
    if (rank != j.rank || ranks != j.ranks) return 98;
    for (size_t i = 0; i < AN_COUNT(mpi_cases); i++)
        if (strcmp(name, mpi_cases[i].name) == 0) code = mpi_cases[i].fn(c, rank, ranks);
    if (strcmp(name, "all") == 0)
        code = sums(c, rank, ranks) * 100 + parts(c, rank, ranks) * 10 + copies(c, rank, ranks) * 10 +
               mixed_order(c, rank, ranks);
    if (code) fprintf(stderr, "# case %s: rank %d of %d: %d\n", name, rank, ranks, code);
    if (code == 0) printf("rank %d is done\n", rank), fflush(stdout);
    an_comm_close(c);
    return code != 0;
}

static const char *program;

/* Every rank says that it is done, whatever code the launcher ends with. */
static void mpirun(const char *launcher, const char *name, int ranks)
{
    char command[1024], line[200];
    int done = 0;
    snprintf(
        command, sizeof command,
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 timeout 150 %s "
        "-n %d '%s' %s 2>/tmp/anneal-test-comm.%ld",
        launcher, ranks, program, name, (long)getpid());
    FILE *f = popen(command, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) done += strstr(line, "is done") != NULL;
    const int code = pclose(f);
    snprintf(command, sizeof command, "grep '^#' /tmp/anneal-test-comm.%ld >&2; rm -f /tmp/anneal-test-comm.%ld",
             (long)getpid(), (long)getpid());
    if (system(command) != 0) print_message("# nothing was said\n");
    if (done != ranks) fail_msg("%s, %s: %d of %d ranks are done, code %d", launcher, name, done, ranks, code);
}

static void over_mpi(const char *launcher)
{
    char command[200];
    snprintf(command, sizeof command, "command -v %s timeout >/dev/null 2>&1", launcher);
    if (system(command) != 0) test_skip("its launcher is not installed");
    for (int ranks = 2; ranks <= 4; ranks++) mpirun(launcher, "all", ranks);
    for (size_t i = 0; i < AN_COUNT(mpi_cases); i++) {
        if (!mpi_cases[i].only) continue;
        const bool is_late = strcmp(mpi_cases[i].name, "hangs") == 0;
        if (is_late) setenv("ANNEAL_COMM_TIMEOUT", "1", 1);
        mpirun(launcher, mpi_cases[i].name, mpi_cases[i].only);
        if (is_late) unsetenv("ANNEAL_COMM_TIMEOUT");
    }
}

static void over_open_mpi_every_promise_holds_as_over_shared_memory(void **state)
{
    (void)state;
    over_mpi("mpirun.openmpi");
}

static void over_mpich_every_promise_holds_as_over_shared_memory(void **state)
{
    (void)state;
    over_mpi("mpirun.mpich");
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc == 2) return be_of_mpi(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_adds_the_ranks_in_order_and_every_rank_has_the_same_bits),
        cmocka_unit_test(each_rank_gets_its_part_of_a_sum),
        cmocka_unit_test(each_rank_gets_the_sums_of_a_range_that_are_of_its_part),
        cmocka_unit_test(a_range_of_an_array_in_parts_is_gathered_from_those_that_have_it),
        cmocka_unit_test(sixteen_bit_numbers_are_added_in_float32_and_rounded_once),
        cmocka_unit_test(gathers_and_broadcasts_of_any_size_arrive_whole),
        cmocka_unit_test(the_first_failure_reaches_every_rank_with_its_rank_and_sentence),
        cmocka_unit_test(a_rank_that_leaves_hangs_or_does_something_else_is_named_on_every_rank),
        cmocka_unit_test(a_rank_that_is_killed_while_it_says_that_it_failed_ends_the_others),
        cmocka_unit_test(the_variables_of_torchrun_srun_and_mpirun_are_understood),
        cmocka_unit_test(a_second_rank_0_of_a_job_is_refused_and_the_first_goes_on),
        cmocka_unit_test(a_second_rank_1_of_a_job_is_refused_and_the_first_goes_on),
        cmocka_unit_test(ranks_that_another_program_started_find_one_another_and_notice_a_killed_one),
        cmocka_unit_test(over_open_mpi_every_promise_holds_as_over_shared_memory),
        cmocka_unit_test(over_mpich_every_promise_holds_as_over_shared_memory),
        cmocka_unit_test(more_ranks_than_a_host_runs_and_a_timeout_of_nonsense_are_refused),
    };
    clear_environment();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
