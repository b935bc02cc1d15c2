/* attn.c: flash attention on the CPU, forward and backward, compiled once per instruction set.
 *
 *     forward task: CHUNK queries of a head, or all queries of several heads that read the same keys (grouped heads)
 *         for each block of 64 keys (packed once per task), up to the last one with a key that the causal mask leaves visible
 *         (`visible`), from the first one with a key that a sliding window has not left behind (`hidden`):
 *             s = q k^T * scale (attn_tile.h), masked (score_row)
 *             m' = max(m, s);  rescale l and o by exp(m - m')
 *             p = exp(s - m');  l += p (with AVX-512 up to here in registers: attn_scores.h);  o += p v
 *         o = o / l;  lse = m + log(l)
 *     backward task: a head of k and v with its group of heads of q, or one block of its keys or of a head's queries
 *         for each tile of 64 queries by 64 keys:
 *             p = exp(s - lse);  ds = p (do v^T - delta), delta = sum over d of do * o
 *             dv += p^T do;  dk += ds^T q;  dq += ds k
 *
 * Owns:      the blocking: which scores are computed when, and in which order they are summed.
 * Does not:  allocate; check shapes (the planner does); keep more than O(T) of memory for a head.
 * Invariant: with f32 multiplication the bits depend on the spec alone, not on the instruction set or the threads:
 *   - a score is one accumulation of fused multiply-adds over ascending d, times `scale`; keys are visited in ascending
 *     blocks of 64;
 *   - the running state of a query is its maximum m, 16 lane sums l (key j adds to lane j % 16) and a row of o. When a
 *     block of keys has a new maximum, l and o are multiplied by exp(m_old - m_new) before the block is added; otherwise
 *     o is one accumulation over ascending keys;
 *   - division by the sum of l (added up as a tree) and dropout's 1/(1-rate) are one factor, applied when o is stored; which
 *     probabilities dropout keeps: dropout_mask.h;
 *   - rotary positions turn q and k as they are packed, and dq and dk back as they are stored, with the roundings of loops of their own
 *     (ir/plan.h);
 *   - dv, dk and dq are single accumulations over ascending queries (of all heads of a group, head by head; dq: over keys),
 *     multiplied by 1/(1-rate) or `scale` when they are stored; delta is summed in 16 lanes, which are added up as a tree.
 * With bf16 multiplication q, k, v, do, p and ds are rounded to bf16 (to nearest even) and the sums stay f32; of two neighbouring d,
 * keys or queries the odd one is added first, as a dot product instruction adds them (tile_kind in attn_tile.h). Tile registers
 * (AN_TILES) take all seven products then, in the order of gemm_tiles.h: rows of q, p and ds are the left operand as they lie, and
 * p and ds are transposed for dv and dk. Rows and sums that a tile reads beyond a panel's end are zeros or are thrown away.
 *
 * Method: Dao, Fu, Ermon, Rudra, Re, "FlashAttention", 2022; the loop orders are this project's, for the caches of a core.
 */
#include "base/exact.h"
#include "kernels/cpu_kernels.h"
#include "kernels/cpu/attn_job.h"
#include "kernels/cpu/attn_scores.h"

#include <float.h>
#include <math.h>

enum { CHUNK = 256 }; /* queries of a forward task: the cost of packing a block of keys is shared by so many */
enum { KEPT = 256 };  /* most queries of a head whose panels stay in the L2 cache for all blocks of keys (backward) */

/* ---- forward --------------------------------------------------------------------------------------------------- */

typedef struct forward_scratch {
    an_word *q;     /* [CHUNK, dw] */
    float *o;       /* [CHUNK, dn] */
    float *l, *m;   /* [CHUNK, 16], [CHUNK] */
    an_word *kt;    /* [dw, 64] */
    an_word *v;     /* [64, dn], or pairs [32, dn] */
    an_word *rows;  /* [64, dw]: keys before they are transposed, values before they are paired */
    float *p;       /* [64, 64] scores, then probabilities */
    an_word *pairs; /* [64, 32] probabilities as pairs of bf16 */
    an_word *mask;  /* [64] */
    float *sums;    /* [CHUNK] */
    float *most;    /* [64] new running maxima of the rows of a tile */
    ahead next;
} forward_scratch;

static size_t forward_scratch_of(const job *w, uint8_t *base, forward_scratch *r)
{
    const int64_t rows = an_round_up(AN_MIN(CHUNK, w->s->T), ROWS_UP);
    size_t used = 0, chunk = (size_t)AN_MAX(rows, AN_MIN(CHUNK, w->group * rows)), dn = (size_t)w->dn,
           dw = (size_t)w->dw;
    r->q = take(base, &used, chunk * dw);
    r->o = take(base, &used, chunk * dn);
    r->l = take(base, &used, chunk * LANES);
    r->m = take(base, &used, chunk);
    r->kt = take(base, &used, BLOCK * dw);
    r->v = take(base, &used, BLOCK * dn);
    r->rows = take(base, &used, BLOCK * dw);
    r->p = take(base, &used, BLOCK * BLOCK);
    r->pairs = take(base, &used, BLOCK * BLOCK / 2);
    r->mask = take(base, &used, BLOCK);
    r->sums = take(base, &used, chunk);
    r->most = take(base, &used, BLOCK);
    return used;
}

/* Scales the n scores of a row, n a multiple of 16, and masks those from `seen` on. Returns the maximum of the scores and
 * `least`. */
static inline float score_row(float *s, int n, int seen, float scale, float least)
{
    lanes most = lanes_set(least);
    int j = 0;
    for (; j + LANES <= seen; j += LANES) {
        const lanes t = lanes_scale(lanes_load(s + j), scale);
        lanes_store(s + j, t);
        most = lanes_max(t, most);
    }
    for (; j < n; j += LANES) {
        const lanes t = lanes_first(lanes_scale(lanes_load(s + j), scale), seen - j, -INFINITY);
        lanes_store(s + j, t);
        most = lanes_max(t, most);
    }
    return lanes_most(most);
}

