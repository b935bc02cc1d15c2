/* test_bind.c: states over device memory that this program allocated itself, and streams of its own (anneal_interop.h). fake_cuda.c is the
 * driver; it checks that every kernel gets live memory, and computes nothing. Behind proxy_cuda.c (tests/cuda/on_gpu.sh) the numbers are compared
 * too. */
#define _GNU_SOURCE /* setenv */
#include "cuda/fake.h"
#include <anneal.h>
#include <anneal_interop.h>
#include <dlfcn.h>

enum { N = 192, BYTES = N * (int)sizeof(float), PLACES = 3 };

/* What another program calls. */
static struct {
    int (*alloc)(uint64_t *p, size_t n);
    int (*release)(uint64_t p);
    int (*to_device)(uint64_t p, const void *from, size_t n, void *stream);
    int (*to_host)(void *to, uint64_t p, size_t n, void *stream);
    int (*stream)(void **out, unsigned flags);
    int (*stream_free)(void *stream);
    int (*stream_wait)(void *stream);
} cu;

static void find(void *library, const char *name, void *to)
{
    void *symbol = dlsym(library, name);
    if (!symbol) fail_msg("the driver has no %s", name);
    memcpy(to, &symbol, sizeof symbol);
}

static void find_driver(void)
{
    char path[512];
    const char *dirs = getenv("ANNEAL_CUDA_PATH");
    snprintf(path, sizeof path, "%.*s/libcuda.so.1", (int)strcspn(dirs, ":"), dirs);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s: %s", path, dlerror());
    find(library, "cuMemAlloc_v2", &cu.alloc);
    find(library, "cuMemFree_v2", &cu.release);
    find(library, "cuMemcpyHtoDAsync_v2", &cu.to_device);
    find(library, "cuMemcpyDtoHAsync_v2", &cu.to_host);
    find(library, "cuStreamCreate", &cu.stream);
    find(library, "cuStreamDestroy_v2", &cu.stream_free);
    find(library, "cuStreamSynchronize", &cu.stream_wait);
}

static an_ctx *open_cuda(void)
{
    an_ctx *cx = an_open(&(an_options){.device = "cuda", .cache_dir = test_path("cuda_cache")});
    assert_non_null(cx);
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    return cx;
}

static void *pointer(uint64_t p)
{
    return (void *)(uintptr_t)p;
}

static uint64_t memory(size_t bytes)
{
    uint64_t p = 0;
    assert_int_equal(cu.alloc(&p, bytes), 0);
    return p;
}

static an_tensor *vector(an_ctx *cx, const char *name)
{
    return an_state_at(AN_AT, cx, name, AN_F32, AN_SHAPE(N), AN_FILL(7));
}

/* out = 3 in + 1 */
static void step(an_ctx *cx)
{
    an_tensor *in = vector(cx, "in"), *out = vector(cx, "out");
    an_assign_at(AN_AT, out, an_add_num_at(AN_AT, an_mul_num_at(AN_AT, in, 3), 1));
    if (an_eval_effects_at(AN_AT, cx) != AN_OK) fail_msg("%s", an_error(cx));
    an_reset(cx);
}

/* The stand-in wants copies from and to pinned memory; what it holds is memory of this process. */
static void put(uint64_t p, const float *x, void *stream)
{
    if (fake_is_real())
        assert_int_equal(cu.to_device(p, x, BYTES, stream), 0);
    else
        memcpy(pointer(p), x, BYTES);
}

static void steps_over_memory_of_ours(const char *how)
{
    an_bill bill;
    void *stream = NULL;
    fake_reset();
    setenv("ANNEAL_CUDA_LAUNCH", how, 1);
    an_ctx *cx = open_cuda(), *keeper = open_cuda(); /* what a program holds goes with the last context of the GPU */
    assert_int_equal(cu.stream(&stream, 1), 0);
    assert_int_not_equal(an_stream(cx), 0);
    uint64_t from[PLACES], to[PLACES];
    for (int k = 0; k < PLACES; k++) from[k] = memory(BYTES + 512), to[k] = memory(BYTES);
    for (int k = 0; k < 3 * PLACES; k++) {
        float x[N], y[N] = {0};
        const int at = k % PLACES, again = k >= 2 * PLACES ? PLACES - 1 : at; /* at last it stays where it is */
        for (int i = 0; i < N; i++) x[i] = (float)(i + 10 * k);
        put(from[again] + 256, x, stream);
        assert_int_equal(an_stream_wait(cx, (uint64_t)(uintptr_t)stream), AN_OK);
        assert_int_equal(an_bind_part(vector(cx, "in"), pointer(from[again]), 256, BYTES, AN_READ_ONLY), AN_OK);
        assert_int_equal(an_bind(vector(cx, "out"), pointer(to[again]), BYTES, AN_READ_WRITE), AN_OK);
        step(cx);
        assert_int_equal(an_stream_release(cx, (uint64_t)(uintptr_t)stream), AN_OK);
        if (fake_is_real()) {
            assert_int_equal(cu.to_host(y, to[again], BYTES, stream), 0);
            assert_int_equal(cu.stream_wait(stream), 0);
            for (int i = 0; i < N; i++)
                if (y[i] != 3 * x[i] + 1) fail_msg("%s, step %d, element %d: %g", how, k, i, (double)y[i]);
        }
        assert_int_equal(an_report(cx, &bill), AN_OK);
        assert_int_equal(bill.plan_cached, k > 0);
        assert_int_equal(bill.state_bytes, 0);
    }
    an_close(cx);     /* frees nothing of ours */
    cx = open_cuda(); /* the driver wants a context for these */
    for (int k = 0; k < PLACES; k++) {
        assert_int_equal(cu.release(from[k]), 0);
        assert_int_equal(cu.release(to[k]), 0);
    }
    assert_int_equal(cu.stream_free(stream), 0);
    an_close(keeper);
    fake_clean();
}

