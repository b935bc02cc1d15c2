/* shim.c: the runtime behind shim.h: fibers, scheduler, meetings of a subgroup, shadow memory.
 *
 * Linked into the object of each kernel, so that its state is that object's own; one launch at a time. Linux and ELF,
 * x86-64 or arm64: the stack switch is a few lines of assembly, since swapcontext makes a system call each time. */
#define _GNU_SOURCE
#include "shim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

enum { MAX_THREADS = 1024, STACK_BYTES = 256 << 10, NOBODY = 0, MANY = 0xffff };
enum { SHARED_MAX = 227 << 10 }; /* what a thread block of an H200 may have */
typedef enum thread_state { READY, AT_BARRIER, AT_MEETING, DONE } thread_state;

typedef struct fiber {
    void *sp;
    uint8_t *stack;
    thread_state state;
    const char *what; /* AT_MEETING */
    void *mine;
} fiber;

/* Who touched a byte of threadgroup memory last, and between which barriers. A party is a thread (1..threads), or a
 * subgroup as a whole (MAX_THREADS + 1 + subgroup), or MANY. */
typedef struct touch {
    uint16_t party;
    uint32_t epoch, sub_epoch;
} touch;
typedef struct shadow {
    touch write, read;
    uint32_t writer,
        reader; /* device memory: 1 + number of the threadgroup; 0: none yet; several readers: MANY_GROUPS */
} shadow;
#define MANY_GROUPS UINT32_MAX

/* Barriers that a group has passed, and each of its subgroups (its own included): what separates accesses to one
 * memory. */
typedef struct barriers {
    uint32_t epoch, sub_epoch[MAX_THREADS / SHIM_LANES];
} barriers;

static struct {
    const shim_launch *launch;
    shim_report *report;
    shim_kernel kernel;
    void *scheduler_sp;
    fiber fibers[MAX_THREADS];
    int ready[MAX_THREADS], n_ready; /* in no order */
    int current;
    unsigned group[3];
    long group_number;
    int at_barrier, met[MAX_THREADS / SHIM_LANES];
    int memories; /* of the barrier that threads wait at */
    barriers shared_barriers, device_barriers;
    uint8_t place[64]; /* of element lane * 2 + e in an 8 x 8 matrix */
    shadow shared[SHARED_MAX];
    shadow *device[SHIM_MAX_BUFFERS]; /* of each byte */
    uint64_t random;
    int stopped;
} S;

/* Threadgroup arrays are `static` in this section: one group runs at a time. The linker gives its ends, and those of
 * the object. */
extern uint8_t __start_shim_shared[] __attribute__((weak, visibility("hidden")));
extern uint8_t __stop_shim_shared[] __attribute__((weak, visibility("hidden")));
extern uint8_t __ehdr_start[] __attribute__((visibility("hidden")));
extern uint8_t _end[] __attribute__((visibility("hidden")));

static uint32_t draw(uint32_t below)
{
    S.random = S.random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((S.random >> 33) % below);
}

__attribute__((format(printf, 1, 2))) static void fault(const char *fmt, ...)
{
    if (S.report->faults++) return;
    char *at = S.report->first;
    int n = snprintf(at, sizeof S.report->first, "group %u,%u,%u thread %d: ", S.group[0], S.group[1], S.group[2],
                     S.current);
    va_list args;
    va_start(args, fmt);
    vsnprintf(at + n, sizeof S.report->first - (size_t)n, fmt, args);
    va_end(args);
}

/* ---- fibers ---------------------------------------------------------------------------------------------------- */

