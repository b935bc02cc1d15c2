/* test_ops.c: single operations and their gradients against PyTorch, on the oracle and on the CPU. PyTorch's images are
 * NCHW and its filters OIHW, ours NHWC and OHWI: the permutations are part of what is tested. */
#include <anneal.h>

#include "lib/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_INPUTS = 4 };

typedef struct scene {
    an_ctx *cx;
    test_golden golden;
    const char *device, *op;
    an_tensor *input[MAX_INPUTS];
    const char *input_name[MAX_INPUTS];
    int n_inputs;
} scene;

static void check(const scene *s)
{
    if (an_error(s->cx)) fail_msg("%s on %s: %s", s->op, s->device, an_error(s->cx));
}

static const an_st_tensor *find(const scene *s, const char *part)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", s->op, part);
    const an_st_tensor *t = an_st_find(s->golden.file, name);
    if (!t) fail_msg("ops has no tensor %s", name);
    return t;
}

static an_shape shape_of(const an_st_tensor *t)
{
    an_shape shape = {.rank = t->rank};
    for (int i = 0; i < t->rank; i++) shape.dim[i] = t->shape[i];
    return shape;
}

/* A floating-point input: a parameter, so that it has a gradient. */
static an_tensor *in(scene *s, const char *name)
{
    const an_st_tensor *t = find(s, name);
    an_tensor *p = an_param(s->cx, t->name, AN_F32, shape_of(t), AN_ZEROS);
    check(s);
    assert_int_equal(an_persist_write(s->cx, an_persist_find(s->cx, t->name), t->data, t->bytes), AN_OK);
    s->input[s->n_inputs] = p, s->input_name[s->n_inputs++] = name;
    return p;
}

static an_tensor *ids(scene *s, const char *name)
{
    const an_st_tensor *t = find(s, name);
    return an_input(s->cx, AN_I32, shape_of(t), t->data);
}

static an_tensor *nhwc(an_tensor *a)
{
    return an_permute(a, AN_SHAPE(0, 2, 3, 1));
}
static an_tensor *nchw(an_tensor *a)
{
    return an_permute(a, AN_SHAPE(0, 3, 1, 2));
}

static an_tensor *conv2d(scene *s)
{
    an_window w = {.stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1};
    return nchw(an_conv2d(nhwc(in(s, "x")), nhwc(in(s, "w")), in(s, "b"), w));
}
static an_tensor *conv2d_dilated(scene *s)
{
    an_window w = {.pad_h = 2, .pad_w = 2, .dilation_h = 2, .dilation_w = 2, .groups = 3};
    return nchw(an_conv2d(nhwc(in(s, "x")), nhwc(in(s, "w")), NULL, w));
}
/* [N,C,L] as an image of height 1 */
static an_tensor *conv1d(scene *s)
{
    an_tensor *x = an_reshape(an_permute(in(s, "x"), AN_SHAPE(0, 2, 1)), AN_SHAPE(2, 1, 17, 3)); /* [N,1,L,C] */
    an_tensor *w = an_reshape(an_permute(in(s, "w"), AN_SHAPE(0, 2, 1)), AN_SHAPE(5, 1, 5, 3));  /* [O,1,K,C] */
    an_tensor *y = an_conv2d(x, w, NULL, (an_window){.stride_w = 3, .pad_w = 2});                /* [N,1,6,O] */
    return an_permute(an_reshape(y, AN_SHAPE(2, -1, 5)), AN_SHAPE(0, 2, 1));
}
static an_tensor *max_pool2d(scene *s)
{
    an_window w = {.kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1};
    return nchw(an_max_pool(nhwc(in(s, "x")), w));
}
static an_tensor *avg_pool2d(scene *s)
{
    an_window w = {.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2};
    return nchw(an_avg_pool(nhwc(in(s, "x")), w));
}
static an_tensor *batch_norm(scene *s)
{
    an_tensor *mean = an_state(s->cx, "mean", AN_F32, AN_SHAPE(3), AN_ZEROS);
    an_tensor *var = an_state(s->cx, "var", AN_F32, AN_SHAPE(3), AN_ONES);
    return nchw(an_batch_norm(nhwc(in(s, "x")), in(s, "w"), in(s, "b"), mean, var, 0.1, 1e-5, true));
}
static an_tensor *layer_norm(scene *s)
{
    return an_layer_norm(in(s, "x"), in(s, "w"), in(s, "b"), 1e-5);
}
static an_tensor *rms_norm(scene *s)
{
    return an_rms_norm(in(s, "x"), in(s, "w"), 1e-5);
}
static an_tensor *softmax(scene *s)
{
    return an_softmax(in(s, "x"), -1);
}
static an_tensor *log_softmax(scene *s)
{
    return an_log_softmax(in(s, "x"), 0);
}
static an_tensor *gelu(scene *s)
{
    return an_gelu(in(s, "x"));
}
static an_tensor *gelu_tanh(scene *s)
{
    return an_gelu_tanh(in(s, "x"));
}
static an_tensor *silu(scene *s)
{
    return an_silu(in(s, "x"));
}
static an_tensor *cross_entropy(scene *s)
{
    return an_cross_entropy(in(s, "x"), ids(s, "target"));
}
static an_tensor *embedding(scene *s)
{
    return an_gather(in(s, "w"), ids(s, "index"));
}

