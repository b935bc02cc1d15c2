/* test_faults.c: the CUDA backend against a driver that is absent, old, out of memory, failing or hanging: a sentence
 * that says what and what to do, no crash, no hang, no handle left behind, and the last checkpoint whole. No GPU is
 * needed: fake_cuda.c is the driver. */
#define _GNU_SOURCE           /* setenv */
#include "proof/train_case.h" /* first: it wants the short names of anneal.h */

#include "cuda/fake.h"

#include <sys/time.h>

static const train_case half = {.B = 2, .T = 32, .C = 32, .L = 1, .H = 2, .V = 19, .matmul = AN_BF16, .dropout = 0.1},
                        full = {.B = 2, .T = 32, .C = 32, .L = 1, .H = 2, .V = 19, .matmul = AN_F32},
                        narrow = {.B = 2, .T = 32, .C = 32, .L = 1, .H = 2, .V = 19, .matmul = AN_F16};

/* Trains until something fails; the sentence is in `err`. */
static an_status train(an_err *err, const train_case *c, int steps)
{
    const an_options o = {.device = "cuda", .seed = 3, .cache_dir = test_path("cache"), .verify = true};
    uint64_t hash;
    memset(err, 0, sizeof *err);
    return case_run(err, c, &o, steps, &hash, NULL);
}

static void says(const an_err *err, an_status got, an_status want, const char *words)
{
    if (got != want || !strstr(err->text, words))
        fail_msg("status %d: \"%s\"; wanted status %d and \"%s\"", got, err->text, want, words);
}

static int start(void **state)
{
    (void)state;
    fake_build();
    return 0;
}

/* ---------------------------------------------------------------------------------------------- used rightly */

static void training_uses_the_driver_rightly_in_every_way_of_launching(void **state)
{
    (void)state;
    static const char *const how[] = {"graph", "chain", "plain", "sync"};
    an_err err;
    for (int i = 0; i < 4; i++)
        for (int which = 0; which < 5; which++) {
            fake_reset();
            setenv("ANNEAL_CUDA_LAUNCH", how[i], 1);
            if (which == 2) setenv("ANNEAL_EXACT", "1", 1);
            if (which == 3) setenv("ANNEAL_TF32", "1", 1);
            if (train(&err, which == 4 ? &narrow : which ? &full : &half, 3) != AN_OK)
                fail_msg("%s: %s", how[i], err.text);
            fake_clean();
        }
}

/* Captured calls so far that do not wait for the one before them. */
static size_t beside(const char *how)
{
    an_err err;
    size_t n = 0;
    fake_reset();
    setenv("ANNEAL_CUDA_LAUNCH", how, 1);
    setenv("FAKE_CUDA_COUNTS", test_path("counts"), 1);
    if (train(&err, &half, 2) != AN_OK) fail_msg("%s", err.text);
    unsetenv("FAKE_CUDA_COUNTS");
    FILE *f = fopen(test_path("counts"), "r");
    if (!f || fscanf(f, "kernels %*u gemms %*u captures %*d replays %*u beside %zu", &n) != 1) fail_msg("no counts");
    fclose(f);
    fake_clean();
    return n;
}

static void independent_steps_do_not_wait_in_a_graph_and_do_in_a_chain(void **state)
{
    (void)state;
    if (fake_is_real()) test_skip("a real driver answers: only the stand-in can be told what it has");
    const size_t before = beside("plain"), graph = beside("graph") - before, chain = beside("chain") - before - graph;
    assert_int_equal(chain, 0);
    assert_in_range(graph, 2 * half.L * 4,
                    10000); /* the GEMMs of a layer's two gradients do not depend on each other */
}

/* In tf32 the library makes the gradient of what a layer reads, of weights that are turned for it; the gradient of the
 * weights is gemm_tf32.inc's. */
