/* loop_oracle.c: loop kernels evaluated in double, one instruction and one element at a time, with the reference
 * expressions of ops.def instead of the kernels' functions.
 *
 * Owns:     which rows and columns are sampled; loads of values that the kernel itself has stored.
 * Does not: follow the accumulation order of a kernel's sums, or round f32; the comparison allows for both, and is told how large the terms of a
 *           sum were, because they may cancel (the gradient of a bias in front of a batch norm is 0 in exact numbers).
 */
#include "base/map.h"
#include "base/rng.h"
#include "oracle/oracle.h"
#include "oracle/kernel_oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUDGET = 4000000,
    LONGEST = 400000000
}; /* instructions: of all samples; of a row that must be evaluated in full */

typedef union cell { /* double for floats, int64_t for integers and bools */
    double d;
    int64_t i;
} cell;

typedef struct machine { /* evaluates the program of one loop kernel */
    const an_loop_kernel *p;
    const an_oracle_memory *arg;
    int first_arg;
    an_oracle_tile_fn tile;
    void *user;
    an_oracle_samples *out;
    an_map stored;            /* (arg, element) → bits of what this program stored there in this row */
    cell *reg;                /* [n_ins] */
    cell *sum;                /* [n_ins] of reductions */
    int64_t *best;            /* [n_ins] position of the maximum, -1 */
    double *colsum;           /* [n_ins][cols] column sums, in the order of the instructions */
    double *terms, *colterms; /* of sum and of colsum: the sum of the terms' magnitudes */
    double *cancel; /* [n_ins] of a value: the terms' magnitudes of the sums in it, which may have cancelled */
    int64_t vars[AN_N_VARS];
    bool no_memory;
} machine;

static bool is_float(int dtype)
{
    return an_dtype_is_float((an_dtype)dtype);
}

static bool guard_holds(const machine *m, int32_t guard)
{
    if (guard < 0) return true;
    const an_guard *g = &m->p->guard[guard];
    for (int i = 0; i < g->n; i++) {
        const int64_t e = an_ix_eval(&m->p->ix, g->bound[i].e, m->vars);
        if (e < g->bound[i].lo || e >= g->bound[i].hi) return false;
    }
    return true;
}

/* ---------------------------------------------------------------------------------------------- memory */

static uint64_t place_key(int arg, int64_t at)
{
    return (uint64_t)at * AN_LOOP_ARGS + (uint64_t)arg;
}

/* Loads an element; one that an earlier phase stored in this row is read from `stored`. */
static cell load_at(machine *m, int arg, int64_t at)
{
    const int dtype = m->p->arg[arg].dtype;
    const int64_t size = (int64_t)an_dtype_bytes((an_dtype)dtype);
    cell x;
    uint64_t bits;
    if (m->p->arg[arg].written && an_map_get(&m->stored, place_key(arg, at), &bits)) {
        memcpy(&x, &bits, sizeof x);
        return x;
    }
    const bool inside = m->arg[arg].before && at >= 0 && (at + 1) * size <= m->arg[arg].bytes;
    const double v = inside ? an_dtype_load((an_dtype)dtype, m->arg[arg].before, at) : (double)NAN;
    if (is_float(dtype))
        x.d = v;
    else if (dtype == AN_I64)
        x.i = inside ? ((const int64_t *)m->arg[arg].before)[at] : 0;
    else
        x.i = inside ? (int64_t)v : 0;
    return x;
}

static cell load(machine *m, const an_ins *in)
{
    cell zero = {.i = 0};
    if (is_float(in->dtype)) zero.d = 0;
    if (!guard_holds(m, in->guard)) return zero;
    int64_t at = an_ix_eval(&m->p->ix, in->ix, m->vars);
    if (in->a >= 0) {
        const int64_t which = m->reg[in->a].i;
        at += (which < 0 ? 0 : which >= in->clamp ? in->clamp - 1 : which) * in->scale;
    }
    return load_at(m, in->arg, at);
}

static void expect(machine *m, int arg, int64_t at, double want, double terms)
{
    m->no_memory |= !an_oracle_expect(m->out, m->first_arg + arg, at, want);
    if (!m->no_memory) m->out->size[m->out->n - 1] = terms;
}

