/* test_train_config.c: presets, defaults and what no single key can be blamed for. */
#include <anneal.h>
#include "lib/gpt_settings.h"
#include "lib/test.h"
#include "train/config.h"
#include "train/optimizer.h"
#include "train/step.h"
#include <math.h>
#include <string.h>

static an_train_config open_preset(const char *name)
{
    an_err err = {0};
    an_train_config c;
    if (an_train_config_open(&err, name, &c) != AN_OK) fail_msg("%s", err.text);
    if (an_train_config_check(&err, &c) != AN_OK) fail_msg("%s", err.text);
    return c;
}

static void every_preset_opens_and_makes_a_model(void **state)
{
    (void)state;
    const an_model *model;
    const an_preset *p;
    for (size_t i = 0; (p = an_preset_at(i, &model)) != NULL; i++) {
        const an_train_config c = open_preset(p->name);
        assert_ptr_equal(c.model, model);
        assert_string_equal(c.preset, p->name);
    }
}

static void every_optimizer_can_be_chosen_and_every_choice_is_one(void **state)
{
    (void)state;
    char rows[256] = "";
    for (size_t i = 0; i < an_n_optimizers; i++) {
        strcat(rows, i ? "|" : "");
        strcat(rows, an_optimizers[i].name);
    }
    assert_string_equal(an_train_key_find("optimizer")->choices, rows);
}

static void averages_of_a_short_run_forget_what_it_began_with(void **state)
{
    (void)state;
    an_train_config c = open_preset("demo");
    c.ema_rate = 0.999;
    c.max_iters = 4999;
    assert_true(an_optimizer_ema_rate(&c, 1) == 2.0 / 11 && an_optimizer_ema_rate(&c, 90) == 0.91);
    c.max_iters = 5001;
    assert_true(an_optimizer_ema_rate(&c, 1) == 0.999);
}

static void shakespeare_char_is_nanogpts(void **state)
{
    (void)state;
    const an_train_config c = open_preset("shakespeare_char");
    assert_int_equal(c.batch_size, 64);
    assert_int_equal(GPT(c)->block_size, 256);
    assert_int_equal(GPT(c)->n_layer, 6);
    assert_int_equal(GPT(c)->n_head, 6);
    assert_int_equal(GPT(c)->n_embd, 384);
    assert_int_equal(c.max_iters, 5000);
    assert_int_equal(c.lr_decay_iters, 5000);
    assert_int_equal(c.warmup_iters, 100);
    assert_int_equal(c.eval_interval, 250);
    assert_int_equal(c.eval_iters, 200);
    assert_int_equal(c.gradient_accumulation_steps, 1);
    assert_true(GPT(c)->dropout == 0.2 && c.learning_rate == 1e-3 && c.min_lr == 1e-4 && c.beta1 == 0.9 &&
                c.beta2 == 0.99);
    assert_true(c.weight_decay == 0.1 && c.grad_clip == 1.0 && !GPT(c)->bias && c.decay_lr);
}

static void macbook_is_the_readmes_command(void **state)
{
    (void)state;
    const an_train_config c = open_preset("macbook");
    assert_int_equal(c.batch_size, 12);
    assert_int_equal(GPT(c)->block_size, 64);
    assert_int_equal(GPT(c)->n_layer, 4);
    assert_int_equal(GPT(c)->n_embd, 128);
    assert_int_equal(c.max_iters, 2000);
    assert_int_equal(c.eval_iters, 20);
    assert_true(GPT(c)->dropout == 0.0 && c.beta2 == 0.99);
}

static void gpt2_accumulates_to_half_a_million_tokens(void **state)
{
    (void)state;
    const an_train_config c = open_preset("gpt2");
    assert_int_equal(c.batch_size * GPT(c)->block_size * c.gradient_accumulation_steps, 491520);
    const an_gpt_config m = gpt_of(&c, 65);
    assert_int_equal(an_gpt_parameters(&m), 124373760);
}

static void an_unknown_preset_names_the_nearest(void **state)
{
    (void)state;
    an_err err = {0};
    an_train_config c;
    assert_int_equal(an_train_config_open(&err, "shakespere_char", &c), AN_E_USAGE);
    assert_non_null(strstr(err.text, "did you mean shakespeare_char?"));
    an_err_clear(&err);
    assert_int_equal(an_train_config_open(&err, "zzz", &c), AN_E_USAGE);
    assert_non_null(strstr(err.text, "macbook"));
}

