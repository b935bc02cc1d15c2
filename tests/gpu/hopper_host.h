/* hopper_host.h: what checks of gemm_hopper.inc need beside cuda_host.h: tensor maps for the copy engine, cuBLASLt to compare
 * with, the multiprocessors of the GPU. The program defines _GNU_SOURCE first (popen). */
#ifndef AN_HOPPER_HOST_H
#define AN_HOPPER_HOST_H

#include "cuda_host.h"
#include "device/cuda/driver.h"

typedef struct tensor_map {
    _Alignas(64) uint64_t opaque[16];
} tensor_map;

static int (*encode)(tensor_map *, int type, uint32_t rank, cuda_pointer, const uint64_t *extents,
                     const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave, int swizzle,
                     int promotion, int fill);
static an_cublaslt lt;
static lt_handle handle;
static int multiprocessors;

/* False, and says so: the GPU is of another generation. */
static inline int hopper_begin(void)
{
    an_err err = {0};
    setvbuf(stdout, NULL, _IOLBF, 0); /* what hangs is seen */
    cuda_begin();
    if (cuda.arch != 90) {
        printf("gemm_hopper.inc is for sm_90a alone: NOT run on sm_%d\n", cuda.arch);
        return 0;
    }
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!dl_symbol(driver, "cuTensorMapEncodeTiled", &encode)) cuda_die("the driver has no cuTensorMapEncodeTiled");
    if (an_cublaslt_find(&err, 13, &lt) != AN_OK) cuda_die("%s", err.text);
    cuda_check(lt.create(&handle), "cublasLtCreate");
    cuda_check(cuda.attribute(&multiprocessors, 16, 0), "cuDeviceGetAttribute");
    return 1;
}

/* Of a bf16 matrix whose rows are `ld` elements apart; 64 columns of box_rows rows are copied at a time. */
static inline tensor_map map_of(cuda_pointer p, int64_t rows, int64_t cols, int64_t ld, int box_rows)
{
    enum { BF16 = 9, SWIZZLE_128B = 3, PROMOTE_256B = 3 };
    const uint64_t extents[2] = {(uint64_t)cols, (uint64_t)rows}, stride = 2 * (uint64_t)ld;
    const uint32_t box[2] = {64, (uint32_t)box_rows}, steps[2] = {1, 1};
    tensor_map map;
    cuda_check(encode(&map, BF16, 2, p, extents, &stride, box, steps, 0, SWIZZLE_128B, PROMOTE_256B, 0),
               "cuTensorMapEncodeTiled");
    return map;
}

static inline int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

#endif
