/* core.c: the Objective-C side: selectors, classes, message sending, ownership, pools, misuse. See core.h. */
#define _GNU_SOURCE
#include "core.h"
#include "settings.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { MAX_SELECTORS = 2048, MAX_CLASSES = 96, MAX_OBJECTS = 1 << 20, MAX_MISUSES = 256 };
#if defined(__aarch64__)
enum { BOOL_CODE = 'B' };
#else
enum { BOOL_CODE = 'c' };
#endif
enum { ALIVE = 0x0b7ec7, DEAD = 0xdead0b7 };

struct selector {
    char *name;
    int number;
};
typedef struct fact {
    const char *owner, *sign, *selector, *result, *arguments;
    int since;
} fact;
typedef struct bound {
    imp fn;
    SEL selector;
    const fact *fact;
    char encoding[320]; /* as method_getTypeEncoding gives it */
} bound;
struct class
{
    object *object;
    const class_row *row;
    bound *instance[MAX_SELECTORS], *own[MAX_SELECTORS]; /* own: methods of the class object */
};

static const fact facts[] = {
#define METHOD(owner, kind, sign, selector, result, arguments, since, until)                                           \
    {#owner, sign, selector, result, arguments, since},
#define VALUE(type, name, value)
#include "api.def"
#include "foundation.def"
#undef METHOD
#undef VALUE
};
static const module *const modules[] = {&foundation_module, &device_module,  &library_module,
                                        &command_module,    &execute_module, &indirect_module};

static struct world {
    pthread_mutex_t lock;
    struct selector selectors[MAX_SELECTORS];
    int slot[2 * MAX_SELECTORS], n_selectors; /* slot: 1 + number, by hash */
    struct class classes[MAX_CLASSES];
    int n_classes;
    object *objects;
    size_t next_object;
    bool wrapped, resetting;
    uint64_t generation;
    standin_counts counts;
    char *misuse[MAX_MISUSES];
    int n_misuses;
} W;
static _Thread_local struct {
    const char *class_name, *selector;
} now;

void world_lock(void)
{
    pthread_mutex_lock(&W.lock);
}
void world_unlock(void)
{
    pthread_mutex_unlock(&W.lock);
}
standin_counts *counts(void)
{
    return &W.counts;
}

void misuse(const char *fmt, ...)
{
    char text[1024];
    int n = now.selector ? snprintf(text, sizeof text, "%s %s: ", now.class_name, now.selector) : 0;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text + n, sizeof text - (size_t)n, fmt, args);
    va_end(args);
    if (!the()->record) {
        void *frame[32];
        fprintf(stderr, "metal stand-in: %s\n", text);
        backtrace_symbols_fd(frame, backtrace(frame, 32), STDERR_FILENO);
        abort();
    }
    world_lock();
    if (W.n_misuses < MAX_MISUSES) W.misuse[W.n_misuses++] = strdup(text);
    world_unlock();
}

/* ---- selectors ------------------------------------------------------------------------------------------------- */

static SEL selector_of(const char *name)
{
    uint32_t h = 2166136261u;
    for (const char *p = name; *p; p++) h = (h ^ (uint8_t)*p) * 16777619u;
    world_lock();
    for (uint32_t i = h;; i++) {
        int *slot = &W.slot[i % (2 * MAX_SELECTORS)];
        if (*slot && strcmp(W.selectors[*slot - 1].name, name)) continue;
        if (!*slot) {
            if (W.n_selectors == MAX_SELECTORS) abort();
            W.selectors[W.n_selectors] = (struct selector){strdup(name), W.n_selectors};
            *slot = ++W.n_selectors;
        }
        SEL found = &W.selectors[*slot - 1];
        world_unlock();
        return found;
    }
}

EXPORT SEL sel_registerName(const char *name)
{
    return selector_of(name);
}
EXPORT const char *sel_getName(SEL s)
{
    return s->name;
}

/* ---- objects --------------------------------------------------------------------------------------------------- */

static bool is_slot(const object *o)
{
    size_t at = (size_t)((const uint8_t *)o - (const uint8_t *)W.objects);
    return o >= W.objects && o < W.objects + MAX_OBJECTS && at % sizeof *o == 0 && o->magic;
}

