/* puzzle.h: the task of boards with one answer each: Sudoku, mazes, ARC's grids (io/data/puzzle_set.h). */
#ifndef AN_TRAIN_TASKS_PUZZLE_H
#define AN_TRAIN_TASKS_PUZZLE_H

#include "io/data/puzzle_set.h"
#include "train/task.h"

extern const an_task an_puzzle_task;

/* The set behind a split of this task's data; NULL: there is none, boards are made or were not opened. */
const an_puzzle_set *an_puzzle_task_set(const an_task_data *d, int split);

#endif