static void gradients_of_weights_in_tf32_are_not_the_librarys(void **state)
{
    (void)state;
    enum { NOTHING, F32, TF32, RUNS, WIDTH = 384, ROWS = 8192 };
    size_t kernels[RUNS] = {0}, gemms[RUNS] = {0}; /* of this test's runs so far and others' before */
    if (fake_is_real()) test_skip("a real driver answers: only the stand-in can be told what it has");
    for (int run = NOTHING; run < RUNS; run++) {
        fake_reset();
        setenv("ANNEAL_CUDA_LAUNCH", "plain", 1);
        setenv("FAKE_CUDA_COUNTS", test_path("counts"), 1);
        an_ctx *cx = an_open(&(an_options){.device = "cuda", .tf32 = run == TF32, .cache_dir = test_path("cache")});
        an_tensor *x = an_param(cx, "x", AN_F32, AN_SHAPE(ROWS, WIDTH), AN_ZEROS),
                  *w = an_param(cx, "w", AN_F32, AN_SHAPE(WIDTH, WIDTH), AN_ZEROS),
                  *z = an_param(cx, "z", AN_F32, AN_SHAPE(ROWS, WIDTH), AN_ZEROS);
        an_backward(an_sum(an_mul(an_matmul(x, an_transpose(w, 0, 1)), z), AN_ALL));
        if (run != NOTHING && an_eval(an_grad(x), an_grad(w)) != AN_OK) fail_msg("%s", an_error(cx));
        an_close(cx);
        FILE *f = fopen(test_path("counts"), "r");
        assert_non_null(f);
        assert_int_equal(fscanf(f, "kernels %zu gemms %zu", &kernels[run], &gemms[run]), 2);
        fclose(f);
        unsetenv("FAKE_CUDA_COUNTS");
        fake_clean();
    }
    assert_int_equal(gemms[TF32] - gemms[F32], gemms[F32] - gemms[NOTHING] - 1);
    /* turn, gemm_tf32, gemm_tf32_reduce */
    assert_int_equal(kernels[TF32] - kernels[F32], kernels[F32] - kernels[NOTHING] + 3);
}

/* A context on the stand-in that has trained `half` for some steps, nothing injected. */
static an_ctx *trained(int steps, an_gpt **m)
{
    const an_options o = {.device = "cuda", .seed = 3, .cache_dir = test_path("cache")};
    an_err err = {0};
    an_ctx *cx;
    fake_reset();
    assert_int_equal(case_open(&err, &half, &o, &cx, m), AN_OK);
    assert_int_equal(case_train(&err, cx, *m, &half, 0, steps, NULL), AN_OK);
    return cx;
}

/* Only a read waits, and once. */
static void steps_whose_results_are_not_read_are_not_waited_for(void **state)
{
    (void)state;
    an_err err = {0};
    an_gpt *m;
    an_bill before, after;
    double loss;
    an_ctx *cx = trained(1, &m);
    an_report(cx, &before);
    assert_int_equal(case_train(&err, cx, m, &half, 1, 8, NULL), AN_OK);
    an_report(cx, &after);
    assert_true(after.waits == before.waits && after.syncs == before.syncs);
    assert_int_equal(case_train(&err, cx, m, &half, 9, 1, &loss), AN_OK);
    an_report(cx, &after);
    assert_true(after.waits == before.waits + 1 && after.syncs == before.syncs + 1);
    case_close(cx, m);
    fake_clean();
}

static void a_second_run_takes_its_kernels_from_the_cache_and_a_damaged_entry_is_compiled_again(void **state)
{
    (void)state;
    an_err err;
    char command[512];
    fake_reset();
    assert_int_equal(train(&err, &half, 1), AN_OK);
    setenv("FAKE_CUDA_FAIL", "nvrtcCompileProgram:1+=6", 1);
    if (train(&err, &half, 1) != AN_OK) fail_msg("the cache was not used: %s", err.text);
    snprintf(command, sizeof command,
             "for f in %s/*.cubin; do printf x | dd of=$f bs=1 seek=200 conv=notrunc 2>/dev/null; done",
             test_path("cache"));
    assert_int_equal(system(command), 0);
    says(&err, train(&err, &half, 1), AN_E_DEVICE, "cannot compile");
    fake_reset();
    assert_int_equal(train(&err, &half, 1), AN_OK);
    fake_clean();
}

