/* pt2_fold.c: constant folding at import. See pt2_fold.h. */
#include "import/pt2_fold.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ELEMENTS = 1 << 26 };

/* ---- which values */

/* What is written in place is no constant, nor is what it is a view of. */
static void forbid(const an_pt2_graph *g, const int32_t *maker, bool *forbidden, int32_t id)
{
    while (id >= 0 && !forbidden[id]) {
        forbidden[id] = true;
        const an_pt2_node *n = maker[id] >= 0 ? &g->node[maker[id]] : NULL;
        const int of = !n ? -1 : n->rule->kind == AN_VIEW ? 0 : an_aten_written(n);
        id = of >= 0 && n->arg[of].kind == AN_ARG_TENSOR ? n->arg[of].value : -1;
    }
}

static bool args_constant(const an_pt2_node *n, const bool *constant)
{
    bool all = true;
    for (int i = 0; i < AN_ATEN_MAX_ARGS; i++) {
        const an_pt2_arg *a = &n->arg[i];
        if (a->kind == AN_ARG_TENSOR) all &= constant[a->value];
        for (int32_t k = 0; a->kind == AN_ARG_TENSORS && k < a->n; k++)
            all &= a->values[k] < 0 || constant[a->values[k]];
    }
    return all;
}

/* Value j of a result; -1: a result without a value, -2: past the last. */
static int32_t result_of(const an_pt2_arg *out, int32_t j)
{
    if (out->kind == AN_ARG_TENSORS) return j < out->n ? out->values[j] : -2;
    return out->kind == AN_ARG_TENSOR && j == 0 ? out->value : -2;
}

/* For each value that the node writes. */
#define EACH_RESULT(made, id)                                                                                          \
    for (int32_t k_ = 0; k_ < (made)->n_out; k_++)                                                                     \
        for (int32_t j_ = 0, id = -1; (id = result_of(&(made)->out[k_], j_)) >= -1; j_++)                              \
            if (id >= 0)

static void mark(const an_pt2_graph *g, int32_t *maker, bool *forbidden, bool *constant)
{
    for (int32_t i = 0; i < g->n_values; i++) maker[i] = -1;
    for (int32_t i = 0; i < g->n_nodes; i++) EACH_RESULT(&g->node[i], id) maker[id] = i;
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const an_pt2_node *n = &g->node[i];
        const int written = an_aten_written(n);
        if (written >= 0 && n->arg[written].kind == AN_ARG_TENSOR) forbid(g, maker, forbidden, n->arg[written].value);
    }
    for (int32_t i = 0; i < g->n_inputs; i++) {
        const an_pt2_input *in = &g->input[i];
        if (in->value >= 0 && in->kind == AN_INPUT_CONSTANT) constant[in->value] = !forbidden[in->value];
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const an_pt2_node *n = &g->node[i];
        bool pure = (n->rule->kind == AN_PURE || n->rule->kind == AN_VIEW) && !n->in_place && n->n_out > 0;
        for (int32_t k = 0; k < n->n_out; k++)
            pure &=
                n->out[k].kind == AN_ARG_TENSOR || n->out[k].kind == AN_ARG_TENSORS || n->out[k].kind == AN_ARG_NONE;
        EACH_RESULT(n, id) pure &= !forbidden[id] && !an_pt2_is_complex(g->value[id].torch_dtype);
        if (!pure || !args_constant(n, constant)) continue;
        EACH_RESULT(n, id) constant[id] = true;
    }
}

an_status an_fold_open(an_err *err, const an_pt2_graph *g, an_folder **out)
{
    const size_t n = (size_t)g->n_values + 1;
    an_folder *f = calloc(1, sizeof *f);
    int32_t *maker = calloc(n, sizeof *maker);
    bool *forbidden = calloc(n, sizeof *forbidden);
    *out = f;
    if (f) {
        *f = (an_folder){.g = g, .constant = calloc(n, sizeof(bool)), .value = calloc(n, sizeof(an_known_value))};
    }
    const bool ok = f && maker && forbidden && f->constant && f->value;
    if (ok) mark(g, maker, forbidden, f->constant);
    free(maker);
    free(forbidden);
    return ok ? AN_OK : an_fail_nomem(err, "constants of a graph", n);
}

static void drop(an_folder *f)
{
    for (int32_t i = 0; f->value && i < f->g->n_values; i++) {
        free(f->value[i].data);
        f->value[i] = (an_known_value){0};
    }
}

void an_fold_close(an_folder *f)
{
    if (!f) return;
    drop(f);
    an_close(f->cx);
    free(f->constant);
    free(f->value);
    free(f);
}

void an_fold_begin(an_folder *f, int64_t samples)
{
    if (f->key != samples) drop(f);
    f->key = samples;
}

