/* render_gpu_pair.c: the program of a pair of kernels/gpu/gemm_hopper.inc, CUDA: an elementwise kernel that reads rows r and
 * rows + r of a bf16 GEMM's result. Gate and up of a SwiGLU are such rows, so silu(gate) up is one, and its gradient.
 *
 * It is rendered two columns at a time: a bf16 value is a word of two, as the GEMM's end has and stores them, an f32 value or a
 * comparison's an array of two. A product of bf16 values is then one instruction, which rounds as the two conversions would, and so is any
 * rounding: the end of a product with a short sum is bound by its instructions.
 *
 *     const an_u32 v1 = x[j];
 *     const float v2[2] = {an_bf16_of(&v1, 0), an_bf16_of(&v1, 1)};
 *     const float v3[2] = {an_sigmoid_16bit(v2[0]), an_sigmoid_16bit(v2[1])}; */
#include "codegen/render_gpu.h"

#include <stdio.h>

enum { WIDE = 8, MOST_STORED = 3 }; /* columns of a vector access; tensors that the gradient stores */

static const an_gpu fast_cuda = {.dialect = &an_dialects[AN_DIALECT_CUDA], .fast = true};

/* Which row of the GEMM's result instruction i reads: r (0) or rows + r (1); -1: neither. */
static int half_read(const an_loop_kernel *p, int i)
{
    const an_ins *in = &p->ins[i];
    int64_t row, col;
    if (in->kind != AN_INS_LOAD || in->dtype != AN_BF16 || in->guard >= 0 || in->a >= 0 || in->ix < 0) return -1;
    if (!an_ix_stride(&p->ix, in->ix, AN_VAR_ROW, &row) || !an_ix_stride(&p->ix, in->ix, AN_VAR_COL, &col)) return -1;
    const int64_t from = p->ix.expr[in->ix].c, numel = p->rows * p->cols;
    const bool in_order = row == p->cols && col == 1 && p->ix.expr[in->ix].hi == from + numel - 1;
    return in_order && from == 0 ? 0 : in_order && from == numel ? 1 : -1;
}

static bool is_beside(const an_loop_kernel *p, const an_ins *in, int gemm)
{
    return in->arg != gemm && in->guard < 0 && in->dtype == AN_BF16 && p->arg[in->arg].dtype == AN_BF16 &&
           an_gpu_is_vector_access(p, in, WIDE);
}

static bool is_known(int dtype)
{
    return dtype == AN_F32 || dtype == AN_BF16 || dtype == AN_BOOL;
}

static bool is_computed(const an_loop_kernel *p, const an_ins *in)
{
    switch (in->kind) {
    case AN_INS_CONST: return in->dtype == AN_F32 || in->dtype == AN_BF16;
    case AN_INS_ELEM: return is_known(in->dtype);
    case AN_INS_CAST: {
        const int from = p->ins[in->a].dtype;
        return (in->dtype == AN_F32 || in->dtype == AN_BF16) && (from == AN_F32 || from == AN_BF16);
    }
    default: return false;
    }
}

an_gpu_pair an_render_gpu_can_pair(const an_loop_kernel *p, int gemm)
{
    bool half[2] = {false, false};
    int stores = 0, reads = 0;
    if (p->shape != AN_ROW || an_gpu_reduces_rows(p) || p->rows < 2 || p->cols % WIDE) return AN_GPU_NO_PAIR;
    if (an_render_gpu_refusal(p, fast_cuda.dialect) || p->arg[gemm].dtype != AN_BF16) return AN_GPU_NO_PAIR;
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        const int which = half_read(p, i);
        if (in->kind == AN_INS_LOAD && in->arg == gemm && which >= 0)
            half[which] = true;
        else if (in->kind == AN_INS_LOAD && is_beside(p, in, gemm))
            reads++;
        else if (in->kind == AN_INS_STORE && is_beside(p, in, gemm) && p->ins[in->a].dtype == AN_BF16)
            stores++;
        else if (!is_computed(p, in))
            return AN_GPU_NO_PAIR;
    }
    if (!half[0] || !half[1] || !stores) return AN_GPU_NO_PAIR;
    if (stores == 1 && !reads) return AN_GPU_GATE;
    return reads == 1 && stores <= MOST_STORED ? AN_GPU_GATE_GRADIENT : AN_GPU_NO_PAIR;
}

