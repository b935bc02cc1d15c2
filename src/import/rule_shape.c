/* rule_shape.c: operations of PyTorch that move elements without arithmetic: views, slices, concatenation, padding; and symbolic
 * sizes (dynamic shapes, SymInt), which get their numbers here. */
#include "import/pt2_fold.h"
#include "import/rules.h"
#include <string.h>

/* ---- the same value */

an_status an_rule_same(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    an_out_last(b, n, 0, x.t, x.last);
    an_out_once(b, n, 0, x.once);
    return AN_OK;
}

an_status an_rule_detach(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    an_out_last(b, n, 0, an_detach_at(AN_AT, x.t), x.last);
    return AN_OK;
}

/* To the dtype that the file says of the result; a float that a policy narrowed is widened again where asked. */
an_status an_rule_cast(an_build *b, const an_pt2_node *n)
{
    an_built_value x = an_in_value(b, n, 0);
    an_out_last(b, n, 0, an_as(x.t, an_out_dtype(b, n, 0)), x.last);
    return AN_OK;
}

an_status an_rule_nothing(an_build *b, const an_pt2_node *n)
{
    (void)b;
    (void)n;
    return AN_OK;
}

/* self takes the values of src, broadcast. */
an_status an_rule_copy(an_build *b, const an_pt2_node *n)
{
    an_tensor *self = an_in(b, n, 0), *src = an_in(b, n, 1);
    an_out(b, n, 0, an_expand_at(AN_AT, an_as(src, an_dtype_of(self)), an_shape_of(self)));
    return AN_OK;
}

/* ---- other shapes */

/* Refuses what an_wrap_axis calls no axis. */
static an_status is_axis(an_build *b, int axis)
{
    if (axis < 8) return AN_OK;
    return an_build_refuse(b, AN_E_IO, "an axis that is not there; the file is damaged");
}

/* Whether s is `once` [B,G,S,D] with each head n times, in an axis of its own where there are five. */
static bool is_repeated(an_tensor *once, const an_shape *s)
{
    const an_shape o = an_shape_of(once);
    if (s->rank == 5)
        return s->dim[0] == o.dim[0] && s->dim[1] == o.dim[1] && s->dim[3] == o.dim[2] && s->dim[4] == o.dim[3];
    return s->rank == 4 && s->dim[0] == o.dim[0] && s->dim[2] == o.dim[2] && s->dim[3] == o.dim[3] && o.dim[1] > 0 &&
           s->dim[1] % o.dim[1] == 0;
}

static an_status to_shape(an_build *b, const an_pt2_node *n, an_tensor *x, an_shape s)
{
    an_tensor *once = an_in_value(b, n, 0).once, *y = an_reshape_at(AN_AT, x, s);
    const an_shape out = an_shape_of(y); /* s may leave a length open */
    an_out(b, n, 0, y);
    if (once && is_repeated(once, &out)) an_out_once(b, n, 0, once);
    return AN_OK;
}

an_status an_rule_view(an_build *b, const an_pt2_node *n)
{
    return to_shape(b, n, an_in(b, n, 0), an_in_shape(b, n, 1));
}

an_status an_rule_view_as(an_build *b, const an_pt2_node *n)
{
    const an_shape like = an_shape_of(an_in(b, n, 1));
    return to_shape(b, n, an_in(b, n, 0), like);
}

an_status an_rule_flatten(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    const an_shape s = an_shape_of(x);
    const int from = an_wrap_axis(an_in_int(b, n, 1), s.rank), to = an_wrap_axis(an_in_int(b, n, 2), s.rank);
    an_shape out = {.rank = 0};
    AN_TRY(is_axis(b, AN_MAX(from, to)));
    for (int i = 0; i < s.rank; i++) {
        if (i > from && i <= to)
            out.dim[out.rank - 1] *= s.dim[i];
        else
            out.dim[out.rank++] = s.dim[i];
    }
    if (s.rank == 0) out = AN_SHAPE(1);
    return to_shape(b, n, x, out);
}

an_status an_rule_unflatten(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    const an_shape s = an_shape_of(x), sizes = an_in_shape(b, n, 2);
    const int axis = an_wrap_axis(an_in_int(b, n, 1), s.rank);
    an_shape out = {.rank = s.rank - 1 + sizes.rank};
    if (axis >= s.rank) return is_axis(b, 8);
    if (out.rank > 8) return an_build_refuse(b, AN_E_UNSUPPORTED, "more than 8 axes");
    int64_t known = 1;
    for (int k = 0; k < sizes.rank; k++) {
        if (sizes.dim[k] > INT32_MAX / known)
            return an_build_refuse(b, AN_E_IO, "parts of more than 2^31 elements; the file is damaged");
        known *= AN_MAX(sizes.dim[k], 1);
    }
    for (int i = 0, at = 0; i < s.rank; i++) {
        if (i != axis) out.dim[at++] = s.dim[i];
        for (int k = 0; i == axis && k < sizes.rank; k++)
            out.dim[at++] = sizes.dim[k] < 0 ? s.dim[i] / known : sizes.dim[k];
    }
    return to_shape(b, n, x, out);
}

