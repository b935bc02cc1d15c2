/* render.c: a loop kernel in a dialect given by its name. */
#include "codegen/render.h"

void an_render(const char *dialect, const an_loop_kernel *p, const char *name, bool notes, an_text *out)
{
    const an_gpu gpu = {.dialect = an_dialect_find(dialect)};
    if (!gpu.dialect)
        out->failed = true;
    else if (gpu.dialect->header)
        an_render_gpu(p, name, &gpu, NULL, notes, out);
    else
        an_render_c(p, name, notes, out);
}

const char *an_render_refusal(const char *dialect, const an_loop_kernel *p)
{
    const an_dialect *d = an_dialect_find(dialect);
    return d && d->header ? an_render_gpu_refusal(p, d) : NULL;
}
