/* render_gpu_reduce.c: loop kernels with reductions along a row, or several phases, on a GPU. an_gpu_reduce_launch
 * chooses the form:
 *
 *     form                       block              the row
 *     subgroup a row             ROWS_A_BLOCK rows  lane l takes columns l, l + 32, ...; reduction = 5 shuffles
 *     ... in registers (fast)    the same           kept between phases: read once, 4 columns a lane at a time
 *     block a row                1 row, few rows    every subgroup reduces the whole row by itself; they share the columns afterwards
 *     ... in shared memory (fast)  1 long row       kept in shared memory; reductions are shared by the block
 *     run of rows                a run of rows      a subgroup a row; column sums over the run in shared memory, a lane each subgroup
 *
 * The rules for bits are at the head of render_gpu.c. */
#include "codegen/render_gpu.h"

#include <stdio.h>
#include <string.h>

enum {
    ROWS_A_BLOCK = 4,
    FEW_ROWS = 16,
    ROW_THREADS = 1024,
    LONG_ROW = 8192,     /* columns from which a block takes a row */
    ROW_WIDE = 4,        /* columns of a lane at a time: 16 bytes of f32 */
    KEPT_REGISTERS = 96, /* most registers in which a lane keeps its row between phases */
    KEPT_BYTES =
        (99 << 10) - 512, /* most bytes of a row in shared memory: what GPUs from sm_80 on have, less the reductions' */
    KEPT_THREADS = 512,   /* most threads of such a block; two of them share a multiprocessor */
    HELD_BYTES = 10 << 20,  /* bytes in flight over all subgroups that keep a large GPU's memory busy */
    SHARED_BYTES = 48 << 10 /* shared memory of a block without opting in to more */
};

static bool is_column(const an_ins *in)
{
    return in->scope == AN_SCOPE_COL && in->kind != AN_INS_REDUCE;
}

bool an_gpu_reduces_rows(const an_loop_kernel *p)
{
    bool rows = p->n_phases > 1 || p->run;
    for (int i = 0; i < p->n_ins; i++) rows |= p->ins[i].kind == AN_INS_REDUCE;
    return p->shape == AN_ROW && rows;
}

/* An output of the row may alias an input of the row (in place): the lane that writes it waits until all lanes have read.
 */
static bool row_is_read(const an_loop_kernel *p, int until)
{
    for (int i = 0; i < until; i++)
        if (p->ins[i].kind == AN_INS_LOAD && p->ins[i].scope == AN_SCOPE_ROW) return true;
    return false;
}

/* The same for a column that an earlier phase gathered by a computed index. */
static bool row_is_picked(const an_loop_kernel *p, int phase)
{
    bool picked = false, stored = false;
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        picked |= in->kind == AN_INS_LOAD && in->scope == AN_SCOPE_ROW && in->a >= 0 && in->phase < phase;
        stored |= in->kind == AN_INS_STORE && in->scope == AN_SCOPE_COL && in->phase == phase;
    }
    return picked && stored;
}

static void end_row_reduction(const an_loop_kernel *p, int i, int wide, const an_loop_launch *launch, an_text *out)
{
    const an_ins *in = &p->ins[i];
    const char *lane = wide ? "[0]" : "", *join = in->op == AN_OP_MAX ? "an_max" : "an_plus";
    char e[48];
    for (int step = wide / 2; step; step /= 2)
        for (int l = 0; l < step; l++)
            an_text_printf(out, "    s%d[%d] = %s(s%d[%d], s%d[%d]);\n", i, l, join, i, l, i, l + step);
    if (in->op == AN_OP_ARGMAX)
        snprintf(e, sizeof e, "an_fold_argmax(b%d, q%d)", i, i);
    else if (launch->block_reduces)
        snprintf(e, sizeof e, "an_block_%s<%d>(s%d%s)", in->op == AN_OP_MAX ? "max" : "sum", launch->threads / 32, i,
                 lane);
    else if (in->op == AN_OP_MAX)
        snprintf(e, sizeof e, "an_fold_max(s%d%s, l)", i, lane);
    else
        snprintf(e, sizeof e, "an_fold_sum(s%d%s)", i, lane);
    an_text_printf(out, "    const %s v%d = ", an_gpu_computed[in->dtype], i);
    an_gpu_rounded(in->dtype, e, out);
    an_text_puts(out, ";\n");
}

