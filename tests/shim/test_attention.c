/* test_attention.c: the portable attention bodies, as MSL, on the CPU shim: against loops in double precision; in exact
 * mode bit for bit against the CPU kernels; under several schedules, which must not change a bit. */
#include "attn_case.h"
#include "kernels/cpu_kernels.h"
#include "shim_build.h"

enum { METAL_3_0 = 300, METAL_3_1 = 310 };

typedef struct run {
    shim_object forward, backward;
    attn_config config;
    int metal;
} run;

/* Storage of every tensor, and what the kernels pass on. */
typedef struct memory {
    void *x[CASE_TENSORS];
    float *lse, *delta;
    int32_t n_keys[1];
} memory;

static run build(attn_config c, int metal)
{
    run r = {.config = c, .metal = metal};
    char defines[1024], *text;
    attn_defines(defines, sizeof defines, &c, 0);
    text = kernel_text("msl", "attn_forward", defines);
    r.forward = shim_build(text, metal);
    free(text);
    attn_defines(defines, sizeof defines, &c, 1);
    text = kernel_text("msl", "attn_backward", defines);
    r.backward = shim_build(text, metal);
    free(text);
    return r;
}

static void unload(run r)
{
    shim_unload(r.forward);
    shim_unload(r.backward);
}

static size_t lse_bytes(const attn_case *c)
{
    return (size_t)c->B * (size_t)c->H * (size_t)c->T * (c->masked ? 2 : 1) * sizeof(float);
}
static size_t tensor_bytes(const attn_case *c, int t)
{
    return case_elements(c, t) * case_item(c->store);
}

static memory memory_new(const attn_case *c)
{
    memory m = {.n_keys = {c->n_keys}};
    for (int t = 0; t < CASE_TENSORS; t++) {
        m.x[t] = aligned_alloc(64, (tensor_bytes(c, t) + 63) / 64 * 64);
        assert_non_null(m.x[t]);
        memset(m.x[t], 0xff, tensor_bytes(c, t)); /* NaN */
        if (t < CASE_O || t == CASE_DO) case_pack(m.x[t], c->x[t], case_elements(c, t), c->store);
    }
    m.lse = malloc(lse_bytes(c)), m.delta = malloc(lse_bytes(c));
    assert_true(m.lse && m.delta);
    return m;
}

static void memory_free(memory *m)
{
    for (int t = 0; t < CASE_TENSORS; t++) free(m->x[t]);
    free(m->lse), free(m->delta);
}

static shim_buffer tensor(const attn_case *c, const memory *m, int t)
{
    return (shim_buffer){m->x[t], tensor_bytes(c, t)};
}
static shim_buffer mask(const attn_case *c)
{
    return (shim_buffer){c->mask, (size_t)c->B * (size_t)c->T * (size_t)c->S * sizeof(float)};
}
static unsigned blocks(int n, int block)
{
    return (unsigned)((n + block - 1) / block);
}

static void forward(const run *r, attn_case *c, memory *m, uint64_t seed)
{
    const unsigned threads = (unsigned)r->config.forward_threads;
    shim_launch l = {
        .groups = {blocks(c->T, (int)threads / 2), (unsigned)c->H, (unsigned)c->B}, .threads = threads, .seed = seed};
    const shim_buffer buffers[] = {tensor(c, m, CASE_Q),    tensor(c, m, CASE_K),          tensor(c, m, CASE_V),
                                   {c->rng, sizeof c->rng}, {m->n_keys, sizeof m->n_keys}, tensor(c, m, CASE_O),
                                   {m->lse, lse_bytes(c)},  {&c->args, sizeof c->args}};
    memcpy(l.buffers, buffers, sizeof buffers);
    if (c->mask) l.buffers[8] = mask(c);
    shim_launch_clean(r->forward, "attn_forward", &l);
}

