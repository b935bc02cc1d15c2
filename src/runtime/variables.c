/* variables.c: declaring parameters and states, and this step's inputs and scalars.
 *
 * Owns:     the tables cx->param, state, input, scalar, and the checks of what the caller gives.
 * Does not: lay out parameters (param_blocks.c), allocate or initialize them (stores.c).
 */
#include "runtime/variables.h"

#include "base/text.h"

#include <anneal_decode.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int32_t an_store_new(an_ctx *cx, int64_t bytes, an_usage usage, const char *name)
{
    if (!an_grow((void **)&cx->store, cx->n_stores, &cx->cap_stores, sizeof *cx->store)) {
        an_fail_nomem(&cx->err, name, (size_t)bytes);
        return -1;
    }
    cx->store[cx->n_stores] = (an_store){.bytes = bytes, .usage = usage, .name = name};
    return cx->n_stores++;
}

/* A public shape as the graph has it; false (and a recorded sentence) when it is none. */
static bool take_shape(an_ctx *cx, const char *at, const char *what, an_shape s, int32_t *out, int64_t *numel)
{
    *numel = 1;
    if (s.rank < 0 || s.rank > AN_MAX_RANK) {
        an_poison(&cx->graph, AN_E_SHAPE, at, "%s: rank %d is not between 0 and %d", what, s.rank, AN_MAX_RANK);
        return false;
    }
    for (int i = 0; i < s.rank; i++) {
        if (s.dim[i] < 0 || s.dim[i] > INT32_MAX || (s.dim[i] && *numel > INT64_MAX / 16 / s.dim[i])) {
            an_poison(&cx->graph, AN_E_SHAPE, at,
                      "%s: axis %d has length %lld; lengths are 0 to 2147483647 and their product must be addressable",
                      what, i, (long long)s.dim[i]);
            return false;
        }
        out[i] = (int32_t)s.dim[i];
        *numel *= s.dim[i];
    }
    return true;
}

/* ---------------------------------------------------------------------------------------------- parameters and states */

static an_tensor *same_again(an_ctx *cx, const char *at, const char *what, const char *name, an_tensor *t,
                             an_dtype dtype, int rank, const int32_t *shape)
{
    if (t->dtype == dtype && t->rank == rank && !memcmp(t->shape, shape, sizeof *shape * (size_t)rank)) return t;
    char have[128], want[128];
    return an_poison(&cx->graph, AN_E_SHAPE, at, "%s: \"%s\" is %s %s already; it cannot also be %s %s", what, name,
                     an_dtype_name((an_dtype)t->dtype), an_shape_text(t->rank, t->shape, have, sizeof have),
                     an_dtype_name(dtype), an_shape_text(rank, shape, want, sizeof want));
}

/* Is `name` free for a new parameter (`what`) or state? Both are found by name in a checkpoint, and so are moments. */
static bool check_name(an_ctx *cx, const char *at, const char *what, const char *name)
{
    const bool param = !strcmp(what, "an_param");
    bool taken = false;
    for (int i = 0; !param && i < cx->n_params; i++) taken |= !strcmp(cx->param[i].name, name);
    for (int i = 0; param && i < cx->n_states; i++) taken |= !strcmp(cx->state[i].name, name);
    if (taken)
        an_poison(&cx->graph, AN_E_USAGE, at, "%s: \"%s\" is a %s already; give one of them another name", what, name,
                  param ? "state" : "parameter");
    const bool moment =
        !strncmp(name, "optimizer.m.", 12) || !strncmp(name, "optimizer.v.", 12) || !strncmp(name, "ema.", 4);
    if (moment && !taken)
        an_poison(
            &cx->graph, AN_E_USAGE, at,
            "%s: \"%s\": names that begin with optimizer.m., optimizer.v. and ema. are those of moments and averages; "
            "choose another",
            what, name);
    return !taken && !moment;
}

