/* test_bind.c: states over the caller's memory (anneal_interop.h). */
#include "lib/test.h"
#include <anneal.h>
#include <anneal_interop.h>
#include <stdlib.h>
#include <string.h>

enum { N = 37 };

static an_ctx *open_cpu(void)
{
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .threads = 2});
    assert_non_null(cx);
    assert_null(an_error(cx));
    return cx;
}

static an_tensor *vector(an_ctx *cx, const char *name)
{
    return an_state(cx, name, AN_F32, AN_SHAPE(N), AN_FILL(7));
}

/* out = 3 in + 1 */
static void step(an_ctx *cx)
{
    an_assign(vector(cx, "out"), an_add_num_at(AN_AT, an_mul_num_at(AN_AT, vector(cx, "in"), 3), 1));
    assert_int_equal(an_eval_effects(cx), AN_OK);
    an_reset(cx);
}

static void a_step_reads_and_writes_the_callers_memory_wherever_it_is(void **unused)
{
    (void)unused;
    float from[3][N + 1], to[3][N + 1]; /* from element 0 or 1 on: aligned to 4 bytes, not to more */
    an_bill bill;
    an_ctx *cx = open_cpu();
    for (int k = 0; k < 3; k++) {
        float *in = from[k] + k % 2, *out = to[k] + (k + 1) % 2;
        for (int i = 0; i < N; i++) in[i] = (float)(i * 10 + k), out[i] = -1;
        assert_int_equal(an_bind(vector(cx, "in"), in, N * sizeof(float), AN_READ_ONLY), AN_OK);
        assert_int_equal(an_bind(vector(cx, "out"), out, N * sizeof(float), AN_READ_WRITE), AN_OK);
        step(cx);
        for (int i = 0; i < N; i++) assert_float_equal(out[i], (float)((i * 10 + k) * 3 + 1), 0);
        assert_int_equal(an_report(cx, &bill), AN_OK);
        assert_int_equal(bill.plan_cached, k > 0);
        assert_int_equal(bill.state_bytes, 0);
    }
    an_close(cx);
}

static void an_unbound_state_has_its_own_memory_and_its_initial_values(void **unused)
{
    (void)unused;
    float mine[N] = {0}, is[N];
    an_ctx *cx = open_cpu();
    assert_int_equal(an_bind(vector(cx, "in"), mine, sizeof mine, AN_READ_ONLY), AN_OK);
    step(cx);
    assert_int_equal(an_bind(vector(cx, "in"), NULL, 0, AN_READ_ONLY), AN_OK);
    step(cx);
    assert_int_equal(an_persist_read(cx, an_persist_find(cx, "out"), is, sizeof is), AN_OK);
    for (int i = 0; i < N; i++) assert_float_equal(is[i], 22, 0);
    an_close(cx);
}

static void refused(an_ctx *cx, an_status status, const char *word)
{
    assert_int_not_equal(status, AN_OK);
    assert_non_null(an_error(cx));
    assert_non_null(strstr(an_error(cx), word));
    an_reset(cx);
    an_error_clear(cx);
}

static void what_cannot_be_bound_is_refused_with_a_sentence(void **unused)
{
    (void)unused;
    float mine[2 * N] = {0};
    an_ctx *cx = open_cpu();
    an_tensor *in = vector(cx, "in"), *out = vector(cx, "out");
    refused(cx, an_bind(in, mine, sizeof mine, AN_READ_ONLY), "bytes");
    refused(cx, an_bind(vector(cx, "in"), (char *)mine + 1, N * sizeof(float), AN_READ_ONLY), "aligned");
    refused(cx, an_bind(an_const(cx, AN_F32, 1), mine, 4, AN_READ_ONLY), "no state");
    assert_int_equal(an_bind(in, mine, N * sizeof(float), AN_READ_ONLY), AN_OK);
    assert_int_equal(an_bind(out, mine, N * sizeof(float), AN_READ_ONLY), AN_OK); /* both read */
    refused(cx, an_bind(out, mine + N - 1, N * sizeof(float), AN_READ_WRITE), "overlaps");
    an_assign(in, out);
    refused(cx, an_error_status(cx), "only be read");
    assert_int_equal(an_bind(out, mine + N, N * sizeof(float), AN_READ_WRITE), AN_OK);
    an_close(cx);
    assert_int_equal(an_bind(NULL, mine, 4, AN_READ_ONLY), AN_E_USAGE);
}

