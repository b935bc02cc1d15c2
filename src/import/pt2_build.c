/* pt2_build.c: values, views and layouts. See pt2_build.h. */
#include "import/pt2_build.h"
#include "import/pt2_fold.h"
#include "import/rules.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Each view is built again from the one before, by recursion: a file decides how deep. */
enum { MOST_VIEWS = 8192 };

an_status an_build_refuse(an_build *b, an_status code, const char *format, ...)
{
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    const an_pt2_node *n = b->now;
    return an_fail(b->err, code, "%s: %.100s%s%.100s%s%.60s: %s", b->g->archive->path, n ? n->target : "a graph",
                   n && n->module[0] ? " in " : "", n ? n->module : "", n && n->place[0] ? ", " : "", n ? n->place : "",
                   what);
}

/* ---- axes */

an_tensor *an_plain(an_tensor *t, bool last)
{
    const int rank = t ? an_shape_of(t).rank : 0;
    an_shape perm = {.rank = rank, .dim = {0, rank - 1}};
    if (!last || rank < 3) return t;
    for (int i = 2; i < rank; i++) perm.dim[i] = i - 1;
    return an_permute_at(AN_AT, t, perm);
}

an_tensor *an_last(an_tensor *t)
{
    const int rank = an_shape_of(t).rank;
    an_shape perm = {.rank = rank};
    if (rank < 3) return t;
    for (int i = 1; i < rank - 1; i++) perm.dim[i] = i + 1;
    perm.dim[rank - 1] = 1;
    return an_permute_at(AN_AT, t, perm);
}

int an_last_axis(int axis, int rank)
{
    return axis == 0 ? 0 : axis == 1 ? rank - 1 : axis - 1;
}

int an_wrap_axis(int64_t axis, int rank)
{
    const int64_t n = rank > 0 ? rank : 1, i = axis < 0 ? axis + n : axis;
    return i >= 0 && i < n ? (int)i : 8;
}

an_built_value an_to_last(const an_built_value *v, int rank)
{
    an_built_value out = *v;
    an_shape s = an_shape_of(v->t), wide = {.rank = rank};
    if (v->last || s.rank == 0) return out;
    for (int i = 0; i < rank; i++) wide.dim[i] = i < rank - s.rank ? 1 : s.dim[i - (rank - s.rank)];
    out.t = an_last(an_reshape_at(AN_AT, v->t, wide));
    out.last = true;
    return out;
}

/* ---- values */

static void set(an_build *b, int32_t id, an_tensor *t, bool last)
{
    an_built_value *v = &b->value[id];
    v->t = t;
    v->im = v->once = NULL;
    v->last = last && an_shape_of(t).rank >= 3;
    v->version++;
}

static an_status run_rule(an_build *b, const an_pt2_node *n)
{
    return an_is_of_complex(b, n) ? an_complex_apply(b, n) : n->rule->rule(b, n);
}

/* Builds a view again after its parent has changed. */
static void refresh(an_build *b, int32_t id)
{
    an_built_value *v = &b->value[id];
    if (!v->view) return;
    const an_built_value *parent = an_build_get(b, v->parent);
    if (v->seen == parent->version) return;
    if (an_aten_written(v->view) >= 0) {
        set(b, id, parent->t, parent->last);
        v->im = parent->im;
    } else {
        const an_pt2_node *now = b->now;
        (void)run_rule(b, v->view);
        b->now = now;
    }
    v->seen = parent->version;
}

an_built_value *an_build_get(an_build *b, int32_t id)
{
    an_built_value *v = &b->value[id];
    int part[2];
    memcpy(part, b->part, sizeof part);
    memset(b->part, 0, sizeof b->part); /* what is built only now is built whole, whichever part is read of it */
    if (!v->t && b->fold && b->fold->constant[id]) an_fold_emit(b, id);
    refresh(b, id);
    memcpy(b->part, part, sizeof part);
    return v;
}

an_tensor *an_value_tensor(an_build *b, int32_t value)
{
    const an_built_value *v = an_build_get(b, value);
    return an_plain(v->t, v->last);
}

/* ---- arguments */

bool an_in_none(const an_pt2_node *n, int i)
{
    return n->arg[i].kind == AN_ARG_NONE;
}