/* s[i][j] = exp(s[i][j] - m[i]), added to the 16 lane sums l[i], for neighbouring rows i. */
AN_INLINE void exp_rows(const int rows, float *s, int n, const float *m, float *l)
{
    lanes sum[EXP_ROWS];
    AN_UNROLL for (int i = 0; i < rows; i++) sum[i] = lanes_load(l + i * LANES);
    for (int j = 0; j < n; j += LANES) {
        lanes x[EXP_ROWS];
        AN_UNROLL for (int i = 0; i < rows; i++) x[i] = lanes_add(lanes_load(s + i * BLOCK + j), lanes_set(-m[i]));
        exp_lanes(rows, true, x);
        AN_UNROLL for (int i = 0; i < rows; i++)
        {
            lanes_store(s + i * BLOCK + j, x[i]);
            sum[i] = lanes_add(sum[i], x[i]);
        }
    }
    AN_UNROLL for (int i = 0; i < rows; i++) lanes_store(l + i * LANES, sum[i]);
}

/* Makes r->most the running maxima of rows [row, row+m), rescaling l and o. The first loop is one that compilers
 * vectorise. */
static inline void rescale_rows(const job *w, const forward_scratch *r, int row, int m)
{
    float shrink[BLOCK];
    for (int i = 0; i < m; i++) shrink[i] = an_exp(r->m[row + i] - r->most[i]);
    for (int i = 0; i < m; i++) {
        const float before = r->m[row + i];
        if (!(r->most[i] > before)) continue;
        r->m[row + i] = r->most[i];
        if (before == -FLT_MAX && !w->mask) continue; /* l and o are still zero */
        float *l = r->l + (row + i) * LANES, *o = r->o + (int64_t)(row + i) * w->dn;
        lanes_store(l, lanes_scale(lanes_load(l), shrink[i]));
        for (int x = 0; x < w->dn; x += LANES) lanes_store(o + x, lanes_scale(lanes_load(o + x), shrink[i]));
    }
}

/* The probabilities p [m, 64] of rows [row, row+m) of the chunk, the first being query i0, for n keys from k0 on, relative to the new
 * running maxima. */
static void softmax_rows(const job *w, const forward_scratch *r, int b, int h, int row, int m, float *p, int64_t i0,
                         int64_t k0, int n, uint64_t index)
{
    const int width = (int)an_round_up(visible(w, i0 + m - 1, k0, n), LANES), kd = depth(w);
    const an_word *q = r->q + (int64_t)row * w->dw;
    const bool some = w->mask || hidden(w, i0 + m - 1, k0, n); /* not all that `visible` counts, or a mask to add */
#if AN_IN_REGISTERS
    for (int i = 0; i < m && !some;) {
        const int rows = m - i >= EXP_ROWS ? EXP_ROWS : 1;
        const queries group = {q + (int64_t)i * w->dw, w->dw, kd, i0 + i + w->shift + 1 - k0, n, w->s->scale};
        softmax_group(w->bf16, rows, width, &group, r->kt, r->m + row + i, r->l + (row + i) * LANES,
                      r->o + (int64_t)(row + i) * w->dn, w->dn, p + i * BLOCK);
        i += rows;
    }
#endif
    if (!AN_IN_REGISTERS || some) {
        /* Each loop does one thing for all rows, so that the CPU does not wait for the maximum of one row before it works on the next. */
        gemm_rows(w->bf16, m, width, kd, q, w->dw, r->kt, BLOCK, p, BLOCK, false);
        for (int i = 0; i < m; i++) {
            const int seen = visible(w, i0 + i, k0, n);
            float *s = p + i * BLOCK;
            r->most[i] = some ? masked_row(s, width, hidden(w, i0 + i, k0, n), seen, w->s->scale,
                                           mask_at(w, b, h, i0 + i, k0), w->s->mask[3], r->m[row + i])
                              : score_row(s, width, seen, w->s->scale, r->m[row + i]);
        }
        rescale_rows(w, r, row, m);
        int first = 0;
        for (; first + EXP_ROWS <= m; first += EXP_ROWS)
            exp_rows(EXP_ROWS, p + first * BLOCK, width, r->m + row + first, r->l + (row + first) * LANES);
        for (; first < m; first++)
            exp_rows(1, p + first * BLOCK, width, r->m + row + first, r->l + (row + first) * LANES);
    }
    for (int i = 0; i < m && w->drop.on; i++) {
        float *s = p + i * BLOCK;
        keep_mask(&w->drop, index + (uint64_t)i * (uint64_t)((w->s->S + 3) / 4), width, r->mask);
        for (int j = 0; j < width; j += AN_VL) vf_store(s + j, (vf)((vu)vf_load(s + j) & vu_load(r->mask + j)));
    }
    for (int i = 0; i < m && w->round; i++) round_row(p + i * BLOCK, width);
}

