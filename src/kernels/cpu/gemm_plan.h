/* gemm_plan.h: how a GEMM is divided: blocks of m, n and k, groups, tasks, and how much scratch they take.
 *
 * Owns:      the extents of blocks, and the choice among them: a pure function of the spec and of the threads.
 * Does not:  pack or multiply (gemm.c, whose comment says what tiles, panels, chains and groups are).
 * Invariant: the bits do not depend on what is chosen here. */
#ifndef AN_KERNELS_CPU_GEMM_PLAN_H
#define AN_KERNELS_CPU_GEMM_PLAN_H

#include "kernels/cpu/gemm_pack.h"
#if !AN_TILES
#include "kernels/cpu/gemm_rows.h"
#endif
#include "kernels/cpu_kernels.h"

/* Sanitized builds divide every extent that was chosen for a cache size by eight, so that their tests reach each path
 * (several blocks of k, groups along n and k, double buffering) with an eighth of the work. The bits do not depend on the
 * blocking. */
#ifdef AN_SANITIZE
#define CACHE_DIVISOR 8
#else
#define CACHE_DIVISOR 1
#endif

/* The extents of blocks: MC, KC and NC of Goto and of BLIS are BLOCK_ROWS, BLOCK_WORDS and a group's columns. */
enum {
    /* Of k. With AVX-512 a tile of A has 24 KiB, a panel of B 64 KiB; with AVX2 6 and 16, which an L1 cache holds together. */
    BLOCK_WORDS = (AN_VL == 8 ? 256 : 512) / CACHE_DIVISOR,
    BLOCK_WORDS_FEW =
        AN_TILES ? 192 / CACHE_DIVISOR : BLOCK_WORDS, /* where C has few rows: a panel of 24 KiB, in an L1 cache */
    BLOCK_ROWS = AN_TILES ? 256 : 96,                 /* of A in a row block: 192 KiB packed, with tiles 528 */
    MOST_TILES = BLOCK_ROWS / TILE_ROWS,
    STRIP = AN_EPILOGUE_COLUMNS / PANEL,       /* panels that are passed to C or the epilogue together */
    WIDE = 512 / PANEL,                        /* most panels of a task whose sums are kept over several blocks of k */
    FEW_ROWS = AN_TILES ? 256 : 4 * TILE_ROWS, /* with so few rows a packed B is not shared */
    SHARED_BYTES = (4 << 20) / CACHE_DIVISOR,  /* of packed operands, so that they stay in the last-level cache */
    GROUP_BYTES = (2 << 20) / CACHE_DIVISOR,   /* of a group along k: two of them are in use at a time */
    WORDS_UP = AN_TILES ? 16 : AN_VL,          /* a block of k is a multiple of so many words */
    NARROW = AN_TILES ? 16 : AN_VL,            /* columns of a narrow panel */
    FEWEST_ROWS = AN_TILES     ? 16
                  : AN_VL == 8 ? 8
                               : 4,  /* with so few rows B is multiplied as it lies */
    CHUNK = 32,                      /* words of one panel packed before the next panel: whole cache lines are read */
    CHUNK_INSIDE = 8,                /* words of one tile, where a call packs little more than it moves */
    RIGHT_PANELS = AN_TILES ? 8 : 1, /* packed together by the task that uses them */
    FEW_THREADS = 4,                 /* which so many tasks are enough for */
    TASKS = 16, /* least number of tasks, where the problem has enough blocks; on tile registers two a thread */
};

typedef enum sums { SUMS_IN_C, SUMS_IN_BLOCK, SUMS_IN_PARTIAL } sums;

typedef struct plan {
    an_gemm_spec s; /* normalised */
    word_kind kind;
    int64_t batch, splits, chains; /* chain = batch member * splits + split */
    int64_t split_k;               /* k of a chain; the last of a member may have less */
    int64_t block, blocks;         /* words of a block of k; blocks of a chain */
    int64_t tiles, row_blocks, panels;
    int64_t least_rows, rest_rows;                    /* m divided by tiles, and what remains */
    bool share_b, share_a;                            /* packed once for all threads */
    bool b_in_place;                                  /* whole panels of B are multiplied as they lie */
    bool direct;                                      /* B is multiplied as it lies (gemm_rows.h) */
    int64_t group_chains, group_panels, group_blocks; /* of a group */
    int64_t column_blocks;                            /* of a group */
    int64_t block_tiles, block_panels;                /* the most of a task */
    int64_t partial_bytes, shared_b_bytes, shared_a_bytes;
    int64_t tasks; /* least number of tasks for few threads, where the problem has enough blocks */
    int buffers;   /* for the shared words: 2 when one group is packed while the other is used */
    int64_t left_bytes, right_bytes, sums_bytes, thread_bytes; /* of one thread */
} plan;

