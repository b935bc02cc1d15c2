// gemm.metal: a blocked GEMM in the style of public Metal libraries: class templates for the loader, the tile and the epilogue, function
// constants for edges, 8 x 8 matrices whose elements are taken by lane, instances under host names.
// D[b] = alpha A[b] B[b] + beta C[b], row major; A is M x K, B is K x N, or N x K where it is transposed.
#include <metal_simdgroup>
#include <metal_simdgroup_matrix>
#include <metal_stdlib>
using namespace metal;

#define TILE_CONST static constant constexpr const
#define TILE_UNROLL _Pragma("clang loop unroll(full)")

constant bool whole_m [[function_constant(100)]];
constant bool whole_n [[function_constant(101)]];
constant bool has_c [[function_constant(110)]];
constant bool scales [[function_constant(111)]];
constant bool adds = has_c && scales;

struct GemmShape {
    const int M, N, K;
    const int lda, ldb, ldd;
    const int64_t batch_a, batch_b, batch_d;
};
struct Scales {
    float alpha, beta;
};

namespace tiles
{
template <typename T> struct accumulator {
    typedef float type;
};

// What happens to an element on its way out.
template <typename Out, typename In> struct StorePlain {
    METAL_FUNC StorePlain(const constant Scales &) {}
    METAL_FUNC Out apply(In x) const { return static_cast<Out>(x); }
    METAL_FUNC Out apply(In x, Out) const { return static_cast<Out>(x); }
};
template <typename Out, typename In> struct StoreScaled {
    const float alpha;
    const float beta;
    METAL_FUNC StoreScaled(const constant Scales &s) : alpha(s.alpha), beta(s.beta) {}
    METAL_FUNC Out apply(In x) const { return static_cast<Out>(x * alpha); }
    METAL_FUNC Out apply(In x, Out c) const { return static_cast<Out>(x * alpha + float(c) * beta); }
};

// Rows x Cols of device memory into threadgroup memory; a thread takes `vec_size` neighbours.
template <typename T, short Rows, short Cols, short Pitch, short Threads, short Align = 1> struct BlockLoader {
    TILE_CONST short vec_size = (Rows * Cols) / Threads;
    TILE_CONST short threads_a_row = Cols / vec_size;
    TILE_CONST short row_step = Threads / threads_a_row;
    static_assert(Cols % vec_size == 0, "a thread's neighbours are in one row");

    struct alignas(Align * sizeof(T)) Piece {
        uint8_t bytes[sizeof(T) * vec_size];
    };
    const int ld;
    const short row, col;
    threadgroup T *to;
    const device T *from;

    METAL_FUNC BlockLoader(const device T *from_, const int ld_, threadgroup T *to_, ushort group [[simdgroup_index_in_threadgroup]],
                           ushort lane [[thread_index_in_simdgroup]])
        : ld(ld_), row((group * 32 + lane) / threads_a_row), col(vec_size * ((group * 32 + lane) % threads_a_row)),
          to(to_ + row * Pitch + col), from(from_ + row * int64_t(ld_) + col)
    {
    }
    METAL_FUNC void whole() const
    {
        TILE_UNROLL
        for (short i = 0; i < Rows; i += row_step)
            TILE_UNROLL
            for (short j = 0; j < vec_size; j++) to[i * Pitch + j] = from[i * int64_t(ld) + j];
    }
    METAL_FUNC void edge(short2 extent) const
    {
        extent = extent - short2(col, row);
        TILE_UNROLL
        for (short i = 0; i < Rows; i += row_step)
            TILE_UNROLL
            for (short j = 0; j < vec_size; j++)
                to[i * Pitch + j] = i < extent.y && j < extent.x ? from[i * int64_t(ld) + j] : T(0);
    }
    METAL_FUNC void next(int64_t by) { from += by; }
};

// An 8 x 8 matrix and where this lane's two elements lie in it.
template <typename T> struct Fragment {
    typedef metal::vec<T, 2> part;
    typedef metal::simdgroup_matrix<T, 8, 8> matrix;
    METAL_FUNC static constexpr short2 place(ushort lane)
    {
        const short quad = lane / 4;
        const short row = (quad & 4) + ((lane / 2) % 4);
        const short col = (quad & 2) * 2 + (lane % 2) * 2;
        return short2{col, row};
    }
    template <typename U> METAL_FUNC static void load(thread part &to, const threadgroup U *from, int row_step, int col_step)
    {
        TILE_UNROLL
        for (short j = 0; j < 2; j++) to[j] = static_cast<T>(from[j * col_step]);
        (void)row_step;
    }
    METAL_FUNC static void multiply(thread part &D, thread part &A, thread part &B, thread part &C)
    {
        matrix d, a, b, c;
        reinterpret_cast<thread part &>(a.thread_elements()) = A;
        reinterpret_cast<thread part &>(b.thread_elements()) = B;
        reinterpret_cast<thread part &>(c.thread_elements()) = C;
        simdgroup_multiply_accumulate(d, a, b, c);
        D = reinterpret_cast<thread part &>(d.thread_elements());
    }
};

template <typename T, typename U, int BM, int BN, int BK, int WM, int WN, bool transpose_b, typename Acc = typename accumulator<T>::type,
          typename Epilogue = StorePlain<U, Acc>>
struct Block {
    TILE_CONST short pad = 16 / sizeof(T);
    TILE_CONST short pitch_a = BK + pad;
    TILE_CONST short pitch_b = (transpose_b ? BK : BN) + pad;
    TILE_CONST short rows_b = transpose_b ? BN : BK;
    TILE_CONST short cols_b = transpose_b ? BK : BN;
    TILE_CONST int elements_a = BM * pitch_a;
    TILE_CONST int elements_b = rows_b * pitch_b;
    TILE_CONST short TM = BM / (8 * WM);
    TILE_CONST short TN = BN / (8 * WN);