/* Queries [row, row+rows) of the chunk that starts at i0 against the packed block of n keys at k0. */
static void forward_tile(const job *w, const forward_scratch *r, int b, int h, int64_t i0, int row, int rows,
                         int64_t k0, int n)
{
    const int step = visible(w, i0 + row, k0, n) == n ? rows : GROUP; /* no key is masked: one GEMM for all rows */
    for (int g = 0; g < rows; g += step) {
        int m = AN_MIN(step, rows - g);
        int seen = visible(w, i0 + row + g + m - 1, k0, n), width = (int)an_round_up(seen, LANES);
        float *p = r->p + g * BLOCK;
        if (!seen) continue;
        for (int i = 0; i < m; i++) fetch_ahead(w, &r->next, g + i, rows);
        softmax_rows(w, r, b, h, row + g, m, p, i0 + row + g, k0, n, dropout_index(w, b, h, i0 + row + g, k0));
        const an_word *a = (const an_word *)p;
        if (w->dot) {
            const int whole = (int)an_round_up(width, 2 * LANES); /* whole vectors; vectors do not read later words, */
            for (int i = 0; i < m && AN_TILES; i++)               /* tiles do */
                memset(p + i * BLOCK + width, 0, sizeof(float) * (size_t)(whole - width));
            for (int i = 0; i < m; i++) narrow_row(r->pairs + i * BLOCK / 2, p + i * BLOCK, whole);
            memset(r->pairs + m * BLOCK / 2, 0,
                   sizeof(an_word) * (size_t)((int)an_round_up(m, ROWS_UP) - m) * BLOCK / 2);
            a = r->pairs;
        }
        gemm_rows(w->bf16, m, w->dn, w->dot ? (seen + 1) / 2 : seen, a, w->dot ? BLOCK / 2 : BLOCK, r->v, w->dn,
                  r->o + (int64_t)(row + g) * w->dn, w->dn, true);
    }
}

/* Queries [i0, i0+rows) of heads [h, h+heads), all of one group. */
typedef struct forward_part {
    int b, h, heads, rows;
    int64_t i0;
} forward_part;

static forward_part forward_part_of(const job *w, int64_t task)
{
    const an_attn_spec *s = w->s;
    const int64_t chunks = an_ceil_div(s->T, CHUNK), parts = an_ceil_div(w->group, w->share),
                  i0 = task % chunks * CHUNK;
    const int64_t keys = task / chunks / parts, first = task / chunks % parts * w->share, of = s->H / w->group;
    return (forward_part){.b = (int)(keys / of),
                          .h = (int)(keys % of * w->group + first),
                          .heads = (int)AN_MIN(w->share, w->group - first),
                          .rows = (int)AN_MIN(CHUNK, s->T - i0),
                          .i0 = i0};
}

/* Heads whose queries fit a task together, so that their keys are packed once, while there are tasks for all threads. */
static int heads_together(const job *w, int threads)
{
    const an_attn_spec *s = w->s;
    const int64_t keys = (int64_t)s->B * s->H / w->group;
    int64_t n = s->T > CHUNK / 2 ? 1 : AN_MIN(w->group, CHUNK / an_round_up(s->T, ROWS_UP));
    while (n > 1 && keys * an_ceil_div(w->group, n) < threads) n = (n + 1) / 2;
    return (int)n;
}

/* What is packed after the block of keys that ends at k0: the next block, or after the last the first rows of the next
 * task, which this thread or another one will run. */
static ahead forward_ahead(const job *w, int64_t task, int64_t k0, int64_t end)
{
    const an_attn_spec *s = w->s;
    const forward_part f = forward_part_of(w, k0 < end ? task : task + 1);
    ahead a = {.slots = 0};
    if (f.b == s->B) return a;
    if (k0 >= end) {
        k0 = 0;
        if (s->T >= BLOCK) ahead_add(w, &a, w->q, s->q, f.b, f.h, f.i0, f.rows);
    }
    const int64_t n = AN_MIN(BLOCK, w->keys - k0);
    ahead_add(w, &a, w->k, s->k, f.b, f.h / w->group, k0, n);
    ahead_add(w, &a, w->v, s->v, f.b, f.h / w->group, k0, n);
    return a;
}

/* The panels of the n-th head of a task whose heads have `padded` rows each. */
static forward_scratch rows_of_head(const job *w, forward_scratch r, int n, int padded)
{
    const int64_t row = (int64_t)n * padded;
    r.q += row * w->dw, r.o += row * w->dn, r.l += row * LANES, r.m += row;
    return r;
}

/* Head h from its sums: o and lse. */
static void forward_store(const job *w, const forward_scratch *r, int b, int h, int64_t i0, int rows)
{
    const an_attn_spec *s = w->s;
    const int64_t head = (int64_t)b * s->H + h;
    for (int i = 0; i < rows; i++) r->sums[i] = lanes_sum(lanes_load(r->l + i * LANES));
    for (int i = 0; i < rows; i++) {
        const float factor = r->sums[i] == 0.0f ? 0.0f : w->drop.scale / r->sums[i];
        store_row(w->out + at(w, s->o, b, h, i0 + i), s->dtype, r->o + (int64_t)i * w->dn, factor, s->D);
    }
    if (!w->lse) return;
    for (int i = 0; i < rows; i++) r->sums[i] = an_log(r->sums[i]); /* -inf for a row without visible keys: log(0) */
    if (w->mask) {
        float *most = w->lse + 2 * head * s->T + i0;
        for (int i = 0; i < rows; i++) most[i] = r->m[i], most[s->T + i] = r->sums[i] == -INFINITY ? 0.0f : r->sums[i];
        return;
    }
    for (int i = 0; i < rows; i++) w->lse[head * s->T + i0 + i] = r->m[i] + r->sums[i];
}

