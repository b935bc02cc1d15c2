/* conversations.c: see conversations.h. */
#include "io/data/conversations.h"
#include "io/formats/json.h"
#include "io/formats/line_reader.h"
#include "io/formats/yaml_check.h"
#include "platform/platform.h"
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { MAX_FILE_BYTES = 1 << 30, WHERE_BYTES = 1200 };

typedef struct reader {
    an_conversations *c;
    const char *format;
    char where[WHERE_BYTES]; /* file and line or item */
    int32_t first;           /* turn of the conversation that is being read */
} reader;

static an_status bad(an_err *err, const reader *r, const char *why)
{
    return an_fail(err, AN_E_DATA, "%s: %s (format %s)", r->where, why, r->format);
}

/* ---- turns */

static void begin_conversation(reader *r)
{
    r->first = r->c->n_turns;
}

static an_status add_turn(an_err *err, reader *r, int role, const char *text, size_t n)
{
    an_conversations *c = r->c;
    while (n > 0 && strchr(" \t\r\n", text[n - 1])) n--;
    while (n > 0 && strchr(" \t\r\n", *text)) text++, n--;
    if (role < 0 || n == 0) return c->dropped_turns++, AN_OK;
    char *copy = an_arena_alloc(&c->text, n + 1);
    if (!copy || !an_grow((void **)&c->turn, c->n_turns, &c->cap_turns, sizeof *c->turn))
        return an_fail_nomem(err, r->where, n);
    memcpy(copy, text, n);
    c->turn[c->n_turns++] = (an_turn){(an_chat_role)role, copy, n};
    return AN_OK;
}

/* Kept when a user asks and an assistant answers. */
static an_status end_conversation(an_err *err, reader *r)
{
    an_conversations *c = r->c;
    bool user = false, assistant = false;
    for (int32_t i = r->first; i < c->n_turns; i++) {
        user |= c->turn[i].role == AN_CHAT_USER;
        assistant |= c->turn[i].role == AN_CHAT_ASSISTANT;
    }
    if (!user || !assistant) {
        c->n_turns = r->first;
        c->dropped++;
        return AN_OK;
    }
    if (!an_grow((void **)&c->begin, c->n, &c->cap, sizeof *c->begin)) return an_fail_nomem(err, r->where, 4);
    c->begin[c->n++] = r->first;
    return AN_OK;
}

/* Names between blanks, by role. */
static int role_of(const char *name)
{
    static const char *const names[] = {" human user prompter ", " gpt assistant chatgpt ", " system "};
    const size_t n = strlen(name);
    for (int role = 0; n > 0 && !strchr(name, ' ') && role < (int)AN_COUNT(names); role++)
        for (const char *at = names[role]; (at = strstr(at, name)) != NULL; at++)
            if (at > names[role] && at[-1] == ' ' && at[n] == ' ') return role;
    return -1;
}

/* ---- JSON: one object is a conversation, or several of alpaca's instances */

/* The text of a key; "" with `optional` where it is missing. */
static an_status take_text(an_err *err, const reader *r, const json_t *object, const char *key, bool optional,
                           const char **out)
{
    char why[96];
    const json_t *v = json_object_get(object, key);
    *out = json_string_value(v);
    if (*out) return AN_OK;
    *out = "";
    if (optional && (!v || json_is_null(v))) return AN_OK;
    snprintf(why, sizeof why, "\"%s\" is missing or no text", key);
    return bad(err, r, why);
}

static an_status add_messages(an_err *err, reader *r, const json_t *item, const char *list_key, const char *role_key,
                              const char *text_key)
{
    const json_t *list = json_object_get(item, list_key);
    char why[96];
    if (!json_is_array(list)) {
        snprintf(why, sizeof why, "\"%s\" is missing or no list", list_key);
        return bad(err, r, why);
    }
    begin_conversation(r);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *turn = json_array_get(list, i);
        const char *role, *text;
        if (!json_is_object(turn)) return bad(err, r, "a turn is no object");
        AN_TRY(take_text(err, r, turn, role_key, false, &role));
        AN_TRY(take_text(err, r, turn, text_key, false, &text));
        AN_TRY(add_turn(err, r, role_of(role), text, strlen(text)));
    }
    return end_conversation(err, r);
}

static an_status add_task(an_err *err, reader *r, const char *instruction, const json_t *item)
{
    const char *input, *output;
    an_text text = {0};
    AN_TRY(take_text(err, r, item, "input", true, &input));
    AN_TRY(take_text(err, r, item, "output", false, &output));
    an_text_puts(&text, instruction);
    if (*input) an_text_printf(&text, "\n\n%s", input);
    begin_conversation(r);
    an_status status = text.failed ? an_fail_nomem(err, r->where, strlen(input))
                                   : add_turn(err, r, AN_CHAT_USER, text.data ? text.data : "", text.len);
    an_text_free(&text);
    if (status == AN_OK) status = add_turn(err, r, AN_CHAT_ASSISTANT, output, strlen(output));
    return status == AN_OK ? end_conversation(err, r) : status;
}