static void backward(const run *r, attn_case *c, memory *m, uint64_t seed)
{
    const unsigned threads = (unsigned)r->config.backward_threads;
    const shim_buffer args = {&c->args, sizeof c->args}, rng = {c->rng, sizeof c->rng}, lse = {m->lse, lse_bytes(c)},
                      delta = {m->delta, lse_bytes(c)};
    const shim_buffer q = tensor(c, m, CASE_Q), k = tensor(c, m, CASE_K), v = tensor(c, m, CASE_V),
                      g = tensor(c, m, CASE_DO);
    shim_launch a = {.groups = {blocks(c->T, (int)threads / 16), (unsigned)c->H, (unsigned)c->B},
                     .threads = threads,
                     .seed = seed,
                     .buffers = {tensor(c, m, CASE_O), g, delta, args}};
    shim_launch_clean(r->backward, "attn_delta", &a);
    shim_launch b = {.groups = {blocks(c->T, (int)threads / 2), (unsigned)c->H, (unsigned)c->B},
                     .threads = threads,
                     .seed = seed,
                     .buffers = {q, k, v, g, lse, delta, rng, tensor(c, m, CASE_DQ), args}};
    if (c->mask) b.buffers[9] = mask(c);
    shim_launch_clean(r->backward, "attn_dq", &b);
    shim_launch d = {.groups = {blocks(c->S, (int)threads / 2), (unsigned)case_heads(c, CASE_DK), (unsigned)c->B},
                     .threads = threads,
                     .seed = seed,
                     .buffers = {q, k, v, g, lse, delta, rng, tensor(c, m, CASE_DK), tensor(c, m, CASE_DV), args}};
    if (c->mask) d.buffers[10] = mask(c);
    shim_launch_clean(r->backward, "attn_dkv", &d);
}

static void check_close(const attn_case *c, const memory *m, int first, int last, double tolerance)
{
    static const char *const names[] = {"q", "k", "v", "o", "do", "dq", "dk", "dv"};
    for (int t = first; t <= last; t++) {
        if (t == CASE_DO) continue;
        double e = case_error(c, t, m->x[t]);
        if (!(e <= tolerance)) fail_msg("%s is off by %g of its largest value (allowed %g)", names[t], e, tolerance);
    }
    size_t n = (size_t)c->B * (size_t)c->H * (size_t)c->T, T = (size_t)c->T;
    for (size_t i = 0; i < n; i++) {
        if (c->mask) {
            const float *most = m->lse + i / T * 2 * T + i % T;
            if (isinf(c->lse[i]))
                assert_true(most[0] == -3.4028234664e38f && most[T] == 0);
            else
                assert_true(fabs((double)most[0] + (double)most[T] - c->lse[i]) <=
                            tolerance * 4 * fmax(1, fabs(c->lse[i])));
        } else if (isinf(c->lse[i])) {
            assert_true(m->lse[i] == -INFINITY);
        } else {
            assert_true(fabs((double)m->lse[i] - c->lse[i]) <= tolerance * 4);
        }
    }
}

/* Forward and backward, twice under different schedules: near the answer, the same bits. */
static void check_case(const run *r, attn_case c, double tolerance)
{
    c.store = r->config.store;
    case_new(&c, 11);
    case_solve(&c);
    memory m = memory_new(&c), again = memory_new(&c);
    forward(r, &c, &m, 1), forward(r, &c, &again, 2);
    int last = CASE_O;
    if (c.n_keys < 0) backward(r, &c, &m, 3), backward(r, &c, &again, 4), last = CASE_DV;
    check_close(&c, &m, CASE_O, last, tolerance);
    for (int t = CASE_O; t <= last; t++) assert_memory_equal(m.x[t], again.x[t], tensor_bytes(&c, t));
    assert_memory_equal(m.lse, again.lse, lse_bytes(&c));
    memory_free(&m), memory_free(&again);
    case_free(&c);
}

