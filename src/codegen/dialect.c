/* dialect.c: the table of GPU dialects. See dialect.h. */
#include "codegen/dialect.h"

#include <string.h>

extern const char an_embed_dialect_cuda_h[], an_embed_dialect_msl_h[];

const an_dialect an_dialects[AN_N_DIALECTS] = {
    [AN_DIALECT_C] = {.name = "c"},
    [AN_DIALECT_CUDA] = {.name = "cuda",
                         .header = an_embed_dialect_cuda_h,
                         .ptx = true,
                         .vector_access = true,
                         .block_per_row = true,
                         .restrict_input = true,
                         .shared_bytes = 48 << 10},
    [AN_DIALECT_MSL] = {.name = "msl",
                        .header = an_embed_dialect_msl_h,
                        .no_aliasing = true,
                        .max_buffers = AN_MSL_BUFFERS,
                        .shared_bytes = 32 << 10,
                        .bf16_version = 310,
                        .largest_tile = 1,
                        .direct_fragments = true,
                        .no_float64 = "uses float64, which Apple GPUs do not have; use float32, device=cpu, or "
                                      "fallback=cpu",
                        .too_many_buffers = "takes more than the 31 buffers of Metal; evaluate fewer tensors at once"},
};

const an_dialect *an_dialect_find(const char *name)
{
    for (int i = 0; i < AN_N_DIALECTS; i++)
        if (!strcmp(an_dialects[i].name, name)) return &an_dialects[i];
    return NULL;
}