static void forward_task(void *arg, int64_t task, int thread)
{
    const job *w = arg;
    const an_attn_spec *s = w->s;
    const forward_part f = forward_part_of(w, task);
    const int kv = f.h / w->group, padded = (int)an_round_up(f.rows, ROWS_UP);
    const int64_t i0 = f.i0;
    forward_scratch mine;
    forward_scratch_of(w, w->scratch + (size_t)thread * w->scratch_bytes, &mine);

    for (int x = 0; x < f.heads; x++) {
        const forward_scratch r = rows_of_head(w, mine, x, padded);
        pack_turned(w, w->q, s->q, f.b, f.h + x, i0, f.rows, padded, r.q);
        memset(r.o, 0, sizeof(float) * (size_t)padded * (size_t)w->dn);
        memset(r.l, 0, sizeof(float) * (size_t)f.rows * LANES);
        for (int i = 0; i < f.rows; i++) r.m[i] = -FLT_MAX; /* not -inf: with no visible key, exp(m - m) would be NaN */
    }

    tiles_begin();
    const int64_t end = visible(w, i0 + f.rows - 1, 0, w->keys); /* blocks of keys behind the causal mask are skipped */
    for (int64_t k0 = hidden(w, i0, 0, w->keys) / BLOCK * BLOCK; k0 < end; k0 += BLOCK) {
        int n = (int)AN_MIN(BLOCK, w->keys - k0);
        pack_turned(w, w->k, s->k, f.b, kv, k0, n, BLOCK, mine.rows);
        transpose(mine.kt, mine.rows, w->dw, w->dw);
        pack_rows(w, w->v + at(w, s->v, f.b, kv, k0), s->v[2], n, BLOCK, w->dot ? mine.rows : mine.v);
        if (w->dot) pair_panel(w, mine.rows, BLOCK, mine.v);
        for (int x = 0; x < f.heads; x++) {
            forward_scratch r = rows_of_head(w, mine, x, padded);
            for (int row = 0; row < f.rows; row += BLOCK) {
                const bool last = row + BLOCK >= f.rows && x == f.heads - 1;
                r.next = last ? forward_ahead(w, task, k0 + BLOCK, end) : (ahead){.slots = 0};
                if (hidden(w, i0 + row, k0, n) == n) continue;
                forward_tile(w, &r, f.b, f.h + x, i0, row, AN_MIN(BLOCK, f.rows - row), k0, n);
            }
        }
    }
    tiles_end();
    for (int x = 0; x < f.heads; x++) {
        const forward_scratch r = rows_of_head(w, mine, x, padded);
        forward_store(w, &r, f.b, f.h + x, i0, f.rows);
    }
}

#if AN_TILES /* which multiply bf16 only: the rest is the business of the instruction set that they come with */
void AN_REST_NAME(attn_forward)(const an_attn_spec *s, void *const *args, const float *const *tables, void *scratch,
                                an_pool *p);
void AN_REST_NAME(attn_backward)(const an_attn_spec *s, void *const *args, const float *const *tables, void *scratch,
                                 an_pool *p);
size_t AN_REST_NAME(attn_scratch)(const an_attn_spec *s, bool backward, int threads);
#endif

void AN_ISA_NAME(attn_forward)(const an_attn_spec *s, void *const *args, const float *const *tables, void *scratch,
                               an_pool *p)
{
#if AN_TILES
    if (s->mul_dtype != AN_BF16) {
        AN_REST_NAME(attn_forward)(s, args, tables, scratch, p);
        return;
    }
#endif
    job w = job_of(s);
    const uint32_t *rng = args[3];
    const int32_t *n_keys = args[6];
    if (s->masked) w.mask = args[AN_ATTN_MASK];
    w.q = args[0], w.k = args[1], w.v = args[2], w.out = args[4], w.lse = args[5];
    if (tables) w.cosines = tables[0], w.sines = tables[1];
    w.drop = dropout_of(s->dropout, rng, s->stream);
    w.sample0 = rng ? rng[1] : 0;
    if (n_keys) {
        w.keys = *n_keys < 0 ? 0 : AN_MIN(*n_keys, s->S);
        if (s->causal) w.shift = (int64_t)w.keys - s->T;
    }
    forward_scratch unused;
    w.scratch = scratch;
    w.scratch_bytes = forward_scratch_of(&w, NULL, &unused);
    w.share = heads_together(&w, an_pool_working(p));
    const int64_t heads = (int64_t)s->B * (s->H / w.group) * an_ceil_div(w.group, w.share); /* or several that share */
    an_pool_run(p, heads * an_ceil_div(s->T, CHUNK), forward_task, &w);
}

/* ---- backward -------------------------------------------------------------------------------------------------- */

typedef struct backward_scratch {
    an_word *kt, *vt;    /* [dw, 64] */
    an_word *k;          /* [64, dw] rows of k (f32: also summed over keys) */
    an_word *ka;         /* pairs along the keys [32, dn] */
    an_word *q, *g;      /* [64, dw] rows of q and do; these four and delta of all queries where they are kept */
    an_word *qa, *ga;    /* pairs along the queries [32, dn] */
    float *dk, *dv;      /* [64, dn]; of grouped heads of all keys, for which they are summed head by head */
    float *dq;           /* [T, dn], or [64, dn] when split */
    float *p;            /* [64, 64] scores, then probabilities after dropout */
    float *ds;           /* [64, 64] gradients of the probabilities, then of the scores */
    an_word *pa, *dsa;   /* [32, 64] the same as pairs along the queries; for tile registers their transpose [64, 32] */
    an_word *dsw;        /* [64, 32] ds as pairs along the keys */
    float *delta;        /* [64] */
    an_word *mask;       /* [64] */
    float *line, *gline; /* [dn] each */
    ahead next;
} backward_scratch;

static size_t backward_scratch_of(const job *w, uint8_t *base, backward_scratch *r)
{
    size_t used = 0, dn = (size_t)w->dn, dw = (size_t)w->dw, half = w->dot ? BLOCK / 2 : 0;
    const size_t queries = w->s->T <= KEPT ? (size_t)an_round_up(w->s->T, BLOCK) : BLOCK;
    r->kt = take(base, &used, BLOCK * dw);
    r->vt = take(base, &used, BLOCK * dw);
    r->k = take(base, &used, BLOCK * dw);
    r->q = take(base, &used, queries * dw);
    r->g = take(base, &used, queries * dw);
    r->ka = take(base, &used, half * dn);
    r->qa = take(base, &used, w->dot ? queries / 2 * dn : 0);
    r->ga = take(base, &used, w->dot ? queries / 2 * dn : 0);
    const size_t keys = w->group > 1 ? (size_t)an_round_up(w->s->S, BLOCK) : BLOCK;
    r->dk = take(base, &used, keys * dn);
    r->dv = take(base, &used, keys * dn);
    r->p = take(base, &used, BLOCK * BLOCK);
    r->ds = take(base, &used, BLOCK * BLOCK);
    r->pa = take(base, &used, half * BLOCK);
    r->dsa = take(base, &used, half * BLOCK);
    r->dsw = take(base, &used, half * BLOCK);
    r->delta = take(base, &used, queries);
    r->mask = take(base, &used, BLOCK);
    r->line = take(base, &used, dn);
    r->gline = take(base, &used, dn);
    r->dq = take(base, &used, (size_t)an_round_up(w->s->T, ROWS_UP) * dn);
    return used;
}

