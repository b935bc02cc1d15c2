/* ops.c: the table of ops, made from ops.def, and shapes as text. (Dtypes: dtypes.c.)
 *
 * Owns:      an_ops.
 * Does not:  know any graph.
 */
#include "graph/graph.h"

#include <stdio.h>
#include <string.h>

/* An elementwise row has a gradient when some operand's text is not AN_NO_GRAD: no other word has an N there. */
#define SPELLED(text) ((text)[1] != 'N')

#define HAS_GRAD true
#define NO_GRAD  false

const an_op_info an_ops[AN_N_OPS] = {
#define AN_ELEM(NAME, arity_, domain_, result_, kernel_, reference_, grad_a, grad_b, grad_c)                           \
    [AN_OP_##NAME] = {.name = #NAME,                                                                                   \
                      .cls = AN_CLS_ELEM,                                                                              \
                      .arity = (arity_),                                                                               \
                      .outputs = 1,                                                                                    \
                      .has_grad = SPELLED(#grad_a) || SPELLED(#grad_b) || SPELLED(#grad_c),                            \
                      .domain = (domain_),                                                                             \
                      .result = (result_),                                                                             \
                      .kernel = #kernel_},
#define AN_OP(NAME, cls_, arity_, outputs_, gradient_, meaning_)                                                       \
    [AN_OP_##NAME] = {.name = #NAME,                                                                                   \
                      .cls = AN_CLS_##cls_,                                                                            \
                      .arity = (arity_),                                                                               \
                      .outputs = (outputs_),                                                                           \
                      .has_grad = (gradient_),                                                                         \
                      .meaning = (meaning_)},
#include "graph/ops.def"
};

const char *an_shape_text(int rank, const int32_t *shape, char *out, size_t cap)
{
    size_t len = 0;
    out[0] = '\0';
    for (int i = 0; i <= rank && len < cap; i++) {
        const char *sign = rank == 0 ? "[]" : i == 0 ? "[" : i == rank ? "]" : ",";
        int n = i < rank ? snprintf(out + len, cap - len, "%s%d", sign, (int)shape[i])
                         : snprintf(out + len, cap - len, "%s", sign);
        len += (size_t)n;
    }
    return out;
}

an_shape an_shape_of(const an_tensor *t)
{
    an_shape s = {.rank = t ? t->rank : 0};
    for (int i = 0; t && i < t->rank; i++) s.dim[i] = t->shape[i];
    return s;
}

an_dtype an_dtype_of(const an_tensor *t)
{
    return t && !t->narrow ? (an_dtype)t->dtype : AN_F32;
}
