/* puzzle.h: the task of boards with one answer each: Sudoku, mazes, ARC's grids (io/data/puzzle_set.h). */
#ifndef AN_TRAIN_TASKS_PUZZLE_H
#define AN_TRAIN_TASKS_PUZZLE_H

#include "train/task.h"

extern const an_task an_puzzle_task;

#endif