/* Whether a phase ends in a reduction. */
static bool reduces(const an_loop_kernel *p, int phase)
{
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase == phase && p->ins[i].kind == AN_INS_REDUCE) return true;
    return false;
}

/* Few long rows: a block a row. Each of its subgroups reduces the whole row by itself, in the order that the bits
 * require; the elementwise phases afterwards are shared. Not where a column is written in a phase that still reduces. */
static bool is_block_per_row(const an_loop_kernel *p, const an_dialect *dialect)
{
    bool shared = false;
    if (!dialect->block_per_row || p->rows > FEW_ROWS || p->cols < ROW_THREADS) return false;
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if (!is_column(in)) continue;
        shared |= !reduces(p, in->phase);
        if (in->kind == AN_INS_STORE && reduces(p, in->phase)) return false;
    }
    return shared;
}

static void narrow_columns(const an_loop_kernel *p, int phase, bool shared, an_text *out)
{
    an_text_printf(out, "    for (int c = %s; c < %lld; c += %d) {\n", shared ? "an_thread" : "l", (long long)p->cols,
                   shared ? ROW_THREADS : 32);
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase == phase && is_column(&p->ins[i]))
            an_gpu_instruction(p, i, "        ", "", (an_gpu_form){0}, out);
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase == phase && p->ins[i].kind == AN_INS_REDUCE)
            an_gpu_accumulate(p, i, "", "c", "        ", out);
    an_text_puts(out, "    }\n");
}

static void place_in_shared(an_gpu_form f, an_text *out)
{
    if (f.shared) an_text_printf(out, "        const int at = (int)((an_u32)c0 / %du);\n", f.wide);
}

/* The head of the loop over the first `cols` columns of a lane, or of one of `threads`; unrolled where registers keep the row. */
static void wide_loop(const an_loop_kernel *p, an_gpu_form f, int64_t cols, int threads, an_text *out)
{
    const int step = f.wide * (threads ? threads : 32);
    if (!f.blocks || f.shared) {
        an_text_printf(out, "    for (int c0 = %d * %s; c0 < %lld; c0 += %d) {\n", f.wide, threads ? "an_thread" : "l",
                       (long long)cols, step);
        place_in_shared(f, out);
        return;
    }
    an_text_printf(out, "    AN_UNROLL for (int b = 0; b < %d; b++)\n    {\n        const int c0 = %d * b + %d * l;\n",
                   f.blocks, step, f.wide);
    if (p->cols % step) an_text_printf(out, "        if (c0 >= %lld) continue;\n", (long long)p->cols);
}

/* Declares the registers that keep a lane's part of the row, and loads all of it up front. */
static void kept_rows(const an_loop_kernel *p, an_gpu_form f, an_text *out)
{
    for (int i = 0; i < p->n_ins; i++)
        if (an_gpu_is_kept(p, i, f))
            an_text_printf(out, "    %s w%d[%d][%d];\n", an_gpu_storage[p->arg[p->ins[i].arg].dtype], i, f.blocks,
                           f.wide);
        else if (f.drawn && an_gpu_is_drawn_again(p, i))
            an_text_printf(out, "    float u%d[%d][%d];\n", i, f.blocks, f.wide);
    wide_loop(p, f, p->cols, 0, out);
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].kind == AN_INS_LOAD && an_gpu_is_kept(p, i, f))
            an_gpu_vector_access(p, i, f, "[b]", "        ", out);
    an_text_puts(out, "    }\n");
}

/* Bytes a column that a block keeps between phases; 0 when some of it does not fill 16-byte accesses. */
static int64_t kept_bytes(const an_loop_kernel *p, an_gpu_form f)
{
    int64_t bytes = 0;
    for (int i = 0; i < p->n_ins; i++) {
        if (!an_gpu_is_kept(p, i, f)) continue;
        const int64_t each = (int64_t)an_dtype_bytes((an_dtype)p->arg[p->ins[i].arg].dtype);
        if (each * f.wide % 16) return 0;
        bytes += each;
    }
    return bytes;
}

/* Starts copying the row into shared memory, `wide` columns in 16-byte pieces. Each thread copies what it will read
 * itself, so that no barrier is needed. */
