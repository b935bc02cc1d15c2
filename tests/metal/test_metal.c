/* test_metal.c: the Metal backend's own object code against the strict stand-in: a GPT trains with the CPU's bits,
 * counted per step; command buffers fail, and nothing is lost or wrong; no object leaks and no rule of Metal's is
 * broken.
 *
 * Owns:      devices and refusals, steps, counts, failures.
 * Does not:  know that a Mac behaves like the stand-in: `anneal selftest --device metal` asks one.
 */
#define _XOPEN_SOURCE 700 /* setenv, strtok_r, realpath */
#include "proof/train_case.h"

#include "metal/world.h"

#include <math.h>

#include "device/device.h"
#include "device/metal/objc.h"

static const train_case tiny = {
    .B = 2, .T = 8, .C = 32, .L = 1, .H = 2, .V = 33, .matmul = AN_F32, .dropout = 0.1, .bias = true};

/* ---- the table of selectors */

static const char *const owners[] = {
#define X(name, owner, selector, result, args, encoding, need, since) #owner,
#include "device/metal/selectors.def"
#undef X
};
static const char *const selectors[] = {
#define X(name, owner, selector, result, args, encoding, need, since) selector,
#include "device/metal/selectors.def"
#undef X
};
static const char *const encodings[] = {
#define X(name, owner, selector, result, args, encoding, need, since) encoding,
#include "device/metal/selectors.def"
#undef X
};
static const char *const types[] = {
#define X(name, owner, selector, result, args, encoding, need, since) #result " " #args,
#include "device/metal/selectors.def"
#undef X
};
static const int versions[] = {
#define X(name, owner, selector, result, args, encoding, need, since) since,
#include "device/metal/selectors.def"
#undef X
};
enum { REQUIRED, OPTIONAL };
static const int needs[] = {
#define X(name, owner, selector, result, args, encoding, need, since) need,
#include "device/metal/selectors.def"
#undef X
};

/* Apple's facts: tests/metal/standin/api.def. Frameworks' plain classes are in no table of protocols: Foundation's
 * seven rows are compared with the stand-in when it registers them. */
typedef struct fact {
    const char *owner, *sign, *selector, *result, *args;
    int since;
} fact;
static const fact facts[] = {
#define METHOD(owner, kind, sign, selector, result, args, since, gone) {#owner, sign, selector, result, args, since},
#define VALUE(e, name, value)
#include "metal/standin/api.def"
#undef METHOD
#undef VALUE
};

static void every_selector_is_apples(void **state)
{
    (void)state;
    int compared = 0;
    for (size_t i = 0; i < AN_COUNT(selectors); i++) {
        if (!strncmp(owners[i], "NS", 2)) continue;
        const fact *f = NULL;
        for (size_t k = 0; k < AN_COUNT(facts) && !f; k++)
            if (!strcmp(facts[k].owner, owners[i]) && !strcmp(facts[k].selector, selectors[i])) f = &facts[k];
        if (!f) fail_msg("%s has no %s in Apple's metadata", owners[i], selectors[i]);
        char encoding[160];
        snprintf(encoding, sizeof encoding, "%s(%s)", f->result, f->args);
        assert_string_equal(encodings[i], encoding);
        assert_int_equal(versions[i], f->since);
        /* what macOS 13, the floor, may lack must be asked for before it is used */
        if (versions[i] > 1300) assert_int_equal(needs[i], OPTIONAL);
        compared++;
    }
    assert_true(compared > 30);
}

/* Enumerations: of the backend, and of Apple. */
typedef struct number {
    const char *enumeration, *name;
    int64_t value;
} number;
static const number ours[] = {
#define V(enumeration, name, value) {#enumeration, #name, value},
#include "device/metal/values.def"
#undef V
};
static const number apples[] = {
#define METHOD(owner, kind, sign, selector, result, args, since, gone)
#define VALUE(enumeration, name, value) {#enumeration, #name, value},
#include "metal/standin/api.def"
#undef METHOD
#undef VALUE
};

