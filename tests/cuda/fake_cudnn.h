/* fake_cudnn.h: cuDNN's graph interface as fake_cuda.c has it: included there and nowhere else.
 *
 * Owns:      descriptions of convolutions, checks that they are whole and that their shapes agree, five algorithms of which
 *            only the fourth may be run, naive convolutions in f32 and bf16.
 * FAKE_CUDNN_NONE: no algorithm serves. */
#ifndef AN_TESTS_FAKE_CUDNN_H
#define AN_TESTS_FAKE_CUDNN_H

enum { CONV = 1, ENGINE, CONFIG, HEURISTIC, PLAN, FORWARD = 10, DW, DX, WHOLE = 15, PACK, TENSOR };
enum { ATTRIBUTES = 12, VALUE = 64, ALGORITHMS = 5, RIGHT = 3, DNN_REFUSED = 3000, DNN_BAD = 2000 };

typedef struct object { /* kept until the library is unloaded: what is finished may outlive the handles that it names */
    struct object *before;
    int kind, finished, n, algorithm;
    const struct object *whole; /* of an algorithm: the graph that it is for */
    struct set_attribute {
        int which;
        int64_t n;
        char value[VALUE];
    } attribute[ATTRIBUTES];
} object;

/* What a description takes: type and number of the values; those that must be there. */
static const struct known {
    int kind, which, type, n;
} known[] = {{CONV, 100, 1, 1},       {CONV, 101, 7, 1},     {CONV, 102, 3, 2},     {CONV, 103, 3, 2},
             {CONV, 104, 3, 2},       {CONV, 105, 3, 2},     {CONV, 106, 3, 1},     {HEURISTIC, 200, 8, 1},
             {HEURISTIC, 201, 15, 1}, {PLAN, 400, 0, 1},     {PLAN, 401, 15, 1},    {FORWARD, 700, 4, 1},
             {FORWARD, 701, 4, 1},    {FORWARD, 702, 15, 1}, {FORWARD, 703, 15, 1}, {FORWARD, 704, 15, 1},
             {FORWARD, 705, 15, 1},   {DX, 706, 4, 1},       {DX, 707, 4, 1},       {DX, 708, 15, 1},
             {DX, 709, 15, 1},        {DX, 710, 15, 1},      {DX, 711, 15, 1},      {DW, 712, 4, 1},
             {DW, 713, 4, 1},         {DW, 714, 15, 1},      {DW, 715, 15, 1},      {DW, 716, 15, 1},
             {DW, 717, 15, 1},        {WHOLE, 800, 0, 1},    {WHOLE, 801, 15, 1},   {TENSOR, 900, 3, 1},
             {TENSOR, 901, 1, 1},     {TENSOR, 902, 3, 4},   {TENSOR, 903, 3, 4},   {TENSOR, 906, 3, 1},
             {PACK, 1000, 3, 3},      {PACK, 1001, 6, 3},    {PACK, 1003, 6, 1}};

static size_t bytes_of_type(int type)
{
    return type == 1 || type == 4 || type == 7 || type == 8 ? 4 : 8;
}

EXPORT size_t cudnnGetVersion(void)
{
    return 91501;
}
EXPORT const char *cudnnGetErrorString(int r)
{
    return r == 5000 ? "CUDNN_STATUS_EXECUTION_FAILED" : "CUDNN_STATUS_INJECTED";
}
EXPORT int cudnnCreate(thing **out)
{
    CALL("cudnnCreate");
    if (!ready("cudnnCreate")) DONE(1001);
    DONE(make(out, DNN_HANDLE, "cudnnCreate"));
}
EXPORT int cudnnDestroy(thing *h)
{
    CALL("cudnnDestroy");
    DONE(drop(h, DNN_HANDLE, "cudnnDestroy"));
}
EXPORT int cudnnSetStream(thing *h, thing *s)
{
    CALL("cudnnSetStream");
    DONE(is(h, DNN_HANDLE, "cudnnSetStream") && is(s, STREAM, "cudnnSetStream") ? 0 : DNN_BAD);
}

