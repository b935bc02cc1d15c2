/* test_standin_misuse.c: each thing that the stand-in calls a misuse is found, with the words that a person needs; and
 * the right way beside it is not. What a Mac would do instead is undefined, or the end of the program. */
#define _GNU_SOURCE
#include "standin/fixture.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- objects --------------------------------------------------------------------------------------------------- */

static void a_message_to_a_freed_object(void **state)
{
    (void)state;
    fixture f = begin("misuse=record");
    object b = new_buffer(f.device, 16);
    release(b);
    SEND0(uint64_t, b, "length");
    expect(&f, "MTLBuffer length: it has been freed");
    SEND0(uint64_t, &f, "length");
    expect(&f, "is no object");
    assert_int_equal(SEND0(uint64_t, NULL, "length"), 0);
    assert_true(SEND0(double, NULL, "GPUStartTime") == 0);
    end(&f);
}

static void a_release_of_what_a_pool_owns(void **state)
{
    (void)state;
    fixture f = begin("misuse=record");
    object cb = SEND0(object, f.queue, "commandBuffer");
    release(cb);
    expect(&f, "released once more than it is owned: the rest belongs to a pool");
    SEND0(object, cb, "retain");
    release(cb);
    end(&f);
}

static void an_object_without_a_pool(void **state)
{
    (void)state;
    fixture f = begin("misuse=record");
    pool_pop(f.pool);
    object cb = SEND0(object, f.queue, "commandBuffer");
    expect(&f, "would go to a pool, and this thread has none");
    release(cb);
    f.pool = pool_push();
    end(&f);
    f = begin("misuse=record,pool=absent");
    pool_pop(f.pool);
    cb = SEND0(object, f.queue, "commandBuffer");
    release(cb);
    f.pool = pool_push();
    end(&f);
}

static void pools_out_of_order(void **state)
{
    (void)state;
    fixture f = begin("misuse=record");
    void *outer = pool_push();
    pool_push();
    pool_pop(outer);
    expect(&f, "1 pools that were pushed later are still open");
    pool_pop(outer);
    expect(&f, "no open pool of this thread");
    end(&f);
}

static void *leave_a_pool(void *pool)
{
    pool_pop(pool); /* another thread's */
    pool_push();
    return NULL;
}
static void pools_belong_to_a_thread(void **state)
{
    (void)state;
    fixture f = begin("misuse=record");
    pthread_t thread;
    pthread_create(&thread, NULL, leave_a_pool, f.pool);
    pthread_join(thread, NULL);
    assert_int_equal(f.api->misuses(), 2);
    assert_non_null(strstr(f.api->misuse(1), "a thread ends with 1 pools"));
    expect(&f, "no open pool of this thread");
    end(&f);
}

static void an_object_that_only_others_keep_alive(void **state)
{
    (void)state;
    fixture f = begin("misuse=record");
    object p = new_pipeline(f.device, kernels_text, "twice"), b = new_buffer(f.device, 256);
    object cb = SEND0(object, f.queue, "commandBuffer"), e = compute(cb);
    set_pipeline(e, p), set_buffer(e, b, 0, 0), dispatch(e, 2, 32);
    SEND0(void, e, "endEncoding");
    commit(cb);
    release(b); /* allowed: the command buffer holds it */
    assert_int_equal(f.api->misuses(), 0);
    SEND0(uint64_t, b, "length");
    expect(&f, "the host has released it");
    wait_for(cb);
    release(p);
    end(&f);
}

static void selectors_that_an_object_has_not(void **state)
{
    (void)state;
    fixture f = begin("misuse=record,macos=14");
    SEND0(void, f.queue, "endEncoding");
    expect(&f, "unrecognized selector: a MTLCommandQueue of this stand-in has no such method");
    object o = SEND0(object, class_of_name("MTLCompileOptions"), "new");
    SEND(void, (int64_t), o, "setMathMode:", 0);
    expect(&f, "MTLCompileOptions setMathMode:: unrecognized selector in macOS 14.0: it came with 15.0");
    SEND(void, (uint64_t), o, "setLanguageVersion:", 0x30002);
    object error = NULL;
    SEND(object, (object, object, object *), f.device, "newLibraryWithSource:options:error:", text_of(kernels_text), o,
         &error);
    expect(&f, "language version 3.2 in macOS 14.0");
    ((void (*)(object, const void *))message())(f.queue, "commandBuffer");
    expect(&f, "has not been registered");
    release(o);
    end(&f);
}

