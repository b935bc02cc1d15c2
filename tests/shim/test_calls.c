/* test_calls.c: kernels of calls that the conformance table does not reach: matrices in device memory, tall
 * and rank-deficient ones, ids that scatter outside and pile up, bit for bit with the CPU; and the texts of all calls
 * in all dtypes: linter, address spaces, and NVRTC for three generations of GPU. */
#include "nvrtc.h"
#include "ops/cases.h"
#include "codegen/gpu_library_calls.h"
#include "shim_device.h"

enum { MOST_OUT = 7 };

typedef int (*graph)(an_ctx *cx, an_dtype t, an_tensor **out); /* how many results */

/* ---------------------------------------------------------------------------------------------- graphs */

static lab numbers;

static an_tensor *fill(an_ctx *cx, an_dtype t, an_shape s, double low, double high)
{
    numbers.now = cx;
    return lab_fill(&numbers, t, s, low, high);
}

/* Symmetric; `shift` on the diagonal. */
static an_tensor *symmetric(an_ctx *cx, an_dtype t, int64_t n, double shift)
{
    an_tensor *x = fill(cx, t, AN_SHAPE(n > 50 ? 2 : 1, n, n), -1, 1);
    an_tensor *same = an_eq_at(AT, an_iota_at(AT, cx, AN_SHAPE(n, n), 0), an_iota_at(AT, cx, AN_SHAPE(n, n), 1));
    an_tensor *d =
        an_where_at(AT, same, an_full_at(AT, cx, t, AN_SHAPE(n, n), shift), an_full_at(AT, cx, t, AN_SHAPE(n, n), 0));
    return an_add_at(AT, an_add_at(AT, x, an_transpose_at(AT, x, 1, 2)), d);
}

static int large_cholesky(an_ctx *cx, an_dtype t, an_tensor **out)
{
    out[0] = an_cholesky_at(AT, symmetric(cx, t, 72, 80));
    return 1;
}
static int large_qr(an_ctx *cx, an_dtype t, an_tensor **out)
{
    out[0] = an_qr_at(AT, fill(cx, t, AN_SHAPE(2, 44, 33), -1, 1), &out[1]);
    return 2;
}
static int large_eigh(an_ctx *cx, an_dtype t, an_tensor **out)
{
    out[0] = an_eigh_at(AT, symmetric(cx, t, 44, 0), &out[1]);
    return 2;
}
static int large_svd(an_ctx *cx, an_dtype t, an_tensor **out)
{
    out[0] = an_svd_at(AT, fill(cx, t, AN_SHAPE(1, 49, 44), -1, 1), &out[1], &out[2]);
    return 3;
}
static int large_solve(an_ctx *cx, an_dtype t, an_tensor **out)
{
    out[0] = an_solve_at(AT, fill(cx, t, AN_SHAPE(2, 66, 66), -1, 1), fill(cx, t, AN_SHAPE(2, 66, 3), -1, 1));
    return 1;
}

/* Two equal columns and one of zeros: a zero singular value, an exact tie, a reflector that does nothing. */
static int deficient(an_ctx *cx, an_dtype t, an_tensor **out)
{
    an_tensor *x = fill(cx, t, AN_SHAPE(9, 3), -1, 1), *zero = an_full_at(AT, cx, t, AN_SHAPE(9, 1), 0);
    an_tensor *all = an_concat_at(AT, ((an_tensor *[]){x, x, zero}), 3, 1); /* [9,7] */
    out[0] = an_svd_at(AT, all, &out[1], &out[2]);
    out[3] = an_qr_at(AT, all, &out[4]);
    return 5;
}

/* Subnormal numbers, which f32 instructions of a GPU may flush and sums in wide numbers do not. */
static int tiny(an_ctx *cx, an_dtype t, an_tensor **out)
{
    static const double low[8] = {1e-40, -3e-41, 1e-45, 2e-39, -1e-38, 1.2e-38, -1e-45, 0};
    numbers.now = cx;
    an_tensor *x = lab_input(&numbers, t, AN_SHAPE(4, 16), -1e-38, 1e-38, low, 8, 0);
    out[0] = an_cumsum_at(AT, x, false);
    out[1] = an_sort_at(AT, x, false, &out[2]);
    return 3;
}