static void store(machine *m, const an_ins *in)
{
    const int dtype = m->p->arg[in->arg].dtype;
    const int64_t at = an_ix_eval(&m->p->ix, in->ix, m->vars);
    const an_oracle_options plain = {0};
    cell x = m->reg[in->a];
    uint64_t bits;
    if (is_float(dtype)) x.d = an_oracle_round(&plain, (an_dtype)dtype, x.d);
    memcpy(&bits, &x, sizeof bits);
    m->no_memory |= !an_map_set(&m->stored, place_key(in->arg, at), bits);
    const double want = is_float(dtype) ? x.d : (double)an_oracle_round_int((an_dtype)dtype, x.i);
    expect(m, in->arg, at, want, m->cancel[in->a]);
}

static cell uniform(const machine *m, const an_ins *in)
{
    const uint32_t *words = m->arg[in->arg].before; /* key, number of sample 0 */
    const uint64_t at = (uint64_t)an_ix_eval(&m->p->ix, in->ix, m->vars) + (uint64_t)in->scale * words[1];
    return (cell){.d = (double)an_rng_uniform(words[0], (uint32_t)in->imm_i, at)};
}

/* ---------------------------------------------------------------------------------------------- instructions */

static cell elementwise(const machine *m, const an_ins *in)
{
    const cell a = m->reg[in->a], b = m->reg[AN_MAX(in->b, 0)], c = m->reg[AN_MAX(in->c, 0)];
    if (in->op == AN_OP_WHERE) return a.i ? b : c;
    const bool floats = is_float(m->p->ins[in->b >= 0 ? in->b : in->a].dtype);
    if (!floats) return (cell){.i = an_oracle_elem_int(in->op, a.i, in->b >= 0 ? b.i : 0, 0)};
    const double y = an_oracle_elem(in->op, a.d, in->b >= 0 ? b.d : 0, 0);
    return is_float(in->dtype) ? (cell){.d = y} : (cell){.i = y != 0};
}

static cell cast(const machine *m, const an_ins *in)
{
    const cell a = m->reg[in->a];
    const bool from = is_float(m->p->ins[in->a].dtype), to = is_float(in->dtype);
    if (from && !to) return (cell){.i = an_oracle_to_int((an_dtype)in->dtype, a.d)};
    return !from && to ? (cell){.d = (double)a.i} : a;
}

/* What of the sums in its operands an instruction's value has. */
static double cancel_of(const machine *m, const an_ins *in)
{
    if (in->kind != AN_INS_ELEM && in->kind != AN_INS_CAST) return 0;
    const double a = m->cancel[in->a], b = m->cancel[AN_MAX(in->b, 0)], c = m->cancel[AN_MAX(in->c, 0)];
    if (in->kind == AN_INS_CAST) return a;
    const double x = m->reg[in->a].d, y = m->reg[AN_MAX(in->b, 0)].d;
    switch (in->op) {
    case AN_OP_NEG: return a;
    case AN_OP_ADD:
    case AN_OP_SUB: return a + b;
    case AN_OP_MUL: return (a > 0 ? a * fabs(y) : 0) + (b > 0 ? b * fabs(x) : 0);
    case AN_OP_DIV: return a > 0 ? a / fabs(y) : 0;
    case AN_OP_WHERE: return m->reg[in->a].i ? b : c;
    default: return 0;
    }
}

static void run(machine *m, int i)
{
    const an_ins *in = &m->p->ins[i];
    const an_oracle_options plain = {0};
    cell x = {.i = 0};
    switch (in->kind) {
    case AN_INS_CONST:
        if (is_float(in->dtype))
            x.d = in->dtype == AN_F64 ? in->imm : (double)(float)in->imm;
        else
            x.i = in->imm_i;
        break;
    case AN_INS_INDEX: x.i = an_ix_eval(&m->p->ix, in->ix, m->vars); break;
    case AN_INS_TEST: x.i = guard_holds(m, in->guard); break;
    case AN_INS_LOAD: x = load(m, in); break;
    case AN_INS_TILE: x.d = m->tile(m->user, m->vars[AN_VAR_ROW], m->vars[AN_VAR_COL]); break;
    case AN_INS_RAND: x = uniform(m, in); break;
    case AN_INS_ELEM: x = elementwise(m, in); break;
    case AN_INS_CAST: x = cast(m, in); break;
    case AN_INS_STORE: store(m, in); return;
    default: return; /* reductions have loops of their own */
    }
    if (is_float(in->dtype))
        x.d = an_oracle_round(&plain, (an_dtype)in->dtype, x.d);
    else
        x.i = an_oracle_round_int((an_dtype)in->dtype, x.i);
    m->reg[i] = x;
    m->cancel[i] = cancel_of(m, in);
}

static void begin_reduction(machine *m, int i)
{
    m->terms[i] = m->cancel[i] = 0;
    m->sum[i] = is_float(m->p->ins[i].dtype) && m->p->ins[i].op != AN_OP_ARGMAX ? (cell){.d = 0} : (cell){.i = 0};
    m->best[i] = -1;
}