    using loader_a = BlockLoader<T, BM, BK, pitch_a, WM * WN * 32>;
    using loader_b = BlockLoader<T, rows_b, cols_b, pitch_b, WM * WN * 32>;
    using fragment = Fragment<Acc>;

    typename fragment::part sum[TM * TN];
    short row, col;

    METAL_FUNC Block(ushort group, ushort lane)
    {
        const short2 at = fragment::place(lane);
        row = 8 * TM * (group / WN) + at.y;
        col = 8 * TN * (group % WN) + at.x;
        TILE_UNROLL
        for (short i = 0; i < TM * TN; i++) sum[i] = typename fragment::part(0);
    }
    METAL_FUNC void multiply(const threadgroup T *As, const threadgroup T *Bs)
    {
        TILE_UNROLL
        for (short k = 0; k < BK; k += 8) {
            typename fragment::part a[TM], b[TN];
            TILE_UNROLL
            for (short i = 0; i < TM; i++) fragment::load(a[i], As + (row + 8 * i) * pitch_a + col % 8 + k, pitch_a, 1);
            TILE_UNROLL
            for (short j = 0; j < TN; j++) {
                const short n = col - col % 8 + 8 * j;
                if constexpr (transpose_b)
                    fragment::load(b[j], Bs + (n + col % 8) * pitch_b + k + row % 8, 1, pitch_b);
                else
                    fragment::load(b[j], Bs + (k + row % 8) * pitch_b + n + col % 8, pitch_b, 1);
            }
            TILE_UNROLL
            for (short i = 0; i < TM; i++)
                TILE_UNROLL
                for (short j = 0; j < TN; j++) fragment::multiply(sum[i * TN + j], a[i], b[j], sum[i * TN + j]);
        }
    }
    METAL_FUNC void store(device U *D, const device U *C, int ld, short2 extent, thread const Epilogue &epilogue) const
    {
        TILE_UNROLL
        for (short i = 0; i < TM; i++)
            TILE_UNROLL
            for (short j = 0; j < TN; j++)
                TILE_UNROLL
                for (short e = 0; e < 2; e++) {
                    const short r = row + 8 * i, c = col + 8 * j + e;
                    if (r >= extent.y || c >= extent.x) continue;
                    const Acc x = sum[i * TN + j][e];
                    D[int64_t(r) * ld + c] = adds ? epilogue.apply(x, C[int64_t(r) * ld + c]) : epilogue.apply(x);
                }
    }
};
}

