/* test_host.c: the host's part of a Metal step, in seconds: a small step with every kind of launch, in worlds chosen so
 * that a mistake in the backend shows: many short command buffers, failures, other families and systems. What
 * tests/metal/mutants.list plants is found here.
 *
 * Owns:      the step and the worlds. Does not:  train for long: test_metal does. */
#define _XOPEN_SOURCE 700 /* setenv, realpath */
#include <anneal.h>       /* first: the library's own headers switch its short names off */

#include "metal/standin/load.h"

#include "base/base.h"
#include "base/map.h"
#include "device/device.h"

#include <anneal_tools.h>
#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const standin_api *mac;
enum { B = 2, T = 6, C = 8, V = 7, ODD = 13, STEPS = 3 };

/* A norm, attention with dropout, a linear head with a long sum, an update; a sort; states of 4-byte words and of
 * bytes; an empty tensor. */
static an_tensor *build(an_ctx *cx, int step)
{
    int32_t x[B * T], y[B * T];
    for (int i = 0; i < B * T; i++) x[i] = (step * 5 + i * 3) % V, y[i] = (step + i) % V;
    an_set_step(cx, (uint64_t)step);
    an_tensor *table = an_param(cx, "table", AN_F32, AN_SHAPE(V, C), AN_NORMAL(0.5));
    an_tensor *qkv = an_param(cx, "qkv", AN_F32, AN_SHAPE(3 * C, C), AN_NORMAL(0.5));
    an_tensor *gain = an_param(cx, "gain", AN_F32, AN_SHAPE(C), AN_ONES);
    an_tensor *wide = an_param(cx, "wide", AN_F32, AN_SHAPE(C, 40), AN_NORMAL(0.2));
    an_tensor *h = an_gather(table, an_input(cx, AN_I32, AN_SHAPE(B, T), x)), *part[3]; /* [B,T,C] */
    h = an_layer_norm(h, gain, NULL, 1e-5);
    an_tensor *all = an_reshape(an_cast(an_linear(h, qkv, NULL), AN_F32), AN_SHAPE(B, T, 3, 2, C / 2));
    for (int i = 0; i < 3; i++)
        part[i] = an_reshape(an_permute(an_slice(all, 2, i, i + 1), AN_SHAPE(0, 3, 1, 4, 2)), AN_SHAPE(B, 2, T, C / 2));
    h = an_add(h, an_reshape(an_permute(an_cast(an_attention(part[0], part[1], part[2], 0, true, 0.2), AN_F32),
                                        AN_SHAPE(0, 2, 1, 3)),
                             AN_SHAPE(B, T, C)));
    h = an_add(h, an_matmul(an_gelu(an_matmul(h, wide)), an_transpose(wide, 0, 1)));
    an_tensor *logits = an_cast(an_linear(h, table, NULL), AN_F32);
    an_tensor *labels = an_input(cx, AN_I32, AN_SHAPE(B, T), y);
    an_tensor *loss = an_mean(an_cross_entropy(logits, labels), AN_ALL);
    an_backward(loss);
    an_adamw(cx,
             ((an_adamw_options){
                 .lr = 0.05, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip = 1, .t = step + 1}));
    an_tensor *a = an_state(cx, "words", AN_F32, AN_SHAPE(T, C), AN_UNIFORM(-1, 1));
    an_tensor *b = an_state(cx, "copied", AN_F32, AN_SHAPE(T, C), AN_ZEROS);
    an_tensor *u = an_state(cx, "bytes", AN_U8, AN_SHAPE(ODD), AN_UNIFORM(0, 200));
    an_tensor *w = an_state(cx, "copied bytes", AN_U8, AN_SHAPE(ODD), AN_ZEROS);
    an_assign(b, a);
    an_assign(w, u);
    an_assign(a, an_sort(an_add(a, an_reshape(an_slice(h, 0, B - 1, B), AN_SHAPE(T, C))), false, NULL));
    return loss;
}

