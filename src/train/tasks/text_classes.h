/* text_classes.h: the task `text`: classes of texts (text_classes.c). */
#ifndef AN_TRAIN_TASKS_TEXT_CLASSES_H
#define AN_TRAIN_TASKS_TEXT_CLASSES_H

#include "train/task.h"

extern const an_task an_text_task;

#endif