static object *object_slot(void)
{
    for (size_t tries = 0; tries < MAX_OBJECTS; tries++) {
        object *o = &W.objects[W.next_object];
        if (++W.next_object == MAX_OBJECTS) W.next_object = 0, W.wrapped = true;
        if (o->magic != ALIVE) return o;
    }
    fprintf(stderr, "metal stand-in: %d objects are alive\n", MAX_OBJECTS);
    abort();
}

static struct class *class_named(const char *name)
{
    for (int i = 0; i < W.n_classes; i++)
        if (!strcmp(W.classes[i].row->name, name)) return &W.classes[i];
    return NULL;
}

static id object_of(struct class *c)
{
    world_lock();
    object *o = object_slot();
    *o = (object){.isa = c, .magic = ALIVE, .owned = 1, .made_by = now.selector};
    o->body = calloc(1, c->row->body_bytes ? c->row->body_bytes : 1);
    if (!o->body) abort();
    o->n_made_at = backtrace(o->made_at, MADE_AT);
    W.counts.objects_alive++;
    world_unlock();
    return o;
}

id object_new(const char *class_name)
{
    return object_of(class_named(class_name));
}
id object_pooled(const char *class_name)
{
    return object_autorelease(object_new(class_name));
}
void *object_body(id o)
{
    return o->body;
}
const char *object_class(const object *o)
{
    return o->isa->row->name;
}
bool object_alive(id o)
{
    return o && is_slot(o) && o->magic == ALIVE;
}
bool object_is(id o, const char *class_name)
{
    return object_alive(o) && !o->is_class && !strcmp(object_class(o), class_name);
}

void *argument(id o, const char *class_name, const char *what)
{
    if (!o)
        misuse("%s is nil", what);
    else if (!is_slot(o))
        misuse("%s is no object (%p)", what, (void *)o);
    else if (o->magic != ALIVE)
        misuse("%s is a %s that has been freed", what, object_class(o));
    else if (!object_is(o, class_name))
        misuse("%s is a %s, not a %s", what, object_class(o), class_name);
    else
        return o->body;
    return NULL;
}

static void object_end(object *o)
{
    if (o->isa->row->dealloc) o->isa->row->dealloc(o->body);
    free(o->body);
    o->body = NULL;
    o->magic = DEAD;
    W.counts.objects_alive--;
}

id object_retain(id o)
{
    if (!o || o->is_class) return o;
    world_lock();
    o->owned++;
    world_unlock();
    return o;
}

void object_release(id o)
{
    if (!o || o->is_class) return;
    world_lock();
    if (o->owned - o->pooled < 1)
        misuse("a %s is released once more than it is owned%s", object_class(o),
               o->pooled ? ": the rest belongs to a pool" : "");
    else if (--o->owned + o->held == 0)
        object_end(o);
    world_unlock();
}

void object_hold(id o)
{
    if (!o) return;
    world_lock();
    o->held++;
    world_unlock();
}

void object_drop(id o)
{
    if (!o || W.resetting) return;
    world_lock();
    if (--o->held + o->owned == 0) object_end(o);
    world_unlock();
}

id object_lend(id o)
{
    if (o) o->lent = true;
    return o;
}

/* ---- pools: a stack in each thread ----------------------------------------------------------------------------- */

typedef struct pool {
    id *item;
    int n, room;
    uint64_t token, generation;
} pool;
typedef struct pools {
    pool *pool;
    int n, room;
} pools;
static pthread_key_t pools_key;

static void pools_left(void *all)
{
    pools *p = all;
    now.selector = NULL;
    if (p->n) misuse("a thread ends with %d pools that it has not popped", p->n);
    free(p->pool);
    free(p);
}

static pools *my_pools(void)
{
    pools *p = pthread_getspecific(pools_key);
    if (p) return p;
    p = calloc(1, sizeof *p);
    if (!p) abort();
    pthread_setspecific(pools_key, p);
    return p;
}

