/* loop_kernel.h: a loop kernel: the nest of loops that a generated kernel runs, as data. The planner builds it, renderers
 * emit it as source text, the interpreter and the oracle execute it.
 *
 *     AN_ROW   for each row r                     reductions run along c, end with their phase and give one value per
 *                phase 0: for each column c ...   row, which later phases use. With run > 0 columns are summed too, down
 *                phase 1: for each column c ...   each run of that many rows: row q of a run goes to lane q mod 8,
 *                                                 folded 4, 2, 1; the sum is stored when the run has ended
 *     AN_COL   for each row r, each column c      phase 0 is the body of the loop over q, phase 1 runs once at (r,c).
 *                phase 0: for each q ...          lanes 1: the sum is one chain (windows, matmuls of other dtypes)
 *                phase 1: ...                     lanes 8: element q goes to lane q mod 8, folded 4, 2, 1 (column sums)
 *     AN_TILE  for each (r,c) of a block          the epilogue of a GEMM: no reductions, reads the f32 tile
 *
 * Every order of summation above is fixed, so results are deterministic. Where the order of each sum is fixed:
 *
 *     a long sum, split into chunks      graph/compose.c, the same for every device
 *     along a row, down a column         above; the tree of a row: an_tree_sum32, base/exact.h
 *     GEMM, attention, scatter           ir/library_ops.h
 *     contributions to a gradient        graph/grad.c
 * Renderers (codegen/) and the interpreter must keep it. CUDA without `exact` (an_gpu_fast) does not: see render_gpu.c.
 *
 * Instructions are in execution order: sorted by phase, those of row scope before those of column scope, operands before
 * users.
 *
 * Invariants: the value of an instruction is rounded to its dtype, so that fusing never changes bits. A value of column
 * scope is valid in its phase only: a later phase computes it again, or loads it from the output that it was stored to.
 * One of row scope is kept.
 */
#ifndef AN_IR_LOOP_KERNEL_H
#define AN_IR_LOOP_KERNEL_H

#include "graph/graph.h"
#include "ir/index_expr.h"

#define AN_LOOP_ARGS 64 /* most buffers of one kernel; codegen/dialect.h lists such limits */
#define AN_RUN_LANES 8  /* partial sums of a column sum */
#define AN_TILE_ARGS 5  /* of AN_LOOP_ARGS, reserved for the GEMM when an AN_TILE kernel is its epilogue */
#define AN_VAR_ROW   0  /* loop variables of the index expressions */
#define AN_VAR_COL   1
#define AN_VAR_RED   2
#define AN_N_VARS    3

typedef enum an_loop_shape { AN_ROW, AN_COL, AN_TILE } an_loop_shape;

typedef enum an_ins_kind {
    AN_INS_CONST, /* imm / imm_i */
    AN_INS_INDEX, /* i32: the value of `ix` */
    AN_INS_TEST,  /* bool: guard `guard` holds */
    AN_INS_LOAD,  /* arg[ix (+ clamp(a, 0, clamp-1) * scale when a >= 0)] while guard `guard` holds, else 0 */
    AN_INS_TILE,  /* the GEMM's f32 result at (r,c), rounded to dtype */
    AN_INS_RAND, /* uniform number (dropout masks) from rng words in arg `arg`: stream `imm_i`, index ix + (sample 0) * scale */
    AN_INS_ELEM,   /* op over a, b, c */
    AN_INS_CAST,   /* a to dtype */
    AN_INS_REDUCE, /* op SUM, MAX, ARGMAX over a; the result has row scope (AN_ROW) or belongs to phase 1 (AN_COL) */
    AN_INS_STORE,  /* arg[ix] = a */
    AN_INS_COLSUM  /* arg[ix] = f32 sum of a over the rows of the run; ix is the same for all of them */
} an_ins_kind;

/* How often a value is computed: once per row, per (row, column), or per (run of rows, column). The planner uses the
 * last for nodes of a group; no instruction has it. */
typedef enum an_loop_scope { AN_SCOPE_ROW, AN_SCOPE_COL, AN_SCOPE_RUN } an_loop_scope;

typedef struct an_ins {
    uint8_t kind, dtype, scope, phase; /* scope: an_loop_scope */
    uint16_t op;                       /* ELEM, REDUCE: an_op */
    int16_t arg;                       /* LOAD, STORE, RAND: argument; -1 none */
    int32_t a, b, c;                   /* operands: instruction numbers, -1 none */
    an_ix ix;
    int32_t guard; /* index into guards, -1: always */
    int64_t clamp, scale;
    double imm;
    int64_t imm_i;
    int32_t node; /* the graph node this computes, for names in rendered text; -1 */
} an_ins;

typedef struct an_loop_arg {
    uint8_t dtype;
    bool written, read;
    bool fixed;       /* a leaf that aliases no output: its loads may be hoisted */
    const char *name; /* identifier, unique in the kernel */
    const char *note; /* "[64,256,384] transformer.h.0.ln_1" */
    int64_t numel;
} an_loop_arg;

typedef struct an_loop_kernel {
    an_loop_shape shape;
    int64_t rows, cols, red; /* extents of r, c, q (red: AN_COL only) */
    int32_t lanes;           /* AN_COL: 8 or 1 */
    int32_t run;             /* AN_ROW: rows under an AN_INS_COLSUM, which divide `rows`; 0: there is none */
    int32_t n_phases;
    int32_t n_ins, n_args, n_guards;
    an_ins *ins;
    an_loop_arg *arg;
    an_guard *guard;
    an_ix_pool ix;     /* owned: freed with the kernel */
    const char *name;  /* identifier of the kernel, "gpt_h_0_ln_1" */
    const char *title; /* a line for the header comment */
    uint64_t flops, bytes;
} an_loop_kernel;

void an_loop_kernel_free(an_loop_kernel *p);
/* Whether a tile of it always has all columns: what a row's sums, or sums over a run of rows, are needed for. */
bool an_takes_whole_rows(const an_loop_kernel *p);
/* One line an instruction: for dumps and golden tests. */
void an_loop_kernel_print(const an_loop_kernel *p, an_text *out);
/* Structural check: operands earlier, scopes and phases consistent, indices in range of their argument. */
an_status an_loop_kernel_verify(an_err *err, const an_loop_kernel *p);
/* Relative cost of an elementwise op in simple operations. */
int an_op_cost(an_op op);

#endif