static void shared_rows(const an_loop_kernel *p, an_gpu_form f, const an_loop_launch *launch, an_text *out)
{
    int64_t used = 0;
    an_text_puts(out, "    extern __shared__ uint4 an_row[];\n");
    for (int i = 0; i < p->n_ins; i++) {
        if (!an_gpu_is_kept(p, i, f)) continue;
        const int pieces = (int)an_dtype_bytes((an_dtype)p->arg[p->ins[i].arg].dtype) * f.wide / 16;
        an_text_printf(out, "    const an_shared_row<%lld> row%d = {an_row + %lld};\n",
                       (long long)an_ceil_div(p->cols, f.wide), i, (long long)used);
        used += an_ceil_div(p->cols, f.wide) * pieces;
    }
    wide_loop(p, f, p->cols, launch->threads, out);
    for (int i = 0; i < p->n_ins; i++) {
        if (p->ins[i].kind != AN_INS_LOAD || !an_gpu_is_kept(p, i, f)) continue;
        an_text_printf(out, "        an_shared_row_fetch<%d>(row%d + at, ", f.wide, i);
        an_gpu_address(p, &p->ins[i], out);
        an_gpu_edge(p, f, out);
        an_text_puts(out, ");\n");
    }
    an_text_puts(out, "    }\n");
}

/* `wide` columns from c0 on. */
static void wide_vector(const an_loop_kernel *p, int phase, an_gpu_form f, an_text *out)
{
    an_gpu_vector_accesses(p, phase, f, false, "        ", out);
    an_text_printf(
        out,
        "        AN_UNROLL for (int k = 0; k < %d; k++)\n        {\n            const int c = c0 + k;\n         "
        "   (void)c;\n",
        f.wide);
    an_gpu_skip_beyond_edge(p, f, "            ", out);
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase == phase && is_column(&p->ins[i])) an_gpu_instruction(p, i, "            ", "", f, out);
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase == phase && p->ins[i].kind == AN_INS_REDUCE)
            an_gpu_accumulate(p, i, "[k]", "c", "            ", out);
    an_text_puts(out, "        }\n");
    an_gpu_vector_accesses(p, phase, f, true, "        ", out);
    an_text_puts(out, "    }\n");
}

/* Several columns a lane at a time: 128 partial sums or more instead of 32, so only in fast mode. The vector in which a row
 * ends has a text of its own, since a test at each column would cost more than the arithmetic; where the loop is unrolled,
 * the test is in its last block alone. */
static void wide_columns(const an_loop_kernel *p, int phase, an_gpu_form f, int threads, an_text *out)
{
    const bool apart = f.ragged && (!f.blocks || f.shared);
    const int64_t vectors = p->cols / f.wide;
    an_gpu_form whole = f;
    whole.ragged = f.ragged && !apart;
    wide_loop(p, whole, apart ? vectors * f.wide : p->cols, threads, out);
    wide_vector(p, phase, whole, out);
    if (!apart) return;
    an_text_printf(out, "    if (%s == %d) {\n        const int c0 = %lld;\n", threads ? "an_thread" : "l",
                   (int)(vectors % (threads ? threads : 32)), (long long)(vectors * f.wide));
    place_in_shared(f, out);
    wide_vector(p, phase, f, out);
}

/* A row of no multiple of `wide` columns, but in memory with padded rows (the loss over 50,257 logits). */
static bool is_ragged(const an_loop_kernel *p, int wide)
{
    return p->cols % wide && an_gpu_all_vector_accesses(p, wide);
}

/* Not for arg max, which needs its one order of columns. */
static bool wide_rows(const an_loop_kernel *p, const an_gpu *gpu)
{
    bool wide = an_gpu_fast(gpu) && (p->cols % ROW_WIDE == 0 || is_ragged(p, ROW_WIDE)) && p->cols >= 32 * ROW_WIDE;
    for (int i = 0; i < p->n_ins; i++) wide &= p->ins[i].kind != AN_INS_REDUCE || p->ins[i].op != AN_OP_ARGMAX;
    return wide;
}

/* How many loads and stores are vector accesses of `wide` columns. */
static int vector_accesses(const an_loop_kernel *p, int wide)
{
    int n = 0;
    for (int i = 0; i < p->n_ins; i++) n += an_gpu_is_vector_access(p, &p->ins[i], wide);
    return n;
}

/* Whether exp and erf may be approximated: nothing along the row, in or out, has more than 16 bits. */
static bool is_approx_row(const an_loop_kernel *p)
{
    bool approx_16bit = true;
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if ((in->kind == AN_INS_LOAD || in->kind == AN_INS_STORE) && in->scope == AN_SCOPE_COL)
            approx_16bit &= p->arg[in->arg].dtype == AN_BF16 || p->arg[in->arg].dtype == AN_F16;
        approx_16bit &= in->kind != AN_INS_RAND;
    }
    return approx_16bit;
}

