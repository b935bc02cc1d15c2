/* test_gemm.c: the portable GEMM (kernels/gpu/gemm.inc) as MSL on the CPU shim: for f32 the bits of a sum in ascending k,
 * for 16-bit multiplication near the exact answer; every orientation, batches, splits, an epilogue. */
#include "attn_case.h"
#include "configs.h"
#include "kernels/gpu/transpose_args.h"
#include "shim_build.h"

typedef struct gemm_shape {
    int m, n, k, batch, splits;
} gemm_shape;

static void gemm_strides(struct an_gemm_args *g, const gemm_config *c, const gemm_shape *p)
{
    *g = (struct an_gemm_args){
        .m = p->m, .n = p->n, .k = p->k, .nb = {1, p->batch, 1}, .k_per_split = (p->k + p->splits - 1) / p->splits};
    g->a_m = c->a_along_k ? p->k : 1, g->a_k = c->a_along_k ? 1 : p->m;
    g->b_n = c->b_along_k ? p->k : 1, g->b_k = c->b_along_k ? 1 : p->n;
    g->a_b[1] = (an_i64)p->m * p->k, g->b_b[1] = (an_i64)p->k * p->n, g->c_b[1] = (an_i64)p->m * p->n, g->c_m = p->n;
}

/* The sum in the order of the specification, in f32 (exact) or double. */
static double chain(const struct an_gemm_args *g, const double *a, const double *b, int row, int col, int exact)
{
    double total = 0;
    for (int k0 = 0; k0 < g->k; k0 += g->k_per_split) {
        double sum = 0;
        for (int k = k0; k < k0 + g->k_per_split && k < g->k; k++) {
            double x = a[row * g->a_m + k * g->a_k], y = b[k * g->b_k + col * g->b_n];
            sum = exact ? (double)fmaf((float)x, (float)y, (float)sum) : sum + x * y;
        }
        total = k0 == 0 ? sum : exact ? (double)((float)total + (float)sum) : total + sum;
    }
    return total;
}

/* epilogue: defines to add, or "". Its effect is `scale` and `shift` on the sum. */
static void check(gemm_config c, gemm_shape p, const char *epilogue, float scale, float shift, double tolerance)
{
    const int exact = c.mul == KIND_F32, threads = 32 * c.subgroups_m * c.subgroups_n;
    char defines[2048];
    struct an_gemm_args g;
    uint64_t state = 3;
    size_t na = (size_t)p.batch * (size_t)p.m * (size_t)p.k, nb = (size_t)p.batch * (size_t)p.k * (size_t)p.n;
    size_t nc = (size_t)p.batch * (size_t)p.m * (size_t)p.n, np = nc * (size_t)p.splits;
    double *a = calloc(na, sizeof *a), *b = calloc(nb, sizeof *b);
    void *pa = aligned_alloc(64, (na * 4 + 64) & ~(size_t)63), *pb = aligned_alloc(64, (nb * 4 + 64) & ~(size_t)63);
    float *out = malloc(nc * sizeof *out), *part = malloc(np * sizeof *part);
    assert_true(a && b && pa && pb && out && part);
    for (size_t i = 0; i < na; i++) a[i] = case_value(case_bits((float)case_uniform(&state), c.store), c.store);
    for (size_t i = 0; i < nb; i++) b[i] = case_value(case_bits((float)case_uniform(&state), c.store), c.store);
    for (size_t i = 0; i < nc; i++) out[i] = 0.25f;
    case_pack(pa, a, na, c.store), case_pack(pb, b, nb, c.store);
    gemm_strides(&g, &c, &p);

    gemm_defines(defines, sizeof defines, &c);
    strcat(defines, epilogue);
    char *text = kernel_text("msl", "gemm", defines);
    shim_object o = shim_build(text, 310);
    shim_buffer out_buffer = {out, nc * sizeof *out}, part_buffer = {part, np * sizeof *part}, args = {&g, sizeof g};
    shim_launch l = {
        .groups = {(unsigned)((p.n + c.bn - 1) / c.bn), (unsigned)((p.m + c.bm - 1) / c.bm),
                   (unsigned)(p.batch * p.splits)},
        .threads = (unsigned)threads,
        .seed = 17,
        .buffers = {{pa, na * case_item(c.store)}, {pb, nb * case_item(c.store)}, out_buffer, part_buffer, args}};
    shim_launch_clean(o, "gemm", &l);
    if (p.splits > 1) {
        shim_launch j = {.groups = {(unsigned)((p.n + threads - 1) / threads), (unsigned)p.m, (unsigned)p.batch},
                         .threads = (unsigned)threads,
                         .seed = 18,
                         .buffers = {[2] = out_buffer, part_buffer, args}};
        shim_launch_clean(o, "gemm_reduce_splits", &j);
    }
    for (int t = 0; t < p.batch; t++)
        for (int i = 0; i < p.m; i++)
            for (int j = 0; j < p.n; j++) {
                double want = chain(&g, a + t * g.a_b[1], b + t * g.b_b[1], i, j, exact);
                float got = out[t * g.c_b[1] + i * g.c_m + j], f = (float)want;
                f = f * scale + shift;
                if (exact ? memcmp(&got, &f, sizeof f) != 0 : !(fabs((double)got - (double)f) <= tolerance * p.k))
                    fail_msg("C[%d,%d,%d] is %.9g, not %.9g", t, i, j, (double)got, (double)f);
            }
    shim_unload(o);
    free(text), free(a), free(b), free(pa), free(pb), free(out), free(part);
}