/* shim_switch(save, load): pushes what a call preserves, stores the stack pointer in *save, goes on from `load`. */
void shim_switch(void **save, void *load);
#if defined(__x86_64__)
__asm__(".text\n.globl shim_switch\n.hidden shim_switch\n.type shim_switch,@function\nshim_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");
enum {
    SAVED_WORDS = 6,
    RETURN_WORD = 6,
    FRAME_WORDS = 8
}; /* so that rsp is 8 past a multiple of 16 in main, as after a call */
#elif defined(__aarch64__)
__asm__(
    ".text\n.globl shim_switch\n.hidden shim_switch\n.type shim_switch,%function\nshim_switch:\n"
    "stp x29,x30,[sp,#-160]!\nstp x19,x20,[sp,#16]\nstp x21,x22,[sp,#32]\nstp x23,x24,[sp,#48]\nstp x25,x26,[sp,#64]\n"
    "stp x27,x28,[sp,#80]\nstp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\nstp d12,d13,[sp,#128]\nstp d14,d15,[sp,#144]\n"
    "mov x9,sp\nstr x9,[x0]\nmov sp,x1\n"
    "ldp x19,x20,[sp,#16]\nldp x21,x22,[sp,#32]\nldp x23,x24,[sp,#48]\nldp x25,x26,[sp,#64]\nldp x27,x28,[sp,#80]\n"
    "ldp d8,d9,[sp,#96]\nldp d10,d11,[sp,#112]\nldp d12,d13,[sp,#128]\nldp d14,d15,[sp,#144]\nldp "
    "x29,x30,[sp],#160\nret\n");
enum { SAVED_WORDS = 20, RETURN_WORD = 1, FRAME_WORDS = 20 };
#else
#error "shim_switch is not written for this processor"
#endif

static void yield(void)
{
    S.report->switches++;
    shim_switch(&S.fibers[S.current].sp, S.scheduler_sp);
}

static void wake(int t)
{
    S.fibers[t].state = READY;
    S.ready[S.n_ready++] = t;
}

static void fiber_main(void)
{
    S.kernel(S.launch);
    S.fibers[S.current].state = DONE;
    yield();
    abort(); /* never woken again */
}

static void fiber_begin(int t)
{
    fiber *f = &S.fibers[t];
    if (!f->stack) {
        f->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (f->stack == MAP_FAILED) abort();
    }
    uintptr_t *sp = (uintptr_t *)(void *)(f->stack + STACK_BYTES) - FRAME_WORDS;
    memset(sp, 0, FRAME_WORDS * sizeof *sp);
    sp[RETURN_WORD] = (uintptr_t)fiber_main;
    f->sp = sp;
    wake(t);
}

/* ---- barriers and meetings ------------------------------------------------------------------------------------- */

unsigned shim_group(int axis)
{
    return S.group[axis];
}
unsigned shim_thread(void)
{
    return (unsigned)S.current;
}

unsigned shim_axis(int axis)
{
    const unsigned *a = S.launch->axis;
    return a[0] ? a[axis] : axis ? 1 : S.launch->threads;
}
unsigned shim_groups(int axis)
{
    return S.launch->groups[axis];
}

static void pass(barriers *b, int threads)
{
    b->epoch++;
    for (int s = 0; s < (threads + SHIM_LANES - 1) / SHIM_LANES; s++) b->sub_epoch[s]++;
}

void shim_group_barrier(int memories)
{
    const int threads = (int)S.launch->threads;
    if (S.at_barrier && memories != S.memories) fault("threads come to barriers of different memories");
    S.memories = memories;
    if (++S.at_barrier < threads) {
        S.fibers[S.current].state = AT_BARRIER;
        yield();
        return;
    }
    S.at_barrier = 0;
    if (memories & SHIM_THREADGROUP) pass(&S.shared_barriers, threads);
    if (memories & SHIM_DEVICE) pass(&S.device_barriers, threads);
    for (int t = 0; t < threads; t++)
        if (t != S.current) wake(t);
}

