/* test_standin_run.c: the stand-in does what Metal does: kernels run and give their numbers, objects come and go, in time and
 * in order. What it refuses is in test_standin_misuse.c. */
#include "standin/call.h"

static const char *const add_text =
    "#include <metal_stdlib>\nusing namespace metal;\n#pragma METAL fp contract(off)\n"
    "kernel void add(device const float *a [[buffer(0)]], device float *b [[buffer(1)]], constant uint &n [[buffer(2)]],\n"
    "                uint i [[thread_position_in_grid]])\n{\n    if (i < n) b[i] = a[i] + b[i];\n}\n"
    "kernel void twice(device float *b [[buffer(0)]], uint3 g [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]])\n"
    "{\n    b[g.x * 32 + t] *= 2.0f;\n}\n"
    "kernel void reversed(device float *b [[buffer(0)]], uint t [[thread_index_in_threadgroup]])\n"
    "{\n    threadgroup float x[64];\n    x[t] = b[t];\n    threadgroup_barrier(mem_flags::mem_threadgroup);\n    b[t] = x[63 - t];\n}\n";

typedef struct fixture {
    const standin_api *api;
    void *pool;
    object device, queue, a, b;
} fixture;

static fixture begin(const char *settings)
{
    fixture f = {.api = standin_load(settings), .pool = pool_push(), .device = device()};
    assert_non_null(f.device);
    f.queue = SEND0(object, f.device, "newCommandQueue");
    f.a = new_buffer(f.device, 256), f.b = new_buffer(f.device, 256);
    float *a = SEND0(float *, f.a, "contents"), *b = SEND0(float *, f.b, "contents");
    for (int i = 0; i < 64; i++) a[i] = (float)i, b[i] = 100;
    return f;
}

/* Everything is given back: no misuse, no object that somebody owns. */
static void end(fixture *f)
{
    char lines[2048];
    release(f->a), release(f->b), release(f->queue), release(f->device);
    pool_pop(f->pool);
    int n = f->api->leaks(lines, sizeof lines);
    if (n) fail_msg("%d objects are left: %s", n, lines);
    if (f->api->misuses()) fail_msg("%s", f->api->misuse(0));
}

static object add_launch(fixture *f, object pipeline)
{
    object cb = SEND0(object, f->queue, "commandBuffer"), e = SEND0(object, cb, "computeCommandEncoder");
    SEND(void, (object), e, "setComputePipelineState:", pipeline);
    set_buffer(e, f->a, 0, 0), set_buffer(e, f->b, 0, 1), set_bytes(e, &(uint32_t){60}, 4, 2);
    dispatch(e, 2, 32);
    SEND0(void, e, "endEncoding");
    return cb;
}

static void a_launch_gives_the_kernels_numbers(void **state)
{
    (void)state;
    static const char *const settings[] = {"", "when=early", "when=random,seed=7", "kernels=fast", "macos=13,gpu=amd"};
    for (size_t s = 0; s < sizeof settings / sizeof *settings; s++) {
        fixture f = begin(settings[s]);
        object p = new_pipeline(f.device, add_text, "add");
        object cb = add_launch(&f, p);
        SEND0(void, cb, "commit");
        SEND0(void, cb, "waitUntilCompleted");
        assert_int_equal(SEND0(uint64_t, cb, "status"), 4);
        assert_null(SEND0(object, cb, "error"));
        const float *b = SEND0(float *, f.b, "contents");
        for (int i = 0; i < 64; i++)
            if (b[i] != (i < 60 ? 100.0f + (float)i : 100.0f)) fail_msg("%s: b[%d] is %g", settings[s], i, (double)b[i]);
        double seconds = SEND0(double, cb, "GPUEndTime") - SEND0(double, cb, "GPUStartTime");
        assert_true(seconds > 99e-6 && seconds < 101e-6);
        release(p);
        end(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_launch_gives_the_kernels_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
