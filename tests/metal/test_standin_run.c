/* test_standin_run.c: the stand-in does what Metal does: kernels run and give their numbers, in order and in time;
 * faults come when they are asked for; machines differ as they should. What it refuses is in test_standin_misuse.c. */
#include "standin/fixture.h"

static void a_launch_gives_the_kernels_numbers(void **state)
{
    (void)state;
    static const char *const settings[] = {"", "when=early", "when=random,seed=7", "kernels=fast", "macos=13,gpu=amd"};
    for (size_t s = 0; s < sizeof settings / sizeof *settings; s++) {
        fixture f = begin(settings[s]);
        object p = new_pipeline(f.device, kernels_text, "add");
        object cb = SEND0(object, f.queue, "commandBuffer"), e = compute(cb);
        set_pipeline(e, p);
        set_buffer(e, f.a, 0, 0), set_buffer(e, f.b, 0, 1), set_bytes(e, &(uint32_t){60}, 4, 2);
        dispatch(e, 2, 32);
        SEND0(void, e, "endEncoding");
        commit(cb);
        wait_for(cb);
        assert_int_equal(status_of(cb), 4);
        assert_null(SEND0(object, cb, "error"));
        const float *b = floats(f.b);
        for (int i = 0; i < 64; i++)
            if (b[i] != (i < 60 ? 100.0f + (float)i : 100.0f))
                fail_msg("%s: b[%d] is %g", settings[s], i, (double)b[i]);
        double seconds = SEND0(double, cb, "GPUEndTime") - SEND0(double, cb, "GPUStartTime");
        assert_true(seconds > 99e-6 && seconds < 101e-6);
        release(p);
        end(&f);
    }
}

static void sizes_and_places_arrive_in_order(void **state)
{
    (void)state;
    fixture f = begin("");
    object p = new_pipeline(f.device, kernels_text, "places"), out = new_buffer(f.device, 4 * 2 * 3 * 4 * 2 * 3 * 4);
    object cb = SEND0(object, f.queue, "commandBuffer"), e = compute(cb);
    set_pipeline(e, p);
    set_buffer(e, out, 0, 0);
    SEND(void, (size3, size3), e, "dispatchThreadgroups:threadsPerThreadgroup:", ((size3){2, 3, 4}),
         ((size3){4, 2, 3}));
    SEND0(void, e, "endEncoding");
    commit(cb), wait_for(cb);
    const uint32_t *at = SEND0(uint32_t *, out, "contents");
    for (uint32_t z = 0; z < 4; z++)
        for (uint32_t y = 0; y < 3; y++)
            for (uint32_t x = 0; x < 2; x++)
                for (uint32_t k = 0; k < 3; k++)
                    for (uint32_t j = 0; j < 2; j++)
                        for (uint32_t i = 0; i < 4; i++)
                            assert_int_equal(*at++, ((((x * 10 + y) * 10 + z) * 10 + i) * 10 + j) * 10 + k);
    release(out), release(p);
    end(&f);
}

static void threadgroup_memory_is_the_kernels_or_the_hosts(void **state)
{
    (void)state;
    fixture f = begin("");
    object own = new_pipeline(f.device, kernels_text, "reversed"), lent = new_pipeline(f.device, kernels_text, "lent");
    assert_int_equal(SEND0(uint64_t, own, "staticThreadgroupMemoryLength"), 256);
    assert_int_equal(SEND0(uint64_t, lent, "staticThreadgroupMemoryLength"), 0);
    object cb = SEND0(object, f.queue, "commandBuffer"), e = compute(cb);
    for (int i = 0; i < 64; i++) floats(f.b)[i] = (float)i;
    set_buffer(e, f.b, 0, 0);
    set_pipeline(e, own), dispatch(e, 1, 64);
    SEND(void, (uint64_t, uint64_t), e, "setThreadgroupMemoryLength:atIndex:", 256, 0);
    set_pipeline(e, lent), dispatch(e, 1, 64);
    set_pipeline(e, own), dispatch(e, 1, 64);
    SEND0(void, e, "endEncoding");
    commit(cb), wait_for(cb);
    for (int i = 0; i < 64; i++) assert_true(floats(f.b)[i] == (float)(63 - i));
    release(own), release(lent);
    end(&f);
}

