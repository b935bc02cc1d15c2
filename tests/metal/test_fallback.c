/* test_fallback.c: what an Apple GPU cannot run: refused by name, or run by the CPU where fallback=cpu allows it: on
 * the same memory, with the CPU's bits, counted, and with nothing lost when a command buffer fails around it. */
#define _XOPEN_SOURCE 700 /* setenv */
#include "proof/train_case.h"

#include "metal/world.h"
#include <anneal_tools.h>

/* A product on the GPU, one in float64, a loss in float64, and a state in float64: the CPU runs between
 * launches of the GPU, and it writes state too. */
static an_tensor *half_in_float64(an_ctx *cx, int step)
{
    float x[6 * 4];
    for (int i = 0; i < 6 * 4; i++) x[i] = (float)((i * 7 + step * 3) % 11) / 8 - 0.6f;
    an_set_step(cx, (uint64_t)step);
    an_tensor *in = an_input(cx, AN_F32, AN_SHAPE(6, 4), x);                           /* [6,4] */
    an_tensor *w = an_param(cx, "w", AN_F32, AN_SHAPE(4, 4), ((an_init){2, 0, 0.3}));  /* [4,4] */
    an_tensor *u = an_state(cx, "u", AN_F64, AN_SHAPE(4, 3), ((an_init){1, 0.25, 0})); /* [4,3] */
    an_tensor *h = an_tanh(an_matmul(an_tanh(an_matmul(in, w)), w));                   /* [6,4] */
    an_tensor *y = an_matmul(an_cast(h, AN_F64), u);                                   /* [6,3] */
    an_tensor *loss = an_cast(an_mean(an_log(an_add_num(an_square(y), 1)), AN_ALL), AN_F32);
    an_assign(u, an_add(an_mul_num(u, 0.9), an_cast(an_mean(h, AN_ALL), AN_F64)));
    /* written in place, so by the CPU; u, which the backward pass reads, by a copy of the GPU's */
    an_tensor *v = an_state(cx, "v", AN_F64, AN_SHAPE(6, 3), ((an_init){1, 1, 0})); /* [6,3] */
    an_assign(v, an_add(an_mul_num(v, 0.9), y));
    an_backward(loss);
    an_sgd(cx, 0.5);
    return loss;
}

typedef struct outcome {
    an_status status;
    double loss;
    uint64_t hash;
    an_bill bill;
    char sentence[1024];
} outcome;

typedef an_tensor *step_fn(an_ctx *cx, int step);

static outcome train_by(const an_options *o, step_fn *build, int steps)
{
    outcome out = {0};
    an_err err = {0};
    an_ctx *cx = an_open(o);
    for (int step = 0; step < steps && !an_error(cx); step++) {
        an_tensor *loss = build(cx, step);
        if (an_eval(loss) == AN_OK) out.loss = an_item(loss);
        if (step + 1 < steps && !an_error(cx)) an_reset(cx);
    }
    an_report(cx, &out.bill);
    out.status = an_error_status(cx);
    if (out.status == AN_OK) out.status = case_hash(&err, cx, &out.hash);
    snprintf(out.sentence, sizeof out.sentence, "%s", an_error(cx) ? an_error(cx) : "");
    an_close(cx);
    return out;
}

static outcome train(const char *device, const char *fallback, int steps)
{
    const an_options o = {.device = device, .seed = 5, .threads = 1, .cc = "none", .exact = true, .fallback = fallback};
    return train_by(&o, half_in_float64, steps);
}

static void without_leave_it_is_an_error_that_names_the_operation(void **state)
{
    (void)state;
    world("gpu=apple8,kernels=fast");
    const outcome o = train("metal", "none", 1);
    assert_int_equal(o.status, AN_E_UNSUPPORTED);
    assert_non_null(strstr(o.sentence, "CAST [6,4] built at tests/metal/test_fallback.c:")); /* where float64 begins */
    assert_non_null(strstr(o.sentence, "uses float64, which Apple GPUs do not have"));
    assert_non_null(strstr(o.sentence, "fallback=cpu"));
    nothing_was_wrong();
    const outcome wrong = train("metal", "yes", 1);
    assert_int_equal(wrong.status, AN_E_USAGE);
    assert_non_null(strstr(wrong.sentence, "\"cpu\" or \"none\""));
}

static void with_it_the_cpu_runs_those_steps_to_its_own_bits(void **state)
{
    (void)state;
    enum { STEPS = 5 };
    static const char *const worlds[] = {"gpu=apple7,when=random", "gpu=apple9,macos=26,kernels=fast,when=early"};
    const outcome cpu = train("cpu", NULL, STEPS);
    assert_int_equal(cpu.status, AN_OK);
    assert_int_equal(cpu.bill.fallbacks, 0);
    for (size_t i = 0; i < AN_COUNT(worlds); i++) {
        world(worlds[i]);
        const outcome gpu = train("metal", "cpu", STEPS);
        if (gpu.status != AN_OK) fail_msg("%s: %s", worlds[i], gpu.sentence);
        if (cpu.loss != gpu.loss || cpu.hash != gpu.hash) fail_msg("%s: other bits than the CPU's", worlds[i]);
        assert_true(gpu.bill.fallbacks >= 4 && gpu.bill.fallbacks < gpu.bill.launches);
        assert_true(gpu.bill.fallback_bytes > 0 && gpu.bill.fallback_bytes < gpu.bill.moved_bytes);
        assert_true(gpu.bill.fallback_ms > 0);
        nothing_was_wrong();
    }
}

