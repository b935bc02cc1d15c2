/* render_gpu.c: loop kernels as CUDA and MSL: one text, written with the macros of dialect/{cuda,msl}.h and
 * dialect/loops_gpu.h.
 *
 *     loop kernel                        who computes it
 *     elementwise                        a thread an element (CUDA, large: a thread 8 columns in vectorized loads and stores,
 *                                        as float4: an_render_gpu_launch decides, an_gpu_is_vector_access says which)
 *     row reductions (softmax, norms)    a subgroup a row: lane l takes columns l, l + 32, ... (render_gpu_reduce.c)
 *     ... and column sums over runs of rows   a thread block a run; each of its subgroups is one lane of those sums
 *     column reduction                   a thread a column (CUDA, many: four; long: a thread block 32 columns, a subgroup each lane;
 *                                        fast, few and long: a thread block 8 or 32 columns, all its threads)
 *     epilogue of a GEMM                 a function that kernels/gpu/gemm.inc calls through AN_EPILOGUE
 *     ... of a pair of its rows          render_gpu_pair.c
 *
 * Invariants: the 32 virtual lanes of the reduction tree are real lanes, and the fold is five shuffles: the bits of
 * render_c.c. No atomics. An element is written by the thread that later phases read it in. Index arithmetic is in 32
 * bits unless the argument is too large for that (`fits`, render_gpu_instr.c).
 * Extents are literals: equal texts are equal kernels.
 *
 * In fast mode (an_gpu_fast) the order of sums is free: several columns a lane; a row kept in registers between phases,
 * a long row by a block in shared memory; and where nothing along the columns has more than 16 bits, exp and 1 + erf
 * are approximated to 13 bits or more (is_approx, is_approx_row). Only that last one makes fusion visible in the
 * result: the same formula in a kernel that also stores f32 is computed in full.
 */
#include "codegen/render_gpu.h"
#include "codegen/kernel_comment.h"

#include <stdio.h>
#include <string.h>

enum {
    EACH_THREADS = 256,
    COL_THREADS = 64,
    LONG_COLUMN = 64, /* elements of a column from which each of its lanes is summed by a subgroup */
    FIRST_EPILOGUE_BUFFER = 5,
    AN_WIDE = 8,         /* columns of a thread with vector accesses: one of 16 bytes in bf16, two in f32 */
    WIDE_FROM = 1 << 20, /* elements from which a thread every 8 of them still fills a GPU */
    FEW_COLUMNS =
        4096, /* a block for 32 of them would leave multiprocessors of a large GPU without one; one for 8 loads 32 bytes of f32 */
    SOME_COLUMNS = 1 << 18, /* a thread for each would leave a large GPU half empty */
    AN_WIDE_COLUMNS = 4,    /* columns of a thread that sums them: 8 bytes in bf16, 16 in f32 */
    WIDE_COLUMNS_FROM = 1 << 18,
    MOST_TAPS = 49 /* of a window whose places are constants of an unrolled loop */
};

/* What epilogues are rendered for where a library or a kernel for sm_90a computes the GEMM: CUDA in fast mode, for only there
 * is an epilogue a text apart from gemm.inc. */
static const an_gpu fast_cuda = {.dialect = &an_dialects[AN_DIALECT_CUDA], .fast = true};

/* Declares i, the element of this thread, and r and c where the kernel reads them. */
static void declare_indices(const an_loop_kernel *p, int threads, an_text *out)
{
    int64_t n = p->rows * p->cols;
    bool is_long = n > INT32_MAX;
    an_text_printf(out,
                   is_long ? "    const an_i64 i = (an_i64)an_block.x * %d + (int)an_thread;\n"
                           : "    const int i = (int)an_block.x * %d + (int)an_thread;\n",
                   threads);
    if (n % threads) an_text_printf(out, "    if (i >= %lld) return;\n", (long long)n);
    const char *type = is_long ? "an_u64" : "an_u32";
    if (an_gpu_uses(p, AN_VAR_ROW)) {
        if (p->cols == 1)
            an_text_puts(out, "    const int r = (int)i;\n");
        else
            an_text_printf(out, "    const int r = (int)((%s)i / %lldu);\n", type, (long long)AN_MAX(p->cols, 1));
    }
    if (an_gpu_uses(p, AN_VAR_COL)) {
        if (p->rows == 1)
            an_text_puts(out, "    const int c = (int)i;\n");
        else
            an_text_printf(out, "    const int c = (int)((%s)i %% %lldu);\n", type, (long long)AN_MAX(p->cols, 1));
    }
    if (!an_gpu_uses(p, AN_VAR_ROW) && !an_gpu_uses(p, AN_VAR_COL)) an_text_puts(out, "    (void)i;\n");
}

/* Whether exp and erf may be approximated: elementwise, and every result has 16 bits. */
static bool is_approx(const an_loop_kernel *p, const an_gpu *gpu)
{
    bool approx_16bit = an_gpu_fast(gpu) && p->shape != AN_COL && !an_gpu_reduces_rows(p);
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].kind == AN_INS_STORE)
            approx_16bit &= p->arg[p->ins[i].arg].dtype == AN_BF16 || p->arg[p->ins[i].arg].dtype == AN_F16;
    return approx_16bit;
}