static void large_structs_have_their_own_entry_on_x86_64(void **state)
{
    (void)state;
    fixture f = begin("misuse=record");
#if defined(__x86_64__)
    function stret;
    standin_find("objc_msgSend_stret", &stret, sizeof stret);
    size3 s = ((size3(*)(object, const void *))stret)(f.device, selector("maxThreadsPerThreadgroup"));
    ((size3(*)(object, const void *))stret)(f.device, selector("registryID"));
    expect(&f, "objc_msgSend_stret for a method without a large struct");
    uint64_t ignored[3];
    ((void (*)(object, const void *, void *))message())(f.device, selector("maxThreadsPerThreadgroup"), ignored);
    expect(&f, "a 24-byte result needs objc_msgSend_stret");
#else
    size3 s = SEND0(size3, f.device, "maxThreadsPerThreadgroup");
#endif
    assert_true(s.width == 1024 && s.height == 1024 && s.depth == 1024);
    end(&f);
}

static void what_is_left_is_named(void **state)
{
    (void)state;
    char lines[2048];
    fixture f = begin("");
    object b = new_buffer(f.device, 16);
    release(f.a), release(f.b), release(f.queue), release(f.device);
    assert_int_equal(f.api->leaks(lines, sizeof lines), 1);
    assert_non_null(strstr(lines, "MTLBuffer owned 1 times, made by newBufferWithLength:options:"));
    release(b);
    assert_int_equal(f.api->leaks(lines, sizeof lines), 0);
    pool_pop(f.pool);
}

/* ---- buffers --------------------------------------------------------------------------------------------------- */

static void lengths_and_places_of_buffers(void **state)
{
    (void)state;
    fixture f = begin("misuse=record");
    assert_null(new_buffer(f.device, 0));
    expect(&f, "a length of 0");
    assert_null(new_buffer(f.device, 1ull << 40));
    expect(&f, "maxBufferLength");
    void *memory = aligned_alloc(65536, 65536);
    static const char *const no_copy = "newBufferWithBytesNoCopy:length:options:deallocator:";
    assert_null(
        SEND(object, (void *, uint64_t, uint64_t, void *), f.device, no_copy, (char *)memory + 4096, 16384, 0, NULL));
    expect(&f, "not whole pages of 16 KiB");
    assert_null(SEND(object, (void *, uint64_t, uint64_t, void *), f.device, no_copy, memory, 4096, 0, NULL));
    expect(&f, "not whole pages of 16 KiB");
    object b = SEND(object, (void *, uint64_t, uint64_t, void *), f.device, no_copy, memory, 65536, 0, NULL);
    assert_ptr_equal(floats(b), memory);
    release(b);
    free(memory);
    b = SEND(object, (uint64_t, uint64_t), f.device, "newBufferWithLength:options:", 64, 32);
    assert_null(floats(b)); /* Private */
    release(b);
    b = new_buffer(f.device, 100);
    assert_true(floats(b)[0] != floats(b)[0] || floats(b)[0] != 0); /* fresh memory is garbage */
    ((char *)floats(b))[100] = 1;
    release(b);
    expect(&f, "bytes behind the 100 of a buffer have been written");
    end(&f);
}

static void memory_in_flight_is_shut(void **state)
{
    (void)state;
    fixture f = begin("misuse=record");
    object p = new_pipeline(f.device, kernels_text, "add"), cb = SEND0(object, f.queue, "commandBuffer"),
           e = compute(cb);
    set_pipeline(e, p), set_buffer(e, f.a, 0, 0), set_buffer(e, f.b, 0, 1), set_bytes(e, &(uint32_t){64}, 4, 2);
    dispatch(e, 2, 32);
    SEND0(void, e, "endEncoding");
    volatile float *a = floats(f.a), *b = floats(f.b);
    b[0] = 1; /* not committed yet: allowed */
    commit(cb);
    float x = a[3]; /* what the work only reads may be read */
    assert_true(x == 3 && !f.api->misuses());
    a[3] = 4;
    expect(&f, "the host writes byte 12 of buffer  of 256 bytes, which committed work reads");
    x = b[1];
    expect(&f, "the host touches byte 4 of buffer");
    wait_for(cb);
    b[2] = a[2];
    assert_int_equal(f.api->misuses(), 0);
    release(p);
    end(&f);
}

