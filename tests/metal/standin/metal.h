/* metal.h: inside the stand-in: what Metal's objects are made of. device.c owns buffers and the device, library.c texts
 * and pipelines, command.c what is encoded, execute.c when and how it runs. */
#ifndef STANDIN_METAL_H
#define STANDIN_METAL_H

#include "core.h"
#include "settings.h"

enum {
    MAX_BUFFERS = 31,
    MAX_SET_BYTES = 4096,
    MAX_GROUP_MEMORY = 32 << 10,
    MAX_GROUP_THREADS = 1024,
    MAC_PAGE = 16 << 10,
    LANES = 32
};
enum apple_value { /* under Apple's names */
#define METHOD(owner, kind, sign, selector, result, arguments, since, until)
#define VALUE(type, name, value) name = value,
#include "api.def"
#undef METHOD
#undef VALUE
};
enum {
    STORAGE_SHARED = MTLStorageModeShared,
    STORAGE_MANAGED = MTLStorageModeManaged,
    STORAGE_PRIVATE = MTLStorageModePrivate
};

/* ---- buffers: two views of the same memory, so that the host's can be shut while the device works. A Managed buffer
 * of a discrete GPU has two memories. */
typedef struct buffer {
    uint8_t *host, *gpu; /* host NULL: Private */
    uint64_t length, mapped, options;
    int storage;
    bool untracked, no_copy, two_memories;
    int writers, readers; /* work in flight */
    bool shut;            /* the host's view is protected */
    id label;
    struct buffer *next, *last; /* all that are alive */
} buffer;

void buffer_pin(buffer *b, bool writes);
void buffer_unpin(buffer *b, bool writes);
void buffer_open(buffer *b, bool open); /* for the device itself: memory that has only the host's view */
void buffer_shut(buffer *b, bool shut); /* the host's view of two memories, while the device writes into it */
bool buffer_tail_clean(buffer *b);

id the_device(void);
id device_of(id self, SEL cmd);

/* ---- kernels */
typedef enum argument_kind {
    ARGUMENT_BUFFER,
    ARGUMENT_THREADGROUP,
    ARGUMENT_ABSENT /* by its function constant */
} argument_kind;
typedef struct kernel_argument {
    argument_kind kind;
    int index;
    bool writes;          /* may: not const, not constant */
    uint64_t least_bytes; /* of what a reference refers to; 1 behind a pointer */
} kernel_argument;

enum { MAX_ARGUMENTS = 64 };
typedef struct msl_launch {
    uint32_t groups[3], threads[3];
    void *argument[MAX_ARGUMENTS]; /* in the order of the kernel's table */
    void *range[MAX_ARGUMENTS];    /* memory that may be touched: no two overlap */
    uint64_t range_bytes[MAX_ARGUMENTS];
    int n_ranges;
    uint64_t seed;
} msl_launch;
typedef struct msl_report {
    long faults;
    char first[256];
} msl_report;

typedef struct msl_kernel {
    char name[256], entry[1200]; /* as the host and as C++ name it */
    kernel_argument argument[MAX_ARGUMENTS];
    int n_arguments;
    uint64_t max_threads;      /* from its attribute; 0: none */
    bool simdgroup_matrix;     /* the text of it or of what it may call has one */
    size_t from, to;           /* of its definition in the prepared text; equal: an instance of a template */
    size_t text_from, text_to; /* of that definition, or of the template */
    char *defines;             /* what run_kernel.h asks for */
} msl_kernel;

typedef struct msl_template { /* of kernels; open, close: the parentheses of its parameters, while the text is read */
    char name[128];
    const char *open, *close;
    size_t from, to;
    uint64_t max_threads;
    bool matrices;
} msl_template;
typedef struct msl_constant { /* a function constant that the text declares */
    char name[64], type[64];
    int index;
} msl_constant;
enum { MAX_CONSTANTS = 128 };
typedef struct msl_values { /* what the host gives them, as C++; `name` "": by index */
    struct msl_value {
        char name[64], value[48];
        int index;
    } at[MAX_CONSTANTS];
    int n;
} msl_values;

typedef struct msl_text {
    char *prepared; /* preprocessed, attributes taken out, threadgroup variables made static */
    msl_kernel *kernel;
    msl_template *generic;
    msl_constant *constant;
    int n_kernels, n_generic, n_constants, version;
    bool fast_math, contract;
    uint64_t key;
    int matrix_words, all_matrix_words; /* in kernels themselves, and in the whole text */
    bool shuffles;                      /* calls functions of a SIMD group */
    bool by_lane;                       /* takes a matrix's elements by lane */
} msl_text;

