/* command.c: queues, command buffers, encoders: the state machine, and what is recorded for execute.c.
 *
 * A command keeps its own copy of every binding. Invariant: nothing runs from here; what a misuse refuses is not
 * recorded. */
#include "metal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct encoder {
    id buffer; /* the command buffer */
    command_buffer *cb;
    encoder_kind kind;
    int number;
    bool ended, concurrent;
    id pipeline, label;
    binding bound[MAX_BUFFERS];
    uint64_t group_memory[MAX_BUFFERS];
    int groups_pushed;
} encoder;

typedef struct buffer_descriptor {
    BOOL retained_set, unretained;
    uint64_t error_options;
} buffer_descriptor;
typedef struct queue_descriptor {
    uint64_t most;
} queue_descriptor;

/* ---- queues ---------------------------------------------------------------------------------------------------- */

static id queue_make(uint64_t most)
{
    if (!most) return misuse("a queue for 0 command buffers"), NULL;
    if (fault_now(FAULT_QUEUE)) return NULL;
    id o = object_new("MTLCommandQueue");
    ((queue *)object_body(o))->most = most;
    execute_queue(object_body(o), true);
    return o;
}
static id device_queue(id self, SEL cmd)
{
    (void)self, (void)cmd;
    return queue_make(64);
}
static id device_queue_most(id self, SEL cmd, uint64_t most)
{
    (void)self, (void)cmd;
    return queue_make(most);
}
static id device_queue_described(id self, SEL cmd, id descriptor)
{
    (void)self, (void)cmd;
    queue_descriptor *d = argument(descriptor, "MTLCommandQueueDescriptor", "the descriptor");
    return d ? queue_make(d->most ? d->most : 64) : NULL;
}
PROPERTY(queue_descriptor, uint64_t, most, queue_descriptor_most, queue_descriptor_set_most)
OBJECT_PROPERTY(queue, label, queue_label, queue_set_label)

static void queue_end(void *body)
{
    execute_queue(body, false);
    object_drop(((queue *)body)->label);
}

static id queue_buffer(id self, bool retained, uint64_t error_options)
{
    SELF(queue, q);
    if (fault_now(FAULT_COMMANDS)) return NULL;
    world_lock();
    while (q->under_way >= q->most && q->first && q->first->status >= COMMITTED && !q->first->hangs)
        execute_until(q->first); /* a Mac would block here */
    if (q->under_way >= q->most)
        misuse("%llu command buffers of this queue are under way: this would wait for ever",
               (unsigned long long)q->most);
    id o = object_pooled("MTLCommandBuffer");
    command_buffer *cb = object_body(o);
    *cb = (command_buffer){.self = o, .queue = self, .retained = retained, .error_options = error_options};
    object_hold(self);
    q->under_way++;
    counts()->command_buffers++;
    world_unlock();
    return o;
}
static id queue_command_buffer(id self, SEL cmd)
{
    (void)cmd;
    return queue_buffer(self, true, 0);
}
static id queue_command_buffer_unretained(id self, SEL cmd)
{
    (void)cmd;
    return queue_buffer(self, false, 0);
}
static id queue_command_buffer_described(id self, SEL cmd, id descriptor)
{
    (void)cmd;
    buffer_descriptor *d = argument(descriptor, "MTLCommandBufferDescriptor", "the descriptor");
    return d ? queue_buffer(self, !d->unretained, d->error_options) : NULL;
}
PROPERTY(buffer_descriptor, uint64_t, error_options, descriptor_options, descriptor_set_options)
static void descriptor_set_retained(id self, SEL cmd, BOOL value)
{
    (void)cmd;
    ((buffer_descriptor *)object_body(self))->unretained = !bool_argument(value);
}
static BOOL descriptor_retained(id self, SEL cmd)
{
    (void)cmd;
    return !((buffer_descriptor *)object_body(self))->unretained;
}

/* ---- command buffers ------------------------------------------------------------------------------------------- */

static void command_end(command *c)
{
    object_drop(c->pipeline), object_drop(c->object);
    for (int i = 0; i < MAX_BUFFERS; i++) free(c->bound[i].bytes);
}

static void command_buffer_end(void *body)
{
    command_buffer *cb = body;
    if (cb->open) misuse("a command buffer ends with an open encoder");
    if (cb->status == FAILED && !cb->status_seen) counts()->unread_errors++;
    for (int i = 0; i < cb->n_commands; i++) command_end(&cb->command[i]);
    for (int i = 0; i < cb->n_encoders; i++) {
        object_drop(cb->encoder[i].label);
        for (int f = 0; f < cb->encoder[i].n_waited; f++) object_drop(cb->encoder[i].fence_waited[f]);
        for (int f = 0; f < cb->encoder[i].n_updated; f++) object_drop(cb->encoder[i].fence_updated[f]);
    }
    for (int i = 0; cb->retained && i < cb->n_used; i++) object_drop(cb->used[i]);
    if (cb->status < COMPLETED && object_alive(cb->queue)) ((queue *)object_body(cb->queue))->under_way--;
    object_drop(cb->error), object_drop(cb->label), object_drop(cb->queue);
    free(cb->command), free(cb->encoder), free(cb->used), free(cb->used_writes);
}