bool an_in_is_tensor(const an_pt2_node *n, int i)
{
    return n->arg[i].kind == AN_ARG_TENSOR;
}

/* A value as a node reads it: where autocast is off, what the policy has narrowed is float32 again. */
static an_built_value read_value(an_build *b, const an_pt2_node *n, int32_t id, int at)
{
    an_dtype dtype;
    an_built_value v = *an_build_get(b, id);
    if (b->part[at > 0] && v.t && v.im)
        v.t = v.im;
    else if (b->part[at > 0] && v.t && !an_complex_is_place(n, at)) /* a real number has no imaginary part */
        v.t = an_full_at(AN_AT, b->cx, an_dtype_of(v.t), an_shape_of(v.t), 0);
    if (v.t && n->without_autocast && an_pt2_dtype(b->g->value[id].torch_dtype, &dtype) && dtype == AN_F32 &&
        an_dtype_size(an_dtype_of(v.t)) == 2)
        v.t = an_cast_at(AN_AT, v.t, AN_F32);
    return v;
}

an_built_value an_in_value(an_build *b, const an_pt2_node *n, int i)
{
    return n->arg[i].kind == AN_ARG_TENSOR ? read_value(b, n, n->arg[i].value, i) : (an_built_value){.t = NULL};
}

an_tensor *an_in(an_build *b, const an_pt2_node *n, int i)
{
    const an_built_value v = an_in_value(b, n, i);
    return v.t ? an_plain(v.t, v.last) : NULL;
}

int an_in_count(const an_pt2_node *n, int i)
{
    return n->arg[i].kind == AN_ARG_TENSORS ? n->arg[i].n : 0;
}

an_built_value an_in_list_value(an_build *b, const an_pt2_node *n, int i, int k)
{
    const int32_t id = k < an_in_count(n, i) ? n->arg[i].values[k] : -1;
    return id < 0 ? (an_built_value){.t = NULL} : read_value(b, n, id, k);
}

an_tensor *an_in_list(an_build *b, const an_pt2_node *n, int i, int k)
{
    const an_built_value v = an_in_list_value(b, n, i, k);
    return an_plain(v.t, v.last);
}

static an_pt2_number number_of(const an_build *b, const an_pt2_number *x)
{
    return x->symbol >= 0 ? b->symbol[x->symbol] : *x;
}

int64_t an_in_int(const an_build *b, const an_pt2_node *n, int i)
{
    return number_of(b, &n->arg[i].number).i;
}

double an_in_float(const an_build *b, const an_pt2_node *n, int i)
{
    return number_of(b, &n->arg[i].number).f;
}

bool an_in_bool(const an_build *b, const an_pt2_node *n, int i)
{
    return number_of(b, &n->arg[i].number).i != 0;
}

int an_in_ints(const an_build *b, const an_pt2_node *n, int i, int64_t *out, int cap)
{
    const an_pt2_arg *a = &n->arg[i];
    if (a->kind == AN_ARG_INT && cap > 0) return out[0] = number_of(b, &a->number).i, 1;
    if (a->kind != AN_ARG_INTS) return 0;
    const int count = (int)AN_MIN(a->n, cap);
    for (int k = 0; k < count; k++) out[k] = number_of(b, &a->numbers[k]).i;
    return count;
}

an_shape an_in_shape(const an_build *b, const an_pt2_node *n, int i)
{
    an_shape s = {.rank = 0};
    s.rank = an_in_ints(b, n, i, s.dim, 8);
    return s;
}

/* ---- results */

bool an_out_used(const an_pt2_node *n, int k)
{
    return k < n->n_out && n->out[k].kind == AN_ARG_TENSOR;
}

/* Result k: one of several tensors, or one of a list of tensors. -1: no value takes it. */
static int32_t result_id(const an_pt2_node *n, int k)
{
    if (n->n_out == 1 && n->out[0].kind == AN_ARG_TENSORS) return k < n->out[0].n ? n->out[0].values[k] : -1;
    return an_out_used(n, k) ? n->out[k].value : -1;
}