static void exact_f32_with_dropout_odd_lengths_and_more_queries_than_keys(void **state)
{
    (void)state;
    run r = build((attn_config){.store = KIND_F32,
                                .mul = KIND_F32,
                                .exact = 1,
                                .vec = 8,
                                .D = 40,
                                .dc = 16,
                                .causal = 1,
                                .dropout = 1,
                                .forward_threads = 64,
                                .backward_threads = 32,
                                .cols = 32},
                  METAL_3_0);
    check_case(&r, (attn_case){.B = 1, .H = 2, .T = 67, .S = 67, .D = 40, .causal = 1, .n_keys = -1, .p = 0.2f}, 3e-6);
    check_case(&r, (attn_case){.B = 2, .H = 1, .T = 21, .S = 83, .D = 40, .causal = 1, .n_keys = -1, .p = 0.5f}, 3e-6);
    check_case(&r, (attn_case){.B = 1, .H = 1, .T = 45, .S = 13, .D = 40, .causal = 1, .n_keys = -1}, 3e-6);
    unload(r);
}

static void exact_f32_of_one_column_and_keys_in_use(void **state)
{
    (void)state;
    run r = build((attn_config){.store = KIND_F32,
                                .mul = KIND_F32,
                                .exact = 1,
                                .vec = 1,
                                .D = 7,
                                .dc = 16,
                                .causal = 0,
                                .dropout = 0,
                                .forward_threads = 32,
                                .backward_threads = 64,
                                .cols = 64},
                  METAL_3_0);
    check_case(&r, (attn_case){.B = 1, .H = 3, .T = 33, .S = 66, .D = 7, .n_keys = -1}, 3e-6);
    check_case(&r, (attn_case){.B = 1, .H = 2, .T = 3, .S = 140, .D = 7, .n_keys = 71}, 3e-6);
    check_case(&r, (attn_case){.B = 1, .H = 1, .T = 1, .S = 5, .D = 7, .n_keys = 0}, 3e-6);
    unload(r);
}

static void bf16_multiplication_as_bfloat_matrices(void **state)
{
    (void)state;
    run r = build((attn_config){.store = KIND_BF16,
                                .mul = KIND_BF16,
                                .vec = 8,
                                .D = 32,
                                .dc = 32,
                                .causal = 1,
                                .dropout = 1,
                                .forward_threads = 64,
                                .backward_threads = 64,
                                .cols = 32},
                  METAL_3_1);
    check_case(&r, (attn_case){.B = 1, .H = 2, .T = 70, .S = 70, .D = 32, .causal = 1, .n_keys = -1, .p = 0.1f}, 2e-2);
    unload(r);
}

static void bf16_multiplication_without_bfloat_in_the_language(void **state)
{
    (void)state;
    run r = build((attn_config){.store = KIND_BF16,
                                .mul = KIND_BF16,
                                .vec = 8,
                                .D = 32,
                                .dc = 32,
                                .causal = 1,
                                .dropout = 0,
                                .forward_threads = 64,
                                .backward_threads = 32,
                                .cols = 64},
                  METAL_3_0);
    check_case(&r, (attn_case){.B = 1, .H = 1, .T = 65, .S = 65, .D = 32, .causal = 1, .n_keys = -1}, 2e-2);
    unload(r);
}

static void f16_multiplication_of_f32_tensors(void **state)
{
    (void)state;
    run r = build((attn_config){.store = KIND_F32,
                                .mul = KIND_F16,
                                .vec = 1,
                                .D = 18,
                                .dc = 32,
                                .causal = 0,
                                .dropout = 0,
                                .forward_threads = 32,
                                .backward_threads = 32,
                                .cols = 32},
                  METAL_3_0);
    check_case(&r, (attn_case){.B = 1, .H = 1, .T = 35, .S = 47, .D = 18, .n_keys = -1}, 3e-3);
    unload(r);
}

