/* test_msl.c: every kernel a Metal backend would ask for passes the linter, and the type check with real address spaces
 * by clang++, as MSL 3.0 and 3.1. Each check is skipped by name, with the reason, where its tool is missing. */
#include "configs.h"
#include "shim_build.h"

static const int VERSIONS[] = {300, 310};
static const char *const CHECK =
    "clang++ -x c++ -std=c++14 -fsyntax-only -DAN_SHIM_CHECK -Itests/shim/msl -Wall -Wextra -Werror "
    "-Wno-unknown-pragmas "
    "-Wno-unknown-attributes -Wno-unused-function -Wno-unused-parameter -D__METAL_VERSION__=";

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* Calls visit(text, what) for every body and configuration of a GPU that `lines` describe. */
static void each_text_of(const char *lines, const char *gpu, void (*visit)(const char *text, const char *what))
{
    char defines[1024], what[64], *text;
    const size_t at = strlen(strcpy(defines, lines));
    for (size_t i = 0; i < COUNT_OF(metal_attention); i++)
        for (int backward = 0; backward < 2; backward++) {
            const char *body = backward ? "attn_backward" : "attn_forward";
            attn_defines(defines + at, sizeof defines - at, &metal_attention[i], backward);
            snprintf(what, sizeof what, "%s %zu%s", body, i, gpu);
            visit(text = kernel_text("msl", body, defines), what);
            free(text);
        }
    for (size_t i = 0; i < COUNT_OF(metal_gemm); i++) {
        if (metal_gemm[i].direct && *lines) continue; /* a plain GPU's fragments come from threadgroup memory */
        gemm_defines(defines + at, sizeof defines - at, &metal_gemm[i]);
        snprintf(what, sizeof what, "gemm %zu%s", i, gpu);
        visit(text = kernel_text("msl", "gemm", defines), what);
        free(text);
    }
}

static void each_text(void (*visit)(const char *text, const char *what))
{
    each_text_of("", "", visit);
    each_text_of("#define AN_PLAIN 1\n", " plain", visit);
    each_text_of("#define AN_PLAIN 1\n#define AN_SHUFFLES 0\n", " without shuffles", visit);
}

static void lint(const char *text, const char *what)
{
    char command[512], path[256], log[256];
    snprintf(path, sizeof path, "%s", test_path("lint.metal")), snprintf(log, sizeof log, "%s", test_path("lint.log"));
    write_text(path, text);
    for (size_t v = 0; v < COUNT_OF(VERSIONS); v++) {
        snprintf(command, sizeof command, "python3 tools/msl_lint --version %d %s", VERSIONS[v], path);
        if (shim_command(command, log)) fail_msg("%s as MSL %d", what, VERSIONS[v]);
    }
}

static void type_check(const char *text, const char *what)
{
    char command[1024], path[256], log[256];
    snprintf(path, sizeof path, "%s", test_path("types.metal")),
        snprintf(log, sizeof log, "%s", test_path("types.log"));
    write_text(path, text);
    for (size_t v = 0; v < COUNT_OF(VERSIONS); v++) {
        snprintf(command, sizeof command, "%s%d %s", CHECK, VERSIONS[v], path);
        if (shim_command(command, log)) fail_msg("%s as MSL %d", what, VERSIONS[v]);
    }
}

static void every_kernel_passes_the_linter(void **state)
{
    (void)state;
    if (shim_command("python3 --version", test_path("python.log"))) {
        test_skip("no python3: tools/msl_lint cannot run");
    }
    each_text(lint);
}

static void need_clang(void)
{
    if (!shim_command("clang++ --version", test_path("clang.log"))) return;
    test_skip("no clang++: address spaces are not checked");
}

static void every_kernel_passes_the_type_check(void **state)
{
    (void)state;
    need_clang();
    each_text(type_check);
}

/* The check would be worth nothing if clang took any pointer for any other. */
static void the_type_check_rejects_mixed_address_spaces(void **state)
{
    (void)state;
    need_clang();
    static const char *const wrong[] = {
        "static inline float f(threadgroup const float *p) { return p[0]; }\nvoid k(device const float *p) { f(p); }",
        "static inline float f(const float *p) { return p[0]; }\nvoid k(device const float *p) { f(p); }",
        "void k(constant float *p) { p[0] = 1.0f; }",
        "void k(threadgroup half *p) { simdgroup_matrix<float, 8, 8> m; simdgroup_load(m, p, 8ul); }",
    };
    char text[512], command[1024], path[256], log[256];
    snprintf(path, sizeof path, "%s", test_path("wrong.metal")),
        snprintf(log, sizeof log, "%s", test_path("wrong.log"));
    for (size_t i = 0; i <= COUNT_OF(wrong); i++) {
        snprintf(text, sizeof text, "#include <metal_stdlib>\nusing namespace metal;\n%s\n",
                 i < COUNT_OF(wrong) ? wrong[i] : "void k(device float *p, constant float *c) { p[0] = c[0]; }");
        write_text(path, text);
        snprintf(command, sizeof command, "%s310 %s >%s 2>&1", CHECK, path, log);
        int rejected = system(command) != 0;
        if (rejected != (i < COUNT_OF(wrong))) fail_msg("%s: %s", rejected ? "rejected" : "taken", text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_passes_the_linter),
        cmocka_unit_test(every_kernel_passes_the_type_check),
        cmocka_unit_test(the_type_check_rejects_mixed_address_spaces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
