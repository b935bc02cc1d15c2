/* test_dependencies.c: the dependencies that ir/dependencies.h finds are enough: a training step whose launches are done in any
 * order that keeps them has the bits of the plan's own order, with values that take over one another's memory. And they
 * are needed: without them the bits are others. The CPU runs the plan; its steps are put into another order between
 * planning and loading. */
#include "proof/train_case.h"

#include "runtime/context.h"
#include "ir/dependencies.h"

enum { STEPS = 6, ORDERS = 4, MOST_PLANS = 64 };

static const train_case cases[] = {
    {.B = 3, .T = 17, .C = 32, .L = 3, .H = 2, .V = 65, .dropout = 0.2, .bias = true},
    {.B = 2, .T = 16, .C = 64, .L = 2, .H = 4, .V = 300, .micros = 2},
    {.B = 2, .T = 24, .C = 48, .L = 2, .H = 3, .V = 65, .matmul = AN_BF16, .dropout = 0.1},
};

static struct {
    const an_backend *backend;
    an_plan *plan[MOST_PLANS]; /* reordered ones, alive as long as their contexts */
    int n;
    uint64_t seed;
    bool free_for_all; /* any order at all */
    int moved;         /* steps that are not where the plan had them */
} shuffle;

static uint32_t word(void)
{
    shuffle.seed = shuffle.seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(shuffle.seed >> 33);
}

static bool may_run(const an_dependencies *after, const bool *done, int32_t s)
{
    for (int32_t a = after->first[s]; a < after->first[s + 1]; a++)
        if (!done[after->step[a]]) return false;
    return true;
}

static an_status load_shuffled(an_err *err, an_device *d, const an_plan *p, an_exec **out, an_load_stats *stats)
{
    an_plan *other = malloc(sizeof *other);
    an_arena arena = {0};
    an_dependencies after;
    assert_non_null(other);
    assert_true(shuffle.n < MOST_PLANS);
    *other = *p;
    other->step = calloc((size_t)p->n_steps + 1, sizeof *other->step);
    shuffle.plan[shuffle.n++] = other;
    bool *done = calloc((size_t)p->n_steps + 1, sizeof *done);
    int32_t *ready = calloc((size_t)p->n_steps + 1, sizeof *ready);
    assert_true(other->step && done && ready);
    assert_int_equal(an_dependencies_make(err, p, NULL, &arena, &after), AN_OK);
    for (int32_t n = 0; n < p->n_steps; n++) {
        int32_t n_ready = 0;
        for (int32_t s = 0; s < p->n_steps; s++)
            if (!done[s] && (shuffle.free_for_all || may_run(&after, done, s))) ready[n_ready++] = s;
        assert_true(n_ready > 0);
        const int32_t s = ready[word() % (uint32_t)n_ready];
        done[s] = true;
        other->step[n] = p->step[s];
        shuffle.moved += s != n;
    }
    free(done);
    free(ready);
    an_arena_free(&arena);
    return shuffle.backend->load(err, d, other, out, stats);
}

static uint64_t bits(const train_case *c, const char *recompute, bool shuffled)
{
    an_err err = {0};
    an_ctx *cx;
    an_gpt *m;
    uint64_t hash = 0;
    const an_options o = {
        .device = "cpu", .seed = 42, .threads = 1, .cache_dir = test_path("cache"), .recompute = recompute};
    an_backend between;
    shuffle.moved = 0;
    assert_int_equal(case_open(&err, c, &o, &cx, &m), AN_OK);
    if (shuffled) {
        shuffle.backend = cx->backend;
        between = *cx->backend;
        between.load = load_shuffled;
        cx->backend = &between;
    }
    assert_int_equal(case_train(&err, cx, m, c, 0, STEPS, NULL), AN_OK);
    assert_int_equal(case_hash(&err, cx, &hash), AN_OK);
    case_close(cx, m);
    for (; shuffle.n > 0; shuffle.n--) {
        free(shuffle.plan[shuffle.n - 1]->step);
        free(shuffle.plan[shuffle.n - 1]);
    }
    return hash;
}

