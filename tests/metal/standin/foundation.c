/* foundation.c: as much of Foundation and libSystem as a Metal backend asks. A string's UTF8String dies with the pool
 * it was asked in: its letters become '#'. */
#define _GNU_SOURCE
#include "core.h"
#include "settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* ---- strings: their characters are kept until the next configure */
typedef struct string {
    char *text;
} string;
static struct kept {
    struct kept *next;
    char text[];
} * kept;

static char *keep(const char *text)
{
    size_t n = strlen(text) + 1;
    struct kept *k = malloc(sizeof *k + n);
    if (!k) abort();
    world_lock();
    k->next = kept, kept = k;
    world_unlock();
    return memcpy(k->text, text, n);
}

static void string_end(void *body)
{
    char *text = ((string *)body)->text;
    for (char *p = text; p && *p; p++) *p = '#'; /* whoever still reads it must see that it is gone */
}

id string_new(const char *text)
{
    id o = object_new("NSString");
    ((string *)object_body(o))->text = keep(text);
    return o;
}
id string_pooled(const char *text)
{
    return object_autorelease(string_new(text));
}
const char *string_text(id o)
{
    string *s = argument(o, "NSString", "a string");
    return s && s->text ? s->text : "";
}

static bool is_utf8(const char *text)
{
    for (const uint8_t *p = (const uint8_t *)text; *p;) {
        int more = *p < 0x80 ? 0 : *p >> 5 == 6 ? 1 : *p >> 4 == 14 ? 2 : *p >> 3 == 30 ? 3 : -1;
        if (more < 0) return false;
        for (p++; more > 0; more--, p++)
            if (*p >> 6 != 2) return false;
    }
    return true;
}

static id string_with(id self, SEL cmd, const char *text)
{
    (void)self, (void)cmd;
    if (!text) return misuse("NULL is no string"), NULL;
    return is_utf8(text) ? string_pooled(text) : NULL;
}
static id string_init(id self, SEL cmd, const char *text)
{
    (void)cmd;
    if (!text || !is_utf8(text)) {
        if (!text) misuse("NULL is no string");
        object_release(self);
        return NULL;
    }
    ((string *)object_body(self))->text = keep(text);
    return self;
}
static const char *string_utf8(id self, SEL cmd)
{
    (void)cmd;
    return string_text(string_pooled(string_text(self)));
}
static uint64_t string_length(id self, SEL cmd)
{
    (void)cmd;
    uint64_t n = 0;
    for (const char *p = string_text(self); *p; p++) n += ((uint8_t)*p & 0xc0) != 0x80;
    return n;
}
static BOOL string_equal(id self, SEL cmd, id other)
{
    (void)cmd;
    return object_is(other, "NSString") && !strcmp(string_text(self), string_text(other));
}

/* ---- arrays, dictionaries, numbers, URLs */
typedef struct array {
    id *item;
    int n;
} array;

static void array_end(void *body)
{
    array *a = body;
    for (int i = 0; i < a->n; i++) object_drop(a->item[i]);
    free(a->item);
}
id array_new(const id *item, int n)
{
    id o = object_new("NSArray");
    array *a = object_body(o);
    a->item = calloc((size_t)n + 1, sizeof *a->item);
    if (!a->item) abort();
    a->n = n;
    for (int i = 0; i < n; i++) object_hold(a->item[i] = item[i]);
    return o;
}
static uint64_t array_count(id self, SEL cmd)
{
    (void)cmd;
    SELF(array, a);
    return (uint64_t)a->n;
}
static id array_at(id self, SEL cmd, uint64_t i)
{
    (void)cmd;
    SELF(array, a);
    if (i < (uint64_t)a->n) return object_lend(a->item[i]);
    misuse("index %llu of %d (NSRangeException)", (unsigned long long)i, a->n);
    return NULL;
}

typedef struct dictionary {
    id key, value;
} dictionary;

static void dictionary_end(void *body)
{
    dictionary *d = body;
    object_drop(d->key), object_drop(d->value);
}
static id dictionary_with(id self, SEL cmd, id value, id key)
{
    (void)self, (void)cmd;
    if (!object_alive(value) || !object_alive(key)) return misuse("a key or a value is no object"), NULL;
    id o = object_pooled("NSDictionary");
    dictionary *d = object_body(o);
    object_hold(d->key = key), object_hold(d->value = value);
    return o;
}
static id dictionary_for(id self, SEL cmd, id key)
{
    (void)cmd;
    SELF(dictionary, d);
    bool same = key == d->key || (object_is(key, "NSString") && object_is(d->key, "NSString") &&
                                  !strcmp(string_text(key), string_text(d->key)));
    return d->key && same ? object_lend(d->value) : NULL;
}
static uint64_t dictionary_count(id self, SEL cmd)
{
    (void)cmd;
    SELF(dictionary, d);
    return d->key != NULL;
}

