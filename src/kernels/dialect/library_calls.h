/* library_calls.h: what the kernels of library calls (sorting, cumulative sums, factorizations, scattering) share; comes after base/exact.h
 * and float64.h.
 *
 * Owns:      elements of every dtype as float64 values and as sort keys, work memory, dot products of eight threads.
 * Does not:  know an operation.
 * Invariant: a float element becomes float64 exactly and is rounded once on the way back: the bits of device/cpu/{library_calls,linalg}.c, for
 *            subnormal numbers too, which a GPU's f32 instructions may flush.
 *
 * Defined before this text by the renderer:
 *     AN_STORE        kind of the elements (AN_KIND_...)
 *     AN_THREADS      threads of a block, a multiple of 32
 *     AN_WORK_WORDS   8-byte words of work memory in shared memory; 0: work memory is scratch in device memory */
#define AN_CALL_RUNNING_SUM   0 /* values of AN_CALL, where a template computes several */
#define AN_CALL_POOL_MAX_GRAD 1
#define AN_CALL_CHOLESKY      2
#define AN_CALL_QR            3
#define AN_CALL_EIGH          4
#define AN_CALL_SVD           5
#define AN_CALL_SOLVE         6
#define AN_CALL_TRISOLVE      7
#define AN_CALL_PUT_ROWS      8
#define AN_CALL_ROW_UPDATE    9
#define AN_CALL_GROUPED_MATMUL 10
#define AN_CALL_GROUPED_OUTER  11

#define AN_KIND_F64 4 /* CUDA only */
#define AN_KIND_I32 5
#define AN_KIND_I64 6
#define AN_KIND_U8  7
#define AN_IS_FLOAT (AN_STORE <= AN_KIND_F64)

typedef unsigned char an_u8;

#if AN_STORE == AN_KIND_F32
typedef float an_element;
#elif AN_STORE == AN_KIND_BF16 || AN_STORE == AN_KIND_F16
typedef an_u16 an_element;
#elif AN_STORE == AN_KIND_F64
typedef double an_element;
#elif AN_STORE == AN_KIND_I32
typedef an_u32 an_element; /* integers wrap: unsigned */
#elif AN_STORE == AN_KIND_I64
typedef an_u64 an_element;
#else
typedef an_u8 an_element;
#endif

#if AN_IS_FLOAT
AN_FN an_f64 an_f64_load(an_element x)
{
#if AN_STORE == AN_KIND_F64
    return x;
#elif AN_STORE == AN_KIND_F32
    return an_f64_of_f32(x);
#elif AN_STORE == AN_KIND_BF16
    return an_f64_of_f32(an_bf16_to_f32(x));
#else
    return an_f64_of_f32(an_f16_to_f32(x));
#endif
}
AN_FN an_element an_f64_stored(an_f64 x)
{
#if AN_STORE == AN_KIND_F64
    return x;
#elif AN_STORE == AN_KIND_F32
    return an_f64_to_f32(x);
#elif AN_STORE == AN_KIND_BF16
    return (an_element)an_f32_to_bf16(an_f64_to_f32(x));
#else
    return (an_element)an_f32_to_f16(an_f64_to_f32(x));
#endif
}
#endif

/* ---- sort keys: unsigned integers in the order of the elements. Zeros of both signs are equal, NaN is above all.
 * A non-negative float gets its sign bit set; a negative one has all bits inverted: unsigned order is then numeric order. */
#if AN_STORE == AN_KIND_F64 || AN_STORE == AN_KIND_I64
typedef an_u64 an_key;
#else
typedef an_u32 an_key;
#endif
AN_FN an_key an_float_key(an_key bits, an_key sign, an_key inf)
{
    an_key size = bits & ~sign;
    if (size > inf) return ~(an_key)0;
    if (size == 0u) return sign;
    return (bits & sign) != 0u ? ~bits & (sign | (sign - 1u)) : bits | sign;
}
AN_FN an_key an_key_of(an_element x)
{
#if AN_STORE == AN_KIND_F64
    return an_float_key(an_f64_bits(x), AN_F64_SIGN, AN_F64_INF);
#elif AN_STORE == AN_KIND_F32
    return an_float_key(AN_F2U(x), 0x80000000u, 0x7f800000u);
#elif AN_STORE == AN_KIND_BF16
    return an_float_key(x, 0x8000u, 0x7f80u);
#elif AN_STORE == AN_KIND_F16
    return an_float_key(x, 0x8000u, 0x7c00u);
#elif AN_STORE == AN_KIND_I32
    return x ^ 0x80000000u;
#elif AN_STORE == AN_KIND_I64
    return x ^ 0x8000000000000000u;
#else
    return x;
#endif
}

/* ---- work memory of a thread block: its place decides the address space of pointers to it, and which barrier orders it. */
#if AN_WORK_WORDS > 0
#define AN_WORK           AN_SHARED
#define AN_WORK_BARRIER() AN_BARRIER()
#else
#define AN_WORK           AN_DEVICE
#define AN_WORK_BARRIER() AN_DEVICE_BARRIER()
#endif

/* ---- eight neighbouring threads share a sum, one lane of it each. All lanes of a subgroup must call these together (shuffles). */
#define AN_EIGHTS (AN_THREADS / 8)

AN_FN an_f64 an_f64_lane_xor(an_f64 x, int m AN_LANES)
{
    an_u64 bits = an_f64_bits(x);
    an_u32 low = an_shuffle_xor((an_u32)bits, m), high = an_shuffle_xor((an_u32)(bits >> 32), m);
    return an_f64_of_bits((an_u64)high << 32 | low);
}

/* x . y of n elements, returned to all eight threads: element i is added in lane i % 8, lanes fold 4, 2, 1. Without `live` it is 0 and reads
 * nothing. */
AN_FN an_f64 an_dot8(AN_WORK const an_f64 *x, AN_WORK const an_f64 *y, int n, bool live, int me AN_LANES)
{
    an_f64 sum = an_f64_of_bits(0u);
    for (int i = me % 8; i < n && live; i += 8) sum = an_f64_add(sum, an_f64_mul(x[i], y[i]));
    AN_UNROLL for (int m = 4; m > 0; m /= 2) sum = an_f64_add(sum, an_f64_lane_xor(sum, m AN_HAND_LANES));
    return sum;
}