bool an_out_is_byte(const an_build *b, const an_pt2_node *n, int k)
{
    const int32_t id = result_id(n, k);
    return id >= 0 && strcmp(an_pt2_dtype_name(b->g->value[id].torch_dtype), "uint8") == 0;
}

/* `t` as the file has value `id`: integers of 8 and 16 bits are int32 here and wrap, and truth values of a byte are no bools. */
static an_tensor *in_range(const an_build *b, int32_t id, an_tensor *t)
{
    const char *dtype = an_pt2_dtype_name(b->g->value[id].torch_dtype);
    const bool byte = strcmp(dtype, "uint8") == 0, narrow = strcmp(dtype, "int8") == 0;
    if (!byte && !narrow && strcmp(dtype, "int16") != 0) return t;
    if (an_dtype_of(t) == AN_BOOL) return an_cast_at(AN_AT, t, AN_I32);
    if (an_dtype_of(t) != AN_I32) return t;
    const double below = byte ? 0 : narrow ? 128 : 32768, mask = byte || narrow ? 255 : 65535;
    if (below != 0) t = an_add_num_at(AN_AT, t, below);
    t = an_and_at(AN_AT, t, an_const_at(AN_AT, b->cx, AN_I32, mask));
    return below != 0 ? an_add_num_at(AN_AT, t, -below) : t;
}

an_tensor *an_in_range_of(const an_build *b, const an_pt2_node *n, int i, an_tensor *t)
{
    return in_range(b, n->arg[i].value, t);
}

/* What only reads elements in another order, of the dtype that they have, leaves them as they are. A node that a rule made for a gradient
 * has no row. */
static bool moves_only(const an_build *b, const an_pt2_node *n, int32_t id)
{
    return n->rule && n->rule->kind == AN_VIEW && n->arg[0].kind == AN_ARG_TENSOR &&
           b->g->value[n->arg[0].value].torch_dtype == b->g->value[id].torch_dtype;
}

void an_out_last(an_build *b, const an_pt2_node *n, int k, an_tensor *t, bool last)
{
    const int32_t id = result_id(n, k);
    if (id >= 0 && t) set(b, id, moves_only(b, n, id) ? t : in_range(b, id, t), last);
}

void an_out(an_build *b, const an_pt2_node *n, int k, an_tensor *t)
{
    an_out_last(b, n, k, t, false);
}

void an_out_once(an_build *b, const an_pt2_node *n, int k, an_tensor *once)
{
    const int32_t id = result_id(n, k);
    if (id >= 0) b->value[id].once = once;
}

void an_out_imaginary(an_build *b, const an_pt2_node *n, int k, an_tensor *im)
{
    const int32_t id = result_id(n, k);
    if (id >= 0) b->value[id].im = im;
}

an_tensor *an_out_get(an_build *b, const an_pt2_node *n, int k)
{
    const int32_t id = result_id(n, k);
    return id >= 0 ? an_plain(b->value[id].t, b->value[id].last) : NULL;
}

int an_out_count(const an_pt2_node *n)
{
    return n->n_out == 1 && n->out[0].kind == AN_ARG_TENSORS ? n->out[0].n : n->n_out;
}

an_dtype an_out_dtype(const an_build *b, const an_pt2_node *n, int k)
{
    an_dtype dtype = AN_F32;
    const int32_t id = result_id(n, k);
    if (id >= 0) (void)an_pt2_dtype(an_pt2_real(b->g->value[id].torch_dtype), &dtype);
    return dtype;
}

/* ---- operations in place */

static an_status write_value(an_build *b, int32_t id, an_tensor *t, an_tensor *im, bool last);

/* The parent of a view with the view's elements replaced by `t`, which is plain. NULL: not known for this view. */
static an_tensor *write_through(an_build *b, const an_pt2_node *n, int32_t id, an_tensor *parent, an_tensor *t)
{
    const an_shape p = an_shape_of(parent), s = an_shape_of(t);
    int axis;
    int64_t start, step;
    if (an_view_region(b, n, id, p, &axis, &start, &step)) {
        an_shape part = p;
        part.dim[axis] = p.rank > s.rank ? 1 : s.dim[axis];
        if (step != 1) return an_put_strided(b, parent, axis, start, step, an_reshape_at(AN_AT, t, part));
        an_tensor *pieces[] = {an_slice_at(AN_AT, parent, axis, 0, start, 1), an_reshape_at(AN_AT, t, part),
                               an_slice_at(AN_AT, parent, axis, start + part.dim[axis], p.dim[axis], 1)};
        return an_concat_at(AN_AT, pieces, 3, axis);
    }
    return an_view_undone(b, n, t, parent);
}

