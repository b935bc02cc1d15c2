/* test_cudnn.c: convolutions by cuDNN: which it runs and how they are described to it, the choice of the algorithm, the
 * workspace, what happens without it. fake_cuda.c is the library, strict about how it is used, and computes naively; with a
 * real driver (tests/cuda/on_gpu.sh) the results are the real library's. */
#define _GNU_SOURCE /* setenv */
#include <anneal.h> /* first: it brings the spellings for users */

#include "cuda/fake.h"

#include <anneal_import.h>
#include <math.h>

#include "runtime/context.h"

typedef struct conv {
    int images, h, w, c, o, kernel, stride, pad, dilation, groups;
} conv;

static const conv convs[] = {
    {2, 8, 8, 8, 16, 3, 1, 1, 1, 1},  {2, 9, 7, 8, 8, 3, 2, 1, 1, 1},   {1, 9, 9, 8, 16, 3, 1, 2, 2, 1},
    {2, 6, 6, 16, 16, 3, 1, 1, 1, 2}, {2, 8, 8, 16, 8, 1, 1, 0, 1, 1},  {2, 8, 8, 8, 16, 1, 2, 0, 1, 1},
    {3, 7, 5, 8, 8, 5, 2, 2, 1, 1},   {2, 6, 6, 24, 16, 3, 1, 1, 1, 2},
};
enum { FORWARD, DX, DW, FORMS };

/* Some groups are our own kernels', which are faster there: of 12 channels, say, and weight gradients in tf32. */
static bool is_the_librarys(const conv *k, int form, bool tf32)
{
    return k->groups == 1 || (k->c / k->groups == 8 && !(form == DW && tf32));
}

/* Calls of the stand-in so far. */
typedef struct calls {
    size_t kernels, convs;
} calls;

static int start(void **state)
{
    (void)state;
    fake_build();
    fake_cudnn(true);
    unsetenv("ANNEAL_CUDNN"); /* it is the default */
    return 0;
}

/* The result of one form as float32, and its number of elements; the sentence where it fails. */
static float *result_of(const conv *k, int form, an_dtype dtype, const char *device, bool tf32, int64_t *n, char *why)
{
    an_ctx *cx = an_open(&(an_options){.device = device, .seed = 5, .tf32 = tf32, .cache_dir = test_path("cache")});
    an_tensor *x = an_state(cx, "x", dtype, AN_SHAPE(k->images, k->h, k->w, k->c), AN_UNIFORM(-1, 1)),
              *w = an_state(cx, "w", dtype, AN_SHAPE(k->o, k->kernel, k->kernel, k->c / k->groups), AN_UNIFORM(-1, 1)),
              *y = an_conv2d(x, w, NULL,
                             (an_window){.pad_h = k->pad,
                                         .pad_w = k->pad,
                                         .stride_h = k->stride,
                                         .stride_w = k->stride,
                                         .dilation_h = k->dilation,
                                         .dilation_w = k->dilation,
                                         .groups = k->groups});
    if (form != FORWARD) {
        an_tensor *g = an_state(cx, "g", dtype, an_shape_of(y), AN_UNIFORM(-1, 1));
        an_backward(an_sum(an_mul(y, g), AN_ALL));
        y = an_grad(form == DX ? x : w);
    }
    const an_shape s = an_shape_of(y);
    float *out = NULL;
    *n = 1;
    for (int i = 0; i < s.rank; i++) *n *= s.dim[i];
    *why = 0;
    uint16_t *raw = malloc((size_t)*n * sizeof(float));
    out = malloc((size_t)*n * sizeof *out);
    assert_non_null(out);
    assert_non_null(raw);
    if (an_eval(y) != AN_OK || an_read(y, raw, (size_t)*n * (dtype == AN_F32 ? 4 : 2)) != AN_OK)
        snprintf(why, 512, "%s", an_error(cx));
    if (dtype == AN_F32) memcpy(out, raw, (size_t)*n * sizeof *out);
    for (int64_t i = 0; dtype != AN_F32 && i < *n; i++) {
        const uint32_t bits = (uint32_t)raw[i] << 16;
        memcpy(&out[i], &bits, sizeof bits);
    }
    free(raw);
    an_close(cx);
    return out;
}

