/* test_pass_verify.c: a plan that is damaged by hand is found out. */
#include "plan_case.h"

static an_tensor *plan(plan_case *p)
{
    plan_open(p);
    p->target.library_gemm = true;
    an_tensor *w = plan_param(p, 64, 64), *y = MATMUL(w, w);
    an_tensor *z = ADD(MATMUL(y, w), PERMUTE(y, 1, 0));
    plan_root(p, z);
    plan_run(p, NULL);
    assert_int_equal(an_verify_plan(&p->c.cx.err, &p->plan), AN_OK);
    return y;
}

static void expect(plan_case *p, const char *sentence)
{
    assert_int_equal(an_verify_plan(&p->c.cx.err, &p->plan), AN_E_INTERNAL);
    if (!strstr(p->c.cx.err.text, sentence)) fail_msg("%s", p->c.cx.err.text);
    plan_close(p);
}

static void two_values_in_one_place(void **state)
{
    (void)state;
    plan_case p;
    plan(&p);
    assert_true(p.plan.n_values >= 2);
    p.plan.value[1].offset = p.plan.value[0].offset + 64;
    p.plan.value[1].first = p.plan.value[0].first;
    p.plan.value[1].inside = -1;
    expect(&p, "live together at one place");
}

static void a_value_behind_the_arena(void **state)
{
    (void)state;
    plan_case p;
    plan(&p);
    p.plan.value[0].offset = p.plan.arena_bytes;
    expect(&p, "leaves the arena");
}

static void a_read_before_the_write(void **state)
{
    (void)state;
    plan_case p;
    plan(&p);
    const an_plan_step first = p.plan.step[0];
    p.plan.step[0] = p.plan.step[1];
    p.plan.step[1] = first;
    expect(&p, "is read before it is written");
}

static void scratch_behind_the_arena(void **state)
{
    (void)state;
    plan_case p;
    plan(&p);
    p.plan.step[0].scratch = p.plan.arena_bytes;
    p.plan.step[0].scratch_bytes = 1;
    expect(&p, "scratch leaves the arena");
}

/* A graph of products, sums, turned and joined matrices, and scatters onto what is there, of 16 x 16 each. */
static void random_plan(plan_case *p, uint32_t seed)
{
    enum { MOST = 14, SIDE = 16 };
    uint32_t state = seed * 2654435761u + 12345u;
    an_tensor *t[MOST], *ids;
    plan_open(p);
    ids = case_leaf(&p->c, AN_LEAF_INPUT, AN_I32, AN_SHAPE(SIDE / 2), 0, SIDE - 1);
    t[0] = plan_param(p, SIDE, SIDE), t[1] = plan_param(p, SIDE, SIDE);
    for (int n = 2; n < MOST; n++) {
        uint32_t draw[3];
        for (int i = 0; i < 3; i++) state = state * 1664525u + 1013904223u, draw[i] = state >> 8;
        an_tensor *x = t[draw[0] % (uint32_t)n], *y = t[draw[1] % (uint32_t)n];
        const int half[] = {SIDE / 2, SIDE};
        switch (draw[2] % 5) {
        case 0: t[n] = MATMUL(x, y); break;
        case 1: t[n] = ADD(MATMUL(x, y), x); break;
        case 2: t[n] = ADD(PERMUTE(x, 1, 0), MUL(y, y)); break;
        case 3: { /* joined, and the parts are read by others */
            an_tensor *top = an_slice_at(AT, MATMUL(x, y), 0, 0, SIDE / 2, 1),
                      *low = an_slice_at(AT, MUL(y, x), 0, SIDE / 2, SIDE, 1);
            an_tensor *part[2] = {top, low}, *all = an_concat_at(AT, part, 2, 0);
            t[n] = MATMUL(all, y);
            break;
        }
        default: {
            an_tensor *rows = an_slice_at(AT, MATMUL(y, x), 0, 0, half[0], 1), *src[3] = {ids, rows, MATMUL(x, x)};
            t[n] = an_emit(p->c.g, &(an_emit_args){.op = AN_OP_SCATTER_ADD,
                                                   .rank = 2,
                                                   .shape = (int32_t[]){SIDE, SIDE},
                                                   .n_src = 3,
                                                   .src = src,
                                                   .at = AT});
            t[n] = ADD(t[n], MATMUL(src[2], y)); /* what is scattered onto is read elsewhere */
        }
        }
    }
    plan_root(p, t[MOST - 1]);
    plan_root(p, t[MOST - 2]);
    plan_run(p, NULL);
}

