/* pickle.c: a pickle is a program for a stack machine; this one has the opcodes that build numbers, texts and
 * containers.
 *
 *     }            push an empty dict            stack: {}
 *     X "a" K 1    push the key and the value    stack: {} "a" 1
 *     s            set the item                  stack: {"a": 1}
 *     .            the end: the one value left is the result
 */
#include "io/formats/pickle.h"
#include "io/formats/json.h"
#include <stdio.h>
#include <string.h>

/* Opcodes, under their names in pickletools. */
enum {
    MARK = '(',
    STOP = '.',
    BINFLOAT = 'G',
    BININT = 'J',
    BININT1 = 'K',
    BININT2 = 'M',
    NONE = 'N',
    BINPERSID = 'Q',
    REDUCE = 'R',
    BINUNICODE = 'X',
    APPEND = 'a',
    BUILD = 'b',
    GLOBAL = 'c',
    APPENDS = 'e',
    BINGET = 'h',
    LONG_BINGET = 'j',
    BINPUT = 'q',
    LONG_BINPUT = 'r',
    SETITEM = 's',
    TUPLE = 't',
    SETITEMS = 'u',
    EMPTY_TUPLE = ')',
    EMPTY_LIST = ']',
    EMPTY_DICT = '}',
    PROTO = 0x80,
    TUPLE1 = 0x85,
    TUPLE2 = 0x86,
    TUPLE3 = 0x87,
    NEWTRUE = 0x88,
    NEWFALSE = 0x89,
    LONG1 = 0x8a,
    SHORT_BINUNICODE = 0x8c,
    STACK_GLOBAL = 0x93,
    MEMOIZE = 0x94,
    FRAME = 0x95
};
/* A value takes far more memory than its opcode: their number is bounded apart from the pickle's size. */
enum { MAX_PROTOCOL = 5, MAX_VALUES = 1 << 20 };
static const char ordered_dict[] = "collections.OrderedDict"; /* a call of it without arguments is an empty dict */

typedef struct reader {
    an_err *err;
    const char *where;
    uint64_t base; /* byte of the file where the pickle starts */
    const unsigned char *start, *p, *end;
    const unsigned char *opcode; /* being read */
    const char *const *globals;
    size_t n_globals;
    an_arena *arena;
    an_pickle_value **stack, **memo;
    size_t n_stack, cap_stack, n_memo, cap_memo;
    size_t *marks; /* heights of the stack */
    size_t n_marks, cap_marks, n_values;
} reader;

static an_status refuse(const reader *r, const char *what)
{
    return an_fail(r->err, AN_E_IO, "%s: byte %llu: %s; the file is damaged, or was not made by torch.save or nanoGPT",
                   r->where, (unsigned long long)(r->base + (uint64_t)(r->opcode - r->start)), what);
}

static an_status no_memory(const reader *r)
{
    return an_fail_nomem(r->err, r->where, (size_t)(r->end - r->start));
}

/* ---- the parts: memory, bytes, stack */

/* Room for one more element in a list of the arena: twice as much each time, so that all of it stays proportional. */
static bool reserve(an_arena *a, void *list, size_t item_bytes, size_t n, size_t *cap)
{
    if (n < *cap) return true;
    size_t more = *cap ? 2 * *cap : 8;
    void *old, *grown = an_arena_array(a, item_bytes, more);
    if (!grown) return false;
    memcpy(&old, list, sizeof old);
    if (n > 0) memcpy(grown, old, n * item_bytes);
    memcpy(list, &grown, sizeof grown);
    *cap = more;
    return true;
}

static an_status take(reader *r, uint64_t n, const unsigned char **out)
{
    if (n > (uint64_t)(r->end - r->p)) return refuse(r, "the pickle ends in the middle of a value");
    *out = r->p;
    r->p += n;
    return AN_OK;
}

/* A little-endian number of n <= 8 bytes. */
static an_status take_number(reader *r, int n, uint64_t *out)
{
    const unsigned char *p = NULL;
    AN_TRY(take(r, (uint64_t)n, &p));
    *out = 0;
    for (int i = n; i-- > 0;) *out = *out << 8 | p[i];
    return AN_OK;
}

static an_status push(reader *r, an_pickle_value *v)
{
    if (!v || !reserve(r->arena, &r->stack, sizeof *r->stack, r->n_stack, &r->cap_stack)) return no_memory(r);
    r->stack[r->n_stack++] = v;
    return AN_OK;
}