static void a_groups_number_may_come_from_a_buffer(void **state)
{
    (void)state;
    fixture f = begin("");
    object p = new_pipeline(f.device, kernels_text, "more");
    for (uint32_t groups = 0; groups < 3; groups++) {
        uint32_t size[3] = {groups, 1, 1};
        memcpy(floats(f.a), size, sizeof size);
        for (int i = 0; i < 64; i++) floats(f.b)[i] = 0;
        object cb = SEND0(object, f.queue, "commandBuffer"), e = compute(cb);
        set_pipeline(e, p), set_buffer(e, f.b, 0, 0);
        SEND(void, (object, uint64_t, size3), e,
             "dispatchThreadgroupsWithIndirectBuffer:indirectBufferOffset:threadsPerThreadgroup:", f.a, 0,
             ((size3){32, 1, 1}));
        SEND0(void, e, "endEncoding");
        commit(cb), wait_for(cb);
        for (uint32_t i = 0; i < 64; i++) assert_true(floats(f.b)[i] == (i < 32 * groups ? 1.0f : 0.0f));
    }
    release(p);
    end(&f);
}

static void nothing_runs_before_the_host_waits_or_asks(void **state)
{
    (void)state;
    fixture f = begin("");
    standin_counts c;
    object p = new_pipeline(f.device, kernels_text, "twice");
    object first = one_launch(&f, p, 64), second = one_launch(&f, p, 64);
    commit(first), commit(second);
    f.api->counts(&c);
    assert_int_equal(c.completed, 0);
    int polls = 0;
    while (status_of(second) < 4) assert_true(++polls < 10);
    f.api->counts(&c);
    assert_true(c.completed == 2 && c.waits == 0 && c.polls == (uint64_t)polls + 1 && c.launches == 2 &&
                c.commits == 2);
    assert_true(floats(f.b)[5] == 400.0f);
    release(p);
    end(&f);
}

static void copies_and_fills(void **state)
{
    (void)state;
    fixture f = begin("");
    object cb = SEND0(object, f.queue, "commandBuffer"), e = SEND0(object, cb, "blitCommandEncoder");
    SEND(void, (object, uint64_t, object, uint64_t, uint64_t), e,
         "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:", f.a, 16, f.b, 32, 64);
    SEND(void, (object, range, uint8_t), e, "fillBuffer:range:value:", f.b, ((range){128, 64}), 0);
    SEND0(void, e, "endEncoding");
    commit(cb), wait_for(cb);
    for (int i = 0; i < 64; i++)
        assert_true(floats(f.b)[i] == (i >= 8 && i < 24 ? (float)(i - 4) : i >= 32 && i < 48 ? 0.0f : 100.0f));
    end(&f);
}

static void events_carry_values_between_queues_and_to_the_host(void **state)
{
    (void)state;
    fixture f = begin("fault=commit:3:nothing:timeout");
    static const char *const wait = "waitUntilSignaledValue:timeoutMS:";
    object p = new_pipeline(f.device, kernels_text, "twice"), other = SEND0(object, f.device, "newCommandQueue");
    object event = SEND0(object, f.device, "newSharedEvent");
    object waits = SEND0(object, other, "commandBuffer"), cb = one_launch(&f, p, 64);
    SEND(void, (object, uint64_t), waits, "encodeWaitForEvent:value:", event, 7);
    SEND(void, (object, uint64_t), cb, "encodeSignalEvent:value:", event, 7);
    commit(waits), commit(cb);
    assert_false(SEND(signed char, (uint64_t, uint64_t), event, wait, 8, 1));
    assert_true(SEND(signed char, (uint64_t, uint64_t), event, wait, 7, 1000));
    assert_int_equal(SEND0(uint64_t, event, "signaledValue"), 7);
    wait_for(waits), wait_for(cb);
    cb = one_launch(&f, p, 64); /* fails: what it would have signalled never comes */
    SEND(void, (object, uint64_t), cb, "encodeSignalEvent:value:", event, 9);
    commit(cb);
    assert_false(SEND(signed char, (uint64_t, uint64_t), event, wait, 9, 1));
    assert_int_equal(status_of(cb), 5);
    release(event), release(other), release(p);
    end(&f);
}

