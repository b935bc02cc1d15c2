/* interpreter.c: runs loop kernels without a compiler (the fallback: a note says so, compile.c). Each instruction is a loop over a strip of columns:
 *
 *     for each row:  for each strip of STRIP columns:  for each instruction:  for each column of the strip: compute
 *
 * The arithmetic comes from the expressions of ops.def and the functions of base/exact.h, as in rendered kernels, so the
 * bits are equal.
 *
 * Registers: each instruction has one strip of 8-byte cells. A value with one element a row fills its whole strip, so
 * that all operands are read the same way.
 */
#include "base/exact.h"
#include "device/cpu/cpu_internal.h"
#include "kernels/dialect/loops_c.h"

#include <string.h>

enum { STRIP = 64, CELL = 8, LANES = 32 };

typedef struct machine {
    const an_loop_kernel *p;
    const an_tile *t;
    void *const *arg;
    char *reg, *acc;         /* [n_ins][STRIP] cells; lanes of reductions: [n_ins][LANES or lanes*STRIP] cells */
    float *sums;             /* [column sums][AN_RUN_LANES][cols], in the order of the instructions */
    int64_t vars[AN_N_VARS]; /* of the strip's first column */
    int n;                   /* columns in this strip */
} machine;

static size_t acc_cells(const an_loop_kernel *p)
{
    return p->shape == AN_COL ? (size_t)p->lanes * STRIP * 2 : LANES * 2;
}

static int count(const an_loop_kernel *p, an_ins_kind kind)
{
    int n = 0;
    for (int i = 0; i < p->n_ins; i++) n += p->ins[i].kind == kind;
    return n;
}

/* Registers and lanes, then the partial column sums. */
static size_t fixed_bytes(const an_loop_kernel *p)
{
    const size_t lanes = count(p, AN_INS_REDUCE) ? (size_t)p->n_ins * acc_cells(p) : 0;
    return ((size_t)p->n_ins * STRIP + lanes) * CELL;
}

static size_t sum_floats(const an_loop_kernel *p)
{
    return (size_t)count(p, AN_INS_COLSUM) * AN_RUN_LANES * (size_t)p->cols;
}

size_t an_interp_scratch(const an_loop_kernel *p)
{
    return fixed_bytes(p) + sum_floats(p) * sizeof(float) + 64;
}

static void *reg(const machine *m, int i)
{
    return m->reg + (size_t)AN_MAX(i, 0) * STRIP * CELL;
}
static void *acc(const machine *m, int i)
{
    return m->acc + (size_t)i * acc_cells(m->p) * CELL;
}

typedef enum kind { K_F32, K_F64, K_I32, K_I64 } kind; /* the type that a dtype is computed in */
static kind kind_of(int dtype)
{
    return dtype == AN_F64                                          ? K_F64
           : dtype == AN_I64                                        ? K_I64
           : dtype == AN_F32 || dtype == AN_BF16 || dtype == AN_F16 ? K_F32
                                                                    : K_I32;
}

/* ---------------------------------------------------------------------------------------------- indices */

/* Index of column j of the strip. */
static int64_t index_at(const machine *m, an_ix ix, int j)
{
    int64_t vars[AN_N_VARS] = {m->vars[0], m->vars[1] + j, m->vars[2]};
    return an_ix_eval(&m->p->ix, ix, vars);
}

static bool guard_at(const machine *m, int32_t guard, int j)
{
    if (guard < 0) return true;
    const an_guard *g = &m->p->guard[guard];
    for (int i = 0; i < g->n; i++) {
        int64_t e = index_at(m, g->bound[i].e, j);
        if (e < g->bound[i].lo || e >= g->bound[i].hi) return false;
    }
    return true;
}

/* ---------------------------------------------------------------------------------------------- memory */