/* What one form calls on the stand-in. */
static calls calls_of(const conv *k, int form, an_dtype dtype, bool tf32)
{
    static calls before;
    calls now = {0};
    char why[512];
    int64_t n;
    setenv("FAKE_CUDA_COUNTS", test_path("counts"), 1);
    free(result_of(k, form, dtype, "cuda", tf32, &n, why));
    unsetenv("FAKE_CUDA_COUNTS");
    if (*why) fail_msg("%s", why);
    FILE *f = fopen(test_path("counts"), "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f,
                            "kernels %zu gemms %*u captures %*d replays %*u beside %*u to_device %*u to_host %*u bytes "
                            "%*u follow %*u convs %zu",
                            &now.kernels, &now.convs),
                     2);
    fclose(f);
    const calls delta = {now.kernels - before.kernels, now.convs - before.convs};
    before = now;
    return delta;
}

static void they_are_those_of_the_cpu(void **state)
{
    (void)state;
    for (int launch = 0; launch < 2; launch++)
        for (size_t i = 0; i < sizeof convs / sizeof *convs; i++)
            for (int form = 0; form < FORMS; form++)
                for (int tf32 = 0; tf32 < 2; tf32++) {
                    if (!is_the_librarys(&convs[i], form, tf32) && !fake_is_real())
                        continue; /* the stand-in runs no kernels */
                    char why[2][512];
                    int64_t n;
                    double difference = 0, norm = 0;
                    fake_reset();
                    setenv("ANNEAL_CUDA_LAUNCH", launch ? "plain" : "graph", 1);
                    const an_dtype dtype = tf32 ? AN_F32 : AN_BF16;
                    float *got = result_of(&convs[i], form, dtype, "cuda", tf32, &n, why[0]),
                          *want = result_of(&convs[i], form, dtype, "cpu", false, &n, why[1]);
                    if (*why[0] || *why[1]) fail_msg("%s%s", why[0], why[1]);
                    for (int64_t e = 0; e < n; e++) {
                        const double d = (double)got[e] - (double)want[e];
                        difference += d * d, norm += (double)want[e] * (double)want[e];
                    }
                    free(got);
                    free(want);
                    if (!(sqrt(difference / norm) < (tf32 ? 2e-3 : 6e-3)))
                        fail_msg("convolution %zu, form %d, tf32 %d: relative difference %g", i, form, tf32,
                                 sqrt(difference / norm));
                    fake_clean();
                }
}

/* One call each, and no kernel: nothing is copied, cast or turned for it. */
static void each_is_one_call_of_the_library(void **state)
{
    (void)state;
    if (fake_is_real()) test_skip("a real driver answers: only the stand-in counts");
    fake_reset();
    calls_of(&convs[0], FORWARD, AN_BF16, false);
    for (size_t i = 0; i < sizeof convs / sizeof *convs; i++)
        for (int form = 0; form < FORMS; form++)
            for (int tf32 = 0; tf32 < 2; tf32++) {
                const calls c = calls_of(&convs[i], form, tf32 ? AN_F32 : AN_BF16, tf32);
                const bool library = is_the_librarys(&convs[i], form, tf32);
                if (c.convs != library || (c.kernels != 0) == library)
                    fail_msg("convolution %zu, form %d: %zu calls of the library, %zu kernels", i, form, c.convs,
                             c.kernels);
            }
    fake_clean();
}