command *command_add(command_buffer *cb, command_kind kind)
{
    if (cb->n_commands == cb->room) {
        cb->room = cb->room ? 2 * cb->room : 32;
        cb->command = realloc(cb->command, (size_t)cb->room * sizeof *cb->command);
        if (!cb->command) abort();
    }
    command *c = &cb->command[cb->n_commands++];
    *c = (command){.kind = kind, .encoder = cb->open ? cb->n_encoders - 1 : -1};
    return c;
}

void command_buffer_use(command_buffer *cb, id object, bool writes)
{
    for (int i = 0; i < cb->n_used; i++)
        if (cb->used[i] == object) {
            cb->used_writes[i] |= writes;
            return;
        }
    if (cb->n_used == cb->room_used) {
        cb->room_used = cb->room_used ? 2 * cb->room_used : 16;
        cb->used = realloc(cb->used, (size_t)cb->room_used * sizeof *cb->used);
        cb->used_writes = realloc(cb->used_writes, (size_t)cb->room_used * sizeof *cb->used_writes);
        if (!cb->used || !cb->used_writes) abort();
    }
    if (cb->retained) object_hold(object);
    cb->used_writes[cb->n_used] = writes, cb->used[cb->n_used++] = object;
}

/* The command buffer, if it can still be encoded into. */
static command_buffer *encodable(id self)
{
    SELF(command_buffer, cb);
    if (cb->status >= COMMITTED)
        misuse("the command buffer has been committed");
    else if (cb->open)
        misuse("an encoder is open");
    else
        return cb;
    return NULL;
}

static id encoder_make(id self, encoder_kind kind, bool concurrent)
{
    command_buffer *cb = encodable(self);
    if (!cb || fault_now(FAULT_ENCODER)) return NULL;
    if (cb->n_encoders == cb->room_encoders) {
        cb->room_encoders = cb->room_encoders ? 2 * cb->room_encoders : 4;
        cb->encoder = realloc(cb->encoder, (size_t)cb->room_encoders * sizeof *cb->encoder);
        if (!cb->encoder) abort();
    }
    cb->encoder[cb->n_encoders] = (encoder_note){.kind = kind, .concurrent = concurrent};
    id o = object_pooled(kind == ENCODER_BLIT ? "MTLBlitCommandEncoder" : "MTLComputeCommandEncoder");
    encoder *e = object_body(o);
    *e = (encoder){.buffer = self, .cb = cb, .kind = kind, .number = cb->n_encoders++, .concurrent = concurrent};
    object_hold(self);
    cb->open = o;
    counts()->encoders++;
    return o;
}
static void encoder_end(void *body)
{
    encoder *e = body;
    if (!e->ended) misuse("an encoder is freed without endEncoding");
    if (!e->ended && object_alive(e->buffer)) e->cb->open = NULL;
    for (int i = 0; i < MAX_BUFFERS; i++) free(e->bound[i].bytes);
    object_drop(e->label), object_drop(e->pipeline), object_drop(e->buffer);
}
static id buffer_compute(id self, SEL cmd)
{
    (void)cmd;
    return encoder_make(self, ENCODER_COMPUTE, false);
}
static id buffer_compute_type(id self, SEL cmd, uint64_t type)
{
    (void)cmd;
    if (type > 1) return misuse("a dispatch type of %llu", (unsigned long long)type), NULL;
    return encoder_make(self, ENCODER_COMPUTE, type == 1);
}
static id buffer_blit(id self, SEL cmd)
{
    (void)cmd;
    return encoder_make(self, ENCODER_BLIT, false);
}

static void enqueue(command_buffer *cb)
{
    queue *q = object_body(cb->queue);
    cb->status = ENQUEUED;
    object_hold(cb->self);
    *(q->last ? &q->last->next : &q->first) = cb;
    q->last = cb;
}
static void buffer_enqueue(id self, SEL cmd)
{
    (void)cmd;
    SELF(command_buffer, cb);
    world_lock();
    if (cb->status != NOT_ENQUEUED)
        misuse("it has been enqueued before");
    else
        enqueue(cb);
    world_unlock();
}

