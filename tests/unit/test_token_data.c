/* test_token_data.c: token data sets: splits, windows, epochs, micro-batches. */
#define _DEFAULT_SOURCE
#include "io/data/token_data.h"
#include "io/data/loader.h"
#include "io/data/corpus.h"
#include "io_files.h"

static an_data *open_data(const char *source, int64_t vocab)
{
    an_err err = {0};
    an_data *d;
    if (an_data_open(&err, &(an_data_options){.source = source, .vocab_size = vocab}, &d) != AN_OK)
        fail_msg("%s", err.text);
    return d;
}

/* A .bin whose token i is i. */
static const char *counting_bin(const char *name, int n)
{
    uint16_t *tokens = malloc((size_t)n * sizeof *tokens);
    for (int i = 0; i < n; i++) tokens[i] = (uint16_t)i;
    const char *path = temp_file(name, tokens, (size_t)n * sizeof *tokens);
    free(tokens);
    return path;
}

static void text_is_split_by_characters_into_nine_tenths_and_the_rest(void **state)
{
    (void)state;
    /* 11 characters, int(9.9) = 9 train; one of them takes two bytes. */
    an_data *d = open_data(temp_text("text", "abc\xc3\xa9"
                                             "fghijk"),
                           0);
    assert_int_equal(an_data_vocab(d), 10);
    assert_int_equal(an_data_tokens(d, AN_TRAIN), 9);
    assert_int_equal(an_data_tokens(d, AN_VAL), 1);
    an_data_close(d);
    d = open_data(temp_text("text", "abc\xc3\xa9"
                                    "fghijkl"),
                  0);
    assert_int_equal(an_data_tokens(d, AN_TRAIN), 9);
    assert_int_equal(an_data_tokens(d, AN_VAL), 2);
    int32_t x, y;
    an_err err = {0};
    assert_int_equal(an_data_windows(d, AN_VAL, 1), 1);
    assert_int_equal(an_data_window(&err, d, AN_VAL, 1, 0, 1, &x, &y), AN_OK);
    an_text text = {0};
    assert_int_equal(an_tokenizer_decode(&err, an_data_tokenizer(d), (int32_t[]){x, y}, 2, &text), AN_OK);
    assert_string_equal(text.data, "kl");
    an_text_free(&text);
    an_data_close(d);
}

static void shakespeare_counts_are_nanogpts(void **state)
{
    (void)state;
    /* 1,115,394 characters: train 1,003,854 and val 111,540 (data/shakespeare_char/prepare.py). */
    enum { N = 1115394 };
    char *text = malloc(N);
    for (int i = 0; i < N; i++) text[i] = (char)('a' + i % 20);
    an_data *d = open_data(temp_file("long", text, N), 0);
    assert_int_equal(an_data_tokens(d, AN_TRAIN), 1003854);
    assert_int_equal(an_data_tokens(d, AN_VAL), 111540);
    an_data_close(d);
    free(text);
}

static void batches_are_windows_of_the_text_and_targets_are_one_later(void **state)
{
    (void)state;
    enum { B = 5, T = 7 };
    an_data *d = open_data(counting_bin("count.bin", 1000), 1000);
    assert_int_equal(an_data_tokens(d, AN_TRAIN), 900);
    int32_t x[B * T], y[B * T];
    an_err err = {0};
    for (int split = 0; split < 2; split++)
        for (uint64_t step = 0; step < 50; step++) {
            an_batch b = {.split = split, .seed = 1, .B = B, .T = T};
            assert_int_equal(an_data_batch(&err, d, &b, step, x, y), AN_OK);
            for (int i = 0; i < B * T; i++) {
                if (i % T) assert_int_equal(x[i], x[i - 1] + 1);
                assert_int_equal(y[i], x[i] + 1);
                assert_true(split == AN_TRAIN ? x[i] >= 0 && y[i] < 900 : x[i] >= 900 && y[i] < 1000);
            }
        }
    an_data_close(d);
}

static void starts_are_uniform_and_reach_both_ends(void **state)
{
    (void)state;
    enum { STARTS = 20, DRAWS = 20000 };
    /* 23 training tokens of 26 (int(26 * 0.9)), T = 3: starts 0 to 19. */
    an_data *d = open_data(counting_bin("few.bin", 26), 100);
    assert_int_equal(an_data_tokens(d, AN_TRAIN), 23);
    int count[STARTS] = {0};
    int32_t x[3], y[3];
    for (uint64_t step = 0; step < DRAWS; step++) {
        assert_int_equal(an_data_batch(NULL, d, &(an_batch){.seed = 9, .B = 1, .T = 3}, step, x, y), AN_OK);
        assert_in_range(x[0], 0, STARTS - 1);
        count[x[0]]++;
    }
    double chi2 = 0, expected = (double)DRAWS / STARTS;
    for (int i = 0; i < STARTS; i++) chi2 += (count[i] - expected) * (count[i] - expected) / expected;
    assert_true(chi2 < 50); /* 19 degrees of freedom: 50 has probability 1e-4 */
    assert_true(chi2 > 3);  /* and not too even */
    an_data_close(d);
}

