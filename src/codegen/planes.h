/* planes.h: which operands of a window lie in planes, a channel behind the other, as images of PyTorch do (NCHW).
 *
 *     x[n][c][y][x]   of a depthwise convolution, of the gradient of its weights, of a pool: columns of the kernel are channels
 *
 * A kernel of columns wants neighbouring channels in vectors (render_c_columns.c), and reads each element at every tap. So what the rows of an image
 * read of a few channels is first brought to channels last in a buffer that the second-level cache holds, and results that belong into planes are
 * collected in such a buffer. A copy of the whole tensor would cost two more passes over memory.
 *
 * Owns:      the choice.
 * Does not:  render (render_c_columns.c), divide into tasks (device/cpu/cpu.c, whose tasks are whole images). */
#ifndef AN_CODEGEN_PLANES_H
#define AN_CODEGEN_PLANES_H

#include "ir/loop_kernel.h"

#define AN_PLANES_FLOATS 65536  /* of all buffers of a kernel together: a quarter of a MiB */
#define AN_PLANES_TESTS  262144 /* of elements of windows in an image, which are made once for all channels */
#define AN_PLANE_MOST                                                                                                  \
    3200 /* pixels of a plane that is not copied: two of them and what a window reads around fit in buffers of 8 channels */
#define AN_PLANE_LEAST 4 /* floats from channel to channel, at least */

#define AN_TAPS_IN_REGISTERS 9 /* vectors of weights */
#define AN_BUFFER_ALIGN      64

/* Where the rows of image 0 read channel 0: [first, first + n). Channels are `far` apart, images `image`. Elements that no guard lets through
 * are among them, and may lie outside of the tensor. */
typedef struct an_plane {
    int64_t far, image, first, n;
} an_plane;

typedef struct an_planes {
    int64_t rows; /* of an image; 0: no operand lies in planes, or their buffers would be too large */
    int width; /* channels in a buffer: 32, 16 or 8, a divisor of the columns; 8 where the weights of all taps then stay in registers */
} an_planes;

an_planes an_planes_of(const an_loop_kernel *p);
/* Whether load or store `in` is of planes, and of which: images have `rows` rows. Of a store, n is `rows`, in order. */
bool an_plane_of(const an_loop_kernel *p, const an_ins *in, int64_t rows, an_plane *out);
/* Bytes of its buffer of `width` channels, a multiple of AN_BUFFER_ALIGN. */
int64_t an_plane_bytes(const an_plane *plane, int width);

#endif
