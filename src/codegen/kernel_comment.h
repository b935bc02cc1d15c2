/* kernel_comment.h: the comment above a rendered kernel: its provenance, formula and cost. Private to the renderers.
 */
#ifndef AN_CODEGEN_KERNEL_COMMENT_H
#define AN_CODEGEN_KERNEL_COMMENT_H

#include "ir/loop_kernel.h"

/* "y4[r] = (x0 - mean) * ..." of every store, a line each behind `prefix`; long formulas are cut. */
void an_render_formulas(const an_loop_kernel *p, const char *prefix, an_text *out);
/* "  6.3 Mflop, 50 MB" */
void an_render_cost(uint64_t flops, uint64_t bytes, an_text *out);

#endif
