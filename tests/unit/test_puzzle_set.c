/* Data sets of puzzles: what is written is read, hostile files are sentences, and the order of training is a function of
 * (order, update). */
#define _DEFAULT_SOURCE
#include "io/data/puzzle_set.h"
#include "io/data/puzzle_write.h"
#include "io/formats/npy.h"
#include "lib/test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 5, GROUPS = 7 };

static const an_puzzle_meta meta = {
    .vocab_size = 11, .seq_len = LENGTH, .ignores = true, .ignore_label_id = 0, .num_puzzle_identifiers = 3};

/* Group g has 1 + g % 3 puzzles of `each` examples (0: of 1 + g % 2); example e has the tokens e % 10 + 1. */
static const char *write_set(const char *name, an_dtype dtype, int each, const char *split)
{
    static char dir[4][256];
    static int turn;
    char *at = dir[turn++ % 4];
    snprintf(at, 256, "%s", test_path(name));
    an_puzzle_writer *w;
    an_err err = {0};
    int32_t inputs[LENGTH], labels[LENGTH];
    assert_int_equal(an_puzzle_writer_open(&err, at, split, &meta, dtype, &w), AN_OK);
    for (int g = 0; g < GROUPS; g++) {
        for (int k = 0; k < 1 + g % 3; k++) {
            for (int i = 0; i < (each ? each : 1 + g % 2); i++) {
                const int32_t token = (int32_t)an_puzzle_writer_examples(w) % 10 + 1;
                for (int j = 0; j < LENGTH; j++) inputs[j] = token, labels[j] = j % 2 ? token : 0;
                assert_int_equal(an_puzzle_writer_example(&err, w, inputs, labels), AN_OK);
            }
            assert_int_equal(an_puzzle_writer_puzzle(&err, w, g % 3), AN_OK);
        }
        assert_int_equal(an_puzzle_writer_group(&err, w), AN_OK);
    }
    assert_int_equal(an_puzzle_writer_end(&err, w), AN_OK);
    return at;
}

static an_puzzle_set *open_set(const char *dirs)
{
    an_err err = {0};
    an_puzzle_set *s;
    if (an_puzzle_set_open_list(&err, dirs, "train", &s) != AN_OK) fail_msg("%s", err.text);
    return s;
}

static void what_is_written_is_read_in_each_dtype(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        an_dtype dtype;
    } kinds[] = {{"u1", AN_U8}, {"i4", AN_I32}, {"i8", AN_I64}};
    for (size_t t = 0; t < AN_COUNT(kinds); t++) {
        an_puzzle_set *s = open_set(write_set(kinds[t].name, kinds[t].dtype, false, "train"));
        int32_t inputs[LENGTH], labels[LENGTH], id;
        assert_int_equal(an_puzzle_set_groups(s), GROUPS);
        assert_int_equal(an_puzzle_set_meta(s)->total_puzzles, 13);
        for (int64_t e = 0; e < an_puzzle_set_examples(s); e++) {
            assert_int_equal(an_puzzle_set_read(NULL, s, e, inputs, labels, &id), AN_OK);
            assert_int_equal(inputs[4], e % 10 + 1);
            assert_int_equal(labels[0], AN_PUZZLE_IGNORED);
            assert_int_equal(labels[1], e % 10 + 1);
            assert_in_range(id, 0, 2);
        }
        an_puzzle_set_close(s);
    }
}

static void directories_are_read_as_one_when_they_agree(void **state)
{
    (void)state;
    char list[600];
    const char *a = write_set("a", AN_U8, false, "train"), *b = write_set("b", AN_I64, true, "train");
    snprintf(list, sizeof list, "['%s', \"%s/\"]", a, b);
    an_puzzle_set *s = open_set(list), *alone = open_set(a);
    assert_int_equal(an_puzzle_set_groups(s), 2 * GROUPS);
    assert_true(an_puzzle_set_examples(s) > an_puzzle_set_examples(alone));
    assert_string_equal(an_puzzle_set_dir(s, 1), b);
    assert_null(an_puzzle_set_dir(s, 2));
    char one[AN_HASH_TEXT_BYTES], two[AN_HASH_TEXT_BYTES];
    an_puzzle_set_hash(s, one);
    an_puzzle_set_hash(alone, two);
    assert_int_equal(strlen(one), 32);
    assert_string_not_equal(one, two);
    an_puzzle_set_close(s);
    an_puzzle_set_close(alone);
}