typedef struct msl_entry { /* a kernel that can run */
    void *handle;
    void (*run)(const msl_launch *l, msl_report *out);
    uint64_t group_memory; /* static */
} msl_entry;

/* NULL, or the compiler's words (free them). */
char *msl_read(const char *source, int version, bool fast_math, msl_text *out);
void msl_free(msl_text *t);
/* `values` of function constants may be NULL. Fills least_bytes and kinds (ARGUMENT_ABSENT) of the kernel's arguments. */
char *msl_build(const msl_text *t, const msl_kernel *k, const msl_values *values, msl_entry *out,
                kernel_argument argument[MAX_ARGUMENTS]);
/* The first function constant that the kernel's text asks for and that has no value; NULL: none. */
const char *msl_missing_constant(const msl_text *t, const msl_kernel *k, const msl_values *values);

typedef struct pipeline {
    id function, label;
    const msl_kernel *kernel;
    msl_entry entry;
    kernel_argument argument[MAX_ARGUMENTS]; /* the kernel's, with sizes */
    int n_arguments;
    uint64_t max_threads;
    BOOL indirect;
} pipeline;

/* ---- commands: what was encoded, with its own copy of everything */
typedef struct binding {
    id buffer; /* or NULL with bytes */
    uint64_t offset;
    uint8_t *bytes;
    uint64_t length;
    bool set;
} binding;

typedef enum command_kind {
    COMMAND_LAUNCH,
    COMMAND_COPY,
    COMMAND_FILL,
    COMMAND_SYNCHRONIZE,
    COMMAND_BARRIER,
    COMMAND_SIGNAL,
    COMMAND_WAIT
} command_kind;
typedef struct command {
    command_kind kind;
    int encoder;         /* number within the command buffer; -1: between encoders */
    id pipeline, object; /* object: event, buffer to synchronize */
    binding bound[MAX_BUFFERS];
    uint64_t group_memory[MAX_BUFFERS];
    MTLSize groups, threads;
    id from, to;
    uint64_t from_at, to_at, bytes, value;
} command;

typedef enum encoder_kind { ENCODER_COMPUTE, ENCODER_BLIT } encoder_kind;
typedef struct encoder_note { /* kept by the command buffer after the encoder itself has gone */
    encoder_kind kind;
    bool concurrent;
    id label;
    int64_t state; /* MTLCommandEncoderErrorState */
    id fence_waited[8], fence_updated[8];
    int n_waited, n_updated;
} encoder_note;

enum { /* of a command buffer */
       NOT_ENQUEUED = MTLCommandBufferStatusNotEnqueued,
       ENQUEUED = MTLCommandBufferStatusEnqueued,
       COMMITTED = MTLCommandBufferStatusCommitted,
       SCHEDULED = MTLCommandBufferStatusScheduled,
       COMPLETED = MTLCommandBufferStatusCompleted,
       FAILED = MTLCommandBufferStatusError
};
typedef struct command_buffer {
    id self, queue, label;
    BOOL retained;
    uint64_t error_options, number; /* number: of its commit, from 1 */
    int status, polls_left;
    command *command;
    int n_commands, room;
    encoder_note *encoder;
    int n_encoders, room_encoders;
    id open; /* encoder */
    void *handler[16];
    int n_handlers;
    const fault *fault;
    double gpu_start, gpu_end;
    id error;
    bool status_seen, hangs, running;
    id *used; /* buffers and pipelines that it holds, or must outlive it */
    bool *used_writes;
    int n_used, room_used;
    struct command_buffer *next; /* of its queue, in order of enqueue */
} command_buffer;

typedef struct queue {
    command_buffer *first, *last;
    uint64_t most, under_way;
    int error_code; /* sticky; 0: none */
    id label;
} queue;

typedef struct event {
    uint64_t value;
    id label;
} event;

command *command_add(command_buffer *cb, command_kind kind);
command_buffer *encoder_buffer(id encoder); /* of an open compute encoder; NULL after a misuse */
void command_buffer_use(command_buffer *cb, id object, bool writes);
/* Checks a launch against its pipeline's arguments; false after a misuse. */
bool launch_check(const pipeline *p, const binding *bound, const uint64_t *group_memory, MTLSize groups,
                  MTLSize threads);

/* ---- execute.c */
void execute_until(command_buffer *cb);    /* everything before it on its queue, and it */
bool execute_poll(command_buffer *cb);     /* lets time pass */
void execute_some(queue *q);               /* when=random */
void execute_queue(queue *q, bool begins); /* a queue is made; it ends */
void execute_handlers(void);               /* of what has completed; not under the lock */

#endif