static void an_epoch_holds_every_window_once_in_an_order_of_its_own(void **state)
{
    (void)state;
    enum { T = 7, N = 900, WINDOWS = (N - T) / T, EPOCHS = 3 };
    an_data *d = open_data(counting_bin("epochs.bin", 1000), 1000); /* token i is i: a window says where it begins */
    assert_int_equal(an_data_tokens(d, AN_TRAIN), N);
    int32_t x[2 * T], y[2 * T], order[EPOCHS][WINDOWS + 1];
    char seen[EPOCHS][N] = {{0}};
    for (int sample = 0; sample < EPOCHS * WINDOWS; sample += 2) {
        an_batch b = {.seed = 11, .B = 2, .T = T, .per_step = 2};
        assert_int_equal(an_data_batch(NULL, d, &b, (uint64_t)sample / 2, x, y), AN_OK);
        for (int i = 0; i < 2 && sample + i < EPOCHS * WINDOWS; i++) {
            int epoch = (sample + i) / WINDOWS, at = x[i * T];
            assert_in_range(at, 0, N - T - 1);
            assert_int_equal(seen[epoch][at], 0);
            seen[epoch][at] = 1;
            order[epoch][(sample + i) % WINDOWS] = at;
            assert_int_equal(at % T, order[epoch][0] % T); /* windows follow one another */
        }
    }
    int moved = 0;
    for (int i = 0; i < WINDOWS; i++) moved += order[0][i] / T != order[1][i] / T;
    assert_true(moved > WINDOWS / 2);
    an_data_close(d);
}

static void micro_batches_hold_what_one_large_batch_holds(void **state)
{
    (void)state;
    enum { B = 8, T = 4 };
    an_data *d = open_data(counting_bin("micro.bin", 5000), 5000);
    int32_t x[B * T], y[B * T], mx[B * T], my[B * T];
    an_batch whole = {.seed = 3, .B = B, .T = T};
    assert_int_equal(an_data_batch(NULL, d, &whole, 17, x, y), AN_OK);
    for (int m = 0; m < 4; m++) {
        an_batch part = {.seed = 3, .first = m * 2, .B = 2, .T = T};
        assert_int_equal(an_data_batch(NULL, d, &part, 17, mx + m * 2 * T, my + m * 2 * T), AN_OK);
    }
    assert_memory_equal(x, mx, sizeof x);
    assert_memory_equal(y, my, sizeof y);
    whole.seed = 4;
    assert_int_equal(an_data_batch(NULL, d, &whole, 17, mx, my), AN_OK);
    assert_memory_not_equal(x, mx, sizeof x);
    whole.seed = 3;
    assert_int_equal(an_data_batch(NULL, d, &whole, 18, mx, my), AN_OK);
    assert_memory_not_equal(x, mx, sizeof x);
    an_data_close(d);
}

static void windows_cover_a_split_once(void **state)
{
    (void)state;
    an_data *d = open_data(counting_bin("windows.bin", 1000), 1000);
    int32_t x[11 * 9], y[11 * 9];
    an_err err = {0};
    assert_int_equal(an_data_windows(d, AN_VAL, 9), 11); /* floor((100 - 1) / 9) */
    assert_int_equal(an_data_windows(d, AN_VAL, 10), 9);
    assert_int_equal(an_data_window(&err, d, AN_VAL, 9, 0, 11, x, y), AN_OK);
    for (int i = 0; i < 99; i++) {
        assert_int_equal(x[i], 900 + i);
        assert_int_equal(y[i], 901 + i);
    }
    assert_int_equal(an_data_window(&err, d, AN_VAL, 9, 10, 2, x, y), AN_E_USAGE);
    assert_contains(err.text, "there are 11");
    assert_int_equal(an_data_window(NULL, d, AN_VAL, 9, -1, 1, x, y), AN_E_USAGE);
    assert_int_equal(an_data_window(NULL, d, AN_VAL, 100, 0, 1, x, y), AN_E_DATA);
    an_data_close(d);
}

