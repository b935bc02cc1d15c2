/* config_py.c: see config_py.h.
 *
 * Rule: a line is blank, a comment, `import time`, or NAME = EXPRESSION; it is read by recursive descent, one function
 * a level of Python's precedence. Numbers behave as Python's: int / int is a float, // and % round toward minus
 * infinity, and an int that leaves 64 bits is refused, because here it could only be a mistake. */
#include "io/config/config_py.h"
#include "platform/platform.h"
#include "io/formats/json.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_DEPTH = 64, NAME_BYTES = 64 };

typedef enum kind { INT, FLOAT, BOOL, STRING, NONE } kind;
static const char *const kind_names[] = {"an int", "a float", "a bool", "a string", "None"};

typedef struct value {
    kind kind;
    int64_t i; /* INT, BOOL */
    double d;  /* FLOAT */
    char s[AN_CONFIG_TEXT_BYTES];
} value;

typedef struct reader {
    an_err *err;
    const an_config *keys;
    void *values;
    const char *where;
    int line, depth;
    const char *p, *end; /* the rest of this line */
} reader;

static an_status fault(const reader *r, const char *why)
{
    char quoted[AN_QUOTED_BYTES], rest[AN_QUOTED_BYTES];
    snprintf(rest, sizeof rest, "%.*s", (int)AN_MIN(r->end - r->p, 60), r->p);
    return an_fail(r->err, AN_E_USAGE, "%s:%d: at %s: %s; such a file is read as assignments of literals, never run",
                   r->where, r->line, *rest ? an_quoted(rest, quoted) : "the end of the line", why);
}

/* The same about something that began at `at`. */
static an_status fault_at(reader *r, const char *at, const char *why)
{
    r->p = at;
    return fault(r, why);
}

static void skip_blanks(reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t')) r->p++;
}

static bool take(reader *r, const char *word)
{
    const size_t n = strlen(word);
    skip_blanks(r);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, word, n) != 0) return false;
    r->p += n;
    return true;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* A name into `out`; false when there is none or it is too long to be one of ours. */
static bool take_name(reader *r, char out[NAME_BYTES])
{
    skip_blanks(r);
    const char *p = r->p;
    size_t n = 0;
    if (p == r->end || !is_letter(*p)) return false;
    for (; p < r->end && (is_letter(*p) || is_digit(*p)); p++)
        if (n < NAME_BYTES) out[n++] = *p;
    if (n == NAME_BYTES) return false;
    out[n] = 0;
    r->p = p;
    return true;
}

/* ---- atoms */

/* Digits with underscores between them, a point, an exponent. */
static an_status read_number(reader *r, value *out)
{
    char text[64];
    size_t n = 0;
    bool real = false;
    const char *begin = r->p;
    for (; r->p < r->end && n + 1 < sizeof text; r->p++) {
        const char c = *r->p;
        if (c == '_') continue;
        const bool sign = (c == '+' || c == '-') && n > 0 && (text[n - 1] == 'e' || text[n - 1] == 'E');
        if (!is_digit(c) && c != '.' && c != 'e' && c != 'E' && !sign) break;
        real |= !is_digit(c);
        text[n++] = c;
    }
    text[n] = 0;
    char *stop;
    errno = 0;
    *out = (value){.kind = real ? FLOAT : INT};
    if (real)
        out->d = strtod(text, &stop);
    else
        out->i = strtoll(text, &stop, 10);
    const bool octal = !real && n > 1 && text[0] == '0'; /* an error in Python too */
    if (*stop || stop == text || octal || (r->p < r->end && (is_letter(*r->p) || is_digit(*r->p))))
        return fault_at(r, begin, "this is not a decimal number");
    const bool fits = real ? isfinite(out->d) : errno == 0;
    return fits ? AN_OK : fault_at(r, begin, "the number is too large");
}

