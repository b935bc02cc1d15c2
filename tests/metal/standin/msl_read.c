/* msl_read.c: reads MSL: finds a text's kernels, what they take, its function constants, and writes the text as the C++ that
 * the header files of foreign/ expect.
 *
 * Owns:      the reading. Does not: compile (msl.c).
 * Takes:     text whose own macros the preprocessor has expanded, while Metal's words stay. [[...]] are taken out,
 *            `threadgroup` variables of kernels become static (one group runs at a time), `kernel` goes, `constant` is const,
 *            v.xy becomes a call. A kernel template is a kernel where the text instantiates it under a host_name. */
#define _GNU_SOURCE
#include "msl_read.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* sprintf into memory of its own. */
char *say(const char *fmt, ...)
{
    char *out;
    va_list args;
    va_start(args, fmt);
    if (vasprintf(&out, fmt, args) < 0) abort();
    va_end(args);
    return out;
}

void put(text *t, const char *p, size_t n)
{
    if (t->n + n + 1 > t->room) {
        t->room = 2 * t->room + n + 256;
        t->data = realloc(t->data, t->room);
        if (!t->data) abort();
    }
    memcpy(t->data + t->n, p, n);
    t->data[t->n += n] = 0;
}
void puts_text(text *t, const char *p)
{
    put(t, p, strlen(p));
}

/* ---- reading MSL ------------------------------------------------------------------------------------------------ */

static bool is_word(int c)
{
    return isalnum(c) || c == '_';
}
static size_t word_at(const char *p)
{
    size_t n = 0;
    while (is_word((uint8_t)p[n])) n++;
    return n;
}
static bool same_word(const char *p, const char *word)
{
    const size_t n = strlen(word); /* the letters first: nearly every place differs in one of them */
    return !strncmp(p, word, n) && word_at(p) == n;
}

/* Past a string, a character, an attribute [[...]] or a line of the preprocessor that begins at p; p itself when none
 * does. */
static const char *past_special(const char *p)
{
    if (*p == '"' || *p == '\'') {
        char quote = *p++;
        while (*p && *p != quote) p += *p == '\\' && p[1] ? 2 : 1;
        return *p ? p + 1 : p;
    }
    if (p[0] == '[' && p[1] == '[') {
        const char *end = strstr(p, "]]");
        return end ? end + 2 : p + strlen(p);
    }
    if (*p == '#') return p + strcspn(p, "\n");
    return p;
}

/* The bracket that closes the one at p; NULL when none does. */
static const char *closing(const char *p)
{
    const char open = *p, close = open == '(' ? ')' : open == '{' ? '}' : ']';
    int depth = 0;
    while (*p) {
        const char *next = open == '[' ? p : past_special(p);
        if (next != p) {
            p = next;
            continue;
        }
        depth += *p == open;
        depth -= *p == close;
        if (!depth) return p;
        p++;
    }
    return NULL;
}

/* Whether `word` occurs in [from, end). */
bool msl_has_word(const char *from, const char *end, const char *word)
{
    for (const char *p = from; p < end; p++)
        if ((p == from || !is_word((uint8_t)p[-1])) && same_word(p, word) && p + strlen(word) <= end) return true;
    return false;
}

/* Past white space and lines of the preprocessor. */
static const char *past_blank(const char *p, const char *end)
{
    while (p < end && (isspace((uint8_t)*p) || *p == '#')) p = *p == '#' ? past_special(p) : p + 1;
    return p;
}

/* Behind the > that closes the < at p; NULL when none does. Comparisons stand in parentheses there. */
static const char *past_angles(const char *p)
{
    int depth = 0;
    for (; *p; p++) {
        if (*p == '(' || *p == '{' || *p == '[') {
            if (!(p = closing(p))) return NULL;
            continue;
        }
        if (*p == ';') return NULL;
        depth += *p == '<';
        depth -= *p == '>';
        if (!depth) return p + 1;
    }
    return NULL;
}

/* ---- a kernel's parameters ------------------------------------------------------------------------------------- */

