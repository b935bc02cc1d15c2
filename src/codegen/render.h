/* render.h: row programs as source text, one renderer a dialect. */
#ifndef AN_CODEGEN_RENDER_H
#define AN_CODEGEN_RENDER_H

#include "ir/loop_kernel.h"

/* The kernel `name` as a C function `void name(const an_tile *t, void *const *arg)`, without the prelude. It covers
 * rows [t->row0, t->row1) and columns [t->col0, t->col1) (all columns when the program reduces rows). With `notes` it
 * says whose kernel it is; without, equal layers have equal text. */
void an_render_c(const an_loop_kernel *p, const char *name, bool notes, an_text *out);
/* What stands in front of it, once a file: part 0 is base/exact.h, part 1 dialect/rows_c.h. */
const char *an_render_c_prelude(int part);

/* The same in any dialect: "c", "cuda" or "msl". An unknown dialect marks `out` failed. */
void an_render(const char *dialect, const an_loop_kernel *p, const char *name, bool notes, an_text *out);
/* Why a dialect cannot spell a program ("uses float64, ..."), NULL when it can. */
const char *an_render_refusal(const char *dialect, const an_loop_kernel *p);
/* CUDA and MSL: a thread a column element, 32 lanes a row reduction (render_gpu.c). */
typedef enum an_gpu_kind {
    AN_GPU_CUDA,
    AN_GPU_MSL,
    AN_GPU_CUDA_FAST /* sums in an order of its own: the bits of other devices are not asked for */
} an_gpu_kind;
void an_render_gpu(const an_loop_kernel *p, const char *name, an_gpu_kind gpu, bool notes, an_text *out);
/* The epilogue of a product that a library has left in memory (f32 or bf16, rows behind each other), as a kernel of its
 * own: the product first, then the program's arguments. Launched as an_render_gpu_launch says. */
void an_render_gpu_tail(const an_loop_kernel *p, const char *name, an_dtype product, an_text *out);
/* The same as the end of templates/gemm_hopper.inc, of a product in bf16; and whether it can be one: what it stores,
 * and what it rounds the product to, is taken eight columns at a time. */
void an_render_gpu_end(const an_loop_kernel *p, an_text *out);
bool an_render_gpu_can_end(const an_loop_kernel *p);
/* How that kernel is launched: groups along x, threads in each. */
typedef struct an_launch {
    int64_t groups;
    int threads, shared_bytes; /* the second: CUDA, asked for at launch */
    bool wide;                 /* CUDA: several columns a thread, in wide accesses */
    bool team;                 /* CUDA: a group a row, where rows are few and long */
    bool shares;               /* and each reduction is shared by the group */
    bool apart;                /* CUDA: each lane of a column sum is a subgroup's */
    bool pair;                 /* CUDA: a multiprocessor is to hold two such groups at a time */
} an_launch;
an_launch an_render_gpu_launch(const an_loop_kernel *p, an_gpu_kind gpu);
/* Why a GPU cannot run a program ("uses float64, ..."), NULL when it can. Rendering one that is refused marks the text
 * failed. */
const char *an_render_gpu_refusal(const an_loop_kernel *p, bool msl);

/* An elementwise op's kernel expression with its operands' texts in place of a, b, c. */
void an_render_expression(const char *expression, const char *a, const char *b, const char *c, an_text *out);

#endif