static void load_one(int dtype, const void *src, int64_t at, void *dst, int j)
{
    switch (dtype) {
    case AN_F32: ((float *)dst)[j] = ((const float *)src)[at]; break;
    case AN_BF16: ((float *)dst)[j] = an_bf16_to_f32(((const uint16_t *)src)[at]); break;
    case AN_F16: ((float *)dst)[j] = an_f16_to_f32(((const uint16_t *)src)[at]); break;
    case AN_F64: ((double *)dst)[j] = ((const double *)src)[at]; break;
    case AN_I32: ((int32_t *)dst)[j] = ((const int32_t *)src)[at]; break;
    case AN_I64: ((int64_t *)dst)[j] = ((const int64_t *)src)[at]; break;
    default: ((int32_t *)dst)[j] = ((const uint8_t *)src)[at]; break;
    }
}

static void load(machine *m, const an_ins *in, int i)
{
    int dtype = m->p->arg[in->arg].dtype;
    const void *src = m->arg[in->arg];
    void *dst = reg(m, i);
    int64_t stride;
    if (in->guard < 0 && in->a < 0 && dtype == AN_F32 && an_ix_stride(&m->p->ix, in->ix, AN_VAR_COL, &stride) &&
        stride == 1) {
        memcpy(dst, (const float *)src + index_at(m, in->ix, 0), sizeof(float) * (size_t)m->n);
        return;
    }
    for (int j = 0; j < m->n; j++) {
        if (!guard_at(m, in->guard, j)) {
            memset((char *)dst + (size_t)j * (kind_of(dtype) == K_F64 || kind_of(dtype) == K_I64 ? 8 : 4), 0,
                   kind_of(dtype) == K_F64 || kind_of(dtype) == K_I64 ? 8 : 4);
            continue;
        }
        int64_t at = index_at(m, in->ix, j);
        if (in->a >= 0) {
            int64_t which =
                m->p->ins[in->a].dtype == AN_I64 ? ((int64_t *)reg(m, in->a))[j] : ((int32_t *)reg(m, in->a))[j];
            at += an_clamp(which, in->clamp) * in->scale;
        }
        load_one(dtype, src, at, dst, j);
    }
}

static void store(machine *m, const an_ins *in)
{
    int dtype = m->p->arg[in->arg].dtype;
    void *dst = m->arg[in->arg];
    const void *src = reg(m, in->a);
    for (int j = 0; j < m->n; j++) {
        int64_t at = index_at(m, in->ix, j);
        switch (dtype) {
        case AN_F32: ((float *)dst)[at] = ((const float *)src)[j]; break;
        case AN_BF16: ((uint16_t *)dst)[at] = (uint16_t)an_f32_to_bf16(((const float *)src)[j]); break;
        case AN_F16: ((uint16_t *)dst)[at] = (uint16_t)an_f32_to_f16(((const float *)src)[j]); break;
        case AN_F64: ((double *)dst)[at] = ((const double *)src)[j]; break;
        case AN_I32: ((int32_t *)dst)[at] = ((const int32_t *)src)[j]; break;
        case AN_I64: ((int64_t *)dst)[at] = ((const int64_t *)src)[j]; break;
        case AN_U8: ((uint8_t *)dst)[at] = (uint8_t)((const int32_t *)src)[j]; break;
        default: ((uint8_t *)dst)[at] = ((const int32_t *)src)[j] != 0; break;
        }
    }
}

/* ---------------------------------------------------------------------------------------------- arithmetic */

/* clang-format off */
#define EACH for (int j = 0; j < n; j++)
#define RUN(T, R, expr)                                                                                                                      \
    {                                                                                                                                        \
        const T *A = ra, *B = rb, *C = rc;                                                                                                   \
        R *Y = ry;                                                                                                                           \
        EACH                                                                                                                                 \
        {                                                                                                                                    \
            const T a = A[j], b = B[j], c = C[j];                                                                                            \
            (void)a, (void)b, (void)c;                                                                                                       \
            Y[j] = (R)(expr);                                                                                                                \
        }                                                                                                                                    \
    }                                                                                                                                        \
    break;
