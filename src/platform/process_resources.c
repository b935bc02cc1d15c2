/* process_resources.c: page allocation, and the memory and cores that this process may use and has used.
 *
 * Owns:      the time that a thread waited for a core; the reading of cgroup limits (v1 and v2: CPU quota, memory) and of the affinity
 *            mask. In a container the cgroup limit counts, not the size of the machine.
 * Does not:  cache anything: limits may change while the process runs. */
#if !defined(_GNU_SOURCE) && defined(__linux__)
#define _GNU_SOURCE
#endif
#if !defined(_DARWIN_C_SOURCE) && defined(__APPLE__)
#define _DARWIN_C_SOURCE
#endif
#include "platform/platform.h"
#include "platform/thread_pool.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#ifdef __linux__
#include <malloc.h>
#include <sched.h>
#elif defined(__APPLE__)
#include <mach/mach.h>
#include <malloc/malloc.h>
#include <sys/sysctl.h>
#endif

#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif

/* ---- pages ---- */

enum { HUGE_BYTES = 2 << 20 };

static size_t round_to_pages(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return AN_MAX((bytes + page - 1) / page * page, page);
}

void *an_pages_alloc(size_t bytes)
{
    if (bytes > SIZE_MAX / 2) return NULL;
    size_t size = round_to_pages(bytes), extra = size >= HUGE_BYTES ? HUGE_BYTES : 0;
    char *p = mmap(NULL, size + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if (extra == 0) return p;
    /* Unmap both ends, so that the remaining range starts at a multiple of a huge page. */
    size_t before = (HUGE_BYTES - (uintptr_t)p % HUGE_BYTES) % HUGE_BYTES, after = extra - before;
    if (before != 0) munmap(p, before);
    if (after != 0) munmap(p + before + size, after);
    p += before;
#ifdef MADV_HUGEPAGE
    madvise(p, size, MADV_HUGEPAGE); /* a wish: where it is refused, small pages work as well */
#endif
    return p;
}

void an_pages_free(void *p, size_t bytes)
{
    if (p != NULL) munmap(p, round_to_pages(bytes));
}

/* ---- limits ---- */

#ifdef __linux__
/* The first line of a small file of the kernel's, without its newline. */
static bool read_line(const char *path, char *line, size_t cap)
{
    FILE *f = fopen(path, "re");
    if (f == NULL) return false;
    bool ok = fgets(line, (int)cap, f) != NULL;
    fclose(f);
    if (ok) line[strcspn(line, "\n")] = '\0';
    return ok;
}

/* A limit of one cgroup folder, +infinity where there is none. */
typedef double (*limit_fn)(const char *folder);

static double read_number(const char *folder, const char *file)
{
    char path[1200], line[64], *end;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    if (!read_line(path, line, sizeof line)) return INFINITY;
    double v = strtod(line, &end);
    return end == line || v < 0 ? INFINITY : v; /* "max" in v2, -1 in v1 */
}

static double memory_v1(const char *folder)
{
    return read_number(folder, "memory.limit_in_bytes");
}
static double memory_v2(const char *folder)
{
    return read_number(folder, "memory.max");
}
static double cores_v1(const char *folder)
{
    return read_number(folder, "cpu.cfs_quota_us") / fmin(read_number(folder, "cpu.cfs_period_us"), 1e9);
}
static double cores_v2(const char *folder)
{
    char path[1200], line[64];
    double quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (!read_line(path, line, sizeof line) || sscanf(line, "%lf %lf", &quota, &period) != 2 || !(period > 0))
        return INFINITY;
    return quota / period;
}

/* The lowest limit from our own group up to the root. Inside a container the path may not exist: then the folders above
 * it, at last the mount point, are what the container shows as its own. */
static double lowest_on_path(const char *mount, const char *group, limit_fn limit)
{
    char folder[1100];
    snprintf(folder, sizeof folder, "%s%s", mount, group);
    double lowest = INFINITY;
    for (;;) {
        lowest = fmin(lowest, limit(folder));
        char *slash = strrchr(folder, '/');
        if (strlen(folder) <= strlen(mount) || slash == NULL) return lowest;
        *slash = '\0';
    }
}

static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; (p = strstr(p, word)) != NULL; p += n)
        if ((p == list || p[-1] == ',') && (p[n] == ',' || p[n] == '\0')) return true;
    return false;
}

