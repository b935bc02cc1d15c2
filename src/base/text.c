/* text.c: the growing string, the nearest name for a misspelled one, lists in one word, readable byte counts.
 *
 * Invariant: cap is 0 or larger than len; nothing is appended after a failure. */
#include "base/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Grows the buffer for `n` more characters and the NUL; false: no memory. */
static bool reserve(an_text *t, size_t n)
{
    if (t->failed) return false;
    if (n < t->cap - t->len) return true;
    size_t cap = t->cap ? t->cap : 128;
    while (cap - t->len <= n && cap <= SIZE_MAX / 4) cap *= 2;
    char *data = cap - t->len > n ? realloc(t->data, cap) : NULL;
    if (data == NULL) {
        t->failed = true;
        return false;
    }
    t->data = data;
    t->cap = cap;
    return true;
}

void an_text_putn(an_text *t, const char *s, size_t n)
{
    if (!reserve(t, n)) return;
    if (n != 0) memcpy(t->data + t->len, s, n);
    t->len += n;
    t->data[t->len] = '\0';
}

void an_text_puts(an_text *t, const char *s)
{
    an_text_putn(t, s, strlen(s));
}

void an_text_printf(an_text *t, const char *fmt, ...)
{
    va_list args, args_copy;
    va_start(args, fmt);
    va_copy(args_copy, args);
    size_t space = t->cap - t->len;
    int n = t->failed ? -1 : vsnprintf(space ? t->data + t->len : NULL, space, fmt, args);
    va_end(args);
    if (n < 0) {
        t->failed = true;
    } else if ((size_t)n < space) {
        t->len += (size_t)n;
    } else if (reserve(t, (size_t)n)) {
        vsnprintf(t->data + t->len, t->cap - t->len, fmt, args_copy);
        t->len += (size_t)n;
    } else if (t->data != NULL) {
        t->data[t->len] = '\0'; /* drop what the first attempt wrote */
    }
    va_end(args_copy);
}

void an_text_clear(an_text *t)
{
    t->len = 0;
    if (t->data != NULL) t->data[0] = '\0';
}

void an_text_free(an_text *t)
{
    free(t->data);
    *t = (an_text){0};
}

enum { WORD_MAX = 63 };

/* Damerau-Levenshtein distance with adjacent transpositions (optimal string alignment), three rolling rows. */
static size_t distance(const char *a, size_t na, const char *b, size_t nb)
{
    unsigned char rows[3][WORD_MAX + 1];
    unsigned char *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= nb; j++) above[j] = (unsigned char)j;
    for (size_t i = 1; i <= na; i++) {
        row[0] = (unsigned char)i;
        for (size_t j = 1; j <= nb; j++) {
            int best = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < best) best = above[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            row[j] = (unsigned char)best;
        }
        unsigned char *free_row = before;
        before = above;
        above = row;
        row = free_row;
    }
    return above[nb];
}

