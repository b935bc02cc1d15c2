/* image_classes.h: the task of image classifiers: the class of an image. */
#ifndef AN_TRAIN_TASKS_IMAGE_CLASSES_H
#define AN_TRAIN_TASKS_IMAGE_CLASSES_H

#include "train/task.h"

extern const an_task an_image_task;

#endif
