/* test.h: what several test programs need. #include "lib/test.h" brings cmocka and its prerequisites.
 *
 * Owns:     refusing allocations, temporary folders, reading goldens, comparing arrays.
 * Does not: know tensors or plans. Every helper ends the running test with a sentence when it cannot do its part. */
#ifndef AN_TEST_H
#define AN_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "io/formats/safetensors.h"
#include "lib/skip.h"

/* ---- failing allocations: malloc, calloc, realloc, aligned_alloc and posix_memalign called from our own objects. */

/* The nth allocation from now is refused, once; 0: none. Counting starts again. */
void test_refuse_allocation(long n);
long test_allocations(void); /* tried since test_refuse_allocation */

/* Runs `attempt` with its first allocation refused, then with its second, and so on until it has no more. Each refusal
 * must give AN_E_NOMEM and a sentence in `err`; the last run, AN_OK. `attempt` frees what it made, on failure too (run
 * under ASan, that is checked). Skips by name where the linker cannot wrap malloc (macOS). */
void test_refuse_each_allocation(an_status (*attempt)(an_err *err, void *arg), void *arg);

/* ---- temporary files: a folder of this program's own, removed with all that is in it at exit. */

const char *test_folder(void);
/* FOLDER/name in static storage: valid until the next call but seven. */
const char *test_path(const char *name);
void test_write_file(const char *path, const void *data, size_t bytes);

/* ---- goldens: files of tests/torch. */

typedef struct test_golden {
    an_st *file;
    const char *name; /* for messages */
} test_golden;

test_golden test_golden_open(const char *name); /* "gpt_c32": tests/torch/gpt_c32.safetensors */
void test_golden_close(test_golden *g);
/* Tensor `name` as doubles, whatever its dtype; *n elements; free() it. */
double *test_golden_read(const test_golden *g, const char *name, size_t *n);
double test_golden_number(const test_golden *g, const char *key); /* a number in the metadata's `about` */

/* ---- comparing: |got - want| <= abs_tol + rel_tol * |want| for every element; NaN equals nothing. `what` names the
 * array. */

void test_close(const char *what, const float *got, const double *want, size_t n, double rel_tol, double abs_tol);
void test_close_f64(const char *what, const double *got, const double *want, size_t n, double rel_tol, double abs_tol);

#endif