an_status an_rule_unsqueeze(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    const an_shape s = an_shape_of(x);
    const int axis = an_wrap_axis(an_in_int(b, n, 1), s.rank + 1);
    an_shape out = {.rank = s.rank + 1};
    if (out.rank > 8 || axis > s.rank) return an_build_refuse(b, AN_E_UNSUPPORTED, "more than 8 axes");
    for (int i = 0; i < out.rank; i++) out.dim[i] = i == axis ? 1 : s.dim[i < axis ? i : i - 1];
    return to_shape(b, n, x, out);
}

static an_status squeeze(an_build *b, const an_pt2_node *n, const int64_t *axes, int count, bool all)
{
    an_tensor *x = an_in(b, n, 0);
    const an_shape s = an_shape_of(x);
    an_shape out = {.rank = 0};
    for (int k = 0; k < count; k++) AN_TRY(is_axis(b, an_wrap_axis(axes[k], s.rank)));
    for (int i = 0; i < s.rank; i++) {
        bool named = all;
        for (int k = 0; k < count; k++) named |= an_wrap_axis(axes[k], s.rank) == i;
        if (!named || s.dim[i] != 1) out.dim[out.rank++] = s.dim[i];
    }
    return to_shape(b, n, x, out);
}

an_status an_rule_squeeze(an_build *b, const an_pt2_node *n)
{
    return squeeze(b, n, NULL, 0, true);
}

an_status an_rule_squeeze_dims(an_build *b, const an_pt2_node *n)
{
    int64_t axes[8];
    const int count = an_in_ints(b, n, 1, axes, 8);
    return squeeze(b, n, axes, count, false);
}

an_status an_rule_permute(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    an_shape perm = an_in_shape(b, n, 1);
    for (int i = 0; i < perm.rank; i++) perm.dim[i] = an_wrap_axis(perm.dim[i], an_rank(x));
    an_out(b, n, 0, an_permute_at(AN_AT, x, perm));
    return AN_OK;
}

an_status an_rule_transpose(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    const int i = an_wrap_axis(an_in_int(b, n, 1), an_rank(x)), k = an_wrap_axis(an_in_int(b, n, 2), an_rank(x));
    AN_TRY(is_axis(b, AN_MAX(i, k)));
    an_out(b, n, 0, i == k ? x : an_transpose_at(AN_AT, x, i, k));
    return AN_OK;
}

/* All axes in the opposite order. */
static an_tensor *turned(an_tensor *x)
{
    an_shape perm = {.rank = an_rank(x)};
    for (int i = 0; i < perm.rank; i++) perm.dim[i] = perm.rank - 1 - i;
    return perm.rank > 1 ? an_permute_at(AN_AT, x, perm) : x;
}

an_status an_rule_t(an_build *b, const an_pt2_node *n)
{
    an_out(b, n, 0, turned(an_in(b, n, 0)));
    return AN_OK;
}

/* The axes `from` of x moved to `to`. NULL: one is not there. */
static an_tensor *moved(an_tensor *x, an_shape from, an_shape to)
{
    const int rank = an_rank(x);
    an_shape perm = {.rank = rank};
    bool taken[8] = {false};
    for (int i = 0; i < rank; i++) perm.dim[i] = -1;
    for (int k = 0; k < from.rank && k < to.rank; k++) {
        const int source = an_wrap_axis(from.dim[k], rank), place = an_wrap_axis(to.dim[k], rank);
        if (AN_MAX(source, place) >= 8) return NULL;
        perm.dim[place] = source;
        taken[source] = true;
    }
    for (int i = 0, at = 0; i < rank; i++) {
        if (perm.dim[i] >= 0) continue;
        while (at < 8 && taken[at]) at++;
        perm.dim[i] = at++;
    }
    return an_permute_at(AN_AT, x, perm);
}

an_status an_rule_movedim(an_build *b, const an_pt2_node *n)
{
    an_tensor *y = moved(an_in(b, n, 0), an_in_shape(b, n, 1), an_in_shape(b, n, 2));
    AN_TRY(is_axis(b, y ? 0 : 8));
    an_out(b, n, 0, y);
    return AN_OK;
}

/* -1 keeps an axis; new axes come in front. */
static an_status expand_to(an_build *b, const an_pt2_node *n, an_shape to)
{
    an_tensor *x = an_in(b, n, 0);
    const an_shape s = an_shape_of(x);
    if (to.rank < s.rank) return an_build_refuse(b, AN_E_IO, "fewer axes than its argument has; the file is damaged");
    an_shape wide = {.rank = to.rank};
    for (int i = 0; i < to.rank; i++) {
        wide.dim[i] = i < to.rank - s.rank ? 1 : s.dim[i - (to.rank - s.rank)];
        if (to.dim[i] < 0) to.dim[i] = wide.dim[i];
    }
    an_out(b, n, 0, an_expand_at(AN_AT, an_reshape_at(AN_AT, x, wide), to));
    if (to.rank != 5 || wide.dim[2] != 1) return AN_OK;
    /* Heads as transformers' repeat_kv repeats them: what attention takes once. */
    const an_shape heads = {.rank = 4, .dim = {wide.dim[0], wide.dim[1], wide.dim[3], wide.dim[4]}};
    an_tensor *once = an_reshape_at(AN_AT, x, heads);
    if (is_repeated(once, &to)) an_out_once(b, n, 0, once);
    return AN_OK;
}

