/* test_programs.c: programs of the public API drawn at random: operations of every kind on operands of every dtype and shape
 * (empty ones, special numbers, poison), gradients of every tensor, optimizers, averages, states, several evals a step, reads at
 * any moment, contexts closed in any order. Each program runs in several ways that must give the same bits and the same
 * sentences; under the sanitizers it looks for reads and writes out of bounds. AN_SOAK=1 runs many more; AN_RANDOM=SEED runs
 * one, AN_RANDOM=SEED,N the N from it on; AN_LAB_DEVICE=metal takes another device than the CPU.
 *
 * Owns:      the generator; the log of all that a program was told; the reducer, which leaves calls out.
 * Does not:  say what the numbers are: test_random and tests/ops do.
 * Invariants: a call's draws depend on the seed and its own number alone, so that leaving one out leaves the others.
 */
#include "program.h"

#include <stdio.h>

#define AT "program:1"

static const char *const way_names[WAYS] = {"fused", "unfused", "apart", "compiled"};

/* ---- the log */

static void tell(run *r, int dtype, const void *data, size_t bytes, const char *form, ...)
{
    assert_true(r->log->n < ENTRIES);
    entry *e = &r->log->e[r->log->n++];
    va_list args;
    va_start(args, form);
    vsnprintf(e->what, sizeof e->what, form, args);
    va_end(args);
    e->dtype = dtype, e->bytes = bytes, e->data = malloc(bytes + 1);
    assert_non_null(e->data);
    if (bytes) memcpy(e->data, data, bytes);
}

/* A status: one that is not good has a sentence, which is told, and the error is cleared. */
static void tell_status(run *r, an_status status, const char *what)
{
    const char *text = an_error(r->cx);
    if (status != AN_OK && !text)
        fail_msg("seed %llu: %s: status %d without a sentence", (unsigned long long)r->m->seed, what, (int)status);
    if (status == AN_E_INTERNAL || (text && an_error_status(r->cx) == AN_E_INTERNAL))
        fail_msg("seed %llu: %s: %s", (unsigned long long)r->m->seed, what, text);
    if (text)
        tell(r, -1, text, strlen(text), "%s: error", what);
    else
        tell(r, -1, &status, sizeof status, "%s: status", what);
    an_error_clear(r->cx);
}

static void read_back(run *r, an_tensor *t, const char *what, int i)
{
    char name[64];
    const an_shape s = an_shape_of(t);
    const size_t bytes = (size_t)count(s) * an_dtype_size(an_dtype_of(t));
    void *data = calloc(1, bytes + 1);
    assert_non_null(data);
    const an_status status = an_read_at(AT, t, data, bytes);
    if (status == AN_OK) tell(r, (int)an_dtype_of(t), data, bytes, "%s %d", what, i);
    snprintf(name, sizeof name, "read of %s %d", what, i);
    if (status != AN_OK) tell_status(r, status, name);
    free(data);
}

/* ---- tensors so far */

static void keep(run *r, an_tensor *t)
{
    if (an_error(r->cx)) { /* a refused call: poison, which mostly is dropped */
        tell_status(r, AN_OK, "call");
        if (draw(r, 100)) return;
    }
    if (t && r->n < LIVE && count(an_shape_of(t)) <= MOST) r->t[r->n++] = t;
}

typedef bool (*fits)(an_tensor *t, an_tensor *like);

