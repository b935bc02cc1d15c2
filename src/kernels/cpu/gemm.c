/* gemm.c: C[b,m,n] = sum over k of A[b,m,k] B[b,k,n] on the CPU: the blocking, which task packs and multiplies which
 * blocks, and where sums are kept until they are complete.
 *
 *     m      tiles of at most TILE_ROWS rows; tiles are grouped into row blocks
 *     n      panels of PANEL columns; panels are grouped into column blocks
 *     k      splits, which are summed separately and added at the end; a split has blocks of at most BLOCK_WORDS words
 *     chain  one accumulation: a split of a batch member (chain = batch member * splits + split)
 *
 *                    panel: PANEL columns of B, packed [words][PANEL]; stays in the L1 or L2 cache
 *                  +----+
 *     row block    |    |      task = row block x column block of one chain, over all blocks of k
 *     +--------+   +----+
 *     | tiles  |   | C  |  <-  gemm_micro.h, gemm_tiles.h: TILE_ROWS x PANEL sums in registers
 *     +--------+   +----+
 *     packed, stays in the L2 cache
 *
 * Owns:       the layout of scratch, the task grid, passing finished blocks to C or to the epilogue.
 * Does not:   choose the blocking (gemm_plan.h); know registers (gemm_micro.h, gemm_tiles.h) or dtypes (gemm_pack.h); allocate.
 *             The entry is in conv.c, which keeps f32 convolutions of few channels and passes all other GEMMs and convolutions on to here.
 * Invariants: an f32 element is one accumulation of fused multiply-adds in ascending k from +0. Where it spans several
 *             blocks of k, each block continues from the stored partial sum. So the bits do not depend on blocks, threads
 *             or the instruction set. Those of bf16 neither: blocks of k begin at multiples of WORDS_UP, and the odd k of a pair is added
 *             first on all sets but tile registers.
 *             The epilogue gets every element exactly once, in tiles of at most STRIP * PANEL columns of one batch member.
 *
 * Packing. All threads together pack the panels of B for as many chains, panels or blocks of k as fit in SHARED_BYTES (a
 * group), and then all threads use them. An A that is contiguous along m (that of a weight gradient, dW) is packed the
 * same way, unless it is read in place. With AVX-512 the whole panels of an f32 B that is contiguous along n are read in place as well, where
 * that is faster, and then there is nothing to pack before the tasks. With several groups, a task that has multiplied its block of one group packs a
 * part of the next group into a second buffer; while it multiplies, it prefetches the memory that it will pack. When C has
 * few rows, each panel is used by one task only, and that task packs it (on tile registers RIGHT_PANELS at a time, as
 * whole lines of memory are read then, and tasks are large, two a thread: A is read by each of them); with four rows or fewer (eight with AVX2, sixteen on tile registers)
 * it is not packed at all (gemm_rows.h, gemm_tiles.h). The window operand of a convolution
 * (gemm_im2col.h) is packed like any other operand, but never read in place.
 *
 * Partial sums are kept in C where it can hold them (f32, no epilogue); else in the thread's own block
 * of sums; else, when a chain is not finished by one task (several groups along k, or splits), in `partial`, which is as
 * large as the result. */
#include "kernels/cpu/isa.h"

#include "kernels/cpu/gemm_im2col.h"
#include "kernels/cpu/gemm_plan.h"

#include "kernels/cpu_kernels.h"

#include <string.h>

#if AN_TILES /* which multiply bf16 only: the rest is the business of the instruction set that they come with */
size_t AN_REST_NAME(gemm_scratch)(const an_gemm_spec *s, int threads);
bool AN_REST_NAME(gemm_repacks)(const an_gemm_spec *s);
void AN_REST_NAME(gemm)(const an_gemm_spec *s, void *const *args, void *scratch, const an_epilogue *epi, an_pool *pool);
#endif

size_t AN_ISA_NAME(gemm_scratch)(const an_gemm_spec *s, int threads)
{
#if AN_TILES
    if (s->mul_dtype != AN_BF16) return AN_REST_NAME(gemm_scratch)(s, threads);
#endif
    const plan p = plan_make(s, AN_MAX(threads, 1));
    return (size_t)(p.partial_bytes + shared_bytes(&p) + AN_MAX(threads, 1) * p.thread_bytes);
}

