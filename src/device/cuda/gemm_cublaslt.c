/* gemm_cublaslt.c: GEMMs by cuBLASLt.
 *
 * Owns:       which GEMMs the library runs, the translation of our strides, the choice of the algorithm. In tf32 the
 *             library is slow unless both operands are contiguous along k. So this file also decides which operands are
 *             transposed for it first, and which GEMMs our own kernel (gemm_tf32.inc) runs instead.
 * Does not:   launch casts, transposes and epilogues (lower_launches.c), or measure. The algorithm is one of those that
 *             the library's own heuristic returns for the shape (`preferred`).
 * Invariant:  a pure function of (spec, device, library version). Algorithms sum in a fixed order, without atomics, so two
 *             runs give the same bits.
 *
 * The library's matrices are column-major. A row-major C[m,n] is a column-major C^T[n,m], so:
 *
 *     ours       C[m,n] = A[m,k] B[k,n]
 *     library's  C^T    = B^T A^T         its left operand is our B, its right one our A; its rows are our n
 */
#include "device/cuda/cuda_internal.h"
#include "codegen/cuda_modules.h"
#include "codegen/gpu_module.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t distance(int64_t extent, int64_t stride)
{
    return extent > 1 ? (extent - 1) * llabs(stride) : 0;
}

/* The extent in memory of an operand: elements from its first to its last, padding included. */
static int64_t span_of(const an_gemm_spec *s, const int64_t *batch, int64_t rows, int64_t row, int64_t cols,
                       int64_t col)
{
    int64_t n = 1 + distance(rows, row) + distance(cols, col);
    for (int i = 0; i < 3; i++) n += distance(s->nb[i], batch[i]);
    return n;
}

/* Finds the one batch axis that is longer than 1; false when there are several. */
static bool one_batch(const an_gemm_spec *s, an_gemm_plan *out)
{
    int axis = -1;
    out->batches = 1;
    for (int i = 0; i < 3; i++) {
        if (s->nb[i] == 1) continue;
        if (axis >= 0 || s->nb[i] == 0) return false;
        axis = i;
    }
    if (axis < 0) return true;
    out->batches = s->nb[axis];
    out->stride[0] = s->a_b[axis];
    out->stride[1] = s->b_b[axis];
    out->stride[2] = s->c_b[axis];
    return true;
}

/* The dtype in which the epilogue reads the GEMM's result: AN_INS_TILE rounds it to this. */
static int tile_dtype(const an_loop_kernel *epilogue)
{
    for (int i = 0; epilogue && i < epilogue->n_ins; i++)
        if (epilogue->ins[i].kind == AN_INS_TILE) return epilogue->ins[i].dtype;
    return AN_F32;
}

/* Whether the epilogue is D = C + result in f32 or bf16, elementwise: the library does that with beta = 1; in bf16 it rounds
 * the sum alone. Our kernel of odd extents adds in f32. */
static bool adds_in_place(const an_gemm_spec *s, const an_loop_kernel *e, an_gemm_plan *out)
{
    const int dtype = tile_dtype(e);
    if (dtype != AN_F32 && (dtype != AN_BF16 || out->mul != AN_BF16 || out->plain)) return false;
    if (e->n_ins != 4 || e->n_args != 2 || out->batches != 1 || e->rows * e->cols != (int64_t)s->m * s->n) return false;
    const an_ins *tile = NULL, *load = NULL, *add = NULL, *store = NULL;
    for (int i = 0; i < 4; i++) {
        const an_ins *x = &e->ins[i];
        if (x->dtype != dtype || x->guard >= 0 || (x->kind == AN_INS_LOAD && x->clamp)) return false;
        if (x->kind == AN_INS_TILE) tile = x;
        if (x->kind == AN_INS_LOAD) load = x;
        if (x->kind == AN_INS_ELEM && x->op == AN_OP_ADD) add = x;
        if (x->kind == AN_INS_STORE) store = x;
    }
    /* equal indices are one expression; a store of every element is in the order of the result */
    const int64_t numel = (int64_t)s->m * s->n;
    if (!tile || !load || !add || !store || load->ix != store->ix || e->cols != s->n || e->ix.expr[store->ix].lo != 0 ||
        e->ix.expr[store->ix].hi != numel - 1 || e->arg[load->arg].dtype != dtype || e->arg[store->arg].dtype != dtype)
        return false;
    out->addend = load->arg;
    out->sum = store->arg;
    return true;
}

