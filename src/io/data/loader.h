/* loader.h: the batches of a run, prepared ahead by threads.
 *
 * Owns:      a ring of batches, the threads that fill it, the order in which the caller gets them.
 * Does not:  know what a batch holds: the source fills named arrays as a function of the step; choose or shuffle samples
 *            (order.h). With workers 0 the caller reads, and a read that hangs ends with the process (a second Ctrl-C).
 *
 * Invariant: the caller gets steps first_step, first_step + 1, ... whatever the number of workers; a step's arrays
 * depend on the step alone.
 */
#ifndef AN_IO_DATA_LOADER_H
#define AN_IO_DATA_LOADER_H

#include "io/data/arrays.h"

typedef struct an_source {
    an_array array[AN_MAX_ARRAYS]; /* of a step's batch */
    int n;
    /* Fills them for a step. Called by several threads at once. */
    an_status (*fill)(an_err *err, const void *data, uint64_t step, void *const *array);
    const void *data;
} an_source;

/* Says what this thread is about to open or decode, while it fills a batch: a path, which outlives the batch, or NULL. A
 * caller that waits AN_LOADER_PATIENCE_S for a batch is told it. */
void an_loader_reading(const char *path);
enum { AN_LOADER_PATIENCE_S = 30 };

/* What the making of a batch is at. Files that are mapped are read where they are copied: in COLLATE. */
typedef enum an_loader_stage {
    AN_LOADER_COLLATE, /* which samples, and their numbers into the batch: what a fill begins with */
    AN_LOADER_READ,    /* files opened and read */
    AN_LOADER_DECODE,  /* JPEG, PNG, WebP */
    AN_LOADER_AUGMENT, /* cropped, resized, mirrored, recoloured */
    AN_LOADER_STAGES
} an_loader_stage;
/* The stage of this thread from here on. Returns the stage before, which the caller enters again when it is done. Outside of
 * a timed loader it does nothing. */
an_loader_stage an_loader_enter(an_loader_stage stage);
/* A copy of so many bytes was made on the way to the batch. */
void an_loader_copied(size_t bytes);
typedef struct an_loader_times {
    double s[AN_LOADER_STAGES]; /* of all threads, of `batches` */
    uint64_t batches, copies, copied_bytes;
} an_loader_times;

typedef struct an_loader an_loader;
/* `workers` threads; 0: batches are made by the caller, when asked for. `s->data` outlives the loader. */
an_status an_loader_open(an_err *err, const an_source *s, uint64_t first_step, int workers, an_loader **out);
/* The next step's arrays, valid until the next call; NULL where an_loader_stops says so. A failure is returned for its step and
 * every later call. */
an_status an_loader_next(an_err *err, an_loader *l, void *const **arrays);
/* Called by an_loader_next, once a batch, when it has waited so long: `path` is what one of the threads is at, or NULL.
 * `patience_s` 0: AN_LOADER_PATIENCE_S. */
void an_loader_on_stuck(an_loader *l, double patience_s, void (*tell)(void *arg, const char *path, double seconds),
                        void *arg);
/* While a batch is waited for, `stop` is asked ten times a second. Where it has been true for `grace_s` (0: AN_LOADER_GRACE_S) and the
 * batch has still not come, an_loader_next returns without arrays: a thread may hang in a read, which nothing can end. */
void an_loader_stops(an_loader *l, double grace_s, bool (*stop)(void *arg), void *arg);
enum { AN_LOADER_GRACE_S = 5 };
/* From now on batches are timed by stage; what was counted before is forgotten. */
void an_loader_time(an_loader *l);
void an_loader_times_read(an_loader *l, an_loader_times *out);
double an_loader_wait_seconds(const an_loader *l); /* that all calls of next waited, or worked where workers are 0 */
size_t an_loader_bytes(const an_loader *l);        /* of its buffers */
size_t an_loader_bytes_for(const an_source *s, int workers); /* the same, of one that is not open: for a bill */
/* Waits for the threads. Where an_loader_next has given up, at most for another `grace_s`: false when a thread is then still
 * in the source's fill. It is left behind and frees the loader when it ends; the source and its data must stay until then. */
bool an_loader_close(an_loader *l);

#endif
