// language.metal: what the language has and public kernels use, a line each: every kernel writes what its test computes by plain C.
#include <metal_stdlib>
#include <metal_atomic>
using namespace metal;

constant constexpr int THREE = 3;
constant float table[4] = {1.0, 2.0, 4.0, 8.0};
constant int chosen [[function_constant(0)]];
constant float factor [[function_constant(1)]];
constant int turns = is_function_constant_defined(chosen) ? chosen : 7;
constant constexpr uint WIDTH = 32u;

namespace outer
{
namespace inner
{
template <int N> struct Power {
    static constexpr constant int value = 2 * Power<N - 1>::value;
    METAL_FUNC static float of(float x) { return x * value; }
};
template <> struct Power<0> {
    static constexpr constant int value = 1;
};

kernel void in_a_namespace(device float *out [[buffer(0)]], uint i [[thread_position_in_grid]])
{
    out[i] = Power<THREE>::of(float(i)) + table[i % 4];
}
}
}

kernel void vectors(device const uint *in [[buffer(0)]], device float *out [[buffer(1)]], uint i [[thread_position_in_grid]])
{
    const uint2 a = uint2(in[i], i);
    const uint3 b = uint3(a, 3u);
    const float4 c(float2(a), 0.5, 1);
    float3 d = c.xyz * 2;
    d.yz += float2(1, 2);
    const int4 e = int4(c) << 1;
    const bool3 f = d > float3(4);
    const packed_float3 g = packed_float3(d);
    out[4 * i] = d.x + d.y + d.z + b.z;
    out[4 * i + 1] = float(e.x + e.y + e.w) + (any(f) ? 100 : 0) + g[1];
    out[4 * i + 2] = select(1.0f, 2.0f, all(f)) + c.rgba.a + max(a.x, 2u) + clamp(int(i), 1, 5);
    out[4 * i + 3] = as_type<float>(as_type<uint>(c.y)) + popcount(in[i]) + clz(in[i] | 1u) + abs(-2) + float(mulhi(0x80000000u, in[i]));
}

kernel void halves(device half *h [[buffer(0)]], device float *out [[buffer(1)]], uint i [[thread_position_in_grid]])
{
    half x = h[i];
    x = x * 1.5h + half(0.25);
    const half2 y(x, h[i] > 0 ? h[i] : 0.0f);
    h[i] = y.x;
    out[i] = float(y.y * y.y) + numeric_limits<half>::max();
}

#if __METAL_VERSION__ >= 310
kernel void bfloats(device bfloat *b [[buffer(0)]], device float *out [[buffer(1)]], uint i [[thread_position_in_grid]])
{
    const bfloat x = b[i], y = bfloat(1.0f / 3.0f);
    bfloat2 z(x, y);
    z = z * z + bfloat2(y);
    b[i] = bfloat(float(x) * 3 + 0.1f);
    out[2 * i] = z.x, out[2 * i + 1] = float(z.y) + 2 * x;
}
#endif

kernel void specialized(device float *out [[buffer(0)]], device const float *extra [[buffer(1), function_constant(factor)]],
                        uint i [[thread_position_in_grid]])
{
    float x = i;
    for (int k = 0; k < turns; k++) x = x + 1;
    out[i] = x * factor;
}

kernel void groups(device uint *out [[buffer(0)]], threadgroup atomic_int *counter [[threadgroup(0)]], uint i [[thread_position_in_threadgroup]],
                   ushort lane [[thread_index_in_simdgroup]])
{
    if (i == 0) atomic_store_explicit(counter, 5, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    atomic_fetch_add_explicit(counter, int(i), memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint down = simd_shuffle_down(i, 1), up = simd_shuffle_up(i, 2), inclusive = simd_prefix_inclusive_sum(i % 32u);
    const ulong votes = (ulong)simd_ballot(lane % 3 == 0);
    out[i] = uint(atomic_load_explicit(counter, memory_order_relaxed)) + 7u * down + 11u * up + 13u * inclusive + 17u * popcount(uint(votes)) +
             19u * quad_sum(i) + 23u * simd_broadcast(i, 3) + (simd_any(lane == 31) ? 29u : 0u) + uint(WIDTH);
}
