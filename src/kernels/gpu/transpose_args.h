/* transpose_args.h: what transpose.inc is told at run time, and its tiles. */
#define AN_TRANSPOSE_TILE    32
#define AN_TRANSPOSE_THREADS 256
struct an_transpose_args {
    an_i64 stride; /* elements from a row of x to the next; a row of y has no gaps */
    int rows, cols;
};
