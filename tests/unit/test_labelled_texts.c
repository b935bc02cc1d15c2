/* test_labelled_texts.c: texts and their classes: columns, groups, folds; words; and the built-in texts, which a naive Bayes
 * classifier learns from other templates than it is asked about. */
#include "lib/test.h"
#include "io/data/labelled_texts.h"
#include "io/text/words.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static an_labelled_texts *open_text(const char *text, int64_t folds, int64_t fold, const an_class_names *known,
                                    bool whole, an_err *err)
{
    const char *path = test_path("x.csv");
    an_labelled_texts *t;
    test_write_file(path, text, strlen(text));
    an_labelled_texts_open(err, &(an_labelled_texts_options){path, folds, fold, whole, known}, &t);
    return t;
}

static void columns_are_found_by_name_and_classes_are_sorted(void **state)
{
    (void)state;
    an_err err = {0};
    size_t n;
    int32_t label;
    an_labelled_texts *t =
        open_text("id,Label,TEXT\n1,zoo,\"a lion\"\n2,air,a plane\n3,zoo,a bear\n", 2, 1, NULL, false, &err);
    assert_non_null(t);
    assert_int_equal(an_labelled_texts_classes(t)->n, 2);
    assert_string_equal(an_labelled_texts_classes(t)->name[0], "air");
    assert_int_equal(an_labelled_texts_count(t, AN_TRAIN), 2);
    assert_int_equal(an_labelled_texts_count(t, AN_VAL), 1); /* the second of class zoo */
    const char *text = an_labelled_text(t, AN_VAL, 0, &n, &label);
    assert_int_equal(n, strlen("a bear"));
    assert_memory_equal(text, "a bear", n);
    assert_int_equal(label, 1);
    an_labelled_texts_close(t);
    t = open_text("a lion,zoo\na plane,air\n", 2, 1, NULL, true, &err);
    assert_non_null(t);
    assert_int_equal(an_labelled_texts_count(t, AN_VAL), 2);
    an_labelled_texts_close(t);
}

static void a_group_and_equal_texts_stay_on_one_side(void **state)
{
    (void)state;
    an_err err = {0};
    for (int64_t fold = 0; fold < 3; fold++) {
        an_labelled_texts *t =
            open_text("text,label\nsame,x\nother,x\nsame,x\nthird,x\nsame,x\n", 3, fold, NULL, false, &err);
        assert_non_null(t);
        assert_int_equal(an_labelled_texts_count(t, AN_VAL), fold == 0 ? 3 : 1);
        an_labelled_texts_close(t);
    }
}

/* Whether a text of the split begins with this letter. */
static bool has_letter(const an_labelled_texts *t, int split, char letter)
{
    size_t n;
    int32_t label;
    for (int64_t i = 0; i < an_labelled_texts_count(t, split); i++)
        if (an_labelled_text(t, split, i, &n, &label)[0] == letter) return true;
    return false;
}

/* Texts of one author, say, with different labels; the letters are the groups. */
static void a_group_of_several_classes_stays_on_one_side(void **state)
{
    (void)state;
    an_err err = {0};
    for (int64_t fold = 0; fold < 2; fold++) {
        an_labelled_texts *t = open_text("text,label,group\na1,x,a\nb1,x,b\nb2,y,b\na2,y,a\nc1,y,c\nc2,x,c\nd1,y,d\n",
                                         2, fold, NULL, false, &err);
        assert_non_null(t);
        for (char letter = 'a'; letter <= 'd'; letter++)
            assert_true(has_letter(t, AN_TRAIN, letter) != has_letter(t, AN_VAL, letter));
        an_labelled_texts_close(t);
        t = open_text("text,label\nsame,x\nother,x\nmore,y\nsame,y\n", 2, fold, NULL, false, &err);
        assert_non_null(t);
        assert_true(has_letter(t, AN_TRAIN, 's') != has_letter(t, AN_VAL, 's'));
        an_labelled_texts_close(t);
    }
}

static void refused(const char *text, const char *sentence)
{
    an_err err = {0};
    assert_null(open_text(text, 5, 0, NULL, false, &err));
    if (!strstr(err.text, sentence)) fail_msg("%s", err.text);
}

static void what_is_no_data_set_is_refused_with_its_line(void **state)
{
    (void)state;
    char control[] = "a,\x01\n";
    refused("", "there are no texts in it");
    refused("text,label\n", "no texts below its first line");
    refused("a,b,c\nd,e,f\n", "name them in the first line (text,label)");
    refused("text,other\na,b\n", "none named label");
    refused("text,text\na,b\n", "two columns are named text");
    refused("text,label\na,\n", "line 2: the label is empty");
    refused(control, "control character");
    refused("a,\xff\n", "line 1");
    an_err err = {0};
    an_class_names known = {0};
    assert_int_equal(an_class_names_add(&err, "x", &known, "y", 1), AN_OK);
    assert_null(open_text("a,y\nb,z\n", 5, 0, &known, true, &err));
    assert_non_null(strstr(err.text, "line 2: the label z is none that the weights know: y"));
    an_err_clear(&err);
    assert_null(open_text("a,y\n", 5, 5, NULL, false, &err));
    assert_non_null(strstr(err.text, "folds 0 to 4"));
    an_class_names_free(&known);
}

