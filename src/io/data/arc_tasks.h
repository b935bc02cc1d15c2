/* arc_tasks.h: reads ARC's puzzles from the JSON files in which they are published.
 *
 *     PREFIX_SUBSET_challenges.json   {"id": {"train": [{"input": GRID, "output": GRID}, ...],
 *                                             "test": [{"input": GRID}, ...]}}
 *     PREFIX_SUBSET_solutions.json    {"id": [GRID, ...]}, the outputs of its tests; the file may be missing
 *
 * each plain or as .gz. A test may also have its output in the first file.
 *
 * Owns:      reading and validating these files: an error names the file, the line and the place in it.
 * Does not:  make images of puzzles (arc_set.h). */
#ifndef AN_IO_DATA_ARC_TASKS_H
#define AN_IO_DATA_ARC_TASKS_H

#include "base/arena.h"
#include "base/map.h"
#include "io/data/arc_grid.h"

typedef struct an_arc_pair {
    an_arc_grid in, out; /* an output that is not known is one cell of colour 0 */
} an_arc_pair;

typedef struct an_arc_task {
    const char *name;
    const char *subset;             /* as the caller said it */
    int32_t first, n_train, n_test; /* pairs: those for training, then those for testing */
    bool solved;                    /* the outputs of its tests are known */
} an_arc_task;

typedef struct an_arc_tasks {
    an_arc_task *task;
    an_arc_pair *pair;
    int32_t n, cap, n_pairs, cap_pairs;
    an_arena names;
    an_map by_name; /* hash of the name: place in `task` */
} an_arc_tasks;

/* Adds a subset's puzzles. AN_E_IO, AN_E_DATA: a file or a grid is wrong, or a puzzle is there already. */
an_status an_arc_tasks_read(an_err *err, const char *prefix, const char *subset, an_arc_tasks *out);
/* The same of one file of either kind of text: challenges, and solutions of them (NULL: none). `name` begins sentences. */
an_status an_arc_tasks_parse(an_err *err, const char *name, const char *subset, const char *text, size_t n,
                             const char *solutions_name, const char *solutions, size_t solutions_n, an_arc_tasks *out);
void an_arc_tasks_free(an_arc_tasks *t);

/* NULL: there is no such puzzle. */
const an_arc_task *an_arc_tasks_find(const an_arc_tasks *t, const char *name, size_t n);

#endif
