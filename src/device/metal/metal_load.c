/* metal_load.c: makes a plan runnable: kernel texts, the libraries compiled from them, pipelines, and the list of launches.
 *
 * Loop kernels share their prelude (dialect, exact.h), so all of them are one library; a template's text is a library
 * of its own, shared by equal texts. If the common library does not compile, its kernels are compiled one by one, so
 * that the error names the kernel at fault. Metal itself keeps compiled code on disk: there is no cache here. */
#include "device/metal/metal_internal.h"
#include "device/apple_roofline.h"

#include "base/map.h"
#include "platform/platform.h"
#include "base/text.h"
#include "codegen/render.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Kernels that belong to no plan: fills, copies, and the commit protocol (metal_run.c). */
static const char builtin_text[] =
    "#include <metal_stdlib>\n"
    "using namespace metal;\n"
    "#define MEMORY(type, zero, copy) \\\n"
    "    kernel void zero(device type *to [[buffer(0)]], constant uint &n [[buffer(1)]], \\\n"
    "                     uint i [[thread_position_in_grid]]) { if (i < n) to[i] = 0; } \\\n"
    "    kernel void copy(device const type *from [[buffer(0)]], device type *to [[buffer(1)]], \\\n"
    "                     constant uint &n [[buffer(2)]], uint i [[thread_position_in_grid]]) { if (i < n) to[i] = "
    "from[i]; }\n"
    "MEMORY(uint, an_zero, an_copy)\n"
    "MEMORY(uchar, an_zero_bytes, an_copy_bytes)\n"
    "/* words: progress, begun, committed. progress is n - 1 when all command buffers before number n have completed:\n"
    " * then state may be written, and the launches behind the gate get their thread block counts. */\n"
    "kernel void an_gate(device uint *words [[buffer(0)]], device uint *gate [[buffer(1)]],\n"
    "                    device const uint *counts [[buffer(2)]], constant uint4 &a [[buffer(3)]],\n"
    "                    uint i [[thread_position_in_grid]])\n"
    "{\n"
    "    bool open = words[0] == a.x - 1u;\n"
    "    if (i < a.z) gate[i] = open ? counts[i] : 0u;\n"
    "    if (i == 0 && open) words[1] = a.y;\n"
    "}\n"
    "/* Last in command buffer a.x. */\n"
    "kernel void an_chain(device uint *words [[buffer(0)]], constant uint4 &a [[buffer(1)]])\n"
    "{\n"
    "    if (words[0] == a.x - 1u) words[0] = a.x;\n"
    "}\n"
    "/* Behind all work of step a.y. If the chain is unbroken, the gate of the step (if it has one) was open. */\n"
    "kernel void an_commit(device uint *words [[buffer(0)]], constant uint4 &a [[buffer(1)]])\n"
    "{\n"
    "    if (words[0] == a.x - 1u) words[2] = a.y;\n"
    "}\n";

/* ---------------------------------------------------------------------------------------------- compiling */

/* Sets every option about arithmetic: defaults differ between versions of macOS. */
static an_id compile_options(const an_device *d)
{
    an_id o = an_objc_new("MTLCompileOptions");
    if (!o) return NULL;
    an_send(options_language, o,
            (uint64_t)(d->gpu.version >= 310 ? AN_MTLLanguageVersion3_1 : AN_MTLLanguageVersion3_0));
    if (an_can(options_math_mode, o) && an_can(options_functions, o)) {
        an_send(options_math_mode, o, AN_MTLMathModeSafe);
        an_send(options_functions, o, AN_MTLMathFloatingPointFunctionsPrecise);
    } else if (an_can(options_fast_math, o)) {
        an_send(options_fast_math, o, 0);
    }
    return o;
}

