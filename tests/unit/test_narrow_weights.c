/* test_narrow_weights.c: parameters declared in float32 and kept in bfloat16 (an_policy.weights): what they are for readers,
 * optimizers and checkpoints, and that updates smaller than bfloat16's steps are not lost. */
#include <anneal.h>

#include "lib/test.h"

#include <math.h>
#include <string.h>

enum { ROWS = 64, COLUMNS = 64, N = ROWS * COLUMNS };

static an_ctx *open_narrow(an_dtype matmul)
{
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .cc = "none", .threads = 1, .seed = 3});
    an_set_policy(cx, (an_policy){.matmul = matmul, .weights = AN_BF16});
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    return cx;
}

static void kept_in_bfloat16_and_read_in_float32(void **state)
{
    (void)state;
    an_ctx *cx = open_narrow(AN_F32);
    static float x[N], y[N];
    static uint16_t raw[N];
    an_tensor *w = an_param(cx, "w", AN_F32, AN_SHAPE(ROWS, COLUMNS), AN_NORMAL(1)),
              *b = an_param(cx, "b", AN_F32, AN_SHAPE(COLUMNS), AN_NORMAL(1));
    an_persist p;
    assert_int_equal(an_dtype_of(w), AN_F32);
    assert_int_equal(an_persist_get(cx, an_persist_find(cx, "w"), &p), AN_OK);
    assert_true(p.dtype == AN_BF16 && p.declared == AN_F32);
    assert_int_equal(an_persist_get(cx, an_persist_find(cx, "b"), &p), AN_OK);
    assert_true(p.dtype == AN_F32 && p.declared == AN_F32);
    for (int i = 0; i < N; i++) x[i] = 1 + (float)i / N;
    assert_int_equal(an_persist_write(cx, an_persist_find(cx, "w"), x, sizeof x), AN_OK);
    assert_int_equal(an_persist_read(cx, an_persist_find(cx, "w"), raw, sizeof raw), AN_OK);
    assert_int_equal(an_persist_read(cx, an_persist_find(cx, "w"), y, sizeof y), AN_OK);
    for (int i = 0; i < N; i++) {
        const uint32_t bits = (uint32_t)raw[i] << 16;
        float same;
        memcpy(&same, &bits, sizeof same);
        assert_true(y[i] == same && fabsf(y[i] - x[i]) <= 1.0f / 256);
    }
    assert_int_equal(an_persist_write(cx, an_persist_find(cx, "w"), raw, 3), AN_E_USAGE);
    an_error_clear(cx);
    an_tensor *sum = an_add(w, b); /* float32 operands */
    assert_int_equal(an_dtype_of(sum), AN_F32);
    an_tensor *twice = an_mul_num(w, 2);
    an_assign(w, twice);
    assert_int_equal(an_eval(sum), AN_OK);
    an_reset(cx);
    assert_int_equal(an_eval(w), AN_OK);
    assert_int_equal(an_read(w, x, sizeof x), AN_OK);
    for (int i = 0; i < N; i++) assert_true(x[i] == 2 * y[i]);
    an_close(cx);
}

/* A constant gradient moves each element by lr an update, a 78th of bfloat16's step below 1. */
static void small_updates_are_not_lost(void **state)
{
    (void)state;
    static float x[N];
    for (int kind = 0; kind < 3; kind++) {
        an_ctx *cx = open_narrow(kind == 1 ? AN_BF16 : AN_F32);
        for (int step = 0; step < 200; step++) {
            an_set_step(cx, (uint64_t)step);
            an_tensor *w = an_param(cx, "w", AN_F32, AN_SHAPE(ROWS, COLUMNS), AN_ONES), *loss = an_sum(w, AN_ALL);
            an_backward(loss);
            if (kind == 2)
                an_sgd(cx, 5e-5);
            else
                an_adamw(cx, (an_adamw_options){.lr = 5e-5, .moments = kind == 1 ? AN_BF16 : AN_F32});
            assert_int_equal(an_eval(loss), AN_OK);
            an_reset(cx);
        }
        assert_int_equal(an_persist_read(cx, an_persist_find(cx, "w"), x, sizeof x), AN_OK);
        double mean = 0;
        for (int i = 0; i < N; i++) mean += x[i] / N;
        if (!(fabs(mean - 0.99) < 5e-4)) fail_msg("kind %d: the mean is %.6f, not 0.99", kind, mean);
        an_close(cx);
    }
}