/* The form of a long row: kept in shared memory where it fits, 8 columns at a time where all accesses allow it. */
static an_gpu_form long_row_form(const an_loop_kernel *p)
{
    an_gpu_form f = {.wide = ROW_WIDE, .blocks = 1, .shared = true, .approx_16bit = is_approx_row(p)};
    f.ragged = p->cols % ROW_WIDE || (p->cols >= LONG_ROW && is_ragged(p, 2 * ROW_WIDE));
    if (f.ragged ? is_ragged(p, 2 * ROW_WIDE)
                 : p->cols % (2 * ROW_WIDE) == 0 && vector_accesses(p, 2 * ROW_WIDE) == vector_accesses(p, ROW_WIDE))
        f.wide *= 2;
    const int64_t bytes = kept_bytes(p, f);
    if (bytes && bytes * an_round_up(p->cols, f.wide) <= KEPT_BYTES) return f;
    return (an_gpu_form){.wide = f.ragged ? f.wide : ROW_WIDE, .ragged = f.ragged, .approx_16bit = f.approx_16bit};
}

/* Threads of a block that keeps its row: the number that leaves the fewest idle in the last iteration. */
static int long_row_threads(const an_loop_kernel *p, an_gpu_form f)
{
    const int64_t pieces = an_ceil_div(p->cols, f.wide);
    int best = KEPT_THREADS;
    for (int t = KEPT_THREADS; t >= KEPT_THREADS / 2; t -= 32)
        if (an_round_up(pieces, t) < an_round_up(pieces, best)) best = t;
    return best;
}

/* Bytes of its row that a lane holds in registers. */
static size_t held_bytes(const an_loop_kernel *p, an_gpu_form f)
{
    size_t bytes = 0;
    for (int i = 0; i < p->n_ins; i++)
        if (an_gpu_is_kept(p, i, f))
            bytes += an_dtype_bytes((an_dtype)p->arg[p->ins[i].arg].dtype) * ROW_WIDE * (size_t)f.blocks;
        else if (f.drawn && an_gpu_is_drawn_again(p, i))
            bytes += sizeof(float) * ROW_WIDE * (size_t)f.blocks;
    return bytes;
}

static an_gpu_form rows_form(const an_loop_kernel *p, const an_loop_launch *launch, const an_gpu *gpu)
{
    if (launch->block_reduces) return long_row_form(p);
    an_gpu_form f = {.wide = wide_rows(p, gpu) ? ROW_WIDE : 0};
    f.ragged = f.wide && p->cols % ROW_WIDE;
    if (!f.wide || launch->block_per_row || (p->n_phases < 2 && !p->run)) return f;
    an_gpu_form kept = {.wide = f.wide,
                        .ragged = f.ragged,
                        .blocks = (int)AN_MIN(an_ceil_div(p->cols, 32 * ROW_WIDE), KEPT_REGISTERS),
                        .drawn = true};
    kept.drawn = held_bytes(p, kept) <= 4 * KEPT_REGISTERS;
    return kept.drawn || held_bytes(p, kept) <= 4 * KEPT_REGISTERS ? kept : f;
}

static void row_phase(const an_loop_kernel *p, int phase, const an_loop_launch *launch, an_gpu_form f, an_text *out)
{
    const bool by_block = launch->block_per_row;
    bool columns = false, stored = false, shared = by_block && (launch->block_reduces || !reduces(p, phase));
    if (p->n_phases > 1) an_text_printf(out, "\n    /* phase %d */\n", phase);
    if (by_block && phase > 0) an_text_puts(out, "    AN_BARRIER();\n"); /* other threads' stores of the phase before */
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if (in->phase != phase) continue;
        columns |= is_column(in) || in->kind == AN_INS_REDUCE;
        if (in->kind == AN_INS_STORE && in->scope == AN_SCOPE_ROW && !stored && (by_block || row_is_read(p, i))) {
            an_text_puts(out, by_block ? "    AN_BARRIER();\n" : "    AN_SUBGROUP_DEVICE_BARRIER();\n");
            stored = true;
        }
        if (in->kind == AN_INS_REDUCE)
            an_gpu_declare_lanes(p, i, f.wide ? f.wide : 1, out);
        else if (in->scope == AN_SCOPE_ROW)
            an_gpu_instruction(p, i, "    ", by_block ? "if (an_thread == 0) " : "if (l == 0) ", (an_gpu_form){0}, out);
    }
    if (!columns) return;
    if (!by_block && !stored && row_is_picked(p, phase)) an_text_puts(out, "    AN_SUBGROUP_DEVICE_BARRIER();\n");
    if (f.shared && phase == 0) an_text_puts(out, "    an_shared_row_wait();\n");
    if (f.wide)
        wide_columns(p, phase, f, shared ? launch->threads : 0, out);
    else
        narrow_columns(p, phase, shared, out);
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase == phase && p->ins[i].kind == AN_INS_REDUCE) end_row_reduction(p, i, f.wide, launch, out);
}

