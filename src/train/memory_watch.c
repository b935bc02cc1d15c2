/* memory_watch.c: see memory_watch.h. */
#include "train/memory_watch.h"
#include "io/formats/json.h"
#include "platform/platform.h"
#include "report/metrics.h"
#include <anneal_tools.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROWTH_BYTES = 1 << 20, MOST_LINES = 20 }; /* the last line is 2^18 MiB above the one before */

typedef struct scope {
    const char *kind;
    char name[128];
    uint64_t bytes;
} scope;

typedef struct scopes {
    scope *at; /* AN_MEMORY_SCOPES */
    size_t n;
    uint64_t others;
} scopes;

/* "h.0.attn.weight" without "optimizer.m." or "ema." in front and without the last part. */
static void scope_name(const char *kind, const char *name, char out[128])
{
    static const char *const prefixes[] = {"optimizer.m.", "optimizer.v.", "ema."};
    for (size_t i = 0; strcmp(kind, "moments") == 0 && i < AN_COUNT(prefixes); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) name += strlen(prefixes[i]);
    const char *dot = strcmp(kind, "step") == 0 || strcmp(kind, "scratch") == 0 ? NULL : strrchr(name, '.');
    snprintf(out, 128, "%.*s", dot ? (int)AN_MIN((size_t)(dot - name), (size_t)127) : 127, name);
    an_text_printable(out, strlen(out));
    if (an_json_check_text(NULL, "", out) != AN_OK) snprintf(out, 128, "?"); /* the cut left half a UTF-8 character */
}

/* Adds the bytes to the scope's entry, or makes one (an_memory_scope_fn). */
static void add(void *user, const char *kind, const char *name, uint64_t bytes)
{
    scopes *s = user;
    scope now = {.kind = kind, .bytes = bytes};
    scope_name(kind, name, now.name);
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->at[i].kind, kind) == 0 && strcmp(s->at[i].name, now.name) == 0) {
            s->at[i].bytes += bytes;
            return;
        }
    if (s->n < AN_MEMORY_SCOPES)
        s->at[s->n++] = now;
    else
        s->others += bytes;
}

static int larger_first(const void *a, const void *b)
{
    const scope *x = a, *y = b;
    const int by_kind = strcmp(x->kind, y->kind);
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return by_kind ? by_kind : strcmp(x->name, y->name);
}

an_status an_memory_scopes_put(an_err *err, an_ctx *cx, an_text *out)
{
    scopes s = {.at = calloc(AN_MEMORY_SCOPES, sizeof *s.at)};
    if (!s.at) return an_fail_nomem(err, "the scopes of a run's memory", AN_MEMORY_SCOPES * sizeof *s.at);
    an_memory_scopes(cx, add, &s);
    qsort(s.at, s.n, sizeof *s.at, larger_first);
    an_text_puts(out, ",\"scopes\":[");
    for (size_t i = 0; i < s.n; i++) {
        an_text_printf(out, "%s[\"%s\",", i ? "," : "", s.at[i].kind);
        an_json_put(out, s.at[i].name);
        an_text_printf(out, ",%llu]", (unsigned long long)s.at[i].bytes);
    }
    if (s.others) an_text_printf(out, ",[\"others\",\"\",%llu]", (unsigned long long)s.others);
    an_text_puts(out, "]");
    free(s.at);
    return AN_OK;
}

static an_status write_line(an_err *err, const an_session *r, uint64_t live)
{
    an_text members = {0};
    uint64_t heap, mapped;
    an_rss_parts(&heap, &mapped);
    an_text_printf(&members, ",\"live_bytes\":%llu,\"heap_bytes\":%llu,\"mapped_bytes\":%llu", (unsigned long long)live,
                   (unsigned long long)heap, (unsigned long long)mapped);
    an_status status = an_memory_scopes_put(err, r->cx, &members);
    if (status == AN_OK) status = an_logbook_add(err, r->cfg.out, r->step, "memory", &members);
    an_text_free(&members);
    return status;
}

an_status an_memory_watch_look(an_err *err, an_memory_watch *w, const an_session *r, int64_t begin_step)
{
    an_memory now;
    if (w->lines >= MOST_LINES || 10 * (r->step - begin_step) < r->cfg.max_iters - begin_step) return AN_OK;
    if (an_memory_read(r->cx, &now) != AN_OK || now.live_bytes == 0) return AN_OK;
    const uint64_t step = w->lines ? (uint64_t)GROWTH_BYTES << (w->lines - 1) : 0;
    if (w->lines && now.live_bytes < w->told_bytes + step) return AN_OK;
    w->told_bytes = now.live_bytes;
    w->lines++;
    return write_line(err, r, now.live_bytes);
}
