/* test_surroundings.c: what a logbook says of the things around a run: programs of a list that ps printed, and valid JSON whatever
 * they are called. */
#define _DEFAULT_SOURCE
#include "lib/test.h"
#include "io/data/disk_speed.h"
#include "io/formats/json.h"
#include "report/surroundings.h"
#include <string.h>

static json_t *parse(an_text *members)
{
    an_text all = {0};
    json_t *out;
    assert_false(members->failed);
    an_text_printf(&all, "{\"x\":1%s}", members->data);
    assert_int_equal(an_json_parse(NULL, "members", 0, all.data, all.len, &out), AN_OK);
    an_text_free(&all);
    an_text_free(members);
    return out;
}

static json_t *busiest(const char *ps)
{
    an_text list = {0}, member = {0};
    an_surroundings_busiest(ps, "anneal", &list);
    an_text_printf(&member, ",\"busiest\":%s", list.data);
    an_text_free(&list);
    json_t *all = parse(&member), *out = json_incref(json_object_get(all, "busiest"));
    json_decref(all);
    return out;
}

static void the_three_busiest_programs_are_named_without_this_one(void **state)
{
    (void)state;
    json_t *l = busiest(
        " 0.0 init\n99.5 anneal\n 3.5 /usr/lib/chromium/chromium\n 7.0 Google Chrome He\n80.2 cc1\n 1.0 sh\n 50 ps\n");
    assert_int_equal(json_array_size(l), 3);
    assert_string_equal(json_string_value(json_array_get(json_array_get(l, 0), 0)), "cc1");
    assert_string_equal(json_string_value(json_array_get(json_array_get(l, 1), 0)), "Google Chrome He");
    assert_string_equal(json_string_value(json_array_get(json_array_get(l, 2), 0)), "chromium");
    assert_true(json_number_value(json_array_get(json_array_get(l, 0), 1)) == 80.2);
    json_decref(l);
}

static void names_of_strangers_are_text(void **state)
{
    (void)state;
    static const char *const lists[] = {"",
                                        "\n\n",
                                        "abc",
                                        "nan x\ninf y\n-5 z",
                                        "5",
                                        "5 \n6   ",
                                        "1e999 a\n3 \xff\xfe\"\\\x1b[2J\n4 a/b/",
                                        "2 \"quoted\"\n"};
    for (size_t i = 0; i < AN_COUNT(lists); i++) {
        json_t *l = busiest(lists[i]);
        assert_true(json_array_size(l) <= 2);
        json_decref(l);
    }
}

static void promised_programs_are_found_by_their_whole_name(void **state)
{
    (void)state;
    static const char ps[] = " 1.0 /opt/google/chrome\n 0.0 slackd\n 2.0 Slack\n 0.0 my editor\n";
    static const struct {
        const char *names, *found;
    } of[] = {{"Chrome,Slack", "[\"Chrome\",\"Slack\"]"},
              {"slac", "[]"},
              {"", "[]"},
              {",,editor,", "[\"editor\"]"},
              {"\xff,slackd", "[\"slackd\"]"}};
    for (size_t i = 0; i < AN_COUNT(of); i++) {
        an_text t = {0};
        an_surroundings_running(ps, of[i].names, &t);
        assert_string_equal(t.data, of[i].found);
        an_text_free(&t);
    }
}

static void the_line_is_json_for_any_folder(void **state)
{
    (void)state;
    static const char *const folders[] = {"", "/", "/no/such/folder", "\xff\"\n", "."};
    for (size_t i = 0; i < AN_COUNT(folders); i++) {
        an_text t = {0};
        an_surroundings_put(folders[i], NULL, &t);
        an_surroundings_put_policy(AN_BF16, AN_F32, AN_BF16, &t);
        json_t *all = parse(&t);
        assert_true(json_is_string(json_object_get(all, "mount")));
        assert_true(json_is_object(json_object_get(all, "cache")));
        assert_string_equal(json_string_value(json_object_get(json_object_get(all, "dtype_policy"), "matrix_weights")),
                            "bfloat16");
        assert_string_equal(json_string_value(json_object_get(json_object_get(all, "dtype_policy"), "master_weights")),
                            "float32");
        json_decref(all);
    }
}

/* A disk that was measured for a warning is not measured again for the line. */
static void a_measured_disk_is_taken_as_it_is(void **state)
{
    (void)state;
    const an_storage disk = {.mount = {.type = "nfs4"}, .mb_s = 12.5};
    an_text t = {0};
    an_surroundings_put(".", &disk, &t);
    json_t *all = parse(&t);
    assert_string_equal(json_string_value(json_object_get(all, "mount")), "nfs4");
    assert_true(json_number_value(json_object_get(all, "data_mb_s")) == 12.5);
    const json_t *cache = json_object_get(all, "cache");
    if (*json_string_value(json_object_get(cache, "folder"))) {
        assert_true(json_number_value(json_object_get(cache, "ms_64_kib")) > 0);
        if (json_number_value(json_object_get(cache, "ms_64_kib")) < 50)
            assert_true(json_number_value(json_object_get(cache, "write_mb_s")) > 0 &&
                        json_number_value(json_object_get(cache, "mb_s")) > 0);
    }
    json_decref(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_three_busiest_programs_are_named_without_this_one),
        cmocka_unit_test(names_of_strangers_are_text),
        cmocka_unit_test(promised_programs_are_found_by_their_whole_name),
        cmocka_unit_test(the_line_is_json_for_any_folder),
        cmocka_unit_test(a_measured_disk_is_taken_as_it_is),
    };
    return cmocka_run_group_tests_name("surroundings", tests, NULL, NULL);
}
