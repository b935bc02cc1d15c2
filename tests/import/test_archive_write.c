/* test_archive_write.c: an archive that is written again holds the same graphs and the elements that it was given, under
 * all names, and is one of torch.export.load: stored members at multiples of 64, a list of weights a program. */
#include "import/archive_write.h"
#include "io/formats/zip.h"
#include "lib/test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Other numbers than the file's: element i of tensor t is t + i/8, or a whole number. */
static an_status values(an_err *err, void *user, const an_pt2_tensor *t, const void **data)
{
    an_dtype dtype = AN_F32;
    const int64_t n = an_pt2_elements(t);
    unsigned char *out = realloc(*(void **)user, (size_t)n * 8 + 8);
    (void)err;
    assert_non_null(out);
    assert_true(an_pt2_dtype(t->torch_dtype, &dtype));
    for (int64_t i = 0; i < n; i++) {
        const double x = (double)strlen(t->name) + (double)i / 8;
        const float f = (float)x;
        const int32_t whole = -(int32_t)i - 3;
        if (dtype == AN_F64) memcpy(out + 8 * i, &x, 8);
        if (dtype == AN_F32) memcpy(out + 4 * i, &f, 4);
        if (dtype == AN_I32) memcpy(out + 4 * i, &whole, 4);
        if (dtype == AN_BOOL) out[i] = i % 2 == 0;
    }
    *(void **)user = out;
    *data = out;
    return AN_OK;
}

static void check_tensors(an_pt2 *was, an_pt2 *is)
{
    void *scratch = NULL;
    const void *want;
    assert_int_equal(was->n_tensors, is->n_tensors);
    for (int32_t i = 0; i < was->n_tensors; i++) {
        const an_pt2_tensor *a = &was->tensor[i], *b = &is->tensor[i], *owner = &was->tensor[a->first];
        an_dtype dtype = AN_F32;
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->first, b->first);
        assert_int_equal(a->torch_dtype, b->torch_dtype);
        assert_int_equal(a->requires_grad, b->requires_grad);
        assert_int_equal(a->parameter, b->parameter);
        assert_memory_equal(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]);
        assert_int_equal(b->data->at % 64, 0);
        (void)an_pt2_dtype(a->torch_dtype, &dtype);
        const size_t bytes = (size_t)an_pt2_elements(a) * an_dtype_size(dtype);
        void *have = malloc(bytes + 8);
        assert_non_null(have);
        an_err err = {0};
        assert_int_equal(values(&err, &scratch, owner->constant == a->constant ? owner : a, &want), AN_OK);
        assert_int_equal(an_pt2_read(&err, is, b, have), AN_OK);
        assert_memory_equal(have, want, bytes);
        free(have);
    }
    free(scratch);
}

static void check_lists(const an_pt2 *a)
{
    static const char *const member[] = {"models/model.json",
                                         "data/weights/model_weights_config.json",
                                         "data/constants/model_constants_config.json",
                                         "data/sample_inputs/model.pt",
                                         "archive_version",
                                         "byteorder"};
    char name[128];
    for (size_t i = 0; i < AN_COUNT(member); i++) {
        snprintf(name, sizeof name, "model/%s", member[i]);
        assert_non_null(an_zip_find(&a->zip, name));
    }
    assert_int_equal(an_zip_find(&a->zip, "model/data/weights/eval_weights_config.json") != NULL, a->eval != NULL);
}

static void rewrite(const char *from)
{
    const char *path = test_path("again.pt2");
    an_err err = {0};
    an_pt2 was, is, again;
    an_text text = {0};
    void *scratch = NULL;
    assert_int_equal(an_pt2_open(&err, from, &was), AN_OK);
    assert_int_equal(an_pt2_describe(&err, &was, &text), AN_OK);
    assert_int_equal(an_pt2_open_description(&err, "checkpoint", text.data, text.len, &again), AN_OK);
    assert_int_equal(an_pt2_write(&err, &again, path, values, &scratch), AN_OK); /* of a graph without elements */
    assert_int_equal(an_pt2_open(&err, path, &is), AN_OK);
    check_tensors(&was, &is);
    check_lists(&is);
    assert_int_equal(json_equal(was.model, is.model), 1);
    assert_int_equal(!was.eval, !is.eval);
    if (was.eval) assert_int_equal(json_equal(was.eval, is.eval), 1);
    free(scratch);
    an_text_free(&text);
    an_pt2_close(&was);
    an_pt2_close(&again);
    an_pt2_close(&is);
}

static void an_archive_written_again_has_the_graphs_and_the_new_elements(void **unused)
{
    (void)unused;
    rewrite("tests/import/train/classes.pt2");
    rewrite("tests/import/goldens/tied.pt2");
    rewrite("tests/import/goldens/encoder.pt2");
    rewrite("tests/import/goldens/shape.pt2");
}

static an_status none(an_err *err, void *user, const an_pt2_tensor *t, const void **data)
{
    (void)user;
    (void)data;
    return an_fail(err, AN_E_IO, "no elements of %s", t->name);
}

static void elements_that_are_missing_leave_no_file(void **unused)
{
    (void)unused;
    const char *path = test_path("never.pt2");
    an_err err = {0};
    an_pt2 a;
    assert_int_equal(an_pt2_open(&err, "tests/import/train/classes.pt2", &a), AN_OK);
    assert_int_equal(an_pt2_write(&err, &a, path, none, NULL), AN_E_IO);
    assert_non_null(strstr(err.text, "no elements of"));
    assert_int_equal(access(path, F_OK), -1);
    an_pt2_close(&a);
}

/* Parameters that are slices of one storage, as flattened ones are; the last has the bytes of the first. */
static void tied_tensors_are_found_far_apart_in_one_storage(void **unused)
{
    (void)unused;
    enum { BETWEEN = 100 };
    an_text json = {0};
    an_err err = {0};
    an_pt2 a;
    an_text_puts(&json, "{\"model\":{\"schema_version\":{\"major\":8}},\"weights\":{\"config\":{");
    for (int i = 0; i <= BETWEEN; i++)
        an_text_printf(&json,
                       "%s\"p%d\":{\"path_name\":\"weight_0\",\"is_param\":true,\"tensor_meta\":{\"dtype\":7,"
                       "\"sizes\":[{\"as_int\":2}],\"strides\":[{\"as_int\":1}],\"storage_offset\":{\"as_int\":%d}}}",
                       i ? "," : "", i, i % BETWEEN * 2);
    an_text_puts(&json, "}}}");
    assert_int_equal(an_pt2_open_description(&err, "flat", json.data, json.len, &a), AN_OK);
    assert_int_equal(a.n_tensors, BETWEEN + 1);
    for (int i = 0; i < BETWEEN; i++) assert_int_equal(a.tensor[i].first, i);
    assert_int_equal(a.tensor[BETWEEN].first, 0);
    an_pt2_close(&a);
    an_text_free(&json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tied_tensors_are_found_far_apart_in_one_storage),
                                       cmocka_unit_test(an_archive_written_again_has_the_graphs_and_the_new_elements),
                                       cmocka_unit_test(elements_that_are_missing_leave_no_file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
