/* rule_nn.c: products, norms (batch norm: its running statistics are buffers that import.c assigns) and attention of PyTorch. */
#include "import/pt2_fold.h"
#include "import/rules.h"
#include <ctype.h>
#include <math.h>
#include <string.h>

/* ---- products */

/* x [...,in], w [out,in], bias [out] or None. */
an_status an_rule_linear(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *w = an_in(b, n, 1), *bias = an_in(b, n, 2);
    if (an_rank(w) != 2) return an_build_refuse(b, AN_E_UNSUPPORTED, "a weight that is no matrix");
    an_promote(&x, &w);
    an_shape s = an_shape_of(x);
    const bool vector = s.rank == 1;
    if (vector) x = an_reshape_at(AN_AT, x, AN_SHAPE(1, s.dim[0]));
    an_tensor *y = an_linear_at(AN_AT, x, w, bias);
    an_out(b, n, 0, vector ? an_reshape_1(y, an_count(y)) : y);
    return AN_OK;
}

/* A vector on the left is a row, on the right a column; that axis is removed from the result. */
static an_tensor *matmul(an_build *b, an_tensor *x, an_tensor *y)
{
    const bool row = an_rank(x) == 1, column = an_rank(y) == 1;
    if (row) x = an_reshape_at(AN_AT, x, AN_SHAPE(1, an_count(x)));
    if (column) y = an_reshape_at(AN_AT, y, AN_SHAPE(an_count(y), 1));
    an_tensor *z = an_product(b, x, y);
    an_shape s = an_shape_of(z), out = {.rank = 0};
    for (int i = 0; i < s.rank; i++)
        if (!(row && i == s.rank - 2) && !(column && i == s.rank - 1)) out.dim[out.rank++] = s.dim[i];
    return row || column ? an_reshape_at(AN_AT, z, out) : z;
}

an_status an_rule_matmul(an_build *b, const an_pt2_node *n)
{
    an_tensor *y = an_in(b, n, 1);
    an_out(b, n, 0, matmul(b, an_in(b, n, 0), y));
    return AN_OK;
}

/* beta c + alpha x y */
an_status an_rule_addmm(an_build *b, const an_pt2_node *n)
{
    const double beta = an_in_float(b, n, 3), alpha = an_in_float(b, n, 4);
    an_tensor *c = an_in(b, n, 0), *y = an_in(b, n, 2), *p = matmul(b, an_in(b, n, 1), y);
    if (alpha != 1) p = an_mul_num_at(AN_AT, p, alpha);
    if (beta != 1) c = an_mul_num_at(AN_AT, c, beta);
    an_promote(&c, &p);
    an_out(b, n, 0, beta == 0 ? p : an_add_at(AN_AT, c, p));
    return AN_OK;
}

an_status an_rule_outer(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *y = an_in(b, n, 1);
    an_promote(&x, &y);
    y = an_reshape_at(AN_AT, y, AN_SHAPE(1, an_count(y)));
    an_out(b, n, 0, an_mul_at(AN_AT, an_reshape_at(AN_AT, x, AN_SHAPE(an_count(x), 1)), y));
    return AN_OK;
}

/* ---- einsum of one or two operands */

/* x's axes named by `names` brought to the order `want`: those that are not there have length 1; those that are there and
 * not wanted are summed. */
static an_tensor *arrange(an_tensor *x, const char *names, const char *want)
{
    const int rank = (int)strlen(names);
    an_axes gone = 0;
    char left[9] = {0};
    int n_left = 0;
    for (int i = 0; i < rank; i++) {
        if (strchr(want, names[i]))
            left[n_left++] = names[i];
        else
            gone |= AN_AXIS(i);
    }
    if (gone) x = an_sum_at(AN_AT, x, gone, false);
    an_shape perm = {.rank = n_left}, s = {.rank = (int)strlen(want)};
    int at = 0;
    for (int k = 0; k < s.rank; k++) {
        const char *found = strchr(left, want[k]);
        s.dim[k] = found ? an_dim(x, (int)(found - left)) : 1;
        if (found) perm.dim[at++] = found - left;
    }
    return an_reshape_at(AN_AT, an_permute_at(AN_AT, x, perm), s);
}

/* Splits "bij,bjk->bik"; false: dots, a letter twice in one operand, or no arrow. */
static bool split_equation(const char *text, char part[3][9], int operands)
{
    int k = 0, n = 0;
    memset(part, 0, 3 * sizeof part[0]);
    for (const char *p = text; *p; p++) {
        if (*p == ' ') continue;
        if (*p == ',' || (*p == '-' && p[1] == '>')) {
            if (*p == '-')
                p++, k = 2;
            else
                k++;
            n = 0;
            if (k > 2) return false;
            continue;
        }
        if (!isalpha((unsigned char)*p) || n >= 8 || strchr(part[k], *p)) return false;
        part[k][n++] = *p;
    }
    return k == 2 && (operands == 2) == (part[1][0] != 0);
}

