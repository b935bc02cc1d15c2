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
    if (an_dtype_of(x) == AN_F64 || an_dtype_of(w) == AN_F64)
        an_promote(&x, &w); /* else the policy's dtype is made of each */
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

/* beta c + alpha x y. A row c is the bias of a linear layer. */
an_status an_rule_addmm(an_build *b, const an_pt2_node *n)
{
    const double beta = an_in_float(b, n, 3), alpha = an_in_float(b, n, 4);
    an_tensor *c = an_in(b, n, 0), *x = an_in(b, n, 1), *y = an_in(b, n, 2);
    if (alpha == 1 && beta == 1 && an_rank(x) == 2 && an_rank(y) == 2 && an_rank(c) == 1 &&
        an_dim(c, 0) == an_dim(y, 1)) {
        if (an_dtype_of(x) == AN_F64 || an_dtype_of(y) == AN_F64) an_promote(&x, &y);
        an_out(b, n, 0, an_linear_at(AN_AT, x, an_transpose_at(AN_AT, an_narrow(b, y), 0, 1), c));
        return AN_OK;
    }
    an_tensor *p = matmul(b, x, y);
    if (alpha != 1) p = an_mul_num_at(AN_AT, p, alpha);
    if (beta != 1) c = an_mul_num_at(AN_AT, c, beta);
    an_promote(&c, &p);
    an_out(b, n, 0, beta == 0 ? p : an_add_at(AN_AT, c, p));
    return AN_OK;
}

an_status an_rule_outer(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_as_number(an_in(b, n, 0)), *y = an_as_number(an_in(b, n, 1));
    an_promote(&x, &y);
    y = an_reshape_at(AN_AT, y, AN_SHAPE(1, an_count(y)));
    an_out(b, n, 0, an_as_result(b, n, 0, an_mul_at(AN_AT, an_reshape_at(AN_AT, x, AN_SHAPE(an_count(x), 1)), y)));
    return AN_OK;
}

/* ---- einsum: an axis is a letter, the axes of an ellipsis are digits, counted from the last one */

enum { EINSUM_MOST = 8 };
typedef char axis_names[9]; /* of at most 8 axes, and the end */

/* x's axes named by `names` brought to the order `want`: those that are not there have length 1; those that are there and
 * not wanted are summed. */
