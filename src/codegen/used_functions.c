/* used_functions.c: dead function elimination on source text (used_functions.h). A definition is recognized by its first and its last line,
 * without a parser; a reference is an identifier with a function's name. Reachability starts from the text outside of these functions. */
#include "codegen/used_functions.h"

#include "base/base.h"
#include "base/map.h"

#include <stdlib.h>
#include <string.h>

typedef struct function {
    const char *begin, *end; /* whole lines */
    int32_t same;            /* the one before of this name, -1 */
    bool used;
} function;

typedef struct functions {
    function *all;
    int32_t n, cap;
    an_map by_name; /* hash of the name -> the last of it. Two names of one hash are kept together. */
} functions;

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool begins(const char *p, const char *with)
{
    return !strncmp(p, with, strlen(with));
}

/* The first character of the next line, or the NUL. */
static const char *next_line(const char *p)
{
    p += strcspn(p, "\n");
    return *p ? p + 1 : p;
}

/* ---------------------------------------------------------------------------------------------- finding */

/* Whether the lines of a function leave the preprocessor as it was. */
static bool is_balanced(const char *p, const char *end)
{
    int depth = 0;
    for (; p < end; p = next_line(p)) {
        const char *c = p + strspn(p, " \t");
        if (*c != '#') continue;
        c += 1 + strspn(c + 1, " \t");
        if (begins(c, "define") || begins(c, "undef")) return false;
        depth += begins(c, "if");
        depth -= begins(c, "endif");
        if (depth < 0) return false;
    }
    return depth == 0;
}

/* Where a function whose brace is at `brace` ends; NULL: it cannot be told. */
static const char *end_of(const char *brace)
{
    const char *line = next_line(brace);
    int depth = 0;
    for (const char *c = brace; c < line; c++) {
        depth += *c == '{';
        depth -= *c == '}';
    }
    if (depth == 0) return line;
    while (*line && *line != '}') line = next_line(line);
    return line[0] == '}' && (line[1] == '\n' || !line[1]) ? next_line(line) : NULL;
}

/* The function that begins with this line; false: none does, or none that can be left out. */
static bool function_at(const char *p, function *out, uint64_t *name)
{
    const char *head = p;
    if (begins(p, "template <")) {
        const char *next = next_line(p), *here = strstr(p, "AN_FN");
        if (here && here < next)
            head = here;
        else if (begins(next, "AN_FN"))
            head = next;
    }
    if (!begins(head, "AN_FN")) return false;
    const char *open = head + strcspn(head, "({;");
    if (*open != '(') return false;
    const char *end = open, *brace = open + strcspn(open, "{;");
    while (end > head && end[-1] == ' ') end--;
    const char *word = end;
    while (word > head && is_word(word[-1])) word--;
    if (word == end || *brace != '{') return false;
    *out = (function){.begin = p, .end = end_of(brace)};
    *name = an_hash(word, (size_t)(end - word), 0);
    return out->end && is_balanced(p, out->end);
}

static bool find_all(functions *f, const char *p)
{
    uint64_t name, before;
    function here;
    while (*p) {
        if (!function_at(p, &here, &name)) {
            p = next_line(p);
            continue;
        }
        here.same = an_map_get(&f->by_name, name, &before) ? (int32_t)before : -1;
        if (!an_grow((void **)&f->all, f->n, &f->cap, sizeof *f->all)) return false;
        if (!an_map_set(&f->by_name, name, (uint64_t)f->n)) return false;
        f->all[f->n++] = here;
        p = here.end;
    }
    return true;
}

/* ---------------------------------------------------------------------------------------------- marking */

/* Behind the comment or the literal that begins at `p`; `p`: none does. */
static const char *behind_aside(const char *p, const char *end)
{
    if (p[0] == '/' && p[1] == '*') {
        const char *close = strstr(p + 2, "*/");
        return close && close < end ? close + 2 : end;
    }
    if (p[0] == '/' && p[1] == '/') return p + strcspn(p, "\n");
    if (*p != '"' && *p != '\'') return p;
    const char *c = p + 1;
    while (c < end && *c != *p && *c != '\n') c += c[0] == '\\' && c + 1 < end ? 2 : 1;
    return c < end ? c + 1 : end;
}

static void mark(functions *f, const char *p, const char *end)
{
    while (p < end) {
        const char *behind = behind_aside(p, end), *word = p;
        uint64_t last;
        if (behind != p || !is_word(*p)) {
            p = behind != p ? behind : p + 1;
            continue;
        }
        while (p < end && is_word(*p)) p++;
        if (!an_map_get(&f->by_name, an_hash(word, (size_t)(p - word), 0), &last)) continue;
        for (int32_t i = (int32_t)last; i >= 0; i = f->all[i].same) {
            if (f->all[i].used) continue;
            f->all[i].used = true;
            mark(f, f->all[i].begin, f->all[i].end);
        }
    }
}

bool an_used_functions(const char *text, an_text *out)
{
    functions f = {0};
    const bool found = find_all(&f, text);
    const char *p = text;
    for (int32_t i = 0; found && i < f.n; i++) {
        mark(&f, p, f.all[i].begin);
        p = f.all[i].end;
    }
    if (found) mark(&f, p, p + strlen(p));
    p = text;
    for (int32_t i = 0; found && i < f.n; i++) {
        an_text_putn(out, p, (size_t)(f.all[i].begin - p));
        p = f.all[i].used ? f.all[i].begin : f.all[i].end;
    }
    if (found) an_text_puts(out, p);
    an_map_free(&f.by_name);
    free(f.all);
    return found && !out->failed;
}
