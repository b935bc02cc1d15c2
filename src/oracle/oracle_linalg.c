/* oracle_linalg.c: the oracle's windows, attention, sorting and matrix calls, each the plainest algorithm that is exact
 * enough in double.
 *
 * Owns:      their meaning, including attention's dropout index and the result of a row without visible keys.
 * Does not:  follow the kernels' algorithms: QR here is Gram-Schmidt done twice, where a device uses Householder
 *            reflections.
 */
#include "oracle/oracle.h"
#include "base/exact.h"
#include "base/rng.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------ attention */

typedef struct attention {
    int64_t B, H, T, S, D, group, n_keys, window;
    double scale, dropout;
    bool causal;
    uint32_t stream;
    const double *mask; /* [B,H,T,S]; NULL: none */
    const an_oracle_node *r;
} attention;

static attention attention_of(const an_oracle_node *r)
{
    const struct an_tensor *q = r->src[0], *k = r->src[1], *n = r->n;
    attention a = {.B = q->shape[0], .H = q->shape[1], .T = q->shape[2], .S = k->shape[2], .D = q->shape[3], .r = r};
    a.group = k->shape[1] > 0 ? a.H / k->shape[1] : 1;
    a.n_keys = a.S;
    a.scale = n->imm[0];
    a.dropout = n->imm[1];
    a.causal = n->attr[0] != 0;
    a.window = an_attention_window(n);
    a.stream = (uint32_t)n->attr[1];
    const int mask = an_attention_mask(n->g, n);
    if (n->op == AN_OP_ATTENTION && n->n_src > 3 && mask != 3) a.n_keys = r->in[3].i[0];
    if (mask >= 0) a.mask = r->in[mask].d;
    return a;
}

/* Row j of k and v for (batch, head) `bh` of q. */
static int64_t key_row(const attention *a, int64_t bh, int64_t j)
{
    return bh / a->group * a->S + j; /* the group divides H, so that batches stay apart */
}

/* Scaled score of query i and key j of (batch, head) `bh`; -inf where the key is masked. */
static double score(const attention *a, int64_t bh, int64_t i, int64_t j)
{
    const int64_t last = i + a->n_keys - a->T;
    if (j >= a->n_keys || (a->causal && j > last) || (a->window && j <= last - a->window)) return -INFINITY;
    const double *q = a->r->in[0].d + (bh * a->T + i) * a->D, *k = a->r->in[1].d + key_row(a, bh, j) * a->D;
    double s = 0;
    for (int64_t c = 0; c < a->D; c++) s += q[c] * k[c];
    return s * a->scale + (a->mask ? a->mask[(bh * a->T + i) * a->S + j] : 0);
}

/* The factor of dropout: 0 or an_rng_keep_scale_16(p). */
static double kept(const attention *a, int64_t bh, int64_t i, int64_t j)
{
    if (a->dropout <= 0) return 1;
    const uint64_t row = (a->r->o->first_sample * (uint64_t)a->H + (uint64_t)bh) * (uint64_t)a->T + (uint64_t)i;
    const uint32_t word =
        an_rng_16(a->r->o->rng_key, a->stream, row * (uint64_t)((a->S + 3) / 4) + (uint64_t)j / 4, (int)(j % 4));
    return word >= an_rng_least_16((float)a->dropout) ? (double)an_rng_keep_scale_16((float)a->dropout) : 0;
}

static void eval_attention(an_oracle_node *r)
{
    attention a = attention_of(r);
    for (int64_t row = 0; row < a.B * a.H * a.T; row++) {
        int64_t bh = row / a.T, i = row % a.T;
        double max = -INFINITY, sum = 0, *o = r->out[0].d + row * a.D;
        for (int64_t j = 0; j < a.S; j++) {
            const double s = score(&a, bh, i, j);
            if (s > max || isnan(s)) max = s; /* NaN stays */
        }
        const bool seen = max != -INFINITY;
        for (int64_t j = 0; j < a.S && seen; j++) sum += exp(score(&a, bh, i, j) - max);
        if (a.mask) {
            double *most = r->out[1].d + 2 * bh * a.T + i;
            most[0] = seen ? max : (double)-FLT_MAX;
            most[a.T] = seen ? log(sum) : 0;
        } else {
            r->out[1].d[row] = seen ? max + log(sum) : -INFINITY;
        }
        for (int64_t j = 0; j < a.S && seen; j++) {
            const double keep = kept(&a, bh, i, j), p = exp(score(&a, bh, i, j) - max) / sum * keep;
            for (int64_t c = 0; c < a.D && keep > 0; c++) o[c] += p * r->in[2].d[key_row(&a, bh, j) * a.D + c];
        }
    }
}

