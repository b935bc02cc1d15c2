/* order.h: the shuffled order of an epoch, element by element: which sample is i-th is a function of (key, stream, i), so that
 * no permutation is kept in memory and a resumed run needs no saved state of a generator.
 *
 * Used by token_data.c (windows of tokens), puzzle_order.c (groups and puzzles) and, through an_draw_row, by the tasks over rows,
 * images and texts. */
#ifndef AN_IO_DATA_ORDER_H
#define AN_IO_DATA_ORDER_H

#include <stdint.h>

/* Position of `i` in a random order of [0, n): a Feistel network over at least n numbers, walked until it stays inside
 * (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002). */
uint64_t an_shuffled(uint64_t i, uint64_t n, uint32_t key, uint32_t stream);
/* High 64 bits of a * b: a uniform u of 64 bits becomes one in [0, n). */
uint64_t an_multiply_high(uint64_t a, uint64_t b);

/* Which of `rows` samples sample `s` of a step is: drawn alone with replacement, or with per_step > 0, the size of a
 * step's batch, in epochs, each row once. */
int64_t an_draw_row(int64_t rows, int split, uint64_t seed, uint64_t step, uint64_t s, int64_t per_step);

#endif
