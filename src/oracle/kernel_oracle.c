/* kernel_oracle.c: samples of GEMM, attention, scatter, call and copy kernels in double, and the comparison
 * for all kinds.
 *
 * Owns:     how far a kernel may be from the oracle.
 * Does not: evaluate loop kernels (loop_oracle.c).
 *
 * Tolerance. A difference is measured against |expected| plus the root mean square of the samples of that output, so
 * that cancellation is allowed where the surrounding values are large. The allowed difference is
 *   f32   a few units in the last place, times the square root of the longest sum (rounding errors of an accumulation
 *         order add up like a random walk);
 *   bf16  inside the kernel: three units of bf16, because a value near the middle of two bf16 numbers may round either
 *         way;
 *   tf32  operands: half a tf32 unit of the terms of a sum that cancels. Attention's first rows have such sums.
 * A sum of a loop kernel that cancels, and what is computed from it, may be off by four units of its terms' magnitudes together.
 */
#include "oracle/kernel_oracle.h"
#include "base/exact.h"
#include "base/map.h"
#include "base/rng.h"
#include "oracle/oracle.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 600, QUERIES = 12, KEYS = 6, WORK = 40000000 };

/* ---------------------------------------------------------------------------------------------- samples */

bool an_oracle_expect(an_oracle_samples *e, int arg, int64_t at, double want)
{
    if (e->n == e->cap) {
        const int64_t cap = e->cap ? 2 * e->cap : 1024;
        int64_t *more_at = realloc(e->at, (size_t)cap * sizeof *more_at);
        if (more_at) e->at = more_at;
        double *more_want = realloc(e->want, (size_t)cap * sizeof *more_want);
        if (more_want) e->want = more_want;
        double *more_size = realloc(e->size, (size_t)cap * sizeof *more_size);
        if (more_size) e->size = more_size;
        int32_t *more_arg = realloc(e->arg, (size_t)cap * sizeof *more_arg);
        if (more_arg) e->arg = more_arg;
        if (!more_at || !more_want || !more_size || !more_arg) return false;
        e->cap = cap;
    }
    e->at[e->n] = at;
    e->want[e->n] = want;
    e->size[e->n] = 0;
    e->arg[e->n++] = arg;
    return true;
}

static double rounded(int dtype, double x)
{
    const an_oracle_options plain = {0};
    return an_oracle_round(&plain, (an_dtype)dtype, x);
}

/* Sample k of n out of [0, size): the first, the last, and others at hashed positions. */
static int64_t spread(int64_t k, int64_t n, int64_t size)
{
    if (n >= size) return k;
    if (k == 0) return 0;
    if (k == 1) return size - 1;
    return (int64_t)(an_hash_u64((uint64_t)k, 99) % (uint64_t)size);
}

/* ---------------------------------------------------------------------------------------------- GEMM */

typedef struct gemm {
    const an_gemm_spec *s;
    const an_oracle_memory *arg;
} gemm;

/* Element `channel` of pixel `at` of images of `area` pixels, in planes. */
static int64_t in_planes(int64_t at, int64_t channel, int64_t area, int64_t channels)
{
    return (at / area * channels + channel) * area + at % area;
}

/* Index in the image of im2col element (p, t): output position p, window element t; -1: padding. */
static int64_t window_at(const an_window_spec *w, int64_t p, int64_t t)
{
    const int64_t area = (int64_t)w->out[0] * w->out[1], tap = t / w->channels;
    const int32_t y = an_window_along(w, 0, (int32_t)(p % area / w->out[1]), (int32_t)(tap / w->taps[1]));
    const int32_t x = an_window_along(w, 1, (int32_t)(p % w->out[1]), (int32_t)(tap % w->taps[1]));
    if (y < 0 || x < 0) return -1;
    const int64_t pixel = (p / area * w->in[0] + y) * w->in[1] + x, channel = t % w->channels;
    if (w->planes & AN_PLANES_IMAGE) return in_planes(pixel, channel, (int64_t)w->in[0] * w->in[1], w->channels);
    return pixel * w->pixel + channel;
}

/* Index in w [o,r,s,n] of element (k, n) of B, where a library reads it as it lies: k counts (r,s,o). */
static int64_t weight_at(const an_gemm_spec *s, int64_t k, int64_t n)
{
    const int64_t outputs = s->window.channels, taps = (int64_t)s->window.taps[0] * s->window.taps[1];
    return (k % outputs * taps + k / outputs) * s->n + n;
}