static const char *const builtins[] = {"thread_position_in_grid",
                                       "thread_position_in_threadgroup",
                                       "threadgroup_position_in_grid",
                                       "threads_per_threadgroup",
                                       "threads_per_grid",
                                       "threadgroups_per_grid",
                                       "thread_index_in_threadgroup",
                                       "thread_index_in_simdgroup",
                                       "simdgroup_index_in_threadgroup",
                                       "simdgroups_per_threadgroup",
                                       "threads_per_simdgroup",
                                       "thread_execution_width",
                                       "dispatch_threads_per_threadgroup"};

static void add(char *out, size_t room, const char *what)
{
    size_t n = strlen(out);
    snprintf(out + n, room - n, "%s", what);
}

typedef struct parameter {
    char type[256], name[64], attribute[64],
        condition[64]; /* condition: the function constant it exists with; "": always */
    int index;         /* of the attribute; -1: none */
    bool pointer, reference, threadgroup, read_only, device;
} parameter;

/* [[word(n), function_constant(name)]] */
static void read_attribute(const char *p, const char *end, parameter *out)
{
    for (p += 2; p < end; p++) {
        const size_t n = word_at(p);
        if (!n) continue;
        const char *word = p;
        for (p += n; isspace((uint8_t)*p); p++) {
        }
        const char *inside = *p == '(' ? p + 1 : NULL, *close = inside ? closing(p) : NULL;
        if (close) p = close;
        if (same_word(word, "function_constant") && inside) {
            while (isspace((uint8_t)*inside)) inside++;
            snprintf(out->condition, sizeof out->condition, "%.*s", (int)word_at(inside), inside);
        } else if (!out->attribute[0]) {
            snprintf(out->attribute, sizeof out->attribute, "%.*s", (int)n, word);
            if (inside) out->index = atoi(inside);
        }
    }
}

/* What was taken for the name was part of the type. */
static void name_to_type(parameter *a)
{
    size_t n = strlen(a->type);
    if (a->name[0] && n && is_word((uint8_t)a->type[n - 1])) add(a->type, sizeof a->type, " ");
    add(a->type, sizeof a->type, a->name);
    a->name[0] = 0;
}

static void read_parameter(const char *p, const char *end, parameter *out)
{
    *out = (parameter){.index = -1};
    while (p < end) {
        const char *next = past_special(p);
        size_t n = word_at(p);
        if (next != p) {
            if (*p == '[') read_attribute(p, next, out);
            p = next;
            continue;
        }
        if (*p == '[' && closing(p)) { /* an array is a pointer */
            out->pointer = true;
            p = closing(p) + 1;
            continue;
        }
        out->pointer |= *p == '*';
        out->reference |= *p == '&';
        if (!n) {
            if (!isspace((uint8_t)*p) && *p != '*' && *p != '&') {
                name_to_type(out);
                add(out->type, sizeof out->type, (char[]){*p, 0});
            }
            p++;
            continue;
        }
        if (same_word(p, "device"))
            out->device = true;
        else if (same_word(p, "threadgroup"))
            out->threadgroup = true;
        else if (same_word(p, "constant"))
            out->device = out->read_only = true;
        else if (same_word(p, "const"))
            out->read_only = true;
        else if (!same_word(p, "thread") && !same_word(p, "volatile")) {
            name_to_type(out);
            snprintf(out->name, sizeof out->name, "%.*s", (int)n, p);
        }
        p += n;
    }
}

/* The C++ for a built-in value, by its type: a scalar, or two or three of them. */
static const char *builtin_text(const parameter *a, char *out, size_t room)
{
    size_t n = strlen(a->type), known = 0;
    while (known < COUNT(builtins) && strcmp(builtins[known], a->attribute)) known++;
    if (known == COUNT(builtins)) return "an attribute that the stand-in does not know";
    int axes = n && isdigit((uint8_t)a->type[n - 1]) && a->type[n - 1] != '6' ? a->type[n - 1] - '0' : 1;
    if (axes > 3) return "a built-in value of four parts";
    snprintf(out, room, axes > 1 ? "%s{" : "%s(", a->type);
    const char *scalar = strncmp(a->type, "ushort", 6) ? "uint" : "ushort";
    for (int i = 0; i < axes; i++) {
        char one[128];
        snprintf(one, sizeof one, "%s%s(standin_v(::%s, %d))", i ? ", " : "", scalar, a->attribute, i);
        add(out, room, one);
    }
    add(out, room, axes > 1 ? "}" : ")");
    return NULL;
}

