/* json.c: jansson with the settings and sentences of json.h. */
#include "io/formats/json.h"
#include "platform/platform.h"
#include "io/text/utf8.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

an_status an_json_parse(an_err *err, const char *where, uint64_t at, const char *text, size_t n, json_t **out)
{
    /* jansson itself stops at 2048 levels (JSON_PARSER_MAX_DEPTH), refuses NUL in strings and checks UTF-8. */
    json_error_t why;
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (*out) return AN_OK;
    /* jansson has no code for some allocations that failed, and no text either. */
    if (json_error_code(&why) == json_error_out_of_memory || !why.text[0]) return an_fail_nomem(err, where, n);
    char token[AN_QUOTED_BYTES];
    uint64_t byte = at + (why.position > 0 ? (uint64_t)why.position : 0);
    return an_fail(err, AN_E_IO, "%s: byte %llu: not valid JSON: %s; the file is damaged or not what its name says",
                   where, (unsigned long long)byte, an_quoted(why.text, token));
}

an_status an_json_read(an_err *err, const char *path, size_t max_bytes, json_t **out)
{
    char *text;
    size_t n;
    *out = NULL;
    AN_TRY(an_file_read(err, path, max_bytes, &text, &n));
    an_status status = an_json_parse(err, path, 0, text, n, out);
    free(text);
    return status;
}

an_status an_json_save(an_err *err, const char *path, const an_text *text)
{
    return text->failed ? an_fail_nomem(err, path, text->len) : an_file_write(err, path, text->data, text->len);
}

/* ---- lines of values; the text is valid JSON */

static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && strchr(" \t\r\n,:", *at)) at++;
    return at;
}

static const char *skip_value(const char *at, const char *end)
{
    int depth = 0;
    for (bool quoted = false; at < end; at++) {
        if (quoted) {
            if (*at == '\\') at++;
            if (at < end && *at == '"') quoted = false;
            if (!quoted && depth == 0) return at + 1;
            continue;
        }
        if (depth == 0 && strchr(",:]} \t\r\n", *at)) return at;
        quoted = *at == '"';
        if (*at == '[' || *at == '{') depth++;
        if ((*at == ']' || *at == '}') && --depth == 0) return at + 1;
    }
    return end;
}

/* The value that `step` leads to in the collection at `at`; NULL: there is none. */
static const char *find_value(const char *at, const char *end, const char *step)
{
    const bool object = at < end && *at == '{';
    const size_t n = strlen(step);
    long place = *step == '#' ? strtol(step + 1, NULL, 10) : -1;
    if (!object && (at >= end || *at != '[')) return NULL;
    for (at = skip_blanks(at + 1, end); at < end && *at != ']' && *at != '}'; at = skip_blanks(at, end)) {
        const char *key = at;
        if (object) at = skip_blanks(skip_value(at, end), end);
        if (object ? (size_t)(end - key) > n + 1 && memcmp(key + 1, step, n) == 0 && key[n + 1] == '"' : place-- == 0)
            return at;
        at = skip_value(at, end);
    }
    return NULL;
}

uint64_t an_json_byte(const char *text, size_t n, const char *const *step, int n_steps)
{
    const char *end = text + n, *at = skip_blanks(text, end);
    for (int i = 0; i < n_steps; i++) {
        const char *next = find_value(at, end, step[i]);
        if (!next) break;
        at = next;
    }
    return (uint64_t)(at - text);
}

uint64_t an_json_line(const char *text, size_t n, const char *const *step, int n_steps)
{
    const uint64_t at = an_json_byte(text, n, step, n_steps);
    uint64_t line = 1;
    for (uint64_t i = 0; i < at; i++) line += text[i] == '\n';
    return line;
}

an_status an_json_string(an_err *err, const char *what, const json_t *object, const char *key, const char **out)
{
    *out = json_string_value(json_object_get(object, key));
    return *out ? AN_OK : an_fail(err, AN_E_IO, "%s: \"%s\" is missing or not a string", what, key);
}

an_status an_json_check_text(an_err *err, const char *what, const char *s)
{
    size_t n = strlen(s);
    char quoted[AN_QUOTED_BYTES];
    uint32_t c;
    for (size_t at = 0; at < n;) {
        int len = an_utf8_next(s + at, n - at, &c);
        if (len == 0)
            return an_fail(err, AN_E_USAGE, "%s: %s is not UTF-8, which JSON demands", what, an_quoted(s, quoted));
        at += (size_t)len;
    }
    return AN_OK;
}

void an_json_put(an_text *out, const char *s)
{
    an_text_puts(out, "\"");
    while (*s) {
        size_t plain = 0;
        while ((unsigned char)s[plain] >= 32 && s[plain] != '"' && s[plain] != '\\') plain++;
        an_text_putn(out, s, plain);
        s += plain;
        if (*s == '"' || *s == '\\')
            an_text_printf(out, "\\%c", *s++);
        else if (*s)
            an_text_printf(out, "\\u%04x", (unsigned char)*s++);
    }
    an_text_puts(out, "\"");
}

void an_json_put_number(an_text *out, const char *key, double value)
{
    if (isfinite(value))
        an_text_printf(out, ",\"%s\":%.9g", key, value);
    else
        an_text_printf(out, ",\"%s\":null", key);
}

const char *an_quoted(const char *s, char out[AN_QUOTED_BYTES])
{
    size_t n = strlen(s), room = AN_QUOTED_BYTES - 6; /* two quotes, three dots, NUL */
    size_t keep = AN_MIN(n, room);
    while (keep < n && keep > 0 && ((unsigned char)s[keep] & 0xC0) == 0x80)
        keep--; /* not in the middle of a character */
    char *p = out;
    *p++ = '"';
    for (size_t i = 0; i < keep; i++) *p++ = ((unsigned char)s[i] < 32 || s[i] == 127) ? '?' : s[i];
    if (keep < n) memcpy(p, "...", 3), p += 3;
    *p++ = '"';
    *p = 0;
    return out;
}

void an_json_put_value(an_text *out, const json_t *value)
{
    const char *key, *separator = "";
    json_t *member;
    size_t i;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        an_text_puts(out, "{");
        json_object_foreach((json_t *)value, key, member) /* a cast for jansson's macro, which changes nothing */
        {
            an_text_puts(out, separator);
            an_json_put(out, key);
            an_text_puts(out, ":");
            an_json_put_value(out, member);
            separator = ",";
        }
        an_text_puts(out, "}");
        return;
    case JSON_ARRAY:
        an_text_puts(out, "[");
        json_array_foreach(value, i, member)
        {
            an_text_puts(out, i ? "," : "");
            an_json_put_value(out, member);
        }
        an_text_puts(out, "]");
        return;
    case JSON_STRING: an_json_put(out, json_string_value(value)); return;
    case JSON_INTEGER: an_text_printf(out, "%lld", (long long)json_integer_value(value)); return;
    case JSON_REAL: {
        char digits[40];
        snprintf(digits, sizeof digits, "%.17g", json_real_value(value));
        an_text_printf(out, "%s%s", digits, strpbrk(digits, ".e") ? "" : ".0"); /* it stays a float */
        return;
    }
    case JSON_TRUE: an_text_puts(out, "true"); return;
    case JSON_FALSE: an_text_puts(out, "false"); return;
    case JSON_NULL: an_text_puts(out, "null"); return;
    }
}