static object *object_of(const thing *t, int kind, const char *who)
{
    if (!is(t, OBJECT, who)) return NULL;
    object *o = t->host;
    if (!kind || o->kind == kind) return o;
    complain("%s: a description of kind %d, not of kind %d", who, o->kind, kind);
    return NULL;
}
static const void *value_of(const object *o, int which)
{
    for (int i = 0; o && i < o->n; i++)
        if (o->attribute[i].which == which) return o->attribute[i].value;
    return NULL;
}
static int64_t number(const object *o, int which, int i)
{
    const void *v = value_of(o, which);
    return v ? ((const int64_t *)v)[i] : 0;
}
static int number32(const object *o, int which)
{
    const void *v = value_of(o, which);
    return v ? *(const int *)v : -1;
}
/* The finished description that attribute `which` names. */
static const object *named(const object *o, int which, int kind)
{
    const void *v = value_of(o, which);
    const object *to = v ? *(object *const *)v : NULL;
    if (!to || (to->finished && (!kind || to->kind == kind))) return to;
    complain("cudnnBackendFinalize: attribute %d names what is not finished, or of kind %d", which, to->kind);
    return NULL;
}

static object *objects;
__attribute__((destructor)) static void free_objects(void)
{
    for (object *o = objects, *before; o; o = before) before = o->before, free(o);
    objects = NULL;
}

EXPORT int cudnnBackendCreateDescriptor(int kind, thing **out)
{
    CALL("cudnnBackendCreateDescriptor");
    object *o = calloc(1, sizeof *o);
    if (!o || make(out, OBJECT, "cudnnBackendCreateDescriptor")) DONE(DNN_BAD);
    o->kind = kind;
    o->before = objects;
    objects = o;
    (*out)->host = o;
    DONE(0);
}
EXPORT int cudnnBackendDestroyDescriptor(thing *t)
{
    CALL("cudnnBackendDestroyDescriptor");
    DONE(drop(t, OBJECT, "cudnnBackendDestroyDescriptor"));
}
EXPORT int cudnnBackendSetAttribute(thing *t, int which, int type, int64_t n, const void *value)
{
    CALL("cudnnBackendSetAttribute");
    object *o = object_of(t, 0, "cudnnBackendSetAttribute");
    if (!o) DONE(DNN_BAD);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].kind != o->kind || known[i].which != which) continue;
        if (known[i].type != type || known[i].n != n || o->finished || value_of(o, which)) break;
        struct set_attribute *a = &o->attribute[o->n++];
        a->which = which, a->n = n;
        memcpy(a->value, value, (size_t)n * bytes_of_type(type));
        if (type == 15) {
            const object *to = object_of(*(thing *const *)value, 0, "cudnnBackendSetAttribute");
            memcpy(a->value, &to, sizeof to);
        }
        DONE(0);
    }
    complain("cudnnBackendSetAttribute: %lld of type %d as attribute %d of kind %d", (long long)n, type, which,
             o->kind);
    DONE(DNN_BAD);
}

/* Images and weights lie with their channels innermost, without gaps. */
static int finish_tensor(const object *o)
{
    int64_t n[4], s[4];
    for (int i = 0; i < 4; i++) n[i] = number(o, 902, i), s[i] = number(o, 903, i);
    const int type = number32(o, 901);
    if (s[1] == 1 && s[3] == n[1] && s[2] == n[3] * n[1] && s[0] == n[2] * s[2] && number(o, 900, 0) == 16 &&
        (type == 0 || type == 2 || type == 9) && n[0] > 0 && n[1] > 0 && n[2] > 0 && n[3] > 0)
        return 0;
    complain("cudnnBackendFinalize: a tensor of type %d with strides %lld %lld %lld %lld", type, (long long)s[0],
             (long long)s[1], (long long)s[2], (long long)s[3]);
    return DNN_BAD;
}
static int finish_operation(const object *o, int at)
{
    const object *c = named(o, at + 2, CONV), *w = named(o, at + 3, TENSOR), *x = named(o, at + 4, TENSOR),
                 *y = named(o, at + 5, TENSOR);
    const float *alpha = value_of(o, at), *beta = value_of(o, at + 1);
    if (!c || !w || !x || !y || *alpha != 1 || *beta != 0) return DNN_BAD;
    int same = number(x, 902, 0) == number(y, 902, 0) && number(w, 902, 0) == number(y, 902, 1) &&
               number(x, 902, 1) % number(w, 902, 1) == 0;
    for (int d = 0; d < 2; d++) {
        const int64_t over =
            number(x, 902, 2 + d) + 2 * number(c, 105, d) - number(c, 102, d) * (number(w, 902, 2 + d) - 1) - 1;
        same &= number(c, 104, d) == number(c, 105, d) && over >= 0 &&
                over / number(c, 103, d) + 1 == number(y, 902, 2 + d);
    }
    if (!same) complain("cudnnBackendFinalize: extents of a convolution do not agree");
    return same ? 0 : DNN_BAD;
}
EXPORT int cudnnBackendFinalize(thing *t)
{
    CALL("cudnnBackendFinalize");
    object *o = object_of(t, 0, "cudnnBackendFinalize");
    int r = 0;
    if (!o || o->finished) DONE(DNN_BAD);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].kind == o->kind && !value_of(o, known[i].which)) {
            complain("cudnnBackendFinalize: kind %d without attribute %d", o->kind, known[i].which);
            DONE(DNN_BAD);
        }
    if (o->kind == TENSOR) r = finish_tensor(o);
    if (o->kind == FORWARD) r = finish_operation(o, 700);
    if (o->kind == DX) r = finish_operation(o, 706);
    if (o->kind == DW) r = finish_operation(o, 712);
    if (o->kind == CONV && (number32(o, 100) || number32(o, 101) != 1 || number(o, 106, 0) != 2)) r = DNN_BAD;
    if (o->kind == WHOLE) r = named(o, 801, 0) ? 0 : DNN_BAD;
    if (o->kind == HEURISTIC) r = number32(o, 200) == 3 && named(o, 201, WHOLE) ? 0 : DNN_BAD;
    if (o->kind == PLAN) {
        const object *config = named(o, 401, CONFIG);
        r = config ? 0 : DNN_BAD;
        if (config) o->algorithm = config->algorithm, o->whole = config->whole;
    }
    if (r) complain("cudnnBackendFinalize: a description of kind %d", o->kind);
    o->finished = !r;
    DONE(r);
}

