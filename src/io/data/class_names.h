/* class_names.h: the names of classes, in the order in which a model numbers them: found in data, kept in checkpoints.
 *
 * Invariant: names are different, not empty, UTF-8 without control characters, and below AN_CLASS_NAME_BYTES. */
#ifndef AN_IO_DATA_CLASS_NAMES_H
#define AN_IO_DATA_CLASS_NAMES_H

#include "io/formats/json.h"

enum { AN_CLASS_NAME_BYTES = 256, AN_CLASSES_MOST = 1 << 15 };

typedef struct an_class_names {
    char **name; /* zero-initialised: none */
    int32_t n, cap;
} an_class_names;

/* Adds a name unless it is there. `where` begins the sentence for one that is none. */
an_status an_class_names_add(an_err *err, const char *where, an_class_names *c, const char *name, size_t n);
void an_class_names_sort(an_class_names *c);                                      /* by their bytes */
int32_t an_class_names_find(const an_class_names *c, const char *name, size_t n); /* -1: there is none */
/* "a, b, c" for a sentence, cut at the end of `out`. Returns out. */
const char *an_class_names_list(const an_class_names *c, char *out, size_t bytes);
an_status an_class_names_copy(an_err *err, const an_class_names *from, an_class_names *out);
void an_class_names_free(an_class_names *c);

/* Of classes that are numbers, which data have where seen[c] is not 0: AN_E_DATA where most of those below the largest, `most` (of row
 * `row`), have no sample, for then it is no class but a damaged number, and a model would be as wide as it. */
an_status an_class_numbers_check(an_err *err, const char *path, const uint8_t *seen, int64_t most, int64_t row);

void an_class_names_json(const an_class_names *c, an_text *out); /* an array */
an_status an_class_names_from_json(an_err *err, const char *where, const json_t *array, an_class_names *out);

#endif
