/* test_zip.c: finding members of zip archives, checksums, cut and hostile ones. */
#include "io/formats/zip.h"
#include "io_files.h"
#include "io/formats/torch_file.h"
#include "lib/make_zip.h"

static an_arena arena;
static an_zip zip;
static an_err err;

static an_text small(void)
{
    make_zip z = {0};
    make_zip_add(&z, "a/data.pkl", "pickle", 6);
    make_zip_add(&z, "a/data/0", "0123456789", 10);
    make_zip_add(&z, "a/data/10", "", 0);
    make_zip_end(&z);
    assert_false(z.file.failed);
    return z.file;
}

static an_status open_zip(const an_text *file)
{
    an_arena_reset(&arena);
    an_err_clear(&err);
    return an_zip_open(&err, "x.pt", file->data, file->len, &arena, &zip);
}

static void refused(const an_text *file, const char *part)
{
    if (open_zip(file) == AN_OK) fail_msg("taken, instead of: %s", part);
    assert_contains(err.text, "x.pt: byte ");
    assert_contains(err.text, part);
}

static void members_are_found_where_they_lie(void **state)
{
    (void)state;
    an_text file = small();
    assert_true(an_zip_is(file.data, file.len));
    if (open_zip(&file) != AN_OK) fail_msg("%s", err.text);
    assert_int_equal(zip.n, 3);
    const an_zip_member *m = an_zip_find(&zip, "a/data/0");
    assert_non_null(m);
    assert_int_equal(m->at % 64, 0);
    assert_int_equal(m->bytes, 10);
    assert_memory_equal(file.data + m->at, "0123456789", 10);
    assert_int_equal(an_zip_check(&err, &zip, m), AN_OK);
    assert_int_equal(an_zip_find(&zip, "a/data/10")->bytes, 0);
    assert_null(an_zip_find(&zip, "a/data/1"));
    an_text_free(&file);
}

static void crc32_is_that_of_the_standard(void **state)
{
    (void)state;
    char zeros[100] = {0};
    assert_int_equal(an_crc32("123456789", 9), 0xCBF43926);
    assert_int_equal(an_crc32("", 0), 0);
    uint32_t slow = 0xFFFFFFFF; /* bit by bit */
    for (int i = 0; i < 800; i++) slow = slow & 1 ? 0xEDB88320u ^ slow >> 1 : slow >> 1;
    assert_int_equal(an_crc32(zeros, sizeof zeros), ~slow);
}

static void a_changed_byte_is_noticed(void **state)
{
    (void)state;
    an_text file = small();
    assert_int_equal(open_zip(&file), AN_OK);
    const an_zip_member *m = an_zip_find(&zip, "a/data/0");
    file.data[m->at + 3] ^= 1;
    assert_int_equal(an_zip_check(&err, &zip, m), AN_E_IO);
    assert_contains(err.text, "the checksum of \"a/data/0\" differs");
    an_text_free(&file);
}

static void every_cut_is_a_sentence_with_a_byte(void **state)
{
    (void)state;
    an_text file = small();
    for (size_t n = 0; n < file.len; n++) {
        an_text cut = {file.data, n, n, false};
        refused(&cut, "the file is damaged");
    }
    an_text_free(&file);
}

/* Place of the k-th entry of the directory. */
static size_t entry(const an_text *file, int k)
{
    for (size_t at = 0; at + 4 < file->len; at++)
        if (memcmp(file->data + at, "PK\1\2", 4) == 0 && k-- == 0) return at;
    fail_msg("no such entry");
    return 0;
}

static void put(an_text *file, size_t at, uint32_t x, int bytes)
{
    for (int i = 0; i < bytes; i++) file->data[at + (size_t)i] = (char)(x >> (8 * i));
}

static void hostile_entries_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *part;
        int at, bytes;
        uint32_t value;
    } cases[] = {
        {"is compressed (method 8)", 10, 2, 8},
        {"is compressed", 20, 4, 5}, /* packed and unpacked sizes differ */
        {"is encrypted", 8, 2, 1},
        {"points at no member", 42, 4, 0x7FFFFFFF},
        {"points at no member", 42, 4, 1},
        {"ZIP64 sizes are missing", 42, 4, 0xFFFFFFFF},
        {"longer than the directory", 28, 2, 0xFFFF},
        {"name differs", 46, 1, 'b'},

    };
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        an_text file = small();
        const size_t at = entry(&file, 1);
        put(&file, at + (size_t)cases[i].at, cases[i].value, cases[i].bytes);

        if (open_zip(&file) == AN_OK) fail_msg("taken: %s", cases[i].part);
        assert_contains(err.text, cases[i].part);
        an_text_free(&file);
    }
    an_text file = small();
    put(&file, entry(&file, 1) + 20, 0x7FFFFFFF, 4);
    put(&file, entry(&file, 1) + 24, 0x7FFFFFFF, 4);
    refused(&file, "the member is longer than the archive");
    an_text_free(&file);
}