#define RUN_SAME(T, expr)     RUN(T, T, expr)
#define RUN_BOOL(T, expr)     RUN(T, int32_t, expr)
#define FLOATS(how, expr)     case K_F32: how(float, expr) case K_F64: how(double, expr)
#define INTS(how, expr)       case K_I32: how(int32_t, expr) case K_I64: how(int64_t, expr)
#define ON_AN_DOM_FLOAT(how, expr)  FLOATS(how, expr) default: break;
#define ON_AN_DOM_NUMBER(how, expr) FLOATS(how, expr) INTS(how, expr)
#define ON_AN_DOM_INT(how, expr)    INTS(how, expr) default: break;
#define ON_AN_DOM_BITS(how, expr)   INTS(how, expr) default: break;
#define ON_AN_DOM_BOOL(how, expr)   case K_I32: how(int32_t, expr) default: break;
#define ON_AN_DOM_ANY(how, expr)    FLOATS(how, expr) INTS(how, expr)
#define HOW_AN_RES_SAME RUN_SAME
#define HOW_AN_RES_BOOL RUN_BOOL
/* clang-format on */

/* WHERE: the only op whose first operand has another type than its result. */
static void where(const machine *m, const an_ins *in, void *ry, int n)
{
    const int32_t *a = reg(m, in->a);
    const void *rb = reg(m, in->b), *rc = reg(m, in->c);
    switch (kind_of(in->dtype)) {
    case K_F32: EACH((float *)ry)[j] = a[j] ? ((const float *)rb)[j] : ((const float *)rc)[j]; break;
    case K_F64: EACH((double *)ry)[j] = a[j] ? ((const double *)rb)[j] : ((const double *)rc)[j]; break;
    case K_I32: EACH((int32_t *)ry)[j] = a[j] ? ((const int32_t *)rb)[j] : ((const int32_t *)rc)[j]; break;
    case K_I64: EACH((int64_t *)ry)[j] = a[j] ? ((const int64_t *)rb)[j] : ((const int64_t *)rc)[j]; break;
    }
}

/* Integer sums and products wrap. */
static bool wrapping(const machine *m, const an_ins *in, void *ry, int n)
{
    const void *ra = reg(m, in->a), *rb = reg(m, in->b);
    if (in->op != AN_OP_ADD && in->op != AN_OP_SUB && in->op != AN_OP_MUL && in->op != AN_OP_NEG) return false;
    if (kind_of(in->dtype) == K_I32) {
        const uint32_t *a = ra, *b = rb;
        uint32_t *y = ry;
        EACH y[j] = in->op == AN_OP_ADD   ? a[j] + b[j]
                    : in->op == AN_OP_SUB ? a[j] - b[j]
                    : in->op == AN_OP_MUL ? a[j] * b[j]
                                          : 0u - a[j];
    } else if (kind_of(in->dtype) == K_I64) {
        const uint64_t *a = ra, *b = rb;
        uint64_t *y = ry;
        EACH y[j] = in->op == AN_OP_ADD   ? a[j] + b[j]
                    : in->op == AN_OP_SUB ? a[j] - b[j]
                    : in->op == AN_OP_MUL ? a[j] * b[j]
                                          : 0u - a[j];
    } else {
        return false;
    }
    return true;
}

static void round_to(int dtype, void *ry, int n)
{
    float *f = ry;
    int32_t *i = ry;
    if (dtype == AN_BF16) EACH f[j] = an_to_bf16(f[j]);
    if (dtype == AN_F16) EACH f[j] = an_to_f16(f[j]);
    if (dtype == AN_U8) EACH i[j] = (uint8_t)i[j];
}