static id number_with(id self, SEL cmd, int32_t value)
{
    (void)self, (void)cmd;
    id o = object_pooled("NSNumber");
    *(int32_t *)object_body(o) = value;
    return o;
}
static int32_t number_value(id self, SEL cmd)
{
    (void)cmd;
    return *(int32_t *)object_body(self);
}

static id url_with(id self, SEL cmd, id path)
{
    (void)self, (void)cmd;
    if (!argument(path, "NSString", "the path")) return NULL;
    id o = object_pooled("NSURL");
    ((string *)object_body(o))->text = keep(string_text(path));
    return o;
}
static id url_path(id self, SEL cmd)
{
    (void)cmd;
    SELF(string, s);
    return string_pooled(s->text ? s->text : "");
}

/* ---- errors */
typedef struct error {
    int64_t code;
    id domain, description, info;
} error;

static void error_end(void *body)
{
    error *e = body;
    object_drop(e->domain), object_drop(e->description), object_drop(e->info);
}
static id string_held(const char *text)
{
    id s = string_new(text);
    object_hold(s);
    object_release(s);
    return s;
}
id error_new(const char *domain, int64_t code, const char *description, id key, id value)
{
    id o = object_new("NSError");
    error *e = object_body(o);
    e->code = code, e->domain = string_held(domain), e->description = string_held(description);
    e->info = object_new("NSDictionary");
    object_hold(e->info);
    object_release(e->info);
    dictionary *d = object_body(e->info);
    object_hold(d->key = key), object_hold(d->value = value);
    return o;
}
id error_pooled(const char *domain, int64_t code, const char *description, id key, id value)
{
    return object_autorelease(error_new(domain, code, description, key, value));
}
static int64_t error_code(id self, SEL cmd)
{
    (void)cmd;
    return ((error *)object_body(self))->code;
}
static id error_domain(id self, SEL cmd)
{
    (void)cmd;
    return object_lend(((error *)object_body(self))->domain);
}
static id error_description(id self, SEL cmd) /* made when asked for: +0, in the pool */
{
    (void)cmd;
    return string_pooled(string_text(((error *)object_body(self))->description));
}
static id error_info(id self, SEL cmd)
{
    (void)cmd;
    return object_lend(((error *)object_body(self))->info);
}

/* ---- the process and its machine */
typedef struct version {
    int64_t major, minor, patch;
} version;

static id process_info(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return object_pooled("NSProcessInfo");
}
static version process_version(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return (version){the()->macos / 100, the()->macos % 100, 0};
}
static int64_t process_thermal(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return (int64_t)the()->thermal;
}
static id process_begin(id self, SEL cmd, uint64_t options, id reason)
{
    (void)self, (void)cmd;
    if (!(options & 1u << 20)) misuse("an activity without NSActivityIdleSystemSleepDisabled lets the Mac sleep");
    if (!reason) misuse("an activity has a reason");
    return object_pooled("NSActivity");
}
static void process_end(id self, SEL cmd, id activity)
{
    (void)self, (void)cmd;
    if (!activity) misuse("endActivity: of nothing");
}
static BOOL process_low_power(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return the()->low_power != 0;
}
static uint64_t process_memory(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return the()->memory;
}
static uint64_t process_processors(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return 8;
}

void *objc_autoreleasePoolPush(void);
void objc_autoreleasePoolPop(void *token);
static id pool_init(id self, SEL cmd)
{
    (void)cmd;
    *(void **)object_body(self) = objc_autoreleasePoolPush();
    return self;
}
static void pool_drain(id self, SEL cmd)
{
    (void)cmd;
    objc_autoreleasePoolPop(*(void **)object_body(self));
    object_release(self);
}

BOOL bool_argument(BOOL value)
{
    if (value != 0 && value != 1) misuse("a BOOL of %d", value);
    return value != 0;
}

