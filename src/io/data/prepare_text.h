/* prepare_text.h: makes the token files that training reads (nanoGPT's train.bin and val.bin, and meta.json) from texts.
 *
 * Owns:      the list of files, the split, the three files of the folder.
 * Does not:  download, print or train.
 *
 * To add a format of texts: its endings in is_records or why_not of prepare_text.c, and a reader that hands out one
 * text after the other, as line_reader.h does for JSON lines. (Formats of a task's own data: train/task.h.)
 *
 * The split is nanoGPT's: the first int(0.9 n) of the n characters of all files one after another, and the rest; each
 * part of a text is encoded by itself. With BPE, <|endoftext|> follows each of several files. A file of records (JSON
 * lines, which may be compressed) holds many texts: each counts as a file does. Output files are 16-bit
 * little-endian ids without a header. meta.json has the tokenizer in it: the folder needs no other file. Memory
 * holds one piece of text (4 MiB, or a file's longest stretch without a line end), not all texts. The files get their
 * names when all of them are written. */
#ifndef AN_IO_DATA_PREPARE_TEXT_H
#define AN_IO_DATA_PREPARE_TEXT_H

#include "io/text/tokenizer.h"

typedef struct an_prepare {
    const char *source;            /* a text file, or a folder: all its files, and those of its folders, by name */
    const char *out;               /* the folder, which is made */
    const an_tokenizer *tokenizer; /* NULL: the characters of the texts */
    bool replace;                  /* what is no UTF-8 becomes U+FFFD; else it is an error with file and byte */
    bool records;      /* NAME.jsonl, .ndjson and .json, also .gz and .zst: each line is an object with a "text" */
    double train_part; /* of the characters; 0: 0.9 */
    /* Told now and then how many characters were encoded; all = 0 while they are being counted. NULL: not told. */
    void (*tell)(void *arg, int64_t characters, int64_t all);
    void *arg;
} an_prepare;

typedef struct an_prepared {
    uint64_t files, documents, bytes, characters, replaced; /* documents: texts; as many as files without records */
    uint64_t tokens[2];                                     /* training, validation */
    int32_t vocab;
} an_prepared;

an_status an_prepare_text(an_err *err, const an_prepare *p, an_prepared *out);

#endif