an_status an_rule_expand(an_build *b, const an_pt2_node *n)
{
    return expand_to(b, n, an_in_shape(b, n, 1));
}

an_status an_rule_expand_as(an_build *b, const an_pt2_node *n)
{
    return expand_to(b, n, an_shape_of(an_in(b, n, 1)));
}

an_status an_rule_broadcast_tensors(an_build *b, const an_pt2_node *n)
{
    an_shape all = {.rank = 0};
    for (int k = 0; k < an_in_count(n, 0); k++) {
        const an_shape s = an_shape_of(an_in_list(b, n, 0, k));
        for (int i = s.rank - 1, to = 7; i >= 0; i--, to--)
            if (s.dim[i] != 1) all.dim[to] = s.dim[i];
        all.rank = AN_MAX(all.rank, s.rank);
    }
    an_shape out = {.rank = all.rank};
    for (int i = 0; i < out.rank; i++) {
        const int64_t length = all.dim[8 - out.rank + i];
        bool empty = false; /* an axis without elements is no axis of length 1 */
        for (int k = 0; k < an_in_count(n, 0); k++) {
            const an_shape s = an_shape_of(an_in_list(b, n, 0, k));
            const int at = i - (out.rank - s.rank);
            empty |= at >= 0 && s.dim[at] == 0;
        }
        out.dim[i] = empty ? 0 : length ? length : 1;
    }
    for (int k = 0; k < an_in_count(n, 0); k++) an_out(b, n, k, an_expand_at(AN_AT, an_in_list(b, n, 0, k), out));
    return AN_OK;
}

/* x [N,C,H,W], r: the channels' and the pixels' shape with axes of their own, permuted, and merged again. */
static an_status shuffle(an_build *b, const an_pt2_node *n, const an_shape *apart, an_shape perm, an_shape out)
{
    an_tensor *x = an_reshape_at(AN_AT, an_in(b, n, 0), *apart);
    return to_shape(b, n, an_permute_at(AN_AT, x, perm), out);
}

/* The shape of [...,C,H,W] as [N,C,H,W], and r. */
static an_status image_of(an_build *b, const an_pt2_node *n, an_shape *s, int64_t *r)
{
    const an_shape all = an_shape_of(an_in(b, n, 0));
    *r = an_in_int(b, n, 1);
    if (all.rank < 3 || *r <= 0 || *r > INT16_MAX)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "of %d axes; three or more are known", all.rank);
    *s = AN_SHAPE(1, all.dim[all.rank - 3], all.dim[all.rank - 2], all.dim[all.rank - 1]);
    for (int i = 0; i < all.rank - 3; i++) s->dim[0] *= all.dim[i];
    return AN_OK;
}

/* The shape of the argument with other last three axes. */
static an_shape with_image(an_build *b, const an_pt2_node *n, int64_t C, int64_t H, int64_t W)
{
    an_shape s = an_shape_of(an_in(b, n, 0));
    s.dim[(s.rank - 3) & 7] = C;
    s.dim[(s.rank - 2) & 7] = H;
    s.dim[(s.rank - 1) & 7] = W;
    return s;
}

an_status an_rule_pixel_shuffle(an_build *b, const an_pt2_node *n)
{
    an_shape s;
    int64_t r;
    AN_TRY(image_of(b, n, &s, &r));
    const an_shape apart = AN_SHAPE(s.dim[0], s.dim[1] / (r * r), r, r, s.dim[2], s.dim[3]);
    return shuffle(b, n, &apart, AN_SHAPE(0, 1, 4, 2, 5, 3),
                   with_image(b, n, s.dim[1] / (r * r), s.dim[2] * r, s.dim[3] * r));
}

an_status an_rule_pixel_unshuffle(an_build *b, const an_pt2_node *n)
{
    an_shape s;
    int64_t r;
    AN_TRY(image_of(b, n, &s, &r));
    const an_shape apart = AN_SHAPE(s.dim[0], s.dim[1], s.dim[2] / r, r, s.dim[3] / r, r);
    return shuffle(b, n, &apart, AN_SHAPE(0, 1, 3, 5, 2, 4),
                   with_image(b, n, s.dim[1] * r * r, s.dim[2] / r, s.dim[3] / r));
}

