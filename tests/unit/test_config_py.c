/* test_config_py.c: nanoGPT's configuration files as literals: what is taken, with Python's values, and what is
 * refused. */
#include "io/config/config_py.h"
#include "lib/test.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct sample {
    int64_t steps, batch;
    double rate;
    bool flag;
    char name[AN_CONFIG_TEXT_BYTES];
    an_dtype dtype;
} sample;

#define AT(f) offsetof(sample, f)
static const an_config_field fields[] = {
    {"steps", AN_CONFIG_INT, AT(steps), "7", 0, 0, NULL, "steps"},
    {"batch", AN_CONFIG_INT, AT(batch), "12", 0, 0, NULL, "batch"},
    {"rate", AN_CONFIG_FLOAT, AT(rate), "0.5", 0, 0, NULL, "rate"},
    {"flag", AN_CONFIG_BOOL, AT(flag), "false", 0, 0, NULL, "flag"},
    {"name", AN_CONFIG_TEXT, AT(name), "out", 0, 0, NULL, "name"},
    {"dtype", AN_CONFIG_DTYPE, AT(dtype), "float32", 0, 0, NULL, "dtype"},
};
static const an_config keys = {.fields = fields, .n = AN_COUNT(fields)};

static an_status read_text(const char *text, sample *s, an_err *err)
{
    *err = (an_err){0};
    assert_int_equal(an_config_defaults(err, &keys, s), AN_OK);
    return an_config_py_text(err, &keys, s, "c.py", text, strlen(text));
}

static sample taken(const char *text)
{
    sample s;
    an_err err;
    if (read_text(text, &s, &err) != AN_OK) fail_msg("%s: %s", text, err.text);
    return s;
}

/* Refused with a sentence that has `words` in it, and begins with the file and line. */
static void refused(const char *text, const char *place, const char *words)
{
    sample s;
    an_err err;
    if (read_text(text, &s, &err) != AN_E_USAGE) fail_msg("was taken: %s", text);
    if (strncmp(err.text, place, strlen(place)) != 0 || !strstr(err.text, words))
        fail_msg("%s\n   gives   %s\n   not     %s ... %s", text, err.text, place, words);
}

static void assignments_of_literals_are_taken(void **state)
{
    (void)state;
    const sample s =
        taken("# a comment\n\nsteps = 5000 # so many\r\nrate=1e-3\nflag = True\n  \t\nname = 'out-\\'a\\' b'\n"
              "dtype = \"bfloat16\"");
    assert_int_equal(s.steps, 5000);
    assert_true(s.rate == 1e-3 && s.flag);
    assert_string_equal(s.name, "out-'a' b");
    assert_int_equal(s.dtype, AN_BF16);
    assert_string_equal(taken("name = \"a # b\" # c").name, "a # b");
    assert_int_equal(taken("\xEF\xBB\xBFsteps = 1").steps, 1);
}

static void arithmetic_has_pythons_values(void **state)
{
    static const struct {
        const char *text;
        double value;
    } rows[] = {
        {"5 * 8", 40},
        {"2 + 3 * 4", 14},
        {"(2 + 3) * 4", 20},
        {"-2 ** 2", -4},
        {"2 ** -1", 0.5},
        {"2 ** 3 ** 2", 512},
        {"7 // 2", 3},
        {"-7 // 2", -4},
        {"-7 % 3", 2},
        {"7 % -3", -2},
        {"7 / 2", 3.5},
        {"1e-3 / 10", 1e-4},
        {"1_000", 1000},
        {".5 + 1.", 1.5},
        {"7.5 // 2", 3},
        {"-7.5 % 2", 0.5},
        {"9223372036854775807 % -2", -1},
        {"9223372036854775807 // -2", -4611686018427387904.0},
        {"True + 1", 2},
        {"6e2", 600},
        {"steps * 2", 14},
        {"batch - -1", 13},
        {"+-+3", -3},
        {"0.1 + 0.2", 0.1 + 0.2},
        {"(-1) ** 3", -1},
        {"10 - 2 - 3", 5},
        {"rate * 4", 2},
        {"9223372036854775807", 9223372036854775807.0},
    };
    (void)state;
    for (size_t i = 0; i < AN_COUNT(rows); i++) {
        char text[128];
        snprintf(text, sizeof text, "rate = %s", rows[i].text);
        const sample s = taken(text);
        if (s.rate != rows[i].value) fail_msg("%s is %.17g, not %.17g", text, s.rate, rows[i].value);
    }
}

static void a_name_has_the_value_its_setting_has_by_then(void **state)
{
    (void)state;
    const sample s = taken("steps = 40\nbatch = steps * 2\nsteps = batch + 1\nname = name + '-' + str(steps)");
    assert_int_equal(s.batch, 80);
    assert_int_equal(s.steps, 81);
    assert_string_equal(s.name, "out-81");
}

/* config/finetune_shakespeare.py names its run after the time. */
static void what_nanogpts_own_files_hold_is_taken(void **state)
{
    (void)state;
    const sample s = taken("import time\n\nname = 'ft-' + str(time.time())\nsteps = 5 * 8 # simulate 8 GPUs\n");
    assert_int_equal(strncmp(s.name, "ft-1", 4), 0);
    assert_int_equal(s.steps, 40);
}

