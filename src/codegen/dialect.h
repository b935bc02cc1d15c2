/* dialect.h: the source languages that kernels are rendered in, and what each can express: one row a language.
 *
 * Owns:      the table, and the description of the GPU that a text is meant for.
 * Does not:  know a driver or a plan.
 * Invariant: code generation asks these fields; a language's name is compared in an_dialect_find alone. A new GPU
 *            language is a header in kernels/dialect/ (docs/gpu-dialect.md lists what it defines) and a row here.
 */
#ifndef AN_CODEGEN_DIALECT_H
#define AN_CODEGEN_DIALECT_H

#include "base/base.h"

/* Buffers that a Metal kernel may take (Metal Feature Set Tables). The limits of kernel arguments:
 *     AN_LOOP_ARGS (ir/loop_kernel.h)   arrays of the compiler: no device takes more
 *     an_target.max_args                what the planner keeps to (loop_builder.c): the device's, set as it opens
 *     an_dialect.max_buffers            what a renderer refuses, should a plan be for another target: the same number */
enum { AN_MSL_BUFFERS = 31 };

typedef struct an_dialect {
    const char *name;    /* as in an_target.dialect */
    const char *header;  /* kernels/dialect/NAME.h, in front of every GPU kernel; NULL: C for the CPU */
    bool ptx;            /* has the templates written in NVIDIA's PTX: attn_bf16, attn_tf32, conv_bf16, *_hopper */
    bool vector_access;  /* several neighbouring columns a thread, in accesses of 16 bytes (an_wide_load) */
    bool block_per_row;  /* a thread block of up to 1024 threads may share one row or one set of columns */
    bool restrict_input; /* AN_LOOP_CONST: an argument that no output aliases says so */
    bool no_aliasing; /* two arguments may not share memory: in-place input and output are one argument (an_aliases) */
    int max_buffers;  /* arguments of a kernel; 0: no limit below AN_LOOP_ARGS */
    int shared_bytes; /* shared memory that a block may declare on every GPU of the kind */
    int bf16_version; /* language version from which a bf16 takes 2 bytes in shared memory; 0: always */
    int largest_tile; /* bodies (gpu_gemm_tiles.c) are largest first: the index at which a GEMM of 16-bit operands begins */
    bool direct_fragments;                     /* an_load_a and its like read device memory too */
    const char *no_float64, *too_many_buffers; /* refusals: what, and what to do; NULL: never refused */
} an_dialect;

enum { AN_DIALECT_C, AN_DIALECT_CUDA, AN_DIALECT_MSL, AN_N_DIALECTS };
extern const an_dialect an_dialects[AN_N_DIALECTS];

const an_dialect *an_dialect_find(const char *name); /* NULL: there is none of that name */

/* Products, by the operands that are multiplied. */
enum { AN_GEMM_F32, AN_GEMM_16, AN_N_GEMM };

/* The GPU that a text is compiled for. Tiles and texts are a pure function of a spec and of this. */
typedef struct an_gpu {
    const an_dialect *dialect;
    int version;       /* of the language: MSL 300, 310, ...; CUDA does not ask */
    bool fast;         /* sums may be taken in another order than on other devices; see an_gpu_fast */
    bool tf32;         /* f32 GEMMs and attention on tensor cores, operands rounded to 11 bits */
    bool plain;        /* without matrix instructions (a virtual machine's GPU): fragments are plain registers */
    bool no_shuffles;  /* of a plain GPU: nor shuffles within a subgroup; lanes meet in shared memory */
    int arch_specific; /* 90: the compiler and the GPU know sm_90a; 0: no architecture-specific instructions */
    bool decode;       /* attention of one query by attn_decode.inc */
    bool rows;         /* products of few rows by gemm_rows.inc */
    bool follow;       /* texts for launches that begin while the one before still runs (AN_FOLLOW); changes no bits */
    int gemm_body[AN_N_GEMM]; /* the body asked for, + 1 (an_gemm_body_name); 0: by size */
    int multiprocessors;      /* thread blocks that fill the GPU; decides grids, never bits */
} an_gpu;

/* Whether the templates and loop forms that trade equal bits for speed may be used, which take sums in another order than
 * ir/loop_kernel.h and library_ops.h fix: they exist with PTX only. */
static inline bool an_gpu_fast(const an_gpu *g)
{
    return g->fast && g->dialect->ptx;
}

#endif
