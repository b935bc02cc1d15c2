/* library.c: MTLCompileOptions, MTLLibrary, MTLFunction, pipelines, and MTLCompiler's private compile service, which
 * makes libraries as data. */
#define _GNU_SOURCE
#include "metal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef struct compile_options {
    uint64_t language;
    BOOL not_fast, invariance;
    int64_t math_mode, functions, optimization;
    uint64_t max_threads;
} compile_options;

typedef struct library {
    msl_text text;
    id label;
} library;

typedef struct function {
    id library, name;
    const msl_kernel *kernel;
    msl_values *values; /* of function constants; NULL: it was asked for without */
} function;

typedef struct pipeline_descriptor {
    id function, label;
    uint64_t max_threads;
    BOOL multiple, indirect;
    int64_t validation;
} pipeline_descriptor;

/* ---- options --------------------------------------------------------------------------------------------------- */

static void options_set_fast(id self, SEL cmd, BOOL fast)
{
    (void)cmd;
    SELF(compile_options, o);
    o->not_fast = !bool_argument(fast);
}
static BOOL options_fast(id self, SEL cmd)
{
    (void)cmd;
    return !((compile_options *)object_body(self))->not_fast;
}
static void options_set_math(id self, SEL cmd, int64_t mode)
{
    (void)cmd;
    SELF(compile_options, o);
    if (mode < 0 || mode > 2) misuse("a math mode of %lld", (long long)mode);
    o->math_mode = mode, o->not_fast = mode == 0;
}
static void options_set_language(id self, SEL cmd, uint64_t version)
{
    (void)cmd;
    ((compile_options *)object_body(self))->language = version;
}
static uint64_t options_language(id self, SEL cmd)
{
    (void)cmd;
    return ((compile_options *)object_body(self))->language;
}
PROPERTY(compile_options, int64_t, functions, options_functions, options_set_functions)
PROPERTY(compile_options, int64_t, optimization, options_optimization, options_set_optimization)
PROPERTY(compile_options, uint64_t, max_threads, options_max_threads, options_set_max_threads)
PROPERTY(compile_options, BOOL, invariance, options_invariance, options_set_invariance)
static int64_t options_math(id self, SEL cmd)
{
    (void)cmd;
    return ((compile_options *)object_body(self))->math_mode;
}

/* The newest that this macOS knows: 300, 310, ... */
static int newest_language(void)
{
    int os = the()->macos;
    return os >= 2600 ? 400 : os >= 1500 ? 320 : os >= 1400 ? 310 : os >= 1300 ? 300 : 240;
}

/* The version that options ask for; 0 after a misuse. */
static int language_of(const compile_options *o)
{
    if (!o || !o->language) return newest_language();
    uint64_t major = o->language >> 16, minor = o->language & 0xffff;
    int version = (int)(major * 100 + minor * 10);
    if (major < 1 || major > 4 || minor > 4) {
        misuse("a language version of %#llx", (unsigned long long)o->language);
    } else if (version > newest_language()) {
        misuse("language version %llu.%llu in macOS %d.%d", (unsigned long long)major, (unsigned long long)minor,
               the()->macos / 100, the()->macos % 100);
    } else {
        return version;
    }
    return 0;
}

/* ---- libraries ------------------------------------------------------------------------------------------------- */

static void library_end(void *body)
{
    library *l = body;
    msl_free(&l->text);
    object_drop(l->label);
}

/* What the setting `edit` says of a compiler that makes other kernels than it was told to: to be freed. */
static char *edited(const char *source)
{
    const char *from = the()->edit_from, *at = *from ? strstr(source, from) : NULL;
    char *text;
    const int before = at ? (int)(at - source) : 0;
    if (asprintf(&text, "%.*s%s%s", before, source, at ? the()->edit_to : "", at ? at + strlen(from) : source) < 0)
        abort();
    return text;
}

static id library_make(const char *source, int version, bool fast_math, id *error)
{
    world_lock();
    counts()->libraries++;
    const fault *f = fault_now(FAULT_LIBRARY), *warning = fault_now(FAULT_WARNING);
    id o = object_new("MTLLibrary");
    library *l = object_body(o);
    char *text = edited(source);
    char *wrong = f ? strdup("program_source:1:1: error: injected") : msl_read(text, version, fast_math, &l->text);
    free(text);
    if (wrong) object_release(o), o = NULL;
    if (error) *error = NULL;
    if (wrong && error)
        *error = error_pooled("MTLLibraryErrorDomain", MTLLibraryErrorCompileFailure, wrong, NULL, NULL);
    if (warning && !wrong && error)
        *error = error_pooled("MTLLibraryErrorDomain", MTLLibraryErrorCompileWarning,
                              "program_source:1:1: warning: injected", NULL, NULL);
    free(wrong);
    world_unlock();
    return o;
}