id object_autorelease(id o)
{
    if (!o || o->is_class) return o;
    pools *all = my_pools();
    if (!all->n) {
        if (!the()->pools_may_lack) misuse("a %s would go to a pool, and this thread has none", object_class(o));
        return o;
    }
    pool *p = &all->pool[all->n - 1];
    if (p->n == p->room) {
        p->room = p->room ? 2 * p->room : 64;
        p->item = realloc(p->item, (size_t)p->room * sizeof *p->item);
        if (!p->item) abort();
    }
    world_lock();
    o->pooled++;
    if (o->pooled > o->owned) misuse("a %s is autoreleased more often than it is owned", object_class(o));
    W.counts.autoreleased++;
    world_unlock();
    p->item[p->n++] = o;
    return o;
}

EXPORT void *objc_autoreleasePoolPush(void)
{
    static uint64_t tokens;
    pools *all = my_pools();
    if (all->n == all->room) {
        all->room = all->room ? 2 * all->room : 8;
        all->pool = realloc(all->pool, (size_t)all->room * sizeof *all->pool);
        if (!all->pool) abort();
    }
    world_lock();
    uint64_t token = ++tokens;
    W.counts.pools++;
    world_unlock();
    all->pool[all->n++] = (pool){.token = token, .generation = W.generation};
    return (void *)(uintptr_t)(token << 4); /* never looked into */
}

static void pool_end(pool *p)
{
    for (int i = p->n - 1; i >= 0; i--) {
        object *o = p->item[i];
        if (p->generation != W.generation || o->magic != ALIVE) continue;
        world_lock();
        o->pooled--;
        if (--o->owned + o->held == 0) object_end(o);
        world_unlock();
    }
    free(p->item);
}

EXPORT void objc_autoreleasePoolPop(void *token)
{
    pools *all = my_pools();
    now.class_name = "", now.selector = "objc_autoreleasePoolPop";
    int at = all->n - 1;
    while (at >= 0 && all->pool[at].token != (uintptr_t)token >> 4) at--;
    if (at < 0) {
        misuse("no open pool of this thread");
        return;
    }
    if (at < all->n - 1) misuse("%d pools that were pushed later are still open", all->n - 1 - at);
    while (all->n > at) pool_end(&all->pool[--all->n]);
}

/* ---- what every object has ------------------------------------------------------------------------------------- */

EXPORT id objc_retain(id o)
{
    now.class_name = "", now.selector = "objc_retain";
    if (o && (!is_slot(o) || o->magic != ALIVE)) {
        misuse("%p is no object, or has been freed", (void *)o);
        return o;
    }
    return object_retain(o);
}
EXPORT void objc_release(id o)
{
    now.class_name = "", now.selector = "objc_release";
    if (o && (!is_slot(o) || o->magic != ALIVE))
        misuse("%p is no object, or has been freed", (void *)o);
    else
        object_release(o);
}

static id nsobject_new(id self, SEL cmd)
{
    (void)cmd;
    return object_of((struct class *)(uintptr_t)self->isa);
}
static id nsobject_itself(id self, SEL cmd)
{
    (void)cmd;
    return self;
}
static id nsobject_retain(id self, SEL cmd)
{
    (void)cmd;
    return object_retain(self);
}
static void nsobject_release(id self, SEL cmd)
{
    (void)cmd;
    object_release(self);
}
static id nsobject_autorelease(id self, SEL cmd)
{
    (void)cmd;
    return object_autorelease(self);
}
static uint64_t nsobject_retain_count(id self, SEL cmd)
{
    (void)cmd;
    return (uint64_t)(self->owned + self->held);
}
static id nsobject_description(id self, SEL cmd)
{
    (void)cmd;
    char text[96];
    snprintf(text, sizeof text, "<%s: %p>", object_class(self), (void *)self);
    return string_pooled(text);
}

static const bound *bound_of(const object *o, SEL selector)
{
    if (selector < W.selectors || selector >= W.selectors + W.n_selectors) return NULL;
    const bound *b = o->is_class ? o->isa->own[selector->number] : o->isa->instance[selector->number];
    return b && b->fact->since <= the()->macos ? b : NULL;
}

static BOOL nsobject_responds(id self, SEL cmd, SEL selector)
{
    (void)cmd;
    return bound_of(self, selector) != NULL;
}