static void every_number_is_apples(void **state)
{
    (void)state;
    for (size_t i = 0; i < AN_COUNT(ours); i++) {
        const number *a = NULL;
        for (size_t k = 0; k < AN_COUNT(apples) && !a; k++)
            if (!strcmp(apples[k].name, ours[i].name)) a = &apples[k];
        if (!a) fail_msg("%s is not in Apple's metadata", ours[i].name);
        assert_string_equal(ours[i].enumeration, a->enumeration);
        if (ours[i].value != a->value)
            fail_msg("%s is %lld, and Apple's is %lld", a->name, (long long)ours[i].value, (long long)a->value);
    }
}

/* The encoding of a C type: the two columns of a row of selectors.def must agree. */
static const char *letters_of(const char *type)
{
    static const char *const table[][2] = {{"an_id *", "^@"},
                                           {"an_id", "@"},
                                           {"an_handler", "@?"},
                                           {"an_sel", ":"},
                                           {"uint64_t", "Q"},
                                           {"int64_t", "q"},
                                           {"an_bool", "Z"},
                                           {"double", "d"},
                                           {"void *", "^v"},
                                           {"const void *", "^v"},
                                           {"const char *", "^v"},
                                           {"void", "v"},
                                           {"an_mtl_size", "{MTLSize=QQQ}"}};
    for (size_t i = 0; i < AN_COUNT(table); i++)
        if (!strcmp(type, table[i][0])) return table[i][1];
    fail_msg("no letters for the C type %s", type);
    return "";
}

static void c_types_and_encodings_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < AN_COUNT(types); i++) {
        char built[200] = "", text[200], *save = NULL, *at = strstr(types[i], " ARGS");
        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s", (int)(at - types[i]), types[i]);
        snprintf(built, sizeof built, "%s(", letters_of(text));
        char *open = strchr(at, '(');
        snprintf(text, sizeof text, "%s", open ? open + 1 : "");
        if (open) *strrchr(text, ')') = 0;
        int n = 0;
        for (char *type = open ? strtok_r(text, ",", &save) : NULL; type; type = strtok_r(NULL, ",", &save), n++) {
            while (*type == ' ') type++;
            snprintf(built + strlen(built), sizeof built - strlen(built), "%s%s", n ? "," : "", letters_of(type));
        }
        strcat(built, ")");
        if (strcmp(built, encodings[i]))
            fail_msg("%s: the C types say %s, the encoding %s", selectors[i], built, encodings[i]);
    }
}

static const an_backend *metal(void)
{
    const an_backend *b = an_backend_find(NULL, "mps"); /* the name people know */
    assert_non_null(b);
    return b;
}

static void probe_says(const char *settings, int available, const char *reason)
{
    an_device_info info;
    world(settings);
    assert_int_equal(metal()->probe(&info), available);
    if (!strstr(info.reason, reason)) fail_msg("with %s: \"%s\" does not say \"%s\"", settings, info.reason, reason);
    nothing_was_wrong();
}

static void each_gpu_is_taken_or_refused_with_the_reason(void **state)
{
    (void)state;
    probe_says("gpu=apple7", 1, "Apple7");
    probe_says("gpu=apple9,macos=13", 1, "macOS 13.0");
    probe_says("gpu=apple10,macos=26", 1, "Apple10");
    probe_says("gpu=none", 0, "no Metal device");
    probe_says("gpu=amd", 0, "memory of its own");
    probe_says("gpu=intel", 0, "Intel");
    probe_says("gpu=paravirtual", 1, "no matrix instructions");
}

/* ---- training */

typedef struct outcome {
    an_status status;
    double loss;
    uint64_t hash;
    char sentence[1024];
} outcome;

/* Trains `steps` steps; the counts of the steps after the first go into `warm`. With READ each loss is waited for, else
 * steps are under way together, and the last one's loss is read. */
typedef enum reading { READ, BLIND } reading;
static an_status train_steps(an_err *err, an_ctx *cx, an_gpt *m, const train_case *c, int from, int n, reading how,
                             double *loss)
{
    if (how == READ) return case_train(err, cx, m, c, from, n, loss);
    an_status status = n > 1 ? case_train(err, cx, m, c, from, n - 1, NULL) : AN_OK;
    return status == AN_OK ? case_train(err, cx, m, c, from + n - 1, 1, loss) : status;
}