static an_tensor *arrange(an_tensor *x, const char *names, const char *want)
{
    const int rank = (int)strlen(names);
    an_axes gone = 0;
    axis_names left = {0};
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

static an_tensor *merged(an_tensor *x, const int64_t *dim, int n)
{
    an_shape s = {.rank = n};
    memcpy(s.dim, dim, (size_t)n * sizeof dim[0]);
    return an_reshape_at(AN_AT, x, s);
}

/* Letters in both and in the result are batch, in both alone are summed, the others rows and columns: one product. */
static an_tensor *product_of(an_build *b, an_tensor *x, an_tensor *y, const char *of_x, const char *of_y,
                             const char *want)
{
    axis_names batch = {0}, rows = {0}, columns = {0}, sum = {0};
    char order[33];
    int64_t size[4] = {1, 1, 1, 1};
    an_shape out = {.rank = 0};
    for (const char *p = of_x; *p; p++) {
        char *to = strchr(of_y, *p) ? (strchr(want, *p) ? batch : sum) : strchr(want, *p) ? rows : NULL;
        if (to) to[strlen(to)] = *p;
    }
    for (const char *p = of_y; *p; p++)
        if (!strchr(of_x, *p) && strchr(want, *p)) columns[strlen(columns)] = *p;
    if (!*sum) {
        an_tensor *right = arrange(y, of_y, want), *left = arrange(x, of_x, want);
        an_promote(&left, &right);
        return an_mul_at(AN_AT, left, right);
    }
    strcat(strcat(strcpy(order, batch), rows), sum);
    x = arrange(x, of_x, order); /* [batch, rows, sum] */
    strcat(strcat(strcpy(order, batch), sum), columns);
    y = arrange(y, of_y, order); /* [batch, sum, columns] */
    const int nb = (int)strlen(batch), nr = (int)strlen(rows), ns = (int)strlen(sum), nc = (int)strlen(columns);
    for (int i = 0; i < nb; i++) size[0] *= out.dim[out.rank++] = an_dim(x, i);
    for (int i = 0; i < nr; i++) size[1] *= out.dim[out.rank++] = an_dim(x, nb + i);
    for (int i = 0; i < ns; i++) size[2] *= an_dim(x, nb + nr + i);
    for (int i = 0; i < nc; i++) size[3] *= out.dim[out.rank++] = an_dim(y, nb + ns + i);
    x = merged(x, (int64_t[]){size[0], size[1], size[2]}, 3);
    y = merged(y, (int64_t[]){size[0], size[2], size[3]}, 3);
    an_tensor *z = an_reshape_at(AN_AT, an_product(b, x, y), out);
    strcat(strcat(strcpy(order, batch), rows), columns);
    return arrange(z, order, want);
}

typedef struct equation {
    axis_names of[EINSUM_MOST], want;
    int operands;
    int ellipsis_rank; /* axes that "..." stands for: the most of any operand, the others broadcast */
} equation;

/* Reads letters and an ellipsis that stands for `dots` axes up to `end`, without blanks. false: another sign, or more than 8 axes. */
static bool read_axes(const char *p, const char *end, int dots, char *out)
{
    int n = 0;
    for (; p < end; p++) {
        if (*p == ' ') continue;
        if (*p == '.') {
            if (end - p < 3 || p[1] != '.' || p[2] != '.' || strchr(out, '0') || n + dots > 8) return false;
            for (int k = dots; k-- > 0;) out[n++] = (char)('0' + k);
            p += 2;
            continue;
        }
        if (!isalpha((unsigned char)*p) || n >= 8) return false;
        out[n++] = *p;
    }
    return true;
}

/* Without an arrow: the ellipsis, then all letters that occur once, in the order of the alphabet. */
static bool implied(equation *e)
{
    int n = 0;
    for (int k = e->ellipsis_rank; k-- > 0;) e->want[n++] = (char)('0' + k);
    for (int c = 'A'; c <= 'z'; c++) {
        int times = 0;
        for (int i = 0; i < e->operands; i++)
            for (const char *p = e->of[i]; *p; p++) times += *p == c;
        if (times == 1 && n == 8) return false;
        if (times == 1) e->want[n++] = (char)c;
    }
    return true;
}

/* "b...j,...jk->b...k" for operands of these ranks. */
static bool split_equation(const char *text, const int *rank, int operands, equation *e)
{
    const char *arrow = strstr(text, "->"), *end = arrow ? arrow : text + strlen(text), *p = text;
    *e = (equation){.operands = operands};
    for (int i = 0; i < operands; i++) {
        const char *comma = memchr(p, ',', (size_t)(end - p)), *stop = comma ? comma : end;
        int letters = 0;
        for (const char *q = p; q < stop; q++) letters += isalpha((unsigned char)*q) != 0;
        const int dots = memchr(p, '.', (size_t)(stop - p)) ? rank[i] - letters : 0;
        if (dots < 0 || !read_axes(p, stop, dots, e->of[i]) || (int)strlen(e->of[i]) != rank[i]) return false;
        if ((comma != NULL) != (i < operands - 1)) return false;
        e->ellipsis_rank = AN_MAX(e->ellipsis_rank, dots);
        p = stop + 1;
    }
    return arrow ? read_axes(arrow + 2, arrow + strlen(arrow), e->ellipsis_rank, e->want) : implied(e);
}

/* The diagonal of two axes of one letter: their elements as one row of n n, every (n + 1)-th of them. */
static an_tensor *diagonals(an_tensor *x, char *names)
{
    for (int i = 0; names[i]; i++) {
        char *again = strchr(names + i + 1, names[i]);
        if (!again) continue;
        const int rank = (int)strlen(names), j = (int)(again - names);
        an_shape perm = {.rank = rank}, s = {.rank = rank - 1};
        const int64_t length = an_dim(x, i);
        int at = 0;
        for (int k = 0; k < rank; k++)
            if (k != i && k != j) s.dim[at] = an_dim(x, k), perm.dim[at++] = k;
        perm.dim[rank - 2] = i;
        perm.dim[rank - 1] = j;
        s.dim[rank - 2] = length * length;
        x = an_slice_at(AN_AT, an_reshape_at(AN_AT, an_permute_at(AN_AT, x, perm), s), -1, 0, length * length,
                        length + 1);
        const char letter = names[i];
        memmove(again, again + 1, strlen(again));
        memmove(names + i, names + i + 1, strlen(names + i));
        names[rank - 2] = letter;
        i = -1;
    }
    return x;
}

/* An axis of length 1 whose letter is longer elsewhere is as good as none. */
static an_tensor *without_ones(const equation *e, an_tensor *const *t, int i, char *names)
{
    an_shape s = {.rank = 0};
    an_tensor *x = t[i];
    int n = 0;
    for (int k = 0; names[k]; k++) {
        bool longer = false;
        for (int other = 0; other < e->operands; other++) {
            const char *there = strchr(e->of[other], names[k]);
            longer = longer || (there && an_dim(t[other], (int)(there - e->of[other])) > 1);
        }
        if (an_dim(x, k) == 1 && longer) continue;
        s.dim[s.rank++] = an_dim(x, k);
        names[n++] = names[k];
    }
    names[n] = 0;
    return an_reshape_at(AN_AT, x, s);
}

an_status an_rule_einsum(an_build *b, const an_pt2_node *n)
{
    equation e;
    an_tensor *t[EINSUM_MOST];
    int rank[EINSUM_MOST];
    const int operands = an_in_count(n, 1);
    const char *text = n->arg[0].text ? n->arg[0].text : "";
    if (operands < 1 || operands > EINSUM_MOST)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "%.60s; one to %d operands are known", text, EINSUM_MOST);
    for (int i = 0; i < operands; i++) rank[i] = an_rank(t[i] = an_in_list(b, n, 1, i));
    if (!split_equation(text, rank, operands, &e))
        return an_build_refuse(b, AN_E_UNSUPPORTED, "%.60s; letters and an ellipsis of at most 8 axes are known", text);
    for (int i = 0; i < operands; i++) t[i] = diagonals(t[i], e.of[i]);
    axis_names names[EINSUM_MOST];
    memcpy(names, e.of, sizeof names);
    an_tensor *part[EINSUM_MOST];
    for (int i = 0; i < operands; i++) part[i] = without_ones(&e, t, i, names[i]);
    an_tensor *x = part[0];
    for (int i = 1; i < operands; i++) {
        axis_names want = {0};
        const char *from[] = {names[0], names[i]};
        int length = 0;
        for (int side = 0; side < 2; side++) {
            for (const char *p = from[side]; *p; p++) {
                bool needed = strchr(e.want, *p) != NULL;
                for (int later = i + 1; later < operands; later++) needed = needed || strchr(names[later], *p);
                if (!needed || strchr(want, *p)) continue;
                if (length == 8)
                    return an_build_refuse(b, AN_E_UNSUPPORTED, "%.60s; more than 8 axes on the way", text);
                want[length++] = *p;
            }
        }
        x = product_of(b, x, part[i], names[0], names[i], want);
        memcpy(names[0], want, sizeof want);
    }
    an_out(b, n, 0, arrange(x, names[0], e.want));
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
    if (groups < 1 || groups > AN_MAX(1, an_dim(an_in(b, n, 0), 1)))
        return an_build_refuse(b, AN_E_IO, "%lld groups; the file is damaged", (long long)groups);
    an_tensor *bias = an_in(b, n, 3), *gain = an_in(b, n, 2);
    an_out(b, n, 0, group_norm(an_in(b, n, 0), groups, gain, bias, an_in_float(b, n, 4)));
    return AN_OK;
}

