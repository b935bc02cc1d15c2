/* library_calls.c: library calls on the CPU other than linear algebra (linalg.c): running sums, sorting and top-k, scattering
 * where the template does not apply. Max pooling's gradient: pool_max_grad.c.
 *
 * Owns:       how a call is divided into units and handed to the pool.
 * Does not:   allocate: scratch is part of the plan.
 * Invariants: floats are summed in double and rounded once when stored (a sequential sum is bound by the latency of the
 *             adder, so the wider type is free); integers wrap. Only scattering into f32 adds in f32, as the template
 *             does: the same bits.
 */
#include "device/cpu/library_calls.h"
#include "base/exact.h"

#include <string.h>

enum {
    TASK = 16384,      /* least number of elements in a task, if there are as many */
    COLUMNS = 64,      /* of a scattering unit */
    INSERTION_RUN = 12 /* sorted by insertion before merging starts */
};

/* ------------------------------------------------------------------------------------------------ elements */

void an_call_load(double *dst, const void *src, int dtype, int64_t at, int64_t n)
{
    switch (dtype) {
    case AN_F64: memcpy(dst, (const double *)src + at, (size_t)n * sizeof *dst); break;
    case AN_BF16:
        for (int64_t i = 0; i < n; i++) dst[i] = an_bf16_to_f32(((const uint16_t *)src)[at + i]);
        break;
    case AN_F16:
        for (int64_t i = 0; i < n; i++) dst[i] = an_f16_to_f32(((const uint16_t *)src)[at + i]);
        break;
    default:
        for (int64_t i = 0; i < n; i++) dst[i] = ((const float *)src)[at + i];
        break;
    }
}

void an_call_store(void *dst, int dtype, int64_t at, const double *src, int64_t n)
{
    switch (dtype) {
    case AN_F64: memcpy((double *)dst + at, src, (size_t)n * sizeof *src); break;
    case AN_BF16:
        for (int64_t i = 0; i < n; i++) ((uint16_t *)dst)[at + i] = (uint16_t)an_f32_to_bf16((float)src[i]);
        break;
    case AN_F16:
        for (int64_t i = 0; i < n; i++) ((uint16_t *)dst)[at + i] = (uint16_t)an_f32_to_f16((float)src[i]);
        break;
    default:
        for (int64_t i = 0; i < n; i++) ((float *)dst)[at + i] = (float)src[i];
        break;
    }
}

/* ------------------------------------------------------------------------------------------------ running sums */

#define PLAIN(x)     (x)
#define FROM_BF16(x) an_bf16_to_f32(x)
#define FROM_F16(x)  an_f16_to_f32(x)
#define TO_F32(x)    (float)(x)
#define TO_BF16(x)   (uint16_t) an_f32_to_bf16((float)(x))
#define TO_F16(x)    (uint16_t) an_f32_to_f16((float)(x))
#define TO_U8(x)     (uint8_t)(x)
#define RUNNING(T, SUM, FROM, TO)                                                                                      \
    {                                                                                                                  \
        const T *x = (const T *)j->arg[0] + u * K;                                                                     \
        T *y = (T *)j->arg[1] + u * K;                                                                                 \
        SUM sum = 0;                                                                                                   \
        for (int64_t k = 0; k < K; k++, at += step) sum += FROM(x[at]), y[at] = TO(sum);                               \
        break;                                                                                                         \
    }

static void cumsum_row(const an_call_job *j, int64_t u, void *scratch)
{
    (void)scratch;
    const int64_t K = an_call_last(&j->s->src[0]), step = j->s->attr[0] ? -1 : 1;
    int64_t at = j->s->attr[0] ? K - 1 : 0;
    switch (j->s->dtype) {
    case AN_F32: RUNNING(float, double, PLAIN, TO_F32)
    case AN_F64: RUNNING(double, double, PLAIN, PLAIN)
    case AN_BF16: RUNNING(uint16_t, double, FROM_BF16, TO_BF16)
    case AN_F16: RUNNING(uint16_t, double, FROM_F16, TO_F16)
    case AN_I64: RUNNING(uint64_t, uint64_t, PLAIN, PLAIN)
    case AN_U8: RUNNING(uint8_t, uint32_t, PLAIN, TO_U8)
    default: RUNNING(uint32_t, uint32_t, PLAIN, PLAIN)
    }
}

/* ------------------------------------------------------------------------------------------------ sorting */

/* Elements become unsigned keys in the wanted order. Ties are broken by position, so any sort by (key, place) is stable. */
typedef struct entry {
    uint64_t key;
    int32_t place;
} entry;

static bool before(const entry *a, const entry *b)
{
    return a->key != b->key ? a->key < b->key : a->place < b->place;
}

static const uint64_t sign64 = (uint64_t)1 << 63;

/* A key that orders doubles: the bits, made ascending. Zeros of both signs are equal. Every stored float is exactly a
 * double. */
