/* test_intermediates.c: the gradient of every tensor that a caller holds, not only of parameters. Folding and merging
 * hide nodes from the array (permute of permute, x + 0, equal nodes); their gradients must not go with them.
 *
 * Owns:      graphs with such nodes, named and random; the comparison with the same graph built without fold and CSE,
 *            and with differences.
 */
#include "ops/lab.h"

#include <math.h>

enum { MOST = 40, N = 24, GRAPHS = 400 };

typedef struct held {
    an_tensor *t[MOST];
    int n;
} held;

typedef struct builder {
    an_ctx *cx;
    held h;
    uint64_t random;
    uint8_t used[MOST][16]; /* [tensor][step]: a step is applied to a tensor once, so that no two are the same tensor */
    int moved;              /* this tensor gets `delta` added to its first element; -1: none */
    double delta;
} builder;

static unsigned draw(builder *b, unsigned n)
{
    lab l = {.random = b->random};
    const unsigned x = (unsigned)(lab_word(&l) >> 33) % n;
    b->random = l.random;
    return x;
}

/* Holds t. Where t is the tensor that is moved, what the rest of the graph reads is t + delta at the first element. */
static an_tensor *hold(builder *b, an_tensor *t)
{
    double d[N] = {b->delta};
    assert_true(b->h.n < MOST && lab_numel(an_shape_of(t)) == N);
    if (b->h.n == b->moved) t = an_add_at(AT, t, an_input_at(AT, b->cx, AN_F64, an_shape_of(t), d));
    return b->h.t[b->h.n++] = t;
}

static const an_shape reshaped[3] = {{2, {4, 6}}, {2, {6, 4}}, {3, {2, 3, 4}}};

/* Steps that would give x itself, or what another step gives. */
static bool repeats(an_shape s, int step)
{
    if (step < 3) return memcmp(&reshaped[step], &s, sizeof s) == 0;
    return s.rank == 1 && (step == 3 || step == 6 || step == 12);
}

/* One step on x; steps that fold with their like, and a few that do not. */
static an_tensor *apply(builder *b, an_tensor *x, int step)
{
    const an_shape s = an_shape_of(x);
    switch (step) {
    case 0:
    case 1:
    case 2: return an_reshape_at(AT, x, reshaped[step]);
    case 3: return an_transpose_at(AT, x, 0, 1);
    case 4: return an_flip_at(AT, x, AN_AXIS(0));
    case 5: return an_neg_at(AT, x);
    case 6: return an_flip_at(AT, x, AN_ALL);
    case 7: return an_slice_at(AT, an_pad_at(AT, x, 0, 1, 2, 0), 0, 1, 1 + s.dim[0], 1);
    case 8: return an_sub_at(AT, an_full_at(AT, b->cx, AN_F64, s, 0), x);
    case 9: return an_mul_num_at(AT, x, -1);
    case 10: return an_mul_num_at(AT, x, 0.5);
    case 11: return an_sin_at(AT, x);
    case 12: return an_reshape_at(AT, x, AN_SHAPE(N));
    case 13: return an_abs_at(AT, an_neg_at(AT, an_add_num_at(AT, x, -0.3)));
    case 14: return an_maximum_at(AT, x, an_cos_at(AT, x));
    default: return an_div_at(AT, x, an_full_at(AT, b->cx, AN_F64, s, -1));
    }
}

static an_tensor *random_graph(builder *b, const double *data)
{
    an_tensor *loss = NULL;
    memset(b->used, 0, sizeof b->used);
    b->h.n = 0;
    hold(b, an_input_at(AT, b->cx, AN_F64, AN_SHAPE(4, 6), data));
    hold(b, an_sin_at(AT, b->h.t[0]));
    b->used[0][11] = 1;
    while (b->h.n < 14) {
        const unsigned from = draw(b, 3) ? (unsigned)b->h.n - 1 : draw(b, (unsigned)b->h.n), step = draw(b, 16);
        if (b->used[from][step]++ || repeats(an_shape_of(b->h.t[from]), (int)step)) continue;
        hold(b, apply(b, b->h.t[from], (int)step));
    }
    for (int i = 0; i < 5; i++) { /* the last one, and some others */
        an_tensor *t = b->h.t[i ? (int)draw(b, (unsigned)b->h.n) : b->h.n - 1];
        an_tensor *w = an_cast_at(AT, an_iota_at(AT, b->cx, AN_SHAPE(N), 0), AN_F64);
        w = an_reshape_at(AT, an_add_num_at(AT, an_mul_num_at(AT, w, 1 + i), 0.25 * i), an_shape_of(t));
        an_tensor *y = an_sum_at(AT, an_mul_at(AT, an_mul_at(AT, t, w), t), AN_ALL, false);
        loss = loss ? an_add_at(AT, loss, y) : y;
    }
    return loss;
}