static void buffer_commit(id self, SEL cmd)
{
    (void)cmd;
    SELF(command_buffer, cb);
    world_lock();
    if (cb->status >= COMMITTED || cb->open) {
        misuse(cb->open ? "an encoder is open" : "it has been committed before");
        world_unlock();
        return;
    }
    if (cb->status == NOT_ENQUEUED) enqueue(cb);
    cb->status = COMMITTED;
    cb->number = ++counts()->commits;
    cb->polls_left = 2 + (int)draw(3);
    cb->fault = fault_now(FAULT_COMMIT);
    cb->hangs = fault_now(FAULT_HANG) != NULL;
    for (int i = 0; i < cb->n_used; i++) {
        if (!object_alive(cb->used[i])) {
            misuse("it uses a %s that has been freed (unretained references)", "resource");
            cb->used[i--] = cb->used[--cb->n_used];
        } else if (object_is(cb->used[i], "MTLBuffer")) {
            buffer_pin(object_body(cb->used[i]), cb->used_writes[i]);
        }
    }
    if (the()->when == WHEN_EARLY && !cb->hangs) execute_until(cb);
    if (the()->when == WHEN_RANDOM) execute_some(object_body(cb->queue));
    world_unlock();
    execute_handlers();
}

static void buffer_wait(id self, SEL cmd)
{
    (void)cmd;
    SELF(command_buffer, cb);
    world_lock();
    if (cb->status < COMMITTED)
        misuse("it has not been committed: this would wait for ever");
    else if (cb->status < COMPLETED)
        counts()->waits++, execute_until(cb);
    if (cb->status == COMMITTED || cb->status == SCHEDULED)
        misuse("command buffer %llu never completes: this would wait for ever", (unsigned long long)cb->number);
    world_unlock();
    execute_handlers();
}
static void buffer_wait_scheduled(id self, SEL cmd)
{
    (void)cmd;
    SELF(command_buffer, cb);
    if (cb->status < COMMITTED) misuse("it has not been committed: this would wait for ever");
    if (cb->status == COMMITTED) cb->status = SCHEDULED;
    execute_handlers();
}
static uint64_t buffer_status(id self, SEL cmd)
{
    (void)cmd;
    SELF(command_buffer, cb);
    world_lock();
    if (cb->status == COMMITTED || cb->status == SCHEDULED) counts()->polls++, execute_poll(cb);
    if (cb->status >= COMPLETED) cb->status_seen = true;
    int status = cb->status;
    world_unlock();
    execute_handlers();
    return (uint64_t)status;
}
static id buffer_error(id self, SEL cmd)
{
    (void)cmd;
    SELF(command_buffer, cb);
    if (cb->status >= COMPLETED) cb->status_seen = true;
    return object_autorelease(object_retain(cb->error));
}

struct block {
    void *isa;
    int32_t flags, reserved;
    void (*invoke)(struct block *self, id buffer);
    struct {
        uint64_t reserved, bytes;
    } * descriptor;
};
extern void *_NSConcreteGlobalBlock[32];

static void add_handler(id self, struct block *b)
{
    SELF(command_buffer, cb);
    if (cb->status >= COMMITTED)
        misuse("a handler after commit");
    else if (!b || b->isa != _NSConcreteGlobalBlock || !(b->flags & 1 << 28) || !b->invoke || !b->descriptor)
        misuse("not a global block (isa, flag 1 << 28, invoke, descriptor): it would be copied");
    else if (cb->n_handlers == 16)
        misuse("17 handlers");
    else
        cb->handler[cb->n_handlers++] = b;
}
static void buffer_completed_handler(id self, SEL cmd, struct block *b)
{
    (void)cmd;
    add_handler(self, b);
}
static double gpu_time(id self, bool end)
{
    SELF(command_buffer, cb);
    if (cb->status < COMPLETED) misuse("the time of work that has not completed");
    return end ? cb->gpu_end : cb->gpu_start;
}
static double buffer_gpu_start(id self, SEL cmd)
{
    (void)cmd;
    return gpu_time(self, false);
}
static double buffer_gpu_end(id self, SEL cmd)
{
    (void)cmd;
    return gpu_time(self, true);
}
static BOOL buffer_retained(id self, SEL cmd)
{
    (void)cmd;
    return ((command_buffer *)object_body(self))->retained;
}
static uint64_t buffer_error_options(id self, SEL cmd)
{
    (void)cmd;
    return ((command_buffer *)object_body(self))->error_options;
}
static id buffer_queue(id self, SEL cmd)
{
    (void)cmd;
    return object_lend(((command_buffer *)object_body(self))->queue);
}
OBJECT_PROPERTY(command_buffer, label, buffer_label, buffer_set_label)

static void encode_event(id self, id event, uint64_t value, command_kind kind)
{
    command_buffer *cb = encodable(self);
    if (!cb || (!object_is(event, "MTLSharedEvent") && !argument(event, "MTLEvent", "the event"))) return;
    command *c = command_add(cb, kind);
    c->value = value;
    object_hold(c->object = event);
}
static void buffer_signal(id self, SEL cmd, id event, uint64_t value)
{
    (void)cmd;
    encode_event(self, event, value, COMMAND_SIGNAL);
}
static void buffer_wait_event(id self, SEL cmd, id event, uint64_t value)
{
    (void)cmd;
    encode_event(self, event, value, COMMAND_WAIT);
}

