/* test_bind.c: states over MTLBuffers that this program made itself, and parts of them (anneal_interop.h), against the stand-in, which computes: the
 * numbers are compared. That a Mac does the same is not shown by it. */
#define _XOPEN_SOURCE 700 /* setenv */
#include "lib/test.h"
#include "metal/world.h"

#include <anneal.h>
#include <anneal_interop.h>
#include "device/metal/objc.h"

enum { N = 96, BYTES = N * (int)sizeof(float), SHARED = 0, PRIVATE = 2 << 4 };

static an_ctx *open_metal(void)
{
    an_ctx *cx = an_open(&(an_options){.device = "metal", .cc = "none"});
    assert_non_null(cx);
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    return cx;
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
    if (an_eval_effects_at(AN_AT, cx) != AN_OK || an_synchronize(cx) != AN_OK) fail_msg("%s", an_error(cx));
    an_reset(cx);
}

static void refused(an_ctx *cx, an_status status, const char *word)
{
    assert_int_not_equal(status, AN_OK);
    assert_non_null(an_error(cx));
    if (!strstr(an_error(cx), word)) fail_msg("no \"%s\" in: %s", word, an_error(cx));
    an_reset(cx);
    an_error_clear(cx);
}

static void a_step_reads_and_writes_parts_of_the_callers_buffers(void **unused)
{
    (void)unused;
    world("gpu=apple8,kernels=fast");
    an_ctx *cx = open_metal();
    void *pool = an_mtl.pool_push();
    an_id device = an_mtl.create_device();
    an_id in = an_send(device_new_buffer, device, 4 * BYTES, SHARED),
          out = an_send(device_new_buffer, device, 2 * BYTES, SHARED);
    float *from = an_send0(buffer_contents, in), *to = an_send0(buffer_contents, out);
    for (int k = 0; k < 4; k++) {
        const int first = k * 16, at = (k % 2) * N; /* in elements: 64 bytes */
        for (int i = 0; i < N; i++) from[first + i] = (float)(i + 100 * k), to[at + i] = -1;
        assert_int_equal(an_bind_part(vector(cx, "in"), in, (uint64_t)first * 4, BYTES, AN_READ_ONLY), AN_OK);
        assert_int_equal(an_bind_part(vector(cx, "out"), out, (uint64_t)at * 4, BYTES, AN_READ_WRITE), AN_OK);
        step(cx);
        for (int i = 0; i < N; i++)
            if (to[at + i] != 3 * from[first + i] + 1) fail_msg("step %d, element %d: %g", k, i, (double)to[at + i]);
    }
    float x[N];
    const int out_entry = an_persist_find(cx, "out");
    assert_int_equal(an_persist_read(cx, out_entry, x, sizeof x), AN_OK);
    assert_memory_equal(x, to + N, sizeof x);
    an_release(in); /* bound still, and retained */
    an_release(out);
    step(cx);
    an_close(cx);
    an_release(device);
    an_mtl.pool_pop(pool);
    nothing_was_wrong();
}

static void what_is_no_part_of_a_shared_buffer_is_refused(void **unused)
{
    (void)unused;
    world("gpu=apple8,kernels=fast");
    an_ctx *cx = open_metal();
    void *pool = an_mtl.pool_push();
    an_id device = an_mtl.create_device();
    an_id b = an_send(device_new_buffer, device, 3 * BYTES, SHARED),
          hidden = an_send(device_new_buffer, device, BYTES, PRIVATE);
    assert_int_equal(an_bind_alignment(cx, AN_F32), 16);
    assert_int_equal(an_bind_takes(cx), AN_EXTERNAL_OBJECT);
    refused(cx, an_bind(vector(cx, "in"), hidden, BYTES, AN_READ_ONLY), "private storage");
    refused(cx, an_bind_part(vector(cx, "in"), b, 2 * BYTES + 16, BYTES, AN_READ_ONLY), "of an MTLBuffer of");
    refused(cx, an_bind_part(vector(cx, "in"), b, UINT64_MAX - 15, BYTES, AN_READ_ONLY), "of an MTLBuffer of");
    refused(cx, an_bind_part(vector(cx, "in"), b, 4, BYTES, AN_READ_ONLY), "aligned to 16");
    refused(cx, an_bind(vector(cx, "in"), b, BYTES - 4, AN_READ_ONLY), "bytes");
    assert_int_equal(an_bind(vector(cx, "in"), b, BYTES, AN_READ_ONLY), AN_OK);
    refused(cx, an_bind_part(vector(cx, "out"), b, BYTES - 16, BYTES, AN_READ_WRITE), "overlaps");
    assert_int_equal(an_bind_part(vector(cx, "out"), b, BYTES, BYTES, AN_READ_WRITE), AN_OK);
    step(cx);
    refused(cx, an_stream_wait(cx, 0), "no streams");
    assert_int_equal(an_stream(cx), 0);
    assert_int_equal(an_bind(vector(cx, "in"), NULL, 0, AN_READ_ONLY), AN_OK); /* its own again, filled with 7 */
    step(cx);
    const float *y = an_send0(buffer_contents, b);
    for (int i = 0; i < N; i++) assert_true(y[N + i] == 22);
    an_close(cx);
    an_release(b);
    an_release(hidden);
    an_release(device);
    an_mtl.pool_pop(pool);
    nothing_was_wrong();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_reads_and_writes_parts_of_the_callers_buffers),
        cmocka_unit_test(what_is_no_part_of_a_shared_buffer_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