static void a_device_with_memory_of_its_own_refuses(void **unused)
{
    (void)unused;
    float mine[N] = {0};
    an_ctx *cx = an_open(&(an_options){.device = "null:cuda"});
    assert_non_null(cx);
    refused(cx, an_bind(vector(cx, "in"), mine, sizeof mine, AN_READ_ONLY), "takes no memory of other programs");
    an_close(cx);
}

/* loss = sum(3 a) + sum(b): an update of sgd with lr 0.5 takes 1.5 from each element of a and 0.5 from each of b. */
static void update(an_ctx *cx)
{
    an_tensor *a = an_param(cx, "a", AN_F32, AN_SHAPE(N), AN_FILL(9)),
              *b = an_param(cx, "b", AN_F32, AN_SHAPE(3), AN_ZEROS);
    an_tensor *loss = an_add_at(AN_AT, an_sum_at(AN_AT, an_mul_num_at(AN_AT, a, 3), AN_ALL, false),
                                an_sum_at(AN_AT, b, AN_ALL, false));
    an_backward(loss);
    an_sgd(cx, 0.5);
    assert_int_equal(an_eval(loss), AN_OK);
    an_reset(cx);
}

static void parameters_are_updated_in_the_callers_memory(void **unused)
{
    (void)unused;
    an_ctx *cx = open_cpu();
    an_param_place a, b;
    for (int late = 0; late < 2; late++) { /* bound before the first update, and to other memory behind it */
        an_param(cx, "a", AN_F32, AN_SHAPE(N), AN_FILL(9));
        an_param(cx, "b", AN_F32, AN_SHAPE(3), AN_ZEROS);
        assert_int_equal(an_param_find(cx, "a", &a), AN_OK);
        assert_int_equal(an_param_find(cx, "b", &b), AN_OK);
        assert_int_equal(a.block, b.block);
        assert_int_equal(a.bytes, N * sizeof(float));
        char *memory = calloc(1, (size_t)a.block_bytes);
        assert_non_null(memory);
        float *mine = (float *)(memory + a.offset), *other = (float *)(memory + b.offset);
        for (int i = 0; i < N; i++) mine[i] = (float)i;
        assert_int_equal(an_bind_block(cx, a.block, memory, (size_t)a.block_bytes), AN_OK);
        update(cx);
        update(cx);
        for (int i = 0; i < N; i++) assert_float_equal(mine[i], (float)i - 3, 0);
        for (int i = 0; i < 3; i++) assert_float_equal(other[i], -1, 0);
        assert_int_equal(an_bind_block(cx, a.block, NULL, 0), AN_OK); /* memory of its own, and its initial values */
        free(memory);
        update(cx);
    }
    float is[N];
    assert_int_equal(an_persist_read(cx, an_persist_find(cx, "a"), is, sizeof is), AN_OK);
    for (int i = 0; i < N; i++) assert_float_equal(is[i], 7.5, 0);
    an_close(cx);
}

static void what_is_no_block_is_refused(void **unused)
{
    (void)unused;
    float mine[N] = {0};
    an_param_place a;
    an_ctx *cx = open_cpu();
    an_param(cx, "a", AN_F32, AN_SHAPE(N), AN_ZEROS);
    refused(cx, an_param_find(cx, "c", &a), "no parameter");
    refused(cx, an_param_find(cx, NULL, &a), "name");
    assert_int_equal(an_param_find(cx, "a", &a), AN_OK);
    refused(cx, an_bind_block(cx, a.block + 1, mine, sizeof mine), "no block");
    refused(cx, an_bind_block(cx, -1, mine, sizeof mine), "no block");
    refused(cx, an_bind_block(cx, a.block, mine, 4), "bytes");
    an_close(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parameters_are_updated_in_the_callers_memory),
                                       cmocka_unit_test(what_is_no_block_is_refused),
                                       cmocka_unit_test(a_step_reads_and_writes_the_callers_memory_wherever_it_is),
                                       cmocka_unit_test(an_unbound_state_has_its_own_memory_and_its_initial_values),
                                       cmocka_unit_test(what_cannot_be_bound_is_refused_with_a_sentence),
                                       cmocka_unit_test(a_device_with_memory_of_its_own_refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
