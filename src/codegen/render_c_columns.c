/* render_c_columns.c: loop kernels of columns (AN_COL) as C: neighbouring columns are lanes of vectors, and the loop over q, the elements of a
 * column's sum, is outside of them, so that memory is read in rows.
 *
 * Owns:      three forms of the loops.
 *   several  64 columns at once, 8 partial sums of each; sums read by transposed loads; argmax:
 *                float s5[8][64];                              element q of a column goes to partial sum q mod 8 (lanes)
 *                for (q ...) for (l < n) s5[q % 8][l] += v4;
 *                for (l < n) { fold 4, 2, 1; v5 = s5[0][l]; ... phase 1 }
 *   one      a column's elements in one chain, as of a window's taps: sums of 32 columns stay in registers, what is the same for all rows
 *            is gathered into a table before them, and where a row has all of its window inside nothing is tested:
 *                for (c0 ...) { an_v8 lane[4];  for (q ...) for (j < 4) lane[j] += AN_VEC(x0, ...) * AN_VEC(t1[q], c);  ... }
 *   together a long sum of one chain, of rows that share loads (rows_together.h): as `one`, but the sums of a group of rows are in registers:
 *                for (q ...) { v0 = AN_VEC(x0, ...);  for (i < 9) lane[i][0] += v0 * AN_VEC(x1, ... + a1[i]); }
 *            Operands in planes (planes.h): the last two image by image, for each some channels at a time, which are brought to channels last first:
 *                for (image ...) for (c0 ...) { an_take_planes(p0, ..., b0, 32);  for (r of the image) as above, of b0 }
 * Does not:  render instructions (render_c.c).
 * Invariant: the order of each column's sum is the interpreter's. */
#include "codegen/render_c.h"
#include "codegen/column_loads.h"
#include "codegen/planes.h"
#include "codegen/rows_together.h"

#include <stdio.h>

enum {
    SOME = 64,   /* columns at once: tiles of columns begin and end at multiples of it (device/cpu/cpu.c) */
    VECTORS = 4, /* of 8 columns, of one sum each, in registers */
    MANY = 8,
    WINDOW = AN_WINDOW_OF_A_SUM /* elements of a sum that are tested in straight code */
};

/* ---------------------------------------------------------------------------------------------- guards, tables */

static bool is_guarded(const an_loop_kernel *p)
{
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase == 0 && an_guards_a_row(p, &p->ins[i])) return true;
    return false;
}

/* g3, ... of the guards that are the same for all columns, tested before them. */
static void test_guards(const an_loop_kernel *p, const char *indent, an_text *out)
{
    for (int i = 0; i < p->n_ins; i++) {
        if (p->ins[i].phase != 0 || !an_guards_a_row(p, &p->ins[i])) continue;
        an_text_printf(out, "%sconst int g%d = ", indent, i);
        an_c_guard(p, p->ins[i].guard, out);
        an_text_puts(out, ";\n");
    }
}

/* "g3 & g5" */
static void all_guards(const an_loop_kernel *p, an_text *out)
{
    const char *sign = "";
    for (int i = 0; i < p->n_ins; i++) {
        if (p->ins[i].phase != 0 || !an_guards_a_row(p, &p->ins[i])) continue;
        an_text_printf(out, "%sg%d", sign, i);
        sign = " & ";
    }
}

static void fill_tables(const an_loop_kernel *p, an_text *out)
{
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if (in->phase != 0 || !an_is_tabled(p, in)) continue;
        an_text_printf(out,
                       "        %s t%d[%lld][%lld];\n        for (int64_t c = block; c < end; c++)\n            for "
                       "(int64_t q = 0; q < "
                       "%lld; q++) t%d[q][c - block] = ",
                       an_c_computed[in->dtype], i, (long long)p->red, (long long)an_columns_of_a_block(p),
                       (long long)p->red, i);
        an_c_load(p, in, out);
        an_text_puts(out, ";\n");
    }
}

/* ---------------------------------------------------------------------------------------------- one column for a lane and a q */

/* inside: all guards hold; else they are tested as g3, ... */
static void element(const an_loop_kernel *p, int i, bool inside, const an_stage *s, const char *indent, an_text *out)
{
    const an_ins *in = &p->ins[i];
    if (an_is_staged(p, in, s)) {
        an_text_printf(out, "%sconst %s v%d = b%d[i][l];\n", indent, an_c_computed[in->dtype], i, i);
    } else if (an_sums_vectors(p) && an_is_tabled(p, in)) {
        an_text_printf(out, "%sconst %s v%d = t%d[q][c - block];\n", indent, an_c_computed[in->dtype], i, i);
    } else if (an_guards_a_row(p, in)) {
        an_ins bare = *in;
        bare.guard = -1;
        an_text_printf(out, "%sconst %s v%d = ", indent, an_c_computed[in->dtype], i);
        if (!inside) an_text_printf(out, in->kind == AN_INS_TEST ? "g%d" : "g%d ? ", i);
        if (in->kind == AN_INS_LOAD)
            an_c_load(p, &bare, out);
        else if (inside)
            an_text_puts(out, "1");
        an_text_puts(out, inside || in->kind == AN_INS_TEST ? ";\n" : " : 0;\n");
    } else {
        an_c_instruction(p, i, indent, out);
    }
}

