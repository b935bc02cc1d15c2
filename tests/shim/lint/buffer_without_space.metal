// expect: space
#include <metal_stdlib>
using namespace metal;
kernel void k(float *a [[buffer(0)]]) { a[0] = 1.0f; }