/* Whether our kernel of odd extents adds the bias that the epilogue does, and rounds. */
static bool adds_bias(const an_gemm_spec *s, const an_loop_kernel *e, an_gemm_plan *out)
{
    an_gpu_bias end;
    if (!out->plain || e->rows != s->m || e->cols != s->n || !an_render_gpu_is_bias(e, &end)) return false;
    const uint8_t dtype = e->arg[end.bias].dtype;
    if (dtype != AN_F32 && dtype != AN_BF16) return false;
    out->bias = end.bias;
    out->bias_dtype = dtype;
    out->sum = end.sum;
    out->ldc = end.row;
    return true;
}

/* Into how many parts gemm_tf32.inc splits the sum over k; 0: it does not run this GEMM. It runs those of weight gradients:
 * operands contiguous along m and n, a long sum, tiles that fill the GPU. The split assumes 132 multiprocessors, whatever
 * the GPU has, so that the bits depend on the shape alone. */
static int32_t split_k(const an_device *d, const an_gemm_spec *s, const an_gemm_plan *p)
{
    enum { FULL = 132 /* multiprocessors */, LEAST = 256 /* k of a part */ };
    const double tile = AN_TF32_TILE;
    if (d->gpu.arch_specific != 90 || !d->tf32 || p->mul != AN_F32 || p->cast[0] || p->cast[1] || p->out != AN_F32)
        return 0;
    if (p->a_along_k || p->b_along_k || p->out_at >= 0 || p->batches != 1) return 0;
    if (s->m % 4 || s->n % 4 || p->lda % 4 || p->ldb % 4 || p->ldc % 2 || s->k % AN_TF32_DEEP) return 0;
    const int64_t tiles = an_ceil_div(s->m, AN_TF32_TILE) * an_ceil_div(s->n, AN_TF32_TILE),
                  splits = AN_MIN(FULL / tiles, s->k / LEAST);
    return (double)s->m * s->n * (double)splits < 0.7 * FULL * tile * tile ? 0 : (int32_t)splits;
}

/* Whether B is transposed for the library, to be contiguous along k: the weights of a layer, for the gradient of its input.
 * One H200, 2026-11-21, m = 16384 (n x k, us without and with): 384 x 1152 70.0, 48.4; 384 x 384 34.8,
 * 24.1; 384 x 1536 90.6, 59.8; 1536 x 384 72.2, 64.0; the transpose takes 2 to 3. */
static bool transpose_pays(const an_device *d, const an_gemm_spec *s, const an_gemm_plan *p)
{
    enum { ROWS = 4096, LEAST = 1 << 17, MOST = 1 << 23 };
    return d->arch == 90 && d->tf32 && p->mul == AN_F32 && !p->cast[1] && p->a_along_k && !p->b_along_k &&
           p->batches == 1 && s->m >= ROWS && (int64_t)s->k * s->n >= LEAST && (int64_t)s->k * s->n <= MOST;
}