const char *an_nearest(const char *word, const char *const *names, size_t n)
{
    size_t len = strlen(word);
    if (len == 0 || len > WORD_MAX) return NULL;
    /* At most one edit in a word of up to 3 letters, 2 up to 5, else one per 3 letters: other names are unlikely. */
    size_t limit = len < 6 ? 1 + (len > 3) : len / 3;
    const char *nearest = NULL;
    for (size_t i = 0; i < n; i++) {
        size_t name_len = strlen(names[i]);
        if (name_len > WORD_MAX) continue;
        size_t d = distance(word, len, names[i], name_len);
        if (d > limit || d >= name_len) continue;
        nearest = names[i];
        if (d == 0) break;
        limit = d - 1; /* the first of equals wins */
    }
    return nearest;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Without the blanks at both ends. */
static void trim(const char **begin, const char **end)
{
    while (*begin < *end && is_blank(**begin)) ++*begin;
    while (*begin < *end && is_blank((*end)[-1])) --*end;
}

an_list an_list_begin(const char *text)
{
    an_list l = {.at = text, .end = text + strlen(text)};
    trim(&l.at, &l.end);
    if (l.end - l.at < 2 || *l.at != '[' || l.end[-1] != ']') return l;
    l.at++;
    l.end--;
    return l;
}

/* The item in quotes at l->at, which moves behind the comma after it. */
static void take_quoted(an_list *l, an_text *out)
{
    const char quote = *l->at++;
    for (;; l->at++) {
        const char *from = l->at;
        while (l->at < l->end && *l->at != quote) l->at++;
        an_text_putn(out, from, (size_t)(l->at - from));
        l->bad = l->at == l->end;
        if (l->bad) return;
        l->at++;
        if (l->at == l->end || *l->at != quote) break;
        an_text_putn(out, &quote, 1);
    }
    while (l->at < l->end && is_blank(*l->at)) l->at++;
    l->bad = l->at < l->end && *l->at != ',';
    l->at += l->at < l->end;
}

bool an_list_next(an_list *l, an_text *out)
{
    an_text_clear(out);
    while (!l->bad && out->len == 0 && l->at < l->end) {
        while (l->at < l->end && is_blank(*l->at)) l->at++;
        if (l->at < l->end && (*l->at == '\'' || *l->at == '"')) {
            take_quoted(l, out);
            continue;
        }
        const char *begin = l->at, *end = memchr(begin, ',', (size_t)(l->end - begin));
        if (!end) end = l->end;
        l->at = end + (end < l->end);
        trim(&begin, &end);
        an_text_putn(out, begin, (size_t)(end - begin));
        if (out->failed) return false;
    }
    return !l->bad && out->len > 0;
}

void an_list_put(an_text *out, const char *item)
{
    const size_t n = strlen(item);
    if (n > 0 && !strpbrk(item, ",'\"[]") && !is_blank(item[0]) && !is_blank(item[n - 1])) {
        an_text_puts(out, item);
        return;
    }
    an_text_puts(out, "'");
    for (; *item; item++) an_text_putn(out, *item == '\'' ? "''" : item, *item == '\'' ? 2 : 1);
    an_text_puts(out, "'");
}

const char *an_bytes_text(double bytes, char *out)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    while (fabs(bytes) >= 1023.5 && unit + 1 < sizeof units / sizeof units[0]) {
        bytes /= 1024;
        unit++;
    }
    double tenths = nearbyint(bytes * 10) / 10;
    bool whole = fabs(bytes) >= 99.95 || tenths == nearbyint(tenths);
    snprintf(out, 16, whole ? "%.0f %s" : "%.1f %s", tenths, units[unit]);
    return out;
}

void an_text_put_xml(an_text *out, const char *s)
{
    for (; *s; s++)
        if (*s == '<' || *s == '&')
            an_text_printf(out, "&#%d;", *s);
        else if ((unsigned char)*s >= 32)
            an_text_putn(out, s, 1);
}

/* The three bytes of an embedding, override or isolate of the bidirectional algorithm: U+202A to U+202E, U+2066 to U+2069. */
static bool turns_text(const unsigned char *s)
{
    return s[0] == 0xE2 &&
           ((s[1] == 0x80 && s[2] >= 0xAA && s[2] <= 0xAE) || (s[1] == 0x81 && s[2] >= 0xA6 && s[2] <= 0xA9));
}

void an_text_printable(char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i], next = i + 1 < n ? (unsigned char)text[i + 1] : 0;
        if ((c < 32 && c != '\n' && c != '\t') || c == 127) text[i] = '?';
        if (c == 0xC2 && next >= 0x80 && next < 0xA0) text[i] = text[i + 1] = '?'; /* a C1 control in UTF-8 */
        if (n - i >= 3 && turns_text((const unsigned char *)text + i)) memset(text + i, '?', 3);
    }
}

/* The pattern is [p, end). A star that failed takes one character more: only the last star can need it. */
static bool glob(const char *p, const char *end, const char *name)
{
    const char *star = NULL, *from = NULL;
    while (*name) {
        if (p < end && *p == '*') {
            star = p++;
            from = name;
        } else if (p < end && (*p == '?' || *p == *name)) {
            p++;
            name++;
        } else if (star) {
            p = star + 1;
            name = ++from;
        } else {
            return false;
        }
    }
    while (p < end && *p == '*') p++;
    return p == end;
}

bool an_glob_list(const char *globs, const char *name)
{
    for (const char *p = globs;;) {
        const char *end = p + strcspn(p, ",");
        if (end > p && glob(p, end, name)) return true;
        if (!*end) return false;
        p = end + 1;
    }
}
