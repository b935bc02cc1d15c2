/* test_compilers.c: texts compiled side by side by copies of NVRTC give the entries of the cache that the library alone gives, byte for byte;
 * an error is its text's; what copies cannot do the library does. With the driver's stand-in, and, where it is there, with
 * NVRTC itself (AN_NVRTC). */
#define _GNU_SOURCE
#include "cuda/fake.h"
#include "shim/nvrtc.h"

#include "device/cuda/cuda_internal.h"
#include "platform/dynamic_library.h"
#include "platform/platform.h"
#include "platform/thread_pool.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>

enum { TEXTS = 48, THREADS = 5 };

extern const an_backend an_backend_cuda;

static an_device device;
static char last_image[8];

static cu_result take(cu_module *out, const void *image)
{
    memcpy(last_image, image, sizeof last_image);
    *out = (cu_module)&device;
    return 0;
}

static cu_result drop(cu_module m)
{
    (void)m;
    return 0;
}

static cu_result no_text(cu_result r, const char **out)
{
    (void)r;
    *out = "none";
    return 0;
}

/* Another seed: other texts. */
static char *text_of(int i, int seed)
{
    char text[400];
    snprintf(text, sizeof text,
             "#define AN_KERNEL(name) extern \"C\" __global__ void name\n"
             "AN_KERNEL(row)(float *x, const float *y)\n{\n"
             "    for (int i = 0; i < %d; i++) x[threadIdx.x + i] = y[i] * %d.0f + x[i + %d];\n}\n",
             i % 7 + 2, i + 1, seed);
    return strdup(text);
}

static an_status compile(int compilers, const char *folder, int seed, int broken, an_load_stats *stats, an_err *err)
{
    an_cuda_module module[TEXTS] = {0};
    device.compilers = compilers;
    device.note[0] = 0;
    snprintf(device.cache_dir, sizeof device.cache_dir, "%s", folder);
    for (int i = 0; i < TEXTS; i++) {
        module[i].text =
            i == broken ? strdup("extern \"C\" __global__ void row(float *x) { x[0] = nowhere; }\n") : text_of(i, seed);
        module[i].what = i == broken ? "the broken kernel" : "a kernel";
    }
    const an_status status = an_cuda_compile(err, &device, module, TEXTS, stats);
    for (int i = 0; i < TEXTS; i++) an_cuda_module_free(&device, &module[i]);
    return status;
}

/* Files of a folder, and the sum of hashes of their names and bytes. */
static int contents(const char *folder, uint64_t *hash)
{
    int n = 0;
    DIR *d = opendir(folder);
    *hash = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[1300], *data;
        size_t bytes;
        an_err err = {0};
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        assert_int_equal(an_file_read(&err, path, 0, &data, &bytes), AN_OK);
        *hash += an_hash(data, bytes, an_hash(e->d_name, strlen(e->d_name), 1));
        free(data);
        n++;
    }
    closedir(d);
    return n;
}

static const char *new_folder(void)
{
    static char path[600];
    static int made;
    snprintf(path, sizeof path, "%s%d", test_path("entries"), made++);
    assert_int_equal(mkdir(path, 0700), 0);
    return path;
}

/* The stand-in's folder for the driver, and NVRTC's own where it is asked for. */
static bool open_library(bool real)
{
    an_err err = {0};
    char folder[500];
    const char *path = getenv("AN_NVRTC"), *end = path ? strrchr(path, '/') : NULL,
               *stand_in = getenv("ANNEAL_CUDA_PATH");
    if (real && !end) return false;
    snprintf(folder, sizeof folder, "%s", stand_in);
    if (real) {
        char named[500];
        snprintf(named, sizeof named, "%.*s", (int)(end - path), path);
        setenv("ANNEAL_CUDA_PATH", named, 1);
    }
    memset(&device, 0, sizeof device);
    const an_status status = an_nvrtc_find(&err, 13, &device.nvrtc);
    setenv("ANNEAL_CUDA_PATH", folder, 1);
    if (status != AN_OK) fail_msg("%s", err.text);
    device.cu.module_load = take;
    device.cu.module_free = drop;
    device.cu.error_name = device.cu.error_text = no_text;
    device.arch = 90;
    return true;
}