static bool any(an_tensor *t, an_tensor *like)
{
    (void)t, (void)like;
    return true;
}
static bool floating(an_tensor *t, an_tensor *like)
{
    (void)like;
    return is_float(an_dtype_of(t));
}
static bool wide(an_tensor *t, an_tensor *like)
{
    (void)like;
    return an_dtype_of(t) == AN_F32 || an_dtype_of(t) == AN_F64;
}
static bool matrix(an_tensor *t, an_tensor *like)
{
    return wide(t, like) && an_shape_of(t).rank >= 2;
}
static bool square(an_tensor *t, an_tensor *like)
{
    const an_shape s = an_shape_of(t);
    return matrix(t, like) && s.dim[s.rank - 1] == s.dim[s.rank - 2];
}
static bool spread(an_tensor *t, an_tensor *like) /* broadcasts with it, in its dtype */
{
    const an_shape a = an_shape_of(t), b = an_shape_of(like);
    bool good = an_dtype_of(t) == an_dtype_of(like);
    for (int i = 1; good && i <= a.rank && i <= b.rank; i++)
        good = a.dim[a.rank - i] == b.dim[b.rank - i] || a.dim[a.rank - i] == 1 || b.dim[b.rank - i] == 1;
    return good;
}
static bool spread_bool(an_tensor *t, an_tensor *like)
{
    const an_shape a = an_shape_of(t), b = an_shape_of(like);
    bool good = an_dtype_of(t) == AN_BOOL && a.rank <= b.rank;
    for (int i = 1; good && i <= a.rank; i++) good = a.dim[a.rank - i] == b.dim[b.rank - i] || a.dim[a.rank - i] == 1;
    return good;
}
static bool same(an_tensor *t, an_tensor *like)
{
    const an_shape a = an_shape_of(t), b = an_shape_of(like);
    return an_dtype_of(t) == an_dtype_of(like) && a.rank == b.rank &&
           !memcmp(a.dim, b.dim, sizeof(int64_t) * (size_t)a.rank);
}
static bool multiplies(an_tensor *t, an_tensor *like)
{
    const an_shape b = an_shape_of(t), a = an_shape_of(like);
    return an_dtype_of(t) == an_dtype_of(like) && a.rank >= 1 && b.rank == 2 && b.dim[0] == a.dim[a.rank - 1];
}
static bool linear_weight(an_tensor *t, an_tensor *like)
{
    const an_shape b = an_shape_of(t), a = an_shape_of(like);
    return an_dtype_of(t) == an_dtype_of(like) && a.rank >= 1 && b.rank == 2 && b.dim[1] == a.dim[a.rank - 1];
}
static bool vector(an_tensor *t, an_tensor *like) /* a gain or bias of its last axis */
{
    const an_shape b = an_shape_of(t), a = an_shape_of(like);
    return an_dtype_of(t) == an_dtype_of(like) && a.rank >= 1 && b.rank == 1 && b.dim[0] == a.dim[a.rank - 1];
}
static bool integer(an_tensor *t, an_tensor *like)
{
    (void)like;
    return an_dtype_of(t) == AN_I32 && an_shape_of(t).rank <= 2;
}
static bool number_scalar(an_tensor *t, an_tensor *like)
{
    (void)like;
    return is_float(an_dtype_of(t)) && count(an_shape_of(t)) > 0;
}

/* One that fits, mostly a new one; one in 40 need not fit: the call must refuse it, or take it. NULL: none. */
static an_tensor *choose(run *r, fits f, an_tensor *like)
{
    an_tensor *found[LIVE];
    int n = 0;
    if (draw(r, 40) == 0) f = any;
    for (int i = 0; i < r->n; i++)
        if (f(r->t[i], like)) found[n++] = r->t[i];
    if (n == 0) return draw(r, 60) ? NULL : r->n ? r->t[0] : NULL;
    const int back = draw(r, 3) ? (int)draw(r, n < 4 ? (uint32_t)n : 4) : (int)draw(r, (uint32_t)n);
    return found[n - 1 - back];
}

/* ---- calls */

static void leaf(run *r, an_tensor *like)
{
    an_dtype t = like && draw(r, 2) ? an_dtype_of(like) : draw_dtype(r);
    an_shape s = like && draw(r, 2) ? an_shape_of(like) : draw_shape(r);
    void *data = numbers(r, t, s);
    switch (draw(r, 10)) {
    case 0: keep(r, an_full_at(AT, r->cx, t, s, (double)draw(r, 3))); break;
    case 1: keep(r, an_iota_at(AT, r->cx, s, s.rank ? (int)draw(r, (uint32_t)s.rank) : 0)); break;
    case 2: keep(r, an_rand_at(AT, r->cx, s)); break;
    case 3:
        keep(r, draw(r, 2) ? an_scalar_at(AT, r->cx, number(r, true)) : an_scalar_i32_at(AT, r->cx, (int)draw(r, 4)));
        break;
    case 4: keep(r, an_constant_at(AT, r->cx, t, s, data)); break;
    case 5:
        keep(r, draw(r, 3) ? an_const_at(AT, r->cx, t, number(r, draw(r, 2))) : an_scalar_f64_at(AT, r->cx, 0.3));
        break;
    default: keep(r, an_input_at(AT, r->cx, t, s, data)); break;
    }
    free(data);
}

typedef an_tensor *(*unary_call)(const char *, an_tensor *);
typedef an_tensor *(*binary_call)(const char *, an_tensor *, an_tensor *);
#define ROW(name) an_##name##_at,
static const unary_call unaries[] = {AN_UNARY_FUNCTIONS(ROW)};
static const binary_call binaries[] = {AN_BINARY_FUNCTIONS(ROW)};

static void elementwise(run *r, an_tensor *a)
{
    an_tensor *b = choose(r, spread, a), *c = choose(r, spread_bool, a);
    switch (draw(r, 8)) {
    case 0:
    case 1:
        if (a) keep(r, unaries[draw(r, AN_COUNT(unaries))](AT, a));
        break;
    case 2:
    case 3:
    case 4:
        if (a && b) keep(r, binaries[draw(r, AN_COUNT(binaries))](AT, a, b));
        break;
    case 5:
        if (a && b && c) keep(r, an_where_at(AT, c, a, b));
        break;
    case 6:
        if (a) keep(r, an_cast_at(AT, a, draw_dtype(r)));
        break;
    default:
        if (!a) break;
        const double x = is_float(an_dtype_of(a)) ? number(r, false) : (double)draw(r, 4);
        keep(r, draw(r, 3) == 0 ? an_clamp_at(AT, a, draw(r, 4) ? x : -(double)INFINITY, x + 1)
                : draw(r, 2)    ? an_add_num_at(AT, a, x)
                                : an_mul_num_at(AT, a, x));
    }
}

