/* test_mutants.c: are the shim and a comparison with the CPU enough to find a mistake in a kernel? Each mutant is one
 * mistake of a sort that people make (a barrier left out, an edge off by one, a wrong stride, lane or order), written
 * into the texts of two graphs. It must be found: as a fault, or as a bit that is not the CPU's. An ordinary run takes
 * every sixth, AN_SOAK=1 all; AN_MUTANT=n one. */
#include "ops/cases.h"

#include "shim_device.h"

enum { MOST_ROOTS = 16, TURN = 6 };

typedef struct mutant {
    int graph; /* 0: a language model, 1: calls */
    const char *from, *to;
} mutant;

static const mutant mutants[] = {
    /* GEMM */
    {0, "AN_BARRIER(); /* all have used the tiles before */", ""},
    {0, "AN_BARRIER();\n        an_gemm_multiply", "an_gemm_multiply"},
    {0, "g.m - m, k_end - k, me", "g.m - m, AN_BK, me"},
    {0, "g.n - n, k_end - k, me", "AN_BN, k_end - k, me"},
    {0, "a += m * g.a_m", "a += k * g.a_m"},
    {0, "row >= g.m || col >= g.n", "row > g.m || col >= g.n"},
    {0, "col = n0 + n + at % AN_SN", "col = n0 + n + at / AN_SN"},
    {0, "an_load_bt(fb, b_tile + (n + 8 * j) * AN_LD_B + k, AN_LD_B)",
     "an_load_b(fb, b_tile + (n + 8 * j) * AN_LD_B + k, AN_LD_B)"},
    {0, "float sum = strip[at / AN_SN * AN_LD_C", "float sum = strip[at % AN_SN * AN_LD_C"},
    /* what templates share */
    {0, "bool inside = r < rows_in && c < cols_in", "bool inside = r <= rows_in && c < cols_in"},
    {0,
     "AN_SUBGROUP_BARRIER();\n    AN_UNROLL for (int j = 0; j < n8; j++) an_store_c(strip + 8 * j, ld, acc[j]);\n    "
     "AN_SUBGROUP_BARRIER();",
     "AN_UNROLL for (int j = 0; j < n8; j++) an_store_c(strip + 8 * j, ld, acc[j]);\n    AN_SUBGROUP_BARRIER();"},
    {0, "an_store_c(strip + 8 * j, ld, acc[j]);\n    AN_SUBGROUP_BARRIER();", "an_store_c(strip + 8 * j, ld, acc[j]);"},
    {0, "float f = an_shuffle(factor, 2 * r);", "float f = an_shuffle(factor, r);"},
    {0, "x[0] + an_shuffle_xor(x[0], 1)", "x[0] + an_shuffle_xor(x[0], 2)"},
    /* attention */
    {0, "int shift = n - a.T;", "int shift = n - a.T + 1;"},
    {0, "float shrink = AN_EXP(most_before - most);", "float shrink = 1.0f;"},
    {0, "sums[c % 8] += x[c];\n#if AN_DROPOUT", "sums[c % 8] += 1.001f * x[c];\n#if AN_DROPOUT"},
    {0, "index * a.S + (j0 + 2 * c + parity)", "index * a.S + (j0 + 2 * c)"},
    {0,
     "AN_SUBGROUP_BARRIER(); /* both lanes of every row have read its scores */\n        AN_UNROLL for (int c = 0; c < "
     "AN_KEYS / 2; c++) p_row[2 * c + parity] = an_to_mul(x[c]);\n        AN_SUBGROUP_BARRIER();",
     "AN_UNROLL for (int c = 0; c < AN_KEYS / 2; c++) p_row[2 * c + parity] = an_to_mul(x[c]);"},
    {0, "saw ? AN_DIV(a.keep_scale, sum)", "saw ? AN_DIV(1.0f, sum)"},
    {0, "dp[c] = p * (dp[c] - my_delta);", "dp[c] = p * dp[c];"},
    {0, "i < a.T && chain == 0) delta[", "i <= a.T && chain == 0) delta["},
    {0, "lse[head + i0 + c]", "lse[head + c]"},
    {0, "p_row[2 * c + parity] = an_to_mul(kept[c] ? p[c] : 0.0f);", "p_row[2 * c + parity] = an_to_mul(p[c]);"},
    {0, "p[c] *= (kept[c] ? dp * a.keep_scale : 0.0f)", "p[c] *= dp * a.keep_scale"},
    /* generated rows */
    {0, "type other = an_lane_xor(x, s);", "type other = an_lane_xor(x, 1);"},
    {0, "x = an_plus(x, an_lane_xor(x, s));", "x = an_plus(x, an_lane_xor(x, 1));"},
    {0, "for (int c = l; c < 16; c += 32) {", "for (int c = l; c < 15; c += 32) {"},
    {0, "if (l == 0) ", ""},
    /* scatter */
    {0, "k < me) ? 1 : 0", "k <= me) ? 1 : 0"},
    {0, "if (ids[middle] < row)", "if (ids[middle] <= row)"},
    {0, "AN_BARRIER(); /* all have used the tile before */", ""},
    {0, "end - 1)] * a.src_stride + c", "end - 1)] * a.src_stride"},
    {0, "if (row > a.rows) return;", ""},
    /* sorting and running sums */
    {1, "(q == p && qf < pf)", "(q == p && qf > pf)"},
    {1, "AN_WORK_BARRIER();\n            for (int i = me; i < a.m / 2", "for (int i = me; i < a.m / 2"},
    {1, "if (a.flag != 0) key = ~key;", "if (a.flag != 0) key = key + 1u;"},
    {1, "for (int i = me; i < a.k; i += AN_THREADS)", "for (int i = me; i < a.n; i += AN_THREADS)"},
    {1, "return ~(an_key)0;\n    if (size == 0u) return sign;", "return ~(an_key)0;"},
    {1, "? a.n - 1 - at : at", "? a.n - at : at"},
    {1, "if (k == lane) kept = sum;", "if (k + 1 == lane) kept = sum;"},
    {1, "(i == h && k < w)", "(i == h && k <= w)"},
    {1, "at + pad - extent + 1;", "at + pad - extent + 2;"},
    /* factorisations */
    {1, "AN_WORK_BARRIER();\n        AN_WORK an_f64 *ak", "AN_WORK an_f64 *ak"},
    {1, "AN_WORK_BARRIER(); /* all have read the column */", ""},
    {1, "AN_WORK_BARRIER();\n        AN_WORK const an_f64 *v", "AN_WORK const an_f64 *v"},
    {1, "any = an_eigh_decide(a, rotation, n, sum, me) || any;\n            AN_WORK_BARRIER();",
     "any = an_eigh_decide(a, rotation, n, sum, me) || any;"},
    {1, "if (paired && (other <= p || i != other)) return;", "if (paired && other <= p) return;"},
    {1, "pairs = (sum + 1) / 2 - first;\n            AN_WORK_BARRIER();\n            for (int from",
     "pairs = (sum + 1) / 2 - first;\n            for (int from"},
    {1, "an_f64_mul(an_f64_mul(an_f64_number(-53)", "an_f64_mul(an_f64_mul(an_f64_number(-3)"},
    {1, "k < n + m && best != p", "k < n && best != p"},
    {1, "an_f64_div(an_f64_negative(a[i * n + p]), a[p * n + p]);\n        AN_WORK_BARRIER();",
     "an_f64_div(an_f64_negative(a[i * n + p]), a[p * n + p]);"},
    {1, "bool from_end = upper != transposed;", "bool from_end = upper;"},
    {1, "bool before = descending ?", "bool before = !descending ?"},
    {1, "m = 4; m > 0; m /= 2) sum", "m = 4; m > 1; m /= 2) sum"},
    /* doubles made of integers */
    {1, "bool odd = (e & 1) == 0;", "bool odd = (e & 1) != 0;"},
    {1, "if (rest > 0x4000000000u ||", "if (rest > 0x6000000000u ||"},
    {1, "return an_f64_round(sign, ea - shift,", "return an_f64_round(sign, ea,"},
    {1, "for (int i = 0; i < 55; i++) { /* 1 <=", "for (int i = 0; i < 54; i++) { /* 1 <="},
};

