/* linalg.c: matrix factorisations and linear systems on the CPU; a unit of work is one matrix of the batch.
 *
 * Owns:       the algorithms, and their results for singular or otherwise invalid matrices.
 * Does not:   block for caches or divide one matrix among threads: only the batch is parallel.
 * Invariants: a matrix of any dtype is copied to double, factorised there, and rounded once at the end. Sums have a fixed
 *             order, and only + - * / and square roots are used: the same bits everywhere. Loops end for any input, NaN
 *             included.
 *
 * Golub and Van Loan, "Matrix Computations", 4th ed.: 3.4 (LU), 5.1 (Householder), 8.5 (Jacobi), 8.6.3 (one-sided).
 */
#include "device/cpu/library_calls.h"

#include <math.h>
#include <string.h>

enum { SWEEPS = 40 }; /* Jacobi needs about ten; it ends with the first sweep without a rotation */

/* Vectors with a smaller cosine count as orthogonal: half a unit in the last place of double. */
static const double right_angle = 0x1p-53;

/* ------------------------------------------------------------------------------------------------ helpers */

static double dot(const double *x, const double *y, int64_t n)
{
    double lane[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++) lane[l] += x[i + l] * y[i + l];
    for (int l = 0; i < n; i++, l++) lane[l] += x[i] * y[i];
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static void add_scaled(double *restrict y, double f, const double *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] += f * x[i];
}

static void scale(double *x, double f, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] *= f;
}

static void rotate(double *restrict x, double *restrict y, double c, double s, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double a = x[i], b = y[i];
        x[i] = c * a - s * b;
        y[i] = s * a + c * b;
    }
}

static void swap_vectors(double *x, double *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double t = x[i];
        x[i] = y[i];
        y[i] = t;
    }
}

static void identity(double *x, int64_t n)
{
    memset(x, 0, (size_t)(n * n) * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i * n + i] = 1;
}

/* out [n,m] = x [m,n] transposed */
static void transpose(double *restrict out, const double *restrict x, int64_t m, int64_t n)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t k = 0; k < n; k++) out[k * m + i] = x[i * n + k];
}

/* Divides by the power of two that brings the largest element to [1/2, 1), so that squares neither overflow nor vanish;
 * exact. Returns that power. */
static double normalize(double *x, int64_t n)
{
    double top = 0;
    int e;
    for (int64_t i = 0; i < n; i++) top = fabs(x[i]) > top ? fabs(x[i]) : top;
    if (top == 0 || !(top <= 0x1.fffffffffffffp1023)) return 1;
    frexp(top, &e);
    e = AN_MAX(-1000, AN_MIN(1000, e)); /* both powers are normal numbers */
    scale(x, ldexp(1, -e), n);
    return ldexp(1, e);
}

/* (a + a^T) / 2 in place: autograd's symmetric gradients are the derivative of this. */
static void symmetrize(double *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < i; k++) a[i * n + k] = a[k * n + i] = 0.5 * a[i * n + k] + 0.5 * a[k * n + i];
}

/* ------------------------------------------------------------------------------------------------ algorithms */

/* Cholesky: a [n,n] becomes its lower factor. A pivot that is not positive becomes NaN, and so do all that depend on it. */
static void cholesky(double *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double *ai = a + i * n;
        for (int64_t k = 0; k < i; k++) ai[k] = (ai[k] - dot(ai, a + k * n, k)) / a[k * n + k];
        const double rest = ai[i] - dot(ai, ai, i);
        ai[i] = rest > 0 ? sqrt(rest) : (double)NAN;
        for (int64_t k = i + 1; k < n; k++) ai[k] = 0;
    }
}

/* The Householder reflector I - f v v^T that maps x [n] to (r, 0, ..., 0); v overwrites x. Returns f; 0 when x is already
 * (r, 0, ..., 0). */