bool AN_ISA_NAME(gemm_repacks)(const an_gemm_spec *s)
{
#if AN_TILES
    if (s->mul_dtype != AN_BF16) return AN_REST_NAME(gemm_repacks)(s);
#endif
    an_gemm_spec along_n = *s;
    along_n.b_n = 1;
    along_n.b_k = s->n;
    const plan p = plan_make(s, 1), q = plan_make(&along_n, 1);
    return !p.direct && !p.b_in_place && q.b_in_place;
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

/* Two ranges of memory to prefetch. */
typedef struct run_ahead {
    uintptr_t at[2];
    int64_t bytes[2];
} run_ahead;

typedef struct call {
    plan p;
    const uint8_t *a, *b;
    uint8_t *c;
    uint8_t *scratch;            /* partial, shared B, shared A, then each thread's: left, right, sums, edge tile */
    const an_epilogue *epilogue; /* or NULL */
    sums sums;
    /* the group being multiplied */
    int64_t chain0, chain1, panel0, panel1, block0, block1;
    uint8_t *shared;                    /* its packed words */
    int64_t slices, b_strips, a_strips; /* pack tasks per block of k: slices * (b_strips + a_strips) */
    int64_t tasks;                      /* multiply tasks */
    const struct call *next;            /* the group that is packed at the same time, or NULL */
} call;

static int dtype_bytes(uint8_t dtype)
{
    return dtype == AN_F32 ? 4 : 2;
}

static int64_t batch_offset(const an_gemm_spec *s, const int64_t strides[3], int64_t member)
{
    const int64_t i2 = member % s->nb[2], i1 = member / s->nb[2] % s->nb[1], i0 = member / s->nb[2] / s->nb[1];
    return i0 * strides[0] + i1 * strides[1] + i2 * strides[2];
}

/* The extent of k of a chain; *begin: where it begins. */
static int64_t chain_k(const plan *p, int64_t chain, int64_t *begin)
{
    *begin = AN_MIN(chain % p->splits * p->split_k, p->s.k);
    return AN_MIN(p->split_k, p->s.k - *begin);
}

/* The operand `o` of the batch member whose first element is at `at`. */
static operand operand_of(const an_gemm_spec *s, an_window_of which, operand o, int64_t at)
{
    const bool window = (int)which == s->window.of;
    if (window) o.window = &s->window;
    o.p += (at + (window ? 0 : o.first_k * o.along_k)) * dtype_bytes(o.dtype);
    return o;
}

static operand left_operand(const call *g, int64_t chain)
{
    const an_gemm_spec *s = &g->p.s;
    int64_t begin;
    const int64_t k = chain_k(&g->p, chain, &begin);
    const int64_t at = batch_offset(s, s->a_b, chain / g->p.splits);
    return operand_of(s, AN_WINDOW_A, (operand){g->a, s->m, k, s->a_m, s->a_k, s->a_dtype, NULL, begin}, at);
}

static operand right_operand(const call *g, int64_t chain)
{
    const an_gemm_spec *s = &g->p.s;
    int64_t begin;
    const int64_t k = chain_k(&g->p, chain, &begin);
    const int64_t at = batch_offset(s, s->b_b, chain / g->p.splits);
    return operand_of(s, AN_WINDOW_B, (operand){g->b, s->n, k, s->b_n, s->b_k, s->b_dtype, NULL, begin}, at);
}

/* The words [*w0, *w1) of block j of a chain with k elements; none when the chain is shorter than that. */
static void block_words(const plan *p, int64_t k, int64_t j, int64_t *w0, int64_t *w1)
{
    const int64_t words = p->kind == WORD_F32 ? k : p->kind == WORD_PAIR ? (k + 1) / 2 : an_round_up(k, 2);
    *w0 = AN_MIN(j * p->block, words);
    *w1 = AN_MIN(*w0 + p->block, words);
}

static int64_t panel_width(const plan *p, int64_t panel)
{
    return p->s.n - panel * PANEL <= NARROW ? NARROW : PANEL;
}

static an_word *shared_panel(const call *g, int64_t chain, int64_t j, int64_t panel)
{
    const int64_t blocks = g->block1 - g->block0, panels = g->panel1 - g->panel0;
    const int64_t i = ((chain - g->chain0) * blocks + j - g->block0) * panels + panel - g->panel0;
    return (an_word *)g->shared + i * g->p.block * PANEL;
}

/* Tile registers multiply whole chunks of k: clears the words of `rows` rows behind the last word of an operand. */
static void clear_behind(const operand *o, int64_t w1, an_word *row_end, int64_t rows, int64_t stride, int64_t width)
{
    if (!AN_TILES || w1 < (o->k + 1) / 2) return;
    for (int64_t i = 0; i < rows; i++) memset(row_end + i * stride, 0, (size_t)width * sizeof *row_end);
}

static void pack_panel(const plan *p, const operand *b, int64_t panel, int64_t w0, int64_t w1, an_word *out)
{
    const part q = {panel * PANEL, AN_MIN((panel + 1) * PANEL, p->s.n), w0, w1};
    const int64_t width = panel_width(p, panel);
    const pack_inside_fn inside = q.x1 - q.x0 == PANEL ? pack_inside_body(b, true, p->kind) : NULL;
    if (inside)
        inside(b, q.x0, w0, w1, out, width, false);
    else if (b->window)
        pack_window(b, q, out, width, true, p->kind);
    else
        pack(b, q, out, width, b->along_k == 1 ? PACK_TRANSPOSED : PACK_ALONG_X, p->kind);
    clear_behind(b, w1, out + (w1 - w0) * width, an_round_up(w1, WORDS_UP) - w1, width, width);
}

static an_word *shared_tile(const call *g, int64_t chain, int64_t j, int64_t tile)
{
    const int64_t i = ((chain - g->chain0) * (g->block1 - g->block0) + j - g->block0) * g->p.tiles + tile;
    return (an_word *)(g->shared + g->p.shared_b_bytes) + i * packed_tile(&g->p);
}

/* Packs words [w0, w1) of tiles [t0, t1) of A, in columns (for tile registers in rows). The block of k begins at word
 * `first`; the packed tile t0 is at `out`. */
static void pack_tiles(const plan *p, const operand *a, int64_t t0, int64_t t1, int64_t first, int64_t w0, int64_t w1,
                       an_word *out)
{
    const pack_inside_fn inside = pack_inside_body(a, false, p->kind);
    const int64_t chunk = inside ? CHUNK_INSIDE : CHUNK, size = packed_tile(p);
    const tile_walk first_tile = walk_from(p, t0);
    for (int64_t w = w0; w < w1; w += chunk) {
        tile_walk at = first_tile;
        an_word *tile = out;
        for (int64_t t = t0; t < t1; t++, tile += size) {
            const int64_t x0 = at.row;
            const part q = {x0, next_row(p, &at), w, AN_MIN(w + chunk, w1)};
            const int64_t rows = q.x1 - q.x0;
            if (inside && (p->kind == WORD_F32 || q.x0 + AN_VL <= a->x)) {
                inside(a, q.x0, w, q.w1, tile + (w - first) * rows, rows, q.w1 < w1);
            } else if (AN_TILES) {
                pack(a, q, tile + w - first, row_stride(p), PACK_ROWS_ACROSS, p->kind);
                clear_behind(a, q.w1, tile + q.w1 - first, rows, row_stride(p), an_round_up(q.w1, WORDS_UP) - q.w1);
            } else {
                pack(a, q, tile + (w - first) * rows, rows, PACK_ALONG_X, p->kind);
            }
        }
    }
}

/* Words [w0, w1) of panels [panel0, panel1), one behind the other. */
static void pack_right(const plan *p, const operand *b, int64_t panel0, int64_t panel1, int64_t w0, int64_t w1,
                       an_word *out)
{
    const int64_t apart = p->block * PANEL;
#if AN_TILES
    const int64_t whole = AN_MAX(AN_MIN(w1, b->k / 2), w0);
    if (b->along_x == 1 && !b->window && panel1 * PANEL <= b->x) {
        pack_panels_inside(b, panel0 * PANEL, panel1 - panel0, w0, whole, out, apart);
        for (int64_t i = panel0; i < panel1 && w1 == (b->k + 1) / 2; i++)
            pack_panel(p, b, i, whole, w1, out + (i - panel0) * apart + (whole - w0) * PANEL);
        return;
    }
#endif
    for (int64_t i = panel0; i < panel1; i++) pack_panel(p, b, i, w0, w1, out + (i - panel0) * apart);
}

static void pack_a_task(const call *g, int64_t chain, int64_t j, int64_t slice)
{
    const plan *p = &g->p;
    const operand a = left_operand(g, chain);
    int64_t first, end;
    block_words(p, a.k, j, &first, &end);
    const int64_t w0 = first + slice * SLICE;
    pack_tiles(p, &a, 0, p->tiles, first, w0, AN_MIN(w0 + SLICE, end), shared_tile(g, chain, j, 0));
}

static void pack_b_task(const call *g, int64_t chain, int64_t j, int64_t strip, int64_t slice)
{
    const plan *p = &g->p;
    const int64_t panels = g->panel1 - g->panel0, last = g->panel0 + part_begin(panels, g->b_strips, strip + 1);
    const operand b = right_operand(g, chain);
    int64_t first, end;
    block_words(p, b.k, j, &first, &end);
    const bool whole = g->slices == 1;
    const int64_t w0 = first + slice * SLICE, w1 = whole ? end : AN_MIN(w0 + SLICE, end);
    const bool inside = pack_inside_body(&b, true, p->kind) != NULL;
    const int64_t chunk = whole ? AN_MAX(w1 - w0, 1) : inside ? CHUNK_INSIDE : CHUNK;
    for (int64_t w = w0; w < w1; w += chunk)
        for (int64_t i = g->panel0 + part_begin(panels, g->b_strips, strip); i < last; i++)
            pack_panel(p, &b, i, w, AN_MIN(w + chunk, w1),
                       shared_panel(g, chain, j, i) + (w - first) * panel_width(p, i));
}

/* Task: packs a strip of panels of B, or the tiles of A, of one block of k. With several slices, only a slice of its
 * words. */
static void pack_task(void *arg, int64_t task, int thread)
{
    (void)thread;
    const call *g = arg;
    const int64_t slice = task % g->slices, strips = g->b_strips + g->a_strips, strip = task / g->slices % strips;
    const int64_t rest = task / g->slices / strips, blocks = g->block1 - g->block0;
    const int64_t chain = g->chain0 + rest / blocks, j = g->block0 + rest % blocks;
    if (strip < g->b_strips)
        pack_b_task(g, chain, j, strip, slice);
    else
        pack_a_task(g, chain, j, slice);
}

static void choose_strips(call *g)
{
    const plan *p = &g->p;
    const bool transposed = p->s.b_k == 1 && !p->share_a;
    g->slices = transposed ? 1 : an_ceil_div(p->block, SLICE);
    g->b_strips = transposed ? an_ceil_div(g->panel1 - g->panel0, 2) : 1;
    g->a_strips = p->share_a;
}

static int64_t pack_tasks(const call *g)
{
    return (g->chain1 - g->chain0) * (g->block1 - g->block0) * (g->b_strips + g->a_strips) * g->slices;
}

/* ---- multiplying ------------------------------------------------------------------------------------------------- */

/* A multiply task: its block of C and the scratch of its thread. */
typedef struct job {
    int thread;
    int64_t chain;
    int64_t tile0, tile1, row0, row1, panel0, panel1;
    int64_t tile_rows[MOST_TILES + 1]; /* where tile0, tile0 + 1, ... tile1 begin, from row0 */
    an_word *left, *right;
    float *sums, *edge;
    run_ahead later; /* what it prefetches while it multiplies one block of k */
} job;

static job job_of(const call *g, int64_t task, int thread)
{
    const plan *p = &g->p;
    const int64_t panels = g->panel1 - g->panel0;
    const int64_t column_blocks = AN_MIN(p->column_blocks, panels); /* the last group may have fewer panels */
    const int64_t column = task % column_blocks, row = task / column_blocks % p->row_blocks;
    job b = {.thread = thread, .chain = g->chain0 + task / column_blocks / p->row_blocks};
    b.tile0 = part_begin(p->tiles, p->row_blocks, row);
    b.tile1 = part_begin(p->tiles, p->row_blocks, row + 1);
    b.row0 = tile_row(p, b.tile0);
    b.row1 = tile_row(p, b.tile1);
    tile_walk at = walk_from(p, b.tile0);
    b.tile_rows[0] = 0;
    for (int64_t t = b.tile0; t < b.tile1; t++) b.tile_rows[t - b.tile0 + 1] = next_row(p, &at) - b.row0;
    b.panel0 = g->panel0 + part_begin(panels, column_blocks, column);
    b.panel1 = g->panel0 + part_begin(panels, column_blocks, column + 1);
    uint8_t *mine = g->scratch + p->partial_bytes + shared_bytes(p) + thread * p->thread_bytes;
    b.left = (an_word *)mine;
    b.right = (an_word *)(mine + p->left_bytes);
    b.sums = (float *)(mine + p->left_bytes + p->right_bytes);
    b.edge = (float *)(mine + p->left_bytes + p->right_bytes + p->sums_bytes);
    return b;
}

/* Where the sums of a panel are kept: element (row, column) of C is at[(row - row0) * ld + column - panel * PANEL]. */
typedef struct place {
    float *at;
    int64_t ld;
} place;

static place place_of(const call *g, const job *b, int64_t panel)
{
    const plan *p = &g->p;
    const an_gemm_spec *s = &p->s;
    if (g->sums == SUMS_IN_C) {
        const int64_t at = batch_offset(s, s->c_b, b->chain) + b->row0 * s->c_m + panel * PANEL;
        return (place){(float *)g->c + at, s->c_m};
    }
    if (g->sums == SUMS_IN_PARTIAL) {
        const int64_t ld = p->panels * PANEL;
        return (place){(float *)g->scratch + (b->chain * s->m + b->row0) * ld + panel * PANEL, ld};
    }
    const int64_t held =
        p->blocks > 1 ? p->block_panels : STRIP; /* one block of k: each strip is finished before the next */
    return (place){b->sums + (panel - b->panel0) % held * PANEL, AN_MAX(held, STRIP) * PANEL};
}

/* The words of A of a row block, in one block of k. */
typedef struct left {
    const an_word *at;
    a_layout layout;
    bool packed;
    int64_t stride; /* of packed rows, or of rows or columns that are read in place */
} left;

/* The words of a panel of B in one block of k, `stride` apart: packed, or of an operand read in place. */
typedef struct right {
    const an_word *at;
    int64_t stride;
    uintptr_t next; /* of the panel that comes next where it is read in place, else 0 */
} right;

static left take_left(const call *g, const job *b, const operand *a, int64_t j, int64_t w0, int64_t w1)
{
    const plan *p = &g->p;
    const bool by_row = a->along_k == 1;
    const a_layout packed_layout = AN_TILES ? A_ROWS : A_COLUMNS;
    const int64_t packed_stride = AN_TILES ? row_stride(p) : 0;
    if (p->share_a) return (left){shared_tile(g, b->chain, j, b->tile0), packed_layout, true, packed_stride};
    if (AN_TILES && p->direct) {
        pack(a, (part){0, a->x, w0, w1}, b->left, FEWEST_ROWS, PACK_TRANSPOSED, p->kind);
        const int64_t behind = an_round_up(w1, WORDS_UP) - w1;
        memset(b->left + (w1 - w0) * FEWEST_ROWS, 0, (size_t)(behind * FEWEST_ROWS) * sizeof *b->left);
        return (left){b->left, A_COLUMNS, true, FEWEST_ROWS};
    }
    if (AN_TILES && readable_in_place(p)) {
        const an_half *row = (const an_half *)a->p + b->row0 * a->along_x + 2 * w0;
        return (left){(const an_word *)(const void *)row, A_ROWS, false, a->along_x / 2};
    }
    if (readable_in_place(p)) {
        const an_word *at = (const an_word *)a->p + b->row0 * a->along_x + w0 * a->along_k;
        return (left){at, by_row ? A_ROWS : A_COLUMNS, false, by_row ? a->along_x : a->along_k};
    }
    if (by_row) {
        const int64_t stride = row_stride(p);
        const part q = {b->row0, b->row1, w0, w1};
        if (a->window)
            pack_window(a, q, b->left, stride, false, p->kind);
        else
            pack(a, q, b->left, stride, PACK_ROWS, p->kind);
        clear_behind(a, w1, b->left + w1 - w0, b->row1 - b->row0, stride, an_round_up(w1, WORDS_UP) - w1);
        return (left){b->left, A_ROWS, true, stride};
    }
    pack_tiles(p, a, b->tile0, b->tile1, w0, w0, w1, b->left);
    return (left){b->left, packed_layout, true, packed_stride};
}

static bool panel_in_place(const plan *p, int64_t panel)
{
    return p->b_in_place && (panel + 1) * PANEL <= p->s.n;
}

static right take_right(const call *g, const job *b, const operand *o, int64_t j, int64_t panel, int64_t w0, int64_t w1)
{
    const plan *p = &g->p;
    if (p->share_b) return (right){shared_panel(g, b->chain, j, panel), panel_width(p, panel), 0};
    if (panel_in_place(p, panel)) {
        const an_word *first = (const an_word *)(const void *)o->p, *at = first + panel * PANEL + w0 * o->along_k;
        const bool more = panel + 1 < b->panel1, deeper = !more && j + 1 < g->block1 && w1 + (w1 - w0) <= o->k;
        const an_word *next = more ? at + PANEL : deeper ? first + b->panel0 * PANEL + w1 * o->along_k : NULL;
        if (next && !panel_in_place(p, more ? panel + 1 : b->panel0)) next = NULL;
        return (right){at, o->along_k, (uintptr_t)next};
    }
    const int64_t held = (panel - b->panel0) % RIGHT_PANELS;
    if (held == 0) pack_right(p, o, panel, AN_MIN(panel + RIGHT_PANELS, b->panel1), w0, w1, b->right);
    return (right){b->right + held * p->block * PANEL, panel_width(p, panel), 0};
}

static void copy_tile(float *to, int64_t to_ld, const float *from, int64_t from_ld, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < columns; i++) to[r * to_ld + i] = from[r * from_ld + i];
}

