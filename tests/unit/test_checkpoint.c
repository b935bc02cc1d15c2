/* test_checkpoint.c: a run's checkpoints: which names there are, in which order, what is kept, links and temporary files of others. */
#define _DEFAULT_SOURCE
#include "io/checkpoint.h"
#include "platform/platform.h"
#include <signal.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include "io_files.h"

enum { WORDS = 3000 };

/* A small run: one parameter of which every word is `step`, with its moments. */
static an_status save(an_err *err, const char *dir, const char *which, int32_t step)
{
    static int32_t words[WORDS], m[WORDS], v[WORDS];
    for (int i = 0; i < WORDS; i++) words[i] = step, m[i] = step + 1, v[i] = step + 2;
    static const int64_t shape[] = {30, 100};
    const an_ckpt_tensor tensors[] = {
        {NULL, "w", AN_I32, 2, shape, words, NULL, NULL},
        {AN_CKPT_M, "w", AN_I32, 2, shape, m, NULL, NULL},
        {AN_CKPT_V, "w", AN_I32, 2, shape, v, NULL, NULL},
    };
    char state[64];
    snprintf(state, sizeof state, "{\"step\":%d}", step);
    const an_ckpt_meta meta[] = {{AN_CKPT_STATE, state}};
    (void)mkdir(dir, 0777);
    return an_ckpt_save(err, dir, which, &(an_ckpt){tensors, 3, meta, 1});
}

/* The step of a checkpoint whose tensors all say the same step; -1 when they do not. */
static int32_t step_in(const char *path)
{
    an_err err = {0};
    an_st *st;
    if (an_st_open(&err, path, &st) != AN_OK) fail_msg("%s", err.text);
    const an_st_tensor *w, *m, *v;
    const int64_t shape[] = {30, 100};
    assert_int_equal(an_ckpt_expect(&err, st, NULL, "w", AN_I32, 2, shape, &w), AN_OK);
    assert_int_equal(an_ckpt_expect(&err, st, AN_CKPT_M, "w", AN_I32, 2, shape, &m), AN_OK);
    assert_int_equal(an_ckpt_expect(&err, st, AN_CKPT_V, "w", AN_I32, 2, shape, &v), AN_OK);
    int32_t step = *(const int32_t *)w->data;
    char state[64];
    snprintf(state, sizeof state, "{\"step\":%d}", step);
    if (strcmp(an_st_meta(st, AN_CKPT_STATE), state) != 0) step = -1;
    for (int i = 0; i < WORDS && step >= 0; i++)
        if (((const int32_t *)w->data)[i] != step || ((const int32_t *)m->data)[i] != step + 1 ||
            ((const int32_t *)v->data)[i] != step + 2)
            step = -1;
    an_st_close(st);
    return step;
}

static void saves_and_finds_last_best_and_numbered_ones(void **state)
{
    (void)state;
    const char *dir = test_path("run");
    an_err err = {0};
    char path[AN_CKPT_PATH_BYTES];
    assert_int_equal(save(&err, dir, "step_9", 9), AN_OK);
    assert_int_equal(save(&err, dir, "step_100", 100), AN_OK);
    assert_int_equal(an_ckpt_find(&err, dir, false, path),
                     AN_OK); /* no last yet: the newest number, not the last name */
    assert_string_equal(strrchr(path, '/'), "/step_100.safetensors");
    assert_int_equal(an_ckpt_find(&err, dir, true, path), AN_E_IO);
    assert_contains(err.text, "no best checkpoint; it has others");
    err = (an_err){0};
    assert_int_equal(save(&err, dir, "last", 100), AN_OK);
    assert_int_equal(save(&err, dir, "best", 50), AN_OK);
    assert_int_equal(an_ckpt_find(&err, dir, false, path), AN_OK);
    assert_int_equal(step_in(path), 100);
    assert_string_equal(strrchr(path, '/'), "/last.safetensors");
    assert_int_equal(an_ckpt_find(&err, dir, true, path), AN_OK);
    assert_int_equal(step_in(path), 50);
    assert_int_equal(an_ckpt_find(&err, path, false, path), AN_OK); /* a file is itself */
    assert_int_equal(step_in(path), 50);
}