static id device_library(id self, SEL cmd, id source, id options, id *error)
{
    (void)self, (void)cmd;
    if (!argument(source, "NSString", "the source")) return NULL;
    compile_options *o = options ? argument(options, "MTLCompileOptions", "the options") : NULL;
    int version = language_of(o);
    return version ? library_make(string_text(source), version, !o || !o->not_fast, error) : NULL;
}

static bool name_known(const library *l, const char *name, int *at)
{
    for (*at = 0; *at < l->text.n_kernels; ++*at)
        if (!strcmp(l->text.kernel[*at].name, name)) return true;
    return false;
}

static id function_make(id self, id name, const msl_values *values)
{
    SELF(library, l);
    int at;
    if (fault_now(FAULT_FUNCTION) || !name_known(l, string_text(name), &at)) return NULL;
    id o = object_new("MTLFunction");
    function *f = object_body(o);
    *f = (function){.library = self, .name = string_new(string_text(name)), .kernel = &l->text.kernel[at]};
    object_hold(self), object_hold(f->name);
    object_release(f->name);
    if (values) {
        f->values = malloc(sizeof *values);
        if (!f->values) abort();
        *f->values = *values;
    }
    counts()->functions++;
    return o;
}
static id library_function(id self, SEL cmd, id name)
{
    (void)cmd;
    return argument(name, "NSString", "the name") ? function_make(self, name, NULL) : NULL;
}
static id library_function_with(id self, SEL cmd, id name, id values, id *error)
{
    (void)cmd;
    if (error) *error = NULL;
    const msl_values *v = argument(values, "MTLFunctionConstantValues", "the constant values");
    if (!v || !argument(name, "NSString", "the name")) return NULL;
    id o = function_make(self, name, v);
    const function *f = o ? object_body(o) : NULL;
    const char *missing = f ? msl_missing_constant(&((library *)object_body(self))->text, f->kernel, v) : NULL;
    if (o && !missing) return o;
    char words[400];
    if (missing)
        snprintf(words, sizeof words, "Function constant %s has no value in function %s", missing, string_text(name));
    else
        snprintf(words, sizeof words, "Function %s was not found", string_text(name));
    if (error)
        *error =
            error_pooled("MTLLibraryErrorDomain",
                         missing ? MTLLibraryErrorCompileFailure : MTLLibraryErrorFunctionNotFound, words, NULL, NULL);
    if (o) object_release(o);
    return NULL;
}

/* ---- function constants: kept as the text that stands for them in C++ ---------------------------------------------- */

/* Bytes of a scalar type; 0: none that is simulated. */
static size_t scalar_text(uint64_t type, const void *p, char *out, size_t room)
{
    union {
        int8_t c;
        uint8_t uc;
        int16_t s;
        uint16_t us;
        int32_t i;
        uint32_t u;
        int64_t l;
        uint64_t ul;
        float f;
    } v = {0};
    static const struct {
        uint64_t type;
        uint8_t bytes;
    } sizes[] = {{MTLDataTypeBool, 1},   {MTLDataTypeChar, 1},  {MTLDataTypeUChar, 1},  {MTLDataTypeShort, 2},
                 {MTLDataTypeUShort, 2}, {MTLDataTypeHalf, 2},  {MTLDataTypeBFloat, 2}, {MTLDataTypeInt, 4},
                 {MTLDataTypeUInt, 4},   {MTLDataTypeFloat, 4}, {MTLDataTypeLong, 8},   {MTLDataTypeULong, 8}};
    size_t bytes = 0;
    for (int i = 0; i < COUNT(sizes); i++)
        if (sizes[i].type == type) bytes = sizes[i].bytes;
    memcpy(&v, p, bytes);
    switch (type) {
    case MTLDataTypeBool: snprintf(out, room, "%d", v.uc != 0); break;
    case MTLDataTypeChar: snprintf(out, room, "%d", v.c); break;
    case MTLDataTypeUChar: snprintf(out, room, "%d", v.uc); break;
    case MTLDataTypeShort: snprintf(out, room, "%d", v.s); break;
    case MTLDataTypeUShort: snprintf(out, room, "%d", v.us); break;
    case MTLDataTypeInt: snprintf(out, room, "int(%uu)", v.u); break;
    case MTLDataTypeUInt: snprintf(out, room, "%uu", v.u); break;
    case MTLDataTypeLong: snprintf(out, room, "long(%lluul)", (unsigned long long)v.ul); break;
    case MTLDataTypeULong: snprintf(out, room, "%lluul", (unsigned long long)v.ul); break;
    case MTLDataTypeFloat: snprintf(out, room, "metal::as_type<float>(%uu)", v.u); break;
    case MTLDataTypeHalf: snprintf(out, room, "metal::as_type<metal::half>(ushort(%u))", v.us); break;
    case MTLDataTypeBFloat: snprintf(out, room, "metal::as_type<metal::bfloat>(ushort(%u))", v.us); break;
    }
    return bytes;
}

