/* self_check.c: checks for `anneal selftest` that this macOS is the one that the backend was written for.
 *
 *     1. every method of selectors.def: does the Objective-C runtime have it, with the same types?
 *     2. what the GPU reports of itself
 *     3. one small kernel, from its text to its results
 *
 * Does not:   need an open device.
 * Invariants: each result is reported before the next question is asked, so that the report shows where a crash happened.
 *             No message but endEncoding is sent to an object with a method of a different type. */
#include "device/metal/metal_internal.h"

#include "platform/platform.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

typedef struct checker {
    an_self_check_fn *tell;
    void *user;
    int faults;
    an_id (*class_of)(an_id);           /* object_getClass */
    void *(*method_of)(an_id, an_sel);  /* class_getInstanceMethod */
    void *(*own_method)(an_id, an_sel); /* class_getClassMethod */
    const char *(*encoding_of)(void *); /* method_getTypeEncoding */
    const char *(*name_of)(an_id);      /* object_getClassName */
    an_device d;                        /* only what compiling and buffers ask */
    an_id buffer, library, pipeline;    /* owned */
    an_id commands;                     /* of the pool */
} checker;

static void say(checker *x, bool fault, const char *what, const char *found)
{
    x->faults += fault;
    x->tell(x->user, what, found, fault);
}

/* ---------------------------------------------------------------------------------------------- types of methods */

/* Reads one type of an encoding (of the runtime or of selectors.def) and appends it in the letters of selectors.def,
 * without struct names, which the runtime may not know. Returns the rest, after the type and its stack offset. */
static const char *one_type(const char *p, an_text *out)
{
    p += strspn(p, "rnNoORVAj"); /* const, in, inout ... */
    if (*p == '*') {             /* char * */
        an_text_puts(out, "^v");
        p++;
    } else if (*p == '^') {
        an_text ignored = {0};
        p++;
        an_text_puts(out, p[strspn(p, "r")] == '@' ? "^@" : "^v");
        p = one_type(p, &ignored);
        an_text_free(&ignored);
    } else if (*p == '{') {
        p++;
        if (p[strcspn(p, "={}")] == '=') p += strcspn(p, "=") + 1;
        an_text_puts(out, "{");
        while (*p && *p != '}') p = one_type(p, out);
        an_text_puts(out, "}");
        p += *p == '}';
    } else if (*p) {
        const char letter = *p++;
        an_text_putn(out, letter == AN_BOOL_LETTER ? "Z" : &letter, 1);
        if (letter == '@' && *p == '?') an_text_putn(out, p++, 1); /* a block */
        if (letter == '@' && *p == '"') p += strcspn(p + 1, "\"") + 1, p += *p == '"';
    }
    return p + strspn(p, "0123456789");
}

/* "@32@0:8Q16Q24" is "@(Q,Q)". */
static void of_runtime(const char *encoding, an_text *out)
{
    encoding = one_type(encoding, out);
    an_text_puts(out, "(");
    an_text hidden = {0};
    for (int i = 0; i < 2 && *encoding; i++) encoding = one_type(encoding, &hidden); /* self and _cmd */
    an_text_free(&hidden);
    for (int i = 0; *encoding; i++) {
        if (i) an_text_puts(out, ",");
        encoding = one_type(encoding, out);
    }
    an_text_puts(out, ")");
}

/* "v({MTLSize=QQQ},Q)" is "v({QQQ},Q)". */
static void of_table(const char *row, an_text *out)
{
    while (*row) {
        if (strchr("(,)", *row))
            an_text_putn(out, row++, 1);
        else
            row = one_type(row, out);
    }
}

static const struct row {
    const char *owner, *selector, *encoding;
    bool required;
    int since;
} rows[AN_N_SELECTORS] = {
#define REQUIRED                                                      true
#define OPTIONAL                                                      false
#define X(name, owner, selector, result, args, encoding, need, since) {#owner, selector, encoding, need, since},
#include "device/metal/selectors.def"
#undef X
#undef REQUIRED
#undef OPTIONAL
};