static an_tensor *merged(an_tensor *x, const int64_t *dim, int n)
{
    an_shape s = {.rank = n};
    memcpy(s.dim, dim, (size_t)n * sizeof dim[0]);
    return an_reshape_at(AN_AT, x, s);
}

/* Letters in both and in the result are batch, in both alone are summed, the others rows and columns: one product. */
static an_tensor *product_of(an_build *b, an_tensor *x, an_tensor *y, char part[3][9])
{
    char batch[9] = {0}, rows[9] = {0}, columns[9] = {0}, sum[9] = {0}, order[33];
    int64_t size[4] = {1, 1, 1, 1};
    an_shape out = {.rank = 0};
    for (const char *p = part[0]; *p; p++) {
        char *to = strchr(part[1], *p) ? (strchr(part[2], *p) ? batch : sum) : strchr(part[2], *p) ? rows : NULL;
        if (to) to[strlen(to)] = *p;
    }
    for (const char *p = part[1]; *p; p++)
        if (!strchr(part[0], *p) && strchr(part[2], *p)) columns[strlen(columns)] = *p;
    strcat(strcat(strcpy(order, batch), rows), sum);
    x = arrange(x, part[0], order); /* [batch, rows, sum] */
    strcat(strcat(strcpy(order, batch), sum), columns);
    y = arrange(y, part[1], order); /* [batch, sum, columns] */
    const int nb = (int)strlen(batch), nr = (int)strlen(rows), ns = (int)strlen(sum), nc = (int)strlen(columns);
    for (int i = 0; i < nb; i++) size[0] *= out.dim[out.rank++] = an_dim(x, i);
    for (int i = 0; i < nr; i++) size[1] *= out.dim[out.rank++] = an_dim(x, nb + i);
    for (int i = 0; i < ns; i++) size[2] *= an_dim(x, nb + nr + i);
    for (int i = 0; i < nc; i++) size[3] *= out.dim[out.rank++] = an_dim(y, nb + ns + i);
    x = merged(x, (int64_t[]){size[0], size[1], size[2]}, 3);
    y = merged(y, (int64_t[]){size[0], size[2], size[3]}, 3);
    an_tensor *z = an_reshape_at(AN_AT, an_product(b, x, y), out);
    strcat(strcat(strcpy(order, batch), rows), columns);
    return arrange(z, order, part[2]);
}

an_status an_rule_einsum(an_build *b, const an_pt2_node *n)
{
    char part[3][9];
    const int operands = an_in_count(n, 1);
    if (operands < 1 || operands > 2 || !n->arg[0].text || !split_equation(n->arg[0].text, part, operands))
        return an_build_refuse(b, AN_E_UNSUPPORTED, "%.60s; one or two operands of single letters are known",
                               n->arg[0].text ? n->arg[0].text : "");
    an_tensor *x = an_in_list(b, n, 1, 0), *y = operands == 2 ? an_in_list(b, n, 1, 1) : NULL;
    if ((int)strlen(part[0]) != an_rank(x) || (y && (int)strlen(part[1]) != an_rank(y)))
        return an_build_refuse(b, AN_E_IO, "letters and axes differ; the file is damaged");
    an_out(b, n, 0, y ? product_of(b, x, y, part) : arrange(x, part[0], part[2]));
    return AN_OK;
}

/* ---- norms */

/* Joins the last `count` axes to one; the same of a vector over them. */
static an_tensor *merge_last(an_tensor *x, int count)
{
    const an_shape s = an_shape_of(x);
    an_shape out = {.rank = s.rank - count + 1};
    int64_t last = 1;
    for (int i = 0; i < s.rank - count; i++) out.dim[i] = s.dim[i];
    for (int i = AN_MAX(0, s.rank - count); i < s.rank; i++) last *= s.dim[i];
    out.dim[out.rank - 1] = last;
    return an_reshape_at(AN_AT, x, out);
}

