/* transpose_args.h: run-time arguments of transpose.inc, and its tile. */
#define AN_TRANSPOSE_TILE    32
#define AN_TRANSPOSE_THREADS 256
struct an_transpose_args {
    an_i64 stride; /* elements from a row of x to the next; y is dense */
    int rows, cols;
};
