/* tensorboard.h: a run's numbers as TensorBoard reads them: a file of events (TFRecord frames of Event messages) in the
 * run's folder.
 *
 * Owns:      the file's name and bytes: frames with their masked CRC-32C, the fields of the messages.
 * Does not:  read such files, or know what the numbers mean.
 *
 * Invariants: a frame is one write, so that a killed run leaves at most one half frame, which readers skip; each process
 * that trains in a folder has a file of its own; a file begins with its version.
 *
 * Format: tensorflow/core/lib/io/record_writer.h and tensorflow/core/util/event.proto, written out in tensorboard.c. */
#ifndef AN_REPORT_TENSORBOARD_H
#define AN_REPORT_TENSORBOARD_H

#include "io/checkpoint.h"

typedef struct an_tensorboard {
    int fd; /* -1: closed */
    char path[AN_CKPT_PATH_BYTES];
} an_tensorboard;

typedef struct an_scalar_value {
    const char *tag; /* "loss", "val_loss" */
    double value;    /* written as float32; one that is not finite is written as such */
} an_scalar_value;

/* Creates DIR/events.out.tfevents.SECONDS.RANDOM. */
an_status an_tensorboard_open(an_err *err, const char *dir, an_tensorboard *out);
/* Appends one event: the numbers of an update, at most 32. AN_E_IO: it cannot be written. */
an_status an_tensorboard_add(an_err *err, an_tensorboard *t, int64_t step, const an_scalar_value *v, int n);
void an_tensorboard_close(an_tensorboard *t);

#endif