an_status an_rule_layer_norm(an_build *b, const an_pt2_node *n)
{
    int64_t axes[8];
    an_tensor *x = an_in(b, n, 0), *gain = an_in(b, n, 2), *bias = an_in(b, n, 3);
    const int count = an_in_ints(b, n, 1, axes, 8);
    if (count < 1 || count > an_rank(x)) return an_build_refuse(b, AN_E_IO, "no axes; the file is damaged");
    if (gain) gain = an_reshape_1(gain, an_count(gain));
    if (bias) bias = an_reshape_1(bias, an_count(bias));
    an_tensor *rows = merge_last(x, count), *y = an_layer_norm_at(AN_AT, rows, gain, bias, an_in_float(b, n, 4));
    an_out(b, n, 0, an_reshape_at(AN_AT, y, an_shape_of(x)));
    if (!an_out_used(n, 1) && !an_out_used(n, 2)) return AN_OK;
    /* mean and 1 / deviation of each row, which the gradient of native_layer_norm reads */
    const an_axes row = AN_AXIS(an_rank(rows) - 1);
    an_shape s = an_shape_of(x);
    for (int i = 0; i < count; i++) s.dim[s.rank - 1 - i] = 1;
    rows = an_widen(rows);
    an_out(b, n, 1, an_reshape_at(AN_AT, an_mean_at(AN_AT, rows, row, false), s));
    an_tensor *var = an_var_at(AN_AT, rows, row, false);
    an_out(b, n, 2, an_reshape_at(AN_AT, an_rsqrt_at(AN_AT, an_add_num_at(AN_AT, var, an_in_float(b, n, 4))), s));
    return AN_OK;
}

an_status an_rule_rms_norm(an_build *b, const an_pt2_node *n)
{
    int64_t axes[8];
    an_tensor *x = an_in(b, n, 0), *gain = an_in(b, n, 2);
    const int count = an_in_ints(b, n, 1, axes, 8);
    if (count < 1 || count > an_rank(x)) return an_build_refuse(b, AN_E_IO, "no axes; the file is damaged");
    if (gain) gain = an_reshape_1(gain, an_count(gain));
    const double eps = an_in_none(n, 3) ? (an_dtype_of(x) == AN_F64 ? 2.220446049250313e-16 : 1.1920928955078125e-07)
                                        : an_in_float(b, n, 3);
    an_out(b, n, 0, an_reshape_at(AN_AT, an_rms_norm_at(AN_AT, merge_last(x, count), gain, eps), an_shape_of(x)));
    return AN_OK;
}

/* x gain + bias, a number a channel (axis 1). */
static an_tensor *by_channel(an_tensor *x, an_tensor *gain, an_tensor *bias)
{
    an_shape s = {.rank = an_rank(x)};
    for (int i = 0; i < s.rank; i++) s.dim[i] = i == 1 ? an_dim(x, 1) : 1;
    if (gain) x = an_mul_at(AN_AT, x, an_as(an_reshape_at(AN_AT, gain, s), an_dtype_of(x)));
    if (bias) x = an_add_at(AN_AT, x, an_as(an_reshape_at(AN_AT, bias, s), an_dtype_of(x)));
    return x;
}

/* Standardized over groups of channels: [N, groups, the rest]. */
static an_tensor *group_norm(an_tensor *x, int64_t groups, an_tensor *gain, an_tensor *bias, double eps)
{
    const an_shape s = an_shape_of(x);
    const int64_t n = s.dim[0], all = an_count(x);
    const int64_t rest = AN_MAX(n * groups, 1);
    an_tensor *rows = an_reshape_at(AN_AT, x, AN_SHAPE(n, groups, all / rest));
    return by_channel(an_reshape_at(AN_AT, an_layer_norm_at(AN_AT, rows, NULL, NULL, eps), s), gain, bias);
}

an_status an_rule_group_norm(an_build *b, const an_pt2_node *n)
{
    const int64_t groups = an_in_int(b, n, 1);
    if (groups < 1) return an_build_refuse(b, AN_E_IO, "%lld groups; the file is damaged", (long long)groups);
    an_tensor *bias = an_in(b, n, 3), *gain = an_in(b, n, 2);
    an_out(b, n, 0, group_norm(an_in(b, n, 0), groups, gain, bias, an_in_float(b, n, 4)));
    return AN_OK;
}

an_status an_rule_instance_norm(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    if (!an_in_bool(b, n, 5) || !an_in_none(n, 3))
        return an_build_refuse(b, AN_E_UNSUPPORTED, "with running statistics");
    an_tensor *bias = an_in(b, n, 2);
    an_out(b, n, 0, group_norm(x, an_dim(x, 1), an_in(b, n, 1), bias, an_in_float(b, n, 7)));
    return AN_OK;
}

/* The state that holds a running statistic, which an_batch_norm assigns. */
static an_tensor *statistic(an_build *b, const an_pt2_node *n, int i)
{
    return an_in_none(n, i) ? NULL : an_in(b, n, i);
}

