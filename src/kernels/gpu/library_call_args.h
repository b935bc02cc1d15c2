/* library_call_args.h: run-time arguments of the library calls (sort.inc, scan_pool.inc, linalg.inc, grouped.inc). The layout is the same in C, CUDA and
 * MSL: the 8-byte member comes first. */
struct an_call_args {
    an_i64 each;    /* elements of one thread block's work memory, where that is device memory */
    int units;      /* rows or matrices */
    int m, n;       /* of a matrix; a row has n elements */
    int k;          /* columns of a right side; elements kept of a sorted row; padded length of a row */
    int flag;       /* sort: descending; cumsum: reverse; triangular solve: upper; draw: greedy */
    int also;       /* triangular solve: transposed; draw: top_p in units of 2^-24, 0 without */
    /* windows: x and dx [units,H,W,C], dy [units,OH,OW,C] */
    int H, W, C, OH, OW;
    int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    float scale; /* of a draw: 1 / temperature */
    an_u32 key;  /* of its random words */
    int zero; /* unused; makes the size a multiple of 8 bytes in every language */
};

/* grouped.inc: x [S,M] at strides a, w at strides b: [E,M,N], or for grouped_outer [S,N]. */
#define AN_TILE_M 64 /* of a thread block */
#define AN_TILE_N 64
struct an_grouped_args {
    an_i64 a[2], b[3];
    int S, E, M, N;
};
