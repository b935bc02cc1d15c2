/* arrays.h: the task of models of plain arrays: to say a row's label. */
#ifndef AN_TRAIN_TASKS_ARRAYS_H
#define AN_TRAIN_TASKS_ARRAYS_H

#include "train/task.h"

extern const an_task an_arrays_task;

#endif
