/* progress_nanogpt.c: training told in nanoGPT's words, letter for letter, for scripts and people that read them.
 *
 * The numbers are ours where nanoGPT's mislead: `loss` is the mean over the micro-batches, not the last one's; `time`
 * is of an update alone, not of the evaluation before it. `mfu` is nanoGPT's, a share of an A100's 312 TFLOP/s, so that
 * lines can be compared. */
#include "cli/progress.h"
#include <stdio.h>
#include <string.h>

static const double a100_flops = 312e12;

void an_nanogpt_begin(const an_session *r)
{
    char tokens[32], decayed[32], others[32];
    const an_train_config *c = &r->cfg;
    const an_gpt_config *m = an_gpt_config_of(r->model);
    /* Matrices: wte, wpe and four a layer; the others are the norms' gains, and with `bias` as many biases. */
    const int64_t C = m->width, matrices = 2 + 4 * m->layers, norms = 2 * m->layers + 1;
    const int64_t decayed_n = (m->vocab + m->block) * C + 12 * m->layers * C * C;
    printf("tokens per iteration will be: %s\n",
           an_grouped(c->gradient_accumulation_steps * c->batch_size * c->block_size, tokens));
    if (r->step > 0)
        printf("Resuming training from %s\n", c->out);
    else if (strncmp(c->init_from, "gpt2", 4) == 0)
        printf("Initializing from OpenAI GPT-2 weights: %s\n", c->init_from);
    else
        printf("Initializing a new model from scratch\n");
    printf("number of parameters: %.2fM\n", (double)an_gpt_parameters_printed(m) / 1e6);
    printf("num decayed parameter tensors: %lld, with %s parameters\n", (long long)matrices,
           an_grouped(decayed_n, decayed));
    printf("num non-decayed parameter tensors: %lld, with %s parameters\n",
           (long long)(m->bias ? 2 * norms + 4 * m->layers : norms),
           an_grouped(an_gpt_parameters(m) - decayed_n, others));
    fflush(stdout);
}

/* From the sixth line on a running mean, as estimate_mfu has it. */
static double running_mfu(an_progress *n, const an_session *r, const an_train_event *e)
{
    const an_gpt_config *m = an_gpt_config_of(r->model);
    const double sequences = (double)(r->cfg.batch_size * r->cfg.gradient_accumulation_steps), T = (double)m->block;
    const double token = 6 * (double)an_gpt_parameters_printed(m) + 12 * (double)(m->layers * m->width) * T;
    const double mfu = token * T * sequences / (1e-3 * e->ms) / a100_flops;
    if (n->lines++ < 5) return -1;
    return n->mfu = n->mfu < 0 ? mfu : 0.9 * n->mfu + 0.1 * mfu;
}

void an_nanogpt_tell(an_progress *n, const an_session *r, const an_train_event *e)
{
    if (e->kind == AN_TRAIN_LOGGED && e->step % r->cfg.log_interval == 0)
        printf("iter %lld: loss %.4f, time %.2fms, mfu %.2f%%\n", (long long)e->step, e->loss, e->ms,
               100 * running_mfu(n, r, e));
    if (e->kind == AN_TRAIN_EVALUATED)
        printf("step %lld: train loss %.4f, val loss %.4f\n", (long long)e->step, e->train_loss, e->val_loss);
    if (e->kind == AN_TRAIN_SAVED && e->step > 0) printf("saving checkpoint to %s\n", r->cfg.out);
    fflush(stdout);
}