/* ---------------------------------------------------------------------------------------------- graphs */

static lab numbers;

static an_tensor *fill(an_shape s, double low, double high)
{
    return lab_fill(&numbers, AN_F32, s, low, high);
}

/* Embedding, norm, attention with dropout, loss; and the gradients of all weights: T 99, C 16, V 13. */
static int language_model(an_ctx *cx, an_tensor **out)
{
    enum { T = 99, C = 16, V = 13, H = 2 };
    an_tensor *w[6];
    static const char *const names[6] = {"table", "gain", "bias", "qkv", "shift", "head"};
    const an_shape shapes[6] = {AN_SHAPE(V, C),     AN_SHAPE(C),     AN_SHAPE(C),
                                AN_SHAPE(C, 3 * C), AN_SHAPE(3 * C), AN_SHAPE(C, V)};
    for (int i = 0; i < 6; i++) w[i] = an_param_at(AT, cx, names[i], AN_F32, shapes[i], AN_NORMAL(0.5));
    an_tensor *x = lab_fill(&numbers, AN_I32, AN_SHAPE(1, T), 0, V),
              *y = lab_fill(&numbers, AN_I32, AN_SHAPE(1, T), 0, V), *part[3];
    an_tensor *h = an_add_at(AT, an_gather_at(AT, w[0], x), fill(AN_SHAPE(1, T, C), -1, 1)); /* [1,T,C] */
    h = an_layer_norm_at(AT, h, w[1], w[2], 1e-5);
    an_tensor *qkv = an_add_at(AT, an_matmul_at(AT, h, w[3]), w[4]); /* [1,T,3C] */
    qkv = an_reshape_at(AT, qkv, AN_SHAPE(1, T, 3, H, C / H));
    for (int i = 0; i < 3; i++)
        part[i] = an_permute_at(AT, an_reshape_at(AT, an_slice_at(AT, qkv, 2, i, i + 1, 1), AN_SHAPE(1, T, H, C / H)),
                                AN_SHAPE(0, 2, 1, 3));
    an_tensor *o = an_attention_at(AT, part[0], part[1], part[2], 0, true, 0.2, NULL); /* [1,H,T,C/H] */
    o = an_reshape_at(AT, an_permute_at(AT, o, AN_SHAPE(0, 2, 1, 3)), AN_SHAPE(1, T, C));
    out[0] = an_mean_at(AT, an_cross_entropy_at(AT, an_matmul_at(AT, o, w[5]), y), AN_ALL, false);
    an_backward_at(AT, out[0]);
    for (int i = 0; i < 6; i++) out[1 + i] = an_grad(w[i]);
    return 7;
}

