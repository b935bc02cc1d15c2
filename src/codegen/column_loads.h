/* column_loads.h: which loads of a kernel of columns are the same for all rows, and which guards for all columns.
 *
 * Owns:      the choice.
 * Does not:  render (render_c_columns.c). */
#ifndef AN_CODEGEN_COLUMN_LOADS_H
#define AN_CODEGEN_COLUMN_LOADS_H

#include "ir/loop_kernel.h"

/* A load that is the same for every row and not contiguous, as of a depthwise convolution's weights [c][tap]. It is
 * gathered into a table [q][columns of a block] before the rows. */
bool an_is_tabled(const an_loop_kernel *p, const an_ins *in);
int64_t an_columns_of_a_block(const an_loop_kernel *p);
/* A guard that is the same for all columns. */
bool an_guards_a_row(const an_loop_kernel *p, const an_ins *in);

#endif
