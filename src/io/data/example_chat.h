/* example_chat.h: five short conversations that need no file, to try training and generation with. */
#ifndef AN_IO_DATA_EXAMPLE_CHAT_H
#define AN_IO_DATA_EXAMPLE_CHAT_H

/* JSON in the form `sharegpt` of conversations.h. */
extern const char an_example_chat[];

#endif
