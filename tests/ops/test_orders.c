/* test_orders.c: one result read in its own order by one reader and permuted by another, in the same step. A planner may
 * store the result for the second; the first must not notice.
 *
 * Owns:      every kind of reader of memory (the caller, assignments, packs, calls, gather, scatter, products, convolution,
 *            attention) beside a permutation of a product's, a linear layer's or attention's result; random extents.
 *            Chains of views whose links are each read, beside the same readers one at a time.
 * Does not:  say what the readers' values are: the same reader of the same numbers as an input is what it is compared with. */
#include "ops/lab.h"

enum { DRAWS = 12, MOST = 8 * 8 * 8 * 8 * 4 };

typedef enum producer { PRODUCT, PRODUCT_OF_BATCH, LINEAR, ATTENTION, PRODUCERS } producer;
typedef enum reader {
    READ_BACK,
    ASSIGNED,
    GATHERED,
    SCATTERED,
    SCATTERED_ONTO,
    SORTED,
    SUMMED_UP,
    MULTIPLIED,
    ATTENDED,
    CONVOLVED,
    JOINED,
    REDUCED,
    NORMALIZED,
    READERS
} reader;

static const char *const producers[PRODUCERS] = {"matmul", "matmul of a batch", "linear", "attention"};
static const char *const readers[READERS] = {"a root", "assign", "gather", "scatter_add", "put_rows",
                                             "sort",   "cumsum", "matmul", "attention",   "conv2d",
                                             "concat", "sum",    "softmax"};

static int extent(lab *l, int most)
{
    return 1 + (int)((lab_word(l) >> 33) % (unsigned)most);
}

static an_tensor *numbers(an_ctx *cx, an_shape shape, float *x, uint64_t seed)
{
    lab l = {.random = seed};
    int64_t n = 1;
    for (int i = 0; i < shape.rank; i++) n *= shape.dim[i];
    for (int64_t i = 0; i < n; i++) x[i] = (float)(lab_word(&l) >> 40) / (1 << 23) - 1;
    return an_input_at(AT, cx, AN_F32, shape, x);
}

/* The shape of the result: [M,N], or [B,H,M,N]. */
static an_tensor *produce(an_ctx *cx, producer p, const int n[5], float *x[3], uint64_t seed)
{
    const int B = n[0], H = n[1], M = n[2], N = n[3], K = n[4];
    switch (p) {
    case PRODUCT: {
        an_tensor *a = numbers(cx, AN_SHAPE(M, K), x[0], seed);
        return an_matmul_at(AT, a, numbers(cx, AN_SHAPE(K, N), x[1], seed + 1));
    }
    case PRODUCT_OF_BATCH: {
        an_tensor *a = numbers(cx, AN_SHAPE(B, H, M, K), x[0], seed);
        return an_matmul_at(AT, a, numbers(cx, AN_SHAPE(B, H, K, N), x[1], seed + 1));
    }
    case LINEAR: {
        an_tensor *a = numbers(cx, AN_SHAPE(M, K), x[0], seed);
        return an_linear_at(AT, a, numbers(cx, AN_SHAPE(N, K), x[1], seed + 1), NULL);
    }
    default: {
        an_tensor *q = numbers(cx, AN_SHAPE(B, H, M, N), x[0], seed);
        an_tensor *k = numbers(cx, AN_SHAPE(B, H, K, N), x[1], seed + 1);
        return an_attention_at(AT, q, k, numbers(cx, AN_SHAPE(B, H, K, N), x[2], seed + 2), 0, false, 0, NULL);
    }
    }
}

