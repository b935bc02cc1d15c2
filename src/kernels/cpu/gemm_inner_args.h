/* gemm_inner_args.h: parameter types of both innermost loops of GEMM, on vectors (gemm_micro.h) and on tile registers (gemm_tiles.h).
 * The blocking for caches (MC, KC, NC) is in gemm_plan.h. */
#ifndef AN_KERNELS_CPU_GEMM_INNER_ARGS_H
#define AN_KERNELS_CPU_GEMM_INNER_ARGS_H

#include "kernels/cpu/attn_vec.h"

#include <stdbool.h>

typedef enum a_layout { A_ROWS, A_COLUMNS } a_layout;

/* What a tile prefetches while it multiplies: the lines of the next tile of C, a range of an operand that is needed
 * later, `step` bytes a word, and `asks` lines of what the epilogue reads and writes: the line `row` and those `apart` bytes from one another
 * of the `left` rows from it on, then the next line of all `rows` rows. Issued all at once they would delay the loads of A and B. Addresses, not
 * pointers: they may be outside an array. */
typedef struct prefetch_plan {
    uintptr_t c, at;
    int64_t step;
    uintptr_t row;
    int64_t apart, left, rows, asks;
} prefetch_plan;

#endif
