/* render_gpu.h: what the files of render_gpu.c share: the words of a program in CUDA and MSL. Private to the renderer.
 */
#ifndef AN_CODEGEN_RENDER_GPU_H
#define AN_CODEGEN_RENDER_GPU_H

#include "codegen/render.h"

/* Types in memory, and in registers. */
extern const char *const an_gpu_storage[AN_N_DTYPES], *const an_gpu_computed[AN_N_DTYPES];

/* How a program is spelled where other devices' bits are not asked for; all zero: plainly. */
typedef struct an_gpu_form {
    int wide;          /* columns of a thread, 0: one */
    int blocks;        /* a row is kept from phase to phase: by a lane in registers, in so many blocks of `wide` */
    bool shared;       /* ... or by a group in shared memory, each thread its own columns */
    bool approx_16bit; /* in and out there are 16 bits: exp and erf need no more than those can show */
    bool rounded;      /* what stands for a product has its dtype */
} an_gpu_form;

/* Whether an index, a guard or a row's store reads loop variable `var`. */
bool an_gpu_uses(const an_loop_kernel *p, int32_t var);
void an_gpu_index(const an_loop_kernel *p, an_ix a, int64_t reach, an_text *out); /* `reach`: what is added to it yet */
/* What rounding to `dtype` does to the text `e`. */
void an_gpu_rounded(int dtype, const char *e, an_text *out);
/* Instruction i, a line. `once`: the condition under which one thread of a row writes what belongs to the row. */
void an_gpu_instruction(const an_loop_kernel *p, int i, const char *indent, const char *once, an_gpu_form f,
                        an_text *out);

/* Whether instruction `in` takes `wide` elements that begin at a multiple of `wide`: its index is c plus what is such a
 * multiple in every row. */
bool an_gpu_is_vector_access(const an_loop_kernel *p, const an_ins *in, int wide);
/* Whether what i loads or stores outlives its phase, in registers or shared memory. */
bool an_gpu_is_kept(const an_loop_kernel *p, int i, an_gpu_form f);
/* Where it stands in memory: the index of its element at c0. */
void an_gpu_address(const an_loop_kernel *p, const an_ins *in, an_text *out);
/* One load or store of the wide form, at c0; those of a phase that stand outside its loop. */
void an_gpu_vector_access(const an_loop_kernel *p, int i, const char *block, const char *indent, an_text *out);
void an_gpu_vector_accesses(const an_loop_kernel *p, int phase, an_gpu_form f, bool stores, const char *indent,
                            an_text *out);

/* What a lane of a reduction starts from; the lanes of reduction i; what is added to one. lane: "" or "[k]" */
const char *an_gpu_first_value(const an_ins *in);
void an_gpu_declare_lanes(const an_loop_kernel *p, int i, int lanes, an_text *out);
void an_gpu_accumulate(const an_loop_kernel *p, int i, const char *lane, const char *place, const char *indent,
                       an_text *out);

/* render_gpu_reduce.c. Rows with values of their own need a subgroup each; other elements a thread each. */
bool an_gpu_reduces_rows(const an_loop_kernel *p);
an_loop_launch an_gpu_reduce_launch(const an_loop_kernel *p, const an_gpu *gpu);
void an_gpu_reduce(const an_loop_kernel *p, const an_loop_launch *launch, const an_gpu *gpu, an_text *out);

#endif
