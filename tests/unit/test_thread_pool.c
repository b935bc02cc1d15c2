/* test_thread_pool.c: every task once, results independent of threads, and the pool's corners. Run under TSan it is also the
 * proof of the memory order. */
#include "lib/test.h"

#include "platform/platform.h"
#include "platform/thread_pool.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_TASKS = 3000 };

typedef struct tally {
    int ran[MAX_TASKS]; /* not atomic: each task writes its own, and the join must make it visible */
    atomic_int wrong_thread;
    int threads;
} tally;

static void count(void *arg, int64_t task, int thread)
{
    tally *t = arg;
    t->ran[task]++;
    if (thread < 0 || thread >= t->threads) atomic_fetch_add(&t->wrong_thread, 1);
}

static void every_task_runs_exactly_once_for_any_number_of_threads_and_tasks(void **state)
{
    (void)state;
    static tally t;
    for (int threads = 1; threads <= 6; threads++) {
        an_pool *p;
        assert_int_equal(an_pool_open(NULL, threads, &p), AN_OK);
        assert_int_equal(an_pool_threads(p), threads);
        t.threads = threads;
        for (int64_t n = 0; n <= MAX_TASKS; n = n < 20 ? n + 1 : n * 3) {
            memset(t.ran, 0, sizeof t.ran);
            an_pool_run(p, n, count, &t);
            for (int64_t i = 0; i < MAX_TASKS; i++) assert_int_equal(t.ran[i], i < n);
        }
        an_pool_close(p);
    }
    assert_int_equal(atomic_load(&t.wrong_thread), 0);
}

static void without_a_pool_the_caller_runs_everything(void **state)
{
    (void)state;
    static tally t = {.threads = 1};
    an_pool_run(NULL, 10, count, &t);
    for (int i = 0; i < 10; i++) assert_int_equal(t.ran[i], 1);
    assert_int_equal(an_pool_threads(NULL), 1);
    assert_int_equal(atomic_load(&t.wrong_thread), 0);
    an_pool_close(NULL);
}

static void nap(double seconds)
{
    struct timespec t = {.tv_nsec = (long)(seconds * 1e9)};
    nanosleep(&t, NULL);
}

/* Runs in quick succession meet workers that spin; runs after a pause meet workers that sleep or are about to. */
static void runs_follow_each_other_at_every_distance(void **state)
{
    (void)state;
    static tally t = {.threads = 4};
    memset(t.ran, 0, sizeof t.ran);
    an_pool *p;
    assert_int_equal(an_pool_open(NULL, 4, &p), AN_OK);
    enum { RUNS = 4000 };
    for (int i = 0; i < RUNS; i++) {
        an_pool_run(p, 2 + i % 7, count, &t);
        if (i % 16 == 0) nap(1e-6 * (i % 200));
    }
    for (int task = 0; task < 8; task++) {
        int want = 0;
        for (int i = 0; i < RUNS; i++) want += task < 2 + i % 7;
        assert_int_equal(t.ran[task], want);
    }
    an_pool_close(p);
}

static void slow_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    nap(task == 0 ? 0.02 : 0.001);
    atomic_fetch_add((atomic_int *)arg, 1);
}

static void the_caller_sleeps_until_a_slow_task_has_ended(void **state)
{
    (void)state;
    an_pool *p;
    assert_int_equal(an_pool_open(NULL, 3, &p), AN_OK);
    atomic_int done = 0;
    for (int i = 1; i <= 3; i++) {
        an_pool_run(p, 5, slow_task, &done);
        assert_int_equal(atomic_load(&done), 5 * i);
    }
    an_pool_close(p);
}

typedef struct seen {
    atomic_int ran[6]; /* tasks, by thread */
} seen;

static void short_task(void *arg, int64_t task, int thread)
{
    (void)task;
    nap(1e-4);
    atomic_fetch_add(&((seen *)arg)->ran[thread], 1);
}

/* The threads that ran tasks, a bit each, of a run of two tasks a thread. */
static int threads_of_a_run(an_pool *p)
{
    seen s = {0};
    an_pool_run(p, 12, short_task, &s);
    int threads = 0, tasks = 0;
    for (int i = 0; i < 6; i++) {
        tasks += atomic_load(&s.ran[i]);
        threads |= (atomic_load(&s.ran[i]) > 0) << i;
    }
    assert_int_equal(tasks, 12);
    return threads;
}

