/* assign_params.c: assigning to states and parameters.
 *
 * graph/assign.c orders assignments to one leaf. A parameter has two: its own leaf, and the leaf of the block that an
 * optimizer updates as one array. This file keeps their order too:
 *
 *     an_sgd, then an_assign(p, f(p))    f reads p's part of the updated block
 *     an_assign(p, x), then an_sgd       the update starts from the block with x in p's part
 */
#include "runtime/assign_params.h"

#include "runtime/param_blocks.h"
#include "runtime/variables.h"

#include <stdlib.h>
#include <string.h>

/* The node of an assigned value. */
static an_tensor *assigned(an_ctx *cx, int32_t assign)
{
    return cx->graph.node[cx->graph.node[assign]->src[1]];
}

/* `value` of a parameter's leaf `s`: where it reads the parameter and an optimizer has updated it, it reads the update. */
static an_tensor *value_after_update(an_ctx *cx, an_tensor *s, an_tensor *value, const char *at)
{
    if (s->attr[0] != AN_LEAF_PARAM) return value;
    const an_param_info *p = &cx->param[s->attr[1]];
    const an_tensor *array = p->block >= 0 ? cx->block[p->block].tensor[AN_ROLE_PARAM] : NULL;
    const int32_t update = array ? an_graph_last_assign(&cx->graph, array) : -1;
    if (update < 0 || an_graph_last_assign(&cx->graph, s) > update) return value;
    const int64_t first = p->offset / (int64_t)an_dtype_bytes((an_dtype)s->dtype);
    an_tensor *part = an_slice_at(at, assigned(cx, update), 0, first, first + s->numel, 1);
    part = an_reshape_at(at, part, an_shape_of(s));
    return part->poison ? part : an_graph_substitute(&cx->graph, value, s, part);
}

an_tensor *an_block_params(an_ctx *cx, int b, const char *at)
{
    const an_block *bl = &cx->block[b];
    an_tensor *array = an_block_tensor(cx, b, AN_ROLE_PARAM, NULL), *part[2 * 255 + 1];
    int n = 0;
    int64_t done = 0; /* elements of the block in part[0 .. n) */
    for (int i = 0; i < bl->n; i++) {
        const an_param_info *p = &cx->param[bl->param[i]];
        const int32_t assign = an_graph_last_assign(&cx->graph, p->tensor);
        if (assign < 0 || !p->tensor->numel) continue;
        const int64_t first = p->offset / (int64_t)an_dtype_bytes(bl->dtype);
        if (first > done) part[n++] = an_slice_at(at, array, 0, done, first, 1);
        part[n++] = an_reshape_at(at, assigned(cx, assign), AN_SHAPE(p->tensor->numel));
        done = first + p->tensor->numel;
    }
    if (n == 0) return array;
    if (done < bl->numel) part[n++] = an_slice_at(at, array, 0, done, bl->numel, 1);
    return n == 1 ? part[0] : an_concat_at(at, part, n, 0);
}

/* Whether this rank has a part of parameter leaf `s`. */
static bool is_in_parts(const an_ctx *cx, const an_tensor *s)
{
    const int32_t b = cx->param[s->attr[1]].block;
    return b >= 0 && an_block_in_parts(cx, b, AN_ROLE_PARAM);
}

void an_assign_at(const char *at, an_tensor *state, an_tensor *value)
{
    an_graph *g = state && state->g ? state->g : value ? value->g : NULL;
    if (!g) return; /* of no context: there is none to tell */
    an_ctx *cx = g->owner;
    an_tensor *s = an_use(&cx->graph, state, at, "an_assign"), *v = an_use(&cx->graph, value, at, "an_assign");
    if (!s->poison && !v->poison && state->narrow && v->dtype == AN_F32) {
        s = an_use_leaf(&cx->graph, state, at);
        v = an_cast_at(at, v, (an_dtype)state->dtype);
    }
    if (s->poison || v->poison) return;
    if (s->op == AN_OP_LEAF && s->attr[0] == AN_LEAF_STATE && cx->state[s->attr[1]].data) {
        an_poison(&cx->graph, AN_E_USAGE, at, "an_assign: the target is a constant; what changes is an an_state");
        return;
    }
    if (s->op == AN_OP_LEAF && s->attr[0] == AN_LEAF_STATE &&
        cx->store[cx->state[s->attr[1]].store].bound == AN_BOUND) {
        an_poison(&cx->graph, AN_E_USAGE, at, "an_assign: \"%s\" is bound to memory that may only be read",
                  an_name_of(state));
        return;
    }
    if (an_why_params_are_fixed(cx) && s->op == AN_OP_LEAF && s->attr[0] == AN_LEAF_PARAM) {
        an_poison(&cx->graph, AN_E_USAGE, at, "an_assign: \"%s\" cannot change: %s", an_name_of(state),
                  an_why_params_are_fixed(cx));
        return;
    }
    if (s->op == AN_OP_LEAF && s->attr[0] == AN_LEAF_PARAM && is_in_parts(cx, s)) {
        an_poison(&cx->graph, AN_E_UNSUPPORTED, at,
                  "an_assign: each rank holds a part of \"%s\": optimizers alone change it", an_name_of(state));
        return;
    }
    if (s->op != AN_OP_LEAF || s->attr[0] == AN_LEAF_INPUT || s->attr[0] == AN_LEAF_SCALAR) {
        char shape[128];
        an_poison(&cx->graph, AN_E_USAGE, at,
                  "an_assign: the target is the result of %s, %s %s; it must be a state or parameter",
                  an_ops[s->op].name, an_dtype_name((an_dtype)s->dtype),
                  an_shape_text(s->rank, s->shape, shape, sizeof shape));
        return;
    }
    if (s->dtype != v->dtype || s->rank != v->rank || memcmp(s->shape, v->shape, sizeof *s->shape * s->rank)) {
        char have[128], got[128];
        const char *name = an_name_of(state);
        bool shapes = s->rank != v->rank || memcmp(s->shape, v->shape, sizeof *s->shape * s->rank);
        an_poison(&cx->graph, shapes ? AN_E_SHAPE : AN_E_DTYPE, at, "an_assign: \"%s\" is %s %s; it cannot take %s %s",
                  name ? name : "a block", an_dtype_name((an_dtype)s->dtype),
                  an_shape_text(s->rank, s->shape, have, sizeof have), an_dtype_name((an_dtype)v->dtype),
                  an_shape_text(v->rank, v->shape, got, sizeof got));
        return;
    }
    v = value_after_update(cx, s, v, at);
    if (!v->poison) an_graph_assign(&cx->graph, s, v, at);
}