static int calls(an_ctx *cx, an_tensor **out)
{
    static const double odd[4] = {1, (double)NAN, 0, -0.0}, few[12] = {1, 0, 2, 2, -1, 1, 0, 2, 1, -1, 2, 0};
    int n = 0;
    (void)cx;
    an_tensor *square = fill(AN_SHAPE(1, 9, 9), -1, 1);
    an_tensor *positive = an_add_at(AT, an_matmul_at(AT, square, an_transpose_at(AT, square, 1, 2)),
                                    an_full_at(AT, cx, AN_F32, AN_SHAPE(1, 9, 9), 0.25));
    out[n++] = an_cumsum_at(AT, fill(AN_SHAPE(3, 70), -1, 1), true);
    out[n] = an_sort_at(AT, lab_input(&numbers, AN_F32, AN_SHAPE(2, 150), -3, 3, odd, 4, 0), true, &out[n + 1]);
    n += 2;
    out[n] = an_topk_at(AT, an_floor_at(AT, fill(AN_SHAPE(2, 40), -3, 3)), 5, &out[n + 1]);
    n += 2;
    an_tensor *x = lab_input(&numbers, AN_F32, AN_SHAPE(1, 7, 6, 3), 0, 1, few, 12, 0);
    an_backward_at(
        AT, an_sum_at(AT,
                      an_max_pool_at(
                          AT, x, (an_window){.kernel_h = 3, .kernel_w = 2, .stride_h = 2, .stride_w = 1, .pad_h = 1}),
                      AN_ALL, false));
    out[n++] = an_grad(x);
    out[n++] = an_cholesky_at(AT, positive);
    out[n] = an_qr_at(AT, fill(AN_SHAPE(1, 20, 13), -1, 1), &out[n + 1]);
    n += 2;
    out[n] = an_eigh_at(AT, positive, &out[n + 1]);
    n += 2;
    out[n] = an_svd_at(AT, fill(AN_SHAPE(1, 11, 7), -1, 1), &out[n + 1], &out[n + 2]);
    n += 3;
    out[n++] = an_solve_at(AT, square, fill(AN_SHAPE(1, 9, 2), -1, 1));
    out[n++] = an_trisolve_at(AT, positive, fill(AN_SHAPE(1, 9, 2), -1, 1), true, true);
    return n;
}

