/* Every allocation of src/io is refused in turn, those that jansson makes too: each must end as AN_E_NOMEM with a
 * sentence, and (under ASan) leak nothing. */
#define _DEFAULT_SOURCE
#include "io/checkpoint.h"
#include "io/config/config.h"
#include "io/data/token_data.h"
#include "io/data/loader.h"
#include "io/formats/json.h"
#include "../unit/io_files.h"

static json_malloc_t first_malloc;
static json_free_t first_free;

static void refuse_each(an_status (*attempt)(an_err *err, void *arg), void *arg)
{
    test_refuse_each_allocation(attempt, arg);
    /* malloc is named here, where the linker replaces it. */
    json_set_alloc_funcs(malloc, free);
    for (long n = 1;; n++) {
        an_err err = {0};
        test_refuse_allocation(n);
        an_status status = attempt(&err, arg);
        bool reached = test_allocations() >= n;
        test_refuse_allocation(0);
        if ((status == AN_OK) == reached || (reached && !err.text[0]))
            fail_msg("allocation %ld: status %d, \"%s\"", n, status, err.text);
        if (!reached) break;
    }
    json_set_alloc_funcs(first_malloc, first_free);
}

static an_status save_checkpoint(an_err *err, void *arg)
{
    (void)arg;
    static const int64_t shape[] = {3};
    const an_ckpt_tensor tensors[] = {{NULL, "w", AN_U8, 1, shape, "abc", NULL, NULL},
                                      {AN_CKPT_M, "w", AN_U8, 1, shape, "def", NULL, NULL}};
    const an_ckpt_meta meta[] = {{AN_CKPT_STATE, "{}"}};
    (void)mkdir(test_path("run"), 0777);
    return an_ckpt_save(err, test_path("run"), "last", &(an_ckpt){tensors, 2, meta, 1});
}

static void saving_a_checkpoint_survives_every_refused_allocation(void **state)
{
    (void)state;
    refuse_each(save_checkpoint, NULL);
    assert_int_equal(temp_count(test_path("run"), ".tmp"), 0);
}

static an_status open_checkpoint(an_err *err, void *arg)
{
    (void)arg;
    an_st *st;
    AN_TRY(an_st_open(err, test_path("run/last.safetensors"), &st));
    an_hash128 h;
    an_status status = an_ckpt_hash(err, st, &h, NULL);
    an_st_close(st);
    return status;
}

static void opening_a_checkpoint_survives_every_refused_allocation(void **state)
{
    (void)state;
    assert_int_equal(save_checkpoint(NULL, NULL), AN_OK);
    refuse_each(open_checkpoint, NULL);
}

static an_status list_checkpoints(an_err *err, void *arg)
{
    char path[AN_CKPT_PATH_BYTES];
    (void)arg;
    AN_TRY(an_ckpt_prune(err, test_path("run"), 3));
    return an_ckpt_find(err, test_path("run"), false, path);
}

static void finding_a_checkpoint_survives_every_refused_allocation(void **state)
{
    (void)state;
    assert_int_equal(save_checkpoint(NULL, NULL), AN_OK);
    refuse_each(list_checkpoints, NULL);
}

static const char sample[] = "first line\nsecond line\ncaf\xc3\xa9\n";

static an_status make_characters(an_err *err, void *arg)
{
    (void)arg;
    an_tokenizer *t, *back = NULL;
    an_text json = {0}, text = {0};
    an_ids ids = {0};
    AN_TRY(an_tokenizer_chars(err, "sample", sample, sizeof sample - 1, &t));
    an_status status = an_tokenizer_json(err, t, &json);
    if (status == AN_OK) status = an_tokenizer_from_json(err, "meta", json.data, json.len, &back);
    if (status == AN_OK) status = an_tokenizer_encode(err, back, "sample", sample, sizeof sample - 1, false, &ids);
    if (status == AN_OK) status = an_tokenizer_decode(err, back, ids.data, ids.len, &text);
    if (status == AN_OK) assert_memory_equal(text.data, sample, sizeof sample - 1);
    an_ids_free(&ids);
    an_text_free(&json);
    an_text_free(&text);
    an_tokenizer_free(t);
    an_tokenizer_free(back);
    return status;
}

