/* test_entries.c: fake_entries.h, by which the stand-in of the CUDA driver (fake_cuda.c) finds a kernel: of several entries of one name the
 * one that is compiled, and all of them where more than one is. */
#define _GNU_SOURCE /* setenv */
#include "lib/test.h"
#include "cuda/fake.h"
#include "cuda/fake_entries.h"

#include <dlfcn.h>

typedef int one_number(unsigned), number_of(void **, int), one_handle(void *), two_handles(void **, const void *),
    get_function(void **, void *, const char *);

#define ENTRY(name, x) "AN_KERNEL(" name ", 32)\n(AN_IN(0, float, " x ") AN_IDS)\n{\n}\n"

static int found(const char *text, const char *in)
{
    int count;
    const char *at = find_entry(text, "k", &count);
    if (count != 1) return count;
    assert_non_null(at);
    assert_memory_equal(strstr(at, "float, ") + 7, in, strlen(in));
    return 1;
}

static void the_entry_that_is_compiled_is_taken(void **state)
{
    (void)state;
    static const struct {
        const char *before, *condition, *in; /* "a" in the branch, "b" in the other */
    } of[] = {{"", "#if X", "b"},
              {"#define X 0\n", "#if X", "b"},
              {"#define X 1\n", "#if X", "a"},
              {"#define X 1 /* why */\n", "# if !X /* why */", "b"},
              {"#define X\n", "#ifdef X", "a"},
              {"#define X\n#undef X\n", "#ifdef X", "b"},
              {"#define X\n", "#ifndef X", "b"},
              {"#define X 3\n#define Y (X)\n", "#if Y == 3 && defined(X)", "a"},
              {"#define X 3\n", "#if X < 3 || X - 1 >= 2", "a"},
              {"#define X 3\n", "#if defined X && !(X > 2)", "b"},
              {"#define X 1\n#if 0\n#define X 0\n#endif\n", "#if X", "a"},
              {"#if 1\n#elif 1\n#define X 1\n#else\n#define X 1\n#endif\n", "#if X", "b"},
              {"#if 0\n#elif 1\n#define X 1\n#else\n#undef X\n#endif\n", "#if X", "a"},
              {"#define F(x) x\n", "#if 0 && F(1)", "b"},
              {"#define F(x) x\n", "#if 1 || F(1)", "a"}};
    for (size_t i = 0; i < AN_COUNT(of); i++) {
        char text[512];
        snprintf(text, sizeof text, "\n%s%s\n" ENTRY("k", "a") "#else\n" ENTRY("k", "b") "#endif\n" ENTRY("kk", "c"),
                 of[i].before, of[i].condition);
        if (found(text, of[i].in) != 1) fail_msg("%s%s: %d entries", of[i].before, of[i].condition, found(text, "a"));
    }
}

static void two_entries_of_a_name_are_counted(void **state)
{
    (void)state;
    assert_int_equal(found("\n" ENTRY("k", "a") ENTRY("k", "b"), ""), 2);
    assert_int_equal(found("#define F(x) x\n#if F(1)\n" ENTRY("k", "a") "#else\n" ENTRY("k", "b") "#endif\n", ""), 2);
    assert_int_equal(found("#if 0\n" ENTRY("k", "a") "#endif\n", ""), 0);
    assert_int_equal(found("", ""), 0);
}

static void the_stand_in_refuses_two_entries_of_a_name(void **state)
{
    (void)state;
    static const char twice[] = "\n" ENTRY("k", "a") ENTRY("k", "b") ENTRY("one", "c");
    void *context = NULL, *module = NULL, *f = NULL;
    char path[512], line[256] = "";
    if (fake_is_real()) test_skip("a real driver answers: it would compile the text");
    fake_build();
    snprintf(path, sizeof path, "%s/libcuda.so.1", getenv("ANNEAL_CUDA_PATH"));
    void *driver = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(driver);
    assert_int_equal(((one_number *)(uintptr_t)dlsym(driver, "cuInit"))(0), 0);
    assert_int_equal(((number_of *)(uintptr_t)dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, 0), 0);
    assert_int_equal(((one_handle *)(uintptr_t)dlsym(driver, "cuCtxSetCurrent"))(context), 0);
    assert_int_equal(((two_handles *)(uintptr_t)dlsym(driver, "cuModuleLoadData"))(&module, twice), 0);
    get_function *const get = (get_function *)(uintptr_t)dlsym(driver, "cuModuleGetFunction");
    assert_int_equal(get(&f, module, "one"), 0);
    fake_clean();
    assert_int_not_equal(get(&f, module, "k"), 0);
    FILE *log = fopen(fake_log_path, "r");
    assert_non_null(log);
    assert_non_null(fgets(line, sizeof line, log));
    fclose(log);
    assert_string_equal(line, "cuModuleGetFunction: there are 2 of k\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_entry_that_is_compiled_is_taken),
                                       cmocka_unit_test(two_entries_of_a_name_are_counted),
                                       cmocka_unit_test(the_stand_in_refuses_two_entries_of_a_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
