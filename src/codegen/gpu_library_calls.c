/* gpu_library_calls.c: see gpu_library_calls.h.
 *
 * Invariant: a matrix or a row is worked on in shared memory where it fits, else in the step's scratch. Which one follows from its shape
 * alone and changes no bit. */
#include "codegen/gpu_library_calls.h"

#include <string.h>

extern const char an_embed_scatter_inc[], an_embed_scatter_args_h[], an_embed_sort_inc[], an_embed_scan_pool_inc[],
    an_embed_linalg_inc[], an_embed_draw_inc[], an_embed_grouped_inc[], an_embed_library_call_args_h[];

enum {
    SCATTER_COLUMNS = 4,     /* columns a thread sums */
    SCATTER_PART = 64,       /* sorted ids of one partial sum, where sums may be split */
    FEW_PART = 128,          /* the same for tables of few rows: neighbouring ids, */
    FEW_PARTS = 1024,        /* so many of them at most, */
    FEW_ROWS = 256,          /* and so many rows */
    BOARD_BYTES = 8,         /* of a thread, for published values (an_publish) */
    LEAST_SHARED = 32 << 10, /* what every GPU offers */
    SMALL_THREADS = 64,
    THREADS = 256
};

static const char *const kind_of[AN_N_DTYPES] = {
    [AN_F32] = "F32", [AN_BF16] = "BF16", [AN_F16] = "F16", [AN_F64] = "F64",
    [AN_I32] = "I32", [AN_I64] = "I64",   [AN_U8] = "U8"};

/* ---------------------------------------------------------------------------------------------- shapes */

static int64_t last(const an_call_tensor *t)
{
    return t->rank ? t->shape[t->rank - 1] : 1;
}

/* Product of the axes before the last `skip`. */
static int64_t outer(const an_call_tensor *t, int skip)
{
    int64_t n = 1;
    for (int i = 0; i + skip < t->rank; i++) n *= t->shape[i];
    return n;
}

static int64_t power_of_two(int64_t n)
{
    int64_t p = 1;
    while (p < n) p *= 2;
    return p;
}

static bool solves(an_op op)
{
    return op == AN_OP_SOLVE || op == AN_OP_TRISOLVE;
}
static bool is_matrix(const an_library_call_spec *s)
{
    return (s->op == AN_OP_CHOLESKY || s->op == AN_OP_QR || s->op == AN_OP_EIGH || s->op == AN_OP_SVD ||
            solves(s->op)) &&
           s->src[0].rank >= 2;
}

/* float64 numbers of work memory for one matrix; linalg.inc has the layout. */
static int64_t matrix_words(const an_library_call_spec *s)
{
    const an_call_tensor *a = &s->src[0];
    const int64_t m = a->shape[a->rank - 2], n = last(a);
    switch (s->op) {
    case AN_OP_CHOLESKY: return n * n + n;
    case AN_OP_QR: return 2 * m * n + n * n + n;
    case AN_OP_EIGH: return 2 * n * n + 3 * n;
    case AN_OP_SVD: return m * n + n * n + 3 * n;
    case AN_OP_SOLVE: return n * n + n * last(&s->src[1]) + n;
    default: return n * n + n * last(&s->src[1]);
    }
}

static bool sorts(an_op op)
{
    return op == AN_OP_SORT || op == AN_OP_TOPK;
}
static int key_bytes(int dtype)
{
    return dtype == AN_F64 || dtype == AN_I64 ? 8 : 4;
}

/* Threads of a block for `most` independent items. */
static int threads_for(int64_t most)
{
    return most <= SMALL_THREADS ? SMALL_THREADS : THREADS;
}

/* Words of shared memory; 0 when they do not fit: then scratch holds them. */
static int sort_words(const an_library_call_spec *s)
{
    const int64_t padded = power_of_two(last(&s->src[0]));
    return padded * (key_bytes(s->src[0].dtype) + 4) <= LEAST_SHARED ? (int)padded : 0;
}
static int shared_words(const an_library_call_spec *s, int threads)
{
    const int64_t words = matrix_words(s);
    return words * 8 + (int64_t)threads * BOARD_BYTES <= LEAST_SHARED ? (int)words : 0;
}
/* One thread block reads the row several times: of a long one a thread takes some tens of elements. */
static int draw_threads(int64_t n)
{
    return n <= 512 ? SMALL_THREADS : n <= 4096 ? THREADS : 1024;
}
static int matrix_threads(const an_library_call_spec *s)
{
    return threads_for(4 * last(&s->src[0]));
}

