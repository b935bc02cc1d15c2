/* test_reader_bounds.c: numbers that readers of files take at most (docs/reliability.md): what has one more is refused with a
 * sentence that names the bound. Bounds in bytes of whole files are those of cli/test_reader_bounds.sh. */
#define _DEFAULT_SOURCE
#include "lib/test.h"

#include "io/data/array_file.h"
#include "io/data/maze_set.h"
#include "io/data/sudoku_list.h"
#include "io/formats/idx.h"
#include "io/formats/json.h"
#include "io/formats/npy.h"
#include "io/formats/safetensors.h"
#include "io/formats/zip_write.h"
#include "lib/make_zip.h"
#include "tools/pack.h"
#include <anneal_import.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void refused(an_status status, an_err *err, const char *words)
{
    if (status == AN_OK) fail_msg("taken, though %s", words);
    if (!strstr(err->text, words)) fail_msg("no \"%s\" in: %s", words, err->text);
    an_err_clear(err);
}

static void a_header_of_numpy_has_at_most_64_kib_and_eight_axes(void **state)
{
    (void)state;
    an_err err = {0};
    an_npy out;
    static char data[12 + 65537] = "\x93NUMPY\x02";
    memset(data + 12, ' ', sizeof data - 12);
    memcpy(data + 8, "\x01\x00\x01\x00", 4); /* 65,537 */
    refused(an_npy_parse(&err, "a.npy", data, sizeof data, &out), &err, "or than 65536");
    const char axes[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1), }";
    memcpy(data + 8, "\x00\x01\x00\x00", 4);
    memcpy(data + 12, axes, sizeof axes - 1);
    refused(an_npy_parse(&err, "a.npy", data, 12 + 256 + 4, &out), &err, "axes");
}

static void json_has_at_most_2048_levels(void **state)
{
    (void)state;
    an_err err = {0};
    json_t *j;
    char text[2 * 2049];
    for (int levels = 2048; levels <= 2049; levels++) {
        memset(text, '[', (size_t)levels);
        memset(text + levels, ']', (size_t)levels);
        const an_status status = an_json_parse(&err, "deep.json", 0, text, 2 * (size_t)levels, &j);
        if (levels == 2049)
            refused(status, &err, "deep.json");
        else if (status != AN_OK)
            fail_msg("%s", err.text);
        else
            json_decref(j);
    }
}

static void a_header_of_safetensors_has_at_most_100_mb(void **state)
{
    (void)state;
    an_err err = {0};
    an_st *st;
    const char *path = test_path("long.safetensors");
    const uint64_t length = 100000001;
    test_write_file(path, &length, sizeof length);
    assert_int_equal(truncate(path, (off_t)length + 8), 0);
    refused(an_st_open(&err, path, &st), &err, "100000000");
}

static void the_list_of_a_pack_has_at_most_4_mib(void **state)
{
    (void)state;
    an_err err = {0};
    an_zip_writer w;
    an_pack pack;
    const char *path = test_path("long.anneal");
    const size_t n = ((size_t)4 << 20) + 1;
    char *list = malloc(n);
    assert_non_null(list);
    memset(list, ' ', n);
    assert_int_equal(an_zip_begin(&err, path, &w), AN_OK);
    assert_int_equal(an_zip_add(&err, &w, "pack.json", list, n), AN_OK);
    assert_int_equal(an_zip_commit(&err, &w), AN_OK);
    an_zip_abort(&w);
    refused(an_pack_open(&err, path, &pack), &err, "pack.json has more than 4 MiB");
    free(list);
}

