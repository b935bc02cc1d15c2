#include "io/json.h"
#include <string.h>

an_status an_json_parse(an_err *err, const char *where, uint64_t at, const char *text, size_t n, json_t **out)
{
    /* jansson itself stops at 2048 levels (JSON_PARSER_MAX_DEPTH), refuses NUL in strings and checks UTF-8. */
    json_error_t why;
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    if (*out) return AN_OK;
    if (json_error_code(&why) == json_error_out_of_memory) return an_fail_nomem(err, where, n);
    char token[AN_QUOTED_BYTES];
    uint64_t byte = at + (why.position > 0 ? (uint64_t)why.position : 0);
    return an_fail(err, AN_E_IO, "%s: byte %llu: not valid JSON: %s; the file is damaged or not what its name says",
                   where, (unsigned long long)byte, an_quoted(why.text, token));
}

an_status an_json_string(an_err *err, const char *what, const json_t *object, const char *key, const char **out)
{
    *out = json_string_value(json_object_get(object, key));
    return *out ? AN_OK : an_fail(err, AN_E_IO, "%s: \"%s\" is missing or not a string", what, key);
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
