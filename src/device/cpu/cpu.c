/* cpu.c: the CPU backend: runs the steps of a plan in order, each of them parallel on a thread pool.
 *
 * Owns:       the pool, the hand-written kernels for this processor's instruction set, compiled kernels, the pointers bound to each
 *             step's arguments.
 * Invariants: nothing is allocated in a submit. Work is divided into blocks of the problem, never by the number of
 *             threads, so the bits do not depend on it.
 */
#include "platform/dynamic_library.h"
#include "platform/platform.h"
#include "device/cpu/cpu_internal.h"
#include "codegen/planes.h"
#include "codegen/rows_together.h"
#include "codegen/transposed.h"
#include "comm/comm.h"
#include "device/cpu/float_mode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define AN_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define AN_ASAN 1
#endif
#endif
#ifdef AN_ASAN
#include <sanitizer/asan_interface.h>
#endif

struct an_device {
    an_pool *pool;
    const an_cpu_kernels *builtin;
    an_compiler compiler;
    an_target target;
    an_ticket tickets;
    struct an_comm *comm; /* NULL: a process alone */
};

/* What tasks of a loop kernel do not cut. */
typedef struct an_uncut {
    an_turn turn; /* t = 0: the tiles of its function are of rows and columns, or it is interpreted */
    int64_t rows; /* groups of so many rows */
    bool images;  /* which are images, in planes: tasks of several images are cut along the columns too */
} an_uncut;

struct an_exec {
    const an_plan *plan;
    an_loop_fn *fn;  /* [n_kernels]; NULL: interpreted */
    an_uncut *uncut; /* [n_kernels] */
    an_library *libs;
    void **ptr;     /* argument pointers of all steps, concatenated */
    int32_t *first; /* [n_steps]: index in ptr of a step's first pointer */
    char *own;      /* each thread's: values of the interpreter, or buffers of a compiled kernel (an_columns) */
    size_t own_bytes;
    double *seconds;      /* [n_steps] of the last run */
    const void *bound[2]; /* arena and input the pointers were bound for */
    size_t bound_slots;
};

/* The kernels turn rows of float32. */
static bool rotates(const an_target *t, const an_attn_spec *s)
{
    (void)t;
    return s->dtype == AN_F32 && s->mul_dtype == AN_F32 && s->D % 2 == 0 && s->T == s->S;
}

static bool conv_planes(const an_target *t, const an_gemm_spec *s)
{
    const an_cpu_kernels *cpu = t->backend;
    return cpu->conv_planes(s);
}

static bool gemm_repacks(const an_target *t, const an_gemm_spec *s)
{
    const an_cpu_kernels *cpu = t->backend;
    return cpu->gemm_repacks(s);
}

enum { GUARD = 0xA5, GUARD_BYTES = 256 };

static size_t scratch_of(const an_target *t, const an_kernel *k)
{
    const an_cpu_kernels *cpu = t->backend;
    switch (k->kind) {
    case AN_KERNEL_GEMM: return cpu->gemm_scratch(&k->u.gemm, t->threads);
    case AN_KERNEL_ATTN: return cpu->attn_scratch(&k->u.attn, false, t->threads);
    case AN_KERNEL_ATTN_GRAD: return cpu->attn_scratch(&k->u.attn, true, t->threads);
    case AN_KERNEL_CALL: return an_call_scratch(&k->u.call, cpu, t->threads);
    default: return 0;
    }
}

static int cpu_probe(an_device_info *out)
{
    const an_cpu_kernels *t = an_isa_taken();
    snprintf(out->name, sizeof out->name, "cpu");
    out->built = out->available = true;
    snprintf(out->reason, sizeof out->reason, "%d cores, %s", an_cores_available(), t->isa);
    return 1;
}

static void cpu_close(an_device *d)
{
    if (!d) return;
    an_pool_close(d->pool);
    free(d);
}

