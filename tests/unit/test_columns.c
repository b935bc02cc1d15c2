/* test_columns.c: compiled windows of one sum a column (codegen/render_c_columns.c), which keep it in vectors, against the interpreter: the same bits of
 * depthwise convolutions, max and average pooling and their gradients for windows drawn at random, over numbers with NaN, infinities and -0. */
#include <anneal.h>

#include "lib/test.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CASES = 12, MOST = 1 << 16, RESULTS = 3 };

typedef struct draw {
    uint32_t at;
} draw;

static int below(draw *d, int n)
{
    d->at = d->at * 1664525u + 1013904223u;
    return (int)((d->at >> 8) % (uint32_t)n);
}

typedef struct shape {
    int n, h, w, c, kind; /* 0: depthwise convolution, 1: max pooling, 2: average pooling */
    an_dtype dtype;
    bool planes; /* images and results are [n,c,y,x] */
    an_window window;
} shape;

static shape shape_of(uint32_t seed)
{
    static const int channels[] = {1, 3, 8, 12, 24, 32, 33, 40, 64, 72, 100, 130};
    draw d = {seed * 2654435761u};
    shape s = {.n = 1 + below(&d, 2),
               .h = 1 + below(&d, 13),
               .w = 1 + below(&d, 13),
               .c = channels[below(&d, 12)],
               .kind = below(&d, 3)};
    s.dtype = below(&d, 4) ? AN_F32 : AN_BF16;
    int kernel[2], pad[2], stride[2], apart[2];
    for (int i = 0; i < 2; i++) {
        kernel[i] = 1 + below(&d, 7);
        apart[i] = 1 + below(&d, 2);
        stride[i] = 1 + below(&d, 3);
        pad[i] = below(&d, kernel[i] / 2 + 1);
        const int reach = (kernel[i] - 1) * apart[i] + 1 - 2 * pad[i];
        int *extent = i ? &s.w : &s.h;
        if (*extent < reach) *extent = reach;
    }
    s.window = (an_window){.kernel_h = kernel[0],
                           .kernel_w = kernel[1],
                           .stride_h = stride[0],
                           .stride_w = stride[1],
                           .pad_h = pad[0],
                           .pad_w = pad[1],
                           .dilation_h = apart[0],
                           .dilation_w = apart[1],
                           .groups = s.kind ? 0 : s.c};
    return s;
}

static float special(draw *d)
{
    const int kind = below(d, 60);
    return kind == 0 ? NAN : kind == 1 ? -0.0f : kind == 2 ? INFINITY : 0.37f * (float)(below(d, 41) - 20);
}

static an_tensor *numbers(an_ctx *cx, const char *name, an_shape shape, an_dtype dtype, uint32_t seed)
{
    static float x[MOST];
    draw d = {seed};
    int64_t n = 1;
    for (int i = 0; i < shape.rank; i++) n *= shape.dim[i];
    assert_true(n <= MOST);
    for (int64_t i = 0; i < n; i++) x[i] = special(&d);
    an_tensor *p = an_param(cx, name, AN_F32, shape, AN_ZEROS);
    return an_cast(an_add(p, an_input(cx, AN_F32, shape, x)), dtype);
}

static int rows_together;              /* in the kernels of the last run that compiled */
static bool takes_planes, puts_planes; /* whether they did (codegen/planes.h) */