static void view(run *r, an_tensor *a)
{
    if (!a) return;
    an_shape s = an_shape_of(a), p = s;
    const int axis = s.rank ? (int)draw(r, (uint32_t)s.rank) : 0, other = s.rank ? (int)draw(r, (uint32_t)s.rank) : 0;
    const int64_t n = s.rank ? s.dim[axis] : 1;
    switch (draw(r, 9)) {
    case 0: keep(r, an_reshape_at(AT, a, draw(r, 2) || !s.rank ? AN_SHAPE(-1) : AN_SHAPE(s.dim[0], -1))); break;
    case 1:
        for (int i = 0; i < s.rank; i++) p.dim[i] = (i + 1 + (int)draw(r, 2) * 0) % s.rank;
        keep(r, an_permute_at(AT, a, p));
        break;
    case 2: keep(r, an_transpose_at(AT, a, axis, other)); break;
    case 3:
        if (s.rank > 3) break;
        for (int i = s.rank; i > 0; i--) p.dim[i] = s.dim[i - 1];
        p.rank++, p.dim[0] = draw(r, 8) ? 2 : 0;
        keep(r, an_expand_at(AT, a, p));
        break;
    case 4:
        keep(r, an_slice_at(AT, a, axis, (int64_t)draw(r, 2) - (draw(r, 4) == 0), n - draw(r, 2), 1 + draw(r, 3)));
        break;
    case 5:
        keep(r, an_pad_at(AT, a, axis, draw(r, 3), draw(r, 3), is_float(an_dtype_of(a)) ? number(r, false) : 1));
        break;
    case 6: keep(r, an_flip_at(AT, a, draw(r, 4) ? AN_AXIS(axis) : AN_ALL)); break;
    case 7: {
        an_tensor *parts[3] = {a, choose(r, same, a), a};
        keep(r, an_concat_at(AT, parts, parts[1] ? (int)draw(r, 3) + 1 : 1, axis));
        break;
    }
    default: keep(r, an_detach_at(AT, a));
    }
}

static void reduction(run *r, an_tensor *a)
{
    if (!a) return;
    const int rank = an_shape_of(a).rank, axis = rank ? (int)draw(r, (uint32_t)rank) - (draw(r, 4) ? 0 : rank) : 0;
    const an_axes axes = draw(r, 3) ? AN_AXIS(axis) : AN_ALL;
    const bool kept = draw(r, 2);
    switch (draw(r, 10)) {
    case 0: keep(r, an_sum_at(AT, a, axes, kept)); break;
    case 1: keep(r, an_mean_at(AT, a, axes, kept)); break;
    case 2: keep(r, an_max_at(AT, a, axes, kept)); break;
    case 3: keep(r, an_min_at(AT, a, axes, kept)); break;
    case 4: keep(r, an_var_at(AT, a, axes, kept)); break;
    case 5: keep(r, an_argmax_at(AT, a, axis, kept)); break;
    case 6: keep(r, an_softmax_at(AT, a, axis)); break;
    case 7: keep(r, an_log_softmax_at(AT, a, axis)); break;
    case 8: keep(r, an_logsumexp_at(AT, a, axis, kept)); break;
    default: keep(r, an_rms_norm_axis_at(AT, a, axis, 1e-5));
    }
}

static void norm(run *r, an_tensor *a)
{
    if (!a) return;
    an_tensor *g = choose(r, vector, a), *b = draw(r, 2) ? choose(r, vector, a) : NULL;
    const int rank = an_shape_of(a).rank;
    const int64_t c = rank ? an_shape_of(a).dim[rank - 1] : 1;
    char mean[32], var[32];
    switch (draw(r, 4)) {
    case 0: keep(r, an_layer_norm_at(AT, a, draw(r, 2) ? g : NULL, b, 1e-5)); break;
    case 1: keep(r, an_rms_norm_at(AT, a, draw(r, 2) ? g : NULL, 1e-5)); break;
    case 2: keep(r, an_dropout_at(AT, a, draw(r, 4) ? 0.25 : draw(r, 2))); break;
    default:
        snprintf(mean, sizeof mean, "mean%d", (int)c), snprintf(var, sizeof var, "var%d", (int)c);
        an_tensor *m = an_state_at(AT, r->cx, mean, AN_F32, AN_SHAPE(c), AN_ZEROS);
        an_tensor *v = an_state_at(AT, r->cx, var, AN_F32, AN_SHAPE(c), AN_ONES);
        keep(r, an_batch_norm_at(AT, a, draw(r, 2) ? g : NULL, b, m, v, 0.1, 1e-5, draw(r, 3) > 0));
    }
}