static an_status cpu_open(an_err *err, const an_device_options *o, an_device **out)
{
    an_device *d = calloc(1, sizeof *d);
    if (!d) return an_fail_nomem(err, "the cpu device", sizeof *d);
    d->builtin = o->isa ? an_cpu_kernels_find(o->isa) : an_isa_taken();
    if (!d->builtin) {
        free(d);
        return an_fail(err, AN_E_ENV,
                       "cpu: this processor cannot run the instruction set \"%s\"; leave isa out for the best one",
                       o->isa);
    }
#ifdef AN_NO_FLOAT_MODE
    if (o->exact) {
        free(d);
        return an_fail(err, AN_E_UNSUPPORTED, "cpu: exact mode needs an x86-64 or arm64 processor");
    }
#endif
    const uint64_t mode = an_float_mode_set(o->exact);
    an_status status = an_pool_open(err, o->threads, &d->pool);
    an_float_mode_restore(mode);
    if (status != AN_OK) {
        free(d);
        return status;
    }
    an_pool_limit(d->pool, an_cores_available());
    an_compiler_find(&d->compiler, o, d->builtin->isa);
    d->target = (an_target){.dialect = "c",
                            .threads = an_pool_threads(d->pool),
                            .backend = d->builtin,
                            .max_args = AN_LOOP_ARGS,
                            .exact = o->exact,
                            .row_update = true,
                            .scratch = scratch_of,
                            .gemm_repacks = gemm_repacks,
                            .rotates = rotates,
                            .conv_planes = conv_planes};
    *out = d;
    return AN_OK;
}

static an_status cpu_join(an_err *err, an_device *d, struct an_comm *c)
{
    (void)err;
    d->comm = c;
    return AN_OK;
}

static const an_target *cpu_target(an_device *d)
{
    return &d->target;
}

static an_status cpu_alloc(an_err *err, an_device *d, size_t bytes, an_buffer *out)
{
    (void)d;
    void *p = an_pages_alloc(AN_MAX(bytes, 64));
    if (!p) return an_fail_nomem(err, "the cpu device", bytes);
    *out = (an_buffer){.host = p, .bytes = bytes};
    return AN_OK;
}

static void cpu_free(an_device *d, an_buffer *b)
{
    (void)d;
#ifdef AN_ASAN
    if (b->host) __asan_unpoison_memory_region(b->host, AN_MAX(b->bytes, 64));
#endif
    if (b->host) an_pages_free(b->host, AN_MAX(b->bytes, 64));
    *b = (an_buffer){0};
}

static an_status cpu_borrow(an_err *err, an_device *d, void *memory, uint64_t offset, size_t bytes, an_buffer *out)
{
    (void)err;
    (void)d;
    *out = (an_buffer){.host = (char *)memory + offset, .bytes = bytes};
    return AN_OK;
}

static an_status cpu_write(an_err *err, an_device *d, an_buffer *dst, size_t at, const void *src, size_t n)
{
    (void)d;
    if (at > dst->bytes || n > dst->bytes - at)
        return an_fail(err, AN_E_INTERNAL, "cpu: write of %zu bytes at %zu into a buffer of %zu", n, at, dst->bytes);
    memcpy((char *)dst->host + at, src, n);
    return AN_OK;
}

static an_status cpu_read(an_err *err, an_device *d, const an_buffer *src, size_t at, void *dst, size_t n)
{
    (void)d;
    if (at > src->bytes || n > src->bytes - at)
        return an_fail(err, AN_E_INTERNAL, "cpu: read of %zu bytes at %zu from a buffer of %zu", n, at, src->bytes);
    memcpy(dst, (const char *)src->host + at, n);
    return AN_OK;
}

/* ---------------------------------------------------------------------------------------------- loading */

static void cpu_unload(an_device *d, an_exec *e)
{
    (void)d;
    if (!e) return;
    while (e->libs) {
        an_library *next = e->libs->next;
        an_dl_close(e->libs->handle);
        free(e->libs);
        e->libs = next;
    }
    free(e->fn);
    free(e->uncut);
    free(e->ptr);
    free(e->first);
    free(e->own);
    free(e->seconds);
    free(e);
}