/* ---------------------------------------------------------------------------------------------- tiles */

static const char *no_f64(const an_gpu *gpu, int dtype)
{
    return dtype == AN_F64 ? gpu->dialect->no_float64 : NULL;
}

static an_scatter_spec scatter_of(const an_library_call_spec *s)
{
    const int64_t rows = s->out[0].shape[0], numel = outer(&s->out[0], 0), c = rows ? numel / rows : 0;
    return (an_scatter_spec){.n = outer(&s->src[0], 0), .rows = rows, .c = c, .src_stride = c, .out_stride = c};
}

enum { SCATTER_FEW = 1 }; /* an_tiles.call of scatter.inc: AN_FEW */

/* Whether partial sums of each row are kept for every FEW_PART ids: where that is little memory. */
static bool scatters_few(const an_scatter_spec *of)
{
    const int64_t most = (int64_t)64 << 20, parts = an_ceil_div(of->n, FEW_PART);
    return of->rows <= FEW_ROWS && parts >= 8 && parts <= FEW_PARTS && of->c <= 65536 &&
           parts * of->rows * of->c * 8 <= most;
}

static const char *scatter_tiles(const an_gpu *gpu, int src, int out, const an_scatter_spec *of, an_tiles *t)
{
    t->exact = !an_gpu_fast(gpu);
    t->module = AN_MODULE_SCATTER;
    t->store = kind_of[src];
    t->store_c = kind_of[out];
    t->call = !t->exact && scatters_few(of) ? SCATTER_FEW : 0;
    t->threads = t->call == SCATTER_FEW ? FEW_PART : threads_for(of->c / SCATTER_COLUMNS);
    return NULL;
}

enum {
    RUNNING_SUM,
    POOL_MAX_GRAD,
    CHOLESKY,
    QR,
    EIGH,
    SVD,
    SOLVE,
    TRISOLVE,
    PUT_ROWS,
    ROW_UPDATE,
    GROUPED_MATMUL,
    GROUPED_OUTER
}; /* AN_CALL_... of library_calls.h */

static int call_number(an_op op)
{
    switch (op) {
    case AN_OP_POOL_MAX_GRAD: return POOL_MAX_GRAD;
    case AN_OP_CHOLESKY: return CHOLESKY;
    case AN_OP_QR: return QR;
    case AN_OP_EIGH: return EIGH;
    case AN_OP_SVD: return SVD;
    case AN_OP_SOLVE: return SOLVE;
    case AN_OP_TRISOLVE: return TRISOLVE;
    case AN_OP_PUT_ROWS: return PUT_ROWS;
    case AN_OP_GROUPED_MATMUL: return GROUPED_MATMUL;
    case AN_OP_GROUPED_OUTER: return GROUPED_OUTER;
    default: return RUNNING_SUM;
    }
}

/* Elements are moved as bits: any dtype of their size does. */
static const char *row_update_tiles(const an_row_update_spec *s, an_tiles *t)
{
    static const an_dtype moved[] = {[1] = AN_U8, [2] = AN_BF16, [4] = AN_I32, [8] = AN_I64};
    t->module = AN_MODULE_SCAN_POOL;
    t->store = kind_of[moved[s->bytes]];
    t->call = ROW_UPDATE;
    t->threads = SMALL_THREADS;
    return s->outer * s->inner > INT32_MAX - THREADS || s->rows > INT32_MAX ? "has rows of more than 2^31 elements"
                                                                            : NULL;
}

/* Of an image [B,H,W,C]. */
static bool has_large_samples(const an_call_tensor *t)
{
    const int64_t pixels = (int64_t)t->shape[1] * t->shape[2];
    return pixels > INT32_MAX || pixels * t->shape[3] > INT32_MAX;
}

