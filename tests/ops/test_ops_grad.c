/* test_ops_grad.c: the gradient of every differentiable op, computed by the CPU device, against central differences of
 * the same device's forward pass in double.
 *
 * Owns:      that no op with a gradient is without a case here.
 * Does not:  look at the graphs that autograd builds (tests/unit/test_grad.c).
 */
#include "ops/elementwise.h"

enum { INPUTS = 3, MOST = 10 }; /* elements of an input that are moved */

typedef struct trial {
    an_ctx *cx;
    an_dtype t; /* double, but where a device has no kernel for it */
    an_tensor *in[INPUTS];
    double *value[INPUTS];
    an_shape shape[INPUTS];
    int n, made; /* inputs that have values; inputs of the graph being built */
    uint64_t random;
} trial;

typedef struct grad_case {
    an_op op;
    const char *name;
    an_tensor *(*build)(trial *c);
    const elem_row *elem;
} grad_case;

static double uniform(trial *c)
{
    lab l = {.random = c->random};
    double x = lab_uniform(&l);
    c->random = l.random;
    return x;
}

/* The next input: what is differentiated. */
static an_tensor *param(trial *c, an_shape s, double low, double high)
{
    const int i = c->made++;
    const int64_t numel = lab_numel(s);
    assert_true(i < INPUTS);
    if (i == c->n) {
        c->value[c->n++] = malloc(sizeof(double) * (size_t)(numel + 1));
        assert_non_null(c->value[i]);
        c->shape[i] = s;
        for (int64_t k = 0; k < numel; k++) c->value[i][k] = low + (high - low) * uniform(c);
    }
    float *narrow = calloc((size_t)numel + 1, sizeof *narrow);
    assert_non_null(narrow);
    for (int64_t k = 0; k < numel; k++) narrow[k] = (float)c->value[i][k];
    c->in[i] = an_input_at(AT, c->cx, c->t, s, c->t == AN_F64 ? (void *)c->value[i] : (void *)narrow);
    free(narrow);
    return c->in[i];
}

static an_tensor *ids(trial *c, an_shape s, int low, int high)
{
    int32_t x[64];
    for (int64_t i = 0; i < lab_numel(s); i++) x[i] = (int32_t)(low + i * 7 % (high - low));
    return an_input_at(AT, c->cx, AN_I32, s, x);
}

/* sum(y * weights), the weights different for every element. */
static an_tensor *weigh(trial *c, an_tensor *y)
{
    an_shape s = an_shape_of(y);
    double x[4096];
    const int64_t numel = lab_numel(s);
    assert_true(numel <= 4096);
    for (int64_t i = 0; i < numel; i++) x[i] = (double)(i * 37 % 19) / 10 - 0.85;
    an_tensor *w = an_input_at(AT, c->cx, AN_F64, s, x);
    return an_sum_at(AT, an_mul_at(AT, an_cast_at(AT, y, AN_F64), w), AN_ALL, false);
}

/* Two outputs. */
static an_tensor *both(trial *c, an_tensor *a, an_tensor *b)
{
    return an_add_at(AT, weigh(c, a), weigh(c, b));
}

static const elem_row *elem_now; /* read by build_elem while one case runs */

#define CASE(name) static an_tensor *build_##name(trial *c)

CASE(elem)
{
    const elem_row *r = elem_now;
    bool positive = r->op == AN_OP_LOG || r->op == AN_OP_SQRT || r->op == AN_OP_RSQRT || r->op == AN_OP_POW ||
                    r->op == AN_OP_DIV || r->op == AN_OP_RECIP;
    const bool within_one = r->op == AN_OP_ASIN || r->op == AN_OP_ACOS;
    double low = positive ? 0.4 : r->op == AN_OP_LOG1P ? -0.5 : within_one ? -0.9 : -2, high = within_one ? 0.9 : 2.5;
    an_tensor *a = param(c, AN_SHAPE(3, 5), low, high);
    if (r->f1) return r->f1(AT, a);
    an_tensor *b = param(c, AN_SHAPE(5), low, high); /* broadcast: its gradient is summed */
    if (r->f2) return r->f2(AT, a, b);
    an_tensor *cond = an_eq_at(
        AT, an_imod_at(AT, an_iota_at(AT, c->cx, AN_SHAPE(3, 5), 1), an_full_at(AT, c->cx, AN_I32, AN_SCALAR, 2)),
        an_full_at(AT, c->cx, AN_I32, AN_SCALAR, 0));
    return an_where_at(AT, cond, a, b);
}

