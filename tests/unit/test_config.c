/* test_config.c: tables of settings: defaults, units, arguments and YAML, refusals that name key and line and change nothing. */
#define _DEFAULT_SOURCE
#include "io/config/config.h"
#include "io/config/config_py.h"
#include <math.h>
#include "io_files.h"
#include "train/config.h"

typedef struct settings {
    int64_t max_iters;
    double lr;
    bool bias;
    char device[AN_CONFIG_TEXT_BYTES], start[AN_CONFIG_TEXT_BYTES];
    an_dtype dtype;
} settings;

static const an_config_field fields[] = {
    {"max_iters", AN_CONFIG_INT, offsetof(settings, max_iters), "5000", 0, 1e9, NULL, "steps to train"},
    {"lr", AN_CONFIG_FLOAT, offsetof(settings, lr), "1e-3", 0, 10, NULL, "peak learning rate"},
    {"bias", AN_CONFIG_BOOL, offsetof(settings, bias), "false", 0, 0, NULL, "biases in linear layers"},
    {"device", AN_CONFIG_TEXT, offsetof(settings, device), "auto", 0, 0, "auto|cpu|cuda", "where to run"},
    {"start", AN_CONFIG_TEXT, offsetof(settings, start), "", 0, 0, NULL, "the prompt"},
    {"dtype", AN_CONFIG_DTYPE, offsetof(settings, dtype), "float32", 0, 0, NULL, "of the model"},
};
static const an_config table = {.fields = fields, .n = sizeof fields / sizeof fields[0]};

static settings defaults(void)
{
    settings s;
    memset(&s, 0, sizeof s);
    assert_int_equal(an_config_defaults(NULL, &table, &s), AN_OK);
    return s;
}

static void defaults_come_from_the_table(void **state)
{
    (void)state;
    settings s = defaults();
    assert_int_equal(s.max_iters, 5000);
    assert_true(s.lr == 1e-3);
    assert_false(s.bias);
    assert_string_equal(s.device, "auto");
    assert_int_equal(s.dtype, AN_F32);
}

static void arguments_set_values_with_or_without_dashes(void **state)
{
    (void)state;
    settings s = defaults();
    static const char *const arguments[] = {"max_iters=7",  "--lr=1",    "bias=True",
                                            "--device=cpu", "start=a=b", "dtype=bfloat16"};
    for (size_t i = 0; i < AN_COUNT(arguments); i++)
        assert_int_equal(an_config_argument(NULL, &table, &s, arguments[i]), AN_OK);
    assert_int_equal(s.max_iters, 7);
    assert_true(s.lr == 1.0); /* a whole number for a fraction */
    assert_true(s.bias);
    assert_string_equal(s.device, "cpu");
    assert_string_equal(s.start, "a=b"); /* the first = splits */
    assert_int_equal(s.dtype, AN_BF16);
    assert_int_equal(an_config_argument(NULL, &table, &s, "start="), AN_OK);
    assert_string_equal(s.start, "");
}

static void refusals_name_the_key_and_what_is_allowed_and_change_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *argument, *part;
    } cases[] = {
        {"max_iter=7", "unknown setting \"max_iter\"; did you mean max_iters?"},
        {"qqqqqqqqqq=7", "unknown setting \"qqqqqqqqqq\""},
        {"max_iters", "\"max_iters\" is not a setting: write key=value"},
        {"--", "is not a setting"},
        {"=7", "is not a setting"},
        {"max_iters=", "a whole number is needed (steps to train)"},
        {"max_iters=7.5", "max_iters=\"7.5\": a whole number is needed"},
        {"max_iters=1e3", "a whole number is needed"},
        {"max_iters=0x10", "a whole number is needed"},
        {"max_iters= 7", "a whole number is needed"},
        {"max_iters=99999999999999999999", "a whole number is needed"},
        {"max_iters=-1", "max_iters=-1: allowed is 0 to 1000000000"},
        {"lr=11", "lr=11: allowed is 0 to 10"},
        {"lr=nan", "a number is needed"},
        {"lr=inf", "a number is needed"},
        {"lr=1e999", "a number is needed"},
        {"lr=0x1p3", "a number is needed"},
        {"lr=fast", "a number is needed"},
        {"bias=2", "true or false is needed"},
        {"device=gpu", "device=\"gpu\": auto|cpu|cuda (where to run)"},
        {"device=cpu|cuda", "auto|cpu|cuda"},
        {"device=", "auto|cpu|cuda"},
        {"device=cu", "auto|cpu|cuda"},
        {"dtype=int8", "float32, bfloat16, float16 or float64 is needed"},
    };
    const settings before = defaults();
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        settings s = before;
        an_err err = {0};
        if (an_config_argument(&err, &table, &s, cases[i].argument) != AN_E_USAGE)
            fail_msg("taken: %s", cases[i].argument);
        assert_contains(err.text, cases[i].part);
        assert_memory_equal(&s, &before, sizeof s);
    }
    char longest[700] = "start=";
    memset(longest + 6, 'x', 511);
    settings s = before;
    assert_int_equal(an_config_argument(NULL, &table, &s, longest), AN_OK);
    memset(longest + 6, 'x', 512);
    assert_int_equal(an_config_argument(NULL, &table, &s, longest), AN_E_USAGE);
    memset(longest, 'k', 300);
    assert_int_equal(an_config_argument(NULL, &table, &s, longest), AN_E_USAGE);
}

