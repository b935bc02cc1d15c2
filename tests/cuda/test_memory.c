/* test_memory.c: what a plan says it will take is what the driver is asked for, counted in the driver's own calls, in
 * ten configurations of presets; what is beside it is told apart. No GPU is needed: fake_cuda.c is the driver. On one
 * that is there, tests/cuda/on_gpu.sh runs this behind proxy_cuda.c. */
#define _GNU_SOURCE /* setenv */
#include "models/gpt/gpt.h"
#include "cuda/fake.h"

#include "tools/estimate.h"
#include "train/step.h"

#include <dlfcn.h>

typedef enum what { TRAIN, EVALUATE, SAMPLE } what;

typedef struct configuration {
    what what;
    const char *preset, *settings[4];
} configuration;

static const configuration configurations[] = {
    {TRAIN, "macbook", {"dtype=float32"}},
    {TRAIN, "macbook", {"dtype=bfloat16", "recompute=on"}},
    {TRAIN, "macbook", {"tf32=true", "gradient_accumulation_steps=3"}},
    {TRAIN, "macbook", {"exact=true", "dropout=0.1", "bias=true"}},
    {TRAIN, "macbook", {"compile=false", "gradient_accumulation_steps=2", "recompute=on"}},
    {TRAIN, "shakespeare_char", {"dtype=bfloat16"}},
    {TRAIN, "shakespeare_char", {"dtype=float32", "recompute=on"}},
    {TRAIN, "gpt2", {"dtype=bfloat16", "gradient_accumulation_steps=2", "n_layer=2"}},
    {EVALUATE, "shakespeare_char", {"dtype=bfloat16"}},
    {SAMPLE, "shakespeare_char", {"dtype=bfloat16"}},
};

/* Bytes that the driver has given out, now and at most since the last call. */
static void counted(size_t *now, size_t *most)
{
    static void (*bytes)(size_t *, size_t *);
    char path[512];
    if (!bytes) {
        const char *dirs = getenv("ANNEAL_CUDA_PATH");
        snprintf(path, sizeof path, "%.*s/libcuda.so.1", (int)strcspn(dirs, ":"), dirs);
        void *symbol = dlsym(dlopen(path, RTLD_NOW | RTLD_LOCAL), "fake_bytes");
        memcpy(&bytes, &symbol, sizeof symbol);
        assert_non_null(bytes);
    }
    bytes(now, most);
}

static void name_of(const configuration *c, char out[200])
{
    static const char *const whats[] = {"training", "evaluating", "sampling"};
    int n = snprintf(out, 200, "%s %s", whats[c->what], c->preset);
    for (size_t i = 0; i < AN_COUNT(c->settings) && c->settings[i]; i++)
        n += snprintf(out + n, 200 - (size_t)n, " %s", c->settings[i]);
}

static an_session *open_run(const configuration *c)
{
    an_err err = {0};
    an_train_config cfg;
    an_session *r;
    if (an_train_config_open(&err, c->preset, &cfg) != AN_OK) fail_msg("%s", err.text);
    const an_config keys = an_train_keys(&cfg);
    for (size_t i = 0; i < AN_COUNT(c->settings) && c->settings[i]; i++)
        if (an_config_argument(&err, &keys, &cfg, c->settings[i]) != AN_OK) fail_msg("%s", err.text);
    snprintf(cfg.device, sizeof cfg.device, "cuda");
    snprintf(cfg.cache_dir, sizeof cfg.cache_dir, "%s", test_path("cache"));
    an_task_assume(&cfg);
    if (an_session_open(&err, &cfg, NULL, AN_RUN_PARAMETERS_ONLY, &r) != AN_OK) fail_msg("%s", err.text);
    return r;
}

static void done(const an_session *r, an_status status)
{
    if (status != AN_OK) fail_msg("%s", an_error(r->cx));
    an_reset(r->cx);
}

/* What the driver must be asked for when this plan is run first. */
static uint64_t said(const an_session *r, an_status planned)
{
    an_bill b;
    if (planned != AN_OK || an_report(r->cx, &b) != AN_OK) fail_msg("%s", an_error(r->cx));
    return b.peak_bytes;
}

/* All that a training run runs: micro-batches, the update, an evaluation. */
static uint64_t train(an_session *r, int32_t *tokens)
{
    an_err err = {0};
    an_estimate p;
    if (an_estimate_run(&err, r, &p) != AN_OK) fail_msg("%s", err.text);
    for (int64_t step = 0; step < 2; step++)
        for (int64_t micro = 0; micro < r->cfg.gradient_accumulation_steps; micro++) {
            const an_step s = an_step_build(r->cx, r->model, &r->cfg, step, micro, (void *[]){tokens, tokens});
            done(r, s.norm ? an_eval(s.loss, s.norm) : an_eval(s.loss));
        }
    done(r, an_eval(an_step_evaluation(r->cx, r->model, &r->cfg, 0, (void *[]){tokens, tokens})));
    return p.bill.peak_bytes;
}