static an_status read_string(reader *r, value *out)
{
    static const char from[] = "ntr\\'\"", to[] = "\n\t\r\\'\"";
    const char quote = *r->p, *begin = r->p++;
    size_t n = 0;
    *out = (value){.kind = STRING};
    if (r->end - r->p >= 2 && r->p[0] == quote && r->p[1] == quote)
        return fault_at(r, begin, "strings over several lines are not taken");
    for (; r->p < r->end && *r->p != quote; r->p++) {
        char c = *r->p;
        if (c == '\\') {
            const char *known = ++r->p < r->end ? memchr(from, *r->p, sizeof from - 1) : NULL;
            if (!known) return fault_at(r, begin, "of escapes, \\n \\t \\r \\\\ \\' and \\\" are taken");
            c = to[known - from];
        }
        if (n + 1 == sizeof out->s || c == 0) return fault_at(r, begin, "the string is too long or holds a zero byte");
        out->s[n++] = c;
    }
    if (r->p == r->end) return fault_at(r, begin, "the string does not end on its line");
    r->p++;
    return AN_OK;
}

/* The present value of a setting. */
static void read_setting(const reader *r, const an_config_field *f, value *out)
{
    const void *place = (const char *)r->values + f->offset;
    *out = (value){.kind = STRING};
    switch (f->type) {
    case AN_CONFIG_INT: out->kind = INT, memcpy(&out->i, place, sizeof out->i); break;
    case AN_CONFIG_FLOAT:
    case AN_CONFIG_GIB: out->kind = FLOAT, memcpy(&out->d, place, sizeof out->d); break;
    case AN_CONFIG_BOOL: out->kind = BOOL, out->i = *(const bool *)place; break;
    case AN_CONFIG_TEXT: memcpy(out->s, place, sizeof out->s); break;
    case AN_CONFIG_DTYPE: {
        an_dtype dtype;
        memcpy(&dtype, place, sizeof dtype);
        snprintf(out->s, sizeof out->s, "%s", an_dtype_text(dtype));
        break;
    }
    }
}

static void to_text(const value *v, char out[AN_CONFIG_TEXT_BYTES])
{
    switch (v->kind) {
    case INT: snprintf(out, AN_CONFIG_TEXT_BYTES, "%" PRId64, v->i); break;
    case FLOAT: snprintf(out, AN_CONFIG_TEXT_BYTES, "%.17g", v->d); break;
    case BOOL: snprintf(out, AN_CONFIG_TEXT_BYTES, "%s", v->i ? "True" : "False"); break;
    case STRING: memmove(out, v->s, sizeof v->s); break;
    case NONE: snprintf(out, AN_CONFIG_TEXT_BYTES, "None"); break;
    }
}

static an_status read_expression(reader *r, value *out);

/* str(EXPRESSION), of which "str(" is behind us. */
static an_status read_str(reader *r, value *out)
{
    value v;
    if (++r->depth > MAX_DEPTH) return fault(r, "too many parentheses");
    AN_TRY(read_expression(r, &v));
    r->depth--;
    if (!take(r, ")")) return fault(r, "a ) is missing");
    *out = (value){.kind = STRING};
    to_text(&v, out->s);
    return AN_OK;
}

static an_status read_name(reader *r, value *out)
{
    char name[NAME_BYTES];
    const char *begin = r->p;
    if (!take_name(r, name)) return fault(r, "a value is needed");
    if (strcmp(name, "True") == 0 || strcmp(name, "False") == 0)
        return *out = (value){.kind = BOOL, .i = name[0] == 'T'}, AN_OK;
    if (strcmp(name, "None") == 0) return *out = (value){.kind = NONE}, AN_OK;
    if (strcmp(name, "time") == 0 && take(r, ".time()")) return *out = (value){FLOAT, .d = (double)time(NULL)}, AN_OK;
    if (strcmp(name, "str") == 0 && take(r, "(")) return read_str(r, out);
    skip_blanks(r);
    if (r->p < r->end && strchr("('\"[.", *r->p)) return fault_at(r, begin, "calls and objects are not taken");
    const an_config_field *f = an_config_find(r->keys, name);
    if (!f) return fault_at(r, begin, "this is not the name of a setting");
    read_setting(r, f, out);
    return AN_OK;
}