/* Draws updates in two orders, in parts and whole: always the same examples. */
static void check_order(const char *dirs, int64_t per_update, int64_t epochs)
{
    enum { UPDATES = 300 };
    an_err err = {0};
    const an_puzzle_order o = {.seed = 5, .per_update = per_update, .epochs_per_pass = epochs};
    an_puzzle_set *s = open_set(dirs), *other = open_set(dirs);
    int64_t *all = malloc((size_t)(UPDATES * per_update) * sizeof *all),
            *again = malloc((size_t)per_update * sizeof *all);
    assert_non_null(all);
    assert_non_null(again);
    if (an_puzzle_set_check(&err, s, &o) != AN_OK) fail_msg("%s", err.text);
    for (uint64_t u = 0; u < UPDATES; u++)
        assert_int_equal(an_puzzle_set_draw(&err, s, &o, u, 0, per_update, all + (int64_t)u * per_update), AN_OK);
    for (uint64_t k = 0; k < UPDATES; k++) {
        const uint64_t u = (k * 97 + 250) % UPDATES;
        for (int64_t i = 0; i < per_update; i++) again[i] = -1;
        assert_int_equal(an_puzzle_set_draw(&err, other, &o, u, 0, per_update / 2, again), AN_OK);
        assert_int_equal(
            an_puzzle_set_draw(&err, other, &o, u, per_update / 2, per_update - per_update / 2, again + per_update / 2),
            AN_OK);
        assert_memory_equal(again, all + (int64_t)u * per_update, (size_t)per_update * sizeof *all);
    }
    free(all);
    free(again);
    an_puzzle_set_close(s);
    an_puzzle_set_close(other);
}

static void a_batch_is_a_function_of_seed_and_update(void **state)
{
    (void)state;
    char list[600];
    const char *a = write_set("oa", AN_U8, false, "train"), *b = write_set("ob", AN_U8, true, "train");
    check_order(a, 3, 1);
    check_order(a, 4, 5);
    check_order(b, 3, 1);
    check_order(b, 20, 4);
    snprintf(list, sizeof list, "%s,%s", a, b);
    check_order(list, 3, 2);
}

static void an_epoch_takes_one_puzzle_of_each_group(void **state)
{
    (void)state;
    an_puzzle_set *s = open_set(write_set("epoch", AN_U8, true, "train"));
    const an_puzzle_order o = {.seed = 1, .per_update = GROUPS};
    int64_t seen_twice = 0, chosen[13] = {0}, updates;
    for (uint64_t u = 0; u < 200; u++) {
        int64_t e[GROUPS], of_group[GROUPS] = {0};
        static const int group_of[13] = {0, 1, 1, 2, 2, 2, 3, 4, 4, 5, 5, 5, 6};
        assert_int_equal(an_puzzle_set_draw(NULL, s, &o, u, 0, GROUPS, e), AN_OK);
        for (int i = 0; i < GROUPS; i++) of_group[group_of[e[i]]]++, chosen[e[i]]++;
        for (int g = 0; g < GROUPS; g++) seen_twice += of_group[g] != 1;
    }
    assert_int_equal(seen_twice, 0);
    for (int e = 0; e < 13; e++) assert_in_range(chosen[e], 30, 200); /* 200, 100 or 67 are expected */
    assert_int_equal(an_puzzle_set_updates(NULL, s, &o, 6, &updates), AN_OK);
    assert_int_equal(updates, 6);
    an_puzzle_set_close(s);
}

/* Batches of one puzzle each are the draws; a batch of more is made of the next ones, whole but for the last. */
static void puzzles_with_as_many_examples_are_found_without_a_walk(void **state)
{
    (void)state;
    enum { EACH = 3, EPOCHS = 5, DRAWS = EPOCHS * GROUPS };
    an_puzzle_set *s = open_set(write_set("uniform", AN_U8, EACH, "train"));
    int64_t draw[2 * DRAWS][EACH], e[16], updates;
    const an_puzzle_order one = {.seed = 11, .per_update = EACH, .epochs_per_pass = EPOCHS};
    for (uint64_t u = 0; u < 2 * DRAWS; u++)
        assert_int_equal(an_puzzle_set_draw(NULL, s, &one, u, 0, EACH, draw[u]), AN_OK);
    for (int64_t batch = 1; batch <= 16; batch++) {
        const an_puzzle_order o = {.seed = 11, .per_update = batch, .epochs_per_pass = EPOCHS};
        const int64_t draws = (batch + EACH - 1) / EACH, of_pass = DRAWS / draws;
        assert_int_equal(an_puzzle_set_updates(NULL, s, &o, 4, &updates), AN_OK);
        assert_int_equal(updates, 4 * of_pass);
        for (int64_t u = 2 * of_pass - 1; u >= 0; u--) { /* backwards: a place is found, not walked to */
            const int64_t first = u / of_pass * DRAWS + u % of_pass * draws;
            assert_int_equal(an_puzzle_set_draw(NULL, s, &o, (uint64_t)u, 0, batch, e), AN_OK);
            for (int64_t i = 0; i < batch; i++) assert_int_equal(e[i], draw[first + i / EACH][i % EACH]);
        }
    }
    an_puzzle_set_close(s);
}

