/* base.h: what every file uses: status codes, error messages, AN_TRY, small macros.
 *
 * Owns:      the error record and how a sentence gets into it.
 * Does not:  know tensors, devices, or print anything. The library never prints, exits or aborts.
 *
 * A function that can fail returns an_status and takes an `an_err *` first. The sentence says what, where, and what to
 * do:
 *     return an_fail(err, AN_E_IO, "%s: byte %zu: not JSON; the file is damaged, load an older one", path, at);
 */
#ifndef AN_BASE_BASE_H
#define AN_BASE_BASE_H

#define AN_NO_PLACE_MACROS /* an_exp is base/exact.h's function here, not the public header's macro */
#include <anneal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct an_err {
    an_status code;
    char text[1024]; /* one sentence, no newline at its end */
} an_err;

/* Records `code` and the formatted sentence in `err` (which may be NULL) and returns `code`. The first sentence wins:
 * a record that already holds a failure keeps it, so that the cause is not covered by its consequences. */
an_status an_fail(an_err *err, an_status code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The sentence for a failed allocation of `bytes` for `what`; returns AN_E_NOMEM. */
an_status an_fail_nomem(an_err *err, const char *what, size_t bytes);

void an_err_clear(an_err *err);

/* Makes room for one more element in a malloc'ed array that holds n of `cap`; doubles it when it is full. New elements are
 * zero. False: out of memory, and the array is as it was. */
bool an_grow(void **array, int32_t n, int32_t *cap, size_t bytes);

#define AN_TRY(call)                                                                                                   \
    do {                                                                                                               \
        an_status an_try_status_ = (call);                                                                             \
        if (an_try_status_ != AN_OK) return an_try_status_;                                                            \
    } while (0)

#define AN_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define AN_MIN(a, b)    ((a) < (b) ? (a) : (b))
#define AN_MAX(a, b)    ((a) > (b) ? (a) : (b))

static inline int64_t an_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
static inline int64_t an_round_up(int64_t a, int64_t b)
{
    return an_ceil_div(a, b) * b;
}

#endif