/* The body of one row, r. */
static void row_body(const an_loop_kernel *p, const an_loop_launch *launch, an_gpu_form f, an_text *out)
{
    if (f.shared)
        shared_rows(p, f, launch, out);
    else if (f.blocks)
        kept_rows(p, f, out);
    for (int phase = 0; phase < p->n_phases; phase++) row_phase(p, phase, launch, f, out);
}

static void indented(const char *text, an_text *out)
{
    while (*text) {
        const size_t n = strcspn(text, "\n");
        an_text_puts(out, n ? "    " : "");
        an_text_putn(out, text, n);
        an_text_puts(out, "\n");
        text += n + (text[n] == '\n');
    }
}

/* ---- runs of rows: a block has one; its subgroups take the run's rows in turn, so that subgroup s is virtual lane s of
 * the column sums. A lane's partial sums are in shared memory, each element touched by one thread until the run ends. */

static int sums_stride(const an_loop_kernel *p, bool wide)
{
    return (int)an_round_up(p->cols, wide ? 32 * ROW_WIDE : 32);
}

static void begin_run(const an_loop_kernel *p, const an_loop_launch *launch, bool wide, an_text *out)
{
    const int stride = sums_stride(p, wide);
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].kind == AN_INS_COLSUM)
            an_text_printf(
                out,
                "    AN_SHARED_ARRAY(float, d%d, %d);\n    AN_SHARED float *m%d = d%d + %d * (int)an_subgroup;\n"
                "    for (int i = l; i < %d; i += 32) m%d[i] = 0.0f;\n",
                i, stride * launch->threads / 32, i, i, stride, stride, i);
}

static void end_run(const an_loop_kernel *p, const an_loop_launch *launch, bool wide, an_text *out)
{
    const int stride = sums_stride(p, wide), lanes = launch->threads / 32;
    const char *place = wide ? "c / 128 * 128 + c % 4 * 32 + c % 128 / 4" : "c";
    an_text_printf(out,
                   "    AN_BARRIER();\n    const int r = (int)an_block.x * %d;\n    for (int c = (int)an_thread; c < "
                   "%lld; c += %d) {\n",
                   p->run, (long long)p->cols, launch->threads);
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if (in->kind != AN_INS_COLSUM) continue;
        an_text_printf(
            out, "        float s%d[%d];\n        AN_UNROLL for (int k = 0; k < %d; k++) s%d[k] = d%d[%d * k + %s];\n",
            i, lanes, lanes, i, i, stride, place);
        for (int s = lanes / 2; s; s /= 2)
            for (int k = 0; k < s; k++)
                an_text_printf(out, "        s%d[%d] = an_plus(s%d[%d], s%d[%d]);\n", i, k, i, k, i, k + s);
        an_text_printf(out, "        %s[", p->arg[in->arg].name);
        an_gpu_index(p, in->ix, 0, out);
        an_text_printf(out, "] = s%d[0];\n", i);
    }
    an_text_puts(out, "    }\n");
}

static void runs_of_rows(const an_loop_kernel *p, const an_loop_launch *launch, an_gpu_form f, an_text *out)
{
    an_text body = {0};
    row_body(p, launch, f, &body);
    an_text_puts(out, "    const int l = (int)an_lane;\n");
    begin_run(p, launch, f.wide, out);
    an_text_printf(out,
                   "    for (int q = (int)an_subgroup; q < %d; q += %d) { /* a run of rows a block */\n"
                   "        const int r = (int)an_block.x * %d + q;\n",
                   p->run, launch->threads / 32, p->run);
    indented(body.data ? body.data : "", out);
    an_text_puts(out, "    }\n");
    end_run(p, launch, f.wide, out);
    out->failed |= body.failed;
    an_text_free(&body);
}

