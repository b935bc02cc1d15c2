/* fake_libraries.h: NVRTC and cuBLASLt as fake_cuda.c has them: its last part, included there and nowhere else.
 *
 * Owns:      programs (their text is the code), descriptions and layouts of GEMMs, checks that their shapes agree,
 *            computing small GEMMs, passing texts on to the real NVRTC.
 * Does not:  know the contents of the driver's handles. */
#ifndef AN_TESTS_FAKE_LIBRARIES_H
#define AN_TESTS_FAKE_LIBRARIES_H

/* ---- NVRTC: the text is the code */

EXPORT int nvrtcVersion(int *major, int *minor)
{
    *major = 13, *minor = 0;
    return 0;
}
EXPORT int nvrtcGetNumSupportedArchs(int *n)
{
    *n = 3;
    return 0;
}
EXPORT int nvrtcGetSupportedArchs(int *a)
{
    a[0] = 80, a[1] = 90, a[2] = 100;
    return 0;
}
EXPORT int nvrtcCreateProgram(thing **out, const char *text, const char *name, int n, const char *const *h,
                              const char *const *names)
{
    CALL("nvrtcCreateProgram");
    (void)name, (void)h, (void)names;
    *out = n ? NULL : new_thing(PROGRAM);
    if (!*out) DONE(1);
    (*out)->text = strdup(text);
    DONE(0);
}
EXPORT int nvrtcDestroyProgram(thing **p)
{
    CALL("nvrtcDestroyProgram");
    DONE(drop(*p, PROGRAM, "nvrtcDestroyProgram"));
}
/* With FAKE_NVRTC_COPIES=refuse a copy of this library (compilers.c) compiles nothing, and the library needs a while. */
static int is_refusing_copy(void)
{
    Dl_info at;
    const char *how = getenv("FAKE_NVRTC_COPIES");
    return how && !strcmp(how, "refuse") && dladdr((const void *)is_refusing_copy, &at) &&
           !strncmp(at.dli_fname, "/proc/", 6);
}
/* With FAKE_NVRTC_COPIES=signals the library's first compilation replaces SIGTERM's handler for a while, as NVRTC's does. */
EXPORT void fake_handler(int s)
{
    (void)s;
}
static void replace_handler(void)
{
    static bool before;
    const char *how = getenv("FAKE_NVRTC_COPIES");
    if (before || !how || strcmp(how, "signals") != 0) return;
    before = true;
    void (*was)(int) = signal(SIGTERM, fake_handler);
    usleep(20000);
    signal(SIGTERM, was);
}
static int compiled;
EXPORT int fake_compiled(void)
{
    return compiled;
}
/* Compiles with the real library; a refusal or a warning is misuse. Called without the lock: texts compile side by
 * side.
 */
static void really_compile(const char *text, int n, const char *const *options)
{
    static void *library;
    int (*create)(void **, const char *, const char *, int, const char *const *, const char *const *);
    int (*compile)(void *, int, const char *const *), (*bytes)(void *, size_t *), (*log)(void *, char *);
    char said[4096] = "";
    void *program = NULL;
    size_t n_log = 0;
    pthread_mutex_lock(&lock);
    if (!library) library = dlopen(getenv("FAKE_NVRTC"), RTLD_NOW | RTLD_LOCAL);
    pthread_mutex_unlock(&lock);
    if (!library) {
        complain("FAKE_NVRTC: %s", dlerror());
        return;
    }
    const struct {
        const char *name;
        void *to;
    } symbols[] = {{"nvrtcCreateProgram", &create},
                   {"nvrtcCompileProgram", &compile},
                   {"nvrtcGetProgramLogSize", &bytes},
                   {"nvrtcGetProgramLog", &log}};
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *p = dlsym(library, symbols[i].name);
        memcpy(symbols[i].to, &p, sizeof p);
    }
    int failed = create(&program, text, "anneal.cu", 0, NULL, NULL) || compile(program, n, options);
    if (program && !bytes(program, &n_log) && n_log < sizeof said) log(program, said);
    if (failed || strstr(said, "warning")) complain("NVRTC, %s: %s", options[0], said[0] ? said : "no word");
    pthread_mutex_lock(&lock);
    compiled++;
    pthread_mutex_unlock(&lock);
}
EXPORT int nvrtcCompileProgram(thing *p, int n, const char *const *o)
{
    CALL("nvrtcCompileProgram");
    int arch = 0, fmad = 0;
    for (int i = 0; i < n; i++) arch |= !strncmp(o[i], "--gpu-architecture=", 19), fmad |= !strncmp(o[i], "--fmad=", 7);
    if (is_refusing_copy()) DONE(7);
    replace_handler();
    if (getenv("FAKE_NVRTC_COPIES")) usleep(1000);
    if (!arch || !fmad) complain("nvrtcCompileProgram: architecture and contraction must be said");
    static long texts;
    const long every = getenv("FAKE_NVRTC_EVERY") ? atol(getenv("FAKE_NVRTC_EVERY")) : 1;
    if (getenv("FAKE_NVRTC") && texts++ % every == 0) {
        pthread_mutex_unlock(&lock);
        really_compile(p->text, n, o);
        pthread_mutex_lock(&lock);
    }
    DONE(is(p, PROGRAM, "nvrtcCompileProgram") ? 0 : 6);
}
EXPORT int nvrtcGetProgramLogSize(thing *p, size_t *n)
{
    (void)p;
    *n = 30;
    return 0;
}
EXPORT int nvrtcGetProgramLog(thing *p, char *s)
{
    (void)p;
    snprintf(s, 30, "anneal.cu(7): error: injected");
    return 0;
}
EXPORT int nvrtcGetCUBINSize(thing *p, size_t *n)
{
    CALL("nvrtcGetCUBINSize");
    *n = strlen(p->text) + 1;
    DONE(0);
}
EXPORT int nvrtcGetCUBIN(thing *p, char *s)
{
    CALL("nvrtcGetCUBIN");
    strcpy(s, p->text);
    DONE(0);
}
EXPORT int nvrtcGetPTXSize(thing *p, size_t *n)
{
    *n = strlen(p->text) + 1;
    return 0;
}
EXPORT int nvrtcGetPTX(thing *p, char *s)
{
    strcpy(s, p->text);
    return 0;
}

