/* hopper.h: PTX of sm_90a for gemm_hopper.inc and gemm_tf32.inc, after cuda.h: mbarriers, rings of stages, and shared-memory descriptors for
 * wgmma. Attention has its own copies (attn_hopper.inc).
 *
 * Does not:  decide what waits for what.
 * Layout:    tiles have wgmma's 128-byte swizzle: rows of 128 bytes, 16-byte chunk c of row r at chunk c ^ r % 8, tiles aligned to 1024 bytes.
 *            Shared-memory addresses are 32-bit. */
/* One thread block a multiprocessor, in clusters of `cluster`. */
#define AN_KERNEL_OF_CLUSTERS(name, threads, cluster)                                                                  \
    extern "C" __global__ void __cluster_dims__(cluster, 1, 1) __launch_bounds__(threads, 1) name
#define AN_SETMAXNREG(change, n) asm volatile("setmaxnreg." change ".sync.aligned.u32 %0;" ::"n"(n))

/* Broadcast from lane 0, so that the compiler knows it is uniform in a warp. */
AN_FN int an_warpgroup() { return an_shuffle(an_subgroup >> 2, 0); }
AN_FN an_u32 an_shared_base()
{
    extern __shared__ uint4 an_dynamic[];
    return ((an_u32)__cvta_generic_to_shared(an_dynamic) + 1023u) & ~1023u;
}
AN_FN void an_mbar_init(an_u32 bar, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
/* One arrival per warp, after all its lanes are done. */
AN_FN void an_mbar_arrive(an_u32 bar)
{
    __syncwarp();
    if (an_lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
AN_FN void an_mbar_wait(an_u32 bar, an_u32 phase)
{
    an_u32 done;
    do
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(bar), "r"(phase)
                     : "memory");
    while (!done);
}
struct an_ring {
    int stage;
    an_u32 phase;
};
AN_FN void an_ring_next(an_ring &r, int stages)
{
    if (++r.stage == stages) r.stage = 0, r.phase ^= 1u;
}

AN_FN an_u64 an_wgmma_desc(an_u32 tile) /* descriptor of a tile: 8-row stride 1024 bytes, 128-byte swizzle */
{
    return (an_u64)((tile & 0x3ffffu) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
/* Waits until all wgmma groups but the last LEFT are complete. */
template <int LEFT> AN_FN void an_wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }
/* To tf32, to nearest, ties to even: one instruction here, where an_tf32 (ties away from zero) takes three. */
AN_FN float an_tf32_even(float x)
{
    an_u32 bits;
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return __uint_as_float(bits);
}
/* Prefetches into the L2 cache. */
AN_FN void an_prefetch(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

/* Two bf16 in a word: two numbers rounded; and products, rounded as those of f32 would be, for they are exact there (but for
 * those under 2^-126, which f32 flushes to 0 here). */
AN_FN an_u32 an_bf16_pair(float low, float high)
{
    an_u32 x;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
    return x;
}
AN_FN an_u32 an_bf16_product(an_u32 x, an_u32 y)
{
    an_u32 xy;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(xy) : "r"(x), "r"(y));
    return xy;
}