/* How kernel p is cut, and the bytes that a thread needs for it. */
static an_uncut uncut_of(const an_loop_kernel *p, bool compiled, size_t *bytes)
{
    *bytes = 0;
    if (!compiled) {
        *bytes = an_interp_scratch(p);
        return (an_uncut){.rows = AN_MAX(p->run, 1)};
    }
    if (p->shape != AN_COL) return (an_uncut){an_turn_of(p), AN_MAX(p->run, 1), false};
    const an_columns c = an_columns_of(p);
    *bytes = c.buffer_bytes;
    return (an_uncut){an_turn_of(p), c.planes.rows ? c.planes.rows : c.together, c.planes.rows > 0};
}

static an_status make_room(an_err *err, an_device *d, an_exec *e)
{
    const an_plan *p = e->plan;
    size_t args = 0, most = 0, bytes;
    e->first = malloc(sizeof *e->first * (size_t)(p->n_steps + 1));
    for (int s = 0; e->first && s < p->n_steps; s++) {
        e->first[s] = (int32_t)args;
        args += (size_t)p->step[s].n_args;
    }
    e->uncut = calloc((size_t)p->n_kernels + 1, sizeof *e->uncut);
    for (int k = 0; e->uncut && k < p->n_kernels; k++) {
        if (p->kernel[k].kind != AN_KERNEL_LOOP) continue;
        e->uncut[k] = uncut_of(p->kernel[k].u.loop, e->fn[k] != NULL, &bytes);
        if (e->fn[k] || p->kernel[k].text) most = AN_MAX(most, bytes);
    }
    e->own_bytes = (size_t)an_round_up((int64_t)most, 64);
    e->ptr = calloc(args + 1, sizeof *e->ptr);
    e->seconds = calloc((size_t)p->n_steps + 1, sizeof *e->seconds);
    if (most) e->own = aligned_alloc(64, e->own_bytes * (size_t)d->target.threads);
    if (!e->first || !e->uncut || !e->ptr || !e->seconds || (most && !e->own))
        return an_fail_nomem(err, "a loaded plan", args * sizeof *e->ptr);
    return AN_OK;
}

static an_status cpu_load(an_err *err, an_device *d, const an_plan *p, an_exec **out, an_load_stats *stats)
{
    an_exec *e = calloc(1, sizeof *e);
    if (!e) return an_fail_nomem(err, "a loaded plan", sizeof *e);
    e->plan = p;
    e->fn = calloc((size_t)p->n_kernels + 1, sizeof *e->fn);
    an_status status = e->fn ? an_compile_plan(err, &d->compiler, d->target.threads, p, e->fn, &e->libs, stats)
                             : an_fail_nomem(err, "a loaded plan", 0);
    if (status == AN_OK) status = make_room(err, d, e);
    if (status != AN_OK) {
        cpu_unload(d, e);
        return status;
    }
    *out = e;
    return AN_OK;
}

/* ---------------------------------------------------------------------------------------------- running */

typedef struct row_run {
    const an_exec *e;
    const an_loop_kernel *p;
    an_loop_fn fn;
    void *const *arg;
    int64_t rows, cols, row_chunk, col_chunk, col_tasks;
} row_run;

static void run_rows(void *user, int64_t task, int thread)
{
    const row_run *r = user;
    int64_t row = task / r->col_tasks * r->row_chunk, col = task % r->col_tasks * r->col_chunk;
    an_tile t = {.row0 = row,
                 .row1 = AN_MIN(row + r->row_chunk, r->rows),
                 .col0 = col,
                 .col1 = AN_MIN(col + r->col_chunk, r->cols)};
    void *own = r->e->own ? r->e->own + r->e->own_bytes * (size_t)thread : NULL;
    t.acc = own;
    if (r->fn)
        r->fn(&t, r->arg);
    else
        an_interp_run(r->p, &t, r->arg, own);
}

/* About how many elements a task of a loop kernel has: enough work to hide its dispatch, small enough to balance the threads. One of columns
 * fills tables first (render_c.c), so it has more of them where that leaves every thread some tasks. */