static void yaml_sets_values(void **state)
{
    (void)state;
    settings s = defaults();
    an_err err = {0};
    const char *path = temp_text(
        "a.yaml", "# a preset\nmax_iters: 12   # few\nlr: 2e-4\n\nbias: yes\nstart: \"a: b\\n\"\ndevice: cuda\n");
    if (an_config_yaml(&err, &table, &s, path) != AN_OK) fail_msg("%s", err.text);
    assert_int_equal(s.max_iters, 12);
    assert_true(s.lr == 2e-4);
    assert_true(s.bias);
    assert_string_equal(s.start, "a: b\n");
    assert_string_equal(s.device, "cuda");
    assert_int_equal(an_config_yaml(&err, &table, &s, temp_text("b.yaml", "# nothing\n")), AN_OK);
    assert_int_equal(an_config_yaml(&err, &table, &s, temp_text("b.yaml", "")), AN_OK);
    assert_int_equal(an_config_yaml(&err, &table, &s, temp_text("b.yaml", "start: \"\"\n")), AN_OK);
    assert_string_equal(s.start, "");
}

static void yaml_refusals_have_the_line_and_change_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"max_iters: 3\nlr: fast\n", "p.yaml:2: lr=\"fast\": a number is needed"},
        {"max_iters: 3\nmax_itres: 3\n", "p.yaml:2: unknown setting \"max_itres\"; did you mean max_iters?"},
        {"max_iters: 3\nmax_iters: 4\n", "p.yaml:2: \"max_iters\" is set twice"},
        {"max_iters: 3\nlr: [1, 2]\n", "p.yaml:2: a value must be one word or number"},
        {"max_iters: 3\nlr:\n  a: 1\n", "p.yaml:3: a value must be one word or number"},
        {"max_iters: 3\nlr: &x 1\n", "p.yaml:2: anchors and tags"},
        {"max_iters: 3\nlr: !!float 1\n", "p.yaml:2: anchors and tags"},
        {"max_iters: 3\nlr: *x\n", "p.yaml:2:"},
        {"max_iters: 3\nlr:\nbias: yes\n", "p.yaml:2: a key without a value"},
        {"max_iters: 3\n? [a]\n: 1\n", "p.yaml:2: a key must be one word"},
        {"max_iters: 3\n---\nlr: 1\n", "p.yaml:2: more than one document"},
        {"%TAG !a! tag:a\n%TAG !b! tag:b\n---\nmax_iters: 3\n", "p.yaml:1: directives"},
        {"- max_iters\n", "p.yaml:1: settings are lines of `key: value`"},
        {"max_iters: 3\n\tlr: 1\n", "p.yaml:2: not valid YAML"},
        {"max_iters: 3\nstart: \"a\n", "not valid YAML"},
        {"max_iters: 3\nstart: \"\\0\"\n", "p.yaml:2: a NUL character"},
        {"max_iters: 3\n\xff\n", "not valid YAML"},
    };
    const settings before = defaults();
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        settings s = before;
        an_err err = {0};
        if (an_config_yaml_text(&err, &table, &s, "p.yaml", cases[i].text, strlen(cases[i].text)) != AN_E_USAGE)
            fail_msg("taken: %s", cases[i].text);
        assert_contains(err.text, cases[i].part);
        assert_memory_equal(&s, &before, sizeof s);
    }
}

