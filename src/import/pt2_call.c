/* pt2_call.c: a graph as a function of another program's arrays (an_import_call).
 *
 * Owns:       the states that arrays are bound to, one an array and order of its axes; what had to be copied. Their
 *             names begin with a dot, as no parameter's and no buffer's does: a module of PyTorch has no empty name.
 * Does not:   know who calls: python/anneal/torch.py does.
 * Invariants: when a call has ended nothing is bound any more: the caller may free its arrays. */
#include "import/pt2_call.h"
#include <anneal_interop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANK = 8, TEXT = 16 + 8 * 21 };

static an_shape shape_of(const an_import_array *a)
{
    an_shape s = {.rank = a->rank};
    memcpy(s.dim, a->dim, (size_t)a->rank * sizeof s.dim[0]);
    return s;
}

an_status an_call_failed(const an_call *c)
{
    return an_fail(c->err, an_error_status(c->cx), "%s: %.800s", c->m->file->archive.path,
                   an_error(c->cx) ? an_error(c->cx) : "the step failed");
}

static const char *const dtype_names[AN_N_DTYPES] = {
    [AN_F32] = "float32", [AN_BF16] = "bfloat16", [AN_F16] = "float16", [AN_F64] = "float64",
    [AN_I32] = "int32",   [AN_I64] = "int64",     [AN_U8] = "uint8",    [AN_BOOL] = "bool"};

static const char *dtype_name(int32_t dtype)
{
    return dtype == AN_IMPORT_I8 ? "int8" : dtype == AN_IMPORT_I16 ? "int16" : dtype_names[dtype];
}

static size_t element_bytes(const an_import_array *a)
{
    return a->dtype == AN_IMPORT_I8 ? 1 : a->dtype == AN_IMPORT_I16 ? 2 : an_dtype_size((an_dtype)a->dtype);
}

/* "float32 [5,3]" */
static const char *array_text(const an_import_array *a, char out[TEXT])
{
    int n = snprintf(out, TEXT, "%s [", dtype_name(a->dtype));
    for (int i = 0; i < a->rank; i++)
        n += snprintf(out + n, TEXT - (size_t)n, "%s%lld", i ? "," : "", (long long)a->dim[i]);
    snprintf(out + n, TEXT - (size_t)n, "]");
    return out;
}

/* Integers are int32 in a graph, however wide the caller's are. */
static bool is_narrowed(const an_import_array *a)
{
    return a->dtype == AN_I64 || a->dtype == AN_U8 || a->dtype == AN_IMPORT_I8 || a->dtype == AN_IMPORT_I16;
}

static an_dtype inside(const an_import_array *a)
{
    return is_narrowed(a) ? AN_I32 : (an_dtype)a->dtype;
}

static bool is_dtype(int32_t dtype)
{
    return (dtype >= 0 && dtype < AN_N_DTYPES) || dtype == AN_IMPORT_I8 || dtype == AN_IMPORT_I16;
}

static an_status check_array(const an_call *c, const an_import_array *a, int i)
{
    an_import_entry e = {0};
    bool good = a->rank >= 0 && a->rank <= RANK && is_dtype(a->dtype);
    int64_t n = 1;
    for (int k = 0; good && k < a->rank; k++) {
        good = a->dim[k] >= 0 && a->dim[k] <= INT32_MAX && (a->dim[k] == 0 || n <= INT64_MAX / 16 / a->dim[k]) &&
               a->step[k] >= 0 && a->step[k] <= INT64_MAX / 16 / AN_MAX(a->dim[k], 1);
        n *= a->dim[k];
    }
    if (!good)
        return an_fail(
            c->err, AN_E_USAGE,
            "%s: array %d: dtype must be an an_dtype, rank 0 to 8, lengths 0 to 2147483647, steps not negative",
            c->m->file->archive.path, i);
    if (c->runs && n > 0 && !a->data)
        return an_fail(c->err, AN_E_USAGE, "%s: input %d has no data", c->m->file->archive.path, i);
    (void)an_import_get(c->m->file, AN_IMPORT_INPUT, i, &e);
    if (inside(a) != e.dtype)
        return an_fail(c->err, AN_E_DTYPE, "%s: input %d, %.60s, is %s: the graph takes %.20s",
                       c->m->file->archive.path, i, e.name, dtype_name(a->dtype), e.torch_dtype);
    if (e.first_axis_free && a->rank > 0) e.shape.dim[0] = a->dim[0];
    if (e.shape.rank == a->rank && memcmp(e.shape.dim, a->dim, (size_t)a->rank * sizeof a->dim[0]) == 0) return AN_OK;
    char has[TEXT], takes[TEXT];
    an_import_array want = {.dtype = a->dtype, .rank = e.shape.rank};
    memcpy(want.dim, e.shape.dim, sizeof want.dim);
    return an_fail(c->err, AN_E_SHAPE, "%s: input %d, %.60s, is %s: the graph takes another shape, %s",
                   c->m->file->archive.path, i, e.name, array_text(a, has), array_text(&want, takes));
}

