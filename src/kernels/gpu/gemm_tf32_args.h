/* gemm_tf32_args.h: what gemm_tf32.inc is told at run time, and what its launches have to know: sizes of a tile, of the steps of k, of the ring. */
#define AN_TF32_TILE    192
#define AN_TF32_DEEP    32
#define AN_TF32_STAGES  3
#define AN_TF32_THREADS 512 /* three warpgroups that multiply, one that copies and turns */
#define AN_TF32_LEFT    (AN_TF32_DEEP * (4 * AN_TF32_TILE + 32)) /* bytes of a step of A, of B, and of B turned: gaps keep banks apart */
#define AN_TF32_RIGHT   (AN_TF32_DEEP * (4 * AN_TF32_TILE + 16))
#define AN_TF32_TRANSPOSED  (AN_TF32_DEEP * 4 * AN_TF32_TILE)
#define AN_TF32_SHARED  (1024 + AN_TF32_STAGES * (AN_TF32_TRANSPOSED + AN_TF32_LEFT + AN_TF32_RIGHT + 48))
#define AN_TF32_REDUCE    256 /* threads of gemm_tf32_reduce */
#define AN_TF32_ONTO     1   /* `add` */
#define AN_TF32_IN_PLACE 2
struct an_gemm_tf32_args {
    an_i64 lda, ldb, ldc; /* from a row of k, or of C, to the next */
    int m, n;
    int k, k_per_split; /* rows of k that one block sums: a multiple of AN_TF32_DEEP, as k is */
    int add;      /* C is what stands in `onto`, or in C, and the product */
    int zero;     /* the size is a multiple of 8 */
};