/* Those of head h of q. */
static void load_keys(const job *w, const backward_scratch *r, int b, int h, int64_t k0, int n)
{
    const an_attn_spec *s = w->s;
    const int kv = h / w->group;
    pack_rows(w, w->v + at(w, s->v, b, kv, k0), s->v[2], n, BLOCK, r->k);
    transpose(r->vt, r->k, w->dw, w->dw);
    pack_turned(w, w->k, s->k, b, kv, k0, n, BLOCK, r->k);
    transpose(r->kt, r->k, w->dw, w->dw);
    if (w->dot) pair_panel(w, r->k, BLOCK, r->ka);
}

/* Queries are summed over in pairs, on tile registers in chunks of 16 pairs. */
static int queries_padded(int rows)
{
    return (int)an_round_up(rows, 2 * WORDS_UP);
}

static void load_queries(const job *w, const backward_scratch *r, int b, int h, int64_t i0, int rows)
{
    const an_attn_spec *s = w->s;
    const int padded = queries_padded(rows);
    pack_turned(w, w->q, s->q, b, h, i0, rows, padded, r->q);
    pack_rows(w, w->g + at(w, s->do_, b, h, i0), s->do_[2], rows, padded, r->g);
    if (w->dot) {
        pair_panel(w, r->q, padded, r->qa);
        pair_panel(w, r->g, padded, r->ga);
    }
    for (int i = 0; i < rows; i++) {
        const uint8_t *g = w->g + at(w, s->do_, b, h, i0 + i), *o = w->o + at(w, s->o, b, h, i0 + i);
        if (s->dtype == AN_F32 && s->D == w->dn) {
            r->delta[i] = dot_rows((const float *)(const void *)g, (const float *)(const void *)o, w->dn);
            continue;
        }
        load_row(r->gline, g, s->dtype, s->D, w->dn);
        load_row(r->line, o, s->dtype, s->D, w->dn);
        r->delta[i] = dot_rows(r->gline, r->line, w->dn);
    }
}

/* The panels from query i0 on, a multiple of 64, of a head whose queries are all packed. */
static backward_scratch queries_from(const job *w, backward_scratch r, int64_t i0)
{
    r.q += i0 * w->dw, r.g += i0 * w->dw, r.delta += i0;
    if (w->dot) r.qa += i0 / 2 * w->dn, r.ga += i0 / 2 * w->dn;
    return r;
}

/* s[i][j] = exp(s[i][j] * scale - lse[i]) for neighbouring rows i. */
AN_INLINE void exp_scores(const int rows, float *s, int n, float scale, const float *lse)
{
    for (int j = 0; j < n; j += LANES) {
        lanes x[EXP_ROWS];
        AN_UNROLL for (int i = 0; i < rows; i++) x[i] =
            lanes_add(lanes_scale(lanes_load(s + i * BLOCK + j), scale), lanes_set(-lse[i]));
        exp_lanes(rows, false, x);
        AN_UNROLL for (int i = 0; i < rows; i++) lanes_store(s + i * BLOCK + j, x[i]);
    }
}

/* One row of a tile, in place. p [64]: probabilities to those after dropout, without the factor 1/(1-rate). ds [64]: the
 * GEMMs do v^T to gradients of the scores, without the factor `scale`. */
static inline void gradient_row(const job *w, float *restrict p, float *restrict ds, int n, int hide, int seen,
                                float delta, const an_word *restrict mask)
{
    const float keep = w->drop.scale;
    int j = 0;
    if (!w->drop.on)
        for (; j + LANES <= seen; j += LANES)
            for (int x = 0; x < LANES; x++) ds[j + x] = p[j + x] * (ds[j + x] - delta);
    for (; j < n; j += AN_VL) {
        const vu visible = (vu)((vi)vu_iota() < vi_set(seen - j));
        vu kept = visible;
        if (w->drop.on) kept &= vu_load(mask + j);
        const vf prob = vf_load(p + j), grad = (vf)((vu)(vf_load(ds + j) * keep) & kept);
        vf_store(p + j, (vf)((vu)prob & kept));
        vf_store(ds + j, (vf)((vu)(prob * (grad - delta)) & visible));
    }
    for (int x = 0; x < hide; x++) p[x] = ds[x] = 0.0f;
    for (int x = n; x < BLOCK; x++) p[x] = ds[x] = 0.0f;
    if (w->round) {
        round_row(p, n);
        round_row(ds, n);
    }
}

#if AN_IN_REGISTERS
/* p and ds of rows [g, g+m) of a tile without dropout. */
static void gradient_groups(const job *w, const backward_scratch *r, int64_t i0, int g, int m, int width, int64_t k0,
                            int n, const float *lse)
{
    for (int i = g; i < g + m;) {
        const int rows = g + m - i >= EXP_ROWS ? EXP_ROWS : 1;
        const queries some = {r->q + (int64_t)i * w->dw, w->dw, depth(w), i0 + i + w->shift + 1 - k0, n, w->s->scale};
        float *p = r->p + i * BLOCK, *ds = r->ds + i * BLOCK;
        gradient_group(w->bf16, rows, width, &some, r->g + (int64_t)i * w->dw, r->kt, r->vt, lse + i, r->delta + i, p,
                       ds);
        i += rows;
        for (int x = 0; x < rows; x++, p += BLOCK, ds += BLOCK) {
            for (int j = width; j < BLOCK; j++) p[j] = ds[j] = 0.0f;
            if (!w->round) continue;
            round_row(p, width);
            round_row(ds, width);
        }
    }
}
#endif