static void set_constant(id self, const void *value, uint64_t type, uint64_t index, const char *name, uint64_t nth)
{
    SELF(msl_values, v);
    char one[sizeof v->at->value];
    const size_t bytes = value ? scalar_text(type, "\0\0\0\0\0\0\0", one, sizeof one) : 0;
    if (!bytes || v->n == MAX_CONSTANTS || (name && strlen(name) >= sizeof v->at->name)) {
        misuse("a function constant of type %llu: scalars are simulated, 128 of them, with names of 63 letters",
               (unsigned long long)type);
        return;
    }
    struct msl_value *at = &v->at[v->n++];
    *at = (struct msl_value){.index = (int)(index + nth)};
    scalar_text(type, (const char *)value + nth * bytes, at->value, sizeof at->value);
    if (name) snprintf(at->name, sizeof at->name, "%s", name);
}
static void values_set_index(id self, SEL cmd, const void *value, uint64_t type, uint64_t index)
{
    (void)cmd;
    set_constant(self, value, type, index, NULL, 0);
}
static void values_set_name(id self, SEL cmd, const void *value, uint64_t type, id name)
{
    (void)cmd;
    if (argument(name, "NSString", "the name")) set_constant(self, value, type, 0, string_text(name), 0);
}
static void values_set_range(id self, SEL cmd, const void *value, uint64_t type, NSRange range)
{
    (void)cmd;
    for (uint64_t i = 0; i < range.length && i < MAX_CONSTANTS; i++)
        set_constant(self, value, type, range.location, NULL, i);
}
static void values_reset(id self, SEL cmd)
{
    (void)cmd;
    ((msl_values *)object_body(self))->n = 0;
}

static id library_names(id self, SEL cmd)
{
    (void)cmd;
    SELF(library, l);
    id *name = calloc((size_t)l->text.n_kernels + 1, sizeof *name);
    if (!name) abort();
    for (int i = 0; i < l->text.n_kernels; i++) name[i] = string_new(l->text.kernel[i].name);
    id all = array_new(name, l->text.n_kernels);
    for (int i = 0; i < l->text.n_kernels; i++) object_release(name[i]);
    free(name);
    return object_autorelease(all);
}
static int64_t library_type(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return 0;
}
OBJECT_PROPERTY(library, label, library_label, library_set_label)

static void function_end(void *body)
{
    function *f = body;
    free(f->values);
    object_drop(f->name), object_drop(f->library);
}
static id function_name(id self, SEL cmd)
{
    (void)cmd;
    return object_lend(((function *)object_body(self))->name);
}
static uint64_t function_type(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return MTLFunctionTypeKernel;
}

/* ---- pipelines ------------------------------------------------------------------------------------------------- */

static void pipeline_end(void *body)
{
    pipeline *p = body;
    object_drop(p->function), object_drop(p->label);
}

static char *pipeline_fill(pipeline *p, const function *f, uint64_t max_threads)
{
    const library *l = object_body(f->library);
    const msl_kernel *k = f->kernel;
    p->kernel = k, p->n_arguments = k->n_arguments;
    p->max_threads = max_threads ? max_threads : k->max_threads ? k->max_threads : MAX_GROUP_THREADS;
    if (p->max_threads > MAX_GROUP_THREADS) return strdup("more than 1024 threads a threadgroup");
    if (k->simdgroup_matrix && !the()->gpu->simdgroup_matrix)
        return strdup("the function uses simdgroup_matrix, which this GPU's family has not");
    if (l->text.shuffles && the()->gpu->no_shuffles)
        return strdup("the library uses simd_ functions, which this GPU's family has not");
    memcpy(p->argument, k->argument, sizeof p->argument);
    const char *missing = msl_missing_constant(&l->text, k, f->values);
    if (missing) {
        char *why = NULL;
        return asprintf(&why, "function %s needs a value for its function constant %s", k->name, missing) < 0 ? NULL
                                                                                                              : why;
    }
    char *wrong = the()->kernels == KERNELS_NONE ? NULL : msl_build(&l->text, k, f->values, &p->entry, p->argument);
    if (!wrong && p->entry.group_memory > MAX_GROUP_MEMORY)
        wrong = strdup("Threadgroup memory size exceeds the maximum threadgroup memory allowed (32768)");
    return wrong;
}