/* Column k of value i. */
static void column_of(const an_loop_kernel *p, int32_t i, int k, char *out, size_t room)
{
    snprintf(out, room, i >= 0 && p->ins[i].dtype == AN_BF16 ? "an_bf16_of(&v%d, %d)" : "v%d[%d]", i, k);
}

static bool is_of_words(const an_loop_kernel *p, const an_ins *in)
{
    const int32_t of[3] = {in->a, in->b, in->c};
    bool words = in->dtype == AN_BF16;
    for (int i = 0; i < 3; i++) words |= of[i] >= 0 && p->ins[of[i]].dtype == AN_BF16;
    return words && in->kind == AN_INS_ELEM;
}

static void both_columns(const an_loop_kernel *p, int i, an_text *out)
{
    const an_ins *in = &p->ins[i];
    an_gpu_form f = {.approx_16bit = true};
    for (int k = 0; k < 2; k++) {
        an_text_puts(out, k ? ", " : "");
        if (is_of_words(p, in)) {
            char a[40], b[40], c[40];
            column_of(p, in->a, k, a, sizeof a), column_of(p, in->b, k, b, sizeof b),
                column_of(p, in->c, k, c, sizeof c);
            an_render_expression(an_ops[in->op].kernel, a, b, c, out);
        } else {
            f.column = k ? "[1]" : "[0]";
            an_gpu_value(p, i, f, out);
        }
    }
}

static void computed(const an_loop_kernel *p, int i, an_text *out)
{
    const an_ins *in = &p->ins[i];
    const bool narrow = in->dtype == AN_BF16, from_narrow = in->a >= 0 && p->ins[in->a].dtype == AN_BF16;
    if (narrow)
        an_text_printf(out, "const an_u32 v%d = ", i);
    else
        an_text_printf(out, "const %s v%d[2] = {", an_gpu_computed[in->dtype], i);
    if (in->kind == AN_INS_CAST && narrow) {
        an_text_printf(out, from_narrow ? "v%d" : "an_bf16_pair(v%d[0], v%d[1])", in->a, in->a);
    } else if (in->kind == AN_INS_CAST) {
        an_text_printf(out, from_narrow ? "an_bf16_of(&v%d, 0), an_bf16_of(&v%d, 1)" : "v%d[0], v%d[1]", in->a, in->a);
    } else if (narrow && in->kind == AN_INS_ELEM && in->op == AN_OP_MUL) {
        an_text_printf(out, "an_bf16_product(v%d, v%d)", in->a, in->b);
    } else {
        an_text_puts(out, narrow ? "an_bf16_pair(" : "");
        both_columns(p, i, out);
        an_text_puts(out, narrow ? ")" : "");
    }
    an_text_puts(out, narrow ? ";\n" : "};\n");
}

/* Renders the elementwise program for two neighbouring columns. Operands are x and y (rows r and rows + r of the GEMM's result), z (the
 * other tensor that it loads) and wN (what store instruction N writes), each a bf16 pair in a 32-bit word. subscript: "[j]" where these
 * are arrays of words; "" where they are single words and the one stored value is the function's return value. */
static void two_columns(const an_loop_kernel *p, int gemm, const char *indent, const char *subscript, an_text *out)
{
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        an_text_puts(out, indent);
        if (in->kind == AN_INS_LOAD && in->arg == gemm)
            an_text_printf(out, "const an_u32 v%d = %c%s;\n", i, half_read(p, i) ? 'y' : 'x', subscript);
        else if (in->kind == AN_INS_LOAD)
            an_text_printf(out, "const an_u32 v%d = z%s;\n", i, subscript);
        else if (in->kind != AN_INS_STORE)
            computed(p, i, out);
        else if (*subscript)
            an_text_printf(out, "w%d%s = v%d;\n", i, subscript, in->a);
        else
            an_text_printf(out, "return v%d;\n", in->a);
    }
}

