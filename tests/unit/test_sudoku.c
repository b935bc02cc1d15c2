/* Sudoku: solving, making, symmetries, and the form that all images of a board share. */
#include "io/data/sudoku.h"
#include "lib/test.h"
#include <string.h>

static const int sides[] = {4, 6, 9};

static void digits(const char *text, uint8_t *out)
{
    for (int i = 0; text[i]; i++) out[i] = text[i] == '.' ? 0 : (uint8_t)(text[i] - '0');
}

static void a_known_puzzle_has_its_solution_and_no_other(void **state)
{
    (void)state;
    uint8_t board[81], solution[81], want[81];
    /* the example of Wikipedia's article on Sudoku */
    digits("53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79", board);
    digits("534678912672195348198342567859761423426853791713924856961537284287419635345286179", want);
    assert_int_equal(an_sudoku_solve(9, board, 2, solution), 1);
    assert_memory_equal(solution, want, 81);
    board[0] = 0, board[1] = 0, board[4] = 0;
    board[9] = 0, board[12] = 0, board[13] = 0, board[14] = 0;
    assert_int_equal(an_sudoku_solve(9, board, 2, solution), 2);
    memcpy(board, want, 81);
    board[0] = 3;
    assert_int_equal(an_sudoku_solve(9, board, 2, solution), 0);
    board[0] = 200;
    assert_int_equal(an_sudoku_solve(9, board, 2, solution), 0);
}

static void the_grids_of_four_are_288(void **state)
{
    (void)state;
    const uint8_t empty[16] = {0};
    assert_int_equal(an_sudoku_solve(4, empty, 1000, NULL), 288);
}

static void a_made_puzzle_has_one_solution_and_no_given_too_many(void **state)
{
    (void)state;
    for (size_t t = 0; t < AN_COUNT(sides); t++)
        for (uint64_t number = 0; number < 20; number++) {
            const int side = sides[t], cells = side * side;
            uint8_t puzzle[81], solution[81], found[81];
            an_sudoku_generate(side, 3, number, 0, puzzle, solution);
            assert_int_equal(an_sudoku_solve(side, puzzle, 2, found), 1);
            assert_memory_equal(found, solution, (size_t)cells);
            for (int i = 0; i < cells; i++) {
                const uint8_t given = puzzle[i];
                if (!given) continue;
                puzzle[i] = 0;
                assert_int_equal(an_sudoku_solve(side, puzzle, 2, NULL), 2);
                puzzle[i] = given;
            }
            uint8_t again[81], other[81];
            an_sudoku_generate(side, 3, number, 0, again, found);
            assert_memory_equal(again, puzzle, (size_t)cells);
            an_sudoku_generate(side, 4, number, 0, other, found);
            int equal = 0, givens = 0;
            for (int i = 0; i < cells; i++) equal += other[i] == puzzle[i];
            assert_true(equal < cells || side == 4);
            an_sudoku_generate(side, 3, number, cells / 2, again, found);
            for (int i = 0; i < cells; i++) givens += again[i] != 0;
            assert_true(givens >= cells / 2);
        }
}

static void an_image_of_a_grid_is_a_grid_with_the_same_canonical_form(void **state)
{
    (void)state;
    for (size_t t = 0; t < AN_COUNT(sides); t++)
        for (uint64_t number = 0; number < 3; number++) {
            const int side = sides[t];
            const size_t cells = (size_t)(side * side);
            uint8_t puzzle[81], solution[81], form[81], image[81], image_form[81], image_solution[81];
            an_sudoku_generate(side, 8, number, 0, puzzle, solution);
            an_sudoku_canonical(side, puzzle, form);
            for (uint64_t k = 0; k < 6; k++) {
                an_sudoku_map map;
                an_sudoku_random_map(side, 1, k, &map);
                an_sudoku_apply(&map, puzzle, image);
                an_sudoku_canonical(side, image, image_form);
                assert_memory_equal(form, image_form, cells);
                an_sudoku_apply(&map, solution, image_solution);
                assert_int_equal(an_sudoku_solve(side, image, 2, image), 1);
                assert_memory_equal(image, image_solution, cells);
            }
        }
}

static void different_puzzles_have_different_canonical_forms(void **state)
{
    (void)state;
    uint8_t a[81], b[81], one[81], two[81], solution[81];
    an_sudoku_generate(9, 1, 1, 0, a, solution);
    memcpy(b, a, 81);
    int i = 0;
    while (b[i]) i++;
    b[i] = solution[i]; /* one more given */
    an_sudoku_canonical(9, a, one);
    an_sudoku_canonical(9, b, two);
    assert_memory_not_equal(one, two, 81);
    an_sudoku_generate(9, 1, 2, 0, b, solution);
    an_sudoku_canonical(9, b, two);
    assert_memory_not_equal(one, two, 81);
    /* the grids of 4x4 are of two kinds, of 96 and 192 grids */
    uint8_t forms[2][16];
    int kinds = 0;
    for (uint64_t number = 0; number < 60; number++) {
        uint8_t grid[16], form[16];
        int k = 0;
        an_sudoku_grid(4, 9, number, grid);
        an_sudoku_canonical(4, grid, form);
        while (k < kinds && memcmp(forms[k], form, 16) != 0) k++;
        assert_in_range(k, 0, 1);
        if (k == kinds) memcpy(forms[kinds++], form, 16);
    }
    assert_int_equal(kinds, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_known_puzzle_has_its_solution_and_no_other),
                                       cmocka_unit_test(the_grids_of_four_are_288),
                                       cmocka_unit_test(a_made_puzzle_has_one_solution_and_no_given_too_many),
                                       cmocka_unit_test(an_image_of_a_grid_is_a_grid_with_the_same_canonical_form),
                                       cmocka_unit_test(different_puzzles_have_different_canonical_forms)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
