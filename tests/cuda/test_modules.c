/* test_modules.c: the CUDA text of every kernel of training steps (a classifier, a convolution net, a GPT block, a GPT at
 * GPT-2's width, in f32, tf32 and bf16, exact and fast) is taken by NVRTC without a warning. An ordinary run takes
 * every fourth text, in turn for sm_80, sm_90 and sm_100; AN_SOAK=1 takes each for all three. Skipped by name, with the
 * reason, where NVRTC is not. */
#include "golden/programs.h"

#include "proof/train_case.h"

#include "runtime/context.h"
#include "base/map.h"
#include "codegen/gpu_step.h"
#include "codegen/render.h"
#include "codegen/cuda_modules.h"
#include "codegen/used_functions.h"
#include "cuda/rotated_case.h"
#include "shim/nvrtc.h"

static nvrtc compiler;
static int compiled, seen_units, hopper_units, n_fused;
static an_map seen;

/* The text as nvrtc.c hands it on, without unused functions and with --minimal, is the same machine code as all of it. */
static void check_used(const char *text, const char *what, const char *arch, bool fmad)
{
    char target[64], *log[2] = {NULL, NULL}, *cubin[2];
    size_t bytes[2] = {0, 0};
    an_text used = {0};
    snprintf(target, sizeof target, "--gpu-architecture=%s", arch);
    const char *const options[] = {target, "--std=c++17", fmad ? "--fmad=true" : "--fmad=false", "--ftz=true",
                                   "--minimal"};
    int major = 0, minor = 0;
    compiler.version(&major, &minor);
    assert_true(an_used_functions(text, &used));
    assert_true(used.len < strlen(text));
    cubin[0] = nvrtc_run(&compiler, text, "anneal.cu", options, 4, &bytes[0], &log[0]);
    cubin[1] =
        nvrtc_run(&compiler, used.data, "anneal.cu", options, major > 12 || minor >= 8 ? 5 : 4, &bytes[1], &log[1]);
    if (!cubin[0] || !cubin[1]) fail_msg("%s for %s: %s", what, arch, log[1] ? log[1] : "no log");
    if (bytes[0] != bytes[1] || memcmp(cubin[0], cubin[1], bytes[0]))
        fail_msg("%s for %s: other code without unused functions", what, arch);
    for (int i = 0; i < 2; i++) free(cubin[i]), free(log[i]);
    an_text_free(&used);
}

static void take(const an_text *text, const char *what, bool fmad)
{
    static const int archs[] = {80, 90, 100};
    char arch[16];
    uint64_t known;
    assert_false(text->failed);
    uint64_t key = an_hash(text->data, text->len, fmad);
    if (an_map_get(&seen, key, &known)) return;
    assert_true(an_map_set(&seen, key, 1));
    int number = seen_units++, turn = number / 4 % (int)AN_COUNT(archs);
    if (!getenv("AN_SOAK") && number % 4) return;
    for (int a = 0; a < (int)AN_COUNT(archs); a++) {
        if (!getenv("AN_SOAK") && a != turn) continue;
        char *log = NULL, *cubin = nvrtc_cubin(&compiler, text->data, what, archs[a], fmad, &log);
        if (!cubin || (log && strstr(log, "warning")))
            fail_msg("%s for sm_%d: %s", what, archs[a], log ? log : "no log");
        free(cubin);
        free(log);
        snprintf(arch, sizeof arch, "sm_%d", archs[a]);
        check_used(text->data, what, arch, fmad);
        compiled++;
    }
}

/* A step of attention as an H200 runs it, where that is otherwise: one line of groups that fit it, and a text of its
 * own. */
