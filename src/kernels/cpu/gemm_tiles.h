/* gemm_tiles.h: the innermost loop of GEMM on tile registers (AMX): C tile [32, 32] += A rows x B panel, of bf16 pairs.
 *
 * Owns:      four accumulators of 16 x 16 f32, their configuration, and the same arithmetic in plain C.
 * Does not:  know matrices: as gemm_micro.h, it is handed rows of A, a panel of B (both packed by gemm_pack.h) and
 *            whole tiles of C.
 * Invariant: an element's sum is that of the instruction, wherever it runs. For 16 pairs at a time, ascending in k,
 *                even = sum of a[2i] b[2i],  odd = sum of a[2i+1] b[2i+1],  each from +0;  c = c + (even + odd)
 *            rounded to nearest after each addition; subnormal operands and sums are zeros. (Intel, "Software Developer's
 *            Manual", volume 2, TDPBF16PS. A product of two bf16 is exact in f32.) So the bits do not depend on the
 *            blocking as long as blocks of k begin at multiples of 16 pairs.
 *
 *                 B     6         7        a chunk of 16 pairs by 2 x 16 columns of the panel
 *            A    +---------+---------+
 *            4    | C  0    | C  1    |    tile registers; each row is one cache line
 *            5    | C  2    | C  3    |
 *                 +---------+---------+
 * Two tiles of A and two of B feed four multiplications of 16 cycles, and their loads hide behind them. */
#ifndef AN_KERNELS_CPU_GEMM_TILES_H
#define AN_KERNELS_CPU_GEMM_TILES_H

#include "kernels/cpu/gemm_inner_args.h"

#include <string.h>

enum {
    TILE_SIDE = 16, /* rows of a tile register, pairs along k, columns */
    TILE_ROWS = 2 * TILE_SIDE,
    TILE_VECS = 2 * TILE_SIDE / AN_VL,
    PANEL = 2 * TILE_SIDE,
};

#ifdef __AMX_BF16__

/* Tile registers of `rows` rows of C and A. Undone by tiles_release: what is configured is saved at every context
 * switch. */
AN_INLINE void tiles_configure(int64_t rows)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } __attribute__((packed, aligned(64))) c = {.palette = 1};
    const uint8_t upper = (uint8_t)(rows < TILE_SIDE ? rows : TILE_SIDE), lower = (uint8_t)(rows - upper);
    const uint8_t count[8] = {upper, upper, lower, lower, upper, lower, TILE_SIDE, TILE_SIDE};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = count[i] > 0 ? 4 * TILE_SIDE : 0;
        c.rows[i] = count[i];
    }
    _tile_loadconfig(&c);
}

AN_INLINE void tiles_release(void)
{
    _tile_release();
}