static bool check_init(an_ctx *cx, const char *at, const char *what, const char *name, an_dtype dtype, an_init init)
{
    const bool random = init.kind >= 2;
    if (init.kind < 0 || init.kind > 4)
        an_poison(&cx->graph, AN_E_USAGE, at,
                  "%s: \"%s\": %d is no kind of initial values; use AN_ZEROS, AN_ONES, AN_FILL, AN_NORMAL, "
                  "AN_UNIFORM or AN_TRUNC_NORMAL",
                  what, name, init.kind);
    else if (random && (!isfinite(init.a) || !isfinite(init.b)))
        an_poison(&cx->graph, AN_E_USAGE, at,
                  "%s: \"%s\": initial values are drawn with %g and %g, which must be finite", what, name, init.a,
                  init.b);
    else if (init.kind == 3 && init.b < init.a)
        an_poison(&cx->graph, AN_E_USAGE, at,
                  "%s: \"%s\": initial values are drawn from [%g, %g), which ends before it begins", what, name, init.a,
                  init.b);
    else if (random && init.kind != 3 && init.a < 0)
        an_poison(&cx->graph, AN_E_USAGE, at,
                  "%s: \"%s\": initial values are drawn with a standard deviation of %g; 0 or more is needed", what,
                  name, init.a);
    else if (init.kind == 1 && !an_number_fits(dtype, init.a))
        an_poison(&cx->graph, AN_E_DTYPE, at, "%s: \"%s\": %g is no %s: round the number, or make it a float", what,
                  name, init.a, an_dtype_name(dtype));
    else
        return true;
    return false;
}

an_tensor *an_param_at(const char *at, an_ctx *cx, const char *name, an_dtype dtype, an_shape s, an_init init)
{
    int32_t shape[AN_MAX_RANK];
    int64_t numel;
    if (!cx) return NULL;
    const bool narrow = cx->graph.narrow_weights && dtype == AN_F32 && s.rank >= 2;
    if (!name || !*name) return an_poison(&cx->graph, AN_E_USAGE, at, "an_param: a parameter needs a name");
    if (!take_shape(cx, at, "an_param", s, shape, &numel)) return cx->graph.poison;
    if (!an_dtype_is_float(dtype))
        return an_poison(&cx->graph, AN_E_DTYPE, at,
                         "an_param: \"%s\" is %s; parameters are float32, float64, bfloat16 or float16", name,
                         an_dtype_name(dtype));
    if (narrow) dtype = AN_BF16;
    for (int i = 0; i < cx->n_params; i++)
        if (!strcmp(cx->param[i].name, name))
            return same_again(cx, at, "an_param", name, cx->param[i].tensor, dtype, s.rank, shape);
    if (!check_name(cx, at, "an_param", name) || !check_init(cx, at, "an_param", name, dtype, init))
        return cx->graph.poison;
    an_param_info p = {.name = an_arena_strdup(&cx->forever, name), .init = init, .decay = s.rank >= 2, .block = -1};
    p.tensor = p.name ? an_persistent(&cx->graph, AN_LEAF_PARAM, cx->n_params, dtype, s.rank, shape) : NULL;
    if (!p.tensor || p.tensor->poison || !an_grow((void **)&cx->param, cx->n_params, &cx->cap_params, sizeof p)) {
        an_fail_nomem(&cx->err, name, (size_t)numel * an_dtype_bytes(dtype));
        return cx->graph.poison;
    }
    p.tensor->narrow = narrow;
    cx->param[cx->n_params++] = p;
    return p.tensor;
}