static void wide_elements(const an_loop_kernel *p, const an_loop_launch *launch, an_gpu_form f, an_text *out)
{
    const int64_t cols = an_round_up(p->cols, AN_WIDE), n = p->rows * cols;
    const bool is_long = n > INT32_MAX - EACH_THREADS * AN_WIDE; /* the last block reaches beyond n */
    const char *type = is_long ? "an_i64" : "int", *unsigned_type = is_long ? "an_u64" : "an_u32";
    an_text_printf(out, "    const %s i = ((%s)an_block.x * %d + (int)an_thread) * %d; /* %d columns a thread */\n",
                   type, type, launch->threads, AN_WIDE, AN_WIDE);
    if (n % ((int64_t)launch->threads * AN_WIDE)) an_text_printf(out, "    if (i >= %lld) return;\n", (long long)n);
    an_text_printf(out, "    const int r = (int)((%s)i / %lldu), c0 = (int)((%s)i %% %lldu);\n    (void)r;\n",
                   unsigned_type, (long long)cols, unsigned_type, (long long)cols);
    if (p->shape == AN_TILE) an_text_printf(out, "    an_gemm_out wp[%d];\n    an_wide_load(wp, gemm + i);\n", AN_WIDE);
    an_gpu_vector_accesses(p, 0, f, false, "    ", out);
    an_text_printf(
        out, "    AN_UNROLL for (int k = 0; k < %d; k++)\n    {\n        const int c = c0 + k;\n        (void)c;\n",
        AN_WIDE);
    an_gpu_skip_beyond_edge(p, f, "        ", out);
    if (p->shape == AN_TILE) an_text_puts(out, "        const float acc = an_gemm_value(wp[k]);\n");
    for (int i = 0; i < p->n_ins; i++) an_gpu_instruction(p, i, "        ", "if (c == 0) ", f, out);
    an_text_puts(out, "    }\n");
    an_gpu_vector_accesses(p, 0, f, true, "    ", out);
}

static void elements(const an_loop_kernel *p, const an_loop_launch *launch, const an_gpu *gpu, an_text *out)
{
    const an_gpu_form f = {.wide = launch->vector ? AN_WIDE : 0,
                           .ragged = launch->vector && p->cols % AN_WIDE,
                           .approx_16bit = is_approx(p, gpu)};
    if (launch->vector) {
        wide_elements(p, launch, f, out);
        return;
    }
    declare_indices(p, launch->threads, out);
    if (p->shape == AN_TILE) an_text_puts(out, "    const float acc = an_gemm_value(gemm[i]);\n");
    for (int i = 0; i < p->n_ins; i++) an_gpu_instruction(p, i, "    ", "if (c == 0) ", f, out);
}

/* column_turn for four columns a thread, c0 to c0 + 3, loaded at once: s[lane][k] is column k's. */
static void wide_column_turn(const an_loop_kernel *p, int red, int lanes, const char *from, const char *indent,
                             an_text *out)
{
    const an_gpu_form f = {.wide = AN_WIDE_COLUMNS};
    char deeper[32], deepest[32];
    snprintf(deeper, sizeof deeper, "%s    ", indent);
    snprintf(deepest, sizeof deepest, "%s        ", indent);
    an_text_printf(out, "%sAN_UNROLL for (int lane = 0; lane < %d; lane++)\n%s{\n%sconst int q = %s + lane;\n", indent,
                   lanes, indent, deeper, from);
    if (!an_gpu_uses(p, AN_VAR_RED)) an_text_printf(out, "%s(void)q;\n", deeper);
    an_gpu_vector_accesses(p, 0, f, false, deeper, out);
    an_text_printf(out, "%sAN_UNROLL for (int k = 0; k < %d; k++)\n%s{\n%sconst int c = c0 + k;\n%s(void)c;\n", deeper,
                   AN_WIDE_COLUMNS, deeper, deepest, deepest);
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase == 0 && i != red) an_gpu_instruction(p, i, deepest, "", f, out);
    an_gpu_accumulate(p, red, "[lane][k]", "q", deepest, out);
    an_text_printf(out, "%s}\n%s}\n", deeper, indent);
}