/* The loop over n lanes (a text) for one q. */
static void lanes_of(const an_loop_kernel *p, int red, bool inside, const an_stage *s, const char *n, an_text *out)
{
    const an_ins *in = &p->ins[red];
    an_text_printf(
        out,
        "                AN_EACH for (int l = 0; l < %s; l++) {\n                    const int64_t c = c0 + l;\n"
        "                    (void)c;\n",
        n);
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase == 0 && p->ins[i].kind != AN_INS_REDUCE)
            element(p, i, inside, s, "                    ", out);
    if (in->op == AN_OP_ARGMAX)
        an_c_argmax_update(p, red, "q", "                    ", out);
    else if (in->op == AN_OP_MAX)
        an_text_printf(out, "                    lane[l] = an_max(lane[l], v%d);\n", in->a);
    else if (an_dtype_is_float((an_dtype)in->dtype))
        an_text_printf(out, "                    lane[l] += v%d;\n", in->a);
    else
        an_text_printf(out, "                    lane[l] = (%s)((uint64_t)lane[l] + (uint64_t)v%d);\n",
                       an_c_computed[in->dtype], in->a);
    an_text_puts(out, "                }\n");
}

/* The results of n lanes, whose sums are the text `sum`: first folded, where there are several of a column. */
static void results_of(const an_loop_kernel *p, int red, const char *n, const char *sum, const an_planes *s,
                       an_text *out)
{
    const an_ins *in = &p->ins[red];
    an_plane plane;
    an_text_printf(
        out, "            AN_EACH for (int l = 0; l < %s; l++) {\n                const int64_t c = c0 + l;\n", n);
    if (in->op == AN_OP_ARGMAX) {
        an_text_printf(out, "                const int32_t v%d = q%d[l];\n", red, red);
    } else {
        for (int half = p->lanes / 2; half; half /= 2)
            for (int l = 0; l < half; l++)
                an_text_printf(out,
                               in->op == AN_OP_MAX ? "                s%d[%d][l] = an_max(s%d[%d][l], s%d[%d][l]);\n"
                                                   : "                s%d[%d][l] = s%d[%d][l] + s%d[%d][l];\n",
                               red, l, red, l, red, l + half);
        an_text_printf(out, "                const %s v%d = ", an_c_computed[in->dtype], red);
        an_c_rounded(in->dtype, sum, out);
        an_text_puts(out, ";\n");
    }
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase > 0 && p->ins[i].kind != AN_INS_REDUCE) {
            if (s && p->ins[i].kind == AN_INS_STORE && an_plane_of(p, &p->ins[i], s->rows, &plane))
                an_text_printf(out, "                b%d[(r - image) * %d + l] = v%d;\n", i, s->width, p->ins[i].a);
            else
                an_c_instruction(p, i, "                ", out);
        }
    an_text_puts(out, "            }\n");
}

/* ---------------------------------------------------------------------------------------------- several sums a column */

static void clear_sums(const an_loop_kernel *p, int red, int most, an_text *out)
{
    const an_ins *in = &p->ins[red];
    const char *type = an_c_computed[in->op == AN_OP_ARGMAX ? p->ins[in->a].dtype : in->dtype];
    if (in->op == AN_OP_ARGMAX)
        an_text_printf(out,
                       "            %s b%d[%d];\n            int32_t q%d[%d];\n            for (int l = 0; l < %d; "
                       "l++) b%d[l] = 0, q%d[l] = -1;\n",
                       type, red, most, red, most, most, red, red);
    else
        an_text_printf(out,
                       "            %s s%d[%d][%d];\n            for (int l = 0; l < %d; l++) for (int j = 0; j < %d; "
                       "j++) s%d[l][j] = %s;\n",
                       type, red, p->lanes, most, p->lanes, most, red, an_c_first_value(in));
}

