/* config.h: settings: key=value from a command line, a YAML file or a checkpoint, onto a struct that a table describes.
 *
 * Owns:      parsing, ranges, and sentences that name the key, its origin and what is allowed.
 * Does not:  know any key: the table and the struct are the caller's. A key of the command line that the command does not
 *            have, and its suggestion: cli/args.c.
 *
 * A value is text until its field is known; every origin goes through the same parser.
 * Invariant: a setting that is refused changes nothing. A later setting replaces an earlier one; the order of
 *            precedence among defaults, files, environment and command line: train/config.h. */
#ifndef AN_IO_CONFIG_CONFIG_H
#define AN_IO_CONFIG_CONFIG_H

#include "base/base.h"
#include "base/text.h"

enum { AN_CONFIG_TEXT_BYTES = 512, AN_CONFIG_FILE_BYTES = 1 << 20 };

typedef enum an_config_type {
    AN_CONFIG_INT,   /* int64_t */
    AN_CONFIG_FLOAT, /* double; an integer is accepted */
    AN_CONFIG_GIB,   /* double, of GiB: a number, or an amount as 512MiB */
    AN_CONFIG_BOOL,  /* bool: true false yes no on off 1 0 */
    AN_CONFIG_TEXT,  /* char[AN_CONFIG_TEXT_BYTES] */
    AN_CONFIG_DTYPE  /* an_dtype: f32 bf16 f16 f64, or float32 bfloat16 float16 float64 */
} an_config_type;

typedef struct an_config_field {
    const char *name;
    an_config_type type;
    size_t offset;       /* in the struct, of the type above */
    const char *initial; /* the default, as a user would write it */
    double min, max;     /* of numbers, inclusive; both 0: any */
    const char *choices; /* of text: "auto|cpu|cuda"; NULL: any */
    const char *doc;     /* one line */
} an_config_field;

typedef struct an_config {
    const an_config_field *fields;
    size_t n;
    bool partial; /* keys that are not in the table are skipped: another table has them */
} an_config;

/* The field of a key; NULL: there is none. */
const an_config_field *an_config_find(const an_config *c, const char *key);
an_status an_config_defaults(an_err *err, const an_config *c, void *values);
/* `origin` begins the sentence of a refusal: "configs/gpt.yaml:12", or "" on a command line. */
an_status an_config_set(an_err *err, const an_config *c, void *values, const char *origin, const char *key,
                        const char *value);
/* key=value or --key=value; the first = splits. */
an_status an_config_argument(an_err *err, const an_config *c, void *values, const char *argument);
/* A mapping of keys to scalars. Lists, nesting, anchors, tags, a second document and a key that is there twice are
 * refused. */
an_status an_config_yaml(an_err *err, const an_config *c, void *values, const char *path);
an_status an_config_yaml_text(an_err *err, const an_config *c, void *values, const char *where, const char *text,
                              size_t n);

/* {"key":value,...} in the table's order, and back (for checkpoints). Reading needs no key to be there. */
an_status an_config_json(an_err *err, const an_config *c, const void *values, an_text *out);
an_status an_config_from_json(an_err *err, const an_config *c, void *values, const char *where, const char *json,
                              size_t n);

size_t an_config_value_bytes(const an_config_field *f); /* of its value in the struct */
/* One value as a user would write it; the table of all keys, defaults and docs for a help page. */
void an_config_value_text(const an_config_field *f, const void *values, an_text *out);
void an_config_help(const an_config *c, an_text *out);

/* "8GiB", "512 MiB", "1.5G", "8GB" (of 10^9) or bytes. */
an_status an_bytes_parse(an_err *err, const char *what, const char *text, uint64_t *out);

#endif