/* n items are divided into `parts` nearly equal ranges; returns where range i begins. */
static int64_t part_begin(int64_t n, int64_t parts, int64_t i)
{
    return n * i / parts;
}

static int64_t bytes_up(int64_t words)
{
    return an_round_up(words * 4, 64);
}

/* Batch members that are consecutive rows in A and C and share B are merged into m. */
static an_gemm_spec normalised(const an_gemm_spec *spec)
{
    an_gemm_spec s = *spec;
    for (int i = 2; i >= 0; i--) {
        if (s.nb[i] == 1) continue;
        const int64_t rows = (int64_t)s.m * s.nb[i];
        const bool under = s.a_b[i] == s.m * s.a_m && s.c_b[i] == s.m * s.c_m;
        if (s.b_b[i] != 0 || !under || rows > INT32_MAX) break;
        s.m = (int32_t)rows;
        s.nb[i] = 1;
    }
    return s;
}

/* Words from a packed row of A to the next: 16 more than a block has, so that rows fall into different sets of the L1
 * cache. */
static int64_t row_stride(const plan *p)
{
    return p->block + 16;
}

static int64_t packed_tile(const plan *p) /* words of a packed tile: columns, or for tile registers rows */
{
    return (AN_TILES ? row_stride(p) : p->block) * TILE_ROWS;
}

/* Whether A can be multiplied without packing: its f32 elements are words already, and its rows or columns are
 * contiguous. No rows where the stride maps all rows of a tile to the same set of the L1 cache, 4 KiB apart (2 KiB: twelve rows are six
 * lines in each of two sets), and no columns with AVX2, whose six rows would use 24 of the 64 bytes of each line. With AVX-512 columns are read in
 * place at any stride: a step takes 24 cycles, and what the L2 cache takes to answer hides behind the steps before. For tile registers, the
 * pairs of a row of whole chunks of k. */
static bool readable_in_place(const plan *p)
{
    const an_gemm_spec *s = &p->s;
    if (AN_TILES)
        return s->a_dtype == AN_BF16 && s->a_k == 1 && s->window.of != AN_WINDOW_A && s->a_m % 2 == 0 &&
               s->k % 32 == 0 && p->split_k % 32 == 0;
    const int64_t stride = s->a_k == 1 ? s->a_m : s->a_k, same_sets = 1024;
    const bool window = s->window.of == AN_WINDOW_A, columns = s->a_m == 1 && AN_VL != 8;
    const bool apart = stride % same_sets != 0 || (AN_VL == 16 && s->a_k != 1);
    return p->kind == WORD_F32 && s->a_dtype == AN_F32 && (s->a_k == 1 || columns) && apart && !window;
}

/* Whether whole panels of B are multiplied without packing: f32 that are contiguous along n (in dX and dW), with AVX-512, whose steps
 * hide the L2 cache's latency. Not where a packed panel stays in the L1 cache and so many rows use it that packing costs less, and not a narrow B
 * whose last panel, which each task would pack, is half of it or more. */
static bool right_readable_in_place(const plan *p)
{
    enum { L1_BYTES = (32 << 10) / CACHE_DIVISOR, MANY_ROWS = 256 };
    const an_gemm_spec *s = &p->s;
    if (AN_TILES || AN_VL != 16 || p->kind != WORD_F32 || s->b_dtype != AN_F32) return false;
    if (s->b_n != 1 || s->b_k == 1 || s->window.of == AN_WINDOW_B) return false;
    if (s->n < PANEL || (s->n < 2 * PANEL && s->n % PANEL != 0)) return false;
    return s->m < MANY_ROWS || p->block * PANEL * 4 > L1_BYTES;
}

/* Tasks for many threads, which take them in rounds: a last round of two tasks leaves all other threads waiting. Of the row and column blocks
 * that make up to MOST_ROUNDS rounds, those are taken whose rounds cost least. A tile by a panel costs 1; beside that, a panel from another
 * core's cache, a panel that the task packs, and a tile of A that it packs: 1, 4 and 2; on tile registers, which multiply faster, 3, 8 and 8.
 * What is multiplied directly has all rows in each task. */
