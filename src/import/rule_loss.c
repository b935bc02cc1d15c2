/* rule_loss.c: losses of PyTorch. The argument reduction is 0 for none, 1 for mean, 2 for sum. */
#include "import/rules.h"
#include <math.h>

static void finish(an_build *b, const an_pt2_node *n, an_tensor *each, int64_t reduction)
{
    if (reduction == 1 && an_rank(each) > 0) each = an_mean_at(AN_AT, each, AN_ALL, false);
    if (reduction == 2 && an_rank(each) > 0) each = an_sum_at(AN_AT, each, AN_ALL, false);
    an_out(b, n, 0, each);
}

/* ---- of classes */

/* [N,C,d...] with classes last: [N,d...,C]; [C] as it is. */
static an_tensor *classes_last(an_tensor *x)
{
    return an_rank(x) >= 3 ? an_last(x) : x;
}

typedef struct classes {
    an_tensor *labels,
        *valid; /* i32 and bool [N,d...]; ignored labels are -1, and what is no class is 0: a NaN reaches its gradient */
    an_tensor *known;  /* 1, or NaN where the label is neither a class nor ignored, which PyTorch refuses */
    an_tensor *hot;    /* bool [N,d...,C] */
    an_tensor *weight; /* [N,d...]: of each label's class; NULL: 1 */
} classes;

static classes read_labels(an_build *b, an_tensor *scores, an_tensor *labels, an_tensor *weight, int64_t ignore)
{
    classes c;
    labels = an_as(labels, AN_I32);
    c.valid = an_ne_at(AN_AT, labels, an_num(labels, b->cx, (double)ignore));
    an_shape s = an_shape_of(labels);
    if (s.rank < 8) s.dim[s.rank++] = 1;
    const an_shape all = an_shape_of(scores);
    an_tensor *zero_id = an_num(labels, b->cx, 0),
              *classes = an_num(labels, b->cx, (double)an_dim(scores, all.rank - 1));
    an_tensor *from_zero = an_ge_at(AN_AT, labels, zero_id), *below = an_lt_at(AN_AT, labels, classes);
    an_tensor *in = an_and_at(AN_AT, from_zero, below);
    an_tensor *good = an_or_at(AN_AT, in, an_not_at(AN_AT, c.valid));
    an_tensor *of_class = an_where_at(AN_AT, in, labels, zero_id);
    c.labels = an_where_at(AN_AT, c.valid, of_class, an_num(labels, b->cx, -1));
    an_tensor *label = an_reshape_at(AN_AT, c.labels, s);
    c.hot = an_eq_at(AN_AT, an_iota_at(AN_AT, b->cx, all, all.rank - 1), label);
    an_tensor *one = an_num(scores, b->cx, 1), *nan = an_num(scores, b->cx, NAN);
    c.known = an_where_at(AN_AT, good, one, nan);
    c.weight = NULL;
    if (weight) {
        an_tensor *zero = an_num(scores, b->cx, 0);
        an_tensor *each = an_where_at(AN_AT, c.hot, an_as(weight, an_dtype_of(scores)), zero);
        c.weight = an_sum_at(AN_AT, each, AN_AXIS(-1), false);
    }
    return c;
}

/* Mean over the labels that count, by their weights. */
static an_tensor *weighted_mean(an_build *b, const classes *c, an_tensor *each)
{
    an_tensor *zero = an_num(each, b->cx, 0);
    an_tensor *weight = c->weight ? an_mul_at(AN_AT, c->weight, c->known) : c->known;
    weight = an_where_at(AN_AT, c->valid, weight, zero); /* a NaN reaches the loss and all gradients */
    an_tensor *count = an_rank(weight) ? an_sum_at(AN_AT, weight, AN_ALL, false) : weight;
    return an_div_at(AN_AT, an_rank(each) ? an_sum_at(AN_AT, each, AN_ALL, false) : each, count);
}

