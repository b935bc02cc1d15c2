/* execute.c: when committed work runs, in which order, what of it when a fault is set, and who may touch its memory
 * again.
 *
 * Nothing runs on a thread of its own: time passes when the host waits or asks for a status. So a run is repeatable,
 * and a host that hopes instead of waiting always loses. Command buffers of a queue run in order; the launches of a
 * concurrent encoder between two barriers run twice, in opposite orders, and must leave the same memory. */
#include "metal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct fence {
    uint64_t updated_at; /* serial of the encoder that did */
    id label;
} fence;

static struct {
    double clock; /* seconds, of the device */
    uint64_t serial;
    command_buffer *told[256]; /* completed, handlers to call */
    int n_told;
    int depth;
} X;

/* ---- hazards of untracked buffers ------------------------------------------------------------------------------ */

enum { MAX_UNTRACKED = 256 };
static struct {
    id buffer;
    uint64_t written_at;
} untracked[MAX_UNTRACKED];
static int n_untracked;

static bool fence_passed(const encoder_note *e, uint64_t written_at)
{
    for (int i = 0; i < e->n_waited; i++)
        if (((fence *)object_body(e->fence_waited[i]))->updated_at >= written_at) return true;
    return false;
}

static void note_untracked(const encoder_note *e, id o, bool writes)
{
    if (!((buffer *)object_body(o))->untracked) return;
    int i = 0;
    while (i < n_untracked && untracked[i].buffer != o) i++;
    if (i == MAX_UNTRACKED) return;
    if (i == n_untracked) untracked[n_untracked++].buffer = o, untracked[i].written_at = 0;
    if (untracked[i].written_at && untracked[i].written_at != X.serial && !fence_passed(e, untracked[i].written_at))
        misuse("an untracked buffer is used in an encoder that has waited for no fence since another wrote it");
    if (writes) untracked[i].written_at = X.serial;
}

/* ---- one command ----------------------------------------------------------------------------------------------- */

/* Adds memory to what a launch may touch; ranges that overlap become one. */
static void allow(msl_launch *l, uint8_t *at, uint64_t bytes)
{
    for (int i = 0; i < l->n_ranges; i++) {
        uint8_t *other = l->range[i], *end = other + l->range_bytes[i];
        if (at >= end || at + bytes <= other) continue;
        if (at + bytes > end) end = at + bytes;
        l->range[i] = at < other ? at : other;
        l->range_bytes[i] = (uint64_t)(end - (uint8_t *)l->range[i]);
        return;
    }
    l->range[l->n_ranges] = at, l->range_bytes[l->n_ranges++] = bytes;
}

static void run_launch(const command *c)
{
    const pipeline *p = object_body(c->pipeline);
    if (!p->entry.run) return; /* kernels=none */
    msl_launch l = {.groups = {(uint32_t)c->groups.width, (uint32_t)c->groups.height, (uint32_t)c->groups.depth},
                    .threads = {(uint32_t)c->threads.width, (uint32_t)c->threads.height, (uint32_t)c->threads.depth},
                    .seed = draw(1u << 30)};
    if (c->from) { /* groups from a buffer */
        memcpy(l.groups, ((buffer *)object_body(c->from))->gpu + c->from_at, sizeof l.groups);
        if (!l.groups[0] || !l.groups[1] || !l.groups[2]) return;
    }
    for (int i = 0; i < p->n_arguments; i++) {
        const kernel_argument *a = &p->argument[i];
        if (a->kind == ARGUMENT_ABSENT) continue;
        if (a->kind == ARGUMENT_THREADGROUP) {
            l.argument[i] = (void *)(uintptr_t)c->group_memory[a->index];
            continue;
        }
        const binding *b = &c->bound[a->index];
        buffer *of = b->buffer ? object_body(b->buffer) : NULL;
        l.argument[i] = of ? of->gpu + b->offset : b->bytes;
        allow(&l, l.argument[i], of ? of->length - b->offset : b->length);
    }
    msl_report r = {0};
    p->entry.run(&l, &r);
    if (r.faults) misuse("%s: %ld faults in the kernel; the first: %s", p->kernel->name, r.faults, r.first);
}

static void run_event(command *c);

