/* tokenizer_impl.h: what tokenizer.c (characters, JSON, the table of pieces) and tokenizer_bpe.c share. */
#ifndef AN_IO_TEXT_TOKENIZER_IMPL_H
#define AN_IO_TEXT_TOKENIZER_IMPL_H

#include "base/map.h"
#include "io/formats/json.h"
#include "io/text/tokenizer.h"

typedef struct an_bpe an_bpe;

struct an_tokenizer {
    /* Piece i is the bytes bytes[start[i] .. start[i+1]); there are `vocab` of them. */
    char *bytes;
    uint32_t *start;
    int32_t vocab, end;
    uint32_t *points; /* characters: code point of each id, ascending; NULL: BPE */
    int32_t ascii[128];
    an_bpe *bpe;
};

/* Room for `vocab` pieces of `bytes` bytes together. */
an_status an_tokenizer_alloc(an_err *err, int32_t vocab, size_t bytes, an_tokenizer **out);

/* tokens: array of strings in GPT-2's byte alphabet, index = id. merges: array of [left id, right id] flattened, by
 * rank. `where` for sentences. */
an_status an_bpe_build(an_err *err, const char *where, const json_t *tokens, const json_t *merges, an_tokenizer **out);
/* A meta.json or tokenizer.json; a meta.pkl of `n` bytes. */
an_status an_tokenizer_from_file(an_err *err, const char *path, an_tokenizer **out);
an_status an_tokenizer_from_pickle(an_err *err, const char *path, const void *data, size_t n, an_tokenizer **out);
an_status an_bpe_encode(an_err *err, const an_tokenizer *t, const char *where, const char *text, size_t n, an_ids *out);
void an_bpe_json(const an_tokenizer *t, an_text *out);
void an_bpe_free(an_bpe *b);

#endif
