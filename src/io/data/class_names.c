/* class_names.c: see class_names.h. Lists are short; names are found one after the other. */
#include "io/data/class_names.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int32_t an_class_names_find(const an_class_names *c, const char *name, size_t n)
{
    for (int32_t i = 0; i < c->n; i++)
        if (strlen(c->name[i]) == n && memcmp(c->name[i], name, n) == 0) return i;
    return -1;
}

static an_status check_name(an_err *err, const char *where, const char *name, size_t n)
{
    char copy[AN_CLASS_NAME_BYTES];
    if (n == 0) return an_fail(err, AN_E_DATA, "%s: the label is empty", where);
    if (n >= sizeof copy)
        return an_fail(err, AN_E_DATA, "%s: the label has %zu bytes; a name of a class has at most %zu", where, n,
                       sizeof copy - 1);
    memcpy(copy, name, n);
    copy[n] = 0;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < 32 || name[i] == 127)
            return an_fail(err, AN_E_DATA, "%s: the label has a control character in it", where);
    return an_json_check_text(err, where, copy);
}

an_status an_class_names_add(an_err *err, const char *where, an_class_names *c, const char *name, size_t n)
{
    if (an_class_names_find(c, name, n) >= 0) return AN_OK;
    AN_TRY(check_name(err, where, name, n));
    if (c->n == AN_CLASSES_MOST)
        return an_fail(err, AN_E_DATA, "%s: more than %d classes; is the label's column the right one?", where,
                       AN_CLASSES_MOST);
    char *copy = malloc(n + 1);
    if (!copy || !an_grow((void **)&c->name, c->n, &c->cap, sizeof *c->name)) {
        free(copy);
        return an_fail_nomem(err, "names of classes", n);
    }
    memcpy(copy, name, n);
    copy[n] = 0;
    c->name[c->n++] = copy;
    return AN_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void an_class_names_sort(an_class_names *c)
{
    if (c->n > 1) qsort(c->name, (size_t)c->n, sizeof *c->name, by_name);
}

const char *an_class_names_list(const an_class_names *c, char *out, size_t bytes)
{
    size_t used = 0;
    *out = 0;
    for (int32_t i = 0; i < c->n && used < bytes; i++) {
        const int n = snprintf(out + used, bytes - used, "%s%s", i ? ", " : "", c->name[i]);
        used += n > 0 ? (size_t)n : 0;
    }
    if (used >= bytes && bytes > 4) memcpy(out + bytes - 4, "...", 4);
    return out;
}

an_status an_class_names_copy(an_err *err, const an_class_names *from, an_class_names *out)
{
    *out = (an_class_names){0};
    for (int32_t i = 0; i < from->n; i++)
        AN_TRY(an_class_names_add(err, "classes", out, from->name[i], strlen(from->name[i])));
    return AN_OK;
}

void an_class_names_free(an_class_names *c)
{
    for (int32_t i = 0; i < c->n; i++) free(c->name[i]);
    free(c->name);
    *c = (an_class_names){0};
}

an_status an_class_numbers_check(an_err *err, const char *path, const uint8_t *seen, int64_t most, int64_t row)
{
    int64_t n = 0;
    for (int64_t c = 0; c <= most; c++) n += seen[c] != 0;
    if (most < 2 * n) return AN_OK;
    return an_fail(err, AN_E_DATA,
                   "%s: the label of row %lld is %lld, but only %lld of the classes 0 to %lld have a sample: the label "
                   "is damaged, or "
                   "the classes are to be numbered from 0 without gaps",
                   path, (long long)row, (long long)most, (long long)n, (long long)most);
}

void an_class_names_json(const an_class_names *c, an_text *out)
{
    an_text_puts(out, "[");
    for (int32_t i = 0; i < c->n; i++) {
        if (i > 0) an_text_puts(out, ",");
        an_json_put(out, c->name[i]);
    }
    an_text_puts(out, "]");
}

an_status an_class_names_from_json(an_err *err, const char *where, const json_t *array, an_class_names *out)
{
    *out = (an_class_names){0};
    if (!json_is_array(array))
        return an_fail(err, AN_E_IO, "%s: its names of classes are no list; the file is damaged", where);
    for (size_t i = 0; i < json_array_size(array); i++) {
        const char *name = json_string_value(json_array_get(array, i));
        if (!name) return an_fail(err, AN_E_IO, "%s: the name of class %zu is no text; the file is damaged", where, i);
        AN_TRY(an_class_names_add(err, where, out, name, strlen(name)));
        if (out->n != (int32_t)i + 1)
            return an_fail(err, AN_E_IO, "%s: two classes have one name; the file is damaged", where);
    }
    return AN_OK;
}