static void several_folders_are_each_gone_through_in_every_epoch(void **state)
{
    (void)state;
    char list[600];
    int64_t of_one, of_both, e[GROUPS];
    const char *a = write_set("ra", AN_U8, true, "train"), *b = write_set("rb", AN_U8, true, "train");
    snprintf(list, sizeof list, "%s,%s", a, b);
    an_puzzle_set *one = open_set(a), *both = open_set(list);
    const an_puzzle_order o = {.seed = 3, .per_update = GROUPS, .epochs_per_pass = 2};
    assert_int_equal(an_puzzle_set_updates(NULL, one, &o, 4, &of_one), AN_OK);
    assert_int_equal(an_puzzle_set_updates(NULL, both, &o, 4, &of_both), AN_OK);
    assert_int_equal(of_one, 8);
    assert_int_equal(of_both, 16);
    int64_t first = 0;
    for (uint64_t u = 0; u < 16; u++) {
        assert_int_equal(an_puzzle_set_draw(NULL, both, &o, u, 0, GROUPS, e), AN_OK);
        first += e[0] < an_puzzle_set_examples(one);
    }
    assert_int_equal(first, 8);
    an_puzzle_set_close(one);
    an_puzzle_set_close(both);
}

static void any_number_of_epochs_is_counted_or_refused(void **state)
{
    (void)state;
    an_err err = {0};
    int64_t updates;
    const int64_t many = 1LL << 40;
    an_puzzle_set *one_each = open_set(write_set("single", AN_U8, true, "train"));
    an_puzzle_set *several = open_set(write_set("several", AN_U8, false, "train"));
    const int64_t groups = an_puzzle_set_groups(one_each);
    const an_puzzle_order o = {.seed = 3, .per_update = 1},
                          pass = {.seed = 3, .per_update = 1, .epochs_per_pass = many};
    assert_int_equal(an_puzzle_set_updates(NULL, one_each, &o, many, &updates), AN_OK);
    assert_true(updates == many * groups);
    assert_int_equal(an_puzzle_set_updates(NULL, one_each, &pass, many, &updates), AN_OK);
    assert_true(updates == INT64_MAX);
    assert_int_equal(an_puzzle_set_updates(&err, several, &o, many, &updates), AN_E_USAGE);
    assert_non_null(strstr(err.text, "set max_iters"));
    an_err_clear(&err);
    assert_int_equal(an_puzzle_set_updates(NULL, several, &pass, 1, &updates), AN_E_USAGE);
    an_puzzle_set_close(one_each);
    an_puzzle_set_close(several);
}

static void a_batch_larger_than_the_data_is_a_sentence_about_the_data(void **state)
{
    (void)state;
    an_err err = {0};
    int64_t e[8];
    an_puzzle_set *s = open_set(write_set("small", AN_U8, true, "train"));
    const an_puzzle_order o = {.seed = 1, .per_update = GROUPS + 1}, two = {1, GROUPS + 1, 2};
    assert_int_equal(an_puzzle_set_check(&err, s, &o), AN_E_DATA);
    assert_non_null(strstr(err.text, "larger than the data"));
    an_err_clear(&err);
    assert_int_equal(an_puzzle_set_draw(&err, s, &o, 3, 0, 8, e), AN_E_DATA);
    assert_int_equal(an_puzzle_set_check(NULL, s, &two), AN_OK);
    an_puzzle_set_close(s);
}

/* ---- files that others wrote */

static void refuses(const char *dir, const char *part)
{
    an_err err = {0};
    an_puzzle_set *s;
    if (an_puzzle_set_open(&err, &dir, 1, "train", &s) == AN_OK) fail_msg("%s was taken", part);
    if (!strstr(err.text, part)) fail_msg("no \"%s\" in: %s", part, err.text);
}

static void write_i32(const char *dir, const char *name, int rank, int64_t rows, const int32_t *values)
{
    char path[512];
    snprintf(path, sizeof path, "%s/train/all__%s.npy", dir, name);
    assert_int_equal(an_npy_write(NULL, path, AN_I32, rank, (const int64_t[]){rows, LENGTH}, values), AN_OK);
}

static void write_text(const char *dir, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/train/%s", dir, name);
    test_write_file(path, text, strlen(text));
}