/* A dtype whose bits tell all places of an image [B,H,W,C] apart, and from none. */
static an_dtype place_of(const an_library_call_spec *s)
{
    return (int64_t)s->src[1].shape[1] * s->src[1].shape[2] > UINT16_MAX ? AN_I32 : AN_BF16;
}

/* Kernels count rows, and the elements of a sample, in 32 bits; a row that is sorted is padded to a power of two, and a
 * network's stages go to twice that. Why a call is too large; NULL: it is not. */
static const char *too_large(const an_library_call_spec *s)
{
    const an_call_tensor *x = &s->src[0];
    const int skip = is_matrix(s) ? 2 : 1;
    if (s->op == AN_OP_POOL_MAX_GRAD)
        return has_large_samples(x) || has_large_samples(&s->src[1])
                   ? "has samples of more than 2^31 elements; pool smaller images"
                   : NULL;
    if (sorts(s->op) && last(x) > 1 << 29) return "sorts rows of more than 2^29 elements; cut them";
    if (s->op != AN_OP_PUT_ROWS && outer(x, skip) > INT32_MAX - THREADS)
        return "has more than 2147483391 rows or matrices; use a smaller batch";
    return is_matrix(s) && matrix_words(s) > INT32_MAX ? "has matrices of more than 2^31 elements; cut them" : NULL;
}

static bool is_grouped(const an_library_call_spec *s)
{
    return s->op == AN_OP_GROUPED_MATMUL || s->op == AN_OP_GROUPED_OUTER;
}

/* Thread blocks are counted in 16 bits along the second and third axis of a grid. */
static const char *grouped_too_large(const an_library_call_spec *s)
{
    const int64_t S = s->src[0].shape[0], M = s->src[0].shape[1], E = s->src[2].shape[0];
    const int64_t down = s->op == AN_OP_GROUPED_OUTER ? an_ceil_div(M, AN_TILE_M) : an_ceil_div(S, AN_TILE_M) + E;
    return down > UINT16_MAX || E > UINT16_MAX ? "has more than 4194240 rows or 65535 groups; use a smaller batch"
                                               : NULL;
}

/* Which template, for which element type, with how many threads, and whether its work memory is shared memory (work > 0). Returns
 * why there is none; NULL: there is. */
const char *an_gpu_call_tiles(const an_kernel *k, const an_gpu *gpu, an_tiles *t)
{
    *t = (an_tiles){.mul = "F32", .exact = 1, .vec = 1};
    if (k->kind == AN_KERNEL_SCATTER) return scatter_tiles(gpu, k->u.scatter.src_dtype, AN_F32, &k->u.scatter, t);
    if (k->kind == AN_KERNEL_ROW_UPDATE) return row_update_tiles(&k->u.row_update, t);
    const an_library_call_spec *s = &k->u.call;
    if (an_ops[s->op].cls == AN_CLS_COLLECTIVE)
        return "is an exchange between ranks, which a library of the GPU's does";
    const char *why = no_f64(gpu, s->dtype);
    if (why) return why;
    t->store = kind_of[s->dtype];
    if (!t->store) return "has elements of a kind that its GPU template does not take; cast them";
    t->call = call_number(s->op);
    t->threads = THREADS;
    if (s->op == AN_OP_SCATTER_ADD) {
        const an_scatter_spec of = scatter_of(s);
        return scatter_tiles(gpu, s->src[1].dtype, s->out[0].dtype, &of, t);
    }
    if (is_grouped(s)) {
        t->module = AN_MODULE_GROUPED;
        return grouped_too_large(s);
    }
    if ((why = too_large(s)) != NULL) return why;
    if (s->op == AN_OP_CUMSUM || s->op == AN_OP_POOL_MAX_GRAD || s->op == AN_OP_PUT_ROWS) {
        t->module = AN_MODULE_SCAN_POOL;
        if (s->op == AN_OP_POOL_MAX_GRAD) {
            t->store_c = kind_of[place_of(s)];
            t->vec = gpu->dialect->vector_access && s->dtype != AN_F64 && last(&s->src[0]) % 8 == 0 ? 8 : 1;
        }
        return NULL;
    }
    if (s->op == AN_OP_DRAW) {
        t->module = AN_MODULE_DRAW;
        t->store = kind_of[AN_F32];
        t->threads = draw_threads(last(&s->src[0]));
        return NULL;
    }
    if (sorts(s->op)) {
        t->module = AN_MODULE_SORT;
        t->work = sort_words(s);
        t->threads = threads_for(power_of_two(last(&s->src[0])) / 2);
        return NULL;
    }
    if (!is_matrix(s)) return "there is no GPU template for it yet";
    t->module = AN_MODULE_MATRIX;
    t->threads = matrix_threads(s);
    t->work = shared_words(s, t->threads);
    return NULL;
}

