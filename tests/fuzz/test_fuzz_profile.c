/* Two profiles, as `anneal profile --diff` takes them: a line of JSON, and behind the line's end the other; one alone is
 * compared with itself. What is taken has its numbers in range, and says so in JSON that is read again. */
#include "fuzz.h"
#include "report/profile_diff.h"

static bool fuzz_one(const char *data, size_t bytes)
{
    an_err err = {0};
    json_t *j[2] = {NULL, NULL};
    an_profile_diff d = {0};
    const char *end = bytes ? memchr(data, '\n', bytes) : NULL;
    const size_t first = end ? (size_t)(end - data) : bytes, behind = end ? bytes - first - 1 : 0;
    an_status status = an_json_parse(&err, "a", 0, data, first, &j[0]);
    if (status == AN_OK && behind > 0) status = an_json_parse(&err, "b", 0, end + 1, behind, &j[1]);
    if (status == AN_OK) {
        status = an_profile_diff_make(&err, j[0], behind > 0 ? j[1] : j[0], "a", "b", &d);
        fuzz_check_sentence(status, &err);
    }
    if (status == AN_OK) {
        an_text out = {0};
        json_t *again;
        FUZZ_CHECK(d.n > 0 && d.n <= 2 * AN_PROFILE_MOST_LAUNCHES);
        for (int i = 0; i < AN_PROFILE_TOP; i++) FUZZ_CHECK(d.top[i] >= -1 && d.top[i] < d.n);
        FUZZ_CHECK(an_profile_verdict_name(d.verdict) && an_profile_verdict_text(d.verdict));
        an_text_puts(&out, "{");
        an_profile_diff_json(&d, &out);
        an_text_puts(&out, "}");
        FUZZ_CHECK(!out.failed);
        if (an_json_parse(&err, "diff", 0, out.data, out.len, &again) != AN_OK) {
            fprintf(stderr, "%s: %s\n", err.text, out.data);
            abort();
        }
        json_decref(again);
        an_text_free(&out);
    }
    an_profile_diff_free(&d);
    json_decref(j[0]);
    json_decref(j[1]);
    return status == AN_OK;
}

#define HEAD(day, ms)                                                                                                  \
    "{\"schema\":1,\"preset\":\"demo\",\"device\":\"cpu\",\"time\":\"2026-11-" day "T00:00:00Z\",\"step_ms\":" ms      \
    ",\"data_ms\":1,\"device_ms\":2,\"launches\":["
#define OP(name, us)                                                                                                   \
    "{\"kernel\":\"" name "\",\"scope\":\"h.0\",\"kind\":\"product\",\"phase\":\"forward\",\"shape\":\"4x4x4 "         \
    "f32\",\"device_us\":" us ",\"share_of_roof\":0.5}"
static const fuzz_seed seeds[] = {
    SEED(HEAD("01", "9") OP("h.0.mlp", "1000") "," OP("norm_rows_3", "1e3") "]}"),
    SEED(HEAD("01", "9") OP("h.0.mlp", "10") "," OP("a", "2") "]}\n" HEAD("28", "1e300") OP("h.1.mlp", "1e300") "]}"),
};

static size_t fuzz_seeds(const fuzz_seed **out)
{
    *out = seeds;
    return AN_COUNT(seeds);
}
