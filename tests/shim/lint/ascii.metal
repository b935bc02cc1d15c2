// expect: ascii
kernel void k(device float *a [[buffer(0)]]) { a[0] = 1.0f; } // naïve
