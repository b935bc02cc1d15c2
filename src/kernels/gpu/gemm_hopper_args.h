/* gemm_hopper_args.h: run-time arguments of gemm_hopper.inc, and the constants its launch must know. Tensor maps: 128-byte swizzle, bf16;
 * boxes of A are 64 (k) by AN_HGEMM_M, by 64 for a pair, when its rows run along k; else 64 by 64 rows of k. Boxes of B are 64 by
 * AN_HGEMM_N / AN_HGEMM_CLUSTER when its rows run along k, else 64 by 64 / AN_HGEMM_CLUSTER rows of k. */
#define AN_HGEMM_NARROW_N          128 /* where the sum is short and the end long: three warpgroups are at their ends, not two */
#define AN_HGEMM_NARROW_STAGES     6
#define AN_HGEMM_NARROW_WARPGROUPS 3
#ifndef AN_HGEMM_N
#define AN_HGEMM_M       128 /* rows of a C tile */
#define AN_HGEMM_CLUSTER 2 /* thread blocks that share B */
#ifdef AN_NARROW
#define AN_HGEMM_N          AN_HGEMM_NARROW_N
#define AN_HGEMM_STAGES     AN_HGEMM_NARROW_STAGES
#define AN_HGEMM_WARPGROUPS AN_HGEMM_NARROW_WARPGROUPS
#else
#define AN_HGEMM_N          192
#define AN_HGEMM_STAGES     5
#define AN_HGEMM_WARPGROUPS 2 /* that multiply */
#endif
#endif
#define AN_HGEMM_DEPTH   64 /* k of a stage */
#define AN_HGEMM_THREADS_OF(groups) (128 * ((groups) + 1))
#define AN_HGEMM_SHARED_OF(n, stages, groups) (1024 + (stages) * (128 * (AN_HGEMM_M + (n)) + 16) + 2048 * 4 * (groups))
#define AN_HGEMM_THREADS AN_HGEMM_THREADS_OF(AN_HGEMM_WARPGROUPS)
#define AN_HGEMM_SHARED  AN_HGEMM_SHARED_OF(AN_HGEMM_N, AN_HGEMM_STAGES, AN_HGEMM_WARPGROUPS)
#define AN_HGEMM_READS_STAGES (AN_HGEMM_STAGES - 1) /* of a pair that reads beside its sums, which is not narrow */
#define AN_HGEMM_READS_STRIPS 4
#define AN_HGEMM_READS_SHARED AN_HGEMM_SHARED_OF(AN_HGEMM_N, AN_HGEMM_READS_STAGES, AN_HGEMM_READS_STRIPS * AN_HGEMM_WARPGROUPS)
#define AN_HGEMM_REDUCE    256 /* threads of a block of gemm_reduce */
#define AN_HGEMM_ONTO     1   /* `add` */
#define AN_HGEMM_IN_PLACE 2
struct an_gemm_hopper_args {
    int m, n, k; /* m: rows of the epilogue, half of A's for a pair */
    int band; /* tile columns per band: their B stays in the L2 cache while the rows of A are streamed */
    /* of gemm_hopper_plain.inc alone */
    int turns, splits; /* stages of k that a part of the sum takes, and how many parts there are */
    int add;    /* 0: C = A B; AN_HGEMM_ONTO: C = onto + A B; AN_HGEMM_IN_PLACE: C += A B */
    int wide;   /* rows of C begin on 16 bytes, in f32 on 8 */
    an_i64 ldc; /* from a row of C to the next */
};
#ifdef AN_KERNEL /* compiled as a kernel */
struct alignas(64) an_tensor_map {
    an_u64 opaque[16];
};
#endif
