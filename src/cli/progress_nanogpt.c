/* progress_nanogpt.c: the log lines of nanoGPT's train.py, letter for letter, for scripts that parse them.
 *
 * The numbers differ where nanoGPT's mislead: `loss` is the mean over the micro-batches, not the last one's; `time`
 * is of an update alone, not of the evaluation before it. `mfu` is nanoGPT's, a share of an A100's 312 TFLOP/s, so that
 * lines can be compared. */
#include "cli/progress.h"
#include "io/config/config.h"
#include "platform/platform.h"
#include <anneal_tools.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double a100_flops = 312e12;

/* Weight decay applies to tensors of two axes or more. */
static void print_decayed(an_ctx *cx, bool decayed)
{
    char elements[32];
    int64_t tensors = 0, sum = 0;
    an_persist p;
    for (int i = 0; i < an_persist_count(cx) && an_persist_get(cx, i, &p) == AN_OK; i++) {
        int64_t n = 1;
        for (int axis = 0; axis < p.shape.rank; axis++) n *= p.shape.dim[axis];
        if (p.kind != 0 || (p.shape.rank >= 2) != decayed) continue;
        tensors++;
        sum += n;
    }
    printf("num %s parameter tensors: %lld, with %s parameters\n", decayed ? "decayed" : "non-decayed",
           (long long)tensors, an_grouped(sum, elements));
}

/* nanoGPT finds a vocabulary beside the tokens, or takes GPT-2's. */
static bool print_found_vocabulary(const an_session *r)
{
    char meta[AN_CONFIG_TEXT_BYTES + 16];
    snprintf(meta, sizeof meta, "%s/meta.pkl", r->cfg.data);
    if (!r->data->tokenizer || access(meta, R_OK) != 0) return false;
    printf("found vocab_size = %d (inside %s)\n", (int)an_tokenizer_vocab(r->data->tokenizer), meta);
    return true;
}

/* A value as Python prints the literal that was typed: 1e-3 as 0.001, 1e-5 as 1e-05, a switch as True; else the text. */
static void print_value(const char *typed)
{
    char number[40], *end;
    const double v = strtod(typed, &end);
    const bool is_float = *typed && !*end && typed[strcspn(typed, ".eE")] && !typed[strspn(typed, "+-.0123456789eE_")];
    int digits = 1;
    if (strcmp(typed, "true") == 0 || strcmp(typed, "false") == 0) {
        printf("%s\n", *typed == 't' ? "True" : "False");
        return;
    }
    if (!is_float || !isfinite(v)) {
        printf("%s\n", typed);
        return;
    }
    do snprintf(number, sizeof number, "%.*g", digits, v); /* the fewest that read back as the same number */
    while (digits++ < 17 && strtod(number, NULL) != v);
    if (strchr(number, 'e') && fabs(v) >= 1e-4 && fabs(v) < 1e16) snprintf(number, sizeof number, "%.0f", v);
    printf("%s%s\n", number, strpbrk(number, ".e") ? "" : ".0");
}

/* Of configurator.py: a file of settings with its text, then the settings. log_format, which nanoGPT has not, is left out. */
void an_nanogpt_overrides(const an_args *args)
{
    const char *file = args->n_words ? args->words[0] : NULL, *dot = file ? strrchr(file, '.') : NULL;
    char *text;
    size_t n;
    if (dot && (strcmp(dot, ".py") == 0 || strcmp(dot, ".yaml") == 0) &&
        an_file_read(NULL, file, AN_CONFIG_FILE_BYTES, &text, &n) == AN_OK) {
        an_text_printable(text, n); /* a file from elsewhere must not steer a terminal */
        printf("Overriding config with %s:\n%s\n", file, text);
        free(text);
    }
    for (size_t i = 0; i < args->n_settings; i++) {
        if (strcmp(args->settings[i].key, "log_format") == 0) continue;
        printf("Overriding: %s = ", args->settings[i].key);
        print_value(args->settings[i].value);
    }
    fflush(stdout);
}

void an_nanogpt_begin(const an_session *r)
{
    char tokens[32];
    const an_train_config *c = &r->cfg;
    const an_weight_formats *w = c->model->weights;
    an_model_counts counts;
    c->model->count(an_model_settings(c), c->batch_size, &counts);
    printf("tokens per iteration will be: %s\n",
           an_grouped(c->gradient_accumulation_steps * c->batch_size * an_task_units(c), tokens));
    const bool found = print_found_vocabulary(r);
    const bool published = w && w->is_published && w->is_published(c->init_from);
    if (r->step > 0)
        printf("Resuming training from %s\n", c->out);
    else if (published)
        printf("Initializing from OpenAI GPT-2 weights: %s\n", c->init_from);
    else
        printf("Initializing a new model from scratch\n");
    an_train_config settings = *c;
    const int64_t *vocabulary = an_train_number(&settings, "vocab_size");
    if (r->step == 0 && !published && !found && vocabulary && *vocabulary == 50304)
        printf("defaulting to vocab_size of GPT-2 to 50304 (50257 rounded up for efficiency)\n");
    printf("number of parameters: %.2fM\n", (double)counts.parameters_printed / 1e6);
    print_decayed(r->cx, true);
    print_decayed(r->cx, false);
    an_device_facts device;
    const bool on_gpu = an_device_opened(r->cx, &device) && device.gpu && device.own_memory;
    printf("using fused AdamW: %s\n", on_gpu ? "True" : "False"); /* by nanoGPT's rule: on CUDA */
    if (c->compile) printf("compiling the model... (takes a ~minute)\n");
    fflush(stdout);
}

/* A running mean from the fifth iteration of this process on (local_iter_num >= 5), as nanoGPT begins it. */
static double running_mfu(an_progress *n, const an_session *r, const an_train_event *e)
{
    an_model_counts counts;
    r->cfg.model->count(an_model_settings(&r->cfg), r->cfg.batch_size * r->cfg.gradient_accumulation_steps, &counts);
    const double mfu = counts.flops_printed / (1e-3 * e->ms) / a100_flops;
    if (n->first_step < 0) n->first_step = e->step;
    if (e->step - n->first_step < 5) return -1;
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
