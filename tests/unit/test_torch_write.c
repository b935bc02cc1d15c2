/* What is written for torch.load: the pickle is byte for byte PyTorch's for the same dict (tests/torch/state_dict.pkl), and the
 * archive is read back. */
#include "io/formats/torch_write.h"
#include "io/formats/torch_file.h"
#include "io/formats/zip.h"
#include "io_files.h"
#include "platform/platform.h"

enum { MAX = 40 };

typedef struct dict {
    an_st_tensor t[MAX];
    size_t n;
    char names[MAX][32];
    unsigned char data[MAX][70000];
} dict;

static void add(dict *d, const char *name, an_dtype dtype, int rank, const int64_t *shape)
{
    an_st_tensor *t = &d->t[d->n];
    *t = (an_st_tensor){.name = name, .dtype = dtype, .rank = rank, .data = d->data[d->n]};
    t->bytes = an_st_dtype_bytes(dtype);
    for (int i = 0; i < rank; i++) t->shape[i] = shape[i], t->bytes *= (size_t)shape[i];
    for (size_t i = 0; i < t->bytes; i++) d->data[d->n][i] = (unsigned char)(i * 7 + d->n) % 2;
    d->n++;
}

static dict *make(void)
{
    static dict d;
    d.n = 0;
    add(&d, "scalar", AN_F32, 0, NULL);
    add(&d, "bf16", AN_BF16, 1, (int64_t[]){3});
    add(&d, "half", AN_F16, 2, (int64_t[]){2, 2});
    add(&d, "double", AN_F64, 3, (int64_t[]){1, 2, 3});
    add(&d, "long.rank4", AN_I64, 4, (int64_t[]){2, 1, 2, 3});
    add(&d, "int", AN_I32, 1, (int64_t[]){300});
    add(&d, "bytes", AN_U8, 1, (int64_t[]){70000});
    add(&d, "empty", AN_F32, 2, (int64_t[]){0, 3});
    add(&d, "bool", AN_BOOL, 1, (int64_t[]){5});
    add(&d, "tied", AN_F32, 2, (int64_t[]){4, 2});
    add(&d, "again", AN_F32, 2, (int64_t[]){4, 2});
    d.t[d.n - 1].data = d.t[d.n - 2].data;
    for (int i = 0; i < 20; i++) {
        snprintf(d.names[i], sizeof d.names[i], "layer.%d.weight", i);
        add(&d, d.names[i], AN_F32, 2, (int64_t[]){i + 1, 2});
    }
    return &d;
}

static void the_pickle_is_the_one_of_pytorch(void **state)
{
    (void)state;
    const dict *d = make();
    an_err err = {0};
    an_text out = {0};
    char *golden;
    size_t n;
    assert_int_equal(an_torch_pickle(&err, d->t, d->n, &out), AN_OK);
    assert_int_equal(an_file_read(&err, "tests/torch/state_dict.pkl", 1 << 20, &golden, &n), AN_OK);
    assert_int_equal(out.len, n);
    assert_memory_equal(out.data, golden, n);
    free(golden);
    an_text_free(&out);
}

static void an_archive_is_read_back_and_tied_tensors_share_memory(void **state)
{
    (void)state;
    const dict *d = make();
    an_err err = {0};
    an_st *st;
    const char *path = test_path("step_10");
    assert_int_equal(an_torch_write(&err, path, d->t, d->n), AN_OK);
    if (an_weights_open(&err, path, &st) != AN_OK) fail_msg("%s", err.text);
    assert_int_equal(an_st_count(st), d->n);
    for (size_t i = 0; i < d->n; i++) {
        const an_st_tensor *t = an_st_find(st, d->t[i].name);
        assert_non_null(t);
        assert_true(t->dtype == d->t[i].dtype && t->rank == d->t[i].rank && t->bytes == d->t[i].bytes);
        if (t->bytes > 0) assert_memory_equal(t->data, d->t[i].data, t->bytes);
        if (t->bytes > 0) assert_int_equal(t->at % 64, 0);
    }
    assert_ptr_equal(an_st_find(st, "tied")->data, an_st_find(st, "again")->data);
    an_st_close(st);
}

/* Members are checked against their CRC, and lie in the folder that the file's name gives. */
static void the_archive_is_named_after_the_file(void **state)
{
    (void)state;
    const dict *d = make();
    an_err err = {0};
    an_arena arena = {0};
    an_zip zip;
    char *data;
    size_t n;
    const char *path = test_path("model.v2.pt");
    assert_int_equal(an_torch_write(&err, path, d->t, 2), AN_OK);
    assert_int_equal(an_file_read(&err, path, 1 << 20, &data, &n), AN_OK);
    if (an_zip_open(&err, path, data, n, &arena, &zip) != AN_OK) fail_msg("%s", err.text);
    assert_int_equal(zip.n, 5);
    static const char *const members[] = {"data.pkl", "byteorder", "data/0", "data/1", "version"};
    for (size_t i = 0; i < AN_COUNT(members); i++) {
        char name[64];
        snprintf(name, sizeof name, "model.v2/%s", members[i]);
        const an_zip_member *m = an_zip_find(&zip, name);
        assert_non_null(m);
        assert_int_equal(an_zip_check(&err, &zip, m), AN_OK);
    }
    an_arena_free(&arena);
    free(data);
}

static an_status write_one(an_err *err, void *arg)
{
    const dict *d = arg;
    return an_torch_write(err, test_path("refused.pt"), d->t, 3);
}

static void a_refused_allocation_is_a_sentence(void **state)
{
    (void)state;
    test_refuse_each_allocation(write_one, make());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_pickle_is_the_one_of_pytorch),
                                       cmocka_unit_test(an_archive_is_read_back_and_tied_tensors_share_memory),
                                       cmocka_unit_test(the_archive_is_named_after_the_file),
                                       cmocka_unit_test(a_refused_allocation_is_a_sentence)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
