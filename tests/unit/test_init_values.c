/* test_init_values.c: initial values of every instruction set against the scalar generator, bit for bit, wherever a piece
 * begins; and what a context draws does not depend on its threads. */
#include "lib/test.h"

#include "base/exact.h"
#include "base/map.h"
#include "base/rng.h"
#include "kernels/cpu_kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 2600 }; /* more than two runs and a rest */

static double element(const an_init_spec *d, uint64_t i)
{
    if (d->kind == AN_DRAW_NORMAL) return d->a * (double)an_rng_normal(d->key, d->stream, i);
    if (d->kind == AN_DRAW_UNIFORM) return d->a + (d->b - d->a) * (double)an_rng_uniform(d->key, d->stream, i);
    return d->a;
}

static void put(int dtype, double x, char *at)
{
    const float f = (float)x;
    const uint16_t half = (uint16_t)(dtype == AN_BF16 ? an_f32_to_bf16(f) : an_f32_to_f16(f));
    const int32_t i = (int32_t)x;
    const int64_t l = (int64_t)x;
    const uint8_t c = dtype == AN_BOOL ? x != 0 : (uint8_t)x;
    const void *from[AN_N_DTYPES] = {[AN_F32] = &f, [AN_F64] = &x, [AN_BF16] = &half, [AN_F16] = &half,
                                     [AN_I32] = &i, [AN_I64] = &l, [AN_U8] = &c,      [AN_BOOL] = &c};
    memcpy(at, from[dtype], an_dtype_size((an_dtype)dtype));
}

static void every_instruction_set_draws_the_scalar_generators_bits(void **state)
{
    (void)state;
    static const an_init_spec kinds[] = {
        {.kind = AN_DRAW_CONSTANT, .a = 3.7},
        {.kind = AN_DRAW_CONSTANT, .a = -0.0},
        {.kind = AN_DRAW_NORMAL, .a = 0.02, .key = 0x12345678, .stream = 99},
        {.kind = AN_DRAW_UNIFORM, .a = 0.25, .b = 200, .key = 7, .stream = 0xfedcba98},
    };
    static const int64_t firsts[] = {0, 1, 1000, ((int64_t)1 << 31) - 700, ((int64_t)1 << 32) - 700, (int64_t)5 << 33};
    int n_sets, compared = 0;
    const an_cpu_kernels *const *sets = an_cpu_kernels_all(&n_sets);
    static char got[8 * (N + 1)], want[8 * N];
    for (int s = 0; s < n_sets; s++) {
        const an_cpu_kernels *set = an_cpu_kernels_find(sets[s]->isa);
        if (!set) continue; /* this processor cannot run it */
        for (size_t k = 0; k < AN_COUNT(kinds); k++)
            for (int dtype = 0; dtype < AN_N_DTYPES; dtype++)
                for (size_t f = 0; f < AN_COUNT(firsts); f++) {
                    an_init_spec d = kinds[k];
                    d.dtype = (uint8_t)dtype;
                    if (dtype >= AN_I32) d.a = fabs(d.a); /* u8 has no negative numbers */
                    if (dtype >= AN_I32 && d.kind == AN_DRAW_NORMAL) continue;
                    const size_t each = an_dtype_size((an_dtype)dtype);
                    memset(got, 0x55, sizeof got);
                    set->draw(&d, firsts[f], N, got);
                    for (int i = 0; i < N; i++) put(dtype, element(&d, (uint64_t)(firsts[f] + i)), want + i * each);
                    if (memcmp(got, want, N * each))
                        fail_msg("%s: kind %d, dtype %d, from %lld", set->isa, d.kind, dtype, (long long)firsts[f]);
                    assert_int_equal(got[N * each], 0x55);
                    compared++;
                }
    }
    assert_true(compared >= 100);
}

/* Of each number x the share of the distribution below it, by the C library's erf, is that of the uniform number it is made
 * from; the standard deviation is the one asked for; every instruction set and every beginning of a piece gives the same bits. */
