/* test_array_file.c: named arrays in one file: .npz, .safetensors, columns of a .csv; what is damaged or not there. */
#include "lib/test.h"
#include "io/data/array_file.h"
#include "lib/make_zip.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURES "tests/import/train/"

static const char *write_file(const char *name, const void *data, size_t n)
{
    const char *path = test_path(name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0) fail_msg("%s cannot be written", path);
    return path;
}

/* The sentence of opening the file and finding the array; "" where it is there. */
static const char *sentence(const char *path, const char *name, an_npy *out, an_array_file **f)
{
    static an_err err;
    bool found = false;
    err = (an_err){0};
    *f = NULL;
    if (an_array_file_open(&err, path, f) != AN_OK) return err.text;
    if (an_array_file_find(&err, *f, name, "", out, &found) != AN_OK) return err.text;
    return found ? "" : "not there";
}

static void is_refused(const char *path, const char *name, const char *part)
{
    an_npy a;
    an_array_file *f;
    const char *why = sentence(path, name, &a, &f);
    if (!strstr(why, part)) fail_msg("%s: \"%s\" instead of: %s", path, why, part);
    an_array_file_close(f);
}

static void every_format_gives_the_array_of_the_npy_file(void **state)
{
    (void)state;
    static const char *const files[] = {FIXTURES "samples.npz", FIXTURES "samples.safetensors"};
    an_err err = {0};
    an_npy want, have;
    an_array_file *f;
    if (an_npy_open(&err, FIXTURES "rows.npy", &want) != AN_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < AN_COUNT(files); i++) {
        const char *why = sentence(files[i], "rows", &have, &f);
        if (*why) fail_msg("%s: %s", files[i], why);
        assert_true(have.dtype == want.dtype && have.rank == 2 && have.dim[0] == want.dim[0] && have.dim[1] == 4);
        assert_memory_equal(have.data, want.data, want.bytes);
        an_array_file_close(f);
        is_refused(files[i], "row", "not there");
    }
    const char *why = sentence(FIXTURES "samples.csv", "a+b+c+d", &have, &f);
    if (*why) fail_msg("%s", why);
    assert_true(have.rank == 2 && have.dim[0] == want.dim[0] && have.dim[1] == 4);
    for (int64_t i = 0; i < an_npy_elements(&want); i++)
        assert_true((float)an_npy_number(&have, i) == (float)an_npy_number(&want, i));
    an_array_file_close(f);
    an_npy_close(&want);
}

static void columns_are_joined_and_left_out_by_name(void **state)
{
    (void)state;
    static const char text[] = "a,b,\"c d\",note\n1,2.5,-3,x\n4,nan,6,y\n";
    const char *path = write_file("x.csv", text, sizeof text - 1);
    an_npy a;
    an_array_file *f;
    bool found;
    assert_string_equal(sentence(path, "c d+a", &a, &f), "");
    assert_true(a.dtype == AN_I64 && a.rank == 2 && a.dim[0] == 2 && a.dim[1] == 2);
    assert_true(an_npy_number(&a, 0) == -3 && an_npy_number(&a, 3) == 4);
    assert_int_equal(an_array_file_find(NULL, f, "b", "", &a, &found), AN_OK);
    assert_true(found && a.dtype == AN_F64 && a.rank == 1 && an_npy_number(&a, 0) == 2.5);
    assert_true(an_npy_number(&a, 1) != an_npy_number(&a, 1));
    an_array_file_close(f);
    is_refused(path, "a+e", "not there");
    is_refused(path, "note", "record 1 behind the names: column note holds no finite number");
    is_refused(path, "*", "column note holds no finite number");
    assert_string_equal(sentence(path, "a", &a, &f), "");
    assert_int_equal(an_array_file_find(NULL, f, "*", "note", &a, &found), AN_OK);
    assert_true(found && a.rank == 2 && a.dim[1] == 3);
    assert_int_equal(an_array_file_find(NULL, f, "*", "b+note", &a, &found), AN_OK); /* as the labels may be joined */
    assert_true(found && a.rank == 2 && a.dim[1] == 2 && an_npy_number(&a, 0) == 1 && an_npy_number(&a, 1) == -3);
    an_array_file_close(f);
    is_refused(write_file("t.csv", "a,a\n3,4\n", 8), "a", "columns 1 and 2 have one name");
    is_refused(write_file("e.csv", "", 0), "a", "not there");
    is_refused(write_file("i.csv", "a\ninf\n", 6), "a", "no finite number");
    is_refused(write_file("h.csv", "a\n0x1p3\n", 8), "a", "no finite number");
}

/* No damage is a crash or a wrong array: each byte of a compressed archive changed, and the archive cut at each. */
static void a_damaged_archive_is_a_sentence(void **state)
{
    (void)state;
    an_err err = {0};
    an_npy want, have;
    char *bytes;
    size_t n;
    an_array_file *f;
    if (an_file_read(&err, FIXTURES "samples.npz", 0, &bytes, &n) != AN_OK) fail_msg("%s", err.text);
    if (an_npy_open(&err, FIXTURES "rows.npy", &want) != AN_OK) fail_msg("%s", err.text);
    int refused = 0;
    for (size_t i = 0; i < n; i += i < 200 || i + 300 > n ? 1 : 37) {
        bytes[i] ^= 0x15;
        const char *path = write_file("damaged.npz", bytes, n), *why = sentence(path, "rows", &have, &f);
        if (!*why) assert_true(have.bytes == want.bytes && memcmp(have.data, want.data, want.bytes) == 0);
        refused += *why != 0;
        an_array_file_close(f);
        bytes[i] ^= 0x15;
        an_array_file *cut;
        assert_true(*sentence(write_file("damaged.npz", bytes, i), "rows", &have, &cut) != 0);
        an_array_file_close(cut);
    }
    assert_true(refused > 100);
    free(bytes);
    an_npy_close(&want);
}

static void stored_members_are_checked_too(void **state)
{
    (void)state;
    an_text npy = {0};
    an_err err = {0};
    an_npy a;
    an_array_file *f;
    make_zip z = {0};
    const float x[] = {1, 2, 3};
    assert_int_equal(an_npy_header(&err, AN_F32, 1, (int64_t[]){3}, &npy), AN_OK);
    an_text_putn(&npy, (const char *)x, sizeof x);
    make_zip_add(&z, "x.npy", npy.data, npy.len);
    make_zip_add(&z, "y.npy", "no array", 8);
    make_zip_end(&z);
    const char *path = write_file("s.npz", z.file.data, z.file.len);
    assert_string_equal(sentence(path, "x", &a, &f), "");
    assert_true(a.rank == 1 && a.dim[0] == 3 && an_npy_number(&a, 2) == 3);
    an_array_file_close(f);
    is_refused(path, "y", "y.npy: not a .npy file");
    is_refused(path, "z", "not there");
    an_text_free(&npy);
    an_text_free(&z.file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_gives_the_array_of_the_npy_file),
        cmocka_unit_test(columns_are_joined_and_left_out_by_name),
        cmocka_unit_test(a_damaged_archive_is_a_sentence),
        cmocka_unit_test(stored_members_are_checked_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