static void values_survive_json(void **state)
{
    (void)state;
    settings s = defaults(), back = defaults();
    an_text json = {0};
    an_err err = {0};
    s.max_iters = 123456789;
    s.lr = 0.1 + 0.2; /* needs 17 digits */
    s.bias = true;
    s.dtype = AN_BF16;
    strcpy(s.start, "\"\\\n\xc3\xa9");
    assert_int_equal(an_config_json(&err, &table, &s, &json), AN_OK);
    assert_string_equal(json.data,
                        "{\"max_iters\":123456789,\"lr\":0.30000000000000004,\"bias\":true,\"device\":\"auto\","
                        "\"start\":\"\\\"\\\\\\u000a\xc3\xa9\",\"dtype\":\"bfloat16\"}");
    if (an_config_from_json(&err, &table, &back, "meta", json.data, json.len) != AN_OK) fail_msg("%s", err.text);
    assert_memory_equal(&s, &back, offsetof(settings, device));
    assert_string_equal(s.start, back.start);
    assert_int_equal(s.dtype, back.dtype);
    an_text_clear(&json);
    strcpy(s.start, "\xff");
    assert_int_equal(an_config_json(&err, &table, &s, &json), AN_E_USAGE);
    assert_contains(err.text, "start: \"\xff\" is not UTF-8");
    an_text_free(&json);
    static const char *const wrong[] = {"[]", "{\"lr\":null}", "{\"lr\":[1]}", "{\"max_iters\":1.5}", "{\"nothing\":1}",
                                        "{"};
    for (size_t i = 0; i < AN_COUNT(wrong); i++)
        assert_int_not_equal(an_config_from_json(NULL, &table, &back, "meta", wrong[i], strlen(wrong[i])), AN_OK);
}

static void memory_is_a_number_of_gib_or_an_amount_with_its_unit(void **state)
{
    (void)state;
    static const an_config_field field = {"budget", AN_CONFIG_GIB, 0, "0", 0, 1e6, NULL, "of the run"};
    const an_config one = {.fields = &field, .n = 1};
    static const struct {
        const char *text;
        double gib; /* < 0: refused */
    } t[] = {{"16GiB", 16}, {"512MiB", 0.5}, {"2", 2},    {"0.25", 0.25}, {"0", 0}, {"1073741824B", 1}, {"4 GiB", 4},
             {"some", -1},  {"-1", -1},      {"GiB", -1}, {"9e9GiB", -1}, {"", -1}, {"1.2.3GiB", -1},   {".GiB", -1}};
    for (size_t i = 0; i < AN_COUNT(t); i++) {
        double got = -2;
        char yaml[64];
        an_err err = {0};
        const bool taken = an_config_set(&err, &one, &got, "", "budget", t[i].text) == AN_OK;
        assert_int_equal(taken, t[i].gib >= 0);
        assert_true(got == (taken ? t[i].gib : -2));
        snprintf(yaml, sizeof yaml, "budget: \"%s\"\n", t[i].text);
        an_err_clear(&err);
        assert_int_equal(an_config_yaml_text(&err, &one, &got, "b.yaml", yaml, strlen(yaml)) == AN_OK, taken);
        snprintf(yaml, sizeof yaml, "budget = '%s'\n", t[i].text);
        an_err_clear(&err);
        assert_int_equal(an_config_py_text(&err, &one, &got, "b.py", yaml, strlen(yaml)) == AN_OK, taken);
    }
}

static void help_lists_every_key_with_default_and_meaning(void **state)
{
    (void)state;
    an_text out = {0};
    an_config_help(&table, &out);
    assert_contains(out.data, "  max_iters=5000  steps to train (0 to 1000000000)\n");
    assert_contains(out.data, "  device=auto     where to run (auto|cpu|cuda)\n");
    an_text_free(&out);
}

/* The files show, with comments, what the built-in presets of the same name are. */
static void the_files_in_configs_are_the_presets_of_their_name(void **state)
{
    (void)state;
    int files = 0;
    const an_model *model;
    const an_preset *p;
    for (size_t i = 0; (p = an_preset_at(i, &model)) != NULL; i++) {
        char path[300];
        snprintf(path, sizeof path, "configs/%s.yaml", p->name);
        if (access(path, F_OK) != 0) continue;
        files++;
        an_train_config built_in, file;
        an_text a = {0}, b = {0};
        an_err err = {0};
        assert_int_equal(an_train_config_open(&err, p->name, &built_in), AN_OK);
        if (an_train_config_open(&err, path, &file) != AN_OK) fail_msg("%s", err.text);
        const an_config keys = an_train_keys(&built_in);
        assert_int_equal(an_config_json(&err, &keys, &built_in, &a), AN_OK);
        assert_int_equal(an_config_json(&err, &keys, &file, &b), AN_OK);
        assert_string_equal(a.data, b.data);
        an_text_free(&a);
        an_text_free(&b);
    }
    assert_int_equal(files, temp_count("configs", ".yaml"));
    assert_true(files > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_come_from_the_table),
        cmocka_unit_test(memory_is_a_number_of_gib_or_an_amount_with_its_unit),
        cmocka_unit_test(arguments_set_values_with_or_without_dashes),
        cmocka_unit_test(refusals_name_the_key_and_what_is_allowed_and_change_nothing),
        cmocka_unit_test(yaml_sets_values),
        cmocka_unit_test(yaml_refusals_have_the_line_and_change_nothing),
        cmocka_unit_test(values_survive_json),
        cmocka_unit_test(the_files_in_configs_are_the_presets_of_their_name),
        cmocka_unit_test(help_lists_every_key_with_default_and_meaning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