AN_INLINE void tiles_run(const bool two_rows, const bool wide, int64_t chunks, const an_word *a, int64_t a_row,
                         const an_word *b, int64_t b_row, float *c, int64_t ldc, bool go_on)
{
    const int64_t a_bytes = a_row * 4, b_bytes = b_row * 4, c_bytes = ldc * 4;
    const an_word *below = a + TILE_SIDE * a_row;
    float *c_below = c + TILE_SIDE * ldc;
    __asm__ volatile("" ::: "memory"); /* the loads below are not visible to the compiler as reads */
    if (go_on) {
        _tile_loadd(0, c, c_bytes);
        if (wide) _tile_loadd(1, c + TILE_SIDE, c_bytes);
        if (two_rows) _tile_loadd(2, c_below, c_bytes);
        if (two_rows && wide) _tile_loadd(3, c_below + TILE_SIDE, c_bytes);
    } else {
        _tile_zero(0);
        if (wide) _tile_zero(1);
        if (two_rows) _tile_zero(2);
        if (two_rows && wide) _tile_zero(3);
    }
    for (; chunks > 0; chunks--, a += TILE_SIDE, below += TILE_SIDE, b += TILE_SIDE * b_row) {
        _tile_loadd(4, a, a_bytes);
        _tile_loadd(6, b, b_bytes);
        _tile_dpbf16ps(0, 4, 6);
        if (wide) {
            _tile_loadd(7, b + TILE_SIDE, b_bytes);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (two_rows) {
            _tile_loadd(5, below, a_bytes);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (two_rows && wide) _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, c_bytes);
    if (wide) _tile_stored(1, c + TILE_SIDE, c_bytes);
    if (two_rows) _tile_stored(2, c_below, c_bytes);
    if (two_rows && wide) _tile_stored(3, c_below + TILE_SIDE, c_bytes);
    __asm__ volatile("" ::: "memory");
}

/* C[rows][columns] = (go_on: C) + A x B over `chunks` chunks of 16 pairs; `rows` as configured, PANEL columns (wide) or
 * TILE_SIDE. Rows of A are `a_row` words apart, those of B `b_row`. Nothing beyond those rows and columns is written. */
AN_INLINE void tiles_multiply(int64_t rows, bool wide, int64_t chunks, const an_word *a, int64_t a_row,
                              const an_word *b, int64_t b_row, float *c, int64_t ldc, bool go_on)
{
    if (rows > TILE_SIDE && wide)
        tiles_run(true, true, chunks, a, a_row, b, b_row, c, ldc, go_on);
    else if (rows > TILE_SIDE)
        tiles_run(true, false, chunks, a, a_row, b, b_row, c, ldc, go_on);
    else
        tiles_run(false, wide, chunks, a, a_row, b, b_row, c, ldc, go_on);
}

/* Few rows of A, A^T packed as a narrow panel: C^T[columns][16] = (go_on: C^T) + B x A^T over `chunks` chunks. B is read as
 * it lies, `b_bytes` from column to column, and the columns of the next panel are prefetched: reading B once is all that
 * takes time. `columns` as configured. */
AN_INLINE void tiles_multiply_across(int64_t columns, int64_t chunks, const uint8_t *b, int64_t b_bytes,
                                     const an_word *a, float *c, bool go_on)
{
    const bool two = columns > TILE_SIDE;
    const uint8_t *below = b + TILE_SIDE * b_bytes;
    __asm__ volatile("" ::: "memory");
    if (go_on) {
        _tile_loadd(0, c, 4 * TILE_SIDE);
        if (two) _tile_loadd(2, c + TILE_SIDE * TILE_SIDE, 4 * TILE_SIDE);
    } else {
        _tile_zero(0);
        if (two) _tile_zero(2);
    }
    for (; chunks > 0; chunks--, b += 4 * TILE_SIDE, below += 4 * TILE_SIDE, a += TILE_SIDE * TILE_SIDE) {
        for (int64_t i = 0; i < columns; i++)
            __builtin_prefetch((const void *)((uintptr_t)b + (uintptr_t)((PANEL + i) * b_bytes)), 0, 2);
        _tile_loadd(6, a, 4 * TILE_SIDE);
        _tile_loadd(4, b, b_bytes);
        _tile_dpbf16ps(0, 4, 6);
        if (two) {
            _tile_loadd(5, below, b_bytes);
            _tile_dpbf16ps(2, 5, 6);
        }
    }
    _tile_stored(0, c, 4 * TILE_SIDE);
    if (two) _tile_stored(2, c + TILE_SIDE * TILE_SIDE, 4 * TILE_SIDE);
    __asm__ volatile("" ::: "memory");
}

#else /* the same in plain C: slow, for tests, and for the bits of a run on a processor without tile registers */

AN_INLINE void tiles_configure(int64_t rows)
{
    (void)rows;
}

AN_INLINE void tiles_release(void) {}

/* Half of a pair as f32; subnormal numbers are zeros. */
AN_INLINE float pair_half(an_word w, const int odd)
{
    union {
        uint32_t u;
        float f;
    } x = {odd ? w & 0xffff0000u : w << 16};
    if ((x.u & 0x7f800000u) == 0) x.u &= 0x80000000u;
    return x.f;
}

AN_INLINE float flushed(float x)
{
    return x < 0x1p-126f && x > -0x1p-126f ? 0 * x : x;
}

AN_INLINE void tiles_multiply(int64_t rows, bool wide, int64_t chunks, const an_word *a, int64_t a_row,
                              const an_word *b, int64_t b_row, float *c, int64_t ldc, bool go_on)
{
    const int64_t columns = wide ? PANEL : TILE_SIDE;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            float sum = go_on ? flushed(c[i * ldc + j]) : 0;
            for (int64_t w = 0; w < chunks * TILE_SIDE; w += TILE_SIDE) {
                float even = 0, odd = 0;
                for (int64_t k = w; k < w + TILE_SIDE; k++) {
                    const an_word x = a[i * a_row + k], y = b[k * b_row + j];
                    even = flushed(even + pair_half(x, 0) * pair_half(y, 0));
                    odd = flushed(odd + pair_half(x, 1) * pair_half(y, 1));
                }
                sum = flushed(sum + flushed(even + odd));
            }
            c[i * ldc + j] = sum;
        }
}

AN_INLINE void tiles_multiply_across(int64_t columns, int64_t chunks, const uint8_t *b, int64_t b_bytes,
                                     const an_word *a, float *c, bool go_on)
{
    tiles_multiply(columns, false, 0, NULL, 0, a, TILE_SIDE, c, TILE_SIDE, go_on);
    for (; chunks > 0; chunks--, b += 4 * TILE_SIDE, a += TILE_SIDE * TILE_SIDE) {
        an_word chunk[PANEL * TILE_SIDE]; /* a column of B begins at any even address */
        for (int64_t i = 0; i < columns; i++) memcpy(chunk + i * TILE_SIDE, b + i * b_bytes, 4 * TILE_SIDE);
        tiles_multiply(columns, false, 1, chunk, TILE_SIDE, a, TILE_SIDE, c, TILE_SIDE, true);
    }
}
#endif

#endif
