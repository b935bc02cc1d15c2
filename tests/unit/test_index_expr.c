/* test_index_expr.c: what index expressions say of themselves, against their values: random sums, products, divisions and remainders
 * of a row and a column. */
#include "ir/index_expr.h"

#include "lib/test.h"

enum { ROW, COL, ROWS = 24, COLS = 384, WIDE = 8, DRAWS = 3000 };

static uint32_t state_ = 12345;
static int draw(int n)
{
    state_ = state_ * 1664525u + 1013904223u;
    return (int)(state_ >> 8) % n;
}

/* An expression of at most `depth` operations that is never negative. */
static an_ix random_expr(an_ix_pool *p, int depth)
{
    static const int by[] = {2, 3, 8, 12, 16, 32, 48, 64, 97};
    const int k = by[draw(9)];
    if (!depth)
        return draw(3) ? an_ix_var(p, COL, COLS) : draw(2) ? an_ix_var(p, ROW, ROWS) : an_ix_const(p, draw(3) * 8);
    const an_ix a = random_expr(p, depth - 1);
    switch (draw(4)) {
    case 0: return an_ix_add(p, a, random_expr(p, depth - 1));
    case 1: return an_ix_mul(p, a, draw(2) ? k : 1);
    case 2: return an_ix_div(p, a, k);
    default: return an_ix_mod(p, a, k);
    }
}

/* By its values: from each multiple of WIDE on, WIDE consecutive numbers, of which the first is a multiple of WIDE. */
static bool is_run(const an_ix_pool *p, an_ix a)
{
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < COLS; c++) {
            const int64_t first[2] = {r, c / WIDE * WIDE}, here[2] = {r, c}, from = an_ix_eval(p, a, first);
            if (from % WIDE || an_ix_eval(p, a, here) != from + c % WIDE) return false;
        }
    return true;
}

static void a_run_is_one_by_its_values(void **state)
{
    (void)state;
    int found = 0, missed = 0;
    for (int i = 0; i < DRAWS; i++) {
        an_ix_pool p = {0};
        const an_ix a = random_expr(&p, 1 + draw(4));
        if (!p.failed) {
            const bool says = an_ix_is_run(&p, a, COL, WIDE), is = is_run(&p, a);
            if (says && !is) fail_msg("expression %d is taken for a run", i);
            found += says;
            missed += is && !says;
        }
        an_ix_pool_free(&p);
    }
    print_message("%d runs were found, %d not\n", found, missed);
    assert_true(found > 50 && missed <= found / 10);
}

/* The halves of a head exchanged, as rotary positions read them: (c / 64) 64 + c % 32 - (c / 32) % 2 * 32 + 32. */
static void exchanged_halves_are_runs(void **state)
{
    (void)state;
    for (int half = 4; half <= 32; half *= 2) {
        an_ix_pool p = {0};
        const an_ix c = an_ix_var(&p, COL, COLS), odd = an_ix_mod(&p, an_ix_div(&p, c, half), 2);
        const an_ix heads = an_ix_mul(&p, an_ix_div(&p, c, 2 * half), 2 * half);
        an_ix a = an_ix_add(&p, heads, an_ix_mod(&p, c, half));
        a = an_ix_add(&p, a, an_ix_add(&p, an_ix_const(&p, half), an_ix_mul(&p, odd, -half)));
        assert_false(p.failed);
        assert_int_equal(an_ix_is_run(&p, a, COL, WIDE), half >= WIDE);
        assert_int_equal(is_run(&p, a), half >= WIDE);
        an_ix_pool_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_is_one_by_its_values),
        cmocka_unit_test(exchanged_halves_are_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
