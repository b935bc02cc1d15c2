/* rule_backward.c: operations that PyTorch's autograd leaves in a graph: the gradient of another operation.
 *
 * Each builds the operation itself, as its own rule does, and takes the gradient of sum(result * given): so there is one
 * specification of both. What is then not read, often the operation itself, is never computed.
 *
 * Invariant: an argument that is differentiated does not depend on another argument: the gradient would also contain the
 * path through that one. Where the operation is linear in the argument, its value is not needed: a placeholder node, which
 * is never evaluated, takes its place. */
#include "import/rules.h"
#include <string.h>

enum { MOST = 4 };

/* The gradient of which operation, and the place of each of its arguments in this one's; -1 is None. */
typedef struct origin {
    const char *target;
    an_aten_rule *rule;
    signed char arg[AN_ATEN_MAX_ARGS];
} origin;

/* A value of x's shape and dtype that is a variable: x itself plus 0, or with `linear` 0. */
static an_tensor *variable(an_build *b, an_tensor *x, bool linear)
{
    an_tensor *zero = an_as(an_expand_at(AN_AT, an_scalar_at(AN_AT, b->cx, 0), an_shape_of(x)), an_dtype_of(x));
    return linear ? zero : an_add_at(AN_AT, an_detach_at(AN_AT, x), zero);
}

static bool reads(const an_pt2_node *n, const bool *wanted)
{
    for (int k = 0; k < n->n_out; k++) {
        if (n->out[k].kind == AN_ARG_TENSOR && wanted[n->out[k].value]) return true;
        for (int i = 0; n->out[k].kind == AN_ARG_TENSORS && i < n->out[k].n; i++)
            if (n->out[k].values[i] >= 0 && wanted[n->out[k].values[i]]) return true;
    }
    return false;
}

/* Whether value `id` is computed from value `from`, or is the same. */
static bool depends(const an_build *b, int32_t id, int32_t from, bool *wanted)
{
    memset(wanted, 0, (size_t)b->g->n_values * sizeof *wanted);
    wanted[id] = true;
    for (int32_t i = b->g->n_nodes; i-- > 0;) {
        const an_pt2_node *n = &b->g->node[i];
        if (!reads(n, wanted)) continue;
        for (int k = 0; k < n->n_in; k++) {
            if (n->in[k].kind == AN_ARG_TENSOR) wanted[n->in[k].value] = true;
            for (int j = 0; n->in[k].kind == AN_ARG_TENSORS && j < n->in[k].n; j++)
                if (n->in[k].values[j] >= 0) wanted[n->in[k].values[j]] = true;
        }
    }
    return wanted[from];
}

/* Of the arguments of `n` at places x[0 .. count): whether one of them depends on another. */
static an_status related(const an_build *b, const an_pt2_node *n, const int *x, int count, bool *out)
{
    an_arena arena = {0};
    bool *wanted = AN_NEW_ARRAY(&arena, bool, b->g->n_values + 1);
    *out = false;
    for (int i = 0; wanted && i < count; i++)
        for (int k = 0; k < count; k++)
            if (i != k) *out |= depends(b, n->arg[x[i]].value, n->arg[x[k]].value, wanted);
    an_arena_free(&arena);
    return wanted ? AN_OK : an_fail_nomem(b->err, "an operation's gradient", 0);
}

/* Whether the argument at place x[k] is the value of an earlier one, whose gradient is then that of both: autograd adds
 * them, so this one's part is 0. */
static bool same_before(const an_pt2_node *n, const int *x, int k)
{
    for (int j = 0; j < k; j++)
        if (n->arg[x[j]].value == n->arg[x[k]].value) return true;
    return false;
}

/* Gradients of the arguments at places x[0 .. count) of `n`, in the orders of axes of the values x are; the gradient of the
 * result is argument 0 of `n`, and `scratch` a value to build the result in. */
