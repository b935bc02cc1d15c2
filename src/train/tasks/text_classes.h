/* text_classes.h: the task of text classifiers: the class of a text, or of the embedding vectors of one. */
#ifndef AN_TRAIN_TASKS_TEXT_CLASSES_H
#define AN_TRAIN_TASKS_TEXT_CLASSES_H

#include "train/task.h"

extern const an_task an_text_task;

#endif