/* Within `tolerance` of the golden, relative to its largest element. */
static void compare(scene *s, const char *part, an_tensor *t, double tolerance)
{
    size_t n;
    double *want = test_golden_read(&s->golden, find(s, part)->name, &n), largest = 0;
    for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs(want[i]));
    float *got = malloc(n * sizeof *got);
    assert_non_null(got);
    an_read(t, got, n * sizeof *got);
    check(s);
    char what[96];
    snprintf(what, sizeof what, "%s.%s on %s", s->op, part, s->device);
    test_close(what, got, want, n, 0, tolerance * largest);
    free(got), free(want);
}

static void compare_op(const char *device, const char *op, an_tensor *(*build)(scene *s))
{
    scene s = {.device = device, .op = op, .golden = test_golden_open("ops")};
    s.cx = an_open(&(an_options){.device = device, .seed = 1, .verify = true});
    assert_non_null(s.cx);
    an_tensor *y = build(&s);
    const an_st_tensor *upstream = find(&s, "upstream");
    an_tensor *up = an_input(s.cx, AN_F32, shape_of(upstream), upstream->data);
    an_backward(an_sum(an_mul(y, up), AN_ALL));
    an_tensor *roots[1 + MAX_INPUTS] = {y};
    for (int i = 0; i < s.n_inputs; i++) {
        roots[1 + i] = an_grad(s.input[i]);
        if (!roots[1 + i]) fail_msg("%s: no gradient of %s", op, s.input_name[i]);
    }
    check(&s);
    an_eval_at(AN_AT, roots, 1 + s.n_inputs);
    check(&s);
    compare(&s, "result", y, 2e-6);
    for (int i = 0; i < s.n_inputs; i++) {
        char part[32];
        snprintf(part, sizeof part, "grad.%s", s.input_name[i]);
        compare(&s, part, roots[1 + i], 4e-6);
    }
    an_close(s.cx);
    test_golden_close(&s.golden);
}

/* clang-format off */
#define OPS(X) \
    X(conv2d) X(conv2d_dilated) X(conv1d) X(max_pool2d) X(avg_pool2d) X(batch_norm) X(layer_norm) X(rms_norm) \
    X(softmax) X(log_softmax) X(gelu) X(gelu_tanh) X(silu) X(cross_entropy) X(embedding)
/* clang-format on */

/* The device is the test's state. */
#define OP_TEST(op)                                                                                                    \
    static void test_##op(void **device)                                                                               \
    {                                                                                                                  \
        compare_op(*device, #op, op);                                                                                  \
    }
OPS(OP_TEST)

int main(void)
{
    static char ref[] = "ref", device[32] = "cpu"; /* AN_LAB_DEVICE: another one */
    if (getenv("AN_LAB_DEVICE")) snprintf(device, sizeof device, "%s", getenv("AN_LAB_DEVICE"));
    const struct CMUnitTest tests[] = {
#define OP_ROWS(op)                                                                                                    \
    {#op "_and_its_gradient_on_ref_are_pytorchs", test_##op, NULL, NULL, ref},                                         \
        {#op "_and_its_gradient_on_the_device_are_pytorchs", test_##op, NULL, NULL, device},
        OPS(OP_ROWS)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