typedef struct call { /* C++ that calls a kernel */
    text arguments, least, groups, present;
    uint32_t used; /* buffer indices */
} call;

/* One parameter into the kernel's table and its call. NULL, or what is wrong. */
static const char *take_parameter(msl_kernel *k, const parameter *a, call *out)
{
    char one[512] = "";
    if (!a->pointer && !a->reference) {
        const char *wrong = builtin_text(a, one, sizeof one);
        puts_text(&out->arguments, one);
        return wrong;
    }
    if (!a->device && !a->threadgroup) return "a pointer or reference without an address space";
    if (k->n_arguments == MAX_ARGUMENTS) return "too many parameters";
    int index = a->index;
    if (index < 0 && a->threadgroup) return "threadgroup memory without [[threadgroup(n)]]";
    for (int i = 0; index < 0; i++) /* no attribute: the first that is free, in order */
        if (!(out->used >> i & 1)) index = i;
    if (index >= MAX_BUFFERS) return "a buffer index above 30";
    if (!a->threadgroup && out->used >> index & 1) return "a buffer index that another parameter has";
    if (!a->threadgroup) out->used |= 1u << index;
    k->argument[k->n_arguments] = (kernel_argument){.kind = a->threadgroup ? ARGUMENT_THREADGROUP : ARGUMENT_BUFFER,
                                                    .index = index,
                                                    .writes = !a->read_only && !a->threadgroup,
                                                    .least_bytes = 1};
    snprintf(one, sizeof one, "standin_%c(%d)", a->threadgroup ? 't' : a->reference ? 'r' : 'p', k->n_arguments);
    puts_text(&out->arguments, one);
    snprintf(one, sizeof one, a->reference ? "sizeof(%s), " : "1, ", a->type);
    puts_text(&out->least, one);
    puts_text(&out->present, a->condition[0] ? a->condition : "true");
    puts_text(&out->present, ", ");
    snprintf(one, sizeof one, "%d, ", k->n_arguments++);
    if (a->threadgroup) puts_text(&out->groups, one);
    return NULL;
}

/* Parameters between p and end: the kernel's table, and the lines that run_kernel.h asks for. generic: their types depend on
 * a template's arguments, so the compiler says how large they are. */
static const char *read_parameters(msl_kernel *k, const char *p, const char *end, bool generic)
{
    call c = {0};
    const char *wrong = NULL;
    int depth = 0;
    puts_text(&c.arguments, ""), puts_text(&c.least, ""), puts_text(&c.groups, ""), puts_text(&c.present, "");
    for (const char *from = p; p <= end && !wrong; p++) {
        const char *next = p < end ? past_special(p) : p;
        if (next != p) {
            p = next - 1;
        } else if (p < end && strchr("([{<", *p)) {
            depth++;
        } else if (p < end && strchr(")]}>", *p)) {
            depth--;
        } else if (p == end || (*p == ',' && !depth)) {
            parameter a;
            read_parameter(from, p, &a);
            if (a.name[0] && c.arguments.n) puts_text(&c.arguments, ", ");
            if (a.name[0]) wrong = take_parameter(k, &a, &c);
            from = p + 1;
        }
    }
    k->defines =
        say("\n#define STANDIN_KERNEL %s\n#define STANDIN_CALL (%s)\n#define %s %s\n#define STANDIN_PRESENT %s\n"
            "#define STANDIN_GROUP_ARGUMENTS %s\n#define STANDIN_GROUP_BYTES %d\n",
            k->entry, c.arguments.data, generic ? "STANDIN_GENERIC" : "STANDIN_LEAST", c.least.data, c.present.data,
            c.groups.data, c.groups.n ? MAX_GROUP_MEMORY : 0);
    free(c.arguments.data), free(c.least.data), free(c.groups.data), free(c.present.data);
    return wrong;
}

/* ---- preparing ------------------------------------------------------------------------------------------------- */

