/* ARC's published files: whatever the bytes, in front of the first NUL challenges and behind it solutions, every grid that
 * is taken has 1 to 30 rows and columns of colours 0 to 9, and survives its tokens. */
#include "io/data/arc_tasks.h"
#include "fuzz.h"

static void check_grid(const an_arc_grid *g)
{
    int32_t tokens[AN_ARC_CELLS];
    an_arc_grid back;
    FUZZ_CHECK(g->rows >= 1 && g->rows <= AN_ARC_SIDE && g->cols >= 1 && g->cols <= AN_ARC_SIDE);
    for (int i = 0; i < g->rows * g->cols; i++) FUZZ_CHECK(g->cell[i] < AN_ARC_COLOURS);
    an_arc_tokens(g, 0, 0, tokens);
    an_arc_crop(tokens, &back);
    FUZZ_CHECK(an_arc_equal(g, &back));
}

static bool fuzz_one(const char *data, size_t bytes)
{
    an_err err = {0};
    an_arc_tasks t = {0};
    const char *nul = bytes ? memchr(data, 0, bytes) : NULL;
    const size_t n = nul ? (size_t)(nul - data) : bytes;
    an_status status =
        an_arc_tasks_parse(&err, "fuzz", "s", data, n, "solutions", nul ? nul + 1 : NULL, nul ? bytes - n - 1 : 0, &t);
    fuzz_check_sentence(status, &err);
    for (int32_t i = 0; i < t.n_pairs && status == AN_OK; i++) {
        check_grid(&t.pair[i].in);
        check_grid(&t.pair[i].out);
    }
    for (int32_t i = 0; i < t.n && status == AN_OK; i++) {
        const an_arc_task *a = &t.task[i];
        FUZZ_CHECK(a->first >= 0 && a->n_train >= 1 && a->n_test >= 1 &&
                   a->first + a->n_train + a->n_test <= t.n_pairs);
        FUZZ_CHECK(an_arc_tasks_find(&t, a->name, strlen(a->name)) == a);
    }
    an_arc_tasks_free(&t);
    return status == AN_OK;
}

static const fuzz_seed seeds[] = {
    SEED("{\"a\":{\"train\":[{\"input\":[[1,2],[3,4]],\"output\":[[0]]}],\"test\":[{\"input\":[[9]]}]}}\0{\"a\":[[[5]]]"
         "}"),
    SEED(
        "{\"a\":{\"train\":[{\"input\":[[1]],\"output\":[[0]]}],\n\"test\":[{\"input\":[[9]],\"output\":[[2],[3]]}]}}"),
};

static size_t fuzz_seeds(const fuzz_seed **out)
{
    *out = seeds;
    return AN_COUNT(seeds);
}
