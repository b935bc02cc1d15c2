/* gemm_args.h: run-time arguments of the GEMM kernels (gemm.inc, conv_bf16.inc); strides in elements, as in an_gemm_spec. Tile sizes and
 * kinds are compiled in. The layout is the same in C, CUDA and MSL: 8-byte members come first. */

/* n / divisor for 0 <= n < 2^31 is the upper word of n * magic, shifted right; magic 0: n itself. (Granlund and Montgomery, PLDI 1994.) */
struct an_divisor {
    an_u32 magic, shift;
};
/* The window matrix of a convolution (an_window_spec); pairs are of the vertical and the horizontal axis. Output (y, x) and tap (i, j) read the
 * pixel (y step - or + i tap + start) / apart of the image, 0 where that is outside of it or no whole number. */
struct an_window_args {
    int out[2];   /* height and width of the output */
    int in[2];    /* of the image */
    int step[2];  /* stride of the windows */
    int tap[2];   /* distance of the taps: the dilation, negative for the gradient by the image */
    int start[2]; /* where the first window begins; forward: minus the padding */
    int apart[2]; /* distance of the image's pixels where zeros are between them (the gradient by the image: the stride); else 1 */
    int taps;     /* width of the kernel */
    int channels; /* in a pixel, of this group */
    int pixel;    /* elements from one pixel to the next */
    struct an_divisor by_out[2], by_taps, by_channels;
};
struct an_gemm_args {
    an_i64 a_b[3], a_m, a_k;
    an_i64 b_b[3], b_k, b_n;
    an_i64 c_b[3], c_m;
    int m, n, k;
    int nb[3];      /* batch extents, outermost first */
    int k_per_split;     /* k, or ceil(k / splits) */
    struct an_window_args w;
};