/* A column reduction by one thread for four columns: each column's sums are in the order of a thread's own. */
static void wide_columns(const an_loop_kernel *p, int red, int lanes, int threads, an_text *out)
{
    const an_ins *in = &p->ins[red];
    const an_gpu_form f = {.wide = AN_WIDE_COLUMNS};
    const long long left = p->red % lanes, whole = p->red - left, across = p->cols / AN_WIDE_COLUMNS,
                    n = p->rows * across;
    const char *add = in->op == AN_OP_MAX ? "an_max" : "an_plus";
    char from[24];
    snprintf(from, sizeof from, "%lld", whole);
    an_text_printf(out, "    const int i = (int)an_block.x * %d + (int)an_thread; /* %d columns a thread */\n", threads,
                   AN_WIDE_COLUMNS);
    if (n % threads) an_text_printf(out, "    if (i >= %lld) return;\n", n);
    an_text_printf(out,
                   "    const int r = (int)((an_u32)i / %lldu), c0 = (int)((an_u32)i %% %lldu) * %d;\n    (void)r;\n",
                   across, across, AN_WIDE_COLUMNS);
    an_text_printf(out,
                   "    %s s%d[%d][%d];\n    AN_UNROLL for (int lane = 0; lane < %d; lane++)\n"
                   "        AN_UNROLL for (int k = 0; k < %d; k++) s%d[lane][k] = %s;\n",
                   an_gpu_computed[in->dtype], red, lanes, AN_WIDE_COLUMNS, lanes, AN_WIDE_COLUMNS, red,
                   an_gpu_first_value(in));
    if (whole) {
        const bool window = lanes == 1 && p->red <= MOST_TAPS;
        an_text_printf(out, "    %sfor (int q0 = 0; q0 < %lld; q0 += %d)\n", window ? "AN_UNROLL " : "", whole, lanes);
        wide_column_turn(p, red, lanes, "q0", "        ", out);
    }
    if (left) wide_column_turn(p, red, (int)left, from, "    ", out);
    an_gpu_vector_accesses(p, 1, f, false, "    ", out);
    an_text_printf(
        out, "    AN_UNROLL for (int k = 0; k < %d; k++)\n    {\n        const int c = c0 + k;\n        (void)c;\n",
        AN_WIDE_COLUMNS);
    for (int s = lanes / 2; s; s /= 2)
        for (int l = 0; l < s; l++)
            an_text_printf(out, "        s%d[%d][k] = %s(s%d[%d][k], s%d[%d][k]);\n", red, l, add, red, l, red, l + s);
    char e[32];
    snprintf(e, sizeof e, "s%d[0][k]", red);
    an_text_printf(out, "        const %s v%d = ", an_gpu_computed[in->dtype], red);
    an_gpu_rounded(in->dtype, e, out);
    an_text_puts(out, ";\n");
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase > 0 && i != red) an_gpu_instruction(p, i, "        ", "if (c == 0) ", f, out);
    an_text_puts(out, "    }\n");
    an_gpu_vector_accesses(p, 1, f, true, "    ", out);
}

/* The elements of a column from one lane's turn to the next: `lanes` of them from `from` on, or those that are left. */
static void column_turn(const an_loop_kernel *p, int red, int lanes, const char *from, const char *indent, an_text *out)
{
    an_text_printf(out, "%sAN_UNROLL for (int k = 0; k < %d; k++)\n%s{\n%s    const int q = %s + k;\n", indent, lanes,
                   indent, indent, from);
    if (!an_gpu_uses(p, AN_VAR_RED)) an_text_printf(out, "%s    (void)q;\n", indent);
    char deeper[32];
    snprintf(deeper, sizeof deeper, "%s    ", indent);
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase == 0 && i != red) an_gpu_instruction(p, i, deeper, "", (an_gpu_form){0}, out);
    an_gpu_accumulate(p, red, "[k]", "q", deeper, out);
    an_text_printf(out, "%s}\n", indent);
}

/* A column reduction by one thread, which keeps all virtual lanes. What is left after the last whole turn has a text of
 * its own: with a test at each element no load could be asked for before the one in front of it has come. */
static void columns_by_threads(const an_loop_kernel *p, int red, int lanes, int threads, an_text *out)
{
    declare_indices(p, threads, out);
    an_gpu_declare_lanes(p, red, lanes, out);
    if (lanes > 1) {
        const long long left = p->red % lanes, whole = p->red - left;
        char from[24];
        snprintf(from, sizeof from, "%lld", whole);
        if (whole) {
            an_text_printf(out, "    for (int q0 = 0; q0 < %lld; q0 += %d)\n", whole, lanes);
            column_turn(p, red, lanes, "q0", "        ", out);
        }
        if (left) column_turn(p, red, (int)left, from, "    ", out);
        return;
    }
    an_text_printf(out, "    for (int q = 0; q < %lld; q++) {\n", (long long)p->red);
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase == 0 && i != red) an_gpu_instruction(p, i, "        ", "", (an_gpu_form){0}, out);
    an_gpu_accumulate(p, red, "", "q", "        ", out);
    an_text_puts(out, "    }\n");
}

/* A column reduction by a thread block: 32 columns, one subgroup for each virtual lane. Loads are unrolled, 16 in flight
 * where that divides the column. In the end the first subgroup gathers the lanes from shared memory. */
static void columns_by_subgroups(const an_loop_kernel *p, int red, an_text *out)
{
    const an_ins *in = &p->ins[red];
    const char *type = an_gpu_computed[in->dtype];
    const long long across = p->cols / 32;
    int at_once = 16;
    while (p->red % (AN_RUN_LANES * at_once)) at_once /= 2;
    an_text_printf(out,
                   "    const int l = (int)an_lane, r = (int)(an_block.x / %lldu), c = (int)(an_block.x "
                   "%% %lldu) * 32 "
                   "+ l;\n    (void)r;\n",
                   across, across);
    an_text_printf(out,
                   "    %s s = %s;\n    for (int q0 = (int)an_subgroup; q0 < %lld; q0 += %d)\n        AN_UNROLL for "
                   "(int k = 0; k < %d; k++)\n        {\n            const int q = q0 + %d * k;\n",
                   type, an_gpu_first_value(in), (long long)p->red, AN_RUN_LANES * at_once, at_once, AN_RUN_LANES);
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase == 0 && i != red) an_gpu_instruction(p, i, "            ", "", (an_gpu_form){0}, out);
    an_text_printf(out, "            s = %s(s, v%d);\n        }\n", in->op == AN_OP_MAX ? "an_max" : "an_plus", in->a);
    an_text_printf(out,
                   "    AN_SHARED_ARRAY(%s, lanes, %d);\n    lanes[an_thread] = s;\n    AN_BARRIER();\n    if "
                   "(an_subgroup > 0) return;\n"
                   "    %s s%d[%d];\n    AN_UNROLL for (int k = 0; k < %d; k++) s%d[k] = lanes[l + 32 * k];\n",
                   type, 32 * AN_RUN_LANES, type, red, AN_RUN_LANES, AN_RUN_LANES, red);
}