static void elementwise(const machine *m, const an_ins *in, int i)
{
    void *ry = reg(m, i);
    const void *ra = reg(m, in->a), *rb = reg(m, in->b), *rc = reg(m, in->c);
    int n = m->n;
    if (in->op == AN_OP_WHERE) {
        where(m, in, ry, n);
        return;
    }
    if (!wrapping(m, in, ry, n)) {
        kind k = kind_of(m->p->ins[in->a].dtype);
        switch (in->op) {
#define AN_ELEM(NAME, arity, domain, result, kernel, reference, ga, gb, gc)                                            \
    case AN_OP_##NAME:                                                                                                 \
        switch (k) {                                                                                                   \
            ON_##domain(HOW_##result, kernel)                                                                          \
        }                                                                                                              \
        break;
#include "graph/ops.def"
        default: break;
        }
    }
    round_to(in->dtype, ry, n);
}

/* clang-format off */
#define CONVERT(FROM, TO, expr)                                                                                                              \
    EACH                                                                                                                                     \
    {                                                                                                                                        \
        const FROM x = ((const FROM *)src)[j];                                                                                               \
        ((TO *)dst)[j] = (TO)(expr);                                                                                                         \
    }                                                                                                                                        \
    break;
#define CAST_FROM(FROM, real)                                                                                                                \
    switch (to) {                                                                                                                            \
    case AN_F64: CONVERT(FROM, double, x)                                                                                                    \
    case AN_I64: CONVERT(FROM, int64_t, (real) ? an_f_to_i64((double)x) : (int64_t)x)                                                        \
    case AN_I32: CONVERT(FROM, int32_t, (real) ? an_f_to_i32((double)x) : (int32_t)x)                                                        \
    case AN_U8: CONVERT(FROM, int32_t, (real) ? an_f_to_u8((double)x) : (uint8_t)x)                                                          \
    case AN_BOOL: CONVERT(FROM, int32_t, x != 0)                                                                                             \
    default: CONVERT(FROM, float, x)                                                                                                         \
    }                                                                                                                                        \
    break;

/* clang-format on */
static void cast(const machine *m, const an_ins *in, int i)
{
    const void *src = reg(m, in->a);
    void *dst = reg(m, i);
    int to = in->dtype, n = m->n;
    switch (kind_of(m->p->ins[in->a].dtype)) {
    case K_F32: CAST_FROM(float, 1)
    case K_F64: CAST_FROM(double, 1)
    case K_I32: CAST_FROM(int32_t, 0)
    case K_I64: CAST_FROM(int64_t, 0)
    }
    round_to(to, dst, n);
}

static void constant(const machine *m, const an_ins *in, int i)
{
    void *dst = reg(m, i);
    int n = m->n;
    switch (kind_of(in->dtype)) {
    case K_F32: EACH((float *)dst)[j] = (float)in->imm; break;
    case K_F64: EACH((double *)dst)[j] = in->imm; break;
    case K_I32: EACH((int32_t *)dst)[j] = (int32_t)in->imm_i; break;
    case K_I64: EACH((int64_t *)dst)[j] = in->imm_i; break;
    }
}

static void random_words(const machine *m, const an_ins *in, int i)
{
    float *dst = reg(m, i);
    for (int j = 0; j < m->n; j++)
        dst[j] =
            an_uniform_at(m->arg[in->arg], (uint32_t)in->imm_i, (uint64_t)index_at(m, in->ix, j), (uint64_t)in->scale);
}

static void tile(const machine *m, const an_ins *in, int i)
{
    memcpy(reg(m, i), m->t->acc + (m->vars[AN_VAR_ROW] - m->t->row0) * m->t->ld + (m->vars[AN_VAR_COL] - m->t->col0),
           sizeof(float) * (size_t)m->n);
    round_to(in->dtype, reg(m, i), m->n);
}

