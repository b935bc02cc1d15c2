/* msl.c: MSL text to something that runs: has msl_read.c find its kernels and write it as C++, has the C++ compiler build one
 * kernel against tests/shim and the headers of foreign/, loads it. Compiled things are kept in the cache folder under a
 * hash of everything that went in. An object holds one kernel, so that threadgroup memory is that kernel's own. */
#define _GNU_SOURCE
#include "msl_read.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* build.sh says where this folder is (../../shim is beside it), and what compiles kernels. */
#if !defined(STANDIN_DIR) || !defined(STANDIN_CC) || !defined(STANDIN_CXX)
#error "built by build.sh"
#endif

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
                                        STANDIN_DIR "/msl_read.c",
                                        STANDIN_DIR "/foreign/metal_language",
                                        STANDIN_DIR "/foreign/metal_library",
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

/* Whether the C++ compiler takes an option of GCC's. */
static bool compiler_takes(const char *option)
{
    char *line = say("echo | %s -x c++ %s -Werror -fsyntax-only - >/dev/null 2>&1", compiler(), option);
    const bool takes = system(line) == 0;
    free(line);
    return takes;
}

/* GCC's options, asked once: constants are single; a `half` is rounded after each operation, which from GCC 13 on must be said.
 * Another compiler's do the same without. */
static const char *options_of_gcc(void)
{
    static const char *known;
    if (!known) {
        const bool gcc = compiler_takes("-fsingle-precision-constant");
        known = !gcc                                      ? ""
                : compiler_takes("-fexcess-precision=16") ? " -fsingle-precision-constant -fexcess-precision=16"
                                                          : " -fsingle-precision-constant";
    }
    return known;
}

/* The compiler with what every kernel is compiled with. */
static char *flags(const msl_text *t)
{
#if defined(__x86_64__)
    const char *fused = __builtin_cpu_supports("fma") ? " -mfma" : "";
#else
    const char *fused = "";
#endif
    /* 1.0 is a float in MSL. Every standard that MSL has been is within this one. */
    const char *gcc = options_of_gcc();
    return say("%s -x c++ -std=gnu++17 -O1 -fPIC%s%s -ffp-contract=%s%s%s -fno-strict-aliasing -fno-exceptions "
               "-fno-threadsafe-statics -w -D__METAL_VERSION__=%d -I" STANDIN_DIR "/foreign -I" STANDIN_DIR
               "/../../shim/msl -I" STANDIN_DIR "/../../shim",
               compiler(), *gcc ? gcc : " -Wno-c++11-narrowing -Wno-reserved-user-defined-literal",
               t->by_lane ? " -DSHIM_FIELD_MAP" : "", t->contract ? "fast" : "off", t->contract ? fused : "",
               t->fast_math ? " -ffast-math" : "", t->version);
}

/* The option that puts the headers with which every prepared text begins in front of it, compiled: reading them is half of a
 * compilation. GCC's alone; where it cannot use what was compiled it reads the header, which is the same text. */
static char *compiled_headers(const char *options)
{
    if (!*options_of_gcc()) return say("%s", "");
    char *header = cache_path(hash(environment_hash(), options), ".h", false), *compiled = say("%s.gch", header);
    if (access(compiled, R_OK)) {
        char *command = say("%s -x c++-header -c %s", options, header);
        write_file(header, "#include <metal_stdlib>\n#include <metal_simdgroup_matrix>\n");
        free(build(command, compiled));
        free(command);
    }
    char *option = say(" -include %s", header);
    free(compiled), free(header);
    return option;
}

static const struct msl_value *value_of(const msl_constant *c, const msl_values *values)
{
    for (int i = values ? values->n - 1 : -1; i >= 0; i--) { /* the last that was set */
        const struct msl_value *v = &values->at[i];
        if (v->name[0] ? !strcmp(v->name, c->name) : v->index == c->index) return v;
    }
    return NULL;
}

/* What the text's function constants are, in front of it. */
static char *constant_lines(const msl_text *t, const msl_values *values)
{
    text out = {0};
    puts_text(&out, "");
    for (int i = 0; i < t->n_constants; i++) {
        const msl_constant *c = &t->constant[i];
        const struct msl_value *v = value_of(c, values);
        char *line = say("#define SHIM_CONSTANT_%d %s\n#define SHIM_DEFINED_%d %d\n", c->index, v ? v->value : "0",
                         c->index, v != NULL);
        puts_text(&out, line);
        free(line);
    }
    return out.data;
}

const char *msl_missing_constant(const msl_text *t, const msl_kernel *k, const msl_values *values)
{
    for (int i = 0; i < t->n_constants; i++) {
        const msl_constant *c = &t->constant[i];
        char *asked = say("is_function_constant_defined(%s)", c->name);
        const bool may_lack = strstr(t->prepared, asked) != NULL;
        free(asked);
        if (may_lack || value_of(c, values)) continue;
        const char *from = t->prepared + k->text_from, *end = t->prepared + k->text_to;
        if (msl_has_word(from, end, c->name)) return c->name;
    }
    return NULL;
}