void an_gpu_reduce(const an_loop_kernel *p, const an_loop_launch *launch, const an_gpu *gpu, an_text *out)
{
    const an_gpu_form f = rows_form(p, launch, gpu);
    if (p->run) {
        runs_of_rows(p, launch, f, out);
        return;
    }
    int at_once = launch->block_per_row ? 1 : (int)AN_MIN(ROWS_A_BLOCK, AN_MAX(p->rows, 1));
    an_text_puts(out, "    const int l = (int)an_lane, r = ");
    if (at_once > 1)
        an_text_printf(out, "(int)an_block.x * %d + (int)an_subgroup; /* a row a subgroup */\n", at_once);
    else
        an_text_printf(out, "(int)an_block.x; /* a row a %s */\n", launch->block_per_row ? "block" : "subgroup");
    if (p->rows % at_once)
        an_text_printf(out, "    if (r >= %lld) return; /* all lanes of the subgroup */\n", (long long)p->rows);
    if (p->rows <= 1 && !p->ix.failed) an_text_puts(out, "    (void)r;\n");
    row_body(p, launch, f, out);
}

/* 8 subgroups for the 8 lanes of column sums; in fast mode 16 when runs are few. (The planner makes runs of at most 1024
 * columns, rounded up to 32: 8 lanes fit Metal's 32 KiB, and, rounded up to 128, 48 KiB.) */
static an_loop_launch launch_of_runs(const an_loop_kernel *p, const an_gpu *gpu)
{
    const int64_t runs = p->rows / p->run;
    int64_t lanes = AN_RUN_LANES, sums = 0, shared;
    for (int i = 0; i < p->n_ins; i++) sums += p->ins[i].kind == AN_INS_COLSUM;
    shared = sums * sums_stride(p, true) * (int64_t)sizeof(float);
    an_gpu_form form = rows_form(p, &(an_loop_launch){0}, gpu);
    form.drawn = false; /* bytes of memory */
    const int64_t held = 32 * (int64_t)held_bytes(p, form);
    const bool fast = an_gpu_fast(gpu);
    if (fast && runs * lanes * held < HELD_BYTES && 2 * lanes * shared <= SHARED_BYTES) lanes *= 2;
    return (an_loop_launch){.blocks = runs, .threads = 32 * (int)lanes, .two_per_sm = fast && lanes == AN_RUN_LANES};
}

/* Few rows that are reduced and then written, a norm where one token is computed: a warp a row would leave the GPU to a
 * few warps. Not what is only reduced, which training has too, with its bits. */
static bool is_few_rows(const an_loop_kernel *p, const an_gpu *gpu)
{
    enum { MOST_ROWS = 8, LEAST_COLUMNS = 256 };
    bool stored = false, reduced = false;
    for (int i = 0; i < p->n_ins; i++) {
        stored |= p->ins[i].kind == AN_INS_STORE && p->ins[i].scope == AN_SCOPE_COL;
        reduced |= p->ins[i].kind == AN_INS_REDUCE;
    }
    return gpu->rows && p->rows <= MOST_ROWS && p->cols >= LEAST_COLUMNS && stored && reduced;
}

an_loop_launch an_gpu_reduce_launch(const an_loop_kernel *p, const an_gpu *gpu)
{
    if (p->run) return launch_of_runs(p, gpu);
    if (wide_rows(p, gpu) && (p->cols >= LONG_ROW || is_few_rows(p, gpu)) && p->rows < INT32_MAX) {
        const an_gpu_form f = long_row_form(p);
        return (an_loop_launch){.blocks = p->rows,
                                .threads = f.shared ? long_row_threads(p, f) : ROW_THREADS,
                                .shared_bytes = f.shared ? (int)(kept_bytes(p, f) * an_round_up(p->cols, f.wide)) : 0,
                                .block_per_row = true,
                                .two_per_sm = f.shared,
                                .block_reduces = true};
    }
    if (is_block_per_row(p, gpu->dialect))
        return (an_loop_launch){.blocks = p->rows, .threads = ROW_THREADS, .block_per_row = true};
    int64_t at_once = AN_MIN(ROWS_A_BLOCK, AN_MAX(p->rows, 1));
    return (an_loop_launch){.blocks = an_ceil_div(p->rows, at_once), .threads = 32 * (int)at_once};
}
