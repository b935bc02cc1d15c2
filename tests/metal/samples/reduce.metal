// reduce.metal: rows reduced by a threadgroup, in the style of public softmax and norm kernels: several values a thread, SIMD groups, then one
// value a group; a function that takes the operation as a type.
#include <metal_stdlib>

using namespace metal;

struct Sum {
    template <typename T> METAL_FUNC static T simd(T x) { return metal::simd_sum(x); }
    template <typename T> static constexpr constant T start = T(0);
    float operator()(float a, float b) { return a + b; }
};
struct Max {
    template <typename T> METAL_FUNC static T simd(T x) { return metal::simd_max(x); }
    template <typename T> static constexpr constant T start = metal::numeric_limits<T>::lowest();
    float operator()(float a, float b) { return a > b ? a : b; }
};

template <typename Op> inline float over_group(float x, threadgroup float *part, uint lane, uint group, uint groups)
{
    x = Op::simd(x);
    if (lane == 0) part[group] = x;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    x = Op::simd(lane < groups ? part[lane] : Op::template start<float>);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return x;
}

template <typename T, int N_READS = 4>
[[kernel]] void softmax(const device T *in, device T *out, constant int &axis_size, uint row [[threadgroup_position_in_grid]],
                        uint lid [[thread_position_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                        uint group [[simdgroup_index_in_threadgroup]], uint groups [[simdgroups_per_threadgroup]])
{
    threadgroup float part[32];
    float ld[N_READS];
    in += row * size_t(axis_size) + lid * N_READS;
    out += row * size_t(axis_size) + lid * N_READS;
    for (int i = 0; i < N_READS; i++) ld[i] = int(lid * N_READS) + i < axis_size ? float(in[i]) : -INFINITY;
    float most = Max::start<float>;
#pragma clang loop unroll(full)
    for (int i = 0; i < N_READS; i++) most = Max()(most, ld[i]);
    most = over_group<Max>(most, part, lane, group, groups);
    float sum = 0;
    for (int i = 0; i < N_READS; i++) {
        ld[i] = fast::exp(ld[i] - most);
        sum += ld[i];
    }
    sum = 1 / over_group<Sum>(sum, part, lane, group, groups);
    for (int i = 0; i < N_READS; i++)
        if (int(lid * N_READS) + i < axis_size) out[i] = T(ld[i] * sum);
}
template [[host_name("softmax_float32")]] [[kernel]] void softmax<float>(const device float *, device float *, constant int &, uint, uint, uint, uint, uint);
template [[host_name("softmax_float16")]] [[kernel]] void softmax<half>(const device half *, device half *, constant int &, uint, uint, uint, uint, uint);

template <typename T> struct is_wide : metal::bool_constant<(sizeof(T) > 2)> {
};
// What a narrow type is summed in.
template <typename T> using sum_type = typename metal::conditional<is_wide<T>::value, T, float>::type;
template <typename T, metal::enable_if_t<metal::is_floating_point_v<T>, bool> = true> sum_type<T> square(T x) { return sum_type<T>(x) * sum_type<T>(x); }
template <typename T, metal::enable_if_t<metal::is_integral_v<T>, bool> = true> float square(T x) { return float(x * x); }
static_assert(metal::is_same_v<sum_type<half>, float> && metal::is_same_v<sum_type<uint>, uint>, "");

// out[0] += the sum of squares, by atomic additions of integers.
template <typename T>
kernel void squares(device const T *x [[buffer(0)]], device atomic_uint *out [[buffer(1)]], constant uint &n [[buffer(2)]],
                    uint i [[thread_position_in_grid]])
{
    const uint mine = i < n ? uint(square(x[i])) : 0u;
    const uint all = simd_sum(mine);
    if (simd_is_first()) atomic_fetch_add_explicit(out, all, memory_order_relaxed);
}
template [[host_name("squares_int")]] kernel void squares<int>(device const int *, device atomic_uint *, constant uint &, uint);
template [[host_name("squares_half")]] kernel void squares<half>(device const half *, device atomic_uint *, constant uint &, uint);
