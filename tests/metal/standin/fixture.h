/* fixture.h: a device, a queue, two buffers of 64 floats and a few kernels, for tests of the stand-in; and what a test
 * expects it to find. */
#ifndef STANDIN_FIXTURE_H
#define STANDIN_FIXTURE_H

#include "call.h"

static const char *const kernels_text =
    "#include <metal_stdlib>\nusing namespace metal;\n#pragma METAL fp contract(off)\n"
    "kernel void add(device const float *a [[buffer(0)]], device float *b [[buffer(1)]],\n"
    "                constant uint &n [[buffer(2)]], uint i [[thread_position_in_grid]])\n"
    "{\n    if (i < n) b[i] = a[i] + b[i];\n}\n"
    "kernel void twice(device float *b [[buffer(0)]], uint i [[thread_position_in_grid]])\n{\n    b[i] *= 2.0f;\n}\n"
    "kernel void more(device float *b [[buffer(0)]], uint i [[thread_position_in_grid]])\n{\n    b[i] += 1.0f;\n}\n"
    "kernel void reversed(device float *b [[buffer(0)]], uint t [[thread_index_in_threadgroup]])\n{\n"
    "    threadgroup float x[64];\n    x[t] = b[t];\n    threadgroup_barrier(mem_flags::mem_threadgroup);\n"
    "    b[t] = x[63 - t];\n}\n"
    "kernel void raced(device float *b [[buffer(0)]], uint t [[thread_index_in_threadgroup]])\n{\n"
    "    threadgroup float x[64];\n    x[t] = b[t];\n    b[t] = x[63 - t];\n}\n"
    "kernel void lent(device float *b [[buffer(0)]], threadgroup float *x [[threadgroup(0)]],\n"
    "                 uint t [[thread_index_in_threadgroup]])\n{\n"
    "    x[t] = b[t];\n    threadgroup_barrier(mem_flags::mem_threadgroup);\n    b[t] = x[63 - t];\n}\n"
    "kernel void beyond(device float *b [[buffer(0)]], uint t [[thread_index_in_threadgroup]])\n{\n    b[t + 1] = "
    "0.0f;\n}\n"
    "kernel void places(device uint *out [[buffer(0)]], uint3 g [[threadgroup_position_in_grid]],\n"
    "                   uint3 t [[thread_position_in_threadgroup]], uint3 groups [[threadgroups_per_grid]],\n"
    "                   uint3 threads [[threads_per_threadgroup]])\n{\n"
    "    uint at = ((g.z * groups.y + g.y) * groups.x + g.x) * threads.x * threads.y * threads.z +\n"
    "              (t.z * threads.y + t.y) * threads.x + t.x;\n"
    "    out[at] = ((((g.x * 10 + g.y) * 10 + g.z) * 10 + t.x) * 10 + t.y) * 10 + t.z;\n}\n"
    "kernel void squares(device const float *a [[buffer(0)]], device float *b [[buffer(1)]])\n{\n"
    "    simdgroup_matrix<float, 8, 8> x, y;\n    simdgroup_load(x, a, 8ul);\n"
    "    y = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);\n    simdgroup_multiply_accumulate(y, x, x, y);\n"
    "    simdgroup_store(y, b, 8ul);\n}\n";

typedef struct fixture {
    const standin_api *api;
    void *pool;
    object device, queue, a, b; /* a[i] is i, b[i] is 100 */
} fixture;

static inline float *floats(object buffer)
{
    return SEND0(float *, buffer, "contents");
}

static inline fixture begin(const char *settings)
{
    fixture f = {.api = standin_load(settings), .pool = pool_push(), .device = device()};
    assert_non_null(f.device);
    f.queue = SEND0(object, f.device, "newCommandQueue");
    f.a = new_buffer(f.device, 256), f.b = new_buffer(f.device, 256);
    for (int i = 0; i < 64; i++) floats(f.a)[i] = (float)i, floats(f.b)[i] = 100;
    return f;
}

/* Everything was released: no misuse, no object with an owner. */
static inline void end(fixture *f)
{
    static char lines[4096];
    release(f->a), release(f->b), release(f->queue), release(f->device);
    pool_pop(f->pool);
    int n = f->api->leaks(lines, sizeof lines);
    if (n) fail_msg("%d objects are left: %s", n, lines);
    if (f->api->misuses()) fail_msg("%s", f->api->misuse(0));
}

/* The first misuse since the last time says this. */
static inline void expect(const fixture *f, const char *words)
{
    const char *first = f->api->misuse(0);
    if (!first) fail_msg("nothing is found; expected: %s", words);
    if (!strstr(first, words)) fail_msg("%s; expected: %s", first, words);
    f->api->forgive();
}

static inline object compute(object cb)
{
    return SEND0(object, cb, "computeCommandEncoder");
}
static inline void set_pipeline(object encoder, object pipeline)
{
    SEND(void, (object), encoder, "setComputePipelineState:", pipeline);
}
/* A command buffer with one launch on b of a kernel that takes it at 0. */
static inline object one_launch(fixture *f, object pipeline, uint64_t threads)
{
    object cb = SEND0(object, f->queue, "commandBuffer"), e = compute(cb);
    set_pipeline(e, pipeline);
    set_buffer(e, f->b, 0, 0);
    dispatch(e, 1, threads);
    SEND0(void, e, "endEncoding");
    return cb;
}
static inline void commit(object cb)
{
    SEND0(void, cb, "commit");
}
static inline void wait_for(object cb)
{
    SEND0(void, cb, "waitUntilCompleted");
}
static inline uint64_t status_of(object cb)
{
    return SEND0(uint64_t, cb, "status");
}

#endif
