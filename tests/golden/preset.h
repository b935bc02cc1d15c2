/* preset.h: the training step of a preset, planned on a null device, with a fixed vocabulary: the plan must not depend
 * on any data. */
#ifndef AN_GOLDEN_PRESET_H
#define AN_GOLDEN_PRESET_H

#include "lib/gpt_settings.h"
#include "lib/test.h"

#include "runtime/context.h"
#include "train/step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct preset_plan {
    an_ctx *cx;
    an_gpt *model;
    const an_plan *plan;
} preset_plan;

/* The last micro-batch, which ends in the update. */
static inline preset_plan preset_open(const char *name, const char *device, an_dtype dtype)
{
    enum { VOCABULARY = 65 };
    an_err err = {0};
    an_train_config c;
    preset_plan p = {0};
    if (an_train_config_open(&err, name, &c) != AN_OK) fail_msg("%s", err.text);
    if (GPT(c)->vocab_size == 0) GPT(c)->vocab_size = VOCABULARY;
    p.cx = an_open(&(an_options){.device = device, .seed = 1, .verify = true});
    assert_non_null(p.cx);
    an_set_policy(p.cx, (an_policy){.matmul = dtype});
    const an_gpt_config m = gpt_of(&c, VOCABULARY);
    p.model = an_gpt_open(p.cx, &m);
    int32_t *zeros = calloc((size_t)(c.batch_size * GPT(c)->block_size), sizeof *zeros);
    assert_non_null(zeros);
    const an_step s = an_step_build(p.cx, p.model, &c, 0, c.gradient_accumulation_steps - 1, (void *[]){zeros, zeros});
    if (an_step_plan(&s) != AN_OK) fail_msg("%s on %s: %s", name, device, an_error(p.cx));
    free(zeros); /* lent until here: what is planned alone reads no values any more */
    p.plan = p.cx->last->plan;
    return p;
}

static inline void preset_close(preset_plan *p)
{
    an_gpt_close(p->model);
    an_close(p->cx);
}

#endif