/* Whether `constant` at p is beside a const in its declaration, which must not be said twice. */
static bool beside_const(const char *begin, const char *p, const char *end)
{
    const char *from = p, *to = p;
    while (from > begin && !strchr("(,;{}<>=&*", from[-1])) from--;
    while (to < end && !strchr("(,;{}<>=&*", *to)) to++;
    return msl_has_word(from, to, "const") || msl_has_word(from, to, "constexpr");
}

/* The letters of a vector's elements behind a dot: written as a call. False: the word is none, or a name of the text's own. */
static bool put_letters(text *out, const char *whole, const char *p, size_t n)
{
    static const char letters[] = "xyzwrgba";
    if (n < 2 || n > 4) return false;
    const int set = strchr(letters + 4, p[0]) != NULL;
    for (size_t i = 0; i < n; i++)
        if (!memchr(letters + 4 * set, p[i], 4)) return false;
    char word[8];
    snprintf(word, sizeof word, "%.*s", (int)n, p);
    for (const char *q = strstr(whole, word); q; q = strstr(q + 1, word))
        if (q > whole && q[-1] != '.' && !(q[-1] == '>' && q[-2] == '-') && !is_word((uint8_t)q[-1]) &&
            same_word(q, word))
            return false;
    const char *after = p + n;
    while (isspace((uint8_t)*after)) after++;
    const bool assigned = (*after == '=' && after[1] != '=') || (strchr("+-*/", *after) && *after && after[1] == '=');
    puts_text(out, assigned ? "template shim_part_set<" : "template shim_part<");
    for (size_t i = 0; i < n; i++) {
        put(out, i ? ", " : "", i ? 2 : 0);
        put(out, &"0123"[strchr(letters + 4 * set, p[i]) - (letters + 4 * set)], 1);
    }
    puts_text(out, ">()");
    return true;
}

typedef enum place { OUTSIDE, IN_KERNEL, IN_TEMPLATE } place;
static void put_prepared(text *out, const char *whole, const char *p, const char *end, place where);

/* `threadgroup T a[N], b;` in a kernel become members of a static struct, since GCC makes the static array of a class that has
 * constructors at run time. In a template, whose statics GCC gives no section, run_kernel.h finds room for the struct. `aligned`:
 * alignas(n) in front of it, or "". The statement's end. */
static const char *put_group_variables(text *out, const char *whole, const char *p, const char *end,
                                       const char *aligned, place where)
{
    const char *from = p + strlen("threadgroup"), *stop = from, *last = NULL;
    const size_t number = out->n;
    text names = {0};
    puts_text(&names, "");
    for (; stop < end && *stop != ';'; stop++) {
        const char *close = strchr("[(<{", *stop) && *stop ? (*stop == '<' ? past_angles(stop) : closing(stop)) : NULL;
        if (is_word((uint8_t)*stop) && !is_word((uint8_t)stop[-1])) last = stop;
        if (close) stop = *stop == '<' ? close - 1 : close;
        const char *next = past_blank(stop + 1, end);
        if ((*next != ',' && *next != ';') || !last) continue;
        char *line = where == IN_TEMPLATE ? say(" auto &%.*s = standin_group<shim_group_%zu>()->%.*s;",
                                                (int)word_at(last), last, number, (int)word_at(last), last)
                                          : say(" auto &%.*s = shim_group_%zu.%.*s;", (int)word_at(last), last, number,
                                                (int)word_at(last), last);
        puts_text(&names, line);
        free(line);
        last = NULL;
    }
    char *open = where == IN_TEMPLATE ? say("struct shim_group_%zu { %s ", number, aligned)
                                      : say("AN_SHARED_STORAGE struct { %s ", aligned);
    char *close = where == IN_TEMPLATE ? say("; };") : say("; } shim_group_%zu;", number);
    puts_text(out, open);
    put_prepared(out, whole, from, stop, OUTSIDE);
    puts_text(out, close);
    free(open), free(close);
    puts_text(out, names.data);
    free(names.data);
    return stop < end ? stop + 1 : end;
}

