// expect: attribute
#include <metal_stdlib>
using namespace metal;
kernel void k(device float *a [[buffer(0)]], uint3 g [[threadgroup_position_in_grid]], ushort t [[thread_index_in_threadgroup]]) { a[g.x] = float(t); }