/* Whether the node's result is its argument with the other sign of the imaginary part. */
static bool is_conj(const an_pt2_node *n)
{
    return strncmp(n->target, "aten.conj.", 10) == 0 || strncmp(n->target, "aten._conj.", 11) == 0;
}

/* Whether PyTorch keeps the value as another's memory and a mark that the sign is to be turned. */
static bool is_marked(const an_build *b, int32_t id)
{
    bool marked = false;
    for (const an_built_value *v = &b->value[id]; v->view; v = &b->value[v->parent])
        if (is_conj(v->view) && v->im) marked = !marked;
    return marked;
}

static an_status write_value(an_build *b, int32_t id, an_tensor *t, an_tensor *im, bool last)
{
    an_built_value *v = &b->value[id];
    set(b, id, t, last);
    v->im = im;
    if (!v->view) return AN_OK;
    if (an_aten_written(v->view) >= 0) {
        AN_TRY(write_value(b, v->parent, t, im, last));
    } else {
        const an_built_value *parent = an_build_get(b, v->parent);
        an_tensor *old = an_plain(parent->t, parent->last), *old_im = parent->im, *whole = NULL, *whole_im = NULL;
        if (!im == !old_im) whole = write_through(b, v->view, id, old, an_plain(t, last));
        if (whole && im) whole_im = write_through(b, v->view, id, old_im, is_conj(v->view) ? an_neg_at(AN_AT, im) : im);
        if (!whole)
            return an_build_refuse(
                b, AN_E_UNSUPPORTED,
                "writes in place through a view (%s) that cannot be written through; write into a clone()",
                v->view->target);
        AN_TRY(write_value(b, v->parent, whole, whole_im, false));
    }
    v->seen = b->value[v->parent].version;
    return AN_OK;
}

an_status an_in_write(an_build *b, const an_pt2_node *n, int i, an_tensor *t)
{
    return n->arg[i].kind == AN_ARG_TENSOR ? write_value(b, n->arg[i].value, t, NULL, false) : AN_OK;
}

/* Whether both have one order in memory: what is moved to another dtype or order is a copy, else it is the tensor itself. */
static bool lies_alike(const an_pt2_value *from, const an_pt2_value *to)
{
    bool alike = from->rank == to->rank && from->torch_dtype == to->torch_dtype;
    for (int i = 0; alike && i < from->rank; i++) alike = from->step[i] == to->step[i];
    return alike;
}

/* Whether the elements of `from`, in their order, have the shape of `to` without being moved: each run of axes of `from` that follow one
 * another in memory is some axes of `to`. PyTorch's reshape is then a view. */
static bool folds(const an_pt2_value *from, const an_pt2_value *to)
{
    int k = to->rank;
    for (int i = from->rank; i-- > 0;) {
        uint64_t run = (uint64_t)from->dim[i], got = 1; /* of a damaged file: modulo 2^64 */
        if (run == 1) continue;
        for (int j = i; i > 0; i--) {
            const uint64_t length = (uint64_t)from->dim[i - 1];
            if (length == 0) return true;
            if (length != 1 && (uint64_t)from->step[i - 1] != run * (uint64_t)from->step[j]) break;
            if (length != 1) run *= length;
        }
        while (k > 0 && (got < run || to->dim[k - 1] == 1)) got *= (uint64_t)to->dim[--k];
        if (got != run) return run == 0;
    }
    return true;
}