static const method_row nsobject_methods[] = {
    {"NSObject", "+alloc", METHOD_OF(nsobject_new)},
    {"NSObject", "+new", METHOD_OF(nsobject_new)},
    {"NSObject", "init", METHOD_OF(nsobject_itself)},
    {"NSObject", "retain", METHOD_OF(nsobject_retain)},
    {"NSObject", "release", METHOD_OF(nsobject_release)},
    {"NSObject", "autorelease", METHOD_OF(nsobject_autorelease)},
    {"NSObject", "retainCount", METHOD_OF(nsobject_retain_count)},
    {"NSObject", "description", METHOD_OF(nsobject_description)},
    {"NSObject", "respondsToSelector:", METHOD_OF(nsobject_responds)},
};

/* ---- messages: the trampoline asks lookup for the method, then jumps to it with everything as it was. Method lookup
 * must not touch the host's arguments, so registers are saved around it. ------------------------------------------ */

void standin_nil(void), standin_nil_stret(void);
imp standin_lookup(id self, SEL selector, int stret);

/* The method that answers; NULL after a misuse. */
static const bound *answer(id self, SEL selector)
{
    if (!is_slot(self)) {
        misuse("%p is no object", (void *)self);
        return NULL;
    }
    now.class_name = object_class(self);
    if (self->magic != ALIVE) {
        misuse("it has been freed");
        return NULL;
    }
    const bound *b = (self->is_class ? self->isa->own : self->isa->instance)[selector->number];
    const int macos = the()->macos;
    if (!b)
        misuse("unrecognized selector: a %s of this stand-in has no such method", object_class(self));
    else if (b->fact->since > macos)
        misuse("unrecognized selector in macOS %d.%d: it came with %d.%d", macos / 100, macos % 100,
               b->fact->since / 100, b->fact->since % 100);
    else if (!self->is_class && !self->lent && self->owned == 0)
        misuse("the host has released it; it lives only as long as something uses it");
    else
        return b;
    return NULL;
}

imp standin_lookup(id self, SEL selector, int stret)
{
    const imp nil = stret ? standin_nil_stret : standin_nil;
    __atomic_fetch_add(&W.counts.messages, 1, __ATOMIC_RELAXED);
    if (!self) return nil;
    bool known = selector >= W.selectors && selector < W.selectors + W.n_selectors;
    now.class_name = "a message", now.selector = known ? selector->name : "?";
    if (!known) {
        misuse("the selector %p has not been registered", (const void *)selector);
        return nil;
    }
    const bound *b = answer(self, selector);
    if (!b) return nil;
#if defined(__x86_64__)
    bool wants_stret = b->fact->result[0] == '{' && (strstr(b->fact->result, "QQQ") || strstr(b->fact->result, "qqq"));
    if (wants_stret != stret) {
        misuse(stret ? "objc_msgSend_stret for a method without a large struct"
                     : "a 24-byte result needs objc_msgSend_stret");
        return nil;
    }
#endif
    return b->fn;
}

#if defined(__x86_64__)
#define SAVE_ALL                                                                                                       \
    "pushq %rbp\nmovq %rsp,%rbp\nsubq $192,%rsp\nmovq %rdi,(%rsp)\nmovq %rsi,8(%rsp)\nmovq %rdx,16(%rsp)\n"            \
    "movq %rcx,24(%rsp)\nmovq %r8,32(%rsp)\nmovq %r9,40(%rsp)\nmovq %rax,48(%rsp)\n"                                   \
    "movups %xmm0,64(%rsp)\nmovups %xmm1,80(%rsp)\nmovups %xmm2,96(%rsp)\nmovups %xmm3,112(%rsp)\n"                    \
    "movups %xmm4,128(%rsp)\nmovups %xmm5,144(%rsp)\nmovups %xmm6,160(%rsp)\nmovups %xmm7,176(%rsp)\n"