/* ---------------------------------------------------------------------------------------------- texts */

static bool is_pool(const an_tiles *t)
{
    return t->module == AN_MODULE_SCAN_POOL && t->call == POOL_MAX_GRAD;
}

void an_gpu_call_defines(const an_tiles *t, an_text *out)
{
    static const char *const calls[] = {"RUNNING_SUM", "POOL_MAX_GRAD", "CHOLESKY",       "QR",
                                        "EIGH",        "SVD",           "SOLVE",          "TRISOLVE",
                                        "PUT_ROWS",    "ROW_UPDATE",    "GROUPED_MATMUL", "GROUPED_OUTER"};
    an_text_printf(out, "#define AN_STORE AN_KIND_%s\n#define AN_THREADS %d\n#define AN_WORK_WORDS %d\n", t->store,
                   t->threads, t->work);
    const bool few = t->module == AN_MODULE_SCATTER && t->call == SCATTER_FEW;
    if (t->module == AN_MODULE_SCATTER)
        an_text_printf(out, "#define AN_STORE_C AN_KIND_%s\n#define AN_PART %d\n", t->store_c,
                       few ? FEW_PART : SCATTER_PART);
    if (few) an_text_printf(out, "#define AN_FEW 1\n#define AN_MOST_PARTS %d\n", FEW_PARTS);
    if (t->module == AN_MODULE_SCAN_POOL || t->module == AN_MODULE_MATRIX || t->module == AN_MODULE_GROUPED)
        an_text_printf(out, "#define AN_CALL AN_CALL_%s\n", calls[t->call]);
    if (is_pool(t)) an_text_printf(out, "#define AN_VEC %d\n#define AN_STORE_C AN_KIND_%s\n", t->vec, t->store_c);
}

const char *an_gpu_call_args_text(an_gpu_module m)
{
    return m == AN_MODULE_SCATTER ? an_embed_scatter_args_h : an_embed_library_call_args_h;
}

const char *an_gpu_call_body_text(an_gpu_module m)
{
    return m == AN_MODULE_SCATTER     ? an_embed_scatter_inc
           : m == AN_MODULE_SORT      ? an_embed_sort_inc
           : m == AN_MODULE_SCAN_POOL ? an_embed_scan_pool_inc
           : m == AN_MODULE_DRAW      ? an_embed_draw_inc
           : m == AN_MODULE_GROUPED   ? an_embed_grouped_inc
                                      : an_embed_linalg_inc;
}

int an_gpu_call_entries(const an_tiles *t)
{
    return t->module == AN_MODULE_SCATTER ? 4 : is_pool(t) ? 2 : 1; /* in exact mode */
}

/* ---------------------------------------------------------------------------------------------- launches */

/* Byte offsets in scratch of the arrays of a scatter; scatter.inc says what they hold. */
typedef struct scatter_scratch {
    int64_t order, ids, tile_order, tile_ids, starts, parts, end;
    int64_t present, few_end; /* of a table of few rows, whose parts come first */
} scatter_scratch;

static scatter_scratch scatter_layout(const an_scatter_spec *of)
{
    const int64_t ids = of->n * 4, tiles = an_round_up(of->n, THREADS) * 4;
    scatter_scratch at = {.ids = ids, .tile_order = 2 * ids};
    at.tile_ids = at.tile_order + tiles;
    at.starts = at.tile_ids + tiles;
    at.parts = an_round_up(at.starts + (of->rows + 1) * 4, 8);
    at.end = at.parts + an_ceil_div(of->n, SCATTER_PART) * of->c * 8; /* of float64 at most */
    at.present = an_ceil_div(of->n, FEW_PART) * of->rows * of->c * 8;
    at.few_end = at.present + an_ceil_div(of->n, FEW_PART) * of->rows * 4;
    return at;
}

