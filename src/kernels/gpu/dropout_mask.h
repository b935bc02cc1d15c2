/* dropout_mask.h: the dropout mask of attention on a GPU: which probabilities are kept. It is computed in registers where it is applied, forward
 * and backward, and never stored (but: attn_mask in attn_hopper.inc). Compiled behind base/exact.h and attn_args.h.
 *
 * Row of the probabilities of (sample b, head h, query i), b counted in the whole batch: (b H + h) T + i. Four keys share the 64 bits of a random
 * number: key j has the 16 bits j % 4 of number row * ceil(S / 4) + j / 4. The same mask: kernels/cpu/dropout_mask.h, oracle/kernel_oracle.c. */
AN_FN an_u64 an_dropout_row(AN_ARGS_REF(an_attn_args) a, an_u64 sample, int h, int i)
{
    return (sample * a.H + h) * a.T + i;
}
/* The two words of a random number (base/rng.h), where an_philox gives the lower one. */
AN_FN an_u64 an_philox_words(an_u32 key, an_u32 stream, an_u64 index)
{
    an_u32 a = (an_u32)index, b = stream ^ (an_u32)(index >> 32) * 0x9e3779b9u;
    AN_PHILOX_ROUND_ AN_PHILOX_ROUND_ AN_PHILOX_ROUND_ AN_PHILOX_ROUND_ AN_PHILOX_ROUND_ AN_PHILOX_ROUND_ AN_PHILOX_ROUND_
    return (an_u64)b << 32 | a;
}
/* The numbers of keys 4 (j / 4) to 4 (j / 4) + 3. */
AN_FN an_u64 an_dropout_words(AN_ARGS_REF(an_attn_args) a, an_u32 key, an_u64 row, int j)
{
    return an_philox_words(key, a.stream, row * ((a.S + 3) / 4) + (j >> 2));
}
AN_FN bool an_dropout_keeps(AN_ARGS_REF(an_attn_args) a, an_u64 words, int j)
{
    return ((an_u32)(words >> 16 * (j & 3)) & 0xffffu) >= a.keep_at_least;
}
#ifdef __CUDACC__
/* Bits 0 to 3: which of four keys are kept. */
AN_FN an_u32 an_dropout_four(AN_ARGS_REF(an_attn_args) a, an_u64 words)
{
    const an_u32 low = (an_u32)words, high = (an_u32)(words >> 32), least = a.keep_at_least << 16;
    return (low << 16 >= least ? 1u : 0u) | (low >= least ? 2u : 0u) | (high << 16 >= least ? 4u : 0u) | (high >= least ? 8u : 0u);
}
/* Bit 4 j + e says that element c[j][e] of a tile is kept, laid out as in an_mma16: rows r and r + 8, r = lane / 4 of a warp's 16, columns
 * 8 j + t and 8 j + t + 1, t = 2 (lane % 4). BY_KEY: rows are keys, columns queries; else the other way round. `row` is that of query 0 of the
 * tile's rows, or columns; `first` is key 0, a multiple of 8. Only blocks of 8 columns [from, to), in fours, are computed. Lanes that need the same
 * numbers (two, and BY_KEY four) draw a part of them each. All lanes of a warp come here. */
template <int BLOCKS, bool BY_KEY>
AN_FN an_u32 an_dropout_bits(AN_ARGS_REF(an_attn_args) a, an_u32 seed, an_u64 row, int first, int from, int to)
{
    const int lane = an_lane, r = lane >> 2, t = (lane & 3) * 2, fours = (a.S + 3) / 4;
    const int part = BY_KEY ? r & 3 : lane & 1; /* the lane's: which of two rows 8 apart and, BY_KEY, above it, of two columns */
    const an_u64 at = BY_KEY ? (row + (t + (part & 1))) * fours + ((first + r + 8 * (part >> 1)) >> 2)
                             : (row + (r + 8 * part)) * fours + ((first + t) >> 2);
    const an_u64 step = BY_KEY ? 8ull * fours : 2ull;
    an_u32 mine = 0, bits = 0;
    AN_UNROLL for (int n = 0; n < BLOCKS; n += 4)
    {
        if (n >= to || n + 4 <= from) continue;
        an_u32 word[4], other[4];
        AN_UNROLL for (int j = 0; j < 4; j++)
        {
            const an_u64 index = at + (n + j) * step;
            word[j] = (an_u32)index, other[j] = a.stream ^ (an_u32)(index >> 32) * 0x9e3779b9u;
        }
        AN_UNROLL for (int round = 0; round < 7; round++)
            AN_UNROLL for (int j = 0; j < 4; j++)
            {
                an_u32 a = word[j], b = other[j], key = seed + round * 0x9e3779b9u;
                AN_PHILOX_ROUND_
                word[j] = a, other[j] = b;
            }
        AN_UNROLL for (int j = 0; j < 4; j++)
            if (n + j < BLOCKS) mine |= an_dropout_four(a, (an_u64)other[j] << 32 | word[j]) << (4 * (n + j) & 31);
    }
    if (BY_KEY) {
        AN_UNROLL for (int e = 0; e < 4; e++) bits |= (an_shuffle(mine, (lane & ~12) | 4 * e) >> (r & 3) & 0x11111111u) << e;
        return bits;
    }
    const an_u32 others = an_shuffle_xor(mine, 1);
    const an_u32 two = 0x33333333u;
    return ((part ? others : mine) >> (t & 2) & two) | ((part ? mine : others) >> (t & 2) & two) << 2;
}
#endif