static void several(const an_loop_kernel *p, int red, const an_stage *s, an_text *out)
{
    const an_ins *in = &p->ins[red];
    const int most = p->lanes == 1 && p->cols > SOME ? 4 * SOME : SOME;
    an_text_puts(out, "    for (int64_t r = t->row0; r < t->row1; r++) {\n");
    an_text_printf(out, "        for (int64_t c0 = col0; c0 < col1; c0 += %d) {\n", most);
    if (most == SOME && (p->cols % most == 0 || p->cols < most))
        an_text_printf(out, "            const int n = %d;\n", p->cols < most ? (int)p->cols : most);
    else
        an_text_printf(out, "            const int n = col1 - c0 < %d ? (int)(col1 - c0) : %d;\n", most, most);
    clear_sums(p, red, most, out);
    if (s->along) {
        char full[48];
        snprintf(full, sizeof full, "ni == %d && n == %d", AN_STAGE_BLOCK, most);
        an_text_printf(
            out,
            "            for (int64_t q0 = 0; q0 < %lld; q0 += %d) {\n            const int ni = %lld - q0 < "
            "%d ? (int)(%lld - q0) : %d;\n",
            (long long)p->red, AN_STAGE_BLOCK, (long long)p->red, AN_STAGE_BLOCK, (long long)p->red, AN_STAGE_BLOCK);
        an_c_fill_blocks(p, s, full, "const int64_t c = c0 + l, q = q0 + i;", "n", most, out);
        an_text_puts(out, "            for (int i = 0; i < ni; i++) {\n                const int64_t q = q0 + i;\n");
    } else {
        an_text_printf(out, "            for (int64_t q = 0; q < %lld; q++) {\n", (long long)p->red);
    }
    if (in->op != AN_OP_ARGMAX)
        an_text_printf(out, "                %s *lane = s%d[q %% %d];\n", an_c_computed[in->dtype], red, p->lanes);
    test_guards(p, "                ", out);
    if (is_guarded(p)) { /* a load under a condition is not vectorised */
        an_text_puts(out, "                if (");
        all_guards(p, out);
        an_text_puts(out, ") {\n");
        lanes_of(p, red, true, s, "n", out);
        an_text_puts(out, "                    continue;\n                }\n");
    }
    lanes_of(p, red, false, s, "n", out);
    an_text_puts(out, s->along ? "            }\n            }\n" : "            }\n");
    char sum[32];
    snprintf(sum, sizeof sum, "s%d[0][l]", red);
    results_of(p, red, "n", sum, NULL, out);
    an_text_puts(out, "        }\n    }\n");
}

/* ---------------------------------------------------------------------------------------------- one sum a column */

/* Whether all guards of rows are one: where it fails, all fail. */
static bool has_one_guard(const an_loop_kernel *p)
{
    int guard = -1;
    for (int i = 0; i < p->n_ins; i++) {
        if (p->ins[i].phase != 0 || !an_guards_a_row(p, &p->ins[i])) continue;
        if (guard >= 0 && guard != p->ins[i].guard) return false;
        guard = p->ins[i].guard;
    }
    return guard >= 0;
}

/* "c - c0 + (r * 3 - at0) * 32 + (q + a1[i]) * 32": where the buffer of load i has channel c. What is the same for all q is apart, so that it is
 * computed once. `more` is what row i of a group adds, or "". */
static void index_in_planes(const an_loop_kernel *p, const an_columns *f, int i, const char *more, an_text *out)
{
    static const char *const of_row[AN_N_VARS] = {"r", "0", "0"}, *const of_sum[AN_N_VARS] = {"0", "0", "q"};
    static const int64_t first[AN_N_VARS] = {0};
    const int width = f->planes.width;
    an_text_puts(out, "c - c0 + (");
    an_ix_text(&p->ix, p->ins[i].ix, of_row, out);
    an_text_printf(out, " - at%d) * %d + (", i, width);
    an_ix_text(&p->ix, p->ins[i].ix, of_sum, out);
    an_text_printf(out, " - (%lld)%s) * %d", (long long)an_ix_eval(&p->ix, p->ins[i].ix, first), more, width);
}

/* Whether the vectors of a kernel's tables, as the weights of all taps, stay in registers for all rows of an image. */
static bool keeps_tables(const an_loop_kernel *p, const an_columns *f)
{
    return p->red <= AN_TAPS_IN_REGISTERS && f->planes.rows > 0 && f->planes.width == 8 && f->together == 1;
}

/* A load of 8 neighbours, or of one number for all. */
static void vector_load(const an_loop_kernel *p, const an_columns *f, int i, bool inside, bool outside, an_text *out)
{
    const an_ins *in = &p->ins[i];
    int64_t stride = 0;
    an_ins bare = *in;
    bare.guard = -1;
    if (an_is_tabled(p, in)) {
        an_text_printf(out, keeps_tables(p, f) ? "k%d[q]" : "AN_VEC(t%d[q], c - block)", i);
        return;
    }
    if (in->guard >= 0 && outside) {
        an_text_puts(out, "{0}");
        return;
    }
    an_ix_stride(&p->ix, in->ix, AN_VAR_COL, &stride);
    if (in->guard >= 0 && !inside) an_text_printf(out, stride > 1 ? "AN_IF8(g%d, " : "!g%d ? (an_v8){0} : ", i);
    if (stride > 1) { /* each element that is tested has its place in the buffer */
        an_text_printf(out, "AN_VEC(b%d, ", i);
        index_in_planes(p, f, i, "", out);
        if (in->guard >= 0 && !inside) an_text_puts(out, ")");
    } else if (stride == 0) {
        an_text_puts(out, "AN_ALL8(");
        an_c_load(p, &bare, out);
    } else {
        an_text_printf(out, "%s(%s, ", p->arg[in->arg].dtype == AN_BF16 ? "AN_VEC_BF16" : "AN_VEC",
                       p->arg[in->arg].name);
        an_c_index(p, in->ix, out);
    }
    an_text_puts(out, ")");
}