/* ---- worlds */

static void world(const char *settings)
{
    if (!mac) mac = standin_load(""); /* skips the test where it cannot be had */
    const char *why = mac->configure(settings);
    if (why) fail_msg("stand-in: %s", why);
}

static void nothing_was_wrong(const char *settings)
{
    char leaks[2000];
    standin_counts c;
    for (int i = 0; mac->misuse(i); i++) print_error("stand-in: %s\n", mac->misuse(i));
    assert_int_equal(mac->misuses(), 0);
    mac->counts(&c);
    if (c.unread_errors) fail_msg("with %s the status of a failed command buffer was never read", settings);
    if (mac->leaks(leaks, sizeof leaks)) fail_msg("with %s objects are alive at the end:\n%s", settings, leaks);
}

typedef struct outcome {
    an_status status;
    uint64_t hash;
    standin_counts warm; /* of the steps after the first */
    char sentence[1024];
} outcome;

static uint64_t hash_state(an_ctx *cx)
{
    static char data[64 << 10];
    uint64_t hash = 1;
    for (int i = 0; i < an_persist_count(cx); i++) {
        an_persist p;
        assert_int_equal(an_persist_get(cx, i, &p), AN_OK);
        size_t bytes = an_dtype_size(p.dtype);
        for (int k = 0; k < p.shape.rank; k++) bytes *= (size_t)p.shape.dim[k];
        assert_true(bytes <= sizeof data);
        assert_int_equal(an_persist_read(cx, i, data, bytes), AN_OK);
        hash = an_hash(data, bytes, hash);
    }
    return hash;
}

static void note(const an_ctx *cx, outcome *o)
{
    if (o->status != AN_OK || !an_error(cx)) return;
    o->status = an_error_status(cx);
    snprintf(o->sentence, sizeof o->sentence, "%s", an_error(cx));
}

/* With `quiet` only the last loss is read, so that steps are under way together. */
static outcome run_as(const char *device, int steps, bool exact, bool quiet)
{
    outcome o = {.status = AN_OK};
    standin_counts before = {0};
    an_ctx *cx = an_open(&(an_options){.device = device, .seed = 5, .threads = 1, .cc = "none", .exact = exact});
    if (!exact) an_set_policy(cx, (an_policy){.matmul = AN_BF16});
    for (int s = 0; s < steps && !an_error(cx) && o.status == AN_OK; s++) {
        if (s == 1 && mac) mac->counts(&before);
        an_tensor *loss = build(cx, s);
        const double value = an_eval(loss) == AN_OK && (!quiet || s == steps - 1) ? an_item(loss) : 0;
        o.hash = an_hash(&value, sizeof value, o.hash);
        note(cx, &o);
        an_reset(cx);
    }
    if (mac) {
        mac->counts(&o.warm);
        uint64_t *w = (uint64_t *)&o.warm, *b = (uint64_t *)&before;
        for (size_t i = 0; i < sizeof before / sizeof *b; i++) w[i] -= b[i];
    }
    note(cx, &o);
    if (o.status == AN_OK) o.hash ^= hash_state(cx);
    an_close(cx);
    return o;
}

static outcome run(const char *device, int steps)
{
    return run_as(device, steps, true, false);
}

/* Products of bf16 are on matrix instructions, which such a GPU refuses as a pipeline. */
static void a_gpu_without_matrices_is_not_given_any(void **state)
{
    (void)state;
    world("gpu=paravirtual,kernels=fast");
    const outcome o = run_as("metal", 2, false, false);
    if (o.status != AN_OK) fail_msg("%s", o.sentence);
    nothing_was_wrong("gpu=paravirtual");
}

