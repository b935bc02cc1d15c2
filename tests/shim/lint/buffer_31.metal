// expect: buffer
#include <metal_stdlib>
using namespace metal;
kernel void k(device float *a [[buffer(31)]]) { a[0] = 1.0f; }
