/* test_yaml_check.c: what is refused before libyaml reads it, in time in proportion to the file. */
#include "io/formats/yaml_check.h"
#include "lib/test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const an_yaml_bounds small = {.depth = 4, .most = 12};

static void refuses(const char *text, size_t n, const an_yaml_bounds *b, const char *sentence)
{
    an_err err = {0};
    if (an_yaml_check(&err, "x", text, n, b) != AN_E_DATA) fail_msg("taken: %s", text);
    if (!strstr(err.text, sentence)) fail_msg("'%s' does not hold '%s'", err.text, sentence);
}

static void takes(const char *text, const an_yaml_bounds *b)
{
    an_err err = {0};
    if (an_yaml_check(&err, "x", text, strlen(text), b) != AN_OK) fail_msg("%s", err.text);
}

#define REFUSES(text, sentence) refuses(text, sizeof text - 1, &small, sentence)

static void what_has_bounds_is_refused_beyond_them_with_its_line(void **state)
{
    (void)state;
    takes("", &small);
    takes("a: [{b: [2]}]\nc: \"100%\"\nd: x%\n", &small);
    REFUSES("a: 1\n%TAG ! x\n", "x:2: directives");
    REFUSES("a: 1\nb: [[[[2]]]]\n", "x:2: lists and mappings");
    REFUSES("a: 1\n---\nb: 2\n", "x:2: more than one document");
    REFUSES("a: &x 1\n", "x:1: anchors");
    REFUSES("a: 1\nb: *x\n", "x:2: aliases");
    REFUSES("[1,2,3,4,5,6,\n7,8,9,10,11,12]", "x:2: more keys");
    REFUSES("a: 'b\n", "not valid YAML");
    takes("- &x 1\n--- \n- 2\n", &(an_yaml_bounds){.depth = 1, .anchors = true, .documents = true});
}

/* libyaml alone takes minutes for each of these. */
static void a_hostile_megabyte_is_refused_at_once(void **state)
{
    (void)state;
    static const char *const pieces[] = {"[", "{a: ", "- ", "? ", "%TAG !a! x\n", "&a "};
    enum { BYTES = 1 << 20 };
    char *text = malloc(BYTES);
    assert_non_null(text);
    for (size_t i = 0; i < AN_COUNT(pieces); i++) {
        const size_t n = strlen(pieces[i]);
        for (size_t at = 0; at + n <= BYTES; at += n) memcpy(text + at, pieces[i], n);
        an_err err = {0};
        const clock_t begin = clock();
        assert_int_equal(an_yaml_check(&err, "x", text, BYTES / n * n, &small), AN_E_DATA);
        assert_true(clock() - begin < 2 * CLOCKS_PER_SEC);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_has_bounds_is_refused_beyond_them_with_its_line),
        cmocka_unit_test(a_hostile_megabyte_is_refused_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