static void finish_classes(an_build *b, const an_pt2_node *n, const classes *c, an_tensor *each, int64_t reduction)
{
    if (reduction == 1)
        an_out(b, n, 0, weighted_mean(b, c, each));
    else
        finish(b, n, an_mul_at(AN_AT, each, c->known), reduction);
}

/* minus the log-probability at the label, by class weight; 0 where the label is ignored. */
static an_tensor *picked(an_build *b, const classes *c, an_tensor *logp)
{
    an_tensor *zero = an_num(logp, b->cx, 0);
    an_tensor *at = an_sum_at(AN_AT, an_where_at(AN_AT, c->hot, logp, zero), AN_AXIS(-1), false);
    at = an_neg_at(AN_AT, c->weight ? an_mul_at(AN_AT, at, c->weight) : at);
    return an_where_at(AN_AT, c->valid, at, zero);
}

/* Targets that are probabilities: -sum(p w logp), a mean over the samples. */
static void soft_targets(an_build *b, const an_pt2_node *n, an_tensor *logp, double smoothing)
{
    an_tensor *p = an_as(classes_last(an_in(b, n, 1)), an_dtype_of(logp)), *weight = an_in(b, n, 2);
    const int rank = an_rank(logp);
    const double C = (double)an_dim(logp, rank - 1);
    if (smoothing > 0) p = an_add_num_at(AN_AT, an_mul_num_at(AN_AT, p, 1 - smoothing), smoothing / C);
    an_tensor *each = an_mul_at(AN_AT, p, logp);
    if (weight) each = an_mul_at(AN_AT, each, weight);
    each = an_neg_at(AN_AT, an_sum_at(AN_AT, each, AN_AXIS(-1), false));
    finish(b, n, each, an_in_int(b, n, 3));
}

/* (1 - s) nll + s / C sum over classes of -w logp; without smoothing a class that a mask made impossible (-inf) does not count. */
static an_tensor *smoothed(an_build *b, const an_pt2_node *n, const classes *c, an_tensor *logp, double s)
{
    if (s == 0) return picked(b, c, logp);
    an_tensor *weight = an_in(b, n, 2), *zero = an_num(logp, b->cx, 0);
    an_tensor *all =
        an_sum_at(AN_AT, weight ? an_mul_at(AN_AT, logp, an_as(weight, an_dtype_of(logp))) : logp, AN_AXIS(-1), false);
    all = an_where_at(AN_AT, c->valid, an_mul_num_at(AN_AT, all, -s / (double)an_dim(logp, an_rank(logp) - 1)), zero);
    return an_add_at(AN_AT, an_mul_num_at(AN_AT, picked(b, c, logp), 1 - s), all);
}

an_status an_rule_cross_entropy(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_widen(classes_last(an_in(b, n, 0))), *labels = an_in(b, n, 1); /* [N,d...,C] */
    const double smoothing = an_in_float(b, n, 5);
    if (an_is_float(labels)) {
        soft_targets(b, n, an_log_softmax_at(AN_AT, x, -1), smoothing);
        return AN_OK;
    }
    const classes c = read_labels(b, x, labels, an_in(b, n, 2), an_in_int(b, n, 4));
    an_tensor *each;
    if (smoothing == 0 && !c.weight && an_dtype_of(x) == AN_F32 && an_rank(x) > 1)
        each = an_cross_entropy_at(AN_AT, x, c.labels);
    else
        each = smoothed(b, n, &c, an_log_softmax_at(AN_AT, x, -1), smoothing);
    finish_classes(b, n, &c, each, an_in_int(b, n, 3));
    return AN_OK;
}

an_status an_rule_nll(an_build *b, const an_pt2_node *n)
{
    an_tensor *logp = an_widen(classes_last(an_in(b, n, 0)));
    an_tensor *weight = an_in(b, n, 2);
    const classes c = read_labels(b, logp, an_in(b, n, 1), weight, an_in_int(b, n, 4));
    finish_classes(b, n, &c, picked(b, &c, logp), an_in_int(b, n, 3));
    return AN_OK;
}