/* Element (r,c) of the GEMM; r counts rows over all batches. */
static double gemm_at(void *user, int64_t r, int64_t c)
{
    const gemm *p = user;
    const an_gemm_spec *s = p->s;
    const int64_t m = r % s->m;
    int64_t batch = r / s->m, a = 0, b = 0;
    for (int i = 2; i >= 0; i--) {
        const int64_t k = batch % s->nb[i];
        batch /= s->nb[i];
        a += k * s->a_b[i];
        b += k * s->b_b[i];
    }
    const bool as_it_lies = s->window.by_library && s->window.of == AN_WINDOW_A && s->window.tap[0] < 0; /* dX */
    const int64_t area = (int64_t)s->window.out[0] * s->window.out[1];
    double sum = 0;
    for (int64_t k = 0; k < s->k; k++) {
        const int64_t at_a = s->window.of == AN_WINDOW_A              ? window_at(&s->window, m, k)
                             : (s->window.planes & AN_PLANES_DY) != 0 ? in_planes(k, m, area, s->m)
                                                                      : m * s->a_m + k * s->a_k;
        const int64_t at_b = s->window.of == AN_WINDOW_B ? window_at(&s->window, k, c)
                             : as_it_lies                ? weight_at(s, k, c)
                                                         : k * s->b_k + c * s->b_n;
        double x = at_a < 0 ? 0 : an_dtype_load((an_dtype)s->a_dtype, p->arg[0].before, a + at_a);
        double y = at_b < 0 ? 0 : an_dtype_load((an_dtype)s->b_dtype, p->arg[1].before, b + at_b);
        if (s->mul_dtype == AN_BF16) {
            x = rounded(AN_BF16, x);
            y = rounded(AN_BF16, y);
        }
        sum += x * y;
    }
    return sum;
}

static int64_t gemm_rows(const an_gemm_spec *s)
{
    return (int64_t)s->m * s->nb[0] * s->nb[1] * s->nb[2];
}

static int64_t gemm_index(const an_gemm_spec *s, int64_t r, int64_t c)
{
    int64_t batch = r / s->m, at = r % s->m * s->c_m + c;
    for (int i = 2; i >= 0; i--) {
        at += batch % s->nb[i] * s->c_b[i];
        batch /= s->nb[i];
    }
    return at;
}

static bool sample_gemm(const gemm *p, an_oracle_samples *out)
{
    const an_gemm_spec *s = p->s;
    const int64_t all = gemm_rows(s) * s->n;
    const int64_t n = AN_MIN(all, AN_MAX(8, AN_MIN(SAMPLES, WORK / AN_MAX(s->k, 1))));
    for (int64_t k = 0; k < n; k++) {
        const int64_t i = spread(k, n, all), r = i / s->n, c = i % s->n, at = gemm_index(s, r, c);
        double want = gemm_at((void *)(uintptr_t)p, r, c);
        if (!an_oracle_expect(out, 2, at, rounded(s->c_dtype, want))) return false;
    }
    return true;
}

/* ---------------------------------------------------------------------------------------------- attention */

typedef struct attention {
    const an_attn_spec *s;
    const an_oracle_memory *arg;
    const uint32_t *rng;
    int64_t keys, shift;
    int mask;   /* argument with the mask; -1: none */
    int tables; /* argument with the cosines of rotary positions, behind it the sines; -1: not rotated */
} attention;

/* Column d of row t, x, turned by its position, or turned back; `other` is the column half a head away. */
static double turned(const attention *a, double x, double other, int64_t t, int64_t d, bool back)
{
    const int64_t half = a->s->D / 2, j = d % half, second = (d >= half) != back;
    const double turn = an_dtype_load(AN_F32, a->arg[a->tables].before, t * half + j) * x +
                        an_dtype_load(AN_F32, a->arg[a->tables + 1].before, (2 * t + second) * half + j) * other;
    return rounded(a->s->dtype, turn);
}

static double element(const attention *a, int arg, const int64_t stride[3], int64_t b, int64_t h, int64_t t, int64_t d)
{
    const bool keys = arg == 1 || arg == 2; /* k and v, forward and backward; h is a head of q */
    const int64_t at = keys ? h / an_attn_group(a->s) : h, half = a->s->D / 2;
    const int64_t row = b * stride[0] + at * stride[1] + t * stride[2];
    const double x = an_dtype_load((an_dtype)a->s->dtype, a->arg[arg].before, row + d);
    if (a->tables < 0 || arg > 1) return x;
    const int64_t other = d < half ? d + half : d - half;
    return turned(a, x, an_dtype_load((an_dtype)a->s->dtype, a->arg[arg].before, row + other), t, d, false);
}

/* Gradient d of row t of q or k as it is stored, of all sums for the row; *size: the magnitude of its terms. */
static double gradient(const attention *a, const double *sum, const double *sizes, int64_t t, int64_t d, double *size)
{
    const double scale = (double)a->s->scale, x = rounded(a->s->dtype, scale * sum[d]);
    const int64_t half = a->s->D / 2, other = d < half ? d + half : d - half;
    *size = fabs(scale) * sizes[d];
    if (a->tables < 0) return x;
    *size += fabs(scale) * sizes[other];
    return turned(a, x, rounded(a->s->dtype, scale * sum[other]), t, d, true);
}

/* An operand of a GEMM, rounded as the kernel rounds it. */
static double factor(const attention *a, double x)
{
    return a->s->mul_dtype == AN_BF16 ? rounded(AN_BF16, x) : x;
}