static void what_does_not_fit_together_is_refused(void **state)
{
    (void)state;
    an_err err = {0};
    an_train_config c = open_preset("macbook");
    GPT(c)->n_head = 5;
    assert_int_equal(an_train_config_check(&err, &c), AN_E_USAGE);
    assert_non_null(strstr(err.text, "n_head=5"));
    c = open_preset("macbook"), c.dtype = AN_F64, an_err_clear(&err);
    assert_int_equal(an_train_config_check(&err, &c), AN_E_USAGE);
    c = open_preset("macbook"), c.lr_decay_iters = 50, an_err_clear(&err); /* nanoGPT runs it: min_lr after warm-up */
    assert_int_equal(an_train_config_check(&err, &c), AN_OK);
    c.out[0] = 0;
    assert_int_equal(an_train_config_check(&err, &c), AN_E_USAGE);
}

static void settings_survive_a_checkpoint(void **state)
{
    (void)state;
    an_err err = {0};
    an_train_config c = open_preset("shakespeare_char"), back = {0};
    c.learning_rate = 1.0 / 3.0;
    c.dtype = AN_BF16;
    strcpy(c.data, "a \"file\" \\ with \xC3\xA4 name");
    an_text json = {0};
    const an_config keys = an_train_file_keys(&c);
    assert_int_equal(an_config_json(&err, &keys, &c, &json), AN_OK);
    assert_int_equal(an_train_config_json(&err, "test", json.data, &back), AN_OK);
    assert_true(back.learning_rate == c.learning_rate && back.dtype == AN_BF16 && GPT(back)->n_embd == 384);
    assert_string_equal(back.data, c.data);
    an_text_free(&json);
}

static void the_learning_rate_follows_the_settings(void **state)
{
    (void)state;
    an_train_config c = open_preset("shakespeare_char");
    assert_true(an_step_lr(&c, 0) == 1e-3 / 101);
    assert_true(an_step_lr(&c, 9999) == 1e-4);
    c.decay_lr = false;
    assert_true(an_step_lr(&c, 0) == 1e-3 && an_step_lr(&c, 9999) == 1e-3);
}

static void shapes_and_seeds_are_fixed_for_a_resumed_run_and_learning_rates_are_not(void **state)
{
    (void)state;
    const an_train_config c = open_preset("macbook");
    const an_config keys = an_train_keys(&c);
    assert_true(an_train_key_is_fixed(&c, "n_layer") && an_train_key_is_fixed(&c, "seed") &&
                an_train_key_is_fixed(&c, "vocab_size"));
    assert_false(an_train_key_is_fixed(&c, "learning_rate") || an_train_key_is_fixed(&c, "max_iters") ||
                 an_train_key_is_fixed(&c, "threads"));
    for (size_t i = 0; i < keys.n; i++) assert_true(strlen(keys.fields[i].doc) > 4);
}

/* nanoGPT, model.py: GPT-2's sizes; its README: parameters. */
static void the_sizes_of_gpt2_are_presets(void **state)
{
    static const struct {
        const char *name;
        int64_t parameters; /* with nanoGPT's vocabulary and without biases */
    } rows[] = {{"gpt2-medium", 354599936}, {"gpt2-large", 773582080}, {"gpt2-xl", 1556840000}};
    (void)state;
    for (size_t i = 0; i < AN_COUNT(rows); i++) {
        const an_train_config c = open_preset(rows[i].name);
        const int64_t L = GPT(c)->n_layer, C = GPT(c)->n_embd;
        const an_gpt_config m = gpt_of(&c, 65);
        assert_int_equal(an_gpt_parameters(&m), (50304 + 1024) * C + L * (12 * C * C + 2 * C) + C);
        assert_int_equal(an_gpt_parameters(&m), rows[i].parameters);
        assert_int_equal(c.batch_size * GPT(c)->block_size * c.gradient_accumulation_steps, 491520);
    }
}