static outcome train_as(const char *device, const train_case *c, int steps, reading how, standin_counts *warm)
{
    const an_options o = {.device = device, .seed = 5, .threads = 1, .cc = "none", .exact = true};
    outcome out = {0};
    an_err err = {0};
    an_ctx *cx;
    an_gpt *m;
    standin_counts before = {0};
    out.status = case_open(&err, c, &o, &cx, &m);
    if (out.status == AN_OK) out.status = train_steps(&err, cx, m, c, 0, 1, BLIND, how == READ ? &out.loss : NULL);
    if (warm) mac->counts(&before);
    if (out.status == AN_OK && steps > 1) out.status = train_steps(&err, cx, m, c, 1, steps - 1, how, &out.loss);
    if (warm) {
        standin_counts after;
        mac->counts(&after);
        uint64_t *w = (uint64_t *)warm, *a = (uint64_t *)&after, *b = (uint64_t *)&before;
        for (size_t i = 0; i < sizeof after / sizeof *a; i++) w[i] = a[i] - b[i];
    }
    if (out.status == AN_OK) out.status = case_hash(&err, cx, &out.hash);
    snprintf(out.sentence, sizeof out.sentence, "%s", err.text);
    case_close(cx, m);
    return out;
}

static outcome train(const char *device, const train_case *c, int steps, standin_counts *warm)
{
    return train_as(device, c, steps, READ, warm);
}

/* Twenty steps: on an M1 with every kernel checked, on the newest, on the oldest macOS (MSL 3.0), on a virtual
 * machine's GPU. */
static void a_gpt_trains_with_the_cpus_bits(void **state)
{
    (void)state;
    enum { STEPS = 20 };
    static const char *const worlds[] = {"gpu=apple7,when=random", "gpu=apple10,macos=26,kernels=fast",
                                         "gpu=apple8,macos=13,kernels=fast,when=early", "gpu=paravirtual,kernels=fast"};
    const outcome cpu = train("cpu", &tiny, STEPS, NULL);
    assert_int_equal(cpu.status, AN_OK);
    for (size_t i = 0; i < AN_COUNT(worlds); i++) {
        world(worlds[i]);
        const outcome gpu = train("metal", &tiny, STEPS, NULL);
        if (gpu.status != AN_OK) fail_msg("%s: %s", worlds[i], gpu.sentence);
        if (cpu.loss != gpu.loss || cpu.hash != gpu.hash) fail_msg("%s: other bits than the CPU's", worlds[i]);
        nothing_was_wrong();
    }
}

static void a_warm_step_allocates_nothing_blits_nothing_and_fails_nothing(void **state)
{
    (void)state;
    enum { STEPS = 4 };
    standin_counts warm;
    world("gpu=apple8,kernels=fast");
    const outcome gpu = train("metal", &tiny, STEPS, &warm);
    if (gpu.status != AN_OK) fail_msg("%s", gpu.sentence);
    assert_int_equal(warm.buffers_made, 0);
    assert_int_equal(warm.blits, 0);
    assert_int_equal(warm.libraries, 0);
    assert_int_equal(warm.pipelines, 0);
    assert_int_equal(warm.failed, 0);
    assert_int_equal(warm.waits, 0); /* waitUntilCompleted may block for ever: never used */
    assert_true(warm.commits >= STEPS - 1 && warm.commits <= 2 * (STEPS - 1)); /* one or few a step */
    assert_int_equal(warm.encoders, warm.commits);
    assert_true(warm.launches > 0);
    nothing_was_wrong();
}