CASE(leaf)
{
    return param(c, AN_SHAPE(4), -1, 1);
}
CASE(cast)
{
    return an_square_at(AT, an_cast_at(AT, an_cast_at(AT, param(c, AN_SHAPE(4), 1, 2), AN_F64), AN_F64));
}
CASE(reshape)
{
    return an_reshape_at(AT, param(c, AN_SHAPE(4, 6), -1, 1), AN_SHAPE(3, 8));
}
CASE(permute)
{
    return an_permute_at(AT, param(c, AN_SHAPE(2, 3, 4), -1, 1), AN_SHAPE(2, 0, 1));
}
CASE(expand)
{
    return an_expand_at(AT, param(c, AN_SHAPE(3, 1), -1, 1), AN_SHAPE(2, 3, 9));
}
CASE(slice)
{
    return an_slice_at(AT, param(c, AN_SHAPE(5, 9), -1, 1), 1, 1, 9, 3);
}
CASE(pad)
{
    return an_pad_at(AT, param(c, AN_SHAPE(3, 4), -1, 1), 0, 2, 1, 5);
}
CASE(flip)
{
    return an_flip_at(AT, param(c, AN_SHAPE(3, 4), -1, 1), AN_AXIS(1));
}
CASE(sum)
{
    return an_square_at(AT, an_sum_at(AT, param(c, AN_SHAPE(3, 33, 2), -1, 1), AN_AXIS(1), false));
}
CASE(max)
{
    return an_max_at(AT, param(c, AN_SHAPE(3, 33), -1, 1), AN_AXIS(1), false);
}
CASE(pick)
{
    an_tensor *r, *q = an_qr_at(AT, param(c, AN_SHAPE(4, 3), 0.1, 2), &r);
    (void)q;
    return r;
}

CASE(concat)
{
    an_tensor *a = param(c, AN_SHAPE(2, 3), -1, 1), *part[3] = {a, param(c, AN_SHAPE(2, 2), -1, 1), a};
    return an_square_at(AT, an_concat_at(AT, part, 3, 1));
}

CASE(matmul)
{
    an_tensor *a = param(c, AN_SHAPE(2, 3, 5), -1, 1);
    return an_matmul_at(AT, a, param(c, AN_SHAPE(5, 4), -1, 1)); /* a batch axis is broadcast */
}

CASE(gather)
{
    return an_gather_at(AT, param(c, AN_SHAPE(5, 3), -1, 1), ids(c, AN_SHAPE(4, 2), 0, 5));
}
CASE(scatter_add)
{
    return an_square_at(AT, an_scatter_add_at(AT, ids(c, AN_SHAPE(6), 0, 4), param(c, AN_SHAPE(6, 3), -1, 1), 5));
}

CASE(attention)
{
    an_tensor *q = param(c, AN_SHAPE(2, 2, 3, 4), -1, 1), *k = param(c, AN_SHAPE(2, 2, 5, 4), -1, 1);
    an_tensor *v = param(c, AN_SHAPE(2, 2, 5, 4), -1, 1), *each = an_attention_at(AT, q, k, v, 0, true, 0, NULL);
    an_tensor *first = an_slice_at(AT, k, 1, 0, 1, 1), *second = an_slice_at(AT, v, 1, 1, 2, 1);
    return an_mul_at(AT, each,
                     an_attention_at(AT, q, first, second, 0, true, 0, NULL)); /* times that of grouped heads */
}

/* The last row is in no group, the second group is empty. */
static an_tensor *three_ends(trial *c)
{
    an_tensor *at = an_iota_at(AT, c->cx, AN_SHAPE(3), 0);
    an_tensor *last = an_eq_at(AT, at, an_full_at(AT, c->cx, AN_I32, AN_SHAPE(3), 2));
    return an_where_at(AT, last, an_full_at(AT, c->cx, AN_I32, AN_SHAPE(3), 5),
                       an_full_at(AT, c->cx, AN_I32, AN_SHAPE(3), 2));
}

CASE(grouped_matmul)
{
    an_tensor *x = param(c, AN_SHAPE(6, 2), -1, 1), *w = param(c, AN_SHAPE(3, 2, 2), -1, 1);
    return an_square_at(AT, an_grouped_matmul_at(AT, x, w, three_ends(c)));
}

CASE(grouped_outer)
{
    an_tensor *x = param(c, AN_SHAPE(6, 2), -1, 1), *w = param(c, AN_SHAPE(6, 2), -1, 1);
    return an_square_at(AT, an_grouped_outer_at(AT, x, w, three_ends(c)));
}

CASE(conv2d)
{
    an_tensor *x = param(c, AN_SHAPE(2, 6, 5, 4), -1, 1);
    return an_conv2d_at(AT, x, param(c, AN_SHAPE(4, 3, 2, 2), -1, 1), NULL,
                        (an_window){.stride_h = 2, .pad_w = 1, .dilation_w = 2, .groups = 2});
}