static void an_id_outside_of_the_vocabulary_is_named_with_its_byte(void **state)
{
    (void)state;
    uint16_t tokens[100] = {0};
    tokens[41] = 50;
    tokens[95] = 51;
    an_data *d = open_data(temp_file("ids.bin", tokens, sizeof tokens), 50);
    int32_t x[80], y[80];
    an_err err = {0};
    assert_int_equal(an_data_window(&err, d, AN_TRAIN, 40, 0, 1, x, y), AN_OK); /* up to token 40 */
    assert_int_equal(an_data_window(&err, d, AN_TRAIN, 41, 0, 1, x, y), AN_E_DATA);
    assert_contains(err.text, "ids.bin: byte 82: token id 50 is outside the vocabulary of 50");
    err = (an_err){0};
    assert_int_equal(an_data_window(&err, d, AN_VAL, 9, 0, 1, x, y), AN_E_DATA);
    assert_contains(err.text, "ids.bin: byte 190: token id 51");
    an_data_close(d);
}

static void a_folder_has_train_and_val(void **state)
{
    (void)state;
    assert_int_equal(mkdir(test_path("set"), 0777), 0);
    counting_bin("set/train.bin", 300);
    counting_bin("set/val.bin", 40);
    an_data *d = open_data(test_path("set"), 300);
    assert_int_equal(an_data_tokens(d, AN_TRAIN), 300);
    assert_int_equal(an_data_tokens(d, AN_VAL), 40);
    assert_null(an_data_tokenizer(d));
    an_data_close(d);
}

static void a_file_that_was_cut_between_two_tokens_is_refused_by_its_count(void **state)
{
    (void)state;
    an_err err = {0};
    an_data *d;
    static const char meta[] =
        "{\"tokenizer\":{\"type\":\"char\",\"code_points\":[97,98]},\"train_tokens\":300,\"val_tokens\":40}",
                      older[] = "{\"tokenizer\":{\"type\":\"char\",\"code_points\":[97,98]}}";
    assert_int_equal(mkdir(test_path("counted"), 0777), 0);
    for (int cut = 0; cut < 3; cut++) {
        counting_bin("counted/train.bin", cut == 1 ? 299 : 300);
        counting_bin("counted/val.bin", cut == 2 ? 39 : 40);
        test_write_file(test_path("counted/meta.json"), meta, sizeof meta - 1);
        err = (an_err){0};
        const an_data_options o = {.source = test_path("counted"), .vocab_size = 300, .tokenizer = NULL};
        const an_status status = an_data_open(&err, &o, &d);
        assert_int_equal(status, cut == 0 ? AN_OK : AN_E_DATA);
        if (cut == 1)
            assert_contains(err.text, "train.bin: 299 tokens, where the train_tokens of meta.json beside it are 300");
        if (cut == 2) assert_contains(err.text, "val.bin: 39 tokens");
        an_data_close(d);
    }
    test_write_file(test_path("counted/meta.json"), older,
                    sizeof older - 1); /* not of anneal prepare: nothing to compare */
    an_data_close(open_data(test_path("counted"), 300));
}

static void tokens_of_another_vocabulary_are_refused_by_name(void **state)
{
    (void)state;
    char dir[512], meta[600], bin[600];
    snprintf(dir, sizeof dir, "%s", test_path("prepared"));
    snprintf(meta, sizeof meta, "%s/meta.json", dir);
    snprintf(bin, sizeof bin, "%s/val.bin", dir);
    mkdir(dir, 0777);
    test_write_file(bin, "\0\0\1\0", 4);
    const struct {
        const char *model, *data, *fault;
    } row[] = {{"abc", "abc", NULL},
               {"abcd", "abc", NULL}, /* a model may know more */
               {"abc", "abx", "id 2 is U+0078 'x' there and U+0063 'c' in the model"},
               {"AB", "ab", "id 0 is U+0061 'a'"},
               {"ab", "abc", "id 2 is U+0063 'c' there and nothing in the model"}};
    for (size_t i = 0; i < AN_COUNT(row); i++) {
        an_tokenizer *model, *own;
        an_text json = {0};
        an_err err = {0};
        an_data *d;
        assert_int_equal(an_tokenizer_chars(&err, "t", row[i].model, strlen(row[i].model), &model), AN_OK);
        assert_int_equal(an_tokenizer_chars(&err, "t", row[i].data, strlen(row[i].data), &own), AN_OK);
        an_text_puts(&json, "{\"vocab_size\":3,\"tokenizer\":");
        assert_int_equal(an_tokenizer_json(&err, own, &json), AN_OK);
        an_text_puts(&json, "}");
        test_write_file(meta, json.data, json.len);
        const an_status status =
            an_data_open(&err, &(an_data_options){.source = bin, .tokenizer = model, .vocab_size = 9}, &d);
        assert_int_equal(status, row[i].fault ? AN_E_DATA : AN_OK);
        if (row[i].fault) assert_contains(err.text, row[i].fault);
        if (!row[i].fault) assert_ptr_equal(an_data_tokenizer(d), model);
        an_data_close(d);
        an_text_free(&json);
        an_tokenizer_free(own);
        an_tokenizer_free(model);
    }
}

