/* printing.c: sentences on stderr and lines on stdout, folded to a terminal's width; numbers of JSON. The line of a progress
 * bar is taken away before another is printed (progress_bar.c). Numbers as text: number_text.c. */
#include "cli/cli.h"
#include "cli/progress_bar.h"
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

void an_put_json(an_text *out, const char *key, double value)
{
    if (isfinite(value))
        an_text_printf(out, ",\"%s\":%.12g", key, value);
    else
        an_text_printf(out, ",\"%s\":null", key);
}

an_status an_print_line(an_err *err, an_text *line)
{
    an_status status = AN_OK;
    an_text_puts(line, "\n");
    if (line->data && isatty(STDOUT_FILENO) == 1) an_text_printable(line->data, line->len);
    an_bar_hide();
    const bool json = line->data && (*line->data == '{' || *line->data == '[');
    if (line->failed) {
        status = an_fail_nomem(err, "a line of output", line->len);
    } else if (!json && isatty(STDOUT_FILENO) == 1) {
        an_print_folded(stdout, line->data);
        if (fflush(stdout) != 0 || ferror(stdout)) status = an_fail(err, AN_E_IO, "stdout cannot be written to");
    } else if (fwrite(line->data, 1, line->len, stdout) != line->len || fflush(stdout) != 0) {
        status = an_fail(err, AN_E_IO, "stdout cannot be written to");
    }
    an_text_free(line);
    return status;
}

/* At most 79 columns: a terminal may begin a new line after the 80th. */
enum { COLUMNS = AN_CLI_COLUMNS, INDENT = 8 };

/* The start of the second column of a table's line: after the first two blanks that follow a word. */
static int second_column(const char *line, int n)
{
    int at = (int)strspn(line, " ");
    while (at + 1 < n && !(line[at] == ' ' && line[at + 1] == ' ')) at++;
    at += (int)strspn(line + at, " ");
    return at > 0 && at < COLUMNS / 2 ? at : INDENT;
}

static void fold_line(FILE *f, const char *line, int n)
{
    const int indent = n > COLUMNS ? second_column(line, n) : 0;
    for (int room = COLUMNS, left; n > 0 || room == COLUMNS; room = COLUMNS - indent) {
        left = n;
        if (n > room) {
            for (n = room; n > 0 && line[n] != ' ';) n--;
            if (n == 0) n = (int)strcspn(line, " \n"); /* a long path, for example, is not cut */
        }
        fprintf(f, "%*s%.*s\n", room == COLUMNS ? 0 : indent, "", n, line);
        const int blanks = (int)strspn(line + n, " ");
        line += n + blanks;
        n = left - n - blanks;
        if (indent == 0) return;
    }
}

void an_print_folded(FILE *f, const char *text)
{
    if (isatty(fileno(f)) != 1) {
        fputs(text, f);
        return;
    }
    while (*text) {
        const int n = (int)strcspn(text, "\n");
        fold_line(f, text, n);
        text += n + (text[n] == '\n');
    }
}

void an_say(const char *format, ...)
{
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text - 1, format, arguments);
    va_end(arguments);
    an_text_printable(text, strlen(text));
    strcat(text, "\n");
    an_bar_hide();
    an_print_folded(stderr, text);
}
