/* rule_make.c: operations of PyTorch that create tensors: filled, arange, random, dropout. */
#include "import/rules.h"
#include <math.h>
#include <string.h>

/* ---- filled */

static an_status filled(an_build *b, const an_pt2_node *n, an_shape s, double x)
{
    const an_dtype dtype = an_out_dtype(b, n, 0);
    if (dtype == AN_BOOL) x = x != 0;
    if (dtype == AN_I32) x = x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : x; /* int64's ends */
    an_out(b, n, 0, an_full_at(AN_AT, b->cx, dtype, s, x));
    return AN_OK;
}

an_status an_rule_zeros(an_build *b, const an_pt2_node *n)
{
    return filled(b, n, an_in_shape(b, n, 0), 0);
}
an_status an_rule_ones(an_build *b, const an_pt2_node *n)
{
    return filled(b, n, an_in_shape(b, n, 0), 1);
}
an_status an_rule_full(an_build *b, const an_pt2_node *n)
{
    return filled(b, n, an_in_shape(b, n, 0), an_in_float(b, n, 1));
}
an_status an_rule_zeros_like(an_build *b, const an_pt2_node *n)
{
    return filled(b, n, an_shape_of(an_in(b, n, 0)), 0);
}
an_status an_rule_ones_like(an_build *b, const an_pt2_node *n)
{
    return filled(b, n, an_shape_of(an_in(b, n, 0)), 1);
}
an_status an_rule_full_like(an_build *b, const an_pt2_node *n)
{
    return filled(b, n, an_shape_of(an_in(b, n, 0)), an_in_float(b, n, 1));
}
an_status an_rule_new_zeros(an_build *b, const an_pt2_node *n)
{
    return filled(b, n, an_in_shape(b, n, 1), 0);
}
an_status an_rule_new_ones(an_build *b, const an_pt2_node *n)
{
    return filled(b, n, an_in_shape(b, n, 1), 1);
}
an_status an_rule_new_full(an_build *b, const an_pt2_node *n)
{
    return filled(b, n, an_in_shape(b, n, 1), an_in_float(b, n, 2));
}
an_status an_rule_scalar_tensor(an_build *b, const an_pt2_node *n)
{
    return filled(b, n, AN_SCALAR, an_in_float(b, n, 0));
}
an_status an_rule_fill_tensor(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *value = an_as(an_in(b, n, 1), an_dtype_of(x));
    an_out(b, n, 0, an_expand_at(AN_AT, an_reshape_at(AN_AT, value, AN_SCALAR), an_shape_of(x)));
    return AN_OK;
}

/* start + i step; whole numbers exactly. */
static an_status ramp(an_build *b, const an_pt2_node *n, double start, double stop, double step)
{
    const double length = ceil((stop - start) / step);
    const an_dtype dtype = an_out_dtype(b, n, 0);
    if (!(length >= 0 && length < INT32_MAX))
        return an_build_refuse(b, AN_E_IO, "%g elements; the file is damaged", length);
    an_tensor *i = an_iota_at(AN_AT, b->cx, AN_SHAPE((int64_t)length), 0);
    const bool whole = start == floor(start) && step == floor(step) && fabs(start) < 1e9 && fabs(step) < 1e9;
    if (!whole || dtype != AN_I32) i = an_as(i, dtype == AN_F64 ? AN_F64 : AN_F32);
    if (step != 1) i = an_mul_num_at(AN_AT, i, step);
    if (start != 0) i = an_add_num_at(AN_AT, i, start);
    an_out(b, n, 0, an_as(i, dtype));
    return AN_OK;
}

an_status an_rule_arange(an_build *b, const an_pt2_node *n)
{
    return ramp(b, n, 0, an_in_float(b, n, 0), 1);
}
an_status an_rule_arange_start(an_build *b, const an_pt2_node *n)
{
    return ramp(b, n, an_in_float(b, n, 0), an_in_float(b, n, 1), 1);
}
an_status an_rule_arange_step(an_build *b, const an_pt2_node *n)
{
    return ramp(b, n, an_in_float(b, n, 0), an_in_float(b, n, 1), an_in_float(b, n, 2));
}

