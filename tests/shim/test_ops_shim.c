/* test_ops_shim.c: the conformance table of tests/ops as MSL on the CPU shim: every operation in f32 in all awkward
 * shapes, some cases in bf16 and i32 (AN_SOAK=1: every dtype; AN_OP=NAME: one operation). The results have the bits of
 * the CPU device, except GEMMs in 16 bits, which must be as near the oracle as the table requires of the CPU. Subnormal
 * f32 results count as zeros. */
#include "ops/elementwise.h"
#include "ops/other.h"

#include "shim_device.h"

enum { CPU, SHIM };
enum { BATCH = 16 }; /* roots: as many kernels are one library */

typedef struct pending {
    const elem_row *elem;
    const op_case *other;
    an_dtype t;
    int variant;
} pending;

typedef struct batch {
    pending p[BATCH];
    int n, roots, place; /* place: of the first case in the batch its data was made for */
    uint64_t seed;
    long same, near; /* cases with the CPU's bits, and only near the oracle */
    int failed;
    bool may_differ;
} batch;

static lab both;

static void build(lab *l, const void *arg)
{
    const batch *b = arg;
    for (int i = 0; i < b->n; i++) {
        l->random = (b->seed * 31 + (uint64_t)(i + b->place)) * 0x9E3779B97F4A7C15u + 1;
        if (b->p[i].elem)
            elem_build(l, b->p[i].elem, b->p[i].t, b->p[i].variant);
        else
            b->p[i].other->build(l, b->p[i].other, b->p[i].t, b->p[i].variant);
    }
}

/* A GPU may flush subnormal results of plain arithmetic: they count as zeros. */
static void flush_to_zero(void *const *raw)
{
    for (int r = 0; r < both.n_roots; r++)
        for (int64_t i = 0; both.root[r].t->dtype == AN_F32 && i < both.root[r].t->numel; i++) {
            uint32_t *bits = (uint32_t *)raw[r] + i;
            if (!(*bits & 0x7f800000u)) *bits &= 0x80000000u;
        }
}

/* 1: the same bits; 0: near the oracle; -1: neither, both.why. */
static int run(const batch *b)
{
    void *raw[2][LAB_ROOTS] = {{0}};
    int good = 1;
    for (int way = CPU; way <= SHIM && good >= 0; way++) {
        lab_build_in(&both, way, b->seed, build, b);
        if (!lab_eval(&both, way, raw[way]))
            good = -1;
        else
            flush_to_zero(raw[way]);
    }
    if (good > 0 && !lab_same_bits(&both, SHIM, raw[SHIM], raw[CPU])) {
        char why[sizeof both.why];
        memcpy(why, both.why, sizeof why);
        lab_build_in(&both, CPU, b->seed, build, b);
        good = b->may_differ && lab_against_oracle(&both, raw[SHIM]) ? 0 : -1;
        if (!b->may_differ) memcpy(both.why, why, sizeof why);
    }
    for (int way = CPU; way <= SHIM; way++)
        for (int r = 0; r < LAB_ROOTS; r++) free(raw[way][r]);
    return good;
}

/* To every dtype that Apple's GPUs have. */
static void build_cast_to_32(lab *l, const op_case *c, an_dtype t, int v)
{
    an_tensor *x = some(l, t, AN_SHAPE(13, 7));
    (void)v;
    for (int to = 0; to < AN_N_DTYPES; to++)
        if (to != AN_F64) root(l, c, an_cast_at(AT, x, (an_dtype)to), to);
}
static const op_case cast_to_32 = {AN_OP_CAST, "CAST", build_cast_to_32, T_ALL, 1, AN_N_DTYPES, CORRECT};

static const char *name_of(const pending *p)
{
    return p->elem ? p->elem->name : p->other->name;
}

/* A batch that fails is run case by case, so that every failing case is named. */
static void flush(batch *b)
{
    int result = b->n ? run(b) : 1;
    if (result > 0) b->same += b->n;
    if (result == 0) b->near += b->n;
    for (int i = 0; i < b->n && result < 0; i++) {
        batch one = *b;
        one.p[0] = b->p[i], one.n = 1, one.place = i;
        if (run(&one) >= 0) continue;
        print_error("%s of %s, variant %d: %s\n", name_of(&b->p[i]), an_dtype_text(b->p[i].t), b->p[i].variant,
                    both.why);
        b->failed++;
    }
    b->n = b->roots = 0;
    b->seed++;
}

