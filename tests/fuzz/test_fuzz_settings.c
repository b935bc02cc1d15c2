/* Settings: the first byte picks YAML ('y'), a .py file ('p'), JSON or an argument. What is taken must come back from
 * JSON; a YAML file or an argument that is refused must have changed nothing. */
#include "io/config/config_py.h"
#include "fuzz.h"

typedef struct settings {
    int64_t n;
    double x, gib;
    bool on;
    char text[AN_CONFIG_TEXT_BYTES], device[AN_CONFIG_TEXT_BYTES];
    an_dtype dtype;
} settings;

static const an_config_field fields[] = {
    {"n", AN_CONFIG_INT, offsetof(settings, n), "1", -5, 1e15, NULL, "a number"},
    {"x", AN_CONFIG_FLOAT, offsetof(settings, x), "0.5", 0, 0, NULL, "a fraction"},
    {"gib", AN_CONFIG_GIB, offsetof(settings, gib), "0", 0, 1e6, NULL, "an amount"},
    {"on", AN_CONFIG_BOOL, offsetof(settings, on), "true", 0, 0, NULL, "a switch"},
    {"text", AN_CONFIG_TEXT, offsetof(settings, text), "", 0, 0, NULL, "a text"},
    {"device", AN_CONFIG_TEXT, offsetof(settings, device), "cpu", 0, 0, "cpu|cuda", "a choice"},
    {"dtype", AN_CONFIG_DTYPE, offsetof(settings, dtype), "f32", 0, 0, NULL, "a dtype"},
};
static const an_config table = {.fields = fields, .n = AN_COUNT(fields)};

static void check_round_trip(const settings *s)
{
    an_text first = {0}, second = {0};
    settings back;
    an_err err = {0};
    memset(&back, 0, sizeof back);
    FUZZ_CHECK(an_config_defaults(&err, &table, &back) == AN_OK);
    if (an_config_json(&err, &table, s, &first) == AN_OK) { /* else: a text that is not UTF-8 */
        FUZZ_CHECK(an_config_from_json(&err, &table, &back, "back", first.data, first.len) == AN_OK);
        FUZZ_CHECK(an_config_json(&err, &table, &back, &second) == AN_OK);
        FUZZ_CHECK(strcmp(first.data, second.data) == 0);
    }
    an_text_free(&first);
    an_text_free(&second);
}

static bool fuzz_one(const char *data, size_t bytes)
{
    if (bytes == 0) return false;
    settings before, s;
    an_err err = {0};
    memset(&before, 0, sizeof before);
    FUZZ_CHECK(an_config_defaults(&err, &table, &before) == AN_OK);
    s = before;
    an_status status;
    if (data[0] == 'y') {
        status = an_config_yaml_text(&err, &table, &s, "fuzz.yaml", data + 1, bytes - 1);
    } else if (data[0] == 'p') {
        status = an_config_py_text(&err, &table, &s, "fuzz.py", data + 1, bytes - 1);
    } else if (data[0] == '{') {
        status = an_config_from_json(&err, &table, &s, "fuzz.json", data, bytes);
    } else {
        char *argument = malloc(bytes + 1);
        FUZZ_CHECK(argument != NULL);
        memcpy(argument, data, bytes);
        argument[bytes] = 0;
        status = an_config_argument(&err, &table, &s, argument);
        free(argument);
    }
    fuzz_check_sentence(status, &err);
    if (status == AN_OK)
        check_round_trip(&s);
    else if (data[0] != '{' && data[0] != 'p') /* these are set key by key */
        FUZZ_CHECK(memcmp(&s, &before, sizeof s) == 0);
    return status == AN_OK;
}

static const fuzz_seed seeds[] = {
    SEED("yn: 3\nx: 1e-3 # why\non: no\ntext: \"a: \\\"b\\\"\"\ndevice: cuda\ndtype: bf16\n"),
    SEED("y# only a comment\n"),
    SEED("y---\n{n: 3, x: 4}\n...\n"),
    SEED("{\"n\":3,\"x\":0.30000000000000004,\"on\":true,\"text\":\"\\u000a\",\"device\":\"cpu\",\"dtype\":\"f32\"}"),
    SEED("pn = 3 * (2 ** 2) // -5\nx = 1e-3 / 2 # why\non = False\ntext = 'a' + str(n)\ndevice = 'cuda'\n"),
    SEED("--n=12"),
    SEED("gib=512MiB"),
    SEED("x=-1.5e-7"),
    SEED("text=a=b"),
    SEED("device=cuda"),
};

static size_t fuzz_seeds(const fuzz_seed **out)
{
    *out = seeds;
    return AN_COUNT(seeds);
}