/* A stand-in and the real compiler, or two builds of one version, share a folder of kernels. */
static void another_build_of_the_compiler_has_entries_of_its_own(void **state)
{
    (void)state;
    an_err err;
    char path[512];
    fake_reset();
    assert_int_equal(train(&err, &half, 1), AN_OK);
    snprintf(path, sizeof path, "%s/libnvrtc.so.13", getenv("ANNEAL_CUDA_PATH"));
    const struct timeval other[2] = {{1000000, 0}, {1000000, 0}};
    if (fake_is_real()) test_skip("the compiler is the real one, whose file is not touched");
    assert_int_equal(utimes(path, other), 0);
    setenv("FAKE_CUDA_FAIL", "nvrtcCompileProgram:1+=6", 1);
    says(&err, train(&err, &half, 1), AN_E_DEVICE, "cannot compile");
    fake_reset();
    assert_int_equal(train(&err, &half, 1), AN_OK);
    fake_clean();
}

/* ---------------------------------------------------------------------------------------------- guards */

static an_status train_apart(an_err *err)
{
    const an_options o = {
        .device = "cuda", .seed = 3, .cache_dir = test_path("cache"), .place_apart = true, .verify = true};
    uint64_t hash;
    memset(err, 0, sizeof *err);
    return case_run(err, &half, &o, 2, &hash, NULL);
}

static void a_kernel_that_writes_beside_its_value_is_found_and_named_when_launches_wait(void **state)
{
    (void)state;
    static const char *const how[] = {"graph", "plain", "sync"};
    an_err err;
    for (int i = 0; i < 3; i++) {
        fake_reset();
        setenv("ANNEAL_CUDA_LAUNCH", how[i], 1);
        if (train_apart(&err) != AN_OK) fail_msg("%s: %s", how[i], err.text); /* nothing strays */
        setenv("FAKE_CUDA_STRAY", "5", 1);
        says(&err, train_apart(&err), AN_E_INTERNAL, "wrote outside value");
        if (!strstr(err.text, i == 2 ? "cuda: step " : "ANNEAL_CUDA_LAUNCH=sync says which")) fail_msg("%s", err.text);
        fake_clean();
    }
}

/* ---------------------------------------------------------------------------------------------- not there */

static void what_is_missing_or_too_old_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value, *words;
    } faults[] = {
        {"ANNEAL_CUDA_PATH", "/nonexistent", "libcuda.so.1 not found"},
        {"FAKE_CUDA_VERSION", "11040", "the NVIDIA driver is for CUDA 11.4"},
        {"FAKE_CUDA_ARCH", "75", "compute capability 7.5, less than 8.0"},
        {"FAKE_CUDA_FAIL", "cuInit:1+=100", "the driver finds no GPU"},
        {"FAKE_CUDA_FAIL", "cuInit:1+=803", "the NVIDIA driver does not start"},
    };
    an_err err;
    for (size_t i = 0; i < AN_COUNT(faults); i++) {
        char *was = getenv(faults[i].name) ? strdup(getenv(faults[i].name)) : NULL;
        setenv(faults[i].name, faults[i].value, 1);
        says(&err, train(&err, &half, 1), AN_E_ENV, faults[i].words);
        an_ctx *cx = an_open(&(an_options){.device = "auto"}); /* goes on without it, and says why */
        assert_null(an_error(cx));
        assert_non_null(strstr(an_report_text(cx, "device"), "cpu: "));
        assert_non_null(strstr(an_report_text(cx, "device"), faults[i].words));
        an_close(cx);
        if (was) setenv(faults[i].name, was, 1);
        free(was);
        fake_reset();
    }
}

static void without_nvrtc_there_is_a_sentence_and_without_cublas_a_note(void **state)
{
    (void)state;
    an_err err;
    char path[512], away[600];
    for (int i = 0; i < 2; i++) {
        fake_reset();
        snprintf(path, sizeof path, "%s/%s", getenv("ANNEAL_CUDA_PATH"), i ? "libcublasLt.so.13" : "libnvrtc.so.13");
        snprintf(away, sizeof away, "%s.away", path);
        assert_int_equal(rename(path, away), 0);
        an_status status = train(&err, &half, 1);
        if (i)
            assert_int_equal(status, AN_OK);
        else
            says(&err, status, AN_E_ENV, "libnvrtc.so.13 not found");
        assert_int_equal(rename(away, path), 0);
        fake_clean();
    }
}

/* ---------------------------------------------------------------------------------------------- failing */

