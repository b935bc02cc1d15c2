/* test_pickle.c: reading Python pickles as values without executing anything. */
#include "io/formats/pickle.h"
#include "io/text/tokenizer_impl.h"
#include "io_files.h"

static an_arena arena;
static an_err err;
static const char *const globals[] = {"collections.OrderedDict", "torch.FloatStorage"};

#define PICKLE(text) text, sizeof(text) - 1

static const an_pickle_value *read_pickle(const char *data, size_t n)
{
    const an_pickle_value *v;
    an_arena_reset(&arena);
    an_err_clear(&err);
    return an_pickle_read(&err, "x.pkl", 100, data, n, globals, AN_COUNT(globals), &arena, &v) == AN_OK ? v : NULL;
}

static void values_are_those_of_python(void **state)
{
    (void)state;
    /* {"i": -3, "b": 200, "h": 600, "L": 2**40, "n": -1 (LONG1), "f": 0.5, "t": (1, None), "l": [True, False], "e": ()}
     */
    const an_pickle_value *v = read_pickle(
        PICKLE("\x80\2}q\0("
               "X\1\0\0\0iJ\xfd\xff\xff\xffX\1\0\0\0bK\xc8X\1\0\0\0hMX\2X\1\0\0\0L\x8a\6\0\0\0\0\0\1X\1\0\0\0n\x8a\1"
               "\xffX\1\0\0\0fG?\xe0\0\0\0\0\0\0X\1\0\0\0tK\1N\x86X\1\0\0\0l](\x88\x89"
               "eX\1\0\0\0e)u."));
    if (!v) fail_msg("%s", err.text);
    assert_int_equal(v->kind, AN_PICKLE_DICT);
    assert_int_equal(an_pickle_find(v, "i")->i, -3);
    assert_int_equal(an_pickle_find(v, "b")->i, 200);
    assert_int_equal(an_pickle_find(v, "h")->i, 600);
    assert_int_equal(an_pickle_find(v, "L")->i, 1ll << 40);
    assert_int_equal(an_pickle_find(v, "n")->i, -1);
    assert_true(an_pickle_find(v, "f")->f == 0.5);
    const an_pickle_value *t = an_pickle_find(v, "t"), *l = an_pickle_find(v, "l");
    assert_int_equal(t->kind, AN_PICKLE_TUPLE);
    assert_int_equal(t->n, 2);
    assert_int_equal(t->items[1]->kind, AN_PICKLE_NONE);
    assert_int_equal(l->kind, AN_PICKLE_LIST);
    assert_int_equal(l->items[0]->i, 1);
    assert_int_equal(l->items[1]->i, 0);
    assert_int_equal(an_pickle_find(v, "e")->n, 0);
    assert_null(an_pickle_find(v, "z"));
    assert_int_equal(an_pickle_find(v, "i")->at, 100 + 12); /* byte of the file */
}

static void of_equal_keys_the_last_counts(void **state)
{
    (void)state;
    const an_pickle_value *v = read_pickle(PICKLE("\x80\2}(X\1\0\0\0aK\1X\1\0\0\0aK\2u."));
    assert_non_null(v);
    assert_int_equal(an_pickle_find(v, "a")->i, 2);
}

static void nothing_is_executed(void **state)
{
    (void)state;
    /* os.system("true"), as protocol 2 and as protocol 4 write it, and eval */
    assert_null(read_pickle(PICKLE("\x80\2cos\nsystem\nX\4\0\0\0true\x85R.")));
    assert_contains(err.text, "x.pkl: byte 102: the pickle names \"os.system\"");
    assert_contains(err.text, "nothing was executed");
    assert_null(read_pickle(PICKLE("\x80\4\x8c\2os\x8c\6system\x93\x8c\4true\x85R.")));
    assert_contains(err.text, "byte 114: the pickle names \"os.system\"");
    assert_null(read_pickle(PICKLE("\x80\2c__builtin__\neval\nX\1\0\0\0"
                                   "1\x85R.")));
    assert_contains(err.text, "__builtin__.eval");
    /* A name on the list is a name still. */
    const an_pickle_value *v = read_pickle(PICKLE("\x80\2ctorch\nFloatStorage\nK\1\x85R."));
    assert_non_null(v);
    assert_int_equal(v->kind, AN_PICKLE_CALL);
    assert_string_equal(v->items[0]->text, "torch.FloatStorage");
    assert_int_equal(v->items[1]->n, 1);
}

