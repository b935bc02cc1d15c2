// expect: program-scope
#include <metal_stdlib>
using namespace metal;
const float table[2] = {1.0f, 2.0f};
kernel void k(device float *out [[buffer(0)]], uint t [[thread_index_in_threadgroup]], uint sub [[simdgroup_index_in_threadgroup]], uint3 g [[threadgroup_position_in_grid]]) { out[t] = table[0]; }