static void a_host_that_waits_for_the_wrong_buffer_is_caught(void **state)
{
    (void)state;
    fixture f = begin("misuse=record");
    object p = new_pipeline(f.device, kernels_text, "twice");
    object first = one_launch(&f, p, 64), second = one_launch(&f, p, 64);
    commit(first), commit(second);
    wait_for(first);
    float x = *(volatile float *)floats(f.b);
    (void)x;
    expect(&f, "committed work writes and the host has not waited for");
    wait_for(second);
    release(p);
    end(&f);
}

static void the_hosts_own_memory_is_shut_too(void **state)
{
    (void)state;
    fixture f = begin("misuse=record");
    volatile float *memory = aligned_alloc(16384, 16384);
    object p = new_pipeline(f.device, kernels_text, "twice");
    object b = SEND(object, (void *, uint64_t, uint64_t, void *), f.device,
                    "newBufferWithBytesNoCopy:length:options:deallocator:", (void *)(uintptr_t)memory, 16384, 0, NULL);
    for (int i = 0; i < 64; i++) memory[i] = 3;
    object cb = SEND0(object, f.queue, "commandBuffer"), e = compute(cb);
    set_pipeline(e, p), set_buffer(e, b, 0, 0), dispatch(e, 2, 32);
    SEND0(void, e, "endEncoding");
    commit(cb);
    float x = memory[0];
    expect(&f, "committed work writes and the host has not waited for");
    wait_for(cb);
    x = memory[0];
    assert_true(x == 6);
    release(b), release(p);
    free((void *)(uintptr_t)memory);
    end(&f);
}

static void two_arguments_in_one_range_are_caught(void **state)
{
    (void)state;
    fixture f = begin("misuse=record");
    object p = new_pipeline(f.device, kernels_text, "squares");
    object cb = SEND0(object, f.queue, "commandBuffer"), e = compute(cb);
    set_pipeline(e, p), set_buffer(e, f.b, 0, 0), set_buffer(e, f.b, 0, 1);
    dispatch(e, 1, 32);
    expect(&f, "squares: buffers 0 and 1 are the same memory, which the kernel may write: arguments may not alias");
    set_buffer(e, f.a, 0, 0);
    dispatch(e, 1, 32);
    SEND0(void, e, "endEncoding");
    commit(cb);
    wait_for(cb);
    release(p);
    end(&f);
}

/* Runs `body` in a child, which must end by abort after saying `words`. */
static void expect_abort(void (*body)(void), const char *words)
{
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (!child) {
        dup2(pipes[1], 2);
        signal(SIGABRT, SIG_DFL);
        body();
        _exit(0);
    }
    close(pipes[1]);
    char text[4096];
    size_t n = 0;
    for (ssize_t got; n + 1 < sizeof text && (got = read(pipes[0], text + n, sizeof text - 1 - n)) > 0;)
        n += (size_t)got;
    text[n] = 0;
    int status;
    waitpid(child, &status, 0);
    close(pipes[0]);
    if (!strstr(text, words)) fail_msg("it says: %s; expected: %s", text, words);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}
static void touch_a_freed_buffer(void)
{
    fixture f = begin("");
    object b = new_buffer(f.device, 64);
    volatile float *at = floats(b);
    release(b);
    at[0] = 1;
}
static void touch_behind_the_page(void)
{
    fixture f = begin("");
    volatile float *at = floats(f.b);
    at[4096] = 1;
}
static void commit_twice(void)
{
    fixture f = begin("");
    object cb = SEND0(object, f.queue, "commandBuffer");
    commit(cb), commit(cb);
}
static void a_misuse_ends_the_program_with_a_sentence(void **state)
{
    (void)state;
    standin_load("");
    expect_abort(touch_a_freed_buffer, "the host touches byte 0 of a buffer that has been freed");
    expect_abort(touch_behind_the_page, "the host touches memory behind buffer  of 256 bytes");
    expect_abort(commit_twice, "metal stand-in: MTLCommandBuffer commit: it has been committed before");
}