static void truncated_normals_have_their_distribution_on_every_instruction_set(void **state)
{
    (void)state;
    enum { MANY = 1 << 20 };
    const double std = 0.3, whole = std / 0.87962566103423978, most = erf(sqrt(2));
    const an_init_spec d = {.kind = AN_DRAW_TRUNCATED, .dtype = AN_F32, .a = std, .key = 77, .stream = 5};
    float *x = malloc(sizeof *x * MANY), *other = malloc(sizeof *other * MANY);
    int n_sets;
    const an_cpu_kernels *const *sets = an_cpu_kernels_all(&n_sets), *first = NULL;
    for (int s = 0; s < n_sets; s++) {
        const an_cpu_kernels *set = an_cpu_kernels_find(sets[s]->isa);
        if (!set) continue;
        set->draw(&d, 0, MANY, first ? other : x);
        if (first && memcmp(x, other, sizeof *x * MANY)) fail_msg("%s is not %s", set->isa, first->isa);
        if (!first) first = set;
        set->draw(&d, 1001, 5000, other);
        assert_memory_equal(x + 1001, other, sizeof *x * 5000);
    }
    double sum = 0, squares = 0;
    for (int i = 0; i < MANY; i++) {
        const double u = (2 * (double)an_rng_uniform(d.key, d.stream, (uint64_t)i) - 1) * most;
        const double below = erf((double)x[i] / (whole * sqrt(2)));
        if (!(fabs(below - u) <= 1e-6)) fail_msg("element %d is %.9g: %.9g, not %.9g", i, (double)x[i], below, u);
        assert_true(fabs((double)x[i]) <= 2 * whole * (1 + 1e-7));
        sum += (double)x[i], squares += (double)x[i] * (double)x[i];
    }
    assert_true(fabs(sum / MANY) < 0.002 * std);
    assert_true(fabs(sqrt(squares / MANY) / std - 1) < 0.002);
    free(x), free(other);
}

static void a_models_weights_are_the_same_for_every_number_of_threads(void **state)
{
    (void)state;
    enum { ROWS = 1300, COLS = 1024 }; /* enough for threads to be started */
    float *x[3];
    for (int t = 0; t < 3; t++) {
        an_ctx *cx = an_open(&(an_options){.device = t ? "cpu" : "ref", .seed = 5, .threads = t ? t : 1});
        an_param(cx, "small", AN_F32, AN_SHAPE(3), AN_UNIFORM(-1, 1));
        an_param(cx, "w", AN_F32, AN_SHAPE(ROWS, COLS), AN_NORMAL(0.5));
        x[t] = malloc(sizeof(float) * ROWS * COLS);
        assert_int_equal(an_persist_read(cx, 1, x[t], sizeof(float) * ROWS * COLS), AN_OK);
        an_close(cx);
        assert_memory_equal(x[0], x[t], sizeof(float) * ROWS * COLS);
    }
    const uint32_t key = an_rng_key(5, UINT64_MAX), stream = an_rng_stream(an_hash("w", 1, 0), 0);
    for (int i = 0; i < ROWS * COLS; i += 97)
        assert_true(x[0][i] == (float)(0.5 * (double)an_rng_normal(key, stream, (uint64_t)i)));
    for (int t = 0; t < 3; t++) free(x[t]);
}

static void parameters_that_the_caller_gives_are_not_drawn_and_states_are(void **state)
{
    (void)state;
    float x[3];
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .parameters_given = true});
    an_param(cx, "w", AN_F32, AN_SHAPE(3), AN_NORMAL(1));
    an_state(cx, "s", AN_F32, AN_SHAPE(3), AN_FILL(7));
    assert_int_equal(an_persist_read(cx, an_persist_find(cx, "w"), x, sizeof x), AN_OK);
    assert_true(x[0] == 0 && x[1] == 0 && x[2] == 0);
    assert_int_equal(an_persist_read(cx, an_persist_find(cx, "s"), x, sizeof x), AN_OK);
    assert_true(x[0] == 7 && x[2] == 7);
    an_close(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction_set_draws_the_scalar_generators_bits),
        cmocka_unit_test(truncated_normals_have_their_distribution_on_every_instruction_set),
        cmocka_unit_test(a_models_weights_are_the_same_for_every_number_of_threads),
        cmocka_unit_test(parameters_that_the_caller_gives_are_not_drawn_and_states_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
