/* test_metal.c: the MSL texts of three small training steps: the linter, the type check with real address spaces, and,
 * on the CPU shim, every loop kernel against the strip interpreter: the same bits from the same random memory. Each is
 * skipped by name where its tool is missing. */
#include "programs.h"

#include "runtime/context.h"
#include "device/cpu/cpu_internal.h"
#include "codegen/gpu_module.h"
#include "codegen/render.h"
#include "shim/shim_build.h"

#include <stdlib.h>
#include <string.h>

static const int VERSIONS[] = {300, 310};

typedef struct scene {
    an_ctx *cx;
    program p;
    const an_plan *plan;
} scene;

static scene scene_open(size_t which, an_dtype dtype)
{
    scene s = {.cx = an_open(&(an_options){.device = "null:metal", .seed = 1, .verify = true})};
    assert_non_null(s.cx);
    an_set_policy(s.cx, (an_policy){.matmul = dtype});
    s.p = program_build(s.cx, which);
    if (an_plan(s.p.loss, s.p.norm) != AN_OK) fail_msg("%s: %s", s.p.name, an_error(s.cx));
    s.plan = s.cx->last->plan;
    return s;
}

static void scene_close(scene *s)
{
    an_gpt_close(s->p.gpt);
    an_close(s->cx);
}

/* All loop kernels that steps use, once each, in one text; kernel number k is named rowK. `names` lists them. */
static int row_programs(const an_plan *plan, const an_gpu *gpu, an_text *out, an_text *names)
{
    int n = 0;
    for (int s = 0; s < plan->n_steps; s++) {
        const an_plan_step *st = &plan->step[s];
        const an_aliases aliases = an_step_aliases(plan, st, gpu);
        bool first = plan->kernel[st->kernel].kind == AN_KERNEL_LOOP;
        for (int i = 0; i < s; i++) first &= plan->step[i].kernel != st->kernel;
        if (!first) continue;
        char name[24];
        snprintf(name, sizeof name, "row%d", st->kernel);
        an_text_printf(names, "%s ", name);
        if (n++)
            an_render_gpu(plan->kernel[st->kernel].u.loop, name, gpu, &aliases, false, out);
        else
            an_render_module(plan, st, gpu, name, out);
    }
    assert_false(out->failed || names->failed);
    return n;
}

/* ---------------------------------------------------------------------------------------------- reading the texts */

static void run_tool(const char *tool, int version, const char *text, const char *what)
{
    char path[256], log[256], command[1024];
    snprintf(path, sizeof path, "%s", test_path("unit.metal"));
    snprintf(log, sizeof log, "%s", test_path("unit.log"));
    test_write_file(path, text, strlen(text));
    snprintf(command, sizeof command, tool, version, path);
    if (shim_command(command, log)) fail_msg("%s as MSL %d", what, version);
}

static void each_text(const char *tool)
{
    int units = 0;
    for (size_t i = 0; i < 2 * AN_COUNT(programs); i++) /* each in f32 and with products in bf16 */
        for (size_t v = 0; v < AN_COUNT(VERSIONS); v++) {
            scene s = scene_open(i / 2, i % 2 ? AN_BF16 : AN_F32);
            const an_gpu gpu = {.dialect = &an_dialects[AN_DIALECT_MSL], .version = VERSIONS[v]};
            an_text rows = {0}, names = {0}, unit = {0}, seen = {0};
            assert_true(row_programs(s.plan, &gpu, &rows, &names) > 3);
            run_tool(tool, VERSIONS[v], rows.data, s.p.name);
            for (int k = 0; k < s.plan->n_steps; k++) {
                an_tiles t;
                const an_plan_step *st = &s.plan->step[k];
                if (s.plan->kernel[st->kernel].kind == AN_KERNEL_LOOP || an_module_tiles(s.plan, st, &gpu, &t))
                    continue;
                an_text_clear(&unit);
                an_render_module(s.plan, st, &gpu, "", &unit);
                assert_false(unit.failed);
                if (seen.data && strstr(seen.data, unit.data)) continue;
                an_text_puts(&seen, unit.data);
                run_tool(tool, VERSIONS[v], unit.data, s.plan->kernel[st->kernel].name);
                units++;
            }
            an_text_free(&rows), an_text_free(&names), an_text_free(&unit), an_text_free(&seen);
            scene_close(&s);
        }
    assert_true(units > 6);
}