static uint64_t float_key(double x, bool descending)
{
    uint64_t u;
    if (x != x) return descending ? 0 : UINT64_MAX; /* NaN is the greatest, as in PyTorch */
    x += 0.0;                                       /* -0 + 0 is +0 */
    memcpy(&u, &x, sizeof u);
    u = u & sign64 ? ~u : u | sign64;
    return descending ? ~u : u;
}

static uint64_t integer_key(int64_t x, bool descending)
{
    uint64_t u = (uint64_t)x ^ sign64;
    return descending ? ~u : u;
}

static uint64_t key_at(const void *x, int dtype, int64_t at, bool descending)
{
    switch (dtype) {
    case AN_F32: return float_key(((const float *)x)[at], descending);
    case AN_F64: return float_key(((const double *)x)[at], descending);
    case AN_BF16: return float_key(an_bf16_to_f32(((const uint16_t *)x)[at]), descending);
    case AN_F16: return float_key(an_f16_to_f32(((const uint16_t *)x)[at]), descending);
    case AN_I64: return integer_key(((const int64_t *)x)[at], descending);
    case AN_U8: return integer_key(((const uint8_t *)x)[at], descending);
    default: return integer_key(((const int32_t *)x)[at], descending);
    }
}

/* Restores the heap below `at`; the entry that sorts last is at the top. */
static void sift(entry *h, int64_t n, int64_t at)
{
    const entry x = h[at];
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && before(&h[child], &h[child + 1])) child++;
        if (!before(&x, &h[child])) break;
        h[at] = h[child];
    }
    h[at] = x;
}

/* The first k entries of a row of n, unsorted: keeps a heap of the best so far. */
static void select_first(const an_call_job *j, int64_t row, int64_t n, int64_t k, bool descending, entry *e)
{
    const void *x = j->arg[0];
    for (int64_t i = 0; i < k; i++) e[i] = (entry){key_at(x, j->s->src[0].dtype, row * n + i, descending), (int32_t)i};
    if (k == n) return;
    for (int64_t i = k / 2 - 1; i >= 0; i--) sift(e, k, i);
    for (int64_t i = k; i < n; i++) {
        const entry c = {key_at(x, j->s->src[0].dtype, row * n + i, descending), (int32_t)i};
        if (!before(&c, &e[0])) continue;
        e[0] = c;
        sift(e, k, 0);
    }
}

static void merge(const entry *a, const entry *a_end, const entry *b, const entry *b_end, entry *out)
{
    while (a < a_end && b < b_end) *out++ = before(b, a) ? *b++ : *a++;
    while (a < a_end) *out++ = *a++;
    while (b < b_end) *out++ = *b++;
}

/* Merge sort that starts from short runs sorted by insertion; returns the array with the result: `e` or `other`. */
static const entry *sort_entries(entry *e, entry *other, int64_t n)
{
    for (int64_t lo = 0; lo < n; lo += INSERTION_RUN)
        for (int64_t i = lo + 1; i < AN_MIN(lo + INSERTION_RUN, n); i++) {
            const entry x = e[i];
            int64_t at = i;
            for (; at > lo && before(&x, &e[at - 1]); at--) e[at] = e[at - 1];
            e[at] = x;
        }
    for (int64_t width = INSERTION_RUN; width < n; width *= 2) {
        for (int64_t lo = 0; lo < n; lo += 2 * width) {
            const int64_t mid = AN_MIN(lo + width, n), end = AN_MIN(lo + 2 * width, n);
            merge(e + lo, e + mid, e + mid, e + end, other + lo);
        }
        entry *t = e;
        e = other;
        other = t;
    }
    return e;
}

static void sort_row(const an_call_job *j, int64_t u, void *scratch)
{
    const an_library_call_spec *s = j->s;
    const int64_t n = an_call_last(&s->src[0]), k = an_call_last(&s->out[0]);
    const bool descending = s->op == AN_OP_TOPK || s->attr[0] != 0;
    const size_t size = an_dtype_bytes((an_dtype)s->dtype);
    entry *e = scratch;
    select_first(j, u, n, k, descending, e);
    const entry *sorted = sort_entries(e, e + k, k);
    const char *x = (const char *)j->arg[0] + (size_t)(u * n) * size;
    char *y = (char *)j->arg[1] + (size_t)(u * k) * size;
    int32_t *places = (int32_t *)j->arg[2] + u * k;
    for (int64_t i = 0; i < k; i++) {
        memcpy(y + (size_t)i * size, x + (size_t)sorted[i].place * size,
               size); /* copies the bits: -0 and NaN payloads survive */
        places[i] = sorted[i].place;
    }
}

/* ------------------------------------------------------------------------------------------------ scattering */