/* The dot product of row t of one argument and row u of another. */
static double dot_rows(const attention *a, int x, const int64_t xs[3], int64_t t, int y, const int64_t ys[3], int64_t u,
                       int64_t b, int64_t h)
{
    double sum = 0;
    for (int64_t d = 0; d < a->s->D; d++)
        sum += factor(a, element(a, x, xs, b, h, t, d)) * factor(a, element(a, y, ys, b, h, u, d));
    return sum;
}

static double score(const attention *a, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const int64_t last = i + a->shift;
    if (j >= a->keys || (a->s->causal && j > last) || (a->s->window && j <= last - a->s->window)) return -INFINITY;
    const int64_t *m = a->s->mask;
    const double add =
        a->mask < 0 ? 0 : an_dtype_load(AN_F32, a->arg[a->mask].before, b * m[0] + h * m[1] + i * m[2] + j * m[3]);
    return (double)a->s->scale * dot_rows(a, 0, a->s->q, i, 1, a->s->k, j, b, h) + add;
}

/* The factor of dropout: 0 or an_rng_keep_scale_16(p). */
static double kept(const attention *a, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const an_attn_spec *s = a->s;
    if (!(s->dropout > 0)) return 1;
    const uint64_t row =
        (((uint64_t)a->rng[1] + (uint64_t)b) * (uint64_t)s->H + (uint64_t)h) * (uint64_t)s->T + (uint64_t)i;
    const uint32_t word =
        an_rng_16(a->rng[0], s->stream, row * (uint64_t)((s->S + 3) / 4) + (uint64_t)j / 4, (int)(j % 4));
    return word >= an_rng_least_16(s->dropout) ? (double)an_rng_keep_scale_16(s->dropout) : 0;
}

static bool sample_query(const attention *a, int64_t b, int64_t h, int64_t i, double *p, an_oracle_samples *out)
{
    const an_attn_spec *s = a->s;
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < a->keys; j++) max = fmax(max, p[j] = score(a, b, h, i, j));
    for (int64_t j = 0; j < a->keys; j++) sum += p[j] = max > -INFINITY ? exp(p[j] - max) : 0;
    for (int64_t d = 0; d < s->D; d++) {
        double o = 0;
        for (int64_t j = 0; j < a->keys; j++)
            if (p[j] > 0) o += p[j] / sum * kept(a, b, h, i, j) * element(a, 2, s->v, b, h, j, d);
        if (!an_oracle_expect(out, 4, b * s->o[0] + h * s->o[1] + i * s->o[2] + d, rounded(s->dtype, o))) return false;
    }
    const int64_t at = (b * s->H + h) * s->T;
    if (a->mask < 0) return an_oracle_expect(out, 5, at + i, max > -INFINITY ? max + log(sum) : -INFINITY);
    return an_oracle_expect(out, 5, 2 * at + i, max > -INFINITY ? max : (double)-FLT_MAX) &&
           an_oracle_expect(out, 5, 2 * at + s->T + i, max > -INFINITY ? log(sum) : 0);
}

/* The dropped-out probability and the score's gradient of (i, j), and the magnitude of terms that may cancel in it.
 * Arguments: q k v o lse do rng dq dk dv. */
static void backward_at(const attention *a, int64_t b, int64_t h, int64_t i, int64_t j, double *dropped, double *ds,
                        double *size)
{
    const an_attn_spec *s = a->s;
    const int64_t at = (b * s->H + h) * s->T * (a->mask < 0 ? 1 : 2) + i;
    double x = score(a, b, h, i, j);
    const double lse = an_dtype_load(AN_F32, a->arg[4].before, at);
    *dropped = *ds = *size = 0;
    if (!(x > -INFINITY)) return;
    if (a->mask >= 0) x -= an_dtype_load(AN_F32, a->arg[4].before, at + s->T);
    const double p = exp(x - lse), keep = kept(a, b, h, i, j);
    double delta = 0;
    for (int64_t d = 0; d < s->D; d++) delta += element(a, 5, s->do_, b, h, i, d) * element(a, 3, s->o, b, h, i, d);
    *dropped = p * keep;
    *ds = p * (keep * dot_rows(a, 5, s->do_, i, 2, s->v, j, b, h) - delta);
    for (int64_t d = 0; d < s->D; d++)
        *size += p * keep * fabs(element(a, 5, s->do_, b, h, i, d) * element(a, 2, s->v, b, h, j, d));
}