static void check_entries(void)
{
    an_err err = {0};
    an_load_stats alone = {0}, beside = {0}, again = {0};
    uint64_t one, many;
    if (compile(1, new_folder(), 0, -1, &alone, &err) != AN_OK) fail_msg("%s", err.text);
    assert_int_equal(contents(device.cache_dir, &one), TEXTS);
    if (compile(an_compilers_most(), new_folder(), 0, -1, &beside, &err) != AN_OK) fail_msg("%s", err.text);
    assert_int_equal(contents(device.cache_dir, &many), TEXTS);
    assert_true(one == many);
    assert_string_equal(device.note, "");
    assert_int_equal(alone.compiled + beside.compiled, 2 * TEXTS);
    char folder[sizeof device.cache_dir];
    snprintf(folder, sizeof folder, "%s", device.cache_dir);
    assert_int_equal(compile(an_compilers_most(), folder, 0, -1, &again, &err), AN_OK);
    assert_int_equal(again.cached, TEXTS);
    print_message("%d texts: %.0f ms by one compiler, %.0f by several\n", TEXTS, alone.compile_ms, beside.compile_ms);
}

static void copies_give_the_same_entries(void **state)
{
    (void)state;
    if (!open_library(false)) fail();
    check_entries();
    fake_clean();
}

static void copies_of_nvrtc_itself_give_the_same_entries(void **state)
{
    (void)state;
    if (!open_library(true)) test_skip(NVRTC_ABSENT);
    check_entries();
    an_err err = {0};
    an_load_stats stats = {0};
    uint64_t hash;
    assert_int_equal(compile(an_compilers_most(), new_folder(), 1, 40, &stats, &err), AN_E_DEVICE);
    assert_non_null(strstr(err.text, "the broken kernel"));
    assert_non_null(strstr(err.text, "nowhere"));
    assert_int_equal(contents(device.cache_dir, &hash), TEXTS - 1);
    assert_string_equal(device.note, "");
}

static void each_thread_has_a_copy_which_goes_with_the_last(void **state)
{
    (void)state;
    assert_true(open_library(false));
    device.compilers = THREADS;
    for (int round = 0; round < 3; round++) {
        an_compilers *c = an_compilers_open(&device, 1000, THREADS);
        const an_nvrtc *seen[THREADS];
        assert_non_null(c);
        for (int t = 0; t < THREADS; t++) {
            seen[t] = an_compilers_get(c, t);
            assert_ptr_equal(an_compilers_get(c, t + THREADS), seen[t]);
            if (t == 0)
                assert_null(seen[t]);
            else
                assert_true(seen[t]->compile != device.nvrtc.compile);
            for (int o = 1; o < t; o++) assert_true(seen[t]->compile != seen[o]->compile);
        }
        const void *code = an_dl_sym(seen[1]->library, "nvrtcVersion");
        assert_non_null(an_dl_path(code));
        an_compilers_close(&device, c);
        assert_null(an_dl_path(code));
        assert_string_equal(device.note, "");
    }
    device.compilers = 0; /* by the number of threads, and never more than there can be */
    an_compilers *by_threads = an_compilers_open(&device, 1000, 4);
    assert_non_null(an_compilers_get(by_threads, 1));
    assert_null(an_compilers_get(by_threads, 2));
    an_compilers_close(&device, by_threads);
    by_threads = an_compilers_open(&device, 1000, 2);
    assert_null(an_compilers_get(by_threads, 1));
    an_compilers_close(&device, by_threads);
    by_threads = an_compilers_open(&device, 1000, 1000);
    assert_non_null(an_compilers_get(by_threads, an_compilers_most() - 1));
    assert_null(an_compilers_get(by_threads, an_compilers_most()));
    an_compilers_close(&device, by_threads);
    device.compilers = THREADS; /* few texts are not worth a copy */
    an_compilers *few = an_compilers_open(&device, 15, THREADS);
    assert_null(an_compilers_get(few, 1));
    an_compilers_close(&device, few);
    fake_clean();
}

static void what_copies_refuse_the_library_compiles(void **state)
{
    (void)state;
    enum { ROUNDS = 50 }; /* the copy's thread may sleep until all is done */
    const char *said = "a copy does not compile what the library does";
    assert_true(open_library(false));
    setenv("FAKE_NVRTC_COPIES", "refuse", 1);
    for (int round = 0; round < ROUNDS && (round == 0 || !strstr(device.note, said)); round++) {
        an_err err = {0};
        an_load_stats stats = {0};
        uint64_t hash;
        if (compile(2, new_folder(), 0, -1, &stats, &err) != AN_OK) fail_msg("%s", err.text);
        assert_int_equal(contents(device.cache_dir, &hash), TEXTS);
    }
    unsetenv("FAKE_NVRTC_COPIES");
    if (an_cores_available() > 1) assert_non_null(strstr(device.note, said));
    fake_clean();
}