/* ---- inputs */

/* The order in which the axes lie in memory, the slowest first; those of length 1 or step 0 keep their places. False: the
 * elements are not dense. */
static bool order_of(const an_import_array *a, int order[RANK])
{
    int moving[RANK], n = 0;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] > 1 && a->step[i] > 0) moving[n++] = i;
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && a->step[moving[k]] > a->step[moving[k - 1]]; k--) {
            const int swap = moving[k];
            moving[k] = moving[k - 1];
            moving[k - 1] = swap;
        }
    int64_t expected = 1;
    for (int i = n; i-- > 0; expected *= a->dim[moving[i]])
        if (a->step[moving[i]] != expected) return false;
    for (int i = 0, k = 0; i < a->rank; i++) order[i] = a->dim[i] > 1 && a->step[i] > 0 ? moving[k++] : i;
    return true;
}

/* Axes 0, 2, 3, ..., 1. */
static bool is_last(const an_import_array *a, const int order[RANK])
{
    bool last = a->rank >= 3 && a->rank <= 5 && a->dim[1] > 1 && order[a->rank - 1] == 1 && order[0] == 0;
    for (int i = 1; last && i < a->rank - 1; i++) last = order[i] == i + 1;
    return last;
}

int64_t an_call_integer(const void *from, int32_t dtype)
{
    int64_t wide;
    int32_t narrow;
    int16_t half;
    switch (dtype) {
    case AN_IMPORT_I8: return (int64_t) * (const signed char *)from;
    case AN_IMPORT_I16: memcpy(&half, from, sizeof half); return half;
    case AN_I64: memcpy(&wide, from, sizeof wide); return wide;
    case AN_I32: memcpy(&narrow, from, sizeof narrow); return narrow;
    default: return (int64_t) * (const unsigned char *)from;
    }
}

/* Bytes from the first to behind the last element. */
static int64_t span_bytes(const an_import_array *a)
{
    int64_t last = 0;
    for (int k = 0; k < a->rank; k++) last += AN_MAX(a->dim[k] - 1, 0) * a->step[k];
    return (last + 1) * (int64_t)element_bytes(a);
}

/* Whether arrays are device memory, which this process does not read. */
static bool on_device(const an_call *c)
{
    return an_bind_takes(c->cx) == AN_EXTERNAL_POINTER;
}

/* The array's bytes where this process reads them; *own: to be freed. */
static an_status fetched(const an_call *c, const an_import_array *a, const char **out, char **own)
{
    *out = a->data;
    *own = NULL;
    if (!on_device(c)) return AN_OK;
    const size_t bytes = (size_t)span_bytes(a);
    *out = *own = malloc(bytes);
    if (!*own) return an_fail_nomem(c->err, "an input", bytes);
    return an_read_external(c->cx, a->data, 0, *own, bytes) == AN_OK ? AN_OK : an_call_failed(c);
}

/* A copy in C order; integers as int32. */
static an_status gather(const an_call *c, const an_import_array *a, int index, const char *from_data, an_tensor **out)
{
    const bool narrow = is_narrowed(a);
    const an_dtype dtype = inside(a);
    const size_t from = element_bytes(a), to = an_dtype_size(dtype);
    const int64_t n = an_array_elements(a);
    int64_t at[RANK] = {0}, element = 0;
    char *data = malloc((size_t)n * to);
    if (!data) return an_fail_nomem(c->err, "an input", (size_t)n * to);
    for (int64_t i = 0; i < n; i++) {
        const char *p = from_data + element * (int64_t)from;
        if (narrow) {
            const int64_t wide = an_call_integer(p, a->dtype);
            const int32_t value = (int32_t)wide;
            if (wide != value) {
                free(data);
                return an_fail(c->err, AN_E_DATA, "%s: input %d holds %lld: integers are 32 bits wide here",
                               c->m->file->archive.path, index, (long long)wide);
            }
            memcpy(data + i * 4, &value, sizeof value);
        } else {
            memcpy(data + (size_t)i * to, p, from);
        }
        for (int axis = a->rank - 1; axis >= 0; axis--) {
            element += a->step[axis];
            if (++at[axis] < a->dim[axis]) break;
            element -= a->dim[axis] * a->step[axis];
            at[axis] = 0;
        }
    }
    *out = an_input_at(AN_AT, c->cx, dtype, shape_of(a), data);
    c->m->copies++;
    c->m->copied_bytes += n * (int64_t)from;
    free(data);
    return AN_OK;
}