/* The whole text must compile, whether its kernels are used or not. */
static char *check_syntax(const msl_text *t)
{
    char *good = cache_path(t->key, ".good", false), *wrong = NULL;
    if (access(good, R_OK)) {
        char *source = cache_path(t->key, ".cc", true), *options = flags(t);
        char *headers = compiled_headers(options), *command = say("%s%s -fsyntax-only %s", options, headers, source);
        char *lines = constant_lines(t, NULL), *whole = say("%s%s", lines, t->prepared);
        write_file(source, whole);
        free(whole), free(lines);
        wrong = compile(command);
        if (!wrong) write_file(good, "");
        unlink(source);
        free(command), free(headers), free(options), free(source);
    }
    free(good);
    return wrong;
}

static char *preprocess(const msl_text *t, const char *source, const char *out)
{
    char *raw = cache_path(t->key, ".metal", false);
    write_file(raw, source);
    char *command = say("%s -E -P -x c++ -std=c++14 -nostdinc -w -D__METAL__ -D__METAL_MACOS__ -D__METAL_VERSION__=%d "
                        "-D__HAVE_SIMDGROUP_MATRIX__ %s-I" STANDIN_DIR "/words %s",
                        compiler(), t->version, t->version >= 310 ? "-D__HAVE_BFLOAT__ " : "", raw);
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
    out->by_lane = strstr(words, "thread_elements") != NULL;
    for (const char *p = strstr(words, "simd_"); p && !out->shuffles; p = strstr(p + 1, "simd_"))
        out->shuffles = p == words || !(isalnum((unsigned char)p[-1]) || p[-1] == '_');
    const char *reason = msl_prepare(out, words);
    /* Matrices in functions that kernels call: each kernel of the text is taken to call them. */
    const bool helpers = !reason && out->all_matrix_words > out->matrix_words;
    for (int i = 0; helpers && i < out->n_kernels; i++) out->kernel[i].simdgroup_matrix = true;
    free(words);
    if (reason) return say("%s", reason);
    return the()->kernels == KERNELS_NONE ? NULL : check_syntax(out);
}

void msl_free(msl_text *t)
{
    for (int i = 0; i < t->n_kernels; i++) free(t->kernel[i].defines);
    free(t->prepared);
    free(t->kernel), free(t->generic), free(t->constant);
    *t = (msl_text){0};
}

/* The prepared text with this kernel alone, and what calls it. */
static void write_unit(const msl_text *t, const msl_kernel *k, const char *constants, const char *path)
{
    text out = {0};
    size_t at = 0;
    puts_text(&out, constants);
    for (int i = 0; i < t->n_kernels; i++) {
        if (&t->kernel[i] == k || t->kernel[i].from == t->kernel[i].to) continue;
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

static char *build_object(const msl_text *t, const msl_kernel *k, const char *constants, const char *so, uint64_t key)
{
    char *unit = cache_path(key, ".cc", true), *object = cache_path(key, ".o", true), *plain = flags(t);
    char *options = say("%s%s", plain, the()->kernels == KERNELS_CHECKED ? " -fsanitize=thread" : "");
    char *headers = compiled_headers(options);
    char *runtime = cache_path(environment_hash(), ".runtime.o", false);
    char *wrong = access(runtime, R_OK) ? build_runtime(runtime) : NULL;
    char *one = say("%s%s -c %s", options, headers, unit);
    char *two = say("%s -shared -Wl,-Bsymbolic %s %s -lm", c_compiler(), object, runtime);
    write_unit(t, k, constants, unit);
    if (!wrong) wrong = build(one, object);
    if (!wrong) wrong = build(two, so);
    unlink(object), unlink(unit);
    free(two), free(one), free(runtime), free(headers), free(options), free(plain), free(object), free(unit);
    counts()->kernel_compiles++;
    return wrong;
}

char *msl_build(const msl_text *t, const msl_kernel *k, const msl_values *values, msl_entry *out,
                kernel_argument argument[MAX_ARGUMENTS])
{
    char *constants = constant_lines(t, values);
    uint64_t key = hash(hash(t->key + (the()->kernels == KERNELS_CHECKED), k->name), constants);
    char *so = cache_path(key, ".so", false), *wrong = access(so, R_OK) ? build_object(t, k, constants, so, key) : NULL;
    free(constants);
    char *path = say("%s%s", so[0] == '/' ? "" : "./", so);
    void *handle = wrong ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle && !wrong) wrong = say("%s", dlerror());
    free(path), free(so);
    if (wrong) return wrong;
    void *run = dlsym(handle, "standin_run"), *memory = dlsym(handle, "standin_group_memory");
    const uint64_t *least = dlsym(handle, "standin_least");
    const bool *present = dlsym(handle, "standin_present");
    if (!run || !memory || !least || !present) return say("a compiled kernel lacks its entry");
    uint64_t (*group_memory)(void);
    memcpy(&out->run, &run, sizeof run);
    memcpy(&group_memory, &memory, sizeof memory);
    out->handle = handle;
    out->group_memory = group_memory();
    for (int i = 0; i < k->n_arguments; i++) {
        if (least[i]) argument[i].least_bytes = least[i];
        if (!present[i]) argument[i].kind = ARGUMENT_ABSENT;
    }
    return NULL;
}
