/* test_attn_tf32.c: kernels/gpu/attn_tf32_hopper.inc, CUDA, on the CPU shim (cuda_warp.h): against loops in double precision, heads of several sizes,
 * causal and not, fewer queries than keys; both operands of every product are rounded, no race, nothing outside a buffer, and the same bits
 * under another schedule. */
#include "attn_case.h"
#include "shim_build.h"

enum { METAL_3_1 = 310, THREADS = 128, HELD = 64, DELTA = -2, LSE = -1, NONE = -3 };

static shim_object build(int D, int causal, int forward)
{
    const size_t room = 1u << 17;
    char *text = malloc(room);
    assert_non_null(text);
    size_t at = (size_t)snprintf(text, room,
                                 "#define AN_DYNAMIC_BYTES %d\n#define AN_D %d\n#define AN_CAUSAL %d\n"
                                 "#define AN_DROPOUT 0\n#define AN_VEC 8\n#define AN_COLS 32\n#define AN_THREADS %d\n"
                                 "#define AN_FORWARD %d\n#define AN_WHOLE 1\n#define AN_HOPPER 1\n",
                                 AN_TF32_HOPPER_SHARED(!forward, D), D, causal, THREADS, forward);
    kernel_append(text, room, &at, "tests/shim/cuda_warp.h");
    kernel_append(text, room, &at, "src/kernels/gpu/attn_args.h");
    kernel_append(text, room, &at, "src/kernels/gpu/attn_tf32.inc");
    kernel_append(text, room, &at, "src/kernels/gpu/attn_tf32_hopper.inc");
    const shim_object o = shim_build(text, METAL_3_1);
    free(text);
    return o;
}

static void *aligned_new(size_t bytes)
{
    void *x = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(x);
    return x;
}

static void check(int D, int T, int S, int causal)
{
    static const struct {
        const char *entry;
        int n, arg[10], results[4];
    } passes[] = {
        {"attn_forward", 7, {CASE_Q, CASE_K, CASE_V, NONE, NONE, CASE_O, LSE}, {CASE_O, -1}},
        {"attn_delta", 3, {CASE_O, CASE_DO, DELTA}, {-1}},
        {"attn_dqkv",
         10,
         {CASE_Q, CASE_K, CASE_V, CASE_DO, LSE, DELTA, NONE, CASE_DQ, CASE_DK, CASE_DV},
         {CASE_DQ, CASE_DK, CASE_DV, -1}},
    };
    attn_case c = {.B = 1, .H = 2, .T = T, .S = S, .D = D, .causal = causal, .n_keys = -1, .store = KIND_F32};
    float *x[CASE_TENSORS];
    case_new(&c, 11);
    case_solve(&c);
    for (int t = 0; t < CASE_TENSORS; t++) {
        x[t] = aligned_new(4 * case_elements(&c, t));
        case_pack(x[t], c.x[t], case_elements(&c, t), KIND_F32);
    }
    const size_t rows = (size_t)(c.B * c.H * T), rows_bytes = rows * sizeof(float);
    float *lse = aligned_new(rows_bytes), *delta = aligned_new(rows_bytes);
    const shim_object objects[2] = {build(D, causal, 1), build(D, causal, 0)};
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        const unsigned blocks[] = {(unsigned)(T + HELD - 1) / HELD, (unsigned)(T + THREADS / 8 - 1) / (THREADS / 8), 1};
        shim_launch l = {.groups = {blocks[i], (unsigned)c.H, (unsigned)c.B},
                         .threads = i == 2 ? AN_TF32_HOPPER_BACK_THREADS : THREADS};
        for (int a = 0; a < passes[i].n; a++) {
            const int t = passes[i].arg[a];
            l.buffers[a] = t == LSE || t == NONE ? (shim_buffer){lse, rows_bytes}
                           : t == DELTA          ? (shim_buffer){delta, rows_bytes}
                                                 : (shim_buffer){x[t], 4 * case_elements(&c, t)};
        }
        l.buffers[passes[i].n] = (shim_buffer){&c.args, sizeof c.args};
        float *before[CASE_TENSORS] = {0};
        for (l.seed = 1; l.seed <= 2; l.seed++) {
            for (int r = 0; passes[i].results[r] >= 0; r++)
                memset(x[passes[i].results[r]], 0xff, 4 * case_elements(&c, passes[i].results[r])); /* NaN */
            shim_launch_clean(objects[i > 0], passes[i].entry, &l);
            for (int r = 0; passes[i].results[r] >= 0; r++) {
                const int t = passes[i].results[r];
                const size_t bytes = 4 * case_elements(&c, t);
                const double error = case_error(&c, t, x[t]);
                if (!(error < 2e-3))
                    fail_msg("D %d T %d S %d%s: tensor %d is wrong by %g", D, T, S, causal ? " causal" : "", t, error);
                if (before[t]) assert_memory_equal(before[t], x[t], bytes);
                free(before[t]);
                before[t] = l.seed == 1 ? aligned_new(bytes) : NULL;
                if (l.seed == 1) memcpy(before[t], x[t], bytes);
            }
        }
        for (size_t r = 0; r < rows && !i; r++) assert_true(fabs((double)lse[r] - c.lse[r]) < 1e-3);
    }
    for (int i = 0; i < 2; i++) shim_unload(objects[i]);
    for (int t = 0; t < CASE_TENSORS; t++) free(x[t]);
    free(lse), free(delta);
    case_free(&c);
}

static void attention_by_wgmma_in_tf32_is_that_of_loops_in_double(void **state)
{
    (void)state;
    check(64, 97, 97, 1);
    check(64, 130, 200, 1);
    check(64, 65, 70, 0);
}

static void heads_that_do_not_fill_a_tile_are_right_too(void **state)
{
    (void)state;
    check(40, 64, 101, 1);
    check(32, 128, 128, 1);
    check(8, 33, 33, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_by_wgmma_in_tf32_is_that_of_loops_in_double),
        cmocka_unit_test(heads_that_do_not_fill_a_tile_are_right_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