an_tensor *an_state_at(const char *at, an_ctx *cx, const char *name, an_dtype dtype, an_shape s, an_init init)
{
    int32_t shape[AN_MAX_RANK];
    int64_t numel;
    if (!cx) return NULL;
    if (!name || !*name) return an_poison(&cx->graph, AN_E_USAGE, at, "an_state: a state needs a name");
    if ((unsigned)dtype >= AN_N_DTYPES)
        return an_poison(&cx->graph, AN_E_DTYPE, at, "an_state: %d is no dtype", (int)dtype);
    if (!take_shape(cx, at, "an_state", s, shape, &numel)) return cx->graph.poison;
    for (int i = 0; i < cx->n_states; i++)
        if (!strcmp(cx->state[i].name, name))
            return same_again(cx, at, "an_state", name, cx->state[i].tensor, dtype, s.rank, shape);
    if (!check_name(cx, at, "an_state", name) || !check_init(cx, at, "an_state", name, dtype, init))
        return cx->graph.poison;
    an_state_info st = {.name = an_arena_strdup(&cx->forever, name), .init = init, .store = -1};
    st.tensor = st.name ? an_persistent(&cx->graph, AN_LEAF_STATE, cx->n_states, dtype, s.rank, shape) : NULL;
    if (st.tensor && !st.tensor->poison)
        st.store = an_store_new(cx, numel * (int64_t)an_dtype_bytes(dtype), AN_USE_STATE, st.name);
    if (st.store < 0 || !an_grow((void **)&cx->state, cx->n_states, &cx->cap_states, sizeof st)) {
        an_fail_nomem(&cx->err, name, (size_t)numel * an_dtype_bytes(dtype));
        return cx->graph.poison;
    }
    cx->state[cx->n_states++] = st;
    return st.tensor;
}

/* Finds the constant of these bytes; -1. */
static int constant_of(const an_ctx *cx, an_dtype dtype, int rank, const int32_t *shape, const void *data, size_t bytes)
{
    for (int i = 0; i < cx->n_states; i++) {
        const an_tensor *t = cx->state[i].tensor;
        if (cx->state[i].data && t->dtype == dtype && t->rank == rank &&
            !memcmp(t->shape, shape, sizeof *shape * (size_t)rank) && !memcmp(cx->state[i].data, data, bytes))
            return i;
    }
    return -1;
}

an_tensor *an_constant_at(const char *at, an_ctx *cx, an_dtype dtype, an_shape s, const void *data)
{
    int32_t shape[AN_MAX_RANK];
    int64_t numel;
    char name[32];
    if (!cx) return NULL;
    if (!take_shape(cx, at, "an_constant", s, shape, &numel)) return cx->graph.poison;
    if ((unsigned)dtype >= AN_N_DTYPES || (!data && numel))
        return an_poison(&cx->graph, AN_E_USAGE, at, "an_constant: %s",
                         data ? "the dtype is none" : "data is NULL; a constant has its values from the start");
    if (!numel) return an_full_at(at, cx, dtype, s, 0);
    const size_t bytes = (size_t)numel * an_dtype_bytes(dtype);
    const int found = constant_of(cx, dtype, s.rank, shape, data, bytes);
    if (found >= 0) return cx->state[found].tensor;
    void *copy = an_arena_copy(&cx->forever, data, bytes);
    snprintf(name, sizeof name, "constant %d", cx->n_states);
    an_tensor *t = copy ? an_state_at(at, cx, name, dtype, s, AN_ZEROS) : NULL;
    if (!copy) an_fail_nomem(&cx->err, "a constant", bytes);
    if (!t || t->poison) return cx->graph.poison;
    cx->state[cx->n_states - 1].data = copy;
    return t;
}

static an_param_info *param_of(an_tensor *p)
{
    if (!p || p->poison) return NULL;
    an_ctx *cx = p->g->owner;
    for (int i = 0; i < cx->n_params; i++)
        if (cx->param[i].tensor == p) return &cx->param[i];
    return NULL;
}

static void set_flag(an_tensor *p, const char *what, bool *flag, bool value)
{
    an_param_info *i = param_of(p);
    an_ctx *cx = p->g->owner;
    if (i->block >= 0 && *flag != value)
        an_fail(&cx->err, AN_E_USAGE, "%s: \"%s\" has its place already; say so before the first an_eval or optimizer",
                what, i->name);
    *flag = value;
}