template <typename T, int BM, int BN, int BK, int WM, int WN, bool transpose_b, bool scaled>
[[kernel, max_total_threads_per_threadgroup(WM * WN * 32)]] void gemm(
    const device T *A [[buffer(0)]], const device T *B [[buffer(1)]], const device T *C [[buffer(2), function_constant(has_c)]],
    device T *D [[buffer(3)]], const constant GemmShape *shape [[buffer(4)]],
    const constant Scales &factors [[buffer(5), function_constant(scales)]], uint lane [[thread_index_in_simdgroup]],
    uint group [[simdgroup_index_in_threadgroup]], uint3 tid [[threadgroup_position_in_grid]])
{
    using Epilogue = metal::conditional_t<scaled, tiles::StoreScaled<T, float>, tiles::StorePlain<T, float>>;
    using block = tiles::Block<T, T, BM, BN, BK, WM, WN, transpose_b, float, Epilogue>;
    threadgroup T As[block::elements_a];
    threadgroup T Bs[block::elements_b];

    const int m = tid.y * BM, n = tid.x * BN;
    if (m >= shape->M || n >= shape->N) return;
    A += tid.z * shape->batch_a + m * int64_t(shape->lda);
    B += tid.z * shape->batch_b + (transpose_b ? n * int64_t(shape->ldb) : n);
    D += tid.z * shape->batch_d + m * int64_t(shape->ldd) + n;
    if (has_c) C += tid.z * shape->batch_d + m * int64_t(shape->ldd) + n;

    thread typename block::loader_a load_a(A, shape->lda, As, group, lane);
    thread typename block::loader_b load_b(B, shape->ldb, Bs, group, lane);
    thread block tile(group, lane);
    const short rows = whole_m ? BM : short(min(BM, shape->M - m)), cols = whole_n ? BN : short(min(BN, shape->N - n));

    for (int k = 0; k < shape->K; k += BK) {
        const short depth = short(min(BK, shape->K - k));
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (whole_m && depth == BK)
            load_a.whole();
        else
            load_a.edge(short2(depth, rows));
        if (whole_n && depth == BK)
            load_b.whole();
        else
            load_b.edge(transpose_b ? short2(depth, cols) : short2(cols, depth));
        threadgroup_barrier(mem_flags::mem_threadgroup);
        tile.multiply(As, Bs);
        load_a.next(BK);
        load_b.next(transpose_b ? BK : BK * int64_t(shape->ldb));
    }
    thread const Epilogue epilogue(factors);
    tile.store(D, C, shape->ldd, short2(cols, rows), epilogue);
}

#define instance(name, type, bm, bn, bk, wm, wn, tb, sc)                                                               \
    template [[host_name("gemm_" #name "_" #bm "x" #bn)]] [[kernel]] decltype(gemm<type, bm, bn, bk, wm, wn, tb, sc>)  \
        gemm<type, bm, bn, bk, wm, wn, tb, sc>;
#define instances(name, type)                                                                                          \
    instance(nn_##name, type, 32, 32, 16, 2, 2, false, false) instance(nt_##name, type, 64, 32, 16, 2, 2, true, true)
instances(float32, float)
instances(float16, half)
#if __METAL_VERSION__ >= 310
instances(bfloat16, bfloat)
#endif
