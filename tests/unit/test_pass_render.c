/* test_pass_render.c: kernels of equal text are one kernel; rows of padded memory are rendered in vectors. */
#include "plan_case.h"

#include "codegen/dialect.h"
#include "codegen/render.h"

static void layers_of_equal_shape_share_a_kernel(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    an_tensor *w = plan_param(&p, 16, 16), *y = w;
    p.target.library_gemm = true;
    for (int i = 0; i < 3; i++) y = EXP(MATMUL(y, w));
    plan_root(&p, y);
    plan_run(&p, "render");
    int kernel = -1, loops = 0;
    for (int s = 0; s < p.plan.n_steps; s++) {
        if (p.plan.kernel[p.plan.step[s].kernel].kind != AN_KERNEL_LOOP) continue;
        if (loops++) assert_int_equal(p.plan.step[s].kernel, kernel);
        kernel = p.plan.step[s].kernel;
    }
    assert_int_equal(loops, 3);
    plan_close(&p);
}

static void kernels_that_differ_in_extents_share_their_text(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    plan_root(&p, EXP(plan_param(&p, 1, 4096)));
    plan_root(&p, EXP(plan_param(&p, 1, 8192)));
    plan_run(&p, "render");
    assert_int_equal(p.plan.n_steps, 2);
    assert_int_not_equal(p.plan.step[0].kernel, p.plan.step[1].kernel);
    assert_ptr_equal(p.plan.kernel[0].text, p.plan.kernel[1].text);
    plan_close(&p);
}

/* Steps of a recurrent layer read their part of one product. */
static void slices_of_one_value_share_a_kernel(void **state)
{
    (void)state;
    static const char *const dialects[] = {"c", "c", "cuda", "cuda"};
    for (int i = 0; i < 4; i++) { /* of 16 numbers, and of 5, which do not begin on 64 bytes */
        plan_case p;
        const int cols = i % 2 ? 5 : 16;
        plan_open(&p);
        p.target.dialect = dialects[i];
        an_tensor *x = MATMUL(plan_param(&p, 64, 8), plan_param(&p, 8, cols)), *y[3];
        for (int t = 0; t < 3; t++) plan_root(&p, y[t] = EXP(EXP(an_slice_at(AT, x, 0, 1 + 4 * t, 5 + 4 * t, 1))));
        plan_run(&p, "render");
        int kernel[3], n = 0;
        for (int s = 0; s < p.plan.n_steps; s++)
            if (p.plan.kernel[p.plan.step[s].kernel].kind == AN_KERNEL_LOOP) kernel[n++] = p.plan.step[s].kernel;
        assert_int_equal(n, 3);
        assert_int_equal(kernel[0] == kernel[1] && kernel[1] == kernel[2], i != 3);
        plan_close(&p);
    }
}

static void what_a_dialect_cannot_express_is_named(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    p.target.dialect = "msl";
    plan_root(&p, EXP(case_leaf(&p.c, AN_LEAF_PARAM, AN_F64, AN_SHAPE(4, 4), -1, 1)));
    assert_int_equal(plan_try(&p, "render"), AN_E_UNSUPPORTED);
    assert_non_null(strstr(p.c.cx.err.text, "[4,4]"));
    assert_non_null(strstr(p.c.cx.err.text, "float64"));
    plan_close(&p);
}

/* The CUDA text of x sum(x) along rows of `cols` bf16 numbers between two products, which pad them. */
static char *text_of_rows(plan_case *p, int cols, an_text *text)
{
    const an_gpu gpu = {.dialect = &an_dialects[AN_DIALECT_CUDA], .fast = true};
    plan_open(p);
    p->target.library_gemm = true;
    an_tensor *x = MATMUL(case_leaf(&p->c, AN_LEAF_PARAM, AN_BF16, AN_SHAPE(64, 64), -1, 1),
                          case_leaf(&p->c, AN_LEAF_PARAM, AN_BF16, AN_SHAPE(64, cols), -1, 1));
    an_tensor *y = MUL(x, SUM(x, AN_AXIS(1)));
    plan_root(p, EXP(MATMUL(y, case_leaf(&p->c, AN_LEAF_PARAM, AN_BF16, AN_SHAPE(cols, 64), -1, 1))));
    plan_run(p, "render");
    for (int k = 0; k < p->plan.n_kernels; k++)
        if (p->plan.kernel[k].kind == AN_KERNEL_LOOP && p->plan.kernel[k].u.loop->cols == cols)
            an_render_gpu(p->plan.kernel[k].u.loop, "row", &gpu, NULL, false, text);
    assert_non_null(text->data);
    return text->data;
}