static void anything_else_is_refused_with_line_and_reason(void **state)
{
    (void)state;
    refused("import os", "c.py:1: ", "NAME = VALUE");
    refused("steps = 1\nimport time, os", "c.py:2: ", "NAME = VALUE");
    refused("from a import b", "c.py:1: ", "NAME = VALUE");
    refused("steps = 1\n\nexec('x')", "c.py:3: ", "never run");
    refused("steps = open('a')", "c.py:1: ", "calls");
    refused("name = time.ctime()", "c.py:1: ", "calls");
    refused("name = __import__('os').system('true')", "c.py:1: ", "calls");
    refused("steps = [1]", "c.py:1: ", "a value is needed");
    refused("steps = 1, 2", "c.py:1: ", "only a comment");
    refused("steps = 1; batch = 2", "c.py:1: ", "only a comment");
    refused("steps = 1 if flag else 2", "c.py:1: ", "only a comment");
    refused("if flag:\n    steps = 1", "c.py:1: ", "NAME = VALUE");
    refused("    steps = 1", "c.py:1: ", "indented");
    refused("steps += 1", "c.py:1: ", "NAME = VALUE");
    refused("steps: int = 1", "c.py:1: ", "NAME = VALUE");
    refused("steps == 1", "c.py:1: ", "NAME = VALUE");
    refused("steps = 1 +", "c.py:1: at the end of the line", "a value is needed");
    refused("steps = (1", "c.py:1: ", ") is missing");
    refused("steps = None", "c.py:1: ", "None");
    refused("steps = 1 / 0", "c.py:1: ", "division by zero");
    refused("steps = 1 % 0.0", "c.py:1: ", "division by zero");
    refused("steps = 9223372036854775807 + 1", "c.py:1: ", "too large");
    refused("steps = 99999999999999999999", "c.py:1: ", "too large");
    refused("steps = 10 ** 30", "c.py:1: ", "too large");
    refused("rate = 1e999", "c.py:1: ", "too large");
    refused("rate = 1e300 * 1e300", "c.py:1: ", "not finite");
    refused("steps = 0x10", "c.py:1: ", "decimal");
    refused("steps = 010", "c.py:1: ", "decimal");
    refused("rate = 1e", "c.py:1: ", "decimal");
    refused("rate = -'a'", "c.py:1: ", "a sign needs a number");
    refused("name = 'a' + 1", "c.py:1: ", "a string and an int");
    refused("name = 'a", "c.py:1: ", "does not end");
    refused("name = '''a'''", "c.py:1: ", "several lines");
    refused("name = f'a'", "c.py:1: ", "calls");
    refused("name = 'a\\x41'", "c.py:1: ", "escapes");
    refused("name = batches", "c.py:1: ", "not the name of a setting");
    refused("\"\"\"a docstring\"\"\"", "c.py:1: ", "NAME = VALUE");
}

static void what_a_setting_refuses_is_told_with_its_line(void **state)
{
    (void)state;
    refused("# x\nbatc = 1", "c.py:2: ", "did you mean batch?");
    refused("steps = 1.5", "c.py:1: ", "whole number");
    refused("steps = 'many'", "c.py:1: ", "whole number");
    refused("flag = 2", "c.py:1: ", "true or false");
}

static void deep_nesting_is_refused(void **state)
{
    (void)state;
    char text[4096] = "steps = ";
    for (int i = 0; i < 1000; i++) strcat(text, "(");
    refused(text, "c.py:1: ", "too many parentheses");
    strcpy(text, "steps = ");
    for (int i = 0; i < 1000; i++) strcat(text, "-");
    refused(text, "c.py:1: ", "too many signs");
    strcpy(text, "name = ");
    for (int i = 0; i < 500; i++) strcat(text, "str(");
    refused(text, "c.py:1: ", "too many parentheses");
}

/* Every byte of a small file, changed: a value or a sentence, never a crash (sanitizers look on). */
static void damaged_files_are_a_sentence(void **state)
{
    static const char whole[] =
        "import time\nsteps = 5 * (8 - 1) // 2 # c\nname = 'a\\n' + str(time.time())\nrate = -1e-3 ** 2\n";
    (void)state;
    for (size_t at = 0; at < sizeof whole - 1; at++)
        for (int byte = 0; byte < 256; byte += at % 3 ? 7 : 1) {
            char text[sizeof whole];
            sample s;
            an_err err = {0};
            memcpy(text, whole, sizeof whole);
            text[at] = (char)byte;
            assert_int_equal(an_config_defaults(&err, &keys, &s), AN_OK);
            const an_status status = an_config_py_text(&err, &keys, &s, "c.py", text, sizeof whole - 1);
            assert_true((status == AN_OK) == (err.text[0] == 0));
            assert_null(strchr(err.text, '\n'));
        }
}

/* 300,000 levels of recursion would be beyond any stack. */
static void a_tower_of_powers_is_refused(void **state)
{
    (void)state;
    enum { LEVELS = 300000 };
    char *text = malloc(3 * LEVELS + 32);
    assert_non_null(text);
    size_t n = (size_t)sprintf(text, "steps = 1");
    for (int i = 0; i < LEVELS; i++) memcpy(text + n, "**1", 3), n += 3;
    text[n] = 0;
    refused(text, "c.py:1: ", "too many powers");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(assignments_of_literals_are_taken),
        cmocka_unit_test(arithmetic_has_pythons_values),
        cmocka_unit_test(a_name_has_the_value_its_setting_has_by_then),
        cmocka_unit_test(what_nanogpts_own_files_hold_is_taken),
        cmocka_unit_test(anything_else_is_refused_with_line_and_reason),
        cmocka_unit_test(what_a_setting_refuses_is_told_with_its_line),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(damaged_files_are_a_sentence),
        cmocka_unit_test(a_tower_of_powers_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
