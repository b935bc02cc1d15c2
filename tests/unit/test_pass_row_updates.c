/* test_pass_row_updates.c: an assigned where(iota == i, row, state) is marked as a row update, and what only looks like one
 * is left to arithmetic. What such steps compute and move: test_row_updates.c. */
#include "plan_case.h"

typedef enum lookalike {
    ROW_UPDATE,
    NO_KERNEL,      /* the target has none */
    INDEX_A_ROW,    /* an index for each row: no scalar */
    INDEX_COMPUTED, /* by the step itself: no leaf */
    OTHER_STATE,    /* other rows are kept than those of the state that is assigned to */
    NOT_ASSIGNED    /* read back instead */
} lookalike;

/* Row i of a state [8,16] replaced by a parameter: whether the pass marks it. */
static bool is_marked(lookalike is)
{
    static const int32_t column[] = {8, 1};
    static const int64_t axis = 0;
    plan_case p;
    plan_open(&p);
    p.target.row_update = is != NO_KERNEL;
    an_graph *g = p.c.g;
    an_tensor *state = an_use(g, plan_state(&p, 8, 16), AT, "an_where"), *other = plan_state(&p, 8, 16);
    an_tensor *i = case_leaf(&p.c, AN_LEAF_SCALAR, AN_I32, AN_SHAPE(is == INDEX_A_ROW ? 8 : 1, 1), 0, 7);
    if (is == INDEX_COMPUTED) i = MUL(i, i);
    an_tensor *iota = an_emit(
        g, &(an_emit_args){
               .op = AN_OP_IOTA, .dtype = AN_I32, .rank = 2, .shape = column, .n_attr = 1, .attr = &axis, .at = AT});
    an_tensor *hit = an_eq_at(AT, iota, i);
    an_tensor *value = an_where_at(AT, hit, plan_param(&p, 1, 16), is == OTHER_STATE ? other : state);
    if (is == NOT_ASSIGNED)
        plan_root(&p, value);
    else
        an_graph_assign(g, state, value, AT);
    plan_run(&p, "row_updates");
    const bool marked = plan_node(&p, value)->row_update;
    plan_close(&p);
    return marked;
}

static void a_replaced_row_of_the_assigned_state_is_marked(void **state)
{
    (void)state;
    assert_true(is_marked(ROW_UPDATE));
}

static void lookalikes_are_left_to_arithmetic(void **state)
{
    (void)state;
    for (lookalike is = NO_KERNEL; is <= NOT_ASSIGNED; is++)
        if (is_marked(is)) fail_msg("case %d was marked", (int)is);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replaced_row_of_the_assigned_state_is_marked),
        cmocka_unit_test(lookalikes_are_left_to_arithmetic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
