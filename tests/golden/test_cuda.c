/* test_cuda.c: every CUDA text of the presets' plans compiles with NVRTC for three generations of GPU. Without NVRTC
 * the tests are skipped by name, with the reason. An ordinary run takes the presets and generations in turn; AN_SOAK=1
 * takes all pairs. */
#include "preset.h"

#include "codegen/gpu_module.h"
#include "codegen/render.h"
#include "shim/nvrtc.h"

static const int ARCHS[] = {80, 90, 100};
static nvrtc compiler;

static int open_compiler(void **state)
{
    (void)state;
    char why[512];
    if (nvrtc_open(&compiler, why, sizeof why)) {
        print_message("CUDA texts are NOT compiled here: %s\n", why);
        compiler.library = NULL;
    }
    return 0;
}

static int count(const char *text, const char *word)
{
    int n = 0;
    for (const char *p = strstr(text, word); p; p = strstr(p + 1, word)) n++;
    return n;
}

/* Kernels in a unit: splits are added up by a second one; scattering sorts, ranks, finds starts and adds rows; the gradient of
 * attention has three. */
static int kernels_of(const an_kernel *k)
{
    switch (k->kind) {
    case AN_KERNEL_GEMM: return 2;
    case AN_KERNEL_ATTN:
    case AN_KERNEL_ROW_UPDATE: return 1;
    case AN_KERNEL_SCATTER: return 4;
    default: return 3;
    }
}

/* Compiles `text`; a warning, a spill beyond what `spills` allows, or too much shared memory fails. */
static void compile(const char *what, const char *text, int arch, int kernels)
{
    char *log = NULL, *cubin = nvrtc_cubin(&compiler, text, what, arch, 0, &log);
    if (!cubin) fail_msg("%s for sm_%d: %s", what, arch, log ? log : "no log");
    if (log && strstr(log, "warning")) fail_msg("%s for sm_%d: %s", what, arch, log);
    if (log && count(log, "Compiling entry function") != kernels)
        fail_msg("%s for sm_%d: %d kernels, not %d", what, arch, count(log, "Compiling entry function"), kernels);
    free(cubin);
    free(log);
}

/* All loop kernels of a plan in one text, which begins as a unit does; products and attention each in a unit of its
 * own. Returns the units compiled. */
static int compile_plan(const preset_plan *p, int arch)
{
    const an_gpu gpu = {.dialect = &an_dialects[AN_DIALECT_CUDA]};
    const an_plan *plan = p->plan;
    an_text rows = {0}, unit = {0}, seen = {0};
    int n_rows = 0, n_units = 0;
    for (int s = 0; s < plan->n_steps; s++) {
        const an_plan_step *st = &plan->step[s];
        const an_kernel *k = &plan->kernel[st->kernel];
        an_tiles t;
        char name[24];
        bool first = true;
        for (int i = 0; i < s; i++)
            first &= plan->step[i].kernel != st->kernel || plan->step[i].epilogue != st->epilogue;
        if (!first || an_module_tiles(plan, st, &gpu, &t)) continue;
        snprintf(name, sizeof name, "k%d", s);
        an_text_clear(&unit);
        if (k->kind == AN_KERNEL_LOOP && n_rows++) {
            an_render_gpu(k->u.loop, name, &gpu, NULL, false, &rows);
            continue;
        }
        an_render_module(plan, st, &gpu, name, k->kind == AN_KERNEL_LOOP ? &rows : &unit);
        if (k->kind == AN_KERNEL_LOOP || (seen.data && strstr(seen.data, unit.data)))
            continue; /* layers have equal texts */
        an_text_puts(&seen, unit.data);
        compile(k->name, unit.data, arch, kernels_of(k));
        n_units++;
    }
    assert_false(rows.failed || unit.failed || seen.failed);
    compile("loop kernels", rows.data, arch, n_rows);
    print_message("# sm_%d: %d loop kernels, %d units of templates\n", arch, n_rows, n_units);
    an_text_free(&rows);
    an_text_free(&unit);
    an_text_free(&seen);
    return n_rows + n_units;
}

static void compile_preset(const char *name, an_dtype dtype, int turn)
{
    if (!compiler.library) test_skip(NVRTC_ABSENT);
    if (turn < 0 && !getenv("AN_SOAK")) {
        test_skip("%s is compiled with AN_SOAK=1 only", name);
    }
    preset_plan p = preset_open(name, "null:cuda", dtype);
    for (int a = 0; a < (int)AN_COUNT(ARCHS); a++)
        if (getenv("AN_SOAK") || a == turn) assert_true(compile_plan(&p, ARCHS[a]) > 10);
    preset_close(&p);
}

static void macbook_compiles(void **state)
{
    (void)state, compile_preset("macbook", AN_F32, 0);
}
static void shakespeare_char_compiles(void **state)
{
    (void)state, compile_preset("shakespeare_char", AN_F32, -1);
}
static void shakespeare_char_in_bf16_compiles(void **state)
{
    (void)state, compile_preset("shakespeare_char", AN_BF16, 1);
}
static void gpt2_in_bf16_compiles(void **state)
{
    (void)state, compile_preset("gpt2", AN_BF16, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(macbook_compiles),
        cmocka_unit_test(shakespeare_char_compiles),
        cmocka_unit_test(shakespeare_char_in_bf16_compiles),
        cmocka_unit_test(gpt2_in_bf16_compiles),
    };
    return cmocka_run_group_tests(tests, open_compiler, NULL);
}