/* A library (+1), or NULL and the compiler's message. `error` beside a library is a warning, not a failure. */
an_id an_mtl_compile(an_err *err, an_device *d, const char *text, const char *what)
{
    an_id options = compile_options(d), error = NULL;
    if (!options) {
        an_fail(err, AN_E_ENV, "metal: this macOS has no MTLCompileOptions");
        return NULL;
    }
    an_id library = an_send(device_new_library, d->device, an_string(text), options, &error);
    an_release(options);
    if (!library) {
        char sentence[200];
        snprintf(sentence, sizeof sentence, "Apple's compiler refuses %.150s", what);
        an_fail_ns(err, AN_E_DEVICE, error, sentence);
    }
    return library;
}

/* A pipeline (+1) of a kernel that is launched in thread blocks of `threads` threads. */
an_id an_mtl_pipeline(an_err *err, an_device *d, an_id library, const char *entry, uint32_t threads, const char *what)
{
    an_id error = NULL, function = an_send(library_function, library, an_string(entry));
    if (!function) {
        an_fail(err, AN_E_DEVICE, "metal: the library of %s has no kernel %s", what, entry);
        return NULL;
    }
    an_id pipeline = an_send(device_new_pipeline, d->device, function, &error);
    an_release(function);
    if (!pipeline) {
        char sentence[200];
        snprintf(sentence, sizeof sentence, "no pipeline for %.120s (%s)", what, entry);
        an_fail_ns(err, AN_E_DEVICE, error, sentence);
        return NULL;
    }
    const uint64_t most = an_send0(pipeline_threads, pipeline), width = an_send0(pipeline_width, pipeline);
    if (threads > most || width != 32) {
        an_fail(err, AN_E_DEVICE,
                "metal: %s (%s) allows at most %llu threads a threadgroup, in SIMD groups of %llu lanes; it needs %u "
                "threads, in SIMD groups of 32",
                what, entry, (unsigned long long)most, (unsigned long long)width, threads);
        an_release(pipeline);
        return NULL;
    }
    return pipeline;
}

an_status an_mtl_builtin_make(an_err *err, an_device *d)
{
    static const char *const names[AN_N_BUILTIN] = {"an_zero", "an_copy",  "an_zero_bytes", "an_copy_bytes",
                                                    "an_gate", "an_chain", "an_commit"};
    static const uint32_t threads[AN_N_BUILTIN] = {256, 256, 256, 256, 32, 32, 32};
    an_id library = an_mtl_compile(err, d, builtin_text, "anneal's own small kernels");
    if (!library) return AN_E_DEVICE;
    an_status status = AN_OK;
    for (int i = 0; i < AN_N_BUILTIN && status == AN_OK; i++) {
        d->builtin[i] = an_mtl_pipeline(err, d, library, names[i], threads[i], "anneal's own small kernels");
        if (!d->builtin[i]) status = AN_E_DEVICE;
    }
    an_release(library);
    return status;
}

/* ---------------------------------------------------------------------------------------------- texts of a plan */

typedef struct module { /* the library of a template's text; equal texts share it */
    uint64_t hash;
    int32_t library;
    char *text;
} module;

typedef struct loading {
    an_err *err;
    an_device *d;
    an_exec *e;
    module *module; /* [n_modules] */
    int32_t n_modules;
    int32_t *text_of; /* [n_steps]: the first step whose loop kernel has the same text: it gives the text its name */
    int32_t *library; /* [n_steps]: library of the text that the step is the first of, -1: not yet */
    int32_t *variant; /* [n_kernels]: the newest step with a text of its own, -1; then through older[n_steps] */
    int32_t *older;
    int32_t n_compiled;
} loading;

static void loop_name(char *out, size_t cap, int32_t text)
{
    snprintf(out, cap, "row_%d", (int)text);
}

/* The first step with the text of step s: steps share a loop kernel, but each may compute in place in its own way. */
static int32_t first_with_text(loading *l, int32_t s)
{
    const an_plan *p = l->e->plan;
    const an_aliases wanted = an_step_aliases(p, &p->step[s], &l->d->gpu);
    int32_t *newest = &l->variant[p->step[s].kernel];
    for (int32_t i = *newest; i >= 0; i = l->older[i]) {
        const an_aliases known = an_step_aliases(p, &p->step[i], &l->d->gpu);
        if (!memcmp(&known, &wanted, sizeof known)) return i;
    }
    l->older[s] = *newest;
    return *newest = s;
}

