// expect: none
#include <metal_stdlib>
using namespace metal;
kernel void k(device float *out [[buffer(0)]], uint t [[thread_index_in_threadgroup]], uint sub [[simdgroup_index_in_threadgroup]], uint3 g [[threadgroup_position_in_grid]])
{
    threadgroup float s[64];
    s[t] = float(t);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (g.x > 1u) threadgroup_barrier(mem_flags::mem_threadgroup);
    if (sub == 0u) s[t] = simd_sum(s[t]);
    for (uint i = 0u; i < 4u; i++) out[t] += simd_shuffle_xor(s[t], ushort(i));
    if (t > 3u) return;
    out[t] = 1.0f;
}