/* [N,C,...]: the channels as [groups, the rest], turned. */
an_status an_rule_channel_shuffle(an_build *b, const an_pt2_node *n)
{
    const an_shape s = an_shape_of(an_in(b, n, 0));
    const int64_t groups = an_in_int(b, n, 1);
    int64_t rest = 1;
    if (s.rank < 3 || groups < 1)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "of %d axes; three or more are known", s.rank);
    for (int i = 2; i < s.rank; i++) rest *= s.dim[i];
    const an_shape apart = AN_SHAPE(s.dim[0], groups, s.dim[1] / groups, rest);
    return shuffle(b, n, &apart, AN_SHAPE(0, 2, 1, 3), s);
}

/* ---- parts of an axis */

static int64_t clipped(int64_t at, int64_t length)
{
    at = at < 0 ? at + length : at;
    return AN_MIN(AN_MAX(at, 0), length);
}

/* The place of a result in the list of them. */
static int place_of(const an_pt2_node *n, int32_t id)
{
    const bool list = n->n_out == 1 && n->out[0].kind == AN_ARG_TENSORS;
    const int count = list ? n->out[0].n : n->n_out;
    for (int k = 0; k < count; k++)
        if ((list ? n->out[0].values[k] : n->out[k].value) == id) return k;
    return 0;
}

/* The axis that is split: by name of hsplit, vsplit and dsplit, else an argument. */
static int split_axis(const an_build *b, const an_pt2_node *n, int rank)
{
    if (strncmp(n->target, "aten.vsplit", 11) == 0) return 0;
    if (strncmp(n->target, "aten.hsplit", 11) == 0) return rank > 1 ? 1 : 0;
    if (strncmp(n->target, "aten.dsplit", 11) == 0) return rank > 2 ? 2 : 8;
    return an_wrap_axis(an_in_int(b, n, 2), rank);
}

static int64_t list_number(const an_build *b, const an_pt2_node *n, int64_t k)
{
    const an_pt2_number *x = &n->arg[1].numbers[k];
    return x->symbol >= 0 ? b->symbol[x->symbol].i : x->i;
}

/* Part k of split, chunk, split_with_sizes or tensor_split of an axis of `length`: where it starts. */
static int64_t part_start(const an_build *b, const an_pt2_node *n, int64_t length, int k)
{
    const char *name = n->target + 5; /* behind "aten." */
    int64_t start = 0;
    if (n->arg[1].kind == AN_ARG_INTS && !strstr(name, "tensor_split") && !strstr(name, ".array")) { /* sizes */
        for (int64_t i = 0; i < k && i < n->arg[1].n; i++)
            start += AN_MIN(AN_MAX(list_number(b, n, i), 0), length - start);
        return start;
    }
    if (n->arg[1].kind == AN_ARG_INTS) return k == 0 || k > n->arg[1].n ? 0 : clipped(list_number(b, n, k - 1), length);
    int64_t each = an_in_int(b, n, 1);
    if (strstr(name, "sections") || strstr(name, "split.int")) { /* the first ones are one longer */
        each = AN_MAX(each, 1);
        return AN_MIN(length / each * k + AN_MIN(length % each, k), length);
    }
    each = AN_MIN(AN_MAX(each, 0),
                  AN_MAX(length, 1)); /* more parts than elements are as many; a longer part is the whole */
    if (strstr(name, "chunk")) each = each > 0 ? an_ceil_div(length, each) : length;
    return AN_MIN(each * k, length);
}

bool an_view_region(const an_build *b, const an_pt2_node *n, int32_t id, an_shape p, int *axis, int64_t *start,
                    int64_t *step)
{
    const char *name = n->target;
    *step = 1;
    if (strcmp(name, "aten.select.int") == 0) {
        *axis = an_wrap_axis(an_in_int(b, n, 1), p.rank);
        *start = an_in_int(b, n, 2) + (an_in_int(b, n, 2) < 0 && *axis < 8 ? p.dim[*axis & 7] : 0);
    } else if (strcmp(name, "aten.slice.Tensor") == 0) {
        *axis = an_wrap_axis(an_in_int(b, n, 1), p.rank);
        *start = *axis < 8 ? clipped(an_in_none(n, 2) ? 0 : an_in_int(b, n, 2), p.dim[*axis & 7]) : 0;
        *step = an_in_int(b, n, 4);
    } else if (strcmp(name, "aten.narrow.default") == 0) {
        *axis = an_wrap_axis(an_in_int(b, n, 1), p.rank);
        *start = *axis < 8 ? clipped(an_in_int(b, n, 2), p.dim[*axis & 7]) : 0;
    } else if (strstr(name, "split") || strstr(name, "chunk")) {
        *axis = split_axis(b, n, p.rank);
        *start = *axis < 8 ? part_start(b, n, p.dim[*axis & 7], place_of(n, id)) : 0;
    } else if (strcmp(name, "aten.unbind.int") == 0) {
        *axis = an_wrap_axis(an_in_int(b, n, 1), p.rank);
        *start = place_of(n, id);
    } else {
        return false;
    }
    return *axis < p.rank;
}

