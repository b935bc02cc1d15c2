/* map.c: the open-addressing map and the hash.
 *
 * Owns:      linear probing at a load of at most 3/4.
 * Invariant: an entry is in use when its mark is the map's epoch + 1, so that zeroed memory is empty and clearing is
 *            one increment. */
#include "base/map.h"

#include <stdlib.h>
#include <string.h>

typedef struct an_map_entry {
    uint64_t key, value;
    uint32_t mark;
} an_map_entry;

/* The entry of `key`, or the empty one where it belongs. There is always an empty one: the load is below 1. */
static an_map_entry *find_entry(an_map_entry *entries, size_t cap, uint32_t mark, uint64_t key)
{
    size_t i = (size_t)an_hash_u64(key, 0) & (cap - 1);
    while (entries[i].mark == mark && entries[i].key != key) i = (i + 1) & (cap - 1);
    return &entries[i];
}

bool an_map_get(const an_map *m, uint64_t key, uint64_t *out)
{
    if (m->len == 0) return false;
    const an_map_entry *e = find_entry(m->entries, m->cap, m->epoch + 1, key);
    if (e->mark != m->epoch + 1) return false;
    *out = e->value;
    return true;
}

static bool grow(an_map *m)
{
    size_t cap = m->cap ? m->cap * 2 : 16;
    an_map_entry *entries = cap > m->cap ? calloc(cap, sizeof *entries) : NULL;
    if (entries == NULL) return false;
    for (size_t i = 0; i < m->cap; i++)
        if (m->entries[i].mark == m->epoch + 1)
            *find_entry(entries, cap, m->epoch + 1, m->entries[i].key) = m->entries[i];
    free(m->entries);
    m->entries = entries;
    m->cap = cap;
    return true;
}

bool an_map_set(an_map *m, uint64_t key, uint64_t value)
{
    uint32_t mark = m->epoch + 1;
    an_map_entry *e = m->cap ? find_entry(m->entries, m->cap, mark, key) : NULL;
    if (e == NULL || e->mark != mark) {
        if (m->len + 1 > m->cap / 4 * 3) {
            if (!grow(m)) return false;
            e = find_entry(m->entries, m->cap, mark, key);
        }
        m->len++;
    }
    *e = (an_map_entry){key, value, mark};
    return true;
}

void an_map_clear(an_map *m)
{
    m->len = 0;
    if (m->epoch < UINT32_MAX - 1) {
        m->epoch++;
        return;
    }
    /* The epoch is about to wrap around after 2^32 clears: old marks would count as new. */
    if (m->cap) memset(m->entries, 0, m->cap * sizeof *m->entries);
    m->epoch = 0;
}

void an_map_free(an_map *m)
{
    free(m->entries);
    *m = (an_map){0};
}

/* XXH64 (Yann Collet, https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md), written from its specification:
 * four independent multiply-rotate lanes over 32-byte stripes, about 10 bytes a nanosecond. */
#define P1 0x9E3779B185EBCA87u
#define P2 0xC2B2AE3D27D4EB4Fu
#define P3 0x165667B19E3779F9u
#define P4 0x85EBCA77C2B2AE63u
#define P5 0x27D4EB2F165667C5u

static uint64_t rotate(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}
static uint64_t mix_lane(uint64_t lane, uint64_t word)
{
    return rotate(lane + word * P2, 31) * P1;
}

static uint64_t load32(const unsigned char *p)
{
    return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24;
}
static uint64_t load64(const unsigned char *p)
{
    return load32(p) | load32(p + 4) << 32;
}

uint64_t an_hash(const void *data, size_t n, uint64_t seed)
{
    const unsigned char *p = data;
    size_t left = n;
    uint64_t h = seed + P5;
    if (left >= 32) {
        uint64_t a = seed + P1 + P2, b = seed + P2, c = seed, d = seed - P1;
        for (; left >= 32; p += 32, left -= 32) {
            a = mix_lane(a, load64(p));
            b = mix_lane(b, load64(p + 8));
            c = mix_lane(c, load64(p + 16));
            d = mix_lane(d, load64(p + 24));
        }
        h = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
        h = (h ^ mix_lane(0, a)) * P1 + P4;
        h = (h ^ mix_lane(0, b)) * P1 + P4;
        h = (h ^ mix_lane(0, c)) * P1 + P4;
        h = (h ^ mix_lane(0, d)) * P1 + P4;
    }
    h += n;
    for (; left >= 8; p += 8, left -= 8) h = rotate(h ^ mix_lane(0, load64(p)), 27) * P1 + P4;
    if (left >= 4) {
        h = rotate(h ^ load32(p) * P1, 23) * P2 + P3;
        p += 4;
        left -= 4;
    }
    for (; left > 0; p++, left--) h = rotate(h ^ *p * P5, 11) * P1;
    h = (h ^ (h >> 33)) * P2;
    h = (h ^ (h >> 29)) * P3;
    return h ^ (h >> 32);
}