static void run_command(command *c)
{
    buffer *from = c->from ? object_body(c->from) : NULL, *to = c->to ? object_body(c->to) : NULL;
    switch (c->kind) {
    case COMMAND_LAUNCH: run_launch(c); break;
    case COMMAND_COPY: memcpy(to->gpu + c->to_at, from->gpu + c->from_at, c->bytes); break;
    case COMMAND_FILL: memset(to->gpu + c->to_at, (int)c->value, c->bytes); break;
    case COMMAND_SYNCHRONIZE:
        if (to->two_memories) {
            buffer_shut(to, false);
            memcpy(to->host, to->gpu, to->length);
            buffer_shut(to, true);
        }
        break;
    case COMMAND_SIGNAL:
    case COMMAND_WAIT: run_event(c); break;
    case COMMAND_BARRIER: break;
    }
}

/* ---- snapshots of what commands write -------------------------------------------------------------------------- */

typedef struct snapshot {
    buffer *of[64];
    uint8_t *copy[64];
    int n;
} snapshot;

static void take(snapshot *s, const command *c)
{
    const pipeline *p = c->pipeline ? object_body(c->pipeline) : NULL;
    for (int i = 0; p && i < p->n_arguments; i++) {
        const kernel_argument *a = &p->argument[i];
        if (a->kind != ARGUMENT_BUFFER || !a->writes || !c->bound[a->index].buffer) continue;
        buffer *b = object_body(c->bound[a->index].buffer);
        int at = 0;
        while (at < s->n && s->of[at] != b) at++;
        if (at < s->n || s->n == 64) continue;
        s->of[s->n] = b;
        s->copy[s->n] = malloc(b->length);
        if (!s->copy[s->n]) abort();
        memcpy(s->copy[s->n++], b->gpu, b->length);
    }
}
static void forget(snapshot *s)
{
    for (int i = 0; i < s->n; i++) free(s->copy[i]);
    s->n = 0;
}

/* Puts memory and copy in each other's place. */
static void swap(snapshot *s)
{
    for (int i = 0; i < s->n; i++)
        for (uint64_t at = 0; at < s->of[i]->length; at++) {
            uint8_t x = s->of[i]->gpu[at];
            s->of[i]->gpu[at] = s->copy[i][at], s->copy[i][at] = x;
        }
}

/* The launches from `first` to `end`, which nothing orders. */
static void run_unordered(command_buffer *cb, int first, int end)
{
    snapshot before = {0};
    for (int i = first; i < end; i++) take(&before, &cb->command[i]);
    for (int i = first; i < end; i++) run_command(&cb->command[i]);
    swap(&before); /* memory: as it was; copies: after the one order */
    for (int i = end - 1; i >= first; i--) run_command(&cb->command[i]);
    for (int b = 0; b < before.n; b++)
        if (memcmp(before.copy[b], before.of[b]->gpu, before.of[b]->length)) {
            misuse("launches %d to %d of command buffer %llu run in a concurrent encoder with no barrier between, and "
                   "their order matters",
                   first, end - 1, (unsigned long long)cb->number);
            break;
        }
    forget(&before);
}

/* A launch that stopped half way: of each 256 bytes that it wrote, it is drawn whether they are new or old. */
static void run_torn(command *c)
{
    snapshot before = {0};
    take(&before, c);
    run_command(c);
    for (int b = 0; b < before.n; b++)
        for (uint64_t at = 0; at < before.of[b]->length; at += 256) {
            uint64_t n = before.of[b]->length - at < 256 ? before.of[b]->length - at : 256;
            if (draw(2)) memcpy(before.of[b]->gpu + at, before.copy[b] + at, n);
        }
    forget(&before);
}

/* ---- one command buffer ---------------------------------------------------------------------------------------- */

static void begin_encoder(command_buffer *cb, int encoder)
{
    X.serial++;
    const encoder_note *e = &cb->encoder[encoder];
    for (int i = 0; i < cb->n_commands; i++) {
        const command *c = &cb->command[i];
        if (c->encoder != encoder) continue;
        const pipeline *p = c->pipeline ? object_body(c->pipeline) : NULL;
        for (int a = 0; p && a < p->n_arguments; a++)
            if (p->argument[a].kind == ARGUMENT_BUFFER && c->bound[p->argument[a].index].buffer)
                note_untracked(e, c->bound[p->argument[a].index].buffer, p->argument[a].writes);
        if (c->from) note_untracked(e, c->from, false);
        if (c->to) note_untracked(e, c->to, true);
    }
    for (int i = 0; i < e->n_updated; i++) ((fence *)object_body(e->fence_updated[i]))->updated_at = X.serial;
}