an_status an_rule_slice(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    const int axis = an_wrap_axis(an_in_int(b, n, 1), an_rank(x));
    const int64_t length = an_dim(x, axis), start = clipped(an_in_none(n, 2) ? 0 : an_in_int(b, n, 2), length);
    const int64_t stop = AN_MAX(start, clipped(an_in_none(n, 3) ? length : an_in_int(b, n, 3), length));
    an_out(b, n, 0, an_slice_at(AN_AT, x, axis, start, stop, an_in_int(b, n, 4)));
    return AN_OK;
}

/* One element of an axis; the axis is removed. */
static an_tensor *selected(an_tensor *x, int axis, int64_t at)
{
    an_shape s = an_shape_of(x), out = {.rank = s.rank - 1};
    for (int i = 0; i < out.rank; i++) out.dim[i] = s.dim[i < axis ? i : i + 1];
    return an_reshape_at(AN_AT, an_slice_at(AN_AT, x, axis, at, at + 1, 1), out);
}

an_status an_rule_select(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    const int axis = an_wrap_axis(an_in_int(b, n, 1), an_rank(x));
    const int64_t at = an_in_int(b, n, 2) + (an_in_int(b, n, 2) < 0 ? an_dim(x, axis) : 0);
    if (at < 0 || at >= an_dim(x, axis)) return an_build_refuse(b, AN_E_IO, "element %lld is outside", (long long)at);
    an_out(b, n, 0, selected(x, axis, at));
    return AN_OK;
}

an_status an_rule_narrow(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    const int axis = an_wrap_axis(an_in_int(b, n, 1), an_rank(x));
    const int64_t start = clipped(an_in_int(b, n, 2), an_dim(x, axis));
    const int64_t length = an_in_int(b, n, 3);
    if (length < 0 || length > an_dim(x, axis) - start)
        return an_build_refuse(b, AN_E_IO, "%lld elements from %lld on; the file is damaged", (long long)length,
                               (long long)start);
    an_out(b, n, 0, an_slice_at(AN_AT, x, axis, start, start + length, 1));
    return AN_OK;
}

an_status an_rule_split(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    const int axis = split_axis(b, n, an_rank(x));
    if (axis >= an_rank(x)) return is_axis(b, 8);
    const int64_t length = an_dim(x, axis);
    if (n->arg[1].kind == AN_ARG_INT && an_in_int(b, n, 1) < 0)
        return an_build_refuse(b, AN_E_IO, "parts of %lld; the file is damaged", (long long)an_in_int(b, n, 1));
    const int count = n->n_out == 1 && n->out[0].kind == AN_ARG_TENSORS ? n->out[0].n : n->n_out;
    for (int k = 0; k < count; k++) {
        const int64_t start = part_start(b, n, length, k);
        const int64_t stop = k + 1 < count ? part_start(b, n, length, k + 1) : length;
        an_out(b, n, k, an_slice_at(AN_AT, x, axis, start, AN_MAX(start, stop), 1));
    }
    return AN_OK;
}

an_status an_rule_unbind(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    const int axis = an_wrap_axis(an_in_int(b, n, 1), an_rank(x));
    for (int k = 0; k < (int)an_dim(x, axis); k++) an_out(b, n, k, selected(x, axis, k));
    return AN_OK;
}

/* ---- several parts */

enum { MOST_PARTS = 1024 };

static an_status concat(an_build *b, const an_pt2_node *n, bool stack)
{
    an_tensor *part[MOST_PARTS];
    const int count = an_in_count(n, 0);
    int used = 0;
    bool last = !stack;
    if (count < 1 || count > MOST_PARTS) return an_build_refuse(b, AN_E_UNSUPPORTED, "%d parts", count);
    for (int k = 0; k < count; k++) {
        const an_built_value v = an_in_list_value(b, n, 0, k);
        if (!v.t) return an_build_refuse(b, AN_E_IO, "part %d is no tensor; the file is damaged", k);
        last = last && v.last;
    }
    for (int k = 0; k < count; k++) {
        const an_built_value v = an_in_list_value(b, n, 0, k);
        an_tensor *x = last ? v.t : an_plain(v.t, v.last);
        if (!stack && an_rank(x) == 1 && an_dim(x, 0) == 0) continue; /* PyTorch passes an empty list over */
        if (used > 0) {
            an_promote(&part[0], &x);
            for (int i = 1; i < used; i++) part[i] = an_as(part[i], an_dtype_of(x));
        }
        part[used++] = x;
    }
    if (used == 0) { /* empty lists alone */
        an_out(b, n, 0, an_as(an_in_list_value(b, n, 0, 0).t, an_out_dtype(b, n, 0)));
        return AN_OK;
    }
    const int rank = an_rank(part[0]);
    int axis = an_wrap_axis(an_in_int(b, n, 1), rank + stack);
    for (int k = 0; stack && k < used; k++) {
        an_shape s = an_shape_of(part[k]), out = {.rank = rank + 1};
        for (int i = 0; i <= rank && i < 8; i++) out.dim[i] = i == axis ? 1 : s.dim[i < axis ? i : i - 1];
        part[k] = an_reshape_at(AN_AT, part[k], out);
    }
    an_out_last(b, n, 0, an_concat_at(AN_AT, part, used, last ? an_last_axis(axis, rank) : axis), last);
    return AN_OK;
}