/* ---- command buffers and encoders ------------------------------------------------------------------------------ */

static void command_buffers_go_through_their_states_once(void **state)
{
    (void)state;
    fixture f = begin("misuse=record");
    object p = new_pipeline(f.device, kernels_text, "twice"), cb = SEND0(object, f.queue, "commandBuffer"),
           e = compute(cb);
    assert_null(compute(cb));
    expect(&f, "an encoder is open");
    commit(cb);
    expect(&f, "an encoder is open");
    wait_for(cb);
    expect(&f, "it has not been committed: this would wait for ever");
    SEND0(double, cb, "GPUEndTime");
    expect(&f, "the time of work that has not completed");
    SEND0(void, e, "endEncoding");
    set_pipeline(e, p);
    expect(&f, "the encoder has ended");
    SEND0(void, e, "endEncoding");
    expect(&f, "the encoder has ended");
    commit(cb);
    commit(cb);
    expect(&f, "it has been committed before");
    assert_null(compute(cb));
    expect(&f, "the command buffer has been committed");
    SEND(void, (void *), cb, "addCompletedHandler:", NULL);
    expect(&f, "a handler after commit");
    wait_for(cb);
    release(p);
    end(&f);
}

static void encoders_must_end(void **state)
{
    (void)state;
    fixture f = begin("misuse=record");
    void *pool = pool_push();
    compute(SEND0(object, f.queue, "commandBuffer"));
    pool_pop(pool);
    expect(&f, "an encoder is freed without endEncoding");
    end(&f);
}

static void a_full_queue(void **state)
{
    (void)state;
    fixture f = begin("misuse=record");
    object q = SEND(object, (uint64_t), f.device, "newCommandQueueWithMaxCommandBufferCount:", 2);
    SEND0(object, q, "commandBuffer"), SEND0(object, q, "commandBuffer");
    SEND0(object, q, "commandBuffer");
    expect(&f, "2 command buffers of this queue are under way: this would wait for ever");
    release(q);
    end(&f);
}

static void handlers_are_global_blocks(void **state)
{
    (void)state;
    fixture f = begin("misuse=record");
    object cb = SEND0(object, f.queue, "commandBuffer");
    void *block[4] = {dlsym(standin_handle(), "_NSConcreteStackBlock"), NULL, (void *)block, block};
    SEND(void, (void *), cb, "addCompletedHandler:", block);
    expect(&f, "not a global block");
    end(&f);
}

static void unretained_references_must_outlive_the_work(void **state)
{
    (void)state;
    fixture f = begin("misuse=record");
    object p = new_pipeline(f.device, kernels_text, "twice"), b = new_buffer(f.device, 256);
    object cb = SEND0(object, f.queue, "commandBufferWithUnretainedReferences"), e = compute(cb);
    set_pipeline(e, p), set_buffer(e, b, 0, 0), dispatch(e, 2, 32);
    SEND0(void, e, "endEncoding");
    commit(cb);
    release(b);
    wait_for(cb);
    expect(&f, "resource that was freed before it completed");
    release(p);
    end(&f);
}

static void failures_whose_status_was_never_read_are_counted(void **state)
{
    (void)state;
    fixture f = begin("fault=commit:1:nothing:timeout+commit:2:nothing:timeout");
    object p = new_pipeline(f.device, kernels_text, "twice");
    for (int i = 0; i < 2; i++) {
        void *pool = pool_push();
        object cb = one_launch(&f, p, 64);
        commit(cb), wait_for(cb);
        if (i) status_of(cb);
        pool_pop(pool);
    }
    standin_counts c;
    f.api->counts(&c);
    assert_int_equal(c.unread_errors, 1);
    release(p);
    end(&f);
}

/* ---- launches -------------------------------------------------------------------------------------------------- */

