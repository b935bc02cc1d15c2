/* hopper.h: words of kernels/gpu/gemm_hopper.inc and gemm_tf32.inc, for sm_90a alone, behind cuda.h: barriers in shared memory, rings, descriptors
 * of tiles for products of whole warpgroups (wgmma). Attention has its own (attn_hopper.inc).
 *
 * Owns:      their spelling in PTX. Does not: decide what waits for what.
 * Knows:     tiles lie as wgmma's 128-byte swizzle wants them: 16-byte chunk c of row r at place c ^ r % 8, rows of 128 bytes, tiles from a
 *            multiple of 1024. Addresses of shared memory are 32-bit words. */
/* One group a multiprocessor, `cluster` of them together. */
#define AN_KERNEL_OF_CLUSTERS(name, threads, cluster)                                                                  \
    extern "C" __global__ void __cluster_dims__(cluster, 1, 1) __launch_bounds__(threads, 1) name
#define AN_SETMAXNREG(change, n) asm volatile("setmaxnreg." change ".sync.aligned.u32 %0;" ::"n"(n))

/* Told by the first lane: so the compiler sees that it is the same for a warp, and computes with it once a warp. */
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
/* One arrival for a warp, when all of it is done. */
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

AN_FN an_u64 an_wgmma_desc(an_u32 tile) /* wgmma's words for a tile: 1024 bytes from 8 rows to the next 8, 128-byte swizzle */
{
    return (an_u64)((tile & 0x3ffffu) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
/* All products but the last LEFT that were begun are done. */
template <int LEFT> AN_FN void an_wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }
/* What will be read is brought to the second cache. */
AN_FN void an_prefetch(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