static void lists_only_checkpoints_in_order(void **state)
{
    (void)state;
    const char *dir = test_path("run");
    temp_text("run/step_07.safetensors", "");
    temp_text("run/step_.safetensors", "");
    temp_text("run/step_1x.safetensors", "");
    temp_text("run/step_99999999999999999999.safetensors", "");
    temp_text("run/notes.txt", "");
    an_err err = {0};
    an_ckpt_entry *list;
    size_t n;
    assert_int_equal(an_ckpt_list(&err, dir, &list, &n), AN_OK);
    const int64_t steps[] = {-2, -1, 9, 100};
    assert_int_equal(n, 4);
    for (size_t i = 0; i < n; i++) assert_int_equal(list[i].step, steps[i]);
    free(list);
}

static void keeps_the_newest_numbered_ones_and_last_and_best(void **state)
{
    (void)state;
    const char *dir = test_path("keep");
    an_err err = {0};
    assert_int_equal(save(&err, dir, "last", 1), AN_OK);
    for (int step = 8; step <= 11; step++) {
        char name[32];
        snprintf(name, sizeof name, "step_%d", step);
        assert_int_equal(save(&err, dir, name, step), AN_OK);
    }
    an_ckpt_entry *list;
    size_t n;
    assert_int_equal(an_ckpt_prune(&err, dir, 0), AN_OK); /* 0: all are kept */
    assert_int_equal(temp_count(dir, "step_"), 4);
    assert_int_equal(an_ckpt_prune(&err, dir, 2), AN_OK);
    assert_int_equal(an_ckpt_list(&err, dir, &list, &n), AN_OK);
    assert_int_equal(n, 3);
    assert_int_equal(list[0].step, -1);
    assert_int_equal(list[1].step, 10);
    assert_int_equal(list[2].step, 11);
    free(list);
}

static void refuses_names_that_lead_elsewhere(void **state)
{
    (void)state;
    static const char *const names[] = {"../last", "step_-1", "step_01", "", "last.safetensors", "step_1/../../x"};
    for (size_t i = 0; i < AN_COUNT(names); i++) {
        an_err err = {0};
        assert_int_equal(save(&err, test_path("run"), names[i], 1), AN_E_USAGE);
        assert_contains(err.text, "say last, best or step_N");
    }
}

static void links_one_file_to_two_names(void **state)
{
    (void)state;
    const char *dir = test_path("link");
    an_err err = {0};
    assert_int_equal(save(&err, dir, "last", 5), AN_OK);
    assert_int_equal(save(&err, dir, "best", 4), AN_OK);
    assert_int_equal(an_ckpt_link(&err, dir, "last", "best"), AN_OK);
    assert_int_equal(an_ckpt_link(&err, dir, "last", "best"), AN_OK); /* again: they are one file already */
    assert_int_equal(step_in(test_path("link/best.safetensors")), 5);
    assert_int_equal(save(&err, dir, "last", 6), AN_OK); /* replaces the name, not the file */
    assert_int_equal(step_in(test_path("link/best.safetensors")), 5);
    assert_int_equal(step_in(test_path("link/last.safetensors")), 6);
    assert_int_equal(temp_count(dir, ".tmp"), 0);
    assert_int_equal(an_ckpt_link(&err, dir, "step_1", "best"), AN_E_IO);
    assert_int_equal(step_in(test_path("link/best.safetensors")), 5);
}

