// expect: kernel
#include <metal_stdlib>
using namespace metal;
kernel void main(device float *out [[buffer(0)]], uint t [[thread_index_in_threadgroup]], uint sub [[simdgroup_index_in_threadgroup]], uint3 g [[threadgroup_position_in_grid]]) { out[t] = 1.0f; }