/* Ids from 0 to n - 1, one in 30 beside them. */
static an_tensor *ids(run *r, an_shape s, int64_t n)
{
    int32_t id[MOST] = {0};
    const bool wrong = draw(r, 30) == 0;
    for (int64_t i = 0; i < count(s) && i < MOST; i++) id[i] = (int32_t)draw(r, (uint32_t)n + wrong + (n == 0));
    return an_input_at(AT, r->cx, AN_I32, s, id);
}

static void table(run *r, an_tensor *a)
{
    if (!a || an_shape_of(a).rank == 0) return;
    an_shape s = an_shape_of(a), i = draw(r, 2) ? AN_SHAPE(4) : draw(r, 4) ? AN_SHAPE(2, 2) : AN_SHAPE(0);
    an_tensor *index = draw(r, 3) ? ids(r, i, s.dim[0]) : choose(r, integer, a), *rows;
    if (!index) return;
    switch (draw(r, 5)) {
    case 0:
    case 1: keep(r, an_gather_at(AT, a, index)); break;
    case 2: keep(r, an_scatter_add_at(AT, ids(r, AN_SHAPE(s.dim[0]), 5), a, 5)); break;
    case 3:
        index = ids(r, AN_SHAPE(3), s.dim[0]);
        rows = an_gather_at(AT, a, ids(r, AN_SHAPE(3), s.dim[0]));
        keep(r, an_put_rows_at(AT, a, index,
                               draw(r, 2) && is_float(an_dtype_of(a)) ? an_mul_num_at(AT, rows, 0.5) : rows));
        break;
    default: keep(r, an_scatter_add_at(AT, index, a, 1 + draw(r, 6)));
    }
}

static void product(run *r, an_tensor *a)
{
    if (!a) return;
    an_tensor *b = choose(r, multiplies, a), *w = choose(r, linear_weight, a);
    const an_shape s = an_shape_of(a);
    switch (draw(r, 6)) {
    case 0:
    case 1:
        if (b) keep(r, an_matmul_at(AT, a, b));
        break;
    case 2: keep(r, an_matmul_at(AT, a, an_transpose_at(AT, draw(r, 2) ? a : an_neg_at(AT, a), -1, -2))); break;
    case 3:
        if (b) keep(r, an_matmul_as_at(AT, a, b, AN_F32));
        break;
    case 4:
        if (w) keep(r, an_linear_at(AT, a, w, NULL));
        break;
    default:
        if (!w || s.rank < 1 || an_shape_of(w).rank != 2) break;
        an_shape lead = s;
        lead.rank--;
        keep(r, an_linear_cross_entropy_at(AT, a, w, ids(r, lead, an_shape_of(w).dim[0])));
    }
}

/* Attention and convolutions of what is there, cut and reshaped to fit. */
static void block(run *r, an_tensor *a)
{
    if (!a || count(an_shape_of(a)) < 8) return;
    an_tensor *flat = an_reshape_at(AT, a, AN_SHAPE(-1));
    const int64_t n = an_shape_of(flat).dim[0] / 4 * 4;
    an_tensor *x = an_reshape_at(AT, an_slice_at(AT, flat, 0, 0, n, 1),
                                 draw(r, 2) ? AN_SHAPE(1, 2, -1, 2) : AN_SHAPE(1, 1, -1, 4));
    const an_shape s = an_shape_of(x);
    an_tensor *k = draw(r, 2) ? x : an_slice_at(AT, an_flip_at(AT, x, AN_AXIS(2)), 2, 0, 1 + draw(r, 3), 1);
    an_tensor *v = draw(r, 2) ? k : an_mul_num_at(AT, k, 2);
    an_window w = {.kernel_h = 1 + (int)draw(r, 2),
                   .kernel_w = 1 + (int)draw(r, 3),
                   .stride_h = (int)draw(r, 3),
                   .stride_w = (int)draw(r, 3),
                   .pad_h = (int)draw(r, 2),
                   .pad_w = (int)draw(r, 2),
                   .dilation_h = (int)draw(r, 3),
                   .dilation_w = (int)draw(r, 3)};
    switch (draw(r, 5)) {
    case 0:
    case 1:
        keep(r,
             an_attention_at(AT, x, k, v, draw(r, 2) ? 0 : 0.5, draw(r, 2), draw(r, 4) ? 0 : 0.3,
                             draw(r, 4) ? NULL
                                        : an_scalar_i32_at(AT, r->cx,
                                                           1 + (int)draw(r, (uint32_t)(an_shape_of(k).rank == 4 &&
                                                                                               an_shape_of(k).dim[2] > 0
                                                                                           ? an_shape_of(k).dim[2]
                                                                                           : 1)))));
        break;
    case 2: keep(r, an_max_pool_at(AT, x, w)); break;
    case 3: keep(r, an_avg_pool_at(AT, x, w)); break;
    default: {
        const bool transposed = draw(r, 2);
        const int64_t channels = s.rank == 4 ? s.dim[3] : 1;
        w.groups = channels % 2 == 0 && draw(r, 2) ? 2 : 1;
        w.extra_h = transposed && w.stride_h > 1 ? (int)draw(r, 2) : 0;
        const an_shape filter = transposed ? AN_SHAPE(channels, 2, 2, 3) : AN_SHAPE(4, 2, 2, channels / w.groups);
        an_tensor *f[2];
        for (int i = 0; i < 2; i++) {
            void *data = numbers(r, an_dtype_of(x), filter);
            f[i] = an_input_at(AT, r->cx, an_dtype_of(x), filter, data);
            free(data);
        }
        an_tensor *y = transposed ? an_conv_transpose2d_at(AT, x, f[0], NULL, w) : an_conv2d_at(AT, x, f[0], NULL, w);
        if (draw(r, 2)) /* the sum of two, which one launch may store */
            y = an_add_at(
                AT, y, transposed ? an_conv_transpose2d_at(AT, x, f[1], NULL, w) : an_conv2d_at(AT, x, f[1], NULL, w));
        keep(r, y);
    }
    }
}