/* A reduction of few long columns, in fast mode: the threads of a block share its columns' elements, and fold their sums in shared memory. */
static void shared_columns(const an_loop_kernel *p, int red, const an_loop_launch *launch, an_text *out)
{
    const an_ins *in = &p->ins[red];
    const char *type = an_gpu_computed[in->dtype], *add = in->op == AN_OP_MAX ? "an_max" : "an_plus";
    const int across = launch->columns, lanes = launch->threads / across, at_once = (int)AN_MIN(p->red / lanes, 8);
    const long long turn = (long long)lanes * at_once, whole = p->red / turn * turn;
    an_text_printf(out,
                   "    const int lane = (int)an_thread / %d, i = (int)an_block.x * %d + (int)an_thread %% %d, r = i / "
                   "%lld, c = i %% %lld;\n    (void)r;\n    %s s = %s;\n",
                   across, across, across, (long long)p->cols, (long long)p->cols, type, an_gpu_first_value(in));
    for (int rest = 0; rest < 2 && !(rest && whole == p->red); rest++) {
        if (rest)
            an_text_printf(out, "    for (int q = %lld + lane; q < %lld; q += %d) {\n", whole, (long long)p->red,
                           lanes);
        else
            an_text_printf(out,
                           "    for (int q0 = lane; q0 < %lld; q0 += %lld)\n        AN_UNROLL for (int k = 0; k < %d; "
                           "k++)\n        {\n            const int q = q0 + %d * k;\n",
                           whole, turn, at_once, lanes);
        const char *indent = rest ? "        " : "            ";
        for (int i = 0; i < p->n_ins; i++)
            if (p->ins[i].phase == 0 && i != red) an_gpu_instruction(p, i, indent, "", (an_gpu_form){0}, out);
        an_text_printf(out, "%ss = %s(s, v%d);\n%s}\n", indent, add, in->a, rest ? "    " : "        ");
    }
    an_text_printf(
        out,
        "    AN_SHARED_ARRAY(%s, lanes, %d);\n    lanes[an_thread] = s;\n    for (int half = %d; half; half /= "
        "2) {\n        AN_BARRIER();\n        if (lane < half) lanes[an_thread] = %s(lanes[an_thread], "
        "lanes[an_thread + half * %d]);\n    }\n    if (lane > 0) return;\n    const %s s%d = "
        "lanes[an_thread];\n",
        type, launch->threads, lanes / 2, add, across, type, red);
}

static void columns(const an_loop_kernel *p, const an_loop_launch *launch, an_text *out)
{
    int red = 0;
    while (p->ins[red].kind != AN_INS_REDUCE) red++;
    const an_ins *in = &p->ins[red];
    int lanes = in->op == AN_OP_ARGMAX || launch->columns ? 1 : AN_MAX(p->lanes, 1);
    if (launch->vector) {
        wide_columns(p, red, lanes, launch->threads, out);
        return;
    }
    if (launch->columns)
        shared_columns(p, red, launch, out);
    else if (launch->lane_per_subgroup)
        columns_by_subgroups(p, red, out);
    else
        columns_by_threads(p, red, lanes, launch->threads, out);
    for (int s = lanes / 2; s; s /= 2)
        for (int l = 0; l < s; l++)
            an_text_printf(out, "    s%d[%d] = %s(s%d[%d], s%d[%d]);\n", red, l,
                           in->op == AN_OP_MAX ? "an_max" : "an_plus", red, l, red, l + s);
    char e[32];
    snprintf(e, sizeof e, in->op == AN_OP_ARGMAX ? "q%d" : lanes > 1 ? "s%d[0]" : "s%d", red);
    an_text_printf(out, "    const %s v%d = ", an_gpu_computed[in->dtype], red);
    an_gpu_rounded(in->dtype, e, out);
    an_text_puts(out, ";\n");
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase > 0 && i != red) an_gpu_instruction(p, i, "    ", "if (c == 0) ", (an_gpu_form){0}, out);
}

/* ---------------------------------------------------------------------------------------------- kernels */

static bool is_rng(const an_loop_arg *a)
{
    return !strcmp(a->name, "rng");
}
static const char *type_of(const an_loop_arg *a)
{
    return is_rng(a) ? "an_u32" : an_gpu_storage[a->dtype];
}

