/* fake_entries.h: finds the entry of a kernel in the text of a module, among what the compiler of the device would see: what #if and its
 * kin leave out is not there.
 *
 * Owns:      the lines of a preprocessor that decide what is compiled: #define, #undef, #if, #ifdef, #ifndef, #elif, #else, #endif.
 * Does not:  expand macros elsewhere, or evaluate a macro with arguments: a condition that has one is unknown, and either branch counts.
 * Invariant: an entry that is compiled is found; with unknown conditions one that is not may be found beside it. */
#ifndef TESTS_CUDA_FAKE_ENTRIES_H
#define TESTS_CUDA_FAKE_ENTRIES_H

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEFINES = 4096, MOST_CONDITIONS = 64, NO = 0, YES = 1, MAYBE = 2 };

typedef struct entry_text {
    const char *define[MOST_DEFINES]; /* at the name */
    int n_defines, depth;
    const char *at; /* in an expression */
    int unknown;    /* the expression has something that is not known here */
} entry_text;

static long of_expression(entry_text *t);

static size_t word(const char *at)
{
    size_t n = 0;
    while (isalnum((unsigned char)at[n]) || at[n] == '_') n++;
    return n;
}

static const char *blank(const char *at)
{
    for (;; at++) {
        if (at[0] == '\\' && at[1] == '\n') {
            at++;
        } else if (at[0] == '/' && at[1] == '*') {
            const char *end = strstr(at, "*/");
            if (!end) return at;
            at = end + 1;
        } else if (*at != ' ' && *at != '\t') {
            return at;
        }
    }
}

static const char *defined_as(const entry_text *t, const char *name, size_t n)
{
    for (int i = t->n_defines; i-- > 0;)
        if (word(t->define[i]) == n && !memcmp(t->define[i], name, n)) return t->define[i] + n;
    return NULL;
}

static long of_call(entry_text *t)
{
    int depth = 0;
    t->at = blank(t->at);
    for (; *t->at && *t->at != '\n'; t->at++) {
        depth += (*t->at == '(') - (*t->at == ')');
        if (depth < 1) break;
    }
    if (*t->at == ')') t->at++;
    return t->unknown = 1;
}

/* NVRTC has __CUDACC__, and of other names that the compiler brings the value is not known. */
static long of_name(entry_text *t, const char *name, size_t n)
{
    const char *as = defined_as(t, name, n), *const back = t->at;
    if (!as && n == 10 && !memcmp(name, "__CUDACC__", 10)) return 1;
    if (!as && n > 6 && !memcmp(name, "__CUDA", 6)) return t->unknown = 1;
    if (!as) return 0;
    if (*as == '(') return of_call(t);
    if (strchr("\n/", *blank(as)) || t->depth > 20) return t->unknown = 1;
    t->depth++;
    t->at = as;
    const long x = of_expression(t);
    if (!strchr("\n/", *blank(t->at))) t->unknown = 1;
    t->depth--;
    t->at = back;
    return x;
}

static long of_operand(entry_text *t)
{
    t->at = blank(t->at);
    const size_t n = word(t->at);
    const char *const name = t->at;
    if (*t->at == '!') return t->at++, !of_operand(t);
    if (*t->at == '-') return t->at++, -of_operand(t);
    if (*t->at == '(') {
        t->at++;
        const long x = of_expression(t);
        t->at = blank(t->at);
        return *t->at == ')' ? (t->at++, x) : (t->unknown = 1);
    }
    if (!n) return t->unknown = 1;
    t->at += n;
    if (isdigit((unsigned char)*name)) return strtol(name, NULL, 0);
    if (n != 7 || memcmp(name, "defined", 7)) return of_name(t, name, n);
    t->at = blank(t->at);
    const int closed = *t->at == '(';
    if (closed) t->at = blank(t->at + 1);
    const size_t m = word(t->at);
    const int there = defined_as(t, t->at, m) || (m == 10 && !memcmp(t->at, "__CUDACC__", 10));
    t->at = blank(t->at + m) + closed;
    return there;
}