static int64_t elements_of_task(const an_device *d, const an_loop_kernel *p)
{
    enum { LEAST = 16384, MOST = 1 << 20, TASKS = 16 };
    if (p->shape != AN_COL) return LEAST;
    const int64_t tasks = (int64_t)TASKS * AN_MAX(d->target.threads, 1);
    const double all = (double)p->rows * (double)p->cols * (double)AN_MAX(p->red, 1) / (double)tasks;
    return all < LEAST ? LEAST : all > MOST ? MOST : (int64_t)all;
}

/* Divides a loop kernel into tasks. */
static void run_program(an_device *d, const an_exec *e, int32_t kernel, void *const *arg)
{
    const an_loop_kernel *p = e->plan->kernel[kernel].u.loop;
    const an_uncut *uncut = &e->uncut[kernel];
    const an_turn *turn = &uncut->turn;
    row_run r = {.e = e,
                 .p = p,
                 .fn = e->fn[kernel],
                 .arg = arg,
                 .rows = turn->t ? turn->o : p->rows,
                 .cols = turn->t ? turn->i : p->cols,
                 .col_tasks = 1};
    r.row_chunk = r.rows;
    r.col_chunk = AN_MAX(r.cols, 1);
    const bool whole = an_takes_whole_rows(p);
    if (!p->rows || (!p->cols && !whole)) return; /* but a row sum over no columns is still written: 0 */
    const int64_t weight = p->shape == AN_COL ? AN_MAX(p->red, 1) : AN_MAX(turn->t, 1), block = elements_of_task(d, p);
    if (!whole && (r.cols * weight > 2 * block || uncut->images)) {
        const int64_t rows = uncut->images ? uncut->rows : 1;
        r.col_chunk = AN_MAX(64, an_round_up(block / (weight * rows), 64));
        r.col_tasks = an_ceil_div(r.cols, r.col_chunk);
    }
    r.row_chunk = AN_MAX(1, block / (AN_MAX(AN_MIN(r.cols, r.col_chunk), 1) * weight));
    r.row_chunk = an_round_up(r.row_chunk, uncut->rows);
    an_pool_run(d->pool, an_ceil_div(r.rows, r.row_chunk) * r.col_tasks, run_rows, &r);
}

typedef struct epilogue_run {
    const an_exec *e;
    const an_loop_kernel *p;
    an_loop_fn fn;
    void *const *arg;
} epilogue_run;

static void run_epilogue(const an_tile *t, void *user)
{
    const epilogue_run *r = user;
    if (r->fn) {
        r->fn(t, r->arg);
        return;
    }
    an_interp_run(r->p, t, r->arg, r->e->own + r->e->own_bytes * (size_t)t->thread);
}

/* The arrays of a kernel whose elements lie beside those of its tile, in rows longer than the tile's: of shorter ones the hardware foresees
 * what is read. */
static an_epilogue epilogue_of(epilogue_run *r)
{
    an_epilogue e = {.fn = run_epilogue, .user = r};
    for (int i = 0; i < r->p->n_ins && e.n_arrays < AN_EPILOGUE_ARRAYS; i++) {
        const an_ins *in = &r->p->ins[i];
        int64_t row, col;
        const bool load = in->kind == AN_INS_LOAD && in->a < 0;
        if ((!load && in->kind != AN_INS_STORE) || in->guard >= 0) continue;
        if (!an_ix_stride(&r->p->ix, in->ix, AN_VAR_ROW, &row) || !an_ix_stride(&r->p->ix, in->ix, AN_VAR_COL, &col))
            continue;
        if (col != 1 || row <= AN_EPILOGUE_COLUMNS) continue;
        const int64_t size = (int64_t)an_dtype_bytes((an_dtype)r->p->arg[in->arg].dtype);
        const uintptr_t at = (uintptr_t)r->arg[in->arg] + (uintptr_t)(r->p->ix.expr[in->ix].c * size);
        bool seen = false;
        for (int j = 0; j < e.n_arrays; j++) seen |= e.array[j].at == at;
        if (seen) continue;
        e.array[e.n_arrays].at = at;
        e.array[e.n_arrays].row = row * size;
        e.array[e.n_arrays++].size = size;
    }
    return e;
}