static void recorded_launches_are_replayed(void **state)
{
    (void)state;
    fixture f = begin("misuse=record");
    object error = NULL, library = new_library(f.device, kernels_text, &error);
    object function = SEND(object, (object), library, "newFunctionWithName:", text_of("twice"));
    object d = SEND0(object, class_of_name("MTLComputePipelineDescriptor"), "new");
    SEND(void, (object), d, "setComputeFunction:", function);
    SEND(void, (signed char), d, "setSupportIndirectCommandBuffers:", 1);
    object p = SEND(object, (object, uint64_t, object *, object *), f.device,
                    "newComputePipelineStateWithDescriptor:options:reflection:error:", d, 0, NULL, &error);
    object i = SEND0(object, class_of_name("MTLIndirectCommandBufferDescriptor"), "new");
    SEND(void, (uint64_t), i, "setCommandTypes:", 32);
    SEND(void, (uint64_t), i, "setMaxKernelBufferBindCount:", 1);
    object icb = SEND(object, (object, uint64_t, uint64_t), f.device,
                      "newIndirectCommandBufferWithDescriptor:maxCommandCount:options:", i, 2, 0);
    for (uint64_t k = 0; k < 2; k++) {
        object c = SEND(object, (uint64_t), icb, "indirectComputeCommandAtIndex:", k);
        SEND(void, (object), c, "setComputePipelineState:", p);
        SEND(void, (object, uint64_t, uint64_t), c, "setKernelBuffer:offset:atIndex:", f.b, 0, 0);
        SEND(void, (size3, size3), c, "concurrentDispatchThreadgroups:threadsPerThreadgroup:", ((size3){2, 1, 1}),
             ((size3){32, 1, 1}));
        SEND0(void, c, "setBarrier");
    }
    for (int declared = 0; declared < 2; declared++) {
        object cb = SEND0(object, f.queue, "commandBuffer"), e = compute(cb);
        if (declared) SEND(void, (object, uint64_t), e, "useResource:usage:", f.b, 3);
        SEND(void, (object, range), e, "executeCommandsInBuffer:withRange:", icb, ((range){0, 2}));
        SEND0(void, e, "endEncoding");
        if (!declared) expect(&f, "twice uses a buffer at 0 that useResource: has not declared");
        if (declared) commit(cb), wait_for(cb);
    }
    assert_true(floats(f.b)[9] == 400.0f);
    release(icb), release(i), release(p), release(d), release(function), release(library);
    end(&f);
}

static void a_residency_set_counts_its_members(void **state)
{
    (void)state;
    fixture f = begin("misuse=record");
    object error = NULL, d = SEND0(object, class_of_name("MTLResidencySetDescriptor"), "new");
    object set = SEND(object, (object, object *), f.device, "newResidencySetWithDescriptor:error:", d, &error);
    SEND(void, (object), set, "addAllocation:", f.a);
    SEND0(void, set, "requestResidency");
    expect(&f, "what was added has not been committed");
    SEND0(void, set, "commit");
    SEND(void, (object), f.queue, "addResidencySet:", set);
    assert_int_equal(SEND0(uint64_t, set, "allocationCount"), 1);
    assert_true(SEND(signed char, (object), set, "containsAllocation:", f.a) &&
                !SEND(signed char, (object), set, "containsAllocation:", f.b));
    SEND0(void, set, "endResidency");
    release(set), release(d);
    end(&f);
}

