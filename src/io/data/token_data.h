/* token_data.h: token data for language models: where it comes from, and which tokens a batch holds.
 *
 * Owns:      the tokens of a training and a validation split, and batches of them.
 * Does not:  download, change the order of a file's tokens (windows are shuffled: order.h), prepare batches ahead
 *            (loader.h), or know models.
 *
 * To add a dataset format of text: io/data/prepare_text.h says how, which turns texts into token files. To read another
 * format of token files: an_data_open. Any other kind of data: train/task.h.
 *
 * Invariants: which samples a batch holds is a pure function of (split, seed, step, sample): not of the number of
 * loader threads, not of where a run was resumed. An id outside the vocabulary never leaves here: it is an error with
 * file and byte. An open an_data is immutable: threads may share it. */
#ifndef AN_IO_DATA_TOKEN_DATA_H
#define AN_IO_DATA_TOKEN_DATA_H

#include "io/data/arrays.h"
#include "io/text/tokenizer.h"

typedef struct an_data an_data;

typedef struct an_data_options {
    /* "corpus": the built-in text. A folder: its train.bin and val.bin (nanoGPT's files: 16-bit little-endian ids). A
     * file NAME.bin: the same, split. Any other file: UTF-8 text, split. A split is the first 90 % and the rest: of the
     * characters of a text, of the tokens of a .bin. */
    const char *source;
    const an_tokenizer *tokenizer; /* NULL: of a text its characters, of .bin files that of the meta.json (anneal
                                    * prepare) or meta.pkl (nanoGPT) in their folder; one that is there must agree
                                    * with this one. Must outlive the data */
    int64_t vocab_size;            /* for .bin; 0: the tokenizer's */
    bool whole;                    /* do not split a file: all of it is the validation split (for evaluation) */
} an_data_options;

an_status an_data_open(an_err *err, const an_data_options *o, an_data **out);
void an_data_close(an_data *d);

int64_t an_data_tokens(const an_data *d, int split);
int64_t an_data_vocab(const an_data *d);
const an_tokenizer *an_data_tokenizer(const an_data *d); /* the caller's or the text's own; NULL: a .bin without one */
size_t an_data_bytes(const an_data *d);                  /* host memory held, maps of files not counted */

/* A batch: B samples of T tokens, the first of them sample `first` of the step's whole batch (micro-batch m of size B
 * has first = m*B, and so the micro-batches of a step hold what one large batch would). */
typedef struct an_batch {
    int split;
    uint64_t seed;
    int64_t first, B, T;
    int64_t per_step; /* samples of a step's whole batch: epochs; 0: every sample is drawn alone */
} an_batch;

/* x[B,T] and y[B,T], y being x one token later. Sample s of a step starts at floor(u * (n - T) / 2^64), u the 64 bits
 * that the generator gives for (seed, step, s): uniform in [0, n - T) but for a bias below n / 2^64, with replacement.
 * With per_step > 0 the samples are taken in epochs instead: sample number step * per_step + s of the run is one of the
 * floor((n - T) / T) windows that follow one another from a random first token, each once an epoch, in a random order
 * (a Feistel network walked until it stays inside, Black and Rogaway, "Ciphers with arbitrary finite domains",
 * CT-RSA 2002). So every token is learnt from equally often; the order is a function of (seed, step) still. */
an_status an_data_batch(an_err *err, const an_data *d, const an_batch *b, uint64_t step, int32_t *x, int32_t *y);

/* Whether both splits have a sample of T tokens. */
an_status an_data_check(an_err *err, const an_data *d, int64_t T);

/* Evaluation over a whole split: window w is tokens [w*T, w*T + T] for all floor((n-1)/T) windows; x[count,T],
 * y[count,T]. */
int64_t an_data_windows(const an_data *d, int split, int64_t T);
an_status an_data_window(an_err *err, const an_data *d, int split, int64_t T, int64_t first, int64_t count, int32_t *x,
                         int32_t *y);

#endif