static void members_of_one_place_or_name_are_refused(void **state)
{
    (void)state;
    make_zip z = {0};
    make_zip_add(&z, "a", "1234", 4);
    make_zip_add(&z, "a", "5678", 4);
    make_zip_end(&z);
    refused(&z.file, "the archive has \"a\" twice");
    put(&z.file, entry(&z.file, 1) + 42, 0, 4); /* both entries mean the first member */
    refused(&z.file, "two members of the zip archive overlap");
    an_text_free(&z.file);
}

static void zip64_sizes_are_read(void **state)
{
    (void)state;
    make_zip z = {0};
    make_zip_add(&z, "a", "1234", 4);
    const size_t at = z.file.len, tail = z.directory.len;
    put(&z.directory, 20, 0xFFFFFFFF, 4); /* sizes and place move to the extra field */
    put(&z.directory, 24, 0xFFFFFFFF, 4);
    put(&z.directory, 42, 0xFFFFFFFF, 4);
    put(&z.directory, 30, 28, 2);
    make_zip_number(&z.directory, 1, 2);
    make_zip_number(&z.directory, 24, 2);
    make_zip_number(&z.directory, 4, 8);
    make_zip_number(&z.directory, 4, 8);
    make_zip_number(&z.directory, 0, 8);
    an_text_putn(&z.file, z.directory.data, z.directory.len);
    const size_t end64 = z.file.len;
    make_zip_number(&z.file, 0x06064b50, 4);
    make_zip_number(&z.file, 44, 8);
    make_zip_number(&z.file, 0, 12);
    make_zip_number(&z.file, 1, 8);
    make_zip_number(&z.file, 1, 8);
    make_zip_number(&z.file, tail + 28, 8);
    make_zip_number(&z.file, at, 8);
    make_zip_number(&z.file, 0x07064b50, 4);
    make_zip_number(&z.file, 0, 4);
    make_zip_number(&z.file, end64, 8);
    make_zip_number(&z.file, 1, 4);
    make_zip_number(&z.file, 0x06054b50, 4);
    make_zip_number(&z.file, 0, 4);
    for (int i = 0; i < 6; i++) make_zip_number(&z.file, 0xFFFF, 2);
    make_zip_number(&z.file, 0, 2);
    if (open_zip(&z.file) != AN_OK) fail_msg("%s", err.text);
    const an_zip_member *m = an_zip_find(&zip, "a");
    assert_non_null(m);
    assert_memory_equal(z.file.data + m->at, "1234", 4);
    an_text_free(&z.directory);
    an_text_free(&z.file);
}

static int close_arena(void **state)
{
    (void)state;
    an_arena_free(&arena);
    return 0;
}

/* Each tensor's storage is looked up under this name: a long one times many tensors would be gigabytes. */
static void a_checkpoint_in_a_folder_with_a_long_name_is_refused(void **state)
{
    (void)state;
    char name[400];
    make_zip z = {0};
    an_st *st;
    an_err why = {0};
    memset(name, 'a', 300);
    memcpy(name + 300, "/data.pkl", 10);
    make_zip_add(&z, name, "\x80\2}.", 4);
    make_zip_end(&z);
    assert_int_equal(an_weights_open_torch(&why, "x.pt", z.file.data, z.file.len, &st), AN_E_UNSUPPORTED);
    assert_contains(why.text, "a name of more than 256 bytes");
    an_text_free(&z.file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_are_found_where_they_lie),
        cmocka_unit_test(crc32_is_that_of_the_standard),
        cmocka_unit_test(a_changed_byte_is_noticed),
        cmocka_unit_test(every_cut_is_a_sentence_with_a_byte),
        cmocka_unit_test(hostile_entries_are_refused),
        cmocka_unit_test(members_of_one_place_or_name_are_refused),
        cmocka_unit_test(zip64_sizes_are_read),
        cmocka_unit_test(a_checkpoint_in_a_folder_with_a_long_name_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, close_arena);
}