/* Instruction i as vectors of 8 columns. inside: all guards hold; outside: none does. */
static void vector(const an_loop_kernel *p, const an_columns *f, int i, bool inside, bool outside, an_text *out)
{
    const an_ins *in = &p->ins[i];
    an_text_printf(out, "                    const %s v%d = ", in->kind == AN_INS_TEST ? "int" : "an_v8", i);
    if (in->kind == AN_INS_LOAD) {
        vector_load(p, f, i, inside, outside, out);
    } else if (in->kind == AN_INS_TEST) {
        an_text_printf(out, inside ? "1" : outside ? "0" : "g%d", i);
    } else if (in->kind == AN_INS_CONST) {
        an_text_puts(out, "AN_ALL8(");
        an_c_constant(in, out);
        an_text_puts(out, ")");
    } else if (in->op == AN_OP_WHERE) {
        an_text_printf(out, "v%d ? v%d : v%d", in->a, in->b, in->c);
    } else {
        an_text_printf(out, "v%d %c v%d", in->a, in->op == AN_OP_ADD ? '+' : in->op == AN_OP_SUB ? '-' : '*', in->b);
    }
    an_text_puts(out, ";\n");
}

/* `count` vectors of columns for one q. */
static void vectors_of(const an_loop_kernel *p, const an_columns *f, int red, int count, bool inside, bool outside,
                       an_text *out)
{
    an_text_printf(out,
                   "                AN_STRAIGHT for (int j = 0; j < %d; j++) {\n                    const int64_t c = "
                   "c0 + 8 * j;\n"
                   "                    (void)c;\n",
                   count);
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase == 0 && p->ins[i].kind != AN_INS_REDUCE) vector(p, f, i, inside, outside, out);
    an_text_printf(out,
                   p->ins[red].op == AN_OP_MAX
                       ? "                    lane[j] = AN_MAX8(lane[j], v%d);\n                }\n"
                       : "                    lane[j] += v%d;\n                }\n",
                   p->ins[red].a);
}

/* `count` vectors of columns from c0 on. s: results are collected for planes; NULL: they are stored where they belong. */
static void vectors_from(const an_loop_kernel *p, const an_columns *f, int red, int count, const an_planes *s,
                         an_text *out)
{
    const long long q = (long long)p->red;
    const bool guarded = is_guarded(p), one = has_one_guard(p);
    char n[16];
    snprintf(n, sizeof n, "%d", 8 * count);
    an_text_printf(
        out,
        "            an_v8 lane[%d];\n            AN_STRAIGHT for (int j = 0; j < %d; j++) lane[j] = AN_ALL8(%s);\n",
        count, count, an_c_first_value(&p->ins[red]));
    if (guarded) an_text_puts(out, "            if (all)\n");
    an_text_printf(out, "            %sfor (int64_t q = 0; q < %lld; q++) {\n", p->red <= WINDOW ? "AN_STRAIGHT " : "",
                   q);
    vectors_of(p, f, red, count, true, false, out);
    an_text_puts(out, "            }\n");
    if (guarded && s && p->red <= AN_TAPS_IN_REGISTERS) { /* few enough that zeros cost less than branches */
        an_text_printf(out, "            else %sfor (int64_t q = 0; q < %lld; q++) {\n",
                       p->red <= WINDOW ? "AN_STRAIGHT " : "", q);
        if (!one) test_guards(p, "                ", out);
        for (int i = 0; one && i < p->n_ins; i++)
            if (p->ins[i].phase == 0 && an_guards_a_row(p, &p->ins[i]))
                an_text_printf(out, "                const int g%d = inside[q];\n", i);
        vectors_of(p, f, red, count, false, false, out);
        an_text_puts(out, "            }\n");
    } else if (guarded) {
        an_text_printf(out, "            else for (int64_t q = 0; q < %lld; q++) {\n                if (inside[q]) {\n",
                       q);
        vectors_of(p, f, red, count, true, false, out);
        an_text_puts(out, "                    continue;\n                }\n");
        if (!one) test_guards(p, "                ", out);
        vectors_of(p, f, red, count, false, one, out);
        an_text_puts(out, "            }\n");
    }
    an_text_printf(
        out,
        "            float sum[%d];\n            AN_STRAIGHT for (int j = 0; j < %d; j++) AN_VEC_PUT(sum, 8 * "
        "j, lane[j]);\n",
        8 * count, count);
    results_of(p, red, n, "sum[l]", s, out);
}

/* Columns of a block from c0 on, `count` vectors at once. */
static void chunk(const an_loop_kernel *p, const an_columns *f, int red, int count, an_text *out)
{
    an_text_printf(out, "        for (; c0 + %d <= end; c0 += %d) {\n", 8 * count, 8 * count);
    vectors_from(p, f, red, count, NULL, out);
    an_text_puts(out, "        }\n");
}