/* The prefetches of tile i, which reads `bytes` bytes of the ranges of `r` in as many steps of `step` bytes, or where these are empty the line
 * `here` over and over, which must be mapped: the address of a page that is not is looked up anew by each prefetch, for a hundred cycles. */
static void plan_prefetch(const run_ahead *r, int64_t i, int64_t bytes, int64_t step, const void *here,
                          prefetch_plan *out)
{
    const int64_t begin = bytes * i, second = begin >= r->bytes[0];
    out->at = step == 0 ? (uintptr_t)here : r->at[second] + (uintptr_t)(begin - (second ? r->bytes[0] : 0));
    out->step = step;
}

#if AN_TILES
/* One tile of the row block by one panel; *configured: the rows that the tile registers are configured for. */
static void multiply_tile(const plan *p, const left *a, int64_t offset, int64_t stride, int64_t rows, int64_t width,
                          int64_t words, const right *b, place c, bool go_on, const prefetch_plan *next,
                          int64_t *configured)
{
    (void)p;
    for (int64_t at = 0; at < next->step * words; at += 64)
        __builtin_prefetch((const void *)(next->at + (uintptr_t)at), 0, 2);
    if (*configured != rows) tiles_configure(rows);
    *configured = rows;
    tiles_multiply(rows, width == PANEL, an_ceil_div(words, WORDS_UP), a->at + offset, stride, b->at, b->stride, c.at,
                   c.ld, go_on);
}
#else
static void multiply_tile(const plan *p, const left *a, int64_t offset, int64_t stride, int64_t rows, int64_t width,
                          int64_t words, const right *b, place c, bool go_on, const prefetch_plan *next,
                          int64_t *configured)
{
    (void)configured;
    const micro_fn *micro = (p->kind == WORD_PAIR ? MICRO_1 : MICRO_0)[a->layout][width == PANEL];
    micro[rows - 1](words, a->at + offset, stride, b->at, b->stride, c.at, c.ld, go_on, next);
}
#endif