/* A row that ends within a vector is read and written like others, and its last vector apart, up to the edge. */
static void a_row_of_no_multiple_of_eight_columns_is_moved_in_vectors(void **state)
{
    (void)state;
    plan_case p;
    an_text text = {0};
    const char *of = text_of_rows(&p, 8201, &text); /* a block a row, kept in shared memory */
    assert_non_null(strstr(of, "an_shared_row_fetch<8>("));
    assert_non_null(strstr(of, "c0 < 8200;"));
    assert_non_null(strstr(of, "const int c0 = 8200;"));
    assert_non_null(strstr(of, "if (c >= 8201) continue;"));
    assert_non_null(strstr(of, ", 8201 - c0);"));
    an_text_free(&text);
    plan_close(&p);
    of =
        text_of_rows(&p, 201, &text); /* a subgroup a row, kept in registers: the edge is in the second of two blocks */
    assert_non_null(strstr(of, "b < 1 ? 4 : 201 - c0"));
    assert_non_null(strstr(of, "if (b == 1 && c >= 201) continue;"));
    an_text_free(&text);
    plan_close(&p);
    of = text_of_rows(&p, 8208, &text);
    assert_non_null(strstr(of, "an_shared_row_fetch<8>("));
    assert_null(strstr(of, "continue;"));
    an_text_free(&text);
    plan_close(&p);
}

/* A concatenation of 2^20 elements: eight columns of a row are all of one part, and are loaded behind its guard; the other part's stay 0. */
static void parts_of_a_concatenation_are_loaded_in_vectors_behind_their_guards(void **state)
{
    (void)state;
    plan_case p;
    an_text text = {0};
    const an_gpu gpu = {.dialect = &an_dialects[AN_DIALECT_CUDA], .fast = true};
    plan_open(&p);
    an_tensor *part[2];
    for (int i = 0; i < 2; i++) part[i] = case_leaf(&p.c, AN_LEAF_PARAM, AN_BF16, AN_SHAPE(i ? 640 : 384, 1024), -1, 1);
    plan_root(&p, EXP(an_concat_at(AT, part, 2, 0)));
    plan_run(&p, "render");
    an_render_gpu(p.plan.kernel[0].u.loop, "row", &gpu, NULL, false, &text);
    static const char *const first = "= {0};\n    if ((r) < 384) an_wide_load(w1, p0 + r * 1024 + c0);",
                             *const second =
                                 "= {0};\n    if ((r - 384) >= 0) an_wide_load(w2, p1 + r * 1024 + c0 - 393216);";
    if (!strstr(text.data, first) || !strstr(text.data, second)) fail_msg("%s", text.data);
    assert_non_null(strstr(text.data, "const int v0 = (r - 384) >= 0;"));
    assert_non_null(strstr(text.data, "AN_SEL(v0, v2, v1)"));
    an_text_free(&text);
    plan_close(&p);
}

/* A total of 10,000 elements goes through rows of 4,096, the last of which is not full. */
static void rows_inside_their_guard_are_summed_without_it(void **state)
{
    (void)state;
    plan_case p;
    plan_open(&p);
    plan_root(&p, SUM(plan_param(&p, 1, 10000), AN_AXIS(1)));
    plan_run(&p, "render");
    const char *text = p.plan.kernel[p.plan.step[0].kernel].text, *inside = strstr(text, "if (inside0)");
    assert_non_null(inside);
    const char *other = strstr(inside, "else"), *load = strstr(inside, "(1) ? ");
    assert_non_null(load);
    assert_true(load < other);
    assert_non_null(strstr(other, "< 10000)) ? "));
    plan_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_of_equal_shape_share_a_kernel),
        cmocka_unit_test(kernels_that_differ_in_extents_share_their_text),
        cmocka_unit_test(a_row_of_no_multiple_of_eight_columns_is_moved_in_vectors),
        cmocka_unit_test(parts_of_a_concatenation_are_loaded_in_vectors_behind_their_guards),
        cmocka_unit_test(rows_inside_their_guard_are_summed_without_it),
        cmocka_unit_test(slices_of_one_value_share_a_kernel),
        cmocka_unit_test(what_a_dialect_cannot_express_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
