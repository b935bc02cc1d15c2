/* test_arena.c: zeroed, aligned, kept over a reset, never overlapping. */
#include "lib/test.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

static bool all_zero(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != 0) return false;
    return true;
}

static void blocks_are_zeroed_aligned_and_apart_before_and_after_a_reset(void **state)
{
    (void)state;
    an_arena a = {.chunk_bytes = 1000};
    unsigned char *p[200];
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < AN_COUNT(p); i++) {
            size_t bytes = i * 7 % 150;
            p[i] = an_arena_alloc(&a, bytes);
            assert_non_null(p[i]);
            assert_int_equal((uintptr_t)p[i] % 16, 0);
            assert_true(all_zero(p[i], bytes));
            memset(p[i], (int)i + 1, bytes);
        }
        for (size_t i = 0; i < AN_COUNT(p); i++)
            for (size_t j = 0; j < i * 7 % 150; j++) assert_int_equal(p[i][j], (unsigned char)(i + 1));
        an_arena_reset(&a);
        assert_int_equal(a.used_bytes, 0);
    }
    an_arena_free(&a);
}

static void the_same_requests_after_a_reset_allocate_nothing(void **state)
{
    (void)state;
    an_arena a = {.chunk_bytes = 512};
    for (int round = 0; round < 3; round++) {
        test_refuse_allocation(0);
        for (size_t i = 0; i < 100; i++) assert_non_null(an_arena_alloc(&a, i * 37 % 900));
        if (round > 0) assert_int_equal(test_allocations(), 0);
        an_arena_reset(&a);
    }
    an_arena_free(&a);
}

static void a_block_larger_than_a_chunk_gets_its_own(void **state)
{
    (void)state;
    an_arena a = {0};
    char *small = an_arena_alloc(&a, 8), *big = an_arena_alloc(&a, 1 << 20);
    assert_non_null(small);
    assert_non_null(big);
    big[(1 << 20) - 1] = 1;
    assert_int_equal(a.used_bytes, 16 + (1 << 20));
    an_arena_free(&a);
    assert_null(a.first);
}

static void impossible_sizes_give_null(void **state)
{
    (void)state;
    an_arena a = {0};
    assert_null(an_arena_alloc(&a, SIZE_MAX));
    assert_null(an_arena_alloc(&a, SIZE_MAX / 2 + 1));
    assert_null(AN_NEW_ARRAY(&a, uint64_t, SIZE_MAX / 8 + 2));
    assert_null(AN_NEW_ARRAY(&a, uint64_t, -1));
    assert_non_null(AN_NEW_ARRAY(&a, uint64_t, 0));
    an_arena_free(&a);
}

static void copies_and_formatted_text_are_the_arenas_own(void **state)
{
    (void)state;
    an_arena a = {0};
    char text[] = "abc";
    char *s = an_arena_strdup(&a, text), *c = an_arena_copy(&a, text, 2), *f = an_arena_printf(&a, "%s-%05d", text, 42);
    text[0] = 'x';
    assert_string_equal(s, "abc");
    assert_memory_equal(c, "ab", 2);
    assert_string_equal(f, "abc-00042");
    assert_non_null(an_arena_copy(&a, NULL, 0));
    an_arena_free(&a);
}

static an_status build(an_err *err, void *arg)
{
    (void)arg;
    an_arena a = {.chunk_bytes = 64};
    an_status status = AN_OK;
    for (int i = 0; i < 5 && status == AN_OK; i++)
        if (an_arena_printf(&a, "%060d", i) == NULL || an_arena_alloc(&a, 100) == NULL)
            status = an_fail_nomem(err, "test", 100);
    an_arena_free(&a);
    return status;
}

static void a_refused_chunk_is_null_and_leaves_the_arena_usable(void **state)
{
    (void)state;
    test_refuse_each_allocation(build, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_zeroed_aligned_and_apart_before_and_after_a_reset),
        cmocka_unit_test(the_same_requests_after_a_reset_allocate_nothing),
        cmocka_unit_test(a_block_larger_than_a_chunk_gets_its_own),
        cmocka_unit_test(impossible_sizes_give_null),
        cmocka_unit_test(copies_and_formatted_text_are_the_arenas_own),
        cmocka_unit_test(a_refused_chunk_is_null_and_leaves_the_arena_usable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
