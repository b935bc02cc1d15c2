/* cpu_kernels.h: the hand-written CPU kernels: one object per instruction set, chosen at run time.
 *
 * Owns:      the table of functions each instruction set exports. (Specs, shapes and strides as data, are in ir/library_ops.h.)
 * Does not:  know nodes or plans. All memory, scratch included, is the caller's; nothing here allocates.
 * Invariant: results depend on the spec and the instruction set only, never on the number of threads.
 *            All f32 arithmetic is in source order (-ffp-contract=off, fma where written), the same on every set;
 *            bf16 too: sets without a dot product instruction add products in its order. It takes subnormal operands and sums as zeros,
 *            which they do not, and tile registers add in an order of their own.
 *
 * Strides are in elements. Storage dtypes are AN_F32, AN_BF16, AN_F16. Pointers arrive in `void *const *args`, in the
 * order each spec documents; NULL for what is absent.
 */
#ifndef AN_KERNELS_CPU_KERNELS_H
#define AN_KERNELS_CPU_KERNELS_H

#include "base/base.h"
#include "platform/thread_pool.h"
#include "ir/library_ops.h"

/* A finished block of a GEMM, handed to the fused epilogue while it is in cache: rows [row0,row1) of the flattened
 * (batch, m) rows and columns [col0,col1), f32, element (i,j) at acc[(i-row0)*ld + (j-col0)]. `user` is what the caller
 * passed. The epilogue loads its other inputs, computes, and stores every output itself; it may overwrite acc.
 * (Rendered kernels are told of the same type, but for its last member, by dialect/loops_c.h.) */
typedef struct an_tile {
    int64_t row0, row1, col0, col1;
    float *acc;
    int64_t ld;
    int thread; /* the pool's thread that runs it */
} an_tile;
typedef void (*an_epilogue_fn)(const an_tile *tile, void *user);

/* An epilogue, and arrays that it reads or writes beside each element of its tile: element (i, j) of the result has `size` bytes at
 * at + i * row + j * size. A GEMM asks for them while it multiplies. */
enum {
    AN_EPILOGUE_COLUMNS = 128, /* of a tile, at most */
    AN_EPILOGUE_ARRAYS = 8     /* at most; of more the others are not asked for */
};
typedef struct an_epilogue {
    an_epilogue_fn fn;
    void *user;
    int n_arrays;
    struct {
        uintptr_t at;
        int64_t row, size;
    } array[AN_EPILOGUE_ARRAYS];
} an_epilogue;

/* Initial values of a tensor: element i is a function of (key, stream, i), see base/rng.h. */
typedef enum an_draw_kind {
    AN_DRAW_CONSTANT = 1,
    AN_DRAW_NORMAL,
    AN_DRAW_UNIFORM,
    AN_DRAW_TRUNCATED
} an_draw_kind; /* as an_init.kind */
typedef struct an_init_spec {
    uint8_t kind, dtype; /* any dtype */
    uint32_t key, stream;
    double a, b; /* constant a; mean 0 and deviation a; [a, b) */
} an_init_spec;

/* The gradient of max pooling in f32: dy [N,H',W',C], x and dx [N,H,W,C]. A unit is some channels of an image, `scratch` (of windows that
 * overlap) N H' W' int32 for each of them, and W (1 + 2 kw). */
enum { AN_POOL_CHANNELS = 16, AN_POOL_CELLS = 64 /* of a window, at most */ };
typedef struct an_pool_grad {
    const float *dy, *x;
    float *dx;
    int64_t H, W, C, out_h, out_w;
    const int64_t *attr; /* kh, kw, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w */
} an_pool_grad;
static inline bool an_pool_windows_overlap(const int64_t *attr)
{
    return attr[6] != 1 || attr[7] != 1 || attr[2] < attr[0] || attr[3] < attr[1];
}

/* The kernels of one instruction set. */
typedef struct an_cpu_kernels {
    const char *isa; /* "amx", "avx512bf16", "avx512", "avx2", "neon", "portable", "amx_emulated" */
    bool bf16_dot;   /* mul_dtype AN_BF16 runs on a hardware dot product */
    bool tiles;      /* mul_dtype AN_BF16 adds in the order of tile registers, in hardware or in plain C */
    /* Measured GFLOP/s of independent FMAs (bf16: dot products) in registers. 0 seconds: a look of under a millisecond. */
    double (*fma_peak)(an_pool *p, uint8_t mul_dtype, double seconds);

    /* Scratch the caller must supply (64-byte aligned), for `threads` threads. */
    size_t (*gemm_scratch)(const an_gemm_spec *s, int threads);
    bool (*gemm_repacks)(
        const an_gemm_spec *s); /* each call packs B, and would read it in place were it contiguous along n */
    bool (*conv_planes)(const an_gemm_spec *s); /* the operands of this convolution may lie in planes */
    void (*gemm)(const an_gemm_spec *s, void *const *args, void *scratch, const an_epilogue *epi,
                 an_pool *p); /* epi: or NULL */

    /* tables: cosines and sines of rotated attention (ir/plan.h); NULL, or two NULLs: it is not. */
    size_t (*attn_scratch)(const an_attn_spec *s, bool backward, int threads);
    void (*attn_forward)(const an_attn_spec *s, void *const *args, const float *const *tables, void *scratch,
                         an_pool *p);
    void (*attn_backward)(const an_attn_spec *s, void *const *args, const float *const *tables, void *scratch,
                          an_pool *p);

    void (*scatter)(const an_scatter_spec *s, void *const *args, an_pool *p);

    void (*pool_max_grad)(const an_pool_grad *s, int64_t unit, void *scratch);

    void (*draw)(const an_init_spec *d, int64_t first, int64_t n, void *out); /* elements [first, first + n) */
} an_cpu_kernels;

/* The first table this processor can run; `name` picks one by name, NULL result if it is not runnable here. */
const an_cpu_kernels *an_cpu_kernels_find(const char *name);
/* All compiled in, the newest instructions first; which is fastest is measured (device/cpu/choose_isa.c). */
const an_cpu_kernels *const *an_cpu_kernels_all(int *n);

#endif
