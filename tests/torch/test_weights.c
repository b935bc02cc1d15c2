/* test_weights.c: files of weights that PyTorch wrote (tools/goldens.py): nanoGPT's ckpt.pt and Hugging Face's GPT-2.
 * The model they describe gives PyTorch's logits; what is written from them and read again has the same bits. */
#include <anneal.h>

#include "io/checkpoint.h"
#include "lib/test.h"
#include "models/gpt/gpt_weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char nanogpt_path[] = "tests/torch/nanogpt.pt", hf_path[] = "tests/torch/hf/model.safetensors";

static an_st *open_weights(const char *path)
{
    an_err err = {0};
    an_st *st;
    if (an_gpt_weights_open(&err, path, &st) != AN_OK) fail_msg("%s", err.text);
    return st;
}

static an_gpt_config config_of(const an_st *st)
{
    an_err err = {0};
    an_gpt_config c;
    if (an_gpt_weights_config(&err, st, &c) != AN_OK) fail_msg("%s", err.text);
    return c;
}

static void fill_model(an_ctx *cx, const an_st *st)
{
    for (int i = 0; i < an_persist_count(cx); i++) {
        an_persist p;
        an_err err = {0};
        const an_st_tensor *t;
        assert_int_equal(an_persist_get(cx, i, &p), AN_OK);
        if (an_ckpt_expect(&err, st, "", p.name, p.dtype, p.shape.rank, p.shape.dim, &t) != AN_OK)
            fail_msg("%s", err.text);
        assert_int_equal(an_persist_write(cx, i, t->data, t->bytes), AN_OK);
    }
}

/* The logits of `path`'s model for the golden's tokens, within 1e-5 of the largest one. */
static void compare_logits(const char *device, const char *path, const char *golden_name)
{
    test_golden g = test_golden_open("weights");
    const an_st_tensor *x = an_st_find(g.file, "x");
    an_st *st = open_weights(path);
    const an_gpt_config c = config_of(st);
    an_ctx *cx = an_open(&(an_options){.device = device, .seed = 1, .verify = true});
    an_gpt *model = an_gpt_open(cx, &c);
    assert_non_null(model);
    fill_model(cx, st);
    an_tensor *logits = an_gpt_logits(model, an_input(cx, AN_I32, AN_SHAPE(x->shape[0], x->shape[1]), x->data));
    an_eval(logits);
    size_t n;
    double *want = test_golden_read(&g, golden_name, &n), largest = 0;
    assert_int_equal(n, x->shape[0] * x->shape[1] * c.vocab);
    for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs(want[i]));
    float *got = malloc(n * sizeof *got);
    assert_non_null(got);
    an_read(logits, got, n * sizeof *got);
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    test_close(golden_name, got, want, n, 0, 1e-5 * largest);
    free(got), free(want);
    an_gpt_close(model);
    an_close(cx);
    an_st_close(st);
    test_golden_close(&g);
}

/* The device is the test's state. */
static void test_nanogpt(void **device)
{
    compare_logits(*device, nanogpt_path, "nanogpt.logits");
}
static void test_hugging_face(void **device)
{
    compare_logits(*device, hf_path, "hf.logits");
}

static void a_ckpt_pt_brings_its_settings_moments_and_progress(void **state)
{
    (void)state;
    an_st *st = open_weights(nanogpt_path);
    const an_gpt_config c = config_of(st);
    assert_int_equal(c.layers, 2);
    assert_int_equal(c.heads, 2);
    assert_int_equal(c.width, 16);
    assert_int_equal(c.block, 12);
    assert_int_equal(c.vocab, 33);
    assert_false(c.bias);
    assert_true(c.dropout == 0.2);
    const int64_t parameters = 2 + 6 * 2 + 1;
    assert_int_equal(an_st_count(st), 3 * parameters);
    const char *config = an_st_meta(st, AN_CKPT_CONFIG), *progress = an_st_meta(st, AN_CKPT_STATE);
    assert_non_null(strstr(config, "\"batch_size\":3,\"gradient_accumulation_steps\":5,\"max_iters\":600000,"));
    assert_non_null(strstr(config, "\"learning_rate\":0.02999"));
    assert_non_null(strstr(config, "\"decay_lr\":true"));
    assert_null(strstr(config, "backend"));
    assert_non_null(strstr(progress, "\"step\":3,"));
    assert_non_null(strstr(progress, "\"best_val\":2.639"));
    /* A group's parameters are numbered in the order of the model, matrices first: a vector's moment is a vector. */
    const an_st_tensor *m = an_st_find(st, AN_CKPT_M "transformer.h.1.ln_2.weight");
    assert_non_null(m);
    assert_int_equal(m->rank, 1);
    const an_st_tensor *v = an_st_find(st, AN_CKPT_V "transformer.h.1.mlp.c_proj.weight");
    assert_non_null(v);
    assert_int_equal(v->shape[1], 64);
    for (size_t i = 0; i < v->bytes / 4; i++) {
        float square;
        memcpy(&square, (const char *)v->data + 4 * i, 4);
        assert_true(square >= 0);
    }
    an_st_close(st);
}