static void run_on_cpu(const attn_case *c, memory *m)
{
    const struct an_attn_args *a = &c->args;
    an_attn_spec s = {.B = c->B,
                      .H = c->H,
                      .T = c->T,
                      .S = c->S,
                      .D = c->D,
                      .group = c->group,
                      .scale = a->scale,
                      .causal = (uint8_t)c->causal,
                      .dtype = AN_F32,
                      .mul_dtype = AN_F32,
                      .dropout = c->p,
                      .stream = a->stream,
                      .masked = c->mask != NULL,
                      .window = c->window,
                      .mask = {a->mask[0], a->mask[1], a->mask[2], a->mask[3]}};
    memcpy(s.q, a->q, sizeof s.q), memcpy(s.k, a->k, sizeof s.k), memcpy(s.v, a->v, sizeof s.v),
        memcpy(s.o, a->o, sizeof s.o);
    memcpy(s.do_, a->do_, sizeof s.do_), memcpy(s.dq, a->dq, sizeof s.dq), memcpy(s.dk, a->dk, sizeof s.dk),
        memcpy(s.dv, a->dv, sizeof s.dv);
    const an_cpu_kernels *cpu = an_cpu_kernels_find(NULL);
    an_pool *pool = NULL; /* the caller alone */
    size_t bytes = AN_MAX(cpu->attn_scratch(&s, false, 1), cpu->attn_scratch(&s, true, 1));
    void *scratch = aligned_alloc(64, (bytes + 63) / 64 * 64), *rng = (void *)(uintptr_t)c->rng;
    assert_non_null(scratch);
    cpu->attn_forward(
        &s, (void *const[]){m->x[CASE_Q], m->x[CASE_K], m->x[CASE_V], rng, m->x[CASE_O], m->lse, NULL, c->mask}, NULL,
        scratch, pool);
    cpu->attn_backward(&s,
                       (void *const[]){m->x[CASE_Q], m->x[CASE_K], m->x[CASE_V], m->x[CASE_O], m->lse, m->x[CASE_DO],
                                       rng, m->x[CASE_DQ], m->x[CASE_DK], m->x[CASE_DV], c->mask},
                       NULL, scratch, pool);
    free(scratch);
}

/* Of these shapes; the configuration follows from the case. */
static void expect_bits_of_the_cpu(attn_case c)
{
    static const char *const names[] = {"q", "k", "v", "o", "do", "dq", "dk", "dv"};
    run r = build((attn_config){.store = KIND_F32,
                                .mul = KIND_F32,
                                .exact = 1,
                                .vec = 8,
                                .D = c.D,
                                .dc = 16,
                                .causal = c.causal,
                                .dropout = c.p > 0,
                                .forward_threads = 64,
                                .backward_threads = 64,
                                .cols = 32,
                                .bias = c.masked,
                                .sliding = c.window > 0,
                                .group = c.group},
                  METAL_3_0);
    c.store = KIND_F32, c.n_keys = -1;
    case_new(&c, 5);
    memory gpu = memory_new(&c), cpu = memory_new(&c);
    forward(&r, &c, &gpu, 7), backward(&r, &c, &gpu, 8);
    run_on_cpu(&c, &cpu);
    for (int t = CASE_O; t < CASE_TENSORS; t++) {
        const float *x = gpu.x[t], *y = cpu.x[t];
        size_t different = 0;
        for (size_t i = 0; i < case_elements(&c, t); i++) different += memcmp(&x[i], &y[i], 4) != 0;
        if (different) fail_msg("%zu of %zu elements of %s have other bits", different, case_elements(&c, t), names[t]);
    }
    assert_memory_equal(gpu.lse, cpu.lse, lse_bytes(&c));
    memory_free(&gpu), memory_free(&cpu);
    case_free(&c);
    unload(r);
}

static void exact_mode_gives_the_bits_of_the_cpu_template(void **state)
{
    (void)state;
    expect_bits_of_the_cpu((attn_case){.B = 1, .H = 2, .T = 91, .S = 131, .D = 24, .causal = 1, .p = 0.2f});
}

/* Heads of 18, causal, with dropout, in the bits of the CPU. */
static run build_exact(bool masked, bool windowed)
{
    return build((attn_config){.store = KIND_F32,
                               .mul = KIND_F32,
                               .exact = 1,
                               .vec = 1,
                               .D = 18,
                               .dc = 16,
                               .causal = 1,
                               .dropout = 1,
                               .forward_threads = 64,
                               .backward_threads = 32,
                               .cols = 32,
                               .bias = masked,
                               .sliding = windowed},
                 METAL_3_0);
}