/* A description of a graph whose one list, or whose list of operations, is `n` times `item`. */
static void description(an_text *out, const char *before, const char *item, int n, const char *after)
{
    an_text_puts(out, "{\"model\":{\"schema_version\":{\"major\":8,\"minor\":0},\"verifiers\":[\"TRAINING\"],"
                      "\"graph_module\":{\"graph\":{\"nodes\":[");
    an_text_puts(out, before);
    for (int i = 0; i < n; i++) an_text_printf(out, "%s%s", i ? "," : "", item);
    an_text_printf(out,
                   "%s],\"tensor_values\":{\"x\":{\"dtype\":8,\"sizes\":[{\"as_int\":1}],\"strides\":[]},"
                   "\"y\":{\"dtype\":8,\"sizes\":[{\"as_int\":1}],\"strides\":[]}}},"
                   "\"signature\":{\"input_specs\":[{\"user_input\":{\"arg\":{\"as_tensor\":{\"name\":\"x\"}}}}],"
                   "\"output_specs\":[{\"user_output\":{\"arg\":{\"as_tensor\":{\"name\":\"y\"}}}}]}}},"
                   "\"weights\":{\"config\":{}},\"constants\":{\"config\":{}}}",
                   after);
    assert_false(out->failed);
}

static void graph_refused(const an_text *text, const char *words)
{
    char why[AN_IMPORT_WHY] = "";
    an_import *file = an_import_open_description("graph", text->data, text->len, why);
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .threads = 1});
    if (file && an_import_bind(file, cx, why)) fail_msg("taken, though %s", words);
    if (!strstr(why, words)) fail_msg("no \"%s\" in: %s", words, why);
    an_close(cx);
    an_import_close(file);
}

static void an_imported_graph_has_at_most_2_18_operations_and_lists_of_2_16(void **state)
{
    (void)state;
    an_text text = {0};
    description(&text, "", "{\"target\":\"aten._assert_scalar.default\",\"inputs\":[],\"outputs\":[],\"metadata\":{}}",
                (1 << 18) + 1, "");
    graph_refused(&text, "more than 262144 operations");
    an_text_clear(&text);
    description(
        &text,
        "{\"target\":\"aten.permute.default\",\"inputs\":[{\"name\":\"self\",\"arg\":{\"as_tensor\":{\"name\":\"x\"}}},"
        "{\"name\":\"dims\",\"arg\":{\"as_ints\":[",
        "0", (1 << 16) + 1, "]}}],\"outputs\":[{\"as_tensor\":{\"name\":\"y\"}}],\"metadata\":{}}");
    graph_refused(&text, "a list is missing or too long");
    an_text_free(&text);
}

static void an_npz_gives_at_most_64_arrays(void **state)
{
    (void)state;
    enum { MOST = 64 };
    static const char header[] = "\x93NUMPY\x01\x00\x76\x00{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }";
    char array[128 + 1];
    memset(array, ' ', 128);
    memcpy(array, header, sizeof header - 1);
    array[127] = '\n', array[128] = 7;
    an_text block = {0};
    make_zip_number(&block, 1, 1); /* deflate's last block, stored */
    make_zip_number(&block, sizeof array, 2);
    make_zip_number(&block, ~sizeof array & 65535, 2);
    an_text_putn(&block, array, sizeof array);
    make_zip z = {0};
    char name[32];
    for (int i = 0; i <= MOST; i++) {
        snprintf(name, sizeof name, "x%d.npy", i);
        make_zip_put(&z, name, block.data, block.len, 8, an_crc32(array, sizeof array), sizeof array);
    }
    make_zip_end(&z);
    const char *path = test_path("many.npz");
    test_write_file(path, z.file.data, z.file.len);
    an_err err = {0};
    an_array_file *f;
    if (an_array_file_open(&err, path, &f) != AN_OK) fail_msg("%s", err.text);
    for (int i = 0; i <= MOST; i++) {
        an_npy a;
        bool found;
        snprintf(name, sizeof name, "x%d", i);
        const an_status status = an_array_file_find(&err, f, name, NULL, &a, &found);
        if (i == MOST)
            refused(status, &err, "more than 64 arrays");
        else if (status != AN_OK || !found || an_npy_number(&a, 0) != 7)
            fail_msg("%s: %s", name, err.text);
    }
    an_array_file_close(f);
    an_text_free(&block);
    an_text_free(&z.file);
}