static void take_for_hopper(const an_plan *p, const an_plan_step *st, bool tf32)
{
    const an_gpu gpu = {.dialect = &an_dialects[AN_DIALECT_CUDA],
                        .fast = true,
                        .tf32 = tf32,
                        .arch_specific = 90,
                        .multiprocessors = 132};
    an_gpu_step g;
    an_tiles t;
    an_text text = {0};
    char *log = NULL;
    uint64_t known;
    assert_null(an_gpu_step_make(p, st, &gpu, &g));
    an_module_tiles(p, st, &gpu, &t);
    if (t.body != AN_BODY_HOPPER && t.body != AN_BODY_TF32_HOPPER) return;
    an_render_module(p, st, &gpu, "row", &text);
    assert_false(text.failed);
    for (int l = 0; t.body == AN_BODY_HOPPER && l < g.n_launches; l++) {
        const an_gpu_launch *launch = &g.launch[l];
        if (!strcmp(launch->entry, "attn_delta") || !strcmp(launch->entry, "attn_pack") ||
            !strcmp(launch->entry, "attn_mask"))
            continue;
        assert_in_range(launch->blocks[0], 1, 132);
        assert_int_equal(launch->blocks[1] * launch->blocks[2], 1);
        assert_in_range(launch->shared_bytes, 1, 227 << 10);
    }
    uint64_t key = an_hash(text.data, text.len, 1);
    if (!an_map_get(&seen, key, &known)) {
        assert_true(an_map_set(&seen, key, 1));
        char *cubin = nvrtc_cubin_for(&compiler, text.data, "attention", "sm_90a", 1, &log);
        if (!cubin || !log || strstr(log, "warning")) fail_msg("attention for sm_90a: %s", log ? log : "no log");
        free(cubin), free(log);
        check_used(text.data, "attention", "sm_90a", true);
        compiled++, hopper_units++;
    }
    an_text_free(&text);
}

/* Compiles a GEMM with its epilogue fused (gemm_hopper.inc): the first two, or with AN_SOAK=1 all. */
static void compile_fused(const an_plan *p, const an_plan_step *st)
{
    enum { ORDINARY = 2 };
    const an_gemm_spec *g = &p->kernel[st->kernel].u.gemm;
    an_text text = {0};
    char *log = NULL;
    uint64_t known;
    if (g->mul_dtype != AN_BF16 || !an_render_gpu_can_fuse_epilogue(p->kernel[st->epilogue].u.loop)) return;
    an_render_gemm_module(p, st, g->b_k == 1, true, &text);
    assert_false(text.failed);
    uint64_t key = an_hash(text.data, text.len, 1);
    if (!an_map_get(&seen, key, &known)) {
        assert_true(an_map_set(&seen, key, 1));
        if (n_fused++ < ORDINARY || getenv("AN_SOAK")) {
            char *cubin = nvrtc_cubin_for(&compiler, text.data, "a GEMM", "sm_90a", 0, &log);
            if (!cubin || !log || strstr(log, "warning")) fail_msg("a fused epilogue: %s", log ? log : "no log");
            free(cubin), free(log);
            check_used(text.data, "a GEMM", "sm_90a", false);
            compiled++;
        }
    }
    an_text_free(&text);
}

static void take_plan(const an_plan *p, bool fast, bool tf32)
{
    const an_gpu gpu = {.dialect = &an_dialects[AN_DIALECT_CUDA], .fast = fast, .tf32 = tf32};
    for (int s = 0; s < p->n_steps; s++) {
        const an_plan_step *st = &p->step[s];
        const an_kernel *k = &p->kernel[st->kernel];
        an_gpu_step g;
        an_tiles t;
        an_text text = {0};
        if (k->kind == AN_KERNEL_ZERO || k->kind == AN_KERNEL_COPY) continue;
        const char *why = an_gpu_step_make(p, st, &gpu, &g);
        if (why) fail_msg("%s: %s", k->name, why);
        an_module_tiles(p, st, &gpu, &t);
        an_render_module(p, st, &gpu, "row", &text);
        take(&text, k->name, fast && (t.module == AN_MODULE_ATTN || t.module == AN_MODULE_ATTN_GRAD));
        an_text_free(&text);
        if (fast && (t.module == AN_MODULE_ATTN || t.module == AN_MODULE_ATTN_GRAD)) take_for_hopper(p, st, tf32);
        if (k->kind != AN_KERNEL_GEMM || st->epilogue < 0 || !fast) continue;
        an_render_epilogue_module(p, st, "tail", AN_BF16, &text);
        take(&text, "tail", false);
        an_text_free(&text);
        compile_fused(p, st);
    }
}