/* Lines of /proc/self/cgroup are "id:controllers:path"; v2 has id 0 and no controllers. */
static double cgroup_limit(const char *controller, limit_fn v1, limit_fn v2)
{
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (f == NULL) return INFINITY;
    double lowest = INFINITY;
    char line[1000], mount[256];
    while (fgets(line, sizeof line, f) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL) continue;
        *group++ = '\0';
        controllers++;
        if (*controllers == '\0') {
            lowest = fmin(lowest, lowest_on_path("/sys/fs/cgroup", group, v2));
        } else if (has_word(controllers, controller)) {
            snprintf(mount, sizeof mount, "/sys/fs/cgroup/%s", controller);
            lowest = fmin(lowest, lowest_on_path(mount, group, v1));
        }
    }
    fclose(f);
    return lowest;
}

static int cores_by_affinity(void)
{
    for (int max = 1024; max <= 1 << 16; max *= 2) { /* the kernel says EINVAL while the set is too small */
        cpu_set_t *set = CPU_ALLOC((size_t)max);
        if (set == NULL) break;
        size_t bytes = CPU_ALLOC_SIZE((size_t)max);
        int n = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (n > 0) return n;
    }
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* A field "NAME:   123 kB" of /proc/self/status in bytes, 0 when absent. */
static uint64_t status_bytes(const char *name)
{
    FILE *f = fopen("/proc/self/status", "re");
    if (f == NULL) return 0;
    char line[256];
    unsigned long long kib = 0;
    while (fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, name, strlen(name)) == 0 && sscanf(line + strlen(name), ": %llu", &kib) == 1) break;
    fclose(f);
    return kib * 1024;
}

int an_cores_available(void)
{
    double cores = fmin(cores_by_affinity(), ceil(cgroup_limit("cpu", cores_v1, cores_v2)));
    return cores > 1 ? (int)cores : 1;
}

uint64_t an_memory_bytes(void)
{
    double ram = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    return (uint64_t)fmin(ram, cgroup_limit("memory", memory_v1, memory_v2));
}

uint64_t an_cgroup_limits(double *cores)
{
    double n = cgroup_limit("cpu", cores_v1, cores_v2), bytes = cgroup_limit("memory", memory_v1, memory_v2);
    *cores = isfinite(n) ? n : 0;
    /* v1 says "none" by the largest multiple of a page. */
    return bytes < 0x1p62 ? (uint64_t)bytes : 0;
}

uint64_t an_rss_bytes(void)
{
    return status_bytes("VmRSS");
}

/* Not getrusage: its maximum is inherited from the process that started us. */
uint64_t an_peak_rss_bytes(void)
{
    return status_bytes("VmHWM");
}

void an_rss_parts(uint64_t *heap, uint64_t *mapped)
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
    const struct mallinfo2 m = mallinfo2();
    *heap = m.uordblks + m.hblkhd;
#else
    *heap = 0;
#endif
    *mapped = status_bytes("RssFile") + status_bytes("RssShmem");
}

/* Nanoseconds on a processor, nanoseconds in the queue for one, and how often it ran. Read while training: without a buffer of stdio's. */
double an_cpu_wait_seconds(void)
{
    char line[96];
    unsigned long long ran, waited;
    const int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return NAN;
    const ssize_t n = read(fd, line, sizeof line - 1);
    close(fd);
    line[n > 0 ? n : 0] = 0;
    return sscanf(line, "%llu %llu", &ran, &waited) == 2 && ran > 0 ? 1e-9 * (double)waited
                                                                    : NAN; /* zeros: it keeps no account */
}

#elif defined(__APPLE__)

double an_cpu_wait_seconds(void)
{
    return NAN;
}

int an_cores_available(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 1 ? (int)n : 1;
}

uint64_t an_memory_bytes(void)
{
    uint64_t bytes = 0;
    size_t size = sizeof bytes;
    return sysctlbyname("hw.memsize", &bytes, &size, NULL, 0) == 0 ? bytes : 0;
}

uint64_t an_cgroup_limits(double *cores)
{
    *cores = 0; /* there are none */
    return 0;
}

uint64_t an_rss_bytes(void)
{
    mach_task_basic_info_data_t info;
    mach_msg_type_number_t n = MACH_TASK_BASIC_INFO_COUNT;
    if (task_info(mach_task_self(), MACH_TASK_BASIC_INFO, (task_info_t)&info, &n) != KERN_SUCCESS) return 0;
    return info.resident_size;
}

uint64_t an_peak_rss_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss : 0; /* bytes here, KiB elsewhere */
}

void an_rss_parts(uint64_t *heap, uint64_t *mapped)
{
    malloc_statistics_t zones;
    task_vm_info_data_t info;
    mach_msg_type_number_t n = TASK_VM_INFO_COUNT;
    malloc_zone_statistics(NULL, &zones);
    *heap = zones.size_in_use;
    *mapped = task_info(mach_task_self(), TASK_VM_INFO, (task_info_t)&info, &n) == KERN_SUCCESS ? info.external : 0;
}
#endif