static void bind_scratch(an_gpu_launch *l, int index, int64_t offset)
{
    an_gpu_bind(l, AN_BIND_SCRATCH, index, 0, offset);
}

/* Ids and their places in the order of the ids, equal ones in the order of the input, so that the sums are in a fixed order:
 *
 *     scatter_sort     each tile of ids by itself               order, ids of the tiles
 *     scatter_rank     every id's place among all tiles         order, ids
 *     scatter_starts   where each row's ids begin               starts [rows + 1] */
static const char *scatter_sort(const an_plan_step *s, const an_scatter_spec *of, const an_tiles *t, an_gpu_step *out)
{
    const scatter_scratch at = scatter_layout(of);
    const int64_t tiles = an_ceil_div(of->n, t->threads);
    an_gpu_launch *l;
    const char *why = an_gpu_launch_add(out, "scatter_sort", tiles, 1, 1, t->threads, &l);
    if (why) return why;
    an_gpu_bind_arg(l, 0, s, 0);
    bind_scratch(l, 1, at.tile_order), bind_scratch(l, 2, at.tile_ids);
    an_gpu_bind(l, AN_BIND_PARAMS, 3, 0, 0);
    why = an_gpu_launch_add(out, "scatter_rank", tiles, 1, 1, t->threads, &l);
    if (why) return why;
    bind_scratch(l, 0, at.tile_order), bind_scratch(l, 1, at.tile_ids);
    bind_scratch(l, 2, at.order), bind_scratch(l, 3, at.ids);
    an_gpu_bind(l, AN_BIND_PARAMS, 4, 0, 0);
    why = an_gpu_launch_add(out, "scatter_starts", an_ceil_div(of->rows + 1, t->threads), 1, 1, t->threads, &l);
    if (why) return why;
    bind_scratch(l, 0, at.ids), bind_scratch(l, 1, at.starts);
    an_gpu_bind(l, AN_BIND_PARAMS, 2, 0, 0);
    return NULL;
}

/* What the sums start from, unless that is 0 or what argument `to` holds. */
static void bind_onto(an_gpu_launch *l, int index, const an_plan_step *s, int onto, int to)
{
    if (onto < 0 || onto == to)
        an_gpu_bind(l, AN_BIND_ANY, index, 0, 0);
    else
        an_gpu_bind_arg(l, index, s, onto);
}

/* The two launches for a table of few rows. */
static const char *scatter_few(const an_plan_step *s, const an_scatter_spec *of, int onto, int to, const an_tiles *t,
                               an_gpu_step *out)
{
    const scatter_scratch at = scatter_layout(of);
    const int64_t columns = an_ceil_div(of->c, t->threads);
    an_gpu_launch *l;
    const char *why = an_gpu_launch_add(out, "scatter_few", an_ceil_div(of->n, FEW_PART), columns, 1, t->threads, &l);
    if (why) return why;
    an_gpu_bind_arg(l, 0, s, 0);
    an_gpu_bind_arg(l, 1, s, 1);
    bind_scratch(l, 2, 0), bind_scratch(l, 3, at.present);
    an_gpu_bind(l, AN_BIND_PARAMS, 4, 0, 0);
    why = an_gpu_launch_add(out, "scatter_rows", of->rows, columns, 1, t->threads, &l);
    if (why) return why;
    bind_onto(l, 0, s, onto, to);
    an_gpu_bind_arg(l, 1, s, to);
    bind_scratch(l, 2, 0), bind_scratch(l, 3, at.present);
    an_gpu_bind(l, AN_BIND_PARAMS, 4, 0, 0);
    return NULL;
}

/* Then a thread block a row of the result adds up the rows whose id it is. Where other orders of sums are allowed (not exact),
 * long runs of one id are first summed in parts of SCATTER_PART: half of all ids may be one row's. */
