/* test_presets.c: every kernel of every preset, in each precision, as the backend renders it for the device (cuBLASLt's
 * casts and tails too), is taken by NVRTC with the backend's own options, without a warning, for three generations of
 * GPU. The driver is fake_cuda.c, which hands texts on to the real NVRTC. An ordinary run plans and renders everything
 * and compiles every 48th text, generations in turn; AN_SOAK=1 compiles each for all three. Skipped by name, with the
 * reason, where NVRTC is not. */
#define _GNU_SOURCE /* dladdr */
#include <anneal.h> /* first: it brings the spellings for users */
#include "models/model.h"
#include "cuda/fake.h"

#include "runtime/context.h"
#include "shim/nvrtc.h"
#include "tools/estimate.h"
#include "train/step.h"

typedef struct mode {
    const char *name, *settings[2];
} mode;
static const mode modes[] = {{"bf16", {"dtype=bfloat16"}},
                             {"f32", {"dtype=float32"}},
                             {"tf32", {"dtype=float32", "tf32=true"}},
                             {"f16", {"dtype=float16"}},
                             {"exact", {"dtype=float32", "exact=true"}}};

static nvrtc compiler;

static int start(void **state)
{
    (void)state;
    char why[512];
    Dl_info where;
    void *symbol;
    if (nvrtc_open(&compiler, why, sizeof why)) {
        print_message("CUDA texts are NOT compiled here: %s\n", why);
        compiler.library = NULL;
        return 0;
    }
    fake_build();
    memcpy(&symbol, &compiler.version, sizeof symbol);
    assert_true(dladdr(symbol, &where) != 0);
    setenv("FAKE_NVRTC", where.dli_fname, 1);
    setenv("FAKE_NVRTC_EVERY", getenv("AN_SOAK") ? "1" : "48", 1);
    return 0;
}

static an_session *open_run(const char *preset, const mode *m)
{
    an_err err = {0};
    an_train_config c;
    an_session *r;
    if (an_train_config_open(&err, preset, &c) != AN_OK) fail_msg("%s", err.text);
    const an_config keys = an_train_keys(&c);
    for (size_t i = 0; i < AN_COUNT(m->settings) && m->settings[i]; i++)
        if (an_config_argument(&err, &keys, &c, m->settings[i]) != AN_OK) fail_msg("%s", err.text);
    snprintf(c.device, sizeof c.device, "cuda");
    snprintf(c.init_from, sizeof c.init_from, "scratch");
    snprintf(c.cache_dir, sizeof c.cache_dir, "%s", test_path("cache"));
    an_task_assume(&c);
    if (an_session_open(&err, &c, NULL, AN_RUN_PARAMETERS_ONLY, &r) != AN_OK) fail_msg("%s: %s", preset, err.text);
    return r;
}

/* What was planned last is made ready to run, and thrown away. */
static void load(an_session *r, an_status planned, const char *what)
{
    an_exec *exec = NULL;
    an_load_stats stats = {0};
    an_err err = {0};
    an_ctx *cx = r->cx;
    if (planned != AN_OK) fail_msg("%s %s: %s", r->cfg.preset, what, an_error(cx));
    if (cx->backend->load(&err, cx->device, cx->last->plan, &exec, &stats) != AN_OK)
        fail_msg("%s %s: %s", r->cfg.preset, what, err.text);
    cx->backend->unload(cx->device, exec);
    an_reset(cx);
}

