/* conversation.h: the task of models that hold conversations (train/task.h). */
#ifndef AN_TRAIN_TASKS_CONVERSATION_H
#define AN_TRAIN_TASKS_CONVERSATION_H

#include "train/task.h"

extern const an_task an_conversation_task;

#endif