static const char *scatter_step(const an_plan_step *s, const an_scatter_spec *of, int onto, int to, const an_tiles *t,
                                an_gpu_step *out)
{
    const scatter_scratch at = scatter_layout(of);
    const int64_t columns = an_ceil_div(of->c, SCATTER_COLUMNS * t->threads);
    an_gpu_launch *l;
    if (of->n > INT32_MAX - THREADS || of->rows >= INT32_MAX || of->c > INT32_MAX)
        return "scatters more than 2147483391 rows; use a smaller batch";
    out->params.scatter = (struct an_scatter_args){.src_stride = of->src_stride,
                                                   .out_stride = of->out_stride,
                                                   .n = (int)of->n,
                                                   .rows = (int)of->rows,
                                                   .c = (int)of->c,
                                                   .accumulate = onto < 0     ? 0
                                                                 : onto == to ? 2
                                                                              : 1};
    out->params_bytes = sizeof out->params.scatter;
    if (t->call == SCATTER_FEW) return scatter_few(s, of, onto, to, t, out);
    const char *why = scatter_sort(s, of, t, out);
    if (!why && !t->exact) {
        why = an_gpu_launch_add(out, "scatter_parts", an_ceil_div(of->n, SCATTER_PART), columns, 1, t->threads, &l);
        if (why) return why;
        an_gpu_bind_arg(l, 0, s, 1);
        bind_onto(l, 1, s, onto, to);
        an_gpu_bind_arg(l, 2, s, to);
        bind_scratch(l, 3, at.order), bind_scratch(l, 4, at.ids), bind_scratch(l, 5, at.starts);
        bind_scratch(l, 6, at.parts);
        an_gpu_bind(l, AN_BIND_PARAMS, 7, 0, 0);
    }
    if (!why) why = an_gpu_launch_add(out, "scatter_rows", of->rows, columns, 1, t->threads, &l);
    if (why) return why;
    int i = 0;
    if (t->exact) an_gpu_bind_arg(l, i++, s, 1);
    bind_onto(l, i++, s, onto, to);
    an_gpu_bind_arg(l, i++, s, to);
    if (t->exact) bind_scratch(l, i++, at.order);
    bind_scratch(l, i++, at.starts);
    if (!t->exact) bind_scratch(l, i++, at.parts);
    an_gpu_bind(l, AN_BIND_PARAMS, i, 0, 0);
    return NULL;
}

/* The arguments that the text reads at run time, so that shapes share a compiled text. */
static struct an_call_args call_args(const an_library_call_spec *s)
{
    const an_call_tensor *x = &s->src[0];
    struct an_call_args a = {.n = (int)last(x)};
    if (s->op == AN_OP_POOL_MAX_GRAD) {
        const int64_t *w = s->attr;
        const int32_t *dy = x->shape, *in = s->src[1].shape;
        return (struct an_call_args){.units = in[0],
                                     .H = in[1],
                                     .W = in[2],
                                     .C = in[3],
                                     .OH = dy[1],
                                     .OW = dy[2],
                                     .kernel_h = (int)w[0],
                                     .kernel_w = (int)w[1],
                                     .stride_h = (int)w[2],
                                     .stride_w = (int)w[3],
                                     .pad_h = (int)w[4],
                                     .pad_w = (int)w[5],
                                     .dilation_h = (int)w[6],
                                     .dilation_w = (int)w[7]};
    }
    if (s->op == AN_OP_PUT_ROWS) {
        const int64_t c = a.n ? outer(&s->src[1], 0) / a.n : 0; /* ids [n], rows [n,...] of c elements */
        return (struct an_call_args){.units = s->out[0].shape[0], .n = a.n, .each = c};
    }
    a.units = (int)outer(x, is_matrix(s) ? 2 : 1);
    a.flag = s->op == AN_OP_TOPK || s->attr[0] != 0;
    a.also = s->attr[1] != 0;
    if (s->op == AN_OP_DRAW) {
        const uint32_t bits = (uint32_t)s->attr[2];
        memcpy(&a.scale, &bits, sizeof a.scale);
        a.k = (int)AN_MIN(s->attr[0], a.n);
        a.key = (an_u32)s->attr[1];
        a.flag = bits == 0;
        a.also = (int)s->attr[3];
        a.each = AN_MAX(a.n, draw_threads(a.n));
    } else if (sorts(s->op)) {
        a.k = (int)last(&s->out[0]);
        a.m = (int)power_of_two(a.n);
        a.each = a.m;
    } else if (is_matrix(s)) {
        a.m = x->shape[x->rank - 2];
        a.k = solves(s->op) ? (int)last(&s->src[1]) : 0;
        a.each = matrix_words(s);
    }
    return a;
}