/* Forward in float16, in float32, in exact mode, where it is refused, absent, does not start, or has no algorithm: our own kernels. */
static void without_it_our_own_kernels_run(void **state)
{
    (void)state;
    static const char *const settings[][2] = {{"ANNEAL_CUDNN", "0"},
                                              {"ANNEAL_EXACT", "1"},
                                              {"FAKE_CUDA_FAIL", "cudnnCreate:1+=1001"},
                                              {"FAKE_CUDA_FAIL", "cudnnSetStream:1+=2000"},
                                              {"FAKE_CUDA_FAIL", "cudnnBackendFinalize:1+=3000"},
                                              {"FAKE_CUDNN_NONE", "1"}};
    if (fake_is_real()) test_skip("a real driver answers: only the stand-in can be told what it has");
    calls_of(&convs[0], FORWARD, AN_BF16, false);
    const calls half = calls_of(&convs[0], FORWARD, AN_F16, false); /* the library loses -inf there */
    assert_int_equal(half.convs, 0);
    assert_int_not_equal(half.kernels, 0);
    for (int form = 0; form < FORMS; form++) {
        const calls plain = calls_of(&convs[0], form, AN_F32, false);
        assert_int_equal(plain.convs, 0);
        for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
            fake_reset();
            setenv(settings[i][0], settings[i][1], 1);
            const bool exact = !strcmp(settings[i][0], "ANNEAL_EXACT");
            const calls c = calls_of(&convs[0], form, exact ? AN_F32 : AN_BF16, false);
            unsetenv(settings[i][0]);
            if (c.convs || !c.kernels) fail_msg("%s=%s: %zu, %zu", settings[i][0], settings[i][1], c.convs, c.kernels);
        }
        fake_reset();
        fake_cudnn(false);
        const calls absent = calls_of(&convs[0], form, AN_BF16, false);
        fake_cudnn(true);
        assert_int_equal(absent.convs, 0);
        assert_int_not_equal(absent.kernels, 0);
    }
    fake_clean();
}

static void a_call_that_fails_is_a_sentence_that_says_how_to_go_on(void **state)
{
    (void)state;
    char why[512];
    int64_t n;
    if (fake_is_real()) test_skip("a real driver answers: only the stand-in can be told what it has");
    for (int form = 0; form < FORMS; form++) {
        fake_reset();
        setenv("FAKE_CUDA_FAIL", "cudnnBackendExecute:1+=5000", 1);
        free(result_of(&convs[0], form, AN_BF16, "cuda", false, &n, why));
        if (!strstr(why, "CUDNN_STATUS_EXECUTION_FAILED") || !strstr(why, "ANNEAL_CUDNN=0")) fail_msg("%s", why);
        fake_clean();
    }
}

/* An imported convolution in bf16 of two images with 3 channels, 20 x 20, by 8 windows of 7 x 7: its result, and how many channels the
 * library, or another, reads (*by_library). */