/* The result, and its gradients by x and by the weights; `cc` NULL compiles. */
static void run(const shape *s, const char *cc, int threads, float out[RESULTS][MOST], int64_t count[RESULTS],
                bool *vectors)
{
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .seed = 1, .threads = threads, .cc = cc});
    assert_non_null(cx);
    const an_shape of_x = s->planes ? AN_SHAPE(s->n, s->c, s->h, s->w) : AN_SHAPE(s->n, s->h, s->w, s->c);
    an_tensor *given = numbers(cx, "x", of_x, s->dtype, 7), *w = NULL, *y;
    an_tensor *x = s->planes ? an_permute(given, AN_SHAPE(0, 2, 3, 1)) : given;
    if (s->kind == 0) {
        w = numbers(cx, "w", AN_SHAPE(s->c, s->window.kernel_h, s->window.kernel_w, 1), s->dtype, 8);
        y = an_conv2d(x, w, NULL, s->window);
    } else {
        y = s->kind == 1 ? an_max_pool(x, s->window) : an_avg_pool(x, s->window);
    }
    if (s->planes) y = an_permute(y, AN_SHAPE(0, 3, 1, 2));
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    an_tensor *g = numbers(cx, "g", an_shape_of(y), s->dtype, 9);
    const bool forward = s->planes && s->kind == 1; /* the gradient of a maximum wants a copy, which both would read */
    if (!forward) an_backward(an_sum(an_cast(an_mul(y, g), AN_F32), AN_ALL));
    an_tensor *roots[RESULTS] = {an_cast(y, AN_F32), forward ? NULL : an_grad(given), w ? an_grad(w) : NULL};
    const int n = forward ? 1 : w ? 3 : 2;
    for (int i = 1; i < n; i++) roots[i] = an_cast(roots[i], AN_F32);
    if (an_eval_at(AN_AT, roots, n) != AN_OK) fail_msg("%s", an_error(cx));
    an_bill bill;
    assert_int_equal(an_report(cx, &bill), AN_OK);
    if (!cc && bill.compiled + bill.cached == 0) fail_msg("the kernels did not compile, and were interpreted");
    const char *groups = strstr(an_report_text(cx, "kernels"), "lane[i][j]"), *lane = groups;
    for (; lane && strncmp(lane, "an_v8 lane[", 11); lane--) continue;
    rows_together = lane ? atoi(lane + 11) : 0;
    takes_planes = strstr(an_report_text(cx, "kernels"), "an_take_planes") != NULL;
    puts_planes = strstr(an_report_text(cx, "kernels"), "an_put_planes") != NULL;
    *vectors = strstr(an_report_text(cx, "kernels"), "an_v8 lane") != NULL;
    for (int i = 0; i < RESULTS; i++) {
        count[i] = 0;
        if (i >= n) continue;
        const an_shape of = an_shape_of(roots[i]);
        count[i] = 1;
        for (int k = 0; k < of.rank; k++) count[i] *= of.dim[k];
        assert_int_equal(an_read(roots[i], out[i], (size_t)count[i] * sizeof(float)), AN_OK);
    }
    an_close(cx);
}

/* Compares results and gradients with the interpreter's; returns whether sums were kept in vectors. */
static bool compare(const shape *s, int i)
{
    static float want[RESULTS][MOST], got[RESULTS][MOST];
    int64_t n[RESULTS], m[RESULTS];
    bool vectors;
    run(s, "none", 1, want, n, &vectors);
    run(s, NULL, 1 + i % 3, got, m, &vectors);
    for (int k = 0; k < RESULTS; k++)
        for (int64_t e = 0; e < n[k]; e++)
            if (memcmp(&want[k][e], &got[k][e], sizeof(float)) && !(isnan(want[k][e]) && isnan(got[k][e])))
                fail_msg("case %d, kind %d, [%d,%d,%d,%d], kernel %dx%d: result %d, element %d is %.9g, the "
                         "interpreter says %.9g",
                         i, s->kind, s->n, s->h, s->w, s->c, s->window.kernel_h, s->window.kernel_w, k, (int)e,
                         (double)got[k][e], (double)want[k][e]);
    return vectors;
}

static void windows_in_vectors_have_the_bits_of_the_interpreter(void **unused)
{
    (void)unused;
    int in_vectors = 0;
    for (uint32_t i = 0; i < CASES; i++) {
        const shape s = shape_of(i);
        const bool vectors = compare(&s, (int)i);
        in_vectors += vectors;
        if (vectors != (s.c >= 8 && (s.dtype == AN_F32 || s.kind != 1)))
            fail_msg("case %d of %d channels: vectors: %d", (int)i, s.c, vectors);
    }
    assert_true(in_vectors > CASES / 2);
}

