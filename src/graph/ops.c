/* ops.c: the table of ops, made from ops.def, and the dtypes' names and sizes.
 *
 * Owns:      an_ops and what is constant about dtypes.
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

static const struct {
    const char *name;
    uint8_t bytes;
} dtypes[AN_N_DTYPES] = {
    [AN_F32] = {"float32", 4}, [AN_BF16] = {"bfloat16", 2}, [AN_F16] = {"float16", 2}, [AN_F64] = {"float64", 8},
    [AN_I32] = {"int32", 4},   [AN_I64] = {"int64", 8},     [AN_U8] = {"uint8", 1},    [AN_BOOL] = {"bool", 1}};

const char *an_dtype_name(an_dtype t)
{
    return (unsigned)t < AN_N_DTYPES ? dtypes[t].name : "?";
}

size_t an_dtype_bytes(an_dtype t)
{
    return (unsigned)t < AN_N_DTYPES ? dtypes[t].bytes : 0;
}

bool an_dtype_is_float(an_dtype t)
{
    return t == AN_F32 || t == AN_BF16 || t == AN_F16 || t == AN_F64;
}

bool an_dtype_is_int(an_dtype t)
{
    return t == AN_I32 || t == AN_I64 || t == AN_U8;
}

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

const char *an_dtype_text(an_dtype t)
{
    return an_dtype_name(t);
}

size_t an_dtype_size(an_dtype t)
{
    return an_dtype_bytes(t);
}

bool an_dtype_parse(const char *name, an_dtype *out)
{
    static const struct {
        const char *name;
        an_dtype t;
    } also[] = {{"f32", AN_F32}, {"fp32", AN_F32}, {"bf16", AN_BF16}, {"f16", AN_F16}, {"fp16", AN_F16},
                {"f64", AN_F64}, {"i32", AN_I32},  {"i64", AN_I64},   {"u8", AN_U8}};
    for (int t = 0; name && t < AN_N_DTYPES; t++)
        if (!strcmp(name, an_dtype_name((an_dtype)t))) {
            *out = (an_dtype)t;
            return true;
        }
    for (size_t i = 0; name && i < AN_COUNT(also); i++)
        if (!strcmp(name, also[i].name)) {
            *out = also[i].t;
            return true;
        }
    return false;
}

an_shape an_shape_of(const an_tensor *t)
{
    an_shape s = {.rank = t ? t->rank : 0};
    for (int i = 0; t && i < t->rank; i++) s.dim[i] = t->shape[i];
    return s;
}

an_dtype an_dtype_of(const an_tensor *t)
{
    return t ? (an_dtype)t->dtype : AN_F32;
}