static an_status copied(const an_call *c, const an_import_array *a, int index, an_tensor **out)
{
    const char *data;
    char *own;
    an_status status = fetched(c, a, &data, &own);
    if (status == AN_OK) status = gather(c, a, index, data, out);
    free(own);
    return status;
}

/* A state over the array's memory, its axes in the order in which they lie, then permuted and repeated as the array is. */
static an_status bound_input(const an_call *c, const an_import_array *a, const int order[RANK], int i)
{
    char name[64] = "";
    an_shape lies = {.rank = a->rank}, perm = {.rank = a->rank};
    int n = snprintf(name, sizeof name, ".in.%d.", i);
    int64_t bytes = (int64_t)an_dtype_size((an_dtype)a->dtype);
    bool plain = true, repeated = false;
    for (int k = 0; k < a->rank; k++) {
        const int64_t dim = a->step[order[k]] > 0 || a->dim[order[k]] == 1 ? a->dim[order[k]] : 1;
        lies.dim[k] = dim;
        perm.dim[order[k]] = k;
        repeated |= dim != a->dim[order[k]];
        plain &= order[k] == k;
        bytes *= dim;
        n += snprintf(name + n, sizeof name - (size_t)n, "%d%s", order[k], dim != a->dim[order[k]] ? "*" : "");
    }
    an_tensor *t = an_state_at(AN_AT, c->cx, name, (an_dtype)a->dtype, lies, AN_ZEROS);
    if (an_error(c->cx)) return an_call_failed(c);
    if (c->runs && an_bind(t, a->data, (size_t)bytes, AN_READ_ONLY) != AN_OK) return an_call_failed(c);
    c->bound[i] = c->runs ? t : NULL;
    c->last_in[i] = !repeated && is_last(a, order);
    if (!plain && !c->last_in[i]) t = an_permute_at(AN_AT, t, perm);
    c->in[i] = repeated ? an_expand_at(AN_AT, t, shape_of(a)) : t;
    return AN_OK;
}

/* A state has one shape for ever: only arrays of the size that the graph was exported with have one. */
static bool usual_size(const an_call *c, const an_import_array *a, int i)
{
    an_import_entry e = {0};
    (void)an_import_get(c->m->file, AN_IMPORT_INPUT, i, &e);
    return a->rank == 0 || e.shape.dim[0] == a->dim[0];
}

static bool is_aligned(const an_call *c, const an_import_array *a)
{
    return (uintptr_t)a->data % an_bind_alignment(c->cx, (an_dtype)a->dtype) == 0;
}

static an_status take_input(const an_call *c, const an_import_array *a, int i)
{
    int order[RANK];
    AN_TRY(check_array(c, a, i));
    if (an_array_elements(a) == 0) {
        c->in[i] = an_full_at(AN_AT, c->cx, inside(a), shape_of(a), 0);
        return AN_OK;
    }
    if (!is_narrowed(a) && is_aligned(c, a) && usual_size(c, a, i) && order_of(a, order))
        return bound_input(c, a, order, i);
    if (c->runs) return copied(c, a, i, &c->in[i]);
    c->in[i] = an_input_at(AN_AT, c->cx, inside(a), shape_of(a), NULL);
    return AN_OK;
}

/* ---- results */