static double reflector(double *x, int64_t n, double *r)
{
    const double tail = dot(x + 1, x + 1, n - 1), norm = sqrt(x[0] * x[0] + tail);
    *r = x[0];
    if (tail == 0) return 0;
    *r = x[0] > 0 ? -norm : norm;
    x[0] -= *r; /* no cancellation: opposite signs */
    return -1 / (*r * x[0]);
}

/* QR: the columns of a [n][m] (each contiguous) become those of q; r [n,n]. f [n] holds the factors of the reflectors. */
static void qr(double *a, double *q, double *r, double *f, int64_t m, int64_t n)
{
    memset(r, 0, (size_t)(n * n) * sizeof *r);
    memset(q, 0, (size_t)(m * n) * sizeof *q);
    for (int64_t j = 0; j < n; j++) {
        double *v = a + j * m + j;
        f[j] = reflector(v, m - j, &r[j * n + j]);
        for (int64_t k = j + 1; k < n; k++) {
            double *x = a + k * m + j;
            if (f[j] != 0) add_scaled(x, -f[j] * dot(v, x, m - j), v, m - j);
            r[j * n + k] = x[0];
        }
    }
    for (int64_t j = n - 1; j >= 0; j--) { /* backwards: columns before j are still unit vectors */
        const double *v = a + j * m + j;
        q[j * m + j] = 1;
        for (int64_t k = j; k < n && f[j] != 0; k++) {
            double *x = q + k * m + j;
            add_scaled(x, -f[j] * dot(v, x, m - j), v, m - j);
        }
    }
    for (int64_t j = 0; j < n; j++) {
        if (!(r[j * n + j] < 0)) continue;
        scale(r + j * n + j, -1, n - j);
        scale(q + j * m, -1, m);
    }
}

/* c and s of the rotation that makes [[a, off], [off, b]] diagonal. Returns t = s / c. */
static double jacobi(double a, double b, double off, double *c, double *s)
{
    const double theta = (b - a) / (2 * off), t = copysign(1, theta) / (fabs(theta) + sqrt(1 + theta * theta));
    *c = 1 / sqrt(1 + t * t);
    *s = *c * t;
    return t;
}

/* Symmetric eigenproblem by Jacobi: a [n,n] becomes diagonal, the rows of v [n,n] the eigenvectors. */
static void eigh(double *a, double *v, int64_t n)
{
    bool rotated = true;
    identity(v, n);
    for (int sweep = 0; sweep < SWEEPS && rotated; sweep++) {
        rotated = false;
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) {
                const double off = a[p * n + q], app = a[p * n + p], aqq = a[q * n + q];
                double c, s;
                if (off == 0) continue;
                if (fabs(off) <= right_angle * 0x1p-10 * AN_MIN(fabs(app), fabs(aqq)) || fabs(off) < 0x1p-900) {
                    a[p * n + q] = a[q * n + p] = 0;
                    continue;
                }
                rotated = true;
                const double t = jacobi(app, aqq, off, &c, &s);
                rotate(a + p * n, a + q * n, c, s, n);
                for (int64_t i = 0; i < n; i++) { /* symmetric: columns are the rows */
                    a[i * n + p] = a[p * n + i];
                    a[i * n + q] = a[q * n + i];
                }
                a[p * n + p] = app - t * off;
                a[q * n + q] = aqq + t * off;
                a[p * n + q] = a[q * n + p] = 0;
                rotate(v + p * n, v + q * n, c, s, n);
            }
    }
}

/* SVD by one-sided Jacobi: the columns of u [n][m], contiguous, become orthogonal; v [n][n] collects the rotations. */
static void orthogonalize(double *u, double *v, int64_t m, int64_t n)
{
    bool rotated = true;
    identity(v, n);
    for (int sweep = 0; sweep < SWEEPS && rotated; sweep++) {
        rotated = false;
        for (int64_t p = 0; p < n; p++)
            for (int64_t q = p + 1; q < n; q++) {
                double *x = u + p * m, *y = u + q * m, c, s;
                const double a = dot(x, x, m), b = dot(y, y, m), off = dot(x, y, m);
                if (!(fabs(off) > right_angle * sqrt(a) * sqrt(b)) || fabs(off) < 0x1p-1000) continue;
                rotated = true;
                jacobi(a, b, off, &c, &s);
                rotate(x, y, c, s, m);
                rotate(v + p * n, v + q * n, c, s, n);
            }
    }
}