/* With p' and dp' after dropout:
 *
 *     p  = exp(s - lse)      ds = p (dp' - sum(do o))      dv = p' do      dq = scale ds k      dk = scale ds q */
static void eval_attention_grad(an_oracle_node *r)
{
    attention a = attention_of(r);
    const double *q = r->in[0].d, *k = r->in[1].d, *v = r->in[2].d, *o = r->in[3].d, *lse = r->in[4].d, *d = r->in[5].d;
    for (int64_t row = 0; row < a.B * a.H * a.T; row++) {
        int64_t bh = row / a.T, i = row % a.T;
        double delta = 0;
        for (int64_t c = 0; c < a.D; c++) delta += d[row * a.D + c] * o[row * a.D + c];
        for (int64_t j = 0; j < a.S; j++) {
            double s = score(&a, bh, i, j), keep = kept(&a, bh, i, j), dp = 0;
            if (s == -INFINITY) continue;
            int64_t key = key_row(&a, bh, j);
            double p = a.mask ? exp(s - lse[2 * bh * a.T + i] - lse[(2 * bh + 1) * a.T + i]) : exp(s - lse[row]);
            for (int64_t c = 0; c < a.D && keep > 0; c++) dp += d[row * a.D + c] * v[key * a.D + c] * keep;
            double ds = p * (dp - delta) * a.scale;
            for (int64_t c = 0; c < a.D; c++) {
                r->out[0].d[row * a.D + c] += ds * k[key * a.D + c];
                r->out[1].d[key * a.D + c] += ds * q[row * a.D + c];
                if (keep > 0) r->out[2].d[key * a.D + c] += p * keep * d[row * a.D + c];
            }
        }
    }
}

/* ------------------------------------------------------------------------------------------------ windows */

static int64_t nhwc(const struct an_tensor *t, int64_t n, int64_t h, int64_t w, int64_t c)
{
    return ((n * t->shape[1] + h) * t->shape[2] + w) * t->shape[3] + c;
}

/* y += x w, dx += dy w or dw += dy x over all triples (output, kernel element, channel). */
static void eval_conv(an_oracle_node *r)
{
    bool forward = r->n->op == AN_OP_CONV2D, dx = r->n->op == AN_OP_CONV2D_DX;
    const struct an_tensor *y = forward ? r->n : r->src[0], *x = forward ? r->src[0] : dx ? r->n : r->src[1];
    const struct an_tensor *w = forward || dx ? r->src[1] : r->n;
    double *yv = forward ? r->out[0].d : r->in[0].d, *xv = forward ? r->in[0].d : dx ? r->out[0].d : r->in[1].d;
    double *wv = forward || dx ? r->in[1].d : r->out[0].d;
    const int64_t *s = r->n->attr;   /* stride_h, stride_w, pad_h, pad_w, dil_h, dil_w, groups */
    const int32_t *k = w->shape + 1; /* KH, KW: w is [O,KH,KW,C/groups], dx has it as [groups,KH,KW,...] */
    int64_t per_group = y->shape[3] / s[6], channels = x->shape[3] / s[6], cells = channels * k[0] * k[1];
    for (int64_t j = 0; j < y->numel; j++) {
        int64_t o = j % y->shape[3], ow = j / y->shape[3] % y->shape[2],
                oh = j / y->shape[3] / y->shape[2] % y->shape[1];
        int64_t b = j / y->shape[3] / y->shape[2] / y->shape[1];
        for (int64_t cell = 0; cell < cells; cell++) {
            int64_t c = cell % channels, kw = cell / channels % k[1], kh = cell / channels / k[1];
            int64_t h = oh * s[0] - s[2] + kh * s[4], v = ow * s[1] - s[3] + kw * s[5];
            if (h < 0 || h >= x->shape[1] || v < 0 || v >= x->shape[2]) continue;
            int64_t ix = nhwc(x, b, h, v, o / per_group * channels + c), iw = o * cells + cell;
            if (dx) iw = ((o / per_group * k[0] * k[1] + kh * k[1] + kw) * per_group + o % per_group) * channels + c;
            if (r->n->op == AN_OP_CONV2D_DW_IMAGES) iw = (b * cells + cell) * y->shape[3] + o;
            if (forward)
                yv[j] += xv[ix] * wv[iw];
            else if (dx)
                xv[ix] += yv[j] * wv[iw];
            else
                wv[iw] += yv[j] * xv[ix];
        }
    }
}