/* ---- cuBLASLt */

EXPORT size_t cublasLtGetVersion(void)
{
    return 130000;
}
EXPORT int cublasLtCreate(thing **out)
{
    CALL("cublasLtCreate");
    DONE(make(out, HANDLE, "cublasLtCreate"));
}
EXPORT int cublasLtDestroy(thing *h)
{
    CALL("cublasLtDestroy");
    DONE(drop(h, HANDLE, "cublasLtDestroy"));
}
EXPORT int cublasLtMatmulDescCreate(thing **out, int compute, int scale)
{
    CALL("cublasLtMatmulDescCreate");
    if ((compute != 68 && compute != 77) || scale) complain("cublasLtMatmulDescCreate: %d %d", compute, scale);
    DONE(make(out, DESC, "cublasLtMatmulDescCreate"));
}
EXPORT int cublasLtMatmulDescDestroy(thing *d)
{
    CALL("cublasLtMatmulDescDestroy");
    DONE(drop(d, DESC, "cublasLtMatmulDescDestroy"));
}
EXPORT int cublasLtMatmulDescSetAttribute(thing *d, int which, const int *v, size_t n)
{
    CALL("cublasLtMatmulDescSetAttribute");
    if (!is(d, DESC, "cublasLtMatmulDescSetAttribute") || n != 4 || (which != 3 && which != 4)) DONE(7);
    if (which == 3)
        d->rows = (uint64_t)*v;
    else
        d->cols = (uint64_t)*v;
    DONE(0);
}
EXPORT int cublasLtMatrixLayoutCreate(thing **out, int type, uint64_t rows, uint64_t cols, int64_t ld)
{
    CALL("cublasLtMatrixLayoutCreate");
    if (make(out, LAYOUT, "cublasLtMatrixLayoutCreate")) DONE(7);
    (*out)->type = type, (*out)->rows = rows, (*out)->cols = cols, (*out)->ld = ld, (*out)->n_params = 1;
    if (!rows || !cols || ld < (int64_t)rows)
        complain("cublasLtMatrixLayoutCreate: %llu x %llu, leading dimension %lld", (unsigned long long)rows,
                 (unsigned long long)cols, (long long)ld);
    DONE(0);
}
EXPORT int cublasLtMatrixLayoutDestroy(thing *l)
{
    CALL("cublasLtMatrixLayoutDestroy");
    DONE(drop(l, LAYOUT, "cublasLtMatrixLayoutDestroy"));
}
EXPORT int cublasLtMatrixLayoutSetAttribute(thing *l, int which, const void *v, size_t n)
{
    CALL("cublasLtMatrixLayoutSetAttribute");
    int64_t stride = 0;
    if (!is(l, LAYOUT, "cublasLtMatrixLayoutSetAttribute")) DONE(7);
    if (which == 5 && n == 4)
        memcpy(&l->n_params, v, 4);
    else if (which == 6 && n == 8)
        memcpy(&stride, v, 8), l->bytes = (size_t)stride;
    else
        complain("cublasLtMatrixLayoutSetAttribute: %d of %zu bytes", which, n);
    DONE(0);
}
EXPORT int cublasLtMatmulPreferenceCreate(thing **out)
{
    CALL("cublasLtMatmulPreferenceCreate");
    DONE(make(out, PREFERENCE, "cublasLtMatmulPreferenceCreate"));
}
EXPORT int cublasLtMatmulPreferenceDestroy(thing *p)
{
    CALL("cublasLtMatmulPreferenceDestroy");
    DONE(drop(p, PREFERENCE, "cublasLtMatmulPreferenceDestroy"));
}
EXPORT int cublasLtMatmulPreferenceSetAttribute(thing *p, int which, const void *v, size_t n)
{
    CALL("cublasLtMatmulPreferenceSetAttribute");
    (void)v;
    DONE(is(p, PREFERENCE, "preference") && n == (which == 1 ? 8 : 4) ? 0 : 7);
}
/* Shapes must agree: out[rows, cols] = op(a)[rows, k] op(b)[k, cols]. */
static int agree(const thing *d, const thing *a, const thing *b, const thing *c)
{
    uint64_t m = d->rows ? a->cols : a->rows, k = d->rows ? a->rows : a->cols, kb = d->cols ? b->cols : b->rows,
             n = d->cols ? b->rows : b->cols;
    if (m == c->rows && n == c->cols && k == kb && a->n_params == b->n_params && b->n_params == c->n_params &&
        a->type == b->type)
        return 1;
    complain("cuBLASLt: shapes do not agree");
    return 0;
}
EXPORT int cublasLtMatmulAlgoGetHeuristic(thing *h, thing *d, thing *a, thing *b, thing *c, thing *o, thing *p,
                                          int want, char *out, int *got)
{
    CALL("cublasLtMatmulAlgoGetHeuristic");
    if (!is(h, HANDLE, "heuristic") || !is(p, PREFERENCE, "heuristic") || !agree(d, a, b, c) || c != o || want < 1)
        DONE(7);
    memset(out, 0, (size_t)want * 96);
    out[0] = 42, *got = 1;
    DONE(0);
}
static size_t item(int type)
{
    return type == 0 ? 4 : 2;
}
static int spans(const char *what, uint64_t p, const thing *l)
{
    size_t n = ((size_t)(l->n_params - 1) * l->bytes + (l->cols - 1) * (size_t)l->ld + l->rows) * item(l->type);
    if (memory_at(p, n)) return 1;
    complain("cublasLtMatmul: %s: %zu bytes outside the device's memory", what, n);
    return 0;
}
static float get(uint64_t p, int type, int64_t i)
{
    uint32_t bits = 0;
    float x;
    if (type == 0)
        memcpy(&bits, (char *)(uintptr_t)p + 4 * i, 4);
    else
        memcpy((char *)&bits + 2, (char *)(uintptr_t)p + 2 * i, 2); /* bf16: the upper half */
    memcpy(&x, &bits, 4);
    return x;
}
static void put(uint64_t p, int type, int64_t i, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (type != 0) bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    memcpy((char *)(uintptr_t)p + (type == 0 ? 4 : 2) * i, &bits, type == 0 ? 4 : 2);
}
/* Columns first, as the library has it; sums in ascending k. */
static void multiply(const thing *d, uint64_t a, const thing *la, uint64_t b, const thing *lb, uint64_t o,
                     const thing *lo)
{
    const int64_t k = (int64_t)(d->rows ? la->rows : la->cols);
    for (int64_t c = 0; c < (int64_t)lo->cols; c++)
        for (int64_t r = 0; r < (int64_t)lo->rows; r++) {
            float sum = 0;
            for (int64_t i = 0; i < k; i++)
                sum += get(a, la->type, d->rows ? i + r * la->ld : r + i * la->ld) *
                       get(b, lb->type, d->cols ? c + i * lb->ld : i + c * lb->ld);
            put(o, lo->type, r + c * lo->ld, sum);
        }
}
EXPORT int cublasLtMatmul(thing *h, thing *d, const float *alpha, uint64_t a, thing *la, uint64_t b, thing *lb,
                          const float *beta, uint64_t c, thing *lc, uint64_t o, thing *lo, const char *algo,
                          uint64_t work, size_t n, thing *s)
{
    CALL("cublasLtMatmul");
    if (!ready("cublasLtMatmul") || !is(h, HANDLE, "cublasLtMatmul") || !is(s, STREAM, "cublasLtMatmul") ||
        *alpha != 1 || (*beta != 0 && *beta != 1) || algo[0] != 42)
        DONE(7);
    if (!agree(d, la, lb, lc) || lc != lo || !spans("left", a, la) || !spans("right", b, lb) ||
        !spans("result", o, lo) || (*beta != 0 && !spans("addend", c, lc)))
        DONE(7);
    if (!memory_at(work, n)) complain("cublasLtMatmul: the workspace is outside the device's memory");
    if (la->rows * la->cols * lb->cols <= 1 << 18 && *beta == 0 && la->type != 2 && lo->n_params == 1)
        multiply(d, a, la, b, lb, o, lo);
    captured();
    state.gemms++;
    DONE(0);
}

#endif