static void deal_tasks(plan *p, int64_t threads)
{
    enum { MOST_ROUNDS = 4, FETCH = AN_TILES ? 3 : 1, PACK_PANEL = AN_TILES ? 8 : 4, PACK_TILE = AN_TILES ? 8 : 2 };
    const int64_t fewest = p->column_blocks, most = p->group_panels, chains = p->group_chains;
    if (chains * p->row_blocks * fewest >= MOST_ROUNDS * threads) return;
    const int64_t per_panel = p->share_b || p->b_in_place ? FETCH : PACK_PANEL,
                  per_tile = p->share_a || readable_in_place(p) ? 0 : PACK_TILE;
    const int64_t fewest_tiles = p->direct ? p->tiles : 1;
    int64_t least = INT64_MAX;
    for (int64_t tiles = an_ceil_div(p->tiles, p->row_blocks); tiles >= fewest_tiles; tiles--)
        for (int64_t round = 1; round <= MOST_ROUNDS; round++) {
            const int64_t rows = an_ceil_div(p->tiles, tiles);
            const int64_t wanted = AN_MIN(AN_MAX(round * threads / (chains * rows), fewest), most);
            const int64_t panels = an_ceil_div(most, wanted), columns = an_ceil_div(most, panels);
            const int64_t one = tiles * panels + per_panel * panels + per_tile * tiles;
            const int64_t cost = an_ceil_div(chains * rows * columns, threads) * one;
            if (cost >= least) continue;
            least = cost;
            p->row_blocks = rows;
            p->column_blocks = columns;
        }
}

/* Halves tasks until there are enough. */
static void halve_tasks(plan *p)
{
    const int64_t most_tiles = MOST_TILES, least_tiles = AN_MAX(most_tiles / 4, 1);
    while (p->group_chains * p->row_blocks * p->column_blocks < p->tasks) {
        /* On tile registers a panel is multiplied faster than it is read from another cache: rows stay together, but not where
         * every task of those rows would pack them. */
        const bool pack_a = p->share_b && !p->share_a && !readable_in_place(p);
        const bool split_columns = AN_TILES ? !pack_a && (!p->share_b || p->group_panels > 4 * p->column_blocks)
                                            : p->b_in_place && p->group_panels > 4 * p->column_blocks;
        if (!split_columns && !p->direct && p->tiles > (AN_TILES && pack_a ? 1 : least_tiles) * p->row_blocks)
            p->row_blocks = AN_MIN(p->row_blocks * 2, p->tiles);
        else if (p->group_panels > 2 * p->column_blocks)
            p->column_blocks *= 2;
        else
            break;
    }
}

/* Chooses row and column blocks: large enough to reuse packed words, small enough to give every thread work. */
static void plan_tasks(plan *p, int threads)
{
    const int64_t widest = p->blocks > 1 ? WIDE : p->group_panels;
    p->row_blocks = an_ceil_div(p->tiles, MOST_TILES);
    p->column_blocks = an_ceil_div(p->group_panels, widest);
    if (threads > FEW_THREADS)
        deal_tasks(p, threads);
    else
        halve_tasks(p);
    p->block_tiles = an_ceil_div(p->tiles, p->row_blocks);
    p->block_panels = an_ceil_div(p->group_panels, p->column_blocks);
}

/* Chooses the group: what is packed and used together. Groups along k cost passes over C, groups along n passes over A. */
static void plan_groups(plan *p)
{
    const int64_t panel_bytes = p->block * PANEL * 4, b_block = p->panels * panel_bytes;
    const int64_t a_block = p->tiles * packed_tile(p) * 4;
    p->group_chains = p->chains;
    p->group_panels = p->panels;
    p->group_blocks = p->blocks;
    if (!p->share_b) return;
    p->share_a = !AN_TILES && p->s.a_k != 1 && p->s.a_m == 1 && a_block <= SHARED_BYTES / 2;
    const int64_t both = b_block + (p->share_a ? a_block : 0), all = both * p->blocks;
    p->group_chains = AN_MAX(AN_MIN(SHARED_BYTES / all, p->chains), 1);
    if (all > SHARED_BYTES && (p->s.k > 2 * (int64_t)p->s.n || (p->share_a && p->blocks > 1))) {
        p->group_blocks = AN_MAX(GROUP_BYTES / both, 1);
    } else if (all <= SHARED_BYTES) {
        p->share_a = p->share_a && !readable_in_place(p); /* one group: packing cannot overlap multiplication */
    } else {
        p->share_a = false;
        p->group_panels = AN_MAX(SHARED_BYTES / (p->blocks * panel_bytes), 1);
    }
    p->buffers = p->group_chains < p->chains || p->group_panels < p->panels || p->group_blocks < p->blocks ? 2 : 1;
    p->shared_b_bytes = p->group_chains * p->group_panels * p->group_blocks * panel_bytes;
    p->shared_a_bytes = p->share_a ? p->group_chains * p->group_blocks * a_block : 0;
}

