/* test_text.c: the growing string, nearest names, byte counts. */
#include "lib/test.h"

#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

static void pieces_of_every_length_join_up(void **state)
{
    (void)state;
    an_text t = {0};
    char want[5000] = "";
    for (int i = 0; i < 300; i++) {
        an_text_printf(&t, "%0*d", i % 13 + 1, i);
        sprintf(want + strlen(want), "%0*d", i % 13 + 1, i);
        assert_int_equal(t.data[t.len], '\0');
    }
    an_text_puts(&t, "end");
    an_text_putn(&t, "inging", 3);
    strcat(want, "ending");
    assert_string_equal(t.data, want);
    assert_int_equal(t.len, strlen(want));
    an_text_clear(&t);
    assert_string_equal(t.data, "");
    an_text_free(&t);
    assert_null(t.data);
}

/* The items of a list, each between bars; "!" behind them where it is none. */
static const char *items(const char *list, char *out)
{
    an_text item = {0};
    an_list l = an_list_begin(list);
    strcpy(out, "|");
    while (an_list_next(&l, &item)) strcat(strcat(out, item.data), "|");
    if (l.bad) strcat(out, "!");
    an_text_free(&item);
    return out;
}

static void a_list_in_one_word_has_items_with_and_without_quotes(void **state)
{
    (void)state;
    static const char *const cases[][2] = {{"a", "|a|"},
                                           {"", "|"},
                                           {"[]", "|"},
                                           {" [ ] ", "|"},
                                           {"a,b", "|a|b|"},
                                           {"[a, b ,,c]", "|a|b|c|"},
                                           {"['a', \"b,c\", 'it''s']", "|a|b,c|it's|"},
                                           {"data/it's", "|data/it's|"},
                                           {"a b, c]", "|a b|c]|"},
                                           {"'',x", "|x|"},
                                           {"'a' , 'b'", "|a|b|"},
                                           {"'a", "|!"},
                                           {"x,'a'b", "|x|!"},
                                           {"[\"a\"]", "|a|"},
                                           {"\"say \"\"so\"\"\"", "|say \"so\"|"}};
    char out[256];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(items(cases[i][0], out), cases[i][1]);
}

static void an_item_of_any_characters_is_read_back(void **state)
{
    (void)state;
    static const char set[] = "ab ,'\"[]/\t";
    srand(5);
    for (int round = 0; round < 2000; round++) {
        char item[3][12], want[64] = "|", out[256];
        an_text list = {0};
        for (int k = 0; k < 3; k++) {
            const int n = 1 + rand() % 10;
            for (int i = 0; i < n; i++) item[k][i] = set[rand() % (int)(sizeof set - 1)];
            item[k][n] = 0;
            if (k) an_text_puts(&list, ",");
            an_list_put(&list, item[k]);
            strcat(strcat(want, item[k]), "|");
        }
        assert_string_equal(items(list.data, out), want);
        an_text_free(&list);
    }
}

static void a_piece_longer_than_all_room_is_appended_whole(void **state)
{
    (void)state;
    an_text t = {0};
    an_text_puts(&t, "");
    assert_string_equal(t.data, "");
    an_text_printf(&t, "%5000d|", 7);
    assert_int_equal(t.len, 5001);
    assert_string_equal(t.data + 4998, " 7|");
    an_text_free(&t);
}

static an_status build(an_err *err, void *arg)
{
    (void)arg;
    an_text t = {0};
    for (int i = 0; i < 100; i++) an_text_printf(&t, "%d %020d\n", i, i);
    bool failed = t.failed;
    if (failed && t.data) assert_true(strlen(t.data) == t.len && (t.len == 0 || t.data[t.len - 1] == '\n'));
    an_text_free(&t);
    return failed ? an_fail_nomem(err, "text", 0) : AN_OK;
}

static void a_refused_allocation_sets_failed_and_keeps_whole_pieces(void **state)
{
    (void)state;
    test_refuse_each_allocation(build, NULL);
}

static void the_nearest_name_forgives_a_slip_and_not_more(void **state)
{
    (void)state;
    static const char *const names[] = {"max_iters", "lr", "batch", "dropout", "weight_decay", "min_lr"};
    assert_string_equal(an_nearest("max_iter", names, 6), "max_iters");
    assert_string_equal(an_nearest("abtch", names, 6), "batch"); /* two letters swapped are one slip */
    assert_string_equal(an_nearest("weigth_deacy", names, 6), "weight_decay");
    assert_string_equal(an_nearest("lrr", names, 6), "lr");
    assert_string_equal(an_nearest("min_lr", names, 6), "min_lr");
    assert_null(an_nearest("qq", names, 6));
    assert_null(an_nearest("zebra", names, 6));
    assert_null(an_nearest("", names, 6));
    assert_null(an_nearest("batch", names, 0));
    char longer[200];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_null(an_nearest(longer, names, 6));
    const char *const longer_name = longer;
    assert_null(an_nearest("aaaa", &longer_name, 1));
}

static void byte_counts_read_well(void **state)
{
    (void)state;
    const struct {
        double bytes;
        const char *want;
    } cases[] = {{0, "0 B"},
                 {96, "96 B"},
                 {1023, "1023 B"},
                 {1024, "1 KiB"},
                 {12 * 1024, "12 KiB"},
                 {1.5 * 1073741824, "1.5 GiB"},
                 {384 * 1048576.0, "384 MiB"},
                 {1023.7 * 1024, "1 MiB"},
                 {99.96 * 1024, "100 KiB"},
                 {-2048, "-2 KiB"},
                 {1e24, "867362 EiB"}};
    char out[16];
    for (size_t i = 0; i < AN_COUNT(cases); i++) assert_string_equal(an_bytes_text(cases[i].bytes, out), cases[i].want);
}

static void text_from_a_file_cannot_steer_a_terminal(void **state)
{
    (void)state;
    char text[] = "a\033[2J\tb\nc\r\007\177\xC2\x9B"
                  "31m \xC2\xA3 \xC3\x9F";
    an_text_printable(text, sizeof text - 1);
    assert_string_equal(text, "a?[2J\tb\nc?????31m \xC2\xA3 \xC3\x9F");
    char turned[] = "a\xE2\x80\xAE"
                    "b\xE2\x81\xA9 \xE2\x80\x99 \xE2\x80\x8F\xE2\x80"; /* an apostrophe and a mark, which stay */
    an_text_printable(turned, sizeof turned - 1);
    assert_string_equal(turned, "a???b??? \xE2\x80\x99 \xE2\x80\x8F\xE2\x80");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_of_every_length_join_up),
        cmocka_unit_test(a_list_in_one_word_has_items_with_and_without_quotes),
        cmocka_unit_test(an_item_of_any_characters_is_read_back),
        cmocka_unit_test(a_piece_longer_than_all_room_is_appended_whole),
        cmocka_unit_test(a_refused_allocation_sets_failed_and_keeps_whole_pieces),
        cmocka_unit_test(the_nearest_name_forgives_a_slip_and_not_more),
        cmocka_unit_test(byte_counts_read_well),
        cmocka_unit_test(text_from_a_file_cannot_steer_a_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