#define LOOK_AND_JUMP                                                                                                  \
    "call standin_lookup@PLT\nmovq %rax,%r11\n"                                                                        \
    "movups 64(%rsp),%xmm0\nmovups 80(%rsp),%xmm1\nmovups 96(%rsp),%xmm2\nmovups 112(%rsp),%xmm3\n"                    \
    "movups 128(%rsp),%xmm4\nmovups 144(%rsp),%xmm5\nmovups 160(%rsp),%xmm6\nmovups 176(%rsp),%xmm7\n"                 \
    "movq (%rsp),%rdi\nmovq 8(%rsp),%rsi\nmovq 16(%rsp),%rdx\nmovq 24(%rsp),%rcx\nmovq 32(%rsp),%r8\n"                 \
    "movq 40(%rsp),%r9\nmovq 48(%rsp),%rax\nleave\njmpq *%r11\n"
__asm__(".text\n.globl objc_msgSend\n.type objc_msgSend,@function\nobjc_msgSend:\n" SAVE_ALL
        "xorl %edx,%edx\n" LOOK_AND_JUMP ".globl objc_msgSend_stret\n.type objc_msgSend_stret,@function\n"
        "objc_msgSend_stret:\n" SAVE_ALL "movq %rsi,%rdi\nmovq 16(%rsp),%rsi\nmovl $1,%edx\n" LOOK_AND_JUMP
        ".globl standin_nil\n.hidden standin_nil\n.type standin_nil,@function\nstandin_nil:\n"
        "xorl %eax,%eax\nxorl %edx,%edx\nxorps %xmm0,%xmm0\nxorps %xmm1,%xmm1\nret\n"
        ".globl standin_nil_stret\n.hidden standin_nil_stret\n.type standin_nil_stret,@function\nstandin_nil_stret:\n"
        "movq %rdi,%rax\nret\n"); /* the memory is left as it is */
#elif defined(__aarch64__)
__asm__(".text\n.globl objc_msgSend\n.type objc_msgSend,%function\nobjc_msgSend:\n"
        "stp x29,x30,[sp,#-224]!\nmov x29,sp\nstp x0,x1,[sp,#16]\nstp x2,x3,[sp,#32]\nstp x4,x5,[sp,#48]\n"
        "stp x6,x7,[sp,#64]\nstr x8,[sp,#80]\nstp q0,q1,[sp,#96]\nstp q2,q3,[sp,#128]\nstp q4,q5,[sp,#160]\n"
        "stp q6,q7,[sp,#192]\nmov w2,#0\nbl standin_lookup\nmov x16,x0\n"
        "ldp x0,x1,[sp,#16]\nldp x2,x3,[sp,#32]\nldp x4,x5,[sp,#48]\nldp x6,x7,[sp,#64]\nldr x8,[sp,#80]\n"
        "ldp q0,q1,[sp,#96]\nldp q2,q3,[sp,#128]\nldp q4,q5,[sp,#160]\nldp q6,q7,[sp,#192]\n"
        "ldp x29,x30,[sp],#224\nbr x16\n"
        ".globl standin_nil\n.hidden standin_nil\n.type standin_nil,%function\nstandin_nil:\n"
        ".globl standin_nil_stret\n.hidden standin_nil_stret\nstandin_nil_stret:\n" /* never asked for here */
        "mov x0,#0\nmov x1,#0\nmovi d0,#0\nmovi d1,#0\nmovi d2,#0\nmovi d3,#0\nret\n");
#else
#error "objc_msgSend is not written for this processor"
#endif

/* ---- classes --------------------------------------------------------------------------------------------------- */

static bool has_word(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = words; (p = strstr(p, word)); p += n)
        if ((p == words || p[-1] == ' ') && (p[n] == ' ' || !p[n])) return true;
    return false;
}

/* One type of an encoding: appended to out with its place in the frame; returns where the next begins. */
static const char *encode(const char *type, int place, int *bytes, char *out)
{
    int depth = 0, n = 0;
    do {
        depth += type[n] == '{';
        depth -= type[n] == '}';
        n++;
    } while (depth || (n < 3 && strchr("^r", type[n - 1])));
    if (type[0] == '@' && type[1] == '?') n = 2;
    *bytes = 8;
    if (type[0] == '{')
        *bytes = strstr(type, "QQQ") == strchr(type, '=') + 1 || strstr(type, "qqq") ? 24
                 : strstr(type, "QQ}")                                               ? 16
                                                                                     : 8;
    else if (strchr("ZCifI", type[0]))
        *bytes = 4;
    char *at = out + strlen(out);
    at += sprintf(at, "%.*s", n, type);
    if (type[0] == 'Z') at[-1] = BOOL_CODE;
    if (place >= 0) sprintf(at, "%d", place);
    return type + n + (type[n] == ',');
}

