/* float_mode.h: the floating point mode that kernels run in: rounding to nearest and, in exact mode, subnormals (denormals) flushed
 * to zero, FTZ and DAZ, as on GPUs. The calling program's own mode is restored afterwards.
 *
 * A thread inherits the mode of the thread that starts it (C17 7.6, POSIX), so the pool is opened in the kernels' mode. */
#ifndef AN_DEVICE_CPU_FLOAT_MODE_H
#define AN_DEVICE_CPU_FLOAT_MODE_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
static inline uint64_t an_float_mode_set(bool flush)
{
    const unsigned before = _mm_getcsr();
    _mm_setcsr(flush ? 0x9fc0u : 0x1f80u); /* all exceptions masked; flush results (15), operands are zeros (6) */
    return before;
}
static inline void an_float_mode_restore(uint64_t before)
{
    _mm_setcsr((unsigned)before);
}
#elif defined(__aarch64__)
static inline void an_float_mode_restore(uint64_t mode)
{
    __asm__ volatile("msr fpcr, %0" ::"r"(mode));
}
static inline uint64_t an_float_mode_set(bool flush)
{
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    an_float_mode_restore(flush ? (uint64_t)1 << 24 : 0); /* FZ: of f32 and f64, operands and results */
    return before;
}
#else
static inline uint64_t an_float_mode_set(bool flush)
{
    return flush; /* no such mode is known here: exact mode is refused when a device is opened */
}
static inline void an_float_mode_restore(uint64_t before)
{
    (void)before;
}
#define AN_NO_FLOAT_MODE 1
#endif

#endif