/* What a step of shakespeare_char asks of Metal, counted where kernels are not run: the table of docs/metal.md. */
static void a_step_of_shakespeare_char_is_counted(void **state)
{
    (void)state;
    enum { STEPS = 4 };
    static const train_case character = {
        .B = 64, .T = 256, .C = 384, .L = 6, .H = 6, .V = 65, .matmul = AN_F32, .dropout = 0.2};
    const an_options o = {.device = "metal", .seed = 5, .threads = 2, .cc = "none"};
    an_err err = {0};
    an_ctx *cx;
    an_gpt *m;
    an_bill before, after;
    standin_counts warm, ended;
    double loss = 0;
    world("gpu=apple8,kernels=none,launch_us=10");
    if (case_open(&err, &character, &o, &cx, &m) != AN_OK || case_train(&err, cx, m, &character, 0, 1, NULL) != AN_OK)
        fail_msg("%s", err.text);
    assert_int_equal(an_synchronize(cx), AN_OK);
    mac->counts(&warm);
    /* Before anything is measured, command buffers are sized by estimates for an M1, where this step takes 0.3 s. */
    assert_in_range(warm.commits, 5, 40);
    an_report(cx, &before);
    assert_int_equal(case_train(&err, cx, m, &character, 1, STEPS, NULL), AN_OK); /* nothing is read */
    an_report(cx, &after);
    assert_int_equal(after.waits, before.waits);
    assert_int_equal(case_train(&err, cx, m, &character, 1 + STEPS, 1, &loss), AN_OK); /* the loss is */
    an_report(cx, &after);
    assert_int_equal(after.waits, before.waits + 1);
    mac->counts(&ended);
    assert_int_equal(ended.waits, warm.waits);
    assert_int_equal(ended.blits, warm.blits);
    assert_int_equal(ended.buffers_made, warm.buffers_made);
    assert_int_equal(ended.pipelines, warm.pipelines);
    assert_int_equal(after.fallbacks, 0);
    const double launches = (double)(ended.launches - warm.launches) / (STEPS + 1),
                 buffers = (double)(ended.commits - warm.commits) / (STEPS + 1);
    print_message("# a step: %.1f dispatches for %d launches of the plan, %.1f command buffers, %.2f GiB moved, %llu "
                  "bytes from the host\n",
                  launches, after.launches, buffers, (double)after.moved_bytes / (1 << 30),
                  (unsigned long long)after.input_bytes);
    assert_true(launches >= after.launches && launches <= 1.6 * after.launches + 8);
    assert_true(buffers >= 1 && buffers <= 4);
    case_close(cx, m);
    nothing_was_wrong();
}

/* Two steps are under way: the host encodes one while the other runs, and waits once, for the number it reads. */
static void steps_are_under_way_together_and_only_a_read_waits(void **state)
{
    (void)state;
    enum { STEPS = 6 };
    static const char *const worlds[] = {"gpu=apple7,kernels=fast,when=late", "gpu=apple7,kernels=fast,when=random",
                                         "gpu=apple7,kernels=fast,when=early"};
    const an_options o = {.device = "metal", .seed = 5, .threads = 1, .cc = "none", .exact = true};
    const outcome cpu = train("cpu", &tiny, STEPS, NULL);
    for (size_t i = 0; i < AN_COUNT(worlds); i++) {
        an_err err = {0};
        an_ctx *cx;
        an_gpt *m;
        an_bill before, blind, after;
        double loss = 0, peeked = 0;
        int64_t step = -1;
        uint64_t hash;
        world(worlds[i]);
        assert_int_equal(case_open(&err, &tiny, &o, &cx, &m), AN_OK);
        assert_int_equal(case_train(&err, cx, m, &tiny, 0, 1, NULL), AN_OK);
        an_report(cx, &before);
        assert_int_equal(case_train(&err, cx, m, &tiny, 1, STEPS - 2, NULL), AN_OK);
        an_report(cx, &blind);
        assert_int_equal(blind.waits, before.waits);
        assert_true(blind.stalls - before.stalls <= STEPS - 2);
        assert_int_equal(case_train(&err, cx, m, &tiny, STEPS - 1, 1, &loss), AN_OK);
        an_report(cx, &after);
        assert_int_equal(after.waits, before.waits + 1);
        assert_true(an_peek(cx, &peeked, &step));
        assert_true(peeked == loss && step == STEPS - 1);
        assert_int_equal(case_hash(&err, cx, &hash), AN_OK);
        case_close(cx, m);
        if (loss != cpu.loss || hash != cpu.hash) fail_msg("%s: other bits than the CPU's", worlds[i]);
        nothing_was_wrong();
    }
}