static bool sample_dq(const attention *a, int64_t b, int64_t h, int64_t i, double *sum, an_oracle_samples *out)
{
    const an_attn_spec *s = a->s;
    double *sizes = sum + s->D;
    memset(sum, 0, 2 * sizeof *sum * (size_t)s->D);
    for (int64_t j = 0; j < s->S; j++) {
        double dropped, ds, size;
        backward_at(a, b, h, i, j, &dropped, &ds, &size);
        for (int64_t d = 0; (ds != 0 || size > 0) && d < s->D; d++) {
            const double k = element(a, 1, s->k, b, h, j, d);
            sum[d] += ds * k;
            sizes[d] += size * fabs(k);
        }
    }
    for (int64_t d = 0; d < s->D; d++) {
        double size;
        const double want = gradient(a, sum, sizes, i, d, &size);
        if (!an_oracle_expect(out, 7, b * s->dq[0] + h * s->dq[1] + i * s->dq[2] + d, want)) return false;
        out->size[out->n - 1] = size;
    }
    return true;
}

/* h: a head of k and v. */
static bool sample_dkv(const attention *a, int64_t b, int64_t h, int64_t j, double *sum, an_oracle_samples *out)
{
    const an_attn_spec *s = a->s;
    const int64_t group = an_attn_group(s);
    double *dk = sum, *dv = sum + s->D, *sizes = sum + 2 * s->D;
    memset(sum, 0, 3 * sizeof *sum * (size_t)s->D);
    for (int64_t at = 0; at < group * s->T; at++) {
        const int64_t of = h * group + at / s->T, i = at % s->T; /* the head of q */
        double dropped, ds, size;
        backward_at(a, b, of, i, j, &dropped, &ds, &size);
        for (int64_t d = 0; (ds != 0 || dropped != 0) && d < s->D; d++) {
            const double q = element(a, 0, s->q, b, of, i, d);
            dk[d] += ds * q;
            sizes[d] += size * fabs(q);
            dv[d] += dropped * element(a, 5, s->do_, b, of, i, d);
        }
    }
    for (int64_t d = 0; d < s->D; d++) {
        double size;
        const double want = gradient(a, dk, sizes, j, d, &size);
        if (!an_oracle_expect(out, 8, b * s->dk[0] + h * s->dk[1] + j * s->dk[2] + d, want)) return false;
        out->size[out->n - 1] = size;
        if (!an_oracle_expect(out, 9, b * s->dv[0] + h * s->dv[1] + j * s->dv[2] + d, rounded(s->dtype, dv[d])))
            return false;
    }
    return true;
}

static bool sample_attention(const an_kernel *kernel, const an_oracle_memory *arg, int n_args, an_oracle_samples *out)
{
    const an_attn_spec *s = &kernel->u.attn;
    const bool grad = kernel->kind == AN_KERNEL_ATTN_GRAD;
    attention a = {.s = s,
                   .arg = arg,
                   .rng = arg[grad ? 6 : 3].before,
                   .keys = s->S,
                   .mask = !s->masked ? -1
                           : grad     ? AN_ATTN_GRAD_MASK
                                      : AN_ATTN_MASK,
                   .tables = !kernel->rotated ? -1
                             : grad           ? AN_ATTN_GRAD_TABLES
                                              : AN_ATTN_TABLES};
    if (!grad && n_args > 6 && arg[6].before) a.keys = AN_MIN(*(const int32_t *)arg[6].before, s->S);
    a.shift = a.keys - s->T;
    double *work = malloc(sizeof *work * (size_t)(s->S + 3 * s->D));
    bool good = work != NULL;
    const int64_t heads = (int64_t)s->B * s->H, key_heads = s->H / an_attn_group(s), of_keys = s->B * key_heads,
                  queries = AN_MIN(QUERIES, heads * s->T), keys = AN_MIN(KEYS, of_keys * s->S);
    for (int64_t k = 0; good && k < queries; k++) {
        const int64_t row = spread(k, queries, heads * s->T), bh = row / s->T;
        good = grad ? sample_dq(&a, bh / s->H, bh % s->H, row % s->T, work, out)
                    : sample_query(&a, bh / s->H, bh % s->H, row % s->T, work, out);
    }
    for (int64_t k = 0; good && grad && k < keys; k++) {
        const int64_t row = spread(k, keys, of_keys * s->S), bh = row / s->S;
        good = sample_dkv(&a, bh / key_heads, bh % key_heads, row % s->S, work, out);
    }
    free(work);
    return good;
}

/* ------------------------------------------------------------------------------------- scatter, calls, copies */

static bool sample_scatter(const an_scatter_spec *s, const an_oracle_memory *arg, an_oracle_samples *out)
{
    const int32_t *index = arg[0].before;
    const int64_t n = AN_MIN(s->rows, 24);
    for (int64_t k = 0; k < n; k++) {
        /* Every second sample is a row to which the kernel adds something. */
        const int64_t source = spread(k, AN_MAX(n, 2), AN_MAX(s->n, 1));
        int64_t row = spread(k, n, s->rows);
        if (k % 2 && s->n > 0 && source < s->n && index[source] >= 0 && index[source] < s->rows) row = index[source];
        for (int64_t c = 0; c < s->c; c++) {
            const int64_t at = row * s->out_stride + c;
            double sum = s->accumulate ? an_dtype_load(AN_F32, arg[2].before, at) : 0;
            for (int64_t i = 0; i < s->n; i++)
                if (index[i] == row) sum += an_dtype_load((an_dtype)s->src_dtype, arg[1].before, i * s->src_stride + c);
            if (!an_oracle_expect(out, 2, at, sum)) return false;
        }
    }
    return true;
}