static void eval_pool(an_oracle_node *r)
{
    int op = r->n->op;
    bool forward = op == AN_OP_POOL_MAX || op == AN_OP_POOL_SUM,
         max = op == AN_OP_POOL_MAX || op == AN_OP_POOL_MAX_GRAD;
    const struct an_tensor *y = forward ? r->n : r->src[0], *x = forward ? r->src[0] : r->n;
    const double *xv = forward ? r->in[0].d : max ? r->in[1].d : NULL;
    const int64_t *s = r->n->attr; /* kh, kw, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w */
    for (int64_t j = 0; j < y->numel; j++) {
        int64_t c = j % y->shape[3], ow = j / y->shape[3] % y->shape[2],
                oh = j / y->shape[3] / y->shape[2] % y->shape[1];
        int64_t b = j / y->shape[3] / y->shape[2] / y->shape[1], best = -1;
        double sum = 0;
        for (int64_t cell = 0; cell < s[0] * s[1]; cell++) {
            int64_t h = oh * s[2] - s[4] + cell / s[1] * s[6], w = ow * s[3] - s[5] + cell % s[1] * s[7];
            if (h < 0 || h >= x->shape[1] || w < 0 || w >= x->shape[2]) continue;
            int64_t at = nhwc(x, b, h, w, c);
            if (!forward && !max) r->out[0].d[at] += r->in[0].d[j];
            if (forward && !max) sum += xv[at];
            if (max && (best < 0 || xv[at] > xv[best] || (isnan(xv[at]) && !isnan(xv[best])))) best = at;
        }
        if (forward) r->out[0].d[j] = max ? (best < 0 ? -INFINITY : xv[best]) : sum;
        if (op == AN_OP_POOL_MAX_GRAD && best >= 0) r->out[0].d[best] += r->in[0].d[j];
    }
}

static void eval_put_rows(an_oracle_node *r)
{
    const struct an_tensor *table = r->src[0], *index = r->src[1];
    const int64_t V = table->shape[0], row = V > 0 ? table->numel / V : 0;
    memcpy(r->out[0].w, r->in[0].w, (size_t)table->numel * sizeof(uint64_t));
    for (int64_t i = 0; i < index->numel; i++) {
        const int64_t id = r->in[1].i[i];
        if (id < 0 || id >= V) continue;
        memcpy(r->out[0].w + id * row, r->in[2].w + i * row, (size_t)row * sizeof(uint64_t));
    }
}

/* Where group e begins, given where the one before it ends; `end` becomes where it ends. */
static int64_t group_of_rows(const an_oracle_node *r, int64_t e, int64_t S, int64_t *end)
{
    const int64_t begin = *end, given = r->in[2].i[e];
    *end = given < begin ? begin : given > S ? S : given;
    return begin;
}

static void eval_grouped(an_oracle_node *r)
{
    const bool outer = r->n->op == AN_OP_GROUPED_OUTER;
    const int64_t S = r->src[0]->shape[0], K = r->src[0]->shape[1], N = r->n->shape[r->n->rank - 1];
    const double *x = r->in[0].d, *w = r->in[1].d;
    double *y = r->out[0].d;
    for (int64_t e = 0, end = 0; e < r->src[2]->shape[0]; e++)
        for (int64_t i = group_of_rows(r, e, S, &end); i < end; i++)
            for (int64_t k = 0; k < K; k++)
                for (int64_t n = 0; n < N; n++) {
                    const int64_t matrix = (e * K + k) * N + n;
                    if (outer)
                        y[matrix] += x[i * K + k] * w[i * N + n];
                    else
                        y[i * N + n] += x[i * K + k] * w[matrix];
                }
}

