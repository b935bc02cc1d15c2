/* test_map.c: the map against an array of answers, and the hash against its specification's vectors. */
#include "lib/test.h"

#include "base/map.h"

#include <stdlib.h>
#include <string.h>

static void what_was_set_last_is_found_and_nothing_else(void **state)
{
    (void)state;
    enum { N = 5000 };
    an_map m = {0};
    static uint64_t want[N];
    memset(want, 0, sizeof want);
    uint64_t got;
    assert_false(an_map_get(&m, 0, &got));
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t slot = an_hash_u64(i, 1) % N, key = slot == 0 ? 0 : slot == 1 ? UINT64_MAX : slot << 40;
        assert_true(an_map_set(&m, key, i + 1));
        want[slot] = i + 1;
    }
    size_t in_use = 0;
    for (uint64_t slot = 0; slot < N; slot++) {
        uint64_t key = slot == 0 ? 0 : slot == 1 ? UINT64_MAX : slot << 40;
        assert_int_equal(an_map_get(&m, key, &got), want[slot] != 0);
        if (want[slot]) assert_int_equal(got, want[slot]);
        in_use += want[slot] != 0;
        assert_false(an_map_get(&m, key + 1 + (slot == 1), &got) && slot > 1);
    }
    assert_int_equal(m.len, in_use);
    an_map_free(&m);
}

static void clearing_empties_the_map_and_keeps_its_memory_even_as_the_epoch_wraps(void **state)
{
    (void)state;
    an_map m = {0};
    uint64_t got;
    for (uint64_t i = 0; i < 100; i++) assert_true(an_map_set(&m, i, i));
    size_t cap = m.cap;
    for (int round = 0; round < 4; round++) {
        an_map_clear(&m);
        assert_int_equal(m.len, 0);
        assert_int_equal(m.cap, cap);
        for (uint64_t i = 0; i < 100; i++) assert_false(an_map_get(&m, i, &got));
        if (round == 1) m.epoch = UINT32_MAX - 1; /* as after four billion clears: the table holds older marks */
        for (uint64_t i = 0; i < 50; i++) assert_true(an_map_set(&m, i, i + 7));
        for (uint64_t i = 0; i < 50; i++) assert_true(an_map_get(&m, i, &got) && got == i + 7);
    }
    an_map_free(&m);
}

static an_status fill(an_err *err, void *arg)
{
    (void)arg;
    an_map m = {0};
    an_status status = AN_OK;
    for (uint64_t i = 0; i < 60 && status == AN_OK; i++) {
        size_t before = m.len;
        if (an_map_set(&m, i, i)) continue;
        uint64_t got;
        assert_int_equal(m.len, before);
        for (uint64_t j = 0; j < i; j++) assert_true(an_map_get(&m, j, &got) && got == j);
        if (before > 0) assert_true(an_map_set(&m, 0, 0)); /* a known key needs no memory */
        status = an_fail_nomem(err, "map", 0);
    }
    an_map_free(&m);
    return status;
}

static void a_refused_allocation_leaves_the_map_unchanged(void **state)
{
    (void)state;
    test_refuse_each_allocation(fill, NULL);
}

/* XXH64's sanity checks: a buffer of the xxHash project's generator, lengths 0, 1, 4, 14 and 222. */
static void the_hash_is_xxh64(void **state)
{
    (void)state;
    unsigned char data[222];
    uint64_t g = 2654435761u;
    for (size_t i = 0; i < sizeof data; i++, g *= 11400714785074694797u) data[i] = (unsigned char)(g >> 56);
    assert_true(an_hash(NULL, 0, 0) == 0xEF46DB3751D8E999u);
    assert_true(an_hash(data, 1, 0) == 0xE934A84ADB052768u);
    assert_true(an_hash(data, 4, 0) == 0x9136A0DCA57457EEu);
    assert_true(an_hash(data, 14, 0) == 0x8282DCC4994E35C8u);
    assert_true(an_hash(data, 222, 0) == 0xB641AE8CB691C174u);
    assert_true(an_hash(data, 222, 2654435761u) == 0x20CB8AB7AE10C14Au);
    assert_true(an_hash("xxhash", 6, 0) == 0x32dd38952c4bc720u);
}

static void every_byte_and_the_seed_change_the_hash(void **state)
{
    (void)state;
    unsigned char data[100] = {0};
    for (size_t n = 1; n <= sizeof data; n++) {
        uint64_t h = an_hash(data, n, 5);
        assert_true(h != an_hash(data, n - 1, 5) && h != an_hash(data, n, 6));
        for (size_t i = 0; i < n; i++) {
            data[i] = 1;
            assert_true(an_hash(data, n, 5) != h);
            data[i] = 0;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_set_last_is_found_and_nothing_else),
        cmocka_unit_test(clearing_empties_the_map_and_keeps_its_memory_even_as_the_epoch_wraps),
        cmocka_unit_test(a_refused_allocation_leaves_the_map_unchanged),
        cmocka_unit_test(the_hash_is_xxh64),
        cmocka_unit_test(every_byte_and_the_seed_change_the_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
