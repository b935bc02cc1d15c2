/* gpt_settings.h: a GPT's own settings among those of a run, for tests that set or look at them by name. */
#ifndef AN_TESTS_GPT_SETTINGS_H
#define AN_TESTS_GPT_SETTINGS_H

#include "models/gpt/gpt_model.h"
#include "train/config.h"

#define GPT(c) ((an_gpt_settings *)(void *)(c).model_settings.bytes)

/* Its model, with this many token ids where the settings leave that open. */
static inline an_gpt_config gpt_of(const an_train_config *c, int64_t vocab)
{
    an_gpt_config m = an_gpt_config_from(an_model_settings(c));
    if (m.vocab == 0) m.vocab = vocab;
    return m;
}

#endif