/* ---- of values */

static void two(an_build *b, const an_pt2_node *n, an_tensor **x, an_tensor **y)
{
    *x = an_widen(an_in(b, n, 0));
    *y = an_widen(an_in(b, n, 1));
    an_promote(x, y);
}

an_status an_rule_mse(an_build *b, const an_pt2_node *n)
{
    an_tensor *x, *y;
    two(b, n, &x, &y);
    finish(b, n, an_square_at(AN_AT, an_sub_at(AN_AT, x, y)), an_in_int(b, n, 2));
    return AN_OK;
}

an_status an_rule_l1(an_build *b, const an_pt2_node *n)
{
    an_tensor *x, *y;
    two(b, n, &x, &y);
    finish(b, n, an_abs_at(AN_AT, an_sub_at(AN_AT, x, y)), an_in_int(b, n, 2));
    return AN_OK;
}

/* Squares below `bend`, lines above: d^2/2 and bend (|d| - bend/2), divided by `scale`. */
static void bent(an_build *b, const an_pt2_node *n, double bend, double scale)
{
    an_tensor *x, *y;
    two(b, n, &x, &y);
    an_tensor *d = an_sub_at(AN_AT, x, y), *a = an_abs_at(AN_AT, d);
    an_tensor *square = an_mul_num_at(AN_AT, an_square_at(AN_AT, d), 0.5 / scale);
    an_tensor *line = an_mul_num_at(AN_AT, an_add_num_at(AN_AT, a, -0.5 * bend), bend / scale);
    finish(b, n, an_where_at(AN_AT, an_lt_at(AN_AT, a, an_num(a, b->cx, bend)), square, line), an_in_int(b, n, 2));
}

an_status an_rule_smooth_l1(an_build *b, const an_pt2_node *n)
{
    const double beta = an_in_float(b, n, 3);
    if (beta == 0) return an_rule_l1(b, n);
    bent(b, n, beta, beta);
    return AN_OK;
}
an_status an_rule_huber(an_build *b, const an_pt2_node *n)
{
    bent(b, n, an_in_float(b, n, 3), 1);
    return AN_OK;
}

/* -(y log p + (1 - y) log(1 - p)), logarithms not below -100. As in PyTorch the slope is (p - y) / (p (1 - p)) with 1e-12 as the least
 * divisor, so that a sigmoid that rounds to 0 or 1 has a finite gradient; that of y is the difference of the two logarithms. */
an_status an_rule_bce(an_build *b, const an_pt2_node *n)
{
    an_tensor *p, *y, *w = an_in(b, n, 2);
    two(b, n, &p, &y);
    an_tensor *least = an_num(p, b->cx, -100), *held = an_detach_at(AN_AT, p);
    an_tensor *l1 = an_log_at(AN_AT, held), *l0 = an_log1p_at(AN_AT, an_neg_at(AN_AT, held));
    l1 = an_where_at(AN_AT, an_lt_at(AN_AT, l1, least), least, l1);
    l0 = an_where_at(AN_AT, an_lt_at(AN_AT, l0, least), least, l0);
    an_tensor *one = an_add_num_at(AN_AT, y, -1); /* y - 1 */
    an_tensor *hit = an_mul_at(AN_AT, y, l1), *each = an_sub_at(AN_AT, an_mul_at(AN_AT, one, l0), hit);
    an_tensor *other = an_add_num_at(AN_AT, an_neg_at(AN_AT, held), 1), *spread = an_mul_at(AN_AT, held, other);
    an_tensor *smallest = an_num(p, b->cx, 1e-12), *miss = an_sub_at(AN_AT, held, an_detach_at(AN_AT, y));
    spread = an_where_at(AN_AT, an_lt_at(AN_AT, spread, smallest), smallest, spread);
    an_tensor *slope = an_div_at(AN_AT, miss, spread), *zero = an_sub_at(AN_AT, p, held);
    each = an_add_at(AN_AT, each, an_mul_at(AN_AT, zero, slope));
    finish(b, n, w ? an_mul_at(AN_AT, each, w) : each, an_in_int(b, n, 3));
    return AN_OK;
}