static void masks_are_added_to_the_scores_with_the_bits_of_the_cpu_template(void **state)
{
    (void)state;
    run r = build_exact(true, false);
    check_case(
        &r, (attn_case){.B = 2, .H = 2, .T = 67, .S = 70, .D = 18, .causal = 1, .n_keys = -1, .p = 0.2f, .masked = 1},
        3e-6);
    check_case(&r, (attn_case){.B = 1, .H = 1, .T = 3, .S = 140, .D = 18, .causal = 1, .n_keys = 71, .masked = 1},
               3e-6);
    unload(r);
    expect_bits_of_the_cpu((attn_case){.B = 2, .H = 2, .T = 91, .S = 131, .D = 24, .p = 0.2f, .masked = 1});
    expect_bits_of_the_cpu((attn_case){.B = 1, .H = 1, .T = 70, .S = 65, .D = 40, .causal = 1, .masked = 1});
}

static void windows_hide_keys_with_the_bits_of_the_cpu_template(void **state)
{
    (void)state;
    run r = build_exact(false, true);
    check_case(
        &r,
        (attn_case){.B = 1, .H = 2, .T = 167, .S = 170, .D = 18, .causal = 1, .n_keys = -1, .p = 0.2f, .window = 40},
        3e-6);
    check_case(&r, (attn_case){.B = 1, .H = 1, .T = 3, .S = 140, .D = 18, .causal = 1, .n_keys = 131, .window = 65},
               3e-6);
    check_case(&r, (attn_case){.B = 1, .H = 1, .T = 99, .S = 40, .D = 18, .causal = 1, .n_keys = -1, .window = 2},
               3e-6);
    unload(r);
    expect_bits_of_the_cpu(
        (attn_case){.B = 2, .H = 1, .T = 171, .S = 171, .D = 24, .causal = 1, .p = 0.2f, .window = 50});
    expect_bits_of_the_cpu(
        (attn_case){.B = 1, .H = 1, .T = 90, .S = 165, .D = 40, .causal = 1, .window = 33, .masked = 1});
}

static void grouped_heads_share_keys_with_the_bits_of_the_cpu_template(void **state)
{
    (void)state;
    expect_bits_of_the_cpu((attn_case){.B = 2, .H = 4, .T = 70, .S = 91, .D = 24, .causal = 1, .p = 0.2f, .group = 2});
    expect_bits_of_the_cpu((attn_case){.B = 1, .H = 3, .T = 67, .S = 65, .D = 40, .masked = 1, .group = 3});
    expect_bits_of_the_cpu((attn_case){
        .B = 1, .H = 4, .T = 90, .S = 90, .D = 16, .causal = 1, .p = 0.1f, .window = 33, .masked = 1, .group = 4});
    run r = build((attn_config){.store = KIND_BF16,
                                .mul = KIND_BF16,
                                .vec = 8,
                                .D = 32,
                                .dc = 32,
                                .causal = 1,
                                .forward_threads = 64,
                                .backward_threads = 32,
                                .cols = 32,
                                .group = 3},
                  METAL_3_1);
    check_case(&r, (attn_case){.B = 2, .H = 6, .T = 65, .S = 70, .D = 32, .causal = 1, .n_keys = -1, .group = 3}, 2e-2);
    check_case(&r, (attn_case){.B = 1, .H = 3, .T = 1, .S = 140, .D = 32, .causal = 1, .n_keys = 71, .group = 3}, 2e-2);
    unload(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_f32_with_dropout_odd_lengths_and_more_queries_than_keys),
        cmocka_unit_test(exact_f32_of_one_column_and_keys_in_use),
        cmocka_unit_test(bf16_multiplication_as_bfloat_matrices),
        cmocka_unit_test(bf16_multiplication_without_bfloat_in_the_language),
        cmocka_unit_test(f16_multiplication_of_f32_tensors),
        cmocka_unit_test(exact_mode_gives_the_bits_of_the_cpu_template),
        cmocka_unit_test(masks_are_added_to_the_scores_with_the_bits_of_the_cpu_template),
        cmocka_unit_test(windows_hide_keys_with_the_bits_of_the_cpu_template),
        cmocka_unit_test(grouped_heads_share_keys_with_the_bits_of_the_cpu_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