enum { IMAGE = 2 * 3 * 20 * 20, WINDOWS = 8 * 3 * 7 * 7, RESULT = 2 * 8 * 10 * 10 };
static int64_t channels_of(const char *device, float *result, bool *by_library)
{
#define SIZES(a, b, c, d) "[{'as_int':" #a "},{'as_int':" #b "},{'as_int':" #c "},{'as_int':" #d "}]"
#define META(name, sizes) "'" name "':{'dtype':7,'sizes':" sizes ",'strides':[]}"
#define ARG(name)         "{'as_tensor':{'name':'" name "'}}"
    static const char described[] =
        "{'model':{'schema_version':{'major':8,'minor':0},'verifiers':['TRAINING'],'graph_module':{'graph':{'nodes':["
        "{'target':'aten.conv2d.default','inputs':[{'name':'input','arg':" ARG("x") "},{'name':'weight','arg':" ARG(
            "w") "},{'name':'stride','arg':{'as_ints':[2,2]}},{'name':'padding','arg':{'as_ints':[3,3]}}],"
                 "'outputs':[" ARG("y") "],'metadata':{}}],'tensor_values':{" META("x", SIZES(2, 3, 20, 20)) "," META(
                     "w", SIZES(8, 3, 7,
                                7)) "," META("y",
                                             SIZES(2, 8, 10,
                                                   10)) "}},'signature':{'input_specs':["
                                                        "{'user_input':{'arg':" ARG("x") "}},{'user_input':{'arg':" ARG(
                                                            "w") "}}],"
                                                                 "'output_specs':[{'user_output':{'arg':" ARG(
                                                                     "y") "}}]}}},'weights':{'config':{}},'constants':{"
                                                                          "'config':{}}}";
    char graph[sizeof described];
    for (size_t i = 0; i < sizeof graph; i++) graph[i] = described[i] == '\'' ? '"' : described[i];
    static float x[IMAGE], w[WINDOWS];
    char why[AN_IMPORT_WHY];
    int64_t channels = 0;
    for (int i = 0; i < IMAGE; i++) x[i] = (float)(i * 7 % 15 - 7) / 8;
    for (int i = 0; i < WINDOWS; i++) w[i] = (float)(i * 11 % 13 - 6) / 8;
    an_import *file = an_import_open_description("graph", graph, strlen(graph), why);
    if (!file) fail_msg("%s", why);
    an_ctx *cx = an_open(&(an_options){.device = device, .recompute = "off", .cache_dir = test_path("cache")});
    an_set_policy(cx, (an_policy){.matmul = AN_BF16});
    an_import_model *m = an_import_bind(file, cx, why);
    if (!m) fail_msg("%s", why);
    an_tensor *in[2] = {an_input(cx, AN_F32, AN_SHAPE(2, 3, 20, 20), x), an_input(cx, AN_F32, AN_SHAPE(8, 3, 7, 7), w)},
              *out[1] = {NULL};
    if (an_import_build(m, AN_IMPORT_TRAIN, in, out, why) != AN_OK) fail_msg("%s", why);
    an_tensor *y = an_cast(out[0], AN_F32);
    if (an_eval(y) != AN_OK || an_read(y, result, RESULT * sizeof *result) != AN_OK) fail_msg("%s", an_error(cx));
    const an_plan *p = cx->last->plan;
    for (int32_t s = 0; s < p->n_steps; s++) {
        const an_kernel *k = &p->kernel[p->step[s].kernel];
        if (k->kind != AN_KERNEL_GEMM || !k->u.gemm.window.of) continue;
        channels = k->u.gemm.window.channels;
        *by_library = k->u.gemm.window.by_library;
    }
    an_import_release(m);
    an_close(cx);
    an_import_close(file);
    return channels;
}

/* The colours of an image are padded to the eight channels that tensor cores take; with a real driver the result is the CPU's. */
static void the_colours_of_an_imported_models_image_are_read_as_eight_channels(void **state)
{
    (void)state;
    static float gpu[RESULT], cpu[RESULT];
    bool by_library = false, by_cpu = false;
    double difference = 0, norm = 0;
    fake_reset();
    assert_int_equal(channels_of("cuda", gpu, &by_library), 8);
    assert_true(by_library);
    assert_int_equal(channels_of("cpu", cpu, &by_cpu), 3);
    assert_false(by_cpu);
    for (int i = 0; i < RESULT; i++) {
        const double d = (double)gpu[i] - (double)cpu[i];
        difference += d * d, norm += (double)cpu[i] * (double)cpu[i];
    }
    assert_true(norm > 0);
    if (fake_is_real() && !(sqrt(difference / norm) < 6e-3))
        fail_msg("relative difference %g", sqrt(difference / norm));
    fake_clean();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_colours_of_an_imported_models_image_are_read_as_eight_channels),
        cmocka_unit_test(they_are_those_of_the_cpu),
        cmocka_unit_test(each_is_one_call_of_the_library),
        cmocka_unit_test(without_it_our_own_kernels_run),
        cmocka_unit_test(a_call_that_fails_is_a_sentence_that_says_how_to_go_on),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
