/* table.h: the task of models of plain arrays: rows of numbers with a label; called "arrays" in settings. */
#ifndef AN_TRAIN_TASKS_TABLE_H
#define AN_TRAIN_TASKS_TABLE_H

#include "train/task.h"

extern const an_task an_table_task;

#endif