/* A worker that spins when the limit is set may still be seen once, and a busy machine may be late to start a thread. */
static void a_limit_is_how_many_threads_take_part(void **state)
{
    (void)state;
    an_pool *p;
    assert_int_equal(an_pool_open(NULL, 6, &p), AN_OK);
    const int limits[] = {2, 6, 1, 5, 3, 4, 100, 0, 6};
    for (size_t i = 0; i < AN_COUNT(limits); i++) {
        an_pool_limit(p, limits[i]);
        const int working = an_pool_working(p), all = (1 << working) - 1;
        assert_int_equal(working, AN_MAX(1, AN_MIN(limits[i], 6)));
        int threads = 0;
        const double until = an_seconds() + 20;
        for (int within = 0; (within < 20 || threads != all) && an_seconds() < until;) {
            const int now = threads_of_a_run(p);
            within = now & ~all ? 0 : within + 1;
            threads = now & ~all ? 0 : threads | now;
        }
        assert_int_equal(threads, all);
    }
    assert_int_equal(an_pool_threads(p), 6);
    an_pool_limit(p, 2);
    an_pool_close(p); /* four threads sleep beyond the limit */
    an_pool_limit(NULL, 2);
    assert_int_equal(an_pool_working(NULL), 1);
}

static void task_that_naps_in_the_caller(void *arg, int64_t task, int thread)
{
    (void)task;
    nap(thread == 0 ? 0.05 : 1e-5);
    atomic_fetch_add(&((seen *)arg)->ran[thread], 1);
}

/* Half of the tasks are the caller's, who is slow: the other thread takes those that it has not begun. */
static void a_thread_without_tasks_takes_anothers(void **state)
{
    (void)state;
    an_pool *p;
    assert_int_equal(an_pool_open(NULL, 2, &p), AN_OK);
    seen s = {0};
    an_pool_run(p, 40, task_that_naps_in_the_caller, &s);
    assert_int_equal(atomic_load(&s.ran[0]) + atomic_load(&s.ran[1]), 40);
    assert_in_range(atomic_load(&s.ran[0]), 1, 19);
    an_pool_close(p);
}

static void a_pool_that_never_ran_closes(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        an_pool *p;
        assert_int_equal(an_pool_open(NULL, 1 + i % 5, &p), AN_OK);
        if (i % 2) nap(2e-4);
        an_pool_close(p);
    }
}

static void zero_threads_means_the_cores_this_process_may_use(void **state)
{
    (void)state;
    an_pool *p;
    assert_int_equal(an_pool_open(NULL, 0, &p), AN_OK);
    assert_int_equal(an_pool_threads(p), an_cores_available());
    assert_true(an_cores_available() >= 1);
    an_pool_close(p);
}

static void an_impossible_number_of_threads_is_refused_with_a_sentence(void **state)
{
    (void)state;
    an_err err = {0};
    an_pool *p;
    assert_int_equal(an_pool_open(&err, -1, &p), AN_E_USAGE);
    assert_null(p);
    assert_non_null(strstr(err.text, "-1 threads"));
    an_err_clear(&err);
    assert_int_equal(an_pool_open(&err, 1 << 20, &p), AN_E_USAGE);
}

static an_status open_and_close(an_err *err, void *arg)
{
    (void)arg;
    an_pool *p;
    AN_TRY(an_pool_open(err, 3, &p));
    an_pool_close(p);
    return AN_OK;
}

static void a_refused_allocation_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    test_refuse_each_allocation(open_and_close, NULL);
}

/* A forked child has the pool's memory and none of its threads: it runs every task itself, and closing waits for no thread. */
static void a_forked_child_runs_and_closes_the_pool(void **state)
{
    (void)state;
    static tally t;
    an_pool *p;
    assert_int_equal(an_pool_open(NULL, 4, &p), AN_OK);
    for (int sleeping = 0; sleeping < 2; sleeping++) {
        t.threads = 4;
        an_pool_run(p, 100, count, &t);
        if (sleeping) nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL); /* the workers wait by now */
        const pid_t child = fork();
        if (child == 0) {
            alarm(20);
            memset(t.ran, 0, sizeof t.ran);
            an_pool_run(p, 100, count, &t);
            an_pool_close(p);
            for (int i = 0; i < 100; i++)
                if (t.ran[i] != 1) _exit(1);
            _exit(0);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    an_pool_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_forked_child_runs_and_closes_the_pool),
        cmocka_unit_test(every_task_runs_exactly_once_for_any_number_of_threads_and_tasks),
        cmocka_unit_test(without_a_pool_the_caller_runs_everything),
        cmocka_unit_test(runs_follow_each_other_at_every_distance),
        cmocka_unit_test(the_caller_sleeps_until_a_slow_task_has_ended),
        cmocka_unit_test(a_limit_is_how_many_threads_take_part),
        cmocka_unit_test(a_thread_without_tasks_takes_anothers),
        cmocka_unit_test(a_pool_that_never_ran_closes),
        cmocka_unit_test(zero_threads_means_the_cores_this_process_may_use),
        cmocka_unit_test(an_impossible_number_of_threads_is_refused_with_a_sentence),
        cmocka_unit_test(a_refused_allocation_is_reported_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