static an_status read_atom(reader *r, value *out)
{
    skip_blanks(r);
    if (r->p < r->end && (is_digit(*r->p) || *r->p == '.')) return read_number(r, out);
    if (r->p < r->end && (*r->p == '\'' || *r->p == '"')) return read_string(r, out);
    if (!take(r, "(")) return read_name(r, out);
    if (++r->depth > MAX_DEPTH) return fault(r, "too many parentheses");
    AN_TRY(read_expression(r, out));
    r->depth--;
    return take(r, ")") ? AN_OK : fault(r, "a ) is missing");
}

/* ---- operators */

static bool is_number(const value *v)
{
    return v->kind == INT || v->kind == FLOAT || v->kind == BOOL;
}

static double real_of(const value *v)
{
    return v->kind == FLOAT ? v->d : (double)v->i;
}

/* a to the power b >= 0; false when it leaves 64 bits. */
static bool int_power(int64_t a, int64_t b, int64_t *out)
{
    *out = 1;
    if (a == 0 || a == 1) return *out = b == 0 ? 1 : a, true;
    if (a == -1) return *out = b % 2 ? -1 : 1, true;
    for (; b > 0; b--)
        if (__builtin_mul_overflow(*out, a, out)) return false;
    return true;
}

/* Integer results; false when there is none in 64 bits. */
static bool int_apply(char op, int64_t a, int64_t b, int64_t *out)
{
    switch (op) {
    case '+': return !__builtin_add_overflow(a, b, out);
    case '-': return !__builtin_sub_overflow(a, b, out);
    case '*': return !__builtin_mul_overflow(a, b, out);
    case '^': return int_power(a, b, out);
    default: break;
    }
    if (a == INT64_MIN && b == -1) return false;
    const int64_t remainder = a % b;
    const bool inexact = remainder != 0 && (remainder < 0) != (b < 0); /* C rounds toward 0 */
    *out = op == 'd' ? a / b - inexact : remainder + (inexact ? b : 0);
    return true;
}

static double real_apply(char op, double a, double b)
{
    switch (op) {
    case '+': return a + b;
    case '-': return a - b;
    case '*': return a * b;
    case '/': return a / b;
    case '^': return pow(a, b);
    case 'd': return floor(a / b);
    default: return a - floor(a / b) * b;
    }
}

/* op: + - * / and d for //, % and ^ for **. */
static an_status apply(reader *r, char op, value *a, const value *b)
{
    if (op == '+' && a->kind == STRING && b->kind == STRING) {
        const size_t n = strlen(a->s);
        if (n + strlen(b->s) >= sizeof a->s) return fault(r, "the string is too long");
        memcpy(a->s + n, b->s, strlen(b->s) + 1);
        return AN_OK;
    }
    if (!is_number(a) || !is_number(b)) {
        char why[96];
        snprintf(why, sizeof why, "%s and %s cannot be put together", kind_names[a->kind], kind_names[b->kind]);
        return fault(r, why);
    }
    if (strchr("/d%", op) && real_of(b) == 0) return fault(r, "a division by zero");
    if (a->kind != FLOAT && b->kind != FLOAT && op != '/' && !(op == '^' && b->i < 0)) {
        if (!int_apply(op, a->i, b->i, &a->i)) return fault(r, "the number is too large");
        a->kind = INT;
        return AN_OK;
    }
    a->d = real_apply(op, real_of(a), real_of(b));
    a->kind = FLOAT;
    return isfinite(a->d) ? AN_OK : fault(r, "the number is not finite");
}