static void without_room_for_copies_the_library_compiles_all(void **state)
{
    (void)state;
    an_err err = {0};
    an_load_stats stats = {0};
    struct rlimit was, less;
    uint64_t hash;
    assert_true(open_library(false));
    device.compilers = 2;
    an_compilers *c = an_compilers_open(&device, 1000, 2);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    less = was;
    less.rlim_cur = 100000; /* the entries are smaller, the library is larger */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
    assert_null(an_compilers_get(c, 1));
    an_compilers_close(&device, c);
    assert_non_null(strstr(device.note, "a library cannot be copied to memory"));
    const an_status status = compile(2, new_folder(), 0, -1, &stats, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(status, AN_OK);
    assert_int_equal(contents(device.cache_dir, &hash), TEXTS);
    fake_clean();
}

static void on_signal(int s)
{
    (void)s;
}

/* The stand-in replaces SIGTERM's handler during its first compilation, as NVRTC does. */
static void handlers_of_signals_are_those_from_before(void **state)
{
    (void)state;
    struct sigaction mine = {.sa_handler = on_signal}, was, now;
    assert_int_equal(sigaction(SIGTERM, &mine, &was), 0);
    for (int round = 0; round < 8; round++) {
        an_err err = {0};
        an_load_stats stats = {0};
        assert_true(open_library(false));
        setenv("FAKE_NVRTC_COPIES", "signals", 1);
        if (compile(an_compilers_most(), new_folder(), 0, -1, &stats, &err) != AN_OK) fail_msg("%s", err.text);
        unsetenv("FAKE_NVRTC_COPIES");
        assert_int_equal(sigaction(SIGTERM, NULL, &now), 0);
        assert_true(now.sa_handler == on_signal);
    }
    /* one that a copy left is taken back */
    device.compilers = 2;
    an_compilers *c = an_compilers_open(&device, 1000, 2);
    const an_nvrtc *copy = an_compilers_get(c, 1);
    assert_non_null(copy);
    const void *handler = an_dl_sym(copy->library, "fake_handler");
    assert_non_null(handler);
    memcpy(&mine.sa_handler, &handler, sizeof handler);
    assert_int_equal(sigaction(SIGTERM, &mine, NULL), 0);
    an_compilers_close(&device, c);
    assert_int_equal(sigaction(SIGTERM, NULL, &now), 0);
    assert_true(now.sa_handler == on_signal);
    assert_int_equal(sigaction(SIGTERM, &was, NULL), 0);
    fake_clean();
}

static void an_error_is_its_texts(void **state)
{
    (void)state;
    an_err err = {0};
    an_load_stats stats = {0};
    assert_true(open_library(false));
    setenv("FAKE_CUDA_FAIL", "nvrtcCompileProgram:1+=6", 1);
    assert_int_equal(compile(2, new_folder(), 0, -1, &stats, &err), AN_E_DEVICE);
    assert_non_null(strstr(err.text, "a kernel"));
    assert_non_null(strstr(err.text, "injected"));
    fake_reset();
}

static void the_number_of_compilers_is_checked(void **state)
{
    (void)state;
    static const char *const wrong[] = {"0", "9", "two", "1x", "-1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        an_err err = {0};
        an_device *d = NULL;
        setenv("ANNEAL_CUDA_COMPILERS", wrong[i], 1);
        assert_int_equal(an_backend_cuda.open(&err, &(an_device_options){0}, &d), AN_E_USAGE);
        assert_non_null(strstr(err.text, "ANNEAL_CUDA_COMPILERS"));
    }
    unsetenv("ANNEAL_CUDA_COMPILERS");
}

static int build(void **state)
{
    (void)state;
    fake_build();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(copies_give_the_same_entries),
                                       cmocka_unit_test(copies_of_nvrtc_itself_give_the_same_entries),
                                       cmocka_unit_test(each_thread_has_a_copy_which_goes_with_the_last),
                                       cmocka_unit_test(what_copies_refuse_the_library_compiles),
                                       cmocka_unit_test(without_room_for_copies_the_library_compiles_all),
                                       cmocka_unit_test(handlers_of_signals_are_those_from_before),
                                       cmocka_unit_test(an_error_is_its_texts),
                                       cmocka_unit_test(the_number_of_compilers_is_checked)};
    return cmocka_run_group_tests(tests, build, NULL);
}