/* A result in another dtype than the operands' is refused, as the library does. */
static int64_t algorithms_for(const object *operation)
{
    const int at = operation->kind == FORWARD ? 700 : operation->kind == DX ? 706 : 712;
    int type[3];
    for (int i = 0; i < 3; i++) type[i] = number32(named(operation, at + 3 + i, TENSOR), 901);
    return getenv("FAKE_CUDNN_NONE") || type[0] != type[1] || type[1] != type[2] ? 0 : ALGORITHMS;
}
/* The first is not deterministic, the second without tensor cores, the third wants a gibibyte. */
static int64_t notes_of(int algorithm, int32_t *out)
{
    const int tensor_cores = algorithm != 1;
    if (tensor_cores) out[0] = 0;
    if (algorithm == 0) out[1] = 4;
    return tensor_cores + (algorithm == 0);
}
static int64_t workspace_of(const object *plan)
{
    const object *operation = named(plan->whole, 801, 0);
    return plan->algorithm == 2 ? 1 << 30 : operation->kind == DW ? 1000003 : operation->kind == DX ? 131 : 0;
}
EXPORT int cudnnBackendGetAttribute(thing *t, int which, int type, int64_t most, int64_t *n, void *out)
{
    CALL("cudnnBackendGetAttribute");
    const object *o = object_of(t, 0, "cudnnBackendGetAttribute");
    *n = 0;
    if (!o) DONE(DNN_BAD);
    if (o->kind == HEURISTIC && which == 202 && type == 15 && o->finished) {
        const object *whole = named(o, 201, WHOLE);
        *n = algorithms_for(named(whole, 801, 0));
        for (int i = 0; i < *n && i < most; i++) {
            object *config = object_of(((thing **)out)[i], CONFIG, "cudnnBackendGetAttribute");
            if (!config) DONE(DNN_BAD);
            config->finished = 1, config->algorithm = i, config->whole = whole;
        }
        DONE(0);
    }
    if (o->kind == CONFIG && which == 300 && type == 15 && o->finished) {
        object *engine = object_of(*(thing **)out, ENGINE, "cudnnBackendGetAttribute");
        if (!engine) DONE(DNN_BAD);
        engine->finished = 1, engine->algorithm = o->algorithm;
        *n = 1;
        DONE(0);
    }
    if (o->kind == ENGINE && which == 1303 && type == 11 && o->finished && most >= 2) {
        *n = notes_of(o->algorithm, out);
        DONE(0);
    }
    if (o->kind == PLAN && which == 402 && type == 3 && o->finished && most == 1) {
        *(int64_t *)out = workspace_of(o);
        *n = 1;
        DONE(0);
    }
    complain("cudnnBackendGetAttribute: attribute %d of kind %d", which, o->kind);
    DONE(DNN_BAD);
}

/* ---- running */

typedef struct array { /* of an operation: [n, h, w, c] in memory */
    uint64_t at;
    int type;
    int64_t n, c, h, w;
} array;