/* The columns that are fewer than a vector. */
static void last_columns(const an_loop_kernel *p, int red, an_text *out)
{
    const an_stage none = {.along = AN_NOT_STAGED};
    const bool guarded = is_guarded(p);
    an_text_printf(out,
                   "        if (c0 < end) {\n            const int n = (int)(end - c0);\n            float lane[8];\n  "
                   "          for (int l "
                   "= 0; l < 8; l++) lane[l] = %s;\n            for (int64_t q = 0; q < %lld; q++) {\n",
                   an_c_first_value(&p->ins[red]), (long long)p->red);
    if (guarded) {
        an_text_puts(out, "                if (inside[q]) {\n");
        lanes_of(p, red, true, &none, "n", out);
        an_text_puts(out, "                    continue;\n                }\n");
        test_guards(p, "                ", out);
    }
    lanes_of(p, red, false, &none, "n", out);
    an_text_puts(out, "            }\n");
    results_of(p, red, "n", "lane[l]", NULL, out);
    an_text_puts(out, "        }\n");
}

/* inside[q], all: where row r has all of its window inside. */
static void test_window(const an_loop_kernel *p, an_text *out)
{
    const long long q = (long long)p->red;
    if (!is_guarded(p)) return;
    an_text_printf(
        out, "        uint8_t inside[%lld];\n        int all = 1;\n        %sfor (int64_t q = 0; q < %lld; q++) {\n", q,
        p->red <= WINDOW ? "AN_STRAIGHT " : "", q);
    test_guards(p, "            ", out);
    an_text_puts(out, "            all &= inside[q] = ");
    all_guards(p, out);
    an_text_puts(out, ";\n        }\n");
}

static void begin_blocks(const an_loop_kernel *p, an_text *out)
{
    const long long block = (long long)an_columns_of_a_block(p);
    an_text_printf(out,
                   "    for (int64_t block = col0, end; block < col1; block = end) {\n        end = col1 - block < "
                   "%lld ? col1 : block + "
                   "%lld;\n",
                   block, block);
    fill_tables(p, out);
}

/* b0, ... for the planes, and at0, ...: which element of the array is the first of channel 0 in the buffer. */
static void take_planes(const an_loop_kernel *p, const an_columns *f, an_text *out)
{
    const an_planes *s = &f->planes;
    int64_t from = f->tests;
    an_plane plane;
    for (int i = 0; i < p->n_ins; i++) {
        if (!an_plane_of(p, &p->ins[i], s->rows, &plane)) continue;
        const an_loop_arg *arg = &p->arg[p->ins[i].arg];
        an_text_printf(out, "        float *restrict const b%d = t->acc + %lld;\n", i,
                       (long long)(from / (int64_t)sizeof(float)));
        from += an_plane_bytes(&plane, s->width);
        if (p->ins[i].kind == AN_INS_STORE) continue;
        an_text_printf(out,
                       "        const int64_t at%d = image / %lld * %lld + %lld;\n        an_take_planes(%s, %lld, "
                       "at%d + c0 * %lld, %lld, %lld, b%d, %d);\n",
                       i, (long long)s->rows, (long long)plane.image, (long long)plane.first, arg->name,
                       (long long)arg->numel, i, (long long)plane.far, (long long)plane.far, (long long)plane.n, i,
                       s->width);
    }
}

/* The results of rows [r0, r1) of an image, collected in buffers, to their planes. */
static void put_planes(const an_loop_kernel *p, const an_planes *s, an_text *out)
{
    an_plane plane;
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].kind == AN_INS_STORE && an_plane_of(p, &p->ins[i], s->rows, &plane))
            an_text_printf(out,
                           "    an_put_planes(b%d + (r0 - image) * %d, %d, r1 - r0, %s + image / %lld * %lld + r0 - "
                           "image + c0 * %lld + %lld, %lld);\n",
                           i, s->width, s->width, p->arg[p->ins[i].arg].name, (long long)s->rows,
                           (long long)plane.image, (long long)plane.far, (long long)plane.first, (long long)plane.far);
}

static void begin_images(const an_planes *s, an_text *out)
{
    an_text_printf(out, "    for (int64_t image = t->row0 / %lld * %lld; image < t->row1; image += %lld) {\n",
                   (long long)s->rows, (long long)s->rows, (long long)s->rows);
}

static void begin_channels(const an_loop_kernel *p, const an_columns *f, an_text *out)
{
    an_text_printf(out, "    for (int64_t c0 = block; c0 < end; c0 += %d) {\n", f->planes.width);
    take_planes(p, f, out);
}

static void one_of_planes(const an_loop_kernel *p, const an_columns *f, int red, an_text *out)
{
    const an_planes *s = &f->planes;
    const long long rows = (long long)s->rows, q = (long long)p->red;
    const bool guarded = is_guarded(p);
    begin_blocks(p, out);
    begin_images(s, out);
    if (guarded) { /* tested before the channels: for each of them it would take as long as the sums */
        an_text_printf(out,
                       "    uint8_t (*const windows)[%lld] = (void *)t->acc, *const whole = windows[%lld];\n    for "
                       "(int64_t r = image; r < image + %lld; r++) {\n",
                       q, rows, rows);
        test_window(p, out);
        an_text_printf(out,
                       "        whole[r - image] = (uint8_t)all;\n        for (int64_t q = 0; q < %lld; q++) windows[r "
                       "- image][q] = inside[q];\n    }\n",
                       q);
    }
    begin_channels(p, f, out);
    for (int i = 0; keeps_tables(p, f) && i < p->n_ins; i++)
        if (p->ins[i].phase == 0 && an_is_tabled(p, &p->ins[i]))
            an_text_printf(out,
                           "    an_v8 k%d[%lld];\n    AN_STRAIGHT for (int q = 0; q < %lld; q++) k%d[q] = "
                           "AN_VEC(t%d[q], c0 - block);\n",
                           i, q, q, i, i);
    an_text_printf(out,
                   "    const int64_t r0 = image < t->row0 ? t->row0 : image, r1 = t->row1 - image < %lld ? t->row1 : "
                   "image + %lld;\n    for (int64_t r "
                   "= r0; r < r1; r++) {\n",
                   rows, rows);
    if (guarded)
        an_text_puts(
            out, "        const uint8_t *inside = windows[r - image];\n        const int all = whole[r - image];\n");
    vectors_from(p, f, red, s->width / 8, s, out);
    an_text_puts(out, "    }\n");
    put_planes(p, s, out);
    an_text_puts(out, "    }\n    }\n    }\n");
}