/* ---- failures: command buffer j of the run, in three forms. Either the end is that of the undisturbed run, or a
 * sentence. */

typedef struct tally {
    int command_buffers, recovered, stopped;
} tally;

/* Fails each command buffer of a run of `steps`, one run a failure; `world_of` is what the runs have in common. */
static tally fail_each(const char *world_of, int steps, reading how)
{
    static const char *const forms[] = {"nothing", "prefix", "all"};
    standin_counts all;
    tally t = {0};
    world(world_of);
    const outcome calm = train_as("metal", &tiny, steps, how, NULL);
    assert_int_equal(calm.status, AN_OK);
    mac->counts(&all);
    t.command_buffers = (int)all.commits;
    for (int j = 1; j <= t.command_buffers; j++)
        for (size_t f = 0; f < AN_COUNT(forms); f++) {
            char settings[160];
            snprintf(settings, sizeof settings, "%s,seed=%d,fault=commit:%d:%s:timeout", world_of, j + 1, j, forms[f]);
            world(settings);
            const outcome o = train_as("metal", &tiny, steps, how, NULL);
            if (o.status == AN_OK) {
                if (o.hash != calm.hash) fail_msg("with %s the parameters are others", settings);
                t.recovered++;
            } else {
                assert_int_equal(o.status, AN_E_DEVICE);
                if (!strstr(o.sentence, "checkpoint")) fail_msg("with %s: %s", settings, o.sentence);
                if (strcmp(forms[f], "prefix")) fail_msg("with %s: %s", settings, o.sentence);
                t.stopped++;
            }
            nothing_was_wrong();
        }
    return t;
}

static void a_failed_command_buffer_is_repeated_or_stops_the_run(void **state)
{
    (void)state;
    tally t = fail_each("gpu=apple7,kernels=fast", 3, READ);
    assert_true(t.recovered >= 2 * t.command_buffers); /* "nothing" and "all" always are */
}

/* Long launches make a step several command buffers; the one that fails has a step behind it, which must wait for the
 * repetition. */
static void a_failure_stops_the_step_behind_it_until_it_is_repeated(void **state)
{
    (void)state;
    const tally t = fail_each("gpu=apple7,kernels=fast,launch_us=6000", 3, BLIND);
    if (t.command_buffers < 6) fail_msg("%d command buffers", t.command_buffers);
    assert_true(t.recovered >= 2 * t.command_buffers);
}

static int command_buffers_of(const char *settings, int steps)
{
    standin_counts c;
    world(settings);
    assert_int_equal(train_as("metal", &tiny, steps, BLIND, NULL).status, AN_OK);
    mac->counts(&c);
    return (int)c.commits;
}

/* A launch a command buffer: the update of step 4 is cut in two, and step 5 is queued behind it. */
static void an_update_cut_in_two_ends_the_run(void **state)
{
    (void)state;
    static const char slow[] = "gpu=apple7,kernels=fast,launch_us=60000";
    const int four = command_buffers_of(slow, 4), five = command_buffers_of(slow, 5);
    char settings[160];
    assert_true(five - four > 20);
    snprintf(settings, sizeof settings, "%s,fault=commit:%d:nothing:timeout", slow, four);
    world(settings);
    const outcome o = train_as("metal", &tiny, 5, BLIND, NULL);
    assert_int_equal(o.status, AN_E_DEVICE);
    if (!strstr(o.sentence, "are torn")) fail_msg("with %s: %s", settings, o.sentence);
    nothing_was_wrong();
}

static void a_gpu_that_goes_on_failing_is_a_sentence(void **state)
{
    (void)state;
    world("gpu=apple7,kernels=fast,fault=commit:2:nothing:timeout:on");
    outcome o = train("metal", &tiny, 4, NULL);
    assert_int_equal(o.status, AN_E_DEVICE);
    assert_non_null(strstr(o.sentence, "Nothing of this update was written"));
    nothing_was_wrong();
    world("gpu=apple7,kernels=fast,fault=commit:2:nothing:removed:on");
    o = train("metal", &tiny, 4, NULL);
    assert_int_equal(o.status, AN_E_DEVICE);
    assert_non_null(strstr(o.sentence, "the GPU was taken away"));
    nothing_was_wrong();
}