static void words_are_kept_in_json_and_unknown_ones_left_out(void **state)
{
    (void)state;
    an_err err = {0};
    an_words *w, *again;
    an_ids ids = {0};
    an_text json = {0};
    json_t *array;
    static const char text[] = "The cat, the CAT's hat: \xc3\xa9t\xc3\xa9 7!";
    assert_int_equal(an_words_new(&err, &w), AN_OK);
    assert_int_equal(an_words_add(&err, w, text, sizeof text - 1), AN_OK);
    assert_int_equal(an_words_seal(&err, w), AN_OK);
    assert_int_equal(an_words_count(w), 7);
    an_words_json(w, &json);
    assert_string_equal(json.data, "[\"7\",\"cat\",\"hat\",\"s\",\"the\",\"\xc3\xa9t\xc3\xa9\"]");
    assert_int_equal(an_json_parse(&err, "x", 0, json.data, json.len, &array), AN_OK);
    assert_int_equal(an_words_from_json(&err, "x", array, &again), AN_OK);
    assert_int_equal(an_words_encode(&err, again, "hat dog THE cat cat", 19, 3, &ids), AN_OK);
    const int32_t expected[] = {3, 5, 2};
    assert_int_equal(ids.len, 3);
    assert_memory_equal(ids.data, expected, sizeof expected);
    json_decref(array);
    static const char *const damaged[] = {"[\"a\",\"a\"]", "[\"A\"]", "[7]", "[\"\"]", "[\"a b\"]", "{}"};
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        an_words *none;
        assert_int_equal(an_json_parse(&err, "x", 0, damaged[i], strlen(damaged[i]), &array), AN_OK);
        assert_int_equal(an_words_from_json(NULL, "x", array, &none), AN_E_IO);
        json_decref(array);
    }
    an_ids_free(&ids);
    an_text_free(&json);
    an_words_free(w);
    an_words_free(again);
}

/* ---- a naive Bayes classifier of words, with one added to each count, as the measure of the built-in texts */

enum { CLASSES = 3 };

static void count_words(const an_labelled_texts *t, const an_words *w, double *counts, double *totals)
{
    for (int64_t i = 0; i < an_labelled_texts_count(t, AN_TRAIN); i++) {
        size_t n;
        int32_t label;
        an_ids ids = {0};
        const char *text = an_labelled_text(t, AN_TRAIN, i, &n, &label);
        assert_int_equal(an_words_encode(NULL, w, text, n, 1000, &ids), AN_OK);
        for (size_t k = 0; k < ids.len; k++) counts[ids.data[k] * CLASSES + label]++;
        totals[label] += (double)ids.len;
        an_ids_free(&ids);
    }
}

static bool bayes_is_right(const an_labelled_texts *t, int64_t i, const an_words *w, const double *counts,
                           const double *totals)
{
    size_t n;
    int32_t label;
    an_ids ids = {0};
    double score[CLASSES] = {0};
    const char *text = an_labelled_text(t, AN_VAL, i, &n, &label);
    assert_int_equal(an_words_encode(NULL, w, text, n, 1000, &ids), AN_OK);
    for (size_t k = 0; k < ids.len; k++)
        for (int c = 0; c < CLASSES; c++)
            score[c] += log((counts[ids.data[k] * CLASSES + c] + 1) / (totals[c] + (double)an_words_count(w)));
    an_ids_free(&ids);
    int best = 0;
    for (int c = 1; c < CLASSES; c++)
        if (score[c] > score[best]) best = c;
    return best == label;
}

static void naive_bayes_tells_the_built_in_texts_apart_over_five_folds(void **state)
{
    (void)state;
    int right = 0, asked = 0;
    for (int64_t fold = 0; fold < 5; fold++) {
        an_err err = {0};
        an_labelled_texts *t;
        an_words *w;
        size_t n;
        int32_t label;
        assert_int_equal(an_labelled_texts_open(&err, &(an_labelled_texts_options){"issues", 5, fold, false, NULL}, &t),
                         AN_OK);
        assert_int_equal(an_labelled_texts_classes(t)->n, CLASSES);
        assert_int_equal(an_words_new(&err, &w), AN_OK);
        for (int64_t i = 0; i < an_labelled_texts_count(t, AN_TRAIN); i++) {
            const char *text = an_labelled_text(t, AN_TRAIN, i, &n, &label);
            assert_int_equal(an_words_add(&err, w, text, n), AN_OK);
        }
        assert_int_equal(an_words_seal(&err, w), AN_OK);
        double *counts = calloc((size_t)an_words_count(w) * CLASSES, sizeof *counts), totals[CLASSES] = {0};
        assert_non_null(counts);
        count_words(t, w, counts, totals);
        for (int64_t i = 0; i < an_labelled_texts_count(t, AN_VAL); i++, asked++)
            right += bayes_is_right(t, i, w, counts, totals);
        free(counts);
        an_words_free(w);
        an_labelled_texts_close(t);
    }
    print_message("# naive Bayes: %d of %d texts\n", right, asked);
    assert_int_equal(asked, 300);
    assert_true(right >= 270);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_found_by_name_and_classes_are_sorted),
        cmocka_unit_test(a_group_and_equal_texts_stay_on_one_side),
        cmocka_unit_test(a_group_of_several_classes_stays_on_one_side),
        cmocka_unit_test(what_is_no_data_set_is_refused_with_its_line),
        cmocka_unit_test(words_are_kept_in_json_and_unknown_ones_left_out),
        cmocka_unit_test(naive_bayes_tells_the_built_in_texts_apart_over_five_folds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