static void one(const an_loop_kernel *p, const an_columns *f, int red, an_text *out)
{
    begin_blocks(p, out);
    an_text_puts(out, "    for (int64_t r = t->row0; r < t->row1; r++) {\n        int64_t c0 = block;\n");
    test_window(p, out);
    const int most =
        p->red > WINDOW && p->cols >= 8 * MANY ? MANY : VECTORS; /* a long sum reads memory in long pieces */
    if (p->cols >= 8 * most) chunk(p, f, red, most, out);
    if (most > VECTORS && p->cols % (8 * most) >= 8 * VECTORS) chunk(p, f, red, VECTORS, out);
    if (p->cols % (8 * VECTORS) >= 8) chunk(p, f, red, 1, out);
    if (p->cols % 8) last_columns(p, red, out);
    an_text_puts(out, "    }\n    }\n");
}

/* ---------------------------------------------------------------------------------------------- rows together */

/* Whether instruction i differs between the rows of a group of n. */
static bool varies(const an_loop_kernel *p, int i, int n)
{
    const an_ins *in = &p->ins[i];
    if (in->kind == AN_INS_LOAD) return !an_is_shared(p, in, n);
    if (in->kind != AN_INS_ELEM) return in->kind == AN_INS_TEST;
    return varies(p, in->a, n) || varies(p, in->b, n) || (in->op == AN_OP_WHERE && varies(p, in->c, n));
}

static void constants(const an_loop_kernel *p, an_ix ix, int n, const char *name, an_text *out)
{
    an_text_printf(out, "    static const int64_t %s[%d] = {", name, n);
    for (int i = 0; i < n; i++) an_text_printf(out, i ? ", %lld" : "%lld", (long long)an_row_apart(p, ix, i));
    an_text_puts(out, "};\n");
}

/* a1, d1_0, ...: what the indices of the rows of a group, and the bounds of their guards, are more than the first row's. */
static void distances(const an_loop_kernel *p, int n, an_text *out)
{
    char name[48];
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if (in->phase != 0) continue;
        if (in->kind == AN_INS_LOAD && varies(p, i, n)) {
            snprintf(name, sizeof name, "a%d", i);
            constants(p, in->ix, n, name, out);
        }
        for (int b = 0; an_guards_a_row(p, in) && b < p->guard[in->guard].n; b++) {
            snprintf(name, sizeof name, "d%d_%d", i, b);
            constants(p, p->guard[in->guard].bound[b].e, n, name, out);
        }
    }
}

/* Whether the guards of all rows hold, or (row) whether that of instruction `only` does of row i: "(e + low >= 0) & (e + high < 32) & ..". */
static void group_bounds(const an_loop_kernel *p, int n, int only, an_text *out)
{
    const char *sign = "";
    for (int i = 0; i < p->n_ins; i++) {
        const an_ins *in = &p->ins[i];
        if (in->phase != 0 || !an_guards_a_row(p, in) || (only >= 0 && i != only)) continue;
        for (int b = 0; b < p->guard[in->guard].n; b++, sign = " & ") {
            const an_bound *x = &p->guard[in->guard].bound[b];
            int64_t low = 0, high = 0;
            for (int k = 0; k < n; k++) {
                low = AN_MIN(low, an_row_apart(p, x->e, k));
                high = AN_MAX(high, an_row_apart(p, x->e, k));
            }
            an_text_printf(out, "%s((", sign);
            an_c_index(p, x->e, out);
            if (only >= 0)
                an_text_printf(out, ") + d%d_%d[i] >= %lld) & ((", i, b, (long long)x->lo);
            else
                an_text_printf(out, ") >= %lld) & ((", (long long)(x->lo - low));
            an_c_index(p, x->e, out);
            if (only >= 0)
                an_text_printf(out, ") + d%d_%d[i] < %lld)", i, b, (long long)x->hi);
            else
                an_text_printf(out, ") < %lld)", (long long)(x->hi - high));
        }
    }
}

