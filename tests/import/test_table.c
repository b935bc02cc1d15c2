/* test_table.c: docs/aten.md is made from aten.def; UPDATE=1 rewrites it. And what the table says of itself holds: names
 * are there once, schemas are read, an operation in place is found by its row. */
#include "lib/test.h"
#include "base/text.h"
#include "import/aten.h"
#include "platform/platform.h"
#include <stdlib.h>
#include <string.h>

static const char *const path = "docs/aten.md";

static void make(an_text *out)
{
    an_text_puts(
        out,
        "# Operations of PyTorch that are imported\n\nMade from src/import/aten.def by tests/import/test_table.c. "
        "An operation in place (`relu_`) is its row without the underscore.\nArguments that a file leaves out take "
        "the value behind =. int64 is int32 inside.\n\n| operation | arguments | what it becomes |\n|---|---|---|\n");
    for (size_t i = 0; i < an_aten_n_rows; i++) {
        const an_aten *r = &an_aten_rows[i];
        an_text_printf(out, "| %s | %s | ", r->name, r->schema);
        for (const char *p = r->meaning; *p; p++) an_text_printf(out, *p == '|' ? "\\%c" : "%c", *p);
        an_text_puts(out, " |\n");
    }
    an_text_printf(out, "\n%zu rows.\n", an_aten_n_rows);
}

static void the_document_is_the_table(void **unused)
{
    (void)unused;
    an_text want = {0};
    char *have = NULL;
    size_t n = 0;
    make(&want);
    assert_false(want.failed);
    if (getenv("UPDATE")) assert_int_equal(an_file_write(NULL, path, want.data, want.len), AN_OK);
    assert_int_equal(an_file_read(NULL, path, 1 << 20, &have, &n), AN_OK);
    assert_int_equal(n, want.len);
    assert_memory_equal(have, want.data, n);
    free(have);
    an_text_free(&want);
}

static void names_are_there_once_and_schemas_are_words(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < an_aten_n_rows; i++) {
        const an_aten *r = &an_aten_rows[i];
        int words = 1;
        for (const char *p = r->schema; *p; p++) words += *p == ' ';
        for (size_t k = 0; k < i; k++) assert_string_not_equal(an_aten_rows[k].name, r->name);
        assert_true(words <= AN_ATEN_MAX_ARGS);
        assert_null(strstr(r->schema, "  "));
        assert_true(strlen(r->meaning) > 0);
    }
}

static void an_operation_in_place_is_its_row_without_the_underscore(void **unused)
{
    (void)unused;
    bool in_place;
    const an_aten *relu = an_aten_find("aten.relu.default", &in_place);
    assert_non_null(relu);
    assert_false(in_place);
    assert_ptr_equal(an_aten_find("aten.relu_.default", &in_place), relu);
    assert_true(in_place);
    assert_non_null(an_aten_find("aten.__and__.Tensor", &in_place));
    assert_false(in_place);
    assert_null(an_aten_find("aten.nonzero.default", &in_place));
    assert_null(an_aten_find("_", &in_place));
    assert_null(an_aten_find("aten..default", &in_place));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_document_is_the_table),
                                       cmocka_unit_test(names_are_there_once_and_schemas_are_words),
                                       cmocka_unit_test(an_operation_in_place_is_its_row_without_the_underscore)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
