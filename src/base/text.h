/* text.h: a growing string, for rendered kernels, dumps, tables and JSON.
 *
 * Invariant: `data` is always NUL-terminated once anything was appended. A failed allocation sets `failed` and makes
 * every later append a no-op; check it once, at the end. Release with an_text_free. */
#ifndef AN_BASE_TEXT_H
#define AN_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct an_text {
    char *data;
    size_t len, cap;
    bool failed;
} an_text;

void an_text_puts(an_text *t, const char *s);
void an_text_putn(an_text *t, const char *s, size_t n);
void an_text_printf(an_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void an_text_clear(an_text *t); /* length 0, memory kept */
void an_text_free(an_text *t);

/* Appends the text of an XML element: `<` and `&` as references, control characters left out. */
void an_text_put_xml(an_text *out, const char *s);

/* Replaces control characters other than newline and tab by '?', in place: text from a file must not steer a terminal
 * (move its cursor, set its title, answer for the user). DEL, the C1 controls, U+0080 to U+009F, and
 * what turns the order of the text behind it, U+202A to U+202E and U+2066 to U+2069, are among them. */
void an_text_printable(char *text, size_t n);

/* Nearest name to `word` among `n` names (Damerau-Levenshtein distance), or NULL when none is close: for
 * "unknown key `max_iter`; did you mean `max_iters`?". */
const char *an_nearest(const char *word, const char *const *names, size_t n);

/* Whether `name` matches a pattern of the list `globs` ("wte.*,h.0.*"): * is any text, ? any one character. Takes at most
 * length times length steps. */
bool an_glob_list(const char *globs, const char *name);

/* A list that is one word of a command line, or a value in a file: "a,b", "[a, b]", "['a', \"b,c\", 'it''s']". Blanks around an
 * item are dropped, and items without a character; an item that begins with a quote goes to the same quote, which is
 * doubled inside of it. */
typedef struct an_list {
    const char *at, *end;
    bool bad; /* a quote without its end, or something other than a comma behind it */
} an_list;
an_list an_list_begin(const char *text);
/* Makes *out the next item. False: there is none. */
bool an_list_next(an_list *l, an_text *out);
/* Appends an item as that reads it: in quotes where it could not stand without. */
void an_list_put(an_text *out, const char *item);

/* "1.5 GiB", "384 MiB", "12 KiB", "96 B" into `out` (at least 16 bytes); returns out. */
const char *an_bytes_text(double bytes, char *out);

#endif