static an_status read_factor(reader *r, value *out);

static an_status read_power(reader *r, value *out)
{
    value exponent;
    AN_TRY(read_atom(r, out));
    if (!take(r, "**")) return AN_OK;
    if (++r->depth > MAX_DEPTH) return fault(r, "too many powers of powers");
    AN_TRY(read_factor(r, &exponent));
    r->depth--;
    return apply(r, '^', out, &exponent);
}

static an_status read_factor(reader *r, value *out)
{
    const char *begin = r->p;
    const bool minus = take(r, "-");
    if (!minus && !take(r, "+")) return read_power(r, out);
    if (++r->depth > MAX_DEPTH) return fault(r, "too many signs");
    AN_TRY(read_factor(r, out));
    r->depth--;
    if (!is_number(out)) return fault_at(r, begin, "a sign needs a number");
    const value sign = {.kind = INT, .i = minus ? -1 : 1};
    return apply(r, '*', out, &sign);
}

static an_status read_term(reader *r, value *out)
{
    AN_TRY(read_factor(r, out));
    for (;;) {
        value right;
        const char op = take(r, "//") ? 'd' : take(r, "*") ? '*' : take(r, "/") ? '/' : take(r, "%") ? '%' : 0;
        if (!op) return AN_OK;
        AN_TRY(read_factor(r, &right));
        AN_TRY(apply(r, op, out, &right));
    }
}

static an_status read_expression(reader *r, value *out)
{
    AN_TRY(read_term(r, out));
    for (;;) {
        value right;
        const char op = take(r, "+") ? '+' : take(r, "-") ? '-' : 0;
        if (!op) return AN_OK;
        AN_TRY(read_term(r, &right));
        AN_TRY(apply(r, op, out, &right));
    }
}

/* ---- lines */

static bool at_end(reader *r)
{
    skip_blanks(r);
    return r->p == r->end || *r->p == '#';
}

static an_status read_line(reader *r)
{
    static const char what[] = "a line is NAME = VALUE";
    char name[NAME_BYTES], text[AN_CONFIG_TEXT_BYTES], origin[AN_CONFIG_TEXT_BYTES];
    value v;
    const char *begin = r->p;
    if (at_end(r)) return AN_OK;
    if (r->p != begin) return fault(r, "an indented line is part of a statement");
    if (!take_name(r, name)) return fault(r, what);
    if (strcmp(name, "import") == 0 && take(r, "time") && at_end(r)) return AN_OK;
    if (!take(r, "=") || (r->p < r->end && *r->p == '=')) return fault_at(r, begin, what);
    AN_TRY(read_expression(r, &v));
    if (!at_end(r)) return fault(r, "only a comment can follow the value");
    if (v.kind == NONE) return fault_at(r, begin, "None is no value of a setting");
    to_text(&v, text);
    snprintf(origin, sizeof origin, "%.400s:%d", r->where, r->line);
    return an_config_set(r->err, r->keys, r->values, origin, name, text);
}

an_status an_config_py_text(an_err *err, const an_config *c, void *values, const char *where, const char *text,
                            size_t n)
{
    reader r = {.err = err, .keys = c, .values = values, .where = where};
    const char *p = text, *end = text + n;
    if (n >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0) p += 3; /* a byte order mark */
    while (p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        r.line++;
        r.depth = 0;
        r.p = p;
        r.end = newline ? newline : end;
        p = newline ? newline + 1 : end;
        if (r.end > r.p && r.end[-1] == '\r') r.end--;
        AN_TRY(read_line(&r));
    }
    return AN_OK;
}

an_status an_config_py(an_err *err, const an_config *c, void *values, const char *path)
{
    char *text;
    size_t n;
    AN_TRY(an_file_read(err, path, AN_CONFIG_FILE_BYTES, &text, &n));
    an_status status = an_config_py_text(err, c, values, path, text, n);
    free(text);
    return status;
}