/* (1 - y) x + (1 + (pw - 1) y) log(1 + exp(-x)): softplus has no overflow. */
an_status an_rule_bce_logits(an_build *b, const an_pt2_node *n)
{
    an_tensor *x, *y, *w = an_in(b, n, 2), *positive = an_in(b, n, 3);
    two(b, n, &x, &y);
    an_tensor *soft = an_softplus_at(AN_AT, an_neg_at(AN_AT, x));
    if (positive) {
        an_tensor *more = an_mul_at(AN_AT, an_add_num_at(AN_AT, positive, -1), y);
        soft = an_mul_at(AN_AT, an_add_num_at(AN_AT, more, 1), soft);
    }
    an_tensor *rest = an_mul_at(AN_AT, an_add_num_at(AN_AT, an_neg_at(AN_AT, y), 1), x);
    an_tensor *each = an_add_at(AN_AT, rest, soft);
    finish(b, n, w ? an_mul_at(AN_AT, each, w) : each, an_in_int(b, n, 4));
    return AN_OK;
}

/* y (log y - x), 0 where y is 0; of logarithms exp(y) (y - x). */
an_status an_rule_kl_div(an_build *b, const an_pt2_node *n)
{
    an_tensor *x, *y;
    two(b, n, &x, &y);
    an_tensor *zero = an_num(x, b->cx, 0), *each;
    if (an_in_bool(b, n, 3)) {
        each = an_sub_at(AN_AT, y, x);
        each = an_mul_at(AN_AT, an_exp_at(AN_AT, y), each);
    } else {
        an_tensor *some = an_gt_at(AN_AT, y, zero), *safe = an_where_at(AN_AT, some, y, an_num(x, b->cx, 1));
        each = an_mul_at(AN_AT, y, x);
        each = an_sub_at(AN_AT, an_where_at(AN_AT, some, an_mul_at(AN_AT, y, an_log_at(AN_AT, safe)), zero), each);
    }
    finish(b, n, each, an_in_int(b, n, 2));
    return AN_OK;
}

/* sum(x y) / (max(|x|, eps) max(|y|, eps)) */
an_status an_rule_cosine_similarity(an_build *b, const an_pt2_node *n)
{
    an_tensor *x, *y;
    two(b, n, &x, &y);
    if (an_rank(x) == 0 && an_rank(y) == 0) { /* of two numbers: of their lists of one */
        x = an_reshape_1(x, 1);
        y = an_reshape_1(y, 1);
    }
    /* the axis is that of both beside one another: lengths are those of the expanded ones */
    const an_shape both = an_shape_of(an_add_at(AN_AT, x, y));
    const int axis = an_wrap_axis(an_in_int(b, n, 2), both.rank);
    const double eps = an_in_float(b, n, 3);
    an_tensor *part[2] = {an_expand_at(AN_AT, x, both), an_expand_at(AN_AT, y, both)};
    for (int i = 0; i < 2; i++) {
        an_tensor *s = an_sum_at(AN_AT, an_square_at(AN_AT, part[i]), AN_AXIS(axis), true);
        an_tensor *least = an_num(s, b->cx, eps * eps);
        s = an_sqrt_at(AN_AT, an_where_at(AN_AT, an_lt_at(AN_AT, s, least), least, s));
        part[i] = an_div_at(AN_AT, part[i], s);
    }
    an_out(b, n, 0, an_sum_at(AN_AT, an_mul_at(AN_AT, part[0], part[1]), AN_AXIS(axis), false));
    return AN_OK;
}

