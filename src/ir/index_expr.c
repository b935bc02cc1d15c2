/* index_expr.c: see index_expr.h. Sums are kept in one normal form (terms by ascending atom), so that simplification is
 * comparison, and equal expressions are found by hash. */
#include "ir/index_expr.h"

#include <stdlib.h>
#include <string.h>

void an_ix_pool_free(an_ix_pool *p)
{
    free(p->expr);
    free(p->atom);
    free(p->expr_table);
    free(p->atom_table);
    memset(p, 0, sizeof *p);
}

static an_ix fail(an_ix_pool *p)
{
    p->failed = true;
    return -1;
}

static an_ix no_memory(an_ix_pool *p)
{
    p->no_memory = true;
    return fail(p);
}

/* ------------------------------------------------------------------------------------------------- interning */

static uint32_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0xff51afd7ed558ccdu;
    return (uint32_t)(h >> 32);
}

static uint32_t hash_expr(const an_ix_expr *e)
{
    uint32_t h = mix((uint64_t)e->n, (uint64_t)e->c);
    for (int i = 0; i < e->n; i++) h = mix(mix(h, (uint64_t)e->term[i].k), (uint64_t)e->term[i].atom);
    return h;
}

static bool equal_exprs(const an_ix_expr *a, const an_ix_expr *b)
{
    bool equal = a->c == b->c && a->n == b->n;
    for (int i = 0; equal && i < a->n; i++) equal = a->term[i].k == b->term[i].k && a->term[i].atom == b->term[i].atom;
    return equal;
}

static uint32_t hash_atom(const an_atom *a)
{
    if (a->kind == AN_ATOM_VAR) return mix(mix(0, (uint64_t)a->var), (uint64_t)a->hi);
    return mix(mix(a->kind, (uint64_t)a->e), (uint64_t)a->by);
}

static bool equal_atoms(const an_atom *a, const an_atom *b)
{
    if (a->kind != b->kind) return false;
    return a->kind == AN_ATOM_VAR ? a->var == b->var && a->hi == b->hi : a->e == b->e && a->by == b->by;
}

/* Where the table has the expression, or the empty entry where it belongs. */
static int32_t *find_expr(const an_ix_pool *p, const an_ix_expr *e)
{
    const uint32_t mask = 2 * (uint32_t)p->cap - 1;
    uint32_t i = hash_expr(e) & mask;
    while (p->expr_table[i] >= 0 && !equal_exprs(&p->expr[p->expr_table[i]], e)) i = (i + 1) & mask;
    return &p->expr_table[i];
}

static int32_t *find_atom(const an_ix_pool *p, const an_atom *a)
{
    const uint32_t mask = 2 * (uint32_t)p->cap_atom - 1;
    uint32_t i = hash_atom(a) & mask;
    while (p->atom_table[i] >= 0 && !equal_atoms(&p->atom[p->atom_table[i]], a)) i = (i + 1) & mask;
    return &p->atom_table[i];
}

/* Space for one more element of an array, whose hash table is kept at most half full. True: *table is a new, empty one.
 * After a refused allocation *cap is too small as before. */
static bool grow(void **array, int32_t **table, int32_t n, int32_t *cap, size_t bytes)
{
    if (n < *cap) return false;
    const int32_t more = *cap ? 2 * *cap : 32;
    void *bigger = realloc(*array, bytes * (size_t)more);
    if (bigger) *array = bigger;
    int32_t *fresh = bigger ? malloc(sizeof *fresh * 2 * (size_t)more) : NULL;
    if (!fresh) return false;
    memset(fresh, -1, sizeof *fresh * 2 * (size_t)more);
    free(*table);
    *table = fresh;
    *cap = more;
    return true;
}

static an_ix intern(an_ix_pool *p, an_ix_expr *e)
{
    e->lo = e->hi = e->c;
    for (int i = 0; i < e->n; i++) {
        const an_atom *a = &p->atom[e->term[i].atom];
        int64_t k = e->term[i].k;
        e->lo += k > 0 ? k * a->lo : k * a->hi;
        e->hi += k > 0 ? k * a->hi : k * a->lo;
    }
    if (grow((void **)&p->expr, &p->expr_table, p->n, &p->cap, sizeof *p->expr))
        for (int32_t i = 0; i < p->n; i++) *find_expr(p, &p->expr[i]) = i;
    if (p->n == p->cap) return no_memory(p);
    int32_t *place = find_expr(p, e);
    if (*place >= 0) return *place;
    p->expr[p->n] = *e;
    return *place = p->n++;
}

