/* A data set's dataset.json beside sound files, and lists of Sudokus: whatever the bytes, what is taken is in range. */
#include "io/data/puzzle_set.h"
#include "io/data/puzzle_write.h"
#include "io/data/sudoku_list.h"
#include "fuzz.h"

enum { LENGTH = 4 };

/* FOLDER/train with two examples. */
static const char *folder(void)
{
    static char dir[256];
    if (dir[0]) return dir;
    snprintf(dir, sizeof dir, "%s", test_path("set"));
    const an_puzzle_meta meta = {.vocab_size = 9, .seq_len = LENGTH, .num_puzzle_identifiers = 2};
    an_puzzle_writer *w;
    const int32_t row[LENGTH] = {1, 2, 3, 8};
    FUZZ_CHECK(an_puzzle_writer_open(NULL, dir, "train", &meta, AN_U8, &w) == AN_OK);
    for (int i = 0; i < 2; i++) {
        FUZZ_CHECK(an_puzzle_writer_example(NULL, w, row, row) == AN_OK);
        FUZZ_CHECK(an_puzzle_writer_puzzle(NULL, w, i) == AN_OK && an_puzzle_writer_group(NULL, w) == AN_OK);
    }
    FUZZ_CHECK(an_puzzle_writer_end(NULL, w) == AN_OK);
    return dir;
}

static bool fuzz_set(const char *data, size_t bytes)
{
    char path[512];
    const char *dir = folder();
    an_err err = {0};
    an_puzzle_set *s;
    snprintf(path, sizeof path, "%s/train/dataset.json", dir);
    test_write_file(path, data, bytes);
    an_status status = an_puzzle_set_open(&err, &dir, 1, "train", &s);
    fuzz_check_sentence(status, &err);
    if (status != AN_OK) return false;
    const an_puzzle_meta *m = an_puzzle_set_meta(s);
    FUZZ_CHECK(m->seq_len == LENGTH);
    for (int64_t e = 0; e < an_puzzle_set_examples(s); e++) {
        int32_t x[LENGTH], y[LENGTH], id;
        FUZZ_CHECK(an_puzzle_set_read(&err, s, e, x, y, &id) == AN_OK);
        for (int i = 0; i < LENGTH; i++) {
            FUZZ_CHECK(x[i] >= 0 && x[i] < m->vocab_size);
            FUZZ_CHECK((y[i] >= 0 && y[i] < m->vocab_size) || y[i] == AN_PUZZLE_IGNORED);
        }
        FUZZ_CHECK(id >= 0 && id < m->num_puzzle_identifiers);
    }
    an_puzzle_set_close(s);
    return true;
}

static bool fuzz_list(const char *data, size_t bytes)
{
    an_err err = {0};
    an_sudoku_list l;
    const char *path = test_path("list.txt");
    test_write_file(path, data, bytes);
    an_status status = an_sudoku_list_read(&err, path, 0, AN_SUDOKU_LIST_MOST, &l);
    fuzz_check_sentence(status, &err);
    for (int32_t i = 0; status == AN_OK && i < AN_MIN(l.n, 4); i++) {
        an_err why = {0};
        /* boards with few givens have solutions without end, of which two are looked for */
        fuzz_check_sentence(an_sudoku_list_solve(&why, &l, i), &why);
        for (int k = 0; l.row[i].answered && k < l.side * l.side; k++) FUZZ_CHECK(l.row[i].answer[k] <= l.side);
    }
    an_sudoku_list_free(&l);
    return status == AN_OK;
}

static bool fuzz_one(const char *data, size_t bytes)
{
    return bytes > 0 && data[0] == '{' ? fuzz_set(data, bytes) : fuzz_list(data, bytes);
}

static const fuzz_seed seeds[] = {
    SEED("{\"pad_id\":0,\"ignore_label_id\":3,\"blank_identifier_id\":0,\"vocab_size\":9,\"seq_len\":4,"
         "\"num_puzzle_identifiers\":2,\"total_groups\":2,\"mean_puzzle_examples\":1.0,\"total_puzzles\":2,\"sets\":["
         "\"all\"]}"),
    SEED("source,question,answer,rating\nx,1..4..2..2..4..1,1324432112433214,3\n"),
    SEED("# comment\n1..4..2..2..4..1\r\n..............12\n"),
};

static size_t fuzz_seeds(const fuzz_seed **out)
{
    *out = seeds;
    return AN_COUNT(seeds);
}
