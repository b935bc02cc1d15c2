/* test_trm.c: the recursive model against PyTorch: logits, losses, every gradient and five updates with slots that halt, by
 * Adam-atan2, averages and the puzzle table's sign descent.
 *
 * In float64 everything agrees to 1e-9. In float32 the mixer is chaotic from random weights (PyTorch's own float32 differs
 * from its float64 by 6e-5 in gradients after one step), so its updates are compared at 2 cycles of 2, where float32 follows;
 * attention is compared in full. */
#include <anneal.h>

#include "lib/test.h"
#include "models/trm/act.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 5 };

typedef struct scene {
    const char *device;
    an_dtype dtype;
    test_golden golden;
    an_ctx *cx;
    an_act act;
    int64_t B, S, V;
    double *x, *y, *ids; /* [STEPS,B,S], [STEPS,B] */
} scene;

static double number(const scene *s, const char *key)
{
    return test_golden_number(&s->golden, key);
}

static int64_t whole(const scene *s, const char *key)
{
    return (int64_t)number(s, key);
}

static void check(const scene *s)
{
    if (an_error(s->cx)) fail_msg("%s on %s: %s", s->golden.name, s->device, an_error(s->cx));
}

static void load(scene *s)
{
    for (int i = 0; i < an_persist_count(s->cx); i++) {
        an_persist p;
        size_t n;
        assert_int_equal(an_persist_get(s->cx, i, &p), AN_OK);
        double *v = test_golden_read(&s->golden, p.name, &n);
        if (s->dtype == AN_F32) {
            float *narrow = (float *)v; /* in place: never ahead of what is read */
            for (size_t k = 0; k < n; k++) {
                const float f = (float)v[k];
                memcpy(narrow + k, &f, sizeof f);
            }
        }
        assert_int_equal(an_persist_write(s->cx, i, v, n * an_dtype_size(s->dtype)), AN_OK);
        free(v);
    }
}

static scene scene_open(const char *name, const char *device, an_dtype dtype, int64_t H, int64_t L)
{
    scene s = {.device = device, .dtype = dtype, .golden = test_golden_open(name)};
    size_t n;
    s.B = whole(&s, "B"), s.S = whole(&s, "S"), s.V = whole(&s, "V");
    s.x = test_golden_read(&s.golden, "x", &n), s.y = test_golden_read(&s.golden, "y", &n);
    s.ids = test_golden_read(&s.golden, "ids", &n);
    const an_trm_config c = {.vocab = s.V,
                             .seq = s.S,
                             .puzzles = whole(&s, "ids"),
                             .width = whole(&s, "D"),
                             .heads = whole(&s, "heads"),
                             .layers = whole(&s, "layers"),
                             .expansion = 4,
                             .H_cycles = H > 0 ? H : whole(&s, "H"),
                             .L_cycles = L > 0 ? L : whole(&s, "L"),
                             .puzzle_width = whole(&s, "D"),
                             .puzzle_length = whole(&s, "P"),
                             .norm_eps = 1e-5,
                             .rope_theta = 10000,
                             .positions = number(&s, "mlp_t") != 0 ? AN_TRM_NO_POSITIONS : AN_TRM_ROPE,
                             .mlp_t = number(&s, "mlp_t") != 0,
                             .steps = whole(&s, "halt"),
                             .dtype = dtype};
    s.cx = an_open(&(an_options){.device = device, .seed = 1, .cc = "none"}); /* the same bits, without a compiler */
    assert_non_null(s.cx);
    s.act = (an_act){.m = an_trm_open(s.cx, &c), .micros = 1, .lr_share = 1};
    check(&s);
    assert_non_null(s.act.m);
    s.act.c = (an_act_config){.stablemax = true,
                              .no_continue = true,
                              .puzzle_lr = number(&s, "puzzle_lr"),
                              .puzzle_decay = number(&s, "puzzle_decay")};
    load(&s);
    return s;
}

static void scene_close(scene *s)
{
    free(s->x), free(s->y), free(s->ids);
    an_trm_close(s->act.m);
    an_close(s->cx);
    test_golden_close(&s->golden);
}

static void integers(const double *from, int64_t n, int32_t *to)
{
    for (int64_t i = 0; i < n; i++) to[i] = (int32_t)from[i];
}

/* The batch of an update: tokens and labels i32 [B,S], ids i32 [B]. Only samples from `first` on: micro-batches. */
static void batch(const scene *s, int step, int64_t first, int64_t B, an_tensor *in[3])
{
    int32_t cells[64], ids[16];
    const int64_t at = (int64_t)step * s->B + first;
    integers(s->x + at * s->S, B * s->S, cells);
    in[0] = an_input(s->cx, AN_I32, AN_SHAPE(B, s->S), cells);
    integers(s->y + at * s->S, B * s->S, cells);
    in[1] = an_input(s->cx, AN_I32, AN_SHAPE(B, s->S), cells);
    integers(s->ids + at, B, ids);
    in[2] = an_input(s->cx, AN_I32, AN_SHAPE(B), ids);
}

