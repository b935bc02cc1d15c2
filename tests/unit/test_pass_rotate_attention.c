/* test_pass_rotate_attention.c: rotary positions move into attention and its gradient, and nothing that only looks like them. That a GPU computes
 * the same bits: tests/cuda/test_gpu.c; that its kernels compile: tests/cuda/test_modules.c. The CPU's bits are compared here. */
#include "cuda/rotated_case.h"
#include "base/map.h"
#include "lib/test.h"

#include "runtime/context.h"

#include <stdlib.h>

static bool rotates(const an_target *t, const an_attn_spec *s)
{
    (void)t;
    return s->T <= 112;
}

typedef struct counts {
    int steps, attention, rotated;
    int64_t read[2], written[3]; /* offsets of q and k, of dq, dk and dv, from the first of each */
} counts;

static counts plan(rotated_how how, bool device_rotates, bool unfused)
{
    an_ctx *cx = an_open(&(an_options){.device = "null:cuda", .seed = 1, .unfused = unfused});
    assert_non_null(cx);
    if (device_rotates) ((an_target *)(uintptr_t)cx->backend->target(cx->device))->rotates = rotates;
    an_tensor *want[N_ROTATED];
    int64_t n[N_ROTATED];
    rotated_case(cx, how, want, n);
    if (an_plan(want[0], want[1], want[2]) != AN_OK) fail_msg("%s", an_error(cx));
    const an_plan *p = cx->last->plan;
    counts c = {.steps = p->n_steps};
    for (int s = 0; s < p->n_steps; s++) {
        const an_kernel *k = &p->kernel[p->step[s].kernel];
        const an_arg *arg = p->step[s].arg;
        if (k->kind != AN_KERNEL_ATTN && k->kind != AN_KERNEL_ATTN_GRAD) continue;
        const bool grad = k->kind == AN_KERNEL_ATTN_GRAD;
        c.attention++;
        c.rotated += k->rotated;
        for (int i = 0; i < 2; i++) c.read[i] = arg[i].offset - arg[0].offset;
        for (int i = 0; grad && i < 3; i++) c.written[i] = arg[7 + i].offset - arg[7].offset;
        if (!k->rotated) continue;
        const int tables = grad ? AN_ATTN_GRAD_TABLES : AN_ATTN_TABLES;
        const int64_t row = (how == V_APART ? 2 : 3) * ROTATED_H * ROTATED_D, *const q = k->u.attn.q;
        assert_int_equal(p->step[s].n_args, tables + 2);
        assert_int_equal(arg[tables].bytes, 4 * ROTATED_T * ROTATED_D / 2);
        assert_int_equal(arg[tables + 1].bytes, 4 * ROTATED_T * ROTATED_D);
        assert_true(how == V_APART || arg[0].value == arg[2].value); /* read where the product has stored them */
        assert_true(q[0] == ROTATED_T * row && q[1] == ROTATED_D && q[2] == row);
        assert_memory_equal(k->u.attn.k, q, sizeof k->u.attn.q);
        if (!grad) continue;
        assert_memory_equal(k->u.attn.dq, q, sizeof k->u.attn.q);
        assert_memory_equal(k->u.attn.dv, q, sizeof k->u.attn.q);
    }
    an_close(cx);
    return c;
}

static void rotary_positions_move_into_attention_and_its_gradient(void **state)
{
    (void)state;
    const int64_t part = 2 * ROTATED_H * ROTATED_D;
    const counts before = plan(ROTATED, false, false), after = plan(ROTATED, true, false);
    assert_int_equal(before.rotated, 0);
    assert_int_equal(before.attention, 2);
    assert_int_equal(after.attention, 2);
    assert_int_equal(after.rotated, 2);
    assert_int_equal(after.steps, before.steps - 2); /* one rotated q and k for both */
    assert_int_equal(after.read[1], part);
    assert_int_equal(after.written[1], part);
    assert_int_equal(after.written[2], 2 * part);
}

static void what_only_looks_like_them_stays(void **state)
{
    (void)state;
    for (rotated_how how = SEEN; how <= SCALED; how++) {
        const counts before = plan(how, false, false), after = plan(how, true, false);
        assert_int_equal(after.rotated, 0);
        assert_int_equal(after.steps, before.steps);
    }
    assert_int_equal(plan(ROTATED, true, true).rotated, 0);
}