/* Integers leave as wide as PyTorch has them. */
static an_status widen_results(const an_call *c)
{
    for (int i = 0; i < c->n_out; i++) {
        an_import_entry e;
        if (!an_import_get(c->m->file, AN_IMPORT_OUTPUT, i, &e)) continue;
        if (!c->out[i] && strcmp(e.torch_dtype, "none") != 0)
            return an_fail(c->err, AN_E_UNSUPPORTED, "%s: result %d, %.60s, is not known here",
                           c->m->file->archive.path, i, e.name);
        if (!c->out[i]) continue;
        if (strcmp(e.torch_dtype, "int64") == 0) c->out[i] = an_cast_at(AN_AT, c->out[i], AN_I64);
        if (strcmp(e.torch_dtype, "uint8") == 0)
            c->out[i] = an_cast_at(AN_AT, c->out[i], AN_U8);
        else if (an_dtype_of(c->out[i]) != e.dtype && strcmp(e.torch_dtype, "int64") != 0)
            c->out[i] = an_cast_at(AN_AT, c->out[i], e.dtype);
    }
    return AN_OK;
}

static void describe_result(const an_call *c, int i, an_import_array *out)
{
    *out = (an_import_array){.dtype = -1};
    if (!c->out[i]) return;
    const an_shape s = an_shape_of(c->out[i]);
    int64_t step = 1;
    out->dtype = (int32_t)an_dtype_of(c->out[i]);
    out->rank = s.rank;
    for (int stored = s.rank - 1; stored >= 0; stored--) { /* the axis of the result that lies there */
        const int axis = !c->last_out[i] || stored == 0 ? stored : stored == s.rank - 1 ? 1 : stored + 1;
        out->dim[axis] = s.dim[stored];
        out->step[axis] = step;
        step *= s.dim[stored];
    }
}

/* A state has one shape for ever: results of another size than the graph was exported with are copied. */
static bool usual_result(const an_call *c, const an_import_array *is, int i)
{
    an_import_entry e = {0};
    (void)an_import_get(c->m->file, AN_IMPORT_OUTPUT, i, &e);
    return e.shape.rank == is->rank && memcmp(e.shape.dim, is->dim, (size_t)is->rank * sizeof is->dim[0]) == 0;
}

static int64_t result_bytes(const an_import_array *a)
{
    return an_array_elements(a) * (int64_t)an_dtype_size((an_dtype)a->dtype);
}

/* Result i, evaluated, to where the caller wants it. */
static an_status copied_out(const an_call *c, const an_import_array *want, int i)
{
    const size_t each = an_dtype_size((an_dtype)want->dtype);
    int64_t at[RANK] = {0}, element = 0;
    const size_t bytes = (size_t)result_bytes(want);
    char *data = malloc(bytes), *to = on_device(c) ? malloc(bytes) : want->data; /* without gaps: as many bytes */
    if (!data || !to) {
        free(data);
        return an_fail_nomem(c->err, "a result", bytes);
    }
    an_status status = an_read_at(AN_AT, c->out[i], data, bytes);
    for (int64_t k = 0; status == AN_OK && k < an_array_elements(want); k++) {
        memcpy(to + (size_t)element * each, data + (size_t)k * each, each);
        for (int axis = want->rank - 1; axis >= 0; axis--) {
            element += want->step[axis];
            if (++at[axis] < want->dim[axis]) break;
            element -= want->dim[axis] * want->step[axis];
            at[axis] = 0;
        }
    }
    if (status == AN_OK && on_device(c)) status = an_write_external(c->cx, want->data, 0, to, bytes);
    free(data);
    if (to != want->data) free(to);
    return status == AN_OK ? AN_OK : an_call_failed(c);
}

/* Of an array without gaps; of one with gaps, more. */
static bool overlap(const an_import_array *a, const an_import_array *b)
{
    uintptr_t begin[2], end[2];
    for (int i = 0; i < 2; i++) {
        const an_import_array *x = i ? b : a;
        begin[i] = (uintptr_t)x->data;
        end[i] = an_array_elements(x) ? begin[i] + (uintptr_t)span_bytes(x) : begin[i];
    }
    return begin[0] < end[1] && begin[1] < end[0];
}

/* Results are written where nothing else is that a call reads or writes: an input with gaps is copied before. */
static an_status check_apart(const an_call *c, const an_import_array *in, const an_import_array *out)
{
    int order[RANK];
    for (int i = 0; i < c->n_out; i++) {
        if (!c->out[i] || an_array_elements(&out[i]) == 0) continue;
        for (int k = 0; k < i; k++)
            if (c->out[k] && an_array_elements(&out[k]) > 0 && overlap(&out[i], &out[k]))
                return an_fail(c->err, AN_E_USAGE, "%s: result %d overlaps result %d: give each an array of its own",
                               c->m->file->archive.path, i, k);
        for (int k = 0; k < c->n_in; k++)
            if (an_array_elements(&in[k]) > 0 && order_of(&in[k], order) && overlap(&out[i], &in[k]))
                return an_fail(c->err, AN_E_USAGE, "%s: result %d overlaps input %d: give it an array of its own",
                               c->m->file->archive.path, i, k);
    }
    return AN_OK;
}