/* input weight bias N C HxW group eps: its mean and deviation are not computed */
an_status an_rule_native_group_norm(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *gain = an_in(b, n, 1), *bias = an_in(b, n, 2);
    const int64_t groups = an_in_int(b, n, 6);
    if (an_rank(x) < 2 || groups < 1 || groups > AN_MAX(1, an_dim(x, 1)))
        return an_build_refuse(b, AN_E_IO, "%lld groups; the file is damaged", (long long)groups);
    for (int k = 1; k < 3; k++)
        AN_TRY(an_results_unread(b, n, k, "its mean or deviation is read; they are not computed"));
    an_out(b, n, 0, group_norm(x, groups, gain, bias, an_in_float(b, n, 7)));
    return AN_OK;
}

/* Running statistic i moved toward `batch`: from what an earlier norm of this step left there. */
static an_status move_statistic(an_build *b, const an_pt2_node *n, int i, an_tensor *batch, double momentum)
{
    an_tensor *old = an_in(b, n, i);
    if (!old) return AN_OK;
    batch = an_as(an_detach_at(AN_AT, an_reshape_at(AN_AT, batch, an_shape_of(old))), an_dtype_of(old));
    an_tensor *kept = an_mul_num_at(AN_AT, old, 1 - momentum);
    return an_in_write(b, n, i, an_add_at(AN_AT, kept, an_mul_num_at(AN_AT, batch, momentum)));
}

