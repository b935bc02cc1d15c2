/* render_gpu.c: row programs as CUDA and MSL text. */
#include "kernel/render.h"

void an_render_gpu(const an_row_prog *p, const char *name, bool msl, bool notes, an_text *out)
{
    (void)msl;
    (void)notes;
    an_text_printf(out, "/* %s */\n", name);
    an_row_print(p, out);
}