/* Of integers: the ends cut to whole numbers, the numbers between them as well. */
static an_status whole_steps(an_build *b, const an_pt2_node *n, double start, double stop, int64_t steps)
{
    enum { MOST_STEPS = 4096 };
    int32_t number[MOST_STEPS];
    const bool here = fabs(start) < 2147483648.0 && fabs(stop) < 2147483648.0;
    if (!here || steps < 0 || steps > MOST_STEPS)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "of more than %d integers, or beyond 32 bits", MOST_STEPS);
    const double first = trunc(start), last = trunc(stop), step = steps > 1 ? (last - first) / (double)(steps - 1) : 0;
    for (int64_t i = 0; i < steps; i++)
        number[i] =
            (int32_t)(i < steps / 2 || steps == 1 ? first + step * (double)i : last - step * (double)(steps - 1 - i));
    an_out(b, n, 0, an_as(an_constant_at(AN_AT, b->cx, AN_I32, AN_SHAPE(steps), number), an_out_dtype(b, n, 0)));
    return AN_OK;
}

an_status an_rule_linspace(an_build *b, const an_pt2_node *n)
{
    const double start = an_in_float(b, n, 0), stop = an_in_float(b, n, 1);
    const int64_t steps = an_in_int(b, n, 2);
    const double step = steps > 1 ? (stop - start) / (double)(steps - 1) : 0;
    const an_dtype out = an_out_dtype(b, n, 0), dtype = out == AN_F64 ? AN_F64 : AN_F32;
    if (!an_is_float_dtype(out)) return whole_steps(b, n, start, stop, steps);
    an_tensor *i = an_iota_at(AN_AT, b->cx, AN_SHAPE(steps), 0), *half = an_num(i, b->cx, (double)(steps / 2));
    an_tensor *early = an_lt_at(AN_AT, i, half), *back = an_as(an_add_num_at(AN_AT, i, -(double)(steps - 1)), dtype);
    an_tensor *up = an_add_num_at(AN_AT, an_mul_num_at(AN_AT, an_as(i, dtype), step), start);
    an_tensor *down =
        an_add_num_at(AN_AT, an_mul_num_at(AN_AT, back, step), steps > 1 ? stop : start); /* the last is stop */
    an_out(b, n, 0, an_as(an_where_at(AN_AT, early, up, down), out));
    return AN_OK;
}

static an_status identity(an_build *b, const an_pt2_node *n, int64_t rows, int64_t columns)
{
    const an_shape s = AN_SHAPE(rows, columns);
    an_tensor *column = an_iota_at(AN_AT, b->cx, s, 1);
    an_tensor *same = an_eq_at(AN_AT, an_iota_at(AN_AT, b->cx, s, 0), column);
    an_out(b, n, 0, an_as(same, an_out_dtype(b, n, 0)));
    return AN_OK;
}

an_status an_rule_eye(an_build *b, const an_pt2_node *n)
{
    return identity(b, n, an_in_int(b, n, 0), an_in_int(b, n, 0));
}
an_status an_rule_eye_m(an_build *b, const an_pt2_node *n)
{
    return identity(b, n, an_in_int(b, n, 0), an_in_int(b, n, 1));
}

/* ---- random: this library's own numbers, not PyTorch's */

an_status an_rule_dropout(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    const double p = an_in_float(b, n, 1);
    const bool on = an_in_bool(b, n, 2) && !b->inference && p > 0;
    if (p >= 1 && on)
        an_out_last(b, n, 0, an_mul_num_at(AN_AT, x.t, 0), x.last);
    else
        an_out_last(b, n, 0, on ? an_dropout_at(AN_AT, x.t, p) : x.t, x.last);
    return AN_OK;
}

