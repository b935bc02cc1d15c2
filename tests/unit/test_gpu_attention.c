/* test_gpu_attention.c: which pass of attn_hopper.inc, or which kernels in tf32, a shape takes, and how many thread blocks are
 * launched for it. */
#include "lib/test.h"

#include "codegen/gpu_module.h"
#include "codegen/gpu_step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const an_gpu h200 = {
    .dialect = &an_dialects[AN_DIALECT_CUDA], .fast = true, .arch_specific = 90, .multiprocessors = 132};

/* The forward pass of B sequences of T positions, H heads of D each, side by side as [B,T,H,D] in bf16. */
static void expect(int32_t B, int32_t H, int32_t T, int32_t D, int pass, uint32_t blocks)
{
    an_kernel k = {.kind = AN_KERNEL_ATTN};
    k.u.attn =
        (an_attn_spec){.B = B, .H = H, .T = T, .S = T, .D = D, .scale = 1, .dtype = AN_BF16, .mul_dtype = AN_BF16};
    int64_t *const strides[] = {k.u.attn.q, k.u.attn.k, k.u.attn.v, k.u.attn.o};
    for (size_t i = 0; i < AN_COUNT(strides); i++) {
        strides[i][0] = (int64_t)T * H * D;
        strides[i][1] = D;
        strides[i][2] = (int64_t)H * D;
    }
    an_arg arg[7];
    for (int i = 0; i < 7; i++) arg[i] = (an_arg){.slot = i == 3 || i == 6 ? -1 : AN_SLOT_ARENA, .value = -1};
    an_plan_step step = {.kernel = 0, .arg = arg, .n_args = 6, .epilogue = -1};
    const an_plan p = {.kernel = &k, .n_kernels = 1, .step = &step, .n_steps = 1};
    an_gpu_step g;
    an_text text = {0};
    char define[40];
    const char *why = an_gpu_step_make(&p, &step, &h200, &g);
    if (why) fail_msg("%s", why);
    an_render_module(&p, &step, &h200, "row", &text);
    snprintf(define, sizeof define, "#define AN_HOPPER_PASS %d\n", pass);
    if (!strstr(text.data, define)) fail_msg("%d x %d heads of %d positions: not pass %d", B, H, T, pass);
    an_text_free(&text);
    assert_int_equal(g.launch[g.n_launches - 1].blocks[0], blocks);
    assert_int_equal(g.launch[g.n_launches - 1].threads, AN_HOPPER_THREADS(pass, AN_HOPPER_CHUNKS(D)));
}

static void many_short_sequences_take_two_heads_at_a_time(void **state)
{
    (void)state;
    /* Heads of 64 in up to 112 positions have a body of their own (attn_short.inc). */
    expect(768, 8, 97, 56, AN_SHORT_PASS, 132);   /* more pairs of heads than multiprocessors */
    expect(265, 1, 97, 56, AN_SHORT_PASS, 132);   /* 133 pairs, the last of one head */
    expect(264, 1, 97, 64, AN_FORWARD_PASS, 132); /* two a multiprocessor: a pair would leave none for the others */
    expect(265, 1, 128, 64, AN_SHORT_PASS, 132);
    expect(265, 1, 129, 64, AN_FORWARD_PASS, 132); /* more queries than two warpgroups have */
    expect(265, 1, 97, 72, AN_FORWARD_PASS, 132);  /* more than one chunk of columns */
    expect(20, 1, 97, 64, AN_FORWARD_PASS, 20);
}

/* Launches of the gradient in tf32, of `heads` heads. */
static int launches_in_tf32(int32_t heads, int32_t T, int32_t S, int32_t D, an_gpu_step *g)
{
    an_gpu gpu = h200;
    gpu.tf32 = true;
    an_kernel k = {.kind = AN_KERNEL_ATTN_GRAD};
    an_attn_spec *a = &k.u.attn;
    *a = (an_attn_spec){.B = heads, .H = 1, .T = T, .S = S, .D = D, .scale = 1, .dtype = AN_F32, .mul_dtype = AN_F32};
    int64_t *const strides[] = {a->q, a->k, a->v, a->o, a->do_, a->dq, a->dk, a->dv};
    for (size_t i = 0; i < AN_COUNT(strides); i++) {
        strides[i][0] = (int64_t)(i == 1 || i == 2 || i >= 6 ? S : T) * D;
        strides[i][2] = D;
    }
    an_arg arg[10];
    for (int i = 0; i < 10; i++) arg[i] = (an_arg){.slot = i == 6 ? -1 : AN_SLOT_ARENA, .value = -1};
    an_plan_step step = {.kernel = 0, .arg = arg, .n_args = 10, .epilogue = -1};
    const an_plan p = {.kernel = &k, .n_kernels = 1, .step = &step, .n_steps = 1};
    const char *why = an_gpu_step_make(&p, &step, &gpu, g);
    if (why) fail_msg("%s", why);
    return g->n_launches;
}