static an_status gradients(an_build *b, const an_pt2_node *n, const origin *o, const int *x, int count, bool linear,
                           an_built_value grad[MOST])
{
    an_pt2_arg arg[AN_ATEN_MAX_ARGS] = {{0}}, result = {.kind = AN_ARG_TENSOR, .value = -1};
    an_built_value kept[AN_ATEN_MAX_ARGS], was;
    an_tensor *given = an_detach_at(AN_AT, an_in(b, n, 0));
    bool apart = false;
    for (int k = 0; k < n->n_out && result.value < 0; k++)
        if (an_out_used(n, k)) result.value = n->out[k].value;
    if (result.value < 0) return AN_OK;
    if (!linear) AN_TRY(related(b, n, x, count, &apart));
    an_pt2_node f = {
        .target = o->target, .module = n->module, .place = n->place, .n_out = 1, .out = &result, .arg = arg};
    for (int i = 0; i < AN_ATEN_MAX_ARGS; i++) {
        arg[i] = o->arg[i] < 0 ? (an_pt2_arg){.kind = AN_ARG_NONE, .number = {.symbol = -1}} : n->arg[o->arg[i]];
        if (arg[i].kind == AN_ARG_TENSOR) kept[i] = an_in_value(b, &f, i);
    }
    for (int i = 0; i < AN_ATEN_MAX_ARGS; i++) {
        if (arg[i].kind != AN_ARG_TENSOR) continue;
        an_built_value *v = an_build_get(b, arg[i].value);
        bool varies = false;
        v->once = NULL; /* the gradient is asked of v->t */
        for (int k = 0; k < count; k++)
            if (x[k] == o->arg[i]) varies = true;
        if (varies && (linear || apart))
            v->t = variable(b, kept[i].t, linear);
        else if (!varies)
            v->t = an_detach_at(AN_AT, kept[i].t);
    }
    was = b->value[result.value];
    an_status status = o->rule(b, &f);
    an_tensor *y = status == AN_OK ? an_value_tensor(b, result.value) : NULL;
    if (y) {
        given = an_as(given, an_dtype_of(an_widen(y)));
        an_backward_at(AN_AT, an_sum_at(AN_AT, an_mul_at(AN_AT, an_widen(y), given), AN_ALL, false));
    }
    for (int k = 0; k < count && y; k++) {
        grad[k] = *an_build_get(b, n->arg[x[k]].value);
        grad[k].t = same_before(n, x, k) ? NULL : an_grad(grad[k].t);
    }
    b->value[result.value] = was;
    for (int i = AN_ATEN_MAX_ARGS; i-- > 0;)
        if (arg[i].kind == AN_ARG_TENSOR) b->value[arg[i].value] = kept[i];
    return status;
}

static void give(an_build *b, const an_pt2_node *n, int k, const an_built_value *g, int like)
{
    an_tensor *t = g->t;
    if (!an_out_used(n, k)) return;
    if (!t) { /* the result does not depend on it */
        const an_built_value v = an_in_value(b, n, like);
        an_out_last(b, n, k, an_full_at(AN_AT, b->cx, an_dtype_of(v.t), an_shape_of(v.t), 0), v.last);
        return;
    }
    an_out_last(b, n, k, t, g->last);
}

/* Convolutions read and write channels last: so shall the value be that their gradient is for. */
static void make_last(an_build *b, const an_pt2_node *n, int i)
{
    an_built_value *v = an_build_get(b, n->arg[i].value);
    if (v->last || an_shape_of(v->t).rank < 3) return;
    v->t = an_last(v->t);
    v->last = true;
}

/* grad_output input weight bias_sizes stride padding dilation transposed output_padding groups output_mask */
an_status an_rule_convolution_backward(an_build *b, const an_pt2_node *n)
{
    static const origin o = {"aten.convolution.default",
                             an_rule_convolution,
                             {1, 2, -1, 4, 5, 6, 7, 8, 9, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}};
    an_built_value g[MOST] = {{0}};
    if (an_rank(an_in(b, n, 1)) != an_rank(an_in(b, n, 2)))
        return an_build_refuse(b, AN_E_UNSUPPORTED, "an input without a batch");
    if (n->arg[1].value == n->arg[2].value)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "one tensor as input and weight");
    if (an_in_value(b, n, 0).last || an_in_bool(b, n, 7) || !an_conv_is_by_planes(b, n, 1, 4, 5, 9)) {
        make_last(b, n, 1);
        make_last(b, n, 0);
    }
    for (int k = 0; k < 2; k++) { /* bilinear: two gradients, each with the other argument fixed */
        const int x[1] = {k + 1};
        if (!an_out_used(n, k)) continue;
        AN_TRY(gradients(b, n, &o, x, 1, true, g));
        give(b, n, k, &g[0], k + 1);
    }
    if (!an_out_used(n, 2)) return AN_OK;
    const an_built_value given = an_in_value(b, n, 0);
    const int rank = an_rank(given.t), channels = given.last ? rank - 1 : 1;
    const an_axes axes = (an_axes)((1u << rank) - 1) & ~AN_AXIS(channels);
    an_out(b, n, 2, an_as(an_sum_at(AN_AT, an_widen(given.t), axes, false), an_dtype_of(given.t)));
    return AN_OK;
}

static an_status of_input(an_build *b, const an_pt2_node *n, const origin *o, bool linear)
{
    an_built_value g[MOST] = {{0}};
    const int x[1] = {1};
    AN_TRY(gradients(b, n, o, x, 1, linear, g));
    give(b, n, 0, &g[0], 1);
    return AN_OK;
}