/* Probabilities of rows [g, g+m) of a tile, from the scores in r->p; lse: maxima and logarithms of sums, T apart. */
static void masked_probabilities(const job *w, const backward_scratch *r, int b, int h, int64_t i0, int g, int m,
                                 int width, int64_t k0, int n, const float *lse)
{
    const float *log_sum = lse + w->s->T;
    for (int i = g; i < g + m; i++)
        masked_row(r->p + i * BLOCK, width, 0, visible(w, i0 + i, k0, n), w->s->scale, mask_at(w, b, h, i0 + i, k0),
                   w->s->mask[3], 0);
    int i = g;
    for (; i + EXP_ROWS <= g + m; i += EXP_ROWS) exp_masked(EXP_ROWS, r->p + i * BLOCK, width, lse + i, log_sum + i);
    for (; i < g + m; i++) exp_masked(1, r->p + i * BLOCK, width, lse + i, log_sum + i);
}

/* Computes r->p and r->ds for the tile of the packed queries and keys. */
static void gradient_tile(const job *w, const backward_scratch *r, int b, int h, int64_t i0, int rows, int64_t k0,
                          int n)
{
    const int step = visible(w, i0, k0, n) == n ? rows : GROUP, kd = depth(w);
    const float *lse = w->lse + ((int64_t)b * w->s->H + h) * w->s->T * (w->mask ? 2 : 1) + i0;
    for (int g = 0; g < rows; g += step) {
        int m = AN_MIN(step, rows - g);
        int width = (int)an_round_up(visible(w, i0 + g + m - 1, k0, n), LANES);
#if AN_IN_REGISTERS
        if (!w->drop.on && !w->mask && !hidden(w, i0 + g + m - 1, k0, n)) {
            gradient_groups(w, r, i0, g, m, width, k0, n, lse);
            for (int i = g; i < g + m; i++) fetch_ahead(w, &r->next, i, rows);
            continue;
        }
#endif
        gemm_rows(w->bf16, m, width, kd, r->q + (int64_t)g * w->dw, w->dw, r->kt, BLOCK, r->p + g * BLOCK, BLOCK,
                  false);
        gemm_rows(w->bf16, m, width, kd, r->g + (int64_t)g * w->dw, w->dw, r->vt, BLOCK, r->ds + g * BLOCK, BLOCK,
                  false);
        int i = g;
        if (w->mask) masked_probabilities(w, r, b, h, i0, g, m, width, k0, n, lse);
        for (; i + EXP_ROWS <= g + m && !w->mask; i += EXP_ROWS)
            exp_scores(EXP_ROWS, r->p + i * BLOCK, width, w->s->scale, lse + i);
        for (; i < g + m && !w->mask; i++) exp_scores(1, r->p + i * BLOCK, width, w->s->scale, lse + i);
        for (i = g; i < g + m; i++) {
            fetch_ahead(w, &r->next, i, rows);
            if (w->drop.on) keep_mask(&w->drop, dropout_index(w, b, h, i0 + i, k0), width, r->mask);
            gradient_row(w, r->p + i * BLOCK, r->ds + i * BLOCK, width, hidden(w, i0 + i, k0, n),
                         visible(w, i0 + i, k0, n), r->delta[i], r->mask);
        }
    }
    if (!w->dot) return;
    const int padded = queries_padded(rows);
    memset(r->p + rows * BLOCK, 0, sizeof(float) * (size_t)(padded - rows) * BLOCK);
    memset(r->ds + rows * BLOCK, 0, sizeof(float) * (size_t)(padded - rows) * BLOCK);
#if AN_TILES
    pair_columns(r->pa, r->p, padded / 2);
    pair_columns(r->dsa, r->ds, padded / 2);
#else
    for (int i = 0; i < rows; i += 2) {
        pair_rows(r->pa + i / 2 * BLOCK, r->p + i * BLOCK, r->p + (i + 1) * BLOCK, BLOCK);
        pair_rows(r->dsa + i / 2 * BLOCK, r->ds + i * BLOCK, r->ds + (i + 1) * BLOCK, BLOCK);
    }
#endif
    for (int i = 0; i < (AN_TILES ? padded : rows); i++) narrow_row(r->dsw + i * BLOCK / 2, r->ds + i * BLOCK, BLOCK);
}

/* dv += p^T do and dk += ds^T q, for GROUP keys at a time, from the first group of queries to which one of them is visible. */
static void add_keys(const job *w, const backward_scratch *r, int64_t i0, int rows, int64_t k0, int n)
{
    const int step = visible(w, i0, k0, n) == n ? n : GROUP, halve = w->dot ? 2 : 1;
    const an_word *p = w->dot ? r->pa : (const an_word *)r->p, *ds = w->dot ? r->dsa : (const an_word *)r->ds;
    const an_word *q = w->dot ? r->qa : r->q, *g = w->dot ? r->ga : r->g;
    for (int j = 0; j < n; j += step) {
        int64_t first = k0 + j - w->shift - i0; /* first query of the tile to which key j is visible */
        const int whole = AN_TILES ? 2 * WORDS_UP : GROUP;
        int from = first <= 0 ? 0 : (int)AN_MIN(first / whole * whole, rows);
        int64_t count = (rows - from + halve - 1) / halve, skip = from / halve;
        int m = AN_MIN(step, n - j);
#if AN_TILES
        const int64_t word = j * (BLOCK / 2) + skip;
        gemm_rows(true, m, w->dn, count, p + word, BLOCK / 2, g + skip * w->dn, w->dn, r->dv + (int64_t)j * w->dn,
                  w->dn, true);
        gemm_rows(true, m, w->dn, count, ds + word, BLOCK / 2, q + skip * w->dn, w->dn, r->dk + (int64_t)j * w->dn,
                  w->dn, true);
#else
        gemm_columns(w->bf16, m, w->dn, count, p + skip * BLOCK + j, g + skip * w->dn, w->dn,
                     r->dv + (int64_t)j * w->dn, w->dn);
        gemm_columns(w->bf16, m, w->dn, count, ds + skip * BLOCK + j, q + skip * w->dn, w->dn,
                     r->dk + (int64_t)j * w->dn, w->dn);
#endif
    }
}

