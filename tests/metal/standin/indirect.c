/* indirect.c: what a first version of a backend does without: residency sets, and indirect command buffers (recorded
 * launches that an encoder replays). */
#include "metal.h"

#include <stdlib.h>
#include <string.h>

typedef struct residency_set {
    id member[4096];
    int n;
    bool committed, resident;
} residency_set;

static id device_residency(id self, SEL cmd, id descriptor, id *error)
{
    (void)self, (void)cmd;
    if (error) *error = NULL;
    return argument(descriptor, "MTLResidencySetDescriptor", "the descriptor") ? object_new("MTLResidencySet") : NULL;
}
static void residency_end(void *body)
{
    residency_set *s = body;
    if (s->resident) misuse("a residency set ends without endResidency");
    for (int i = 0; i < s->n; i++) object_drop(s->member[i]);
}
static void residency_add(id self, SEL cmd, id buffer)
{
    (void)cmd;
    SELF(residency_set, s);
    if (!argument(buffer, "MTLBuffer", "the allocation")) return;
    if (s->n == 4096)
        misuse("more than 4096 allocations");
    else
        object_hold(s->member[s->n++] = buffer), s->committed = false;
}
static void residency_remove_all(id self, SEL cmd)
{
    (void)cmd;
    SELF(residency_set, s);
    while (s->n) object_drop(s->member[--s->n]);
    s->committed = false;
}
static void residency_remove(id self, SEL cmd, id buffer)
{
    (void)cmd;
    SELF(residency_set, s);
    for (int i = 0; i < s->n; i++)
        if (s->member[i] == buffer) {
            object_drop(buffer);
            s->member[i] = s->member[--s->n];
            return;
        }
    misuse("it does not contain the allocation");
}
static BOOL residency_contains(id self, SEL cmd, id buffer)
{
    (void)cmd;
    SELF(residency_set, s);
    for (int i = 0; i < s->n; i++)
        if (s->member[i] == buffer) return 1;
    return 0;
}
static void residency_commit(id self, SEL cmd)
{
    (void)cmd;
    ((residency_set *)object_body(self))->committed = true;
}
static void residency_request(id self, SEL cmd)
{
    (void)cmd;
    SELF(residency_set, s);
    if (!s->committed) misuse("what was added has not been committed");
    s->resident = true;
}
static void residency_stop(id self, SEL cmd)
{
    (void)cmd;
    ((residency_set *)object_body(self))->resident = false;
}
static uint64_t residency_count(id self, SEL cmd)
{
    (void)cmd;
    return (uint64_t)((residency_set *)object_body(self))->n;
}
static uint64_t residency_bytes(id self, SEL cmd)
{
    (void)cmd;
    SELF(residency_set, s);
    uint64_t bytes = 0;
    for (int i = 0; i < s->n; i++) bytes += ((buffer *)object_body(s->member[i]))->mapped;
    return bytes;
}
static void queue_residency(id self, SEL cmd, id set)
{
    (void)self, (void)cmd;
    argument(set, "MTLResidencySet", "the set");
}
typedef struct set_descriptor {
    uint64_t capacity;
    id label;
} set_descriptor;
static void set_descriptor_end(void *body)
{
    object_drop(((set_descriptor *)body)->label);
}
PROPERTY(set_descriptor, uint64_t, capacity, set_capacity, set_set_capacity)
OBJECT_PROPERTY(set_descriptor, label, set_label, set_set_label)

/* ---- indirect command buffers ---------------------------------------------------------------------------------- */

typedef struct icb_descriptor {
    uint64_t types, most_buffers;
    BOOL buffers, pipeline;
} icb_descriptor;
PROPERTY(icb_descriptor, uint64_t, types, icb_types, icb_set_types)
PROPERTY(icb_descriptor, uint64_t, most_buffers, icb_most, icb_set_most)
PROPERTY(icb_descriptor, BOOL, buffers, icb_inherit, icb_set_inherit)
PROPERTY(icb_descriptor, BOOL, pipeline, icb_inherit_pipeline, icb_set_inherit_pipeline)