static void every_world_has_the_cpus_bits(void **state)
{
    (void)state;
    static const char *const worlds[] = {"gpu=apple7,when=random",
                                         "gpu=apple8,macos=13,kernels=fast,when=early",
                                         "gpu=paravirtual,macos=14,kernels=fast",
                                         "gpu=apple5,when=random,seed=2",                 /* no shuffles */
                                         "gpu=paravirtual,kernels=fast,edit=4096u>4095u", /* shuffles of other lanes */
                                         "gpu=apple10,macos=26,kernels=fast,launch_us=12000,seed=3"};
    world("");
    const outcome cpu = run("cpu", STEPS);
    if (cpu.status != AN_OK) fail_msg("%s", cpu.sentence);
    for (size_t i = 0; i < AN_COUNT(worlds); i++) {
        world(worlds[i]);
        const outcome gpu = run("metal", STEPS);
        if (gpu.status != AN_OK) fail_msg("%s: %s", worlds[i], gpu.sentence);
        if (gpu.hash != cpu.hash) fail_msg("%s: other bits than the CPU's", worlds[i]);
        nothing_was_wrong(worlds[i]);
    }
}

/* The gate is a kernel too: the pipelines before it and behind it may be the same one, and must be set again. */
static void an_update_by_the_kernel_that_ran_last_is_done(void **state)
{
    (void)state;
    enum { N = 48 };
    float x[N], y[N], before[N], after[N];
    for (int i = 0; i < N; i++) x[i] = 0.01f * (float)i, y[i] = -x[i];
    world("gpu=apple7,kernels=fast");
    an_ctx *cx = an_open(&(an_options){.device = "metal", .cc = "none"});
    an_tensor *kept = an_state(cx, "kept", AN_F32, AN_SHAPE(N), AN_ZEROS);
    an_tensor *seen = an_exp(an_input(cx, AN_F32, AN_SHAPE(N), x)); /* [N] */
    an_assign(kept, an_exp(an_input(cx, AN_F32, AN_SHAPE(N), y)));
    assert_int_equal(an_eval(seen), AN_OK);
    assert_int_equal(an_launch_count(cx), 2);
    assert_int_equal(an_read(seen, before, sizeof before), AN_OK);
    assert_int_equal(an_persist_read(cx, an_persist_find(cx, "kept"), after, sizeof after), AN_OK);
    for (int i = 0; i < N; i++) assert_true(fabsf(before[i] * after[i] - 1) < 1e-5f && (i == 0 || after[i] < 1));
    an_reset(cx);
    an_close(cx);
    nothing_was_wrong("gpu=apple7");
}

/* A launch of 12 ms: after the first step about three go into a command buffer; a short one: all in one. */
static void command_buffers_are_as_long_as_a_display_bears(void **state)
{
    (void)state;
    world("gpu=apple7,kernels=none,launch_us=12000");
    const outcome slow = run("metal", STEPS);
    assert_int_equal(slow.status, AN_OK);
    const uint64_t launches = slow.warm.launches / (STEPS - 1);
    assert_in_range(slow.warm.commits, (STEPS - 1) * launches / 6, (STEPS - 1) * launches / 2);
    nothing_was_wrong("launch_us=12000");
    world("gpu=apple7,kernels=none,launch_us=10");
    const outcome quick = run("metal", STEPS);
    assert_int_equal(quick.warm.commits, STEPS - 1);
    assert_int_equal(quick.warm.encoders, quick.warm.commits);
    assert_int_equal(quick.warm.waits + quick.warm.blits + quick.warm.buffers_made + quick.warm.pipelines, 0);
    nothing_was_wrong("launch_us=10");
}

/* Failures among many command buffers of several steps: before an update nothing is lost, in it the run stops, behind
 * it all is done. */