static void what_is_refused_to_the_backend_is_a_sentence(void **state)
{
    (void)state;
    static const char *const faults[] = {"queue:1",    "library:1",  "library:2",  "library:3",
                                         "function:1", "function:7", "pipeline:1", "pipeline:8",
                                         "buffer:1",   "buffer:2",   "buffer:3"};
    for (size_t i = 0; i < AN_COUNT(faults); i++) {
        char settings[120];
        snprintf(settings, sizeof settings, "gpu=apple7,kernels=fast,fault=%s", faults[i]);
        world(settings);
        const outcome o = train("metal", &tiny, 1, NULL);
        /* a common library that fails is compiled again program by program: then the run goes on */
        if (o.status == AN_OK && strncmp(faults[i], "library", 7)) fail_msg("%s was not noticed", faults[i]);
        if (o.status != AN_OK) assert_non_null(strstr(o.sentence, "metal: "));
        nothing_was_wrong();
    }
}

static void too_much_memory_is_refused_before_macos_stalls(void **state)
{
    (void)state;
    world("gpu=apple7,kernels=fast,working_set=64k");
    const outcome o = train("metal", &tiny, 1, NULL);
    assert_int_equal(o.status, AN_E_NOMEM);
    assert_non_null(strstr(o.sentence, "smaller batch"));
    nothing_was_wrong();
}

static void what_metal_holds_beside_the_requests_is_told_apart(void **state)
{
    (void)state;
    world("gpu=apple7,kernels=fast,working_set=64m");
    const an_options o = {.device = "metal", .seed = 5, .cc = "none"};
    an_err err = {0};
    an_ctx *cx;
    an_gpt *m;
    an_memory held;
    if (case_open(&err, &tiny, &o, &cx, &m) != AN_OK || case_train(&err, cx, m, &tiny, 0, 1, NULL) != AN_OK)
        fail_msg("%s", err.text);
    assert_int_equal(an_memory_read(cx, &held), AN_OK);
    assert_int_equal(held.recommended_bytes, 64 << 20);
    assert_true(held.driver_bytes >= held.requested_bytes);
    assert_true(held.driver_bytes < held.requested_bytes + (1 << 20));
    case_close(cx, m);
    nothing_was_wrong();
}

/* An arena larger than Metal's largest buffer lies in several: no value crosses from one to the next, and the bits are
 * the same. What has no place in one is refused by name. */
static void an_arena_larger_than_a_buffer_lies_in_several(void **state)
{
    (void)state;
    static const train_case wide = {.B = 8, .T = 16, .C = 32, .L = 1, .H = 2, .V = 33, .matmul = AN_F32, .bias = true};
    standin_counts one, several;
    world("gpu=apple8,kernels=fast");
    const outcome whole = train("metal", &wide, 2, NULL);
    mac->counts(&one);
    if (whole.status != AN_OK) fail_msg("%s", whole.sentence);
    nothing_was_wrong();
    world("gpu=apple8,kernels=fast,max_buffer=80k");
    const outcome parts = train("metal", &wide, 2, NULL);
    mac->counts(&several);
    if (parts.status != AN_OK) fail_msg("%s", parts.sentence);
    assert_true(several.buffers_made > one.buffers_made + 2);
    assert_true(parts.hash == whole.hash && parts.loss == whole.loss);
    nothing_was_wrong();
    world("gpu=apple8,kernels=fast,max_buffer=80k,fault=buffer:7");
    const outcome refused = train("metal", &wide, 1, NULL);
    assert_int_equal(refused.status, AN_E_NOMEM);
    nothing_was_wrong();
    world("gpu=apple8,kernels=fast,max_buffer=16k");
    const outcome small = train("metal", &wide, 1, NULL);
    assert_int_equal(small.status, AN_E_NOMEM);
    assert_non_null(strstr(small.sentence, "in one piece, and a buffer of this GPU is at most 16 KiB"));
    nothing_was_wrong();
}

