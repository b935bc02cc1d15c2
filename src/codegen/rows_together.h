/* rows_together.h: how many neighbouring rows of a kernel of columns with long sums are summed at once, so that what they share is loaded once.
 *
 *     dw[n, tap, c] = sum over q of dy[n, q, c] * x[n, q + tap, c]      9 rows: dy once, and x from the L1 cache
 *
 * Owns:       the choice: a divisor of the rows such that each index is, for row i of every such group, the first row's plus a constant.
 *             With it all that the renderer and the CPU's loader ask of such a kernel (an_columns): each finds it once.
 * Does not:   render (render_c_columns.c), divide into tasks (device/cpu/cpu.c, which does not cut a group). */
#ifndef AN_CODEGEN_ROWS_TOGETHER_H
#define AN_CODEGEN_ROWS_TOGETHER_H

#include "codegen/planes.h"

#define AN_MOST_ROWS_TOGETHER 9
#define AN_SUMS_TOGETHER      12 /* vectors of sums: AVX2 has 16 registers */
#define AN_WINDOW_OF_A_SUM    64 /* elements: longer sums are long */

typedef struct an_columns {
    int together;     /* rows summed at once; 1: each for itself */
    an_planes planes; /* rows 0: none */
    int64_t tests;    /* bytes at the start of a thread's buffer: the results of the bounds tests of one image */
    /* of a thread's buffer (an_tile.acc), tests and planes: too large for the stack of any thread */
    size_t buffer_bytes;
} an_columns;

an_columns an_columns_of(const an_loop_kernel *p);
/* What the index of row i of a group is more than that of its first row. */
int64_t an_row_apart(const an_loop_kernel *p, an_ix ix, int i);
/* Whether a load is the same for all rows of a group of n. */
bool an_is_shared(const an_loop_kernel *p, const an_ins *in, int n);

#endif