static int32_t intern_atom(an_ix_pool *p, an_atom a)
{
    if (grow((void **)&p->atom, &p->atom_table, p->n_atom, &p->cap_atom, sizeof *p->atom))
        for (int32_t i = 0; i < p->n_atom; i++) *find_atom(p, &p->atom[i]) = i;
    if (p->n_atom == p->cap_atom) return no_memory(p);
    int32_t *place = find_atom(p, &a);
    if (*place >= 0) return *place;
    p->atom[p->n_atom] = a;
    return *place = p->n_atom++;
}

static an_ix of_atom(an_ix_pool *p, int32_t atom)
{
    if (atom < 0) return -1;
    an_ix_expr e = {0};
    e.n = 1;
    e.term[0].k = 1;
    e.term[0].atom = atom;
    return intern(p, &e);
}

an_ix an_ix_const(an_ix_pool *p, int64_t c)
{
    an_ix_expr e = {0};
    e.c = c;
    return intern(p, &e);
}

an_ix an_ix_var(an_ix_pool *p, int32_t var, int64_t extent)
{
    if (extent <= 1) return an_ix_const(p, 0);
    return of_atom(p, intern_atom(p, (an_atom){.kind = AN_ATOM_VAR, .var = var, .e = -1, .lo = 0, .hi = extent - 1}));
}

/* A reshape and its inverse leave behind
 *     x%k + k * (x/k)         which is x
 *     x%k + k * ((x/k) % n)   which is x % (k*n)
 * Of the terms low_k * low and high_k * high: their sum divided by low_k, -1 when they are no such pair. */
static an_ix merge_pair(an_ix_pool *p, int32_t low, int32_t high, int64_t low_k, int64_t high_k)
{
    const an_atom mod = p->atom[low], above = p->atom[high];
    if (mod.kind != AN_ATOM_MOD || above.kind == AN_ATOM_VAR || high_k != low_k * mod.by) return -1;
    if (above.kind == AN_ATOM_DIV) return above.e == mod.e && above.by == mod.by ? mod.e : -1;
    return an_ix_div(p, mod.e, mod.by) == above.e ? an_ix_mod(p, mod.e, mod.by * above.by) : -1;
}

an_ix an_ix_add(an_ix_pool *p, an_ix a, an_ix b)
{
    if (a < 0 || b < 0) return fail(p);
    an_ix_expr x = p->expr[a], y = p->expr[b], e = {0};
    e.c = x.c + y.c;
    int i = 0, j = 0;
    while (i < x.n || j < y.n) {
        int32_t ai = i < x.n ? x.term[i].atom : INT32_MAX, aj = j < y.n ? y.term[j].atom : INT32_MAX;
        int64_t k = 0;
        if (ai <= aj) k += x.term[i++].k;
        if (aj <= ai) k += y.term[j++].k;
        if (!k) continue;
        if (e.n == AN_IX_TERMS) return fail(p);
        e.term[e.n].k = k;
        e.term[e.n++].atom = AN_MIN(ai, aj);
    }
    for (int m = 0; m < e.n; m++)
        for (int d = 0; d < e.n; d++) {
            const an_ix whole = merge_pair(p, e.term[m].atom, e.term[d].atom, e.term[m].k, e.term[d].k);
            if (whole < 0) continue;
            an_ix_expr rest = {.c = e.c};
            for (int t = 0; t < e.n; t++)
                if (t != m && t != d) rest.term[rest.n++] = e.term[t];
            return an_ix_add(p, intern(p, &rest), an_ix_mul(p, whole, e.term[m].k));
        }
    return intern(p, &e);
}