static void encode_all(bound *b)
{
    char tail[160] = "@0:8", ignored[96] = "";
    int place = 16, bytes;
    for (const char *p = b->fact->arguments; *p;) p = encode(p, place, &bytes, tail), place += bytes;
    encode(b->fact->result, -1, &bytes, ignored);
    if (b->fact->result[0] == 'v') strcpy(ignored, "v");
    snprintf(b->encoding, sizeof b->encoding, "%s%d%s", ignored, place, tail);
}

static const fact *fact_of(const char *owner, const char *sign, const char *selector)
{
    for (int i = 0; i < COUNT(facts); i++)
        if (!strcmp(facts[i].owner, owner) && facts[i].sign[0] == sign[0] && !strcmp(facts[i].selector, selector))
            return &facts[i];
    return NULL;
}

static void bind(struct class *c, const method_row *m)
{
    bool own = m->selector[0] == '+';
    const char *name = m->selector + own;
    bound *b = calloc(1, sizeof *b);
    if (!b) abort();
    *b = (bound){.fn = m->fn, .selector = selector_of(name), .fact = fact_of(m->owner, own ? "+" : "-", name)};
    if (!b->fact) b->fact = fact_of("NSObject", own ? "+" : "-", name);
    if (!b->fact) {
        fprintf(stderr, "metal stand-in: no fact about %s %s\n", m->owner, m->selector);
        abort();
    }
    encode_all(b);
    bound **slot = &(own ? c->own : c->instance)[b->selector->number];
    free(*slot); /* NSObject's, which the class has its own of */
    *slot = b;
}

static void add_class(const class_row *row)
{
    if (W.n_classes == MAX_CLASSES) abort();
    struct class *c = &W.classes[W.n_classes++];
    c->row = row;
    c->object = object_slot();
    *c->object = (object){.isa = c, .magic = ALIVE, .owned = 1, .is_class = true};
    for (int i = 0; i < COUNT(nsobject_methods); i++) bind(c, &nsobject_methods[i]);
    for (int m = 0; m < COUNT(modules); m++)
        for (int i = 0; i < modules[m]->n_methods; i++)
            if (!strcmp(modules[m]->methods[i].owner, row->name) || has_word(row->owners, modules[m]->methods[i].owner))
                bind(c, &modules[m]->methods[i]);
}

EXPORT id objc_getClass(const char *name)
{
    struct class *c = class_named(name);
    return c && c->row->since >= 0 && c->row->since <= the()->macos ? c->object : NULL;
}
EXPORT id object_getClass(id o)
{
    return o ? o->isa->object : NULL;
}
EXPORT const char *object_getClassName(id o)
{
    return o ? object_class(o) : "nil";
}
EXPORT const void *class_getInstanceMethod(id class, SEL selector)
{
    object instance = {.isa = class ? class->isa : NULL};
    return class ? bound_of(&instance, selector) : NULL;
}
EXPORT const void *class_getClassMethod(id class, SEL selector)
{
    return class ? bound_of(class, selector) : NULL;
}
EXPORT BOOL class_respondsToSelector(id class, SEL selector)
{
    return class_getInstanceMethod(class, selector) != NULL;
}
EXPORT const char *method_getTypeEncoding(const void *method)
{
    if (!method) return NULL;
    const char *encoding = ((const bound *)method)->encoding;
    return !fault_now(FAULT_ENCODING) ? encoding : strcmp(encoding, "q16@0:8") ? "q16@0:8" : "d16@0:8";
}
EXPORT id objc_getProtocol(const char *name) /* as in a program without Objective-C code */
{
    (void)name;
    return NULL;
}

/* ---- the test's side ------------------------------------------------------------------------------------------- */

/* Objects are no memory of malloc's: a leak checker must be told to look for pointers in them. */
__attribute__((weak)) void __lsan_register_root_region(const void *at, size_t bytes);

