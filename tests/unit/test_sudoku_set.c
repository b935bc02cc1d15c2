/* Data sets of Sudokus: what is made, and that no test puzzle is a symmetry image of a training one. */
#include "io/data/puzzle_set.h"
#include "io/data/sudoku.h"
#include "io/data/sudoku_set.h"
#include "lib/test.h"
#include <stdio.h>
#include <string.h>

typedef struct opened {
    an_puzzle_set *split[2];
} opened;

static opened open_both(const char *dir)
{
    an_err err = {0};
    opened o;
    for (int k = 0; k < 2; k++)
        if (an_puzzle_set_open(&err, &dir, 1, k ? "test" : "train", &o.split[k]) != AN_OK) fail_msg("%s", err.text);
    return o;
}

static void read_board(const an_puzzle_set *s, int64_t e, int cells, uint8_t *puzzle, uint8_t *solution)
{
    int32_t inputs[81], labels[81], id;
    assert_int_equal(an_puzzle_set_read(NULL, s, e, inputs, labels, &id), AN_OK);
    for (int i = 0; i < cells; i++) puzzle[i] = (uint8_t)(inputs[i] - 1), solution[i] = (uint8_t)(labels[i] - 1);
}

/* Every puzzle has its solution and no other; no canonical form is in both splits; for small boards no grid is. */
static void check_set(const char *dir, int side)
{
    const opened o = open_both(dir);
    const size_t cells = (size_t)(side * side);
    static uint8_t form[2][300][81], grid[2][300][81];
    int64_t n[2];
    for (int k = 0; k < 2; k++) {
        n[k] = an_puzzle_set_examples(o.split[k]);
        assert_in_range(n[k], 1, 300);
        for (int64_t e = 0; e < n[k]; e++) {
            uint8_t puzzle[81], found[81];
            read_board(o.split[k], e, side * side, puzzle, grid[k][e]);
            assert_int_equal(an_sudoku_solve(side, puzzle, 2, found), 1);
            assert_memory_equal(found, grid[k][e], cells);
            an_sudoku_canonical(side, puzzle, form[k][e]);
        }
    }
    for (int64_t a = 0; a < n[0]; a++)
        for (int64_t b = 0; b < n[1]; b++) {
            assert_memory_not_equal(form[0][a], form[1][b], cells);
            assert_memory_not_equal(grid[0][a], grid[1][b], cells);
        }
    an_puzzle_set_close(o.split[0]);
    an_puzzle_set_close(o.split[1]);
}

static void made_sets_share_no_form_and_no_grid(void **state)
{
    (void)state;
    static const int sides[] = {4, 6, 9};
    for (size_t t = 0; t < AN_COUNT(sides); t++) {
        an_err err = {0};
        an_sudoku_result result;
        const an_sudoku_options o = {.out = test_path("made"),
                                     .side = sides[t],
                                     .generate = 40,
                                     .givens = -1,
                                     .test_size = 20,
                                     .num_aug = sides[t] == 9 ? 0 : 5};
        if (an_sudoku_build(&err, &o, &result) != AN_OK) fail_msg("%s", err.text);
        assert_int_equal(result.train, 40);
        assert_int_equal(result.examples, 40 * (1 + o.num_aug));
        assert_int_equal(result.test, 20);
        check_set(o.out, sides[t]);
    }
}

/* A list with every puzzle and an image of it. */
static void images_of_training_puzzles_are_left_out_of_the_test(void **state)
{
    (void)state;
    char text[20 * 82 + 1], *at = text, path[256], out[256];
    uint8_t puzzle[81], image[81], solution[81];
    for (uint64_t number = 0; number < 10; number++) {
        an_sudoku_map map;
        an_sudoku_generate(9, 77, number, 26, puzzle, solution);
        an_sudoku_random_map(9, 78, number, &map);
        an_sudoku_apply(&map, puzzle, image);
        for (int i = 0; i < 81; i++) *at++ = (char)('0' + puzzle[i]);
        *at++ = '\n';
        for (int i = 0; i < 81; i++) *at++ = (char)('0' + image[i]);
        *at++ = '\n';
    }
    snprintf(path, sizeof path, "%s", test_path("twins.txt"));
    snprintf(out, sizeof out, "%s", test_path("twins"));
    test_write_file(path, text, (size_t)(at - text));
    an_err err = {0};
    an_sudoku_result result;
    const an_sudoku_options o = {.from = path, .out = out, .subsample = 12, .test_size = 1, .seed = 3};
    if (an_sudoku_build(&err, &o, &result) != AN_OK) fail_msg("%s", err.text);
    check_set(out, 9);
    const an_sudoku_options all = {.from = path, .test = path, .out = out, .subsample = 20, .test_size = 1};
    assert_int_equal(an_sudoku_build(&err, &all, &result), AN_E_DATA);
    assert_int_equal(result.images, 20);
}

static an_status build_small(an_err *err, void *arg)
{
    an_sudoku_result result;
    return an_sudoku_build(
        err, &(an_sudoku_options){.out = arg, .side = 4, .generate = 2, .givens = 8, .num_aug = 1, .test_size = 1},
        &result);
}

static void a_refused_allocation_is_a_sentence(void **state)
{
    (void)state;
    test_refuse_each_allocation(build_small, (void *)(uintptr_t)test_path("memory"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(made_sets_share_no_form_and_no_grid),
                                       cmocka_unit_test(images_of_training_puzzles_are_left_out_of_the_test),
                                       cmocka_unit_test(a_refused_allocation_is_a_sentence)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