static void removes_temporary_files_of_the_dead_and_not_of_the_living(void **state)
{
    (void)state;
    const char *dir = test_path("stale");
    an_err err = {0};
    assert_int_equal(save(&err, dir, "last", 1), AN_OK);
    temp_text("stale/.last.safetensors.0123456789abcdef.tmp", "half");
    temp_text("stale/.step_7.safetensors.00000000000000ff.tmp", "half");
    temp_text("stale/.other.safetensors.0123456789abcdef.tmp", "not ours");
    int fd = open(temp_text("stale/.best.safetensors.000000000000beef.tmp", "being written"), O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(save(&err, dir, "last", 2), AN_OK);
    assert_int_equal(temp_count(dir, ".tmp"), 2);
    assert_int_equal(temp_count(dir, ".best.safetensors.000000000000beef.tmp"), 1);
    assert_int_equal(temp_count(dir, ".other.safetensors.0123456789abcdef.tmp"), 1);
    close(fd);
    assert_int_equal(save(&err, dir, "last", 3), AN_OK);
    assert_int_equal(temp_count(dir, ".tmp"), 1);
}

static void a_full_disk_leaves_the_old_checkpoint_and_no_temporary_file(void **state)
{
    (void)state;
    const char *dir = test_path("full");
    an_err err = {0};
    assert_int_equal(save(&err, dir, "last", 1), AN_OK);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){20000, 20000});
        an_err why = {0};
        _exit(save(&why, dir, "last", 2) == AN_E_IO && strstr(why.text, "last.safetensors") ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(step_in(test_path("full/last.safetensors")), 1);
    assert_int_equal(temp_count(dir, ".tmp"), 0);
}

/* kill -9 at moments spread over many saves: the file is whole every time, and the next save cleans up. */
static void a_killed_process_leaves_a_whole_checkpoint(void **state)
{
    (void)state;
    char dir[512];
    snprintf(dir, sizeof dir, "%s", test_path("killed"));
    an_err err = {0};
    assert_int_equal(save(&err, dir, "last", 0), AN_OK);
    double start = an_seconds();
    assert_int_equal(save(&err, dir, "last", 0), AN_OK);
    double one_save_us = 1e6 * (an_seconds() - start);
    int32_t before = 0;
    int left_a_temp = 0, rounds = getenv("AN_SOAK") ? 2000 : 60;
    fflush(NULL);
    /* On a busy machine a child may not come to its first save in the time that one took before: longer, then. */
    for (int round = 0; round < rounds || (round < 20 * rounds && (before == 0 || left_a_temp == 0)); round++) {
        pid_t child = fork();
        if (child == 0) {
            for (int32_t step = before + 1;; step++)
                if (save(NULL, dir, "last", step) != AN_OK) _exit(1);
        }
        const double times = 1 + round / rounds;
        usleep((useconds_t)(4 * times * one_save_us * (round % rounds + 1) /
                            rounds)); /* from the first save to after the third */
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        left_a_temp += temp_count(dir, ".tmp") > 0;
        int32_t now = step_in(test_path("killed/last.safetensors"));
        assert_true(now >= before);
        before = now;
    }
    assert_true(before > 0);      /* it did save */
    assert_true(left_a_temp > 0); /* and it was hit in the middle */
    assert_int_equal(save(&err, dir, "last", before), AN_OK);
    assert_int_equal(temp_count(dir, ".tmp"), 0);
}

static void names_what_differs_from_the_model(void **state)
{
    (void)state;
    an_err err = {0};
    assert_int_equal(save(&err, test_path("differs"), "last", 1), AN_OK);
    an_st *st;
    const an_st_tensor *t;
    const int64_t shape[] = {30, 100}, other[] = {30, 10};
    assert_int_equal(an_st_open(&err, test_path("differs/last.safetensors"), &st), AN_OK);
    assert_int_equal(an_ckpt_expect(&err, st, NULL, "b", AN_I32, 2, shape, &t), AN_E_IO);
    assert_contains(err.text, "there is no tensor \"b\"");
    err = (an_err){0};
    assert_int_equal(an_ckpt_expect(&err, st, AN_CKPT_M, "w", AN_I32, 2, other, &t), AN_E_SHAPE);
    assert_contains(err.text, "tensor \"optimizer.m.w\" is I32[30,100] here, the model wants I32[30,10]");
    err = (an_err){0};
    assert_int_equal(an_ckpt_expect(&err, st, NULL, "w", AN_I32, 1, other, &t), AN_E_SHAPE);
    err = (an_err){0};
    assert_int_equal(an_ckpt_expect(&err, st, NULL, "w", AN_F32, 2, shape, &t), AN_E_DTYPE);
    assert_contains(err.text, "last.safetensors: byte ");
    an_st_close(st);
}