/* Thread blocks: 32 threads a row of a running sum, one block a row that is sorted or drawn from, a matrix, or a row that is put. 0: there is
 * nothing to do. */
static int64_t groups_of(const an_library_call_spec *s, const struct an_call_args *a, const an_tiles *t)
{
    if (s->op == AN_OP_CUMSUM) return a->n ? an_ceil_div(a->units, t->threads / 32) : 0;
    if (s->op == AN_OP_PUT_ROWS) return a->each ? a->n : 0;
    if (s->op == AN_OP_DRAW || sorts(s->op)) return a->n ? a->units : 0;
    return a->m > 0 && a->n > 0 && (!solves(s->op) || a->k > 0) ? a->units : 0;
}

static const char *row_update_step(const an_plan_step *s, const an_row_update_spec *u, const an_tiles *t,
                                   an_gpu_step *out)
{
    an_gpu_launch *l;
    out->params.call = (struct an_call_args){
        .units = (int)u->outer, .m = (int)u->rows, .n = (int)u->inner, .each = u->outer > 1 ? u->stride : 0};
    out->params_bytes = sizeof out->params.call;
    const char *why =
        an_gpu_launch_add(out, "row_update", an_ceil_div(u->outer * u->inner, t->threads), 1, 1, t->threads, &l);
    if (why) return why;
    for (int i = 0; i < 3; i++) an_gpu_bind_arg(l, i, s, i);
    an_gpu_bind(l, AN_BIND_PARAMS, 3, 0, 0);
    return NULL;
}

/* Where each window's first maximum is, then for each place the windows whose first maximum it is. */
static const char *pool_max_grad_step(const an_plan_step *s, const an_library_call_spec *c, const an_tiles *t,
                                      an_gpu_step *out)
{
    const struct an_call_args a = call_args(c);
    const int64_t channels = (int64_t)a.units * (a.C / t->vec), outputs = channels * a.OH * a.OW;
    an_gpu_launch *l;
    out->params.call = a;
    out->params_bytes = sizeof out->params.call;
    const char *why = an_gpu_launch_add(out, "pool_max_places", an_ceil_div(outputs, t->threads), 1, 1, t->threads, &l);
    if (why) return why;
    an_gpu_bind_arg(l, 0, s, 1);
    bind_scratch(l, 1, 0);
    an_gpu_bind(l, AN_BIND_PARAMS, 2, 0, 0);
    why = an_gpu_launch_add(out, "pool_max_grad", an_ceil_div(channels * a.H * a.W, t->threads), 1, 1, t->threads, &l);
    if (why) return why;
    an_gpu_bind_arg(l, 0, s, 0);
    bind_scratch(l, 1, 0);
    an_gpu_bind_arg(l, 2, s, 2);
    an_gpu_bind(l, AN_BIND_PARAMS, 3, 0, 0);
    return NULL;
}

static const char *grouped_step(const an_plan_step *s, const an_library_call_spec *c, const an_tiles *t,
                                an_gpu_step *out)
{
    const bool outer = c->op == AN_OP_GROUPED_OUTER;
    const an_call_tensor *y = &c->out[0];
    struct an_grouped_args a = {
        .S = c->src[0].shape[0], .E = c->src[2].shape[0], .M = c->src[0].shape[1], .N = y->shape[y->rank - 1]};
    for (int i = 0; i < 2; i++) a.a[i] = c->attr[i];
    for (int i = 0; i < 3 - outer; i++) a.b[i] = c->attr[2 + i];
    const int64_t down = outer ? an_ceil_div(a.M, AN_TILE_M) : an_ceil_div(a.S, AN_TILE_M) + a.E;
    an_gpu_launch *l;
    out->params.grouped = a;
    out->params_bytes = sizeof out->params.grouped;
    const char *why = an_gpu_launch_add(out, outer ? "grouped_outer" : "grouped_matmul", an_ceil_div(a.N, AN_TILE_N),
                                        down, outer ? a.E : 1, t->threads, &l);
    if (why) return why;
    for (int i = 0; i < 4; i++) an_gpu_bind_arg(l, i, s, i);
    an_gpu_bind(l, AN_BIND_PARAMS, 4, 0, 0);
    return NULL;
}