/* x with channels in the last axis, whatever its rank. */
static an_status batch_norm(an_build *b, const an_pt2_node *n, bool training, double momentum, double eps)
{
    an_built_value v = an_in_value(b, n, 0);
    an_tensor *gain = an_in(b, n, 1), *bias = an_in(b, n, 2);
    an_tensor *mean = statistic(b, n, 3), *var = statistic(b, n, 4);
    const int rank = an_rank(v.t);
    an_tensor *x = rank >= 3 && !v.last ? an_last(v.t) : v.t;
    const int64_t C = an_dim(x, rank - 1);
    training = (training && !b->inference) || !mean;
    const an_dtype dtype = an_dtype_of(an_widen(x));
    if (!gain) gain = an_full_at(AN_AT, b->cx, dtype, AN_SHAPE(C), 1);
    if (!bias) bias = an_full_at(AN_AT, b->cx, dtype, AN_SHAPE(C), 0);
    if (training && (!mean || !an_name_of(mean) || !an_name_of(var))) {
        /* statistics that nothing keeps: standardize over all axes but the last */
        const an_axes axes = (an_axes)((1u << (rank - 1)) - 1);
        an_tensor *wide = an_widen(x), *d = an_sub_at(AN_AT, wide, an_mean_at(AN_AT, wide, axes, true));
        an_tensor *r =
            an_rsqrt_at(AN_AT, an_add_num_at(AN_AT, an_mean_at(AN_AT, an_square_at(AN_AT, d), axes, true), eps));
        an_tensor *shift = an_as(bias, dtype), *factor = an_as(gain, dtype);
        an_tensor *y = an_add_at(AN_AT, an_mul_at(AN_AT, an_mul_at(AN_AT, d, r), factor), shift);
        an_out_last(b, n, 0, an_as(y, an_dtype_of(x)), true);
        return AN_OK;
    }
    an_out_last(b, n, 0, an_batch_norm_at(AN_AT, x, gain, bias, mean, var, momentum, eps, training), true);
    return AN_OK;
}

an_status an_rule_batch_norm(an_build *b, const an_pt2_node *n)
{
    return batch_norm(b, n, an_in_bool(b, n, 5), an_in_float(b, n, 6), an_in_float(b, n, 7));
}

/* Results 3 and 4 are the new statistics, which the norm assigns itself: they are the states. */
an_status an_rule_batch_norm_functional(an_build *b, const an_pt2_node *n)
{
    AN_TRY(batch_norm(b, n, an_in_bool(b, n, 5), an_in_float(b, n, 6), an_in_float(b, n, 7)));
    an_out(b, n, 3, an_in(b, n, 3));
    an_out(b, n, 4, an_in(b, n, 4));
    return AN_OK;
}

an_status an_rule_batch_norm_inference(an_build *b, const an_pt2_node *n)
{
    return batch_norm(b, n, false, an_in_float(b, n, 5), an_in_float(b, n, 6));
}

/* v g / |v|, the norm over all axes but one. */
an_status an_rule_weight_norm(an_build *b, const an_pt2_node *n)
{
    an_tensor *v = an_in(b, n, 0), *g = an_in(b, n, 1);
    const int rank = an_rank(v), axis = an_wrap_axis(an_in_int(b, n, 2), rank);
    const an_axes axes = (an_axes)((1u << rank) - 1) & ~AN_AXIS(axis);
    an_tensor *norm = an_sqrt_at(AN_AT, an_sum_at(AN_AT, an_square_at(AN_AT, v), axes, true));
    an_out(b, n, 0, an_mul_at(AN_AT, v, an_div_at(AN_AT, g, norm)));
    return AN_OK;
}

/* ---- attention */

an_tensor *an_spread_heads(an_tensor *k, int64_t heads)
{
    const an_shape s = an_shape_of(k); /* [B,H',S,D] */
    const int64_t times = s.dim[1] ? heads / s.dim[1] : 1;
    if (times <= 1) return k;
    k = an_reshape_at(AN_AT, k, AN_SHAPE(s.dim[0], s.dim[1], 1, s.dim[2], s.dim[3]));
    k = an_expand_at(AN_AT, k, AN_SHAPE(s.dim[0], s.dim[1], times, s.dim[2], s.dim[3]));
    return an_reshape_at(AN_AT, k, AN_SHAPE(s.dim[0], heads, s.dim[2], s.dim[3]));
}