/* x1 x2 y margin reduction: max(0, -y (x1 - x2) + margin) */
an_status an_rule_margin_ranking(an_build *b, const an_pt2_node *n)
{
    an_tensor *x, *y, *label = an_widen(an_in(b, n, 2));
    two(b, n, &x, &y);
    an_promote(&x, &label);
    an_tensor *d = an_sub_at(AN_AT, y, x), *zero = an_num(x, b->cx, 0);
    d = an_add_num_at(AN_AT, an_mul_at(AN_AT, label, d), an_in_float(b, n, 3));
    finish(b, n, an_where_at(AN_AT, an_lt_at(AN_AT, d, zero), zero, d), an_in_int(b, n, 4));
    return AN_OK;
}

/* self target reduction: log(1 + exp(-y x)) */
an_status an_rule_soft_margin(an_build *b, const an_pt2_node *n)
{
    an_tensor *x, *y;
    two(b, n, &x, &y);
    finish(b, n, an_softplus_at(AN_AT, an_mul_at(AN_AT, an_neg_at(AN_AT, y), x)), an_in_int(b, n, 2));
    return AN_OK;
}

/* self target margin reduction: x where y is 1, max(0, margin - x) where it is -1 */
an_status an_rule_hinge_embedding(an_build *b, const an_pt2_node *n)
{
    an_tensor *x, *y;
    two(b, n, &x, &y);
    an_tensor *zero = an_num(x, b->cx, 0), *far = an_add_num_at(AN_AT, an_neg_at(AN_AT, x), an_in_float(b, n, 2));
    far = an_where_at(AN_AT, an_lt_at(AN_AT, far, zero), zero, far);
    an_tensor *one = an_num(x, b->cx, 1), *other = an_num(x, b->cx, -1);
    an_tensor *apart = an_where_at(AN_AT, an_eq_at(AN_AT, y, one), zero, far);
    an_tensor *near = an_where_at(AN_AT, an_eq_at(AN_AT, y, other), zero, x);
    finish(b, n, an_add_at(AN_AT, apart, near), an_in_int(b, n, 3));
    return AN_OK;
}

/* input target log_input full eps reduction: exp(x) - y x, or x - y log(x + eps) */
an_status an_rule_poisson(an_build *b, const an_pt2_node *n)
{
    an_tensor *x, *y, *each;
    two(b, n, &x, &y);
    if (an_in_bool(b, n, 2)) {
        each = an_mul_at(AN_AT, y, x);
        each = an_sub_at(AN_AT, an_exp_at(AN_AT, x), each);
    } else {
        each = an_mul_at(AN_AT, y, an_log_at(AN_AT, an_add_num_at(AN_AT, x, an_in_float(b, n, 4))));
        each = an_sub_at(AN_AT, x, each);
    }
    if (an_in_bool(b, n, 3)) { /* log(y!) by Stirling's formula, of labels above 1 */
        an_tensor *one = an_num(y, b->cx, 1), *big = an_gt_at(AN_AT, y, one), *safe = an_where_at(AN_AT, big, y, one);
        an_tensor *round = an_mul_num_at(AN_AT, an_log_at(AN_AT, an_mul_num_at(AN_AT, safe, 6.283185307179586)), 0.5);
        an_tensor *first = an_sub_at(AN_AT, an_mul_at(AN_AT, safe, an_log_at(AN_AT, safe)), safe);
        an_tensor *term = an_add_at(AN_AT, first, round);
        each = an_add_at(AN_AT, each, an_where_at(AN_AT, big, term, an_num(y, b->cx, 0)));
    }
    finish(b, n, each, an_in_int(b, n, 5));
    return AN_OK;
}

/* x where it is not below 0. */
static an_tensor *from_zero(an_build *b, an_tensor *x)
{
    an_tensor *zero = an_num(x, b->cx, 0);
    return an_where_at(AN_AT, an_lt_at(AN_AT, x, zero), zero, x);
}

