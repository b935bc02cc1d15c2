/* samples.h: the task `samples`, of imported models (samples.c). */
#ifndef AN_TRAIN_TASKS_SAMPLES_H
#define AN_TRAIN_TASKS_SAMPLES_H

#include "train/task.h"

extern const an_task an_samples_task;

#endif
