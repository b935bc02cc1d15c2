/* test_row_updates.c: assigning where(iota == i, row, state) writes one row of the state in place: the values are those of one
 * kernel an operation, the other rows stay, the old state is kept where something still reads it, and what only looks
 * alike is left alone. */
#include <anneal.h>

#include "lib/test.h"

#include "runtime/context.h"

#include <stdio.h>
#include <string.h>

enum { H = 3, S = 16, D = 8, N = H * S * D };

static an_ctx *open_on(const char *device, bool unfused)
{
    an_ctx *cx = an_open(
        &(an_options){.device = device, .cc = "none", .threads = 1, .seed = 3, .unfused = unfused, .verify = true});
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    return cx;
}

typedef struct made {
    an_tensor *state, *value;
} made;

/* A state with `axis` of length S; the row at `position` becomes twice some numbers. `seen` as a view of a product. */
static made put(an_ctx *cx, an_dtype dtype, int axis, int position, bool view)
{
    static float x[H * 3 * D];
    for (int i = 0; i < H * 3 * D; i++) x[i] = (float)(i + position) / 8;
    const an_shape shape = axis == 0 ? AN_SHAPE(S, H, D) : axis == 1 ? AN_SHAPE(H, S, D) : AN_SHAPE(H, D, S);
    const an_shape one = axis == 0 ? AN_SHAPE(1, H, D) : axis == 1 ? AN_SHAPE(H, 1, D) : AN_SHAPE(H, D, 1);
    an_shape line = AN_SHAPE(1, 1, 1);
    line.dim[axis] = S;
    an_tensor *state = an_state(cx, "cache", dtype, shape, AN_UNIFORM(-1, 1)), *row;
    if (view) { /* a third of each line, as keys are of qkv */
        row = an_mul_num(an_input(cx, AN_F32, AN_SHAPE(H, 3 * D), x), 2);
        row = an_slice(an_matmul(row, an_full(cx, AN_F32, AN_SHAPE(3 * D, 3 * D), 0.5)), 1, D, 2 * D);
    } else {
        row = an_mul_num(an_input(cx, AN_F32, AN_SHAPE(H, D), x), 2);
    }
    row = an_reshape(an_cast(row, dtype), one);
    an_tensor *here = an_eq(an_iota(cx, line, axis), an_scalar_i32(cx, position));
    return (made){state, an_where(an_expand(here, shape), an_expand(row, shape), state)};
}

static int steps_of(const an_ctx *cx, an_kernel_kind kind)
{
    const an_plan *p = cx->last->plan;
    int n = 0;
    for (int s = 0; s < p->n_steps; s++) n += p->kernel[p->step[s].kernel].kind == kind;
    return n;
}

static void run_three(an_ctx *cx, an_dtype dtype, int axis, bool view, void *out, size_t bytes)
{
    static const int positions[] = {5, 0, S - 1};
    for (int i = 0; i < 3; i++) {
        made m = put(cx, dtype, axis, positions[i], view);
        an_assign(m.state, m.value);
        if (an_eval_effects(cx) != AN_OK) fail_msg("%s", an_error(cx));
        an_reset(cx);
    }
    assert_int_equal(an_persist_read(cx, an_persist_find(cx, "cache"), out, bytes), AN_OK);
}

static void rows_along_any_axis_are_put_with_the_bits_of_where(void **state)
{
    (void)state;
    static char got[4 * N], want[4 * N];
    static const an_dtype dtypes[] = {AN_F32, AN_BF16};
    for (size_t t = 0; t < AN_COUNT(dtypes); t++)
        for (int axis = 0; axis < 3; axis++)
            for (int view = 0; view < 2; view++) {
                const size_t bytes = N * an_dtype_size(dtypes[t]);
                an_ctx *cx = open_on("cpu", true);
                run_three(cx, dtypes[t], axis, view, want, bytes);
                assert_int_equal(steps_of(cx, AN_KERNEL_ROW_UPDATE), 0);
                an_close(cx);
                cx = open_on("cpu", false);
                run_three(cx, dtypes[t], axis, view, got, bytes);
                if (memcmp(got, want, bytes)) fail_msg("%s, axis %d, view %d", an_dtype_text(dtypes[t]), axis, view);
                /* a third of each line, seen where the product left it: left to where but along axis 1, [H,1,D] */
                const bool lines = view && dtypes[t] == AN_F32 && axis != 1;
                assert_int_equal(steps_of(cx, AN_KERNEL_ROW_UPDATE), !lines);
                assert_int_equal(steps_of(cx, AN_KERNEL_COPY), 0);
                an_bill b;
                assert_int_equal(an_report(cx, &b), AN_OK);
                assert_int_equal(b.copies, 0);
                if (axis < 2 && !view) assert_true(b.moved_bytes < bytes); /* the state has as many */
                an_close(cx);
            }
}

