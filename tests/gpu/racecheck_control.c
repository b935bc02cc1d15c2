/* racecheck_control.c: what compute-sanitizer's racecheck makes of a ring between two warps that is right, and of one that is not.
 *
 * attn_hopper.inc hands tiles from warp to warp by mbarriers, one arrival a warp after __syncwarp. racecheck names pairs of
 * accesses to its slots; whether it would also name them where nothing can be wrong is what this asks, with the same functions
 * around one slot that is written and read again and again:
 *
 *     compute-sanitizer --tool racecheck --num-cuda-barriers 64 racecheck_control lanes    every lane arrives
 *     ... racecheck_control warps                                                          one lane for its warp, as attn_hopper.inc does
 *     ... racecheck_control none                                                           neither warp waits: a race
 *
 * Exit code 1: what was read is not what was written (not asked of `none`). */
#include "cuda_host.h"

static const char text[] =
    "typedef unsigned int u32;\n"
    "__device__ void arrive(u32 bar)\n"
    "{\n"
    "    if (ALL) {\n"
    "        asm volatile(\"mbarrier.arrive.shared::cta.b64 _, [%0];\" ::\"r\"(bar) : \"memory\");\n"
    "        return;\n"
    "    }\n"
    "    __syncwarp();\n"
    "    if (threadIdx.x % 32 == 0) asm volatile(\"mbarrier.arrive.shared::cta.b64 _, [%0];\" ::\"r\"(bar) : "
    "\"memory\");\n"
    "}\n"
    "__device__ void wait(u32 bar, u32 phase)\n"
    "{\n"
    "    u32 done;\n"
    "    do\n"
    "        asm volatile(\"{\\n.reg .pred p;\\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\\n\"\n"
    "                     \"selp.b32 %0, 1, 0, p;\\n}\" : \"=r\"(done) : \"r\"(bar), \"r\"(phase) : \"memory\");\n"
    "    while (!done);\n"
    "}\n"
    "extern \"C\" __global__ void ring(u32 *sums, int rounds)\n"
    "{\n"
    "    __shared__ __align__(8) unsigned long long bars[2];\n"
    "    __shared__ u32 slot[32];\n"
    "    const u32 full = (u32)__cvta_generic_to_shared(&bars[0]), empty = (u32)__cvta_generic_to_shared(&bars[1]);\n"
    "    const int lane = threadIdx.x % 32;\n"
    "    if (threadIdx.x < 2)\n"
    "        asm volatile(\"mbarrier.init.shared::cta.b64 [%0], %1;\" ::\"r\"(threadIdx.x ? empty : full), \"r\"(ALL ? "
    "32 : 1) : \"memory\");\n"
    "    __syncthreads();\n"
    "    u32 sum = 0;\n"
    "    for (int i = 0; i < rounds; i++)\n"
    "        if (threadIdx.x < 32) {\n"
    "            if (WAITS && i) wait(empty, (u32)(i - 1) & 1);\n"
    "            slot[lane] = (u32)(i * 32 + lane);\n"
    "            arrive(full);\n"
    "        } else {\n"
    "            if (WAITS) wait(full, (u32)i & 1);\n"
    "            sum += slot[31 - lane];\n"
    "            arrive(empty);\n"
    "        }\n"
    "    if (threadIdx.x >= 32) sums[lane] = sum;\n"
    "}\n";

int main(int argc, char **argv)
{
    enum { ROUNDS = 8, LANES = 32 };
    const char *how = argc == 2 ? argv[1] : "warps";
    const int all = !strcmp(how, "lanes"), waits = strcmp(how, "none") != 0;
    char whole[sizeof text + 64];
    int rounds = ROUNDS, wrong = 0;
    uint32_t sums[LANES];
    cuda_begin();
    if (cuda.arch < 90) {
        printf("mbarrier.try_wait is for sm_90 and later: NOT run on sm_%d\n", cuda.arch);
        return 0;
    }
    snprintf(whole, sizeof whole, "#define ALL %d\n#define WAITS %d\n%s", all, waits, text);
    void *kernel = cuda_kernel(cuda_module(whole, "ring", 1, 0), "ring");
    cuda_pointer out = cuda_new(sizeof sums, NULL);
    void *args[] = {&out, &rounds};
    cuda_run(kernel, 1, 1, 1, 2 * LANES, args);
    cuda_check(cuda.synchronize(), "cuCtxSynchronize");
    cuda_check(cuda.to_host(sums, out, sizeof sums), "cuMemcpyDtoH");
    for (int lane = 0; lane < LANES; lane++) {
        uint32_t want = 0;
        for (int i = 0; i < ROUNDS; i++) want += (uint32_t)(i * LANES + LANES - 1 - lane);
        wrong += sums[lane] != want;
    }
    printf("%s: %d of %d sums are wrong\n", how, wrong, LANES);
    cuda.release(out);
    return waits && wrong;
}