static void fail_everywhere(const char *slow, int steps, bool quiet)
{
    static const char *const forms[] = {"nothing", "prefix", "all"};
    standin_counts c;
    world(slow);
    const outcome calm = run_as("metal", steps, true, quiet);
    assert_int_equal(calm.status, AN_OK);
    mac->counts(&c);
    const int n = (int)c.commits;
    int recovered = 0, stopped = 0, tried = 0;
    assert_true(n > 8);
    for (int j = 1; j <= n; j += quiet ? 2 : 1, tried++) {
        char settings[160];
        snprintf(settings, sizeof settings, "%s,seed=%d,fault=commit:%d:%s:timeout", slow, j, j,
                 forms[(j + j / 3) % 3]);
        world(settings);
        const outcome o = run_as("metal", steps, true, quiet);
        if (o.status == AN_OK) {
            if (o.hash != calm.hash) fail_msg("with %s the state is another", settings);
            recovered++;
        } else {
            if (o.status != AN_E_DEVICE || !strstr(o.sentence, "the parameters in memory are torn"))
                fail_msg("with %s: %s", settings, o.sentence);
            stopped++;
        }
        nothing_was_wrong(settings);
    }
    print_message("# %d failures: %d recovered, %d stopped the run\n", tried, recovered, stopped);
    assert_true(recovered >= tried * 3 / 4 && stopped >= 1);
}

static void a_failure_anywhere_is_recovered_or_said(void **state)
{
    (void)state;
    fail_everywhere("gpu=apple7,kernels=fast,launch_us=50000", 2, false);
}

static void a_failure_among_steps_under_way_is_recovered_or_said(void **state)
{
    (void)state;
    fail_everywhere("gpu=apple7,kernels=fast,launch_us=20000", 4, true);
}

static void what_goes_on_failing_is_tried_four_times(void **state)
{
    (void)state;
    standin_counts c;
    world("gpu=apple7,kernels=none,fault=commit:2:nothing:timeout:on");
    outcome o = run("metal", 2);
    assert_int_equal(o.status, AN_E_DEVICE);
    assert_non_null(strstr(o.sentence, "tried 4 times, with ever smaller command buffers. Nothing of this update"));
    mac->counts(&c);
    assert_in_range(c.commits, 1 + 1 + 2 + 3 + 4, 40); /* the first update, then four tries in ever smaller pieces */
    nothing_was_wrong("timeout:on");
    world("gpu=apple7,kernels=none,fault=commit:2:nothing:removed:on");
    o = run("metal", 2);
    assert_non_null(strstr(o.sentence, "the GPU was taken away, so it is not tried again. Nothing of this update"));
    mac->counts(&c);
    assert_int_equal(c.commits, 1 + 1);
    nothing_was_wrong("removed:on");
}

/* macOS ends command buffers that make the display stutter, for as long as something else keeps the GPU busy. Seven in a
 * row are more than any other failure is repeated. */
static void the_display_watchdog_is_waited_out(void **state)
{
    (void)state;
    char settings[400] = "gpu=apple7,kernels=fast,fault=commit:2:nothing:interactivity";
    world("gpu=apple7,kernels=fast");
    const outcome calm = run("metal", 2);
    assert_int_equal(calm.status, AN_OK);
    for (int j = 3; j <= 24; j++) {
        const size_t n = strlen(settings);
        snprintf(settings + n, sizeof settings - n, "+commit:%d:nothing:interactivity", j);
        if (strlen(settings) > 360) break;
    }
    world(settings);
    const outcome o = run("metal", 2);
    if (o.status != AN_OK) fail_msg("%s", o.sentence);
    assert_true(o.hash == calm.hash);
    nothing_was_wrong("interactivity");
}

static void a_watchdog_that_does_not_end_is_a_sentence_with_remedies(void **state)
{
    (void)state;
    setenv("ANNEAL_METAL_RETRY", "0.5", 1);
    world("gpu=apple7,kernels=none,fault=commit:2:nothing:interactivity:on");
    const outcome o = run("metal", 2);
    unsetenv("ANNEAL_METAL_RETRY");
    assert_int_equal(o.status, AN_E_DEVICE);
    assert_non_null(
        strstr(o.sentence, "let the display sleep while training, or set AGX_RELAX_CDM_CTXSTORE_TIMEOUT=1"));
    assert_non_null(strstr(o.sentence, "Nothing of this update was written"));
    nothing_was_wrong("interactivity:on");
    setenv("ANNEAL_METAL_RETRY", "soon", 1);
    assert_non_null(strstr(run("metal", 1).sentence, "ANNEAL_METAL_RETRY is soon; it is seconds"));
    unsetenv("ANNEAL_METAL_RETRY");
}