static void a_position_outside_changes_nothing(void **state)
{
    (void)state;
    static const int outside[] = {-1, S, 1 << 30};
    for (size_t i = 0; i < AN_COUNT(outside); i++) {
        static float before[N], after[N];
        an_ctx *cx = open_on("cpu", false);
        made m = put(cx, AN_F32, 1, outside[i], false);
        an_assign(m.state, m.value);
        assert_int_equal(an_persist_read(cx, 0, before, sizeof before), AN_OK);
        assert_int_equal(an_eval_effects(cx), AN_OK);
        assert_int_equal(steps_of(cx, AN_KERNEL_ROW_UPDATE), 1);
        assert_int_equal(an_persist_read(cx, 0, after, sizeof after), AN_OK);
        assert_memory_equal(before, after, sizeof before);
        an_close(cx);
    }
}

/* The old state is read beside the new value, and once more by a second assignment. */
static void an_old_state_that_is_still_read_is_kept(void **state)
{
    (void)state;
    static float old[2][N], new[2][N], cache[2][N], kept[2][N];
    for (int unfused = 0; unfused < 2; unfused++) {
        an_ctx *cx = open_on("cpu", unfused);
        made m = put(cx, AN_F32, 1, 7, true);
        an_tensor *other = an_state(cx, "other", AN_F32, AN_SHAPE(H, S, D), AN_ZEROS);
        an_tensor *sum = an_add(m.state, m.value); /* old and new together, after the put */
        an_assign(m.state, m.value);
        an_assign(other, m.state);
        if (an_eval(sum, m.value) != AN_OK) fail_msg("%s", an_error(cx));
        assert_int_equal(an_read(sum, old[unfused], sizeof old[0]), AN_OK);
        assert_int_equal(an_read(m.value, new[unfused], sizeof new[0]), AN_OK);
        an_persist_read(cx, an_persist_find(cx, "cache"), cache[unfused], sizeof cache[0]);
        an_persist_read(cx, an_persist_find(cx, "other"), kept[unfused], sizeof kept[0]);
        if (!unfused) assert_int_equal(steps_of(cx, AN_KERNEL_ROW_UPDATE), 1);
        if (!unfused) assert_true(steps_of(cx, AN_KERNEL_COPY) >= 1);
        an_close(cx);
    }
    assert_memory_equal(old[0], old[1], sizeof old[0]);
    assert_memory_equal(new[0], new[1], sizeof new[0]);
    assert_memory_equal(cache[0], cache[1], sizeof cache[0]);
    assert_memory_equal(cache[0], new[0], sizeof new[0]);
    assert_memory_equal(kept[0], kept[1], sizeof kept[0]);
    assert_memory_not_equal(kept[0], cache[0], sizeof kept[0]);
}

static void what_only_looks_alike_or_has_no_kernel_stays_arithmetic(void **state)
{
    (void)state;
    static const char *const devices[] = {"null:metal", "null:cuda"};
    an_ctx *cx;
    made m;
    for (int has = 0; has < 2; has++) {
        cx = open_on(devices[has], false);
        m = put(cx, AN_F32, 1, 7, true);
        an_assign(m.state, m.value);
        assert_int_equal(an_plan(m.value), AN_OK);
        assert_int_equal(steps_of(cx, AN_KERNEL_ROW_UPDATE), has);
        an_close(cx);
    }
    cx = open_on("null:cpu", false); /* assigned to another state */
    m = put(cx, AN_F32, 1, 7, true);
    an_assign(an_state(cx, "other", AN_F32, AN_SHAPE(H, S, D), AN_ZEROS), m.value);
    assert_int_equal(an_plan(m.value), AN_OK);
    assert_int_equal(steps_of(cx, AN_KERNEL_ROW_UPDATE), 0);
    an_close(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_along_any_axis_are_put_with_the_bits_of_where),
        cmocka_unit_test(a_position_outside_changes_nothing),
        cmocka_unit_test(an_old_state_that_is_still_read_is_kept),
        cmocka_unit_test(what_only_looks_alike_or_has_no_kernel_stays_arithmetic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