typedef struct copy_run {
    char *dst;
    const char *src; /* NULL: zero */
    size_t bytes;
} copy_run;
enum { COPY_BLOCK = 1 << 18 };

static void run_copy(void *user, int64_t task, int thread)
{
    const copy_run *c = user;
    size_t at = (size_t)task * COPY_BLOCK, n = AN_MIN(COPY_BLOCK, c->bytes - at);
    (void)thread;
    if (c->src)
        memmove(c->dst + at, c->src + at, n);
    else
        memset(c->dst + at, 0, n);
}

/* In-place row update (a KV cache): out[o][at][:] = row[o][:]. A row is a few kilobytes: not worth a second thread. */
static void run_row_update(const an_row_update_spec *s, void *const *arg)
{
    const int32_t at = *(const int32_t *)arg[0];
    const size_t row = (size_t)(s->inner * s->bytes), all = row * (size_t)s->rows,
                 apart = (size_t)(s->stride * s->bytes);
    if (at < 0 || at >= s->rows) return;
    for (int64_t o = 0; o < s->outer; o++)
        memcpy((char *)arg[2] + all * (size_t)o + row * (size_t)at, (const char *)arg[1] + apart * (size_t)o, row);
}

static an_status run_exchange(an_err *err, const an_device *d, const an_library_call_spec *s, void *const *arg)
{
    const an_call_tensor *x = &s->src[0];
    int64_t n = 1;
    for (int i = 0; i < x->rank; i++) n *= x->shape[i];
    if (an_comm_ranks(d->comm) != s->attr[0])
        return an_fail(err, AN_E_INTERNAL, "cpu: a plan of %lld ranks in a job of %d", (long long)s->attr[0],
                       an_comm_ranks(d->comm));
    if (s->op == AN_OP_ALLREDUCE) return an_comm_sum(err, d->comm, (an_dtype)x->dtype, n, arg[0], arg[1]);
    if (s->op == AN_OP_REDUCESCATTER && s->attr[2] > 0)
        return an_comm_sum_range(err, d->comm, (an_dtype)x->dtype, s->attr[2], s->attr[3], n, arg[0], arg[1]);
    if (s->op == AN_OP_REDUCESCATTER)
        return an_comm_reduce_scatter(err, d->comm, (an_dtype)x->dtype, n / s->attr[0], arg[0], arg[1]);
    if (s->attr[1] > 0)
        return an_comm_gather_range(err, d->comm, an_dtype_bytes((an_dtype)x->dtype), s->attr[1], s->attr[2],
                                    s->out[0].shape[0], arg[0], arg[1]);
    return an_comm_gather(err, d->comm, (size_t)n * an_dtype_bytes((an_dtype)x->dtype), arg[0], arg[1]);
}