void shim_meet(const char *what, void *mine, void (*act)(void *const mine[SHIM_LANES]))
{
    const int sub = S.current / SHIM_LANES, first = sub * SHIM_LANES;
    if (first + SHIM_LANES > (int)S.launch->threads) { /* what it would do there depends on which lanes are active */
        fault("%s in a simdgroup of %d threads", what, (int)S.launch->threads - first);
        return;
    }
    fiber *me = &S.fibers[S.current];
    me->mine = mine;
    me->what = what;
    if (++S.met[sub] < SHIM_LANES) {
        me->state = AT_MEETING;
        yield();
        return;
    }
    void *all[SHIM_LANES];
    for (int l = 0; l < SHIM_LANES; l++) {
        const char *other = S.fibers[first + l].what;
        if (strcmp(other, what)) fault("%s, while lane %d of its simdgroup is at %s", what, l, other);
        all[l] = S.fibers[first + l].mine;
    }
    S.met[sub] = 0;
    act(all);
    for (int l = 0; l < SHIM_LANES; l++)
        if (first + l != S.current) wake(first + l);
}

static void pass_subgroup_barrier(void *const mine[SHIM_LANES])
{
    const int memories = *(const int *)mine[0], sub = S.current / SHIM_LANES;
    if (memories & SHIM_THREADGROUP) S.shared_barriers.sub_epoch[sub]++;
    if (memories & SHIM_DEVICE) S.device_barriers.sub_epoch[sub]++;
}

void shim_subgroup_barrier(int memories)
{
    shim_meet("simdgroup_barrier", &memories, pass_subgroup_barrier);
}

int shim_matrix_place(int lane, int e)
{
    return S.place[lane * 2 + e];
}

/* ---- every access ---------------------------------------------------------------------------------------------- */

static int subgroup_of(uint16_t party)
{
    return party > MAX_THREADS ? party - MAX_THREADS - 1 : (party - 1) / SHIM_LANES;
}

/* Whether `past` and an access now by `party` may be of different threads with no barrier between that both passed. */
static int unordered(const touch *past, uint16_t party, const barriers *b)
{
    if (past->party == NOBODY || past->epoch < b->epoch) return 0;
    if (past->party == MANY) return 1;
    if (past->party == party && party <= MAX_THREADS) return 0;
    int sub = subgroup_of(party);
    return subgroup_of(past->party) != sub || past->sub_epoch >= b->sub_epoch[sub];
}

static touch touch_of(uint16_t party, const barriers *b)
{
    return (touch){.party = party, .epoch = b->epoch, .sub_epoch = b->sub_epoch[subgroup_of(party)]};
}

/* Readers are recorded as one thread, one subgroup or MANY. What a thread reads behind a barrier of its subgroup comes
 * after all that the subgroup has read before, and so does what it writes then. */
static void note_read(touch *r, uint16_t party, const barriers *b)
{
    touch now = touch_of(party, b);
    if (r->epoch == b->epoch && r->party != NOBODY && r->party != party) {
        int sub = subgroup_of(party);
        int alike = r->party != MANY && subgroup_of(r->party) == sub;
        if (!alike || r->sub_epoch == b->sub_epoch[sub]) now.party = alike ? (uint16_t)(MAX_THREADS + 1 + sub) : MANY;
    }
    *r = now;
}

/* `buffer`: -1 for threadgroup memory; `at` in it. Bytes are looked at one by one: accesses may overlap in part. */
static void access_bytes(shadow *of, int buffer, size_t at, size_t bytes, int write, uint16_t party, const barriers *b)
{
    for (size_t i = at; i < at + bytes; i++) {
        shadow *s = &of[i];
        const touch *past = unordered(&s->write, party, b)           ? &s->write
                            : write && unordered(&s->read, party, b) ? &s->read
                                                                     : NULL;
        if (past)
            fault("race in %s memory: %s byte %zu of buffer %d that party %d %s since the last barrier",
                  buffer < 0 ? "threadgroup" : "device", write ? "writes" : "reads", i, buffer, past->party,
                  past == &s->write ? "wrote" : "read");
        if (write)
            s->write = touch_of(party, b);
        else
            note_read(&s->read, party, b);
    }
}

