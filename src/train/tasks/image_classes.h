/* image_classes.h: the task `image`: classes of images (image_classes.c). */
#ifndef AN_TRAIN_TASKS_IMAGE_CLASSES_H
#define AN_TRAIN_TASKS_IMAGE_CLASSES_H

#include "train/task.h"

extern const an_task an_image_task;

#endif
