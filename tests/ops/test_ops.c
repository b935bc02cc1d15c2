/* test_ops.c: the conformance table: every op of ops.def, in the dtypes it takes, in the shapes that break things, run
 * in every way (lab.h) and compared with the oracle within the budget its row states.
 *
 * Owns:      that no op is without a row, and that rows are run.
 * Does not:  check gradients (test_ops_grad.c) or combinations of ops (tests/random).
 */
#include "ops/elementwise.h"
#include "ops/other.h"

static lab the_lab;

/* Cases wait until their roots fill an eval: their programs are compiled in one go. */
typedef struct waiting {
    const elem_row *elem;
    const op_case *other;
    an_dtype t;
    int variant, views; /* views and spoil: as in lab */
    lab_spoil spoil;
} waiting;

typedef struct queue {
    waiting w[LAB_ROOTS];
    int n, roots, failed, place; /* place: of the first case in the batch its data was made for */
    uint64_t seed;
} queue;

static void build_queue(lab *l, const void *arg)
{
    const queue *q = arg;
    for (int i = 0; i < q->n; i++) {
        l->random = (q->seed * 31 + (uint64_t)(i + q->place)) * 0x9E3779B97F4A7C15u + 1;
        l->views = q->w[i].views;
        l->spoil = q->w[i].spoil;
        if (q->w[i].elem)
            elem_build(l, q->w[i].elem, q->w[i].t, q->w[i].variant);
        else
            q->w[i].other->build(l, q->w[i].other, q->w[i].t, q->w[i].variant);
    }
}

static bool run_queue(const queue *q)
{
    return lab_run(&the_lab, q->seed, build_queue, q);
}

enum { COMPILED = 1 << 1, UNFUSED = 1 << 2, APART = 1 << 3, EXACT = 1 << LAB_EXACT }; /* ways, as bits of lab.skip */

/* Runs what waits; a batch that fails is run case by case, so that every failing case is named. */
static void flush(queue *q)
{
    if (q->n > 0 && !run_queue(q)) {
        int before = q->failed;
        char why[1200];
        memcpy(why, the_lab.why, sizeof why);
        for (int i = 0; i < q->n; i++) {
            const waiting *w = &q->w[i];
            queue one = {.w = {*w}, .n = 1, .seed = q->seed, .place = i};
            if (run_queue(&one)) continue;
            print_error("%s of %s, variant %d, views %d%s: %s\n", w->elem ? w->elem->name : w->other->name,
                        an_dtype_text(w->t), w->variant, w->views, w->spoil ? ", special numbers" : "", the_lab.why);
            q->failed++;
        }
        if (q->failed == before) print_error("only beside other cases: %s\n", why), q->failed++;
    }
    q->n = q->roots = 0;
    q->seed++;
}

static void wait_for(queue *q, waiting w, int roots)
{
    if (!lab_takes(w.t)) return;
    if (lab_leaves_out(w.elem ? w.elem->op : w.other->op, w.t)) {
        const queue one = {.w = {w}, .n = 1};
        lab_build_in(&the_lab, 0, 1, build_queue, &one);
        lab_mark(&the_lab, an_ctx_graph(the_lab.cx[0]));
        return;
    }
    if (q->n == LAB_ROOTS || q->roots + roots > LAB_ROOTS) flush(q);
    q->w[q->n++] = w;
    q->roots += roots;
}

static void elementwise_ops_equal_the_oracle_within_their_budgets(void **state)
{
    (void)state;
    queue q = {.seed = 1};
    for (size_t i = 0; i < AN_COUNT(elem_rows); i++)
        for (int t = 0; t < AN_N_DTYPES; t++)
            for (int shape = 0; shape < SEVERAL_TASKS; shape++)
                if (elem_dtypes(elem_rows[i].op) >> t & 1)
                    wait_for(&q, (waiting){.elem = &elem_rows[i], .t = (an_dtype)t, .variant = shape}, 1);
    flush(&q);
    /* How elements are divided among tasks depends on no dtype, and shows where there are two threads. */
    the_lab.skip = getenv("AN_LAB_DEVICE") ? 0 : UNFUSED | APART | EXACT;
    for (size_t i = 0; i < AN_COUNT(elem_rows); i++)
        for (int t = 0; t < AN_N_DTYPES; t++)
            if ((t == AN_F32 || t == AN_I32 || t == AN_BOOL) && elem_dtypes(elem_rows[i].op) >> t & 1)
                wait_for(&q, (waiting){.elem = &elem_rows[i], .t = (an_dtype)t, .variant = SEVERAL_TASKS}, 1);
    flush(&q);
    the_lab.skip = 0;
    assert_int_equal(q.failed, 0);
}

