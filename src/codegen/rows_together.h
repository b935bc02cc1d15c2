/* rows_together.h: how many neighbouring rows of a kernel of columns with long sums are summed at once, so that what they share is loaded once.
 *
 *     dw[n, tap, c] = sum over q of dy[n, q, c] * x[n, q + tap, c]      9 rows: dy once, and x from the L1 cache
 *
 * Owns:       the choice: a divisor of the rows such that each index is, for row i of every such group, the first row's plus a constant.
 * Does not:   render (render_c_columns.c), divide into tasks (device/cpu/cpu.c, which does not cut a group). */
#ifndef AN_CODEGEN_ROWS_TOGETHER_H
#define AN_CODEGEN_ROWS_TOGETHER_H

#include "ir/loop_kernel.h"

#define AN_MOST_ROWS_TOGETHER 9
#define AN_WINDOW_OF_A_SUM    64 /* elements: longer sums are long */

/* 1: each row for itself. */
int an_rows_together(const an_loop_kernel *p);
/* What the index of row i of a group is more than that of its first row. */
int64_t an_row_apart(const an_loop_kernel *p, an_ix ix, int i);
/* Whether a load is the same for all rows of a group of n. */
bool an_is_shared(const an_loop_kernel *p, const an_ins *in, int n);

#endif