/* Ids that pile up, some outside the table, which count as the nearest; columns beyond one group. */
static int piles(an_ctx *cx, an_dtype t, an_tensor **out)
{
    an_tensor *ids = an_add_num_at(AT, fill(cx, AN_I32, AN_SHAPE(3, 211), 0, 11), -2); /* computed: not looked at */
    out[0] = an_scatter_add_at(AT, ids, fill(cx, t, AN_SHAPE(3, 211, 300), -1, 1), 7);
    out[1] = an_scatter_add_at(AT, fill(cx, AN_I32, AN_SHAPE(40), 0, 1000), fill(cx, t, AN_SHAPE(40, 2), -1, 1), 1000);
    return 2;
}

/* Rows by ids of which some are equal and some outside. */
/* A row of a state replaced, of lines and of single elements. */
static int row_update(an_ctx *cx, an_dtype t, an_tensor **out)
{
    static const int64_t at[] = {19, 0, 3};
    for (int i = 0; i < 3; i++) {
        char name[16];
        const an_shape whole = AN_SHAPE(3, 20, i == 2 ? 1 : 41), row = AN_SHAPE(3, 1, i == 2 ? 1 : 41);
        snprintf(name, sizeof name, "cache.%d", i);
        an_tensor *state = an_state_at(AT, cx, name, i ? AN_BF16 : t, whole, AN_FILL(0.5));
        an_tensor *here =
            an_eq_at(AT, an_iota_at(AT, cx, AN_SHAPE(1, 20, 1), 1), an_scalar_i32_at(AT, cx, (int32_t)at[i]));
        an_tensor *fresh = fill(cx, i ? AN_BF16 : t, row, -1, 1);
        out[i] = an_where_at(AT, an_expand_at(AT, here, whole), an_expand_at(AT, fresh, whole), state);
        an_assign_at(AT, state, out[i]);
    }
    return 3;
}

/* Rows that one thread block takes in one turn and in many; few and many kept; ties; damaged rows. */
static int draws(an_ctx *cx, an_dtype t, an_tensor **out)
{
    static const double odd[6] = {NAN, INFINITY, -INFINITY, -0.0, 0.0, 3};
    an_tensor *number = fill(cx, AN_I32, AN_SHAPE(2), 0, 1000), *x = fill(cx, t, AN_SHAPE(2, 4500), -9, 9);
    numbers.now = cx;
    an_tensor *odds = lab_input(&numbers, t, AN_SHAPE(12, 5), -3, 3, odd, 6, 0);
    out[0] = an_draw_at(AT, x, number, 0.8, 200, 0, 1);
    out[1] = an_draw_at(AT, x, number, 1.5, 0, 0.9, 2);
    out[2] = an_draw_at(AT, x, number, 1, 1100, 0, 3);
    out[3] = an_draw_at(AT, an_floor_at(AT, x), number, 2, 50, 0.7, 4);
    out[4] = an_draw_at(AT, x, number, 0, 0, 0, 5);
    out[5] = an_draw_at(AT, odds, number, 1, 2, 0, 6);
    out[6] = an_draw_at(AT, odds, number, 0, 0, 0, 7);
    return 7;
}

static int replaced(an_ctx *cx, an_dtype t, an_tensor **out)
{
    an_tensor *ids = an_add_num_at(AT, fill(cx, AN_I32, AN_SHAPE(211), 0, 60), -2);
    out[0] = an_put_rows_at(AT, fill(cx, t, AN_SHAPE(50, 300), -1, 1), ids, fill(cx, t, AN_SHAPE(211, 300), -1, 1));
    out[1] = an_put_rows_at(AT, fill(cx, t, AN_SHAPE(7), -1, 1), an_mul_num_at(AT, ids, 0),
                            fill(cx, t, AN_SHAPE(211), -1, 1)); /* one id for all */
    return 2;
}

/* ---------------------------------------------------------------------------------------------- bits */

static int evaluate(an_ctx *cx, graph g, char *out[MOST_OUT], size_t bytes[MOST_OUT])
{
    an_tensor *t[MOST_OUT];
    lab_forget(&numbers);
    numbers.random = 77;
    an_reset(cx);
    int n = g(cx, AN_F32, t);
    if (an_eval_at(AT, t, n) != AN_OK) fail_msg("%s", an_error(cx));
    for (int i = 0; i < n; i++) {
        bytes[i] = (size_t)t[i]->numel * an_dtype_size((an_dtype)t[i]->dtype);
        out[i] = malloc(bytes[i]);
        assert_non_null(out[i]);
        assert_int_equal(an_read_at(AT, t[i], out[i], bytes[i]), AN_OK);
    }
    return n;
}