static void all_other_ops_equal_the_oracle_within_their_budgets(void **state)
{
    (void)state;
    queue q = {.seed = 100000};
    for (size_t i = 0; i < AN_COUNT(other_rows); i++)
        for (int t = 0; t < AN_N_DTYPES; t++)
            for (int v = 0; v < other_rows[i].variants; v++)
                if (other_rows[i].dtypes >> t & 1)
                    wait_for(&q, (waiting){.other = &other_rows[i], .t = (an_dtype)t, .variant = v},
                             other_rows[i].roots);
    flush(&q);
    assert_int_equal(q.failed, 0);
}

/* Compiled in the first pass only: the others differ in index arithmetic that the interpreter runs as well. */
static void begin_pass(int pass)
{
    the_lab.skip = pass > 1 ? COMPILED : 0;
}

/* Another device runs the first pass only, in which the operands of an op take turns at the kinds. */
static int last_pass(void)
{
    return getenv("AN_LAB_DEVICE") ? 1 : LAB_VIEWS;
}

/* Every operand transposed, sliced, flipped and expanded. */
static void elementwise_ops_take_every_view(void **state)
{
    (void)state;
    int failed = 0;
    for (int pass = 1; pass <= last_pass(); pass++) {
        queue q = {.seed = 200000u + 1000u * (unsigned)pass};
        begin_pass(pass);
        for (size_t i = 0; i < AN_COUNT(elem_rows); i++)
            for (int t = 0; t < AN_N_DTYPES; t++)
                if (elem_dtypes(elem_rows[i].op) >> t & 1)
                    wait_for(&q,
                             (waiting){.elem = &elem_rows[i],
                                       .t = (an_dtype)t,
                                       .variant = pass == 2 ? SPECIALS : BROADCAST,
                                       .views = pass},
                             1);
        flush(&q);
        failed += q.failed;
    }
    the_lab.skip = 0;
    assert_int_equal(failed, 0);
}

/* Each kind of view with another of a row's first shapes, while it has them. */
static void all_other_ops_take_every_view(void **state)
{
    (void)state;
    int failed = 0;
    for (int pass = 1; pass <= last_pass(); pass++) {
        queue q = {.seed = 300000u + 1000u * (unsigned)pass};
        begin_pass(pass);
        for (size_t i = 0; i < AN_COUNT(other_rows); i++)
            for (int t = 0; t < AN_N_DTYPES; t++) {
                const op_case *c = &other_rows[i];
                const waiting w = {
                    .other = c, .t = (an_dtype)t, .variant = (pass - 1) % AN_MIN(c->variants, 4), .views = pass};
                if (c->dtypes >> t & 1) wait_for(&q, w, c->roots);
            }
        flush(&q);
        failed += q.failed;
    }
    the_lab.skip = 0;
    assert_int_equal(failed, 0);
}

/* In a row's first shapes, of which the first is compiled too: the others are the same arithmetic over other indices. */
static void take_numbers(queue *q, lab_spoil spoil, bool (*takes)(an_op))
{
    const unsigned skip = the_lab.skip;
    for (int v = 0; v < 4; v++) {
        the_lab.skip = skip | (v > 0 && !getenv("AN_LAB_DEVICE") ? COMPILED : 0);
        for (size_t i = 0; i < AN_COUNT(other_rows); i++)
            for (int t = 0; t < AN_N_DTYPES; t++) {
                const op_case *c = &other_rows[i];
                if (!(c->dtypes >> t & 1) || !an_dtype_is_float((an_dtype)t) || !takes(c->op)) continue;
                if (v < c->variants)
                    wait_for(q, (waiting){.other = c, .t = (an_dtype)t, .variant = v, .spoil = spoil}, c->roots);
            }
        flush(q);
    }
    the_lab.skip = skip;
}

/* Factorizations and solutions of matrices that hold NaN are NaN in places that depend on the method: those have tests of
 * their own. */
static bool takes_special(an_op op)
{
    return op < AN_OP_CHOLESKY || op > AN_OP_TRISOLVE;
}

static void all_other_ops_take_special_numbers(void **state)
{
    (void)state;
    queue q = {.seed = 400000};
    take_numbers(&q, LAB_SPECIAL, takes_special);
    assert_int_equal(q.failed, 0);
}

static bool adds_nothing(an_op op)
{
    return an_ops[op].cls == AN_CLS_MOVE || op == AN_OP_LEAF || op == AN_OP_CAST || op == AN_OP_MAX ||
           op == AN_OP_ARGMAX || op == AN_OP_GATHER || op == AN_OP_POOL_MAX || op == AN_OP_SORT || op == AN_OP_TOPK ||
           op == AN_OP_PUT_ROWS;
}

