/* test_hash128.c: the hash of pieces is that of the whole, and its text that of other XXH3 programs. */
#include "lib/test.h"
#include "io/hash128.h"

static void the_hash_of_nothing_is_the_one_that_xxh128sum_prints(void **state)
{
    (void)state;
    char text[AN_HASH_TEXT_BYTES];
    an_hasher h = an_hasher_begin();
    an_hasher_end_text(&h, true, text);
    assert_string_equal(text, "99aa06d3014798d86001c324468d497f");
}

static void pieces_give_the_hash_of_the_whole_wherever_they_are_cut(void **state)
{
    (void)state;
    unsigned char data[1000];
    an_hash128 whole, pieces;
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 7 + i / 251);
    an_hasher h = an_hasher_begin();
    assert_true(an_hasher_add(&h, data, sizeof data));
    assert_true(an_hasher_end(&h, &whole));
    for (size_t cut = 0; cut <= sizeof data; cut += 37) {
        h = an_hasher_begin();
        an_hasher_add(&h, data, cut);
        an_hasher_add(&h, data + cut, sizeof data - cut);
        assert_true(an_hasher_end(&h, &pieces));
        assert_memory_equal(&pieces, &whole, sizeof whole);
    }
}

static void data_that_could_not_be_read_have_no_hash(void **state)
{
    (void)state;
    char text[AN_HASH_TEXT_BYTES] = "x";
    an_hasher h = an_hasher_begin();
    an_hasher_add(&h, "abc", 3);
    an_hasher_end_text(&h, false, text);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_hash_of_nothing_is_the_one_that_xxh128sum_prints),
        cmocka_unit_test(pieces_give_the_hash_of_the_whole_wherever_they_are_cut),
        cmocka_unit_test(data_that_could_not_be_read_have_no_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