/* grad_output self kernel_size stride padding dilation ceil_mode indices: the positions are found again */
an_status an_rule_max_pool_backward(an_build *b, const an_pt2_node *n)
{
    static const origin o = {"aten.max_pool2d.default", an_rule_max_pool, {1,  2,  3,  4,  5,  6,  -1, -1,
                                                                           -1, -1, -1, -1, -1, -1, -1, -1,
                                                                           -1, -1, -1, -1, -1, -1, -1, -1}};
    make_last(b, n, 1);
    return of_input(b, n, &o, false);
}

/* grad_output self kernel_size stride padding ceil_mode count_include_pad divisor_override */
an_status an_rule_avg_pool_backward(an_build *b, const an_pt2_node *n)
{
    static const origin o = {"aten.avg_pool2d.default",
                             an_rule_avg_pool,
                             {1, 2, 3, 4, 5, 6, 7, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}};
    make_last(b, n, 1);
    return of_input(b, n, &o, true);
}

#define NONE8 -1, -1, -1, -1, -1, -1, -1, -1
/* grad_output self kernel_size stride padding dilation ceil_mode indices */
an_status an_rule_max_pool3d_backward(an_build *b, const an_pt2_node *n)
{
    static const origin o = {"aten.max_pool3d.default", an_rule_max_pool3d, {1, 2, 3, 4, 5, 6, -1, -1, NONE8, NONE8}};
    return of_input(b, n, &o, false);
}

/* grad_output self kernel_size stride padding ceil_mode count_include_pad divisor_override */
an_status an_rule_avg_pool3d_backward(an_build *b, const an_pt2_node *n)
{
    static const origin o = {"aten.avg_pool3d.default", an_rule_avg_pool3d, {1, 2, 3, 4, 5, 6, 7, -1, NONE8, NONE8}};
    return of_input(b, n, &o, true);
}

/* grad_output self padding */
an_status an_rule_replicate_backward(an_build *b, const an_pt2_node *n)
{
    static const origin o = {
        "aten.replication_pad.default", an_rule_pad_replicate, {1, 2, -1, -1, -1, -1, -1, -1, NONE8, NONE8}};
    return of_input(b, n, &o, true);
}

/* grad_output self, of a pool to as many elements as grad_output has along its last `axes` axes. */
static an_status of_adaptive(an_build *b, const an_pt2_node *n, const origin *o, int axes, bool linear)
{
    an_pt2_arg arg[AN_ATEN_MAX_ARGS];
    an_pt2_number size[3] = {{0}};
    const an_shape s = an_shape_of(an_in(b, n, 0));
    if (s.rank < axes) return an_build_refuse(b, AN_E_IO, "of %d axes; the file is damaged", s.rank);
    for (int i = 0; i < axes; i++) {
        const int64_t length = s.dim[s.rank - axes + i];
        size[i] = (an_pt2_number){.i = length, .f = (double)length, .symbol = -1};
    }
    memcpy(arg, n->arg, sizeof arg);
    arg[AN_ATEN_MAX_ARGS - 1] = (an_pt2_arg){.kind = AN_ARG_INTS, .n = axes, .numbers = size};
    an_pt2_node f = *n;
    f.arg = arg;
    return of_input(b, &f, o, linear);
}

enum { SIZES = AN_ATEN_MAX_ARGS - 1 };

/* grad_output self indices: the positions are found again */
an_status an_rule_adaptive_max_pool_backward(an_build *b, const an_pt2_node *n)
{
    static const origin o = {"aten.adaptive_max_pool2d.default",
                             an_rule_adaptive_max_pool,
                             {1, SIZES, -1, -1, -1, -1, -1, -1, NONE8, NONE8}};
    return of_adaptive(b, n, &o, 2, false);
}

an_status an_rule_adaptive_avg_pool_backward(an_build *b, const an_pt2_node *n)
{
    static const origin o = {"aten.adaptive_avg_pool2d.default",
                             an_rule_adaptive_avg_pool,
                             {1, SIZES, -1, -1, -1, -1, -1, -1, NONE8, NONE8}};
    make_last(b, n, 1);
    return of_adaptive(b, n, &o, 2, true);
}

an_status an_rule_adaptive_avg_pool3d_backward(an_build *b, const an_pt2_node *n)
{
    static const origin o = {"aten.adaptive_avg_pool3d.default",
                             an_rule_adaptive_avg_pool3d,
                             {1, SIZES, -1, -1, -1, -1, -1, -1, NONE8, NONE8}};
    return of_adaptive(b, n, &o, 3, true);
}

/* grad_output input grid interpolation_mode padding_mode align_corners output_mask */
an_status an_rule_grid_sampler_backward(an_build *b, const an_pt2_node *n)
{
    static const origin o = {
        "aten.grid_sampler_2d.default", an_rule_grid_sampler, {1, 2, 3, 4, 5, -1, -1, -1, NONE8, NONE8}};
    an_built_value g[MOST] = {{0}};
    const int x[2] = {1, 2};
    AN_TRY(gradients(b, n, &o, x, 2, false, g));
    for (int k = 0; k < 2; k++) give(b, n, k, &g[k], k + 1);
    return AN_OK;
}