/* Standardized over each channel of each sample; statistics of the samples' means, and of their unbiased variances. */
an_status an_rule_instance_norm(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0), *bias = an_in(b, n, 2), *gain = an_in(b, n, 1);
    const double momentum = an_in_float(b, n, 6), eps = an_in_float(b, n, 7);
    const int rank = an_rank(x);
    const bool keeps = !an_in_none(n, 3) && !an_in_none(n, 4);
    if (rank < 3) return an_build_refuse(b, AN_E_UNSUPPORTED, "of %d axes", rank);
    if (an_in_bool(b, n, 5) && !(b->inference && keeps)) {
        an_axes inside = (an_axes)((1u << rank) - 1) & ~(AN_AXIS(0) | AN_AXIS(1));
        an_out(b, n, 0, group_norm(x, an_dim(x, 1), gain, bias, eps));
        if (!keeps) return AN_OK;
        const double count = (double)an_count(x) / (double)AN_MAX(1, an_dim(x, 0) * an_dim(x, 1));
        an_tensor *wide = an_widen(x), *mean = an_mean_at(AN_AT, wide, inside, false); /* [N,C] */
        an_tensor *var = an_mul_num_at(AN_AT, an_var_at(AN_AT, wide, inside, false), count / AN_MAX(count - 1, 1));
        AN_TRY(move_statistic(b, n, 3, an_mean_at(AN_AT, mean, AN_AXIS(0), false), momentum));
        return move_statistic(b, n, 4, an_mean_at(AN_AT, var, AN_AXIS(0), false), momentum);
    }
    if (!keeps) return an_build_refuse(b, AN_E_IO, "no statistics; the file is damaged");
    an_tensor *mean = an_in(b, n, 3), *scale = an_rsqrt_at(AN_AT, an_add_num_at(AN_AT, an_in(b, n, 4), eps));
    an_tensor *y = by_channel(x, scale, an_neg_at(AN_AT, an_mul_at(AN_AT, mean, scale)));
    an_out(b, n, 0, by_channel(y, gain, bias));
    return AN_OK;
}

