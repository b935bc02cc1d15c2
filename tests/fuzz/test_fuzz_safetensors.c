/* The safetensors reader: whatever the bytes, a file that opens has tensors inside of it that cover its data, and can
 * be hashed. */
#include "io/checkpoint.h"
#include "fuzz.h"

static bool fuzz_one(const char *data, size_t bytes)
{
    an_err err = {0};
    an_st *st;
    an_status status = an_st_open_memory(&err, "fuzz", data, bytes, &st);
    fuzz_check_sentence(status, &err);
    FUZZ_CHECK((st != NULL) == (status == AN_OK));
    if (!st) return false;
    uint64_t covered = 0;
    for (size_t i = 0; i < an_st_count(st); i++) {
        const an_st_tensor *t = an_st_tensor_at(st, i);
        FUZZ_CHECK(t->at <= bytes && t->bytes <= bytes - t->at);
        FUZZ_CHECK((const char *)t->data == data + t->at);
        FUZZ_CHECK(an_st_find(st, t->name) == t);
        if (i > 0) FUZZ_CHECK(strcmp(an_st_tensor_by_name(st, i - 1)->name, an_st_tensor_by_name(st, i)->name) < 0);
        covered += t->bytes;
    }
    uint64_t header;
    memcpy(&header, data, 8);
    FUZZ_CHECK(8 + header + covered == bytes);
    const char *value;
    for (size_t i = 0; an_st_meta_at(st, i, &value); i++) FUZZ_CHECK(value != NULL);
    an_hash128 hash;
    FUZZ_CHECK(an_ckpt_hash(&err, st, &hash, NULL) == AN_OK);
    an_st_close(st);
    return true;
}

static const fuzz_seed seeds[] = {
    SEED("\002\0\0\0\0\0\0\0{}"),
    SEED("\x31\0\0\0\0\0\0\0{\"__metadata__\":{\"anneal.state\":\"{}\",\"a\":\"b\"}}   "),
    SEED("\x3a\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]}}  12345678"),
    SEED("\x70\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[4,5]}}    12345"),
};

static size_t fuzz_seeds(const fuzz_seed **out)
{
    *out = seeds;
    return AN_COUNT(seeds);
}
