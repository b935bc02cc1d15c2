/* The .npy reader: whatever the bytes, an array that is taken lies in them, and is written again as it was. */
#include "io/formats/npy.h"
#include "fuzz.h"

static bool fuzz_one(const char *data, size_t bytes)
{
    an_err err = {0};
    an_npy a;
    an_status status = an_npy_parse(&err, "fuzz", data, bytes, &a);
    fuzz_check_sentence(status, &err);
    if (status != AN_OK) return false;
    FUZZ_CHECK(a.rank >= 0 && a.rank <= AN_NPY_MAX_RANK);
    FUZZ_CHECK((const char *)a.data >= data && (const char *)a.data + a.bytes == data + bytes);
    int64_t n = 1;
    for (int i = 0; i < a.rank; i++) {
        FUZZ_CHECK(a.dim[i] >= 0);
        n = a.dim[i] == 0 || n == 0 ? 0 : n * a.dim[i];
    }
    FUZZ_CHECK(n == an_npy_elements(&a));
    an_text again = {0};
    an_npy b;
    FUZZ_CHECK(an_npy_header(&err, a.dtype, a.rank, a.dim, &again) == AN_OK);
    FUZZ_CHECK(again.len % 64 == 0);
    an_text_putn(&again, a.data, a.bytes);
    FUZZ_CHECK(an_npy_parse(&err, "again", again.data, again.len, &b) == AN_OK);
    FUZZ_CHECK(b.dtype == a.dtype && b.rank == a.rank && b.bytes == a.bytes);
    FUZZ_CHECK(memcmp(a.dim, b.dim, (size_t)a.rank * sizeof a.dim[0]) == 0);
    an_text_free(&again);
    return true;
}

static const fuzz_seed seeds[] = {
    SEED("\x93NUMPY\001\0\x3d\0{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }   \n12345678"),
    SEED("\x93NUMPY\001\0\x3c\0{'descr': '|u1', 'fortran_order': False, 'shape': (), }    \nx"),
    SEED("\x93NUMPY\002\0\x3f\0\0\0{'descr': '<i8', 'fortran_order': False, 'shape': (1, 0, 3), }\n"),
    SEED("\x93NUMPY\003\0\x3c\0\0\0{\"shape\": (1, 1), \"fortran_order\": False, \"descr\": \"<i4\"}  \n1234"),
};

static size_t fuzz_seeds(const fuzz_seed **out)
{
    *out = seeds;
    return AN_COUNT(seeds);
}
