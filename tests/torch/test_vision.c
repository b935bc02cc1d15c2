/* test_vision.c: the classifier of texts and the models of images against PyTorch: three updates of SGD from the same
 * parameters, their losses, every parameter and running statistic behind them, and probabilities in evaluation.
 *
 * The goldens are float64 (tools/goldens_vision.py). float32 is allowed 1e-4 of a tensor's largest element. */
#include <anneal.h>

#include "lib/test.h"
#include "models/model.h"
#include "train/config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, MOST = 1 << 16 };

typedef struct scene {
    const char *device;
    test_golden golden;
    an_train_config c;
    an_ctx *cx;
    void *model;
    an_array in[AN_MAX_ARRAYS];
    const char *x, *y; /* [STEPS+1] batches */
} scene;

static void set(scene *s, const char *setting)
{
    an_err err = {0};
    const an_config keys = an_train_keys(&s->c);
    if (an_config_argument(&err, &keys, &s->c, setting) != AN_OK) fail_msg("%s", err.text);
}

static scene *scene_open(const char *device, const char *golden, const char *model, const char *const *settings)
{
    scene *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->device = device;
    s->golden = test_golden_open(golden);
    assert_int_equal(an_train_config_defaults(NULL, an_model_find(model), NULL, &s->c), AN_OK);
    for (; *settings; settings++) set(s, *settings);
    s->cx = an_open(&(an_options){.device = device, .seed = 1, .verify = true});
    s->model = s->c.model->open(s->cx, an_model_settings(&s->c));
    assert_int_equal(s->c.model->inputs(an_model_settings(&s->c), 5, s->in), 2);
    s->x = an_st_find(s->golden.file, "x")->data;
    s->y = an_st_find(s->golden.file, "y")->data;
    int loaded = 0;
    for (size_t i = 0; i < an_st_count(s->golden.file); i++) {
        const an_st_tensor *w = an_st_tensor_at(s->golden.file, i);
        if (strncmp(w->name, "before.", 7) != 0) continue;
        const int at = an_persist_find(s->cx, w->name + 7);
        if (at < 0) fail_msg("%s has no tensor %s", model, w->name + 7);
        assert_int_equal(an_persist_write(s->cx, at, w->data, w->bytes), AN_OK);
        loaded++;
    }
    assert_int_equal(loaded, an_persist_count(s->cx));
    return s;
}

static void scene_close(scene *s)
{
    s->c.model->close(s->model);
    an_close(s->cx);
    test_golden_close(&s->golden);
    free(s);
}

static void batch(scene *s, int step, an_tensor *out[2])
{
    const char *const data[] = {s->x, s->y};
    for (int i = 0; i < 2; i++)
        out[i] = an_input(s->cx, s->in[i].dtype, s->in[i].shape, data[i] + (size_t)step * an_array_bytes(&s->in[i]));
}

static double largest(const double *x, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) most = fmax(most, fabs(x[i]));
    return most;
}

static void compare(const scene *s, const char *what, const float *got, size_t got_n, const char *name)
{
    size_t n;
    double *want = test_golden_read(&s->golden, name, &n);
    assert_int_equal(n, got_n);
    test_close(what, got, want, n, 0, 1e-4 * fmax(largest(want, n), 1e-3));
    free(want);
}

static void compare_state(const scene *s)
{
    static float value[MOST];
    for (int i = 0; i < an_persist_count(s->cx); i++) {
        char name[160];
        an_persist p;
        size_t n = 1;
        assert_int_equal(an_persist_get(s->cx, i, &p), AN_OK);
        for (int axis = 0; axis < p.shape.rank; axis++) n *= (size_t)p.shape.dim[axis];
        assert_true(n <= MOST);
        assert_int_equal(an_persist_read(s->cx, i, value, n * sizeof *value), AN_OK);
        snprintf(name, sizeof name, "after.%s", p.name);
        compare(s, p.name, value, n, name);
    }
}

static void run(const char *golden, const char *model, const char *const *settings)
{
    static const char *const devices[] = {"ref", "cpu"};
    for (size_t d = 0; d < 2; d++) {
        scene *s = scene_open(devices[d], golden, model, settings);
        float loss[STEPS], p[5 * 16];
        an_tensor *in[2];
        for (int step = 0; step < STEPS; step++) {
            batch(s, step, in);
            const an_losses l = s->c.model->losses(s->model, in, true);
            an_backward(l.loss);
            an_tensor *norm = an_sgd(s->cx, test_golden_number(&s->golden, "lr"));
            if (an_eval(l.loss, norm) != AN_OK) fail_msg("%s", an_error(s->cx));
            loss[step] = (float)an_item(l.loss);
            an_reset(s->cx);
        }
        compare(s, "losses", loss, STEPS, "losses");
        compare_state(s);
        batch(s, STEPS, in);
        an_tensor *probabilities = s->c.model->predict(s->model, in[0]);
        if (an_eval(probabilities) != AN_OK) fail_msg("%s", an_error(s->cx));
        const size_t n = (size_t)(5 * an_shape_of(probabilities).dim[1]);
        assert_int_equal(an_read(probabilities, p, n * sizeof *p), AN_OK);
        compare(s, "probabilities", p, n, "probabilities");
        scene_close(s);
    }
}

#define IMAGES "height=12", "width=8", "channels=1", "classes=6", "mean=0.3", "std=0.25"

static void the_classifier_of_texts_is_pytorchs(void **state)
{
    (void)state;
    run("vision_classifier", "classifier",
        (const char *const[]){"vocabulary=20", "classes=3", "length=7", "width=12", NULL});
}

static void the_cnn_is_pytorchs(void **state)
{
    (void)state;
    run("vision_cnn", "cnn", (const char *const[]){IMAGES, "filters=4", "hidden=10", NULL});
}

static void the_depthwise_cnn_is_pytorchs(void **state)
{
    (void)state;
    run("vision_cnn_depthwise", "cnn", (const char *const[]){IMAGES, "filters=4", "hidden=10", "depthwise=true", NULL});
}

static void the_resnet_is_pytorchs_with_its_running_statistics(void **state)
{
    (void)state;
    run("vision_resnet", "resnet", (const char *const[]){IMAGES, "filters=4", NULL});
}

static void the_vision_transformer_is_pytorchs_with_label_smoothing(void **state)
{
    (void)state;
    run("vision_vit", "vit",
        (const char *const[]){IMAGES, "patch=4", "dim=24", "depth=2", "heads=3", "label_smoothing=0.1", NULL});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_classifier_of_texts_is_pytorchs),
        cmocka_unit_test(the_cnn_is_pytorchs),
        cmocka_unit_test(the_depthwise_cnn_is_pytorchs),
        cmocka_unit_test(the_resnet_is_pytorchs_with_its_running_statistics),
        cmocka_unit_test(the_vision_transformer_is_pytorchs_with_label_smoothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