static void what_begins_between_16_bytes_is_not_called_aligned(void **state)
{
    (void)state;
    an_arg arg[2] = {{.offset = 256, .bytes = 64}, {.slot = 1, .offset = 32, .bytes = 64}};
    an_plan_step s = {.n_args = 2, .arg = arg, .scratch = -1};
    assert_true(an_step_aligned(&s));
    arg[1].offset = 40;
    assert_false(an_step_aligned(&s));
    arg[1].bytes = 4; /* a number, and what is absent, have no neighbours */
    assert_true(an_step_aligned(&s));
    arg[1] = (an_arg){.slot = -1, .offset = 8, .bytes = 64};
    assert_true(an_step_aligned(&s));
    s.scratch = 8, s.scratch_bytes = 64;
    assert_false(an_step_aligned(&s));
}

static int open_compiler(void **state)
{
    (void)state;
    char why[512];
    compiler.library = NULL;
    if (nvrtc_open(&compiler, why, sizeof why)) {
        print_message("CUDA texts are NOT compiled here: %s\n", why);
        compiler.library = NULL;
    }
    return 0;
}

/* Texts of attention that no preset has: a mask over all pairs, and of padding, a window, heads that share keys, and in tf32 heads that fill a tile and do not. */
static void attention_with_masks_and_windows_and_in_tf32_compiles_for_hopper(void **state)
{
    (void)state;
    enum { B = 67, H = 2, T = 70 };
    static const struct {
        an_dtype dtype;
        int D, queries, window; /* queries of the mask, 0: none */
        double dropout;
        bool grouped;
    } cases[] = {{AN_BF16, 64, 0, 0, 0.1, true},   {AN_BF16, 72, 1, 0, 0, true},     {AN_BF16, 64, T, 0, 0, false},
                 {AN_BF16, 128, 1, 0, 0.1, false}, {AN_BF16, 64, 0, 20, 0.1, false}, {AN_BF16, 136, T, 20, 0, false},
                 {AN_BF16, 256, 0, 20, 0, false},  {AN_F32, 64, 0, 0, 0.1, false},   {AN_F32, 24, 0, 0, 0, false}};
    static float mask[B * T * T];
    if (!compiler.library) test_skip(NVRTC_ABSENT);
    const int before = hopper_units;
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        an_ctx *cx = an_open(&(an_options){.device = "null:cuda", .seed = 1});
        assert_non_null(cx);
        an_tensor *x = an_param(cx, "x", AN_F32, AN_SHAPE(B, H, T, cases[i].D), AN_NORMAL(1)),
                  *y = an_param(cx, "y", AN_F32, AN_SHAPE(B, cases[i].grouped ? 1 : H, T, cases[i].D), AN_NORMAL(1)),
                  *q = an_cast(x, cases[i].dtype), *k = an_cast(y, cases[i].dtype);
        const an_attention_options o = {
            .causal = cases[i].window || cases[i].dtype == AN_F32,
            .window = cases[i].window,
            .dropout = cases[i].dropout,
            .mask =
                cases[i].queries ? an_detach(an_input(cx, AN_F32, AN_SHAPE(B, 1, cases[i].queries, T), mask)) : NULL};
        an_backward(an_sum(an_cast(an_attention_with(q, k, k, o), AN_F32), AN_ALL));
        if (an_plan(an_grad(x), an_grad(y)) != AN_OK) fail_msg("%s", an_error(cx));
        const an_plan *p = cx->last->plan;
        for (int s = 0; s < p->n_steps; s++) {
            const an_kernel_kind kind = p->kernel[p->step[s].kernel].kind;
            if (kind == AN_KERNEL_ATTN || kind == AN_KERNEL_ATTN_GRAD)
                take_for_hopper(p, &p->step[s], cases[i].dtype == AN_F32);
        }
        an_close(cx);
    }
    assert_int_equal(hopper_units - before,
                     2 * (int)AN_COUNT(cases)); /* each a text of its own, forward and backward */
}