an_status an_rule_cat(an_build *b, const an_pt2_node *n)
{
    return concat(b, n, false);
}
an_status an_rule_stack(an_build *b, const an_pt2_node *n)
{
    return concat(b, n, true);
}

/* Tiles: [a,b] repeated (r,s) is [1,a,1,b] expanded to [r,a,s,b]. */
an_status an_rule_repeat(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    const an_shape times = an_in_shape(b, n, 1), s = an_shape_of(x);
    for (int i = times.rank - 1; i >= 0; i--) {
        const int own = i - (times.rank - s.rank);
        an_shape before = an_shape_of(x);
        if (own < 0) { /* a new axis in front */
            an_shape one = {.rank = before.rank + 1, .dim = {1}}, all;
            memcpy(one.dim + 1, before.dim, (size_t)before.rank * sizeof before.dim[0]);
            all = one;
            all.dim[0] = times.dim[i];
            x = an_expand_at(AN_AT, an_reshape_at(AN_AT, x, one), all);
            continue;
        }
        if (times.dim[i] == 1) continue;
        an_shape once = {.rank = before.rank + 1}, all;
        if (times.dim[i] < 0 || times.dim[i] > INT32_MAX || once.rank > 8)
            return an_build_refuse(b, AN_E_UNSUPPORTED, "%lld repetitions of %d axes", (long long)times.dim[i],
                                   before.rank);
        memcpy(once.dim, before.dim, (size_t)own * sizeof before.dim[0]);
        once.dim[own] = 1;
        memcpy(once.dim + own + 1, before.dim + own, (size_t)(before.rank - own) * sizeof before.dim[0]);
        all = once;
        all.dim[own] = times.dim[i];
        before.dim[own] *= times.dim[i];
        x = an_reshape_at(AN_AT, an_expand_at(AN_AT, an_reshape_at(AN_AT, x, once), all), before);
    }
    an_out(b, n, 0, x);
    return AN_OK;
}

/* Each element of an axis `repeats` times in a row. */
an_status an_rule_repeat_interleave(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    if (an_in_none(n, 2)) x = an_reshape_1(x, an_count(x));
    const int axis = an_in_none(n, 2) ? 0 : an_wrap_axis(an_in_int(b, n, 2), an_rank(x));
    const int64_t times = an_in_int(b, n, 1);
    an_shape s = an_shape_of(x), one = {.rank = s.rank + 1}, all, out = s;
    if (axis >= s.rank) return is_axis(b, 8);
    if (one.rank > 8) return an_build_refuse(b, AN_E_UNSUPPORTED, "more than 7 axes");
    if (times < 0 || times > INT32_MAX)
        return an_build_refuse(b, AN_E_IO, "%lld times; the file is damaged", (long long)times);
    for (int i = 0; i < one.rank; i++) one.dim[i] = i == axis + 1 ? 1 : s.dim[i <= axis ? i : i - 1];
    all = one;
    all.dim[axis + 1] = times;
    out.dim[axis] *= times;
    an_out(b, n, 0, an_reshape_at(AN_AT, an_expand_at(AN_AT, an_reshape_at(AN_AT, x, one), all), out));
    if (s.rank == 4 && axis == 1 && !an_in_none(n, 2)) an_out_once(b, n, 0, x);
    return AN_OK;
}

an_status an_rule_flip(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    const an_shape axes = an_in_shape(b, n, 1);
    an_axes mask = 0;
    for (int i = 0; i < axes.rank; i++) mask |= AN_AXIS(an_wrap_axis(axes.dim[i], an_rank(x)));
    an_out(b, n, 0, mask ? an_flip_at(AN_AT, x, mask) : x);
    return AN_OK;
}

static an_tensor *rolled(an_tensor *x, int axis, int64_t by)
{
    const int64_t length = an_dim(x, axis), at = length ? (length - by % length) % length : 0;
    if (at == 0) return x;
    an_tensor *part[] = {an_slice_at(AN_AT, x, axis, at, length, 1), an_slice_at(AN_AT, x, axis, 0, at, 1)};
    return an_concat_at(AN_AT, part, 2, axis);
}

an_status an_rule_roll(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    const an_shape by = an_in_shape(b, n, 1), axes = an_in_shape(b, n, 2), s = an_shape_of(x);
    if (axes.rank == 0) {
        an_out(b, n, 0, an_reshape_at(AN_AT, rolled(an_reshape_1(x, an_count(x)), 0, by.dim[0]), s));
        return AN_OK;
    }
    if (axes.rank != by.rank) return an_build_refuse(b, AN_E_IO, "not as many shifts as axes; the file is damaged");
    for (int i = 0; i < axes.rank; i++) {
        const int axis = an_wrap_axis(axes.dim[i], s.rank);
        AN_TRY(is_axis(b, axis));
        x = rolled(x, axis, by.dim[i]);
    }
    an_out(b, n, 0, x);
    return AN_OK;
}