static void the_plan_counts_them_before_anything_runs(void **state)
{
    (void)state;
    world("gpu=apple8,kernels=fast");
    an_bill planned = {0};
    an_ctx *cx = an_open(&(an_options){.device = "null:metal", .fallback = "cpu"});
    assert_int_equal(an_plan(half_in_float64(cx, 0)), AN_OK);
    assert_int_equal(an_report(cx, &planned), AN_OK);
    assert_non_null(strstr(an_report_text(cx, "plan"), "on the CPU"));
    assert_non_null(strstr(an_report_text(cx, "kernels"), "double"));
    an_close(cx);
    const outcome run = train("metal", "cpu", 1);
    assert_int_equal(run.status, AN_OK);
    assert_int_equal(run.bill.fallbacks, planned.fallbacks);
    assert_int_equal(run.bill.fallback_bytes, planned.fallback_bytes);
    nothing_was_wrong();
}

static void pytorchs_variable_is_heard(void **state)
{
    (void)state;
    world("gpu=apple8,kernels=fast");
    setenv("PYTORCH_ENABLE_MPS_FALLBACK", "1", 1);
    const outcome allowed = train("metal", NULL, 1), refused = train("metal", "none", 1);
    setenv("PYTORCH_ENABLE_MPS_FALLBACK", "0", 1);
    const outcome off = train("metal", NULL, 1);
    unsetenv("PYTORCH_ENABLE_MPS_FALLBACK");
    const outcome unset = train("metal", NULL, 1);
    if (allowed.status != AN_OK) fail_msg("%s", allowed.sentence);
    assert_int_equal(refused.status, AN_E_UNSUPPORTED);
    assert_int_equal(off.status, AN_E_UNSUPPORTED);
    assert_int_equal(unset.status, AN_E_UNSUPPORTED);
    nothing_was_wrong();
}

/* Command buffer j of the run fails, in three forms: the same end, or a sentence; never other parameters. */
static void a_failure_around_the_cpus_turn_loses_nothing(void **state)
{
    (void)state;
    enum { STEPS = 2 };
    static const char *const forms[] = {"nothing", "prefix", "all"};
    world("gpu=apple7,kernels=fast");
    const outcome calm = train("metal", "cpu", STEPS);
    standin_counts all;
    mac->counts(&all);
    assert_int_equal(calm.status, AN_OK);
    assert_true(all.commits >= 2 * STEPS); /* a step is cut where the CPU takes over */
    int recovered = 0, stopped = 0;
    for (int j = 1; j <= (int)all.commits; j++)
        for (size_t f = 0; f < AN_COUNT(forms); f++) {
            char settings[160];
            snprintf(settings, sizeof settings, "gpu=apple7,kernels=fast,seed=%d,fault=commit:%d:%s:timeout", j + 1, j,
                     forms[f]);
            world(settings);
            const outcome o = train("metal", "cpu", STEPS);
            if (o.status == AN_OK && o.hash != calm.hash) fail_msg("with %s the parameters are others", settings);
            if (o.status != AN_OK && !strstr(o.sentence, "checkpoint")) fail_msg("with %s: %s", settings, o.sentence);
            recovered += o.status == AN_OK;
            stopped += o.status != AN_OK;
            nothing_was_wrong();
        }
    assert_true(recovered >= 2 * STEPS); /* what failed before the CPU wrote state is done again */
    assert_true(recovered + stopped == 3 * (int)all.commits);
}

/* Embedding, attention, norms and a product's epilogue in scopes of their own, all in float32. */
static an_tensor *layers(an_ctx *cx, int step)
{
    int32_t id[2 * 8];
    for (int i = 0; i < 2 * 8; i++) id[i] = (i * 5 + step) % 7;
    an_set_step(cx, (uint64_t)step);
    an_tensor *table = an_param(cx, "table", AN_F32, AN_SHAPE(7, 16), AN_NORMAL(0.5)); /* [7,16] */
    an_tensor *w = an_param(cx, "w", AN_F32, AN_SHAPE(16, 16), AN_NORMAL(0.3));        /* [16,16] */
    an_tensor *x = an_gather(table, an_input(cx, AN_I32, AN_SHAPE(2, 8), id));         /* [2,8,16] */
    an_scope_push(cx, "attention");
    an_tensor *q =
        an_permute(an_reshape(an_layer_norm(x, NULL, NULL, 1e-5), AN_SHAPE(2, 8, 2, 8)), AN_SHAPE(0, 2, 1, 3));
    x = an_add(x, an_reshape(an_permute(an_attention(q, q, q, 0, true, 0), AN_SHAPE(0, 2, 1, 3)), AN_SHAPE(2, 8, 16)));
    an_scope_pop(cx);
    an_scope_push(cx, "mlp");
    x = an_add(x, an_gelu(an_linear(x, w, NULL)));
    an_scope_pop(cx);
    an_tensor *loss = an_mean(an_square(x), AN_ALL);
    an_backward(loss);
    an_adamw(cx, ((an_adamw_options){.lr = 1e-2}));
    return loss;
}