const char *an_gpu_call_step(const an_plan *p, const an_plan_step *s, const an_tiles *t, an_gpu_step *out)
{
    const an_kernel *k = &p->kernel[s->kernel];
    if (k->kind == AN_KERNEL_SCATTER)
        return scatter_step(s, &k->u.scatter, k->u.scatter.accumulate ? 2 : -1, 2, t, out);
    if (k->kind == AN_KERNEL_ROW_UPDATE) return row_update_step(s, &k->u.row_update, t, out);
    const an_library_call_spec *c = &k->u.call;
    if (c->op == AN_OP_SCATTER_ADD) {
        const an_scatter_spec of = scatter_of(c);
        return scatter_step(s, &of, c->n_src > 2 ? 2 : -1, c->n_src, t, out);
    }
    if (c->op == AN_OP_POOL_MAX_GRAD) return pool_max_grad_step(s, c, t, out);
    if (is_grouped(c)) return grouped_step(s, c, t, out);
    static const char *const entries[] = {"sort_rows", "running_sum", "matrix", "put_rows", "draw"};
    const int entry = t->module == AN_MODULE_SORT     ? 0
                      : t->module == AN_MODULE_MATRIX ? 2
                      : t->module == AN_MODULE_DRAW   ? 4
                      : c->op == AN_OP_CUMSUM         ? 1
                                                      : 3;
    an_gpu_launch *l;
    int index = 0;
    out->params.call = call_args(c);
    out->params_bytes = sizeof out->params.call;
    const char *why = an_gpu_launch_add(out, entries[entry], groups_of(c, &out->params.call, t), 1, 1, t->threads, &l);
    if (why) return why;
    for (; index < s->n_args; index++) an_gpu_bind_arg(l, index, s, index);
    const an_bind_kind scratch = t->work ? AN_BIND_ANY : AN_BIND_SCRATCH;
    if (t->module != AN_MODULE_SCAN_POOL) an_gpu_bind(l, scratch, index++, 0, 0);
    if (t->module == AN_MODULE_DRAW)
        an_gpu_bind(l, scratch, index++, 0, 4 * out->params.call.each * out->params.call.units);
    if (t->module == AN_MODULE_SORT)
        an_gpu_bind(l, scratch, index++, 0,
                    t->work ? 0 : out->params.call.units * out->params.call.each * key_bytes(c->src[0].dtype));
    an_gpu_bind(l, AN_BIND_PARAMS, index, 0, 0);
    return NULL;
}

static size_t scatter_bytes(const an_scatter_spec *of, const an_gpu *gpu)
{
    const scatter_scratch at = scatter_layout(of);
    return (size_t)(gpu && an_gpu_fast(gpu) && scatters_few(of) ? at.few_end : at.end);
}

size_t an_gpu_call_scratch(const an_kernel *k, const an_gpu *gpu)
{
    if (k->kind == AN_KERNEL_SCATTER) return scatter_bytes(&k->u.scatter, gpu);
    const an_library_call_spec *s = &k->u.call;
    if (s->op == AN_OP_SCATTER_ADD) {
        const an_scatter_spec of = scatter_of(s);
        return scatter_bytes(&of, gpu);
    }
    if (is_grouped(s)) return 0;
    const struct an_call_args a = call_args(s);
    if (s->op == AN_OP_POOL_MAX_GRAD)
        return (size_t)a.units * (size_t)a.OH * (size_t)a.OW * (size_t)a.C * an_dtype_bytes(place_of(s));
    if (s->op == AN_OP_DRAW) return (size_t)(8 * a.units * a.each);
    if (sorts(s->op) && !sort_words(s)) return (size_t)(a.units * a.each * (key_bytes(s->src[0].dtype) + 4));
    if (is_matrix(s) && !shared_words(s, matrix_threads(s))) return (size_t)(a.units * a.each * 8);
    return 0;
}
