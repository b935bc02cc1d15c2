/* fold.h: constants under elementwise ops, computed as a kernel would. Private to src/graph. */
#ifndef AN_GRAPH_FOLD_H
#define AN_GRAPH_FOLD_H

#include "graph/build.h"

/* Elementwise `op` on numbers of dtype t (WHERE: of its branches): x for floats, i for integers and bools. False: not
 * here, let the device say. */
bool an_fold_constant(an_op op, an_dtype t, const double *x, const int64_t *i, double *out, int64_t *out_i);

#endif
