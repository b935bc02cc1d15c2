/* test_report.c: what the bill and the rendered texts say of a plan. */
#include <anneal.h>

#include "lib/test.h"

#include "runtime/context.h"

#include <stdlib.h>
#include <string.h>

enum { LONG = 7936, SHORT = 320 };

/* 3 exp(x) of two lengths: elementwise texts do not hold the extents. */
static void two_lengths(an_ctx *cx, an_tensor **a, an_tensor **b)
{
    static float x[LONG];
    for (int i = 0; i < LONG; i++) x[i] = (float)i / LONG;
    *a = an_mul(an_exp(an_input(cx, AN_F32, AN_SHAPE(LONG), x)), an_const(cx, AN_F32, 3));
    *b = an_mul(an_exp(an_input(cx, AN_F32, AN_SHAPE(SHORT), x)), an_const(cx, AN_F32, 3));
}

static void programs_that_differ_in_extents_alone_are_compiled_once(void **state)
{
    (void)state;
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .cache_dir = test_path("cache")});
    an_tensor *a, *b;
    an_bill bill;
    static float x[LONG], y[SHORT];
    two_lengths(cx, &a, &b);
    assert_int_equal(an_eval(a, b), AN_OK);
    assert_int_equal(an_report(cx, &bill), AN_OK);
    assert_int_equal(bill.launches, 2);
    assert_int_equal(bill.kernels, 1);
    if (an_report_text(cx, "note")[0] == 0) assert_int_equal(bill.compiled, 1); /* else there is no compiler here */
    assert_int_equal(an_read(a, x, sizeof x), AN_OK);
    assert_int_equal(an_read(b, y, sizeof y), AN_OK);
    assert_memory_equal(x, y, sizeof y);
    assert_true(x[SHORT] > 3 && x[LONG - 1] > 8); /* the longer one went on */
    const an_plan *p = cx->ran->plan;
    int texts = 0;
    for (int k = 0; k < p->n_kernels; k++) {
        if (!p->kernel[k].text) continue;
        texts++;
        assert_ptr_equal(p->kernel[k].text, p->kernel[an_kernel_first(p, k)].text);
        assert_true(p->kernel[k].key == p->kernel[an_kernel_first(p, k)].key);
    }
    assert_int_equal(texts, 2);
    an_close(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_that_differ_in_extents_alone_are_compiled_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