static void add(batch *b, pending p, int roots)
{
    if (b->n == BATCH || b->roots + roots > BATCH) flush(b);
    b->p[b->n++] = p;
    b->roots += roots;
}

static bool multiplies(const op_case *c, an_dtype t)
{
    const bool conv = c->op == AN_OP_CONV2D || c->op == AN_OP_CONV2D_DX || c->op == AN_OP_CONV2D_DW ||
                      c->op == AN_OP_CONV2D_DW_IMAGES;
    if (c->build == build_matmul_of_casts) return true; /* some of them to bfloat16 */
    return t == AN_BF16 &&
           (conv || c->op == AN_OP_MATMUL || c->op == AN_OP_ATTENTION || c->op == AN_OP_ATTENTION_GRAD ||
            c->op == AN_OP_GROUPED_MATMUL || c->op == AN_OP_GROUPED_OUTER);
}

static void finish(batch *b)
{
    flush(b);
    print_message("# %ld cases with the bits of the CPU, %ld near the oracle; %ld launches\n", b->same, b->near,
                  both.cx[SHIM]->device->launches);
    assert_int_equal(b->failed, 0);
}

/* In each test: where there is no C++ compiler it is skipped, which a group's setup cannot say. */
static void open_both(void)
{
    if (both.cx[SHIM]) return;
    shim_need();
    memset(&both, 0, sizeof both);
    both.cx[CPU] = an_open(&(an_options){.device = "cpu", .seed = LAB_SEED, .cc = "none", .verify = true});
    both.cx[SHIM] = shim_context(&(an_options){.seed = LAB_SEED, .verify = true}, MSL_300);
    assert_null(an_error(both.cx[CPU]));
}

static void operations_have_the_bits_of_the_cpu(void **state)
{
    (void)state;
    open_both();
    batch b = {.seed = 100000};
    const char *only = getenv("AN_OP");
    for (int differ = 0; differ < 2; differ++) {
        flush(&b);
        b.may_differ = differ;
        for (size_t i = 0; i < AN_COUNT(other_rows); i++)
            for (int t = 0; t < AN_N_DTYPES; t++)
                for (int v = 0; v < other_rows[i].variants; v++) {
                    const op_case *c = other_rows[i].op == AN_OP_CAST ? &cast_to_32 : &other_rows[i];
                    if (t == AN_F64 || !(c->dtypes >> t & 1) || multiplies(c, (an_dtype)t) != (bool)differ) continue;
                    if (only && strcmp(only, c->name)) continue;
                    if (!only && !getenv("AN_SOAK") && t != AN_F32 && (v % 5 || (t != AN_BF16 && t != AN_I32)))
                        continue;
                    add(&b, (pending){.other = c, .t = (an_dtype)t, .variant = v}, c->roots);
                }
    }
    finish(&b);
}

static void elementwise_operations_have_the_bits_of_the_cpu(void **state)
{
    (void)state;
    open_both();
    batch b = {.seed = 1};
    for (size_t i = 0; i < AN_COUNT(elem_rows); i++)
        for (int t = 0; t < AN_N_DTYPES; t++)
            for (int shape = 0; shape < ELEM_SHAPES; shape++) {
                if (t == AN_F64 || shape == SEVERAL_TASKS || !(elem_dtypes(elem_rows[i].op) >> t & 1)) continue;
                if (!getenv("AN_SOAK") && (t != AN_F32 || shape != SPECIALS)) continue;
                add(&b, (pending){.elem = &elem_rows[i], .t = (an_dtype)t, .variant = shape}, 1);
            }
    finish(&b);
}

static int close_both(void **state)
{
    (void)state;
    lab_forget(&both);
    an_close(both.cx[CPU]);
    an_close(both.cx[SHIM]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_have_the_bits_of_the_cpu),
        cmocka_unit_test(elementwise_operations_have_the_bits_of_the_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, close_both);
}