static void kernels_of_small_steps_compile(void **state)
{
    (void)state;
    if (!compiler.library) test_skip(NVRTC_ABSENT);
    for (size_t i = 0; i < 2 * AN_COUNT(programs); i++) {
        an_ctx *cx = an_open(&(an_options){.device = "null:cuda", .seed = 1});
        assert_non_null(cx);
        an_set_policy(cx, (an_policy){.matmul = i % 2 ? AN_BF16 : AN_F32});
        program p = program_build(cx, i / 2);
        if (an_plan(p.loss, p.norm) != AN_OK) fail_msg("%s: %s", p.name, an_error(cx));
        take_plan(cx->last->plan, i % 2 != 0, false);
        an_gpt_close(p.gpt);
        an_close(cx);
    }
    print_message("# %d texts, %d compiled\n", seen_units, compiled);
    assert_true(seen_units > 100);
}

/* Large enough for wide accesses, long rows and attention in registers. */
static void kernels_of_a_step_at_the_width_of_gpt2_compile(void **state)
{
    (void)state;
    if (!compiler.library) test_skip(NVRTC_ABSENT);
    for (int half = 0; half < 2; half++) {
        const train_case c = {.B = 4,
                              .T = 1024,
                              .C = 768,
                              .L = 1,
                              .H = 12,
                              .V = 50304,
                              .matmul = half ? AN_BF16 : AN_F32,
                              .dropout = 0.1};
        an_err err = {0};
        an_ctx *cx;
        an_gpt *m;
        if (case_open(&err, &c, &(an_options){.device = "null:cuda", .seed = 1}, &cx, &m) != AN_OK)
            fail_msg("%s", err.text);
        an_tensor *loss = case_build(cx, m, &c, 0, 0);
        if (an_plan(loss) != AN_OK) fail_msg("%s", an_error(cx));
        take_plan(cx->last->plan, true, false);
        if (!half) take_plan(cx->last->plan, true, true);
        case_close(cx, m);
    }
    print_message("# %d texts, %d compiled\n", seen_units, compiled);
}