static int32_t add_library(loading *l, const char *text, const char *what)
{
    an_id library = an_mtl_compile(l->err, l->d, text, what);
    if (!library) return -1;
    l->e->library[l->e->n_libraries] = library;
    l->n_compiled++;
    return l->e->n_libraries++;
}

/* Whether the step is a loop kernel on the GPU. */
static bool is_loop(const an_plan *p, int32_t step)
{
    return p->kernel[p->step[step].kernel].kind == AN_KERNEL_LOOP && !p->step[step].fallback;
}

/* A step that the GPU cannot run, and that the CPU was not allowed to run, is an error that names the kernel. */
static an_status refuse(loading *l, int32_t step, const char *why)
{
    const an_plan_step *s = &l->e->plan->step[step];
    return an_fail(l->err, AN_E_UNSUPPORTED, "metal: %s (%s): %s%s", l->e->plan->kernel[s->kernel].name,
                   s->scope ? s->scope : "no scope", why,
                   strstr(why, "fallback=cpu") ? "" : "; device=cpu or fallback=cpu runs it");
}

/* After the common library failed: compiles each loop kernel alone, to find the one that does not compile. */
static an_status compile_loops_one_by_one(loading *l)
{
    const an_plan *p = l->e->plan;
    for (int32_t s = 0; s < p->n_steps; s++) {
        if (!is_loop(p, s) || l->text_of[s] != s) continue;
        char name[32];
        an_text t = {0};
        loop_name(name, sizeof name, s);
        an_render_module(p, &p->step[s], &l->d->gpu, name, &t);
        l->library[s] = t.failed ? -1 : add_library(l, t.data, p->kernel[p->step[s].kernel].name);
        an_text_free(&t);
        if (l->library[s] < 0) return l->err->code ? l->err->code : an_fail_nomem(l->err, "a kernel's text", 0);
    }
    return AN_OK;
}

static an_status compile_loops(loading *l)
{
    const an_plan *p = l->e->plan;
    an_text all = {0};
    for (int32_t s = 0; s < p->n_steps; s++) {
        char name[32];
        if (!is_loop(p, s) || (l->text_of[s] = first_with_text(l, s)) != s) continue;
        const an_loop_kernel *loop = p->kernel[p->step[s].kernel].u.loop;
        const an_aliases aliases = an_step_aliases(p, &p->step[s], &l->d->gpu);
        const char *why = an_render_gpu_refusal(loop, l->d->gpu.dialect);
        if (why) {
            an_text_free(&all);
            return refuse(l, s, why);
        }
        loop_name(name, sizeof name, s);
        if (!all.len)
            an_render_module(p, &p->step[s], &l->d->gpu, name, &all);
        else
            an_render_gpu(loop, name, &l->d->gpu, &aliases, false, &all);
    }
    if (!all.len) return AN_OK;
    an_err first = {0};
    an_err *const err = l->err;
    l->err = &first;
    const int32_t library = all.failed ? -1 : add_library(l, all.data, "the loop kernels");
    l->err = err;
    an_text_free(&all);
    for (int32_t s = 0; s < p->n_steps; s++) l->library[s] = library;
    return library >= 0 ? AN_OK : compile_loops_one_by_one(l);
}

/* The library of a template's step: equal texts are compiled once. */
static int32_t template_library(loading *l, const an_plan_step *s)
{
    an_text t = {0};
    an_render_module(l->e->plan, s, &l->d->gpu, "kernel", &t);
    if (t.failed) {
        an_text_free(&t);
        an_fail_nomem(l->err, "a kernel's text", 0);
        return -1;
    }
    const uint64_t hash = an_hash(t.data, t.len, 0);
    for (int32_t i = 0; i < l->n_modules; i++)
        if (l->module[i].hash == hash && !strcmp(l->module[i].text, t.data)) {
            an_text_free(&t);
            return l->module[i].library;
        }
    const int32_t library = add_library(l, t.data, l->e->plan->kernel[s->kernel].name);
    if (library < 0)
        an_text_free(&t);
    else
        l->module[l->n_modules++] = (module){.hash = hash, .library = library, .text = t.data};
    return library;
}

