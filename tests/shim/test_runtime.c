/* test_runtime.c: the shim finds what it promises to find. Each kernel has one mistake that often goes unnoticed on a
 * GPU. */
#include "kernel_text.h"
#include "shim_build.h"

#define HEAD                                                                                                           \
    "#include <metal_stdlib>\nusing namespace metal;\n"                                                                \
    "[[kernel]] void k(device float *out [[buffer(0)]], uint3 g [[threadgroup_position_in_grid]], "                    \
    "uint t [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]], "                                \
    "uint sub [[simdgroup_index_in_threadgroup]])\n{ AN_SHARED_STORAGE float s[64];\n"

static shim_report run(const char *body, unsigned threads, size_t floats, float *out)
{
    char text[4096];
    snprintf(text, sizeof text, HEAD "%s\n}", body);
    shim_object o = shim_build(text, 310);
    float *memory = calloc(floats, sizeof(float));
    assert_non_null(memory);
    shim_launch l = {
        .groups = {2, 1, 1}, .threads = threads, .seed = 42, .buffers = {{memory, floats * sizeof(float)}}};
    shim_report r = shim_launch_kernel(o, "k", &l);
    if (out) memcpy(out, memory, floats * sizeof(float));
    free(memory);
    shim_unload(o);
    return r;
}

static void check_finds(const char *body, const char *sentence)
{
    shim_report r = run(body, 64, 128, NULL);
    if (!r.faults) fail_msg("nothing was found in: %s", body);
    if (!strstr(r.first, sentence)) fail_msg("found \"%s\", not \"%s\"", r.first, sentence);
}

static void a_correct_kernel_is_clean_and_right(void **state)
{
    (void)state;
    float out[128];
    shim_report r =
        run("s[t] = float(t); threadgroup_barrier(mem_flags::mem_threadgroup); out[g.x * 64 + t] = s[63 - t];", 64, 128,
            out);
    if (r.faults) fail_msg("%s", r.first);
    for (int i = 0; i < 128; i++) assert_true(out[i] == (float)(63 - i % 64));
    assert_true(r.switches >= 128);
}

static void a_missing_barrier_is_found(void **state)
{
    (void)state;
    check_finds("s[t] = float(t); out[g.x * 64 + t] = s[63 - t];", "race in threadgroup memory");
}

static void a_missing_barrier_after_a_read_is_found(void **state)
{
    (void)state;
    check_finds("s[t] = 0.0f; threadgroup_barrier(mem_flags::mem_threadgroup); float x = s[63 - t]; s[t] = x; out[g.x "
                "* 64 + t] = x;",
                "race in threadgroup memory: ");
}

static void a_simdgroup_barrier_does_not_order_two_simdgroups(void **state)
{
    (void)state;
    check_finds("s[t] = float(t); simdgroup_barrier(mem_flags::mem_threadgroup); out[g.x * 64 + t] = s[63 - t];",
                "race in threadgroup memory");
}

static void a_simdgroup_barrier_orders_one_simdgroup(void **state)
{
    (void)state;
    shim_report r =
        run("s[t] = float(t); simdgroup_barrier(mem_flags::mem_threadgroup); out[g.x * 64 + t] = s[t ^ 31];", 64, 128,
            NULL);
    if (r.faults) fail_msg("%s", r.first);
}

static void lanes_without_a_barrier_race_also_within_a_simdgroup(void **state)
{
    (void)state;
    check_finds("s[t] = float(t); out[g.x * 64 + t] = s[t ^ 1];", "race in threadgroup memory");
}

static void a_matrix_load_after_a_store_without_a_barrier_is_found(void **state)
{
    (void)state;
    check_finds("if (sub == 0) { simdgroup_matrix<float, 8, 8> m = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);"
                "simdgroup_store(m, s, 8ul); simdgroup_load(m, s, 8ul); simdgroup_store(m, out + g.x * 64, 8ul); }",
                "race in threadgroup memory");
}

static void an_access_past_a_buffer_is_found(void **state)
{
    (void)state;
    check_finds("out[g.x * 64 + t + 1] = 1.0f;", "writes 4 bytes outside every buffer");
}

