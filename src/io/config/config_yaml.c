/* config_yaml.c: YAML files of settings: one mapping of keys to scalars, read event by event with libyaml, so that
 * every sentence has its line. */
#include "platform/platform.h"
#include "io/config/config.h"
#include "io/formats/json.h"
#include "io/formats/yaml_check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { MAX_KEYS = 1024, MAX_KEY_BYTES = 128 };

typedef struct reader {
    yaml_parser_t parser;
    const char *where;
    char (*seen)[MAX_KEY_BYTES]; /* keys so far */
    size_t n_seen;
} reader;

static an_status bad(an_err *err, const reader *r, size_t line, const char *why)
{
    return an_fail(err, AN_E_USAGE, "%s:%zu: %s", r->where, line + 1, why);
}

static an_status next(an_err *err, reader *r, yaml_event_t *out)
{
    if (yaml_parser_parse(&r->parser, out)) return AN_OK;
    if (r->parser.error == YAML_MEMORY_ERROR) return an_fail_nomem(err, r->where, AN_CONFIG_FILE_BYTES);
    size_t line = r->parser.problem_mark.line;
    char quoted[AN_QUOTED_BYTES];
    return an_fail(err, AN_E_USAGE, "%s:%zu: not valid YAML: %s", r->where, line + 1,
                   an_quoted(r->parser.problem ? r->parser.problem : "?", quoted));
}

/* The next event must be of this type; its content is not needed. */
static an_status expect(an_err *err, reader *r, yaml_event_type_t type, const char *why)
{
    yaml_event_t e;
    AN_TRY(next(err, r, &e));
    an_status status = e.type == type ? AN_OK : bad(err, r, e.start_mark.line, why);
    yaml_event_delete(&e);
    return status;
}

static an_status check_scalar(an_err *err, const reader *r, const yaml_event_t *e, const char *what)
{
    char why[160];
    if (e->type != YAML_SCALAR_EVENT) {
        snprintf(why, sizeof why, "%s must be one word or number: lists, nesting and aliases are not settings", what);
        return bad(err, r, e->start_mark.line, why);
    }
    if (e->data.scalar.anchor || e->data.scalar.tag)
        return bad(err, r, e->start_mark.line, "anchors and tags are not settings");
    if (strlen((const char *)e->data.scalar.value) != e->data.scalar.length)
        return bad(err, r, e->start_mark.line, "a NUL character");
    return AN_OK;
}

static an_status remember(an_err *err, reader *r, size_t line, const char *key)
{
    char why[96 + AN_QUOTED_BYTES], quoted[AN_QUOTED_BYTES];
    for (size_t i = 0; i < r->n_seen; i++) {
        if (strcmp(r->seen[i], key) != 0) continue;
        snprintf(why, sizeof why, "%s is set twice in this file", an_quoted(key, quoted));
        return bad(err, r, line, why);
    }
    if (r->n_seen == MAX_KEYS || strlen(key) >= MAX_KEY_BYTES)
        return bad(err, r, line, "too many keys, or a key that is too long");
    memcpy(r->seen[r->n_seen++], key, strlen(key) + 1);
    return AN_OK;
}

static an_status set_pair(an_err *err, reader *r, const an_config *c, void *values, const yaml_event_t *key)
{
    size_t line = key->start_mark.line;
    const char *name = (const char *)key->data.scalar.value;
    AN_TRY(check_scalar(err, r, key, "a key"));
    AN_TRY(remember(err, r, line, name));
    yaml_event_t value;
    AN_TRY(next(err, r, &value));
    an_status status = check_scalar(err, r, &value, "a value");
    if (status == AN_OK && value.data.scalar.length == 0 && value.data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        status = bad(err, r, line, "a key without a value; write \"\" for an empty text");
    if (status == AN_OK) {
        char origin[600];
        snprintf(origin, sizeof origin, "%.550s:%zu", r->where, line + 1);
        status = an_config_set(err, c, values, origin, name, (const char *)value.data.scalar.value);
    }
    yaml_event_delete(&value);
    return status;
}

static an_status read_mapping(an_err *err, reader *r, const an_config *c, void *values)
{
    for (;;) {
        yaml_event_t key;
        AN_TRY(next(err, r, &key));
        bool end = key.type == YAML_MAPPING_END_EVENT;
        an_status status = end ? AN_OK : set_pair(err, r, c, values, &key);
        yaml_event_delete(&key);
        if (end || status != AN_OK) return status;
    }
}

static an_status read_document(an_err *err, reader *r, const an_config *c, void *values)
{
    AN_TRY(expect(err, r, YAML_STREAM_START_EVENT, "no YAML"));
    yaml_event_t e;
    AN_TRY(next(err, r, &e));
    bool empty = e.type == YAML_STREAM_END_EVENT; /* only comments: sets nothing */
    yaml_event_delete(&e);
    if (empty) return AN_OK;
    AN_TRY(expect(err, r, YAML_MAPPING_START_EVENT, "settings are lines of `key: value`"));
    AN_TRY(read_mapping(err, r, c, values));
    AN_TRY(expect(err, r, YAML_DOCUMENT_END_EVENT, "more than one mapping"));
    return expect(err, r, YAML_STREAM_END_EVENT, "more than one document");
}

/* A copy of the struct takes the settings and replaces it at the end: a file that is refused at line 9 has not set
 * lines 1 to 8. */
static an_status read_all(an_err *err, reader *r, const an_config *c, void *values)
{
    size_t bytes = 0;
    for (size_t i = 0; i < c->n; i++) bytes = AN_MAX(bytes, c->fields[i].offset + an_config_value_bytes(&c->fields[i]));
    char *copy = malloc(bytes + 1);
    if (!copy) return an_fail_nomem(err, r->where, bytes);
    memcpy(copy, values, bytes);
    an_status status = read_document(err, r, c, copy);
    if (status == AN_OK) memcpy(values, copy, bytes);
    free(copy);
    return status;
}

an_status an_config_yaml_text(an_err *err, const an_config *c, void *values, const char *where, const char *text,
                              size_t n)
{
    reader r = {.where = where};
    const size_t directive = an_yaml_directive(text, n);
    if (directive > 0) return bad(err, &r, directive - 1, "directives (a line that begins with %) are not settings");
    r.seen = malloc(sizeof *r.seen * MAX_KEYS);
    if (!r.seen) return an_fail_nomem(err, where, sizeof *r.seen * MAX_KEYS);
    an_status status;
    if (yaml_parser_initialize(&r.parser)) {
        yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, n);
        status = read_all(err, &r, c, values);
        yaml_parser_delete(&r.parser);
    } else {
        status = an_fail_nomem(err, where, sizeof r.parser);
    }
    free(r.seen);
    return status;
}

an_status an_config_yaml(an_err *err, const an_config *c, void *values, const char *path)
{
    char *text;
    size_t n;
    AN_TRY(an_file_read(err, path, AN_CONFIG_FILE_BYTES, &text, &n));
    an_status status = an_config_yaml_text(err, c, values, path, text, n);
    free(text);
    return status;
}