void an_param_decay(an_tensor *p, bool decay)
{
    an_param_info *i = param_of(p);
    if (i) set_flag(p, "an_param_decay", &i->decay, decay);
}

void an_param_freeze(an_tensor *p, bool frozen)
{
    an_param_info *i = param_of(p);
    if (i) set_flag(p, "an_param_freeze", &i->frozen, frozen);
}

int an_params_decay(an_ctx *cx, const char *globs, bool decay)
{
    int n = 0;
    for (int i = 0; cx && globs && i < cx->n_params; i++)
        if (an_glob_list(globs, cx->param[i].name)) an_param_decay(cx->param[i].tensor, decay), n++;
    return n;
}

int an_params_freeze(an_ctx *cx, const char *globs, bool frozen)
{
    int n = 0;
    for (int i = 0; cx && globs && i < cx->n_params; i++)
        if (an_glob_list(globs, cx->param[i].name)) an_param_freeze(cx->param[i].tensor, frozen), n++;
    return n;
}

const char *an_name_of(const an_tensor *t)
{
    if (!t || t->poison) return NULL;
    an_ctx *cx = t->g->owner;
    for (int i = 0; i < cx->n_params; i++)
        if (cx->param[i].tensor == t) return cx->param[i].name;
    for (int i = 0; i < cx->n_states; i++)
        if (cx->state[i].tensor == t) return cx->state[i].name;
    return NULL;
}

/* ---------------------------------------------------------------------------------------------- this step's data */

static an_tensor *leaf(an_ctx *cx, const char *at, an_leaf kind, int index, an_dtype dtype, int rank,
                       const int32_t *shape)
{
    int64_t attr[2] = {kind, index};
    return an_emit(
        &cx->graph,
        &(an_emit_args){
            .op = AN_OP_LEAF, .dtype = dtype, .rank = rank, .shape = shape, .n_attr = 2, .attr = attr, .at = at});
}

static an_tensor *input(const char *at, an_ctx *cx, an_dtype dtype, an_shape s, const void *data, bool lent)
{
    int32_t shape[AN_MAX_RANK];
    int64_t numel;
    if (!cx) return NULL;
    if (!take_shape(cx, at, "an_input", s, shape, &numel)) return cx->graph.poison;
    if ((unsigned)dtype >= AN_N_DTYPES)
        return an_poison(&cx->graph, AN_E_DTYPE, at, "an_input: %d is no dtype", (int)dtype);
    size_t bytes = (size_t)numel * an_dtype_bytes(dtype);
    const bool none = !data && numel; /* to be planned with, not run */
    lent &= numel > 0;
    void *copy = none   ? NULL
                 : lent ? (void *)(uintptr_t)data
                        : an_arena_copy(&cx->step, numel ? data : "", numel ? bytes : 1);
    if ((!copy && !none) || !an_grow((void **)&cx->input, cx->n_inputs, &cx->cap_inputs, sizeof *cx->input)) {
        an_fail_nomem(&cx->err, "an input", bytes);
        return cx->graph.poison;
    }
    cx->input[cx->n_inputs] = (an_input_info){copy, bytes, at, lent};
    return leaf(cx, at, AN_LEAF_INPUT, cx->n_inputs++, dtype, s.rank, shape);
}

an_tensor *an_input_at(const char *at, an_ctx *cx, an_dtype dtype, an_shape s, const void *data)
{
    return input(at, cx, dtype, s, data, false);
}

an_tensor *an_input_lent_at(const char *at, an_ctx *cx, an_dtype dtype, an_shape s, const void *data)
{
    return input(at, cx, dtype, s, data, true);
}

