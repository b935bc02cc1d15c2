/* init_weights.h: the weights a new run starts from: none, those of a run or a file, or GPT-2's under their names.
 *
 * Owns:      what init_from= may name, where GPT-2's files are looked for, the shape that such weights force on a
 * model. Does not:  parse files (io/) or put weights into a model (session.c). */
#ifndef AN_TRAIN_INIT_WEIGHTS_H
#define AN_TRAIN_INIT_WEIGHTS_H

#include "train/config.h"
#include "io/formats/safetensors.h"

/* NULL for scratch. Sets the model's shape in `c` to that of the weights; a block_size below theirs stays: the table of
 * positions is cut. With `shape_only` GPT-2's files need not be there, and *out may be NULL for them. */
an_status an_init_weights_open(an_err *err, an_train_config *c, bool shape_only, an_st **out); /* an_st_close */

#endif