static void notes_above(const an_loop_kernel *p, an_text *out)
{
    static const char *const shapes[] = {"rows", "columns", "epilogue"};
    an_text_printf(out, "/* %s: %s, %lld x %lld", p->name, shapes[p->shape], (long long)p->rows, (long long)p->cols);
    if (p->shape == AN_COL) an_text_printf(out, " over %lld", (long long)p->red);
    an_text_puts(out, "; ");
    an_render_cost(p->flops, p->bytes, out);
    an_text_puts(out, "\n");
    an_render_formulas(p, " *     ", out);
    for (int i = 0; i < p->n_args; i++)
        an_text_printf(out, " * %s %s: %s %s\n", p->arg[i].written ? p->arg[i].read ? "updates" : "writes " : "reads  ",
                       p->arg[i].name, an_dtype_name((an_dtype)p->arg[i].dtype), p->arg[i].note);
    an_text_puts(out, " */\n");
}

/* The output through whose parameter input i is read, -1: it has its own. */
static int alias_of(const an_aliases *aliases, int i)
{
    return aliases ? aliases->output[i] : -1;
}

/* The function that AN_EPILOGUE calls. Rows are numbered through the batch, as on the CPU. */
static void epilogue(const an_loop_kernel *p, const char *name, const an_aliases *aliases, an_text *out)
{
    an_text_printf(out, "AN_FN void %s(int r, int c, float acc", name);
    for (int i = 0; i < p->n_args; i++)
        an_text_printf(out, ", AN_DEVICE %s%s *%s", p->arg[i].written ? "" : "const ", type_of(&p->arg[i]),
                       p->arg[i].name);
    an_text_puts(out, ")\n{\n");
    if (!an_gpu_uses(p, AN_VAR_ROW)) an_text_puts(out, "    (void)r;\n");
    if (!an_gpu_uses(p, AN_VAR_COL)) an_text_puts(out, "    (void)c;\n");
    for (int i = 0; i < p->n_ins; i++) an_gpu_instruction(p, i, "    ", "if (c == 0) ", (an_gpu_form){0}, out);
    an_text_puts(out, "}\n#define AN_EPILOGUE_ARGS ");
    for (int i = 0; i < p->n_args; i++)
        if (alias_of(aliases, i) < 0)
            an_text_printf(out, ", %s(%d, %s, %s)", p->arg[i].written ? "AN_LOOP_OUT" : "AN_LOOP_IN",
                           FIRST_EPILOGUE_BUFFER + i, type_of(&p->arg[i]), p->arg[i].name);
    an_text_printf(out, "\n#define AN_EPILOGUE(row, col, acc) %s(batch * g.m + (row), col, acc", name);
    for (int i = 0; i < p->n_args; i++) {
        const int output = alias_of(aliases, i);
        an_text_printf(out, ", %s", p->arg[output < 0 ? i : output].name);
    }
    an_text_puts(out, ")\n");
}

/* Whether a column reduction can be shared by subgroups: long enough, lanes of equal length, a multiple of 32 columns. */
static bool is_long_column(const an_loop_kernel *p)
{
    bool is_long = p->shape == AN_COL && p->lanes == AN_RUN_LANES && p->cols % 32 == 0 && p->red >= LONG_COLUMN &&
                   p->red % AN_RUN_LANES == 0;
    for (int i = 0; i < p->n_ins; i++) is_long &= p->ins[i].kind != AN_INS_REDUCE || p->ins[i].op != AN_OP_ARGMAX;
    return is_long && p->rows * p->cols / 32 <= INT32_MAX;
}

static bool is_argmax(const an_loop_kernel *p)
{
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].kind == AN_INS_REDUCE && p->ins[i].op == AN_OP_ARGMAX) return true;
    return false;
}

/* How the threads of a block share few long columns: 8 of them, or 32 where those make blocks enough. */
static bool shares_columns(const an_loop_kernel *p, const an_gpu *gpu, an_loop_launch *out)
{
    const int64_t n = p->rows * p->cols;
    if (!an_gpu_fast(gpu) || !gpu->dialect->vector_access || p->shape != AN_COL || is_argmax(p)) return false;
    if (p->cols % 8 == 0 && n <= FEW_COLUMNS && p->red >= LONG_COLUMN)
        *out = (an_loop_launch){.columns = 8, .threads = p->red < 512 ? 128 : p->red < 2048 ? 256 : 1024};
    else if (p->cols % 32 == 0 && n <= SOME_COLUMNS && p->red >= 8 * LONG_COLUMN && !is_long_column(p))
        *out = (an_loop_launch){.columns = 32, .threads = 256};
    else
        return false;
    out->blocks = n / out->columns;
    return true;
}

