/* shim.h: runs MSL kernels on the CPU with strict checks: the functions of the runtime (shim.c) that msl/metal_stdlib and
 * the tests call.
 *
 * The threads of a threadgroup are fibers that run one at a time. Which one runs next is random, from a seed, as are the
 * order of the threadgroups and the lane that holds an element of a simdgroup_matrix. Every load and store of the kernel
 * is checked against what Metal guarantees (the kernel is compiled with -fsanitize=thread, and the runtime implements
 * that library's functions):
 *     - it is within one of the launch's buffers, threadgroup memory, the thread's own stack or the program's constants;
 *       otherwise the launch ends before the access;
 *     - in threadgroup memory, two threads' accesses, one of them a write, are separated by a barrier that both passed
 *       (simdgroup_barrier only separates threads of one simdgroup);
 *     - in device memory the same, with barriers that name it (mem_device). Nothing orders accesses of different
 *       threadgroups, so none may touch what another one writes in the same launch.
 * Threadgroup memory starts as signalling garbage. A barrier or a simdgroup function that some threads never reach is
 * reported. */
#ifndef AN_SHIM_H
#define AN_SHIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SHIM_LANES = 32, SHIM_MAX_BUFFERS = 32 };

typedef struct shim_buffer {
    void *base;
    size_t bytes;
} shim_buffer;

typedef struct shim_launch {
    unsigned groups[3];
    unsigned threads;                      /* of a group, all axes together */
    shim_buffer buffers[SHIM_MAX_BUFFERS]; /* by Metal's buffer number */
    uint64_t seed;
    unsigned axis[3]; /* threads of a group along x, y and z; 0,0,0: all along x */
} shim_launch;

typedef struct shim_report {
    long faults;     /* of any sort; 0 is what a test wants */
    long switches;   /* between fibers: shows that something ran */
    char first[256]; /* the first fault, as a sentence */
} shim_report;

/* Runs `kernel` for every thread of the launch. A kernel's object exports it as shim_NAME, a shim_entry (SHIM_EXPORT in
 * msl/metal_stdlib). */
typedef void (*shim_kernel)(const shim_launch *l);
typedef void (*shim_entry)(const shim_launch *l, shim_report *out);
void shim_run(shim_kernel kernel, const shim_launch *l, shim_report *out);

/* ---- what a running thread is, and what it may do */
unsigned shim_group(int axis);
unsigned shim_thread(void);
unsigned shim_axis(int axis);                   /* threads of a group along it */
unsigned shim_groups(int axis);                 /* groups of the launch along it */
enum { SHIM_DEVICE = 1, SHIM_THREADGROUP = 2 }; /* memories that a barrier orders */
void shim_group_barrier(int memories);
void shim_subgroup_barrier(int memories);
/* Waits until all 32 lanes of the subgroup have called this with the same `what`; the last one calls act on the `mine` of
 * every lane. */
void shim_meet(const char *what, void *mine, void (*act)(void *const mine[SHIM_LANES]));
/* A memory access of a subgroup as a whole, of which no lane in particular makes it. */
void shim_subgroup_access(const void *at, size_t bytes, int write);
/* Place 0..63 (row * 8 + column) of element e of lane's part of an 8 x 8 matrix. */
int shim_matrix_place(int lane, int e);

#ifdef __cplusplus
}
#endif
#endif
