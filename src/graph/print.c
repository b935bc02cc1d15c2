/* print.c: the array as text, one line a node, for people and golden tests.
 *
 *     %7 = MATMUL float32 [256,384] %3 %6
 *     %8 = CONST float32 [] 0.5  ; gpt.h.0.mlp
 *
 * Owns:       the format: id, op, dtype, shape, sources, {attributes}, numbers, then the scope where it changes.
 * Invariant:  the same nodes give the same text on every machine (no addresses, places or hashes).
 */
#include "graph/graph.h"
#include "base/text.h"

#include <inttypes.h>

static void print_attributes(const an_tensor *t, an_text *out)
{
    for (int i = 0; i < t->n_attr; i++)
        an_text_printf(out, "%s%" PRId64 "%s", i ? "," : " {", t->attr[i], i + 1 == t->n_attr ? "}" : "");
}

/* The numbers that an op has: nine digits name every f32. */
static void print_numbers(const an_tensor *t, an_text *out)
{
    int digits = t->dtype == AN_F64 ? 17 : 9;
    bool attention = t->op == AN_OP_ATTENTION || t->op == AN_OP_ATTENTION_GRAD;
    if (t->op == AN_OP_CONST && !an_dtype_is_float((an_dtype)t->dtype))
        an_text_printf(out, " %" PRId64, t->imm_i);
    else if (t->op == AN_OP_CONST || t->op == AN_OP_PAD || attention)
        an_text_printf(out, " %.*g", digits, t->imm[0]);
    if (attention) an_text_printf(out, " %.*g", digits, t->imm[1]);
}

void an_graph_print(const an_graph *g, int32_t from, an_text *out)
{
    char shape[8 * 12 + 3];
    for (int32_t id = from; id < g->n; id++) {
        const an_tensor *t = g->node[id];
        an_text_printf(out, "%%%" PRId32 " = %s %s %s", id, an_ops[t->op].name, an_dtype_name((an_dtype)t->dtype),
                       an_shape_text(t->rank, t->shape, shape, sizeof shape));
        for (int i = 0; i < t->n_src; i++) an_text_printf(out, " %%%" PRId32, t->src[i]);
        print_attributes(t, out);
        print_numbers(t, out);
        if (t->scope != 0) an_text_printf(out, "  ; %s", g->scopes[t->scope]);
        an_text_puts(out, "\n");
    }
}