an_loop_launch an_render_gpu_launch(const an_loop_kernel *p, const an_gpu *gpu)
{
    const an_dialect *d = gpu->dialect;
    if (an_gpu_reduces_rows(p)) return an_gpu_reduce_launch(p, gpu);
    int64_t n = p->rows * p->cols;
    const int64_t vectors = p->rows * an_ceil_div(p->cols, AN_WIDE);
    const bool whole = p->cols % AN_WIDE == 0 || (p->shape == AN_ROW && an_gpu_all_vector_accesses(p, AN_WIDE));
    if (d->vector_access && p->shape != AN_COL && whole && n >= WIDE_FROM && vectors <= INT32_MAX)
        return (an_loop_launch){.blocks = an_ceil_div(vectors, EACH_THREADS), .threads = EACH_THREADS, .vector = true};
    an_loop_launch shared;
    if (shares_columns(p, gpu, &shared)) return shared;
    if (d->block_per_row && is_long_column(p))
        return (an_loop_launch){.blocks = n / 32, .threads = 32 * AN_RUN_LANES, .lane_per_subgroup = true};
    if (d->vector_access && p->shape == AN_COL && p->cols % AN_WIDE_COLUMNS == 0 && n >= WIDE_COLUMNS_FROM &&
        n <= INT32_MAX && !is_argmax(p) && an_gpu_wide_columns_pay(p, AN_WIDE_COLUMNS))
        return (an_loop_launch){
            .blocks = an_ceil_div(n / AN_WIDE_COLUMNS, COL_THREADS), .threads = COL_THREADS, .vector = true};
    int threads = (int)AN_MIN(p->shape == AN_COL ? COL_THREADS : EACH_THREADS, AN_MAX(an_round_up(n, 32), 32));
    return (an_loop_launch){.blocks = an_ceil_div(n, threads), .threads = threads};
}

const char *an_render_gpu_refusal(const an_loop_kernel *p, const an_dialect *dialect)
{
    int buffers = p->n_args + (p->shape == AN_TILE ? FIRST_EPILOGUE_BUFFER : 0);
    if (dialect->max_buffers && buffers > dialect->max_buffers) return dialect->too_many_buffers;
    if (p->rows > INT32_MAX || p->cols > INT32_MAX || p->red > INT32_MAX)
        return "has an extent of more than 2147483647; use a smaller batch";
    bool float64 = false;
    for (int i = 0; i < p->n_args; i++) float64 |= p->arg[i].dtype == AN_F64;
    for (int i = 0; i < p->n_ins; i++) float64 |= p->ins[i].dtype == AN_F64;
    return float64 ? dialect->no_float64 : NULL;
}

static const char *parameter_macro(const an_loop_arg *a, const an_dialect *d)
{
    return a->written ? "AN_LOOP_OUT" : a->fixed && d->restrict_input ? "AN_LOOP_CONST" : "AN_LOOP_IN";
}

void an_render_gpu_epilogue_kernel(const an_loop_kernel *p, const char *name, an_dtype gemm_dtype, an_text *out)
{
    an_loop_launch launch = an_render_gpu_launch(p, &fast_cuda);
    bool half = gemm_dtype == AN_BF16;
    an_text_printf(out, "typedef %s an_gemm_out;\nAN_FN float an_gemm_value(an_gemm_out x) { return %s; }\n",
                   an_gpu_storage[gemm_dtype], half ? "an_bf16_to_f32(x)" : "x");
    an_text_printf(out, "AN_KERNEL(%s, %d)\n(AN_LOOP_IN(0, %s, gemm)", name, launch.threads,
                   an_gpu_storage[gemm_dtype]);
    for (int i = 0; i < p->n_args; i++)
        an_text_printf(out, ", %s(%d, %s, %s)", parameter_macro(&p->arg[i], fast_cuda.dialect), i + 1,
                       type_of(&p->arg[i]), p->arg[i].name);
    an_text_puts(out, " AN_IDS)\n{\n");
    elements(p, &launch, &fast_cuda, out);
    an_text_puts(out, "}\n");
}

/* ---------------------------------------------------------------------------------------------- fused epilogues */

/* The instructions of an epilogue that are done with the sums, in registers, and `first`, whose value the others begin with: the
 * bf16 product; or the rounding of f32 sums, to which a bias may be added. -1: there is none. */
typedef struct sums {
    int32_t tile, bias, load, added, first; /* bias: what is added, read by `load`, which may be itself */
} sums;

/* The one instruction that reads value i, -1: none or several do. */
static int32_t reader_of(const an_loop_kernel *p, int32_t i)
{
    int32_t reader = -1;
    for (int32_t r = i + 1; r < p->n_ins; r++) {
        const an_ins *in = &p->ins[r];
        if (in->a != i && in->b != i && in->c != i) continue;
        if (reader >= 0) return -1;
        reader = r;
    }
    return reader;
}

static sums sums_of(const an_loop_kernel *p)
{
    sums s = {-1, -1, -1, -1, -1};
    for (int32_t i = 0; i < p->n_ins; i++) {
        if (p->ins[i].kind != AN_INS_TILE) continue;
        if (s.tile >= 0) return (sums){-1, -1, -1, -1, -1};
        s.tile = i;
    }
    if (s.tile < 0 || p->ins[s.tile].dtype == AN_BF16) {
        s.first = s.tile;
        return s;
    }
    int32_t last = s.tile, next = reader_of(p, last);
    if (next >= 0 && p->ins[next].kind == AN_INS_ELEM && p->ins[next].op == AN_OP_ADD) {
        s.added = next;
        s.load = s.bias = p->ins[next].a == s.tile ? p->ins[next].b : p->ins[next].a;
        if (p->ins[s.bias].kind == AN_INS_CAST) s.load = p->ins[s.bias].a;
        const an_ins *load = &p->ins[s.load];
        if (load->kind != AN_INS_LOAD || load->guard >= 0 || load->a >= 0 || an_ix_uses(&p->ix, load->ix, AN_VAR_ROW) ||
            reader_of(p, s.load) < 0 || reader_of(p, s.bias) < 0)
            return s;
        last = next, next = reader_of(p, last);
    }
    const an_ins *rounding = next < 0 ? NULL : &p->ins[next];
    if (rounding && p->ins[last].dtype == AN_F32 && rounding->kind == AN_INS_CAST && rounding->dtype == AN_BF16)
        s.first = next;
    return s;
}

