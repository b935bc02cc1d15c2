/* memory_growth.h: whether a run leaked: held more memory at its end than at its start, and which scope or heap grew.
 *
 * Owns:      what counts as growth; finding its owner: on the device the scopes of the logbook's lines "memory"
 *            (train/memory_watch.h), in the process the C library's heap.
 * Does not:  advise or print.
 *
 * Invariant: pages of mapped files do not count as growth: the system takes them back when memory is short. */
#ifndef AN_REPORT_MEMORY_GROWTH_H
#define AN_REPORT_MEMORY_GROWTH_H

#include "report/run_record.h"

typedef enum an_memory_kind { AN_MEMORY_LIVE, AN_MEMORY_RESERVED, AN_MEMORY_RESIDENT, AN_MEMORY_KINDS } an_memory_kind;

/* Medians of the second tenth of the first `n` lines, and of their last tenth; what is set up at the beginning is no
 * growth. NaN where the run has no such numbers. AN_MEMORY_RESIDENT: without mapped files, where that is known. */
void an_memory_growth_of(const an_run_record *r, size_t n, an_memory_kind kind, double *early, double *late);
/* Whether that is growth: more than 1 %, and more than a mebibyte of the device's memory, which is counted exactly, or 16 of the process,
 * whose pages come and go. */
bool an_memory_grew(an_memory_kind kind, double early, double late);
/* "live bytes of the device" */
const char *an_memory_kind_name(an_memory_kind kind);

/* Whose the growth is, into `out`: "states of scope cache: 1 MiB, then 65 MiB; ...", at most three owners, largest
 * growth first; what is not known is said. Scopes come from a file of strangers: printable, nothing more. Returns
 * whether the heap is the owner. */
enum { AN_MEMORY_OWNER_BYTES = 320 };
bool an_memory_growth_owner(const an_run_record *r, an_memory_kind kind, double growth_bytes,
                            char out[AN_MEMORY_OWNER_BYTES]);

#endif