static void no_memory_at_the_start_or_later_is_a_sentence(void **state)
{
    (void)state;
    static const char *const faults[] = {"cuMemAlloc_v2:1=2",    "cuMemAlloc_v2:3=2",
                                         "cuMemAlloc_v2:5=2",    "cuMemHostAlloc:1=2",
                                         "cuModuleLoadData:4=2", "cuGraphInstantiateWithFlags:1=2"};
    an_err err;
    for (size_t i = 0; i < AN_COUNT(faults); i++) {
        fake_reset();
        setenv("FAKE_CUDA_FAIL", faults[i], 1);
        says(&err, train(&err, &half, 3), AN_E_NOMEM, "out of memory");
        fake_clean();
    }
    fake_reset();
    setenv("FAKE_CUDA_BYTES", "100000", 1);
    says(&err, train(&err, &half, 3), AN_E_NOMEM, "the high watermark allows 92.8 KiB"); /* of 97.7 */
    fake_clean();
}

/* Each function of the driver that a step calls, failing once with an error of its own or one that takes the device. */
static void a_call_that_fails_is_named_and_leaves_nothing_behind(void **state)
{
    (void)state;
    static const char *const names[] = {"cuLaunchKernel",       "cublasLtMatmul",
                                        "cuGraphLaunch",        "cuMemcpyHtoDAsync_v2",
                                        "cuStreamCreate",       "cuStreamEndCapture",
                                        "cuMemcpyDtoHAsync_v2", "cuEventRecordWithFlags",
                                        "cuModuleGetFunction",  "cublasLtMatmulAlgoGetHeuristic",
                                        "cuMemsetD8Async"};
    an_err err;
    for (size_t i = 0; i < AN_COUNT(names); i++)
        for (int nth = 1; nth < 4; nth += 2) {
            char fault[96];
            fake_reset();
            snprintf(fault, sizeof fault, "%s:%d=801", names[i], nth);
            setenv("FAKE_CUDA_FAIL", fault, 1);
            an_status status = train(&err, &half, 3);
            if (status == AN_OK && nth == 1) fail_msg("%s failed and it was not noticed", names[i]);
            if (status != AN_OK) says(&err, status, AN_E_DEVICE, "cuda: ");
            fake_clean();
        }
}

static void a_kernel_that_faults_loses_the_device_with_a_sentence(void **state)
{
    (void)state;
    an_err err;
    fake_reset();
    setenv("FAKE_CUDA_FAIL", "cuEventQuery:6+=700", 1);
    says(&err, train(&err, &half, 50), AN_E_DEVICE, "an illegal memory access was encountered");
    assert_non_null(strstr(err.text, "resume from the last checkpoint"));
    fake_reset();
    setenv("ANNEAL_CUDA_LAUNCH", "sync", 1); /* names the kernel */
    setenv("FAKE_CUDA_FAIL", "cuStreamSynchronize:9+=700", 1);
    says(&err, train(&err, &half, 50), AN_E_DEVICE, "running step");
}

/* Each of these takes the context with it: trying again, or reporting it, is no advice. */
static void a_context_that_is_gone_is_said_to_be_lost(void **state)
{
    (void)state;
    static const int codes[] = {4, 201, 214, 220, 226, 700, 702, 709, 719, 721, 999};
    an_err err;
    for (size_t i = 0; i < AN_COUNT(codes); i++) {
        char fault[64];
        fake_reset();
        snprintf(fault, sizeof fault, "cuGraphLaunch:2+=%d", codes[i]);
        setenv("FAKE_CUDA_FAIL", fault, 1);
        says(&err, train(&err, &full, 5), AN_E_DEVICE, "resume from the last checkpoint");
    }
}

/* Nothing is read after the last step, so only the wait can find out. */
static void a_stream_that_does_not_end_well_is_not_a_step_that_was_done(void **state)
{
    (void)state;
    an_gpt *m;
    an_ctx *cx = trained(2, &m);
    setenv("FAKE_CUDA_FAIL", "cuStreamSynchronize:1+=700", 1);
    assert_int_equal(an_synchronize(cx), AN_E_DEVICE);
    assert_non_null(strstr(an_error(cx), "resume from the last checkpoint"));
    case_close(cx, m);
}

