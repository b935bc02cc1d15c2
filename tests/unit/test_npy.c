/* test_npy.c: .npy files and labelled rows: written, read back, damaged; splits, epochs and built-in points. */
#include "lib/test.h"
#include "io/data/table.h"
#include "io/formats/npy.h"
#include <stdio.h>
#include <string.h>

static const char *write_array(const char *name, an_dtype dtype, int rank, const int64_t *dim, const void *data)
{
    an_err err = {0};
    const char *path = test_path(name);
    if (an_npy_write(&err, path, dtype, rank, dim, data) != AN_OK) fail_msg("%s", err.text);
    return path;
}

static void an_array_is_read_back_as_it_was_written(void **state)
{
    (void)state;
    static const double f64[] = {1.5, -2, 1e300};
    static const int64_t i64[] = {-1, 1LL << 40, 7};
    static const int32_t i32[] = {-5, 0, 5};
    static const float f32[] = {0.25f, -0.0f, 3};
    static const uint8_t u8[] = {0, 128, 255};
    const struct {
        an_dtype dtype;
        const void *data;
        double third;
    } cases[] = {{AN_F64, f64, 1e300}, {AN_I64, i64, 7}, {AN_I32, i32, 5}, {AN_F32, f32, 3}, {AN_U8, u8, 255}};
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        an_err err = {0};
        an_npy a;
        const char *path = write_array("a.npy", cases[i].dtype, 2, (int64_t[]){3, 1}, cases[i].data);
        if (an_npy_open(&err, path, &a) != AN_OK) fail_msg("%s", err.text);
        assert_int_equal(a.dtype, cases[i].dtype);
        assert_true(a.rank == 2 && a.dim[0] == 3 && a.dim[1] == 1);
        assert_memory_equal(a.data, cases[i].data, a.bytes);
        assert_true(an_npy_number(&a, 2) == cases[i].third);
        assert_int_equal((const char *)a.data - (const char *)a.map.data, 128); /* as NumPy pads */
        an_npy_close(&a);
    }
}

static void damage_and_what_is_not_read_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"PK\x03\x04 something else", "not a .npy file"},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", "\">f4\""},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }", "Fortran order"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "4 bytes of elements, where the shape makes 8"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "a length is needed"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } x", "something follows"},
        {"{'descr': '<f4', 'fortran_order': False}", "missing"},
        {"{'descr': '<f4', 'descr': '<f4', 'shape': (1,)}", "there twice"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999999999, 999999999999999999)}",
         "larger than any"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", "more than 8 axes"},
    };
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        an_err err = {0};
        an_npy a;
        char file[256];
        size_t n = strlen(cases[i].text);
        if (cases[i].text[0] == '{') {
            memcpy(file, "\x93NUMPY\x01\x00", 8);
            file[8] = (char)n, file[9] = 0;
            memcpy(file + 10, cases[i].text, n);
            memset(file + 10 + n, 0, 4);
            n += 14;
        } else {
            memcpy(file, cases[i].text, n);
        }
        assert_true(an_npy_parse(&err, "file.npy", file, n, &a) != AN_OK);
        if (!strstr(err.text, cases[i].part) || !strstr(err.text, "file.npy")) fail_msg("%s", err.text);
    }
}

static an_table *open_table(const char *source, bool whole)
{
    an_err err = {0};
    an_table *t;
    if (an_table_open(&err, source, whole, &t) != AN_OK) fail_msg("%s", err.text);
    return t;
}

/* Row i of x is i; its class i % 3. */
static void write_rows(int64_t n, int64_t y_rows)
{
    float x[64];
    uint8_t y[64];
    for (int64_t i = 0; i < n; i++) x[i] = (float)i, y[i] = (uint8_t)(i % 3);
    write_array("x.npy", AN_F32, 1, &n, x);
    write_array("y.npy", AN_U8, 1, &y_rows, y);
}

static void every_row_is_in_one_split_and_once_an_epoch(void **state)
{
    (void)state;
    for (int64_t n = 10; n < 60; n += 7) {
        bool seen[64] = {false};
        write_rows(n, n);
        an_table *t = open_table(test_folder(), false);
        assert_int_equal(an_table_rows(t, AN_TRAIN) + an_table_rows(t, AN_VAL), n);
        assert_int_equal(an_table_outputs(t), 3);
        for (int split = 0; split < AN_N_SPLITS; split++)
            for (int64_t i = 0; i < an_table_rows(t, split); i++) {
                float x;
                int32_t y;
                assert_int_equal(an_table_read(NULL, t, split, i, 3, &x, &y), AN_OK);
                assert_false(seen[(int)x]);
                assert_int_equal(y, (int)x % 3);
                seen[(int)x] = true;
            }
        const int64_t rows = an_table_rows(t, AN_TRAIN);
        int64_t sum = 0;
        for (int64_t s = 0; s < rows; s++) sum += an_table_draw(t, AN_TRAIN, 5, (uint64_t)s, 0, 1);
        assert_int_equal(sum, rows * (rows - 1) / 2);
        an_table_close(t);
    }
}

static void what_does_not_make_rows_is_refused(void **state)
{
    (void)state;
    an_err err = {0};
    an_table *t;
    write_rows(20, 19);
    assert_int_equal(an_table_open(&err, test_folder(), false, &t), AN_E_DATA);
    assert_non_null(strstr(err.text, "a label is needed for each row"));
    err = (an_err){0};
    assert_int_equal(an_table_open(&err, "/nowhere", false, &t), AN_E_IO);
    assert_non_null(strstr(err.text, "spirals"));
    float x;
    int32_t y;
    err = (an_err){0};
    write_rows(20, 20);
    t = open_table(test_folder(), true);
    assert_int_equal(an_table_rows(t, AN_VAL), 20);
    assert_int_equal(an_table_read(&err, t, AN_VAL, 2, 2, &x, &y), AN_E_DATA);
    assert_non_null(strstr(err.text, "y.npy: the label of row 2 is 2"));
    an_table_close(t);
}

static void the_built_in_points_are_the_same_everywhere(void **state)
{
    (void)state;
    char hash[AN_HASH_TEXT_BYTES];
    an_table *t = open_table("spirals", false);
    assert_int_equal(an_table_rows(t, AN_TRAIN), 2700);
    assert_int_equal(an_table_features(t), 2);
    an_table_hash(t, AN_VAL, hash);
    assert_string_equal(hash, "7c48fb10d2b00d960b022338043e0e50");
    an_table_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_array_is_read_back_as_it_was_written),
        cmocka_unit_test(damage_and_what_is_not_read_is_named),
        cmocka_unit_test(every_row_is_in_one_split_and_once_an_epoch),
        cmocka_unit_test(what_does_not_make_rows_is_refused),
        cmocka_unit_test(the_built_in_points_are_the_same_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
