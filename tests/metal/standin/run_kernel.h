/* run_kernel.h: put behind a kernel's prepared text: makes it callable by the stand-in (msl.c) through tests/shim. The
 * text defines STANDIN_KERNEL, STANDIN_CALL (its arguments, in terms of the words below), STANDIN_PRESENT, and STANDIN_LEAST
 * or STANDIN_GENERIC. */
struct standin_launch { /* msl_launch */
    unsigned groups[3], threads[3];
    void *argument[64], *range[64];
    unsigned long long range_bytes[64];
    int n_ranges;
    unsigned long long seed;
};
struct standin_report { /* msl_report */
    long faults;
    char first[256];
};

static const standin_launch *standin_now;
#ifdef STANDIN_GENERIC /* a template's threadgroup variables: room is found as the object is loaded */
enum { STANDIN_ROOM = 48 << 10 };
AN_SHARED_STORAGE uchar standin_room[STANDIN_ROOM] __attribute__((aligned(64), used));
static unsigned standin_room_used;
SHIM_UNSEEN static void *standin_take(unsigned bytes, unsigned alignment)
{
    standin_room_used = (standin_room_used + alignment - 1) / alignment * alignment + bytes;
    return standin_room_used <= STANDIN_ROOM ? standin_room + standin_room_used - bytes : standin_room;
}
#else
static void *standin_take(unsigned, unsigned)
{
    return nullptr;
}
#endif
AN_SHARED_STORAGE uchar standin_group_bytes[STANDIN_GROUP_BYTES + 64] __attribute__((aligned(64), used));

struct standin_pointer { /* becomes what the parameter is */
    void *p;
    template <class T> SHIM_UNSEEN operator T *() const { return static_cast<T *>(p); }
};
struct standin_reference {
    void *p;
    template <class T> SHIM_UNSEEN operator T &() const { return *static_cast<T *>(p); }
};
SHIM_UNSEEN static standin_pointer standin_p(int i)
{
    return standin_pointer{standin_now->argument[i]};
}
SHIM_UNSEEN static standin_reference standin_r(int i)
{
    return standin_reference{standin_now->argument[i]};
}
/* Threadgroup memory that setThreadgroupMemoryLength gives: `argument` holds its length. */
SHIM_UNSEEN static standin_pointer standin_t(int i)
{
    unsigned long long at = 0;
    static const int threadgroup_arguments[] = {STANDIN_GROUP_ARGUMENTS - 1};
    for (int a : threadgroup_arguments)
        if (a >= 0 && a < i) at += (unsigned long long)standin_now->argument[a];
    return standin_pointer{standin_group_bytes + at};
}

enum standin_word {
    thread_position_in_grid,
    thread_position_in_threadgroup,
    threadgroup_position_in_grid,
    threads_per_threadgroup,
    dispatch_threads_per_threadgroup,
    threads_per_grid,
    threadgroups_per_grid,
    thread_index_in_threadgroup,
    thread_index_in_simdgroup,
    simdgroup_index_in_threadgroup,
    simdgroups_per_threadgroup,
    threads_per_simdgroup,
    thread_execution_width
};
SHIM_UNSEEN static unsigned standin_v(standin_word word, int axis)
{
    const unsigned *n = standin_now->threads, t = shim_thread();
    const unsigned in_group = axis == 0 ? t % n[0] : axis == 1 ? t / n[0] % n[1] : t / n[0] / n[1];
    switch (word) {
    case thread_position_in_grid: return shim_group(axis) * n[axis] + in_group;
    case thread_position_in_threadgroup: return in_group;
    case threadgroup_position_in_grid: return shim_group(axis);
    case threads_per_threadgroup:
    case dispatch_threads_per_threadgroup: return n[axis];
    case threads_per_grid: return n[axis] * standin_now->groups[axis];
    case threadgroups_per_grid: return standin_now->groups[axis];
    case thread_index_in_threadgroup: return t;
    case thread_index_in_simdgroup: return t % SHIM_LANES;
    case simdgroup_index_in_threadgroup: return t / SHIM_LANES;
    case simdgroups_per_threadgroup: return (n[0] * n[1] * n[2] + SHIM_LANES - 1) / SHIM_LANES;
    case threads_per_simdgroup:
    case thread_execution_width: return SHIM_LANES;
    }
    return 0;
}

SHIM_UNSEEN static void standin_thread(const shim_launch *)
{
    STANDIN_KERNEL STANDIN_CALL;
}
extern "C" SHIM_UNSEEN void standin_run(const standin_launch *l, standin_report *out)
{
    shim_launch s = {};
    shim_report r = {};
    for (int a = 0; a < 3; a++) s.groups[a] = l->groups[a];
    s.threads = l->threads[0] * l->threads[1] * l->threads[2];
    s.seed = l->seed;
    for (int i = 0; i < l->n_ranges && i < SHIM_MAX_BUFFERS; i++) {
        s.buffers[i].base = l->range[i];
        s.buffers[i].bytes = l->range_bytes[i];
    }
    standin_now = l;
    shim_run(standin_thread, &s, &r);
    out->faults = r.faults;
    __builtin_memcpy(out->first, r.first, sizeof out->first);
}
extern "C" __attribute__((visibility("hidden"))) unsigned char __start_shim_shared[];
extern "C" __attribute__((visibility("hidden"))) unsigned char __stop_shim_shared[];
extern "C" SHIM_UNSEEN unsigned long long standin_group_memory()
{
    unsigned long long all =
        (unsigned long long)(__stop_shim_shared - __start_shim_shared) - sizeof standin_group_bytes;
#ifdef STANDIN_GENERIC
    all = all - sizeof standin_room + standin_room_used;
#endif
    return all;
}
extern "C" const bool standin_present[] = {STANDIN_PRESENT true};
#ifndef STANDIN_GENERIC
extern "C" const unsigned long long standin_least[] = {STANDIN_LEAST 0};
#else /* the sizes behind a template's parameters */
extern "C" unsigned long long standin_least[64];
unsigned long long standin_least[64];
template <class P> struct standin_size {
    enum { argument = 0, least = 0 };
};
template <class T> struct standin_size<T *> {
    enum { argument = 1, least = 1 };
};
template <class T> struct standin_size<T &> {
    enum { argument = 1, least = sizeof(T) };
};
template <class... P> static int standin_sizes(void (*)(P...))
{
    int n = 0;
    ((standin_size<P>::argument ? void(standin_least[n++] = standin_size<P>::least) : void()), ...);
    return n;
}
static const int standin_measured = standin_sizes(&STANDIN_KERNEL);
#endif