/* ---- padding */

static an_tensor *pad_axis(an_tensor *x, int axis, int64_t before, int64_t after, double value)
{
    if (before < 0) x = an_slice_at(AN_AT, x, axis, -before, an_dim(x, axis), 1);
    if (after < 0) x = an_slice_at(AN_AT, x, axis, 0, an_dim(x, axis) + after, 1);
    if (before <= 0 && after <= 0) return x;
    return an_pad_at(AN_AT, x, axis, AN_MAX(before, 0), AN_MAX(after, 0), value);
}

/* One end of an axis continued by reflection (without the edge), the edge, or the other end. */
static an_tensor *border(an_tensor *x, int axis, int64_t width, bool front, const char *mode)
{
    const int64_t length = an_dim(x, axis);
    if (strcmp(mode, "reflect") == 0) {
        an_tensor *part = front ? an_slice_at(AN_AT, x, axis, 1, width + 1, 1)
                                : an_slice_at(AN_AT, x, axis, length - 1 - width, length - 1, 1);
        return an_flip_at(AN_AT, part, AN_AXIS(axis));
    }
    if (strcmp(mode, "circular") == 0)
        return front ? an_slice_at(AN_AT, x, axis, length - width, length, 1)
                     : an_slice_at(AN_AT, x, axis, 0, width, 1);
    an_tensor *edge = front ? an_slice_at(AN_AT, x, axis, 0, 1, 1) : an_slice_at(AN_AT, x, axis, length - 1, length, 1);
    an_shape s = an_shape_of(edge);
    s.dim[axis] = width;
    return an_expand_at(AN_AT, edge, s);
}

/* A negative width cuts that end off: before the other end is copied, but behind a reflection, which reads what is cut. */
static an_tensor *continue_axis(an_tensor *x, int axis, int64_t before, int64_t after, const char *mode)
{
    an_tensor *part[3];
    int used = 0;
    if (before < 0 || after < 0) {
        const bool first = strcmp(mode, "circular") == 0;
        if (first) x = pad_axis(x, axis, AN_MIN(before, 0), AN_MIN(after, 0), 0);
        x = continue_axis(x, axis, AN_MAX(before, 0), AN_MAX(after, 0), mode);
        return first ? x : pad_axis(x, axis, AN_MIN(before, 0), AN_MIN(after, 0), 0);
    }
    if (before > 0) part[used++] = border(x, axis, before, true, mode);
    part[used++] = x;
    if (after > 0) part[used++] = border(x, axis, after, false, mode);
    return used > 1 ? an_concat_at(AN_AT, part, used, axis) : x;
}

static an_status pad(an_build *b, const an_pt2_node *n, const char *mode, double value)
{
    an_tensor *x = an_in(b, n, 0);
    const an_shape pads = an_in_shape(b, n, 1);
    if (n->arg[1].n > 8) return an_build_refuse(b, AN_E_UNSUPPORTED, "of more than four axes");
    for (int i = 0; 2 * i + 1 < pads.rank; i++) {
        const int axis = an_rank(x) - 1 - i;
        const int64_t before = pads.dim[2 * i], after = pads.dim[2 * i + 1];
        if (axis < 0) return an_build_refuse(b, AN_E_IO, "pads more axes than there are; the file is damaged");
        if (before < -INT32_MAX || after < -INT32_MAX || before > INT32_MAX || after > INT32_MAX)
            return an_build_refuse(b, AN_E_IO, "pads by more than 2^31 elements; the file is damaged");
        const int64_t left = an_dim(x, axis) + AN_MIN(before, 0) + AN_MIN(after, 0);
        if (strcmp(mode, "circular") == 0 && AN_MAX(before, after) > left)
            return an_build_refuse(b, AN_E_UNSUPPORTED, "more elements around than the %lld that the cut leaves",
                                   (long long)left);
        x = strcmp(mode, "constant") == 0 ? pad_axis(x, axis, before, after, value)
                                          : continue_axis(x, axis, before, after, mode);
    }
    an_out(b, n, 0, x);
    return AN_OK;
}

an_status an_rule_pad(an_build *b, const an_pt2_node *n)
{
    return pad(b, n, n->arg[2].text ? n->arg[2].text : "constant", an_in_none(n, 3) ? 0 : an_in_float(b, n, 3));
}
an_status an_rule_pad_replicate(an_build *b, const an_pt2_node *n)
{
    return pad(b, n, "replicate", 0);
}
an_status an_rule_pad_constant(an_build *b, const an_pt2_node *n)
{
    return pad(b, n, "constant", an_in_float(b, n, 2));
}

/* ---- symbolic sizes (SymInt) and arithmetic on them */

