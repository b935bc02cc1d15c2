/* test_safetensors.c: reading and writing safetensors, hostile headers above all. */
#define _DEFAULT_SOURCE
#include "io/formats/safetensors.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include "io_files.h"

/* The bytes at the end of a page that is followed by a forbidden one: reading past them is a crash, in every build. */
typedef struct guarded {
    char *map, *data;
    size_t map_bytes;
} guarded;

static guarded guard(const void *bytes, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (n + page - 1) / page * page;
    guarded g = {.map_bytes = room + page};
    g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(g.map, MAP_FAILED);
    assert_int_equal(mprotect(g.map + room, page, PROT_NONE), 0);
    g.data = g.map + room - n;
    memcpy(g.data, bytes, n);
    return g;
}

/* A file of this header and `n` data bytes, in a buffer of its own. */
static size_t build(char *out, const char *header, size_t n)
{
    uint64_t length = strlen(header);
    memcpy(out, &length, 8);
    memcpy(out + 8, header, length);
    for (size_t i = 0; i < n; i++) out[8 + length + i] = (char)i;
    return 8 + length + n;
}

static void expect_refused(const char *header, size_t data_bytes, an_status status, const char *part)
{
    char file[4096];
    guarded g = guard(file, build(file, header, data_bytes));
    an_err err = {0};
    an_st *st;
    size_t n = 8 + strlen(header) + data_bytes;
    an_status got = an_st_open_memory(&err, "hostile", g.data, n, &st);
    if (got != status) fail_msg("%s: status %d, \"%s\"", header, got, err.text);
    assert_null(st);
    assert_contains(err.text, "hostile: byte ");
    assert_contains(err.text, part);
    munmap(g.map, g.map_bytes);
}

static const char small_header[] =
    "{\"__metadata__\":{\"k\":\"v\"},\"b\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[16,24]},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
    "\"e\":{\"dtype\":\"BF16\",\"shape\":[0,3],\"data_offsets\":[24,24]}}";

static void reads_names_shapes_and_data_in_the_order_of_the_file(void **state)
{
    (void)state;
    char file[512];
    size_t n = build(file, small_header, 24);
    an_err err = {0};
    an_st *st;
    assert_int_equal(an_st_open_memory(&err, "small", file, n, &st), AN_OK);
    assert_int_equal(an_st_count(st), 3);
    const an_st_tensor *a = an_st_tensor_at(st, 0), *b = an_st_find(st, "b"), *e = an_st_find(st, "e");
    assert_string_equal(a->name, "a");
    assert_int_equal(a->dtype, AN_F32);
    assert_int_equal(a->rank, 2);
    assert_int_equal(a->shape[1], 2);
    assert_int_equal(a->bytes, 16);
    assert_ptr_equal((const char *)a->data, file + n - 24);
    assert_ptr_equal((const char *)b->data, file + n - 8);
    assert_int_equal(b->at, n - 8);
    assert_int_equal(e->bytes, 0);
    assert_string_equal(an_st_tensor_by_name(st, 1)->name, "b");
    assert_null(an_st_find(st, "c"));
    assert_null(an_st_tensor_at(st, 3));
    assert_string_equal(an_st_meta(st, "k"), "v");
    assert_null(an_st_meta(st, "x"));
    const char *value;
    assert_string_equal(an_st_meta_at(st, 0, &value), "k");
    assert_null(an_st_meta_at(st, 1, &value));
    an_st_close(st);
}

#define ONE(dtype, shape, range) "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" range "}}"

