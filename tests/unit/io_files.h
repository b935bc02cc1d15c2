/* io_files.h: small files for the tests of src/io, in the program's temporary folder. */
#ifndef AN_TEST_IO_FILES_H
#define AN_TEST_IO_FILES_H

#include "lib/test.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static inline const char *temp_file(const char *name, const void *data, size_t bytes)
{
    const char *path = test_path(name);
    test_write_file(path, data, bytes);
    return path;
}

static inline const char *temp_text(const char *name, const char *text)
{
    return temp_file(name, text, strlen(text));
}

/* Files in a folder whose name contains `part`; -1: no such folder. */
static inline int temp_count(const char *dir, const char *part)
{
    DIR *d = opendir(dir);
    int n = 0;
    if (!d) return -1;
    for (struct dirent *e; (e = readdir(d)) != NULL;) n += strstr(e->d_name, part) != NULL;
    closedir(d);
    return n;
}

#define assert_contains(text, part)                                                                                    \
    do {                                                                                                               \
        if (!strstr((text), (part))) fail_msg("\"%s\" does not contain \"%s\"", (text), (part));                       \
    } while (0)

#endif
