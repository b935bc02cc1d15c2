/* shim_text.h: makes MSL text runnable on the CPU: finds the kernels of a text and their parameters, compiles it with the
 * C++ compiler against msl/ and the runtime (shim.c), and loads it.
 *
 * Owns:      the files that it writes to the folder.
 * Does not:  end a test, or print.
 * Invariant: a kernel is called with the buffers that its parameters name ([[buffer(i)]]; without one, the next
 * number).
 *
 *     shim_object o;
 *     if (shim_compile(&o, text, 310, "/tmp/x", why, sizeof why)) ... why ...
 *     shim_launch l = {.groups = {4, 1, 1}, .threads = 64, .buffers = {{x, bytes}, {y, bytes}}};
 *     shim_report r = shim_call(&o, "name", &l);        r.faults, r.first
 *     shim_close(&o);
 */
#ifndef AN_SHIM_TEXT_H
#define AN_SHIM_TEXT_H

#include "shim.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHIM_PARAMS = 48, SHIM_KERNELS = 256 };

typedef struct shim_object {
    void *handle;
} shim_object;

typedef struct shim_found { /* a kernel of a text */
    char name[128];
    int n_params, code[SHIM_PARAMS]; /* a buffer's number, or a negative code of msl/metal_stdlib */
} shim_found;

/* ---------------------------------------------------------------------------------------------- reading a text */

static inline int shim_is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Where the brackets that open at p end. */
static inline char *shim_closing(char *p)
{
    int depth = 0;
    for (; *p; p++) {
        depth += *p == '(' || *p == '[' || *p == '{' || *p == '<';
        depth -= *p == ')' || *p == ']' || *p == '}' || *p == '>';
        if (depth == 0) break;
    }
    return p;
}

/* What one parameter is; `next` counts the buffers without a number. -100: something that no launch here can give. */
static inline int shim_code(const char *from, const char *to, int *next)
{
    static const struct {
        const char *word;
        int code;
    } ids[] = {{"threadgroup_position_in_grid", -1},   {"thread_index_in_threadgroup", -2},
               {"thread_index_in_simdgroup", -3},      {"simdgroup_index_in_threadgroup", -4},
               {"thread_position_in_threadgroup", -5}, {"thread_position_in_grid", -6},
               {"threads_per_threadgroup", -7},        {"threadgroups_per_grid", -8},
               {"threads_per_simdgroup", -9},          {"simdgroups_per_threadgroup", -10}};
    char text[512];
    snprintf(text, sizeof text, "%.*s", (int)(to - from), from);
    const char *attribute = strstr(text, "[["), *buffer = attribute ? strstr(attribute, "buffer") : NULL;
    if (buffer && (buffer = strchr(buffer, '('))) return *next = atoi(buffer + 1) + 1, *next - 1;
    for (size_t i = 0; attribute && i < sizeof ids / sizeof *ids; i++)
        if (strstr(attribute, ids[i].word)) return ids[i].code;
    return !attribute && (strchr(text, '*') || strchr(text, '&')) ? (*next)++ : -100;
}

