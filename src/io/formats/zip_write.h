/* zip_write.h: writes a zip archive of stored members (PKWARE's APPNOTE.TXT 6.3.10, with ZIP64 where it is needed), as
 * torch.save does: each member's bytes begin at a multiple of 64.
 *
 * Owns:      the archive while it is written; it takes its name when it is whole.
 * Does not:  compress. */
#ifndef AN_IO_FORMATS_ZIP_WRITE_H
#define AN_IO_FORMATS_ZIP_WRITE_H

#include "base/arena.h"
#include "platform/platform.h"

typedef struct an_zip_entry {
    const char *name;
    uint64_t at, bytes; /* of its local header; of its data */
    uint32_t crc;
} an_zip_entry;

typedef struct an_zip_writer {
    an_save save;
    an_arena arena;
    an_zip_entry *entry;
    size_t n, cap;
} an_zip_writer;

/* After a failure of any of them: an_zip_abort. */
an_status an_zip_begin(an_err *err, const char *path, an_zip_writer *out);
/* Names are unique; `data` is not needed afterwards. */
an_status an_zip_add(an_err *err, an_zip_writer *w, const char *name, const void *data, uint64_t bytes);
an_status an_zip_commit(an_err *err, an_zip_writer *w);
void an_zip_abort(an_zip_writer *w); /* also after a commit, where it frees what is left */

#endif
