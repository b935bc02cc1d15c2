/* language.h: the task `language`: the next token of a text (language.c). */
#ifndef AN_TRAIN_TASKS_LANGUAGE_H
#define AN_TRAIN_TASKS_LANGUAGE_H

#include "train/task.h"

extern const an_task an_language_task;

#endif
