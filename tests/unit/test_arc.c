/* ARC's grids, published files and data sets: tokens and images, and where a fault is said to be. */
#include "io/data/arc_set.h"
#include "base/rng.h"
#include "lib/test.h"
#include <string.h>

static uint32_t draw(uint64_t i, uint32_t n)
{
    return an_rng_u32(7, 1, i) % n;
}

static an_arc_grid random_grid(uint64_t seed)
{
    an_arc_grid g = {.rows = (uint8_t)(1 + draw(seed, 30)), .cols = (uint8_t)(1 + draw(seed + 1, 30))};
    for (uint32_t i = 0; i < (uint32_t)(g.rows * g.cols); i++) g.cell[i] = (uint8_t)draw(seed + 2 + i, 10);
    return g;
}

static void a_grid_is_read_back_from_its_tokens(void **state)
{
    (void)state;
    for (uint64_t k = 0; k < 200; k++) {
        const an_arc_grid g = random_grid(k * 1000);
        int32_t tokens[AN_ARC_CELLS];
        an_arc_grid back;
        an_arc_tokens(&g, 0, 0, tokens);
        an_arc_crop(tokens, &back);
        assert_true(an_arc_equal(&g, &back));
        int ends = 0;
        for (int i = 0; i < AN_ARC_CELLS; i++) ends += tokens[i] == 1;
        assert_int_equal(ends, (g.rows < 30 ? g.cols : 0) + (g.cols < 30 ? g.rows : 0));
    }
}

static void tokens_without_a_grid_give_none(void **state)
{
    (void)state;
    int32_t tokens[AN_ARC_CELLS] = {1, 5};
    an_arc_grid g;
    an_arc_crop(tokens, &g);
    assert_int_equal(g.rows, 0);
    tokens[0] = -3;
    an_arc_crop(tokens, &g);
    assert_int_equal(g.rows, 0);
    for (int i = 0; i < AN_ARC_CELLS; i++) tokens[i] = i % 30 < 2 || i < 120 ? 4 : 0; /* 4 rows of 30, then 2 columns */
    an_arc_crop(tokens, &g);
    assert_int_equal(g.rows, 4);
    assert_int_equal(g.cols, 30);
}

static void an_image_turned_back_is_the_grid_and_its_name_tells_the_image(void **state)
{
    (void)state;
    for (uint64_t k = 0; k < 200; k++) {
        const an_arc_grid g = random_grid(k * 1000);
        an_arc_image image = {.turn = (uint8_t)(k % 8), .colour = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}, read;
        for (uint32_t c = 9; c > 1; c--) {
            const uint32_t other = 1 + draw(k * 50 + c, c);
            const uint8_t was = image.colour[c];
            image.colour[c] = image.colour[other];
            image.colour[other] = was;
        }
        an_arc_grid turned, back;
        char name[64] = "puzzle";
        size_t n;
        an_arc_apply(&image, &g, &turned);
        an_arc_undo(&image, &turned, &back);
        assert_true(an_arc_equal(&g, &back));
        an_arc_image_name(&image, name + 6);
        assert_true(an_arc_name_read(name, &n, &read));
        assert_int_equal(n, 6);
        assert_memory_equal(&read, &image, sizeof read);
    }
}

/* What numpy gives: rot90 by 0 to 3, fliplr, flipud, transpose, fliplr of rot90. */
static void the_eight_turns_are_those_of_the_published_names(void **state)
{
    (void)state;
    static const struct {
        int rows, cols;
        uint8_t cell[6];
    } want[8] = {{2, 3, {1, 2, 3, 4, 5, 6}}, {3, 2, {3, 6, 2, 5, 1, 4}}, {2, 3, {6, 5, 4, 3, 2, 1}},
                 {3, 2, {4, 1, 5, 2, 6, 3}}, {2, 3, {3, 2, 1, 6, 5, 4}}, {2, 3, {4, 5, 6, 1, 2, 3}},
                 {3, 2, {1, 4, 2, 5, 3, 6}}, {3, 2, {6, 3, 5, 2, 4, 1}}};
    const an_arc_grid g = {.rows = 2, .cols = 3, .cell = {1, 2, 3, 4, 5, 6}};
    for (int turn = 0; turn < 8; turn++) {
        an_arc_image image = an_arc_itself;
        an_arc_grid out;
        image.turn = (uint8_t)turn;
        an_arc_apply(&image, &g, &out);
        assert_int_equal(out.rows, want[turn].rows);
        assert_int_equal(out.cols, want[turn].cols);
        assert_memory_equal(out.cell, want[turn].cell, 6);
    }
}

static void an_ending_that_is_no_image_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"a|||",
                                        "a|||t8|||0123456789",
                                        "a|||t1|||0123456788",
                                        "a|||t1|||012345678",
                                        "a|||t1|||01234567890",
                                        "a|||x1|||0123456789",
                                        "a|||t1||x0123456789"};
    an_arc_image image;
    size_t n;
    for (size_t i = 0; i < AN_COUNT(wrong); i++)
        if (an_arc_name_read(wrong[i], &n, &image)) fail_msg("%s is taken", wrong[i]);
}

#define PAIR "{\"input\": [[1]], \"output\": [[2]]}"