static void run(machine *m, int i)
{
    const an_ins *in = &m->p->ins[i];
    switch (in->kind) {
    case AN_INS_CONST: constant(m, in, i); break;
    case AN_INS_INDEX:
        for (int j = 0; j < m->n; j++) ((int32_t *)reg(m, i))[j] = (int32_t)index_at(m, in->ix, j);
        break;
    case AN_INS_TEST:
        for (int j = 0; j < m->n; j++) ((int32_t *)reg(m, i))[j] = guard_at(m, in->guard, j);
        break;
    case AN_INS_LOAD: load(m, in, i); break;
    case AN_INS_TILE: tile(m, in, i); break;
    case AN_INS_RAND: random_words(m, in, i); break;
    case AN_INS_ELEM: elementwise(m, in, i); break;
    case AN_INS_CAST: cast(m, in, i); break;
    case AN_INS_STORE: store(m, in); break;
    default: break;
    }
}

/* ---------------------------------------------------------------------------------------------- reductions */

/* The initial value of a lane, in the type that the reduction is computed in. */
static void clear_lanes(const machine *m, int i)
{
    const an_ins *in = &m->p->ins[i];
    void *a = acc(m, i);
    int lanes = m->p->shape == AN_COL ? m->p->lanes * STRIP : LANES;
    memset(a, 0, acc_cells(m->p) * CELL);
    if (in->op == AN_OP_ARGMAX) { /* positions, -1 for none, behind the values */
        int32_t *q = (int32_t *)((char *)a + acc_cells(m->p) / 2 * CELL);
        for (int j = 0; j < lanes; j++) q[j] = -1;
    }
    if (in->op != AN_OP_MAX) return;
    for (int j = 0; j < lanes; j++) switch (in->dtype) {
        case AN_F64: ((double *)a)[j] = -INFINITY; break;
        case AN_I64: ((int64_t *)a)[j] = INT64_MIN; break;
        case AN_I32: ((int32_t *)a)[j] = INT32_MIN; break;
        case AN_U8:
        case AN_BOOL: break;
        default: ((float *)a)[j] = -INFINITY; break;
        }
}

#define MERGE(T, x, y) (op == AN_OP_MAX ? an_max((T)(x), (T)(y)) : (T)((x) + (y)))
/* lane[to + i] accumulates v[from + i], for k elements. */
static void merge(an_op op, int dtype, void *lane, int64_t to, const void *v, int64_t from, int k)
{
    for (int j = 0; j < k; j++) switch (kind_of(dtype)) {
        case K_F32:
            ((float *)lane)[to + j] = MERGE(float, ((float *)lane)[to + j], ((const float *)v)[from + j]);
            break;
        case K_F64:
            ((double *)lane)[to + j] = MERGE(double, ((double *)lane)[to + j], ((const double *)v)[from + j]);
            break;
        case K_I32:
            if (op == AN_OP_MAX)
                ((int32_t *)lane)[to + j] = an_max_i32(((int32_t *)lane)[to + j], ((const int32_t *)v)[from + j]);
            else
                ((uint32_t *)lane)[to + j] += ((const uint32_t *)v)[from + j];
            break;
        case K_I64:
            if (op == AN_OP_MAX)
                ((int64_t *)lane)[to + j] = an_max_i64(((int64_t *)lane)[to + j], ((const int64_t *)v)[from + j]);
            else
                ((uint64_t *)lane)[to + j] += ((const uint64_t *)v)[from + j];
            break;
        }
}

/* clang-format off */
#define ARGMAX_STEP(T, is_nan)                                                                                                               \
    {                                                                                                                                        \
        T x = ((const T *)v)[from], *best = (T *)lane + to;                                                                                  \
        if (q[to] < 0 || x > *best || (is_nan)) *best = x, q[to] = (int32_t)place;                                                            \
    }                                                                                                                                        \
    break;
/* clang-format on */
static void argmax_step(const machine *m, int i, int64_t to, int64_t from, int64_t place)
{
    const an_ins *in = &m->p->ins[i];
    void *lane = acc(m, i);
    int32_t *q = (int32_t *)((char *)lane + acc_cells(m->p) / 2 * CELL);
    const void *v = reg(m, in->a);
    switch (kind_of(m->p->ins[in->a].dtype)) {
    case K_F32: ARGMAX_STEP(float, x != x && *best == *best)
    case K_F64: ARGMAX_STEP(double, x != x && *best == *best)
    case K_I32: ARGMAX_STEP(int32_t, false)
    case K_I64: ARGMAX_STEP(int64_t, false)
    }
}

