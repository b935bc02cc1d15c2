/* bench_sample.h: how long a token takes when a model generates text one token at a time.
 *
 * Owns:      the protocol: a short text warms up, a second one is timed, in turn with reading as many bytes.
 * Does not:  print; open what it times. */
#ifndef AN_TOOLS_BENCH_SAMPLE_H
#define AN_TOOLS_BENCH_SAMPLE_H

#include "train/session.h"

typedef struct an_bench_sample_result {
    double cold_s;                 /* the first token of all: planning, compiling and the prompt */
    double first_ms;               /* the first token of a text, warm: the prompt in one pass */
    double p50_ms, p95_ms, p99_ms; /* of the tokens after it */
    double tokens_per_s;           /* of all texts' tokens after the first */
    double moved_bytes; /* read and written by kernels for a token, by the plan; of the cache of keys what is filled */
    double read_gbytes; /* GB/s of reading read_mib again and again, the median of times taken before the text, between
                         * its tokens and after it, with as many threads: what bounds a single text, whether memory or
                         * a cache holds the weights */
    int64_t read_mib;   /* as much as a token moves, 256 at most */
    int64_t tokens;     /* of a text, timed: not the first, nor the one after each time that reading was timed */
} an_bench_sample_result;

/* Draws `texts` texts at a time, each of `tokens` tokens (at least 2) after a random prompt of `prompt` tokens (at
 * least 1). AN_E_USAGE: both together exceed the model's context, or the model generates no text. */
an_status an_bench_sample(an_err *err, an_session *r, int64_t texts, int64_t prompt, int64_t tokens,
                          an_bench_sample_result *out);

#endif