static void what_is_placed_on_the_cpu_runs_there_and_is_counted(void **state)
{
    (void)state;
    static const char *const places[] = {"optimizer", "attention", "mlp,optimizer", "*"};
    an_options o = {.device = "cpu", .seed = 5, .threads = 1, .cc = "none", .exact = true};
    const outcome cpu = train_by(&o, layers, 4);
    int most = 0;
    for (size_t i = 0; i < AN_COUNT(places); i++) {
        world("gpu=apple8,kernels=fast");
        o.device = "metal";
        o.on_cpu = places[i];
        const outcome gpu = train_by(&o, layers, 4);
        if (gpu.status != AN_OK) fail_msg("%s: %s", places[i], gpu.sentence);
        if (cpu.loss != gpu.loss || cpu.hash != gpu.hash) fail_msg("%s: other bits than the CPU's", places[i]);
        assert_true(gpu.bill.fallbacks > 0 && gpu.bill.fallback_bytes > 0 && gpu.bill.fallback_ms > 0);
        if (i > 0 && i + 1 < AN_COUNT(places)) assert_true(gpu.bill.fallbacks < gpu.bill.launches);
        most = AN_MAX(most, gpu.bill.fallbacks);
        nothing_was_wrong();
        o.device = "null:metal";
        an_bill planned = {0};
        an_ctx *cx = an_open(&o);
        assert_int_equal(an_plan(layers(cx, 0)), AN_OK);
        assert_int_equal(an_report(cx, &planned), AN_OK);
        assert_int_equal(planned.fallbacks, gpu.bill.fallbacks);
        an_close(cx);
    }
    assert_true(most >= cpu.bill.launches / 2);
}

/* What a plan for an Apple GPU says of `on_cpu`: which of its launches are there, which scopes no launch has. */
static void what_is_placed_is_told_apart(void **state)
{
    (void)state;
    static const struct {
        const char *on_cpu, *unplaced;
    } cases[] = {
        {"optimizer", NULL}, {"mlp,optimi?er", NULL}, {"nowhere", "nowhere"}, {"mlp,a.*,optimizer,b", "a.*, b"}};
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        const an_options o = {.device = "null:metal", .on_cpu = cases[i].on_cpu};
        an_ctx *cx = an_open(&o);
        assert_int_equal(an_plan(layers(cx, 0)), AN_OK);
        const char *unplaced = an_planned_unplaced(cx);
        if (!cases[i].unplaced)
            assert_null(unplaced);
        else
            assert_string_equal(unplaced, cases[i].unplaced);
        const an_cpu_launches n = an_planned_on_cpu(cx);
        int placed = 0, turns = 0;
        bool before = false;
        for (int l = 0; l < an_planned_launch_count(cx); l++) {
            an_launch launch;
            assert_true(an_planned_launch_get(cx, l, &launch));
            placed += launch.placed;
            turns += launch.fallback && !before;
            before = launch.fallback;
        }
        assert_true(n.all == n.placed && n.placed == placed && n.turns == turns && n.turns <= n.all);
        assert_int_equal(n.all > 0, i != 2);
        an_close(cx);
    }
}

static void a_device_of_its_own_memory_places_nothing_and_says_so(void **state)
{
    (void)state;
    an_options o = {.device = "cpu", .seed = 5, .threads = 1, .cc = "none", .exact = true};
    const outcome without = train_by(&o, layers, 2);
    o.on_cpu = "optimizer,nowhere";
    const outcome with = train_by(&o, layers, 2);
    assert_int_equal(with.status, AN_OK);
    assert_true(with.loss == without.loss && with.hash == without.hash && with.bill.fallbacks == 0);
    an_ctx *cx = an_open(&o);
    assert_non_null(strstr(an_report_text(cx, "warning"), "an Apple GPU alone"));
    assert_null(an_planned_unplaced(cx));
    an_close(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_leave_it_is_an_error_that_names_the_operation),
        cmocka_unit_test(with_it_the_cpu_runs_those_steps_to_its_own_bits),
        cmocka_unit_test(the_plan_counts_them_before_anything_runs),
        cmocka_unit_test(pytorchs_variable_is_heard),
        cmocka_unit_test(what_is_placed_on_the_cpu_runs_there_and_is_counted),
        cmocka_unit_test(what_is_placed_is_told_apart),
        cmocka_unit_test(a_device_of_its_own_memory_places_nothing_and_says_so),
        cmocka_unit_test(a_failure_around_the_cpus_turn_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