/* Tensor t against the golden of this name. */
static void compare(scene *s, const char *name, an_tensor *t, double tolerance)
{
    size_t n;
    double *want = test_golden_read(&s->golden, name, &n), largest = 0;
    double *got = calloc(n, sizeof *got);
    assert_non_null(got);
    const size_t bytes = n * an_dtype_size(an_dtype_of(t));
    assert_int_equal(an_read(t, got, bytes), AN_OK);
    if (an_dtype_of(t) == AN_F32)
        for (size_t i = n; i-- > 0;) {
            float f;
            memcpy(&f, (char *)got + i * sizeof f, sizeof f);
            got[i] = (double)f;
        }
    for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs(want[i]));
    char what[160];
    snprintf(what, sizeof what, "%s: %s", s->golden.name, name);
    test_close_f64(what, got, want, n, 0, tolerance * largest);
    free(got), free(want);
}

static void compare_first_step(const char *name, const char *device, an_dtype dtype, double tolerance)
{
    scene s = scene_open(name, device, dtype, 0, 0);
    const int n_params = an_persist_count(s.cx) - 3; /* the last are two initial states and the table */
    an_tensor *in[3], *grad[64], *root[70];
    int n = 0;
    batch(&s, 0, 0, s.B, in);
    const an_act_losses l = an_act_train(&s.act, in);
    an_backward(l.loss);
    root[n++] = l.loss;
    for (int i = 0; i < n_params; i++) {
        an_persist p;
        assert_int_equal(an_persist_get(s.cx, i, &p), AN_OK);
        grad[i] = an_grad(an_param(s.cx, p.name, dtype, p.shape, AN_ZEROS));
        assert_non_null(grad[i]);
        root[n++] = grad[i];
    }
    root[n++] = an_grad(s.act.rows);
    assert_int_equal(an_eval_at(AN_AT, root, n), AN_OK);
    check(&s);
    compare(&s, "loss", l.loss, tolerance);
    compare(&s, "grad.rows", root[n - 1], tolerance);
    for (int i = 0; i < n_params; i++) {
        an_persist p;
        char key[128];
        assert_int_equal(an_persist_get(s.cx, i, &p), AN_OK);
        snprintf(key, sizeof key, "grad.%s", p.name);
        compare(&s, key, grad[i], tolerance);
    }
    scene_close(&s);
}

/* Logits and q of a first call, through the parts that decoding and solving use. */
static void compare_outputs(const char *name, const char *device, an_dtype dtype, double tolerance)
{
    scene s = scene_open(name, device, dtype, 0, 0);
    an_tensor *in[3];
    batch(&s, 0, 0, s.B, in);
    an_trm *m = s.act.m;
    an_tensor *rows = an_gather(an_trm_puzzle_table(m), in[2]);
    const an_trm_config *c = an_trm_config_of(m);
    const an_shape shape = AN_SHAPE(s.B, an_trm_length(c), c->width);
    const an_trm_state i = an_trm_initial(m);
    an_trm_state z = {an_expand(i.z_H, shape), an_expand(i.z_L, shape)};
    z = an_trm_call(m, z, an_trm_embed(m, in[0], rows));
    an_tensor *logits = an_trm_logits(m, z.z_H), *q = an_trm_q(m, z.z_H);
    assert_int_equal(an_eval(logits, q), AN_OK);
    check(&s);
    compare(&s, "logits", logits, tolerance);
    compare(&s, "q", q, tolerance);
    scene_close(&s);
}

static void the_first_step_agrees_with_pytorch_in_float64(void **state)
{
    (void)state;
    compare_first_step("trm_attention", "cpu", AN_F64, 1e-9);
    compare_first_step("trm_mixer", "cpu", AN_F64, 1e-9);
    compare_outputs("trm_attention", "cpu", AN_F64, 1e-9);
    compare_outputs("trm_mixer", "cpu", AN_F64, 1e-9);
}

static void the_first_step_agrees_with_pytorch_in_float32(void **state)
{
    (void)state;
    compare_first_step("trm_attention", "cpu", AN_F32, 5e-5);
    compare_first_step("trm_mixer", "cpu", AN_F32, 2e-4);
    compare_outputs("trm_attention", "cpu", AN_F32, 5e-5);
    compare_outputs("trm_mixer", "cpu", AN_F32, 2e-4);
}

