/* corpus.h: the text that is built in, so that training can be tried without a download: the project's own documents,
 * and the sentences in the comments of its sources (the list is in mk/embed.mk), each after a line "==> path <==".
 * Printable ASCII and newlines only: 96 characters. Made by tools/pack_corpus.sh when the library is built. */
#ifndef AN_IO_DATA_CORPUS_H
#define AN_IO_DATA_CORPUS_H

#include <stddef.h>

extern const unsigned char an_corpus[];
extern const size_t an_corpus_bytes;

#endif