/* |x - y + eps| over the last axis, which goes. */
static an_tensor *distance(an_build *b, an_tensor *x, an_tensor *y, double p, double eps)
{
    an_tensor *d = an_norm_of_rows(b, an_add_num_at(AN_AT, an_sub_at(AN_AT, x, y), eps), p);
    an_shape s = an_shape_of(d);
    s.rank--;
    return an_reshape_at(AN_AT, d, s);
}

/* anchor positive negative margin p eps swap reduction: how much nearer than by the margin the positive is not */
an_status an_rule_triplet_margin(an_build *b, const an_pt2_node *n)
{
    an_tensor *a = an_widen(an_in(b, n, 0)), *x = an_widen(an_in(b, n, 1)), *y = an_widen(an_in(b, n, 2));
    const double p = an_in_float(b, n, 4), eps = an_in_float(b, n, 5);
    an_promote(&a, &x);
    an_promote(&a, &y);
    x = an_as(x, an_dtype_of(a));
    if (an_rank(a) < 1 || an_rank(x) < 1 || an_rank(y) < 1) return an_build_refuse(b, AN_E_UNSUPPORTED, "of numbers");
    an_tensor *near = distance(b, a, x, p, eps), *far = distance(b, a, y, p, eps);
    if (an_in_bool(b, n, 6)) far = an_minimum_at(AN_AT, far, distance(b, x, y, p, eps));
    an_tensor *d = an_add_num_at(AN_AT, an_sub_at(AN_AT, near, far), an_in_float(b, n, 3));
    finish(b, n, from_zero(b, d), an_in_int(b, n, 7));
    return AN_OK;
}

/* input1 input2 target margin reduction: 1 - cosine where the label is 1, what is above the margin where it is -1 */
an_status an_rule_cosine_embedding(an_build *b, const an_pt2_node *n)
{
    an_tensor *x, *y, *label = an_in(b, n, 2);
    two(b, n, &x, &y);
    const an_axes last = AN_AXIS(an_rank(x) - 1);
    if (an_rank(x) < 1 || an_rank(x) != an_rank(y))
        return an_build_refuse(b, AN_E_UNSUPPORTED, "of other than two tensors of equal axes");
    an_tensor *dot = an_sum_at(AN_AT, an_mul_at(AN_AT, x, y), last, false);
    an_tensor *xx = an_add_num_at(AN_AT, an_sum_at(AN_AT, an_square_at(AN_AT, x), last, false), 1e-12);
    an_tensor *yy = an_add_num_at(AN_AT, an_sum_at(AN_AT, an_square_at(AN_AT, y), last, false), 1e-12);
    an_tensor *cosine = an_div_at(AN_AT, dot, an_sqrt_at(AN_AT, an_mul_at(AN_AT, xx, yy))), *zero = an_num(x, b->cx, 0);
    an_tensor *like = an_add_num_at(AN_AT, an_neg_at(AN_AT, cosine), 1);
    an_tensor *unlike = from_zero(b, an_add_num_at(AN_AT, cosine, -an_in_float(b, n, 3)));
    an_tensor *one = an_num(label, b->cx, 1), *other = an_eq_at(AN_AT, label, an_num(label, b->cx, -1));
    unlike = an_where_at(AN_AT, other, unlike, zero);
    finish(b, n, an_where_at(AN_AT, an_eq_at(AN_AT, label, one), like, unlike), an_in_int(b, n, 4));
    return AN_OK;
}

