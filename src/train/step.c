#include "train/step.h"
#include <anneal_nn.h>

double an_step_lr(const an_train_config *c, int64_t iteration)
{
    const an_lr_schedule s = {.lr = c->learning_rate,
                              .min_lr = c->min_lr,
                              .warmup = c->warmup_iters,
                              .decay = c->lr_decay_iters,
                              .constant = !c->decay_lr};
    return an_lr_at(&s, iteration);
}

an_step an_step_build(an_ctx *cx, an_gpt *m, const an_train_config *c, int64_t iteration, int64_t micro,
                      const int32_t *x, const int32_t *y)
{
    const int64_t B = c->batch_size, T = c->block_size, micros = c->gradient_accumulation_steps;
    /* Dropout draws by (step, global sample), so that micro-batches drop what one large batch would. */
    an_set_step(cx, (uint64_t)iteration);
    an_set_sample(cx, (uint64_t)(micro * B));
    an_tensor *tokens = an_input(cx, AN_I32, AN_SHAPE(B, T), x); /* [B,T] */
    an_tensor *labels = an_input(cx, AN_I32, AN_SHAPE(B, T), y); /* [B,T] */
    an_step s = {.loss = an_mean(an_gpt_losses(m, tokens, labels, true), AN_ALL)};
    an_backward(micros > 1 ? an_mul_num(s.loss, 1.0 / (double)micros) : s.loss);
    if (micro == micros - 1)
        s.norm = an_adamw(cx, ((an_adamw_options){.lr = an_step_lr(c, iteration),
                                                  .beta1 = c->beta1,
                                                  .beta2 = c->beta2,
                                                  .eps = 1e-8,
                                                  .weight_decay = c->weight_decay,
                                                  .clip = c->grad_clip,
                                                  .t = iteration + 1}));
    return s;
}

an_tensor *an_step_evaluation(an_ctx *cx, an_gpt *m, int64_t B, int64_t T, const int32_t *x, const int32_t *y)
{
    an_tensor *tokens = an_input(cx, AN_I32, AN_SHAPE(B, T), x); /* [B,T] */
    an_tensor *labels = an_input(cx, AN_I32, AN_SHAPE(B, T), y); /* [B,T] */
    return an_sum(an_gpt_losses(m, tokens, labels, false), AN_ALL);
}