bool an_cuda_gemm_plan(const an_device *d, const an_gemm_spec *s, const an_loop_kernel *epilogue, an_gemm_plan *out)
{
    if (!d->has_lt || d->exact || s->window.of || an_module_gemm_rows(s, &d->gpu)) return false;
    const uint8_t dtype[2] = {s->a_dtype, s->b_dtype};
    /* The product of two float16 numbers is exact in f32, so float16 tensor cores give what an f32 multiply gives. */
    const bool half = s->mul_dtype == AN_F32 && dtype[0] == AN_F16 && dtype[1] == AN_F16;
    const uint8_t mul = half ? AN_F16 : s->mul_dtype;
    *out = (an_gemm_plan){.mul = mul, .out_at = -1, .addend = -1, .bias = -1, .sum = -1, .transposed_at = -1};
    if (s->m < 1 || s->n < 1 || s->k < 1 || !one_batch(s, out)) return false;
    if (s->mul_dtype != AN_F32 && s->mul_dtype != AN_BF16) return false;
    for (int i = 0; i < 2; i++)
        if (dtype[i] != AN_F32 && dtype[i] != AN_BF16 && dtype[i] != AN_F16) return false;
    out->a_along_k = s->a_k == 1 || s->k == 1;
    out->b_along_k = s->b_n != 1 && s->n > 1;
    out->lda = out->a_along_k ? s->a_m : s->a_k;
    out->ldb = out->b_along_k ? s->b_n : s->b_k;
    if (!out->a_along_k && s->a_m != 1 && s->m > 1) return false;
    if (out->b_along_k && s->b_k != 1 && s->k > 1) return false;
    /* a leading dimension is at least the extent that it strides over; the stride of a single row or column is arbitrary */
    const int64_t inner_a = out->a_along_k ? s->k : s->m, outer_a = out->a_along_k ? s->m : s->k,
                  inner_b = out->b_along_k ? s->k : s->n, outer_b = out->b_along_k ? s->n : s->k;
    if (outer_a == 1) out->lda = inner_a;
    if (outer_b == 1) out->ldb = inner_b;
    if (out->lda < inner_a || out->ldb < inner_b) return false;
    for (int i = 0; i < 2; i++) out->cast[i] = dtype[i] != mul;
    out->span[0] = span_of(s, s->a_b, s->m, s->a_m, s->k, s->a_k);
    out->span[1] = span_of(s, s->b_b, s->k, s->b_k, s->n, s->b_n);
    out->plain = an_cuda_plain_pays(d, s, out);
    int64_t at = 0;
    const int64_t dense[2] = {(int64_t)s->m * s->k * out->batches, (int64_t)s->k * s->n * out->batches};
    for (int i = 0; i < 2; i++) {
        if (!out->cast[i]) continue;
        if (out->span[i] > 2 * dense[i] + 4096) return false; /* mostly padding */
        out->cast_at[i] = at;
        at += an_round_up(out->span[i] * (int64_t)an_dtype_bytes((an_dtype)mul), 256);
    }
    if (!epilogue) {
        out->out = s->c_dtype;
        out->ldc = s->m > 1 ? s->c_m : s->n;
        if (out->ldc < s->n) return false;
        if (out->out != AN_F32 && out->out != mul) return false;
    } else if (adds_in_place(s, epilogue, out)) {
        out->out = (uint8_t)tile_dtype(epilogue);
        out->ldc = s->n;
    } else if (adds_bias(s, epilogue, out)) {
        out->out = AN_BF16;
    } else {
        out->out = tile_dtype(epilogue) == mul ? mul : AN_F32;
        out->ldc = s->n;
        out->stride[2] = (int64_t)s->m * s->n;
        out->scratch_bytes = at;
        if ((out->fused = an_cuda_fuses_epilogue(d, s, epilogue, out))) return true;
        out->out_at = at;
        at += an_round_up((int64_t)s->m * s->n * out->batches * (int64_t)an_dtype_bytes((an_dtype)out->out), 256);
    }
    out->split_k = split_k(d, s, out);
    if (transpose_pays(d, s, out)) {
        out->transposed_at = at;
        at += an_round_up((int64_t)s->k * s->n * (int64_t)sizeof(float), 256);
        out->transposed_ld = out->ldb;
        out->b_along_k = true;
        out->ldb = s->k;
    }
    out->workspace_at = at;
    if (out->plain) out->splits = an_cuda_plain_splits(s);
    out->scratch_bytes = at + AN_CUDA_WORKSPACE;
    return true;
}