/* ------------------------------------------------------------------------------------------------ cumsum, sort */

static void eval_cumsum(an_oracle_node *r)
{
    const struct an_tensor *n = r->n;
    int64_t K = n->shape[n->rank - 1], reverse = n->attr[0];
    bool floats = an_dtype_is_float((an_dtype)n->dtype);
    for (int64_t row = 0; K > 0 && row < n->numel / K; row++) {
        double sum = 0;
        int64_t sum_i = 0;
        for (int64_t k = 0; k < K; k++) {
            int64_t at = row * K + (reverse ? K - 1 - k : k);
            if (floats)
                r->out[0].d[at] = sum += r->in[0].d[at];
            else
                r->out[0].i[at] = sum_i += r->in[0].i[at];
        }
    }
}

/* Whether element i may precede element j, where i < j: equal elements keep their order, NaN is the greatest. */
static bool in_order(const an_oracle_node *r, int64_t i, int64_t j, bool descending)
{
    if (an_dtype_is_float((an_dtype)r->src[0]->dtype)) {
        double a = r->in[0].d[i], b = r->in[0].d[j];
        if (isnan(a) || isnan(b)) return isnan(descending ? a : b);
        return descending ? a >= b : a <= b;
    }
    int64_t a = r->in[0].i[i], b = r->in[0].i[j];
    return descending ? a >= b : a <= b;
}

/* Insertion sort of positions: stable by construction. */
static an_status eval_sort(an_err *err, an_oracle_node *r)
{
    const struct an_tensor *n = r->n, *x = r->src[0];
    int64_t K = x->shape[x->rank - 1], k_out = n->shape[n->rank - 1];
    bool descending = n->op == AN_OP_TOPK || n->attr[0];
    if (K == 0) return AN_OK;
    int64_t *order = malloc((size_t)K * sizeof *order);
    if (order == NULL) return an_fail_nomem(err, "ref: sort", (size_t)K * sizeof *order);
    for (int64_t row = 0; row < x->numel / K; row++) {
        for (int64_t k = 0; k < K; k++) {
            int64_t at = k;
            for (; at > 0 && !in_order(r, row * K + order[at - 1], row * K + k, descending); at--)
                order[at] = order[at - 1];
            order[at] = k;
        }
        for (int64_t k = 0; k < k_out; k++) {
            r->out[0].w[row * k_out + k] = r->in[0].w[row * K + order[k]];
            r->out[1].i[row * k_out + k] = order[k];
        }
    }
    free(order);
    return AN_OK;
}

/* ------------------------------------------------------------------------------------------------ draw */

/* floor(total part / 2^bits), for part below 2^bits */
static uint64_t part_of(uint64_t total, uint64_t part, int bits)
{
    const uint64_t low = total % ((uint64_t)1 << bits);
    return (total >> bits) * part + (low * part >> bits);
}