bool an_fold_skips(const an_build *b, int32_t node)
{
    const an_pt2_node *n = &b->g->node[node];
    bool all = true, any = false;
    EACH_RESULT(n, id)
    {
        all &= b->fold->constant[id];
        any = true;
    }
    return all && any;
}

/* ---- their elements */

/* Marks what `id` is computed from. */
static void need(const an_pt2_graph *g, bool *node, bool *value, int32_t id)
{
    value[id] = true;
    for (int32_t i = g->n_nodes; i-- > 0;) {
        const an_pt2_node *n = &g->node[i];
        bool wanted = false;
        EACH_RESULT(n, r) wanted |= value[r];
        if (!wanted) continue;
        node[i] = true;
        for (int k = 0; k < AN_ATEN_MAX_ARGS; k++) {
            const an_pt2_arg *a = &n->arg[k];
            if (a->kind == AN_ARG_TENSOR) value[a->value] = true;
            for (int32_t j = 0; a->kind == AN_ARG_TENSORS && j < a->n; j++)
                if (a->values[j] >= 0) value[a->values[j]] = true;
        }
    }
}

/* A lifted constant, from the state that holds it. */
static an_status copy_leaf(an_build *b, an_build *inner, const an_pt2_input *in)
{
    const an_built_value *v = &b->value[in->value];
    const an_shape s = an_shape_of(v->t);
    size_t n = 1;
    for (int i = 0; i < s.rank; i++) n *= (size_t)s.dim[i];
    const size_t bytes = n * an_dtype_size(an_dtype_of(v->t));
    void *data = calloc(1, bytes + 1);
    if (!data) return an_fail_nomem(b->err, in->name, bytes);
    const char *state = an_name_of(v->t); /* of a constant with two names the first one's */
    const int at = an_persist_find(b->cx, state ? state : in->name);
    if (at >= 0) (void)an_persist_read(b->cx, at, data, bytes); /* a device that only plans has no values: zeros */
    inner->value[in->value].t = an_input_at(AN_AT, inner->cx, an_dtype_of(v->t), s, data);
    inner->value[in->value].last = v->last;
    free(data);
    return AN_OK;
}

double an_fold_number(const an_known_value *v, int64_t i)
{
    switch (v->dtype) {
    case AN_F32: return (double)((const float *)v->data)[i];
    case AN_F64: return ((const double *)v->data)[i];
    case AN_I32: return (double)((const int32_t *)v->data)[i];
    case AN_BOOL: return (double)((const unsigned char *)v->data)[i];
    default: return NAN;
    }
}

/* Whether element = first + slope * position along one axis. */
static bool is_ramp(an_known_value *v)
{
    int64_t inner = 1;
    if (v->dtype != AN_I32 || v->n < 2) return false;
    for (v->axis = v->shape.rank - 1; v->axis >= 0; inner *= v->shape.dim[v->axis--]) {
        const int64_t length = v->shape.dim[v->axis];
        if (length < 2) continue;
        v->slope = an_fold_number(v, inner) - an_fold_number(v, 0);
        bool all = v->slope != 0;
        for (int64_t i = 0; all && i < v->n; i++)
            all = an_fold_number(v, i) == an_fold_number(v, 0) + v->slope * (double)(i / inner % length);
        if (all) return true;
    }
    return false;
}

static bool is_uniform(const an_known_value *v)
{
    const size_t width = an_dtype_size(v->dtype);
    const char *data = v->data;
    for (int64_t i = 1; i < v->n; i++)
        if (memcmp(data, data + (size_t)i * width, width) != 0) return false;
    return v->n > 0;
}

static an_known_form form_of(an_known_value *v)
{
    if (v->dtype != AN_BF16 && v->dtype != AN_F16 && is_uniform(v)) return AN_KNOWN_NUMBER;
    return is_ramp(v) ? AN_KNOWN_RAMP : AN_KNOWN_ELEMENTS;
}

static an_status read_back(an_build *inner, int32_t id, an_known_value *out)
{
    an_tensor *t = an_value_tensor(inner, id);
    if (!t || an_eval_at(AN_AT, &t, 1) != AN_OK)
        return an_build_refuse(inner, AN_E_UNSUPPORTED, "computed at import: %.300s",
                               an_error(inner->cx) ? an_error(inner->cx) : "no value");
    out->shape = an_shape_of(t);
    out->dtype = an_dtype_of(t);
    out->n = 1;
    for (int i = 0; i < out->shape.rank; i++) out->n *= out->shape.dim[i];
    const size_t bytes = (size_t)out->n * an_dtype_size(out->dtype);
    void *data = out->n <= MOST_ELEMENTS ? malloc(bytes + 1) : NULL;
    if (!data) return an_fail_nomem(inner->err, "a constant", bytes);
    if (out->n > 0 && an_read_at(AN_AT, t, data, bytes) != AN_OK) {
        free(data);
        return an_build_refuse(inner, AN_E_INTERNAL, "a constant cannot be read");
    }
    out->data = data;
    out->form = form_of(out);
    return AN_OK;
}

