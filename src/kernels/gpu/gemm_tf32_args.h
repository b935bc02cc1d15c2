/* gemm_tf32_args.h: run-time arguments of gemm_tf32.inc, and the constants its launches must know: tile, k per stage, ring. */
#define AN_TF32_TILE    192
#define AN_TF32_DEEP    32
#define AN_TF32_STAGES  3
#define AN_TF32_THREADS 512 /* three warpgroups multiply and copy, one transposes B */
#define AN_TF32_LEFT    (AN_TF32_DEEP * (4 * AN_TF32_TILE + 32)) /* bytes of one stage of A, of B, and of B transposed: row padding avoids bank conflicts */
#define AN_TF32_RIGHT   (AN_TF32_DEEP * (4 * AN_TF32_TILE + 16))
#define AN_TF32_TRANSPOSED  (AN_TF32_DEEP * 4 * AN_TF32_TILE)
#define AN_TF32_SHARED  (1024 + AN_TF32_STAGES * (AN_TF32_TRANSPOSED + AN_TF32_LEFT + AN_TF32_RIGHT + 48))
#define AN_TF32_REDUCE    256 /* threads of a block of gemm_tf32_reduce */
#define AN_TF32_ONTO     1   /* `add` */
#define AN_TF32_IN_PLACE 2
struct an_gemm_tf32_args {
    an_i64 lda, ldb, ldc; /* from a row of k, or of C, to the next */
    int m, n;
    int k, k_per_split; /* rows of k that one block sums: a multiple of AN_TF32_DEEP, as k is */
    int add;      /* 0: C = A B; AN_TF32_ONTO: C = onto + A B; AN_TF32_IN_PLACE: C += A B */
    int zero;     /* the size is a multiple of 8 */
};