CASE(conv_transpose2d)
{
    an_tensor *x = param(c, AN_SHAPE(2, 3, 4, 4), -1, 1);
    return an_conv_transpose2d_at(AT, x, param(c, AN_SHAPE(4, 3, 2, 3), -1, 1), NULL,
                                  (an_window){.stride_h = 2, .pad_w = 1, .dilation_w = 2, .groups = 2, .extra_h = 1});
}

static const an_window windows = {.kernel_h = 3, .kernel_w = 2, .stride_h = 2, .stride_w = 1, .pad_h = 1, .pad_w = 1};
CASE(pool_max)
{
    return an_max_pool_at(AT, param(c, AN_SHAPE(2, 6, 5, 3), -1, 1), windows);
}
CASE(pool_sum)
{
    return an_avg_pool_at(AT, param(c, AN_SHAPE(2, 6, 5, 3), -1, 1), windows);
}
CASE(cumsum)
{
    return an_square_at(AT, an_cumsum_at(AT, param(c, AN_SHAPE(3, 7), -1, 1), true));
}

CASE(sort)
{
    an_tensor *places;
    return an_square_at(AT, an_sort_at(AT, param(c, AN_SHAPE(3, 9), -1, 1), true, &places));
}

CASE(topk)
{
    an_tensor *places;
    return an_topk_at(AT, param(c, AN_SHAPE(3, 9), -1, 1), 4, &places);
}

static an_tensor *heavy_diagonal(trial *c, int64_t m, int64_t n)
{
    an_tensor *x = param(c, AN_SHAPE(2, m, n), -0.4, 0.4), *i = an_iota_at(AT, c->cx, AN_SHAPE(m, n), 0),
              *k = an_iota_at(AT, c->cx, AN_SHAPE(m, n), 1);
    an_tensor *d = an_cast_at(AT, an_mul_num_at(AT, an_add_num_at(AT, k, 1), 2), AN_F64);
    return an_add_at(AT, x, an_where_at(AT, an_eq_at(AT, i, k), d, an_full_at(AT, c->cx, AN_F64, AN_SHAPE(m, n), 0)));
}

CASE(cholesky)
{
    an_tensor *a = heavy_diagonal(c, 4, 4);
    return an_cholesky_at(AT, an_add_at(AT, a, an_transpose_at(AT, a, 1, 2)));
}

CASE(qr)
{
    an_tensor *r, *q = an_qr_at(AT, heavy_diagonal(c, 5, 3), &r);
    return both(c, q, r);
}

CASE(eigh)
{
    an_tensor *a = heavy_diagonal(c, 4, 4), *v, *w = an_eigh_at(AT, an_add_at(AT, a, an_transpose_at(AT, a, 1, 2)), &v);
    return both(c, w, an_square_at(AT, v)); /* whatever the sign */
}

CASE(svd)
{
    an_tensor *s, *v, *u = an_svd_at(AT, heavy_diagonal(c, 5, 3), &s, &v);
    return an_add_at(AT, both(c, s, an_square_at(AT, u)), weigh(c, an_square_at(AT, v)));
}

CASE(solve)
{
    an_tensor *a = heavy_diagonal(c, 4, 4);
    return an_solve_at(AT, a, param(c, AN_SHAPE(2, 4, 3), -1, 1));
}

CASE(trisolve)
{
    an_tensor *a = heavy_diagonal(c, 4, 4);
    return an_trisolve_at(AT, a, param(c, AN_SHAPE(2, 4, 3), -1, 1), true, true);
}

CASE(allreduce)
{
    an_tensor *x = an_square_at(AT, param(c, AN_SHAPE(4), -1, 1));
    return an_emit(an_ctx_graph(c->cx),
                   &(an_emit_args){.op = AN_OP_ALLREDUCE, .dtype = AN_F64, .n_src = 1, .src = &x, .at = AT});
}

#define ROW_OF(NAME, fn)                                                                                               \
    {                                                                                                                  \
        AN_OP_##NAME, #NAME, build_##fn, NULL                                                                          \
    }
static const grad_case cases[] = {
    ROW_OF(LEAF, leaf),
    ROW_OF(CAST, cast),
    ROW_OF(RESHAPE, reshape),
    ROW_OF(PERMUTE, permute),
    ROW_OF(EXPAND, expand),
    ROW_OF(SLICE, slice),
    ROW_OF(PAD, pad),
    ROW_OF(FLIP, flip),
    ROW_OF(CONCAT, concat),
    ROW_OF(SUM, sum),
    ROW_OF(MAX, max),
    ROW_OF(MATMUL, matmul),
    ROW_OF(GATHER, gather),
    ROW_OF(SCATTER_ADD, scatter_add),
    ROW_OF(ATTENTION, attention),
    ROW_OF(GROUPED_MATMUL, grouped_matmul),
    ROW_OF(GROUPED_OUTER, grouped_outer),
    ROW_OF(CONV2D, conv2d),
    ROW_OF(CONV2D_DX, conv_transpose2d),
    ROW_OF(POOL_MAX, pool_max),
    ROW_OF(POOL_SUM, pool_sum),
    ROW_OF(CUMSUM, cumsum),
    ROW_OF(SORT, sort),
    ROW_OF(TOPK, topk),
    ROW_OF(CHOLESKY, cholesky),
    ROW_OF(QR, qr),
    ROW_OF(EIGH, eigh),
    ROW_OF(SVD, svd),
    ROW_OF(SOLVE, solve),
    ROW_OF(TRISOLVE, trisolve),
    ROW_OF(PICK, pick),
    ROW_OF(ALLREDUCE, allreduce),
};

