/* fuzz.h: one body, two programs. With libFuzzer (clang -DAN_LIBFUZZER -fsanitize=fuzzer,address, the test's file and
 * the library), a search without end. Without, a test that runs the seeds, their prefixes and some thousand mutations
 * of them, the same every time (millions with AN_SOAK=1), and the files that searches have kept: tests/fuzz/corpus/NAME
 * for test_fuzz_NAME.c. `make fuzz` (mk/fuzz.mk) searches and keeps.
 *
 * A file that includes this defines fuzz_one, which checks what must hold for any bytes and says whether they were
 * taken, and fuzz_seeds, all of which must be taken. */
#define _DEFAULT_SOURCE
#include "lib/test.h"
#include "platform/platform.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef FUZZ_ROUNDS
#define FUZZ_ROUNDS 4000 /* mutations in an ordinary test; a target that writes many files has fewer */
#endif

typedef struct fuzz_seed {
    const char *data;
    size_t bytes;
} fuzz_seed;
#define SEED(text)                                                                                                     \
    {                                                                                                                  \
        text, sizeof(text) - 1                                                                                         \
    }

/* What must hold. Not assert(): the checks stay in every build. */
#define FUZZ_CHECK(condition)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

static bool fuzz_one(const char *data, size_t bytes);
static size_t fuzz_seeds(const fuzz_seed **out);

/* Ends the run when a call that must fail with a sentence has none, or one of several lines. */
static inline void fuzz_check_sentence(an_status status, const an_err *err)
{
    FUZZ_CHECK((status == AN_OK) == (err->text[0] == 0));
    FUZZ_CHECK(strchr(err->text, '\n') == NULL);
}

static uint64_t fuzz_random(uint64_t *state)
{
    *state += 0x9E3779B97F4A7C15u; /* splitmix64 */
    uint64_t x = (*state ^ (*state >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* One to four small changes: a byte, a bit, a piece removed, doubled or taken from another seed, a number made extreme.
 */
static size_t fuzz_mutate(char *data, size_t bytes, size_t cap, uint64_t *state)
{
    static const char *const words[] = {"0",
                                        "-1",
                                        "9223372036854775807",
                                        "18446744073709551616",
                                        "[",
                                        "]",
                                        "{",
                                        "}",
                                        "\"",
                                        ",",
                                        ":",
                                        "\n",
                                        " ",
                                        "null",
                                        "1e999",
                                        "\xff",
                                        "\\u0000",
                                        "--- ",
                                        "&a ",
                                        "*a ",
                                        "<|endoftext|>"};
    const fuzz_seed *seeds;
    size_t n_seeds = fuzz_seeds(&seeds);
    for (uint64_t changes = 1 + fuzz_random(state) % 4; changes > 0; changes--) {
        size_t at = bytes ? fuzz_random(state) % bytes : 0, n = 1 + fuzz_random(state) % 16;
        n = bytes - at < n ? bytes - at : n;
        const char *piece = data + at;
        char copy[64];
        switch (bytes ? fuzz_random(state) % 6 : 5) {
        case 0: data[at] = (char)fuzz_random(state); continue;
        case 1: data[at] = (char)(data[at] ^ (1 << fuzz_random(state) % 8)); continue;
        case 2:
            memmove(data + at, data + at + n, bytes - at - n);
            bytes -= n;
            continue;
        case 3: break; /* doubled */
        case 4: {
            const fuzz_seed *s = &seeds[fuzz_random(state) % n_seeds];
            if (s->bytes < 16) continue;
            piece = s->data + fuzz_random(state) % (s->bytes - 15);
            n = 16;
            break;
        }
        default: piece = words[fuzz_random(state) % (sizeof words / sizeof words[0])]; n = strlen(piece);
        }
        if (bytes + n > cap) continue;
        memcpy(copy, piece, n);
        memmove(data + at + n, data + at, bytes - at);
        memcpy(data + at, copy, n);
        bytes += n;
    }
    return bytes;
}

/* With AN_FUZZ_SEEDS=FOLDER the seeds are written there, for a search to begin with. */
static void fuzz_write_seeds(const fuzz_seed *seeds, size_t n)
{
    const char *folder = getenv("AN_FUZZ_SEEDS");
    for (size_t i = 0; folder && i < n; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/seed_%zu", folder, i);
        test_write_file(path, seeds[i].data, seeds[i].bytes);
    }
}

#ifdef AN_LIBFUZZER
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const fuzz_seed *seeds;
    const size_t n = fuzz_seeds(&seeds);
    (void)argc, (void)argv;
    fuzz_write_seeds(seeds, n);
    return 0;
}
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_one((const char *)data, bytes);
    return 0;
}
/* Every second change is one of fuzz_mutate's: words of the formats, pieces of the seeds. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed)
{
    uint64_t state = seed;
    return seed % 2 ? fuzz_mutate((char *)data, bytes, most, &state) : LLVMFuzzerMutate(data, bytes, most);
}
#else
/* In a block of its exact size, so that ASan and valgrind see a read past the end. */
static bool fuzz_exact(const char *data, size_t bytes)
{
    char *exact = malloc(bytes ? bytes : 1);
    assert_non_null(exact);
    if (bytes > 0) memcpy(exact, data, bytes);
    bool taken = fuzz_one(exact, bytes);
    free(exact);
    return taken;
}

/* tests/fuzz/corpus/NAME, from this program's source file. */
static void fuzz_folder(const char *file, char out[256])
{
    const char *name = strstr(file, "test_fuzz_");
    assert_non_null(name);
    name += strlen("test_fuzz_");
    snprintf(out, 256, "tests/fuzz/corpus/%.*s", (int)strcspn(name, "."), name);
}

static void survives_what_searches_have_kept(void **file)
{
    char folder[256], path[512];
    size_t count = 0;
    fuzz_folder(*file, folder);
    DIR *d = opendir(folder);
    if (!d) fail_msg("no folder %s (tests run in the repository's root)", folder);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char *data;
        size_t bytes;
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        assert_int_equal(an_file_read(NULL, path, 1 << 20, &data, &bytes), AN_OK);
        fuzz_exact(data, bytes);
        free(data);
        count++;
    }
    closedir(d);
    assert_true(count > 0);
}

static void survives_seeds_their_prefixes_and_mutations(void **unused)
{
    (void)unused;
    enum { CAP = 1 << 16 };
    static char buffer[CAP];
    const fuzz_seed *seeds;
    size_t n = fuzz_seeds(&seeds);
    fuzz_write_seeds(seeds, n);
    uint64_t state = 1, rounds = getenv("AN_SOAK") ? 500 * FUZZ_ROUNDS : FUZZ_ROUNDS;
    for (size_t i = 0; i < n; i++) {
        size_t step = seeds[i].bytes / 200 + 1;
        for (size_t keep = 0; keep < seeds[i].bytes; keep += step) fuzz_exact(seeds[i].data, keep);
        if (!fuzz_exact(seeds[i].data, seeds[i].bytes)) fail_msg("seed %zu is not valid", i);
    }
    for (uint64_t round = 0; round < rounds; round++) {
        const fuzz_seed *s = &seeds[fuzz_random(&state) % n];
        memcpy(buffer, s->data, s->bytes);
        fuzz_exact(buffer, fuzz_mutate(buffer, s->bytes, CAP, &state));
    }
}

int main(void)
{
    static char file[] = __BASE_FILE__;
    const struct CMUnitTest tests[] = {cmocka_unit_test(survives_seeds_their_prefixes_and_mutations),
                                       cmocka_unit_test_prestate(survives_what_searches_have_kept, file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