/* dq += ds k. */
static void add_queries(const job *w, const backward_scratch *r, float *dq, int64_t i0, int rows, int64_t k0, int n)
{
    const int step = visible(w, i0, k0, n) == n ? rows : GROUP;
    const an_word *ds = w->dot ? r->dsw : (const an_word *)r->ds, *k = w->dot ? r->ka : r->k;
    const int ld = w->dot ? BLOCK / 2 : BLOCK;
    for (int g = 0; g < rows; g += step) {
        int m = AN_MIN(step, rows - g), seen = visible(w, i0 + g + m - 1, k0, n);
        gemm_rows(w->bf16, m, w->dn, w->dot ? (seen + 1) / 2 : seen, ds + g * ld, ld, k, w->dn, dq + (int64_t)g * w->dn,
                  w->dn, true);
    }
}

static void store_rows(const job *w, uint8_t *base, const int64_t stride[3], int b, int h, int64_t t0, int n,
                       const float *rows, float factor)
{
    for (int i = 0; i < n; i++)
        store_row(base + at(w, stride, b, h, t0 + i), w->s->dtype, rows + (int64_t)i * w->dn, factor, w->s->D);
}

/* The same of gradients of q or k, turned back. */
static void store_turned(const job *w, uint8_t *base, const int64_t stride[3], int b, int h, int64_t t0, int n,
                         const float *rows)
{
    const int half = w->s->D / 2;
    if (!w->cosines) {
        store_rows(w, base, stride, b, h, t0, n, rows, w->s->scale);
        return;
    }
    for (int i = 0; i < n; i++) {
        const float *sines = w->sines + (t0 + i) * 2 * half;
        turn_row((float *)(void *)(base + at(w, stride, b, h, t0 + i)), rows + (int64_t)i * w->dn, w->s->scale,
                 w->cosines + (t0 + i) * half, sines + half, sines, half);
    }
}

/* What is packed after the tile of head h of q that ends at query i0 and key k0: the next queries, the next keys or the next head. */
static ahead backward_ahead(const job *w, int b, int h, int64_t i0, int64_t k0)
{
    const an_attn_spec *s = w->s;
    ahead a = {.slots = 0};
    const bool keys = i0 >= s->T, head = keys && (k0 >= s->S || (w->split && (h + 1) % w->group));
    if (head) {
        if (++h == s->H) h = 0, b++;
        if (b == s->B) return a;
    }
    if (head) k0 = w->split && h % w->group ? k0 - BLOCK : 0; /* another head of the group reads the same block */
    if (keys) i0 = 0;
    if (w->kept ? head : !keys || head) {
        const int64_t n = w->kept ? s->T : AN_MIN(BLOCK, s->T - i0);
        ahead_add(w, &a, w->q, s->q, b, h, i0, n);
        ahead_add(w, &a, w->g, s->do_, b, h, i0, n);
        ahead_add(w, &a, w->o, s->o, b, h, i0, n);
    }
    if (keys && !(w->split && h % w->group)) {
        const int64_t n = AN_MIN(BLOCK, s->S - k0);
        ahead_add(w, &a, w->k, s->k, b, h / w->group, k0, n);
        ahead_add(w, &a, w->v, s->v, b, h / w->group, k0, n);
    }
    return a;
}

/* Adds to r->dk and r->dv of a block of n keys, which is loaded, what the queries of head h contribute. With dq [T, dn] not NULL, also adds
 * what this block contributes to dq. */
static void add_head(const job *w, backward_scratch *r, int b, int h, int64_t k0, int n, float *dq)
{
    const an_attn_spec *s = w->s;
    const int64_t first = k0 - w->shift; /* the first query that sees a key of the block: tiles before it are skipped */
    const int64_t after = s->window ? AN_MIN(s->T, first + n + s->window - 1) : s->T; /* and those after it */
    for (int64_t i0 = first <= 0 ? 0 : first / BLOCK * BLOCK; i0 < after; i0 += BLOCK) {
        int rows = (int)AN_MIN(BLOCK, s->T - i0);
        r->next = backward_ahead(w, b, h, i0 + BLOCK, k0 + BLOCK);
        const backward_scratch tile = w->kept ? queries_from(w, *r, i0) : *r;
        if (!w->kept) load_queries(w, &tile, b, h, i0, rows);
        gradient_tile(w, &tile, b, h, i0, rows, k0, n);
        add_keys(w, &tile, i0, rows, k0, n);
        if (dq) add_queries(w, &tile, dq + i0 * w->dn, i0, rows, k0, n);
    }
}