/* ---- encoders -------------------------------------------------------------------------------------------------- */

/* The encoder, if it is open. */
static encoder *open_encoder(id self)
{
    SELF(encoder, e);
    if (!e->ended) return e;
    misuse("the encoder has ended");
    return NULL;
}
command_buffer *encoder_buffer(id self)
{
    encoder *e = open_encoder(self);
    return e ? e->cb : NULL;
}
static void encoder_end_encoding(id self, SEL cmd)
{
    (void)cmd;
    encoder *e = open_encoder(self);
    if (!e) return;
    if (e->groups_pushed) misuse("%d debug groups are open", e->groups_pushed);
    e->ended = true;
    e->cb->open = NULL;
}
static id encoder_label(id self, SEL cmd)
{
    (void)cmd;
    return object_lend(((encoder *)object_body(self))->label);
}
static void encoder_set_label(id self, SEL cmd, id label)
{
    (void)cmd;
    SELF(encoder, e);
    encoder_note *n = &e->cb->encoder[e->number];
    object_hold(label), object_hold(label);
    object_drop(e->label), object_drop(n->label);
    e->label = n->label = label;
}
static void encoder_push(id self, SEL cmd, id label)
{
    (void)cmd;
    encoder *e = open_encoder(self);
    if (e && argument(label, "NSString", "the label")) e->groups_pushed++;
}
static void encoder_pop(id self, SEL cmd)
{
    (void)cmd;
    encoder *e = open_encoder(self);
    if (e && e->groups_pushed-- < 1) misuse("no debug group is open");
}
static void encoder_signpost(id self, SEL cmd, id label)
{
    (void)cmd;
    if (open_encoder(self)) argument(label, "NSString", "the label");
}
static void note_fence(id self, id fence, bool update)
{
    encoder *e = open_encoder(self);
    if (!e || !argument(fence, "MTLFence", "the fence")) return;
    encoder_note *n = &e->cb->encoder[e->number];
    int *at = update ? &n->n_updated : &n->n_waited;
    if (*at == 8) {
        misuse("9 fences in an encoder are more than the stand-in keeps");
        return;
    }
    (update ? n->fence_updated : n->fence_waited)[(*at)++] = fence;
    object_hold(fence);
}
static void encoder_update_fence(id self, SEL cmd, id fence)
{
    (void)cmd;
    note_fence(self, fence, true);
}
static void encoder_wait_fence(id self, SEL cmd, id fence)
{
    (void)cmd;
    note_fence(self, fence, false);
}

/* ---- compute */

static buffer *range_of(id o, uint64_t at, uint64_t bytes, const char *what)
{
    buffer *b = argument(o, "MTLBuffer", what);
    if (b && (at > b->length || bytes > b->length - at || !bytes)) {
        misuse("%s: bytes %llu to %llu of %llu", what, (unsigned long long)at, (unsigned long long)(at + bytes),
               (unsigned long long)b->length);
        return NULL;
    }
    if (b && !the()->gpu->apple && (at % 4 || bytes % 4)) {
        misuse("%s: offset and size are multiples of 4 on macOS", what);
        return NULL;
    }
    return b;
}
static void compute_set_pipeline(id self, SEL cmd, id pipeline)
{
    (void)cmd;
    encoder *e = open_encoder(self);
    if (!e || !argument(pipeline, "MTLComputePipelineState", "the pipeline")) return;
    object_hold(pipeline);
    object_drop(e->pipeline);
    e->pipeline = pipeline;
}

static bool index_good(uint64_t index)
{
    if (index >= MAX_BUFFERS) misuse("index %llu; the last is 30", (unsigned long long)index);
    return index < MAX_BUFFERS;
}