/* Apple's default is fast: a host that does not ask for safe loses its NaN. */
static void math_is_fast_unless_the_host_says_otherwise(void **state)
{
    (void)state;
    static const char *const text = "#include <metal_stdlib>\nusing namespace metal;\n"
                                    "kernel void k(device float *b [[buffer(0)]], uint i [[thread_position_in_grid]])\n"
                                    "{\n    b[i] = b[i] != b[i] ? 1.0f : 0.0f;\n}\n";
    fixture f = begin("");
    for (int safe = 0; safe < 3; safe++) {
        object options = safe ? SEND0(object, class_of_name("MTLCompileOptions"), "new") : NULL, error = NULL;
        if (safe == 1) SEND(void, (int64_t), options, "setMathMode:", 0);
        if (safe == 2) SEND(void, (signed char), options, "setFastMathEnabled:", 0);
        object library = SEND(object, (object, object, object *), f.device,
                              "newLibraryWithSource:options:error:", text_of(text), options, &error);
        object function = SEND(object, (object), library, "newFunctionWithName:", text_of("k"));
        object p =
            SEND(object, (object, object *), f.device, "newComputePipelineStateWithFunction:error:", function, &error);
        memset(floats(f.b), 0xff, 256);
        object cb = one_launch(&f, p, 64);
        commit(cb), wait_for(cb);
        assert_true(floats(f.b)[3] == (safe ? 1.0f : 0.0f));
        release(p), release(function), release(library);
        if (options) release(options);
    }
    end(&f);
}

/* ---- faults ---------------------------------------------------------------------------------------------------- */

static void a_command_buffer_fails_in_three_forms(void **state)
{
    (void)state;
    static const struct {
        const char *settings;
        int code;
        float least, most;
    } cases[] = {{"fault=commit:2:nothing:timeout", 2, 200, 200},
                 {"fault=commit:2:all:memory", 8, 400, 400},
                 {"fault=commit:2:prefix:interactivity,seed=3", 14, 200, 400},
                 {"fault=commit:2:prefix:page,seed=4", 3, 200, 400}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        fixture f = begin(cases[k].settings);
        object p = new_pipeline(f.device, kernels_text, "twice");
        for (int i = 0; i < 3; i++) {
            object cb = one_launch(&f, p, 64);
            commit(cb), wait_for(cb);
            assert_int_equal(status_of(cb), i == 1 ? 5 : 4);
            object error = SEND0(object, cb, "error");
            assert_true((error != NULL) == (i == 1));
            if (!error) continue;
            assert_int_equal(SEND0(int64_t, error, "code"), cases[k].code);
            assert_string_equal(letters_of(SEND0(object, error, "domain")), "MTLCommandBufferErrorDomain");
            for (int j = 0; j < 64; j++) assert_in_range((int)floats(f.b)[j], (int)cases[k].least, (int)cases[k].most);
        }
        release(p);
        end(&f);
    }
}

static void a_launch_may_stop_half_way(void **state)
{
    (void)state;
    int torn = 0;
    for (int seed = 1; seed < 12; seed++) {
        char settings[64];
        snprintf(settings, sizeof settings, "fault=commit:1:prefix:timeout,seed=%d", seed);
        fixture f = begin(settings);
        object p = new_pipeline(f.device, kernels_text, "more"), big = new_buffer(f.device, 16384);
        memset(floats(big), 0, 16384);
        object cb = SEND0(object, f.queue, "commandBuffer"), e = compute(cb);
        set_pipeline(e, p), set_buffer(e, big, 0, 0), dispatch(e, 64, 64);
        SEND0(void, e, "endEncoding");
        commit(cb), wait_for(cb);
        int changed = 0;
        for (int i = 0; i < 4096; i++) {
            assert_true(floats(big)[i] == 0.0f || floats(big)[i] == 1.0f);
            changed += floats(big)[i] == 1.0f;
        }
        torn += changed > 0 && changed < 4096;
        release(big), release(p);
        end(&f);
    }
    assert_true(torn > 0);
}

