/* render.h: loop kernels (ir/loop_kernel.h) as source text: render_c.c and render_c_columns.c for the CPU, render_gpu*.c for CUDA and MSL.
 *
 * Owns:      the text of one kernel, and how it is launched on a GPU.
 * Does not:  compile; render library kernels such as GEMM and attention (gpu_module.h).
 * Invariant: with `notes` off, equal loop kernels have equal text apart from `name`: a compilation serves all of them.
 */
#ifndef AN_CODEGEN_RENDER_H
#define AN_CODEGEN_RENDER_H

#include "codegen/dialect.h"
#include "ir/loop_kernel.h"

/* The kernel `name` as a C function `void name(const an_tile *t, void *const *arg)`, without its prelude. It computes
 * rows [t->row0, t->row1) and columns [t->col0, t->col1) (all columns when it reduces along rows). With `notes` a
 * comment says where it comes from: shape, cost, and the tensor behind each argument. */
void an_render_c(const an_loop_kernel *p, const char *name, bool notes, an_text *out);
/* The prelude, once a file: part 0 is base/exact.h, part 1 kernels/dialect/loops_c.h. */
const char *an_render_c_prelude(int part);

/* The same in any dialect: "c", "cuda" or "msl". An unknown one marks `out` failed. */
void an_render(const char *dialect, const an_loop_kernel *p, const char *name, bool notes, an_text *out);
/* Why a dialect cannot express a loop kernel ("uses float64, ..."), NULL when it can. */
const char *an_render_refusal(const char *dialect, const an_loop_kernel *p);

/* Inputs that lie in the memory of an output, for a language in which two parameters may not share memory:
 *
 *     output[i] = o      input i has no parameter of its own; the kernel reads it through the parameter of output o
 *     output[i] = -1     argument i has its own parameter */
typedef struct an_aliases {
    int8_t output[AN_LOOP_ARGS];
} an_aliases;

/* ---- CUDA and MSL (render_gpu.c). A loop kernel that is refused marks the text failed. aliases NULL: there are none. */
void an_render_gpu(const an_loop_kernel *p, const char *name, const an_gpu *gpu, const an_aliases *aliases, bool notes,
                   an_text *out);
const char *an_render_gpu_refusal(const an_loop_kernel *p, const an_dialect *dialect);

/* How that kernel is launched, and which of the renderer's forms it has. */
typedef struct an_loop_launch {
    int64_t blocks;            /* thread blocks, along x */
    int threads, shared_bytes; /* of a block; shared_bytes: dynamic shared memory (CUDA) */
    bool vector;               /* several columns a thread, in vector accesses */
    bool block_per_row;        /* rows are few and long: a block has one */
    bool block_reduces;        /* ... and its subgroups share each reduction of the row */
    bool lane_per_subgroup;    /* a column sum: each of its virtual lanes is summed by one subgroup */
    int columns;     /* ... else of a block whose threads share these columns, in another order; 0: they do not */
    bool two_per_sm; /* registers are limited so that a multiprocessor holds two such blocks */
} an_loop_launch;
an_loop_launch an_render_gpu_launch(const an_loop_kernel *p, const an_gpu *gpu);

/* ---- CUDA: the epilogue of a GEMM, in two forms. */
/* As a kernel of its own, behind a library's GEMM that has left C in memory as `gemm_dtype` (f32 or bf16, rows without
 * padding): argument 0 is C, then the loop kernel's. Launched as an_render_gpu_launch says for the fast CUDA GPU. */
void an_render_gpu_epilogue_kernel(const an_loop_kernel *p, const char *name, an_dtype gemm_dtype, an_text *out);
/* As the functions that kernels/gpu/gemm_hopper.inc calls on 8 columns of a bf16 C at a time; and whether an epilogue
 * can be had in that form. */
void an_render_gpu_fused_epilogue(const an_loop_kernel *p, an_text *out);
bool an_render_gpu_can_fuse_epilogue(const an_loop_kernel *p);
/* The same for an elementwise kernel that reads a bf16 GEMM's result of twice its rows, argument `gemm`, at (r, c) and
 * (rows + r, c). A gate reads nothing else and stores one value: silu(gate) up. keep: the result is also stored where the
 * argument is. Its gradient reads another tensor at (r, c) and stores up to three: of gate, of up, and the gate again. */
typedef enum an_gpu_pair { AN_GPU_NO_PAIR, AN_GPU_GATE, AN_GPU_GATE_GRADIENT } an_gpu_pair;
an_gpu_pair an_render_gpu_can_pair(const an_loop_kernel *p, int gemm);
void an_render_gpu_pair_epilogue(const an_loop_kernel *p, int gemm, bool keep, an_text *out);
void an_render_gpu_pair_gradient(const an_loop_kernel *p, int gemm, an_text *out);

/* An epilogue that adds a bias, a number a column, to f32 sums and stores them rounded to bf16, and no more: which arguments these
 * are, and how far rows of the result lie apart. False: it is another. */
typedef struct an_gpu_bias {
    int bias, sum;
    int64_t row;
} an_gpu_bias;
bool an_render_gpu_is_bias(const an_loop_kernel *p, an_gpu_bias *out);

/* An elementwise op's kernel expression with its operands' texts in place of a, b, c. */
void an_render_expression(const char *expression, const char *a, const char *b, const char *c, an_text *out);

#endif