/* From p to end without attributes; in a kernel's body threadgroup variables become static. `whole`: the text. */
static void put_prepared(text *out, const char *whole, const char *p, const char *end, place where)
{
    const char *const first = p;
    bool begins = true; /* a statement may begin here */
    while (p < end) {
        const char *next = past_special(p);
        size_t n = word_at(p);
        if (next != p) {
            if (*p == '"' || *p == '\'') put(out, p, (size_t)(next - p));
            p = next;
        } else if (n) {
            bool pointer = false;
            for (const char *q = p; q < end && !strchr(";=[{", *q); q++) pointer |= *q == '*' || *q == '&';
            const bool member = p > first && (p[-1] == '.' || (p[-1] == '>' && p[-2] == '-'));
            const char *close = begins && same_word(p, "alignas") ? closing(p + strcspn(p, "(")) : NULL;
            const char *variable = close ? past_blank(close + 1, end) : p;
            if (where != OUTSIDE && begins && same_word(variable, "threadgroup") && !pointer) {
                char *alignment = say("%.*s", (int)(variable - p), p);
                p = put_group_variables(out, whole, variable, end, alignment, where);
                free(alignment);
                continue;
            }
            if (same_word(p, "constant") && beside_const(first, p, end))
                puts_text(out, " ");
            else if (!member || !put_letters(out, whole, p, n))
                put(out, p, n);
            begins = false;
            p += n;
        } else {
            if (!isspace((uint8_t)*p)) begins = strchr(";{}", *p) != NULL;
            put(out, p++, 1);
        }
    }
}

static bool is_matrix_word(const char *p)
{
    static const char *const words[] = {"simdgroup_matrix",
                                        "simdgroup_float8x8",
                                        "simdgroup_half8x8",
                                        "simdgroup_bfloat8x8",
                                        "simdgroup_load",
                                        "simdgroup_store",
                                        "simdgroup_multiply_accumulate"};
    for (int i = 0; i < COUNT(words); i++)
        if (same_word(p, words[i])) return true;
    return false;
}

static int matrix_words(const char *from, const char *end)
{
    int n = 0;
    for (const char *p = from; p < end; p++) n += is_matrix_word(p);
    return n;
}

/* What prepare is in the middle of. */
typedef struct reading {
    msl_text *t;
    text *out;
    const char *whole; /* the text */
    char scope[256];   /* "a::b::": of the namespaces that are open */
    const char *wrong;
} reading;

static msl_kernel *new_kernel(msl_text *t)
{
    t->kernel = realloc(t->kernel, (size_t)(t->n_kernels + 1) * sizeof *t->kernel);
    if (!t->kernel) abort();
    t->kernel[t->n_kernels] = (msl_kernel){0};
    return &t->kernel[t->n_kernels++];
}

static uint64_t threads_attribute(const char *from, const char *end)
{
    for (const char *p = from; p < end; p++)
        if (same_word(p, "max_total_threads_per_threadgroup") && !is_word((uint8_t)p[-1]))
            return (uint64_t)strtoull(p + strcspn(p, "(") + 1, NULL, 0);
    return 0;
}

/* One kernel, or a template of kernels: its definition begins at `from`, `name` points at its name. Its end; NULL: wrong. */
static const char *take_kernel(reading *r, const char *from, const char *name)
{
    const char *open = name + word_at(name), *head = past_blank(from, name), *header = head;
    while (isspace((uint8_t)*open)) open++;
    const char *close = closing(open), *body = close ? past_blank(close + 1, close + strlen(close)) : NULL;
    while (body && body[0] == '[' && body[1] == '[') body = past_blank(past_special(body), body + strlen(body));
    const char *end = body && *body == '{' ? closing(body) : NULL;
    if (!end) return r->wrong = "a kernel without a body", NULL;
    const bool generic = same_word(head, "template");
    if (generic) {
        while (header < name && *header != '<') header++;
        if (!(header = past_angles(header))) return r->wrong = "a template whose parameters are not closed", NULL;
    }
    msl_text *t = r->t;
    const int words = matrix_words(body, end);
    const size_t at = r->out->n;
    if (generic) put_prepared(r->out, r->whole, head, header, OUTSIDE);
    puts_text(r->out, generic ? "\nstatic void " : "static void ");
    put_prepared(r->out, r->whole, name, body, OUTSIDE);
    put_prepared(r->out, r->whole, body, end + 1, generic ? IN_TEMPLATE : IN_KERNEL);
    puts_text(r->out, "\n");
    t->matrix_words += words;
    if (generic) {
        t->generic = realloc(t->generic, (size_t)(t->n_generic + 1) * sizeof *t->generic);
        if (!t->generic) abort();
        msl_template *g = &t->generic[t->n_generic++];
        *g = (msl_template){.open = open,
                            .close = close,
                            .from = at,
                            .to = r->out->n,
                            .matrices = words > 0,
                            .max_threads = threads_attribute(from, name)};
        snprintf(g->name, sizeof g->name, "%.*s", (int)word_at(name), name);
        return end + 1;
    }
    msl_kernel *k = new_kernel(t);
    k->from = k->text_from = at, k->to = k->text_to = r->out->n, k->simdgroup_matrix = words > 0;
    k->max_threads = threads_attribute(from, name);
    snprintf(k->name, sizeof k->name, "%.*s", (int)word_at(name), name);
    snprintf(k->entry, sizeof k->entry, "%s%s", r->scope, k->name);
    r->wrong = read_parameters(k, open + 1, close, false);
    return end + 1;
}

