/* arc_grid.h: grids of ARC (Chollet, "On the measure of intelligence", 2019) as tokens, and their *images*: the grid
 * rotated or reflected, with its colours permuted.
 *
 * A grid has 1 to 30 rows and columns of colours 0 to 9. As tokens it is placed anywhere in 30x30 cells: 0 outside, 1
 * in the row below it and in the column to its right (both as long as the grid), colour + 2 inside.
 *
 * Owns:      a grid as tokens and back, the eight rotations and reflections, permutations of colours, names of images.
 * Does not:  read files (arc_tasks.h) or choose images (arc_set.h).
 * Invariant: an_arc_undo(image, an_arc_apply(image, g)) is g. */
#ifndef AN_IO_DATA_ARC_GRID_H
#define AN_IO_DATA_ARC_GRID_H

#include "base/base.h"
#include "base/text.h"

enum {
    AN_ARC_SIDE = 30,
    AN_ARC_CELLS = AN_ARC_SIDE * AN_ARC_SIDE,
    AN_ARC_COLOURS = 10,
    AN_ARC_VOCABULARY = AN_ARC_COLOURS + 2,
    AN_ARC_TURNS = 8,
    AN_ARC_IMAGE_NAME_BYTES = 24 /* of what an image adds to a puzzle's name */
};

typedef struct an_arc_grid {
    uint8_t rows, cols; /* 0: no grid */
    uint8_t cell[AN_ARC_CELLS];
} an_arc_grid;

/* Colours are replaced (c by colour[c]), then the grid is turned: 0 not at all, 1 to 3 by so many quarter turns
 * counterclockwise, 4 left and right exchanged, 5 top and bottom, 6 transposed, 7 transposed over the other diagonal. */
typedef struct an_arc_image {
    uint8_t turn, colour[AN_ARC_COLOURS];
} an_arc_image;

extern const an_arc_image an_arc_itself;

void an_arc_apply(const an_arc_image *image, const an_arc_grid *g, an_arc_grid *out);
void an_arc_undo(const an_arc_image *image, const an_arc_grid *g, an_arc_grid *out);

/* The suffix of a puzzle's name: "|||t3|||0123456789". */
void an_arc_image_name(const an_arc_image *image, char out[AN_ARC_IMAGE_NAME_BYTES]);
/* Takes a name apart: *n bytes of it are the puzzle's, and which image it is; a name without an ending is of the puzzle
 * itself. False: the ending is no image. */
bool an_arc_name_read(const char *name, size_t *n, an_arc_image *out);

/* The grid with its corner at (row, col), both at most 30 - rows, 30 - cols. */
void an_arc_tokens(const an_arc_grid *g, int row, int col, int32_t out[AN_ARC_CELLS]);
/* The largest rectangle from the corner (0, 0) on that has colours only; *out has no rows where there is none. */
void an_arc_crop(const int32_t tokens[AN_ARC_CELLS], an_arc_grid *out);

bool an_arc_equal(const an_arc_grid *a, const an_arc_grid *b);
uint64_t an_arc_hash(const an_arc_grid *g, uint64_t seed);
void an_arc_put_json(const an_arc_grid *g, an_text *out); /* [[0, 1], [2, 3]] */

#endif