/* The kernel reads v 16 bytes at a time. */
static void rows_that_do_not_lie_on_16_bytes_stay(void **state)
{
    (void)state;
    assert_int_equal(plan(V_APART, true, false).rotated, 1);
    assert_int_equal(plan(V_UNEVEN, true, false).rotated, 0);
}

/* Results as floats, to be freed; the steps of attention that rotate. */
static int run_on_cpu(const rotated_shape *s, const char *isa, int threads, bool unfused, float *out[N_ROTATED],
                      int64_t n[N_ROTATED])
{
    an_ctx *cx = an_open(&(an_options){.device = "cpu", .seed = 5, .threads = threads, .isa = isa, .unfused = unfused});
    assert_non_null(cx);
    an_tensor *want[N_ROTATED];
    rotated_graph(cx, ROTATED, s, want, n);
    if (an_eval(want[0], want[1], want[2]) != AN_OK) fail_msg("%s", an_error(cx));
    for (int i = 0; i < N_ROTATED; i++) {
        out[i] = malloc((size_t)n[i] * sizeof(float));
        assert_non_null(out[i]);
        assert_int_equal(an_read(want[i], out[i], (size_t)n[i] * sizeof(float)), AN_OK);
    }
    int rotated = 0;
    const an_plan *p = cx->last->plan;
    for (int i = 0; i < p->n_steps; i++) rotated += p->kernel[p->step[i].kernel].rotated;
    if (!unfused) {
        an_check_result checked;
        assert_int_equal(an_check_kernels(cx, NULL, NULL, &checked), AN_OK);
        assert_int_equal(checked.faults, 0);
    }
    an_close(cx);
    return rotated;
}

/* Heads of 4 to 66 columns (of 16 bytes: others stay), blocks of keys and queries that end anywhere, chunks of queries, with a causal mask and dropout or without. */
static void the_cpu_computes_the_bits_of_a_rotation_before_attention(void **state)
{
    (void)state;
    static const char *const isa[] = {NULL, "portable", NULL};
    for (uint32_t seed = 0; seed < 12; seed++) {
        const uint64_t x = an_hash_u64(seed, 0);
        rotated_shape s = {.B = 1 + (int64_t)(x % 3),
                           .H = 2 + (int64_t)(x >> 8 & 3),
                           .T = 1 + (int64_t)(x >> 16) % 140,
                           .D = 4 + 4 * ((int64_t)(x >> 32) % 16) + (seed % 6 == 5 ? 2 : 0),
                           .dtype = AN_F32,
                           .causal = x >> 40 & 1,
                           .dropout = x >> 41 & 1 ? 0.25 : 0};
        if (seed == 0) s.T = 300, s.D = 32; /* two chunks of queries */
        if (seed == 3) s.T = 97, s.D = 16;  /* a row is one vector of AVX-512 */
        while (s.T * s.D > ROTATED_TABLE) s.T /= 2;
        float *fused[N_ROTATED], *apart[N_ROTATED];
        int64_t n[N_ROTATED];
        const int rotated = run_on_cpu(&s, isa[seed % 3], 1 + (int)(seed & 1), false, fused, n);
        assert_int_equal(run_on_cpu(&s, NULL, 1, true, apart, n), 0);
        print_message("# B %d H %d T %d D %d%s%s: %d rotated\n", (int)s.B, (int)s.H, (int)s.T, (int)s.D,
                      s.causal ? ", causal" : "", s.dropout > 0 ? ", dropout" : "", rotated);
        assert_int_equal(rotated, s.D % 4 == 0 && s.T > 1 ? 2 : 0);
        for (int i = 0; i < N_ROTATED; i++) {
            assert_memory_equal(fused[i], apart[i], (size_t)n[i] * sizeof(float));
            free(fused[i]), free(apart[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotary_positions_move_into_attention_and_its_gradient),
        cmocka_unit_test(what_only_looks_like_them_stays),
        cmocka_unit_test(rows_that_do_not_lie_on_16_bytes_stay),
        cmocka_unit_test(the_cpu_computes_the_bits_of_a_rotation_before_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