static void characters_survive_every_refused_allocation(void **state)
{
    (void)state;
    refuse_each(make_characters, NULL);
}

/* {"type":"bpe", ...} over the 256 bytes and two merges. */
static void small_bpe(an_text *json)
{
    unsigned next = 256;
    an_text_puts(json, "{\"type\":\"bpe\",\"tokens\":[");
    for (unsigned b = 0; b < 256; b++) {
        bool prints = (b > 32 && b < 127) || (b > 160 && b != 173);
        an_text_printf(json, "%s\"\\u%04x\"", b ? "," : "", prints ? b : next++);
    }
    an_text_puts(json, ",\"aa\",\"aaaa\"],\"merges\":[97,97,256,256]}");
}

static an_status make_bpe(an_err *err, void *arg)
{
    const an_text *json = arg;
    an_tokenizer *t;
    an_text again = {0};
    an_ids ids = {0};
    AN_TRY(an_tokenizer_from_json(err, "meta", json->data, json->len, &t));
    an_status status = an_tokenizer_encode(err, t, "sample", "aaaa b", 6, false, &ids);
    if (status == AN_OK) status = an_tokenizer_json(err, t, &again);
    an_ids_free(&ids);
    an_text_free(&again);
    an_tokenizer_free(t);
    return status;
}

static void bpe_survives_every_refused_allocation(void **state)
{
    (void)state;
    an_text json = {0};
    small_bpe(&json);
    refuse_each(make_bpe, &json);
    an_text_free(&json);
}

static an_status fill(an_err *err, const void *data, uint64_t step, void *const *array)
{
    return an_data_batch(err, data, &(an_batch){.B = 2, .T = 3}, step, array[0], array[1]);
}

static an_status load_data(an_err *err, void *arg)
{
    an_data *d;
    an_loader *l;
    AN_TRY(an_data_open(err, &(an_data_options){.source = arg}, &d));
    const an_array array = {.name = "tokens", .dtype = AN_I32, .shape = AN_SHAPE(2, 3)};
    const an_source source = {.array = {array, array}, .n = 2, .fill = fill, .data = d};
    an_status status = an_loader_open(err, &source, 0, 1, &l);
    if (status == AN_OK) an_loader_close(l);
    an_data_close(d);
    return status;
}

static void data_survives_every_refused_allocation(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s", temp_text("sample.txt", sample));
    refuse_each(load_data, path);
}

typedef struct settings {
    int64_t n;
    char text[AN_CONFIG_TEXT_BYTES];
} settings;

static an_status read_settings(an_err *err, void *arg)
{
    static const an_config_field fields[] = {
        {"n", AN_CONFIG_INT, offsetof(settings, n), "1", 0, 0, NULL, "a number"},
        {"text", AN_CONFIG_TEXT, offsetof(settings, text), "", 0, 0, NULL, "a text"},
    };
    const an_config table = {.fields = fields, .n = AN_COUNT(fields)};
    settings s;
    an_text json = {0};
    AN_TRY(an_config_defaults(err, &table, &s));
    AN_TRY(an_config_yaml(err, &table, &s, arg));
    an_status status = an_config_json(err, &table, &s, &json);
    if (status == AN_OK) status = an_config_from_json(err, &table, &s, "meta", json.data, json.len);
    an_text_free(&json);
    return status;
}

static void settings_survive_every_refused_allocation(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s", temp_text("settings.yaml", "n: 3\ntext: abc\n"));
    refuse_each(read_settings, path);
}

int main(void)
{
    json_get_alloc_funcs(&first_malloc, &first_free);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saving_a_checkpoint_survives_every_refused_allocation),
        cmocka_unit_test(opening_a_checkpoint_survives_every_refused_allocation),
        cmocka_unit_test(finding_a_checkpoint_survives_every_refused_allocation),
        cmocka_unit_test(characters_survive_every_refused_allocation),
        cmocka_unit_test(bpe_survives_every_refused_allocation),
        cmocka_unit_test(data_survives_every_refused_allocation),
        cmocka_unit_test(settings_survive_every_refused_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