/* Runs the first n commands; the one after them is torn. */
static void run_commands(command_buffer *cb, int n, bool torn)
{
    int encoder = -1;
    for (int i = 0; i < n; i++) {
        command *c = &cb->command[i];
        if (c->encoder >= 0 && c->encoder != encoder) begin_encoder(cb, encoder = c->encoder);
        int end = i;
        while (c->encoder >= 0 && cb->encoder[c->encoder].concurrent && end < n &&
               cb->command[end].kind == COMMAND_LAUNCH && cb->command[end].encoder == c->encoder)
            end++;
        if (end - i > 1) {
            run_unordered(cb, i, end);
            i = end - 1;
        } else {
            run_command(c);
        }
    }
    if (torn && n < cb->n_commands && cb->command[n].kind == COMMAND_LAUNCH) run_torn(&cb->command[n]);
}

typedef struct encoder_info {
    id label;
    int64_t state;
} encoder_info;
static void encoder_info_end(void *body)
{
    object_drop(((encoder_info *)body)->label);
}
static id info_label(id self, SEL cmd)
{
    (void)cmd;
    return object_lend(((encoder_info *)object_body(self))->label);
}
static int64_t info_state(id self, SEL cmd)
{
    (void)cmd;
    return ((encoder_info *)object_body(self))->state;
}
static id info_signposts(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return object_autorelease(array_new(NULL, 0));
}

static id encoder_infos(command_buffer *cb, int faulted)
{
    id info[64] = {0};
    int n = cb->n_encoders < 64 ? cb->n_encoders : 64;
    for (int i = 0; i < n; i++) {
        info[i] = object_new("MTLCommandBufferEncoderInfo");
        encoder_info *e = object_body(info[i]);
        e->state = i < faulted    ? MTLCommandEncoderErrorStateCompleted
                   : i == faulted ? MTLCommandEncoderErrorStateFaulted
                                  : MTLCommandEncoderErrorStatePending;
        object_hold(e->label = cb->encoder[i].label);
    }
    id all = array_new(info, n);
    for (int i = 0; i < n; i++) object_release(info[i]);
    return all;
}

extern id MTLCommandBufferEncoderInfoErrorKey;

static void fail(command_buffer *cb, int code, int ran)
{
    static const struct {
        int code;
        const char *text;
    } texts[] = {
        {MTLCommandBufferErrorInternal, "Internal Error (0000000e:Internal Error)"},
        {MTLCommandBufferErrorTimeout, "Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)"},
        {MTLCommandBufferErrorPageFault,
         "Caused GPU Address Fault Error (0000000b:kIOGPUCommandBufferCallbackErrorPageFault)"},
        {MTLCommandBufferErrorAccessRevoked, "Ignored (for causing prior/excessive GPU errors) "
                                             "(00000004:kIOGPUCommandBufferCallbackErrorSubmissionsIgnored)"},
        {MTLCommandBufferErrorOutOfMemory,
         "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"},
        {MTLCommandBufferErrorDeviceRemoved, "Device removed (0000000b)"},
        {14, "Impacting Interactivity (0000000e:kIOGPUCommandBufferCallbackErrorImpactingInteractivity)"}};
    const char *text = "Unknown error";
    for (int i = 0; i < COUNT(texts); i++)
        if (texts[i].code == code) text = texts[i].text;
    int encoder = ran < cb->n_commands ? cb->command[ran].encoder : cb->n_encoders - 1;
    id infos =
        cb->error_options & MTLCommandBufferErrorOptionEncoderExecutionStatus ? encoder_infos(cb, encoder) : NULL;
    cb->error =
        error_new("MTLCommandBufferErrorDomain", code, text, infos ? MTLCommandBufferEncoderInfoErrorKey : NULL, infos);
    object_hold(cb->error);
    object_release(cb->error);
    object_release(infos);
    cb->status = FAILED;
    counts()->failed++;
}

static void leave(command_buffer *cb)
{
    queue *q = object_body(cb->queue);
    q->first = cb->next;
    if (!q->first) q->last = NULL;
    q->under_way--;
    for (int i = 0; i < cb->n_used; i++) {
        if (!object_is(cb->used[i], "MTLBuffer")) continue;
        buffer *b = object_body(cb->used[i]);
        buffer_unpin(b, cb->used_writes[i]);
        if (!buffer_tail_clean(b)) misuse("a kernel wrote behind a buffer's last byte");
    }
    if (cb->n_handlers && X.n_told < COUNT(X.told))
        X.told[X.n_told++] = cb; /* and dropped when its handlers have run */
    else
        object_drop(cb->self);
}