/* Tile registers take a panel from the L1 cache in less time than it arrives there: part `i` of `n` of the panel that
 * comes next is prefetched into the L2 cache. */
static void prefetch_panel(const call *g, const job *b, int64_t j, int64_t panel, int64_t i, int64_t n)
{
    if (!AN_TILES || !g->p.share_b || panel >= b->panel1) return;
    const uintptr_t at = (uintptr_t)shared_panel(g, b->chain, j, panel);
    const int64_t bytes = g->p.block * panel_width(&g->p, panel) * 4;
    for (int64_t line = part_begin(bytes / 64, n, i); line < part_begin(bytes / 64, n, i + 1); line++)
        __builtin_prefetch((const void *)(at + (uintptr_t)line * 64), 0, 2);
}

/* Operands that are read in place come from memory line by line, too far apart for the hardware to foresee: one line a step, the last
 * three tiles of a panel prefetch the next panel's (which is 128 bytes, at any alignment), the others, at a task's first panel, the
 * next tile of A, whose last column is on the only line that no tile before it has. Nothing beyond an operand is. */
static void prefetch_in_place(const call *g, const job *b, const left *a, const right *panel, bool first, int64_t tile,
                              prefetch_plan *next)
{
    if (AN_TILES || AN_VL != 16) return;
    const int64_t i = tile - b->tile0, count = b->tile1 - b->tile0, rows = b->tile_rows[i + 1] - b->tile_rows[i];
    const int64_t line = i - AN_MAX(count - 3, 0), left_rows = g->p.s.m - b->row0;
    const int64_t last = AN_MIN(b->tile_rows[i + 1] + TILE_ROWS, left_rows) - 1;
    if (panel->next != 0 && line >= 0) {
        next->at = panel->next + (uintptr_t)(rows * panel->stride * 4 + line * 62); /* bytes 0, 62 and 124 */
        next->step = panel->stride * 4;
    } else if (first && a->layout == A_COLUMNS && !a->packed && b->tile_rows[i + 1] < left_rows) {
        next->at = (uintptr_t)(a->at + last + rows * a->stride);
        next->step = a->stride * 4;
    }
}

