/* gpu_gemm_tiles.c: which body and which tiles compute a product on a GPU. */
#include "codegen/gpu_choose.h"
#include "codegen/gpu_module.h"

static int gemm_shared(const an_tiles *t, int each)
{
    int a = t->a_along_k ? an_tile_bytes(t->bm, t->bk, each) : an_tile_bytes(t->bk, t->bm, each);
    int b = t->b_along_k ? an_tile_bytes(t->bn, t->bk, each) : an_tile_bytes(t->bk, t->bn, each);
    return a + b + t->threads / 32 * an_tile_bytes(16, t->bn / t->subgroups_n, 4);
}

/* The first four are tried in this order, largest first: a smaller one is taken where the matrix is small, and for f32,
 * whose fragments hold whole rows in registers. Any of them may be asked for by name (an_gpu.gemm_body): one element's sum is
 * the same accumulation in ascending k whatever the tiles, so that the choice decides speed and no bits. `direct`: fragments
 * are loaded from device memory, without tiles in shared memory and without barriers, as metal-flash-attention found to pay
 * on M1 and M2; bk is the step over k. */
typedef struct gemm_tiles {
    const char *name;
    int bm, bn, bk, subgroups_m, subgroups_n;
    bool direct;
} gemm_tiles;
enum { BY_SIZE = 4 };
static const gemm_tiles bodies[] = {
    {"128x128x32/2x4", 128, 128, 32, 2, 4, false}, {"64x64x32/2x2", 64, 64, 32, 2, 2, false},
    {"64x64x16/2x2", 64, 64, 16, 2, 2, false},     {"32x32x16/2x1", 32, 32, 16, 2, 1, false},
    {"64x32x32/2x2", 64, 32, 32, 2, 2, false},     {"64x64x16/1x2", 64, 64, 16, 1, 2, false},
    {"32x64x16/1x2", 32, 64, 16, 1, 2, false},     {"direct-64x64/2x2", 64, 64, 16, 2, 2, true},
    {"direct-32x32/1x1", 32, 32, 16, 1, 1, true},
};

const char *an_gemm_body_name(int i)
{
    return i >= 0 && i < (int)AN_COUNT(bodies) ? bodies[i].name : NULL;
}

static void set_tiles(an_tiles *t, const gemm_tiles *g)
{
    t->bm = g->bm, t->bn = g->bn, t->bk = g->bk;
    t->subgroups_m = g->subgroups_m, t->subgroups_n = g->subgroups_n;
    t->threads = 32 * g->subgroups_m * g->subgroups_n;
    t->sums = g->direct ? AN_SUMS_DIRECT : AN_SUMS_STAGED;
}

/* Fragments as they lie in device memory: whole tiles, and the type that is multiplied. */
static bool fits_direct(const an_gemm_spec *s, const an_gpu *gpu, const an_tiles *t, const gemm_tiles *g)
{
    enum { MOST_STRIDE = 1 << 24 }; /* offsets in a tile are 32-bit */
    const bool typed = s->mul_dtype == AN_F32 || an_operand_bytes(gpu, s->mul_dtype) == 2;
    const int64_t lead_a = t->a_along_k ? s->a_m : s->a_k, lead_b = t->b_along_k ? s->b_n : s->b_k;
    const int64_t range = an_ceil_div(s->k, AN_MAX(1, s->splits));
    return gpu->dialect->direct_fragments && !gpu->plain && t->vec == 8 && typed && s->a_dtype == s->b_dtype &&
           s->a_dtype == s->mul_dtype && !s->window.of && s->m % g->bm == 0 && s->n % g->bn == 0 && s->k % g->bk == 0 &&
           range % g->bk == 0 && lead_a < MOST_STRIDE && lead_b < MOST_STRIDE;
}

static bool fits(const an_gemm_spec *s, const an_gpu *gpu, const an_tiles *t, const gemm_tiles *g)
{
    an_tiles tried = *t;
    set_tiles(&tried, g);
    if (g->direct) return fits_direct(s, gpu, t, g);
    return gemm_shared(&tried, an_operand_bytes(gpu, s->mul_dtype)) <= gpu->dialect->shared_bytes;
}

/* A matrix of which half a tile would be empty takes a smaller tile. */
static bool is_small(const an_gemm_spec *s, const gemm_tiles *g)
{
    return s->m <= g->bm / 2 || s->n <= g->bn / 2;
}

/* Operands that need no rounding, one matrix, A contiguous along k: not the gradient of weights, whose sum is over the batch. */
bool an_module_gemm_rows(const an_gemm_spec *s, const an_gpu *gpu)
{
    enum { MOST_K = 1 << 15 };
    return gpu->rows && !s->window.of && s->m >= 1 && s->m <= AN_FEW_ROWS && s->n >= 1 && s->k >= 1 && s->k <= MOST_K &&
           s->nb[0] == 1 && s->nb[1] == 1 && s->nb[2] == 1 && (s->a_k == 1 || s->k == 1) &&
           (s->b_n == 1 || s->b_k == 1) && s->a_dtype == s->b_dtype &&
           (s->mul_dtype == AN_F32 || s->mul_dtype == s->a_dtype) && s->splits <= 1;
}