static void every_text_passes_the_linter(void **state)
{
    (void)state;
    if (shim_command("python3 --version", test_path("python.log"))) {
        test_skip("no python3: tools/msl_lint cannot run");
    }
    each_text("python3 tools/msl_lint --version %d %s");
}

static void every_text_passes_the_type_check(void **state)
{
    (void)state;
    if (shim_command("clang++ --version", test_path("clang.log"))) {
        test_skip("no clang++: address spaces are not checked");
    }
    each_text("clang++ -x c++ -std=c++14 -fsyntax-only -DAN_SHIM_CHECK -Itests/shim/msl -Wall -Wextra -Werror "
              "-Wno-unknown-pragmas "
              "-Wno-unknown-attributes -Wno-unused-function -Wno-unused-parameter -D__METAL_VERSION__=%d %s");
}

/* ---------------------------------------------------------------------------------------------- bits */

static void float64_is_refused_with_a_sentence(void **state)
{
    (void)state;
    an_ctx *cx = an_open(&(an_options){.device = "null:metal", .seed = 1});
    assert_non_null(cx);
    an_tensor *x = an_param(cx, "x", AN_F64, AN_SHAPE(4), AN_ONES);
    assert_int_equal(an_plan(an_sum(an_mul(x, x), AN_ALL)), AN_E_UNSUPPORTED);
    assert_non_null(strstr(an_error(cx), "uses float64, which Apple GPUs do not have"));
    an_close(cx);
}

/* Numbers a training step might see; indices are small and sometimes outside. */
static void fill(const an_loop_arg *a, void *memory, uint64_t *state)
{
    for (int64_t i = 0; i < a->numel; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        float x = (float)(int32_t)(*state >> 32) * 0x1p-30f;
        switch (a->dtype) {
        case AN_F32: ((float *)memory)[i] = x; break;
        case AN_BF16: ((uint16_t *)memory)[i] = (uint16_t)(0x3d80 + (*state >> 56)) /* 1/16 to 8 */; break;
        case AN_I32: ((int32_t *)memory)[i] = (int32_t)(*state >> 40) % 12 - 1; break;
        case AN_I64: ((int64_t *)memory)[i] = (int64_t)(*state >> 40) % 12 - 1; break;
        case AN_BOOL: ((uint8_t *)memory)[i] = (uint8_t)(*state >> 63); break;
        default: fail_msg("no %s here", an_dtype_name((an_dtype)a->dtype));
        }
    }
}

/* How the first step with kernel k, whose text row_programs renders, computes in place. */
static an_aliases aliases_of(const an_plan *plan, int k, const an_gpu *gpu)
{
    int step = 0;
    while (plan->step[step].kernel != k) step++;
    return an_step_aliases(plan, &plan->step[step], gpu);
}

/* Loop kernel `k` of a plan twice from the same memory: by the interpreter and as MSL; every byte of every argument must
 * agree. Inputs that are read in place lie in their output's memory, for both. */