static void hostile_files_are_sentences_with_file_and_place(void **state)
{
    (void)state;
    int32_t tokens[20 * LENGTH] = {0}, offsets[] = {0, 1, 3, 2, 19};
    const char *dir = write_set("bad1", AN_I32, false, "train");
    refuses("nowhere", "nowhere/train/dataset.json");
    tokens[2 * LENGTH + 3] = 11;
    write_i32(dir, "inputs", 2, 19, tokens);
    refuses(dir, "all__inputs.npy: row 2, place 3: 11");
    write_i32(dir, "inputs", 2, 18, tokens);
    refuses(dir, "all__inputs.npy has 18 rows, __labels.npy 19");
    tokens[2 * LENGTH + 3] = -1;
    dir = write_set("bad2", AN_I32, true, "train");
    write_i32(dir, "labels", 2, 13, tokens);
    refuses(dir, "all__labels.npy: row 2, place 3: -1");
    dir = write_set("bad3", AN_I32, true, "train");
    write_i32(dir, "puzzle_indices", 1, 5, offsets);
    refuses(dir, "puzzle_indices.npy: offset 3 is 2");
    dir = write_set("bad4", AN_I32, true, "train");
    write_i32(dir, "group_indices", 1, 0, offsets);
    refuses(dir, "0 offsets");
    dir = write_set("bad5", AN_I32, true, "train");
    write_i32(dir, "puzzle_identifiers", 1, 13, (const int32_t[13]){0, 3});
    refuses(dir, "puzzle 1 has identifier 3");
    dir = write_set("bad6", AN_I32, true, "train");
    write_text(dir, "dataset.json", "{\"vocab_size\": 11, \"seq_len\": 1e3}");
    refuses(dir, "\"seq_len\" is missing or no whole number");
    write_text(dir, "dataset.json", "{\"vocab_size\": 11, \"seq_len\": 5, \"pad_id\": 11}");
    refuses(dir, "\"pad_id\" is 11; 0 to 10");
    write_text(dir, "dataset.json",
               "{\"vocab_size\": 11, \"seq_len\": 5, \"pad_id\": 0, \"num_puzzle_identifiers\": 3, "
               "\"blank_identifier_id\": 0, \"total_groups\": 7, \"mean_puzzle_examples\": 1, \"sets\": [\"../all\"]}");
    refuses(dir, "is no name of a set");
    write_text(dir, "dataset.json",
               "{\"vocab_size\": 11, \"seq_len\": 5, \"pad_id\": 0, \"num_puzzle_identifiers\": 3, "
               "\"blank_identifier_id\": 0, \"total_groups\": 8, \"mean_puzzle_examples\": 1, \"sets\": [\"all\"]}");
    refuses(dir, "\"total_groups\" is 8, the files have 7");
}

static an_status open_and_close(an_err *err, void *arg)
{
    an_puzzle_set *s;
    AN_TRY(an_puzzle_set_open_list(err, arg, "train", &s));
    an_puzzle_set_close(s);
    return AN_OK;
}

static an_status write_and_free(an_err *err, void *arg)
{
    an_puzzle_writer *w;
    const int32_t row[LENGTH] = {0};
    AN_TRY(an_puzzle_writer_open(err, arg, "train", &meta, AN_U8, &w));
    an_status status = an_puzzle_writer_example(err, w, row, row);
    if (status == AN_OK) status = an_puzzle_writer_puzzle(err, w, 0);
    if (status == AN_OK) status = an_puzzle_writer_group(err, w);
    if (status == AN_OK) return an_puzzle_writer_end(err, w);
    an_puzzle_writer_abort(w);
    return status;
}

static void a_refused_allocation_is_a_sentence(void **state)
{
    (void)state;
    test_refuse_each_allocation(write_and_free, (void *)(uintptr_t)test_path("memory"));
    test_refuse_each_allocation(open_and_close, (void *)(uintptr_t)test_path("memory"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_written_is_read_in_each_dtype),
                                       cmocka_unit_test(directories_are_read_as_one_when_they_agree),
                                       cmocka_unit_test(a_batch_is_a_function_of_seed_and_update),
                                       cmocka_unit_test(an_epoch_takes_one_puzzle_of_each_group),
                                       cmocka_unit_test(puzzles_with_as_many_examples_are_found_without_a_walk),
                                       cmocka_unit_test(several_folders_are_each_gone_through_in_every_epoch),
                                       cmocka_unit_test(any_number_of_epochs_is_counted_or_refused),
                                       cmocka_unit_test(a_batch_larger_than_the_data_is_a_sentence_about_the_data),
                                       cmocka_unit_test(hostile_files_are_sentences_with_file_and_place),
                                       cmocka_unit_test(a_refused_allocation_is_a_sentence)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
