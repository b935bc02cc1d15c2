/* map.h: open-addressing hash map from a 64-bit key to a 64-bit value, and the 64/128-bit hash used for keys.
 * The map never deletes; an_map_clear empties it and keeps its memory. Keys may be any value. */
#ifndef AN_BASE_MAP_H
#define AN_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct an_map {
    struct an_map_entry *entries;
    size_t cap, len; /* cap is 0 or a power of two */
    uint32_t epoch;  /* entries of another epoch are empty: clearing is O(1) */
} an_map;

bool an_map_get(const an_map *m, uint64_t key, uint64_t *out);
bool an_map_set(an_map *m, uint64_t key, uint64_t value); /* false: no memory; the map is unchanged */
void an_map_clear(an_map *m);
void an_map_free(an_map *m);

/* A fast 64-bit mix of `n` bytes (not cryptographic), the same on every machine. Chain with `seed`. */
uint64_t an_hash(const void *data, size_t n, uint64_t seed);
static inline uint64_t an_hash_u64(uint64_t x, uint64_t seed)
{
    x = (x ^ seed) * 0x9E3779B97F4A7C15u; /* splitmix64's finaliser */
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

#endif