/* That result i can be stored there: in any order of its axes, without gaps. */
static an_status check_result(const an_call *c, const an_import_array *want, int i)
{
    char has[TEXT], takes[TEXT];
    int order[RANK];
    an_import_array is;
    if (!c->out[i]) return AN_OK;
    describe_result(c, i, &is);
    bool valid = want->rank >= 0 && want->rank <= RANK && is_dtype(want->dtype), good = valid;
    for (int k = 0; good && k < want->rank; k++) good = want->dim[k] >= 0 && want->step[k] >= 0;
    if (!valid || !good)
        return an_fail(c->err, AN_E_USAGE, "%s: result %d, %s: the array's dtype, rank, lengths or steps are none",
                       c->m->file->archive.path, i, array_text(&is, has));
    good = is.dtype == want->dtype && is.rank == want->rank &&
           memcmp(is.dim, want->dim, sizeof is.dim[0] * (size_t)is.rank) == 0;
    if (!good)
        return an_fail(c->err, AN_E_USAGE, "%s: result %d is %s: it cannot be stored in an array %s",
                       c->m->file->archive.path, i, array_text(&is, has), array_text(want, takes));
    good = order_of(want, order);
    for (int k = 0; good && k < is.rank; k++) good = want->step[k] > 0 || want->dim[k] <= 1;
    if (an_array_elements(&is) == 0 || (good && want->data)) return AN_OK;
    return an_fail(c->err, AN_E_USAGE, "%s: result %d, %s, is to be stored in an array without gaps",
                   c->m->file->archive.path, i, array_text(&is, has));
}

/* Stored as the caller wants it. */
static an_status give_result(const an_call *c, const an_import_array *want, int i)
{
    char name[64];
    int order[RANK];
    an_import_array is;
    if (!c->out[i]) return AN_OK;
    describe_result(c, i, &is);
    (void)order_of(want, order); /* checked before */
    if (an_array_elements(&is) == 0) return AN_OK;
    an_shape lies = {.rank = is.rank};
    if (!usual_result(c, &is, i) || !is_aligned(c, want))
        return c->m->copies++, c->m->copied_bytes += result_bytes(&is), AN_OK; /* copied_out */
    int n = snprintf(name, sizeof name, ".out.%d.", i);
    for (int k = 0; k < is.rank; k++) {
        lies.dim[k] = order[k];
        n += snprintf(name + n, sizeof name - (size_t)n, "%d", order[k]);
    }
    an_tensor *value = an_permute_at(AN_AT, an_plain(c->out[i], c->last_out[i]), lies);
    an_tensor *t = an_state_at(AN_AT, c->cx, name, an_dtype_of(value), an_shape_of(value), AN_ZEROS);
    if (an_error(c->cx)) return an_call_failed(c);
    if (an_bind(t, want->data, (size_t)result_bytes(&is), AN_READ_WRITE) != AN_OK) return an_call_failed(c);
    c->bound[c->n_in + i] = t;
    an_assign_at(AN_AT, t, value);
    return AN_OK;
}

/* ---- a call */

an_status an_call_inputs(an_call *c, const an_import_array *in)
{
    for (int i = 0; i < c->n_in; i++) AN_TRY(take_input(c, &in[i], i));
    return an_error(c->cx) ? an_call_failed(c) : AN_OK;
}

static an_status build(an_call *c, const an_import_array *in, char *why)
{
    AN_TRY(an_call_inputs(c, in));
    const an_status status = an_import_build_as(c->m, c->m->mode, c->in, c->last_in, c->out, c->last_out, why);
    if (status != AN_OK) return c->err->code = status; /* why[] has the sentence */
    AN_TRY(widen_results(c));
    return an_error(c->cx) ? an_call_failed(c) : AN_OK;
}

