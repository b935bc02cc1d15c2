/* files.c: the temporary folder and the goldens. */
#define _XOPEN_SOURCE 700
#include "lib/test.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[512];
static pid_t owner; /* a forked child must not remove its parent's folder */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st, (void)type, (void)walk;
    return remove(path);
}

static void remove_folder(void)
{
    if (getpid() == owner) nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *test_folder(void)
{
    if (!folder[0]) {
        const char *base = getenv("TMPDIR");
        snprintf(folder, sizeof folder, "%s/anneal-test-XXXXXX", base && base[0] ? base : "/tmp");
        if (!mkdtemp(folder)) fail_msg("no temporary folder like %s", folder);
        owner = getpid();
        atexit(remove_folder);
    }
    return folder;
}

const char *test_path(const char *name)
{
    static char paths[8][1024];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", test_folder(), name);
    return path;
}

void test_write_file(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f)) fail_msg("cannot write %s", path);
}

test_golden test_golden_open(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "tests/torch/%s.safetensors", name);
    test_golden g = {.name = name};
    an_err err = {0};
    if (an_st_open(&err, path, &g.file)) fail_msg("%s (tests run in the repository's root)", err.text);
    return g;
}

void test_golden_close(test_golden *g)
{
    an_st_close(g->file);
    g->file = NULL;
}

double *test_golden_read(const test_golden *g, const char *name, size_t *n)
{
    const an_st_tensor *t = an_st_find(g->file, name);
    if (!t) fail_msg("%s has no tensor %s", g->name, name);
    size_t size = an_st_dtype_bytes(t->dtype);
    *n = t->bytes / size;
    double *out = malloc(*n * sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < *n; i++) {
        const char *at = (const char *)t->data + i * size; /* possibly unaligned */
        float f32;
        int32_t i32;
        switch (t->dtype) {
        case AN_F64: memcpy(&out[i], at, size); break;
        case AN_F32: memcpy(&f32, at, size), out[i] = f32; break;
        case AN_I32: memcpy(&i32, at, size), out[i] = i32; break;
        default: fail_msg("%s: %s has dtype %s", g->name, name, an_st_dtype_name(t->dtype));
        }
    }
    return out;
}

double test_golden_number(const test_golden *g, const char *key)
{
    const char *about = an_st_meta(g->file, "about");
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *at = about ? strstr(about, quoted) : NULL;
    if (!at) fail_msg("%s: no %s in its metadata", g->name, key);
    return strtod(at + strlen(quoted), NULL);
}