/* Whether instruction i is done before the epilogue's functions begin. */
static bool is_of_sums(const sums *s, int32_t i)
{
    return i == s->tile || i == s->bias || i == s->load || i == s->added || i == s->first;
}

bool an_render_gpu_can_fuse_epilogue(const an_loop_kernel *p)
{
    bool stores = false;
    if (p->shape != AN_TILE || p->cols % AN_WIDE || an_render_gpu_refusal(p, fast_cuda.dialect)) return false;
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if (in->kind == AN_INS_RAND) return false; /* random numbers cost more than the memory traffic saved */
        if (in->kind == AN_INS_STORE && !an_gpu_is_vector_access(p, in, AN_WIDE)) return false;
        stores |= in->kind == AN_INS_STORE;
    }
    return stores && sums_of(p).first >= 0;
}

bool an_render_gpu_is_bias(const an_loop_kernel *p, an_gpu_bias *out)
{
    const sums s = sums_of(p);
    int64_t across, along;
    if (p->shape != AN_TILE || s.first < 0 || s.bias < 0) return false;
    *out = (an_gpu_bias){.bias = p->ins[s.load].arg, .sum = -1};
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if (is_of_sums(&s, i)) continue;
        if (in->kind != AN_INS_STORE || out->sum >= 0 || in->a != s.first || p->arg[in->arg].dtype != AN_BF16 ||
            !an_ix_stride(&p->ix, in->ix, AN_VAR_COL, &across) ||
            !an_ix_stride(&p->ix, in->ix, AN_VAR_ROW, &out->row) || across != 1 || p->ix.expr[in->ix].lo != 0)
            return false;
        out->sum = in->arg;
    }
    const an_ix from = p->ins[s.load].ix;
    return out->sum >= 0 && an_ix_stride(&p->ix, from, AN_VAR_COL, &along) && along == 1 && p->ix.expr[from].lo == 0 &&
           p->ix.expr[from].hi == p->cols - 1;
}

static bool is_read_ahead(const an_loop_kernel *p, const sums *s, int i)
{
    return p->ins[i].kind == AN_INS_LOAD && an_gpu_is_vector_access(p, &p->ins[i], AN_WIDE) && !is_of_sums(s, i);
}

/* The head of one of the epilogue's functions: `head` and the arguments; with `reads`, names for what was loaded ahead. */
static void epilogue_function(const an_loop_kernel *p, const sums *s, const char *head, bool reads, an_text *out)
{
    an_text_printf(out, "AN_FN %s", head);
    for (int i = 0; i < p->n_args; i++)
        an_text_printf(out, ", %s%s *%s", p->arg[i].written ? "" : "const ", type_of(&p->arg[i]), p->arg[i].name);
    an_text_puts(out, ")\n{\n");
    for (int i = 0; reads && i < p->n_ins; i++)
        if (is_read_ahead(p, s, i)) an_text_printf(out, "    auto &w%d = in.w%d;\n", i, i);
}

/* What is added to the sums of column c before they are rounded. */
static void epilogue_bias(const an_loop_kernel *p, const sums *s, an_text *out)
{
    epilogue_function(p, s, "float an_epilogue_bias(int c", false, out);
    an_gpu_instruction(p, s->load, "    ", "", (an_gpu_form){0}, out);
    if (s->bias != s->load) an_gpu_instruction(p, s->bias, "    ", "", (an_gpu_form){0}, out);
    an_text_printf(out, "    return v%d;\n}\n", s->bias);
}