static void bind_buffer(encoder *e, id buffer_object, uint64_t offset, uint64_t index)
{
    if (!index_good(index)) return;
    binding *b = &e->bound[index];
    if (buffer_object) {
        buffer *target = argument(buffer_object, "MTLBuffer", "the buffer");
        if (!target) return;
        if (offset >= target->length) {
            misuse("offset %llu of a buffer of %llu bytes", (unsigned long long)offset,
                   (unsigned long long)target->length);
            return;
        }
        if (offset % the()->gpu->offset_alignment) {
            misuse("offset %llu is no multiple of %llu", (unsigned long long)offset,
                   (unsigned long long)the()->gpu->offset_alignment);
            return;
        }
    }
    free(b->bytes);
    *b = (binding){.buffer = buffer_object, .offset = offset, .set = buffer_object != NULL};
    if (buffer_object) command_buffer_use(e->cb, buffer_object, false);
}
static void compute_set_buffer(id self, SEL cmd, id buffer, uint64_t offset, uint64_t index)
{
    (void)cmd;
    encoder *e = open_encoder(self);
    if (e) bind_buffer(e, buffer, offset, index);
}
static void compute_set_offset(id self, SEL cmd, uint64_t offset, uint64_t index)
{
    (void)cmd;
    encoder *e = open_encoder(self);
    if (!e || !index_good(index)) return;
    if (!e->bound[index].buffer)
        misuse("no buffer is set at %llu", (unsigned long long)index);
    else
        bind_buffer(e, e->bound[index].buffer, offset, index);
}
static void compute_set_buffers(id self, SEL cmd, const id *buffers, const uint64_t *offsets, NSRange range)
{
    (void)cmd;
    encoder *e = open_encoder(self);
    if (e && (!buffers || !offsets)) misuse("buffers or offsets are NULL");
    for (uint64_t i = 0; e && buffers && offsets && i < range.length; i++)
        bind_buffer(e, buffers[i], offsets[i], range.location + i);
}
static void compute_set_bytes(id self, SEL cmd, const void *bytes, uint64_t length, uint64_t index)
{
    (void)cmd;
    encoder *e = open_encoder(self);
    if (!e || !index_good(index)) return;
    if (!bytes || !length || length > MAX_SET_BYTES) {
        misuse("%llu bytes at %p; from 1 to 4096 are allowed", (unsigned long long)length, bytes);
        return;
    }
    binding *b = &e->bound[index];
    free(b->bytes);
    *b = (binding){.bytes = malloc(length), .length = length, .set = true};
    if (!b->bytes) abort();
    memcpy(b->bytes, bytes, length);
    counts()->set_bytes += length;
}
static void compute_set_group_memory(id self, SEL cmd, uint64_t length, uint64_t index)
{
    (void)cmd;
    encoder *e = open_encoder(self);
    if (!e || !index_good(index)) return;
    if (length % 16 || length > MAX_GROUP_MEMORY)
        misuse("%llu bytes of threadgroup memory: a multiple of 16, at most 32768", (unsigned long long)length);
    else
        e->group_memory[index] = length;
}

static bool sizes_good(const pipeline *p, MTLSize groups, MTLSize threads)
{
    uint64_t n = threads.width * threads.height * threads.depth;
    if (!groups.width || !groups.height || !groups.depth)
        misuse("a grid of %llu x %llu x %llu", (unsigned long long)groups.width, (unsigned long long)groups.height,
               (unsigned long long)groups.depth);
    else if (groups.width >> 31 || groups.height >> 31 || groups.depth >> 31)
        misuse("a grid dimension beyond 31 bits: an int that was not widened?");
    else if (!n || n > p->max_threads || threads.width > n || threads.height > n || threads.depth > n)
        misuse("%llu x %llu x %llu threads a threadgroup; %s takes %llu", (unsigned long long)threads.width,
               (unsigned long long)threads.height, (unsigned long long)threads.depth, p->kernel->name,
               (unsigned long long)p->max_threads);
    else
        return true;
    return false;
}

/* The language forbids two arguments that overlap: a compiler may keep what it has read through one while it writes through
 * the other. Where an argument's memory ends is not known here, but two that begin at the same byte do overlap. Two that
 * the kernel only reads are let pass: no result depends on it. */
static bool aliased(const pipeline *p, const binding *bound)
{
    for (int i = 0; i < p->n_arguments; i++)
        for (int j = 0; j < i; j++) {
            const kernel_argument *a = &p->argument[j], *b = &p->argument[i];
            if (a->kind != ARGUMENT_BUFFER || b->kind != ARGUMENT_BUFFER || !(a->writes || b->writes)) continue;
            const binding *x = &bound[a->index], *y = &bound[b->index];
            if (!x->buffer || x->buffer != y->buffer || x->offset != y->offset) continue;
            misuse("%s: buffers %d and %d are the same memory, which the kernel may write: arguments may not alias",
                   p->kernel->name, a->index, b->index);
            return true;
        }
    return false;
}

bool launch_check(const pipeline *p, const binding *bound, const uint64_t *group_memory, MTLSize groups,
                  MTLSize threads)
{
    if (!sizes_good(p, groups, threads)) return false;
    uint64_t total = p->entry.group_memory;
    for (int i = 0; i < p->n_arguments; i++) {
        const kernel_argument *a = &p->argument[i];
        if (a->kind == ARGUMENT_ABSENT) continue;
        if (a->kind == ARGUMENT_THREADGROUP) {
            if (!group_memory[a->index])
                return misuse("%s: threadgroup memory %d has no length", p->kernel->name, a->index), false;
            total += group_memory[a->index];
            continue;
        }
        const binding *b = &bound[a->index];
        if (!b->set) return misuse("%s: buffer %d is not set", p->kernel->name, a->index), false;
        if (b->buffer && !object_is(b->buffer, "MTLBuffer"))
            return misuse("%s: buffer %d has been freed since it was set", p->kernel->name, a->index), false;
        if (b->bytes && a->writes)
            return misuse("%s: bytes at %d, where the kernel may write", p->kernel->name, a->index), false;
        uint64_t length = b->bytes ? b->length : ((buffer *)object_body(b->buffer))->length - b->offset;
        if (length < a->least_bytes)
            return misuse("%s: %llu bytes at %d, its type has %llu", p->kernel->name, (unsigned long long)length,
                          a->index, (unsigned long long)a->least_bytes),
                   false;
    }
    if (aliased(p, bound)) return false;
    if (total > MAX_GROUP_MEMORY)
        misuse("%s: %llu bytes of threadgroup memory; 32768 are allowed", p->kernel->name, (unsigned long long)total);
    return total <= MAX_GROUP_MEMORY;
}