/* Numbers near the largest, and subnormal ones, which exact mode takes for zeros. */
static void ops_that_move_and_compare_take_extreme_numbers(void **state)
{
    (void)state;
    queue q = {.seed = 500000};
    if (getenv("AN_LAB_DEVICE")) return; /* a GPU may flush subnormal numbers, before it compares them too */
    the_lab.skip = EXACT;
    take_numbers(&q, LAB_EXTREME, adds_nothing);
    for (size_t i = 0; i < AN_COUNT(elem_rows); i++)
        for (int t = 0; t < AN_N_DTYPES; t++)
            if (an_dtype_is_float((an_dtype)t) && elem_dtypes(elem_rows[i].op) >> t & 1)
                wait_for(&q, (waiting){.elem = &elem_rows[i], .t = (an_dtype)t, .variant = EXTREMES}, 1);
    flush(&q);
    the_lab.skip = 0;
    assert_int_equal(q.failed, 0);
}

/* ---- effects and collectives: what they do is seen in persistent memory, not in a root */

static void cover_whole_graph(an_ctx *cx)
{
    const an_graph *g = an_ctx_graph(cx);
    for (int32_t i = 0; i < g->n; i++) the_lab.covered[g->node[i]->op] = 1;
}

static void a_state_takes_its_value_when_the_step_ends(void **state)
{
    (void)state;
    for (int w = 0; w < LAB_WAYS; w++) {
        an_ctx *cx = the_lab.cx[w];
        float x[3];
        an_reset(cx);
        an_tensor *s = an_state_at(AT, cx, "counter", AN_F32, AN_SHAPE(3), AN_ZEROS);
        for (int step = 0; step < 3; step++) {
            an_reset(cx);
            an_assign_at(AT, s, an_add_at(AT, s, an_cast_at(AT, an_iota_at(AT, cx, AN_SHAPE(3), 0), AN_F32)));
            an_tensor *before = an_add_num_at(AT, s, 0.5); /* readers in this step see the old value */
            assert_int_equal(an_eval_at(AT, &before, 1), AN_OK);
            assert_int_equal(an_read_at(AT, before, x, sizeof x), AN_OK);
            assert_true(x[2] == 2 * (float)step + 0.5f);
        }
        cover_whole_graph(cx);
        assert_int_equal(an_persist_read(cx, an_persist_find(cx, "counter"), x, sizeof x), AN_OK);
        assert_true(x[0] == 0 && x[1] == 3 && x[2] == 6);
    }
}

/* A step of descent on two parameters: their gradients are packed into one block. */
static void gradients_are_packed_into_their_parameters_block(void **state)
{
    (void)state;
    for (int w = 0; w < LAB_WAYS; w++) {
        an_ctx *cx = the_lab.cx[w];
        float a[6], b[5];
        an_reset(cx);
        an_tensor *pa = an_param_at(AT, cx, "pack.a", AN_F32, AN_SHAPE(2, 3), AN_FILL(2)),
                  *pb = an_param_at(AT, cx, "pack.b", AN_F32, AN_SHAPE(5, 1), AN_FILL(-1));
        an_tensor *loss = an_add_at(AT, an_sum_at(AT, an_square_at(AT, pa), AN_ALL, false),
                                    an_sum_at(AT, an_mul_num_at(AT, pb, 3), AN_ALL, false));
        an_backward_at(AT, loss);
        an_sgd_at(AT, cx, 0.25);
        if (an_eval_at(AT, &loss, 1) != AN_OK) fail_msg("%s: %s", lab_way_names[w], an_error(cx));
        cover_whole_graph(cx);
        assert_int_equal(an_persist_read(cx, an_persist_find(cx, "pack.a"), a, sizeof a), AN_OK);
        assert_int_equal(an_persist_read(cx, an_persist_find(cx, "pack.b"), b, sizeof b), AN_OK);
        for (int i = 0; i < 6; i++) assert_true(a[i] == 2 - 0.25f * 4);
        for (int i = 0; i < 5; i++) assert_true(b[i] == -1 - 0.25f * 3);
    }
}

static void matrices_that_are_not_positive_definite_have_no_factor_but_nan(void **state)
{
    (void)state;
    static const float bad[2][4] = {{1, 2, 2, 1}, {0, 0, 0, 0}};
    float y[8];
    an_reset(the_lab.cx[0]);
    an_tensor *l = an_cholesky_at(AT, an_input_at(AT, the_lab.cx[0], AN_F32, AN_SHAPE(2, 2, 2), bad));
    assert_int_equal(an_eval_at(AT, &l, 1), AN_OK);
    assert_int_equal(an_read_at(AT, l, y, sizeof y), AN_OK);
    assert_true(y[0] == 1 && y[1] == 0 && y[2] == 2 && isnan(y[3]) && isnan(y[4]) && y[5] == 0 && isnan(y[7]));
}

