/* What torch.save writes. The first byte picks what the rest is: 'z' a whole zip archive; 'p' the pickle of one whose
 * checksums are right, with two storages of 64 bytes; 'm' a meta.pkl. Whatever the bytes, a file that opens has tensors
 * inside of it, and JSON for the rest; a tokenizer that opens decodes. */
#include "io/checkpoint.h"
#include "io/formats/json.h"
#include "io/text/tokenizer_impl.h"
#include "io/formats/torch_file.h"
#include "lib/make_zip.h"
#include "fuzz.h"

static bool check_archive(const char *data, size_t bytes)
{
    an_err err = {0};
    an_st *st;
    an_hash128 hash;
    json_t *values;
    an_status status = an_weights_open_torch(&err, "fuzz", data, bytes, &st);
    fuzz_check_sentence(status, &err);
    FUZZ_CHECK((st != NULL) == (status == AN_OK));
    if (!st) return false;
    for (size_t i = 0; i < an_st_count(st); i++) {
        const an_st_tensor *t = an_st_tensor_at(st, i);
        FUZZ_CHECK(t->at <= bytes && t->bytes <= bytes - t->at);
        FUZZ_CHECK((const char *)t->data == data + t->at);
        FUZZ_CHECK(an_st_find(st, t->name) == t);
    }
    const char *text = an_st_meta(st, AN_WEIGHTS_VALUES);
    FUZZ_CHECK(text != NULL);
    if (an_json_parse(NULL, "values", 0, text, strlen(text), &values) == AN_OK)
        json_decref(values); /* else: equal keys */
    FUZZ_CHECK(an_ckpt_hash(&err, st, &hash, NULL) == AN_OK);
    an_st_close(st);
    return true;
}

static an_text archive_of(const char *pickle, size_t bytes)
{
    static const char storage[64] = {1, 2, 3};
    make_zip z = {0};
    make_zip_add(&z, "x/data.pkl", pickle, bytes);
    make_zip_add(&z, "x/byteorder", "little", 6);
    make_zip_add(&z, "x/data/0", storage, sizeof storage);
    make_zip_add(&z, "x/data/1", storage, sizeof storage);
    make_zip_end(&z);
    return z.file;
}

static bool check_meta(const char *data, size_t bytes)
{
    an_err err = {0};
    an_tokenizer *t;
    an_text text = {0};
    an_status status = an_tokenizer_from_pickle(&err, "meta.pkl", data, bytes, &t);
    fuzz_check_sentence(status, &err);
    FUZZ_CHECK((t != NULL) == (status == AN_OK));
    if (!t) return false;
    for (int32_t id = 0; id < an_tokenizer_vocab(t); id++)
        FUZZ_CHECK(an_tokenizer_decode(&err, t, &id, 1, &text) == AN_OK);
    an_text_free(&text);
    an_tokenizer_free(t);
    return true;
}

static bool fuzz_one(const char *data, size_t bytes)
{
    if (bytes == 0) return false;
    if (data[0] == 'z') {
        char *exact = malloc(bytes); /* at an address of its own, of its exact size */
        FUZZ_CHECK(exact != NULL);
        memcpy(exact, data + 1, bytes - 1);
        bool taken = check_archive(exact, bytes - 1);
        free(exact);
        return taken;
    }
    if (data[0] == 'm') return check_meta(data + 1, bytes - 1);
    an_text z = archive_of(data + 1, bytes - 1);
    FUZZ_CHECK(!z.failed);
    bool taken = check_archive(z.data, z.len);
    an_text_free(&z);
    return taken;
}

/* {"model": OrderedDict{"w": f32[2,3] of storage 0 at 1, "v": the same}, "n": {"i": -3, "f": 0.5, "t": (1, None), "l":
 * [True]}} */
#define STORAGE                                                                                                        \
    "(X\7\0\0\0storageq\3ctorch\nFloatStorage\nq\4X\1\0\0\0"                                                           \
    "0q\5X\3\0\0\0cpuq\6K\20tq\7Q"
#define TENSOR                                                                                                         \
    "ctorch._utils\n_rebuild_tensor_v2\nq\2(" STORAGE                                                                  \
    "K\1K\2K\3\206q\10K\3K\1\206q\11\211ccollections\nOrderedDict\nq\12)Rq\13tq\14Rq\15"
#define A_PICKLE                                                                                                       \
    "p\x80\2}q\0(X\5\0\0\0modelq\1ccollections\nOrderedDict\n)R(X\1\0\0\0w" TENSOR "X\1\0\0\0vh\15u"                   \
    "X\1\0\0\0n}(X\1\0\0\0iJ\xfd\xff\xff\xffX\1\0\0\0fG?\xe0\0\0\0\0\0\0X\1\0\0\0tK\1N\206X\1\0\0\0l](\x88"            \
    "eX\1\0\0\0b\x8a\5\0\0\0\0\1uu."

static fuzz_seed seeds[] = {
    SEED(A_PICKLE),
    /* {"vocab_size": 2, "itos": {0: "a", 1: "b"}, "stoi": {}} in protocol 4 */
    SEED("m\x80\4\x95\x30\0\0\0\0\0\0\0}\x94(\x8c\nvocab_size\x94K\2\x8c\4itos\x94}\x94("
         "K\0\x8c\1a\x94K\1\x8c\1b\x94u\x8c\4stoi\x94}\x94u."),
    {NULL, 0}, /* the archive of the first */
    /* {"w": a parameter} */
    SEED("p\x80\2}q\0(X\1\0\0\0wq\1"
         "ctorch._utils\n_rebuild_parameter\n(" TENSOR "\x88"
         "ccollections\nOrderedDict\n)RtRu."),
};

static size_t fuzz_seeds(const fuzz_seed **out)
{
    static an_text archive;
    if (!seeds[2].data) {
        an_text z = archive_of(&A_PICKLE[1], sizeof A_PICKLE - 2);
        an_text_puts(&archive, "z");
        an_text_putn(&archive, z.data, z.len);
        an_text_free(&z);
        seeds[2] = (fuzz_seed){archive.data, archive.len};
    }
    *out = seeds;
    return AN_COUNT(seeds);
}