typedef struct icb_command {
    id pipeline;
    binding bound[MAX_BUFFERS];
    uint64_t group_memory[MAX_BUFFERS];
    MTLSize groups, threads;
    bool barrier, launched;
} icb_command;
typedef struct icb {
    icb_descriptor made;
    icb_command *command;
    uint64_t n;
} icb;
typedef struct icb_place { /* what indirectComputeCommandAtIndex: gives */
    id owner;
    uint64_t at;
} icb_place;

static id device_icb(id self, SEL cmd, id descriptor, uint64_t n, uint64_t options)
{
    (void)self, (void)cmd;
    icb_descriptor *d = argument(descriptor, "MTLIndirectCommandBufferDescriptor", "the descriptor");
    if (!d) return NULL;
    if (d->types != MTLIndirectCommandTypeConcurrentDispatch &&
        d->types != MTLIndirectCommandTypeConcurrentDispatchThreads)
        return misuse("command types %llu; concurrent dispatches are 32 and 64", (unsigned long long)d->types), NULL;
    if (!n || n > 16384 || options >> 4 & 15 || d->most_buffers > MAX_BUFFERS)
        return misuse("%llu commands, %llu buffers each", (unsigned long long)n, (unsigned long long)d->most_buffers),
               NULL;
    id o = object_new("MTLIndirectCommandBuffer");
    icb *i = object_body(o);
    *i = (icb){.made = *d, .command = calloc(n, sizeof *i->command), .n = n};
    if (!i->command) abort();
    return o;
}
static void icb_end(void *body)
{
    icb *i = body;
    for (uint64_t c = 0; c < i->n; c++) object_drop(i->command[c].pipeline);
    free(i->command);
}
static uint64_t icb_size(id self, SEL cmd)
{
    (void)cmd;
    return ((icb *)object_body(self))->n;
}
static id icb_at(id self, SEL cmd, uint64_t at)
{
    (void)cmd;
    SELF(icb, i);
    if (at >= i->n) return misuse("command %llu of %llu", (unsigned long long)at, (unsigned long long)i->n), NULL;
    id o = object_pooled("MTLIndirectComputeCommand");
    icb_place *p = object_body(o);
    object_hold(p->owner = self);
    p->at = at;
    return o;
}
static void place_end(void *body)
{
    object_drop(((icb_place *)body)->owner);
}
static icb_command *place_command(id self)
{
    SELF(icb_place, p);
    return &((icb *)object_body(p->owner))->command[p->at];
}
static void place_set_pipeline(id self, SEL cmd, id pipeline_object)
{
    (void)cmd;
    icb_command *c = place_command(self);
    pipeline *p = argument(pipeline_object, "MTLComputePipelineState", "the pipeline");
    if (!p) return;
    if (!p->indirect) {
        misuse("%s was made without supportIndirectCommandBuffers", p->kernel->name);
        return;
    }
    object_hold(pipeline_object);
    object_drop(c->pipeline);
    c->pipeline = pipeline_object;
}
static void place_set_buffer(id self, SEL cmd, id buffer_object, uint64_t offset, uint64_t index)
{
    (void)cmd;
    const icb *i = object_body(((icb_place *)object_body(self))->owner);
    buffer *b = argument(buffer_object, "MTLBuffer", "the buffer");
    if (!b) return;
    if (index >= i->made.most_buffers)
        misuse("index %llu; the descriptor allows %llu", (unsigned long long)index,
               (unsigned long long)i->made.most_buffers);
    else if (offset >= b->length || offset % the()->gpu->offset_alignment || offset >> 32)
        misuse("offset %llu of a buffer of %llu bytes", (unsigned long long)offset, (unsigned long long)b->length);
    else
        place_command(self)->bound[index] = (binding){.buffer = buffer_object, .offset = offset, .set = true};
}
static void place_group_memory(id self, SEL cmd, uint64_t length, uint64_t index)
{
    (void)cmd;
    if (length % 16 || length > MAX_GROUP_MEMORY || index >= MAX_BUFFERS)
        misuse("%llu bytes of threadgroup memory at %llu", (unsigned long long)length, (unsigned long long)index);
    else
        place_command(self)->group_memory[index] = length;
}
static void place_dispatch(id self, SEL cmd, MTLSize groups, MTLSize threads)
{
    (void)cmd;
    icb_command *c = place_command(self);
    if (!c->pipeline) {
        misuse("no pipeline is set");
        return;
    }
    c->groups = groups, c->threads = threads, c->launched = true;
}
static void place_barrier(id self, SEL cmd)
{
    (void)cmd;
    place_command(self)->barrier = true;
}
static void place_clear_barrier(id self, SEL cmd)
{
    (void)cmd;
    place_command(self)->barrier = false;
}
static void place_reset(id self, SEL cmd)
{
    (void)cmd;
    icb_command *c = place_command(self);
    object_drop(c->pipeline);
    *c = (icb_command){0};
}

