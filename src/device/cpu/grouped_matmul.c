/* grouped_matmul.c: products by groups of rows (a mixture of experts: an_grouped_matmul, an_grouped_outer) on the CPU.
 *
 * Owns:       how they are divided: blocks of one group's rows by blocks of columns, each a GEMM of one thread. Where groups begin and end
 *             is data, so there are as many units as there may be blocks, and those beyond the last have nothing to do.
 * Does not:   multiply (kernels/cpu/gemm.c; float64 is plain loops here).
 * Invariant:  an element is a sum of the GEMM over ascending k (rows of the group, ascending): the bits depend neither on the division nor
 *             on the threads. Ends are taken as they must be: ascending, in [0, S]. */
#include "device/cpu/library_calls.h"

#include <string.h>

enum { ROWS = 256, COLUMNS = 512, HEAVY = 1 << 20 /* elements: each unit is a task */ };

/* The extents of a call: S rows in E groups; M (the first operand's columns) and N. */
typedef struct extents {
    int64_t S, E, M, N;
    bool outer;
} extents;

static extents extents_of(const an_library_call_spec *s)
{
    const an_call_tensor *y = &s->out[0];
    return (extents){.S = s->src[0].shape[0],
                     .E = s->src[2].shape[0],
                     .M = s->src[0].shape[1],
                     .N = y->shape[y->rank - 1],
                     .outer = s->op == AN_OP_GROUPED_OUTER};
}

static int64_t end_of(const int32_t *ends, int64_t e, int64_t begin, int64_t S)
{
    return AN_MIN(AN_MAX(ends[e], begin), S);
}

/* The product of one unit, but for its extents. */
static an_gemm_spec product_of(const an_library_call_spec *s, const extents *x)
{
    const int64_t *at = s->attr; /* strides */
    an_gemm_spec g = {.nb = {1, 1, 1},
                      .c_m = x->N,
                      .a_dtype = s->dtype,
                      .b_dtype = s->dtype,
                      .c_dtype = s->dtype,
                      .mul_dtype = s->dtype == AN_BF16 ? AN_BF16 : AN_F32};
    if (x->outer)
        g.a_m = at[1], g.a_k = at[0], g.b_k = at[2], g.b_n = at[3];
    else
        g.a_m = at[0], g.a_k = at[1], g.b_k = at[3], g.b_n = at[4];
    return g;
}

static void multiply_doubles(const an_gemm_spec *g, const double *a, const double *b, double *c)
{
    for (int64_t i = 0; i < g->m; i++, a += g->a_m, c += g->c_m) {
        memset(c, 0, sizeof *c * (size_t)g->n);
        for (int64_t k = 0; k < g->k; k++)
            for (int64_t n = 0; n < g->n; n++) c[n] += a[k * g->a_k] * b[k * g->b_k + n * g->b_n];
    }
}

/* The scratch was sized before the groups were known; a product that wants more is made in parts of fewer rows. */
static void multiply(const an_call_job *j, an_gemm_spec g, const char *a, const char *b, char *c, void *scratch)
{
    const int64_t item = (int64_t)an_dtype_bytes((an_dtype)j->s->dtype);
    if (j->s->dtype == AN_F64) {
        multiply_doubles(&g, (const double *)(const void *)a, (const double *)(const void *)b, (double *)(void *)c);
        return;
    }
    const int32_t all = g.m;
    while (g.m > 1 && j->kernels->gemm_scratch(&g, 1) > j->scratch_bytes) g.m = (g.m + 1) / 2;
    const int32_t most = g.m;
    for (int32_t first = 0; first < all; first += most) {
        g.m = AN_MIN(most, all - first);
        void *args[3] = {(void *)(uintptr_t)(a + first * g.a_m * item), (void *)(uintptr_t)b, c + first * g.c_m * item};
        j->kernels->gemm(&g, args, scratch, NULL, NULL);
    }
}

/* Rows [c0, c0 + n) of zeros of the result's columns. */
static void clear(char *c, int64_t rows, int64_t columns, int64_t row, int64_t item)
{
    for (int64_t i = 0; i < rows; i++) memset(c + i * row * item, 0, (size_t)(columns * item));
}

