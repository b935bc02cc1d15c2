/* input.c: what a command reads beside its arguments: a file that is named on the command line, or standard input.
 *
 * Invariant: what is read has a bound, a file is a regular one, and waiting for standard input ends when the program is
 * interrupted (system calls go on after a signal here, so a plain read would not). */
#include "cli/cli.h"
#include "platform/platform.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <unistd.h>

/* Bytes that came, 0 at the end of the input and when the program was interrupted; below 0: they cannot be read. */
static ssize_t take(char *out, size_t n)
{
    while (!an_interrupt_seen(NULL)) {
        fd_set input;
        FD_ZERO(&input);
        FD_SET(STDIN_FILENO, &input);
        struct timeval second = {.tv_sec = 1}; /* for a signal just before the wait */
        const int ready = select(STDIN_FILENO + 1, &input, NULL, NULL, &second);
        if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
        return read(STDIN_FILENO, out, n);
    }
    return 0;
}

enum { MAX_LINE_BYTES = 1 << 20 };

bool an_input_line(an_text *out)
{
    char c;
    ssize_t n;
    while ((n = take(&c, 1)) > 0 && c != '\n' && out->len < MAX_LINE_BYTES) an_text_putn(out, &c, 1);
    return !an_interrupt_seen(NULL) && (n > 0 || out->len > 0);
}

an_status an_input_read(an_err *err, const char *path, size_t max_bytes, an_text *out)
{
    static const char name[] = "standard input";
    char piece[65536];
    if (strcmp(path, "-") != 0) {
        char *data;
        size_t bytes;
        AN_TRY(an_file_read(err, path, max_bytes, &data, &bytes));
        an_text_putn(out, data, bytes);
        free(data);
        return out->failed ? an_fail_nomem(err, path, bytes) : AN_OK;
    }
    for (ssize_t n; (n = take(piece, sizeof piece)) != 0;) {
        if (n < 0) return an_fail(err, AN_E_IO, "%s cannot be read: %s", name, strerror(errno));
        an_text_putn(out, piece, (size_t)n);
        if (out->failed) return an_fail_nomem(err, name, out->len);
        if (out->len > max_bytes)
            return an_fail(err, AN_E_DATA, "%s: more than %zu MiB; give less of it", name, max_bytes >> 20);
    }
    return AN_OK;
}
