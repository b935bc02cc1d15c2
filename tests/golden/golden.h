/* golden.h: a text against its file in tests/golden. UPDATE=1 in the environment writes the file instead (make
 * goldens). */
#ifndef AN_GOLDEN_H
#define AN_GOLDEN_H

#include "lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline char *golden_read(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    char *text = malloc((size_t)n + 1);
    assert_non_null(text);
    text[fread(text, 1, (size_t)n, f)] = 0;
    fclose(f);
    return text;
}

/* Fails with the first line that differs, from both. */
static inline void golden_check(const char *file, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "tests/golden/%s", file);
    if (getenv("UPDATE")) {
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        fputs(text, f);
        assert_int_equal(fclose(f), 0);
        return;
    }
    char *want = golden_read(path);
    if (!want) fail_msg("%s: not there; make goldens writes it", path);
    const char *a = want, *b = text;
    for (int line = 1; *a || *b; line++) {
        size_t na = strcspn(a, "\n"), nb = strcspn(b, "\n");
        if (na != nb || memcmp(a, b, na) != 0)
            fail_msg("%s:%d:\n    was %.*s\n    is  %.*s\nIf it should: make goldens, and read the difference before "
                     "it is committed",
                     path, line, (int)na, a, (int)nb, b);
        a += na + (a[na] != 0);
        b += nb + (b[nb] != 0);
    }
    free(want);
}

#endif