static void files_that_cannot_be_data_are_refused(void **state)
{
    (void)state;
    struct {
        const char *source, *part;
        int64_t vocab;
    } cases[] = {
        {test_path("absent.txt"), "absent.txt: cannot open", 0},
        {temp_text("empty.txt", ""), "empty.txt: the file is empty", 0},
        {temp_text("empty.bin", ""), "empty.bin: the file is empty", 9},
        {temp_text("odd.bin", "abc"), "odd.bin: 3 bytes is odd", 9},
        {temp_text("plain.bin", "abcd"), "set vocab_size", 0},
        {temp_text("latin1.txt", "caf\xe9 noir and more text"), "latin1.txt: byte 3: not UTF-8", 0},
        {test_folder(), "train.bin: cannot open", 9},
    };
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        an_err err = {0};
        an_data *d;
        assert_int_not_equal(
            an_data_open(&err, &(an_data_options){.source = cases[i].source, .vocab_size = cases[i].vocab}, &d), AN_OK);
        assert_null(d);
        assert_contains(err.text, cases[i].part);
    }
}

static void a_text_that_is_too_short_for_a_sample_is_refused(void **state)
{
    (void)state;
    an_data *d = open_data(temp_text("short", "0123456789"), 0);
    int32_t x[16], y[16];
    an_err err = {0};
    assert_int_equal(an_data_batch(&err, d, &(an_batch){.B = 1, .T = 8}, 0, x, y), AN_OK); /* one start is left */
    assert_int_equal(x[0], 0);
    assert_int_equal(an_data_batch(&err, d, &(an_batch){.B = 1, .T = 9}, 0, x, y), AN_E_DATA);
    assert_contains(err.text, "the training split has 9 tokens, a sample of 9 needs one more");
    assert_int_equal(an_data_batch(NULL, d, &(an_batch){.split = AN_VAL, .B = 1, .T = 1}, 0, x, y), AN_E_DATA);
    an_data_close(d);
}

static void the_corpus_is_built_in(void **state)
{
    (void)state;
    an_data *d = open_data("corpus", 0);
    assert_true(an_data_vocab(d) <= 96);
    assert_int_equal(an_data_tokens(d, AN_TRAIN) + an_data_tokens(d, AN_VAL), an_corpus_bytes);
    an_data_close(d);
}

/* ---- the loader */

/* Token data as a loader's source. */
typedef struct token_source {
    const an_data *data;
    an_batch batch;
} token_source;

static an_status fill(an_err *err, const void *data, uint64_t step, void *const *array)
{
    const token_source *s = data;
    return an_data_batch(err, s->data, &s->batch, step, array[0], array[1]);
}

static an_status open_loader(an_err *err, token_source *data, const an_data *d, an_batch b, uint64_t first, int workers,
                             an_loader **out)
{
    const an_array array = {.name = "tokens", .dtype = AN_I32, .shape = AN_SHAPE(b.B, b.T)};
    *data = (token_source){d, b};
    const an_source source = {.array = {array, array}, .n = 2, .fill = fill, .data = data};
    return an_loader_open(err, &source, first, workers, out);
}

enum { LB = 3, LT = 16, LSTEPS = 200 };

static void the_order_does_not_depend_on_the_number_of_workers(void **state)
{
    (void)state;
    an_data *d = open_data(counting_bin("loader.bin", 3000), 3000);
    an_batch b = {.seed = 5, .B = LB, .T = LT};
    static const int workers[] = {0, 1, 2, 5};
    for (size_t w = 0; w < AN_COUNT(workers); w++) {
        an_err err = {0};
        an_loader *l;
        token_source data;
        assert_int_equal(open_loader(&err, &data, d, b, 1000, workers[w], &l), AN_OK);
        assert_int_equal(an_loader_bytes(l), (size_t)(workers[w] + 1) * 2 * LB * LT * 4);
        for (uint64_t step = 1000; step < 1000 + LSTEPS; step++) {
            void *const *array;
            int32_t ex[LB * LT], ey[LB * LT];
            assert_int_equal(an_loader_next(&err, l, &array), AN_OK);
            if (step % 50 == 0) usleep(2000); /* workers run ahead and must not overwrite what the caller holds */
            assert_int_equal(an_data_batch(&err, d, &b, step, ex, ey), AN_OK);
            assert_memory_equal(array[0], ex, sizeof ex);
            assert_memory_equal(array[1], ey, sizeof ey);
        }
        assert_true(an_loader_wait_seconds(l) > 0);
        an_loader_close(l);
    }
    an_data_close(d);
}