/* How the lines of a strip that its epilogue reads and writes, of all rows of the row block, are asked for: `each` by each of `calls`
 * multiplied tiles for an array. Read by the epilogue alone, rows that are pieces of longer rows begin on lines that no hardware foresees. */
typedef struct strip_asks {
    int64_t column, columns, calls, each; /* each: 0 for none */
} strip_asks;

static strip_asks asks_of(const call *g, const job *b, int64_t strip, int64_t words)
{
    strip_asks s = {.column = strip * PANEL};
    if (AN_TILES || strip < 0 || g->epilogue->n_arrays == 0 || words <= TILE_ROWS) return s;
    const int64_t panels = AN_MIN(STRIP, b->panel1 - strip), tiles = panels * (b->tile1 - b->tile0);
    s.columns = AN_MIN(panels * PANEL, g->p.s.n - s.column);
    s.calls = AN_MAX(tiles / g->epilogue->n_arrays, 1);
    const int64_t lines = an_ceil_div(s.columns * 4, 64) * (b->row1 - b->row0); /* of f32 */
    s.each = AN_MIN(an_ceil_div(lines, s.calls), words - TILE_ROWS);
    return s;
}

/* The lines that the strip's multiplied tile `i` asks for. */
static void ask_for_rows(const call *g, const job *b, const strip_asks *s, int64_t i, prefetch_plan *next)
{
    const int64_t array = i / s->calls, first = i % s->calls * s->each, rows = b->row1 - b->row0;
    if (array >= g->epilogue->n_arrays) return;
    const int64_t apart = g->epilogue->array[array].row, size = g->epilogue->array[array].size;
    const uintptr_t row0 = (uintptr_t)((b->chain * g->p.s.m + b->row0) * apart + s->column * size);
    const uintptr_t from = g->epilogue->array[array].at + row0, line = from & ~(uintptr_t)63;
    const int64_t lines = an_ceil_div((int64_t)(from - line) + s->columns * size, 64);
    next->row = line + (uintptr_t)(first / rows * 64 + first % rows * apart);
    next->apart = apart;
    next->left = rows - first % rows;
    next->rows = rows;
    next->asks = AN_MAX(AN_MIN(s->each, lines * rows - first), 0); /* of bf16 fewer than of f32 */
}