static an_tensor *scalar(const char *at, an_ctx *cx, double x, an_dtype dtype)
{
    if (!cx) return NULL;
    int32_t cap = cx->cap_scalars;
    if (!an_grow((void **)&cx->scalar, cx->n_scalars, &cap, sizeof *cx->scalar) ||
        !an_grow((void **)&cx->scalar_dtype, cx->n_scalars, &cx->cap_scalars, sizeof *cx->scalar_dtype)) {
        an_fail_nomem(&cx->err, "a scalar", sizeof x);
        return cx->graph.poison;
    }
    cx->scalar[cx->n_scalars] = x;
    cx->scalar_dtype[cx->n_scalars] = (uint8_t)dtype;
    return leaf(cx, at, AN_LEAF_SCALAR, cx->n_scalars++, dtype, 0, NULL);
}

an_tensor *an_scalar_at(const char *at, an_ctx *cx, double x)
{
    return scalar(at, cx, x, AN_F32);
}

an_tensor *an_scalar_i32_at(const char *at, an_ctx *cx, int32_t x)
{
    return scalar(at, cx, x, AN_I32);
}

an_tensor *an_scalar_f64_at(const char *at, an_ctx *cx, double x)
{
    return scalar(at, cx, x, AN_F64);
}

/* The index of the leaf that `t` is in this step; -1: it is none of this kind, and *status says why. */
static int leaf_index(an_tensor *t, an_leaf kind, const char *who, an_status *status)
{
    *status = AN_E_USAGE;
    if (!t || !t->g) return -1;
    an_ctx *cx = t->g->owner;
    *status = cx->err.code;
    if (*status) return -1;
    const an_tensor *node = an_use(&cx->graph, t, NULL, who);
    if (!node->poison && node->op == AN_OP_LEAF && node->attr[0] == kind) return (int)node->attr[1];
    *status = node->poison ? cx->err.code
                           : an_fail(&cx->err, AN_E_USAGE, "%s: the tensor is not of an_%s", who,
                                     kind == AN_LEAF_INPUT ? "input" : "scalar, an_scalar_f64 or an_scalar_i32");
    return -1;
}

an_status an_set_scalar(an_tensor *t, double x)
{
    an_status status;
    const int i = leaf_index(t, AN_LEAF_SCALAR, "an_set_scalar", &status);
    if (i < 0) return status;
    an_ctx *cx = t->g->owner;
    cx->scalar[i] = x;
    return AN_OK;
}

an_status an_set_input(an_tensor *t, const void *data)
{
    an_status status;
    const int i = leaf_index(t, AN_LEAF_INPUT, "an_set_input", &status);
    if (i < 0) return status;
    an_ctx *cx = t->g->owner;
    an_input_info *in = &cx->input[i];
    if (in->lent && data && in->data) {
        void *own = an_arena_alloc(&cx->step, in->bytes);
        if (!own) return an_fail_nomem(&cx->err, "an input", in->bytes);
        in->data = own;
        in->lent = false;
    }
    if (in->bytes && (!data || !in->data))
        return an_fail(&cx->err, AN_E_USAGE, "an_set_input: %s",
                       data ? "the input was made without data" : "data is NULL");
    if (in->bytes) memcpy(in->data, data, in->bytes);
    return AN_OK;
}

size_t an_scalar_bytes(const an_ctx *cx, int i, void *out)
{
    const double x = cx->scalar[i];
    const float f = (float)x;
    const int32_t n = cx->scalar_dtype[i] == AN_I32 ? (int32_t)x : 0;
    const size_t bytes = an_dtype_bytes((an_dtype)cx->scalar_dtype[i]);
    memcpy(out,
           cx->scalar_dtype[i] == AN_F64   ? (const void *)&x
           : cx->scalar_dtype[i] == AN_I32 ? (const void *)&n
                                           : &f,
           bytes);
    return bytes;
}

const char *an_why_params_are_fixed(const an_ctx *cx)
{
    if (cx->averages) return "averages are read in place of the parameters now; call an_use_averages(cx, false) first";
    return cx->rounded ? "weights are read as an_round_weights keeps them; call an_round_weights(cx, false) first"
                       : NULL;
}