static void a_fault_that_stays_fails_what_follows(void **state)
{
    (void)state;
    fixture f = begin("fault=commit:1:nothing:removed:on");
    object p = new_pipeline(f.device, kernels_text, "twice");
    for (int i = 0; i < 3; i++) {
        object cb = one_launch(&f, p, 64);
        commit(cb), wait_for(cb);
        assert_int_equal(status_of(cb), 5);
    }
    assert_true(floats(f.b)[0] == 100.0f);
    standin_counts c;
    f.api->counts(&c);
    assert_int_equal(c.failed, 3);
    release(p);
    end(&f);
}

static void encoders_say_which_of_them_failed(void **state)
{
    (void)state;
    fixture f = begin("fault=commit:1:nothing:page");
    object p = new_pipeline(f.device, kernels_text, "twice");
    object d = SEND0(object, class_of_name("MTLCommandBufferDescriptor"), "new");
    SEND(void, (uint64_t), d, "setErrorOptions:", 1);
    object cb = SEND(object, (object), f.queue, "commandBufferWithDescriptor:", d), e = compute(cb);
    SEND(void, (object), e, "setLabel:", text_of("step 1"));
    set_pipeline(e, p), set_buffer(e, f.b, 0, 0), dispatch(e, 2, 32);
    SEND0(void, e, "endEncoding");
    commit(cb), wait_for(cb);
    object *key = dlsym(standin_handle(), "MTLCommandBufferEncoderInfoErrorKey");
    object info = SEND0(object, SEND0(object, cb, "error"), "userInfo");
    object all = SEND(object, (object), info, "objectForKey:", *key);
    assert_int_equal(SEND0(uint64_t, all, "count"), 1);
    object one = SEND(object, (uint64_t), all, "objectAtIndex:", 0);
    assert_string_equal(letters_of(SEND0(object, one, "label")), "step 1");
    assert_int_equal(SEND0(int64_t, one, "errorState"), 4);
    release(d), release(p);
    end(&f);
}

static void a_hang_leaves_the_status_where_it_was(void **state)
{
    (void)state;
    fixture f = begin("fault=hang:1,misuse=record");
    object p = new_pipeline(f.device, kernels_text, "twice"), cb = one_launch(&f, p, 64);
    commit(cb);
    for (int i = 0; i < 50; i++) assert_true(status_of(cb) < 4);
    assert_int_equal(f.api->misuses(), 0);
    wait_for(cb);
    expect(&f, "would wait for ever");
    f.api->configure(""); /* nothing can be given back in order after that */
}

static void creations_fail_by_number(void **state)
{
    (void)state;
    fixture f = begin("");
    object error = NULL;
    assert_null(f.api->inject("buffer:4"));
    object third = new_buffer(f.device, 64);
    assert_non_null(third);
    assert_null(new_buffer(f.device, 64));
    release(third);
    assert_null(f.api->inject("library:1"));
    assert_null(new_library(f.device, kernels_text, &error));
    assert_non_null(error);
    assert_null(f.api->inject("warning:2"));
    object library = new_library(f.device, kernels_text, &error);
    assert_true(library && error);
    assert_null(f.api->inject("function:1"));
    assert_null(SEND(object, (object), library, "newFunctionWithName:", text_of("twice")));
    object function = SEND(object, (object), library, "newFunctionWithName:", text_of("twice"));
    assert_null(f.api->inject("pipeline:1"));
    assert_null(
        SEND(object, (object, object *), f.device, "newComputePipelineStateWithFunction:error:", function, &error));
    assert_non_null(error);
    release(function), release(library);
    assert_null(f.api->inject("commands:1+encoder:1"));
    assert_null(SEND0(object, f.queue, "commandBuffer"));
    assert_null(compute(SEND0(object, f.queue, "commandBuffer")));
    assert_non_null(f.api->inject("coffee:1"));
    assert_non_null(f.api->inject("commit:1:sideways:timeout"));
    assert_null(f.api->inject("queue:2"));
    assert_null(SEND0(object, f.device, "newCommandQueue"));
    assert_null(f.api->inject("device"));
    assert_null(device());
    end(&f);
}