/* A block of columns of out [rows,c]: zeroed, then rows of src [n,c] added in order; ids outside are skipped. */
static void scatter_columns(const an_call_job *j, int64_t u, void *scratch)
{
    (void)scratch;
    const an_call_tensor *src = &j->s->src[1], *out = &j->s->out[0];
    const int64_t n = an_call_outer(&j->s->src[0], 0), rows = out->shape[0],
                  c = an_call_outer(out, 0) / AN_MAX(rows, 1);
    const int64_t from = u * COLUMNS, m = AN_MIN(COLUMNS, c - from);
    const int32_t *index = j->arg[0];
    double row[COLUMNS];
    const size_t size = an_dtype_bytes((an_dtype)out->dtype);
    char *to = j->arg[j->s->n_src];
    for (int64_t r = 0; r < rows; r++) {
        const size_t at = (size_t)(r * c + from) * size;
        if (j->s->n_src > 2)
            memcpy(to + at, (const char *)j->arg[2] + at, (size_t)m * size);
        else
            memset(to + at, 0, (size_t)m * size);
    }
    for (int64_t i = 0; i < n; i++) {
        if (index[i] < 0 || index[i] >= rows) continue;
        const int64_t at = index[i] * c + from;
        an_call_load(row, j->arg[1], src->dtype, i * c + from, m);
        if (out->dtype == AN_F64)
            for (int64_t k = 0; k < m; k++) ((double *)(void *)to)[at + k] += row[k];
        else
            for (int64_t k = 0; k < m; k++) ((float *)(void *)to)[at + k] += (float)row[k];
    }
}

/* Row u of src[1] into the table, unless a later id is the same: then that row is the one that counts. */
static void put_row(const an_call_job *j, int64_t u, void *scratch)
{
    (void)scratch;
    const an_call_tensor *rows = &j->s->src[1];
    const int32_t *index = j->arg[0];
    const int64_t n = rows->shape[0];
    if (index[u] < 0 || index[u] >= j->s->out[0].shape[0]) return;
    for (int64_t later = u + 1; later < n; later++)
        if (index[later] == index[u]) return;
    const size_t row = (size_t)(an_call_outer(rows, 0) / n) * an_dtype_bytes((an_dtype)rows->dtype);
    memcpy((char *)j->arg[2] + row * (size_t)index[u], (const char *)j->arg[1] + row * (size_t)u, row);
}

/* ------------------------------------------------------------------------------------------------ running */

static bool describe(an_call_job *j)
{
    const an_library_call_spec *s = j->s;
    const an_call_tensor *x = &s->src[0];
    switch (s->op) {
    case AN_OP_CUMSUM:
        j->weight = an_call_last(x);
        j->units = j->weight ? an_call_outer(x, 1) : 0;
        j->unit = cumsum_row;
        return true;
    case AN_OP_SORT:
    case AN_OP_TOPK:
        j->weight = an_call_last(x);
        j->units = j->weight ? an_call_outer(x, 1) : 0;
        j->scratch_bytes = 2 * (size_t)an_call_last(&s->out[0]) * sizeof(entry);
        j->unit = sort_row;
        return true;
    case AN_OP_PUT_ROWS:
        j->units = s->src[1].shape[0];
        j->weight = an_call_outer(&s->src[1], 0) / AN_MAX(j->units, 1) + j->units;
        j->unit = put_row;
        return true;
    case AN_OP_SCATTER_ADD:
        j->units = s->out[0].shape[0] ? an_ceil_div(an_call_outer(&s->out[0], 0) / s->out[0].shape[0], COLUMNS) : 0;
        j->weight = TASK;
        j->unit = scatter_columns;
        return true;
    case AN_OP_DRAW: an_call_draw(j); return true;
    case AN_OP_GROUPED_MATMUL:
    case AN_OP_GROUPED_OUTER: an_call_grouped(j); return true;
    case AN_OP_POOL_MAX_GRAD: an_call_pool_max_grad(j); return true;
    default: return an_call_matrix(j);
    }
}

static size_t a_thread(const an_call_job *j)
{
    return (size_t)an_round_up((int64_t)j->scratch_bytes, 64);
}

size_t an_call_scratch(const an_library_call_spec *s, const an_cpu_kernels *kernels, int threads)
{
    an_call_job j = {.s = s, .kernels = kernels};
    return describe(&j) ? a_thread(&j) * (size_t)threads : 0;
}

typedef struct run {
    an_call_job j;
    char *scratch;
    int64_t units_a_task;
} run;

static void run_task(void *arg, int64_t task, int thread)
{
    const run *r = arg;
    const int64_t first = task * r->units_a_task, end = AN_MIN(first + r->units_a_task, r->j.units);
    char *scratch = r->j.scratch_bytes ? r->scratch + a_thread(&r->j) * (size_t)thread : NULL;
    for (int64_t u = first; u < end; u++) r->j.unit(&r->j, u, scratch);
}

an_status an_call_run(an_err *err, const an_library_call_spec *s, void *const *arg, void *scratch,
                      const an_cpu_kernels *kernels, an_pool *pool)
{
    run r = {.j = {.s = s, .arg = arg, .kernels = kernels}, .scratch = scratch};
    if (!describe(&r.j))
        return an_fail(err, AN_E_UNSUPPORTED, "cpu: %s has no kernel on this device", an_ops[s->op].name);
    r.units_a_task = AN_MAX(1, TASK / AN_MAX(r.j.weight, 1));
    an_pool_run(pool, an_ceil_div(r.j.units, r.units_a_task), run_task, &r);
    return AN_OK;
}
