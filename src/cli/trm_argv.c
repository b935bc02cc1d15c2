/* trm_argv.c: the list of arguments that trm_command.c and trm_yaml.c fill, and the words that both take for none. */
#include "cli/trm_command.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *an_argv_printf(an_argv *a, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, format, args);
    char *text = n >= 0 && a->n_made < (int)AN_COUNT(a->made) ? malloc((size_t)n + 1) : NULL;
    if (text) {
        vsnprintf(text, (size_t)n + 1, format, again);
        a->made[a->n_made++] = text;
    }
    va_end(again);
    va_end(args);
    return text;
}

void an_argv_free(an_argv *a)
{
    for (int i = 0; i < a->n_made; i++) free(a->made[i]);
    a->n_made = 0;
}

an_status an_argv_add(an_err *err, an_argv *a, const char *text)
{
    if (a->argc == AN_MAX_ARGUMENTS) return an_fail(err, AN_E_USAGE, "more than %d arguments", AN_MAX_ARGUMENTS);
    char *copy = an_argv_printf(a, "%s", text);
    if (!copy) return an_fail_nomem(err, "arguments", strlen(text));
    a->argv[a->argc++] = copy;
    a->argv[a->argc] = NULL;
    return AN_OK;
}

bool an_recursive_null(const char *value)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL", "None"};
    for (size_t i = 0; i < AN_COUNT(words); i++)
        if (strcmp(value, words[i]) == 0) return true;
    return false;
}