an_tensor *an_attention_by_formula(an_build *b, an_tensor *q, an_tensor *k, an_tensor *v, double scale, an_tensor *mask,
                                   double dropout)
{
    const int rank = an_rank(q);
    an_tensor *turned = an_transpose_at(AN_AT, k, rank - 2, rank - 1);
    an_tensor *scores = an_widen(an_product(b, an_mul_num_at(AN_AT, q, scale), turned));
    an_tensor *any = NULL; /* [...,T or 1,1]: whether the row sees a key */
    if (mask && an_dtype_of(mask) == AN_BOOL) {
        scores = an_where_at(AN_AT, mask, scores, an_num(scores, b->cx, -INFINITY));
        any = an_max_at(AN_AT, an_cast_at(AN_AT, mask, AN_I32), AN_AXIS(an_rank(mask) - 1), true);
        any = an_ne_at(AN_AT, any, an_num(any, b->cx, 0));
    } else if (mask) {
        mask = an_as(mask, an_dtype_of(scores));
        scores = an_add_at(AN_AT, scores, mask);
        any = an_max_at(AN_AT, mask, AN_AXIS(an_rank(mask) - 1), true);
        any = an_ne_at(AN_AT, any, an_num(any, b->cx, -INFINITY));
    }
    if (any) { /* a row that sees nothing is 0, not NaN */
        scores = an_where_at(AN_AT, any, scores, an_num(scores, b->cx, 0));
        an_tensor *p = an_softmax_at(AN_AT, scores, -1);
        scores = an_where_at(AN_AT, any, p, an_num(p, b->cx, 0));
    } else {
        scores = an_softmax_at(AN_AT, scores, -1);
    }
    if (dropout > 0) scores = an_dropout_at(AN_AT, scores, dropout);
    return an_product(b, scores, v);
}

static an_tensor *four_axes(an_tensor *x)
{
    an_shape s = an_shape_of(x), out = {.rank = 4, .dim = {1, 1, 1, 1}};
    for (int i = 0; i < s.rank && s.rank <= 4; i++) out.dim[4 - s.rank + i] = s.dim[i];
    return s.rank < 4 ? an_reshape_at(AN_AT, x, out) : x;
}

/* The diagonal of a causal mask begins at the first row and column, whatever T and S are. */
static an_tensor *causal_mask(an_build *b, int64_t T, int64_t S)
{
    const an_shape s = AN_SHAPE(T, S);
    an_tensor *column = an_iota_at(AN_AT, b->cx, s, 1);
    return an_ge_at(AN_AT, an_iota_at(AN_AT, b->cx, s, 0), column);
}

an_status an_rule_attention(an_build *b, const an_pt2_node *n)
{
    an_tensor *q = an_in(b, n, 0), *k = an_in(b, n, 1), *v = an_in(b, n, 2);
    const an_shape shape = an_shape_of(q);
    if (shape.rank > 4 || shape.rank < 2) return an_build_refuse(b, AN_E_UNSUPPORTED, "q has %d axes", shape.rank);
    q = four_axes(q); /* [B,H,T,D] */
    k = an_spread_heads(four_axes(k), an_dim(q, 1));
    v = an_spread_heads(four_axes(v), an_dim(q, 1));
    const int64_t T = an_dim(q, 2), S = an_dim(k, 2), D = an_dim(q, 3);
    const double dropout = b->inference ? 0 : an_in_float(b, n, 4);
    const double scale = an_in_none(n, 6) ? 1 / sqrt((double)AN_MAX(D, 1)) : an_in_float(b, n, 6);
    bool causal = an_in_bool(b, n, 5);
    an_tensor *mask = NULL;
    if (an_in_is_tensor(n, 3)) {
        const an_mask kind = an_fold_mask(b, n->arg[3].value, T, S);
        if (kind == AN_MASK_OTHER)
            mask = an_in(b, n, 3);
        else
            causal = kind == AN_MASK_CAUSAL;
        if (kind == AN_MASK_CAUSAL && T != S) causal = false, mask = an_in(b, n, 3);
    }
    if (causal && T != S) mask = causal_mask(b, T, S), causal = false;
    an_promote(&q, &k);
    v = an_as(v, an_dtype_of(k));
    const bool kernel = !mask && an_dim(v, 3) == D && dropout < 1 && scale != 0;
    an_tensor *o = kernel ? an_attention_at(AN_AT, q, k, v, scale, causal, dropout, NULL)
                          : an_attention_by_formula(b, q, k, v, scale, mask, dropout);
    an_shape out = shape;
    out.dim[out.rank - 1] = an_dim(v, 3);
    an_out(b, n, 0, an_reshape_at(AN_AT, o, out));
    return AN_OK;
}