static void a_variable_that_says_nothing_known_is_refused_with_what_it_may_say(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value, *words;
    } faults[] = {
        {"ANNEAL_CUDA_LAUNCH", "snyc",
         "ANNEAL_CUDA_LAUNCH is snyc; it may be graph (the default), chain, plain or sync"},
        {"ANNEAL_CUDA_TIMEOUT", "abc", "ANNEAL_CUDA_TIMEOUT is abc; it is seconds, more than 0"},
        {"ANNEAL_CUDA_TIMEOUT", "-1", "ANNEAL_CUDA_TIMEOUT is -1"},
        {"ANNEAL_CUDA_TIMEOUT", "5m", "ANNEAL_CUDA_TIMEOUT is 5m"},
        {"ANNEAL_CUDA_TIMEOUT", "nan", "ANNEAL_CUDA_TIMEOUT is nan"},
    };
    an_err err;
    for (size_t i = 0; i < AN_COUNT(faults); i++) {
        fake_reset();
        setenv(faults[i].name, faults[i].value, 1);
        says(&err, train(&err, &half, 1), AN_E_USAGE, faults[i].words);
        setenv(faults[i].name, "", 1); /* as good as none */
        assert_int_equal(train(&err, &half, 1), AN_OK);
        unsetenv(faults[i].name);
        fake_clean();
    }
}

static void a_gpu_that_hangs_is_given_up_after_the_timeout(void **state)
{
    (void)state;
    an_err err;
    fake_reset();
    setenv("FAKE_CUDA_FAIL", "cuEventQuery:5+=600", 1);
    setenv("ANNEAL_CUDA_TIMEOUT", "0.2", 1);
    says(&err, train(&err, &half, 50), AN_E_DEVICE, "has not finished after");
    unsetenv("ANNEAL_CUDA_TIMEOUT");
}

/* A step that fails under way: whoever comes next says so, and everyone after. */
static void a_failure_under_way_is_said_by_the_next_call_and_by_each_after_it(void **state)
{
    (void)state;
    an_err err = {0};
    an_gpt *m;
    an_ctx *cx = trained(1, &m);
    assert_int_equal(an_synchronize(cx), AN_OK);
    setenv("FAKE_CUDA_FAIL", "cuEventQuery:1+=700", 1);
    assert_int_equal(case_train(&err, cx, m, &half, 1, 3, NULL), AN_OK);
    for (int i = 0; i < 2; i++) {
        an_tensor *l = case_build(cx, m, &half, 4, 0);
        an_status status = an_eval(l);
        if (status == AN_OK) status = (an_item(l), an_error_status(cx));
        assert_int_equal(status, AN_E_DEVICE);
        assert_non_null(strstr(an_error(cx), "an illegal memory access was encountered"));
        an_reset(cx);
    }
    case_close(cx, m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_uses_the_driver_rightly_in_every_way_of_launching),
        cmocka_unit_test(independent_steps_do_not_wait_in_a_graph_and_do_in_a_chain),
        cmocka_unit_test(gradients_of_weights_in_tf32_are_not_the_librarys),
        cmocka_unit_test(steps_whose_results_are_not_read_are_not_waited_for),
        cmocka_unit_test(a_second_run_takes_its_kernels_from_the_cache_and_a_damaged_entry_is_compiled_again),
        cmocka_unit_test(another_build_of_the_compiler_has_entries_of_its_own),
        cmocka_unit_test(a_kernel_that_writes_beside_its_value_is_found_and_named_when_launches_wait),
        cmocka_unit_test(what_is_missing_or_too_old_is_named),
        cmocka_unit_test(without_nvrtc_there_is_a_sentence_and_without_cublas_a_note),
        cmocka_unit_test(no_memory_at_the_start_or_later_is_a_sentence),
        cmocka_unit_test(a_call_that_fails_is_named_and_leaves_nothing_behind),
        cmocka_unit_test(a_kernel_that_faults_loses_the_device_with_a_sentence),
        cmocka_unit_test(a_context_that_is_gone_is_said_to_be_lost),
        cmocka_unit_test(a_stream_that_does_not_end_well_is_not_a_step_that_was_done),
        cmocka_unit_test(a_variable_that_says_nothing_known_is_refused_with_what_it_may_say),
        cmocka_unit_test(a_gpu_that_hangs_is_given_up_after_the_timeout),
        cmocka_unit_test(a_failure_under_way_is_said_by_the_next_call_and_by_each_after_it),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
