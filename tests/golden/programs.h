/* programs.h: three small training steps, each with its data: what the golden texts are of, and what runs on the shim.
 * All their operations have GPU kernels. */
#ifndef AN_GOLDEN_PROGRAMS_H
#define AN_GOLDEN_PROGRAMS_H

#include <anneal.h> /* first: it brings the spellings for users */

#include "lib/test.h"
#include "models/gpt/gpt.h"

typedef struct program {
    const char *name;
    an_tensor *loss, *norm;
    an_gpt *gpt; /* NULL: none */
} program;

static inline an_tensor *program_input(an_ctx *cx, an_shape s, int64_t n)
{
    float x[512];
    assert_true(n <= (int64_t)AN_COUNT(x));
    for (int64_t i = 0; i < n; i++) x[i] = (float)((i * 37 + 11) % 64) / 32.0f - 1.0f;
    return an_input(cx, AN_F32, s, x);
}

static inline an_tensor *program_ids(an_ctx *cx, an_shape s, int64_t n, int32_t below, int32_t step)
{
    int32_t x[64];
    assert_true(n <= (int64_t)AN_COUNT(x));
    for (int64_t i = 0; i < n; i++) x[i] = (int32_t)(i * step + 3) % below;
    return an_input(cx, AN_I32, s, x);
}

/* Softmax over a linear layer: x [6,40], 5 classes. */
static inline void classifier(an_ctx *cx, program *p)
{
    an_tensor *x = program_input(cx, AN_SHAPE(6, 40), 240);
    an_tensor *y = program_ids(cx, AN_SHAPE(6), 6, 5, 2);
    an_tensor *w = an_param(cx, "w", AN_F32, AN_SHAPE(40, 5), AN_NORMAL(0.1)),
              *b = an_param(cx, "b", AN_F32, AN_SHAPE(5), AN_ZEROS);
    p->loss = an_mean(an_cross_entropy(an_add(an_matmul(x, w), b), y), AN_ALL);
    an_backward(p->loss);
    p->norm = an_sgd(cx, 0.1);
}

/* One block of a GPT with dropout, AdamW and clipping: [2,8] tokens of 11. */
static inline void gpt_block(an_ctx *cx, program *p)
{
    const an_gpt_config c = {
        .vocab = 11, .block = 8, .layers = 1, .heads = 2, .width = 16, .bias = true, .dropout = 0.25};
    p->gpt = an_gpt_open(cx, &c);
    assert_non_null(p->gpt);
    an_tensor *x = program_ids(cx, AN_SHAPE(2, 8), 16, 11, 5), *y = program_ids(cx, AN_SHAPE(2, 8), 16, 11, 7);
    p->loss = an_mean(an_gpt_losses(p->gpt, x, y, true), AN_ALL);
    an_backward(p->loss);
    p->norm = an_adamw(
        cx, ((an_adamw_options){.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1, .clip = 1}));
}

/* Convolution, pooling, a linear layer: x [2,8,8,3]. */
static inline void conv_net(an_ctx *cx, program *p)
{
    an_tensor *x = program_input(cx, AN_SHAPE(2, 8, 8, 3), 384);
    an_tensor *y = program_ids(cx, AN_SHAPE(2), 2, 5, 2);
    an_tensor *w = an_param(cx, "conv.w", AN_F32, AN_SHAPE(4, 3, 3, 3), AN_NORMAL(0.2)),
              *b = an_param(cx, "conv.b", AN_F32, AN_SHAPE(4), AN_ZEROS);
    an_tensor *v = an_param(cx, "out.w", AN_F32, AN_SHAPE(64, 5), AN_NORMAL(0.1));
    an_tensor *h = an_relu(an_conv2d(x, w, b, (an_window){.pad_h = 1, .pad_w = 1}));             /* [2,8,8,4] */
    h = an_avg_pool(h, (an_window){.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2}); /* [2,4,4,4] */
    p->loss = an_mean(an_cross_entropy(an_matmul(an_cast(an_reshape(h, AN_SHAPE(2, 64)), AN_F32), v), y), AN_ALL);
    an_backward(p->loss);
    p->norm = an_sgd(cx, 0.1);
}

static const struct {
    const char *name;
    void (*build)(an_ctx *cx, program *p);
} programs[] = {{"classifier", classifier}, {"gpt_block", gpt_block}, {"conv_net", conv_net}};

static inline program program_build(an_ctx *cx, size_t which)
{
    program p = {.name = programs[which].name};
    programs[which].build(cx, &p);
    if (an_error(cx)) fail_msg("%s: %s", p.name, an_error(cx));
    return p;
}

#endif