/* The three functions of a fused epilogue, each for row r from column c0 on: load the inputs, prefetch them, apply. */
static void epilogue_functions(const an_loop_kernel *p, const sums *s, an_text *out)
{
    const an_gpu_form f = {.wide = AN_WIDE, .approx_16bit = is_approx(p, &fast_cuda)};
    an_text_puts(out, "struct an_epilogue_in {\n");
    for (int i = 0; i < p->n_ins; i++)
        if (is_read_ahead(p, s, i))
            an_text_printf(out, "    %s w%d[%d];\n", an_gpu_storage[p->arg[p->ins[i].arg].dtype], i, AN_WIDE);
    an_text_puts(out, "};\n");
    epilogue_function(p, s, "void an_epilogue_load(an_epilogue_in &in, int r, int c0", true, out);
    an_text_puts(out, "    (void)r;\n");
    for (int i = 0; i < p->n_ins; i++)
        if (is_read_ahead(p, s, i)) an_gpu_vector_access(p, i, f, "", "    ", out);
    an_text_puts(out, "}\n");
    epilogue_function(p, s, "void an_epilogue_prefetch(int r, int c0", false, out);
    an_text_puts(out, "    (void)r;\n");
    for (int i = 0; i < p->n_ins; i++) {
        if (!is_read_ahead(p, s, i) || !an_ix_uses(&p->ix, p->ins[i].ix, AN_VAR_ROW)) continue;
        an_text_puts(out, "    an_prefetch(");
        an_gpu_address(p, &p->ins[i], out);
        an_text_puts(out, ");\n");
    }
    an_text_puts(out, "}\n");
    epilogue_function(p, s, "void an_epilogue_apply(int r, int c0, const an_u16 (&wp)[8], const an_epilogue_in &in",
                      true, out);
    an_text_puts(out, "    (void)r;\n");
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].kind == AN_INS_STORE)
            an_text_printf(out, "    %s w%d[%d];\n", an_gpu_storage[p->arg[p->ins[i].arg].dtype], i, AN_WIDE);
    an_text_printf(
        out,
        "    AN_UNROLL for (int k = 0; k < %d; k++)\n    {\n        const int c = c0 + k;\n        (void)c;\n"
        "        const float v%d = an_bf16_to_f32(wp[k]);\n",
        AN_WIDE, s->first);
    for (int i = 0; i < p->n_ins; i++)
        if (!is_of_sums(s, i)) an_gpu_instruction(p, i, "        ", "", f, out);
    an_text_puts(out, "    }\n");
    an_gpu_vector_accesses(p, 0, f, true, "    ", out);
    an_text_puts(out, "}\n");
}

void an_gpu_epilogue_arguments(const an_loop_kernel *p, an_text *out)
{
    an_text_puts(out, "#define AN_EPILOGUE_ARGS ");
    for (int i = 0; i < p->n_args; i++)
        an_text_printf(out, ", %s(%d, %s, %s)", p->arg[i].written ? "AN_LOOP_OUT" : "AN_LOOP_IN", 3 + i,
                       type_of(&p->arg[i]), p->arg[i].name);
    an_text_puts(out, "\n#define AN_EPILOGUE_NAMES ");
    for (int i = 0; i < p->n_args; i++) an_text_printf(out, ", %s", p->arg[i].name);
    an_text_puts(out, "\n");
}

void an_render_gpu_fused_epilogue(const an_loop_kernel *p, an_text *out)
{
    const sums of = sums_of(p);
    epilogue_functions(p, &of, out);
    if (of.bias >= 0) epilogue_bias(p, &of, out);
    an_gpu_epilogue_arguments(p, out);
    if (of.bias >= 0) an_text_puts(out, "#define AN_EPILOGUE_BIAS(col) an_epilogue_bias(col AN_EPILOGUE_NAMES)\n");
    an_text_puts(out,
                 "#define AN_EPILOGUE_LOAD(in, row, col) an_epilogue_load(in, row, col AN_EPILOGUE_NAMES)\n"
                 "#define AN_EPILOGUE_PREFETCH(row, col) an_epilogue_prefetch(row, col AN_EPILOGUE_NAMES)\n"
                 "#define AN_EPILOGUE_APPLY(row, col, x, in) an_epilogue_apply(row, col, x, in AN_EPILOGUE_NAMES)\n");
}

void an_render_gpu(const an_loop_kernel *p, const char *name, const an_gpu *gpu, const an_aliases *aliases, bool notes,
                   an_text *out)
{
    if (an_render_gpu_refusal(p, gpu->dialect)) {
        out->failed = true;
        return;
    }
    if (notes) notes_above(p, out);
    if (p->shape == AN_TILE) {
        epilogue(p, name, aliases, out);
        return;
    }
    an_loop_launch launch = an_render_gpu_launch(p, gpu);
    an_text_printf(out, launch.two_per_sm ? "AN_KERNEL(%s, %d, 2)\n(" : "AN_KERNEL(%s, %d)\n(", name, launch.threads);
    const char *comma = "";
    for (int i = 0; i < p->n_args; i++) {
        if (alias_of(aliases, i) >= 0) continue;
        an_text_printf(out, "%s%s(%d, %s, %s)", comma, parameter_macro(&p->arg[i], gpu->dialect), i,
                       type_of(&p->arg[i]), p->arg[i].name);
        comma = ", ";
    }
    an_text_puts(out, " AN_IDS)\n{\n");
    for (int i = 0; i < p->n_args; i++)
        if (alias_of(aliases, i) >= 0)
            an_text_printf(out, "    AN_DEVICE const %s *%s = %s; /* in place */\n", type_of(&p->arg[i]),
                           p->arg[i].name, p->arg[alias_of(aliases, i)].name);
    if (gpu->follow) an_text_puts(out, "    AN_LET_NEXT();\n    AN_AWAIT();\n");
    if (gpu->plain && p->shape != AN_COL && an_gpu_reduces_rows(p))
        an_text_printf(out, "    AN_MEET_LANES(%d);\n", launch.threads);
    if (p->shape == AN_COL)
        columns(p, &launch, out);
    else if (an_gpu_reduces_rows(p))
        an_gpu_reduce(p, &launch, gpu, out);
    else
        elements(p, &launch, gpu, out);
    an_text_puts(out, "}\n");
}