static void library_call(run *r, an_tensor *a)
{
    an_tensor *m = choose(r, matrix, a), *q = choose(r, square, a), *second = NULL, *third = NULL;
    const uint32_t kind = draw(r, 10);
    if (kind < 4 ? !a : kind < 6 ? !m : !q) return;
    switch (kind) {
    case 0:
    case 1: keep(r, an_cumsum_at(AT, a, draw(r, 2))); break;
    case 2: keep(r, an_sort_at(AT, a, draw(r, 2), &second)); break;
    case 3: keep(r, an_topk_at(AT, a, 1 + (int)draw(r, 3), &second)); break;
    case 4: keep(r, an_qr_at(AT, m, &second)); break;
    case 5: keep(r, an_svd_at(AT, m, &second, &third)); break;
    case 6: keep(r, an_eigh_at(AT, q, &second)); break;
    case 7: keep(r, an_cholesky_at(AT, an_matmul_at(AT, q, an_transpose_at(AT, q, -1, -2)))); break;
    case 8: keep(r, an_solve_at(AT, q, q)); break;
    default: keep(r, an_trisolve_at(AT, q, q, draw(r, 2), draw(r, 2)));
    }
    if (second) keep(r, second);
    if (third) keep(r, third);
}

static void class_loss(run *r, an_tensor *a)
{
    if (!a || an_shape_of(a).rank < 1) return;
    an_shape s = an_shape_of(a), lead = s;
    lead.rank--;
    an_tensor *y = ids(r, lead, s.dim[lead.rank]);
    if (draw(r, 4) == 0) y = an_add_num_at(AT, y, -1); /* computed, some negative */
    keep(r, draw(r, 2) ? an_cross_entropy_at(AT, a, y) : an_stablemax_cross_entropy_at(AT, a, y));
}

/* What no program should do: a sentence, and nothing else happens. */
static void misuse(run *r, an_tensor *a)
{
    an_tensor *bad = NULL, *many[2] = {a, NULL};
    switch (draw(r, 9)) {
    case 0: bad = an_exp_at(AT, NULL); break;
    case 1: bad = an_concat_at(AT, many, 2, 0); break;
    case 2: bad = an_concat_at(AT, many, 0, 0); break;
    case 3: bad = an_full_at(AT, NULL, AN_F32, AN_SCALAR, 0); break;
    case 4: bad = an_sum_at(AT, a, AN_AXIS(9), false); break;
    case 5: bad = an_reshape_at(AT, a, AN_SHAPE(-7, 3)); break;
    case 6: bad = an_input_at(AT, r->cx, (an_dtype)99, AN_SHAPE(2), "12345678"); break;
    case 7: bad = an_max_pool_at(AT, a, (an_window){.kernel_h = 1 << 30, .pad_h = INT32_MAX}); break;
    default: bad = an_add_at(AT, a, NULL);
    }
    if (an_error(r->cx)) tell_status(r, AN_OK, "misuse");
    if (draw(r, 3) == 0) {
        an_tensor *root[2] = {bad, a};
        const an_status status = an_eval_at(AT, root, draw(r, 2) ? 1 : 2);
        if (an_error(r->cx)) tell_status(r, status, "eval of poison");
    }
    if (draw(r, 3) == 0) an_grad(bad), an_shape_of(bad), an_dtype_of(bad), an_name_of(bad);
    an_error_clear(r->cx);
}

static void name_states(run *r)
{
    const an_dtype t = draw(r, 3) ? AN_F32 : draw_dtype(r);
    const an_shape s = draw(r, 3) ? AN_SHAPE(3, 4) : draw(r, 2) ? AN_SHAPE(4) : draw_shape(r);
    const uint32_t k = draw(r, KEPT);
    char name[16];
    snprintf(name, sizeof name, "%c%u", draw(r, 2) ? 'p' : 's', (unsigned)k);
    const an_init init = draw(r, 2) && is_float(t) ? AN_NORMAL(0.5) : AN_ONES;
    keep(r, name[0] == 'p' ? an_param_at(AT, r->cx, name, t, s, init) : an_state_at(AT, r->cx, name, t, s, init));
    if (draw(r, 30) == 0) an_param_freeze(r->t[r->n ? r->n - 1 : 0], draw(r, 2));
    if (an_error(r->cx)) tell_status(r, AN_OK, "freeze");
}

