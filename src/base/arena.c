/* arena.c: the bump allocator.
 *
 * Owns:      a list of chunks. Chunks before `current` are full or were too small for a request, `current` is being
 *            filled, those after it are empty.
 * Invariant: the same sequence of requests after a reset gets the same addresses and allocates no chunk.
 *
 * Under AddressSanitizer the free part of every chunk is poisoned: a use after reset, or past the end of an odd-sized
 * block, is reported like one of malloc's. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#endif
#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, n)   ASAN_POISON_MEMORY_REGION(p, n)
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define POISON(p, n)   ((void)0)
#define UNPOISON(p, n) ((void)0)
#endif

enum { ALIGN = 16, DEFAULT_CHUNK = 64 * 1024 };

typedef struct an_arena_chunk {
    struct an_arena_chunk *next;
    size_t cap, used;
    _Alignas(ALIGN) unsigned char data[];
} an_arena_chunk;

/* Puts a chunk of at least `bytes` behind `current` and makes it current. */
static an_arena_chunk *add_chunk(an_arena *a, size_t bytes)
{
    size_t cap = a->chunk_bytes ? a->chunk_bytes : DEFAULT_CHUNK;
    if (cap < bytes) cap = bytes;
    if (cap > SIZE_MAX - sizeof(an_arena_chunk)) return NULL;
    an_arena_chunk *c = malloc(sizeof *c + cap);
    if (c == NULL) return NULL;
    c->cap = cap;
    c->used = 0;
    an_arena_chunk **link = a->current ? &a->current->next : &a->first;
    c->next = *link;
    *link = c;
    a->current = c;
    POISON(c->data, c->cap);
    return c;
}

/* Memory as it is. */
static void *take(an_arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) return NULL;
    size_t size = bytes ? (bytes + ALIGN - 1) / ALIGN * ALIGN : ALIGN;
    an_arena_chunk *c = a->current;
    while (c != NULL && c->cap - c->used < size) c = c->next;
    if (c != NULL)
        a->current = c;
    else if ((c = add_chunk(a, size)) == NULL)
        return NULL;
    void *p = c->data + c->used;
    c->used += size;
    a->used_bytes += size;
    UNPOISON(p, bytes);
    return p;
}

void *an_arena_alloc(an_arena *a, size_t bytes)
{
    void *p = take(a, bytes);
    return p ? memset(p, 0, bytes) : NULL;
}

void *an_arena_array(an_arena *a, size_t item_bytes, size_t n)
{
    if (item_bytes != 0 && n > SIZE_MAX / item_bytes) return NULL;
    return an_arena_alloc(a, item_bytes * n);
}

void *an_arena_copy(an_arena *a, const void *src, size_t bytes)
{
    void *p = take(a, bytes);
    if (p != NULL && bytes != 0) memcpy(p, src, bytes);
    return p;
}

char *an_arena_strdup(an_arena *a, const char *s)
{
    return an_arena_copy(a, s, strlen(s) + 1);
}

char *an_arena_printf(an_arena *a, const char *fmt, ...)
{
    va_list args, args_copy;
    va_start(args, fmt);
    va_copy(args_copy, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *s = n < 0 ? NULL : an_arena_alloc(a, (size_t)n + 1);
    if (s != NULL) vsnprintf(s, (size_t)n + 1, fmt, args_copy);
    va_end(args_copy);
    return s;
}

void an_arena_reset(an_arena *a)
{
    for (an_arena_chunk *c = a->first; c != NULL; c = c->next) {
        c->used = 0;
        POISON(c->data, c->cap);
    }
    a->current = a->first;
    a->used_bytes = 0;
}

void an_arena_free(an_arena *a)
{
    for (an_arena_chunk *c = a->first, *next; c != NULL; c = next) {
        next = c->next;
        UNPOISON(c->data, c->cap);
        free(c);
    }
    a->first = a->current = NULL;
    a->used_bytes = 0;
}