static int kind_of(int dtype)
{
    return dtype == AN_BF16 ? LT_BF16 : dtype == AN_F16 ? LT_F16 : LT_F32;
}

static uint32_t alignment(cu_pointer p)
{
    uint32_t a = 256;
    while (a > 1 && p % a) a /= 2;
    return a;
}

static an_status check(an_err *err, cu_result r, const an_gemm_spec *s, const char *what)
{
    if (!r) return AN_OK;
    return an_fail(err, AN_E_DEVICE,
                   "cuda: cuBLASLt: %s for a GEMM of %d x %d x %d: status %d; set ANNEAL_EXACT=1 to run without it",
                   what, s->m, s->n, s->k, r);
}

static an_status layout(an_err *err, const an_cublaslt *lt, const an_gemm_spec *s, int dtype, int64_t rows,
                        int64_t cols, int64_t ld, int32_t batches, int64_t stride, lt_layout *out)
{
    AN_TRY(check(err, lt->layout_new(out, kind_of(dtype), (uint64_t)rows, (uint64_t)cols, ld), s, "no layout"));
    if (batches == 1) return AN_OK;
    AN_TRY(check(err, lt->layout_set(*out, LT_LAYOUT_BATCHES, &batches, sizeof batches), s, "no batch"));
    return check(err, lt->layout_set(*out, LT_LAYOUT_BATCH_STRIDE, &stride, sizeof stride), s,
                 "no stride of the batch");
}

/* The algorithm to use. The library's first choice has the largest tiles. Where there are many tiles, those of about
 * 128 x 144 are faster on Hopper: two run on a multiprocessor, so that one stores its result while the other multiplies.
 * Of those it is the one that leaves the fewest multiprocessors idle in the last wave. bench_cublaslt, one H200, cuBLASLt
 * 13.1, 2026-11-21, bf16: for the GEMMs of `char` and `gpt2` the first choice takes up to 1.25 times as long as the
 * fastest (65536 x 3072 x 768: 526 us, 418), this one at most 1.04 times; in a step, where the chip's power is the limit,
 * GEMMs took 3 to 4 % less together. In tf32, and where tiles are few, the first was the best or near it. */
static const lt_choice *preferred(const an_device *d, const an_gemm_spec *s, const an_gemm_plan *p,
                                  const lt_choice *choice, int n)
{
    enum { LEAST = 15000, MIDDLE = 18432, MOST = 23000 }; /* elements of a tile */
    const lt_choice *best = &choice[0];
    const double numel = (double)s->m * s->n * p->batches;
    double idle = 0;
    if (d->arch != 90 || p->mul == AN_F32 || numel < 3.0 * MIDDLE * d->multiprocessors) return best;
    for (int i = 0; i < n; i++) {
        const double waves = (double)choice[i].waves, tile = numel / (waves * d->multiprocessors),
                     rounded = ceil(waves) / waves;
        if (choice[i].state || !(tile > LEAST && tile < MOST) || (idle > 0 && rounded >= idle)) continue;
        idle = rounded;
        best = &choice[i];
    }
    return best;
}

