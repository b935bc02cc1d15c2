/* test_texts.c: what the planner and the renderers say about three small training steps, word for word: nodes, groups,
 * the plan, kernels in C, CUDA and MSL. A change of any of them shows here as a difference to read; `make goldens`
 * accepts it. */
#include "programs.h"

#include "golden.h"

/* Kernels without the templates' bodies, which are files of their own and come last in the text. */
static char *own_kernels(const char *text)
{
    static const char *const bodies[] = {"\n/* gemm.inc:", "\n/* attn_forward.inc:", "\n/* attn_backward.inc:"};
    size_t n = strlen(text);
    for (size_t i = 0; i < AN_COUNT(bodies); i++) {
        const char *at = strstr(text, bodies[i]);
        if (at && (size_t)(at - text) < n) n = (size_t)(at - text);
    }
    char *copy = malloc(n + 1);
    assert_non_null(copy);
    memcpy(copy, text, n);
    copy[n] = 0;
    return copy;
}

static void check_pass(const char *program, const char *pass, const char *extension)
{
    char path[300], file[64];
    snprintf(path, sizeof path, "%s/%s.txt", test_folder(), pass);
    snprintf(file, sizeof file, "%s.%s", program, extension);
    char *text = golden_read(path);
    assert_non_null(text);
    golden_check(file, text);
    free(text);
}

static void check_device(const char *device, const char *extension, bool passes)
{
    for (size_t i = 0; i < AN_COUNT(programs); i++) {
        char file[64];
        an_options o = {.device = device,
                        .seed = 1,
                        .verify = true,
                        .dump = passes ? "liveness,remat_select" : NULL,
                        .dump_dir = test_folder()};
        an_ctx *cx = an_open(&o);
        assert_non_null(cx);
        program p = program_build(cx, i);
        if (an_plan(p.loss, p.norm) != AN_OK) fail_msg("%s: %s", p.name, an_error(cx));
        if (passes) {
            check_pass(p.name, "liveness", "graph");
            check_pass(p.name, "remat_select", "groups");
            snprintf(file, sizeof file, "%s.plan", p.name);
            golden_check(file, an_report_text(cx, "plan"));
        }
        snprintf(file, sizeof file, "%s.%s", p.name, extension);
        char *kernels = own_kernels(an_report_text(cx, "kernels"));
        golden_check(file, kernels);
        free(kernels);
        an_gpt_close(p.gpt);
        an_close(cx);
    }
}

static void nodes_groups_plan_and_c_kernels_are_as_they_were(void **state)
{
    (void)state, check_device("null:cpu", "kernels_c", true);
}
static void cuda_kernels_are_as_they_were(void **state)
{
    (void)state, check_device("null:cuda", "kernels_cuda", false);
}
static void metal_kernels_are_as_they_were(void **state)
{
    (void)state, check_device("null:metal", "kernels_msl", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_groups_plan_and_c_kernels_are_as_they_were),
        cmocka_unit_test(cuda_kernels_are_as_they_were),
        cmocka_unit_test(metal_kernels_are_as_they_were),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
