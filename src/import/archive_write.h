/* archive_write.h: the archive again, with other elements in its tensors: what torch.export.load reads.
 *
 * Owns:      the members of the file, tensors in C order, tied ones once.
 * Does not:  know where elements come from, or change the graphs. */
#ifndef AN_IMPORT_ARCHIVE_WRITE_H
#define AN_IMPORT_ARCHIVE_WRITE_H

#include "import/archive.h"

/* The elements of `t` in C order, in the dtype that it has inside (an_pt2_dtype). */
typedef an_status (*an_pt2_source)(an_err *err, void *user, const an_pt2_tensor *t, const void **data);

an_status an_pt2_write(an_err *err, const an_pt2 *a, const char *path, an_pt2_source source, void *user);

#endif