/* A Mac that sleeps, or a process that is stopped, has as long for a command buffer as ever: the limit is in time awake. */
static void time_asleep_does_not_count_as_hanging(void **state)
{
    (void)state;
    int status = 0;
    world("gpu=apple7,kernels=none");
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        struct timespec from, to;
        setenv("ANNEAL_METAL_TIMEOUT", "2", 1);
        mac->configure("gpu=apple7,kernels=none,fault=hang:1");
        clock_gettime(CLOCK_MONOTONIC, &from);
        const outcome o = run("metal", 1);
        clock_gettime(CLOCK_MONOTONIC, &to);
        _exit(!strstr(o.sentence, "hangs") ? 3 : to.tv_sec - from.tv_sec >= 4 ? 0 : 4);
    }
    nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL);
    kill(child, SIGSTOP);
    nanosleep(&(struct timespec){.tv_sec = 3}, NULL);
    kill(child, SIGCONT);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* In the first step, between two command buffers of a step, in front of the update and in it; more than once. */
static void a_command_buffer_that_is_not_given_is_asked_for_again(void **state)
{
    (void)state;
    static const char *const faults[] = {"commands:1", "encoder:1", "commands:3+encoder:3", "commands:7",
                                         "commands:5+commands:6+commands:7"};
    static const char slow[] = "gpu=apple7,kernels=fast,launch_us=20000";
    world(slow);
    const outcome calm = run("metal", 3);
    assert_int_equal(calm.status, AN_OK);
    for (size_t i = 0; i < AN_COUNT(faults); i++) {
        char settings[160];
        snprintf(settings, sizeof settings, "%s,fault=%s", slow, faults[i]);
        world(settings);
        const outcome o = run("metal", 3);
        if (o.status != AN_OK) fail_msg("with %s: %s", settings, o.sentence);
        if (o.hash != calm.hash) fail_msg("with %s the state is another", settings);
        nothing_was_wrong(settings);
    }
}

/* Steps are under way together: the second cannot be repeated, and the third is given no command buffer. */
static void a_step_that_failed_in_front_of_one_that_is_refused_leaks_nothing(void **state)
{
    (void)state;
    static const char both[] =
        "gpu=apple7,kernels=none,fault=commit:2:nothing:removed:on+commands:3+commands:4+commands:5+commands:6";
    world(both);
    const outcome o = run_as("metal", 4, true, true);
    assert_int_equal(o.status, AN_E_DEVICE);
    if (!strstr(o.sentence, "the GPU was taken away")) fail_msg("%s", o.sentence);
    nothing_was_wrong(both);
}

/* ---- what the driver refuses */

