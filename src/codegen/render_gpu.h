/* render_gpu.h: what the files of render_gpu.c share. Private to the renderer.
 */
#ifndef AN_CODEGEN_RENDER_GPU_H
#define AN_CODEGEN_RENDER_GPU_H

#include "codegen/render.h"

/* C types of a dtype in memory, and in registers. */
extern const char *const an_gpu_storage[AN_N_DTYPES], *const an_gpu_computed[AN_N_DTYPES];

/* The form of a kernel's inner loop. All zero: one column a thread; the other forms are for the fast mode of CUDA. */
typedef struct an_gpu_form {
    int wide;    /* columns of a thread in vector accesses, 0: one column */
    bool ragged; /* the last vector of a row has columns beyond its edge, which are neither computed nor stored */
    int blocks;  /* the row is kept between phases: in registers, a lane holding this many vectors of `wide` columns */
    bool drawn;  /* ... with its random numbers, each drawn once */
    bool shared; /* ... or by the thread block in shared memory, each thread its own columns */
    bool approx_16bit; /* inputs and outputs have 16 bits: exp and erf are approximated to that */
    const char
        *column; /* "[1]": which of several columns a value's name is followed by; NULL: values are of one column */
} an_gpu_form;

/* Whether an index, a guard or a row's store reads loop variable `var`. */
bool an_gpu_uses(const an_loop_kernel *p, int32_t var);
/* The index `a` as text, in 32 bits where it fits. reach: the most that the address gets on top of it, by the row that a
 * gather looks up. */
void an_gpu_index(const an_loop_kernel *p, an_ix a, int64_t reach, an_text *out);
/* The text `e`, rounded to `dtype`. */
void an_gpu_rounded(int dtype, const char *e, an_text *out);
/* Instruction i as one line. `once`: the condition that selects the one thread which stores a row's value. */
void an_gpu_instruction(const an_loop_kernel *p, int i, const char *indent, const char *once, an_gpu_form f,
                        an_text *out);

/* The value of an elementwise or a constant instruction, before it is given a name. */
void an_gpu_value(const an_loop_kernel *p, int i, an_gpu_form f, an_text *out);

/* Whether instruction `in` can access `wide` neighbouring columns at once: its index is c plus a multiple of `wide`. */
bool an_gpu_is_vector_access(const an_loop_kernel *p, const an_ins *in, int wide);
/* Whether every load and store of a column is such an access, so that a row may end within one (`ragged`). */
bool an_gpu_all_vector_accesses(const an_loop_kernel *p, int wide);
/* Whether a thread for `wide` neighbouring columns of a column reduction loads what is different in every row, and stores, in vectors: the
 * others are the same for all rows, as the weights of a depthwise convolution. */
bool an_gpu_wide_columns_pay(const an_loop_kernel *p, int wide);
/* ", 693 - c0": how many columns are left, where a row may end within a vector; and the test that skips column c beyond it. */
void an_gpu_edge(const an_loop_kernel *p, an_gpu_form f, an_text *out);
void an_gpu_skip_beyond_edge(const an_loop_kernel *p, an_gpu_form f, const char *indent, an_text *out);
/* Whether what i loads or stores is kept for later phases, in registers or shared memory. */
bool an_gpu_is_kept(const an_loop_kernel *p, int i, an_gpu_form f);
/* Whether random number i of a column is needed in a later phase, and is the first of its draws. */
bool an_gpu_is_drawn_again(const an_loop_kernel *p, int i);
/* The address of its element at column c0. */
void an_gpu_address(const an_loop_kernel *p, const an_ins *in, an_text *out);
/* One vector load or store at c0; and all of a phase's, around its loop over the columns of a thread. */
void an_gpu_vector_access(const an_loop_kernel *p, int i, an_gpu_form f, const char *block, const char *indent,
                          an_text *out);
void an_gpu_vector_accesses(const an_loop_kernel *p, int phase, an_gpu_form f, bool stores, const char *indent,
                            an_text *out);

/* A reduction: the value a lane starts from; its declarations; the accumulation into one. lane: "" or "[k]" */
const char *an_gpu_first_value(const an_ins *in);
void an_gpu_declare_lanes(const an_loop_kernel *p, int i, int lanes, an_text *out);
void an_gpu_accumulate(const an_loop_kernel *p, int i, const char *lane, const char *place, const char *indent,
                       an_text *out);

/* render_gpu.c: AN_EPILOGUE_ARGS and _NAMES, what kernels/gpu/gemm_hopper.inc hands to an epilogue. */
void an_gpu_epilogue_arguments(const an_loop_kernel *p, an_text *out);

/* render_gpu_reduce.c: rows that are reduced take a subgroup, or a thread block, each; other elements take a thread. */
bool an_gpu_reduces_rows(const an_loop_kernel *p);
an_loop_launch an_gpu_reduce_launch(const an_loop_kernel *p, const an_gpu *gpu);
void an_gpu_reduce(const an_loop_kernel *p, const an_loop_launch *launch, const an_gpu *gpu, an_text *out);

#endif