/* dk and dv of one block of keys, from heads [h, h+heads) of their group: begun with its first head, stored after its last. */
static void backward_keys(const job *w, backward_scratch r, int b, int h, int heads, int64_t k0, float *dq)
{
    const an_attn_spec *s = w->s;
    const int n = (int)AN_MIN(BLOCK, s->S - k0), kv = h / w->group;
    if (w->group > 1) r.dk += k0 * w->dn, r.dv += k0 * w->dn;
    if (h % w->group == 0) {
        memset(r.dk, 0, sizeof(float) * BLOCK * (size_t)w->dn);
        memset(r.dv, 0, sizeof(float) * BLOCK * (size_t)w->dn);
    }
    load_keys(w, &r, b, h, k0, n);
    for (int x = 0; x < heads; x++) add_head(w, &r, b, h + x, k0, n, dq);
    if ((h + heads) % w->group) return;
    store_turned(w, w->dk, s->dk, b, kv, k0, n, r.dk);
    store_rows(w, w->dv, s->dv, b, kv, k0, n, r.dv, w->drop.scale);
}

static void backward_queries(const job *w, const backward_scratch *r, int b, int h, int64_t i0)
{
    const an_attn_spec *s = w->s;
    const int rows = (int)AN_MIN(BLOCK, s->T - i0);
    memset(r->dq, 0, sizeof(float) * (size_t)an_round_up(rows, ROWS_UP) * (size_t)w->dn);
    load_queries(w, r, b, h, i0, rows);
    const int64_t end = visible(w, i0 + rows - 1, 0, s->S); /* as in the forward pass */
    for (int64_t k0 = hidden(w, i0, 0, s->S) / BLOCK * BLOCK; k0 < end; k0 += BLOCK) {
        int n = (int)AN_MIN(BLOCK, s->S - k0);
        load_keys(w, r, b, h, k0, n);
        gradient_tile(w, r, b, h, i0, rows, k0, n);
        add_queries(w, r, r->dq, i0, rows, k0, n);
    }
    store_turned(w, w->dq, s->dq, b, h, i0, rows, r->dq);
}

/* All of a head of q, whose group is walked in order. */
static void backward_head(const job *w, const backward_scratch *r, int b, int h)
{
    const an_attn_spec *s = w->s;
    memset(r->dq, 0, sizeof(float) * (size_t)an_round_up(s->T, ROWS_UP) * (size_t)w->dn);
    for (int64_t i0 = 0; i0 < s->T && w->kept; i0 += BLOCK) {
        const backward_scratch tile = queries_from(w, *r, i0);
        load_queries(w, &tile, b, h, i0, (int)AN_MIN(BLOCK, s->T - i0));
    }
    for (int64_t k0 = 0; k0 < s->S; k0 += BLOCK) backward_keys(w, *r, b, h, 1, k0, r->dq);
    store_turned(w, w->dq, s->dq, b, h, 0, s->T, r->dq);
}

static void backward_part(void *arg, int64_t task, int thread)
{
    const job *w = arg;
    const an_attn_spec *s = w->s;
    backward_scratch r;
    r.next.slots = 0;
    backward_scratch_of(w, w->scratch + (size_t)thread * w->scratch_bytes, &r);
    const int64_t key_blocks = an_ceil_div(s->S, BLOCK), query_blocks = an_ceil_div(s->T, BLOCK);
    const int64_t blocks = w->split ? key_blocks + w->group * query_blocks : 1, unit = task / blocks;
    const int b = (int)(unit / (s->H / w->group)), h = (int)(unit % (s->H / w->group)) * w->group;
    int64_t block = task % blocks;
    if (w->split && block < key_blocks) {
        backward_keys(w, r, b, h, w->group, block * BLOCK, NULL);
    } else if (w->split) {
        block -= key_blocks;
        backward_queries(w, &r, b, h + (int)(block / query_blocks), block % query_blocks * BLOCK);
    } else {
        for (int x = 0; x < w->group; x++) backward_head(w, &r, b, h + x);
    }
}

static void backward_task(void *arg, int64_t task, int thread)
{
    tiles_begin();
    backward_part(arg, task, thread);
    tiles_end();
}

void AN_ISA_NAME(attn_backward)(const an_attn_spec *s, void *const *args, const float *const *tables, void *scratch,
                                an_pool *p)
{
#if AN_TILES
    if (s->mul_dtype != AN_BF16) {
        AN_REST_NAME(attn_backward)(s, args, tables, scratch, p);
        return;
    }
#endif
    job w = job_of(s);
    const uint32_t *rng = args[6];
    w.q = args[0], w.k = args[1], w.v = args[2], w.o = args[3], w.lse = args[4], w.g = args[5];
    w.dq = args[7], w.dk = args[8], w.dv = args[9];
    if (s->masked) w.mask = args[AN_ATTN_GRAD_MASK];
    if (tables) w.cosines = tables[0], w.sines = tables[1];
    w.drop = dropout_of(s->dropout, rng, s->stream);
    w.sample0 = rng ? rng[1] : 0;
    backward_scratch unused;
    w.scratch = scratch;
    w.scratch_bytes = backward_scratch_of(&w, NULL, &unused);
    /* One task per head needs 5 GEMMs a tile; separate tasks for keys and queries need 7, but give every thread work. The
     * sums are accumulated in the same order either way, so the choice may depend on the number of threads without
     * changing a bit. */
    const int64_t heads = (int64_t)s->B * (s->H / w.group), threads = an_pool_working(p); /* heads of k and v */
    const int64_t blocks = an_ceil_div(s->S, BLOCK) + w.group * an_ceil_div(s->T, BLOCK);
    w.split = 5 * an_ceil_div(heads, threads) * threads > 7 * heads && blocks > 2;
    w.kept = !w.split && s->T <= KEPT;
    an_pool_run(p, w.split ? heads * blocks : heads, backward_task, &w);
}

size_t AN_ISA_NAME(attn_scratch)(const an_attn_spec *s, bool backward, int threads)
{
#if AN_TILES
    if (s->mul_dtype != AN_BF16) return AN_REST_NAME(attn_scratch)(s, backward, threads);
#endif
    job w = job_of(s);
    forward_scratch f;
    backward_scratch r;
    return (size_t)threads * (backward ? backward_scratch_of(&w, NULL, &r) : forward_scratch_of(&w, NULL, &f));
}
