/* The state of a run in a checkpoint: whatever the text, what is read is within bounds, and is read again from what is
 * written of it. */
#include "fuzz.h"
#include "train/run_state.h"
#include "train/step.h"
#include <float.h>
#include <math.h>

static bool fuzz_one(const char *data, size_t bytes)
{
    an_err err = {0};
    an_run_state s, again;
    an_text out = {0};
    char *text = malloc(bytes + 1); /* metadata are strings: of their exact size */
    FUZZ_CHECK(text != NULL);
    memcpy(text, data, bytes);
    text[bytes] = 0;
    const an_status status = an_run_state_read(&err, "fuzz", text, "tokens", &s);
    free(text);
    fuzz_check_sentence(status, &err);
    if (status != AN_OK) return false;
    FUZZ_CHECK(s.step >= 0 && s.step <= AN_STEP_MOST && s.best_step >= 0 && s.best_step <= s.step);
    FUZZ_CHECK(fabs(s.best_val) <= (double)FLT_MAX || (isinf(s.best_val) && s.best_val > 0));
    an_run_state_write(&s, "tokens", &out);
    FUZZ_CHECK(!out.failed);
    if (an_run_state_read(&err, "fuzz", out.data, "tokens", &again) != AN_OK) {
        fprintf(stderr, "%s: %s\n", err.text, out.data);
        abort();
    }
    FUZZ_CHECK(again.step == s.step && again.best_step == s.best_step && again.owes_evaluation == s.owes_evaluation);
    FUZZ_CHECK(again.best_val == s.best_val && again.counted == s.counted);
    for (int i = 0; i < AN_N_SPLITS; i++) {
        FUZZ_CHECK(!s.counted || again.units[i] == s.units[i]);
        FUZZ_CHECK(strcmp(again.xxh3[i], s.xxh3[i]) == 0);
    }
    an_text_free(&out);
    return true;
}

static const fuzz_seed seeds[] = {
    SEED("{\"anneal\":\"0.1.0\",\"step\":50,\"best_val\":4.2098000000000004,\"best_step\":40,\"train_tokens\":1003854,"
         "\"val_tokens\":111540,\"train_xxh3\":\"00112233445566778899aabbccddeeff\",\"val_xxh3\":\"x\"}"),
    SEED("{\"step\":0,\"best_val\":null,\"owes_evaluation\":true}"),
    SEED("{\"step\":1073741822,\"best_val\":-1e38,\"best_step\":1073741822,\"train_tokens\":\"9\","
         "\"val_tokens\":1.5,\"val_xxh3\":\"0123456789abcdef0123456789abcdef0\",\"train_xxh3\":7}"),
};

static size_t fuzz_seeds(const fuzz_seed **out)
{
    *out = seeds;
    return AN_COUNT(seeds);
}