static void launch(encoder *e, MTLSize groups, MTLSize threads)
{
    if (!e->pipeline) {
        misuse("no pipeline is set");
        return;
    }
    const pipeline *p = object_body(e->pipeline);
    if (!launch_check(p, e->bound, e->group_memory, groups, threads)) return;
    command *c = command_add(e->cb, COMMAND_LAUNCH);
    c->groups = groups, c->threads = threads;
    object_hold(c->pipeline = e->pipeline);
    memcpy(c->group_memory, e->group_memory, sizeof c->group_memory);
    for (int i = 0; i < p->n_arguments; i++) {
        const kernel_argument *a = &p->argument[i];
        if (a->kind != ARGUMENT_BUFFER) continue;
        binding *b = &c->bound[a->index];
        *b = e->bound[a->index];
        if (b->bytes) {
            b->bytes = malloc(b->length);
            if (!b->bytes) abort();
            memcpy(b->bytes, e->bound[a->index].bytes, b->length);
        } else {
            command_buffer_use(e->cb, b->buffer, a->writes);
        }
    }
    counts()->launches++;
}
static void compute_dispatch_groups(id self, SEL cmd, MTLSize groups, MTLSize threads)
{
    (void)cmd;
    encoder *e = open_encoder(self);
    if (e) launch(e, groups, threads);
}
/* Whole groups only: what ragged ones mean for barriers and simdgroups is better not relied on. */
static void compute_dispatch_threads(id self, SEL cmd, MTLSize grid, MTLSize threads)
{
    (void)cmd;
    encoder *e = open_encoder(self);
    if (!e) return;
    if (!threads.width || !threads.height || !threads.depth)
        misuse("a threadgroup of 0 threads");
    else if (grid.width % threads.width || grid.height % threads.height || grid.depth % threads.depth)
        misuse("a ragged grid of threads: the stand-in runs whole threadgroups, with bounds checked in the kernel");
    else
        launch(e, (MTLSize){grid.width / threads.width, grid.height / threads.height, grid.depth / threads.depth},
               threads);
}
/* Groups that another launch has written into a buffer: three uint32_t, looked at when the launch runs; 0 is nothing to
 * do. */
static void compute_dispatch_indirect(id self, SEL cmd, id groups, uint64_t offset, MTLSize threads)
{
    (void)cmd;
    encoder *e = open_encoder(self);
    if (!e || !range_of(groups, offset, 12, "the groups")) return;
    if (offset % 4) {
        misuse("offset %llu is no multiple of 4", (unsigned long long)offset);
        return;
    }
    int before = e->cb->n_commands;
    launch(e, (MTLSize){1, 1, 1}, threads);
    if (e->cb->n_commands == before) return;
    command *c = &e->cb->command[before];
    c->from = groups, c->from_at = offset;
    command_buffer_use(e->cb, groups, false);
}
static uint64_t compute_type(id self, SEL cmd)
{
    (void)cmd;
    return ((encoder *)object_body(self))->concurrent;
}
static void compute_barrier(id self, SEL cmd, uint64_t scope)
{
    (void)cmd;
    encoder *e = open_encoder(self);
    if (!e) return;
    if (scope != 1)
        misuse("scope %llu; buffers are 1", (unsigned long long)scope);
    else
        command_add(e->cb, COMMAND_BARRIER);
}
static void compute_barrier_resources(id self, SEL cmd, const id *resource, uint64_t n)
{
    (void)cmd;
    encoder *e = open_encoder(self);
    for (uint64_t i = 0; e && i < n; i++)
        if (!argument(resource[i], "MTLBuffer", "a resource")) return;
    if (e) command_add(e->cb, COMMAND_BARRIER);
}
static void compute_use(id self, SEL cmd, id resource, uint64_t usage)
{
    (void)cmd;
    encoder *e = open_encoder(self);
    if (!e) return;
    if (!usage || usage > 3)
        misuse("usage %llu; read is 1, write is 2", (unsigned long long)usage);
    else if (argument(resource, "MTLBuffer", "the resource"))
        command_buffer_use(e->cb, resource, usage & 2);
}
static void compute_use_many(id self, SEL cmd, const id *resource, uint64_t n, uint64_t usage)
{
    for (uint64_t i = 0; i < n; i++) compute_use(self, cmd, resource[i], usage);
}

/* ---- blit */