/* The pieces of a string literal between p and end, joined. */
static void join_strings(const char *p, const char *end, char *out, size_t room)
{
    size_t n = 0;
    for (bool inside = false; p < end; p++)
        if (*p == '"')
            inside = !inside;
        else if (inside && n + 1 < room)
            out[n++] = *p;
    out[n] = 0;
}

/* `template [[host_name("x")]] [[kernel]] void f<float>(...);` or `... decltype(f<float>) f<float>;` between p and end. */
static void take_instance(reading *r, const char *p, const char *end)
{
    char host[sizeof r->t->kernel->name] = "", name[256] = "";
    const char *begins = NULL, *arguments = NULL, *behind = NULL;
    for (; p < end && !arguments; p++) {
        if (p[0] == '[' && p[1] == '[') {
            const char *next = past_special(p);
            for (const char *q = p; q < next; q++)
                if (same_word(q, "host_name")) join_strings(q, next, host, sizeof host);
            p = next - 1;
            continue;
        }
        const size_t n = word_at(p);
        if (same_word(p, "decltype")) {
            const char *open = p + strcspn(p, "("), *close = closing(open);
            if (!close || close > end) break;
            p = close, begins = NULL;
        } else if (n) {
            if (!begins || p[-1] != ':') begins = p;
            snprintf(name, sizeof name, "%.*s", (int)n, p);
            p += n - 1;
            const char *after = past_blank(p + 1, end);
            if (*after == '<' && (behind = past_angles(after))) arguments = after;
        }
    }
    if (!host[0]) return; /* no host can name it */
    for (int i = 0; arguments && i < r->t->n_generic; i++) {
        const msl_template *g = &r->t->generic[i];
        if (strcmp(g->name, name) != 0) continue;
        msl_kernel *k = new_kernel(r->t);
        snprintf(k->name, sizeof k->name, "%s", host);
        if (snprintf(k->entry, sizeof k->entry, "%s%.*s", r->scope, (int)(behind - begins), begins) >=
            (int)sizeof k->entry) {
            r->wrong = "a kernel's template arguments are longer than 1000 letters";
            return;
        }
        k->text_from = g->from, k->text_to = g->to;
        k->simdgroup_matrix = g->matrices, k->max_threads = g->max_threads;
        r->wrong = read_parameters(k, g->open + 1, g->close, true);
        return;
    }
    r->wrong = "a host_name for a kernel that is no template before it";
}