static void same(const char *what, graph g)
{
    char *cpu[MOST_OUT], *shim[MOST_OUT];
    size_t bytes[MOST_OUT];
    an_ctx *on_shim = shim_context(&(an_options){.seed = 1, .verify = true}, MSL_300),
           *on_cpu = an_open(&(an_options){.device = "cpu", .cc = "none"});
    int n = evaluate(on_cpu, g, cpu, bytes);
    assert_int_equal(evaluate(on_shim, g, shim, bytes), n);
    for (int i = 0; i < n; i++) {
        for (size_t k = 0; k < bytes[i]; k++)
            if (cpu[i][k] != shim[i][k]) fail_msg("%s: result %d differs in byte %zu of %zu", what, i, k, bytes[i]);
        free(cpu[i]);
        free(shim[i]);
    }
    an_close(on_cpu);
    an_close(on_shim);
}

static void matrices_in_device_memory_have_the_bits_of_the_cpu(void **state)
{
    (void)state;
    same("cholesky", large_cholesky);
    same("qr", large_qr);
    same("eigh", large_eigh);
    same("svd", large_svd);
    same("solve", large_solve);
}

static void odd_matrices_numbers_and_ids_have_the_bits_of_the_cpu(void **state)
{
    (void)state;
    same("deficient", deficient);
    same("tiny", tiny);
    same("piles", piles);
    same("replaced", replaced);
    same("draws", draws);
    same("a row of a state", row_update);
}

/* ---------------------------------------------------------------------------------------------- texts */

static int every_call(an_ctx *cx, an_dtype t, an_tensor **out)
{
    const bool real = an_dtype_is_float(t);
    an_tensor *x = fill(cx, t, AN_SHAPE(2, 6, 5), 0, 9), *y = fill(cx, t, AN_SHAPE(2, 3000), 0, 9), *unused;
    int n = 0;
    out[n++] = an_cumsum_at(AT, y, true);
    out[n++] = an_sort_at(AT, x, true, &unused);
    out[n++] = an_topk_at(AT, y, 3, &unused);
    out[n++] = an_put_rows_at(AT, y, fill(cx, AN_I32, AN_SHAPE(1), 0, 2), fill(cx, t, AN_SHAPE(1, 3000), 0, 9));
    if (t == AN_F32) {
        an_tensor *number = fill(cx, AN_I32, AN_SHAPE(2), 0, 9);
        out[n++] = an_draw_at(AT, y, number, 1, 5, 0.5, 1);
        out[n++] = an_draw_at(AT, x, number, 1, 0, 0, 1);
    }
    if (!real) return n;
    out[n++] = an_qr_at(AT, x, &unused);
    out[n++] = an_svd_at(AT, x, &unused, &unused);
    out[n++] = an_cholesky_at(AT, symmetric(cx, t, 5, 9));
    out[n++] = an_cholesky_at(AT, symmetric(cx, t, 70, 90));
    out[n++] = an_eigh_at(AT, symmetric(cx, t, 5, 9), &unused);
    out[n++] = an_solve_at(AT, symmetric(cx, t, 5, 9), symmetric(cx, t, 5, 9));
    out[n++] = an_trisolve_at(AT, symmetric(cx, t, 5, 9), symmetric(cx, t, 5, 9), true, false);
    out[n++] = an_scatter_add_at(AT, fill(cx, AN_I32, AN_SHAPE(6), 0, 3), fill(cx, t, AN_SHAPE(6, 5), 0, 9), 4);
    an_tensor *image = fill(cx, t, AN_SHAPE(2, 6, 6, 3), -1, 1);
    an_backward_at(
        AT,
        an_sum_at(AT,
                  an_cast_at(AT,
                             an_max_pool_at(AT, image,
                                            (an_window){.kernel_h = 3, .kernel_w = 2, .stride_h = 2, .stride_w = 1}),
                             AN_F32),
                  AN_ALL, false));
    out[n++] = an_grad(image);
    return n;
}