/* Multiplies all tiles of the row block by one panel of block j of k. go_on: adds to the sums of earlier blocks. strip: the first panel of those
 * that the epilogue is called for next, -1 where it is not. */
static void multiply_panel(const call *g, const job *b, const left *a, int64_t j, int64_t panel, const right *right,
                           int64_t words, bool go_on, int64_t strip)
{
    const plan *p = &g->p;
    const place c = place_of(g, b, panel);
    const int64_t width = panel_width(p, panel), columns = AN_MIN(width, p->s.n - panel * PANEL);
    const bool partial =
        g->sums == SUMS_IN_C && columns < width; /* whole vectors would be written beyond the row of C */
    /* Quotients that are the same for each tile: a division takes as long as two steps of k of a tile. */
    const int64_t count = b->tile1 - b->tile0, ahead = b->later.bytes[0] + b->later.bytes[1];
    const int64_t tile_ahead = ahead == 0 ? 0 : ahead / (count * (b->panel1 - b->panel0));
    const int64_t step = ahead == 0 ? 0 : AN_MIN(an_ceil_div(tile_ahead, AN_MAX(words - TILE_ROWS, 1)), 64);
    const strip_asks ask = asks_of(g, b, strip, words);
    int64_t configured = 0;
    for (int64_t t = b->tile0; t < b->tile1; t++) {
        const int64_t row = b->tile_rows[t - b->tile0], rows = b->tile_rows[t - b->tile0 + 1] - row;
        const bool by_row = a->layout == A_ROWS;
        const int64_t offset = by_row ? row * a->stride : a->packed ? (t - b->tile0) * packed_tile(p) : row;
        const int64_t stride = a->packed && !by_row ? rows : a->stride;
        float *at = c.at + row * c.ld;
        prefetch_plan next = {.c = (uintptr_t)(t + 1 < b->tile1 ? at : c.at) +
                                   (uintptr_t)(t + 1 < b->tile1 ? rows * c.ld : PANEL) * 4};
        if (ask.each > 0) ask_for_rows(g, b, &ask, (panel - strip) * count + t - b->tile0, &next);
        prefetch_panel(g, b, j, panel + 1, t - b->tile0, count);
        /* Lines of C are fetched while the tile before is multiplied; the tile stores would wait for each. */
        if (AN_TILES && !go_on && g->sums == SUMS_IN_C)
            for (int64_t r = 0; r < rows; r++) {
                __builtin_prefetch((const void *)(next.c + (uintptr_t)(r * c.ld * 4)), 1, 3);
                __builtin_prefetch((const void *)(next.c + (uintptr_t)(r * c.ld * 4 + 64)), 1, 3);
            }
        plan_prefetch(&b->later, (panel - b->panel0) * count + t - b->tile0, tile_ahead, step, right->at, &next);
        prefetch_in_place(g, b, a, right, panel == b->panel0, t, &next);
        if (!partial) {
            multiply_tile(p, a, offset, stride, rows, width, words, right, (place){at, c.ld}, go_on, &next,
                          &configured);
            continue;
        }
        if (go_on) copy_tile(b->edge, PANEL, at, c.ld, rows, columns);
        const place edge = {b->edge, PANEL};
        multiply_tile(p, a, offset, stride, rows, width, words, right, edge, go_on, &next, &configured);
        copy_tile(at, c.ld, b->edge, PANEL, rows, columns);
    }
}