static void f32_gemms_have_the_bits_of_an_ascending_sum_in_every_orientation(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        gemm_config c = {KIND_F32, KIND_F32, KIND_F32, way % 2 ? 8 : 1, 32, 16, 16, 2, 1, way & 1, way >> 1, 0};
        gemm_shape p = {way % 2 ? 40 : 37, way % 2 ? 24 : 21, way % 2 ? 40 : 43, 2, 1};
        check(c, p, "", 1, 0, 0);
    }
}

/* Fragments loaded from device memory: the same bits as staged tiles, in every orientation, over batches and splits. */
static void direct_loads_have_the_bits_of_staged_tiles(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        gemm_config c = {KIND_F32, KIND_F32, KIND_F32, 8, 32, 32, 16, 2, 1, way & 1, way >> 1, 1};
        check(c, (gemm_shape){64, 96, 96, 2, way % 2 ? 3 : 1}, "", 1, 0, 0);
        c.store = KIND_BF16, c.store_c = KIND_F32, c.mul = KIND_BF16;
        check(c, (gemm_shape){32, 64, 48, 1, 1}, "", 1, 0, 1e-6);
    }
}

static void split_chains_are_added_in_order(void **state)
{
    (void)state;
    check((gemm_config){KIND_F32, KIND_F32, KIND_F32, 1, 16, 16, 16, 1, 2, 1, 0, 0}, (gemm_shape){19, 35, 100, 2, 3},
          "", 1, 0, 0);
}

static void bf16_gemms_are_near_and_may_store_f32(void **state)
{
    (void)state;
    check((gemm_config){KIND_BF16, KIND_F32, KIND_BF16, 8, 32, 32, 32, 2, 1, 1, 0, 0}, (gemm_shape){40, 56, 72, 1, 1},
          "", 1, 0, 1e-6);
    check((gemm_config){KIND_F32, KIND_F32, KIND_F16, 1, 32, 16, 16, 1, 2, 0, 1, 0}, (gemm_shape){33, 17, 20, 1, 1}, "",
          1, 0, 1e-3);
}

static void the_epilogue_is_a_hole(void **state)
{
    (void)state;
    check((gemm_config){KIND_F32, KIND_F32, KIND_F32, 1, 16, 16, 16, 1, 1, 1, 0, 0}, (gemm_shape){20, 18, 9, 1, 1},
          "#define AN_EPILOGUE_ARGS\n#define AN_EPILOGUE(row, col, acc) c[c_at + (row) * g.c_m + (col)] = (acc) * 2.0f "
          "+ 1.0f\n",
          2, 1, 0);
}

/* The transpose before a library's GEMM on CUDA is written in the portable dialect, so the shim can run it. */
static void an_operand_is_transposed_whatever_its_size(void **state)
{
    (void)state;
    static const int sizes[][3] = {{37, 70, 75}, {64, 32, 32}, {1, 33, 40}}; /* rows, columns, stride */
    const size_t capacity = 1u << 18;
    static const char *const parts[] = {"src/kernels/dialect/msl.h", "src/base/exact.h",
                                        "src/kernels/gpu/transpose_args.h", "src/kernels/gpu/transpose.inc"};
    char *text = malloc(capacity);
    assert_non_null(text);
    size_t at = (size_t)snprintf(text, capacity, "#define AN_MUL AN_KIND_F32\n#define AN_EXACT 0\n");
    for (size_t i = 0; i < AN_COUNT(parts); i++) kernel_append(text, capacity, &at, parts[i]);
    shim_object o = shim_build(text, 310);
    for (size_t s = 0; s < AN_COUNT(sizes); s++) {
        const int rows = sizes[s][0], cols = sizes[s][1], stride = sizes[s][2];
        struct an_transpose_args args = {.stride = stride, .rows = rows, .cols = cols};
        static float x[64 * 80], y[64 * 80];
        for (int i = 0; i < rows * stride; i++) x[i] = (float)i;
        memset(y, 0xff, sizeof y);
        shim_launch l = {.groups = {(unsigned)(cols + AN_TRANSPOSE_TILE - 1) / AN_TRANSPOSE_TILE,
                                    (unsigned)(rows + AN_TRANSPOSE_TILE - 1) / AN_TRANSPOSE_TILE, 1},
                         .threads = AN_TRANSPOSE_THREADS,
                         .seed = 5,
                         .buffers = {{x, sizeof(float) * (size_t)(rows * stride)},
                                     {y, sizeof(float) * (size_t)(rows * cols)},
                                     {&args, sizeof args}}};
        shim_launch_clean(o, "transpose", &l);
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < cols; c++)
                if (y[c * rows + r] != x[r * stride + c])
                    fail_msg("y[%d,%d] is %g, not %g", c, r, (double)y[c * rows + r], (double)x[r * stride + c]);
    }
    shim_unload(o);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_operand_is_transposed_whatever_its_size),
        cmocka_unit_test(f32_gemms_have_the_bits_of_an_ascending_sum_in_every_orientation),
        cmocka_unit_test(direct_loads_have_the_bits_of_staged_tiles),
        cmocka_unit_test(split_chains_are_added_in_order),
        cmocka_unit_test(bf16_gemms_are_near_and_may_store_f32),
        cmocka_unit_test(the_epilogue_is_a_hole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