static void hash_parameters(const char *path, an_hash128 *out)
{
    an_st *st = open_weights(path);
    size_t n = 0;
    for (size_t i = 0; i < an_st_count(st); i++) {
        const an_st_tensor *t = an_st_tensor_by_name(st, i);
        if (strncmp(t->name, "optimizer.", 10) == 0) continue;
        assert_true(n < 64);
        assert_int_equal(an_ckpt_hash_tensor(NULL, t, &out[n++]), AN_OK);
    }
    an_st_close(st);
}

/* path -> each layout -> the other: always the same parameters. */
static void check_round_trip(const char *path)
{
    an_hash128 before[64] = {0}, after[64] = {0};
    an_err err = {0};
    hash_parameters(path, before);
    const char *from = path;
    for (int i = 0; i < 4; i++) {
        const char *to = test_path(i % 2 ? "one.safetensors" : "two.safetensors");
        an_st *st = open_weights(from);
        if (an_gpt_weights_write(&err, st, i % 2 ? AN_GPT_NANOGPT : AN_GPT_HUGGING_FACE, to) != AN_OK)
            fail_msg("%s", err.text);
        an_st_close(st);
        hash_parameters(to, after);
        assert_memory_equal(before, after, sizeof before);
        from = to;
    }
}

static void weights_go_out_and_back_with_the_same_bits(void **state)
{
    (void)state;
    check_round_trip(nanogpt_path);
    check_round_trip(hf_path);
}

static void hugging_faces_layout_is_written_as_pytorch_wrote_it(void **state)
{
    (void)state;
    an_err err = {0};
    an_st *theirs, *ours, *st = open_weights(hf_path);
    const char *path = test_path("again.safetensors");
    assert_int_equal(an_gpt_weights_write(&err, st, AN_GPT_HUGGING_FACE, path), AN_OK);
    assert_int_equal(an_st_open(&err, hf_path, &theirs), AN_OK);
    assert_int_equal(an_st_open(&err, path, &ours), AN_OK);
    for (size_t i = 0; i < an_st_count(ours); i++) {
        const an_st_tensor *t = an_st_tensor_at(ours, i), *u = an_st_find(theirs, t->name);
        if (!u) fail_msg("%s is not in PyTorch's file", t->name);
        assert_int_equal(t->rank, u->rank);
        assert_memory_equal(t->shape, u->shape, sizeof(int64_t) * (size_t)t->rank);
        assert_memory_equal(t->data, u->data, t->bytes);
    }
    assert_int_equal(an_st_count(ours) + 2, an_st_count(theirs)); /* but for the two masks */
    an_st_close(ours);
    an_st_close(theirs);
    an_st_close(st);
}

int main(void)
{
    static char ref[] = "ref", cpu[] = "cpu";
    const struct CMUnitTest tests[] = {
        {"nanogpts_ckpt_pt_on_ref_gives_pytorchs_logits", test_nanogpt, NULL, NULL, ref},
        {"nanogpts_ckpt_pt_on_cpu_gives_pytorchs_logits", test_nanogpt, NULL, NULL, cpu},
        {"hugging_faces_gpt2_on_ref_gives_pytorchs_logits", test_hugging_face, NULL, NULL, ref},
        {"hugging_faces_gpt2_on_cpu_gives_pytorchs_logits", test_hugging_face, NULL, NULL, cpu},
        cmocka_unit_test(a_ckpt_pt_brings_its_settings_moments_and_progress),
        cmocka_unit_test(weights_go_out_and_back_with_the_same_bits),
        cmocka_unit_test(hugging_faces_layout_is_written_as_pytorch_wrote_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
