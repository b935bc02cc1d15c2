/* base.c: writing messages into error records; growing arrays.
 *
 * Invariant: a record that holds a failure is never overwritten; its text always ends within the array. */
#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

an_status an_fail(an_err *err, an_status code, const char *fmt, ...)
{
    if (err == NULL || err->code != AN_OK) return code;
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    if (n < 0) err->text[0] = '\0';
    /* A cut sentence says so. */
    if (n >= (int)sizeof err->text) memcpy(err->text + sizeof err->text - 4, "...", 4);
    err->code = code;
    return code;
}

an_status an_fail_nomem(an_err *err, const char *what, size_t bytes)
{
    return an_fail(err, AN_E_NOMEM,
                   "%s: out of memory: the system refused %zu bytes; free memory or make the work smaller", what,
                   bytes);
}

void an_err_clear(an_err *err)
{
    err->code = AN_OK;
    err->text[0] = '\0';
}

bool an_grow(void **array, int32_t n, int32_t *cap, size_t bytes)
{
    if (n < *cap) return true;
    int32_t more = *cap ? 2 * *cap : 16;
    void *bigger = realloc(*array, bytes * (size_t)more);
    if (!bigger) return false;
    memset((char *)bigger + bytes * (size_t)n, 0, bytes * (size_t)(more - n));
    *array = bigger;
    *cap = more;
    return true;
}
