/* msl.c: MSL text to something that runs: finds its kernels and what they take, prepares the text, has the C++ compiler
 * build one kernel against tests/shim, loads it. Compiled things are kept in the cache folder under a hash of
 * everything that went in.
 *
 * Preparing: the preprocessor expands the text's own macros while Metal's words stay; then [[...]] are taken out,
 * threadgroup variables become static (one group runs at a time), and `kernel` goes. An object holds one kernel, so
 * that threadgroup memory is that kernel's own. */
#define _GNU_SOURCE
#include "metal.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* build.sh says where this folder is (../../shim is beside it), and what compiles kernels. */
#if !defined(STANDIN_DIR) || !defined(STANDIN_CC) || !defined(STANDIN_CXX)
#error "built by build.sh"
#endif

/* ---- text ------------------------------------------------------------------------------------------------------ */

/* sprintf into memory of its own. */
__attribute__((format(printf, 1, 2))) static char *say(const char *fmt, ...)
{
    char *out;
    va_list args;
    va_start(args, fmt);
    if (vasprintf(&out, fmt, args) < 0) abort();
    va_end(args);
    return out;
}

typedef struct text {
    char *data;
    size_t n, room;
} text;

static void put(text *t, const char *p, size_t n)
{
    if (t->n + n + 1 > t->room) {
        t->room = 2 * t->room + n + 256;
        t->data = realloc(t->data, t->room);
        if (!t->data) abort();
    }
    memcpy(t->data + t->n, p, n);
    t->data[t->n += n] = 0;
}
static void puts_text(text *t, const char *p)
{
    put(t, p, strlen(p));
}

/* ---- files and commands ---------------------------------------------------------------------------------------- */

static char *slurp(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    char *text = malloc((size_t)n + 1);
    if (!text) abort();
    text[fread(text, 1, (size_t)n, f)] = 0;
    fclose(f);
    return text;
}

static uint64_t hash(uint64_t h, const char *text)
{
    for (const char *p = text; *p; p++) h = (h ^ (uint8_t)*p) * 1099511628211u;
    return (h ^ 0xff) * 1099511628211u;
}

static const char *compiler(void)
{
    return getenv("STANDIN_CXX") ? getenv("STANDIN_CXX") : STANDIN_CXX;
}
static const char *c_compiler(void)
{
    return getenv("STANDIN_CC") ? getenv("STANDIN_CC") : STANDIN_CC;
}

/* What a compiled kernel depends on besides its text. */
static uint64_t environment_hash(void)
{
    static const char *const files[] = {STANDIN_DIR "/msl.c",
                                        STANDIN_DIR "/run_kernel.h",
                                        STANDIN_DIR "/../../shim/shim.h",
                                        STANDIN_DIR "/../../shim/shim.c",
                                        STANDIN_DIR "/../../shim/msl/metal_stdlib",
                                        STANDIN_DIR "/../../shim/msl/metal_simdgroup_matrix",
                                        STANDIN_DIR "/foreign/metal_stdlib"};
    static uint64_t known;
    if (known) return known;
    uint64_t h = hash(14695981039346656037u, compiler());
    for (int i = 0; i < COUNT(files); i++) {
        char *text = slurp(files[i]);
        h = hash(h, text ? text : "");
        free(text);
    }
    return known = h;
}

static void make_folders(const char *path)
{
    char *copy = say("%s", path);
    for (char *p = copy + 1; *p; p++)
        if (*p == '/') *p = 0, mkdir(copy, 0777), *p = '/';
    mkdir(copy, 0777);
    free(copy);
}

/* A file of the cache; `mine`: of this process alone. */
static char *cache_path(uint64_t key, const char *ending, bool mine)
{
    char process[32] = "";
    if (mine) snprintf(process, sizeof process, ".%d", getpid());
    return say("%s/%016llx%s%s", the()->cache, (unsigned long long)key, process, ending);
}

/* NULL, or the compiler's words. */
static char *compile(const char *command)
{
    char *log = cache_path(hash(0, command), ".log", true), *line = say("%s >%s 2>&1", command, log);
    int status = system(line);
    char *words = status ? slurp(log) : NULL;
    unlink(log);
    free(line), free(log);
    return !status ? NULL : words ? words : say("the compiler cannot be run");
}