/* A cross entropy and its gradient over `cols` labels: the launch and the text of its one loop kernel. */
static void take_long_row(int cols, an_dtype dtype, uint32_t shared_bytes)
{
    static const int archs[] = {80, 90, 100};
    enum { ROWS = 64 };
    static const int32_t labels[ROWS];
    const an_gpu gpu = {.dialect = &an_dialects[AN_DIALECT_CUDA], .fast = true};
    int rows = 0;
    an_ctx *cx = an_open(&(an_options){.device = "null:cuda", .seed = 1});
    assert_non_null(cx);
    an_set_policy(cx, (an_policy){.matmul = dtype});
    an_tensor *x = an_param(cx, "x", AN_F32, AN_SHAPE(ROWS, 64), AN_ZEROS),
              *w = an_param(cx, "w", AN_F32, AN_SHAPE(cols, 64), AN_ZEROS);
    an_tensor *loss = an_mean(an_linear_cross_entropy(x, w, an_input(cx, AN_I32, AN_SHAPE(ROWS), labels)), AN_ALL);
    an_backward(loss);
    if (an_plan(loss, an_grad(x), an_grad(w)) != AN_OK) fail_msg("%s", an_error(cx));
    const an_plan *p = cx->last->plan;
    for (int s = 0; s < p->n_steps; s++) {
        const an_kernel *k = &p->kernel[p->step[s].kernel];
        an_gpu_step g;
        an_text text = {0};
        if (k->kind != AN_KERNEL_LOOP || k->u.loop->cols != cols) continue;
        assert_null(an_gpu_step_make(p, &p->step[s], &gpu, &g));
        an_render_module(p, &p->step[s], &gpu, "row", &text);
        assert_false(text.failed);
        const char *body = strstr(text.data, "AN_LOOP_IN(0");
        assert_non_null(body);
        assert_int_equal(g.launch[0].shared_bytes, shared_bytes);
        assert_int_equal(g.launch[0].blocks[0], ROWS);
        assert_int_equal(strstr(body, "an_shared_row_fetch") != NULL, shared_bytes > 0);
        assert_int_equal(strstr(body, "an_exp_16bit") != NULL, dtype == AN_BF16);
        for (size_t a = 0; a < AN_COUNT(archs); a++) {
            char *log = NULL, *cubin = nvrtc_cubin(&compiler, text.data, k->name, archs[a], 0, &log);
            if (!cubin || !log || strstr(log, "warning") || !strstr(log, " 0 bytes spill stores"))
                fail_msg("%d columns for sm_%d: %s", cols, archs[a], log ? log : "no log");
            free(cubin), free(log);
        }
        an_text_free(&text);
        rows++;
    }
    assert_int_equal(rows, 1);
    an_close(cx);
}

static void a_long_row_is_kept_in_shared_memory_where_it_fits_and_nothing_is_spilled(void **state)
{
    (void)state;
    if (!compiler.library) test_skip(NVRTC_ABSENT);
    take_long_row(50304, AN_BF16, 2 * 50304);
    take_long_row(24576, AN_F32, 4 * 24576);
    take_long_row(8196, AN_BF16, 0); /* columns by four: not 16 bytes of bf16 */
    take_long_row(50304, AN_F32, 0);
}

/* Sums down many columns, four columns a thread, of f32 and bf16: of whole turns of lanes, and with elements left over. */
static void sums_of_many_columns_compile_four_columns_a_thread(void **state)
{
    static const int archs[] = {80, 90, 100};
    const an_gpu gpu = {.dialect = &an_dialects[AN_DIALECT_CUDA], .fast = true};
    enum { COLUMNS = 1 << 18 };
    (void)state;
    if (!compiler.library) test_skip(NVRTC_ABSENT);
    for (int i = 0; i < 6; i++) {
        const int rows = i < 2 ? 16 : i < 4 ? 21 : 5; /* 8 lanes */
        int sums = 0;
        an_ctx *cx = an_open(&(an_options){.device = "null:cuda", .seed = 1});
        assert_non_null(cx);
        an_tensor *x = an_param(cx, "x", i % 2 ? AN_F32 : AN_BF16, AN_SHAPE(rows, COLUMNS), AN_ZEROS),
                  *y = an_param(cx, "y", AN_F32, AN_SHAPE(COLUMNS), AN_ZEROS);
        if (an_plan(an_add(an_sum(an_square(an_cast(x, AN_F32)), AN_AXIS(0)), y)) != AN_OK)
            fail_msg("%s", an_error(cx));
        const an_plan *p = cx->last->plan;
        for (int s = 0; s < p->n_steps; s++) {
            const an_kernel *k = &p->kernel[p->step[s].kernel];
            an_text text = {0};
            if (k->kind != AN_KERNEL_LOOP || k->u.loop->shape != AN_COL) continue;
            assert_true(an_render_gpu_launch(k->u.loop, &gpu).vector);
            assert_int_equal(an_render_gpu_launch(k->u.loop, &gpu).blocks, COLUMNS / 4 / 64);
            an_render_module(p, &p->step[s], &gpu, "row", &text);
            assert_false(text.failed);
            assert_non_null(strstr(text.data, "/* 4 columns a thread */"));
            for (size_t a = 0; a < AN_COUNT(archs); a++) {
                char *log = NULL, *cubin = nvrtc_cubin(&compiler, text.data, k->name, archs[a], 0, &log);
                if (!cubin || !log || strstr(log, "warning") || !strstr(log, " 0 bytes spill stores"))
                    fail_msg("%d rows for sm_%d: %s", rows, archs[a], log ? log : "no log");
                free(cubin), free(log);
            }
            an_text_free(&text);
            sums++;
        }
        assert_int_equal(sums, 1);
        an_close(cx);
    }
}

