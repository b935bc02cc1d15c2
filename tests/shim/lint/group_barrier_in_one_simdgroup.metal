// expect: divergent
#include <metal_stdlib>
using namespace metal;
kernel void k(device float *out [[buffer(0)]], uint t [[thread_index_in_threadgroup]], uint sub [[simdgroup_index_in_threadgroup]], uint3 g [[threadgroup_position_in_grid]])
{
    if (sub == 0u) threadgroup_barrier(mem_flags::mem_threadgroup);
    out[t] = 1.0f;
}
