/* tiles.h: what the GEMM and attention templates share, written in the macros of cuda.h or msl.h; comes after base/exact.h.
 *
 *     device memory --an_stage-->  tile (shared, multiplication kind, padded rows)  --an_load_a/b-->  fragments --an_mma-->  accumulators
 *     device memory <--an_strip_write--  strip (shared, f32)  <--an_strip_store--  accumulators
 *
 * Owns:      storage formats, staging of tiles, multiplication of a strip, row reductions over a strip.
 * Does not:  know attention or GEMM as such.
 * Invariant: a strip is 16 rows of a tile that belong to one subgroup: no other subgroup touches them, so a subgroup barrier orders them.
 *            Within it, lane l works on row l / 2, on the columns of parity l % 2.
 *
 * Defined before this text by the renderer:
 *     AN_STORE    kind of the tensors in device memory (AN_KIND_F32, _BF16, _F16)
 *     AN_STORE_B  kind of a GEMM's right operand when it differs: one of the two is then f32 (f32 weights with bf16 activations)
 *     AN_MUL      kind of the multiplication (AN_KIND_F32, _TF32, _BF16, _F16); accumulation is always f32
 *     AN_THREADS  threads of a block, a multiple of 32
 *     AN_VEC      8 when every row of every tensor is 16-byte aligned and has a multiple of 8 elements, else 1
 *     AN_EXACT    1: exp and log of base/exact.h, the same bits on every device; 0: the device's own */
#if AN_EXACT
#define AN_EXP(x) an_exp(x)
#define AN_LOG(x) an_log(x)
#else
#define AN_EXP(x) AN_FAST_EXP(x)
#define AN_LOG(x) AN_FAST_LOG(x)
#endif

/* ---- storage: f32, or 16-bit patterns, since not every language has the types */
#ifndef AN_STORE_B
#define AN_STORE_B AN_STORE
#endif
#if AN_STORE == AN_KIND_F32
typedef float an_store;
#else
typedef an_u16 an_store;
#endif
#if AN_STORE_B == AN_KIND_F32
typedef float an_store_b;
#else
typedef an_u16 an_store_b;
#endif

AN_FN float an_value(float x) { return x; }
#if AN_STORE == AN_KIND_F16 || AN_STORE_B == AN_KIND_F16
AN_FN float an_value(an_u16 x) { return an_f16_value(x); }
#else
AN_FN float an_value(an_u16 x) { return AN_U2F((an_u32)x << 16); }
#endif
#if AN_STORE == AN_KIND_F32
AN_FN an_store an_stored(float x) { return x; }
#elif AN_STORE == AN_KIND_BF16
AN_FN an_store an_stored(float x) { return (an_store)an_bf16_bits(x); }
#else
AN_FN an_store an_stored(float x) { return (an_store)an_f16_bits(x); }
#endif

/* x rounded to the multiplication kind, as an operand; a 16-bit kind that the language lacks is held as an f32 of that value. */
AN_FN an_mul an_to_mul(float x)
{
#if AN_MUL == AN_KIND_F32
    return x;
#elif AN_MUL == AN_KIND_TF32
    return an_tf32(x);
#else
    an_u32 bits = AN_MUL == AN_KIND_BF16 ? an_bf16_bits(x) : an_f16_bits(x);
    float kept = AN_MUL == AN_KIND_BF16 ? AN_U2F(bits << 16) : an_f16_value(bits);
    an_mul m;
    an_set_mul(m, bits, kept);
    return m;
#endif
}

/* Row pitch of a tile with n elements a row: 16 bytes of padding shift successive rows by 4 banks, so that 8 rows are read without bank
 * conflicts, and keep them 16-byte aligned. */
#define AN_LD(type, n) ((n) + 16 / (int)sizeof(type))