static void refuses_hostile_headers_with_the_byte_and_the_reason(void **state)
{
    (void)state;
    expect_refused("[1,2]", 0, AN_E_IO, "does not start with {");
    expect_refused("{\"t\":", 0, AN_E_IO, "not valid JSON");
    expect_refused("{\"\xff\":1}", 0, AN_E_IO, "not valid JSON");
    expect_refused("{\"t\":3}", 0, AN_E_IO, "needs a dtype");
    expect_refused("{\"t\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, AN_E_IO, "needs a dtype");
    expect_refused("{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, AN_E_IO,
                   "nothing else");
    expect_refused(ONE("7", "[1]", "[0,4]"), 4, AN_E_IO, "needs a dtype");
    expect_refused(ONE("\"F8_E4M3\"", "[4]", "[0,4]"), 4, AN_E_UNSUPPORTED, "has dtype \"F8_E4M3\"");
    expect_refused(ONE("\"I16\"", "[2]", "[0,4]"), 4, AN_E_UNSUPPORTED, "F32, BF16, F16, F64, I32, I64, U8 and BOOL");
    expect_refused(ONE("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, AN_E_UNSUPPORTED, "more than 8 axes");
    expect_refused(ONE("\"F32\"", "[-1]", "[0,4]"), 4, AN_E_IO, "not a whole number");
    expect_refused(ONE("\"F32\"", "[1.0]", "[0,4]"), 4, AN_E_IO, "not a whole number");
    expect_refused(ONE("\"F32\"", "[1]", "[0]"), 4, AN_E_IO, "two whole numbers");
    expect_refused(ONE("\"F32\"", "[1]", "[0,4.0]"), 4, AN_E_IO, "two whole numbers");
    expect_refused(ONE("\"F32\"", "[1]", "[4,0]"), 4, AN_E_IO, "outside the file");
    expect_refused(ONE("\"F32\"", "[1]", "[-4,0]"), 4, AN_E_IO, "outside the file");
    expect_refused(ONE("\"F32\"", "[2]", "[0,8]"), 4, AN_E_IO, "outside the file");
    expect_refused(ONE("\"F32\"", "[2]", "[0,4]"), 4, AN_E_IO, "differ from dtype x shape");
    expect_refused(ONE("\"F32\"", "[4611686018427387904,4]", "[0,0]"), 0, AN_E_IO, "differ from dtype x shape");
    expect_refused(ONE("\"F32\"", "[4294967296,4294967296,0]", "[0,0]"), 0, AN_E_IO, "differ from dtype x shape");
    expect_refused(ONE("\"F32\"", "[99999999999999999999]", "[0,4]"), 4, AN_E_IO, "not valid JSON");
    expect_refused(ONE("\"U8\"", "[2]", "[2,4]"), 4, AN_E_IO, "leaves a hole");
    expect_refused(ONE("\"U8\"", "[2]", "[0,2]"), 4, AN_E_IO, "2 bytes belong to no tensor");
    expect_refused("{\"__metadata__\":{\"k\":1}}", 0, AN_E_IO, "is not a string");
    expect_refused("{\"__metadata__\":[]}", 0, AN_E_IO, "is not an object");
}

static void refuses_names_that_are_there_twice_and_ranges_that_overlap(void **state)
{
    (void)state;
    expect_refused("{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"t\":{\"dtype\":\"U8\",\"shape\":["
                   "1],\"data_offsets\":"
                   "[1,2]}}",
                   2, AN_E_IO, "duplicate");
    expect_refused("{\"t\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"u\":{\"dtype\":\"U8\",\"shape\":["
                   "2],\"data_offsets\":"
                   "[1,3]}}",
                   3, AN_E_IO, "overlaps");
}

static void refuses_deep_nesting_without_a_stack_overflow(void **state)
{
    (void)state;
    enum { DEEP = 200000 };
    char *file = malloc(8 + 5 + DEEP);
    uint64_t length = 5 + DEEP;
    memcpy(file, &length, 8);
    memcpy(file + 8, "{\"t\":", 5);
    memset(file + 13, '[', DEEP);
    an_err err = {0};
    an_st *st;
    assert_int_equal(an_st_open_memory(&err, "deep", file, 8 + (size_t)length, &st), AN_E_IO);
    assert_contains(err.text, "depth");
    free(file);
}

static void refuses_header_lengths_that_lie(void **state)
{
    (void)state;
    const uint64_t lengths[] = {0, 1, 17, 100000001, UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63};
    for (size_t i = 0; i < AN_COUNT(lengths); i++) {
        char file[24] = {0};
        memcpy(file, &lengths[i], 8);
        memcpy(file + 8, "{}              ", 16);
        guarded g = guard(file, sizeof file);
        an_err err = {0};
        an_st *st;
        assert_int_equal(an_st_open_memory(&err, "lies", g.data, sizeof file, &st), AN_E_IO);
        assert_contains(err.text, "lies: byte 0: a header of");
        munmap(g.map, g.map_bytes);
    }
}

static void refuses_every_prefix_of_a_valid_file(void **state)
{
    (void)state;
    char file[512];
    size_t n = build(file, small_header, 24);
    for (size_t keep = 0; keep <= n; keep++) {
        guarded g = guard(file, keep);
        an_err err = {0};
        an_st *st;
        an_status status = an_st_open_memory(&err, "prefix", g.data, keep, &st);
        assert_int_equal(status, keep == n ? AN_OK : AN_E_IO);
        if (keep < n) assert_contains(err.text, "prefix: byte ");
        an_st_close(st);
        munmap(g.map, g.map_bytes);
    }
}

static void survives_every_flipped_bit(void **state)
{
    (void)state;
    char file[512];
    size_t n = build(file, small_header, 24), refused = 0;
    for (size_t bit = 0; bit < 8 * n; bit++) {
        guarded g = guard(file, n);
        g.data[bit / 8] = (char)(g.data[bit / 8] ^ (1 << bit % 8));
        an_err err = {0};
        an_st *st;
        unsigned sum = 0;
        if (an_st_open_memory(&err, "flip", g.data, n, &st) == AN_OK)
            for (size_t i = 0; i < an_st_count(st); i++) {
                const an_st_tensor *t = an_st_tensor_at(st, i);
                for (size_t b = 0; b < t->bytes; b++) sum += ((const unsigned char *)t->data)[b];
                assert_true((const char *)t->data >= g.data && (const char *)t->data + t->bytes <= g.data + n);
            }
        else
            refused++;
        assert_true(sum < 1u << 30);
        if (bit < 64) assert_null(st); /* the header's length: every flip shows */
        an_st_close(st);
        munmap(g.map, g.map_bytes);
    }
    assert_true(refused > 4 * n); /* most flips in the header show */
}

static an_status give_counting(an_err *err, void *arg, uint64_t at, void *out, size_t bytes)
{
    (void)err;
    uint64_t *expected = arg;
    assert_int_equal(at, *expected); /* in order, without gaps */
    for (size_t i = 0; i < bytes; i++) ((unsigned char *)out)[i] = (unsigned char)((at + i) * 31);
    *expected += bytes;
    return AN_OK;
}

static void writes_what_it_reads_back_with_aligned_data(void **state)
{
    (void)state;
    const char *path = test_path("all.safetensors");
    an_err err = {0};
    an_st_writer *w;
    double f64[3] = {1, 2, 3};
    unsigned char u8[5] = {1, 2, 3, 4, 5};
    float big[64];
    for (int i = 0; i < 64; i++) big[i] = (float)i;
    uint64_t streamed = 0;
    assert_int_equal(an_st_begin(&err, path, &w), AN_OK);
    assert_int_equal(an_st_add(&err, w, "u8", AN_U8, 1, (int64_t[]){5}, u8), AN_OK);
    assert_int_equal(an_st_add(&err, w, "f64", AN_F64, 1, (int64_t[]){3}, f64), AN_OK);
    assert_int_equal(an_st_add(&err, w, "big", AN_F32, 2, (int64_t[]){8, 8}, big), AN_OK);
    assert_int_equal(an_st_add(&err, w, "scalar", AN_F32, 0, NULL, big + 7), AN_OK);
    assert_int_equal(an_st_add(&err, w, "none", AN_I64, 2, (int64_t[]){0, 4}, NULL), AN_OK);
    assert_int_equal(an_st_add_read(&err, w, "streamed", AN_U8, 1, (int64_t[]){3 << 20}, give_counting, &streamed),
                     AN_OK);
    assert_int_equal(an_st_set_meta(&err, w, "quote\"d", "line\nbreak \xc3\xa9"), AN_OK);
    assert_int_equal(an_st_commit(&err, w), AN_OK);
    assert_int_equal(streamed, 3 << 20);

    an_st *st;
    assert_int_equal(an_st_open(&err, path, &st), AN_OK);
    assert_int_equal(an_st_count(st), 6);
    const an_st_tensor *t = an_st_find(st, "big");
    assert_int_equal(t->at % 256, 0);
    assert_int_equal((uintptr_t)t->data % 256, 0);
    assert_memory_equal(t->data, big, sizeof big);
    assert_int_equal(an_st_find(st, "streamed")->at % 256, 0);
    for (size_t i = 0; i < 3 << 20; i++)
        assert_int_equal(((const unsigned char *)an_st_find(st, "streamed")->data)[i], (unsigned char)(i * 31));
    for (size_t i = 0; i < an_st_count(st); i++)
        assert_int_equal(an_st_tensor_at(st, i)->at % an_st_dtype_bytes(an_st_tensor_at(st, i)->dtype), 0);
    assert_memory_equal(an_st_find(st, "f64")->data, f64, sizeof f64);
    assert_memory_equal(an_st_find(st, "u8")->data, u8, sizeof u8);
    assert_int_equal(an_st_find(st, "scalar")->rank, 0);
    assert_int_equal(an_st_find(st, "none")->bytes, 0);
    assert_string_equal(an_st_meta(st, "quote\"d"), "line\nbreak \xc3\xa9");
    an_st_close(st);
    assert_int_equal(temp_count(test_folder(), ".tmp"), 0);
}

static an_status write_one(an_err *err, const char *path, int64_t n, const void *data)
{
    an_st_writer *w;
    AN_TRY(an_st_begin(err, path, &w));
    an_status status = an_st_add(err, w, "t", AN_U8, 1, &n, data);
    if (status == AN_OK) return an_st_commit(err, w);
    an_st_abort(w);
    return status;
}

static void writes_equal_bytes_for_equal_input(void **state)
{
    (void)state;
    char one[4096], two[4096];
    an_err err = {0};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(write_one(&err, test_path("same"), 100, small_header), AN_OK);
        FILE *f = fopen(test_path("same"), "rb");
        assert_int_equal(fread(i ? two : one, 1, sizeof one, f), 256 + 100);
        fclose(f);
    }
    assert_memory_equal(one, two, 356);
}

static void refuses_to_write_what_it_would_not_read(void **state)
{
    (void)state;
    an_err err = {0};
    an_st_writer *w;
    assert_int_equal(an_st_begin(&err, test_path("never"), &w), AN_OK);
    int64_t two = 2, negative = -1, huge[2] = {INT64_MAX, 2};
    int64_t nine[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    assert_int_equal(an_st_add(&err, w, "t", AN_U8, 1, &two, "ab"), AN_OK);
    assert_int_equal(an_st_add(&err, w, "t", AN_U8, 1, &two, "ab"), AN_E_USAGE);
    assert_contains(err.text, "the name is taken");
    err = (an_err){0};
    assert_int_equal(an_st_add(&err, w, "__metadata__", AN_U8, 1, &two, "ab"), AN_E_USAGE);
    assert_int_equal(an_st_add(NULL, w, "\xff", AN_U8, 1, &two, "ab"), AN_E_USAGE);
    assert_int_equal(an_st_add(NULL, w, "n", AN_U8, 1, &negative, "ab"), AN_E_SHAPE);
    assert_int_equal(an_st_add(NULL, w, "n", AN_U8, 2, huge, "ab"), AN_E_SHAPE);
    assert_int_equal(an_st_add(NULL, w, "n", AN_U8, 9, nine, "ab"), AN_E_USAGE);
    assert_int_equal(an_st_add(NULL, w, "n", AN_N_DTYPES, 1, &two, "ab"), AN_E_USAGE);
    assert_int_equal(an_st_set_meta(NULL, w, "k", "\xff"), AN_E_USAGE);
    an_st_abort(w);
    assert_int_equal(access(test_path("never"), F_OK), -1);
}

static an_status give_nothing(an_err *err, void *arg, uint64_t at, void *out, size_t bytes)
{
    (void)arg, (void)at, (void)out, (void)bytes;
    return an_fail(err, AN_E_DEVICE, "the device is gone");
}

static void keeps_the_old_file_when_the_data_cannot_be_read(void **state)
{
    (void)state;
    const char *path = test_path("kept");
    an_err err = {0};
    assert_int_equal(write_one(&err, path, 5, "first"), AN_OK);
    an_st_writer *w;
    assert_int_equal(an_st_begin(&err, path, &w), AN_OK);
    assert_int_equal(an_st_add_read(&err, w, "t", AN_U8, 1, (int64_t[]){5}, give_nothing, NULL), AN_OK);
    assert_int_equal(an_st_commit(&err, w), AN_E_DEVICE);
    assert_string_equal(err.text, "the device is gone");
    an_st *st;
    err = (an_err){0};
    assert_int_equal(an_st_open(&err, path, &st), AN_OK);
    assert_memory_equal(an_st_find(st, "t")->data, "first", 5);
    an_st_close(st);
    assert_int_equal(temp_count(test_folder(), ".tmp"), 0);
}

/* A limit on the size of files stands in for a full disk: the same failing write(). */
static void keeps_the_old_file_when_the_disk_is_full(void **state)
{
    (void)state;
    const char *path = test_path("full");
    an_err err = {0};
    assert_int_equal(write_one(&err, path, 5, "first"), AN_OK);
    fflush(NULL);
    for (rlim_t limit = 0; limit < 1500; limit += 100) {
        pid_t child = fork();
        if (child == 0) {
            static char data[2000];
            signal(SIGXFSZ, SIG_IGN);
            setrlimit(RLIMIT_FSIZE, &(struct rlimit){limit, limit});
            an_err why = {0};
            an_status got = write_one(&why, path, sizeof data, data);
            _exit(got == AN_E_IO && strstr(why.text, "full") && strstr(why.text, "ulimit") ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        an_st *st;
        assert_int_equal(an_st_open(&err, path, &st), AN_OK);
        assert_memory_equal(an_st_find(st, "t")->data, "first", 5);
        an_st_close(st);
        assert_int_equal(temp_count(test_folder(), ".tmp"), 0);
    }
}

static void names_the_file_that_is_not_there(void **state)
{
    (void)state;
    an_err err = {0};
    an_st *st;
    assert_int_equal(an_st_open(&err, test_path("absent"), &st), AN_E_IO);
    assert_null(st);
    assert_contains(err.text, "absent");
    err = (an_err){0};
    assert_int_equal(an_st_open(&err, temp_text("empty", ""), &st), AN_E_IO);
    assert_contains(err.text, "byte 0: the file ends");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_names_shapes_and_data_in_the_order_of_the_file),
        cmocka_unit_test(refuses_hostile_headers_with_the_byte_and_the_reason),
        cmocka_unit_test(refuses_names_that_are_there_twice_and_ranges_that_overlap),
        cmocka_unit_test(refuses_deep_nesting_without_a_stack_overflow),
        cmocka_unit_test(refuses_header_lengths_that_lie),
        cmocka_unit_test(refuses_every_prefix_of_a_valid_file),
        cmocka_unit_test(survives_every_flipped_bit),
        cmocka_unit_test(writes_what_it_reads_back_with_aligned_data),
        cmocka_unit_test(writes_equal_bytes_for_equal_input),
        cmocka_unit_test(refuses_to_write_what_it_would_not_read),
        cmocka_unit_test(keeps_the_old_file_when_the_data_cannot_be_read),
        cmocka_unit_test(keeps_the_old_file_when_the_disk_is_full),
        cmocka_unit_test(names_the_file_that_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