static int array_of(const object *tensor, const object *pack, array *out)
{
    const uint64_t *address = value_of(pack, 1001);
    *out = (array){.type = number32(tensor, 901) == 9 ? 14 : number32(tensor, 901),
                   .n = number(tensor, 902, 0),
                   .c = number(tensor, 902, 1),
                   .h = number(tensor, 902, 2),
                   .w = number(tensor, 902, 3)};
    for (int i = 0; i < 3; i++)
        if (number(pack, 1000, i) == number(tensor, 906, 0)) out->at = address[i];
    if (out->at && out->at % 16 == 0 &&
        memory_at(out->at, (size_t)(out->n * out->c * out->h * out->w) * item(out->type)))
        return 1;
    complain("cudnnBackendExecute: tensor %lld is not in the device's memory", (long long)number(tensor, 906, 0));
    return 0;
}
static int64_t place(const array *a, int64_t n, int64_t h, int64_t w, int64_t c)
{
    return ((n * a->h + h) * a->w + w) * a->c + c;
}
/* Every product of the convolution is added to the sum of what `kind` computes. */
static void convolve(int kind, const object *c, const array *x, const array *w, const array *y)
{
    const array *out = kind == FORWARD ? y : kind == DX ? x : w;
    const int64_t all = out->n * out->h * out->w * out->c, groups = x->c / w->c, each = w->n / groups;
    float *sum = calloc((size_t)all, sizeof *sum);
    for (int64_t n = 0; sum && n < y->n; n++)
        for (int64_t i = 0; i < y->h; i++)
            for (int64_t j = 0; j < y->w; j++)
                for (int64_t o = 0; o < y->c; o++)
                    for (int64_t r = 0; r < w->h; r++)
                        for (int64_t s = 0; s < w->w; s++) {
                            const int64_t h = i * number(c, 103, 0) + r * number(c, 102, 0) - number(c, 105, 0),
                                          v = j * number(c, 103, 1) + s * number(c, 102, 1) - number(c, 105, 1);
                            if (h < 0 || h >= x->h || v < 0 || v >= x->w) continue;
                            for (int64_t k = 0; k < w->c; k++) {
                                const int64_t px = place(x, n, h, v, o / each * w->c + k), pw = place(w, o, r, s, k),
                                              py = place(y, n, i, j, o);
                                if (kind == FORWARD)
                                    sum[py] += get(x->at, x->type, px) * get(w->at, w->type, pw);
                                else if (kind == DX)
                                    sum[px] += get(y->at, y->type, py) * get(w->at, w->type, pw);
                                else
                                    sum[pw] += get(x->at, x->type, px) * get(y->at, y->type, py);
                            }
                        }
    for (int64_t i = 0; sum && i < all; i++) put(out->at, out->type, i, sum[i]);
    free(sum);
}
EXPORT int cudnnBackendExecute(thing *h, thing *plan, thing *pack)
{
    CALL("cudnnBackendExecute");
    const object *p = object_of(plan, PLAN, "cudnnBackendExecute"), *v = object_of(pack, PACK, "cudnnBackendExecute");
    if (!ready("cudnnBackendExecute") || !is(h, DNN_HANDLE, "cudnnBackendExecute") || !p || !v || !p->finished ||
        !v->finished)
        DONE(DNN_BAD);
    if (p->algorithm != RIGHT) complain("cudnnBackendExecute: algorithm %d", p->algorithm);
    const object *operation = named(p->whole, 801, 0);
    const int kind = operation->kind, at = kind == FORWARD ? 700 : kind == DX ? 706 : 712;
    array w, x, y;
    if (!array_of(named(operation, at + 3, TENSOR), v, &w) || !array_of(named(operation, at + 4, TENSOR), v, &x) ||
        !array_of(named(operation, at + 5, TENSOR), v, &y))
        DONE(DNN_BAD);
    const uint64_t work = *(const uint64_t *)value_of(v, 1003);
    const size_t needed = (size_t)workspace_of(p);
    if (needed && !memory_at(work, needed))
        complain("cudnnBackendExecute: the workspace is outside the device's memory");
    if (needed) memset((void *)(uintptr_t)work, 0x7f, needed); /* whatever shared these bytes would be lost */
    if (x.type != 2 && y.n * y.h * y.w * y.c * w.h * w.w * w.c < 1 << 24)
        convolve(kind, named(operation, at + 2, CONV), &x, &w, &y);
    captured();
    state.convs++;
    DONE(0);
}

#endif