/* Tokens in the order of their logits, of equal ones by their ids; weights and sums are integers, as in the kernels. */
static int64_t drawn(const double *x, int64_t n, const int64_t *attr, uint32_t random, int64_t *order, uint64_t *weight)
{
    const uint32_t bits = (uint32_t)attr[2];
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i;
        if (isnan(x[i])) return -1;
        for (; at > 0 && x[order[at - 1]] < x[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    if (x[order[0]] == -INFINITY) return -1;
    if (scale == 0 || x[order[0]] == INFINITY) return order[0];
    uint64_t total = 0, sum = 0;
    int64_t kept = attr[0] > 0 && attr[0] < n ? attr[0] : n;
    while (kept < n && x[order[kept]] == x[order[kept - 1]]) kept++;
    for (int64_t i = 0; i < n; i++) weight[i] = 0;
    for (int64_t i = 0; i < kept; i++) {
        const float less = ((float)x[order[i]] - (float)x[order[0]]) * scale;
        total += weight[order[i]] = (uint64_t)((double)an_exp(less) * 0x1p40);
    }
    if (attr[3]) {
        const uint64_t enough = part_of(total, (uint64_t)attr[3], 24);
        int64_t i = 0;
        while (i < kept && (sum == 0 || sum < enough || x[order[i]] == x[order[i - 1]])) sum += weight[order[i++]];
        for (total = sum; i < kept; i++) weight[order[i]] = 0;
    }
    const uint64_t want = part_of(total, random, 32);
    sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (want < (sum += weight[i])) return i;
    return -1;
}

static an_status eval_draw(an_err *err, an_oracle_node *r)
{
    const struct an_tensor *x = r->src[0];
    const int64_t V = x->shape[x->rank - 1];
    int64_t *order = malloc((size_t)V * 2 * sizeof *order);
    if (order == NULL) return an_fail_nomem(err, "ref: draw", (size_t)V * 2 * sizeof *order);
    for (int64_t row = 0; row < x->numel / V; row++) {
        const uint32_t random = an_philox((uint32_t)r->n->attr[1], 0x64726177u, (uint32_t)r->in[1].i[1],
                                          (uint32_t)r->in[1].i[0] + (uint32_t)row);
        r->out[0].i[row] = drawn(r->in[0].d + row * V, V, r->n->attr, random, order, (uint64_t *)(void *)(order + V));
    }
    free(order);
    return AN_OK;
}

/* ------------------------------------------------------------------------------------------------ matrices */

/* A pivot that is not positive becomes NaN, as does all that depends on it. */
static void cholesky(const double *a, double *l, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            double s = 0.5 * a[i * n + j] + 0.5 * a[j * n + i];
            for (int64_t k = 0; k < j; k++) s -= l[i * n + k] * l[j * n + k];
            l[i * n + j] = i != j ? s / l[j * n + j] : s > 0 ? sqrt(s) : (double)NAN;
        }
}

/* Gram-Schmidt, each column orthogonalized twice ("twice is enough"). The diagonal of r is not negative. a [m,n]. */
static void qr(const double *a, double *q, double *r, int64_t m, int64_t n)
{
    memcpy(q, a, (size_t)(m * n) * sizeof *q);
    for (int64_t j = 0; j < n; j++) {
        for (int pass = 0; pass < 2; pass++)
            for (int64_t k = 0; k < j; k++) {
                double dot = 0;
                for (int64_t i = 0; i < m; i++) dot += q[i * n + k] * q[i * n + j];
                for (int64_t i = 0; i < m; i++) q[i * n + j] -= dot * q[i * n + k];
                r[k * n + j] += dot;
            }
        double norm = 0;
        for (int64_t i = 0; i < m; i++) norm += q[i * n + j] * q[i * n + j];
        r[j * n + j] = norm = sqrt(norm);
        for (int64_t i = 0; i < m; i++) q[i * n + j] /= norm;
    }
}

/* One-sided Jacobi: rotates pairs of columns of u [m,n] (starting as a) until they are orthogonal; v collects the
 * rotations. */
static void orthogonalize(double *u, double *v, int64_t m, int64_t n)
{
    for (int64_t i = 0; i < n; i++) v[i * n + i] = 1;
    for (int sweep = 0; sweep < 60; sweep++)
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) {
                double a = 0, b = 0, c = 0;
                for (int64_t i = 0; i < m; i++) {
                    a += u[i * n + p] * u[i * n + p];
                    b += u[i * n + q] * u[i * n + q];
                    c += u[i * n + p] * u[i * n + q];
                }
                if (fabs(c) <= 1e-300) continue;
                double zeta = (b - a) / (2 * c), t = copysign(1, zeta) / (fabs(zeta) + sqrt(1 + zeta * zeta));
                double cosine = 1 / sqrt(1 + t * t), sine = cosine * t;
                for (int64_t i = 0; i < m + n; i++) {
                    double *row = i < m ? u + i * n : v + (i - m) * n, x = row[p], y = row[q];
                    row[p] = cosine * x - sine * y;
                    row[q] = sine * x + cosine * y;
                }
            }
}

/* Swaps columns p and q of x [rows,n]. */
static void swap_columns(double *x, int64_t rows, int64_t n, int64_t p, int64_t q)
{
    for (int64_t i = 0; i < rows; i++) {
        double t = x[i * n + p];
        x[i * n + p] = x[i * n + q];
        x[i * n + q] = t;
    }
}

