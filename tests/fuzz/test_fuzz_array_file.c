/* Files of named arrays: the first byte is the kind (z .npz, s .safetensors, c .csv), the rest the file. Bytes seldom get past an
 * archive's checksums or a header's length, so there are kinds that wrap the rest in what is right: n, the array x.npy of an .npz; d, the
 * same, deflated; h, the header of a .safetensors before 64 bytes. Whatever the bytes, an array that is found lies in memory that may be
 * read, and has the elements that its shape says. */
#define FUZZ_ROUNDS 1500
#include "io/data/array_file.h"
#include "fuzz.h"
#include "lib/make_zip.h"

static bool found_in(an_array_file *f, const char *name)
{
    an_err err = {0};
    an_npy a = {0};
    bool found = false;
    an_status status = an_array_file_find(&err, f, name, "y", &a, &found);
    fuzz_check_sentence(status, &err);
    if (status != AN_OK || !found) return false;
    int64_t n = 1;
    for (int i = 0; i < a.rank; i++) n *= a.dim[i];
    FUZZ_CHECK(n == an_npy_elements(&a) && n >= 0);
    volatile double sum = 0; /* every element and byte is read */
    for (int64_t i = 0; i < n; i++) sum = sum + an_npy_number(&a, i);
    for (size_t i = 0; i < a.bytes; i++) sum = sum + (double)((const unsigned char *)a.data)[i];
    return true;
}

/* An .npz whose x.npy is these bytes; deflated as one stored block (its length, and the length inverted). */
static void write_npz(const char *path, const char *array, size_t bytes, bool deflated)
{
    make_zip z = {0};
    if (deflated) {
        an_text block = {0};
        const size_t n = bytes < 65535 ? bytes : 65535;
        make_zip_number(&block, 1, 1); /* the last block, stored */
        make_zip_number(&block, n, 2);
        make_zip_number(&block, ~n & 65535, 2);
        an_text_putn(&block, array, n);
        make_zip_put(&z, "x.npy", block.data, block.len, 8, an_crc32(array, n), n);
        an_text_free(&block);
    } else {
        make_zip_add(&z, "x.npy", array, bytes);
    }
    make_zip_end(&z);
    test_write_file(path, z.file.data, z.file.len);
    an_text_free(&z.file);
}

static void write_safetensors(const char *path, const char *header, size_t bytes)
{
    an_text file = {0};
    make_zip_number(&file, bytes, 8);
    an_text_putn(&file, header, bytes);
    for (int i = 0; i < 64; i++) an_text_putn(&file, &(char){(char)(i * 37)}, 1);
    test_write_file(path, file.data, file.len);
    an_text_free(&file);
}

static const char *write_file(const char *data, size_t bytes)
{
    const bool npz = data[0] == 'z' || data[0] == 'n' || data[0] == 'd', weights = data[0] == 's' || data[0] == 'h';
    const char *path = test_path(npz ? "a.npz" : weights ? "a.safetensors" : "a.csv");
    switch (data[0]) {
    case 'n':
    case 'd': write_npz(path, data + 1, bytes - 1, data[0] == 'd'); break;
    case 'h': write_safetensors(path, data + 1, bytes - 1); break;
    default: test_write_file(path, data + 1, bytes - 1);
    }
    return path;
}

static bool fuzz_one(const char *data, size_t bytes)
{
    an_err err = {0};
    an_array_file *f = NULL;
    if (bytes == 0) return false;
    const char *path = write_file(data, bytes);
    const an_status status = an_array_file_open(&err, path, &f);
    fuzz_check_sentence(status, &err);
    bool taken = false;
    if (status == AN_OK) {
        taken = found_in(f, "x");
        (void)found_in(f, "x+y");
        (void)found_in(f, "*");
        (void)found_in(f, "");
    }
    an_array_file_close(f);
    return taken;
}

#define NPY "\x93NUMPY\001\0\x3d\0{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }   \n12345678"

static size_t fuzz_seeds(const fuzz_seed **out)
{
    static const char
        safetensors[] = "s\x3e\0\0\0\0\0\0\0{\"x\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]}}      "
                        "12345678",
        csv[] = "cx,y,z\n1,2,3\n4,5e-1,6\n",
        header[] =
            "h{\"x\":{\"dtype\":\"F32\",\"shape\":[4,2],\"data_offsets\":[0,32]},\"y\":{\"dtype\":\"I64\",\"shape\":"
            "[4],\"data_offsets\":[32,64]}}";
    static char zip[1024];
    static fuzz_seed seeds[] = {{zip, 0}, SEED(safetensors), SEED(csv), SEED(header), SEED("n" NPY), SEED("d" NPY)};
    if (seeds[0].bytes == 0) {
        make_zip z = {0};
        make_zip_add(&z, "x.npy", NPY, sizeof NPY - 1);
        make_zip_add(&z, "y.npy", NPY, sizeof NPY - 1);
        make_zip_end(&z);
        FUZZ_CHECK(z.file.len + 1 <= sizeof zip);
        zip[0] = 'z';
        memcpy(zip + 1, z.file.data, z.file.len);
        seeds[0].bytes = z.file.len + 1;
        an_text_free(&z.file);
    }
    *out = seeds;
    return AN_COUNT(seeds);
}