/* Instruction k, which varies, of row i of a group as a vector of 8 columns. */
static void vector_of_row(const an_loop_kernel *p, const an_columns *f, int k, bool inside, an_text *out)
{
    const an_ins *in = &p->ins[k];
    const bool narrow = in->kind == AN_INS_LOAD && p->arg[in->arg].dtype == AN_BF16;
    int64_t stride = 0;
    if (in->kind != AN_INS_LOAD) {
        an_text_puts(out, "    ");
        vector(p, f, k, inside, false, out);
        return;
    }
    an_text_printf(out, "                        const an_v8 v%d = ", k);
    const bool guarded = in->guard >= 0 && !inside;
    an_ix_stride(&p->ix, in->ix, AN_VAR_COL, &stride);
    if (stride > 1) {
        char more[24];
        snprintf(more, sizeof more, " + a%d[i]", k);
        if (guarded) an_text_printf(out, "AN_IF8(g%d[i], ", k);
        an_text_printf(out, "AN_VEC(b%d, ", k);
        index_in_planes(p, f, k, more, out);
        an_text_puts(out, guarded ? "));\n" : ");\n");
        return;
    }
    if (guarded) an_text_printf(out, "!g%d[i] ? (an_v8){0} : ", k);
    if (stride == 0)
        an_text_printf(out, narrow ? "AN_ALL8(an_bf16_to_f32(%s[" : "AN_ALL8(%s[", p->arg[in->arg].name);
    else
        an_text_printf(out, narrow ? "AN_VEC_BF16(%s, " : "AN_VEC(%s, ", p->arg[in->arg].name);
    an_c_index(p, in->ix, out);
    an_text_printf(out, stride ? " + a%d[i]);\n" : narrow ? " + a%d[i]]));\n" : " + a%d[i]]);\n", k);
}

/* `count` vectors of columns of each of n rows for one q, into the sums `lane`. */
static void group_of(const an_loop_kernel *p, const an_columns *f, int red, int n, int count, bool inside,
                     const char *lane, an_text *out)
{
    an_text_printf(out,
                   "                AN_STRAIGHT for (int j = 0; j < %d; j++) {\n                    const int64_t c = "
                   "c0 + 8 * j;\n                    (void)c;\n",
                   count);
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase == 0 && p->ins[i].kind != AN_INS_REDUCE && !varies(p, i, n))
            vector(p, f, i, inside, false, out);
    an_text_printf(out, "                    AN_STRAIGHT for (int i = 0; i < %d; i++) {\n", n);
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].phase == 0 && p->ins[i].kind != AN_INS_REDUCE && varies(p, i, n)) {
            if (p->ins[i].kind == AN_INS_TEST)
                an_text_printf(out,
                               inside ? "                        const int v%d = 1;\n"
                                      : "                        const int v%d = g%d[i];\n",
                               i, i);
            else
                vector_of_row(p, f, i, inside, out);
        }
    if (p->ins[red].op == AN_OP_MAX)
        an_text_printf(out, "                        %s[i][j] = AN_MAX8(%s[i][j], v%d);\n", lane, lane, p->ins[red].a);
    else
        an_text_printf(out, "                        %s[i][j] += v%d;\n", lane, p->ins[red].a);
    an_text_puts(out, "                    }\n                }\n");
}

/* "lane[i][j] = value" for n rows of `count` vectors. */
static void each_sum(int n, int count, const char *lane, const char *value, an_text *out)
{
    an_text_printf(out,
                   "AN_STRAIGHT for (int i = 0; i < %d; i++) AN_STRAIGHT for (int j = 0; j < %d; j++) %s[i][j] = %s;\n",
                   n, count, lane, value);
}

/* The elements q of a group's sums that not all rows have inside, and those that all have, in turn. Each kind has a loop of its own, and the sums are
 * in memory between them: in one loop, the tests and choices of the first take the registers that the sums of the second should stay in. */
static void group_in_turn(const an_loop_kernel *p, const an_columns *f, int red, int n, int count, an_text *out)
{
    const long long q = (long long)p->red;
    an_text_printf(
        out, "            for (int64_t q = 0; q < %lld;) {\n                for (; q < %lld && !inside[q]; q++) {\n", q,
        q);
    for (int i = 0; i < p->n_ins; i++) {
        if (p->ins[i].phase != 0 || !an_guards_a_row(p, &p->ins[i])) continue;
        an_text_printf(
            out, "                int g%d[%d];\n                AN_STRAIGHT for (int i = 0; i < %d; i++) g%d[i] = ", i,
            n, n, i);
        group_bounds(p, n, i, out);
        an_text_puts(out, ";\n");
    }
    group_of(p, f, red, n, count, false, "lane", out);
    an_text_printf(
        out,
        "                }\n                AN_IN_MEMORY(lane);\n                an_v8 sum[%d][%d];\n                ",
        n, count);
    each_sum(n, count, "sum", "lane[i][j]", out);
    an_text_printf(out, "                for (; q < %lld && inside[q]; q++) {\n", q);
    group_of(p, f, red, n, count, true, "sum", out);
    an_text_puts(out, "                }\n                ");
    each_sum(n, count, "lane", "sum[i][j]", out);
    an_text_puts(out, "                AN_IN_MEMORY(lane);\n            }\n");
}

