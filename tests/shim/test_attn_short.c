/* test_attn_short.c: kernels/gpu/attn_short.inc, CUDA, on the CPU shim (cuda_warp.h): against loops in double precision, with rotary positions and
 * without, causal and not, sequences that end within a tile; no race, nothing outside a buffer, and the same bits under another schedule. */
#include "attn_case.h"
#include "shim_build.h"

enum { D = AN_SHORT_COLUMNS, HALF = D / 2, METAL_3_1 = 310 };

typedef struct tables {
    float cosines[AN_SHORT_MOST * HALF], sines[AN_SHORT_MOST * D];
} tables;

static shim_object build(int T, int causal, int rotated, int forward)
{
    const int rows = (T + 15) / 16 * 16;
    const size_t room = 1u << 17;
    char *text = malloc(room);
    assert_non_null(text);
    size_t at =
        (size_t)snprintf(text, room,
                         "#define AN_DYNAMIC_BYTES %d\n#define AN_D %d\n#define AN_CAUSAL %d\n#define AN_DROPOUT 0\n"
                         "#define AN_VEC 8\n#define AN_COLS %d\n#define AN_THREADS %d\n#define AN_FORWARD %d\n"
                         "#define AN_SHORT 1\n#define AN_ROTATED %d\n#define AN_HOPPER 0\n",
                         AN_SHORT_SHARED(!forward, rows), D, causal, rows, AN_SHORT_THREADS(rows), forward, rotated);
    kernel_append(text, room, &at, "tests/shim/cuda_warp.h");
    kernel_append(text, room, &at, "src/kernels/gpu/attn_args.h");
    kernel_append(text, room, &at, "src/kernels/gpu/attn_bf16.inc");
    kernel_append(text, room, &at, "src/kernels/gpu/attn_short.inc");
    const shim_object o = shim_build(text, METAL_3_1);
    free(text);
    return o;
}

static tables angles(int T)
{
    tables x = {0};
    for (int t = 0; t < T; t++)
        for (int j = 0; j < HALF; j++) {
            const double angle = t * pow(10000, -j / (double)HALF);
            x.cosines[t * HALF + j] = (float)cos(angle);
            x.sines[t * D + j] = (float)-sin(angle);
            x.sines[t * D + HALF + j] = (float)sin(angle);
        }
    return x;
}

/* Every row of tensor t turned by its position, rounded where `keep_bits`; or turned back. */
static void turn(attn_case *c, int t, const tables *x, int back, int keep_bits)
{
    for (int b = 0; b < c->B; b++)
        for (int h = 0; h < c->H; h++)
            for (int i = 0; i < c->T; i++)
                for (int j = 0; j < HALF; j++) {
                    double *low = c->x[t] + case_at(c, t, b, h, i) + j, *high = low + HALF;
                    const float *s = x->sines + i * D + j;
                    const float cosine = x->cosines[i * HALF + j], s0 = s[back ? HALF : 0], s1 = s[back ? 0 : HALF];
                    const double l = keep_bits ? (double)((float)*low * cosine + (float)*high * s0)
                                               : *low * (double)cosine + *high * (double)s0;
                    const double u = keep_bits ? (double)((float)*high * cosine + (float)*low * s1)
                                               : *high * (double)cosine + *low * (double)s1;
                    *low = keep_bits ? case_value(case_bits((float)l, c->store), c->store) : l;
                    *high = keep_bits ? case_value(case_bits((float)u, c->store), c->store) : u;
                }
}

static uint16_t *packed(const attn_case *c, int t)
{
    uint16_t *x = aligned_alloc(64, (2 * case_elements(c, t) + 63) / 64 * 64);
    assert_non_null(x);
    case_pack(x, c->x[t], case_elements(c, t), KIND_BF16);
    return x;
}

static void check(int T, int causal, int rotated)
{
    attn_case c = {.B = 1, .H = 2, .T = T, .S = T, .D = D, .causal = causal, .n_keys = -1, .store = KIND_BF16};
    static tables table;
    uint16_t *x[CASE_TENSORS];
    table = angles(T);
    case_new(&c, 11);
    for (int t = 0; t < CASE_TENSORS; t++) x[t] = packed(&c, t); /* q and k before they are turned */
    for (int t = CASE_Q; rotated && t <= CASE_K; t++) turn(&c, t, &table, 0, 1);
    case_solve(&c);
    for (int t = CASE_DQ; rotated && t <= CASE_DK; t++) turn(&c, t, &table, 1, 0);
    const size_t rows = (size_t)(c.B * c.H * T), lse_bytes = rows * sizeof(float),
                 tensor = 2 * case_elements(&c, CASE_Q);
    float *lse = aligned_alloc(64, (lse_bytes + 63) / 64 * 64);
    assert_non_null(lse);
    for (int backward = 0; backward < 2; backward++) {
        const shim_object o = build(T, causal, rotated, !backward);
        const int args = backward ? 8 : 5, first = backward ? CASE_DQ : CASE_O, last = backward ? CASE_DV : CASE_O;
        shim_launch l = {.groups = {(unsigned)(c.B * c.H), 1, 1},
                         .threads = (unsigned)AN_SHORT_THREADS((T + 15) / 16 * 16)};
        const int order[2][8] = {{CASE_Q, CASE_K, CASE_V, CASE_O, -1},
                                 {CASE_Q, CASE_K, CASE_V, CASE_DO, -1, CASE_DQ, CASE_DK, CASE_DV}};
        for (int i = 0; i < args; i++)
            l.buffers[i] =
                order[backward][i] < 0 ? (shim_buffer){lse, lse_bytes} : (shim_buffer){x[order[backward][i]], tensor};
        l.buffers[args] = (shim_buffer){&c.args, sizeof c.args};
        if (rotated)
            l.buffers[args + 1] = (shim_buffer){table.cosines, (size_t)(T * HALF) * 4},
                             l.buffers[args + 2] = (shim_buffer){table.sines, (size_t)(T * D) * 4};
        uint16_t *before[CASE_TENSORS] = {0};
        for (l.seed = 1; l.seed <= 2; l.seed++) {
            for (int t = first; t <= last; t++) memset(x[t], 0xff, tensor); /* NaN */
            shim_launch_clean(o, backward ? "attn_backward" : "attn_forward", &l);
            for (int t = first; t <= last; t++) {
                const double error = case_error(&c, t, x[t]);
                if (!(error < 0.01))
                    fail_msg("T %d%s%s: tensor %d is wrong by %g", T, causal ? " causal" : "",
                             rotated ? " rotated" : "", t, error);
                if (before[t]) assert_memory_equal(before[t], x[t], tensor);
                free(before[t]);
                before[t] = l.seed == 1 ? malloc(tensor) : NULL;
                if (l.seed > 1) continue;
                assert_non_null(before[t]);
                memcpy(before[t], x[t], tensor);
            }
        }
        for (size_t i = 0; i < rows && !backward; i++) assert_true(fabs((double)lse[i] - c.lse[i]) < 1e-4);
        shim_unload(o);
    }
    for (int t = 0; t < CASE_TENSORS; t++) free(x[t]);
    free(lse);
    case_free(&c);
}

static void short_attention_is_that_of_loops_in_double(void **state)
{
    (void)state;
    check(97, 0, 0);
    check(65, 1, 0);
}

static void rotated_attention_turns_its_factors_and_turns_gradients_back(void **state)
{
    (void)state;
    check(97, 0, 1);
    check(112, 1, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_attention_is_that_of_loops_in_double),
        cmocka_unit_test(rotated_attention_turns_its_factors_and_turns_gradients_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