static an_status add_item(an_err *err, reader *r, const json_t *item)
{
    const char *instruction;
    if (!json_is_object(item)) return bad(err, r, "an object is needed");
    if (strcmp(r->format, "sharegpt") == 0) return add_messages(err, r, item, "conversations", "from", "value");
    if (strcmp(r->format, "openassistant") == 0) return add_messages(err, r, item, "messages", "role", "content");
    const json_t *instances = json_object_get(item, "instances");
    AN_TRY(take_text(err, r, item, "instruction", false, &instruction));
    if (!json_is_array(instances)) return add_task(err, r, instruction, item);
    for (size_t i = 0; i < json_array_size(instances); i++)
        AN_TRY(add_task(err, r, instruction, json_array_get(instances, i)));
    return AN_OK;
}

static an_status parse_json(an_err *err, const char *name, reader *r, const char *data, size_t n)
{
    json_t *root;
    AN_TRY(an_json_parse(err, name, 0, data, n, &root));
    an_status status = json_is_array(root) ? AN_OK : add_item(err, r, root);
    for (size_t i = 0; status == AN_OK && i < json_array_size(root); i++) {
        snprintf(r->where, sizeof r->where, "%.1000s: conversation %zu", name, i + 1);
        status = add_item(err, r, json_array_get(root, i));
    }
    json_decref(root);
    return status;
}

static an_status parse_line(an_err *err, const char *name, reader *r, uint64_t number, const char *line, size_t n)
{
    json_t *item;
    snprintf(r->where, sizeof r->where, "%.1000s:%llu", name, (unsigned long long)number);
    while (n > 0 && strchr(" \t\r", line[n - 1])) n--;
    if (n == 0) return AN_OK;
    AN_TRY(an_json_parse(err, r->where, 0, line, n, &item));
    an_status status = add_item(err, r, item);
    json_decref(item);
    return status;
}

/* ---- chatterbot's YAML: depth counts open sequences and mappings below `conversations` */

typedef struct yaml_state {
    int depth;   /* of all collections */
    int inside;  /* depth of the list of conversations; 0: elsewhere */
    bool is_key; /* in the top mapping: a key comes next */
    bool wanted; /* the last key was `conversations` */
    int turn;    /* of the conversation */
} yaml_state;

static an_status yaml_scalar(an_err *err, reader *r, yaml_state *s, const yaml_event_t *e)
{
    const char *text = (const char *)e->data.scalar.value;
    const size_t n = e->data.scalar.length;
    if (s->depth == 1) {
        s->wanted = s->is_key && strcmp(text, "conversations") == 0;
        s->is_key = !s->is_key;
        return AN_OK;
    }
    if (!s->inside || s->depth < s->inside) return AN_OK;
    if (s->depth == s->inside) return r->c->dropped_turns++, AN_OK; /* a sentence of no conversation */
    if (s->depth != s->inside + 1)
        return bad(err, r, "a conversation is a list of sentences; quote a sentence with \": \" in it");
    if (memchr(text, 0, n)) return bad(err, r, "a NUL character");
    const int role = s->turn++ % 2 == 0 ? AN_CHAT_USER : AN_CHAT_ASSISTANT;
    return add_turn(err, r, role, text, n);
}

static an_status yaml_event(an_err *err, reader *r, yaml_state *s, const yaml_event_t *e)
{
    const bool opens = e->type == YAML_SEQUENCE_START_EVENT || e->type == YAML_MAPPING_START_EVENT;
    const bool closes = e->type == YAML_SEQUENCE_END_EVENT || e->type == YAML_MAPPING_END_EVENT;
    if (e->type == YAML_ALIAS_EVENT) return bad(err, r, "aliases are not read");
    if (e->type == YAML_SCALAR_EVENT) return yaml_scalar(err, r, s, e);
    if (opens) {
        if (s->depth == 0 && e->type != YAML_MAPPING_START_EVENT)
            return bad(err, r, "a mapping with conversations is needed");
        s->depth++;
        if (s->depth == 1) s->is_key = true;
        if (s->depth == 2 && s->wanted && e->type == YAML_SEQUENCE_START_EVENT) s->inside = 2;
        if (s->inside && s->depth == s->inside + 1) {
            if (e->type != YAML_SEQUENCE_START_EVENT) return bad(err, r, "a conversation is a list of sentences");
            begin_conversation(r);
            s->turn = 0;
        }
        if (s->inside && s->depth > s->inside + 1)
            return bad(err, r, "a conversation is a list of sentences; quote a sentence with \": \" in it");
    }
    if (closes) {
        if (s->inside && s->depth == s->inside + 1) AN_TRY(end_conversation(err, r));
        if (s->depth == s->inside) s->inside = 0;
        s->depth--;
        if (s->depth == 1) s->is_key = true, s->wanted = false;
    }
    return AN_OK;
}