/* Operators of equal rank in a row, the loosest at level 0. */
static long of_level(entry_text *t, int level)
{
    static const char *const sign[5][6] = {
        {"||"}, {"&&"}, {"==", "!="}, {"<=", ">=", "<", ">"}, {"+", "-", "*", "/", "%"}};
    if (level == 5) return of_operand(t);
    long x = of_level(t, level + 1);
    for (;;) {
        int i = 0;
        t->at = blank(t->at);
        while (sign[level][i] && strncmp(t->at, sign[level][i], strlen(sign[level][i]))) i++;
        if (!sign[level][i]) return x;
        t->at += strlen(sign[level][i]);
        const int known = !t->unknown;
        const long y = of_level(t, level + 1);
        if (level == 0) { /* 1 || what is not known */
            if (known && x) t->unknown = 0;
            x = x || y;
        } else if (level == 1) {
            if (known && !x) t->unknown = 0;
            x = x && y;
        } else if (level == 2) {
            x = i == 0 ? x == y : x != y;
        } else if (level == 3) {
            x = i == 0 ? x <= y : i == 1 ? x >= y : i == 2 ? x < y : x > y;
        } else {
            if (i > 1) t->unknown = 1; /* of other rank than + and - */
            x = i == 0 ? x + y : x - y;
        }
    }
}

static long of_expression(entry_text *t)
{
    return of_level(t, 0);
}

/* Of the condition of the line at `at`, "#if X", "#ifdef X", "#ifndef X" or "#elif X". */
static int holds(entry_text *t, const char *at)
{
    const char *const x = blank(at + word(at));
    const int negated = !strncmp(at, "ifndef", 6);
    if (negated || !strncmp(at, "ifdef", 5)) {
        t->at = x;
        const int there = defined_as(t, x, word(x)) || !strncmp(x, "__CUDACC__", 10);
        return there != negated;
    }
    t->at = x;
    t->unknown = t->depth = 0;
    const long value = of_expression(t);
    if (!strchr("\n/", *blank(t->at))) t->unknown = 1;
    return t->unknown ? MAYBE : value != 0;
}

/* The entry of kernel `name`, at "AN_KERNEL(name,"; NULL: there is none. *count: how many are compiled. */
static const char *find_entry(const char *text, const char *name, int *count)
{
    static const char *const words[] = {"AN_KERNEL(", "AN_ENTRY(", "AN_KERNEL_OF_CLUSTERS("};
    /* is this branch compiled; was one of those before */
    int here[MOST_CONDITIONS] = {YES}, taken[MOST_CONDITIONS] = {0}, deep = 0;
    entry_text *t = calloc(1, sizeof *t);
    const char *found = NULL;
    *count = 0;
    for (const char *line = text; t && line; line = strchr(line, '\n'), line += line != NULL) {
        const char *at = blank(line);
        if (*at == '#') {
            at = blank(at + 1);
            if (!strncmp(at, "if", 2) && deep + 1 < MOST_CONDITIONS) {
                const int is = here[deep] ? holds(t, at) : NO;
                deep++;
                here[deep] = is && here[deep - 1] == MAYBE ? MAYBE : is;
                taken[deep] = is;
            } else if ((!strncmp(at, "else", 4) || !strncmp(at, "elif", 4)) && deep) {
                const int open = here[deep - 1], past = taken[deep];
                int is = !open || past == YES ? NO : !strncmp(at, "else", 4) ? YES : holds(t, at);
                taken[deep] = is == YES ? YES : is == MAYBE ? MAYBE : past;
                here[deep] = is && (open == MAYBE || past == MAYBE) ? MAYBE : is;
            } else if (!strncmp(at, "endif", 5) && deep) {
                deep--;
            } else if (here[deep] && !strncmp(at, "define", 6) && t->n_defines < MOST_DEFINES) {
                t->define[t->n_defines++] = blank(at + 6);
            } else if (here[deep] && !strncmp(at, "undef", 5)) {
                const char *const gone = blank(at + 5);
                for (int i = t->n_defines; i-- > 0;)
                    if (word(t->define[i]) == word(gone) && !memcmp(t->define[i], gone, word(gone)))
                        t->define[i] = t->define[--t->n_defines];
            }
            continue;
        }
        for (size_t i = 0; here[deep] && i < sizeof words / sizeof *words; i++) {
            const size_t n = strlen(words[i]), m = strlen(name);
            if (strncmp(line, words[i], n) || strncmp(line + n, name, m) || line[n + m] != ',') continue;
            if (!found) found = line;
            ++*count;
        }
    }
    free(t);
    return found;
}

#endif
