/* arena.h: bump allocation with one free for everything: a step's nodes, a plan's tables.
 *
 * Invariants: memory is zeroed, 16-byte aligned, and lives until an_arena_reset (which keeps the chunks, so that a warm
 * step allocates nothing) or an_arena_free. Every function returns NULL when the system has no memory; nothing
 * aborts. */
#ifndef AN_BASE_ARENA_H
#define AN_BASE_ARENA_H

#include <stddef.h>

typedef struct an_arena {
    struct an_arena_chunk *first, *current;
    size_t chunk_bytes; /* size of the next chunk; 0 means 64 KiB */
    size_t used_bytes;  /* handed out since the last reset */
} an_arena;

void *an_arena_alloc(an_arena *a, size_t bytes);
void *an_arena_copy(an_arena *a, const void *src, size_t bytes);
char *an_arena_strdup(an_arena *a, const char *s);
char *an_arena_printf(an_arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void *an_arena_array(an_arena *a, size_t item_bytes, size_t n); /* NULL also where the product overflows */
void an_arena_reset(an_arena *a);
void an_arena_free(an_arena *a);

#define AN_NEW(arena, type)          ((type *)an_arena_alloc((arena), sizeof(type)))
#define AN_NEW_ARRAY(arena, type, n) ((type *)an_arena_array((arena), sizeof(type), (size_t)(n)))

#endif
