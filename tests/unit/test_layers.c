/* test_layers.c: layers against the operations that they are written as in papers: values and gradients; and what their form
 * is for: fewer bytes moved. */
#include <anneal_nn.h>

#include "lib/test.h"

#include <math.h>
#include <string.h>

typedef struct sizes {
    int64_t rows, C, I, out;
} sizes;

static const sizes cases[] = {{1, 1, 1, 1}, {5, 7, 3, 7}, {33, 64, 96, 17}, {64, 128, 256, 128}};

/* As written: one product, cut in half. */
static an_tensor *plain(an_tensor *x, an_tensor *gate_up, an_tensor *down, int64_t I)
{
    an_tensor *both = an_linear(x, gate_up, NULL);
    return an_linear(an_mul(an_silu(an_slice(both, 1, 0, I)), an_slice(both, 1, I, 2 * I)), down, NULL);
}

/* The loss of one form and the gradients of x and gate_up; or, with `bill`, what its step moves. */
static void run(const sizes *s, bool layer, const char *device, an_dtype dtype, double *loss, double *gx, double *gw,
                an_bill *bill)
{
    an_ctx *cx = an_open(&(an_options){.device = device, .cc = "none", .threads = 1, .seed = 9, .recompute = "off"});
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    if (bill) an_set_policy(cx, (an_policy){.matmul = AN_BF16});
    an_tensor *x = an_param(cx, "x", dtype, AN_SHAPE(s->rows, s->C), AN_NORMAL(1)),
              *gate_up = an_param(cx, "gate_up", dtype, AN_SHAPE(2 * s->I, s->C), AN_NORMAL(0.3)),
              *down = an_param(cx, "down", dtype, AN_SHAPE(s->out, s->I), AN_NORMAL(0.3));
    an_tensor *y = layer ? an_swiglu(x, gate_up, down) : plain(x, gate_up, down, s->I); /* [rows,out] */
    an_tensor *l = an_mean(an_square(y), AN_ALL);
    an_backward(l);
    an_tensor *dx = an_grad(x), *dw = an_grad(gate_up);
    an_status status = bill ? an_plan(l, dx, dw) : an_eval(l, dx, dw);
    if (status != AN_OK) fail_msg("%s", an_error(cx));
    if (bill) {
        assert_int_equal(an_report(cx, bill), AN_OK);
    } else {
        *loss = an_item(l);
        assert_int_equal(an_read(dx, gx, sizeof(double) * (size_t)(s->rows * s->C)), AN_OK);
        assert_int_equal(an_read(dw, gw, sizeof(double) * (size_t)(2 * s->I * s->C)), AN_OK);
    }
    an_close(cx);
}

static void swiglu_is_its_formula_with_all_gradients(void **state)
{
    (void)state;
    static double gx[2][64 * 128], gw[2][512 * 128];
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        const sizes *s = &cases[i];
        double loss[2];
        for (int layer = 0; layer < 2; layer++) run(s, layer, "cpu", AN_F64, &loss[layer], gx[layer], gw[layer], NULL);
        assert_true(fabs(loss[0] - loss[1]) <= 1e-13 * fabs(loss[0]));
        for (int64_t k = 0; k < s->rows * s->C; k++)
            if (!(fabs(gx[0][k] - gx[1][k]) <= 1e-12)) fail_msg("case %zu: dx[%lld]", i, (long long)k);
        for (int64_t k = 0; k < 2 * s->I * s->C; k++)
            if (!(fabs(gw[0][k] - gw[1][k]) <= 1e-12)) fail_msg("case %zu: dgate_up[%lld]", i, (long long)k);
    }
}

static void its_gate_is_no_pass_over_memory_of_its_own(void **state)
{
    (void)state;
    /* On the CPU the gradients of the formula's halves are written side by side where its product reads them, which saves more. */
    static const char *const devices[] = {"null:cuda", "null:metal"};
    const sizes s = {8192, 512, 1536, 512};
    for (size_t d = 0; d < AN_COUNT(devices); d++) {
        an_bill cut, layer;
        run(&s, false, devices[d], AN_F32, NULL, NULL, NULL, &cut);
        run(&s, true, devices[d], AN_F32, NULL, NULL, NULL, &layer);
        /* at least: u written once less and read once less, or as much elsewhere; [8192,1536] in 16 bits each. The
         * gradients of both halves, f32, are put together: [3072,512] read and written once more */
        if (layer.moved_bytes + 2 * 2 * 8192 * 1536 > cut.moved_bytes + 2 * 4 * 3072 * 512)
            fail_msg("%s: %llu bytes are moved, cut in half %llu", devices[d], (unsigned long long)layer.moved_bytes,
                     (unsigned long long)cut.moved_bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(swiglu_is_its_formula_with_all_gradients),
        cmocka_unit_test(its_gate_is_no_pass_over_memory_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
