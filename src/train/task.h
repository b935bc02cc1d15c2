/* task.h: what a model is trained for: one row of a table.
 *
 * Owns:      the row (names shown to people, settings, data and batches, evaluation samples) and the registry.
 * Does not:  know models' graphs (models/model.h) or the order of training (loop.h): both meet in named arrays, which
 *            a model asks for (an_model.inputs) and a task's data fill.
 *
 * To add a task: a file train/tasks/NAME.c with one an_task, and one line in train/tasks.c. To add a dataset format to a
 * task: a reader in io/data/ (table.h reads .npy files, token_data.h token files), called by the task's `open`.
 *
 * A *sample* is what the first axis of an array counts (a window of tokens, a row of a table); a *unit* is what throughput
 * counts: the same, or a part of it (a token).
 *
 * Invariant: a batch is a pure function of (split, seed, step, sample), the same in whatever thread and order it
 * is asked for, so that no generator has a state to save and a resumed run sees the same batches.
 */
#ifndef AN_TRAIN_TASK_H
#define AN_TRAIN_TASK_H

#include "io/checkpoint.h"
#include "io/data/class_names.h"
#include "io/data/loader.h"
#include "io/text/tokenizer.h"
#include "train/config.h"

/* What every task's open data begin with. */
typedef struct an_task_data {
    bool loaded;                   /* false: opened without data */
    bool built_in;                 /* the data are part of the program: there is no file */
    const an_tokenizer *tokenizer; /* NULL: there is none */
    int64_t units[AN_N_SPLITS];    /* in each split */
    int64_t epoch;                 /* training samples in an epoch, where that is a word of the task's; 0: it is none */
    size_t bytes;                  /* of host memory held; files that are mapped are not counted */
} an_task_data;

/* Samples drawn for a step: `samples` of them, the first being sample `first` of the step's whole batch, so that the
 * micro-batches of a step hold what one large batch would. With per_step > 0, the size of that whole batch, samples
 * are taken in epochs; with 0 each is drawn alone, with replacement. */
typedef struct an_sample_range {
    int split;
    uint64_t seed;
    int64_t first, samples, per_step;
} an_sample_range;

/* Samples for the model's first input, contiguous and in its dtype, with a name for each. */
typedef struct an_questions {
    int64_t samples;
    size_t sample_bytes;
    void *data;
    an_text names;    /* one a sample, each ended by a NUL; empty: none */
    bool names_shown; /* behind each answer, where a person could not count them */
} an_questions;
void an_questions_free(an_questions *q);

/* AN_OPEN_WHOLE_FILE: as one validation split. AN_OPEN_INITIAL: `from` is what a new run begins with (init_from=),
 * which may have been trained for other classes. 4 is AN_RUN_PARAMETERS_ONLY of session.h. */
enum { AN_OPEN_DATA = 1, AN_OPEN_WHOLE_FILE = 2, AN_OPEN_INITIAL = 8 };

/* A setting of the model, by its key, and a value. */
typedef struct an_task_size {
    const char *key;
    int64_t value;
} an_task_size;

/* A setting of the task that says in other units what a common one says: where a command line gives the common one, the
 * task's becomes `value`. */
typedef struct an_task_unit {
    const char *common, *key, *value;
} an_task_unit;

