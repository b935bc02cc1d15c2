/* test_base.c: error records. */
#include "lib/test.h"

#include <string.h>

static void a_failure_records_its_code_and_its_sentence(void **state)
{
    (void)state;
    an_err err = {0};
    assert_int_equal(an_fail(&err, AN_E_IO, "%s: byte %d is damaged", "a.bin", 7), AN_E_IO);
    assert_int_equal(err.code, AN_E_IO);
    assert_string_equal(err.text, "a.bin: byte 7 is damaged");
}

static void the_first_sentence_is_not_covered_by_its_consequences(void **state)
{
    (void)state;
    an_err err = {0};
    an_fail(&err, AN_E_IO, "the cause");
    assert_int_equal(an_fail(&err, AN_E_USAGE, "a consequence"), AN_E_USAGE);
    assert_int_equal(err.code, AN_E_IO);
    assert_string_equal(err.text, "the cause");
    an_err_clear(&err);
    assert_int_equal(err.code, AN_OK);
    an_fail(&err, AN_E_USAGE, "the next failure");
    assert_string_equal(err.text, "the next failure");
}

static void without_a_record_only_the_code_comes_back(void **state)
{
    (void)state;
    assert_int_equal(an_fail(NULL, AN_E_DATA, "there is no an_err to take this"), AN_E_DATA);
}

static void a_sentence_too_long_for_the_record_is_cut_and_says_so(void **state)
{
    (void)state;
    an_err err = {0};
    char longer[3000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    an_fail(&err, AN_E_USAGE, "%s", longer);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_string_equal(err.text + sizeof err.text - 6, "xx...");
}

static void a_refused_allocation_names_what_and_how_much(void **state)
{
    (void)state;
    an_err err = {0};
    assert_int_equal(an_fail_nomem(&err, "plan", 12345), AN_E_NOMEM);
    assert_non_null(strstr(err.text, "plan"));
    assert_non_null(strstr(err.text, "12345 bytes"));
}

static an_status fails(int *reached)
{
    AN_TRY(AN_OK);
    *reached = 1;
    AN_TRY(AN_E_SHAPE);
    *reached = 2;
    return AN_OK;
}

static void try_passes_the_first_failure_on(void **state)
{
    (void)state;
    int reached = 0;
    assert_int_equal(fails(&reached), AN_E_SHAPE);
    assert_int_equal(reached, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_records_its_code_and_its_sentence),
        cmocka_unit_test(the_first_sentence_is_not_covered_by_its_consequences),
        cmocka_unit_test(without_a_record_only_the_code_comes_back),
        cmocka_unit_test(a_sentence_too_long_for_the_record_is_cut_and_says_so),
        cmocka_unit_test(a_refused_allocation_names_what_and_how_much),
        cmocka_unit_test(try_passes_the_first_failure_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
