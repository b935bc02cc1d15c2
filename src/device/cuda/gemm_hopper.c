/* gemm_hopper.c: sm_90a GEMMs by our own kernel (kernels/gpu/gemm_hopper.inc): with a fused elementwise epilogue, and plain
 * ones of extents for which the library has no fast kernel.
 *
 * Owns:      which GEMMs these are, and their launch parameters.
 * Does not:  compile or launch (lower_launches.c, graph_exec.c).
 * Invariant: a pure function of (plan, device).
 *
 * The library's GEMMs are up to a tenth faster than ours, but a separate epilogue reads the result from memory once more.
 * That matters where the result is wide and the sum over k short: GELU after the first linear layer of a GPT block
 * (bench/cuda/README.md has the ladder).
 *
 * At extents along a row that are no multiple of 8 the library's GEMMs take three to ten times as long, even if every row
 * begins on 16 bytes. The copy engine needs aligned rows alone, which pad_rows.c gives; weights that are cast in front of a
 * GEMM get them from the cast.
 */
#include "device/cuda/cuda_internal.h"

enum {
    TILE_M = AN_HGEMM_M * AN_HGEMM_CLUSTER,
    TILE_N = AN_HGEMM_N,
    LEAST_ROUNDS = 2,
    MOST_WIDER = 8,
    LONGEST_GATED =
        1024, /* k up to which a GEMM and its gate as one kernel pay: the library's is up to a tenth faster */
    SHORT_SUM =
        256, /* multiplied in less time than the end of a gate takes, two slow instructions an element (measured at 97; not at 512) */
    WIDEST_BAND = 64 /* tile columns: their B stays in the second-level cache */
};

static int64_t tiles_of(int64_t m, int64_t n, int64_t wide)
{
    return an_ceil_div(m, TILE_M) * an_ceil_div(n, wide);
}

static int64_t tiles(int64_t m, int64_t n)
{
    return tiles_of(m, n, TILE_N);
}

static int64_t clusters(const an_device *d)
{
    return d->multiprocessors / AN_HGEMM_CLUSTER;
}

/* Extents whose epilogue has whole vectors everywhere. */
static bool is_even(const an_device *d, int64_t m, int64_t n, int64_t k)
{
    return d->gpu.arch_specific == 90 && d->has_lt && m % 64 == 0 && n % 64 == 0 && k % 8 == 0 && m <= INT32_MAX &&
           n <= INT32_MAX;
}

bool an_cuda_fusion_pays(const an_device *d, int64_t m, int64_t n, int64_t k)
{
    return is_even(d, m, n, k) && n > k && n <= MOST_WIDER * k && tiles(m, n) >= LEAST_ROUNDS * clusters(d);
}

/* Otherwise the library stores f32 sums, which another kernel reads: 10 bytes moved an element in place of 2. The library's own
 * bias (CUBLASLT_EPILOGUE_BIAS) has the dtype of the result, so a bias in f32 would be rounded first. The last of the rounds in
 * which thread blocks take their tiles must not be nearly empty. */
bool an_cuda_bias_pays(const an_device *d, int64_t m, int64_t n, int64_t k)
{
    enum { MOST_DEEPER = 4, FULL = 9 /* tenths */ };
    const int64_t rounds = an_ceil_div(tiles(m, n), clusters(d));
    return is_even(d, m, n, k) && k <= MOST_DEEPER * n && rounds >= LEAST_ROUNDS &&
           10 * tiles(m, n) >= FULL * rounds * clusters(d);
}

bool an_cuda_fuses_epilogue(const an_device *d, const an_gemm_spec *s, const an_loop_kernel *epilogue,
                            const an_gemm_plan *p)
{
    if (p->mul != AN_BF16 || !p->a_along_k || p->batches != 1 || s->splits > 1) return false;
    const bool pays = an_cuda_fusion_pays(d, s->m, s->n, s->k) ||
                      (p->out == AN_F32 && an_cuda_bias_pays(d, s->m, s->n, s->k)); /* fuse.c lets no more into it */
    return p->lda % 8 == 0 && p->ldb % 8 == 0 && pays && epilogue->rows == s->m && epilogue->cols == s->n &&
           an_render_gpu_can_fuse_epilogue(epilogue);
}