static uint64_t evaluate(an_session *r, int32_t *tokens)
{
    an_tensor *loss = an_step_evaluation(r->cx, r->model, &r->cfg, 0, (void *[]){tokens, tokens});
    const uint64_t bytes = said(r, an_plan(loss));
    done(r, an_eval(loss));
    return bytes;
}

/* A context taken in whole; a token with the keys and values kept from it takes less and so nothing more. */
static uint64_t sample(an_session *r, int32_t *tokens)
{
    an_tensor *context = an_input(r->cx, AN_I32, AN_SHAPE(1, 128), tokens); /* [1,128] */
    an_tensor *logits = an_gpt_prefill(r->model, context, an_scalar_i32(r->cx, 127));
    const uint64_t bytes = said(r, an_plan(logits));
    done(r, an_eval(logits));
    an_tensor *token = an_input(r->cx, AN_I32, AN_SHAPE(1, 1), tokens); /* [1,1] */
    done(r, an_eval(an_gpt_decode(r->model, token, an_scalar_i32(r->cx, 128), an_scalar_i32(r->cx, 129))));
    return bytes;
}

static void what_is_said_is_what_the_driver_is_asked_for_in_ten_configurations(void **state)
{
    (void)state;
    static uint64_t (*const kinds[])(an_session *, int32_t *) = {train, evaluate, sample};
    static int32_t tokens[64 * 1024];
    setenv("FAKE_CUDA_BYTES", "140000000000", 1);
    assert_int_equal(AN_COUNT(configurations), 10);
    for (size_t i = 0; i < AN_COUNT(configurations); i++) {
        const configuration *c = &configurations[i];
        char name[200];
        size_t now, most, left;
        name_of(c, name);
        counted(&now, &left);
        an_session *r = open_run(c);
        assert_true(r->cfg.batch_size * an_task_units(&r->cfg) <= (int64_t)AN_COUNT(tokens));
        const uint64_t bytes = kinds[c->what](r, tokens);
        counted(&now, &most);
        if (now != bytes || most != bytes)
            fail_msg("%s: %llu bytes were said, %zu are held, %zu were at most", name, (unsigned long long)bytes, now,
                     most);
        print_message("# %13llu bytes: %s\n", (unsigned long long)bytes, name);
        an_session_close(r);
        counted(&now, &most);
        assert_int_equal(now, 0);
    }
    fake_reset();
    fake_clean();
}

/* The stand-in's context takes FAKE_CUDA_BESIDE, as a driver, libraries and other programs do. */
static void what_the_driver_and_others_hold_is_told_apart_and_is_not_for_the_taking(void **state)
{
    (void)state;
    if (fake_is_real()) test_skip("a real driver answers: only the stand-in can be told what it has");
    an_memory m;
    setenv("FAKE_CUDA_BYTES", "10000000000", 1);
    setenv("FAKE_CUDA_BESIDE", "4000000000", 1);
    const configuration c = {TRAIN, "macbook", {"dtype=bfloat16"}};
    static int32_t tokens[12 * 64];
    an_session *r = open_run(&c);
    const uint64_t bytes = train(r, tokens);
    assert_int_equal(an_memory_read(r->cx, &m), AN_OK);
    assert_int_equal(m.requested_bytes, bytes);
    assert_int_equal(m.driver_bytes - m.requested_bytes, 4000000000);
    assert_int_equal(m.recommended_bytes, 6000000000);
    assert_int_equal(m.high_bytes, 5700000000);
    an_session_close(r);
    unsetenv("FAKE_CUDA_BESIDE");
    fake_reset();
}

static void measuring_gemms_frees_its_memory_and_fails_cleanly_without_enough(void **state)
{
    (void)state;
    size_t before, after, most;
    if (fake_is_real()) test_skip("a real driver answers: only the stand-in can be told what it has");
    an_ctx *cx = an_open(&(an_options){.device = "cuda", .cache_dir = test_path("cache")});
    counted(&before, &most);
    assert_true(an_fma_peak(cx, AN_BF16) > 0);
    assert_true(an_fma_peak(cx, AN_F32) > 0);
    counted(&after, &most);
    assert_int_equal(before, after);
    assert_true(most > 100000000);
    setenv("FAKE_CUDA_FAIL", "cuMemAlloc_v2:2=2", 1);
    assert_true(an_fma_peak(cx, AN_BF16) == 0);
    counted(&after, &most);
    assert_int_equal(before, after);
    fake_reset();
    assert_null(an_error(cx));
    an_close(cx);
    fake_clean();
}

static int start(void **state)
{
    (void)state;
    fake_build();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_said_is_what_the_driver_is_asked_for_in_ten_configurations),
        cmocka_unit_test(what_the_driver_and_others_hold_is_told_apart_and_is_not_for_the_taking),
        cmocka_unit_test(measuring_gemms_frees_its_memory_and_fails_cleanly_without_enough),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
