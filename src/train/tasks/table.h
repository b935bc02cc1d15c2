/* table.h: the task `arrays`: rows of numbers with a class or values (table.c). */
#ifndef AN_TRAIN_TASKS_TABLE_H
#define AN_TRAIN_TASKS_TABLE_H

#include "train/task.h"

extern const an_task an_table_task;

#endif