static an_status choose(an_err *err, an_device *d, const an_gemm_spec *s, const an_gemm_plan *p,
                        const cu_pointer address[4], an_gemm_ready *out)
{
    const an_cublaslt *lt = &d->lt;
    const uint64_t workspace = AN_CUDA_WORKSPACE;
    const uint32_t align[4] = {alignment(address[1]), alignment(address[0]), alignment(address[3]),
                               alignment(address[2])}; /* the library's A, B, C, D */
    lt_preference preference = NULL;
    lt_choice choice[8] = {0};
    int got = 0;
    AN_TRY(check(err, lt->preference_new(&preference), s, "no preference"));
    an_status status =
        check(err, lt->preference_set(preference, LT_PREF_WORKSPACE, &workspace, sizeof workspace), s, "workspace");
    for (int i = 0; i < 4 && status == AN_OK; i++)
        status =
            check(err, lt->preference_set(preference, LT_PREF_ALIGN_A + i, &align[i], sizeof align[i]), s, "alignment");
    if (status == AN_OK)
        status = check(err,
                       lt->heuristic(d->lt_handle, out->desc, out->b, out->a, out->c, out->c, preference,
                                     (int)AN_COUNT(choice), choice, &got),
                       s, "no algorithm");
    lt->preference_free(preference);
    if (status == AN_OK && (got < 1 || choice[0].state))
        status = check(err, choice[0].state ? choice[0].state : -1, s, "no algorithm");
    if (status != AN_OK) return status;
    const lt_choice *best = preferred(d, s, p, choice, got);
    out->algo = best->algo;
    out->workspace_bytes = best->workspace_bytes;
    return AN_OK;
}

an_status an_gemm_prepare(an_err *err, an_device *d, const an_gemm_spec *s, const an_gemm_plan *p,
                          const cu_pointer address[4], an_gemm_ready *out)
{
    const an_cublaslt *lt = &d->lt;
    *out = (an_gemm_ready){0};
    if (!d->lt_handle) AN_TRY(check(err, lt->create(&d->lt_handle), s, "it does not start"));
    const int compute = p->mul == AN_F32 && d->tf32 ? LT_COMPUTE_TF32 : LT_COMPUTE_F32;
    /* transA, transB: an operand that is contiguous along k is read transposed, without a copy. */
    const int32_t left = p->b_along_k ? LT_OP_T : LT_OP_N, right = p->a_along_k ? LT_OP_N : LT_OP_T;
    AN_TRY(check(err, lt->desc_new(&out->desc, compute, LT_F32), s, "no description"));
    AN_TRY(check(err, lt->desc_set(out->desc, LT_DESC_TRANSA, &left, sizeof left), s, "no transposition"));
    AN_TRY(check(err, lt->desc_set(out->desc, LT_DESC_TRANSB, &right, sizeof right), s, "no transposition"));
    AN_TRY(layout(err, lt, s, p->mul, p->b_along_k ? s->k : s->n, p->b_along_k ? s->n : s->k, p->ldb, p->batches,
                  p->stride[1], &out->b));
    AN_TRY(layout(err, lt, s, p->mul, p->a_along_k ? s->k : s->m, p->a_along_k ? s->m : s->k, p->lda, p->batches,
                  p->stride[0], &out->a));
    AN_TRY(layout(err, lt, s, p->out, s->n, s->m, p->ldc, p->batches, p->stride[2], &out->c));
    return choose(err, d, s, p, address, out);
}

an_status an_gemm_run(an_err *err, an_device *d, const an_gemm_spec *s, const an_gemm_plan *p, const an_gemm_ready *r,
                      const cu_pointer address[3], cu_pointer addend, cu_pointer workspace)
{
    const float one = 1, beta = p->addend >= 0 ? 1 : 0;
    const cu_pointer onto = p->addend >= 0 ? addend : address[2];
    return check(err,
                 d->lt.matmul(d->lt_handle, r->desc, &one, address[1], r->b, address[0], r->a, &beta, onto, r->c,
                              address[2], r->c, &r->algo, workspace, AN_CUDA_WORKSPACE, d->stream),
                 s, "it failed");
}

void an_gemm_free(an_device *d, an_gemm_ready *r)
{
    if (r->a) d->lt.layout_free(r->a);
    if (r->b) d->lt.layout_free(r->b);
    if (r->c) d->lt.layout_free(r->c);
    if (r->desc) d->lt.desc_free(r->desc);
    *r = (an_gemm_ready){0};
}
