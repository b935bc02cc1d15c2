/* scatter_args.h: what a scatter launch is told at run time; strides in elements. The same bytes in C, CUDA and MSL. */
struct an_scatter_args {
    an_i64 src_stride, out_stride;
    int n, rows, c;
    int accumulate; /* sums start from `onto` instead of 0 */
};