/* Whether a result of the node shares memory with the first argument. */
static bool is_view(const an_build *b, const an_pt2_node *n)
{
    if (n->rule->kind != AN_VIEW || n->arg[0].kind != AN_ARG_TENSOR) return false;
    const int32_t id = result_id(n, 0);
    const an_pt2_value *const from = &b->g->value[n->arg[0].value], *const to = id >= 0 ? &b->g->value[id] : from;
    if (strncmp(n->target, "aten.to.", 8) == 0) {
        const int copy_at = strstr(n->target, "dtype_layout") ? 6 : strstr(n->target, "device") ? 4 : 3;
        return !an_in_bool(b, n, copy_at) && lies_alike(from, to);
    }
    if (!strncmp(n->target, "aten.contiguous.", 16) || !strncmp(n->target, "aten.type_as.", 13))
        return lies_alike(from, to);
    if (strncmp(n->target, "aten.resolve_conj.", 18) == 0) return !is_marked(b, n->arg[0].value);
    if (strstr(n->target, "ravel")) return from->contiguous;
    if (strstr(n->target, "reshape") || strstr(n->target, "aten.flatten")) return folds(from, to);
    return true;
}

/* The results of the node are views of its argument `at`. */
static an_status link_views(an_build *b, const an_pt2_node *n, int at)
{
    const int32_t parent = n->arg[at].value;
    const int depth = b->value[parent].view ? b->value[parent].depth + 1 : 1;
    if (depth > MOST_VIEWS)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "a view of a view, more than %d deep; put a clone() in between",
                               MOST_VIEWS);
    const int count = an_out_count(n);
    for (int k = 0; k < count; k++) {
        const int32_t id = result_id(n, k);
        if (id < 0) continue;
        b->value[id].view = n;
        b->value[id].parent = parent;
        b->value[id].depth = depth;
        b->value[id].seen = b->value[parent].version;
    }
    return AN_OK;
}

/* The rule of relu gives the result of relu_ its value; it is then that of argument `at`, which is written, too. */
static an_status finish_in_place(an_build *b, const an_pt2_node *n, int at)
{
    const int32_t id = result_id(n, 0);
    if (n->arg[at].kind != AN_ARG_TENSOR || id < 0)
        return an_build_refuse(b, AN_E_UNSUPPORTED, "an operation in place on something that is no tensor");
    an_built_value *v = &b->value[id];
    const an_built_value *self = an_build_get(b, n->arg[at].value);
    an_tensor *t = v->t;
    if (!t) return AN_OK; /* recorded */
    const an_shape want = an_shape_of(self->t), have = an_shape_of(t);
    if (have.rank != want.rank && v->last != self->last) t = an_plain(t, v->last);
    if (an_dtype_of(self->t) != an_dtype_of(t)) t = an_cast_at(AN_AT, t, an_dtype_of(self->t));
    v->view = NULL;
    v->t = t;
    AN_TRY(write_value(b, n->arg[at].value, t, v->im, v->last));
    return link_views(b, n, at);
}

/* ---- all nodes */

static an_status recorded(an_build *b)
{
    const char *sentence = an_error(b->cx);
    return sentence ? an_build_refuse(b, an_error_status(b->cx), "%.400s", sentence) : AN_OK;
}

static an_status apply(an_build *b, const an_pt2_node *n)
{
    const an_policy given = an_get_policy(b->cx);
    an_policy full = given;
    full.matmul = AN_F32;
    if (n->without_autocast) an_set_policy(b->cx, full);
    const an_status status = run_rule(b, n);
    if (n->without_autocast) an_set_policy(b->cx, given);
    return status;
}

an_status an_build_node(an_build *b, const an_pt2_node *n)
{
    const int written = an_aten_written(n);
    b->now = n;
    AN_TRY(apply(b, n));
    AN_TRY(recorded(b));
    if (written >= 0) return finish_in_place(b, n, written);
    return is_view(b, n) ? link_views(b, n, 0) : AN_OK;
}

an_status an_build_run(an_build *b)
{
    const char *scope = "";
    an_status status = AN_OK;
    for (int32_t i = 0; i < b->g->n_nodes && status == AN_OK; i++) {
        const an_pt2_node *n = &b->g->node[i];
        if (b->fold && an_fold_skips(b, i)) continue;
        if (strcmp(scope, n->module) != 0) {
            if (*scope) an_scope_pop(b->cx);
            if (*n->module) an_scope_push(b->cx, n->module);
            scope = n->module;
        }
        status = an_build_node(b, n);
    }
    if (*scope) an_scope_pop(b->cx);
    return status;
}