static void launches_in_any_order_that_keeps_the_dependencies_give_the_plans_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < AN_COUNT(cases); i++)
        for (int recompute = 0; recompute < 2; recompute++) {
            const char *how = recompute ? "on" : "off";
            const uint64_t expected = bits(&cases[i], how, false);
            for (int k = 0; k < ORDERS; k++) {
                shuffle.seed = (uint64_t)k + 1;
                const uint64_t got = bits(&cases[i], how, true);
                assert_true(shuffle.moved > 0);
                if (got != expected)
                    fail_msg("case %zu, recompute=%s, order %d: %016llx, the plan's own has %016llx", i, how, k,
                             (unsigned long long)got, (unsigned long long)expected);
            }
        }
}

static void without_the_dependencies_the_bits_are_others(void **state)
{
    (void)state;
    shuffle.free_for_all = true;
    shuffle.seed = 1;
    assert_true(bits(&cases[0], "off", true) != bits(&cases[0], "off", false));
    shuffle.free_for_all = false;
}

/* A chain has one dependency a step; what is independent has none. */
static void a_step_waits_for_the_nearest_alone(void **state)
{
    an_arg chain[3][2] = {{{.value = 0, .bytes = 8}, {.value = 1, .bytes = 8, .written = true}},
                          {{.value = 1, .bytes = 8}, {.value = 2, .bytes = 8, .written = true}},
                          {{.value = 2, .bytes = 8}, {.value = 1, .bytes = 8, .written = true}}};
    an_value value[3] = {{.offset = 0, .bytes = 8, .inside = -1},
                         {.offset = 256, .bytes = 8, .inside = -1},
                         {.offset = 512, .bytes = 8, .inside = -1}};
    an_plan_step step[4] = {{.arg = chain[0], .n_args = 2, .scratch = -1},
                            {.arg = chain[1], .n_args = 2, .scratch = -1},
                            {.arg = chain[2], .n_args = 2, .scratch = -1},
                            {.n_args = 0, .scratch = 256, .scratch_bytes = 4}};
    const an_plan p = {.n_steps = 4, .step = step, .n_values = 3, .value = value};
    const int64_t none[4] = {0};
    an_arena arena = {0};
    an_dependencies after;
    an_err err = {0};
    (void)state;
    assert_int_equal(an_dependencies_make(&err, &p, NULL, &arena, &after), AN_OK);
    const int32_t first[] = {0, 0, 1, 2, 3}, on[] = {0, 1, 2};
    assert_memory_equal(after.first, first, sizeof first);
    assert_memory_equal(after.step, on, sizeof on);
    assert_true(!after.last[0] && !after.last[1] && !after.last[2] && after.last[3]);
    assert_int_equal(an_dependencies_make(&err, &p, none, &arena, &after), AN_OK); /* scratch that is not touched */
    assert_int_equal(after.first[4], 2);
    assert_true(after.last[2] && after.last[3]);
    an_arena_free(&arena);
}

/* Rows of a joined value's parts stand between one another; gradients in a block do not. */
static void of_a_part_of_a_joined_value_the_whole_counts(void **state)
{
    an_arg part = {.value = 1, .bytes = 8, .written = true}, other = {.value = 2, .bytes = 8};
    an_value value[3] = {{.bytes = 64, .inside = -1, .usage = AN_USE_ACTIVATION},
                         {.bytes = 8, .inside = 0, .usage = AN_USE_ACTIVATION},
                         {.offset = 32, .bytes = 8, .inside = -1, .usage = AN_USE_ACTIVATION}};
    an_plan_step step[2] = {{.arg = &other, .n_args = 1, .scratch = -1}, {.arg = &part, .n_args = 1, .scratch = -1}};
    const an_plan p = {.n_steps = 2, .step = step, .n_values = 3, .value = value};
    an_arena arena = {0};
    an_dependencies after;
    an_err err = {0};
    (void)state;
    assert_int_equal(an_dependencies_make(&err, &p, NULL, &arena, &after), AN_OK);
    assert_int_equal(after.first[2], 1);
    value[1].usage = AN_USE_GRADIENT;
    assert_int_equal(an_dependencies_make(&err, &p, NULL, &arena, &after), AN_OK);
    assert_int_equal(after.first[2], 0);
    an_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_waits_for_the_nearest_alone),
        cmocka_unit_test(of_a_part_of_a_joined_value_the_whole_counts),
        cmocka_unit_test(launches_in_any_order_that_keeps_the_dependencies_give_the_plans_bits),
        cmocka_unit_test(without_the_dependencies_the_bits_are_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