struct an_gemm_hopper_args an_cuda_fused_gemm_args(const an_device *d, const an_gemm_spec *s, bool pair, bool narrow,
                                                   uint32_t *blocks)
{
    const int64_t wide = narrow ? AN_HGEMM_NARROW_N : TILE_N, across = an_ceil_div(s->n, wide),
                  band = across > WIDEST_BAND ? WIDEST_BAND / 2 : across;
    *blocks = (uint32_t)(AN_HGEMM_CLUSTER * AN_MIN(tiles_of(s->m, s->n, wide), clusters(d)));
    return (struct an_gemm_hopper_args){.m = pair ? s->m / 2 : s->m, .n = s->n, .k = s->k, .band = (int)band};
}

/* ---- plain GEMMs */

/* Gives a cast operand rows of whole sectors of the cache, 32 bytes (planner/pad_rows.c). */
static bool pad_cast(const an_gemm_plan *p, int i, int64_t inner, int64_t outer, int64_t *ld)
{
    if (!p->cast[i]) return true;
    *ld = an_round_up(inner, 16);
    return outer * *ld <= INT32_MAX && (i ? p->ldb : p->lda) <= INT32_MAX;
}

enum { LEAST = 32 }; /* an extent below that leaves a tile nearly empty */

bool an_cuda_is_odd(const an_device *d, int64_t m, int64_t n, int64_t k)
{
    return d->gpu.arch_specific == 90 && d->has_lt && m >= LEAST && n >= LEAST && k >= LEAST && (n % 8 || k % 8) &&
           m <= INT32_MAX && n <= INT32_MAX;
}

bool an_cuda_plain_pays(const an_device *d, const an_gemm_spec *s, an_gemm_plan *p)
{
    const int64_t inner_a = p->a_along_k ? s->k : s->m, outer_a = p->a_along_k ? s->m : s->k,
                  inner_b = p->b_along_k ? s->k : s->n, outer_b = p->b_along_k ? s->n : s->k;
    int64_t ld[2] = {p->lda, p->ldb};
    if (d->gpu.arch_specific != 90 || p->mul != AN_BF16 || p->batches != 1 || s->splits > 1) return false;
    if (s->m < LEAST || s->n < LEAST || s->k < LEAST || (inner_a % 8 == 0 && inner_b % 8 == 0 && s->n % 8 == 0))
        return false;
    if (!pad_cast(p, 0, inner_a, outer_a, &ld[0]) || !pad_cast(p, 1, inner_b, outer_b, &ld[1])) return false;
    if (ld[0] % 8 || ld[1] % 8) return false;
    const int64_t from[2] = {p->lda, p->ldb};
    p->lda = ld[0];
    p->ldb = ld[1];
    for (int i = 0; i < 2; i++) {
        if (!p->cast[i]) continue;
        p->cast_from[i] = from[i];
        p->cast_ld[i] = ld[i];
        p->span[i] = (i ? outer_b : outer_a) * ld[i];
    }
    return true;
}

static int64_t stages_of(const an_gemm_spec *s)
{
    return an_ceil_div(s->k, AN_HGEMM_DEPTH);
}

/* Bytes of `splits` sums of C, in rows of whole 16 bytes. */
static int64_t sums_bytes(const an_gemm_spec *s, int64_t splits)
{
    return splits * s->m * an_round_up(s->n, 4) * (int64_t)sizeof(float);
}

/* The number of parts for which the busiest cluster takes the least time, counted in stages of k, of about 0.5 us each: a
 * tile's beginning and end take four, the second launch eight, beside the memory it moves. As if the GPU had 132
 * multiprocessors, whatever it has, so that the bits depend on the shape alone. */
