/* puzzle_write.h: writes the directories that puzzle_set.h reads.
 *
 * Owns:      the files of one split while they grow; nothing appears under its name before an_puzzle_writer_end.
 * Invariant: memory is that of the offsets (12 bytes a puzzle), not of the examples.
 */
#ifndef AN_IO_DATA_PUZZLE_WRITE_H
#define AN_IO_DATA_PUZZLE_WRITE_H

#include "io/data/puzzle_set.h"

typedef struct an_puzzle_writer an_puzzle_writer;

/* DIR/SPLIT with the set `all`. Of `meta`, the totals and the mean are counted by the writer, unless they are not 0. dtype:
 * AN_U8, AN_I32 or AN_I64, of inputs and labels. */
an_status an_puzzle_writer_open(an_err *err, const char *dir, const char *split, const an_puzzle_meta *meta,
                                an_dtype dtype, an_puzzle_writer **out);
/* inputs and labels [seq_len], as the file is to have them. */
an_status an_puzzle_writer_example(an_err *err, an_puzzle_writer *w, const int32_t *inputs, const int32_t *labels);
/* The examples since the last one are a puzzle; the puzzles since the last one are a group. */
an_status an_puzzle_writer_puzzle(an_err *err, an_puzzle_writer *w, int32_t identifier);
an_status an_puzzle_writer_group(an_err *err, an_puzzle_writer *w);
/* num_puzzle_identifiers, where it is known at the end only. */
void an_puzzle_writer_identifiers(an_puzzle_writer *w, int64_t n);
int64_t an_puzzle_writer_examples(const an_puzzle_writer *w);
/* Puts the files in place, dataset.json last, and frees the writer, also when it fails. */
an_status an_puzzle_writer_end(an_err *err, an_puzzle_writer *w);
void an_puzzle_writer_abort(an_puzzle_writer *w); /* NULL is fine */

/* DIR/identifiers.json: a list whose places are the identifiers. */
an_status an_puzzle_identifiers_write(an_err *err, const char *dir, const char *const *names, int64_t n);

#endif