/* Channels that are read by eight, in both roles of the operand and with both sizes of its tile; dilated taps; odd channels. */
static void kernels_of_convolutions_compile(void **state)
{
    static const int cases[][6] = {/* c, o, kernel, stride, groups, side */
                                   {64, 64, 3, 1, 1, 16},
                                   {64, 136, 3, 2, 1, 15},
                                   {128, 192, 3, 1, 2, 9},
                                   {3, 24, 7, 2, 1, 20}};
    (void)state;
    if (!compiler.library) test_skip(NVRTC_ABSENT);
    for (size_t i = 0; i < 2 * AN_COUNT(cases); i++) {
        const int *v = cases[i / 2];
        const an_dtype t = i % 2 ? AN_F32 : AN_BF16;
        an_ctx *cx = an_open(&(an_options){.device = "null:cuda", .seed = 1});
        assert_non_null(cx);
        an_tensor *x = an_param(cx, "x", t, AN_SHAPE(8, v[5], v[5], v[0]), AN_ZEROS);
        an_tensor *w = an_param(cx, "w", t, AN_SHAPE(v[1], v[2], v[2], v[0] / v[4]), AN_ZEROS);
        an_tensor *y = an_relu(an_conv2d(x, w, NULL, (an_window){.stride_h = v[3], .stride_w = v[3], .groups = v[4]}));
        an_backward(an_sum(an_square(y), AN_ALL));
        if (an_plan(an_grad(x), an_grad(w)) != AN_OK) fail_msg("%s", an_error(cx));
        take_plan(cx->last->plan, true, false);
        if (i % 2) take_plan(cx->last->plan, true, true);
        an_close(cx);
    }
}

/* Factors that were float16 lose nothing in tf32; what was float32 would, and is multiplied so only where it is asked.
 */
static void attention_of_float16_takes_tensor_cores_and_that_of_float32_does_not(void **state)
{
    (void)state;
    const an_gpu fast = {.dialect = &an_dialects[AN_DIALECT_CUDA], .fast = true, .multiprocessors = 132},
                 exact = {.dialect = &an_dialects[AN_DIALECT_CUDA], .multiprocessors = 132},
                 apple = {.dialect = &an_dialects[AN_DIALECT_MSL], .fast = true, .version = 310};
    for (int half = 0; half < 2; half++) {
        int n = 0;
        an_ctx *cx = an_open(&(an_options){.device = "null:cuda", .seed = 1});
        assert_non_null(cx);
        an_tensor *x = an_param(cx, "x", AN_F32, AN_SHAPE(2, 2, 64, 64), AN_NORMAL(1)),
                  *q = an_cast(x, half ? AN_F16 : AN_F32);
        an_backward(an_sum(an_cast(an_attention(q, q, q, 0, true, 0.1), AN_F32), AN_ALL));
        if (an_plan(an_grad(x)) != AN_OK) fail_msg("%s", an_error(cx));
        const an_plan *p = cx->last->plan;
        for (int s = 0; s < p->n_steps; s++) {
            const an_kernel_kind kind = p->kernel[p->step[s].kernel].kind;
            an_tiles t;
            if (kind != AN_KERNEL_ATTN && kind != AN_KERNEL_ATTN_GRAD) continue;
            assert_null(an_module_tiles(p, &p->step[s], &fast, &t));
            assert_int_equal(t.body == AN_BODY_TF32, half);
            assert_null(an_module_tiles(p, &p->step[s], &exact, &t));
            assert_true(t.body != AN_BODY_TF32 && t.exact);
            assert_null(an_module_tiles(p, &p->step[s], &apple, &t));
            assert_true(t.body != AN_BODY_TF32);
            assert_string_equal(t.mul, "F32");
            n++;
        }
        assert_int_equal(n, 2);
        an_close(cx);
    }
}