/* x[0..7] = p[0..7], p on 16 bytes. */
AN_FN void an_load8(AN_PRIVATE float *x, AN_DEVICE const float *p) { an_read8(x, p); }
AN_FN void an_load8(AN_PRIVATE float *x, AN_DEVICE const an_u16 *p)
{
    an_u16 bits[8];
    an_read8(bits, p);
    AN_UNROLL for (int i = 0; i < 8; i++) x[i] = an_value(bits[i]);
}

/* p[0..7] = x[0..7] in the multiplication kind; p is 16-byte aligned. */
AN_FN void an_store8(AN_SHARED an_mul *p, AN_PRIVATE const float *x)
{
    an_mul m[8];
    AN_UNROLL for (int i = 0; i < 8; i++) m[i] = an_to_mul(x[i]);
    an_write8(p, m);
}

/* tile[r][c] = src[r*stride + c*step] for all r < rows, c < cols (constants); zero where r >= rows_in or c >= cols_in, outside the tensor.
 * Called by the whole thread block; cols and cols_in are multiples of AN_VEC, and with AN_VEC 8 step is 1. */
template <class stored>
AN_FN void an_stage(AN_SHARED an_mul *tile, int ld, int rows, int cols, AN_DEVICE const stored *src, an_i64 stride, an_i64 step, int rows_in,
                    int cols_in, int me)
{
    for (int at = me * AN_VEC; at < rows * cols; at += AN_THREADS * AN_VEC) {
        int r = at / cols, c = at % cols;
        bool inside = r < rows_in && c < cols_in;
#if AN_VEC == 8
        float x[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
        if (inside) an_load8(x, src + r * stride + c);
        an_store8(tile + r * ld + c, x);
#else
        tile[r * ld + c] = an_to_mul(inside ? an_value(src[r * stride + c * step]) : 0.0f);
#endif
    }
}

/* acc[j] += A B[:, 8j..8j+7] for a strip A of 16 x depth. The tile of B has k as rows (_ab) or n as rows (_abt: B transposed). */
AN_FN void an_strip_ab(AN_PRIVATE an_frag_c *acc, int n8, AN_SHARED const an_mul *a, int lda, AN_SHARED const an_mul *b, int ldb, int depth AN_LANES)
{
    AN_UNROLL for (int k = 0; k < depth; k += 16)
    {
        an_frag_a fa;
        an_load_a(fa, a + k, lda AN_HAND_LANES);
        AN_UNROLL for (int j = 0; j < n8; j++)
        {
            an_frag_b fb;
            an_load_b(fb, b + k * ldb + 8 * j, ldb AN_HAND_LANES);
            an_mma(acc[j], fa, fb);
        }
    }
}
AN_FN void an_strip_abt(AN_PRIVATE an_frag_c *acc, int n8, AN_SHARED const an_mul *a, int lda, AN_SHARED const an_mul *b, int ldb, int depth AN_LANES)
{
    AN_UNROLL for (int k = 0; k < depth; k += 16)
    {
        an_frag_a fa;
        an_load_a(fa, a + k, lda AN_HAND_LANES);
        AN_UNROLL for (int j = 0; j < n8; j++)
        {
            an_frag_b fb;
            an_load_bt(fb, b + 8 * j * ldb + k, ldb AN_HAND_LANES);
            an_mma(acc[j], fa, fb);
        }
    }
}

/* The same with a B of `rows` x D in device memory (zero outside rows_in x D), staged through `tile` AN_DC columns at a time. Called by the
 * whole thread block; the first barrier ends earlier uses of the tile. AN_DP is D rounded up to 16. */
#ifdef AN_DC
#define AN_DP     ((AN_D + 15) / 16 * 16)
#define AN_LD_DC  AN_LD(an_mul, AN_DC)
AN_FN void an_stream_abt(AN_PRIVATE an_frag_c *acc, AN_SHARED const an_mul *a, int lda, AN_SHARED an_mul *tile, int rows, AN_DEVICE const an_store *b,
                         an_i64 stride, int rows_in, int me AN_LANES)
{
    AN_UNROLL for (int d = 0; d < AN_DP; d += AN_DC)
    {
        AN_BARRIER();
        an_stage(tile, AN_LD_DC, rows, AN_DC, b + d, stride, 1, rows_in, AN_D - d, me);
        AN_BARRIER();
        an_strip_abt(acc, rows / 8, a + d, lda, tile, AN_LD_DC, AN_DC AN_HAND_LANES);
    }
}
AN_FN void an_stream_ab(AN_PRIVATE an_frag_c *acc, AN_SHARED const an_mul *a, int lda, AN_SHARED an_mul *tile, int rows, AN_DEVICE const an_store *b,
                        an_i64 stride, int rows_in, int me AN_LANES)
{
    AN_UNROLL for (int d = 0; d < AN_DP; d += AN_DC)
    {
        AN_BARRIER();
        an_stage(tile, AN_LD_DC, rows, AN_DC, b + d, stride, 1, rows_in, AN_D - d, me);
        AN_BARRIER();
        an_strip_ab(acc + d / 8, AN_DC / 8, a, lda, tile, AN_LD_DC, rows AN_HAND_LANES);
    }
}
#endif

AN_FN void an_strip_zero(AN_PRIVATE an_frag_c *acc, int n8)
{
    AN_UNROLL for (int j = 0; j < n8; j++) an_zero_c(acc[j]);
}

/* strip[r][8j + c] = acc[j][r][c], visible to the subgroup. The first barrier ends earlier reads of the strip. */
AN_FN void an_strip_store(AN_SHARED float *strip, int ld, AN_PRIVATE const an_frag_c *acc, int n8 AN_LANES)
{
    AN_SUBGROUP_BARRIER();
    AN_UNROLL for (int j = 0; j < n8; j++) an_store_c(strip + 8 * j, ld, acc[j] AN_HAND_LANES);
    AN_SUBGROUP_BARRIER();
}

/* dst[r*stride + c] = acc[r][c] * factor of row r, for r < rows_in, c < cols_in: 8*wide columns at a time, through the strip so that stores
 * are coalesced. `factor` is that of this lane's row; the lanes that store a row get it by a shuffle. */
AN_FN void an_strip_write(AN_DEVICE an_store *dst, an_i64 stride, int rows_in, int cols_in, AN_PRIVATE const an_frag_c *acc, int n8,
                          float factor, AN_SHARED float *strip, int ld, int wide, int lane AN_LANES)
{
    AN_UNROLL for (int j = 0; j < n8; j += wide)
    {
        int n = n8 - j < wide ? n8 - j : wide;
        an_strip_store(strip, ld, acc + j, n AN_HAND_LANES);
        for (int r = 0; r < 16; r++) {
            float f = an_shuffle(factor, 2 * r);
            if (r < rows_in)
                for (int c = lane; c < 8 * n && 8 * j + c < cols_in; c += 32)
                    dst[r * stride + 8 * j + c] = an_stored(strip[r * ld + c] * f);
        }
    }
}

/* Reductions over a strip's row of 2n values, of which this lane holds x[i] = column 2i + parity and its neighbour the rest. The sum is a tree
 * that adds column c + half to column c until one is left (n is a power of two; x is overwritten). */
AN_FN float an_row_sum(AN_PRIVATE float *x, int n AN_LANES)
{
    AN_UNROLL for (int most = n / 2; most > 0; most /= 2)
        AN_UNROLL for (int i = 0; i < most; i++) x[i] += x[i + most];
    return x[0] + an_shuffle_xor(x[0], 1);
}
AN_FN float an_row_max(AN_PRIVATE const float *x, int n AN_LANES)
{
    float m = x[0];
    AN_UNROLL for (int i = 1; i < n; i++) m = x[i] > m ? x[i] : m;
    float other = an_shuffle_xor(m, 1);
    return other > m ? other : m;
}