static void blit_copy(id self, SEL cmd, id from, uint64_t from_at, id to, uint64_t to_at, uint64_t bytes)
{
    (void)cmd;
    encoder *e = open_encoder(self);
    if (!e || !range_of(from, from_at, bytes, "the source") || !range_of(to, to_at, bytes, "the destination")) return;
    if (from == to && from_at < to_at + bytes && to_at < from_at + bytes) {
        misuse("source and destination overlap");
        return;
    }
    command *c = command_add(e->cb, COMMAND_COPY);
    c->from = from, c->from_at = from_at, c->to = to, c->to_at = to_at, c->bytes = bytes;
    command_buffer_use(e->cb, from, false), command_buffer_use(e->cb, to, true);
    counts()->blits++, counts()->copied_bytes += bytes;
}
static void blit_fill(id self, SEL cmd, id to, NSRange range, uint8_t value)
{
    (void)cmd;
    encoder *e = open_encoder(self);
    if (!e || !range_of(to, range.location, range.length, "the buffer")) return;
    command *c = command_add(e->cb, COMMAND_FILL);
    c->to = to, c->to_at = range.location, c->bytes = range.length, c->value = value;
    command_buffer_use(e->cb, to, true);
    counts()->blits++, counts()->copied_bytes += range.length;
}
static void blit_synchronize(id self, SEL cmd, id resource)
{
    (void)cmd;
    encoder *e = open_encoder(self);
    buffer *b = e ? argument(resource, "MTLBuffer", "the resource") : NULL;
    if (!b) return;
    if (b->storage != STORAGE_MANAGED) {
        misuse("only a Managed buffer is synchronized");
        return;
    }
    command *c = command_add(e->cb, COMMAND_SYNCHRONIZE);
    c->to = resource;
    command_buffer_use(e->cb, resource, true);
}