an_status an_rule_sym_size(an_build *b, const an_pt2_node *n)
{
    an_tensor *x = an_in(b, n, 0);
    const int axis = an_wrap_axis(an_in_int(b, n, 1), an_rank(x));
    AN_TRY(is_axis(b, axis));
    const int64_t size = an_dim(x, axis);
    if (n->n_out == 1 && n->out[0].number.symbol >= 0)
        b->symbol[n->out[0].number.symbol] = (an_pt2_number){.i = size, .f = (double)size, .symbol = -1};
    return AN_OK;
}

an_status an_rule_sym_numel(an_build *b, const an_pt2_node *n)
{
    const int64_t size = an_count(an_in(b, n, 0));
    if (n->n_out == 1 && n->out[0].number.symbol >= 0)
        b->symbol[n->out[0].number.symbol] = (an_pt2_number){.i = size, .f = (double)size, .symbol = -1};
    return AN_OK;
}

static int64_t floor_div(int64_t x, int64_t y)
{
    return y == 0 ? 0 : x / y - (x % y != 0 && (x < 0) != (y < 0));
}

/* Python's operators on sizes. Products that overflow int64 are no sizes: they wrap, and the shape is refused. */
an_status an_rule_sym_operator(an_build *b, const an_pt2_node *n)
{
    const char *op = strrchr(n->target, '.') + 1;
    const uint64_t ux = (uint64_t)an_in_int(b, n, 0), uy = (uint64_t)an_in_int(b, n, 1);
    const int64_t x = (int64_t)ux, y = (int64_t)uy;
    int64_t r = 0;
    if (strcmp(op, "add") == 0)
        r = (int64_t)(ux + uy);
    else if (strcmp(op, "sub") == 0)
        r = (int64_t)(ux - uy);
    else if (strcmp(op, "mul") == 0)
        r = (int64_t)(ux * uy);
    else if (strcmp(op, "neg") == 0)
        r = (int64_t)(0 - ux);
    else if (strcmp(op, "floordiv") == 0)
        r = y == -1 ? (int64_t)(0 - ux) : floor_div(x, y);
    else if (strcmp(op, "mod") == 0)
        r = y == 0 || y == -1 ? 0 : (int64_t)(ux - uy * (uint64_t)floor_div(x, y));
    else if (strcmp(op, "sym_max") == 0)
        r = AN_MAX(x, y);
    else if (strcmp(op, "sym_min") == 0)
        r = AN_MIN(x, y);
    else if (strcmp(op, "eq") == 0)
        r = x == y;
    else if (strcmp(op, "ne") == 0)
        r = x != y;
    else if (strcmp(op, "lt") == 0)
        r = x < y;
    else if (strcmp(op, "le") == 0)
        r = x <= y;
    else if (strcmp(op, "gt") == 0)
        r = x > y;
    else if (strcmp(op, "ge") == 0)
        r = x >= y;
    if (n->n_out == 1 && n->out[0].number.symbol >= 0)
        b->symbol[n->out[0].number.symbol] = (an_pt2_number){.i = r, .f = (double)r, .symbol = -1};
    return AN_OK;
}

static bool keeps_order(an_aten_rule *rule)
{
    static an_aten_rule *const all[] = {an_rule_same,    an_rule_detach,       an_rule_cast,      an_rule_view,
                                        an_rule_view_as, an_rule_flatten,      an_rule_unflatten, an_rule_unsqueeze,
                                        an_rule_squeeze, an_rule_squeeze_dims, an_rule_ravel,     an_rule_at_least,
                                        an_rule_expand,  an_rule_expand_as};
    for (size_t i = 0; i < AN_COUNT(all); i++)
        if (rule == all[i]) return true;
    return false;
}

an_tensor *an_view_undone(const an_build *b, const an_pt2_node *n, an_tensor *t, const an_tensor *parent)
{
    an_aten_rule *const rule = n->rule->rule;
    const an_shape p = an_shape_of(parent);
    if (an_count(t) != an_count(parent)) return NULL; /* expanded, or a part */
    if (keeps_order(rule)) return an_reshape_at(AN_AT, t, p);
    if (rule == an_rule_t) return turned(t);
    if (rule == an_rule_mT) return an_transpose_at(AN_AT, t, p.rank - 2, p.rank - 1);
    if (rule == an_rule_movedim) return moved(t, an_in_shape(b, n, 2), an_in_shape(b, n, 1));
    if (rule == an_rule_transpose) {
        const int i = an_wrap_axis(an_in_int(b, n, 1), p.rank), k = an_wrap_axis(an_in_int(b, n, 2), p.rank);
        return i == k ? t : an_transpose_at(AN_AT, t, i, k);
    }
    if (rule == an_rule_permute) {
        const an_shape perm = an_in_shape(b, n, 1);
        an_shape back = {.rank = p.rank};
        if (perm.rank != p.rank) return NULL;
        for (int i = 0; i < p.rank; i++) back.dim[an_wrap_axis(perm.dim[i], p.rank) & 7] = i;
        return an_permute_at(AN_AT, t, back);
    }
    return NULL;
}