/* The same for a panel that is not packed: `words` is all of k. */
#if AN_TILES
static void multiply_direct(const call *g, const job *b, const left *a, const operand *right, int64_t panel,
                            int64_t words)
{
    const place c = place_of(g, b, panel);
    const int64_t x = panel * PANEL, columns = AN_MIN(right->x - x, PANEL), whole = right->k / (2 * WORDS_UP);
    an_word *edge = b->left + g->p.block * FEWEST_ROWS; /* the last words of k of each column, and zeros */
    float sum[PANEL * FEWEST_ROWS];
    tiles_configure(columns);
    tiles_multiply_across(columns, whole, right->p + 2 * x * right->along_x, 2 * right->along_x, a->at, sum, false);
    if (whole * WORDS_UP < words) {
        const part q = {x, x + columns, whole * WORDS_UP, words};
        pack(right, q, edge, WORDS_UP, PACK_ROWS, g->p.kind);
        clear_behind(right, words, edge + words - q.w0, columns, WORDS_UP, q.w0 + WORDS_UP - words);
        tiles_multiply_across(columns, 1, (const uint8_t *)edge, 4 * WORDS_UP, a->at + q.w0 * FEWEST_ROWS, sum, true);
    }
    for (int64_t r = 0; r < g->p.s.m; r++)
        for (int64_t i = 0; i < columns; i++) c.at[r * c.ld + i] = sum[i * FEWEST_ROWS + r];
}
#else
static void multiply_direct(const call *g, const job *b, const left *a, const operand *right, int64_t panel,
                            int64_t words)
{
    const plan *p = &g->p;
    const place c = place_of(g, b, panel);
    const int64_t end = AN_MIN((panel + 1) * PANEL, p->s.n);
    for (int64_t r0 = 0; r0 < p->s.m; r0 += DIRECT_ROWS) {
        const int64_t rows = AN_MIN(p->s.m - r0, DIRECT_ROWS);
        const an_word *row[DIRECT_ROWS];
        for (int r = 0; r < DIRECT_ROWS; r++) row[r] = a->at + (r0 + AN_MIN(r, rows - 1)) * a->stride;
        direct_panel(rows, row, right, panel * PANEL, end, words, p->kind, p->s.b_dtype, c.at + r0 * c.ld, c.ld,
                     g->sums != SUMS_IN_C);
    }
}
#endif

/* Passes the complete sums of the block's rows and of panels [panel0, panel1) to the epilogue, or stores them in C. */
static void finish(const call *g, int64_t member, const job *b, int64_t panel0, int64_t panel1, place from)
{
    const an_gemm_spec *s = &g->p.s;
    const int64_t col0 = panel0 * PANEL, col1 = AN_MIN(panel1 * PANEL, s->n);
    if (g->epilogue) {
        const int64_t first = member * s->m; /* row of the merged [batch * m, n] result */
        const an_tile tile = {first + b->row0, first + b->row1, col0, col1, from.at, from.ld, b->thread};
        g->epilogue->fn(&tile, g->epilogue->user);
        return;
    }
    const int64_t at = batch_offset(s, s->c_b, member) + col0;
    for (int64_t r = b->row0; r < b->row1; r++)
        store_row(g->c, at + r * s->c_m, from.at + (r - b->row0) * from.ld, col1 - col0, s->c_dtype);
}

/* The range of pack tasks that multiply task `task` runs for the next group. */
static void share_of(int64_t tasks, const call *g, int64_t task, int64_t *begin, int64_t *end)
{
    *begin = part_begin(tasks, g->tasks, task);
    *end = part_begin(tasks, g->tasks, task + 1);
}

/* The size of the memory that a pack task reads, and its address in *at; 0 when it is not contiguous. */
static int64_t pack_source(const call *g, int64_t task, uintptr_t *at)
{
    const plan *p = &g->p;
    const int64_t slice = task % g->slices, strips = g->b_strips + g->a_strips, strip = task / g->slices % strips;
    const int64_t rest = task / g->slices / strips, blocks = g->block1 - g->block0;
    const int64_t chain = g->chain0 + rest / blocks, j = g->block0 + rest % blocks;
    const operand o = strip < g->b_strips ? right_operand(g, chain) : left_operand(g, chain);
    int64_t first, end;
    block_words(p, o.k, j, &first, &end);
    if (o.window || o.along_x != 1 || o.along_k > 2 * o.x || g->panel1 - g->panel0 < p->panels) return 0;
    const int64_t row = o.along_k * dtype_bytes(o.dtype) * (p->kind == WORD_PAIR ? 2 : 1), w0 = first + slice * SLICE;
    *at = (uintptr_t)o.p + (uintptr_t)(w0 * row);
    return AN_MAX(AN_MIN(SLICE, end - w0), 0) * row;
}

/* What a task prefetches: the memory that it packs afterwards, else the rows of A that the next row block reads or packs. */
static run_ahead later_of(const call *g, int64_t task, const job *b, const operand *a)
{
    const plan *p = &g->p;
    run_ahead r = {{0, 0}, {0, 0}};
    const int64_t size = dtype_bytes(a->dtype), blocks = g->block1 - g->block0;
    if (g->next) {
        int64_t begin, end;
        share_of(pack_tasks(g->next), g, task, &begin, &end);
        if (begin < end) r.bytes[0] = pack_source(g->next, begin, &r.at[0]) / blocks;
        if (begin + 1 < end) r.bytes[1] = pack_source(g->next, begin + 1, &r.at[1]) / blocks;
    }
    const int64_t columns = AN_MIN(p->column_blocks, g->panel1 - g->panel0);
    if (r.bytes[0] == 0 && !a->window && a->along_k == 1 && a->along_x <= 2 * a->k && blocks == p->blocks) {
        /* The rows of the next row block, else of the next member's A; beyond them there need be no page (plan_prefetch). */
        const bool more = b->row1 < p->s.m, is_last = !more && b->chain + 1 == p->chains;
        const operand next = more || is_last ? *a : left_operand(g, b->chain + 1);
        const int64_t row = more ? b->row1 : 0, rows = is_last ? 0 : AN_MIN(p->s.m - row, b->row1 - b->row0);
        r.bytes[0] = rows * a->along_x * size / (columns * blocks);
        r.at[0] = (uintptr_t)next.p + (uintptr_t)(row * a->along_x * size + r.bytes[0] * blocks * (task % columns));
    }
    return r;
}

/* Task: multiplies a row block by a column block of a chain, over the group's blocks of k; then packs its share of the next
 * group. */