static void two_groups_that_write_one_place_are_found(void **state)
{
    (void)state;
    check_finds("out[t] = 1.0f;", "race in device memory");
}

/* Thread t writes, thread 63 - t reads: in device memory only a barrier that names it lies between. */
#define HANDED_OVER(flags)                                                                                             \
    "out[g.x * 64 + t] = float(t); threadgroup_barrier(mem_flags::" flags ");"                                         \
    "float x = out[g.x * 64 + 63 - t]; threadgroup_barrier(mem_flags::" flags "); out[g.x * 64 + t] = x;"

static void a_barrier_of_device_memory_orders_it(void **state)
{
    (void)state;
    float out[128];
    shim_report r = run(HANDED_OVER("mem_device"), 64, 128, out);
    if (r.faults) fail_msg("%s", r.first);
    for (int i = 0; i < 128; i++) assert_true(out[i] == (float)(63 - i % 64));
}

static void a_barrier_of_threadgroup_memory_does_not_order_device_memory(void **state)
{
    (void)state;
    check_finds(HANDED_OVER("mem_threadgroup"), "race in device memory: reads");
}

static void a_write_over_what_another_lane_may_still_read_is_found(void **state)
{
    (void)state;
    check_finds("float x = out[g.x * 64]; if (t == 0) out[g.x * 64] = x + 1.0f; out[g.x * 64 + 32 + t % 32] = x;",
                "race in device memory");
#define TAKES_OVER(barrier)                                                                                            \
    "float x = out[g.x * 64 + sub * 32]; " barrier " if (lane == 0) out[g.x * 64 + sub * 32] = x + 1.0f; "             \
    "if (lane == 31) out[g.x * 64 + t] = x;"
    check_finds(TAKES_OVER(""), "race in device memory: ");
    shim_report r = run(TAKES_OVER("simdgroup_barrier(mem_flags::mem_device);"), 64, 128, NULL);
    if (r.faults) fail_msg("%s", r.first);
}

static void a_lane_reads_again_and_writes_what_others_had_read_before_a_barrier(void **state)
{
    (void)state;
#define READ_TWICE(before)                                                                                             \
    "float x = out[g.x * 64 + sub * 32]; " before " if (lane == 0) x += out[g.x * 64 + t];"                            \
    " out[g.x * 64 + t] = x;"
    shim_report r = run(READ_TWICE("simdgroup_barrier(mem_flags::mem_device);"), 64, 128, NULL);
    if (r.faults) fail_msg("%s", r.first);
    check_finds(READ_TWICE(""), "race in device memory: ");
    check_finds("float x = out[g.x * 64]; simdgroup_barrier(mem_flags::mem_device); x += out[g.x * 64 + t];"
                "out[g.x * 64 + t] = x;",
                "race in device memory: "); /* the other subgroup has passed no barrier of this one */
}

static void barriers_of_different_memories_are_not_one(void **state)
{
    (void)state;
    check_finds("if (t < 32) threadgroup_barrier(mem_flags::mem_device); else "
                "threadgroup_barrier(mem_flags::mem_threadgroup); out[g.x * 64 + t] = 1.0f;",
                "different memories");
}

static void a_barrier_that_some_threads_skip_is_found(void **state)
{
    (void)state;
    check_finds("if (t < 40) threadgroup_barrier(mem_flags::mem_threadgroup); out[g.x * 64 + t] = 1.0f;",
                "stuck at threadgroup_barrier");
}

static void a_shuffle_in_a_divergent_branch_is_found(void **state)
{
    (void)state;
    check_finds("float x = 1.0f; if (lane < 16) x = simd_shuffle_xor(x, 1); out[g.x * 64 + t] = x;",
                "stuck at simd_shuffle_xor");
}

static void different_functions_in_two_branches_are_found(void **state)
{
    (void)state;
    check_finds("float x = 1.0f; if (lane < 16) x = simd_shuffle_xor(x, 1); else x = simd_shuffle(x, 0); out[g.x * 64 "
                "+ t] = x;",
                "of its simdgroup is at simd_shuffle");
}