/* Gradients of all that is held: [n][N]; there[i] is false where there is none. */
static void gradients(builder *b, an_tensor *loss, double (*g)[N], bool *there)
{
    an_tensor *root[LAB_ROOTS] = {loss};
    int n = 1;
    an_backward_at(AT, loss);
    for (int i = 0; i < b->h.n; i++) {
        an_tensor *d = an_grad(b->h.t[i]);
        if ((there[i] = d != NULL)) root[n++] = d;
    }
    if (an_eval_at(AT, root, n) != AN_OK) fail_msg("%s", an_error(b->cx));
    n = 1;
    for (int i = 0; i < b->h.n; i++)
        if (there[i]) assert_int_equal(an_read_at(AT, root[n++], g[i], sizeof g[i]), AN_OK);
}

static void gradients_of_intermediates_do_not_depend_on_folding(void **state)
{
    (void)state;
    an_ctx *cx[2];
    double data[N], g[2][MOST][N];
    bool there[2][MOST];
    int wrong = 0;
    for (int w = 0; w < 2; w++) {
        cx[w] = an_open(&(an_options){.device = "ref"});
        assert_null(an_error(cx[w]));
        an_ctx_graph(cx[w])->keep_duplicates = w == 1;
    }
    for (int i = 0; i < N; i++) data[i] = (double)(i * 37 % 23) / 8 - 1.3;
    for (int graph = 0; graph < GRAPHS && wrong < 5; graph++) {
        int n = 0;
        for (int w = 0; w < 2; w++) {
            builder b = {.cx = cx[w], .random = (uint64_t)graph + 1, .moved = -1};
            an_reset(cx[w]);
            gradients(&b, random_graph(&b, data), g[w], there[w]);
            n = b.h.n;
        }
        for (int i = 0; i < n; i++) {
            bool good = there[0][i] == there[1][i];
            for (int k = 0; k < N && good && there[0][i]; k++)
                good = fabs(g[0][i][k] - g[1][i][k]) <= 1e-9 * fmax(1, fabs(g[1][i][k]));
            if (good) continue;
            print_error("graph %d, tensor %d: %s, first element %.9g and %.9g\n", graph, i,
                        there[0][i] != there[1][i] ? "one has no gradient" : "they differ", g[0][i][0], g[1][i][0]);
            wrong++;
        }
    }
    for (int w = 0; w < 2; w++) an_close(cx[w]);
    assert_int_equal(wrong, 0);
}

static void gradients_of_intermediates_are_the_slopes(void **state)
{
    (void)state;
    an_ctx *cx = an_open(&(an_options){.device = "ref"});
    double data[N], g[MOST][N];
    bool there[MOST];
    int wrong = 0;
    for (int i = 0; i < N; i++) data[i] = (double)(i * 37 % 23) / 8 - 1.3;
    for (int graph = 0; graph < 40 && wrong < 5; graph++) {
        builder b = {.cx = cx, .random = (uint64_t)graph + 1, .moved = -1};
        an_reset(cx);
        gradients(&b, random_graph(&b, data), g, there);
        for (int i = 0; i < b.h.n; i++) {
            double y[2];
            for (int k = 0; k < 2; k++) {
                builder m = {.cx = cx, .random = (uint64_t)graph + 1, .moved = i, .delta = k ? 1e-5 : -1e-5};
                an_reset(cx);
                an_tensor *loss = random_graph(&m, data);
                if (an_eval_at(AT, &loss, 1) != AN_OK) fail_msg("%s", an_error(cx));
                y[k] = an_item_at(AT, loss);
            }
            const double slope = (y[1] - y[0]) / 2e-5, got = there[i] ? g[i][0] : 0;
            if (fabs(slope - got) <= 1e-5 * fmax(1, fabs(slope))) continue;
            print_error("graph %d, tensor %d: the gradient is %.9g, differences say %.9g\n", graph, i, got, slope);
            wrong++;
        }
    }
    an_close(cx);
    assert_int_equal(wrong, 0);
}