typedef struct an_task {
    const char *name;
    /* Names for people and for JSON keys: throughput is counted in units ("token", "tokens", "tok/s"), evaluation in
     * samples ("window"); `next` tells what to do with a trained run, before its name. */
    const char *unit, *units, *unit_rate, *sample, *next;
    const char *next_argument; /* and what after it, "" or " FILE" */
    const char *built_in;      /* what built-in data are called */
    const char *loss_exp;      /* name of the loss's exponential, where an evaluation says it ("perplexity") */

    /* Settings, as of a model (models/model.h). A resumed run may change none of them. */
    const an_config *keys;
    size_t settings_bytes;

    const an_task_unit *other_units; /* up to a row of NULL; NULL: none */

    /* The setting of the model that is the number of units in a sample; NULL: one. */
    const char *units_key;
    /* Sizes that the data settle, and what measurements without data take them to be; up to a row of NULL. NULL: none. */
    const an_task_size *sizes;
    void (*assume)(an_train_config *c); /* what a table cannot say of them; NULL: nothing */

    size_t data_bytes; /* of the struct that `open` fills, which begins with an an_task_data and is all zero before */
    /* Opens what the settings name and settles those of the model's that follow from it (a vocabulary, a number of
     * classes). `from`, a checkpoint or NULL, says how data were encoded when its weights were trained. */
    an_status (*open)(an_err *err, an_train_config *c, const an_st *from, int flags, an_task_data *d);
    void (*close)(an_task_data *d); /* frees what it holds, also where `open` failed half-way, but not the struct */

    /* `open` sets max_iters and lr_decay_iters itself where epochs is not 0. Else they become as many updates as `count`'s
     * training samples, so many times, are batches. */
    bool settles_epochs;

    /* Lines for the log: what settings that were not given have become, what of the data is left unused. NULL: none. */
    void (*tell)(const an_train_config *c, const an_task_data *d, an_text *out);

    /* Whether both splits can be drawn from. NULL: where `count` says so. */
    an_status (*check)(an_err *err, const an_task_data *d);
    /* 32 hexadecimal digits over the split's data; "" when they cannot be read. */
    void (*hash)(const an_task_data *d, int split, char out[AN_HASH_TEXT_BYTES]);

    an_status (*batch)(an_err *err, const an_task_data *d, const an_sample_range *draw, uint64_t step,
                       void *const *array);
    /* Evaluation in order: how many samples a split has (AN_E_DATA: none), and samples first ... first + count into
     * the front of arrays for `room` of them. The rest of the arrays is labelled to be ignored. */
    an_status (*count)(an_err *err, const an_task_data *d, int split, int64_t *out);
    an_status (*read)(an_err *err, const an_task_data *d, int split, int64_t first, int64_t count, int64_t room,
                      void *const *array);

    /* What else the meaning of the weights depends on (names of classes, a vocabulary of words), as a JSON object: kept
     * in checkpoints as AN_CKPT_TASK, where `open` finds it. NULL: nothing. */
    an_status (*facts)(an_err *err, const an_task_data *d, an_text *out);
    /* Makes samples to predict from out of a word of the command line: a file's name, or the sample itself. For "-" the
     * caller has read standard_input, which is NULL otherwise. A row without this function predicts from .npy arrays. */
    an_status (*questions)(an_err *err, const an_task_data *d, const char *word, const an_text *standard_input,
                           an_questions *out);
    bool questions_of_arrays; /* .npy files go to `questions` too, which knows their dtype */
    const an_class_names *(*classes)(const an_task_data *d); /* of predictions; NULL, or NULL returned: numbers */
    /* Appends the file of the model's array number `array` and the row in it that sample `row` of a split is. Only where `batch` draws
     * by an_draw_row; NULL: not known. */
    void (*locate)(const an_task_data *d, int split, int64_t row, int array, an_text *out);
    /* Folder i of those that a split's samples are from, for files that lie beside them; NULL past the last. */
    const char *(*folder)(const an_task_data *d, int split, int i);
} an_task;

extern const an_task *const an_tasks[];
extern const size_t an_n_tasks;
const an_task *an_task_find(const char *name); /* NULL: there is none */

/* What a row may leave out, of the task of `c`. */
int64_t an_task_units(const an_train_config *c); /* in a sample */
void an_task_assume(an_train_config *c);         /* sizes without data, for measurements */
an_status an_task_open(an_err *err, an_train_config *c, const an_st *from, int flags, an_task_data **out);
an_status an_task_check(an_err *err, const an_task *t, const an_task_data *d);
/* Refuses (AN_E_DATA) a batch larger than the data, which would hold samples twice; the memory that it needs would be
 * reported instead. A batch no larger than the preset's is allowed: a handful of samples is trained on as it is. */
an_status an_task_check_batch(an_err *err, const an_train_config *c, const an_task_data *d);
void an_task_close(const an_task *t, an_task_data *d); /* NULL data are fine */
/* Sets the model's size `key` to `have`, that of the data, where it is 0. AN_E_USAGE: both are 0, or the model has no
 * such setting. For `open`. */
an_status an_task_settle(an_err *err, an_train_config *c, const char *key, int64_t have);

/* A loader's source: the batches of a split of the session's data. With several ranks, `draw` says where this one's first
 * micro-batch begins; further ones are a micro-batch of every rank apart. */
typedef struct an_task_source {
    const an_task *task;
    const an_task_data *data;
    an_sample_range draw;
    int64_t micros, apart;        /* ranges of draw.samples that a batch is made of, and samples from one to the next */
    an_array part[AN_MAX_ARRAYS]; /* of one of them */
    int n;
} an_task_source;
void an_task_source_open(const an_train_config *c, const an_task_data *d, const an_sample_range *draw,
                         an_task_source *s, an_source *out);

#endif
