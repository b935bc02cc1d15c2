/* gpu_tiles.h: what a library kernel's template is specialized for: the parameters its #define lines are written from. */
#ifndef AN_CODEGEN_GPU_TILES_H
#define AN_CODEGEN_GPU_TILES_H

/* Which text a step is compiled from. */
typedef enum an_gpu_module {
    AN_MODULE_LOOP,      /* rendered from a loop kernel */
    AN_MODULE_GEMM,      /* gemm.inc */
    AN_MODULE_ATTN,      /* attn_forward.inc, or the body that an_tiles.body names */
    AN_MODULE_ATTN_GRAD, /* attn_backward.inc, likewise */
    AN_MODULE_SCATTER,   /* this and the rest: gpu_library_calls.h */
    AN_MODULE_SCAN_POOL,
    AN_MODULE_SORT,
    AN_MODULE_MATRIX,
    AN_MODULE_DRAW,
    AN_MODULE_GROUPED,
    AN_N_MODULES
} an_gpu_module;

/* Attention: all bodies have the same entries and buffers. */
typedef enum an_attn_body {
    AN_BODY_PORTABLE,    /* attn_forward.inc, attn_backward.inc */
    AN_BODY_BF16,        /* NVIDIA: attn_bf16.inc */
    AN_BODY_TF32,        /* NVIDIA: attn_tf32.inc */
    AN_BODY_TF32_HOPPER, /* sm_90a: attn_tf32_hopper.inc, after attn_tf32.inc */
    AN_BODY_DECODE,      /* forward, one query: attn_decode.inc */
    AN_BODY_HOPPER,      /* sm_90a: attn_hopper.inc and attn_hopper_backward.inc, after attn_bf16.inc */
    AN_BODY_SHORT,       /* short sequences: attn_short.inc, after attn_bf16.inc */
    AN_BODY_ROTATED      /* the same, of which q and k are rotated as they are read */
} an_attn_body;

/* GEMM: how a tile's sums are computed. */
typedef enum an_gemm_sums {
    AN_SUMS_STAGED,    /* operands through shared memory: gemm.inc */
    AN_SUMS_CONV_BF16, /* NVIDIA: conv_bf16.inc */
    AN_SUMS_DIRECT     /* fragments from device memory: gemm.inc with AN_DIRECT */
} an_gemm_sums;

/* Unused fields are 0: equal records are equal texts. */
typedef struct an_tiles {
    const char *store, *store_b, *store_c, *mul; /* "F32", "BF16", "F16" */
    an_gpu_module module;
    int window, sums; /* GEMM: an_window_of, an_gemm_sums */
    int exact, vec, threads;
    int bm, bn, bk, subgroups_m, subgroups_n, a_along_k, b_along_k; /* GEMM */
    int rows, deep;                                                 /* GEMM: of gemm_rows.inc; 0: another body */
    /* attention; bm: rows of a block, bn: rows of a block of attn_delta, bk: which pass of attn_hopper*.inc, AN_WHOLE of attn_tf32.inc */
    int d, dc, cols, causal, dropout, bias, sliding;
    int group;         /* heads of q for each of k and v, from 1 on; else 0 */
    int unused;        /* no padding: records are compared as bytes */
    int mask;          /* attn_hopper*.inc: dropout's bits are stored before they are read */
    int body;          /* attention: an_attn_body */
    int follow, early; /* the text is for launches that follow closely (AN_FOLLOW); GEMM of few rows: AN_EARLY */
    int call, work;    /* library calls: which one of a template's; 8-byte words of shared memory, 0: scratch */
} an_tiles;

#endif
