/* gemm_args.h: what a matrix product is told at run time; strides in elements, as in an_gemm_spec. Tile sizes and kinds are compiled in.
 * The same bytes in C, CUDA and MSL: the wide members come first. */
struct an_gemm_args {
    an_i64 a_b[3], a_m, a_k;
    an_i64 b_b[3], b_k, b_n;
    an_i64 c_b[3], c_m;
    int m, n, k;
    int nb[3];      /* batch extents, outermost first */
    int chain;      /* k of one chain: k, or ceil(k / splits) */
    int accumulate; /* C += product */
};
