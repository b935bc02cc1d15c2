/* checkpoint.h: the checkpoints of a run folder: last.safetensors, best.safetensors and step_N.safetensors.
 *
 * Owns:      the names of files, tensors and metadata keys; retention; finding a checkpoint; state hashes, which compare runs
 *            (inspect, compare), are not in the file, and are not checked when it is read.
 * Does not:  know what the state means: the caller passes tensors and JSON text. Find damage: io/formats/safetensors.h checks
 *            the structure of a file (a corrupt or cut one is an error), not the numbers in it. A damaged `last` is not
 *            replaced by an older one: resume takes RUN/step_N.safetensors by its path.
 *
 * A checkpoint is a safetensors file: parameters under their own names, the optimizer's moments as optimizer.m.NAME and
 * optimizer.v.NAME, anything else under a prefix of its own (ema.NAME); the run's state as JSON in the metadata.
 * Invariants: saving is atomic: a checkpoint under its name is complete at every moment, even if the process is killed or
 * the disk fills (platform/atomic_save.c). A run folder has one writer at a time. The next save removes the temporary
 * files of writers that have ended, and leaves those of running ones. */
#ifndef AN_IO_CHECKPOINT_H
#define AN_IO_CHECKPOINT_H

#include "io/formats/safetensors.h"
#include "io/hash128.h"

#define AN_CKPT_M         "optimizer.m."
#define AN_CKPT_V         "optimizer.v."
#define AN_CKPT_EMA       "ema."
#define AN_CKPT_STATE     "anneal.state"     /* metadata: JSON of the run: step, seed, best loss, ... */
#define AN_CKPT_CONFIG    "anneal.config"    /* metadata: JSON of the settings */
#define AN_CKPT_TASK      "anneal.task"      /* metadata: JSON of the task: names of classes, ... */
#define AN_CKPT_TOKENIZER "anneal.tokenizer" /* metadata: JSON of the tokenizer */

enum { AN_CKPT_PATH_BYTES = 1024 };

typedef struct an_ckpt_tensor {
    const char *prefix; /* NULL or "": a parameter */
    const char *name;
    an_dtype dtype;
    int rank;
    const int64_t *shape;
    const void *data;   /* or, when NULL: */
    an_st_read_fn read; /* gives the bytes piece by piece, in order */
    void *arg;
} an_ckpt_tensor;

typedef struct an_ckpt_meta {
    const char *key, *value;
} an_ckpt_meta;

typedef struct an_ckpt {
    const an_ckpt_tensor *tensors;
    size_t n_tensors;
    const an_ckpt_meta *meta;
    size_t n_meta;
} an_ckpt;

/* Writes DIR/WHICH.safetensors; `which` is "last", "best" or "step_N". The folder must exist: made anew, the
 * folder of a run that was moved away would seem to be there still. */
an_status an_ckpt_save(an_err *err, const char *dir, const char *which, const an_ckpt *what);
/* Gives an existing checkpoint a second name without writing its data again (a hard link; a copy where there are none).
 */
an_status an_ckpt_link(an_err *err, const char *dir, const char *from, const char *to);
/* Removes all but the `keep` newest numbered checkpoints; keep <= 0 removes none. */
an_status an_ckpt_prune(an_err *err, const char *dir, int keep);

typedef struct an_ckpt_entry {
    char path[AN_CKPT_PATH_BYTES];
    int64_t step; /* of step_N; -1 for last, -2 for best */
} an_ckpt_entry;

/* The checkpoints of a folder: best, last, then numbered ones by step. free(*out). */
an_status an_ckpt_list(an_err *err, const char *dir, an_ckpt_entry **out, size_t *n);

/* A file is itself. A folder means its last checkpoint, else its newest numbered one; with `best`, its best one. Where it has none of ours, the
 * newest step_N without an ending, as TinyRecursiveModels saves it. */
an_status an_ckpt_find(an_err *err, const char *run_or_file, bool best, char out[AN_CKPT_PATH_BYTES]);

/* Whether a checkpoint found in a folder is a regular file and no link. */
an_status an_ckpt_check(an_err *err, const char *path);

/* The tensor PREFIX NAME of an open checkpoint, which must have this dtype and shape. */
an_status an_ckpt_expect(an_err *err, const an_st *st, const char *prefix, const char *name, an_dtype dtype, int rank,
                         const int64_t *shape, const an_st_tensor **out);

/* A reader of the same file without moments and averages, for what other programs are given: a parameter that has an average
 * ("ema.NAME") is that average, one that the run keeps narrower than its model says (weights_dtype=) is float32. `st`
 * outlives it. *out is NULL where nothing differs. */
an_status an_ckpt_weights(an_err *err, const an_st *st, an_st **out);

/* State hashes, for "the same bits again".
 * A tensor's hash covers name, dtype, shape and bytes; a state's hash covers its tensors' hashes in the order of names.
 */
an_status an_ckpt_hash_tensor(an_err *err, const an_st_tensor *t, an_hash128 *out);
/* `each` has an_st_count() elements in the order of names, or is NULL. */
an_status an_ckpt_hash(an_err *err, const an_st *st, an_hash128 *out, an_hash128 *each);

#endif