/* Runs a compiler whose output appears at `out` when it succeeds. */
static char *build(const char *command, const char *out)
{
    char *temporary = say("%s.%d", out, getpid()), *line = say("%s -o %s", command, temporary), *wrong = compile(line);
    if (!wrong && rename(temporary, out)) wrong = say("the compiler wrote nothing");
    free(line), free(temporary);
    return wrong;
}

static void write_file(const char *path, const char *content)
{
    char *temporary = say("%s.%d.new", path, getpid());
    FILE *f = fopen(temporary, "wb");
    if (!f || fputs(content, f) < 0 || fclose(f) || rename(temporary, path)) {
        fprintf(stderr, "metal stand-in: %s cannot be written; set cache= to a folder that can\n", path);
        abort();
    }
    free(temporary);
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
    return word_at(p) == strlen(word) && !memcmp(p, word, strlen(word));
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
static bool has_word(const char *from, const char *end, const char *word)
{
    for (const char *p = from; p < end; p++)
        if ((p == from || !is_word((uint8_t)p[-1])) && same_word(p, word) && p + strlen(word) <= end) return true;
    return false;
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
    char type[256], name[64], attribute[64];
    int index; /* of the attribute; -1: none */
    bool pointer, reference, threadgroup, read_only, device;
} parameter;

static void read_attribute(const char *p, const char *end, parameter *out)
{
    for (p += 2; p < end; p++) {
        size_t n = word_at(p);
        if (!n) continue;
        snprintf(out->attribute, sizeof out->attribute, "%.*s", (int)n, p);
        for (p += n; isspace((uint8_t)*p); p++) {
        }
        if (*p == '(') out->index = atoi(p + 1);
        return;
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
            if (*p == '[' && !out->attribute[0]) read_attribute(p, next, out);
            p = next;
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
    text arguments, least, groups;
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
    snprintf(one, sizeof one, "%d, ", k->n_arguments++);
    if (a->threadgroup) puts_text(&out->groups, one);
    return NULL;
}

/* Parameters between p and end: the kernel's table, and the lines that run_kernel.h asks for. */
static const char *read_parameters(msl_kernel *k, const char *p, const char *end)
{
    call c = {0};
    const char *wrong = NULL;
    int depth = 0;
    puts_text(&c.arguments, ""), puts_text(&c.least, ""), puts_text(&c.groups, "");
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
    k->defines = say("\n#define STANDIN_KERNEL %s\n#define STANDIN_CALL (%s)\n#define STANDIN_LEAST %s\n"
                     "#define STANDIN_GROUP_ARGUMENTS %s\n#define STANDIN_GROUP_BYTES %d\n",
                     k->name, c.arguments.data, c.least.data, c.groups.data, c.groups.n ? MAX_GROUP_MEMORY : 0);
    free(c.arguments.data), free(c.least.data), free(c.groups.data);
    return wrong;
}

/* ---- preparing ------------------------------------------------------------------------------------------------- */

/* From p to end without attributes; in a kernel's body threadgroup variables become static. */
static void put_prepared(text *out, const char *p, const char *end, bool in_kernel)
{
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
            if (in_kernel && begins && same_word(p, "threadgroup") && !pointer)
                puts_text(out, "AN_SHARED_STORAGE");
            else
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

/* One kernel: its definition begins at `from`, `name` points at its name. NULL, or what is wrong. */
static const char *take_kernel(msl_text *t, text *out, const char *from, const char *name, const char **end)
{
    t->kernel = realloc(t->kernel, (size_t)(t->n_kernels + 1) * sizeof *t->kernel);
    if (!t->kernel) abort();
    msl_kernel *k = &t->kernel[t->n_kernels++];
    *k = (msl_kernel){.from = out->n};
    snprintf(k->name, sizeof k->name, "%.*s", (int)word_at(name), name);
    for (const char *p = from; p < name; p++)
        if (same_word(p, "max_total_threads_per_threadgroup") && !is_word((uint8_t)p[-1]))
            k->max_threads = (uint64_t)strtoull(p + strcspn(p, "(") + 1, NULL, 0);
    const char *open = name + word_at(name);
    while (isspace((uint8_t)*open)) open++;
    const char *close = closing(open), *body = close ? close + 1 : NULL;
    while (body && isspace((uint8_t)*body)) body++;
    if (!body || *body != '{' || !(*end = closing(body))) return "a kernel without a body";
    ++*end;
    const char *wrong = read_parameters(k, open + 1, close);
    puts_text(out, "static void ");
    put_prepared(out, name, body, false);
    put_prepared(out, body, *end, true);
    puts_text(out, "\n");
    k->to = out->n;
    const int words = matrix_words(body, *end);
    k->simdgroup_matrix = words > 0;
    t->matrix_words += words;
    return wrong;
}

/* Finds every kernel of the preprocessed text, at the top level or in a namespace; everything else is handed on. */
static const char *prepare(msl_text *t, const char *source)
{
    text out = {0};
    const char *begin = source, *p = source, *wrong = NULL; /* begin: of the definition that p is in */
    bool is_kernel = false;
    puts_text(&out, "#include <metal_stdlib>\n#include <metal_simdgroup_matrix>\n");
    while (*p && !wrong) {
        const char *next = past_special(p), *end;
        size_t n = word_at(p);
        if (next != p) {
            is_kernel |= *p == '[' && has_word(p, next, "kernel");
            p = next;
            continue;
        }
        if (n) {
            is_kernel |= same_word(p, "kernel");
            const char *after = p + n;
            while (isspace((uint8_t)*after)) after++;
            if (is_kernel && *after == '(' && !same_word(p, "__attribute__")) {
                wrong = take_kernel(t, &out, begin, p, &end);
                if (!wrong) p = begin = end;
                is_kernel = false;
            } else {
                p += n;
            }
            continue;
        }
        bool body = *p == '{' && !has_word(begin, p, "namespace"), ends = strchr(";{}", *p) != NULL;
        if (body && !(p = closing(p))) {
            wrong = "a brace that is not closed";
            break;
        }
        p++;
        if (!ends) continue;
        put_prepared(&out, begin, p, false);
        begin = p, is_kernel = false;
    }
    if (!wrong) put_prepared(&out, begin, p, false);
    t->prepared = out.data;
    return wrong;
}

/* The compiler with what every kernel is compiled with. */
static char *flags(const msl_text *t)
{
#if defined(__x86_64__)
    const char *fused = __builtin_cpu_supports("fma") ? " -mfma" : "";
#else
    const char *fused = "";
#endif
    return say("%s -x c++ -std=%s -O1 -fPIC -ffp-contract=%s%s%s -fno-strict-aliasing -fno-exceptions -w "
               "-D__METAL_VERSION__=%d -I" STANDIN_DIR "/foreign -I" STANDIN_DIR "/../../shim/msl -I" STANDIN_DIR
               "/../../shim",
               compiler(), t->version >= 400 ? "c++17" : "c++14", t->contract ? "fast" : "off",
               t->contract ? fused : "", t->fast_math ? " -ffast-math" : "", t->version);
}

/* The whole text must compile, whether its kernels are used or not. */
static char *check_syntax(const msl_text *t)
{
    char *good = cache_path(t->key, ".good", false), *wrong = NULL;
    if (access(good, R_OK)) {
        char *source = cache_path(t->key, ".cc", true), *options = flags(t);
        char *command = say("%s -fsyntax-only %s", options, source);
        write_file(source, t->prepared);
        wrong = compile(command);
        if (!wrong) write_file(good, "");
        unlink(source);
        free(command), free(options), free(source);
    }
    free(good);
    return wrong;
}

static char *preprocess(const msl_text *t, const char *source, const char *out)
{
    char *raw = cache_path(t->key, ".metal", false);
    write_file(raw, source);
    char *command = say("%s -E -P -x c++ -std=c++14 -nostdinc -w -D__METAL__ -D__METAL_MACOS__ -D__METAL_VERSION__=%d "
                        "-I" STANDIN_DIR "/words %s",
                        compiler(), t->version, raw);
    char *wrong = build(command, out);
    free(command), free(raw);
    return wrong;
}

char *msl_read(const char *source, int version, bool fast_math, msl_text *out)
{
    *out =
        (msl_text){.version = version, .fast_math = fast_math, .contract = !strstr(source, "METAL fp contract(off)")};
    out->key = hash(environment_hash() * 31 + (uint64_t)version * 2 + fast_math, source);
    make_folders(the()->cache);
    char *expanded = cache_path(out->key, ".i", false);
    char *wrong = access(expanded, R_OK) ? preprocess(out, source, expanded) : NULL;
    char *words = wrong ? NULL : slurp(expanded);
    free(expanded);
    if (!words) return wrong ? wrong : say("the cache folder cannot be read");
    const char *reason = prepare(out, words);
    /* Matrices in functions that kernels call: each kernel of the text is taken to call them. */
    const bool helpers = !reason && matrix_words(words, words + strlen(words)) > out->matrix_words;
    for (int i = 0; helpers && i < out->n_kernels; i++) out->kernel[i].simdgroup_matrix = true;
    free(words);
    if (reason) return say("%s", reason);
    return the()->kernels == KERNELS_NONE ? NULL : check_syntax(out);
}

void msl_free(msl_text *t)
{
    for (int i = 0; i < t->n_kernels; i++) free(t->kernel[i].defines);
    free(t->prepared);
    free(t->kernel);
    *t = (msl_text){0};
}

/* The prepared text with this kernel alone, and what calls it. */
static void write_unit(const msl_text *t, const msl_kernel *k, const char *path)
{
    text out = {0};
    size_t at = 0;
    for (int i = 0; i < t->n_kernels; i++) {
        if (&t->kernel[i] == k) continue;
        put(&out, t->prepared + at, t->kernel[i].from - at);
        at = t->kernel[i].to;
    }
    puts_text(&out, t->prepared + at);
    puts_text(&out, k->defines);
    puts_text(&out, "#include \"" STANDIN_DIR "/run_kernel.h\"\n");
    write_file(path, out.data);
    free(out.data);
}

static char *build_runtime(const char *out)
{
    char *command =
        say("%s -std=c17 -O2 -fPIC -I" STANDIN_DIR "/../../shim -c " STANDIN_DIR "/../../shim/shim.c", c_compiler());
    char *wrong = build(command, out);
    free(command);
    return wrong;
}

static char *build_object(const msl_text *t, const msl_kernel *k, const char *so, uint64_t key)
{
    char *unit = cache_path(key, ".cc", true), *object = cache_path(key, ".o", true), *options = flags(t);
    char *runtime = cache_path(environment_hash(), ".runtime.o", false);
    char *wrong = access(runtime, R_OK) ? build_runtime(runtime) : NULL;
    char *one = say("%s%s -c %s", options, the()->kernels == KERNELS_CHECKED ? " -fsanitize=thread" : "", unit);
    char *two = say("%s -shared -Wl,-Bsymbolic %s %s -lm", c_compiler(), object, runtime);
    write_unit(t, k, unit);
    if (!wrong) wrong = build(one, object);
    if (!wrong) wrong = build(two, so);
    unlink(object), unlink(unit);
    free(two), free(one), free(runtime), free(options), free(object), free(unit);
    counts()->kernel_compiles++;
    return wrong;
}

char *msl_build(const msl_text *t, const msl_kernel *k, msl_entry *out, uint64_t least_bytes[MAX_ARGUMENTS])
{
    uint64_t key = hash(t->key + (the()->kernels == KERNELS_CHECKED), k->name);
    char *so = cache_path(key, ".so", false), *wrong = access(so, R_OK) ? build_object(t, k, so, key) : NULL;
    char *path = say("%s%s", so[0] == '/' ? "" : "./", so);
    void *handle = wrong ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle && !wrong) wrong = say("%s", dlerror());
    free(path), free(so);
    if (wrong) return wrong;
    void *run = dlsym(handle, "standin_run"), *memory = dlsym(handle, "standin_group_memory");
    const uint64_t *least = dlsym(handle, "standin_least");
    if (!run || !memory || !least) return say("a compiled kernel lacks its entry");
    uint64_t (*group_memory)(void);
    memcpy(&out->run, &run, sizeof run);
    memcpy(&group_memory, &memory, sizeof memory);
    out->handle = handle;
    out->group_memory = group_memory();
    memcpy(least_bytes, least, (size_t)k->n_arguments * sizeof *least);
    return NULL;
}
