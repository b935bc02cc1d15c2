/* rng.h: the counter-based generator: Philox2x32 with 7 rounds (Salmon, Moraes, Dror, Shaw, "Parallel random numbers:
 * as easy as 1, 2, 3", SC11; 7 is the paper's crush-resistant round count for 2x32).
 *
 * A number is a pure function of (key, stream, index):
 *     key     a hash of the run's seed and the step
 *     stream  a hash of (scope, ordinal) of the random node
 *     index   the global element index: the sample's number in the whole batch times the elements a sample, plus the
 *             element's place in the sample, so that micro-batches and ranks draw the same numbers
 * counter word 0 = low 32 bits of index, word 1 = stream ^ (high 32 bits of index) * 0x9E3779B9.
 * base/exact.h computes the same in the kernel dialect; a test compares the two. */
#ifndef AN_BASE_RNG_H
#define AN_BASE_RNG_H

#include <stdint.h>

#define AN_PHILOX_ROUNDS 7

uint32_t an_rng_u32(uint32_t key, uint32_t stream, uint64_t index);

/* Uniform in [0, 1): (u32 >> 8) * 2^-24. Dropout keeps an element when uniform >= p. */
float an_rng_uniform(uint32_t key, uint32_t stream, uint64_t index);

/* Attention's dropout: the 64 bits of a number are four numbers of 16 bits, of the columns 4 index to 4 index + 3 of a row. A column is kept
 * when its 16 bits are at least an_rng_least_16(p) = p * 2^16, rounded up: at most 65535. an_rng_keep_scale_16(p) is one over the probability
 * of that, by which what is kept is multiplied; 1 without dropout. */
uint32_t an_rng_16(uint32_t key, uint32_t stream, uint64_t index, int column);
uint32_t an_rng_least_16(float p);
float an_rng_keep_scale_16(float p);

/* Standard normal by Box-Muller from the uniforms at 2*index and 2*index+1, with exact.h's log, sqrt and cos: the same
 * bits on every machine. */
float an_rng_normal(uint32_t key, uint32_t stream, uint64_t index);

/* key = 32 well-mixed bits of (seed, step); stream = 32 well-mixed bits of (scope hash, ordinal). */
uint32_t an_rng_key(uint64_t seed, uint64_t step);
uint32_t an_rng_stream(uint64_t scope, uint32_t ordinal);

#endif
