// expect: threadgroup
#include <metal_stdlib>
using namespace metal;
static inline void f() { threadgroup float s[4]; s[0] = 1.0f; }
kernel void k(device float *out [[buffer(0)]], uint t [[thread_index_in_threadgroup]], uint sub [[simdgroup_index_in_threadgroup]], uint3 g [[threadgroup_position_in_grid]]) { f(); out[t] = 1.0f; }