static bool declared(const command_buffer *cb, id buffer, bool writes)
{
    for (int i = 0; i < cb->n_used; i++)
        if (cb->used[i] == buffer) return cb->used_writes[i] || !writes;
    return false;
}

/* Replays commands: what they use must have been declared with useResource:, on the encoder that replays. */
static void compute_execute(id self, SEL cmd, id icb_object, NSRange range)
{
    (void)cmd;
    icb *i = argument(icb_object, "MTLIndirectCommandBuffer", "the command buffer");
    command_buffer *cb = encoder_buffer(self);
    if (!i || !cb) return;
    if (range.location > i->n || range.length > i->n - range.location) {
        misuse("commands %llu to %llu of %llu", (unsigned long long)range.location,
               (unsigned long long)(range.location + range.length), (unsigned long long)i->n);
        return;
    }
    command_buffer_use(cb, icb_object, false);
    for (uint64_t at = range.location; at < range.location + range.length; at++) {
        const icb_command *c = &i->command[at];
        if (!c->launched) continue;
        const pipeline *p = object_body(c->pipeline);
        if (!launch_check(p, c->bound, c->group_memory, c->groups, c->threads)) return;
        for (int a = 0; a < p->n_arguments; a++)
            if (p->argument[a].kind == ARGUMENT_BUFFER &&
                !declared(cb, c->bound[p->argument[a].index].buffer, p->argument[a].writes))
                misuse("%s uses a buffer at %d that useResource: has not declared", p->kernel->name,
                       p->argument[a].index);
        if (c->barrier) command_add(cb, COMMAND_BARRIER);
        command *out = command_add(cb, COMMAND_LAUNCH);
        object_hold(out->pipeline = c->pipeline);
        out->groups = c->groups, out->threads = c->threads;
        memcpy(out->bound, c->bound, sizeof out->bound);
        memcpy(out->group_memory, c->group_memory, sizeof out->group_memory);
        counts()->launches++;
    }
}

