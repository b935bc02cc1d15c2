/* test_bits.c: one hash of parameters and moments, whatever changes only how a step is run: threads, a cold or warm
 * cache, recomputation, fusion, compiler or interpreter, placement. Dropout is on throughout. */
#include "proof/train_case.h"

#include "runtime/context.h"

#include <math.h>

enum { STEPS = 20 };

static const train_case cases[] = {
    {.B = 3, .T = 17, .C = 32, .L = 2, .H = 2, .V = 65, .dropout = 0.2, .bias = true},
    {.B = 4, .T = 32, .C = 64, .L = 1, .H = 4, .V = 300, .dropout = 0.1, .micros = 2},
    {.B = 2, .T = 24, .C = 48, .L = 2, .H = 3, .V = 65, .matmul = AN_BF16, .dropout = 0.1},
};

static an_options base(void)
{
    return (an_options){.device = "cpu", .seed = 42, .threads = 1, .cache_dir = test_path("cache"), .recompute = "off"};
}

/* The plain run's bits, computed once a case. */
static uint64_t want(size_t i)
{
    static uint64_t hash[AN_COUNT(cases)];
    static bool done[AN_COUNT(cases)];
    const an_options o = base();
    double loss = NAN;
    if (!done[i]) {
        hash[i] = case_bits(&cases[i], &o, STEPS, &loss);
        if (!isfinite(loss)) fail_msg("case %zu: the loss is %g", i, loss);
        done[i] = true;
    }
    return hash[i];
}

static void same(const an_options *o, const char *what)
{
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        const uint64_t expected = want(i), got = case_bits(&cases[i], o, STEPS, NULL);
        if (got != expected)
            fail_msg("case %zu, %s: %016llx, the plain run has %016llx", i, what, (unsigned long long)got,
                     (unsigned long long)expected);
    }
}

/* The bill of a case's first step, so that a test sees that its option did something. */
static an_bill bill_of(const train_case *c, const an_options *o)
{
    an_err err = {0};
    an_ctx *cx;
    an_gpt *m;
    an_bill b;
    if (case_open(&err, c, o, &cx, &m) != AN_OK || case_train(&err, cx, m, c, 0, 1, NULL) != AN_OK)
        fail_msg("%s", err.text);
    assert_int_equal(an_report(cx, &b), AN_OK);
    case_close(cx, m);
    return b;
}

static void another_seed_or_no_dropout_gives_other_bits(void **state)
{
    (void)state;
    an_options o = base();
    o.seed = 43;
    assert_true(case_bits(&cases[0], &o, STEPS, NULL) != want(0));
    train_case c = cases[0];
    c.dropout = 0;
    o = base();
    assert_true(case_bits(&c, &o, STEPS, NULL) != want(0));
}

static void two_and_three_threads_give_the_bits_of_one(void **state)
{
    (void)state;
    an_options o = base();
    o.threads = 2;
    same(&o, "2 threads");
    o.threads = 3;
    same(&o, "3 threads");
}

static void a_cold_and_a_warm_cache_give_the_same_bits(void **state)
{
    (void)state;
    an_options o = base();
    o.cache_dir = test_path("another_cache");
    same(&o, "a cold cache");
    assert_int_equal(bill_of(&cases[0], &o).compiled, 0);
    assert_true(bill_of(&cases[0], &o).cached > 5);
    same(&o, "a warm cache");
}

static void recomputing_gives_the_same_bits(void **state)
{
    (void)state;
    an_options o = base();
    o.recompute = "on";
    same(&o, "recompute=on");
}

static void recomputing_saves_memory_with_micro_batches_too(void **state)
{
    (void)state;
    train_case c = cases[0];
    an_options o = base();
    c.micros = 2;
    const uint64_t off = bill_of(&c, &o).peak_bytes, bits = case_bits(&c, &o, STEPS, NULL);
    o.recompute = "on";
    assert_true(bill_of(&c, &o).peak_bytes < off);
    assert_true(case_bits(&c, &o, STEPS, NULL) == bits);
}