/* Elements of rows that ids name, the last of equal ids, and of rows that must not change. */
static bool sample_put_rows(const an_library_call_spec *s, const an_oracle_memory *arg, an_oracle_samples *out)
{
    const int32_t *index = arg[0].before;
    const an_call_tensor *t = &s->out[0];
    int64_t n = s->src[0].shape[0], V = t->shape[0], c = 1;
    for (int i = 1; i < t->rank; i++) c *= t->shape[i];
    for (int64_t k = 0; k < 64 && V > 0; k++) {
        int64_t row = spread(k, 64, V), from = -1;
        const int64_t source = spread(k, 64, AN_MAX(n, 1));
        if (k % 2 && source < n && index[source] >= 0 && index[source] < V) row = index[source];
        for (int64_t i = 0; i < n; i++)
            if (index[i] == row) from = i;
        for (int64_t i = 0; i < c; i++) {
            const double want = from < 0 ? an_dtype_load((an_dtype)t->dtype, arg[2].before, row * c + i)
                                         : an_dtype_load((an_dtype)t->dtype, arg[1].before, from * c + i);
            if (!an_oracle_expect(out, 2, row * c + i, want)) return false;
        }
    }
    return true;
}

static struct an_tensor tensor_of(const an_call_tensor *t)
{
    struct an_tensor n = {.dtype = t->dtype, .rank = t->rank, .numel = 1};
    for (int i = 0; i < t->rank; i++) n.numel *= n.shape[i] = t->shape[i];
    return n;
}

/* False for outputs that are not unique: vectors of eigh and svd may change their sign. */
static bool determined(const an_library_call_spec *s, int out)
{
    return !(s->op == AN_OP_EIGH && out == 1) && !(s->op == AN_OP_SVD && out != 1);
}

static an_status sample_call(an_err *err, const an_library_call_spec *s, const an_oracle_memory *arg,
                             an_oracle_samples *out)
{
    struct an_tensor src[3], result[3];
    const an_oracle_options plain = {0};
    an_oracle_node r = {.n = &result[0], .o = &plain};
    bool good = true;
    for (int i = 0; i < s->n_src; i++) {
        src[i] = tensor_of(&s->src[i]);
        r.src[i] = &src[i];
        r.in[i].w = calloc((size_t)src[i].numel + 1, sizeof(uint64_t));
        good &= r.in[i].w != NULL;
        for (int64_t j = 0; r.in[i].w && j < src[i].numel; j++)
            if (an_dtype_is_float((an_dtype)src[i].dtype))
                r.in[i].d[j] = an_dtype_load((an_dtype)src[i].dtype, arg[i].before, j);
            else
                r.in[i].i[j] = (int64_t)an_dtype_load((an_dtype)src[i].dtype, arg[i].before, j);
    }
    for (int i = 0; i < s->n_out; i++) {
        result[i] = tensor_of(&s->out[i]);
        r.out[i].w = calloc((size_t)result[i].numel + 1, sizeof(uint64_t));
        good &= r.out[i].w != NULL;
    }
    result[0].op = s->op;
    result[0].n_src = s->n_src;
    result[0].attr = s->attr;
    an_status status = good ? an_oracle_call(err, &r) : an_fail_nomem(err, "the oracle's call", 0);
    for (int i = 0; status == AN_OK && i < s->n_out; i++)
        for (int64_t j = 0; good && determined(s, i) && j < result[i].numel; j++)
            good =
                an_oracle_expect(out, s->n_src + i, j,
                                 an_dtype_is_float((an_dtype)result[i].dtype) ? rounded(result[i].dtype, r.out[i].d[j])
                                                                              : (double)r.out[i].i[j]);
    for (int i = 0; i < 3; i++) {
        free(r.in[i].w);
        free(r.out[i].w);
    }
    return status != AN_OK || good ? status : an_fail_nomem(err, "the oracle's samples", 0);
}

/* Bytes of a copy (or of zeros, `from` NULL), compared as AN_U8. */
static bool sample_bytes(const an_oracle_memory *to, const an_oracle_memory *from, int arg, an_oracle_samples *out)
{
    const int64_t n = AN_MIN(to->bytes, 1 << 16);
    for (int64_t k = 0; k < n; k++) {
        const int64_t at = spread(k, n, to->bytes);
        if (!an_oracle_expect(out, arg, at, from ? ((const uint8_t *)from->before)[at] : 0)) return false;
    }
    return true;
}

