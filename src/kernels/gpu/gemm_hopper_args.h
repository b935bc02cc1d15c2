/* gemm_hopper_args.h: what gemm_hopper.inc is told at run time, and what its launch has to know. The maps: 128-byte swizzle, bf16, boxes of
 * A 64 (k) by AN_PRODUCT_M; of B, along k, 64 by AN_PRODUCT_N / AN_PRODUCT_CLUSTER, along n, 64 by 64 / AN_PRODUCT_CLUSTER rows of k. */
#ifndef AN_PRODUCT_N
#define AN_PRODUCT_M       128 /* a tile */
#define AN_PRODUCT_N       192
#define AN_PRODUCT_STAGES  5
#define AN_PRODUCT_CLUSTER 2 /* groups that share B */
#define AN_PRODUCT_GROUPS  2 /* warpgroups that multiply */
#endif
#define AN_PRODUCT_THREADS (128 * (AN_PRODUCT_GROUPS + 1))
#define AN_PRODUCT_SHARED  (1024 + AN_PRODUCT_STAGES * (128 * (AN_PRODUCT_M + AN_PRODUCT_N) + 16) + 2048 * 4 * AN_PRODUCT_GROUPS)
struct an_gemm_hopper_args {
    int m, n, k;
    int band; /* columns of tiles whose B stays in the cache while A passes by */
};
#ifdef AN_KERNEL /* compiled as a kernel */
struct alignas(64) an_tensor_map {
    an_u64 opaque[16];
};
#endif
