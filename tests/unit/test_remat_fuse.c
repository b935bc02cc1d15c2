/* test_remat_fuse.c: what the backward pass computes again is written by a kernel that reads the same, where there is one:
 * the same bits, no launch that waits for itself, and no kernel that grows beyond what a device binds. */
#include <anneal.h>

#include "lib/test.h"

#include "runtime/context.h"

#include <string.h>

enum { N = 24, C = 16, H = 32, MANY = 30 };

typedef struct outcome {
    float dx[N * C], dw[H * C], last[N * H];
    int launches, alone, remat_outputs, most_buffers;
    int parts; /* values that are written inside of a concatenation */
    an_bill bill;
} outcome;

static an_tensor *data(an_ctx *cx, int rows, int cols)
{
    static float x[N * H];
    for (int i = 0; i < N * H; i++) x[i] = (float)((i * 37) % 101) / 50 - 1;
    return an_input(cx, AN_F32, AN_SHAPE(rows, cols), x);
}

/* The roots of one step: evaluated where the device runs, else planned. */
static void finish(an_ctx *cx, an_tensor *dx, an_tensor *dw, an_tensor *last, bool runs, outcome *out)
{
    memset(out, 0, sizeof *out);
    if ((runs ? an_eval(dx, dw, last) : an_plan(dx, dw, last)) != AN_OK) fail_msg("%s", an_error(cx));
    if (runs) {
        assert_int_equal(an_read(dx, out->dx, sizeof out->dx), AN_OK);
        assert_int_equal(an_read(dw, out->dw, sizeof out->dw), AN_OK);
        assert_int_equal(an_read(last, out->last, sizeof out->last), AN_OK);
    }
    const an_plan *p = cx->last->plan;
    out->launches = p->n_steps;
    for (int s = 0; s < p->n_steps; s++) {
        const an_plan_step *st = &p->step[s];
        out->alone += st->recompute;
        out->remat_outputs += st->remat_outputs;
        out->most_buffers =
            AN_MAX(out->most_buffers, st->n_args + (st->epilogue >= 0 ? AN_TILE_ARGS - st->n_gemm_args : 0));
    }
    for (int v = 0; v < p->n_values; v++)
        out->parts += p->value[v].inside >= 0 && strstr(p->value[p->value[v].inside].name, "CONCAT") != NULL;
    assert_int_equal(an_report(cx, &out->bill), AN_OK);
    an_close(cx);
}

static an_ctx *open_on(const char *device, const char *recompute, bool apart)
{
    an_ctx *cx = an_open(&(an_options){
        .device = device, .recompute = recompute, .cc = "none", .threads = 2, .verify = true, .place_apart = apart});
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    return cx;
}

/* A feed-forward layer behind a norm. Three of its operands are recomputed: the outputs of both norms and of GELU. */
static void layer(const char *device, const char *recompute, bool apart, outcome *out)
{
    an_ctx *cx = open_on(device, recompute, apart);
    an_tensor *px = an_param(cx, "x", AN_F32, AN_SHAPE(N, C), AN_NORMAL(0.5));
    an_tensor *w0 = an_param(cx, "w0", AN_F32, AN_SHAPE(C, H), AN_NORMAL(0.5));
    an_tensor *w1 = an_param(cx, "w1", AN_F32, AN_SHAPE(H, C), AN_NORMAL(0.5));
    an_tensor *gain = an_param(cx, "gain", AN_F32, AN_SHAPE(C), AN_NORMAL(0.5));
    an_tensor *x = an_add(an_matmul(px, an_matmul(w0, w1)), data(cx, N, C));     /* [N,C] */
    an_tensor *h = an_matmul(an_layer_norm(x, gain, NULL, 1e-5), w0);            /* [N,H] */
    an_tensor *y = an_matmul(an_gelu(h), w1);                                    /* [N,C] */
    an_tensor *z = an_matmul(an_layer_norm(an_add(x, y), gain, NULL, 1e-5), w0); /* [N,H] */
    an_backward(an_sum(an_mul(z, an_add_num(z, 1)), AN_ALL));
    finish(cx, an_grad(px), an_grad(w1), z, !strcmp(device, "cpu"), out);
}

static void a_recomputed_value_is_one_more_output_of_a_kernel(void **state)
{
    (void)state;
    static outcome kept, again, apart;
    layer("cpu", "off", false, &kept);
    layer("cpu", "on", false, &again);
    layer("cpu", "on", true, &apart);
    assert_int_equal(kept.remat_outputs + kept.alone, 0);
    assert_int_equal(again.remat_outputs, 3);
    assert_int_equal(again.alone, 0);
    assert_memory_equal(again.dx, kept.dx, sizeof kept.dx);
    assert_memory_equal(again.dw, kept.dw, sizeof kept.dw);
    assert_memory_equal(apart.dx, kept.dx, sizeof kept.dx);
    assert_memory_equal(apart.dw, kept.dw, sizeof kept.dw);
    static const char *const gpus[] = {"null:cuda", "null:metal"};
    for (size_t i = 0; i < AN_COUNT(gpus); i++) {
        layer(gpus[i], "on", false, &again);
        assert_int_equal(again.remat_outputs, 3);
        assert_int_equal(again.alone, 0);
    }
}