/* Whole channels are dropped: the mask is [N,C,1,1]. */
an_status an_rule_feature_dropout(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    const double p = an_in_float(b, n, 1);
    an_shape s = an_shape_of(x);
    for (int i = 2; i < s.rank; i++) s.dim[i] = 1;
    if (!an_in_bool(b, n, 2) || b->inference || p <= 0) return an_out(b, n, 0, x), AN_OK;
    an_tensor *ones = an_full_at(AN_AT, b->cx, an_dtype_of(x), s, 1);
    an_out(b, n, 0, p >= 1 ? an_mul_num_at(AN_AT, x, 0) : an_mul_at(AN_AT, x, an_dropout_at(AN_AT, ones, p)));
    return AN_OK;
}

static an_status refuse_inference(an_build *b)
{
    return b->inference ? an_build_refuse(b, AN_E_UNSUPPORTED,
                                          "draws random numbers, and the archive has no graph for evaluation: export "
                                          "one too, with python -m anneal.export")
                        : AN_OK;
}

/* The same as dropout, with the mask of what was kept. */
an_status an_rule_native_dropout(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    const double p = an_in_float(b, n, 1);
    const bool on = (an_in_none(n, 2) || an_in_bool(b, n, 2)) && !b->inference && p > 0, none = on && p >= 1;
    if (!on || none) {
        an_out(b, n, 0, none ? an_full_at(AN_AT, b->cx, an_dtype_of(x), an_shape_of(x), 0) : x);
        an_out(b, n, 1, an_full_at(AN_AT, b->cx, AN_BOOL, an_shape_of(x), none ? 0 : 1));
        return AN_OK;
    }
    an_tensor *u = an_rand_at(AN_AT, b->cx, an_shape_of(x)), *keep = an_ge_at(AN_AT, u, an_num(u, b->cx, p));
    an_tensor *scaled = an_mul_num_at(AN_AT, x, 1 / (1 - p));
    an_out(b, n, 0, an_where_at(AN_AT, keep, scaled, an_num(x, b->cx, 0)));
    an_out(b, n, 1, keep);
    return AN_OK;
}

static an_status drawn(an_build *b, const an_pt2_node *n, an_tensor *t)
{
    AN_TRY(refuse_inference(b));
    an_out(b, n, 0, an_detach_at(AN_AT, an_as(t, an_out_dtype(b, n, 0))));
    return AN_OK;
}

an_status an_rule_bernoulli(an_build *b, const an_pt2_node *n)
{
    an_tensor *p = an_as(an_in(b, n, 0), AN_F32);
    return drawn(b, n, an_lt_at(AN_AT, an_rand_at(AN_AT, b->cx, an_shape_of(p)), p));
}
an_status an_rule_bernoulli_p(an_build *b, const an_pt2_node *n)
{
    an_tensor *u = an_rand_at(AN_AT, b->cx, an_shape_of(an_in(b, n, 0)));
    return drawn(b, n, an_lt_at(AN_AT, u, an_num(u, b->cx, an_in_float(b, n, 1))));
}
an_status an_rule_rand(an_build *b, const an_pt2_node *n)
{
    return drawn(b, n, an_rand_at(AN_AT, b->cx, an_in_shape(b, n, 0)));
}
an_status an_rule_rand_like(an_build *b, const an_pt2_node *n)
{
    return drawn(b, n, an_rand_at(AN_AT, b->cx, an_shape_of(an_in(b, n, 0))));
}

/* Box and Muller, "A note on the generation of random normal deviates", 1958; 1 - u is never 0. */
static an_tensor *normal(an_build *b, an_shape s)
{
    an_tensor *u = an_rand_at(AN_AT, b->cx, s), *v = an_rand_at(AN_AT, b->cx, s);
    an_tensor *r =
        an_sqrt_at(AN_AT, an_mul_num_at(AN_AT, an_log_at(AN_AT, an_sub_at(AN_AT, an_num(u, b->cx, 1), u)), -2));
    return an_mul_at(AN_AT, r, an_cos_at(AN_AT, an_mul_num_at(AN_AT, v, 6.283185307179586)));
}

