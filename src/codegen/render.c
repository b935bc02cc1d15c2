/* render.c: which renderer speaks a dialect. */
#include "codegen/render.h"

#include <string.h>

void an_render(const char *dialect, const an_loop_kernel *p, const char *name, bool notes, an_text *out)
{
    if (!strcmp(dialect, "c"))
        an_render_c(p, name, notes, out);
    else if (!strcmp(dialect, "cuda"))
        an_render_gpu(p, name, false, notes, out);
    else if (!strcmp(dialect, "msl"))
        an_render_gpu(p, name, true, notes, out);
    else
        out->failed = true;
}

const char *an_render_refusal(const char *dialect, const an_loop_kernel *p)
{
    return strcmp(dialect, "c") ? an_render_gpu_refusal(p, !strcmp(dialect, "msl")) : NULL;
}