static void multiply_task(void *arg, int64_t task, int thread)
{
    const call *g = arg;
    const plan *p = &g->p;
    job b = job_of(g, task, thread);
    const operand a = left_operand(g, b.chain), right = right_operand(g, b.chain);
    b.later = later_of(g, task, &b, &a);
    for (int64_t j = g->block0; j < g->block1; j++) {
        int64_t w0, w1;
        block_words(p, a.k, j, &w0, &w1);
        const left rows = take_left(g, &b, &a, j, w0, w1);
        const bool complete = j + 1 == p->blocks && p->splits == 1 && g->sums != SUMS_IN_C;
        int64_t begin = b.panel0;
        for (int64_t i = b.panel0; i < b.panel1; i++) {
            if (p->direct) {
                multiply_direct(g, &b, &rows, &right, i, w1 - w0);
            } else {
                const struct right words = take_right(g, &b, &right, j, i, w0, w1);
                multiply_panel(g, &b, &rows, j, i, &words, w1 - w0, j > 0, complete && g->epilogue ? begin : -1);
            }
            if (!complete || (i + 1 < b.panel1 && i + 1 - begin < STRIP)) continue;
            finish(g, b.chain, &b, begin, i + 1, place_of(g, &b, begin));
            begin = i + 1;
        }
        for (int i = 0; i < 2; i++) b.later.at[i] += (uintptr_t)b.later.bytes[i];
    }
#if AN_TILES
    tiles_release();
#endif
    if (!g->next) return;
    int64_t begin, end;
    share_of(pack_tasks(g->next), g, task, &begin, &end);
    for (int64_t i = begin; i < end; i++) pack_task((void *)(uintptr_t)g->next, i, thread);
}

/* Task: adds the splits of a batch member in order, for a row block by a strip of panels. */
static void add_splits_task(void *arg, int64_t task, int thread)
{
    const call *g = arg;
    const plan *p = &g->p;
    const int64_t strips = an_ceil_div(p->panels, STRIP), strip = task % strips;
    const int64_t row = task / strips % p->row_blocks, member = task / strips / p->row_blocks;
    job b = {.thread = thread, .chain = member * p->splits};
    b.row0 = tile_row(p, part_begin(p->tiles, p->row_blocks, row));
    b.row1 = tile_row(p, part_begin(p->tiles, p->row_blocks, row + 1));
    const int64_t panel0 = strip * STRIP, panel1 = AN_MIN(panel0 + STRIP, p->panels);
    const place sum = place_of(g, &b, panel0);
    for (int64_t split = 1; split < p->splits; split++) {
        job other = b;
        other.chain += split;
        const place more = place_of(g, &other, panel0);
        for (int64_t r = 0; r < b.row1 - b.row0; r++)
            for (int64_t i = 0; i < (panel1 - panel0) * PANEL; i += AN_VL) {
                float *at = sum.at + r * sum.ld + i;
                vf_store(at, vf_load(at) + vf_load(more.at + r * more.ld + i));
            }
    }
    finish(g, member, &b, panel0, panel1, sum);
}

/* Selects group i: blocks of k fastest, then panels, then chains; false after the last. */
static bool choose_group(call *g, int64_t i)
{
    const plan *p = &g->p;
    const int64_t along_k = an_ceil_div(p->blocks, p->group_blocks), along_n = an_ceil_div(p->panels, p->group_panels);
    g->block0 = i % along_k * p->group_blocks;
    g->block1 = AN_MIN(g->block0 + p->group_blocks, p->blocks);
    g->panel0 = i / along_k % along_n * p->group_panels;
    g->panel1 = AN_MIN(g->panel0 + p->group_panels, p->panels);
    g->chain0 = i / along_k / along_n * p->group_chains;
    g->chain1 = AN_MIN(g->chain0 + p->group_chains, p->chains);
    const int64_t buffer = p->buffers == 2 ? i % 2 : 0;
    g->shared = g->scratch + p->partial_bytes + buffer * (p->shared_b_bytes + p->shared_a_bytes);
    g->tasks = (g->chain1 - g->chain0) * p->row_blocks * AN_MIN(p->column_blocks, g->panel1 - g->panel0);
    choose_strips(g);
    return g->chain0 < p->chains;
}

static void run_groups(call *g, an_pool *pool)
{
    call next = *g;
    choose_group(g, 0);
    if (g->p.share_b) an_pool_run(pool, pack_tasks(g), pack_task, g);
    for (int64_t i = 1;; i++) {
        const bool more = choose_group(&next, i);
        g->next = more && g->p.share_b ? &next : NULL;
        an_pool_run(pool, g->tasks, multiply_task, g);
        if (!more) return;
        *g = next;
    }
}

void AN_ISA_NAME(gemm)(const an_gemm_spec *s, void *const *args, void *scratch, const an_epilogue *epi, an_pool *pool)
{
#if AN_TILES
    if (s->mul_dtype != AN_BF16) {
        AN_REST_NAME(gemm)(s, args, scratch, epi, pool);
        return;
    }
#endif
    call g = {.p = plan_make(s, an_pool_threads(pool)),
              .a = args[0],
              .b = args[1],
              .c = args[2],
              .scratch = scratch,
              .epilogue = epi};
    const plan *p = &g.p;
    if (p->chains == 0 || p->tiles == 0 || p->panels == 0) return;
    const bool plain = s->c_dtype == AN_F32 && !epi;
    if (p->splits > 1 || (!plain && p->group_blocks < p->blocks))
        g.sums = SUMS_IN_PARTIAL;
    else if (!plain)
        g.sums = SUMS_IN_BLOCK;
    run_groups(&g, pool);
    if (p->splits > 1) an_pool_run(pool, p->batch * p->row_blocks * an_ceil_div(p->panels, STRIP), add_splits_task, &g);
}