static an_pickle_value *make(reader *r, an_pickle_kind kind)
{
    an_pickle_value *v = AN_NEW(r->arena, an_pickle_value);
    if (!v) return NULL;
    r->n_values++;
    v->kind = kind;
    v->at = r->base + (uint64_t)(r->opcode - r->start);
    return v;
}

/* The lowest place of the stack that may be popped: what lies under the last mark is not of this list. */
static size_t base_of(const reader *r)
{
    return r->n_marks ? r->marks[r->n_marks - 1] : 0;
}

static an_status need(const reader *r, size_t n)
{
    return r->n_stack - base_of(r) >= n ? AN_OK : refuse(r, "the pickle takes more values than it gave");
}

static an_status append(reader *r, an_pickle_value *list, an_pickle_value *v)
{
    if (!reserve(r->arena, &list->items, sizeof(an_pickle_value *), list->n, &list->cap)) return no_memory(r);
    list->items[list->n++] = v;
    return AN_OK;
}

/* Pops the `n` topmost values into `list`. */
static an_status collect(reader *r, an_pickle_value *list, size_t n)
{
    if (!list) return no_memory(r);
    AN_TRY(need(r, n));
    for (size_t i = r->n_stack - n; i < r->n_stack; i++) AN_TRY(append(r, list, r->stack[i]));
    r->n_stack -= n;
    return AN_OK;
}

/* Ends the last mark; *n values lie above it. */
static an_status pop_mark(reader *r, size_t *n)
{
    if (r->n_marks == 0) return refuse(r, "the pickle ends a list that it did not begin");
    *n = r->n_stack - r->marks[--r->n_marks];
    return AN_OK;
}

/* ---- opcodes */

static an_status push_number(reader *r, an_pickle_kind kind, int64_t i, double f)
{
    an_pickle_value *v = make(r, kind);
    if (v) v->i = i, v->f = f;
    return push(r, v);
}

static an_status push_integer(reader *r, int bytes, bool is_signed)
{
    uint64_t u = 0;
    if (bytes > 8) return refuse(r, "an integer has more than 64 bits");
    AN_TRY(take_number(r, bytes, &u));
    if (is_signed && bytes > 0 && bytes < 8 && (u >> (8 * bytes - 1)) != 0) u |= ~0ull << (8 * bytes);
    return push_number(r, AN_PICKLE_INT, (int64_t)u, 0);
}

static an_status push_float(reader *r)
{
    const unsigned char *p = NULL;
    uint64_t bits = 0;
    double f;
    AN_TRY(take(r, 8, &p));
    for (int i = 0; i < 8; i++) bits = bits << 8 | p[i];
    memcpy(&f, &bits, sizeof f);
    return push_number(r, AN_PICKLE_FLOAT, 0, f);
}

static an_pickle_value *make_text(reader *r, an_pickle_kind kind, const void *text, size_t n)
{
    an_pickle_value *v = make(r, kind);
    char *copy = an_arena_alloc(r->arena, n + 1);
    if (!v || !copy) return NULL;
    if (n > 0) memcpy(copy, text, n);
    v->text = copy;
    v->bytes = n;
    return v;
}

static an_status push_text(reader *r, int length_bytes)
{
    const unsigned char *p = NULL;
    uint64_t n = 0;
    AN_TRY(take_number(r, length_bytes, &n));
    AN_TRY(take(r, n, &p));
    return push(r, make_text(r, AN_PICKLE_TEXT, p, (size_t)n));
}

static an_status push_global(reader *r, const char *module, size_t n, const char *name, size_t m)
{
    char quoted[AN_QUOTED_BYTES], *full = an_arena_alloc(r->arena, n + m + 2);
    if (!full) return no_memory(r);
    memcpy(full, module, n);
    full[n] = '.';
    memcpy(full + n + 1, name, m);
    for (size_t i = 0; i < r->n_globals; i++)
        if (strcmp(r->globals[i], full) == 0) return push(r, make_text(r, AN_PICKLE_GLOBAL, full, n + m + 1));
    return an_fail(r->err, AN_E_UNSUPPORTED,
                   "%s: byte %llu: the pickle names %s, which a checkpoint of weights does not need; nothing was "
                   "executed. Save plain tensors, numbers and texts only",
                   r->where, (unsigned long long)(r->base + (uint64_t)(r->opcode - r->start)), an_quoted(full, quoted));
}

