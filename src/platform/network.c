/* network.c: see network.h. Linux: Documentation/ABI/testing/sysfs-class-net, sysfs-class-infiniband and sysfs-bus-pci of the kernel. */
#define _DEFAULT_SOURCE
#include "platform/network.h"

#include "base/base.h"

#include <ctype.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 700, LINE_BYTES = 80, MOST_NAMES = 32, NAME_BYTES = 64 };

/* The first line of a file. */
__attribute__((format(printf, 2, 3))) static bool read_line(char out[LINE_BYTES], const char *fmt, ...)
{
    char path[PATH_BYTES];
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(path, sizeof path, fmt, args);
    va_end(args);
    FILE *f = n > 0 && n < (int)sizeof path ? fopen(path, "re") : NULL;
    const bool read = f && fgets(out, LINE_BYTES, f);
    if (f) fclose(f);
    if (read) out[strcspn(out, "\n")] = '\0';
    return read && out[0];
}

__attribute__((format(printf, 3, 4))) static void append(char *out, size_t n, const char *fmt, ...)
{
    const size_t used = strlen(out);
    va_list args;
    va_start(args, fmt);
    if (used < n) vsnprintf(out + used, n - used, fmt, args);
    va_end(args);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The names in a folder, in order. */
static int list(const char *root, const char *folder, char names[MOST_NAMES][NAME_BYTES])
{
    char path[PATH_BYTES];
    int n = 0;
    snprintf(path, sizeof path, "%.500s%s", root, folder);
    DIR *d = opendir(path);
    for (struct dirent *e; d && n < MOST_NAMES && (e = readdir(d));)
        if (e->d_name[0] != '.' && strlen(e->d_name) < NAME_BYTES)
            snprintf(names[n++], NAME_BYTES, "%.*s", NAME_BYTES - 1, e->d_name);
    if (d) closedir(d);
    qsort(names, (size_t)n, NAME_BYTES, by_name);
    return n;
}

static void put_card(const char *root, const char *name, char *out, size_t n)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    struct stat facts;
    snprintf(path, sizeof path, "%.500s/sys/class/net/%.100s/device", root, name);
    if (stat(path, &facts) != 0 || !read_line(line, "%s/sys/class/net/%s/operstate", root, name) ||
        strcmp(line, "up") != 0)
        return;
    const double mbits = read_line(line, "%s/sys/class/net/%s/speed", root, name) ? strtod(line, NULL) : 0;
    append(out, n, "%s%s", out[0] ? ", " : "", name);
    if (mbits > 0)
        append(out, n, " %.3g Gbit/s", mbits / 1000);
    else
        append(out, n, " (tells no speed)");
}

static void put_infiniband(const char *root, const char *name, char *out, size_t n)
{
    char state[LINE_BYTES], rate[LINE_BYTES];
    if (!read_line(state, "%s/sys/class/infiniband/%s/ports/1/state", root, name) || !strstr(state, "ACTIVE") ||
        !read_line(rate, "%s/sys/class/infiniband/%s/ports/1/rate", root, name))
        return;
    append(out, n, "%s%s %s", out[0] ? ", " : "", name, rate);
}

void an_network_links(const char *root, char *out, size_t n)
{
    char names[MOST_NAMES][NAME_BYTES];
    out[0] = '\0';
    const int cards = list(root, "/sys/class/net", names);
    for (int i = 0; i < cards; i++) put_card(root, names[i], out, n);
    const int ports = list(root, "/sys/class/infiniband", names);
    for (int i = 0; i < ports; i++) put_infiniband(root, names[i], out, n);
}

void an_pcie_link(const char *root, const char *bus_id, char *out, size_t n)
{
    char id[32], speed[LINE_BYTES], width[LINE_BYTES];
    size_t i = 0;
    for (; bus_id[i] && i + 1 < sizeof id; i++) id[i] = (char)tolower((unsigned char)bus_id[i]);
    id[i] = '\0';
    out[0] = '\0';
    if (read_line(speed, "%s/sys/bus/pci/devices/%s/current_link_speed", root, id) &&
        read_line(width, "%s/sys/bus/pci/devices/%s/current_link_width", root, id))
        snprintf(out, n, "%s x%s", speed, width);
}
