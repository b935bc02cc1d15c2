/* index_expr.h: index arithmetic as data. Every memory access of a loop kernel is an expression over the loop variables,
 * simplified here once.
 *
 *     y = permute(reshape(x))      y[r,c] is x[(r % 64) * 6 + r / 64 + ...]: two atoms, r % 64 and r / 64
 *
 * Owns:       integer expressions in normal form: constant + sum of coefficient * atom. An atom is a loop variable, or a
 *             floor division or remainder of another expression by a positive constant. And guards: conjunctions of
 *             bounds, for padding and concatenation.
 * Does not:   know tensors or kernels.
 * Invariants: expressions are interned: equal ones have the same number. Each carries its inclusive range, and
 *             simplification relies on it: (a*k + b) / k is a when 0 <= b < k. What is divided is never negative. */
#ifndef AN_IR_INDEX_EXPR_H
#define AN_IR_INDEX_EXPR_H

#include "base/base.h"
#include "base/text.h"

#define AN_IX_TERMS 10 /* longest sum */

typedef int32_t an_ix; /* index into the pool; < 0: no memory or too complex */

typedef enum an_atom_kind { AN_ATOM_VAR, AN_ATOM_DIV, AN_ATOM_MOD } an_atom_kind;
typedef struct an_atom {
    uint8_t kind;
    int32_t var; /* VAR */
    an_ix e;     /* DIV, MOD: the expression ... */
    int64_t by;  /* ... and the constant */
    int64_t lo, hi;
} an_atom;

typedef struct an_ix_expr {
    int64_t c;
    int32_t n;
    struct {
        int64_t k;
        int32_t atom;
    } term[AN_IX_TERMS]; /* ascending atom */
    int64_t lo, hi;
} an_ix_expr;

/* A predicate: all of `lo <= e < hi`. */
typedef struct an_bound {
    an_ix e;
    int64_t lo, hi;
} an_bound;
typedef struct an_guard {
    int32_t n;
    an_bound bound[4];
} an_guard;

typedef struct an_ix_pool {
    an_ix_expr *expr;
    an_atom *atom;
    int32_t *expr_table, *atom_table; /* [2 * cap], [2 * cap_atom]: numbers by hash, -1 where empty */
    int32_t n, cap, n_atom, cap_atom;
    bool failed;    /* out of memory or too complex: every result since is -1 */
    bool no_memory; /* it was memory: whatever the caller concluded from -1 does not hold */
} an_ix_pool;

void an_ix_pool_free(an_ix_pool *p);

an_ix an_ix_const(an_ix_pool *p, int64_t c);
an_ix an_ix_var(an_ix_pool *p, int32_t var, int64_t extent); /* in [0, extent); extent 1 is the constant 0 */
an_ix an_ix_add(an_ix_pool *p, an_ix a, an_ix b);
an_ix an_ix_mul(an_ix_pool *p, an_ix a, int64_t k);
an_ix an_ix_div(an_ix_pool *p, an_ix a, int64_t k);
an_ix an_ix_mod(an_ix_pool *p, an_ix a, int64_t k);

/* The coefficient of `var` if `a` depends on it only linearly (0: not at all); false when `var` is also inside a
 * division or remainder. */
bool an_ix_stride(const an_ix_pool *p, an_ix a, int32_t var, int64_t *stride);
/* Whether `a` grows by 1 with `var` between multiples of n, and is a multiple of n at each of them: what n neighbours of a
 * vector are. Within divisions and remainders too: var % 32 and (var / 64) * 64 + var % 64 do for n = 8. */
bool an_ix_is_run(const an_ix_pool *p, an_ix a, int32_t var, int64_t n);
bool an_ix_uses(const an_ix_pool *p, an_ix a, int32_t var);
int64_t an_ix_eval(const an_ix_pool *p, an_ix a, const int64_t *vars);
/* `a` without the terms that use `var` (what does not change along it). */
an_ix an_ix_without(an_ix_pool *p, an_ix a, int32_t var);
/* Whether `b` is what an_ix_without(a, var) would be, without making it. */
bool an_ix_is_without(const an_ix_pool *p, an_ix a, int32_t var, an_ix b);
/* `a` of the pool `from`, in `p`, with vars[v] in place of loop variable v. */
an_ix an_ix_substitute(an_ix_pool *p, const an_ix_pool *from, an_ix a, const an_ix *vars);
/* Row-major linear index of iv over shape, and back. */
an_ix an_ix_linear(an_ix_pool *p, int rank, const int32_t *shape, const an_ix *iv);
void an_ix_unlinear(an_ix_pool *p, an_ix linear, int rank, const int32_t *shape, an_ix *iv);

/* C text, "r * 384 + c / 64"; names[var] are the loop variables' names. `cast` prefixes variables ("(int64_t)") or is
 * "". */
void an_ix_text(const an_ix_pool *p, an_ix a, const char *const *names, an_text *out);

#endif
