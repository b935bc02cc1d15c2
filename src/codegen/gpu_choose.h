/* gpu_choose.h: what the choosers of tiles share (gpu_gemm_tiles.c, gpu_module.c): storage, alignment, shared memory. */
#ifndef AN_CODEGEN_GPU_CHOOSE_H
#define AN_CODEGEN_GPU_CHOOSE_H

#include "codegen/dialect.h"
#include "codegen/gpu_tiles.h"
#include "ir/plan.h"

/* The name of a storage kind in the templates; NULL: they have none. */
static inline const char *an_kind_text(an_dtype dtype)
{
    static const char *const kind[AN_N_DTYPES] = {[AN_F32] = "F32", [AN_BF16] = "BF16", [AN_F16] = "F16"};
    return kind[dtype];
}

/* Bytes of an operand in shared memory. A language without a bf16 type keeps it as f32; without matrix instructions
 * every operand is kept so. */
static inline int an_operand_bytes(const an_gpu *gpu, int mul)
{
    return mul == AN_F32 || gpu->plain || (mul == AN_BF16 && gpu->version < gpu->dialect->bf16_version) ? 4 : 2;
}

/* Bytes of a tile of `rows` rows of n elements, with 16 bytes of padding a row (AN_LD of tiles.h). */
static inline int an_tile_bytes(int rows, int n, int each)
{
    return rows * (n * each + 16);
}

static inline bool an_multiples_of_8(const int64_t *stride, int n)
{
    for (int i = 0; i < n; i++)
        if (stride[i] % 8) return false;
    return true;
}

static inline bool an_starts_on_16(const an_arg *a)
{
    return a->slot < 0 || a->offset % 16 == 0;
}

/* Tiles of a product; NULL, or why there is no template. */
const char *an_choose_gemm(const an_gemm_spec *s, const an_arg *arg, const an_gpu *gpu, an_tiles *t);

#endif