static void recomputing_some_of_it_to_fit_a_budget_gives_the_same_bits(void **state)
{
    (void)state;
    an_options o = base();
    const uint64_t off = bill_of(&cases[0], &o).peak_bytes;
    o.recompute = "on";
    const uint64_t on = bill_of(&cases[0], &o).peak_bytes;
    assert_true(on < off);
    o.recompute = "auto";
    for (int part = 0; part < 3; part++) {
        o.budget_bytes = on + (off - on) * (uint64_t)part / 3;
        assert_true(bill_of(&cases[0], &o).peak_bytes <= o.budget_bytes);
        assert_true(case_bits(&cases[0], &o, STEPS, NULL) == want(0));
    }
}

static void unfused_kernels_give_the_same_bits(void **state)
{
    (void)state;
    an_options o = base();
    const int32_t fused = bill_of(&cases[0], &o).launches;
    o.unfused = true;
    assert_true(bill_of(&cases[0], &o).launches > 2 * fused);
    same(&o, "unfused");
}

static void the_interpreter_gives_the_bits_of_the_compiler(void **state)
{
    (void)state;
    an_options o = base();
    assert_true(bill_of(&cases[0], &o).compiled + bill_of(&cases[0], &o).cached >
                5); /* there is a compiler to compare with */
    o.cc = "none";
    assert_int_equal(bill_of(&cases[0], &o).compiled, 0);
    same(&o, "cc=none");
    o.threads = 2;
    o.unfused = true;
    same(&o, "cc=none, unfused, 2 threads");
}

static void values_placed_apart_and_verified_plans_give_the_same_bits(void **state)
{
    (void)state;
    an_options o = base();
    o.verify = true;
    same(&o, "verify");
    o.place_apart = true;
    same(&o, "place_apart");
}

/* Every parameter and moment after one step, as floats, tensor after tensor; *first[i] is where tensor i begins. */
static float *all_values(const train_case *c, size_t first[128], int *tensors)
{
    an_err err = {0};
    an_ctx *cx;
    an_gpt *m;
    const an_options o = base();
    if (case_open(&err, c, &o, &cx, &m) != AN_OK || case_train(&err, cx, m, c, 0, 1, NULL) != AN_OK)
        fail_msg("%s", err.text);
    float *out = NULL;
    first[0] = 0;
    *tensors = an_persist_count(cx);
    assert_in_range(*tensors, 1, 127);
    for (int i = 0; i < *tensors; i++) {
        an_persist p;
        assert_int_equal(an_persist_get(cx, i, &p), AN_OK);
        assert_int_equal(p.dtype, AN_F32);
        size_t n = 1;
        for (int a = 0; a < p.shape.rank; a++) n *= (size_t)p.shape.dim[a];
        out = realloc(out, (first[i] + n) * sizeof *out);
        assert_non_null(out);
        assert_int_equal(an_persist_read(cx, i, out + first[i], n * sizeof *out), AN_OK);
        first[i + 1] = first[i] + n;
    }
    case_close(cx, m);
    return out;
}

/* Streams of dropout number the sample in the whole batch, so only the order of sums differs. Compared tensor by
 * tensor, the moments, which are linear and square in the gradient, included. */
static void micro_batches_equal_one_large_batch_to_rounding(void **state)
{
    (void)state;
    static const double rates[] = {0, 0.2};
    for (size_t r = 0; r < AN_COUNT(rates); r++) {
        train_case c = {.B = 12, .T = 16, .C = 32, .L = 2, .H = 2, .V = 65, .dropout = rates[r]};
        size_t first[128], again[128];
        int n, k;
        double worst = 0;
        float *whole = all_values(&c, first, &n);
        c.B = 3, c.micros = 4;
        float *parts = all_values(&c, again, &k);
        assert_int_equal(n, k);
        for (int t = 0; t < n; t++) {
            double difference = 0, size = 0;
            for (size_t i = first[t]; i < first[t + 1]; i++) {
                difference += ((double)whole[i] - parts[i]) * ((double)whole[i] - parts[i]);
                size += (double)whole[i] * whole[i];
            }
            assert_true(size > 0);
            worst = fmax(worst, sqrt(difference / size));
        }
        print_message("# dropout %g: 4 x 3 against 12: at most %.5g of a tensor's norm\n", rates[r], worst);
        if (!(worst <= 1e-5)) fail_msg("dropout %g: a tensor differs by %g of its norm", rates[r], worst);
        free(whole);
        free(parts);
    }
}