static void a_fault_is_named_with_line_and_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"[]", "an object is needed"},
        {"{}", "there is no puzzle in it"},
        {"{\n\"a\": 3}", "f:2: puzzle \"a\": a puzzle is an object"},
        {"{\"a\": {\"train\": [], \"test\": [" PAIR "]}}", "f:1: puzzle \"a\": \"train\" is no list of 1 to 64 pairs"},
        {"{\"a\": {\"train\": [" PAIR "]}}", "\"test\" is no list"},
        {"{\"a\": {\"train\": [\n" PAIR ",\n{\"input\": [[1, 2],\n[3]], \"output\": [[1]]}], \"test\": [" PAIR "]}}",
         "f:4: puzzle \"a\", train 2, input 2: the row has 1 cells, the first one 2"},
        {"{\"a\": {\"train\": [" PAIR "],\n\"test\": [{\"input\": [[10]]}]}}",
         "f:2: puzzle \"a\", test 1, input 1: cell 1 is of colour 10; colours are 0 to 9"},
        {"{\"a\": {\"train\": [{\"input\": [[1]], \"output\": [[-1]]}], \"test\": [" PAIR "]}}", "colour -1"},
        {"{\"a\": {\"train\": [{\"input\": [[1.5]], \"output\": [[1]]}], \"test\": [" PAIR "]}}", "no whole number"},
        {"{\"a\": {\"train\": [{\"input\": [], \"output\": [[1]]}], \"test\": [" PAIR "]}}", "a list of 1 to 30 rows"},
        {"{\"a\": {\"train\": [{\"input\": [[]], \"output\": [[1]]}], \"test\": [" PAIR "]}}", "1 to 30 colours"},
        {"{\"a\": {\"train\": [{\"input\": [[1]]}], \"test\": [" PAIR "]}}", "train 1, output: a grid is a list"},
        {"{\"a|||t1\": {\"train\": [" PAIR "], \"test\": [" PAIR "]}}", "neither begins with # nor has |||"},
        {"{\"a b\": {\"train\": [" PAIR "], \"test\": [" PAIR "]}}", "no blanks"},
        {"{\"a\": {\"train\": [" PAIR "], \"test\": [" PAIR "]}, \"a\": {}}", "not valid JSON"},
        {"{\"a\": {", "not valid JSON"},
    };
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        an_err err = {0};
        an_arc_tasks t = {0};
        assert_int_not_equal(
            an_arc_tasks_parse(&err, "f", "s", cases[i].text, strlen(cases[i].text), NULL, NULL, 0, &t), AN_OK);
        if (!strstr(err.text, cases[i].sentence)) fail_msg("case %zu: %s", i, err.text);
        an_arc_tasks_free(&t);
    }
}

static void solutions_fit_their_puzzles(void **state)
{
    (void)state;
    static const char text[] = "{\"a\": {\"train\": [" PAIR "], \"test\": [{\"input\": [[1]]}]},"
                               "\"b\": {\"train\": [" PAIR "], \"test\": [{\"input\": [[4]]}]}}";
    static const struct {
        const char *text, *sentence;
    } cases[] = {{"{\"a\": [[[1]], [[2]]]}", "no list of 1 grids"},
                 {"{\"a\": 5}", "no list of 1 grids"},
                 {"{\"a\":\n[[[1, 11]]]}", "s:2: puzzle \"a\" 1 1: cell 2 is of colour 11"},
                 {"{\"a\": [[[7, 7]]], \"unknown\": 3}", NULL}};
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        an_err err = {0};
        an_arc_tasks t = {0};
        an_status status =
            an_arc_tasks_parse(&err, "f", "x", text, strlen(text), "s", cases[i].text, strlen(cases[i].text), &t);
        assert_int_equal(status == AN_OK, cases[i].sentence == NULL);
        if (cases[i].sentence && !strstr(err.text, cases[i].sentence)) fail_msg("case %zu: %s", i, err.text);
        if (!cases[i].sentence) {
            assert_true(t.task[0].solved && !t.task[1].solved);
            assert_int_equal(t.pair[1].out.cols, 2);
            assert_int_equal(t.pair[1].out.cell[1], 7);
            assert_int_equal(t.pair[3].out.cols, 1); /* not known */
        }
        an_arc_tasks_free(&t);
    }
}

static void a_puzzle_of_two_subsets_is_refused(void **state)
{
    (void)state;
    static const char text[] = "{\"a\": {\"train\": [" PAIR "], \"test\": [" PAIR "]}}";
    an_err err = {0};
    an_arc_tasks t = {0};
    assert_int_equal(an_arc_tasks_parse(&err, "f", "one", text, strlen(text), NULL, NULL, 0, &t), AN_OK);
    assert_int_equal(an_arc_tasks_parse(&err, "g", "two", text, strlen(text), NULL, NULL, 0, &t), AN_E_DATA);
    assert_non_null(strstr(err.text, "in subset one too"));
    an_arc_tasks_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_grid_is_read_back_from_its_tokens),
        cmocka_unit_test(tokens_without_a_grid_give_none),
        cmocka_unit_test(an_image_turned_back_is_the_grid_and_its_name_tells_the_image),
        cmocka_unit_test(the_eight_turns_are_those_of_the_published_names),
        cmocka_unit_test(an_ending_that_is_no_image_is_refused),
        cmocka_unit_test(a_fault_is_named_with_line_and_place),
        cmocka_unit_test(solutions_fit_their_puzzles),
        cmocka_unit_test(a_puzzle_of_two_subsets_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