/* Bytes of the updated row, and of rows that must not change. */
static bool sample_row_update(const an_row_update_spec *s, const an_oracle_memory *arg, an_oracle_samples *out)
{
    const int32_t row = *(const int32_t *)arg[0].before;
    const int64_t line = s->inner * s->bytes, all = s->outer * s->rows * line, n = AN_MIN(all, 1 << 14);
    for (int64_t k = 0; k < n; k++) {
        int64_t at = spread(k, n, all), o = at / (s->rows * line), byte = at % line;
        if (k % 2 && row >= 0 && row < s->rows) at = (o * s->rows + row) * line + byte;
        const bool updated = at / line % s->rows == row;
        const uint8_t *from = updated ? (const uint8_t *)arg[1].before + o * s->stride * s->bytes + byte
                                      : (const uint8_t *)arg[2].before + at;
        if (!an_oracle_expect(out, 2, at, *from)) return false;
    }
    return true;
}

/* ---------------------------------------------------------------------------------------------- comparing */

typedef struct limits {
    double allowed; /* relative to |want| + rms */
    double factors; /* relative to the magnitudes of a sum that may cancel: its order, or rounded operands */
    uint8_t dtype[AN_LOOP_ARGS + 16];
} limits;

static void allow_row(limits *l, const an_loop_kernel *p, int first)
{
    int64_t longest = 1;
    bool half = false;
    for (int i = 0; i < p->n_ins; i++) {
        if (p->ins[i].kind == AN_INS_REDUCE) longest = AN_MAX(longest, p->shape == AN_COL ? p->red : p->cols);
        if (p->ins[i].kind == AN_INS_COLSUM) longest = AN_MAX(longest, p->run);
        half |= p->ins[i].dtype == AN_BF16 || p->ins[i].dtype == AN_F16;
    }
    for (int i = 0; i < p->n_args; i++) {
        l->dtype[first + i] = p->arg[i].dtype;
        half |= p->arg[i].written && (p->arg[i].dtype == AN_BF16 || p->arg[i].dtype == AN_F16);
    }
    l->allowed = fmax(l->allowed, (double)FLT_EPSILON * (24 + 4 * sqrt((double)longest)));
    if (half) l->allowed = fmax(l->allowed, 3.0 / 256);
}

static void allow(limits *l, const an_plan *p, const an_plan_step *s, bool tf32)
{
    const an_kernel *k = &p->kernel[s->kernel];
    const double unit = (double)FLT_EPSILON;
    double bf16 = 0;
    memset(l, 0, sizeof *l);
    switch (k->kind) {
    case AN_KERNEL_LOOP: allow_row(l, k->u.loop, 0); break;
    case AN_KERNEL_GEMM:
        l->dtype[2] = k->u.gemm.c_dtype;
        l->allowed = unit * (16 + 4 * sqrt((double)k->u.gemm.k));
        if (k->u.gemm.c_dtype != AN_F32) bf16 = 3.0 / 256;
        if (s->epilogue >= 0) allow_row(l, p->kernel[s->epilogue].u.loop, s->n_gemm_args);
        break;
    case AN_KERNEL_ATTN:
    case AN_KERNEL_ATTN_GRAD:
        for (int i = 0; i < 10; i++) l->dtype[i] = k->u.attn.dtype;
        if (k->kind == AN_KERNEL_ATTN) l->dtype[5] = AN_F32;
        l->allowed = unit * (64 + 8 * sqrt((double)AN_MAX(k->u.attn.S, k->u.attn.T)));
        if (k->u.attn.dtype != AN_F32 || k->u.attn.mul_dtype == AN_BF16)
            bf16 = 6.0 / 256; /* p and ds are rounded too */
        break;
    case AN_KERNEL_SCATTER:
        l->dtype[2] = AN_F32;
        l->allowed = unit * (16 + 4 * sqrt((double)k->u.scatter.n));
        break;
    case AN_KERNEL_CALL:
        for (int i = 0; i < k->u.call.n_out; i++) l->dtype[k->u.call.n_src + i] = k->u.call.out[i].dtype;
        l->allowed = 1e-3;
        break;
    default:
        for (size_t i = 0; i < sizeof l->dtype; i++) l->dtype[i] = AN_U8;
        break;
    }
    const bool attention = k->kind == AN_KERNEL_ATTN || k->kind == AN_KERNEL_ATTN_GRAD;
    const bool multiplies = k->kind == AN_KERNEL_GEMM || attention;
    tf32 |= attention && k->u.attn.mul_dtype == AN_F16;
    if (tf32 && multiplies)
        l->allowed = fmax(l->allowed, 8.0 / 2048); /* errors of the operands, and of attention scores */
    l->factors = !attention ? 4 * unit : tf32 ? 1.0 / 2048 : 0;
    l->allowed = fmax(l->allowed, bf16);
}

static double distance(int dtype, double got, double want, double scale, double allowed)
{
    if (isnan(want)) return isnan(got) || !an_dtype_is_float((an_dtype)dtype) ? 0 : (double)INFINITY;
    if (got == want) return 0;
    if (!an_dtype_is_float((an_dtype)dtype)) return INFINITY;
    const double top = dtype == AN_F16 ? 65504 : (double)FLT_MAX;
    if (isinf(got)) return fabs(want) > 0.99 * top && (got > 0) == (want > 0) ? 0 : (double)INFINITY;
    if (isnan(got) || isinf(want)) return INFINITY;
    return fabs(got - want) / (allowed * (fabs(want) + scale) + 2 * (double)FLT_MIN);
}

