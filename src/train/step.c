#include "train/step.h"
#include <anneal_nn.h>
#include <math.h>
#include <string.h>

double an_step_lr(const an_train_config *c, int64_t iteration)
{
    const an_lr_schedule s = {.lr = c->learning_rate,
                              .min_lr = c->min_lr,
                              .warmup = c->warmup_iters,
                              .decay = c->lr_decay_iters,
                              .constant = !c->decay_lr};
    return an_lr_at(&s, iteration);
}

int64_t an_step_losses(const an_train_config *c)
{
    enum { USUAL = 256 };
    return c->gradient_accumulation_steps > USUAL ? c->gradient_accumulation_steps : USUAL;
}

an_tensor *an_step_kept(an_ctx *cx, const an_train_config *c)
{
    return an_state(cx, "losses", AN_F32, AN_SHAPE(an_step_losses(c)), AN_ZEROS); /* [n] */
}

/* `loss` becomes number i of the losses kept. */
static an_tensor *keep(an_ctx *cx, const an_train_config *c, an_tensor *loss, int64_t i)
{
    an_tensor *kept = an_step_kept(cx, c);                           /* [n] */
    an_tensor *number = an_iota(cx, AN_SHAPE(an_step_losses(c)), 0); /* [n] */
    an_assign(kept, an_where(an_eq(number, an_scalar_i32(cx, (int32_t)i)), loss, kept));
    return kept;
}

/* 0; or 1 + 2 u + n of the first update u that was bad; n: its norm was NaN, else infinite. */
static an_tensor *stopped_at(an_ctx *cx)
{
    return an_state(cx, "stopped", AN_I32, AN_SCALAR, AN_ZEROS);
}

static void stop_if_bad(an_ctx *cx, const an_step *s, an_tensor *going, int64_t iteration)
{
    an_tensor *zero = an_const(cx, AN_I32, 0), *one = an_const(cx, AN_I32, 1);
    an_tensor *code =
        an_add(an_scalar_i32(cx, (int32_t)(2 * iteration + 1)), an_where(an_ne(s->norm, s->norm), one, zero));
    an_tensor *bad = an_and(going, an_not(an_isfinite(s->norm)));
    if (s->scale) bad = an_and(bad, an_le(s->scale, an_const(cx, AN_F32, 1))); /* a larger one is halved first */
    an_assign(s->stopped, an_where(bad, code, s->stopped));
}

bool an_step_stopped(int32_t stopped, int64_t *iteration, double *norm)
{
    if (stopped <= 0) return false;
    *iteration = (stopped - 1) / 2;
    *norm = (stopped - 1) % 2 ? (double)NAN : (double)INFINITY;
    return true;
}

static void build_update(an_ctx *cx, const an_train_config *c, int64_t iteration, an_step *s)
{
    an_tensor *going = NULL; /* bool scalar */
    if (strcmp(c->nan, "stop") == 0) {
        s->stopped = stopped_at(cx);
        going = an_eq(s->stopped, an_const(cx, AN_I32, 0));
    }
    if (c->dtype == AN_F16) {
        s->scale = an_loss_scale(cx);
        s->skipped = an_skipped_updates(cx);
    }
    s->norm = an_adamw(cx, ((an_adamw_options){.lr = an_step_lr(c, iteration),
                                               .beta1 = c->beta1,
                                               .beta2 = c->beta2,
                                               .eps = 1e-8,
                                               .weight_decay = c->weight_decay,
                                               .clip = c->grad_clip,
                                               .t = iteration + 1,
                                               .only_if = going,
                                               .scaled = c->dtype == AN_F16}));
    if (s->stopped) stop_if_bad(cx, s, going, iteration);
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
    an_tensor *part = micros > 1 ? an_mul_num(s.loss, 1.0 / (double)micros) : s.loss;
    an_backward(c->dtype == AN_F16 ? an_scale_loss(part) : part);
    if (micros > 1) s.losses = keep(cx, c, s.loss, micro);
    s.root[s.n_roots++] = s.losses ? s.losses : s.loss;
    if (micro < micros - 1) return s;
    build_update(cx, c, iteration, &s);
    an_tensor *const more[] = {s.norm, s.stopped, s.scale, s.skipped};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (more[i]) s.root[s.n_roots++] = more[i];
    return s;
}

an_status an_step_plan(const an_step *s)
{
    return an_plan_at(AN_AT, s->root, s->n_roots);
}

an_status an_step_eval(const an_step *s)
{
    return an_eval_at(AN_AT, s->root, s->n_roots);
}

an_tensor *an_step_evaluation(an_ctx *cx, an_gpt *m, const an_train_config *c, int64_t i, const int32_t *x,
                              const int32_t *y)
{
    const an_shape shape = AN_SHAPE(c->batch_size, c->block_size);
    an_tensor *tokens = an_input(cx, AN_I32, shape, x); /* [B,T] */
    an_tensor *labels = an_input(cx, AN_I32, shape, y); /* [B,T] */
    return keep(cx, c, an_sum(an_gpt_losses(m, tokens, labels, false), AN_ALL), i);
}
