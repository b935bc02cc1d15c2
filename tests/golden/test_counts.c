/* test_counts.c: what a training step of each preset takes, by the planner's count, against a table: a regression is
 * seen without a clock. `make counts` writes the table anew. Models are planned on null:cpu with a vocabulary of 65
 * where the preset leaves it to the data. */
#include "golden.h"
#include "preset.h"

static void counts_are_in_the_table(void **state)
{
    (void)state;
    static const char *const presets[] = {"demo", "macbook", "shakespeare_char", "gpt2s"};
    an_text t = {0};
    an_text_printf(&t, "%-18s %-5s %9s %8s %7s %16s %16s %16s %16s\n", "preset", "dtype", "launches", "kernels",
                   "copies", "flops", "moved bytes", "peak bytes", "arena bytes");
    for (size_t i = 0; i < AN_COUNT(presets); i++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            preset_plan p = preset_open(presets[i], "null:cpu", bf16 ? AN_BF16 : AN_F32);
            an_bill b;
            assert_int_equal(an_report(p.cx, &b), AN_OK);
            an_text_printf(&t, "%-18s %-5s %9d %8d %7d %16llu %16llu %16llu %16lld\n", presets[i],
                           bf16 ? "bf16" : "fp32", (int)b.launches, (int)b.kernels, (int)b.copies,
                           (unsigned long long)b.flops, (unsigned long long)b.moved_bytes,
                           (unsigned long long)b.peak_bytes, (long long)p.plan->arena_bytes);
            preset_close(&p);
        }
    assert_false(t.failed);
    golden_check("counts.txt", t.data);
    an_text_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(counts_are_in_the_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