static void gradients_and_products(void **state)
{
    (void)state;
    static float x[8 * ROWS], y[2][8 * COLUMNS];
    for (int i = 0; i < 8 * ROWS; i++) x[i] = (float)((i * 37) % 17 - 8) / 16;
    for (int narrow = 0; narrow < 2; narrow++) {
        an_ctx *cx = open_narrow(AN_BF16);
        if (!narrow) an_set_policy(cx, (an_policy){.matmul = AN_BF16});
        an_tensor *w = an_param(cx, "w", AN_F32, AN_SHAPE(COLUMNS, ROWS), AN_NORMAL(1));
        an_tensor *out = an_cast(an_linear(an_input(cx, AN_F32, AN_SHAPE(8, ROWS), x), w, NULL), AN_F32);
        an_tensor *loss = an_sum(out, AN_ALL);
        an_backward(loss);
        an_tensor *grad = an_grad(w);
        assert_int_equal(an_dtype_of(grad), narrow ? AN_BF16 : AN_F32);
        assert_int_equal(an_eval(loss, out), AN_OK);
        assert_int_equal(an_read(out, y[narrow], sizeof y[narrow]), AN_OK);
        an_close(cx);
    }
    assert_memory_equal(y[0], y[1], sizeof y[0]); /* products round their operands alike */
}

/* Eight micro-batches, the first's gradient 1, the others' 1/512 each: to the nearest their sum would be 1. */
static void kept_gradients_are_not_lost(void **state)
{
    (void)state;
    static float w[N];
    an_ctx *cx = open_narrow(AN_F32);
    for (int micro = 0; micro < 8; micro++) {
        const float each = micro ? 1.0f / 512 : 1;
        an_tensor *p = an_param(cx, "w", AN_F32, AN_SHAPE(ROWS, COLUMNS), AN_ZEROS);
        an_tensor *loss = an_mul_num(an_sum(p, AN_ALL), each);
        an_backward(loss);
        if (micro == 7) an_sgd(cx, 1);
        assert_int_equal(an_eval(loss), AN_OK);
        an_reset(cx);
    }
    assert_int_equal(an_persist_read(cx, an_persist_find(cx, "w"), w, sizeof w), AN_OK);
    double mean = 0;
    for (int i = 0; i < N; i++) mean -= w[i] / N;
    if (!(fabs(mean - (1 + 7.0 / 512)) < 1e-3)) fail_msg("the mean gradient is %.6f, not %.6f", mean, 1 + 7.0 / 512);
    an_close(cx);
}

/* A table that is looked up and multiplied: only rows are widened, and both contributions are added before they are rounded. */
static void tied_table(void **state)
{
    (void)state;
    static const int32_t id[] = {3, 5, 3, 0};
    static float grad[2][N];
    for (int narrow = 0; narrow < 2; narrow++) {
        an_ctx *cx = open_narrow(AN_BF16);
        if (!narrow) an_set_policy(cx, (an_policy){.matmul = AN_BF16});
        an_tensor *w = an_param(cx, "w", AN_F32, AN_SHAPE(ROWS, COLUMNS), AN_ONES);
        an_tensor *rows = an_gather(w, an_input(cx, AN_I32, AN_SHAPE(4), id));
        assert_int_equal(an_dtype_of(rows), AN_F32);
        an_tensor *loss = an_sum(an_cast(an_linear(rows, w, NULL), AN_F32), AN_ALL);
        an_backward(loss);
        an_tensor *g = an_cast(an_grad(w), AN_F32);
        assert_int_equal(an_eval(loss, g), AN_OK);
        assert_int_equal(an_read(g, grad[narrow], sizeof grad[narrow]), AN_OK);
        an_close(cx);
    }
    for (int i = 0; i < N; i++) assert_true(fabsf(grad[1][i] - grad[0][i]) <= fabsf(grad[0][i]) / 128);
}

static void refused_by_name(void **state)
{
    (void)state;
    static const int32_t id[] = {3, 5};
    for (int kind = 0; kind < 2; kind++) {
        an_ctx *cx = open_narrow(AN_F32);
        an_tensor *w = an_param(cx, "w", AN_F32, AN_SHAPE(ROWS, COLUMNS), AN_ONES);
        an_tensor *index = an_input(cx, AN_I32, AN_SHAPE(2), id);
        if (kind == 0)
            an_ema(cx, 0.9, NULL);
        else
            an_sign_sgd_rows(w, index, an_gather(w, index), 1e-3, 0, NULL);
        assert_int_equal(an_error_status(cx), AN_E_UNSUPPORTED);
        assert_non_null(strstr(an_error(cx), "kept in bfloat16"));
        an_close(cx);
    }
}

static void refused(void **state)
{
    (void)state;
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .cc = "none", .threads = 1});
    an_set_policy(cx, (an_policy){.matmul = AN_F32, .weights = AN_F16});
    assert_int_equal(an_error_status(cx), AN_E_DTYPE);
    assert_non_null(strstr(an_error(cx), "float32 or bfloat16"));
    an_close(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_in_bfloat16_and_read_in_float32),
        cmocka_unit_test(small_updates_are_not_lost),
        cmocka_unit_test(gradients_and_products),
        cmocka_unit_test(kept_gradients_are_not_lost),
        cmocka_unit_test(tied_table),
        cmocka_unit_test(refused_by_name),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests_name("narrow_weights", tests, NULL, NULL);
}
