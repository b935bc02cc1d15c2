/* json.h: strict parsing of untrusted JSON, with errors that say where a text is wrong in words that are safe to print.
 *
 * Owns:      the parser's settings (duplicate keys are refused, nesting is limited, text must be UTF-8) and its
 *            sentences; files of JSON.
 * Does not:  know what a file means. */
#ifndef AN_IO_FORMATS_JSON_H
#define AN_IO_FORMATS_JSON_H

#include "base/base.h"
#include "base/text.h"
#include <jansson.h>

/* Parses the `n` bytes at `text`, an object or an array, which begin at byte `at` of `where` (a path, for the
 * sentence). The caller releases *out with json_decref. */
an_status an_json_parse(an_err *err, const char *where, uint64_t at, const char *text, size_t n, json_t **out);

/* The same of a whole file of at most `max_bytes`. */
an_status an_json_read(an_err *err, const char *path, size_t max_bytes, json_t **out);
/* Replaces a file crash-safely (an_file_write in platform/platform.h). */
an_status an_json_save(an_err *err, const char *path, const an_text *text);

/* The line, from 1, on which a value of a text that was parsed begins: `step` leads there, keys of objects and "#i" for
 * place i of an array. Where a step leads nowhere (a key is written with escapes): the line where the way ended. */
uint64_t an_json_line(const char *text, size_t n, const char *const *step, int n_steps);
/* The byte, from 0. */
uint64_t an_json_byte(const char *text, size_t n, const char *const *step, int n_steps);

/* The members of an object, with a sentence when one is missing or of another type. `what` names the object. */
an_status an_json_string(an_err *err, const char *what, const json_t *object, const char *key, const char **out);

/* JSON holds UTF-8 only: refuses other text with a sentence that begins with `what`. After it, jansson can fail at `s`
 * only for want of memory. */
an_status an_json_check_text(an_err *err, const char *what, const char *s);

/* Appends s as a JSON string. JSON is written with an_text, not with jansson's dumps: jansson 2.14 gives a text with
 * parts missing, and no error, when one of its small allocations fails. */
void an_json_put(an_text *out, const char *s);
/* Appends ,"key":number, or null where it is not finite: JSON has no such number. */
void an_json_put_number(an_text *out, const char *key, double value);
/* Appends a value, members in the order that they were read in. Its strings hold no NUL: the parser refuses them. */
void an_json_put_value(an_text *out, const json_t *value);

/* `s` between double quotes, shortened, with control characters replaced: names from a file go into sentences, and a
 * sentence is one line. Returns out. */
enum { AN_QUOTED_BYTES = 96 };
const char *an_quoted(const char *s, char out[AN_QUOTED_BYTES]);

#endif