static an_status run_step(an_err *err, an_device *d, const an_exec *e, int s, void *scratch)
{
    const an_plan_step *st = &e->plan->step[s];
    const an_kernel *k = &e->plan->kernel[st->kernel];
    void **arg = e->ptr + e->first[s];
    switch (k->kind) {
    case AN_KERNEL_LOOP: run_program(d, e, st->kernel, arg); break;
    case AN_KERNEL_GEMM: {
        epilogue_run r = {.e = e};
        an_epilogue epilogue;
        if (st->epilogue >= 0) {
            r = (epilogue_run){e, e->plan->kernel[st->epilogue].u.loop, e->fn[st->epilogue], arg + st->n_gemm_args};
            epilogue = epilogue_of(&r);
        }
        d->builtin->gemm(&k->u.gemm, arg, scratch, st->epilogue >= 0 ? &epilogue : NULL, d->pool);
        break;
    }
    case AN_KERNEL_ATTN: {
        void *a[AN_ATTN_MASK + 1] = {arg[0], arg[1], arg[2], arg[3], arg[4], arg[5], st->n_args > 6 ? arg[6] : NULL};
        if (k->u.attn.masked) a[AN_ATTN_MASK] = arg[AN_ATTN_MASK];
        const float *const *tables =
            k->rotated ? (const float *const[]){arg[AN_ATTN_TABLES], arg[AN_ATTN_TABLES + 1]} : NULL;
        d->builtin->attn_forward(&k->u.attn, a, tables, scratch, d->pool);
        break;
    }
    case AN_KERNEL_ATTN_GRAD: {
        const float *const *tables =
            k->rotated ? (const float *const[]){arg[AN_ATTN_GRAD_TABLES], arg[AN_ATTN_GRAD_TABLES + 1]} : NULL;
        d->builtin->attn_backward(&k->u.attn, arg, tables, scratch, d->pool);
        break;
    }
    case AN_KERNEL_SCATTER: d->builtin->scatter(&k->u.scatter, arg, d->pool); break;
    case AN_KERNEL_CALL:
        if (an_ops[k->u.call.op].cls == AN_CLS_COLLECTIVE) return run_exchange(err, d, &k->u.call, arg);
        return an_call_run(err, &k->u.call, arg, scratch, d->builtin, d->pool);
    case AN_KERNEL_ROW_UPDATE: run_row_update(&k->u.row_update, arg); break;
    case AN_KERNEL_ZERO:
    case AN_KERNEL_COPY: {
        const an_arg *dst = &st->arg[k->kind == AN_KERNEL_COPY];
        copy_run c = {arg[k->kind == AN_KERNEL_COPY], k->kind == AN_KERNEL_COPY ? arg[0] : NULL, (size_t)dst->bytes};
        an_pool_run(d->pool, an_ceil_div((int64_t)c.bytes, COPY_BLOCK), run_copy, &c);
        break;
    }
    }
    return AN_OK;
}

static void bind(an_exec *e, const an_buffer *slots)
{
    for (int s = 0; s < e->plan->n_steps; s++)
        for (int a = 0; a < e->plan->step[s].n_args; a++) {
            const an_arg *x = &e->plan->step[s].arg[a];
            e->ptr[e->first[s] + a] = x->slot < 0 ? NULL : (char *)slots[x->slot].host + x->offset;
        }
}

/* With isolated buffers (place_apart), every byte of the arena outside the values is a guard: set and checked here, or
 * poisoned for the address sanitizer where the library is built with it. */
static void guards(const an_plan *p, char *arena, bool set)
{
#ifdef AN_ASAN
    if (set)
        __asan_poison_memory_region(arena, (size_t)p->arena_bytes);
    else
        __asan_unpoison_memory_region(arena, (size_t)p->arena_bytes);
    for (int v = 0; set && v < p->n_values; v++)
        if (p->value[v].slot == AN_SLOT_ARENA && p->value[v].inside < 0 && p->value[v].first >= 0)
            __asan_unpoison_memory_region(arena + p->value[v].offset, (size_t)p->value[v].bytes);
#else
    for (int v = 0; set && v < p->n_values; v++) {
        const an_value *x = &p->value[v];
        if (x->slot != AN_SLOT_ARENA || x->inside >= 0 || x->first < 0) continue;
        memset(arena + x->offset, 0x7F, (size_t)x->bytes); /* poison: stale values show in the results */
        memset(arena + x->offset - GUARD_BYTES, GUARD, GUARD_BYTES);
        memset(arena + x->offset + x->bytes, GUARD,
               (size_t)(an_round_up(x->bytes + GUARD_BYTES, GUARD_BYTES) - x->bytes));
    }
#endif
}

