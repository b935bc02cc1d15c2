/* puzzle.h: the task `puzzle`: Sudoku, mazes, ARC grids (puzzle.c). */
#ifndef AN_TRAIN_TASKS_PUZZLE_H
#define AN_TRAIN_TASKS_PUZZLE_H

#include "train/task.h"

extern const an_task an_puzzle_task;

#endif