/* The launches of attention's gradient on sm_90a: heads of `d` columns, `heads` in all. */
static void take_gradient(int d, int heads, const char *const entry[], int n)
{
    const an_gpu gpu = {
        .dialect = &an_dialects[AN_DIALECT_CUDA], .fast = true, .arch_specific = 90, .multiprocessors = 132};
    const int64_t tensor = 2 * (int64_t)heads * 130 * ((d + 7) / 8 * 8); /* bytes, packed */
    an_ctx *cx = an_open(&(an_options){.device = "null:cuda", .seed = 1});
    assert_non_null(cx);
    an_tensor *x = an_param(cx, "x", AN_F32, AN_SHAPE(1, heads, 130, d), AN_NORMAL(1)), *q = an_cast(x, AN_BF16);
    an_backward(an_sum(an_cast(an_attention(q, q, q, 0, true, 0), AN_F32), AN_ALL));
    if (an_plan(an_grad(x)) != AN_OK) fail_msg("%s", an_error(cx));
    const an_plan *p = cx->last->plan;
    for (int s = 0; s < p->n_steps; s++) {
        const an_kernel *k = &p->kernel[p->step[s].kernel];
        const bool grad = k->kind == AN_KERNEL_ATTN_GRAD, packed = d % 8 != 0;
        an_gpu_step g;
        if (!grad && k->kind != AN_KERNEL_ATTN) continue;
        assert_null(an_gpu_step_make(p, &p->step[s], &gpu, &g));
        assert_int_equal(g.n_launches, grad ? n : 1 + packed);
        for (int l = 0; grad && l < n; l++) assert_string_equal(g.launch[l].entry, entry[l]);
        for (int l = 0; l < g.n_launches; l++)
            assert_true(g.launch[l].shared_bytes <= 227 << 10); /* what a thread block may have */
        if (!packed) continue;
        const int64_t at = g.launch[0].bind[4].offset, bytes = (int64_t)an_gpu_scratch(k, &gpu);
        assert_int_equal(at % 16, 0);
        assert_int_equal(g.launch[0].bind[4].kind, AN_BIND_SCRATCH);
        assert_int_equal(bytes, at + (grad ? 4 : 3) * tensor);
        for (int l = grad ? 2 : 1; l < g.n_launches; l++)
            for (int i = 0; i < 3 + grad; i++) { /* q k v do */
                assert_int_equal(g.launch[l].bind[i].kind, AN_BIND_SCRATCH);
                assert_int_equal(g.launch[l].bind[i].offset, at + i * tensor);
            }
    }
    an_close(cx);
}

static void attention_on_hopper_has_the_launches_of_its_head(void **state)
{
    (void)state;
    take_gradient(64, 96, (const char *const[]){"attn_delta", "attn_dqkv"}, 2);
    take_gradient(64, 2, (const char *const[]){"attn_delta", "attn_dqkv"}, 2);
    take_gradient(20, 2, (const char *const[]){"attn_pack", "attn_delta", "attn_dqkv"}, 3);
    take_gradient(96, 2, (const char *const[]){"attn_delta", "attn_dq", "attn_dkv"}, 3);
    take_gradient(65, 3, (const char *const[]){"attn_pack", "attn_delta", "attn_dq", "attn_dkv"}, 4);
    take_gradient(192, 2, (const char *const[]){"attn_delta", "attn_dq", "attn_dkv"}, 3);
    take_gradient(256, 3, (const char *const[]){"attn_delta", "attn_dq", "attn_dkv"}, 3);
    take_gradient(201, 2, (const char *const[]){"attn_pack", "attn_delta", "attn_dq", "attn_dkv"}, 4);
}