/* As few columns a block as fill a GPU of some 130 multiprocessors, whatever it has: the bits depend on the shape alone. */
static const char *rows_tiles(const an_gemm_spec *s, const an_arg *arg, an_tiles *t)
{
    enum { FULL = 96 /* blocks */, LONG = 1024 /* k */, WIDE = 4096 /* columns */ };
    const int64_t pitch = t->b_along_k ? s->b_n : s->b_k;
    const bool whole =
        t->b_along_k ? s->k % 8 == 0 && (s->m == 1 || s->a_m % 8 == 0) && an_starts_on_16(&arg[0]) : s->n % 8 == 0;
    t->exact = 0;
    t->vec = whole && pitch % 8 == 0 && an_starts_on_16(&arg[1]) && (t->b_along_k || s->b_n == 1) ? 8 : 1;
    t->rows = 1;
    while (t->rows < s->m) t->rows *= 2;
    t->bm = t->rows;
    t->subgroups_m = 1; /* unused */
    t->threads = !t->b_along_k && s->k > LONG ? 512 : 256;
    t->bk = t->b_along_k ? (s->n >= WIDE ? 4 : 1) : t->rows <= 2 ? 8 : t->rows == 4 ? 4 : 2;
    const bool narrow = t->b_along_k && t->bk == 1;
    t->subgroups_n = narrow && s->k >= 2 * LONG ? 4 : 1;
    t->deep = narrow && t->rows <= 2 && t->vec == 8 ? 4 : 1;
    while (t->deep > 1 && s->k % (256 * t->subgroups_n * t->deep)) t->deep--;
    t->bn = t->b_along_k        ? t->bk * t->threads / 32 / t->subgroups_n
            : s->n >= 32 * FULL ? 32
            : s->n >= 16 * FULL ? 16
                                : 8;
    return NULL;
}

const char *an_choose_gemm(const an_gemm_spec *s, const an_arg *arg, const an_gpu *gpu, an_tiles *t)
{
    *t = (an_tiles){.module = AN_MODULE_GEMM,
                    .store = an_kind_text((an_dtype)s->a_dtype),
                    .store_b = an_kind_text((an_dtype)s->b_dtype),
                    .store_c = an_kind_text((an_dtype)s->c_dtype),
                    .mul = s->window.of && gpu->tf32 && s->mul_dtype == AN_F32 ? "TF32"
                                                                               : an_kind_text((an_dtype)s->mul_dtype),
                    .exact = 1,
                    .window = s->window.of};
    if (!t->store || !an_kind_text((an_dtype)s->b_dtype) || !t->store_c) return "float64 matmuls have no GPU template";
    bool mixed = s->a_dtype != s->b_dtype, has_f32 = s->a_dtype == AN_F32 || s->b_dtype == AN_F32;
    if (mixed && !has_f32) return "the operands are stored in two dtypes of 16 bits; cast one of them";
    t->a_along_k = s->a_k == 1 || s->k == 1;
    t->b_along_k = s->b_k == 1 && s->b_n != 1;
    bool strided = (t->a_along_k ? s->a_k : s->a_m) != 1 ||
                   (t->b_along_k ? s->b_k : s->b_n) != 1; /* neither direction contiguous: element by element */
    const int64_t a[4] = {s->a_b[0], s->a_b[1], s->a_b[2], t->a_along_k ? s->a_m : s->a_k},
                  b[4] = {s->b_b[0], s->b_b[1], s->b_b[2], t->b_along_k ? s->b_n : s->b_k};
    bool extents = (t->a_along_k ? s->k : s->m) % 8 == 0 && (t->b_along_k ? s->k : s->n) % 8 == 0;
    const bool pixels = !s->window.of || (s->window.channels % 8 == 0 && s->window.pixel % 8 == 0);
    t->vec = extents && pixels && !strided && an_multiples_of_8(a, 4) && an_multiples_of_8(b, 4) &&
                     an_starts_on_16(&arg[0]) && an_starts_on_16(&arg[1])
                 ? 8
                 : 1;
    if (an_module_gemm_rows(s, gpu)) return rows_tiles(s, arg, t);
    const bool bf16 = s->a_dtype == AN_BF16 && s->b_dtype == AN_BF16 && s->mul_dtype == AN_BF16;
    const bool conv = an_gpu_fast(gpu) && s->window.of && bf16 && t->vec == 8;
    if (conv) { /* conv_bf16.inc: eight subgroups, 32 of k a tile */
        t->bm = s->m <= 64 ? 64 : 128;
        t->bn = s->n <= 64 ? 64 : 128;
        t->bk = 32;
        t->subgroups_m = t->bm > t->bn ? 4 : 2;
        t->subgroups_n = 8 / t->subgroups_m;
        t->threads = 256;
        t->sums = AN_SUMS_CONV_BF16;
        return NULL;
    }
    const int wish = gpu->gemm_body[s->mul_dtype == AN_F32 ? AN_GEMM_F32 : AN_GEMM_16] - 1;
    if (wish >= 0 && fits(s, gpu, t, &bodies[wish]) && !is_small(s, &bodies[wish])) {
        set_tiles(t, &bodies[wish]);
        return NULL;
    }
    for (int i = s->mul_dtype == AN_F32 ? 2 : gpu->dialect->largest_tile; i < BY_SIZE; i++) {
        set_tiles(t, &bodies[i]);
        if (fits(s, gpu, t, &bodies[i]) && (!is_small(s, &bodies[i]) || i + 1 == BY_SIZE)) return NULL;
    }
    return NULL; /* the smallest fits everywhere */
}