/* The pairs of the report: each reads h alone, and folds to x. */
static void a_tensor_whose_only_reader_folds_away_has_its_gradient(void **state)
{
    (void)state;
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .cc = "none"});
    const float data[6] = {1, -2, 3, -4, 5, -6};
    for (int pair = 0; pair < 8; pair++) {
        float g[12];
        an_reset(cx);
        an_tensor *x = an_input_at(AT, cx, AN_F32, AN_SHAPE(2, 3), data), *h = NULL, *y = NULL;
        switch (pair) {
        case 0: y = an_transpose_at(AT, h = an_transpose_at(AT, x, 0, 1), 0, 1); break;
        case 1: y = an_reshape_at(AT, h = an_reshape_at(AT, x, AN_SHAPE(3, 2)), AN_SHAPE(6)); break;
        case 2: y = an_expand_at(AT, h = an_reshape_at(AT, x, AN_SHAPE(1, 6)), AN_SHAPE(2, 6)); break;
        case 3: y = an_flip_at(AT, h = an_flip_at(AT, x, AN_AXIS(0)), AN_AXIS(0)); break;
        case 4: y = an_pad_at(AT, h = an_pad_at(AT, x, 0, 1, 0, 0), 0, 0, 1, 0); break;
        case 5: y = an_neg_at(AT, h = an_neg_at(AT, x)); break;
        case 6: y = an_add_at(AT, an_full_at(AT, cx, AN_F32, AN_SHAPE(2, 3), 0), h = an_neg_at(AT, x)); break;
        default:
            y = an_expand_at(AT, h = an_expand_at(AT, an_reshape_at(AT, x, AN_SHAPE(1, 6)), AN_SHAPE(1, 6)),
                             AN_SHAPE(2, 6));
            break;
        }
        an_tensor *loss = an_sum_at(AT, an_mul_at(AT, y, y), AN_ALL, false);
        an_backward_at(AT, loss);
        an_tensor *d = an_grad(h), *h_again = h;
        if (!d) fail_msg("pair %d: no gradient", pair);
        assert_int_equal(an_eval_at(AT, (an_tensor *[]){d, h_again}, 2), AN_OK);
        float v[12];
        const size_t bytes = sizeof(float) * (size_t)lab_numel(an_shape_of(h));
        assert_int_equal(an_read_at(AT, d, g, bytes), AN_OK);
        assert_int_equal(an_read_at(AT, h, v, bytes), AN_OK);
        const float times = pair == 2 || pair == 7 ? 4 : 2; /* y holds h twice */
        for (int i = 0; i < (int)lab_numel(an_shape_of(h)); i++) assert_true(g[i] == times * v[i]);
    }
    an_close(cx);
}

/* A float32 weight's copy in bf16 that a matmul reads. */
static void a_narrowed_weight_has_a_gradient_of_its_own(void **state)
{
    (void)state;
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .cc = "none"});
    an_tensor *w = an_param_at(AT, cx, "w", AN_F32, AN_SHAPE(3, 2), AN_FILL(0.5));
    an_tensor *x = an_full_at(AT, cx, AN_BF16, AN_SHAPE(4, 3), 2), *narrow = an_cast_at(AT, w, AN_BF16);
    an_tensor *loss = an_sum_at(AT, an_matmul_as_at(AT, x, narrow, AN_F32), AN_ALL, false);
    an_backward_at(AT, loss);
    an_tensor *d[2] = {an_grad(w), an_grad(narrow)};
    assert_true(d[0] && d[1] && an_dtype_of(d[1]) == AN_BF16);
    if (an_eval_at(AT, d, 2) != AN_OK) fail_msg("%s", an_error(cx));
    float whole[6];
    uint16_t half[6];
    assert_int_equal(an_read_at(AT, d[0], whole, sizeof whole), AN_OK);
    assert_int_equal(an_read_at(AT, d[1], half, sizeof half), AN_OK);
    for (int i = 0; i < 6; i++) assert_true(whole[i] == 8 && an_bf16_to_f32(half[i]) == 8);
    an_close(cx);
}

/* softplus(|x|) as |x| sees it: its formula has the absolute value of an absolute value, whose slope at 0 is 0. */
static void softplus_has_its_slope_at_an_absolute_value_of_0(void **state)
{
    (void)state;
    static const double x[3] = {0, -1, 2};
    double g[3];
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .cc = "none"});
    assert_non_null(cx);
    an_tensor *h = an_abs_at(AT, an_input_at(AT, cx, AN_F64, AN_SHAPE(3), x));
    an_tensor *loss = an_sum_at(AT, an_softplus_at(AT, h), AN_ALL, false);
    an_backward_at(AT, loss);
    an_tensor *root[2] = {loss, an_grad(h)};
    assert_non_null(root[1]);
    assert_int_equal(an_eval_at(AT, root, 2), AN_OK);
    assert_int_equal(an_read_at(AT, root[1], g, sizeof g), AN_OK);
    for (int i = 0; i < 3; i++) assert_true(fabs(g[i] - 1 / (1 + exp(-fabs(x[i])))) < 1e-12);
    an_close(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softplus_has_its_slope_at_an_absolute_value_of_0),
        cmocka_unit_test(a_tensor_whose_only_reader_folds_away_has_its_gradient),
        cmocka_unit_test(gradients_of_intermediates_do_not_depend_on_folding),
        cmocka_unit_test(gradients_of_intermediates_are_the_slopes),
        cmocka_unit_test(a_narrowed_weight_has_a_gradient_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