an_ix an_ix_mul(an_ix_pool *p, an_ix a, int64_t k)
{
    if (a < 0) return fail(p);
    if (k == 0) return an_ix_const(p, 0);
    an_ix_expr e = p->expr[a];
    e.c *= k;
    for (int i = 0; i < e.n; i++) e.term[i].k *= k;
    return intern(p, &e);
}

static int64_t floor_div(int64_t a, int64_t k)
{
    return a >= 0 ? a / k : -((-a + k - 1) / k);
}

/* Splits a = k * whole + rest with whole made of the terms k divides; true when the rest stays in [0, k). */
static bool split(an_ix_pool *p, an_ix a, int64_t k, an_ix *whole, an_ix *rest)
{
    an_ix_expr e = p->expr[a], w = {0}, r = {0};
    w.c = floor_div(e.c, k);
    r.c = e.c - w.c * k;
    for (int i = 0; i < e.n; i++) {
        if (e.term[i].k % k == 0) {
            w.term[w.n] = e.term[i];
            w.term[w.n++].k /= k;
        } else {
            r.term[r.n++] = e.term[i];
        }
    }
    *whole = intern(p, &w);
    *rest = intern(p, &r);
    return *whole >= 0 && *rest >= 0 && p->expr[*rest].lo >= 0 && p->expr[*rest].hi < k;
}

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a < 0 ? -a : a;
}

/* A proper divisor g > 1 of k with a = g * high + low and 0 <= low < g; 0: none. */
static int64_t factor(an_ix_pool *p, an_ix a, int64_t k, an_ix *high, an_ix *low)
{
    for (int i = 0; i < p->expr[a].n; i++) {
        int64_t g = gcd(k, p->expr[a].term[i].k);
        if (g > 1 && g < k && split(p, a, g, high, low)) return g;
    }
    return 0;
}

an_ix an_ix_div(an_ix_pool *p, an_ix a, int64_t k)
{
    if (a < 0) return fail(p);
    if (k == 1) return a;
    an_ix whole, rest;
    if (split(p, a, k, &whole, &rest)) return whole;
    if (whole < 0 || rest < 0) return fail(p);
    an_ix_expr r = p->expr[rest];
    /* (x / m) / k is x / (m*k) */
    if (r.n == 1 && r.c == 0 && r.term[0].k == 1 && p->atom[r.term[0].atom].kind == AN_ATOM_DIV) {
        an_atom in = p->atom[r.term[0].atom];
        return an_ix_add(p, whole, an_ix_div(p, in.e, in.by * k));
    }
    /* (x % (m*k)) / k is (x / k) % m */
    if (r.n == 1 && r.c == 0 && r.term[0].k == 1 && p->atom[r.term[0].atom].kind == AN_ATOM_MOD) {
        an_atom in = p->atom[r.term[0].atom];
        if (in.by % k == 0) return an_ix_add(p, whole, an_ix_mod(p, an_ix_div(p, in.e, k), in.by / k));
    }
    if (r.lo < 0) { /* divide non-negative values only: take the expression as it was */
        rest = a;
        whole = an_ix_const(p, 0);
        r = p->expr[rest];
    }
    an_ix high, low;
    int64_t g = factor(p, rest, k, &high, &low); /* (g x + y) / (g m) is x / m for 0 <= y < g */
    if (g) return an_ix_add(p, whole, an_ix_div(p, high, k / g));
    rest = intern(p, &r);
    if (rest < 0) return fail(p);
    an_ix_expr now = p->expr[rest];
    if (now.lo >= 0 && now.hi < k) return whole;
    int32_t atom = intern_atom(
        p, (an_atom){.kind = AN_ATOM_DIV, .e = rest, .by = k, .lo = floor_div(now.lo, k), .hi = floor_div(now.hi, k)});
    return an_ix_add(p, whole, of_atom(p, atom));
}