static void wrong_pickles_are_refused_with_the_byte(void **state)
{
    (void)state;
    static const struct {
        const char *data;
        size_t n;
        const char *part;
    } cases[] = {
        {PICKLE(""), "byte 100: the pickle ends without its end mark"},
        {PICKLE("\x80\2"), "byte 102: the pickle ends without its end mark"},
        {PICKLE("\x80\11N."), "byte 100: the pickle's protocol is newer"},
        {PICKLE("."), "byte 100: the pickle ends with more or less than one value"},
        {PICKLE("NN."), "byte 102: the pickle ends with more or less"},
        {PICKLE("N(."), "more or less"},
        {PICKLE("I1\n."), "byte 100: opcode 0x49 'I' is not read"},
        {PICKLE("\x92."), "byte 100: opcode 0x92 is not read"},
        {PICKLE("R"), "byte 100: the pickle takes more values than it gave"},
        {PICKLE("N\x85\x86."), "takes more values"},
        {PICKLE("N(\x85."), "takes more values"}, /* what lies under a mark is not of the list */
        {PICKLE("u"), "ends a list that it did not begin"},
        {PICKLE("}(Nu."), "byte 103: items are given to what is no list or dict"}, /* a key without a value */
        {PICKLE("]NNs."), "items are given to what is no list or dict"},
        {PICKLE("NN)R."), "a call is of no name"},
        {PICKLE("ccollections\nOrderedDict\n(K\1tR."), "an OrderedDict with arguments"},
        {PICKLE("ccollections"), "byte 100: the pickle ends in the middle of a name"},
        {PICKLE("N}b."), "a state is given to what is no dict"},
        {PICKLE("X\xff\xff\xff\x7f"
                "ab"),
         "byte 100: the pickle ends in the middle of a value"},
        {PICKLE("Nq\5."), "byte 101: the memo's numbers are not in order"},
        {PICKLE("Nr\xff\xff\xff\xff."), "the memo's numbers are not in order"}, /* no request for 32 GB */
        {PICKLE("h\0."), "the memo has no such number"},
        {PICKLE("\x8a\11\0\0\0\0\0\0\0\0\1."), "an integer has more than 64 bits"},
        {PICKLE("NN\x93."), "a name is no text"},
    };
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        if (read_pickle(cases[i].data, cases[i].n)) fail_msg("taken: case %zu", i);
        assert_contains(err.text, "x.pkl: ");
        assert_contains(err.text, cases[i].part);
    }
}

static void a_list_in_itself_is_a_value(void **state)
{
    (void)state;
    const an_pickle_value *v = read_pickle(PICKLE("]q\0h\0a."));
    assert_non_null(v);
    assert_ptr_equal(v->items[0], v);
}

static void a_meta_pkl_is_a_tokenizer_of_characters(void **state)
{
    (void)state;
    static const char meta[] =
        "\x80\4\x95\x30\0\0\0\0\0\0\0}\x94(\x8c\nvocab_size\x94K\3\x8c\4itos\x94}\x94(K\0\x8c\1\n\x94K\1\x8c\1a"
        "\x94K\2\x8c\2\xc3\xa9\x94u\x8c\4stoi\x94}\x94u.";
    an_tokenizer *t;
    an_ids ids = {0};
    if (an_tokenizer_open(&err, temp_file("meta.pkl", meta, sizeof meta - 1), &t) != AN_OK) fail_msg("%s", err.text);
    assert_int_equal(an_tokenizer_vocab(t), 3);
    assert_int_equal(an_tokenizer_encode(&err, t, "x",
                                         "\xc3\xa9"
                                         "a\n",
                                         4, false, &ids),
                     AN_OK);
    assert_int_equal(ids.data[0], 2);
    assert_int_equal(ids.data[2], 0);
    an_ids_free(&ids);
    an_tokenizer_free(t);
}

static void a_damaged_meta_pkl_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *data;
        size_t n;
        const char *part;
    } cases[] = {
        {PICKLE("\x80\4N."), "vocab_size and itos do not agree"},
        {PICKLE("\x80\4}(\x8c\nvocab_sizeK\2\x8c\4itos}(K\0\x8c\1auu."), "vocab_size and itos do not agree"},
        {PICKLE("\x80\4}(\x8c\nvocab_sizeK\1\x8c\4itos}(K\1\x8c\1auu."), "an id is no number below vocab_size"},
        {PICKLE("\x80\4}(\x8c\nvocab_sizeK\1\x8c\4itos}(K\0\x8c\2abuu."), "more or less than one character"},
        {PICKLE("\x80\4}(\x8c\nvocab_sizeK\2\x8c\4itos}(K\0\x8c\1bK\1\x8c\1auu."),
         "id 1 is no character, or not above"},
        {PICKLE("\x80\4}(\x8c\nvocab_sizeK\2\x8c\4itos}(K\0\x8c\1bK\0\x8c\1auu."), "id 1 is no character"},
    };
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        an_tokenizer *t;
        an_err_clear(&err);
        if (an_tokenizer_from_pickle(&err, "meta.pkl", cases[i].data, cases[i].n, &t) == AN_OK)
            fail_msg("taken: %s", cases[i].part);
        assert_contains(err.text, cases[i].part);
        assert_null(t);
    }
}

static int close_arena(void **state)
{
    (void)state;
    an_arena_free(&arena);
    return 0;
}

/* A value takes some seventy bytes, and its opcode one. */
static void more_values_than_any_checkpoint_has_are_refused(void **state)
{
    (void)state;
    enum { N = (1 << 20) + 8 };
    char *data = malloc(N);
    assert_non_null(data);
    memset(data, 'N', N);
    assert_null(read_pickle(data, N));
    assert_contains(err.text, "more values than any checkpoint");
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_of_python),
        cmocka_unit_test(of_equal_keys_the_last_counts),
        cmocka_unit_test(nothing_is_executed),
        cmocka_unit_test(wrong_pickles_are_refused_with_the_byte),
        cmocka_unit_test(a_list_in_itself_is_a_value),
        cmocka_unit_test(a_meta_pkl_is_a_tokenizer_of_characters),
        cmocka_unit_test(a_damaged_meta_pkl_is_refused),
        cmocka_unit_test(more_values_than_any_checkpoint_has_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, close_arena);
}