static void open_all(command_buffer *cb, bool open)
{
    for (int i = 0; i < cb->n_used; i++)
        if (object_is(cb->used[i], "MTLBuffer")) buffer_open(object_body(cb->used[i]), open);
}

/* How many commands are to run; *code: of the failure, or 0; *torn: whether the next one stops half way. */
static int how_much(command_buffer *cb, int *code, bool *torn)
{
    queue *q = object_body(cb->queue);
    const fault *f = cb->fault;
    uint64_t bytes = 0;
    int n = cb->n_commands;
    *code = q->error_code, *torn = false;
    if (*code) return 0;
    if (f) {
        *code = f->code;
        n = f->form == RAN_NOTHING ? 0 : f->form == RAN_ALL ? n : (int)draw((uint32_t)n + 1);
        *torn = f->form == RAN_PREFIX;
        if (f->on) q->error_code = *code;
    }
    for (int i = 0; i < cb->n_used; i++) {
        if (!object_alive(cb->used[i])) {
            misuse("command buffer %llu uses a resource that was freed before it completed",
                   (unsigned long long)cb->number);
            n = 0, *torn = false;
        } else if (object_is(cb->used[i], "MTLBuffer")) {
            bytes += ((buffer *)object_body(cb->used[i]))->length;
        }
    }
    if (bytes <= the()->working_set) return n;
    *torn = false;
    *code = MTLCommandBufferErrorOutOfMemory; /* comes here, not where memory was allocated */
    return 0;
}

static void run(command_buffer *cb)
{
    bool torn;
    int code, n = how_much(cb, &code, &torn);
    X.depth++;
    cb->running = true;
    open_all(cb, true);
    run_commands(cb, n, torn);
    open_all(cb, false);
    X.depth--;
    uint64_t launches = 0;
    for (int i = 0; i < n; i++) launches += cb->command[i].kind == COMMAND_LAUNCH;
    cb->gpu_start = X.clock += 1e-6;
    cb->gpu_end = X.clock += (double)(launches * the()->launch_us) * 1e-6;
    cb->status = COMPLETED;
    counts()->completed++;
    if (code) fail(cb, code, n);
    leave(cb);
}

void execute_until(command_buffer *cb)
{
    queue *q = object_body(cb->queue);
    id self = cb->self;
    object_hold(self);
    while (cb->status == COMMITTED || cb->status == SCHEDULED) {
        command_buffer *first = q->first;
        if (first->status < COMMITTED || first->hangs || first->running) break; /* what is behind it cannot run */
        run(first);
    }
    object_drop(self);
}

bool execute_poll(command_buffer *cb)
{
    if (cb->polls_left-- > 0)
        cb->status = SCHEDULED;
    else
        execute_until(cb);
    return cb->status >= COMPLETED;
}

void execute_some(queue *q)
{
    while (q->first && q->first->status >= COMMITTED && !q->first->hangs && draw(2)) run(q->first);
}

struct block {
    void *isa;
    int32_t flags, reserved;
    void (*invoke)(struct block *self, id buffer);
};
static void *call_handlers(void *body)
{
    command_buffer *cb = body;
    const bool lent = cb->self->lent; /* the host may have released it: the handler may use it all the same */
    object_lend(cb->self);
    for (int i = 0; i < cb->n_handlers; i++) {
        struct block *b = cb->handler[i];
        b->invoke(b, cb->self);
    }
    cb->self->lent = lent;
    return NULL;
}

/* On a thread of Metal's, where the host has no pool; the host's thread waits, so that a run is repeatable. */
void execute_handlers(void)
{
    for (;;) {
        world_lock();
        command_buffer *cb = X.n_told && !X.depth ? X.told[0] : NULL;
        if (cb) memmove(X.told, X.told + 1, (size_t)--X.n_told * sizeof *X.told);
        world_unlock();
        if (!cb) return;
        pthread_t thread;
        if (pthread_create(&thread, NULL, call_handlers, cb)) abort();
        pthread_join(thread, NULL);
        object_drop(cb->self);
    }
}