static void world_begin(void)
{
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&W.lock, &recursive);
    pthread_key_create(&pools_key, pools_left);
    W.objects = mmap(NULL, MAX_OBJECTS * sizeof *W.objects, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (W.objects == MAP_FAILED) abort();
    if (__lsan_register_root_region) __lsan_register_root_region(W.objects, MAX_OBJECTS * sizeof *W.objects);
    for (int m = 0; m < COUNT(modules); m++)
        for (int i = 0; i < modules[m]->n_classes; i++) add_class(&modules[m]->classes[i]);
}

static void forgive(void)
{
    for (int i = 0; i < W.n_misuses; i++) free(W.misuse[i]);
    W.n_misuses = 0;
}

static const char *configure(const char *text)
{
    static settings fresh;
    const char *wrong = settings_read(text ? text : "", &fresh);
    if (wrong) return wrong;
    world_lock();
    W.resetting = true;
    for (size_t i = 0; i < (W.wrapped ? MAX_OBJECTS : W.next_object); i++)
        if (W.objects[i].magic == ALIVE && !W.objects[i].is_class) object_end(&W.objects[i]);
    W.resetting = false;
    W.generation++;
    W.counts = (standin_counts){0};
    forgive();
    *the() = fresh;
    for (int m = 0; m < COUNT(modules); m++)
        if (modules[m]->reset) modules[m]->reset();
    world_unlock();
    return NULL;
}

static int misuses(void)
{
    return W.n_misuses;
}
static const char *misuse_at(int i)
{
    return i >= 0 && i < W.n_misuses ? W.misuse[i] : NULL;
}
static void read_counts(standin_counts *out)
{
    *out = W.counts;
}

/* Where an object was made: the first frame that is not ours. */
static void made_where(const object *o, char *out, size_t room)
{
    Dl_info mine, info;
    out[0] = 0;
    if (!dladdr((void *)(uintptr_t)&W, &mine)) return;
    for (int i = 0; i < o->n_made_at; i++) {
        if (!dladdr(o->made_at[i], &info) || info.dli_fbase == mine.dli_fbase) continue;
        const char *file = strrchr(info.dli_fname, '/');
        snprintf(out, room, " in %s (%s+%#zx)", info.dli_sname ? info.dli_sname : "?", file ? file + 1 : info.dli_fname,
                 (size_t)((uint8_t *)o->made_at[i] - (uint8_t *)info.dli_fbase));
        return;
    }
}

static int leaks(char *out, size_t room)
{
    int n = 0;
    size_t at = 0;
    if (room) out[0] = 0;
    world_lock();
    for (size_t i = 0; i < (W.wrapped ? MAX_OBJECTS : W.next_object); i++) {
        const object *o = &W.objects[i];
        if (o->magic != ALIVE || o->is_class || o->owned == 0) continue;
        n++;
        char where[160];
        made_where(o, where, sizeof where);
        if (at < room)
            at += (size_t)snprintf(out + at, room - at, "%s owned %d times, made by %s%s\n", object_class(o), o->owned,
                                   o->made_by ? o->made_by : "?", where);
    }
    world_unlock();
    return n;
}

static const char *inject(const char *text)
{
    return faults_read(text, the());
}

EXPORT const standin_api *standin(void)
{
    static const standin_api api = {configure, inject, misuses, misuse_at, forgive, read_counts, leaks};
    return &api;
}

__attribute__((constructor)) static void loaded(void)
{
    world_begin();
    const char *wrong = configure(getenv("ANNEAL_STANDIN"));
    if (!wrong) return;
    fprintf(stderr, "metal stand-in: ANNEAL_STANDIN: %s\n", wrong);
    abort();
}

/* end=check: what a program leaves behind at its end changes its exit code. */
__attribute__((destructor)) static void ended(void)
{
    char text[4000];
    if (!the()->check_end || (!leaks(text, sizeof text) && !misuses() && !W.counts.unread_errors)) return;
    fprintf(stderr,
            "metal stand-in: at the end of the program %d misuses, %llu errors that were never read, alive:\n%s",
            misuses(), (unsigned long long)W.counts.unread_errors, text);
    _exit(70);
}
