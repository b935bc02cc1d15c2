/* test_gpu_rows.c: rows that a lane keeps in registers, on a GPU where sums are free: a random number is drawn once, whatever the
 * number of phases that read it. */
#include <anneal.h> /* first: it brings the spellings for users */

#include "lib/test.h"

#include "codegen/gpu_module.h"
#include "runtime/context.h"

#include <string.h>

static int count(const char *text, const char *word)
{
    int n = 0;
    for (; (text = strstr(text, word)) != NULL; text++) n++;
    return n;
}

/* The text of the one loop kernel of a plan that has `word` in it. */
static void render(const an_plan *p, const char *word, an_text *out)
{
    const an_gpu gpu = {
        .dialect = &an_dialects[AN_DIALECT_CUDA], .fast = true, .arch_specific = 90, .multiprocessors = 132};
    int found = 0;
    for (int32_t s = 0; s < p->n_steps; s++) {
        an_text text = {0};
        if (p->kernel[p->step[s].kernel].kind != AN_KERNEL_LOOP) continue;
        an_render_module(p, &p->step[s], &gpu, "row", &text);
        assert_false(text.failed);
        const char *body = strstr(text.data, "AN_KERNEL(row");
        assert_non_null(body);
        if (strstr(body, word)) {
            assert_int_equal(found++, 0);
            an_text_puts(out, body);
        }
        an_text_free(&text);
    }
    assert_int_equal(found, 1);
}

static void a_random_number_of_a_row_is_drawn_once(void **state)
{
    (void)state;
    an_ctx *cx = an_open(&(an_options){.device = "null:cuda", .seed = 1});
    an_text text = {0};
    assert_non_null(cx);
    static const float input[64 * 384];
    an_tensor *x = an_input(cx, AN_F32, AN_SHAPE(64, 384), input);
    an_tensor *gain = an_param(cx, "gain", AN_F32, AN_SHAPE(384), AN_ONES);
    an_tensor *y = an_layer_norm(an_dropout(x, 0.25), gain, NULL, 1e-5);
    if (an_plan(y) != AN_OK) fail_msg("%s", an_error(cx));
    render(cx->last->plan, "an_uniform_at", &text);
    assert_true(strstr(text.data, "/* phase 2 */") != NULL); /* mean, variance, result */
    assert_int_equal(count(text.data, "an_uniform_at("), 1);
    assert_int_equal(count(text.data, "float u"), 1);
    an_text_free(&text);
    an_close(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_random_number_of_a_row_is_drawn_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
