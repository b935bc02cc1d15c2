/* gemm_hopper_args.h: what gemm_hopper.inc is told at run time, and what its launch has to know. The maps: 128-byte swizzle, bf16, boxes of
 * A 64 (k) by AN_HGEMM_M; of B, along k, 64 by AN_HGEMM_N / AN_HGEMM_CLUSTER, along n, 64 by 64 / AN_HGEMM_CLUSTER rows of k. */
#ifndef AN_HGEMM_N
#define AN_HGEMM_M       128 /* a tile */
#define AN_HGEMM_N       192
#define AN_HGEMM_STAGES  5
#define AN_HGEMM_CLUSTER 2 /* groups that share B */
#define AN_HGEMM_WARPGROUPS  2 /* warpgroups that multiply */
#endif
#define AN_HGEMM_THREADS (128 * (AN_HGEMM_WARPGROUPS + 1))
#define AN_HGEMM_SHARED  (1024 + AN_HGEMM_STAGES * (128 * (AN_HGEMM_M + AN_HGEMM_N) + 16) + 2048 * 4 * AN_HGEMM_WARPGROUPS)
struct an_gemm_hopper_args {
    int m, n, k;
    int band; /* columns of tiles whose B stays in the cache while A passes by */
};
#ifdef AN_KERNEL /* compiled as a kernel */
struct alignas(64) an_tensor_map {
    an_u64 opaque[16];
};
#endif