static void launches_are_checked_against_the_kernel(void **state)
{
    (void)state;
    fixture f = begin("misuse=record");
    object p = new_pipeline(f.device, kernels_text, "add"), lent = new_pipeline(f.device, kernels_text, "lent");
    object cb = SEND0(object, f.queue, "commandBuffer"), e = compute(cb);
    dispatch(e, 1, 32);
    expect(&f, "no pipeline is set");
    set_pipeline(e, p), set_buffer(e, f.a, 0, 0), set_buffer(e, f.b, 0, 1);
    dispatch(e, 1, 32);
    expect(&f, "add: buffer 2 is not set");
    set_bytes(e, &(uint16_t){1}, 2, 2);
    dispatch(e, 1, 32);
    expect(&f, "add: 2 bytes at 2, its type has 4");
    set_bytes(e, &(uint32_t){1}, 4, 2);
    dispatch(e, 0, 32);
    expect(&f, "a grid of 0 x 1 x 1");
    dispatch(e, (uint64_t)-1, 32);
    expect(&f, "an int that was not widened?");
    dispatch(e, 1, 1025);
    expect(&f, "1025 x 1 x 1 threads a threadgroup; add takes 1024");
    dispatch(e, 1, 0);
    expect(&f, "0 x 1 x 1 threads");
    set_bytes(e, &(float){1}, 4, 1);
    dispatch(e, 1, 32);
    expect(&f, "add: bytes at 1, where the kernel may write");
    set_buffer(e, f.a, 256, 0);
    expect(&f, "offset 256 of a buffer of 256 bytes");
    set_buffer(e, f.a, 2, 0);
    expect(&f, "offset 2 is no multiple of 4");
    set_buffer(e, f.a, 0, 31);
    expect(&f, "index 31; the last is 30");
    set_buffer(e, f.queue, 0, 0);
    expect(&f, "the buffer is a MTLCommandQueue, not a MTLBuffer");
    set_bytes(e, kernels_text, 4097, 2);
    expect(&f, "4097 bytes");
    set_bytes(e, kernels_text, 0, 2);
    expect(&f, "0 bytes");
    set_pipeline(e, lent), set_buffer(e, f.b, 0, 0);
    dispatch(e, 1, 64);
    expect(&f, "lent: threadgroup memory 0 has no length");
    SEND(void, (uint64_t, uint64_t), e, "setThreadgroupMemoryLength:atIndex:", 100, 0);
    expect(&f, "a multiple of 16");
    SEND0(void, e, "endEncoding");
    release(p), release(lent);
    end(&f);
}

static void other_gpus_align_offsets_to_32(void **state)
{
    (void)state;
    fixture f = begin("misuse=record,gpu=amd");
    object cb = SEND0(object, f.queue, "commandBuffer"), e = compute(cb);
    set_buffer(e, f.a, 32, 0);
    assert_int_equal(f.api->misuses(), 0);
    set_buffer(e, f.a, 16, 0);
    expect(&f, "offset 16 is no multiple of 32");
    SEND0(void, e, "endEncoding");
    end(&f);
}

static void managed_memory_is_two_memories_on_a_discrete_gpu(void **state)
{
    (void)state;
    fixture f = begin("gpu=amd");
    object p = new_pipeline(f.device, kernels_text, "twice");
    object b = SEND(object, (uint64_t, uint64_t), f.device, "newBufferWithLength:options:", 256, 16);
    for (int i = 0; i < 64; i++) floats(b)[i] = 1;
    SEND(void, (range), b, "didModifyRange:", ((range){0, 128})); /* the other half is never told */
    for (int synchronize = 0; synchronize < 2; synchronize++) {
        object cb = SEND0(object, f.queue, "commandBuffer"), e = compute(cb);
        set_pipeline(e, p), set_buffer(e, b, 0, 0), dispatch(e, 2, 32);
        SEND0(void, e, "endEncoding");
        if (synchronize) {
            e = SEND0(object, cb, "blitCommandEncoder");
            SEND(void, (object), e, "synchronizeResource:", b);
            SEND0(void, e, "endEncoding");
        }
        commit(cb), wait_for(cb);
        assert_true(floats(b)[0] == (synchronize ? 4.0f : 1.0f));
    }
    assert_true(floats(b)[40] != 4.0f);
    release(b), release(p);
    end(&f);
}

/* ---- hazards and kernels --------------------------------------------------------------------------------------- */