static void svd(const double *a, double *u, double *s, double *v, int64_t m, int64_t n)
{
    memcpy(u, a, (size_t)(m * n) * sizeof *u);
    orthogonalize(u, v, m, n);
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < m; i++) s[j] += u[i * n + j] * u[i * n + j];
        s[j] = sqrt(s[j]);
        for (int64_t i = 0; i < m; i++) u[i * n + j] = s[j] > 0 ? u[i * n + j] / s[j] : 0;
    }
    for (int64_t j = 0; j < n; j++)
        for (int64_t k = n - 1; k > j; k--)
            if (s[k] > s[k - 1]) {
                swap_columns(s, 1, n, k, k - 1);
                swap_columns(u, m, n, k, k - 1);
                swap_columns(v, n, n, k, k - 1);
            }
}

/* Wider than double where the processor supports it, against rounding errors of thousands of rotations. */
typedef long double wide;

/* Jacobi rotation of rows and columns p and q of a [n,n] that makes a[p][q] zero; v accumulates it. False: it was zero
 * already, up to rounding. */
static bool jacobi_rotate(wide *a, wide *v, int64_t n, int64_t p, int64_t q)
{
    const wide app = a[p * n + p], aqq = a[q * n + q], off = a[p * n + q];
    a[p * n + q] = a[q * n + p] = 0;
    if (app + off == app && aqq + off == aqq) return false;
    const wide theta = (aqq - app) / (2 * off), t = copysignl(1, theta) / (fabsl(theta) + sqrtl(1 + theta * theta));
    const wide c = 1 / sqrtl(1 + t * t), s = c * t;
    for (int64_t i = 0; i < n; i++) {
        wide x = v[i * n + p], y = v[i * n + q];
        v[i * n + p] = c * x - s * y;
        v[i * n + q] = s * x + c * y;
        x = a[i * n + p], y = a[i * n + q];
        if (i == p || i == q) continue;
        a[i * n + p] = a[p * n + i] = c * x - s * y;
        a[i * n + q] = a[q * n + i] = s * x + c * y;
    }
    a[p * n + p] = app - t * off;
    a[q * n + q] = aqq + t * off;
    return true;
}

/* Cyclic Jacobi on (symmetric + its transpose) / 2 [n,n]: values ascending into w, vectors into columns of out; work:
 * 2 [n,n]. */
static void eigh(const double *symmetric, wide *work, double *w, double *out, int64_t n)
{
    wide *a = work, *v = work + n * n;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            a[i * n + j] = ((wide)symmetric[i * n + j] + (wide)symmetric[j * n + i]) / 2;
            v[i * n + j] = i == j;
        }
    bool rotated = true;
    for (int sweep = 0; sweep < 60 && rotated; sweep++) {
        rotated = false;
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) rotated |= jacobi_rotate(a, v, n, p, q);
    }
    for (int64_t i = 0; i < n; i++) w[i] = (double)a[i * n + i];
    for (int64_t i = 0; i < n * n; i++) out[i] = (double)v[i];
    for (int64_t j = 0; j < n; j++)
        for (int64_t k = n - 1; k > j; k--)
            if (w[k] < w[k - 1]) {
                swap_columns(w, 1, n, k, k - 1);
                swap_columns(out, n, n, k, k - 1);
            }
}

/* Gaussian elimination with partial pivoting; `a` [n,n] is destroyed, x [n,m] holds b and then the solution. */
static void solve(double *a, double *x, int64_t n, int64_t m)
{
    for (int64_t p = 0; p < n; p++) {
        int64_t best = p;
        for (int64_t i = p + 1; i < n; i++)
            if (fabs(a[i * n + p]) > fabs(a[best * n + p])) best = i;
        for (int64_t j = 0; j < n; j++) swap_columns(&a[j], 1, 1, p * n, best * n);
        for (int64_t j = 0; j < m; j++) swap_columns(&x[j], 1, 1, p * m, best * m);
        for (int64_t i = p + 1; i < n; i++) {
            double f = a[i * n + p] / a[p * n + p];
            for (int64_t j = p; j < n; j++) a[i * n + j] -= f * a[p * n + j];
            for (int64_t j = 0; j < m; j++) x[i * m + j] -= f * x[p * m + j];
        }
    }
    for (int64_t i = n - 1; i >= 0; i--)
        for (int64_t j = 0; j < m; j++) {
            for (int64_t k = i + 1; k < n; k++) x[i * m + j] -= a[i * n + k] * x[k * m + j];
            x[i * m + j] /= a[i * n + i];
        }
}