/* Largest |a - b diag(s) c^T| or, without s, |a - b c^T|, of a [m,n], b [m,k], c [n,k]. */
static double residual(const double *a, const double *b, const double *s, const double *c, int m, int n, int k)
{
    double worst = 0;
    for (int i = 0; i < m * n; i++) {
        double sum = a[i];
        for (int j = 0; j < k; j++) sum -= b[i / n * k + j] * (s ? s[j] : 1) * c[i % n * k + j];
        worst = isnan(sum) ? INFINITY : fmax(worst, fabs(sum));
    }
    return worst;
}

/* In doubles, to a few units of the matrix's size: the oracle's own iterations are no judge of that. */
static void factors_multiply_to_their_matrix(void **state)
{
    (void)state;
    enum { M = 30, N = 24 };
    static double a[M * N], b[N * N], u[M * N], s[N], v[N * N], q[M * N], r[N * N], rt[N * N], l[N * N], w[N], e[N * N];
    an_ctx *cx = the_lab.cx[0];
    the_lab.random = 7;
    for (int i = 0; i < M * N; i++) a[i] = lab_uniform(&the_lab) - 0.5;
    for (int i = 0; i < N * N; i++) b[i] = (i / N == i % N ? 6 : 0) + (i / N <= i % N ? a[i] : b[i % N * N + i / N]);
    an_reset(cx);
    an_tensor *x = an_input_at(AT, cx, AN_F64, AN_SHAPE(M, N), a), *y = an_input_at(AT, cx, AN_F64, AN_SHAPE(N, N), b),
              *t[8];
    t[0] = an_svd_at(AT, x, &t[1], &t[2]);
    t[3] = an_qr_at(AT, x, &t[4]);
    t[5] = an_cholesky_at(AT, y);
    t[6] = an_eigh_at(AT, y, &t[7]);
    assert_int_equal(an_eval_at(AT, t, 8), AN_OK);
    double *const out[8] = {u, s, v, q, r, l, w, e};
    const size_t bytes[8] = {sizeof u, sizeof s, sizeof v, sizeof q, sizeof r, sizeof l, sizeof w, sizeof e};
    for (int i = 0; i < 8; i++) assert_int_equal(an_read_at(AT, t[i], out[i], bytes[i]), AN_OK);
    for (int i = 0; i < N * N; i++) rt[i] = r[i % N * N + i / N];
    assert_true(residual(a, u, s, v, M, N, N) < 40 * DBL_EPSILON);
    assert_true(residual(a, q, NULL, rt, M, N, N) < 40 * DBL_EPSILON);
    assert_true(residual(b, l, NULL, l, N, N, N) < 80 * DBL_EPSILON);
    assert_true(residual(b, e, w, e, N, N, N) < 160 * DBL_EPSILON);
    for (int i = 1; i < N; i++) assert_true(s[i] <= s[i - 1] && w[i] >= w[i - 1]);
    for (int i = 0; i < N; i++) assert_true(r[i * N + i] >= 0);
}

static void no_op_is_without_a_row(void **state)
{
    (void)state;
    int missing = 0;
    for (int op = 0; op < AN_N_OPS; op++) {
        bool row = false;
        for (size_t i = 0; i < AN_COUNT(elem_rows); i++) row |= elem_rows[i].op == (an_op)op;
        for (size_t i = 0; i < AN_COUNT(other_rows); i++) row |= other_rows[i].op == (an_op)op;
        row |= op == AN_OP_PACK || op == AN_OP_ASSIGN; /* tests of their own, above */
        if (!row) print_error("%s has no row\n", an_ops[op].name);
        if (!the_lab.covered[op]) print_error("%s was in no graph that ran\n", an_ops[op].name);
        missing += !row || !the_lab.covered[op];
    }
    assert_int_equal(missing, 0);
    print_message("# %ld cases of %ld elements, run %ld times in %d ways\n", the_lab.roots, the_lab.elements,
                  the_lab.runs, LAB_WAYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise_ops_equal_the_oracle_within_their_budgets),
        cmocka_unit_test(all_other_ops_equal_the_oracle_within_their_budgets),
        cmocka_unit_test(elementwise_ops_take_every_view),
        cmocka_unit_test(all_other_ops_take_every_view),
        cmocka_unit_test(all_other_ops_take_special_numbers),
        cmocka_unit_test(ops_that_move_and_compare_take_extreme_numbers),
        cmocka_unit_test(a_state_takes_its_value_when_the_step_ends),
        cmocka_unit_test(gradients_are_packed_into_their_parameters_block),
        cmocka_unit_test(matrices_that_are_not_positive_definite_have_no_factor_but_nan),
        cmocka_unit_test(factors_multiply_to_their_matrix),
        cmocka_unit_test(no_op_is_without_a_row),
    };
    lab_open(&the_lab);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lab_close(&the_lab);
    return failed;
}