static id pipeline_make(id function_object, uint64_t max_threads, BOOL indirect, id *error)
{
    function *f = argument(function_object, "MTLFunction", "the function");
    if (!f) return NULL;
    world_lock();
    const fault *injected = fault_now(FAULT_PIPELINE);
    id o = object_new("MTLComputePipelineState");
    pipeline *p = object_body(o);
    object_hold(p->function = function_object);
    p->indirect = indirect;
    char *wrong = injected ? strdup("Compiler encountered an internal error") : pipeline_fill(p, f, max_threads);
    if (wrong) object_release(o), o = NULL;
    if (error) *error = wrong ? error_pooled("AGXMetalG13X", 2, wrong, NULL, NULL) : NULL;
    if (!wrong) counts()->pipelines++;
    free(wrong);
    world_unlock();
    return o;
}
static id device_pipeline(id self, SEL cmd, id function, id *error)
{
    (void)self, (void)cmd;
    return pipeline_make(function, 0, 0, error);
}
static id device_pipeline_described(id self, SEL cmd, id descriptor, uint64_t options, id *reflection, id *error)
{
    (void)self, (void)cmd;
    pipeline_descriptor *d = argument(descriptor, "MTLComputePipelineDescriptor", "the descriptor");
    if (!d) return NULL;
    if (options || reflection) return misuse("reflection is not simulated: options 0, reflection NULL"), NULL;
    id o = pipeline_make(d->function, d->max_threads, d->indirect, error);
    if (o && d->label) object_hold(((pipeline *)object_body(o))->label = d->label);
    return o;
}
static uint64_t pipeline_max_threads(id self, SEL cmd)
{
    (void)cmd;
    return ((pipeline *)object_body(self))->max_threads;
}
static uint64_t pipeline_width(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return LANES;
}
static uint64_t pipeline_group_memory(id self, SEL cmd)
{
    (void)cmd;
    return (((pipeline *)object_body(self))->entry.group_memory + 15) & ~(uint64_t)15;
}
static BOOL pipeline_indirect(id self, SEL cmd)
{
    (void)cmd;
    return ((pipeline *)object_body(self))->indirect;
}
static id pipeline_label(id self, SEL cmd)
{
    (void)cmd;
    return object_lend(((pipeline *)object_body(self))->label);
}

static void descriptor_end(void *body)
{
    pipeline_descriptor *d = body;
    object_drop(d->function), object_drop(d->label);
}
OBJECT_PROPERTY(pipeline_descriptor, function, descriptor_function, descriptor_set_function)
OBJECT_PROPERTY(pipeline_descriptor, label, descriptor_label, descriptor_set_label)
PROPERTY(pipeline_descriptor, uint64_t, max_threads, descriptor_max_threads, descriptor_set_max_threads)
PROPERTY(pipeline_descriptor, BOOL, multiple, descriptor_multiple, descriptor_set_multiple)
PROPERTY(pipeline_descriptor, BOOL, indirect, descriptor_indirect, descriptor_set_indirect)
PROPERTY(pipeline_descriptor, int64_t, validation, descriptor_validation, descriptor_set_validation)

/* ---- libraries as data: what MTLCompiler's service hands back is `MTLB`, a line of settings, the source, `ENDT`
 * -------------------- */

typedef struct data {
    uint8_t *bytes;
    uint64_t n;
} data;

static void data_end(void *body)
{
    free(((data *)body)->bytes);
}
EXPORT id dispatch_data_create(const void *bytes, size_t n, void *queue, void *destructor)
{
    (void)queue;
    if (destructor) misuse("dispatch_data_create: a destructor; pass NULL and the bytes are copied");
    id o = object_new("OS_dispatch_data");
    data *d = object_body(o);
    d->bytes = malloc(n ? n : 1), d->n = n;
    if (!d->bytes) abort();
    memcpy(d->bytes, bytes, n);
    return o;
}

