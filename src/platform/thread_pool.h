/* thread_pool.h: the thread pool. Work is split by chunks of the problem, never by the number of threads, so that
 * results do not depend on it; the pool only decides who runs which chunk. Workers spin briefly, then sleep on a
 * condition. */
#ifndef AN_PLATFORM_THREAD_POOL_H
#define AN_PLATFORM_THREAD_POOL_H

#include "base/base.h"

typedef struct an_pool an_pool;

/* `threads` counts the caller: 1 starts no thread. 0 means the cores this process may use (affinity, cgroup quota). */
an_status an_pool_open(an_err *err, int threads, an_pool **out);
void an_pool_close(an_pool *p);
int an_pool_threads(const an_pool *p); /* p may be NULL: 1 */

/* Runs fn(arg, task, thread) for every task in [0, n_tasks), dynamically scheduled, and returns when all are done.
 * `thread` is in [0, an_pool_threads(p)), 0 is the caller: index per-thread scratch with it. Not reentrant.
 * p may be NULL: everything runs in the caller, as it does in a process forked from the one that opened the pool. */
typedef void (*an_pool_fn)(void *arg, int64_t task, int thread);
void an_pool_run(an_pool *p, int64_t n_tasks, an_pool_fn fn, void *arg);

/* At most so many threads take part in the runs that follow; the others sleep. More threads than cores only take cores from
 * one another: a thread that has to wait for its core holds up the run. Not during a run. */
void an_pool_limit(an_pool *p, int most);
int an_pool_working(const an_pool *p); /* how many take part now */

int an_cores_available(void); /* affinity mask and cgroup v1/v2 CPU quota, rounded up; at least 1 */

#endif