static void compare_program(const scene *s, shim_object o, int k)
{
    const an_loop_kernel *p = s->plan->kernel[k].u.loop;
    uint64_t state = 7 + (uint64_t)k;
    void *arg[AN_LOOP_ARGS], *mine[AN_LOOP_ARGS];
    const an_gpu apple = {.dialect = &an_dialects[AN_DIALECT_MSL], .version = 300};
    const an_aliases aliases = aliases_of(s->plan, k, &apple);
    an_loop_launch launch = an_render_gpu_launch(p, &apple);
    shim_launch l = {.groups = {(unsigned)launch.blocks, 1, 1}, .threads = (unsigned)launch.threads, .seed = 5};
    assert_true(p->n_args <= SHIM_MAX_BUFFERS);
    for (int a = 0; a < p->n_args; a++) {
        if (aliases.output[a] >= 0) continue;
        size_t bytes = (size_t)p->arg[a].numel * an_dtype_bytes((an_dtype)p->arg[a].dtype);
        arg[a] = aligned_alloc(64, (bytes + 127) & ~(size_t)63);
        mine[a] = aligned_alloc(64, (bytes + 127) & ~(size_t)63);
        assert_true(arg[a] && mine[a]);
        fill(&p->arg[a], arg[a], &state);
        memcpy(mine[a], arg[a], bytes);
        l.buffers[a] = (shim_buffer){mine[a], bytes};
    }
    for (int a = 0; a < p->n_args; a++)
        if (aliases.output[a] >= 0) arg[a] = arg[aliases.output[a]];
    const an_tile all = {.row0 = 0, .row1 = p->rows, .col0 = 0, .col1 = p->cols};
    void *scratch = aligned_alloc(64, (an_interp_scratch(p) + 127) & ~(size_t)63);
    assert_non_null(scratch);
    an_interp_run(p, &all, arg, scratch);
    free(scratch);
    char name[24];
    snprintf(name, sizeof name, "row%d", k);
    shim_launch_clean(o, name, &l);
    for (int a = 0; a < p->n_args; a++) {
        if (aliases.output[a] >= 0) continue;
        if (memcmp(arg[a], mine[a], l.buffers[a].bytes) != 0)
            fail_msg("%s: %s: %s differs", s->p.name, p->name, p->arg[a].name);
        free(arg[a]);
        free(mine[a]);
    }
}

static void compare_programs(size_t which, an_dtype dtype)
{
    scene s = scene_open(which, dtype);
    const an_gpu gpu = {.dialect = &an_dialects[AN_DIALECT_MSL], .version = 300};
    an_text rows = {0}, names = {0};
    int n = row_programs(s.plan, &gpu, &rows, &names);
    shim_object o = shim_build(rows.data, gpu.version);
    for (int k = 0; k < s.plan->n_kernels; k++) {
        char name[24];
        snprintf(name, sizeof name, "row%d ", k);
        if (strstr(names.data, name)) compare_program(&s, o, k), n--;
    }
    assert_int_equal(n, 0);
    shim_unload(o);
    an_text_free(&rows);
    an_text_free(&names);
    scene_close(&s);
}

static void row_programs_of_a_classifier_have_the_interpreters_bits(void **state)
{
    (void)state, compare_programs(0, AN_F32);
}
static void row_programs_of_a_gpt_block_have_the_interpreters_bits(void **state)
{
    (void)state, compare_programs(1, AN_F32);
}
static void row_programs_of_a_gpt_block_in_bf16_have_the_interpreters_bits(void **state)
{
    (void)state;
    compare_programs(1, AN_BF16);
}
static void row_programs_of_a_conv_net_have_the_interpreters_bits(void **state)
{
    (void)state, compare_programs(2, AN_F32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_text_passes_the_linter),
        cmocka_unit_test(every_text_passes_the_type_check),
        cmocka_unit_test(float64_is_refused_with_a_sentence),
        cmocka_unit_test(row_programs_of_a_classifier_have_the_interpreters_bits),
        cmocka_unit_test(row_programs_of_a_gpt_block_have_the_interpreters_bits),
        cmocka_unit_test(row_programs_of_a_gpt_block_in_bf16_have_the_interpreters_bits),
        cmocka_unit_test(row_programs_of_a_conv_net_have_the_interpreters_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
