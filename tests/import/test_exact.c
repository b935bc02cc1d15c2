/* test_exact.c: a graph of PyTorch in exact mode: 1x1 convolutions of images [N,C,H,W], which are products of the weight with each image's planes,
 * have one hash of results and gradients for instruction sets, threads, compiler and fusion, and the results are one chain of fmaf a pixel in
 * ascending channels. The archive is tools/pt2_goldens.py's (--planes): 3 channels to 20, ReLU, to 7. */
#include "base/base.h"
#include "lib/test.h"

#include "kernels/cpu_kernels.h"

#include <anneal_import.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N = 2, C = 3, MID = 20, O = 7, PIXELS = 35, X = N * C * PIXELS, Y = N * O * PIXELS, WEIGHTS = 3 };

static const int64_t SIZE[WEIGHTS] = {MID * C, MID, O *MID}; /* of the parameters, in the file's order */

typedef struct outcome {
    float weight[WEIGHTS][O * MID], y[Y], dx[X], dw[WEIGHTS][O * MID];
} outcome;

static float image_at(int i)
{
    return (float)((i * 37) % 101 - 50) / 23.0f;
}

static void read_all(an_ctx *cx, an_tensor *t, float *out, int64_t n)
{
    assert_non_null(t);
    if (an_read_at(AN_AT, t, out, (size_t)n * sizeof *out) != AN_OK) fail_msg("%s", an_error(cx));
}

static void run(const an_options *o, outcome *out)
{
    static float x[X], ct[Y];
    for (int i = 0; i < X; i++) x[i] = image_at(i);
    for (int i = 0; i < Y; i++) ct[i] = image_at(i + 5);
    char why[AN_IMPORT_WHY] = "";
    memset(out, 0, sizeof *out);
    an_ctx *cx = an_open(o);
    assert_non_null(cx);
    an_import *file = an_import_open("tests/import/exact/planes.pt2", why);
    if (!file) fail_msg("%s", why);
    an_import_model *m = an_import_bind(file, cx, why);
    if (!m) fail_msg("%s", why);
    an_tensor *in = an_input_at(AN_AT, cx, AN_F32, AN_SHAPE(N, C, 5, 7), x), *y, *w[WEIGHTS];
    if (an_import_build(m, AN_IMPORT_TRAIN, &in, &y, why) != AN_OK) fail_msg("%s", why);
    an_backward_at(
        AN_AT,
        an_sum_at(AN_AT, an_mul_at(AN_AT, y, an_input_at(AN_AT, cx, AN_F32, AN_SHAPE(N, O, 5, 7), ct)), AN_ALL, false));
    an_tensor *roots[2 + 2 * WEIGHTS] = {y, an_grad(in)};
    for (int i = 0; i < WEIGHTS; i++) {
        an_import_entry e;
        assert_true(an_import_get(file, AN_IMPORT_PARAMETER, i, &e));
        w[i] = an_param_at(AN_AT, cx, e.name, e.dtype, e.shape, AN_ZEROS);
        roots[2 + i] = an_grad(w[i]);
        roots[2 + WEIGHTS + i] = w[i];
    }
    if (an_eval_at(AN_AT, roots, 2 + 2 * WEIGHTS) != AN_OK) fail_msg("%s", an_error(cx));
    read_all(cx, roots[0], out->y, Y);
    read_all(cx, roots[1], out->dx, X);
    for (int i = 0; i < WEIGHTS; i++) {
        read_all(cx, w[i], out->weight[i], SIZE[i]);
        read_all(cx, roots[2 + i], out->dw[i], SIZE[i]);
    }
    an_import_release(m);
    an_import_close(file);
    an_close(cx);
}

static an_options exact(void)
{
    return (an_options){.device = "cpu", .threads = 1, .cache_dir = test_path("cache"), .exact = true};
}

static void planes_have_one_hash_for_instruction_sets_threads_compiler_and_fusion(void **state)
{
    (void)state;
    static outcome want, got;
    an_options o = exact();
    run(&o, &want);
    int n, ran = 0;
    const an_cpu_kernels *const *sets = an_cpu_kernels_all(&n);
    for (int i = 0; i < n; i++) {
        if (!an_cpu_kernels_find(sets[i]->isa)) continue; /* this processor cannot run it */
        o = exact();
        o.isa = sets[i]->isa;
        o.threads = 1 + i % 2;
        run(&o, &got);
        if (memcmp(&got, &want, sizeof got) != 0) fail_msg("%s gives other bits", o.isa);
        ran++;
    }
    assert_true(ran >= 1);
    o = exact();
    o.cc = "none";
    run(&o, &got);
    if (memcmp(&got, &want, sizeof got) != 0) fail_msg("the interpreter gives other bits");
    o.unfused = true;
    o.threads = 2;
    run(&o, &got);
    if (memcmp(&got, &want, sizeof got) != 0) fail_msg("one kernel an operation gives other bits");
}

static void results_are_chains_in_ascending_channels(void **state)
{
    (void)state;
    static outcome got;
    const an_options o = exact();
    run(&o, &got);
    double gradient = 0;
    for (int image = 0; image < N; image++)
        for (int p = 0; p < PIXELS; p++) {
            float mid[MID];
            for (int j = 0; j < MID; j++) {
                float sum = 0;
                for (int c = 0; c < C; c++)
                    sum = fmaf(got.weight[0][j * C + c], image_at((image * C + c) * PIXELS + p), sum);
                mid[j] = fmaxf(sum + got.weight[1][j], 0);
            }
            for (int j = 0; j < O; j++) {
                float sum = 0;
                for (int c = 0; c < MID; c++) sum = fmaf(got.weight[2][j * MID + c], mid[c], sum);
                const float y = got.y[(image * O + j) * PIXELS + p];
                if (memcmp(&y, &sum, sizeof y) != 0)
                    fail_msg("image %d, channel %d, pixel %d: %.9g, not %.9g", image, j, p, (double)y, (double)sum);
            }
            gradient += (double)image_at((image * O) * PIXELS + p + 5) * (double)mid[0]; /* of weight 0 of the second */
        }
    assert_true(fabs((double)got.dw[2][0] - gradient) <= 1e-5 * fmax(1, fabs(gradient)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planes_have_one_hash_for_instruction_sets_threads_compiler_and_fusion),
        cmocka_unit_test(results_are_chains_in_ascending_channels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