an_status an_rule_randn(an_build *b, const an_pt2_node *n)
{
    return drawn(b, n, normal(b, an_in_shape(b, n, 0)));
}
an_status an_rule_randn_like(an_build *b, const an_pt2_node *n)
{
    return drawn(b, n, normal(b, an_shape_of(an_in(b, n, 0))));
}
an_status an_rule_uniform(an_build *b, const an_pt2_node *n)
{
    const double from = an_in_float(b, n, 1), to = an_in_float(b, n, 2);
    an_tensor *u = an_rand_at(AN_AT, b->cx, an_shape_of(an_in(b, n, 0)));
    return drawn(b, n, an_add_num_at(AN_AT, an_mul_num_at(AN_AT, u, to - from), from));
}
an_status an_rule_normal(an_build *b, const an_pt2_node *n)
{
    an_tensor *z = normal(b, an_shape_of(an_in(b, n, 0)));
    return drawn(b, n, an_add_num_at(AN_AT, an_mul_num_at(AN_AT, z, an_in_float(b, n, 2)), an_in_float(b, n, 1)));
}

/* ---- draws by others: uniform ones in (0,1), of which neither the logarithm nor its negative's is infinite */

static an_tensor *inner(an_build *b, an_shape s)
{
    const double unit = 1.0 / (1 << 25); /* half of what uniform numbers are multiples of */
    return an_add_num_at(AN_AT, an_mul_num_at(AN_AT, an_rand_at(AN_AT, b->cx, s), 1 - 4 * unit), unit);
}

/* self lambd */
an_status an_rule_exponential(an_build *b, const an_pt2_node *n)
{
    an_tensor *u = inner(b, an_shape_of(an_in(b, n, 0)));
    return drawn(b, n, an_mul_num_at(AN_AT, an_log_at(AN_AT, u), -1 / an_in_float(b, n, 1)));
}

/* mean std, each a tensor or a number */
an_status an_rule_normal_of(an_build *b, const an_pt2_node *n)
{
    an_tensor *mean = an_in(b, n, 0), *std = an_in(b, n, 1);
    if (!mean && !std) return an_build_refuse(b, AN_E_UNSUPPORTED, "of two numbers");
    if (mean && std) an_promote(&mean, &std);
    an_tensor *like = mean ? mean : std;
    an_tensor *z = normal(b, mean && std ? an_shape_of(an_add_at(AN_AT, mean, std)) : an_shape_of(like));
    z = an_as(z, an_dtype_of(like));
    z = std ? an_mul_at(AN_AT, z, std) : an_mul_num_at(AN_AT, z, an_in_float(b, n, 1));
    return drawn(b, n, mean ? an_add_at(AN_AT, z, mean) : an_add_num_at(AN_AT, z, an_in_float(b, n, 0)));
}

static an_status whole_numbers(an_build *b, const an_pt2_node *n, int64_t low, int64_t high, an_shape s)
{
    if (high <= low || high > INT32_MAX || low < INT32_MIN || high - low > 1 << 24)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "from %lld to %lld; up to 2^24 numbers of 32 bits are known",
                               (long long)low, (long long)high);
    an_tensor *u = an_rand_at(AN_AT, b->cx, s);
    u = an_floor_at(AN_AT, an_mul_num_at(AN_AT, u, (double)(high - low)));
    return drawn(b, n, an_add_num_at(AN_AT, an_as(u, AN_I32), (double)low));
}

/* high size */
an_status an_rule_randint(an_build *b, const an_pt2_node *n)
{
    return whole_numbers(b, n, 0, an_in_int(b, n, 0), an_in_shape(b, n, 1));
}
/* low high size */
an_status an_rule_randint_low(an_build *b, const an_pt2_node *n)
{
    return whole_numbers(b, n, an_in_int(b, n, 0), an_in_int(b, n, 1), an_in_shape(b, n, 2));
}
/* self high, or self low high */
an_status an_rule_randint_like(an_build *b, const an_pt2_node *n)
{
    const an_shape s = an_shape_of(an_in(b, n, 0));
    if (!strstr(n->target, "low")) return whole_numbers(b, n, 0, an_in_int(b, n, 1), s);
    return whole_numbers(b, n, an_in_int(b, n, 1), an_in_int(b, n, 2), s);
}