/* Two lines: module, name. */
static an_status read_global(reader *r)
{
    const unsigned char *line[2], *stop[2];
    for (int i = 0; i < 2; i++) {
        line[i] = r->p;
        stop[i] = r->p < r->end ? memchr(r->p, '\n', (size_t)(r->end - r->p)) : NULL;
        if (!stop[i]) return refuse(r, "the pickle ends in the middle of a name");
        r->p = stop[i] + 1;
    }
    return push_global(r, (const char *)line[0], (size_t)(stop[0] - line[0]), (const char *)line[1],
                       (size_t)(stop[1] - line[1]));
}

static an_status read_stack_global(reader *r)
{
    AN_TRY(need(r, 2));
    const an_pickle_value *module = r->stack[r->n_stack - 2], *name = r->stack[r->n_stack - 1];
    if (module->kind != AN_PICKLE_TEXT || name->kind != AN_PICKLE_TEXT) return refuse(r, "a name is no text");
    r->n_stack -= 2;
    return push_global(r, module->text, module->bytes, name->text, name->bytes);
}

static an_status reduce(reader *r)
{
    AN_TRY(need(r, 2));
    const an_pickle_value *f = r->stack[r->n_stack - 2], *args = r->stack[r->n_stack - 1];
    if (f->kind != AN_PICKLE_GLOBAL || args->kind != AN_PICKLE_TUPLE) return refuse(r, "a call is of no name");
    if (strcmp(f->text, ordered_dict) == 0) {
        if (args->n != 0) return refuse(r, "an OrderedDict with arguments");
        r->n_stack -= 2;
        return push(r, make(r, AN_PICKLE_DICT));
    }
    an_pickle_value *call = make(r, AN_PICKLE_CALL);
    AN_TRY(collect(r, call, 2));
    return push(r, call);
}

/* State of an OrderedDict (torch's _metadata): nothing of it is needed. */
static an_status build(reader *r)
{
    AN_TRY(need(r, 2));
    if (r->stack[r->n_stack - 2]->kind != AN_PICKLE_DICT) return refuse(r, "a state is given to what is no dict");
    r->n_stack--;
    return AN_OK;
}

static an_status push_tuple(reader *r, size_t n)
{
    an_pickle_value *tuple = make(r, AN_PICKLE_TUPLE);
    AN_TRY(collect(r, tuple, n));
    return push(r, tuple);
}

/* The `n` topmost values go to the list or dict below them. */
static an_status fill(reader *r, an_pickle_kind kind, size_t n)
{
    AN_TRY(need(r, n + 1));
    an_pickle_value *target = r->stack[r->n_stack - n - 1];
    if (target->kind != kind || (kind == AN_PICKLE_DICT && n % 2 != 0))
        return refuse(r, "items are given to what is no list or dict");
    return collect(r, target, n);
}

static an_status fill_marked(reader *r, an_pickle_kind kind)
{
    size_t n = 0;
    AN_TRY(pop_mark(r, &n));
    return fill(r, kind, n);
}

static an_status mark(reader *r)
{
    if (!reserve(r->arena, &r->marks, sizeof *r->marks, r->n_marks, &r->cap_marks)) return no_memory(r);
    r->marks[r->n_marks++] = r->n_stack;
    return AN_OK;
}

/* Both of CPython's picklers number the memo in order, so that a larger number is damage and not a request for memory.
 */
static an_status put(reader *r, uint64_t index)
{
    AN_TRY(need(r, 1));
    if (index != r->n_memo) return refuse(r, "the memo's numbers are not in order");
    if (!reserve(r->arena, &r->memo, sizeof *r->memo, r->n_memo, &r->cap_memo)) return no_memory(r);
    r->memo[r->n_memo++] = r->stack[r->n_stack - 1];
    return AN_OK;
}

static an_status put_numbered(reader *r, int bytes)
{
    uint64_t index = 0;
    AN_TRY(take_number(r, bytes, &index));
    return put(r, index);
}

static an_status get(reader *r, int bytes)
{
    uint64_t index = 0;
    AN_TRY(take_number(r, bytes, &index));
    if (index >= r->n_memo) return refuse(r, "the memo has no such number");
    return push(r, r->memo[index]);
}

static an_status read_protocol(reader *r)
{
    uint64_t protocol = 0;
    AN_TRY(take_number(r, 1, &protocol));
    return protocol <= MAX_PROTOCOL ? AN_OK : refuse(r, "the pickle's protocol is newer than 5");
}

static an_status push_persistent(reader *r)
{
    an_pickle_value *v = make(r, AN_PICKLE_PERSISTENT);
    AN_TRY(collect(r, v, 1));
    return push(r, v);
}

