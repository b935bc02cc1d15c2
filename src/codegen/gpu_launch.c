/* gpu_launch.c: filling in the record of a launch. See gpu_launch.h. */
#include "codegen/gpu_launch.h"

enum { MOST_BLOCKS_YZ = 65535 }; /* CUDA's limit; Metal takes more */

void an_gpu_bind(an_gpu_launch *l, an_bind_kind kind, int index, int arg, int64_t offset)
{
    l->bind[l->n_binds++] =
        (an_gpu_binding){.kind = (uint8_t)kind, .index = (uint8_t)index, .arg = (int16_t)arg, .offset = offset};
}

void an_gpu_bind_arg(an_gpu_launch *l, int index, const an_plan_step *s, int arg)
{
    bool present = arg < s->n_args && s->arg[arg].slot >= 0;
    an_gpu_bind(l, present ? AN_BIND_ARG : AN_BIND_ANY, index, present ? arg : 0, 0);
}

const char *an_gpu_launch_add(an_gpu_step *out, const char *entry, int64_t x, int64_t y, int64_t z, int threads,
                              an_gpu_launch **l)
{
    if (x > INT32_MAX || y > MOST_BLOCKS_YZ || z > MOST_BLOCKS_YZ)
        return "needs a larger grid than a GPU takes; use a smaller batch";
    *l = &out->launch[out->n_launches];
    **l = (an_gpu_launch){
        .entry = entry, .blocks = {(uint32_t)x, (uint32_t)y, (uint32_t)z}, .threads = (uint32_t)threads};
    if (x > 0 && y > 0 && z > 0) out->n_launches++; /* an empty grid: the next launch overwrites this one */
    return NULL;
}