/* A few rows, and both operands contiguous along k. */
static bool multiplies_directly(const plan *p)
{
    const an_gemm_spec *s = &p->s;
    const bool few = s->m <= FEWEST_ROWS && s->a_k == 1 && s->b_k == 1 && s->window.of == AN_WINDOW_NONE;
#if AN_TILES
    return few && s->b_dtype == AN_BF16;
#else
    return few && direct_body(s->m, 1, p->kind, s->b_dtype) != NULL;
#endif
}

static plan plan_make(const an_gemm_spec *spec, int threads)
{
    plan p = {.s = normalised(spec), .tasks = AN_TILES ? AN_MAX(4, 2 * threads) : TASKS};
    const an_gemm_spec *s = &p.s;
    p.kind = s->mul_dtype != AN_BF16 ? WORD_F32 : AN_BF16_DOT || AN_TILES ? WORD_PAIR : WORD_ROUNDED;
    p.batch = (int64_t)s->nb[0] * s->nb[1] * s->nb[2];
    p.splits = AN_MAX(s->splits, 1);
    p.chains = p.batch * p.splits;
    p.split_k = an_ceil_div(s->k, p.splits);
    const int64_t pairs = an_ceil_div(p.split_k, 2);
    const int64_t words = p.kind == WORD_F32 ? p.split_k : p.kind == WORD_PAIR ? pairs : 2 * pairs;
    p.direct = multiplies_directly(&p);
    p.blocks = p.direct ? 1 : AN_MAX(an_ceil_div(words, s->m > FEW_ROWS ? BLOCK_WORDS : BLOCK_WORDS_FEW), 1);
    p.block = an_round_up(AN_MAX(an_ceil_div(words, p.blocks), 1), WORDS_UP);
    p.tiles = an_ceil_div(s->m, TILE_ROWS);
    p.least_rows = p.tiles ? s->m / p.tiles : 0;
    p.rest_rows = p.tiles ? s->m % p.tiles : 0;
    p.panels = an_ceil_div(s->n, PANEL);
    p.b_in_place = right_readable_in_place(&p);
    p.share_b = s->m > FEW_ROWS && !p.b_in_place;
    /* Of a row block with few rows few tiles ask for the epilogue's lines. */
    const bool whole_rows = AN_VL == 16 && !AN_TILES && p.blocks == 1;
    if ((p.b_in_place || whole_rows) && threads == 1) p.tasks = 1;
    if (p.chains == 0 || p.tiles == 0 || p.panels == 0) return p;
    plan_groups(&p);
    plan_tasks(&p, threads);
    if (p.splits > 1 || p.group_blocks < p.blocks) p.partial_bytes = bytes_up(p.chains * s->m * p.panels * PANEL);
    const int64_t rows = p.block_tiles * TILE_ROWS;
    const int64_t strip = AN_MAX(p.blocks > 1 ? p.block_panels : 0, STRIP);
    p.left_bytes = p.share_a ? 0 : bytes_up(AN_MAX(p.block_tiles * packed_tile(&p), rows * row_stride(&p)));
    if (p.direct) p.left_bytes = bytes_up(AN_TILES ? (p.block + PANEL) * FEWEST_ROWS : s->m * row_stride(&p));
    p.right_bytes = p.share_b || p.direct ? 0 : bytes_up(AN_MIN(RIGHT_PANELS, p.block_panels) * p.block * PANEL);
    p.sums_bytes = bytes_up(rows * strip * PANEL);
    p.thread_bytes = p.left_bytes + p.right_bytes + p.sums_bytes + bytes_up(TILE_ROWS * PANEL);
    return p;
}

static int64_t shared_bytes(const plan *p)
{
    return p->buffers * (p->shared_b_bytes + p->shared_a_bytes);
}

/* Tiles of vectors have nearly equal rows; of tile registers all but the last are full. */
static int64_t tile_row(const plan *p, int64_t tile)
{
    return AN_TILES ? AN_MIN(tile * TILE_ROWS, p->s.m) : part_begin(p->s.m, p->tiles, tile);
}

/* tile_row of one tile after the other without a division each, which takes as long as packing a tile's eight words. */
typedef struct tile_walk {
    int64_t row, rest;
} tile_walk;

static tile_walk walk_from(const plan *p, int64_t tile)
{
    return (tile_walk){tile_row(p, tile), AN_TILES ? 0 : p->s.m * tile % p->tiles};
}

static int64_t next_row(const plan *p, tile_walk *at)
{
    if (AN_TILES) return at->row = AN_MIN(at->row + TILE_ROWS, p->s.m);
    at->rest += p->rest_rows;
    const bool more = at->rest >= p->tiles;
    if (more) at->rest -= p->tiles;
    return at->row += p->least_rows + more;
}

#endif