static bool named(an_tensor *t, an_tensor *like)
{
    (void)like;
    return an_name_of(t) != NULL;
}

static void effect(run *r)
{
    an_tensor *state = choose(r, named, NULL), *value = state ? choose(r, same, state) : NULL;
    const an_shape s = state ? an_shape_of(state) : AN_SCALAR;
    if (!state || !value) return;
    switch (draw(r, 4)) {
    case 0:
        if (s.rank < 1) break;
        an_assign_at(AT, state,
                     an_put_rows_at(AT, state, ids(r, AN_SHAPE(2), s.dim[0]),
                                    an_gather_at(AT, value, ids(r, AN_SHAPE(2), s.dim[0]))));
        break;
    case 1:
        if (s.rank != 2 || !is_float(an_dtype_of(state))) break;
        an_tensor *index = ids(r, AN_SHAPE(3), s.dim[0]);
        an_sign_sgd_rows_at(AT, state, index, an_gather_at(AT, value, ids(r, AN_SHAPE(3), s.dim[0])), 0.1, 0.01,
                            draw(r, 2) ? NULL : an_const_at(AT, r->cx, AN_BOOL, draw(r, 2)));
        break;
    default: an_assign_at(AT, state, value);
    }
    if (an_error(r->cx)) tell_status(r, AN_OK, "effect");
}

/* ---- evaluation, training, and what surrounds them */

static void evaluate(run *r)
{
    an_tensor *root[ROOTS];
    int n = 0;
    for (int i = r->n - 1; i >= 0 && n < ROOTS; i--)
        if (draw(r, 3)) root[n++] = r->t[i];
    if (draw(r, 8) == 0) tell_status(r, n ? an_plan_at(AT, root, n) : AN_OK, "plan");
    const an_status status = n ? an_eval_at(AT, root, n) : an_eval_effects_at(AT, r->cx);
    tell_status(r, status, "eval");
    for (int i = 0; i < n && status == AN_OK; i++) read_back(r, root[i], "root", i);
    if (draw(r, 4) == 0 && r->n) read_back(r, r->t[draw(r, (uint32_t)r->n)], "tensor", 0); /* perhaps never evaluated */
    if (draw(r, 4) == 0 && n) {
        const double x = an_item_at(AT, root[0]);
        tell(r, AN_F64, &x, sizeof x, "item");
        if (an_error(r->cx)) tell_status(r, AN_OK, "item");
    }
}

static void update(run *r)
{
    an_tensor *if_ok = draw(r, 4) ? NULL : an_const_at(AT, r->cx, AN_BOOL, draw(r, 2)), *norm = NULL;
    const an_adamw_options o = {.lr = 0.01,
                                .weight_decay = draw(r, 2) ? 0 : 0.1,
                                .clip = draw(r, 2),
                                .only_if = if_ok,
                                .t = draw(r, 2) ? 0 : 2};
    switch (draw(r, 6)) {
    case 0: norm = an_adamw_at(AT, r->cx, o); break;
    case 1: norm = an_adam_at(AT, r->cx, o); break;
    case 2: norm = an_adam_atan2_at(AT, r->cx, o); break;
    case 3: norm = an_sgd_at(AT, r->cx, 0.1); break;
    case 4:
        norm = an_sgd_with_at(AT, r->cx,
                              (an_sgd_options){.lr = 0.1, .momentum = 0.9, .nesterov = draw(r, 2), .only_if = if_ok});
        break;
    default: return;
    }
    keep(r, norm);
    if (draw(r, 2)) an_ema_at(AT, r->cx, draw(r, 4) ? 0.9 : number(r, false), if_ok);
    if (an_error(r->cx)) tell_status(r, AN_OK, "ema");
}

static void train(run *r)
{
    an_tensor *loss = an_full_at(AT, r->cx, AN_F32, AN_SCALAR, 0);
    const int before = r->n;
    const bool scaled = draw(r, 8) == 0;
    for (int i = 0; i < 4; i++) {
        an_tensor *x = choose(r, number_scalar, NULL);
        if (x)
            loss = an_add_at(
                AT, loss, an_cast_at(AT, an_mean_at(AT, an_square_at(AT, an_tanh_at(AT, x)), AN_ALL, false), AN_F32));
    }
    if (an_error(r->cx)) {
        tell_status(r, AN_OK, "loss");
        return;
    }
    an_backward_at(AT, scaled ? an_scale_loss_at(AT, loss) : loss);
    for (int i = 0; i < before; i++) {
        an_tensor *g = an_grad(r->t[i]);
        const uint8_t there = g != NULL;
        tell(r, AN_U8, &there, 1, "gradient of %d is there", i);
        if (g) keep(r, g);
    }
    if (an_error(r->cx)) tell_status(r, AN_OK, "backward");
    keep(r, loss);
    if (draw(r, 3)) update(r);
    if (draw(r, 12) == 0) update(r); /* a second one is refused */
}

