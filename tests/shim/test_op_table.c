/* test_op_table.c: which operation runs on which device in which dtypes: docs/ops.md, made from plans of the
 * conformance table's cases for each device. UPDATE=1 rewrites it. An operation without a kernel on some device is in
 * the table with the reason, in the planner's words; what the document says is what a user meets. */
#include "ops/elementwise.h"
#include "ops/other.h"

#include "runtime/context.h"
#include "codegen/gpu_module.h"

static const char *const path = "docs/ops.md";
static const char *const devices[] = {"cpu", "null:cuda", "null:metal"};
static const an_gpu gpus[] = {{.dialect = &an_dialects[AN_DIALECT_C]},
                              {.dialect = &an_dialects[AN_DIALECT_CUDA]},
                              {.dialect = &an_dialects[AN_DIALECT_MSL], .version = 300}};
enum { CPU, CUDA, METAL, N_DEVICES, MOST_REASONS = 16 };

typedef struct row {
    int dtypes[N_DEVICES], asked; /* bits */
    unsigned units;               /* bits of an_gpu_module, on CUDA */
} row;

static lab tables;
static row rows[AN_N_OPS];
static char reason[MOST_REASONS][512];
static int n_reasons;

static void note(const char *why)
{
    for (int i = 0; i < n_reasons; i++)
        if (!strcmp(reason[i], why)) return;
    assert_true(n_reasons < MOST_REASONS);
    snprintf(reason[n_reasons++], sizeof reason[0], "%s", why);
}

/* Has every step of the plan of what was built a kernel? Units it runs are noted. */
static bool has_kernels(int device, unsigned *units)
{
    an_ctx *cx = tables.cx[device];
    an_tensor *roots[LAB_ROOTS];
    for (int r = 0; r < tables.n_roots; r++) roots[r] = tables.root[r].t;
    if (an_plan_at(AT, roots, tables.n_roots) != AN_OK) {
        const char *why = strstr(an_error(cx), "uses float64"); /* the name of a kernel precedes it */
        note(why ? why : an_error(cx));
        return false;
    }
    const an_plan *p = cx->last->plan;
    for (int s = 0; s < p->n_steps && device != CPU; s++) {
        an_tiles t;
        const an_kernel *k = &p->kernel[p->step[s].kernel];
        if (k->kind == AN_KERNEL_ZERO || k->kind == AN_KERNEL_COPY) continue;
        const char *why = an_module_tiles(p, &p->step[s], &gpus[device], &t);
        if (why) return note(why), false;
        *units |= 1u << t.module;
    }
    return true;
}

/* A dtype that the device lacks is no part of what is cast to. */
static void build_casts(lab *l, const op_case *c, an_dtype t, int v)
{
    an_tensor *x = some(l, t, AN_SHAPE(13, 7));
    (void)v;
    for (int to = 0; to < AN_N_DTYPES; to++)
        if (to != AN_F64 || l->now != l->cx[METAL]) root(l, c, an_cast_at(AT, x, (an_dtype)to), to);
}

typedef struct asked {
    const elem_row *elem;
    const op_case *other;
    an_dtype t;
    int variant;
} asked;

static void build(lab *l, const void *arg)
{
    const asked *a = arg;
    if (a->elem)
        elem_build(l, a->elem, a->t, a->variant);
    else if (a->other->op == AN_OP_CAST)
        build_casts(l, a->other, a->t, a->variant);
    else
        a->other->build(l, a->other, a->t, a->variant);
}

static void ask(an_op op, const asked *a)
{
    rows[op].asked |= 1 << a->t;
    for (int d = 0; d < N_DEVICES; d++) {
        unsigned units = 0;
        if (a->elem || a->variant == 0) rows[op].dtypes[d] |= 1 << a->t;
        lab_build_in(&tables, d, 5, build, a);
        if (!has_kernels(d, &units)) rows[op].dtypes[d] &= ~(1 << a->t);
        if (d == CUDA) rows[op].units |= units;
    }
}

/* A training step: gradients packed, parameters assigned. */
static void ask_training(void)
{
    for (int d = 0; d < N_DEVICES; d++) {
        unsigned units = 0;
        an_ctx *cx = tables.cx[d];
        lab_forget(&tables);
        an_reset(cx);
        an_tensor *w = an_param_at(AT, cx, "w", AN_F32, AN_SHAPE(3, 5), AN_ONES);
        an_tensor *loss = an_sum_at(AT, an_square_at(AT, w), AN_ALL, false);
        an_backward_at(AT, loss);
        an_sgd_at(AT, cx, 0.1);
        tables.root[0] = (lab_root){.t = loss};
        tables.n_roots = 1;
        for (int k = 0; k < 2; k++) {
            const an_op op = k ? AN_OP_ASSIGN : AN_OP_PACK;
            rows[op].asked = 1 << AN_F32;
            rows[op].dtypes[d] = has_kernels(d, &units) ? 1 << AN_F32 : 0;
        }
    }
}

static void print_dtypes(an_text *out, int bits)
{
    static const char *const names[AN_N_DTYPES] = {
        [AN_F32] = "f32", [AN_BF16] = "bf16", [AN_F16] = "f16", [AN_F64] = "f64",
        [AN_I32] = "i32", [AN_I64] = "i64",   [AN_U8] = "u8",   [AN_BOOL] = "bool"};
    static const an_dtype order[] = {AN_F32, AN_BF16, AN_F16, AN_F64, AN_I32, AN_I64, AN_U8, AN_BOOL};
    an_text_puts(out, bits ? "|" : "| -");
    for (size_t i = 0; i < AN_COUNT(order); i++)
        if (bits >> order[i] & 1) an_text_printf(out, " %s", names[order[i]]);
    an_text_puts(out, " ");
}