static void what_is_refused_is_a_sentence_and_nothing_leaks(void **state)
{
    (void)state;
    static const struct {
        const char *settings, *words;
    } cases[] = {
        {"fault=device", "gives no Metal device"},
        {"fault=queue:1", "gives no command queue"},
        {"fault=library:1", "refuses anneal's own small kernels"},
        {"fault=library:3", "Apple's compiler refuses"},
        {"fault=library:2+library:3", "Apple's compiler refuses"},
        {"fault=function:1", "has no kernel an_zero"},
        {"fault=function:9", "has no kernel"},
        {"fault=pipeline:7", "no pipeline for anneal's own"},
        {"fault=pipeline:9", "no pipeline for"},
        {"fault=buffer:1", "no memory for"},
        {"fault=buffer:4", "no memory for"},
        {"fault=commands:1+commands:2+commands:3+commands:4", "gives no command buffer (1 of 1), asked 4 times"},
        {"fault=encoder:2+encoder:3+encoder:4+encoder:5", "`anneal resume` goes on from the last checkpoint"},
        {"launch_us=12000,fault=encoder:4+encoder:5+encoder:6+encoder:7", "gives no command buffer (3 of "},
        {"working_set=8k", "smaller batch"},
        {"gpu=amd", "memory of its own"},
        {"gpu=intel", "Intel's"},
        {"macos=12.6", "macOS 12.6 is too old"},
    };
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        char settings[160];
        snprintf(settings, sizeof settings, "kernels=none,%s", cases[i].settings);
        world(settings);
        const outcome o = run("metal", 2);
        assert_int_not_equal(o.status, AN_OK);
        if (!strstr(o.sentence, cases[i].words))
            fail_msg("with %s: \"%s\" does not say \"%s\"", settings, o.sentence, cases[i].words);
        nothing_was_wrong(settings);
    }
    world("kernels=none,fault=library:2+warning:3"); /* one by one, and a warning beside a library is no failure */
    assert_int_equal(run("metal", 2).status, AN_OK);
    nothing_was_wrong("library:2");
}

/* ---- the backend's own functions */

static void memory_is_zeroed_counted_and_bounded(void **state)
{
    (void)state;
    an_err err = {0};
    an_device *d;
    an_buffer b, c;
    char bytes[300];
    const an_backend *metal = an_backend_find(&err, "metal");
    world("working_set=100k,max_buffer=80k");
    assert_int_equal(metal->open(&err, &(an_device_options){0}, &d), AN_OK);
    for (int i = 0; i < 8; i++) { /* freed memory can be allocated again */
        assert_int_equal(metal->alloc(&err, d, 70 << 10, &b), AN_OK);
        metal->free(d, &b);
        metal->free(d, &b); /* nothing */
    }
    assert_int_equal(metal->alloc(&err, d, 300, &b), AN_OK);
    assert_int_equal(metal->read(&err, d, &b, 0, bytes, 300), AN_OK);
    for (int i = 0; i < 300; i++) assert_int_equal(bytes[i], 0);
    memset(bytes, 7, sizeof bytes);
    assert_int_equal(metal->write(&err, d, &b, 100, bytes, 200), AN_OK);
    assert_int_equal(metal->read(&err, d, &b, 99, bytes, 201), AN_OK);
    assert_true(bytes[0] == 0 && bytes[1] == 7 && bytes[200] == 7);
    assert_int_equal(metal->write(&err, d, &b, 101, bytes, 200), AN_E_INTERNAL);
    assert_int_equal(metal->read(&err, d, &b, 301, bytes, 0), AN_E_INTERNAL);
    assert_int_equal(metal->alloc(&err, d, 80 << 10, &c), AN_OK); /* the largest that goes */
    metal->free(d, &c);
    for (int i = 0; i < 3; i++) { /* more is two buffers, over one memory */
        assert_int_equal(metal->alloc(&err, d, 90 << 10, &c), AN_OK);
        assert_int_equal(metal->write(&err, d, &c, (80 << 10) - 100, bytes, 200), AN_OK);
        assert_int_equal(metal->read(&err, d, &c, (80 << 10) - 101, bytes, 202), AN_OK);
        assert_true(bytes[0] == 0 && bytes[2] == 7 && bytes[200] == 7 && bytes[201] == 0);
        memset(bytes, 7, sizeof bytes);
        metal->free(d, &c);
    }
    assert_int_equal(metal->alloc(&err, d, 60 << 10, &c), AN_OK); /* two of them would not fit together */
    an_buffer e = {0};
    assert_int_equal(metal->alloc(&err, d, 60 << 10, &e), AN_E_NOMEM);
    metal->free(d, &c);
    assert_int_equal(metal->alloc(&err, d, 0, &c), AN_OK);
    metal->free(d, &c);
    metal->free(d, &b);
    assert_int_equal(metal->wait(&err, d, 1, INT64_MAX), AN_E_INTERNAL);
    metal->close(d);
    metal->close(NULL);
    nothing_was_wrong("working_set=100k");
}