static void in_tf32_many_heads_have_one_kernel_for_their_gradients(void **state)
{
    (void)state;
    an_gpu_step g;
    assert_int_equal(launches_in_tf32(384, 256, 256, 64, &g), 2); /* delta, and the kernel */
    assert_string_equal(g.launch[1].entry, "attn_dqkv");
    assert_int_equal(g.launch[1].blocks[2], 384);
    assert_true(g.launch[1].shared_bytes <= 227 << 10);
    assert_int_equal(launches_in_tf32(264, 64, 100, 32, &g), 2);
    assert_int_equal(launches_in_tf32(132, 256, 256, 64, &g), 2);
    assert_int_equal(launches_in_tf32(131, 256, 256, 64, &g), 3); /* too few to fill the GPU */
    assert_int_equal(launches_in_tf32(384, 256, 255, 64, &g), 3); /* a causal query may see no key: dq is 0 */
    assert_int_equal(launches_in_tf32(384, 256, 256, 48, &g), 2);
    assert_int_equal(launches_in_tf32(384, 256, 256, 72, &g), 3);
    assert_int_equal(launches_in_tf32(384, 256, 256, 128, &g), 3);
}

/* Forward and gradient of 2 x 4 heads of D columns, 512 positions, with a mask over these strides (NULL: none) and a window: the module's
 * AN_BIAS, -1: a body that is not attn_hopper.inc. */
static int bias_of(int32_t D, const int64_t mask[4], int32_t window, int64_t mask_offset)
{
    int found[2];
    for (int grad = 0; grad < 2; grad++) {
        an_kernel k = {.kind = grad ? AN_KERNEL_ATTN_GRAD : AN_KERNEL_ATTN};
        an_attn_spec *a = &k.u.attn;
        *a = (an_attn_spec){
            .B = 2, .H = 4, .T = 512, .S = 512, .D = D, .scale = 1, .dtype = AN_BF16, .mul_dtype = AN_BF16};
        a->masked = mask != NULL, a->window = window, a->causal = window > 0;
        if (mask) memcpy(a->mask, mask, sizeof a->mask);
        int64_t *const strides[] = {a->q, a->k, a->v, a->o, a->do_, a->dq, a->dk, a->dv};
        for (size_t i = 0; i < AN_COUNT(strides); i++)
            strides[i][0] = (int64_t)512 * 4 * D, strides[i][1] = D, strides[i][2] = (int64_t)4 * D;
        an_arg arg[11];
        for (int i = 0; i < 11; i++)
            arg[i] = (an_arg){.slot = i == (grad ? 6 : 3) || (!grad && i == 6) ? -1 : AN_SLOT_ARENA, .value = -1};
        arg[grad ? AN_ATTN_GRAD_MASK : AN_ATTN_MASK].offset = mask_offset;
        an_plan_step step = {.kernel = 0, .arg = arg, .n_args = (grad ? 10 : 7) + (mask != NULL), .epilogue = -1};
        const an_plan p = {.kernel = &k, .n_kernels = 1, .step = &step, .n_steps = 1};
        an_gpu_step g;
        an_text text = {0};
        const char *why = an_gpu_step_make(&p, &step, &h200, &g);
        if (why) fail_msg("%s", why);
        an_render_module(&p, &step, &h200, "row", &text);
        const char *define = strstr(text.data, "#define AN_BIAS ");
        found[grad] = !strstr(text.data, "#define AN_HOPPER_PASS ") ? -1 : define ? atoi(define + 16) : 0;
        if (found[grad] >= 0) {
            assert_int_equal(strstr(text.data, "#define AN_SLIDING 1\n") != NULL, window > 0);
            assert_string_equal(g.launch[g.n_launches - 1].entry, grad ? "attn_dkv" : "attn_forward");
            const int last = g.launch[g.n_launches - 1].n_binds - 1; /* the mask, behind the parameters */
            assert_int_equal(g.launch[g.n_launches - 1].bind[last].kind == AN_BIND_PARAMS, !mask);
        }
        an_text_free(&text);
    }
    assert_int_equal(found[0], found[1]);
    return found[0];
}

static void masks_and_windows_take_the_kernels_for_hopper(void **state)
{
    (void)state;
    const int64_t all = 512 * 512;
    assert_int_equal(bias_of(64, NULL, 100, 0), 0);
    assert_int_equal(bias_of(128, (int64_t[]){all, 0, 512, 1}, 0, 0), 2);
    assert_int_equal(bias_of(64, (int64_t[]){all, 0, 512, 1}, 64, 0), 2);
    assert_int_equal(bias_of(64, (int64_t[]){513, 0, 0, 1}, 0, 4), 3);   /* padding: one row for all queries */
    assert_int_equal(bias_of(64, (int64_t[]){all, 0, 512, 1}, 0, 4), 1); /* pairs not on 8 bytes */
    assert_int_equal(bias_of(64, (int64_t[]){513 * 513, 0, 513, 1}, 0, 0), 1);
    assert_int_equal(bias_of(64, (int64_t[]){all, 0, 1, 512}, 0, 0), 1); /* turned */
    assert_int_equal(bias_of(192, (int64_t[]){all, 0, 512, 1}, 0, 0), 2);
    assert_int_equal(bias_of(256, (int64_t[]){all, 0, 512, 1}, 0, 0), -1); /* no room for a third number a query */
    assert_int_equal(bias_of(256, NULL, 64, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_short_sequences_take_two_heads_at_a_time),
                                       cmocka_unit_test(masks_and_windows_take_the_kernels_for_hopper),
                                       cmocka_unit_test(in_tf32_many_heads_have_one_kernel_for_their_gradients)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