/* A decoder has two states a layer: GPT-2 XL 96. Each kernel binds few; a step may have any number. */
static void a_step_may_have_more_states_than_a_kernel_has_buffers(void **state)
{
    (void)state;
    enum { MANY = 100 };
    world("gpu=apple7,kernels=fast");
    an_ctx *cx = an_open(&(an_options){.device = "metal", .seed = 5, .cc = "none"});
    an_tensor *of[MANY];
    for (int i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof name, "s%d", i);
        of[i] = an_state(cx, name, AN_F32, AN_SHAPE(8), AN_FILL(i));
    }
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < MANY; i++) an_assign(of[i], an_add(of[i], an_scalar(cx, 1.0)));
        an_eval_effects(cx);
        an_reset(cx);
    }
    float last[8] = {0};
    an_tensor *sum = an_add(of[MANY - 2], of[MANY - 1]);
    an_eval(sum);
    an_read(sum, last, sizeof last);
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    assert_true(last[0] == MANY - 2 + 3 + MANY - 1 + 3 && last[7] == last[0]);
    an_close(cx);
    nothing_was_wrong();
}

/* Metal binds at multiples of four bytes: halves that begin at an odd element are copied first. */
static double odd_slices(const char *device)
{
    an_ctx *cx = an_open(&(an_options){.device = device, .seed = 1, .cc = "none"});
    an_tensor *s = an_state(cx, "s", AN_BF16, AN_SHAPE(6, 9), AN_NORMAL(1));
    an_tensor *left = an_slice(s, 1, 3, 9), *right = an_slice(s, 1, 1, 9), *places; /* [6,6], [6,8] */
    an_tensor *row = an_slice(an_reshape(s, AN_SHAPE(54)), 0, 1, 52);               /* [51] */
    an_tensor *sum = an_add(an_sum(an_cast(an_matmul(left, right), AN_F32), AN_ALL),
                            an_sum(an_slice(an_cast(an_sort(row, false, &places), AN_F32), 0, 0, 20), AN_ALL));
    an_eval(sum);
    const double got = an_item(sum);
    if (an_error(cx)) fail_msg("%s", an_error(cx));
    an_close(cx);
    return got;
}

static void halves_that_begin_at_an_odd_element_are_copied(void **state)
{
    (void)state;
    world("gpu=apple7,kernels=fast");
    const double here = odd_slices("cpu"), there = odd_slices("metal");
    if (!(fabs(here - there) <= 1e-2 * fabs(here))) fail_msg("%g on the CPU, %g on the GPU", here, there);
    nothing_was_wrong();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_of_shakespeare_char_is_counted),
        cmocka_unit_test(halves_that_begin_at_an_odd_element_are_copied),
        cmocka_unit_test(a_step_may_have_more_states_than_a_kernel_has_buffers),
        cmocka_unit_test(every_selector_is_apples),
        cmocka_unit_test(every_number_is_apples),
        cmocka_unit_test(c_types_and_encodings_agree),
        cmocka_unit_test(each_gpu_is_taken_or_refused_with_the_reason),
        cmocka_unit_test(a_gpt_trains_with_the_cpus_bits),
        cmocka_unit_test(a_warm_step_allocates_nothing_blits_nothing_and_fails_nothing),
        cmocka_unit_test(steps_are_under_way_together_and_only_a_read_waits),
        cmocka_unit_test(a_failed_command_buffer_is_repeated_or_stops_the_run),
        cmocka_unit_test(a_failure_stops_the_step_behind_it_until_it_is_repeated),
        cmocka_unit_test(an_update_cut_in_two_ends_the_run),
        cmocka_unit_test(a_gpu_that_goes_on_failing_is_a_sentence),
        cmocka_unit_test(what_is_refused_to_the_backend_is_a_sentence),
        cmocka_unit_test(an_arena_larger_than_a_buffer_lies_in_several),
        cmocka_unit_test(too_much_memory_is_refused_before_macos_stalls),
        cmocka_unit_test(what_metal_holds_beside_the_requests_is_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