static void a_loader_that_is_closed_early_ends(void **state)
{
    (void)state;
    an_data *d = open_data(counting_bin("loader.bin", 3000), 3000);
    for (int taken = 0; taken < 3; taken++) {
        an_loader *l;
        token_source data;
        void *const *array;
        assert_int_equal(open_loader(NULL, &data, d, (an_batch){.B = LB, .T = LT}, 0, 4, &l), AN_OK);
        for (int i = 0; i < taken; i++) assert_int_equal(an_loader_next(NULL, l, &array), AN_OK);
        an_loader_close(l);
    }
    an_data_close(d);
}

static void a_failure_comes_at_its_step_and_stays(void **state)
{
    (void)state;
    /* Only some samples hold the bad id: the first such step is the same for every number of workers. */
    uint16_t tokens[2000] = {0};
    tokens[700] = 999;
    an_data *d = open_data(temp_file("bad.bin", tokens, sizeof tokens), 10);
    an_batch b = {.seed = 1, .B = 1, .T = 20};
    int first[3];
    for (int workers = 0; workers < 3; workers++) {
        an_loader *l;
        token_source data;
        an_err err = {0};
        void *const *array;
        assert_int_equal(open_loader(&err, &data, d, b, 0, workers, &l), AN_OK);
        for (first[workers] = 0; first[workers] < 10000 && an_loader_next(&err, l, &array) == AN_OK; first[workers]++)
            continue;
        assert_contains(err.text, "bad.bin: byte 1400: token id 999");
        err = (an_err){0};
        assert_int_equal(an_loader_next(&err, l, &array), AN_E_DATA);
        assert_contains(err.text, "byte 1400");
        an_loader_close(l);
    }
    assert_in_range(first[0], 1, 9999);
    assert_int_equal(first[0], first[1]);
    assert_int_equal(first[0], first[2]);
    an_data_close(d);
}

static void impossible_loaders_are_refused(void **state)
{
    (void)state;
    an_data *d = open_data(counting_bin("loader.bin", 3000), 3000);
    an_loader *l;
    token_source data;
    assert_int_equal(open_loader(NULL, &data, d, (an_batch){.B = 1, .T = 1}, 0, -1, &l), AN_E_USAGE);
    assert_int_equal(open_loader(NULL, &data, d, (an_batch){.B = 1, .T = 1}, 0, 65, &l), AN_E_USAGE);
    assert_int_equal(open_loader(NULL, &data, d, (an_batch){.B = 0, .T = 1}, 0, 1, &l), AN_E_USAGE);
    assert_int_equal(open_loader(NULL, &data, d, (an_batch){.B = INT64_MAX / 2, .T = 4}, 0, 1, &l), AN_E_USAGE);
    assert_null(l);
    an_data_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_split_by_characters_into_nine_tenths_and_the_rest),
        cmocka_unit_test(shakespeare_counts_are_nanogpts),
        cmocka_unit_test(batches_are_windows_of_the_text_and_targets_are_one_later),
        cmocka_unit_test(starts_are_uniform_and_reach_both_ends),
        cmocka_unit_test(an_epoch_holds_every_window_once_in_an_order_of_its_own),
        cmocka_unit_test(micro_batches_hold_what_one_large_batch_holds),
        cmocka_unit_test(windows_cover_a_split_once),
        cmocka_unit_test(an_id_outside_of_the_vocabulary_is_named_with_its_byte),
        cmocka_unit_test(a_folder_has_train_and_val),
        cmocka_unit_test(a_file_that_was_cut_between_two_tokens_is_refused_by_its_count),
        cmocka_unit_test(tokens_of_another_vocabulary_are_refused_by_name),
        cmocka_unit_test(files_that_cannot_be_data_are_refused),
        cmocka_unit_test(a_text_that_is_too_short_for_a_sample_is_refused),
        cmocka_unit_test(the_corpus_is_built_in),
        cmocka_unit_test(the_order_does_not_depend_on_the_number_of_workers),
        cmocka_unit_test(a_loader_that_is_closed_early_ends),
        cmocka_unit_test(a_failure_comes_at_its_step_and_stays),
        cmocka_unit_test(impossible_loaders_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
