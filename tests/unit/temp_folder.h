/* temp_folder.h: a folder of its own for a test program, and small files in it. Include after cmocka.h. */
#ifndef AN_TEST_TEMP_FOLDER_H
#define AN_TEST_TEMP_FOLDER_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char temp_dir[256];

static inline int temp_folder_begin(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(temp_dir, sizeof temp_dir, "%s/an_test_XXXXXX", base && *base ? base : "/tmp");
    return mkdtemp(temp_dir) ? 0 : -1;
}

/* Removes files and one level of folders: tests make no deeper ones. */
static inline void temp_remove(const char *dir, int depth)
{
    DIR *d = opendir(dir);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[600];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        snprintf(path, sizeof path, "%.300s/%.255s", dir, e->d_name);
        if (unlink(path) != 0 && depth > 0) temp_remove(path, depth - 1);
    }
    closedir(d);
    rmdir(dir);
}

static inline int temp_folder_end(void **state)
{
    (void)state;
    temp_remove(temp_dir, 3);
    return 0;
}

/* TEMP/name, in one of eight buffers. */
static inline const char *temp_path(const char *name)
{
    static char paths[8][512];
    static int next;
    char *p = paths[next++ % 8];
    snprintf(p, sizeof paths[0], "%s/%s", temp_dir, name);
    return p;
}

static inline const char *temp_file(const char *name, const void *data, size_t bytes)
{
    const char *path = temp_path(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
    return path;
}

static inline const char *temp_text(const char *name, const char *text)
{
    return temp_file(name, text, strlen(text));
}

/* Files in a folder whose name contains `part`. */
static inline int temp_count(const char *dir, const char *part)
{
    DIR *d = opendir(dir);
    int n = 0;
    if (!d) return -1;
    for (struct dirent *e; (e = readdir(d)) != NULL;) n += e->d_name[0] != 0 && strstr(e->d_name, part) != NULL;
    closedir(d);
    return n;
}

#define assert_contains(text, part)                                                                                    \
    do {                                                                                                               \
        if (!strstr((text), (part))) fail_msg("\"%s\" does not contain \"%s\"", (text), (part));                       \
    } while (0)

#endif