/* Words of eight columns, from c0 on, of what instruction i loads or stores. */
static void words_at(const an_loop_kernel *p, int i, an_text *out)
{
    an_text_printf(out, "(%san_u32 *)(", p->ins[i].kind == AN_INS_STORE ? "" : "const ");
    an_gpu_address(p, &p->ins[i], out);
    an_text_puts(out, ")");
}

/* an_epilogue_pair: the result of two columns, of x in the upper rows and y in the lower. */
void an_render_gpu_pair_epilogue(const an_loop_kernel *p, int gemm, bool keep, an_text *out)
{
    int store = 0;
    while (p->ins[store].kind != AN_INS_STORE) store++;
    an_text_puts(out, "AN_FN an_u32 an_epilogue_pair(an_u32 x, an_u32 y)\n{\n");
    two_columns(p, gemm, "    ", "", out);
    an_text_puts(out, "}\n");
    an_gpu_epilogue_arguments(p, out);
    an_text_puts(out, "AN_FN void an_epilogue_store(int r, int c0, const an_u32 (&v)[4] AN_EPILOGUE_ARGS)\n{\n"
                      "    an_wide_store(");
    words_at(p, store, out);
    an_text_printf(out,
                   ", v);\n}\n#define AN_EPILOGUE_PAIR(x, y) an_epilogue_pair(x, y)\n"
                   "#define AN_EPILOGUE_STORE(row, col, v) an_epilogue_store(row, col, v AN_EPILOGUE_NAMES)\n"
                   "#define AN_EPILOGUE_KEEPS %d\n",
                   keep);
    for (int half = 0; half < 2; half++)
        an_text_printf(out,
                       "#define AN_EPILOGUE_STORE_%c(row, col, v) "
                       "an_wide_store((an_u32 *)((an_u16 *)%s + ((an_i64)(row) + %lld) * %lld + (col)), v)\n",
                       half ? 'Y' : 'X', p->arg[gemm].name, (long long)(half * p->rows), (long long)p->cols);
}

void an_render_gpu_pair_gradient(const an_loop_kernel *p, int gemm, an_text *out)
{
    an_gpu_epilogue_arguments(p, out);
    an_text_puts(out, "AN_FN const an_u32 *an_epilogue_beside(int r, int c0 AN_EPILOGUE_ARGS)\n{\n    return ");
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].kind == AN_INS_LOAD && p->ins[i].arg != gemm) words_at(p, i, out);
    an_text_puts(out, ";\n}\nAN_FN void an_epilogue_apply(int r, int c0, const an_u32 (&x)[4], const an_u32 (&y)[4], "
                      "const an_u32 (&z)[4] AN_EPILOGUE_ARGS)\n{\n");
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].kind == AN_INS_STORE) an_text_printf(out, "    an_u32 w%d[4];\n", i);
    an_text_puts(out, "    AN_UNROLL for (int j = 0; j < 4; j++)\n    {\n");
    two_columns(p, gemm, "        ", "[j]", out);
    an_text_puts(out, "    }\n");
    for (int i = 0; i < p->n_ins; i++) {
        if (p->ins[i].kind != AN_INS_STORE) continue;
        an_text_puts(out, "    an_wide_store(");
        words_at(p, i, out);
        an_text_printf(out, ", w%d);\n", i);
    }
    an_text_puts(out, "}\n#define AN_EPILOGUE_READS 1\n"
                      "#define AN_EPILOGUE_BESIDE(row, col) an_epilogue_beside(row, col AN_EPILOGUE_NAMES)\n"
                      "#define AN_EPILOGUE_APPLY(row, col, x, y, z) "
                      "an_epilogue_apply(row, col, x, y, z AN_EPILOGUE_NAMES)\n");
}