static void compare_row(checker *x, const struct row *r, an_sel selector, an_id class)
{
    char what[200], found[400];
    const bool own = r->selector[0] == '+';
    an_text here = {0}, table = {0};
    snprintf(what, sizeof what, "%c[%s %s]", own ? '+' : '-', r->owner, r->selector + own);
    void *method = (own ? x->own_method : x->method_of)(class, selector);
    const char *encoding = method ? x->encoding_of(method) : NULL;
    if (!encoding) {
        const bool there = an_mtl.macos >= r->since;
        snprintf(found, sizeof found, "is not there%s", there ? "" : ", as this macOS is older than it");
        say(x, there && r->required, what, found);
        return;
    }
    of_runtime(encoding, &here);
    of_table(r->encoding, &table);
    const bool same = !here.failed && !table.failed && !strcmp(here.data, table.data);
    snprintf(found, sizeof found, same ? "%.150s" : "%.150s: it is %.100s, and was written as %.100s", encoding,
             here.data ? here.data : "", table.data ? table.data : "");
    say(x, !same, what, found);
    an_text_free(&here);
    an_text_free(&table);
}

/* Compares the methods of `owner` in a class. False: one of them has different types. */
static bool compare(checker *x, const char *owner, an_id class)
{
    const int before = x->faults;
    if (!class) say(x, true, owner, "there is no object of this kind");
    for (int i = 0; class && i < AN_N_SELECTORS; i++)
        if (!strcmp(rows[i].owner, owner)) compare_row(x, &rows[i], an_mtl.sel[i], class);
    return x->faults == before;
}

static bool compare_object(checker *x, const char *owner, an_id object)
{
    if (object) say(x, false, owner, x->name_of(object));
    return compare(x, owner, object ? x->class_of(object) : NULL);
}

static bool find_runtime(checker *x)
{
    const bool all =
        an_objc_symbol("object_getClass", &x->class_of) && an_objc_symbol("class_getInstanceMethod", &x->method_of) &&
        an_objc_symbol("class_getClassMethod", &x->own_method) &&
        an_objc_symbol("method_getTypeEncoding", &x->encoding_of) && an_objc_symbol("object_getClassName", &x->name_of);
    if (!all) say(x, true, "runtime", "libobjc has no functions to ask for the types of methods");
    return all;
}

static bool compare_classes(checker *x)
{
    static const char *const classes[] = {"NSString", "NSError", "MTLCompileOptions"};
    bool good = compare(x, "NSObject", an_objc_class("MTLCompileOptions")); /* which has inherited them */
    for (size_t i = 0; i < AN_COUNT(classes); i++) good = compare(x, classes[i], an_objc_class(classes[i])) && good;
    return good;
}

/* ---------------------------------------------------------------------------------------------- what the GPU reports */

static void tell_number(checker *x, const char *what, uint64_t bytes)
{
    char text[24], found[80];
    snprintf(found, sizeof found, "%llu bytes (%s)", (unsigned long long)bytes, an_bytes_text((double)bytes, text));
    say(x, bytes == 0, what, found);
}

static void tell_device(checker *x)
{
    static const struct {
        const char *name;
        int64_t family;
    } others[] = {{"Mac2", AN_MTLGPUFamilyMac2},
                  {"Common3", AN_MTLGPUFamilyCommon3},
                  {"Metal3", AN_MTLGPUFamilyMetal3},
                  {"Metal4", AN_MTLGPUFamilyMetal4}};
    an_id device = x->d.device;
    char families[200] = "";
    size_t n = 0;
    for (int f = AN_MTLGPUFamilyApple1; f <= AN_MTLGPUFamilyApple10; f++)
        if (an_send(device_supports, device, f))
            n += (size_t)snprintf(families + n, sizeof families - n, "Apple%d ", f - AN_MTLGPUFamilyApple1 + 1);
    for (size_t i = 0; i < AN_COUNT(others); i++)
        if (an_send(device_supports, device, others[i].family))
            n += (size_t)snprintf(families + n, sizeof families - n, "%s ", others[i].name);
    say(x, false, "GPU", an_utf8(an_send0(device_name, device)));
    say(x, n == 0, "families", n ? families : "none");
    say(x, false, "memory shared with the CPU", an_send0(device_unified, device) ? "yes" : "no");
    tell_number(x, "recommendedMaxWorkingSetSize", an_send0(device_working_set, device));
    tell_number(x, "maxBufferLength", an_send0(device_max_buffer, device));
    tell_number(x, "maxThreadgroupMemoryLength", an_send0(device_max_shared, device));
}