an_ix an_ix_mod(an_ix_pool *p, an_ix a, int64_t k)
{
    if (a < 0) return fail(p);
    if (k == 1) return an_ix_const(p, 0);
    an_ix whole, rest;
    if (split(p, a, k, &whole, &rest)) return rest;
    if (whole < 0 || rest < 0) return fail(p);
    an_ix_expr r = p->expr[rest];
    if (r.lo < 0) rest = a;
    /* (x % m) % k is x % k when k divides m */
    if (r.n == 1 && r.c == 0 && r.term[0].k == 1 && p->atom[r.term[0].atom].kind == AN_ATOM_MOD) {
        an_atom in = p->atom[r.term[0].atom];
        if (in.by % k == 0) return an_ix_mod(p, in.e, k);
    }
    an_ix high, low;
    int64_t g = factor(p, rest, k, &high, &low);
    if (g) return an_ix_add(p, an_ix_mul(p, an_ix_mod(p, high, k / g), g), low);
    int32_t atom = intern_atom(p, (an_atom){.kind = AN_ATOM_MOD, .e = rest, .by = k, .lo = 0, .hi = k - 1});
    return of_atom(p, atom);
}

bool an_ix_uses(const an_ix_pool *p, an_ix a, int32_t var)
{
    if (a < 0) return true;
    for (int i = 0; i < p->expr[a].n; i++) {
        const an_atom *t = &p->atom[p->expr[a].term[i].atom];
        if (t->kind == AN_ATOM_VAR ? t->var == var : an_ix_uses(p, t->e, var)) return true;
    }
    return false;
}

bool an_ix_stride(const an_ix_pool *p, an_ix a, int32_t var, int64_t *stride)
{
    *stride = 0;
    if (a < 0) return false;
    for (int i = 0; i < p->expr[a].n; i++) {
        const an_atom *t = &p->atom[p->expr[a].term[i].atom];
        if (t->kind == AN_ATOM_VAR) {
            if (t->var == var) *stride += p->expr[a].term[i].k;
        } else if (an_ix_uses(p, t->e, var)) {
            return false;
        }
    }
    return true;
}

/* How an expression changes while `var` goes from a multiple of n to the next: by `step` each time, or (step 0) not at all.
 * `whole`: it is a multiple of n there. */
typedef struct run {
    int64_t step;
    bool whole;
} run;

static bool run_of_expr(const an_ix_pool *p, an_ix a, int32_t var, int64_t n, run *out);

static bool run_of_atom(const an_ix_pool *p, const an_atom *t, int32_t var, int64_t n, run *out)
{
    if (t->kind == AN_ATOM_VAR) {
        *out = (run){.step = t->var == var, .whole = t->var == var};
        return true;
    }
    if (!run_of_expr(p, t->e, var, n, out)) return false;
    const bool inside = out->whole && t->by % n == 0; /* no boundary of the division lies between two multiples of n */
    if (out->step && !(out->step == 1 && inside)) return false;
    *out = t->kind == AN_ATOM_DIV ? (run){0} : (run){.step = out->step, .whole = inside};
    return true;
}

static bool run_of_expr(const an_ix_pool *p, an_ix a, int32_t var, int64_t n, run *out)
{
    const an_ix_expr *e = &p->expr[a];
    *out = (run){.whole = e->c % n == 0};
    for (int i = 0; i < e->n; i++) {
        run r;
        if (!run_of_atom(p, &p->atom[e->term[i].atom], var, n, &r)) return false;
        out->step += e->term[i].k * r.step;
        out->whole &= r.whole || e->term[i].k % n == 0;
    }
    return true;
}

bool an_ix_is_run(const an_ix_pool *p, an_ix a, int32_t var, int64_t n)
{
    run r;
    return a >= 0 && run_of_expr(p, a, var, n, &r) && r.step == 1 && r.whole;
}

int64_t an_ix_eval(const an_ix_pool *p, an_ix a, const int64_t *vars)
{
    const an_ix_expr *e = &p->expr[a];
    int64_t sum = e->c;
    for (int i = 0; i < e->n; i++) {
        const an_atom *t = &p->atom[e->term[i].atom];
        int64_t v;
        if (t->kind == AN_ATOM_VAR) {
            v = vars[t->var];
        } else {
            int64_t x = an_ix_eval(p, t->e, vars), q = floor_div(x, t->by);
            v = t->kind == AN_ATOM_DIV ? q : x - q * t->by;
        }
        sum += e->term[i].k * v;
    }
    return sum;
}