/* grad_w saved_v saved_g saved_norms dim */
an_status an_rule_weight_norm_backward(an_build *b, const an_pt2_node *n)
{
    static const origin o = {
        "aten._weight_norm.default", an_rule_weight_norm, {1, 2, 4, -1, -1, -1, -1, -1, NONE8, NONE8}};
    an_built_value g[MOST] = {{0}};
    const int x[2] = {1, 2};
    AN_TRY(gradients(b, n, &o, x, 2, false, g));
    for (int k = 0; k < 2; k++) give(b, n, k, &g[k], k + 1);
    return AN_OK;
}

/* Whether q, k and v, from argument `first` of n on, are what the kernels take as they are, under no mask but a square causal one: the logarithms
 * of their rows' sums are then known. */
static bool attention_is_plain(an_build *b, const an_pt2_node *n, int first, bool causal, int mask)
{
    const an_tensor *q = an_in(b, n, first), *k = an_in(b, n, first + 1), *v = an_in(b, n, first + 2);
    const an_dtype t = an_dtype_of(q);
    if ((t != AN_F32 && t != AN_BF16) || an_dtype_of(k) != t || an_dtype_of(v) != t || !an_in_none(n, mask))
        return false;
    if (an_rank(q) != 4 || an_rank(k) != 4 || an_rank(v) != 4 || an_dim(v, 3) != an_dim(q, 3)) return false;
    if (an_dim(v, 1) != an_dim(k, 1)) return false;
    for (int i = 0; i < 4; i++)
        if (an_dim(q, i) == 0 || an_dim(k, i) == 0) return false;
    return !causal || an_dim(q, 2) == an_dim(k, 2);
}

static double scale_of(an_build *b, const an_pt2_node *n, int i)
{
    return an_in_none(n, i) ? 0 : an_in_float(b, n, i); /* 0: of q's last axis */
}

/* query key value dropout_p is_causal attn_mask scale. Dropout would need the mask of the forward graph here. */
an_status an_rule_attention_cpu(an_build *b, const an_pt2_node *n)
{
    an_pt2_arg arg[AN_ATEN_MAX_ARGS] = {{0}};
    static const int from[] = {0, 1, 2, 5, 3, 4, 6};
    if (an_in_float(b, n, 3) != 0) return an_build_refuse(b, AN_E_UNSUPPORTED, "with dropout");
    const bool causal = an_in_bool(b, n, 4);
    if (attention_is_plain(b, n, 0, causal, 5)) {
        an_tensor *q = an_in(b, n, 0), *k = an_in(b, n, 1), *v = an_in(b, n, 2), *lse;
        an_out(b, n, 0, an_attention_lse_at(AN_AT, q, k, v, scale_of(b, n, 6), causal, &lse));
        an_out(b, n, 1, lse);
        return AN_OK;
    }
    an_pt2_node f = *n;
    for (int i = 0; i < (int)AN_COUNT(from); i++) arg[i] = n->arg[from[i]];
    f.arg = arg;
    return an_rule_attention(b, &f);
}

/* grad_out query key value out logsumexp dropout_p is_causal attn_mask scale. python/anneal/torch.py passes out as logsumexp where the
 * forward graph did not keep logsumexp: the forward pass is then recomputed. */
an_status an_rule_attention_cpu_backward(an_build *b, const an_pt2_node *n)
{
    static const origin o = {"aten.scaled_dot_product_attention.default",
                             an_rule_attention,
                             {1, 2, 3, 8, 6, 7, 9, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}};
    an_built_value g[MOST] = {{0}};
    const int x[3] = {1, 2, 3};
    const bool causal = an_in_bool(b, n, 7);
    if (an_in_float(b, n, 6) != 0) return an_build_refuse(b, AN_E_UNSUPPORTED, "with dropout");
    if (n->arg[4].value != n->arg[5].value && attention_is_plain(b, n, 1, causal, 8)) {
        an_tensor *q = an_in(b, n, 1), *k = an_in(b, n, 2), *v = an_in(b, n, 3), *d[3];
        an_tensor *y = an_in(b, n, 4), *lse = an_in(b, n, 5), *dy = an_in(b, n, 0);
        d[0] = an_attention_grad_at(AN_AT, q, k, v, y, lse, dy, scale_of(b, n, 9), causal, &d[1], &d[2]);
        an_out(b, n, 0, d[0]);
        an_out(b, n, 1, d[1]);
        an_out(b, n, 2, d[2]);
        return AN_OK;
    }
    AN_TRY(gradients(b, n, &o, x, 3, false, g));
    for (int k = 0; k < 3; k++) give(b, n, k, &g[k], k + 1);
    return AN_OK;
}