/* ---------------------------------------------------------------------------------------------- a first kernel */

enum { LANES = 32 };
static const char probe_text[] = "#include <metal_stdlib>\nusing namespace metal;\n"
                                 "kernel void an_probe(device uint *out [[buffer(0)]], constant uint &n "
                                 "[[buffer(1)]],\n"
                                 "                     uint i [[thread_position_in_grid]]) { out[i] = 3u * i + n; "
                                 "}\n";

/* Each object is made by a method that has been compared before. */
static bool make_objects(checker *x)
{
    an_err err = {0};
    an_device *d = &x->d;
    d->queue = an_send(device_new_queue, d->device, AN_QUEUE_BUFFERS);
    if (!compare_object(x, "MTLCommandQueue", d->queue)) return false;
    x->buffer = an_send(device_new_buffer, d->device, LANES * sizeof(uint32_t), AN_MTLResourceStorageModeShared);
    if (!compare_object(x, "MTLBuffer", x->buffer)) return false;
    d->gpu.version = an_mtl.macos >= 1400 ? 310 : 300;
    x->library = an_mtl_compile(&err, d, probe_text, "a first kernel");
    if (!x->library) say(x, true, "a first kernel", err.text);
    if (!x->library || !compare_object(x, "MTLLibrary", x->library)) return false;
    x->pipeline = an_mtl_pipeline(&err, d, x->library, "an_probe", LANES, "a first kernel");
    if (!x->pipeline) say(x, true, "a first kernel", err.text);
    return x->pipeline && compare_object(x, "MTLComputePipelineState", x->pipeline);
}

