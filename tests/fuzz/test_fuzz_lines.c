/* Lines of a file that may be compressed. The first byte picks what the rest is: 'p' a plain file, 'g' a .gz, 'z' a .zst.
 * Lines are numbered from 1 and hold no newline; a plain file is exactly its lines. */
#include "io/formats/line_reader.h"
#include "fuzz.h"

#include <unistd.h>

static char folder[64];

static const char *path_of(const char *name)
{
    static char path[96];
    if (!folder[0]) {
        snprintf(folder, sizeof folder, "%s/anneal-fuzz-%ld", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp",
                 (long)getpid());
        FUZZ_CHECK(an_make_dirs(NULL, folder, 0700) == AN_OK);
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void remove_files(void)
{
    static const char *const names[] = {"x.txt", "x.gz", "x.zst", "."};
    for (size_t i = 0; i < AN_COUNT(names); i++) (void)remove(path_of(names[i]));
}

/* Reads all lines; `whole` (may be NULL) is what they must be, the last one perhaps without its newline. */
static bool check_lines(const char *path, const char *whole, size_t bytes)
{
    enum { MOST = 1 << 24 }; /* of what a few bytes decompress to, enough is enough */
    an_err err = {0};
    an_line_reader *r;
    const char *line;
    size_t n, at = 0, read = 0;
    uint64_t number = 0;
    an_status status = an_line_reader_open(&err, path, &r);
    fuzz_check_sentence(status, &err);
    FUZZ_CHECK((r != NULL) == (status == AN_OK));
    if (status == AN_E_ENV) return true; /* the library is not installed: nothing was read */
    if (status != AN_OK) return false;
    while ((status = an_line_reader_next(&err, r, &line, &n)) == AN_OK && line && read < MOST) {
        FUZZ_CHECK(an_line_reader_number(r) == ++number);
        FUZZ_CHECK(n == 0 || memchr(line, '\n', n) == NULL);
        if (whole) FUZZ_CHECK(n <= bytes - at && memcmp(line, whole + at, n) == 0);
        if (whole) FUZZ_CHECK(at + n == bytes || whole[at + n] == '\n');
        at += n + 1;
        read += n + 1;
    }
    fuzz_check_sentence(status, &err);
    if (whole) FUZZ_CHECK(status == AN_OK && at >= bytes && at <= bytes + 1);
    an_line_reader_close(r);
    return status == AN_OK;
}

static bool fuzz_one(const char *data, size_t bytes)
{
    static bool registered;
    if (bytes == 0) return false;
    const char *path = path_of(data[0] == 'g' ? "x.gz" : data[0] == 'z' ? "x.zst" : "x.txt");
    if (!registered) registered = atexit(remove_files) == 0;
    FILE *f = fopen(path, "wb");
    FUZZ_CHECK(f && fwrite(data + 1, 1, bytes - 1, f) == bytes - 1 && fclose(f) == 0);
    const bool plain = data[0] != 'g' && data[0] != 'z';
    return check_lines(path, plain ? data + 1 : NULL, bytes - 1);
}

static const fuzz_seed seeds[] = {
    SEED("pone\ntwo\n\nfour"),
    SEED("p\n"),
    /* "one\ntwo\n", compressed */
    SEED("g\037\213\010\000\000\000\000\000\002\377\313\317\113\345\052\051\317\347\002\000\346\013\272\022\010\000\000"
         "\000"),
    SEED("z\050\265\057\375\004\130\101\000\000\157\156\145\012\164\167\157\012\346\246\016\100"),
};

static size_t fuzz_seeds(const fuzz_seed **out)
{
    *out = seeds;
    return AN_COUNT(seeds);
}