static void fill_strip(const machine *m, int i)
{
    char *r = reg(m, i);
    size_t cell = kind_of(m->p->ins[i].dtype) == K_F64 || kind_of(m->p->ins[i].dtype) == K_I64 ? 8 : 4;
    for (int j = 1; j < STRIP; j++) memcpy(r + (size_t)j * cell, r, cell);
}

static void end_row_reduction(const machine *m, int i)
{
    const an_ins *in = &m->p->ins[i];
    void *lane = acc(m, i);
    if (in->op == AN_OP_ARGMAX) {
        memcpy(reg(m, i), (char *)lane + acc_cells(m->p) / 2 * CELL, 4);
    } else {
        for (int s = LANES / 2; s; s >>= 1) merge((an_op)in->op, in->dtype, lane, 0, lane, s, s);
        memcpy(reg(m, i), lane, CELL);
        round_to(in->dtype, reg(m, i), 1);
    }
    fill_strip(m, i);
}

/* ---------------------------------------------------------------------------------------------- column sums */

/* Adds the strip of every column sum of a phase to the lane of this row. */
static void add_to_sums(const machine *m, int phase)
{
    const an_loop_kernel *p = m->p;
    float *lane = m->sums + m->vars[AN_VAR_ROW] % p->run % AN_RUN_LANES * p->cols + m->vars[AN_VAR_COL];
    for (int i = 0; i < p->n_ins; i++) {
        if (p->ins[i].kind != AN_INS_COLSUM) continue;
        const float *v = reg(m, p->ins[i].a);
        for (int j = 0; j < m->n && p->ins[i].phase == phase; j++) lane[j] += v[j];
        lane += AN_RUN_LANES * p->cols;
    }
}

/* At the end of a run of rows: folds the lanes and stores the sums. */
static void end_run(const machine *m)
{
    const an_loop_kernel *p = m->p;
    float *sum = m->sums;
    for (int i = 0; i < p->n_ins; i++) {
        if (p->ins[i].kind != AN_INS_COLSUM) continue;
        for (int64_t c = 0; c < p->cols; c++) {
            const int64_t vars[AN_N_VARS] = {m->vars[AN_VAR_ROW], c, 0};
            for (int s = AN_RUN_LANES / 2; s; s >>= 1)
                for (int l = 0; l < s; l++) sum[l * p->cols + c] += sum[(l + s) * p->cols + c];
            ((float *)m->arg[p->ins[i].arg])[an_ix_eval(&p->ix, p->ins[i].ix, vars)] = sum[c];
        }
        sum += AN_RUN_LANES * p->cols;
    }
    memset(m->sums, 0, sum_floats(p) * sizeof(float));
}

/* ---------------------------------------------------------------------------------------------- kernels */

static void row_columns(machine *m, int phase, int first, int last, bool reduces)
{
    int64_t from = reduces ? 0 : m->t->col0, to = reduces ? m->p->cols : m->t->col1;
    for (int64_t c = from; c < to; c += STRIP) {
        m->vars[AN_VAR_COL] = c;
        m->n = (int)AN_MIN(STRIP, to - c);
        for (int i = first; i < last; i++)
            if (m->p->ins[i].scope == AN_SCOPE_COL && m->p->ins[i].kind != AN_INS_REDUCE) run(m, i);
        if (m->p->run) add_to_sums(m, phase);
        for (int i = first; i < last; i++) {
            const an_ins *in = &m->p->ins[i];
            if (in->kind != AN_INS_REDUCE || in->phase != phase) continue;
            if (in->op == AN_OP_ARGMAX)
                for (int j = 0; j < m->n; j++) argmax_step(m, i, 0, j, c + j);
            else
                for (int j = 0; j < m->n; j += LANES)
                    merge((an_op)in->op, in->dtype, acc(m, i), 0, reg(m, in->a), j, AN_MIN(LANES, m->n - j));
        }
    }
}