/* ---- events and fences ----------------------------------------------------------------------------------------- */

OBJECT_PROPERTY(event, label, event_label, event_set_label)
OBJECT_PROPERTY(fence, label, fence_label, fence_set_label)
static void event_end(void *body)
{
    object_drop(((event *)body)->label);
}
static void fence_end(void *body)
{
    object_drop(((fence *)body)->label);
}
static id device_fence(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return object_new("MTLFence");
}
static id device_event(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return object_new("MTLEvent");
}
static id device_shared_event(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return object_new("MTLSharedEvent");
}
static uint64_t event_value(id self, SEL cmd)
{
    (void)cmd;
    return ((event *)object_body(self))->value;
}
static void event_set_value(id self, SEL cmd, uint64_t value)
{
    (void)cmd;
    SELF(event, e);
    if (value < e->value)
        misuse("an event's value goes from %llu to %llu", (unsigned long long)e->value, (unsigned long long)value);
    e->value = value;
}

static queue *queues[64];
static int n_queues;
void execute_queue(queue *q, bool begins)
{
    int i = 0;
    while (i < n_queues && queues[i] != q) i++;
    if (begins && i == n_queues && n_queues < 64) queues[n_queues++] = q;
    if (!begins && i < n_queues) queues[i] = queues[--n_queues];
}

/* Lets other queues' work run until the event has come. */
static bool wait_for(const event *e, uint64_t value)
{
    for (bool moved = true; e->value < value && moved;) {
        moved = false;
        for (int i = 0; i < n_queues && e->value < value; i++) {
            command_buffer *cb = queues[i]->first;
            if (!cb || cb->status < COMMITTED || cb->hangs || cb->running) continue;
            run(cb);
            moved = true;
        }
    }
    return e->value >= value;
}

static void run_event(command *c)
{
    event *e = object_body(c->object);
    if (c->kind == COMMAND_SIGNAL) {
        e->value = c->value;
    } else if (!wait_for(e, c->value)) {
        misuse("an event is waited for that is never signalled: value %llu, waited for %llu",
               (unsigned long long)e->value, (unsigned long long)c->value);
    }
}

static BOOL event_wait(id self, SEL cmd, uint64_t value, uint64_t timeout_ms)
{
    (void)cmd, (void)timeout_ms;
    SELF(event, e);
    world_lock();
    if (e->value < value) counts()->waits++;
    bool came = wait_for(e, value);
    world_unlock();
    execute_handlers();
    return came;
}

static void reset(void)
{
    memset(&X, 0, sizeof X);
    X.clock = 1000;
    n_queues = n_untracked = 0;
}

static const class_row classes[] = {
    {"MTLEvent", "", sizeof(event), event_end, -1},
    {"MTLSharedEvent", "MTLEvent", sizeof(event), event_end, -1},
    {"MTLFence", "", sizeof(fence), fence_end, -1},
    {"MTLCommandBufferEncoderInfo", "", sizeof(encoder_info), encoder_info_end, -1},
};
static const method_row methods[] = {
    {"MTLDevice", "newFence", METHOD_OF(device_fence)},
    {"MTLDevice", "newEvent", METHOD_OF(device_event)},
    {"MTLDevice", "newSharedEvent", METHOD_OF(device_shared_event)},
    {"MTLEvent", "label", METHOD_OF(event_label)},
    {"MTLEvent", "setLabel:", METHOD_OF(event_set_label)},
    {"MTLEvent", "device", METHOD_OF(device_of)},
    {"MTLSharedEvent", "signaledValue", METHOD_OF(event_value)},
    {"MTLSharedEvent", "setSignaledValue:", METHOD_OF(event_set_value)},
    {"MTLSharedEvent", "waitUntilSignaledValue:timeoutMS:", METHOD_OF(event_wait)},
    {"MTLFence", "label", METHOD_OF(fence_label)},
    {"MTLFence", "setLabel:", METHOD_OF(fence_set_label)},
    {"MTLFence", "device", METHOD_OF(device_of)},
    {"MTLCommandBufferEncoderInfo", "label", METHOD_OF(info_label)},
    {"MTLCommandBufferEncoderInfo", "errorState", METHOD_OF(info_state)},
    {"MTLCommandBufferEncoderInfo", "debugSignposts", METHOD_OF(info_signposts)},
};
const module execute_module = {classes, COUNT(classes), methods, COUNT(methods), reset};
