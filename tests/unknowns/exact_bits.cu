// exact_bits.cu: exact_bits.c's twin: the same header, inputs and hashes on a GPU. Exits with 1 when one is not the pinned one.
//     nvcc -arch=sm_90 -I src -o build/exact_bits_cuda tests/unknowns/exact_bits.cu && build/exact_bits_cuda
// No option is needed for equal bits: -ftz=true, -fmad=true, -prec-div=false and -prec-sqrt=false must change nothing.
#include "base/exact.h"
#include "exact_cases.h"

#include <cstdio>
#include <cstdlib>

#define DEFINE(name, pinned, result)                                                                                           \
    __global__ void kernel_##name(unsigned long long *sum)                                                             \
    {                                                                                                                  \
        unsigned long long mine = 0;                                                                                   \
        for (an_u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < CASE_INPUTS; i += gridDim.x * blockDim.x) {         \
            float x = case_x(i), y = case_y(i);                                                                        \
            mine += case_mix(i, result);                                                                               \
            (void)x, (void)y;                                                                                          \
        }                                                                                                              \
        atomicAdd(sum, mine);                                                                                          \
    }
EXACT_CASES(DEFINE)

// One warp a row: its lanes are the tree's virtual lanes.
__global__ void kernel_rows(unsigned long long *sums, unsigned long long *maxima)
{
    an_u32 lane = threadIdx.x % 32, row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    an_u32 n = case_row_length(row);
    float sum = 0.0f, largest = -AN_EXACT_INF;
    for (an_u32 j = lane; j < n; j += 32) {
        float x = case_row_item(row, j);
        sum = __fadd_rn(sum, x);
        largest = an_max(largest, x);
    }
    for (int s = 16; s > 0; s >>= 1) {
        sum = __fadd_rn(sum, __shfl_down_sync(0xffffffffu, sum, s));
        largest = an_max(largest, __shfl_down_sync(0xffffffffu, largest, s));
    }
    if (lane == 0) {
        atomicAdd(sums, case_mix(row, AN_F2U(sum)));
        atomicAdd(maxima, case_mix(row, AN_F2U(largest)));
    }
}

static void check(cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e));
    std::exit(2);
}

static int report(const char *name, unsigned long long hash, unsigned long long pinned)
{
    std::printf("%-10s %016llx%s\n", name, hash, hash == pinned ? "" : " DIFFERS");
    return hash != pinned;
}

// One counter a case: no copy or reset can be forgotten between two.
enum { MAX_CASES = 64 };

int main()
{
    unsigned long long *sums, host[MAX_CASES];
    int n = 0;
    check(cudaMalloc(&sums, sizeof host), "cudaMalloc");
    check(cudaMemset(sums, 0, sizeof host), "cudaMemset");
#define RUN(name, pinned, result)                                                                                              \
    kernel_##name<<<1024, 256>>>(sums + n++);                                                                          \
    check(cudaGetLastError(), #name);
    EXACT_CASES(RUN)
    kernel_rows<<<CASE_ROWS / 8, 256>>>(sums + n, sums + n + 1);
    check(cudaGetLastError(), "rows");
    check(cudaMemcpy(host, sums, sizeof host, cudaMemcpyDeviceToHost), "kernels");
    int wrong = 0;
    n = 0;
#define REPORT(name, pinned, result) wrong += report(#name, host[n++], pinned);
    EXACT_CASES(REPORT)
    wrong += report("sum", host[n], CASE_SUM_HASH) + report("max", host[n + 1], CASE_MAX_HASH);
    check(cudaFree(sums), "cudaFree");
    return wrong != 0;
}