static void compare(const limits *l, const an_oracle_memory *arg, int n_args, const an_oracle_samples *e,
                    an_oracle_verdict *out)
{
    for (int a = 0; a < n_args; a++) {
        double squares = 0;
        int64_t n = 0;
        for (int64_t i = 0; i < e->n; i++)
            if (e->arg[i] == a && isfinite(e->want[i])) {
                squares += e->want[i] * e->want[i];
                n++;
            }
        const double rms = n ? sqrt(squares / (double)n) : 0;
        for (int64_t i = 0; i < e->n; i++) {
            if (e->arg[i] != a || !arg[a].after) continue;
            const int64_t size = (int64_t)an_dtype_bytes((an_dtype)l->dtype[a]);
            const bool inside = e->at[i] >= 0 && (e->at[i] + 1) * size <= arg[a].bytes;
            const double got = inside ? an_dtype_load((an_dtype)l->dtype[a], arg[a].after, e->at[i]) : (double)NAN;
            const double scale = rms + l->factors / l->allowed * e->size[i];
            const double d = inside ? distance(l->dtype[a], got, e->want[i], scale, l->allowed) : (double)INFINITY;
            out->elements++;
            if (d > 1 && !out->fault[0])
                snprintf(out->fault, sizeof out->fault,
                         "argument %d, element %lld: %.9g, the oracle says %.9g (allowed difference %.2g)", a,
                         (long long)e->at[i], got, e->want[i], l->allowed * (fabs(e->want[i]) + scale));
            if (d > out->worst) out->worst = d;
        }
    }
}

/* ---------------------------------------------------------------------------------------------- extents and checks */

static int64_t row_extent(const an_loop_kernel *p, int arg)
{
    int64_t last = -1;
    bool random = false;
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        random |= in->kind == AN_INS_RAND && in->arg == arg;
        if ((in->kind != AN_INS_LOAD && in->kind != AN_INS_STORE && in->kind != AN_INS_COLSUM) || in->arg != arg)
            continue;
        const int64_t above = in->a >= 0 && in->kind == AN_INS_LOAD ? (in->clamp - 1) * in->scale : 0;
        last = AN_MAX(last, p->ix.expr[in->ix].hi + above);
    }
    return AN_MAX((last + 1) * (int64_t)an_dtype_bytes((an_dtype)p->arg[arg].dtype), random ? 8 : 0);
}

static int64_t strided_extent(int dtype, int n, const int64_t *count, const int64_t *stride)
{
    int64_t last = 0;
    for (int i = 0; i < n; i++) last += AN_MAX(count[i] - 1, 0) * stride[i];
    return (last + 1) * (int64_t)an_dtype_bytes((an_dtype)dtype);
}

static int64_t gemm_extent(const an_gemm_spec *s, int i)
{
    const int64_t nb[3] = {s->nb[0], s->nb[1], s->nb[2]};
    const int64_t a[5] = {nb[0], nb[1], nb[2], s->m, s->k}, b[5] = {nb[0], nb[1], nb[2], s->k, s->n};
    const int64_t c[5] = {nb[0], nb[1], nb[2], s->m, s->n};
    const int64_t as[5] = {s->a_b[0], s->a_b[1], s->a_b[2], s->a_m, s->a_k};
    const int64_t bs[5] = {s->b_b[0], s->b_b[1], s->b_b[2], s->b_k, s->b_n};
    const int64_t cs[5] = {s->c_b[0], s->c_b[1], s->c_b[2], s->c_m, 1};
    if (i < 2 && s->window.of == (i == 0 ? AN_WINDOW_A : AN_WINDOW_B))
        return 0; /* the argument is the image that the window reads */
    return i == 0   ? strided_extent(s->a_dtype, 5, a, as)
           : i == 1 ? strided_extent(s->b_dtype, 5, b, bs)
                    : strided_extent(s->c_dtype, 5, c, cs);
}

static int64_t attn_extent(const an_attn_spec *s, bool grad, int i)
{
    const int64_t *forward[] = {s->q, s->k, s->v, NULL, s->o},
                  *backward[] = {s->q, s->k, s->v, s->o, NULL, s->do_, NULL, s->dq, s->dk, s->dv};
    const int64_t *strides = grad ? (i < 10 ? backward[i] : NULL) : i < 5 ? forward[i] : NULL;
    const bool keys = i == 1 || i == 2 || (grad && i >= 8);
    if (!strides) return 0;
    const int64_t count[4] = {s->B, s->H, keys ? s->S : s->T, s->D},
                  stride[4] = {strides[0], strides[1], strides[2], 1};
    return strided_extent(s->dtype, 4, count, stride);
}