/* ---------------------------------------------------------------------------------------------- launches */

typedef struct entry_key { /* pipelines are shared by launches of the same kernel */
    int32_t library, pipeline;
    char name[32];
} entry_key;

static an_id find_pipeline(loading *l, entry_key *known, int32_t library, const char *entry, uint32_t threads,
                           const char *what)
{
    an_exec *e = l->e;
    for (int32_t i = 0; i < e->n_pipelines; i++)
        if (known[i].library == library && !strcmp(known[i].name, entry)) return e->pipeline[i];
    an_id pipeline = an_mtl_pipeline(l->err, l->d, e->library[library], entry, threads, what);
    if (!pipeline) return NULL;
    known[e->n_pipelines].library = library;
    snprintf(known[e->n_pipelines].name, sizeof known->name, "%s", entry);
    return e->pipeline[e->n_pipelines++] = pipeline;
}

/* Fills and copies are kernels too: a blit encoder would split the command buffer's compute encoder in two. */
static an_status memory_launch(loading *l, int32_t s)
{
    enum { THREADS = 256 };
    const an_plan_step *st = &l->e->plan->step[s];
    const bool copy = l->e->plan->kernel[st->kernel].kind == AN_KERNEL_COPY;
    const an_arg *from = &st->arg[0], *to = &st->arg[copy];
    const bool words = (to->bytes | to->offset | from->offset) % 4 == 0;
    const int64_t elements = words ? to->bytes / 4 : to->bytes;
    if (elements == 0) return AN_OK;
    if (elements > UINT32_MAX)
        return an_fail(l->err, AN_E_UNSUPPORTED, "metal: %lld bytes are too many for one copy; use a smaller batch",
                       (long long)to->bytes);
    an_gpu_binding *b = AN_NEW_ARRAY(&l->e->arena, an_gpu_binding, 3);
    uint32_t *n = AN_NEW(&l->e->arena, uint32_t);
    if (!b || !n) return an_fail_nomem(l->err, "a loaded plan", 0);
    *n = (uint32_t)elements;
    for (int i = 0; i <= copy; i++)
        b[i] = (an_gpu_binding){.kind = AN_BIND_ARG, .index = (uint8_t)i, .arg = (int16_t)i};
    b[1 + copy] = (an_gpu_binding){.kind = AN_BIND_PARAMS, .index = (uint8_t)(1 + copy)};
    l->e->launch[l->e->n_launches++] = (an_mtl_launch){.pipeline = l->d->builtin[AN_BUILTIN_ZERO + copy + 2 * !words],
                                                       .step = s,
                                                       .commit = st->commit ? l->e->n_commits++ : -1,
                                                       .groups = {(uint32_t)an_ceil_div(elements, THREADS), 1, 1},
                                                       .threads = THREADS,
                                                       .n_binds = 2 + copy,
                                                       .bind = b,
                                                       .params = n,
                                                       .params_bytes = sizeof *n};
    return AN_OK;
}

/* Step s runs on the CPU, together with the CPU steps before it when no launch of the GPU lies between. */
static an_status add_cpu_step(loading *l, int32_t s)
{
    an_exec *e = l->e;
    an_mtl_cpu_steps *last = e->n_cpu ? &e->cpu[e->n_cpu - 1] : NULL;
    if (last && last->before == e->n_launches) {
        last->to = s + 1;
        return AN_OK;
    }
    if (e->n_cpu == AN_MTL_MOST_CPU_STEPS)
        return an_fail(l->err, AN_E_UNSUPPORTED,
                       "metal: GPU and CPU would take turns more than %d times in a step; use device=cpu", e->n_cpu);
    e->cpu[e->n_cpu++] = (an_mtl_cpu_steps){.before = e->n_launches, .from = s, .to = s + 1};
    return AN_OK;
}

