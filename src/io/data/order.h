/* order.h: random orders of samples as functions of (key, stream, number), with nothing to save between two of them. */
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