static id device_library_data(id self, SEL cmd, id bytes, id *error)
{
    (void)self, (void)cmd;
    data *d = argument(bytes, "OS_dispatch_data", "the data");
    int version, fast, at = 0;
    if (!d) return NULL;
    if (d->n < 16 || memcmp(d->bytes + d->n - 4, "ENDT", 4) ||
        sscanf((const char *)d->bytes, "MTLB %d %d\n%n", &version, &fast, &at) < 2 || !at) {
        if (error)
            *error =
                error_pooled("MTLLibraryErrorDomain", MTLLibraryErrorUnsupported, "Invalid library file", NULL, NULL);
        return NULL;
    }
    char *source = strndup((const char *)d->bytes + at, d->n - 4 - (uint64_t)at);
    id o = source ? library_make(source, version, fast, error) : NULL;
    free(source);
    return o;
}

struct reply_block {
    void *isa;
    int32_t flags, reserved;
    void (*invoke)(struct reply_block *self, int32_t error, const void *bytes, size_t n, const char *message);
};

EXPORT void *MTLCodeGenServiceCreate(const char *name)
{
    static char service;
    (void)name;
    return &service;
}
EXPORT void MTLCodeGenServiceBuildRequest(void *service, void *unused, int type, const void *request, size_t n,
                                          struct reply_block *reply)
{
    (void)service, (void)unused;
    uint64_t length[2];
    if (type != 13 || n < sizeof length) {
        reply->invoke(reply, 1, NULL, 0, "request type 13 compiles a source");
        return;
    }
    memcpy(length, request, sizeof length);
    const char *source = (const char *)request + sizeof length, *options = source + length[0];
    const char *standard = strstr(options, "-std=");
    int major = 2, minor = 0;
    if (standard)
        sscanf(standard, standard[5] == 'm' && standard[6] == 'a' ? "-std=macos-metal%d.%d" : "-std=metal%d.%d", &major,
               &minor);
    int version = major * 100 + minor * 10, fast = !strstr(options, "-fno-fast-math");
    msl_text text;
    world_lock();
    char *wrong = msl_read(source, version, fast, &text);
    msl_free(&text);
    world_unlock();
    if (wrong) {
        reply->invoke(reply, 1, NULL, 0, wrong);
        free(wrong);
        return;
    }
    /* Two sizes at byte 8 say where the library begins: after the header, and after warnings. */
    size_t room = strlen(source) + 64;
    uint8_t *answer = calloc(1, room);
    if (!answer) abort();
    memcpy(answer + 8, (uint32_t[]){16, 0}, 8);
    int bytes = snprintf((char *)answer + 16, room - 16, "MTLB %d %d\n%sENDT", version, fast, source);
    reply->invoke(reply, 0, answer, (size_t)bytes + 16, NULL);
    free(answer);
}