static an_status step_launches(loading *l, entry_key *known, int32_t s)
{
    const an_plan *p = l->e->plan;
    const an_plan_step *st = &p->step[s];
    const an_kernel *k = &p->kernel[st->kernel];
    an_gpu_step g;
    if (st->fallback) return add_cpu_step(l, s);
    if (k->kind == AN_KERNEL_ZERO || k->kind == AN_KERNEL_COPY) return memory_launch(l, s);
    const char *why = an_gpu_step_make(p, st, &l->d->gpu, &g);
    if (why) return refuse(l, s, why);
    if (g.n_launches == 0) return AN_OK;
    const int32_t library = is_loop(p, s) ? l->library[l->text_of[s]] : template_library(l, st);
    if (library < 0) return l->err->code;
    void *params = an_arena_copy(&l->e->arena, &g.params, AN_MAX(g.params_bytes, 1));
    char name[32];
    loop_name(name, sizeof name, l->text_of[s]);
    for (int i = 0; i < g.n_launches; i++) {
        const an_gpu_launch *from = &g.launch[i];
        an_mtl_launch *to = &l->e->launch[l->e->n_launches++];
        *to = (an_mtl_launch){
            .pipeline = find_pipeline(l, known, library, from->entry ? from->entry : name, from->threads, k->name),
            .step = s,
            .commit = st->commit ? l->e->n_commits++ : -1,
            .groups = {from->blocks[0], from->blocks[1], from->blocks[2]},
            .threads = from->threads,
            .n_binds = from->n_binds,
            .bind = an_arena_copy(&l->e->arena, from->bind, sizeof *from->bind * (size_t)AN_MAX(from->n_binds, 1)),
            .params = params,
            .params_bytes = (uint32_t)g.params_bytes};
        if (!to->pipeline) return l->err->code;
        if (!to->bind || !params) return an_fail_nomem(l->err, "a loaded plan", 0);
    }
    return AN_OK;
}

/* Bytes of a gate: no more than its launches need, so that reading or writing behind them is a fault and no accident. */
static size_t gate_bytes(const an_exec *e)
{
    return AN_GATE_BYTES * (size_t)AN_MAX(e->n_commits, 1);
}

/* Bytes of the counts, which hold the placeholders of all buffer numbers too. */
static size_t counts_bytes(const an_exec *e)
{
    return AN_MAX(gate_bytes(e), AN_PLACEHOLDER_BYTES * AN_MSL_BUFFERS);
}

/* The gates of the commit protocol, and the thread block counts that an open gate copies. */
static an_status make_gates(loading *l)
{
    an_exec *e = l->e;
    for (int i = 0; i < AN_STEPS_IN_FLIGHT; i++) {
        if (!(e->gate[i] = an_mtl_buffer(l->err, l->d, gate_bytes(e), "the commit protocol"))) return AN_E_NOMEM;
        e->opened[i] = an_send0(buffer_contents, e->gate[i]);
    }
    if (!(e->counts = an_mtl_buffer(l->err, l->d, counts_bytes(e), "the commit protocol"))) return AN_E_NOMEM;
    uint32_t *counts = an_send0(buffer_contents, e->counts);
    for (int32_t i = 0; i < e->n_launches; i++)
        if (e->launch[i].commit >= 0) memcpy(counts + 3 * e->launch[i].commit, e->launch[i].groups, AN_GATE_BYTES);
    return AN_OK;
}