/* ---- C functions and data of libSystem and the frameworks */
EXPORT int sysctlbyname(const char *name, void *old, size_t *room, void *new, size_t new_bytes)
{
    (void)new, (void)new_bytes;
    char text[64];
    uint64_t number = 0;
    bool is_text = true;
    snprintf(text, sizeof text, "%d.%d", the()->macos / 100, the()->macos % 100);
    if (!strcmp(name, "machdep.cpu.brand_string"))
        snprintf(text, sizeof text, "%s",
                 the()->gpu->apple ? the()->gpu->name : "Intel(R) Core(TM) i9-9880H CPU @ 2.30GHz");
    else if (!strcmp(name, "hw.model"))
        snprintf(text, sizeof text, "%s", the()->gpu->apple ? "Mac14,2" : "MacBookPro16,1");
    else if (strcmp(name, "kern.osproductversion"))
        is_text = false;
    if (!strcmp(name, "hw.memsize"))
        number = the()->memory;
    else if (!strcmp(name, "hw.pagesize"))
        number = the()->gpu->apple ? 16384 : 4096;
    else if (!strcmp(name, "hw.optional.arm64"))
        number = the()->gpu->apple != 0;
    else if (!is_text)
        return errno = ENOENT, -1;
    size_t bytes = is_text ? strlen(text) + 1 : strcmp(name, "hw.optional.arm64") ? sizeof number : sizeof(int32_t);
    if (old && *room < bytes) return errno = ENOMEM, -1;
    if (old) memcpy(old, is_text ? (const void *)text : (const void *)&number, bytes);
    *room = bytes;
    return 0;
}

/* Blocks that a C program makes by hand have this as their isa. */
EXPORT void *_NSConcreteGlobalBlock[32];
EXPORT void *_NSConcreteStackBlock[32];

#define CONSTANT_STRINGS(X)                                                                                            \
    X(MTLCommandBufferErrorDomain) X(MTLLibraryErrorDomain) X(MTLCommandBufferEncoderInfoErrorKey)
#define X(name)                                                                                                        \
    EXPORT extern id name;                                                                                             \
    id name;
CONSTANT_STRINGS(X)
#undef X

static void reset(void)
{
    for (struct kept *k = kept, *next; k; k = next) next = k->next, free(k);
    kept = NULL;
#define X(name) name = object_lend(string_held(#name));
    CONSTANT_STRINGS(X)
#undef X
}

static const class_row classes[] = {
    {"NSString", "", sizeof(string), string_end, 0},
    {"NSError", "", sizeof(error), error_end, 0},
    {"NSArray", "", sizeof(array), array_end, 0},
    {"NSDictionary", "", sizeof(dictionary), dictionary_end, 0},
    {"NSNumber", "", sizeof(int32_t), NULL, 0},
    {"NSURL", "", sizeof(string), string_end, 0},
    {"NSProcessInfo", "", 0, NULL, 0},
    {"NSActivity", "", 0, NULL, 0},
    {"NSAutoreleasePool", "", sizeof(void *), NULL, 0},
};
static const method_row methods[] = {
    {"NSString", "+stringWithUTF8String:", METHOD_OF(string_with)},
    {"NSString", "initWithUTF8String:", METHOD_OF(string_init)},
    {"NSString", "UTF8String", METHOD_OF(string_utf8)},
    {"NSString", "length", METHOD_OF(string_length)},
    {"NSString", "isEqualToString:", METHOD_OF(string_equal)},
    {"NSError", "code", METHOD_OF(error_code)},
    {"NSError", "domain", METHOD_OF(error_domain)},
    {"NSError", "localizedDescription", METHOD_OF(error_description)},
    {"NSError", "userInfo", METHOD_OF(error_info)},
    {"NSArray", "count", METHOD_OF(array_count)},
    {"NSArray", "objectAtIndex:", METHOD_OF(array_at)},
    {"NSArray", "objectAtIndexedSubscript:", METHOD_OF(array_at)},
    {"NSDictionary", "+dictionaryWithObject:forKey:", METHOD_OF(dictionary_with)},
    {"NSDictionary", "objectForKey:", METHOD_OF(dictionary_for)},
    {"NSDictionary", "count", METHOD_OF(dictionary_count)},
    {"NSNumber", "+numberWithInt:", METHOD_OF(number_with)},
    {"NSNumber", "intValue", METHOD_OF(number_value)},
    {"NSURL", "+fileURLWithPath:", METHOD_OF(url_with)},
    {"NSURL", "path", METHOD_OF(url_path)},
    {"NSProcessInfo", "+processInfo", METHOD_OF(process_info)},
    {"NSProcessInfo", "operatingSystemVersion", METHOD_OF(process_version)},
    {"NSProcessInfo", "thermalState", METHOD_OF(process_thermal)},
    {"NSProcessInfo", "beginActivityWithOptions:reason:", METHOD_OF(process_begin)},
    {"NSProcessInfo", "endActivity:", METHOD_OF(process_end)},
    {"NSProcessInfo", "isLowPowerModeEnabled", METHOD_OF(process_low_power)},
    {"NSProcessInfo", "physicalMemory", METHOD_OF(process_memory)},
    {"NSProcessInfo", "activeProcessorCount", METHOD_OF(process_processors)},
    {"NSAutoreleasePool", "init", METHOD_OF(pool_init)},
    {"NSAutoreleasePool", "drain", METHOD_OF(pool_drain)},
};
const module foundation_module = {classes, COUNT(classes), methods, COUNT(methods), reset};
