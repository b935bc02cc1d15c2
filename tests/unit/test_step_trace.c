/* test_step_trace.c: an update told stage by stage adds up to its plan; changes of backend are told apart. */
#include "lib/gpt_settings.h"
#include "lib/test.h"

#include "tools/step_trace.h"
#include <anneal_tools.h>
#include <stdio.h>
#include <string.h>

/* Opens, plans and tells an update of a small GPT on a device. */
static void trace_on(const char *device, an_dtype dtype, int64_t micro_batches, an_bill *bill, an_step_trace *out)
{
    an_err err = {0};
    an_train_config c;
    an_session *r;
    an_estimate p;
    if (an_train_config_open(&err, "demo", &c) != AN_OK) fail_msg("%s", err.text);
    GPT(c)->n_layer = 2;
    GPT(c)->n_head = 2;
    GPT(c)->n_embd = 32;
    GPT(c)->block_size = 16;
    c.batch_size = 4;
    c.dtype = dtype;
    c.gradient_accumulation_steps = micro_batches;
    c.log_interval = 7;
    snprintf(c.device, sizeof c.device, "%s", device);
    if (an_session_open(&err, &c, NULL, AN_RUN_DATA | AN_RUN_PARAMETERS_ONLY, &r) != AN_OK) fail_msg("%s", err.text);
    if (an_estimate_run(&err, r, &p) != AN_OK) fail_msg("%s", err.text);
    an_step_trace_make(r, &p, out);
    *bill = p.bill;
    an_session_close(r);
}

static void the_stages_add_up_to_the_plan(void **state)
{
    (void)state;
    static const an_dtype dtypes[] = {AN_F32, AN_BF16, AN_F16};
    for (size_t d = 0; d < AN_COUNT(dtypes); d++)
        for (int64_t micros = 1; micros <= 3; micros += 2) {
            an_bill bill;
            an_step_trace t;
            uint64_t flops = 0;
            int launches = 0;
            trace_on("cpu", dtypes[d], micros, &bill, &t);
            for (int i = 0; i < AN_N_STAGES; i++) {
                flops += t.stage[i].flops;
                launches += t.stage[i].launches;
                assert_true(*t.stage[i].waits && *t.stage[i].fails);
            }
            assert_int_equal(launches, bill.launches);
            assert_int_equal(flops, bill.flops);
            /* A backward pass multiplies twice for each product of the forward pass. */
            const double ratio = (double)t.stage[AN_STAGE_BACKWARD].flops / (double)t.stage[AN_STAGE_FORWARD].flops;
            if (ratio < 1.5 || ratio > 3) fail_msg("backward is %g of forward", ratio);
            assert_true(t.stage[AN_STAGE_UPDATE].launches >= 2);
            assert_true(t.stage[AN_STAGE_UPDATE].flops < t.stage[AN_STAGE_FORWARD].flops);
            assert_int_equal(t.stage[AN_STAGE_FORWARD].times, micros);
            assert_int_equal(t.stage[AN_STAGE_UPDATE].times, 1);
            assert_int_equal(t.stage[AN_STAGE_READ].per_updates, 7);
        }
}

static void one_processor_has_no_changes_and_a_gpu_has_the_deliberate_ones(void **state)
{
    (void)state;
    an_bill bill;
    an_step_trace t;
    trace_on("cpu", AN_F32, 1, &bill, &t);
    assert_false(t.apart || t.stage[AN_STAGE_MOVE].boundary || t.stage[AN_STAGE_READ].boundary);
    assert_int_equal(t.n_hot, 0);
    trace_on("null:cuda", AN_F32, 1, &bill, &t);
    assert_true(t.apart && t.stage[AN_STAGE_MOVE].boundary && t.stage[AN_STAGE_READ].boundary);
    assert_int_equal(t.n_hot, 0);
    assert_int_equal(t.n_crossing, 0);
}

static void rows_of_fallbacks_are_changes_on_the_hot_path(void **state)
{
    (void)state;
    enum { LAUNCHES = 64 };
    static const char cpu[] = "..cc.c..c";
    an_step_trace t = {.apart = true};
    for (int i = 0; cpu[i]; i++)
        an_step_trace_add(&t, i,
                          &(an_launch){.kernel = "k",
                                       .scope = i < 4 ? "a.b" : "",
                                       .phase = "backward",
                                       .bytes = 10,
                                       .fallback = cpu[i] == 'c'});
    assert_int_equal(t.n_hot, 6);
    assert_int_equal(t.n_crossing, 3);
    assert_true(t.crossing[0].first == 2 && t.crossing[0].last == 3 && t.crossing[0].bytes == 20);
    assert_string_equal(t.crossing[0].scope, "a.b");
    assert_string_equal(t.crossing[1].scope, "k");
    assert_int_equal(t.crossing[2].last, 8);
    assert_int_equal(t.stage[AN_STAGE_BACKWARD].fallbacks, 4);
    an_step_trace many = {.apart = true};
    for (int i = 0; i < LAUNCHES; i++)
        an_step_trace_add(&many, i,
                          &(an_launch){.kernel = "k", .scope = "s", .phase = "forward", .fallback = i % 2 == 0});
    assert_int_equal(many.n_hot, LAUNCHES);
    assert_int_equal(many.n_crossing, AN_TRACE_CROSSINGS);
    assert_int_equal(many.crossing[AN_TRACE_CROSSINGS - 1].first, 2 * (AN_TRACE_CROSSINGS - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_stages_add_up_to_the_plan),
        cmocka_unit_test(one_processor_has_no_changes_and_a_gpu_has_the_deliberate_ones),
        cmocka_unit_test(rows_of_fallbacks_are_changes_on_the_hot_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