int32_t an_cuda_plain_splits(const an_gemm_spec *s)
{
    enum { CLUSTERS = 66, MOST = 32, SHORTEST = 4, ENDS = 4, REDUCE = 8, BYTES = 1500000 /* moved in 0.5 us */ };
    int64_t best = 1, least = INT64_MAX;
    for (int64_t splits = 1; splits <= MOST; splits++) {
        const int64_t turns = an_ceil_div(stages_of(s), splits),
                      rounds = an_ceil_div(tiles(s->m, s->n) * splits, CLUSTERS);
        if (splits > 1 && (turns < SHORTEST || sums_bytes(s, splits) > AN_CUDA_WORKSPACE)) break;
        if (an_ceil_div(stages_of(s), turns) != splits) continue; /* fewer parts of the same length do */
        const int64_t cost = rounds * (turns + ENDS) + (splits > 1 ? REDUCE + 2 * sums_bytes(s, splits) / BYTES : 0);
        if (cost >= least) continue;
        least = cost;
        best = splits;
    }
    return (int32_t)best;
}

int64_t an_cuda_plain_scratch(const an_gemm_spec *s, const an_gemm_plan *p)
{
    return p->splits > 1 ? sums_bytes(s, p->splits) : 0;
}

struct an_gemm_hopper_args an_cuda_plain_args(const an_device *d, const an_gemm_spec *s, const an_gemm_plan *p, int add,
                                              bool aligned, bool reduce, uint32_t *blocks)
{
    const bool sums = p->splits > 1 && !reduce; /* the kernel stores partial sums */
    struct an_gemm_hopper_args g = an_cuda_fused_gemm_args(d, s, false, false, blocks);
    *blocks = (uint32_t)(AN_HGEMM_CLUSTER * AN_MIN(tiles(s->m, s->n) * p->splits, clusters(d)));
    g.splits = p->splits;
    g.turns = (int)an_ceil_div(stages_of(s), p->splits);
    g.ldc = sums ? an_round_up(s->n, 4) : p->ldc;
    g.add = sums ? 0 : add;
    g.wide = sums || (aligned && p->ldc % (p->out == AN_F32 ? 2 : 8) == 0);
    return g;
}

/* ---- pairs */

/* Bytes of a step's argument, those of the values around it included. */
static bool overlap(const an_plan *p, const an_arg *a, const an_arg *b)
{
    int64_t from[2], to[2];
    int32_t slot[2];
    const an_arg *of[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        int32_t v = of[i]->value;
        slot[i] = of[i]->slot, from[i] = 0, to[i] = INT64_MAX;
        if (v < 0) continue;
        while (p->value[v].inside >= 0) v = p->value[v].inside;
        from[i] = an_value_offset(p, v, &slot[i]);
        to[i] = from[i] + p->value[v].bytes;
    }
    return slot[0] == slot[1] && slot[0] >= 0 && from[0] < to[1] && from[1] < to[0];
}

an_gating an_cuda_gates(const an_device *d, int64_t m, int64_t n, int64_t k)
{
    if (!is_even(d, m, n, 8) || m % 128 || k < 1 || k > LONGEST_GATED || tiles(m, n) < LEAST_ROUNDS * clusters(d))
        return AN_GATES_NOT;
    return k <= SHORT_SUM ? AN_GATES_AGAIN : AN_GATES;
}

/* The plain bf16 GEMMs that the kernel can run as a pair. */
static bool can_be_pair(const an_device *d, const an_gemm_spec *s, an_gemm_plan *out)
{
    if (an_cuda_gates(d, s->m, s->n, s->k) == AN_GATES_NOT || s->splits > 1) return false;
    if (!an_cuda_gemm_plan(d, s, NULL, out) || out->mul != AN_BF16 || out->out != AN_BF16 || out->batches != 1)
        return false;
    return !out->cast[0] && !out->cast[1] && out->transposed_at < 0 && out->lda % 8 == 0 && out->ldb % 8 == 0 &&
           out->ldc == s->n;
}