static void access_buffer(int b, size_t at, size_t bytes, int write, uint16_t party)
{
    const uint32_t me = (uint32_t)S.group_number + 1;
    for (size_t i = at; i < at + bytes; i++) {
        shadow *s = &S.device[b][i];
        if ((s->writer && s->writer != me) || (write && s->reader && s->reader != me))
            fault("race in device memory: %s byte %zu of buffer %d, %s by another group", write ? "writes" : "reads", i,
                  b, s->writer && s->writer != me ? "written" : "read");
        if (s->writer != me) s->write = (touch){0};
        if (s->reader != me) s->read = (touch){0};
        if (write)
            s->writer = me;
        else
            s->reader = s->reader && s->reader != me ? MANY_GROUPS : me;
    }
    access_bytes(S.device[b], b, at, bytes, write, party, &S.device_barriers);
}

static void on_access(const void *pointer, size_t bytes, int write, uint16_t party)
{
    const uint8_t *p = pointer, *stack = S.fibers[S.current].stack;
    if (!S.launch) return; /* the object is being loaded: its constants are computed */
    if (p >= stack && p < stack + STACK_BYTES) return;
    if (p >= __start_shim_shared && p + bytes <= __stop_shim_shared) {
        access_bytes(S.shared, -1, (size_t)(p - __start_shim_shared), bytes, write, party, &S.shared_barriers);
        return;
    }
    for (int b = 0; b < SHIM_MAX_BUFFERS; b++) {
        const shim_buffer *buffer = &S.launch->buffers[b];
        const uint8_t *base = buffer->base;
        if (!base || p < base || p + bytes > base + buffer->bytes) continue;
        access_buffer(b, (size_t)(p - base), bytes, write, party);
        return;
    }
    if (p >= __ehdr_start && p < _end && !write) return;
    fault("%s %zu bytes outside every buffer", write ? "writes" : "reads", bytes);
    S.stopped = 1; /* the access would follow: this fiber never goes on, nor does the launch */
    S.fibers[S.current].state = DONE;
    yield();
}

void shim_subgroup_access(const void *at, size_t bytes, int write)
{
    on_access(at, bytes, write, (uint16_t)(MAX_THREADS + 1 + S.current / SHIM_LANES));
}

/* What code compiled with -fsanitize=thread calls. */
static void by_thread(const void *at, size_t bytes, int write)
{
    on_access(at, bytes, write, (uint16_t)(S.current + 1));
}
#define TSAN(name, bytes, write)                                                                                       \
    void __tsan_##name(const void *at);                                                                                \
    void __tsan_##name(const void *at)                                                                                 \
    {                                                                                                                  \
        by_thread(at, bytes, write);                                                                                   \
    }
