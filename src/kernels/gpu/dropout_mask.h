/* dropout_mask.h: the dropout mask of attention on a GPU: which probabilities are kept. It is computed in registers where it is applied, forward
 * and backward, and never stored. Compiled behind base/exact.h and attn_args.h.
 *
 * Index of the probability of (sample b, head h, query i, key j), b counted in the whole batch: ((b H + h) T + i) S + j, as in an_attn_spec.
 * Many at once: an_dropout_bits in attn_tf32.inc and attn_hopper.inc. The same mask: kernels/cpu/dropout_mask.h, oracle/kernel_oracle.c. */
AN_FN bool an_dropout_keeps(AN_ARGS_REF(an_attn_args) a, an_u32 key, an_u64 index)
{
    return (an_philox(key, a.stream, (an_u32)index, (an_u32)(index >> 32)) >> 8) >= a.keep_at_least;
}