static void run_row(machine *m)
{
    const an_loop_kernel *p = m->p;
    int i = 0;
    for (int phase = 0; phase < p->n_phases; phase++) {
        int first = i;
        bool columns = false, reduces = false;
        m->n = 1;
        m->vars[AN_VAR_COL] = m->t->col0;
        for (; i < p->n_ins && p->ins[i].phase == phase; i++) {
            columns |= p->ins[i].scope == AN_SCOPE_COL;
            reduces |= p->ins[i].kind == AN_INS_REDUCE;
            if (p->ins[i].kind == AN_INS_REDUCE)
                clear_lanes(m, i);
            else if (p->ins[i].scope == AN_SCOPE_ROW) {
                m->n = p->ins[i].kind == AN_INS_STORE ? 1 : STRIP;
                run(m, i);
            }
        }
        if (columns || reduces) row_columns(m, phase, first, i, reduces);
        for (int k = first; k < i; k++)
            if (p->ins[k].kind == AN_INS_REDUCE) end_row_reduction(m, k);
    }
}

static void run_col(machine *m)
{
    const an_loop_kernel *p = m->p;
    int red = 0;
    while (p->ins[red].kind != AN_INS_REDUCE) red++;
    const an_ins *in = &p->ins[red];
    for (int64_t c = m->t->col0; c < m->t->col1; c += STRIP) {
        m->vars[AN_VAR_COL] = c;
        m->n = (int)AN_MIN(STRIP, m->t->col1 - c);
        clear_lanes(m, red);
        for (int64_t q = 0; q < p->red; q++) {
            m->vars[AN_VAR_RED] = q;
            for (int i = 0; i < p->n_ins && p->ins[i].phase == 0; i++)
                if (i != red) run(m, i);
            if (in->op == AN_OP_ARGMAX)
                for (int j = 0; j < m->n; j++) argmax_step(m, red, j, j, q);
            else
                merge((an_op)in->op, in->dtype, acc(m, red), q % p->lanes * STRIP, reg(m, in->a), 0, m->n);
        }
        if (in->op == AN_OP_ARGMAX) {
            memcpy(reg(m, red), (char *)acc(m, red) + acc_cells(p) / 2 * CELL, 4 * (size_t)m->n);
        } else {
            for (int s = p->lanes / 2; s; s >>= 1)
                for (int l = 0; l < s; l++)
                    merge((an_op)in->op, in->dtype, acc(m, red), l * STRIP, acc(m, red), (l + s) * STRIP, m->n);
            memcpy(reg(m, red), acc(m, red), CELL * (size_t)m->n);
            round_to(in->dtype, reg(m, red), m->n);
        }
        for (int i = 0; i < p->n_ins; i++)
            if (p->ins[i].phase > 0) run(m, i);
    }
}

void an_interp_run(const an_loop_kernel *p, const an_tile *t, void *const *arg, void *scratch)
{
    machine m = {.p = p, .t = t, .arg = arg, .reg = scratch, .acc = (char *)scratch + (size_t)p->n_ins * STRIP * CELL};
    m.sums = (float *)((char *)scratch + fixed_bytes(p));
    if (p->run) memset(m.sums, 0, sum_floats(p) * sizeof(float));
    for (int64_t r = t->row0; r < t->row1; r++) {
        m.vars[AN_VAR_ROW] = r;
        if (p->shape == AN_COL) {
            run_col(&m);
        } else if (p->shape == AN_ROW) {
            run_row(&m);
            if (p->run && (r + 1) % p->run == 0) end_run(&m);
        } else {
            for (int64_t c = t->col0; c < t->col1; c += STRIP) {
                m.vars[AN_VAR_COL] = c;
                m.n = (int)AN_MIN(STRIP, t->col1 - c);
                for (int i = 0; i < p->n_ins; i++) run(&m, i);
            }
        }
    }
}