static void a_step_reads_and_writes_the_callers_device_memory(void **unused)
{
    (void)unused;
    steps_over_memory_of_ours("graph");
    steps_over_memory_of_ours("chain");
    steps_over_memory_of_ours("plain");
    steps_over_memory_of_ours("sync");
}

static void refused(an_ctx *cx, an_status status, const char *word)
{
    assert_int_not_equal(status, AN_OK);
    assert_non_null(an_error(cx));
    if (!strstr(an_error(cx), word)) fail_msg("no \"%s\" in: %s", word, an_error(cx));
    an_reset(cx);
    an_error_clear(cx);
}

static void what_the_gpu_does_not_reach_is_refused(void **unused)
{
    (void)unused;
    float mine[N] = {0};
    fake_reset();
    an_ctx *cx = open_cuda();
    const uint64_t p = memory(BYTES), gone = memory((size_t)BYTES << 12);
    assert_int_equal(cu.release(gone), 0);
    assert_int_equal(an_bind_alignment(cx, AN_F32), 256);
    assert_int_equal(an_bind_takes(cx), AN_EXTERNAL_POINTER);
    refused(cx, an_bind(vector(cx, "in"), mine, sizeof mine, AN_READ_ONLY), "not memory of");
    refused(cx, an_bind(vector(cx, "in"), pointer(gone), BYTES, AN_READ_ONLY), "not memory of");
    if (!fake_is_real()) /* the driver rounds an allocation up */
        refused(cx, an_bind_part(vector(cx, "in"), pointer(p), 256, BYTES, AN_READ_ONLY), "not memory of");
    refused(cx, an_bind(vector(cx, "in"), pointer(p), BYTES - 4, AN_READ_ONLY), "bytes");
    const uint64_t q = memory(2 * BYTES + 512);
    refused(cx, an_bind_part(vector(cx, "in"), pointer(q), 4, BYTES, AN_READ_ONLY), "aligned to 256");
    assert_int_equal(an_bind(vector(cx, "in"), pointer(q), BYTES, AN_READ_ONLY), AN_OK);
    refused(cx, an_bind_part(vector(cx, "out"), pointer(q), BYTES - 256, BYTES, AN_READ_WRITE), "overlaps");
    assert_int_equal(an_bind_part(vector(cx, "out"), pointer(q), BYTES, BYTES, AN_READ_WRITE), AN_OK);
    an_tensor *in = vector(cx, "in"), *out = vector(cx, "out");
    an_assign_at(AN_AT, in, out);
    refused(cx, an_error_status(cx), "only be read");
    step(cx);
    assert_int_equal(an_bind(vector(cx, "in"), NULL, 0, AN_READ_ONLY), AN_OK); /* its own again, filled with 7 */
    assert_int_equal(an_bind(vector(cx, "out"), NULL, 0, AN_READ_ONLY), AN_OK);
    step(cx);
    assert_int_equal(cu.release(p), 0);
    assert_int_equal(cu.release(q), 0);
    an_close(cx);
    fake_clean();
}

/* Memory of any alignment is copied, both ways. */
static void memory_is_copied_wherever_it_begins(void **unused)
{
    (void)unused;
    char from[1000], to[1000] = {0};
    fake_reset();
    an_ctx *cx = open_cuda();
    const uint64_t p = memory(2000);
    for (int i = 0; i < 1000; i++) from[i] = (char)(i * 7);
    assert_int_equal(an_write_external(cx, pointer(p), 3, from, sizeof from), AN_OK);
    assert_int_equal(an_read_external(cx, pointer(p + 3), 0, to, sizeof to), AN_OK);
    assert_memory_equal(from, to, sizeof to);
    refused(cx, an_read_external(cx, to, 0, from, 10), "not memory of");
    assert_int_equal(cu.release(p), 0);
    an_close(cx);
    fake_clean();
}

static void a_driver_that_fails_is_a_sentence(void **unused)
{
    (void)unused;
    static const char *const faults[] = {"cuStreamWaitEvent:1=700", "cuEventRecordWithFlags:1=700",
                                         "cuEventCreate:1=2"};
    if (fake_is_real()) {
        skip();
        return;
    }
    for (size_t i = 0; i < AN_COUNT(faults); i++) {
        fake_reset();
        an_ctx *cx = open_cuda();
        setenv("FAKE_CUDA_FAIL", faults[i], 1);
        assert_int_not_equal(an_stream_wait(cx, 0), AN_OK);
        assert_non_null(strstr(an_error(cx), "cuda: "));
        an_close(cx);
    }
    fake_reset();
    an_ctx *cx = open_cuda();
    const uint64_t p = memory(BYTES);
    setenv("FAKE_CUDA_FAIL", "cuPointerGetAttribute:1+=1", 1);
    refused(cx, an_bind(vector(cx, "in"), pointer(p), BYTES, AN_READ_ONLY), "not memory of");
    fake_reset();
    assert_int_equal(cu.release(p), 0);
    an_close(cx);
}

int main(void)
{
    fake_build();
    find_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_reads_and_writes_the_callers_device_memory),
        cmocka_unit_test(what_the_gpu_does_not_reach_is_refused),
        cmocka_unit_test(memory_is_copied_wherever_it_begins),
        cmocka_unit_test(a_driver_that_fails_is_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