/* `constant bool x [[function_constant(3)]];` between p and end; false: the statement is none. */
static bool take_constant(reading *r, const char *p, const char *end)
{
    msl_constant c = {.index = -1};
    bool found = false;
    char last[64] = "";
    for (const char *next; p < end; p = next) {
        const size_t n = word_at(p);
        next = past_special(p);
        if (next != p) {
            parameter a = {.index = -1};
            if (*p == '[') read_attribute(p, next, &a);
            if (a.condition[0]) found = true, c.index = atoi(a.condition);
            continue;
        }
        next = p + (n ? n : 1);
        if (*p == '=' || *p == '(' || *p == '{') return false;
        if (!n || same_word(p, "constant") || same_word(p, "const") || same_word(p, "static")) continue;
        if (last[0]) add(c.type, sizeof c.type, c.type[0] ? " " : ""), add(c.type, sizeof c.type, last);
        snprintf(last, sizeof last, "%.*s", (int)n, p);
    }
    if (!found) return false;
    msl_text *t = r->t;
    snprintf(c.name, sizeof c.name, "%s", last);
    t->constant = realloc(t->constant, (size_t)(t->n_constants + 1) * sizeof *t->constant);
    if (!t->constant) abort();
    t->constant[t->n_constants++] = c;
    char *line = say("\nstatic const %s %s = SHIM_CONSTANT_%d; static const bool shim_defined_%s = SHIM_DEFINED_%d;\n",
                     c.type, c.name, c.index, c.name, c.index);
    puts_text(r->out, line);
    free(line);
    return true;
}

static const char *past_statement(const char *p)
{
    while (*p && *p != ';' && *p != '{') {
        const char *next = past_special(p), *close = *p == '(' ? closing(p) : NULL;
        p = next != p ? next : close ? close + 1 : p + 1;
    }
    return *p == ';' ? p + 1 : NULL;
}

/* A namespace opens: its name joins the scope. */
static void open_scope(reading *r, const char *p, const char *brace)
{
    while (!same_word(p, "namespace")) p++;
    p = past_blank(p + strlen("namespace"), brace);
    const char *end = brace;
    while (end > p && isspace((uint8_t)end[-1])) end--;
    const size_t n = strlen(r->scope);
    snprintf(r->scope + n, sizeof r->scope - n, "%.*s%s", (int)(end - p), p, end > p ? "::" : "");
}
static void close_scope(reading *r)
{
    size_t n = strlen(r->scope);
    if (n >= 2) n -= 2;
    while (n && r->scope[n - 1] != ':') n--;
    r->scope[n] = 0;
}

const char *msl_prepare(msl_text *t, const char *source)
{
    text out = {0};
    reading r = {.t = t, .out = &out, .whole = source};
    const char *begin = source, *p = source; /* begin: of the definition that p is in */
    bool is_kernel = false;
    puts_text(&out, "#include <metal_stdlib>\n#include <metal_simdgroup_matrix>\n");
    while (*p && !r.wrong) {
        const char *next = past_special(p);
        size_t n = word_at(p);
        if (next != p) {
            is_kernel |= *p == '[' && msl_has_word(p, next, "kernel");
            p = next;
            continue;
        }
        if (n) {
            const char *after = past_blank(p + n, p + strlen(p));
            const bool first = past_blank(begin, p) == p, template = first && same_word(p, "template");
            const char *end = template && *after != '<' ? past_statement(p) : NULL;
            if (end && (msl_has_word(p, end, "kernel") || msl_has_word(p, end, "host_name"))) {
                take_instance(&r, p, end);
                p = begin = end, is_kernel = false;
                continue;
            }
            if (template && *after == '<') {
                if (!(p = past_angles(after))) r.wrong = "a template whose parameters are not closed";
                if (!p) break;
                continue;
            }
            is_kernel |= same_word(p, "kernel");
            if (is_kernel && *after == '(' && !same_word(p, "__attribute__") && !same_word(p, "alignas")) {
                end = take_kernel(&r, begin, p);
                if (end) p = begin = end;
                is_kernel = false;
            } else {
                p += n;
            }
            continue;
        }
        const bool inner = msl_has_word(begin, p, "namespace") && !msl_has_word(begin, p, "using"),
                   body = *p == '{' && !inner;
        const bool ends = strchr(";{}", *p) != NULL;
        if (*p == '{' && inner) open_scope(&r, begin, p);
        if (*p == '}') close_scope(&r);
        if (body && !(p = closing(p))) {
            r.wrong = "a brace that is not closed";
            break;
        }
        p++;
        if (!ends) continue;
        if (p[-1] != ';' || !take_constant(&r, begin, p)) put_prepared(&out, source, begin, p, OUTSIDE);
        begin = p, is_kernel = false;
    }
    if (!r.wrong) put_prepared(&out, source, begin, p, OUTSIDE);
    t->prepared = out.data;
    t->all_matrix_words = matrix_words(source, source + strlen(source));
    return r.wrong;
}