static void surroundings(run *r)
{
    static const char *const texts[] = {"plan", "memory", "kernels", "miss", "chips", "warning", "nothing"};
    an_bill bill;
    an_memory memory;
    double value;
    int64_t step;
    switch (draw(r, 9)) {
    case 0: an_report_text(r->cx, texts[draw(r, AN_COUNT(texts))]); break;
    case 1: an_report(r->cx, &bill); break;
    case 2: an_memory_read(r->cx, &memory), an_memory_reset_peak(r->cx); break;
    case 3: an_peek(r->cx, &value, &step); break;
    case 4: tell_status(r, an_empty_cache(r->cx), "empty cache"); break;
    case 5:
        r->averages = !r->averages;
        tell_status(r, an_use_averages(r->cx, r->averages), "averages");
        break;
    case 6: /* ends the step */
        r->n = 0, r->rounded = !r->rounded;
        tell_status(r, an_round_weights(r->cx, r->rounded), "rounded");
        break;
    case 7: an_set_policy(r->cx, (an_policy){.matmul = draw(r, 2) ? AN_BF16 : draw(r, 2) ? AN_F16 : AN_F32}); break;
    default: tell_status(r, an_synchronize(r->cx), "synchronize");
    }
    if (an_error(r->cx)) tell_status(r, AN_OK, "surroundings");
}

static void call(run *r)
{
    an_tensor *a = draw(r, 2) ? choose(r, floating, NULL) : choose(r, any, NULL);
    an_tensor *f = choose(r, floating, NULL);
    const uint32_t kind = draw(r, 64);
    if (kind < 6 || !a || !f)
        leaf(r, a);
    else if (kind < 20)
        elementwise(r, a);
    else if (kind < 28)
        view(r, a);
    else if (kind < 33)
        reduction(r, a);
    else if (kind < 36)
        norm(r, f);
    else if (kind < 40)
        table(r, a);
    else if (kind < 44)
        product(r, f);
    else if (kind < 47)
        block(r, f);
    else if (kind < 50)
        library_call(r, f);
    else if (kind < 52)
        class_loss(r, f);
    else if (kind < 53)
        misuse(r, a);
    else if (kind < 57)
        name_states(r);
    else if (kind < 59)
        effect(r);
    else if (kind < 61)
        evaluate(r);
    else if (kind < 62)
        surroundings(r);
    else if (kind < 63 && r->scopes < 4)
        r->scopes++, an_scope_push(r->cx, "inner");
    else if (r->scopes > 0)
        r->scopes--, an_scope_pop(r->cx);
    if (an_error(r->cx)) tell_status(r, AN_OK, "operands");
}

static void persistent(run *r)
{
    const int n = an_persist_count(r->cx);
    for (int i = 0; i < n; i++) {
        an_persist p;
        if (an_persist_get(r->cx, i, &p) != AN_OK) fail_msg("%s", an_error(r->cx));
        const size_t bytes = (size_t)count(p.shape) * an_dtype_size(p.dtype);
        void *data = calloc(1, bytes + 1);
        assert_non_null(data);
        const an_status status = an_persist_read(r->cx, i, data, bytes);
        if (status == AN_OK)
            tell(r, (int)p.dtype, data, bytes, "%s", p.name);
        else
            tell_status(r, status, "persist");
        if (draw(r, 10) == 0) tell_status(r, an_persist_write(r->cx, i, data, bytes), "persist write");
        free(data);
    }
}

static void run_program(const program *m, an_ctx *cx, told *log)
{
    run r = {.m = m, .cx = cx, .log = log};
    for (int step = 0; step < STEPS; step++) {
        seed_draws(&r, m->seed, step, CALLS);
        r.n = 0;
        an_set_step(cx, (uint64_t)step);
        an_set_sample(cx, draw(&r, 100));
        if (step && draw(&r, 2)) seed_draws(&r, m->seed, 0, CALLS); /* the first step once more, as training does */
        const uint64_t again = draw(&r, 2) ? 0 : (uint64_t)step;
        for (int i = 0; i < CALLS; i++) {
            if (m->skip[step][i]) continue;
            seed_draws(&r, m->seed, (int)again, i);
            call(&r);
        }
        seed_draws(&r, m->seed, (int)again, CALLS + 1);
        if (draw(&r, 4)) train(&r);
        evaluate(&r);
        if (draw(&r, 4) == 0) evaluate(&r);
        persistent(&r);
        while (r.scopes > 0) r.scopes--, an_scope_pop(cx);
        an_reset(cx);
        if (draw(&r, 6) == 0) surroundings(&r);
    }
}

/* ---- comparing */