/* ---------------------------------------------------------------------------------------------- running */

static an_ctx *cpu, *shim;
static char *want[2][MOST_ROOTS];

static bool evaluate(an_ctx *cx, int graph, char **out, size_t *bytes, int *n)
{
    an_tensor *root[MOST_ROOTS];
    lab_forget(&numbers);
    numbers.now = cx;
    numbers.random = 99;
    an_reset(cx);
    *n = graph ? calls(cx, root) : language_model(cx, root);
    assert_true(*n <= MOST_ROOTS);
    bool good = an_eval_at(AT, root, *n) == AN_OK;
    for (int i = 0; good && i < *n; i++) {
        bytes[i] = (size_t)root[i]->numel * an_dtype_size((an_dtype)root[i]->dtype);
        out[i] = calloc(1, bytes[i]);
        assert_non_null(out[i]);
        assert_int_equal(an_read_at(AT, root[i], out[i], bytes[i]), AN_OK);
    }
    return good;
}

/* Whether the kernels as they are now give the CPU's bits; else what was found. */
static bool agrees(int graph, char *found, size_t room)
{
    char *got[MOST_ROOTS] = {0};
    size_t bytes[MOST_ROOTS];
    int n;
    bool same = evaluate(shim, graph, got, bytes, &n);
    if (!same) snprintf(found, room, "%s", an_error(shim));
    for (int i = 0; same && i < n; i++)
        for (size_t k = 0; same && k < bytes[i]; k += 4) {
            const char *a = got[i] + k, *b = want[graph][i] + k;
            float x, y;
            memcpy(&x, a, 4), memcpy(&y, b, 4);
            same = !memcmp(a, b, 4) || (isnan(x) && isnan(y));
            if (!same)
                snprintf(found, room, "result %d, element %zu is %.9g, not %.9g", i, k / 4, (double)x, (double)y);
        }
    for (int i = 0; i < MOST_ROOTS; i++) free(got[i]);
    return same;
}

/* In each test: where there is no C++ compiler it is skipped, which a group's setup cannot say. */
static void open_both(void)
{
    size_t bytes[MOST_ROOTS];
    int n;
    if (shim) return;
    shim_need();
    memset(&numbers, 0, sizeof numbers);
    cpu = an_open(&(an_options){.device = "cpu", .seed = 3, .cc = "none"});
    shim = shim_context(&(an_options){.seed = 3, .verify = true}, MSL_300);
    for (int graph = 0; graph < 2; graph++)
        if (!evaluate(cpu, graph, want[graph], bytes, &n)) fail_msg("%s", an_error(cpu));
}

static void the_kernels_as_they_are_agree(void **state)
{
    open_both();
    (void)state;
    for (int graph = 0; graph < 2; graph++) {
        char found[512];
        if (!agrees(graph, found, sizeof found)) fail_msg("%s", found);
    }
}

static void every_mistake_is_found(void **state)
{
    open_both();
    (void)state;
    int missed = 0, tried = 0;
    const char *only = getenv("AN_MUTANT");
    for (int i = 0; i < (int)AN_COUNT(mutants); i++) {
        const mutant *m = &mutants[i];
        char found[512] = "";
        if (only ? atoi(only) != i : !getenv("AN_SOAK") && i % TURN) continue;
        shim->device->from = m->from, shim->device->to = m->to;
        shim->device->mistakes = 0;
        assert_int_equal(an_empty_cache(shim), AN_OK);
        bool same = agrees(m->graph, found, sizeof found);
        bool built = !strstr(found, "compile");
        if (same || !built || (!found[0] && !shim->device->mistakes)) {
            print_error("mutant %d: %s: %s\n", i,
                        !built                   ? "is no program"
                        : shim->device->mistakes ? "was not found"
                                                 : "changed nothing",
                        m->from);
            missed++;
        } else if (only) {
            print_message("# %s\n", found);
        }
        tried++;
    }
    print_message("# %d mistakes, %d missed\n", tried, missed);
    assert_int_equal(missed, 0);
}

static int close_both(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * MOST_ROOTS; i++) free(want[i / MOST_ROOTS][i % MOST_ROOTS]);
    lab_forget(&numbers);
    an_close(cpu);
    an_close(shim);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernels_as_they_are_agree),
        cmocka_unit_test(every_mistake_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, close_both);
}