/* Unit u of y = x w: a block of rows of a group, or behind the last one, by a block of columns. */
static void rows_unit(const an_call_job *j, int64_t u, void *scratch)
{
    const extents x = extents_of(j->s);
    const int64_t item = (int64_t)an_dtype_bytes((an_dtype)j->s->dtype), across = an_ceil_div(x.N, COLUMNS);
    const int64_t column = u % across * COLUMNS, columns = AN_MIN(COLUMNS, x.N - column);
    const int32_t *ends = j->arg[2];
    int64_t block = u / across, begin = 0;
    for (int64_t e = 0; e <= x.E; e++) {
        const int64_t end = e < x.E ? end_of(ends, e, begin, x.S) : x.S, blocks = an_ceil_div(end - begin, ROWS);
        if (block < blocks) {
            const int64_t row = begin + block * ROWS, rows = AN_MIN(ROWS, end - row);
            const char *a = (const char *)j->arg[0] + row * j->s->attr[0] * item;
            const char *b = (const char *)j->arg[1] + (e * j->s->attr[2] + column * j->s->attr[4]) * item;
            char *c = (char *)j->arg[3] + (row * x.N + column) * item;
            an_gemm_spec g = product_of(j->s, &x);
            g.m = (int32_t)rows, g.n = (int32_t)columns, g.k = (int32_t)x.M;
            if (e < x.E)
                multiply(j, g, a, b, c, scratch);
            else
                clear(c, rows, columns, x.N, item);
            return;
        }
        block -= blocks;
        begin = end;
    }
}

/* Unit u of y = a^T b: a block of the matrix of one group. */
static void outer_unit(const an_call_job *j, int64_t u, void *scratch)
{
    const extents x = extents_of(j->s);
    const int64_t item = (int64_t)an_dtype_bytes((an_dtype)j->s->dtype), across = an_ceil_div(x.N, COLUMNS);
    const int64_t down = an_ceil_div(x.M, ROWS), e = u / across / down;
    const int64_t column = u % across * COLUMNS, columns = AN_MIN(COLUMNS, x.N - column);
    const int64_t row = u / across % down * ROWS, rows = AN_MIN(ROWS, x.M - row);
    const int32_t *ends = j->arg[2];
    int64_t begin = 0;
    for (int64_t i = 0; i < e; i++) begin = end_of(ends, i, begin, x.S);
    const int64_t end = end_of(ends, e, begin, x.S);
    const char *a = (const char *)j->arg[0] + (begin * j->s->attr[0] + row * j->s->attr[1]) * item;
    const char *b = (const char *)j->arg[1] + (begin * j->s->attr[2] + column * j->s->attr[3]) * item;
    char *c = (char *)j->arg[3] + ((e * x.M + row) * x.N + column) * item;
    an_gemm_spec g = product_of(j->s, &x);
    g.m = (int32_t)rows, g.n = (int32_t)columns, g.k = (int32_t)(end - begin);
    if (g.k > 0)
        multiply(j, g, a, b, c, scratch);
    else
        clear(c, rows, columns, x.N, item);
}

/* Of any product of a unit of so many rows and a depth of so much: the depths are those at which a GEMM's blocks of k are largest. */
static size_t scratch_of(const an_call_job *j, const extents *x)
{
    static const int32_t depths[] = {16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048};
    an_gemm_spec g = product_of(j->s, x);
    size_t most = 0;
    for (int part = 0; part < 2; part++) {
        g.n = (int32_t)(part ? x->N % COLUMNS : AN_MIN(x->N, COLUMNS));
        for (int32_t rows = 1; g.n && rows <= ROWS; rows *= 2) {
            g.m = rows;
            g.k = (int32_t)(x->outer ? x->S : x->M);
            most = AN_MAX(most, j->kernels->gemm_scratch(&g, 1));
            for (size_t i = 0; x->outer && i < AN_COUNT(depths); i++) {
                g.k = (int32_t)AN_MIN(depths[i], x->S);
                most = AN_MAX(most, j->kernels->gemm_scratch(&g, 1));
            }
        }
    }
    return most;
}

void an_call_grouped(an_call_job *j)
{
    const extents x = extents_of(j->s);
    const int64_t across = an_ceil_div(x.N, COLUMNS), blocks = an_ceil_div(x.S, ROWS) + x.E;
    j->units = across * (x.outer ? x.E * an_ceil_div(x.M, ROWS) : blocks);
    j->unit = x.outer ? outer_unit : rows_unit;
    j->weight = HEAVY;
    if (j->s->dtype != AN_F64) j->scratch_bytes = scratch_of(j, &x);
}