static void concurrent(fixture *f, bool barrier)
{
    object twice = new_pipeline(f->device, kernels_text, "twice"), more = new_pipeline(f->device, kernels_text, "more");
    object cb = SEND0(object, f->queue, "commandBuffer");
    object e = SEND(object, (uint64_t), cb, "computeCommandEncoderWithDispatchType:", 1);
    set_buffer(e, f->b, 0, 0);
    set_pipeline(e, twice), dispatch(e, 2, 32);
    if (barrier) SEND(void, (uint64_t), e, "memoryBarrierWithScope:", 1);
    set_pipeline(e, more), dispatch(e, 2, 32);
    SEND0(void, e, "endEncoding");
    commit(cb), wait_for(cb);
    release(twice), release(more);
}
static void launches_of_a_concurrent_encoder_have_no_order(void **state)
{
    (void)state;
    fixture f = begin("misuse=record");
    concurrent(&f, false);
    expect(&f, "their order matters");
    concurrent(&f, true);
    end(&f);
}

static void untracked_buffers_need_a_fence_between_encoders(void **state)
{
    (void)state;
    fixture f = begin("misuse=record");
    object p = new_pipeline(f.device, kernels_text, "twice"), fence = SEND0(object, f.device, "newFence");
    object b = SEND(object, (uint64_t, uint64_t), f.device, "newBufferWithLength:options:", 256, 256);
    for (int fenced = 0; fenced < 2; fenced++) {
        object cb = SEND0(object, f.queue, "commandBuffer");
        for (int i = 0; i < 2; i++) {
            object e = compute(cb);
            if (fenced) SEND(void, (object), e, "waitForFence:", fence);
            set_pipeline(e, p), set_buffer(e, b, 0, 0), dispatch(e, 2, 32);
            SEND(void, (object), e, "updateFence:", fence);
            SEND0(void, e, "endEncoding");
        }
        commit(cb), wait_for(cb);
        if (!fenced) expect(&f, "an untracked buffer is used in an encoder that has waited for no fence");
    }
    release(b), release(p), release(fence);
    end(&f);
}

static void kernels_are_watched_while_they_run(void **state)
{
    (void)state;
    fixture f = begin("misuse=record");
    static const char *const cases[][2] = {{"beyond", "outside every buffer"}, {"raced", "race in threadgroup memory"}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        object p = new_pipeline(f.device, kernels_text, cases[k][0]), cb = one_launch(&f, p, 64);
        commit(cb), wait_for(cb);
        expect(&f, cases[k][1]);
        release(p);
    }
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_to_a_freed_object),
        cmocka_unit_test(a_release_of_what_a_pool_owns),
        cmocka_unit_test(an_object_without_a_pool),
        cmocka_unit_test(pools_out_of_order),
        cmocka_unit_test(pools_belong_to_a_thread),
        cmocka_unit_test(an_object_that_only_others_keep_alive),
        cmocka_unit_test(selectors_that_an_object_has_not),
        cmocka_unit_test(large_structs_have_their_own_entry_on_x86_64),
        cmocka_unit_test(what_is_left_is_named),
        cmocka_unit_test(lengths_and_places_of_buffers),
        cmocka_unit_test(memory_in_flight_is_shut),
        cmocka_unit_test(a_host_that_waits_for_the_wrong_buffer_is_caught),
        cmocka_unit_test(the_hosts_own_memory_is_shut_too),
        cmocka_unit_test(two_arguments_in_one_range_are_caught),
        cmocka_unit_test(a_misuse_ends_the_program_with_a_sentence),
        cmocka_unit_test(command_buffers_go_through_their_states_once),
        cmocka_unit_test(encoders_must_end),
        cmocka_unit_test(a_full_queue),
        cmocka_unit_test(handlers_are_global_blocks),
        cmocka_unit_test(unretained_references_must_outlive_the_work),
        cmocka_unit_test(failures_whose_status_was_never_read_are_counted),
        cmocka_unit_test(launches_are_checked_against_the_kernel),
        cmocka_unit_test(other_gpus_align_offsets_to_32),
        cmocka_unit_test(managed_memory_is_two_memories_on_a_discrete_gpu),
        cmocka_unit_test(launches_of_a_concurrent_encoder_have_no_order),
        cmocka_unit_test(untracked_buffers_need_a_fence_between_encoders),
        cmocka_unit_test(kernels_are_watched_while_they_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