/* Insertion sort of w with the vectors x [n][m] and y [n][k] that belong to it (y may be NULL). */
static void sort_vectors(double *w, bool descending, int64_t n, double *x, int64_t m, double *y, int64_t k)
{
    for (int64_t i = 1; i < n; i++)
        for (int64_t at = i; at > 0 && (descending ? w[at] > w[at - 1] : w[at] < w[at - 1]); at--) {
            swap_vectors(w + at, w + at - 1, 1);
            swap_vectors(x + at * m, x + (at - 1) * m, m);
            if (y) swap_vectors(y + at * k, y + (at - 1) * k, k);
        }
}

/* Solves a x = b by LU with pivoting: x [n,m] holds b, then the solution; a [n,n] is overwritten. A singular matrix gives
 * infinities and NaN. */
static void solve(double *a, double *x, int64_t n, int64_t m)
{
    for (int64_t p = 0; p < n; p++) {
        int64_t best = p;
        for (int64_t i = p + 1; i < n; i++)
            if (fabs(a[i * n + p]) > fabs(a[best * n + p])) best = i;
        if (best != p) {
            swap_vectors(a + p * n, a + best * n, n);
            swap_vectors(x + p * m, x + best * m, m);
        }
        for (int64_t i = p + 1; i < n; i++) {
            const double f = -a[i * n + p] / a[p * n + p];
            add_scaled(a + i * n + p, f, a + p * n + p, n - p);
            add_scaled(x + i * m, f, x + p * m, m);
        }
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        for (int64_t k = i + 1; k < n; k++) add_scaled(x + i * m, -a[i * n + k], x + k * m, m);
        for (int64_t k = 0; k < m; k++) x[i * m + k] /= a[i * n + i];
    }
}

/* Solves a triangular system: x [n,m] holds b, then the solution; only the triangle of t [n,n] is read. */
static void trisolve(const double *t, double *x, int64_t n, int64_t m, bool upper, bool transposed)
{
    const bool from_end = upper != transposed;
    for (int64_t step = 0; step < n; step++) {
        const int64_t i = from_end ? n - 1 - step : step;
        for (int64_t k = from_end ? i + 1 : 0; k < (from_end ? n : i); k++)
            add_scaled(x + i * m, -(transposed ? t[k * n + i] : t[i * n + k]), x + k * m, m);
        for (int64_t k = 0; k < m; k++) x[i * m + k] /= t[i * n + i];
    }
}

/* ------------------------------------------------------------------------------------------------ units */

typedef struct matrix {
    int64_t m, n;
} matrix;

static matrix shape_of(const an_call_tensor *t)
{
    return (matrix){t->shape[t->rank - 2], t->shape[t->rank - 1]};
}

static void load(const an_call_job *j, int src, int64_t u, double *out)
{
    const matrix s = shape_of(&j->s->src[src]);
    an_call_load(out, j->arg[src], j->s->dtype, u * s.m * s.n, s.m * s.n);
}

static void store(const an_call_job *j, int out, int64_t u, const double *x, int64_t numel)
{
    an_call_store(j->arg[j->s->n_src + out], j->s->dtype, u * numel, x, numel);
}

static void cholesky_unit(const an_call_job *j, int64_t u, void *scratch)
{
    const int64_t n = shape_of(&j->s->src[0]).n;
    double *a = scratch;
    load(j, 0, u, a);
    symmetrize(a, n);
    cholesky(a, n);
    store(j, 0, u, a, n * n);
}