static void fine_tuning_is_nanogpts(void **state)
{
    (void)state;
    const an_train_config c = open_preset("finetune_shakespeare");
    assert_string_equal(c.init_from, "gpt2");
    assert_string_equal(c.data, "shakespeare");
    assert_int_equal(c.max_iters, 20);
    assert_int_equal(c.eval_interval, 5);
    assert_int_equal(c.eval_iters, 40);
    assert_int_equal(c.batch_size * c.gradient_accumulation_steps, 32);
    assert_true(c.learning_rate == 3e-5 && !c.decay_lr && !c.always_save);
}

static void a_py_file_begins_with_nanogpts_habits(void **state)
{
    (void)state;
    an_err err = {0};
    an_train_config c;
    const char *path = test_path("train_some.py");
    test_write_file(path, "batch_size = 5 * 8\ndataset = 'some'\n", 36);
    assert_int_equal(an_train_config_open(&err, path, &c), AN_OK);
    assert_int_equal(c.batch_size, 40);
    assert_int_equal(c.gradient_accumulation_steps, 40);
    assert_string_equal(c.data, "some");
    assert_string_equal(c.eval_batches, "random");
    assert_true(c.eval_first && c.eval_train && c.always_save);
    assert_int_equal(an_train_config_open(&err, test_path("nowhere.py"), &c), AN_E_IO);
    assert_non_null(strstr(err.text, "nowhere.py"));
}

static void second_names_are_the_same_setting(void **state)
{
    (void)state;
    an_err err = {0};
    an_train_config c = open_preset("macbook");
    const an_config keys = an_train_keys(&c);
    assert_int_equal(an_config_argument(&err, &keys, &c, "--out_dir=here"), AN_OK);
    assert_string_equal(c.out, "here");
    assert_int_equal(an_config_argument(&err, &keys, &c, "out=there"), AN_OK);
    assert_string_equal(c.out, "there");
    assert_int_equal(an_config_argument(&err, &keys, &c, "dataset=shakespeare"), AN_OK);
    assert_string_equal(c.data, "shakespeare");
}

static void the_settings_a_run_leaves_are_read_back(void **state)
{
    (void)state;
    an_err err = {0};
    an_train_config c = open_preset("shakespeare_char"), back;
    an_text text = {0};
    c.learning_rate = 1.0 / 3.0;
    c.dtype = AN_BF16;
    c.eval_first = true;
    strcpy(c.out, "a: \"folder\" # with\tmarks");
    strcpy(c.note, "");
    an_train_config_yaml(&c, &text);
    assert_false(text.failed);
    const char *path = test_path("config.yaml");
    test_write_file(path, text.data, text.len);
    if (an_train_config_open(&err, path, &back) != AN_OK) fail_msg("%s", err.text);
    strcpy(back.preset, c.preset);
    const an_config keys = an_train_keys(&c);
    for (size_t i = 0; i < keys.n; i++) {
        an_text was = {0}, is = {0};
        an_config_value_text(&keys.fields[i], &c, &was);
        an_config_value_text(&keys.fields[i], &back, &is);
        if (was.len != is.len || (was.len && strcmp(was.data, is.data) != 0))
            fail_msg("%s: %s was written, %s read", keys.fields[i].name, was.data, is.data);
        an_text_free(&was);
        an_text_free(&is);
    }
    an_text_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_preset_opens_and_makes_a_model),
        cmocka_unit_test(every_optimizer_can_be_chosen_and_every_choice_is_one),
        cmocka_unit_test(averages_of_a_short_run_forget_what_it_began_with),
        cmocka_unit_test(shakespeare_char_is_nanogpts),
        cmocka_unit_test(macbook_is_the_readmes_command),
        cmocka_unit_test(gpt2_accumulates_to_half_a_million_tokens),
        cmocka_unit_test(the_sizes_of_gpt2_are_presets),
        cmocka_unit_test(fine_tuning_is_nanogpts),
        cmocka_unit_test(a_py_file_begins_with_nanogpts_habits),
        cmocka_unit_test(second_names_are_the_same_setting),
        cmocka_unit_test(the_settings_a_run_leaves_are_read_back),
        cmocka_unit_test(an_unknown_preset_names_the_nearest),
        cmocka_unit_test(what_does_not_fit_together_is_refused),
        cmocka_unit_test(settings_survive_a_checkpoint),
        cmocka_unit_test(the_learning_rate_follows_the_settings),
        cmocka_unit_test(shapes_and_seeds_are_fixed_for_a_resumed_run_and_learning_rates_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
