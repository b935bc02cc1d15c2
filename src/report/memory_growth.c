/* memory_growth.c: see memory_growth.h. */
#include "report/memory_growth.h"
#include "io/text/utf8.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OWNERS = 3, MOST_SCOPES = 1024 };

/* An owner is named where it has at least this share of the growth. */
#define OWNER_SHARE 0.1

const char *an_memory_kind_name(an_memory_kind kind)
{
    static const char *const names[AN_MEMORY_KINDS] = {[AN_MEMORY_LIVE] = "live bytes of the device",
                                                       [AN_MEMORY_RESERVED] = "bytes requested from the device",
                                                       [AN_MEMORY_RESIDENT] = "resident bytes of the process"};
    return names[kind];
}

static double median_between(const an_run_record *r, an_run_column column, size_t n, bool late)
{
    return late ? an_run_median(r, column, 9 * n / 10, n) : an_run_median(r, column, n / 10, AN_MAX(n / 5, n / 10 + 1));
}

static double held(const an_run_record *r, size_t n, an_memory_kind kind, bool late)
{
    static const an_run_column columns[AN_MEMORY_KINDS] = {[AN_MEMORY_LIVE] = AN_RUN_LIVE_BYTES,
                                                           [AN_MEMORY_RESERVED] = AN_RUN_RESERVED_BYTES,
                                                           [AN_MEMORY_RESIDENT] = AN_RUN_RSS_BYTES};
    const double all = median_between(r, columns[kind], n, late);
    if (kind != AN_MEMORY_RESIDENT) return all;
    /* Both medians, or neither: a run may have been continued by a program that did not write one of them. */
    const double early = median_between(r, AN_RUN_MAPPED_BYTES, n, false),
                 at_end = median_between(r, AN_RUN_MAPPED_BYTES, n, true);
    return isfinite(early) && isfinite(at_end) ? all - (late ? at_end : early) : all;
}

bool an_memory_grew(an_memory_kind kind, double early, double late)
{
    const double least = (kind == AN_MEMORY_RESIDENT ? 16 : 1) * 1048576.0;
    return late > 1.01 * early && late - early > least;
}

void an_memory_growth_of(const an_run_record *r, size_t n, an_memory_kind kind, double *early, double *late)
{
    n = AN_MIN(n, r->n);
    *early = held(r, n, kind, false);
    *late = held(r, n, kind, true);
}

/* ---- scopes of the device's memory */

typedef struct owner {
    const char *kind, *scope;
    double early, late;
} owner;

static const char *text_at(const json_t *entry, size_t i)
{
    const char *text = json_string_value(json_array_get(entry, i));
    return text ? text : "";
}

static double bytes_of(const json_t *scopes, const char *kind, const char *scope)
{
    size_t i;
    json_t *entry;
    json_array_foreach(scopes, i, entry)
    {
        if (i >= MOST_SCOPES) break;
        if (strcmp(text_at(entry, 0), kind) == 0 && strcmp(text_at(entry, 1), scope) == 0)
            return json_number_value(json_array_get(entry, 2));
    }
    return 0;
}

static size_t find_owners(const an_run_record *r, double least, owner top[OWNERS])
{
    const json_t *before = json_object_get(r->memory[0], "scopes"), *after = json_object_get(r->memory[1], "scopes");
    size_t i, n = 0;
    json_t *entry;
    json_array_foreach(after, i, entry)
    {
        if (i >= MOST_SCOPES) break;
        owner o = {
            .kind = text_at(entry, 0), .scope = text_at(entry, 1), .late = json_number_value(json_array_get(entry, 2))};
        o.early = bytes_of(before, o.kind, o.scope);
        if (!(o.late - o.early >= least) || !(o.late - o.early > 0)) continue;
        for (size_t k = 0; k < OWNERS; k++)
            if (k >= n || o.late - o.early > top[k].late - top[k].early) {
                const owner lower = top[k];
                top[k] = o;
                if (k >= n) break;
                o = lower;
            }
        n = AN_MIN(n + 1, (size_t)OWNERS);
    }
    return n;
}

/* The kind if it is one that anneal writes, else "bytes": texts of a stranger's file are not repeated. */
static const char *kind_of(const char *kind)
{
    static const char *const kinds[] = {"parameters", "moments", "states", "step",
                                        "scratch",    "inputs",  "gaps",   "others"};
    for (size_t i = 0; i < AN_COUNT(kinds); i++)
        if (strcmp(kind, kinds[i]) == 0) return kinds[i];
    return "bytes";
}

/* A scope's name from a stranger's file: cut to 48 bytes, control characters and bytes that are not UTF-8 replaced. */
static const char *name_of(const char *scope, char out[64])
{
    uint32_t c;
    snprintf(out, 64, "%.48s", scope);
    for (size_t n = strlen(out), at = 0; at < n;) {
        const int len = an_utf8_next(out + at, n - at, &c);
        if (len == 0 || c < 32 || (c >= 127 && c < 160)) out[at] = '?';
        if (out[at] == '?')
            at++;
        else
            at += (size_t)len;
    }
    return out;
}

static void put_scopes(const an_run_record *r, double growth_bytes, char out[AN_MEMORY_OWNER_BYTES])
{
    owner top[OWNERS] = {{0}};
    char from[16], to[16], name[64];
    const size_t n = find_owners(r, OWNER_SHARE * growth_bytes, top);
    int used = 0;
    for (size_t i = 0; i < n; i++) {
        const owner *o = &top[i];
        used += snprintf(out + used, AN_MEMORY_OWNER_BYTES - (size_t)used, "%s%s%s%s: %s, then %s", i ? "; " : "",
                         kind_of(o->kind), *o->scope ? " of scope " : "", name_of(o->scope, name),
                         an_bytes_text(o->early, from), an_bytes_text(o->late, to));
    }
    if (n) return;
    snprintf(out, AN_MEMORY_OWNER_BYTES, "%s",
             r->memory[1] ? "no scope of the model grew with it: plans that are kept, or their buffers"
                          : "the logbook has no line \"memory\" after the growth that would name its scope");
}

/* ---- the process */

static bool put_process(const an_run_record *r, double growth_bytes, char out[AN_MEMORY_OWNER_BYTES])
{
    char from[16], to[16];
    const double early = median_between(r, AN_RUN_HEAP_BYTES, r->n, false),
                 late = median_between(r, AN_RUN_HEAP_BYTES, r->n, true);
    const bool heap = late - early > 0.5 * growth_bytes;
    if (!isfinite(late - early))
        snprintf(out, AN_MEMORY_OWNER_BYTES, "the run does not say how much of it the heap is");
    else if (heap)
        snprintf(out, AN_MEMORY_OWNER_BYTES,
                 "the C library's heap: %s, then %s, allocated by the program or a library and not by the model",
                 an_bytes_text(early, from), an_bytes_text(late, to));
    else
        snprintf(out, AN_MEMORY_OWNER_BYTES,
                 "neither the heap (%s, then %s) nor mapped files: stacks, gaps between allocations, or a driver",
                 an_bytes_text(early, from), an_bytes_text(late, to));
    return heap;
}

bool an_memory_growth_owner(const an_run_record *r, an_memory_kind kind, double growth_bytes,
                            char out[AN_MEMORY_OWNER_BYTES])
{
    *out = 0;
    if (kind == AN_MEMORY_RESIDENT) return put_process(r, growth_bytes, out);
    put_scopes(r, growth_bytes, out);
    return false;
}