static an_status parse_yaml(an_err *err, const char *name, reader *r, const char *data, size_t n)
{
    yaml_parser_t parser;
    yaml_state s = {0};
    an_status status = AN_OK;
    bool more = true;
    AN_TRY(an_yaml_check(err, name, data, n, &(an_yaml_bounds){.depth = 8, .anchors = true, .documents = true}));
    if (!yaml_parser_initialize(&parser)) return an_fail_nomem(err, name, sizeof parser);
    yaml_parser_set_input_string(&parser, (const unsigned char *)data, n);
    while (status == AN_OK && more) {
        yaml_event_t e;
        char quoted[AN_QUOTED_BYTES];
        if (!yaml_parser_parse(&parser, &e)) {
            status =
                parser.error == YAML_MEMORY_ERROR
                    ? an_fail_nomem(err, name, n)
                    : an_fail(err, AN_E_DATA, "%.1000s:%zu: not valid YAML: %s", name, parser.problem_mark.line + 1,
                              an_quoted(parser.problem ? parser.problem : "?", quoted));
            break;
        }
        snprintf(r->where, sizeof r->where, "%.1000s:%zu", name, e.start_mark.line + 1);
        more = e.type != YAML_STREAM_END_EVENT;
        status = yaml_event(err, r, &s, &e);
        yaml_event_delete(&e);
    }
    yaml_parser_delete(&parser);
    return status;
}

/* ---- all formats */

static bool is_format(const char *format)
{
    static const char *const names[] = {"sharegpt", "alpaca", "openassistant", "chatterbot"};
    for (size_t i = 0; i < AN_COUNT(names); i++)
        if (strcmp(names[i], format) == 0) return true;
    return false;
}

static an_status begin(an_err *err, const char *name, const char *format, an_conversations *c, reader *r)
{
    *r = (reader){.c = c, .format = format};
    snprintf(r->where, sizeof r->where, "%.1000s", name);
    if (is_format(format)) return AN_OK;
    return an_fail(err, AN_E_USAGE, "format=%.64s: sharegpt, alpaca, openassistant and chatterbot are read", format);
}

static an_status parse(an_err *err, const char *name, bool lines, const char *data, size_t n, reader *r)
{
    if (strcmp(r->format, "chatterbot") == 0) return parse_yaml(err, name, r, data, n);
    if (!lines) return parse_json(err, name, r, data, n);
    uint64_t number = 1;
    for (const char *at = data, *end = data + n; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *stop = newline ? newline : end;
        AN_TRY(parse_line(err, name, r, number, at, (size_t)(stop - at)));
        at = stop + 1;
    }
    return AN_OK;
}

an_status an_conversations_parse(an_err *err, const char *name, const char *format, bool lines, const char *data,
                                 size_t n, an_conversations *out)
{
    reader r;
    an_status status = begin(err, name, format, out, &r);
    return status == AN_OK ? parse(err, name, lines, data, n, &r) : status;
}

/* JSON lines: the name says so, or the text is an object that ends with its line while another follows. */
static bool has_lines(const char *path, const an_text *t)
{
    if (an_path_ends(path, ".jsonl") || an_path_ends(path, ".jsonl.gz") || an_path_ends(path, ".ndjson")) return true;
    const char *newline = t->len ? memchr(t->data, '\n', t->len) : NULL;
    return newline && newline > t->data && t->data[0] == '{' && newline[-1] == '}' && newline + 1 < t->data + t->len;
}

an_status an_conversations_read(an_err *err, const char *path, const char *format, an_conversations *out)
{
    an_text text = {0};
    const int32_t before = out->n;
    an_status status = an_text_file_read(err, path, MAX_FILE_BYTES, &text);
    if (status == AN_OK)
        status = an_conversations_parse(err, path, format, has_lines(path, &text), text.data ? text.data : "", text.len,
                                        out);
    an_text_free(&text);
    if (status == AN_OK && out->n == before)
        status = an_fail(err, AN_E_DATA,
                         "%s: there is no conversation in it in which a user asks and an assistant answers", path);
    return status;
}

const an_turn *an_conversation(const an_conversations *c, int32_t i, int32_t *n)
{
    *n = (i + 1 < c->n ? c->begin[i + 1] : c->n_turns) - c->begin[i];
    return c->turn + c->begin[i];
}

void an_conversations_free(an_conversations *c)
{
    free(c->turn);
    free(c->begin);
    an_arena_free(&c->text);
    *c = (an_conversations){0};
}