/* Adds element `place` to a reduction. NaN is larger than every number. */
static void reduce(machine *m, int i, int64_t place)
{
    const an_ins *in = &m->p->ins[i];
    const bool floats = is_float(m->p->ins[in->a].dtype);
    const cell x = m->reg[in->a];
    if (in->op == AN_OP_SUM) {
        if (floats)
            m->sum[i].d += x.d, m->terms[i] += fabs(x.d) + m->cancel[in->a];
        else
            m->sum[i].i = (int64_t)((uint64_t)m->sum[i].i + (uint64_t)x.i);
        return;
    }
    const cell top = m->sum[i]; /* of MAX and ARGMAX: the largest so far */
    const bool above = m->best[i] < 0 || (floats ? x.d > top.d || (isnan(x.d) && !isnan(top.d)) : x.i > top.i);
    if (!above) return;
    m->sum[i] = x;
    m->best[i] = place;
}

static void end_reduction(machine *m, int i)
{
    const an_ins *in = &m->p->ins[i];
    const an_oracle_options plain = {0};
    cell x = m->sum[i];
    if (in->op == AN_OP_ARGMAX)
        x.i = m->best[i];
    else if (is_float(in->dtype))
        x.d = an_oracle_round(&plain, (an_dtype)in->dtype, x.d);
    else
        x.i = an_oracle_round_int((an_dtype)in->dtype, x.i);
    m->reg[i] = x;
    m->cancel[i] = m->terms[i];
}

/* ---------------------------------------------------------------------------------------------- samples */

/* Sample k of n out of [0, size): the first, the last, and others spread without a period. */
static int64_t spread(int64_t k, int64_t n, int64_t size)
{
    if (n >= size) return k;
    if (k == 0) return 0;
    if (k == 1) return size - 1;
    return (int64_t)(an_hash_u64((uint64_t)k, 77) % (uint64_t)size);
}

static bool reduces(const an_loop_kernel *p)
{
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].kind == AN_INS_REDUCE) return true;
    return p->n_phases > 1 || p->run;
}

/* Adds the values at one column to the column sums of a phase. */
static void add_to_sums(machine *m, int phase)
{
    const an_loop_kernel *p = m->p;
    int64_t at = m->vars[AN_VAR_COL];
    for (int i = 0; i < p->n_ins; i++) {
        if (p->ins[i].kind != AN_INS_COLSUM) continue;
        const int32_t a = p->ins[i].a;
        if (p->ins[i].phase == phase) m->colsum[at] += m->reg[a].d, m->colterms[at] += fabs(m->reg[a].d) + m->cancel[a];
        at += p->cols;
    }
}

/* Records the column sums after the last row of a run. */
static void end_run(machine *m)
{
    const an_loop_kernel *p = m->p;
    int64_t sum = 0;
    for (int i = 0; i < p->n_ins; i++) {
        if (p->ins[i].kind != AN_INS_COLSUM) continue;
        for (m->vars[AN_VAR_COL] = 0; m->vars[AN_VAR_COL] < p->cols; m->vars[AN_VAR_COL]++, sum++)
            expect(m, p->ins[i].arg, an_ix_eval(&p->ix, p->ins[i].ix, m->vars), (double)(float)m->colsum[sum],
                   m->colterms[sum]);
    }
}

/* Evaluates one row at `n` of its columns (all of them where it reduces). */
static void run_row(machine *m, int64_t row, int64_t n)
{
    const an_loop_kernel *p = m->p;
    m->vars[AN_VAR_ROW] = row;
    for (int phase = 0, i = 0; phase < p->n_phases; phase++) {
        const int first = i;
        m->vars[AN_VAR_COL] = 0;
        for (; i < p->n_ins && p->ins[i].phase == phase; i++) {
            if (p->ins[i].kind == AN_INS_REDUCE)
                begin_reduction(m, i);
            else if (p->ins[i].scope == AN_SCOPE_ROW)
                run(m, i);
        }
        for (int64_t k = 0; k < n; k++) {
            m->vars[AN_VAR_COL] = spread(k, n, p->cols);
            for (int j = first; j < i; j++)
                if (p->ins[j].scope == AN_SCOPE_COL && p->ins[j].kind != AN_INS_REDUCE) run(m, j);
            for (int j = first; j < i; j++)
                if (p->ins[j].kind == AN_INS_REDUCE) reduce(m, j, m->vars[AN_VAR_COL]);
            if (p->run) add_to_sums(m, phase);
        }
        for (int j = first; j < i; j++)
            if (p->ins[j].kind == AN_INS_REDUCE) end_reduction(m, j);
    }
    an_map_clear(&m->stored);
}