/* self [N,C] or [C], target p margin weight reduction: what each other class lacks of the margin below the label's, to the power p */
an_status an_rule_multi_margin(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_widen(an_in(b, n, 0)), *label = an_as(an_in(b, n, 1), AN_I32), *weight = an_in(b, n, 4);
    const double p = an_in_float(b, n, 2);
    const bool alone = an_rank(x) == 1;
    if (alone) x = an_reshape_at(AN_AT, x, AN_SHAPE(1, an_count(x)));
    if (an_rank(x) != 2 || (p != 1 && p != 2))
        return an_build_refuse(b, AN_E_UNSUPPORTED, "other than rows of classes, or p other than 1 and 2");
    const an_shape s = an_shape_of(x);
    label = an_reshape_at(AN_AT, label, AN_SHAPE(s.dim[0], 1));
    an_tensor *hot = an_eq_at(AN_AT, an_iota_at(AN_AT, b->cx, s, 1), label), *zero = an_num(x, b->cx, 0);
    an_tensor *own = an_sum_at(AN_AT, an_where_at(AN_AT, hot, x, zero), AN_AXIS(1), true);
    an_tensor *lack = from_zero(b, an_add_num_at(AN_AT, an_sub_at(AN_AT, x, own), an_in_float(b, n, 3)));
    if (p == 2) lack = an_square_at(AN_AT, lack);
    an_tensor *each = an_sum_at(AN_AT, an_where_at(AN_AT, hot, zero, lack), AN_AXIS(1), false);
    if (weight) {
        an_tensor *of_class = an_where_at(AN_AT, hot, an_as(weight, an_dtype_of(x)), zero);
        each = an_mul_at(AN_AT, each, an_sum_at(AN_AT, of_class, AN_AXIS(1), false));
    }
    each = an_mul_num_at(AN_AT, each, 1 / (double)s.dim[1]);
    finish(b, n, alone ? an_reshape_at(AN_AT, each, AN_SCALAR) : each, an_in_int(b, n, 5));
    return AN_OK;
}

/* self [N,C] or [C], target: the labels of each row up to the first -1; what each other class lacks of 1 below each label's */
an_status an_rule_multilabel_margin(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_widen(an_in(b, n, 0)), *labels = an_as(an_in(b, n, 1), AN_I32);
    const bool alone = an_rank(x) == 1;
    if (alone) x = an_reshape_at(AN_AT, x, AN_SHAPE(1, an_count(x)));
    if (an_rank(x) != 2) return an_build_refuse(b, AN_E_UNSUPPORTED, "of other than rows of classes");
    const int64_t N = an_dim(x, 0), C = an_dim(x, 1);
    labels = an_reshape_at(AN_AT, labels, AN_SHAPE(N, C));
    an_tensor *zero_id = an_num(labels, b->cx, 0), *zero = an_num(x, b->cx, 0);
    an_tensor *ends = an_cumsum_at(AN_AT, an_as(an_lt_at(AN_AT, labels, zero_id), AN_F32), false);
    an_tensor *valid = an_reshape_at(AN_AT, an_eq_at(AN_AT, ends, an_num(ends, b->cx, 0)), AN_SHAPE(N, C, 1));
    an_tensor *id = an_reshape_at(AN_AT, labels, AN_SHAPE(N, C, 1)), *row = an_reshape_at(AN_AT, x, AN_SHAPE(N, 1, C));
    an_tensor *hot = an_eq_at(AN_AT, an_iota_at(AN_AT, b->cx, AN_SHAPE(N, C, C), 2), id); /* [N, label, class] */
    hot = an_and_at(AN_AT, hot, valid);
    an_tensor *count = an_max_at(AN_AT, an_as(hot, AN_I32), AN_AXIS(1), true), *in = an_ne_at(AN_AT, count, zero_id);
    an_tensor *own = an_sum_at(AN_AT, an_where_at(AN_AT, hot, row, zero), AN_AXIS(2), true); /* [N,label,1] */
    an_tensor *lack = from_zero(b, an_add_num_at(AN_AT, an_sub_at(AN_AT, row, own), 1));
    an_tensor *counts = an_and_at(AN_AT, valid, an_not_at(AN_AT, in));
    an_tensor *each = an_sum_at(AN_AT, an_where_at(AN_AT, counts, lack, zero), AN_AXIS(1) | AN_AXIS(2), false);
    each = an_mul_num_at(AN_AT, each, 1 / (double)C);
    finish(b, n, alone ? an_reshape_at(AN_AT, each, AN_SCALAR) : each, an_in_int(b, n, 2));
    return AN_OK;
}
