/* puzzle_set.h: reads data sets of puzzles in the layout of TinyRecursiveModels, merges them, and draws batches from them.
 *
 *     DIR/{train,test}/dataset.json                     sizes and special ids (an_puzzle_meta)
 *     DIR/{train,test}/SET__inputs.npy, __labels.npy    [examples,seq_len] of u1, i4 or i8
 *                      SET__puzzle_identifiers.npy      [puzzles] i4: the row of the puzzle's embedding
 *                      SET__puzzle_indices.npy          [puzzles+1]: where the examples of a puzzle begin
 *                      SET__group_indices.npy           [groups+1]: where the puzzles of a group begin
 *     DIR/identifiers.json                              names of the identifiers
 *
 * A group is an original puzzle with its augmentations; a puzzle is one of them, with one identifier; an example is a
 * row of inputs and labels. Conversations are stored alike (a group and a puzzle each).
 *
 * Owns:      the mapped files; validating every number in them before it is used; the order of training.
 * Does not:  write them (puzzle_write.h), or know what a token means.
 * Invariants: inputs are in [0, vocab_size), labels too or AN_PUZZLE_IGNORED, identifiers in [0, num_puzzle_identifiers).
 *            What a batch holds is a pure function of (order, update). Threads may share an opened set.
 */
#ifndef AN_IO_DATA_PUZZLE_SET_H
#define AN_IO_DATA_PUZZLE_SET_H

#include "io/hash128.h"

enum { AN_PUZZLE_IGNORED = -100, AN_PUZZLE_MAX_PARTS = 64, AN_PUZZLE_PATH_BYTES = 1024 };

typedef struct an_puzzle_meta {
    int64_t vocab_size, seq_len;
    int64_t pad_id;
    bool ignores;            /* labels equal to the next are AN_PUZZLE_IGNORED when read */
    int64_t ignore_label_id; /* in the files */
    int64_t blank_identifier_id, num_puzzle_identifiers;
    int64_t total_groups, total_puzzles;
    double mean_puzzle_examples;
} an_puzzle_meta;

typedef struct an_puzzle_set an_puzzle_set;

/* A split ("train", "test") of one or more directories, which must agree in seq_len, vocab_size, special ids and number
 * of identifiers; counts are added up. AN_E_IO or AN_E_DATA with file and row. */
an_status an_puzzle_set_open(an_err *err, const char *const *dirs, int n, const char *split, an_puzzle_set **out);
/* The same where `dirs` is a list (an_list): "a", "[a,b]", "['a', 'b']" or "a,b". */
an_status an_puzzle_set_open_list(an_err *err, const char *dirs, const char *split, an_puzzle_set **out);
void an_puzzle_set_close(an_puzzle_set *s); /* NULL is fine */
/* seq_len of the first folder of such a list, of which nothing else is read; 0: there is none, or it does not say. */
int64_t an_puzzle_set_length(const char *dirs);

const an_puzzle_meta *an_puzzle_set_meta(const an_puzzle_set *s);
int64_t an_puzzle_set_examples(const an_puzzle_set *s); /* of all directories */
int64_t an_puzzle_set_groups(const an_puzzle_set *s);
size_t an_puzzle_set_bytes(const an_puzzle_set *s); /* host memory held; maps are not counted */
/* AN_E_DATA where a model that learns from `train` could not read `test`: other tokens, lengths or special ids, or, with `ids`,
 * more identifiers. */
an_status an_puzzle_set_agree(an_err *err, const an_puzzle_set *train, const an_puzzle_set *test, bool ids);
/* AN_E_DATA where no example of the split has a label among its first `length` places: nothing can be learnt or measured. */
an_status an_puzzle_set_labelled(an_err *err, const an_puzzle_set *s, const char *split, int64_t length);
/* Path number i of the list; NULL behind the last. */
const char *an_puzzle_set_dir(const an_puzzle_set *s, int i);

/* Example `e`: inputs i32 [seq_len], labels i32 [seq_len] (NULL: not wanted), the puzzle's identifier. */
an_status an_puzzle_set_read(an_err *err, const an_puzzle_set *s, int64_t e, int32_t *inputs, int32_t *labels,
                             int32_t *identifier);

/* The order of training. A pass goes through one part (a set of a directory; the parts take turns): epochs_per_pass times
 * a random order of the part's groups, of each a random puzzle, of which all examples that the batch has room for,
 * in random order; the rest of a puzzle that did not fit, and a batch that is not full at the pass's end, are left out. */
typedef struct an_puzzle_order {
    uint64_t seed;
    int64_t per_update;      /* examples in an update's whole batch */
    int64_t epochs_per_pass; /* 0: 1 */
} an_puzzle_order;

/* Whether every pass has a full batch; AN_E_DATA: a batch is larger than the data. */
an_status an_puzzle_set_check(an_err *err, const an_puzzle_set *s, const an_puzzle_order *o);
/* Examples number first ... first + n of the batch of `update` (from 0). */
an_status an_puzzle_set_draw(an_err *err, const an_puzzle_set *s, const an_puzzle_order *o, uint64_t update,
                             int64_t first, int64_t n, int64_t *examples);
/* Updates in the first `rounds` passes through each part, at most INT64_MAX. AN_E_USAGE: so many draws of puzzles with
 * several examples that counting them would take minutes. */
an_status an_puzzle_set_updates(an_err *err, const an_puzzle_set *s, const an_puzzle_order *o, int64_t rounds,
                                int64_t *out);

/* Over everything that reading gives; "" without memory. */
void an_puzzle_set_hash(const an_puzzle_set *s, char out[AN_HASH_TEXT_BYTES]);

#endif