static const class_row classes[] = {
    {"MTLCommandQueue", "", sizeof(queue), queue_end, -1},
    {"MTLCommandBuffer", "", sizeof(command_buffer), command_buffer_end, -1},
    {"MTLComputeCommandEncoder", "MTLCommandEncoder", sizeof(encoder), encoder_end, -1},
    {"MTLBlitCommandEncoder", "MTLCommandEncoder", sizeof(encoder), encoder_end, -1},
    {"MTLCommandBufferDescriptor", "", sizeof(buffer_descriptor), NULL, 1100},
    {"MTLCommandQueueDescriptor", "", sizeof(queue_descriptor), NULL, 1500},
};
static const method_row methods[] = {
    {"MTLDevice", "newCommandQueue", METHOD_OF(device_queue)},
    {"MTLDevice", "newCommandQueueWithMaxCommandBufferCount:", METHOD_OF(device_queue_most)},
    {"MTLDevice", "newCommandQueueWithDescriptor:", METHOD_OF(device_queue_described)},
    {"MTLCommandQueueDescriptor", "maxCommandBufferCount", METHOD_OF(queue_descriptor_most)},
    {"MTLCommandQueueDescriptor", "setMaxCommandBufferCount:", METHOD_OF(queue_descriptor_set_most)},
    {"MTLCommandQueue", "label", METHOD_OF(queue_label)},
    {"MTLCommandQueue", "setLabel:", METHOD_OF(queue_set_label)},
    {"MTLCommandQueue", "device", METHOD_OF(device_of)},
    {"MTLCommandQueue", "commandBuffer", METHOD_OF(queue_command_buffer)},
    {"MTLCommandQueue", "commandBufferWithUnretainedReferences", METHOD_OF(queue_command_buffer_unretained)},
    {"MTLCommandQueue", "commandBufferWithDescriptor:", METHOD_OF(queue_command_buffer_described)},
    {"MTLCommandBufferDescriptor", "errorOptions", METHOD_OF(descriptor_options)},
    {"MTLCommandBufferDescriptor", "setErrorOptions:", METHOD_OF(descriptor_set_options)},
    {"MTLCommandBufferDescriptor", "retainedReferences", METHOD_OF(descriptor_retained)},
    {"MTLCommandBufferDescriptor", "setRetainedReferences:", METHOD_OF(descriptor_set_retained)},
    {"MTLCommandBuffer", "computeCommandEncoder", METHOD_OF(buffer_compute)},
    {"MTLCommandBuffer", "computeCommandEncoderWithDispatchType:", METHOD_OF(buffer_compute_type)},
    {"MTLCommandBuffer", "blitCommandEncoder", METHOD_OF(buffer_blit)},
    {"MTLCommandBuffer", "enqueue", METHOD_OF(buffer_enqueue)},
    {"MTLCommandBuffer", "commit", METHOD_OF(buffer_commit)},
    {"MTLCommandBuffer", "waitUntilCompleted", METHOD_OF(buffer_wait)},
    {"MTLCommandBuffer", "waitUntilScheduled", METHOD_OF(buffer_wait_scheduled)},
    {"MTLCommandBuffer", "status", METHOD_OF(buffer_status)},
    {"MTLCommandBuffer", "error", METHOD_OF(buffer_error)},
    {"MTLCommandBuffer", "addCompletedHandler:", METHOD_OF(buffer_completed_handler)},
    {"MTLCommandBuffer", "GPUStartTime", METHOD_OF(buffer_gpu_start)},
    {"MTLCommandBuffer", "GPUEndTime", METHOD_OF(buffer_gpu_end)},
    {"MTLCommandBuffer", "kernelStartTime", METHOD_OF(buffer_gpu_start)},
    {"MTLCommandBuffer", "kernelEndTime", METHOD_OF(buffer_gpu_end)},
    {"MTLCommandBuffer", "retainedReferences", METHOD_OF(buffer_retained)},
    {"MTLCommandBuffer", "errorOptions", METHOD_OF(buffer_error_options)},
    {"MTLCommandBuffer", "commandQueue", METHOD_OF(buffer_queue)},
    {"MTLCommandBuffer", "device", METHOD_OF(device_of)},
    {"MTLCommandBuffer", "label", METHOD_OF(buffer_label)},
    {"MTLCommandBuffer", "setLabel:", METHOD_OF(buffer_set_label)},
    {"MTLCommandBuffer", "encodeSignalEvent:value:", METHOD_OF(buffer_signal)},
    {"MTLCommandBuffer", "encodeWaitForEvent:value:", METHOD_OF(buffer_wait_event)},
    {"MTLCommandEncoder", "endEncoding", METHOD_OF(encoder_end_encoding)},
    {"MTLCommandEncoder", "device", METHOD_OF(device_of)},
    {"MTLCommandEncoder", "label", METHOD_OF(encoder_label)},
    {"MTLCommandEncoder", "setLabel:", METHOD_OF(encoder_set_label)},
    {"MTLCommandEncoder", "pushDebugGroup:", METHOD_OF(encoder_push)},
    {"MTLCommandEncoder", "popDebugGroup", METHOD_OF(encoder_pop)},
    {"MTLCommandEncoder", "insertDebugSignpost:", METHOD_OF(encoder_signpost)},
    {"MTLComputeCommandEncoder", "updateFence:", METHOD_OF(encoder_update_fence)},
    {"MTLComputeCommandEncoder", "waitForFence:", METHOD_OF(encoder_wait_fence)},
    {"MTLBlitCommandEncoder", "updateFence:", METHOD_OF(encoder_update_fence)},
    {"MTLBlitCommandEncoder", "waitForFence:", METHOD_OF(encoder_wait_fence)},
    {"MTLComputeCommandEncoder", "setComputePipelineState:", METHOD_OF(compute_set_pipeline)},
    {"MTLComputeCommandEncoder", "setBuffer:offset:atIndex:", METHOD_OF(compute_set_buffer)},
    {"MTLComputeCommandEncoder", "setBufferOffset:atIndex:", METHOD_OF(compute_set_offset)},
    {"MTLComputeCommandEncoder", "setBuffers:offsets:withRange:", METHOD_OF(compute_set_buffers)},
    {"MTLComputeCommandEncoder", "setBytes:length:atIndex:", METHOD_OF(compute_set_bytes)},
    {"MTLComputeCommandEncoder", "setThreadgroupMemoryLength:atIndex:", METHOD_OF(compute_set_group_memory)},
    {"MTLComputeCommandEncoder", "dispatchThreadgroups:threadsPerThreadgroup:", METHOD_OF(compute_dispatch_groups)},
    {"MTLComputeCommandEncoder", "dispatchThreads:threadsPerThreadgroup:", METHOD_OF(compute_dispatch_threads)},
    {"MTLComputeCommandEncoder", "dispatchThreadgroupsWithIndirectBuffer:indirectBufferOffset:threadsPerThreadgroup:",
     METHOD_OF(compute_dispatch_indirect)},
    {"MTLComputeCommandEncoder", "dispatchType", METHOD_OF(compute_type)},
    {"MTLComputeCommandEncoder", "memoryBarrierWithScope:", METHOD_OF(compute_barrier)},
    {"MTLComputeCommandEncoder", "memoryBarrierWithResources:count:", METHOD_OF(compute_barrier_resources)},
    {"MTLComputeCommandEncoder", "useResource:usage:", METHOD_OF(compute_use)},
    {"MTLComputeCommandEncoder", "useResources:count:usage:", METHOD_OF(compute_use_many)},
    {"MTLBlitCommandEncoder", "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:", METHOD_OF(blit_copy)},
    {"MTLBlitCommandEncoder", "fillBuffer:range:value:", METHOD_OF(blit_fill)},
    {"MTLBlitCommandEncoder", "synchronizeResource:", METHOD_OF(blit_synchronize)},
};
const module command_module = {classes, COUNT(classes), methods, COUNT(methods), NULL};