/* Kernels of a preprocessed text, whose word `kernel` is blanked. Returns how many; -1: more than fit into the table. */
static inline int shim_find(char *text, shim_found *out, int most)
{
    int n = 0;
    for (char *p = strstr(text, "kernel"); p; p = strstr(p + 6, "kernel")) {
        if (shim_is_word(p[6]) || (p > text && shim_is_word(p[-1]))) continue;
        char *name = strstr(p, "void");
        const int is_attribute = p >= text + 2 && !strncmp(p - 2, "[[", 2);
        if (!name || (!is_attribute && name != p + 6 + strspn(p + 6, " \t\n"))) continue;
        if (!is_attribute) memset(p, ' ', 6);
        name += 4 + strspn(name + 4, " \t\n");
        if (n == most) return -1;
        shim_found *k = &out[n++];
        snprintf(k->name, sizeof k->name, "%.*s",
                 (int)strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"), name);
        char *at = strchr(name, '('), *end = at ? shim_closing(at) : NULL;
        int next = 0;
        for (k->n_params = 0; end && at < end && k->n_params < SHIM_PARAMS;) {
            char *comma = at + 1;
            while (comma < end && *comma != ',')
                comma = *comma == '(' || *comma == '[' || *comma == '<' ? shim_closing(comma) + 1 : comma + 1;
            k->code[k->n_params++] = shim_code(at + 1, comma, &next);
            at = comma;
        }
    }
    return n;
}

/* ---------------------------------------------------------------------------------------------- compiling */

static inline const char *shim_compiler(void)
{
    return getenv("CXX") ? getenv("CXX") : "c++";
}

/* Runs a command; what it printed is the end of `why` when it fails. */
static inline int shim_try(const char *command, const char *log, const char *what, char *why, size_t room)
{
    char line[6144];
    snprintf(line, sizeof line, "%s >%s 2>&1", command, log);
    if (!system(line)) return 0;
    size_t at = (size_t)snprintf(why, room, "%s: %s\n", what, command);
    FILE *f = fopen(log, "r");
    if (f && at < room) why[at + fread(why + at, 1, room - at - 1, f)] = 0;
    if (f) fclose(f);
    return -1;
}

static inline char *shim_slurp(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    char *text = malloc((size_t)n + 1);
    if (text) text[fread(text, 1, (size_t)n, f)] = 0;
    fclose(f);
    return text;
}

/* Appends what makes each kernel callable as shim_NAME. -1: one has a parameter that cannot be given. */
static inline int shim_export(FILE *f, const shim_found *k, int n, char *why, size_t room)
{
    for (int i = 0; i < n; i++) {
        fprintf(f, "\nstatic void shim_each_%s(const shim_launch *l) { metal::shim_invoke<", k[i].name);
        for (int p = 0; p < k[i].n_params; p++) {
            if (k[i].code[p] <= -100 || k[i].code[p] >= SHIM_MAX_BUFFERS)
                return snprintf(why, room, "%s: parameter %d is none that can be given here", k[i].name, p), -1;
            fprintf(f, p ? ", %d" : "%d", k[i].code[p]);
        }
        fprintf(f,
                ">(%s, l); }\nextern \"C\" void shim_%s(const shim_launch *l, shim_report *out) { "
                "shim_run(shim_each_%s, l, out); }\n",
                k[i].name, k[i].name, k[i].name);
    }
    return 0;
}

/* metal_version: 300, 310, ... `folder` is there already. `found` (SHIM_KERNELS of them, or NULL) and *n tell what was
 * in the text. 0, or -1 and why. The working directory is the root of the source tree. */
static inline int shim_compile_found(shim_object *out, const char *text, int metal_version, const char *folder,
                                     shim_found *found, int *n, char *why, size_t room)
{
    static int number;
    static const char *const flags = "-std=c++14 -O1 -fPIC -fsanitize=thread -ffp-contract=off -fno-strict-aliasing "
                                     "-fno-exceptions -w";
    char base[512], log[520], runtime[600], command[4096], path[600];
    out->handle = NULL;
    snprintf(base, sizeof base, "%s/k%d", folder, number++);
    snprintf(log, sizeof log, "%s.log", base);
    snprintf(runtime, sizeof runtime, "%s/shim_runtime.o", folder);
    snprintf(path, sizeof path, "%s.metal", base);
    FILE *f = fopen(path, "w");
    if (!f) return snprintf(why, room, "cannot write %s", path), -1;
    fputs(text, f);
    fclose(f);
    snprintf(command, sizeof command,
             "%s -x c++ -std=c++14 -E -D__METAL_VERSION__=%d -Itests/shim/msl -Itests/shim %s.metal -o %s.ii",
             shim_compiler(), metal_version, base, base);
    if (shim_try(command, log, "the text is not preprocessed", why, room)) return -1;
    snprintf(path, sizeof path, "%s.ii", base);
    char *source = shim_slurp(path);
    f = source ? fopen(path, "w") : NULL;
    if (!f) return free(source), snprintf(why, room, "cannot write %s", path), -1;
    *n = shim_find(source, found, SHIM_KERNELS);
    fputs(source, f);
    free(source);
    int status = *n < 0 ? (snprintf(why, room, "more than %d kernels in a text", SHIM_KERNELS), -1)
                        : shim_export(f, found, *n, why, room);
    fclose(f);
    if (status) return -1;
    if ((f = fopen(runtime, "rb"))) {
        fclose(f);
    } else {
        snprintf(command, sizeof command, "%s -std=c17 -O2 -fPIC -Itests/shim -c tests/shim/shim.c -o %s",
                 getenv("CC") ? getenv("CC") : "cc", runtime);
        if (shim_try(command, log, "the runtime does not compile", why, room)) return -1;
    }
    snprintf(command, sizeof command, "%s -x c++-cpp-output %s -c %s.ii -o %s.o", shim_compiler(), flags, base, base);
    if (shim_try(command, log, "the kernels do not compile", why, room)) return -1;
    snprintf(command, sizeof command, "%s -shared -Wl,-Bsymbolic -o %s.so %s.o %s", shim_compiler(), base, base,
             runtime);
    if (shim_try(command, log, "the kernels do not link", why, room)) return -1;
    snprintf(path, sizeof path, "%s.so", base);
    out->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!out->handle) return snprintf(why, room, "%s", dlerror()), -1;
    return 0;
}

static inline int shim_compile(shim_object *out, const char *text, int metal_version, const char *folder, char *why,
                               size_t room)
{
    int n;
    shim_found *found = malloc(sizeof *found * SHIM_KERNELS);
    int status = found ? shim_compile_found(out, text, metal_version, folder, found, &n, why, room) : -1;
    free(found);
    return status;
}

/* Runs a kernel; what the runtime found comes back. A name that is not there is a fault. */
static inline shim_report shim_call(const shim_object *o, const char *kernel, const shim_launch *l)
{
    char name[160];
    shim_entry entry;
    shim_report report = {.faults = 1};
    snprintf(name, sizeof name, "shim_%s", kernel);
    void *p = dlsym(o->handle, name);
    if (!p) {
        snprintf(report.first, sizeof report.first, "there is no kernel %s", kernel);
        return report;
    }
    memcpy(&entry, &p, sizeof entry);
    entry(l, &report);
    return report;
}

static inline void shim_close(shim_object *o)
{
    if (o->handle) dlclose(o->handle);
    o->handle = NULL;
}

#endif
