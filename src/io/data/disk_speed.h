/* disk_speed.h: how fast a file can be read from its disk, for a warning before a run waits for its data.
 *
 * Owns:      a short measurement and the sentence.
 * Does not:  print it, or know mounts (platform/system_info.h).
 */
#ifndef AN_IO_DATA_DISK_SPEED_H
#define AN_IO_DATA_DISK_SPEED_H

#include "platform/system_info.h"

typedef struct an_storage {
    an_mount_info mount;
    double mb_s;    /* 1e6 bytes a second, read past the page cache where the system allows that; 0: not measured */
    double seconds; /* that the measurement took: at most about 0.3 */
} an_storage;

/* Reads up to 32 MB of the file (of a folder: of its largest file), spread over it, for at most 0.3 s. Does not fail:
 * what cannot be read is not measured. */
void an_storage_look(const char *path, an_storage *out);

/* True, and one sentence with the measured figure in `text`, when `what` ("data", "the kernel cache") lies on a network
 * mount or is read with less than 50 MB/s. */
enum { AN_STORAGE_TEXT_BYTES = 768 };
bool an_storage_warning(const an_storage *s, const char *what, const char *path, char text[AN_STORAGE_TEXT_BYTES]);

#endif