static void an_idx_file_has_at_most_four_axes_and_8_gib(void **state)
{
    (void)state;
    an_err err = {0};
    an_idx out;
    static const uint8_t five[4 + 5 * 4 + 1] = {0, 0, 8, 5, 0, 0, 0, 1, 0, 0, 0, 1, 0,
                                                0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 9};
    refused(an_idx_parse(&err, "a.idx", five, sizeof five, &out), &err, "a rank of 1 to 4");
    static const uint8_t long_one[4 + 2 * 4] = {0, 0, 8, 2, 0, 1, 0, 0, 0, 2, 0, 1}; /* 65,536 times 131,073 */
    refused(an_idx_parse(&err, "a.idx", long_one, sizeof long_one, &out), &err, "at most 8 GiB are read");
}

/* The bound itself is 2.6 GiB of puzzles: cli/test_reader_bounds.sh goes beyond it under AN_SOAK=1. */
static void a_list_of_sudokus_has_at_most_its_number(void **state)
{
    (void)state;
    an_err err = {0};
    const char *path = test_path("list.txt");
    static const char puzzle[] = "1...2...3...4...\n";
    char text[4 * (sizeof puzzle - 1)];
    for (int i = 0; i < 4; i++) memcpy(text + i * (sizeof puzzle - 1), puzzle, sizeof puzzle - 1);
    test_write_file(path, text, sizeof text);
    for (int32_t most = 3; most <= 4; most++) {
        an_sudoku_list l;
        const an_status status = an_sudoku_list_read(&err, path, 0, most, &l);
        if (most == 3)
            refused(status, &err, "list.txt:4: more than 3 puzzles; split the file");
        else if (status != AN_OK || l.n != 4)
            fail_msg("%d puzzles: %s", l.n, err.text);
        an_sudoku_list_free(&l);
    }
}

static void a_list_of_mazes_has_at_most_its_number(void **state)
{
    (void)state;
    an_err err = {0};
    an_maze_result result;
    const char *path = test_path("mazes.csv");
    static const char list[] = "source,question,answer,rating\na,SG  # # ####    ,SG  # # ####    ,1\n"
                               "a,SG##  # #  # ## ,SG##  # #  # ## ,1\n"
                               "a,SG###### ## #  #,SG###### ## #  #,1\n";
    test_write_file(path, list, sizeof list - 1);
    an_maze_options o = {.from = path, .out = test_path("mazes"), .test_size = 1, .most = 3};
    if (an_maze_build(&err, &o, &result) != AN_OK || result.train != 2) fail_msg("%s", err.text);
    o.most = 2;
    refused(an_maze_build(&err, &o, &result), &err, "mazes.csv: more than 2 mazes; split the file");
    o = (an_maze_options){.out = test_path("made"), .side = 9, .min_path = 4, .generate = AN_MAZE_MOST, .test_size = 1};
    refused(an_maze_build(&err, &o, &result), &err, "4194305 mazes together: at most 4194304");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_of_numpy_has_at_most_64_kib_and_eight_axes),
        cmocka_unit_test(json_has_at_most_2048_levels),
        cmocka_unit_test(a_header_of_safetensors_has_at_most_100_mb),
        cmocka_unit_test(the_list_of_a_pack_has_at_most_4_mib),
        cmocka_unit_test(an_imported_graph_has_at_most_2_18_operations_and_lists_of_2_16),
        cmocka_unit_test(an_npz_gives_at_most_64_arrays),
        cmocka_unit_test(an_idx_file_has_at_most_four_axes_and_8_gib),
        cmocka_unit_test(a_list_of_sudokus_has_at_most_its_number),
        cmocka_unit_test(a_list_of_mazes_has_at_most_its_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
