/* arrays.h: the named arrays of a batch: what a model reads and a data set fills.
 *
 * Owns:      their description and one block of memory for them.
 * Does not:  know what is in them, or read files. To add a dataset format: train/task.h.
 */
#ifndef AN_IO_DATA_ARRAYS_H
#define AN_IO_DATA_ARRAYS_H

#include "base/base.h"

enum { AN_TRAIN = 0, AN_VAL = 1, AN_N_SPLITS = 2 }; /* of a data set */
enum { AN_MAX_ARRAYS = 8 };

typedef struct an_array {
    const char *name; /* "tokens", "labels" */
    an_dtype dtype;
    an_shape shape; /* the first axis counts samples */
    int64_t limit;  /* integers are ids in [0, limit), negative ones are ignored labels; 0: any number */
} an_array;

size_t an_array_bytes(const an_array *a);

/* Arrays one behind the other in a block, each aligned to its element. Gives the block's size, a multiple of the
 * largest alignment in it; with `offset` where each array begins. */
size_t an_arrays_layout(const an_array *a, int n, size_t offset[AN_MAX_ARRAYS]);

/* A block of its own. */
typedef struct an_arrays {
    void *data[AN_MAX_ARRAYS];
    void *memory;
} an_arrays;
an_status an_arrays_open(an_err *err, const an_array *a, int n, an_arrays *out); /* zeros */
void an_arrays_close(an_arrays *x);

/* Fills arrays for a measurement: ids uniform below their limit, other numbers uniform in [-1, 1). The same `seed`
 * gives the same values everywhere. */
void an_arrays_random(const an_array *a, int n, uint64_t seed, void *const *data);

#endif
