/* transposed.h: which loads of a loop kernel are read in blocks, and along what.
 *
 * A load whose neighbours along the column lie far apart, but close to those of the next pixel, as of channels that are made the
 * last axis: each column touches a cache line of its own for one element, and lines whose distance is a power of two push each
 * other out. So a block of AN_STAGE_BLOCK neighbours times as many columns as a loop has is read first, neighbours innermost.
 *
 *     p0[c * 1024 + r]           AN_ALONG_ROWS      neighbours are rows
 *     p0[l * 1024 + k / 4]       AN_ALONG_COLUMNS   columns `apart` from each other
 *     p0[c * 1024 + q]           AN_ALONG_SUM       elements of a column's sum
 *
 * And kernels that only exchange two axes, such as images or weights of a convolution as PyTorch has them and channels last: blocks of their
 * rows and columns need not be squares (9 taps), so they have loops of their own over [o][i][t] and [o][t][i] (an_turn).
 *
 * Owns:      the choice.
 * Does not:  render. A block that does not lie as its first elements make believe is only slower: each element is still read by
 *            its own index, but where an_staged_square has proved more. */
#ifndef AN_CODEGEN_TRANSPOSED_H
#define AN_CODEGEN_TRANSPOSED_H

#include "ir/loop_kernel.h"

#define AN_STAGE_BLOCK 16

typedef struct an_stage {
    enum { AN_NOT_STAGED, AN_ALONG_ROWS, AN_ALONG_COLUMNS, AN_ALONG_SUM } along;
    int64_t apart, period; /* period: of the columns, 0: they are never divided */
} an_stage;

/* Of a kernel of rows; of one of columns. AN_NOT_STAGED: nothing gains by it. */
an_stage an_stage_of_rows(const an_loop_kernel *p, int64_t period);
an_stage an_stage_of_sums(const an_loop_kernel *p);

/* Whether a kernel of columns has one sum a column, of simple numbers that vectors of neighbouring columns can hold. */
bool an_sums_vectors(const an_loop_kernel *p);

bool an_is_staged(const an_loop_kernel *p, const an_ins *in, const an_stage *s);
/* The distance of neighbouring columns, if every 8 neighbours times 8 columns that begin at multiples of 8 lie like the elements
 * of a matrix; else 0. */
int64_t an_staged_square(const an_loop_kernel *p, const an_ins *in, const an_stage *s);

/* A kernel that only copies f32 values, [o][i][t] to [o][t][i], or (back) what lies at o * far_o + t * far_t + i to [o][i][t]. */
typedef struct an_turn {
    int64_t o, i, t; /* extents; t = 0: the kernel is another */
    int64_t far_o, far_t;
    bool back;
} an_turn;

an_turn an_turn_of(const an_loop_kernel *p);

#endif