/* A target whose products are a library's: no epilogues, weights cast once in memory, rows of logits on 16 bytes. */
static const an_backend *real;
static const an_target *as_a_library(an_device *d)
{
    static an_target changed;
    changed = *real->target(d);
    changed.library_gemm = true;
    return &changed;
}

/* A case's bits with such a target; *launches: of its last step. */
static uint64_t bits_of_library(const train_case *c, const an_options *o, int64_t *launches)
{
    an_err err = {0};
    an_ctx *cx;
    an_gpt *m;
    an_bill b;
    uint64_t got = 0;
    if (case_open(&err, c, o, &cx, &m) != AN_OK) fail_msg("%s", err.text);
    real = cx->backend;
    an_backend other = *real;
    other.target = as_a_library;
    cx->backend = &other;
    if (case_train(&err, cx, m, c, 0, STEPS, NULL) != AN_OK || case_hash(&err, cx, &got) != AN_OK)
        fail_msg("%s", err.text);
    assert_int_equal(an_report(cx, &b), AN_OK);
    *launches = b.launches;
    case_close(cx, m);
    return got;
}

static void products_laid_out_for_a_library_have_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        const an_options o = base();
        int64_t launches;
        const uint64_t got = bits_of_library(&cases[i], &o, &launches);
        assert_true(launches > bill_of(&cases[i], &o).launches);
        if (got != want(i)) fail_msg("case %zu: %016llx", i, (unsigned long long)got);
    }
}

/* Widths of which no row is whole 16 bytes, so that all that products read and write has rows with gaps: attention's
 * gradients in the gradient of q, k and v, values that are computed again. In float16 a library's weights are rounded,
 * a product of the CPU's takes them as they are: there the two runs are held against one another. */
static void rows_with_gaps_for_a_library_have_the_same_bits(void **state)
{
    (void)state;
    static const train_case odd[] = {
        {.B = 3, .T = 17, .C = 65, .L = 1, .H = 1, .V = 67, .dropout = 0.2, .bias = true},
        {.B = 3, .T = 17, .C = 66, .L = 1, .H = 3, .V = 67, .matmul = AN_BF16, .dropout = 0.1, .micros = 2},
        {.B = 2, .T = 17, .C = 66, .L = 1, .H = 3, .V = 67, .matmul = AN_F16},
    };
    for (size_t i = 0; i < AN_COUNT(odd); i++) {
        an_options o = base();
        int64_t launches;
        const uint64_t plain =
            odd[i].matmul == AN_F16 ? bits_of_library(&odd[i], &o, &launches) : case_bits(&odd[i], &o, STEPS, NULL);
        o.verify = true;
        for (int again = 0; again < 2; again++) {
            o.recompute = again ? "on" : "off";
            const uint64_t got = bits_of_library(&odd[i], &o, &launches);
            if (got != plain) fail_msg("case %zu, recompute=%s: %016llx", i, o.recompute, (unsigned long long)got);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_seed_or_no_dropout_gives_other_bits),
        cmocka_unit_test(two_and_three_threads_give_the_bits_of_one),
        cmocka_unit_test(a_cold_and_a_warm_cache_give_the_same_bits),
        cmocka_unit_test(recomputing_gives_the_same_bits),
        cmocka_unit_test(recomputing_saves_memory_with_micro_batches_too),
        cmocka_unit_test(recomputing_some_of_it_to_fit_a_budget_gives_the_same_bits),
        cmocka_unit_test(unfused_kernels_give_the_same_bits),
        cmocka_unit_test(the_interpreter_gives_the_bits_of_the_compiler),
        cmocka_unit_test(values_placed_apart_and_verified_plans_give_the_same_bits),
        cmocka_unit_test(micro_batches_equal_one_large_batch_to_rounding),
        cmocka_unit_test(products_laid_out_for_a_library_have_the_same_bits),
        cmocka_unit_test(rows_with_gaps_for_a_library_have_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