/* The hash of a file of these tensors, in this order. */
static an_hash128 hash_of(const an_ckpt_tensor *tensors, size_t n, const char *meta, an_hash128 *each)
{
    const char *dir = test_path("hash");
    an_err err = {0};
    an_ckpt_meta m = {AN_CKPT_STATE, meta};
    (void)mkdir(dir, 0777);
    assert_int_equal(an_ckpt_save(&err, dir, "last", &(an_ckpt){tensors, n, &m, 1}), AN_OK);
    an_st *st;
    an_hash128 h;
    assert_int_equal(an_st_open(&err, test_path("hash/last.safetensors"), &st), AN_OK);
    assert_int_equal(an_ckpt_hash(&err, st, &h, each), AN_OK);
    an_st_close(st);
    return h;
}

static void hashes_tensors_and_nothing_else(void **state)
{
    (void)state;
    const int64_t six[] = {6}, two_three[] = {2, 3};
    unsigned char data[6] = {1, 2, 3, 4, 5, 6}, other[6] = {1, 2, 3, 4, 5, 7};
    an_ckpt_tensor a = {NULL, "a", AN_U8, 1, six, data, NULL, NULL}, b = {NULL, "b", AN_U8, 1, six, other, NULL, NULL};
    an_hash128 each[2], swapped[2];
    an_hash128 h = hash_of((an_ckpt_tensor[]){a, b}, 2, "{}", each);
    an_hash128 h2 = hash_of((an_ckpt_tensor[]){b, a}, 2, "{\"x\":1}", swapped);
    assert_memory_equal(&h, &h2, sizeof h); /* neither order nor metadata count */
    assert_memory_equal(each, swapped, sizeof each);

    an_ckpt_tensor variants[] = {a, a, a, a};
    variants[0].name = "c";
    variants[1].dtype = AN_BOOL;
    variants[2].rank = 2, variants[2].shape = two_three;
    variants[3].data = other;
    for (size_t i = 0; i < AN_COUNT(variants); i++) {
        an_hash128 one[2], changed = hash_of((an_ckpt_tensor[]){variants[i], b}, 2, "{}", one);
        assert_memory_not_equal(&h, &changed, sizeof h);
    }
    char text[AN_HASH_TEXT_BYTES];
    assert_int_equal(strlen(an_hash_text(h, text)), 32);
}

static void says_what_is_wrong_with_a_folder(void **state)
{
    (void)state;
    an_err err = {0};
    char path[AN_CKPT_PATH_BYTES];
    assert_int_equal(an_ckpt_find(&err, test_path("nowhere"), false, path), AN_E_IO);
    assert_contains(err.text, "nowhere: No such file or directory; name a run folder or a checkpoint file");
    err = (an_err){0};
    assert_int_equal(mkdir(test_path("bare"), 0777), 0);
    assert_int_equal(an_ckpt_find(&err, test_path("bare"), false, path), AN_E_IO);
    assert_contains(err.text, "has the run saved one yet?");
}

/* A folder that was moved away while its run goes on: made anew, it would seem to be the run's folder. */
static void does_not_make_the_folder_anew(void **state)
{
    (void)state;
    an_err err = {0};
    const an_ckpt_meta meta = {AN_CKPT_STATE, "{}"};
    assert_int_equal(an_ckpt_save(&err, test_path("moved"), "last", &(an_ckpt){NULL, 0, &meta, 1}), AN_E_IO);
    assert_contains(err.text, "moved");
    assert_int_equal(access(test_path("moved"), F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saves_and_finds_last_best_and_numbered_ones),
        cmocka_unit_test(lists_only_checkpoints_in_order),
        cmocka_unit_test(keeps_the_newest_numbered_ones_and_last_and_best),
        cmocka_unit_test(refuses_names_that_lead_elsewhere),
        cmocka_unit_test(links_one_file_to_two_names),
        cmocka_unit_test(removes_temporary_files_of_the_dead_and_not_of_the_living),
        cmocka_unit_test(a_full_disk_leaves_the_old_checkpoint_and_no_temporary_file),
        cmocka_unit_test(a_killed_process_leaves_a_whole_checkpoint),
        cmocka_unit_test(names_what_differs_from_the_model),
        cmocka_unit_test(hashes_tensors_and_nothing_else),
        cmocka_unit_test(says_what_is_wrong_with_a_folder),
        cmocka_unit_test(does_not_make_the_folder_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