static an_status check_guards(an_err *err, const an_plan *p, const char *arena, int step)
{
#ifdef AN_ASAN
    (void)err;
    (void)p;
    (void)arena;
    (void)step;
#else
    for (int v = 0; v < p->n_values; v++) {
        const an_value *x = &p->value[v];
        if (x->slot != AN_SLOT_ARENA || x->inside >= 0 || x->first < 0) continue;
        for (int i = 1; i <= GUARD_BYTES; i++)
            if ((unsigned char)arena[x->offset - i] != GUARD ||
                (unsigned char)arena[x->offset + x->bytes + i - 1] != GUARD)
                return an_fail(err, AN_E_INTERNAL, "cpu: step %d (%s) wrote outside value %d (%s)", step,
                               p->kernel[p->step[step].kernel].name, v, x->name);
    }
#endif
    return AN_OK;
}

static an_status cpu_submit(an_err *err, an_device *d, an_exec *e, const an_buffer *slots, int n_slots, an_ticket *out)
{
    (void)n_slots;
    char *arena = slots[AN_SLOT_ARENA].host;
    bind(e, slots);
    if (e->plan->isolate_values) guards(e->plan, arena, true);
    an_status status = AN_OK;
    const uint64_t mode = an_float_mode_set(d->target.exact);
    double before = an_seconds();
    for (int s = 0; s < e->plan->n_steps && status == AN_OK; s++) {
        const an_plan_step *st = &e->plan->step[s];
        status = run_step(err, d, e, s, st->scratch >= 0 ? arena + st->scratch : NULL);
        double now = an_seconds();
        e->seconds[s] = now - before;
        before = now;
        if (e->plan->isolate_values && status == AN_OK) status = check_guards(err, e->plan, arena, s);
    }
    an_float_mode_restore(mode);
    if (e->plan->isolate_values) guards(e->plan, arena, false);
    *out = ++d->tickets;
    return status;
}

static an_status cpu_wait(an_err *err, an_device *d, an_ticket t, int64_t timeout_ns)
{
    (void)timeout_ns; /* submit has run everything */
    return t <= d->tickets
               ? AN_OK
               : an_fail(err, AN_E_INTERNAL, "cpu: wait for ticket %llu that was never given", (unsigned long long)t);
}

static double cpu_step_seconds(an_device *d, an_exec *e, int step)
{
    (void)d;
    return e->seconds[step];
}

static double cpu_measured_peak(an_device *d, an_dtype dtype, double seconds)
{
    return d->builtin->fma_peak(d->pool, dtype == AN_BF16 ? AN_BF16 : AN_F32, seconds);
}

static void cpu_memory(an_device *d, uint64_t *driver, uint64_t *recommended)
{
    (void)d;
    *driver = an_rss_bytes();
    *recommended = an_memory_bytes();
}

static const char *cpu_isa(an_device *d)
{
    return d->builtin->isa;
}

static void cpu_find_compiler(const an_device_options *o, an_device_compiler *out)
{
    an_compiler c;
    an_compiler_find(&c, o, an_isa_taken()->isa);
    *out = (an_device_compiler){0};
    snprintf(out->path, sizeof out->path, "%s", c.path);
    snprintf(out->why, sizeof out->why, "%s", c.why);
    snprintf(out->cache_dir, sizeof out->cache_dir, "%s", c.cache_dir);
    snprintf(out->why_cache, sizeof out->why_cache, "%s", c.why_cache);
}

const an_backend an_backend_cpu = {.name = "cpu",
                                   .borrows = AN_BORROWS_ADDRESS,
                                   .borrow = cpu_borrow,
                                   .auto_rank = 3,
                                   .find_compiler = cpu_find_compiler,
                                   .isa = cpu_isa,
                                   .isa_as = an_isa_as,
                                   .isa_rates = an_isa_rates,
                                   .probe = cpu_probe,
                                   .open = cpu_open,
                                   .close = cpu_close,
                                   .target = cpu_target,
                                   .join = cpu_join,
                                   .alloc = cpu_alloc,
                                   .free = cpu_free,
                                   .write = cpu_write,
                                   .read = cpu_read,
                                   .load = cpu_load,
                                   .unload = cpu_unload,
                                   .submit = cpu_submit,
                                   .wait = cpu_wait,
                                   .step_seconds = cpu_step_seconds,
                                   .measured_peak = cpu_measured_peak,
                                   .memory = cpu_memory};