/* Of a tensor `a` of rank 2 or 4; NULL: the reader does not take it. `state`: what an assignment writes. */
static an_tensor *read_by(an_ctx *cx, reader r, an_tensor *a, an_tensor **state)
{
    static const int32_t rows[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    static float filter[8 * 3 * 3];
    const an_shape s = an_shape_of(a);
    an_tensor *index = an_input_at(AT, cx, AN_I32, AN_SHAPE(s.dim[0]), rows);
    switch (r) {
    case READ_BACK: return a;
    case ASSIGNED:
        *state = an_state_at(AT, cx, s.rank == 2 ? "s2" : "s4", AN_F32, s, AN_ZEROS);
        an_assign_at(AT, *state, a);
        return an_sum_at(AT, a, AN_ALL, false);
    case GATHERED: return an_gather_at(AT, a, index);
    case SCATTERED: return an_scatter_add_at(AT, index, a, s.dim[0] + 1);
    case SCATTERED_ONTO: {
        an_tensor *one = an_input_at(AT, cx, AN_I32, AN_SHAPE(1), rows);
        return an_put_rows_at(AT, a, one, an_mul_num_at(AT, an_slice_at(AT, a, 0, 0, 1, 1), 2));
    }
    case SORTED: return an_sort_at(AT, a, true, NULL);
    case SUMMED_UP: return an_cumsum_at(AT, a, false);
    case MULTIPLIED: return an_matmul_at(AT, a, an_transpose_at(AT, a, -2, -1));
    case ATTENDED: return s.rank == 4 ? an_attention_at(AT, a, a, a, 0, false, 0, NULL) : NULL;
    case CONVOLVED:
        for (int i = 0; i < 72; i++) filter[i] = (float)(i % 7) - 3;
        return s.rank == 4 ? an_conv2d_at(AT, a, an_input_at(AT, cx, AN_F32, AN_SHAPE(1, 3, 3, s.dim[3]), filter), NULL,
                                          (an_window){.pad_h = 1, .pad_w = 1})
                           : NULL;
    case JOINED: return an_concat_at(AT, (an_tensor *[]){a, a}, 2, 0);
    case REDUCED: return an_sum_at(AT, a, AN_AXIS(s.rank - 1), false);
    default: return an_softmax_at(AT, a, s.rank - 1);
    }
}

/* What the reader makes of the producer's result, beside a reader of its permutation (beside), or of the same numbers as an
 * input. Returns how many numbers; 0: the reader does not take this rank. */
static int64_t run(an_ctx *cx, producer p, reader r, const int n[5], const an_shape *order, const float *given,
                   uint64_t seed, float *out)
{
    static float x[3][MOST];
    an_tensor *state = NULL, *root[2];
    const int rank = p == PRODUCT || p == LINEAR ? 2 : 4;
    const an_shape shape = rank == 2 ? AN_SHAPE(n[2], n[3]) : AN_SHAPE(n[0], n[1], n[2], n[3]);
    an_tensor *a =
        given ? an_input_at(AT, cx, AN_F32, shape, given) : produce(cx, p, n, (float *[]){x[0], x[1], x[2]}, seed);
    root[0] = read_by(cx, r, a, &state);
    if (!root[0]) {
        an_reset(cx);
        return 0;
    }
    root[1] = an_exp_at(AT, an_permute_at(AT, a, *order));
    if (an_eval_at(AT, root, given ? 1 : 2) != AN_OK)
        fail_msg("%s of a %s: %s", readers[r], producers[p], an_error(cx));
    const int64_t count = lab_numel(an_shape_of(state ? state : root[0]));
    if (state)
        assert_int_equal(
            an_persist_read(cx, an_persist_find(cx, rank == 2 ? "s2" : "s4"), out, sizeof *out * (size_t)count), AN_OK);
    else
        assert_int_equal(an_read_at(AT, root[0], out, sizeof *out * (size_t)count), AN_OK);
    an_reset(cx);
    return count;
}

static void try(const an_options *o, producer p, reader r, lab *l)
{
    static float value[MOST], got[MOST], want[MOST];
    static const an_shape orders[] = {
        {.rank = 4, .dim = {0, 2, 1, 3}}, {.rank = 4, .dim = {0, 1, 3, 2}}, {.rank = 4, .dim = {2, 0, 3, 1}}};
    const an_shape turned = {.rank = 2, .dim = {1, 0}};
    const bool flat = p == PRODUCT || p == LINEAR;
    const an_shape *order = flat ? &turned : &orders[extent(l, 3) - 1];
    const int n[5] = {extent(l, 3), extent(l, 4), extent(l, 8), extent(l, 8), extent(l, 8)};
    const uint64_t seed = lab_word(l);
    an_ctx *one = an_open(o), *other = an_open(o); /* a state keeps its shape */
    assert_non_null(one);
    assert_non_null(other);
    run(one, p, READ_BACK, n, order, NULL, seed, value); /* held against the numbers of a product that no other reads */
    static float x[3][MOST];
    an_tensor *alone = produce(other, p, n, (float *[]){x[0], x[1], x[2]}, seed);
    assert_int_equal(an_eval_at(AT, &alone, 1), AN_OK);
    const int64_t cells = lab_numel(an_shape_of(alone));
    assert_int_equal(an_read_at(AT, alone, want, sizeof *want * (size_t)cells), AN_OK);
    an_reset(other);
    for (int64_t i = 0; i < cells; i++)
        if (fabsf(value[i] - want[i]) > 1e-5F)
            fail_msg("a %s beside its permutation: element %lld is %g, not %g", producers[p], (long long)i,
                     (double)value[i], (double)want[i]);
    const int64_t count = run(one, p, r, n, order, NULL, seed, got);
    if (count && run(other, p, r, n, order, want, seed, value) != count) fail_msg("%s: another shape", readers[r]);
    for (int64_t i = 0; i < count; i++)
        if (fabsf(got[i] - value[i]) > 1e-4F)
            fail_msg("%s of a %s [%d,%d,%d,%d] over %d: element %lld is %g, not %g", readers[r], producers[p], n[0],
                     n[1], n[2], n[3], n[4], (long long)i, (double)got[i], (double)value[i]);
    an_close(one);
    an_close(other);
}

static void a_result_keeps_its_order_beside_a_reader_of_its_permutation(void **state)
{
    (void)state;
    static const an_options ways[] = {{.device = "cpu", .cc = "none", .threads = 1},
                                      {.device = "cpu", .cc = "none", .threads = 2, .unfused = true}};
    lab l = {.random = 20261123};
    for (size_t w = 0; w < AN_COUNT(ways); w++)
        for (int p = 0; p < PRODUCERS; p++)
            for (int r = 0; r < READERS; r++)
                for (int i = 0; i < DRAWS; i++) try(&ways[w], (producer)p, (reader)r, &l);
}

/* The step of an optimizer that also reads its gradient transposed: the update and the gradient, both in order. */
static void a_step_may_read_its_gradient_transposed(void **state)
{
    (void)state;
    static const float x[6] = {1, 2, 3, 4, 5, 6};
    float got[2][6], g[6];
    for (int beside = 0; beside < 2; beside++) {
        an_ctx *cx = an_open(&(an_options){.device = "cpu", .cc = "none"});
        assert_non_null(cx);
        an_tensor *p = an_param_at(AT, cx, "p", AN_F32, AN_SHAPE(2, 3), AN_ONES);
        an_tensor *y = an_matmul_at(AT, an_input_at(AT, cx, AN_F32, AN_SHAPE(3, 2), x), p); /* [3,3] */
        an_tensor *rows = an_input_at(AT, cx, AN_F32, AN_SHAPE(1, 3), x);
        an_tensor *loss = an_sum_at(AT, an_mul_at(AT, an_mul_at(AT, y, y), rows), AN_ALL, false);
        an_backward_at(AT, loss);
        an_tensor *gradient = an_grad(p);
        assert_non_null(gradient);
        an_sgd(cx, 0.5);
        an_tensor *root[3] = {loss, gradient, an_exp_at(AT, an_transpose_at(AT, gradient, 0, 1))};
        assert_int_equal(an_eval_at(AT, root, beside ? 3 : 1), AN_OK);
        if (beside) assert_int_equal(an_read_at(AT, gradient, g, sizeof g), AN_OK);
        assert_int_equal(an_persist_read(cx, an_persist_find(cx, "p"), got[beside], sizeof got[beside]), AN_OK);
        an_close(cx);
    }
    for (int i = 0; i < 6; i++) {
        assert_true(got[0][i] == got[1][i]);
        assert_true(got[1][i] == 1 - 0.5F * g[i]);
    }
}

/* ---- a chain of views whose every link has readers of its own */

enum { LINKS = 4, VIEW_KINDS = 5, MOST_VIEWED = 8 * 8 * 8 * 27 };

/* The next view of `a`, of rank 3: what `l` says of it. Often one that takes the last one back. */
static an_tensor *view_of(lab *l, an_tensor *a)
{
    const an_shape s = an_shape_of(a);
    const int axis = extent(l, 3) - 1;
    an_shape to = s;
    switch (extent(l, VIEW_KINDS)) {
    case 1: return an_permute_at(AT, a, AN_SHAPE(axis, (axis + 1) % 3, (axis + 2) % 3));
    case 2: return an_flip_at(AT, a, AN_AXIS(axis));
    case 3: {
        const int64_t first = extent(l, 2) == 1 ? 0 : extent(l, (int)s.dim[axis]) - 1;
        const int64_t most = s.dim[axis] - first;
        return an_slice_at(AT, a, axis, first, first + (extent(l, 2) == 1 ? 1 : extent(l, (int)most)), extent(l, 2));
    }
    case 4: /* [1,n,m] from [n,m,1] and the like */
        for (int i = 0; i < 3; i++) to.dim[i] = s.dim[(i + 1) % 3];
        return an_reshape_at(AT, a, to);
    default:
        for (int i = 0; i < 3; i++)
            if (s.dim[i] == 1) to.dim[i] = extent(l, 3);
        return an_expand_at(AT, a, to);
    }
}

static an_tensor *read_view(an_ctx *cx, int kind, an_tensor *a)
{
    static const int32_t rows[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    const an_shape s = an_shape_of(a);
    switch (kind) {
    case 1: return a;
    case 2: return an_cumsum_at(AT, a, false);
    case 3: return an_sort_at(AT, a, false, NULL);
    case 4: return an_gather_at(AT, a, an_input_at(AT, cx, AN_I32, AN_SHAPE(2), rows));
    case 5: return an_matmul_at(AT, a, an_transpose_at(AT, a, 1, 2));
    case 6: return an_concat_at(AT, (an_tensor *[]){a, a}, 2, 2);
    case 7: return an_scatter_add_at(AT, an_input_at(AT, cx, AN_I32, AN_SHAPE(s.dim[0]), rows), a, 2);
    case 8: {
        an_tensor *of4 = an_reshape_at(AT, a, AN_SHAPE(1, s.dim[0], s.dim[1], s.dim[2]));
        return an_attention_at(AT, of4, of4, of4, 0, false, 0, NULL);
    }
    case 9: return an_softmax_at(AT, a, 2);
    default: return NULL;
    }
}

/* Builds the base, its views and their readers; of the readers only number `alone` where that is not negative. Returns how many. */
static int view_chain(an_ctx *cx, uint64_t seed, int alone, an_tensor **root)
{
    static float x[512];
    lab l = {.random = seed};
    an_shape s = AN_SHAPE(1, 1, 1);
    for (int i = 0; i < 3; i++)
        if (extent(&l, 2) == 1) s.dim[i] = extent(&l, 8);
    an_tensor *a = numbers(cx, s, x, seed);
    if (extent(&l, 2) == 1) a = an_exp_at(AT, a);
    int n = 0;
    for (int i = 0; i <= LINKS; i++) {
        const int draw = extent(&l, 16), kind = draw > 12 ? 1 : draw; /* the caller, above all */
        if (i) a = view_of(&l, a);
        const bool asked = kind < 10 && (alone < 0 || alone == n);
        if (kind < 10) n++;
        if (asked) root[alone < 0 ? n - 1 : 0] = read_view(cx, kind, a);
    }
    return n;
}

static void try_chain(const an_options *o, uint64_t seed)
{
    static float got[MOST_VIEWED], want[MOST_VIEWED];
    an_tensor *root[LINKS + 1], *one;
    an_ctx *all = an_open(o), *each = an_open(o);
    assert_non_null(all);
    assert_non_null(each);
    const int n = view_chain(all, seed, -1, root);
    if (n && an_eval_at(AT, root, n) != AN_OK) fail_msg("chain %llu: %s", (unsigned long long)seed, an_error(all));
    for (int i = 0; i < n; i++) {
        const int64_t cells = lab_numel(an_shape_of(root[i]));
        assert_true(cells <= MOST_VIEWED);
        assert_int_equal(an_read_at(AT, root[i], got, sizeof *got * (size_t)cells), AN_OK);
        view_chain(each, seed, i, &one);
        assert_int_equal(an_eval_at(AT, &one, 1), AN_OK);
        assert_int_equal(an_read_at(AT, one, want, sizeof *want * (size_t)cells), AN_OK);
        an_reset(each);
        for (int64_t k = 0; k < cells; k++)
            if (!(fabsf(got[k] - want[k]) <= 1e-5F * (1 + fabsf(want[k]))))
                fail_msg("chain %llu, reader %d of %d: element %lld is %g, not %g", (unsigned long long)seed, i, n,
                         (long long)k, (double)got[k], (double)want[k]);
    }
    an_close(all);
    an_close(each);
}

/* The slice of an expanded column is the column; where the caller also wants what was expanded, it is a part of that. */
static void a_view_of_a_view_is_read_beside_it(void **state)
{
    (void)state;
    static const an_options ways[] = {{.device = "cpu", .cc = "none", .threads = 1, .verify = true},
                                      {.device = "cpu", .cc = "none", .threads = 1, .unfused = true}};
    static const float x[4] = {1, 2, 3, 4};
    float got[4];
    an_ctx *cx = an_open(&ways[0]);
    assert_non_null(cx);
    an_tensor *wide = an_expand_at(AT, an_neg_at(AT, an_input_at(AT, cx, AN_F32, AN_SHAPE(4, 1), x)), AN_SHAPE(4, 2));
    an_tensor *column = an_slice_at(AT, wide, 1, 0, 1, 1), *root[2] = {column, wide};
    assert_int_equal(an_eval_at(AT, root, 2), AN_OK);
    assert_int_equal(an_read_at(AT, column, got, sizeof got), AN_OK);
    for (int i = 0; i < 4; i++) assert_true(got[i] == -x[i]);
    an_close(cx);
    const uint64_t chains = getenv("AN_SOAK") ? 20000 : 600;
    for (size_t w = 0; w < AN_COUNT(ways); w++)
        for (uint64_t seed = 1; seed <= chains; seed++) try_chain(&ways[w], seed);
}

/* A row kernel makes a table's rows, stores them, and reads them flipped along the rows: the row that it reads may not
 * have been made, though a row of it has. */
static void rows_that_one_kernel_stores_are_not_read_before_they_are_made(void **state)
{
    (void)state;
    static const int32_t id[4] = {0, 2, 1, 2};
    float table[12], got[16];
    for (int i = 0; i < 12; i++) table[i] = (float)(i % 7) - 2.5F;
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .cc = "none", .verify = true});
    an_tensor *rows = an_gather_at(AT, an_input_at(AT, cx, AN_F32, AN_SHAPE(3, 4), table),
                                   an_input_at(AT, cx, AN_I32, AN_SHAPE(4), id));
    an_tensor *flipped = an_flip_at(AT, rows, AN_AXIS(0)), *soft = an_softmax_at(AT, rows, 1);
    an_tensor *ratio = an_div_at(AT, soft, flipped);
    an_tensor *root[3] = {ratio, flipped, rows};
    assert_int_equal(an_eval_at(AT, root, 3), AN_OK);
    assert_int_equal(an_read_at(AT, ratio, got, sizeof got), AN_OK);
    for (int r = 0; r < 4; r++) {
        const float *x = table + 4 * id[r], *y = table + 4 * id[3 - r];
        double sum = 0;
        for (int c = 0; c < 4; c++) sum += exp((double)x[c]);
        for (int c = 0; c < 4; c++)
            if (!(fabs((double)got[4 * r + c] - exp((double)x[c]) / sum / (double)y[c]) < 1e-5))
                fail_msg("row %d, column %d: %g", r, c, (double)got[4 * r + c]);
    }
    an_close(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_view_of_a_view_is_read_beside_it),
        cmocka_unit_test(rows_that_one_kernel_stores_are_not_read_before_they_are_made),
        cmocka_unit_test(a_result_keeps_its_order_beside_a_reader_of_its_permutation),
        cmocka_unit_test(a_step_may_read_its_gradient_transposed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
