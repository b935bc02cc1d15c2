/* peak_flops.c: the measured peak of this GPU: the fastest of some large GEMMs by cuBLASLt, in GFLOP/s (an_fma_peak), of which
 * '% of peak' is a share. Its twin on the CPU: kernels/cpu/peak_flops.c.
 *
 * Owns:      the operands of a measurement, which are freed before it returns.
 * Does not:  fail: a figure that cannot be measured is 0, "unknown".
 */
#include "base/exact.h"
#include "device/cuda/cuda_internal.h"

#include <stdlib.h>

/* ---------------------------------------------------------------------------------------------- GEMMs */

enum { ROWS = 4096, DEPTH = 8192, REPEATS = 8, DISTINCT = 1 << 18 };

typedef struct peak {
    an_gemm_spec spec; /* C[ROWS,ROWS] = A[ROWS,DEPTH] B[DEPTH,ROWS]; A and B are the same memory */
    an_gemm_plan gemm;
    an_gemm_ready ready;
    cu_pointer at[4], workspace;
    cu_event begin, end;
} peak;

/* Numbers in [-1, 1): a GPU is faster with zeros. The first part is written, the rest is copied from it. */
static bool fill_operand(an_device *d, cu_pointer p, size_t bytes, an_dtype dtype)
{
    const size_t item = an_dtype_bytes(dtype), part = DISTINCT * item;
    an_err quiet = {0};
    char *x = malloc(part);
    uint64_t state = 1;
    for (size_t i = 0; x && i < DISTINCT; i++) { /* Knuth's MMIX generator */
        state = state * 6364136223846793005u + 1442695040888963407u;
        const float v = (float)(int32_t)(state >> 32) * 0x1p-31f;
        const uint16_t half = (uint16_t)(dtype == AN_BF16 ? an_f32_to_bf16(v) : an_f32_to_f16(v));
        if (dtype == AN_F32)
            ((float *)(void *)x)[i] = v;
        else
            ((uint16_t *)(void *)x)[i] = half;
    }
    an_buffer b = {.handle = p, .bytes = bytes};
    bool good = x && an_cuda_write(&quiet, d, &b, 0, x, part) == AN_OK;
    for (size_t at = part; good && at < bytes; at += part)
        good = !d->cu.copy(p + at, p, AN_MIN(part, bytes - at), d->stream);
    free(x);
    return good;
}

static bool make(an_device *d, an_dtype dtype, peak *p)
{
    const size_t item = an_dtype_bytes(dtype), operand = (size_t)ROWS * DEPTH * item;
    an_err quiet = {0};
    p->spec = (an_gemm_spec){.m = ROWS,
                             .n = ROWS,
                             .k = DEPTH,
                             .nb = {1, 1, 1},
                             .a_m = DEPTH,
                             .a_k = 1,
                             .b_k = ROWS,
                             .b_n = 1,
                             .c_m = ROWS,
                             .a_dtype = (uint8_t)dtype,
                             .b_dtype = (uint8_t)dtype,
                             .c_dtype = (uint8_t)dtype,
                             .mul_dtype = (uint8_t)dtype};
    if (!an_cuda_gemm_plan(d, &p->spec, NULL, &p->gemm)) return false;
    if (d->cu.event_new(&p->begin, 0) || d->cu.event_new(&p->end, 0)) return false;
    if (d->cu.memory_new(&p->at[0], operand) || d->cu.memory_new(&p->at[2], (size_t)ROWS * ROWS * item) ||
        d->cu.memory_new(&p->workspace, (size_t)AN_MAX(p->gemm.scratch_bytes, 256)))
        return false;
    p->at[3] = p->at[2];
    p->at[1] = p->at[0]; /* not transposed, even where a step would: the numbers do not matter */
    return fill_operand(d, p->at[0], operand, dtype) &&
           an_gemm_prepare(&quiet, d, &p->spec, &p->gemm, p->at, &p->ready) == AN_OK;
}

/* Seconds of one GEMM, averaged over several in a row; 0: they failed. */
static double time_gemms(an_device *d, const peak *p)
{
    an_err quiet = {0};
    float ms = 0;
    bool good = !d->cu.event_record(p->begin, d->stream, 0);
    for (int i = 0; i < REPEATS && good; i++)
        good = an_gemm_run(&quiet, d, &p->spec, &p->gemm, &p->ready, p->at, 0, p->workspace) == AN_OK;
    good = good && !d->cu.event_record(p->end, d->stream, 0) &&
           an_cuda_wait_stream(&quiet, d, "measuring GEMMs") == AN_OK && !d->cu.event_ms(&ms, p->begin, p->end);
    return good ? (double)ms * 1e-3 / REPEATS : 0;
}

static void unmake(an_device *d, peak *p)
{
    an_err quiet = {0};
    an_gemm_free(d, &p->ready);
    if (an_cuda_enter(&quiet, d) != AN_OK) return; /* the device is lost, and its memory with it */
    an_cuda_wait_idle(d);
    const cu_pointer memory[] = {p->at[0], p->at[2], p->workspace};
    for (size_t i = 0; i < AN_COUNT(memory); i++)
        if (memory[i]) d->cu.memory_free(memory[i]);
    if (p->begin) d->cu.event_free(p->begin);
    if (p->end) d->cu.event_free(p->end);
}

/* The fastest GEMM within the given time, as cuBLASLt runs it with the device's settings. */
double an_cuda_measured_peak(an_device *d, an_dtype dtype, double seconds)
{
    an_err quiet = {0};
    peak p = {0};
    double best = 0, spent = 0;
    if (an_cuda_enter(&quiet, d) != AN_OK) return 0;
    if (make(d, dtype, &p)) {
        double one = time_gemms(d, &p); /* the first loads the library's kernel */
        while (one > 0 && spent < seconds) {
            one = time_gemms(d, &p);
            spent += one * REPEATS;
            if (one > 0 && (best <= 0 || one < best)) best = one;
        }
    }
    unmake(d, &p);
    return best > 0 ? 2e-9 * ROWS * ROWS * DEPTH / best : 0;
}
