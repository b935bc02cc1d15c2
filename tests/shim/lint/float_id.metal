// expect: attribute
#include <metal_stdlib>
using namespace metal;
kernel void k(device float *a [[buffer(0)]], float t [[thread_index_in_threadgroup]]) { a[0] = t; }