/* Whether another batch norm of the graph has the same running statistics: a module that is called twice. */
static bool shares_statistics(const an_build *b, const an_pt2_node *n)
{
    for (int32_t i = 0; i < b->g->n_nodes; i++) {
        const an_pt2_node *m = &b->g->node[i];
        if (m != n && m->rule == n->rule && m->arg[3].kind == AN_ARG_TENSOR && m->arg[3].value == n->arg[3].value)
            return true;
    }
    return false;
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
    const bool bare = training && (!mean || !an_name_of(mean) || !an_name_of(var));
    if (bare || (training && shares_statistics(b, n))) {
        /* statistics that nothing keeps, or that another norm of the step moves too: standardize over all axes but the last */
        const an_axes axes = (an_axes)((1u << (rank - 1)) - 1);
        an_tensor *wide = an_widen(x), *center = an_mean_at(AN_AT, wide, axes, true);
        an_tensor *d = an_sub_at(AN_AT, wide, center), *spread = an_mean_at(AN_AT, an_square_at(AN_AT, d), axes, true);
        an_tensor *r = an_rsqrt_at(AN_AT, an_add_num_at(AN_AT, spread, eps));
        an_tensor *shift = an_as(bias, dtype), *factor = an_as(gain, dtype);
        an_tensor *y = an_add_at(AN_AT, an_mul_at(AN_AT, an_mul_at(AN_AT, d, r), factor), shift);
        an_out_last(b, n, 0, an_as(y, an_dtype_of(x)), true);
        const double count = (double)an_count(x) / (double)AN_MAX(C, 1);
        if (mean) AN_TRY(move_statistic(b, n, 3, center, momentum));
        return var ? move_statistic(b, n, 4, an_mul_num_at(AN_AT, spread, count / AN_MAX(count - 1, 1)), momentum)
                   : AN_OK;
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

/* Weight normalization: v * g / norm(v). The norm is taken over all axes except `dim`; dim = -1 (PyTorch's None) takes it over all axes. */
an_status an_rule_weight_norm(an_build *b, const an_pt2_node *n)
{
    an_tensor *v = an_in(b, n, 0), *g = an_in(b, n, 1);
    const int rank = an_rank(v);
    const int64_t dim = an_in_int(b, n, 2);
    const an_axes all = (an_axes)((1u << rank) - 1), axes = dim == -1 ? all : all & ~AN_AXIS(an_wrap_axis(dim, rank));
    if (an_wrap_axis(dim, rank) > 7)
        return an_build_refuse(b, AN_E_IO, "an axis that is not there; the file is damaged");
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

/* Fewer axes than four get some of length 1 in front; of more, those in front are one. */
static an_tensor *four_axes(an_tensor *x)
{
    an_shape s = an_shape_of(x), out = {.rank = 4, .dim = {1, 1, 1, 1}};
    for (int i = 0; i < s.rank; i++) {
        const int to = AN_MAX(0, 4 - s.rank + i);
        out.dim[to] = to == 0 ? out.dim[0] * s.dim[i] : s.dim[i];
    }
    return s.rank == 4 ? x : an_reshape_at(AN_AT, x, out);
}

/* q, k and v of five axes or more as four: those in front of the last three are equal, and the mask's, or it has three at most. */
static an_status equal_in_front(an_build *b, const an_pt2_node *n, const an_shape *q)
{
    for (int i = 1; i <= 3; i++) {
        if (!an_in_is_tensor(n, i)) continue;
        const an_shape s = an_shape_of(an_in(b, n, i));
        bool equal = s.rank == q->rank || (i == 3 && s.rank <= 3);
        for (int k = 0; equal && k < s.rank - 3; k++) equal = s.dim[k] == q->dim[k];
        if (!equal) return an_build_refuse(b, AN_E_UNSUPPORTED, "%d axes that broadcast; expand them", q->rank);
    }
    return AN_OK;
}

/* The diagonal of a causal mask begins at the first row and column, whatever T and S are. */
static an_tensor *causal_mask(an_build *b, int64_t T, int64_t S)
{
    const an_shape s = AN_SHAPE(T, S);
    an_tensor *column = an_iota_at(AN_AT, b->cx, s, 1);
    return an_ge_at(AN_AT, an_iota_at(AN_AT, b->cx, s, 0), column);
}

/* Keys and values [B,G,S,D] that were repeated for the heads of q [B,H,T,D], where both were G heads: attention repeats none. */
static void heads_once(an_build *b, const an_pt2_node *n, const an_tensor *q, an_tensor **k, an_tensor **v)
{
    an_tensor *once_k = an_in_value(b, n, 1).once, *once_v = an_in_value(b, n, 2).once;
    if (!once_k || !once_v || an_rank(q) != 4 || an_rank(*k) != 4 || an_rank(*v) != 4) return;
    const int64_t heads = an_dim(once_k, 1);
    if (an_dim(once_v, 1) != heads || an_dim(*k, 1) != an_dim(q, 1) || an_dim(*v, 1) != an_dim(q, 1)) return;
    *k = once_k, *v = once_v;
}

/* One of four axes whose first broadcasts. */
static an_tensor *of_batch(an_tensor *t, int64_t batch)
{
    an_shape s = an_shape_of(t);
    if (s.rank != 4 || s.dim[0] != 1 || batch <= 1) return t;
    s.dim[0] = batch;
    return an_expand_at(AN_AT, t, s);
}

an_status an_rule_attention(an_build *b, const an_pt2_node *n)
{
    an_tensor *q = an_in(b, n, 0), *k = an_in(b, n, 1), *v = an_in(b, n, 2);
    heads_once(b, n, q, &k, &v);
    an_shape shape = an_shape_of(q);
    if (shape.rank < 2) return an_build_refuse(b, AN_E_UNSUPPORTED, "q has %d axes", shape.rank);
    if (shape.rank > 4) AN_TRY(equal_in_front(b, n, &shape));
    q = four_axes(q); /* [B,H,T,D] */
    k = four_axes(k); /* [B,G,S,D], G heads or fewer */
    v = four_axes(v);
    const int64_t batch = AN_MAX(an_dim(q, 0), AN_MAX(an_dim(k, 0), an_dim(v, 0)));
    if (shape.rank == 4) {
        shape.dim[0] = batch;
        q = of_batch(q, batch);
    }
    k = of_batch(k, batch);
    v = of_batch(v, batch);
    const int64_t T = an_dim(q, 2), S = an_dim(k, 2), D = an_dim(q, 3);
    const double dropout = b->inference ? 0 : an_in_float(b, n, 4);
    const double scale = an_in_none(n, 6) ? 1 / sqrt((double)AN_MAX(D, 1)) : an_in_float(b, n, 6);
    bool causal = an_in_bool(b, n, 5);
    int64_t window = 0;
    an_tensor *mask = NULL;
    const bool kernel = an_dim(v, 3) == D && an_dim(v, 1) == an_dim(k, 1) && dropout < 1 && scale != 0;
    if (!kernel || an_dim(k, 1) == 0) k = an_spread_heads(k, an_dim(q, 1)), v = an_spread_heads(v, an_dim(q, 1));
    if (an_in_is_tensor(n, 3)) {
        const an_mask kind = an_fold_mask(b, n->arg[3].value, T, S, &window);
        causal = kind == AN_MASK_CAUSAL || kind == AN_MASK_WINDOW;
        if (kind == AN_MASK_OTHER || (causal && !kernel)) mask = an_in(b, n, 3);
        if (mask && an_rank(mask) > 4) mask = four_axes(mask);
        const bool numbers = an_fold_value(b, n->arg[3].value) != NULL;
        if (mask && (numbers || b->inference)) mask = an_detach_at(AN_AT, mask); /* which asks for no gradient */
    } else if (causal && T != S) {
        causal = false; /* PyTorch's begins at the first key, the kernels' ends at the last */
        mask = causal_mask(b, T, S);
    }
    an_promote(&q, &k);
    v = an_as(v, an_dtype_of(k));
    const an_attention_options options = {
        .scale = scale, .causal = causal, .dropout = dropout, .mask = mask, .window = window};
    if (causal && !kernel && !mask) mask = causal_mask(b, T, S); /* the formula knows no other way to hide keys */
    an_tensor *o = kernel ? an_attention_with_at(AN_AT, q, k, v, options)
                          : an_attention_by_formula(b, q, k, v, scale, mask, dropout);
    an_shape out = shape;
    out.dim[out.rank - 1] = an_dim(v, 3);
    an_out(b, n, 0, an_reshape_at(AN_AT, o, out));
    return AN_OK;
}