static an_status load_plan(loading *l)
{
    an_exec *e = l->e;
    const an_plan *p = e->plan;
    const size_t n = (size_t)p->n_steps + 1, launches = n * AN_GPU_LAUNCHES;
    e->launch = AN_NEW_ARRAY(&e->arena, an_mtl_launch, launches);
    e->library = AN_NEW_ARRAY(&e->arena, an_id, n + (size_t)p->n_kernels);
    e->pipeline = AN_NEW_ARRAY(&e->arena, an_id, launches);
    e->seconds = AN_NEW_ARRAY(&e->arena, double, n);
    e->cpu = AN_NEW_ARRAY(&e->arena, an_mtl_cpu_steps, AN_MTL_MOST_CPU_STEPS);
    l->module = calloc(n, sizeof *l->module);
    l->text_of = AN_NEW_ARRAY(&e->arena, int32_t, n);
    l->library = AN_NEW_ARRAY(&e->arena, int32_t, n);
    l->older = AN_NEW_ARRAY(&e->arena, int32_t, n);
    l->variant = AN_NEW_ARRAY(&e->arena, int32_t, (size_t)p->n_kernels + 1);
    entry_key *known = calloc(launches, sizeof *known);
    an_status status = AN_OK;
    if (!e->launch || !e->library || !e->pipeline || !e->seconds || !e->cpu || !l->module || !l->text_of ||
        !l->library || !l->older || !l->variant || !known)
        status = an_fail_nomem(l->err, "a loaded plan", launches * sizeof *known);
    for (int32_t k = 0; status == AN_OK && k < p->n_kernels; k++) l->variant[k] = -1;
    if (status == AN_OK) status = compile_loops(l);
    for (int32_t s = 0; status == AN_OK && s < p->n_steps; s++) status = step_launches(l, known, s);
    if (status == AN_OK) status = make_gates(l);
    free(known);
    return status;
}

/* Each launch's share of the time that its step would take on the slowest GPU: how the first step is divided into command
 * buffers, before anything was measured. */
static void estimate_launches(an_exec *e)
{
    for (int32_t i = 0, n = 1; i < e->n_launches; i += n) {
        for (n = 1; i + n < e->n_launches && e->launch[i + n].step == e->launch[i].step;) n++;
        const double seconds = an_apple_roofline_slowest(e->plan, e->launch[i].step);
        for (int32_t k = 0; k < n; k++) e->launch[i + k].estimate_s = seconds / n;
    }
}

an_status an_mtl_load(an_err *err, an_device *d, const an_plan *p, an_exec **out, an_load_stats *stats)
{
    an_exec *e = calloc(1, sizeof *e);
    if (!e) return an_fail_nomem(err, "a loaded plan", sizeof *e);
    e->plan = p;
    e->buffer_s = AN_TARGET_SECONDS;
    loading l = {.err = err, .d = d, .e = e};
    const double began = an_seconds();
    void *pool = an_mtl.pool_push();
    an_status status = load_plan(&l);
    an_mtl.pool_pop(pool);
    if (status == AN_OK) estimate_launches(e);
    if (status == AN_OK) status = an_mtl_cpu_load(err, d, e, stats);
    for (int32_t i = 0; i < l.n_modules; i++) free(l.module[i].text);
    free(l.module);
    if (status != AN_OK) {
        an_mtl_unload(d, e);
        return status;
    }
    stats->compiled = e->n_pipelines;
    stats->compile_ms = 1e3 * (an_seconds() - began);
    *out = e;
    return AN_OK;
}

void an_mtl_unload(an_device *d, an_exec *e)
{
    if (!e) return;
    void *pool = an_mtl.pool_push();
    for (int32_t i = 0; i < e->n_pipelines; i++) an_release(e->pipeline[i]);
    for (int32_t i = 0; i < e->n_libraries; i++) an_release(e->library[i]);
    for (int i = 0; i < AN_STEPS_IN_FLIGHT; i++) {
        if (e->gate[i]) d->allocated -= gate_bytes(e);
        an_release(e->gate[i]);
    }
    if (e->counts) d->allocated -= counts_bytes(e);
    an_release(e->counts);
    an_mtl.pool_pop(pool);
    an_mtl_cpu_unload(d, e);
    an_arena_free(&e->arena);
    free(e);
}