/* All plans of training, evaluating and, where the model has a decoder, sampling. */
static void load_all(an_session *r)
{
    const an_model *model = r->cfg.model;
    const int64_t micros = r->cfg.gradient_accumulation_steps;
    an_err err = {0};
    an_array in[AN_MAX_ARRAYS];
    an_arrays arrays;
    if (an_arrays_open(&err, in, model->inputs(an_model_settings(&r->cfg), r->cfg.batch_size, in), &arrays) != AN_OK)
        fail_msg("%s", err.text);
    void *const *array = arrays.data;
    if (micros > 1) load(r, an_plan(an_step_build(r->cx, r->model, &r->cfg, 0, 0, array).loss), "micro-batch");
    const an_step s = an_step_build(r->cx, r->model, &r->cfg, 0, micros - 1, array);
    load(r, an_plan(s.loss, s.norm), "update");
    load(r, an_plan(an_step_evaluation(r->cx, r->model, &r->cfg, 0, array)), "evaluation");
    if (model->decoder && model->decoder->context(an_model_settings(&r->cfg)) > 0) {
        const int64_t half = model->decoder->context(an_model_settings(&r->cfg)) / 2;
        int32_t *tokens = calloc((size_t)half, sizeof *tokens); /* [1,half] */
        assert_non_null(tokens);
        an_tensor *context = an_input(r->cx, AN_I32, AN_SHAPE(1, half), tokens);
        load(r, an_plan(model->decoder->prefill(r->model, context, an_scalar_i32(r->cx, (int32_t)half - 1))),
             "context");
        an_tensor *token = an_input(r->cx, AN_I32, AN_SHAPE(1, 1), tokens), *at = an_scalar_i32(r->cx, 1),
                  *n_keys = an_scalar_i32(r->cx, 2);
        load(r, an_plan(model->decoder->decode(r->model, token, at, n_keys)), "token");
        free(tokens);
    }
    an_arrays_close(&arrays);
}

static void kernels_of_every_preset_in_every_precision_compile_for_three_generations(void **state)
{
    (void)state;
    static const char *const archs[] = {"80", "90", "100"};
    int (*taken)(void) = NULL;
    int turn = 0;
    if (!compiler.library) test_skip(NVRTC_ABSENT);
    const an_preset *preset;
    const an_model *model;
    size_t p = 0;
    for (; (preset = an_preset_at(p, &model)) != NULL; p++)
        for (size_t m = 0; m < AN_COUNT(modes); m++, turn++)
            for (size_t a = 0; a < AN_COUNT(archs); a++) {
                if (!getenv("AN_SOAK") && (size_t)turn % AN_COUNT(archs) != a) continue;
                setenv("FAKE_CUDA_ARCH", archs[a], 1);
                an_session *r = open_run(preset->name, &modes[m]);
                load_all(r);
                an_session_close(r);
                fake_clean();
            }
    char path[512];
    snprintf(path, sizeof path, "%s/libcuda.so.1", getenv("ANNEAL_CUDA_PATH"));
    void *symbol = dlsym(dlopen(path, RTLD_NOW | RTLD_LOCAL), "fake_compiled");
    memcpy(&taken, &symbol, sizeof symbol);
    assert_non_null(taken);
    print_message("# %d presets in %d precisions: %d texts compiled\n", (int)p, (int)AN_COUNT(modes), taken());
    assert_true(taken() > 20);
}

static void a_text_that_nvrtc_refuses_is_seen(void **state)
{
    (void)state;
    if (!compiler.library) test_skip(NVRTC_ABSENT);
    const char *options[] = {"--gpu-architecture=sm_80", "--fmad=false"};
    char path[512], line[256] = "";
    void *library, *program = NULL;
    int (*create)(void **, const char *, const char *, int, const char *const *, const char *const *);
    int (*compile)(void *, int, const char *const *);
    snprintf(path, sizeof path, "%s/libnvrtc.so.13", getenv("ANNEAL_CUDA_PATH"));
    assert_non_null(library = dlopen(path, RTLD_NOW | RTLD_LOCAL));
    const int found =
        dl_symbol(library, "nvrtcCreateProgram", &create) & dl_symbol(library, "nvrtcCompileProgram", &compile);
    assert_true(found);
    setenv("FAKE_NVRTC_EVERY", "1", 1);
    assert_int_equal(create(&program, "__global__ void k() { int unused; }", "k", 0, NULL, NULL), 0);
    compile(program, 2, options);
    FILE *f = fopen(fake_log_path, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    fclose(f);
    if (!strstr(line, "NVRTC")) fail_msg("%s", line);
    fake_reset();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_of_every_preset_in_every_precision_compile_for_three_generations),
        cmocka_unit_test(a_text_that_nvrtc_refuses_is_seen),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