static void work_that_is_larger_than_the_working_set_fails(void **state)
{
    (void)state;
    fixture f = begin("memory=4m,working_set=1m,max_buffer=2m");
    object p = new_pipeline(f.device, kernels_text, "twice"), big = new_buffer(f.device, 2 << 20);
    for (int i = 0; i < 2; i++) {
        object cb = SEND0(object, f.queue, "commandBuffer"), e = compute(cb);
        set_pipeline(e, p), set_buffer(e, i ? f.b : big, 0, 0), dispatch(e, 2, 32);
        SEND0(void, e, "endEncoding");
        commit(cb), wait_for(cb);
        assert_int_equal(status_of(cb), i ? 4 : 5);
        if (!i) assert_int_equal(SEND0(int64_t, SEND0(object, cb, "error"), "code"), 8);
    }
    release(big), release(p);
    end(&f);
}

static void memory_runs_out_with_nil(void **state)
{
    (void)state;
    fixture f = begin("memory=1m,max_buffer=1m");
    object big = new_buffer(f.device, 900 << 10);
    assert_non_null(big);
    assert_null(new_buffer(f.device, 200 << 10));
    release(big);
    big = new_buffer(f.device, 900 << 10);
    assert_non_null(big);
    release(big);
    end(&f);
}

/* ---- machines -------------------------------------------------------------------------------------------------- */

static void a_text_is_compiled_as_the_version_asked_for(void **state)
{
    (void)state;
    fixture f = begin("");
    object error = NULL;
    assert_null(new_library(f.device,
                            "#include <metal_stdlib>\nusing namespace metal;\n"
                            "kernel void k(device bfloat *b [[buffer(0)]])\n{\n    b[0] = b[1];\n}\n",
                            &error));
    assert_non_null(strstr(letters_of(SEND0(object, error, "localizedDescription")), "bfloat"));
    assert_null(new_library(f.device, "kernel void k(device float *b [[buffer(0)]]) { b[0] = nothing; }", &error));
    end(&f);
}

static void machines_without_simdgroup_matrix_refuse_it_as_a_pipeline(void **state)
{
    (void)state;
    static const char *const settings[] = {"gpu=apple7", "gpu=paravirtual", "gpu=amd", "gpu=intel"};
    for (size_t s = 0; s < sizeof settings / sizeof *settings; s++) {
        fixture f = begin(settings[s]);
        object error = NULL, library = new_library(f.device, kernels_text, &error);
        assert_non_null(library);
        object function = SEND(object, (object), library, "newFunctionWithName:", text_of("squares"));
        object p =
            SEND(object, (object, object *), f.device, "newComputePipelineStateWithFunction:error:", function, &error);
        assert_true((p != NULL) == (s == 0));
        assert_true(SEND(signed char, (int64_t), f.device, "supportsFamily:", 1007) == (s == 0));
        if (p) release(p);
        release(function), release(library);
        end(&f);
    }
}

static void what_a_macos_lacks_is_not_there(void **state)
{
    (void)state;
    static const struct {
        const char *settings, *class_name, *name;
        bool class_there, there;
    } cases[] = {{"macos=14", "MTLCompileOptions", "setMathMode:", true, false},
                 {"macos=15", "MTLCompileOptions", "setMathMode:", true, true},
                 {"macos=14.4", "MTLResidencySetDescriptor", "setInitialCapacity:", false, false},
                 {"macos=15", "MTLResidencySetDescriptor", "setInitialCapacity:", true, true}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        fixture f = begin(cases[k].settings);
        object c = class_of_name(cases[k].class_name);
        assert_true((c != NULL) == cases[k].class_there);
        if (c) {
            object o = SEND0(object, c, "new");
            assert_true(SEND(signed char, (const void *), o, "respondsToSelector:", selector(cases[k].name)) ==
                        cases[k].there);
            release(o);
        }
        end(&f);
    }
}