/* `count` vectors of columns from c0 on, of each of n rows. */
static void group_from(const an_loop_kernel *p, const an_columns *f, int red, int n, int count, an_text *out)
{
    char lanes[16], first[48];
    snprintf(lanes, sizeof lanes, "%d", 8 * count);
    snprintf(first, sizeof first, "AN_ALL8(%s)", an_c_first_value(&p->ins[red]));
    an_text_printf(out, "            an_v8 lane[%d][%d];\n            ", n, count);
    each_sum(n, count, "lane", first, out);
    if (is_guarded(p)) {
        group_in_turn(p, f, red, n, count, out);
    } else {
        an_text_printf(out, "            for (int64_t q = 0; q < %lld; q++) {\n", (long long)p->red);
        group_of(p, f, red, n, count, true, "lane", out);
        an_text_puts(out, "            }\n");
    }
    an_text_printf(
        out,
        "            AN_STRAIGHT for (int i = 0; i < %d; i++) {\n            const int64_t r = first + "
        "i;\n"
        "            if (r < t->row0 || r >= t->row1) continue;\n            float sum[%d];\n            AN_STRAIGHT "
        "for (int j = 0; j < %d; j++) AN_VEC_PUT(sum, 8 * j, lane[i][j]);\n",
        n, 8 * count, count);
    results_of(p, red, lanes, "sum[l]", NULL, out);
    an_text_puts(out, "            }\n");
}

/* Columns of a block, `count` vectors of each of n rows at once. */
static void group_chunk(const an_loop_kernel *p, const an_columns *f, int red, int n, int count, an_text *out)
{
    an_text_printf(out, "        for (; c0 + %d <= end; c0 += %d) {\n", 8 * count, 8 * count);
    group_from(p, f, red, n, count, out);
    an_text_puts(out, "        }\n");
}

/* inside[q]: where all rows of the group have q inside. */
static void test_group(const an_loop_kernel *p, int n, an_text *out)
{
    if (!is_guarded(p)) return;
    an_text_printf(out, "        uint8_t inside[%lld];\n        for (int64_t q = 0; q < %lld; q++) inside[q] = ",
                   (long long)p->red, (long long)p->red);
    group_bounds(p, n, -1, out);
    an_text_puts(out, ";\n");
}

/* Groups of n rows, the first of which is a multiple of n; of one that reaches out of the task, only its rows are stored. */
static void together(const an_loop_kernel *p, const an_columns *f, int red, an_text *out)
{
    const int n = f->together, most = AN_MIN(AN_SUMS_TOGETHER / n, VECTORS);
    distances(p, n, out);
    begin_blocks(p, out);
    an_text_printf(
        out,
        "    for (int64_t first = t->row0 / %d * %d; first < t->row1; first += %d) {\n        const int64_t r = "
        "first;\n        int64_t c0 = block;\n",
        n, n, n);
    test_group(p, n, out);
    if (most > 1 && p->cols >= 8 * most) group_chunk(p, f, red, n, most, out);
    if (most == 1 || p->cols % (8 * most)) group_chunk(p, f, red, n, 1, out);
    an_text_puts(out, "    }\n    }\n");
}

/* The same of planes: the guards of an image's groups are tested before the channels. */
static void together_of_planes(const an_loop_kernel *p, const an_columns *f, int red, an_text *out)
{
    const an_planes *s = &f->planes;
    const int n = f->together;
    const long long rows = (long long)s->rows, q = (long long)p->red;
    const bool guarded = is_guarded(p);
    distances(p, n, out);
    begin_blocks(p, out);
    begin_images(s, out);
    if (guarded) {
        an_text_printf(out,
                       "    uint8_t (*const groups)[%lld] = (void *)t->acc;\n    for (int64_t r = image; r < image + "
                       "%lld; r += %d) {\n",
                       q, rows, n);
        test_group(p, n, out);
        an_text_printf(
            out, "        for (int64_t q = 0; q < %lld; q++) groups[(r - image) / %d][q] = inside[q];\n    }\n", q, n);
    }
    begin_channels(p, f, out);
    an_text_printf(out,
                   "        for (int64_t first = image; first < image + %lld && first < t->row1; first += %d) {\n      "
                   "  const int64_t r = first;\n",
                   rows, n);
    if (guarded) an_text_printf(out, "        const uint8_t *inside = groups[(first - image) / %d];\n", n);
    group_from(p, f, red, n, s->width / 8, out);
    an_text_puts(out, "        }\n    }\n    }\n    }\n");
}

void an_c_columns(const an_loop_kernel *p, an_text *out)
{
    int red = -1;
    for (int i = 0; i < p->n_ins; i++)
        if (p->ins[i].kind == AN_INS_REDUCE) red = i;
    const an_stage s = an_stage_of_sums(p);
    const an_columns f = an_columns_of(p);
    if (f.together > 1 && f.planes.rows)
        together_of_planes(p, &f, red, out);
    else if (f.together > 1)
        together(p, &f, red, out);
    else if (f.planes.rows)
        one_of_planes(p, &f, red, out);
    else if (!s.along && an_sums_vectors(p))
        one(p, &f, red, out);
    else
        several(p, red, &s, out);
}