static void qr_unit(const an_call_job *j, int64_t u, void *scratch)
{
    const matrix s = shape_of(&j->s->src[0]);
    const int64_t m = s.m, n = s.n;
    double *q = scratch, *a = q + m * n, *r = a + m * n, *f = r + n * n;
    load(j, 0, u, q);
    const double power = normalize(q, m * n);
    transpose(a, q, m, n);
    qr(a, q, r, f, m, n);
    transpose(a, q, n, m);
    scale(r, power, n * n);
    store(j, 0, u, a, m * n);
    store(j, 1, u, r, n * n);
}

static void eigh_unit(const an_call_job *j, int64_t u, void *scratch)
{
    const int64_t n = shape_of(&j->s->src[0]).n;
    double *a = scratch, *v = a + n * n, *w = v + n * n;
    load(j, 0, u, a);
    symmetrize(a, n);
    const double power = normalize(a, n * n);
    eigh(a, v, n);
    for (int64_t i = 0; i < n; i++) w[i] = a[i * n + i] * power;
    sort_vectors(w, false, n, v, n, NULL, 0);
    transpose(a, v, n, n);
    store(j, 0, u, w, n);
    store(j, 1, u, a, n * n);
}

static void svd_unit(const an_call_job *j, int64_t u, void *scratch)
{
    const matrix s = shape_of(&j->s->src[0]);
    const int64_t m = s.m, n = s.n;
    double *a = scratch, *x = a + m * n, *v = x + m * n, *w = v + n * n;
    load(j, 0, u, a);
    const double power = normalize(a, m * n);
    transpose(x, a, m, n);
    orthogonalize(x, v, m, n);
    for (int64_t k = 0; k < n; k++) { /* the left vector of a zero singular value is zero */
        w[k] = sqrt(dot(x + k * m, x + k * m, m));
        if (w[k] > 0) scale(x + k * m, 1 / w[k], m);
        w[k] *= power;
    }
    sort_vectors(w, true, n, x, m, v, n);
    transpose(a, x, n, m);
    store(j, 0, u, a, m * n);
    store(j, 1, u, w, n);
    transpose(a, v, n, n); /* n <= m: it fits */
    store(j, 2, u, a, n * n);
}

static void solve_unit(const an_call_job *j, int64_t u, void *scratch)
{
    const matrix s = shape_of(&j->s->src[1]);
    double *a = scratch, *x = a + s.m * s.m;
    load(j, 0, u, a);
    load(j, 1, u, x);
    if (j->s->op == AN_OP_SOLVE)
        solve(a, x, s.m, s.n);
    else
        trisolve(a, x, s.m, s.n, j->s->attr[0] != 0, j->s->attr[1] != 0);
    store(j, 0, u, x, s.m * s.n);
}

bool an_call_matrix(an_call_job *j)
{
    const an_library_call_spec *s = j->s;
    const bool solves = s->op == AN_OP_SOLVE || s->op == AN_OP_TRISOLVE;
    if (s->src[0].rank < 2) return false;
    const matrix a = shape_of(&s->src[solves]); /* [m,n], of b where there is one */
    int64_t doubles;
    switch (s->op) {
    case AN_OP_CHOLESKY: doubles = a.n * a.n, j->unit = cholesky_unit; break;
    case AN_OP_QR: doubles = 2 * a.m * a.n + a.n * a.n + a.n, j->unit = qr_unit; break;
    case AN_OP_EIGH: doubles = 2 * a.n * a.n + a.n, j->unit = eigh_unit; break;
    case AN_OP_SVD: doubles = 2 * a.m * a.n + a.n * a.n + a.n, j->unit = svd_unit; break;
    case AN_OP_SOLVE:
    case AN_OP_TRISOLVE: doubles = a.m * (a.m + a.n), j->unit = solve_unit; break;
    default: return false;
    }
    j->scratch_bytes = (size_t)doubles * sizeof(double);
    j->weight = AN_MAX(1, AN_MIN(a.m, a.n)) * doubles; /* cubic */
    j->units = a.m > 0 && a.n > 0 ? an_call_outer(&s->src[0], 2) : 0;
    return true;
}
