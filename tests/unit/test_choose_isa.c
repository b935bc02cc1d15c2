/* test_choose_isa.c: a device takes the instruction set that is fastest by its measured rate, and a resumed run the one with its bits. */
#include "lib/test.h"

#include "device/cpu/cpu_internal.h"

#include <stdio.h>
#include <string.h>

static void rates_decide_and_near_ones_do_not(void **state)
{
    (void)state;
    assert_int_equal(an_isa_choose((const double[]){5200, 217, 434}, 3), 0); /* tile registers */
    assert_int_equal(an_isa_choose((const double[]){247, 123}, 2), 0); /* a dot product at twice the rate: Zen 4 */
    assert_int_equal(an_isa_choose((const double[]){109, 217}, 2), 1); /* at half of it: Sapphire Rapids */
    assert_int_equal(an_isa_choose((const double[]){90, 109, 217}, 3),
                     2);                                               /* tile registers that a hypervisor emulates */
    assert_int_equal(an_isa_choose((const double[]){100, 101}, 2), 0); /* near each other: the order */
    assert_int_equal(an_isa_choose((const double[]){101, 100}, 2), 0);
    assert_int_equal(an_isa_choose((const double[]){80, 100}, 2), 0);
    assert_int_equal(an_isa_choose((const double[]){0, 0}, 2), 0); /* a clock that stands still */
    assert_int_equal(an_isa_choose((const double[]){7}, 1), 0);
}

typedef struct heard {
    char name[8][16];
    double f32[8], bf16[8];
    int n, taken;
} heard;

static void hear(void *user, const char *isa, double f32_gflops, double bf16_gflops, bool taken)
{
    heard *h = user;
    assert_in_range(h->n, 0, 7);
    snprintf(h->name[h->n], sizeof h->name[0], "%s", isa);
    h->f32[h->n] = f32_gflops;
    h->bf16[h->n] = bf16_gflops;
    if (taken) h->taken = h->n;
    h->n++;
}

static void the_taken_set_is_one_that_runs_here_and_stays_it(void **state)
{
    (void)state;
    heard h = {.taken = -1};
    an_isa_rates(hear, &h);
    assert_true(h.n >= 1 && h.taken >= 0);
    assert_string_equal(h.name[h.n - 1], "portable");
    for (int i = 0; i < h.n; i++) {
        assert_true(h.f32[i] > 0 && h.bf16[i] > 0);
        assert_non_null(an_cpu_kernels_find(h.name[i]));
        assert_string_not_equal(h.name[i], "amx_emulated");
    }
    assert_string_equal(an_isa_taken()->isa, h.name[h.taken]);
    assert_ptr_equal(an_isa_taken(), an_isa_taken());
}

static void a_resumed_run_gets_a_set_with_its_bits(void **state)
{
    (void)state;
    int n;
    const an_cpu_kernels *const *all = an_cpu_kernels_all(&n);
    assert_null(an_isa_as("no such set"));
    assert_null(an_isa_as(""));
    for (int i = 0; i < n; i++) {
        const char *as = an_isa_as(all[i]->isa);
        if (all[i]->tiles == an_isa_taken()->tiles) {
            assert_null(as);
        } else if (an_isa_taken()->tiles) {
            assert_non_null(an_cpu_kernels_find(as));
            assert_false(an_cpu_kernels_find(as)->tiles);
        } else {
            assert_string_equal(as, an_cpu_kernels_find("amx") ? "amx" : "");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_decide_and_near_ones_do_not),
        cmocka_unit_test(the_taken_set_is_one_that_runs_here_and_stays_it),
        cmocka_unit_test(a_resumed_run_gets_a_set_with_its_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
