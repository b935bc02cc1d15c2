// expect: banned
#include <metal_stdlib>
using namespace metal;
kernel void k(device float *out [[buffer(0)]], uint t [[thread_index_in_threadgroup]], uint sub [[simdgroup_index_in_threadgroup]], uint3 g [[threadgroup_position_in_grid]])
{
    again: out[t] += 1.0f; if (out[t] < 3.0f) goto again;
}
