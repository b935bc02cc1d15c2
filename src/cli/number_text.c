/* number_text.c: numbers as people read them: 1,234,567, 12.3k, 1:02:03, 211.3 TFLOP/s; and the columns of the terminal. */
#define _DEFAULT_SOURCE
#include "cli/cli.h"
#include "cli/progress.h"
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

const char *an_grouped(int64_t v, char out[32])
{
    char digits[32];
    const int n = snprintf(digits, sizeof digits, "%lld", (long long)v);
    int used = 0;
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0 && digits[i - 1] != '-') out[used++] = ',';
        out[used++] = digits[i];
    }
    out[used] = 0;
    return out;
}

const char *an_short_number(double v, char out[32])
{
    const char *unit = v >= 999.5e6 ? "G" : v >= 999.5e3 ? "M" : v >= 9999.5 ? "k" : "";
    const double x = v / (*unit == 'G' ? 1e9 : *unit == 'M' ? 1e6 : *unit == 'k' ? 1e3 : 1);
    snprintf(out, 32, "%.*f%s", *unit ? x < 9.995 ? 2 : x < 99.95 ? 1 : 0 : 0, x, unit);
    return out;
}

const char *an_duration(double seconds, char out[32])
{
    if (!(seconds >= 0 && seconds < 1e7)) return strcpy(out, "?");
    const int s = (int)(seconds + 0.5);
    if (s < 60)
        snprintf(out, 32, "%d s", s);
    else if (s < 3600)
        snprintf(out, 32, "%d:%02d", s / 60, s % 60);
    else
        snprintf(out, 32, "%d:%02d:%02d", s / 3600, s / 60 % 60, s % 60);
    return out;
}

const char *an_flops_text(double gflops, char out[32])
{
    const bool tera = gflops >= 1e4;
    snprintf(out, 32, "%.1f %sFLOP/s", gflops * (tera ? 1e-3 : 1), tera ? "T" : "G");
    return out;
}

int an_terminal_columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20 || size.ws_col > AN_CLI_COLUMNS)
        return AN_CLI_COLUMNS;
    return size.ws_col - 1;
}
