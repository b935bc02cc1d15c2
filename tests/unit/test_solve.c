/* test_solve.c: whether the answer to a maze keeps the maze and is a path. (Sudokus: tests/cli/test_trm.sh.) */
#include "infer/solve.h"
#include "lib/test.h"
#include <string.h>

static void tokens(const char *text, int32_t *out)
{
    for (int i = 0; text[i]; i++) out[i] = (int32_t)(strchr("# SGo", text[i]) - "# SGo") + 1;
}

static bool holds(const char *maze, const char *answer)
{
    int32_t board[16], tried[16];
    const an_boards b = {.kind = AN_BOARD_MAZE, .side = 4};
    assert_int_equal(strlen(maze), 16);
    assert_int_equal(strlen(answer), 16);
    tokens(maze, board);
    tokens(answer, tried);
    return an_board_holds(&b, board, tried);
}

static void an_answer_to_a_maze_is_the_maze_with_a_path(void **state)
{
    (void)state;
    const char *maze = "S  #"
                       "## #"
                       "#   "
                       "  #G";
    assert_false(holds(maze, "Soo#o#o#"
                             "# oo"
                             "  #G")); /* a wall became a way */
    assert_true(holds(maze, "Soo###o#"
                            "# oo"
                            "  #G"));
    assert_false(holds(maze, "Soo###o#"
                             "#  o"
                             "  #G")); /* a gap */
    assert_false(holds(maze, "Soo###o#"
                             "#ooo"
                             "  #G")); /* a branch */
    assert_false(holds(maze, "Soo###o#"
                             "# oo"
                             "  ##")); /* without its end */
    assert_false(holds(maze, "#oo###o#"
                             "# oo"
                             "  #G")); /* without its beginning */
    assert_false(holds(maze, maze));
    assert_true(holds("SG  "
                      "    "
                      "    "
                      "    ",
                      "SG  "
                      "    "
                      "    "
                      "    "));
    assert_false(holds("S   "
                       "    "
                       "    "
                       "   G",
                       "Soo "
                       "  oo"
                       " oo "
                       " ooG")); /* longer than its own cells need */
    assert_true(holds("S   "
                      "    "
                      "    "
                      "   G",
                      "Sooo"
                      "   o"
                      "   o"
                      "   G"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_answer_to_a_maze_is_the_maze_with_a_path)};
    return cmocka_run_group_tests_name("tests", tests, NULL, NULL);
}