static bool ended(checker *x, double limit)
{
    const double began = an_seconds();
    const struct timespec pause = {.tv_nsec = 20000};
    while (an_send0(commands_status, x->commands) < AN_MTLCommandBufferStatusCompleted) {
        if (an_seconds() - began > limit) return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

static void run_probe(checker *x)
{
    enum { ADDED = 7 };
    const uint32_t added = ADDED;
    char found[200];
    an_id encoder = NULL;
    x->commands = an_send0(queue_buffer, x->d.queue);
    if (!compare_object(x, "MTLCommandBuffer", x->commands)) return;
    encoder = an_send0(commands_encoder, x->commands);
    const bool good = compare_object(x, "MTLCommandEncoder", encoder);
    if (!encoder || !compare(x, "MTLComputeCommandEncoder", x->class_of(encoder)) || !good) {
        if (encoder) an_send0(encoder_end, encoder); /* releasing an open encoder ends the program */
        return;
    }
    an_send(encoder_pipeline, encoder, x->pipeline);
    an_send(encoder_buffer, encoder, x->buffer, 0, 0);
    an_send(encoder_bytes, encoder, &added, sizeof added, 1);
    an_send(encoder_dispatch, encoder, ((an_mtl_size){1, 1, 1}), ((an_mtl_size){LANES, 1, 1}));
    an_send0(encoder_end, encoder);
    const double began = an_seconds();
    an_send0(commands_commit, x->commands);
    if (!ended(x, 20)) {
        say(x, true, "a first kernel", "has not ended after 20 s");
        return;
    }
    const double took = an_seconds() - began;
    if (an_send0(commands_status, x->commands) == AN_MTLCommandBufferStatusError) {
        an_err why = {0};
        an_fail_ns(&why, AN_E_DEVICE, an_send0(commands_error, x->commands), "the command buffer failed");
        say(x, true, "a first kernel", why.text);
        return;
    }
    int wrong = 0;
    const uint32_t *out = an_send0(buffer_contents, x->buffer);
    for (uint32_t i = 0; i < LANES; i++) wrong += out[i] != 3 * i + ADDED;
    const double gpu = an_send0(commands_gpu_end, x->commands) - an_send0(commands_gpu_start, x->commands);
    snprintf(found, sizeof found, "%d of %d numbers are wrong; %.0f us from commit to its end, %.1f us of the GPU's",
             wrong, LANES, 1e6 * took, 1e6 * gpu);
    say(x, wrong > 0, "a first kernel", found);
}

/* ---------------------------------------------------------------------------------------------- all of it */

static void check_all(checker *x)
{
    if (!find_runtime(x) || !compare_classes(x)) return;
    x->d.device = an_mtl.create_device();
    if (!compare_object(x, "MTLDevice", x->d.device)) return;
    tell_device(x);
    if (make_objects(x)) run_probe(x);
}

void an_mtl_self_check(an_self_check_fn *tell, void *user)
{
    checker x = {.tell = tell, .user = user};
    an_err err = {0};
    char version[32];
    if (an_objc_load(&err) != AN_OK) {
        say(&x, true, "macOS", err.text);
        return;
    }
    snprintf(version, sizeof version, "%d.%d", an_mtl.macos / 100, an_mtl.macos % 100);
    say(&x, false, "macOS", version);
    void *pool = an_mtl.pool_push();
    check_all(&x);
    an_release(x.pipeline);
    an_release(x.library);
    an_release(x.buffer);
    an_release(x.d.queue);
    an_release(x.d.device);
    an_mtl.pool_pop(pool);
}

/* ---------------------------------------------------------------------------------------------- shuffles */

static const char shuffle_text[] =
    "#include <metal_stdlib>\nusing namespace metal;\n"
    "kernel void an_shuffles(device uint *out [[buffer(0)]], uint i [[thread_position_in_grid]])\n"
    "{\n"
    "    out[i] = i + 64u * simd_shuffle_xor(i, ushort(5)) + 4096u * simd_shuffle(i, "
    "ushort(3));\n"
    "}\n";

/* Runs the kernel on one subgroup: out[i] = i + 64 (i ^ 5) + 4096 * 3. False: it failed, or the numbers are others. */
static bool shuffles_work(an_device *d, an_id pipeline, an_id buffer)
{
    checker x = {.d = {.queue = d->queue}, .commands = an_send0(queue_buffer, d->queue)};
    an_id encoder = x.commands ? an_send0(commands_encoder, x.commands) : NULL;
    if (!encoder) return false;
    an_send(encoder_pipeline, encoder, pipeline);
    an_send(encoder_buffer, encoder, buffer, 0, 0);
    an_send(encoder_dispatch, encoder, ((an_mtl_size){1, 1, 1}), ((an_mtl_size){LANES, 1, 1}));
    an_send0(encoder_end, encoder);
    an_send0(commands_commit, x.commands);
    if (!ended(&x, 20) || an_send0(commands_status, x.commands) == AN_MTLCommandBufferStatusError) return false;
    const uint32_t *out = an_send0(buffer_contents, buffer);
    for (uint32_t i = 0; i < LANES; i++)
        if (out[i] != i + 64 * (i ^ 5) + 4096 * 3) return false;
    return true;
}

bool an_mtl_shuffles_work(an_device *d)
{
    const char *const what = "a kernel with shuffles";
    const size_t bytes = LANES * sizeof(uint32_t);
    an_err why = {0};
    an_id library = an_mtl_compile(&why, d, shuffle_text, what);
    an_id pipeline = library ? an_mtl_pipeline(&why, d, library, "an_shuffles", LANES, what) : NULL;
    an_id buffer = pipeline ? an_mtl_buffer(&why, d, bytes, what) : NULL;
    const bool good = buffer && shuffles_work(d, pipeline, buffer);
    if (buffer) d->allocated -= bytes;
    an_release(buffer);
    an_release(pipeline);
    an_release(library);
    return good;
}
