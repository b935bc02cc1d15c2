/* test_hostile.c: graphs whose numbers somebody changed: every archive of tests/import/goldens is opened from its description with one to
 * three numbers replaced, bound, and built. It builds or is refused with a sentence, and nothing is read or written outside of anything
 * (a sanitizer sees that: make SAN=address,undefined test T=import/test_hostile). AN_SOAK=1 draws many more. AN_HOSTILE=name:round
 * builds that one alone. */
#include "lib/test.h"
#include "base/text.h"
#include <anneal_import.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 24, MANY_ROUNDS = 1000, MOST = 256, MOST_NAMES = 512, NAME = 128 };

static uint32_t drawn(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

/* Where the next number of a node's arguments begins, behind "as_int": or one in the list behind "as_ints":; NULL: none. */
static const char *next_number(const char *from, uint32_t *state)
{
    static const char key[] = "\"as_int";
    for (const char *at = from; (at = strstr(at, key)) != NULL;) {
        at += sizeof key - 1;
        const bool list = *at == 's';
        at += list;
        if (strncmp(at, "\":", 2) != 0) continue;
        at += 2 + strspn(at + 2, " ");
        if (!list) return at;
        if (*at++ != '[') continue;
        const char *end = strchr(at, ']'), *number[8];
        uint32_t n = 0;
        for (at += strspn(at, " "); end && at < end && n < AN_COUNT(number); at += strspn(at, ", ")) {
            number[n++] = at;
            at += strcspn(at, ",]");
        }
        if (n > 0) return number[drawn(state, n)];
    }
    return NULL;
}

/* The description with a number of a node's arguments replaced: the next one from some place on. */
static void change(const char *json, uint32_t *state, an_text *out)
{
    static const char *const numbers[] = {"-1",
                                          "0",
                                          "1",
                                          "2",
                                          "3",
                                          "7",
                                          "8",
                                          "9",
                                          "-9",
                                          "1048576",
                                          "2147483648",
                                          "1099511627776",
                                          "9223372036854775807",
                                          "-9223372036854775808"};
    const char *nodes = strstr(json, "\"nodes\""), *from = nodes ? nodes : json;
    const char *at = next_number(from + drawn(state, (uint32_t)strlen(from)), state);
    if (!at && nodes) at = next_number(nodes, state);
    out->len = 0;
    if (!at) {
        an_text_puts(out, json);
        return;
    }
    an_text_putn(out, json, (size_t)(at - json));
    an_text_puts(out, numbers[drawn(state, AN_COUNT(numbers))]);
    an_text_puts(out, at + strspn(at, "-0123456789"));
}

/* What is being built: the name of the archive and the round. */
static char now[300];

static void say(void)
{
    (void)!write(STDERR_FILENO, now, strlen(now));
}

static void died(int number)
{
    say();
    signal(number, SIG_DFL);
    raise(number);
}

/* A sanitizer that ends the process raises no signal. */
void __sanitizer_set_death_callback(void (*)(void)) __attribute__((weak));

/* Whether it was built. */
static bool built(const char *json)
{
    char why[AN_IMPORT_WHY] = "";
    an_tensor *in[MOST], *out[MOST] = {NULL};
    an_import_entry e;
    an_import *f = an_import_open_description("changed", json, strlen(json), why);
    if (!f && !*why) fail_msg("refused without a sentence: %s", now);
    if (!f) return false;
    an_ctx *cx = an_open(&(an_options){.device = "null:cpu"});
    an_import_model *m = an_import_bind(f, cx, why);
    const int n = an_import_count(f, AN_IMPORT_INPUT);
    an_status status = m && n <= MOST && an_import_count(f, AN_IMPORT_OUTPUT) <= MOST ? AN_OK : AN_E_UNSUPPORTED;
    for (int i = 0; status == AN_OK && an_import_get(f, AN_IMPORT_INPUT, i, &e); i++) {
        double count = 1;
        for (int k = 0; k < e.shape.rank; k++) count *= (double)e.shape.dim[k];
        if (count > 1 << 20) status = AN_E_UNSUPPORTED;
        void *zeros = status == AN_OK ? calloc((size_t)count + 1, 8) : NULL;
        if (zeros) in[i] = an_input_at(AN_AT, cx, e.dtype, e.shape, zeros);
        free(zeros);
    }
    if (status == AN_OK) {
        status = an_import_build(m, AN_IMPORT_TRAIN, in, out, why);
        if (status != AN_OK && !*why) fail_msg("refused without a sentence: %s", now);
    }
    an_import_release(m);
    an_import_close(f);
    an_close(cx);
    return status == AN_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The archives of tests/import/goldens in the order of their names. */
static int names_of_archives(char name[MOST_NAMES][NAME])
{
    DIR *d = opendir("tests/import/goldens");
    int count = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        const size_t n = strlen(e->d_name);
        if (n < 5 || strcmp(e->d_name + n - 4, ".pt2") != 0) continue;
        assert_true(count < MOST_NAMES && n < NAME);
        memcpy(name[count++], e->d_name, n + 1);
    }
    closedir(d);
    qsort(name, (size_t)count, sizeof *name, by_name);
    return count;
}

/* Round `round` of an archive: its numbers depend on both alone. */
static bool round_built(const char *name, const char *json, int round, an_text *one, an_text *two)
{
    uint32_t state = 2166136261u + (uint32_t)round * 2654435761u;
    for (const char *c = name; *c; c++) state = (state ^ (unsigned char)*c) * 16777619u;
    snprintf(now, sizeof now, "# changed graph %s:%d\n", name, round);
    change(json, &state, one);
    for (uint32_t more = drawn(&state, 3); more > 0; more--) {
        change(one->data, &state, two);
        const an_text swap = *one;
        *one = *two;
        *two = swap;
    }
    assert_false(one->failed || two->failed);
    return built(one->data);
}

static void changed_numbers_are_built_or_refused(void **unused)
{
    (void)unused;
    const char *const soak = getenv("AN_SOAK"), *const only = getenv("AN_HOSTILE");
    const int rounds = soak ? MANY_ROUNDS : ROUNDS;
    static char name[MOST_NAMES][NAME];
    const int count = names_of_archives(name);
    int taken = 0, all = 0;
    an_text one = {0}, two = {0};
    signal(SIGSEGV, died);
    signal(SIGABRT, died);
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(say);
    for (int i = 0; i < count; i++) {
        char path[512], why[AN_IMPORT_WHY];
        const size_t n = strlen(name[i]);
        if (only && (strncmp(only, name[i], n) != 0 || only[n] != ':')) continue;
        snprintf(path, sizeof path, "tests/import/goldens/%s", name[i]);
        an_import *f = an_import_open(path, why);
        assert_non_null(f);
        char *json = an_import_description(f);
        assert_non_null(json);
        an_import_close(f);
        (void)built(json); /* of some the constants decide what is built, and a description has none */
        for (int k = only ? atoi(only + n + 1) : 0; k < rounds || only; k++) {
            taken += round_built(name[i], json, k, &one, &two);
            all++;
            if (only) break;
        }
        free(json);
    }
    an_text_free(&one);
    an_text_free(&two);
    printf("# %d changed graphs, %d built\n", all, taken);
    if (!only) assert_true(taken > 0 && taken < all);
}

/* The object that begins at `at` ends there. */
static const char *end_of_object(const char *at)
{
    int depth = 0;
    for (bool quoted = false; *at; at++) {
        if (quoted && *at == '\\') {
            if (!*++at) break;
        } else if (*at == '"') {
            quoted = !quoted;
        } else if (!quoted && (*at == '{' || *at == '}')) {
            depth += *at == '{' ? 1 : -1;
            if (depth == 0) return at;
        }
    }
    return at;
}

/* The n-th name that an argument of a node reads, in quotes; NULL: there are fewer. */
static char *name_read(char *json, int n)
{
    static const char key[] = "\"as_tensor\"";
    char *at = strstr(json, "\"nodes\""), *end = strstr(json, "\"input_specs\"");
    for (; at && (at = strstr(at, key)) != NULL && at < end; at++) {
        const char *before = at;
        while (before > json && strchr("{ :", before[-1])) before--;
        if (before - json < 5 || strncmp(before - 5, "\"arg\"", 5) != 0)
            continue; /* a result: its readers would be at fault */
        char *name = strstr(at, "\"name\"");
        if (!name || name > end_of_object(at + sizeof key - 1)) continue;
        if (n-- == 0) return strchr(name + 6, '"');
    }
    return NULL;
}

/* A name that nothing wrote, in one node after the other: the sentence has the byte at which that node begins. */
static void a_damaged_node_is_named_with_its_byte(void **unused)
{
    (void)unused;
    static char name[MOST_NAMES][NAME];
    const int count = names_of_archives(name);
    int found = 0;
    for (int i = 0; i < count; i++) {
        char path[512], why[AN_IMPORT_WHY] = "", *at;
        snprintf(path, sizeof path, "tests/import/goldens/%.*s", NAME, name[i]);
        an_import *f = an_import_open(path, why);
        assert_non_null(f);
        char *json = an_import_description(f);
        an_import_close(f);
        assert_non_null(json);
        for (int n = 0; n < 40 && (at = name_read(json, n)) != NULL; n += 3) {
            const char first = at[1];
            at[1] = '?';
            f = an_import_open_description("changed", json, strlen(json), why);
            const char *byte = f ? NULL : strstr(why, ", byte ");
            if (!f && strstr(why, "nothing wrote")) {
                unsigned long long start = 0;
                if (!byte || sscanf(byte, ", byte %llu of the text", &start) != 1 || start >= strlen(json) ||
                    json[start] != '{' || at < json + start || at > end_of_object(json + start))
                    fail_msg("%s, name %d at byte %zu: %s", name[i], n, (size_t)(at - json), why);
                found++;
            }
            if (f) an_import_close(f);
            at[1] = first;
        }
        free(json);
    }
    printf("# %d damaged nodes\n", found);
    assert_true(found > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(changed_numbers_are_built_or_refused),
                                       cmocka_unit_test(a_damaged_node_is_named_with_its_byte)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