/* The one kernel that reads what GELU read needs the product that reads GELU's output again. */
static void waits(const char *recompute, outcome *out)
{
    an_ctx *cx = open_on("cpu", recompute, false);
    an_tensor *px = an_param(cx, "x", AN_F32, AN_SHAPE(N, C), AN_NORMAL(0.5));
    an_tensor *w = an_param(cx, "w", AN_F32, AN_SHAPE(H, C), AN_NORMAL(0.5));
    an_tensor *h = an_matmul(px, an_transpose(w, 0, 1));                       /* [N,H] */
    an_tensor *y = an_add(px, an_matmul(an_detach(an_gelu(an_detach(h))), w)); /* [N,C] */
    an_backward(an_sum(an_mul(y, y), AN_ALL));
    an_tensor *dw = an_grad(w);
    finish(cx, an_grad(px), dw, an_add(an_mul_num(h, 2), an_sum(dw, AN_ALL)), true, out);
}

static void a_kernel_that_needs_the_reader_is_no_host(void **state)
{
    (void)state;
    static outcome kept, again;
    waits("off", &kept);
    waits("on", &again);
    assert_int_equal(again.remat_outputs, 0);
    assert_int_equal(again.alone, 1);
    assert_memory_equal(again.dx, kept.dx, sizeof kept.dx);
    assert_memory_equal(again.dw, kept.dw, sizeof kept.dw);
    assert_memory_equal(again.last, kept.last, sizeof kept.last);
}

/* silu(gate) up of the halves of one product, weights on the left: the gradient of the second weight comes before the one GEMM
 * that the gradient of gate and up waits for. */
static void gated(const char *device, const char *recompute, bool apart, outcome *out)
{
    an_ctx *cx = open_on(device, recompute, apart);
    an_tensor *px = an_param(cx, "x", AN_F32, AN_SHAPE(N, C), AN_NORMAL(0.5));
    an_tensor *w0 = an_param(cx, "w0", AN_F32, AN_SHAPE(2 * H, N), AN_NORMAL(0.5));
    an_tensor *w1 = an_param(cx, "w1", AN_F32, AN_SHAPE(C, H), AN_NORMAL(0.5));
    an_tensor *both = an_matmul(w0, an_mul(px, an_add_num(px, 1)));                       /* [2H,C] */
    an_tensor *h = an_mul(an_silu(an_slice(both, 0, 0, H)), an_slice(both, 0, H, 2 * H)); /* [H,C] */
    an_tensor *y = an_matmul(w1, h), *z = an_matmul(y, data(cx, C, C));                   /* [C,C] */
    an_backward(an_sum(an_mul(z, z), AN_ALL));
    finish(cx, an_grad(px), an_grad(w1), an_matmul(data(cx, N, C), an_matmul(z, data(cx, C, H))),
           !strcmp(device, "cpu"), out);
}

static void the_gradient_of_a_gate_carries_it_and_writes_its_halves_in_place(void **state)
{
    (void)state;
    static outcome kept, again, apart;
    gated("cpu", "off", false, &kept);
    gated("cpu", "on", false, &again);
    gated("cpu", "on", true, &apart);
    assert_int_equal(kept.parts, 2);
    assert_int_equal(again.parts, 2);
    assert_int_equal(again.remat_outputs, 2); /* the gate, and the operand x (x + 1) */
    assert_int_equal(again.alone, 0);
    assert_memory_equal(again.dx, kept.dx, sizeof kept.dx);
    assert_memory_equal(again.dw, kept.dw, sizeof kept.dw);
    assert_memory_equal(apart.dx, kept.dx, sizeof kept.dx);
    assert_memory_equal(apart.dw, kept.dw, sizeof kept.dw);
}

/* GELU's gradient is multiplied by `n` tensors in its own kernel. */
static void crowded(int n, const char *recompute, outcome *out)
{
    an_ctx *cx = open_on("null:metal", recompute, false);
    an_tensor *px = an_param(cx, "x", AN_F32, AN_SHAPE(N, C), AN_NORMAL(0.5));
    an_tensor *w0 = an_param(cx, "w0", AN_F32, AN_SHAPE(C, H), AN_NORMAL(0.5));
    an_tensor *w1 = an_param(cx, "w1", AN_F32, AN_SHAPE(H, C), AN_NORMAL(0.5));
    an_tensor *h = an_matmul(px, w0); /* [N,H] */
    for (int i = 0; i < n; i++) h = an_mul(h, data(cx, N, H));
    an_tensor *y = an_matmul(an_gelu(h), w1); /* [N,C] */
    an_backward(an_sum(an_mul(y, y), AN_ALL));
    finish(cx, an_grad(px), an_grad(w1), y, false, out);
}

static void a_kernel_that_would_take_too_many_buffers_is_no_host(void **state)
{
    (void)state;
    static outcome kept, again, few;
    int one_too_many = 0;
    crowded(0, "on", &few);
    for (int n = 0; n < MANY; n++) {
        crowded(n, "off", &kept);
        crowded(n, "on", &again);
        assert_int_equal(again.remat_outputs + again.alone, 1);
        assert_in_range(again.most_buffers, 1, 31);
        if (kept.bill.splits || !again.alone) continue;
        one_too_many++;
        assert_int_equal(again.bill.splits, 1);
        assert_int_equal(again.launches, few.launches + 1);
    }
    assert_int_equal(one_too_many, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recomputed_value_is_one_more_output_of_a_kernel),
        cmocka_unit_test(the_gradient_of_a_gate_carries_it_and_writes_its_halves_in_place),
        cmocka_unit_test(a_kernel_that_needs_the_reader_is_no_host),
        cmocka_unit_test(a_kernel_that_would_take_too_many_buffers_is_no_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