#define TSAN_BOTH(n)                                                                                                   \
    TSAN(read##n, n, 0) TSAN(write##n, n, 1) TSAN(unaligned_read##n, n, 0) TSAN(unaligned_write##n, n, 1)
TSAN_BOTH(1)
TSAN_BOTH(2)
TSAN_BOTH(4)
TSAN_BOTH(8)
TSAN_BOTH(16)
void __tsan_init(void);
void __tsan_init(void) {}
void __tsan_func_entry(void *pc);
void __tsan_func_entry(void *pc)
{
    (void)pc;
}
void __tsan_func_exit(void);
void __tsan_func_exit(void) {}
void __tsan_read_range(const void *at, size_t bytes);
void __tsan_read_range(const void *at, size_t bytes)
{
    by_thread(at, bytes, 0);
}
void __tsan_write_range(const void *at, size_t bytes);
void __tsan_write_range(const void *at, size_t bytes)
{
    by_thread(at, bytes, 1);
}
void *__tsan_memset(void *at, int c, size_t bytes);
void *__tsan_memset(void *at, int c, size_t bytes)
{
    return by_thread(at, bytes, 1), memset(at, c, bytes);
}
void *__tsan_memcpy(void *to, const void *from, size_t bytes);
void *__tsan_memcpy(void *to, const void *from, size_t bytes)
{
    by_thread(from, bytes, 0);
    by_thread(to, bytes, 1);
    return memcpy(to, from, bytes);
}

/* ---- groups ---------------------------------------------------------------------------------------------------- */

static const char *where(int t)
{
    const fiber *f = &S.fibers[t];
    return f->state == AT_BARRIER ? "threadgroup_barrier" : f->state == DONE ? "the end" : f->what;
}

static void run_group(void)
{
    const int threads = (int)S.launch->threads;
    const size_t shared = (size_t)(__stop_shim_shared - __start_shim_shared);
    if (shared > SHARED_MAX) abort();
    for (size_t i = 0; i + 4 <= shared; i += 4) memcpy(__start_shim_shared + i, &(uint32_t){0x7fc0dead}, 4);
    memset(S.shared, 0, shared * sizeof *S.shared);
    memset(S.met, 0, sizeof S.met);
    S.at_barrier = S.n_ready = 0;
    memset(&S.shared_barriers, 0, sizeof S.shared_barriers);
    pass(&S.shared_barriers, MAX_THREADS);
    S.device_barriers = S.shared_barriers;
    for (int t = 0; t < threads; t++) fiber_begin(t);

    while (S.n_ready && !S.stopped) {
        int pick = (int)draw((uint32_t)S.n_ready);
        S.current = S.ready[pick];
        S.ready[pick] = S.ready[--S.n_ready];
        shim_switch(&S.scheduler_sp, S.fibers[S.current].sp);
    }
    for (int t = 0; t < threads && !S.stopped; t++) {
        if (S.fibers[t].state == DONE) continue;
        int other = 0;
        while (other + 1 < threads && !strcmp(where(other), where(t))) other++;
        S.current = t;
        fault("stuck at %s, while thread %d is at %s", where(t), other, where(other));
        return;
    }
}

void shim_run(shim_kernel kernel, const shim_launch *l, shim_report *out)
{
    *out = (shim_report){0};
    S.launch = l, S.report = out, S.kernel = kernel, S.random = l->seed * 2 + 1;
    S.current = 0, S.group_number = 0, S.stopped = 0;
    memset(S.group, 0, sizeof S.group);
    long n = (long)l->groups[0] * l->groups[1] * l->groups[2];
    uint32_t *order = malloc((size_t)n * sizeof *order);
    if (!order || l->threads > MAX_THREADS) abort();
    for (long i = 0; i < n; i++) { /* a shuffle from inside out */
        uint32_t j = draw((uint32_t)i + 1);
        order[i] = order[j], order[j] = (uint32_t)i;
    }
    for (int i = 0; i < 64; i++) {
        uint32_t j = draw((uint32_t)i + 1);
        S.place[i] = S.place[j], S.place[j] = (uint8_t)i;
    }
    for (int b = 0; b < SHIM_MAX_BUFFERS; b++)
        S.device[b] = l->buffers[b].bytes ? calloc(l->buffers[b].bytes, sizeof(shadow)) : NULL;

#if defined(__x86_64__) /* Apple's GPUs flush f32 subnormals, on the way in and out */
    const unsigned mxcsr = _mm_getcsr();
    _mm_setcsr(mxcsr | 0x8040u);
#endif
    for (long i = 0; i < n && !S.stopped; i++) {
        S.group_number = order[i];
        S.group[0] = order[i] % l->groups[0];
        S.group[1] = order[i] / l->groups[0] % l->groups[1];
        S.group[2] = order[i] / l->groups[0] / l->groups[1];
        run_group();
    }
#if defined(__x86_64__)
    _mm_setcsr(mxcsr);
#endif
    for (int b = 0; b < SHIM_MAX_BUFFERS; b++) free(S.device[b]);
    free(order);
}
