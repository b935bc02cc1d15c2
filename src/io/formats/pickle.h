/* pickle.h: reads the values in a Python pickle, and executes nothing: it knows the opcodes that pickle writes for
 * numbers, texts, tuples, lists and dicts, and for what torch.save makes of tensors; every other opcode is refused by
 * name and byte (opcodes: CPython's Lib/pickletools.py).
 *
 * Owns:      values, in an arena. A global ("torch.FloatStorage") is a name, and must be on the caller's list; a call
 *            of one is the pair of its name and its arguments, for the caller to understand.
 * Does not:  import, call, build or look up anything.
 *
 * Invariants: memory is at most a small multiple of the pickle's size; nothing here recurses. A value may contain
 * itself or be shared, as in Python: code that walks one must bound the walk. */
#ifndef AN_IO_FORMATS_PICKLE_H
#define AN_IO_FORMATS_PICKLE_H

#include "base/arena.h"
#include "base/base.h"

typedef enum an_pickle_kind {
    AN_PICKLE_NONE,
    AN_PICKLE_BOOL,
    AN_PICKLE_INT,
    AN_PICKLE_FLOAT,
    AN_PICKLE_TEXT,
    AN_PICKLE_TUPLE,
    AN_PICKLE_LIST,
    AN_PICKLE_DICT,      /* items: key, value, key, value, ...; of equal keys the last counts */
    AN_PICKLE_GLOBAL,    /* text: "module.name" */
    AN_PICKLE_CALL,      /* items: the global, the tuple of arguments */
    AN_PICKLE_PERSISTENT /* items: its argument */
} an_pickle_kind;

typedef struct an_pickle_value an_pickle_value;
struct an_pickle_value {
    an_pickle_kind kind;
    uint64_t at;      /* byte of the file whose opcode made it */
    int64_t i;        /* BOOL, INT */
    double f;         /* FLOAT */
    const char *text; /* TEXT, GLOBAL: NUL-terminated, of `bytes` bytes; UTF-8 is not checked */
    size_t bytes;
    an_pickle_value **items;
    size_t n, cap;
};

/* The value of the pickle of `n` bytes at `data`, which begins at byte `at` of `where`. `globals` are the names that
 * may be in it. */
an_status an_pickle_read(an_err *err, const char *where, uint64_t at, const void *data, size_t n,
                         const char *const *globals, size_t n_globals, an_arena *a, const an_pickle_value **out);

/* Of a dict: the value of a key that is a text; NULL: none, or no dict. */
const an_pickle_value *an_pickle_find(const an_pickle_value *dict, const char *key);
bool an_pickle_is_text(const an_pickle_value *v, const char *text);

#endif
