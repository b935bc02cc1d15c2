/* standin.h: what a test asks of the stand-in: settings, misuses, counts, leaks, faults. Everything else about it is
 * Apple's API. See README.md. */
#ifndef STANDIN_H
#define STANDIN_H

#include <stddef.h>
#include <stdint.h>

typedef struct standin_counts {
    uint64_t launches, encoders, command_buffers, commits; /* commits: command buffers that were committed */
    uint64_t completed, failed, unread_errors;             /* failed and never asked for its status after that */
    uint64_t waits, polls; /* waitUntilCompleted (or an event's wait) while work was to be done; status asked then */
    uint64_t blits, copied_bytes, set_bytes;
    uint64_t buffers_made, buffer_bytes, buffers_alive, alive_bytes;
    uint64_t libraries, functions, pipelines, kernel_compiles; /* kernel_compiles: not found in the cache */
    uint64_t messages, pools, autoreleased, objects_alive;
} standin_counts;

typedef struct standin_api {
    /* Starts the simulation anew with `settings` ("" or NULL: the defaults). Objects of the previous one are invalid. NULL, or what is wrong. */
    const char *(*configure)(const char *settings);
    const char *(*inject)(const char *fault); /* NULL, or what is wrong */
    int (*misuses)(void);
    const char *(*misuse)(int i); /* a sentence; NULL when there is no i-th */
    void (*forgive)(void);        /* forgets them */
    void (*counts)(standin_counts *out);
    /* How many objects are alive with an owner; `out` gets a line for each kind: class, number, where made. */
    int (*leaks)(char *out, size_t room);
} standin_api;

#ifdef __cplusplus
extern "C"
#endif
    const standin_api *
    standin(void);

#endif
