/* render_notes.h: the comment above a rendered kernel: whose it is, what it computes, what it touches. Private to the
 * renderers. */
#ifndef AN_RENDER_NOTES_H
#define AN_RENDER_NOTES_H

#include "kernel/row.h"

/* "y4[r] = (x0 - mean) * ..." of every store, a line each behind `prefix`; long formulas are cut. */
void an_render_formulas(const an_row_prog *p, const char *prefix, an_text *out);
/* "  6.3 Mflop, 50 MB" */
void an_render_cost(uint64_t flops, uint64_t bytes, an_text *out);

#endif
