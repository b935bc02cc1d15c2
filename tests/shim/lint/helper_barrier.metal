// expect: divergent
#include <metal_stdlib>
using namespace metal;
static inline void meet() { threadgroup_barrier(mem_flags::mem_threadgroup); }
static inline void deep(uint n) { if (n < 3u) meet(); }
kernel void k(device float *out [[buffer(0)]], uint t [[thread_index_in_threadgroup]], uint sub [[simdgroup_index_in_threadgroup]], uint3 g [[threadgroup_position_in_grid]]) { deep(t); out[t] = 1.0f; }
