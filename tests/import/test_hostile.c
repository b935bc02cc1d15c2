/* test_hostile.c: graphs whose numbers somebody changed: every archive of tests/import/goldens is opened from its description with one to
 * three numbers replaced, bound, and built. It builds or is refused with a sentence, and nothing is read or written outside of anything
 * (a sanitizer sees that: make SAN=address,undefined test T=import/test_hostile). */
#include "lib/test.h"
#include "base/text.h"
#include <anneal_import.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 24, MOST = 256 };

static uint32_t drawn(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

/* The description with a number of a node's arguments replaced: the one behind the n-th "as_int", from some place on. */
static void change(const char *json, uint32_t *state, an_text *out)
{
    static const char *const numbers[] = {"-1", "0", "1",  "2",       "3",          "7",
                                          "8",  "9", "-9", "1048576", "2147483648", "-9223372036854775808"};
    static const char key[] = "\"as_int\":";
    const char *nodes = strstr(json, "\"nodes\""), *from = nodes ? nodes : json;
    from += drawn(state, (uint32_t)strlen(from));
    const char *at = strstr(from, key);
    if (!at && nodes) at = strstr(nodes, key);
    out->len = 0;
    if (!at) {
        an_text_puts(out, json);
        return;
    }
    at += sizeof key - 1;
    at += strspn(at, " ");
    an_text_putn(out, json, (size_t)(at - json));
    an_text_puts(out, numbers[drawn(state, AN_COUNT(numbers))]);
    an_text_puts(out, at + strspn(at, "-0123456789"));
}

/* Whether it was built. */
static bool built(const char *json)
{
    char why[AN_IMPORT_WHY] = "";
    an_tensor *in[MOST], *out[MOST] = {NULL};
    an_import_entry e;
    an_import *f = an_import_open_description("changed", json, strlen(json), why);
    if (!f) return assert_true(*why), false;
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
        assert_true(status == AN_OK || *why);
    }
    an_import_release(m);
    an_import_close(f);
    an_close(cx);
    return status == AN_OK;
}

static void changed_numbers_are_built_or_refused(void **unused)
{
    (void)unused;
    DIR *d = opendir("tests/import/goldens");
    uint32_t state = 1;
    int taken = 0, all = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[512], why[AN_IMPORT_WHY];
        const size_t n = strlen(e->d_name);
        if (n < 5 || strcmp(e->d_name + n - 4, ".pt2") != 0) continue;
        snprintf(path, sizeof path, "tests/import/goldens/%s", e->d_name);
        an_import *f = an_import_open(path, why);
        assert_non_null(f);
        char *json = an_import_description(f);
        assert_non_null(json);
        an_import_close(f);
        (void)built(json); /* of some the constants decide what is built, and a description has none */
        an_text one = {0}, two = {0};
        for (int k = 0; k < ROUNDS; k++) {
            change(json, &state, &one);
            for (uint32_t more = drawn(&state, 3); more > 0; more--) {
                change(one.data, &state, &two);
                an_text swap = one;
                one = two;
                two = swap;
            }
            assert_false(one.failed || two.failed);
            taken += built(one.data);
            all++;
        }
        an_text_free(&one);
        an_text_free(&two);
        free(json);
    }
    closedir(d);
    printf("# %d changed graphs, %d built\n", all, taken);
    assert_true(taken > 0 && taken < all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(changed_numbers_are_built_or_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
