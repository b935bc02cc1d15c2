/* init_from.h: the weights a new run starts from: none, those of a run or a file, or published ones by name.
 *
 * Owns:      what init_from= may name; taking the shape of such weights over into the model's settings.
 * Does not:  parse files (models/, io/) or put weights into a model (session.c). */
#ifndef AN_TRAIN_INIT_FROM_H
#define AN_TRAIN_INIT_FROM_H

#include "train/session.h"

/* NULL for scratch. Sets the model's shape in `c` to that of the weights. With `shape_only` published files need not be
 * there, and *out may be NULL for them. */
an_status an_init_weights_open(an_err *err, an_train_config *c, bool shape_only, an_st **out); /* an_st_close */

#endif