/* n: the order of as many uniform numbers */
an_status an_rule_randperm(an_build *b, const an_pt2_node *n)
{
    an_tensor *at = NULL;
    const int64_t count = an_in_int(b, n, 0);
    if (count < 0 || count > INT32_MAX)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "of %lld numbers", (long long)count);
    if (count == 0) return drawn(b, n, an_full_at(AN_AT, b->cx, AN_I32, AN_SHAPE(0), 0));
    an_sort_at(AN_AT, an_rand_at(AN_AT, b->cx, AN_SHAPE(count)), false, &at);
    return drawn(b, n, at);
}

/* self num_samples replacement: the greatest of log p and Gumbel's numbers (Maddison and others, "A* sampling", 2014); anew for each
 * sample with replacement, else the first so many. */
an_status an_rule_multinomial(an_build *b, const an_pt2_node *n)
{
    an_tensor *p = an_as(an_in(b, n, 0), AN_F32), *at = NULL;
    const int64_t count = an_in_int(b, n, 1);
    const bool again = an_in_bool(b, n, 2);
    an_shape s = an_shape_of(p);
    const int64_t V = s.dim[AN_MAX(s.rank, 1) - 1];
    if (s.rank < 1 || s.rank > 2 || V < 1 || count < 1 || count > 1 << 20 || (!again && count > V))
        return an_build_refuse(b, AN_E_UNSUPPORTED, "%lld samples of %lld", (long long)count, (long long)V);
    if (again && count > 1) { /* [...,count,V] */
        an_shape each = s;
        each.dim[s.rank] = V;
        each.dim[s.rank - 1] = 1;
        each.rank++;
        p = an_reshape_at(AN_AT, p, each);
        each.dim[s.rank - 1] = count;
        p = an_expand_at(AN_AT, p, each);
        s = each;
    }
    an_tensor *key = an_log_at(AN_AT, an_neg_at(AN_AT, an_log_at(AN_AT, inner(b, s))));
    key = an_sub_at(AN_AT, an_log_at(AN_AT, p), key);
    if (again)
        at = an_argmax_at(AN_AT, key, s.rank - 1, count == 1);
    else
        an_topk_at(AN_AT, key, (int)count, &at);
    return drawn(b, n, at);
}

/* input p train: dropout that keeps mean and variance behind a selu (Klambauer and others, "Self-normalizing neural networks", 2017);
 * feature_: of whole channels */
an_status an_rule_alpha_dropout(an_build *b, const an_pt2_node *n)
{
    const double alpha = 1.7580993408473766, p = an_in_float(b, n, 1), a = 1 / sqrt((alpha * alpha * p + 1) * (1 - p));
    an_tensor *x = an_in(b, n, 0);
    an_shape s = an_shape_of(x);
    for (int i = 2; i < s.rank && strstr(n->target, "feature"); i++) s.dim[i] = 1;
    if (!an_in_bool(b, n, 2) || b->inference || p <= 0) return an_out(b, n, 0, x), AN_OK;
    if (p >= 1) return an_out(b, n, 0, an_mul_num_at(AN_AT, x, 0)), AN_OK;
    an_tensor *u = an_rand_at(AN_AT, b->cx, s), *keep = an_ge_at(AN_AT, u, an_num(u, b->cx, p));
    an_tensor *y = an_mul_num_at(AN_AT, x, a);
    y = an_where_at(AN_AT, keep, y, an_num(x, b->cx, -alpha * a));
    an_out(b, n, 0, an_add_num_at(AN_AT, y, alpha * a * p));
    return AN_OK;
}