/* Hands each different text of calls in `t` to `check`; returns how many there were. */
static int each_text(const char *device, an_dtype t, const an_gpu *gpu,
                     void (*check)(const char *text, int entries, int arg), int arg)
{
    an_tensor *out[16];
    an_text unit = {0}, seen = {0};
    int n = 0;
    an_ctx *cx = an_open(&(an_options){.device = device, .seed = 1});
    assert_non_null(cx);
    lab_forget(&numbers);
    int roots = every_call(cx, t, out);
    if (an_plan_at(AT, out, roots) != AN_OK) fail_msg("%s", an_error(cx));
    const an_plan *p = cx->last->plan;
    for (int s = 0; s < p->n_steps; s++) {
        const an_kernel *k = &p->kernel[p->step[s].kernel];
        if (k->kind != AN_KERNEL_CALL && k->kind != AN_KERNEL_SCATTER) continue;
        an_text_clear(&unit);
        an_render_module(p, &p->step[s], gpu, "", &unit);
        if (unit.failed) fail_msg("%s of %s on %s has no text", k->name, an_dtype_text(t), device);
        if (seen.data && strstr(seen.data, unit.data)) continue;
        an_text_puts(&seen, unit.data);
        an_tiles tiles;
        assert_null(an_module_tiles(p, &p->step[s], gpu, &tiles));
        check(unit.data, an_gpu_call_entries(&tiles), arg);
        n++;
    }
    an_text_free(&unit);
    an_text_free(&seen);
    an_close(cx);
    return n;
}

static void run_tool(const char *tool, const char *text, int version)
{
    char path[256], command[1024];
    snprintf(path, sizeof path, "%s", test_path("call.metal"));
    test_write_file(path, text, strlen(text));
    snprintf(command, sizeof command, tool, version, path);
    if (shim_command(command, test_path("call.log"))) fail_msg("as MSL %d", version);
}

static void lint(const char *text, int entries, int version)
{
    (void)entries, run_tool("python3 tools/msl_lint --version %d %s", text, version);
}

static void type_check(const char *text, int entries, int version)
{
    (void)entries;
    run_tool("clang++ -x c++ -std=c++14 -fsyntax-only -DAN_SHIM_CHECK -Itests/shim/msl -Wall -Wextra -Werror "
             "-Wno-unknown-pragmas "
             "-Wno-unknown-attributes -Wno-unused-function -Wno-unused-parameter -D__METAL_VERSION__=%d %s",
             text, version);
}

static const an_dtype dtypes[] = {AN_F32, AN_BF16, AN_F16, AN_I32, AN_I64, AN_U8};

static void every_text_passes_the_linter(void **state)
{
    (void)state;
    if (shim_command("python3 --version", test_path("python.log"))) {
        test_skip("no python3: tools/msl_lint cannot run");
    }
    for (size_t i = 0; i < AN_COUNT(dtypes); i++)
        assert_true(each_text("null:metal", dtypes[i],
                              &(an_gpu){.dialect = &an_dialects[AN_DIALECT_MSL], .version = 300}, lint, 300) >= 3);
}

static void every_text_passes_the_type_check(void **state)
{
    (void)state;
    if (shim_command("clang++ --version", test_path("clang.log"))) {
        test_skip("no clang++: address spaces are not checked");
    }
    for (size_t i = 0; i < AN_COUNT(dtypes); i++)
        assert_true(each_text("null:metal", dtypes[i],
                              &(an_gpu){.dialect = &an_dialects[AN_DIALECT_MSL], .version = 300}, type_check,
                              300) >= 3);
}

static nvrtc compiler;

static void compile(const char *text, int entries, int arch)
{
    char *log = NULL, *cubin = nvrtc_cubin(&compiler, text, "call", arch, 1, &log);
    int seen = 0;
    for (const char *p = log; p && (p = strstr(p, "Compiling entry function")); p++) seen++;
    if (!cubin || strstr(log, "warning") || seen != entries) fail_msg("for sm_%d: %s", arch, log ? log : "no log");
    free(cubin);
    free(log);
}

static void every_text_compiles_for_cuda(void **state)
{
    (void)state;
    static const int archs[] = {80, 90, 100};
    static const an_dtype more[] = {AN_F32, AN_F64, AN_I64, AN_BF16, AN_F16, AN_U8};
    char why[512];
    if (nvrtc_open(&compiler, why, sizeof why)) {
        test_skip(NVRTC_ABSENT);
    }
    for (size_t i = 0; i < AN_COUNT(more); i++)
        for (size_t a = 0; a < AN_COUNT(archs); a++)
            if (getenv("AN_SOAK") || i == a) /* in turn: a text takes NVRTC a second */
                assert_true(each_text("null:cuda", more[i], &(an_gpu){.dialect = &an_dialects[AN_DIALECT_CUDA]},
                                      compile, archs[a]) >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_in_device_memory_have_the_bits_of_the_cpu),
        cmocka_unit_test(odd_matrices_numbers_and_ids_have_the_bits_of_the_cpu),
        cmocka_unit_test(every_text_passes_the_linter),
        cmocka_unit_test(every_text_passes_the_type_check),
        cmocka_unit_test(every_text_compiles_for_cuda),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
