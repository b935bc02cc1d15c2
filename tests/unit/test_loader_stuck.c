/* A loader thread that is stuck is told with the file it is at, once a batch, and training goes on when it does; a caller that is
 * told to stop leaves it behind. */
#include "io/data/loader.h"
#include "lib/test.h"
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef struct told {
    int times;
    char path[64];
    double seconds;
} told;

static void tell(void *arg, const char *path, double seconds)
{
    told *t = arg;
    t->times++;
    t->seconds = seconds;
    snprintf(t->path, sizeof t->path, "%s", path ? path : "nothing");
}

/* Step 1 takes a third of a second at a file. */
static an_status fill(an_err *err, const void *data, uint64_t step, void *const *array)
{
    (void)err;
    if (step == 1) {
        an_loader_reading(data);
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
        an_loader_reading(NULL);
    }
    *(int32_t *)array[0] = (int32_t)step;
    return AN_OK;
}

static void open_and_read(int workers, double patience_s, told *t)
{
    static const char path[] = "images/slow.jpg";
    const an_source s = {
        .array = {{.name = "x", .dtype = AN_I32, .shape = AN_SHAPE(1)}}, .n = 1, .fill = fill, .data = path};
    an_loader *l;
    void *const *array;
    an_err err = {0};
    assert_int_equal(an_loader_open(&err, &s, 0, workers, &l), AN_OK);
    an_loader_on_stuck(l, patience_s, tell, t);
    for (int32_t step = 0; step < 4; step++) {
        assert_int_equal(an_loader_next(&err, l, &array), AN_OK);
        assert_int_equal(*(int32_t *)array[0], step);
    }
    an_loader_close(l);
}

static void a_stuck_thread_is_told_once_with_its_file(void **state)
{
    (void)state;
    told t = {0};
    open_and_read(1, 0.05, &t);
    assert_int_equal(t.times, 1);
    assert_string_equal(t.path, "images/slow.jpg");
    assert_true(t.seconds >= 0.05 && t.seconds < 5);
    t = (told){0};
    open_and_read(3, 0.05, &t);
    assert_int_equal(t.times, 1);
    assert_string_equal(t.path, "images/slow.jpg");
}

static void a_thread_that_is_slow_is_not(void **state)
{
    (void)state;
    told t = {0};
    open_and_read(2, 20, &t);
    assert_int_equal(t.times, 0);
    open_and_read(0, 0.05, &t); /* without threads no thread waits for another */
    assert_int_equal(t.times, 0);
}

/* Step 1 hangs until `release` is set; stop is asked for from the start. */
static atomic_bool release, entered;

static an_status hang(an_err *err, const void *data, uint64_t step, void *const *array)
{
    (void)err;
    (void)data;
    if (step == 1) {
        atomic_store(&entered, true);
        while (!atomic_load(&release)) nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    *(int32_t *)array[0] = (int32_t)step;
    return AN_OK;
}

static bool is_asked(void *arg)
{
    return *(bool *)arg;
}

static void a_caller_that_is_told_to_stop_leaves_a_thread_that_hangs(void **state)
{
    (void)state;
    const an_source s = {.array = {{.name = "x", .dtype = AN_I32, .shape = AN_SHAPE(1)}}, .n = 1, .fill = hang};
    bool stop = false;
    for (int ends = 0; ends < 2; ends++) { /* the read comes back while the loader is closed, or never */
        an_loader *l;
        void *const *array;
        an_err err = {0};
        atomic_store(&release, false);
        atomic_store(&entered, false);
        stop = false;
        assert_int_equal(an_loader_open(&err, &s, 0, 2, &l), AN_OK);
        an_loader_stops(l, 0.2, is_asked, &stop);
        assert_int_equal(an_loader_next(&err, l, &array), AN_OK);
        assert_int_equal(*(int32_t *)array[0], 0);
        while (!atomic_load(&entered)) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        stop = true;
        assert_int_equal(an_loader_next(&err, l, &array), AN_OK);
        assert_null(array);
        if (!ends) {
            assert_false(an_loader_close(l)); /* its memory stays, for the thread */
            atomic_store(&release, true);
        } else {
            atomic_store(&release, true);
            assert_true(an_loader_close(l));
        }
    }
}

static void a_batch_that_is_there_is_handed_out_after_stop_was_asked(void **state)
{
    (void)state;
    const an_source s = {.array = {{.name = "x", .dtype = AN_I32, .shape = AN_SHAPE(1)}}, .n = 1, .fill = hang};
    bool stop = true;
    an_loader *l;
    void *const *array;
    an_err err = {0};
    atomic_store(&release, true);
    assert_int_equal(an_loader_open(&err, &s, 0, 2, &l), AN_OK);
    an_loader_stops(l, 0, is_asked, &stop);
    for (int32_t step = 0; step < 4; step++) {
        assert_int_equal(an_loader_next(&err, l, &array), AN_OK);
        assert_int_equal(*(int32_t *)array[0], step);
    }
    assert_true(an_loader_close(l));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_stuck_thread_is_told_once_with_its_file),
                                       cmocka_unit_test(a_thread_that_is_slow_is_not),
                                       cmocka_unit_test(a_caller_that_is_told_to_stop_leaves_a_thread_that_hangs),
                                       cmocka_unit_test(a_batch_that_is_there_is_handed_out_after_stop_was_asked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