an_ix an_ix_without(an_ix_pool *p, an_ix a, int32_t var)
{
    if (a < 0) return fail(p);
    an_ix_expr e = p->expr[a], r = {.c = e.c};
    for (int i = 0; i < e.n; i++) {
        const an_atom *t = &p->atom[e.term[i].atom];
        if (!(t->kind == AN_ATOM_VAR ? t->var == var : an_ix_uses(p, t->e, var))) r.term[r.n++] = e.term[i];
    }
    return intern(p, &r);
}

bool an_ix_is_without(const an_ix_pool *p, an_ix a, int32_t var, an_ix b)
{
    if (a < 0 || b < 0) return false;
    const an_ix_expr *x = &p->expr[a], *y = &p->expr[b];
    int n = 0;
    for (int i = 0; i < x->n; i++) {
        const an_atom *t = &p->atom[x->term[i].atom];
        if (t->kind == AN_ATOM_VAR ? t->var == var : an_ix_uses(p, t->e, var)) continue;
        if (n == y->n || y->term[n].atom != x->term[i].atom || y->term[n].k != x->term[i].k) return false;
        n++;
    }
    return n == y->n && x->c == y->c;
}

an_ix an_ix_substitute(an_ix_pool *p, const an_ix_pool *from, an_ix a, const an_ix *vars)
{
    if (a < 0) return -1;
    const an_ix_expr *e = &from->expr[a];
    an_ix sum = an_ix_const(p, e->c);
    for (int i = 0; i < e->n; i++) {
        const an_atom *t = &from->atom[e->term[i].atom];
        an_ix x = t->kind == AN_ATOM_VAR ? vars[t->var] : an_ix_substitute(p, from, t->e, vars);
        if (t->kind == AN_ATOM_DIV) x = an_ix_div(p, x, t->by);
        if (t->kind == AN_ATOM_MOD) x = an_ix_mod(p, x, t->by);
        sum = an_ix_add(p, sum, an_ix_mul(p, x, e->term[i].k));
    }
    return sum;
}

an_ix an_ix_linear(an_ix_pool *p, int rank, const int32_t *shape, const an_ix *iv)
{
    an_ix sum = an_ix_const(p, 0);
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        sum = an_ix_add(p, sum, an_ix_mul(p, iv[i], stride));
        stride *= shape[i];
    }
    return sum;
}

void an_ix_unlinear(an_ix_pool *p, an_ix linear, int rank, const int32_t *shape, an_ix *iv)
{
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        if (shape[i] <= 1) { /* of an empty axis nothing is ever read */
            iv[i] = an_ix_const(p, 0);
            continue;
        }
        an_ix q = an_ix_div(p, linear, stride);
        bool outermost = true;
        for (int j = 0; j < i; j++) outermost &= shape[j] == 1;
        iv[i] = outermost ? q : an_ix_mod(p, q, shape[i]);
        stride *= shape[i];
    }
}

void an_ix_text(const an_ix_pool *p, an_ix a, const char *const *names, an_text *out)
{
    const an_ix_expr *e = &p->expr[a];
    if (!e->n) {
        an_text_printf(out, "%lld", (long long)e->c);
        return;
    }
    for (int i = 0; i < e->n; i++) {
        const an_atom *t = &p->atom[e->term[i].atom];
        int64_t k = e->term[i].k;
        if (i || k < 0) an_text_puts(out, k < 0 ? " - " : " + ");
        if (t->kind == AN_ATOM_VAR) {
            an_text_puts(out, names[t->var]);
        } else {
            an_text_puts(out, k == 1 || k == -1 ? "(" : "((");
            an_ix_text(p, t->e, names, out);
            an_text_printf(out, ") %c %lld%s", t->kind == AN_ATOM_DIV ? '/' : '%', (long long)t->by,
                           k == 1 || k == -1 ? "" : ")");
        }
        if (k != 1 && k != -1) an_text_printf(out, " * %lld", (long long)(k < 0 ? -k : k));
    }
    if (e->c) an_text_printf(out, " %c %lld", e->c < 0 ? '-' : '+', (long long)(e->c < 0 ? -e->c : e->c));
}
