/* alloc.c: refusing allocations. The linker turns every call of malloc in our objects into __wrap_malloc (mk/test.mk);
 * third-party shared libraries are not touched. */
#include "lib/test.h"

#include <stdatomic.h>
#include <stdlib.h>

static atomic_long tried, refused_one;

void test_refuse_allocation(long n)
{
    atomic_store(&tried, 0);
    atomic_store(&refused_one, n);
}

long test_allocations(void)
{
    return atomic_load(&tried);
}

#ifndef __APPLE__
static bool refuse(void)
{
    long n = atomic_fetch_add(&tried, 1) + 1;
    return n == atomic_load(&refused_one);
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
int __real_posix_memalign(void **out, size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    return refuse() ? NULL : __real_malloc(bytes);
}
void *__wrap_calloc(size_t n, size_t bytes)
{
    return refuse() ? NULL : __real_calloc(n, bytes);
}
void *__wrap_realloc(void *p, size_t bytes)
{
    return refuse() ? NULL : __real_realloc(p, bytes);
}
void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return refuse() ? NULL : __real_aligned_alloc(alignment, bytes);
}
int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes)
{
    enum { OUT_OF_MEMORY = 12 }; /* ENOMEM, which posix_memalign returns and does not set */
    return refuse() ? OUT_OF_MEMORY : __real_posix_memalign(out, alignment, bytes);
}
#endif

void test_refuse_each_allocation(an_status (*attempt)(an_err *err, void *arg), void *arg)
{
#ifdef __APPLE__
    (void)attempt, (void)arg;
    test_skip("this system's linker cannot wrap malloc");
#else
    for (long n = 1;; n++) {
        an_err err = {0};
        test_refuse_allocation(n);
        an_status status = attempt(&err, arg);
        bool reached = test_allocations() >= n;
        test_refuse_allocation(0);
        if (!reached) {
            if (status != AN_OK) fail_msg("no allocation was refused, yet: %s", err.text);
            if (n == 1) fail_msg("nothing allocates here");
            return;
        }
        if (status != AN_E_NOMEM || !err.text[0])
            fail_msg("allocation %ld refused: status %d, \"%s\"", n, status, err.text);
    }
#endif
}