bool an_cuda_is_pair(const an_device *d, const an_plan *p, int32_t s, an_gemm_pair *out)
{
    const an_plan_step *gemm = &p->step[s], *loop = gemm + 1;
    *out = (an_gemm_pair){.arg = -1};
    if (s + 1 >= p->n_steps || p->kernel[gemm->kernel].kind != AN_KERNEL_GEMM || gemm->epilogue >= 0 ||
        p->kernel[loop->kernel].kind != AN_KERNEL_LOOP || gemm->n_args != 3)
        return false;
    const an_gemm_spec *spec = &p->kernel[gemm->kernel].u.gemm;
    const an_loop_kernel *program = p->kernel[loop->kernel].u.loop;
    const an_arg *c = &gemm->arg[2];
    if (c->slot != AN_SLOT_ARENA || c->value < 0 || program->rows * 2 != spec->m || program->cols != spec->n)
        return false;
    if (!can_be_pair(d, spec, &out->gemm)) return false;
    out->keep = p->value[c->value].inside >= 0 || p->value[c->value].last > s + 1;
    for (int i = 0; i < 2; i++)
        if (gemm->arg[i].slot < 0 || gemm->arg[i].offset % 16) return false;
    for (int i = 0; i < loop->n_args; i++) {
        const an_arg *a = &loop->arg[i];
        if (a->slot == c->slot && a->offset == c->offset && a->value == c->value) {
            if (out->arg >= 0 || a->written) return false;
            out->arg = i;
        } else if ((out->keep && overlap(p, a, c)) ||
                   (a->written && (overlap(p, a, &gemm->arg[0]) || overlap(p, a, &gemm->arg[1])))) {
            return false; /* what the loop writes would be read by other blocks of the GEMM, or is where these store it */
        }
    }
    out->gemm.fused = out->gemm.pair = true;
    const an_gpu_pair form = out->arg >= 0 ? an_render_gpu_can_pair(program, out->arg) : AN_GPU_NO_PAIR;
    out->gemm.narrow =
        form == AN_GPU_GATE && !out->keep && an_cuda_gates(d, spec->m, spec->n, spec->k) == AN_GATES_AGAIN;
    out->reads = form == AN_GPU_GATE_GRADIENT;
    for (int i = 0; i < loop->n_args; i++)
        if (loop->arg[i].offset % 16) return false; /* moved 16 bytes at a time */
    return form == AN_GPU_GATE || (out->reads && !out->keep);
}

cu_result an_cuda_operand_map(an_device *d, const an_gemm_spec *s, const an_gemm_plan *p, int which, cu_pointer at,
                              cu_tensor_map *out)
{
    const bool along_k = which == 0 ? p->a_along_k : p->b_along_k;
    const int64_t rows = which == 0 ? s->m : s->n;
    const uint32_t wide = p->narrow ? AN_HGEMM_NARROW_N : AN_HGEMM_N;
    const uint64_t extents[2] = {(uint64_t)(along_k ? s->k : rows), (uint64_t)(along_k ? rows : s->k)},
                   stride = 2 * (uint64_t)(which ? p->ldb : p->lda);
    const uint32_t steps[2] = {1, 1}, box[2] = {64, which == 0 ? along_k && !p->pair ? AN_HGEMM_M : 64
                                                    : along_k  ? wide / AN_HGEMM_CLUSTER
                                                               : 64 / AN_HGEMM_CLUSTER};
    return d->cu.tensor_map(out, CU_MAP_BF16, 2, at, extents, &stride, box, steps, 0, CU_MAP_SWIZZLE_128B,
                            CU_MAP_PROMOTE_256B, 0);
}