static void each_launch_has_its_time_when_asked(void **state)
{
    (void)state;
    world("gpu=apple7,kernels=none,launch_us=300");
    an_ctx *cx = an_open(&(an_options){.device = "metal", .seed = 5, .cc = "none"});
    for (int s = 0; s < 4; s++) {
        an_profile(cx, s == 1 || s == 2);
        assert_int_equal(an_eval(build(cx, s)), AN_OK);
        assert_int_equal(an_synchronize(cx), AN_OK);
        an_launch l;
        for (int i = 0; i < an_launch_count(cx) && (s == 1 || s == 2); i++) {
            assert_true(an_launch_get(cx, i, &l));
            if (l.device_s < 0.29e-3 || l.device_s > 4e-3) fail_msg("%s took %g s", l.kernel, l.device_s);
            if (!strcmp(l.kind, "attention'")) assert_true(l.device_s > 4 * 0.29e-3); /* three, and the chain */
        }
        an_reset(cx);
    }
    an_close(cx);
    nothing_was_wrong("launch_us=300");
}

static void a_mac_is_kept_awake_until_the_run_ends(void **state)
{
    (void)state;
    world("gpu=apple7,misuse=record");
    void *token = an_awake_begin();
    assert_non_null(token);
    an_awake_end(token);
    an_awake_end(NULL);
    nothing_was_wrong("an activity");
}

static void a_device_is_described(void **state)
{
    (void)state;
    static const struct {
        const char *settings, *words;
    } cases[] = {{"gpu=apple7,working_set=3g", "Apple M1, Apple7, macOS 15.0, 3 GiB for the GPU"},
                 {"gpu=apple10,macos=26.1,working_set=3g", "Apple M5, Apple10, macOS 26.1, 3 GiB"},
                 {"gpu=paravirtual,macos=13", "Apple5 (no matrix instructions), macOS 13.0"},
                 {"gpu=none", "gives no Metal device"},
                 {"gpu=amd", "memory of its own"},
                 {"gpu=intel", "Intel's"}};
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        an_device_facts f;
        world(cases[i].settings);
        assert_true(an_device_find("mps", &f));
        assert_int_equal(f.available, i < 3);
        if (!strstr(f.reason, cases[i].words)) fail_msg("%s: %s", cases[i].settings, f.reason);
        nothing_was_wrong(cases[i].settings);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mac_is_kept_awake_until_the_run_ends),
        cmocka_unit_test(a_device_is_described),
        cmocka_unit_test(a_gpu_without_matrices_is_not_given_any),
        cmocka_unit_test(memory_is_zeroed_counted_and_bounded),
        cmocka_unit_test(each_launch_has_its_time_when_asked),
        cmocka_unit_test(an_update_by_the_kernel_that_ran_last_is_done),
        cmocka_unit_test(command_buffers_are_as_long_as_a_display_bears),
        cmocka_unit_test(what_is_refused_is_a_sentence_and_nothing_leaks),
        cmocka_unit_test(what_goes_on_failing_is_tried_four_times),
        cmocka_unit_test(the_display_watchdog_is_waited_out),
        cmocka_unit_test(a_watchdog_that_does_not_end_is_a_sentence_with_remedies),
        cmocka_unit_test(time_asleep_does_not_count_as_hanging),
        cmocka_unit_test(a_command_buffer_that_is_not_given_is_asked_for_again),
        cmocka_unit_test(a_step_that_failed_in_front_of_one_that_is_refused_leaks_nothing),
        cmocka_unit_test(every_world_has_the_cpus_bits),
        cmocka_unit_test(a_failure_anywhere_is_recovered_or_said),
        cmocka_unit_test(a_failure_among_steps_under_way_is_recovered_or_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
