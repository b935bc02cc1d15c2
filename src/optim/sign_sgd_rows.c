/* sign_sgd_rows.c: sign descent on those rows of a large table that a batch looked up (an_sign_sgd_rows in anneal.h).
 *
 *     first_i = the first j with index[j] == index[i]     [n,n] comparisons
 *     sum     = rows of grad added at first_i             [n,c]
 *     w'_i    = w_i (1 - lr decay) - lr sign(sum[first_i])
 *
 * Entries with one id compute one row, to the bit, so that it does not matter which of them is written. The table is read
 * by a gather and written by an_put_rows: n rows of it are moved, whatever its size.
 */
#include "optim/grad_accumulate.h"

#include <float.h>
#include <math.h>

static an_tensor *of_rows(const char *at, an_tensor *number, an_dtype dtype, an_shape shape)
{
    return an_expand_at(at, an_reshape_at(at, an_cast_at(at, number, dtype), AN_SHAPE(1, 1)), shape);
}

void an_sign_sgd_rows_at(const char *at, an_tensor *table, an_tensor *index, an_tensor *grad, double lr,
                         double weight_decay, an_tensor *only_if)
{
    an_tensor *operand[3] = {table, index, grad};
    an_graph *g = NULL;
    for (int i = 0; i < 3 && !g; i++) g = operand[i] ? operand[i]->g : NULL;
    for (int i = 0; i < 3 && g; i++)
        if (an_use(g, operand[i], at, "an_sign_sgd_rows")->poison) return;
    if (!g) return; /* of no context: there is none to tell */
    an_ctx *cx = table->g->owner;
    const an_shape rows = an_shape_of(grad), ids = an_shape_of(index), of = an_shape_of(table);
    const an_dtype dtype = an_dtype_of(table), arithmetic = an_update_dtype(dtype);
    if (of.rank != 2 || rows.rank != 2 || ids.rank != 1 || rows.dim[0] != ids.dim[0] || rows.dim[1] != of.dim[1]) {
        an_poison(
            &cx->graph, AN_E_SHAPE, at,
            "an_sign_sgd_rows: table, index and grad are [V,c], [n] and [n,c]; here they have %d, %d and %d axes, "
            "with %lld ids, %lld rows of %lld gradients and rows of %lld numbers in the table",
            of.rank, ids.rank, rows.rank, (long long)(ids.rank ? ids.dim[0] : 1),
            (long long)(rows.rank ? rows.dim[0] : 1), (long long)(rows.rank > 1 ? rows.dim[1] : 1),
            (long long)(of.rank > 1 ? of.dim[1] : 1));
        return;
    }
    const an_option numbers[] = {{"lr", lr, -DBL_MAX, INFINITY}, {"weight_decay", weight_decay, -DBL_MAX, INFINITY}};
    if (!an_options_fit(cx, at, "an_sign_sgd_rows", 2, numbers)) return;
    if (table->narrow) {
        an_poison(&cx->graph, AN_E_UNSUPPORTED, at,
                  "an_sign_sgd_rows: the table is kept in bfloat16 (an_policy.weights), whose steps are too coarse for "
                  "steps of one size; make it an an_state");
        return;
    }
    const int64_t n = ids.dim[0];
    if (n == 0 || of.dim[1] == 0) return;
    an_scope_push(cx, "optimizer");
    an_tensor *row = an_reshape_at(at, index, AN_SHAPE(1, n));
    an_tensor *same = an_eq_at(at, an_reshape_at(at, index, AN_SHAPE(n, 1)), row);      /* bool [n,n] */
    an_tensor *first = an_argmax_at(at, an_cast_at(at, same, AN_F32), 1, false);        /* i32 [n] */
    an_tensor *sum = an_scatter_add_at(at, first, an_cast_at(at, grad, arithmetic), n); /* [n,c] */
    an_tensor *sign = an_sign_at(at, an_gather_at(at, sum, first)), *w = an_gather_at(at, table, index); /* [n,c] */
    an_tensor *keep = of_rows(at, an_update_scalar(at, cx, arithmetic, 1 - lr * weight_decay), arithmetic, rows),
              *rate = of_rows(at, an_update_scalar(at, cx, arithmetic, lr), arithmetic, rows);
    an_tensor *by = an_mul_at(at, sign, rate);
    an_tensor *next = an_sub_at(at, an_mul_at(at, an_cast_at(at, w, arithmetic), keep), by);
    next = an_cast_at(at, next, dtype);
    if (only_if) next = an_where_at(at, of_rows(at, only_if, AN_BOOL, rows), next, w);
    an_assign_at(at, table, an_put_rows_at(at, table, index, next));
    an_scope_pop(cx);
}