/* Parameters, their averages and the puzzle table after the updates: every golden "after.NAME", "ema.NAME". */
static void compare_state(scene *s, double tolerance)
{
    int compared = 0;
    for (size_t i = 0; i < an_st_count(s->golden.file); i++) {
        const char *golden = an_st_tensor_at(s->golden.file, i)->name, *name = golden;
        if (strncmp(golden, "after.", 6) == 0) name = golden + 6;
        if (strcmp(golden, "updates.table") == 0) name = "puzzle_emb.weights";
        const int at = name != golden || strncmp(golden, "ema.", 4) == 0 ? an_persist_find(s->cx, name) : -1;
        if (at < 0) continue;
        size_t n;
        double *want = test_golden_read(&s->golden, golden, &n), *got = calloc(n, sizeof *got);
        assert_non_null(got);
        assert_int_equal(an_persist_read(s->cx, at, got, n * an_dtype_size(s->dtype)), AN_OK);
        for (size_t k = n; s->dtype == AN_F32 && k-- > 0;) {
            float f;
            memcpy(&f, (char *)got + k * sizeof f, sizeof f);
            got[k] = (double)f;
        }
        test_close_f64(golden, got, want, n, 0, tolerance);
        free(got), free(want);
        compared++;
    }
    assert_int_equal(compared, 7); /* three parameters, their averages, the table */
}

/* Five updates; `micros` micro-batches each. Sums of an update against the golden's. */
static void compare_updates(const char *name, const char *key, an_dtype dtype, int64_t cycles, int64_t micros,
                            double tolerance)
{
    scene s = scene_open(name, "cpu", dtype, cycles, cycles);
    size_t n;
    double *want = test_golden_read(&s.golden, key, &n); /* [STEPS,8] */
    const double lr = number(&s, "lr");
    for (int step = 0; step < STEPS; step++) {
        double got[AN_ACT_SUMS] = {0};
        an_set_step(s.cx, (uint64_t)step);
        for (int64_t micro = 0; micro < micros; micro++) {
            const int64_t B = s.B / micros;
            an_tensor *in[3];
            s.act.micro = micro, s.act.micros = micros;
            an_set_sample(s.cx, (uint64_t)(micro * B));
            batch(&s, step, micro * B, B, in);
            const an_act_losses l = an_act_train(&s.act, in);
            an_backward(micros > 1 ? an_mul_num(l.loss, 1.0 / (double)micros) : l.loss);
            an_act_update(&s.act, NULL);
            if (micro == micros - 1)
                an_adam_atan2(s.cx, ((an_adamw_options){.lr = lr,
                                                        .beta1 = number(&s, "beta1"),
                                                        .beta2 = number(&s, "beta2"),
                                                        .weight_decay = number(&s, "weight_decay"),
                                                        .t = step + 1}));
            if (micro == micros - 1) an_ema(s.cx, number(&s, "ema"), NULL);
            an_tensor *const *k = l.sum;
            assert_int_equal(an_eval(k[0], k[1], k[2], k[3], k[4], k[5], k[6], k[7]), AN_OK);
            check(&s);
            for (int i = 0; i < AN_ACT_SUMS; i++) got[i] += an_item(l.sum[i]);
            an_reset(s.cx);
        }
        char what[64];
        snprintf(what, sizeof what, "%s %s of update %d", name, key, step);
        test_close_f64(what, got, want + step * AN_ACT_SUMS, AN_ACT_SUMS, tolerance, tolerance);
    }
    if (strcmp(key, "updates.sums") == 0) compare_state(&s, tolerance);
    free(want);
    scene_close(&s);
}

static void five_updates_agree_with_pytorch_in_float64(void **state)
{
    (void)state;
    compare_updates("trm_attention", "updates.sums", AN_F64, 0, 1, 1e-9);
    compare_updates("trm_mixer", "updates.sums", AN_F64, 0, 1, 1e-9);
    compare_updates("trm_mixer", "short.sums", AN_F64, 2, 1, 1e-9);
}

static void five_updates_agree_with_pytorch_in_float32(void **state)
{
    (void)state;
    compare_updates("trm_attention", "updates.sums", AN_F32, 0, 1, 5e-5);
    compare_updates("trm_attention", "short.sums", AN_F32, 2, 1, 5e-5);
    compare_updates("trm_mixer", "short.sums", AN_F32, 2, 1, 5e-4);
}

static void micro_batches_with_a_carry_of_their_own_give_the_sums_of_the_whole_batch(void **state)
{
    (void)state;
    compare_updates("trm_attention", "updates.sums", AN_F32, 0, 2, 5e-5);
    compare_updates("trm_mixer", "short.sums", AN_F32, 2, 4, 5e-4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_step_agrees_with_pytorch_in_float64),
        cmocka_unit_test(the_first_step_agrees_with_pytorch_in_float32),
        cmocka_unit_test(five_updates_agree_with_pytorch_in_float64),
        cmocka_unit_test(five_updates_agree_with_pytorch_in_float32),
        cmocka_unit_test(micro_batches_with_a_carry_of_their_own_give_the_sums_of_the_whole_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
