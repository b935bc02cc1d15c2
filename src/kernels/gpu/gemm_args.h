/* gemm_args.h: run-time arguments of the GEMM kernels (gemm.inc, conv_bf16.inc); strides in elements, as in an_gemm_spec. Tile sizes and
 * kinds are compiled in. The layout is the same in C, CUDA and MSL: 8-byte members come first. */

/* n / divisor for 0 <= n < 2^31 is the upper word of n * magic, shifted right; magic 0: n itself. (Granlund and Montgomery, PLDI 1994.) */
struct an_divisor {
    an_u32 magic, shift;
};
struct an_window_args { /* an_window_spec: the window matrix of a convolution */
    int out[2], in[2], step[2], tap[2], start[2], apart[2];
    int taps, channels, pixel; /* taps: kernel width */
    int unused;
    struct an_divisor by_out[2], by_taps, by_channels;
};
struct an_gemm_args {
    an_i64 a_b[3], a_m, a_k;
    an_i64 b_b[3], b_k, b_n;
    an_i64 c_b[3], c_m;
    int m, n, k;
    int nb[3];      /* batch extents, outermost first */
    int k_per_split;     /* k, or ceil(k / splits) */
    int accumulate; /* C += A B */
    struct an_window_args w;
};