static void run_of_rows(machine *m, int64_t run)
{
    const an_loop_kernel *p = m->p;
    for (int64_t i = 0; i < p->n_ins * p->cols; i++) m->colsum[i] = m->colterms[i] = 0;
    for (int64_t q = 0; q < p->run && !m->no_memory; q++) run_row(m, run * p->run + q, p->cols);
    end_run(m);
}

static void run_element(machine *m, int64_t row, int64_t col)
{
    const an_loop_kernel *p = m->p;
    m->vars[AN_VAR_ROW] = row;
    m->vars[AN_VAR_COL] = col;
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].kind == AN_INS_REDUCE) begin_reduction(m, i);
    for (int64_t q = 0; p->shape == AN_COL && q < p->red; q++) {
        m->vars[AN_VAR_RED] = q;
        for (int i = 0; i < p->n_ins && p->ins[i].phase == 0; i++)
            if (p->ins[i].kind != AN_INS_REDUCE) run(m, i);
        for (int i = 0; i < p->n_ins && p->ins[i].phase == 0; i++)
            if (p->ins[i].kind == AN_INS_REDUCE) reduce(m, i, q);
    }
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].kind == AN_INS_REDUCE)
            end_reduction(m, i);
        else if (p->ins[i].phase > 0 || p->shape == AN_TILE)
            run(m, i);
    an_map_clear(&m->stored);
}

static void run_samples(machine *m, const char **skipped)
{
    const an_loop_kernel *p = m->p;
    const int64_t cost = AN_MAX(p->n_ins, 1);
    if (p->shape == AN_ROW) {
        const bool whole = reduces(p);
        const int64_t cols = whole ? p->cols : AN_MIN(p->cols, AN_MAX(2, BUDGET / 8 / cost));
        const int64_t rows = AN_MIN(p->rows, AN_MAX(1, BUDGET / AN_MAX(cols * cost, 1)));
        const int64_t runs = p->run ? AN_MAX(1, rows / p->run) : 0;
        if (cols * cost > LONGEST) {
            *skipped = "a row is too long for the oracle";
            return;
        }
        for (int64_t k = 0; k < runs && !m->no_memory; k++) run_of_rows(m, spread(k, runs, p->rows / p->run));
        for (int64_t k = 0; k < rows && !runs && !m->no_memory; k++) run_row(m, spread(k, rows, p->rows), cols);
        return;
    }
    /* A tile element costs one dot product; the caller bounds their number. */
    const int64_t each = p->shape == AN_COL ? AN_MAX(p->red, 1) * cost : 20000, all = p->rows * p->cols;
    const int64_t n = AN_MIN(all, AN_MAX(4, BUDGET / each));
    if (each > LONGEST) {
        *skipped = "a column is too long for the oracle";
        return;
    }
    for (int64_t k = 0; k < n && !m->no_memory; k++) {
        const int64_t at = spread(k, n, all);
        run_element(m, at / p->cols, at % p->cols);
    }
}

an_status an_oracle_loop(an_err *err, const an_loop_kernel *p, const an_oracle_memory *arg, int first_arg,
                         an_oracle_tile_fn tile, void *user, an_oracle_samples *out, const char **skipped)
{
    const size_t n = (size_t)p->n_ins + 1;
    machine m = {.p = p, .arg = arg, .first_arg = first_arg, .tile = tile, .user = user, .out = out};
    m.reg = calloc(n, sizeof *m.reg);
    m.sum = calloc(n, sizeof *m.sum);
    m.best = calloc(n, sizeof *m.best);
    m.terms = calloc(n, sizeof *m.terms);
    m.cancel = calloc(n, sizeof *m.cancel);
    if (p->run) m.colsum = calloc(n * (size_t)p->cols, sizeof *m.colsum);
    if (p->run) m.colterms = calloc(n * (size_t)p->cols, sizeof *m.colterms);
    m.no_memory = !m.reg || !m.sum || !m.best || !m.terms || !m.cancel || (p->run && (!m.colsum || !m.colterms));
    if (!m.no_memory) run_samples(&m, skipped);
    an_map_free(&m.stored);
    free(m.reg);
    free(m.sum);
    free(m.best);
    free(m.colsum);
    free(m.terms);
    free(m.colterms);
    free(m.cancel);
    return m.no_memory ? an_fail_nomem(err, "the oracle's samples", n * sizeof *m.reg) : AN_OK;
}