static void encodings_are_those_of_a_runtime(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"newBufferWithLength:options:", "@32@0:8Q16Q24"},
                                          {"newBufferWithBytes:length:options:", "@40@0:8^v16Q24Q32"},
                                          {"supportsFamily:", sizeof(void *) == 8 ? NULL : ""},
                                          {"maxThreadsPerThreadgroup", "{MTLSize=QQQ}16@0:8"},
                                          {"newLibraryWithSource:options:error:", "@40@0:8@16@24^@32"}};
    fixture f = begin("");
    object (*class_of)(object);
    const void *(*method_of)(object, const void *);
    const char *(*encoding_of)(const void *);
    standin_find("object_getClass", &class_of, sizeof class_of);
    standin_find("class_getInstanceMethod", &method_of, sizeof method_of);
    standin_find("method_getTypeEncoding", &encoding_of, sizeof encoding_of);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *got = encoding_of(method_of(class_of(f.device), selector(rows[i][0])));
        if (rows[i][1]) assert_string_equal(got, rows[i][1]);
    }
    object cb = SEND0(object, f.queue, "commandBuffer"), e = compute(cb);
    assert_string_equal(encoding_of(method_of(class_of(e), selector("dispatchThreadgroups:threadsPerThreadgroup:"))),
                        "v64@0:8{MTLSize=QQQ}16{MTLSize=QQQ}40");
    SEND0(void, e, "endEncoding");
    end(&f);
}

/* ---- handlers -------------------------------------------------------------------------------------------------- */

typedef struct block {
    void *isa;
    int32_t flags, reserved;
    void (*invoke)(struct block *self, object buffer);
    const void *descriptor;
} block;
static int handled;
static void on_completed(block *self, object buffer)
{
    (void)self;
    void *pool = pool_push();
    handled += status_of(buffer) == 4;
    pool_pop(pool);
}

static void a_completed_handler_runs_once(void **state)
{
    (void)state;
    static const uint64_t descriptor[2] = {0, sizeof(block)};
    static block b = {.flags = 1 << 28, .invoke = on_completed, .descriptor = descriptor};
    fixture f = begin("");
    b.isa = dlsym(standin_handle(), "_NSConcreteGlobalBlock");
    object p = new_pipeline(f.device, kernels_text, "twice"), cb = one_launch(&f, p, 64);
    SEND(void, (block *), cb, "addCompletedHandler:", &b);
    handled = 0;
    commit(cb);
    assert_int_equal(handled, 0);
    wait_for(cb);
    assert_int_equal(handled, 1);
    release(p);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_launch_gives_the_kernels_numbers),
        cmocka_unit_test(sizes_and_places_arrive_in_order),
        cmocka_unit_test(threadgroup_memory_is_the_kernels_or_the_hosts),
        cmocka_unit_test(a_groups_number_may_come_from_a_buffer),
        cmocka_unit_test(nothing_runs_before_the_host_waits_or_asks),
        cmocka_unit_test(copies_and_fills),
        cmocka_unit_test(events_carry_values_between_queues_and_to_the_host),
        cmocka_unit_test(recorded_launches_are_replayed),
        cmocka_unit_test(a_residency_set_counts_its_members),
        cmocka_unit_test(math_is_fast_unless_the_host_says_otherwise),
        cmocka_unit_test(a_command_buffer_fails_in_three_forms),
        cmocka_unit_test(a_launch_may_stop_half_way),
        cmocka_unit_test(a_fault_that_stays_fails_what_follows),
        cmocka_unit_test(encoders_say_which_of_them_failed),
        cmocka_unit_test(a_hang_leaves_the_status_where_it_was),
        cmocka_unit_test(creations_fail_by_number),
        cmocka_unit_test(memory_runs_out_with_nil),
        cmocka_unit_test(work_that_is_larger_than_the_working_set_fails),
        cmocka_unit_test(a_text_is_compiled_as_the_version_asked_for),
        cmocka_unit_test(machines_without_simdgroup_matrix_refuse_it_as_a_pipeline),
        cmocka_unit_test(what_a_macos_lacks_is_not_there),
        cmocka_unit_test(encodings_are_those_of_a_runtime),
        cmocka_unit_test(a_completed_handler_runs_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