an_dtype an_oracle_written_dtype(const an_plan *p, const an_plan_step *s, int i)
{
    limits l;
    allow(&l, p, s, false);
    return i < (int)AN_COUNT(l.dtype) ? (an_dtype)l.dtype[i] : AN_U8;
}

int64_t an_oracle_extent(const an_plan *p, const an_plan_step *s, int i)
{
    const an_kernel *k = &p->kernel[s->kernel];
    int64_t bytes = 0;
    if (k->kind == AN_KERNEL_LOOP) bytes = row_extent(k->u.loop, i);
    if (k->kind == AN_KERNEL_GEMM && i < s->n_gemm_args && i < 3) bytes = gemm_extent(&k->u.gemm, i);
    if (s->epilogue >= 0 && i >= s->n_gemm_args) bytes = row_extent(p->kernel[s->epilogue].u.loop, i - s->n_gemm_args);
    if (k->kind == AN_KERNEL_ATTN || k->kind == AN_KERNEL_ATTN_GRAD)
        bytes = attn_extent(&k->u.attn, k->kind == AN_KERNEL_ATTN_GRAD, i);
    if (k->kind == AN_KERNEL_ROW_UPDATE && i == 1)
        bytes = ((k->u.row_update.outer - 1) * k->u.row_update.stride + k->u.row_update.inner) * k->u.row_update.bytes;
    if (k->kind == AN_KERNEL_ROW_UPDATE && i == 2)
        bytes = k->u.row_update.outer * k->u.row_update.rows * k->u.row_update.inner * k->u.row_update.bytes;
    if (k->kind == AN_KERNEL_SCATTER && i == 1)
        bytes = ((k->u.scatter.n - 1) * k->u.scatter.src_stride + k->u.scatter.c) *
                (int64_t)an_dtype_bytes((an_dtype)k->u.scatter.src_dtype);
    if (k->kind == AN_KERNEL_SCATTER && i == 2)
        bytes = ((k->u.scatter.rows - 1) * k->u.scatter.out_stride + k->u.scatter.c) * 4;
    return AN_MAX(bytes, s->arg[i].bytes);
}

static an_status sample(an_err *err, const an_plan *p, const an_plan_step *s, const an_oracle_memory *arg,
                        an_oracle_samples *e, const char **skipped)
{
    const an_kernel *k = &p->kernel[s->kernel];
    gemm pr = {&k->u.gemm, arg};
    bool good = true;
    switch (k->kind) {
    case AN_KERNEL_LOOP: return an_oracle_loop(err, k->u.loop, arg, 0, NULL, NULL, e, skipped);
    case AN_KERNEL_GEMM:
        if (s->epilogue >= 0)
            return an_oracle_loop(err, p->kernel[s->epilogue].u.loop, arg + s->n_gemm_args, s->n_gemm_args, gemm_at,
                                  &pr, e, skipped);
        good = sample_gemm(&pr, e);
        break;
    case AN_KERNEL_ATTN:
    case AN_KERNEL_ATTN_GRAD: good = sample_attention(k, arg, s->n_args, e); break;
    case AN_KERNEL_SCATTER: good = sample_scatter(&k->u.scatter, arg, e); break;
    case AN_KERNEL_CALL:
        if (k->u.call.op == AN_OP_PUT_ROWS)
            good = sample_put_rows(&k->u.call, arg, e);
        else if (an_kernel_is_exchange(k))
            *skipped = "it is an exchange between ranks";
        else if (k->u.call.op == AN_OP_SCATTER_ADD) /* of doubles */
            *skipped = "the oracle does not evaluate it";
        else
            return sample_call(err, &k->u.call, arg, e);
        break;
    case AN_KERNEL_ZERO: good = sample_bytes(&arg[0], NULL, 0, e); break;
    case AN_KERNEL_COPY: good = sample_bytes(&arg[1], &arg[0], 1, e); break;
    case AN_KERNEL_ROW_UPDATE: good = sample_row_update(&k->u.row_update, arg, e); break;
    }
    return good ? AN_OK : an_fail_nomem(err, "the oracle's samples", (size_t)e->cap * 20);
}

an_status an_oracle_check(an_err *err, const an_plan *p, const an_plan_step *s, const an_oracle_memory *arg, bool tf32,
                          an_oracle_verdict *out)
{
    an_oracle_samples e = {0};
    limits l;
    const char *skipped = NULL;
    *out = (an_oracle_verdict){0};
    an_status status = sample(err, p, s, arg, &e, &skipped);
    if (skipped) snprintf(out->skipped, sizeof out->skipped, "%s", skipped);
    if (status == AN_OK) {
        allow(&l, p, s, tf32);
        compare(&l, arg, s->n_args, &e, out);
    }
    if (status == AN_OK && !out->elements && !skipped)
        snprintf(out->skipped, sizeof out->skipped, "it writes no output that the oracle evaluates");
    free(e.at);
    free(e.want);
    free(e.size);
    free(e.arg);
    return status;
}