static bool is_nan(int dtype, const char *p)
{
    uint16_t h;
    float f;
    double d;
    switch (dtype) {
    case AN_F32: return memcpy(&f, p, sizeof f), isnan(f);
    case AN_F64: return memcpy(&d, p, sizeof d), isnan(d);
    case AN_BF16: return memcpy(&h, p, sizeof h), isnan(an_bf16_to_f32(h));
    case AN_F16: return memcpy(&h, p, sizeof h), isnan(an_f16_to_f32(h));
    default: return false;
    }
}

/* Equal but for which NaN: C does not say. */
static bool same_entry(const entry *a, const entry *b, char why[600])
{
    if (a->dtype != b->dtype || a->bytes != b->bytes || strcmp(a->what, b->what) != 0) {
        snprintf(why, 600, "%.71s (%d, %zu bytes: %.80s), %.71s (%d, %zu bytes: %.80s)", a->what, a->dtype, a->bytes,
                 a->dtype < 0 ? a->data : "", b->what, b->dtype, b->bytes, b->dtype < 0 ? b->data : "");
        return false;
    }
    const size_t size = a->dtype < 0 ? a->bytes : an_dtype_size((an_dtype)a->dtype);
    for (size_t i = 0; i < a->bytes; i += size)
        if (memcmp(a->data + i, b->data + i, size) != 0 &&
            !(is_nan(a->dtype, a->data + i) && is_nan(a->dtype, b->data + i))) {
            snprintf(why, 600, "%.71s: element %zu of %zu differs (dtype %d)", a->what, i / size, a->bytes / size,
                     a->dtype);
            return false;
        }
    return true;
}

static void forget(told *log)
{
    for (int i = 0; i < log->n; i++) free(log->e[i].data);
    log->n = 0;
}

/* Runs it in every way; false: `why` says where two ways differ. */
static bool same_in_every_way(const program *m, bool compiled, char why[800])
{
    static told log[WAYS];
    an_ctx *cx[WAYS] = {0};
    const int ways = compiled ? WAYS : WAYS - 1;
    bool good = true;
    char first[600];
    for (int w = 0; w < ways; w++) {
        an_options o = {
            .device = device, .seed = 5, .threads = w == 1 && m->seed % 4 == 0 ? 2 : 1, .cc = w == 3 ? NULL : "none"};
        o.unfused = w == 1, o.place_apart = w == 2, o.recompute = w >= 2 ? "on" : "off", o.verify = w != 1;
        cx[w] = an_open(&o);
        assert_non_null(cx[w]);
        if (an_error(cx[w])) fail_msg("%s", an_error(cx[w]));
    }
    for (int w = 0; w < ways; w++) run_program(m, cx[w], &log[w]);
    for (int w = 1; w < ways && good; w++)
        for (int i = 0; i < log[0].n && i < log[w].n && good; i++) {
            good = same_entry(&log[0].e[i], &log[w].e[i], first);
            if (!good) snprintf(why, 800, "%s and %s, entry %d: %.600s", way_names[0], way_names[w], i, first);
        }
    for (int w = 1; w < ways && good; w++)
        if (!(good = log[0].n == log[w].n)) snprintf(why, 800, "%s was told more than %s", way_names[0], way_names[w]);
    for (int w = 0; w < ways; w++) an_close(cx[(w + (int)(m->seed % 7)) % ways]), forget(&log[w]);
    return good;
}

static void reduce(program *m, bool compiled, char why[800])
{
    for (int step = STEPS - 1; step >= 0; step--)
        for (int i = CALLS - 1; i >= 0; i--) {
            char now[800];
            m->skip[step][i] = true;
            if (same_in_every_way(m, compiled, now))
                m->skip[step][i] = false;
            else
                memcpy(why, now, sizeof now);
        }
}

static void random_programs_are_the_same_in_every_way(void **state)
{
    (void)state;
    const char *soak = getenv("AN_SOAK"), *one = getenv("AN_RANDOM"), *comma = one ? strchr(one, ',') : NULL;
    const uint64_t first = one ? strtoull(one, NULL, 10) : 1;
    const uint64_t n = comma ? strtoull(comma + 1, NULL, 10) : one ? 1 : soak ? 30000 : 300;
    int failed = 0;
    for (uint64_t seed = first; seed < first + n && failed < 5; seed++) {
        program m = {.seed = seed};
        char why[800];
        const bool compiled = getenv("AN_COMPILED") != NULL;
        if (same_in_every_way(&m, compiled, why)) continue;
        print_error("seed %llu: %s\n", (unsigned long long)seed, why);
        reduce(&m, compiled, why);
        print_error("reduced: %s; calls left:", why);
        for (int s = 0; s < STEPS; s++)
            for (int i = 0; i < CALLS; i++)
                if (!m.skip[s][i]) print_error(" %d.%d", s, i);
        print_error("\n");
        failed++;
    }
    assert_int_equal(failed, 0);
}

int main(void)
{
    if (getenv("AN_LAB_DEVICE")) device = getenv("AN_LAB_DEVICE");
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_programs_are_the_same_in_every_way)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
