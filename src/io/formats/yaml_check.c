/* yaml_check.c: see yaml_check.h. Events come from libyaml a few at a time, so a bound is met soon after it is passed. */
#include "io/formats/yaml_check.h"
#include "io/formats/json.h"
#include <string.h>
#include <yaml.h>

size_t an_yaml_directive(const char *text, size_t n)
{
    size_t line = 1;
    for (const char *p = text, *end = text + n; p < end; line++) {
        if (*p == '%') return line;
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        p = newline ? newline + 1 : end;
    }
    return 0;
}

typedef struct state {
    int depth, documents;
    int64_t nodes;
} state;

/* NULL: within the bounds. */
static const char *look(const yaml_event_t *e, const an_yaml_bounds *b, state *s)
{
    const yaml_char_t *anchor = NULL;
    switch (e->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (++s->documents > 1 && !b->documents) return "more than one document";
        return NULL;
    case YAML_ALIAS_EVENT: return "aliases are not read";
    case YAML_SCALAR_EVENT: anchor = e->data.scalar.anchor; break;
    case YAML_SEQUENCE_START_EVENT: anchor = e->data.sequence_start.anchor, s->depth++; break;
    case YAML_MAPPING_START_EVENT: anchor = e->data.mapping_start.anchor, s->depth++; break;
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: s->depth--; return NULL;
    default: return NULL;
    }
    if (anchor && !b->anchors) return "anchors are not read";
    if (s->depth > b->depth) return "lists and mappings inside of each other, deeper than is read";
    return b->most > 0 && ++s->nodes > b->most ? "more keys and values than are read" : NULL;
}

an_status an_yaml_check(an_err *err, const char *where, const char *text, size_t n, const an_yaml_bounds *b)
{
    const size_t directive = an_yaml_directive(text, n);
    yaml_parser_t parser;
    yaml_event_t e;
    state s = {0};
    an_status status = AN_OK;
    if (directive > 0)
        return an_fail(err, AN_E_DATA, "%s:%zu: directives (a line that begins with %%) are not read", where,
                       directive);
    if (!yaml_parser_initialize(&parser)) return an_fail_nomem(err, where, sizeof parser);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    for (bool more = true; more && status == AN_OK;) {
        char quoted[AN_QUOTED_BYTES];
        if (!yaml_parser_parse(&parser, &e)) {
            status = parser.error == YAML_MEMORY_ERROR
                         ? an_fail_nomem(err, where, n)
                         : an_fail(err, AN_E_DATA, "%s:%zu: not valid YAML: %s", where, parser.problem_mark.line + 1,
                                   an_quoted(parser.problem ? parser.problem : "?", quoted));
            break;
        }
        const char *why = look(&e, b, &s);
        if (why) status = an_fail(err, AN_E_DATA, "%s:%zu: %s", where, e.start_mark.line + 1, why);
        more = e.type != YAML_STREAM_END_EVENT;
        yaml_event_delete(&e);
    }
    yaml_parser_delete(&parser);
    return status;
}