static an_status compute(an_build *b, int32_t id, bool *node, bool *wanted, an_built_value *values)
{
    const an_pt2_graph *g = b->g;
    an_folder *f = b->fold;
    if (!f->cx) f->cx = an_open(&(an_options){.device = "cpu", .cc = "none", .threads = 1});
    if (!f->cx || an_error(f->cx)) return an_fail_nomem(b->err, "a context for constants", 0);
    an_build inner = *b;
    inner.cx = f->cx;
    inner.fold = NULL;
    inner.value = values;
    need(g, node, wanted, id);
    for (int32_t i = 0; i < g->n_inputs; i++)
        if (g->input[i].value >= 0 && wanted[g->input[i].value]) AN_TRY(copy_leaf(b, &inner, &g->input[i]));
    for (int32_t i = 0; i < g->n_nodes; i++)
        if (node[i]) AN_TRY(an_build_node(&inner, &g->node[i]));
    return read_back(&inner, id, &f->value[id]);
}

const an_known_value *an_fold_value(an_build *b, int32_t id)
{
    an_folder *f = b->fold;
    if (!f || !f->constant[id]) return NULL;
    if (f->value[id].data) return &f->value[id];
    bool *node = calloc((size_t)b->g->n_nodes + 1, sizeof *node), *wanted = calloc((size_t)b->g->n_values + 1, 1);
    an_built_value *values = calloc((size_t)b->g->n_values + 1, sizeof *values);
    an_status status = node && wanted && values ? compute(b, id, node, wanted, values)
                                                : an_fail_nomem(b->err, "constants of a graph", 0);
    if (f->cx) an_reset(f->cx);
    free(node);
    free(wanted);
    free(values);
    return status == AN_OK ? &f->value[id] : NULL;
}

/* ---- as tensors */

void an_fold_emit(an_build *b, int32_t id)
{
    const an_known_value *v = an_fold_value(b, id);
    an_built_value *out = &b->value[id];
    if (!v) {
        out->t = an_full_at(AN_AT, b->cx, AN_F32, AN_SCALAR, 0);
        return;
    }
    switch (v->form) {
    case AN_KNOWN_NUMBER: out->t = an_full_at(AN_AT, b->cx, v->dtype, v->shape, an_fold_number(v, 0)); break;
    case AN_KNOWN_RAMP:
        out->t = an_iota_at(AN_AT, b->cx, v->shape, v->axis);
        if (v->slope != 1) out->t = an_mul_num_at(AN_AT, out->t, v->slope);
        if (an_fold_number(v, 0) != 0) out->t = an_add_num_at(AN_AT, out->t, an_fold_number(v, 0));
        break;
    case AN_KNOWN_ELEMENTS: out->t = an_input_at(AN_AT, b->cx, v->dtype, v->shape, v->data);
    }
    out->last = false;
    out->version++;
}

static bool mask_shows(const an_known_value *v, int64_t i)
{
    return (an_fold_number(v, i) != 0) == (v->dtype == AN_BOOL);
}

/* The last query sees all keys of its window. */
static void look_at_mask(an_known_value *v, int64_t T, int64_t S)
{
    bool all = true, causal = S >= T, sliding = S >= T;
    v->window = 0;
    v->mask = AN_MASK_OTHER;
    for (int64_t j = 0; T > 0 && j < S && T * S <= v->n; j++) v->window += mask_shows(v, (T - 1) * S + j);
    for (int64_t i = 0; i < v->n; i++) {
        const double x = an_fold_number(v, i);
        const bool boolean = v->dtype == AN_BOOL, seen = mask_shows(v, i);
        if (!seen && !boolean && !(x <= -FLT_MAX)) return;
        const int64_t j = i % S, last = i / S % T + S - T;
        all &= seen;
        causal &= seen == (j <= last);
        sliding &= seen == (j <= last && j > last - v->window);
    }
    v->mask = all ? AN_MASK_ALL : causal ? AN_MASK_CAUSAL : sliding && v->window > 0 ? AN_MASK_WINDOW : AN_MASK_OTHER;
}

an_mask an_fold_mask(an_build *b, int32_t id, int64_t T, int64_t S, int64_t *window)
{
    *window = 0;
    if (!an_fold_value(b, id)) return AN_MASK_OTHER;
    an_known_value *v = &b->fold->value[id];
    if (v->shape.rank < 2 || v->shape.dim[v->shape.rank - 1] != S || v->shape.dim[v->shape.rank - 2] != T)
        return AN_MASK_OTHER;
    if (!v->is_looked_at) look_at_mask(v, T, S);
    v->is_looked_at = true;
    if (v->mask == AN_MASK_WINDOW) *window = v->window;
    return v->mask;
}