static an_status run(const an_call *c, const an_import_array *in, const an_import_array *out)
{
    an_bill bill;
    int n = 0; /* results that are copied, which are roots of the evaluation */
    for (int i = 0; i < c->n_out; i++) AN_TRY(check_result(c, &out[i], i));
    AN_TRY(check_apart(c, in, out));
    for (int i = 0; i < c->n_out; i++) {
        AN_TRY(give_result(c, &out[i], i));
        if (!c->out[i] || c->bound[c->n_in + i] || an_array_elements(&out[i]) == 0) continue;
        c->out[i] = an_plain(c->out[i], c->last_out[i]);
        c->root[n++] = c->out[i];
    }
    an_set_step(c->cx, c->m->calls++);
    if (an_error(c->cx)) return an_call_failed(c);
    const an_status status = n ? an_eval_at(AN_AT, c->root, n) : an_eval_effects_at(AN_AT, c->cx);
    if (status != AN_OK || an_error(c->cx)) return an_call_failed(c);
    for (int i = 0; n > 0 && i < c->n_out; i++)
        if (c->out[i] && !c->bound[c->n_in + i] && an_array_elements(&out[i]) > 0) AN_TRY(copied_out(c, &out[i], i));
    if (an_report(c->cx, &bill) == AN_OK) {
        c->m->launches = bill.launches;
        c->m->peak_bytes = (int64_t)bill.peak_bytes;
    }
    return AN_OK;
}

an_status an_call_begin(an_import_model *m, an_err *err, an_call *c)
{
    *c = (an_call){.m = m, .cx = m->cx, .err = err};
    c->n_in = an_import_count(m->file, AN_IMPORT_INPUT);
    c->n_out = an_import_count(m->file, AN_IMPORT_OUTPUT);
    c->in = AN_NEW_ARRAY(&c->arena, an_tensor *, c->n_in + 1);
    c->out = AN_NEW_ARRAY(&c->arena, an_tensor *, c->n_out + 1);
    c->bound = AN_NEW_ARRAY(&c->arena, an_tensor *, c->n_in + c->n_out + 1);
    c->root = AN_NEW_ARRAY(&c->arena, an_tensor *, c->n_out + 1);
    c->last_in = AN_NEW_ARRAY(&c->arena, bool, c->n_in + 1);
    c->last_out = AN_NEW_ARRAY(&c->arena, bool, c->n_out + 1);
    if (!c->in || !c->out || !c->bound || !c->root || !c->last_in || !c->last_out)
        return an_fail_nomem(err, "a call", 0);
    if (an_bind_takes(m->cx) != AN_EXTERNAL_OBJECT) return AN_OK;
    return an_fail(err, AN_E_UNSUPPORTED,
                   "%s: a call takes addresses or device pointers: open the context with device "
                   "\"cpu\" or \"cuda\"",
                   m->file->archive.path);
}

an_status an_call_end(an_call *c, an_status status, const char *built, char *why)
{
    for (int i = 0; c->bound && i < c->n_in + c->n_out; i++)
        if (c->bound[i]) (void)an_bind(c->bound[i], NULL, 0, AN_READ_ONLY);
    if (status != AN_OK && why)
        snprintf(why, AN_IMPORT_WHY, "%s", built[0] ? built : c->err->text[0] ? c->err->text : "the call failed");
    an_arena_free(&c->arena);
    an_reset(c->cx);
    an_error_clear(c->cx);
    return status;
}

static an_status whole(an_import_model *m, const an_import_array *in, an_import_array *plan, const an_import_array *out,
                       char *why)
{
    an_err err = {0};
    char sentence[AN_IMPORT_WHY] = "";
    an_call c;
    an_status status = an_call_begin(m, &err, &c);
    c.runs = out != NULL;
    if (status == AN_OK) status = build(&c, in, sentence);
    for (int i = 0; plan && status == AN_OK && i < c.n_out; i++) describe_result(&c, i, &plan[i]);
    if (out && status == AN_OK) status = run(&c, in, out);
    return an_call_end(&c, status, sentence, why);
}

an_status an_import_call_plan(an_import_model *m, const an_import_array *in, an_import_array *out,
                              char why[AN_IMPORT_WHY])
{
    return whole(m, in, out, NULL, why);
}

an_status an_import_call(an_import_model *m, const an_import_array *in, const an_import_array *out,
                         char why[AN_IMPORT_WHY])
{
    return whole(m, in, NULL, out, why);
}

void an_import_call_mode(an_import_model *m, an_import_mode mode)
{
    m->mode = mode;
}

void an_import_call_counts(const an_import_model *m, an_import_counts *out)
{
    *out = (an_import_counts){.calls = (int64_t)m->calls,
                              .copies = m->copies,
                              .copied_bytes = m->copied_bytes,
                              .launches = m->launches,
                              .peak_bytes = m->peak_bytes};
}