/* Substitution; only the triangle is read. x [n,m] holds b and then the solution. */
static void trisolve(const double *t, double *x, int64_t n, int64_t m, bool upper, bool transpose)
{
    bool from_end = upper != transpose;
    for (int64_t step = 0; step < n; step++) {
        int64_t i = from_end ? n - 1 - step : step;
        for (int64_t j = 0; j < m; j++) {
            for (int64_t k = from_end ? i + 1 : 0; k < (from_end ? n : i); k++)
                x[i * m + j] -= (transpose ? t[k * n + i] : t[i * n + k]) * x[k * m + j];
            x[i * m + j] /= t[i * n + i];
        }
    }
}

static an_status eval_matrices(an_err *err, an_oracle_node *r)
{
    const struct an_tensor *a = r->src[0];
    int64_t m = a->shape[a->rank - 2], n = a->shape[a->rank - 1], cols = r->n->shape[r->n->rank - 1];
    wide *work = malloc((size_t)(2 * n * n + 1) * sizeof *work);
    if (work == NULL) return an_fail_nomem(err, "ref: matrices", (size_t)(2 * n * n) * sizeof *work);
    for (int64_t i = 0; m * n > 0 && i < a->numel / (m * n); i++) {
        const double *x = r->in[0].d + i * m * n;
        double *y = r->out[0].d, *second = r->out[1].d ? r->out[1].d + i * n * n : NULL;
        bool solves = r->n->op == AN_OP_SOLVE || r->n->op == AN_OP_TRISOLVE;
        if (solves) memcpy(y + i * n * cols, r->in[1].d + i * n * cols, (size_t)(n * cols) * sizeof *y);
        switch (r->n->op) {
        case AN_OP_CHOLESKY: cholesky(x, y + i * n * n, n); break;
        case AN_OP_QR: qr(x, y + i * m * n, second, m, n); break;
        case AN_OP_EIGH: eigh(x, work, y + i * n, second, n); break;
        case AN_OP_SVD: svd(x, y + i * m * n, r->out[1].d + i * n, r->out[2].d + i * n * n, m, n); break;
        case AN_OP_SOLVE:
            memcpy(work, x, (size_t)(n * n) * sizeof *x);
            solve((double *)(void *)work, y + i * n * cols, n, cols);
            break;
        default: trisolve(x, y + i * n * cols, n, cols, r->n->attr[0] != 0, r->n->attr[1] != 0); break;
        }
    }
    free(work);
    return AN_OK;
}

an_status an_oracle_call(an_err *err, an_oracle_node *r)
{
    switch (r->n->op) {
    case AN_OP_ATTENTION: eval_attention(r); break;
    case AN_OP_ATTENTION_GRAD: eval_attention_grad(r); break;
    case AN_OP_CONV2D:
    case AN_OP_CONV2D_DX:
    case AN_OP_CONV2D_DW:
    case AN_OP_CONV2D_DW_IMAGES: eval_conv(r); break;
    case AN_OP_POOL_MAX:
    case AN_OP_POOL_MAX_GRAD:
    case AN_OP_POOL_SUM:
    case AN_OP_POOL_SUM_GRAD: eval_pool(r); break;
    case AN_OP_CUMSUM: eval_cumsum(r); break;
    case AN_OP_PUT_ROWS: eval_put_rows(r); break;
    case AN_OP_GROUPED_MATMUL:
    case AN_OP_GROUPED_OUTER: eval_grouped(r); break;
    case AN_OP_DRAW: return eval_draw(err, r);
    case AN_OP_SORT:
    case AN_OP_TOPK: return eval_sort(err, r);
    default: return eval_matrices(err, r);
    }
    return AN_OK;
}
