// quantized.metal: a matrix of 4-bit blocks times a vector, in the style of public inference engines: structs as they lie in a file, vectors of
// halves, letters of vectors, two rows a SIMD group.
#include <metal_stdlib>
using namespace metal;

#define QK 32
typedef struct {
    half d;             // scale
    uint8_t qs[QK / 2]; // 4-bit numbers less 8: element i in the low half of byte i, element i + 16 in the high half
} block_q4;
struct matvec_args {
    int32_t ne00, ne01;
    uint64_t nb01;
};
static_assert(sizeof(block_q4) == 18, "no padding");

template <typename type4> void dequantize(device const block_q4 *xb, short il, thread type4 &reg)
{
    device const uint8_t *q = xb->qs + 4 * (il % 4);
    const float d = xb->d;
    for (short i = 0; i < 4; i++) reg[i] = d * ((il < 4 ? q[i] & 0xF : q[i] >> 4) - 8.0);
}

template <short NR>
void matvec(constant matvec_args &args, device const char *src0, device const char *src1, device char *dst, uint3 tgpig, ushort tiisg, ushort sgitg)
{
    const int nb = args.ne00 / QK, first = (tgpig.x * 2 + sgitg) * NR;
    float sumf[NR] = {0.f};
    for (int ib = tiisg; ib < nb * 8; ib += 32) {
        device const float4 *y4 = (device const float4 *)src1 + ib;
        for (short row = 0; row < NR; row++) {
            if (first + row >= args.ne01) continue;
            device const block_q4 *x = (device const block_q4 *)(src0 + (first + row) * args.nb01);
            half4 h;
            dequantize(x + ib / 8, ib % 8, h);
            float4 w = float4(h);
            w.xy = w.yx; // there and back: letters on both sides
            w.xy = w.yx;
            sumf[row] += dot(w.xy, (*y4).xy) + dot(w.zw, y4->zw);
        }
    }
    device float *out = (device float *)dst;
    for (short row = 0; row < NR; ++row) {
        const float tot = simd_sum(sumf[row]);
        if (tiisg == 0 && first + row < args.ne01) out[first + row] = tot;
    }
}

kernel void matvec_q4(constant matvec_args &args, device const char *src0, device const char *src1, device char *dst,
                      uint3 tgpig [[threadgroup_position_in_grid]], ushort tiisg [[thread_index_in_simdgroup]],
                      ushort sgitg [[simdgroup_index_in_threadgroup]])
{
    matvec<2>(args, src0, src1, dst, tgpig, tiisg, sgitg);
}