/* Argument `a` of step s reads bytes of the arena that were written as a value. */
static bool reads_a_value(const an_plan *p, int s, int a)
{
    const an_arg *x = &p->step[s].arg[a];
    return x->slot == AN_SLOT_ARENA && !x->written && x->value >= 0 && x->bytes > 0;
}

/* The plan with what step `writer` writes put over value v, inside of it: as if an operation in place had taken its memory. */
static bool write_over(an_plan *p, int writer, int32_t v)
{
    for (int a = 0; a < p->step[writer].n_args; a++) {
        const an_arg *x = &p->step[writer].arg[a];
        if (x->slot != AN_SLOT_ARENA || !x->written || x->value < 0 || x->value == v || x->bytes > p->value[v].bytes)
            continue;
        const int32_t u = x->value;
        for (int32_t c = v; c >= 0; c = p->value[c].inside)
            if (c == u) return false;
        for (int32_t c = u; c >= 0; c = p->value[c].inside)
            if (c == v) return false;
        int64_t at = -1;
        for (int s = 0; s < p->n_steps && at < 0; s++)
            for (int k = 0; k < p->step[s].n_args && at < 0; k++)
                if (p->step[s].arg[k].value == v) at = p->step[s].arg[k].offset;
        const int64_t by = at - x->offset;
        p->value[u].inside = v;
        p->value[u].bytes = p->value[v].bytes;
        for (int s = 0; s < p->n_steps; s++)
            for (int k = 0; k < p->step[s].n_args; k++)
                if (p->step[s].arg[k].value == u) p->step[s].arg[k].offset += by;
        return true;
    }
    return false;
}

/* In each of many plans, one operation between a value's writer and its reader writes over it. */
static void a_value_that_another_operation_writes_over(void **state)
{
    (void)state;
    int found = 0, whole = 0;
    for (uint32_t seed = 0; seed < 300; seed++) {
        plan_case p;
        random_plan(&p, seed / 3);
        if (an_verify_plan(&p.c.cx.err, &p.plan) != AN_OK) fail_msg("seed %u: %s", seed, p.c.cx.err.text);
        whole++;
        bool broken = false;
        const int skip = (int)(seed % 3) * 4;
        int seen = 0;
        for (int s = p.plan.n_steps; s-- > 0 && !broken;)
            for (int a = 0; a < p.plan.step[s].n_args && !broken; a++) {
                if (!reads_a_value(&p.plan, s, a)) continue;
                const int32_t v = p.plan.step[s].arg[a].value;
                for (int between = s - 1; between > p.plan.value[v].first && !broken; between--)
                    if (seen++ >= skip) broken = write_over(&p.plan, between, v);
            }
        if (!broken) {
            plan_close(&p);
            continue;
        }
        found++;
        expect(&p, "over it");
    }
    printf("# %d plans are whole, %d broken ones are found out\n", whole, found);
    assert_true(found > 150);
}

/* The step that scatters, -1. */
static int scatter_of(const an_plan *p)
{
    for (int s = 0; s < p->n_steps; s++)
        if (p->kernel[p->step[s].kernel].kind == AN_KERNEL_SCATTER) return s;
    return -1;
}

/* A scatter that is added onto a value takes its memory; here what it took, or a part of it, is read behind the scatter. */
static void what_is_scattered_onto_is_read_behind_it(void **state)
{
    (void)state;
    int found = 0;
    for (uint32_t seed = 0; seed < 60; seed++) {
        plan_case p;
        random_plan(&p, seed);
        const int writer = scatter_of(&p.plan);
        bool broken = false;
        for (int s = p.plan.n_steps; writer >= 0 && s-- > writer && !broken;)
            for (int a = 0; a < p.plan.step[s].n_args && !broken; a++)
                broken = reads_a_value(&p.plan, s, a) && p.plan.value[p.plan.step[s].arg[a].value].first < writer &&
                         write_over(&p.plan, writer, p.plan.step[s].arg[a].value);
        found += broken;
        if (broken)
            expect(&p, "over it");
        else
            plan_close(&p);
    }
    printf("# %d scatters over what is read\n", found);
    assert_true(found > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_values_in_one_place),
        cmocka_unit_test(a_value_behind_the_arena),
        cmocka_unit_test(a_read_before_the_write),
        cmocka_unit_test(scratch_behind_the_arena),
        cmocka_unit_test(a_value_that_another_operation_writes_over),
        cmocka_unit_test(what_is_scattered_onto_is_read_behind_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