static const class_row classes[] = {
    {"MTLCompileOptions", "", sizeof(compile_options), NULL, 0},
    {"MTLLibrary", "", sizeof(library), library_end, -1},
    {"MTLFunction", "", sizeof(function), function_end, -1},
    {"MTLFunctionConstantValues", "", sizeof(msl_values), NULL, 0},
    {"MTLComputePipelineDescriptor", "", sizeof(pipeline_descriptor), descriptor_end, 0},
    {"MTLComputePipelineState", "", sizeof(pipeline), pipeline_end, -1},
    {"OS_dispatch_data", "", sizeof(data), data_end, -1},
};
static const method_row methods[] = {
    {"MTLCompileOptions", "fastMathEnabled", METHOD_OF(options_fast)},
    {"MTLCompileOptions", "setFastMathEnabled:", METHOD_OF(options_set_fast)},
    {"MTLCompileOptions", "mathMode", METHOD_OF(options_math)},
    {"MTLCompileOptions", "setMathMode:", METHOD_OF(options_set_math)},
    {"MTLCompileOptions", "mathFloatingPointFunctions", METHOD_OF(options_functions)},
    {"MTLCompileOptions", "setMathFloatingPointFunctions:", METHOD_OF(options_set_functions)},
    {"MTLCompileOptions", "languageVersion", METHOD_OF(options_language)},
    {"MTLCompileOptions", "setLanguageVersion:", METHOD_OF(options_set_language)},
    {"MTLCompileOptions", "optimizationLevel", METHOD_OF(options_optimization)},
    {"MTLCompileOptions", "setOptimizationLevel:", METHOD_OF(options_set_optimization)},
    {"MTLCompileOptions", "maxTotalThreadsPerThreadgroup", METHOD_OF(options_max_threads)},
    {"MTLCompileOptions", "setMaxTotalThreadsPerThreadgroup:", METHOD_OF(options_set_max_threads)},
    {"MTLCompileOptions", "preserveInvariance", METHOD_OF(options_invariance)},
    {"MTLCompileOptions", "setPreserveInvariance:", METHOD_OF(options_set_invariance)},
    {"MTLDevice", "newLibraryWithSource:options:error:", METHOD_OF(device_library)},
    {"MTLDevice", "newLibraryWithData:error:", METHOD_OF(device_library_data)},
    {"MTLLibrary", "newFunctionWithName:", METHOD_OF(library_function)},
    {"MTLLibrary", "newFunctionWithName:constantValues:error:", METHOD_OF(library_function_with)},
    {"MTLFunctionConstantValues", "setConstantValue:type:atIndex:", METHOD_OF(values_set_index)},
    {"MTLFunctionConstantValues", "setConstantValue:type:withName:", METHOD_OF(values_set_name)},
    {"MTLFunctionConstantValues", "setConstantValues:type:withRange:", METHOD_OF(values_set_range)},
    {"MTLFunctionConstantValues", "reset", METHOD_OF(values_reset)},
    {"MTLLibrary", "functionNames", METHOD_OF(library_names)},
    {"MTLLibrary", "type", METHOD_OF(library_type)},
    {"MTLLibrary", "label", METHOD_OF(library_label)},
    {"MTLLibrary", "setLabel:", METHOD_OF(library_set_label)},
    {"MTLLibrary", "device", METHOD_OF(device_of)},
    {"MTLFunction", "name", METHOD_OF(function_name)},
    {"MTLFunction", "functionType", METHOD_OF(function_type)},
    {"MTLFunction", "device", METHOD_OF(device_of)},
    {"MTLDevice", "newComputePipelineStateWithFunction:error:", METHOD_OF(device_pipeline)},
    {"MTLDevice",
     "newComputePipelineStateWithDescriptor:options:reflection:error:", METHOD_OF(device_pipeline_described)},
    {"MTLComputePipelineState", "maxTotalThreadsPerThreadgroup", METHOD_OF(pipeline_max_threads)},
    {"MTLComputePipelineState", "threadExecutionWidth", METHOD_OF(pipeline_width)},
    {"MTLComputePipelineState", "staticThreadgroupMemoryLength", METHOD_OF(pipeline_group_memory)},
    {"MTLComputePipelineState", "supportIndirectCommandBuffers", METHOD_OF(pipeline_indirect)},
    {"MTLComputePipelineState", "label", METHOD_OF(pipeline_label)},
    {"MTLComputePipelineState", "device", METHOD_OF(device_of)},
    {"MTLComputePipelineDescriptor", "computeFunction", METHOD_OF(descriptor_function)},
    {"MTLComputePipelineDescriptor", "setComputeFunction:", METHOD_OF(descriptor_set_function)},
    {"MTLComputePipelineDescriptor", "label", METHOD_OF(descriptor_label)},
    {"MTLComputePipelineDescriptor", "setLabel:", METHOD_OF(descriptor_set_label)},
    {"MTLComputePipelineDescriptor", "maxTotalThreadsPerThreadgroup", METHOD_OF(descriptor_max_threads)},
    {"MTLComputePipelineDescriptor", "setMaxTotalThreadsPerThreadgroup:", METHOD_OF(descriptor_set_max_threads)},
    {"MTLComputePipelineDescriptor", "threadGroupSizeIsMultipleOfThreadExecutionWidth", METHOD_OF(descriptor_multiple)},
    {"MTLComputePipelineDescriptor",
     "setThreadGroupSizeIsMultipleOfThreadExecutionWidth:", METHOD_OF(descriptor_set_multiple)},
    {"MTLComputePipelineDescriptor", "supportIndirectCommandBuffers", METHOD_OF(descriptor_indirect)},
    {"MTLComputePipelineDescriptor", "setSupportIndirectCommandBuffers:", METHOD_OF(descriptor_set_indirect)},
    {"MTLComputePipelineDescriptor", "shaderValidation", METHOD_OF(descriptor_validation)},
    {"MTLComputePipelineDescriptor", "setShaderValidation:", METHOD_OF(descriptor_set_validation)},
};
const module library_module = {classes, COUNT(classes), methods, COUNT(methods), NULL};