static void print_units(an_text *out, unsigned units)
{
    static const char *const names[AN_N_MODULES] = {"generated", "matrix product", "attention",
                                                    "attention", "scatter",        "row call",
                                                    "sort",      "factorisation",  "draw"};
    bool any = false;
    unsigned of = units & ~1u ? units & ~1u : units; /* what is generated beside a template is not worth a word */
    for (int u = 0; u < AN_N_MODULES; u++) {
        if (!(of >> u & 1) || (u == AN_MODULE_ATTN_GRAD && of >> AN_MODULE_ATTN & 1)) continue;
        an_text_printf(out, any ? ", %s" : "| %s", names[u]);
        any = true;
    }
    an_text_puts(out, any ? " " : "| - ");
}

/* What no device is asked for, in the words of the call. */
static void print_refusals(an_text *out)
{
    an_ctx *cx = tables.cx[CPU];
    for (int k = 0; k < 2; k++) {
        an_reset(cx);
        lab_forget(&tables);
        tables.now = cx;
        an_tensor *wide = lab_fill(&tables, AN_F32, AN_SHAPE(2, 3), -1, 1);
        (void)(k == 0 ? an_qr_at(AT, wide, NULL) : an_svd_at(AT, wide, NULL, NULL));
        const char *said = an_error(cx), *why = said ? strstr(said, "an_") : NULL; /* after the place of the call */
        assert_non_null(why);
        an_text_printf(out, "- %s\n", why ? why : "");
        an_error_clear(cx);
    }
}

static void print_table(an_text *out)
{
    an_text_puts(
        out,
        "# Operations and devices\n\nMade by `UPDATE=1 build/tests/shim/test_op_table` from the plans of the "
        "conformance "
        "table (`tests/ops`) for each device; the test\nfails when this file and the plans differ. A dtype is listed "
        "when every case of the operation in it has a kernel.\n`generated`: a kernel written for the group of "
        "operations it is fused into; the others are templates of `src/kernels/gpu`; a `-`: no kernel of its "
        "own,\nthe reader's index arithmetic or the driver does it. No launch goes to another device unasked: only "
        "with "
        "`fallback=cpu` does the CPU run,\nand count, what an Apple GPU cannot ([metal.md](metal.md)).\n\n"
        "| operation | on a GPU | cpu | cuda | metal |\n|---|---|---|---|---|\n");
    for (int op = 0; op < AN_N_OPS; op++) {
        an_text_printf(out, "| %s ", an_ops[op].name);
        print_units(out, rows[op].units);
        for (int d = 0; d < N_DEVICES; d++) print_dtypes(out, rows[op].dtypes[d]);
        an_text_puts(out, "|\n");
    }
    an_text_puts(out, "\nWhat is refused, in the planner's words:\n\n");
    for (int i = 0; i < n_reasons; i++) an_text_printf(out, "- %s\n", reason[i]);
    an_text_puts(out, "\nWhat is refused when it is built, on every device (QR and SVD of wide matrices):\n\n");
    print_refusals(out);
}

static void every_operation_has_a_kernel_on_every_device_as_the_table_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < AN_COUNT(elem_rows); i++)
        for (int t = 0; t < AN_N_DTYPES; t++)
            if (elem_dtypes(elem_rows[i].op) >> t & 1)
                ask(elem_rows[i].op, &(asked){.elem = &elem_rows[i], .t = (an_dtype)t, .variant = BROADCAST});
    for (size_t i = 0; i < AN_COUNT(other_rows); i++)
        for (int t = 0; t < AN_N_DTYPES; t++)
            for (int v = 0; v < other_rows[i].variants; v++)
                if (other_rows[i].dtypes >> t & 1)
                    ask(other_rows[i].op, &(asked){.other = &other_rows[i], .t = (an_dtype)t, .variant = v});
    ask_training();
    an_text t = {0};
    print_table(&t);
    assert_false(t.failed);
    if (getenv("UPDATE")) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(t.data, f);
        assert_int_equal(fclose(f), 0);
    }
    static char now[1 << 16];
    FILE *f = fopen(path, "r");
    if (!f) fail_msg("%s is not there: UPDATE=1 writes it", path);
    now[fread(now, 1, sizeof now - 1, f)] = 0;
    fclose(f);
    if (strcmp(now, t.data) != 0) fail_msg("%s is not what the plans say: UPDATE=1 rewrites it", path);
    an_text_free(&t);
}

/* What Metal lacks is float64 and nothing else; CUDA lacks nothing that the CPU has. */
static void only_float64_is_missing_and_only_on_metal(void **state)
{
    (void)state;
    for (int op = 0; op < AN_N_OPS; op++) {
        assert_int_equal(rows[op].dtypes[CPU], rows[op].asked);
        if ((rows[op].dtypes[METAL] | T_F64) != (rows[op].asked | T_F64)) fail_msg("%s on Metal", an_ops[op].name);
        if (rows[op].dtypes[CUDA] != rows[op].asked) fail_msg("%s on CUDA", an_ops[op].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_has_a_kernel_on_every_device_as_the_table_says),
        cmocka_unit_test(only_float64_is_missing_and_only_on_metal),
    };
    for (int d = 0; d < N_DEVICES; d++) {
        tables.cx[d] = an_open(&(an_options){.device = devices[d], .seed = 1, .cc = "none"});
        if (!tables.cx[d]) return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lab_forget(&tables);
    for (int d = 0; d < N_DEVICES; d++) an_close(tables.cx[d]);
    return failed;
}
