/* test_dependencies.c: the dependencies that ir/dependencies.h finds are enough: a training step whose launches are done in any
 * order that keeps them has the bits of the plan's own order, with values that take over one another's memory. And they
 * are needed: without them the bits are others. The CPU runs the plan; its steps are put into another order between
 * planning and loading. */
#define _DEFAULT_SOURCE
#include "proof/train_case.h"

#include "comm/comm.h"
#include "runtime/context.h"

#include <anneal_tools.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
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

static an_comm *joined; /* NULL: a process alone */

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
    if (joined) {
        const an_gpt_config model = case_model(c);
        cx = an_open(&o);
        assert_non_null(cx);
        assert_int_equal(an_join(cx, joined), AN_OK);
        m = an_gpt_open(cx, &model);
        assert_non_null(m);
    } else {
        assert_int_equal(case_open(&err, c, &o, &cx, &m), AN_OK);
    }
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
    an_kernel kernel = {.kind = AN_KERNEL_LOOP};
    const an_plan p = {.n_steps = 4, .step = step, .n_values = 3, .value = value, .n_kernels = 1, .kernel = &kernel};
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

/* The parts of a concatenated value have their rows interleaved in memory; gradients in a block do not. */
static void of_a_part_of_a_joined_value_the_whole_counts(void **state)
{
    an_arg part = {.value = 1, .bytes = 8, .written = true}, other = {.value = 2, .bytes = 8};
    an_value value[3] = {{.bytes = 64, .inside = -1, .usage = AN_USE_ACTIVATION},
                         {.bytes = 8, .inside = 0, .usage = AN_USE_ACTIVATION},
                         {.offset = 32, .bytes = 8, .inside = -1, .usage = AN_USE_ACTIVATION}};
    an_plan_step step[2] = {{.arg = &other, .n_args = 1, .scratch = -1}, {.arg = &part, .n_args = 1, .scratch = -1}};
    an_kernel kernel = {.kind = AN_KERNEL_LOOP};
    const an_plan p = {.n_steps = 2, .step = step, .n_values = 3, .value = value, .n_kernels = 1, .kernel = &kernel};
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

/* ---- several ranks */

/* A model whose gradients are several buckets. */
static const train_case wide = {.B = 1, .T = 8, .C = 128, .L = 3, .H = 2, .V = 2000};

/* The plan of an update of one rank of two, without running it; `kept`: with gradients of micro-batches before. */
static const an_plan *plan_of_two(an_comm *comm, an_shard shard, bool overlap, bool kept, an_ctx **cx, an_gpt **m)
{
    const an_gpt_config model = case_model(&wide);
    *cx = an_open(&(an_options){.device = "null:cuda", .seed = 1});
    assert_non_null(*cx);
    assert_int_equal(an_join(*cx, comm), AN_OK);
    assert_int_equal(an_shard_optimizer(*cx, shard), AN_OK);
    an_overlap_exchanges(*cx, overlap);
    *m = an_gpt_open(*cx, &model);
    assert_non_null(*m);
    an_tensor *loss = case_build(*cx, *m, &wide, 0, 0);
    if (kept) { /* the parameters have their places now */
        an_reset(*cx);
        an_assume_kept_gradients(*cx, true);
        loss = case_build(*cx, *m, &wide, 0, 0);
    }
    assert_non_null(loss);
    if (an_plan(loss) != AN_OK) fail_msg("shard %d, kept %d: %s", (int)shard, kept, an_error(*cx));
    return (*cx)->last->plan;
}

static bool is_sum(const an_plan *p, int32_t s)
{
    const an_kernel *k = &p->kernel[p->step[s].kernel];
    return k->kind == AN_KERNEL_CALL &&
           (k->u.call.op == AN_OP_ALLREDUCE || (k->u.call.op == AN_OP_REDUCESCATTER && k->u.call.attr[2] > 0));
}

/* Marks the steps that step s waits for, directly or not. */
static void wait_for(const an_dependencies *after, int32_t s, bool *waits)
{
    for (int32_t a = after->first[s]; a < after->first[s + 1]; a++) {
        if (waits[after->step[a]]) continue;
        waits[after->step[a]] = true;
        wait_for(after, after->step[a], waits);
    }
}

/* Whether step s writes in this value, or in what is inside of it. */
static bool writes_in(const an_plan *p, int32_t s, int32_t block)
{
    for (int a = 0; a < p->step[s].n_args; a++) {
        int32_t v = p->step[s].arg[a].written ? p->step[s].arg[a].value : -1;
        for (; v >= 0 && v != block; v = p->value[v].inside) continue;
        if (v >= 0) return true;
    }
    return false;
}

/* Whether step s computes gradients of a block, or of a piece of it. */
static bool writes_gradients(const an_plan *p, int32_t s)
{
    for (int a = 0; a < p->step[s].n_args; a++) {
        const an_arg *x = &p->step[s].arg[a];
        if (x->written && x->value >= 0 && p->value[x->value].usage == AN_USE_GRADIENT) return true;
    }
    return false;
}

/* Whether launches s and t may run at one time. */
static bool may_run_beside(const an_plan *p, const an_dependencies *after, int32_t s, int32_t t)
{
    bool *waits = calloc((size_t)p->n_steps + 1, sizeof *waits);
    assert_non_null(waits);
    wait_for(after, AN_MAX(s, t), waits);
    const bool beside = s != t && !waits[AN_MIN(s, t)];
    free(waits);
    return beside;
}

/* How many launches that write gradients of its block may run beside the first sum over ranks. */
static int count_beside_the_first_sum(an_shard shard, bool overlap, bool kept, int *sums, uint64_t *peak)
{
    an_err err = {0};
    an_arena arena = {0};
    an_dependencies after;
    an_comm *comm;
    an_ctx *cx;
    an_gpt *m;
    int32_t first = -1;
    int beside = 0;
    assert_int_equal(an_comm_new(&err, 2, &comm), AN_OK);
    an_comm_become(comm, 0);
    const an_plan *p = plan_of_two(comm, shard, overlap, kept, &cx, &m);
    *peak = p->bill.peak_bytes;
    *sums = 0;
    for (int32_t s = 0; s < p->n_steps; s++) {
        if (!is_sum(p, s)) continue;
        if (first < 0) first = s;
        ++*sums;
    }
    assert_true(first > 0);
    assert_int_equal(an_dependencies_make(&err, p, NULL, &arena, &after), AN_OK);
    for (int32_t s = 0; s < p->n_steps; s++)
        beside += (overlap ? writes_gradients(p, s) : writes_in(p, s, p->step[first].arg[0].value)) &&
                  may_run_beside(p, &after, s, first);
    an_arena_free(&arena);
    case_close(cx, m);
    an_comm_close(comm);
    return beside;
}

static void the_first_gradients_are_exchanged_beside_the_backward_pass(void **state)
{
    /* Sums of parts also wait for the last owner of their memory; gathers of weights wait for sums that were begun before. */
    const int least[] = {10, 5, 5, 3};
    int sums, other;
    uint64_t peak, apart;
    (void)state;
    for (int i = 0; i < 2 * (AN_SHARD_WEIGHTS + 1); i++) {
        const an_shard shard = (an_shard)(i / 2);
        const bool kept = i % 2;
        const int beside = count_beside_the_first_sum(shard, true, kept, &sums, &peak);
        assert_true(sums > 3);
        assert_true(beside > least[shard]);
        assert_int_equal(count_beside_the_first_sum(shard, false, kept, &other, &apart), 0);
        assert_int_equal(sums, other);
        assert_true(shard == AN_SHARD_NONE ? peak == apart : peak < apart); /* pieces are free behind their exchange */
    }
}

/* The bits of a rank whose launches are done in an order of its own that keeps the dependencies. */
static void each_rank_in_an_order_of_its_own_gives_the_bits_of_the_plans(void **state)
{
    enum { RANKS = 2 };
    uint64_t *hash =
        mmap(NULL, sizeof *hash * RANKS * (ORDERS + 1), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    (void)state;
    assert_true(hash != MAP_FAILED);
    for (int k = 0; k <= ORDERS; k++) {
        an_err err = {0};
        an_comm *comm;
        pid_t pid[RANKS];
        assert_int_equal(an_comm_new(&err, RANKS, &comm), AN_OK);
        fflush(NULL);
        for (int r = 0; r < RANKS; r++)
            if ((pid[r] = fork()) == 0) {
                alarm(120);
                an_comm_become(comm, r);
                shuffle.seed = (uint64_t)(k * RANKS + r + 1);
                joined = comm;
                hash[k * RANKS + r] = bits(&wide, "off", k > 0);
                _exit(k == 0 || shuffle.moved > 0 ? 0 : 1);
            }
        for (int r = 0; r < RANKS; r++) {
            int status;
            assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
            assert_int_equal(status, 0);
            assert_true(hash[k * RANKS + r] == hash[0]);
        }
        an_comm_close(comm);
    }
    munmap(hash, sizeof *hash * RANKS * (ORDERS + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_waits_for_the_nearest_alone),
        cmocka_unit_test(of_a_part_of_a_joined_value_the_whole_counts),
        cmocka_unit_test(launches_in_any_order_that_keeps_the_dependencies_give_the_plans_bits),
        cmocka_unit_test(the_first_gradients_are_exchanged_beside_the_backward_pass),
        cmocka_unit_test(each_rank_in_an_order_of_its_own_gives_the_bits_of_the_plans),
        cmocka_unit_test(without_the_dependencies_the_bits_are_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