static an_status unknown_opcode(const reader *r)
{
    char what[64], letter[8] = "";
    const unsigned char c = *r->opcode;
    if (c > 32 && c < 127) snprintf(letter, sizeof letter, " '%c'", c);
    snprintf(what, sizeof what, "opcode 0x%02x%s is not read", c, letter);
    return refuse(r, what);
}

static an_status step(reader *r)
{
    size_t n = 0;
    uint64_t skipped;
    switch (*r->opcode) {
    case PROTO: return read_protocol(r);
    case FRAME: return take_number(r, 8, &skipped); /* a hint for buffered readers */
    case NONE: return push_number(r, AN_PICKLE_NONE, 0, 0);
    case NEWTRUE: return push_number(r, AN_PICKLE_BOOL, 1, 0);
    case NEWFALSE: return push_number(r, AN_PICKLE_BOOL, 0, 0);
    case BININT: return push_integer(r, 4, true);
    case BININT1: return push_integer(r, 1, false);
    case BININT2: return push_integer(r, 2, false);
    case LONG1: return take_number(r, 1, &skipped) == AN_OK ? push_integer(r, (int)skipped, true) : AN_E_IO;
    case BINFLOAT: return push_float(r);
    case BINUNICODE: return push_text(r, 4);
    case SHORT_BINUNICODE: return push_text(r, 1);
    case EMPTY_TUPLE: return push(r, make(r, AN_PICKLE_TUPLE));
    case EMPTY_LIST: return push(r, make(r, AN_PICKLE_LIST));
    case EMPTY_DICT: return push(r, make(r, AN_PICKLE_DICT));
    case MARK: return mark(r);
    case TUPLE: return pop_mark(r, &n) == AN_OK ? push_tuple(r, n) : AN_E_IO;
    case TUPLE1: return push_tuple(r, 1);
    case TUPLE2: return push_tuple(r, 2);
    case TUPLE3: return push_tuple(r, 3);
    case APPEND: return fill(r, AN_PICKLE_LIST, 1);
    case APPENDS: return fill_marked(r, AN_PICKLE_LIST);
    case SETITEM: return fill(r, AN_PICKLE_DICT, 2);
    case SETITEMS: return fill_marked(r, AN_PICKLE_DICT);
    case BINPUT: return put_numbered(r, 1);
    case LONG_BINPUT: return put_numbered(r, 4);
    case MEMOIZE: return put(r, r->n_memo);
    case BINGET: return get(r, 1);
    case LONG_BINGET: return get(r, 4);
    case GLOBAL: return read_global(r);
    case STACK_GLOBAL: return read_stack_global(r);
    case REDUCE: return reduce(r);
    case BUILD: return build(r);
    case BINPERSID: return push_persistent(r);
    default: return unknown_opcode(r);
    }
}

an_status an_pickle_read(an_err *err, const char *where, uint64_t at, const void *data, size_t n,
                         const char *const *globals, size_t n_globals, an_arena *a, const an_pickle_value **out)
{
    reader r = {.err = err,
                .where = where,
                .base = at,
                .start = data,
                .p = data,
                .opcode = data,
                .globals = globals,
                .n_globals = n_globals,
                .arena = a};
    r.end = r.start + n;
    *out = NULL;
    while (r.p < r.end) {
        r.opcode = r.p++;
        if (*r.opcode == STOP) {
            if (r.n_stack != 1 || r.n_marks != 0) return refuse(&r, "the pickle ends with more or less than one value");
            *out = r.stack[0];
            return AN_OK;
        }
        AN_TRY(step(&r));
        if (r.n_values > MAX_VALUES) return refuse(&r, "the pickle has more values than any checkpoint");
    }
    r.opcode = r.end;
    return refuse(&r, "the pickle ends without its end mark");
}

/* ---- looking */

bool an_pickle_is_text(const an_pickle_value *v, const char *text)
{
    return v && v->kind == AN_PICKLE_TEXT && v->bytes == strlen(text) && memcmp(v->text, text, v->bytes) == 0;
}

const an_pickle_value *an_pickle_find(const an_pickle_value *dict, const char *key)
{
    if (!dict || dict->kind != AN_PICKLE_DICT) return NULL;
    for (size_t i = dict->n; i >= 2; i -= 2)
        if (an_pickle_is_text(dict->items[i - 2], key)) return dict->items[i - 1];
    return NULL;
}
