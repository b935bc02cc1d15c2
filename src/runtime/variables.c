/* runtime/variables.c: parameters, states, inputs; the layout of parameter blocks; what persists, for checkpoints. */
#include "runtime/runtime.h"
#include "base/map.h"
#include "platform/thread_pool.h"
#include "base/rng.h"
#include "kernels/cpu_kernels.h"

#include <stdlib.h>
#include <string.h>

enum { PARAM_ALIGN = 256 };

bool an_grow(void **array, int32_t n, int32_t *cap, size_t bytes)
{
    if (n < *cap) return true;
    int32_t more = *cap ? 2 * *cap : 16;
    void *bigger = realloc(*array, bytes * (size_t)more);
    if (!bigger) return false;
    memset((char *)bigger + bytes * (size_t)n, 0, bytes * (size_t)(more - n));
    *array = bigger;
    *cap = more;
    return true;
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

int32_t an_store_new(an_ctx *cx, int64_t bytes, an_usage usage, const char *name)
{
    if (!an_grow((void **)&cx->store, cx->n_stores, &cx->cap_stores, sizeof *cx->store)) {
        an_fail_nomem(&cx->err, name, (size_t)bytes);
        return -1;
    }
    cx->store[cx->n_stores] = (an_store){.bytes = bytes, .usage = usage, .name = name};
    return cx->n_stores++;
}

/* ---------------------------------------------------------------------------------------------- parameters and states
 */

static an_tensor *same_again(an_ctx *cx, const char *at, const char *what, const char *name, an_tensor *t,
                             an_dtype dtype, int rank, const int32_t *shape)
{
    if (t->dtype == dtype && t->rank == rank && !memcmp(t->shape, shape, sizeof *shape * (size_t)rank)) return t;
    char have[128], want[128];
    return an_poison(&cx->graph, AN_E_SHAPE, at, "%s: \"%s\" is %s %s already; it cannot also be %s %s", what, name,
                     an_dtype_name((an_dtype)t->dtype), an_shape_text(t->rank, t->shape, have, sizeof have),
                     an_dtype_name(dtype), an_shape_text(rank, shape, want, sizeof want));
}

an_tensor *an_param_at(const char *at, an_ctx *cx, const char *name, an_dtype dtype, an_shape s, an_init init)
{
    int32_t shape[AN_MAX_RANK];
    int64_t numel;
    if (!cx) return NULL;
    if (!name || !*name) return an_poison(&cx->graph, AN_E_USAGE, at, "an_param: a parameter needs a name");
    if (!take_shape(cx, at, "an_param", s, shape, &numel)) return cx->graph.poison;
    if (!an_dtype_is_float(dtype))
        return an_poison(&cx->graph, AN_E_DTYPE, at,
                         "an_param: \"%s\" is %s; parameters are float32, float64, bfloat16 or float16", name,
                         an_dtype_name(dtype));
    for (int i = 0; i < cx->n_params; i++)
        if (!strcmp(cx->param[i].name, name))
            return same_again(cx, at, "an_param", name, cx->param[i].tensor, dtype, s.rank, shape);
    an_param_info p = {.name = an_arena_strdup(&cx->forever, name), .init = init, .decay = s.rank >= 2, .block = -1};
    p.tensor = p.name ? an_persistent(&cx->graph, AN_LEAF_PARAM, cx->n_params, dtype, s.rank, shape) : NULL;
    if (!p.tensor || p.tensor->poison || !an_grow((void **)&cx->param, cx->n_params, &cx->cap_params, sizeof p)) {
        an_fail_nomem(&cx->err, name, (size_t)numel * an_dtype_bytes(dtype));
        return cx->graph.poison;
    }
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

/* ---------------------------------------------------------------------------------------------- blocks */

static an_status new_block(an_ctx *cx, an_dtype dtype, bool decay, bool frozen)
{
    an_block b = {.dtype = dtype, .decay = decay, .frozen = frozen, .store = {-1, -1, -1, -1}};
    size_t each = an_dtype_bytes(dtype);
    int64_t bytes = 0;
    b.param = AN_NEW_ARRAY(&cx->forever, int32_t, cx->n_params);
    if (!b.param || !an_grow((void **)&cx->block, cx->n_blocks, &cx->cap_blocks, sizeof b))
        return an_fail_nomem(&cx->err, "parameter blocks", 0);
    for (int i = 0; i < cx->n_params; i++) {
        an_param_info *p = &cx->param[i];
        if (p->block >= 0 || p->tensor->dtype != dtype || p->decay != decay || p->frozen != frozen || b.n == 255)
            continue;
        p->block = cx->n_blocks;
        p->offset = bytes;
        bytes = an_round_up(bytes + p->tensor->numel * (int64_t)each, PARAM_ALIGN);
        b.param[b.n++] = i;
    }
    b.numel = bytes / (int64_t)each;
    if (b.numel > INT32_MAX) {
        for (int i = 0; i < b.n; i++) cx->param[b.param[i]].block = -1; /* it has no place: each an_eval says so */
        return an_fail(&cx->err, AN_E_UNSUPPORTED,
                       "parameters of one kind have %lld elements; a block holds at most 2147483647: give some of them "
                       "another dtype or decay",
                       (long long)b.numel);
    }
    const char *name = an_arena_printf(&cx->forever, "%s parameters %s", an_dtype_name(dtype),
                                       frozen  ? "(frozen)"
                                       : decay ? "with weight decay"
                                               : "without weight decay");
    b.store[AN_ROLE_PARAM] = an_store_new(cx, bytes, AN_USE_WEIGHT, name);
    if (!name || b.store[AN_ROLE_PARAM] < 0) {
        for (int i = 0; i < b.n; i++) cx->param[b.param[i]].block = -1; /* for the next attempt */
        return an_fail_nomem(&cx->err, "parameter blocks", 0);
    }
    cx->block[cx->n_blocks++] = b;
    return AN_OK;
}

an_status an_freeze(an_ctx *cx)
{
    for (int i = 0; i < cx->n_params; i++)
        if (cx->param[i].block < 0)
            AN_TRY(new_block(cx, (an_dtype)cx->param[i].tensor->dtype, cx->param[i].decay, cx->param[i].frozen));
    return AN_OK;
}

int an_block_leaf(int block, an_role role)
{
    return block * AN_N_ROLES + (int)role;
}

an_leaf_place an_leaf_place_of(void *user, an_leaf kind, int index)
{
    an_ctx *cx = user;
    an_leaf_place at = {.slot = -1};
    if (kind == AN_LEAF_PARAM) {
        const an_param_info *p = &cx->param[index];
        const an_store *s = &cx->store[cx->block[p->block].store[AN_ROLE_PARAM]];
        at = (an_leaf_place){.slot = AN_SLOT_FIRST + (int32_t)(s - cx->store),
                             .offset = p->offset,
                             .bytes = p->tensor->numel * (int64_t)an_dtype_bytes((an_dtype)p->tensor->dtype),
                             .usage = s->usage,
                             .name = p->name};
    } else if (kind == AN_LEAF_BLOCK) {
        int32_t i = cx->block[index / AN_N_ROLES].store[index % AN_N_ROLES];
        at = (an_leaf_place){.slot = AN_SLOT_FIRST + i,
                             .bytes = cx->store[i].bytes,
                             .usage = cx->store[i].usage,
                             .name = cx->store[i].name};
    } else if (kind == AN_LEAF_STATE) {
        int32_t i = cx->state[index].store;
        at = (an_leaf_place){.slot = AN_SLOT_FIRST + i,
                             .bytes = cx->store[i].bytes,
                             .usage = AN_USE_STATE,
                             .name = cx->state[index].name};
    } else {
        at = (an_leaf_place){
            .slot = AN_SLOT_INPUT, .usage = AN_USE_INPUT, .name = kind == AN_LEAF_SCALAR ? "scalar" : "input"};
    }
    return at;
}

int64_t an_pack_place(void *user, int block, int source, int64_t *block_bytes)
{
    an_ctx *cx = user;
    const an_block *b = &cx->block[block];
    *block_bytes = b->numel * (int64_t)an_dtype_bytes(b->dtype);
    return cx->param[b->param[source]].offset;
}

/* ---------------------------------------------------------------------------------------------- memory */

/* Initial values are a function of (seed, name, element) alone, whatever else the model holds and whoever draws them.
 */
typedef struct drawing {
    const an_cpu_templates *isa;
    an_draw what;
    int64_t first, n; /* elements */
    char *out;        /* where element `first` goes */
} drawing;

enum { DRAW_TASK = 1 << 15, DRAW_PIECE = 1 << 20 /* elements on their way to a device the host cannot reach */ };

static void draw_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const drawing *w = arg;
    int64_t at = task * DRAW_TASK;
    w->isa->draw(&w->what, w->first + at, AN_MIN(DRAW_TASK, w->n - at),
                 w->out + (size_t)at * an_dtype_bytes((an_dtype)w->what.dtype));
}

static void draw(drawing *w, an_pool *pool)
{
    an_pool_run(pool, an_ceil_div(w->n, DRAW_TASK), draw_task, w);
}

static an_status initialise(an_ctx *cx, an_pool *pool, an_store *store, int64_t offset, const an_tensor *t,
                            const char *name, an_init init)
{
    if (init.kind == 0 || !t->numel) return AN_OK; /* memory arrives zeroed */
    size_t each = an_dtype_bytes((an_dtype)t->dtype);
    drawing w = {.isa = an_cpu_templates_find(NULL),
                 .what = {.kind = (uint8_t)init.kind,
                          .dtype = t->dtype,
                          .key = an_rng_key(cx->options.seed, UINT64_MAX),
                          .stream = an_rng_stream(an_hash(name, strlen(name), 0), 0),
                          .a = init.a,
                          .b = init.b},
                 .n = t->numel};
    if (store->mem.host) {
        w.out = (char *)store->mem.host + offset;
        draw(&w, pool);
        return AN_OK;
    }
    char *piece = malloc((size_t)AN_MIN(t->numel, DRAW_PIECE) * each);
    an_status status = piece ? AN_OK : an_fail_nomem(&cx->err, name, (size_t)AN_MIN(t->numel, DRAW_PIECE) * each);
    for (w.out = piece; w.first < t->numel && status == AN_OK; w.first += w.n) {
        w.n = AN_MIN(DRAW_PIECE, t->numel - w.first);
        draw(&w, pool);
        status = cx->backend->write(&cx->err, cx->device, &store->mem, (size_t)offset + (size_t)w.first * each, piece,
                                    (size_t)w.n * each);
    }
    free(piece);
    return status;
}

static an_status initialise_store(an_ctx *cx, an_pool *pool, int32_t i)
{
    an_store *s = &cx->store[i];
    for (int p = 0; p < cx->n_params; p++) {
        const an_param_info *q = &cx->param[p];
        if (q->block >= 0 && cx->block[q->block].store[AN_ROLE_PARAM] == i)
            AN_TRY(initialise(cx, pool, s, q->offset, q->tensor, q->name, q->init));
    }
    for (int p = 0; p < cx->n_states; p++)
        if (cx->state[p].store == i)
            AN_TRY(initialise(cx, pool, s, 0, cx->state[p].tensor, cx->state[p].name, cx->state[p].init));
    s->ready = true;
    return AN_OK;
}

an_status an_stores_ready(an_ctx *cx)
{
    int64_t weights = 0;
    for (int i = 0; i < cx->n_stores; i++) {
        an_store *s = &cx->store[i];
        if (s->ready) continue;
        if (!s->allocated) AN_TRY(an_device_alloc(cx, (size_t)s->bytes, &s->mem));
        s->allocated = true;
        if (s->usage == AN_USE_WEIGHT || s->usage == AN_USE_STATE) weights += s->bytes;
    }
    an_pool *pool = NULL; /* a device's own threads are not ours to use; starting some pays for large models */
    if (weights > DRAW_PIECE) AN_TRY(an_pool_open(&cx->err, cx->options.threads, &pool));
    an_status status = AN_OK;
    for (int i = 0; i < cx->n_stores && status == AN_OK; i++)
        if (!cx->store[i].ready) status = initialise_store(cx, pool, i);
    if (pool) an_pool_close(pool);
    return status;
}

int64_t an_persistent_bytes(const an_ctx *cx, uint64_t by_usage[AN_N_USES])
{
    int64_t sum = 0;
    for (int i = 0; i < cx->n_stores; i++) {
        sum += cx->store[i].bytes;
        if (by_usage) by_usage[cx->store[i].usage] += (uint64_t)cx->store[i].bytes;
    }
    return sum;
}

void an_leaves_close(an_ctx *cx)
{
    for (int i = 0; i < cx->n_stores; i++)
        if (cx->store[i].allocated) cx->backend->free(cx->device, &cx->store[i].mem);
    free(cx->param);
    free(cx->block);
    free(cx->state);
    free(cx->store);
    free(cx->input);
    free(cx->scalar);
    free(cx->scalar_int);
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

an_tensor *an_input_at(const char *at, an_ctx *cx, an_dtype dtype, an_shape s, const void *data)
{
    int32_t shape[AN_MAX_RANK];
    int64_t numel;
    if (!cx) return NULL;
    if (!take_shape(cx, at, "an_input", s, shape, &numel)) return cx->graph.poison;
    if ((unsigned)dtype >= AN_N_DTYPES)
        return an_poison(&cx->graph, AN_E_DTYPE, at, "an_input: %d is no dtype", (int)dtype);
    size_t bytes = (size_t)numel * an_dtype_bytes(dtype);
    const bool none = !data && numel; /* to be planned with, not run */
    void *copy = none ? NULL : an_arena_copy(&cx->step, numel ? data : "", numel ? bytes : 1);
    if ((!copy && !none) || !an_grow((void **)&cx->input, cx->n_inputs, &cx->cap_inputs, sizeof *cx->input)) {
        an_fail_nomem(&cx->err, "an input", bytes);
        return cx->graph.poison;
    }
    cx->input[cx->n_inputs] = (an_input_info){copy, bytes, at};
    return leaf(cx, at, AN_LEAF_INPUT, cx->n_inputs++, dtype, s.rank, shape);
}

static an_tensor *scalar(const char *at, an_ctx *cx, double x, bool integer)
{
    if (!cx) return NULL;
    int32_t cap = cx->cap_scalars;
    if (!an_grow((void **)&cx->scalar, cx->n_scalars, &cap, sizeof *cx->scalar) ||
        !an_grow((void **)&cx->scalar_int, cx->n_scalars, &cx->cap_scalars, sizeof *cx->scalar_int)) {
        an_fail_nomem(&cx->err, "a scalar", sizeof x);
        return cx->graph.poison;
    }
    cx->scalar[cx->n_scalars] = x;
    cx->scalar_int[cx->n_scalars] = integer;
    return leaf(cx, at, AN_LEAF_SCALAR, cx->n_scalars++, integer ? AN_I32 : AN_F32, 0, NULL);
}

an_tensor *an_scalar_at(const char *at, an_ctx *cx, double x)
{
    return scalar(at, cx, x, false);
}
an_tensor *an_scalar_i32_at(const char *at, an_ctx *cx, int32_t x)
{
    return scalar(at, cx, x, true);
}

/* ---------------------------------------------------------------------------------------------- what persists */

typedef struct piece {
    const char *name;
    const an_tensor *t;
    int32_t store;
    int64_t offset;
    int kind;
} piece;

/* Entry i: parameters, then first and second moments of those that have them, then states. */
static bool piece_at(an_ctx *cx, int i, piece *out, int *count)
{
    int n = 0;
    for (int p = 0; p < cx->n_params; p++) {
        const an_param_info *q = &cx->param[p];
        if (n++ == i)
            *out = (piece){q->name, q->tensor, q->block >= 0 ? cx->block[q->block].store[AN_ROLE_PARAM] : -1, q->offset,
                           0};
    }
    for (an_role role = AN_ROLE_M; role <= AN_ROLE_V; role++)
        for (int p = 0; p < cx->n_params; p++) {
            const an_param_info *q = &cx->param[p];
            if (q->block < 0 || cx->block[q->block].store[role] < 0) continue;
            if (n++ == i)
                *out = (piece){NULL, q->tensor, cx->block[q->block].store[role], q->offset, role == AN_ROLE_M ? 1 : 2};
        }
    for (int s = 0; s < cx->n_states; s++)
        if (n++ == i) *out = (piece){cx->state[s].name, cx->state[s].tensor, cx->state[s].store, 0, 3};
    if (count) *count = n;
    return i >= 0 && i < n;
}

static const char *piece_name(an_ctx *cx, const piece *p)
{
    if (p->name) return p->name;
    for (int i = 0; i < cx->n_params; i++)
        if (cx->param[i].tensor == p->t)
            return an_arena_printf(&cx->step, "optimizer.%c.%s", p->kind == 1 ? 'm' : 'v', cx->param[i].name);
    return NULL;
}

int an_persist_count(an_ctx *cx)
{
    if (!cx) return 0;
    piece p;
    int n = 0;
    piece_at(cx, -1, &p, &n);
    return n;
}

an_status an_persist_get(an_ctx *cx, int i, an_persist *out)
{
    if (!cx || !out) return AN_E_USAGE;
    piece p;
    if (!piece_at(cx, i, &p, NULL))
        return an_fail(&cx->err, AN_E_USAGE, "an_persist_get: there is no entry %d of %d", i, an_persist_count(cx));
    *out = (an_persist){.name = piece_name(cx, &p),
                        .dtype = (an_dtype)p.t->dtype,
                        .shape = an_shape_of(p.t),
                        .kind = p.kind == 0   ? 0
                                : p.kind == 3 ? 2
                                              : 1};
    return out->name ? AN_OK : an_fail_nomem(&cx->err, "a name", 0);
}

int an_persist_find(an_ctx *cx, const char *name)
{
    if (!cx || !name) return -1;
    int n = an_persist_count(cx);
    for (int i = 0; i < n; i++) {
        an_persist p;
        if (an_persist_get(cx, i, &p) == AN_OK && !strcmp(p.name, name)) return i;
    }
    return -1;
}

static an_status whole_piece(an_ctx *cx, int i, size_t bytes, piece *out)
{
    if (!cx) return AN_E_USAGE;
    if (!cx->device && !an_is_ref(cx)) return cx->err.code ? cx->err.code : AN_E_ENV;
    AN_TRY(an_wait_idle(cx));
    AN_TRY(an_still_whole(cx));
    AN_TRY(an_freeze(cx));
    AN_TRY(an_stores_ready(cx));
    if (!piece_at(cx, i, out, NULL))
        return an_fail(&cx->err, AN_E_USAGE, "an_persist: there is no entry %d of %d", i, an_persist_count(cx));
    size_t want = (size_t)out->t->numel * an_dtype_bytes((an_dtype)out->t->dtype);
    if (bytes == want) return AN_OK;
    return an_fail(&cx->err, AN_E_USAGE, "an_persist: \"%s\" has %zu bytes, not %zu", piece_name(cx, out), want, bytes);
}

an_status an_persist_read(an_ctx *cx, int i, void *dst, size_t bytes)
{
    if (!cx || (!dst && bytes)) return AN_E_USAGE;
    piece p;
    AN_TRY(whole_piece(cx, i, bytes, &p));
    return cx->backend->read(&cx->err, cx->device, &cx->store[p.store].mem, (size_t)p.offset, dst, bytes);
}

an_status an_persist_write(an_ctx *cx, int i, const void *src, size_t bytes)
{
    if (!cx || (!src && bytes)) return AN_E_USAGE;
    piece p;
    AN_TRY(whole_piece(cx, i, bytes, &p));
    return cx->backend->write(&cx->err, cx->device, &cx->store[p.store].mem, (size_t)p.offset, src, bytes);
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
