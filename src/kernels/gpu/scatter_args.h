/* scatter_args.h: run-time arguments of scatter.inc; strides in elements. The same layout in C, CUDA and MSL. */
struct an_scatter_args {
    an_i64 src_stride, out_stride;
    int n, rows, c;
    int accumulate; /* sums start from 1: `onto`, 2: what `out` holds (`onto` is not read), instead of 0 */
};
