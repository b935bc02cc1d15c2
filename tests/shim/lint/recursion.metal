// expect: recursion
#include <metal_stdlib>
using namespace metal;
static inline int f(int n) { return n < 2 ? 1 : n * f(n - 1); }
kernel void k(device float *out [[buffer(0)]], uint t [[thread_index_in_threadgroup]], uint sub [[simdgroup_index_in_threadgroup]], uint3 g [[threadgroup_position_in_grid]]) { out[t] = float(f(3)); }
