/* Files of named arrays: the first byte is the kind (z .npz, s .safetensors, c .csv), the rest the file. Whatever the bytes, an array
 * that is found lies in memory that may be read, and has the elements that its shape says. */
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

static bool fuzz_one(const char *data, size_t bytes)
{
    an_err err = {0};
    an_array_file *f = NULL;
    if (bytes == 0) return false;
    const char *path = test_path(data[0] == 'z' ? "a.npz" : data[0] == 's' ? "a.safetensors" : "a.csv");
    test_write_file(path, data + 1, bytes - 1);
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
    static const char safetensors[] =
        "s\x3e\0\0\0\0\0\0\0{\"x\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]}}      "
        "12345678",
                      csv[] = "cx,y,z\n1,2,3\n4,5e-1,6\n";
    static char zip[1024];
    static fuzz_seed seeds[3] = {SEED(safetensors), SEED(csv), {zip, 0}};
    if (seeds[2].bytes == 0) {
        make_zip z = {0};
        make_zip_add(&z, "x.npy", NPY, sizeof NPY - 1);
        make_zip_add(&z, "y.npy", NPY, sizeof NPY - 1);
        make_zip_end(&z);
        FUZZ_CHECK(z.file.len + 1 <= sizeof zip);
        zip[0] = 'z';
        memcpy(zip + 1, z.file.data, z.file.len);
        seeds[2].bytes = z.file.len + 1;
        an_text_free(&z.file);
    }
    *out = seeds;
    return AN_COUNT(seeds);
}