static void threadgroup_memory_starts_as_a_nan(void **state)
{
    (void)state;
    float out[128];
    run("out[g.x * 64 + t] = s[t];", 64, 128, out);
    for (int i = 0; i < 128; i++) assert_true(out[i] != out[i]);
}

/* The templates' own barriers are all needed: without any one kind, the shim protests. */
static void attention_without_its_barriers_is_found(void **state)
{
    (void)state;
    static const char *const removed[] = {"AN_BARRIER", "AN_SUBGROUP_BARRIER"};
    const attn_config c = {.store = KIND_F32,
                           .mul = KIND_F32,
                           .exact = 1,
                           .vec = 1,
                           .D = 16,
                           .dc = 16,
                           .forward_threads = 64,
                           .backward_threads = 64,
                           .cols = 32};
    static float q[70 * 16], o[70 * 16], lse[70];
    static uint32_t words[2];
    struct an_attn_args a = {.q = {0, 0, 16},
                             .k = {0, 0, 16},
                             .v = {0, 0, 16},
                             .o = {0, 0, 16},
                             .B = 1,
                             .H = 1,
                             .T = 70,
                             .S = 70,
                             .scale = 1,
                             .keep_scale = 1};
    for (int i = 0; i < 3; i++) {
        char defines[1024];
        attn_defines(defines, sizeof defines, &c, 0);
        char *text = kernel_text("msl", "attn_forward", defines);
        if (i < 2) { /* redefine after the dialect, before the body */
            char *body = strstr(text, "#line 1 \"src/kernels/dialect/tiles.h\""), *longer = malloc(strlen(text) + 256);
            assert_non_null(body), assert_non_null(longer);
            sprintf(longer, "%.*s#undef %s\n#define %s()\n%s", (int)(body - text), text, removed[i], removed[i], body);
            free(text), text = longer;
        }
        shim_object object = shim_build(text, 310);
        shim_launch l = {.groups = {3, 1, 1},
                         .threads = 64,
                         .seed = 9,
                         .buffers = {{q, sizeof q},
                                     {q, sizeof q},
                                     {q, sizeof q},
                                     {words, 8},
                                     {words, 8},
                                     {o, sizeof o},
                                     {lse, sizeof lse},
                                     {&a, sizeof a}}};
        shim_report r = shim_launch_kernel(object, "attn_forward", &l);
        if (i == 2)
            assert_int_equal(r.faults, 0);
        else if (!strstr(r.first, "race in threadgroup memory"))
            fail_msg("without %s: \"%s\"", removed[i], r.first);
        shim_unload(object);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_correct_kernel_is_clean_and_right),
        cmocka_unit_test(a_missing_barrier_is_found),
        cmocka_unit_test(a_missing_barrier_after_a_read_is_found),
        cmocka_unit_test(a_simdgroup_barrier_does_not_order_two_simdgroups),
        cmocka_unit_test(a_simdgroup_barrier_orders_one_simdgroup),
        cmocka_unit_test(lanes_without_a_barrier_race_also_within_a_simdgroup),
        cmocka_unit_test(a_matrix_load_after_a_store_without_a_barrier_is_found),
        cmocka_unit_test(an_access_past_a_buffer_is_found),
        cmocka_unit_test(two_groups_that_write_one_place_are_found),
        cmocka_unit_test(a_barrier_of_device_memory_orders_it),
        cmocka_unit_test(a_barrier_of_threadgroup_memory_does_not_order_device_memory),
        cmocka_unit_test(a_write_over_what_another_lane_may_still_read_is_found),
        cmocka_unit_test(a_lane_reads_again_and_writes_what_others_had_read_before_a_barrier),
        cmocka_unit_test(barriers_of_different_memories_are_not_one),
        cmocka_unit_test(a_barrier_that_some_threads_skip_is_found),
        cmocka_unit_test(a_shuffle_in_a_divergent_branch_is_found),
        cmocka_unit_test(different_functions_in_two_branches_are_found),
        cmocka_unit_test(threadgroup_memory_starts_as_a_nan),
        cmocka_unit_test(attention_without_its_barriers_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