/* The loss at the present values; its gradients into g (may be NULL), as doubles. */
static double evaluate(trial *c, const grad_case *k, double **g)
{
    an_tensor *root[1 + INPUTS];
    an_reset(c->cx);
    c->made = 0;
    an_tensor *y = k->build(c), *loss = an_shape_of(y).rank == 0 ? y : weigh(c, y);
    int n = 1;
    root[0] = loss;
    if (g) {
        an_backward_at(AT, loss);
        for (int i = 0; i < c->n; i++) {
            root[n] = an_grad(c->in[i]);
            if (!root[n++]) fail_msg("%s: input %d has no gradient", k->name, i);
        }
    }
    if (an_eval_at(AT, root, n) != AN_OK) fail_msg("%s: %s", k->name, an_error(c->cx));
    for (int i = 0; g && i < c->n; i++) {
        const int64_t numel = lab_numel(c->shape[i]);
        const size_t bytes = (size_t)numel * an_dtype_size(c->t);
        void *raw = calloc(1, bytes + 1);
        g[i] = calloc((size_t)numel + 1, sizeof(double));
        assert_true(raw && g[i]);
        if (an_read_at(AT, root[1 + i], raw, bytes) != AN_OK) fail_msg("%s: %s", k->name, an_error(c->cx));
        for (int64_t e = 0; e < numel; e++) g[i][e] = lab_get(c->t, raw, e);
        free(raw);
    }
    return an_item_at(AT, loss);
}

static int check(an_ctx *cx, const grad_case *k)
{
    trial c = {.cx = cx, .t = k->op == AN_OP_ATTENTION ? AN_F32 : AN_F64, .random = (uint64_t)k->op + 5};
    double *g[INPUTS] = {0};
    const double h = c.t == AN_F64 ? 1e-5 : 1e-2, room = c.t == AN_F64 ? 1e-6 : 2e-3;
    int wrong = 0;
    elem_now = k->elem;
    evaluate(&c, k, NULL); /* makes the values */
    evaluate(&c, k, g);
    for (int i = 0; i < c.n; i++) {
        const int64_t numel = lab_numel(c.shape[i]), step = numel / MOST + 1;
        for (int64_t e = 0; e < numel; e += step) {
            const double x = c.value[i][e];
            c.value[i][e] = x + h;
            double above = evaluate(&c, k, NULL);
            c.value[i][e] = x - h;
            double slope = (above - evaluate(&c, k, NULL)) / (2 * h);
            c.value[i][e] = x;
            if (fabs(slope - g[i][e]) <= room * fmax(1, fabs(slope))) continue;
            print_error("%s: input %d, element %lld: the gradient is %.12g, differences say %.12g\n", k->name, i,
                        (long long)e, g[i][e], slope);
            wrong++;
        }
    }
    for (int i = 0; i < INPUTS; i++) free(c.value[i]), free(g[i]);
    return wrong;
}

static void gradients_are_the_slopes_of_what_the_device_computes(void **state)
{
    (void)state;
    static const char *const compilers[] = {"none", NULL};
    bool seen[AN_N_OPS] = {false};
    int wrong = 0;
    for (int w = 0; w < 2; w++) {
        an_ctx *cx = an_open(&(an_options){.device = "cpu", .cc = compilers[w], .threads = 1 + w, .verify = true});
        assert_null(an_error(cx));
        for (size_t i = 0; i < AN_COUNT(cases); i++) wrong += check(cx, &cases[i]), seen[cases[i].op] = true;
        for (size_t i = 0; i < AN_COUNT(elem_rows); i++) {
            if (!an_ops[elem_rows[i].op].has_grad) continue;
            seen[elem_rows[i].op] = true;
            wrong += check(cx, &(grad_case){elem_rows[i].op, elem_rows[i].name, build_elem, &elem_rows[i]});
        }
        an_close(cx);
    }
    for (int op = 0; op < AN_N_OPS; op++)
        if (an_ops[op].has_grad && !seen[op]) print_error("%s has a gradient and no case\n", an_ops[op].name), wrong++;
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_the_slopes_of_what_the_device_computes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