/* The gradient of a depthwise convolution's weights: taps are rows that share dy (codegen/rows_together.h). */
static void rows_summed_together_have_the_bits_of_the_interpreter(void **unused)
{
    (void)unused;
    for (int i = 0; i < 4; i++) {
        const int kernel = i == 1 ? 5 : 3, apart = i == 2 ? 2 : 1, stride = i == 3 ? 2 : 1;
        const shape s = {.n = 1 + i % 2,
                         .h = 11 * stride,
                         .w = 9 * stride,
                         .c = (int[]){24, 40, 16, 72}[i],
                         .dtype = i == 2 ? AN_BF16 : AN_F32,
                         .window = {.kernel_h = kernel,
                                    .kernel_w = kernel,
                                    .stride_h = stride,
                                    .stride_w = stride,
                                    .pad_h = apart * (kernel / 2),
                                    .pad_w = apart * (kernel / 2),
                                    .dilation_h = apart,
                                    .dilation_w = apart,
                                    .groups = (int[]){24, 40, 16, 72}[i]}};
        rows_together = 0;
        compare(&s, i);
        if (rows_together != (kernel == 3 ? 9 : 5)) fail_msg("case %d: %d rows were summed together", i, rows_together);
    }
}

/* Images as PyTorch has them are read, and results written, without a copy of the whole (codegen/planes.h). */
static void images_in_planes_have_the_bits_of_the_interpreter(void **unused)
{
    (void)unused;
    static const struct {
        int kind, n, h, w, c, kernel, stride, pad, apart;
    } cases[] = {{0, 2, 11, 9, 24, 3, 1, 1, 1},  {0, 1, 8, 16, 64, 3, 2, 1, 1}, {0, 3, 7, 7, 8, 5, 1, 2, 1},
                 {0, 1, 9, 9, 40, 3, 1, 2, 2},   {0, 2, 5, 6, 32, 2, 1, 0, 1},  {0, 1, 16, 16, 16, 7, 1, 3, 1},
                 {1, 2, 12, 12, 24, 3, 2, 1, 1}, {2, 2, 9, 12, 72, 3, 1, 1, 1}, {0, 2, 9, 12, 16, 3, 3, 1, 1}};
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        const shape s = {.n = cases[i].n,
                         .h = cases[i].h,
                         .w = cases[i].w,
                         .c = cases[i].c,
                         .kind = cases[i].kind,
                         .dtype = AN_F32,
                         .planes = true,
                         .window = {.kernel_h = cases[i].kernel,
                                    .kernel_w = cases[i].kernel,
                                    .stride_h = cases[i].stride,
                                    .stride_w = cases[i].stride,
                                    .pad_h = cases[i].pad,
                                    .pad_w = cases[i].pad,
                                    .dilation_h = cases[i].apart,
                                    .dilation_w = cases[i].apart,
                                    .groups = cases[i].kind ? 0 : cases[i].c}};
        compare(&s, i);
        if (!takes_planes || !puts_planes)
            fail_msg("case %d: planes are read: %d, written: %d", i, takes_planes, puts_planes);
    }
}

typedef struct small_run {
    const shape *s;
    float (*out)[MOST];
    int64_t count[RESULTS];
    bool vectors;
} small_run;

static void *run_on_small_stack(void *user)
{
    small_run *r = user;
    run(r->s, NULL, 1, r->out, r->count, &r->vectors);
    return NULL;
}

/* A thread of the caller's may have as little as macOS gives it, 512 KiB, or less: the buffers of 8 channels of an image here, and the tests of its
 * windows, are 330 KiB. */
static void planes_need_little_of_the_callers_stack(void **unused)
{
    (void)unused;
    static float want[RESULTS][MOST], got[RESULTS][MOST];
    const shape s = {.n = 1,
                     .h = 54,
                     .w = 54,
                     .c = 8,
                     .dtype = AN_F32,
                     .planes = true,
                     .window = {.kernel_h = 7, .kernel_w = 7, .pad_h = 3, .pad_w = 3, .groups = 8}};
    small_run r = {.s = &s, .out = got};
    int64_t count[RESULTS];
    pthread_t thread;
    pthread_attr_t attr;
    run(&s, NULL, 2, want, count, &r.vectors);
    assert_true(takes_planes && puts_planes);
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstacksize(&attr, 256 << 10), 0);
    assert_int_equal(pthread_create(&thread, &attr, run_on_small_stack, &r), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attr);
    for (int i = 0; i < RESULTS; i++) {
        assert_int_equal(r.count[i], count[i]);
        assert_memory_equal(got[i], want[i], (size_t)count[i] * sizeof(float));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planes_need_little_of_the_callers_stack),
        cmocka_unit_test(windows_in_vectors_have_the_bits_of_the_interpreter),
        cmocka_unit_test(rows_summed_together_have_the_bits_of_the_interpreter),
        cmocka_unit_test(images_in_planes_have_the_bits_of_the_interpreter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
