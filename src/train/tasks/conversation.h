/* conversation.h: the task `chat`: conversations (conversation.c). */
#ifndef AN_TRAIN_TASKS_CONVERSATION_H
#define AN_TRAIN_TASKS_CONVERSATION_H

#include "train/task.h"

extern const an_task an_conversation_task;

#endif