static const class_row classes[] = {
    {"MTLResidencySetDescriptor", "", sizeof(set_descriptor), set_descriptor_end, 1500},
    {"MTLResidencySet", "", sizeof(residency_set), residency_end, -1},
    {"MTLIndirectCommandBufferDescriptor", "", sizeof(icb_descriptor), NULL, 1014},
    {"MTLIndirectCommandBuffer", "", sizeof(icb), icb_end, -1},
    {"MTLIndirectComputeCommand", "", sizeof(icb_place), place_end, -1},
};
static const method_row methods[] = {
    {"MTLDevice", "newResidencySetWithDescriptor:error:", METHOD_OF(device_residency)},
    {"MTLResidencySetDescriptor", "initialCapacity", METHOD_OF(set_capacity)},
    {"MTLResidencySetDescriptor", "setInitialCapacity:", METHOD_OF(set_set_capacity)},
    {"MTLResidencySetDescriptor", "label", METHOD_OF(set_label)},
    {"MTLResidencySetDescriptor", "setLabel:", METHOD_OF(set_set_label)},
    {"MTLResidencySet", "addAllocation:", METHOD_OF(residency_add)},
    {"MTLResidencySet", "removeAllocation:", METHOD_OF(residency_remove)},
    {"MTLResidencySet", "removeAllAllocations", METHOD_OF(residency_remove_all)},
    {"MTLResidencySet", "containsAllocation:", METHOD_OF(residency_contains)},
    {"MTLResidencySet", "commit", METHOD_OF(residency_commit)},
    {"MTLResidencySet", "requestResidency", METHOD_OF(residency_request)},
    {"MTLResidencySet", "endResidency", METHOD_OF(residency_stop)},
    {"MTLResidencySet", "allocationCount", METHOD_OF(residency_count)},
    {"MTLResidencySet", "allocatedSize", METHOD_OF(residency_bytes)},
    {"MTLCommandQueue", "addResidencySet:", METHOD_OF(queue_residency)},
    {"MTLCommandQueue", "removeResidencySet:", METHOD_OF(queue_residency)},
    {"MTLCommandBuffer", "useResidencySet:", METHOD_OF(queue_residency)},
    {"MTLDevice", "newIndirectCommandBufferWithDescriptor:maxCommandCount:options:", METHOD_OF(device_icb)},
    {"MTLIndirectCommandBufferDescriptor", "commandTypes", METHOD_OF(icb_types)},
    {"MTLIndirectCommandBufferDescriptor", "setCommandTypes:", METHOD_OF(icb_set_types)},
    {"MTLIndirectCommandBufferDescriptor", "maxKernelBufferBindCount", METHOD_OF(icb_most)},
    {"MTLIndirectCommandBufferDescriptor", "setMaxKernelBufferBindCount:", METHOD_OF(icb_set_most)},
    {"MTLIndirectCommandBufferDescriptor", "inheritBuffers", METHOD_OF(icb_inherit)},
    {"MTLIndirectCommandBufferDescriptor", "setInheritBuffers:", METHOD_OF(icb_set_inherit)},
    {"MTLIndirectCommandBufferDescriptor", "inheritPipelineState", METHOD_OF(icb_inherit_pipeline)},
    {"MTLIndirectCommandBufferDescriptor", "setInheritPipelineState:", METHOD_OF(icb_set_inherit_pipeline)},
    {"MTLIndirectCommandBuffer", "size", METHOD_OF(icb_size)},
    {"MTLIndirectCommandBuffer", "indirectComputeCommandAtIndex:", METHOD_OF(icb_at)},
    {"MTLIndirectComputeCommand", "setComputePipelineState:", METHOD_OF(place_set_pipeline)},
    {"MTLIndirectComputeCommand", "setKernelBuffer:offset:atIndex:", METHOD_OF(place_set_buffer)},
    {"MTLIndirectComputeCommand", "setThreadgroupMemoryLength:atIndex:", METHOD_OF(place_group_memory)},
    {"MTLIndirectComputeCommand", "concurrentDispatchThreadgroups:threadsPerThreadgroup:", METHOD_OF(place_dispatch)},
    {"MTLIndirectComputeCommand", "setBarrier", METHOD_OF(place_barrier)},
    {"MTLIndirectComputeCommand", "clearBarrier", METHOD_OF(place_clear_barrier)},
    {"MTLIndirectComputeCommand", "reset", METHOD_OF(place_reset)},
    {"MTLComputeCommandEncoder", "executeCommandsInBuffer:withRange:", METHOD_OF(compute_execute)},
};
const module indirect_module = {classes, COUNT(classes), methods, COUNT(methods), NULL};