static bool rotates_all(const an_target *t, const an_attn_spec *s)
{
    (void)t;
    (void)s;
    return true;
}

/* Of a plan for a device that rotates; and, T unlike its, of one that does not. */
static void short_attention_compiles_rotated_or_not(void **state)
{
    (void)state;
    const an_gpu gpu = {
        .dialect = &an_dialects[AN_DIALECT_CUDA], .fast = true, .arch_specific = 90, .multiprocessors = 132};
    for (int rotated = 0; rotated < 2; rotated++) {
        an_ctx *cx = an_open(&(an_options){.device = "null:cuda", .seed = 1});
        assert_non_null(cx);
        if (rotated) ((an_target *)(uintptr_t)cx->backend->target(cx->device))->rotates = rotates_all;
        an_tensor *want[N_ROTATED];
        int64_t n[N_ROTATED];
        rotated_case(cx, ROTATED, want, n);
        if (an_plan(want[0], want[1], want[2]) != AN_OK) fail_msg("%s", an_error(cx));
        const an_plan *p = cx->last->plan;
        int found = 0;
        for (int s = 0; s < p->n_steps; s++) {
            const an_kernel *k = &p->kernel[p->step[s].kernel];
            const bool grad = k->kind == AN_KERNEL_ATTN_GRAD;
            an_gpu_step g;
            an_text text = {0};
            if (!grad && k->kind != AN_KERNEL_ATTN) continue;
            found++;
            assert_int_equal(k->rotated, rotated);
            assert_null(an_gpu_step_make(p, &p->step[s], &gpu, &g));
            assert_int_equal(g.n_launches, 1);
            assert_string_equal(g.launch[0].entry, grad ? "attn_backward" : "attn_forward");
            assert_int_equal(g.launch[0].blocks[0], ROTATED_B * ROTATED_H);
            assert_int_equal(g.launch[0].threads, 224);
            assert_true((int)g.launch[0].shared_bytes <= (grad ? 113 : 75)
                                                             << 10); /* two, or four, blocks a multiprocessor */
            assert_int_equal(g.launch[0].n_binds, (grad ? 9 : 6) + 2 * rotated);
            an_render_module(p, &p->step[s], &gpu, "row", &text);
            for (int a = 80; compiler.library && a <= 100; a += 10) {
                char *log = NULL, *cubin = nvrtc_cubin(&compiler, text.data, "short attention", a, 1, &log);
                if (!cubin || (log && strstr(log, "warning"))) fail_msg("sm_%d: %s", a, log ? log : "no log");
                free(cubin), free(log);
            }
            an_text_free(&text);
        }
        assert_int_equal(found, 2);
        an_close(cx);
    }
}

static int close_map(void **state)
{
    (void)state;
    an_map_free(&seen);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_begins_between_16_bytes_is_not_called_aligned),
        cmocka_unit_test(attention_on_hopper_has_the_launches_of_its_head),
        cmocka_unit_test(short_attention_compiles_rotated_or_not),
        cmocka_unit_test(attention_with_masks_and_windows_and_in_tf32_compiles_for_hopper),
        cmocka_unit_test(kernels_of_small_steps_compile),
        cmocka_unit_test(kernels_of_a_step_at_the_width_of_gpt2_compile),
        cmocka_unit_test(sums_of_many_columns_compile_four_columns_a_thread),
        cmocka_unit_test(kernels_of_convolutions_compile),
        cmocka_unit_test(attention_of_float16_takes_tensor_cores_and_that_of_float32_does_not),
        cmocka_unit_test(a_long_row_is_kept_in_shared_memory_where_it_fits_and_nothing_is_spilled),
    };
    return cmocka_run_group_tests(tests, open_compiler, close_map);
}
